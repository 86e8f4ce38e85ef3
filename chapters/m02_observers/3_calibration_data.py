# %% [markdown] lang="zh"
# # M02-3 | 校準要多少資料、什麼資料，錯了怎麼發現
#
# observer 只知道你餵給它的資料（[M02-1](1_observers.py)）。這一頁改變餵的東西：先改**量**，從 1 張到 256 張；再改**內容**，
# 換成別的資料、錯的縮放、純雜訊。每次都用同一個訓練好的模型，看準確率怎麼變，最後找出不必看標籤就能認出錯誤的辦法。
#
# **讀完你會知道**
#
# - 準確率隨校準圖片的張數怎麼變，為什麼很快就持平
# - 少了幾類、純雜訊、忘了縮放，哪一種最傷，原因在哪
# - 怎麼從 Q/DQ 圖和幾張真實圖片，看出校準資料錯了
# - 準備校準資料時該檢查什麼

# %% [markdown] lang="en"
# # M02-3 | How much calibration data, which, and how to notice the wrong kind
#
# An observer knows nothing but the data you feed it ([M02-1](1_observers.py)). This page varies the feed: first the
# **amount**, from 1 image to 256, then the **content**, with other data, wrong scaling and pure noise. The trained model
# stays the same, and we watch its accuracy. At the end we look for a way to notice a mistake without any labels.
#
# **What you will know**
#
# - How accuracy depends on the number of calibration images, and why it levels off soon
# - Which hurts most, missing classes, pure noise or forgotten scaling, and why
# - How to tell from a Q/DQ graph and a few real images that the calibration data was wrong
# - What to check when you prepare calibration data

# %% [markdown] lang="zh"
# ## 先預測
#
# 訓練資料有 4,000 張圖，值在 −2 到 2 之間：
#
# 1. 要用幾張圖校準，準確率才會穩定地和 fp32 差不到一個百分點：1、16、256，還是 4,000 張？
# 2. 三種錯的校準資料：只有亮斑點的圖、常態分布的純雜訊、正確的圖但每個值都除以 10。哪一種最傷？
# 3. 只有量化後的圖和沒有標籤的圖片，看得出校準資料錯了嗎？

# %% [markdown] lang="en"
# ## Predict first
#
# There are 4,000 training images with values between −2 and 2:
#
# 1. How many images does calibration need before accuracy stays within one percentage point of fp32: 1, 16, 256, or
#    all 4,000?
# 2. Here are three kinds of wrong data: images with bright blobs only, pure Gaussian noise, and the right images with
#    every value divided by 10. Which hurts most?
# 3. With nothing but the quantized graph and images without labels, can you tell that calibration went wrong?

# %% tags=["setup"]
import copy

from common.data import test_data, train_data
from common.env import quiet
from common.models import trained_tinyconvnet
from common.viz import T, say, show, table

import matplotlib.pyplot as plt
import torch

quiet()

# %% [markdown] lang="zh"
# ## 準備：prepare 一次，校準很多次
#
# 校準改變 observer，convert 改變圖，所以每次實驗先 `copy.deepcopy` 一份剛 prepare 好的圖。評估用 1,000 張測試圖片。
# `PTQQuantizer` 是本課程的：標註和 `XNNPACKQuantizer` 一樣，只是快幾倍。

# %% [markdown] lang="en"
# ## Setup: prepare once, calibrate often
#
# Calibration changes the observers and convert the graph, so each experiment begins with a `copy.deepcopy` of the
# freshly prepared graph. We evaluate on 1,000 test images. `PTQQuantizer` is the course's own: it annotates as
# `XNNPACKQuantizer` does, only several times faster.

# %%
from common.quantizers import PTQQuantizer

from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

model = trained_tinyconvnet()
images, labels = (part[:1000] for part in test_data())
train_images, train_labels = train_data()

