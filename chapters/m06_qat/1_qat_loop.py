# %% [markdown] lang="zh" time_limit=900
# # M06-1 | QAT 的迴圈：從 prepare 到 convert
#
# 這一頁把 QAT（量化感知訓練）完整走一遍：先找一個 PTQ（訓練後量化）明顯失敗的例子，再用 200 步訓練救它，最後用配對的信
# 賴區間回答兩個問題：真的救回來了嗎？功勞是 fake quant 的，還是單純多訓練了 200 步？沿路有幾個陷阱，大多不出聲。
#
# **讀完你會知道**
#
# - QAT 的五個步驟，每一步用哪個呼叫
# - 怎麼確認自己真的在做 QAT，而不是在訓練 fp32
# - 怎麼評估、存檔、讀回一個訓練中的圖，又不改壞它
# - 怎麼安排對照組，才知道 QAT 值不值得

# %% [markdown] lang="en"
# # M06-1 | The QAT loop, from prepare to convert
#
# This page goes all the way through QAT (quantization-aware training). First we need a case where PTQ (post-training
# quantization) visibly fails; then 200 steps of training come to its rescue; in the end paired confidence intervals
# answer two questions. Is it really rescued? And does the credit belong to fake quant, or to 200 more steps as such? On
# the way there are several traps, most of them silent.
#
# **What you will know**
#
# - The five steps of QAT, and the call that makes each
# - How to make sure that this is QAT, and not training in fp32
# - How to evaluate, save and restore a graph in training without spoiling it
# - Which controls tell whether QAT was worth it

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. TinyConvNet 的 weight 用 4 位元、per-tensor。PTQ 的準確率會掉多少？200 步的 QAT 能救回幾成？
# 2. 設定裡漏了 `is_qat=True`，`prepare_qat_pt2e` 會給什麼錯誤訊息？
# 3. 在 `torch.no_grad()` 裡評估準備好的圖，圖會因此改變嗎？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. TinyConvNet gets 4-bit weights, per tensor. How much accuracy does PTQ lose, and what part of it can 200 steps of
#    QAT bring back?
# 2. The configuration lacks `is_qat=True`. What does `prepare_qat_pt2e`'s error message say?
# 3. You evaluate a prepared graph under `torch.no_grad()`. Does that change the graph?

# %% tags=["setup"]
import copy
import io
import textwrap

from common.data import calibration_batches, test_data, train_data
from common.env import quiet
from common.metrics import (
    in_points,
    interval_in_points,
    is_right,
    paired_interval,
)
from common.models import example_inputs, get_model, trained_tinyconvnet
from common.pt2e import check_fake_quant, ptq
from common.quantizers import PTQQuantizer
from common.viz import T, say, table

import torch
from torch.nn import functional as F

quiet()
images, labels = train_data()
test_images, test_labels = test_data()


def right(gm):
    """For each of the 2000 test images, whether `gm` classifies it right."""
    return is_right(gm, test_images, test_labels)


def accuracy(answers):
    return answers.double().mean().item()


def message_of(call, *errors):
    """The error that `call` raises, or the words "no error"."""
    try:
        call()
    except errors as error:
        first_line = str(error).splitlines()[0]
        return f"{type(error).__name__}: {first_line}"
    return "no error"


# %% [markdown] lang="zh"
# ## 一個 PTQ 明顯失敗的例子
#
# weight 借 `weight_qmin`、`weight_qmax` 限制在 −7 到 7（4 位元），整個 tensor 共用一個 scale
# （[M01-3](../m01_first_ptq/3_quantization_config.py) 看過它為什麼難）。`ptq` 是 M01 四個步驟的包裝，`PTQQuantizer` 的
# 標註和 `XNNPACKQuantizer` 相同，只是 prepare 得快一些。輸入的批次大小標成動態，同一張圖才能用來校準、訓練與評估。

