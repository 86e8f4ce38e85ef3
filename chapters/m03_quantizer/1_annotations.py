# %% [markdown] lang="zh"
# # M03-1 | 讀懂 XNNPACKQuantizer 寫下的標註
#
# 模型量化得不如預期時，第一件該看的不是 Q/DQ 圖，而是標註：quantizer 在每個 node 上寫了什麼，一讀便知。這一頁把
# `XNNPACKQuantizer` 寫在 conv → relu 與 TinyConvNet 上的標註攤成表格，再一一試出標註的規則，包括幾種寫錯也不會有任何訊
# 息的。規格、標註、設定這三個詞在 [M03-0](0_overview.py)。
#
# **讀完你會知道**
#
# - 標註寫在哪些 node 上，為什麼 weight 的 node 上是空的標註
# - `_annotated` 有什麼用，怎麼靠它把一層留在 fp32
# - 同一個 tensor 寫了好幾份規格時，什麼時候共用一個 observer，又是哪個 node 的 `allow_implicit_sharing` 說了算
# - 哪些寫錯的標註會有訊息，哪些不會

# %% [markdown] lang="en"
# # M03-1 | Reading what XNNPACKQuantizer wrote
#
# When a model isn't quantized the way you expected, the first thing to look at is not the Q/DQ graph but the
# annotations: they tell what the quantizer decided, node by node. This page lays out in tables what `XNNPACKQuantizer`
# writes on conv → ReLU and on TinyConvNet, and then finds the rules of annotations by experiment, including mistakes
# that cause no message at all. Spec, annotation and configuration are explained in [M03-0](0_overview.py).
#
# **What you will know**
#
# - Which nodes carry annotations, and why those on weights are empty
# - What `_annotated` does, and how it lets you keep a layer in fp32
# - When several specs for one tensor share an observer, and which node's `allow_implicit_sharing` counts
# - Which faulty annotations are noticed, and which are not

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. conv → relu：輸出的規格寫在 `conv2d` 還是 `relu` 上？weight 自己的 node 上寫了什麼？
# 2. TinyConvNet 第一個 relu 的輸出，在標註裡出現三次：relu 的輸出、`conv2d_1` 的輸入、`add` 的輸入。會有幾個 observer？
# 3. `input_qspec_map` 裡有一個鍵，根本不是這個 node 的輸入。prepare 會怎樣？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. conv → ReLU: is the output's spec written on `conv2d` or on `relu`? What is on the node of the weight itself?
# 2. The output of TinyConvNet's first ReLU occurs three times in the annotations: as output of ReLU, as input of
#    `conv2d_1` and as input of `add`. How many observers will there be?
# 3. `input_qspec_map` has a key that is no input of its node. What does prepare do?

# %% tags=["setup"]
from dataclasses import replace

from common.env import quiet
from common.models import example_inputs, get_model
from common.quantizers import PTQQuantizer
from common.viz import T, graph, say, table

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e import (
    HistogramObserver,
    MinMaxObserver,
    PerChannelMinMaxObserver,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)

quiet()

aten = torch.ops.aten
example = example_inputs(1)  # a tuple: one image of shape (1, 3, 16, 16)


def calls(gm, op):
    """The nodes of a graph that call `op`."""
    return gm.graph.find_nodes(op="call_function", target=op)


def export(name):
    return torch.export.export(get_model(name), example).module()


# %% [markdown] lang="zh"
# ## 只標註，不 prepare
#
# 要看標註，不必走完 [M01-0](../m01_first_ptq/0_overview.py) 的四步：在匯出的圖上直接呼叫 quantizer 的方法，再讀每個
# node 的 `meta["quantization_annotation"]`。

# %% [markdown] lang="en"
# ## Annotate without prepare
#
# To see annotations there is no need for the four steps of [M01-0](../m01_first_ptq/0_overview.py). Call the
# quantizer's methods on the exported graph, then read `meta["quantization_annotation"]` of each node:

# %%
KEY = "quantization_annotation"
config = get_symmetric_quantization_config(is_per_channel=True)

annotated = export("conv_relu")
XNNPACKQuantizer().set_global(config).annotate(annotated)


def short(spec):
    """act: the spec of activations, wt: of weights, =x: shared with x."""
    if spec is None:
        return "–"
    if isinstance(spec, SharedQuantizationSpec):
        return f"={spec.edge_or_node}"
    return "act" if spec == config.input_activation else "wt"