config = get_symmetric_quantization_config(is_per_channel=True)
size = torch.export.Dim("batch", min=1, max=4096)
example, shapes = (images[:2].clone(),), ({0: size},)
program = torch.export.export(model, example, dynamic_shapes=shapes)
prepared = prepare_pt2e(program.module(), PTQQuantizer().set_global(config))


# %%
def calibrated(data, batch_size=32):
    """A quantized copy of the model, calibrated on this data."""
    observed = copy.deepcopy(prepared)
    with torch.no_grad():
        for batch in data.split(batch_size):
            observed(batch)
    return convert_pt2e(observed)


def answers(gm):
    with torch.no_grad():
        return gm(images).argmax(1)


def accuracy(gm):
    return (answers(gm) == labels).float().mean().item()


fp32 = accuracy(model)
assert fp32 > 0.9, f"the model is not trained: {fp32:.1%}"

# %% [markdown] lang="zh"
# ## 要多少
#
# 從訓練資料隨機抽 $n$ 張校準，每個 $n$ 抽三次，看準確率和它的散布：

# %% [markdown] lang="en"
# ## How much
#
# We draw $n$ training images at random and calibrate on them, three draws for each $n$, to see the accuracy and its
# spread:

# %%
generator = torch.Generator().manual_seed(0)
sizes = (1, 4, 16, 64, 256)
by_size = {}  # number of images -> accuracies of three draws
for n in sizes:
    draws = [
        torch.randperm(len(train_images), generator=generator)[:n]
        for _ in range(3)
    ]
    by_size[n] = [accuracy(calibrated(train_images[draw])) for draw in draws]

assert min(by_size[256]) > fp32 - 0.01, "256 images are not enough"
assert min(by_size[1]) < min(by_size[256]) - 0.01, "1 image is enough"

# %% tags=["plot"]
figure, axes = plt.subplots(figsize=(6.4, 3.0))
axes.axhline(fp32, color="black", linestyle="--", linewidth=1.2)
axes.annotate(
    "fp32",
    (1.4, fp32),
    xytext=(0, -13),
    textcoords="offset points",
    fontsize=9,
)
for n, found in by_size.items():
    spread = [n * 1.06 ** (k - 1) for k in range(3)]  # side by side
    axes.plot(spread, found, "o", color="C0", markersize=5)
axes.plot(sizes, [min(found) for found in by_size.values()], ":", color="C1")
axes.set_xscale("log", base=2)
axes.set_xticks(sizes, [str(n) for n in sizes])
axes.set(xlabel="calibration images", ylabel="accuracy")
axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
show(
    figure,
    alt=T(
        zh="準確率對校準圖片張數，每個張數三個點。只用 1 張時點散得很開，有些低於 fp32 很多；張數增加，點收攏到 fp32 的虛線上。",
        en="Accuracy against the number of calibration images, three dots each. With 1 image the dots scatter, some far "
        "below fp32; with more they gather at the dashed line of fp32.",
    ),
    caption=T(
        zh="每點是一次抽樣；點線連起每個張數的最差一次。",
        en="Each dot is one draw; the dotted line joins the worst draw of each size.",
    ),
)

# %% tags=["plot"]
enough = next(
    n
    for k, n in enumerate(sizes)
    if all(min(by_size[m]) > fp32 - 0.01 for m in sizes[k:])
)
say(
    T(
        zh=f"只用 1 張時，最差的一次是 {min(by_size[1]):.1%}，最好的是 {max(by_size[1]):.1%}：看抽到哪一張的運氣。"
        f"從 {enough} 張起，三次抽樣和 fp32 的 {fp32:.1%} 都差不到一個百分點。這是預測 1 的答案：遠遠用不到 4,000 張。",
        en=f"With 1 image the worst draw gave {min(by_size[1]):.1%} and the best {max(by_size[1]):.1%}: it is luck which image "
        f"you get. From {enough} images on, all three draws are within one point of fp32's {fp32:.1%}. "
        "That answers prediction 1: nowhere near 4,000.",
    )
)

