# %% [markdown] lang="zh"
# # M00 概覽 | PT2E 改的那張圖，是什麼
#
# PT2E（PyTorch 2 Export 量化）不改你的 Python 程式，改的是從模型匯出來的一張圖。observer（記錄數值範圍的小模組）插在這
# 張圖上，scale（整數的一格代表多大的實數）寫在這張圖上，真正執行模型的後端讀的也是這張圖。這一章在碰量化之前先把它看
# 懂。這一頁先分清楚一個模型的三種形式：`nn.Module`、`ExportedProgram`、`GraphModule`。
#
# | 問題 | 一句話的答案 | 哪一頁 |
# | --- | --- | --- |
# | 三種形式各是什麼？ | 程式、附帶條件的紀錄、能改又能呼叫的圖 | 這一頁 |
# | 怎麼讀一張圖？ | 看每個 node 的 `op`、`target`、`args`、`users`、`meta` | [M00-1](1_graph_and_node.py) |
# | `torch.export` 記下了什麼，又替你寫死了什麼？ | 走過的那條路：op、參數、輸入的 shape；batch 要另外聲明才會是動態的 | [M00-2](2_export.py) |
# | 怎麼改圖才安全？ | 插入、換線、刪除、`lint`、`recompile`；少一步，程式多半沒有錯誤訊息 | [M00-3](3_rewrite.py) |
#
# **讀完你會知道**
#
# - 為什麼量化需要圖，只有 `nn.Module` 不夠
# - 同一個模型的三種形式：哪一種能呼叫、能改、參數放在哪裡
# - 匯出之後，哪些東西還跟著原模型走，哪些已經固定
# - PT2E 的每一步拿到和交出的是哪一種

# %% [markdown] lang="en"
# # M00 Overview | The graph that PT2E edits
#
# PT2E (PyTorch 2 Export quantization) doesn't touch your Python code. It edits a graph that was exported from your
# model: observers (small modules that record the range of values) go into that graph, scales (the real value of one
# integer step) are written into it, and the backend that finally runs the model reads it. This chapter is about
# understanding the graph before any quantization happens, and this page introduces the three forms a model takes:
# `nn.Module`, `ExportedProgram` and `GraphModule`.
#
# | Question | Answer in one line | Page |
# | --- | --- | --- |
# | What are the three forms? | A program, a record with its conditions, and a graph you can edit and call | this one |
# | How do you read a graph? | By each node's `op`, `target`, `args`, `users` and `meta` | [M00-1](1_graph_and_node.py) |
# | What does `torch.export` record, and what does it freeze? | The path it took: ops, parameters, input shapes; a batch is only dynamic if you say so | [M00-2](2_export.py) |
# | How do you edit a graph safely? | Insert, rewire, erase, `lint`, `recompile`; leave a step out and usually nothing complains | [M00-3](3_rewrite.py) |
#
# **What you will know**
#
# - Why quantization needs a graph and an `nn.Module` isn't enough
# - One model in three forms: which one can be called, which can be edited, where the parameters live
# - What still follows the original model after export, and what is frozen
# - Which form each step of PT2E takes and returns

# %% [markdown] lang="zh"
# ## 先預測
#
# 課程的模型 TinyConvNet 裡有四個 `nn.Conv2d`、四個 `nn.BatchNorm2d`、兩個 `nn.ReLU`、一個 `nn.Linear`。先寫下你的答案：
#
# 1. 匯出成圖之後，圖上會有幾個 relu？加法呢？
# 2. 匯出之後，把原模型的一個 Python 開關（`self.double`）打開，匯出的圖會跟著變嗎？
# 3. 匯出之後，把原模型的 weight 全部改成 0，匯出的圖會跟著變嗎？

# %% [markdown] lang="en"
# ## Predict first
#
# The course's model, TinyConvNet, holds four `nn.Conv2d`, four `nn.BatchNorm2d`, two `nn.ReLU` and one `nn.Linear`.
# Write down your answers:
#
# 1. Exported to a graph, how many relus are there in it? And how many additions?
# 2. After export you flip a Python switch of the original model (`self.double`). Does the exported graph follow?
# 3. After export you set the original model's weights to 0. Does the exported graph follow?

