# %% [markdown] lang="zh"
# # M05 概覽 | 量化後的模型有多好，每個指標各漏看什麼
#
# 量化之後，第一個問題一定是「還準不準」。能回答的數字有好幾個，而每一個都有看不到的東西：準確率不變的模型，答案可能換了
# 一批；SQNR 很高的 weight，可能有幾個 channel 已經面目全非。這一頁定義整章要用的四個指標，每個都用一個真的跑出來的反
# 例，讓你看到它漏看什麼。
#
# | 問題 | 一句話的答案 | 頁 |
# | --- | --- | --- |
# | 用哪個指標說模型有多好？ | 準確率、一致率、SQNR、LSB 各看一面，單看任何一個都會被騙 | 本頁 |
# | 準確率差了一點，是真的還是運氣？ | 同一批圖片逐張比；區間包含 0 就不說誰好 | [M05-1](1_evaluate.py) |
# | 誤差從哪一層來？ | 逐層比 SQNR；fp32 那邊要先折疊 BN，不然比錯東西 | [M05-2](2_numeric_debugger.py) |
# | 該讓哪一層用比較多位元？ | 一次換一層、量準確率；不一定是 SQNR 最低的那層 | [M05-3](3_sensitivity.py) |
#
# **讀完你會知道**
#
# - 四個指標的公式，各和什麼比，單位是什麼
# - 每個指標漏看什麼，各有一個反例
# - 為什麼 logit 動了，答案卻常常不變
# - 哪一種問題該看哪一個指標

# %% [markdown] lang="en"
# # M05 Overview | How good is a quantized model, and what each metric hides
#
# After quantization the first question is always "is it still accurate?" Several metrics answer it, and each is blind
# to something: a model of unchanged accuracy may have swapped a batch of its answers, and a weight of high SQNR may
# hold channels that are damaged beyond recognition. This page defines the four metrics this chapter works with, and
# shows what each one hides by a counterexample that really runs.
#
# | Question | Answer in one line | Page |
# | --- | --- | --- |
# | Which metric says how good a model is? | Accuracy, agreement, SQNR and LSB each see one side; any one of them alone can fool you | this page |
# | Accuracy moved a little. Is that real or luck? | Compare image by image; if the interval contains 0, don't call either one better | [M05-1](1_evaluate.py) |
# | Which layer does the error come from? | Compare SQNR layer by layer; fold BN on the fp32 side first, or you compare the wrong things | [M05-2](2_numeric_debugger.py) |
# | Which layer should get more bits? | Change one layer at a time and measure accuracy; it need not be the one of lowest SQNR | [M05-3](3_sensitivity.py) |
#
# **What you will know**
#
# - The formulas of four metrics, what each compares with, and in which unit
# - What each of them hides, with a counterexample for each
# - Why logits move and answers often don't
# - Which metric to look at for which question

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 兩個模型在同一批圖片上答對的張數完全相同。它們的答案有沒有可能不同？大約百分之幾？
# 2. 把所有 logit 乘以 2：答案變了嗎？SQNR 是幾 dB？（SQNR 是訊號比誤差，以對數表示，越高越好）
# 3. 一個 int8 weight 整體看來，誤差只有訊號的百分之一左右。最差的那個 channel 呢？
# 4. 同一組 logit，用 scale $s$ 和 $4s$ 各量化一次。最大的誤差各是幾格？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. Two models get exactly as many of the same images right. Can their answers differ? On roughly what percentage?
# 2. Multiply all logits by 2: do the answers change? How many dB is the SQNR? (It is the ratio of signal to error on a
#    logarithmic scale; higher is better.)
# 3. In an int8 weight as a whole, the error is about one percent of the signal. What about its worst channel?
# 4. We quantize the same logits with scale $s$ and again with $4s$. How many steps is the largest error in each case?

# %% tags=["setup"]
import math

from common import metrics
from common.data import CLASSES, calibration_batches, test_data
from common.env import quiet
from common.models import trained_tinyconvnet
from common.pt2e import output_qparams
from common.quantizers import PTQQuantizer
from common.viz import T, say, show, table

import matplotlib.pyplot as plt
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

quiet()

# %% [markdown] lang="zh"
# ## 準備：一個模型，三種量化
#
# 主角是訓練好的 TinyConvNet。三種量化的 activation 都是 int8，差在 weight：int8 per-channel（每個 output channel 各有
# scale）、4 位元 per-channel、4 位元 per-tensor（整個 weight 共用一個 scale）。為了省時間，這裡用本課程的
# `PTQQuantizer`：標註和 `XNNPACKQuantizer` 完全相同，但 prepare 快得多。

# %% [markdown] lang="en"
# ## Setup: one model, quantized three ways
#
# Our subject is the trained TinyConvNet. In all three variants activations are int8; the weights differ: int8
# per-channel (a scale for each output channel), 4-bit per-channel, and 4-bit per-tensor (one scale for the whole
# weight). To save time we use the course's `PTQQuantizer`, which annotates exactly like `XNNPACKQuantizer` but prepares
# much faster.

