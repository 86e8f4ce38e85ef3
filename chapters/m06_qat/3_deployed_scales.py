# %% [markdown] lang="zh" time_limit=1800
# # M06-3 | 部署的 scale：不一定是訓練的那個
#
# QAT（量化感知訓練）的圖裡，每個 fake quant 都有一個 `scale`，訓練時就用它。`convert_pt2e` 卻不看這個數，而是重算一次。
# 多數時候兩者一樣；預設的融合版 fake quant 配上 4 位元的 weight 時不一樣，於是訓練得好好的模型，一 convert 準確率就掉。
# 這一頁把兩個數字並排、證明掉的就是這個差別，再給出檢查的方法和兩種解法。
#
# **讀完你會知道**
#
# - convert 從哪裡拿 scale，和訓練時用的差多少
# - 差別出自哪一行原始碼，為什麼位元越少越嚴重
# - 部署之前該檢查什麼
# - 訓練之前怎麼避開，已經訓練完了又怎麼救

# %% [markdown] lang="en"
# # M06-3 | Deployed scales: not always the trained ones
#
# In the graph of QAT (quantization-aware training) every fake quant has a `scale`, and training uses it. `convert_pt2e`
# doesn't look at that number; it computes one anew. Mostly the two agree. With the fused fake quant that is the
# default, and 4-bit weights, they don't, and a model that trained well loses accuracy the moment it is converted. This
# page puts both numbers side by side, proves that they are what makes the difference, and gives a check and two
# remedies.
#
# **What you will know**
#
# - Where convert takes scales from, and how far they are from those of training
# - Which line of source code they differ by, and why fewer bits make it worse
# - What to check before you deploy
# - How to stay clear of it before training, and what can be saved after

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 訓練完、observer 也凍結了。convert 寫進圖裡的，就是每個 fake quant 的 `scale` 嗎？
# 2. 同一份 QAT 排程，weight 8 位元與 4 位元：convert 前後的準確率，哪一個差得多？
# 3. 訓練完才發現 convert 之後變差，要重新訓練嗎？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. Training is over and observers are frozen. Is what convert writes into the graph the `scale` of each fake quant?
# 2. The same QAT schedule with 8-bit and with 4-bit weights: for which are the accuracies before and after convert
#    farther apart?
# 3. You notice only after training that convert makes it worse. Do you have to train again?

# %% tags=["setup"]
import copy
import inspect
import math
import textwrap
from pathlib import Path

from common.data import test_data
from common.env import quiet
from common.metrics import (
    agreement,
    interval_in_points,
    paired_interval,
    sqnr_db,
)
from common.pt2e import difference_in_lsb, output_qparams
from common.viz import T, say, show, table

import matplotlib.pyplot as plt
import torch

quiet()
_, labels = test_data()
ops = torch.ops.quantized_decomposed


def right(logits):
    """For each test image, whether the largest logit is that of its label."""
    return logits.argmax(1) == labels


def share(which):
    """Of a bool tensor, the share that is True."""
    return which.double().mean().item()


# %% [markdown] lang="zh"
# ## 兩個數字，並排
#
# `restored` 給的是 [M06-1](1_qat_loop.py) 的迴圈訓練完、凍結好的圖，下面叫它 fake quant 圖（[M06-2](2_schedule.py) 的基
# 準排程，這裡從模型 seed 1 開始）：weight 4 位元，每個 tensor 一個 scale；fake quant 用 `XNNPACKQuantizer` 預設的融合版
# `FusedMovingAvgObsFakeQuantize`。對每個 tensor，問它兩個問題：你訓練時用的 `scale` 是多少？`calculate_qparams()` 說是
# 多少？

# %% [markdown] lang="en"
# ## Two numbers, side by side
#
# `restored` gives a graph that the loop of [M06-1](1_qat_loop.py) has trained and frozen, from here on called the
# fake-quant graph (the baseline schedule of [M06-2](2_schedule.py), here from the model of seed 1): 4-bit weights with
# one scale for each tensor, and `FusedMovingAvgObsFakeQuantize`, the fused fake quant that is the default of
# `XNNPACKQuantizer`. We ask two questions of every tensor: what is the `scale` that you trained with? And what does
# `calculate_qparams()` say?

# %%
from common.qat import Recipe, fake_quants, restored, test_logits

