# %% [markdown] lang="zh"
# # M02-1 | 同一份資料，不同的 observer 各選什麼範圍
#
# [M02 概覽](0_overview.py)畫出了範圍的取捨。現成的 observer 都在替你做這個取捨，只是看法不同。這一頁把同一串資料交給
# 它們，看各選了什麼；再加進一個離群值、換個順序、混進 nan 和 inf，看誰穩、誰壞、誰一聲不吭。
#
# **讀完你會知道**
#
# - `MinMaxObserver`、`MovingAverageMinMaxObserver`、`HistogramObserver` 怎麼選範圍，怎麼手算驗證
# - 一個離群值對三者的影響，以及直方圖何時留住它、何時捨棄它
# - per-channel 多給了什麼
# - nan、inf、全零、沒看過資料，各會看到什麼訊息
# - 校準資料裡一個壞掉的像素，怎麼毀掉一個好模型

# %% [markdown] lang="en"
# # M02-1 | What range different observers choose on the same data
#
# The [M02 overview](0_overview.py) drew the trade-off behind a range. The stock observers make that trade-off for you,
# each in its own way. This page hands them the same stream of data to see what they choose; then it adds one outlier,
# changes the order, and slips in nan and inf, to see who stays calm, who breaks, and who breaks without a word.
#
# **What you will know**
#
# - How `MinMaxObserver`, `MovingAverageMinMaxObserver` and `HistogramObserver` choose, and how to check them by hand
# - What one outlier does to each, and when a histogram keeps it or drops it
# - What per-channel adds
# - What nan, inf, all zeros and no data at all look like
# - How one broken pixel in the calibration data ruins a good model

# %% [markdown] lang="zh"
# ## 先預測
#
# 校準資料有 20 批，每批 4,096 個標準常態的數，其中一個數被換成 20：
#
# 1. 三種 observer 裡，誰的範圍會包含 20？
# 2. 這個 20 放在第一批或最後一批，對誰有差別？
# 3. 一張校準圖片裡有一個像素壞掉，值是 200（正常的圖在 −2 到 2 之間）。256 張圖裡只有這一個。模型準確率會掉多少？

# %% [markdown] lang="en"
# ## Predict first
#
# The calibration data comes in 20 batches of 4,096 standard normal numbers, and one number is replaced by 20:
#
# 1. Which of the three observers will have 20 inside its range?
# 2. For which does it matter whether the 20 is in the first batch or in the last?
# 3. One pixel of one calibration image is broken and has the value 200 (a good image lies between −2 and 2). It is the
#    only one in 256 images. How much accuracy does the model lose?

# %% tags=["setup"]
import copy
import textwrap
import warnings
from dataclasses import replace

from common.data import calibration_batches, test_data
from common.env import quiet
from common.models import trained_tinyconvnet
from common.viz import T, say, show, table

import matplotlib.pyplot as plt
import torch

quiet()

# %% [markdown] lang="zh"
# ## 三種看法
#
# - `MinMaxObserver`：記住看過的最小與最大值，只會變寬。
# - `MovingAverageMinMaxObserver`：第一批取最小、最大值，之後每批只朝新的值移動一小
#   步，$m \leftarrow m + c\,(m_{\text{new}} - m)$，預設 $c = 0.01$。
# - `HistogramObserver`：累積 2,048 格的直方圖，convert 時才從兩端往內縮，縮到估計的均方誤差不再變小為止。
#
# 三者選定範圍之後，都用同一個公式算 scale 與 zero point（[M01 的式 (3)](../m01_first_ptq/0_overview.py)），範圍一定包含
# 0。`dtype` 要自己給：預設是無號的 `quint8`。

# %% [markdown] lang="en"
# ## Three points of view
#
# - `MinMaxObserver` remembers the smallest and the largest value it has seen; it can only get wider.
# - `MovingAverageMinMaxObserver` takes minimum and maximum of the first batch, and then lets each batch move them by a
#   small step, $m \leftarrow m + c\,(m_{\text{new}} - m)$, with $c = 0.01$ by default.
# - `HistogramObserver` fills a histogram of 2,048 bins. Only at convert does it move the borders inward, until the
#   estimated mean squared error stops falling.
#
# With a range chosen, all three use one formula for scale and zero point ([(3) of M01](../m01_first_ptq/0_overview.py)),
# and their range always contains 0. Do pass a `dtype`: the default is the unsigned `quint8`.

