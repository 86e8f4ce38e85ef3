# %% [markdown] lang="zh"
# # M01 概覽 | 量化一個模型，要回答哪三個問題
#
# 這一章把第一個模型量化成 int8，做法是 PTQ（訓練後量化，post-training quantization）：不再訓練，只用少量資料決定怎麼量
# 化。先不背 API，只看清楚兩件事：量化替模型決定了什麼，PT2E（PyTorch 2 Export quantization）又把每個決定寫在計算圖的哪
# 裡。頁上的公式，以及圖上有什麼，都緊接著用程式驗算；速度留到 [M08-4](../m08_executorch/4_latency.py) 才量。
#
# | 問題 | 一句話的答案 | 頁 |
# | --- | --- | --- |
# | 量化一個模型要決定什麼？ | 哪些 tensor 要量化、各用什麼 scale 與 zero point、怎麼讓後端讀懂 | 本頁 |
# | 在訓練好的模型上怎麼走一遍？ | 四個呼叫；準確率幾乎不掉。五種常見失誤裡有兩種不出聲 | [M01-1](1_minimal_ptq.py) |
# | observer 插在哪些邊上？ | quantizer 標註的地方；會融合的 op 之間沒有 | [M01-2](2_prepare_convert.py) |
# | per-channel、QAT（量化感知訓練）、dynamic（activation 的 scale 在執行時才算）各改了什麼？ | 每個 tensor 配哪種 observer；QAT 還改用 `prepare_qat_pt2e`，以訓練代替校準 | [M01-3](3_quantization_config.py) |
#
# **讀完你會知道**
#
# - 量化要回答的三個問題，以及 PT2E 用哪一步回答哪一題
# - 圖上的 observer、quantize、dequantize 何時出現，各代表什麼
# - 怎麼手算 scale 與 zero point，誤差的上限是多少
# - 為什麼 Q/DQ 圖自己還是 fp32 運算，後端卻能靠它只用整數計算

# %% [markdown] lang="en"
# # M01 Overview | The three questions behind every quantized model
#
# In this chapter a model becomes int8 for the first time, by PTQ (post-training quantization): no more training, just a
# little data to decide how to quantize. Before memorizing any API, we want to see two things clearly: what quantization
# decides about a model, and where in the graph PT2E (PyTorch 2 Export quantization) writes each decision down. The
# formulas on this page, and what we say a graph contains, are checked by the code right after; speed is measured only
# in [M08-4](../m08_executorch/4_latency.py).
#
# | Question | Answer in one line | Page |
# | --- | --- | --- |
# | What has to be decided to quantize a model? | Which tensors, with which scale and zero point, in a form a backend can read | this page |
# | What does that look like on a trained model? | Four calls; accuracy barely moves. Two of five common mistakes raise no error | [M01-1](1_minimal_ptq.py) |
# | Which edges get an observer? | Those the quantizer annotated; none between ops that will be fused | [M01-2](2_prepare_convert.py) |
# | What do per-channel, QAT (quantization-aware training) and dynamic (activation scales computed at run time) change? | Which observer each tensor gets; QAT also takes `prepare_qat_pt2e`, and training in place of calibration | [M01-3](3_quantization_config.py) |
#
# **What you will know**
#
# - The three questions, and which step of PT2E answers which
# - When observers, quantize and dequantize show up in the graph, and what each stands for
# - How to compute a scale and a zero point by hand, and how large the error can get
# - Why a Q/DQ graph itself still computes in fp32, yet lets a backend compute with nothing but integers

# %% [markdown] lang="zh"
# ## 先預測
#
# 往下讀之前，先寫下你的答案：
#
# 1. 一個 conv 接一個 relu，量化成 int8，圖上會多出幾個 observer？在哪裡？
# 2. int8，scale 0.02，zero point −3：範圍內的值最多差多少？−4 會差多少？
# 3. 量化後的圖存成檔案，會比 fp32 的小嗎？

# %% [markdown] lang="en"
# ## Predict first
#
# Write down your answers before you read on:
#
# 1. A convolution followed by a ReLU becomes int8. How many observers does that add, and where do they sit?
# 2. int8, scale 0.02, zero point −3: how far off can a value inside the range be? And −4?
# 3. Saved to a file, is the quantized graph smaller than the fp32 model?

# %% [markdown] lang="zh"
# ## 為什麼量化，要決定什麼
#
# fp32 換成 int8，weight 和 activation 佔的記憶體變成四分之一；手機、MCU、NPU 上的 int8 乘加通常也比 fp32 快、更省電。代
# 價是一個 tensor 只剩 256 個整數可用，得先約定每個整數代表哪個實數。這個約定就是 scale 與 zero point，每個要量化的
# tensor 都要有一組。一個模型有幾十到幾百個 tensor，於是有三個問題：
#
# | 問題 | 難在哪裡 | PT2E 的回答 | 在圖上 |
# | --- | --- | --- | --- |
# | 1. 哪些 tensor 要量化？ | conv 後面緊接 relu 時，中間的值不必存成 int8 | quantizer 替 node 寫標註 | 沒有新 node，寫在 `node.meta` |
# | 2. scale、zero point 是多少？ | 要看過資料才知道數值範圍 | observer 在校準（拿資料跑過圖）時記錄範圍 | 邊上多出 observer |
# | 3. 怎麼交給後端？ | 真正執行 int8 kernel 的是 XNNPACK、ONNX Runtime 這些後端 | observer 換成 quantize（q）、dequantize（dq）；weight 存成 int8，只留 dq | 邊上是 q → dq |
#
# 三題都在同一張圖上回答：`torch.export` 先把模型變成 `torch.fx` 的圖。對 node、graph 還不熟的話，先讀
# [M00](../m00_fx/0_overview.py)。