# %% [markdown] lang="zh"
# 為什麼這麼快？因為 observer 要學的不是幾千個參數，每條邊只有最小、最大兩個數，而一張圖在輸入端就有 768 個值。下面一張一張
# 餵，記錄每條邊看過的範圍佔最後範圍的多少：

# %% [markdown] lang="en"
# Why so soon? An observer doesn't learn thousands of parameters, it has two numbers to find for each edge, a minimum and
# a maximum, and one image alone has 768 input values. Here we feed image by image and record how much of its final range
# each edge has seen:

# %%
from torchao.quantization.pt2e import HistogramObserver

observed = copy.deepcopy(prepared)
observers = [
    module
    for module in observed.modules()  # each shared observer just once
    if isinstance(module, HistogramObserver)
]
widths = []  # (images, observers)
with torch.no_grad():
    for image in train_images[:256].split(1):
        observed(image)
        width = [(o.max_val - o.min_val).item() for o in observers]
        widths.append(width)
seen = torch.tensor(widths) / torch.tensor(widths[-1])

assert (seen.diff(dim=0) >= 0).all(), "a recorded range became narrower"
assert seen[15].min() < 0.95, "16 images showed every edge its range"
assert min(by_size[16]) > fp32 - 0.02, "16 images are far from enough"

# %% tags=["plot"]
figure, axes = plt.subplots(figsize=(6.4, 2.8))
counts = range(1, len(seen) + 1)
for column in seen.T:
    axes.plot(counts, column, color="C2", alpha=0.55, linewidth=1.2)
axes.plot(counts, seen.min(dim=1).values, color="C0", label="slowest edge")
axes.set_xscale("log", base=2)
axes.set_xticks(sizes, [str(n) for n in sizes])
axes.set(xlabel="images seen", ylabel="share of final range", ylim=(0, 1.05))
axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
axes.legend(loc="lower right")
show(
    figure,
    alt=T(
        zh="每條邊記錄到的範圍佔最後範圍的比例，隨圖片張數上升，而且只升不降：前幾張升得快，之後越來越平。",
        en="The share of its final range that each edge has recorded, against the number of images. It only rises: fast "
        "over the first images, then more and more slowly.",
    ),
    caption=T(
        zh=f"{len(observers)} 個 observer 各一條線；粗線是最慢的一條邊。",
        en=f"One line for each of {len(observers)} observers; the heavy line is the slowest edge at each point.",
    ),
)

# %% tags=["plot"]
say(
    T(
        zh=f"看完 1 張，最慢的邊只記到最後範圍的 {seen[0].min():.0%}；16 張時是 {seen[15].min():.0%}，64 張時是 {seen[63].min():.0%}。",
        en=f"After 1 image the slowest edge had recorded {seen[0].min():.0%} of its final range, "
        f"after 16 images {seen[15].min():.0%}, after 64 {seen[63].min():.0%}.",
    )
)

# %% [markdown] lang="zh"
# 範圍其實還在變寬，準確率卻早就穩了：缺的那一截只有少數極值用得到，把它們 clamp 掉，代價很小。所以再多資料也幫不了多少，
# 除非它帶來**新的種類**。而且資料越多，遇到壞像素的機會也越大（[M02-1](1_observers.py)）。幾百張、涵蓋各種情況，勝過幾萬張
# 同一種。

# %% [markdown] lang="en"
# The ranges are still growing, yet accuracy has long settled: only a few extreme values need the missing part, and
# clamping those costs little. So more data helps little, unless it brings **new kinds**. Besides, the more data, the
# better the chance of meeting a broken pixel ([M02-1](1_observers.py)). A few hundred images that cover all conditions
# beat tens of thousands of one kind.

