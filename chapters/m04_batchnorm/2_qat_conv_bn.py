# %% [markdown] lang="zh"
# # M04-2 | QAT 的 conv-BN：fake quant 看到的是折疊後的 weight
#
# PTQ 的 BN（BatchNorm）已經定案，prepare 直接把它折進 conv（[M04-1](1_ptq_folding.py)）。QAT 的 BN 還在學：統計量每一步
# 都在變，折掉就學不了；可是部署的又是折疊後的 weight，所以 fake quant（[M02-2](../m02_observers/2_fake_quant.py)）該模擬
# 的是它。`prepare_qat_pt2e` 怎麼兩者都要，這一頁把它改寫出來的圖拆開來看。
#
# **讀完你會知道**
#
# - `prepare_qat_pt2e` 把 conv → BN 換成哪些 node，為什麼換了之後算的還是同一件事
# - fake quant 為什麼看 BN 的 running 統計量（running_mean、running_var），而不是這個 batch 的
# - convert 何時、怎麼折疊，結果和 PTQ 差在哪裡
# - 三個不出聲的陷阱，以及訓練前擋住它們的檢查

# %% [markdown] lang="en"
# # M04-2 | Conv-BN in QAT: the fake quant sees the folded weight
#
# In PTQ the BN (BatchNorm) is finished, so prepare simply folds it into the convolution ([M04-1](1_ptq_folding.py)). In
# QAT the BN is still learning: its statistics move with every step, and once folded it could not learn. Yet what gets
# deployed is the folded weight, so that is what a fake quant ([M02-2](../m02_observers/2_fake_quant.py)) should
# simulate. `prepare_qat_pt2e` manages both; this page takes apart the graph it makes.
#
# **What you will know**
#
# - Which nodes `prepare_qat_pt2e` puts in place of conv → BN, and why they still compute the same thing
# - Why the fake quant looks at BN's running statistics (running_mean, running_var) rather than at those of the batch
# - When and how convert folds, and how the result differs from PTQ's
# - Three silent traps, and a check before training that stops them

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 關掉 QAT 圖裡所有的 fake quant，訓練模式的輸出會和原模型一樣嗎？
# 2. 模型一步也不訓練，只是一批批資料流過。每換一批，要部署的整數 weight 會有多少個改變？
# 3. 有一個 channel 的 $\gamma$ 是 0（殘差網路常這樣初始化）。會怎樣？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. With every fake quant of the QAT graph switched off, is its output in training mode that of the original model?
# 2. The model isn't trained at all, data just passes through, batch by batch. From one batch to the next, how many of
#    the integer weights to be deployed change?
# 3. One channel has $\gamma = 0$, as residual networks are often initialized. What happens?

# %% tags=["setup"]
import copy
import itertools
from collections import OrderedDict

from common.data import calibration_batches
from common.env import quiet
from common.models import trained_tinyconvnet
from common.viz import T, graph, say, show, table

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

quiet()
aten = torch.ops.aten
batches = [images for (images,) in calibration_batches(1280, batch_size=32)]
images = batches[0]


def calls(gm, op):
    """The nodes of a graph that call `op`."""
    return gm.graph.find_nodes(op="call_function", target=op)


def close(found, expected):
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-4)


def fake_quants(gm):
    """The fake quants of a graph, by the name of the node they quantize."""
    return {
        node.args[0].name: gm.get_submodule(node.target)
        for node in gm.graph.nodes
        if node.op == "call_module" and "post_process" in node.target
    }


# %% [markdown] lang="zh"
# ## prepare 改寫了什麼
#
# 拿訓練好的 TinyConvNet 的開頭當例子：3 → 16 channel 的 conv（沒有 bias）、BN、relu。QAT 要在**訓練模式**下匯出，範例
# 輸入是一整批；留一份 `fp32` 的複本，因為匯出的圖和 `model` 共用參數與統計量。torchao 會替每一種 conv 找一遍 conv-BN，很花
# 時間；本課程的 `common.qat.conv2d_patterns_only` 讓它只找 conv2d 的，結果相同。

# %% [markdown] lang="en"
# ## What prepare rewrites
#
# Our example is the stem of a trained TinyConvNet: a convolution from 3 to 16 channels (without bias), BN, ReLU. For
# QAT we export in **training mode**, with a whole batch as the example input. We keep a copy as `fp32`, because the
# exported graph shares its parameters and statistics with `model`. torchao looks for conv-BN once for each kind of
# convolution, which takes its time; this course's `common.qat.conv2d_patterns_only` has it look for conv2d only, with
# the same result.

# %%
from common.qat import conv2d_patterns_only

from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantize_pt2e import (
    convert_pt2e,
    prepare_qat_pt2e,
)

net = trained_tinyconvnet()
layers = OrderedDict(conv=net.stem_conv, bn=net.stem_bn, relu=nn.ReLU())
model = nn.Sequential(layers).train()
fp32 = copy.deepcopy(model)

