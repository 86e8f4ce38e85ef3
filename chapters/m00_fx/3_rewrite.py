# %% [markdown] lang="zh"
# # M00-3 | 改圖：插入、換線、刪除，再寫一個自己的 observer
#
# `prepare_pt2e` 和 `convert_pt2e` 都只是改圖的程式，也就是 pass。這一頁先學改圖的五個動作，再把四種典型的失誤各犯一次：
# 它們之中只有兩種會丟出錯誤。最後用二十來行寫出自己的「prepare」：在輸入與每個 op 後面插一個記錄範圍的模組，和 torchao
# 的 observer 對答案。
#
# | 問題 | 這一頁的哪一節 |
# | --- | --- |
# | 改圖的步驟是什麼？ | 五個動作 |
# | 哪些失誤沒有錯誤訊息？ | 忘了 recompile、換線換到自己、落在 output 後面 |
# | prepare 是怎麼做到的？ | 自己的 observer、和 MinMaxObserver 對答案 |
#
# **讀完你會知道**
#
# - 在圖上插入、取代、刪除一個 node 的正確寫法
# - `lint()` 抓得到哪些錯，抓不到哪些
# - observer 的核心有多小，`prepare_pt2e` 比它多做了什麼

# %% [markdown] lang="en"
# # M00-3 | Rewriting: insert, rewire, erase, and an observer of our own
#
# `prepare_pt2e` and `convert_pt2e` are nothing but programs that edit a graph: passes. On this page we learn the five
# moves of an edit and then make each of four classic mistakes; only two of them raise an error. At the end we write a
# "prepare" of our own in some twenty lines: it puts a module that records ranges after the input and after every op,
# and we compare it with torchao's observer.
#
# | Question | Section of this page |
# | --- | --- |
# | What are the steps of an edit? | Five moves |
# | Which mistakes raise no error? | A forgotten recompile, A node rewired to itself, After the output |
# | How does prepare do it? | An observer of our own, Checked against MinMaxObserver |
#
# **What you will know**
#
# - How to insert, replace and erase a node correctly
# - Which errors `lint()` catches and which it doesn't
# - How small the core of an observer is, and what `prepare_pt2e` does on top

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 改了圖，忘了 `recompile()`，接著呼叫：出錯、舊的結果，還是新的結果？
# 2. 建立 node 時沒說放在哪裡，它會落在哪？`lint()` 會抱怨嗎？
# 3. 在 TinyConvNet 的輸入與每個 op 後面都插一個原樣回傳輸入的模組，輸出會變多少？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. You edit a graph, forget `recompile()`, and call it: an error, the old result, or the new one?
# 2. You create a node without saying where. Where does it land? Does `lint()` complain?
# 3. After the input and after every op of TinyConvNet you put a module that returns its input as it is. How much does
#    the output change?

# %% tags=["setup"]
import copy
import textwrap

from common.data import calibration_batches, test_data
from common.env import quiet
from common.models import example_inputs, get_model, trained_tinyconvnet
from common.viz import T, graph, say, table

import torch
from torch import fx, nn

quiet()
aten = torch.ops.aten


def error_of(call):
    """What the call raises: the error's class and the message's first line."""
    try:
        call()
    except Exception as error:
        line = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return textwrap.fill(line, 76)
    raise AssertionError("no error was raised")


def find(gm, name):
    """The node of that name."""
    (node,) = (node for node in gm.graph.nodes if node.name == name)
    return node


# %% [markdown] lang="zh"
# ## 五個動作
#
# 練習用的模型只有三個 op：`relu(x + 1) * 2`。要在 relu 後面插一個取負號的 neg，分三步：在 relu 後面建立
# node（`inserting_after` 決定位置）；把 relu 的使用者換成 neg，但 neg 自己除外；最後檢查、產生程式。

# %% [markdown] lang="en"
# ## Five moves
#
# Our practice model has just three ops: `relu(x + 1) * 2`. To insert a neg after the relu takes three steps: create the
# node after relu (`inserting_after` sets the place); hand the users of relu over to neg, except neg itself; then check
# and generate the code.


# %%
class ThreeOps(nn.Module):
    def forward(self, x):
        return torch.relu(x + 1) * 2


