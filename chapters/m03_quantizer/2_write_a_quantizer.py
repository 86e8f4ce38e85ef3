# %% [markdown] lang="zh"
# # M03-2 | 自己寫一個 quantizer
#
# [M03-0](0_overview.py) 的 quantizer 只會一個一個標註 op，[M03-1](1_annotations.py) 讀了 `XNNPACKQuantizer` 怎麼標
# 註**一組**融合的 op。這一頁換你來寫：一條規則一條規則加上去，直到在 TinyConvNet 上和 `XNNPACKQuantizer` 的結果**逐位元
# 相同**。會寫之後，後端能融合、quantizer 卻不認得的組合（例如 conv + ReLU6），你自己就補得上。
#
# **讀完你會知道**
#
# - 怎麼把「conv → relu 是一個 kernel」寫成標註，少了它會多出什麼
# - 為什麼要數使用者，規則的順序又為什麼重要
# - 怎麼證明兩個 quantizer 做的事一樣，以及它們在哪裡不一樣
# - 怎麼替現成的 quantizer 加一個融合組合

# %% [markdown] lang="en"
# # M03-2 | Write a quantizer of your own
#
# The quantizer of [M03-0](0_overview.py) annotates single ops only; [M03-1](1_annotations.py) read how
# `XNNPACKQuantizer` annotates a **group** of fused ops. Now it is your turn to write: we add one rule after another
# until the result on TinyConvNet equals that of `XNNPACKQuantizer` **bit for bit**. Once you can do that, you can also
# teach a quantizer what its backend could fuse but it doesn't know about, such as conv + ReLU6.
#
# **What you will know**
#
# - How to annotate "conv → relu is one kernel", and what you get without it
# - Why users have to be counted, and why the order of rules matters
# - How to prove that two quantizers do the same, and where they don't
# - How to add a fused pattern to an existing quantizer

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. conv 和 relu 各自標註輸入與輸出，不提融合。比起融合，多出幾個 observer？誤差變大還是變小？
# 2. conv 的輸出除了給 relu，還給 `add`。這個 conv 能和 relu 融合嗎？
# 3. 只有三種規則的 quantizer，在 TinyConvNet 上的輸出和 `XNNPACKQuantizer` 差多少？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. conv and relu are annotated one by one, inputs and output each, with no word about fusion. Compared with fusing
#    them, how many observers more is that? Does the error grow or shrink?
# 2. The output of a conv goes to a relu and also to an `add`. Can this conv be fused with the relu?
# 3. Our quantizer has three kinds of rules. On TinyConvNet, how far is its output from that of `XNNPACKQuantizer`?

# %% tags=["setup"]
import copy

