# %% [markdown] lang="zh"
# # M05-2 | 逐層比較：誤差出現在圖的哪裡
#
# 上一頁量出量化後的模型差了多少（[M05-1](1_evaluate.py)），這一頁問差在哪裡。torchao 的 numeric debugger 在圖上每個 op 後面放
# 一個記錄器，讓 fp32 的圖和 Q/DQ 圖跑同一批圖片，再一對一對比較。工具只有三個函式，難的是選對參考圖，以及讀懂數字。
#
# **讀完你會知道**
#
# - 怎麼用三個函式，逐個 op 比較兩張圖
# - 參考圖該用哪一張；為什麼直接用 export 的圖，完好的 conv 看起來像壞掉了
# - 哪些用法會丟出例外，哪些只會悄悄給你空的或荒謬的結果
# - 一個 op 的 SQNR 說了什麼、沒說什麼

# %% [markdown] lang="en"
# # M05-2 | Layer by layer: where in the graph the error shows
#
# The previous page measured how much worse a quantized model is ([M05-1](1_evaluate.py)); this one asks where. torchao's
# numeric debugger puts a logger behind every op, runs the fp32 graph and the Q/DQ graph on the same images, and
# compares them pair by pair. It is just three functions. The hard part is to pick the right reference and to read the
# numbers.
#
# **What you will know**
#
# - How to compare two graphs op by op with three functions
# - Which graph must be the reference, and why the exported one makes perfectly good convolutions look broken
# - Which ways of using it raise an exception, and which quietly return nothing or nonsense
# - What the SQNR of an op tells, and what it doesn't

# %% [markdown] lang="zh"
# ## 先預測
#
# SQNR（[M05 概覽](0_overview.py)）是訊號與誤差的比，單位 dB：0 dB 表示誤差和訊號一樣大，誤差每減半就多 6 dB。
#
# 1. int8 模型的準確率和 fp32 一樣。拿 export 的圖當參考，第一個 conv 的 SQNR 大約是 30、10，還是 0 dB？
# 2. 參考圖來自同一個模型的**另一次** export。會出現錯誤訊息嗎？
# 3. 誤差一路累積。SQNR 會一層比一層低，到輸出最低嗎？
# 4. weight 從 8 位元減到 4 位元，每一格變寬 18 倍（25 dB）。第一個 conv 的 SQNR 會掉 25 dB 嗎？

# %% [markdown] lang="en"
# ## Predict first
#
# SQNR ([M05 overview](0_overview.py)) is the ratio of signal to error in dB: at 0 dB the error is as large as the
# signal, and every time the error halves, there are 6 dB more.
#
# 1. An int8 model is as accurate as fp32. With the exported graph as the reference, is the SQNR of its first
#    convolution about 30, 10, or 0 dB?
# 2. The reference comes from **another** export of the same model. Is there an error message?
# 3. Errors pile up on the way. Is SQNR lower from layer to layer, and lowest at the output?
# 4. When weights go from 8 bits to 4, a step becomes 18 times as wide (25 dB). Does the SQNR of the first convolution
#    drop by 25 dB?

# %% tags=["setup"]
import copy
import math

from common.data import calibration_batches, test_data
from common.env import quiet
from common.metrics import accuracy, sqnr_db
from common.models import trained_tinyconvnet
from common.pt2e import ptq
from common.quantizers import PTQQuantizer
from common.viz import T, graph, say, show, table

import matplotlib.pyplot as plt
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)

quiet()
aten = torch.ops.aten

# %% [markdown] lang="zh"
# ## 兩張圖，同一個 ExportedProgram
#
# 記錄器靠 node 的身世配對：每個 node 的 `meta["from_node"]` 記著它來自哪一個 ExportedProgram 的哪一個 node。所以要把
# `torch.export.export` 回傳的 program 留下來，參考圖和 Q/DQ 圖都從它的 `.module()` 開始。`ptq` 就是 M01 的 prepare、校準、
# convert；`PTQQuantizer` 的標註和 `XNNPACKQuantizer` 相同，只是快得多（[M01-3](../m01_first_ptq/3_quantization_config.py)）。

