# %% [markdown] lang="zh"
# # M01-2 | prepare 把 observer 放在哪裡，convert 又換成什麼
#
# [M01-1](1_minimal_ptq.py) 的四個呼叫把準確率保住了。這一頁打開圖來看：中間兩個呼叫究竟改了什麼，以及一個更實際的問題：
# 你的模型裡，哪些 op 真的被量化了，哪些只是看起來像？
#
# **讀完你會知道**
#
# - observer 落在哪些邊，BatchNorm 到哪裡去了
# - skip connection 為什麼是一個 observer、一個 q、兩個 dq
# - 哪些 op 的輸出沿用輸入的 scale，代價是什麼
# - 怎麼做一張逐 op 的覆蓋表，為什麼數 q 和 dq 不夠
# - `cat`，以及輸出有兩個使用者的 conv，會怎樣浪費掉格子

# %% [markdown] lang="en"
# # M01-2 | Where prepare puts observers, and what convert makes of them
#
# The four calls of [M01-1](1_minimal_ptq.py) kept the accuracy. This page opens the graph and looks: what exactly do
# prepare and convert change? And, more practically: which ops of your model were quantized, and which only look like it?
#
# **What you will know**
#
# - Which edges get an observer, and where BatchNorm went
# - Why a skip connection takes one observer, one q and two dq
# - Which ops reuse the scale of their input, and what that costs
# - How to make a coverage table, op by op, and why counting q and dq is not enough
# - How `cat`, or a convolution with two users, can waste integer levels

# %% [markdown] lang="zh"
# ## 先預測
#
# 往下讀之前，先寫下答案：
#
# 1. TinyConvNet 的 activation 上有幾個 observer？`add` 和它後面的 relu 之間有沒有？
# 2. 第一個 relu 的輸出同時給下一個 conv 和 `add`。convert 之後，那裡有幾個 q、幾個 dq？
# 3. 圖上有一個 sigmoid，前面是 dq，後面是 q。它被量化了嗎？

# %% [markdown] lang="en"
# ## Predict first
#
# Write down your answers before you read on:
#
# 1. How many observers sit on TinyConvNet's activations? Is there one between `add` and the ReLU after it?
# 2. The output of the first ReLU goes to the next convolution and to `add`. After convert, how many q and dq are there?
# 3. A sigmoid in the graph has a dq before it and a q after it. Is it quantized?

# %% tags=["setup"]
import copy
from collections import Counter

from common.data import calibration_batches
from common.env import quiet
from common.models import trained_tinyconvnet
from common.quantizers import PTQQuantizer
from common.viz import T, graph, say, table

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import nn
from torchao.quantization.pt2e import PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

quiet()

aten = torch.ops.aten
QUANTIZE = torch.ops.quantized_decomposed.quantize_per_tensor.default
DEQUANTIZE = torch.ops.quantized_decomposed.dequantize_per_tensor.default


def calls(gm, *targets):
    """The nodes that call an ATen op, or those that call one of `targets`."""
    found = [n for n in gm.graph.nodes if n.op == "call_function"]
    if targets:
        return [n for n in found if n.target in targets]
    return [n for n in found if n.target.namespace == "aten"]


def op_name(node):
    """`conv2d` for aten.conv2d.default."""
    return str(node.target).split(".")[1]


# %% [markdown] lang="zh"
# ## prepare 先把 BatchNorm 折進 conv
#
# 訓練好的 TinyConvNet 有四組 conv → BN。把 prepare 前後的 op 各數一遍：

# %% [markdown] lang="en"
# ## First, prepare folds BatchNorm into the convolutions
#
# A trained TinyConvNet has four pairs conv → BN. Let us count the ops before and after prepare:

# %%
model = trained_tinyconvnet()
(batch,) = next(calibration_batches(32))
config = get_symmetric_quantization_config(is_per_channel=True)
quantizer = XNNPACKQuantizer().set_global(config)

exported = torch.export.export(model, (batch,)).module()
before = Counter(op_name(node) for node in calls(exported))
prepared = prepare_pt2e(exported, quantizer)
after = Counter(op_name(node) for node in calls(prepared))

