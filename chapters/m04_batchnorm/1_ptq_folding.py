# %% [markdown] lang="zh"
# # M04-1 | PTQ 的折疊：prepare_pt2e 先做的事
#
# [M04-0](0_overview.py) 推導了折疊的公式：conv 的 weight 乘上 BN（BatchNorm）的倍數
# $a_c = \gamma_c/\sqrt{\sigma_c^2+\varepsilon}$，位移 $d_c$ 併進 bias。這一頁看 PTQ 的 `prepare_pt2e` 什麼時候折、對你的圖
# 做了什麼、weight 的範圍因此怎麼變；再看它折不到的，以及**折錯了也不出聲**的情形，最後用幾行程式守住。
#
# **讀完你會知道**
#
# - 折疊在 quantizer 標註之前，改的是你交給它的那張圖
# - 折疊為什麼會把 channel 的範圍拉開，per-channel 為什麼不受影響
# - 哪些 BN 會折、哪些留在圖上、哪些會出錯
# - 四種折錯的情形，怎麼發現，怎麼改模型

# %% [markdown] lang="en"
# # M04-1 | Folding in PTQ: what prepare_pt2e does first
#
# [M04-0](0_overview.py) derived the formula: the convolution's weight is multiplied by the factor of BN (batch
# normalization), $a_c = \gamma_c/\sqrt{\sigma_c^2+\varepsilon}$, and the offset $d_c$ goes into the bias. This page
# looks at when `prepare_pt2e` folds in PTQ, what it does to your graph, and what that makes of the weights' ranges; then
# at what it can't fold, at what it **folds wrong without a word**, and at a guard of a few lines.
#
# **What you will know**
#
# - That folding comes before the quantizer annotates, and edits the very graph you pass in
# - Why folding pulls the channels' ranges apart, and why per-channel doesn't mind
# - Which BNs are folded, which stay in the graph, and which raise an error
# - Four cases of wrong folding, how to notice them, and how to change the model

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. TinyConvNet 匯出的圖有 45 個 node，`prepare_pt2e` 會插入 14 個 observer。插完之後是幾個 node？
# 2. 折疊之後，同一個 weight 各個 channel 的範圍會更接近，還是差更多？
# 3. conv 的輸出除了給 BN，還直接加到後面去。`prepare_pt2e` 會丟出例外、警告、不折，還是照折？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. The exported graph of TinyConvNet has 45 nodes, and `prepare_pt2e` inserts 14 observers. How many nodes are there
#    then?
# 2. After folding, are the ranges of a weight's channels more alike or further apart?
# 3. The output of a convolution goes into BN and is also added to something later. Does `prepare_pt2e` raise, warn, leave
#    this BN alone, or fold it all the same?

# %% tags=["setup"]
import copy
import textwrap
import warnings

from common.data import calibration_batches, test_data
from common.env import quiet
from common.models import trained_tinyconvnet
from common.quantizers import PTQQuantizer
from common.viz import T, graph, say, show, table

import matplotlib.pyplot as plt
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

quiet()

BATCH_NORM = torch.ops.aten.batch_norm.default


def batch_norms(gm):
    """The BN nodes of a graph."""
    return gm.graph.find_nodes(op="call_function", target=BATCH_NORM)


# %% [markdown] lang="zh"
# ## 什麼時候折：在問 quantizer 之前
#
# 讓 quantizer 在標註時記下它看到的 op，就知道輪到它時 BN 還在不在。`PTQQuantizer` 是本課程的，標註和 `XNNPACKQuantizer` 一
# 樣，只是省下 QAT 才用得到的搜尋。

# %% [markdown] lang="en"
# ## When: before the quantizer is asked
#
# If the quantizer notes which ops it sees when it annotates, we know whether BN is still there by then. `PTQQuantizer`
# is this course's; it writes the annotations of `XNNPACKQuantizer` and skips a search that only QAT needs.


# %%
class NotesWhatItSees(PTQQuantizer):
    def annotate(self, gm):
        self.seen = [node.target for node in gm.graph.nodes]
        return super().annotate(gm)


def export(model, example):
    """The graph of `model`, for any batch size."""
    batch = torch.export.Dim("batch", min=1, max=4096)
    shapes = ({0: batch},)
    program = torch.export.export(model, (example,), dynamic_shapes=shapes)
    return program.module()


model = trained_tinyconvnet()
images, labels = test_data()
exported = export(model, images[:2])
after_export = copy.deepcopy(exported)  # to compare: prepare edits it
quantizer = NotesWhatItSees()
quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True))
prepared = prepare_pt2e(exported, quantizer)

# %%
assert len(batch_norms(after_export)) == 4
assert torch.ops.aten.conv2d.default in quantizer.seen
assert BATCH_NORM not in quantizer.seen, "the quantizer saw BN"