from common.data import calibration_batches, test_data
from common.env import quiet
from common.models import get_model, trained_tinyconvnet
from common.quantizers import PTQQuantizer
from common.viz import T, graph, say, table

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import nn
from torchao.quantization.pt2e import (
    HistogramObserver,
    PerChannelMinMaxObserver,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

quiet()

aten = torch.ops.aten
(batch,) = next(calibration_batches(32))


def export(model):
    return torch.export.export(model.eval(), (batch,)).module()


def calibrate_and_convert(prepared):
    with torch.no_grad():
        prepared(batch)
    return convert_pt2e(prepared)


def rms(difference):
    """Root mean square."""
    return difference.square().mean().sqrt().item()


# %% [markdown] lang="zh"
# ## 兩份規格
#
# 先寫兩份規格，一份給 activation，一份給 weight。`XNNPACKQuantizer` 用的規格在設定裡；我們手寫一份內容相同
# 的。`with_args` 把引數先綁在 observer 類別上，物件留給 `prepare_pt2e` 建：

# %% [markdown] lang="en"
# ## Two specs
#
# First two specs, one for activations and one for weights. Those that `XNNPACKQuantizer` uses are in its configuration;
# we write our own with the same contents. `with_args` binds arguments to an observer class and leaves making the object
# to `prepare_pt2e`:

# %%
from torchao.quantization.pt2e.quantizer import QuantizationSpec

ACTIVATION = QuantizationSpec(
    dtype=torch.int8,
    quant_min=-128,
    quant_max=127,
    qscheme=torch.per_tensor_affine,
    observer_or_fake_quant_ctr=HistogramObserver.with_args(eps=2**-12),
)
WEIGHT = QuantizationSpec(
    dtype=torch.int8,
    quant_min=-127,  # symmetric: no -128
    quant_max=127,
    qscheme=torch.per_channel_symmetric,
    ch_axis=0,  # weight (out, in, h, w): a scale for each output channel
    observer_or_fake_quant_ctr=PerChannelMinMaxObserver.with_args(eps=2**-12),
)

# %% [markdown] lang="zh"
# 和設定裡的比一比。用 `==` 比規格會得到「不相等」：observer 那一欄比的是「是不是同一個物件」。印成文字就看得出內容相
# 同，後面逐 node 比對也用文字：

# %% [markdown] lang="en"
# Let us compare with the configuration. By `==` the specs differ, since for the observer that asks whether it is the
# same object. Printed as text, their contents turn out to be equal; comparing node by node will use text, too:

# %%
config = get_symmetric_quantization_config(is_per_channel=True)
assert config.weight != WEIGHT, "== compares contents now"
assert str(config.weight) == str(WEIGHT), "another spec for weights"
assert str(config.input_activation) == str(ACTIVATION)
assert str(config.output_activation) == str(ACTIVATION)

# %% [markdown] lang="zh"
# ## 第一種規則：一次一個 op
#
# 把 quantizer 寫成一串**規則**。規則是一個函式，拿到一個 node，認得就寫標註，不認得就什麼都不做。有了標註的 node 不再交
# 給後面的規則，所以順序就是優先順序。`validate` 在標註之後才呼叫，用來擋下沒人認領的 op：

# %% [markdown] lang="en"
# ## The first kind of rule: one op at a time
#
# Our quantizer is a list of **rules**. A rule is a function that gets a node; if it knows the op, it writes the
# annotation, otherwise it does nothing. A node with an annotation isn't offered to later rules, so order is priority.
# `validate` is called after the annotations and refuses an op that nobody claimed:

# %%
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    Quantizer,
)

KEY = "quantization_annotation"


def annotate(node, inputs, output):
    """inputs: {input node: spec}; output: a spec or None."""
    node.meta[KEY] = QuantizationAnnotation(
        input_qspec_map=inputs, output_qspec=output, _annotated=True
    )


def ops(gm):
    return [node for node in gm.graph.nodes if node.op == "call_function"]


class RuleQuantizer(Quantizer):
    def __init__(self, *rules):
        self.rules = rules

    def annotate(self, model):
        for rule in self.rules:
            for node in ops(model):
                if KEY not in node.meta:
                    rule(node)
        return model

    def validate(self, model):
        left = [node.name for node in ops(model) if KEY not in node.meta]
        if left:
            raise ValueError(f"no rule for {', '.join(left)}")


# %% [markdown] lang="zh"
# 規則 `alone` 把認得的 op 各自標註：每個輸入 tensor 用 `ACTIVATION`；conv、linear 的第二個引數是 weight，用
# `WEIGHT`；bias 沒有規格。先拿它標註 conv → relu，看看各自標註的結果。

# %% [markdown] lang="en"
# The rule `alone` annotates each op that it knows by itself: `ACTIVATION` for every input tensor, `WEIGHT` for the
# second argument of a conv or linear, which is its weight, and no spec for the bias. First we use it on conv → relu, to
# see what comes of annotating one by one.

# %%
CONV = {aten.conv2d.default}
LINEAR = {aten.linear.default}
ADD = {aten.add.Tensor}
RELU = {aten.relu.default, aten.relu_.default}  # relu_: inplace=True


def inputs_of(node):
    if node.target in CONV | LINEAR:  # args: input, weight, bias, ...
        return {node.args[0]: ACTIVATION, node.args[1]: WEIGHT}
    return dict.fromkeys(node.all_input_nodes, ACTIVATION)