fused_recipe = Recipe(seed=1, bits=4, fused=True)
prepared = restored(fused_recipe)
before = test_logits(prepared)  # of the fake-quant graph

trained_scale, deployed_scale = {}, {}
for name, fake_quant in fake_quants(prepared).items():
    trained_scale[name] = fake_quant.scale.item()
    deployed_scale[name] = fake_quant.calculate_qparams()[0].item()
ratios = {
    name: trained_scale[name] / deployed_scale[name] for name in trained_scale
}

# %% tags=["plot"]
KINDS = {
    True: T(zh="對稱", en="symmetric"),
    False: T(zh="非對稱", en="asymmetric"),
}
table(
    [
        [
            f"`{name}`",
            KINDS[name.endswith("weight")],
            f"{trained_scale[name]:.6f}",
            f"{deployed_scale[name]:.6f}",
            f"{ratios[name]:.4f}×",
        ]
        for name in ratios
    ],
    [
        "tensor",
        T(zh="範圍", en="range"),
        T(zh="訓練用的 `scale`", en="`scale` of training"),
        "`calculate_qparams()`",
        T(zh="訓練 ÷ 部署", en="trained ÷ deployed"),
    ],
    caption=T(
        zh="`relu_3`、`mean`、`flatten` 共用一個 fake quant。",
        en="`relu_3`, `mean` and `flatten` share one fake quant.",
    ),
)

# %% [markdown] lang="zh"
# activation 都一樣，weight 全都不一樣。convert 寫進圖裡的是哪一個？把一份複本 convert 了來看；`conv2d_patterns_only` 只
# 是讓它少找幾種用不到的樣式，快一點，結果相同。

# %% [markdown] lang="en"
# All activations agree, and not one weight does. Which of the two does convert write into the graph? We convert a copy
# and look; `conv2d_patterns_only` merely lets it search for fewer patterns, those we have, to save time. The result is
# the same.

# %%
from common.qat import conv2d_patterns_only

from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

with conv2d_patterns_only():
    quantized = convert_pt2e(copy.deepcopy(prepared))
after = test_logits(quantized)

in_graph = {"weight": [], "activation": []}
for node in quantized.graph.find_nodes(
    op="call_function", target=ops.dequantize_per_tensor.default
):
    kind = "weight" if node.args[0].op == "get_attr" else "activation"
    in_graph[kind].append(node.args[1])

weights = [name for name in ratios if name.endswith("weight")]
deployed = sorted(deployed_scale[name] for name in weights)
assert sorted(in_graph["weight"]) == deployed, "not from calculate_qparams"
activations = {deployed_scale[name] for name in ratios if name not in weights}
assert set(in_graph["activation"]) == activations, "not from calculate_qparams"
for name, ratio in ratios.items():
    same = math.isclose(ratio, 1, rel_tol=1e-5)
    assert same == (name not in weights), f"{name}: {ratio}"


# %% tags=["plot"]
def on_convert(right_before, right_after):
    """What convert did to accuracy, from which images were right."""
    change = paired_interval(right_before, right_after)
    numbers = (
        f"{share(right_before):.2%}",
        f"{share(right_after):.2%}",
        interval_in_points(change.low, change.high),
    )
    sentence = {
        "worse": T(
            zh="fake quant 圖答對 {}，convert 之後只剩 {}（差異的配對 95% 區間，百分點：{}）。訓練時看到的準確率，部署時沒有了。",
            en="The fake-quant graph gets {} right, the converted one only {} (paired 95% interval of the change, in points: "
            "{}). The accuracy that training showed is not what gets deployed.",
        ),
        "unclear": T(
            zh="fake quant 圖答對 {}，convert 之後 {}（差異的配對 95% 區間，百分點：{}），這一次看不出變好或變差。",
            en="The fake-quant graph gets {} right, the converted one {} (paired 95% interval of the change, in points: {}): "
            "this time neither better nor worse can be told.",
        ),
        "better": T(
            zh="fake quant 圖答對 {}，convert 之後 {}（差異的配對 95% 區間，百分點：{}），這一次變好；換一個模型不一定（這是推測，沒有量到）。",
            en="The fake-quant graph gets {} right, the converted one {} (paired 95% interval of the change, in points: {}): "
            "better this time; with another model it need not be (our inference, not measured).",
        ),
    }[change.verdict]
    return T(zh=sentence.zh.format(*numbers), en=sentence.en.format(*numbers))


say(on_convert(right(before), right(after)))