assert before - after == {"batch_norm": 4}, "BatchNorm was not folded"
assert not after - before, "prepare added an operator"
print(dict(after))

# %% [markdown] lang="zh"
# 四個 `batch_norm` 不見了，其他 op 一個沒變。BN 在推論時只是每個 channel 乘一個數、加一個數，所以可以併進 conv 的 weight，
# 並讓 conv 多出一個 bias。之後 observer 看到的是**折疊過的** weight。改的是匯出的圖，你的 `model` 沒有動：

# %% [markdown] lang="en"
# Four `batch_norm` are gone, and every other op is still there. At inference BN merely multiplies each channel by one
# number and adds another, so it can move into the convolution's weight, and the convolution gains a bias. From here on,
# observers see the **folded** weight. All of that happens to the exported graph; your `model` stays as it was:

# %%
bn = model.stem_bn
factor = bn.weight / (bn.running_var + bn.eps).sqrt()  # one per channel
weight_by_hand = model.stem_conv.weight * factor.view(-1, 1, 1, 1)
bias_by_hand = bn.bias - bn.running_mean * factor

weight = prepared.get_parameter("stem_conv.weight")
bias = prepared.get_parameter("stem_conv.weight_bias")  # a new parameter
assert torch.allclose(weight, weight_by_hand, atol=1e-6), "another weight"
assert torch.allclose(bias, bias_by_hand, atol=1e-6), "another bias"
assert model.stem_conv.bias is None, "prepare changed the model itself"

with torch.no_grad():  # calibrates, too
    torch.testing.assert_close(prepared(batch), model(batch))

# %% [markdown] lang="zh"
# 代數與例外（例如 conv 的輸出另有使用者）在 [M04](../m04_batchnorm/0_overview.py)。
#
# ## 再把 observer 放到要存成 int8 的邊上
#
# 列出每個 observer 看著哪個 tensor。weight 與 activation 用的類別不同，所以分得開：

# %% [markdown] lang="en"
# [M04](../m04_batchnorm/0_overview.py) has the algebra and the exceptions, such as a convolution whose output has
# another user.
#
# ## Then it puts observers on the edges that will be int8
#
# Let us list which tensor each observer watches. Weights and activations get different classes, which tells them apart:


# %%
def observers_of(prepared):
    """The observer on each observed tensor, by the tensor's name."""
    found = {}
    for node in prepared.graph.nodes:
        if str(node.target).startswith("activation_post_process"):
            found[node.args[0].name] = getattr(prepared, node.target)
    return found


observers = observers_of(prepared)
weights = [
    name
    for name, observer in observers.items()
    if isinstance(observer, PerChannelMinMaxObserver)
]
activations = [name for name in observers if name not in weights]
print(*weights)
print(*activations)

# %% tags=["plot"]
graph(
    prepared,
    names=True,
    alt=T(
        zh="prepare 之後的 TinyConvNet，由上到下：x、relu、relu_1、conv2d_2、relu_2、relu_3、mean、flatten、linear "
        "的輸出各有一個 observer；conv 與 relu 之間、add 與 relu 之間沒有。relu 的輸出過了 observer 之後分給 conv2d_1 與 add。",
        en="TinyConvNet after prepare, from top to bottom: x, relu, relu_1, conv2d_2, relu_2, relu_3, mean, flatten and "
        "linear each have an observer on their output; there is none between a conv and its relu or between add and relu. "
        "Behind its observer, the output of relu goes to conv2d_1 and to add.",
    ),
    caption=T(
        zh="prepare 之後的 TinyConvNet。兩個 op 之間沒有綠色 observer 的邊，在後端的 kernel 裡面，不必存成 int8；標著 shared A 的三個 observer 是同一個物件。",
        en="TinyConvNet after prepare. An edge from op to op without a green observer lies inside a backend kernel and is never stored as int8. The three observers marked shared A are one object.",
    ),
)