# %% tags=["setup"]
import copy
import textwrap
from collections import Counter

from common.env import quiet
from common.models import example_inputs, get_model
from common.viz import T, graph, table

import torch
from torch import fx, nn

quiet()


def error_of(call):
    """What the call raises: the error's class and the message's first line."""
    try:
        call()
    except Exception as error:
        line = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return textwrap.fill(line, 76)
    raise AssertionError("no error was raised")


# %% [markdown] lang="zh"
# ## 為什麼需要圖
#
# 量化要在 op 和 op 之間動手：這裡量一下範圍，那裡插一對 q → dq（量化，再反量化）。`nn.Module` 只列得出子模組，看不到
# `forward` 怎麼用它們：同一個 `nn.ReLU` 可能呼叫好幾次，而 `+`、`mean` 根本不是模組，沒有地方可以掛東西。圖則是一次呼叫
# 一個 node：

# %% [markdown] lang="en"
# ## Why a graph
#
# Quantization works between ops: measure a range here, put a pair q → dq (quantize, dequantize) there. An `nn.Module`
# can list its submodules, but not how `forward` uses them. One `nn.ReLU` may be called several times, and `+` or `mean`
# aren't modules at all, so there is nothing to hook into. A graph has one node per call:

# %%
tiny = get_model("tiny")
tiny_graph = torch.export.export(tiny, example_inputs(2)).module().graph

modules = Counter(type(module).__name__ for module in tiny.modules())
nodes = Counter(
    str(node.target).split(".")[1]  # "aten.relu.default" -> "relu"
    for node in tiny_graph.nodes
    if node.op == "call_function"
)
assert (modules["ReLU"], nodes["relu"]) == (2, 4), "not one node per call"
assert nodes["add"] == nodes["mean"] == 1, nodes

# %% tags=["plot"]
module_of = {
    "conv2d": "Conv2d",
    "batch_norm": "BatchNorm2d",
    "relu": "ReLU",
    "linear": "Linear",
}
table(
    [
        [f"`{op}`", count, modules[module_of[op]] if op in module_of else "–"]
        for op, count in nodes.items()
    ],
    [
        "op",
        T(zh="圖上的 node", en="nodes in the graph"),
        T(zh="模型裡的模組", en="modules in the model"),
    ],
)

# %% [markdown] lang="zh"
# 預測 1 的答案：四個 relu，因為兩個 `nn.ReLU` 各被呼叫兩次；加法有一個，是殘差（skip connection）那個 `+`，在模組清單裡
# 找不到。這四個 relu 的輸出是四個不同的 tensor，量化時各要一組 scale，所以 PT2E 要的是圖。

# %% [markdown] lang="en"
# That answers prediction 1: four relus, because each of the two `nn.ReLU` is called twice, and one addition, the `+` of
# the skip connection, which no list of modules shows. The outputs of those four relus are four different tensors and
# need a scale each when they are quantized. That is why PT2E wants a graph.

# %% [markdown] lang="zh"
# ## 第一種：nn.Module
#
# 從最小的模型開始：一個 conv 接一個 relu。它的 `forward` 是一般的 Python，可以有 `if`、`for`、`print`。要知道它算什麼，
# 只能執行它，或者讀原始碼。

# %% [markdown] lang="en"
# ## The first form: nn.Module
#
# We start from the smallest model, a convolution and a ReLU. Its `forward` is ordinary Python and may contain `if`,
# `for` or `print`. To learn what it computes, you run it or read its source.

# %%
model = get_model("conv_relu")  # 3x3 convolution, 3 to 8 channels, then ReLU
example = example_inputs(1)  # a tuple: one image of shape (1, 3, 16, 16)

with torch.no_grad():
    expected = model(*example)
print([name for name, _ in model.named_children()])