# %% [markdown] lang="zh"
# quantizer 看到的圖已經沒有 BN 了。所以折疊和 quantizer 無關：標註什麼、有沒有標註，都一樣折。只想要折疊的話，給它一個什麼
# 都不標註的 quantizer，也就是 M04-0 的 `AnnotateNothing`，在本課程的 `common.folding` 裡叫 `FoldOnly`。數一數三張圖的 node：

# %% [markdown] lang="en"
# The graph that the quantizer saw had no BN any more. So folding has nothing to do with the quantizer: whatever it
# annotates, if anything, BN is folded. If folding is all you want, pass a quantizer that annotates nothing. That is
# `AnnotateNothing` of M04-0; in this course's `common.folding` its name is `FoldOnly`. Let us count the nodes of all three
# graphs:

# %%
from common.folding import FoldOnly

only_folded = prepare_pt2e(export(model, images[:2]), FoldOnly())
stages = {"export": after_export, "fold": only_folded, "prepare": prepared}
totals = {stage: len(gm.graph.nodes) for stage, gm in stages.items()}
of_each_bn = 1 + 5  # batch_norm, and the 5 parameters and buffers it reads
assert totals["fold"] == totals["export"] - 4 * of_each_bn + 4, totals
assert totals["prepare"] == totals["fold"] + 14, totals
assert (totals["export"], totals["prepare"]) == (45, 39), totals

# %% tags=["plot"]
block = ["relu", "conv2d_1", "relu_1", "conv2d_2", "add"]
graph(
    [(T(zh="export 之後", en="After export"), after_export)],
    only=[*block, "batch_norm_1", "batch_norm_2"],
    alt=T(
        zh="relu 分兩路，一路經 conv2d、batch_norm、relu、conv2d、batch_norm 進 add，一路直接進 add。conv2d 的框裡只有 weight。",
        en="relu forks, one way through conv2d, batch_norm, relu, conv2d and batch_norm into add, the other straight into add. "
        "A conv2d holds nothing but its weight.",
    ),
)
graph(
    [(T(zh="只折疊", en="Only folded"), only_folded)],
    only=block,
    alt=T(
        zh="relu 分兩路，一路經 conv2d、relu、conv2d 進 add，一路直接進 add。兩個 batch_norm 不見了，conv2d 的框裡多了 bias。",
        en="relu forks, one way through conv2d, relu and conv2d into add, the other straight into add. Both batch_norm are gone, "
        "and each conv2d holds a bias as well.",
    ),
    caption=T(
        zh="TinyConvNet 的殘差區塊，折疊之前與之後（沒有 observer）。",
        en="The residual block of TinyConvNet before and after folding (no observers).",
    ),
)

# %% [markdown] lang="zh"
# 預測 1 的答案是 39：每個 BN 帶走 6 個 node（自己、$\gamma$、$\beta$、`running_mean`、`running_var`、計數用的
# `num_batches_tracked`），每個 conv 多一個 bias，再加 14 個 observer。
#
# `prepare_pt2e` 改的是交給它的那張圖，之後請只用 `prepared`；要留原樣，就像上面那樣先 `copy.deepcopy`。模型本身不會動：折疊
# 替圖換上**新的** weight，不是就地乘。

# %% [markdown] lang="en"
# The answer to prediction 1 is 39: each BN takes 6 nodes along (itself, $\gamma$, $\beta$, `running_mean`, `running_var`
# and the counter `num_batches_tracked`), each convolution gains a bias, and there are 14 observers.
#
# `prepare_pt2e` edits the graph you pass in, so from here on use `prepared` only; to keep the original, make a
# `copy.deepcopy` first, as above. The model itself is left alone: folding gives the graph a **new** weight instead of
# multiplying in place.

# %%
assert prepared.graph is exported.graph, "prepare_pt2e made a new graph"

before, after = after_export.state_dict(), prepared.state_dict()
for name, value in model.state_dict().items():
    assert torch.equal(before[name], value), f"the model's {name} changed"
layers = ["stem_conv", "block.conv1", "block.conv2", "head_conv"]
biases = {f"{layer}.weight_bias" for layer in layers}
assert biases <= after.keys() - before.keys(), after.keys()
assert not any("bn" in name for name in after), "prepared still holds BN"

# %% [markdown] lang="zh"
# ## 折疊之後的範圍
#
# 每個 channel 的 weight 都乘了自己的 $a_c$，所以範圍也跟著變。看 stem 的 16 個 channel：

# %% [markdown] lang="en"
# ## Ranges after folding
#
# The weight of each channel is multiplied by an $a_c$ of its own, and its range with it. These are the 16 channels of
# the stem:


# %%
def channel_ranges(weight):
    """Largest |w| of each output channel."""
    return weight.detach().abs().amax(dim=(1, 2, 3))


weights = {  # layer -> (before folding, after)
    layer: (before[f"{layer}.weight"], after[f"{layer}.weight"])
    for layer in layers
}
ratio = {}  # layer -> widest channel / narrowest, before and after
for layer, pair in weights.items():
    ranges = [channel_ranges(weight) for weight in pair]
    ratio[layer] = [(r.max() / r.min()).item() for r in ranges]
