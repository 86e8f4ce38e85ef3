# %% [markdown] lang="zh" time_limit=300
# # M05-1 | 準確率差了一點，是真的還是運氣
#
# 量化後準確率少了一個百分點。是模型變差了，還是剛好抽到這批測試圖片？這一頁用同一批圖片逐張比較 fp32 與 Q/DQ 圖，算出差
# 距的 95% 區間，再讓程式依區間決定能說什麼。區間包含 0 時，就不說誰比較好。四個指標本身見 [M05 概覽](0_overview.py)。
#
# **讀完你會知道**
#
# - 一個準確率的數字，光是換一批測試圖片就會動多少
# - 為什麼要逐張配對，以及不配對會錯過什麼
# - 怎麼算差距的區間與精確的檢定
# - int8 與 4 位元的準確率，在三個網路上能說什麼、不能說什麼
# - 想看出 0.5 個百分點的下降，要多少張圖片

# %% [markdown] lang="en"
# # M05-1 | Accuracy moved a little: real, or luck?
#
# After quantization, accuracy is one percentage point lower. Did the model get worse, or is it these test images? This
# page compares fp32 and the Q/DQ graph image by image on the same images, computes a 95% interval of the difference,
# and lets code decide by the interval what may be said. While it contains 0, nothing is called better. For the metrics
# themselves see the [M05 overview](0_overview.py).
#
# **What you will know**
#
# - How much an accuracy moves just because the test images are others
# - Why to compare pair by pair, and what you miss if you don't
# - How to compute an interval of the difference, and an exact test
# - What may be said of int8 and of 4 bits on three networks, and what may not
# - How many images it takes to see a drop of 0.5 points

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 模型在 2,000 張圖片上的準確率是 93%。換另外 2,000 張同樣來源的圖片，準確率大約會上下動多少？
# 2. 量化後在同樣 2,000 張上少對了 28 張。這樣能說它變差了嗎？還要知道什麼？
# 3. 量化真的讓準確率掉了 0.5 個百分點。要多少張測試圖片，才有八成把握看得出來？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. A model is 93% accurate on 2,000 images. With another 2,000 from the same source, by roughly how much will that
#    move up or down?
# 2. After quantization it gets 28 fewer of the same 2,000 right. Can you call it worse? What else must you know?
# 3. Suppose quantization really costs 0.5 percentage points. How many test images do you need to see that four times
#    out of five?

# %% tags=["setup"]
import math

from common.data import calibration_batches, make_data, test_data
from common.env import quiet
from common.metrics import (
    in_points,
    interval_in_points,
    is_right,
    paired_interval,
    sign_test,
)
from common.models import trained_tinyconvnet
from common.quantizers import PTQQuantizer
from common.viz import T, say, show, table

import matplotlib.pyplot as plt
import numpy as np
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

quiet()

# %% [markdown] lang="zh"
# ## 公平比較的規矩
#
# 1. 兩個模型看**同一批**圖片。
# 2. 校準用訓練資料，測試圖片一張都不能用：用測試圖片校準或挑設定，等於先看過考題。
# 3. 報告時寫出張數、種子，以及區間。
#
# 下面量化種子 0 的網路，weight 是 4 位元 per-channel。`PTQQuantizer` 是本課程的 quantizer，標註和 `XNNPACKQuantizer` 相
# 同，但 prepare 比較快。最後幾行確認規矩 2。

# %% [markdown] lang="en"
# ## Rules of a fair comparison
#
# 1. Both models see **the same** images.
# 2. Calibrate with training data and not a single test image: to calibrate on test images, or to pick settings by them,
#    is to see the exam beforehand.
# 3. Report the number of images, the seeds, and an interval.
#
# Below we quantize the network of seed 0 with 4-bit per-channel weights. `PTQQuantizer` is this course's quantizer; it
# annotates like `XNNPACKQuantizer` but prepares faster. The last lines check rule 2.


# %%
CALIBRATION = list(calibration_batches(256))  # training images


def quantize(model, **switches):
    size = torch.export.Dim("batch", min=1, max=4096)
    example, shapes = (torch.zeros(2, 3, 16, 16),), ({0: size},)
    program = torch.export.export(model, example, dynamic_shapes=shapes)
    config = get_symmetric_quantization_config(**switches)
    quantizer = PTQQuantizer().set_global(config)
    prepared = prepare_pt2e(program.module(), quantizer)
    with torch.no_grad():
        for (batch,) in CALIBRATION:
            prepared(batch)
    return convert_pt2e(prepared)