# %% [markdown] lang="zh"
# ## 第二種：ExportedProgram
#
# `torch.export.export` 照範例輸入的 shape 和 dtype 走一遍 `forward`（不算數值），把遇到的 op 記成圖，連同參數、輸入輸出
# 的對應（signature）和成立的條件一起包成 `ExportedProgram`。它是一份**紀錄**，適合存檔、交給後端。它的圖不帶狀態：參數
# 不在圖裡面，而是圖的輸入。

# %% [markdown] lang="en"
# ## The second form: ExportedProgram
#
# `torch.export.export` runs `forward` once on stand-ins for the example inputs (their shapes and dtypes, no values),
# records the ops it meets as a graph, and packs that together with the parameters, the signature (what each input and
# output is) and the conditions under which it holds: an `ExportedProgram`. It is a **record**, good for saving and for
# handing to a backend. Its graph holds no state: parameters aren't inside, they are inputs.

# %%
program = torch.export.export(model, example)

placeholders = program.graph.find_nodes(op="placeholder")
assert [node.name for node in placeholders] == [
    "p_conv_weight",
    "p_conv_bias",
    "x",
]
assert list(program.state_dict) == ["conv.weight", "conv.bias"]
print(error_of(lambda: program(*example)))

# %% [markdown] lang="zh"
# 直接呼叫會被拒絕，訊息也說了該怎麼辦：`.module()`。
#
# ## 第三種：GraphModule
#
# `program.module()` 從紀錄做出一個 `GraphModule`：它是 `nn.Module`，所以能呼叫、有參數、有 `state_dict`；但它的
# `forward` 不是人寫的，而是由它的 `.graph` 產生的程式。PT2E 從頭到尾改的就是這一種。

# %% [markdown] lang="en"
# Calling it is refused, and the message names the way out: `.module()`.
#
# ## The third form: GraphModule
#
# `program.module()` makes a `GraphModule` from the record. It is an `nn.Module`, so it can be called and has parameters
# and a `state_dict`; but nobody wrote its `forward`, that code is generated from its `.graph`. This is the form that
# PT2E edits from start to finish.

# %%
exported = program.module()
assert isinstance(exported, nn.Module)
assert isinstance(exported, fx.GraphModule)

with torch.no_grad():
    same = torch.equal(exported(*example), expected)
assert same, "export changed the result"
print(exported.code.strip())

# %% tags=["plot"]
graph(
    [
        (
            T(zh="ExportedProgram 的圖", en="Graph of the ExportedProgram"),
            program,
        ),
        (T(zh="GraphModule 的圖", en="Graph of the GraphModule"), exported),
    ],
    everything=True,
    names=True,
    alt=T(
        zh="第一張：p_conv_weight、p_conv_bias、x 三個輸入進 conv2d，再經 relu 到輸出。第二張：只有 x 是輸入，conv_weight、conv_bias "
        "是從模組取出的參數，x 另外接到 _guards_fn。",
        en="In the first graph three inputs, p_conv_weight, p_conv_bias and x, enter conv2d, then relu, then the output. "
        "In the second only x is an input, conv_weight and conv_bias are fetched from the module, and x also goes to _guards_fn.",
    ),
    caption=T(
        zh="每個 node 畫一個框。第一張的參數是輸入；第二張的參數用 get_attr 從模組取出，還多了檢查輸入的 _guards_fn。",
        en="One box per node. First, parameters are inputs; then they are fetched from the module by get_attr, "
        "and a _guards_fn that checks the inputs has appeared.",
    ),
)

# %% [markdown] lang="zh"
# 兩張圖的計算部分相同，差別只在參數從哪裡來。`_guards_fn` 檢查輸入是否符合匯出時的條件，[M00-2](2_export.py) 會拆開來
# 看。這門課之後畫圖時，會把參數折進用它的 op 裡，也不畫 `_guards_fn`，這樣比較好讀。

# %% [markdown] lang="en"
# The computation is the same in both; only where the parameters come from differs. `_guards_fn` checks that an input
# meets the conditions of the export, and [M00-2](2_export.py) opens it up. From here on the course's drawings fold
# parameters into the op that uses them and leave `_guards_fn` out, which is easier on the eye.

