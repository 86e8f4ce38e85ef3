# %% [markdown] lang="zh" time_limit=300
# # M08 概覽 | XNNPACK 與 ExecuTorch：把 Q/DQ 圖變成 `.pte`
#
# 這一章把 Q/DQ 圖變成 `.pte`：不需要 PyTorch、能單獨部署、用 int8 kernel 執行。做法是把圖交給 ExecuTorch 的 XNNPACK 後
# 端，在匯出時就決定哪些 op 用 int8 kernel（[M07](../m07_backends/0_overview.py) 概覽的路線 A）。M01 起得到的 Q/DQ 圖只
# 是模擬；M07 的 x86 lowering 雖然也能換上真正的 int8 kernel，執行時卻仍需要整個 PyTorch。
#
# | 問題 | 一句話的答案 | 頁 |
# | --- | --- | --- |
# | 該用哪一份 `XNNPACKQuantizer`？ | 有兩份同名的；要做 `.pte` 就用 executorch 的那一份 | [M08-1](1_two_quantizers.py) |
# | Q/DQ 圖怎麼變成 `.pte`？ | `to_edge_transform_and_lower` 切出 delegate，`to_executorch` 序列化 | [M08-2](2_to_pte.py) |
# | XNNPACK 不支援的 op 怎麼辦？ | 留在 delegate 外由 ExecuTorch 執行，圖因此被切開 | [M08-3](3_unsupported_ops.py) |
# | 真的變快了嗎？ | 換 runtime 就快很多；int8 的功勞要和同一個 runtime 的 fp32 比 | [M08-4](4_latency.py) |
#
# **讀完你會知道**
#
# - 從 PyTorch 模型到 `.pte` 的四步，每一步用哪個 API、拿到什麼
# - lowering 之後 q、dq 到哪裡去了，哪些還會執行
# - `.pte` 的輸出和 Q/DQ 圖差多少、為什麼會差
# - 執行 `.pte` 時，哪個物件一定要留著，為什麼

# %% [markdown] lang="en"
# # M08 Overview | XNNPACK and ExecuTorch: from Q/DQ graph to `.pte`
#
# This chapter turns the Q/DQ graph into a `.pte`: a file that needs no PyTorch, is deployed on its own, and runs int8
# kernels. To get there, we hand the graph to ExecuTorch's XNNPACK backend, which decides at export time which ops
# become int8 kernels (route A of [M07](../m07_backends/0_overview.py)'s overview). The Q/DQ graph we have been making
# since M01 only simulates; the x86 lowering in M07 can reach real int8 kernels too, but still needs all of PyTorch to
# run.
#
# | Question | Answer in one line | Page |
# | --- | --- | --- |
# | Which `XNNPACKQuantizer`? | Two classes share the name; for a `.pte`, use the one in executorch | [M08-1](1_two_quantizers.py) |
# | How does a Q/DQ graph become a `.pte`? | `to_edge_transform_and_lower` carves out delegates, `to_executorch` serializes | [M08-2](2_to_pte.py) |
# | What about ops XNNPACK doesn't support? | They stay outside the delegate, ExecuTorch runs them, and the graph gets cut | [M08-3](3_unsupported_ops.py) |
# | Is it really faster? | The new runtime alone gains a lot; credit int8 only against fp32 in the same runtime | [M08-4](4_latency.py) |
#
# **What you will know**
#
# - The four steps from a PyTorch model to a `.pte`: which call each one takes and what it returns
# - Where q and dq go during lowering, and which of them still run
# - How far the `.pte` is from the Q/DQ graph, and why it differs at all
# - Which object you must hold on to while a `.pte` runs, and why

# %% [markdown] lang="zh"
# ## 先預測
#
# 下面把 conv + relu 一路做到 `.pte`。先寫下你的答案：
#
# 1. Q/DQ 圖有兩對 q → dq，再加 weight 的 dq。在 XNNPACK 裡，有幾個會真的執行？
# 2. 這麼小的模型，int8 的 `.pte` 會比 fp32 的 `.pte` 小嗎？
# 3. `.pte` 的輸出和 Q/DQ 圖會逐位元相同嗎？

# %% [markdown] lang="en"
# ## Predict first
#
# Below, a conv + relu goes all the way to a `.pte`. Write down your answers first:
#
# 1. The Q/DQ graph has two pairs q → dq and a dq for the weight. How many of them does XNNPACK really execute?
# 2. For a model this small, is the int8 `.pte` smaller than the fp32 one?
# 3. Are the outputs of the `.pte` and of the Q/DQ graph the same, bit for bit?