# %% [markdown] lang="en"
# ## A case where PTQ visibly fails
#
# `weight_qmin` and `weight_qmax` hold the weights to −7 to 7 (4 bits), with one scale for a whole tensor
# ([M01-3](../m01_first_ptq/3_quantization_config.py) has shown why that is hard). `ptq` wraps the four steps of M01;
# `PTQQuantizer` makes the same annotations as `XNNPACKQuantizer` and is merely quicker to prepare. The batch size of
# the input is dynamic, so that one graph will do for calibration, training and evaluation.

# %%
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)

FOUR_BITS = {"weight_qmin": -7, "weight_qmax": 7}


def export(model, n=2):
    """The graph of `model` in its present mode, for any number of images."""
    any_batch = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(
        model, example_inputs(n), dynamic_shapes=any_batch
    )
    return exported.module()


def four_bit_ptq(model):
    config = get_symmetric_quantization_config(**FOUR_BITS)
    quantizer = PTQQuantizer().set_global(config)
    return ptq(export(model), quantizer, calibration_batches(256))


model = trained_tinyconvnet()  # in eval mode
answers = {"fp32": right(model), "PTQ": right(four_bit_ptq(model))}
lost = accuracy(answers["fp32"]) - accuracy(answers["PTQ"])
assert lost > 0.1, f"PTQ didn't visibly fail: it lost {lost:.1%}"

# %% tags=["plot"]
say(
    T(
        zh=f"fp32 的準確率是 {accuracy(answers['fp32']):.2%}，PTQ 之後剩 {accuracy(answers['PTQ']):.2%}：掉了 {100 * lost:.1f} 個百分點。",
        en=f"In fp32 the accuracy is {accuracy(answers['fp32']):.2%}, after PTQ {accuracy(answers['PTQ']):.2%}: {100 * lost:.1f} points are gone.",
    )
)

# %% [markdown] lang="zh"
# ## 步驟 1、2：在訓練模式下 export，再 prepare
#
# 三件事要先做對：
#
# - **`copy.deepcopy`**：export 的圖和模型共用參數與 BN 的統計量，訓練圖就是訓練模型。要留住 fp32 的原樣，先複製。
# - **`.train()`**：BN 的模式在 export 時寫進圖裡，之後對圖呼叫 `.train()` 會丟出例外
#   （[M04-3](../m04_batchnorm/3_train_eval.py)）。
# - **範例至少 2 張**：只給 1 張，export 會把批次大小固定成 1。
#
# 設定沿用[概覽](0_overview.py)的寫法，包在 `common.qat.qat_config`：activation 8 位元、weight 4 位元，用沒有融合的
# `FakeQuantize`。唯一的新東西是 weight 的 observer 設了 `averaging_constant=1.0`：範圍取自**現在**的 weight，不做移動平
# 均。

# %% [markdown] lang="en"
# ## Steps 1 and 2: export in training mode, then prepare
#
# Three things have to be right beforehand:
#
# - **`copy.deepcopy`**: the exported graph shares parameters and BN statistics with its model, so to train the graph is
#   to train the model. To keep the fp32 original, copy it first.
# - **`.train()`**: export writes the mode of BN into the graph; afterwards, `.train()` on the graph raises
#   ([M04-3](../m04_batchnorm/3_train_eval.py)).
# - **At least 2 example images**: with 1, export fixes the batch size at 1.
#
# The configuration is that of the [overview](0_overview.py), packed into `common.qat.qat_config`: 8 bits for
# activations, 4 for weights, and the `FakeQuantize` that isn't fused. One thing is new: the observer of a weight has
# `averaging_constant=1.0`, which takes the range from the weight as it is **now**, without a moving average.

# %%
from common.qat import qat_config

from torchao.quantization.pt2e.quantize_pt2e import (
    convert_pt2e,
    prepare_qat_pt2e,
)

