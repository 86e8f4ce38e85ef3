# %% [markdown] lang="zh" time_limit=1800
# # M06-2 | 排程：什麼時候凍結什麼
#
# QAT（量化感知訓練）的訓練迴圈在 [M06-1](1_qat_loop.py)。那裡的排程是直接給的：學習率照 cosine 下降，一半時凍結
# BN（BatchNorm），八成時凍結 observer。這一頁問：為什麼是這樣，換一種會怎樣？做法是一次只改一件事，畫出曲線，再用三個模
# 型比較；分不出高下的，就老實說分不出來。
#
# **讀完你會知道**
#
# - 訓練時有哪三樣東西在動，各用哪個呼叫停下來
# - 為什麼不能直接拿訓練中的圖去評估
# - `averaging_constant` 決定範圍記得多久，weight 該用多少
# - 三種改動各讓準確率變了多少，哪些差異算數、哪些只是運氣

# %% [markdown] lang="en"
# # M06-2 | Schedules: what to freeze, and when
#
# The training loop of QAT (quantization-aware training) is in [M06-1](1_qat_loop.py). There, the schedule was given:
# the learning rate falls along a cosine, BN (BatchNorm) is frozen halfway, observers after four fifths. This page asks
# why, and what happens otherwise. We change one thing at a time, draw the curves, and compare on three models; where
# nothing can be told apart, we say so.
#
# **What you will know**
#
# - Which three things move during training, and which call stops each
# - Why not to evaluate the graph that is being trained
# - How `averaging_constant` sets how long a range remembers, and what it should be for weights
# - How much accuracy each of three changes costs or gains, and which differences are more than luck

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 在 `torch.no_grad()` 裡把一批測試圖片送進正在訓練的圖，圖裡會有東西改變嗎？
# 2. `averaging_constant` 是 0.01。weight 突然變成兩倍，範圍要幾步才走完一半？
# 3. 同一份排程、同一個模型，只把學習率改動千分之一，2,000 張測試圖片上的準確率會差多少？
# 4. 學習率不降、BN 不凍結、observer 不凍結，哪一種傷害最大？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. Inside `torch.no_grad()`, a batch of test images goes through the graph that is being trained. Does anything in the
#    graph change?
# 2. `averaging_constant` is 0.01, and the weight suddenly doubles. How many steps until the range has come half the
#    way?
# 3. Same schedule, same model; only the learning rate is changed, by one part in a thousand. How far apart are the
#    accuracies on 2,000 test images?
# 4. Which hurts most: a constant learning rate, BN never frozen, or observers never frozen?

# %% tags=["setup"]
import copy
from dataclasses import replace

from common.data import test_data, train_data
from common.env import quiet
from common.metrics import (
    PairedInterval,
    in_points,
    interval_in_points,
    paired_interval,
)
from common.viz import T, say, show, table

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

quiet()
images, labels = train_data()
test_images, test_labels = test_data()

# %% [markdown] lang="zh"
# ## 三樣東西在動
#
# 圖上有三樣東西會變：參數（weight、bias、BN 的 γ 與 β）、BN 的統計量（`running_mean`、`running_var`），以及每個 fake
# quant 的 scale。參數由 optimizer 更新；另外兩樣只要**呼叫**圖就會更新，和梯度無關。`common.qat` 的 `prepare` 做的是
# M06-1 的前幾步：複製訓練好的模型、在訓練模式下匯出、插入 fake quant（weight 4 位元，每個 tensor 一個 scale）。

# %% [markdown] lang="en"
# ## Three things move
#
# Three things in the graph change: parameters (weights, biases, and γ and β of BN), the statistics of BN
# (`running_mean`, `running_var`), and the scale of each fake quant. Parameters are updated by the optimizer; the other
# two change whenever the graph is **called**, gradient or not. `prepare` of `common.qat` takes the first steps of
# M06-1: copy the trained model, export it in training mode, insert fake quant (4-bit weights, one scale for each
# tensor).

# %%
from common.qat import Recipe, fake_quants, prepare

prepared = prepare(Recipe())
at_start = copy.deepcopy(prepared)  # for the exercise
optimizer = torch.optim.Adam(prepared.parameters(), lr=1e-3)


def tensors():
    """The three kinds of things that can move, as they are now."""
    buffers = dict(prepared.named_buffers())
    return {
        "parameters": [*prepared.parameters()],
        "statistics": [buffers[name] for name in buffers if "running_" in name],
        "scales": [module.scale for module in fake_quants(prepared).values()],
    }