assert config.input_activation == config.output_activation, "act is two specs"
assert short(config.weight) == "wt"


# %%
def read(gm):
    """Node name -> (input name -> spec, output spec, `_annotated`)."""
    found = {}
    for node in gm.graph.nodes:
        if (note := node.meta.get(KEY)) is not None:
            inputs = {k.name: short(v) for k, v in note.input_qspec_map.items()}
            output = short(note.output_qspec)
            found[node.name] = inputs, output, note._annotated
    return found


notes = read(annotated)
assert notes["conv2d"][0] == {"x": "act", "conv_weight": "wt", "conv_bias": "–"}
assert notes["conv2d"][1] == "–", "conv has a spec for its output"
assert notes["relu"] == ({}, "act", True), "relu should have only its output"
for name in ("conv_weight", "conv_bias"):
    assert notes[name] == ({}, "–", True), f"{name} is more than marked"
assert len(notes) == 4, "something else is annotated"

# %% tags=["plot"]
HEADER = [
    "node",
    T(zh="輸入 → 規格", en="inputs → specs"),
    T(zh="輸出", en="output"),
    "`_annotated`",
]


def row(name, note):
    if note is None:
        return [f"`{name}`", T(zh="沒有標註", en="no annotation"), "", ""]
    inputs, output, mark = note
    listed = ", ".join(
        f"{source}:\N{NO-BREAK SPACE}{spec}" for source, spec in inputs.items()
    )
    return [f"`{name}`", listed or "{}", output, str(mark)]


table(
    [row(node.name, notes.get(node.name)) for node in annotated.graph.nodes],
    HEADER,
    caption=T(
        zh="conv → relu 的標註。act 是 activation 的規格（int8，非對稱，HistogramObserver），wt 是 weight 的規格（int8，per-channel，"
        "對稱）；–：沒有規格；{}：空的 map。",
        en="Annotations on conv → ReLU. act is the spec of activations (int8, asymmetric, HistogramObserver), wt that of weights "
        "(int8, per channel, symmetric); –: no spec; {}: an empty map.",
    ),
)

# %% [markdown] lang="zh"
# 逐列看：
#
# - `conv2d`：三個輸入各有一項；bias 那項的規格是 `None`，等於沒寫。沒有輸出的規格。
# - `relu`：只有輸出的規格。輸入沒寫，因為 conv 與 relu 之間的值不必存成 int8。
# - `conv_weight`、`conv_bias`：標註是**空的**，只有 `_annotated` 是 `True`。weight 的規格寫在 conv 那一端。
# - `x`、`_guards_fn`（檢查輸入的 node）、`output`：沒有標註。
#
# 這是預測 1 的答案，也是讀標註的鑰匙：**後端當成一個 kernel 算的一組 op，輸入的規格寫在第一個 node，輸出的規格寫在最後
# 一個 node**，中間什麼都不寫。

# %% [markdown] lang="en"
# Row by row:
#
# - `conv2d`: an entry for each of its three inputs; the bias has the spec `None`, the same as no entry. No spec for the
#   output.
# - `relu`: a spec for its output only. Nothing for the input, since the value between conv and ReLU is never stored as
#   int8.
# - `conv_weight`, `conv_bias`: their annotations are **empty**, but `_annotated` is `True`. The weight's spec is
#   written at the convolution's end.
# - `x`, `_guards_fn` (the node that checks inputs), `output`: no annotation.
#
# That answers prediction 1, and it is the key to reading annotations: **of a group that the backend runs as one kernel,
# the first node has the specs of the inputs and the last node that of the output**; nothing is written in between.

# %% [markdown] lang="zh"
# ## TinyConvNet 的每一個 node
#
# TinyConvNet 有 BatchNorm，prepare 會先折掉再標註，所以這裡讀 prepare 之後的圖：標註還在。從這裡起用本課程的
# `PTQQuantizer`：和 `XNNPACKQuantizer` 寫的標註相同，只省下 QAT 才用得到的搜尋；先在 conv → relu 上確認。

# %% [markdown] lang="en"
# ## Every node of TinyConvNet
#
# TinyConvNet has BatchNorms, which prepare folds before it has the graph annotated. So we read the graph after prepare,
# where the annotations still are. From here on we use the course's `PTQQuantizer`: it writes the annotations of
# `XNNPACKQuantizer` and merely skips a search that only QAT needs. First we check that on conv → ReLU.

