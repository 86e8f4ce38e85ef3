# %% [markdown] lang="zh"
# # M04-3 | 匯出的圖怎麼在 train 與 eval 之間切換
#
# 一般的模型有 `.train()` 和 `.eval()`：forward 每次都看 `training` 這個旗標。匯出之後，旗標的值已經寫死在圖裡。QAT
# 卻得來回切換：訓練一段、評估、再訓練，最後 convert。這一頁看怎麼切，以及切換時默默弄丟了什麼。
#
# **讀完你會知道**
#
# - 模式寫在圖的哪裡，為什麼 `.eval()` 幫不上忙
# - BN（BatchNorm）的 running_mean、running_var 何時更新、更新成多少
# - 怎麼用 `move_exported_model_to_eval`、`move_exported_model_to_train`，它們切得動哪些 op
# - 一個小檢查：同一份輸入餵兩次，抓出沒切好的圖

# %% [markdown] lang="en"
# # M04-3 | Moving an exported graph between train and eval
#
# An ordinary model has `.train()` and `.eval()`: each forward looks at the flag `training`. After export, the value of
# the flag is fixed in the graph. Yet QAT has to go back and forth: train a while, evaluate, train on, and finally
# convert. This page shows how to switch, and what gets lost silently on the way.
#
# **What you will know**
#
# - Where in the graph the mode is, and why `.eval()` doesn't help
# - When running_mean and running_var of BN (BatchNorm) are updated, and to what
# - How to use `move_exported_model_to_eval` and `move_exported_model_to_train`, and which ops they move
# - A small check, the same input twice, that catches a graph that wasn't moved properly

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 在訓練模式下匯出的圖，呼叫 `.eval()` 會怎樣？先 `copy.deepcopy` 再呼叫呢？
# 2. 圖上有一個 $p = 0.1$ 的 dropout。切到 eval 再切回 train，$p$ 是多少？
# 3. BN 還在訓練模式，沒有 dropout。同一批圖片餵兩次，輸出相同嗎？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. A graph was exported in training mode. What happens when you call `.eval()`? And after a `copy.deepcopy`?
# 2. There is a dropout with $p = 0.1$ in the graph. After a move to eval and back to train, what is $p$?
# 3. BN is still in training mode, and there is no dropout. The same batch of images goes in twice. Is the output the
#    same?

# %% tags=["setup"]
import copy
import textwrap

from common.data import calibration_batches
from common.env import quiet
from common.viz import T, graph, table

import torch
from torch import nn

quiet()
torch.manual_seed(0)
aten = torch.ops.aten
((images,),) = calibration_batches(32, batch_size=32)

# %% [markdown] lang="zh"
# ## 模式寫在引數裡
#
# 例子是 conv → BN → relu → dropout。兩種模式各匯出一次，讀出圖上 `batch_norm` 與 `dropout` 的引數：

# %% [markdown] lang="en"
# ## The mode is an argument
#
# Our example is conv → BN → ReLU → dropout. We export it once in each mode and read the arguments of `batch_norm` and
# `dropout`:


# %%
class Small(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.dropout = dropout

    def forward(self, x):
        return self.dropout(self.bn(self.conv(x)).relu())


def export(model):
    return torch.export.export(model, (images,)).module()


def switchable(gm):
    """BN and dropout nodes of a graph, in order."""
    dropout = (aten.dropout.default, aten.dropout_.default)
    ops = (aten.batch_norm.default, *dropout)
    return [node for node in gm.graph.nodes if node.target in ops]


def modes(gm):
    """(op, training, and its numbers: momentum and eps, or p)."""
    found = []
    for node in switchable(gm):
        if node.target is aten.batch_norm.default:
            found.append(("batch_norm", *node.args[5:8]))
        else:
            p, training = node.args[1:3]
            found.append(("dropout", training, p))
    return found


model = Small(nn.Dropout(0.1))
in_train, in_eval = export(model.train()), export(model.eval())
as_trained = [("batch_norm", True, 0.1, 1e-5), ("dropout", True, 0.1)]
as_inference = [("batch_norm", False, 0.1, 1e-5), ("dropout", False, 0.1)]
assert modes(in_train) == as_trained, modes(in_train)
assert modes(in_eval) == as_inference, modes(in_eval)
assert in_train.training and in_eval.training, "the flag knows the mode"

# %% [markdown] lang="zh"
# 訓練與否只是 op 的一個引數。圖自己的 `training` 旗標兩張都是 `True`：沒有人讀它，不能拿來判斷模式。
#
# ## BN 的 buffer 何時更新
#
# `batch_norm` 的這個引數是 `True` 時，它用這一批的平均與變異數做正規化，並順手改寫 running_mean、running_var：
#
# $$\mu_{\text{run}} \leftarrow (1 - m)\,\mu_{\text{run}} + m\,\mu_{\text{batch}}, \qquad \sigma^2_{\text{run}} \leftarrow (1 - m)\,\sigma^2_{\text{run}} + m\,\sigma^2_{\text{batch}} \tag{1}$$
#
# $m$ 是 momentum。更新是前向的副作用，和梯度無關，`torch.no_grad()` 擋不住；圖和原模型共用這些 buffer，所以改的也是原模
# 型的。

# %% [markdown] lang="en"
# Training or not is just an argument of an op. The graph's own flag `training` is `True` for both: nobody reads it, and
# it doesn't tell the mode.
#
# ## When BN's buffers are updated
#
# With that argument `True`, `batch_norm` normalizes with the mean and variance of this batch, and on the side
# overwrites running_mean and running_var:
#
# $$\mu_{\text{run}} \leftarrow (1 - m)\,\mu_{\text{run}} + m\,\mu_{\text{batch}}, \qquad \sigma^2_{\text{run}} \leftarrow (1 - m)\,\sigma^2_{\text{run}} + m\,\sigma^2_{\text{batch}} \tag{1}$$
#
# where $m$ is the momentum. The update is a side effect of the forward pass and has nothing to do with gradients, so
# `torch.no_grad()` doesn't prevent it. The graph shares these buffers with the original model, which is therefore
# changed as well.

# %%
m = model.bn.momentum
with torch.no_grad():
    z = model.conv(images)
mean = (1 - m) * model.bn.running_mean + m * z.mean((0, 2, 3))
variance = (1 - m) * model.bn.running_var + m * z.var((0, 2, 3))

with torch.no_grad():
    in_eval(images)  # no update
    in_train(images)  # one update
assert torch.allclose(model.bn.running_mean, mean, atol=1e-5), "not (1)"
assert torch.allclose(model.bn.running_var, variance, rtol=1e-4), "not (1)"

# %% [markdown] lang="zh"
# 拿訓練模式的圖「評估」一次，統計量就被測試資料動過了。
#
# ## `.eval()` 不行，要用 `move_exported_model_to_eval`
#
# `torch.export` 把 `.train()`、`.eval()` 換成會丟出例外的版本（預測 1 的前半），prepare 之後又換一次，訊息裡指出正確的
# 做法：

# %% [markdown] lang="en"
# "Evaluate" just once with a graph in training mode, and the test data has moved the statistics.
#
# ## Not `.eval()` but `move_exported_model_to_eval`
#
# `torch.export` replaces `.train()` and `.eval()` by versions that raise, which settles the first half of prediction 1.
# Prepare does so again, with a message that names the right call:

# %%
from common.quantizers import PTQQuantizer

from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

config = get_symmetric_quantization_config(is_per_channel=True)
quantizer = PTQQuantizer().set_global(config)  # a quicker XNNPACKQuantizer
prepared = prepare_pt2e(export(model.train()), quantizer)


def error_of(call):
    try:
        call()
    except NotImplementedError as error:
        return f"NotImplementedError: {' '.join(str(error).split())}"
    return "no error"


messages = [error_of(call) for call in (in_train.eval, prepared.eval)]
assert "not supported" in messages[0] and "move_exported" in messages[1]
for message in messages:
    print(textwrap.fill(message, 76, max_lines=4))

# %%
from torchao.quantization.pt2e import (
    move_exported_model_to_eval,
    move_exported_model_to_train,
)

exported = export(model.train())
stages = [modes(exported)]
after_export = copy.deepcopy(exported)  # to draw it: moving edits the graph

moved = move_exported_model_to_eval(exported)
stages.append(modes(exported))
after_eval = copy.deepcopy(exported)
assert moved is exported, "it made a new graph"
move_exported_model_to_eval(exported)  # again: no harm
assert modes(exported) == stages[-1], "calling twice does something"

move_exported_model_to_train(exported)
stages.append(modes(exported))
flags = [[training for _, training, *_ in stage] for stage in stages]
assert flags == [[True, True], [False, False], [True, True]], flags
assert [stage[1][2] for stage in stages] == [0.1, 0.5, 0.5], "p was kept"


# %% tags=["plot"]
def noted(gm):
    """The mode of each node, to write it into its box."""
    position = {aten.batch_norm.default: 5, aten.dropout.default: 2}
    return {
        node.name: f"training={node.args[position[node.target]]}"
        for node in switchable(gm)
    }


graph(
    [(T(zh="export 之後", en="After export"), after_export)],
    names=True,
    notes=noted(after_export),
    alt=T(
        zh="x、conv2d、batch_norm、relu、dropout、輸出；batch_norm 與 dropout 註明 training=True。",
        en="x, conv2d, batch_norm, relu, dropout, output; batch_norm and dropout say training=True.",
    ),
)
graph(
    [
        (
            T(
                zh="move_exported_model_to_eval 之後",
                en="After move_exported_model_to_eval",
            ),
            after_eval,
        )
    ],
    names=True,
    notes=noted(after_eval),
    alt=T(
        zh="同樣的圖，但 batch_norm 與 dropout 註明 training=False，名字後面多了編號。",
        en="The same graph, but batch_norm and dropout say training=False, and their names carry a number.",
    ),
    caption=T(
        zh="切換是改寫圖：batch_norm 與 dropout 換成了新的 node。`add_` 數 batch（num_batches_tracked），兩種模式都在。",
        en="Moving rewrites the graph: batch_norm and dropout are new nodes. `add_` counts batches (num_batches_tracked) in both.",
    ),
)
table(
    [
        [
            T(zh=zh, en=en),
            f"{bn[1]}, {bn[2]}, {bn[3]}",
            f"{drop[1]}, {drop[2]}",
        ]
        for (bn, drop), zh, en in zip(
            stages,
            ("export 之後", "切到 eval", "再切回 train"),
            ("after export", "to eval", "back to train"),
            strict=True,
        )
    ],
    [
        "",
        T(zh="BN：training, momentum, eps", en="BN: training, momentum, eps"),
        T(zh="dropout：training, p", en="dropout: training, p"),
    ],
)

# %% [markdown] lang="zh"
# 兩個函式找出 BN 與 dropout 的 node，換成另一種模式的 node，直接改你給的圖，並回傳它。重複呼叫無妨，export、prepare、
# convert 之後的圖都能用。
#
# 看表的最後一欄：$p$ 從 0.1 變成 0.5，切回來也沒有恢復（預測 2）。後面再修，先做一個抓得到錯誤模式的檢查。
#
# ## 檢查：同一份輸入餵兩次
#
# eval 模式的圖沒有記憶：同樣的輸入，同樣的輸出，也不改變自己。dropout 還開著，兩次輸出不同；BN 還在訓練，統計量會動。檢
# 查在複本上做，看過之後原圖不變：

# %% [markdown] lang="en"
# Both functions look for BN and dropout nodes and replace them by nodes of the other mode. They edit the graph you give
# them and return it. Calling twice does no harm, and they work on exported, prepared and converted graphs.
#
# Look at the last column of the table: $p$ went from 0.1 to 0.5 and didn't come back (prediction 2). We will repair
# that below. First a check that notices a wrong mode.
#
# ## The check: the same input twice
#
# In eval mode a graph has no memory: same input, same output, and it doesn't change itself. With dropout on, two
# outputs differ; with BN in training, statistics move. The check works on a copy, so that looking leaves the graph
# alone:


# %%
def check_eval(gm, *inputs):
    """Fail unless `gm` computes as in eval mode. Observers must be off."""
    gm = copy.deepcopy(gm)
    buffers = dict(gm.named_buffers())
    before = {n: b.clone() for n, b in buffers.items() if "running_" in n}
    with torch.no_grad():
        first, second = gm(*inputs), gm(*inputs)
    assert torch.equal(first, second), "two outputs: dropout is on"
    for name, value in before.items():
        assert torch.equal(buffers[name], value), f"{name} moved: BN trains"


def verdict(gm):
    try:
        check_eval(gm, images)
    except AssertionError as error:
        return str(error)
    return "eval"


only_bn = export(Small(nn.Identity()).train())
with torch.no_grad():
    same = torch.equal(only_bn(images), only_bn(images))
assert same, "prediction 3: the output depends on running statistics"
mean = only_bn.get_buffer("bn.running_mean").clone()

assert "bn.running_mean moved" in verdict(only_bn), "BN went unnoticed"
assert "dropout is on" in verdict(exported), "dropout went unnoticed"
assert torch.equal(only_bn.get_buffer("bn.running_mean"), mean), "touched"
for gm in (only_bn, exported):
    assert verdict(move_exported_model_to_eval(gm)) == "eval", verdict(gm)

# %% [markdown] lang="zh"
# 預測 3 的答案：相同。訓練模式的 BN 只看這一批，不看 running 統計量，同一批餵兩次當然一樣；所以檢查還要看統計量有沒有
# 動。
#
# ## 陷阱：複本的 `.eval()` 不出聲
#
# 會丟出例外的 `.eval()` 掛在物件上，`copy.deepcopy` 不會帶走。複本的 `.eval()` 是 `nn.Module` 原來的那一個：只改旗標，圖照
# 樣在訓練模式，一句話也沒有。這是預測 1 的後半。解法是別用它：

# %% [markdown] lang="en"
# The answer to prediction 3 is yes. In training mode BN looks at this batch only and not at its running statistics, so
# the same batch gives the same output; that is why the check looks at the statistics, too.
#
# ## Trap: `.eval()` of a copy says nothing
#
# The `.eval()` that raises is attached to the object, and `copy.deepcopy` doesn't take it along. The copy's `.eval()`
# is that of `nn.Module`: it changes the flag, the graph stays in training mode, and there is no message. That is the
# second half of prediction 1. The remedy is not to use it:

# %%
duplicate = copy.deepcopy(export(model.train()))
assert error_of(duplicate.eval) == "no error"
assert duplicate.training is False, "not even the flag changed"
assert modes(duplicate) == as_trained, "it moved the graph"
assert "dropout is on" in verdict(duplicate), "dropout went unnoticed"

move_exported_model_to_eval(duplicate)
assert verdict(duplicate) == "eval", "the copy was not moved"

# %% [markdown] lang="zh"
# `allow_exported_model_train_eval` 讓 `.train()`、`.eval()` 改呼叫這兩個 move 函式，方便套用現成的訓練迴圈。但它們不像
# `nn.Module` 的回傳自己，而是回傳 `None`：寫成 `gm = gm.eval()`，模型就沒了。而且它同樣掛在物件上，複本又變回不出聲的
# `.eval()`：

# %% [markdown] lang="en"
# `allow_exported_model_train_eval` makes `.train()` and `.eval()` call the two move functions, which is handy with an
# existing training loop. But where those of `nn.Module` return the module, these return `None`: write `gm = gm.eval()`,
# and the model is gone. And they are attached to the object as well, so a copy is back to the silent `.eval()`:

# %%
from torchao.quantization.pt2e import allow_exported_model_train_eval

allowed = export(model.train())
allow_exported_model_train_eval(allowed)
assert allowed.eval() is None, "it returns something"
assert verdict(allowed) == "eval", "it didn't move"
assert allowed.train() is None, "it returns something"
assert "dropout is on" in verdict(allowed), "it didn't move back"

duplicate = copy.deepcopy(allowed)
duplicate.eval()
assert "dropout is on" in verdict(duplicate), "the copy was moved"

# %% [markdown] lang="zh"
# ## 陷阱：數字被換成預設值
#
# 換上去的 node 來自一個範本，裡面的數字是預設值：dropout 的 $p$ 是 0.5，BN 的 momentum 是 0.1、eps 是 1e-5；比對時又不
# 看數字。模式沒錯，所以上面的檢查抓不到；拿原模型比輸出，抓得到 eps，抓不到只在訓練時有作用的 $p$ 與 momentum。可靠的是
# 切換前後比引數，順手寫回去：

# %% [markdown] lang="en"
# ## Trap: numbers become defaults
#
# The new nodes come from a template with default numbers, $p = 0.5$ for dropout, momentum 0.1 and eps 1e-5 for BN, and
# matching ignores numbers. The mode is right, so the check above doesn't notice. Comparing outputs with the original
# model reveals eps, but not $p$ and momentum, which act in training only. The reliable way is to compare the
# arguments from before and after, and to write them back:


# %%
def keeping_numbers(move, gm):
    """Call `move(gm)`, then put momentum, eps and p back."""
    numbers = [rest for _, _, *rest in modes(gm)]
    move(gm)
    for node, old in zip(switchable(gm), numbers, strict=True):
        first = 6 if node.target is aten.batch_norm.default else 1
        for position, number in enumerate(old, start=first):
            node.update_arg(position, number)
    gm.recompile()
    return gm


special = Small(nn.Dropout(0.1))
special.bn.momentum, special.bn.eps = 0.03, 0.1
lost, kept = export(special.train()), export(special.train())
move_exported_model_to_eval(lost)
keeping_numbers(move_exported_model_to_eval, kept)

defaults = [("batch_norm", False, 0.1, 1e-5), ("dropout", False, 0.5)]
own = [("batch_norm", False, 0.03, 0.1), ("dropout", False, 0.1)]
assert modes(lost) == defaults, "the numbers survive now"
assert modes(kept) == own, "the numbers were not put back"
assert verdict(lost) == verdict(kept) == "eval", "the check sees numbers"

special.eval()
with torch.no_grad():
    right, with_defaults, with_own = (
        gm(images) for gm in (special, lost, kept)
    )
assert torch.allclose(with_own, right, atol=1e-5), "something else is lost"
assert not torch.allclose(with_defaults, right, atol=1e-3), "eps was kept"

# %% [markdown] lang="zh"
# `keeping_numbers` 保住的是切換當下的數字，所以每次切換都要用它。它救不回更早就丟掉的：QAT 改寫過的 conv-BN 裡，eps 與
# momentum 早在 prepare 就換成了預設值（[M04-2](2_qat_conv_bn.py) 有匯出前的辦法）。
#
# ## 陷阱：只認得兩種 op
#
# 能切的只有 `aten.batch_norm` 和 `aten.dropout`（包括 inplace 的 `dropout_`）。`nn.Dropout2d` 在圖上是另一個 op，切換時默默略
# 過。檢查抓得到；解法是自己改引數：

# %% [markdown] lang="en"
# `keeping_numbers` preserves the numbers as they are at the time of the move, so use it for every move. It can't bring
# back what was lost earlier: in the conv-BN that QAT rewrites, prepare already replaced eps and momentum by the defaults
# ([M04-2](2_qat_conv_bn.py) has a remedy before export).
#
# ## Trap: it knows two ops
#
# `aten.batch_norm` and `aten.dropout` (with its in-place `dropout_`) are all it can move. `nn.Dropout2d` is another op in
# the graph and is skipped silently. The check notices; the remedy is to set the argument ourselves:

# %%
channels = export(Small(nn.Dropout2d(0.1)).train())
move_exported_model_to_eval(channels)
assert "dropout is on" in verdict(channels), "it can move Dropout2d now"

for node in channels.graph.nodes:
    if node.target is aten.feature_dropout.default:
        node.update_arg(2, False)  # (input, p, train)
channels.recompile()
assert verdict(channels) == "eval", "Dropout2d is still on"

# %% [markdown] lang="zh"
# ## convert 不替你切
#
# 前面的 `prepared` 是在訓練模式下匯出的 PTQ 圖。BN 折掉了，dropout 卻一路帶到 convert 之後，每次推論都混進雜
# 訊。convert 前後都可以切，最後用檢查收尾：

# %% [markdown] lang="en"
# ## Convert doesn't move for you
#
# `prepared` above is a PTQ graph that was exported in training mode. BN was folded, but dropout stays all the way
# through convert and adds noise to every inference. Moving it before or after convert will do; end with the check:

# %%
with torch.no_grad():
    prepared(images)
quantized = convert_pt2e(prepared)
assert modes(quantized) == [("dropout", True, 0.1)], modes(quantized)
assert "dropout is on" in verdict(quantized), "convert moved it"

move_exported_model_to_eval(quantized)
check_eval(quantized, images)

# %% [markdown] lang="zh"
# 放進 QAT 的流程（迴圈本身在 [M06-1](../m06_qat/1_qat_loop.py)）：
#
# | 何時 | 呼叫 |
# | --- | --- |
# | 匯出之前 | `model.train()`，檢查 eps、momentum（[M04-2](2_qat_conv_bn.py)） |
# | 評估之前 | `keeping_numbers(move_exported_model_to_eval, prepared)`，關掉 observer |
# | 繼續訓練之前 | `keeping_numbers(move_exported_model_to_train, prepared)`，打開 observer |
# | convert 之前 | `move_exported_model_to_eval(prepared)` |
# | convert 之後 | `check_eval(quantized, images)` |
#
# ## 小結
#
# - 模式是 `batch_norm`、`dropout` 的引數，由 `move_exported_model_to_eval`、`move_exported_model_to_train` 改
#   寫；`gm.training` 不可信。
# - `.eval()` 在 export、prepare 之後會丟出例外，在複本上則不出聲也不切換；`allow_exported_model_train_eval` 之後回
#   傳 `None`。
# - 訓練模式的 BN 每次前向都更新統計量，`no_grad` 也一樣，原模型的 buffer 跟著變。
# - 切換會把 $p$、momentum、eps 換成預設值，並略過其他種類的 dropout。
# - 同一份輸入餵兩次，輸出要相同，統計量要不動；數字則要比引數。

# %% [markdown] lang="en"
# In the course of QAT (the loop itself is in [M06-1](../m06_qat/1_qat_loop.py)):
#
# | When | Call |
# | --- | --- |
# | before export | `model.train()`, check eps and momentum ([M04-2](2_qat_conv_bn.py)) |
# | before evaluating | `keeping_numbers(move_exported_model_to_eval, prepared)`, observers off |
# | before training on | `keeping_numbers(move_exported_model_to_train, prepared)`, observers on |
# | before convert | `move_exported_model_to_eval(prepared)` |
# | after convert | `check_eval(quantized, images)` |
#
# ## Recap
#
# - The mode is an argument of `batch_norm` and `dropout`, rewritten by `move_exported_model_to_eval` and
#   `move_exported_model_to_train`; don't trust `gm.training`.
# - `.eval()` raises after export and prepare. On a copy it neither raises nor moves anything; after
#   `allow_exported_model_train_eval` it returns `None`.
# - BN in training mode updates its statistics with each forward pass, `no_grad` or not, and the original model's
#   buffers with them.
# - Moving turns $p$, momentum and eps into defaults, and skips other kinds of dropout.
# - The same input twice must give the same output and move no statistics; for the numbers, compare arguments.

# %% [markdown] lang="zh"
# ## 試試看
#
# 下面的模型在 attention 裡用了 dropout，寫法很常見。在訓練模式下匯出，切到 eval。檢查會說什麼？圖上哪個引數要改？

# %% [markdown] lang="en"
# ## Try it
#
# This model has dropout inside attention, in a common way. Export it in training mode and move it to eval. What does
# the check say? Which argument in the graph has to change?


# %%
class Attention(nn.Module):
    def forward(self, x):
        p = 0.1 if self.training else 0.0
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=p)