# %% [markdown] lang="zh"
# ## 另一條路：symbolic_trace
#
# 網路上許多 fx 教學用的是 `torch.fx.symbolic_trace`。它也產生 `GraphModule`，但停在模組這一層：node 是「呼叫 `conv` 這
# 個模組」，不是 ATen op。PT2E 的 quantizer（決定哪些 tensor 要量化的物件）靠 `aten.conv2d.default` 這樣的 target 認
# op，這種圖它一個也認不出來。

# %% [markdown] lang="en"
# ## The other road: symbolic_trace
#
# Many fx tutorials use `torch.fx.symbolic_trace`. It makes a `GraphModule` too, but stops at modules: a node says "call
# the module `conv`", not which ATen op that is. PT2E's quantizers (the objects that decide which tensors to quantize)
# recognize ops by targets such as `aten.conv2d.default`; in a graph like this one they find nothing to recognize.

# %%
traced = fx.symbolic_trace(model)
assert isinstance(traced, fx.GraphModule)

for name, gm in [("symbolic_trace", traced), ("export", exported)]:
    steps = [node for node in gm.graph.nodes if node.name != "_guards_fn"]
    print(name)
    for node in steps:
        if node.op.startswith("call_"):
            print(f"    {node.op:14} {node.target}")
aten_nodes = traced.graph.find_nodes(
    op="call_function", target=torch.ops.aten.conv2d.default
)
assert not aten_nodes, "symbolic_trace has reached the ATen level"

# %% [markdown] lang="zh"
# ## 三者的關係
#
# | | `nn.Module` | `ExportedProgram` | `GraphModule`（`.module()`） |
# | --- | --- | --- | --- |
# | 是什麼 | Python 程式 | 紀錄：圖、參數、signature、條件 | 由圖產生 `forward` 的 `nn.Module` |
# | 能呼叫嗎 | 能 | 不能 | 能 |
# | 參數在哪裡 | 屬性 | 圖的輸入；值在 `state_dict` | 屬性，圖用 `get_attr` 取 |
# | 怎麼改結構 | 改原始碼 | 不改；先 `.module()` | 改圖，再 `recompile()` |
# | 在這門課的用途 | 訓練、匯出 | 存檔、lowering（交給後端） | PT2E 在上面插入與改寫 |
#
# 那麼三者還互相牽連嗎？先看結構。圖是**走過的路**的紀錄，Python 的 `if` 在匯出時就做完了，圖上只剩走到的那一邊：

# %% [markdown] lang="en"
# ## How the three relate
#
# | | `nn.Module` | `ExportedProgram` | `GraphModule` (`.module()`) |
# | --- | --- | --- | --- |
# | What it is | a Python program | a record: graph, parameters, signature, conditions | an `nn.Module` whose `forward` comes from a graph |
# | Can be called | yes | no | yes |
# | Parameters live in | attributes | inputs of the graph; values in `state_dict` | attributes, fetched by `get_attr` |
# | To change its structure | edit the source | don't; take `.module()` first | edit the graph, then `recompile()` |
# | What we use it for | training, exporting | saving, lowering (the way to a backend) | PT2E inserts and rewrites in it |
#
# Are they still connected? Structure first. A graph records **the path taken**: a Python `if` is decided during export,
# and only the branch that was taken is in the graph:


# %%
class Switch(nn.Module):
    double = False

    def forward(self, x):
        if self.double:
            return 2 * x
        return x + 1


switch = Switch()
recorded = torch.export.export(switch, (torch.rand(3),)).module()
switch.double = True

five = torch.full((3,), 5.0)
assert torch.equal(switch(five), 2 * five)
assert torch.equal(recorded(five), five + 1), "the graph saw the switch"

# %% [markdown] lang="zh"
# 預測 2：不會跟著變，而且沒有任何警告。值就不一樣了：匯出不複製參數，三種形式共用同一批 tensor。

# %% [markdown] lang="en"
# Prediction 2: no, and nothing warns you. Values are another matter. Export copies no parameters: all three forms share
# the same tensors.

