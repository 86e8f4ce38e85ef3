# %% [markdown] lang="zh"
# # M04 概覽 | BN 到哪裡去了
#
# TinyConvNet 的每個 conv 後面都有一個 BN（BatchNorm，批次正規化），量化之後的圖上卻一個都找不到。
# [M01](../m01_first_ptq/0_overview.py) 只說「折進 conv 了」，這一章把帳算清楚：數值為什麼不變、PTQ（訓練後量化）與
# QAT（量化感知訓練）各在什麼時候折、什麼時候會折錯而沒有任何訊息。
#
# | 問題 | 一句話的答案 | 頁 |
# | --- | --- | --- |
# | BN 怎麼能消失，結果卻不變？ | 推論時它只是每個 channel 乘一個數、加一個數，可以併進前面 conv 的 weight 與 bias | 本頁 |
# | PTQ 什麼時候折？會不會折錯？ | `prepare_pt2e` 一開始就折，不問 quantizer；不檢查 conv 的輸出有沒有別人用，折錯了也沒有任何訊息 | [M04-1](1_ptq_folding.py) |
# | QAT 時 BN 還在變，要怎麼對折好的 weight 做 fake quant？ | 圖上先把 weight 乘上 BN 的倍數，過 fake quant，再除回來；convert 才真的折 | [M04-2](2_qat_conv_bn.py) |
# | 匯出的圖怎麼在 train 與 eval 之間切換？ | `move_exported_model_to_eval` 與 `move_exported_model_to_train` 改寫圖上的 BN 與 dropout；單靠 `.eval()` 不行 | [M04-3](3_train_eval.py) |
#
# **讀完你會知道**
#
# - 折疊的公式怎麼來，怎麼用幾行程式驗算
# - 折疊後哪些參數消失、哪些是新的
# - 為什麼數值只差捨入，而這個差和 int8 的一格比起來有多小
# - 折進去的是誰的統計量，為什麼不能是當下那個 batch 的

# %% [markdown] lang="en"
# # M04 Overview | Where does BN go?
#
# In TinyConvNet every convolution is followed by BN (batch normalization), and yet a quantized graph has none left.
# [M01](../m01_first_ptq/0_overview.py) merely said that it was folded into the convolution. This chapter does the
# accounting: why the result stays the same, when PTQ (post-training quantization) and QAT (quantization-aware training)
# fold, and when folding goes wrong without a word.
#
# | Question | Answer in one line | Page |
# | --- | --- | --- |
# | How can BN disappear and the result stay? | At inference it multiplies each channel by one number and adds another, which can move into the weight and bias of the convolution before it | this page |
# | When does PTQ fold, and can it go wrong? | First thing in `prepare_pt2e`, whatever the quantizer; nobody checks whether something else uses the convolution's output, so it can go wrong silently | [M04-1](1_ptq_folding.py) |
# | In QAT, BN still changes. How can fake quant see the folded weight? | The graph multiplies the weight by BN's factor, applies fake quant, and divides the factor out again; only convert really folds | [M04-2](2_qat_conv_bn.py) |
# | How does an exported graph change between train and eval? | `move_exported_model_to_eval` and `move_exported_model_to_train` rewrite BN and dropout in the graph; `.eval()` alone won't do | [M04-3](3_train_eval.py) |
#
# **What you will know**
#
# - Where the folding formula comes from, and how to check it in a few lines
# - Which parameters folding removes, and which are new
# - Why the values differ by rounding only, and how little that is next to one int8 step
# - Whose statistics get folded in, and why it can't be those of the batch at hand

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 一個 3 → 16、3×3、沒有 bias 的 conv，後面接 BN。折疊之後一共有幾個參數？
# 2. 用 float32 折疊，輸出和原來逐位元相同嗎？
# 3. 同一張圖片，換一批同伴再送進模型。eval 模式的輸出會變嗎？train 模式呢？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. A 3×3 convolution from 3 to 16 channels, without a bias, is followed by BN. How many parameters are there after
#    folding?
# 2. Folded in float32, is the output the same bit for bit?
# 3. The same image goes through the model again, in a batch with other images. Does its output change in eval mode? And
#    in train mode?

# %% tags=["setup"]
import copy
from collections import OrderedDict

from common.data import test_data, train_data
from common.env import quiet
from common.models import trained_tinyconvnet
from common.viz import T, graph, say, show, table