# %% [markdown] lang="en"
# ## Why quantize, and what has to be decided
#
# Going from fp32 to int8 cuts the memory of weights and activations to a quarter, and on phones, microcontrollers and
# NPUs an int8 multiply-add is usually faster and takes less energy. The price: a tensor has only 256 integers left, so
# we must agree on which real number each of them stands for. That agreement is a scale and a zero point, and every
# quantized tensor needs one. With dozens or hundreds of tensors in a model, three questions come up:
#
# | Question | Why it takes thought | PT2E's answer | In the graph |
# | --- | --- | --- | --- |
# | 1. Which tensors? | between a conv and the ReLU right after it, nothing has to be stored as int8 | the quantizer annotates nodes | no new node, it is in `node.meta` |
# | 2. Which scale and zero point? | only data can tell the range of the values | observers record it during calibration (running data through the graph) | observers on edges |
# | 3. How does a backend get it? | backends such as XNNPACK and ONNX Runtime run the int8 kernels | observers become quantize (q) and dequantize (dq); the weight is stored as int8 and keeps only a dq | q → dq on edges |
#
# All three are answered on the same graph: `torch.export` first turns the model into a `torch.fx` graph. If nodes and
# graphs are new to you, start with [M00](../m00_fx/0_overview.py).

# %% [markdown] lang="zh"
# ## 四個步驟
#
# | 步驟 | 呼叫 | 對圖做了什麼 | 回答 |
# | --- | --- | --- | --- |
# | 1. export | `torch.export.export(model, example).module()` | 把 `nn.Module` 變成 ATen op 的圖 | 備好要改的圖 |
# | 2. prepare | `prepare_pt2e(exported, quantizer)` | BN 折疊（把 BatchNorm 併進前一個 conv），再依標註插入 observer | 問題 1 |
# | 3. calibrate | `prepared(image)` | 不改圖；observer 記下範圍 | 問題 2 |
# | 4. convert | `convert_pt2e(prepared)` | 把 observer 換成 q、dq（weight 只留 dq） | 問題 3 |
#
# 只有 prepare 與 convert 會改圖。下面用最小的模型，一步一步走完。

# %% [markdown] lang="en"
# ## The four steps
#
# | Step | Call | What it does to the graph | Answers |
# | --- | --- | --- | --- |
# | 1. export | `torch.export.export(model, example).module()` | turns the `nn.Module` into a graph of ATen ops | gives us a graph to edit |
# | 2. prepare | `prepare_pt2e(exported, quantizer)` | folds BN (BatchNorm) into the convolution before it, then inserts observers where annotated | question 1 |
# | 3. calibrate | `prepared(image)` | nothing; observers record ranges | question 2 |
# | 4. convert | `convert_pt2e(prepared)` | replaces observers with q and dq (the weight keeps only a dq) | question 3 |
#
# Only prepare and convert edit the graph. Below, the smallest possible model takes all four steps, one at a time.

# %% tags=["setup"]
import copy
import io

from common.data import calibration_batches
from common.env import quiet
from common.models import example_inputs, get_model
from common.viz import T, graph, say, show, table  # T: one text, two languages

import matplotlib.pyplot as plt
import torch
from torch import nn

quiet()


def calls(gm, op):
    """The nodes of a graph that call `op`."""
    return gm.graph.find_nodes(op="call_function", target=op)


# %% [markdown] lang="zh"
# ## 最小的例子：conv → relu
#
# ### 第 1 步：export
#
# `torch.export.export` 用一份範例輸入追蹤模型，把經過的 op 記成圖；`.module()` 讓圖又能像模型一樣呼叫。結果一個位元都沒
# 變。頁上多數程式只有 `assert`：沒有輸出就是通過，引號裡是失敗時的訊息。

# %% [markdown] lang="en"
# ## The smallest example: conv → relu
#
# ### Step 1: export
#
# `torch.export.export` traces the model with an example input and records the ops it meets as a graph; `.module()`
# makes the graph callable like the model itself. Not one bit of the result changes. Most code on this page ends in
# `assert`s: no output means they hold; the quoted text is what a failure would say.

# %%
model = get_model("conv_relu")  # 3x3 convolution, 3 to 8 channels, then ReLU
example = example_inputs(1)  # a tuple: one image of shape (1, 3, 16, 16)
exported = torch.export.export(model, example).module()

with torch.no_grad():
    same = torch.equal(exported(*example), model(*example))
assert same, "export changed the result"
after_export = copy.deepcopy(exported)  # to draw it: prepare will edit it

# %% [markdown] lang="zh"
# ### 第 2 步：prepare
#
# quantizer 由後端提供，因為只有後端知道哪些 op 能合成一個 kernel。`prepare_pt2e` 先讓它寫標註，再照標註插入 observer。
# 這門課用 ExecuTorch 附的 `XNNPACKQuantizer`，weight 採 per-channel（每個 output channel 各一個 scale）；注意
# `is_per_channel` 預設是 `False`。

# %% [markdown] lang="en"
# ### Step 2: prepare
#
# A quantizer comes from a backend, since only the backend knows which ops it can run as one kernel. `prepare_pt2e` has
# it write its annotations and then inserts observers where they say so. This course uses the `XNNPACKQuantizer` that
# ships with ExecuTorch, with per-channel weights (a scale for each output channel); note that `is_per_channel` defaults
# to `False`.

# %%
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

config = get_symmetric_quantization_config(is_per_channel=True)
default = get_symmetric_quantization_config()
assert default.weight.qscheme == torch.per_tensor_symmetric, "a new default?"

quantizer = XNNPACKQuantizer().set_global(config)  # for the whole graph
prepared = prepare_pt2e(exported, quantizer)

# %%
observers = {}  # name of the observed tensor -> the observer on it
for node in prepared.graph.nodes:
    # every observer is called activation_post_process, the weight's too
    if node.op == "call_module" and "activation_post_process" in node.target:
        observers[node.args[0].name] = getattr(prepared, node.target)

kinds = {name: type(observer).__name__ for name, observer in observers.items()}
assert kinds == {
    "conv_weight": "PerChannelMinMaxObserver",
    "x": "HistogramObserver",
    "relu": "HistogramObserver",
}, kinds