FOUR_BITS = {"weight_qmin": -7, "weight_qmax": 7}
model = trained_tinyconvnet(seed=0)
quantized = quantize(model, is_per_channel=True, **FOUR_BITS)

images, labels = test_data()
n = len(labels)
calibration = torch.cat([batch for (batch,) in CALIBRATION])
distance = torch.cdist(images.flatten(1), calibration.flatten(1))
assert distance.min() > 0.1, "a test image was used for calibration"

# %% [markdown] lang="zh"
# ## 準確率本身就是估計值
#
# 測試集是從所有可能的圖片裡抽出來的。真正的準確率是 $p$ 的話，$n$ 張圖片量到的準確率，標準差是
#
# $$\sqrt{p(1-p)/n} \tag{1}$$
#
# 這門課的圖片由程式產生，可以再抽幾批新的來驗證：十批，每批 2,000 張。`is_right` 回傳每張圖片答對沒有。

# %% [markdown] lang="en"
# ## An accuracy is itself an estimate
#
# A test set is a draw from all possible images. If the true accuracy is $p$, an accuracy measured on $n$ images has a
# standard deviation of
#
# $$\sqrt{p(1-p)/n} \tag{1}$$
#
# This course's images come from a program, so we can draw new ones and check: ten sets of 2,000. `is_right` says of
# each image whether the answer is right.

# %%
draws = []  # (fp32 right?, quantized right?) on new images
for seed in range(1000, 1010):
    new_images, new_labels = make_data(n, seed=seed)
    pair = [is_right(m, new_images, new_labels) for m in (model, quantized)]
    draws.append(pair)

accuracies = torch.stack([fp32.double().mean() for fp32, _ in draws])
p = accuracies.mean().item()
by_formula = math.sqrt(p * (1 - p) / n)
spread = accuracies.std().item()
assert 0.4 < spread / by_formula < 1.8, "formula (1) does not hold"

# %% tags=["plot"]
say(
    T(
        zh=f"十批的準確率從 {accuracies.min():.2%} 到 {accuracies.max():.2%}，標準差 {100 * spread:.2f} 個百分點，"
        f"式 (1) 說 {100 * by_formula:.2f}。95% 的情況會落在 ±{196 * by_formula:.1f} 個百分點之內（預測 1）。",
        en=f"The ten accuracies range from {accuracies.min():.2%} to {accuracies.max():.2%}, with a standard deviation of "
        f"{100 * spread:.2f} percentage points; formula (1) says {100 * by_formula:.2f}. In 95% of cases it stays within "
        f"±{196 * by_formula:.1f} points (prediction 1).",
    )
)

# %% [markdown] lang="zh"
# ## 錯的比法：當成兩次獨立的測試
#
# 兩個準確率各有式 (1) 的誤差，於是很多人這樣算差距的區間：兩個變異數相加、開根號，再乘 1.96（常態分布的 95%）。95% 信賴
# 區間的意思是：重複抽很多批圖片，每次都這樣算，應該有 95% 的區間涵蓋真正的差距。以下回到測試集：

# %% [markdown] lang="en"
# ## The wrong way: as if the tests were independent
#
# Each of the two accuracies is off by (1), so many people compute the interval of the difference like this: add up the
# variances, and multiply the root by 1.96 (95% of a normal distribution). A 95% confidence interval means: if we drew
# many sets of images and computed it each time, 95% of the intervals should cover the true difference. Back on the test
# set:

# %%
before = is_right(model, images, labels)
after = is_right(quantized, images, labels)
p0, p1 = before.double().mean().item(), after.double().mean().item()
change = p1 - p0

variances = p0 * (1 - p0) / n, p1 * (1 - p1) / n
unpaired_half = 1.96 * math.sqrt(sum(variances))
unpaired = change - unpaired_half, change + unpaired_half

# %% [markdown] lang="zh"
# 這個公式假設兩個模型各看一批**不同**的圖片。可是它們看的是同一批：難的圖片兩邊都錯，簡單的兩邊都對，運氣大半是共同的，
# 相減就抵銷了。
#
# ## 對的比法：逐張配對
#
# 每張圖片只有四種情形。排成一張表，兩邊都對、兩邊都錯的那兩格，對差距毫無影響；有影響的只有「由對變錯」$b$ 張與「由錯變
# 對」$c$ 張（[M01-1](../m01_first_ptq/1_minimal_ptq.py) 數過它們）。