# %% tags=["setup"]
import copy
from collections import Counter

from common.data import calibration_batches
from common.env import capture_stderr, quiet
from common.executorch_utils import PteRunner, lower_to_xnnpack, xnnpack_ptq
from common.models import example_inputs, get_model
from common.viz import T, graph, say, table

import torch

quiet()


def calls(gm, op):
    """The nodes of a graph that call `op`."""
    return gm.graph.find_nodes(op="call_function", target=op)


# %% [markdown] lang="zh"
# ## 第 1 步：PT2E，得到 Q/DQ 圖
#
# 和 [M01](../m01_first_ptq/0_overview.py) 一樣的四個呼叫，只有兩處要注意：quantizer 用 executorch 附的那一份
# （[M08-1](1_two_quantizers.py)）；export 時不給 `dynamic_shapes`，shape 就照範例輸入固定為 batch 1，所以校準資料一張一
# 張餵（動態 shape 也做得到，見最後的練習與 [M08-2](2_to_pte.py)）。

# %% [markdown] lang="en"
# ## Step 1: PT2E makes the Q/DQ graph
#
# The same four calls as in [M01](../m01_first_ptq/0_overview.py), with two things to note. The quantizer is the one
# that ships with executorch ([M08-1](1_two_quantizers.py)). And we give export no `dynamic_shapes`, so the shape is
# fixed to that of the example, batch 1, and calibration feeds one image at a time (dynamic shapes work too: see the
# exercise at the end, and [M08-2](2_to_pte.py)).

# %%
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

model = get_model("conv_relu")  # 3x3 convolution, 3 to 8 channels, then ReLU
x = example_inputs(1)  # a tuple: one image of shape (1, 3, 16, 16)
config = get_symmetric_quantization_config(is_per_channel=True)
quantizer = XNNPACKQuantizer().set_global(config)

# %%
exported = torch.export.export(model, x).module()
prepared = prepare_pt2e(exported, quantizer)
images = [image for (image,) in calibration_batches(32, batch_size=1)]
with torch.no_grad():
    for image in images:
        prepared(image)
    outputs = [model(image) for image in images]  # fp32, to compare with

for module in prepared.modules():
    if hasattr(module, "min_val"):
        seen = module.min_val.isfinite().all()
        assert seen, "an observer never saw data: no calibration?"
quantized = convert_pt2e(prepared)

# %% [markdown] lang="zh"
# 往下走之前先檢查 scale 與 zero point：後面每一步都照抄它們。M01 的式 (2) 說，最低的整數代表 $s(q_{\min} - z)$，應該落
# 在資料最小值的一格之內；最高的整數超出資料的最大值不到一格。

# %% [markdown] lang="en"
# Before moving on, let us check the scales and zero points, since every later step copies them. By formula (2) of M01
# the lowest integer stands for $s(q_{\min} - z)$, which should lie within a step of the smallest value, and the highest
# should go less than a step beyond the largest.

# %%
ops = torch.ops.quantized_decomposed
q_x, q_y = calls(quantized, ops.quantize_per_tensor.default)
(s_x, z_x), (s_y, z_y) = q_x.args[1:3], q_y.args[1:3]

for s, z, tensors in [(s_x, z_x, images), (s_y, z_y, outputs)]:
    data = torch.cat(tensors)
    low, high = s * (-128 - z), s * (127 - z)
    assert abs(low - data.min()) < s, "the range starts a step or more off"
    assert high < data.max() + s, "the range is a step or more too wide"
for dq in calls(quantized, ops.dequantize_per_tensor.default):
    assert dq.args[1:] == dq.args[0].args[1:], f"{dq} does not undo its q"

# %% tags=["plot"]
graph(
    quantized,
    alt=T(
        zh="Q/DQ 圖：x 經過 q、dq 進 conv2d、relu，再經過 q、dq 到輸出；int8 的 weight 經過 dq 進 conv2d。",
        en="The Q/DQ graph: x passes q and dq before conv2d and relu, then q and dq before the output; "
        "the int8 weight reaches conv2d through a dq.",
    ),
    caption=T(
        zh="M07 概覽說的「dq → op → q」單元：int8 進、int8 出，中間的 conv 與 relu 用 fp32 算。",
        en="The unit dq → op → q of M07's overview: int8 in, int8 out, with conv and relu computed in fp32 between.",
    ),
)

