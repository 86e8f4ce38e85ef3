# %% [markdown] lang="zh"
# # M00-2 | torch.export 記下了什麼，又寫死了什麼
#
# `torch.export.export` 用一份範例輸入走一遍模型，把經過的路錄成圖。錄得下來的是 op、參數、shape 的條件；走路時做過的選
# 擇則成為定局。這一頁看清楚這條界線在哪裡，因為量化、lowering、部署全都接在它後面：在這裡寫死的 batch，到了手機上還是寫
# 死的。
#
# | 問題 | 這一頁的哪一節 |
# | --- | --- |
# | 圖和參數之外還記了什麼？ | signature |
# | 訓練模式匯出的圖，能改回推論模式嗎？ | 寫死的模式 |
# | 為什麼換一個 batch 就出錯？是誰在檢查？ | 寫死的 shape、`_guards_fn` |
# | 怎麼讓 batch 可變，為什麼範例不能只有一張？ | 動態 shape |
# | `forward` 裡的 `if` 看 tensor 的值，怎麼辦？ | 由資料決定的 if |
# | 哪些用法會丟出錯誤，哪些沒有錯誤訊息，卻錄成別的圖？ | 傳輸入的兩種失誤 |
#
# **讀完你會知道**
#
# - `ExportedProgram` 的 signature 怎麼讀
# - `.module()` 加上的 `_guards_fn` 檢查什麼、不檢查什麼
# - 匯出動態 batch 的正確寫法，以及 batch 1 的陷阱
# - 看到匯出的錯誤訊息時，問題在哪裡

# %% [markdown] lang="en"
# # M00-2 | What torch.export records, and what it freezes
#
# `torch.export.export` walks through a model once with an example input and records the path as a graph. It can record
# ops, parameters and conditions on shapes; whatever was decided on the way is final. This page shows where that line
# runs, because quantization, lowering and deployment all come after it: a batch size that is fixed here is still fixed
# on the phone.
#
# | Question | Section of this page |
# | --- | --- |
# | What is recorded besides graph and parameters? | The signature |
# | Can a graph exported in training mode be switched to inference? | A fixed mode |
# | Why does another batch size fail, and who checks? | Fixed shapes, `_guards_fn` |
# | How do you make the batch variable, and why isn't one example image enough? | Dynamic shapes |
# | What if an `if` in `forward` looks at a tensor's values? | An if that depends on data |
# | Which uses raise an error, and which silently record another graph? | Two mistakes with inputs |
#
# **What you will know**
#
# - How to read the signature of an `ExportedProgram`
# - What `_guards_fn`, which `.module()` adds, checks and what it doesn't
# - How to export with a dynamic batch, and what goes wrong with batch 1
# - Where the problem is when export gives you an error

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 用一張圖片當範例匯出，然後拿兩張一起呼叫：正常、出錯，還是只算第一張？
# 2. 把 batch 宣告成動態，但範例還是只有一張：正常、出錯，還是又變回固定的？
# 3. 模型算 `a - b`。用 `torch.export.export(model, (t, t))` 匯出，同一個 tensor 給兩次。拿 5 和 3 呼叫，圖回答多少？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. You export with one image as the example and then call the graph with two: fine, an error, or only the first is
#    computed?
# 2. You declare the batch dynamic, but the example is still a single image: fine, an error, or fixed again?
# 3. A model computes `a - b`. You export it with `torch.export.export(model, (t, t))`, the same tensor twice. Called
#    with 5 and 3, what does the graph answer?

# %% tags=["setup"]
import contextlib
import logging
import textwrap
from collections import Counter

from common.env import capture_stderr, quiet
from common.models import example_inputs, get_model
from common.viz import T, graph

import torch
from torch import nn
from torch.export import Dim

quiet()


def error_of(call, lines=1):
    """What the call raises: the error's class and the message's first lines."""
    try:
        call()
    except Exception as error:
        text = f"{type(error).__name__}: {error}".splitlines()[:lines]
        return "\n".join(textwrap.fill(line, 76) for line in text)
    raise AssertionError("no error was raised")


