# %% [markdown] lang="zh"
# # M02-2 | fake quant：量化也能算梯度
#
# 訓練後量化把模型當成成品；QAT 則讓模型在訓練時就感受到量化。難處在梯度：捨入是階梯，斜率處處是 0。這一頁拆開 fake quant
# 這個模組，看它前向做什麼、反向假裝什麼、兩個開關怎麼用，最後看融合版的一個陷阱：訓練時用的 scale，和 convert 寫進圖裡的不
# 一樣。怎麼用它訓練整個模型，是 [M06](../m06_qat/0_overview.py) 的事。
#
# **讀完你會知道**
#
# - 為什麼直接捨入學不動，STE 怎麼繞過去
# - 哪些值有梯度、哪些沒有，被 clamp 的值會怎樣
# - `FakeQuantize` 的兩個開關各停掉什麼，為什麼要用 torchao 的函式去關
# - `FusedMovingAvgObsFakeQuantize` 在對稱量化時，scale 為什麼和 `calculate_qparams()` 不同

# %% [markdown] lang="en"
# # M02-2 | Fake quant: quantization with a gradient
#
# Post-training quantization takes the model as finished; QAT lets it feel quantization while it trains. The difficulty is
# the gradient: rounding is a staircase, and its slope is 0 wherever you stand. This page takes the fake quant module
# apart: what it does on the way forward, what it pretends on the way back, what its two switches do. At the end comes a
# trap of the fused version: the scale it trains with is not the one that convert writes into the graph. How to train a
# whole model with it is the subject of [M06](../m06_qat/0_overview.py).
#
# **What you will know**
#
# - Why plain rounding can't learn, and how the STE gets around that
# - Which values have a gradient and which have none, and what becomes of clamped ones
# - What each switch of `FakeQuantize` stops, and why to flip it with torchao's functions
# - Why, in symmetric quantization, the scale of `FusedMovingAvgObsFakeQuantize` differs from `calculate_qparams()`

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 用 `torch.round` 寫的量化能反向傳播嗎？梯度是多少？
# 2. scale 0.01、zero point 0、整數 −128 到 127：1.274 與 1.28 經過 fake quant，各自的梯度是多少？
# 3. QAT 訓練時用的 weight scale，就是部署時的 scale 嗎？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. Can you backpropagate through a quantization written with `torch.round`? What is the gradient?
# 2. Scale 0.01, zero point 0, integers −128 to 127: what are the gradients of 1.274 and 1.28 through fake quant?
# 3. Is the weight scale that QAT trains with the one that gets deployed?

# %% tags=["setup"]
import textwrap

from common.env import quiet
from common.models import example_inputs, get_model
from common.viz import T, graph, say, show, table

import matplotlib.pyplot as plt
import torch

quiet()

# %% [markdown] lang="zh"
# ## 同樣的數值，三種梯度
#
# 「量化再反量化」有三種寫法：照公式用 `torch.round`、convert 放進圖裡的 q 與 dq，以及 `torch.fake_quantize_per_tensor_affine`。
# 前向的結果逐位元相同：

# %% [markdown] lang="en"
# ## The same values, three gradients
#
# There are three ways to write "quantize and dequantize": by formula with `torch.round`, the q and dq that convert puts
# into the graph, and `torch.fake_quantize_per_tensor_affine`. On the way forward they agree bit for bit:

# %%
from torchao.quantization.pt2e import FakeQuantize

ops = torch.ops.quantized_decomposed  # q and dq; torchao registers them
s, z, q_min, q_max = 0.01, 0, -128, 127


def by_formula(x):
    q = ((x * (1 / s)).round() + z).clamp(q_min, q_max)
    return s * (q - z)


def by_graph_ops(x):
    q = ops.quantize_per_tensor(x, s, z, q_min, q_max, torch.int8)
    return ops.dequantize_per_tensor(q, s, z, q_min, q_max, torch.int8)