# %% [markdown] lang="zh"
# ## 第 2 步：lowering
#
# lowering 把圖換成後端能執行的形式。它要的是 `ExportedProgram`，而 `convert_pt2e` 給的是 `GraphModule`，所以再 export
# 一次。`to_edge_transform_and_lower` 先把圖轉成 Edge dialect（ExecuTorch 的中間表示），再由 partitioner（這裡是
# `XnnpackPartitioner`）找出 XNNPACK 支援的子圖，各換成一個 delegate（交給後端的一塊子圖）。注意 partitioner 要放在 list
# 裡。

# %% [markdown] lang="en"
# ## Step 2: lowering
#
# Lowering puts the graph into a form a backend can run. It takes an `ExportedProgram`, while `convert_pt2e` returns a
# `GraphModule`, hence the second export. `to_edge_transform_and_lower` first translates the graph to the Edge dialect
# (ExecuTorch's intermediate form); then a partitioner, here `XnnpackPartitioner`, finds the parts XNNPACK supports, and
# each of them becomes a delegate (a part of the graph handed to a backend). Note that partitioners come in a list.

# %%
from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
    XnnpackPartitioner,
)
from executorch.exir import to_edge_transform_and_lower

partitioner = [XnnpackPartitioner()]
edge = to_edge_transform_and_lower(
    torch.export.export(quantized, x), partitioner=partitioner
)
lowered = edge.exported_program().graph_module
delegate = lowered.lowered_module_0
print("backend:", delegate.backend_id)

# %% tags=["plot"]
graph(
    edge.exported_program(),
    alt=T(
        zh="lowering 之後的外層：x 進一個 XNNPACK delegate，再到輸出。",
        en="The outer graph after lowering: x enters one XNNPACK delegate and leaves for the output.",
    ),
    caption=T(
        zh="lowering 之後，外層只剩一個 delegate；展開下方可以看裡面。",
        en="After lowering, the outer graph is a single delegate; unfold it below to look inside.",
    ),
)

# %% [markdown] lang="zh"
# conv、relu、q、dq 在外層全不見了，只剩一個 `executorch_call_delegate`（沒有畫出來的 `getitem` 取出它的第一個輸出）。它
# 呼叫的 `lowered_module_0` 裡還保留著收進去的子圖：整個單元，連同 weight 的 dq。`conv2d` 在 Edge dialect 裡叫
# `convolution`。

# %% [markdown] lang="en"
# conv, relu, q and dq have all left the outer graph; what remains is one `executorch_call_delegate` (and a `getitem`,
# not drawn, that takes its first output). The `lowered_module_0` it calls still holds the part of the graph it took in:
# the whole unit with the dq of the weight. In the Edge dialect `conv2d` is `convolution`.

# %%
inner = delegate.original_module
called = [n.target for n in inner.graph.nodes if n.op == "call_function"]
outside = [n.name for n in lowered.graph.nodes if n.op == "call_function"]
assert outside == ["executorch_call_delegate", "getitem"], outside
assert Counter(target.__name__ for target in called) == {
    "aten.convolution.default": 1,
    "aten.relu.default": 1,
    "quantized_decomposed.quantize_per_tensor.default": 2,
    "quantized_decomposed.dequantize_per_tensor.default": 2,
    "quantized_decomposed.dequantize_per_channel.default": 1,
}, called

# %% [markdown] lang="zh"
# ## 第 3 步：序列化成 `.pte`
#
# `to_executorch()` 替 delegate 以外的圖做 memory planning（事先決定每個中間 tensor 放在哪裡），`.buffer` 就是 `.pte` 檔
# 的內容：存成 `model.pte`，部署時交出去的就是它。為了對照，fp32 的模型也走一次同樣的路。

# %% [markdown] lang="en"
# ## Step 3: serialize to `.pte`
#
# `to_executorch()` plans the memory of whatever lies outside the delegates (where each intermediate tensor goes), and
# `.buffer` holds the bytes of the `.pte` file. Write them to `model.pte` and you have what gets deployed. For
# comparison, the fp32 model takes the same route.

# %%
pte = edge.to_executorch().buffer
edge_fp32 = to_edge_transform_and_lower(
    torch.export.export(model, x), partitioner=partitioner
)
pte_fp32 = edge_fp32.to_executorch().buffer
print(f"int8 .pte: {len(pte):,} bytes")
print(f"fp32 .pte: {len(pte_fp32):,} bytes")
assert len(pte) == 3872, "with executorch 1.5.1 it has 3,872 bytes"
assert len(pte_fp32) < len(pte), "int8 is the smaller file after all"