def moved_by(action):
    """What of the three has changed after `action`."""
    before = copy.deepcopy(tensors())
    action()
    return {
        kind
        for kind, now in tensors().items()
        if not all(map(torch.equal, before[kind], now))
    }


# %%
from torchao.quantization.pt2e import (
    disable_observer,
    move_exported_model_to_eval,
)


def training_step():
    loss = F.cross_entropy(prepared(images[:64]), labels[:64])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def evaluation():
    with torch.no_grad():
        prepared(2 * test_images[:500])  # images of a higher contrast


training_step()  # the first step sets all scales
moved = {"all": (moved_by(training_step), moved_by(evaluation))}
move_exported_model_to_eval(prepared)
moved["BN frozen"] = moved_by(training_step), moved_by(evaluation)
prepared.apply(disable_observer)
moved["both frozen"] = moved_by(training_step), moved_by(evaluation)

# %%
everything = {"parameters", "statistics", "scales"}
assert moved == {
    "all": (everything, everything - {"parameters"}),
    "BN frozen": (everything - {"statistics"}, {"scales"}),
    "both frozen": ({"parameters"}, set()),
}, f"something else moved: {moved}"

# %% tags=["plot"]
WORDS = {
    "parameters": T(zh="參數", en="parameters"),
    "statistics": T(zh="BN 統計量", en="BN statistics"),
    "scales": T(zh="scale", en="scales"),
}


def listed(kinds):
    words = [word for kind, word in WORDS.items() if kind in kinds]
    if not words:
        return T(zh="都不動", en="nothing")
    return T(
        zh="、".join(word.zh for word in words),
        en=", ".join(word.en for word in words),
    )


table(
    [
        [when, *map(listed, moved[key])]
        for key, when in {
            "all": T(zh="什麼都沒凍結", en="nothing frozen"),
            "BN frozen": T(
                zh="`move_exported_model_to_eval(prepared)` 之後",
                en="after `move_exported_model_to_eval(prepared)`",
            ),
            "both frozen": T(
                zh="再加 `prepared.apply(disable_observer)`",
                en="and `prepared.apply(disable_observer)`",
            ),
        }.items()
    ],
    [
        T(zh="狀態", en="state"),
        T(zh="訓練一步，會動的是", en="a training step moves"),
        T(zh="評估一次，會動的是", en="an evaluation moves"),
    ],
)

# %% [markdown] lang="zh"
# 預測 1 的答案在最右欄：什麼都沒凍結時，評估一次就改掉了 BN 的統計量和 scale，測試資料從這裡流進模型。所以訓練途中要評
# 估，就用一份凍結的複本；下面的曲線就是這樣畫的。
#
# 凍結 BN 不是凍結參數：γ、β 照樣學，只是正規化改用累積下來的 `running_mean` 與 `running_var`，而不是這一批的統計量。部
# 署時用的正是累積的那一份（[M04-2](../m04_batchnorm/2_qat_conv_bn.py)），所以凍結之後，訓練看到的和部署的是同一個函數。

# %% [markdown] lang="en"
# Prediction 1 is answered in the rightmost column: with nothing frozen, a single evaluation has changed the statistics
# of BN and the scales, and test data leaks into the model. To evaluate in the middle of training, use a frozen copy;
# that is how the curves below were made.
#
# To freeze BN is not to freeze parameters: γ and β go on learning, but normalization uses the accumulated
# `running_mean` and `running_var` instead of the statistics of the batch. The accumulated ones are what gets deployed
# ([M04-2](../m04_batchnorm/2_qat_conv_bn.py)), so once BN is frozen, training sees the function that is deployed.

# %% [markdown] lang="zh"
# ## 範圍記得多久
#
# QAT 的 observer 是移動平均：每一步，範圍往這一批的最小、最大值靠近一點。以最大值 $m_t$ 為例，
#
# $$r_t = r_{t-1} + c\,(m_t - r_{t-1}) \tag{1}$$
#
# $c$ 就是 `averaging_constant`。activation 每一批都不同，平均能壓住雜訊，預設的 0.01 合理。weight 不是抽樣：它現在多
# 大，一看就知道，平均只會讓範圍慢半拍。

# %% [markdown] lang="en"
# ## How long a range remembers
#
# The observers of QAT keep a moving average: at each step the range moves a little toward the smallest and largest
# value of the batch. For the largest value $m_t$,
#
# $$r_t = r_{t-1} + c\,(m_t - r_{t-1}) \tag{1}$$
#
# where $c$ is `averaging_constant`. Activations differ from batch to batch; averaging calms the noise, and the default
# of 0.01 makes sense. A weight is no sample: how large it is now can simply be looked up, and an average only lags
# behind.

