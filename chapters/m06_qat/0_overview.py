# %% [markdown] lang="zh"
# # M06 概覽 | QAT 訓練什麼，對著什麼訓練
#
# PTQ（訓練後量化）把 weight 捨入到最近的一格就收工。位元少的時候，這樣可能掉太多準確率；QAT（量化感知訓練）讓模型帶著捨
# 入再訓練一小段，自己找到比較好的位置。這一章走完整個流程，也看清楚它的代價與陷阱。本頁先用八個 weight 的例子，看訓練到
# 底移動了什麼。
#
# | 問題 | 一句話的答案 | 頁 |
# | --- | --- | --- |
# | QAT 訓練什麼，對著什麼訓練？ | 訓練的還是 fp32 的參數；前向經過 fake quant，所以 loss 看得到捨入 | 本頁 |
# | 整個流程怎麼走？真的救得回來嗎？ | 訓練模式 export、`prepare_qat_pt2e`、訓練、`convert_pt2e`；PTQ 明顯失敗的 4 位元模型救得回來 | [M06-1](1_qat_loop.py) |
# | 學習率、BN、範圍，何時該停？ | 前段都讓它動；後段先凍結 BN，再凍結範圍，學習率降到 0 | [M06-2](2_schedule.py) |
# | 訓練時看到的準確率，就是部署的嗎？ | 不一定：部署用的是 convert 寫進圖的 scale，只有 convert 之後量的才算數 | [M06-3](3_deployed_scales.py) |
#
# **讀完你會知道**
#
# - 什麼時候該輪到 QAT，之前先試什麼
# - 訓練時哪些東西由 optimizer 移動，哪些由前向自己移動
# - 為什麼「每個 weight 各自捨入到最近的一格」不一定最好
# - 為什麼少了 fake quant，訓練就看不到捨入

# %% [markdown] lang="en"
# # M06 Overview | What QAT trains, and against what
#
# PTQ (post-training quantization) rounds each weight to the nearest step and is done. With few bits that may cost too
# much accuracy. QAT (quantization-aware training) has the model train a little longer with the rounding in place, so
# that it finds better positions by itself. This chapter goes all the way, costs and traps included. On this page, an
# example of eight weights shows what it is that training moves.
#
# | Question | Answer in one line | Page |
# | --- | --- | --- |
# | What does QAT train, and against what? | fp32 parameters as ever; the forward pass goes through fake quant, so the loss sees the rounding | this page |
# | What is the whole procedure, and does it rescue a model? | Export in training mode, `prepare_qat_pt2e`, train, `convert_pt2e`; a 4-bit model on which PTQ visibly fails is rescued | [M06-1](1_qat_loop.py) |
# | Learning rate, BN, ranges: when to stop what? | Early on everything moves; later freeze BN, then the ranges, and let the learning rate go to 0 | [M06-2](2_schedule.py) |
# | Is the accuracy seen in training the deployed one? | Not always: deployment uses the scales that convert writes into the graph, and only what is measured after convert counts | [M06-3](3_deployed_scales.py) |
#
# **What you will know**
#
# - When it is QAT's turn, and what to try before
# - What the optimizer moves in training, and what the forward pass moves by itself
# - Why rounding each weight to its own nearest step isn't always best
# - Why training without fake quant is blind to the rounding

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 訓練時 optimizer 更新的是整數，還是 fp32 的 weight？
# 2. 八個 weight 都已經捨入到最近的整數。把其中幾個改捨入到另一邊，輸出的誤差可能更小嗎？
# 3. 在訓練模式下只做一次前向，不呼叫 optimizer。圖裡有什麼已經變了？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. In training, does the optimizer update integers, or fp32 weights?
# 2. Eight weights have each been rounded to the nearest integer. Can the error of the output get smaller by rounding
#    some of them the other way?
# 3. One forward pass in training mode, no optimizer. What in the graph has already changed?

