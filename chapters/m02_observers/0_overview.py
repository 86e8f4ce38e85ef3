# %% [markdown] lang="zh"
# # M02 概覽 | scale 與 zero point 從哪裡來
#
# [M01](../m01_first_ptq/0_overview.py) 說過：observer 看資料，算出 scale 與 zero point。這一章問的是它**憑什麼**這樣選。
# 選 scale 就是選一段範圍，而選範圍永遠是同一個取捨：開大，每一格變粗；開小，被 clamp 的值變多。本頁先把這個取捨畫成一張
# 圖，再自己寫一個 observer 放進 PT2E。
#
# | 問題 | 一句話的答案 | 頁 |
# | --- | --- | --- |
# | 範圍為什麼不能就取最小到最大？ | 可以，但格子少的時候，捨棄極值的誤差反而小 | 本頁 |
# | 現成的 observer 各選什麼範圍？ | 全收、逐批平均、搜尋直方圖；遇到離群值時差別很大 | [M02-1](1_observers.py) |
# | 訓練時怎麼模擬量化？ | fake quant：前向捨入，反向假裝沒捨入 | [M02-2](2_fake_quant.py) |
# | 校準要多少資料、什麼資料？ | 像部署時的資料，量不必多；縮放錯了最傷 | [M02-3](3_calibration_data.py) |
#
# **讀完你會知道**
#
# - 量化誤差由哪兩部分組成，各隨範圍怎麼變
# - 為什麼 4 位元該縮範圍，8 位元多半不必
# - observer 要遵守的約定，以及怎麼換上自己寫的 observer
# - 設定裡的開關各替 weight 與 activation 配了哪種 observer

# %% [markdown] lang="en"
# # M02 Overview | Where scale and zero point come from
#
# [M01](../m01_first_ptq/0_overview.py) said that an observer watches data and computes a scale and a zero point. This
# chapter asks **on what grounds**. To choose a scale is to choose a range, and that is always the same trade-off: make
# it wide and every step gets coarse, make it narrow and more values are clamped. This page first draws the trade-off as
# one picture, then writes an observer of its own and puts it into PT2E.
#
# | Question | Answer in one line | Page |
# | --- | --- | --- |
# | Why not just take minimum to maximum? | You can, but when steps are few, giving up the extremes costs less | this page |
# | What range do the stock observers pick? | All of it, an average over batches, a search in a histogram; outliers set them apart | [M02-1](1_observers.py) |
# | How is quantization simulated in training? | Fake quant: round on the way forward, pretend not to on the way back | [M02-2](2_fake_quant.py) |
# | How much calibration data, and which? | Data like that in deployment, not much of it; wrong scaling hurts most | [M02-3](3_calibration_data.py) |
#
# **What you will know**
#
# - The two parts of the quantization error, and how each depends on the range
# - Why a range should shrink at 4 bits and mostly need not at 8
# - What an observer has to do, and how to use one that you wrote
# - Which observer each switch of the configuration gives to weights and activations

# %% [markdown] lang="zh"
# ## 先預測
#
# 有十萬個標準常態的數（平均 0、標準差 1），最大的絕對值是 4 點多。要用對稱的範圍 $[-L, L]$ 量化它們：
#
# 1. 4 位元，只有 15 個整數可用：$L$ 取多少，均方誤差最小？
# 2. 8 位元，有 255 個整數：$L$ 又該取多少？
# 3. 在最好的 $L$ 上，4 位元的誤差主要來自捨入，還是 clamp？

# %% [markdown] lang="en"
# ## Predict first
#
# Take a hundred thousand standard normal numbers (mean 0, standard deviation 1); the largest is a bit over 4 in
# magnitude. We quantize them with a symmetric range $[-L, L]$:
#
# 1. At 4 bits there are just 15 integers to use. Which $L$ gives the smallest mean squared error?
# 2. At 8 bits there are 255. Which $L$ now?
# 3. At the best $L$, is most of the 4-bit error due to rounding or to clamping?

# %% tags=["setup"]
from dataclasses import replace

from common.data import calibration_batches
from common.env import quiet
from common.models import example_inputs, get_model
from common.viz import T, graph, say, show, table

import matplotlib.pyplot as plt
import torch

quiet()