@contextlib.contextmanager
def log_of(name):
    """Collects what a logger says; it isn't printed."""
    messages = []

    def collect(record):
        messages.append(record.getMessage())
        return False

    logger = logging.getLogger(name)
    logger.addFilter(collect)
    try:
        yield messages
    finally:
        logger.removeFilter(collect)


# %% [markdown] lang="zh"
# ## signature
#
# `ExportedProgram` 的圖把參數當輸入（[概覽](0_overview.py)），所以要有一份清單說明哪個輸入是什麼：是參數、buffer，還是
# 使用者給的。這份清單就是 `graph_signature`。值放在 `state_dict`，用原模型的名字，因此兩邊的權重可以直接對照。

# %% [markdown] lang="en"
# ## The signature
#
# In the graph of an `ExportedProgram`, parameters are inputs ([overview](0_overview.py)), so something has to say which
# input is what: a parameter, a buffer, or the user's. That list is `graph_signature`. The values are in `state_dict`
# under the original model's names, so weights can be compared directly.

# %%
tiny = get_model("tiny")
program = torch.export.export(tiny, example_inputs(2))
signature = program.graph_signature

kinds = Counter(spec.kind.name for spec in signature.input_specs)
assert kinds["PARAMETER"] == len(list(tiny.parameters()))
assert kinds["BUFFER"] == len(list(tiny.buffers()))
assert signature.user_inputs == ("x",)
assert program.state_dict.keys() == tiny.state_dict().keys()

lifted = signature.inputs_to_parameters["p_block_conv1_weight"]
print(dict(kinds))
print("p_block_conv1_weight ->", lifted)

# %% [markdown] lang="zh"
# 圖上的 op 則是 ATen op，也就是 PyTorch 各種寫法（`F.relu`、`x.relu()`、`nn.ReLU`）最後都會走到的那一層。寫法不同，錄到
# 的是同一個 op，quantizer 才不必認識每一種寫法。例外是原地（in-place）的寫法：`inplace=True` 錄成另一個
# op，`aten.relu_.default`，quantizer 兩個都要認得：

# %% [markdown] lang="en"
# The ops in the graph are ATen ops, the level at which all ways of writing something in PyTorch (`F.relu`, `x.relu()`,
# `nn.ReLU`) end up. However it was written, the same op is recorded, and that is why a quantizer needn't know every
# spelling. In-place spellings are the exception: `inplace=True` is recorded as an op of its own, `aten.relu_.default`,
# and a quantizer has to know both:


# %%
class Spellings(nn.Module):
    def forward(self, x):
        x = nn.ReLU()(nn.functional.relu(x.relu()))
        return nn.ReLU(inplace=True)(x)


spelled = torch.export.export(Spellings(), (torch.rand(2),))
targets = [
    str(node.target)
    for node in spelled.graph.nodes
    if node.op == "call_function"
]
assert targets == ["aten.relu.default"] * 3 + ["aten.relu_.default"], targets

# %% [markdown] lang="zh"
# ## 寫死的模式
#
# 訓練或推論模式也是走路時做的選擇：它變成 op 的一個引數。匯出的模組沒有模式可以切換，`eval()` 會直接拒絕。所以 PTQ 要先
# `model.eval()` 再匯出；QAT 需要切換，得用另外的函式（[M04-3](../m04_batchnorm/3_train_eval.py)）。

# %% [markdown] lang="en"
# ## A fixed mode
#
# Training or inference mode is a decision on the way too: it becomes an argument of an op. An exported module has no
# mode to switch, and `eval()` refuses. So for PTQ call `model.eval()` before you export; QAT does have to switch and
# has functions for it ([M04-3](../m04_batchnorm/3_train_eval.py)).

# %%
dropout = nn.Sequential(nn.Dropout(0.5))
recorded = {}
for mode in ("train", "eval"):
    getattr(dropout, mode)()
    gm = torch.export.export(dropout, (torch.ones(100),)).module()
    (node,) = gm.graph.find_nodes(
        op="call_function", target=torch.ops.aten.dropout.default
    )
    recorded[mode] = gm
    print(f"{mode:5} {node.target}{node.args}")