# %%
model = trained_tinyconvnet()
images, labels = test_data()  # 2,000 images of four classes


def quantize(**switches):
    batch = torch.export.Dim("batch", min=1, max=4096)
    example, shapes = (torch.zeros(2, 3, 16, 16),), ({0: batch},)
    program = torch.export.export(model, example, dynamic_shapes=shapes)
    config = get_symmetric_quantization_config(**switches)
    quantizer = PTQQuantizer().set_global(config)
    prepared = prepare_pt2e(program.module(), quantizer)
    with torch.no_grad():
        for (batch,) in calibration_batches(256):  # training images
            prepared(batch)
    return convert_pt2e(prepared)


four_bits = {"weight_qmin": -7, "weight_qmax": 7}
INT8, FOUR, FOUR_PT = (
    "int8 per-channel",
    "4-bit per-channel",
    "4-bit per-tensor",
)
quantized = {
    INT8: quantize(is_per_channel=True),
    FOUR: quantize(is_per_channel=True, **four_bits),
    FOUR_PT: quantize(**four_bits),
}

# %% [markdown] lang="zh"
# ## 四個指標
#
# 對每張圖片 $i$，模型輸出四個 logit（每類一個分數），最大的那類就是答案 $a_i$。標籤是 $y_i$，一共 $N$ 張圖片；
# $[\cdot]$ 在條件成立時是 1，否則是 0。
#
# $$\text{準確率} = \frac{1}{N} \sum_i [\hat{a}_i = y_i] \tag{1}$$
#
# $$\text{一致率} = \frac{1}{N} \sum_i [\hat{a}_i = a_i] \tag{2}$$
#
# 這裡 $a$ 是 fp32 模型的答案，$\hat{a}$ 是量化後的答案。另外兩個不看答案，直接比數值：$x$ 是參考值（通常來自 fp32），
# $\hat{x}$ 是要檢查的值，$s$ 是拿來當尺的 scale，通常是輸出的：
#
# $$\text{SQNR} = 10 \log_{10} \frac{\sum x^2}{\sum (x - \hat{x})^2} \ \text{dB} \tag{3}$$
#
# $$\text{差幾 LSB} = \frac{|x - \hat{x}|}{s} \tag{4}$$
#
# SQNR 是訊號與量化雜訊的功率比：20 dB 表示誤差是訊號的十分之一（以均方根算），40 dB 是百分之一，0 dB 是和訊號一樣大。
# LSB（least significant bit）就是整數的一格。全部用 torch 寫，只要幾行：

# %% [markdown] lang="en"
# ## Four metrics
#
# For each image $i$ a model returns four logits, a score for each class; the class of the largest one is the answer
# $a_i$. The label is $y_i$, there are $N$ images, and $[\cdot]$ is 1 where the condition holds, else 0.
#
# $$\text{accuracy} = \frac{1}{N} \sum_i [\hat{a}_i = y_i] \tag{1}$$
#
# $$\text{agreement} = \frac{1}{N} \sum_i [\hat{a}_i = a_i] \tag{2}$$
#
# Here $a$ is the answer of the fp32 model and $\hat{a}$ that of the quantized one. The other two don't look at answers
# but compare values: $x$ is the reference (usually from fp32), $\hat{x}$ the value to check, and $s$ the scale used as
# the yardstick, usually the output's:
#
# $$\text{SQNR} = 10 \log_{10} \frac{\sum x^2}{\sum (x - \hat{x})^2} \ \text{dB} \tag{3}$$
#
# $$\text{difference in LSB} = \frac{|x - \hat{x}|}{s} \tag{4}$$
#
# SQNR is the power of the signal over that of the quantization noise: at 20 dB the error is a tenth of the signal (root
# mean square), at 40 dB a hundredth, at 0 dB as large as the signal. An LSB (least significant bit) is one step of the
# integers. In plain torch it takes a few lines:

# %%
with torch.no_grad():
    fp32 = model(images)  # logits, (2000, 4)
    logits = {name: gm(images) for name, gm in quantized.items()}

int8 = logits[INT8]
accuracy = (int8.argmax(1) == labels).double().mean()
agreement = (int8.argmax(1) == fp32.argmax(1)).double().mean()
power, noise = fp32.square().sum(), (fp32 - int8).square().sum()
sqnr_db = 10 * torch.log10(power / noise)
scale = output_qparams(quantized[INT8]).scale  # of the graph's last q node
lsb = (fp32 - int8).abs() / scale

# %% [markdown] lang="zh"
# 之後的頁面從 `common.metrics` 匯入同樣的函式（本課程的，不是 torchao 的）。SQNR 再和 torchao 自己的 `compute_error` 對
# 一次：

# %% [markdown] lang="en"
# Later pages import the same functions from `common.metrics` (this course's, not torchao's). SQNR is also checked
# against torchao's own `compute_error`:

# %%
from torchao.quantization.utils import compute_error

same = metrics.accuracy(quantized[INT8], images, labels)
assert abs(accuracy - same) < 0.001, "not formula (1)"
assert agreement == metrics.agreement(fp32, int8)
assert abs(sqnr_db - metrics.sqnr_db(fp32, int8)) < 0.01, "not formula (3)"
assert abs(sqnr_db - compute_error(fp32, int8)) < 0.01, "not torchao's SQNR"

tenth = metrics.sqnr_db(fp32, 1.1 * fp32)
assert abs(tenth - 20) < 0.01, f"an error of a tenth is {tenth:.2f} dB"

# %%
scores = {}  # the larger, the better; hence minus LSB
for name, values in logits.items():
    right = (values.argmax(1) == labels).double().mean().item()
    agree = metrics.agreement(fp32, values)
    in_db = metrics.sqnr_db(fp32, values)
    step = output_qparams(quantized[name]).scale
    in_lsb = ((fp32 - values).abs() / step).mean().item()
    scores[name] = right, agree, in_db, -in_lsb

for best, middle, last in zip(*scores.values(), strict=True):
    assert best > middle > last, "the four metrics order the models differently"

# %% tags=["plot"]
table(
    [
        [
            "fp32",
            f"{metrics.accuracy(model, images, labels):.2%}",
            "–",
            "–",
            "–",
        ],
        *(
            [
                name,
                f"{right:.2%}",
                f"{agree:.2%}",
                f"{in_db:.1f} dB",
                f"{-minus_lsb:.2f} LSB",
            ]
            for name, (right, agree, in_db, minus_lsb) in scores.items()
        ),
    ],
    [
        T(zh="模型", en="model"),
        T(zh="準確率", en="accuracy"),
        T(zh="一致率", en="agreement"),
        T(zh="logit 的 SQNR", en="SQNR of the logits"),
        T(zh="logit 平均差", en="logits, mean difference"),
    ],
    caption=T(
        zh="2,000 張測試圖片。後三欄都是和 fp32 比。",
        en="2,000 test images. The last three columns compare with fp32.",
    ),
)

# %% [markdown] lang="zh"
# 四欄都把三個模型排成同樣的順序。那還需要四個嗎？接下來看它們各自何時會騙人。
#
# ## 準確率：會互相抵銷，也會平均掉
#
# 準確率只數答對幾張，不管是哪幾張。為了看清楚，找一個答案明顯不同的模型：同樣的架構、另一個亂數種子訓練出來的「雙胞
# 胎」。兩者準確率本來略有差別，所以從測試集拿掉幾張只有其中一個答對的圖片，讓兩邊在剩下的圖片上答對的張數完全相同：

# %% [markdown] lang="en"
# All four columns put the three models in the same order. Do we need four, then? Next, when each of them misleads.
#
# ## Accuracy: changes cancel, and averages blur
#
# Accuracy counts how many answers are right, not which. To see that clearly, take a model whose answers really differ:
# a "twin" of the same architecture, trained from another random seed. The two differ a little in accuracy, so we drop a
# few images that only one of them gets right, until both get exactly as many of the rest right:

# %%
twin = trained_tinyconvnet(seed=1)
with torch.no_grad():
    twin_logits = twin(images)
right, twin_right = (x.argmax(1) == labels for x in (fp32, twin_logits))
only_model = (right & ~twin_right).nonzero().flatten()
only_twin = (~right & twin_right).nonzero().flatten()

surplus = max(only_model, only_twin, key=len)
dropped = surplus[: abs(len(only_model) - len(only_twin))]
kept = torch.ones(len(labels), dtype=torch.bool)
kept[dropped] = False

# %%
n_kept, n_right = kept.sum().item(), right[kept].sum().item()
assert twin_right[kept].sum() == n_right, "not equally accurate"
different = (fp32.argmax(1) != twin_logits.argmax(1))[kept].sum().item()
assert different > n_kept / 100, "hardly any answer differs"

# %% tags=["plot"]
say(
    T(
        zh=f"在留下的 {n_kept:,} 張圖片上，兩個模型都答對 {n_right:,} 張，準確率一模一樣；可是有 {different} 張"
        f"（{different / n_kept:.1%}）的答案不同。這是預測 1 的答案。",
        en=f"On the {n_kept:,} images that are left, both models get {n_right:,} right, exactly the same accuracy. "
        f"Yet on {different} of them ({different / n_kept:.1%}) they give different answers. "
        "That answers prediction 1.",
    )
)

# %% [markdown] lang="zh"
# 它還有第二個盲點：平均。把測試集照類別拆開，看各類的準確率變了幾個百分點。

# %% [markdown] lang="en"
# It has a second blind spot: it is an average. Split the test set by class, and see by how many percentage points the
# accuracy of each class changed.