def fresh():
    return torch.export.export(ThreeOps(), (torch.rand(3),)).module()


x = torch.tensor([-3.0, 0.0, 2.0])
gm = fresh()
assert torch.equal(gm(x), ThreeOps()(x))
start = copy.deepcopy(gm)  # to draw it

# %%
relu = find(gm, "relu")
with gm.graph.inserting_after(relu):
    neg = gm.graph.call_function(aten.neg.default, (relu,))
inserted = copy.deepcopy(gm)

relu.replace_all_uses_with(neg, delete_user_cb=lambda user: user is not neg)
gm.graph.lint()
gm.recompile()
assert torch.equal(gm(x), -torch.relu(x + 1) * 2), "neg is not on the path"

# %% tags=["plot"]
graph(
    [
        (T(zh="匯出的圖", en="Exported"), start),
        (T(zh="插入", en="Inserted"), inserted),
        (T(zh="換線", en="Rewired"), gm),
    ],
    alt=T(
        zh="三個階段。匯出：x、add、relu、mul、output 一直線。插入：relu 另外連到一個沒有使用者的 neg。換線：relu 經過 neg 才到 mul。",
        en="Three stages. Exported: x, add, relu, mul, output in a line. Inserted: relu also leads to a neg that nobody uses. "
        "Rewired: relu reaches mul through neg.",
    ),
    caption=T(
        zh="插入只是多一個 node；換線之後它才在路上。",
        en="Inserting only adds a node; it is on the path only once the users of relu are rewired.",
    ),
)

# %% [markdown] lang="zh"
# 取代一個 node，是插入、換線再加上**刪除**。順序不能反：還有使用者的 node 不給刪，因為刪掉之後使用者的 `args` 就沒有東
# 西可指了。

# %% [markdown] lang="en"
# To replace a node is to insert, to rewire and then to **erase**. In that order: a node that still has users can't be
# erased, since their `args` would refer to nothing.

# %%
gm = fresh()
relu = find(gm, "relu")
print(error_of(lambda: gm.graph.erase_node(relu)))

with gm.graph.inserting_before(relu):
    sigmoid = gm.graph.call_function(aten.sigmoid.default, relu.args)
relu.replace_all_uses_with(sigmoid)
gm.graph.erase_node(relu)  # nobody uses it anymore
gm.graph.lint()
gm.recompile()
assert torch.equal(gm(x), torch.sigmoid(x + 1) * 2)

# %% [markdown] lang="zh"
# 這是四種失誤的第一種：**刪了還有使用者的 node**，會丟出錯誤，而且說得出是誰還在用。接下來三種比較難纏。
#
# ## 忘了 recompile
#
# 圖改好了，`forward` 還是舊的：

# %% [markdown] lang="en"
# That was the first of our four mistakes: **erasing a node that has users** raises an error, and it names the user. The
# other three are trickier.
#
# ## A forgotten recompile
#
# The graph has been edited, but `forward` is still the old one:

# %%
gm = fresh()
find(gm, "relu").target = aten.sigmoid.default
gm.graph.lint()  # nothing wrong with the graph

stale = gm(x)
gm.recompile()
updated = gm(x)
assert torch.equal(stale, torch.relu(x + 1) * 2), "recompiled by itself"
assert torch.equal(updated, torch.sigmoid(x + 1) * 2)

# %% [markdown] lang="zh"
# 預測 1：舊的結果，沒有錯誤訊息。圖畫出來是對的，印出來也是對的，執行的卻是舊程式。懷疑的時候，看 `gm.code`，它是真正會
# 執行的東西。
#
# ## 換線換到自己
#
# 插入 neg 之後，neg 也是 relu 的使用者。`replace_all_uses_with` 不加條件，就連 neg 的輸入也一起換成 neg：

# %% [markdown] lang="en"
# Prediction 1: the old result, and no error. The graph looks right when you draw or print it, but what runs is the old
# code. When in doubt, look at `gm.code`, which is what will really run.
#
# ## A node rewired to itself
#
# Once neg is inserted, it is a user of relu as well. Without a condition, `replace_all_uses_with` also replaces neg's
# own input with neg:

# %%
gm = fresh()
relu = find(gm, "relu")
with gm.graph.inserting_after(relu):
    neg = gm.graph.call_function(aten.neg.default, (relu,))