# %%
from torchao.quantization.pt2e import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
)

INT8 = {"dtype": torch.int8, "quant_min": -128, "quant_max": 127}
KINDS = (MinMaxObserver, MovingAverageMinMaxObserver, HistogramObserver)


def stream(outlier_in=None, n=20):
    """Batches of normal numbers; batch `outlier_in` has one 20."""
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(4096, generator=generator) for _ in range(n)]
    if outlier_in is not None:
        batches[outlier_in][0] = 20.0
    return batches


def chosen_range(observer, batches):
    """Show the batches to the observer; the range its answer stands for."""
    for batch in batches:
        observer(batch)
    s, z = (value.item() for value in observer.calculate_qparams())
    return s * (-128 - z), s * (127 - z)


# %%
clean = stream()
ranges = {kind: chosen_range(kind(**INT8), clean) for kind in KINDS}

low, high = (m.item() for m in torch.cat(clean).aminmax())
average = clean[0].max().item()
for batch in clean[1:]:
    average += 0.01 * (batch.max().item() - average)

step = (high - low) / 255
by_hand = {MinMaxObserver: high, MovingAverageMinMaxObserver: average}
for kind, top in by_hand.items():
    assert abs(ranges[kind][1] - top) < step, f"{kind.__name__}: not {top}"
left, right = ranges[HistogramObserver]
assert low - 2 * step < left and right < high + 2 * step, "wider than the data"

# %% [markdown] lang="zh"
# 誤差容許一格，因為 zero point 要取整數，整個範圍會跟著挪動不到一格。在乾淨的資料上，三者選的範圍差不多。

# %% [markdown] lang="en"
# The check allows one step, since the zero point has to be an integer and moves the whole range by less than that. On
# clean data the three choices are much alike.

# %% [markdown] lang="zh"
# ## 一個離群值
#
# 把第 6 批的一個數換成 20，其餘不動：

# %% [markdown] lang="en"
# ## One outlier
#
# Now a single number of the sixth batch becomes 20, and everything else stays:

# %%
spoiled = {k: chosen_range(k(**INT8), stream(outlier_in=5)) for k in KINDS}

for kind in (MinMaxObserver, HistogramObserver):
    assert abs(spoiled[kind][1] - 20) < 0.2, f"{kind.__name__} left 20 out"
assert spoiled[MovingAverageMinMaxObserver][1] < 5, "20 had a large effect"

# %% tags=["plot"]
figure, (upper, lower) = plt.subplots(
    2, 1, figsize=(7.0, 4.2), sharex=True, height_ratios=(1, 1.3)
)
counts, edges = torch.histogram(torch.cat(stream(outlier_in=5)), bins=120)
upper.stairs(counts, edges, fill=True, color="C4", alpha=0.5)
upper.set_yscale("log")
upper.set(ylabel="count", ylim=(0.5, 3e4), xlim=(-6, 27))
upper.annotate("the outlier", (20, 1.8), ha="center", fontsize=9)
for row, kind in enumerate(KINDS):
    name = kind.__name__.removesuffix("Observer")
    for dy, found, style, word in (
        (0.0, ranges[kind], "-", "clean"),
        (0.4, spoiled[kind], "--", "with the 20"),
    ):
        y = -row - dy
        lower.plot(found, (y, y), f"C{row}{style}", marker="|", mew=2)
        at = (max(found[1], 4.6) + 0.4, y)
        lower.annotate(f"{name}, {word}", at, va="center", fontsize=8)
lower.set(xlabel="value", ylabel="range", ylim=(-2.8, 0.4))
lower.set_yticks([])
show(
    figure,
    alt=T(
        zh="資料的直方圖，下面是三種 observer 的範圍。沒有離群值時三者都在 ±4 左右；有離群值時 MinMax 與 Histogram 一直拉到 20，"
        "MovingAverage 幾乎不動。",
        en="A histogram of the data, with the ranges of three observers below. Without the outlier all lie around ±4; "
        "with it MinMax and Histogram reach up to 20, and MovingAverage hardly moves.",
    ),
    caption=T(
        zh="實線：乾淨的資料；虛線：多了一個 20。",
        en="Solid: clean data. Dashed: with the one 20.",
    ),
)