# %% [markdown] lang="zh"
# ## 什麼資料
#
# 張數固定 256，換內容。前四種是「像不像部署時的資料」，後三種是**前處理**不一致：把值當成 0 到 1、當成 0 到 255，或除以
# 10。除了準確率，也看**一致率**：和 fp32 模型答案相同的比例，不需要標籤。

# %% [markdown] lang="en"
# ## Which data
#
# Now the number is fixed at 256 and the content varies. The first four ask how much the data resembles that of
# deployment. The other three are inconsistent **preprocessing**: values from 0 to 1, from 0 to 255, or divided by 10.
# Besides accuracy we look at **agreement**, the share of images on which fp32 and the quantized model give the same
# answer; it needs no labels.

# %%
right = train_images[:256]
bright = train_images[train_labels < 2][:256]  # classes 0 and 1
noise = torch.randn(right.shape, generator=generator)
unit = (right + 2) / 4  # -2 .. 2 becomes 0 .. 1

data = {
    "right": right,
    "bright only": bright,
    "noise": noise,
    "black": torch.zeros_like(right),
    "0 to 1": unit,
    "0 to 255": unit * 255,
    "divided by 10": right / 10,
}
quantized = {name: calibrated(batch) for name, batch in data.items()}

# %%
reference = answers(model)
scores = {}  # name -> (accuracy, agreement)
for name, gm in quantized.items():
    given = answers(gm)
    scores[name] = tuple(
        (given == expected).float().mean().item()
        for expected in (labels, reference)
    )

assert scores["right"][0] > fp32 - 0.01, "the right data did harm"
for name in ("black", "0 to 1", "0 to 255", "divided by 10"):
    found, agreement = scores[name]
    assert found < fp32 - 0.1, f"{name}: {found:.1%}, no harm done"
    assert agreement < scores["right"][1] - 0.1, f"{name}: they still agree"

# %% tags=["plot"]
words = {
    "right": T(zh="正確的 256 張", en="the right 256 images"),
    "bright only": T(zh="只有亮斑點", en="bright blobs only"),
    "noise": T(zh="常態雜訊", en="Gaussian noise"),
    "black": T(zh="全零", en="all zeros"),
    "0 to 1": T(zh="值在 0 到 1", en="values from 0 to 1"),
    "0 to 255": T(zh="值在 0 到 255", en="values from 0 to 255"),
    "divided by 10": T(zh="除以 10", en="divided by 10"),
}
table(
    [
        [words[name], f"{found:.1%}", f"{agreement:.1%}"]
        for name, (found, agreement) in scores.items()
    ],
    [
        T(zh="校準資料", en="calibration data"),
        T(zh=f"準確率（fp32 {fp32:.1%}）", en=f"accuracy (fp32 {fp32:.1%})"),
        T(zh="一致率", en="agreement"),
    ],
)

# %% tags=["plot"]
candidates = ("bright only", "noise", "divided by 10")
worst = min(candidates, key=lambda name: scores[name][0])
harmless = [
    name for name in candidates[:2] if abs(scores[name][0] - fp32) < 0.015
]
say(
    T(
        zh="三者之中最傷的是「{worst}」，這是預測 2 的答案。",
        en="Of the three, “{worst}” does the most harm, which answers prediction 2.",
    ).format(worst=words[worst])
)
if len(harmless) == 2:
    say(
        T(
            zh="只有亮斑點和純雜訊，準確率都和 fp32 差不到 1.5 個百分點。這是這個模型的運氣，不是通則：兩者剛好都把每條邊的範圍撐到夠寬。",
            en="With bright blobs only, and even with pure noise, accuracy stays within 1.5 points of fp32. That is this "
            "model's luck, not a rule: both happen to stretch the range of each edge far enough.",
        )
    )
else:
    say(
        T(
            zh="內容不像也有代價：只有亮斑點或純雜訊之中，至少一種讓準確率差了 1.5 個百分點以上。",
            en="Data of the wrong kind has its price too: of bright blobs and pure noise, at least one moved accuracy by "
            "more than 1.5 points.",
        )
    )