# %% [markdown] lang="en"
# ## Two graphs from one ExportedProgram
#
# Loggers are paired by ancestry: the `meta["from_node"]` of each node says which node of which ExportedProgram it comes
# from. So keep the program that `torch.export.export` returns, and let the reference and the Q/DQ graph both start at
# its `.module()`. `ptq` is prepare, calibrate and convert as in M01; `PTQQuantizer` annotates as `XNNPACKQuantizer`
# does, only much faster ([M01-3](../m01_first_ptq/3_quantization_config.py)).

# %%
model = trained_tinyconvnet()
images, labels = test_data()
x = images[:256]  # what the comparison runs on

size = torch.export.Dim("batch", min=1, max=4096)
example, shapes = (images[:2].clone(),), ({0: size},)
program = torch.export.export(model, example, dynamic_shapes=shapes)


def quantize(**switches):
    """A Q/DQ graph of `program`."""
    config = get_symmetric_quantization_config(**switches)
    quantizer = PTQQuantizer().set_global(config)
    return ptq(program.module(), quantizer, calibration_batches(256))


quantized = quantize(is_per_channel=True)
lost = accuracy(model, images, labels) - accuracy(quantized, images, labels)
assert abs(lost) < 0.01, f"int8 costs {lost:.1%} of accuracy"

# %% [markdown] lang="zh"
# ## 三個函式
#
# `prepare_for_propagation_comparison` 回傳一份**拷貝**，每個 op 後面多一個記錄器。兩份都跑過圖片之後，
# `extract_results_from_loggers` 取出記錄，`compare_results` 依身世配對，參考的在前、量化的在後。先用最順手的參考：export 出來的
# 圖。

# %% [markdown] lang="en"
# ## Three functions
#
# `prepare_for_propagation_comparison` returns a **copy** with a logger behind each op. Once both copies have seen the
# images, `extract_results_from_loggers` collects what was logged, and `compare_results` pairs it by ancestry: the
# reference comes first, then the quantized graph. To begin with, we take the handiest reference, the exported graph.

# %%
from torchao.quantization.pt2e import (
    compare_results,
    extract_results_from_loggers,
    prepare_for_propagation_comparison,
)

exported = program.module()
logged_exported = prepare_for_propagation_comparison(exported)
logged_quantized = prepare_for_propagation_comparison(quantized)
with torch.no_grad():
    logged_exported(x)
    logged_quantized(x)

against_exported = compare_results(
    extract_results_from_loggers(logged_exported),
    extract_results_from_loggers(logged_quantized),
)
raw_db = {  # one result for each forward pass, and we made one
    key.name: found.results[0].sqnr.item()
    for key, found in against_exported.items()
}
for name, db in raw_db.items():
    print(f"{name:9} {db:5.1f} dB")

# %%
convs = [name for name in raw_db if name.startswith("conv2d")]
others = [name for name in raw_db if name not in convs]
assert max(raw_db[name] for name in convs) < 6, "no convolution looks broken"
assert min(raw_db[name] for name in others) > 25, "an op behind looks broken"

# %% [markdown] lang="zh"
# ## 完好的層看起來壞了
#
# 四個 conv 的誤差和訊號差不多大，緊接在後的 relu 卻好得很。誤差不會到了下一個 op 就自己消失，所以有問題的是比較本身。prepare
# 把 BN 折進了 conv（[M04](../m04_batchnorm/0_overview.py)），所以同樣叫 `conv2d`，參考圖的是 BN **之前**的值，Q/DQ 圖的是 BN **之後**的值。把
# 參考圖的 `batch_norm` 拿來比就知道了。`torch.fx.Interpreter` 逐個 node 執行圖，可以留下每個輸出：

# %% [markdown] lang="en"
# ## Good layers that look broken
#
# The four convolutions have errors about as large as their signal, yet the ReLU right behind each is fine. An error
# doesn't mend itself one op later; the comparison is at fault. Prepare has folded BN into the convolution
# ([M04](../m04_batchnorm/0_overview.py)), so of two nodes called `conv2d` the reference's holds the value **before** BN
# and the Q/DQ graph's the value **after** it. We can tell by comparing with `batch_norm` instead.
# `torch.fx.Interpreter` executes a graph node by node and lets us keep every output:


# %%
def outputs_of(gm):
    """The output of every node of `gm` on `x`, by name."""
    kept = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, node):
            kept[node.name] = super().run_node(node)
            return kept[node.name]

    with torch.no_grad():
        Recorder(gm).run(x)
    return kept