# %%
def by_class(logits):
    is_right = (logits.argmax(1) == labels).double()
    return torch.stack([is_right[labels == c].mean() for c in range(4)])


change = {
    name: 100 * (by_class(values) - by_class(fp32))
    for name, values in logits.items()
}
apart = change[FOUR_PT].max() - change[FOUR_PT].min()
assert apart > 10, f"all classes changed alike, within {apart:.0f} points"

# %% tags=["plot"]
total = {
    name: 100 * ((x.argmax(1) == labels).double() - right.double()).mean()
    for name, x in logits.items()
}
CLASSES_ZH = ("亮、橫紋", "亮、直紋", "暗、橫紋", "暗、直紋")
table(
    [
        [
            name,
            *(
                f"{points:+.1f}".replace("-", "−")
                for points in (total[name], *change[name])
            ),
        ]
        for name in logits
    ],
    [
        T(zh="模型", en="model"),
        T(zh="全部", en="all"),
        *(T(zh=zh, en=en) for zh, en in zip(CLASSES_ZH, CLASSES, strict=True)),
    ],
    caption=T(
        zh="準確率相對於 fp32 的變化，單位是百分點。每一類約 500 張。",
        en="Change in accuracy from fp32 in percentage points. About 500 images in each class.",
    ),
)

# %% [markdown] lang="zh"
# 看 4 位元 per-tensor 那一列：「全部」這個數字，把變化相差十個百分點以上的類別混在一起，哪一類崩潰了就看不到。
#
# ## 一致率：不知道誰對，也看不到差多少
#
# 一致率不需要標籤，又抓得到互相抵銷的變化。但它把 fp32 當成標準答案：和 fp32 不同，不等於比較差。拿 int8 和雙胞胎來比：

# %% [markdown] lang="en"
# In the row of 4-bit per-tensor, the number for "all" blends classes whose changes lie more than ten points apart, and
# hides which class collapsed.
#
# ## Agreement: who is right, and by how much?
#
# Agreement needs no labels and catches changes that cancel. But it takes fp32 for the truth, and different from fp32
# doesn't mean worse. Compare int8 with the twin:

# %%
twin_accuracy = twin_right.double().mean().item()
twin_agreement = metrics.agreement(fp32, twin_logits)
assert twin_agreement < agreement - 0.01, "the twin agrees as often as int8"
assert twin_accuracy > accuracy - 0.015, "the twin is clearly worse"

# %% tags=["plot"]
say(
    T(
        zh=f"雙胞胎的一致率只有 {twin_agreement:.2%}，int8 有 {agreement:.2%}；可是準確率一個是 {twin_accuracy:.2%}、"
        f"一個是 {accuracy:.2%}。只看一致率，會以為雙胞胎被弄壞了。",
        en=f"The twin agrees on {twin_agreement:.2%} only, int8 on {agreement:.2%}. Their accuracies are "
        f"{twin_accuracy:.2%} and {accuracy:.2%}. By agreement alone you would think that the twin is damaged.",
    )
)

# %% [markdown] lang="zh"
# 第二，一致率看不到 logit 動了多少，因為答案只取決於誰最大。fp32 第一名領先第二名的差距叫 $m$；要翻盤，得有一個 logit
# 追上 $m$，而兩個 logit 最多各往對方移動 $\max|x - \hat{x}|$。所以答案要變，必須
#
# $$m \le 2 \max |x - \hat{x}| \tag{5}$$
#
# 每張圖片畫成一點：橫軸是領先，縱軸是四個 logit 中最大的誤差。虛線以下，答案不可能變。

# %% [markdown] lang="en"
# Second, agreement doesn't see how far logits moved, because the answer depends only on which one is largest. Call
# fp32's lead of the first over the second $m$. For the answer to change, some logit has to make up $m$, and two logits
# can each move toward the other by $\max|x - \hat{x}|$ at most. So an answer can change only if
#
# $$m \le 2 \max |x - \hat{x}| \tag{5}$$
#
# Each image becomes a point: its lead to the right, the largest error among its four logits upward. Below the dashed
# line an answer can't change.

# %%
first, second = fp32.topk(2, dim=1).values.unbind(1)
lead = first - second
error, changed = {}, {}
for name, values in logits.items():
    error[name] = (fp32 - values).abs().amax(1)
    changed[name] = values.argmax(1) != fp32.argmax(1)
    safe = lead > 2 * error[name]
    assert not changed[name][safe].any(), f"{name}: (5) does not hold"