# %% [markdown] lang="en"
# This formula assumes that the models were tested on **different** images. But they saw the same ones: on hard images
# both are wrong, on easy ones both are right. Most of the luck is shared, and subtracting cancels it.
#
# ## The right way: pair by pair
#
# For each image there are just four cases. In a table of them, the cells where both are right or both are wrong don't
# affect the difference at all; what counts are the $b$ images that went from right to wrong and the $c$ that went from
# wrong to right ([M01-1](../m01_first_ptq/1_minimal_ptq.py) counted them).

# %%
b = (before & ~after).sum().item()
c = (~before & after).sum().item()
both_right, both_wrong = (
    (before & after).sum().item(),
    (~before & ~after).sum().item(),
)
assert both_right + b + c + both_wrong == n
assert abs(change - (c - b) / n) < 1e-9, "the change is not (c - b) / n"

# %% tags=["plot"]
table(
    [
        [
            T(zh="fp32 答對", en="fp32 right"),
            f"{both_right:,}",
            f"{b:,}",
        ],
        [T(zh="fp32 答錯", en="fp32 wrong"), f"{c:,}", f"{both_wrong:,}"],
    ],
    [
        "",
        T(zh="量化後答對", en="quantized right"),
        T(zh="量化後答錯", en="quantized wrong"),
    ],
    caption=T(
        zh=f"{n:,} 張測試圖片。右上是 b，左下是 c。",
        en=f"{n:,} test images. b is at the top right, c at the bottom left.",
    ),
)

# %% [markdown] lang="zh"
# 每張圖片對差距的貢獻是 −1、0 或 +1，所以差距 $(c-b)/n$ 的標準差可以直接寫出來：
#
# $$\frac{1}{n} \sqrt{b + c - \frac{(c-b)^2}{n}} \tag{2}$$
#
# 答案沒變的圖片再多也不會讓它變大。`common.metrics.paired_interval` 在表的每一格多加半張圖片（Agresti 與 Min，2005），
# 免得只有幾張改變時過度自信；張數多的時候，和式 (2) 幾乎相同。

# %% [markdown] lang="en"
# Each image contributes −1, 0 or +1 to the difference, so the standard deviation of $(c-b)/n$ can be written down:
#
# $$\frac{1}{n} \sqrt{b + c - \frac{(c-b)^2}{n}} \tag{2}$$
#
# Images whose verdict stays the same don't widen it, however many there are. `common.metrics.paired_interval` adds half
# an image to each cell of the table (Agresti and Min, 2005), so that a handful of changes isn't taken for certainty;
# with many it is nearly the same as (2).

# %%
paired_half = 1.96 * math.sqrt(b + c - (c - b) ** 2 / n) / n
found = paired_interval(before, after)
assert (found.lost, found.gained) == (b, c)
assert abs(found.low - (change - paired_half)) < 1 / n, "not formula (2)"
assert abs(found.high - (change + paired_half)) < 1 / n, "not formula (2)"
assert paired_half < 0.9 * unpaired_half, "pairing gained nothing"


# %% tags=["plot"]
def points(share: float) -> str:
    """A share as signed percentage points, such as −1.40."""
    return in_points(share, digits=2)


def interval(low: float, high: float) -> str:
    return interval_in_points(low, high, digits=2)


def with_or_without_zero(low: float, high: float) -> T:
    """An interval, and whether it contains 0."""
    inside = low <= 0 <= high
    text = interval(low, high)
    return T(
        zh=f"{text}，{'包含' if inside else '不包含'} 0",
        en=f"{text} {'contains' if inside else 'excludes'} 0",
    )


def two_ways(paired, unpaired) -> T:
    """What the right and the wrong interval (low, high) of one difference say; `paired` is a PairedInterval."""
    right = with_or_without_zero(paired.low, paired.high)
    wrong = with_or_without_zero(*unpaired)
    change = points(paired.change)
    return T(
        zh=f"差距 {change} 個百分點。配對的區間 {right.zh}；不配對的區間 {wrong.zh}。",
        en=f"A change of {change} percentage points. The paired interval {right.en}; the unpaired one {wrong.en}.",
    )


say(two_ways(found, unpaired))