import matplotlib.pyplot as plt
import torch
from torch import nn

quiet()

# %% [markdown] lang="zh"
# ## eval 模式的 BN：乘一個數，加一個數
#
# 設 conv 在 channel $c$ 的輸出是 $z_c$。eval 模式的 BN 減去平均、除以標準差，再乘 $\gamma_c$（`bn.weight`）、加
# $\beta_c$（`bn.bias`）：
#
# $$y_c = \gamma_c\,\frac{z_c - \mu_c}{\sqrt{\sigma_c^2 + \varepsilon}} + \beta_c \tag{1}$$
#
# $\mu_c$ 與 $\sigma_c^2$ 是訓練時累積下來的 `running_mean` 與 `running_var`，$\varepsilon$ 是防止除以 0 的小常數
# `eps`。推論時它們全都不變，所以可以整理成一個倍數 $a_c$ 和一個位移 $d_c$：
#
# $$y_c = a_c z_c + d_c,\qquad a_c = \frac{\gamma_c}{\sqrt{\sigma_c^2 + \varepsilon}},\qquad d_c = \beta_c - a_c\mu_c \tag{2}$$
#
# 用訓練好的 TinyConvNet 的第一組 conv 與 BN 驗算。先用 float64，免得捨入混進來：

# %% [markdown] lang="en"
# ## BN in eval mode: multiply by a number, add a number
#
# Let $z_c$ be the output of the convolution in channel $c$. In eval mode BN subtracts a mean, divides by a standard
# deviation, then multiplies by $\gamma_c$ (`bn.weight`) and adds $\beta_c$ (`bn.bias`):
#
# $$y_c = \gamma_c\,\frac{z_c - \mu_c}{\sqrt{\sigma_c^2 + \varepsilon}} + \beta_c \tag{1}$$
#
# $\mu_c$ and $\sigma_c^2$ are `running_mean` and `running_var`, accumulated during training; $\varepsilon$ is `eps`, a
# small constant against division by 0. At inference all of them are constants, so they boil down to one factor $a_c$
# and one offset $d_c$:
#
# $$y_c = a_c z_c + d_c,\qquad a_c = \frac{\gamma_c}{\sqrt{\sigma_c^2 + \varepsilon}},\qquad d_c = \beta_c - a_c\mu_c \tag{2}$$
#
# We check this on the first convolution and BN of the trained TinyConvNet, in float64 to keep rounding out of it:


# %%
@torch.no_grad()
def factor_and_offset(bn):
    """(a, d) of formula (2), one of each per channel."""
    a = bn.weight / torch.sqrt(bn.running_var + bn.eps)
    return a, bn.bias - a * bn.running_mean


def relative_error(found, expected):
    """The largest difference, relative to the largest expected value."""
    return ((found - expected).abs().max() / expected.abs().max()).item()


# %%
model = trained_tinyconvnet()  # in eval mode
images, labels = test_data()
conv = copy.deepcopy(model.stem_conv).double()
bn = copy.deepcopy(model.stem_bn).double()

a, d = factor_and_offset(bn)
with torch.no_grad():
    z = conv(images[:64].double())  # (64, 16, 16, 16): channels are dim 1
    y = bn(z)
by_hand = a.view(1, -1, 1, 1) * z + d.view(1, -1, 1, 1)
assert relative_error(by_hand, y) < 1e-12, "BN is not formula (2)"

# %% [markdown] lang="zh"
# ## 併進 conv
#
# conv 對 weight 是線性的：weight 乘以 $a_c$，輸出就乘以 $a_c$。所以 $z_c = W_c * x + b_c$ 代進式 (2)，
#
# $$y_c = \underbrace{(a_c W_c)}_{\text{weight}} * x + \underbrace{(a_c b_c + d_c)}_{\text{bias}} \tag{3}$$
#
# 又是一個 conv，只是換了 weight 與 bias。為什麼要費這個工夫？因為後端的 int8 kernel 是 conv 加 bias，再加
# relu（[M01-0](../m01_first_ptq/0_overview.py) 的式 (4)），裡面沒有 BN 的位置。BN 若留在圖上，就得先把 conv 的輸出存下
# 來，存成 int8 便多捨入一次，BN 也得另外算。