relu.replace_all_uses_with(neg)  # no delete_user_cb
assert neg.args == (neg,), "neg kept its input"
print(error_of(gm.graph.lint))

neg.args = (relu,)  # one way to mend it
gm.graph.lint()

# %% [markdown] lang="zh"
# `lint()` 抓得到，訊息卻說成順序的問題。修法有兩種：事後把 `args` 設回來，或像前面那樣用 `delete_user_cb` 把新 node 排
# 除在外。
#
# ## 落在 output 後面
#
# 建立 node 時不寫 `inserting_before` 或 `inserting_after`，它就接在圖的最後：

# %% [markdown] lang="en"
# `lint()` catches this, though its message talks about order. There are two ways to mend it: set `args` back afterward,
# or keep the new node out with `delete_user_cb` as we did above.
#
# ## After the output
#
# Create a node without `inserting_before` or `inserting_after`, and it goes to the end of the graph:

# %%
gm = fresh()
relu = find(gm, "relu")
neg = gm.graph.call_function(aten.neg.default, (relu,))
gm.graph.lint()  # no complaint
gm.recompile()
print("\n".join(gm.code.strip().splitlines()[-2:]))

assert list(gm.graph.nodes)[-1] is neg, "not after the output"
gm.graph.eliminate_dead_code()
assert neg not in list(gm.graph.nodes)

# %% [markdown] lang="zh"
# 預測 2：落在 `output` 後面，`lint()` 通過，程式寫在 `return` 後面，永遠不會執行。一個記錄範圍的模組如果落在這裡，就是
# 「校準過了，卻什麼都沒記到」。
#
# | 失誤 | 誰發現 | 看到什麼 |
# | --- | --- | --- |
# | 刪掉還有使用者的 node | `erase_node` | `Tried to erase Node … but it still had … users` |
# | 換線換到自己 | `lint()` | `… was used before it has been defined!` |
# | 忘了 `recompile()` | 沒有人 | 舊的結果 |
# | 落在 `output` 後面 | 沒有人 | 新 node 不執行 |
#
# 所以最後一道防線和匯出時一樣：拿一組輸入，和應有的結果比一次。

# %% [markdown] lang="en"
# Prediction 2: it lands after `output`, `lint()` passes, and its code comes after `return`, where it never runs. If
# that happens to a module that should record ranges, you have calibrated and recorded nothing.
#
# | Mistake | Who notices | What you see |
# | --- | --- | --- |
# | Erasing a node that has users | `erase_node` | `Tried to erase Node … but it still had … users` |
# | Rewiring a node to itself | `lint()` | `… was used before it has been defined!` |
# | Forgetting `recompile()` | nobody | the old result |
# | Landing after `output` | nobody | the new node doesn't run |
#
# So the last line of defense is the same as for export: take some input and compare with what should come out.

# %% [markdown] lang="zh"
# ## 自己的 observer
#
# 現在來寫 pass。observer 的核心就是這個模組：原樣回傳輸入，順便記下看過的最小值與最大值。

# %% [markdown] lang="en"
# ## An observer of our own
#
# Now for the pass. The core of an observer is this module: it returns its input as it is, and takes note of the
# smallest and largest value it has seen.