# %% [markdown] lang="zh"
# int8 的反而大，這是預測 2 的答案：這個 conv 的 weight 少得可憐，省下的比不上多存的 scale 與多出的兩個 `Convert`（fp32
# 與 int8 之間的轉換）。模型一大就反過來，[M08-2](2_to_pte.py) 有數字。`assert` 裡的大小只對這門課固定的 executorch 版本
# 成立，換版本可能不同。
#
# ## 第 4 步：用 ExecuTorch runtime 執行
#
# 第一次載入 XNNPACK delegate 時，C++ 那一層會在 stderr 印幾行偵測 CPU 的訊息，和結果無關；`capture_stderr()`（這門課的
# `common/env.py`，不是 ExecuTorch 的 API）把它收起來。

# %% [markdown] lang="en"
# The int8 file is the larger one, which settles prediction 2: this convolution has so few weights that they save less
# than the scales and two `Convert`s (between fp32 and int8) add. Larger models turn that around; [M08-2](2_to_pte.py)
# has the numbers. The size in the `assert` holds for the executorch version this course pins; another may differ.
#
# ## Step 4: run it with the ExecuTorch runtime
#
# When a process loads its first XNNPACK delegate, the C++ side prints a few lines about the CPU on stderr. They have
# nothing to do with the result, so `capture_stderr()` (from this course's `common/env.py`, not ExecuTorch) catches
# them.

# %%
from executorch.runtime import Runtime

with capture_stderr():
    program = Runtime.get().load_program(pte)  # or the path of a .pte file
    forward = program.load_method("forward")
assert program._data is pte, "the program does not hold the bytes"
(y,) = forward.execute(x)  # a list of outputs
print("output shape:", tuple(y.shape))
assert y.shape == model(*x).shape

# %% [markdown] lang="zh"
# `program` 在執行期間要一直留著：runtime 不複製 `.pte` 的 bytes，直接從裡面讀，而留住這些 bytes 的是 `program`，不是
# `forward`。只留 `forward`、讓 `program` 被回收，`forward` 就會讀到已經釋放的記憶體，輕則錯誤訊息不知所云，重則整個行程
# 當掉；[M08-2](2_to_pte.py) 在另一個行程裡安全地示範。

# %% [markdown] lang="en"
# Hold on to `program` for as long as you execute: the runtime reads the bytes of the `.pte` in place, without a copy,
# and it is `program`, not `forward`, that keeps them alive. If only `forward` survives and `program` is collected,
# `forward` reads freed memory: at best you get a baffling error, at worst the process crashes. [M08-2](2_to_pte.py)
# shows it, safely, in a subprocess.

# %% [markdown] lang="zh"
# ## 和 Q/DQ 圖差多少
#
# 兩邊拿到同一組 scale 與 zero point，但 Q/DQ 圖用 fp32 模擬，XNNPACK 用整數 kernel 算，捨入的位置不一樣。差異用輸出的一
# 格（LSB）來數才公平：先確認 `.pte` 的每個輸出都落在 $s_y$ 的格子上，再數差了幾格。

# %% [markdown] lang="en"
# ## How far from the Q/DQ graph
#
# Both sides have the same scales and zero points, but the Q/DQ graph simulates in fp32 while XNNPACK computes with an
# integer kernel, so they round in different places. The fair unit for the difference is one step of the output (an
# LSB). First we make sure that every output of the `.pte` lies on the grid of $s_y$, then we count the steps between
# the two.

# %%
from_pte = torch.cat([forward.execute([image])[0] for image in images])
with torch.no_grad():
    from_qdq = torch.cat([quantized(image) for image in images])

steps = from_pte / s_y
off_grid = (steps - steps.round()).abs().max()
assert off_grid < 0.01, "the .pte does not use the scale that convert wrote"
lsb = (from_pte - from_qdq).div(s_y).round().abs()
assert lsb.max() <= 1, "more than one LSB away from the Q/DQ graph"
off = (from_pte - torch.cat(outputs)).abs().mean()
assert off < s_y / 2, "on average more than half a step from fp32"

# %% [markdown] lang="zh"
# 預測 3 的答案：不會完全相同，有些輸出差 1 LSB。差異從哪裡來？一個知道的原因是 bias。Q/DQ 圖上它是 fp32；XNNPACK 在
# lowering 時把它量化成 int32，一格是 $s_x s_w$（executorch 1.5.1，`quant_params.py` 的 `QuantParams.from_bias`）。要檢
# 驗很簡單：把 Q/DQ 圖的 bias 也捨入到同樣的格子上，再比一次。