# %% [markdown] lang="zh"
# ## 什麼時候輪到 QAT
#
# QAT 是最後一招：它需要訓練資料、訓練的程式與時間，還要調排程（學習率與凍結的時機）。下面的做法都比較便宜，先試：
#
# | 看到的現象 | 先試 | 頁 |
# | --- | --- | --- |
# | 各 channel 的 weight 大小懸殊 | weight 改成 per-channel | [M01-3](../m01_first_ptq/3_quantization_config.py) |
# | activation 的範圍被少數資料撐大，或校準資料不像實際的輸入 | 換 observer、換校準資料 | [M02-3](../m02_observers/3_calibration_data.py) |
# | 只有一兩層敏感 | 那幾層多給位元，或留在 fp32（混合精度） | [M05-3](../m05_accuracy/3_sensitivity.py) |
# | 都試過還是不夠，或後端只收 4 位元、只收 per-tensor | QAT | 本章 |
#
# QAT 不是從頭訓練：起點是訓練好的 fp32 模型，再用小的學習率訓練一小段。

# %% [markdown] lang="en"
# ## When it is QAT's turn
#
# QAT is the last resort: it takes training data, training code and time, and a schedule (learning rate, when to freeze
# what) that has to be tuned. Everything below is cheaper, so try it first:
#
# | What you see | Try first | Page |
# | --- | --- | --- |
# | weights of very different size in different channels | per-channel weights | [M01-3](../m01_first_ptq/3_quantization_config.py) |
# | a few images stretch activation ranges, or calibration data isn't like the real input | another observer, other calibration data | [M02-3](../m02_observers/3_calibration_data.py) |
# | only one or two layers are sensitive | more bits for those layers, or fp32 (mixed precision) | [M05-3](../m05_accuracy/3_sensitivity.py) |
# | none of it is enough, or the backend takes 4 bits only, or per-tensor only | QAT | this chapter |
#
# QAT doesn't start from scratch: it begins with a trained fp32 model and trains it a little longer with a small
# learning rate.

# %% tags=["setup"]
import copy

from common.data import calibration_batches
from common.env import quiet
from common.models import trained_tinyconvnet
from common.viz import T, graph, say, show, table

import matplotlib.pyplot as plt
import torch
from torch import nn

quiet()

# %% [markdown] lang="zh"
# ## 最小的例子：八個 weight
#
# 一個沒有 bias 的 linear。4 位元的整數最大是 7，最大的 weight 是 0.7，所以一格（scale）是 0.1；下面把 weight 寫成「幾
# 格」，比較好讀。這些數是挑過的：捨入到最近的整數，每一個都往下（或剛好在格子上），加起來少了 2 格。輸入也是挑過的：八
# 個 channel 一起變大變小，像 ReLU 之後的 activation 常有的樣子。於是八個小誤差不會互相抵消，而是全部加在一起。

# %% [markdown] lang="en"
# ## The smallest example: eight weights
#
# A linear layer without bias. The largest 4-bit integer is 7 and the largest weight 0.7, so one step (the scale) is
# 0.1; below, weights are written as numbers of steps. They were chosen: rounded to the nearest integer, each goes down
# (or sits on a step already), 2 steps in total. So were the inputs: the eight channels grow and shrink together, as
# activations after a ReLU often do. Eight small errors then don't cancel out; they all add up.

# %%
STEP = 0.1
in_steps = torch.tensor([[7.0, 4.45, 2.25, -1.7, 3.3, -5.85, 1.1, -2.55]])
rounding = in_steps.round() - in_steps
assert (rounding <= 0).all(), "a weight is rounded up"
assert abs(rounding.sum() + 2) < 1e-4, "not 2 steps in total"

generator = torch.Generator().manual_seed(0)
together = torch.rand(256, 1, generator=generator)
inputs = together + 0.1 * torch.rand(256, 8, generator=generator)

model = nn.Linear(8, 1, bias=False)
with torch.no_grad():
    model.weight.copy_(STEP * in_steps)
    target = model(inputs)  # what we want to keep