# %% [markdown] lang="zh"
# 規則只有一條：後端當成**一個 kernel** 算的一組 op，observer 放在這一組的輸入、輸出與 weight 上，裡面不放。conv → relu、add
# → relu、linear 各是一組；`block.conv2` 後面沒有 relu，所以它自己就是一組，輸出上有 observer。bias 一個也沒有：後端用
# int32 存它，scale 由輸入和 weight 的 scale 相乘而得（[M03-3](../m03_quantizer/3_shared_and_derived.py)）。

# %% [markdown] lang="en"
# There is a single rule: a group of ops that the backend runs as **one kernel** has observers on its inputs, its output
# and its weight, and none inside. conv → relu, add → relu and linear are such groups; no ReLU follows `block.conv2`, so
# it is a group of its own with an observer on its output. No bias has one: backends store it as int32, and its scale is
# the product of the scales of input and weight ([M03-3](../m03_quantizer/3_shared_and_derived.py)).

# %%
for inside in ("conv2d", "conv2d_1", "conv2d_3", "add"):
    assert inside not in observers, f"{inside} is followed by its relu"
for at_the_end in ("relu", "relu_1", "conv2d_2", "relu_2", "linear"):
    assert at_the_end in activations, f"no observer on {at_the_end}"
assert len(weights) == 5, "not the weights of 4 convolutions and 1 linear"
assert not any("bias" in name for name in observers), "a bias is observed"

# %% tags=["plot"]
distinct = len({id(observers[name]) for name in activations})
assert len(activations) > distinct, "no observer is shared"
say(
    T(
        zh=f"activation 上有 {len(activations)} 處 observer，add 與 relu 之間沒有：這是預測 1 的答案。"
        f"可是這 {len(activations)} 處只有 {distinct} 個不同的物件，原因在「沿用輸入 scale 的 op」那一節。",
        en=f"There are observers in {len(activations)} places on activations, and none between add and ReLU, which answers prediction 1. "
        f"Yet those {len(activations)} places hold only {distinct} different objects; the section on reused scales shows why.",
    )
)

# %% [markdown] lang="zh"
# ## skip connection：一個 observer、一個 q、兩個 dq
#
# 第一個 relu 的輸出有兩個使用者：`conv2d_1` 與 `add`。tensor 只有一個，範圍也只有一個，所以 observer 與 q 各一個；convert
# 替 quantizer 標註過的每個使用者各放一個 dq，這樣每一組 dq → op → q 都是完整的，後端才認得出來。這是預測 2 的答案。

# %% [markdown] lang="en"
# ## A skip connection: one observer, one q, two dq
#
# The output of the first ReLU has two users, `conv2d_1` and `add`. It is one tensor with one range, so there is one
# observer and one q. Convert gives each user that the quantizer annotated a dq of its own; that makes every unit
# dq → op → q complete, which is what a backend looks for, and it answers prediction 2.

# %%
after_prepare = copy.deepcopy(prepared)  # to draw it: convert edits prepared
quantized = convert_pt2e(prepared)
q_of = {q.args[0].name: q for q in calls(quantized, QUANTIZE)}

q = q_of["relu"]  # one q for this tensor
dqs = list(q.users)
readers = [reader.name for dq in dqs for reader in dq.users]
assert sorted(readers) == ["add", "conv2d_1"], f"read by {readers}"
assert len(dqs) == 2, f"{len(dqs)} dq for two users"
for dq in dqs:
    assert dq.args[1:] == q.args[1:], f"{dq} does not undo {q}"

# %% tags=["plot"]
(add,) = calls(quantized, aten.add.Tensor)
shown = ["relu", q.name, *(dq.name for dq in dqs), "conv2d_1", "add"]
graph(
    quantized,
    only=shown,
    names=True,
    alt=T(
        zh="relu 的輸出過一個 q，分成兩個 dq，一個到 conv2d_1，一個到 add。",
        en="The output of relu passes one q and splits into two dq, one for conv2d_1 and one for add.",
    ),
    caption=T(
        zh="convert 之後，skip connection 的起點；只畫出相關的 node。",
        en="After convert, where the skip connection starts; other nodes are left out.",
    ),
)

