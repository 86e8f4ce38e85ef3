# %% [markdown] lang="zh"
# # M05-3 | 敏感度與混合精度：位元該花在哪一層
#
# [M05-2](2_numeric_debugger.py) 找出誤差出現在哪裡；這一頁問的是另一件事：**改了哪一層，準確率才會回來？** 方法很直接，一次動一
# 層，再量準確率。量出來的敏感度，有時和 SQNR 指著不同的層；接著照敏感度把位元花下去，做出混合精度的模型，最後在沒用來挑選的圖
# 片上重量一次。
#
# **讀完你會知道**
#
# - 量敏感度的兩種實驗：只量化一層、只放過一層
# - 敏感度和 SQNR 什麼時候會指著不同的層，該信哪一個
# - 怎麼把兩個 quantizer 組成混合精度，多花多少記憶體
# - 怎麼確認改善是真的，而不是挑出來的

# %% [markdown] lang="en"
# # M05-3 | Sensitivity and mixed precision: which layer deserves the bits
#
# [M05-2](2_numeric_debugger.py) found where the error shows. This page asks something else: **which layer has to change
# for accuracy to come back?** The method is blunt: change one layer at a time and measure accuracy. The sensitivity we
# get sometimes points at another layer than SQNR does. Then we spend bits accordingly, which makes a mixed-precision
# model, and measure it again on images that had no part in the choice.
#
# **What you will know**
#
# - Two experiments that measure sensitivity: quantize only one layer, and spare only one layer
# - When sensitivity and SQNR point at different layers, and which to believe
# - How to compose two quantizers into mixed precision, and how much memory it takes
# - How to make sure that the gain is real and not an effect of choosing

# %% [markdown] lang="zh"
# ## 先預測
#
# 主角是 weight 用 4 位元、per-tensor 的 TinyConvNet：準確率掉了一大截（[M05-2](2_numeric_debugger.py)）。
#
# 1. 損失平均分散在各層，還是集中在某一層？
# 2. 每次只量化一層，把各自的損失加起來，會等於全部量化的損失嗎？
# 3. SQNR 突然掉下去的那一層，是不是就該改那一層？
# 4. 把最敏感的一層改用 8 位元，weight 佔的記憶體大約多百分之幾？

# %% [markdown] lang="en"
# ## Predict first
#
# Our subject is TinyConvNet with 4-bit per-tensor weights, which lost a large part of its accuracy
# ([M05-2](2_numeric_debugger.py)).
#
# 1. Is the loss spread evenly over the layers, or does one of them cause most of it?
# 2. Quantize only one layer at a time and add up the losses: is the sum the loss of quantizing all of them?
# 3. If SQNR drops sharply at some layer, is that the layer to change?
# 4. If the most sensitive layer gets 8 bits, by what percentage does the memory for weights grow?

# %% tags=["setup"]
import copy

from common.data import calibration_batches, test_data
from common.env import quiet
from common.folding import folded
from common.layerwise import outputs_by_node, sqnr_by_node
from common.metrics import (
    accuracy,
    in_points,
    interval_in_points,
    is_right,
    paired_interval,
    sqnr_db,
)
from common.models import trained_tinyconvnet
from common.pt2e import ptq
from common.quantizers import PTQQuantizer
from common.viz import T, say, show, table

import matplotlib.pyplot as plt
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantizer import ComposableQuantizer

quiet()


def export(model):
    size = torch.export.Dim("batch", min=1, max=4096)
    example, shapes = (torch.zeros(2, 3, 16, 16),), ({0: size},)
    return torch.export.export(model, example, dynamic_shapes=shapes)


# %% [markdown] lang="zh"
# ## 一次動一個單位
#
# 一起融合成一個 kernel 的 op 要一起量化，所以單位不是 node，而是後端的一個 kernel：`conv2d` 和它後面的 `relu` 算一個。
# `set_filter_function` 讓 quantizer 只管你點名的 node；注意要放 `get_attr`（weight）過去，否則什麼都不會量化，而且沒有訊息
# （[M03-3](../m03_quantizer/3_shared_and_derived.py)）。本課程的 `ptq` 會替你擋下這種情形，而 `PTQQuantizer` 就是比較快的
# `XNNPACKQuantizer`。