old, new = (channel_ranges(weight) for weight in weights["stem_conv"])
bn = model.stem_bn
a = (bn.weight / torch.sqrt(bn.running_var + bn.eps)).detach()
assert torch.allclose(new, old * a.abs(), rtol=1e-5), "not the factor of BN"
assert ratio["stem_conv"][1] > 5 * ratio["stem_conv"][0], ratio

# %% tags=["plot"]
order = new.argsort(descending=True)
figure, axes = plt.subplots(1, 2, sharey=True, figsize=(7, 3))
for ax, ranges, title, color, hatch in (
    (axes[0], old, "before folding", "C0", None),
    (axes[1], new, "after folding", "C1", "//"),
):
    ax.bar(range(len(order)), ranges[order], color=color, hatch=hatch)
    ax.set(title=title, yscale="log", xlabel="output channel")
    ax.set_xticks([])
axes[0].set_ylabel("max |w| of a channel")
show(
    figure,
    alt=T(
        zh="兩張長條圖，對數縱軸，channel 順序相同。左圖折疊之前，16 根長條幾乎一樣高；右圖折疊之後，由高到低差了數十倍。",
        en="Two bar charts with a logarithmic axis and the channels in the same order. On the left, before folding, all 16 bars are "
        "about equally tall; on the right, after folding, the first is dozens of times taller than the last.",
    ),
    caption=T(
        zh="stem weight 各個 channel 的範圍。兩圖的 channel 順序相同，依折疊後的大小排列。",
        en="The range of each channel of the stem's weight. Both charts have the same order, by size after folding.",
    ),
)
say(
    T(
        zh=f"stem 最寬與最窄的 channel，折疊前差 {ratio['stem_conv'][0]:.1f} 倍，折疊後差 {ratio['stem_conv'][1]:.0f} 倍；"
        f"BN 的倍數 $a_c$ 從 {a.abs().min():.2f} 到 {a.abs().max():.1f}。",
        en=f"Before folding, the widest channel of the stem is {ratio['stem_conv'][0]:.1f} times as wide as the narrowest; after folding, "
        f"{ratio['stem_conv'][1]:.0f} times. BN's factors $a_c$ go from {a.abs().min():.2f} to {a.abs().max():.1f}.",
    )
)

# %% [markdown] lang="zh"
# 這是預測 2 的答案，至少在 stem 是這樣：輸出變異數小的 channel，BN 用大的倍數把它放大，折疊就把這個倍數搬進了 weight。
# per-tensor 的 scale 由最寬的 channel 決定，窄的 channel 於是更粗。per-channel 呢？一個 channel 的 weight 乘 $a_c$，它的
# scale 也乘 $a_c$，除出來的**整數**不變：
#
# $$\mathrm{round}\!\left(\frac{a_c W_c}{a_c s_c}\right) = \mathrm{round}\!\left(\frac{W_c}{s_c}\right) \tag{1}$$
#
# （$a_c$ 是負的就差一個正負號。）用四層 conv 驗算，並比較量化的相對誤差：

# %% [markdown] lang="en"
# That answers prediction 2, for the stem at any rate: where the output of a channel varies little, BN enlarges it by a
# large factor, and folding moves that factor into the weight. A per-tensor scale is set by the widest channel, so the
# narrow ones become coarser still. And per-channel? Multiply the weight of a channel by $a_c$, and its scale is
# multiplied by $a_c$, too. The **integers** stay the same:
#
# $$\mathrm{round}\!\left(\frac{a_c W_c}{a_c s_c}\right) = \mathrm{round}\!\left(\frac{W_c}{s_c}\right) \tag{1}$$
#
# (If $a_c$ is negative, they change sign.) We check this on all four convolutions and compare the relative errors of
# quantization:


# %%
def to_integers(weight, per_channel):
    """(int8 values as floats, scale), symmetric, from -127 to 127."""
    dims = (1, 2, 3) if per_channel else (0, 1, 2, 3)
    scale = weight.abs().amax(dim=dims, keepdim=True) / 127
    return (weight / scale).round(), scale


def error(weight, per_channel):
    """Relative error of the int8 weight, ‖ŵ − w‖ / ‖w‖."""
    q, scale = to_integers(weight, per_channel)
    return ((q * scale - weight).norm() / weight.norm()).item()


errors = {}  # (layer, per channel?) -> (before, after)
for layer, pair in weights.items():
    old_q, new_q = (to_integers(w, per_channel=True)[0].abs() for w in pair)
    changed = (old_q != new_q).float().mean()
    assert changed < 0.01, f"{layer}: other integers, {changed:.1%} of them"
    for per_channel in (False, True):
        errors[layer, per_channel] = [error(w, per_channel) for w in pair]
grew = {key: after / before for key, (before, after) in errors.items()}
assert grew["stem_conv", False] > 1.3, "per-tensor is as good as before"
assert all(grew[layer, True] < 1.2 for layer in layers), grew