exported = torch.export.export(model, (images,)).module()
after_export = copy.deepcopy(exported)  # to draw it: prepare will edit it
config = get_symmetric_quantization_config(is_per_channel=True, is_qat=True)
quantizer = XNNPACKQuantizer().set_global(config)
with conv2d_patterns_only():
    prepared = prepare_qat_pt2e(exported, quantizer)

# %% tags=["plot"]
graph(
    [
        (
            T(zh="export 之後（訓練模式）", en="After export (training mode)"),
            after_export,
        ),
        (T(zh="prepare_qat_pt2e 之後", en="After prepare_qat_pt2e"), prepared),
    ],
    names=True,
    alt=T(
        zh="上：input_1 經過 conv2d、batch_norm、relu 到輸出。下：running_var 加 eps、開根號，γ 除以它得到 div；conv 的 weight 乘上它，"
        "過一個 fake quant 才進 conv2d；conv2d 的輸出再除回去，然後是 batch_norm、relu、fake quant。",
        en="Above: input_1 goes through conv2d, batch_norm and relu to the output. Below: running_var plus eps goes through a square root and γ is "
        "divided by it, which gives div; the weight is multiplied by it and passes a fake quant before conv2d; the output of "
        "conv2d is divided again, then come batch_norm, relu and a fake quant.",
    ),
    caption=T(
        zh="綠色是 fake quant。上排的 `add_` 替 BN 數 batch，沒有人用它的結果。",
        en="Fake quants are green. `add_` counts batches for BN; nobody uses its result.",
    ),
)

# %% [markdown] lang="zh"
# 一個 `batch_norm` 的位置，多了七個 node。從上往下讀：`add`、`sqrt`、`div` 用 running_var 算出每個 channel 的折疊倍數，
# 也就是[概覽](0_overview.py)式 (2) 的 $a$（原始碼叫它 `scale_factor`，和量化的 scale 無關）：
#
# $$a = \frac{\gamma}{\sqrt{\sigma_{\text{run}}^2 + \varepsilon}} \tag{1}$$
#
# `mul` 把 weight 乘上 $a$，這就是折疊後的 weight，fake quant 接在它後面；conv 算完，`div_1` 再除以 $a$，BN 拿到的就和原
# 來一樣。conv 有 bias 的話，除完才加回來。`batch_norm` 還在，還是訓練模式。

# %% [markdown] lang="en"
# There are seven more nodes around `batch_norm`. From the top: `add`, `sqrt` and `div` turn running_var into a folding
# factor for each channel, the $a$ in (2) of the [overview](0_overview.py) (the source calls it `scale_factor`; it has
# nothing to do with the scale of quantization):
#
# $$a = \frac{\gamma}{\sqrt{\sigma_{\text{run}}^2 + \varepsilon}} \tag{1}$$
#
# `mul` multiplies the weight by $a$. That is the folded weight, and the fake quant comes right after it. Once the
# convolution is done, `div_1` divides by $a$ again, so BN receives what it always did. A convolution's bias, if there
# is one, is added after that division. `batch_norm` is still there, still in training mode.

# %%
by_input = fake_quants(prepared)
assert list(by_input) == ["input_1", "mul", "relu"], list(by_input)

(conv2d,) = calls(prepared, aten.conv2d.default)
(batch_norm,) = calls(prepared, aten.batch_norm.default)
assert batch_norm.args[5] is True, "BN is not in training mode"
assert batch_norm.args[0].target is aten.div.Tensor, "nothing divides back"
added = len(prepared.graph.nodes) - len(after_export.graph.nodes)
assert added == 7 + len(by_input), f"{added} more nodes"

# %% [markdown] lang="zh"
# ## 同一件事，換個寫法
#
# conv 對 weight 是線性的，先乘後除，互相抵消：
#
# $$\frac{\operatorname{conv}(x,\, a W)}{a} = \operatorname{conv}(x, W) \tag{2}$$
#
# 所以關掉 fake quant，輸出和原模型只差捨入，BN 的統計量也照樣更新。這是預測 1 的答案：

# %% [markdown] lang="en"
# ## The same thing, written differently
#
# A convolution is linear in its weight, so multiplying before and dividing after cancel out:
#
# $$\frac{\operatorname{conv}(x,\, a W)}{a} = \operatorname{conv}(x, W) \tag{2}$$
#
# With the fake quants off, the output therefore is the model's up to rounding, and BN's statistics are updated as ever.
# That answers prediction 1:

# %%
from torchao.quantization.pt2e import disable_fake_quant

unquantized, eager = copy.deepcopy(prepared), copy.deepcopy(fp32)
unquantized.apply(disable_fake_quant)
with torch.no_grad():
    same = close(unquantized(images), eager(images))
