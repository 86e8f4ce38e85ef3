# %% [markdown] lang="zh" time_limit=300
# # M08-2 | 從 Q/DQ 圖到 `.pte`
#
# [概覽](0_overview.py)把一個 conv + relu 做成 `.pte`。這一頁換成訓練好的 TinyConvNet，把每一步看仔細：圖變成什麼、檔案
# 多大、真正執行了哪些 kernel、和 Q/DQ 圖差多少、為什麼。後半是部署時會碰到的事：換 batch、動態 shape、記憶體排列，以及
# 一個會讓整個行程當掉的寫法。
#
# **讀完你會知道**
#
# - lowering 前後的圖，以及怎麼證明 q、dq 變成了什麼
# - int8 的 `.pte` 小多少，為什麼不是四分之一
# - 1 LSB 的差異從哪裡來，怎麼用實驗驗證
# - 哪些錯誤的輸入會被擋下，哪一種會默默給出錯的答案
# - 動態 shape 怎麼做，`max` 為什麼一定要寫

# %% [markdown] lang="en"
# # M08-2 | From Q/DQ graph to `.pte`
#
# The [overview](0_overview.py) turned a conv + relu into a `.pte`. This page takes the trained TinyConvNet and looks at
# each step closely: what becomes of the graph, how large the file is, which kernels really run, how far the result is
# from the Q/DQ graph, and why. The second half is about what you meet in deployment: other batches, dynamic shapes,
# memory layouts, and a way of loading that can bring the whole process down.
#
# **What you will know**
#
# - The graph before and after lowering, and how to prove what q and dq became
# - How much smaller the int8 `.pte` is, and why not by a factor of four
# - Where a difference of 1 LSB comes from, tested by experiment
# - Which wrong inputs are refused, and which one silently gives a wrong answer
# - How to get dynamic shapes, and why you must state a `max`

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 這張 Q/DQ 圖有 24 個 q、dq。在 `.pte` 裡有幾個會執行？
# 2. 匯出時用 NCHW 的範例，執行時給 channels_last 的 tensor（值相同）。會被拒絕、答案正確，還是答案錯誤？
# 3. `Dim("batch")` 沒寫 `max`，範例的 batch 是 2。`.pte` 最多能處理多大的 batch？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. This Q/DQ graph has 24 q and dq. How many of them run in the `.pte`?
# 2. The example at export is NCHW; at run time you pass a channels_last tensor with the same values. Is it refused, is
#    the answer right, or is it wrong?
# 3. `Dim("batch")` has no `max`, and the example's batch is 2. What is the largest batch the `.pte` takes?

# %% tags=["setup"]
import copy
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

from common.artifacts import cached
from common.data import calibration_batches
from common.env import quiet
from common.etdump import xnnpack_kernels
from common.executorch_utils import PteRunner, lower_to_xnnpack, xnnpack_ptq
from common.models import example_inputs, get_model, trained_tinyconvnet
from common.pt2e import count_qdq, difference_in_lsb, output_qparams, ptq
from common.quantizers import PTQQuantizer
from common.viz import T, say, stepper, table

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torch import nn

quiet()
torch.manual_seed(0)

aten = torch.ops.aten
X = example_inputs(1)  # one image, in a tuple
(images,) = next(calibration_batches(256, batch_size=256))