# %% [markdown] lang="en"
# ## Into the convolution
#
# A convolution is linear in its weight: multiply the weight by $a_c$, and the output is multiplied by $a_c$. So with
# $z_c = W_c * x + b_c$, formula (2) becomes
#
# $$y_c = \underbrace{(a_c W_c)}_{\text{weight}} * x + \underbrace{(a_c b_c + d_c)}_{\text{bias}} \tag{3}$$
#
# which is a convolution again, with another weight and bias. Why take the trouble? Because a backend's int8 kernel is a
# convolution with bias and ReLU (formula (4) of [M01-0](../m01_first_ptq/0_overview.py)) and has no room for BN. If BN
# stayed in the graph, the output of the convolution would have to be stored first, which as int8 rounds once more, and
# BN would be computed separately.


# %%
@torch.no_grad()
def fold(conv, bn):
    """(weight, bias) of formula (3)."""
    a, d = factor_and_offset(bn)
    b = 0 if conv.bias is None else conv.bias
    return a.view(-1, 1, 1, 1) * conv.weight, a * b + d


weight, bias = fold(conv, bn)
folded = nn.functional.conv2d(images[:64].double(), weight, bias, padding=1)
assert relative_error(folded, y) < 1e-12, "formula (3) does not hold"

before = conv.weight.numel() + bn.weight.numel() + bn.bias.numel()
after = weight.numel() + bias.numel()
assert (before, after) == (432 + 16 + 16, 432 + 16), (before, after)

# %% [markdown] lang="zh"
# 預測 1 的答案在最後一行：432 個 weight 加上 16 個**新的 bias**，一共 448。$\gamma$、$\beta$ 這 32 個參數不見了，
# `running_mean`、`running_var` 也是。conv 原本沒有 bias，$d_c$ 總得有個去處，所以 bias 是多出來的。
#
# ## float32：只差捨入
#
# 式 (3) 對實數是恆等式，電腦算的卻是浮點數：先乘進 weight 再加總，和先加總再乘，捨入的地方不同。用 TinyConvNet 的四組
# conv 與 BN，加上一組有 bias 的，餵隨機輸入，兩種精度各比一次：

# %% [markdown] lang="en"
# The last line answers prediction 1: 432 weights and 16 **new biases**, 448 in all. The 32 parameters $\gamma$ and
# $\beta$ are gone, and so are `running_mean` and `running_var`. The convolution had no bias, but $d_c$ has to go
# somewhere, which is why there is one now.
#
# ## float32: nothing but rounding
#
# For real numbers (3) is an identity, but a computer has floating-point numbers, and multiplying the weight before
# summing doesn't round in the same places as summing first and multiplying then. We take the four pairs of convolution
# and BN in TinyConvNet, and one with a bias, feed them random inputs, and compare in both precisions:

# %%
torch.manual_seed(0)
pairs = {
    "stem": (model.stem_conv, model.stem_bn),
    "block 1": (model.block.conv1, model.block.bn1),
    "block 2": (model.block.conv2, model.block.bn2),
    "head": (model.head_conv, model.head_bn),
    "with bias": (nn.Conv2d(3, 16, 3, padding=1), model.stem_bn),
}
errors, differing = {}, {}  # pair -> relative error; share of unequal values
for name, pair in pairs.items():
    x = torch.randn(16, pair[0].in_channels, 16, 16)
    for dtype in (torch.float64, torch.float32):
        conv, bn = (copy.deepcopy(module).to(dtype) for module in pair)
        with torch.no_grad():
            expected = bn(conv(x.to(dtype)))
            conv.weight, conv.bias = map(nn.Parameter, fold(conv, bn))
            found = conv(x.to(dtype))
        errors[name, dtype] = relative_error(found, expected)
        differing[name, dtype] = (found != expected).float().mean().item()

# %%
half_step = 1 / 255 / 2  # int8, when the range is just the largest value
for (name, dtype), error in errors.items():
    limit = 1e-12 if dtype == torch.float64 else half_step / 100
    assert error < limit, f"{name}, {dtype}: more than rounding, {error:.1e}"
    assert differing[name, dtype] > 0, f"{name}, {dtype}: bit for bit the same"