ones = torch.ones(100)
assert torch.equal(recorded["eval"](ones), ones)
assert not torch.equal(recorded["train"](ones), ones), "no value was dropped"
print(error_of(recorded["train"].eval))

# %% [markdown] lang="zh"
# ## 寫死的 shape，以及 _guards_fn
#
# 沒有另外聲明的話，範例輸入的 shape 就是條件。`.module()` 把條件做成一個子模組 `_guards_fn`，放在圖的開頭檢查輸入：

# %% [markdown] lang="en"
# ## Fixed shapes, and _guards_fn
#
# Unless you say otherwise, the shape of the example is a condition. `.module()` turns the conditions into a submodule,
# `_guards_fn`, which checks the inputs at the start of the graph:

# %%
model = get_model("conv_relu")
program = torch.export.export(model, example_inputs(1))
exported = program.module()
two_images = example_inputs(2)

print(error_of(lambda: exported(*two_images)))
print(error_of(lambda: exported(torch.rand(1, 3, 32, 32))))

# %% [markdown] lang="zh"
# 預測 1：出錯，而且訊息說得出是哪個輸入、哪一維。`_guards_fn` 是個普通的子模組，可以單獨呼叫，看它檢查什麼、不檢查什
# 麼：

# %% [markdown] lang="en"
# Prediction 1: an error, and its message names the input and the dimension. `_guards_fn` is an ordinary submodule; call
# it on its own to see what it checks and what it doesn't:

# %%
guards = exported._guards_fn
(node,) = exported.graph.find_nodes(op="call_module", target="_guards_fn")
assert not node.users, "somebody uses what the guards return"

guards(torch.rand(1, 3, 16, 16))  # the shape of the example: passes
guards(torch.zeros(1, 3, 16, 16, dtype=torch.int32))  # passes, too!
guards(torch.full((1, 3, 16, 16), torch.nan))  # and so does this
print(error_of(lambda: guards(*two_images)))

exported.graph.eliminate_dead_code()
assert node in list(exported.graph.nodes), "removed as dead code"

# %% [markdown] lang="zh"
# 這裡它檢查 shape，不檢查 dtype 與數值。它的結果沒有人用，`eliminate_dead_code()` 卻不會刪它，因為它被標成有副作用。它
# 也不是到處都有：呼叫 `.module()` 的檔案，路徑裡若有 `executorch` 或 `torchao`，就不加它（這兩件事都寫在 torch 2.13.0
# 的 `torch/export/_unlift.py`）。不想要它，可以用 `.module(check_guards=False)`；檢查並沒有消失，改由呼叫前的另一道檢查
# 接手，換一種說法：

# %% [markdown] lang="en"
# Here it checks shapes, neither dtypes nor values. Nobody uses its result, yet `eliminate_dead_code()` leaves it in
# place, because it is marked as having side effects. Nor is it everywhere: it isn't added when the path of the file
# that calls `.module()` contains `executorch` or `torchao` (both facts: torch 2.13.0, `torch/export/_unlift.py`). If
# you don't want it, there is `.module(check_guards=False)`. The check doesn't go away: another one, made before the
# call, takes over and words it differently:

# %%
without_guards = program.module(check_guards=False)
assert not without_guards.graph.find_nodes(
    op="call_module", target="_guards_fn"
)
print(error_of(lambda: without_guards(*two_images)))

# %% [markdown] lang="zh"
# ## 動態 shape
#
# 要讓一維可變，就在 `dynamic_shapes` 裡給它一個 `Dim`。那一維在圖上變成符號（例如 `s77`），條件則變成它的上下限。範例用
# 兩張：

# %% [markdown] lang="en"
# ## Dynamic shapes
#
# To make a dimension dynamic, give it a `Dim` in `dynamic_shapes`. In the graph it becomes a symbol (such as `s77`),
# and the condition becomes its bounds. The example has two images:

# %%
batch = Dim("batch", min=1, max=64)
open_batch = torch.export.export(
    model, example_inputs(2), dynamic_shapes={"x": {0: batch}}
)
flexible = open_batch.module()