def alone(known):
    def rule(node):
        if node.target in known:
            annotate(node, inputs_of(node), ACTIVATION)

    return rule


conv_relu = get_model("conv_relu")
prepared = prepare_pt2e(export(conv_relu), RuleQuantizer(alone(CONV | RELU)))
one_by_one = copy.deepcopy(prepared)  # to draw it: convert edits prepared
quantized_one_by_one = calibrate_and_convert(prepared)

# %% [markdown] lang="zh"
# ## 第二種規則：兩個 op，一個 kernel
#
# 後端把 conv → relu 當成一個 kernel 算，中間的值不會存成 int8。標註的寫法是：輸入與 weight 的規格寫在 conv，輸出的規格
# 寫在 **relu**，conv 自己沒有輸出規格。條件 `list(producer.users) == [node]` 留到〈數使用者〉那一節解釋；前面的規則已經
# 標註過的 conv，`fused` 也不碰。

# %% [markdown] lang="en"
# ## The second kind: two ops, one kernel
#
# A backend computes conv → relu as one kernel; the value in between is never stored as int8. The annotation for that:
# the specs of input and weight go on conv, the spec of the output goes on **relu**, and conv has no output spec. The
# section "Counting users" explains the condition `list(producer.users) == [node]`; and a conv that an earlier rule has
# annotated, `fused` leaves alone.


# %%
def fused(first, last):
    """A rule: an op in `first` and the one in `last` behind it are a unit."""

    def rule(node):
        if node.target in last:
            producer = node.args[0]
            free = producer.target in first and KEY not in producer.meta
            if free and list(producer.users) == [node]:
                annotate(producer, inputs_of(producer), None)
                annotate(node, {}, ACTIVATION)

    return rule


prepared = prepare_pt2e(export(conv_relu), RuleQuantizer(fused(CONV, RELU)))
as_a_unit = copy.deepcopy(prepared)
quantized_as_a_unit = calibrate_and_convert(prepared)

# %% tags=["plot"]
graph(
    [
        (T(zh="alone：各自標註", en="alone: one by one"), one_by_one),
        (T(zh="fused：一組", en="fused: a unit"), as_a_unit),
    ],
    alt=T(
        zh="第一張：x、weight、conv2d 的輸出、relu 的輸出各有一個 observer。第二張：conv2d 與 relu 之間沒有 observer。",
        en="First, x, the weight, the output of conv2d and the output of relu each carry an observer. "
        "Second, there is none between conv2d and relu.",
    ),
    caption=T(
        zh="差別只在 conv2d 與 relu 之間的那個 observer。",
        en="The only difference is the observer between conv2d and relu.",
    ),
)


# %%
def observed(prepared):
    """{(observed tensor, its readers): (class, number of the object)}"""
    numbers, found = {}, {}
    for node in prepared.graph.find_nodes(op="call_module"):
        if node.target != "_guards_fn":
            observer = prepared.get_submodule(node.target)
            number = numbers.setdefault(id(observer), len(numbers))
            edge = node.args[0].name, *(user.name for user in node.users)
            found[edge] = type(observer).__name__, number
    return found


tensors = [{edge[0] for edge in observed(g)} for g in (one_by_one, as_a_unit)]
assert tensors[0] - tensors[1] == {"conv2d"}, f"observers on {tensors}"

with torch.no_grad():
    wanted = conv_relu(batch)
    off_alone = rms(quantized_one_by_one(batch) - wanted)
    off_fused = rms(quantized_as_a_unit(batch) - wanted)
assert off_alone > 1.2 * off_fused, "rounding once more came for free"

# %% tags=["plot"]
say(
    T(
        zh=f"預測 1：多一個 observer，誤差也變大，因為多捨入了一次。輸出的均方根誤差，各自標註是 {off_alone:.4f}，"
        f"標註成一組是 {off_fused:.4f}。",
        en="Prediction 1: one observer more, and a larger error, because values are rounded once more. The root mean square "
        f"error of the output is {off_alone:.4f} one by one and {off_fused:.4f} as a unit.",
    )
)