def by_fake_quant(x):
    return torch.fake_quantize_per_tensor_affine(x, s, z, q_min, q_max)


x = torch.linspace(-2, 2, 4001)
assert torch.equal(by_fake_quant(x), by_graph_ops(x)), "other values"
assert torch.equal(by_fake_quant(x), by_formula(x)), "not the formula"


# %%
def gradient(function, x):
    """d(sum of outputs) / dx, or the error that says why not."""
    x = x.clone().requires_grad_()
    try:
        function(x).sum().backward()
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    return x.grad


assert not gradient(by_formula, x).any(), "round has a slope"
assert gradient(by_fake_quant, x).any(), "fake quant has no gradient"
print(textwrap.fill(gradient(by_graph_ops, x), 76))

# %% [markdown] lang="zh"
# 預測 1 的答案：公式可以反向傳播，但梯度全是 0，什麼也學不到。q 與 dq 更乾脆，中間是整數，計算圖在那裡斷掉，所以 convert
# 之後的模型不能再訓練。只有 fake quant 有梯度。
#
# ## STE：假裝沒有捨入
#
# fake quant 的反向用的是 straight-through estimator（STE）：捨入當成恆等函式，clamp 照常。所以
#
# $$\frac{\partial \hat{x}}{\partial x} = \mathbf{1}\big[\, q_{\min} \le \mathrm{round}(x/s) + z \le q_{\max} \,\big] \tag{1}$$
#
# $\mathbf{1}[\cdot]$ 在括號裡的條件成立時是 1，否則是 0，所以它就是「在不在範圍裡」的遮罩：

# %% [markdown] lang="en"
# The answer to prediction 1: the formula can be backpropagated, but all gradients are 0 and nothing is learned. q and dq
# are blunter: there are integers in between, which cut the graph of gradients, so a converted model can't be trained any
# further. Only fake quant has a gradient.
#
# ## STE: pretend there was no rounding
#
# The backward pass of fake quant is a straight-through estimator (STE): rounding counts as the identity, clamping counts
# as it is. Hence
#
# $$\frac{\partial \hat{x}}{\partial x} = \mathbf{1}\big[\, q_{\min} \le \mathrm{round}(x/s) + z \le q_{\max} \,\big] \tag{1}$$
#
# where $\mathbf{1}[\cdot]$ is 1 if the condition in brackets holds and 0 if not: a mask of what is in range.

# %%
q = (x * (1 / s)).round() + z
mask = (q >= q_min) & (q <= q_max)
assert torch.equal(gradient(by_fake_quant, x), mask.float()), "not (1)"

pair = torch.tensor([1.274, 1.28])
assert gradient(by_fake_quant, pair).tolist() == [1.0, 0.0]
assert abs(by_fake_quant(pair) - 1.27).max() < 1e-6, "the same value"

# %% [markdown] lang="zh"
# 預測 2 的答案：1.274 捨入到 127，還在範圍裡，梯度是 1；1.28 捨入到 128，出界，梯度是 0。兩者的前向都是 1.27。同一件事可以
# 用兩行 autograd 寫出來，這也是讀別人程式時常見的 `detach` 手法：

# %% [markdown] lang="en"
# The answer to prediction 2: 1.274 rounds to 127, still inside, so its gradient is 1; 1.28 rounds to 128, outside, so it
# is 0. Both come out as 1.27. The same can be had from autograd in two lines, the `detach` idiom that you will meet in
# other people's code:


# %%
def by_detach(x):
    inside = x.clamp(s * (q_min - z - 0.5), s * (q_max - z + 0.5))
    return inside + (by_formula(x) - inside).detach()


off_ties = x + s / 4  # away from the exact half steps
assert torch.allclose(by_detach(off_ties), by_fake_quant(off_ties), atol=1e-6)
assert torch.equal(
    gradient(by_detach, off_ties), gradient(by_fake_quant, off_ties)
)

# %% tags=["plot"]
coarse = torch.linspace(-1.6, 1.6, 1601)


