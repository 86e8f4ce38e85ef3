# %% [markdown] lang="zh"
# # M03-3 | 共用、推導、固定的規格，以及讓某一層例外
#
# [M03-2](2_write_a_quantizer.py) 的規格都是「看資料決定範圍」。有些 tensor 不能自己決定：`cat` 的輸入得用同一個
# scale，int32 的 bias 得配合別人的 scale，sigmoid 的輸出事先就知道範圍。這一頁先看替它們準備的三種規格，再把幾個
# quantizer 合起來，最後處理最常見的需求：讓**某一層**用別的設定，或留在 fp32。最後這件事的現成寫法，對 conv 幾乎都不管
# 用，而且不會告訴你。
#
# **讀完你會知道**
#
# - 共用、推導、固定三種規格各解決什麼，順序為什麼重要
# - int32 的 bias 為什麼用 $s_x s_w$，怎麼手算驗證
# - `ComposableQuantizer` 的優先順序，以及它漏掉了哪些呼叫
# - `set_module_name` 這些方法為什麼碰不到 conv，怎麼安全地指名一個 conv

# %% [markdown] lang="en"
# # M03-3 | Shared, derived and fixed specs, and exceptions for a layer
#
# All specs of [M03-2](2_write_a_quantizer.py) say "look at data and decide on a range". Some tensors can't decide
# alone: the inputs of `cat` need one common scale, an int32 bias has to go by the scales of others, and the range of a
# sigmoid's output is known beforehand. This page looks at the three kinds of specs made for them, then combines
# quantizers, and finally turns to the most common wish: another configuration, or fp32, for **one layer**. The
# ready-made ways of doing that hardly ever work for a conv, and they don't tell you.
#
# **What you will know**
#
# - What shared, derived and fixed specs are for, and why order matters
# - Why an int32 bias uses $s_x s_w$, and how to check that by hand
# - Who has priority in a `ComposableQuantizer`, and which calls it leaves out
# - Why methods like `set_module_name` don't reach a conv, and how to name one safely

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. bias 以 int32 存，scale 是 $s_x s_w$。它會比 int8 的 weight 更不準嗎？
# 2. 兩個 quantizer 放進 `ComposableQuantizer`，它們的 `validate` 會被呼叫嗎？
# 3. A、B 是兩份設定。`set_global(A).set_module_name("block.conv2", B)` 之後，`block.conv2` 用 A、用 B，還是都不用？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. A bias is stored as int32 with scale $s_x s_w$. Is it less accurate than a weight stored as int8?
# 2. Two quantizers go into a `ComposableQuantizer`. Are their `validate` methods called?
# 3. A and B are two configurations. After `set_global(A).set_module_name("block.conv2", B)`, does `block.conv2` use A,
#    B, or neither?

# %% tags=["setup"]
from common.data import calibration_batches
from common.env import quiet
from common.models import get_model
from common.pt2e import op_coverage
from common.quantizers import PTQQuantizer
from common.viz import T, graph, say, table

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    get_symmetric_quantization_config,
)
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    Quantizer,
)

quiet()

aten = torch.ops.aten
KEY = "quantization_annotation"
QUANTIZE = torch.ops.quantized_decomposed.quantize_per_tensor.default
(batch,) = next(calibration_batches(32))


def export(model):
    return torch.export.export(model.eval(), (batch,)).module()


def calls(gm, op):
    return gm.graph.find_nodes(op="call_function", target=op)


def annotate(node, inputs, output):
    """inputs: {input node: spec}; output: a spec or None."""
    node.meta[KEY] = QuantizationAnnotation(
        input_qspec_map=inputs, output_qspec=output, _annotated=True
    )


class ForOp(Quantizer):
    """Calls `write` with each node of one op."""

    def __init__(self, op, write):
        self.op, self.write = op, write

    def annotate(self, model):
        for node in calls(model, self.op):
            self.write(node)
        return model

    def validate(self, model):
        pass


def calibrate_and_convert(prepared, data=batch):
    with torch.no_grad():
        prepared(data)
    return convert_pt2e(prepared)


def qparams(quantized):
    """(scale, zero point) of each quantized tensor, by its name."""
    return {q.args[0].name: q.args[1:3] for q in calls(quantized, QUANTIZE)}