# %% [markdown] lang="zh"
# ## 兩種誤差
#
# 範圍內的值被吸到最近的一格，這是**捨入誤差**：最多 $s/2$，而值若均勻散在格子裡，均方是
#
# $$\frac{1}{s}\int_{-s/2}^{s/2} e^2\,de = \frac{s^2}{12} \tag{1}$$
#
# 範圍外的值被拉回邊界，這是 **clamp 誤差**：超出多少就差多少。兩者發生在同一對 q → dq 裡，看值在範圍內還是範圍外就能
# 分開。

# %% [markdown] lang="en"
# ## Two kinds of error
#
# A value inside the range snaps to the nearest step. That is **rounding error**: at most $s/2$, and for values spread
# evenly within a step its mean square is
#
# $$\frac{1}{s}\int_{-s/2}^{s/2} e^2\,de = \frac{s^2}{12} \tag{1}$$
#
# A value outside is moved to the border. That is **clamping error**, as large as the distance to the border. Both
# happen in the same pair q → dq, and whether a value lies inside tells them apart.

# %%
from torchao.quantization.pt2e.observer import UniformQuantizationObserverBase

ops = torch.ops.quantized_decomposed  # q and dq; torchao registers them
x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))


def errors(x, limit, bits):
    """Mean squares of clamping and rounding error, range ±limit."""
    top = 2 ** (bits - 1) - 1  # integers -top .. top
    s = limit / top
    q = ops.quantize_per_tensor(x, s, 0, -top, top, torch.int8)
    restored = ops.dequantize_per_tensor(q, s, 0, -top, top, torch.int8)
    squared, outside = (x - restored).square(), x.abs() > limit
    clamping = (squared * outside).mean().item()
    return clamping, (squared * ~outside).mean().item()


# %%
clamping, rounding = errors(x, limit=5.0, bits=4)
assert x.abs().max() < 5.0 and clamping == 0, "nothing lies outside of ±5"
by_formula_1 = (5.0 / 7) ** 2 / 12
assert abs(rounding / by_formula_1 - 1) < 0.03, "not formula (1)"

# %% [markdown] lang="zh"
# ## 一張圖看完取捨
#
# 把 $L$ 從 0.5 掃到 5，每個 $L$ 各算一次：

# %% [markdown] lang="en"
# ## The trade-off in one picture
#
# Now let $L$ go from 0.5 to 5 and compute both parts for each:

# %%
limits = torch.linspace(0.5, 5.0, 91).tolist()
sweep = {}  # bits -> tensor (limits, 2): clamping and rounding
for bits in (4, 8):
    sweep[bits] = torch.tensor([errors(x, limit, bits) for limit in limits])

best = {}  # bits -> the limit with the smallest sum
for bits, parts in sweep.items():
    best[bits] = limits[parts.sum(dim=1).argmin()]
    clamping, rounding = parts.T
    assert (clamping.diff() <= 0).all(), "wider range, more clamping?"
    assert rounding[-1] > 10 * rounding[0], "rounding should grow with s"

largest = x.abs().max().item()
assert best[4] < 0.75 * largest, "4 bits should give up the extremes"
assert best[8] > 0.8 * largest, "8 bits should keep nearly everything"

# %% tags=["plot"]
figure, panels = plt.subplots(1, 2, figsize=(7.2, 3.3), sharey=True)
for panel, (bits, parts) in zip(panels, sweep.items(), strict=True):
    total = parts.sum(dim=1)
    clamping = parts[:, 0].clone()
    clamping[clamping == 0] = torch.nan  # a logarithm of 0 can't be drawn
    panel.semilogy(limits, clamping, "--", color="C1", label="clamping")
    panel.semilogy(limits, parts[:, 1], ":", color="C2", label="rounding")
    panel.semilogy(limits, total, color="C0", label="both")
    panel.plot(best[bits], total.min(), "o", color="black")
    panel.annotate(
        f"best: ±{best[bits]:.2f}",
        (best[bits], total.min()),
        xytext=(0, 9),
        textcoords="offset points",
        ha="center",
    )
    panel.set(title=f"{bits} bits", xlabel="limit L of the range ±L")
    panel.set_ylim(3e-6, 1)