def stairs(x):
    return torch.fake_quantize_per_tensor_affine(x, 0.25, 0, -4, 3)


figure, (upper, lower) = plt.subplots(
    2, 1, figsize=(6.0, 4.2), sharex=True, height_ratios=(1.6, 1)
)
upper.plot(coarse, coarse, "--", color="C1", label="identity")
upper.plot(coarse, stairs(coarse), color="C0", label="fake quant")
upper.set(ylabel="output", ylim=(-1.4, 1.2))
upper.legend(loc="upper left")
lower.plot(coarse, gradient(stairs, coarse), color="C0")
lower.set(xlabel="input", ylabel="gradient", ylim=(-0.15, 1.2))
show(
    figure,
    alt=T(
        zh="上：fake quant 的輸出是階梯，沿著恆等線上升，兩端是平的。下：梯度在範圍內是 1，兩端範圍外是 0。",
        en="Top: the output of fake quant is a staircase along the identity, flat at both ends. Bottom: the gradient is "
        "1 inside the range and 0 outside.",
    ),
    caption=T(
        zh="scale 0.25、整數 −4 到 3。梯度取的是階梯的大勢，不是每一階的斜率；兩端 clamp 掉的地方是 0。",
        en="Scale 0.25, integers −4 to 3. The gradient follows the trend of the stairs, not their slope; "
        "where values are clamped it is 0.",
    ),
)

# %% [markdown] lang="zh"
# STE 給的不是真正的梯度，但方向對：階梯的平均走勢就是恆等線。代價在兩端，被 clamp 的值收不到梯度，自己回不來，除非 observer
# 把範圍放寬。所以 observer 和 fake quant 總是一起出現。
#
# ## 模組：observer 加 fake quant，兩個開關
#
# `FakeQuantize` 把兩者包成一個模組：前向時先讓 observer 更新範圍、算 scale，再做 fake quant。兩步各有開
# 關，`module.apply(disable_observer)` 停掉前者，`module.apply(disable_fake_quant)` 停掉後者。

# %% [markdown] lang="en"
# What the STE returns is not the true gradient, but it points the right way: on average the stairs follow the identity.
# The price is paid at both ends: clamped values get no gradient and can't come back by themselves, unless the observer
# widens the range. That is why observer and fake quant always come together.
#
# ## The module: observer plus fake quant, two switches
#
# `FakeQuantize` packs both into one module. On the way forward its observer updates the range and computes a scale, then
# it fake-quantizes. Each part has a switch: `module.apply(disable_observer)` stops the former and
# `module.apply(disable_fake_quant)` the latter.

# %%
from torchao.quantization.pt2e import (
    MovingAverageMinMaxObserver,
    disable_fake_quant,
    disable_observer,
)

INT8 = {"dtype": torch.int8, "quant_min": -128, "quant_max": 127}
first = torch.linspace(-1, 1, 101)
second = 10 * first  # a batch with a much wider range


def after_switching(*switches):
    """Did the second batch move the scale? Did its values change?"""
    module = FakeQuantize(observer=MovingAverageMinMaxObserver, **INT8)
    module(first)
    for switch in switches:
        module.apply(switch)
    before = module.scale.clone()
    output = module(second)
    return not module.scale.equal(before), not output.equal(second)


cases = [(), (disable_observer,), (disable_fake_quant,)]
cases += [(disable_observer, disable_fake_quant)]
effects = [after_switching(*case) for case in cases]
assert effects == [(True, True), (False, True), (True, False), (False, False)]