# %%
quick = export("conv_relu")
PTQQuantizer().set_global(config).annotate(quick)
assert read(quick) == notes, "PTQQuantizer writes something else"

prepared = prepare_pt2e(export("tiny"), PTQQuantizer().set_global(config))
notes = read(prepared)

# %% tags=["plot"]
table(
    [
        row(node.name, notes.get(node.name))
        for node in prepared.graph.nodes
        if node.op == "call_function"
    ],
    HEADER,
    caption=T(
        zh="TinyConvNet 每個 op 的標註。=relu_3：和 relu_3 的輸出共用。weight 與 bias 的空標註沒有列出。",
        en="The annotation of each op in TinyConvNet. =relu_3: shared with the output of relu_3. Empty annotations on weights "
        "and biases are left out.",
    ),
)

# %% tags=["plot"]
drawn = {}
for node in prepared.graph.nodes:
    if node.op == "call_function":
        inputs, output, _ = notes[node.name]
        specs = [spec for spec in inputs.values() if spec != "–"]
        parts = ["in " + " ".join(specs)] if specs else []
        parts += ["out " + output] if output != "–" else []
        drawn[node.name] = ", ".join(parts)
graph(
    prepared,
    names=True,
    notes=drawn,
    alt=T(
        zh="prepare 之後的 TinyConvNet，每個 op 的框裡寫著它的標註：conv2d 寫 in act wt，緊接的 relu 寫 out act；add 寫 in act act，"
        "relu_2 寫 out act；mean、flatten 寫 =relu_3、=mean；linear 輸入、輸出都有。綠色的 observer 只出現在寫了規格的 tensor 上。",
        en="TinyConvNet after prepare, with its annotation in the box of each op: conv2d has in act wt, and the relu behind it "
        "out act; add has in act act, and relu_2 out act; mean and flatten have =relu_3 and =mean; linear has both inputs and output. "
        "Green observers sit only on tensors with a spec.",
    ),
    caption=T(
        zh="標註（框裡的 in、out）和它變成的 observer（綠色）。conv 與 relu、add 與 relu 之間沒有規格，也就沒有 observer。shared A：這三處是同一個 observer。",
        en="Annotations (in and out, written in the boxes) and the observers they turn into (green). Between a conv and its "
        "ReLU, and between add and ReLU, there is no spec and hence no observer. shared A: these three places hold one observer.",
    ),
)

# %% [markdown] lang="zh"
# 用那把鑰匙讀：
#
# - conv → relu 有三組，add → relu 一組，都是輸入在前、輸出在後。
# - `conv2d_2` 後面沒有 relu，`linear` 也沒有，所以自成一組，輸入、輸出寫在同一個 node。
# - `mean`、`flatten` 的規格是 `SharedQuantizationSpec`：不另立 observer，用前一個 node 的
#   （[M01-2](../m01_first_ptq/2_prepare_convert.py) 看過效果，寫法在 [M03-3](3_shared_and_derived.py)）。

# %% [markdown] lang="en"
# With that key:
#
# - There are three groups conv → ReLU and one add → ReLU, each with inputs at the front and the output at the end.
# - No ReLU follows `conv2d_2` or `linear`. Each is a group of its own, with inputs and output on the same node.
# - The specs of `mean` and `flatten` are `SharedQuantizationSpec`s: no observer of their own, they use that of the node
#   before ([M01-2](../m01_first_ptq/2_prepare_convert.py) showed the effect, [M03-3](3_shared_and_derived.py) how to
#   write it).

# %%
groups = {
    "conv2d": "relu",
    "conv2d_1": "relu_1",
    "add": "relu_2",
    "conv2d_3": "relu_3",
}
for first, last in groups.items():
    assert "act" in notes[first][0].values(), f"{first}: no spec for an input"
    assert notes[first][1] == "–", f"{first}: a spec for its output"
    assert notes[last][:2] == ({}, "act"), f"{last}: more than its output"
for lone in ("conv2d_2", "linear"):
    assert "act" in notes[lone][0].values() and notes[lone][1] == "act"
assert notes["mean"] == ({"relu_3": "=relu_3"}, "=relu_3", True)
assert notes["flatten"] == ({"mean": "=mean"}, "=mean", True)

parameters = [n.name for n in prepared.graph.nodes if n.op == "get_attr"]
empty = [name for name in parameters if notes[name] == ({}, "–", True)]
assert len(parameters) == len(empty) == 10, "5 weights and 5 biases"