# %% [markdown] lang="zh"
# ## 第三種規則：沿用輸入的 observer
#
# `mean`、`flatten`，以及沒有和誰融合的 relu，`XNNPACKQuantizer` 讓它們沿用輸入的 observer
# （[M01-2](../m01_first_ptq/2_prepare_convert.py) 看過為什麼）。寫法是 `SharedQuantizationSpec(source)`：和 `source` 的
# 輸出用**同一個** observer。這種規則要看來源的標註，所以排在最後，而且來源的輸出有規格才寫。

# %% [markdown] lang="en"
# ## The third kind: reusing the input's observer
#
# `XNNPACKQuantizer` has `mean`, `flatten` and a relu that isn't fused reuse the observer of their input
# ([M01-2](../m01_first_ptq/2_prepare_convert.py) showed why). That is spelled `SharedQuantizationSpec(source)`: use
# **the same** observer as the output of `source`. Such a rule looks at the annotation of its source, so it comes last,
# and it writes only if the source's output has a spec.

# %%
from torchao.quantization.pt2e.quantizer import SharedQuantizationSpec

SAME_SCALE = {aten.mean.dim, aten.flatten.using_ints, *RELU}


def shares_with_input(known):
    def rule(node):
        if node.target in known:
            source = node.args[0]
            note = source.meta.get(KEY)
            if note and note.output_qspec:
                same = SharedQuantizationSpec(source)
                annotate(node, {source: same}, same)

    return rule


ALL_RULES = [
    fused(CONV | LINEAR | ADD, RELU),
    alone(CONV | LINEAR | ADD),
    shares_with_input(SAME_SCALE),
]

# %% [markdown] lang="zh"
# 順序反過來會怎樣？最後的規則先看，它要的來源還沒有標註；接著 `alone` 搶走 conv，`fused` 只好放棄，relu 就沒人
# 要。`validate` 講了出來；遇到沒有規則的 op，`XNNPACKQuantizer` 會默默留在
# fp32（[M01-2](../m01_first_ptq/2_prepare_convert.py) 的覆蓋表）：

# %% [markdown] lang="en"
# And in reverse order? The last rule looks first, when no source is annotated yet; then `alone` takes the conv, `fused`
# has to give up, and relu is left over. Our `validate` speaks up; an op without a rule, `XNNPACKQuantizer` silently
# leaves in fp32 (the coverage table of [M01-2](../m01_first_ptq/2_prepare_convert.py)):

# %%
try:
    prepare_pt2e(export(conv_relu), RuleQuantizer(*reversed(ALL_RULES)))
except ValueError as error:
    print(f"ValueError: {error}")
else:
    raise AssertionError("the order of rules makes no difference")

# %% [markdown] lang="zh"
# ## 數使用者
#
# `fused` 的條件是：conv 的值**只有** relu 在讀。還有別人要讀，融合之後那個值就不存在了。讀值的 node 都算，包括圖的
# `output`。（檢查輸入的 `_guards_fn` 也是使用者，不過它只讀圖的輸入，不會讀 conv；哪天規則要從圖的輸入開始，就別把它算
# 進去，見 [M00-1](../m00_fx/1_graph_and_node.py)。）

# %% [markdown] lang="en"
# ## Counting users
#
# The condition in `fused` says that relu is the **only** one that reads the conv's value. If somebody else needs it,
# fusion would leave them without. Every node that reads counts, the graph's `output` included. (`_guards_fn`, the check
# of the inputs, is a user, too, but of the graph's inputs only, never of a conv. Should you ever write a rule that
# starts at an input, don't count it; see [M00-1](../m00_fx/1_graph_and_node.py).)


# %%
class ReadTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x):
        y = self.conv(x)
        return y.relu() + y  # read by relu and add


class AlsoReturned(ReadTwice):
    def forward(self, x):
        y = self.conv(x)
        return y.relu(), y  # read by relu and the output


(x,) = export(ReadTwice()).graph.find_nodes(op="placeholder")
assert [user.name for user in x.users] == ["conv2d", "_guards_fn"]