# %% tags=["plot"]
yes, no = T(zh="是", en="yes"), T(zh="否", en="no")
uses = [
    T(zh="QAT 的前段：邊學邊調範圍", en="early QAT: learn while ranges adapt"),
    T(zh="QAT 的後段與評估：範圍固定", en="late QAT, evaluation: ranges fixed"),
    T(zh="只校準，還不量化", en="calibrate only, don't quantize yet"),
    T(zh="當作不存在，和 fp32 比", en="as if absent, to compare with fp32"),
]
table(
    [
        [
            ", ".join(f"`{switch.__name__}`" for switch in case)
            or T(zh="（都開著）", en="(both on)"),
            yes if moved else no,
            yes if changed else no,
            use,
        ]
        for case, (moved, changed), use in zip(
            cases, effects, uses, strict=True
        )
    ],
    [
        T(zh="關掉", en="switched off"),
        T(zh="範圍更新？", en="range moves?"),
        T(zh="值被量化？", en="values change?"),
        T(zh="用在", en="used for"),
    ],
)

# %% [markdown] lang="zh"
# 開關函式要從 torchao 拿。`torch.ao.quantization` 有同名的函式，還能匯入，但它只認得舊的類別：對 torchao 的模組什麼也不做，
# 也不出聲。

# %% [markdown] lang="en"
# Take the switches from torchao. `torch.ao.quantization` has functions of the same names that can still be imported, but
# they only know the old classes: to a module of torchao they do nothing, and say nothing.

# %%
from torch.ao.quantization import disable_observer as old_disable_observer

module = FakeQuantize(observer=MovingAverageMinMaxObserver, **INT8)
module.apply(old_disable_observer)
assert module.observer_enabled.item() == 1, "the old switch works now"
module.apply(disable_observer)
assert module.observer_enabled.item() == 0, "torchao's own switch failed"

# %% [markdown] lang="zh"
# ## 在模型裡
#
# `prepare_qat_pt2e` 把 fake quant 放在 PTQ 放 observer 的地方，前提是設定裡有 `is_qat=True`；漏了它，圖上只有普通的
# observer（[概覽](0_overview.py)的表），
# 訓練照跑，卻從未模擬量化。下圖是熟悉的 conv → relu，weight 取 4 位元：

# %% [markdown] lang="en"
# ## In a model
#
# `prepare_qat_pt2e` puts fake quant where PTQ puts observers, provided the configuration says `is_qat=True`. Without that
# the graph gets plain observers (see the table of the [overview](0_overview.py)), and training goes through without ever simulating quantization. Here is the familiar
# conv → relu, with 4-bit weights:

# %%
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e import FusedMovingAvgObsFakeQuantize
from torchao.quantization.pt2e.quantize_pt2e import (
    convert_pt2e,
    prepare_qat_pt2e,
)

model = get_model("conv_relu")
(image,) = example_inputs(1)
with torch.no_grad():
    fp32_output = model(image)

# train or eval mode: no difference without BN and dropout
exported = torch.export.export(model, (image,)).module()
four_bits = {"weight_qmin": -7, "weight_qmax": 7}  # weights, per tensor
config = get_symmetric_quantization_config(is_qat=True, **four_bits)
prepared = prepare_qat_pt2e(exported, XNNPACKQuantizer().set_global(config))

# %% tags=["plot"]
graph(
    prepared,
    alt=T(
        zh="conv → relu 的 QAT 圖：x、weight、relu 的輸出上各有一個融合的 fake quant。",
        en="The QAT graph of conv → relu: a fused fake quant sits on x, on the weight and on the output of relu.",
    ),
    caption=T(
        zh="位置和 PTQ 的 observer 相同，類別換成 fake quant。",
        en="The places are those of PTQ's observers; the class is now fake quant.",
    ),
)

# %%
output = prepared(image)
output.sum().backward()
modules = [
    module
    for module in prepared.modules()
    if isinstance(module, FusedMovingAvgObsFakeQuantize)
]
assert len(modules) == 3, f"{len(modules)} instead of x, weight and relu"
assert model.conv.weight.grad.any(), "the weight gets no gradient"
assert not output.equal(fp32_output), "nothing was quantized"

prepared.apply(disable_fake_quant)
with torch.no_grad():
    assert torch.equal(prepared(image), fp32_output), "still quantizing"