# %% [markdown] lang="zh"
# 四類亂猜也有 25%，所以表上最差的幾列等於沒有模型。錯的縮放這麼傷，是因為它同時弄錯**每一條**邊的範圍，卻沒有任何錯誤訊息。校準的值太小，部署時的值大量被 clamp；太大，整張圖只用
# 到少數幾格。這正是[概覽](0_overview.py)那張圖的左右兩端。

# %% [markdown] lang="en"
# Guessing among four classes gives 25%, so the worst rows are no model at all. Wrong scaling hurts so much because it gets the range of **every** edge wrong at once, and nothing complains. With
# values too small, much is clamped in deployment; too large, and a whole image falls on a few steps. These are the two
# ends of the picture in the [overview](0_overview.py).

# %% [markdown] lang="zh"
# ## 不看標籤也看得出來
#
# 兩端各有徵兆。拿幾張真實的圖片跑一遍 Q/DQ 圖，在每個 q 上數兩件事：多少值落在範圍外（**飽和**），以及資料用到範圍的多
# 少（**利用率**）。`torch.fx.Interpreter` 逐個 node 執行圖，剛好可以在 q 上停下來看：

# %% [markdown] lang="en"
# ## It shows, even without labels
#
# Each end has its symptom. Run a few real images through the Q/DQ graph and count two things at each q: how many values
# lie outside its range (**saturation**), and how much of the range the data uses (**use**). `torch.fx.Interpreter`
# executes a graph node by node, so we can look in at every q:

# %%
quantize = torch.ops.quantized_decomposed.quantize_per_tensor.default


class RangeCheck(torch.fx.Interpreter):
    """Collects (share of values clamped, share of range used) per q."""

    def run_node(self, node):
        if node.target == quantize:
            x, (s, z) = self.env[node.args[0]], node.args[1:3]
            low, high = s * (-128 - z), s * (127 - z)
            outside = (x < low - s / 2) | (x > high + s / 2)
            inside = x.clamp(low, high)
            used = (inside.max() - inside.min()) / (high - low)
            name = node.args[0].name
            self.found[name] = outside.float().mean().item(), used.item()
        return super().run_node(node)


def check_ranges(gm):
    checker = RangeCheck(gm)
    checker.found = {}
    with torch.no_grad():
        checker.run(images[:100])
    return checker.found


# %%
at_input, worst_edge = {}, {}
for name, gm in quantized.items():
    found = check_ranges(gm)
    at_input[name] = found["x"]
    worst_edge[name] = max(clamped for clamped, _ in found.values())

clamped, used = at_input["right"]
assert clamped < 0.01 and used > 0.95, "the right data looks wrong"
for name in ("black", "0 to 1", "divided by 10"):
    assert at_input[name][0] > 0.2, f"{name}: no saturation at the input"
assert at_input["0 to 255"][1] < 0.05, "0 to 255: uses much of the range"

# %% tags=["plot"]
table(
    [
        [
            words[name],
            f"{clamped:.1%}",
            f"{used:.0%}",
            f"{worst_edge[name]:.1%}",
            f"{scores[name][0]:.1%}",
        ]
        for name, (clamped, used) in at_input.items()
    ],
    [
        T(zh="校準資料", en="calibration data"),
        T(zh="輸入：飽和", en="input: clamped"),
        T(zh="輸入：利用率", en="input: use"),
        T(zh="最差的邊：飽和", en="worst edge: clamped"),
        T(zh="準確率", en="accuracy"),
    ],
)

# %% [markdown] lang="zh"
# 縮放錯了，第一條邊就看得一清二楚：飽和超過兩成，或利用率掉到百分之幾。這是預測 3 的答案：看得出來，而且不必跑完整個模型。