with torch.no_grad():
    for n in (1, 2, 5, 64):
        (images,) = example_inputs(n)
        same = torch.allclose(flexible(images), model(images), atol=1e-6)
        assert same, f"another result for a batch of {n}"
print(error_of(lambda: flexible(*example_inputs(65))))

# %% tags=["plot"]
graph(
    open_batch,
    types=True,
    alt=T(
        zh="x 經過 conv2d 與 relu 到輸出；邊上的 shape 第一維是一個符號，後三維是數字。",
        en="x passes conv2d and relu on its way to the output; on each edge the first dimension of the shape is a symbol, "
        "the other three are numbers.",
    ),
    caption=T(
        zh="動態 batch 的圖：第一維是符號，其餘仍然寫死。",
        en="The graph with a dynamic batch: the first dimension is a symbol, the others are still fixed.",
    ),
)

# %% [markdown] lang="zh"
# 下限寫 1，一張圖片也能跑，但範例**不能**只有一張。export 把大小 0 與 1 當成特例，看到 1 就寫死。這時三種寫法的反應各不
# 相同：

# %% [markdown] lang="en"
# With a lower bound of 1 a single image works too, but the example must **not** be a single image. Export treats the
# sizes 0 and 1 as special: a dimension that is 1 in the example becomes fixed. Three ways of asking for a dynamic batch
# react in three different ways:


# %%
def export_one_image(dim):
    return torch.export.export(
        model, example_inputs(1), dynamic_shapes={"x": {0: dim}}
    )


print(error_of(lambda: export_one_image(batch), lines=2))
print()
print(error_of(lambda: export_one_image(Dim.DYNAMIC), lines=2))

# %%
with log_of("torch._export.non_strict_utils") as messages:
    automatic = export_one_image(Dim.AUTO)
assert messages, "the log says nothing"
print("log:", textwrap.fill(messages[0], 76))

x = automatic.graph.find_nodes(op="placeholder")[-1]  # after the parameters
assert x.meta["val"].shape == (1, 3, 16, 16), "the batch is dynamic"
print(error_of(lambda: automatic.module()(*two_images)))

# %% [markdown] lang="zh"
# 預測 2：要看怎麼聲明。`Dim("batch")` 和 `Dim.DYNAMIC` 會丟出錯誤；`Dim.AUTO` 的意思是「能動態就動態」，所以只在 log 留
# 下一行，給你一張固定的圖；第一個錯誤訊息建議的，偏偏就是它。要動態 batch 時，範例用兩張以上，並用 `Dim("batch")` 或
# `Dim.DYNAMIC`。
#
# ## 由資料決定的 if
#
# Python 的 `if` 如果看的是 shape 或設定，匯出時就選好了邊（[概覽](0_overview.py)）。如果看的是 tensor 的**值**，匯出時
# 沒有值可看，因為走過模型的是 `FakeTensor`（[M00-1](1_graph_and_node.py)），只有 shape 和 dtype；這時只能丟出錯誤。修法
# 是把選擇也寫成 op，例如 `torch.where`：

# %% [markdown] lang="en"
# Prediction 2: it depends on how you declare it. `Dim("batch")` and `Dim.DYNAMIC` raise an error; `Dim.AUTO` means
# "dynamic if possible", so it leaves a line in the log and hands you a fixed graph, and of all things it is what the
# first error message suggests. For a dynamic batch, use two images or more as the example, with `Dim("batch")` or
# `Dim.DYNAMIC`.
#
# ## An if that depends on data
#
# A Python `if` on shapes or settings is decided during export ([overview](0_overview.py)). One that looks at the
# **values** of a tensor can't be: what walks through the model is a `FakeTensor` ([M00-1](1_graph_and_node.py)), which
# has a shape and a dtype but no values, so you get an error. The fix is to turn the choice itself into an op, for
# instance `torch.where`:


# %%
class PythonIf(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x


class TensorWhere(nn.Module):
    def forward(self, x):
        return torch.where(x.sum() > 0, x, -x)


# %%
rising = torch.tensor([1.0, 2.0])
logger = "torch.fx.experimental.symbolic_shapes"
with log_of(logger), capture_stderr():  # torch also prints half a graph
    refused = error_of(lambda: torch.export.export(PythonIf(), (rising,)))
print(refused)

where = torch.export.export(TensorWhere(), (rising,)).module()
for values in (rising, -rising):
    assert torch.equal(where(values), PythonIf()(values))

# %% [markdown] lang="zh"
# 訊息裡的 `u0` 是 `if` 那個比較的結果：一個還沒有值的符號。
#
# ## 傳輸入的兩種失誤
#
# 範例輸入是**引數的 tuple**。只有一個輸入時最容易忘記，好在會丟出錯誤：

# %% [markdown] lang="en"
# The `u0` of the message stands for what the `if` compares: a symbol without a value.
#
# ## Two mistakes with inputs
#
# Example inputs are a **tuple of arguments**. That is easily forgotten when there is just one; luckily it raises an
# error:

# %%
(image,) = example_inputs(1)
print(error_of(lambda: torch.export.export(model, image)))

from_tuple = torch.export.export(model, (image,)).module()  # mind the comma
with torch.no_grad():
    assert torch.equal(from_tuple(image), model(image))

# %% [markdown] lang="zh"
# 第二種沒有任何錯誤訊息。模型有兩個輸入，範例偷懶給同一個 tensor 兩次：export 靠物件本身認輸入，同一個物件就分不出是
# `a` 還是 `b`。

# %% [markdown] lang="en"
# The second one raises nothing. A model has two inputs, and for the example you lazily pass the same tensor twice:
# export tells inputs apart by the object, and for one and the same object it can't know whether it is `a` or `b`.


# %%
class Difference(nn.Module):
    def forward(self, a, b):
        return a - b


t = torch.ones(1)
five, three = torch.tensor([5.0]), torch.tensor([3.0])

same_twice = torch.export.export(Difference(), (t, t)).module()
two_tensors = torch.export.export(Difference(), (t, t.clone())).module()

assert same_twice(five, three) == 0, "the trap is gone"
assert two_tensors(five, three) == 2

# %% tags=["plot"]
graph(
    [
        (T(zh="(t, t)", en="(t, t)"), same_twice),
        (T(zh="(t, t.clone())", en="(t, t.clone())"), two_tensors),
    ],
    alt=T(
        zh="第一張：只有 b 連到 sub，a 沒有接到任何 op。第二張：a 與 b 都連到 sub。",
        en="In the first graph only b leads to sub and a leads nowhere. In the second, both a and b lead to sub.",
    ),
    caption=T(
        zh="同一個 tensor 給兩次，錄到的是 b − b，a 沒有人用。",
        en="The same tensor twice records b − b, and nobody uses a.",
    ),
)

# %% [markdown] lang="zh"
# 預測 3：0，沒有任何警告。保險的作法是每個輸入都用不同的 tensor，並在匯出之後拿**另一組**輸入和原模型比一次；batch 該是
# 動態的，就換一個 batch。這個習慣也抓得到變回固定的 `Dim.AUTO`。忘了 `eval()` 則要和 `eval()` **之後**的原模型比：兩邊
# 都在訓練模式的話，BN 算得一樣，比不出來。

# %% [markdown] lang="en"
# Prediction 3: 0, without any warning. To be safe, use a different tensor for each input, and after exporting compare
# with the original model once on **another** set of inputs, with another batch size if the batch should be dynamic.
# That habit also catches a `Dim.AUTO` that turned static. A forgotten `eval()` only shows against the original
# **after** `eval()`: while both are in training mode, BN computes the same on either side.


# %%
def agrees(graph_module, original, *inputs):
    with torch.no_grad():
        return torch.allclose(graph_module(*inputs), original(*inputs))


assert agrees(two_tensors, Difference(), five, three)
assert not agrees(same_twice, Difference(), five, three)
assert agrees(same_twice, Difference(), t, t), "the example itself differs"

norm = nn.BatchNorm1d(3)  # in training mode, for eval() was forgotten
forgotten = torch.export.export(norm, (torch.rand(4, 3),)).module()
points = torch.rand(4, 3)
assert agrees(forgotten, norm, points), "the comparison notices"
assert not agrees(forgotten, norm.eval(), points), "eval() changes nothing"

# %% [markdown] lang="zh"
# ## 小結
#
# - signature 說明每個輸入是參數、buffer 還是使用者給的；值在 `state_dict`。
# - 模式、Python 的 `if`、沒有聲明的 shape，匯出時就寫死了。
# - `_guards_fn` 檢查輸入的 shape，不檢查 dtype；它會多算一個使用者，也不會被當成無用的程式刪掉。
# - 動態 batch：給 `Dim`，範例用兩張以上；`Dim.AUTO` 遇到 1 會變回固定。
# - 輸入是 tuple，每個輸入用不同的 tensor；匯出之後換一組輸入，和 `eval()` 之後的原模型比一次。
#
# 上一頁是 [M00-1](1_graph_and_node.py)；下一頁 [M00-3](3_rewrite.py) 開始改圖。動態 batch 怎麼一路帶到 `.pte`，見
# [M08-2](../m08_executorch/2_to_pte.py)。

# %% [markdown] lang="en"
# ## Recap
#
# - The signature says which input is a parameter, a buffer or the user's; the values are in `state_dict`.
# - The mode, every Python `if` and undeclared shapes are fixed during export.
# - `_guards_fn` checks the shapes of inputs but not their dtypes; it counts as one more user, and it isn't removed as
#   dead code.
# - For a dynamic batch, give a `Dim` and two example images or more; with one image, `Dim.AUTO` turns static.
# - Inputs are a tuple, each a different tensor; after exporting, compare with the original after `eval()`, on other
#   inputs.
#
# The page before this one is [M00-1](1_graph_and_node.py); on the next, [M00-3](3_rewrite.py), we start editing. How a
# dynamic batch gets all the way into a `.pte` is in [M08-2](../m08_executorch/2_to_pte.py).

# %% [markdown] lang="zh"
# ## 試試看
#
# 把 `Difference` 匯出成兩個輸入的第一維都可變。先給兩個輸入各一個 `Dim`，讀一下訊息建議什麼；改好之後，拿長度不同的兩個
# 輸入呼叫看看，誰會檢查？

# %% [markdown] lang="en"
# ## Try it
#
# Export `Difference` with a dynamic first dimension in both inputs. First give each input a `Dim` of its own and read
# what the message suggests; when it works, call the graph with two inputs of different lengths. Who checks?

# %% tags=["solution"]
pair = torch.rand(4, 3), torch.rand(4, 3)
left, right = Dim("left"), Dim("right")


def export_difference(a, b):
    shapes = {"a": {0: a}, "b": {0: b}}
    return torch.export.export(Difference(), pair, dynamic_shapes=shapes)


print(error_of(lambda: export_difference(left, right), lines=4))

# %% tags=["solution"]
rows = Dim("rows")
by_rows = export_difference(rows, rows).module()
assert agrees(by_rows, Difference(), torch.rand(7, 3), torch.rand(7, 3))
print(error_of(lambda: by_rows(torch.rand(7, 3), torch.rand(8, 3))))

# %% [markdown] lang="zh" tags=["solution"]
# 減法要求兩邊一樣長，所以兩個各自獨立的 `Dim` 不成立，訊息建議 `right = left`：共用一個 `Dim`。匯出之後，「兩邊相等」變
# 成 `_guards_fn` 的一個條件。順帶一提，PyTorch 的減法允許長度 1 的廣播，匯出的圖則不允許。

# %% [markdown] lang="en" tags=["solution"]
# A subtraction needs equal lengths, so two independent `Dim`s contradict the model, and the message suggests
# `right = left`: share one `Dim`. After export, "both are equal" is a condition in `_guards_fn`. By the way, PyTorch's
# subtraction would broadcast a length of 1; the exported graph doesn't allow that.