panels[0].set_ylabel("mean squared error")
panels[0].legend(loc="lower left")
show(
    figure,
    alt=T(
        zh="均方誤差隨範圍 L 變化，左 4 位元、右 8 位元。clamp 誤差一路下降，捨入誤差一路上升，總和先降後升；"
        "4 位元的最低點明顯在資料最大值之內，8 位元的最低點接近資料最大值。",
        en="Mean squared error against the limit L, 4 bits on the left, 8 bits on the right. Clamping falls, rounding "
        "rises, and their sum falls, then rises. At 4 bits the lowest point lies well inside the data; at 8 bits it is close to "
        "the largest value.",
    ),
    caption=T(
        zh="範圍開大，clamp 誤差變少、捨入誤差變多；最好的範圍在兩者之間，而且看位元數。",
        en="A wider range clamps less and rounds more. The best one lies in between, and depends on the number of bits.",
    ),
)

# %% tags=["plot"]
clamping, rounding = errors(x, best[4], 4)
share = clamping / (clamping + rounding)
verdict = (
    T(zh="主要來自捨入", en="mostly from rounding")
    if share < 0.4
    else T(zh="主要來自 clamp", en="mostly from clamping")
    if share > 0.6
    else T(zh="兩者差不多", en="from both about equally")
)
say(
    T(
        zh="最大的絕對值是 {largest}。4 位元最好的範圍是 ±{four}，8 位元是 ±{eight}；4 位元在最好的範圍上，誤差{verdict}"
        "（clamp 佔 {share}）。這是三個預測的答案。",
        en="The largest magnitude is {largest}. The best range is ±{four} at 4 bits and ±{eight} at 8; at 4 bits the error "
        "there comes {verdict} (clamping is {share} of it). These are the answers to the three predictions.",
    ).format(
        largest=f"{largest:.2f}",
        four=f"{best[4]:.2f}",
        eight=f"{best[8]:.2f}",
        verdict=verdict,
        share=f"{share:.0%}",
    )
)

# %% [markdown] lang="zh"
# 道理在式 (1)：多一個位元，$s$ 大約減半，捨入誤差大約變成四分之一，clamp 誤差卻完全不變。所以位元越多，越不值得用 clamp 去換更
# 細的格子。int8 的 activation 取最小到最大，通常已經接近最好；4 位元就不行了。記住這張圖，後面三頁都在它上面移動。

# %% [markdown] lang="en"
# The reason is in (1): one more bit about halves $s$ and cuts rounding error to about a quarter, while clamping error stays
# exactly what it was. The more bits, the less it pays to buy finer steps with clamping. For int8 activations, minimum to maximum
# is usually close to the best; at 4 bits it isn't. Keep this picture in mind: the next three pages move around on it.

# %%
at_two = {bits: errors(x, 2.0, bits) for bits in (4, 5)}
(clamping_4, rounding_4), (clamping_5, rounding_5) = at_two.values()
assert abs(clamping_5 / clamping_4 - 1) < 1e-4, "clamping saw the bits"
# 14 steps became 30, so s shrinks by 14 / 30: a bit more than half
expected = (14 / 30) ** 2
assert abs(rounding_5 / rounding_4 / expected - 1) < 0.03

# %% [markdown] lang="zh"
# ## 最小的例子：自己寫一個 observer
#
# observer 是一個模組，約定只有兩條：`forward` 記下需要的統計，並把輸入**原樣**傳回；`calculate_qparams` 由統計選出範圍，
# 回傳 scale 與 zero point。範圍換成 scale 的公式（M01 的式 (3)）由基底類別的 `_calculate_qparams` 負責。下面這個
# observer 取平均值左右各三個標準差：

# %% [markdown] lang="en"
# ## The smallest example: an observer of our own
#
# An observer is a module with two duties. `forward` records whatever statistics it needs and returns its input **as it
# is**; `calculate_qparams` chooses a range from those statistics and returns scale and zero point. Turning a range into
# a scale (formula (3) of M01) is done by `_calculate_qparams` of the base class. This observer takes three standard
# deviations to both sides of the mean:


# %%
class ThreeSigmaObserver(UniformQuantizationObserverBase):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.register_buffer("sums", torch.zeros(3, dtype=torch.float64))

    def forward(self, x):
        v = x.detach().double()
        count = torch.tensor(float(v.numel()), dtype=torch.float64)
        self.sums += torch.stack([count, v.sum(), v.square().sum()])
        return x

    def center_and_spread(self):
        n, total, squares = self.sums
        mean = total / n
        return mean.float(), (squares / n - mean**2).sqrt().float()

    def calculate_qparams(self):
        mean, sigma = self.center_and_spread()
        return self._calculate_qparams(mean - 3 * sigma, mean + 3 * sigma)