# %% tags=["plot"]
table(
    [
        [
            T(zh="有 bias 的 conv", en="a conv with bias")
            if name == "with bias"
            else name,
            f"{errors[name, torch.float64]:.1e}",
            f"{errors[name, torch.float32]:.1e}",
            f"{differing[name, torch.float32]:.0%}",
        ]
        for name in pairs
    ],
    [
        T(zh="conv 與 BN", en="conv and BN"),
        T(zh="誤差，float64", en="error, float64"),
        T(zh="誤差，float32", en="error, float32"),
        T(zh="不同的輸出值，float32", en="values that differ, float32"),
    ],
    caption=T(
        zh="折疊前後輸出的最大差，除以輸出的最大絕對值；以及 float32 有多少輸出值不是逐位元相同。",
        en="The largest difference that folding makes to the output, divided by the output's largest absolute value; "
        "and how many values are not the same bit for bit in float32.",
    ),
)
worst = max(errors[name, torch.float32] for name in pairs)
say(
    T(
        zh=f"int8 的半格，相對於同樣的最大值至少是 {half_step:.1e}，是上表 float32 最大誤差的 {half_step / worst:,.0f} 倍。",
        en=f"Half a step of int8, relative to that same largest value, is at least {half_step:.1e}, "
        f"or {half_step / worst:,.0f} times the largest float32 error in the table.",
    )
)

# %% [markdown] lang="zh"
# 預測 2 的答案：不會逐位元相同，但差的只是捨入，比 int8 的半格小好幾個數量級。所以檢查折疊時不要用 `torch.equal`，要留一
# 點餘裕；差到半格那麼大，就是折錯了。
#
# ## 讓 torchao 來折
#
# 折疊不需要 quantizer。下面的 quantizer 什麼都不標註，`prepare_pt2e` 於是一個 observer 都不插，剩下的就只有折疊：

# %% [markdown] lang="en"
# Prediction 2: not bit for bit, but the difference is rounding, orders of magnitude below half a step of int8. So when
# you check a folding, leave some room instead of using `torch.equal`; a difference as large as half a step is a folding
# gone wrong.
#
# ## Let torchao do it
#
# Folding needs no quantizer. The one below annotates nothing, so `prepare_pt2e` inserts no observer, and what remains is
# the folding:

# %%
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e
from torchao.quantization.pt2e.quantizer import Quantizer


class AnnotateNothing(Quantizer):
    def annotate(self, gm):
        return gm

    def validate(self, gm):
        pass


def export(model):
    """The graph of `model`, for any batch size."""
    batch = torch.export.Dim("batch", min=1, max=4096)
    shapes = ({0: batch},)
    program = torch.export.export(model, (images[:2],), dynamic_shapes=shapes)
    return program.module()


# %%
small = nn.Sequential(
    OrderedDict(conv=model.stem_conv, bn=model.stem_bn, relu=nn.ReLU())
).eval()
exported = export(small)
after_export = copy.deepcopy(exported)  # to draw it: prepare edits it
prepared = prepare_pt2e(exported, AnnotateNothing())

# %%
weight, bias = fold(model.stem_conv, model.stem_bn)  # in float32
parameters = dict(prepared.named_parameters())
assert set(parameters) == {"conv.weight", "conv.weight_bias"}, parameters.keys()
by_torchao = parameters["conv.weight"], parameters["conv.weight_bias"]
for theirs, ours in zip(by_torchao, (weight, bias), strict=True):
    assert relative_error(theirs, ours) < 1e-6, "not what formula (3) says"
with torch.no_grad():
    assert relative_error(prepared(images), small(images)) < half_step / 100

# %% tags=["plot"]
graph(
    [
        (T(zh="export 之後", en="After export"), after_export),
        (T(zh="prepare 之後", en="After prepare"), prepared),
    ],
    alt=T(
        zh="之前：input_1 經過 conv2d、batch_norm、relu 到輸出，batch_norm 的框裡有四個 tensor。"
        "之後：batch_norm 不見了，conv2d 的框裡除了 weight，多了一個 bias。",
        en="Before: input_1 goes through conv2d, batch_norm and relu to the output, and the box of batch_norm holds four tensors. "
        "After: batch_norm is gone, and the box of conv2d holds a bias next to its weight.",
    ),
    caption=T(
        zh="同一張圖，折疊之前與之後。‹…› 是參數，batch_norm 的四個是 γ、β、running_mean、running_var；新的 bias 叫 conv.weight_bias。",
        en="One graph before and after folding. ‹…› are parameters, the four of batch_norm being γ, β, running_mean and running_var; the new bias is called conv.weight_bias.",
    ),
)