# %% tags=["plot"]
scales = {dq.args[0].args[0].name: dq.args[1] for dq in add.args}
assert set(scales) == {"relu", "conv2d_2"}
assert scales["relu"] != scales["conv2d_2"], "the inputs of add share a scale"
say(
    T(
        zh=f"`add` 的兩個輸入**不**共用 scale：skip 這一邊是 {scales['relu']:.4f}，conv 那一邊是 {scales['conv2d_2']:.4f}。"
        "整數不能直接相加，後端的 add kernel 要先把兩邊換算到輸出的 scale。",
        en=f"The two inputs of `add` do **not** share a scale: it is {scales['relu']:.4f} on the skip and {scales['conv2d_2']:.4f} behind the convolution. "
        "Their integers cannot simply be added; the backend's add kernel first rescales both to the scale of the output.",
    )
)

# %% [markdown] lang="zh"
# ## 沿用輸入 scale 的 op
#
# `mean` 與 `flatten` 的輸出，用的是輸入的 observer：同一個物件掛在三條邊上。flatten 不改變任何值，平均也不會超出輸入的範
# 圍，沿用同一組 scale 與 zero point，kernel 就不必換算。

# %% [markdown] lang="en"
# ## Ops that reuse the scale of their input
#
# The outputs of `mean` and `flatten` have their input's observer: one object on three edges. Flattening changes no
# value, and an average cannot leave the range of its inputs; with the same scale and zero point, the kernel has nothing
# to rescale.


# %%
def int8_values(quantized, x):
    """What each q computes for `x`, by the name of the tensor it quantizes."""
    values = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, node):
            result = super().run_node(node)
            if node.target == QUANTIZE:
                values[node.args[0].name] = result
            return result

    with torch.no_grad():
        Recorder(quantized).run(x)
    return values


# %%
assert observers["mean"] is observers["relu_3"], "mean has its own observer"
assert observers["flatten"] is observers["relu_3"]
shared = {q_of[name].args[1:3] for name in ("relu_3", "mean", "flatten")}
assert len(shared) == 1, f"different scales: {shared}"

ints = int8_values(quantized, batch)
assert torch.equal(ints["flatten"], ints["mean"].flatten(1))
levels = {name: len(value.unique()) for name, value in ints.items()}
assert levels["mean"] < levels["relu_3"], "mean uses as many levels"

# %% tags=["plot"]
say(
    T(
        zh=f"代價是格子：這個 batch 的 `relu_3` 用了 256 格裡的 {levels['relu_3']} 格，平均之後範圍變窄，`mean` 只用了 {levels['mean']} 格。",
        en=f"The price is levels: on this batch, `relu_3` uses {levels['relu_3']} of the 256. Averages span less, so `mean` uses only {levels['mean']}.",
    )
)

# %% [markdown] lang="zh"
# 數 observer 的時候要小心：`named_modules()` 預設會略過重複的物件。要看每一處，得加上 `remove_duplicate=False`。

# %% [markdown] lang="en"
# Mind this when you count observers: by default `named_modules()` leaves out an object it has already seen. To get
# every place, pass `remove_duplicate=False`.


# %%
def count_places(gm, **options):
    names = [name for name, _ in gm.named_modules(**options)]
    return sum(name.startswith("activation_post") for name in names)


n_objects = count_places(after_prepare)
n_places = count_places(after_prepare, remove_duplicate=False)
assert n_places == len(observers) and n_objects == n_places - 2
print(f"{n_objects} objects in {n_places} places")

# %% [markdown] lang="zh"
# ## 覆蓋表：quantizer 究竟管了哪些 op
#
# TinyConvNet 的每個 op 都在 `XNNPACKQuantizer` 的能力範圍內。一般模型不會這麼剛好，所以換一個混了各種 op 的小模型。決定都寫在
# `node.meta["quantization_annotation"]`，沒有這筆標註的 op，quantizer 就沒有管。（`PTQQuantizer` 是本課程
# 的：標註和 `XNNPACKQuantizer` 一樣，只省下 QAT 才用得到的搜尋。）