in_exported, in_quantized = outputs_of(exported), outputs_of(quantized)
by_hand = sqnr_db(in_exported["batch_norm"], in_quantized["conv2d"])
assert by_hand > 25, f"{by_hand:.1f} dB: the first convolution is broken"
print(f"batch_norm of one, conv2d of the other: {by_hand:.1f} dB")

# %% [markdown] lang="zh"
# ## 正確的參考：折疊過 BN、沒有量化
#
# 需要一張只折疊、不量化的圖。折疊是 `prepare_pt2e` 做的，與 quantizer 無關，所以給它一個什麼都不標註的 quantizer 就好。
# `common.folding` 的 `FoldOnly` 正是這樣的 quantizer，`folded` 再替你確認折疊沒有改變輸出（[M04-1](../m04_batchnorm/1_ptq_folding.py)）。

# %% [markdown] lang="en"
# ## The right reference: BN folded, nothing quantized
#
# What we need is a graph that is folded but not quantized. Folding is `prepare_pt2e`'s own doing, whatever the
# quantizer, so all it takes is a quantizer that annotates nothing. `FoldOnly` in `common.folding` is one, and `folded`
# also makes sure that folding did not change the output ([M04-1](../m04_batchnorm/1_ptq_folding.py)).

# %%
from common.folding import folded

reference = folded(program.module(), (x,))  # prepare_pt2e(..., FoldOnly())
with_bn = reference.graph.find_nodes(
    op="call_function", target=aten.batch_norm.default
)
assert not with_bn, "BatchNorm is still in the reference"


def compare(reference, quantized, x):
    """The three functions in one."""
    logged = []
    for gm in (reference, quantized):
        with_loggers = prepare_for_propagation_comparison(gm)
        with torch.no_grad():
            with_loggers(x)
        logged.append(extract_results_from_loggers(with_loggers))
    return compare_results(*logged)


against_folded = compare(reference, quantized, x)
folded_db = {
    key.name: found.results[0].sqnr.item()
    for key, found in against_folded.items()
}
lowest = min(folded_db.values())
assert lowest > 25, f"a layer looks broken: {lowest:.1f} dB"
for name in others:
    moved = abs(folded_db[name] - raw_db[name])
    assert moved < 0.1, f"{name} depends on the reference"

# %% tags=["plot"]
table(
    [
        [
            f"`{key.name}`",
            f"`{found.ref_module_stack}`" if found.ref_module_stack else "–",
            f"`{found.actual_node_name}`",
            f"{raw_db[key.name]:.1f}",
            f"{folded_db[key.name]:.1f}",
        ]
        for key, found in against_folded.items()
    ],
    [
        T(zh="參考圖的 node", en="node of the reference"),
        T(zh="模組", en="module"),
        T(zh="Q/DQ 圖的 node", en="node of the Q/DQ graph"),
        T(zh="SQNR：export 的圖", en="SQNR: exported"),
        T(zh="SQNR：折疊的圖", en="SQNR: folded"),
    ],
    caption=T(
        zh="同一張 Q/DQ 圖對兩種參考圖的 SQNR，單位 dB。",
        en="The SQNR of one Q/DQ graph against two references, in dB.",
    ),
)

# %% [markdown] lang="zh"
# 換了參考，只有四個 conv 變了，其餘一模一樣。預測 1 的答案是大約 0 dB，而那個數字毫無意義。
#
# ## 用手驗一對
#
# 表上還有一件事：`relu` 配到的不是 Q/DQ 圖的 `relu`，而是後面的 `dequantize`。q 和 dq 的身世也是 `relu`，同一個身世以圖上最後一個
# 為準，所以這一列**包含**輸出的捨入；`conv2d` 和 `relu` 之間沒有 q、dq，那一列就不含。用 Interpreter 的輸出核對：

# %% [markdown] lang="en"
# With the other reference the four convolutions change, and nothing else does. The answer to prediction 1 is about 0 dB,
# and that number means nothing.
#
# ## One pair by hand
#
# The table shows something else: `relu` is not paired with the `relu` of the Q/DQ graph but with a `dequantize` behind
# it. q and dq descend from `relu` too, and among nodes of one origin the last in the graph counts. So this row
# **includes** the rounding of the output, while that of `conv2d` doesn't, since there is no q and dq between the two.
# We check it against what the Interpreter kept:

# %%
in_reference = outputs_of(reference)
pairs = {key.name: found for key, found in against_folded.items()}
for name in ("conv2d_1", "relu_1"):
    found = pairs[name]
    actual = in_quantized[found.actual_node_name]
    assert torch.equal(found.results[0].ref, in_reference[name])
    assert torch.equal(found.results[0].actual, actual), f"{name}: not paired"
    mine = sqnr_db(in_reference[name], actual)
    apart = abs(mine - folded_db[name])
    assert apart < 0.1, f"{name}: {apart:.2f} dB apart"

before_rounding = sqnr_db(in_reference["relu_1"], in_quantized["relu_1"])
assert before_rounding > folded_db["relu_1"], "rounding costs nothing"
print(f"relu_1: {before_rounding:.1f} dB, rounded {folded_db['relu_1']:.1f} dB")

# %% [markdown] lang="zh"
# 上面的核對容許 0.1 dB，因為兩邊的公式不同：torchao 的 `.sqnr` 把**量化後**的值當訊號（`compute_sqnr(actual, ref)`，torchao
# 0.18.0），我們的 `sqnr_db` 用參考當訊號（[M05 概覽](0_overview.py)的式 (3)）。層還健康時幾乎沒有差別；層壞了就差很多。比方
# 說，一層的輸出全部變成 0，或全部大了十倍（`QuantizationComparisonResult` 要從私有模組匯入）：

# %% [markdown] lang="en"
# The check allows for 0.1 dB because the formulas differ: torchao's `.sqnr` takes the **quantized** value for the
# signal (`compute_sqnr(actual, ref)`, torchao 0.18.0), our `sqnr_db` the reference (formula (3) of the
# [M05 overview](0_overview.py)). As long as a layer is well you can hardly tell; when it is broken, you can. Suppose all
# outputs of a layer become 0, or ten times too large (`QuantizationComparisonResult` lives in a private module):

# %%
from torchao.quantization.pt2e._numeric_debugger import (
    QuantizationComparisonResult,
)

ref = in_reference["relu_1"]
for what, factor in {"all zeros": 0, "ten times too large": 10}.items():
    result = QuantizationComparisonResult(actual=ref * factor, ref=ref)
    theirs = result.sqnr.item()
    ours = result.loss(lambda actual, ref: sqnr_db(ref, actual))
    print(f"{what}: torchao {theirs:.1f} dB, ours {ours:.1f} dB")
    worse, better = sorted((theirs, ours))
    assert better - worse > 15, "the two formulas agree"

# %% [markdown] lang="zh"
# 大了十倍的那一層，torchao 給的分數反而比較好看。`.loss(函式)` 讓你換成自己的公式。以下都用參考當訊號，包成
# `common.layerwise.sqnr_by_node`（本課程的，不是 torchao 的）；一對都配不到時，它會丟出例外。
#
# ## 畫在圖上
#
# 把每個 op 的 SQNR 寫進參考圖的框裡：

# %% [markdown] lang="en"
# The layer that is ten times too large gets the better mark from torchao. `.loss(function)` takes a formula of your
# own. From here on the reference is the signal, by `common.layerwise.sqnr_by_node` (of this course, not of torchao),
# which also raises an exception if nothing pairs.
#
# ## Drawn on the graph
#
# We write the SQNR of each op into its box in the reference:

# %%
from common.layerwise import sqnr_by_node

int8_db = sqnr_by_node(reference, quantized, (x,))
for name, db in int8_db.items():
    assert abs(db - folded_db[name]) < 0.1, f"{name}: {db:.1f} dB"

# %% tags=["plot"]
graph(
    reference,
    notes={name: f"{db:.1f} dB" for name, db in int8_db.items()},
    alt=T(
        zh="折疊過 BN 的 TinyConvNet，每個 op 的框裡寫著 SQNR：從 stem 的 conv 起略為下降，在殘差區塊的相加處附近最低，"
        "之後回升，在 mean 升得最多，最後是 linear。",
        en="TinyConvNet with BN folded and the SQNR written into the box of each op: from the stem's convolution it falls a little, "
        "is lowest around the addition of the residual block, and rises again, most of all at mean; linear comes last.",
    ),
    caption=T(
        zh="int8 per-channel 模型每個 op 的 SQNR，畫在參考圖上。",
        en="The SQNR of each op of the int8 per-channel model, drawn on the reference.",
    ),
)