# %% [markdown] lang="zh"
# MinMax 全收，所以範圍包含 20。Histogram 看過整個分布，卻**也**把 20 留在範圍裡。照均方誤差算，這樣才划算。設 $b$ 是捨棄
# 20 之後的上界，$s_0$ 與 $s_1$ 是捨棄與留下時的 scale：捨棄它，20 的誤差 $(20 - b)^2$ 由全部 $N$ 個值分攤；留著它，每個值
# 的捨入誤差從 $s_0^2/12$ 變成 $s_1^2/12$。捨棄要划算，$N$ 必須大過
#
# $$N^* = \frac{(20 - b)^2}{(s_1^2 - s_0^2)/12} \tag{1}$$
#
# 可是 Histogram 並不真的這樣衡量。它每一步從一端捨棄十萬分之一的值，到估計的誤差變大才停；第一步沒有前一步可比，一定會走
# （torchao 0.18.0，`observer.py` 的 `_non_linear_param_search`）。所以超過 100,000 個值裡單獨的一個離群值，馬上就被捨棄，不管
# 划不划算：

# %% [markdown] lang="en"
# MinMax takes everything, so 20 is in. Histogram has seen the whole distribution and keeps 20 in its range **as well**.
# By mean squared error that is the better deal. Let $b$ be the upper border without the 20, and $s_0$ and $s_1$ the
# scales without and with it. Drop the 20, and its error $(20 - b)^2$ is shared by all $N$ values; keep it, and the
# rounding error of each value goes from $s_0^2/12$ to $s_1^2/12$. Dropping pays once $N$ exceeds
#
# $$N^* = \frac{(20 - b)^2}{(s_1^2 - s_0^2)/12} \tag{1}$$
#
# But Histogram doesn't really weigh that up. Each step of its search drops a hundred-thousandth of the values at one
# end, and it stops when the estimated error rises. The first step has nothing to compare with and is always taken
# (`_non_linear_param_search` in `observer.py`, torchao 0.18.0). So a single outlier among more than 100,000 values is
# dropped at once, whether that pays or not:

# %%
b = ranges[HistogramObserver][1]
s_0 = (b - ranges[HistogramObserver][0]) / 255
s_1 = (spoiled[HistogramObserver][1] - spoiled[HistogramObserver][0]) / 255
n_star = (20 - b) ** 2 / ((s_1**2 - s_0**2) / 12)
n_here = sum(len(batch) for batch in stream())
assert n_here < n_star / 2, "with so many values, dropping would pay"


def squared_error(data, bounds):
    """Mean squared error of an int8 round trip with this range."""
    s = (bounds[1] - bounds[0]) / 255
    z = round(-128 - bounds[0] / s)
    restored = torch.fake_quantize_per_tensor_affine(data, s, z, -128, 127)
    return (restored - data).square().mean().item()


borders = {}  # number of values -> upper border that Histogram chose
for n in (100_000, 101_000):
    data = torch.randn(n, generator=torch.Generator().manual_seed(0))
    data[0] = 20.0
    bounds = chosen_range(HistogramObserver(**INT8), [data])
    borders[n] = bounds[1]
assert borders[100_000] > 19 and borders[101_000] < 6, (
    f"another rule: {borders}"
)

everything = chosen_range(MinMaxObserver(**INT8), [data])
dearer = squared_error(data, bounds) / squared_error(data, everything)
assert n < n_star / 2 and dearer > 2, "dropping the 20 paid off"

# %% tags=["plot"]
say(
    T(
        zh=f"預測 1 的答案：MinMax 與 Histogram 包含 20。這裡有 {n_here:,} 個值，$N^*$ 約是 {round(n_star, -4):,.0f}，留住它是對的。"
        f"100,000 個值裡的一個，Histogram 也留住；{n:,} 個值裡的一個就捨棄了，上界是 {borders[n]:.2f}，"
        f"均方誤差卻是全收的 {dearer:.1f} 倍：捨棄得太早。",
        en=f"The answer to prediction 1: MinMax and Histogram contain 20. With {n_here:,} values here and an $N^*$ of about "
        f"{round(n_star, -4):,.0f}, keeping it is right. Histogram also keeps one 20 among 100,000 values. Among {n:,} it is dropped, "
        f"the upper border is {borders[n]:.2f}, and the mean squared error is {dearer:.1f} times that of taking everything: dropped too soon.",
    )
)