# %% tags=["plot"]
table(
    [
        [
            f"`{layer}`",
            " → ".join(f"{r:.1f}×" for r in ratio[layer]),
            " → ".join(f"{e:.2%}" for e in errors[layer, False]),
            " → ".join(f"{e:.2%}" for e in errors[layer, True]),
        ]
        for layer in layers
    ],
    [
        "weight",
        T(zh="最寬／最窄", en="widest / narrowest"),
        T(zh="per-tensor 誤差", en="per-tensor error"),
        T(zh="per-channel 誤差", en="per-channel error"),
    ],
    caption=T(
        zh="折疊前 → 折疊後：channel 範圍之比，以及 int8 weight 的相對誤差 ‖ŵ − w‖ / ‖w‖。",
        en="Before folding → after: ratio of the channels' ranges, and relative error of the int8 weight, ‖ŵ − w‖ / ‖w‖.",
    ),
)

# %% [markdown] lang="zh"
# per-channel 的整數幾乎一個不變（變的是剛好落在兩格中間、捨入不同的），誤差也就幾乎一樣。PTQ 不會量化折疊前的 weight，列出
# 來只是為了看 BN 帶來多少。[M01-3](../m01_first_ptq/3_quantization_config.py) 說折疊可能把範圍拉開，指的就是這個：**BN 折疊
# 是 weight 需要 per-channel 的一大理由**。

# %% [markdown] lang="en"
# Per channel, hardly an integer changes (those that do lie right between two steps and round the other way), so the error
# is practically the same. PTQ never quantizes the weight before folding; it is listed to see how much BN adds. This is
# what [M01-3](../m01_first_ptq/3_quantization_config.py) meant when it said that folding may pull ranges apart: **BN
# folding is one of the main reasons why weights need per-channel scales**.

# %% [markdown] lang="zh"
# ## 折得到的，折不到的
#
# `prepare_pt2e` 認的樣式很單純：BN 的輸入**直接**是 conv 或 linear（torchao 0.18.0，`pt2e/utils.py` 的 `_fuse_conv_bn_`、
# `_fuse_linear_bn_`）。下面十四種排法，各匯出、折疊、和模型比一次。剛建立的 BN 平均是 0、變異數是 1，幾乎什麼都不做，折錯了也
# 看不出來，所以先給它像樣的統計量。

# %% [markdown] lang="en"
# ## What is folded and what isn't
#
# `prepare_pt2e` looks for a simple pattern: a BN whose input is **directly** a convolution or a linear layer (torchao
# 0.18.0, `_fuse_conv_bn_` and `_fuse_linear_bn_` in `pt2e/utils.py`). We export and fold each of fourteen arrangements
# and compare with the model. A new BN has mean 0 and variance 1 and does next to nothing, so that wrong folding wouldn't
# show; ours get statistics that matter.


# %% tags=["setup"]
def lively(bn):
    """The BN, with statistics and parameters that change something."""
    for values in (bn.running_var, bn.weight):
        if values is not None:
            nn.init.uniform_(values, 0.5, 2.0)
    for values in (bn.running_mean, bn.bias):
        if values is not None:
            nn.init.uniform_(values, -1.0, 1.0)
    return bn


def bn2d(channels=8, **options):
    return lively(nn.BatchNorm2d(channels, **options))


torch.manual_seed(0)
x2d, x1d = torch.randn(4, 4, 12, 12), torch.randn(4, 4, 12)
row = torch.randn(4, 12)
arrangements = {
    "Conv2d → BN": (x2d, nn.Conv2d(4, 8, 3), bn2d()),
    "Conv2d(bias=False) → BN": (x2d, nn.Conv2d(4, 8, 3, bias=False), bn2d()),
    "Conv2d → BN(affine=False)": (x2d, nn.Conv2d(4, 8, 3), bn2d(affine=False)),
    "Conv2d → BN(eps=0.1)": (x2d, nn.Conv2d(4, 8, 3), bn2d(eps=0.1)),
    "Conv2d(groups=4) → BN": (x2d, nn.Conv2d(4, 8, 3, groups=4), bn2d()),
    "Conv1d → BN": (x1d, nn.Conv1d(4, 8, 3), lively(nn.BatchNorm1d(8))),
    "ConvTranspose2d → BN": (x2d, nn.ConvTranspose2d(4, 8, 3), bn2d()),
    "Linear → BN, (N, C)": (row, nn.Linear(12, 8), lively(nn.BatchNorm1d(8))),
    "Linear → BN, (N, C, L)": (
        x1d,
        nn.Linear(12, 8),
        lively(nn.BatchNorm1d(4)),
    ),
    "Conv2d → ReLU → BN": (x2d, nn.Conv2d(4, 8, 3), nn.ReLU(), bn2d()),
    "Conv2d → Dropout → BN": (x2d, nn.Conv2d(4, 8, 3), nn.Dropout(), bn2d()),
    "BN → Conv2d": (x2d, bn2d(4), nn.Conv2d(4, 8, 3)),
    "ConvTranspose2d(groups=2) → BN": (
        x2d,
        nn.ConvTranspose2d(4, 8, 3, groups=2),
        bn2d(),
    ),
    "Conv2d → BN(track_running_stats=False)": (
        x2d,
        nn.Conv2d(4, 8, 3),
        bn2d(track_running_stats=False),
    ),
}