# %%
import math

from torchao.quantization.pt2e import MovingAverageMinMaxObserver


def steps_to_half_way(c):
    """The weight doubles at once: after how many steps is the range at 1.5?"""
    observer = MovingAverageMinMaxObserver(averaging_constant=c)
    observer(torch.tensor([-1.0, 1.0]))
    steps = 0
    while observer.max_val < 1.5:
        observer(torch.tensor([-2.0, 2.0]))
        steps += 1
    return steps


by_formula = math.ceil(math.log(2) / -math.log(1 - 0.01))  # from (1)
assert by_formula == 69, f"{by_formula} steps"
assert steps_to_half_way(0.01) == by_formula, "not (1)"
assert steps_to_half_way(1.0) == 1, "1.0 means: the weight as it is now"

# %% [markdown] lang="zh"
# 預測 2 的答案：69 步，我們整個訓練只有 200 步。別以為 weight 的預設就是 1.0：torchao 0.18.0 的 `fake_quantize.py` 說
# `default_weight_fake_quant` 沒有記憶（memoryless），因為 `averaging_constant` 是 1；程式並不是這樣，`XNNPACKQuantizer`
# 的設定也不是：

# %% [markdown] lang="en"
# The answer to prediction 2: 69 steps, where our whole training has 200. Don't take it for granted that weights get 1.0
# by default. `fake_quantize.py` of torchao 0.18.0 says that `default_weight_fake_quant` is memoryless since
# `averaging_constant` is 1; its code doesn't do that, and neither does the configuration of `XNNPACKQuantizer`:

# %%
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.fake_quantize import default_weight_fake_quant

weight_spec = get_symmetric_quantization_config(is_qat=True).weight
of_xnnpack = weight_spec.observer_or_fake_quant_ctr.with_args(
    dtype=weight_spec.dtype, quant_min=-127, quant_max=127
)
for build in (default_weight_fake_quant, of_xnnpack):
    c = build().activation_post_process.averaging_constant
    assert c == 0.01, f"the default is another now: {c}"

# %% [markdown] lang="zh"
# `common.qat` 的設定因此替 weight 寫明 `averaging_constant=1.0`：範圍就是現在這個 weight 的範圍。用 0.01 會慢多少，最後
# 一節拿訓練的紀錄算；它對準確率的影響，這一頁沒有量。
#
# ## 實驗：一次改一件事
#
# 基準是 M06-1 的排程：200 步、cosine 學習率、第 100 步凍結 BN、第 160 步凍結 observer。另外三個各改一件事；比的是凍結與
# 不凍結，換成別的步數會不會更好，這裡沒有找。每個都從三個訓練好的模型（seed 0、1、2）各跑一次；`trained` 跑一次約十幾
# 秒，結果存成 artifact。QAT 用的是沒有融合的 `FakeQuantize`，所以 fake quant 圖的準確率就是部署的準確率；融合版不是這
# 樣，見 [M06-3](3_deployed_scales.py)。

# %% [markdown] lang="en"
# That is why the configuration of `common.qat` says `averaging_constant=1.0` for weights: their range is the range of
# the weight as it is now. How far 0.01 would lag behind is computed from a recorded training in the last section; what
# it does to accuracy is not measured on this page.
#
# ## The experiment: one change at a time
#
# The baseline is the schedule of M06-1, 200 steps with a cosine for the learning rate: BN is frozen at step 100 and
# observers are at step 160. Three others change one thing each. We compare freezing with not freezing; whether other
# steps would be better is not searched for here. Every schedule runs from three trained models (seeds 0, 1, 2); a run
# of `trained` takes a good ten seconds and is kept as an artifact. QAT uses `FakeQuantize`, not the fused version, so
# that the accuracy of the fake-quant graph is the accuracy that gets deployed; with the fused one it isn't, see
# [M06-3](3_deployed_scales.py).


# %%
from common.qat import trained

baseline = Recipe()
assert baseline.steps == 200 and baseline.cosine
assert (baseline.freeze_bn, baseline.freeze_observers) == (100, 160)

schedules = {
    "baseline": baseline,
    "constant learning rate": replace(baseline, cosine=False),
    "BN never frozen": replace(baseline, freeze_bn=None),
    "observers never frozen": replace(baseline, freeze_observers=None),
}
SEEDS = 0, 1, 2
runs = {
    name: [trained(replace(recipe, seed=seed)) for seed in SEEDS]
    for name, recipe in schedules.items()
}