# %% [markdown] lang="zh"
# 要讓 PT2E 用它，不必改 quantizer：設定裡的 `QuantizationSpec` 寫著每種 tensor 配哪個 observer，換掉那一欄就
# 好。`with_args` 先把引數記下來，等 `prepare_pt2e` 替每條邊各建一個。

# %% [markdown] lang="en"
# To have PT2E use it there is no need to touch the quantizer. A `QuantizationSpec` in the configuration says which
# observer a kind of tensor gets, so we replace that field. `with_args` keeps the arguments until `prepare_pt2e` builds
# one observer for each edge.

# %%
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

config = get_symmetric_quantization_config(is_per_channel=True)
ours = ThreeSigmaObserver.with_args(eps=2**-12)  # the stock one's floor
spec = replace(config.input_activation, observer_or_fake_quant_ctr=ours)
config = replace(config, input_activation=spec, output_activation=spec)

model = get_model("conv_relu")
exported = torch.export.export(model, example_inputs(1)).module()
prepared = prepare_pt2e(exported, XNNPACKQuantizer().set_global(config))

# %% tags=["plot"]
graph(
    prepared,
    alt=T(
        zh="conv → relu 的圖：輸入 x 與 relu 的輸出上是自己寫的 ThreeSigmaObserver，weight 上仍是 PerChannelMinMaxObserver。",
        en="The graph of conv → relu: our ThreeSigmaObserver sits on the input x and on the output of relu, "
        "and the weight still has its PerChannelMinMaxObserver.",
    ),
    caption=T(
        zh="activation 換成自己的 observer，weight 的沒動。",
        en="Activations now have our observer; that of the weight is as before.",
    ),
)

# %%
images = [image for (image,) in calibration_batches(32, batch_size=1)]
with torch.no_grad():
    outputs = []
    for image in images:
        outputs.append(prepared(image))
        assert torch.equal(outputs[-1], model(image)), "a value changed"
quantized = convert_pt2e(prepared)

q_nodes = quantized.graph.find_nodes(
    op="call_function", target=ops.quantize_per_tensor.default
)
params = {node.args[0].name: node.args[1:3] for node in q_nodes}
data = {"x": torch.cat(images), "relu": torch.cat(outputs)}
for name, values in data.items():
    s, z = params[name]
    sigma = values.std().item()
    assert abs(255 * s / (6 * sigma) - 1) < 1e-3, f"{name}: not 6 sigma"

# %% tags=["plot"]
rows = []
for name, values in data.items():
    s, z = params[name]
    low, high = s * (-128 - z), s * (127 - z)
    below = (values < low - s / 2).float().mean()
    above = (values > high + s / 2).float().mean()
    rows.append(
        [
            f"`{name}`",
            f"{values.min():.2f} .. {values.max():.2f}",
            f"{low:.2f} .. {high:.2f}",
            f"{below + above:.2%}",
        ]
    )
table(
    rows,
    [
        "tensor",
        T(zh="資料", en="data"),
        T(zh="選出的範圍", en="chosen range"),
        T(zh="被 clamp 的值", en="values clamped"),
    ],
)

# %% [markdown] lang="zh"
# 約定守住了，PT2E 就照用。範圍好不好則是另一回事：relu 的輸出不會小於 0，這個 observer 卻把 0 以下也算進去，那些整數永遠
# 用不到。最後的「試試看」會修好它。

# %% [markdown] lang="en"
# As long as the two duties are done, PT2E takes what it gets. Whether the range is any good is another matter: the output
# of ReLU is never below 0, yet this observer reaches below it, and the integers there will never be used. The exercise
# mends that.

# %%
relu_s, relu_z = params["relu"]
unused = relu_z - (-128)  # integers for values below 0
assert data["relu"].min() >= 0 and unused > 25, "nothing wasted?"

# %% [markdown] lang="zh"
# ## 設定替誰配了什麼
#
# 平常不會自己寫 observer，而是由設定的開關決定。同樣從 `QuantizationSpec` 就讀得出來：

# %% [markdown] lang="en"
# ## Who gets which observer
#
# Normally you don't write observers; the switches of the configuration decide. The `QuantizationSpec`s tell which:

# %%
switches = [
    {},
    {"is_per_channel": True},
    {"is_per_channel": True, "is_qat": True},
    {"is_per_channel": True, "is_dynamic": True},
]
kinds = []
for switch in switches:
    setting = get_symmetric_quantization_config(**switch)
    pair = setting.input_activation, setting.weight
    kinds.append([s.observer_or_fake_quant_ctr.p.func.__name__ for s in pair])