# %% [markdown] lang="zh"
# ## 順序有沒有關係
#
# MinMax 只看極值，順序無關；Histogram 幾乎無關。移動平均則不同：第一批直接當起點，所以第一批的影響力是
# $(1-c)^{19}$，其他批最多只有 $c$。

# %% [markdown] lang="en"
# ## Does the order matter?
#
# MinMax looks at extremes only, so order is irrelevant, and nearly so for Histogram. A moving average is different: it
# starts from the first batch, whose weight in the end is $(1-c)^{19}$, while no other batch weighs more than $c$.

# %%
places = (0, 5, 19)
tops = {
    kind: [chosen_range(kind(**INT8), stream(place))[1] for place in places]
    for kind in KINDS
}
for kind in (MinMaxObserver, HistogramObserver):
    assert max(tops[kind]) - min(tops[kind]) < 0.2, f"{kind}: order matters"

first, sixth, last = tops[MovingAverageMinMaxObserver]
extra = 20 - clean[0].max().item()  # what the outlier adds to its batch
expected = average + 0.99**19 * extra
assert abs(first - expected) < 0.1, "not the weight of a first batch"
assert max(sixth, last) < average + 0.01 * 17 + 0.05, "weighs more than c"

# %% tags=["plot"]
table(
    [
        [f"`{kind.__name__}`", *(f"{top:.2f}" for top in tops[kind])]
        for kind in KINDS
    ],
    [
        T(zh="範圍的上界，20 放在", en="upper border, with the 20 in"),
        T(zh="第 1 批", en="batch 1"),
        T(zh="第 6 批", en="batch 6"),
        T(zh="第 20 批", en="batch 20"),
    ],
)

# %% [markdown] lang="zh"
# 預測 2 的答案：只有移動平均有差。它不怕偶發的離群值，卻把命運押在第一批上；用它校準時，第一批要挑正常的資料，批數也要
# 夠。

# %% [markdown] lang="en"
# The answer to prediction 2: only for the moving average. It shrugs off an occasional outlier, but stakes a lot on the
# first batch. When you calibrate with it, start with ordinary data, and have enough batches.

# %% [markdown] lang="zh"
# ## 直方圖不看位元數
#
# [概覽](0_overview.py)說 4 位元該縮範圍，Histogram 應該大顯身手才對。可是它搜尋時，格數是由 `dtype` 算出
# 來的 256（torchao 0.18.0，`observer.py` 的 `dst_nbins`），不理會 `quant_min` 與 `quant_max`。它以為格子很多，所以幾乎不縮：

# %% [markdown] lang="en"
# ## The histogram doesn't see the bits
#
# According to the [overview](0_overview.py) a range should shrink at 4 bits, so this should be Histogram's hour. But its
# search derives the number of steps from the `dtype`, which makes 256 (`dst_nbins` in `observer.py`, torchao 0.18.0),
# and ignores `quant_min` and `quant_max`. Believing that steps are plenty, it hardly shrinks anything:

# %%
values = torch.cat(clean)


def rms_error(s, z):
    """Root mean squared error of a 4-bit round trip, integers -8 .. 7."""
    restored = torch.fake_quantize_per_tensor_affine(values, s, z, -8, 7)
    return (restored - values).square().mean().sqrt().item()


four_bit = HistogramObserver(dtype=torch.int8, quant_min=-8, quant_max=7)
for batch in clean:
    four_bit(batch)
s, z = (value.item() for value in four_bit.calculate_qparams())
candidates = [(2 * limit / 15, 0) for limit in torch.arange(1, 5, 0.1).tolist()]
best_s, best_z = min(candidates, key=lambda pair: rms_error(*pair))

assert four_bit.dst_nbins == 256, "the search knows about 4 bits now"
assert rms_error(s, z) > 1.25 * rms_error(best_s, best_z), "it did shrink"
print(f"Histogram: scale {s:.3f}, error {rms_error(s, z):.3f}")
print(
    f"best of {len(candidates)}: {best_s:.3f}, {rms_error(best_s, best_z):.3f}"
)

# %% [markdown] lang="zh"
# ## per-channel
#
# weight 用 `PerChannelMinMaxObserver`：每個 output channel 各記各的最小、最大值。拿 TinyConvNet 第一個 conv 的 weight 來看，
# 先照 prepare 的做法把 BN 折進去（[M04](../m04_batchnorm/0_overview.py)）：