# %% [markdown] lang="en"
# ## One unit at a time
#
# Ops that fuse into one kernel have to be quantized together, so our unit is not a node but a kernel of the backend:
# `conv2d` and the `relu` behind it are one. `set_filter_function` confines a quantizer to the nodes you name. Do let
# `get_attr` (the weights) pass, or nothing gets quantized and no message says so
# ([M03-3](../m03_quantizer/3_shared_and_derived.py)). The course's `ptq` refuses that case, and `PTQQuantizer` is just a
# quicker `XNNPACKQuantizer`.

# %%
UNITS = {  # the first node of each has the layer's weight, if any
    "stem_conv": ["conv2d", "relu"],
    "block.conv1": ["conv2d_1", "relu_1"],
    "block.conv2": ["conv2d_2"],
    "block's add": ["add", "relu_2"],
    "head_conv": ["conv2d_3", "relu_3"],
    "fc": ["linear"],
}
FOUR_BITS = {"weight_qmin": -7, "weight_qmax": 7}


def quantizer_for(units, **switches):
    """Quantizes these units and no others."""
    names = {name for unit in units for name in UNITS[unit]}
    config = get_symmetric_quantization_config(**switches)
    quantizer = PTQQuantizer().set_global(config)
    return quantizer.set_filter_function(
        lambda node: node.op == "get_attr" or node.name in names
    )


CALIBRATION = list(calibration_batches(256))


def quantize(program, quantizer):
    return ptq(program.module(), quantizer, CALIBRATION)


# %%
model = trained_tinyconvnet()
program = export(model)
only_stem = quantize(program, quantizer_for(["stem_conv"], **FOUR_BITS))
everything = quantize(program, quantizer_for(UNITS, **FOUR_BITS))


def int8_tensors(gm):
    return sum(t.dtype == torch.int8 for t in gm.state_dict().values())


assert int8_tensors(only_stem) == 1, "not just the stem was quantized"
assert int8_tensors(everything) == 5, "a layer was left out"

# %% [markdown] lang="zh"
# ## 兩種實驗
#
# - **只量化一個**：其餘都是 fp32。看的是這個單位自己造成多少損失。
# - **只放過一個**：其餘都量化，這個單位留在 fp32（leave-one-out）。看的是救了它能拿回多少。
#
# 測試圖片分兩半：前 1,000 張用來量敏感度、做選擇，後 1,000 張留到最後。

# %% [markdown] lang="en"
# ## Two experiments
#
# - **Only one quantized**, all else fp32: how much does this unit lose by itself?
# - **Only one spared**: all others quantized, this one left in fp32 (leave-one-out): how much comes back if we rescue it?
#
# We split the test images: the first 1,000 are for measuring sensitivity and choosing, the other 1,000 for the end.

# %%
images, labels = test_data()
to_choose = images[:1000], labels[:1000]
kept_back = images[1000:], labels[1000:]


def sensitivity(program, units=UNITS, **switches):
    """{unit: (accuracy if only it is quantized, if only it is spared)}."""

    def score(quantized_units):
        quantizer = quantizer_for(quantized_units, **switches)
        gm = quantize(program, quantizer)
        return accuracy(gm, *to_choose)

    found = {}
    for unit in units:
        others = [other for other in UNITS if other != unit]
        found[unit] = score([unit]), score(others)
    return found


fp32 = accuracy(model, *to_choose)
all_4_bit = accuracy(everything, *to_choose)
found = sensitivity(program, **FOUR_BITS)

# %%
lost_alone = {unit: fp32 - only for unit, (only, _) in found.items()}
won_back = {unit: spared - all_4_bit for unit, (_, spared) in found.items()}
for ranking in (lost_alone, won_back):
    assert max(ranking, key=ranking.get) == "stem_conv", f"{ranking}"
lost = fp32 - all_4_bit
assert won_back["stem_conv"] > lost / 2, "the stem is not most of the loss"
assert sum(lost_alone.values()) < lost - 0.03, "the losses do add up"

# %% tags=["plot"]
WHOLE = (
    T(zh="只量化它", en="only it quantized"),
    T(zh="只放過它", en="only it spared"),
)

