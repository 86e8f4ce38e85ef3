# %% [markdown] lang="zh"
# # M03 概覽 | 後端怎麼說自己會什麼
#
# [M01](../m01_first_ptq/0_overview.py) 只呼叫了現成的 `XNNPACKQuantizer`，[M02](../m02_observers/0_overview.py) 換過它
# 配的 observer。這一章打開 quantizer 本身：後端靠它說「這些 op 我能用 int8 算」，說法是一筆一筆寫在 node 上的標註
# （annotation）。本頁先分清楚誰寫、誰讀，再從零寫一個最小的 quantizer，看 `prepare_pt2e` 怎麼照著做。
#
# | 問題 | 一句話的答案 | 頁 |
# | --- | --- | --- |
# | 後端怎麼說自己會什麼？ | quantizer 替 node 寫標註，標註裡是規格；prepare 照著插入 observer | 本頁 |
# | `XNNPACKQuantizer` 在我的模型上寫了什麼？ | 一組融合的 op：輸入寫在第一個 node，輸出寫在最後一個，其餘只標記「有人管了」 | [M03-1](1_annotations.py) |
# | 怎麼寫一個自己的 quantizer，認得會融合的 op？ | 找出整組 op 再標註，並逐個 node 和 `XNNPACKQuantizer` 比對 | [M03-2](2_write_a_quantizer.py) |
# | tensor 之間怎麼共用或推導 scale？多條規則怎麼合用？ | 用另外三種規格；先標註的優先，依模組名稱設定則可能什麼都沒對上 | [M03-3](3_shared_and_derived.py) |
#
# **讀完你會知道**
#
# - 規格、標註、設定三者的分別，以及各由誰寫、由誰讀
# - quantizer 必須實作哪兩個方法，prepare 按什麼順序呼叫它
# - 標註怎麼變成 observer，之後還有什麼要靠它
# - 為什麼「圖上有 q、dq」只是 quantizer 的承諾，不保證後端做得到

# %% [markdown] lang="en"
# # M03 Overview | How a backend says what it can do
#
# [M01](../m01_first_ptq/0_overview.py) merely called `XNNPACKQuantizer`, and [M02](../m02_observers/0_overview.py)
# swapped the observers it hands out. This chapter opens the quantizer itself. With it a backend says "these ops I can
# compute in int8", and it says so in annotations written on the nodes. This page first sorts out who writes and who
# reads, then builds the smallest quantizer from scratch and watches `prepare_pt2e` follow it.
#
# | Question | Answer in one line | Page |
# | --- | --- | --- |
# | How does a backend say what it can do? | Its quantizer annotates nodes; an annotation holds specs; prepare turns them into observers | this page |
# | What did `XNNPACKQuantizer` write on my model? | For a group of fused ops: inputs on the first node, the output on the last; the others are just marked as taken | [M03-1](1_annotations.py) |
# | How do I write a quantizer that knows fused ops? | Find the whole group, annotate it, and compare with `XNNPACKQuantizer` node by node | [M03-2](2_write_a_quantizer.py) |
# | How do tensors share a scale or derive it from others, and how do several rules combine? | With three more kinds of specs; whoever annotates first wins, and rules by module name may match nothing | [M03-3](3_shared_and_derived.py) |
#
# **What you will know**
#
# - What a spec, an annotation and a configuration are, who writes each, and who reads it
# - Which two methods a quantizer must have, and in which order prepare calls it
# - How annotations become observers, and what still depends on them afterwards
# - Why q and dq in a graph are only the quantizer's promise, and no proof that the backend can keep it

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 有個 quantizer 只說：「conv 的輸入、weight、輸出是 int8。」把它用在 conv → relu 上，會有幾個 observer？relu 的輸出
#    上有沒有？
# 2. 另一個 quantizer 什麼都不寫。`prepare_pt2e` 會抱怨嗎？它回傳的圖和原來一樣嗎？
# 3. 在 prepare 之後、convert 之前，把所有標註刪掉。convert 的結果會變嗎？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. A quantizer says just this: "input, weight and output of a convolution are int8." On conv → relu, how many
#    observers does that make? Is there one on the output of ReLU?
# 2. Another quantizer writes nothing at all. Does `prepare_pt2e` complain? Is the graph it returns the same as before?
# 3. Between prepare and convert, we delete every annotation. Does that change the result of convert?