# %% [markdown] lang="zh"
# ## 空的標註：「有人管了」
#
# `_annotated` 是寫標註的人彼此之間的記號：`XNNPACKQuantizer` 一種組合接一種組合地找（單獨的 conv、conv → relu、add →
# relu 等等），某組裡只要有一個 node 已經標過，就跳過整組。prepare 不看這個記號；把它全部改成 `False`，observer 一個也不
# 少：

# %% [markdown] lang="en"
# ## Empty annotations: "this one is taken"
#
# `_annotated` is a mark between those who write annotations. `XNNPACKQuantizer` tries one kind of group after another
# (a lone conv, conv → ReLU, add → ReLU and so on), and as soon as one node of a group is marked, it skips the whole
# group. Prepare doesn't look at the mark: set it to `False` everywhere, and not one observer is missing:


# %%
class Unmarked(PTQQuantizer):
    def annotate(self, model):
        super().annotate(model)
        for node in model.graph.nodes:
            if KEY in node.meta:
                node.meta[KEY]._annotated = False
        return model


def observed(prepared):
    """The observed tensors, by name."""
    found = [
        node.args[0].name
        for node in prepared.graph.find_nodes(op="call_module")
        if node.target.startswith("activation_post_process")
    ]
    return sorted(found)


unmarked = prepare_pt2e(export("tiny"), Unmarked().set_global(config))
assert not any(mark for *_, mark in read(unmarked).values())
assert observed(unmarked) == observed(prepared), "prepare reads the mark"
assert not any("bias" in name for name in observed(prepared))

# %% [markdown] lang="zh"
# 反過來就有用了：搶在 `XNNPACKQuantizer` 之前放一個空標註、把 `_annotated` 設成 `True`，它會以為有人管了，那一組就留在
# fp32。`transform_for_annotation` 在 BN 折疊之後、標註之前呼叫，正是時候：

# %% [markdown] lang="en"
# Put it the other way round and it becomes useful. Place an empty annotation with `_annotated` set to `True` before
# `XNNPACKQuantizer` comes along, and it leaves that node's group alone, in fp32. `transform_for_annotation` is called
# after BN folding and before annotation, just the right moment:


# %%
class KeepFloat(PTQQuantizer):
    """Leaves the groups that begin with the named nodes in fp32."""

    def __init__(self, *names):
        super().__init__()
        self.names = names

    def transform_for_annotation(self, model):
        for node in model.graph.nodes:
            if node.name in self.names:
                node.meta[KEY] = QuantizationAnnotation(_annotated=True)
        return super().transform_for_annotation(model)


def prepared_without(name):
    return prepare_pt2e(export("tiny"), KeepFloat(name).set_global(config))


spared = prepared_without("conv2d_1")
spared_notes = read(spared)
assert spared_notes.get("conv2d_1") == ({}, "–", True), "not spared"
assert "relu_1" not in spared_notes, "the ReLU of the group was annotated"
missing = set(observed(prepared)) - set(observed(spared))
assert missing == {"block_conv1_weight"}, missing

half = read(prepared_without("relu_2"))  # the second half of add → relu
assert half["add"][1] == "act", "add was spared, too"

# %% [markdown] lang="zh"
# 標了 `conv2d_1`，`relu_1` 也一起被放過。少掉的 observer 只有那個 conv 的 weight；兩旁的 activation 仍然有 observer，因
# 為前後兩組還要它們。所以要確認一層有沒有量化，看標註，別數 observer。要標的是一組的**第一個** op：只標 `relu_2`，add →
# relu 這一組是跳過了，「單獨的 add」卻還對得上，`add` 照樣量化。

# %% [markdown] lang="en"
# We marked `conv2d_1`, and `relu_1` was spared along with it. The only observer gone is that of the conv's weight.
# Activations on both sides still have theirs, because the groups before and after need them. To find out whether a
# layer is quantized, read its annotation; don't count observers. And mark the **first** op of a group: with only
# `relu_2` marked, the group add → ReLU is skipped, but a lone add still matches, and `add` is quantized all the same.

# %% [markdown] lang="zh"
# ## 一個 tensor，好幾份規格
#
# `relu` 的輸出在標註裡出現三次：自己的 `output_qspec`、邊 `relu` → `conv2d_1`、邊 `relu` → `add`。三份規格相同，prepare
# 就讓它們共用一個 observer，這叫**隱含的共用**（implicit sharing）。標註的欄位 `allow_implicit_sharing` 可以關掉它，但
# 關在哪個 node 上才有效？試五種：