# %% tags=["plot"]
figure, axes = plt.subplots(figsize=(6.0, 3.4))
some = torch.arange(len(labels)) % 5 == 0  # every fifth, to keep it readable
same = some & ~changed[FOUR]
axes.plot(
    lead[same],
    error[FOUR][same],
    "o",
    color="C0",
    markersize=2.5,
    label="same answer (every fifth)",
)
axes.plot(
    lead[changed[FOUR]],
    error[FOUR][changed[FOUR]],
    "^",
    color="C1",
    markersize=4,
    label="answer changed (all)",
)
top = error[FOUR].quantile(0.998).item() * 1.1
axes.plot([0, 2 * top], [0, top], "--", color="black", label="lead = 2 × error")
axes.set(
    xlabel="lead of the first logit over the second (fp32)",
    ylabel="largest error of a logit",
    xlim=(0, lead.quantile(0.99).item()),
    ylim=(0, top),
)
axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=9)
could = (lead <= 2 * error[FOUR]).double().mean().item()
did = changed[FOUR].double().mean().item()
show(
    figure,
    alt=T(
        zh="散布圖。橫軸是 fp32 的領先，縱軸是 4 位元 per-channel 最大的 logit 誤差。多數點在虛線下方很遠；"
        "答案變了的三角形全部在虛線上方，集中在領先很小的左邊。",
        en="A scatter plot of the lead in fp32 against the largest logit error of 4-bit per-channel. Most points lie "
        "far below the dashed line; the triangles whose answer changed all lie above it, crowded at small leads on "
        "the left.",
    ),
    caption=T(
        zh=f"4 位元 per-channel。虛線上方有 {could:.0%} 的圖片，答案真的變了的有 {did:.1%}。",
        en=f"4-bit per-channel. {could:.0%} of the images lie above the line, and the answers of {did:.1%} did change.",
    ),
)

# %% [markdown] lang="zh"
# 點只要還在虛線下方，怎麼移動，一致率都不變；越過虛線也只是有可能變。所以要知道「離出事還有多遠」，得看數值本身。
#
# ## SQNR：不知道答案，也被大的值主導
#
# SQNR 對每個數值都敏感，卻不知道哪個數值要緊。先看兩個極端：logit 全部乘以 2；以及 4 位元 per-channel 裡，答案變了的圖
# 片當中 SQNR 最高的那一張。

# %% [markdown] lang="en"
# As long as points stay below the line, agreement stays what it is, wherever they move; above it, answers merely may
# change. To know how close to trouble you are, you have to look at the values themselves.
#
# ## SQNR: knows no answers, and follows what is large
#
# SQNR feels every value but doesn't know which of them matter. Two extremes first: all logits times 2; and, among the
# images whose answer 4-bit per-channel changed, the one of highest SQNR.

# %%
doubled = 2 * fp32
assert abs(metrics.sqnr_db(fp32, doubled)) < 1e-6, "the error is the signal"
assert metrics.agreement(fp32, doubled) == 1, "doubling changed an answer"

by_image = torch.tensor(
    [metrics.sqnr_db(x, y) for x, y in zip(fp32, logits[FOUR], strict=True)]
)
highest, at = torch.where(changed[FOUR], by_image, -torch.inf).max(0)
typical = by_image[~changed[FOUR]].median().item()
assert highest > typical + 3, "changed answers have a low SQNR"
assert lead[at] < lead.median() / 2, "its lead is not a small one"

# %% tags=["plot"]
say(
    T(
        zh=f"乘以 2：SQNR 是 {metrics.sqnr_db(fp32, doubled):.0f} dB，誤差和訊號一樣大，一致率卻是 100%（預測 2）。"
        f"反過來，有一張圖片的 SQNR 高達 {highest:.1f} dB，答案卻變了；答案沒變的圖片，中位數才 {typical:.1f} dB。"
        f"差別在領先：它在 fp32 只領先 {lead[at]:.2f}，而領先的中位數是 {lead.median():.2f}。",
        en=f"Times 2: the SQNR is {metrics.sqnr_db(fp32, doubled):.0f} dB, an error as large as the signal, at an "
        f"agreement of 100% (prediction 2). Conversely, one image reaches {highest:.1f} dB and changes its answer all "
        f"the same, while the median of those that don't is only {typical:.1f} dB. What differs is the lead: "
        f"{lead[at]:.2f} in fp32, where the median is {lead.median():.2f}.",
    )
)

# %% [markdown] lang="zh"
# 第二個盲點：式 (3) 把所有元素的平方加在一起，大的值決定結果。拿第一個 conv（stem）折疊
# BN（[M04](../m04_batchnorm/0_overview.py)）之後的 weight，以 int8 per-tensor 量化，比較整體的 SQNR 和每個 output
# channel 自己的 SQNR：

# %% [markdown] lang="en"
# The second blind spot: formula (3) adds up the squares of all elements, so large values decide. Take the weight of the
# first convolution (the stem) after BN folding ([M04](../m04_batchnorm/0_overview.py)), quantize it as int8 per-tensor,
# and compare the SQNR of the whole with that of each output channel by itself:

# %%
# convert leaves the folded fp32 weight in the state dict
stem = quantized[INT8].state_dict()["stem_conv.weight"]
step = stem.abs().max() / 127  # one scale for all 16 channels
restored = (stem / step).round() * step