# %%
assert program.state_dict["conv.weight"] is model.conv.weight
assert exported.conv.weight is model.conv.weight, "export made a copy"

original = model.conv.weight.detach().clone()
with torch.no_grad():
    model.conv.weight.zero_()
    followed = not torch.equal(exported(*example), expected)
    model.conv.weight.copy_(original)
    restored = torch.equal(exported(*example), expected)
assert followed and restored, "the graph kept weights of its own"

# %% [markdown] lang="zh"
# 預測 3：會。所以匯出之後繼續訓練原模型、或對它原地（in-place）改 weight，匯出的圖也會變。想要互不影響，先
# `copy.deepcopy`。
#
# ## 改圖的最小例子
#
# 現在改一次圖：把 relu 換成 sigmoid。改 node 的 `target`，再 `recompile()` 重新產生 `forward`。圖是改在 `GraphModule`
# 這一份上；`ExportedProgram` 有自己的圖，不受影響。

# %% [markdown] lang="en"
# Prediction 3: yes. So if you keep training the original after export, or change its weights in place, the exported
# graph changes too. If you don't want that, `copy.deepcopy` first.
#
# ## The smallest edit
#
# Now let us edit a graph once and turn the relu into a sigmoid: change the node's `target`, then `recompile()` to
# generate `forward` anew. The edit happens in the `GraphModule`; the `ExportedProgram` has a graph of its own and stays
# as it was.

# %%
edited = copy.deepcopy(exported)
(relu,) = edited.graph.find_nodes(
    op="call_function", target=torch.ops.aten.relu.default
)
relu.target = torch.ops.aten.sigmoid.default
edited.recompile()

with torch.no_grad():
    assert torch.equal(edited(*example), model.conv(*example).sigmoid())
    assert torch.equal(exported(*example), expected), "the copy was shared"
assert exported.graph is not program.graph

# %% tags=["plot"]
graph(
    [
        (T(zh="匯出的圖", en="Exported"), exported),
        (T(zh="改過的圖", en="Edited"), edited),
    ],
    alt=T(
        zh="第一張：x 經過 conv2d、relu 到輸出。第二張：同一張圖，relu 的位置換成 sigmoid。",
        en="First x, conv2d, relu, output. Then the same graph with a sigmoid where relu was.",
    ),
    caption=T(
        zh="同一張圖改寫前後，參數折進框裡。這就是 PT2E 做的事，只是它換上的是 observer 和 q → dq。",
        en="The graph before and after, parameters folded into their box. "
        "PT2E does the same thing, except that what it puts in is observers and pairs q → dq.",
    ),
)

# %% [markdown] lang="zh"
# 改好的 `GraphModule` 可以再匯出一次，又得到 `ExportedProgram`。量化完交給後端時，就是這樣走回去的。

# %% [markdown] lang="en"
# An edited `GraphModule` can be exported again, which gives an `ExportedProgram`. That is the way back when a quantized
# graph goes to a backend.

# %%
again = torch.export.export(edited, example)
assert isinstance(again, torch.export.ExportedProgram)
assert again.graph.find_nodes(
    op="call_function", target=torch.ops.aten.sigmoid.default
), "the edit got lost on the way"

# %% [markdown] lang="zh"
# ## 在 PT2E 的哪一步
#
# | 步驟 | 拿到 | 交出 |
# | --- | --- | --- |
# | `torch.export.export(model, example)` | `nn.Module` | `ExportedProgram` |
# | `.module()` | `ExportedProgram` | `GraphModule` |
# | `prepare_pt2e`、`convert_pt2e` | `GraphModule` | `GraphModule`；圖是同一張，傳進去的那份也變了 |
# | 再一次 `torch.export.export`，然後 lowering | `GraphModule` | `ExportedProgram` |
#
# 中間那一列是 [M01](../m01_first_ptq/0_overview.py) 的主題，最後一列是 [M08](../m08_executorch/0_overview.py) 的。
#
# ## 名詞
#
# | 名詞 | 是什麼 |
# | --- | --- |
# | 圖、node、邊 | 計算寫成一串 node；一條邊從產生 tensor 的 node 連到使用它的 node |
# | `GraphModule` | 帶著一張圖的 `nn.Module`；圖是它的 `forward` |
# | `ExportedProgram` | `torch.export.export` 的回傳值：圖加上參數、signature、條件 |
# | signature | 圖的每個輸入、輸出是什麼：使用者給的、參數，還是 buffer |
# | ATen op | PyTorch tensor 函式庫裡的運算，例如 `aten.conv2d.default` |
# | `recompile()` | 從圖重新產生 `forward` 的程式 |
#
# 全部的名詞在[詞彙表](../glossary.md)。