# %%
def relative_error(found, expected):
    """The largest difference, relative to the largest expected value."""
    return ((found - expected).abs().max() / expected.abs().max()).item()


def fold(model, x):
    """(graph with BN folded, its error, what was said or raised)."""
    exported = export(model, x)
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        try:
            folded = prepare_pt2e(exported, FoldOnly())
        except Exception as error:
            first_line = str(error).splitlines()[0]
            return None, None, f"{type(error).__name__}: {first_line}"
        wrong = relative_error(folded(x), model(x))
    said = [f"{w.category.__name__}: {w.message}" for w in caught]
    return folded, wrong, "; ".join(said)


results = {}
for name, (x, *modules) in arrangements.items():
    results[name] = fold(nn.Sequential(*modules).eval(), x)

ROUNDING = 1e-5  # M04-0: far above rounding, far below half an int8 step
outcome = {}
for name, (folded, wrong, _) in results.items():
    if folded is None:
        outcome[name] = "raises"
        continue
    assert wrong < ROUNDING, f"{name} is wrong by {wrong:.1e}"
    outcome[name] = "stays" if batch_norms(folded) else "folded"
names = list(arrangements)
assert all(outcome[name] == "folded" for name in names[:8]), outcome
assert all(outcome[name] == "stays" for name in names[8:12]), outcome
assert all(outcome[name] == "raises" for name in names[12:]), outcome

# %% tags=["plot"]
OUTCOMES = {
    "folded": T(zh="折疊", en="folded"),
    "stays": T(zh="留在圖上", en="stays in the graph"),
    "raises": T(zh="丟出例外", en="raises"),
}
table(
    [
        [
            f"`{name}`",
            OUTCOMES[outcome[name]],
            "–" if wrong is None else f"{wrong:.0e}" if wrong else "0",
        ]
        for name, (_, wrong, _) in results.items()
    ],
    [
        T(zh="eval 模式的模型", en="model in eval mode"),
        "BN",
        T(zh="誤差", en="error"),
    ],
    caption=T(
        zh="誤差是和模型輸出的最大差，除以輸出的最大值。",
        en="The error is the largest difference to the model's output, divided by the output's largest value.",
    ),
)

# %%
for name, (_, _, message) in results.items():
    if message:
        print(f"{name}\n{textwrap.indent(textwrap.fill(message, 76), '  ')}")

# %% [markdown] lang="zh"
# 前八種都折對了。中間四種留在圖上，結果也對：其中三維的 linear 有警告說明原因，其他三種不出聲。最後兩種根本 prepare 不了，訊
# 息也看不出和 BN 有關：有 `groups` 的 `ConvTranspose2d`，是 weight 的 channel 排法不同；`track_running_stats=False` 的 BN
# 推論時也用 batch 統計量，沒有常數可折。兩者都要在匯出之前改模型。
#
# 留在圖上的 BN 沒有 quantizer 會標註，就成了一段 fp32：

# %% [markdown] lang="en"
# The first eight are folded, and right. The four in the middle stay in the graph, which is right as well: for the 3-D
# linear a warning says why, the other three go without a word. The last two can't even be prepared, with messages that
# don't hint at BN: a `ConvTranspose2d` with `groups` arranges the channels of its weight in another way, and a BN with
# `track_running_stats=False` uses batch statistics at inference, too, which leaves no constants to fold. For both, change
# the model before export.
#
# A BN that stays isn't annotated by the quantizer, so it becomes a stretch of fp32:

# %%
from common.pt2e import op_coverage

x, *modules = arrangements["Conv2d → ReLU → BN"]
gm = export(nn.Sequential(*modules).eval(), x)
quantizer = PTQQuantizer().set_global(get_symmetric_quantization_config())
covered = {
    r.op: r.is_quantized for r in op_coverage(prepare_pt2e(gm, quantizer))
}
assert covered == {"conv2d": True, "relu": True, "batch_norm": False}, covered

# %% [markdown] lang="zh"
# ## 不出聲的錯
#
# `_fuse_conv_bn_` 找到樣式就折，沒有檢查 conv 的輸出或 weight **還有沒有別人在用**。每種錯都寫出三件事：模型的本意、折疊後其
# 實算了什麼、怎麼改。

# %% [markdown] lang="en"
# ## Wrong without a word
#
# Where it finds the pattern, `_fuse_conv_bn_` folds; it doesn't check **whether anything else uses** the convolution's
# output or its weight. For each of the mistakes we write down three things: what the model means, what it really computes
# once folded, and how to change it.

# %%
from torch.nn.utils.fusion import fuse_conv_bn_eval