# %% [markdown] lang="zh"
# 梯度一路穿過三個 fake quant，到了 conv 的 weight。注意它落在**原本的** `model` 上：export 與 prepare 共用同一份參數，訓練
# `prepared` 就是訓練 `model`。想留住 fp32 的版本，export 之前先 `copy.deepcopy`。
#
# ## 融合版的 scale 不是部署的 scale
#
# 設定用的是 `FusedMovingAvgObsFakeQuantize`：移動平均、算 scale、fake quant 合成一個 C++ kernel。convert 卻不看它訓練時用的
# `scale`，而是再問一次 `calculate_qparams()`。非對稱的 activation 兩者相同，對稱的 weight 則不同：

# %% [markdown] lang="en"
# The gradient passes all three fake quants and reaches the convolution's weight. Note that it lands in the **original**
# `model`: export and prepare share its parameters, so to train `prepared` is to train `model`. To keep an fp32 version,
# make a `copy.deepcopy` before export.
#
# ## The fused scale is not the deployed scale
#
# The configuration uses `FusedMovingAvgObsFakeQuantize`: moving average, scale and fake quant in one C++ kernel.
# Convert, however, doesn't look at the `scale` it trained with, but asks `calculate_qparams()` once more. For
# asymmetric activations the two agree; for symmetric weights they don't:

# %%
activation = torch.linspace(-1, 3, 1001)
asymmetric = FusedMovingAvgObsFakeQuantize(
    observer=MovingAverageMinMaxObserver, **INT8
)
asymmetric(activation)
trained, deployed = asymmetric.scale, asymmetric.calculate_qparams()[0]
assert torch.allclose(trained, deployed, rtol=1e-5), "they differ"


def trained_to_deployed(weight, top):
    """Ratio of the fused scale to that of calculate_qparams."""
    module = FusedMovingAvgObsFakeQuantize(
        observer=MovingAverageMinMaxObserver,
        dtype=torch.int8,
        quant_min=-top,
        quant_max=top,
        qscheme=torch.per_tensor_symmetric,
    )
    module(weight)
    return (module.scale / module.calculate_qparams()[0]).item()


# %% [markdown] lang="zh"
# `calculate_qparams()` 用的是 $\max|w| / n$，$n$ 是最大的整數（127 或 7）。weight 有正有負時，kernel 則把負的一邊當成有 $n+1$
# 格（torch 2.13.0，`QuantUtils.h` 的 `ChooseQuantizationParams`）：
#
# $$s_{\text{fused}} = \max\Big(\frac{-w_{\min}}{n + 1},\; \frac{w_{\max}}{n}\Big) \cdot \frac{2n + 1}{2n} \tag{2}$$

# %% [markdown] lang="en"
# `calculate_qparams()` takes $\max|w| / n$, where $n$ is the largest integer (127 or 7). For weights of
# both signs the kernel credits the negative side with $n + 1$ steps (`ChooseQuantizationParams` in `QuantUtils.h`, torch
# 2.13.0):
#
# $$s_{\text{fused}} = \max\Big(\frac{-w_{\min}}{n + 1},\; \frac{w_{\max}}{n}\Big) \cdot \frac{2n + 1}{2n} \tag{2}$$

# %%
weights = {
    "negative": torch.linspace(-1.0, 0.5, 101),  # the negative side is wider
    "positive": torch.linspace(-0.5, 1.0, 101),
}
ratios = {}  # (side, n) -> trained scale / deployed scale
for side, weight in weights.items():
    for n in (127, 7):
        low, high = weight.min().item(), weight.max().item()
        fused = max(-low / (n + 1), high / n) * (2 * n + 1) / (2 * n)
        by_formula_2 = fused / (max(-low, high) / n)
        ratios[side, n] = trained_to_deployed(weight, n)
        assert abs(ratios[side, n] / by_formula_2 - 1) < 1e-4, "not (2)"
        difference = abs(ratios[side, n] - 1)
        assert 0.4 / n < difference < 0.55 / n, "not about half of 1/n"