# %% tags=["setup"]
import copy

from common.env import quiet
from common.models import example_inputs, get_model
from common.viz import T, graph, say, table

import torch

quiet()

aten = torch.ops.aten


def calls(gm, op):
    """The nodes of a graph that call `op`."""
    return gm.graph.find_nodes(op="call_function", target=op)


def export(model):
    return torch.export.export(model, example).module()


example = example_inputs(1)  # a tuple: one image of shape (1, 3, 16, 16)

# %% [markdown] lang="zh"
# ## 誰寫，誰讀
#
# 從模型到 int8 kernel，中間有五個角色，一個接一個，讀前面的人寫下的東西：
#
# | 角色 | 讀什麼 | 寫什麼 |
# | --- | --- | --- |
# | 你 | 後端的說明 | 一份設定（config），交給 quantizer |
# | quantizer，由後端的作者寫成 | 設定、圖 | node 上的**標註** |
# | `prepare_pt2e` | **標註** | 圖上的 observer |
# | `convert_pt2e` | observer（標註只再看一眼，見下） | 圖上的 q、dq |
# | 後端的 lowering（把圖換成後端自己的 kernel） | q、dq，以及夾在中間的 op | int8 kernel |
#
# 標註主要在第二、三列之間傳話。lowering 看不到標註，只看得到 q、dq；所以後端要把同一件事寫兩遍：在 quantizer 裡說「這組
# op 我會」，在 lowering 裡認出 dq → op → q。兩邊說法不同時，沒有人會提醒你。

# %% [markdown] lang="en"
# ## Who writes, who reads
#
# There are five parties between a model and an int8 kernel, and each works from what those before it wrote:
#
# | Party | Reads | Writes |
# | --- | --- | --- |
# | you | the backend's documentation | a configuration, handed to the quantizer |
# | the quantizer, written by the backend's authors | configuration and graph | **annotations** on nodes |
# | `prepare_pt2e` | **annotations** | observers in the graph |
# | `convert_pt2e` | observers (and annotations for one detail, see below) | q and dq in the graph |
# | the backend's lowering (which puts its own kernels into the graph) | q, dq and the ops between them | int8 kernels |
#
# Annotations mainly pass the word from the second row to the third. Lowering never sees them, it sees q and dq. So a
# backend says the same thing twice: its quantizer claims "I can do this group of ops", and its lowering recognizes dq →
# op → q. When the two disagree, nobody tells you.

# %% [markdown] lang="zh"
# ## 規格、標註、設定
#
# **規格**（`QuantizationSpec`）描述一種 tensor 怎麼量化：用哪些整數、對稱與否、由哪個 observer 決定範圍。它不指定是哪個
# tensor，所以同一份規格可以重複使用。這裡寫兩份，一份給 activation，一份給 conv 的 weight（`ch_axis=0`：output channel
# 是第 0 維）：

# %% [markdown] lang="en"
# ## Spec, annotation, configuration
#
# A **spec** (`QuantizationSpec`) describes how a kind of tensor is quantized: which integers, symmetric or not, which
# observer finds the range. It names no tensor, so one spec can be used many times. Here are two, one for activations
# and one for a convolution's weight (`ch_axis=0`: output channels are dimension 0):

# %%
from torchao.quantization.pt2e import MinMaxObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantizer import QuantizationSpec

activation = QuantizationSpec(
    dtype=torch.int8,
    quant_min=-128,
    quant_max=127,
    qscheme=torch.per_tensor_affine,  # asymmetric
    observer_or_fake_quant_ctr=MinMaxObserver,  # the class, no instance
)
weight = QuantizationSpec(
    dtype=torch.int8,
    quant_min=-127,
    quant_max=127,
    qscheme=torch.per_channel_symmetric,
    ch_axis=0,
    observer_or_fake_quant_ctr=PerChannelMinMaxObserver,
)