mistakes = {  # name -> (meant, computed after folding, mended)
    "second user": (
        lambda m, x: m.bn(y := m.conv(x)) + y,
        lambda m, x: m.bn(m.conv(x)) + m.bn(m.conv(x)),
        lambda m, x: m.bn(m.conv(x)) + m.copy(x),
    ),
    "two BNs": (
        lambda m, x: m.bn(y := m.conv(x)) + m.other(y),
        lambda m, x: m.bn(m.conv(x)) + m.bn(m.conv(x)),
        lambda m, x: m.bn(m.conv(x)) + m.other(m.copy(x)),
    ),
    "called twice": (
        lambda m, x: m.bn(m.conv(x)) + m.other(m.conv(-x)),
        lambda m, x: m.bn(m.conv(x)) + m.bn(m.conv(-x)),
        lambda m, x: m.bn(m.conv(x)) + m.other(m.copy(-x)),
    ),
    "two BNs in a row": (
        lambda m, x: m.other(m.bn(m.conv(x))),
        lambda m, x: m.bn(m.conv(x)),
        lambda m, x: m.other(m.fused(x)),
    ),
}


class Reusing(nn.Module):
    """One convolution and two BNs, put together by `how(self, x)`."""

    def __init__(self, how):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.bn, self.other = nn.Conv2d(4, 8, 3), bn2d(), bn2d()
        self.copy = copy.deepcopy(self.conv)  # a weight of its own
        self.eval()
        self.fused = fuse_conv_bn_eval(self.conv, self.bn)
        self.how = how

    def forward(self, x):
        return self.how(self, x)


# %%
silent = {}  # name -> error of the folded graph
for name, (meant, computed, _) in mistakes.items():
    folded, wrong, message = fold(Reusing(meant), x2d)
    assert not message, f"{name}: no longer silent: {message}"
    assert not batch_norms(folded), f"{name}: a BN stays"
    assert wrong > 0.1, f"{name}: folded right, {wrong:.1e}"
    with torch.no_grad():
        explained = relative_error(folded(x2d), Reusing(computed)(x2d))
    assert explained < ROUNDING, f"{name} computes something else"
    silent[name] = wrong

# one convolution called twice is fine as long as BN is the same
same_bn = Reusing(lambda m, x: m.bn(m.conv(x)) + m.bn(m.conv(-x)))
assert fold(same_bn, x2d)[1] < ROUNDING, "wrong with the same BN, too"

# %% tags=["plot"]
MISTAKES = {
    "second user": (
        T(
            zh="conv 的輸出有第二個使用者",
            en="a second user of the convolution's output",
        ),
        "`bn(y) + y`",
        "`bn(y) + bn(y)`",
    ),
    "two BNs": (
        T(zh="一個 conv 接兩個 BN", en="one convolution with two BNs"),
        "`bn(y) + other(y)`",
        "`bn(y) + bn(y)`",
    ),
    "called twice": (
        T(
            zh="conv 呼叫兩次，BN 不同",
            en="a convolution called twice, with different BNs",
        ),
        "`bn(conv(x)) + other(conv(-x))`",
        "`bn(conv(x)) + bn(conv(-x))`",
    ),
    "two BNs in a row": (
        T(zh="連著兩個 BN", en="two BNs in a row"),
        "`other(bn(y))`",
        "`bn(y)`",
    ),
}
table(
    [[*MISTAKES[name], f"{wrong:.0%}"] for name, wrong in silent.items()],
    [
        "",
        T(zh="本意", en="meant"),
        T(zh="折疊後算的", en="computed after folding"),
        T(zh="誤差", en="error"),
    ],
    caption=T(
        zh="y 是 conv(x)。誤差是最大差除以輸出的最大值；沒有警告，也沒有例外。",
        en="y is conv(x). The error is the largest difference, divided by the output's largest value; no warning, no exception.",
    ),
)

# %% tags=["plot"]
second_user = Reusing(mistakes["second user"][0])
graph(
    [
        (T(zh="export 之後", en="After export"), export(second_user, x2d)),
        (T(zh="折疊之後", en="After folding"), fold(second_user, x2d)[0]),
    ],
    alt=T(
        zh="之前：conv2d 的輸出分兩路，一路經過 batch_norm，一路直接，在 add 相加。之後：batch_norm 不見了，兩路都直接從 conv2d 到 add。",
        en="Before: the output of conv2d forks, through batch_norm and directly, and both meet in add. After: batch_norm is gone, "
        "and both paths lead directly from conv2d to add.",
    ),
    caption=T(
        zh="第一種錯。不經過 BN 的那條路，折疊之後也帶著 BN 的倍數與位移。",
        en="The first mistake. After folding, the path around BN carries BN's factor and offset as well.",
    ),
)