# %% [markdown] lang="zh"
# ## 先量雜訊
#
# 比較之前要知道：幾乎什麼都沒改，結果會差多少？同一個模型、同一份排程，只把學習率調高、調低千分之一，各再跑一次。沒有人
# 會說這樣的學習率比較好或比較差；但捨入的邊界只要跨過一次，之後的每一步就都不同了。

# %% [markdown] lang="en"
# ## Noise first
#
# Before any comparison: how far apart are results when next to nothing was changed? Same model, same schedule, two more
# runs with the learning rate one part in a thousand higher and lower. Nobody would call such a rate better or worse;
# but as soon as one value falls on the other side of a rounding boundary, every later step is different.


# %%
def right(run):
    """Which of the 2,000 test images the graph gets right after training."""
    return run.logits.argmax(1) == test_labels


def share(which):
    """Of a bool tensor, the share that is True."""
    return which.double().mean().item()


rates = 0.999e-3, 1e-3, 1.001e-3
alike = [trained(replace(baseline, learning_rate=rate)) for rate in rates]
assert not torch.equal(alike[0].logits, alike[1].logits), "the same run"
by_luck = [share(right(run)) for run in alike]
spread = max(by_luck) - min(by_luck)

# %% tags=["plot"]
say(
    T(
        zh=f"三次的準確率是 {'、'.join(f'{a:.2%}' for a in by_luck)}，最高與最低相差 {100 * spread:.2f} 個百分點。",
        en=f"The three accuracies are {', '.join(f'{a:.2%}' for a in by_luck)}: highest and lowest are "
        f"{100 * spread:.2f} percentage points apart.",
    )
)

# %% [markdown] lang="zh"
# 這是預測 3 的答案，也是這一頁的第一道門檻：比這還小的平均差異，不叫差異。三次只是很小的樣本，真正的起伏可能更大。
#
# ## 曲線
#
# 上圖是每一步的訓練 loss（20 步的平均）。下圖每 10 步一點：把狀態複製到一份凍結的圖，量 500 張測試圖片的準確率。畫的是
# 模型 seed 0。

# %% [markdown] lang="en"
# That answers prediction 3, and it is the first hurdle on this page: a mean difference smaller than this isn't called
# one. Three runs are a small sample; the true ups and downs may well be larger.
#
# ## Curves
#
# On top, the training loss of each step (mean of 20 steps). Below, every 10 steps, the accuracy on 500 test images of a
# frozen copy that got the state of the graph. Shown is the model of seed 0.

# %% tags=["plot"]
STYLES = dict(zip(schedules, ["-", "--", "-.", ":"], strict=True))
figure, (upper, lower) = plt.subplots(
    2, 1, figsize=(6.4, 6.0), sharex=True, height_ratios=(1, 1.3)
)
for number, (name, (run, *_)) in enumerate(runs.items()):
    look = {"color": f"C{number}", "linestyle": STYLES[name], "label": name}
    smooth = torch.tensor(run.losses).unfold(0, 20, 1).mean(1)
    upper.plot(range(20, len(run.losses) + 1), smooth, **look)
    measured = {step: a for step, a in run.accuracy.items() if step > 0}
    lower.plot(measured.keys(), measured.values(), marker=".", **look)
for axes in (upper, lower):
    axes.axvline(100, color="black", linewidth=0.8)
    axes.axvline(160, color="black", linewidth=0.8)
upper.set(ylabel="training loss", yscale="log")
lower.set(xlabel="step", ylabel="accuracy, fake-quant graph")
for step, what in {100: "BN frozen", 160: "observers frozen"}.items():
    upper.text(
        step, 1.03, what, ha="center", transform=upper.get_xaxis_transform()
    )
lower.legend(fontsize="small")
show(
    figure,
    alt=T(
        zh="上：四條訓練 loss 曲線，前半靠在一起，後半分開。下：四條準確率曲線，前半都上下跳動；後半的起伏各不相同。",
        en="Top: four curves of the training loss, together in the first half and apart in the second. Bottom: four curves of the accuracy; all "
        "jump up and down in the first half, and to different degrees in the second.",
    ),
    caption=T(
        zh="兩條直線是基準凍結 BN 與 observer 的時刻。第 100 步之前，「BN never frozen」就是基準，兩條線重疊；第 160 步之前，"
        "「observers never frozen」也是。",
        en="The two vertical lines are where the baseline freezes BN and observers. Up to step 100 “BN never frozen” is the "
        "baseline, so the curves coincide; so does “observers never frozen” up to step 160.",
    ),
)