# %% [markdown] lang="zh"
# 區間不包含 0，才說準確率變了；不配對的區間太寬，會把真的下降當成運氣。預測 2 的答案：光知道少對幾張不夠，還要知道有多
# 少張**變了**。同樣少 28 張，$b=30$、$c=2$ 很清楚，$b=230$、$c=202$ 就說不準。
#
# 區間靠得住嗎？拿剛才十批新圖片來驗：把全部 20,000 張合起來的差距當作真值（它也是估計，只是準得多），看每一批的區間有沒有
# 涵蓋它。

# %% [markdown] lang="en"
# Only if an interval excludes 0 do we say that accuracy changed; the unpaired one is so wide that real drops pass for
# luck. The answer to prediction 2: how many fewer are right is not enough, you need to know how many **changed**. For
# the same 28 fewer, $b=30$ and $c=2$ leave no doubt, while $b=230$ and $c=202$ prove nothing.
#
# Can the interval be trusted? Check it on the ten new sets: take the change over all 20,000 images for the truth (an
# estimate as well, just a much better one), and see whether the interval of each set covers it.

# %%
from common.metrics import paired_interval_of_counts

assert paired_interval_of_counts(lost=30, gained=2, n=2000).verdict == "worse"
many = paired_interval_of_counts(lost=230, gained=202, n=2000)
assert many.verdict == "unclear", "28 fewer of 432 changed is no proof"

all_before, all_after = (torch.cat(x) for x in zip(*draws, strict=True))
pooled = paired_interval(all_before, all_after)
truth = pooled.change
assert pooled.verdict == "worse", "20,000 images don't show a drop"
ten = [paired_interval(*pair) for pair in draws]
covered = sum(one.low <= truth <= one.high for one in ten)
assert covered >= 7, f"only {covered} of 10 intervals cover the change"

# %% tags=["plot"]
figure, axes = plt.subplots(figsize=(6.4, 3.0))
seen, seen_unpaired = 0, 0
for row, (one, pair) in enumerate(zip(ten, draws, strict=True), 1):
    shares = [x.double().mean().item() for x in pair]
    half = 1.96 * math.sqrt(sum(q * (1 - q) for q in shares) / n)
    seen += one.verdict == "worse"
    seen_unpaired += one.change + half < 0
    for low, high, color, width in (
        (one.change - half, one.change + half, "C1", 1.2),
        (one.low, one.high, "C0", 4.5),
    ):
        axes.plot([100 * low, 100 * high], [row, row], color, linewidth=width)
axes.axvline(0, color="black", linestyle="--", linewidth=1)
axes.axvline(100 * truth, color="black", linewidth=1)
axes.set(xlabel="change in accuracy, percentage points", ylabel="set of images")
axes.set_yticks(range(1, 11))
axes.invert_yaxis()
show(
    figure,
    alt=T(
        zh="十批圖片各一列，每列兩個 95% 區間：配對的是短粗線，不配對的是同一中心、更長的細線。直線是 20,000 張的差距，虛線是 0。",
        en="A row for each of ten sets with two 95% intervals: a short thick one, paired, and around the same center a longer thin one, "
        "unpaired. The solid vertical line is the change over 20,000 images, the dashed one is 0.",
    ),
    caption=T(
        zh=f"粗線：配對的 95% 區間；細線：不配對的。直線是 20,000 張的差距 {points(truth)}，十個配對的區間有 {covered} 個涵蓋它；"
        f"配對的有 {seen} 個整個小於 0（虛線），看得出下降，不配對的有 {seen_unpaired} 個。",
        en=f"Thick: the paired 95% interval; thin: the unpaired one. The solid line is the change over 20,000 images, {points(truth)}, "
        f"which {covered} of the ten paired intervals cover. Of the paired ones, {seen} lie entirely below 0 (dashed) and show the "
        f"drop, of the unpaired ones {seen_unpaired}.",
    ),
)

# %% [markdown] lang="zh"
# 跨過 0 的那幾批（如果有），只能說「看不出來」，不能說「沒有變」：下降是真的，只是那批圖片不夠看出來。

# %% [markdown] lang="en"
# Of sets whose interval crosses 0, if any, say "can't tell", not "no change": the drop is real, those images just
# weren't enough to show it.

# %% [markdown] lang="zh"
# ## 精確的檢定：丟銅板
#
# 式 (2) 用常態分布近似。變了的圖片很少時，可以精確地算：如果量化無所謂好壞，每一張變了的圖片，由對變錯和由錯變對的機會
# 各半，就像丟 $b+c$ 次銅板。丟出這麼偏、或更偏的結果，機率是多少？這叫 McNemar 的精確檢定（sign test）：
#
# $$\text{p 值} = \min\Big(1,\; 2 \sum_{k=0}^{\min(b,c)} \binom{b+c}{k} \Big/ 2^{\,b+c}\Big) \tag{3}$$