figure, axes = plt.subplots(figsize=(6.6, 3.0))
rows = range(len(found), 0, -1)
for value, text, style in (
    (fp32, "fp32", "-"),
    (all_4_bit, "all quantized", ":"),
):
    axes.axvline(value, color="black", linestyle=style, linewidth=1.2)
    axes.annotate(
        text,
        (value, len(found) + 0.55),
        ha="center",
        fontsize=9,
        annotation_clip=False,
    )
for k, label in enumerate(("only it quantized", "only it spared")):
    values = [pair[k] for pair in found.values()]
    axes.plot(values, rows, "os"[k], color=f"C{k}", label=label)
axes.set_yticks(list(rows), list(found))
axes.set(xlabel="accuracy", ylim=(0.5, len(found) + 0.5))
axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
figure.legend(loc="outside lower center", ncols=2)
show(
    figure,
    alt=T(
        zh="六個單位各一列，橫軸是準確率。圓點是只量化它：除了 stem_conv，都靠近右邊的 fp32。方塊是只放過它："
        "除了 stem_conv，都靠近左邊的全部量化。stem_conv 的兩個點正好相反。",
        en="One row for each of six units, accuracy on the horizontal axis. Dots, only it quantized, lie near fp32 on the right, except "
        "for stem_conv. Squares, only it spared, lie near all quantized on the left, except for stem_conv, whose two are the other way round.",
    ),
    caption=T(
        zh="4 位元 per-tensor 的敏感度。圓點越靠左、方塊越靠右，這個單位就越敏感。",
        en="Sensitivity at 4 bits per tensor. The further left the dot and the further right the square, the more sensitive the unit.",
    ),
)

# %% tags=["plot"]
say(
    T(
        zh=f"全部量化損失 {lost * 100:.1f} 個百分點；每次只量化一個，六個損失加起來是 {sum(lost_alone.values()) * 100:.1f}。"
        f"只放過 stem，就拿回 {won_back['stem_conv'] * 100:.1f} 個百分點。",
        en=f"Quantizing everything loses {lost * 100:.1f} points; the six losses of only one quantized add up to {sum(lost_alone.values()) * 100:.1f}. "
        f"Sparing the stem alone wins back {won_back['stem_conv'] * 100:.1f} points.",
    )
)

# %% [markdown] lang="zh"
# 這是預測 1 與 2 的答案：大半在 stem，而損失不能相加。準確率不是誤差的線性函數：前幾份誤差還吃得下
# （[M05 概覽](0_overview.py)），疊在一起就翻盤。所以兩種實驗都值得做：「只量化一個」找出自己就會出事的，「只放過一個」回答
# 「現在改它有沒有用」，後者才是修的時候要看的。
#
# ## 和 SQNR 說法不同的時候
#
# 在上面的例子裡，SQNR 最低的 conv 也是 stem。換一個模型：seed 1 的 TinyConvNet，把 `block.conv1` 的一個輸出 channel 放大 128
# 倍、`block.conv2` 對應的輸入縮小 128 倍。fp32 一個位元都沒變（[M01-3](../m01_first_ptq/3_quantization_config.py)），int8
# per-tensor 卻不行了：

# %% [markdown] lang="en"
# This answers predictions 1 and 2: most of it comes from the stem, and losses don't add up. Accuracy isn't linear in the
# error: the first few errors are absorbed ([M05 overview](0_overview.py)), and together they tip the answer. Both
# experiments are worth doing. Only one quantized finds units that fail by themselves; only one spared answers "does it
# help to change this one now?", which is what counts when you mend something.
#
# ## When SQNR says otherwise
#
# Above, the convolution of lowest SQNR is the stem, too. Here is another model: TinyConvNet of seed 1, with one output
# channel of `block.conv1` multiplied by 128 and the matching input of `block.conv2` divided by 128. In fp32 not a bit
# changes ([M01-3](../m01_first_ptq/3_quantization_config.py)), but int8 per-tensor fails:

# %%
trained = trained_tinyconvnet(seed=1)
rescaled = copy.deepcopy(trained)
with torch.no_grad():
    rescaled.block.bn1.weight[0] *= 128
    rescaled.block.bn1.bias[0] *= 128
    rescaled.block.conv2.weight[:, 0] /= 128
    x = images[:256]
    assert torch.equal(rescaled(x), trained(x)), "fp32 changed"

rescaled_program = export(rescaled)
rescaled_int8 = quantize(rescaled_program, quantizer_for(UNITS))
suspects = ["stem_conv", "block.conv1", "block.conv2", "head_conv"]
int8_found = sensitivity(rescaled_program, suspects)

# %%
db = {}  # unit -> SQNR at its first node
for name, each, gm in (
    ("4-bit", program, everything),
    ("rescaled", rescaled_program, rescaled_int8),
):
    by_node = sqnr_by_node(folded(each.module(), (x,)), gm, (x,))
    db[name] = {unit: by_node[nodes[0]] for unit, nodes in UNITS.items()}

assert min(db["4-bit"], key=db["4-bit"].get) == "stem_conv"
before, at = db["rescaled"]["block.conv1"], db["rescaled"]["block.conv2"]
assert before > 20 > 5 > at, f"no sharp drop: {before:.1f} dB, {at:.1f} dB"

int8_all = accuracy(rescaled_int8, *to_choose)
only_conv1, spared_conv1 = int8_found["block.conv1"]
only_conv2, spared_conv2 = int8_found["block.conv2"]
assert only_conv1 < only_conv2 - 0.1, "conv2 alone does the harm"
assert spared_conv1 > spared_conv2 + 0.1, "sparing conv2 helps"
assert spared_conv2 < int8_all + 0.05, "sparing conv2 helps, too"

# %% tags=["plot"]
table(
    [
        [
            f"`{unit}`",
            f"{db['rescaled'][unit]:.1f} dB",
            f"{only:.1%}",
            f"{spared:.1%}",
        ]
        for unit, (only, spared) in int8_found.items()
    ],
    [T(zh="單位", en="unit"), "SQNR", *WHOLE],
    caption=T(
        zh=f"放大過的模型，int8 per-tensor。準確率：fp32 {accuracy(rescaled, *to_choose):.1%}，全部量化 {int8_all:.1%}。",
        en=f"The rescaled model, int8 per-tensor. Accuracy: fp32 {accuracy(rescaled, *to_choose):.1%}, all quantized {int8_all:.1%}.",
    ),
)

# %% [markdown] lang="zh"
# SQNR 到 `block.conv1` 都很好，在 `block.conv2` 突然掉下去：照它說，該改 `block.conv2`。準確率卻說，改 `block.conv2` 幾乎沒
# 用，該改的是 `block.conv1`。這是預測 3 的答案。為什麼 `block.conv1` 的 SQNR 看起來那麼好？把它的輸出拆成 16 個 channel，一個一
# 個算：

# %% [markdown] lang="en"
# SQNR is fine up to `block.conv1` and drops sharply at `block.conv2`, so by its account `block.conv2` should change. By
# accuracy's account changing `block.conv2` hardly helps; `block.conv1` is the one. That answers prediction 3. Why does
# the SQNR of `block.conv1` look so good? We split its output into its 16 channels and look at them one by one:

# %%
outputs = outputs_by_node(
    folded(rescaled_program.module(), (x,)), rescaled_int8, (x,)
)
ref, actual = outputs["conv2d_1"]  # block.conv1
channel_db = [sqnr_db(ref[:, c], actual[:, c]) for c in range(ref.shape[1])]
power = ref.square().mean(dim=(0, 2, 3))
share = (power[0] / power.sum()).item()

assert share > 0.99, "the enlarged channel doesn't dominate"
typical = torch.tensor(channel_db[1:]).median().item()
assert typical < before - 15, f"other channels are fine: {typical:.1f} dB"