# %% [markdown] lang="zh"
# 把曲線上看到的算成數字。起伏：從第 150 步起，一條曲線最高與最低差多少，三個模型平均。凍結 BN 的影響：前後各 20 步，基
# 準的訓練 loss 變了多少。

# %% [markdown] lang="en"
# Let us put numbers on what the curves show. Swings: from step 150 on, how far the highest and the lowest point of a
# curve are apart, averaged over the three models. The effect of freezing BN: how the training loss of the baseline
# changes from the 20 steps before to the 20 steps after.


# %%
def swing(run, since=150):
    late = [a for step, a in run.accuracy.items() if step >= since]
    return max(late) - min(late)


def change_of_loss(run, at):
    return sum(run.losses[at : at + 20]) / sum(run.losses[at - 20 : at]) - 1


swings = {name: sum(map(swing, group)) / 3 for name, group in runs.items()}
rises = [change_of_loss(run, at=100) for run in runs["baseline"]]

# %% tags=["plot"]
NAMES = {
    "baseline": T(zh="基準", en="baseline"),
    "constant learning rate": T(zh="學習率不降", en="constant learning rate"),
    "BN never frozen": T(zh="BN 不凍結", en="BN never frozen"),
    "observers never frozen": T(
        zh="observer 不凍結", en="observers never frozen"
    ),
}


def on_swings(swings):
    """Which schedule ends restless, which calm."""
    calm, wild = (f(swings, key=swings.get) for f in (min, max))
    a, b = 100 * swings[wild], 100 * swings[calm]
    return T(
        zh=f"跳動最大的是「{NAMES[wild].zh}」，最高與最低平均差 {a:.1f} 個百分點；最小的是「{NAMES[calm].zh}」，{b:.1f} 個百分點。",
        en=f"“{NAMES[wild].en}” swings most, by {a:.1f} percentage points on average; “{NAMES[calm].en}” swings least, by "
        f"{b:.1f}.",
    )


def on_rises(rises):
    """The loss where BN is frozen: one number for each model."""
    told = [f"{rise:+.0%}".replace("-", "−") for rise in rises]
    return T(
        zh=f"凍結 BN 之後，訓練 loss 的變化（seed 0、1、2）：{'、'.join(told)}。",
        en=f"Where BN is frozen the training loss changes by {', '.join(told)} (seeds 0, 1, 2).",
    )


say(on_swings(swings), on_rises(rises))

# %% [markdown] lang="zh"
# 曲線上每個準確率都用累積的統計量評估，但 BN 還沒凍結時，訓練用的是每一批自己的統計量：學到的 weight 配合的是後者，fake
# quant 的格子又把兩者的小差別放大（這是推測，沒有量到）。所以凍結的那一刻 loss 就算升高，也不是學壞了：從這一步起，loss
# 才是要部署的那個函數的 loss。
#
# ## 配對比較
#
# 準確率不一樣還不夠，要問差多少才算數。做法和 [M05-1](../m05_accuracy/1_evaluate.py) 相同：同一批 2,000 張測試圖片，數
# 出改動之後由對變錯、由錯變對的張數，得到差距的 95% 區間。區間只涵蓋測試圖片的運氣，不含訓練的運氣，所以再加兩道門
# 檻：**三個模型的區間都在 0 的同一邊，而且平均差異比上面量到的起伏大**，才說比較好或比較差。

# %% [markdown] lang="en"
# Every accuracy on the curves is evaluated with the accumulated statistics, but as long as BN isn't frozen, training
# uses those of each batch: that is what the learned weights fit, and the coarse steps of fake quant magnify the small
# difference (our inference, not measured). So if the loss jumps up where BN is frozen, nothing was unlearned: from that
# step on, it is the loss of the function that gets deployed.
#
# ## Paired comparison
#
# It isn't enough that accuracies differ; the question is which difference counts. As in
# [M05-1](../m05_accuracy/1_evaluate.py), we take the same 2,000 test images, count those that went from right to wrong
# and from wrong to right, and get a 95% interval for the change. The interval covers the luck of the test images, not
# that of training, so there are two more hurdles: we call a schedule better or worse only if **the intervals of all
# three models lie on the same side of 0, and the mean change is larger than the spread measured above**.

# %%
changes = {
    name: [
        paired_interval(right(before), right(after))
        for before, after in zip(runs["baseline"], group, strict=True)
    ]
    for name, group in runs.items()
    if name != "baseline"
}