# %% [markdown] lang="zh"
# 預測 1 的答案：不是。convert 對每個 fake quant 呼叫 `calculate_qparams()`（torchao 0.18.0，`convert.py`），訓練時的
# `scale` 它從頭到尾沒看。
#
# ## 差別在哪一行
#
# 融合版的 kernel 用 C++ 自己算 scale，`calculate_qparams()` 用 Python 算。兩邊的原始碼都在你裝的套件裡，直接印出來看。
# 先是 torch 的標頭檔 `ATen/native/quantized/cpu/QuantUtils.h`，再是 torchao 的 `observer.py`：

# %% [markdown] lang="en"
# The answer to prediction 1 is no. For each fake quant, convert calls `calculate_qparams()` (`convert.py`, torchao
# 0.18.0); it never looks at the `scale` of training.
#
# ## The line that differs
#
# The fused kernel computes scales in C++, `calculate_qparams()` in Python. The source of both is in the packages you
# have installed, so let us print it: first the header `ATen/native/quantized/cpu/QuantUtils.h` of torch, then
# `observer.py` of torchao.

# %%
from torchao.quantization.pt2e.observer import UniformQuantizationObserverBase

header = "include/ATen/native/quantized/cpu/QuantUtils.h"
of_kernel = Path(torch.__file__).parent.joinpath(header).read_text()
of_observer = inspect.getsource(
    UniformQuantizationObserverBase._calculate_qparams
)


def excerpt(source, first, n):
    """`n` lines from the one that has `first` in it."""
    lines = source[source.rindex("\n", 0, source.index(first)) :].splitlines()
    return textwrap.dedent("\n".join(lines[1 : n + 1]))


in_kernel = excerpt(of_kernel, "int symmetric_qmin", 6)
in_observer = excerpt(of_observer, "max_val_pos = torch.max(-min_val_neg", 2)
print(in_kernel, in_observer, sep="\n\n")
assert "(qmax - qmin) / 2 + 1" in in_kernel, "the kernel has changed"
assert "(quant_max - quant_min) / 2" in in_observer, "the observer has changed"

# %% [markdown] lang="zh"
# 差別在第一行的 `+ 1`：kernel 認為負的一邊比正的一邊多一格，像 −128 到 127 那樣。我們的整數是 $-n$ 到 $n$（4 位元
# $n=7$），負的一邊並沒有多的那一格。把後面的除法也算進去，weight 的範圍是 $[w_{\min}, w_{\max}]$、有正有負時：
#
# $$s_{\text{train}} = \max\Big(\frac{-w_{\min}}{n + 1},\; \frac{w_{\max}}{n}\Big) \cdot \frac{2n + 1}{2n}, \qquad s_{\text{deploy}} = \frac{\max(-w_{\min},\, w_{\max})}{n} \tag{1}$$
#
# [M02-2](../m02_observers/2_fake_quant.py) 用人造的 weight 驗證過左式；這裡用訓練出來的範圍，五個 weight 都驗：

# %% [markdown] lang="en"
# What differs is the `+ 1` in the first line: the kernel thinks that the negative side has one step more than the
# positive one, as in −128 to 127. Our integers go from $-n$ to $n$ (4 bits: $n=7$), so there is no such step. With the
# division that follows taken into account, for a weight whose range $[w_{\min}, w_{\max}]$ has both signs,
#
# $$s_{\text{train}} = \max\Big(\frac{-w_{\min}}{n + 1},\; \frac{w_{\max}}{n}\Big) \cdot \frac{2n + 1}{2n}, \qquad s_{\text{deploy}} = \frac{\max(-w_{\min},\, w_{\max})}{n} \tag{1}$$
#
# [M02-2](../m02_observers/2_fake_quant.py) checked the formula on the left with made-up weights. Here are the ranges
# that came out of training, for all five weights:

# %%
n = 7
wider = {}  # which side of the range is the wider one
for name in weights:
    observer = fake_quants(prepared)[name].activation_post_process
    low, high = observer.min_val.item(), observer.max_val.item()
    by_kernel = max(-low / (n + 1), high / n) * (2 * n + 1) / (2 * n)
    by_observer = max(-low, high) / n
    assert math.isclose(trained_scale[name], by_kernel, rel_tol=1e-4), "not (1)"
    assert math.isclose(deployed_scale[name], by_observer, rel_tol=1e-4)
    wider[name] = "negative" if -low > high else "positive"

