# %% [markdown] lang="zh"
# # M01-1 | 四個步驟，量化一個訓練好的模型
#
# [M01 概覽](0_overview.py)用沒訓練過的 conv → relu 看清楚了每一步。這一頁把同樣四步用在訓練好的 TinyConvNet 上，然後問一個使用者會問的問題：
# 準確率掉了多少、大小變了多少？最後把新手最常犯的五種失誤各犯一次，看訊息長什麼樣子。
#
# PTQ 是訓練後量化（post-training quantization）：拿訓練好的模型，不再訓練，只餵一些資料看範圍。
#
# **讀完你會知道**
#
# - 從訓練好的模型到 Q/DQ 圖，最少要寫哪幾行
# - 量化前後怎麼比：準確率、一致率、logit 差幾格
# - int8 的 weight 佔多少、為什麼 Q/DQ 圖的 state dict 沒有變小
# - 五種失誤裡，哪些會出錯，哪些什麼也不說

# %% [markdown] lang="en"
# # M01-1 | Four steps to quantize a trained model
#
# The [M01 overview](0_overview.py) took an untrained conv → relu apart, step by step. This page applies the same four steps to a trained
# TinyConvNet and then asks what a user would ask: how much accuracy is gone, and what became of the size? At the end we
# make each of the five commonest mistakes on purpose, to see what each one says.
#
# PTQ stands for post-training quantization: it takes a trained model and, without further training, shows it some data to find the ranges.
#
# **What you will know**
#
# - The fewest lines that lead from a trained model to a Q/DQ graph
# - How to compare before and after: accuracy, agreement, and how many steps the logits moved
# - How much the int8 weights take, and why the Q/DQ graph's state dict is no smaller
# - Which of five mistakes raise an error, and which say nothing at all

# %% [markdown] lang="zh"
# ## 先預測
#
# 模型把 16×16 的合成圖片分成四類（亮或暗的斑點 × 橫或直的條紋），測試集有 2,000 張。往下讀之前，先猜：
#
# 1. 所有 conv 與 linear 都換成 int8 之後，準確率會掉超過一個百分點嗎？
# 2. 兩個模型對同一張圖給出不同答案的比例，會比準確率的差大還是小？
# 3. 忘了校準就 convert，會看到錯誤、警告，還是什麼都沒有？

# %% [markdown] lang="en"
# ## Predict first
#
# The model sorts synthetic 16×16 images into four classes (a bright or dark blob × horizontal or vertical stripes), and the test set has
# 2,000 of them. Before you read on, guess:
#
# 1. With every convolution and the linear layer in int8, does accuracy drop by more than one percentage point?
# 2. Is the share of images on which the two models disagree larger or smaller than the difference in accuracy?
# 3. If you convert without calibrating, do you get an error, a warning, or nothing?

# %% tags=["setup"]
import io
import textwrap
import warnings

from common.data import CLASSES, calibration_batches, test_data
from common.env import quiet
from common.models import trained_tinyconvnet
from common.viz import T, say, table

import torch

quiet()


def accuracy(logits: torch.Tensor) -> float:
    """The share of test images whose largest logit is the right class."""
    return (logits.argmax(1) == labels).float().mean().item()


# %% [markdown] lang="zh"
# ## 起點：訓練好的 fp32 模型
#
# TinyConvNet 有四個 conv（各接 BN）、一條 skip connection 和一個 linear。訓練由建置過程做一次，各頁共用同一份 weight。

# %% [markdown] lang="en"
# ## The starting point: a trained fp32 model
#
# TinyConvNet has four convolutions (each followed by BN), a skip connection and a linear layer. The build trains it once, and every page
# uses the same weights.

# %%
model = trained_tinyconvnet()
images, labels = test_data()
with torch.no_grad():
    fp32_logits = model(images)

fp32_accuracy = accuracy(fp32_logits)
assert fp32_accuracy > 0.9, f"the model is not trained: {fp32_accuracy:.1%}"
print(tuple(images.shape), "->", tuple(fp32_logits.shape))
print(f"{fp32_accuracy:.2%} right, {len(CLASSES)} classes")