# %% [markdown] lang="en"
# ## One tensor, several specs
#
# The output of `relu` occurs three times in the annotations: in its own `output_qspec`, on the edge `relu` → `conv2d_1`
# and on the edge `relu` → `add`. The three specs are equal, so prepare has them share one observer. This is **implicit
# sharing**. The field `allow_implicit_sharing` of an annotation turns it off, but on which node? We try five ways:


# %%
class Unshared(PTQQuantizer):
    """Forbids implicit sharing on the named nodes."""

    def __init__(self, *names):
        super().__init__()
        self.names = names

    def annotate(self, model):
        super().annotate(model)
        for node in model.graph.nodes:
            if node.name in self.names:
                node.meta[KEY].allow_implicit_sharing = False
        return model


def observers_behind(node):
    """The observers that see a node's output, each listed once."""
    found = []
    for user in node.users:
        if str(user.target).startswith("activation_post_process"):
            found += [user.name, *observers_behind(user)]
    return found


# %%
count, unshared = {}, {}
both_users = ("conv2d_1", "add")
for names in [(), ("relu",), ("conv2d_1",), ("add",), both_users]:
    unshared[names] = prepare_pt2e(
        export("tiny"), Unshared(*names).set_global(config)
    )
    relu = calls(unshared[names], aten.relu.default)[0]
    count[names] = len(observers_behind(relu))

assert count[()] == 1, "equal specs did not share"
assert count[("relu",)] == 1, "the producer has a say"
assert count[("conv2d_1",)] == count[("add",)] == 1, "one is enough"
assert count[both_users] == 3, "still shared"

# %% tags=["plot"]
table(
    [
        [
            ", ".join(f"`{name}`" for name in names)
            if names
            else T(zh="都沒關", en="nowhere"),
            str(n),
        ]
        for names, n in count.items()
    ],
    [
        T(zh="在哪些 node 上關掉", en="turned off on"),
        T(zh="relu 輸出上的 observer", en="observers on the output of relu"),
    ],
)
both = unshared[both_users]
relu = calls(both, aten.relu.default)[0]
graph(
    both,
    only=["conv2d", "relu", *observers_behind(relu), "conv2d_1", "add"],
    names=True,
    alt=T(
        zh="relu 的輸出先過一個 observer，再分成兩路，各過一個自己的 observer，一路到 conv2d_1，一路到 add。",
        en="The output of relu passes one observer, then splits in two; each branch passes an observer of its own, one to "
        "conv2d_1 and one to add.",
    ),
    caption=T(
        zh="在兩個使用者上都關掉共用：同一個 tensor 上疊了 observer；只畫出相關的 node。",
        en="With sharing turned off on both users, observers pile up on one tensor; other nodes are left out.",
    ),
)

# %% [markdown] lang="zh"
# 都沒關就只有一個，這是預測 2 的答案。關在產生 tensor 的 `relu` 上沒有用：欄位的註解寫「這個 node 的輸出」，程式檢查的
# 卻是**使用者**的標註（torchao 0.18.0，`prepare.py` 的 `_get_edge_or_node_to_group_id`）。只關一個使用者也沒有用：另一
# 個使用者會把三處全部連在一起。兩個都關才分開，結果是疊起來的 observer，convert 之後就是連續兩次量化，沒有特殊理由不要
# 這麼做。

# %% [markdown] lang="en"
# Turned off nowhere, there is just one, which answers prediction 2. On `relu`, which produces the tensor, the field has
# no effect: its comment speaks of "the output of the node", but the code checks the annotation of the **user** (torchao
# 0.18.0, `_get_edge_or_node_to_group_id` in `prepare.py`). One user alone has no effect either, for the other one ties
# all three together. Only both pull them apart, and then observers pile up, which after convert means quantizing twice
# in a row. Don't, without a special reason.

# %%
QUANTIZE = torch.ops.quantized_decomposed.quantize_per_tensor.default

with torch.no_grad():
    both(*example)
twice = convert_pt2e(both)
relu = calls(twice, aten.relu.default)[0]
(q,) = relu.users
after_dq = [user.target for dq in q.users for user in dq.users]
assert after_dq == [QUANTIZE, QUANTIZE], "not quantized again"

# %% [markdown] lang="zh"
# 「相同」看的是 dtype、整數範圍、對稱與否、`ch_axis`、是否 dynamic，**不看 observer**。下面自己在 conv → relu 上寫兩份
# 只差 observer 的規格：