# %% tags=["plot"]
SIDES = {
    "negative": T(
        zh="負的一邊寬：訓練的格子比較細",
        en="negative: training has finer steps",
    ),
    "positive": T(
        zh="正的一邊寬：訓練的格子比較粗",
        en="positive: training has coarser steps",
    ),
}
table(
    [
        [f"`{name}`", SIDES[side], f"{ratios[name]:.4f}×"]
        for name, side in wider.items()
    ],
    [
        "weight",
        T(zh="範圍的哪一邊寬", en="wider side of the range"),
        T(zh="訓練 ÷ 部署", en="trained ÷ deployed"),
    ],
    caption=T(
        zh="15/16 = 0.9375，15/14 = 1.0714。8 位元的 n 是 127，同樣的比值是 0.996 或 1.004。",
        en="15/16 = 0.9375 and 15/14 = 1.0714. At 8 bits n is 127, and the same ratios are 0.996 and 1.004.",
    ),
)

# %% tags=["plot"]
figure, panels = plt.subplots(1, 2, figsize=(7.0, 3.2))
for axes, name in zip(panels, ("fc.weight", "stem_conv.weight"), strict=True):
    observer = fake_quants(prepared)[name].activation_post_process
    w = torch.linspace(observer.min_val.item(), observer.max_val.item(), 801)
    for label, scales, look in (
        ("trained", trained_scale, {"color": "C0"}),
        ("deployed", deployed_scale, {"color": "C1", "linestyle": "--"}),
    ):
        stairs = torch.fake_quantize_per_tensor_affine(
            w, scales[name], 0, -n, n
        )
        axes.plot(w, stairs, label=label, **look)
    axes.set(title=f"{name}, {ratios[name]:.4f}×", xlabel="weight")
panels[0].set(ylabel="after fake quant")
panels[0].legend()
show(
    figure,
    alt=T(
        zh="兩張圖，各有兩道階梯。左邊 fc.weight：訓練的階梯比部署的窄、也矮。右邊 stem_conv.weight：訓練的階梯比部署的寬、也高。靠近 0 "
        "兩道重疊，越往兩端錯開越多。",
        en="Two panels with two staircases each. Left, fc.weight: the stairs of training are narrower and lower than the deployed "
        "ones. Right, stem_conv.weight: they are wider and higher. Near 0 both coincide; toward the ends they drift apart.",
    ),
    caption=T(
        zh="同一個範圍裡的同一個 weight，經過訓練的 scale 與部署的 scale。越靠兩端，越可能落在不同的整數。",
        en="The same weight in the same range, with the scale of training and the deployed one. The farther out, the likelier "
        "another integer.",
    ),
)

# %% [markdown] lang="zh"
# 換算成格數，同一個 weight 在兩條式子下最多差約 $n \cdot 1/(2n)$，也就是半格，幾個位元都一樣：捨入之後，頂多換到隔壁的
# 整數。差別在格子多大。4 位元的一格是 8 位元的 127 ÷ 7，約 18 倍，換一格的代價也是。
#
# ## 證明就是它
#
# convert 還做了別的事，例如折疊 BN。要證明兇手是 scale，就在 fake quant 圖裡只換這一樣。直接改寫 `scale` 沒有用：融合版
# 的 kernel 每次前向都從範圍重算一遍，連 observer 關掉也一樣，寫進去的數字撐不過一次呼叫。

# %% [markdown] lang="en"
# Counted in steps, the two formulas put a weight at most about $n \cdot 1/(2n)$ apart, which is half a step for any
# number of bits: after rounding, it may end on the next integer, no farther. What differs is the size of a step. At 4
# bits it is 127 / 7, about 18 times that of 8 bits, and so is the price of being one step off.
#
# ## Proof that this is it
#
# Convert does other things too, such as folding BN. To prove that the scales are to blame, we change nothing but them,
# in the fake-quant graph. Writing to `scale` won't do: the fused kernel computes it from the range at every call, even
# with its observer off, so what we write doesn't survive the next one.

# %%
from torchao.quantization.pt2e import FakeQuantize, MovingAverageMinMaxObserver

overwritten = copy.deepcopy(prepared)
of_stem = fake_quants(overwritten)["stem_conv.weight"]
of_stem.scale.fill_(deployed_scale["stem_conv.weight"])
assert torch.equal(test_logits(overwritten), before), "it had an effect"
assert of_stem.scale.item() == trained_scale["stem_conv.weight"]