# %% [markdown] lang="zh"
# 這兩個模型的 conv 都另有讀者。看我們的規則和 `XNNPACKQuantizer` 的標註是否相同；`annotations` 把一張圖上的標註全部攤成
# 文字。（`PTQQuantizer` 是本課程的：標註和 `XNNPACKQuantizer` 一樣，只省下 QAT 才用得到的搜尋，快得多。）

# %% [markdown] lang="en"
# In both models the conv has another reader. Do our rules write the same annotations as `XNNPACKQuantizer`?
# `annotations` spells out all annotations of a graph as text. (`PTQQuantizer` is the course's own: the annotations of
# `XNNPACKQuantizer`, minus a search that only QAT needs, and much faster.)


# %%
def annotations(gm):
    """{node: ({input: spec}, spec of the output)}, empty ones left out."""
    found = {}
    for node in gm.graph.nodes:
        if note := node.meta.get(KEY):
            specs = note.input_qspec_map.items()
            inputs = {a.name: str(spec) for a, spec in specs if spec}
            if inputs or note.output_qspec:
                found[node.name] = inputs, str(note.output_qspec)
    return found


def by_both(model):
    """The model prepared by our rules, and by XNNPACKQuantizer's."""
    ours = prepare_pt2e(export(model), RuleQuantizer(*ALL_RULES))
    quick = PTQQuantizer().set_global(config)
    return ours, prepare_pt2e(export(model), quick)


for model in (ReadTwice(), AlsoReturned()):
    ours, theirs = by_both(model)
    assert annotations(ours) == annotations(theirs), type(model).__name__
    assert annotations(ours)["conv2d"][1] == str(ACTIVATION), "conv was fused"

# %% [markdown] lang="zh"
# 兩邊都不融合：conv 的輸出有自己的規格。這是預測 2 的答案。忘了數會怎樣？把條件拿掉再試：

# %% [markdown] lang="en"
# Neither fuses: the conv's output has a spec of its own, which answers prediction 2. And if we forget to count? Let us
# drop the condition:


# %%
def fused_without_counting(node):
    if node.target in RELU and node.args[0].target in CONV:
        annotate(node.args[0], inputs_of(node.args[0]), None)
        annotate(node, {}, ACTIVATION)


careless = RuleQuantizer(fused_without_counting, *ALL_RULES)
prepared = prepare_pt2e(export(ReadTwice()), careless)  # no error

(conv,) = (node for node in ops(prepared) if node.target in CONV)
direct = [user.name for user in conv.users if user.op == "call_function"]
assert direct == ["relu"], f"read without an observer by {direct}"
assert len(conv.users) == 2, "add does not read through an observer"

# %% [markdown] lang="zh"
# prepare 沒有丟出錯誤，結果卻自相矛盾：relu 讀的是沒有 observer 的 conv 輸出，`add` 讀的是經過 observer 的。同一個值，
# 在圖上既要留在 kernel 裡面，又要存成 int8 交出去。
#
# ## 和 `XNNPACKQuantizer` 逐 node 對答案
#
# `add` → relu、linear、獨自一個的 conv，`ALL_RULES` 全都涵蓋了。在訓練好的 TinyConvNet 上，兩個 quantizer 各標註一張
# 圖，從三方面比。第一，每個 node 的標註：

# %% [markdown] lang="en"
# prepare raises no error, but the result contradicts itself: relu reads the conv's output without an observer, `add`
# reads it through one. The same value is supposed to stay inside a kernel and to leave it as int8.
#
# ## Node by node against `XNNPACKQuantizer`
#
# `add` → relu, linear, a conv by itself: `ALL_RULES` covers them all. On the trained TinyConvNet, each quantizer
# annotates a graph of its own, and we compare three things. First, the annotations of every node:

# %%
tiny = trained_tinyconvnet()
ours = prepare_pt2e(export(tiny), RuleQuantizer(*ALL_RULES))
xnnpack = XNNPACKQuantizer().set_global(config)
theirs = prepare_pt2e(export(tiny), xnnpack)