# %% [markdown] lang="zh"
# 和手算的一樣。新參數的名字是 weight 的名字加上 `_bias`（torchao 0.18.0，`pt2e/utils.py`），在
# [M04-1](1_ptq_folding.py) 還會遇到。
#
# ## 為什麼只能用 eval 的統計量
#
# 式 (2) 的 $\mu_c$、$\sigma_c^2$ 要是常數，才有 $a_c$、$d_c$ 可以折。train 模式的 BN 用的卻是**當下這個 batch** 的平均與
# 變異數，同一張圖片的輸出要看它的同伴是誰：

# %% [markdown] lang="en"
# The same as by hand. The new parameter's name is that of the weight with `_bias` appended (torchao 0.18.0,
# `pt2e/utils.py`); you will meet it again in [M04-1](1_ptq_folding.py).
#
# ## Why it takes the statistics of eval mode
#
# Only if $\mu_c$ and $\sigma_c^2$ are constants are there an $a_c$ and a $d_c$ to fold. In train mode BN uses the mean
# and variance of **the batch at hand**, and the output for an image depends on what else is in the batch:

# %%
one_batch = images[:8]
another = torch.cat([images[:1], images[8:15]])  # same first image

change = {}  # mode -> how much the output for the first image changes
for mode in ("eval", "train"):
    gm = copy.deepcopy(small).train(mode == "train")
    with torch.no_grad():
        change[mode] = relative_error(gm(another)[0], gm(one_batch)[0])
assert change["eval"] < 1e-5, "the other images matter in eval mode"
assert change["train"] > 0.01, "the other images don't matter in train mode"

# %% [markdown] lang="zh"
# 這是預測 3 的答案：eval 不變，train 會變。那麼每個 batch「自己的」倍數差多少？把式 (2) 的 $\sigma_c^2$ 換成一個 batch 的
# 變異數，除以用 `running_var` 算的 $a_c$，每個 batch size 取 16 個 batch、16 個 channel：

# %% [markdown] lang="en"
# That answers prediction 3: no in eval mode, yes in train mode. Then how different are the factors that each batch would
# ask for? We put the variance of one batch in place of $\sigma_c^2$ in (2) and divide by the $a_c$ that `running_var`
# gives, for 16 batches of each size and all 16 channels:

# %%
with torch.no_grad():
    z = model.stem_conv(train_data()[0][:2048])
bn = model.stem_bn
a, _ = factor_and_offset(bn)

ratios = {}  # batch size -> (16 batches, 16 channels)
for size in (2, 8, 32, 128):
    batches = z.split(size)[:16]
    variances = torch.stack([b.var(dim=(0, 2, 3)) for b in batches])
    of_batch = bn.weight.detach() / torch.sqrt(variances + bn.eps)
    ratios[size] = of_batch / a
spread = {size: ratio.std().item() for size, ratio in ratios.items()}
assert spread[2] > 3 * spread[128], f"larger batches don't help: {spread}"
assert (ratios[128].mean() - 1).abs() < 0.05, "running_var isn't the average"

# %% tags=["plot"]
figure, axes = plt.subplots()
for column, ratio in enumerate(ratios.values()):
    values = ratio.flatten().sort().values
    across = torch.linspace(-0.3, 0.3, len(values)) + column
    axes.plot(across, values, "o", color="C0", markersize=2)
axes.axhline(1, color="black", linestyle="--", label="folded: running_var")
axes.set_xticks(range(len(ratios)), ratios)
axes.set(xlabel="batch size", ylabel="factor of a batch / factor folded")
axes.legend(loc="upper right")
show(
    figure,
    alt=T(
        zh="batch size 2、8、32、128 各一排點，縱軸是 batch 自己的倍數除以折進去的倍數。2 的點散得最開，128 的點緊貼在 1 的虛線上。",
        en="A row of dots for each of the batch sizes 2, 8, 32 and 128, showing the batch's own factor over the factor folded in. "
        "The dots for 2 scatter most widely; those for 128 hug the dashed line at 1.",
    ),
    caption=T(
        zh="每個點是一個 batch 的一個 channel，依大小排開。虛線是折進 weight 的那個倍數。",
        en="Each dot is one channel of one batch, in order of size. The dashed line is the factor that goes into the weight.",
    ),
)
say(
    T(
        zh=f"batch size 2 的倍數有 {spread[2]:.0%} 的標準差，128 只有 {spread[128]:.1%}。",
        en=f"At batch size 2 the factor has a standard deviation of {spread[2]:.0%}, at 128 only {spread[128]:.1%}.",
    )
)