# %% [markdown] lang="en"
# ## An exact test: tossing coins
#
# Formula (2) relies on a normal approximation. When few images changed, an exact calculation is possible. If
# quantization made nothing better or worse, each changed image would be as likely to go from right to wrong as back,
# like $b+c$ tosses of a coin. How likely is a result as one-sided as ours, or more? This is McNemar's exact test, a
# sign test:
#
# $$\text{p-value} = \min\Big(1,\; 2 \sum_{k=0}^{\min(b,c)} \binom{b+c}{k} \Big/ 2^{\,b+c}\Big) \tag{3}$$

# %%
ways = sum(math.comb(b + c, k) for k in range(min(b, c) + 1))
p_value = min(1.0, 2 * ways / 2 ** (b + c))
assert p_value == sign_test(b, c) == found.p_value, "not two-sided"

generator = np.random.default_rng(0)
tosses = generator.binomial(b + c, 0.5, size=100_000)  # "lost" if heads
as_one_sided = np.abs(2 * tosses - (b + c)) >= abs(b - c)
assert abs(as_one_sided.mean() - p_value) < 0.01, "not formula (3)"

for lost in range(6):  # five changed images can't prove anything
    assert sign_test(lost, 5 - lost) > 0.05, "five changes are enough"

# %% tags=["plot"]
by_tossing = f"{as_one_sided.mean():.2g}"
say(
    T(
        zh=f"{b + c} 張變了的圖片裡有 {b} 張由對變錯：p 值 {p_value:.2g}，丟十萬回銅板得到 {by_tossing}。"
        "另外，只變了五張的話，就算五張全是由對變錯，p 值也不會小於 0.05。",
        en=f"{b} of {b + c} changed images went from right to wrong: the p-value is {p_value:.2g}, and a hundred thousand "
        f"rounds of tossing give {by_tossing}. By the way, if only five images changed, the p-value doesn't go below 0.05 "
        "even when all five went wrong.",
    )
)

# %% [markdown] lang="zh"
# ## 三個網路，三種比較
#
# 區間管的是「抽到哪些圖片」的運氣，管不到「訓練出哪個網路」的運氣。所以再拿兩個種子訓練的網路，問三個問題：int8 和 4 位元
# （都是 per-channel）比 fp32 差嗎？4 位元的 per-tensor 比 per-channel 差嗎？

# %% [markdown] lang="en"
# ## Three networks, three comparisons
#
# The interval is about luck with the images, not about luck with the network that training happened to give. So we take
# the networks of two more seeds and ask three questions: are int8 and 4 bits, both per-channel, worse than fp32? And at
# 4 bits, is per-tensor worse than per-channel?

# %%
SEEDS = (0, 1, 2)
variants = {
    "int8 per-channel": {"is_per_channel": True},
    "4-bit per-channel": {"is_per_channel": True, **FOUR_BITS},
    "4-bit per-tensor": FOUR_BITS,
}
right = {}  # (seed, name of the model) -> right or wrong for each image
for seed in SEEDS:
    network = trained_tinyconvnet(seed)
    right[seed, "fp32"] = is_right(network, images, labels)
    for name, switches in variants.items():
        gm = quantize(network, **switches)
        right[seed, name] = is_right(gm, images, labels)

QUESTIONS = (
    ("fp32", "int8 per-channel"),
    ("fp32", "4-bit per-channel"),
    ("4-bit per-channel", "4-bit per-tensor"),
)
results = {  # question -> one PairedInterval for each network
    (old, new): [paired_interval(right[s, old], right[s, new]) for s in SEEDS]
    for old, new in QUESTIONS
}
assert all(one.verdict == "worse" for one in results[QUESTIONS[2]]), (
    "4-bit per-tensor is not worse than per-channel"
)

# %% tags=["plot"]
NAMES = {
    "fp32": T(zh="fp32", en="fp32"),
    "int8 per-channel": T(zh="int8 per-channel", en="int8 per-channel"),
    "4-bit per-channel": T(zh="4 位元 per-channel", en="4-bit per-channel"),
    "4-bit per-tensor": T(zh="4 位元 per-tensor", en="4-bit per-tensor"),
}