# %% [markdown] lang="zh"
# 數字不是一路往下。`mean` 對 256 個像素取平均，而誤差有正有負，平均時抵消得比訊號多。相減就能驗證：

# %% [markdown] lang="en"
# The numbers don't keep falling. `mean` averages over 256 pixels, and errors of both signs cancel more than the signal
# does. We check by taking the difference:

# %%
signal = in_reference["relu_3"]
noise = in_quantized[pairs["relu_3"].actual_node_name] - signal


def power_kept_by_mean(values):
    averaged = values.mean((2, 3)).square().mean()
    return (averaged / values.square().mean()).item()


kept = {
    "signal": power_kept_by_mean(signal),
    "error": power_kept_by_mean(noise),
}
assert kept["error"] < kept["signal"] / 2, f"averaging did not help: {kept}"
assert int8_db["linear"] > int8_db["add"] + 3, "lowest at the output"
for name, share in kept.items():
    print(f"{share:.0%} of the power of the {name} is left after mean")

# %% [markdown] lang="zh"
# 這是預測 3 的答案：不會。SQNR 跟著每個 op 怎麼對待訊號與誤差而升降。
#
# ## 四種量化
#
# 再比 int8 與 4 位元的 weight（activation 都還是 8 位元），per-tensor 與 per-channel：

# %% [markdown] lang="en"
# That answers prediction 3: no. SQNR rises and falls with what each op does to signal and error.
#
# ## Four ways to quantize
#
# Next, int8 and 4-bit weights (activations keep their 8 bits), per tensor and per channel:

# %%
FOUR_BITS = {"weight_qmin": -7, "weight_qmax": 7}
variants = {
    "int8 per-channel": quantized,
    "int8 per-tensor": quantize(),
    "4-bit per-channel": quantize(is_per_channel=True, **FOUR_BITS),
    "4-bit per-tensor": quantize(**FOUR_BITS),
}
db = {name: sqnr_by_node(reference, gm, (x,)) for name, gm in variants.items()}
for bits in ("int8", "4-bit"):
    for name in convs:
        gain = db[f"{bits} per-channel"][name] - db[f"{bits} per-tensor"][name]
        assert gain > 1, f"{bits}, {name}: per-channel gains {gain:.1f} dB"
for name in convs:
    gain = db["int8 per-tensor"][name] - db["4-bit per-channel"][name]
    assert gain > 6, f"{name}: 8 bits gain {gain:.1f} dB over 4"

# %% tags=["plot"]
figure, axes = plt.subplots(figsize=(6.8, 3.4))
for (name, found), style in zip(
    db.items(), ("o-", "s--", "^-", "v--"), strict=True
):
    share = accuracy(variants[name], images, labels)
    axes.plot(found.values(), style, label=f"{name}, accuracy {share:.1%}")
axes.set_xticks(range(len(int8_db)), int8_db, rotation=40, ha="right")
axes.set(ylabel="SQNR (dB)", ylim=(0, 50))
axes.legend(ncols=2, loc="upper center", fontsize=8)
show(
    figure,
    alt=T(
        zh="橫軸是圖上的 op，縱軸是 SQNR，四條線。int8 per-channel 最高，int8 per-tensor 低幾 dB；"
        "4 位元 per-channel 低很多，4 位元 per-tensor 最低，只有幾 dB。四條線都在 mean 升高。",
        en="SQNR over the ops of the graph, four lines. int8 per-channel is on top and int8 per-tensor a few dB below it; 4-bit "
        "per-channel is far lower, and 4-bit per-tensor lowest with a few dB. All four rise at mean.",
    ),
    caption=T(
        zh="四種量化在每個 op 的 SQNR。圖例附上測試集的準確率。",
        en="The SQNR at each op for four ways to quantize; the legend gives the accuracy on the test set.",
    ),
)

# %% tags=["plot"]
drop = db["int8 per-channel"]["conv2d"] - db["4-bit per-channel"]["conv2d"]
finer = 20 * math.log10(127 / 7)
assert drop < finer - 3, f"{drop:.1f} dB: all of the error is in the weights"
say(
    T(
        zh=f"per-channel 的第一個 conv，從 8 位元到 4 位元掉了 {drop:.1f} dB，不到 weight 變粗的 {finer:.1f} dB。這是預測 4 的答案；原因在下一節。",
        en=f"With per-channel weights, the first convolution loses {drop:.1f} dB from 8 bits to 4, less than the {finer:.1f} dB by which its weights "
        "became coarser. That answers prediction 4; the next section says why.",
    )
)