student = copy.deepcopy(model).train()
exported = export(student)
quantizer = XNNPACKQuantizer().set_global(qat_config(bits=4))
prepared = prepare_qat_pt2e(exported, quantizer)
check_fake_quant(prepared)  # explained right below

parameters = {id(p) for p in prepared.parameters()}
assert parameters == {id(p) for p in student.parameters()}, "not shared"
shared = parameters & {id(p) for p in model.parameters()}
assert not shared, "training would change the fp32 model"
untrained = copy.deepcopy(prepared)  # for experiments

# %% [markdown] lang="zh"
# 圖裡的參數就是 `student` 的參數，一個不多、一個不少：optimizer 用哪一邊的 `parameters()` 建都一樣，而 `model` 不受影
# 響。
#
# ### 陷阱：批次 1 與漏掉的 `is_qat`
#
# 只用 1 張圖片匯出時，動態的批次大小會當場被拒絕；沒要求動態的話，要到第一個批次才失敗。漏掉 `is_qat=True` 更糟：**沒有
# 任何訊息**（預測 2）。圖上放的是普通 observer，訓練照跑，卻是 fp32 的訓練。`check_fake_quant` 是本課程的檢查，圖裡一個
# fake quant 都沒有就丟出錯誤。拿小模型示範：

# %% [markdown] lang="en"
# The parameters of the graph are those of `student`, no more, no fewer. So it doesn't matter whose `parameters()` the
# optimizer is built on, and `model` stays out of it.
#
# ### Traps: a batch of 1, and `is_qat` left out
#
# Exported with a single image, a dynamic batch size is refused on the spot; if none was asked for, the first batch
# fails. To leave out `is_qat=True` is worse: there is **no message at all** (prediction 2). The graph gets plain
# observers, and training goes on, in fp32. `check_fake_quant` is a check of this course; it raises an error if a graph
# holds no fake quant. A small model will do to show it:

# %%
fixed = torch.export.export(student, example_inputs(1)).module()


def prepare_without_is_qat():
    config = get_symmetric_quantization_config(**FOUR_BITS)
    example = example_inputs(2)
    small = torch.export.export(get_model("conv_relu").train(), example)
    prepared_in_vain = prepare_qat_pt2e(
        small.module(), XNNPACKQuantizer().set_global(config)
    )
    prepared_in_vain(*example)[0].sum().backward()  # trains without a word
    check_fake_quant(prepared_in_vain)


messages = [
    message_of(lambda: export(student, n=1), Exception),
    message_of(lambda: fixed(images[:64]), AssertionError),
    message_of(prepare_without_is_qat, ValueError),
]
for message in messages:
    print(textwrap.fill(message, 76))
assert messages[2].startswith("ValueError: no fake quant"), "is_qat was set"
assert messages[0] != "no error" != messages[1], "a batch of 1 is fine now"

# %% [markdown] lang="zh"
# ## 步驟 3：訓練
#
# 就是一般的迴圈：cross entropy、Adam、學習率照 cosine 降到 0。多的只有兩行，把 QAT 特有的狀態依序凍結（不凍結會怎
# 樣，[M06-2](2_schedule.py) 會量）：
#
# - 第 100 步起，`move_exported_model_to_eval` 讓 BN 改用 running 統計量；參數照樣有梯度。
# - 第 160 步起，`disable_observer` 讓 fake quant 的範圍不再動，weight 有固定的格子可以靠。
#
# 包成函式 `train`，等一下對照組要用同一份程式。

# %% [markdown] lang="en"
# ## Step 3: train
#
# It is the usual loop: cross entropy, Adam, a learning rate that falls to 0 along a cosine. There are just two more
# lines, which freeze what only QAT has, one after the other ([M06-2](2_schedule.py) measures what happens without):
#
# - From step 100 on, `move_exported_model_to_eval` has BN use its running statistics; parameters get gradients as
#   before.
# - From step 160 on, `disable_observer` keeps the ranges of the fake quants, so that weights settle on steps that hold
#   still.
#
# It is a function, `train`, because our control will need the same code.