# %% [markdown] lang="en"
# "Equal" means dtype, integers, scheme, `ch_axis` and whether it is dynamic, but **not the observer**. Here we write,
# on conv → ReLU ourselves, two specs that differ in nothing else:


# %%
class ByHand(Quantizer):
    """Has `write(conv, relu)` annotate the two nodes of conv → relu."""

    def __init__(self, write):
        self.write = write

    def annotate(self, model):
        (conv,) = calls(model, aten.conv2d.default)
        (relu,) = calls(model, aten.relu.default)
        self.write(conv, relu)
        return model

    def validate(self, model):
        pass


activation = QuantizationSpec(
    dtype=torch.int8,
    quant_min=-128,
    quant_max=127,
    qscheme=torch.per_tensor_affine,
    observer_or_fake_quant_ctr=MinMaxObserver,
)


# %%
def differ_in_observer(conv, relu):
    histogram = replace(
        activation, observer_or_fake_quant_ctr=HistogramObserver
    )
    conv.meta[KEY] = QuantizationAnnotation(output_qspec=activation)
    relu.meta[KEY] = QuantizationAnnotation({conv: histogram})


gm = prepare_pt2e(export("conv_relu"), ByHand(differ_in_observer))
behind = observers_behind(calls(gm, aten.conv2d.default)[0])
classes = [type(getattr(gm, name)) for name in behind]
assert classes == [MinMaxObserver], "ReLU's Histogram was used"

# %% [markdown] lang="zh"
# 照樣合而為一，圖上先標的那一個（這裡是 conv 的輸出）獲勝，另一個無聲地消失。換 observer 的時候，要把同一個 tensor 的規
# 格全部換掉。
#
# ## 沒有訊息的錯：鍵不是輸入
#
# `input_qspec_map` 的鍵必須是這個 node **直接**的輸入。想標註 relu 的輸入，卻用了更前面的 `x` 當鍵，會怎樣？

# %% [markdown] lang="en"
# They are merged all the same: the one that comes first in the graph wins (here the output of conv), and the other
# vanishes without a word. If you swap in another observer, do so in every spec of that tensor.
#
# ## The mistake without a message: a key that is no input
#
# A key of `input_qspec_map` has to be a **direct** input of its node. Suppose we want to annotate the input of ReLU,
# but use `x`, further up, as the key:


# %%
def foreign_keys(gm):
    """(node, key) for each key that isn't an input of its node."""
    return [
        (node.name, str(key))
        for node in gm.graph.nodes
        if KEY in node.meta
        for key in node.meta[KEY].input_qspec_map
        if key not in node.all_input_nodes
    ]


def wrong_key(conv, relu):
    x = conv.args[0]
    relu.meta[KEY] = QuantizationAnnotation({x: activation})


def right_key(conv, relu):
    relu.meta[KEY] = QuantizationAnnotation({conv: activation})


for write, expected in [(wrong_key, []), (right_key, ["conv2d"])]:
    gm = prepare_pt2e(export("conv_relu"), ByHand(write))
    assert observed(gm) == expected, f"{write.__name__}: {observed(gm)}"

# %% [markdown] lang="zh"
# 用錯鍵，一個 observer 都沒有，也沒有任何訊息：這是預測 3 的答案。上面的 `foreign_keys` 在標註之後、prepare 之前找得出
# 來（適合放進 `validate`）；`XNNPACKQuantizer` 的標註當然是乾淨的：

# %% [markdown] lang="en"
# With the wrong key there is no observer and no message, which answers prediction 3. `foreign_keys` above finds it
# after annotation and before prepare, so `validate` is a good place for it. The annotations of `XNNPACKQuantizer` are
# clean, of course:

# %%
faulty = export("conv_relu")
ByHand(wrong_key).annotate(faulty)
assert foreign_keys(faulty) == [("relu", "x")]
assert foreign_keys(annotated) == [], "XNNPACKQuantizer has foreign keys"

# %% [markdown] lang="zh"
# ## 有訊息的錯
#
# 其餘的錯會丟例外，只是訊息裡都沒有「標註」二字，而且時機不同：有的在建立規格時，有的在 prepare，有的要到校準。每一種都
# 真的犯一次（`attempt` 用規格標註 conv 的輸入，走到校準，回傳在哪裡失敗），最後再確認對的寫法走得過去：