# %% [markdown] lang="zh"
# ## 這一層造成的，還是上游傳下來的
#
# 「propagation comparison」讓量化後的值一路往下傳，所以一層的誤差有兩個來源：輸入帶來的，和自己的 weight 造成的。我們手上有兩張圖
# 每個 node 的輸出，可以分開算：只換輸入，或只換 weight。

# %% [markdown] lang="en"
# ## Made here, or handed down
#
# As the name propagation comparison says, quantized values travel on through the graph, so the error of a layer has two
# sources: what came in, and what its own weight adds. We hold the output of every node of both graphs, so we can tell
# them apart by replacing the input only, or the weight only.


# %%
def conv_arguments(gm):
    """[input, weight, bias, ...] of each convolution of `gm` on `x`."""
    kept = outputs_of(gm)

    def value(arg):
        return kept[arg.name] if isinstance(arg, torch.fx.Node) else arg

    found = gm.graph.find_nodes(op="call_function", target=aten.conv2d.default)
    return {node.name: [value(arg) for arg in node.args] for node in found}


fp32_arguments = conv_arguments(reference)


def split(gm):
    """SQNR (both, input only, weight only) of each convolution."""
    shares = {}
    for name, (x_q, w_q, *_) in conv_arguments(gm).items():
        x_, w, *rest = fp32_arguments[name]
        y = aten.conv2d(x_, w, *rest)
        changed = [(x_q, w_q), (x_q, w), (x_, w_q)]
        shares[name] = [sqnr_db(y, aten.conv2d(*xw, *rest)) for xw in changed]
    return shares


shares = {n: split(variants[f"{n} per-channel"]) for n in ("int8", "4-bit")}

# %%
for bits, found in shares.items():
    for name, (both, by_input, by_weight) in found.items():
        noise = 10 ** (-by_input / 10) + 10 ** (-by_weight / 10)
        total = -10 * math.log10(noise)
        assert abs(total - both) < 1, f"{bits}, {name}: the shares don't add up"

for name in convs:
    coarser = shares["int8"][name][2] - shares["4-bit"][name][2]
    assert abs(coarser - finer) < 3, (
        f"{name}: {coarser:.1f} dB, not {finer:.1f}"
    )
    both, by_input, by_weight = shares["int8"][name]
    assert by_weight > by_input + 3, f"{name}: int8 weights dominate"
_, by_input, by_weight = shares["4-bit"]["conv2d_3"]
assert by_weight > by_input + 6, "the last convolution makes its own error"

# %% tags=["plot"]
table(
    [
        [f"`{name}`", *(f"{v:.1f}" for n in shares for v in shares[n][name])]
        for name in convs
    ],
    [
        "conv",
        *(
            T(zh=f"{bits}：{part.zh}", en=f"{bits}: {part.en}")
            for bits in shares
            for part in (
                T(zh="合計", en="both"),
                T(zh="只換輸入", en="input only"),
                T(zh="只換 weight", en="weight only"),
            )
        ),
    ],
    caption=T(
        zh="per-channel 模型每個 conv 在輸出捨入之前的 SQNR（dB）：輸入與 weight 都換成量化後的值，以及只換其中一個。",
        en="SQNR of each convolution of the per-channel models before its output is rounded (dB): with quantized input and weight, and with one of them only.",
    ),
)

# %% [markdown] lang="zh"
# - 兩份誤差的功率相加，就是合計（相差不到 1 dB）；所以大的那一份說了算。
# - int8 的 weight 造成的誤差很少，合計裡主要是 activation 的 8 位元。換成 4 位元，weight 那一份確實掉了約 25 dB，但合計是從
#   activation 的那一份往下掉，所以掉得比較少。
# - 4 位元的最後一個 conv 合計很低，自己的 weight 卻還好得多：它的誤差是上游傳下來的。
#
# 所以 SQNR 低的層，是誤差**出現**的地方，不見得是**造成**的地方，更不一定是拉低準確率的地方。要知道修哪一層有用，得動手改了再
# 量，那是 [M05-3](3_sensitivity.py)。