ARROW = T(zh="{before} → {after}", en="{before} → {after}")


def in_bold(one) -> str:
    """The interval, bold where it excludes 0."""
    text = interval(one.low, one.high)
    return text if one.verdict == "unclear" else f"**{text}**"


table(
    [
        [
            ARROW.format(before=NAMES[old], after=NAMES[new]),
            seed,
            one.lost,
            one.gained,
            points(one.change),
            in_bold(one),
            f"{one.p_value:.3f}" if one.p_value >= 0.001 else "< 0.001",
        ]
        for (old, new), founds in results.items()
        for seed, one in zip(SEEDS, founds, strict=True)
    ],
    [
        T(zh="比較", en="comparison"),
        T(zh="種子", en="seed"),
        "b",
        "c",
        T(zh="差距", en="change"),
        T(zh="95% 區間", en="95% interval"),
        T(zh="p 值", en="p-value"),
    ],
    caption=T(
        zh="差距與區間的單位是百分點，粗體的區間不包含 0。b 由對變錯，c 由錯變對，各 2,000 張測試圖片。",
        en="Changes and intervals in percentage points; intervals in bold exclude 0. Of 2,000 test images, b went from right "
        "to wrong, c from wrong to right.",
    ),
)

# %% [markdown] lang="zh"
# 結論由程式寫：看每個問題裡，三個網路的區間各在 0 的哪一邊。

# %% [markdown] lang="en"
# The conclusions are written by code, which looks on which side of 0 the three networks' intervals lie.

# %% tags=["plot"]
SENTENCE = T(
    zh="**{before} → {after}**：{n} 個網路裡，{worse} 個變差、{better} 個變好、{unclear} 個看不出來。差距 {low} 到 {high} 個百分點，"
    "區間最低到 {lowest}。",
    en="**{before} → {after}**: of {n} networks, {worse} worse, {better} better, {unclear} unclear. The changes go from {low} to {high} "
    "points, the intervals down to {lowest}.",
)


def conclusion(before: T, after: T, founds) -> T:
    """One sentence about the PairedIntervals of several networks."""
    verdicts = [one.verdict for one in founds]
    changes = [one.change for one in founds]
    return SENTENCE.format(
        before=before,
        after=after,
        n=len(founds),
        worse=verdicts.count("worse"),
        better=verdicts.count("better"),
        unclear=verdicts.count("unclear"),
        low=points(min(changes)),
        high=points(max(changes)),
        lowest=points(min(one.low for one in founds)),
    )


say(
    [
        conclusion(NAMES[old], NAMES[new], founds)
        for (old, new), founds in results.items()
    ]
)

# %% [markdown] lang="zh"
# 兩件事要小心。第一，就算真正的準確率一樣，每個 95% 區間還是有二十分之一的機會不包含 0；這裡看了九個，所以單獨一個剛好擦
# 過 0 的結果不值得興奮，三個網路方向一致才算數。第二，「看不出來」要連同區間一起說：它容許的最大下降，也許是你不能接受的。

# %% [markdown] lang="en"
# Two cautions. First, even if the true accuracies are equal, a 95% interval misses 0 one time in twenty, and here we
# looked at nine: a single one that barely clears 0 is nothing to get excited about, while three networks that agree
# are. Second, never say "can't tell" without the interval: the largest drop it leaves room for may be one that you
# can't accept.

# %% [markdown] lang="zh"
# ## 要多少張圖片
#
# 想看出真正的下降 $\delta$，要多少張？設 $\psi = (b+c)/n$ 是對錯變了的比例。讓區間有八成機會不包含 0，需要
#
# $$n \approx (1.96 + 0.84)^2 \, \frac{\psi - \delta^2}{\delta^2} \tag{4}$$
#
# 0.84 對應八成的機會。不配對的話，$\psi$ 要換成 $2p(1-p)$，大得多。取 $\delta$ = 0.5 個百分點；$\psi$ 則用三個網路量到
# 的值（不小於 $\delta$）：

# %% [markdown] lang="en"
# ## How many images?
#
# How many does it take to see a true drop of $\delta$? Let $\psi = (b+c)/n$ be the share of images that changed between
# right and wrong. For an interval that excludes 0 four times out of five, you need
#
# $$n \approx (1.96 + 0.84)^2 \, \frac{\psi - \delta^2}{\delta^2} \tag{4}$$
#
# where 0.84 stands for the four out of five. Without pairing, $\psi$ becomes $2p(1-p)$, which is much larger. Take a
# $\delta$ of 0.5 percentage points, and for $\psi$ what we measured on the three networks (but no less than $\delta$):