# %% [markdown] lang="en"
# ## Where PT2E uses which
#
# | Step | Takes | Returns |
# | --- | --- | --- |
# | `torch.export.export(model, example)` | `nn.Module` | `ExportedProgram` |
# | `.module()` | `ExportedProgram` | `GraphModule` |
# | `prepare_pt2e`, `convert_pt2e` | `GraphModule` | `GraphModule`; same graph, so the one you passed in changes too |
# | `torch.export.export` once more, then lowering | `GraphModule` | `ExportedProgram` |
#
# The third row is the subject of [M01](../m01_first_ptq/0_overview.py), the last that of
# [M08](../m08_executorch/0_overview.py).
#
# ## Terms
#
# | Term | What it is |
# | --- | --- |
# | graph, node, edge | a computation written as a list of nodes; an edge leads from the node that makes a tensor to one that uses it |
# | `GraphModule` | an `nn.Module` that carries a graph; the graph is its `forward` |
# | `ExportedProgram` | what `torch.export.export` returns: a graph plus parameters, signature and conditions |
# | signature | what each input and output of the graph is: the user's, a parameter, or a buffer |
# | ATen op | an operation of PyTorch's tensor library, such as `aten.conv2d.default` |
# | `recompile()` | generates the code of `forward` from the graph again |
#
# All terms are in the [glossary](../glossary.md).

# %% [markdown] lang="zh"
# ## 小結
#
# - 模組清單看不到呼叫與 `+`；圖一次呼叫一個 node，所以量化在圖上做。
# - `nn.Module` 是程式，`ExportedProgram` 是紀錄，`GraphModule` 是能呼叫、能改的圖。
# - 匯出固定了結構（Python 的 `if` 已經選好邊），但參數與原模型共用。
# - 改圖之後要 `recompile()`；改好的圖可以再匯出。

# %% [markdown] lang="en"
# ## Recap
#
# - A list of modules shows neither calls nor `+`; a graph has one node per call, so that is where quantization works.
# - `nn.Module` is a program, `ExportedProgram` a record, `GraphModule` a graph you can call and edit.
# - Export freezes the structure (every Python `if` has been decided), but parameters are shared with the original.
# - After an edit, `recompile()`; an edited graph can be exported again.

# %% [markdown] lang="zh"
# ## 試試看
#
# 把 TinyConvNet 的圖裡四個 relu 全部換成 ReLU6，也就是 `aten.hardtanh.default(x, 0.0, 6.0)`：除了 `target`，還要給
# `node.args` 一個新的 tuple。拿什麼來驗證？另做一個 TinyConvNet，把它的 `nn.ReLU` 換成 `nn.ReLU6`。

# %% [markdown] lang="en"
# ## Try it
#
# In the graph of TinyConvNet, turn all four relus into ReLU6, that is `aten.hardtanh.default(x, 0.0, 6.0)`: apart from
# `target`, `node.args` needs a new tuple. To check your graph, build another TinyConvNet and replace its `nn.ReLU` by
# `nn.ReLU6`.

# %% tags=["solution"]
relu6_model = copy.deepcopy(tiny)
relu6_model.relu = relu6_model.block.relu = nn.ReLU6()
images = (20 * torch.rand(2, 3, 16, 16),)  # large values, so that 6 is passed