# %% [markdown] lang="en"
# Prediction 3: not quite. Some outputs differ by one LSB. Where does that come from? One cause is known: the bias. In
# the Q/DQ graph it is fp32; lowering to XNNPACK quantizes it to int32 in steps of $s_x s_w$ (executorch 1.5.1,
# `QuantParams.from_bias` in `quant_params.py`). That is easy to test: round the Q/DQ graph's bias to the same grid and
# compare again.

# %%
(weight_dq,) = calls(quantized, ops.dequantize_per_channel.default)
s_w = getattr(quantized, weight_dq.args[1].target)  # one per output channel
rounded = copy.deepcopy(quantized)
with torch.no_grad():
    bias = rounded.conv.bias
    bias.copy_((bias / (s_x * s_w)).round() * (s_x * s_w))
    from_rounded = torch.cat([rounded(image) for image in images])
lsb_rounded = (from_pte - from_rounded).div(s_y).round().abs()
n, n_rounded = lsb.count_nonzero(), lsb_rounded.count_nonzero()
assert n_rounded < n, "rounding the bias did not bring the two closer"

# %% tags=["plot"]
table(
    [
        [
            T(zh="Q/DQ 圖", en="Q/DQ graph"),
            f"{lsb.max():.0f} LSB",
            f"{n} / {lsb.numel():,}",
        ],
        [
            T(zh="Q/DQ 圖，bias 捨入過", en="Q/DQ graph, bias rounded"),
            f"{lsb_rounded.max():.0f} LSB",
            f"{n_rounded} / {lsb.numel():,}",
        ],
    ],
    [
        T(zh="`.pte` 對上", en="`.pte` against"),
        T(zh="最大差", en="largest difference"),
        T(zh="不同的輸出", en="outputs that differ"),
    ],
)
say(
    T(
        zh="bias 一捨入，差異就全部消失：這個模型的差異完全來自 bias。",
        en="With the bias rounded, no difference is left: for this model it explains all of it.",
    )
    if n_rounded == 0
    else T(
        zh="bias 捨入之後差異變少，但沒有全部消失：bias 是原因之一，不是唯一的原因。",
        en="With the bias rounded fewer outputs differ, but some still do: it is one cause, not the only one.",
    )
)

# %% [markdown] lang="zh"
# 較大的模型仍有少數輸出不同，可能來自 add、mean 的整數實作或累加方式（這是推測，沒有讀 XNNPACK 的 kernel 原始碼）。實務
# 上，static 量化（scale 在匯出前就定好，不是執行時才算）的差異只有 1 個 LSB 左右。所以在 Q/DQ 圖上量到的準確率
# （[M05](../m05_accuracy/0_overview.py)、[M06](../m06_qat/0_overview.py)）可以代表部署的結果。前提是像上面這樣比過一
# 次：[M08-1](1_two_quantizers.py) 與 [M08-3](3_unsupported_ops.py) 各有不成立的例子。

# %% [markdown] lang="en"
# In larger models a few differences remain, perhaps from how add and mean are computed with integers or how sums are
# accumulated (our inference; we haven't read XNNPACK's kernels). In practice, with static quantization (scales fixed
# before export, not computed at run time) the difference is about one LSB. So an accuracy measured on the Q/DQ graph
# ([M05](../m05_accuracy/0_overview.py), [M06](../m06_qat/0_overview.py)) stands for the deployed model. That assumes
# you have compared the two as we just did: [M08-1](1_two_quantizers.py) and [M08-3](3_unsupported_ops.py) each show a
# case where it doesn't hold.

# %% [markdown] lang="zh"
# ## q 與 dq 到哪裡去了
#
# 它們全進了 delegate，但不是每個都變成運算（executorch 1.5.1，`backends/xnnpack/operators/` 的 `op_quant_dequant.py` 與
# `quant_params.py`）：
#
# | Q/DQ 圖上 | 到了 XNNPACK |
# | --- | --- |
# | 緊貼著 op 的 dq 與 q | 不產生運算，只把 scale、zero point 記在 int8 tensor 上；一個單元就是一個 int8 kernel |
# | 圖入口的 q、出口的 dq | fp32 與 int8 之間的轉換（`Convert`） |
# | weight（int8 常數與每個 channel 的 scale） | 值不變，排列改成 OHWI（output channel、高、寬、input channel），存進 `.pte` |
# | fp32 的 bias | 量化成 int32，一格是 $s_x s_w$ |
# | partitioner 沒有選的 op | 留在 delegate 外，由 portable kernel 執行（[M08-3](3_unsupported_ops.py)） |
#
# 所以 XNNPACK 用的 scale，就是 `convert_pt2e` 寫在 q、dq 上的那一套；QAT 的模型也一樣，不是訓練時 fake quant 的 buffer
# （[M06-3](../m06_qat/3_deployed_scales.py)）。ExecuTorch 的 ETDump（執行紀錄）能列出真正執行了什麼，拿來核對這張表；
# weight 則直接在 `.pte` 裡找：