# %% [markdown] lang="en"
# ## Per-channel
#
# Weights get a `PerChannelMinMaxObserver`, which keeps minimum and maximum for each output channel. Here is the weight
# of TinyConvNet's first convolution, with BN folded in as prepare does it ([M04](../m04_batchnorm/0_overview.py)):

# %%
from torchao.quantization.pt2e import PerChannelMinMaxObserver

model = trained_tinyconvnet()
bn = model.stem_bn
factor = bn.weight / (bn.running_var + bn.eps).sqrt()
weight = (model.stem_conv.weight * factor.view(-1, 1, 1, 1)).detach()

symmetric = {"dtype": torch.int8, "quant_min": -127, "quant_max": 127}
one = MinMaxObserver(qscheme=torch.per_tensor_symmetric, **symmetric)
each = PerChannelMinMaxObserver(
    qscheme=torch.per_channel_symmetric, ch_axis=0, **symmetric
)
one(weight), each(weight)
(one_scale, _), (scales, _) = one.calculate_qparams(), each.calculate_qparams()

largest = weight.abs().amax(dim=(1, 2, 3))  # for each channel
assert torch.allclose(scales, largest / 127, rtol=1e-5), "not max|w| / 127"
assert abs(scales.max() / one_scale - 1) < 1e-5, "not the widest channel"

# %% [markdown] lang="zh"
# per-tensor 的 scale 就是最寬的 channel 的，窄的 channel 只分到幾個整數；窄多少、對準確率有多重
# 要，[M01-3](../m01_first_ptq/3_quantization_config.py) 量過。兩個容易踩到的地方：`PerChannelMinMaxObserver` 預設是**非**對稱
# 的，要自己給 `qscheme`；而一般的 observer 不收 per-channel 的 `qscheme`：

# %% [markdown] lang="en"
# The per-tensor scale is that of the widest channel, which leaves the narrow ones with a few integers. How few, and what
# that does to accuracy, we measured in [M01-3](../m01_first_ptq/3_quantization_config.py). Two things to trip over:
# `PerChannelMinMaxObserver` is **a**symmetric unless you pass a `qscheme`, and the plain observers refuse a per-channel
# one:

# %%
assert PerChannelMinMaxObserver().qscheme == torch.per_channel_affine

try:
    HistogramObserver(qscheme=torch.per_channel_symmetric)
except NotImplementedError as error:
    message = " ".join(str(error).split())
    print(textwrap.fill(f"NotImplementedError: {message}", 76))

# %% [markdown] lang="zh"
# ## nan、inf、全零、沒有資料
#
# 校準資料裡混進壞的值，或某條邊根本沒有資料經過，會怎樣？下面每一種都真的執行，把錯誤、警告、算出的 scale 印出來：

# %% [markdown] lang="en"
# ## nan, inf, all zeros, no data
#
# What if there are bad values in the calibration data, or an edge never sees any? All of it is executed here, and
# errors, warnings and the resulting scale are printed:


# %%
def outcome(kind, values):
    """What an observer says about these values, and its scale."""
    observer = kind(**INT8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if values is not None:
                observer(torch.tensor(values))
            lines = [f"scale {observer.calculate_qparams()[0].item():.3g}"]
        except Exception as error:
            lines = [f"{type(error).__name__}: {error}"]
    lines += [f"warning: {' '.join(str(w.message).split())}" for w in caught]
    return lines


outcomes = {}
cases = {"nan": [0.0, 1.0, torch.nan], "inf": [0.0, 1.0, torch.inf]}
cases |= {"all zeros": [0.0, 0.0, 0.0], "no data": None}
for case, values in cases.items():
    for kind in (MinMaxObserver, HistogramObserver):
        outcomes[case, kind] = outcome(kind, values)
        print(f"{case}, {kind.__name__}:")
        for line in outcomes[case, kind]:
            print(textwrap.indent(textwrap.fill(line, 72), "    "))

# %%
for kind in (MinMaxObserver, HistogramObserver):
    assert "Error: " in outcomes["nan", kind][0]
    assert outcomes["all zeros", kind] == ["scale 1.19e-07"]
    assert "must run observer" in outcomes["no data", kind][1]
assert outcomes["inf", MinMaxObserver] == ["scale inf"], "no longer silent"
assert "ignoring input" in outcomes["inf", HistogramObserver][1]

late = MinMaxObserver(**INT8)
late(torch.tensor(cases["nan"]))  # no error yet
assert late.min_val.isnan(), "nan was left out"

# %% [markdown] lang="zh"
# - **nan** 一定會引發例外，但要到 convert 才發生（Histogram 則是校準當下），而且不說是哪條邊。
# - **inf** 最陰險：MinMax 一聲不吭給出無限大的 scale，Histogram 則警告並略過那個值。
# - **全零**得到 `eps`，預設是 float32 的 epsilon；`XNNPACKQuantizer` 的設定把它提高到 $2^{-12}$，大概是怕 scale 小到後端
#   不能用（這是推測，沒有量到）。代價是總範圍小於 $255 \times 2^{-12} \approx 0.06$ 的 activation，格子比需要的粗。
# - **沒有資料**：scale 1，zero point 0，外加一句警告。
#
# 預防很簡單：校準前檢查資料，convert 前檢查 observer。這門課的
# `common.pt2e.ptq`（[M01-1](../m01_first_ptq/1_minimal_ptq.py)）會擋下沒看過資料的 observer 和不是有限值的 scale。

# %% [markdown] lang="en"
# - **nan** always ends in an error, but not before convert (with Histogram during calibration), and nobody says on which
#   edge.
# - **inf** is the sly one: MinMax silently answers with an infinite scale. Histogram warns and leaves the value out.
# - **All zeros** gives `eps`, by default float32's epsilon. `XNNPACKQuantizer`'s configuration raises it to $2^{-12}$,
#   lest a scale become too small for the backend (our inference, not measured). The price: an activation whose range is less than
#   $255 \times 2^{-12} \approx 0.06$ in all gets coarser steps than it needs.
# - **No data**: scale 1, zero point 0, and a warning.
#
# Prevention is simple: check the data before calibration and the observers before convert. This course's
# `common.pt2e.ptq` ([M01-1](../m01_first_ptq/1_minimal_ptq.py)) refuses observers without data and scales that are not
# finite.

# %%
bad = torch.tensor(cases["inf"])
assert not bad.isfinite().all(), "this is the check for your data"

observer = MinMaxObserver(**INT8)
observer(bad[bad.isfinite()])
s = observer.calculate_qparams()[0].item()
assert abs(s * 255 - 1) < 1e-5, "without the inf the range is 0 .. 1"

tiny = MinMaxObserver(eps=2**-12, **INT8)
tiny(torch.tensor([0.0, 0.01]))
assert tiny.calculate_qparams()[0].item() == 2**-12, "eps is not the floor"

# %% [markdown] lang="zh"
# ## 一個壞掉的像素
#
# 現在換成真的模型。256 張校準圖片，第 4 批第一張圖的一個像素是 200；比較三種 observer。換 observer 只要換
# `QuantizationSpec` 裡的一欄（[概覽](0_overview.py)）；`PTQQuantizer` 是本課程的，標註和 `XNNPACKQuantizer` 一樣，只是比較快。

# %% [markdown] lang="en"
# ## One hot pixel
#
# Now for a real model. Among 256 calibration images, one pixel of the first image in the fourth batch is 200. We compare
# the three observers; switching takes one field of the `QuantizationSpec` ([overview](0_overview.py)). `PTQQuantizer` is
# the course's own: it annotates as `XNNPACKQuantizer` does, only faster.

# %%
from common.quantizers import PTQQuantizer

from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

images, labels = test_data()
stock = get_symmetric_quantization_config().input_activation
assert stock.observer_or_fake_quant_ctr.p.keywords["eps"] == 2**-12


def prepare(kind):
    """The trained model, prepared with this observer on activations."""
    config = get_symmetric_quantization_config(is_per_channel=True)
    ours = kind.with_args(eps=2**-12)
    spec = replace(config.input_activation, observer_or_fake_quant_ctr=ours)
    config = replace(config, input_activation=spec, output_activation=spec)
    batch = torch.export.Dim("batch", min=1, max=4096)
    example, shapes = (images[:2].clone(),), ({0: batch},)
    program = torch.export.export(model, example, dynamic_shapes=shapes)
    quantizer = PTQQuantizer().set_global(config)
    return prepare_pt2e(program.module(), quantizer)


def accuracy(gm):
    with torch.no_grad():
        return (gm(images).argmax(1) == labels).float().mean().item()


# %%
def calibrated(prepared, hot_pixel):
    for number, (batch,) in enumerate(calibration_batches(256)):
        if number == 3 and hot_pixel:
            batch[0, 0, 8, 8] = 200.0
        with torch.no_grad():
            prepared(batch)
    return convert_pt2e(prepared)


def range_widths(gm):
    q = torch.ops.quantized_decomposed.quantize_per_tensor.default
    nodes = gm.graph.find_nodes(op="call_function", target=q)
    return {node.args[0].name: 255 * node.args[1] for node in nodes}


fp32, results, widths = accuracy(model), {}, {}
for kind in KINDS:
    prepared = prepare(kind)
    clean_copy = copy.deepcopy(prepared)
    hot = calibrated(prepared, hot_pixel=True)
    clean_accuracy = accuracy(calibrated(clean_copy, hot_pixel=False))
    results[kind] = clean_accuracy, accuracy(hot)
    widths[kind] = range_widths(hot)

# %%
for kind, (without, _) in results.items():
    assert abs(without - fp32) < 0.01, f"{kind}: {without:.1%} on clean data"
_, minmax_hot = results[MinMaxObserver]
_, average_hot = results[MovingAverageMinMaxObserver]
assert minmax_hot < fp32 - 0.1, "one hot pixel should ruin MinMax"
assert average_hot > fp32 - 0.01, "an average should not mind one pixel"
by_histogram = widths[HistogramObserver]
assert by_histogram["x"] < 5, "the hot pixel stayed in the input's range"
assert by_histogram["relu"] > 50, "behind a convolution it is gone as well"

# %% tags=["plot"]
table(
    [
        [
            f"`{kind.__name__}`",
            f"{without:.2%}",
            f"{hot:.2%}",
            *(f"{widths[kind][name]:.1f}" for name in ("x", "relu")),
        ]
        for kind, (without, hot) in results.items()
    ],
    [
        T(zh=f"準確率（fp32 {fp32:.2%}）", en=f"accuracy (fp32 {fp32:.2%})"),
        T(zh="乾淨的校準資料", en="clean calibration"),
        T(zh="一個像素是 200", en="one pixel is 200"),
        T(zh="這時的範圍寬：輸入", en="its range width: input"),
        T(zh="範圍寬：第一個 relu", en="range width: first ReLU"),
    ],
)

# %% tags=["plot"]
_, histogram_hot = results[HistogramObserver]
lost = fp32 - histogram_hot
if lost > 0.01:
    histogram_says = T(
        zh=f"預設的 Histogram 也掉了 {lost * 100:.1f} 個百分點",
        en=f"the default, Histogram, lost {lost * 100:.1f} points as well",
    )
else:
    histogram_says = T(
        zh="預設的 Histogram 這一次沒受影響",
        en="the default, Histogram, was not affected this time",
    )
say(
    T(
        zh="MinMax 因為一個像素掉了 {points} 個百分點；{histogram}；移動平均幾乎不受影響。這是預測 3 的答案。",
        en="One pixel cost MinMax {points} percentage points; {histogram}; the moving average hardly noticed. "
        "That answers prediction 3.",
    ).format(
        points=f"{(fp32 - minmax_hot) * 100:.1f}", histogram=histogram_says
    )
)

# %% [markdown] lang="zh"
# Histogram 在輸入那條邊擋住了壞像素：近二十萬個像素值裡單獨的一個，第一步就被捨棄。可是 3×3 的 conv 已經把它擴散到 9 個位
# 置、16 個 channel；這麼多大的值，搜尋就留在範圍裡了。
#
# 別急著說移動平均最好。它捨棄了極值，均方誤差更大；這裡準確率沒事，是因為壞像素本來就不該留。若極值是真的訊號，捨棄它
# 就是飽和。先弄清楚離群值是**壞資料還是真資料**：壞的，從校準資料裡拿掉；真的，才輪到挑 observer。

# %% [markdown] lang="en"
# At the input, Histogram stopped the broken pixel: it is one of almost 200,000 values and goes with the first step. But
# the 3×3 convolution has spread it over 9 positions and 16 channels, and so many large values keep their place.
#
# Don't conclude that the moving average is best. It gives up extremes and has the larger mean squared error; accuracy
# survived here because a broken pixel deserves to be given up. Where extremes are signal, giving them up is saturation.
# First find out whether an outlier is **bad data or real data**. Bad: take it out of the calibration data. Real: now
# the choice of observer matters.

# %%
with_outlier = torch.cat(stream(outlier_in=5))
by_average, by_histogram = (
    squared_error(with_outlier, spoiled[kind])
    for kind in (MovingAverageMinMaxObserver, HistogramObserver)
)
assert by_average > 2 * by_histogram, "the average has the smaller error"

# %% [markdown] lang="zh"
# ## 小結
#
# - MinMax 全收；移動平均逐批移動一小步；Histogram 搜尋均方誤差小的範圍，只是近似。
# - 直方圖的第一步一定會走：超過 100,000 個值裡的單獨一個離群值必被捨棄，不管式 (1)；4 位元時它仍以為有 256 格。
# - 移動平均不怕偶發的離群值，但第一批的分量最重。
# - nan 會引發例外，inf 可能一聲不吭；沒看過資料只有一句警告。
# - 一個壞像素就能毀掉校準：先檢查資料，再選 observer。

# %% [markdown] lang="en"
# ## Recap
#
# - MinMax takes all; a moving average moves by a small step per batch; Histogram searches, approximately, for a small
#   mean squared error.
# - A histogram's first step is always taken: a single outlier among more than 100,000 values is dropped, whatever (1)
#   says. At 4 bits it still believes in 256 steps.
# - A moving average doesn't mind an occasional outlier, but its first batch weighs most.
# - nan raises an error, inf may pass in silence, and an observer without data leaves one warning.
# - One broken pixel can ruin a calibration: check the data first, then choose an observer.

# %% [markdown] lang="zh"
# ## 試試看
#
# 離群值在第一批時，移動平均的上界被拉得很高。把 `averaging_constant` 從 0.01 改成 0.1，20 批之後還剩多少影響？先用公式算，
# 再驗證；然後想一想，$c$ 越大越好嗎？

# %% [markdown] lang="en"
# ## Try it
#
# With the outlier in the first batch, the moving average ended up far too high. If `averaging_constant` is 0.1 instead of
# 0.01, how much of the effect is left after 20 batches? Compute it first, then check. And then: is a larger $c$ always
# better?

# %% tags=["solution"]
left = 0.9**19 * extra  # of the first batch, 19 steps later
for place in (0, 19):
    top_with, top_without = (
        chosen_range(
            MovingAverageMinMaxObserver(averaging_constant=0.1, **INT8), batches
        )[1]
        for batches in (stream(place), clean)
    )
    effect = top_with - top_without
    print(f"outlier in batch {place + 1}: {effect:+.2f}")
    if place == 0:
        assert abs(effect - left) < 0.1, "not the weight of a first batch"
    else:
        assert effect > 1, "the last batch should weigh a tenth"

# %% [markdown] lang="zh" tags=["solution"]
# 第一批的影響剩 $0.9^{19}$，大約一成四。但 $c$ 變大，最近的幾批就變重：離群值若在最後一批，影響反而大了十倍。$c = 1$ 時
# 只看最後一批。沒有一個 $c$ 能同時忘得快又站得穩，乾淨的資料才是解法。

# %% [markdown] lang="en" tags=["solution"]
# Of the first batch $0.9^{19}$ is left, about 14 percent. But with a larger $c$ recent batches weigh more: an outlier in
# the last batch now counts ten times as much. With $c = 1$ only the last batch counts. No $c$ forgets quickly and stays
# calm at once; clean data is what solves this.

# %% [markdown] lang="zh"
# ## 接下來
#
# 校準資料要多少、錯的資料怎麼認出來，看 [M02-3](3_calibration_data.py)。QAT 用的移動平均帶著 fake quant，看
# [M02-2](2_fake_quant.py)。回到 [M02 概覽](0_overview.py)。

# %% [markdown] lang="en"
# ## Next
#
# How much calibration data you need, and how to recognize the wrong kind, is the subject of
# [M02-3](3_calibration_data.py). The moving average that QAT uses comes with fake quant: [M02-2](2_fake_quant.py). Back
# to the [M02 overview](0_overview.py).