def error_of(call):
    """What the call raises: the error's class and the message's lines."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("no error was raised")


def reason(message):
    """The line of the message that says why, without its place in C++."""
    *_, line = message.splitlines()[:2]
    return re.sub(r"^\[.*?\] |^RuntimeError: ", "", line)


def quantize(model, x=X, dynamic_shapes=None):
    """The Q/DQ graph; PTQQuantizer is a quicker XNNPACKQuantizer."""
    program = torch.export.export(model, x, dynamic_shapes=dynamic_shapes)
    config = get_symmetric_quantization_config(is_per_channel=True)
    quantizer = PTQQuantizer().set_global(config)
    batches = calibration_batches(32, batch_size=len(x[0]))
    return ptq(program.module(), quantizer, batches)


# %% [markdown] lang="zh"
# ## 圖：lowering 前後
#
# 步驟和概覽相同：再 export 一次，交給 `to_edge_transform_and_lower`，再 `to_executorch`。

# %% [markdown] lang="en"
# ## The graph before and after lowering
#
# The steps are those of the overview: export once more, hand it to `to_edge_transform_and_lower`, then `to_executorch`.

# %%
from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
    XnnpackPartitioner,
)
from executorch.exir import to_edge_transform_and_lower

model = trained_tinyconvnet()
quantized = quantize(model)
again = torch.export.export(quantized, X)
edge = to_edge_transform_and_lower(again, partitioner=[XnnpackPartitioner()])
pte = bytes(edge.to_executorch().buffer)

lowered = edge.exported_program().graph_module
outside = [n.name for n in lowered.graph.nodes if n.op == "call_function"]
assert outside == ["executorch_call_delegate", "getitem"], outside
assert sum(count_qdq(quantized).values()) == 24, count_qdq(quantized)

# %% tags=["plot"]
stepper(
    [
        (T(zh="Q/DQ 圖", en="Q/DQ graph"), quantized),
        (T(zh="lowering 之後", en="after lowering"), edge.exported_program()),
    ],
    alt=T(
        zh="兩個階段。Q/DQ 圖：每個 conv、add、mean、linear 的前後都有 q 與 dq。lowering 之後：x 進一個 XNNPACK delegate，再到輸出；"
        "delegate 展開後是和 Q/DQ 圖同樣的 op，conv2d 改名為 convolution。",
        en="Two stages. The Q/DQ graph: q and dq around every conv, add, mean and linear. After lowering: x enters one XNNPACK "
        "delegate and leaves for the output; unfolded, the delegate holds the ops of the Q/DQ graph, with conv2d renamed to convolution.",
    ),
    caption=T(
        zh="整個模型進了一個 delegate：切到「lowering 之後」，再展開它看裡面。",
        en="The whole model went into one delegate: switch to “after lowering” and unfold it to look inside.",
    ),
)

# %% [markdown] lang="zh"
# 一個 delegate 收下整個模型。這不是理所當然的：TinyConvNet 的平均寫成 `mean(..., keepdim=True)`，少了 `keepdim` 就會被
# 切成兩個（[M08-3](3_unsupported_ops.py)）。兩個最常見的呼叫錯誤，訊息都沒有說出原因：

# %% [markdown] lang="en"
# One delegate took the whole model. That isn't a matter of course: TinyConvNet spells its mean with `keepdim=True`, and
# without that it would be cut in two ([M08-3](3_unsupported_ops.py)). The two most common mistakes in these calls have
# messages that don't name the reason:

# %%
no_export = error_of(
    lambda: to_edge_transform_and_lower(
        quantized, partitioner=[XnnpackPartitioner()]
    )
)
no_list = error_of(
    lambda: to_edge_transform_and_lower(again, partitioner=XnnpackPartitioner())
)
print(no_export)
print(no_list)
assert "no attribute 'run_decompositions'" in no_export, "a better message"
assert "object is not iterable" in no_list, "a better message"

# %% [markdown] lang="zh"
# 第一個忘了再 export 一次，第二個的 partitioner 沒有放進 list。
#
# ## 檔案多大
#
# fp32 的模型也做一份。寬度 64 的那一組事先做好存起來，省下這一頁的時間。

# %% [markdown] lang="en"
# In the first the second export is missing, in the second the partitioner isn't in a list.
#
# ## How large the file is
#
# The fp32 model takes the same route. The pair of width 64 was made beforehand and stored, to save time on this page.


# %%
def sizes_and_lsb_at_width_64():
    wide = get_model("tiny64")
    graph = xnnpack_ptq(wide, X)
    int8, fp32 = lower_to_xnnpack(graph, X)[1], lower_to_xnnpack(wide, X)[1]
    scale = output_qparams(graph).scale
    lsb = difference_in_lsb(PteRunner(int8)(X), graph(*X), scale).max().item()
    return {"fp32": len(fp32), "int8": len(int8), "lsb": lsb}


_, pte_fp32 = lower_to_xnnpack(model, X)
wide = cached("m08_2_width_64", sizes_and_lsb_at_width_64)
sizes = {
    16: {"fp32": len(pte_fp32), "int8": len(pte)},
    64: {"fp32": wide["fp32"], "int8": wide["int8"]},
}
in_weights = {  # bytes of int8 weights: every conv and linear weight
    width: sum(p.numel() for p in get_model(name).parameters() if p.dim() > 1)
    for width, name in {16: "tiny", 64: "tiny64"}.items()
}
ratio = {width: size["fp32"] / size["int8"] for width, size in sizes.items()}
assert 2 < ratio[16] < 3 < ratio[64] < 4, f"ratios: {ratio}"
assert wide["lsb"] < 1.5, f"width 64 is {wide['lsb']} LSB off"

# %% tags=["plot"]
table(
    [
        [
            str(width),
            f"{size['fp32']:,} B",
            f"{size['int8']:,} B",
            f"{ratio[width]:.2f}×",
            f"{in_weights[width]:,} B",
            f"{size['int8'] - in_weights[width]:,} B",
        ]
        for width, size in sizes.items()
    ],
    [
        T(zh="寬度", en="width"),
        "fp32 `.pte`",
        "int8 `.pte`",
        T(zh="比例", en="ratio"),
        T(zh="其中 int8 weight", en="of it, int8 weights"),
        T(zh="其餘", en="the rest"),
    ],
)

# %% [markdown] lang="zh"
# weight 是四分之一，檔案不是：scale、bias、圖的描述和 delegate 的標頭不會跟著縮小。模型愈大，這些佔的比例愈低，愈接近四
# 倍。
#
# ## 真正執行了什麼
#
# ETDump 列出 runtime 執行的每個 op（寫法見[概覽](0_overview.py)，`xnnpack_kernels` 是它的包裝）。int8 與 fp32 並排：

# %% [markdown] lang="en"
# Weights shrink to a quarter, the file doesn't: scales, biases, the description of the graph and the headers of the
# delegate stay. The larger the model, the less they matter, and the closer it gets to a factor of four.
#
# ## What really runs
#
# ETDump lists every op that the runtime executes (the [overview](0_overview.py) has the calls, `xnnpack_kernels` wraps
# them). Here int8 and fp32 stand side by side:

# %%
ran = {
    "int8": xnnpack_kernels(pte, X),
    "fp32": xnnpack_kernels(pte_fp32, X),
}


def op(kernel):
    return kernel.partition(" (")[0]


ops = {name: Counter(map(op, kernels)) for name, kernels in ran.items()}
assert ops["int8"] - ops["fp32"] == {"Convert": 2}, "not just two Converts"
assert not ops["fp32"] - ops["int8"], "fp32 runs something else"
assert op(ran["int8"][0]) == op(ran["int8"][-1]) == "Convert", "not at the ends"
heavy = [k for k in ran["int8"] if op(k) in ("Convolution", "Fully Connected")]
assert len(heavy) == 5 and not any("F32" in k for k in heavy), heavy

# %% tags=["plot"]
middle = ran["int8"][1:-1]
pairs = [(ran["int8"][0], "–"), *zip(middle, ran["fp32"], strict=True)]
table(
    [*map(list, pairs), [ran["int8"][-1], "–"]],
    ["int8 `.pte`", "fp32 `.pte`"],
    caption=T(
        zh="依執行順序。QC8、QS8 是 int8（每個 channel 一個、整個 tensor 一個 scale），F32 是 fp32。",
        en="In order of execution. QC8 and QS8 are int8 (one scale per channel, one per tensor), F32 is fp32.",
    ),
)

# %% [markdown] lang="zh"
# 預測 1：24 個 q、dq 只剩頭尾兩個 `Convert`，其餘只是 int8 tensor 上的 scale 與 zero point。兩邊的 op 一一對應，只是換
# 了 kernel。接在 conv 後面的 relu 併進了 conv；add 後面的那個則單獨執行，叫 `Clamp`。
#
# ## 和 Q/DQ 圖差多少，為什麼
#
# 256 張圖片，每張 4 個輸出，以輸出的 LSB 計：

# %% [markdown] lang="en"
# Prediction 1: of 24 q and dq, only a `Convert` at each end is left; the others are just scales and zero points on int8
# tensors. The ops of the two columns correspond one to one, only the kernels differ. A relu behind a conv became part
# of the conv; the one behind add runs by itself, as `Clamp`.
#
# ## How far from the Q/DQ graph, and why
#
# Over 256 images with 4 outputs each, in LSBs of the output:

# %%
run, lsb = PteRunner(pte), output_qparams(quantized).scale


def outputs(function):
    with torch.no_grad():
        return torch.cat([function(image) for image in images.split(1)])


def apart(graph):
    """LSBs between the `.pte` and a graph, for each output."""
    return difference_in_lsb(from_pte, outputs(graph), lsb).round()


from_pte = outputs(run)
before = apart(quantized)
print(f"{before.count_nonzero()} of {before.numel()} outputs differ,", end=" ")
print(f"by at most {before.max():.0f} LSB")
assert before.max() <= 1, "more than one LSB"

# %% [markdown] lang="zh"
# 概覽的 conv + relu 只有一個原因：bias。Q/DQ 圖上它是 fp32，XNNPACK 存成 int32，一格是 $s_x s_w$
# （[M03-3](../m03_quantizer/3_shared_and_derived.py) 手算過）。整個網路也是這樣嗎？把 Q/DQ 圖裡五個 bias 都捨入到各自的
# 格子上，再比一次：

# %% [markdown] lang="en"
# For the overview's conv + relu there was one cause, the bias: fp32 in the Q/DQ graph, int32 in steps of $s_x s_w$ in
# XNNPACK ([M03-3](../m03_quantizer/3_shared_and_derived.py) computes it by hand). Does that hold for a whole network?
# We round all five biases of the Q/DQ graph to their grids and compare again:


# %%
def with_rounded_biases(graph):
    rounded = copy.deepcopy(graph)
    for target in (aten.conv2d.default, aten.linear.default):
        calls = rounded.graph.find_nodes(op="call_function", target=target)
        for x_dq, w_dq, bias in (node.args[:3] for node in calls):
            step = x_dq.args[1] * getattr(rounded, w_dq.args[1].target)
            with torch.no_grad():
                b = rounded.get_parameter(bias.target)
                b.copy_((b / step).round() * step)
    return rounded


after = apart(with_rounded_biases(quantized))
assert after.count_nonzero() < before.count_nonzero() / 2, (
    "bias explains little"
)

# %% tags=["plot"]
table(
    [
        [label, f"{d.max():.0f} LSB", f"{d.count_nonzero()} / {d.numel():,}"]
        for label, d in [
            (T(zh="Q/DQ 圖", en="Q/DQ graph"), before),
            (
                T(zh="Q/DQ 圖，bias 捨入過", en="Q/DQ graph, biases rounded"),
                after,
            ),
        ]
    ],
    [
        T(zh="`.pte` 對上", en="`.pte` against"),
        T(zh="最大差", en="largest difference"),
        T(zh="不同的輸出", en="outputs that differ"),
    ],
)


def what_bias_explains(before, after):
    """`before` and `after`: how many outputs differ."""
    if after == 0:
        return T(
            zh="差異全部消失：bias 是唯一的原因。",
            en="No difference is left: the bias is the only cause.",
        )
    share = f"{1 - after / before:.0%}"
    return T(
        zh=f"bias 解釋了 {share} 的差異，剩下的沒有查出原因。可能是累加與捨入的順序（這是推測，沒有量到）。",
        en=f"The bias explains {share} of the differences. We haven't found the cause of the others; perhaps the order of accumulating and rounding (our inference, not measured).",
    )


say(what_bias_explains(int(before.count_nonzero()), int(after.count_nonzero())))

# %% [markdown] lang="zh"
# ## 會被擋下的輸入，和不會的
#
# `.pte` 依匯出時的 shape 規劃記憶體。下面四種輸入都不合，runtime 都拒絕；原因多半由 C++ 寫在 stderr，`PteRunner` 把它接
# 到例外的訊息後面：

# %% [markdown] lang="en"
# ## Inputs that are refused, and one that isn't
#
# The `.pte` planned its memory for the shape at export. The four inputs below don't fit, and the runtime refuses them
# all. The reason is mostly what C++ writes to stderr; `PteRunner` appends it to the exception's message:

# %%
(x,) = X
from_x = run(x)
BAD = {
    "batch 2": torch.cat([x, x]),
    "float64": x.double(),
    "3-D": x[0],
    "transposed view": x.transpose(2, 3),
}
refused = {
    name: error_of(lambda bad=bad: run(bad)) for name, bad in BAD.items()
}
for name, message in refused.items():
    print(textwrap.fill(f"{name}: {reason(message)}", 76))
assert "Expected shape (1, 3, 16, 16)" in refused["batch 2"]
assert "unexpected scalar type" in refused["float64"]
assert "rank which is immutable" in refused["3-D"]
assert "contiguous or channels-last" in refused["transposed view"]
assert torch.equal(run(x), from_x), "unusable afterwards"

# %% [markdown] lang="zh"
# 被拒絕之後，同一個 `.pte` 還能照常使用。再給它值完全相同、只是排列成 channels_last（NHWC）的 tensor：

# %% [markdown] lang="en"
# Having refused, the `.pte` works as before. Now it gets a tensor with the very same values, only laid out as
# channels_last (NHWC):

# %%
channels_last = x.contiguous(memory_format=torch.channels_last)
assert torch.equal(channels_last, x), "other values"

wrong = run(channels_last)
memory = channels_last.permute(0, 2, 3, 1).reshape(x.shape)  # as it lies there
off = difference_in_lsb(wrong, from_x, lsb).max().item()
print(f"{off:.0f} LSB off")
assert off > 5, "channels_last is understood"
assert torch.equal(wrong, run(memory)), "it isn't read as NCHW"
assert torch.equal(run(channels_last.contiguous()), from_x), "no remedy"

# %% [markdown] lang="zh"
# 預測 2：答案錯誤，而且沒有任何訊息。runtime 收下了，卻把那塊記憶體當 NCHW 讀；第三個 `assert` 用同一塊記憶體、標成
# NCHW，得到一模一樣的錯誤。**輸入一律先 `.contiguous()`**，或者像文末的練習那樣，匯出時就用 channels_last 的範例。
#
# ## 動態 shape
#
# 要支援不同的 batch，兩次 export 都給 `dynamic_shapes`，範例的 batch 不能是 1（概覽的練習）。這裡看三個陷阱，用一個更小
# 的網路，它的攤平有兩種寫法：

# %% [markdown] lang="en"
# Prediction 2: a wrong answer, without a word. The runtime accepts it and reads the memory as NCHW: the third `assert`
# passes the same memory labeled NCHW and gets the same wrong result. **Always call `.contiguous()` on an input**, or
# export with a channels_last example as in the exercise at the end.
#
# ## Dynamic shapes
#
# For several batches, give `dynamic_shapes` to both exports; the batch of the example must not be 1 (the overview's
# exercise). Here are three traps, on a smaller network that can flatten in two ways:


# %%
class Small(nn.Module):
    def __init__(self, flatten):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)
        self.flatten = flatten

    def forward(self, x):
        x = self.conv(x).relu().mean((2, 3), keepdim=True)
        return self.fc(self.flatten(x))


def with_batch(dim, flatten, n=2):
    """(Q/DQ graph, `.pte`, number of delegates) for an example of batch n."""
    example, shapes = example_inputs(n), ({0: dim},)
    graph = quantize(Small(flatten).eval(), example, shapes)
    program = torch.export.export(graph, example, dynamic_shapes=shapes)
    edge = to_edge_transform_and_lower(
        program, partitioner=[XnnpackPartitioner()]
    )
    names = [n.name for n in edge.exported_program().graph.nodes]
    delegates = sum("call_delegate" in name for name in names)
    return graph, bytes(edge.to_executorch().buffer), delegates


up_to_8 = torch.export.Dim("batch", min=1, max=8)
graph_8, pte_8, cut = with_batch(up_to_8, lambda x: x.flatten(1))
step = output_qparams(graph_8).scale
run_8 = PteRunner(pte_8)
for n in (1, 3, 8):
    few = images[:n]
    far = difference_in_lsb(run_8(few), graph_8(few), step).max().item()
    print(f"batch {n}: at most {far:.0f} LSB off")
    assert far < 1.5, f"batch {n} is wrong"
too_many = reason(error_of(lambda: run_8(images[:9])))
print(textwrap.fill(f"batch 9: {too_many}", 76))
assert "maximum capacity of 6144 elements" in too_many, "9 images fit"

# %% [markdown] lang="zh"
# `max` 以內都對；超過就拒絕，因為記憶體只規劃到 8 張（6,144 個數）。現在是三個陷阱：範例的 batch 是 1；`flatten(1)` 在
# 動態 shape 下切開圖；沒寫 `max`。

# %% [markdown] lang="en"
# All is well up to `max`, and beyond it is refused, since memory was planned for 8 images (6,144 numbers). Now the
# traps: an example of batch 1, `flatten(1)` cutting the graph under dynamic shapes, and a missing `max`.

# %%
example_of_1 = error_of(
    lambda: with_batch(up_to_8, lambda x: x.flatten(1), n=1)
)
print(example_of_1.splitlines()[0].partition(" For more")[0])
assert "Constraints violated (batch)" in example_of_1, "batch 1 is fine"

without_max = torch.export.Dim("batch")
graph_any, pte_any, whole = with_batch(without_max, lambda x: x.view(-1, 8))
print("delegates:", {"flatten(1)": cut, "view(-1, 8)": whole})
assert (cut, whole) == (2, 1), "flatten doesn't cut the graph"

# %%
run_any, step = PteRunner(pte_any), output_qparams(graph_any).scale
largest = 0
for n in range(1, 65):
    try:
        y = run_any(images[:n])
    except RuntimeError as error:
        print(textwrap.fill(f"batch {n}: {reason(str(error))}", 76))
        break
    far = difference_in_lsb(y, graph_any(images[:n]), step).max().item()
    assert far < 1.5, f"batch {n} is wrong"
    largest = n
assert 2 <= largest < 64, f"no bound up to {largest}"

# %% tags=["setup"]
say(
    T(
        zh=f"預測 3：最多 {largest}。沒寫 `max` 時，規劃的大小是匯出時從範例推出來的，範例的 batch 只有 2；沒有任何訊息，要到部署後遇上大一點的 batch 才會發現（這個數字怎麼推出來的，我們沒有查）。",
        en=f"Prediction 3: {largest}. Without a `max`, export derives the size to plan for from the example, whose batch was 2. Nothing is said, and you find out in deployment, when a larger batch comes along. (How it arrives at this number we haven't looked up.)",
    )
)

# %% [markdown] lang="zh"
# 所以 `Dim` 一定要寫 `max`，並且實際執行一次 `max`。攤平用 `view(-1, C)` 可以保住一個 delegate；切開的代價在
# [M08-3](3_unsupported_ops.py)。
#
# ## `program` 被回收會怎樣
#
# 概覽說 `program` 要留著。不留會怎樣，只能在別的行程裡試。下面的程式載入一次函式庫，然後三種寫法各分出十個行程：留著
# `program`；只留 `forward`，但從檔案路徑載入；只留 `forward`，從 bytes 載入。每個行程執行 50 次，和正確答案比較。

# %% [markdown] lang="en"
# So always give `Dim` a `max`, and run `max` once. Flattening with `view(-1, C)` keeps one delegate; what a cut costs
# is in [M08-3](3_unsupported_ops.py).
#
# ## What if `program` is collected?
#
# The overview said to keep `program`. What happens otherwise can only be tried in another process. The script below
# imports the libraries once and then forks ten processes for each of three ways: keep `program`; keep only `forward`
# but load from a path; keep only `forward` and load from bytes. Each executes 50 times and compares with the right
# answer.

# %%
SCRIPT = """
import os
import torch
from executorch.runtime import Runtime