whole = metrics.sqnr_db(stem, restored)
channels = [
    metrics.sqnr_db(w, w_hat) for w, w_hat in zip(stem, restored, strict=True)
]
assert whole > 35, "an error of more than two percent"
assert whole > min(channels) + 10, "the weakest channel is like the whole"

# %% tags=["plot"]
size = stem.abs().amax((1, 2, 3)).tolist()
order = sorted(range(len(size)), key=lambda c: -size[c])
figure, axes = plt.subplots(figsize=(6.0, 2.8))
axes.bar(range(len(order)), [channels[c] for c in order], color="C0")
axes.axhline(
    whole, color="black", linestyle="--", label="SQNR of the whole weight"
)
axes.set(
    xlabel="output channel, from the largest weights to the smallest",
    ylabel="SQNR (dB)",
)
axes.set_xticks([])
axes.set_ylim(0, max(*channels, whole) * 1.3)
axes.legend(loc="upper right")
percent = [100 * 10 ** (-db / 20) for db in (whole, min(channels))]
show(
    figure,
    alt=T(
        zh="stem 的 16 個 channel 各自的 SQNR，由 weight 最大的排到最小的。左邊幾根長條高過虛線（整體的 SQNR），"
        "越往右越矮，最右邊遠低於虛線。",
        en="The SQNR of each of the stem's 16 channels, from the largest weights to the smallest. A few bars on the "
        "left rise above the dashed line, the SQNR of the whole; toward the right they get shorter and end far below it.",
    ),
    caption=T(
        zh=f"整體 {whole:.1f} dB，誤差是訊號的 {percent[0]:.1f}%；最差的 channel 只有 {min(channels):.1f} dB，"
        f"誤差是訊號的 {percent[1]:.0f}%（預測 3）。",
        en=f"The whole: {whole:.1f} dB, an error of {percent[0]:.1f}% of the signal. The worst channel: "
        f"{min(channels):.1f} dB, an error of {percent[1]:.0f}% (prediction 3).",
    ),
)

# %% [markdown] lang="zh"
# 對整體的 SQNR 來說，小的 channel 等於不存在；對下一層來說，它們可能正是分辨條紋的那幾個（這是推測，沒有量到）。所以看
# SQNR 時也要拆開看。
#
# ## LSB：一格有多大？
#
# 以格為單位的好處是門檻好訂：同一組輸出格子上的兩個結果，差一定是整數格。int8 與 4 位元的輸出 scale 相同，因為兩者的
# observer 看的是同樣的 fp32 數值；它們可以直接比幾格。和 fp32 比就不是整數，因為 fp32 的值不在格子上。

# %% [markdown] lang="en"
# To the SQNR of the whole, small channels hardly exist; to the next layer they may be just those that tell the stripes
# apart (our inference, not measured). So split an SQNR up before you trust it.
#
# ## LSB: how large is a step?
#
# Counting in steps makes limits easy to set: two results on the same output grid differ by whole steps. int8 and 4-bit
# have the same output scale, since their observers saw the same fp32 values, so the two can be compared in steps.
# Against fp32 the difference is no whole number, because fp32 values don't lie on the grid.

# %%
assert output_qparams(quantized[FOUR]) == output_qparams(quantized[INT8])
steps = (logits[FOUR] - int8) / scale
assert (steps - steps.round()).abs().max() < 1e-3, "not whole steps"
assert (lsb - lsb.round()).abs().max() > 0.4, "fp32 lies on the grid"

# %% [markdown] lang="zh"
# 壞處是：一格有多大，它不說。把同一組 fp32 logit 量化成 scale $s$ 和 $4s$（不 clamp）：

# %% [markdown] lang="en"
# The drawback: it doesn't say how large a step is. Quantize the same fp32 logits with scale $s$ and with $4s$ (without
# clamping):

# %%
rounded, worst_lsb = {}, {}
for s in (scale, 4 * scale):
    rounded[s] = (fp32 / s).round() * s
    worst_lsb[s] = ((fp32 - rounded[s]).abs() / s).max().item()
    assert 0.49 < worst_lsb[s] < 0.501, "rounding is off by half a step"

fine, coarse = (metrics.sqnr_db(fp32, x) for x in rounded.values())
gap = 20 * math.log10(4)  # 12.04 dB, two bits
assert abs(fine - coarse - gap) < 1, f"{fine - coarse:.1f} dB apart"

# %% tags=["plot"]
table(
    [
        [
            name,
            f"{worst_lsb[s]:.2f} LSB",
            f"{(fp32 - rounded[s]).abs().max():.3f}",
            f"{metrics.sqnr_db(fp32, rounded[s]):.1f} dB",
        ]
        for name, s in zip(("s", "4 s"), rounded, strict=True)
    ],
    [
        "scale",
        T(zh="最大差（格）", en="largest difference (steps)"),
        T(zh="最大差（logit）", en="largest difference (logit)"),
        "SQNR",
    ],
)