assert kinds[0] == ["HistogramObserver", "MinMaxObserver"]
assert kinds[1] == ["HistogramObserver", "PerChannelMinMaxObserver"]
assert kinds[2] == ["FusedMovingAvgObsFakeQuantize"] * 2
assert kinds[3] == ["PlaceholderObserver", "PerChannelMinMaxObserver"]

# %% tags=["plot"]
names = [", ".join(f"`{key}`" for key in switch) for switch in switches]
table(
    [
        [name or T(zh="（預設）", en="(default)"), f"`{act}`", f"`{weight}`"]
        for name, (act, weight) in zip(names, kinds, strict=True)
    ],
    [
        T(zh="設為 True 的開關", en="switches set to True"),
        "activation",
        "weight",
    ],
)

# %% [markdown] lang="zh"
# weight 是已知的常數，沒有什麼要推估；8 位元時取最小到最大就好。activation 要從資料推估，PTQ 用直方圖，QAT 用邊訓練邊
# 移動的平均。dynamic 的 activation 到執行時才算 scale，`PlaceholderObserver` 只是先佔個位置。
#
# ## 名詞
#
# | 名詞 | 是什麼 |
# | --- | --- |
# | 範圍 | scale 與 zero point 能表示的實數區間，$[s(q_{\min}-z),\ s(q_{\max}-z)]$ |
# | 捨入誤差、clamp 誤差 | 範圍內的值吸到格子上的誤差；範圍外的值拉回邊界的誤差 |
# | 離群值 | 遠離其他數值的少數值 |
# | 移動平均 | 每批資料只讓範圍朝新的最小、最大值移動一小步 |
# | fake quant | 量化後立刻反量化，而且有梯度的模組；QAT 用它取代 observer |
# | STE | straight-through estimator：反向時把捨入當成沒發生 |
#
# 全部的名詞在[詞彙表](../glossary.md)。

# %% [markdown] lang="en"
# A weight is a known constant: nothing has to be estimated, and at 8 bits minimum to maximum will do. Activations must be estimated from data: PTQ
# uses a histogram, QAT an average that moves along with training. With dynamic quantization the scale of an activation
# is computed at run time, and `PlaceholderObserver` only keeps the place.
#
# ## Terms
#
# | Term | What it is |
# | --- | --- |
# | range | the real numbers that a scale and a zero point can represent, $[s(q_{\min}-z),\ s(q_{\max}-z)]$ |
# | rounding error, clamping error | what snapping to a step costs inside the range; what moving to the border costs outside |
# | outlier | one of a few values far from all others |
# | moving average | each batch moves the range only a small step toward its own minimum and maximum |
# | fake quant | a module that quantizes, dequantizes at once, and has a gradient; QAT uses it in place of an observer |
# | STE | straight-through estimator: on the way back, rounding counts as if it hadn't happened |
#
# All terms are in the [glossary](../glossary.md).

# %% [markdown] lang="zh"
# ## 小結
#
# - 誤差有兩部分：捨入誤差約 $s^2/12$，隨範圍變大；clamp 誤差隨範圍變小。
# - 每多一個位元，捨入誤差大約變四分之一，clamp 誤差不變：位元少才值得縮範圍。
# - observer 的約定是原樣傳回輸入、`calculate_qparams` 回傳 scale 與 zero point；用 `QuantizationSpec` 就能換。
# - 預設：activation 用直方圖，weight 用最小到最大，QAT 用移動平均加 fake quant。

# %% [markdown] lang="en"
# ## Recap
#
# - The error has two parts: rounding, about $s^2/12$, grows with the range; clamping shrinks with it.
# - Each additional bit cuts rounding error to about a quarter and leaves clamping alone: only few bits make it pay to
#   shrink a range.
# - An observer returns its input unchanged, and scale and zero point from `calculate_qparams`; a `QuantizationSpec`
#   swaps it.
# - By default activations get a histogram, weights minimum to maximum, and QAT a moving average with fake quant.

# %% [markdown] lang="zh"
# ## 試試看
#
# 改寫 `ThreeSigmaObserver`：範圍不得超出看過的最小、最大值。用它看一遍 relu 的輸出，zero point 應該是多少？格子細了多少？

# %% [markdown] lang="en"
# ## Try it
#
# Change `ThreeSigmaObserver` so that its range never exceeds the smallest and largest value it has seen. Show it the
# outputs of ReLU: what should the zero point be, and how much finer are the steps?