# %% [markdown] lang="en"
# ## Where q and dq went
#
# All of them went into the delegate, but not all became operations (executorch 1.5.1, `op_quant_dequant.py` and
# `quant_params.py` in `backends/xnnpack/operators/`):
#
# | In the Q/DQ graph | In XNNPACK |
# | --- | --- |
# | dq and q right next to an op | no operation, only a scale and zero point on an int8 tensor; one unit is one int8 kernel |
# | q at the entrance of the graph, dq at its exit | a conversion between fp32 and int8 (`Convert`) |
# | the weight (int8 constant, a scale per channel) | stored in the `.pte` with the same values, in OHWI layout (output channel, height, width, input channel) |
# | the fp32 bias | quantized to int32, in steps of $s_x s_w$ |
# | ops the partitioner leaves out | stay outside the delegate, run by portable kernels ([M08-3](3_unsupported_ops.py)) |
#
# So the scales XNNPACK uses are those `convert_pt2e` wrote on q and dq. The same goes for a QAT model: not the buffers
# of fake quant during training ([M06-3](../m06_qat/3_deployed_scales.py)). ExecuTorch's ETDump, a trace of a run, lists
# what really ran, so we can check the table against it; the weight we look up in the `.pte` itself:

# %%
import warnings

from executorch.devtools import Inspector

traced = Runtime.get().load_program(
    pte, enable_etdump=True, debug_buffer_size=1_000_000
)
traced.load_method("forward").execute(x)
traced.write_etdump_result_to_file("run.etdp", "debug.bin")
with warnings.catch_warnings():  # we want names, not the tensors' contents
    warnings.filterwarnings("ignore", message="Output Buffer not found")
    events = Inspector(etdump_path="run.etdp").event_blocks[-1].events
ran = [event.name for event in events if event.is_delegated_op]
print("\n".join(ran))
assert sum("Convert" in name for name in ran) == 2, "one at each end"
assert sum("Convolution" in name for name in ran) == 1, "with ReLU in it"

weight = getattr(quantized, weight_dq.args[0].target)  # int8, as OIHW
ohwi = weight.permute(0, 2, 3, 1).contiguous().numpy().tobytes()
assert ohwi in pte, "the int8 weight is not in the file as OHWI"

# %% [markdown] lang="zh"
# 五個 q、dq 只剩兩個 `Convert`，這是預測 1 的答案。relu 也不見了：它變成 conv kernel 的輸出下限
# （`fuse_activation_pass.py`）。`Transpose` 是因為 XNNPACK 用 NHWC 排列，而我們給的是 NCHW。名稱裡的 QC8 是 int8、每個
# output channel 一個 scale；IGEMM（indirect GEMM）是把卷積當矩陣乘法算的 kernel。
#
# ## 三個包裝
#
# 這一章後面的頁用這門課的三個包裝，都在 `common/executorch_utils.py`，不是 ExecuTorch 的 API：
#
# | 包裝 | 做的事 |
# | --- | --- |
# | `xnnpack_ptq(model, x)` | 第 1 步：static shape 的 export、executorch 的 quantizer、校準、convert |
# | `lower_to_xnnpack(gm, x)` | 第 2、3 步，回傳 `(edge, pte)` |
# | `PteRunner(pte)` | 第 4 步，並且留住 `program`（連同它的 bytes） |

# %% [markdown] lang="en"
# Of five q and dq nodes, two `Convert`s are left: prediction 1. ReLU is gone as well: it became the lower bound of the
# convolution's output (`fuse_activation_pass.py`). The `Transpose`s are there because XNNPACK computes in NHWC layout
# and we hand it NCHW. In the names, QC8 means int8 with a scale per output channel, and IGEMM (indirect GEMM) is a
# kernel that computes a convolution as a matrix multiplication.
#
# ## Three wrappers
#
# The other pages of this chapter use three wrappers of this course, from `common/executorch_utils.py`. They are not
# part of ExecuTorch:
#
# | Wrapper | What it does |
# | --- | --- |
# | `xnnpack_ptq(model, x)` | step 1: export with a static shape, executorch's quantizer, calibration, convert |
# | `lower_to_xnnpack(gm, x)` | steps 2 and 3; returns `(edge, pte)` |
# | `PteRunner(pte)` | step 4, and keeps `program` (with its bytes) alive |

