# %% [markdown] lang="zh"
# # M00-1 | 讀一張圖：node 的五個欄位
#
# [概覽](0_overview.py)認識了 `GraphModule`。這一頁打開它的圖：圖是一串 node，讀懂一個 node 的五個欄位，就讀得懂整張圖。
# 之後每一章都靠這五個欄位：quantizer 看 `target` 認 op，順著 `args` 與 `users` 找邊，把決定寫進 `meta`。
#
# | 欄位 | 問的是 |
# | --- | --- |
# | `op` | 這是哪一種 node？ |
# | `target` | 它呼叫什麼、取什麼？ |
# | `args`、`kwargs` | 它的輸入從哪裡來？ |
# | `users` | 它的輸出到哪裡去？ |
# | `meta` | 還知道它的什麼：shape、dtype、來自哪個模組？ |
#
# **讀完你會知道**
#
# - 六種 node 各是什麼，匯出的圖裡會有哪幾種
# - 邊存在哪裡，從哪一端查
# - node 的順序代表什麼，圖怎麼變成程式
# - 不執行模型，怎麼知道每個 tensor 的 shape 和來歷

# %% [markdown] lang="en"
# # M00-1 | Reading a graph: the five fields of a node
#
# The [overview](0_overview.py) introduced `GraphModule`. This page opens its graph. A graph is a list of nodes, and if
# you can read the five fields of a node you can read all of it. Every later chapter relies on them: a quantizer
# recognizes ops by `target`, follows edges along `args` and `users`, and writes its decisions into `meta`.
#
# | Field | It answers |
# | --- | --- |
# | `op` | What kind of node is this? |
# | `target` | What does it call or fetch? |
# | `args`, `kwargs` | Where do its inputs come from? |
# | `users` | Where does its output go? |
# | `meta` | What else is known: shape, dtype, the module it came from? |
#
# **What you will know**
#
# - The six kinds of nodes, and which of them an exported graph has
# - Where edges are stored, and how to find both their ends
# - What the order of nodes means, and how a graph becomes code
# - How to learn a tensor's shape and origin without running the model

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 殘差塊的輸入 `x` 交給第一個 conv，也交給最後的加法。匯出的圖上，`len(x.users)` 是多少？
# 2. 把一個 node 搬到使用它的 node 後面，什麼時候會被發現：搬的當下、`recompile()`，還是都不會？
# 3. 匯出之後，不執行模型就能知道每個 activation 的 shape 嗎？數值呢？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. The input `x` of a residual block goes to the first convolution and to the addition at the end. In the exported
#    graph, what is `len(x.users)`?
# 2. You move a node to a place after a node that uses it. When is that noticed: as you move it, at `recompile()`, or
#    neither?
# 3. After export, can you tell the shape of every activation without running the model? And the values?

# %% tags=["setup"]
import operator
import textwrap

from common.env import quiet
from common.models import Block, example_inputs, get_model
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


# %% [markdown] lang="zh"
# ## op 與 target：六種 node
#
# `op` 只有六種，`target` 的意思跟著它變。為了一次看全，先用 `symbolic_trace` 追蹤一個六種都有的小模型；框裡最下面一行是
# 那個 node 的 `op`：

# %% [markdown] lang="en"
# ## op and target: six kinds of nodes
#
# There are only six values of `op`, and what `target` means depends on it. To see all of them at once, we trace a small
# model that has every kind with `symbolic_trace`; the last line in each box is the node's `op`:


# %%
class AllKinds(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.gain = nn.Parameter(torch.ones(4))

    def forward(self, x):
        y = torch.relu(self.linear(x)) * self.gain
        return y.flatten(1)


kinds = fx.symbolic_trace(AllKinds())
assert {node.op for node in kinds.graph.nodes} == {
    "placeholder",
    "get_attr",
    "call_module",
    "call_function",
    "call_method",
    "output",
}

# %% tags=["plot"]
graph(
    kinds,
    everything=True,
    notes={
        node.name: node.op for node in kinds.graph.nodes if node.op != node.name
    },
    alt=T(
        zh="x 是 placeholder，經過 call_module 的 linear、call_function 的 relu，和 get_attr 取來的 gain 一起進 call_function 的 mul，"
        "再經 call_method 的 flatten 到 output。",
        en="x is a placeholder; it passes linear, a call_module, and relu, a call_function, then meets gain, a get_attr, in mul, "
        "a call_function, and leaves through flatten, a call_method, to the output.",
    ),
    caption=T(
        zh="六種 node 在同一張圖上：最下面一行是 op。",
        en="All six kinds in one graph; the last line of each box is its op.",
    ),
)

# %% [markdown] lang="zh"
# | `op` | 做什麼 | `target` 是 |
# | --- | --- | --- |
# | `placeholder` | 圖的一個輸入 | 輸入的名字 |
# | `get_attr` | 從模組取一個參數或 buffer | 屬性的路徑，如 `conv.weight` |
# | `call_module` | 呼叫一個子模組 | 子模組的路徑 |
# | `call_function` | 呼叫一個函式 | 函式物件本身 |
# | `call_method` | 呼叫 tensor 的方法 | 方法名稱 |
# | `output` | 圖的結果 | `"output"` |
#
# 同一個模型用 `torch.export` 匯出，模組與方法都展開成 ATen op 的 `call_function`。`call_module` 只剩 `_guards_fn` 一
# 個；之後 PT2E 插入的 observer 也是 `call_module`。

# %% [markdown] lang="en"
# | `op` | What it does | `target` is |
# | --- | --- | --- |
# | `placeholder` | an input of the graph | the input's name |
# | `get_attr` | fetches a parameter or buffer from the module | the attribute's path, such as `conv.weight` |
# | `call_module` | calls a submodule | the submodule's path |
# | `call_function` | calls a function | the function object itself |
# | `call_method` | calls a method of a tensor | the method's name |
# | `output` | the result of the graph | `"output"` |
#
# When `torch.export` exports the same model, modules and methods turn into `call_function` nodes of ATen ops. The only
# `call_module` left is `_guards_fn`; later on, the observers that PT2E inserts are of this kind too.

# %%
batch = (torch.rand(2, 3, 4),)
exported_kinds = torch.export.export(AllKinds(), batch).module()
nodes = list(exported_kinds.graph.nodes)

assert not [node for node in nodes if node.op == "call_method"]
called = [node.target for node in nodes if node.op == "call_module"]
assert called == ["_guards_fn"], f"other modules are called: {called}"
for node in nodes:
    if node.op == "call_function":
        print(node.target)

# %% [markdown] lang="zh"
# 也有不是 ATen op 的 `call_function`：op 回傳好幾個 tensor 時，用 Python 的 `operator.getitem` 取出其中一個。

# %% [markdown] lang="en"
# Not every `call_function` is an ATen op: where an op returns several tensors, Python's `operator.getitem` picks one.


# %%
class AddHalves(nn.Module):
    def forward(self, x):
        first, second = x.chunk(2)
        return first + second


halves = torch.export.export(AddHalves(), (torch.rand(4),)).module().graph
picks = halves.find_nodes(op="call_function", target=operator.getitem)
assert len(picks) == 2, "getitem doesn't pick the halves"

# %% [markdown] lang="zh"
# `target` 要和**指明多載（overload）的** op（`OpOverload`）比較。少寫 `.default`，比較的對象變成一整組同名的
# op（`OpOverloadPacket`）：永遠不相等，也沒有錯誤訊息，只是什麼都找不到。

# %% [markdown] lang="en"
# Compare `target` with an op **including its overload** (an `OpOverload`). Without `.default` you compare with the
# whole family of that name (an `OpOverloadPacket`), which is never equal: no error, you just find nothing.

# %%
(relu,) = exported_kinds.graph.find_nodes(
    op="call_function", target=aten.relu.default
)
assert relu.target == aten.relu.default
assert relu.target != aten.relu, "the family counts as the op"
assert relu.target != torch.relu
assert relu.target.overloadpacket == aten.relu

# %% [markdown] lang="zh"
# ## args 與 users：邊的兩端
#
# 圖沒有另外存邊。一條邊就是「這個 node 出現在那個 node 的 `args` 裡」；fx 同時在來源那一端記下 `users`，兩端永遠一致。
# 下面是課程模型裡的殘差塊：

# %% [markdown] lang="en"
# ## args and users: both ends of an edge
#
# Edges aren't stored separately. An edge is the fact that one node appears in the `args` of another; fx keeps `users`
# at the source as well, so that both ends always agree. This is the residual block of the course's model:

# %%
block = Block(4).eval()
exported = torch.export.export(block, (torch.rand(1, 4, 8, 6),)).module()

for node in exported.graph.nodes:
    for source in node.all_input_nodes:  # the nodes in args and kwargs
        assert node in source.users, f"{source} doesn't know {node}"
    for user in node.users:
        assert node in user.all_input_nodes

# %% tags=["plot"]
graph(
    exported,
    types=True,
    alt=T(
        zh="x 分兩路：一路經 conv2d、batch_norm、relu、conv2d、batch_norm 進 add，一路直接進 add，再經 relu 到輸出。"
        "每條邊的 shape 都是 1×4×8×6。",
        en="x forks: one way leads through conv2d, batch_norm, relu, conv2d and batch_norm into add, the other straight into add; "
        "a relu and the output follow. The shape on every edge is 1×4×8×6.",
    ),
    caption=T(
        zh="殘差塊。邊上的 shape 來自 meta，圖還沒有執行過。",
        en="The residual block. The shapes on the edges come from meta; the graph has not run yet.",
    ),
)

# %%
(x,) = exported.graph.find_nodes(op="placeholder")
(add,) = exported.graph.find_nodes(op="call_function", target=aten.add.Tensor)
print("add.args: ", add.args)
print("add.users:", list(add.users))
print("x.users:  ", list(x.users))
assert len(x.users) == 3, "not the two edges drawn, plus the guards"

# %% [markdown] lang="zh"
# 預測 1：是 3。多出來的是 `_guards_fn`：它會讀每一個輸入，自己的結果卻沒有人用。所以「這個 tensor 只有一個使用者嗎」這
# 種判斷，遇到圖的輸入會差一。
#
# `args` 是不可變的：不能改其中一格，要整個換成新的 tuple。換了之後，`users` 由 fx 更新。

# %% [markdown] lang="en"
# Prediction 1: three. The extra one is `_guards_fn`, which reads every input while nobody uses its output. So a test
# like "has this tensor just one user?" is off by one at the inputs of a graph.
#
# `args` can't be modified in place: you can't set one entry, you assign a new tuple. Then fx updates `users`.

# %%
main, skip = add.args


def set_one_entry():
    add.args[0] = skip


print(error_of(set_one_entry))

add.args = (skip, skip)  # rewire: the main branch no longer enters
assert add not in main.users, "the old edge is still there"
add.args = (main, skip)  # and back
assert add in main.users

# %% [markdown] lang="zh"
# ## 順序，以及圖怎麼變成程式
#
# 圖的 node 是有順序的串列，順序就是執行順序，而且要符合拓撲順序：先算出來，才能使用。從空的圖手工做一張，最容易看清楚。
# 一行加一個 node，`GraphModule` 再把它翻成程式，也是一個 node 一行：

# %% [markdown] lang="en"
# ## Order, and how a graph becomes code
#
# The nodes of a graph form a list, its order is the order of execution, and it must be topological: a value is computed
# before it is used. This is easiest to see in a graph built by hand. Each line adds a node, and `GraphModule` turns
# them into code, again one line per node:

# %%
by_hand = fx.Graph()
a = by_hand.placeholder("a")
b = by_hand.call_function(aten.relu.default, (a,))
c = by_hand.call_function(aten.add.Tensor, (a, b))
by_hand.output(c)
built = fx.GraphModule(nn.Module(), by_hand)

values = torch.tensor([-1.0, 2.0])
assert torch.equal(built(values), values + values.relu())
print(built.code.strip())

# %% [markdown] lang="zh"
# 行尾的 `a = None` 是 fx 加的：最後一次使用之後放掉那個 tensor，記憶體才能提早釋放。現在把 relu 搬到加法後面：

# %% [markdown] lang="en"
# The `a = None` at the end of a line is fx's: after its last use a tensor is let go, so that its memory can be freed
# early. Now we move the relu to a place after the addition:

# %%
c.append(b)  # "after c comes b": no complaint
built.recompile()  # none here either
assert list(by_hand.nodes).index(b) > list(by_hand.nodes).index(c)
print(error_of(by_hand.lint))

c.prepend(b)  # back in front of c
by_hand.lint()
built.recompile()
assert torch.equal(built(values), values + values.relu())

# %% [markdown] lang="zh"
# 預測 2：都不會。搬移和 `recompile()` 都不檢查，只有 `graph.lint()` 會說（不然就要等到執行時才出錯）。所以改完圖的習慣
# 是 `lint()` 再 `recompile()`，[M00-3](3_rewrite.py) 會看到它也有抓不到的錯。

# %% [markdown] lang="en"
# Prediction 2: neither. Moving checks nothing and nor does `recompile()`; only `graph.lint()` tells you (or else the
# error at run time). So the habit after an edit is `lint()`, then `recompile()`. [M00-3](3_rewrite.py) shows what even
# `lint()` misses.

# %% [markdown] lang="zh"
# ## meta：還知道些什麼
#
# `meta` 是每個 node 的字典，匯出時填好。最有用的是 `val`：一個 `FakeTensor`，有 shape 和 dtype，沒有數值。op 還有
# `nn_module_stack`（來自哪個模組）與 `stack_trace`（來自原始碼哪一行）。

# %% [markdown] lang="en"
# ## meta: what else is known
#
# `meta` is a dictionary on each node, filled in during export. Its most useful entry is `val`: a `FakeTensor` with a
# shape and a dtype but no values. Ops also have `nn_module_stack` (the module they came from) and `stack_trace` (the
# line of source).

# %%
conv_relu = torch.export.export(
    get_model("conv_relu"), example_inputs(1)
).module()

rows = []
for node in conv_relu.graph.nodes:
    value = node.meta.get("val")
    stack = node.meta.get("nn_module_stack", {})
    module = list(stack.values())[-1][0] if stack else ""
    shape = "×".join(map(str, value.shape)) if value is not None else ""
    rows.append([f"`{node.name}`", f"`{node.op}`", shape, module])

# %% tags=["plot"]
table(
    [
        [name, op, shape or "–", f"`{module}`" if module else "–"]
        for name, op, shape, module in rows
    ],
    [
        "node",
        "op",
        T(zh="`val` 的 shape", en="shape of `val`"),
        T(zh="最內層的模組", en="innermost module"),
    ],
)

# %%
modules = {name: module for name, _, _, module in rows}
assert modules["`conv2d`"] == "conv" and modules["`relu`"] == "relu"
assert not modules["`conv_weight`"], "get_attr nodes know their module now"
assert modules["`_guards_fn`"] == modules["`conv2d`"]  # not its own

for node in conv_relu.graph.find_nodes(
    op="call_function", target=aten.conv2d.default
):
    value = node.meta["val"]
    assert type(value).__name__ == "FakeTensor"
    assert value.shape == (1, 8, 16, 16) and value.dtype == torch.float32

# %% [markdown] lang="zh"
# 預測 3：shape 和 dtype 知道，數值不知道。注意 `get_attr` 沒有 `nn_module_stack`：weight 不知道自己屬於哪個模組。用模組
# 名稱挑選要量化的層時會踩到這件事（[M03-3](../m03_quantizer/3_shared_and_derived.py)）。`_guards_fn` 則是後來加上的，帶
# 著和 conv2d 相同的紀錄，不必當真。自己新加的 node 則什麼都沒有：前面手工做的 relu，`b.meta` 是空的。
#
# 有了 `val`，不用執行就能算帳。例如 TinyConvNet 跑一張圖片，所有 op 的輸出加起來有多少個值、換成 int8 省多少：

# %% [markdown] lang="en"
# Prediction 3: shape and dtype yes, values no. Note that `get_attr` nodes have no `nn_module_stack`: a weight doesn't
# know which module it belongs to. You will trip over this when you choose layers to quantize by module name
# ([M03-3](../m03_quantizer/3_shared_and_derived.py)). `_guards_fn` was added later and carries the same record as
# conv2d; read nothing into it. And nodes you add yourself know nothing: `b.meta`, that of the relu we made by hand, is
# empty.
#
# With `val` you can do the accounting without running anything. For instance: how many values do all ops of TinyConvNet
# put out for one image, and what would int8 save?

# %%
assert not b.meta, "a new node comes with meta"

tiny = torch.export.export(get_model("tiny"), example_inputs(1)).module()
sizes = {
    node.name: node.meta["val"].numel()
    for node in tiny.graph.nodes
    if node.op == "call_function"
}
total = sum(sizes.values())
assert sizes["conv2d"] == 16 * 16 * 16  # channels x height x width
assert sizes["linear"] == 4

# %% tags=["plot"]
say(
    T(
        zh=f"{len(sizes)} 個 op 一共輸出 {total:,} 個值：fp32 是 {4 * total:,} bytes，int8 是 {total:,} bytes。"
        "（實際執行時，會融合的 op 之間不必存，用過的也會釋放。）",
        en=f"The {len(sizes)} ops put out {total:,} values in all: {4 * total:,} bytes in fp32, {total:,} bytes in int8. "
        "(In a real run, nothing is stored between fused ops, and what has been used is freed.)",
    )
)

# %% [markdown] lang="zh"
# ## 小結
#
# - `op` 有六種；匯出的圖裡，運算全是 `call_function`，`target` 是指明多載的 ATen op（取出一個結果的 `getitem` 除外）。
# - 邊存在 `args` 裡，`users` 是它的另一端，由 fx 維護；輸入多一個使用者 `_guards_fn`。
# - node 的順序就是程式的順序，`lint()` 檢查它；`recompile()` 只負責產生程式。
# - `meta["val"]` 有 shape 和 dtype，沒有數值；`get_attr` 不知道自己屬於哪個模組。
#
# 下一頁 [M00-2](2_export.py) 看這張圖是怎麼錄下來的；想直接改圖，跳到 [M00-3](3_rewrite.py)。

# %% [markdown] lang="en"
# ## Recap
#
# - `op` has six values; in an exported graph every operation is a `call_function` whose `target` is an ATen op with its
#   overload (or `getitem`, which picks one result of several).
# - Edges live in `args`; `users` is their other end, kept by fx; inputs have an extra user, `_guards_fn`.
# - The order of nodes is the order of the code; `lint()` checks it, `recompile()` only generates code.
# - `meta["val"]` has shape and dtype but no values; `get_attr` nodes don't know their module.
#
# On the next page, [M00-2](2_export.py), we see how such a graph is recorded; to start editing, go on to
# [M00-3](3_rewrite.py).

# %% [markdown] lang="zh"
# ## 試試看
#
# 不用產生出來的程式，自己執行一張圖：照順序走過每個 node，依 `op` 算出它的值，放進字典給後面的 node 用。拿 TinyConvNet
# 的圖和 `tiny(...)` 比，應該逐位元相同。提示：`fx.node.map_arg(node.args, f)` 把 `args` 裡的每個 node 換成 `f(node)`。

# %% [markdown] lang="en"
# ## Try it
#
# Run a graph without its generated code: walk through the nodes in order, compute each one's value according to its
# `op`, and keep it in a dictionary for the nodes after it. With the graph of TinyConvNet the result should equal
# `tiny(...)` bit for bit. A hint: `fx.node.map_arg(node.args, f)` replaces each node in `args` by `f(node)`.


# %% tags=["solution"]
def interpret(gm, *inputs):
    values, remaining = {}, iter(inputs)
    for node in gm.graph.nodes:
        args = fx.node.map_arg(node.args, values.__getitem__)
        if node.op == "placeholder":
            values[node] = next(remaining)
        elif node.op == "get_attr":
            values[node] = operator.attrgetter(node.target)(gm)
        elif node.op == "call_module":
            values[node] = gm.get_submodule(node.target)(*args)
        elif node.op == "call_function":
            values[node] = node.target(*args, **node.kwargs)
        elif node.op == "output":
            return args[0][0]  # exported graphs return a tuple of outputs


# %% tags=["solution"]
with torch.no_grad():
    image = torch.rand(1, 3, 16, 16)
    ours, theirs = interpret(tiny, image), tiny(image)
assert torch.equal(ours, theirs), "the interpreter computes something else"

# %% [markdown] lang="zh" tags=["solution"]
# 這就是 `torch.fx.Interpreter` 的骨架；它的子類別可以在每個 node 上插手，例如量每一層的誤差。拓撲順序在這裡也看得出用
# 處：只要順序對，`values` 裡一定找得到每個輸入。

# %% [markdown] lang="en" tags=["solution"]
# This is the skeleton of `torch.fx.Interpreter`, whose subclasses can step in at every node, say to measure each
# layer's error. It also shows what topological order is good for: if the order is right, `values` always has every
# input.