assert annotations(ours).keys() == annotations(theirs).keys()
for name, annotation in annotations(theirs).items():
    assert annotations(ours)[name] == annotation, f"{name} differs"

# %% tags=["plot"]
SHORT = {str(ACTIVATION): "A", str(WEIGHT): "W", "None": "–"}


def short(spec):
    shared = spec.removeprefix("SharedQuantizationSpec(edge_or_node=")
    return SHORT.get(spec, f"S({shared}")


table(
    [
        [
            f"`{name}`",
            ", ".join(f"`{a}`: {short(spec)}" for a, spec in inputs.items())
            or "–",
            short(output),
        ]
        for name, (inputs, output) in annotations(ours).items()
    ],
    ["node", T(zh="輸入", en="inputs"), T(zh="輸出", en="output")],
    caption=T(
        zh="兩個 quantizer 都寫下的標註。A 是 ACTIVATION，W 是 WEIGHT，S(relu_3) 是 SharedQuantizationSpec(relu_3)。",
        en="The annotations that both quantizers wrote. A is ACTIVATION, W is WEIGHT, "
        "S(relu_3) is SharedQuantizationSpec(relu_3).",
    ),
)

# %% [markdown] lang="zh"
# 第二，同樣的邊上是同樣的 observer。共用的地方也要一樣，所以上面的 `observed` 替每個物件編了號。第三，用同一份資料校
# 準、convert，比產生的程式：scale 與 zero point 都以常數寫在裡面。

# %% [markdown] lang="en"
# Second, the same observers on the same edges. They must also be shared in the same places, which is why `observed`
# above numbers the objects. Third, after calibrating with the same data, the code of the converted graphs: scales and
# zero points are in it, as constants.

# %%
assert observed(ours) == observed(theirs), "other observers or other edges"
assert len(observed(ours)) == 14, "not 9 on activations and 5 on weights"

our_int8, their_int8 = map(calibrate_and_convert, (ours, theirs))
assert our_int8.code == their_int8.code, "other q, dq, scales or zero points"

images, _ = test_data()
with torch.no_grad():
    parts = images[:320].split(32)
    ours_out, theirs_out = (
        torch.cat([gm(part) for part in parts]) for gm in (our_int8, their_int8)
    )
assert torch.equal(ours_out, theirs_out), "not equal bit for bit"
print((ours_out != theirs_out).sum().item(), "of", ours_out.numel(), "differ")

# %% [markdown] lang="zh"
# 預測 3：一個位元都不差。quantizer 對結果的影響全在標註；標註一樣，後面就全部一樣。
#
# 但是「在這個模型上一樣」不等於「處處一樣」。有一個地方我們刻意不學：`XNNPACKQuantizer` 把 conv 的 weight 也標記成「有
# 人管了」。同一個 conv 用了兩次時，第二次就因此沒有標註，**默默留在 fp32**：

# %% [markdown] lang="en"
# Prediction 3: not by a single bit. All of a quantizer's influence is in its annotations; with equal annotations,
# everything after them is equal.
#
# Equal on this model isn't equal everywhere, though. In one case we differ on purpose: `XNNPACKQuantizer` also marks a
# conv's weight as taken. When one conv is used twice, its second use therefore gets no annotation and **silently stays
# in fp32**:


# %%
class UsedTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return self.conv(self.conv(x))


ours, theirs = by_both(UsedTwice())
assert list(annotations(ours)) == ["conv2d", "conv2d_1"]
assert list(annotations(theirs)) == ["conv2d"], "both uses are annotated"

# %% [markdown] lang="zh"
# ## 加一個組合：conv + ReLU6
#
# `nn.ReLU6` 匯出成 `hardtanh`。`XNNPACKQuantizer` 只融合 relu：它讓 conv 的輸出先存成 int8，hardtanh 再沿用同一個
# scale。conv 的輸出範圍若遠大於 [0, 6]，clamp 之後就只剩幾格可用。先看沒有補的樣子：