# %% tags=["plot"]
figure, axes = plt.subplots(figsize=(6.4, 2.8))
axes.bar(range(len(channel_db)), channel_db, color="C0")
axes.axhline(before, color="black", linestyle="--", linewidth=1.2)
axes.annotate(
    "whole output",
    (len(channel_db) - 0.6, before + 0.6),
    ha="right",
    fontsize=9,
)
axes.axhline(0, color="black", linewidth=0.8)
axes.set_xticks(range(0, len(channel_db), 3))
axes.set(xlabel="output channel of block.conv1", ylabel="SQNR (dB)")
show(
    figure,
    alt=T(
        zh="block.conv1 的 16 個輸出 channel 各一根長條：第 0 個很高，和整個輸出的虛線差不多；其餘都遠低於虛線，有些是負的。",
        en="A bar for each of the 16 output channels of block.conv1. The first is about as high as the dashed line of the whole output; "
        "all others are far below it, some of them negative.",
    ),
    caption=T(
        zh=f"放大的 channel 0 佔了輸出功率的 {share:.1%}，整個輸出的 SQNR 就是它的 SQNR。",
        en=f"The enlarged channel 0 holds {share:.1%} of the output's power, so the SQNR of the whole output is that of channel 0.",
    ),
)

# %% [markdown] lang="zh"
# 其他 15 個 channel 早在 `block.conv1` 就壞了，只是被放大的那個蓋住。`block.conv2` 把它縮回原來的大小，其他 channel 才重新算數，
# 誤差也才**現形**。所以 SQNR 拿來找可疑的地方，而且要逐 channel 看；要改哪裡，由準確率決定。
#
# ## 混合精度：兩個 quantizer
#
# 回到 4 位元的模型。把敏感的單位留在 fp32 是一種修法，用 8 位元是便宜得多的一種。`ComposableQuantizer` 依序請兩個 quantizer 標註同
# 一張圖，各管各的單位（[M03-3](../m03_quantizer/3_shared_and_derived.py)）：

# %% [markdown] lang="en"
# The other 15 channels are broken as early as `block.conv1`, only hidden by the enlarged one. `block.conv2` scales that
# one back, so the others count again and the error **shows**. So use SQNR to find suspects, and look channel by channel;
# let accuracy decide what to change.
#
# ## Mixed precision: two quantizers
#
# Back to the 4-bit model. Leaving a sensitive unit in fp32 is one way to mend it, and 8 bits is a much cheaper one.
# `ComposableQuantizer` has two quantizers annotate one graph in turn, each its own units
# ([M03-3](../m03_quantizer/3_shared_and_derived.py)):


# %%
def mixed(in_8_bits, **switches):
    """A quantizer with these units at 8 bits and all others at 4."""
    in_4_bits = [unit for unit in UNITS if unit not in in_8_bits]
    return ComposableQuantizer(
        [
            quantizer_for(in_8_bits, **switches),
            quantizer_for(in_4_bits, **switches, **FOUR_BITS),
        ]
    )


stem_at_8 = quantize(program, mixed(["stem_conv"]))
largest = [  # |integer| of each weight; the stem's comes first
    t.int().abs().max().item()
    for t in stem_at_8.state_dict().values()
    if t.dtype == torch.int8
]
assert largest == [127, 7, 7, 7, 7], f"not what was asked for: {largest}"
with_stem = accuracy(stem_at_8, *to_choose)
assert with_stem > all_4_bit + 0.2, f"8 bits for the stem: {with_stem:.1%}"
print(f"4-bit {all_4_bit:.1%}, stem at 8 bits {with_stem:.1%}, fp32 {fp32:.1%}")

# %% [markdown] lang="zh"
# 還不夠，就照「只放過一個」的排名一層一層加上去。有 weight 的單位才值得排，因為 activation 本來就是 8 位元。順便算 weight 佔多
# 少 byte：每個值 4 或 8 個位元，外加 scale，每個 4 byte；bias 不算。（這些圖裡的 4 位元值其實各佔一個 int8；要真的省下記憶體，得
# 有 4 位元的格式與 kernel。）名次靠近的單位，先後可能只是這 1,000 張圖片的運氣。

# %% [markdown] lang="en"
# Not enough yet, so we add layers in the order of only one spared. Only units with weights are worth ranking, since
# activations have 8 bits anyway. Along the way we count the bytes of the weights: 4 or 8 bits for each value, plus 4
# bytes for each scale; biases don't count. (In these graphs a 4-bit value really sits in an int8; to save memory in
# earnest takes a 4-bit format and kernels for it.) Where two units rank close together, their order may be no more than
# luck with these 1,000 images.