# %% tags=["plot"]
graph(
    [
        (T(zh="export 之後", en="After export"), after_export),
        (T(zh="prepare 之後", en="After prepare"), prepared),
    ],
    alt=T(
        zh="上：x 經過 conv2d、relu 到輸出，weight 寫在 conv2d 的框裡。下：x、weight、relu 的輸出上各多了一個 observer。",
        en="First x goes through conv2d and relu to the output, with the weight written into its box. "
        "Then x, the weight and the output of relu each carry an observer.",
    ),
    caption=T(
        zh="同一張圖在 export 與 prepare 之後。綠色是 observer；‹…› 是併進框裡的參數；檢查輸入的 `_guards_fn`（M00-2）不畫。",
        en="One graph, after export and after prepare. Observers are green; ‹…› are parameters written into a box; "
        "`_guards_fn`, which checks the inputs (M00-2), is not drawn.",
    ),
)

# %% [markdown] lang="zh"
# 三個 observer：輸入 `x`、conv 的 weight、relu 的輸出。這就是預測 1 的答案。conv 和 relu 之間沒有，因為後端把兩者當成一
# 個 kernel 算，中間的值不必存下來。
#
# `prepare_pt2e` 還做了兩件容易漏看的事：它先把 BatchNorm 折進前面的 conv（BN 折疊，見
# [M04](../m04_batchnorm/0_overview.py)）；而且直接改你交給它的圖，`exported` 與 `prepared` 從此是同一個 `Graph`，想留住
# 原樣就要先 `copy.deepcopy`。

# %% [markdown] lang="en"
# Three observers: on the input `x`, on the convolution's weight, and on the output of ReLU. That settles prediction 1.
# There is none between conv and ReLU: the backend runs both as one kernel, so the value in between is never stored.
#
# `prepare_pt2e` does two more things that are easy to miss. It first folds BatchNorm into the convolution before it (BN
# folding, see [M04](../m04_batchnorm/0_overview.py)). And it edits the graph you hand it: from here on `exported` and
# `prepared` are one and the same `Graph`, so make a `copy.deepcopy` first if you want to keep the original.

# %%
layers = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()
with_bn = nn.Sequential(*layers).eval()
exported_bn = torch.export.export(with_bn, example).module()
batch_norm = torch.ops.aten.batch_norm.default
assert len(calls(exported_bn, batch_norm)) == 1

prepared_bn = prepare_pt2e(exported_bn, quantizer)
assert not calls(prepared_bn, batch_norm), "BatchNorm is still there"
for before, after in [(exported_bn, prepared_bn), (exported, prepared)]:
    assert after.graph is before.graph, "prepare_pt2e made a new graph"

# %% [markdown] lang="zh"
# ### 第 3 步：calibrate
#
# 校準就是拿有代表性的資料呼叫這張圖。observer 不改數值；這個模型沒有 BN，所以輸出和原模型逐位元相同（有 BN 的話，折疊會
# 讓捨入略有不同）。observer 記下的最小、最大值就是資料的最小、最大值。

# %% [markdown] lang="en"
# ### Step 3: calibrate
#
# To calibrate is to call the graph with representative data. Observers change no value; this model has no BN, so the
# outputs equal the model's bit for bit (with BN, folding makes for slightly different rounding). The smallest and
# largest value an observer has recorded are those of the data.

# %%
images = [image for (image,) in calibration_batches(32, batch_size=1)]
with torch.no_grad():
    outputs = [model(image) for image in images]
    for image, output in zip(images, outputs, strict=True):
        assert torch.equal(prepared(image), output), "a value changed"

# %%
for name, observer in observers.items():
    has_seen_data = observer.min_val.isfinite().all()
    assert has_seen_data, f"{name} was never observed: no calibration?"

data = {"x": torch.cat(images), "relu": torch.cat(outputs)}
for name, values in data.items():
    recorded = observers[name].min_val, observers[name].max_val
    assert recorded == (values.min(), values.max()), f"{name}: {recorded}"

# %% [markdown] lang="zh"
# ### 第 4 步：convert
#
# `convert_pt2e` 向每個 observer 要 scale 與 zero point（`calculate_qparams()`），寫進 q、dq 兩個 node 的引數。weight 是
# 已知的常數，當場就換成 int8，圖上只剩 dequantize。

# %% [markdown] lang="en"
# ### Step 4: convert
#
# `convert_pt2e` asks each observer for its scale and zero point (`calculate_qparams()`) and writes them into the
# arguments of two nodes, q and dq. The weight is a known constant, so it turns into int8 on the spot and only its
# dequantize stays in the graph.

# %%
answers = {name: obs.calculate_qparams() for name, obs in observers.items()}
quantized = convert_pt2e(prepared)  # asks the observers the same question

# %%
ops = torch.ops.quantized_decomposed
params = {}  # name of a tensor -> (scale, zero point) on its q node
for node in calls(quantized, ops.quantize_per_tensor.default):
    params[node.args[0].name] = node.args[1:3]

for name, on_graph in params.items():
    answer = tuple(value.item() for value in answers[name])
    assert on_graph == answer, f"{name}: {on_graph}, not {answer}"
for dq in calls(quantized, ops.dequantize_per_tensor.default):
    q = dq.args[0]
    assert dq.args[1:] == q.args[1:], f"{dq} does not undo {q}"

# %%
(weight_dq,) = calls(quantized, ops.dequantize_per_channel.default)
weight_int8 = getattr(quantized, weight_dq.args[0].target)
weight_scale = getattr(quantized, weight_dq.args[1].target)
assert weight_int8.dtype == torch.int8, "the weight is not stored as int8"
assert torch.equal(weight_scale, answers["conv_weight"][0])