# %% [markdown] lang="en"
# ## Adding a pattern: conv + ReLU6
#
# `nn.ReLU6` is exported as `hardtanh`. `XNNPACKQuantizer` fuses only relu: it has the conv's output stored as int8, and
# hardtanh reuses that scale. If the conv's outputs reach far beyond [0, 6], few levels are left after the clamp. First,
# how it is without our help:

# %%
torch.manual_seed(0)
relu6 = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU6())
relu6[0].weight.data *= 30  # outputs far beyond [0, 6]

as_it_is = prepare_pt2e(export(relu6), PTQQuantizer().set_global(config))
specs = annotations(as_it_is)
assert specs["conv2d"][1] == str(ACTIVATION), "conv2d has no output spec"
assert "edge_or_node=conv2d" in specs["hardtanh"][1], "not shared"

# %% [markdown] lang="zh"
# 在自己的 quantizer 裡，加一個組合就是多一條規則：`fused(CONV, CLAMP)`，放在 `alone` 之前。現成的 quantizer 也能補：寫
# 一個子類別，先標註自己要的組合，再交給 `super()`。它看到 `_annotated=True` 就跳過這些 node；這個欄位只給 quantizer
# 看，`prepare_pt2e` 不讀。

# %% [markdown] lang="en"
# In a quantizer of our own, a new pattern is just one more rule, `fused(CONV, CLAMP)`, placed before `alone`. An
# existing quantizer can be taught as well: write a subclass, annotate your pattern first, then leave the rest to
# `super()`. It skips nodes that say `_annotated=True`, a field that only quantizers look at; `prepare_pt2e` doesn't.

# %%
CLAMP = {aten.hardtanh.default, aten.hardtanh_.default}


class FusesReLU6(PTQQuantizer):  # XNNPACKQuantizer works the same way
    def annotate(self, model):
        RuleQuantizer(fused(CONV, CLAMP)).annotate(model)
        return super().annotate(model)


own = RuleQuantizer(fused(CONV, CLAMP), *ALL_RULES)
taught = prepare_pt2e(export(relu6), FusesReLU6().set_global(config))
for prepared in (taught, prepare_pt2e(export(relu6), own)):
    assert annotations(prepared)["conv2d"][1] == "None", "not fused"
    assert annotations(prepared)["hardtanh"] == ({}, str(ACTIVATION))

# %%
quantizers = {"XNNPACKQuantizer": as_it_is, "FusesReLU6": taught}
levels, off = {}, {}
with torch.no_grad():
    for name, prepared in quantizers.items():
        output = calibrate_and_convert(prepared)(batch)
        levels[name] = len(output.unique())
        off[name] = rms(output - relu6(batch))

assert levels["XNNPACKQuantizer"] < 64 < 200 < levels["FusesReLU6"], levels
assert off["XNNPACKQuantizer"] > 2 * off["FusesReLU6"], "no gain"

# %% tags=["plot"]
table(
    [[f"`{name}`", levels[name], f"{off[name]:.4f}"] for name in levels],
    [
        "quantizer",
        T(zh="輸出用到的格數（共 256）", en="levels the output uses, of 256"),
        T(zh="均方根誤差", en="root mean square error"),
    ],
)

# %% [markdown] lang="zh"
# 規則認的是 op，不是數學。同一個 clamp 換一種寫法就是另一個 op，得把它們都寫進 `CLAMP`，否則規則不會有反應：

# %% [markdown] lang="en"
# A rule knows ops, not mathematics. Spelled another way, the same clamp is another op, and a rule that lacks it in
# `CLAMP` simply does nothing:


# %%
class Spellings(nn.Module):
    def forward(self, x):
        relu6 = nn.functional.relu6(x)
        return nn.functional.hardtanh(x, 0, 6), relu6, x.clamp(0, 6)


names = sorted(str(node.target) for node in ops(export(Spellings())))
print(*names)
assert len(set(names)) == 3, "two spellings are the same op"

# %% [markdown] lang="zh"
# 標註只是願望：後端是否真的把 conv 與 clamp 換成一個 kernel，要在 lowering 之後才看得到。
# [M10](../m10_real_model/0_overview.py) 的模型到處是 ReLU6，那裡會量出補這個組合的效果。