# %%
sizes = {}  # unit -> (number of weights, output channels)
for unit in UNITS:
    if unit != "block's add":
        weight = model.get_parameter(f"{unit}.weight")
        sizes[unit] = weight.numel(), len(weight)
ranking = sorted(sizes, key=lambda unit: won_back[unit], reverse=True)


def size_bytes(in_8_bits, per_channel=False):
    total = 0
    for unit, (n, channels) in sizes.items():
        total += n if unit in in_8_bits else n // 2
        total += 4 * (channels if per_channel else 1)
    return total


assert ranking[0] == "stem_conv"
steps = [everything, stem_at_8]  # steps[k] has k units at 8 bits
for k in range(2, len(ranking) + 1):
    steps.append(quantize(program, mixed(ranking[:k])))
step_bytes = [size_bytes(ranking[:k]) for k in range(len(steps))]
step_accuracy = [accuracy(gm, *to_choose) for gm in steps]

more = step_bytes[1] / step_bytes[0] - 1
assert more < 0.05, f"8 bits for the stem take {more:.0%} more memory"

# %%
per_channel = [  # all at 4 bits, then the stem at 8
    quantize(program, mixed(units, is_per_channel=True))
    for units in ([], ["stem_conv"])
]
per_channel_bytes = [
    size_bytes(units, per_channel=True) for units in ([], ["stem_conv"])
]
per_channel_accuracy = [accuracy(gm, *to_choose) for gm in per_channel]

assert 200 < per_channel_bytes[0] - step_bytes[0] < 500
gained = per_channel_accuracy[0] - all_4_bit
assert gained > lost / 2, f"per-channel gains {gained:.1%} of {lost:.1%}"

# %% tags=["plot"]
figure, axes = plt.subplots(figsize=(6.6, 3.2))
axes.axhline(fp32, color="black", linewidth=1.0)
axes.annotate("fp32", (8600, fp32 + 0.012), ha="center", fontsize=9)
axes.plot(
    step_bytes,
    step_accuracy,
    "o-",
    label="per-tensor, one more unit at 8 bits each",
)
axes.plot(
    per_channel_bytes,
    per_channel_accuracy,
    "s--",
    label="per-channel: 4-bit, then stem at 8 bits",
)
added = ["all 4-bit", *(f"+ {u.removeprefix('block.')}" for u in ranking)]
for text, *point in zip(added, step_bytes, step_accuracy, strict=True):
    axes.annotate(
        text,
        point,
        xytext=(6, 5 if text == added[-1] else -11),
        textcoords="offset points",
        fontsize=8,
    )
axes.set(xlabel="weights and their scales (bytes)", ylabel="accuracy")
axes.set(xlim=(4600, 10700), ylim=(all_4_bit - 0.06, 1.0))
axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
axes.legend(loc="lower right")
show(
    figure,
    alt=T(
        zh="橫軸是 weight 與 scale 的 byte 數，縱軸是準確率。per-tensor 的線從最左邊的全部 4 位元起，"
        "stem 改 8 位元時幾乎垂直上升，之後越來越平，到 fp32 附近。per-channel 的兩個點在左上角，已經靠近 fp32。",
        en="Accuracy over bytes of weights and scales. The per-tensor line starts at all 4-bit on the left, rises almost vertically when the "
        "stem gets 8 bits, then flattens near fp32. The two per-channel points are at the upper left, close to fp32 already.",
    ),
    caption=T(
        zh="準確率（挑選用的 1,000 張）對記憶體。橫線是 fp32。",
        en="Accuracy (on the 1,000 images used for choosing) against memory. The horizontal line is fp32.",
    ),
)

# %% tags=["plot"]
say(
    T(
        zh=f"stem 改用 8 位元，weight 只多 {more:.1%} 的記憶體，因為它在 {sum(n for n, _ in sizes.values()):,} 個 weight 裡只佔 {sizes['stem_conv'][0]} 個。這是預測 4 的答案。",
        en=f"Giving the stem 8 bits takes only {more:.1%} more memory for weights, since it holds just {sizes['stem_conv'][0]} of "
        f"{sum(n for n, _ in sizes.values()):,}. That answers prediction 4.",
    )
)