# %% tags=["solution"]
class MendedObserver(ThreeSigmaObserver):
    low, high = float("inf"), -float("inf")

    def forward(self, x):
        self.low = min(self.low, x.min().item())
        self.high = max(self.high, x.max().item())
        return super().forward(x)

    def calculate_qparams(self):
        mean, sigma = self.center_and_spread()
        smallest = (mean - 3 * sigma).clamp(min=self.low)
        largest = (mean + 3 * sigma).clamp(max=self.high)
        return self._calculate_qparams(smallest, largest)


mended = MendedObserver(dtype=torch.int8, quant_min=-128, quant_max=127)
for output in outputs:
    mended(output)
s, z = (value.item() for value in mended.calculate_qparams())
assert z == -128, "0 should be the lowest integer"
assert s < relu_s, "the steps are not finer"
print(f"scale {relu_s:.5f} -> {s:.5f}, zero point {relu_z} -> {z}")
print(f"a step is now {s / relu_s:.0%} of what it was")

# %% [markdown] lang="zh" tags=["solution"]
# 最小值是 0，所以 zero point 是最低的整數 −128，每個整數都用得上。這個例子也說明：好的 observer 要善用已知的事，
# 「relu 的輸出不小於 0」就寫在資料裡。

# %% [markdown] lang="en" tags=["solution"]
# The smallest value is 0, so the zero point is the lowest integer, −128, and no integer is wasted. A good observer uses
# what can be known, and that the output of ReLU is never below 0 can be read off the data.

# %% [markdown] lang="zh"
# ## 本章地圖
#
# | 頁 | 做什麼 |
# | --- | --- |
# | [M02-1 observer](1_observers.py) | 同一份資料交給三種 observer；離群值、batch 的順序、nan、inf、全零 |
# | [M02-2 fake quant](2_fake_quant.py) | 梯度從哪裡來、開關怎麼用、融合版算出的 scale 有何不同 |
# | [M02-3 校準資料](3_calibration_data.py) | 準確率隨資料量的變化；錯的資料怎麼認出來 |
#
# 這一章刻意跳過：哪些邊上有 observer（[M01-2](../m01_first_ptq/2_prepare_convert.py)）、標註怎麼寫
# （[M03](../m03_quantizer/0_overview.py)）、逐層找出誤差在哪（[M05](../m05_accuracy/0_overview.py)）、用 fake quant 訓練
# （[M06](../m06_qat/0_overview.py)）。
#
# ## 參考資料
#
# - torchao 0.18.0 原始碼：`torchao/quantization/pt2e/observer.py` 與 `fake_quantize.py`
# - Nagel 等人，〈[A White Paper on Neural Network Quantization](https://arxiv.org/abs/2106.08295)〉，2021：第 3 節談範圍怎
#   麼選
# - Banner 等人，〈[Post training 4-bit quantization of convolutional networks for
#   rapid-deployment](https://arxiv.org/abs/1810.05723)〉，2019：替 4 位元推導最好的 clamp 範圍

# %% [markdown] lang="en"
# ## Map of the chapter
#
# | Page | What happens there |
# | --- | --- |
# | [M02-1 Observers](1_observers.py) | three observers on the same data; outliers, the order of batches, nan, inf, all zeros |
# | [M02-2 Fake quant](2_fake_quant.py) | where gradients come from, the switches, and why the fused version gets another scale |
# | [M02-3 Calibration data](3_calibration_data.py) | accuracy against the amount of data; how to recognize the wrong kind |
#
# Left out on purpose: which edges have observers ([M01-2](../m01_first_ptq/2_prepare_convert.py)), how annotations are
# written ([M03](../m03_quantizer/0_overview.py)), finding the layer behind an error
# ([M05](../m05_accuracy/0_overview.py)), and training with fake quant ([M06](../m06_qat/0_overview.py)).
#
# ## References
#
# - Source of torchao 0.18.0: `observer.py` and `fake_quantize.py` in `torchao/quantization/pt2e/`
# - Nagel et al., "[A White Paper on Neural Network Quantization](https://arxiv.org/abs/2106.08295)", 2021: section 3
#   discusses how to set ranges
# - Banner et al., "[Post training 4-bit quantization of convolutional networks for
#   rapid-deployment](https://arxiv.org/abs/1810.05723)", 2019: derives the best clamping range at 4 bits