# %% [markdown] lang="zh"
# batch 愈大，各自的統計量愈接近累積的那一份。折疊選的是累積的：一個固定的數，代表整份訓練資料。QAT 的難處也在這裡：訓練
# 中 BN 每個 batch 都不同，沒有一個定下來的 $a_c$ 可折，[M04-2](2_qat_conv_bn.py) 會看 torchao 的解法。
#
# 折疊**不檢查**統計量好不好，也不看匯出時是什麼模式。把統計量清掉（回到平均 0、變異數 1），或用 train 模式匯出，它都照
# 折：

# %% [markdown] lang="en"
# The larger the batch, the closer its statistics are to the accumulated ones. Those are what folding takes: one fixed
# number that stands for all the training data. It is also what makes QAT hard: while training, BN is different in every
# batch, and no $a_c$ is settled enough to be folded. [M04-2](2_qat_conv_bn.py) shows how torchao gets around that.
#
# Folding **doesn't check** the statistics, nor in which mode the model was exported. Clear the statistics (back to mean 0
# and variance 1) or export in train mode, and it folds just the same:


# %%
@torch.no_grad()
def logits(model):
    return torch.cat([model(part) for part in images.split(100)])


def folded_whole(model):
    return prepare_pt2e(export(model), AnnotateNothing())


cleared = copy.deepcopy(model)
for module in cleared.modules():
    if isinstance(module, nn.BatchNorm2d):
        module.reset_running_stats()
training = copy.deepcopy(model).train()

# %%
outputs = {
    "trained": (logits(model), logits(folded_whole(model))),
    "cleared": (logits(cleared), logits(folded_whole(cleared))),
    # the eval model on the left: this one exports another in train mode
    "train mode": (logits(model), logits(folded_whole(training))),
}
accuracy = {}
for name, (expected, found) in outputs.items():
    assert relative_error(found, expected) < half_step / 100, name
    accuracy[name] = (found.argmax(1) == labels).float().mean().item()
assert accuracy["cleared"] < accuracy["trained"] - 0.2, accuracy

# %% tags=["plot"]
names = {
    "trained": T(
        zh="訓練好的統計量，eval 模式匯出",
        en="trained statistics, exported in eval mode",
    ),
    "cleared": T(
        zh="統計量被清掉，eval 模式匯出",
        en="statistics cleared, exported in eval mode",
    ),
    "train mode": T(
        zh="訓練好的統計量，train 模式匯出",
        en="trained statistics, exported in train mode",
    ),
}
table(
    [[names[name], f"{accuracy[name]:.2%}"] for name in outputs],
    [
        T(zh="折疊的模型", en="model that was folded"),
        T(zh="折疊後的準確率", en="accuracy after folding"),
    ],
)

# %%
bn_last = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.BatchNorm2d(16))
graph_left = folded_whole(bn_last.train()).graph  # ReLU is in the way
(bn_left,) = graph_left.find_nodes(
    op="call_function", target=torch.ops.aten.batch_norm.default
)
training_argument = bn_left.args[5]
assert training_argument is True, "a BN that stays is in eval mode"

# %% [markdown] lang="zh"
# 第二列的折疊沒有錯，它忠實地折進了沒有用的統計量。第三列也「對」：折疊一律用 running 統計量，結果就是 eval 模式的模型。但
# 能折的才這樣：最後一段程式的 BN 前面是 relu，折不了，留在圖上仍是 train 模式。所以 **PTQ 一律先 `.eval()` 再匯出**；
# dropout 也是同樣的道理，細節在 [M04-3](3_train_eval.py)。

# %% [markdown] lang="en"
# In the second row folding did nothing wrong; it faithfully folded useless statistics. The third is "right", too: folding
# always takes the running statistics, which gives the model in eval mode. But that holds for a BN that can be folded:
# the one in the last lines of code comes after ReLU, can't, and stays in the graph in train mode. So **for PTQ, call
# `.eval()` before you export**; the same goes for dropout, see [M04-3](3_train_eval.py).