x, right = torch.load("expected.pt")

def attempt(how):
    path = "model.pte"
    source = path if how == "path" else open(path, "rb").read()
    program = Runtime.get().load_program(source)
    forward = program.load_method("forward")
    if how != "kept":
        del program, source  # only `forward` is left
    for _ in range(50):
        (y,) = forward.execute(x)
        if not torch.equal(y, right):
            return 1  # wrong values
    return 0

for how in ("kept", "path", "bytes"):
    ends = []
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(attempt(how))
            except RuntimeError:
                os._exit(2)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(how, *ends)
"""
Path("model.pte").write_bytes(pte)
Path("drop.py").write_text(SCRIPT)
torch.save((X, from_x), "expected.pt")
script = [sys.executable, "drop.py"]
done = subprocess.run(script, capture_output=True, text=True)
assert done.returncode == 0, done.stderr

# %%
MEANING = {0: "right", 1: "wrong values", 2: "RuntimeError"}  # < 0: a signal
ended = {}
for line in done.stdout.splitlines():
    how, *codes = line.split()
    ended[how] = Counter(MEANING.get(int(c), "crashed") for c in codes)
assert ended["kept"] == {"right": 10}, "keeping program isn't enough"
assert ended["path"] == {"right": 10}, "a path isn't safe"
assert ended["bytes"].total() == 10, "not all of the runs ended"

# %% tags=["plot"]
WAYS = {
    "kept": T(zh="留著 `program`", en="`program` kept"),
    "path": T(
        zh="只留 `forward`，從路徑載入", en="only `forward`, from a path"
    ),
    "bytes": T(
        zh="只留 `forward`，從 bytes 載入", en="only `forward`, from bytes"
    ),
}
table(
    [
        [
            WAYS[how],
            *(f"{counts[end]} / 10" for end in (*MEANING.values(), "crashed")),
        ]
        for how, counts in ended.items()
    ],
    [
        T(zh="寫法", en="what was kept"),
        T(zh="正確", en="right"),
        T(zh="錯的值", en="wrong values"),
        "RuntimeError",
        T(zh="行程當掉", en="process crashed"),
    ],
)


def what_dropping_did(failed):
    """`failed`: how many of 10 processes failed with only `forward` kept."""
    if failed == 0:
        return T(
            zh="這次 10 個都沒出事，但那是運氣：被釋放的記憶體還沒有被別人用掉。",
            en="This time none of the 10 failed, which is luck: nobody had used the freed memory yet.",
        )
    return T(
        zh=f"從 bytes 載入、不留 `program`，10 個行程有 {failed} 個失敗：`forward` 讀到了已經釋放的記憶體。",
        en=f"Loaded from bytes and without `program`, {failed} of 10 processes failed: `forward` read memory that had been freed.",
    )


say(what_dropping_did(10 - ended["bytes"]["right"]))

# %% [markdown] lang="zh"
# 失敗的樣子不一定，要看那塊記憶體後來裝了什麼：可能是看不出原因的例外，也可能整個行程當掉。結論是**留著 `program`，或者
# 從路徑載入**；`PteRunner` 把 `program` 和 bytes 都留著。
#
# ## 小結
#
# - Q/DQ 圖 → `torch.export.export` → `to_edge_transform_and_lower`（partitioner 放在 list 裡）→ `to_executorch`。
# - 24 個 q、dq 在執行時只剩兩個 `Convert`，ETDump 的 kernel 清單就是證據。
# - 和 Q/DQ 圖最多差 1 LSB，大部分來自 bias 捨入成 int32。
# - shape、dtype 不合會被拒絕；channels_last 的輸入會默默給出錯的答案。
# - 動態 shape：範例的 batch 大於 1、`Dim` 寫 `max`、攤平用 `view(-1, C)`。
# - 留著 `program`，或者從路徑載入。

# %% [markdown] lang="en"
# What a failure looks like varies with what the memory holds by then: it may be an exception that doesn't tell why, or
# a crash of the whole process. So **keep `program`, or load from a path**; `PteRunner` keeps `program` and the bytes.
#
# ## Recap
#
# - Q/DQ graph → `torch.export.export` → `to_edge_transform_and_lower` (partitioners in a list) → `to_executorch`.
# - Of 24 q and dq, two `Convert`s are left at run time; ETDump's list of kernels proves it.
# - The result is at most 1 LSB from the Q/DQ graph, mostly because the bias is rounded to int32.
# - A wrong shape or dtype is refused; a channels_last input silently gives a wrong answer.
# - Dynamic shapes: an example of batch 2 or more, a `max` for `Dim`, `view(-1, C)` to flatten.
# - Keep `program`, or load from a path.

# %% [markdown] lang="zh"
# ## 試試看：讓 channels_last 成為正確的輸入
#
# 用 channels_last 的範例輸入重新匯出上面的 `pte`（Q/DQ 圖不變）。它對 channels_last 的輸入給出正確的答案嗎？對 NCHW 的
# 呢？ kernel 清單有什麼不同？

# %% [markdown] lang="en"
# ## Try it: make channels_last the right input
#
# Export the `pte` above again with a channels_last example (the Q/DQ graph stays). Does it give the right answer for a
# channels_last input? For NCHW? What changes in the list of kernels?

# %% tags=["solution"]
_, pte_nhwc = lower_to_xnnpack(quantized, (channels_last,))
run_nhwc = PteRunner(pte_nhwc)
assert torch.equal(run_nhwc(channels_last), from_x), "still wrong"
off = difference_in_lsb(run_nhwc(x), from_x, lsb).max().item()
assert off > 5, "NCHW is understood, too"

kernels = xnnpack_kernels(pte_nhwc, (channels_last,))
gone = Counter(ran["int8"]) - Counter(kernels)
print(f"NCHW is {off:.0f} LSB off; no longer run: {dict(gone)}")
assert [op(kernel) for kernel in gone.elements()] == ["Transpose"]

# %% [markdown] lang="zh" tags=["solution"]
# channels_last 對了，換成 NCHW 錯：匯出時的排列就是 `.pte` 的約定，runtime 不檢查。少掉的是開頭的 `Transpose`：XNNPACK
# 本來就用 NHWC 計算，不必再轉。

# %% [markdown] lang="en" tags=["solution"]
# Now channels_last is right and NCHW wrong: the layout at export is part of the `.pte`'s contract, and the runtime
# doesn't check. What is gone is the `Transpose` at the beginning: XNNPACK computes in NHWC anyway.

# %% [markdown] lang="zh"
# ## 接下來
#
# TinyConvNet 整個進了 delegate。op 不支援的時候圖會怎樣，在 [M08-3](3_unsupported_ops.py)；快了多少，在
# [M08-4](4_latency.py)。

# %% [markdown] lang="en"
# ## Next
#
# All of TinyConvNet went into the delegate. [M08-3](3_unsupported_ops.py) shows what becomes of a graph with
# unsupported ops, and [M08-4](4_latency.py) how much faster it is.