# %% [markdown] lang="zh"
# 這是預測 3 的答案：照折。原因都在 `_fuse_conv_bn_`：
#
# - **第二個使用者、兩個 BN**：BN 的倍數進了 conv，所有讀 conv 輸出的 node 都收到折好的值。
# - **呼叫兩次**：折過的 weight 會記下來，再遇到就只刪 BN、不再乘。這對「同一個 BN」是對的，另一個 BN 卻就這樣不見了。
# - **連著兩個 BN**：第一個折掉後，第二個的前面成了 conv，而它的 weight 已經記為「折過」。
#
# 這些並不稀奇：有的模型把 BN 之前的特徵當第二個輸出；有的偵測模型讓各個尺度共用 conv、BN 各用各的，例如 mmdetection 的
# `EfficientDetSepBNHead`。

# %% [markdown] lang="en"
# That answers prediction 3: it folds all the same. The reasons are all in `_fuse_conv_bn_`:
#
# - **Second user, two BNs**: BN's factor is in the convolution now, and every node that reads the convolution's output
#   gets the folded values.
# - **Called twice**: weights that were folded are remembered; the next time, the BN is only removed and nothing
#   multiplied. That is right for the same BN, but another BN is simply lost.
# - **Two BNs in a row**: once the first is folded, a convolution comes before the second, and its weight is marked as
#   folded.
#
# Such models aren't exotic: features from before BN may be a second output, and a detector may share convolutions between
# scales but give each scale a BN of its own, as `EfficientDetSepBNHead` in mmdetection does.

# %% [markdown] lang="zh"
# ## 守住：什麼都不標註，先比一次
#
# 既然 torchao 不檢查，就自己比：用不標註的 quantizer 折一份，和模型的輸出比；差得比捨入多，就不要往下走。要在插 observer 之前
# 比，這時還沒有量化誤差可以推託。輸入用真的資料，BN 的統計量也要是訓練好的。

# %% [markdown] lang="en"
# ## The guard: annotate nothing and compare
#
# Since torchao doesn't check, do it yourself: fold a copy with a quantizer that annotates nothing, and compare its outputs
# with the model's. If they differ by more than rounding, stop there. Do it before there are any observers, while no
# quantization error can be blamed. Use real data, and a model whose BNs have trained statistics.

# %%
reference = prepare_pt2e(export(model, images[:2]), FoldOnly())
with torch.no_grad():
    torch.testing.assert_close(
        reference(images[:100]), model(images[:100]), rtol=1e-4, atol=1e-4
    )

# %% [markdown] lang="zh"
# 本課程把這幾行收進 `common.folding.folded`（不是 torchao 的）：給它匯出的圖和一份輸入，它回傳折疊好、沒有量化的圖，不動原來
# 的；結果不對就拒絕。[M05-2](../m05_accuracy/2_numeric_debugger.py) 逐層比較時，會拿它當參考。下面讓它看過每一種錯，再看改好的
# 模型：

# %% [markdown] lang="en"
# This course keeps these lines in `common.folding.folded` (which isn't torchao's): given an exported graph and some
# input, it returns the folded graph with nothing quantized, leaves the original alone, and refuses if the results don't
# match. [M05-2](../m05_accuracy/2_numeric_debugger.py) uses it as the reference for comparing layer by layer. We show it
# each of the mistakes, and then the mended models:

# %%
from common.folding import folded as checked_folding

assert not batch_norms(checked_folding(export(model, images[:2]), (images,)))

refused = {}
for name, (meant, _, mended) in mistakes.items():
    try:
        checked_folding(export(Reusing(meant), x2d), (x2d,))
    except ValueError as error:
        refused[name] = str(error)
    ours = checked_folding(export(Reusing(mended), x2d), (x2d,))
    with torch.no_grad():
        as_meant = relative_error(ours(x2d), Reusing(meant)(x2d))
    assert as_meant < ROUNDING, f"{name}: mended, but not the same model"
assert refused.keys() == mistakes.keys(), f"only refused {list(refused)}"
print(textwrap.fill("ValueError: " + refused["second user"], 78))

# %% [markdown] lang="zh"
# （數字和上面的表不同，是因為 `folded` 比的是整個輸出的範數，表裡是最大差。）
#
# 改法只有兩種。前三種給每個 BN 一個**自己的** conv，也就是 `copy.deepcopy`，不能只是同一個模組再指一次；代價是多一份
# weight，頭兩種還要多算一次 conv。連著兩個 BN，就用 PyTorch 自己的 `fuse_conv_bn_eval` 先把第一個折掉，再匯出；它折的是模組，誰在用由你決定。

# %% [markdown] lang="en"
# (The number differs from the table's because `folded` compares the norm of the whole output, and the table the largest
# difference.)
#
# There are two ways to mend these models. For the first three, give each BN a convolution **of its own**, made by
# `copy.deepcopy` and not by another name for the same module; the price is another weight and, in the first two cases,
# another convolution to compute. For two BNs in a row, fold the first one before export with PyTorch's own
# `fuse_conv_bn_eval`; it works on modules, and you decide where the result is used.