# %% [markdown] lang="en"
# - The powers of the two errors add up to that of both (to within 1 dB), so the larger one decides.
# - int8 weights add little; what you see is mainly the 8 bits of the activations. With 4 bits the weights' share
#   does lose about 25 dB, but the total starts from that of the activations, so it loses less.
# - The last convolution at 4 bits has a low total, yet its own weight does much better: its error was handed down.
#
# So a layer of low SQNR is where the error **shows**, not necessarily where it is **made**, let alone what pulls
# accuracy down. Which layer is worth mending takes a change and a measurement: [M05-3](3_sensitivity.py).

# %% [markdown] lang="zh"
# ## 哪些失誤有訊息，哪些沒有
#
# 先看有訊息的。`generate_numeric_debug_handle` 出現在舊教學裡，torchao 0.18.0 的原始碼說它已經不再使用；這一頁沒有呼叫它，配對照
# 樣成功。第一則訊息說你傳的是 `type` 類別，不必細想：那不是你傳的東西。

# %% [markdown] lang="en"
# ## Which mistakes are reported, and which aren't
#
# First those that are. Older tutorials call `generate_numeric_debug_handle`, which by the source of torchao 0.18.0 is no
# longer used; this page never called it, and everything paired. And don't puzzle over `type` in the first message:
# it isn't the class of what you passed.

# %%
from torchao.quantization.pt2e import generate_numeric_debug_handle

attempts = [
    (generate_numeric_debug_handle, exported),
    (prepare_for_propagation_comparison, model),
    (prepare_for_propagation_comparison, program),
]
for function, argument in attempts:
    try:
        function(argument)
    except (AttributeError, ValueError) as error:
        print(f"{function.__name__}({type(argument).__name__}):")
        print(f"    {type(error).__name__}: {error}")
    else:
        raise AssertionError(f"{function.__name__} takes anything now")

# %% [markdown] lang="zh"
# 也就是說，模型本身和 ExportedProgram 都不行，要 `.module()` 之後的 GraphModule。接著是三個沒有訊息的：

# %% [markdown] lang="en"
# So neither the model nor an ExportedProgram will do; it takes a GraphModule, as `.module()` gives it. Now for three
# that go unreported:

# %%
other_program = torch.export.export(model, example, dynamic_shapes=shapes)
from_other_export = folded(other_program.module(), (x,))
assert torch.equal(from_other_export(x), reference(x)), "another model?"
no_pairs = compare(from_other_export, quantized, x)
assert len(no_pairs) == 0, f"{len(no_pairs)} pairs across two exports"

logged_reference = prepare_for_propagation_comparison(reference)
logged_quantized = prepare_for_propagation_comparison(quantized)
with torch.no_grad():
    logged_reference(images[:256])
    logged_quantized(images[256:512])  # other images
    logged_quantized(images[:256])  # and once more than the reference
mixed_up = compare_results(
    extract_results_from_loggers(logged_reference),
    extract_results_from_loggers(logged_quantized),
)
results = {key.name: found.results for key, found in mixed_up.items()}
assert len(results["conv2d"]) == 1, "unequal numbers of runs were noticed"
assert max(r[0].sqnr for r in results.values()) < 6, "other images go unseen"
print("pairs across two exports:", len(no_pairs))
print(f"conv2d on different images: {results['conv2d'][0].sqnr:.1f} dB")

# %% [markdown] lang="zh"
# | 失誤 | 結果 | 怎麼避免 |
# | --- | --- | --- |
# | 參考圖沒有折疊 BN | conv 的數字荒謬，其餘正常 | 用 `folded` |
# | 兩張圖來自兩次 export，即使輸出逐位元相同 | 空的結果 | 留住同一個 program；檢查結果不是空的 |
# | 兩邊的圖片不同 | 每一層都在 0 dB 上下 | 兩邊用同一個變數 |
# | 兩邊執行的次數不同 | 多的被丟掉，照順序配對 | 每次比較都重新放記錄器 |
#
# 第二列就是預測 2 的答案：沒有任何訊息。另外，記錄器把每次執行、每個 op 的輸出全部留在記憶體裡；一兩批圖片就夠了，不要拿整個測
# 試集去跑。