# %%
wrapped_edge, wrapped_pte = lower_to_xnnpack(xnnpack_ptq(model, x), x)
assert wrapped_pte == pte, "the wrappers should make the very same file"
assert torch.equal(PteRunner(wrapped_pte)(x), y), "and the same output"

# %% [markdown] lang="zh"
# ## 名詞
#
# | 名詞 | 是什麼 |
# | --- | --- |
# | Edge dialect | ExecuTorch 的中間表示：多數 op 再拆成 Core ATen op，例如 `conv2d` 變成 `convolution`；partitioner 可以要求保留某些 op 不拆，例如 `linear`（executorch 1.5.1，`config_partitioner.py`） |
# | partitioner | 在圖上找出某個後端支援的子圖；這裡是 `XnnpackPartitioner` |
# | delegate | 交給後端的一塊子圖，匯出時就編譯成後端自己的格式；圖上只留一個 `executorch_call_delegate` |
# | memory planning（記憶體規劃） | `to_executorch()` 事先決定每個中間 tensor 放在哪塊記憶體，執行時不再配置 |
# | `.pte` | ExecuTorch 的部署檔：圖、weight、delegate 的資料、記憶體規劃都在裡面 |
# | portable kernel | ExecuTorch 自己的通用 C++ 實作，執行沒有進 delegate 的 op |
#
# 全部的名詞在[詞彙表](../glossary.md)。

# %% [markdown] lang="en"
# ## Terms
#
# | Term | What it is |
# | --- | --- |
# | Edge dialect | ExecuTorch's intermediate form: most ops are decomposed into Core ATen ops, `conv2d` becoming `convolution`; a partitioner may ask to keep some whole, such as `linear` (executorch 1.5.1, `config_partitioner.py`) |
# | partitioner | finds the parts of a graph that a backend supports; here `XnnpackPartitioner` |
# | delegate | a part of the graph handed to a backend, compiled to the backend's own format at export time; the graph keeps one `executorch_call_delegate` |
# | memory planning | `to_executorch()` decides beforehand where every intermediate tensor goes, so nothing is allocated at run time |
# | `.pte` | ExecuTorch's deployment file: graph, weights, data of the delegates, memory plan |
# | portable kernel | ExecuTorch's own general C++ implementation, for ops outside any delegate |
#
# All terms are in the [glossary](../glossary.md).

# %% [markdown] lang="zh"
# ## 小結
#
# - 四步：PT2E 得到 Q/DQ 圖，`to_edge_transform_and_lower` 切出 delegate，`to_executorch` 得到 `.pte`，`Runtime` 執行
#   它，而且 `program` 要留著。
# - 路線 A 在匯出時就決定哪些 op 用 int8 執行；`.pte` 裡存的是 XNNPACK 接手的子圖。
# - 緊貼 op 的 q、dq 只剩 int8 tensor 的 scale 與 zero point，只有圖的入口與出口真的轉換。
# - `.pte` 和 Q/DQ 圖差在整數捨入，已知的原因是 bias；每次都要比，單位用 LSB。

# %% [markdown] lang="en"
# ## Recap
#
# - Four steps: PT2E makes the Q/DQ graph, `to_edge_transform_and_lower` carves out delegates, `to_executorch` yields
#   the `.pte`, and `Runtime` runs it while you keep `program`.
# - Route A decides at export time what runs in int8; the `.pte` stores the subgraph XNNPACK takes over.
# - A q or dq next to an op is only a scale and zero point on an int8 tensor; real conversions happen at the entrance
#   and exit alone.
# - `.pte` and Q/DQ graph differ by integer rounding, with the bias as a known cause. Always compare, and count in LSBs.

# %% [markdown] lang="zh"
# ## 試試看
#
# 上面的 `.pte` 只支援 batch 1。做一個 batch 1 到 8 都支援的 `.pte`，確認三種 batch 的輸出和 Q/DQ 圖最多差 1 LSB。提示：
# 兩次 export 都要 `dynamic_shapes`，範例輸入的 batch 不能是 1（[M00-2](../m00_fx/2_export.py)）。

# %% [markdown] lang="en"
# ## Try it
#
# The `.pte` above takes batch 1 only. Make one that takes any batch from 1 to 8, and check for three batches that its
# output is at most 1 LSB away from the Q/DQ graph. Hint: both exports need `dynamic_shapes`, and the batch of the
# example must not be 1 ([M00-2](../m00_fx/2_export.py)).