# %% [markdown] lang="en"
# ## Mistakes with a message
#
# Other mistakes raise an exception, but none of the messages mentions an annotation, and they come at different times:
# when the spec is made, in prepare, or as late as calibration. Let us make each of them once (`attempt` puts a spec on
# the input of conv, goes as far as calibration, and returns where it failed), then check that the right way goes
# through:

# %%
import torch.ao.quantization as old_namespace

OBSERVER = "observer_or_fake_quant_ctr"
old_observer = old_namespace.MinMaxObserver.with_args()
per_channel = {
    "qscheme": torch.per_channel_symmetric,
    "quant_min": -127,
    "ch_axis": 0,
    OBSERVER: PerChannelMinMaxObserver,
}


def spec(**fields):
    """Makes the spec of activations, with some fields changed."""
    return lambda: replace(activation, **fields)


def change_in_place():
    activation.quant_min = -127


MISTAKES = {
    "quant_min=10, quant_max=1": spec(quant_min=10, quant_max=1),
    "spec.quant_min = -127": change_in_place,
    "{x: MinMaxObserver()}": MinMaxObserver,
    "observer: MinMaxObserver()": spec(**{OBSERVER: MinMaxObserver()}),
    "observer: torch.ao…with_args()": spec(**{OBSERVER: old_observer}),
    "per-channel, no ch_axis": spec(**{**per_channel, "ch_axis": None}),
}


# %% tags=["setup"]
def attempt(make_spec, key_of=lambda conv: conv.args[0]):
    """(when it failed, the message) for a spec on an input of conv."""
    stage = "spec"

    def write(conv, relu):
        conv.meta[KEY] = QuantizationAnnotation({key_of(conv): made})

    try:
        made = make_spec()
        stage = "prepare"
        gm = prepare_pt2e(export("conv_relu"), ByHand(write))
        stage = "calibrate"
        with torch.no_grad():
            gm(*example)
    except Exception as error:
        return stage, f"{type(error).__name__}: {error}"
    return "–", ""


# %%
failures = {name: attempt(make) for name, make in MISTAKES.items()}
failures['{"x": spec}'] = attempt(spec(), key_of=lambda conv: "x")

for name, (stage, message) in failures.items():
    assert stage != "–", f"{name} went through"
    assert "annotat" not in message, f"{name}: {message}"
stages = {stage for stage, _ in failures.values()}
assert stages == {"spec", "prepare", "calibrate"}, stages

for right in (
    spec(),
    spec(**per_channel),
    spec(**{OBSERVER: HistogramObserver}),
):
    assert attempt(right) == ("–", ""), f"failed: {attempt(right)}"

# %% tags=["plot"]
FIXES = {
    "quant_min=10, quant_max=1": T(zh="對調", en="swap them"),
    "spec.quant_min = -127": "`replace()`",
    "{x: MinMaxObserver()}": T(zh="放規格", en="a spec"),
    "observer: MinMaxObserver()": T(zh="給類別", en="the class"),
    "observer: torch.ao…with_args()": T(zh="用 torchao 的", en="torchao's"),
    "per-channel, no ch_axis": "`ch_axis=0`",
    '{"x": spec}': T(zh="鍵是 node", en="a node as key"),
}
table(
    [
        [f"`{name}`", stage, f"`{message}`", FIXES[name]]
        for name, (stage, message) in failures.items()
    ],
    [
        T(zh="錯在哪裡", en="mistake"),
        T(zh="何時", en="when"),
        T(zh="訊息", en="message"),
        T(zh="改法", en="fix"),
    ],
    caption=T(
        zh="spec 是建立規格時，prepare 是呼叫 prepare_pt2e 時，calibrate 是第一次餵資料時。",
        en="spec: when the spec is made; prepare: in prepare_pt2e; calibrate: when the first data is run.",
    ),
)

# %% [markdown] lang="zh"
# `torch.ao` 那一列還算幸運。同一個舊類別**不加** `.with_args(…)`，從 prepare 到 convert 都沒有訊息，但是 convert 不認得
# 它：observer 原封不動留在圖上，沒有 q、dq。

# %% [markdown] lang="en"
# The row with `torch.ao` is the lucky case. **Without** `.with_args(…)`, the same old class goes through prepare and
# convert with no message, but convert doesn't know it: the observer stays in the graph as it was, and there is no q or
# dq.