# %% tags=["plot"]
table(
    [
        [
            T(
                zh=f"{bits} 位元，整數 −{n} 到 {n}",
                en=f"{bits} bits, integers −{n} to {n}",
            ),
            f"{ratios['negative', n]:.4f}×",
            f"{ratios['positive', n]:.4f}×",
        ]
        for bits, n in ((8, 127), (4, 7))
    ],
    [
        T(
            zh="訓練的 scale ÷ 部署的 scale",
            en="trained scale ÷ deployed scale",
        ),
        T(zh="負的一邊較寬", en="negative side wider"),
        T(zh="正的一邊較寬", en="positive side wider"),
    ],
)

# %% [markdown] lang="zh"
# 差別大約是 $1/(2n)$：8 位元不到 0.5%，通常看不出來；4 位元大約 7%，模型訓練時適應的格子，部署時挪動了。這是預測 3 的答案。拿真的
# convert 驗證：q、dq 上的是 `calculate_qparams()` 的答案。解法（不用融合版）和它救回多少準確率，在
# [M06-3](../m06_qat/3_deployed_scales.py)。

# %% [markdown] lang="en"
# The difference is about $1/(2n)$. At 8 bits that is less than 0.5% and mostly invisible; at 4 bits it is about
# 7%: the steps the model got used to in training have moved by deployment. That answers prediction 3. We check it with a real convert: its
# dq carries the answer of `calculate_qparams()`. The remedy (no fused module), and how much accuracy it saves, is in
# [M06-3](../m06_qat/3_deployed_scales.py).

# %%
(of_weight,) = [m for m in modules if m.qscheme == torch.per_tensor_symmetric]
trained = of_weight.scale.item()
deployed = of_weight.calculate_qparams()[0].item()
quantized = convert_pt2e(prepared)

dq_nodes = quantized.graph.find_nodes(
    op="call_function", target=ops.dequantize_per_tensor.default
)
(weight_dq,) = [node for node in dq_nodes if node.args[0].op == "get_attr"]
assert weight_dq.args[1] == deployed, "not from calculate_qparams"
assert abs(trained / deployed - 1) > 0.03, "trained with the deployed scale"

# %% [markdown] lang="zh"
# ## 建構時的兩個錯誤
#
# 自己組 fake quant 時，最常撞到這兩個訊息：`dtype` 沒給（預設是無號的 `quint8`），或替融合版配了別種 observer。

# %% [markdown] lang="en"
# ## Two errors when building one
#
# Those who put together a fake quant of their own mostly meet these two messages: the `dtype` is missing (it defaults to
# the unsigned `quint8`), or the fused version got another kind of observer.

# %%
from torchao.quantization.pt2e import HistogramObserver


def error_of(build):
    try:
        build()
    except AssertionError as error:
        return f"AssertionError: {error}"
    return "no error"


histogram = {"observer": HistogramObserver, **INT8}
messages = [
    error_of(lambda: FakeQuantize(quant_min=-128, quant_max=127)),
    error_of(lambda: FakeQuantize(**INT8)),  # with a dtype
    error_of(lambda: FusedMovingAvgObsFakeQuantize(**histogram)),
    error_of(lambda: FakeQuantize(**histogram)),  # not the fused one
]
assert messages[1] == messages[3] == "no error"
for message in messages:
    print(textwrap.fill(message, 76))

# %% [markdown] lang="zh"
# ## 小結
#
# - fake quant 前向等於 q → dq；反向用 STE：捨入當恆等，clamp 照常，範圍外的梯度是 0。
# - convert 之後的圖沒有梯度，不能再訓練。
# - `FakeQuantize` 是 observer 加 fake quant，各有開關，用 torchao 的函式切換。
# - 融合版在對稱量化時用的 scale 和部署的不同；位元越少差越多。