# %% [markdown] lang="en"
# ## A coverage table: which ops did the quantizer take care of?
#
# `XNNPACKQuantizer` knows every op in TinyConvNet. Most models are less obliging, so here is a small one with a mix of
# ops. A quantizer's decisions are in `node.meta["quantization_annotation"]`; it has nothing to do with an op that
# carries none. (`PTQQuantizer` is the course's own: it writes the same annotations as `XNNPACKQuantizer` and merely skips a
# search that only QAT needs.)


# %%
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = self.conv(x)
        x = torch.sigmoid(x) * x
        x = nn.functional.max_pool2d(x, 2).mean((2, 3))
        x = self.fc(self.norm(x))
        return torch.softmax(x - 1.0, dim=-1)


def prepare(model):
    """Export, prepare, calibrate."""
    exported = torch.export.export(model.eval(), (batch,)).module()
    quick = PTQQuantizer()  # XNNPACKQuantizer, but quicker: for PTQ only
    prepared = prepare_pt2e(exported, quick.set_global(config))
    with torch.no_grad():
        prepared(batch)
    return prepared


# %%
def is_annotated(node):
    annotation = node.meta.get("quantization_annotation")
    return annotation is not None and annotation._annotated


def has_dq_and_q(node):
    """In a Q/DQ graph: does a dq feed the op, and a q follow it?"""
    q_follows = any(user.target == QUANTIZE for user in node.users)
    return node.args[0].target == DEQUANTIZE and q_follows


torch.manual_seed(0)
mixed = convert_pt2e(prepare(Mixed()))
annotated = {op_name(node): is_annotated(node) for node in calls(mixed)}
looks_int8 = {op_name(node): has_dq_and_q(node) for node in calls(mixed)}

# %% tags=["plot"]
YES, NO = T(zh="有", en="yes"), T(zh="–", en="–")


def how(node):
    """What the annotation says about the op's output."""
    if not is_annotated(node):
        return T(zh="**fp32**", en="**fp32**")
    spec = node.meta["quantization_annotation"].output_qspec
    if type(spec).__name__ == "SharedQuantizationSpec":
        return T(
            zh="int8，沿用輸入的 scale", en="int8, with the scale of its input"
        )
    return T(zh="int8，有自己的 scale", en="int8, with a scale of its own")


table(
    [
        [
            f"`{op_name(node)}`",
            YES if has_dq_and_q(node) else NO,
            YES if is_annotated(node) else NO,
            how(node),
        ]
        for node in calls(mixed)
    ],
    [
        "op",
        T(zh="前有 dq、後有 q", en="dq before, q after"),
        T(zh="標註", en="annotation"),
        T(zh="輸出", en="output"),
    ],
)

# %% [markdown] lang="zh"
# 注意 `sigmoid` 與 `layer_norm`：前有 dq、後有 q，卻**沒有**標註。q 和 dq 是鄰居要的：前面的 op 輸出 int8，後面的 op 要
# int8 輸入，中間的 op 就剛好被夾住。它自己仍是 fp32 運算，quantizer 沒有替它要過 int8 kernel。所以預測 3 的答案是「沒有」，而數
# q、dq 的覆蓋率會高估。

# %% [markdown] lang="en"
# Look at `sigmoid` and `layer_norm`: dq before, q after, and **no** annotation. Those q and dq belong to the neighbors.
# The op before delivers int8, the op after wants int8, and what lies between them just happens to be enclosed. It is
# still an fp32 operation, and the quantizer never asked for an int8 kernel. So the answer to prediction 3 is no, and a
# coverage counted by q and dq is too high.

# %%
left_out = {op for op, is_int8 in annotated.items() if not is_int8}
assert left_out == {"sigmoid", "layer_norm", "sub", "softmax"}, left_out
misleading = {op for op in left_out if looks_int8[op]}
assert misleading == {"sigmoid", "layer_norm"}, misleading
assert all(is_annotated(node) for node in calls(quantized)), "TinyConvNet"