assert same, "(2) does not hold"
old, new = fp32.bn.running_var, unquantized.get_buffer("bn.running_var")
assert close(new, eager.bn.running_var), "BN learned something else"
assert not close(new, old), "BN learned nothing"

# %% [markdown] lang="zh"
# 打開 fake quant（下面用帽號表示過了 fake quant 的值），整段在算的是
#
# $$y = \operatorname{BN}_{\text{batch}}\!\left(\frac{\operatorname{conv}(\hat{x},\, \widehat{a W})}{a}\right) \tag{3}$$
#
# BN 用這個 batch 的平均與變異數做正規化，$a$ 卻來自 running_var，而且是**這一步更新之前**的值。訓練模式的 BN 不在乎每個
# channel 乘過什麼（正的）倍數，除以 $a$ 是為了統計量：running_mean、running_var 記的仍是折疊前那個 conv 輸出的平均與變
# 異數。照 (3) 手算一遍（括號裡的叫 `z`），和圖的輸出、更新後的 running_var 比：

# %% [markdown] lang="en"
# With the fake quants on (a hat marks what passed one), the whole thing computes
#
# $$y = \operatorname{BN}_{\text{batch}}\!\left(\frac{\operatorname{conv}(\hat{x},\, \widehat{a W})}{a}\right) \tag{3}$$
#
# BN normalizes with the mean and variance of this batch, whereas $a$ comes from running_var, with the value it had **before
# this step's update**. BN in training mode doesn't care by what (positive) number a channel was multiplied; dividing by
# $a$ is for the statistics: running_mean and running_var remain the mean and variance of the unfolded convolution's
# output. We compute (3) by hand (`z` is what stands in parentheses) and compare with the graph's output and with the
# updated running_var:


# %%
def factor(bn):
    return bn.weight / torch.sqrt(bn.running_var + 1e-5)


def scaled(weight, a):
    return weight * a.view(-1, 1, 1, 1)