# %% [markdown] lang="zh"
# **標註**（`QuantizationAnnotation`）屬於一個 node，把規格配到 node 的輸入與輸出上。`input_qspec_map` 的鍵是**輸入的
# node**，值是規格；`output_qspec` 是輸出的規格，預設沒有。標註放在 `node.meta["quantization_annotation"]`。
#
# **設定**（`QuantizationConfig`）則是你和 quantizer 之間的約定：輸入、輸出、weight、bias 各一份規格
# （[M01-3](../m01_first_ptq/3_quantization_config.py)）。`prepare_pt2e` 從來看不到設定，所以自己寫的 quantizer 可以不用
# 它。

# %% [markdown] lang="en"
# An **annotation** (`QuantizationAnnotation`) belongs to one node and assigns specs to its inputs and its output. Keys
# of `input_qspec_map` are the **nodes that are its inputs**, values are specs; `output_qspec` is the spec of its
# output, none by default. The annotation is stored in `node.meta["quantization_annotation"]`.
#
# A **configuration** (`QuantizationConfig`) is an arrangement between you and the quantizer: one spec each for inputs,
# outputs, weights and biases ([M01-3](../m01_first_ptq/3_quantization_config.py)). `prepare_pt2e` never sees it, so a
# quantizer of our own can do without.

# %% [markdown] lang="zh"
# ## 最小的例子：一個只會 conv 的後端
#
# 假想一個後端，只有一種 int8 kernel：conv。它的 quantizer 只要走過圖，在每個 conv 上寫一筆標註。類別必須有 `annotate`
# 與 `validate` 兩個方法，少一個就建不出物件：

# %% [markdown] lang="en"
# ## The smallest example: a backend that can only do convolutions
#
# Imagine a backend with a single int8 kernel, a convolution. All its quantizer has to do is walk the graph and write
# one annotation on each convolution. Two methods are mandatory, `annotate` and `validate`; without either of them no
# object can be made:

# %%
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    Quantizer,
)


class ConvOnly(Quantizer):
    def annotate(self, model):
        for conv in calls(model, aten.conv2d.default):
            x, w = conv.args[:2]  # the third is the bias: no spec
            conv.meta["quantization_annotation"] = QuantizationAnnotation(
                input_qspec_map={x: activation, w: weight},
                output_qspec=activation,
            )
        return model

    def validate(self, model):
        pass


# %%
class Half(Quantizer):
    def annotate(self, model):
        return model


try:
    Half()
except TypeError as error:
    print(f"TypeError: {error}")
else:
    raise AssertionError("validate is optional now")
quantizer = ConvOnly()  # has both, so this works

# %% [markdown] lang="zh"
# 單獨呼叫 `annotate`，圖不會動：node 和它們的引數都和原來一樣，只有 conv 的 `meta` 多了一筆。

# %% [markdown] lang="en"
# Called by itself, `annotate` leaves the graph alone: the nodes and their arguments are what they were, and only the
# `meta` of the convolution has a new entry.

# %%
annotated = export(get_model("conv_relu"))
before = [(node.name, node.args) for node in annotated.graph.nodes]
ConvOnly().annotate(annotated)
after = [(node.name, node.args) for node in annotated.graph.nodes]
assert after == before, "annotate changed the graph"

carriers = [
    node.name
    for node in annotated.graph.nodes
    if "quantization_annotation" in node.meta
]
assert carriers == ["conv2d"], f"annotated: {carriers}"

# %% [markdown] lang="zh"
# `prepare_pt2e` 呼叫同一個方法，然後照著標註插入 observer：

# %% [markdown] lang="en"
# `prepare_pt2e` calls the same method and then inserts observers where the annotation says so:

# %%
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

prepared = prepare_pt2e(export(get_model("conv_relu")), ConvOnly())


def observed(prepared):
    """Name of each observed tensor -> the class of its observer."""
    found = {}
    for node in prepared.graph.nodes:
        if str(node.target).startswith("activation_post_process"):
            observer = getattr(prepared, node.target)
            found[node.args[0].name] = type(observer).__name__
    return found


assert observed(prepared) == {
    "x": "MinMaxObserver",
    "conv_weight": "PerChannelMinMaxObserver",
    "conv2d": "MinMaxObserver",
}, observed(prepared)