def verdict(intervals: list[PairedInterval], spread: float) -> str:
    """better, worse or unclear, from one interval for each model."""
    verdicts = {interval.verdict for interval in intervals}
    mean = sum(i.change for i in intervals) / len(intervals)
    agreed = len(verdicts) == 1 and abs(mean) > spread
    return verdicts.pop() if agreed else "unclear"


# %% tags=["plot"]
VERDICTS = {
    "better": T(zh="比基準好", en="better"),
    "worse": T(zh="比基準差", en="worse"),
    "unclear": T(zh="分不出來", en="can't be told"),
}


def with_interval(change):
    """Such as `−5.4 [−6.6, −4.2]`, in percentage points."""
    interval = interval_in_points(change.low, change.high)
    return f"{in_points(change.change)} {interval}"


def mean_accuracy(name):
    return f"{sum(share(right(run)) for run in runs[name]) / 3:.2%}"


table(
    [
        [NAMES["baseline"], mean_accuracy("baseline"), "", "", "", ""],
        *[
            [
                NAMES[name],
                mean_accuracy(name),
                *map(with_interval, group),
                VERDICTS[verdict(group, spread)],
            ]
            for name, group in changes.items()
        ],
    ],
    [
        T(zh="排程", en="schedule"),
        T(zh="平均準確率", en="mean accuracy"),
        *[f"seed {s}" for s in SEEDS],
        T(zh="結論", en="verdict"),
    ],
    caption=T(
        zh="seed 那三欄：和基準相比變了幾個百分點，方括號是配對的 95% 區間。",
        en="The columns of seeds: change against the baseline in percentage points, with the paired 95% interval.",
    ),
)


# %% tags=["plot"]
def conclusions(changes, spread):
    """One sentence for each change, chosen by its verdict."""
    sentences = {
        "better": T(
            zh="**「{name}」**：三個模型都變好，{points}。那麼基準不是最好的排程。",
            en="**“{name}”**: better on all three models, by {points}. So the baseline is not the best schedule.",
        ),
        "worse": T(
            zh="**「{name}」**：三個模型都變差，{points}。基準的做法值得。",
            en="**“{name}”**: worse on all three models, by {points}. What the baseline does pays.",
        ),
        "unclear": T(
            zh="**「{name}」**：{points}，平均 {mean}。{why}，所以不說誰比較好。",
            en="**“{name}”**: {points}, on average {mean}. {why}, so we don't call either better.",
        ),
    }
    reasons = {
        "disagree": T(
            zh="三個模型的結論不一致：三個區間裡有 {clear} 個不含 0",
            en="The three models disagree ({clear} of the 3 intervals exclude 0)",
        ),
        "all contain 0": T(
            zh="三個區間都含 0", en="All three intervals contain 0"
        ),
        "within the noise": T(
            zh="平均差異沒有超過上面量到的起伏",
            en="The mean is within the spread measured above",
        ),
    }
    told = []
    for name, group in changes.items():
        mean = sum(i.change for i in group) / len(group)
        points = [in_points(i.change) for i in group]
        clear = sum(i.verdict != "unclear" for i in group)
        if len({i.verdict for i in group}) > 1:
            reason = "disagree"
        else:
            reason = "within the noise" if clear else "all contain 0"
        told.append(
            sentences[verdict(group, spread)].format(
                name=NAMES[name],
                points=T(
                    zh=f"{'、'.join(points)} 個百分點",
                    en=f"{', '.join(points)} points",
                ),
                mean=in_points(mean),
                why=reasons[reason].format(clear=clear),
            )
        )
    return told


say(conclusions(changes, spread))
worst = min(changes, key=lambda name: sum(i.change for i in changes[name]))
say(
    T(
        zh=f"三種改動裡，平均準確率最低的是「{NAMES[worst].zh}」，{mean_accuracy(worst)}（預測 4）。",
        en=f"Of the three changes, “{NAMES[worst].en}” has the lowest mean accuracy, {mean_accuracy(worst)} (prediction 4).",
    )
)

# %% [markdown] lang="zh"
# 平均最低還不算數，要看它的結論。差異是對這個模型、這份資料、200 步說的；換了任務，要用同樣的方法重量一次。
#
# ## 看 scale 停下來
#
# `disable_observer` 之後，scale 到底停了沒有？`trained` 在每一步記下了所有 fake quant 的 scale。上圖是第一個 conv 的
# weight，下圖是它後面 ReLU 的輸出：