# %% [markdown] lang="zh"
# ## 名詞
#
# | 名詞 | 是什麼 |
# | --- | --- |
# | BN | BatchNorm：逐 channel 減平均、除標準差，再乘 $\gamma$、加 $\beta$ |
# | $\gamma$、$\beta$ | BN 訓練出來的參數，`bn.weight` 與 `bn.bias` |
# | running 統計量 | `running_mean` 與 `running_var`：訓練時用移動平均累積，eval 模式使用，是 buffer，不是參數 |
# | batch 統計量 | 當下這個 batch 的平均與變異數，train 模式使用 |
# | $\varepsilon$ | `eps`，加在變異數上的小常數，預設 1e-5 |
# | BN 折疊 | 把式 (2) 的乘與加併進前一層的 weight 與 bias |
# | $a_c$、$d_c$ | 本章對折進去的倍數與位移的稱呼 |
#
# 全部的名詞在[詞彙表](../glossary.md)。

# %% [markdown] lang="en"
# ## Terms
#
# | Term | What it is |
# | --- | --- |
# | BN | batch normalization: for each channel, subtract a mean, divide by a standard deviation, multiply by $\gamma$, add $\beta$ |
# | $\gamma$, $\beta$ | the trained parameters of BN, `bn.weight` and `bn.bias` |
# | running statistics | `running_mean` and `running_var`: accumulated during training as a moving average and used in eval mode; buffers, not parameters |
# | batch statistics | mean and variance of the batch at hand, used in train mode |
# | $\varepsilon$ | `eps`, a small constant added to the variance, 1e-5 by default |
# | BN folding | moving the multiplication and addition of (2) into the weight and bias of the layer before |
# | $a_c$, $d_c$ | what this chapter calls the factor and the offset that are folded in |
#
# All terms are in the [glossary](../glossary.md).

# %% [markdown] lang="zh"
# ## 小結
#
# - eval 模式的 BN 是每個 channel 乘 $a_c$、加 $d_c$；conv 是線性的，所以兩者可以併成一個 conv。
# - 折疊後 $\gamma$、$\beta$ 與 running 統計量都不見了；沒有 bias 的 conv 會多一個 bias。
# - 折疊前後只差捨入，遠小於 int8 的半格；差得多就是折錯了。
# - 折進去的是 running 統計量。它們好不好、模型在什麼模式，折疊都不管。

# %% [markdown] lang="en"
# ## Recap
#
# - In eval mode BN multiplies each channel by $a_c$ and adds $d_c$; a convolution is linear, so the two make one
#   convolution.
# - After folding, $\gamma$, $\beta$ and the running statistics are gone; a convolution without a bias gets one.
# - Folding changes values by rounding only, far less than half a step of int8; if it is more, folding went wrong.
# - What gets folded in are the running statistics. Whether they are any good, or which mode the model is in, folding
#   doesn't ask.

# %% [markdown] lang="zh"
# ## 試試看：BN 在 conv 前面
#
# 有些網路的順序是 BN → conv。$a$ 與 $d$ 這時乘、加在 conv 的**輸入** channel 上。推導出 weight 與 bias，驗算 `padding=0`
# 的 conv；再換成 `padding=1`，看看錯在輸出的哪些位置，為什麼。

# %% [markdown] lang="en"
# ## Try it: BN before the convolution
#
# Some networks have BN → conv. Now $a$ and $d$ apply to the **input** channels of the convolution. Derive the weight and
# the bias and check them for a convolution with `padding=0`. Then make it `padding=1`: where in the output are the
# errors, and why?

# %% tags=["solution"]
conv1, bn = model.block.conv1, model.stem_bn
a, d = factor_and_offset(bn)
weight = conv1.weight.detach() * a.view(1, -1, 1, 1)
bias = (conv1.weight.detach() * d.view(1, -1, 1, 1)).sum(dim=(1, 2, 3))

x = torch.randn(8, 16, 16, 16)
wrong = {}  # padding -> error at each position of the output
for padding in (0, 1):
    with torch.no_grad():
        expected = nn.functional.conv2d(bn(x), conv1.weight, padding=padding)
    found = nn.functional.conv2d(x, weight, bias, padding=padding)
    off = (found - expected).abs() / expected.abs().max()
    wrong[padding] = off.amax(dim=(0, 1))  # (height, width)