# %% [markdown] lang="en"
# ## Recap
#
# - Forward, fake quant equals q → dq. Backward it is an STE: rounding is the identity, clamping is real, and gradients
#   outside the range are 0.
# - A converted graph has no gradient and can't be trained further.
# - `FakeQuantize` is an observer plus fake quant, each with a switch; use torchao's functions to flip them.
# - With symmetric quantization the fused version trains with another scale than the deployed one; the fewer bits, the
#   larger the difference.

# %% [markdown] lang="zh"
# ## 試試看
#
# 只有一個參數 $w$，scale 0.1，用 STE 與 SGD 最小化 $(\hat{w} - 0.33)^2$。0.33 不在格子上，最近的是 0.3。先猜 $w$ 會停在哪
# 裡，再跑跑看。

# %% [markdown] lang="en"
# ## Try it
#
# Take a single parameter $w$ and scale 0.1, and minimize $(\hat{w} - 0.33)^2$ with STE and SGD. 0.33 is not on a step;
# 0.3 is the nearest. Guess where $w$ comes to rest, then run it.

# %% tags=["solution"]
w = torch.tensor(0.0, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.02)
history = []
for _ in range(2000):
    w_hat = torch.fake_quantize_per_tensor_affine(w, 0.1, 0, -128, 127)
    loss = (w_hat - 0.33) ** 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append((w.item(), round(w_hat.item(), 4)))

late_w, late_hat = zip(*history[-500:], strict=True)
assert set(late_hat) == {0.3, 0.4}, "w_hat came to rest"
assert all(abs(value - 0.35) < 0.01 for value in late_w), "w is elsewhere"
mean = sum(late_hat) / len(late_hat)
assert abs(mean - 0.33) < 0.005, "not right on average either"
share = late_hat.count(0.3) / len(late_hat)
say(
    T(
        zh=f"$w$ 在 0.35 附近來回，最後 500 步裡 $\\hat{{w}}$ 有 {share:.0%} 是 0.3，其餘是 0.4。",
        en=f"$w$ hovers around 0.35. In the last 500 steps $\\hat{{w}}$ was 0.3 in {share:.0%} of cases and 0.4 in the rest.",
    )
)

# %% [markdown] lang="zh" tags=["solution"]
# 它停不下來。$\hat{w} = 0.3$ 時梯度把 $w$ 往上推，一過 0.35，$\hat{w}$ 跳到 0.4，梯度又往下推。平均起來 $\hat{w}$ 正好接近
# 0.33，但最後一步落在哪一格看運氣。這種振盪是 QAT 後段要調小學習率、凍結範圍的理由之一（[M06-2](../m06_qat/2_schedule.py)）。

# %% [markdown] lang="en" tags=["solution"]
# It never comes to rest. With $\hat{w} = 0.3$ the gradient pushes $w$ up; past 0.35, $\hat{w}$ jumps to 0.4 and the gradient
# pushes down. On average $\hat{w}$ is close to 0.33, but on which step it ends is luck. Such oscillation is one of the
# reasons to lower the learning rate and freeze ranges late in QAT ([M06-2](../m06_qat/2_schedule.py)).

# %% [markdown] lang="zh"
# ## 接下來
#
# 用 fake quant 訓練整個模型：[M06](../m06_qat/0_overview.py)。fake quant 碰上
# BatchNorm：[M04-2](../m04_batchnorm/2_qat_conv_bn.py)。下一章 [M03](../m03_quantizer/0_overview.py) 談誰決定 observer 放在哪裡。回到
# [M02 概覽](0_overview.py)。

# %% [markdown] lang="en"
# ## Next
#
# Training a whole model with fake quant: [M06](../m06_qat/0_overview.py). Fake quant meets BatchNorm:
# [M04-2](../m04_batchnorm/2_qat_conv_bn.py). The next chapter, [M03](../m03_quantizer/0_overview.py), is about who decides
# where observers go. Back to the [M02 overview](0_overview.py).