def with_deployed_scales(prepared, names):
    """A copy: these tensors pass a plain FakeQuantize with the deployed scale."""
    swapped = copy.deepcopy(prepared)
    chosen = {fake_quants(swapped)[name] for name in names}
    for target, fused in [*swapped.named_modules(remove_duplicate=False)]:
        if fused in chosen:
            plain = FakeQuantize(
                observer=MovingAverageMinMaxObserver,
                dtype=fused.dtype,
                qscheme=fused.qscheme,
                quant_min=fused.quant_min,
                quant_max=fused.quant_max,
            )
            plain.disable_observer()
            scale, zero_point = fused.calculate_qparams()
            plain.scale.copy_(scale)
            plain.zero_point.copy_(zero_point)
            swapped.set_submodule(target, plain)
    return swapped


swapped = test_logits(with_deployed_scales(prepared, weights))
scale, _ = output_qparams(quantized)  # one LSB of the logits
assert difference_in_lsb(swapped, after, scale).max() < 1.5, "not the scales"
assert sqnr_db(swapped, after) > sqnr_db(before, after) + 20, "not the scales"
all_swapped = test_logits(with_deployed_scales(prepared, ratios))
assert torch.equal(all_swapped, after), "something else differs, too"

# %% tags=["plot"]
STAGES = {
    T(
        zh="fake quant 圖，訓練的 scale", en="fake-quant graph, trained scales"
    ): before,
    T(
        zh="fake quant 圖，weight 換成部署的 scale",
        en="fake-quant graph, weights with deployed scales",
    ): swapped,
    T(zh="convert 之後的圖", en="converted graph"): after,
}
table(
    [
        [
            stage,
            f"{share(right(logits)):.2%}",
            f"{difference_in_lsb(logits, after, scale).max().item():.0f}",
        ]
        for stage, logits in STAGES.items()
    ],
    [
        T(zh="圖", en="graph"),
        T(zh="準確率", en="accuracy"),
        T(
            zh="logit 與 convert 之後最多差幾 LSB",
            en="logits, at most this many LSB from the converted graph",
        ),
    ],
)

# %% [markdown] lang="zh"
# 只換五個 weight 的 scale，fake quant 圖就變成 convert 之後的圖：每個 logit 最多差 1 LSB（輸出的一格）。那 1 LSB 來自
# activation：公式相同，但 kernel 用 double 算，最後一個位元可能不同；把 activation 也換掉，就逐位元相同（上面最後一個
# `assert`）。BN 折疊與其他步驟都沒有責任。
#
# ## 部署前的檢查
#
# 所以 QAT 的最後一步不是看訓練時的準確率，而是把 fake quant 圖和 convert 之後的圖放在一起，同一批圖片，比 logit：

# %% [markdown] lang="en"
# With nothing but the scales of five weights changed, the fake-quant graph becomes the converted one: no logit is more
# than 1 LSB (one step of the output) away. That 1 LSB is due to activations: the formula is the same, but the kernel
# computes it in double precision, and the last bit can be another; with activations swapped as well, all bits agree
# (the last `assert` above). Folding BN and all the rest are innocent.
#
# ## The check before deployment
#
# The last step of QAT, then, is not the accuracy seen in training. Put the fake-quant graph and the converted one next
# to each other, feed them the same images, and compare logits:


# %%
def check_deployment(trained_logits, deployed_logits, quantized):
    """Refuse a converted graph that isn't what was trained."""
    step = output_qparams(quantized).scale
    lsb = difference_in_lsb(trained_logits, deployed_logits, step).max().item()
    if lsb > 1.5:
        sqnr = sqnr_db(trained_logits, deployed_logits)
        raise ValueError(
            f"logits up to {lsb:.0f} LSB apart, SQNR {sqnr:.1f} dB: "
            "the converted graph is not the one that was trained"
        )


try:
    check_deployment(before, after, quantized)
except ValueError as error:
    print(textwrap.fill(f"ValueError: {error}", 76))
else:
    raise AssertionError("the check let the fused 4-bit model through")

# %% [markdown] lang="zh"
# ## 解法一：訓練之前，換成沒有融合的 `FakeQuantize`
#
# 非融合的 `FakeQuantize` 每一步就是問 `calculate_qparams()`，訓練與部署用同一條公式。自己寫 `QuantizationConfig`，位置
# 不變，只換類別；weight 順便設 `averaging_constant=1.0`（[M06-2](2_schedule.py)）：