inside = wrong[1][1:-1, 1:-1].max()
assert wrong[0].max() < 1e-5 and inside < 1e-5, "wrong inside"
assert wrong[1].max() > 0.01, "right at the border"
print(f"padding=0: {wrong[0].max():.0e}")
print(f"padding=1: {inside:.0e} inside, {wrong[1].max():.0e} at the border")

# %% [markdown] lang="zh" tags=["solution"]
# weight 乘的是輸入 channel 的 $a$，bias 是 $\sum W d$，對 weight 所有位置加總。`padding=1` 時，conv 在 BN **之後**補 0；折
# 疊之後補在 BN **之前**，邊界上補的 0 也被當成經過了 BN，多加了 $W d$。所以這個方向不能一概而論，`prepare_pt2e` 也不折
# BN → conv（[M04-1](1_ptq_folding.py) 的表）。

# %% [markdown] lang="en" tags=["solution"]
# The weight is multiplied by the $a$ of its input channel, and the bias is $\sum W d$ over all positions of the weight.
# With `padding=1`, the convolution pads zeros **after** BN; once folded, they are padded **before**, so zeros at the
# border count as if they had gone through BN, which adds $W d$ too often. This direction works only sometimes, and
# `prepare_pt2e` leaves BN → conv alone (see the table in [M04-1](1_ptq_folding.py)).

# %% [markdown] lang="zh"
# ## 本章地圖
#
# | 頁 | 做什麼 |
# | --- | --- |
# | [M04-1 PTQ 的折疊](1_ptq_folding.py) | `prepare_pt2e` 對圖做了什麼；折疊後各 channel 的範圍；折得到、折不到、折錯的情形，以及怎麼守住 |
# | [M04-2 QAT 的 conv-BN](2_qat_conv_bn.py) | 圖上的樣式，train 統計量的角色，convert 時的折疊；`eps`、`momentum` 被換掉的陷阱 |
# | [M04-3 train 與 eval](3_train_eval.py) | 切換匯出的圖，用「同一輸入送兩次」檢查；dropout |
#
# 這一章刻意跳過：LayerNorm、GroupNorm（推論時也用輸入自己的統計量，式 (2) 沒有常數可折）、量化之後重新估計 BN 統計量、多
# 機訓練的 SyncBatchNorm。QAT 的訓練過程在 [M06](../m06_qat/0_overview.py)。
#
# ## 參考資料
#
# - Ioffe、Szegedy，〈[Batch Normalization](https://arxiv.org/abs/1502.03167)〉，2015：式 (1) 出自這篇
# - Jacob 等人，〈[Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
#   Inference](https://arxiv.org/abs/1712.05877)〉，2018：3.2 節談 BN 折疊
# - torchao 0.18.0 原始碼：`torchao/quantization/pt2e/utils.py` 的 `_fuse_conv_bn_`；公式在 PyTorch 的
#   `torch/nn/utils/fusion.py`

# %% [markdown] lang="en"
# ## Map of the chapter
#
# | Page | What happens there |
# | --- | --- |
# | [M04-1 Folding in PTQ](1_ptq_folding.py) | what `prepare_pt2e` does to the graph; the channels' ranges after folding; what is folded, what isn't, what is folded wrong, and a guard |
# | [M04-2 Conv-BN in QAT](2_qat_conv_bn.py) | the pattern in the graph, the part of training statistics, folding at convert; how `eps` and `momentum` get replaced |
# | [M04-3 Train and eval](3_train_eval.py) | moving an exported graph between them, checked by sending one input twice; dropout |
#
# Left out on purpose: LayerNorm and GroupNorm (at inference, too, they use statistics of their input, so (2) has no
# constants to fold), re-estimating the statistics of BN after quantization, and SyncBatchNorm for training on several
# machines. The training itself is in [M06](../m06_qat/0_overview.py).
#
# ## References
#
# - Ioffe and Szegedy, "[Batch Normalization](https://arxiv.org/abs/1502.03167)", 2015: where (1) comes from
# - Jacob et al., "[Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
#   Inference](https://arxiv.org/abs/1712.05877)", 2018: section 3.2 is about folding
# - Source of torchao 0.18.0: `_fuse_conv_bn_` in `torchao/quantization/pt2e/utils.py`; the formula itself is in PyTorch's
#   `torch/nn/utils/fusion.py`