# %% [markdown] lang="en"
# The lowest mean alone settles nothing; the verdict does. All of this holds for this model, this data and 200 steps;
# for another task, measure again in the same way.
#
# ## Watching scales come to rest
#
# Do scales really stop after `disable_observer`? At every step, `trained` has recorded the scale of each fake quant. On
# top, the weight of the first convolution; below, the output of the ReLU after it:

# %%
frozen, moving = runs["baseline"][0], runs["observers never frozen"][0]
for name, curve in frozen.scales.items():
    assert len(set(curve[160:])) == 1, f"{name} moved after disable_observer"
    assert curve[:161] == moving.scales[name][:161], "not the same run before"
assert any(len(set(c[160:])) > 1 for c in moving.scales.values()), "at rest"

# %% tags=["plot"]
PLACES = {"stem_conv.weight": "weight", "relu": "activation"}
figure, panels = plt.subplots(2, 1, figsize=(6.4, 4.8), sharex=True)
for axes, (name, kind) in zip(panels, PLACES.items(), strict=True):
    steps = range(100, 201)
    axes.plot(
        steps, moving.scales[name][100:], "--", color="C1", label="never frozen"
    )
    axes.plot(
        steps, frozen.scales[name][100:], color="C0", label="frozen at 160"
    )
    axes.axvline(160, color="black", linewidth=0.8)
    axes.set(ylabel=f"scale, {kind} {name}")
panels[0].legend(fontsize="small")
panels[1].set(xlabel="step")
show(
    figure,
    alt=T(
        zh="兩張圖：weight 與 activation 的 scale 從第 100 步到第 200 步。第 160 步以前實線與虛線重疊、起伏；之後實線變成水平線，虛線繼續動。",
        en="Two panels with the scale of a weight and of an activation from step 100 to 200. Up to step 160 the solid and the "
        "dashed line coincide and move; after that the solid one is level and the dashed one goes on moving.",
    ),
    caption=T(
        zh="模型 seed 0。實線：第 160 步呼叫 `disable_observer`；虛線：不呼叫。",
        en="Model of seed 0. Solid: `disable_observer` at step 160. Dashed: never.",
    ),
)

# %%
drift = {
    name: max(curve[160:]) / min(curve[160:]) - 1
    for name, curve in moving.scales.items()
}
most = max(drift, key=drift.get)

lag = {}  # range by (1) with c = 0.01, against the weight's own, at step 160
for name, curve in frozen.scales.items():
    if name.endswith("weight"):
        remembered = curve[1]  # curve[0] is from before the first batch
        for scale in curve[2:161]:
            remembered += 0.01 * (scale - remembered)
        lag[name] = remembered / curve[160] - 1
farthest = max(lag, key=lambda name: abs(lag[name]))

# %% tags=["plot"]
say(
    T(
        zh=f"observer 不凍結時，最後 40 步裡動得最多的 scale 是 `{most}`，最大與最小差 {drift[most]:.1%}。把公式 (1) 用 $c=0.01$ "
        f"套在基準的 weight 上，到第 160 步，記得的範圍和當時的範圍差最多的是 `{farthest}`：{lag[farthest]:+.1%}。",
        en=f"With observers never frozen, the scale that moves most over the last 40 steps is that of `{most}`: largest and "
        f"smallest are {drift[most]:.1%} apart. Apply formula (1) with $c=0.01$ to the weights of the baseline, and by step "
        f"160 the remembered range is farthest from the actual one for `{farthest}`: {lag[farthest]:+.1%}.",
    )
)

# %% [markdown] lang="zh"
# 凍結的意義不只在準確率：scale 停了，loss 才是同一個函數的 loss，最後幾十步的 weight 才有固定的格子可以適應；而且評估再
# 怎麼呼叫，都不會再動到它。開關要用 torchao 的，`torch.ao.quantization` 的同名函式什麼也不做
# （[M02-2](../m02_observers/2_fake_quant.py)）。

# %% [markdown] lang="en"
# Freezing is about more than accuracy. Once scales rest, the loss is the loss of one and the same function, and in the
# last steps the weights have fixed steps to settle on; and no evaluation can move anything any more. The switch has to
# be torchao's: its namesake in `torch.ao.quantization` does nothing ([M02-2](../m02_observers/2_fake_quant.py)).