# %% tags=["plot"]
graph(
    quantized,
    alt=T(
        zh="x 經過 q、dq 才進 conv2d 與 relu，結果再經過 q、dq 到輸出；int8 的 weight 經過 dq 進 conv2d。",
        en="x passes q and dq before conv2d and relu, and the result passes q and dq again on its way to the output; "
        "the int8 weight reaches conv2d through a dq.",
    ),
    caption=T(
        zh="convert 之後：x 與 relu 的 observer 各變成一對 q → dq，帶著 scale（s）與 zero point（z）；weight 只有 dq。",
        en="After convert: the observers on x and relu have each become a pair q → dq that carries its scale (s) and "
        "zero point (z); the weight has only a dq.",
    ),
)

# %% [markdown] lang="zh"
# 三個問題在這張圖上都有了答案。接下來把用到的概念逐一講清楚，並驗算圖上的數字。
#
# ## scale 與 zero point
#
# affine 量化把實數 $x$ 對應到整數 $q$，再把 $q$ 還原成實數 $\hat{x}$：
#
# $$q = \mathrm{clamp}\Big(\mathrm{round}\big(\tfrac{x}{s}\big) + z,\; q_{\min},\; q_{\max}\Big) \tag{1}$$
#
# $$\hat{x} = s\,(q - z) \tag{2}$$
#
# - $s$（scale）：整數加 1，實數加多少；也就是一格的大小。
# - $z$（zero point）：代表實數 0 的整數。它讓 0 沒有誤差，zero padding 和 relu 輸出的大量 0 才不會失真。
# - $[q_{\min}, q_{\max}]$：可用的整數，int8 的 activation 是 $[-128, 127]$。
#
# 範圍內的值還原後最多差半格：$|x - \hat{x}| \le s/2$；範圍外的會被 clamp 到邊界，誤差沒有上限。範圍開大，每格變粗；開
# 小，clamp 變多。選 $s$ 就是在兩者之間取捨。下面用 convert 放進圖裡的同一組 op 來驗算：

# %% [markdown] lang="en"
# The graph now answers all three questions. Next we define the ideas it relies on, one at a time, and check the numbers
# in it.
#
# ## Scale and zero point
#
# Affine quantization maps a real number $x$ to an integer $q$, and $q$ back to a real number $\hat{x}$:
#
# $$q = \mathrm{clamp}\Big(\mathrm{round}\big(\tfrac{x}{s}\big) + z,\; q_{\min},\; q_{\max}\Big) \tag{1}$$
#
# $$\hat{x} = s\,(q - z) \tag{2}$$
#
# - $s$ (scale): how much the real number grows when the integer grows by one, in other words the size of a step.
# - $z$ (zero point): the integer for the real number 0. It keeps 0 exact, so zero padding and the many zeros of ReLU
#   survive intact.
# - $[q_{\min}, q_{\max}]$: the integers to use, $[-128, 127]$ for int8 activations.
#
# A value inside the range comes back at most half a step off, $|x - \hat{x}| \le s/2$. Outside, it is clamped to the
# border and the error has no limit. A wide range makes every step coarser, a narrow one clamps more: choosing $s$ is
# that trade-off. We check this with the very ops that convert put in the graph:

# %%
s, z = 0.02, -3
reals = torch.linspace(-4, 4, 20001)  # reaches beyond the range on purpose
codes = ops.quantize_per_tensor(reals, s, z, -128, 127, torch.int8)
restored = ops.dequantize_per_tensor(codes, s, z, -128, 127, torch.int8)

by_formula_1 = ((reals * (1 / s)).round() + z).clamp(-128, 127)
by_formula_2 = s * (codes.float() - z)
assert torch.equal(codes.float(), by_formula_1), "not formula (1)"
assert torch.equal(restored, by_formula_2), "not formula (2)"

# %%
in_range = (reals >= s * (-128 - z)) & (reals <= s * (127 - z))
error = (reals - restored).abs()
inside, outside = error[in_range].max(), error[~in_range].max()
assert 0.0099 < inside < 0.01 + 1e-6, "should be half a step of 0.02"
assert abs(outside - 1.5) < 1e-3, "-4 should end up at 0.02 * (-128 + 3)"

# %% tags=["plot"]
say(
    T(
        zh=f"範圍內的最大誤差是 {inside:.5f}，正好半格；範圍外的最大誤差是 {outside:.3f}，發生在 −4。預測 2 對了嗎？",
        en=f"Inside the range the largest error is {inside:.5f}, exactly half a step; "
        f"outside it is {outside:.3f}, at −4. Was your prediction 2 right?",
    )
)

# %% [markdown] lang="zh"
# ## observer 怎麼算
#
# 最簡單的 `MinMaxObserver` 只記最小與最大值。它先把範圍擴大到包含 0，得到 $a = \min(x_{\min}, 0)$ 與
# $b = \max(x_{\max}, 0)$，然後
#
# $$s = \frac{b - a}{q_{\max} - q_{\min}}, \qquad z = q_{\min} - \mathrm{round}\Big(\frac{a}{s}\Big) \tag{3}$$
#
# weight 通常用對稱量化：固定 $z = 0$，整數用 $[-127, 127]$，於是 $s = \max|w| / 127$。per-channel 則讓 conv 的每個
# output channel 各算一個 $s$。

# %% [markdown] lang="en"
# ## How observers compute them
#
# The simplest one, `MinMaxObserver`, remembers only the smallest and the largest value. It widens that range until it
# contains 0, which gives $a = \min(x_{\min}, 0)$ and $b = \max(x_{\max}, 0)$, and takes
#
# $$s = \frac{b - a}{q_{\max} - q_{\min}}, \qquad z = q_{\min} - \mathrm{round}\Big(\frac{a}{s}\Big) \tag{3}$$
#
# Weights are usually quantized symmetrically: $z$ is fixed at 0 and the integers are $[-127, 127]$, so
# $s = \max|w| / 127$. Per-channel gives each output channel of the convolution an $s$ of its own.

# %%
from torchao.quantization.pt2e import MinMaxObserver

with torch.no_grad():
    conv_output = model.conv(data["x"])  # before ReLU: values of both signs