# %% [markdown] lang="zh"
# 圖上還有一件事：per-channel 只多幾百個 byte 的 scale，一步就追回大半損失。花位元之前，先問後端支不支援 per-channel；兩者也可以並用。
#
# ## 在沒看過的圖片上再量一次
#
# 到這裡為止，層是照前 1,000 張圖片的結果挑的，同一批圖片的準確率就偏樂觀：挑出來的，多少有運氣的成分。所以用留到最後的 1,000
# 張，做配對比較（[M05-1](1_evaluate.py)）；區間包含 0，就不說誰好：

# %% [markdown] lang="en"
# The chart shows something else: per-channel takes a few hundred bytes of scales and gets most of the way in one step.
# Before you spend bits, ask whether your backend can do per-channel; the two also combine.
#
# ## Measure again, on images not seen before
#
# So far we chose layers by the first 1,000 images, so accuracy on those is optimistic: whatever was chosen owes something
# to luck. Therefore the other 1,000 come out now, for a paired comparison ([M05-1](1_evaluate.py)). If the interval
# contains 0, neither is called better:

# %%
contestants = {
    "fp32": model,
    "4-bit": steps[0],
    "mixed 1": steps[1],
    "mixed 3": steps[3],
    "per-channel": per_channel[0],
    "per-channel, mixed 1": per_channel[1],
}
right = {name: is_right(gm, *kept_back) for name, gm in contestants.items()}
compared = [
    ("4-bit", "mixed 1"),
    ("mixed 1", "mixed 3"),
    ("mixed 3", "fp32"),
    ("per-channel", "per-channel, mixed 1"),
    ("per-channel, mixed 1", "mixed 3"),
]
results = {
    (before, after): paired_interval(right[before], right[after])
    for before, after in compared
}
assert results["4-bit", "mixed 1"].verdict == "better", "no gain on new images"
assert results["mixed 1", "mixed 3"].verdict == "better", "no gain beyond one"

# %% tags=["plot"]
NAMES = {
    "fp32": "fp32",
    "4-bit": T(zh="全部 4 位元", en="all 4-bit"),
    "mixed 1": T(zh="stem 8 位元", en="stem at 8 bits"),
    "mixed 3": T(zh="三個單位 8 位元", en="three units at 8 bits"),
    "per-channel": T(zh="per-channel 4 位元", en="per-channel 4-bit"),
    "per-channel, mixed 1": T(
        zh="per-channel，stem 8 位元", en="per-channel, stem at 8 bits"
    ),
}
BYTES = {
    "fp32": 4 * sum(n for n, _ in sizes.values()),
    "4-bit": step_bytes[0],
    "mixed 1": step_bytes[1],
    "mixed 3": step_bytes[3],
    "per-channel": per_channel_bytes[0],
    "per-channel, mixed 1": per_channel_bytes[1],
}
VERDICTS = {
    "better": T(zh="後者較好", en="the second is better"),
    "worse": T(zh="後者較差", en="the second is worse"),
    "unclear": T(zh="分不出高下", en="no difference shown"),
}


def comparison_rows(results):
    """A row of the table for each (before, after): PairedInterval."""
    return [
        [
            NAMES[before],
            NAMES[after],
            f"{BYTES[before]:,} → {BYTES[after]:,}",
            in_points(found.change),
            interval_in_points(found.low, found.high),
            VERDICTS[found.verdict],
        ]
        for (before, after), found in results.items()
    ]


table(
    comparison_rows(results),
    [
        T(zh="前者", en="first"),
        T(zh="後者", en="second"),
        T(zh="weight（byte）", en="weights (bytes)"),
        T(zh="準確率的變化", en="change in accuracy"),
        T(zh="95% 區間", en="95% interval"),
        T(zh="結論", en="verdict"),
    ],
    caption=T(
        zh=f"留到最後的 1,000 張圖片，變化與區間的單位是百分點。那裡 fp32 的準確率是 {accuracy(model, *kept_back):.1%}。",
        en=f"On the 1,000 images kept back, changes and intervals in percentage points. There, fp32 has an accuracy of {accuracy(model, *kept_back):.1%}.",
    ),
)