# %% tags=["plot"]
graph(
    [
        (T(zh="annotate 之後", en="After annotate"), annotated),
        (T(zh="prepare 之後", en="After prepare"), prepared),
    ],
    notes={"conv2d": "annotated: x, weight, output"},
    alt=T(
        zh="上：conv2d、relu 兩個框，只有 conv2d 的框裡寫著標註了 x、weight、output。下：x、weight、conv2d 的輸出上各有一個 "
        "observer，relu 的輸出上沒有。",
        en="First the boxes conv2d and relu; only conv2d carries the note annotated: x, weight, output. Then x, the weight and "
        "the output of conv2d each have an observer; the output of relu has none.",
    ),
    caption=T(
        zh="標註寫了三個 tensor，prepare 就插入三個 observer，不多也不少。",
        en="The annotation names three tensors, so prepare inserts three observers, no more and no fewer.",
    ),
)

# %% [markdown] lang="zh"
# 三個 observer，而且 relu 的輸出上沒有：這是預測 1 的答案。和 [M01-0](../m01_first_ptq/0_overview.py) 的圖比，conv 與
# relu 之間多了一個、relu 之後少了一個，因為這個後端說的是「我會 conv」，`XNNPACKQuantizer` 說的是「我會 conv → relu 這
# 一整組」。同一個模型、同一個 prepare，差別全在標註。convert 之後，conv 被 dq 與 q 夾住，relu 留在外面用 fp32 算：

# %% [markdown] lang="en"
# Three observers, and none on the output of ReLU: that settles prediction 1. Compared with the graph in
# [M01-0](../m01_first_ptq/0_overview.py) there is one more between conv and ReLU and one fewer behind ReLU. This
# backend says "I can do a convolution", while `XNNPACKQuantizer` says "I can do conv → ReLU as a whole". Same model,
# same prepare; all of the difference lies in the annotations. After convert, the convolution stands between dq and q,
# and ReLU stays outside in fp32:

# %%
with torch.no_grad():
    prepared(*example)  # calibrates, on a single image
stripped = copy.deepcopy(prepared)  # for the next section

quantized = convert_pt2e(prepared)
ops = torch.ops.quantized_decomposed
(conv,) = calls(quantized, aten.conv2d.default)
(relu,) = calls(quantized, aten.relu.default)
(q,) = conv.users
assert conv.args[0].target == ops.dequantize_per_tensor.default
assert conv.args[1].target == ops.dequantize_per_channel.default
assert q.target == ops.quantize_per_tensor.default, "conv's output isn't int8"
(after_relu,) = relu.users
assert after_relu.op == "output", "something stands behind relu"

# %% [markdown] lang="zh"
# ## prepare 之後，標註還有什麼用
#
# 剛才留了一份校準過的複本。把上面的標註全刪掉再 convert，和沒刪的比：

# %% [markdown] lang="en"
# ## What annotations are still good for after prepare
#
# We kept a calibrated copy. Now delete all of its annotations, convert it, and compare with the one that still has
# them:


# %%
def strip(gm):
    """Deletes all annotations of a graph; returns how many there were."""
    found = [n for n in gm.graph.nodes if "quantization_annotation" in n.meta]
    for node in found:
        del node.meta["quantization_annotation"]
    return len(found)


deleted = strip(stripped)
assert deleted == 1, f"{deleted} annotations on one convolution"
also_quantized = convert_pt2e(stripped)

with torch.no_grad():
    same = torch.equal(also_quantized(*example), quantized(*example))
assert same, "convert took a number from the annotation"
assert also_quantized.code == quantized.code, "another graph"

# %% [markdown] lang="zh"
# 程式碼與輸出都一模一樣：convert 要的 dtype、整數範圍、scale，observer 都帶著。但是 convert 並非完全不看標註。換一個模
# 型，讓兩個 conv 讀同一個 `x`：

# %% [markdown] lang="en"
# Code and output are identical: all the numbers that convert needs (dtype, integers, scale) the observers carry with
# them. Yet convert doesn't ignore annotations entirely. Take another model, where two convolutions read the same `x`:


# %%
class TwoReaders(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.left = torch.nn.Conv2d(3, 8, 3)
        self.right = torch.nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return self.left(x) + self.right(x)


two_readers = TwoReaders()


def convert_two_readers(keep_annotations):
    """(How many dq follow the q of x, the output)."""
    gm = prepare_pt2e(export(two_readers), ConvOnly())
    with torch.no_grad():
        gm(*example)
        if not keep_annotations:
            strip(gm)
        gm = convert_pt2e(gm)
        first, *_ = calls(gm, ops.quantize_per_tensor.default)
        assert first.args[0].name == "x"
        return len(first.users), gm(*example)


dq_kept, output_kept = convert_two_readers(keep_annotations=True)
dq_stripped, output_stripped = convert_two_readers(keep_annotations=False)
assert dq_kept == 2, "the readers share a dq"
assert dq_stripped == 1, "each reader got a dq"
assert torch.equal(output_kept, output_stripped), "other numbers"

# %% [markdown] lang="zh"
# 有標註，兩個 conv 各得一個 dq；刪掉之後，兩個共用一個。算出來的數字一樣，圖卻不同，而 lowering 找的正是自成一組的 dq →
# op → q（[M01-2](../m01_first_ptq/2_prepare_convert.py)）。所以預測 3 的答案是：數字不變，圖可能變。convert 只為了這件
# 事（以及搬運 node 的其他 `meta`）再讀一次標註（torchao 0.18.0，`DuplicateDQPass`、`PortNodeMetaForQDQ`），別刪它。
#
# ## 標註只是承諾
#
# `prepare_pt2e` 也不會去問後端有沒有那個 kernel。下面的 quantizer 信口開河，說後端能用 int8 算 `sin`：

# %% [markdown] lang="en"
# With annotations, each convolution gets a dq of its own; without them, the two share one. The numbers are the same,
# the graph is not, and what lowering looks for is precisely a dq → op → q complete in itself
# ([M01-2](../m01_first_ptq/2_prepare_convert.py)). So prediction 3: the numbers stay, the graph may change. For this
# alone (and to copy other `meta` of the nodes) convert reads annotations once more (torchao 0.18.0, `DuplicateDQPass`
# and `PortNodeMetaForQDQ`). Don't delete them.
#
# ## An annotation is only a promise
#
# Nor does `prepare_pt2e` ask the backend whether there is such a kernel. This quantizer is bluffing: it claims that the
# backend can compute `sin` in int8.


# %%
class Bluff(ConvOnly):
    def annotate(self, model):
        for sin in calls(model, aten.sin.default):
            sin.meta["quantization_annotation"] = QuantizationAnnotation(
                input_qspec_map={sin.args[0]: activation},
                output_qspec=activation,
            )
        return model


class Sine(torch.nn.Module):
    def forward(self, x):
        return x.sin()


bluffed = prepare_pt2e(export(Sine()), Bluff())
with torch.no_grad():
    bluffed(*example)
bluffed = convert_pt2e(bluffed)
(sin,) = calls(bluffed, aten.sin.default)
(q,) = sin.users
assert sin.args[0].target == ops.dequantize_per_tensor.default
assert q.target == ops.quantize_per_tensor.default

# %% [markdown] lang="zh"
# 沒有任何警告，`sin` 就被 dq 與 q 夾住了，看起來和真的量化過一樣。後端在 lowering 時認不出來，就只好照 fp32 算，q、dq
# 反而成了多做的工（[M08-3](../m08_executorch/3_unsupported_ops.py)）。`validate` 就是用來擋這種事的：在 `annotate` 之
# 後、插入 observer 之前，檢查標註，不合就丟例外。`XNNPACKQuantizer` 的 `validate` 是空的（executorch 1.5.1）。

# %% [markdown] lang="en"
# Without any warning, `sin` now stands between dq and q, just as if it were quantized. A backend that doesn't recognize
# this while lowering has to compute it in fp32, and q and dq become extra work
# ([M08-3](../m08_executorch/3_unsupported_ops.py)). This is what `validate` is for: after `annotate`, before any
# observer is inserted, it can check the annotations and raise. That of `XNNPACKQuantizer` is empty (executorch 1.5.1).


# %%
class Honest(Bluff):
    def validate(self, model):
        for node in model.graph.nodes:
            annotated = "quantization_annotation" in node.meta
            if annotated and node.target != aten.conv2d.default:
                raise ValueError(f"this backend has no int8 {node.target}")


try:
    prepare_pt2e(export(Sine()), Honest())
except ValueError as error:
    print(f"ValueError: {error}")
else:
    raise AssertionError("validate let sin through")

# %% [markdown] lang="zh"
# ## prepare 按什麼順序呼叫 quantizer
#
# 除了兩個必要的方法，還有兩個可以不寫。下面的 quantizer 什麼都不標註，只記錄自己何時被呼叫，以及當時圖上有什麼。模型換
# 成有四個 BatchNorm 的 TinyConvNet：

# %% [markdown] lang="en"
# ## In which order prepare calls the quantizer
#
# Besides the two mandatory methods there are two optional ones. The quantizer below annotates nothing; it only records
# when it is called, and what is in the graph at that time. The model is TinyConvNet, which has four BatchNorms:


# %%
class Silent(Quantizer):
    def __init__(self):
        self.log = []  # (method, BatchNorms in the graph)

    def note(self, method, model):
        batch_norms = calls(model, aten.batch_norm.default)
        self.log.append((method, len(batch_norms)))
        return model

    def transform_for_annotation(self, model):
        return self.note("transform_for_annotation", model)

    def annotate(self, model):
        return self.note("annotate", model)

    def validate(self, model):
        self.note("validate", model)

    def prepare_obs_or_fq_callback(self, model, observers):
        self.note("prepare_obs_or_fq_callback", model)
        assert not observers, "observers without an annotation"


# %%
exported = export(get_model("tiny"))
n_before = len(calls(exported, aten.batch_norm.default))
silent = Silent()
prepared_tiny = prepare_pt2e(exported, silent)

assert n_before == 4
assert silent.log == [
    ("transform_for_annotation", 0),
    ("annotate", 0),
    ("validate", 0),
    ("prepare_obs_or_fq_callback", 0),
], silent.log
assert not observed(prepared_tiny), "observers without an annotation"

# %% [markdown] lang="zh"
# 沒有錯誤，也沒有警告，一個 observer 都沒有；但圖變了，四個 BatchNorm 都已折進 conv。這是預測 2 的答案：prepare 在問
# quantizer **之前**就折 BN，所以 quantizer 看到的是折過的圖（QAT 的 `prepare_qat_pt2e` 不同，先標
# 註，[M04-2](../m04_batchnorm/2_qat_conv_bn.py)）。整個順序是：
#
# | 順序 | 誰 | 做什麼 |
# | --- | --- | --- |
# | 1 | prepare | BN 折疊 |
# | 2 | `transform_for_annotation`，可不寫 | 標註前先改圖，例如把純量變成 tensor |
# | 3 | `annotate` | 寫標註 |
# | 4 | `validate` | 檢查標註，不合就丟例外 |
# | 5 | prepare | 照標註建立 observer，還沒插進圖裡 |
# | 6 | `prepare_obs_or_fq_callback`，可不寫 | 最後修改 observer 的機會，例如固定輸入的 scale |
# | 7 | prepare | 把 observer 插進圖裡 |

# %% [markdown] lang="en"
# No error, no warning, not one observer. But the graph did change: all four BatchNorms were folded into convolutions.
# That answers prediction 2. Prepare folds BN **before** it asks the quantizer, so a quantizer sees a folded graph
# (QAT's `prepare_qat_pt2e` annotates first, [M04-2](../m04_batchnorm/2_qat_conv_bn.py)). The whole order is:
#
# | Step | Who | What |
# | --- | --- | --- |
# | 1 | prepare | BN folding |
# | 2 | `transform_for_annotation`, optional | edits the graph before annotation, such as turning scalars into tensors |
# | 3 | `annotate` | writes annotations |
# | 4 | `validate` | checks them, and raises if they won't do |
# | 5 | prepare | creates the observers the annotations ask for, not in the graph yet |
# | 6 | `prepare_obs_or_fq_callback`, optional | the last chance to change an observer, such as fixing the scale of the input |
# | 7 | prepare | inserts the observers |

# %% [markdown] lang="zh"
# ## 名詞
#
# | 名詞 | 是什麼 |
# | --- | --- |
# | 規格 | `QuantizationSpec`：一種 tensor 怎麼量化，不指定是哪個 tensor |
# | 標註 | `QuantizationAnnotation`：一個 node 的輸入、輸出各配哪份規格 |
# | 設定 | `QuantizationConfig`：使用者交給 quantizer 的幾份規格；prepare 看不到 |
# | 邊 | 一對 node（輸入, 使用者），`input_qspec_map` 的一項就是一條邊 |
# | 融合的一組 op | 後端當成一個 kernel 算的 op，例如 conv → relu；原始碼裡叫 pattern 或 partition |
# | lowering | 後端把 Q/DQ 圖裡認得的部分換成自己的 kernel |
#
# 全部的名詞在[詞彙表](../glossary.md)。

# %% [markdown] lang="en"
# ## Terms
#
# | Term | What it is |
# | --- | --- |
# | spec | `QuantizationSpec`: how a kind of tensor is quantized, without saying which tensor |
# | annotation | `QuantizationAnnotation`: which spec each input and the output of one node gets |
# | configuration | `QuantizationConfig`: a few specs that the user hands to the quantizer; prepare doesn't see it |
# | edge | a pair of nodes (input, user); each entry of `input_qspec_map` is one edge |
# | fused group | ops that the backend runs as one kernel, such as conv → ReLU; source code says pattern or partition |
# | lowering | the backend replaces what it recognizes in the Q/DQ graph by its own kernels |
#
# All terms are in the [glossary](../glossary.md).

# %% [markdown] lang="zh"
# ## 小結
#
# - quantizer 走過圖，在 `node.meta` 寫標註；標註替輸入與輸出各配一份規格。圖不變。
# - prepare 先折 BN，再請 quantizer 標註，最後照著插入 observer；沒寫的地方就沒有，也不會有訊息。
# - convert 的數字全來自 observer，標註只決定誰有自己的 dq；後端只看 q、dq。標註是承諾，做不做得到沒有人檢查，除非你寫
#   `validate`。

# %% [markdown] lang="en"
# ## Recap
#
# - A quantizer walks the graph and writes annotations into `node.meta`; they give inputs and outputs their specs. The
#   graph stays as it is.
# - Prepare folds BN, has the quantizer annotate, and inserts observers accordingly; where nothing was written there is
#   none, and no message either.
# - Convert takes its numbers from observers; annotations merely decide who gets a dq of its own. Backends see only q
#   and dq. An annotation is a promise that nobody checks, unless you write `validate`.

# %% [markdown] lang="zh"
# ## 試試看：只有 uint8 的後端
#
# 假想的後端改版了：activation 改用 uint8，整數從 0 到 255。要改哪裡？圖上的數字會怎麼變？輸出呢？寫出來，和上面的
# `quantized` 比。

# %% [markdown] lang="en"
# ## Try it: a backend with uint8
#
# Our imaginary backend changes: its activations are now uint8, integers from 0 to 255. What do you have to change?
# Which numbers in the graph will be different, and how about the output? Write it, and compare with `quantized` above.

# %% tags=["solution"]
from dataclasses import replace  # specs are frozen: make a changed copy

unsigned = replace(activation, dtype=torch.uint8, quant_min=0, quant_max=255)


class ConvOnlyUnsigned(ConvOnly):
    def annotate(self, model):
        super().annotate(model)
        for conv in calls(model, aten.conv2d.default):
            annotation = conv.meta["quantization_annotation"]
            annotation.input_qspec_map[conv.args[0]] = unsigned
            annotation.output_qspec = unsigned
        return model


prepared_unsigned = prepare_pt2e(
    export(get_model("conv_relu")), ConvOnlyUnsigned()
)
with torch.no_grad():
    prepared_unsigned(*example)
quantized_unsigned = convert_pt2e(prepared_unsigned)

# %% tags=["solution"]
signed, other = (
    {q.args[0].name: q.args for q in calls(gm, ops.quantize_per_tensor.default)}
    for gm in (quantized, quantized_unsigned)
)
for name in signed:
    assert other[name][1] == signed[name][1], "another scale"
    assert other[name][2] == signed[name][2] + 128, (
        "zero point not moved by 128"
    )
    assert other[name][5] == torch.uint8
with torch.no_grad():
    same = torch.equal(quantized_unsigned(*example), quantized(*example))
assert same, "the output changed"

# %% tags=["solution"]
table(
    [
        [
            f"`{name}`",
            f"s={signed[name][1]:.5f}, z={signed[name][2]}",
            f"s={other[name][1]:.5f}, z={other[name][2]}",
        ]
        for name in signed
    ],
    ["tensor", "int8", "uint8"],
)
say(
    T(
        zh="只改規格，其他都不必動。scale 不變，zero point 全部加 128，輸出逐位元相同：兩種整數只差一個平移。",
        en="Only the spec has to change. Scales stay, every zero point grows by 128, and the output is the same bit for bit: "
        "the two sets of integers differ by a shift.",
    )
)

# %% [markdown] lang="zh"
# ## 本章地圖
#
# | 頁 | 做什麼 |
# | --- | --- |
# | [M03-1 讀標註](1_annotations.py) | 把 `XNNPACKQuantizer` 寫在 conv → relu 與 TinyConvNet 上的標註攤開來讀，再看幾種不會有訊息的寫法 |
# | [M03-2 寫一個 quantizer](2_write_a_quantizer.py) | 認得融合的一組 op，逐個 node 和 `XNNPACKQuantizer` 比對 |
# | [M03-3 共用與推導](3_shared_and_derived.py) | 共用、推導、固定的 scale；合用多個 quantizer；依模組設定的陷阱 |
#
# 這一章刻意跳過：QAT 時帶 BN 的那幾組 op（[M04-2](../m04_batchnorm/2_qat_conv_bn.py)）、其他後端的 quantizer
# （[M07-2](../m07_backends/2_x86.py)）、兩個同名的
# `XNNPACKQuantizer`（[M08-1](../m08_executorch/1_two_quantizers.py)）、真實模型上自己補寫的
# quantizer（[M10](../m10_real_model/0_overview.py)）。
#
# ## 參考資料
#
# - [PyTorch：How to Write a Quantizer for PyTorch 2 Export
#   Quantization](https://docs.pytorch.org/tutorials/prototype/pt2e_quantizer.html)：prototype 時期的教學，概念沿用，匯
#   入路徑已經搬到 torchao
# - torchao 0.18.0 原始碼：`torchao/quantization/pt2e/` 的 `quantizer/quantizer.py`、`prepare.py`
# - executorch 1.5.1 原始碼：`executorch/backends/xnnpack/quantizer/` 的
#   `xnnpack_quantizer.py`、`xnnpack_quantizer_utils.py`

# %% [markdown] lang="en"
# ## Map of the chapter
#
# | Page | What happens there |
# | --- | --- |
# | [M03-1 Reading annotations](1_annotations.py) | what `XNNPACKQuantizer` writes on conv → ReLU and on TinyConvNet, laid open; and ways to write annotations that go wrong without a message |
# | [M03-2 Writing a quantizer](2_write_a_quantizer.py) | matching fused groups, compared with `XNNPACKQuantizer` node by node |
# | [M03-3 Shared and derived](3_shared_and_derived.py) | scales that are shared, derived or fixed; several quantizers together; traps of rules by module |
#
# Left out on purpose: the groups with BN that QAT needs ([M04-2](../m04_batchnorm/2_qat_conv_bn.py)), quantizers of
# other backends ([M07-2](../m07_backends/2_x86.py)), the two classes named `XNNPACKQuantizer`
# ([M08-1](../m08_executorch/1_two_quantizers.py)), and a quantizer added for a real model
# ([M10](../m10_real_model/0_overview.py)).
#
# ## References
#
# - [PyTorch: How to Write a Quantizer for PyTorch 2 Export
#   Quantization](https://docs.pytorch.org/tutorials/prototype/pt2e_quantizer.html): written when this was a prototype;
#   the ideas hold, the imports have moved to torchao
# - Source of torchao 0.18.0: `quantizer/quantizer.py` and `prepare.py` in `torchao/quantization/pt2e/`
# - Source of executorch 1.5.1: `xnnpack_quantizer.py` and `xnnpack_quantizer_utils.py` in
#   `executorch/backends/xnnpack/quantizer/`