def fake_weight(values, scale):
    zeros = torch.zeros(len(scale), dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(
        values, scale, zeros, 0, -127, 127
    )


def fake_activation(values, fake_quant):
    qparams = fake_quant.scale.item(), fake_quant.zero_point.item()
    return torch.fake_quantize_per_tensor_affine(values, *qparams, -128, 127)


# %%
a, old = factor(model.bn), model.bn.running_var.clone()  # before the step
with torch.no_grad():
    output = prepared(images)  # one step: updates ranges and BN

    x_hat = fake_activation(images, by_input["input_1"])
    w_hat = fake_weight(scaled(model.conv.weight, a), by_input["mul"].scale)
    z = F.conv2d(x_hat, w_hat, padding=1) / a.view(1, -1, 1, 1)
    gamma, beta = model.bn.weight, model.bn.bias
    y = F.batch_norm(z, None, None, gamma, beta, training=True).relu()
    y_hat = fake_activation(y, by_input["relu"])

step = by_input["relu"].scale  # one step of the output
assert (output - y_hat).abs().max() < 1.5 * step, "(3) is off by over a step"
assert (output != y_hat).float().mean() < 0.01, "(3) is not what it computes"
updated = 0.9 * old + 0.1 * z.var((0, 2, 3))
assert close(model.bn.running_var, updated), "the statistics are not of z"

# %% [markdown] lang="zh"
# ## 為什麼是 running 統計量
#
# 想要 fake quant 看到折疊後的 weight，也可以用這個 batch 的變異數算 $a$。代價有兩個。要先做一次 conv 才知道變異數，才能
# 做真正的那一次：每一步兩次 conv；原始碼的註解說，用 running_var 的近似「只需要一次前向」。另一個是雜訊：batch 的變異數
# 每批都不同，整數 weight 就跟著跳。下面完全不訓練，範圍固定，只讓 40 批資料流過，數一數每換一批有多少個整數改變。

# %% [markdown] lang="en"
# ## Why running statistics
#
# The factor could come from the variance of the batch as well, and the fake quant would still see a folded weight. That
# has two costs. One is a second convolution in every step, because the variance is known only after a convolution; of
# the approximation with running_var, the source says that "it requires only one forward pass". The other is noise: the
# variance differs from batch to batch, and the integer weights jump with it. Below, nothing is trained, the ranges are
# fixed, and 40 batches pass through; we count how many integers change from one to the next.

# %%
weight, bn = fp32.conv.weight.detach(), copy.deepcopy(fp32.bn)
widest = scaled(weight, factor(bn)).abs().amax((1, 2, 3), keepdim=True)


def integers(variance):
    folded = scaled(weight, bn.weight / torch.sqrt(variance + 1e-5))
    return (folded * 127 / widest).round()  # ranges: those of the start


running, batch = [], []
with torch.no_grad():
    for x in batches:
        before_bn = F.conv2d(x, weight, padding=1)
        running.append(integers(bn.running_var))
        batch.append(integers(before_bn.var((0, 2, 3), correction=0)))
        bn(before_bn)  # updates running_var: a tenth of the new variance


def changes(history):
    """The share of integers that differ from those of the batch before."""
    pairs = itertools.pairwise(history)
    return torch.stack([(old != new).float().mean() for old, new in pairs])


by_running, by_batch = changes(running), changes(batch)
assert by_batch.mean() > 2 * by_running.mean(), "the batch is as calm"

# %% tags=["plot"]
figure, axes = plt.subplots()
axes.plot(
    100 * by_batch, "s--", color="C1", label="a from the batch's variance"
)
axes.plot(100 * by_running, "o-", color="C0", label="a from running_var")
axes.set(xlabel="batch", ylabel="integers changed (%)", ylim=(0, 120))
axes.set_yticks(range(0, 101, 20))
axes.legend(loc="upper center", ncols=2)
show(
    figure,
    alt=T(
        zh="折線圖，橫軸是 batch，縱軸是改變的整數比例：用 batch 變異數的線一直遠高於用 running_var 的線。",
        en="A line chart of the share of changed integers over batches: the line for the batch's variance stays far above "
        "the one for running_var.",
    ),
    caption=T(
        zh="不訓練，每換一批資料，432 個整數 weight 中改變的比例。",
        en="Without any training: the share of the 432 integer weights that change from one batch to the next.",
    ),
)
say(
    T(
        zh=f"平均每換一批，用 batch 的變異數有 {by_batch.mean():.0%} 的整數改變，用 running_var 是 {by_running.mean():.0%}（預測 2）。",
        en=f"From one batch to the next, {by_batch.mean():.0%} of the integers change on average with the batch's variance, and "
        f"{by_running.mean():.0%} with running_var (prediction 2).",
    )
)

# %% [markdown] lang="zh"
# running_var 每步只吸收新變異數的十分之一（momentum 0.1），雜訊因此小得多；BN 的輸出仍用 batch 的統計量正規化，訓練本身
# 和平常一樣。雜訊小不代表沒有，所以 QAT 後段會把 BN 切到 eval、統計量凍結（[M06-2](../m06_qat/2_schedule.py)）。
#
# ## 切到 eval：正好是要部署的算式
#
# `move_exported_model_to_eval`（[M04-3](3_train_eval.py)）讓 BN 改用 running 統計量。這時 BN 乘的倍數就是 $a$，和
# `div_1` 抵消，(3) 變成
#
# $$y = \operatorname{conv}(\hat{x},\, \widehat{a W}) + d,\qquad d = \beta - a \mu_{\text{run}} \tag{4}$$
#
# 沒有 BN，只有一個折疊後的 weight 和一個 bias：和 PTQ 折疊的結果同形（[M04 概覽](0_overview.py)）。先讓統計量和範圍看幾
# 批資料，代替訓練；真正的訓練在 [M06](../m06_qat/0_overview.py)。

# %% [markdown] lang="en"
# Each step takes over only a tenth of the new variance into running_var (momentum 0.1), hence much less noise; BN's
# output is still normalized with the batch's statistics, and training itself is as usual. Less noise isn't none, which
# is why late QAT moves BN to eval and freezes its statistics ([M06-2](../m06_qat/2_schedule.py)).
#
# ## In eval: exactly what will be deployed
#
# `move_exported_model_to_eval` ([M04-3](3_train_eval.py)) makes BN use its running statistics. BN then multiplies by
# $a$ itself, which cancels `div_1`, and (3) becomes
#
# $$y = \operatorname{conv}(\hat{x},\, \widehat{a W}) + d,\qquad d = \beta - a \mu_{\text{run}} \tag{4}$$
#
# No BN, just a folded weight and a bias: the same form as after folding in PTQ ([M04 overview](0_overview.py)). A few
# batches for statistics and ranges stand in for training here; the real thing is [M06](../m06_qat/0_overview.py).

# %%
from torchao.quantization.pt2e import (
    disable_observer,
    move_exported_model_to_eval,
)

with torch.no_grad():
    for x in batches[:8]:
        prepared(x)
in_training = copy.deepcopy(prepared)  # for later

move_exported_model_to_eval(prepared)
prepared.apply(disable_observer)  # or looking would move the ranges


def formula_4(scale):
    a = factor(model.bn)
    x_hat = fake_activation(images, by_input["input_1"])
    w_hat = fake_weight(scaled(model.conv.weight, a), scale)
    bias = model.bn.bias - model.bn.running_mean * a
    y = F.conv2d(x_hat, w_hat, bias, padding=1).relu()
    return fake_activation(y, by_input["relu"])


def apart(left, right):
    """Largest difference in steps of the output; share that differs."""
    difference = (left - right).abs() / by_input["relu"].scale
    return difference.max().item(), (difference > 0.5).float().mean().item()


with torch.no_grad():
    in_eval = prepared(images)
    most, share = apart(in_eval, formula_4(by_input["mul"].scale))
assert most < 1.5 and share < 0.01, f"(4) is off: {most:.0f}, {share:.0%}"

# %% [markdown] lang="zh"
# ## convert 時才折疊
#
# `convert_pt2e` 先把 fake quant 換成 q、dq，再找出這個樣式，換回普通的 conv-BN，然後折疊。weight 的 scale 取自
# `calculate_qparams()`，所以代進 (4) 的要換成它。

# %% [markdown] lang="en"
# ## Only convert folds
#
# `convert_pt2e` turns fake quants into q and dq, finds the pattern, writes it back as plain conv-BN, and then folds.
# The weight's scale is that of `calculate_qparams()`, so that is the one to put into (4).

# %%
deployed_scale = by_input["mul"].calculate_qparams()[0]
with conv2d_patterns_only():
    quantized = convert_pt2e(prepared)
assert not calls(quantized, aten.batch_norm.default), "BN was not folded"

# %%
with torch.no_grad():
    expected, found = formula_4(deployed_scale), quantized(images)
most, share = apart(found, expected)
assert most < 1.5 and share < 0.01, f"(4) is off: {most:.0f}, {share:.0%}"
most, share = apart(found, in_eval)

# %% tags=["plot"]
say(
    T(
        zh=f"和 convert 之前的 eval 圖比，輸出有 {share:.0%} 不同，最多差 {most:.0f} 格：差別全來自 weight 的 scale，融合的 fake "
        "quant 訓練時用的是另一個公式（[M02-2](../m02_observers/2_fake_quant.py)），後果在 "
        "[M06-3](../m06_qat/3_deployed_scales.py)。",
        en=f"Compared with the eval graph before convert, {share:.0%} of the outputs differ, by {most:.0f} steps at most. All of it comes "
        "from the weight's scale, for which the fused fake quant has another formula in training "
        "([M02-2](../m02_observers/2_fake_quant.py)); the consequences are in [M06-3](../m06_qat/3_deployed_scales.py).",
    )
)

# %% [markdown] lang="zh"
# 同一個 `model` 現在切到 eval，走一遍 PTQ（用 `common.quantizers` 的 `PTQQuantizer`：`XNNPACKQuantizer` 去掉 PTQ 用不到
# 的比對，快得多）。兩張圖的 op 一個不差；不同的只有名字，以及範圍：PTQ 的是現在的 weight，QAT 的是移動平均。

# %% [markdown] lang="en"
# Now PTQ for the same `model`, in eval mode (with `PTQQuantizer` of `common.quantizers`, an `XNNPACKQuantizer` without
# the matching that PTQ has no use for, and much faster). The two graphs have the same ops, one for one. They differ in
# names, and in ranges: PTQ takes the range of the weight as it is now, QAT a moving average.

# %%
from common.quantizers import PTQQuantizer

from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

model.eval()
ptq_config = get_symmetric_quantization_config(is_per_channel=True)
exported_eval = torch.export.export(model, (images,)).module()
calibrated = prepare_pt2e(exported_eval, PTQQuantizer().set_global(ptq_config))
with torch.no_grad():
    calibrated(images)
by_ptq = convert_pt2e(calibrated)


def ops(gm):
    return [node.target for node in gm.graph.nodes if node.op[:5] == "call_"]


assert sorted(map(str, ops(quantized))) == sorted(map(str, ops(by_ptq)))
bias = quantized.get_parameter("conv.weight_bias")
assert torch.allclose(bias, by_ptq.get_parameter("conv.weight_bias"))

# %% tags=["plot"]
graph(
    quantized,
    names=True,
    alt=T(
        zh="input_1 經過 q、dq 進 conv2d，weight 經過 dq 進 conv2d，還有 bias；然後 relu、q、dq、輸出。沒有 batch_norm，也沒有乘除。",
        en="input_1 passes q and dq into conv2d, the weight passes dq, and there is a bias; then relu, q, dq and the output. No "
        "batch_norm, no multiplication or division.",
    ),
    caption=T(
        zh="convert 之後：和 PTQ 同形，只是 node 換了名字。",
        en="After convert: the same form as PTQ's; only the nodes have other names.",
    ),
)

# %% [markdown] lang="zh"
# 圖上沒有 BN 了，模組裡卻還留著它的參數與統計量，沒有任何 node 讀它們，存檔時照樣寫進去。無害，但會讓數參數的人數錯；用
# `delete_all_unused_submodules()` 清掉。

# %% [markdown] lang="en"
# No BN in the graph, yet its parameters and statistics are still in the module. No node reads them, and a saved file
# contains them. That is harmless, but misleads whoever counts parameters; `delete_all_unused_submodules()` removes
# them.

# %%
leftover = {name for name in quantized.state_dict() if name[:3] == "bn."}
read = {node.target for node in quantized.graph.nodes if node.op == "get_attr"}
assert len(leftover) == 5 and not leftover & read, leftover
assert not any(name[:3] == "bn." for name in by_ptq.state_dict())
to_save = torch.export.export(quantized, (images,))
assert leftover < to_save.state_dict.keys(), "they are not saved"

quantized.delete_all_unused_submodules()
assert not leftover & quantized.state_dict().keys(), "still there"
with torch.no_grad():
    assert torch.equal(quantized(images), found), "it was needed after all"

# %% [markdown] lang="zh"
# ## 陷阱：設定被換掉、模式被換掉
#
# prepare 比對的樣式把 eps 與 momentum 寫死成預設值，比對時又不看這兩個數字（原始碼註明了 TODO）。下面的模型有兩個 BN：第
# 一個 eps 1e-3、momentum 0.01；第二個前面的 conv 還有別人用，`bn2(y) + y`。並且「忘了」切到訓練模式就匯出。conv-BN
# 的改寫和 quantizer 標註什麼無關，所以用 M04-1 的 `FoldOnly`，什麼都不標註，圖上就沒有 fake quant 干擾。

# %% [markdown] lang="en"
# ## Traps: settings replaced, mode replaced
#
# The pattern that prepare matches has the default eps and momentum built in, and matching ignores both numbers (the
# source has a TODO there). The model below has two BNs. The first has eps 1e-3 and momentum 0.01; the convolution
# before the second one has another user, `bn2(y) + y`. And we "forget" to switch to training mode before export.
# Rewriting conv-BN doesn't depend on what the quantizer annotates, so we take `FoldOnly` of M04-1, which annotates
# nothing, and have no fake quants in the way.


# %%
from common.folding import FoldOnly


class TwoBN(nn.Module):
    def __init__(self):
        super().__init__()
        net = trained_tinyconvnet()
        self.conv, self.bn = net.stem_conv, net.stem_bn
        self.conv2, self.bn2 = net.block.conv1, net.block.bn1
        self.bn.eps, self.bn.momentum = 1e-3, 0.01

    def forward(self, x):
        y = self.conv2(self.bn(self.conv(x)).relu())
        return self.bn2(y) + y


def settings(gm):
    """(training, momentum, eps) of each BN of a graph."""
    return [node.args[5:8] for node in calls(gm, aten.batch_norm.default)]


two = TwoBN().eval()
exported_two = torch.export.export(two, (images,)).module()
before = settings(exported_two)
with conv2d_patterns_only():
    prepared_two = prepare_qat_pt2e(exported_two, FoldOnly())
after = settings(prepared_two)

assert before == [(False, 0.01, 1e-3), (False, 0.1, 1e-5)], before
assert after == [(True, 0.1, 1e-5), (False, 0.1, 1e-5)], after

# %% tags=["plot"]
names = ["training", "momentum", "eps"]
table(
    [
        [f"`{name}`", str(old), str(new)]
        for name, old, new in zip(names, before[0], after[0], strict=True)
    ],
    [
        T(zh="`bn` 的引數", en="argument of `bn`"),
        T(zh="export 之後", en="after export"),
        T(zh="prepare 之後", en="after prepare"),
    ],
)

# %% [markdown] lang="zh"
# `bn` 的三個引數全被換掉，一句話也沒有。（模式的辦法最簡單：`model.train()` 之後再匯出。）`bn2` 沒動：它的 conv 有第二個
# 使用者，不合樣式，BN 原樣留著，fake quant 看到的會是沒折疊的 weight（PTQ 遇上這種 conv 會算錯，見
# [M04-1](1_ptq_folding.py)）。後果看得見：訓練模式下，同一張圖片的輸出要看和誰同批；切到 eval 之後不再如此，但 eps 換
# 過，就算沒有 fake quant，也對不上原模型。

# %% [markdown] lang="en"
# All three arguments of `bn` were replaced, without a word. (For the mode the remedy is plain: export after
# `model.train()`.) `bn2` is untouched: since its convolution has a second user there is no match, BN stays as it is, and
# a fake quant would see a weight that isn't folded (PTQ gets such a convolution wrong, see [M04-1](1_ptq_folding.py)). The
# consequences can be seen: in training mode, the output for an image depends on the other images of its batch. In eval
# it no longer does, but with the wrong eps it doesn't match the original model, even without fake quant.

# %%
in_company = torch.cat([images[:1], batches[1][1:]])  # the same first image


def depends_on_company(gm):
    with torch.no_grad():
        one, other = gm(images)[0], gm(in_company)[0]
    return (one - other).abs().max() > 1e-3 * one.abs().max()


assert depends_on_company(prepared_two), "BN is not in training mode"
move_exported_model_to_eval(prepared_two)
assert not depends_on_company(prepared_two), "BN is still in training mode"

with torch.no_grad():
    right, wrong = two(images), prepared_two(images)
eps_error = (wrong - right).norm() / right.norm()
assert eps_error > 5e-3, "the other eps changes nothing"

default_eps = copy.deepcopy(two)
default_eps.bn.eps = 1e-5
with torch.no_grad():
    assert close(default_eps(images), wrong), "not only eps is wrong"

# %% [markdown] lang="zh"
# convert 的樣式裡同樣寫死 1e-5（讀自 torchao 0.18.0 的 `qat_utils.py`），所以在 prepare 之後把 eps 改回來沒有用。辦法是在
# 匯出之前把差額搬進 running_var：推論時只有兩者的和有影響。momentum 只在訓練時有作用，可以在 node 上改回來，但每次切換模
# 式後又會被重設（都在 [M04-3](3_train_eval.py)）。

# %% [markdown] lang="en"
# Convert's pattern has the same 1e-5 built in (read in `qat_utils.py` of torchao 0.18.0), so putting eps back after
# prepare doesn't help. The remedy is to move the difference into running_var before export: in inference only their sum
# counts. Momentum matters in training only. It can be put back on the node, but each change of mode resets it again
# ([M04-3](3_train_eval.py) shows both).


# %%
@torch.no_grad()
def absorb_eps(bn):
    bn.running_var += bn.eps - 1e-5
    bn.eps = 1e-5


absorbed = copy.deepcopy(two)
absorb_eps(absorbed.bn)
with torch.no_grad():
    assert close(absorbed(images), right), "the output changed"

# %% [markdown] lang="zh"
# eps 從此是 1e-5，訓練時每批的正規化用的也是它：接著訓練，BN 會重新適應。這也是課程的模型都用預設 eps 與 momentum 的原
# 因。
#
# ## 陷阱：γ = 0
#
# $\gamma = 0$ 使 $a = 0$，`div_1` 變成 0 / 0。`zero_init_residual=True` 的 ResNet 每個 block 最後的 BN 就是這樣開始的。
# 一個 channel 就夠：

# %% [markdown] lang="en"
# From then on eps is 1e-5, also where training normalizes a batch; BN adapts to it as it trains. This is also why the
# course's models use the default eps and momentum.
#
# ## Trap: γ = 0
#
# $\gamma = 0$ makes $a = 0$, and `div_1` computes 0 / 0. A ResNet with `zero_init_residual=True` starts like this in
# the last BN of each block. One channel is enough:


# %%
@torch.no_grad()
def one_step_with_gamma(value):
    """The output, and BN's statistics afterwards, with channel 0 spoiled."""
    gm = copy.deepcopy(in_training)
    gm.get_parameter("bn.weight")[0] = value
    return gm(images), gm.get_buffer("bn.running_var")


output, statistics = one_step_with_gamma(0.0)
assert output.isnan().any(), "0 / 0 was harmless"
assert statistics.isnan().tolist() == [True] + 15 * [False]
nan_share = output.isnan().float().mean()

output, statistics = one_step_with_gamma(1e-3)  # the remedy: nearly zero
finite = output.isfinite().all() and statistics.isfinite().all()
assert finite, "nearly zero is no remedy"

# %% tags=["plot"]
say(
    T(
        zh=f"一步之後，輸出有 {nan_share:.0%} 是 NaN（輸出的 fake quant 也拿到了 NaN 的範圍），那個 channel 的 running 統計量也是。之後再把 γ "
        "改回來也沒有用，只能重來。",
        en=f"After one step {nan_share:.0%} of the outputs are NaN (the output's fake quant got a NaN range, too), and so are the running "
        "statistics of that channel. Putting γ right afterwards doesn't help; you have to start over.",
    )
)

# %% [markdown] lang="zh"
# 這是預測 3 的答案。被換掉的模式、被換掉的數字、$\gamma = 0$，三個陷阱都能在匯出之前看出來，寫成一個檢查。（`bn2` 那樣的第二
# 個使用者它看不到，要看圖。）

# %% [markdown] lang="en"
# That answers prediction 3. The three traps, mode replaced, numbers replaced and $\gamma = 0$, can be seen before export,
# so here is a check. (It can't see a second user like that of `bn2`; for that, look at the graph.)


# %%
def check_before_qat(model):
    """Refuse what prepare_qat_pt2e would silently get wrong."""
    for name, bn in model.named_modules():
        if not isinstance(bn, nn.BatchNorm1d | nn.BatchNorm2d):
            continue
        if not bn.training:
            raise ValueError(f"{name} is in eval mode; QAT would train it")
        if (bn.eps, bn.momentum) != (1e-5, 0.1):
            raise ValueError(f"{name}: eps, momentum would be 1e-5, 0.1")
        if (bn.weight == 0).any():
            raise ValueError(f"{name} has a gamma of 0, which gives NaN")


def refusal(model):
    try:
        check_before_qat(model)
    except ValueError as error:
        return str(error)


zero_gamma = copy.deepcopy(fp32)
nn.init.zeros_(zero_gamma.bn.weight[:1].detach())
assert refusal(fp32) is None, "a good model was refused"
for model_with_trap in (two, copy.deepcopy(two).train(), zero_gamma):
    print(refusal(model_with_trap))

# %% [markdown] lang="zh"
# ## 小結
#
# - QAT 把 weight 先乘 $a$、過 fake quant、conv 之後再除以 $a$：fake quant 看到折疊後的 weight，BN 還活著。
# - $a$ 來自 running_var：不必多算一次 conv，整數 weight 也不隨每批資料跳動。
# - 切到 eval，算式就是「折疊後的 conv」；convert 才真的折疊，得到和 PTQ 同形的圖，留下沒人讀的 BN 參數。
# - eps、momentum 會被換成 1e-5、0.1；$\gamma = 0$ 變成 NaN；在 eval 模式匯出的 conv-BN 會被切成訓練模式。都不出聲，訓練
#   前先檢查。

# %% [markdown] lang="en"
# ## Recap
#
# - QAT multiplies the weight by $a$, fake-quantizes it, and divides by $a$ after the convolution: the fake quant sees
#   the folded weight, and BN stays alive.
# - $a$ comes from running_var: no second convolution, and integer weights that don't jump with every batch.
# - In eval this is the folded convolution. Only convert really folds; it gives a graph of PTQ's form, and leaves BN
#   parameters that nobody reads.
# - eps and momentum become 1e-5 and 0.1, $\gamma = 0$ becomes NaN, and a conv-BN exported in eval mode is set to
#   training. All silent, so check before training.

# %% [markdown] lang="zh"
# ## 試試看
#
# 假如 QAT 偷懶，fake quant 直接放在沒折疊的 $W$ 上，部署時才折疊、量化 $a W$。訓練時適應的整數，和部署的整數相同嗎？
# per-channel 與 per-tensor 各算一次：範圍都取當下的最大絕對值，整數從 −127 到 127。

# %% [markdown] lang="en"
# ## Try it
#
# Suppose QAT were lazy: the fake quant sits on the unfolded $W$, and only deployment folds and quantizes $a W$. Are the
# integers the model got used to in training the ones that are deployed? Work it out per channel and per tensor; in both
# cases the range is the largest absolute value, and the integers go from −127 to 127.


# %% tags=["solution"]
def share_changed_by_folding(dims):
    def to_integers(values):
        return (values * 127 / values.abs().amax(dims, keepdim=True)).round()

    folded = scaled(weight, factor(fp32.bn).detach())
    different = to_integers(weight) != to_integers(folded)
    return different.float().mean().item()


per_channel = share_changed_by_folding((1, 2, 3))
per_tensor = share_changed_by_folding((0, 1, 2, 3))
assert (fp32.bn.weight > 0).all(), "a negative gamma flips the signs"
assert per_channel < 0.01 and per_tensor > 0.5, (per_channel, per_tensor)
say(
    T(
        zh=f"不同的整數：per-channel {per_channel:.1%}，per-tensor {per_tensor:.1%}。",
        en=f"Integers that differ: per channel {per_channel:.1%}, per tensor {per_tensor:.1%}.",
    )
)

# %% [markdown] lang="zh" tags=["solution"]
# per-channel 的範圍跟著每個 channel 一起乘上 $a$，整數不變（$a < 0$ 時只變號），偷懶也行。per-tensor 只有一個範圍，$a$
# 改變了 channel 之間的比例，整數幾乎全變：模型訓練時適應的，根本不是部署的那一組。

# %% [markdown] lang="en" tags=["solution"]
# Per channel, each range is multiplied by the same $a$ as its channel, so the integers stay (with $a < 0$ they only
# change sign), and lazy would do. Per tensor there is one range, $a$ changes the proportions between channels, and
# nearly all integers change: what the model got used to isn't what is deployed.

# %% [markdown] lang="zh"
# ## 接下來
#
# 這一頁切換模式用的函式，自己也有陷阱：[M04-3](3_train_eval.py)。完整的訓練迴圈在 [M06-1](../m06_qat/1_qat_loop.py)。回
# 到 [M04 概覽](0_overview.py)。原始碼：torchao 0.18.0，`torchao/quantization/pt2e/qat_utils.py`。

# %% [markdown] lang="en"
# ## Next
#
# The function that changes modes on this page has traps of its own: [M04-3](3_train_eval.py). A complete training loop
# is in [M06-1](../m06_qat/1_qat_loop.py). Back to the [M04 overview](0_overview.py). The source:
# `torchao/quantization/pt2e/qat_utils.py` of torchao 0.18.0.