# %% [markdown] lang="zh"
# ## 四個步驟
#
# 整個 PTQ 就是下面這些。和概覽比起來只多了一件事：`dynamic_shapes` 讓 batch 大小可以變，這樣校準時一次餵 32 張、評估時一次餵 2,000 張都行；
# 範例輸入的 batch 要大於 1，理由在 [M00-2](../m00_fx/2_export.py)。

# %% [markdown] lang="en"
# ## The four steps
#
# This is all of PTQ. Compared with the overview there is one addition: `dynamic_shapes` leaves the batch size open, so that we can calibrate with
# 32 images at a time and evaluate on 2,000 at once. The example batch has to be larger than 1; [M00-2](../m00_fx/2_export.py) says why.

# %%
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e


def export() -> torch.fx.GraphModule:
    batch = torch.export.Dim("batch", min=1, max=4096)
    example = (images[:2].clone(),)  # a mere slice would keep all 2,000 images
    shapes = ({0: batch},)
    program = torch.export.export(model, example, dynamic_shapes=shapes)
    return program.module()


quantizer = XNNPACKQuantizer()
quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True))

exported = export()  # 1. export
prepared = prepare_pt2e(exported, quantizer)  # 2. prepare
with torch.no_grad():
    for (batch,) in calibration_batches(256):  # 3. calibrate
        prepared(batch)
quantized = convert_pt2e(prepared)  # 4. convert

# %% [markdown] lang="zh"
# 先確認真的量化了什麼。四個 conv 與一個 linear 的 weight，在圖上都應該是 int8 常數；哪些 op 沒有被量化，[M01-2](2_prepare_convert.py) 會逐一列出。

# %% [markdown] lang="en"
# First make sure that something was quantized. The weights of all four convolutions and of the linear layer should be int8 constants in
# the graph. Which ops were left alone is the subject of [M01-2](2_prepare_convert.py).

# %%
constants = [value for _, value in quantized.named_buffers()]
int8_weights = [value for value in constants if value.dtype == torch.int8]
fp32_weights = [p for p in model.parameters() if p.dim() > 1]

shapes_after, shapes_before = (
    sorted(weight.shape for weight in weights)
    for weights in (int8_weights, fp32_weights)
)
assert shapes_after == shapes_before, "not every weight became int8"
assert len(int8_weights) == 5

# %% [markdown] lang="zh"
# ### 舊教學裡的 import
#
# 這些函式搬過家：PT2E 從 torch 搬到 torchao，`XNNPACKQuantizer` 搬到 executorch。舊的教學與問答還是舊的寫法，照抄就會看到下面的訊息。
# 連 torchao 0.18.0 的 `prepare_pt2e` 自己的 docstring 也用第四行。

# %% [markdown] lang="en"
# ### Imports in older tutorials
#
# These functions have moved: PT2E from torch to torchao, `XNNPACKQuantizer` to executorch. Older tutorials and answers
# still have the old lines, which give the messages below. Even the docstring of `prepare_pt2e` itself, in torchao
# 0.18.0, has the fourth of them.

# %%
OLD = """\
from torch.ao.quantization.quantize_pt2e import prepare_pt2e
from torch.ao.quantization.quantizer.xnnpack_quantizer import XNNPACKQuantizer
from torchao.quantization.pt2e import prepare_pt2e
from torchao.quantization.pt2e.quantizer import XNNPACKQuantizer
from torch._export import capture_pre_autograd_graph
torch.export.export_for_training"""

for statement in OLD.splitlines():
    try:
        exec(statement, {"torch": torch})
    except (ImportError, AttributeError) as error:
        reason = str(error).partition(" (")[0]  # without the path of the file
        print(f"{statement}\n    {type(error).__name__}: {reason}")
    else:
        raise AssertionError(f"there again: {statement}")

docstring = " ".join(prepare_pt2e.__doc__.split())
old_line = "from torchao.quantization.pt2e.quantizer import ( XNNPACKQuantizer"
assert old_line in docstring, "the docstring was mended"

# %% [markdown] lang="zh"
# ## 準確率、一致率、差幾格
#
# 三個數字各看一件事。**準確率**和標籤比；**一致率**只和 fp32 模型比，是兩者給出同一個答案的比例；**logit 的差**以輸出的 scale 為單位，也就是差幾格，
# 不受「剛好沒跨過分界」的運氣影響。