# %% [markdown] lang="en"
# | Mistake | What comes out | How to avoid it |
# | --- | --- | --- |
# | BN isn't folded in the reference | nonsense for convolutions, the rest is right | use `folded` |
# | the graphs come from two exports, even if their outputs are equal bit for bit | an empty result | keep one program; check that the result isn't empty |
# | the two sides see different images | around 0 dB at every layer | one variable for both |
# | the two sides run a different number of times | pairs in order, what is left over is dropped | make new loggers for each comparison |
#
# The second row answers prediction 2: there is no message at all. Besides, loggers keep the output of every op of every
# run in memory; a batch or two is enough, so don't run the whole test set.

# %% [markdown] lang="zh"
# ## 小結
#
# - 三個函式：放記錄器、取出、比較；兩張圖必須來自同一個 ExportedProgram。
# - 參考圖要折疊過 BN、沒有量化，否則完好的 conv 看起來像壞掉了。
# - 有 q、dq 的 op，比的是 dq 之後的值，含捨入。
# - SQNR 會升會降；低的地方是誤差出現的地方，拆成「輸入」與「weight」才知道是不是這一層造成的。
# - 另一次 export、不同的圖片、不同的執行次數，都沒有錯誤訊息。

# %% [markdown] lang="en"
# ## Recap
#
# - Three functions insert loggers, collect, and compare; both graphs must come from one ExportedProgram.
# - The reference must be folded but not quantized, or good convolutions look broken.
# - Where an op has q and dq, the value behind dq is compared, rounding included.
# - SQNR rises and falls. Where it is low the error shows; only a split into input and weight tells whether the layer
#   made it.
# - Another export, different images and a different number of runs raise no error.

# %% [markdown] lang="zh"
# ## 試試看：找出被動過手腳的 dq
#
# 下面這張圖裡，有一個 dequantize 的 scale 被乘了 1.5。先用 `sqnr_by_node` 找出它在哪個 op 之後，再把它修好。

# %% [markdown] lang="en"
# ## Try it: find the dq that was tampered with
#
# In the graph below, the scale of one dequantize was multiplied by 1.5. Find out with `sqnr_by_node`
# which op it follows, then mend it.

# %%
damaged = copy.deepcopy(quantized)
all_dq = damaged.graph.find_nodes(
    op="call_function",
    target=torch.ops.quantized_decomposed.dequantize_per_tensor.default,
)
dq = all_dq[5]  # pretend not to know which
dq.args = (dq.args[0], dq.args[1] * 1.5, *dq.args[2:])
damaged.recompile()
print(f"accuracy {accuracy(damaged, images, labels):.1%}")

# %% tags=["solution"]
now = sqnr_by_node(reference, damaged, (x,))
fallen = {name: int8_db[name] - now[name] for name in now}
suspect = next(name for name, fell in fallen.items() if fell > 6)
inherited = list(fallen.values())[list(fallen).index(suspect) + 1 :]
assert min(inherited) > 3, f"an op behind did not fall: {fallen}"

for dq in damaged.graph.find_nodes(
    op="call_function",
    target=torch.ops.quantized_decomposed.dequantize_per_tensor.default,
):
    q = dq.args[0]
    if dq.args[1] != q.args[1]:
        assert q.args[0].name == suspect, f"it is behind {q.args[0]}"
        dq.args = (q, *q.args[1:])
damaged.recompile()

assert sqnr_by_node(reference, damaged, (x,)) == int8_db, "not mended yet"
print(f"first fall: {fallen[suspect]:.1f} dB at {suspect}")

# %% [markdown] lang="zh" tags=["solution"]
# 由上往下看，第一個掉下來的 op 就是。後面的也都掉了，但那是傳下來的。q 和 dq 成對，scale 應該相同，所以修的時候抄 q 的就好。

# %% [markdown] lang="en" tags=["solution"]
# Going down the graph, it is the first op whose SQNR fell. Those after it fell as well, but only because they inherit.
# q and dq are a pair with one scale, so copying that of q mends it.

# %% [markdown] lang="zh"
# ## 接下來
#
# [M05-3](3_sensitivity.py) 換一個問法：把一層改回去，準確率回來多少？回到 [M05 概覽](0_overview.py)。
#
# 原始碼：torchao 0.18.0，`torchao/quantization/pt2e/_numeric_debugger.py`。

# %% [markdown] lang="en"
# ## Next
#
# [M05-3](3_sensitivity.py) asks another question: when one layer is put back, how much accuracy comes back with it? Back
# to the [M05 overview](0_overview.py).
#
# Source: `torchao/quantization/pt2e/_numeric_debugger.py` of torchao 0.18.0.