minmax = MinMaxObserver(dtype=torch.int8, quant_min=-128, quant_max=127)
minmax(conv_output)
minmax_s, minmax_z = (value.item() for value in minmax.calculate_qparams())

a, b = min(conv_output.min().item(), 0.0), max(conv_output.max().item(), 0.0)
hand_s = (b - a) / 255
hand_z = -128 - round(a / hand_s)
assert abs(minmax_s / hand_s - 1) < 1e-5, "not the scale of formula (3)"
assert minmax_z == hand_z, "not the zero point of formula (3)"

hand_weight_scale = model.conv.weight.detach().abs().amax((1, 2, 3)) / 127
assert torch.allclose(weight_scale, hand_weight_scale, rtol=1e-5, atol=0)
assert not answers["conv_weight"][1].any(), "symmetric means z = 0"

# %% tags=["plot"]
table(
    [
        [
            "`model.conv(x)`",
            f"s={minmax_s:.5f}, z={minmax_z}",
            f"s={hand_s:.5f}, z={hand_z}",
        ],
        [
            "`conv.weight[0]`",
            f"s={weight_scale[0]:.5f}, z=0",
            f"s={hand_weight_scale[0]:.5f}, z=0",
        ],
    ],
    [
        "tensor",
        T(zh="observer 算的", en="by the observer"),
        T(zh="公式手算", en="by hand"),
    ],
)

# %% [markdown] lang="zh"
# `XNNPACKQuantizer` 對 activation 用的是 `HistogramObserver`：它統計直方圖，從兩端往內縮範圍。第一刀一定接受，之後估計
# 的誤差一變大就停；這是近似的搜尋，不保證最好（torchao 0.18.0，`observer.py` 的 `_non_linear_param_search`）。選定範圍
# 之後就是式 (3)。其他 observer 見 [M02](../m02_observers/1_observers.py)。拿圖上的範圍和資料比一比：

# %% [markdown] lang="en"
# For activations `XNNPACKQuantizer` picks `HistogramObserver`. It keeps a histogram and moves the borders inward: the
# first cut is always accepted, after that it stops as soon as the estimated error grows. This approximate search need
# not find the best range (torchao 0.18.0, `_non_linear_param_search` in `observer.py`); from there on formula (3)
# applies. [M02](../m02_observers/1_observers.py) compares the other observers. Let us set the ranges in the graph
# against the data:

# %%
rows, cuts = [], {}
for name, (s, z) in params.items():
    smallest, largest = data[name].min(), data[name].max()
    low, high = s * (-128 - z), s * (127 - z)  # formula (2) at both ends
    assert abs(low - smallest) < s, f"{name}: starts a step or more off"
    assert high < largest + s, f"{name}: a step or more too wide"
    clamped = (data[name] > high + s / 2).float().mean()
    assert clamped < 0.01, f"{name}: more than 1 % of the values clamped"
    cuts[name] = (largest - high) / (largest - smallest), clamped
    spans = f"{smallest:.3f} .. {largest:.3f}", f"{low:.3f} .. {high:.3f}"
    rows.append([f"`{name}`", *spans, f"{clamped:.4%}"])

# %% tags=["plot"]
table(
    rows,
    [
        "tensor",
        T(zh="資料", en="data"),
        T(zh="圖能表示的範圍", en="range in the graph"),
        T(zh="從上方被 clamp 的值", en="values clamped from above"),
    ],
)
say(
    T(
        zh="zero point 要捨入到整數，範圍會跟著平移，所以任一端最多比資料寬一格。",
        en="The zero point is rounded to an integer and shifts the range with it, so either end is at most one step "
        "wider than the data.",
    )
)
most = max(cuts, key=lambda name: cuts[name][0])
cut, clamped = cuts[most]
if cut > 0.01:
    say(
        T(
            zh=f"上端則可能被縮掉：`{most}` 少了資料範圍的 {cut:.0%}，被 clamp 的值有 {clamped:.4%}。",
            en=f"The upper end may be cut: `{most}` loses {cut:.0%} of the data's range, "
            f"which clamps {clamped:.4%} of its values.",
        )
    )
else:
    say(
        T(
            zh="這份資料的上端幾乎沒有被縮掉。",
            en="With this data hardly anything is cut at the upper end.",
        )
    )

# %% [markdown] lang="zh"
# ### 動手調調看
#
# int8 的格子太細，畫出來看不見。下圖換成 4 位元：只有 16 個整數，範圍取 $[-1, 1.5]$。還原的值 $\hat{x}$ 像樓梯，誤差
# $x - \hat{x}$ 在範圍內來回不超過半格，出了範圍就一路變大。

# %% [markdown] lang="en"
# ### Move the numbers
#
# The steps of int8 are too fine to draw. The figure takes 4 bits instead: just 16 integers, for the range $[-1, 1.5]$.
# The restored value $\hat{x}$ climbs like stairs, and the error $x - \hat{x}$ stays within half a step inside the range
# and grows without end outside of it.

# %%
coarse = MinMaxObserver(dtype=torch.int8, quant_min=-8, quant_max=7)
coarse(torch.tensor([-1.0, 1.5]))
s4, z4 = (value.item() for value in coarse.calculate_qparams())
line = torch.linspace(-2, 2.5, 2001)
codes = ops.quantize_per_tensor(line, s4, z4, -8, 7, torch.int8)
stairs = ops.dequantize_per_tensor(codes, s4, z4, -8, 7, torch.int8)
assert len(stairs.unique()) == 16, "4 bits are 16 integers"

# %% tags=["plot"]
fig, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(6, 4))
top.plot(line, line, color="black", linewidth=0.8, label="x")
top.plot(line, stairs, color="C0", label="restored")
top.set_ylabel("restored value")
top.legend()
bottom.plot(line, line - stairs, color="C1")
for half in (-s4 / 2, s4 / 2):
    bottom.axhline(half, color="black", linestyle="--", linewidth=0.8)