# %% [markdown] lang="en"
# ## Remedy 1, before training: `FakeQuantize` without fusion
#
# At each step the plain `FakeQuantize` asks `calculate_qparams()`, so training and deployment share one formula. Write
# a `QuantizationConfig` of your own, with the same places and another class; while at it, give weights
# `averaging_constant=1.0` ([M06-2](2_schedule.py)):

# %%
from torchao.quantization.pt2e.quantizer import (
    QuantizationConfig,
    QuantizationSpec,
)


def plain_fake_quant(averaging_constant):
    observer = MovingAverageMinMaxObserver.with_args(
        averaging_constant=averaging_constant
    )
    return FakeQuantize.with_args(observer=observer, eps=2**-12)


activation = QuantizationSpec(
    dtype=torch.int8,
    quant_min=-128,
    quant_max=127,
    qscheme=torch.per_tensor_affine,
    observer_or_fake_quant_ctr=plain_fake_quant(0.01),
)
weight = QuantizationSpec(
    dtype=torch.int8,
    quant_min=-7,
    quant_max=7,
    qscheme=torch.per_tensor_symmetric,
    observer_or_fake_quant_ctr=plain_fake_quant(1.0),
)
config = QuantizationConfig(activation, activation, weight, None, is_qat=True)

# %% [markdown] lang="zh"
# 這就是 `Recipe(fused=False)` 用的設定。三種設定並排：4 位元融合、4 位元非融合，再加 8 位元融合當對照。每一種都從同一個
# 模型、用同一份排程訓練，各自 convert：

# %% [markdown] lang="en"
# This is what `Recipe(fused=False)` uses. Here are three configurations side by side: 4 bits fused, 4 bits plain, and 8
# bits fused for contrast. Each was trained from the same model on the same schedule, and converted:

# %%
from common.qat import converted, trained

plain_recipe = Recipe(seed=1, bits=4, fused=False)
eight_recipe = Recipe(seed=1, bits=8, fused=True)
results = {"fused, 4 bits": (before, after, quantized)}
for name, recipe in {
    "plain, 4 bits": plain_recipe,
    "fused, 8 bits": eight_recipe,
}.items():
    graph = converted(recipe)
    results[name] = trained(recipe).logits, test_logits(graph), graph

trained_logits, deployed_logits, graph = results["plain, 4 bits"]
check_deployment(trained_logits, deployed_logits, graph)  # passes
sqnrs = {name: sqnr_db(a, b) for name, (a, b, _) in results.items()}
assert sqnrs["plain, 4 bits"] > 40 > sqnrs["fused, 4 bits"] + 10
assert sqnrs["fused, 8 bits"] > sqnrs["fused, 4 bits"] + 6, "8 bits no better"

# %% tags=["plot"]
CONFIGURATIONS = {
    "fused, 4 bits": T(zh="融合（預設），4 位元", en="fused (default), 4 bits"),
    "plain, 4 bits": T(zh="非融合，4 位元", en="plain, 4 bits"),
    "fused, 8 bits": T(zh="融合（預設），8 位元", en="fused (default), 8 bits"),
}


def row(name):
    a, b, graph = results[name]
    lsb = difference_in_lsb(a, b, output_qparams(graph).scale).max().item()
    return [
        CONFIGURATIONS[name],
        f"{share(right(a)):.2%}",
        f"{share(right(b)):.2%}",
        f"{agreement(a, b):.1%}",
        f"{sqnrs[name]:.1f} dB" if math.isfinite(sqnrs[name]) else "∞",
        f"{lsb:.0f} LSB",
    ]


table(
    [row(name) for name in results],
    [
        T(zh="設定", en="configuration"),
        T(zh="準確率，fake quant 圖", en="accuracy, fake-quant graph"),
        T(zh="準確率，convert 之後", en="accuracy, converted"),
        T(zh="預測相同", en="same prediction"),
        "SQNR",
        T(zh="logit 最多差", en="logits, at most"),
    ],
)