# %% [markdown] lang="zh"
# ### prepare：把 fake quant 放進圖裡
#
# fake quant（[M02-2](../m02_observers/2_fake_quant.py)）前向等於量化再反量化，反向用 STE 讓梯度穿過捨入。設定和 PTQ 一
# 樣寫成規格（spec），只是 observer 換成 `FakeQuantize`，並標明 `is_qat=True`。weight 用 4 位元（−7 到 7），activation
# 用 8 位元。這裡不用 `get_symmetric_quantization_config` 內建的融合版，因為它訓練時的格子和部署的不同
# （[M06-3](3_deployed_scales.py)）。
#
# `prepare_qat_pt2e` 取代 `prepare_pt2e`。export 的圖和模型共用參數，所以先 `copy.deepcopy`，原來的 `model` 才不會跟著被
# 訓練。為了讓例子單純，observer 看過一遍資料，就用 `disable_observer` 固定範圍：從此格子不動，動的只有 weight。

# %% [markdown] lang="en"
# ### Prepare: fake quant goes into the graph
#
# A fake quant ([M02-2](../m02_observers/2_fake_quant.py)) quantizes and dequantizes on the way forward; on the way back
# an STE lets the gradient pass the rounding. The configuration consists of specs as for PTQ, except that `FakeQuantize`
# takes the observer's place and that it says `is_qat=True`. Weights get 4 bits (−7 to 7), activations 8. We don't use
# the fused version that `get_symmetric_quantization_config` brings along, because it trains with other steps than those
# deployed ([M06-3](3_deployed_scales.py)).
#
# `prepare_qat_pt2e` takes the place of `prepare_pt2e`. An exported graph shares the parameters of its model, so we make
# a `copy.deepcopy` first, or `model` would be trained as well. To keep the example simple, the ranges are fixed with
# `disable_observer` once they have seen the data: from then on the steps stay, and only weights move.

# %%
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
)
from torchao.quantization.pt2e import (
    FakeQuantize,
    MovingAverageMinMaxObserver,
    disable_fake_quant,
    disable_observer,
)
from torchao.quantization.pt2e.quantize_pt2e import (
    convert_pt2e,
    prepare_qat_pt2e,
)
from torchao.quantization.pt2e.quantizer import (
    QuantizationConfig,
    QuantizationSpec,
)

fake_quant = FakeQuantize.with_args(observer=MovingAverageMinMaxObserver)
four_bits = QuantizationSpec(
    dtype=torch.int8,
    quant_min=-7,
    quant_max=7,
    qscheme=torch.per_tensor_symmetric,
    observer_or_fake_quant_ctr=fake_quant,
)
eight_bits = QuantizationSpec(
    dtype=torch.int8,
    quant_min=-128,
    quant_max=127,
    qscheme=torch.per_tensor_affine,
    observer_or_fake_quant_ctr=fake_quant,
)
config = QuantizationConfig(  # input, output, weight, bias
    eight_bits, eight_bits, four_bits, None, is_qat=True
)
quantizer = XNNPACKQuantizer().set_global(config)

# %%
student = copy.deepcopy(model)
exported = torch.export.export(student, (inputs,)).module()
prepared = prepare_qat_pt2e(exported, quantizer)
with torch.no_grad():
    prepared(inputs)  # ranges from the data, as in calibration
prepared.apply(disable_observer)
untrained = copy.deepcopy(prepared)

# %% tags=["plot"]
graph(
    prepared,
    alt=T(
        zh="輸入與 weight 各經過一個 fake quant 進 linear，linear 的輸出再經過一個 fake quant。",
        en="The input and the weight each pass a fake quant on their way into linear, and the output of linear passes another.",
    ),
    caption=T(
        zh="準備好的 QAT 圖。綠色的 fake quant 放在 PTQ 放 observer 的地方。",
        en="The graph prepared for QAT. The green fake quants sit where PTQ has its observers.",
    ),
)

# %% [markdown] lang="zh"
# ### 訓練：一般的迴圈
#
# loss 是輸出與 fp32 目標的均方差。迴圈和平常的 PyTorch 沒有兩樣，差別只在 `prepared` 的前向裡有捨入，所以一開始 loss 就
# 不是 0；optimizer 拿到的仍是 fp32 的 weight。