# %% [markdown] lang="en"
# ## Accuracy, agreement, and steps
#
# Each of three figures looks at something different. **Accuracy** compares with the labels. **Agreement** compares with the fp32 model only: the share
# of images for which both give the same answer. The **difference of the logits** is counted in steps of the output's scale, so it does not
# depend on the luck of not crossing a border between classes.

# %%
with torch.no_grad():
    int8_logits = quantized(images)

int8_accuracy = accuracy(int8_logits)
same_answer = int8_logits.argmax(1) == fp32_logits.argmax(1)
agreement = same_answer.float().mean().item()

quantize = torch.ops.quantized_decomposed.quantize_per_tensor.default
*_, last_q = [n for n in quantized.graph.nodes if n.target == quantize]
output_scale, output_zero_point = last_q.args[1:3]
steps = (int8_logits - fp32_logits).abs() / output_scale

low, high = (output_scale * (q - output_zero_point) for q in (-128, 127))
inside = (fp32_logits >= low) & (fp32_logits <= high)

change = int8_accuracy - fp32_accuracy
assert abs(change) < 0.01, f"int8 changed the accuracy by {change:.2%}"
assert agreement > 0.97, f"the models agree on {agreement:.1%} only"
assert steps.mean() < 2, f"the logits moved by {steps.mean():.1f} steps"

# %% tags=["plot"]
table(
    [
        [T(zh="準確率（fp32）", en="accuracy (fp32)"), f"{fp32_accuracy:.2%}"],
        [
            T(zh="準確率（Q/DQ 圖）", en="accuracy (Q/DQ graph)"),
            f"{int8_accuracy:.2%}",
        ],
        [T(zh="一致率", en="agreement"), f"{agreement:.2%}"],
        [
            T(zh="logit 平均差幾格", en="logits, mean difference in steps"),
            f"{steps.mean():.2f}",
        ],
        [
            T(
                zh="logit 最大差幾格（範圍內）",
                en="largest difference in steps, inside the range",
            ),
            f"{steps[inside].max():.1f}",
        ],
        [
            T(
                zh="logit 最大差幾格（範圍外，被 clamp）",
                en="largest difference in steps, outside it (clamped)",
            ),
            f"{steps[~inside].max():.1f}" if not inside.all() else "–",
        ],
    ],
    ["", T(zh="2,000 張測試圖片", en="2,000 test images")],
)

# %% tags=["plot"]
disagree = ~same_answer
lost = (disagree & (fp32_logits.argmax(1) == labels)).sum().item()
gained = (disagree & (int8_logits.argmax(1) == labels)).sum().item()
both_wrong = disagree.sum().item() - lost - gained
assert disagree.sum() >= abs(lost - gained)
say(
    T(
        zh=f"兩個模型在 {disagree.sum()} 張圖上答案不同：{lost} 張從對變錯、{gained} 張從錯變對、{both_wrong} 張兩邊都錯。"
        "準確率只看得到前兩個數字的差，所以答案不同的比例一定大於或等於準確率的差：這是預測 2 的答案。"
        f"{(~inside).sum()} 個 logit 超出了校準時看到的範圍，被 clamp 到邊上，這些才會差很多格。",
        en=f"The models disagree on {disagree.sum()} images: {lost} went from right to wrong, {gained} from wrong to right, and on {both_wrong} "
        "both are wrong. Accuracy sees only the difference of the first two, so the share of different answers is never smaller than the "
        "change in accuracy: that answers prediction 2. "
        f"{(~inside).sum()} logits lie outside the range that calibration saw and were clamped to its border; those are the ones many steps off.",
    )
)

# %% [markdown] lang="zh"
# 準確率幾乎沒動（預測 1）：這個模型很好量化，範圍內的誤差只有幾格。量化真的弄壞模型的例子（四位元、離群值、錯的校準資料）在
# [M01-3](3_quantization_config.py) 和 [M02-3](../m02_observers/3_calibration_data.py)；怎麼分辨一個準確率的差是真的還是運氣，在
# [M05-1](../m05_accuracy/1_evaluate.py)。

# %% [markdown] lang="en"
# Accuracy hardly moves (prediction 1): this model is easy to quantize, and inside the range the error is a few steps. Cases where quantization does break something (four bits, outliers,
# the wrong calibration data) are in [M01-3](3_quantization_config.py) and [M02-3](../m02_observers/3_calibration_data.py). How to tell
# a real difference in accuracy from luck is in [M05-1](../m05_accuracy/1_evaluate.py).