# %% tags=["plot"]
def conclusions(results):
    """What convert did to each configuration."""
    return [
        T(
            zh=f"**{CONFIGURATIONS[name].zh}**：{told.zh}",
            en=f"**{CONFIGURATIONS[name].en.capitalize()}**: {told.en}",
        )
        for name, (a, b, _) in results.items()
        for told in [
            T(
                zh="convert 前後的 logit 逐位元相同，訓練看到的就是部署的。",
                en="logits before and after convert agree bit for bit; what training saw is what gets deployed.",
            )
            if torch.equal(a, b)
            else on_convert(right(a), right(b))
        ]
    ]


say(conclusions(results))

# %% [markdown] lang="zh"
# 這回答了預測 2。8 位元的差別看準確率很難發現，LSB 與 SQNR 卻看得見：檢查要比 logit，不要只比準確率。三個數字都只量一個
# 模型、一次訓練；準確率掉多少隨模型而變，scale 的差別則是公式決定的。
#
# ## 解法二：已經訓練完了，把訓練的範圍寫回去
#
# 不必重訓。convert 問的是 observer 的範圍，那就在 convert 之前把範圍改成訓練時真正用
# 的：$w_{\max} = n \cdot s_{\text{train}}$，同時 $w_{\min} = -w_{\max}$，`calculate_qparams()` 就會回答
# $s_{\text{train}}$。這必須是 convert 前的最後一步：再跑一次前向，融合版又會從新的範圍重算 scale。

# %% [markdown] lang="en"
# That answers prediction 2. At 8 bits the difference hardly shows in accuracy, but LSB and SQNR see it: check logits,
# not accuracy alone. All of this is one model and one training for each row; how much accuracy is lost varies with the
# model, while the difference in scale is given by the formula.
#
# ## Remedy 2, after training: write the trained range back
#
# There is no need to train again. Convert asks for the observer's range, so before convert, make it the range that
# training really used: $w_{\max} = n \cdot s_{\text{train}}$ and $w_{\min} = -w_{\max}$, and `calculate_qparams()` will
# answer $s_{\text{train}}$. This has to be the last thing before convert: at the next forward, the fused version would
# compute another scale from the new range.

# %%
mended = copy.deepcopy(prepared)
for name in weights:
    fused = fake_quants(mended)[name]
    observer = fused.activation_post_process
    observer.max_val.fill_(fused.scale.item() * fused.quant_max)
    observer.min_val.copy_(-observer.max_val)
    answer = fused.calculate_qparams()[0].item()
    assert math.isclose(answer, trained_scale[name], rel_tol=1e-6), "not mended"

with conv2d_patterns_only():
    rescued = convert_pt2e(mended)
rescued_logits = test_logits(rescued)


def weight_integers(graph):
    dq = ops.dequantize_per_tensor.default
    nodes = graph.graph.find_nodes(op="call_function", target=dq)
    stored = [node.args[0] for node in nodes if node.args[0].op == "get_attr"]
    return torch.cat([getattr(graph, s.target).flatten() for s in stored])


steps_apart = (weight_integers(rescued) - weight_integers(quantized)).abs()
assert steps_apart.max() == 1, "farther than the next integer"
check_deployment(before, rescued_logits, rescued)  # passes
assert agreement(before, rescued_logits) > 0.999, "other predictions"

# %% tags=["plot"]
say(
    T(
        zh=f"同一份訓練，直接 convert 的準確率是 {share(right(after)):.2%}，先寫回範圍再 convert 是 "
        f"{share(right(rescued_logits)):.2%}；fake quant 圖是 {share(right(before)):.2%}。",
        en=f"From the same training, converting at once gives an accuracy of {share(right(after)):.2%}; with the "
        f"range written back first it is {share(right(rescued_logits)):.2%}. The fake-quant graph has "
        f"{share(right(before)):.2%}.",
    ),
    T(
        zh=f"兩張圖的 weight 有 {share(steps_apart > 0):.1%} 存成不同的整數，都只差 1。",
        en=f"Of the weights, {share(steps_apart > 0):.1%} are stored as another integer in the two graphs, each off by 1.",
    ),
)

# %% [markdown] lang="zh"
# 這回答了預測 3：不必。能重來的話，還是解法一比較單純。
#
# ## 小結
#
# - 部署的是 convert 之後圖上的 scale，來自 `calculate_qparams()`；訓練時的 `scale` 只是模組裡的 buffer，convert 不看。
# - 融合版的 kernel 對對稱的 weight 用另一條公式，差大約 $1/(2n)$：8 位元不到 0.5%，4 位元約 7%。
# - 報告 QAT 的結果，報 convert 之後的準確率；部署前比 fake quant 圖與 convert 之後的 logit，最多 1 LSB 才算同一個模型。
# - 解法：用非融合的 `FakeQuantize` 訓練；已經訓練完的，convert 前把範圍寫回去。