# %%
def images_needed(psi: float, delta: float) -> int:
    return math.ceil((1.96 + 0.84) ** 2 * (psi - delta**2) / delta**2)


delta = 0.005
p = np.mean([right[seed, "fp32"].double().mean() for seed in SEEDS]).item()
psi = {}  # name of the model -> share of changed images, mean of the networks
for old, new in QUESTIONS[:2]:
    changed = [one.lost + one.gained for one in results[old, new]]
    psi[new] = max(delta, sum(changed) / len(changed) / n)
needed = {name: images_needed(share, delta) for name, share in psi.items()}
unpaired_needed = images_needed(2 * p * (1 - p), delta)
fewest, most = needed["int8 per-channel"], needed["4-bit per-channel"]
assert fewest < most < unpaired_needed, "pairing needs more images"

# %% [markdown] lang="zh"
# 用模擬驗證：照著 int8 的 $\psi$ 與 $\delta$ 抽很多次 $b$、$c$，看幾成的區間真的不包含 0。

# %% [markdown] lang="en"
# Check it by simulation: draw $b$ and $c$ many times with the $\psi$ of int8 and this $\delta$, and see how many
# intervals exclude 0.

# %%
share = psi["int8 per-channel"]
lose, gain = (share + delta) / 2, (share - delta) / 2
counts = generator.multinomial(fewest, [lose, gain, 1 - share], size=2000)
outcomes = [
    paired_interval_of_counts(int(lost), int(gained), fewest).verdict
    for lost, gained, _ in counts
]
power = outcomes.count("worse") / len(outcomes)
assert 0.7 < power < 0.9, f"formula (4) promised 80%, got {power:.0%}"
assert outcomes.count("better") < len(outcomes) / 100

# %% tags=["plot"]
HOW = T(zh="配對，{name}", en="paired, {name}")
table(
    [
        [how, f"{changing:.2%}", f"{count:,}", f"{count / n:.1f}"]
        for how, changing, count in (
            *(
                (HOW.format(name=NAMES[name]), psi[name], count)
                for name, count in needed.items()
            ),
            (T(zh="不配對", en="unpaired"), 2 * p * (1 - p), unpaired_needed),
        )
    ],
    [
        T(zh="比法", en="comparison"),
        T(zh="ψ（不配對：2p(1−p)）", en="ψ (unpaired: 2p(1−p))"),
        T(zh="需要的圖片", en="images needed"),
        T(zh="我們的幾倍", en="times ours"),
    ],
    caption=T(
        zh=f"八成機會看出 {100 * delta:g} 個百分點的下降；我們有 {n:,} 張。照第一列的張數模擬，{power:.0%} 的區間看出來了。",
        en=f"To see a drop of {100 * delta:g} percentage points four times out of five; we have {n:,} images. Simulated with the number in "
        f"the first row, {power:.0%} of the intervals show it.",
    ),
)

# %% [markdown] lang="zh"
# 這張表是預測 3 的答案：取決於有多少張變了。變動越少，要的圖片越少，配對的好處也越大。
#
# ## 小結
#
# - 準確率是估計值；幾千張圖片的測試集，光是抽樣就有一個百分點左右的起伏。
# - 兩個模型看同一批圖片，就要逐張配對：只有變了的圖片算數。不配對會把真的下降當成運氣。
# - 區間包含 0：不說誰好，並說出區間容許多大的下降。
# - 區間管不到訓練的運氣，所以要幾個種子；看很多區間時，單獨一個擦過 0 的不算數。
# - 要的張數大致和變了的比例成正比、和想看出的下降的平方成反比。

# %% [markdown] lang="en"
# This table answers prediction 3: it depends on how many change. The fewer do, the fewer images you need, and the more
# pairing is worth.
#
# ## Recap
#
# - An accuracy is an estimate; with a few thousand test images, the draw alone moves it by about a percentage point.
# - Two models on the same images have to be compared pair by pair: only changed images count. Without pairing, a real
#   drop passes for luck.
# - If the interval contains 0, call neither better, and say how large a drop it leaves room for.
# - The interval knows nothing of luck in training, so use several seeds; among many intervals, a single one that barely
#   clears 0 doesn't count.
# - The number of images you need grows roughly with the share that changes, and with the inverse square of the drop to
#   be seen.