# %% tags=["solution"]
pair = example_inputs(2)
any_batch = torch.export.Dim("batch", min=1, max=8)  # max sizes the plan
shapes = {"x": {0: any_batch}}

exported_any = torch.export.export(model, pair, dynamic_shapes=shapes).module()
prepared_any = prepare_pt2e(exported_any, quantizer)
with torch.no_grad():
    for (batch,) in calibration_batches(32, batch_size=8):
        prepared_any(batch)
quantized_any = convert_pt2e(prepared_any)
again = torch.export.export(quantized_any, pair, dynamic_shapes=shapes)
edge_any = to_edge_transform_and_lower(again, partitioner=partitioner)

# %% tags=["solution"]
run = PteRunner(edge_any.to_executorch().buffer)
s_any = calls(quantized_any, ops.quantize_per_tensor.default)[-1].args[1]
for n in (1, 3, 8):
    batch = torch.cat(images[:n])
    with torch.no_grad():
        off = (run(batch) - quantized_any(batch)).div(s_any).round().abs().max()
    print(f"batch {n}: {tuple(run(batch).shape)}, at most {off:.0f} LSB off")
    assert off <= 1

# %% [markdown] lang="zh"
# ## 本章地圖
#
# | 頁 | 做什麼 |
# | --- | --- |
# | [M08-1 兩份 XNNPACKQuantizer](1_two_quantizers.py) | executorch 的和 torchao 測試用的差在哪；static 與 dynamic；`set_module_name` 的陷阱 |
# | [M08-2 從 Q/DQ 圖到 .pte](2_to_pte.py) | lowering 前後的圖、`.pte` 的大小、換 batch、動態 shape 與它的陷阱、`program` 被回收會怎樣 |
# | [M08-3 不支援的 op](3_unsupported_ops.py) | 圖怎麼被切開、邊界上傳什麼、和 Q/DQ 圖差多少 |
# | [M08-4 latency](4_latency.py) | eager、Q/DQ 圖、fp32 `.pte`、int8 `.pte`：收益分兩段算 |
#
# 這一章刻意跳過：XNNPACK 以外的 ExecuTorch 後端（[M07](../m07_backends/0_overview.py) 列出哪些）；走 ONNX Runtime 的
# 路線 B（[M09](../m09_onnxruntime/0_overview.py)）；在手機上執行。
#
# ## 參考資料
#
# - ExecuTorch 文件：[XNNPACK backend](https://docs.pytorch.org/executorch/stable/backends-xnnpack.html)、[memory
#   planning](https://docs.pytorch.org/executorch/stable/compiler-memory-planning.html)
# - executorch 1.5.1 原始
#   碼：`backends/xnnpack/operators/op_quant_dequant.py`、`backends/xnnpack/operators/quant_params.py`、`backends/xnnpack/quantizer/xnnpack_quantizer.py`、`exir/backend/canonical_partitioners/config_partitioner.py`
# - [XNNPACK](https://github.com/google/XNNPACK)

# %% [markdown] lang="en"
# ## Map of the chapter
#
# | Page | What happens there |
# | --- | --- |
# | [M08-1 Two XNNPACKQuantizers](1_two_quantizers.py) | executorch's against the one torchao keeps for tests; static and dynamic; the traps of `set_module_name` |
# | [M08-2 From Q/DQ graph to .pte](2_to_pte.py) | the graph before and after lowering, sizes, other batches, dynamic shapes and their traps, what happens once `program` is gone |
# | [M08-3 Unsupported ops](3_unsupported_ops.py) | how the graph is cut, what crosses the cut, how far from the Q/DQ graph |
# | [M08-4 Latency](4_latency.py) | eager, Q/DQ graph, fp32 `.pte`, int8 `.pte`: the gain in two parts |
#
# Left out on purpose: ExecuTorch backends other than XNNPACK ([M07](../m07_backends/0_overview.py) lists them), route B
# through ONNX Runtime ([M09](../m09_onnxruntime/0_overview.py)), and running on a phone.
#
# ## References
#
# - ExecuTorch documentation: [XNNPACK backend](https://docs.pytorch.org/executorch/stable/backends-xnnpack.html),
#   [memory planning](https://docs.pytorch.org/executorch/stable/compiler-memory-planning.html)
# - Source of executorch 1.5.1: `backends/xnnpack/operators/op_quant_dequant.py`,
#   `backends/xnnpack/operators/quant_params.py`, `backends/xnnpack/quantizer/xnnpack_quantizer.py`,
#   `exir/backend/canonical_partitioners/config_partitioner.py`
# - [XNNPACK](https://github.com/google/XNNPACK)