# %% [markdown] lang="en"
# Wrong scaling is plain to see on the very first edge: more than a fifth of the values clamped, or a few percent of the
# range used. This answers prediction 3: yes, and you need not even run the whole model.

# %% tags=["plot"]
figure, axes = plt.subplots(figsize=(6.4, 3.0))
counts, edges = torch.histogram(images.flatten(), bins=80)
axes.stairs(counts / counts.max(), edges, fill=True, color="C4", alpha=0.45)
shown = ("right", "bright only", "noise", "0 to 1", "divided by 10")
for row, name in enumerate(shown):
    (q,) = [
        node
        for node in quantized[name].graph.find_nodes(
            op="call_function", target=quantize
        )
        if node.args[0].name == "x"
    ]
    s, z = q.args[1:3]
    y = -0.15 - 0.15 * row
    axes.plot((s * (-128 - z), s * (127 - z)), (y, y), f"C{row}|-", mew=2)
    axes.annotate(name, (-4.6, y), va="center", ha="right", fontsize=9)
axes.set(xlabel="value of a pixel", ylim=(-0.9, 1.05), xlim=(-7.4, 4.6))
axes.set_yticks([])
show(
    figure,
    alt=T(
        zh="上面是測試圖片像素值的分布，在 −2 到 2 之間。下面是各種校準資料替輸入選的範圍：正確的剛好蓋住；"
        "雜訊的太寬；0 到 1 的只蓋住右邊一小段；除以 10 的只剩中間一點點。",
        en="On top the distribution of the test images' pixels, between −2 and 2. Below, the range each calibration chose for "
        "the input: the right data just covers it, noise is too wide, 0 to 1 covers a bit on the right, and divided by "
        "10 only a sliver in the middle.",
    ),
    caption=T(
        zh="真實的像素值（上）與輸入端的範圍（下）。0 到 255 的範圍太寬，畫不下。",
        en="Real pixel values (top) and the range at the input (below). The range for 0 to 255 is too wide to draw.",
    ),
)

# %% [markdown] lang="zh"
# ## 準備校準資料的檢查表
#
# - 用和部署**同一個**前處理函式，不要另寫一份；不做訓練用的資料擴增。
# - 每個值都是有限的：`data.isfinite().all()`；極值看一眼，和部署時的範圍比。
# - 涵蓋各種情況，而不是量大：幾百張，打散順序。
# - 包在 `torch.no_grad()` 裡，模型在 export 之前先 `.eval()`。
# - convert 之後，拿幾張沒參與校準的真實圖片查一遍飽和與利用率。
#
# batch 大小主要影響移動平均：它每批才走一步。直方圖分批累加，只有細微的差別；極值則與怎麼分批無關，拿輸入那條邊驗證：

# %% [markdown] lang="en"
# ## A checklist for calibration data
#
# - Use **the same** preprocessing function as in deployment, not a second version of it; no augmentation.
# - Every value is finite: `data.isfinite().all()`. Look at the extremes and compare them with those of deployment.
# - Cover all conditions rather than collect a lot: a few hundred images, shuffled.
# - Inside `torch.no_grad()`, with a model that was in `.eval()` before export.
# - After convert, check saturation and use on a few real images that were not part of calibration.
#
# The batch size matters for moving averages, which take one step per batch, and next to nothing for a histogram, which
# adds the batches up. Extremes don't depend on how the data is split at all; we check that on the input edge:

# %%
recorded = []
for batch_size in (1, 64, 256):
    observer = HistogramObserver(dtype=torch.int8)
    for batch in right.split(batch_size):
        observer(batch)
    recorded.append((observer.min_val.item(), observer.max_val.item()))
assert len(set(recorded)) == 1, f"depends on the batch size: {recorded}"
assert recorded[0] == (right.min().item(), right.max().item())