# %% [markdown] lang="zh"
# ## 小結
#
# | 什麼 | 用什麼停下來 | 什麼時候，為什麼 |
# | --- | --- | --- |
# | 學習率 | cosine 降到 0 | 從頭到尾；最後幾步不再大幅移動 weight |
# | BN | `move_exported_model_to_eval` | 中途；之後訓練的就是要部署的函數 |
# | observer | `disable_observer` | 接近尾聲；格子固定，評估不再改到它 |
# | fake quant | 不停 | 關了就不是 QAT |
# | weight 的範圍 | 和 observer 一起停 | `averaging_constant=1.0`：weight 不是抽樣，不必平均 |
#
# - 訓練中的圖一呼叫就會變：評估用凍結的複本。
# - 先量雜訊，再比排程；區間含 0、各模型不一致、或平均差異沒有超過雜訊，就不說誰好。
# - 準確率以 convert 之後的為準（[M06-3](3_deployed_scales.py)）。

# %% [markdown] lang="en"
# ## Recap
#
# | What | Stopped by | When, and why |
# | --- | --- | --- |
# | learning rate | falls to 0 along a cosine | throughout; the last steps no longer move weights far |
# | BN | `move_exported_model_to_eval` | midway; from then on we train the function that is deployed |
# | observers | `disable_observer` | near the end; steps stay put and evaluations can't move them |
# | fake quant | nothing | without it, it isn't QAT |
# | range of weights | stops with the observers | `averaging_constant=1.0`: a weight is no sample, there is nothing to average |
#
# - A graph in training changes whenever it is called: evaluate a frozen copy.
# - Measure the noise, then compare schedules; where intervals contain 0, models disagree, or the mean is within the
#   noise, don't call either better.
# - The accuracy that counts is the one after convert ([M06-3](3_deployed_scales.py)).

# %% [markdown] lang="zh"
# ## 試試看
#
# 凍結得太早會怎樣？`at_start` 是剛插入 fake quant、還沒看過任何圖片的圖。先猜：立刻 `disable_observer` 再評估，scale 是
# 多少？準確率呢？然後改成先看一批 64 張圖片再凍結。

# %% [markdown] lang="en"
# ## Try it
#
# What if you freeze too early? `at_start` is the graph right after fake quant was inserted; it hasn't seen an image
# yet. Guess first: `disable_observer` at once, then evaluate. What are the scales, and the accuracy? Then let it see
# one batch of 64 images before you freeze it.

# %% tags=["solution"]
move_exported_model_to_eval(at_start)
too_early, after_one_batch = copy.deepcopy(at_start), copy.deepcopy(at_start)
too_early.apply(disable_observer)
with torch.no_grad():
    after_one_batch(images[:64])
after_one_batch.apply(disable_observer)


def scales_and_accuracy(graph):
    with torch.no_grad():
        is_right = graph(test_images).argmax(1) == test_labels
    scales = {module.scale.item() for module in fake_quants(graph).values()}
    return scales, share(is_right)


scales, blind = scales_and_accuracy(too_early)
assert scales == {1.0}, "an observer has seen something"
scales, informed = scales_and_accuracy(after_one_batch)
assert len(scales) > 5 and 1.0 not in scales
assert informed > blind + 0.1, "one batch made no difference"
print(f"frozen at once: {blind:.2%}, after one batch: {informed:.2%}")

# %% [markdown] lang="zh" tags=["solution"]
# 每個 scale 都還是起始值 1.0：activation 被捨入成整數，小於 0.5 的 weight 全變成 0，四個類別只剩亂猜，而且沒有任何訊
# 息。要先讓 observer 看過資料，才能凍結；看一批之後的準確率，就是沒訓練的 4 位元 PTQ 的水準。

# %% [markdown] lang="en" tags=["solution"]
# Every scale still has its initial value, 1.0: activations are rounded to integers, weights below 0.5 all become 0, and
# with four classes that leaves guessing. Nothing warns. Observers have to see data before they are frozen; after one
# batch, the accuracy is that of 4-bit PTQ without training.

# %% [markdown] lang="zh"
# ## 接下來
#
# 部署用的是哪個 scale：[M06-3](3_deployed_scales.py)。BN 在 QAT 圖裡長什麼
# 樣：[M04-2](../m04_batchnorm/2_qat_conv_bn.py)；在 train 與 eval 之間切換：[M04-3](../m04_batchnorm/3_train_eval.py)。
# 回到 [M06 概覽](0_overview.py)。

# %% [markdown] lang="en"
# ## Next
#
# Which scales are deployed: [M06-3](3_deployed_scales.py). What BN looks like in a QAT graph:
# [M04-2](../m04_batchnorm/2_qat_conv_bn.py); switching between train and eval:
# [M04-3](../m04_batchnorm/3_train_eval.py). Back to the [M06 overview](0_overview.py).