# %% [markdown] lang="zh"
# 留在 fp32 的 op 不影響 Q/DQ 圖的結果，代價在部署時才出現：圖會在那裡被切開，值要在 int8 與 fp32 之間來回轉換
# （[M08-3](../m08_executorch/3_unsupported_ops.py)）。後面的頁面用 `common.pt2e.op_coverage` 做同樣的表；它讀的也是標註：

# %% [markdown] lang="en"
# Ops left in fp32 do no harm to the Q/DQ graph. The bill comes at deployment: the graph is cut there, and values go
# back and forth between int8 and fp32 ([M08-3](../m08_executorch/3_unsupported_ops.py)). Later pages make this table with
# `common.pt2e.op_coverage`, which reads the annotations, too:

# %%
from common.pt2e import op_coverage

same = {row.op: row.is_quantized for row in op_coverage(after_prepare)}
assert set(same) == set(after) and all(same.values())

# %% [markdown] lang="zh"
# ## `cat`：幾個輸入擠在同一個 scale 裡
#
# `cat` 只搬資料，不做運算，所以 quantizer 讓它的輸入與輸出全部共用一個 observer。範圍差不多時很划算；範圍差很多時，小的
# 那一支只分到幾格。下面讓一支的值正好是另一支的 1/32：

# %% [markdown] lang="en"
# ## `cat`: all inputs squeeze into one scale
#
# `cat` moves data and computes nothing, so the quantizer has all its inputs and its output share one observer. That is
# a good deal when the ranges are similar. When they are not, the small branch is left with a handful of levels. Here
# the values of one branch are exactly 1/32 of the other's:


# %%
class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.large = nn.Conv2d(3, 8, 3, padding=1)
        self.small = nn.Conv2d(3, 8, 3, padding=1)
        shrunk = {k: v / 32 for k, v in self.large.state_dict().items()}
        self.small.load_state_dict(shrunk)

    def forward(self, x):
        return torch.cat([self.large(x).relu(), self.small(x).relu()], dim=1)


torch.manual_seed(0)
prepared_cat = prepare(TwoBranches())
in_cat = observers_of(prepared_cat)
assert in_cat["relu"] is in_cat["relu_1"] is in_cat["cat"], "not shared"

ints_cat = int8_values(convert_pt2e(prepared_cat), batch)
n_large, n_small = (len(ints_cat[n].unique()) for n in ("relu", "relu_1"))
assert n_small < n_large / 8, f"{n_small} levels against {n_large}"
print(f"large branch: {n_large} levels, small branch: {n_small} levels")

# %% [markdown] lang="zh"
# ## conv 的輸出有兩個使用者
#
# relu 要和 conv 合成一個 kernel，conv 的輸出就只能給 relu 用。還有別人要用，就不能融合：conv 的輸出得存成 int8，relu 變成
# 沿用輸入 scale 的 op。可是 conv 的輸出有正有負，relu 只有非負值，負數那一側的格子就全空著。

# %% [markdown] lang="en"
# ## A convolution whose output has two users
#
# To become one kernel with a ReLU, a convolution must have no other user. If there is one, nothing is fused: the
# convolution's output has to be stored as int8, and the ReLU turns into an op that reuses the scale of its input. But
# that input has both signs, and a ReLU's output doesn't, so all levels on the negative side stay empty.


# %%
class TwoUsers(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x):
        y = self.conv(x)
        return y.relu() + y  # relu is not the only user of y


torch.manual_seed(0)
prepared_two = prepare(TwoUsers())
in_two = observers_of(prepared_two)
assert in_two["conv2d"] is in_two["relu"], "relu has its own observer"

quantized_two = convert_pt2e(prepared_two)
(q_relu,) = (
    n for n in calls(quantized_two, QUANTIZE) if "relu" in str(n.args[0])
)
zero_point = q_relu.args[2]
lowest = int8_values(quantized_two, batch)["relu"].min().item()
assert lowest == zero_point > -128, f"{lowest}, zero point {zero_point}"
assert q_of["relu"].args[2] == -128, "a fused relu starts at -128"