# %%
def converted(observer):
    """conv → relu with `observer` on its input, calibrated and converted."""
    made = spec(**{OBSERVER: observer})()

    def write(conv, relu):
        conv.meta[KEY] = QuantizationAnnotation({conv.args[0]: made})

    gm = prepare_pt2e(export("conv_relu"), ByHand(write))
    with torch.no_grad():
        gm(*example)
    return convert_pt2e(gm)


new, old = converted(MinMaxObserver), converted(old_namespace.MinMaxObserver)
assert len(calls(new, QUANTIZE)) == 1 and not observed(new)
assert not calls(old, QUANTIZE), "convert knows the old class"
assert observed(old) == ["x"], "convert took the old observer away"

# %% [markdown] lang="zh"
# ## 小結
#
# - 讀標註的鑰匙：一組融合的 op，輸入的規格在第一個 node，輸出的規格在最後一個，中間沒有；weight 與 bias 的空標註只表示
#   有人管了。
# - `_annotated` 只影響之後還想標註的人；先在一組 op 的第一個上放一個空標註，就能把整組留在 fp32。
# - 同一個 tensor 的規格相同就共用一個 observer，比較時不看 observer 的類別；要分開，得在每個使用者上關掉。
# - 鍵不是輸入、用了舊的 observer 類別，都沒有訊息。先讀標註，再懷疑別的。

# %% [markdown] lang="en"
# ## Recap
#
# - The key to annotations: of a fused group, the first node has the specs of inputs and the last that of the output,
#   with nothing in between; empty annotations on weights and biases only say "taken".
# - `_annotated` matters only to whoever wants to annotate later. An empty annotation, placed beforehand on the first op
#   of a group, keeps the group in fp32.
# - Equal specs on one tensor share an observer, and the observer's class isn't compared. To separate them, turn sharing
#   off on every user.
# - Neither a key that is no input nor an old observer class causes a message. Read the annotations before you suspect
#   anything else.

# %% [markdown] lang="zh"
# ## 試試看：不 prepare 就知道 observer 在哪裡
#
# 只看標註，寫一個函式列出哪些 tensor 會有 observer，再和 prepare 的結果比。提示：`validate` 拿到的圖，BN 折好了、標註寫
# 好了、observer 還沒插進去，正好在那裡算。

# %% [markdown] lang="en"
# ## Try it: tell where observers will be, without prepare
#
# From annotations alone, list the tensors that will be observed, and compare with what prepare does. A hint: the graph
# that `validate` gets has BN folded and annotations written but no observers in it yet, so compute it there.


# %% tags=["solution"]
def will_be_observed(gm):
    tensors = set()
    for node in gm.graph.nodes:
        if (note := node.meta.get(KEY)) is None:
            continue
        for source, spec in note.input_qspec_map.items():
            if spec is not None and source in node.all_input_nodes:
                tensors.add(source.name)
        if note.output_qspec is not None:
            tensors.add(node.name)
    return sorted(tensors)


class Foretell(PTQQuantizer):
    def validate(self, model):
        self.foretold = will_be_observed(model)


quantizer = Foretell()
actual = prepare_pt2e(export("tiny"), quantizer.set_global(config))
assert quantizer.foretold == observed(actual), "another set of tensors"
print(*quantizer.foretold)

# %% tags=["solution"]
n = len(quantizer.foretold)
say(
    T(
        zh=f"{n} 個 tensor，一個不差。只有在關掉隱含的共用、或兩份規格不同的時候，一個 tensor 上才會有不只一個 observer。",
        en=f"{n} tensors, all of them right. Only where implicit sharing is off or two specs differ does one tensor get more than one observer.",
    )
)

# %% [markdown] lang="zh"
# ## 接下來
#
# 讀得懂，就寫得出來：[M03-2](2_write_a_quantizer.py) 用同一把鑰匙自己寫一個 quantizer，並逐個 node 和
# `XNNPACKQuantizer` 比對。`SharedQuantizationSpec` 與另外兩種規格在 [M03-3](3_shared_and_derived.py)；挑哪一層留在 fp32
# 最划算，是 [M05-3](../m05_accuracy/3_sensitivity.py) 的題目。

# %% [markdown] lang="en"
# ## Next
#
# Whoever can read them can write them: [M03-2](2_write_a_quantizer.py) uses the same key for a quantizer of our own and
# compares it with `XNNPACKQuantizer` node by node. `SharedQuantizationSpec` and two more kinds of specs are in
# [M03-3](3_shared_and_derived.py), and which layer is best left in fp32 is the subject of
# [M05-3](../m05_accuracy/3_sensitivity.py).