# %% tags=["solution"]
relu6_graph = torch.export.export(tiny, images).module()
for node in relu6_graph.graph.find_nodes(
    op="call_function", target=torch.ops.aten.relu.default
):
    node.target = torch.ops.aten.hardtanh.default
    node.args = (node.args[0], 0.0, 6.0)
relu6_graph.recompile()

with torch.no_grad():
    ours, theirs = relu6_graph(*images), relu6_model(*images)
    without = tiny(*images)
assert torch.allclose(ours, theirs, atol=1e-4), "not the ReLU6 of the model"
assert not torch.allclose(theirs, without), (
    "no value passed 6, so this proves nothing"
)

# %% [markdown] lang="zh" tags=["solution"]
# 圖上要改四個 node，模型上只要換兩個模組：同一個模組的兩次呼叫，在圖上是兩個 node。最後一個 assert 確認輸入夠大，ReLU6
# 真的有作用；沒有它，這個比較就算忘了改圖也會通過。

# %% [markdown] lang="en" tags=["solution"]
# Four nodes change in the graph but only two modules in the model: two calls of one module are two nodes. The last
# assert makes sure that the inputs are large enough for ReLU6 to matter; without it the comparison would pass even if
# you had forgotten to edit the graph.

# %% [markdown] lang="zh"
# ## 本章地圖
#
# | 頁 | 做什麼 |
# | --- | --- |
# | [M00-1 圖與 node](1_graph_and_node.py) | 六種 node、五個欄位、邊的兩端、順序，圖怎麼變成程式 |
# | [M00-2 torch.export](2_export.py) | 匯出記下了什麼、寫死了什麼；batch、動態 shape，以及會靜靜出錯的用法 |
# | [M00-3 改圖](3_rewrite.py) | 插入、換線、刪除和四個陷阱；寫一個自己的 observer pass |
#
# 這一章刻意跳過：torch.compile 與 Dynamo 怎麼抓圖、autograd 的圖、控制流程的 `torch.cond`、自訂 op，以及 export 的
# `strict=True`。量化用不到它們也能走完全程。下一章 [M01](../m01_first_ptq/0_overview.py) 就在這張圖上開始量化。
#
# ## 參考資料
#
# - PyTorch 文
#   件：[torch.fx](https://docs.pytorch.org/docs/stable/fx.html)、[torch.export](https://docs.pytorch.org/docs/stable/export.html)
# - torch 2.13.0 原始碼：`torch/fx/graph_module.py`、`torch/export/exported_program.py`、`torch/export/_unlift.py`
# - Reed 等人，
#   〈[torch.fx: Practical Program Capture and Transformation for Deep Learning in Python](https://arxiv.org/abs/2112.08429)〉，2021：fx
#   為什麼長這樣

# %% [markdown] lang="en"
# ## Map of the chapter
#
# | Page | What happens there |
# | --- | --- |
# | [M00-1 Graph and node](1_graph_and_node.py) | six kinds of nodes, five fields, both ends of an edge, order, and how a graph becomes code |
# | [M00-2 torch.export](2_export.py) | what export records and what it fixes; batch, dynamic shapes, and uses that go wrong in silence |
# | [M00-3 Rewriting](3_rewrite.py) | insert, rewire, erase, and four traps; an observer pass of our own |
#
# Left out on purpose: how torch.compile and Dynamo capture graphs, autograd's graph, control flow with `torch.cond`,
# custom ops, and export with `strict=True`. Quantization gets by without them. The next chapter,
# [M01](../m01_first_ptq/0_overview.py), starts quantizing in this graph.
#
# ## References
#
# - PyTorch documentation: [torch.fx](https://docs.pytorch.org/docs/stable/fx.html),
#   [torch.export](https://docs.pytorch.org/docs/stable/export.html)
# - Source of torch 2.13.0: `torch/fx/graph_module.py`, `torch/export/exported_program.py`, `torch/export/_unlift.py`
# - Reed et al.,
#   "[torch.fx: Practical Program Capture and Transformation for Deep Learning in Python](https://arxiv.org/abs/2112.08429)",
#   2021: why fx looks the way it does