bottom.set(xlabel="x", ylabel="error", ylim=(-0.6, 0.6))
show(
    fig,
    alt=T(
        zh="上：x 從 −2 到 2.5，還原的值是 16 級的樓梯，−1 以下與 1.5 以上是平的。下：誤差在範圍內是半格以內的鋸齒，"
        "範圍外沿直線離開圖面。",
        en="Top: for x from −2 to 2.5 the restored value is a staircase of 16 steps, flat below −1 and above 1.5. "
        "Bottom: inside the range the error is a sawtooth within half a step; outside it leaves along a line.",
    ),
    caption=T(
        zh="4 位元、範圍 [−1, 1.5] 的還原值與誤差。虛線是正負半格。",
        en="Restored value and error at 4 bits for the range [−1, 1.5]. Dashed: plus and minus half a step.",
    ),
)

# %% [markdown] lang="zh"
# 換你調：資料的範圍、位元數、對稱與否，再移動 $x$。數字和 torchao 算的一樣，用的是式 (1) 到 (3)。把最小值拉到 0 以上，看
# 範圍為什麼還是從 0 開始；換成對稱，看哪些整數沒人用。
#
# <div class="quant-explorer"><p>（滑桿需要 JavaScript；上圖是其中一個例子。）</p></div>

# %% [markdown] lang="en"
# Your turn: move the range of the data, the bits, symmetric or not, and then $x$. The numbers are torchao's, by formulas
# (1) to (3). Pull the smallest value above 0 and see why the range still starts at 0; switch to symmetric and see which
# integers nobody uses.
#
# <div class="quant-explorer"><p>(The sliders need JavaScript; the figure above is one example.)</p></div>

# %% [markdown] lang="zh"
# ## quantizer 與標註
#
# quantizer 走過整張圖，在要量化的 node 上寫標註（annotation）：哪個輸入、哪個輸出，用哪些整數、配哪種 observer。它不插
# node，也不看資料；讀標註、插 observer 是 `prepare_pt2e` 的事。標註在 convert 之後仍留在 node 上，可以直接讀：

# %% [markdown] lang="en"
# ## The quantizer and its annotations
#
# A quantizer walks the graph and annotates the nodes to quantize: which input, which output, which integers, which
# observer. It inserts no node and sees no data; reading the annotations and inserting observers is `prepare_pt2e`'s
# part. They are still there after convert, so we can read them:

# %%
(conv2d,) = calls(quantized, torch.ops.aten.conv2d.default)
(relu,) = calls(quantized, torch.ops.aten.relu.default)
on_conv = conv2d.meta["quantization_annotation"]
on_relu = relu.meta["quantization_annotation"]

specs = {node.name: spec for node, spec in on_conv.input_qspec_map.items()}
assert specs["conv_bias"] is None, "the bias was annotated"
assert on_conv.output_qspec is None, "conv's own output was annotated"
assert on_relu.output_qspec is not None, "relu's output was not annotated"

# %% tags=["plot"]
shown = {
    "`conv2d` ← `x`": specs["x"],
    "`conv2d` ← weight": specs["conv_weight"],
    "`relu` →": on_relu.output_qspec,
}
table(
    [
        [
            edge,
            f"[{spec.quant_min}, {spec.quant_max}]",
            str(spec.qscheme).removeprefix("torch."),
            f"`{spec.observer_or_fake_quant_ctr.p.func.__name__}`",
        ]
        for edge, spec in shown.items()
    ],
    [
        T(zh="邊", en="edge"),
        T(zh="整數", en="integers"),
        T(zh="方式", en="scheme"),
        "observer",
    ],
)

# %% [markdown] lang="zh"
# ## Q/DQ 圖
#
# convert 的結果叫 Q/DQ 圖：要量化的 op 前面是 dq、後面是 q，op 本身還是 fp32 運算。下圖在邊上標出型別，沒寫 dtype 的是
# float32。

# %% [markdown] lang="en"
# ## The Q/DQ graph
#
# What convert returns is called a Q/DQ graph: a quantized op has dq before it and q after it, and is itself still an
# fp32 operation. The drawing shows the type on every edge; where no dtype is written, it is float32.

# %% tags=["plot"]
graph(
    quantized,
    types=True,
    alt=T(
        zh="Q/DQ 圖，邊上標出型別：只有 q 與 dq 之間是 int8，進出 conv2d、relu 的都是 float32。",
        en="The Q/DQ graph with a type on each edge: only between q and dq is it int8; "
        "everything that enters or leaves conv2d and relu is float32.",
    ),
    caption=T(
        zh="邊上的型別：q 之後是 int8，dq 之後又回到 float32。",
        en="Types on the edges: int8 after q, float32 again after dq.",
    ),
)

# %% [markdown] lang="zh"
# q 的輸出是 int8，dq 馬上又把它還原成 fp32 才交給 conv2d。原來的 conv、relu 都還是 fp32 運算，還多出 q 與 dq，所以 Q/DQ
# 圖沒有理由變快。它的用處是**模擬** int8 的數值，每過一對 q → dq，值就被吸到最近的一格上。存成檔案也不會變小，因為 fp32
# 的 weight 還跟著它（[M01-1](1_minimal_ptq.py) 會算這筆帳）。

# %% [markdown] lang="en"
# The output of q is int8, but dq turns it back into fp32 before conv2d sees it. conv and relu are still fp32
# operations, with q and dq on top, so a Q/DQ graph has no reason to be faster. What it is good for is to **simulate**
# int8: each pair q → dq snaps a value to the nearest step. Nor is it smaller on disk, because the fp32 weight travels
# along ([M01-1](1_minimal_ptq.py) does the accounting).

# %%
for node in (conv2d, relu):
    assert node.meta["val"].dtype == torch.float32, f"{node} is not fp32"
with torch.no_grad():
    simulated = torch.cat([quantized(image) for image in images])
off = (simulated - data["relu"]).abs().mean()
assert off < params["relu"][0] / 2, "on average more than half a step off"


# %%
def saved_bytes(gm):
    file = io.BytesIO()
    torch.export.save(torch.export.export(gm, example), file)
    return len(file.getvalue())