# %% [markdown] lang="en"
# ### Training: an ordinary loop
#
# The loss is the mean squared difference from the fp32 target. The loop is the usual one of PyTorch. What differs is
# that the forward pass of `prepared` contains the rounding, so the loss isn't 0 to begin with; what the optimizer gets
# are fp32 weights as ever.

# %%
STEPS = 200


def train(gm):
    """The loss of each step."""
    optimizer = torch.optim.Adam(gm.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    losses = []
    for _ in range(STEPS):
        loss = (gm(inputs) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


losses = train(prepared)
weight = prepared.get_parameter("weight")
assert weight.dtype == torch.float32, "the optimizer got integers"
assert losses[0] > 0, "the loss doesn't see the rounding"
assert losses[-1] < losses[0] / 4, "training didn't help"
assert torch.equal(model.weight, STEP * in_steps), "model was trained too"

# %% [markdown] lang="zh"
# ### convert：換成整數
#
# `convert_pt2e` 把 weight 換成 int8。拿兩張圖比：`rounded` 只看過資料、沒有訓練，等於 PTQ；`quantized` 訓練過。兩者的
# scale 相同。

# %% [markdown] lang="en"
# ### Convert: integers in their place
#
# `convert_pt2e` turns the weight into int8. We compare two graphs: `rounded` has seen the data but no training, which
# is PTQ; `quantized` was trained. Both have the same scale.

# %%
trained_in_steps = weight.detach().clone() / STEP
rounded = convert_pt2e(copy.deepcopy(untrained))
quantized = convert_pt2e(prepared)


def integers_and_scale(gm):
    dq = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    nodes = gm.graph.find_nodes(op="call_function", target=dq)
    (node,) = [node for node in nodes if node.args[0].op == "get_attr"]
    return getattr(gm, node.args[0].target).float(), node.args[1]


def rms(values):
    return values.square().mean().sqrt().item()


nearest, scale = integers_and_scale(rounded)
learned, learned_scale = integers_and_scale(quantized)
assert abs(scale / STEP - 1) < 1e-4, "the step isn't 0.1"
assert scale == learned_scale, "training moved the step"
assert torch.equal(nearest, in_steps.round()), "not the nearest integers"

# %%
with torch.no_grad():
    output_error = {
        "nearest": rms(rounded(inputs) - target),
        "learned": rms(quantized(inputs) - target),
    }
weight_error = {
    "nearest": rms(nearest - in_steps),
    "learned": rms(learned - in_steps),
}
flips = (learned - nearest).flatten().tolist()
up = sum(flip == 1 for flip in flips)
assert set(flips) == {0, 1}, f"not all up by one step: {flips}"
halved = output_error["learned"] < output_error["nearest"] / 2
assert halved, f"the outputs aren't twice as close: {output_error}"
assert weight_error["learned"] > weight_error["nearest"], "closer weights"

# %% tags=["plot"]


def row(label, kind, integers):
    return [
        label,
        ", ".join(f"{value:.0f}" for value in integers.flatten().tolist()),
        f"{weight_error[kind]:.3f}",
        f"{output_error[kind]:.4f}",
    ]


table(
    [
        row(T(zh="捨入到最近（PTQ）", en="nearest (PTQ)"), "nearest", nearest),
        row(T(zh="訓練過（QAT）", en="trained (QAT)"), "learned", learned),
    ],
    [
        T(zh="做法", en="method"),
        T(zh="整數", en="integers"),
        T(zh="weight 的 RMS 誤差（格）", en="RMS error of weights (steps)"),
        T(zh="輸出的 RMS 誤差", en="RMS error of outputs"),
    ],
)
say(
    T(
        zh=f"QAT 把 {up} 個 weight 改捨入到上面那一格：輸出的誤差變成原來的 {output_error['learned'] / output_error['nearest']:.0%}，weight 自己的誤差反而是 {weight_error['learned'] / weight_error['nearest']:.2f} 倍。",
        en=f"QAT rounded {up} of the weights up instead: the error of the output went down to {output_error['learned'] / output_error['nearest']:.0%} of what it was, while the error of the weights themselves grew to {weight_error['learned'] / weight_error['nearest']:.2f}× as much.",
    )
)

# %% [markdown] lang="zh"
# 這就是預測 2 的答案：可以，而且 weight 本身離得更遠，輸出卻更準。PTQ 讓每個 weight 各自離原值最近；QAT 看的是 loss，容
# 許個別的 weight 離遠一點，只要誤差彼此抵消。下圖是每個 fp32 weight 在兩格之間的位置：

# %% [markdown] lang="en"
# Hence the answer to prediction 2: yes, and the weights are further off while the output is closer. PTQ keeps each
# weight as close as it can to what it was. QAT looks at the loss, and lets single weights be further off as long as
# their errors cancel. The figure shows where each fp32 weight is between its two steps:

# %% tags=["plot"]
below = in_steps.floor()
start = (in_steps - below).flatten().tolist()
end = (trained_in_steps - below).flatten().tolist()

figure, axes = plt.subplots(figsize=(6.0, 3.0))
for i, (a, b) in enumerate(zip(start, end, strict=True)):
    axes.plot([i, i], [a, b], "-", color="C0")
axes.plot(range(8), start, "o", color="C0", label="fp32 weight")
axes.plot(range(8), end, "^", color="C1", label="after QAT")
axes.axhline(0.5, linestyle="--", color="black", linewidth=1)
axes.text(5.5, 0.52, "rounds up", ha="center", va="bottom")
axes.text(5.5, 0.48, "rounds down", ha="center", va="top")
axes.set(
    xlabel="weight",
    ylabel="above lower step [steps]",
    ylim=(-0.05, 0.85),
    xlim=(-0.5, 7.5),
)
axes.legend(loc="upper center", ncols=2)
show(
    figure,
    alt=T(
        zh="八個 weight 在兩格之間的位置，訓練前都在 0.5 的虛線以下；訓練後全部往上移，原本最靠近虛線的越過了它。",
        en="The positions of eight weights between two steps. Before training all are below the dashed line at 0.5; "
        "training moved all of them up, and those that were closest to the line have crossed it.",
    ),
    caption=T(
        zh="每個 weight 離下面那一格多遠。過了虛線，捨入就換一格。",
        en="How far each weight is above the step below it. Past the dashed line it rounds the other way.",
    ),
)

# %%
rise = [b - a for a, b in zip(start, end, strict=True)]
assert min(rise) > 0, "a weight moved down"
crossed = [a < 0.5 < b for a, b in zip(start, end, strict=True)]
assert crossed == [flip == 1 for flip in flips], "others crossed the line"
closest = [a > max(start) - 1e-4 for a in start]
assert crossed == closest, "not those that were closest to the line"

# %% [markdown] lang="zh"
# 輸出太低，所以 STE 的梯度把八個 weight 一起往上推。多數只是在自己的格子裡移動，整數不變；最靠近界線的先越過 0.5，整數
# 加 1，輸出的誤差補回來，梯度就沒了。**訓練移動的是 fp32 weight，讓它捨入到對的那一邊**；這也是預測 1 的答案。
#
# ## 整個模型裡，誰在動
#
# 真的模型還有 BN（BatchNorm），而且 observer 不會一開始就固定。拿訓練好的 TinyConvNet 的開頭（conv、BN、ReLU），在訓練
# 模式下 export，先做一次前向，再讓 optimizer 走一步，看狀態裡各有什麼變了：

# %% [markdown] lang="en"
# The output is too low, so the gradient of the STE pushes all eight weights up. Most of them only move within their
# step, and their integers stay. The closest to the line cross 0.5 first; their integers grow by 1, the error of the
# output is made up for, and the gradient is gone. **Training moves fp32 weights so that they round to the right side.**
# That answers prediction 1, too.
#
# ## Who moves in a whole model
#
# A real model also has BN (BatchNorm), and its observers aren't fixed from the start. We take the stem of a trained
# TinyConvNet (convolution, BN, ReLU), export it in training mode, run one forward pass, then let the optimizer take one
# step, and look at what has changed in its state:

# %%
net = trained_tinyconvnet()
stem = nn.Sequential(net.stem_conv, net.stem_bn, nn.ReLU()).train()
(images,) = next(calibration_batches(64, batch_size=64))
exported_stem = torch.export.export(stem, (images,)).module()
prepared_stem = prepare_qat_pt2e(exported_stem, quantizer)


def state():
    found = prepared_stem.state_dict()
    return {name: value.clone() for name, value in found.items()}


def changed(before, after):
    return {name for name in after if not before[name].equal(after[name])}


before = state()
loss = prepared_stem(images).square().mean()
after_forward = state()
loss.backward()
torch.optim.SGD(prepared_stem.parameters(), lr=0.1).step()
by_forward = changed(before, after_forward)
by_optimizer = changed(after_forward, state())

# %%
conv, bn = "0.", "1."  # their places in the Sequential
assert by_optimizer == {conv + "weight", bn + "weight", bn + "bias"}
statistics = {bn + "running_mean", bn + "running_var"}
assert statistics <= by_forward, "BN's statistics didn't move"
ranges = {name for name in by_forward if "activation_post_process" in name}
assert ranges and not by_forward & by_optimizer
assert by_forward == ranges | statistics | {bn + "num_batches_tracked"}

# the fake quant on the weight sees it with BN folded in
old_std = (before[bn + "running_var"] + 1e-5).sqrt()
folded = before[conv + "weight"] * (before[bn + "weight"] / old_std).view(
    -1, 1, 1, 1
)
scales = [value for name, value in after_forward.items() if "scale" in name]
expected = folded.abs().max() / 7
seen = any(torch.allclose(scale, expected, rtol=1e-4) for scale in scales)
assert seen, "no fake quant saw the folded weight"

# %% tags=["plot"]
KINDS = [
    (T(zh="conv 的 weight", en="weight of the convolution"), {conv + "weight"}),
    (
        T(zh="BN 的 γ、β", en="γ and β of BN"),
        {bn + "weight", bn + "bias"},
    ),
    (
        T(
            zh="BN 的 running_mean、running_var",
            en="running_mean and running_var of BN",
        ),
        statistics,
    ),
    (
        T(
            zh="fake quant 的範圍、scale、zero point",
            en="ranges, scales and zero points of the fake quants",
        ),
        ranges,
    ),
]
yes, no = T(zh="是", en="yes"), T(zh="否", en="no")
table(
    [
        [
            kind,
            yes if names <= by_forward else no,
            yes if names <= by_optimizer else no,
        ]
        for kind, names in KINDS
    ],
    [
        T(zh="狀態", en="state"),
        T(zh="前向就會動", en="moved by the forward pass"),
        T(zh="optimizer 移動", en="moved by the optimizer"),
    ],
)

# %% [markdown] lang="zh"
# 預測 3 的答案：沒有 optimizer，BN 的統計量與 fake quant 的範圍也已經變了。所以拿準備好的圖去評估，評估本身就會改動它
# （[M06-1](1_qat_loop.py)）；所以訓練後段要把這兩樣凍結，weight 才有固定的目標可追（[M06-2](2_schedule.py)）。
#
# 最後一個 assert 回答了「對著什麼訓練」：weight 的 fake quant 看到的，是已經把 BN 折進去的 weight，也就是部署時真正存成
# 整數的那一個（怎麼做到的，見 [M04-2](../m04_batchnorm/2_qat_conv_bn.py)）。

# %% [markdown] lang="en"
# The answer to prediction 3: without any optimizer, BN's statistics and the ranges of the fake quants have changed. So
# to evaluate a prepared graph is to modify it ([M06-1](1_qat_loop.py)), and late in training both should be frozen, to
# give the weights a target that holds still ([M06-2](2_schedule.py)).
#
# The last assert answers "against what": the fake quant on the weight sees the weight with BN folded in, which is the
# one that is stored as integers in the end ([M04-2](../m04_batchnorm/2_qat_conv_bn.py) shows how that is done).

# %% [markdown] lang="zh"
# ## 名詞
#
# | 名詞 | 是什麼 |
# | --- | --- |
# | QAT | 量化感知訓練：帶著 fake quant，把訓練好的模型再訓練一小段 |
# | fake quant | 前向量化再反量化、值仍是 fp32 的模組，裡面有自己的 observer |
# | STE | straight-through estimator：反向時把捨入當成恆等函式 |
# | 融合版（fused） | `FusedMovingAvgObsFakeQuantize`，`get_symmetric_quantization_config(is_qat=True)` 的預設 |
# | running 統計量 | BN 的 running_mean、running_var：訓練時慢慢累積，eval 時使用 |
# | 凍結 | 讓某樣狀態從某一步起不再改變：BN 的統計量、fake quant 的範圍 |
# | 排程（schedule） | 學習率怎麼降、何時凍結什麼 |
#
# 全部的名詞在[詞彙表](../glossary.md)。

# %% [markdown] lang="en"
# ## Terms
#
# | Term | What it is |
# | --- | --- |
# | QAT | quantization-aware training: a trained model trains a little longer with fake quant in place |
# | fake quant | a module that quantizes and dequantizes on the way forward, values staying fp32; has an observer of its own |
# | STE | straight-through estimator: on the way back, rounding counts as the identity |
# | fused | `FusedMovingAvgObsFakeQuantize`, the default of `get_symmetric_quantization_config(is_qat=True)` |
# | running statistics | running_mean and running_var of BN: gathered in training, used in eval |
# | freeze | to keep a piece of state from changing after some step: BN's statistics, the ranges of the fake quants |
# | schedule | how the learning rate falls, and when what is frozen |
#
# All terms are in the [glossary](../glossary.md).

# %% [markdown] lang="zh"
# ## 小結
#
# - QAT 是最後一招：先試 per-channel 的 weight、別的 observer 或校準資料、混合精度。
# - 訓練的是 fp32 的參數；前向有捨入，STE 讓梯度穿過去，weight 會移到捨入後 loss 較小的那一邊。
# - 每個 weight 各自捨入到最近不一定最好：誤差能互相抵消，比各自都小更重要。
# - 除了 optimizer，前向自己也會移動 BN 的統計量與 fake quant 的範圍。

# %% [markdown] lang="en"
# ## Recap
#
# - QAT is the last resort: first try per-channel weights, another observer or other calibration data, mixed precision.
# - What trains are fp32 parameters. The forward pass rounds, the STE lets the gradient through, and weights move to the
#   side where, once rounded, the loss is smaller.
# - To round each weight to its nearest step isn't always best: errors that cancel are worth more than errors that are
#   each small.
# - Beside the optimizer, the forward pass itself moves BN's statistics and the ranges of the fake quants.

# %% [markdown] lang="zh"
# ## 試試看
#
# 拿 `untrained` 的複本，用 `disable_fake_quant` 關掉捨入再訓練 200 步，然後 convert。先猜：整數會和哪一張圖相同？

# %% [markdown] lang="en"
# ## Try it
#
# Take a copy of `untrained`, switch rounding off with `disable_fake_quant`, train for 200 steps, and convert. First
# guess: whose integers will it have?

# %% tags=["solution"]
in_float = copy.deepcopy(untrained)
in_float.apply(disable_fake_quant)
float_losses = train(in_float)
float_integers, _ = integers_and_scale(convert_pt2e(in_float))
assert max(float_losses) < losses[0] / 1000, "the loss sees a rounding"
assert torch.equal(float_integers, nearest), "integers changed"

# %% [markdown] lang="zh" tags=["solution"]
# 和 `rounded` 相同，訓練等於沒做。少了 fake quant，loss 一開始就是 0，沒有東西可學；convert 才第一次捨入。真的模型
# 上，loss 不會剛好是 0，訓練照樣進行，卻一樣看不到捨入：weight 就算換到比較好的位置，也不是 loss 要它去的
# （[M06-1](1_qat_loop.py) 的對照組會量）。設定漏了 `is_qat=True` 就會這樣，而且不會有任何訊息。

# %% [markdown] lang="en" tags=["solution"]
# Those of `rounded`: training did nothing. Without fake quant the loss is 0 from the start, so there is nothing to
# learn; the first rounding happens at convert. With a real model the loss isn't exactly 0 and training goes on, just as
# blind to the rounding: if weights end up in better places, the loss didn't ask for it (the control of
# [M06-1](1_qat_loop.py) measures it). That is what happens, without any message, if the configuration lacks
# `is_qat=True`.

# %% [markdown] lang="zh"
# ## 本章地圖
#
# | 頁 | 做什麼 |
# | --- | --- |
# | [M06-1 QAT 的迴圈](1_qat_loop.py) | 4 位元的 TinyConvNet：PTQ 失敗，QAT 救回來；對照組；怎麼存檔與評估 |
# | [M06-2 排程](2_schedule.py) | 學習率怎麼降，BN 與範圍何時凍結，用曲線比較 |
# | [M06-3 部署的 scale](3_deployed_scales.py) | 訓練時的 scale 與部署的並排；融合版在 4 位元時差在哪裡 |
#
# 這一章刻意跳過：fake quant 的內部（[M02-2](../m02_observers/2_fake_quant.py)）、conv-BN 的改寫
# （[M04-2](../m04_batchnorm/2_qat_conv_bn.py)）、圖的 train 與 eval 切換（[M04-3](../m04_batchnorm/3_train_eval.py)）、
# 可學習的 scale（LSQ），以及從頭用低位元訓練。
#
# ## 參考資料
#
# - [torchao：PT2E Quantization](https://docs.pytorch.org/ao/stable/pt2e_quantization/index.html)，其中有 QAT 的教學
# - torchao 0.18.0 原始碼：`torchao/quantization/pt2e/` 的 `fake_quantize.py`、`qat_utils.py`、`quantize_pt2e.py`
# - Bengio 等人，〈[Estimating or Propagating Gradients Through Stochastic
#   Neurons](https://arxiv.org/abs/1308.3432)〉，2013：STE
# - Jacob 等人，〈[Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
#   Inference](https://arxiv.org/abs/1712.05877)〉，2018：帶著 fake quant 訓練、BN 先折疊再量化
# - Nagel 等人，〈[Up or Down? Adaptive Rounding for Post-Training
#   Quantization](https://arxiv.org/abs/2004.10568)〉，2020：捨入到最近為什麼不是最好

# %% [markdown] lang="en"
# ## Map of the chapter
#
# | Page | What happens there |
# | --- | --- |
# | [M06-1 The QAT loop](1_qat_loop.py) | TinyConvNet at 4 bits: PTQ fails, QAT rescues it; a control; how to save and evaluate |
# | [M06-2 Schedules](2_schedule.py) | how the learning rate falls, when to freeze BN and ranges; compared by curves |
# | [M06-3 Deployed scales](3_deployed_scales.py) | scales in training and deployed ones side by side; what the fused version does at 4 bits |
#
# Left out on purpose: the inside of fake quant ([M02-2](../m02_observers/2_fake_quant.py)), how conv-BN is rewritten
# ([M04-2](../m04_batchnorm/2_qat_conv_bn.py)), how a graph changes between train and eval
# ([M04-3](../m04_batchnorm/3_train_eval.py)), learnable scales (LSQ), and training at few bits from scratch.
#
# ## References
#
# - [torchao: PT2E Quantization](https://docs.pytorch.org/ao/stable/pt2e_quantization/index.html), which has a tutorial
#   on QAT
# - Source of torchao 0.18.0: `fake_quantize.py`, `qat_utils.py` and `quantize_pt2e.py` in `torchao/quantization/pt2e/`
# - Bengio et al., "[Estimating or Propagating Gradients Through Stochastic Neurons](https://arxiv.org/abs/1308.3432)",
#   2013: the STE
# - Jacob et al., "[Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
#   Inference](https://arxiv.org/abs/1712.05877)", 2018: training with fake quant, BN folded before quantizing
# - Nagel et al., "[Up or Down? Adaptive Rounding for Post-Training Quantization](https://arxiv.org/abs/2004.10568)",
#   2020: why rounding to the nearest isn't best