# %% [markdown] lang="zh"
# ## 小結
#
# - `prepare_pt2e` 先折 BN、再請 quantizer 標註；改的是交給它的圖，模型不動。
# - 沒有 bias 的 conv 多一個 `weight_bias`；BN 的參數與統計量從 `prepared` 消失。
# - 折疊把 BN 的倍數搬進 weight，可能把 channel 的範圍拉開；per-channel 的整數不受影響，per-tensor 變粗。
# - 只有緊接在 conv、linear 後面的 BN 會折；其他的留著，成為 fp32。
# - conv 的輸出或 weight 另有使用者，或連著兩個 BN，就會不出聲地折錯。標註之前先比一次。

# %% [markdown] lang="en"
# ## Recap
#
# - `prepare_pt2e` folds BN first and only then asks the quantizer; it edits the graph it is given and leaves the model alone.
# - A convolution without a bias gains a `weight_bias`; BN's parameters and statistics are gone from `prepared`.
# - Folding moves BN's factors into the weight and can pull the channels' ranges apart. Per-channel integers don't
#   change; per-tensor gets coarser.
# - Only a BN right after a convolution or linear layer is folded; any other stays, in fp32.
# - If something else uses the convolution's output or weight, or two BNs come in a row, folding goes wrong without a word.
#   Compare before you annotate.

# %% [markdown] lang="zh"
# ## 試試看：折疊會抹平的
#
# M01-3 把 `bn1` 的一個 channel 放大，per-tensor int8 的準確率就掉了。這次放大 **conv** 的：把 `stem_conv` 第 5 個 channel 的
# weight 乘 64，`stem_bn` 的 `running_mean` 乘 64、`running_var` 乘 $64^2$，因為 conv 的輸出也大了 64 倍。per-tensor int8 的準
# 確率會掉多少？先猜，再算折疊後的 weight。

# %% [markdown] lang="en"
# ## Try it: what folding evens out
#
# In M01-3, one channel of `bn1` was enlarged, and int8 per-tensor lost accuracy. This time enlarge the **convolution**:
# multiply the weight of channel 5 of `stem_conv` by 64, and since its output grows as well, `running_mean` of `stem_bn` by
# 64 and `running_var` by $64^2$. How much accuracy does int8 per-tensor lose? Guess, then look at the
# folded weight.

# %% tags=["solution"]
enlarged = copy.deepcopy(model)
with torch.no_grad():
    enlarged.stem_conv.weight[5] *= 64
    enlarged.stem_bn.running_mean[5] *= 64
    enlarged.stem_bn.running_var[5] *= 64**2


def int8_accuracy(model):
    """Accuracy of int8 with one scale for each weight."""
    config = get_symmetric_quantization_config()  # per-tensor by default
    gm = export(model, images[:2])
    prepared = prepare_pt2e(gm, PTQQuantizer().set_global(config))
    with torch.no_grad():
        for batch in calibration_batches(256):
            prepared(*batch)
        quantized = convert_pt2e(prepared)
        outputs = torch.cat([quantized(part) for part in images.split(100)])
    return (outputs.argmax(1) == labels).float().mean().item()


# %% tags=["solution"]
reference = checked_folding(export(enlarged, images[:2]), (images,))
folded_weight = reference.get_parameter("stem_conv.weight")[5]
change = relative_error(folded_weight, after["stem_conv.weight"][5])
accuracies = int8_accuracy(model), int8_accuracy(enlarged)
assert change < 0.01, "the folded weight is another one"
assert abs(accuracies[0] - accuracies[1]) < 0.01, accuracies
print(f"folded weight of channel 5: changed by {change:.2%}")
print(f"accuracy: {accuracies[0]:.2%} before, {accuracies[1]:.2%} enlarged")

# %% [markdown] lang="zh" tags=["solution"]
# 幾乎不掉。$a_c$ 裡的標準差也大了 64 倍，除下去就抵消了，折疊後的 weight 和原來一樣，只差 $\varepsilon$ 那一點。conv 的
# weight 整體多大並不要緊，**要緊的是它和自己輸出的標準差之比，再乘上 $\gamma$**。M01-3 放大的正是 $\gamma$，後面沒有東西把它
# 除回來。

# %% [markdown] lang="en" tags=["solution"]
# Next to none. The standard deviation in $a_c$ is 64 times as large as well, which cancels the factor; the folded weight
# is what it was, but for a trace of $\varepsilon$. How large the weight itself is doesn't matter; **what counts is its size
# relative to the standard deviation of its own output, times $\gamma$**. What M01-3 enlarged was $\gamma$, and nothing
# divides by that.

# %% [markdown] lang="zh"
# ## 接下來
#
# PTQ 折的是定下來的統計量。QAT 時 BN 還在變，[M04-2](2_qat_conv_bn.py) 看 torchao 怎麼讓 fake quant 看到折好的 weight，又不
# 真的折。

# %% [markdown] lang="en"
# ## Next
#
# PTQ folds statistics that are settled. In QAT, BN still changes, and [M04-2](2_qat_conv_bn.py) shows how torchao lets
# fake quant see the folded weight without folding it.