# %% tags=["plot"]
say(
    T(
        zh=f"這個 relu 的 zero point 是 {zero_point}，最小的輸出就是它：下面的 {zero_point + 128} 格永遠用不到。融合的 relu（TinyConvNet 的每一個）從 −128 開始，256 格全部可用。",
        en=f"This ReLU has a zero point of {zero_point}, and no output is smaller: the {zero_point + 128} levels below are never used. "
        "A fused ReLU, like each of those in TinyConvNet, starts at −128 and has all 256.",
    )
)

# %% [markdown] lang="zh"
# ## 小結
#
# - prepare 先把 BN 折進 conv，再照標註放 observer：在一組融合 op 的輸入、輸出與 weight 上，不在裡面，也不在 bias 上。
# - 一個 tensor 一個 observer、一個 q；有標註的使用者各有一個 dq。
# - `mean`、`flatten`、`cat`、沒有融合的 relu 沿用輸入的 scale：省下換算，可能浪費格子。
# - 被 dq 和 q 夾住不等於被量化；要看標註。

# %% [markdown] lang="en"
# ## Recap
#
# - prepare folds BN into convolutions, then places observers by annotation: on the inputs, the output and the weight of
#   a fused group, never inside it, and on no bias.
# - One tensor, one observer, one q, and a dq for each annotated user.
# - `mean`, `flatten`, `cat` and a ReLU that isn't fused reuse the scale of their input: no rescaling, but possibly
#   wasted levels.
# - Enclosed by dq and q does not mean quantized; the annotation decides.

# %% [markdown] lang="zh"
# ## 試試看：兩種平均池化
#
# 對 16×16 的輸入，`nn.AvgPool2d(16)` 和 `nn.AdaptiveAvgPool2d(1)` 算出一樣的值。哪一種會被量化？做一個兩種都有的模型，
# 印出它的覆蓋表。

# %% [markdown] lang="en"
# ## Try it: two kinds of average pooling
#
# On a 16×16 input, `nn.AvgPool2d(16)` and `nn.AdaptiveAvgPool2d(1)` compute the same. Which of them is quantized? Build
# a model that has both and print its coverage table.


# %% tags=["solution"]
class TwoPools(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.pools = nn.ModuleList([nn.AvgPool2d(16), nn.AdaptiveAvgPool2d(1)])

    def forward(self, x):
        y = self.conv(x).relu()
        return [pool(y) for pool in self.pools]


pools = TwoPools()
coverage = {row.op: row.is_quantized for row in op_coverage(prepare(pools))}
print(coverage)
assert coverage["adaptive_avg_pool2d"] and not coverage["avg_pool2d"]
with torch.no_grad():
    torch.testing.assert_close(*pools(batch))

# %% [markdown] lang="zh" tags=["solution"]
# quantizer 認的是 op，不是算出來的值：`adaptive_avg_pool2d` 在它的清單上，`avg_pool2d` 不在（executorch 1.5.1
# 的 `xnnpack_quantizer.py`）。同一個數學換一種寫法，就可能從 int8 變成 fp32，所以換模型、換版本之後，都值得再印一次覆蓋表。

# %% [markdown] lang="en" tags=["solution"]
# A quantizer recognizes ops, not the values they compute: `adaptive_avg_pool2d` is on its list and `avg_pool2d` isn't
# (executorch 1.5.1, `xnnpack_quantizer.py`). Spelling the same math another way can turn int8 into fp32, so print the
# coverage table again whenever the model or a version changes.

# %% [markdown] lang="zh"
# ## 接下來
#
# [M01-3](3_quantization_config.py) 轉動設定裡的開關，看 observer 跟著怎麼變。想看 quantizer 怎麼寫下這些標註，讀
# [M03-1](../m03_quantizer/1_annotations.py)；共用 scale 的寫法在 [M03-3](../m03_quantizer/3_shared_and_derived.py)。

# %% [markdown] lang="en"
# ## Next
#
# [M01-3](3_quantization_config.py) turns the switches of the configuration and watches the observers change. How a
# quantizer writes these annotations is in [M03-1](../m03_quantizer/1_annotations.py), and how it says "share" in
# [M03-3](../m03_quantizer/3_shared_and_derived.py).