def error_of(call):
    """What the call raises: the error's class and the message's first line."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    raise AssertionError("no error was raised")


# %% [markdown] lang="zh"
# ## 共用：`SharedQuantizationSpec`
#
# `SharedQuantizationSpec(對象)` 說：和那個對象用同一個 observer。對象有兩種寫法：一個 **node**，指它的輸出
# （[M03-2](2_write_a_quantizer.py) 用過）；或一條**邊** `(來源, 使用者)`，指使用者讀到的那個輸入。`cat` 需要後者：第一
# 個輸入用一般的規格，其餘的輸入與輸出都和這條邊共用。（摺起來的程式裡，`ForOp(op, write)` 是個小 quantizer，對某種 op
# 的每個 node 呼叫 `write`；`annotate` 替一個 node 寫標註。）

# %% [markdown] lang="en"
# ## Shared: `SharedQuantizationSpec`
#
# `SharedQuantizationSpec(target)` says: use the same observer as the target. A target is either a **node**, meaning its
# output ([M03-2](2_write_a_quantizer.py) used that), or an **edge** `(source, user)`, meaning the input that the user
# reads. `cat` takes the latter: its first input gets an ordinary spec, and the other inputs and the output share with
# that edge. (In the folded setup, `ForOp(op, write)` is a small quantizer that calls `write` with every node of one op,
# and `annotate` writes the annotation of a node.)

# %%
from torchao.quantization.pt2e.quantizer import SharedQuantizationSpec

per_channel = get_symmetric_quantization_config(is_per_channel=True)
ACTIVATION, WEIGHT = per_channel.input_activation, per_channel.weight


def one_scale_for_cat(cat):
    first, *others = cat.args[0]
    same = SharedQuantizationSpec((first, cat))
    inputs = {first: ACTIVATION, **dict.fromkeys(others, same)}
    annotate(cat, inputs, same)


class Cat(nn.Module):
    def forward(self, x):
        return torch.cat([x.tanh(), x.relu()], dim=1)


for_cat = ForOp(aten.cat.default, one_scale_for_cat)
quantized = calibrate_and_convert(prepare_pt2e(export(Cat()), for_cat))
assert set(qparams(quantized)) == {"tanh", "relu", "cat"}
assert len(set(qparams(quantized).values())) == 1, "more than one scale"
print(qparams(quantized))

# %% [markdown] lang="zh"
# 三個 tensor，同一組 scale 與 zero point。對象必須是**有規格**的邊或 node；指到沒有規格的地方，只會得到看不出所以然的錯
# 誤：

# %% [markdown] lang="en"
# Three tensors, one scale and zero point. The target must be an edge or a node that **has a spec**. Point at one that
# has none, and you get an error that doesn't give the reason away:


# %%
def no_spec_there(cat):
    first, second = cat.args[0]
    annotate(cat, {first: SharedQuantizationSpec((second, cat))}, None)


message = error_of(
    lambda: prepare_pt2e(export(Cat()), ForOp(for_cat.op, no_spec_there))
)
print(message)
assert message == "KeyError: (relu, cat)", "a better message"

# %% [markdown] lang="zh"
# ## 推導：`DerivedQuantizationSpec`，int32 的 bias
#
# `XNNPACKQuantizer` 不替 bias 寫規格。整數 kernel 卻需要整數的 bias：conv 的內積累加成 int32，一單位代表 $s_x s_w$
# （[M01-0](../m01_first_ptq/0_overview.py) 的式 (4)），bias 用**同樣的 scale** 存成 int32，就能直接加進去：
#
# $$\sum_i w_i x_i + b \approx s_x s_w \Big( \sum_i q_{w,i}\,(q_{x,i} - z_x) + q_b \Big), \qquad q_b = \mathrm{round}\Big(\frac{b}{s_x s_w}\Big) \tag{1}$$
#
# 這個 scale 不是看 bias 決定的，而是從另外兩個 observer 推導出來：`derived_from` 列出對象，`derive_qparams_fn` 拿到它們
# 的 observer，回傳 scale 與 zero point。weight 是 per-channel，所以 $s_x s_w$ 每個 channel 一個。

# %% [markdown] lang="en"
# ## Derived: `DerivedQuantizationSpec`, an int32 bias
#
# `XNNPACKQuantizer` writes no spec for a bias. An integer kernel needs an integer bias, though. The inner products of a
# conv are accumulated in int32, one unit being $s_x s_w$ (formula (4) of [M01-0](../m01_first_ptq/0_overview.py)). A
# bias stored as int32 with **the same scale** can simply be added:
#
# $$\sum_i w_i x_i + b \approx s_x s_w \Big( \sum_i q_{w,i}\,(q_{x,i} - z_x) + q_b \Big), \qquad q_b = \mathrm{round}\Big(\frac{b}{s_x s_w}\Big) \tag{1}$$
#
# That scale isn't found by looking at the bias; it is derived from two other observers. `derived_from` lists the
# targets, and `derive_qparams_fn` gets their observers and returns scale and zero point. With per-channel weights,
# there is one $s_x s_w$ for each channel.

# %%
from torchao.quantization.pt2e.quantizer import DerivedQuantizationSpec


def product_of_scales(observers):
    (s_x, _), (s_w, _) = (obs.calculate_qparams() for obs in observers)
    return s_x * s_w, torch.zeros_like(s_w, dtype=torch.int64)


def with_int32_bias(conv, bias_first=False):
    x, w, b = conv.args[:3]
    bias = DerivedQuantizationSpec(
        derived_from=[(x, conv), (w, conv)],
        derive_qparams_fn=product_of_scales,
        dtype=torch.int32,
        quant_min=-(2**31),
        quant_max=2**31 - 1,
        qscheme=torch.per_channel_symmetric,
        ch_axis=0,
    )
    inputs = {x: ACTIVATION, w: WEIGHT, b: bias}
    if bias_first:
        inputs = {b: bias, x: ACTIVATION, w: WEIGHT}
    annotate(conv, inputs, ACTIVATION)


conv_relu = get_model("conv_relu")
for_bias = ForOp(aten.conv2d.default, with_int32_bias)
quantized = calibrate_and_convert(prepare_pt2e(export(conv_relu), for_bias))

# %% tags=["plot"]
graph(
    quantized,
    types=True,
    alt=T(
        zh="x 經 q、dq 進 conv2d；weight 是 int8、bias 是 int32，各經一個 dq 進 conv2d；conv2d 的輸出經 q、dq 到 relu 與輸出。",
        en="x passes q and dq into conv2d; the int8 weight and the int32 bias each pass a dq into conv2d; its output passes q and dq to relu and the output.",
    ),
    caption=T(
        zh="convert 之後：bias 也成了整數常數，只留 dequantize。",
        en="After convert: the bias has become an integer constant, too, and keeps only its dequantize.",
    ),
)

# %% [markdown] lang="zh"
# 手算一遍：bias 的 scale 是不是乘積、整數是不是式 (1) 的 $q_b$，最後拿一個輸出像素，只用整數算出 conv 的結果。

# %% [markdown] lang="en"
# Now by hand: is the bias's scale the product, are its integers the $q_b$ of (1), and, for one output pixel, do
# integers alone give the result of the conv?


# %%
def constant(node):
    return getattr(quantized, node.target)


(conv,) = calls(quantized, aten.conv2d.default)
x_dq, w_dq, b_dq = conv.args[:3]
s_x, z_x = x_dq.args[1:3]
w_int8, s_w, b_int32, s_b = map(constant, w_dq.args[:2] + b_dq.args[:2])
b = conv_relu.conv.bias.detach()

assert torch.allclose(s_b, s_x * s_w, rtol=1e-6), "not the product of scales"
assert b_int32.dtype == torch.int32, f"the bias is {b_int32.dtype}"
assert torch.equal(b_int32, (b / (s_x * s_w)).round().int()), "not q_b of (1)"

# %%
q_x = torch.ops.quantized_decomposed.quantize_per_tensor(
    batch[:1], s_x, z_x, -128, 127, torch.int8
)
window = q_x[0, :, 4:7, 4:7].int()  # under output pixel (5, 5)
accumulator = (w_int8.int() * (window - z_x)).sum(dim=(1, 2, 3)) + b_int32
by_integers = s_x * s_w * accumulator

x_hat = s_x * (q_x.float() - z_x)
w_hat = s_w.view(-1, 1, 1, 1) * w_int8
by_floats = nn.functional.conv2d(x_hat, w_hat, b, padding=1)[0, :, 5, 5]
half_steps = s_x * s_w / 2
assert not accumulator.is_floating_point()
assert ((by_integers - by_floats).abs() <= half_steps + 1e-6).all(), "(1)"


# %%
def relative_error(approximation, exact):
    """Norm of the error over the norm of the exact values."""
    return ((approximation - exact).norm() / exact.norm()).item()


bias_off = relative_error(s_b * b_int32, b)
weight_off = relative_error(w_hat, conv_relu.conv.weight.detach())
assert bias_off < weight_off / 10, f"bias {bias_off}, weight {weight_off}"

# %% tags=["plot"]
say(
    T(
        zh=f"預測 1：不會，準確得多。相對誤差（誤差的範數除以原值的範數），bias 是 {bias_off:.4%}，weight 是 {weight_off:.2%}：一單位 $s_x s_w$ 很小，而 int32 的範圍很大。",
        en=f"Prediction 1: no, it is far more accurate. The relative error (norm of the error over norm of the values) is {bias_off:.4%} for the bias and {weight_off:.2%} for the weight: a unit of $s_x s_w$ is tiny and int32 has a vast range.",
    )
)

# %% [markdown] lang="zh"
# 有一個陷阱：prepare 依 `input_qspec_map` 的**順序**建立 observer，推導要用的得先建好。把 bias 寫在前面就會：

# %% [markdown] lang="en"
# There is a trap. prepare creates observers in the **order** of `input_qspec_map`, and those to derive from must exist
# first. With the bias in front:

# %%
bias_first = ForOp(for_bias.op, lambda conv: with_int32_bias(conv, True))
message = error_of(lambda: prepare_pt2e(export(conv_relu), bias_first))
print(message)
assert message == "KeyError: (x, conv2d)", "the order doesn't matter any more"

# %% [markdown] lang="zh"
# ## 固定：`FixedQParamsQuantizationSpec`
#
# sigmoid 的輸出一定在 0 和 1 之間，不必看資料：scale 取 1/256、zero point 取 −128，256 格涵蓋 0 到 255/256。不管校準資
# 料長什麼樣，最多只差半格，極接近 1 的值差一格。下面故意用範圍只有十分之一的資料校準，再餵正常的資料：

# %% [markdown] lang="en"
# ## Fixed: `FixedQParamsQuantizationSpec`
#
# The output of a sigmoid lies between 0 and 1, no data needed: with scale 1/256 and zero point −128, the levels cover 0
# to 255/256. Whatever the calibration data, nothing is off by more than half a level, or a whole one very close to 1.
# Below, we calibrate with data of a tenth of the range on purpose, then run normal data:

# %%
from torchao.quantization.pt2e.quantizer import FixedQParamsQuantizationSpec

FIXED = FixedQParamsQuantizationSpec(
    dtype=torch.int8,
    scale=1 / 256,
    zero_point=-128,
    quant_min=-128,
    quant_max=127,
)
sigmoid, worst = nn.Sigmoid(), {}
for name, spec in {"observed": ACTIVATION, "fixed": FIXED}.items():
    rule = ForOp(aten.sigmoid.default, lambda n, s=spec: annotate(n, {}, s))
    prepared = prepare_pt2e(export(sigmoid), rule)
    quantized = calibrate_and_convert(prepared, data=batch / 10)
    worst[name] = (quantized(batch) - sigmoid(batch)).abs().max().item()

assert qparams(quantized) == {"sigmoid": (1 / 256, -128)}, "not as fixed"
assert worst["fixed"] <= 1 / 512 + 1e-6, "more than half a step"
assert worst["observed"] > 20 * worst["fixed"], "calibration was good enough"
print("largest error:", {name: f"{off:.4f}" for name, off in worst.items()})

# %% [markdown] lang="zh"
# ## 合用：`ComposableQuantizer`
#
# `ComposableQuantizer([A, B])` 依序請每個 quantizer 標註同一張圖。誰先標註，誰就贏，前提是後面的願意讓：
# `XNNPACKQuantizer` 看到 `_annotated=True` 就跳過。下面第一個只管 linear、weight 用 per-tensor，第二個管其餘的、用
# per-channel。（這頁的 `PTQQuantizer` 是本課程的：標註和方法都和 `XNNPACKQuantizer` 一樣，只是快得多。）

# %% [markdown] lang="en"
# ## Combined: `ComposableQuantizer`
#
# `ComposableQuantizer([A, B])` has each quantizer annotate the same graph, in order. Whoever annotates first wins,
# provided the others give way: `XNNPACKQuantizer` skips what says `_annotated=True`. Below, the first takes only
# linear, with per-tensor weights, and the second takes the rest, per channel. (`PTQQuantizer` is the course's own:
# annotations and methods of `XNNPACKQuantizer`, only much faster.)

# %%
from torchao.quantization.pt2e.quantizer import ComposableQuantizer

per_tensor = get_symmetric_quantization_config()
tiny = get_model("tiny")
SCHEMES = {
    torch.per_channel_symmetric: "per-channel",
    torch.per_tensor_symmetric: "per-tensor",
}


def module_of(node):
    """The path of the module the node comes from, "" if that is unknown."""
    paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
    return paths[-1] if paths else ""


def weights_of(quantizer):
    """{layer of TinyConvNet: how its weight is quantized, or "fp32"}."""
    prepared, found = prepare_pt2e(export(tiny), quantizer), {}
    for op in (aten.conv2d.default, aten.linear.default):
        for node in calls(prepared, op):
            note = node.meta.get(KEY, QuantizationAnnotation())
            specs = [spec for spec in note.input_qspec_map.values() if spec]
            named = [SCHEMES[s.qscheme] for s in specs if s.qscheme in SCHEMES]
            found[module_of(node)] = named[0] if named else "fp32"
    return found


linear_only = PTQQuantizer()
linear_only.set_operator_type(aten.linear.default, per_tensor)
the_rest = PTQQuantizer().set_global(per_channel)

composed = weights_of(ComposableQuantizer([linear_only, the_rest]))
swapped = weights_of(ComposableQuantizer([the_rest, linear_only]))
assert composed["fc"] == "per-tensor", "linear_only had no priority"
assert set(composed.values()) == {"per-tensor", "per-channel"}, composed
assert set(swapped.values()) == {"per-channel"}, "the first didn't win"

# %% [markdown] lang="zh"
# 不肯讓的 quantizer 會被抓到：`ComposableQuantizer` 記得哪個 node 上是哪個標註物件，換掉就丟例外。但是在原來的物件裡改
# 一個欄位，它看不出來：

# %% [markdown] lang="en"
# A quantizer that doesn't give way is caught: `ComposableQuantizer` remembers which annotation object is on which node
# and raises when it has been replaced. It doesn't see a field of that same object being edited, though:


# %%
def replaces(node):
    annotate(node, {node.args[0]: ACTIVATION}, ACTIVATION)


rude = ComposableQuantizer([the_rest, ForOp(aten.linear.default, replaces)])
message = error_of(lambda: prepare_pt2e(export(tiny), rude))
print(message)
assert "changed annotations on node linear" in message, "nobody objected"


def edits(node):
    node.meta[KEY].output_qspec = None


sly = ComposableQuantizer([the_rest, ForOp(aten.linear.default, edits)])
(linear,) = calls(prepare_pt2e(export(tiny), sly), aten.linear.default)
assert linear.meta[KEY].output_qspec is None, "the edit didn't last"

# %% [markdown] lang="zh"
# 它也**從不呼叫**裡面那些 quantizer 的 `validate` 與 `prepare_obs_or_fq_callback`。單獨用會拒絕的 quantizer，放進去就默
# 默放行：

# %% [markdown] lang="en"
# And it **never calls** `validate` and `prepare_obs_or_fq_callback` of the quantizers inside. One that refuses when
# used by itself waves everything through:


# %%
class Strict(PTQQuantizer):
    def validate(self, model):
        raise ValueError("I refuse")

    def prepare_obs_or_fq_callback(self, model, observers):
        raise ValueError("I refuse here, too")


strict = Strict().set_global(per_channel)
alone = error_of(lambda: prepare_pt2e(export(tiny), strict))
assert alone == "ValueError: I refuse", "validate isn't called"
waved_through = weights_of(ComposableQuantizer([strict]))
assert "fp32" not in waved_through.values(), "something was left out"

# %% [markdown] lang="zh"
# 預測 2：不會。要檢查，就在 `ComposableQuantizer` 的子類別裡自己呼叫。
#
# ## 依模組名稱設定：十種試法
#
# 「這一層用別的設定」看起來很簡單：`XNNPACKQuantizer` 有 `set_module_name`、`set_module_type`、`set_operator_type`、
# `set_filter_function`。每一種寫法都試，列出五個 weight 的下場。A 是 per-channel 的設定，B 是 per-tensor 的：

# %% [markdown] lang="en"
# Prediction 2: no. If you need the checks, call them yourself in a subclass of `ComposableQuantizer`.
#
# ## By module name: ten attempts
#
# "Another configuration for this layer" looks easy: `XNNPACKQuantizer` has `set_module_name`, `set_module_type`,
# `set_operator_type` and `set_filter_function`. We try them all and list what becomes of the five weights. A is the
# per-channel configuration, B the per-tensor one:

# %%
A, B, Q = per_channel, per_tensor, PTQQuantizer
ATTEMPTS = {
    'set_module_name("block.conv2", A)': Q().set_module_name("block.conv2", A),
    'set_module_name("block", A)': Q().set_module_name("block", A),
    'set_module_name("blok", A)': Q().set_module_name("blok", A),  # a typo
    'set_module_name("fc", A)': Q().set_module_name("fc", A),
    "set_module_type(nn.Conv2d, A)": Q().set_module_type(nn.Conv2d, A),
    "set_module_type(nn.Linear, A)": Q().set_module_type(nn.Linear, A),
    "set_operator_type(aten.conv2d, A)": Q().set_operator_type(aten.conv2d, A),
    "set_operator_type(aten.conv2d.default, A)": Q().set_operator_type(
        aten.conv2d.default, A
    ),
    'set_global(A).set_module_name("block.conv2", B)': Q()
    .set_global(A)
    .set_module_name("block.conv2", B),
    'set_global(A).set_filter_function(name == "conv2d_2")': Q()
    .set_global(A)
    .set_filter_function(lambda node: node.name == "conv2d_2"),
}
fates = {call: weights_of(quantizer) for call, quantizer in ATTEMPTS.items()}

# %% tags=["plot"]
LAYERS = list(composed)
SHORT = {"per-channel": "**A**", "per-tensor": "**B**", "fp32": "fp32"}
table(
    [
        [f"`{call}`", *(SHORT[weights[layer]] for layer in LAYERS)]
        for call, weights in fates.items()
    ],
    ["", *(f"`{layer}`" for layer in LAYERS)],
    caption=T(
        zh="每種寫法之後，五個 weight 各用了哪份設定。沒有一種發出錯誤或警告。",
        en="Which configuration each of the five weights got after each attempt. None raised an error or a warning.",
    ),
)


# %%
def got(call):
    """The layers that an attempt quantizes."""
    return [name for name, how in fates[call].items() if how != "fp32"]


convs = [layer for layer in LAYERS if layer != "fc"]
no_effect = [call for call in fates if not got(call)]
block = prepare_pt2e(export(tiny), ATTEMPTS['set_module_name("block", A)'])
in_block = [row.node for row in op_coverage(block) if row.is_quantized]

assert len(no_effect) == 6, f"these quantize no weight: {no_effect}"
assert in_block == ["add", "relu_2"], f"quantized in block: {in_block}"
assert got('set_module_name("fc", A)') == ["fc"], "linear isn't found"
assert got("set_module_type(nn.Linear, A)") == ["fc"], "linear isn't found"
assert got("set_operator_type(aten.conv2d.default, A)") == convs

mixed = fates['set_global(A).set_module_name("block.conv2", B)']
assert mixed["block.conv2"] == "fp32", "block.conv2 is quantized"
assert all(mixed[layer] == "per-channel" for layer in mixed if "2" not in layer)

# %% [markdown] lang="zh"
# 十種裡有六種一個 weight 都沒量化，而且沒有任何訊息；`"block"` 也只對上了裡面的 add 與它後面的 relu。倒數第二列是預測
# 3：**都不用**。全域設定刻意避開被指名的模組，指名的那一輪又沒對上，於是它留在 fp32。`set_operator_type` 要寫到
# overload（`aten.conv2d.default`），只寫 `aten.conv2d` 就對不上。
#
# 為什麼 linear 可以，conv 不行？因為標註 conv 時，過濾條件要對**整組**每個 node 成立，包括 weight、bias 與 relu；單獨的
# linear 只看自己。來看這一組各自說自己來自哪個模組：

# %% [markdown] lang="en"
# Six attempts out of ten quantize no weight at all, without a word; in `"block"`, only add and the relu behind it were
# found. The last row but one is prediction 3: **neither**. The global configuration avoids named modules on purpose,
# and the pass for the name finds no match, so the layer stays in fp32. `set_operator_type` takes the overload
# (`aten.conv2d.default`); plain `aten.conv2d` matches nothing.
#
# Why does it work for linear and not for a conv? To annotate a conv, the filter must hold for every node of the
# **group**, weight, bias and relu included; for a lone linear, only the linear node is asked. Here is which module each
# node of a group claims to come from:

# %%
prepared = prepare_pt2e(export(tiny), PTQQuantizer())  # annotates nothing
group = {
    node.name: module_of(node)
    for node in prepared.graph.nodes
    if node.name.startswith("block_conv1")
    or node.name in ("conv2d_1", "relu_1")
}
for name, module in group.items():
    print(f"{name:24} {module or '-'}")

assert group.pop("conv2d_1") == "block.conv1"
assert group.pop("relu_1") == "block.relu", "relu is in another module"
assert group and not any(group.values()), f"weight and bias know: {group}"

linear_relu = nn.Sequential(nn.Linear(16, 8), nn.ReLU())
by_name = prepare_pt2e(export(linear_relu), Q().set_module_name("0", A))
(linear,) = calls(by_name, aten.linear.default)
assert linear.meta[KEY].output_qspec, "linear -> relu was fused"

# %% [markdown] lang="zh"
# weight 與 bias 是 `get_attr` node，沒有模組的記錄；relu 屬於自己的模組，不是 conv 的。任何「模組名稱等於 block.conv1」
# 的條件，對這一組都不成立。linear 後面若有 relu，依名稱設定也只對上單獨的 linear：兩個都量化了，卻沒有融合。
#
# ## 安全地指名一個 conv
#
# 自己寫條件，交給 `set_filter_function`：只問 conv 來自哪裡，relu 跟著它的 conv，`get_attr` 一律放行。要給它別的設定，
# 就用兩個 quantizer 組合；要留在 fp32，就把條件反過來。

# %% [markdown] lang="en"
# Weight and bias are `get_attr` nodes, which keep no record of a module, and relu belongs to a module of its own, not
# to the conv's. No condition of the form "the module's name is block.conv1" can hold for this group. And where a relu
# follows a linear, a rule by name finds just the linear: both are quantized, but not fused.
#
# ## Naming a conv safely
#
# Write the condition yourself and hand it to `set_filter_function`: ask only the conv where it comes from, let relu
# follow its conv, and let every `get_attr` pass. For another configuration, combine two quantizers; for fp32, turn the
# condition around.


# %%
def belongs(node, path):
    """Is it the op of module `path`, or the relu behind that?"""
    if node.target in (aten.relu.default, aten.relu_.default):
        node = node.args[0]
    return module_of(node) == path


def only(path):
    return lambda node: node.op == "get_attr" or belongs(node, path)


def all_but(path):
    return lambda node: not belongs(node, path)


# %%
exception = Q().set_global(B).set_filter_function(only("block.conv1"))
with_b = weights_of(ComposableQuantizer([exception, the_rest]))
not_fc = Q().set_global(A).set_filter_function(all_but("fc"))
not_conv1 = Q().set_global(A).set_filter_function(all_but("block.conv1"))

everywhere = dict.fromkeys(LAYERS, "per-channel")
wanted = everywhere | {"block.conv1": "per-tensor"}
assert with_b == wanted, f"block.conv1 should have B alone: {with_b}"
assert weights_of(not_conv1) == everywhere | {"block.conv1": "fp32"}
assert weights_of(not_fc) == everywhere | {"fc": "fp32"}, "fc isn't fp32"

message = error_of(lambda: Q().set_module_name("fc", None))
print(message)
assert "is not supported yet" in message, "None is supported now"

# %% [markdown] lang="zh"
# 最後一行是另一個直覺的寫法：用 `None` 表示不要量化，`set_module_name` 不接受。打錯字則仍然不會有人提醒，所以像這樣的
# `assert` 不是多餘的：**設定之後，一定要檢查那一層真的變了**。整個模型的覆蓋情況用 `op_coverage` 看
# （[M01-2](../m01_first_ptq/2_prepare_convert.py)）；哪一層值得例外，是 [M05-3](../m05_accuracy/3_sensitivity.py) 的題
# 目；torchao 的那一份 `XNNPACKQuantizer` 見 [M08-1](../m08_executorch/1_two_quantizers.py)。

# %% [markdown] lang="en"
# The last line is another obvious spelling, `None` for "don't quantize", which `set_module_name` refuses. A typo still
# goes unnoticed, so asserts like these are no luxury: **after configuring, always check that the layer really
# changed**. `op_coverage` shows it for a whole model ([M01-2](../m01_first_ptq/2_prepare_convert.py)); which layers
# deserve an exception is the subject of [M05-3](../m05_accuracy/3_sensitivity.py); for torchao's own `XNNPACKQuantizer`
# see [M08-1](../m08_executorch/1_two_quantizers.py).

# %%
typo = prepare_pt2e(
    export(tiny), Q().set_global(A).set_filter_function(only("block.conv7"))
)
assert not any(row.is_quantized for row in op_coverage(typo)), "no typo?"

# %% [markdown] lang="zh"
# ## 小結
#
# - 共用：對象是 node（它的輸出）或邊；對象必須有規格。
# - 推導：int32 的 bias 用 $s_x s_w$，才能直接加進整數累加；推導出來的要寫在它依據的對象後面。
# - 固定：輸出範圍事先已知，就不受校準資料影響。
# - `ComposableQuantizer`：先標註的優先；換掉別人的標註會丟例外，改欄位則不會；不呼叫裡面的 `validate` 與 callback。
# - `set_module_name`、`set_module_type` 碰不到 conv，還可能讓它留在 fp32。用自己的條件，`get_attr` 放行，再檢查結果。

# %% [markdown] lang="en"
# ## Recap
#
# - Shared: the target is a node (its output) or an edge, and must have a spec.
# - Derived: an int32 bias uses $s_x s_w$ so that it can be added to the integer accumulator; write it after what it is
#   derived from.
# - Fixed: where the output's range is known beforehand, calibration data has no influence.
# - `ComposableQuantizer`: whoever annotates first has priority; replacing an annotation raises, editing one doesn't; it
#   calls neither `validate` nor the callback of the quantizers inside.
# - `set_module_name` and `set_module_type` don't reach a conv and may leave it in fp32. Use a condition of your own,
#   let `get_attr` pass, then check the result.

# %% [markdown] lang="zh"
# ## 試試看：釘住輸入的 scale
#
# 攝影機給的值已知在 [−2, 2]，你想把模型輸入的 scale 釘在 1/64、zero point 釘在 0，其他照
# 舊。`prepare_obs_or_fq_callback` 拿到一個字典，鍵是邊或 node，值是 observer，可以換掉。寫一個子類別做這件事，再看看放
# 進 `ComposableQuantizer` 之後還有沒有效。

# %% [markdown] lang="en"
# ## Try it: pin the input's scale
#
# The camera is known to deliver values in [−2, 2], and you want the model's input to have scale 1/64 and zero point 0,
# everything else as before. `prepare_obs_or_fq_callback` gets a dictionary from edges or nodes to observers, whose
# entries you may replace. Write a subclass that does it, then see whether it still works inside a
# `ComposableQuantizer`.

# %% tags=["solution"]
from torchao.quantization.pt2e import FixedQParamsObserver


class PinnedInput(PTQQuantizer):
    def prepare_obs_or_fq_callback(self, model, observers):
        pinned = FixedQParamsObserver(
            1 / 64, 0, torch.int8, quant_min=-128, quant_max=127
        )
        for key in observers:
            if isinstance(key, tuple) and key[0].op == "placeholder":
                observers[key] = pinned


pins = PinnedInput().set_global(per_channel)
inputs = {}
for name, quantizer in {
    "direct": pins,
    "composed": ComposableQuantizer([pins]),
}.items():
    prepared = prepare_pt2e(export(conv_relu), quantizer)
    inputs[name] = qparams(calibrate_and_convert(prepared))["x"]
print(inputs)
assert inputs["direct"] == (1 / 64, 0), "not pinned"
assert inputs["composed"] != (1 / 64, 0), "the callback was called"

# %% [markdown] lang="zh" tags=["solution"]
# 單獨用有效；放進 `ComposableQuantizer` 就失效，也沒有訊息，因為它不呼叫裡面的 callback。另一個辦法是不靠 callback：在
# 第一個 op 的輸入寫 `FixedQParamsQuantizationSpec`。

# %% [markdown] lang="en" tags=["solution"]
# By itself it works. Inside a `ComposableQuantizer` it has no effect, and no message tells, since the callbacks inside
# aren't called. There is a way without callbacks: write a `FixedQParamsQuantizationSpec` on the input of the first op.

# %% [markdown] lang="zh"
# ## 接下來
#
# quantizer 能說的話，除了動態量化的規格（[M01-3](../m01_first_ptq/3_quantization_config.py)），都看過了。prepare 在問
# quantizer 之前還先做了一件事：把 BatchNorm 折進 conv。[M04](../m04_batchnorm/0_overview.py) 看它怎麼折、何時會折錯。

# %% [markdown] lang="en"
# ## Next
#
# That is all a quantizer can say, dynamic specs apart ([M01-3](../m01_first_ptq/3_quantization_config.py)). Before it
# asks the quantizer, prepare does one more thing: it folds BatchNorm into convolutions.
# [M04](../m04_batchnorm/0_overview.py) shows how, and when that goes wrong.