# %%
from torchao.quantization.pt2e import (
    disable_observer,
    move_exported_model_to_eval,
)

STEPS = 200
generator = torch.Generator().manual_seed(0)
epochs = [torch.randperm(len(images), generator=generator) for _ in range(4)]
batches = torch.cat(epochs).split(64)[:STEPS]


def train(gm):
    """Train the exported graph `gm` in place; the loss of each step."""
    optimizer = torch.optim.Adam(gm.parameters(), lr=1e-3)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    losses = []
    for step, chosen in enumerate(batches):
        if step == 100:
            move_exported_model_to_eval(gm)
        if step == 160:
            gm.apply(disable_observer)
        loss = F.cross_entropy(gm(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        cosine.step()
        losses.append(loss.item())
    return losses


losses = train(prepared)
first, last = losses[0], sum(losses[-20:]) / 20
assert last < first / 2, f"the loss went from {first:.2f} to {last:.2f}"

# %% tags=["plot"]
say(
    T(
        zh=f"第一步、參數還沒動時的 loss 是 {first:.2f}；最後 20 步的平均是 {last:.2f}。",
        en=f"At the first step, before any parameter moved, the loss was {first:.2f}; over the last 20 steps its mean was {last:.2f}.",
    )
)

# %% [markdown] lang="zh"
# ### 陷阱：評估會改動圖
#
# observer 在 `torch.no_grad()` 下照樣更新，BN 在訓練模式下也照樣累積統計量。所以訓練途中拿圖去評估，評估的資料就混進了
# 範圍（預測 3）。下面用還沒訓練的複本，先看一批正常的圖片，再「評估」一批亮度放大三倍的壞資料：

# %% [markdown] lang="en"
# ### Trap: evaluating changes the graph
#
# Observers keep updating under `torch.no_grad()`, and in training mode BN keeps gathering statistics. So if you
# evaluate a graph in the middle of training, its ranges take in the evaluation data (prediction 3). Below, a copy that
# hasn't been trained sees a batch of normal images and is then "evaluated" on bad data, three times as bright:

# %%
normal, bad = images[:64], 3 * images[64:128]
watched = copy.deepcopy(untrained)
first_place = next(
    name for name, _ in watched.named_modules() if "post_process_0" in name
)
of_input = watched.get_submodule(first_place)  # the fake quant on the input


def widest_after(batch):
    """The largest value of the input's range, once `batch` went through."""
    with torch.no_grad():
        watched(batch)
    return of_input.activation_post_process.max_val.item()


before, after = widest_after(normal), widest_after(bad)
assert after > before, "evaluating left the range alone"

move_exported_model_to_eval(watched)
watched.apply(disable_observer)  # the one from torchao
assert widest_after(bad) == after, "the range still moves"
with torch.no_grad():
    same = torch.equal(watched(normal), watched(normal))
assert same, "two evaluations of one batch differ"

# %% [markdown] lang="zh"
# 評估之前要先停兩樣東西：`move_exported_model_to_eval` 與 torchao 的 `disable_observer`。`torch.ao.quantization` 裡同名
# 的函式對 torchao 的模組什麼也不做（[M02-2](../m02_observers/2_fake_quant.py) 驗過）。訓練途中想評估，就拿
# `copy.deepcopy` 的複本來停。我們的 `prepared` 在第 160 步以後兩樣都停了，可以放心評估；還會動的只有 BN 數批次的計數
# 器，推論用不到它：

# %% [markdown] lang="en"
# Two things have to stop before you evaluate: `move_exported_model_to_eval` and torchao's `disable_observer`. The
# function of that name in `torch.ao.quantization` does nothing to torchao's modules
# ([M02-2](../m02_observers/2_fake_quant.py) has checked). To evaluate in the middle of training, stop them in a
# `copy.deepcopy`. In our `prepared` both have been stopped since step 160, so it is safe; all that still moves is BN's
# counter of batches, which inference doesn't use:


# %%
before = copy.deepcopy(prepared.state_dict())
with torch.no_grad():
    fake_quant_logits = prepared(test_images)
after = prepared.state_dict()
moved = {name for name in after if not after[name].equal(before[name])}
counters = {name for name in after if name.endswith("num_batches_tracked")}
assert moved <= counters, f"evaluating changed {moved - counters}"

# %% [markdown] lang="zh"
# ### 存檔與讀回
#
# 整張圖 pickle 不起來，要存 `state_dict`：參數、BN 統計量、fake quant 的範圍與開關都在裡面。不在裡面的是 BN 的模式，因
# 為它是圖上的引數。所以讀回的步驟是：用同樣的方法 prepare 一張新圖，先移到相同的模式，再 `load_state_dict`。下面先故意
# 漏掉模式：沒有任何訊息，算出來的卻不同；補上之後逐位元相同。

# %% [markdown] lang="en"
# ### Save and restore
#
# A graph as a whole can't be pickled. Save its `state_dict`: parameters, BN statistics, ranges and switches of the fake
# quants are all in it. What isn't in it is the mode of BN, which is an argument in the graph. So to restore, prepare a
# new graph the same way, move it to the same mode, then `load_state_dict`. The cell first leaves the mode out on
# purpose: there is no message, but the logits differ. With the mode set, they agree bit for bit.

# %%
pickled = message_of(lambda: torch.save(prepared, io.BytesIO()), Exception)
print(textwrap.fill(pickled, 76))
assert pickled != "no error", "torch.save takes whole graphs now"

file = io.BytesIO()
torch.save(prepared.state_dict(), file)
file.seek(0)
saved = torch.load(file, weights_only=True)

restored = copy.deepcopy(untrained)  # in a new process: prepare again
restored.load_state_dict(saved)
with torch.no_grad():
    forgotten = torch.equal(restored(test_images), fake_quant_logits)
assert not forgotten, "the mode of BN is in the state_dict after all"

move_exported_model_to_eval(restored)
restored.load_state_dict(saved)  # that forward has moved BN's statistics
with torch.no_grad():
    logits = restored(test_images)
assert torch.equal(logits, fake_quant_logits), "restored another model"

# %% [markdown] lang="zh"
# ## 步驟 4、5：convert，然後評估
#
# `convert_pt2e` 把 BN 折進 conv、把 fake quant 換成 q 與 dq。QAT 模型的 convert 比較慢，因為 torchao 0.18.0 會為
# conv-BN 的各種寫法匯出近百個小樣式，逐一比對（`qat_utils.py`；改寫的內容見
# [M04-2](../m04_batchnorm/2_qat_conv_bn.py)）。我們的模型只有 conv2d，所以借 `common.qat` 的 `conv2d_patterns_only` 略
# 過其他的樣式，圖相同，快得多；不加它，`convert_pt2e(prepared)` 一行就夠。
#
# **要報告的是這之後的準確率**：部署的是這張圖，不是訓練的那張。用 `FakeQuantize` 時兩者逐位元相同；換成預設的融合版就不
# 一定了（[M06-3](3_deployed_scales.py)）。

# %% [markdown] lang="en"
# ## Steps 4 and 5: convert, then evaluate
#
# `convert_pt2e` folds BN into the convolutions and puts q and dq in place of the fake quants. On a QAT model that is
# slow, because torchao 0.18.0 exports almost a hundred small patterns, one for each way to write conv-BN, and looks for
# each of them (`qat_utils.py`; [M04-2](../m04_batchnorm/2_qat_conv_bn.py) has the rewriting itself). Our model has
# conv2d only, so `conv2d_patterns_only` of `common.qat` skips all other patterns: the same graph, much sooner. Without
# it, the single line `convert_pt2e(prepared)` is all you need.
#
# **The accuracy to report is the one after it**: this graph gets deployed, not the one in training. With `FakeQuantize`
# the two agree bit for bit; with the fused default they may not ([M06-3](3_deployed_scales.py)).

# %%
from common.qat import conv2d_patterns_only

with conv2d_patterns_only():
    quantized = convert_pt2e(prepared)

with torch.no_grad():
    quantized_logits = quantized(test_images)
assert torch.equal(quantized_logits, fake_quant_logits), "convert moved it"

answers["QAT"] = quantized_logits.argmax(1) == test_labels
regained = (accuracy(answers["QAT"]) - accuracy(answers["PTQ"])) / lost
assert regained > 0.5, f"QAT brought back only {regained:.0%} of the loss"
assert torch.equal(right(model), answers["fp32"]), "the fp32 model changed"

# %% [markdown] lang="zh"
# ## 對照組：只多訓練 200 步呢？
#
# QAT 比 PTQ 多了兩件事：fake quant，以及 200 步訓練。要知道功勞是誰的，就讓 fp32 的複本用**同一個** `train`、同樣的批次
# 訓練同樣的步數，再做 PTQ。它的 fp32 準確率也一併列出，那是「多訓練 200 步」公平的比較對象。

# %% [markdown] lang="en"
# ## The control: what if we just train 200 more steps?
#
# QAT has two things that PTQ hasn't: fake quant, and 200 steps of training. To see which one gets the credit, a copy in
# fp32 is trained by the **same** `train`, on the same batches, for as many steps, and then quantized by PTQ. Its
# accuracy in fp32 is listed too; for a model that got 200 more steps, that is the fair comparison.

# %%
control = copy.deepcopy(model).train()
control_losses = train(export(control))  # shares the parameters of control
control.eval()
assert len(control_losses) == len(losses), "not the same number of steps"
answers["fp32, 200 more steps"] = right(control)
answers["control"] = right(four_bit_ptq(control))

# %% tags=["plot"]
ROWS = {
    "fp32": T(zh="fp32", en="fp32"),
    "fp32, 200 more steps": T(
        zh="fp32，多訓練 200 步", en="fp32, 200 more steps"
    ),
    "PTQ": T(zh="4 位元，PTQ", en="4 bits, PTQ"),
    "control": T(
        zh="4 位元，多訓練 200 步再 PTQ（對照組）",
        en="4 bits, 200 more steps, then PTQ (control)",
    ),
    "QAT": T(
        zh="4 位元，QAT 200 步，convert 之後",
        en="4 bits, 200 steps of QAT, after convert",
    ),
}
table(
    [[label, f"{accuracy(answers[name]):.2%}"] for name, label in ROWS.items()],
    [T(zh="模型", en="model"), T(zh="準確率", en="accuracy")],
    caption=T(
        zh="2000 張測試圖片上的準確率。4 位元指 weight，per-tensor。",
        en="Accuracy on 2000 test images. 4 bits means weights, per tensor.",
    ),
)

# %% [markdown] lang="zh"
# 差距是真的還是運氣？同一批圖片上逐張配對，算 95% 信賴區間（[M05-1](../m05_accuracy/1_evaluate.py)）；區間含 0 就不下結
# 論。下面的句子由程式依區間選出：

# %% [markdown] lang="en"
# Are the differences real, or luck? We pair the answers image by image and compute 95% confidence intervals
# ([M05-1](../m05_accuracy/1_evaluate.py)); where an interval contains 0, we don't conclude anything. The sentences
# below are chosen by code from the intervals:

# %%
founds = {
    name: paired_interval(answers[name], answers["QAT"])
    for name in ("PTQ", "control", "fp32, 200 more steps")
}
assert founds["PTQ"].verdict == "better", "QAT isn't better than PTQ"
to_control = paired_interval(answers["PTQ"], answers["control"])

# %% tags=["plot"]
SENTENCES = {
    ("PTQ", "better"): T(
        zh="**和 PTQ 比**：QAT 比較好，{points}。",
        en="**Against PTQ**: QAT is better, {points}.",
    ),
    ("PTQ", "worse"): T(
        zh="**和 PTQ 比**：QAT 反而比較差，{points}。",
        en="**Against PTQ**: QAT is worse, {points}.",
    ),
    ("PTQ", "unclear"): T(
        zh="**和 PTQ 比**：分不出高下，{points}。",
        en="**Against PTQ**: nothing to be seen, {points}.",
    ),
    ("control", "better"): T(
        zh="**和對照組比**：QAT 比較好，{points}。光是多訓練 200 步追不上，要帶著 fake quant 訓練。",
        en="**Against the control**: QAT is better, {points}. 200 more steps alone don't catch up; they have to be trained "
        "with fake quant in place.",
    ),
    ("control", "worse"): T(
        zh="**和對照組比**：QAT 比較差，{points}。光是多訓練 200 步再 PTQ 就更好，fake quant 沒有功勞。",
        en="**Against the control**: QAT is worse, {points}. 200 more steps and then PTQ do better; fake quant gets no credit.",
    ),
    ("control", "unclear"): T(
        zh="**和對照組比**：分不出高下，{points}。不能說功勞是 fake quant 的，也可能只是多訓練了 200 步。",
        en="**Against the control**: nothing to be seen, {points}. We can't credit fake quant; 200 more steps may be all there is to it.",
    ),
    ("fp32, 200 more steps", "better"): T(
        zh="**和多訓練 200 步的 fp32 比**：QAT 的 4 位元模型還更好，{points}。",
        en="**Against fp32 with 200 more steps**: the 4-bit model is even better, {points}.",
    ),
    ("fp32, 200 more steps", "worse"): T(
        zh="**和多訓練 200 步的 fp32 比**：QAT 的 4 位元模型差一些，{points}。這是 4 位元剩下的代價。",
        en="**Against fp32 with 200 more steps**: the 4-bit model is worse, {points}. That is what 4 bits still cost.",
    ),
    ("fp32, 200 more steps", "unclear"): T(
        zh="**和多訓練 200 步的 fp32 比**：這些圖片看不出差別，{points}。",
        en="**Against fp32 with 200 more steps**: these images show no difference, {points}.",
    ),
}


def points(found) -> T:
    change = in_points(found.change)
    interval = interval_in_points(found.low, found.high)
    return T(
        zh=f"{change} 個百分點 {interval}", en=f"{change} points {interval}"
    )


def conclusions(founds) -> list[T]:
    """One sentence for each model that QAT was compared with."""
    return [
        SENTENCES[name, found.verdict].format(points=points(found))
        for name, found in founds.items()
    ]


say(conclusions(founds))
say(
    T(
        zh=f"預測 1 的答案：PTQ 掉的 {100 * lost:.1f} 個百分點，QAT 救回了 {regained:.0%}。",
        en=f"The answer to prediction 1: of the {100 * lost:.1f} points that PTQ lost, QAT brought back {regained:.0%}.",
    ),
    T(
        zh=f"對照組和直接 PTQ 比：{points(to_control).zh}。",
        en=f"The control against plain PTQ: {points(to_control).en}.",
    ),
)

# %% [markdown] lang="zh"
# 對照組和直接 PTQ 若有差距，也不奇怪：fp32 的訓練同樣會移動 weight，範圍與捨入的誤差跟著變，可能變好也可能變壞，只是
# loss 看不到（這是推測，沒有量到）。
#
# 區間只涵蓋「換一批測試圖片」的運氣，不涵蓋「再訓練一次」的運氣：這一頁只訓練了一次。後者有多大，
# [M06-2](2_schedule.py) 會先量，再拿它來比較排程。
#
# ## 小結
#
# - 五步：訓練模式 export（先 deepcopy、範例至少 2 張）→ `prepare_qat_pt2e` → 訓練並依序凍結 → `convert_pt2e` → 評估。
# - 不出聲的陷阱：漏了 `is_qat`、沒有 deepcopy、評估時範圍還在動（或用了舊的 `disable_observer`）、`state_dict` 不含 BN
#   的模式。訓練前用 `check_fake_quant` 擋住第一個。
# - 存 `state_dict`，不存整張圖；讀回前先移到相同的模式。
# - 只報告 convert 之後的準確率，並附上「同樣步數的 fp32」當對照。

# %% [markdown] lang="en"
# If the control differs from plain PTQ, that is no surprise: training in fp32 moves weights too, and with them ranges
# and rounding errors, for better or worse; the loss just doesn't see it (our inference, not measured).
#
# The intervals cover the luck of the test images only, not that of training once more: this page trained once. How much
# luck that is, [M06-2](2_schedule.py) measures before it compares schedules.
#
# ## Recap
#
# - Five steps: export in training mode (deepcopy first, at least 2 example images) → `prepare_qat_pt2e` → train, and
#   freeze one thing after the other → `convert_pt2e` → evaluate.
# - Silent traps: `is_qat` left out, no deepcopy, ranges that move while you evaluate (or the old `disable_observer`), a
#   `state_dict` without the mode of BN. `check_fake_quant` before training stops the first one.
# - Save the `state_dict`, not the graph; to restore it, move to the same mode first.
# - Report only the accuracy after convert, next to fp32 trained for as many steps.

# %% [markdown] lang="zh"
# ## 試試看
#
# [概覽](0_overview.py)說要先試便宜的做法。後端如果收 per-channel，4 位元的 PTQ 改成 per-channel，和 QAT 的 per-tensor
# 比，差多少？需要訓練嗎？

# %% [markdown] lang="en"
# ## Try it
#
# The [overview](0_overview.py) says to try what is cheaper first. If the backend takes per-channel weights: how does
# 4-bit PTQ per channel compare with QAT per tensor? Is training needed at all?

# %% tags=["solution"]
per_channel = get_symmetric_quantization_config(
    is_per_channel=True, **FOUR_BITS
)
cheap = ptq(
    export(model),
    PTQQuantizer().set_global(per_channel),
    calibration_batches(256),
)
answers["PTQ per channel"] = right(cheap)
to_qat = paired_interval(answers["PTQ per channel"], answers["QAT"])
share = accuracy(answers["PTQ per channel"])
assert share > accuracy(answers["PTQ"]) + 0.1, "per channel didn't help"

EFFORT = {
    "better": T(
        zh="QAT 好 {points}。值不值得一次訓練，看你要的是多少。",
        en="QAT is better by {points}. Whether that is worth a training depends on what you need.",
    ),
    "unclear": T(
        zh="和 QAT 分不出高下（{points}）：不必訓練。",
        en="QAT shows no difference ({points}): no training is needed.",
    ),
    "worse": T(
        zh="QAT 還差一些（{points}）：不必訓練。",
        en="QAT is even worse ({points}): no training is needed.",
    ),
}
say(
    T(
        zh=f"4 位元 PTQ 改成 per-channel，準確率是 {share:.1%}。",
        en=f"With per-channel weights, 4-bit PTQ gets {share:.1%}.",
    ),
    EFFORT[to_qat.verdict].format(points=points(to_qat)),
)

# %% [markdown] lang="zh"
# ## 接下來
#
# 第 100 步、第 160 步不凍結會怎樣：[M06-2](2_schedule.py)。為什麼不用預設的融合版：[M06-3](3_deployed_scales.py)。回到
# [M06 概覽](0_overview.py)。

# %% [markdown] lang="en"
# ## Next
#
# What if nothing is frozen at steps 100 and 160: [M06-2](2_schedule.py). Why not the fused default:
# [M06-3](3_deployed_scales.py). Back to the [M06 overview](0_overview.py).