# %% [markdown] lang="zh"
# ## 試試看：沒有公式的指標
#
# 概覽說過，平均會蓋住某一類的崩潰，所以你想報告「最差的那一類」的準確率變了多少。這個差距沒有現成的公式。改用
# bootstrap：從 2,000 張圖片裡重複抽 2,000 張（可重複抽到同一張），每次重算差距，取中間的 95%。先在一般的準確率上確認它
# 和式 (2) 一致，再用在最差的一類。記得配對：兩個模型要用同一組抽樣。

# %% [markdown] lang="en"
# ## Try it: a metric without a formula
#
# The overview said that an average can cover the collapse of one class, so you want to report how the accuracy of the
# worst class changed. There is no formula for that difference. Use the bootstrap: draw 2,000 of the 2,000 images again
# and again, with replacement, recompute the difference each time, and keep the middle 95%. First make sure that it
# agrees with (2) on plain accuracy, then apply it to the worst class. Remember to pair: one draw serves both models.


# %% tags=["solution"]
def bootstrap(metric_of, rounds=1000):
    draw = torch.Generator().manual_seed(0)
    changes = []
    for _ in range(rounds):
        chosen = torch.randint(n, (n,), generator=draw)  # one draw for both
        new, old = (
            metric_of(x[chosen], labels[chosen]) for x in (after, before)
        )
        changes.append(new - old)
    return np.quantile(changes, [0.025, 0.975]).tolist()


def plain(is_right, labels):
    return is_right.double().mean().item()


def worst_class(is_right, labels):
    by_class = torch.bincount(labels, weights=is_right.double())
    return (by_class / torch.bincount(labels)).min().item()


low, high = bootstrap(plain)
width = found.high - found.low
assert abs(low - found.low) < width / 8, "the bootstrap disagrees with (2)"
assert abs(high - found.high) < width / 8, "the bootstrap disagrees with (2)"
print("accuracy:   ", interval(low, high), "by (2):", interval(*found[1:3]))
worst = bootstrap(worst_class)
print("worst class:", interval(*worst))
assert worst[1] - worst[0] > 1.3 * (high - low), "one class is as certain"

# %% [markdown] lang="zh" tags=["solution"]
# 兩種方法在一般的準確率上一致。最差一類的區間寬得多，因為一類只有約 500 張：想替某一類說話，要為它準備足夠的圖片。
# bootstrap 適合平均，以及由平均算出的指標，條件是抽樣的單位要獨立（這裡是一張圖片）。最大值與最小值是有名的例外：有兩類幾乎
# 一樣差時，「最差的一類」的區間就靠不住，不如固定看某一類。

# %% [markdown] lang="en" tags=["solution"]
# On plain accuracy the two agree. The interval of the worst class is much wider, because a class has only about 500
# images: to make a statement about one class, bring enough images of it. The bootstrap suits averages and metrics
# computed from averages, as long as what you draw is independent (here an image). Maxima and minima are its well-known
# exceptions: where two classes are almost equally bad, don't trust the interval of "the worst"; pick one class instead.

# %% [markdown] lang="zh"
# ## 接下來
#
# 知道差距是真的之後，下一個問題是它從哪裡來：[M05-2](2_numeric_debugger.py) 逐層比較，[M05-3](3_sensitivity.py) 決定該
# 修哪一層。配對、區間、分不出就不說，這套規矩在 latency 上也一樣用（[M08-4](../m08_executorch/4_latency.py)）。公式出自
# Agresti 與 Min，〈[Simple improved confidence intervals for comparing matched
# proportions](https://doi.org/10.1002/sim.1781)〉，2005，以及 McNemar，〈[Note on the sampling error of the difference
# between correlated proportions or percentages](https://doi.org/10.1007/BF02295996)〉，1947。

# %% [markdown] lang="en"
# ## Next
#
# Once a difference is known to be real, the next question is where it comes from: [M05-2](2_numeric_debugger.py)
# compares layer by layer, and [M05-3](3_sensitivity.py) decides which layer to mend. Pair, give an interval, claim
# nothing when you can't tell: the same rules apply to latency ([M08-4](../m08_executorch/4_latency.py)). The formulas
# are from Agresti and Min, "[Simple improved confidence intervals for comparing matched
# proportions](https://doi.org/10.1002/sim.1781)", 2005, and McNemar, "[Note on the sampling error of the difference
# between correlated proportions or percentages](https://doi.org/10.1007/BF02295996)", 1947.