fp32_bytes, qdq_bytes = saved_bytes(model), saved_bytes(quantized)
assert "conv.weight" in quantized.state_dict(), "the fp32 weight is gone"
assert qdq_bytes > fp32_bytes, "the Q/DQ graph is smaller on disk"

# %% tags=["plot"]
say(
    T(
        zh=f"fp32 模型存成 {fp32_bytes:,} bytes，Q/DQ 圖存成 {qdq_bytes:,} bytes：預測 3 的答案是不會變小。",
        en=f"Saved, the fp32 model takes {fp32_bytes:,} bytes and the Q/DQ graph {qdq_bytes:,}: "
        "the answer to prediction 3 is no.",
    )
)

# %% [markdown] lang="zh"
# ## 後端拿 Q/DQ 圖做什麼
#
# 以 conv 為例。輸入與 weight 都是式 (2) 的形式，而 weight 的 zero point 是 0，所以一個輸出值的內積可以寫成
#
# $$\sum_i \hat{w}_i \hat{x}_i = \sum_i s_w q_{w,i} \cdot s_x (q_{x,i} - z_x) = s_w s_x \sum_i q_{w,i}\,(q_{x,i} - z_x) \tag{4}$$
#
# 右邊的加總只剩整數乘加，可以用 int8 × int8 累加到 int32；最後乘上 $s_w s_x$，再用輸出的 $s_y$、$z_y$ 量化回 int8。後端
# 只要在圖上認出 dq → conv → relu → q，就能整段換成一個 int8 kernel，要用的 scale 與 zero point 全寫在 q、dq 上。拿一個
# 輸出像素、八個 channel 來驗算：

# %% [markdown] lang="en"
# ## What a backend does with it
#
# Take a convolution. Its input and its weight both have the form of (2), with a zero point of 0 for the weight, so the
# inner product behind one output value is
#
# $$\sum_i \hat{w}_i \hat{x}_i = \sum_i s_w q_{w,i} \cdot s_x (q_{x,i} - z_x) = s_w s_x \sum_i q_{w,i}\,(q_{x,i} - z_x) \tag{4}$$
#
# The sum on the right takes integer multiply-adds only: int8 × int8, accumulated in int32. In the end it is multiplied
# by $s_w s_x$ and quantized to int8 with the output's $s_y$ and $z_y$. A backend that recognizes dq → conv → relu → q
# can replace all of it with one int8 kernel; every scale and zero point it needs is on the q and dq nodes. Let us check
# this for one output pixel and its eight channels:

# %%
s_x, z_x = params["x"]
q_x = ops.quantize_per_tensor(images[0], s_x, z_x, -128, 127, torch.int8)
window = q_x[0, :, 12:15, 12:15].int()  # under output pixel (13, 13)
products = weight_int8.int() * (window - z_x)
accumulators = products.sum(dim=(1, 2, 3))  # one for each output channel
right_side = weight_scale * s_x * accumulators
assert not accumulators.is_floating_point()
assert accumulators.abs().max() < 2**31, "does not fit into int32"

x_hat = ops.dequantize_per_tensor(q_x, s_x, z_x, -128, 127, torch.int8)
w_hat = weight_scale.view(-1, 1, 1, 1) * weight_int8
left_side = nn.functional.conv2d(x_hat, w_hat, padding=1)[0, :, 13, 13]
assert torch.allclose(left_side, right_side, atol=1e-5), "(4) does not hold"

# %% [markdown] lang="zh"
# bias 和 relu 怎麼併進 kernel 是後端的事，[M07](../m07_backends/0_overview.py) 與
# [M08](../m08_executorch/0_overview.py) 會看。
#
# ## 名詞
#
# | 名詞 | 是什麼 |
# | --- | --- |
# | observer | 插在邊上的小模組：原樣傳回輸入，記下數值範圍，算出 scale 與 zero point |
# | 校準 | 用有代表性的資料呼叫插了 observer 的圖 |
# | PTQ、QAT | 訓練後量化：只校準；量化感知訓練：邊訓練邊模擬量化 |
# | quantizer | 後端提供的物件，決定哪些 tensor 怎麼量化 |
# | 標註 | quantizer 寫在 `node.meta` 上的決定 |
# | per-tensor | 整個 tensor 共用一個 scale |
# | per-channel | 每個 channel 各一個 scale |
# | 對稱 | zero point 固定為 0（weight） |
# | 非對稱 | zero point 隨範圍移動（activation） |
# | Q/DQ 圖 | convert 的結果：fp32 的 op，加上把值吸到格子上的 q → dq |
# | 後端 | 執行模型的函式庫 |
# | kernel | 後端替一個或一串 op 寫好的計算 |
#
# 全部的名詞在[詞彙表](../glossary.md)。

# %% [markdown] lang="en"
# How bias and ReLU join the kernel is the backend's business; [M07](../m07_backends/0_overview.py) and
# [M08](../m08_executorch/0_overview.py) take a look.
#
# ## Terms
#
# | Term | What it is |
# | --- | --- |
# | observer | a small module on an edge: returns its input as it is, records the range, computes scale and zero point |
# | calibration | calling the graph with observers in it on representative data |
# | PTQ, QAT | post-training quantization only calibrates; quantization-aware training simulates quantization while it trains |
# | quantizer | an object the backend provides; decides which tensors to quantize, and how |
# | annotation | what the quantizer decided, written into `node.meta` |
# | per-tensor | one scale for the whole tensor |
# | per-channel | one scale for each channel |
# | symmetric | zero point fixed at 0 (weights) |
# | asymmetric | zero point moves with the range (activations) |
# | Q/DQ graph | the result of convert: fp32 ops, plus pairs q → dq that snap values to steps |
# | backend | a library that runs models |
# | kernel | a backend's code for one op or a chain of them |
#
# All terms are in the [glossary](../glossary.md).