# %%
class Recorder(nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.high = torch.inf, -torch.inf

    def forward(self, x):
        low, high = x.aminmax()
        self.low = min(self.low, low.item())
        self.high = max(self.high, high.item())
        return x


# %% [markdown] lang="zh"
# pass 走過圖上的輸入與 op，在每一個後面插一個 `Recorder`，由那個輸出的所有使用者共用。要先 `add_submodule` 再
# `call_module`，模組不存在的話會被拒絕；其餘就是前面的五個動作，扣掉刪除：

# %% [markdown] lang="en"
# The pass visits the inputs and ops of a graph and puts a `Recorder` after each, shared by all users of that output.
# `add_submodule` comes before `call_module`, which refuses a module that isn't there; the rest are the five moves from
# above, minus erasing:


# %%
def insert_recorder(gm, node):
    name = f"recorder_{node.name}"
    gm.add_submodule(name, Recorder())
    with gm.graph.inserting_after(node):
        recorder = gm.graph.call_module(name, (node,))
    node.replace_all_uses_with(
        recorder, delete_user_cb=lambda user: user is not recorder
    )


def insert_recorders(gm):
    for node in list(gm.graph.nodes):  # a list, because the graph grows
        if node.op in ("placeholder", "call_function"):
            insert_recorder(gm, node)
    gm.graph.lint()
    gm.recompile()


print(error_of(lambda: fresh().graph.call_module("not_there", ())))

# %%
small = torch.export.export(get_model("conv_relu"), example_inputs(1)).module()
without = copy.deepcopy(small)
insert_recorders(small)
assert [name for name, _ in small.named_children()][-3:] == [
    "recorder_x",
    "recorder_conv2d",
    "recorder_relu",
]

# %% tags=["plot"]
graph(
    [
        (T(zh="之前", en="Before"), without),
        (T(zh="之後", en="After"), small),
    ],
    alt=T(
        zh="之前：x、conv2d、relu、output。之後：x、conv2d、relu 後面各有一個 Recorder。",
        en="Before: x, conv2d, relu, output. After: a Recorder after x, after conv2d and after relu.",
    ),
    caption=T(
        zh="我們的 pass 在輸入與每個 op 後面插一個 Recorder。",
        en="Our pass puts a Recorder after the input and after each op.",
    ),
)

# %% [markdown] lang="zh"
# ## 和 MinMaxObserver 對答案
#
# 在訓練好的 TinyConvNet 上校準，再和 torchao 的 `MinMaxObserver` 比。為了不讓兩邊用同一個 pass、一起錯，torchao 那一邊
# 不改圖，由 `fx.Interpreter` 逐個 node 執行，把每個結果拿給 observer 看。

# %% [markdown] lang="en"
# ## Checked against MinMaxObserver
#
# We calibrate on a trained TinyConvNet and compare with torchao's `MinMaxObserver`. So that the two can't go wrong
# together by using the same pass, the torchao side doesn't edit a graph at all: an `fx.Interpreter` runs it node by
# node and shows each result to an observer.

# %%
model = trained_tinyconvnet()
exported = torch.export.export(model, example_inputs(32)).module()
recorded = copy.deepcopy(exported)
insert_recorders(recorded)

batches = list(calibration_batches(256, batch_size=32))
with torch.no_grad():
    for batch in batches:
        assert torch.equal(recorded(*batch), exported(*batch)), "it changed"

# %%
from torchao.quantization.pt2e.observer import MinMaxObserver


class Observing(fx.Interpreter):
    def run_node(self, node):
        result = super().run_node(node)
        if node.op in ("placeholder", "call_function"):
            observers[node.name](result)
        return result


observers = {
    node.name: MinMaxObserver(
        dtype=torch.int8,
        qscheme=torch.per_tensor_affine,
        quant_min=-128,
        quant_max=127,
    )
    for node in exported.graph.nodes
    if node.op in ("placeholder", "call_function")
}
with torch.no_grad():
    for batch in batches:
        Observing(exported).run(*batch)

# %% [markdown] lang="zh"
# 每個 tensor 的最小、最大值都應該逐位元相同。再用 [M01 概覽](../m01_first_ptq/0_overview.py)的公式，從我們記下的範圍手
# 算 scale（一格多大）與 zero point（代表實數 0 的整數），和 observer 的 `calculate_qparams()` 比。手算也要用 float32：
# 範圍正好對稱時，0 落在兩格正中間，往哪邊捨入只看最後一位。

# %% [markdown] lang="en"
# For every tensor the smallest and largest value should agree bit for bit. And with the formula of the
# [M01 overview](../m01_first_ptq/0_overview.py) we compute scale (the size of one step) and zero point (the integer
# that stands for 0) by hand from the range we recorded, and compare with the observer's `calculate_qparams()`. The
# calculation has to be in float32, too: in a range that is exactly symmetric, 0 lies halfway between two steps, and the
# last digit decides which way it is rounded.


# %%
def qparams(recorder):
    """Scale and zero point of an int8 range; it has to contain 0."""
    low, high = min(recorder.low, 0.0), max(recorder.high, 0.0)
    low, high = torch.tensor([low, high])  # float32, as in the observer
    scale = (high - low) / 255
    return scale.item(), -128 - int((low / scale).round())


for name, observer in observers.items():
    recorder = recorded.get_submodule(f"recorder_{name}")
    assert recorder.low <= recorder.high, f"{name} recorded nothing"
    assert recorder.low == observer.min_val, f"{name}: another minimum"
    assert recorder.high == observer.max_val, f"{name}: another maximum"
    scale, zero_point = (v.item() for v in observer.calculate_qparams())
    ours = qparams(recorder)
    assert abs(ours[0] / scale - 1) < 1e-5, f"{name}: another scale"
    assert ours[1] == zero_point, f"{name}: another zero point"

# %% tags=["plot"]
say(
    T(
        zh=f"{len(observers)} 個 tensor，兩邊全部一致。下面是其中幾個：",
        en=f"Both sides agree on all {len(observers)} tensors. A few of them:",
    )
)
rows = []
for name in ("x", "conv2d", "relu", "add", "linear"):
    recorder = recorded.get_submodule(f"recorder_{name}")
    scale, zero_point = qparams(recorder)
    rows.append(
        [
            f"`{name}`",
            f"{recorder.low:.3f}",
            f"{recorder.high:.3f}",
            f"{scale:.5f}",
            zero_point,
        ]
    )
table(
    rows,
    [
        T(zh="tensor（產生它的 node）", en="tensor (by its node)"),
        T(zh="最小", en="smallest"),
        T(zh="最大", en="largest"),
        "scale",
        "zero point",
    ],
)

# %% [markdown] lang="zh"
# 預測 3：輸出一個位元都沒變，因為 `Recorder` 原樣回傳輸入。這就是 prepare 的核心。真正的 `prepare_pt2e` 還多做三件事：
# 先折疊 BN；只在 quantizer 標註過的邊上插；共用範圍的邊共用一個
# observer（[M01-2](../m01_first_ptq/2_prepare_convert.py)）。拿最小的模型看第二件；`PTQQuantizer` 是本課程的，標註和
# `XNNPACKQuantizer` 一樣，只是快得多：

# %% [markdown] lang="en"
# Prediction 3: not a bit of the output changed, because `Recorder` returns its input as it is. That is the core of
# prepare. The real `prepare_pt2e` does three more things: it folds BN first; it inserts only on edges the quantizer
# annotated; and edges that share a range share an observer ([M01-2](../m01_first_ptq/2_prepare_convert.py)). Here is
# the second on the smallest model; `PTQQuantizer` is the course's own and annotates as `XNNPACKQuantizer` does, only
# much faster:

# %%
from common.quantizers import PTQQuantizer

from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

quantizer = PTQQuantizer().set_global(get_symmetric_quantization_config())
prepared = prepare_pt2e(copy.deepcopy(without), quantizer)

(image,) = next(calibration_batches(1, batch_size=1))
with torch.no_grad():
    assert torch.equal(prepared(image), small(image))

# %%
theirs = {
    node.args[0].name: prepared.get_submodule(node.target)
    for node in prepared.graph.nodes
    if node.op == "call_module" and node.name != "_guards_fn"
}
assert set(theirs) == {"conv_weight", "x", "relu"}, "other edges observed"
for name in ("x", "relu"):
    ours = small.get_submodule(f"recorder_{name}")
    assert ours.low == theirs[name].min_val
    assert ours.high == theirs[name].max_val

# %% [markdown] lang="zh"
# 兩邊都觀察的 tensor，記到的範圍完全相同。差別是 `prepare_pt2e` 沒有觀察 conv2d 的輸出（會和 relu 融合），卻觀察了
# weight。
#
# ## 小結
#
# - 插入：`inserting_after` 或 `inserting_before` 決定位置；換線：`replace_all_uses_with`，新 node 自己要排除。
# - 刪除之前先讓它沒有使用者；改完 `lint()`，再 `recompile()`。
# - 忘了 `recompile()`、落在 `output` 後面，都沒有錯誤訊息；和應有的結果比一次才知道。
# - observer 就是插在邊上、原樣回傳輸入、記下範圍的模組；prepare 就是插它的 pass。
#
# 這一章到此結束。上一頁是 [M00-2](2_export.py)；下一章 [M01](../m01_first_ptq/0_overview.py) 用真正的 PT2E 走完四個步
# 驟，observer 怎麼選範圍在 [M02](../m02_observers/1_observers.py)。

# %% [markdown] lang="en"
# Where both observe, the recorded ranges are identical. The difference: `prepare_pt2e` doesn't observe the output of
# conv2d, which will be fused with relu, but it does observe the weight.
#
# ## Recap
#
# - To insert, `inserting_after` or `inserting_before` sets the place; to rewire, `replace_all_uses_with`, with the new
#   node left out.
# - Before you erase a node, it must have no users; after the edit, `lint()`, then `recompile()`.
# - A forgotten `recompile()` and a node after `output` raise no error; only a comparison with the right result tells.
# - An observer is a module on an edge that returns its input and records the range; prepare is the pass that inserts
#   it.
#
# That is the end of this chapter. The page before is [M00-2](2_export.py); the next chapter,
# [M01](../m01_first_ptq/0_overview.py), takes the four steps with the real PT2E, and how observers choose a range is in
# [M02](../m02_observers/1_observers.py).

# %% [markdown] lang="zh"
# ## 試試看
#
# 寫出「convert」：把圖上每個 `Recorder` 換成一對 q → dq，scale 與 zero point 用 `qparams` 算。op 是
# `torch.ops.quantized_decomposed` 的 `quantize_per_tensor.default` 與 `dequantize_per_tensor.default`，引數依序是輸
# 入、scale、zero point、−128、127、`torch.int8`。它和 fp32 模型對測試圖片的答案，一致率有多少？

# %% [markdown] lang="en"
# ## Try it
#
# Write "convert": replace every `Recorder` in the graph with a pair q → dq, with scale and zero point from `qparams`.
# The ops are `quantize_per_tensor.default` and `dequantize_per_tensor.default` of `torch.ops.quantized_decomposed`;
# their arguments are the input, scale, zero point, −128, 127 and `torch.int8`. On test images, how often does it agree
# with the fp32 model?

# %% tags=["solution"]
ops = torch.ops.quantized_decomposed


def convert_recorders(gm):
    for node in list(gm.graph.nodes):
        if not (node.op == "call_module" and "recorder" in node.target):
            continue
        numbers = *qparams(gm.get_submodule(node.target)), -128, 127, torch.int8
        with gm.graph.inserting_before(node):
            q = gm.graph.call_function(
                ops.quantize_per_tensor.default, (node.args[0], *numbers)
            )
            dq = gm.graph.call_function(
                ops.dequantize_per_tensor.default, (q, *numbers)
            )
        node.replace_all_uses_with(dq)
        gm.graph.erase_node(node)
        gm.delete_submodule(node.target)
    gm.graph.lint()
    gm.recompile()


# %% tags=["solution"]
images = test_data()[0][:512].split(32)
converted = copy.deepcopy(recorded)
convert_recorders(converted)

with torch.no_grad():
    fp32 = torch.cat([exported(batch) for batch in images])
    int8 = torch.cat([converted(batch) for batch in images])
agreement = (fp32.argmax(1) == int8.argmax(1)).float().mean().item()
assert not torch.equal(fp32, int8), "nothing was quantized"
assert agreement > 0.95, f"they agree on {agreement:.1%} only"

steps = int8 / qparams(recorded.get_submodule("recorder_linear"))[0]
assert (steps - steps.round()).abs().max() < 1e-3, "values between steps"
print(f"agreement: {agreement:.1%}")

# %% [markdown] lang="zh" tags=["solution"]
# 這裡只有 activation 換成 int8，weight 還是 fp32。真正的 `convert_pt2e` 也是同一個動作，另外把 weight 存成 int8、讓一個
# q 的每個使用者各有自己的 dq。每個 tensor 都量化其實太多了：會融合的 op 之間不必，這正是 quantizer 要回答的問題。

# %% [markdown] lang="en" tags=["solution"]
# Only activations become int8 here; the weights are still fp32. The real `convert_pt2e` makes the same move, and on top
# of it stores weights as int8 and gives each user of a q a dq of its own. Quantizing every tensor is more than needed,
# by the way: between ops that will be fused there is no reason to. Which tensors need it is the question a quantizer
# answers.