# %% [markdown] lang="zh"
# ## 大小：weight 變成四分之一，state dict 沒有
#
# 分開算兩件事：圖上真的用到的常數，和 state dict 裡全部的東西。

# %% [markdown] lang="en"
# ## Size: the weights shrink to a quarter, the state dict doesn't
#
# Let us count two things separately: the constants that the graph uses, and everything in its state dict.


# %%
def n_bytes(tensors) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


used = {node.target for node in quantized.graph.nodes if node.op == "get_attr"}
state = quantized.state_dict()
fp32_weight_bytes = n_bytes(fp32_weights)
int8_weight_bytes = n_bytes(int8_weights)
left_over = [value for name, value in state.items() if name not in used]

fp32_bytes = n_bytes(model.state_dict().values())
qdq_bytes = n_bytes(state.values())
rest_bytes = qdq_bytes - int8_weight_bytes - n_bytes(left_over)

assert int8_weight_bytes * 4 == fp32_weight_bytes
assert n_bytes(left_over) == fp32_weight_bytes, "not just the fp32 weights"
assert qdq_bytes > fp32_bytes, "the state dict got smaller"

# %% tags=["plot"]
rows = {
    T(
        zh="fp32 模型的 state dict", en="the fp32 model's state dict"
    ): fp32_bytes,
    T(zh="Q/DQ 圖的 state dict", en="the Q/DQ graph's state dict"): qdq_bytes,
    T(zh="– 其中 int8 weight", en="– int8 weights"): int8_weight_bytes,
    T(
        zh="– 其中沒有 node 在用的 fp32 weight",
        en="– fp32 weights that no node uses",
    ): n_bytes(left_over),
    T(
        zh="– 其中 scale、zero point、bias",
        en="– scales, zero points, biases",
    ): rest_bytes,
}
table([[name, f"{count:,}"] for name, count in rows.items()], ["", "bytes"])

# %% [markdown] lang="zh"
# int8 weight 剛好是 fp32 的四分之一，可是原來的 fp32 weight 還留在 state dict 裡，沒有任何 node 用到它。所以「量化後模型變成四分之一」說的是部署格式，不是
# 這張圖存成的檔案：`.pte` 只帶用得到的常數（[M08-2](../m08_executorch/2_to_pte.py)）。

# %% [markdown] lang="en"
# The int8 weights take exactly a quarter, but the old fp32 weights are still in the state dict, used by no node. So "a quantized model is a quarter
# of the size" is a statement about deployment formats, not about a file made from this graph: a `.pte` carries only the constants
# it needs ([M08-2](../m08_executorch/2_to_pte.py)).

# %% [markdown] lang="zh"
# ## 五種新手失誤
#
# 下面每一種都真的犯一次，並把看到的訊息印出來。`attempt` 只是把例外與警告接住：

# %% [markdown] lang="en"
# ## Five beginners' mistakes
#
# Each one really runs, and what it says is printed. `attempt` merely catches exceptions and warnings:


# %%
def attempt(step) -> None:
    """Run a step; print what it raises or warns, once each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            step()
            print("no error")
        except Exception as error:
            print(f"{type(error).__name__}: {first_words(error)}")
    for text in dict.fromkeys(first_words(w.message) for w in caught):
        print(f"warning: {text}")


def first_words(message: object) -> str:
    """The message in lines of 76 characters, its beginning where it is long."""
    return textwrap.fill(
        textwrap.shorten(str(message), 190, placeholder=" …"), 76
    )


# %% [markdown] lang="zh"
# **1. 把 `nn.Module` 直接交給 prepare。** `prepare_pt2e` 要的是 export 之後的 GraphModule；訊息沒有明說，只抱怨少了 `meta`。

# %% [markdown] lang="en"
# **1. Handing the `nn.Module` to prepare.** `prepare_pt2e` wants the GraphModule that export made. The message does not say so; it only
# complains that `meta` is missing.

# %%
attempt(lambda: prepare_pt2e(model, quantizer))

# %% [markdown] lang="zh"
# **2. quantizer 忘了設定。** 沒有 `set_global`（或其他 `set_…`），就沒有任何 node 被標註。四步都順利走完，模型卻完全沒有量化。這種最危險：什麼都沒說。
# 所以 convert 之後先數一數 q 與 dq 有幾個。

# %% [markdown] lang="en"
# **2. A quantizer without a configuration.** Without `set_global` (or another `set_…`) no node is annotated. All four steps go through, and nothing
# at all is quantized. This is the dangerous kind: it says nothing. So count the q and dq nodes after convert.


# %%
def count_q_dq(gm: torch.fx.GraphModule) -> int:
    return sum("quantize" in str(node.target) for node in gm.graph.nodes)


def without_configuration() -> None:
    global unconfigured
    unconfigured = convert_pt2e(prepare_pt2e(export(), XNNPACKQuantizer()))


attempt(without_configuration)
with torch.no_grad():
    torch.testing.assert_close(unconfigured(images), fp32_logits)
assert count_q_dq(unconfigured) == 0 < count_q_dq(quantized)
print(
    f"q and dq: {count_q_dq(unconfigured)} instead of {count_q_dq(quantized)}"
)

# %% [markdown] lang="zh"
# **3. 忘了校準。** convert 照樣成功，只留下警告：observer 沒看過資料，回傳的是預設值。這是預測 3 的答案。每個 activation 的 scale 變成 1，輸出幾乎不再隨圖片變化。
# （`PTQQuantizer` 是本課程的：標註和 `XNNPACKQuantizer` 一樣，只是快幾倍。）

# %% [markdown] lang="en"
# **3. No calibration.** Convert succeeds all the same and only warns: the observers never ran and return default values. That answers prediction 3. Every activation gets
# a scale of 1, and the output hardly depends on the image any more. (`PTQQuantizer` is the course's own: the annotations of
# `XNNPACKQuantizer`, only several times faster.)


# %%
from common.quantizers import PTQQuantizer

quick = PTQQuantizer()
quick.set_global(get_symmetric_quantization_config(is_per_channel=True))


def without_calibration() -> None:
    global uncalibrated
    uncalibrated = convert_pt2e(prepare_pt2e(export(), quick))


attempt(without_calibration)
with torch.no_grad():
    useless = uncalibrated(images)
n_outputs = len(useless.unique(dim=0))
assert n_outputs < 5, "the outputs still tell images apart"
assert accuracy(useless) < 0.5, "still accurate without calibration"
print(f"accuracy {accuracy(useless):.2%}, different outputs: {n_outputs}")

# %% [markdown] lang="zh"
# **4. 對同一張圖做兩次。** `prepare_pt2e` 與 `convert_pt2e` 都直接修改交給它們的圖，所以同一張圖只能 prepare 一次、convert 一次。想換設定重來，就重新 export：第三行就沒事。

# %% [markdown] lang="en"
# **4. Doing it twice to one graph.** `prepare_pt2e` and `convert_pt2e` edit the graph they are given, so one graph can be prepared once and converted
# once. To start over with another configuration, export again: the third line is fine.

# %%
attempt(lambda: prepare_pt2e(exported, quick))
attempt(lambda: convert_pt2e(prepared))
attempt(lambda: prepare_pt2e(export(), quick))

# %% [markdown] lang="zh"
# **5. 對匯出的模型呼叫 `.eval()`。** train 與 eval 的差別在 export 時就寫進圖裡了，`.eval()` 切換不了；訊息裡說的函式會改寫圖上的 dropout 與 BN
# （[M04-3](../m04_batchnorm/3_train_eval.py)）。做 PTQ 不必用到它：在 export 之前呼叫 `model.eval()` 就好。

# %% [markdown] lang="en"
# **5. Calling `.eval()` on an exported model.** The difference between training and evaluation was written into the graph at export, and `.eval()`
# can't switch it; the functions that the message names rewrite dropout and BN in the graph ([M04-3](../m04_batchnorm/3_train_eval.py)). PTQ does not
# need them: call `model.eval()` before export.

# %%
attempt(lambda: quantized.eval())
assert not model.training, "call model.eval() before torch.export.export"

# %% [markdown] lang="zh"
# 五種裡面，第 2 種不聲不響，第 3 種只給警告，第 1、4 種的訊息看不出原因。所以這門課後面用的 `common.pt2e.ptq` 把第 2、3 種擋下來：沒有校準資料、沒有東西被量化、scale
# 不是有限的數，都會直接引發例外。它是本課程的包裝，不是 torchao 的 API。

# %% [markdown] lang="en"
# Of the five, number 2 is silent, number 3 only warns, and the messages of 1 and 4 don't show the cause. That is why later pages use
# `common.pt2e.ptq`, which refuses numbers 2 and 3: no calibration data, nothing quantized, a scale that is not finite all raise an error. It is a
# wrapper of this course, not part of torchao.

# %%
from common.pt2e import ptq

attempt(lambda: ptq(export(), quick, []))
attempt(lambda: ptq(export(), XNNPACKQuantizer(), calibration_batches(32)))

# %% [markdown] lang="zh"
# ## 小結
#
# - PTQ 是四個呼叫：export、`prepare_pt2e`、餵校準資料、`convert_pt2e`。
# - 答案不同的比例一定大於或等於準確率的差；以格為單位的 logit 差最不靠運氣，超出校準範圍的會被 clamp。
# - int8 weight 是 fp32 的四分之一；Q/DQ 圖的 state dict 不會變小，因為 fp32 weight 還在。
# - 沒設定 quantizer、沒校準，都不會有錯誤：convert 之後數 q 與 dq，並看一眼準確率。

# %% [markdown] lang="en"
# ## Recap
#
# - PTQ is four calls: export, `prepare_pt2e`, calibration data, `convert_pt2e`.
# - The share of different answers is never smaller than the change in accuracy. The difference of the logits in steps depends least on luck; what
#   lies outside the calibrated range is clamped.
# - int8 weights take a quarter of fp32; the Q/DQ graph's state dict is no smaller, because the fp32 weights are still there.
# - Neither a missing configuration nor missing calibration raises an error: count q and dq after convert, and look at the accuracy.

# %% [markdown] lang="zh"
# ## 試試看：把量化後的模型存起來
#
# 你會想把 `quantized` 存成檔案，之後再讀回來用。`torch.save(quantized, …)` 行得通嗎？如果不行，該用什麼？讀回來的模型，輸出和存之前一樣嗎？

# %% [markdown] lang="en"
# ## Try it: save the quantized model
#
# You want to keep `quantized` in a file and load it later. Does `torch.save(quantized, …)` work? If not, what does? And does the loaded model give the same
# outputs as before?

# %% [markdown] lang="zh" tags=["solution"]
# `torch.save` 要 pickle 整個 GraphModule，做不到。`torch.export.save` 存的是 ExportedProgram，所以先把量化後的圖再 export 一次；讀回來後輸出一個位元都沒變。
# 在另一個行程讀檔之前要先 `import torchao`，否則 q 與 dq 這些 op 還沒註冊。

# %% [markdown] lang="en" tags=["solution"]
# `torch.save` would have to pickle the GraphModule and can't. `torch.export.save` stores an ExportedProgram, so export the quantized graph once more;
# loaded again, it gives the same outputs bit for bit. In another process, `import torchao` before loading: otherwise q and dq are not
# registered as ops.

# %% tags=["solution"]
attempt(lambda: torch.save(quantized, io.BytesIO()))

file = io.BytesIO()
batch_size = torch.export.Dim("batch", min=1, max=4096)
example, shapes = (images[:2].clone(),), ({0: batch_size},)
program = torch.export.export(quantized, example, dynamic_shapes=shapes)
torch.export.save(program, file)
file.seek(0)
loaded = torch.export.load(file).module()
with torch.no_grad():
    assert torch.equal(loaded(images), int8_logits), "the outputs changed"
print(f"{len(file.getvalue()):,} bytes, outputs unchanged")

# %% [markdown] lang="zh"
# ## 接下來
#
# [M01-2](2_prepare_convert.py) 回頭看 prepare 與 convert 在這個模型上到底改了哪裡；[M01-3](3_quantization_config.py) 轉動設定裡的開關。
# 想知道 scale 是怎麼選的，直接讀 [M02](../m02_observers/0_overview.py)。

# %% [markdown] lang="en"
# ## Next
#
# [M01-2](2_prepare_convert.py) looks at what prepare and convert changed in this model, and [M01-3](3_quantization_config.py) turns the switches of
# the configuration. To learn how scales are chosen, go straight to [M02](../m02_observers/0_overview.py).