# %% [markdown] lang="en"
# An annotation only states a wish: whether the backend really replaces conv and clamp by one kernel shows after
# lowering. The model of [M10](../m10_real_model/0_overview.py) is full of ReLU6, and there we measure what this pattern
# is worth.

# %% [markdown] lang="zh"
# ## 小結
#
# - 一組融合的 op：輸入規格寫在第一個 op，輸出規格寫在最後一個 op，中間不寫；少了這個，就多捨入一次。
# - 第一個 op 的值只能有一個讀者，圖的 `output` 也算讀者。
# - 規則的順序就是優先順序；沿用輸入 observer 的 op 用 `SharedQuantizationSpec`，排在最後。
# - 標註相同，Q/DQ 圖就逐位元相同。比對時攤成文字，逐 node 比。
# - 要替現成的 quantizer 補一個組合，在 `super().annotate` 之前先標註它。

# %% [markdown] lang="en"
# ## Recap
#
# - For a fused group, the input specs go on the first op, the output spec goes on the last, and nothing in between;
#   without that, values are rounded once more.
# - The value of the first op must have a single reader; the graph's `output` counts as one.
# - Order of rules is priority; ops that reuse their input's observer take a `SharedQuantizationSpec` and come last.
# - With equal annotations the Q/DQ graphs are equal bit for bit. To compare, spell annotations out, node by node.
# - To teach an existing quantizer a pattern, annotate it before calling `super().annotate`.

# %% [markdown] lang="zh"
# ## 試試看
#
# 換一個模型：conv → hardswish → max_pool2d。`max_pool2d` 只是從輸入裡挑出最大的值，該用哪一種規則？hardswish 就當成獨立
# 的一個 kernel。加上兩條規則，讓 `validate` 沒話說，再檢查哪些 tensor 用同一個 observer。

# %% [markdown] lang="en"
# ## Try it
#
# Another model: conv → hardswish → max_pool2d. `max_pool2d` merely picks the largest of its input values; which kind of
# rule suits it? Treat hardswish as a kernel of its own. Add two rules so that `validate` has nothing to say, then check
# which tensors have the same observer.

# %% tags=["solution"]
pooled = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Hardswish(), nn.MaxPool2d(2))
more = [
    alone({aten.hardswish.default}),
    shares_with_input({aten.max_pool2d.default}),
]
prepared = prepare_pt2e(export(pooled), RuleQuantizer(*ALL_RULES, *more))
number = {edge[0]: n for edge, (_, n) in observed(prepared).items()}
print(number)
assert number["max_pool2d"] == number["hardswish"] != number["conv2d"]

# %% [markdown] lang="zh" tags=["solution"]
# `max_pool2d` 不產生新的值，沿用 hardswish 的 observer 就不必換算。不過規則只代表你的願望：`XNNPACKQuantizer` 不標註
# hardswish，ExecuTorch 的 XNNPACK partitioner 也只收 fp32 的 hardswish（executorch 1.5.1，`HardswishConfig`），替它寫標
# 註並不會讓 int8 kernel 冒出來。

# %% [markdown] lang="en" tags=["solution"]
# `max_pool2d` makes no new values, so with hardswish's observer nothing has to be rescaled. Keep in mind that a rule
# only states what you want: `XNNPACKQuantizer` doesn't annotate hardswish, ExecuTorch's XNNPACK partitioner takes it in
# fp32 only (executorch 1.5.1, `HardswishConfig`), and annotating it won't make an int8 kernel appear.

# %% [markdown] lang="zh"
# ## 接下來
#
# 這裡的規格只有一般的兩份，加上「和誰共用」。[M03-3](3_shared_and_derived.py) 看其餘的：推導出來的（int32 的 bias）、固
# 定的，以及怎麼把幾個 quantizer 合起來、怎麼讓某一層例外。

# %% [markdown] lang="en"
# ## Next
#
# We used two ordinary specs, plus "the same as that one". [M03-3](3_shared_and_derived.py) looks at the others: derived
# (an int32 bias) and fixed ones, and then at combining quantizers and at making an exception for a single layer.