# %% [markdown] lang="zh"
# 最後一列比的是兩種花記憶體的辦法：per-channel 只給 stem 8 位元，或 per-tensor 給三個單位。準確率的結論要和記憶體一起看。

# %% [markdown] lang="en"
# The last row compares two ways to spend memory: per-channel with 8 bits for the stem only, or per-tensor with 8 bits for
# three units. Read its verdict on accuracy together with the bytes.

# %% [markdown] lang="zh"
# ## 小結
#
# - 敏感度用準確率量：「只量化一個」看誰自己就出事，「只放過一個」看改了誰有用。損失不能相加。
# - SQNR 低的地方是誤差現形的地方；一個大 channel 會替其他 channel 遮掩。兩者說法不同時，照準確率改。
# - 混合精度是兩個各管各的 quantizer；這裡最敏感的層剛好很小，8 位元花不了多少。
# - 先試 per-channel，再花位元。
# - 挑選與驗收用不同的圖片，差距附上區間。

# %% [markdown] lang="en"
# ## Recap
#
# - Measure sensitivity by accuracy: only one quantized shows who fails alone, only one spared shows whose change helps.
#   Losses don't add up.
# - Low SQNR is where an error shows, and one large channel can cover for the others. When the two disagree, change what
#   accuracy says.
# - Mixed precision is two quantizers, each with units of its own. Here the most sensitive layer is a small one, so 8 bits
#   for it cost little.
# - Try per-channel first, then spend bits.
# - Choose and verify on different images, and give the difference an interval.

# %% [markdown] lang="zh"
# ## 試試看
#
# 放大過的模型（`rescaled_program`，int8 per-tensor）只准讓**一層**的 weight 改用 per-channel，其他維持原樣，也不准留 fp32。該選哪一
# 層？改好之後，在留到最後的圖片上證明它比原來好。

# %% [markdown] lang="en"
# ## Try it
#
# In the rescaled model (`rescaled_program`, int8 per-tensor) you may switch **one** layer's weight to per-channel. The rest
# stays as it is, and nothing may stay in fp32. Which layer do you pick? Then prove on the images kept back that it is
# better than before.


# %% tags=["solution"]
def one_per_channel(unit):
    others = [other for other in UNITS if other != unit]
    return ComposableQuantizer(
        [quantizer_for([unit], is_per_channel=True), quantizer_for(others)]
    )


mended = {
    unit: quantize(rescaled_program, one_per_channel(unit))
    for unit in ("block.conv1", "block.conv2")
}
before_mending = is_right(rescaled_int8, *kept_back)
for unit, gm in mended.items():
    gain = paired_interval(before_mending, is_right(gm, *kept_back))
    low, high = in_points(gain.low), in_points(gain.high)
    print(f"{unit}: {in_points(gain.change)} points [{low}, {high}]")
    if unit == "block.conv1":
        assert gain.low > 0.1, "per-channel for conv1 did not help"

# %% [markdown] lang="zh" tags=["solution"]
# 選 `block.conv1`，敏感度早就說了。它放大的是一個**輸出** channel，per-channel 正好把輸出 channel 分開；`block.conv2` 縮小的是**輸
# 入** channel，per-channel 幫不上忙。

# %% [markdown] lang="en" tags=["solution"]
# Pick `block.conv1`, as sensitivity said all along. What was enlarged there is an **output** channel, and output channels
# are what per-channel keeps apart. In `block.conv2` an **input** channel was reduced, where per-channel is no help.

# %% [markdown] lang="zh"
# ## 接下來
#
# M05 到此結束。位元再少、換層也救不回來時，就讓模型在訓練中適應：[M06](../m06_qat/0_overview.py)。同樣的工具用在真實模型上，在
# [M10-3](../m10_real_model/3_diagnose.py)。回到 [M05 概覽](0_overview.py)。

# %% [markdown] lang="en"
# ## Next
#
# This concludes M05. When bits are so few that no choice of layers saves the model, let it adapt during training:
# [M06](../m06_qat/0_overview.py). The same tools at work on a real model are in
# [M10-3](../m10_real_model/3_diagnose.py). Back to the [M05 overview](0_overview.py).