# %% [markdown] lang="zh"
# 都是半格（預測 4），實際的誤差卻差四倍，SQNR 差約 12 dB：scale 每加倍，也就是少一個位元，SQNR 少 6 dB。所以 LSB 只能比
# **同一個 scale** 上的東西，例如同一張 Q/DQ 圖和它匯出的 `.pte`（[M08](../m08_executorch/0_overview.py)），不能拿來比兩
# 種量化設定誰好。

# %% [markdown] lang="en"
# Half a step both times (prediction 4), but the error is four times as large and the SQNR about 12 dB lower: each
# doubling of the scale, one bit less, costs 6 dB. So count LSBs only between things on **one and the same scale**, such
# as a Q/DQ graph and the `.pte` made from it ([M08](../m08_executorch/0_overview.py)), and never to tell which of two
# ways to quantize is better.

# %% [markdown] lang="zh"
# ## 什麼時候看哪一個
#
# | 你想知道 | 看 | 小心 |
# | --- | --- | --- |
# | 產品還能不能用 | 準確率，附區間（[M05-1](1_evaluate.py)），並照類別拆開 | 互相抵銷的變化、平均 |
# | 沒有標籤，答案變了幾張 | 一致率 | fp32 不是真理；領先看不到 |
# | 誤差從哪一層、哪個 channel 來 | SQNR（[M05-2](2_numeric_debugger.py)） | 大的值主導；低不等於答案會變 |
# | 兩種實作算的是不是同一件事 | LSB，最大值與分布 | scale 要相同 |
#
# 一個可靠的報告至少有兩個：一個看答案，一個看數值。

# %% [markdown] lang="en"
# ## Which one when
#
# | You want to know | Look at | Beware of |
# | --- | --- | --- |
# | whether the product still works | accuracy with an interval ([M05-1](1_evaluate.py)), split by class | changes that cancel, averages |
# | how many answers changed, without labels | agreement | fp32 isn't the truth; leads stay invisible |
# | which layer or channel the error comes from | SQNR ([M05-2](2_numeric_debugger.py)) | large values decide; low doesn't mean that answers change |
# | whether two implementations compute the same thing | LSB, maximum and distribution | the scales must be equal |
#
# A report to rely on has at least two: one that looks at answers, one that looks at values.

# %% [markdown] lang="zh"
# ## 名詞
#
# | 名詞 | 是什麼 |
# | --- | --- |
# | logit | 模型最後的輸出，每類一個分數；最大的那類是答案 |
# | 準確率 | 答案等於標籤的比例 |
# | 一致率 | 兩個模型答案相同的比例，不需要標籤 |
# | SQNR | 訊號與量化雜訊的功率比，單位 dB；多一個位元約多 6 dB |
# | LSB | 整數的一格，也就是一個 scale |
# | 領先 | 最大的 logit 減第二大的 |
# | 百分點 | 兩個百分比的差：93% 掉到 92% 是掉 1 個百分點 |
#
# 全部的名詞在[詞彙表](../glossary.md)。
#
# ## 小結
#
# - 準確率：同樣的數字可以是不同的答案；平均會蓋住某一類的崩潰。
# - 一致率：抓得到互相抵銷的變化，但把 fp32 當真理，也看不到離翻盤多遠。
# - SQNR：逐一比數值，但由大的值主導，也不知道答案。
# - LSB：門檻好訂，但只能在同一個 scale 上比。
# - 答案要變，領先必須不大於最大誤差的兩倍；這就是準確率常常不動的原因。

# %% [markdown] lang="en"
# ## Terms
#
# | Term | What it is |
# | --- | --- |
# | logit | a model's last output, a score for each class; the class of the largest is the answer |
# | accuracy | the share of answers that equal the label |
# | agreement | the share of images on which two models give the same answer; needs no labels |
# | SQNR | the power of the signal over that of the quantization noise, in dB; a bit more is about 6 dB more |
# | LSB | one step of the integers, which is one scale |
# | lead | the largest logit minus the second largest |
# | percentage point | the difference of two percentages: from 93% to 92% is a loss of 1 point |
#
# All terms are in the [glossary](../glossary.md).
#
# ## Recap
#
# - Accuracy: the same number can stand for different answers, and an average can cover the collapse of one class.
# - Agreement: catches changes that cancel, but takes fp32 for the truth and doesn't see how close an answer is to
#   changing.
# - SQNR: compares every value, but follows the large ones and knows no answers.
# - LSB: makes limits easy to set, but only on one and the same scale.
# - For an answer to change, the lead must be at most twice the largest error. That is why accuracy so often doesn't
#   move.

# %% [markdown] lang="zh"
# ## 試試看
#
# 某個後端把輸出的 scale 放大了 1.1 倍（其餘都對）。先不要執行，預測四個指標，再驗證：準確率、一致率變了嗎？和正確的
# int8 logit 比，SQNR 是幾 dB、最大差幾格？有人用 cosine similarity（餘弦相似度）代替 SQNR，它看得到這個錯嗎？