# %% [markdown] lang="zh"
# ## 小結
#
# - 校準只替每條邊找一段範圍，所以準確率很快就持平，幾百張綽綽有餘；只用一張全看運氣。
# - 準確率對內容的容忍度看模型，對縮放錯誤則毫不容忍，而且沒有任何錯誤訊息。
# - 太窄的範圍看飽和，太寬的看利用率；都不需要標籤，第一條邊最靈。
# - 用同一份前處理，查極值，查 nan 與 inf。

# %% [markdown] lang="en"
# ## Recap
#
# - Calibration only finds a range per edge, so accuracy levels off soon and a few hundred images are plenty; with a single
#   one it is luck.
# - How much wrong content matters depends on the model. Wrong scaling is never forgiven, and raises no error.
# - A range too narrow shows as saturation, one too wide as low use. Neither takes labels, and the first edge tells most.
# - Use the same preprocessing, look at the extremes, check for nan and inf.

# %% [markdown] lang="zh"
# ## 試試看
#
# 同事交給你一張 Q/DQ 圖，準確率低得奇怪。他說校準時「好像乘了個係數」。只用這張圖的第一個 q 和測試圖片，算出那個係數；再想一
# 想，直接把 q 上的 scale 除以係數，能不能修好？

# %% [markdown] lang="en"
# ## Try it
#
# A colleague hands you a Q/DQ graph whose accuracy is oddly low and recalls that the calibration images were
# "multiplied by something". Find the factor, using nothing but the first q of the graph and the test images. Then
# think: could you mend the graph by dividing the scale on that q by the factor?


# %% tags=["solution"]
def q_nodes(gm):
    return gm.graph.find_nodes(op="call_function", target=quantize)


theirs = calibrated(right * 30)  # pretend not to know this number

q = q_nodes(theirs)[0]
assert q.args[0].name == "x", "not the q of the input"
width = q.args[1] * 255  # of the range in the graph
factor = (width / (images.max() - images.min())).item()
assert abs(factor / 30 - 1) < 0.1, f"found {factor:.2f}"

mended = calibrated(right)
assert accuracy(theirs) < accuracy(mended) - 0.05, "it did no harm"
print(f"factor {factor:.2f}, accuracy {accuracy(theirs):.1%}")

ratios = []  # of each scale to the right one
for found, good in zip(q_nodes(theirs), q_nodes(mended), strict=True):
    ratios.append(found.args[1] / good.args[1])
print(f"scales too large by {min(ratios):.1f} to {max(ratios):.1f}")

for node in (q, *q.users):  # the first q and its dq
    node.args = (node.args[0], node.args[1] / factor, *node.args[2:])
theirs.recompile()
assert accuracy(theirs) < accuracy(mended) - 0.02, "the first q was enough"
print(f"first q mended: {accuracy(theirs):.1%}")
print(f"calibrated again: {accuracy(mended):.1%}")

# %% [markdown] lang="zh" tags=["solution"]
# 只改第一個 q 和它的 dq，好一些，但沒有修好：後面每條邊的範圍也是用放大的圖校準的，而且放大的倍數不同，因為有 bias 的層不
# 成比例。重新校準最省事，它只要幾秒。

# %% [markdown] lang="en" tags=["solution"]
# Changing the first q and its dq helps but doesn't mend it. The ranges of all later edges come from the enlarged images
# as well, and by other factors, since a layer with a bias is not proportional. Calibrate again: it takes seconds.

# %% [markdown] lang="zh"
# ## 接下來
#
# [M02-2](2_fake_quant.py) 讓量化參與訓練；準確率的差是真的還是抽樣的運氣，看 [M05-1](../m05_accuracy/1_evaluate.py)。回到
# [M02 概覽](0_overview.py)。

# %% [markdown] lang="en"
# ## Next
#
# [M02-2](2_fake_quant.py) lets quantization take part in training. Whether a difference in accuracy is real or the luck of
# sampling is the subject of [M05-1](../m05_accuracy/1_evaluate.py). Back to the [M02 overview](0_overview.py).