# %% [markdown] lang="en"
# That answers prediction 3: no. If you can start over, remedy 1 is simpler.
#
# ## Recap
#
# - What gets deployed are the scales in the converted graph, and they come from `calculate_qparams()`. The `scale` of
#   training is a buffer that convert doesn't look at.
# - For symmetric weights the fused kernel has another formula. The difference is about $1/(2n)$: below 0.5% at 8 bits,
#   about 7% at 4 bits.
# - When you report QAT, report the accuracy after convert. Before deployment, compare logits of the fake-quant graph
#   and the converted one; it is the same model if they are at most 1 LSB apart.
# - Remedies: train with the plain `FakeQuantize`; if training is over, write the range back before convert.

# %% [markdown] lang="zh"
# ## 試試看
#
# 公式 (1) 的兩條式子有沒有可能相等？設 $w_{\min} = -1$、$n = 7$，$w_{\max}$ 在 0 與 1 之間要是多少，融合版訓練的 scale
# 才會正好是部署的 scale？用真的 `FusedMovingAvgObsFakeQuantize` 驗證。

# %% [markdown] lang="en"
# ## Try it
#
# Can the two sides of (1) ever agree? Let $w_{\min} = -1$ and $n = 7$. For which $w_{\max}$ between 0 and 1 does the
# fused version train with exactly the scale that gets deployed? Check it with a real `FusedMovingAvgObsFakeQuantize`.

# %% tags=["solution"]
from torchao.quantization.pt2e import FusedMovingAvgObsFakeQuantize


def ratio_for(w_max):
    module = FusedMovingAvgObsFakeQuantize(
        observer=MovingAverageMinMaxObserver,
        dtype=torch.int8,
        qscheme=torch.per_tensor_symmetric,
        quant_min=-7,
        quant_max=7,
    )
    module(torch.tensor([-1.0, w_max]))
    return (module.scale / module.calculate_qparams()[0]).item()


found = {w_max: ratio_for(w_max) for w_max in (0.5, 14 / 15, 1.0)}
expected = {0.5: 15 / 16, 14 / 15: 1.0, 1.0: 15 / 14}
for w_max, ratio in found.items():
    as_expected = math.isclose(ratio, expected[w_max], rel_tol=1e-5)
    assert as_expected, f"another ratio at {w_max}: {ratio}"
    print(f"w_max = {w_max:.4f}: {ratio:.4f}")

# %% [markdown] lang="zh" tags=["solution"]
# $w_{\max} = 14/15$。部署的是 $1/7$；kernel 取 $\max(1/8,\, w_{\max}/7) \cdot 15/14$，右邊那一項要等於
# $14/15 \cdot 1/7$。在這以下，訓練的格子比較細，最低到 15/16；在這以上比較粗，最高到 15/14。兩邊剛好一樣只是巧合，不能
# 指望。

# %% [markdown] lang="en" tags=["solution"]
# $w_{\max} = 14/15$. Deployed is $1/7$; the kernel takes $\max(1/8,\, w_{\max}/7) \cdot 15/14$, so the second term has
# to be $14/15 \cdot 1/7$. Below that, training has finer steps, down to 15/16; above it, coarser ones, up to 15/14.
# That both agree is a coincidence you can't count on.

# %% [markdown] lang="zh"
# ## 接下來
#
# 訓練迴圈：[M06-1](1_qat_loop.py)；凍結的排程：[M06-2](2_schedule.py)；融合與非融合的模組：
# [M02-2](../m02_observers/2_fake_quant.py)。convert 之後的圖怎麼交給後端：[M07](../m07_backends/0_overview.py)、
# [M08](../m08_executorch/0_overview.py)。回到 [M06 概覽](0_overview.py)。

# %% [markdown] lang="en"
# ## Next
#
# The training loop: [M06-1](1_qat_loop.py). The schedule: [M06-2](2_schedule.py). Fused and plain modules:
# [M02-2](../m02_observers/2_fake_quant.py). How a converted graph gets to a backend:
# [M07](../m07_backends/0_overview.py) and [M08](../m08_executorch/0_overview.py). Back to the [M06
# overview](0_overview.py).