# %% [markdown] lang="en"
# ## Try it
#
# A backend gets the output's scale wrong by a factor of 1.1; all else is right. Predict the four metrics before you run
# anything: do accuracy and agreement change? Against the right int8 logits, how many dB is the SQNR, and how many steps
# is the largest difference? Some use cosine similarity instead of SQNR: does it notice?

# %% tags=["solution"]
wrong = 1.1 * int8
assert metrics.agreement(int8, wrong) == 1  # so the accuracy is the same, too
assert abs(metrics.sqnr_db(int8, wrong) - 20) < 0.01, "not a tenth"
worst_steps = ((wrong - int8).abs() / scale).max().item()
cosine = torch.cosine_similarity(int8.flatten(), wrong.flatten(), dim=0)
assert abs(cosine - 1) < 1e-5

print(f"SQNR {metrics.sqnr_db(int8, wrong):.1f} dB")
print(f"largest difference {worst_steps:.1f} LSB")
print(f"cosine similarity {cosine:.6f}")

# %% [markdown] lang="zh" tags=["solution"]
# 乘上一個正數不會改變誰最大，所以準確率和一致率完全不變。誤差是訊號的十分之一，所以 SQNR 剛好 20 dB。最大的差是最大的整
# 數（減去 zero point 之後）的十分之一，遠超過一格：LSB 一眼就看出來。cosine similarity 是 1，它只看方向，對 scale 的錯
# 誤完全看不見。

# %% [markdown] lang="en" tags=["solution"]
# A positive factor doesn't change which logit is largest, so accuracy and agreement stay as they are. The error is a
# tenth of the signal, exactly 20 dB. The largest difference is a tenth of the largest integer (after subtracting the
# zero point), far more than one step: in LSB the mistake is plain to see. Cosine similarity is 1; it looks at the
# direction only and is blind to a wrong scale.

# %% [markdown] lang="zh"
# ## 本章地圖
#
# | 頁 | 做什麼 |
# | --- | --- |
# | [M05-1 是真的還是運氣](1_evaluate.py) | 同一批圖片逐張比 fp32 與 Q/DQ 圖，算區間，決定能說什麼、要多少張圖片 |
# | [M05-2 逐層比較](2_numeric_debugger.py) | 用 torchao 的工具把 SQNR 標在圖的每一層上 |
# | [M05-3 敏感度與混合精度](3_sensitivity.py) | 一次換一層，找出該用 8 位元的那層，換上後重新量 |
#
# 這一章刻意跳過：偵測、分割、語言模型的指標（mAP、mIoU、perplexity；同樣要逐筆配對比較），訓練時怎麼救回準確率
# （[M06](../m06_qat/0_overview.py)），後端與 Q/DQ 圖的差異（[M08](../m08_executorch/0_overview.py)、
# [M09](../m09_onnxruntime/0_overview.py)），真實照片上的模型（[M10](../m10_real_model/0_overview.py)）。
#
# ## 參考資料
#
# - torchao 0.18.0 原始碼：`torchao/quantization/utils.py` 的 `compute_error`（SQNR）
# - Jacob 等人，〈[Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
#   Inference](https://arxiv.org/abs/1712.05877)〉，2018
# - Nagel 等人，〈[A White Paper on Neural Network Quantization](https://arxiv.org/abs/2106.08295)〉，2021：第 2 到 3 節
#   談量化雜訊與找出出錯的層

# %% [markdown] lang="en"
# ## Map of the chapter
#
# | Page | What happens there |
# | --- | --- |
# | [M05-1 Real or luck](1_evaluate.py) | compares fp32 and the Q/DQ graph image by image, computes an interval, and decides what may be said and how many images it takes |
# | [M05-2 Layer by layer](2_numeric_debugger.py) | writes the SQNR of each layer onto the graph with torchao's tools |
# | [M05-3 Sensitivity and mixed precision](3_sensitivity.py) | changes one layer at a time, finds the one to keep at 8 bits, and measures again |
#
# Left out on purpose: metrics of detection, segmentation and language models (mAP, mIoU, perplexity; they too should be
# compared pair by pair), winning accuracy back by training ([M06](../m06_qat/0_overview.py)), differences between
# backends and the Q/DQ graph ([M08](../m08_executorch/0_overview.py), [M09](../m09_onnxruntime/0_overview.py)), and a
# model on real photographs ([M10](../m10_real_model/0_overview.py)).
#
# ## References
#
# - Source of torchao 0.18.0: `compute_error` (SQNR) in `torchao/quantization/utils.py`
# - Jacob et al., "[Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
#   Inference](https://arxiv.org/abs/1712.05877)", 2018
# - Nagel et al., "[A White Paper on Neural Network Quantization](https://arxiv.org/abs/2106.08295)", 2021: sections 2
#   and 3 discuss quantization noise and how to find the layer at fault