# %% tags=["solution"]
attention = move_exported_model_to_eval(export(Attention().train()))
assert "dropout is on" in verdict(attention), "it was moved"

(node,) = attention.graph.find_nodes(
    op="call_function", target=aten.scaled_dot_product_attention.default
)
assert node.args[4] == 0.1, node.args  # (query, key, value, mask, p)
node.update_arg(4, 0.0)
attention.recompile()
assert verdict(attention) == "eval", "the number was not it"
with torch.no_grad():
    assert torch.allclose(attention(images), Attention().eval()(images))

# %% [markdown] lang="zh" tags=["solution"]
# 匯出走的是 `self.training` 為真的那一邊，圖上只剩 $p = 0.1$ 這個數字，沒有旗標可切，move 函式也不認得這個 op。改成
# 0.0 就好；要再訓練，得自己改回來。

# %% [markdown] lang="en" tags=["solution"]
# Export took the branch where `self.training` is true. All that is left in the graph is the number 0.1: there is no
# flag to move, and the move functions don't know the op. Setting it to 0.0 is enough; to train on, you have to put it
# back yourself.

# %% [markdown] lang="zh"
# ## 接下來
#
# 這一章到此為止，[M04 概覽](0_overview.py)列了四頁各回答什麼。下一章 [M05](../m05_accuracy/0_overview.py) 談量化之後準不準、
# 該怪誰；用這一頁的函式訓練整個模型在 [M06](../m06_qat/0_overview.py)。原始碼：torchao
# 0.18.0，`torchao/quantization/pt2e/export_utils.py`。

# %% [markdown] lang="en"
# ## Next
#
# This ends the chapter; the [M04 overview](0_overview.py) lists what its pages answer. The next one,
# [M05](../m05_accuracy/0_overview.py), asks how good a quantized model is, and who is to blame. Training a whole model
# with the functions of this page is [M06](../m06_qat/0_overview.py). The source:
# `torchao/quantization/pt2e/export_utils.py` of torchao 0.18.0.