# %% [markdown] lang="zh"
# ## 小結
#
# - 量化要回答三個問題：哪些 tensor、什麼 scale 與 zero point、怎麼交給後端。
# - PT2E 在 export 出來的圖上依序回答：quantizer 標註、observer 校準、convert 寫成 Q/DQ 圖。
# - 範圍內的誤差最多半格；範圍外會被 clamp，誤差沒有上限。
# - Q/DQ 圖只模擬數值，運算還是 fp32，檔案也不更小；真正的 int8 運算是後端認出 dq → op → q 之後換上的 kernel。

# %% [markdown] lang="en"
# ## Recap
#
# - Quantization answers three questions: which tensors, which scale and zero point, how a backend gets it.
# - PT2E answers them in order, in the exported graph: the quantizer annotates, observers calibrate, convert writes a
#   Q/DQ graph.
# - Inside the range the error is at most half a step; outside, values are clamped and it has no limit.
# - A Q/DQ graph only simulates numbers: it still computes in fp32 and is no smaller; real int8 happens in the kernel a
#   backend puts in place of dq → op → q.

# %% [markdown] lang="zh"
# ## 試試看
#
# 你來當後端：從上面的 `accumulators` 出發，加上 bias、做 relu、用輸出的 scale 與 zero point 量化，算出像素 (13, 13) 的
# 八個 int8，和 Q/DQ 圖的輸出比。再想一想：relu 這一步需要另外算嗎？

# %% [markdown] lang="en"
# ## Try it
#
# Be the backend: starting from `accumulators` above, add the bias, apply ReLU, quantize with the output's scale and
# zero point, and compare the eight int8 values of pixel (13, 13) with the Q/DQ graph's output. Then think: does ReLU
# need a computation of its own?

# %% tags=["solution"]
s_y, z_y = params["relu"]


def to_int8(real):
    q = ops.quantize_per_tensor(real, s_y, z_y, -128, 127, torch.int8)
    return q.int()


with torch.no_grad():
    real = right_side + model.conv.bias
    mine, without_relu = to_int8(real.relu()), to_int8(real)
    theirs = to_int8(quantized(images[0])[0, :, 13, 13])
assert (mine - theirs).abs().max() <= 1, "more than one step apart"
assert torch.equal(mine, without_relu), "leaving ReLU out changed something"
print("by hand:   ", mine.tolist())
print("Q/DQ graph:", theirs.tolist())

# %% [markdown] lang="zh" tags=["solution"]
# 不需要。relu 的輸出最小是 0，所以它的 zero point 就是最低的整數 −128，量化時的 clamp 已經把負值擋在 0。後端把 relu 併
# 進 conv，靠的就是這件事。

# %% [markdown] lang="en" tags=["solution"]
# It doesn't. The smallest output of ReLU is 0, so its zero point is the lowest integer, −128, and the clamp of
# quantization already stops negative values at 0. That is how a backend gets ReLU for free with the convolution.

# %% [markdown] lang="zh"
# ## 本章地圖
#
# | 頁 | 做什麼 |
# | --- | --- |
# | [M01-1 最小 PTQ](1_minimal_ptq.py) | 在訓練好的模型上走四步，看準確率與檔案大小，再看五種失誤的訊息 |
# | [M01-2 prepare 與 convert](2_prepare_convert.py) | observer 落在哪些邊、skip connection 怎麼辦、quantizer 究竟管了哪些 op |
# | [M01-3 QuantizationConfig](3_quantization_config.py) | per-channel、QAT、dynamic 的開關；per-channel 何時重要 |
#
# 這一章刻意跳過：observer 的種類與 fake quant（[M02](../m02_observers/0_overview.py)）、quantizer 怎麼寫標註
# （[M03](../m03_quantizer/0_overview.py)）、BN 怎麼折進 conv（[M04](../m04_batchnorm/0_overview.py)）、準確率掉了怎麼查
# （[M05](../m05_accuracy/0_overview.py)）、後端怎麼換上 int8 kernel（[M07](../m07_backends/0_overview.py) 起）。
#
# ## 參考資料
#
# - [torchao：PT2E
#   Quantization](https://docs.pytorch.org/ao/stable/pt2e_quantization/index.html)、[PyTorch：torch.export](https://docs.pytorch.org/docs/stable/export.html)
# - torchao 0.18.0 原始碼：`torchao/quantization/pt2e/` 的 `quantize_pt2e.py`、`prepare.py`、`observer.py`
# - Jacob 等人，〈[Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
#   Inference](https://arxiv.org/abs/1712.05877)〉，2018：只用整數推論的做法出自這篇

# %% [markdown] lang="en"
# ## Map of the chapter
#
# | Page | What happens there |
# | --- | --- |
# | [M01-1 Minimal PTQ](1_minimal_ptq.py) | the four steps on a trained model, its accuracy and file size, and what five mistakes look like |
# | [M01-2 prepare and convert](2_prepare_convert.py) | which edges get observers, skip connections, which ops the quantizer really covers |
# | [M01-3 QuantizationConfig](3_quantization_config.py) | the switches per-channel, QAT and dynamic; when per-channel matters |
#
# Left out on purpose: kinds of observers and fake quant ([M02](../m02_observers/0_overview.py)), how a quantizer writes
# annotations ([M03](../m03_quantizer/0_overview.py)), how BN folds into a convolution
# ([M04](../m04_batchnorm/0_overview.py)), what to do when accuracy drops ([M05](../m05_accuracy/0_overview.py)), and
# how backends put int8 kernels in place ([M07](../m07_backends/0_overview.py) onward).
#
# ## References
#
# - [torchao: PT2E Quantization](https://docs.pytorch.org/ao/stable/pt2e_quantization/index.html), [PyTorch:
#   torch.export](https://docs.pytorch.org/docs/stable/export.html)
# - Source of torchao 0.18.0: `quantize_pt2e.py`, `prepare.py` and `observer.py` in `torchao/quantization/pt2e/`
# - Jacob et al., "[Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
#   Inference](https://arxiv.org/abs/1712.05877)", 2018: where integer-only inference in this form comes from
