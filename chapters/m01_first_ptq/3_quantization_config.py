# %% [markdown] lang="zh" time_limit=300
# # M01-3 | per-channel、QAT、dynamic：三個開關各改了什麼
#
# 到目前為止，設定都是 `get_symmetric_quantization_config(is_per_channel=True)`，沒有多問。這個函式有三個開關。這一頁先從它回
# 傳的物件讀出每個開關改了什麼，再看它們在圖上、在準確率上的效果，以及兩種沒有錯誤訊息的錯誤用法。
#
# **讀完你會知道**
#
# - 一份 `QuantizationConfig` 裡有什麼，三個開關各改了哪一格
# - per-channel 什麼時候重要；為什麼 int8 的 TinyConvNet 光看準確率看不出差別
# - 設定和 `prepare_pt2e`、`prepare_qat_pt2e` 配錯時會怎樣
# - dynamic 量化了哪些 op，為什麼還是要先執行一次

# %% [markdown] lang="en"
# # M01-3 | Per-channel, QAT, dynamic: what each switch changes
#
# So far the configuration was `get_symmetric_quantization_config(is_per_channel=True)`, no questions asked. That
# function has three switches. This page first reads off the objects it returns what each of them changes, then looks at
# the effect on the graph and on the accuracy, and at two ways of using them wrong that raise no error.
#
# **What you will know**
#
# - What is in a `QuantizationConfig`, and which entries each switch changes
# - When per-channel matters, and why the accuracy of an int8 TinyConvNet doesn't tell
# - What happens when the configuration doesn't match `prepare_pt2e` or `prepare_qat_pt2e`
# - Which ops dynamic quantization covers, and why it still needs one forward pass

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 什麼開關都不寫，weight 是 per-tensor 還是 per-channel？
# 2. 把 per-channel 換成 per-tensor，int8 的準確率會掉多少？weight 只用 4 位元時呢？
# 3. dynamic 在執行時才決定 activation 的 scale。那麼 convert 之前還需要餵資料嗎？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. With no switch set, are weights quantized per tensor or per channel?
# 2. Going from per-channel to per-tensor, how much accuracy is lost with int8? And with weights of only 4 bits?
# 3. Dynamic quantization chooses the scales of activations at run time. Does anything have to be run before convert?

# %% tags=["setup"]
import copy
import textwrap
import warnings

from common.data import calibration_batches, test_data
from common.env import quiet
from common.models import example_inputs, get_model, trained_tinyconvnet
from common.quantizers import PTQQuantizer
from common.viz import T, graph, say, show, table

import matplotlib.pyplot as plt
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantize_pt2e import (
    convert_pt2e,
    prepare_pt2e,
    prepare_qat_pt2e,
)

quiet()

aten = torch.ops.aten
QUANTIZE = torch.ops.quantized_decomposed.quantize_per_tensor.default

# %% [markdown] lang="zh"
# ## 一份設定就是幾份規格
#
# `QuantizationConfig` 替輸入、輸出、weight、bias 各放一份規格（`QuantizationSpec`）：用哪些整數、對稱與否、per-tensor 或
# per-channel，以及用哪個類別來決定範圍。quantizer 把這些規格抄到它認得的 node 上。直接從物件讀出來：

# %% [markdown] lang="en"
# ## A configuration is a handful of specs
#
# A `QuantizationConfig` holds one spec (`QuantizationSpec`) each for inputs, outputs, weights and biases: which
# integers, symmetric or not, per tensor or per channel, and which class determines the range. The quantizer copies these specs
# onto the nodes it recognizes. Let us read them off the objects:

# %%
calls = {
    "()": {},
    "(is_per_channel=True)": {"is_per_channel": True},
    "(is_qat=True)": {"is_qat": True},
    "(is_dynamic=True)": {"is_dynamic": True},
}


def describe(spec):
    """(scheme, class that determines the range, is it dynamic) of a spec."""
    if spec is None:
        return None
    scheme = str(spec.qscheme).removeprefix("torch.")
    kind = spec.observer_or_fake_quant_ctr.p.func.__name__
    return scheme, kind, spec.is_dynamic


specs = {}
for call, switches in calls.items():
    config = get_symmetric_quantization_config(**switches)
    specs[call] = {
        "input": describe(config.input_activation),
        "output": describe(config.output_activation),
        "weight": describe(config.weight),
        "bias": describe(config.bias),
    }

# %% tags=["plot"]
PARTS = {
    "input": T(zh="輸入", en="input"),
    "output": T(zh="輸出", en="output"),
    "weight": "weight",
    "bias": "bias",
}


def row(call, part):
    spec = specs[call][part]
    if spec is None:
        return [f"`{call}`", PARTS[part], T(zh="沒有", en="none"), "–"]
    scheme, kind, is_dynamic = spec
    scheme += ", dynamic" if is_dynamic else ""
    return [f"`{call}`", PARTS[part], f"`{kind}`", scheme]


table(
    [
        row(call, part)
        for call, parts in specs.items()
        for part in parts
        if call == "()" or parts[part] != specs["()"][part]
    ],
    [
        T(zh="引數", en="arguments"),
        T(zh="規格", en="spec for"),
        T(zh="決定範圍的類別", en="class that determines the range"),
        T(zh="方式", en="scheme"),
    ],
    caption=T(
        zh="get_symmetric_quantization_config 回傳的規格：先是預設的四列，之後每個開關只列和預設不同的。",
        en="The specs that get_symmetric_quantization_config returns: the four of the default first, then for each switch what differs from the default.",
    ),
)

# %% [markdown] lang="zh"
# 預設的 weight 是 **per-tensor**，這是預測 1 的答案；bias 一律沒有規格。`is_per_channel` 只動 weight；`is_qat` 把 observer
# 全部換成 fake quant；`is_dynamic` 讓輸入的 scale 留到執行時才算，並拿掉輸出的規格，因為輸出會是 fp32。

# %% [markdown] lang="en"
# By default weights are **per-tensor**, which answers prediction 1; a bias never has a spec. `is_per_channel` touches
# weights only; `is_qat` replaces all observers with fake quant; `is_dynamic` leaves the scale of the input to run time and
# drops the output's spec, since the output will be fp32.

# %%
per_channel, qat, dynamic = (specs[call] for call in list(calls)[1:])
default = specs["()"]
changed = [part for part in default if per_channel[part] != default[part]]
assert default["weight"][0] == "per_tensor_symmetric", "a new default?"
assert changed == ["weight"], f"is_per_channel changed {changed}"
assert qat["input"][1] == qat["weight"][1] == "FusedMovingAvgObsFakeQuantize"
assert dynamic["input"][2] and dynamic["output"] is None

same_call_twice = [get_symmetric_quantization_config() for _ in range(2)]
assert same_call_twice[0] is same_call_twice[1], "not cached any more"

# %% [markdown] lang="zh"
# 最後一行是個小陷阱：函式有快取，同樣的引數得到**同一個**物件，所以不要去改它的欄位。
#
# ## per-channel：先看 weight
#
# per-tensor 讓整個 weight 共用一個 scale，由絕對值最大的那個數決定；per-channel 讓每個輸出 channel 各有一個。兩者差多少，
# 要看各個 channel 的範圍差多少。下面是折疊 BN 之後的 stem weight。這
# 一頁要量化好幾次，所以用本課程的 `PTQQuantizer`：標註和 `XNNPACKQuantizer` 一樣，只省下 QAT 才用得到的搜尋。

# %% [markdown] lang="en"
# The last line is a small trap: the function caches, and the same arguments give the **same** object, so leave its
# fields alone.
#
# ## Per-channel: weights first
#
# Per-tensor gives a whole weight one scale, set by its largest absolute value; per-channel gives each output channel
# its own. How much that matters depends on how different the channels' ranges are. Here is the stem's weight after BN
# folding. This page quantizes many times and therefore takes the course's `PTQQuantizer`: it writes the annotations of
# `XNNPACKQuantizer` and merely skips a search that only QAT needs.


# %%
def prepare(model, **switches):
    batch = torch.export.Dim("batch", min=1, max=4096)
    example, shapes = (torch.zeros(2, 3, 16, 16),), ({0: batch},)
    program = torch.export.export(model, example, dynamic_shapes=shapes)
    quantizer = PTQQuantizer()  # XNNPACKQuantizer, but quicker: for PTQ only
    quantizer.set_global(get_symmetric_quantization_config(**switches))
    return prepare_pt2e(program.module(), quantizer)


def calibrate(prepared):
    with torch.no_grad():
        for (batch,) in calibration_batches(256):
            prepared(batch)
    return prepared


# %%
model = trained_tinyconvnet()
prepared = prepare(model, is_per_channel=True)
stem = prepared.get_parameter("stem_conv.weight").detach()
ranges = stem.abs().amax(dim=(1, 2, 3)).sort(descending=True).values

half_step = {bits: ranges[0] / (2 ** (bits - 1) - 1) / 2 for bits in (8, 4)}
vanish = {
    bits: (ranges < half).sum().item() for bits, half in half_step.items()
}
assert vanish[8] == 0 < vanish[4], f"channels that vanish: {vanish}"

# %% tags=["plot"]
figure, axes = plt.subplots()
axes.bar(range(len(ranges)), ranges, color="C0", label="max |w| of a channel")
for bits, style in ((4, "--"), (8, ":")):
    text = f"half a step, {bits} bits per tensor"
    axes.axhline(half_step[bits], color="black", linestyle=style, label=text)
axes.set(yscale="log", xlabel="output channel (sorted)", ylabel="max |w|")
axes.set_xticks([])
axes.set_ylim(half_step[8] / 3, ranges[0] * 8)
axes.legend(ncols=1, loc="upper right")
show(
    figure,
    alt=T(
        zh="stem 的 16 個輸出 channel 依最大絕對值由大到小排列的長條圖，縱軸是對數；最大與最小差數十倍。"
        "虛線是 4 位元 per-tensor 的半格，右邊幾根長條整根在它下面；點線是 8 位元的半格，比每根長條都低。",
        en="Bars for the 16 output channels of the stem, sorted by their largest absolute weight, on a logarithmic axis; the first is "
        "dozens of times taller than the last. A dashed line marks half a step of 4 bits per tensor, and several bars on the "
        "right end below it; a dotted line marks half a step of 8 bits, lower than every bar.",
    ),
    caption=T(
        zh="stem weight 每個 channel 的範圍。整根在線下的 channel，per-tensor 量化之後全部變成 0。",
        en="The range of each channel of the stem's weight. A channel that ends below a line is all zeros after per-tensor quantization.",
    ),
)

# %% tags=["setup"]
say(
    T(
        zh=f"最大與最小的 channel 差 {ranges[0] / ranges[-1]:.0f} 倍。用 4 位元 per-tensor，16 個 channel 有 {vanish[4]} 個整個變成 0；"
        f"用 8 位元，一個都沒有消失，但最小的那個 channel 只剩 −{(ranges[-1] / ranges[0] * 127).round():.0f} 到 "
        f"{(ranges[-1] / ranges[0] * 127).round():.0f} 這幾個整數可用。",
        en=f"The widest channel spans {ranges[0] / ranges[-1]:.0f} times the narrowest. With 4 bits per tensor, {vanish[4]} of 16 channels become all zeros. "
        f"With 8 bits none does, but the narrowest has to make do with the integers from −{(ranges[-1] / ranges[0] * 127).round():.0f} to "
        f"{(ranges[-1] / ranges[0] * 127).round():.0f}.",
    )
)

# %% [markdown] lang="zh"
# 接著量化整個模型四次：int8 與 4 位元，per-tensor 與 per-channel。4 位元是借 `weight_qmin`、`weight_qmax` 把整數限制在 −7 到
# 7。先比 weight：conv 與 linear 實際拿到的 weight，和折疊後的 fp32 weight 差多少（相對於 weight 自己的大小）。

# %% [markdown] lang="en"
# Now we quantize the whole model four times: int8 and 4 bits, per tensor and per channel. For 4 bits, `weight_qmin` and
# `weight_qmax` limit the integers to −7 … 7. Weights first: how far is the weight that a convolution or the linear layer
# really receives from the folded fp32 weight, relative to the size of the weight itself?


# %%
def weights_used(gm, x):
    """The weight that each conv and linear receives, by node name."""
    found = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, node):
            if node.target in (aten.conv2d.default, aten.linear.default):
                found[node.name] = self.fetch_args_kwargs_from_env(node)[0][1]
            return super().run_node(node)

    with torch.no_grad():
        Recorder(gm).run(x)
    return found


# %%
FOUR_BITS = {"weight_qmin": -7, "weight_qmax": 7}
variants = {
    "int8 per-tensor": {},
    "int8 per-channel": {"is_per_channel": True},
    "4-bit per-tensor": FOUR_BITS,
    "4-bit per-channel": {"is_per_channel": True, **FOUR_BITS},
}
quantized = {
    name: convert_pt2e(calibrate(prepare(model, **switches)))
    for name, switches in variants.items()
}

# %%
images, labels = test_data()
fp32_weights = weights_used(prepared, images[:2])
weight_error = {}  # name of a variant -> relative error of each weight
for name, gm in quantized.items():
    weight_error[name] = {
        layer: ((w - fp32_weights[layer]).norm() / fp32_weights[layer].norm())
        for layer, w in weights_used(gm, images[:2]).items()
    }

for bits in ("int8", "4-bit"):
    per_tensor = weight_error[f"{bits} per-tensor"]
    per_channel = weight_error[f"{bits} per-channel"]
    gain = {w: per_tensor[w] / per_channel[w] for w in fp32_weights}
    assert gain["conv2d"] > 1.5, f"{bits}: no gain in the stem"
    assert max(gain, key=gain.get) == "conv2d"  # the stem
    assert min(gain, key=gain.get) == "linear"

# %% tags=["plot"]
layers = {
    "conv2d": "stem_conv",
    "conv2d_1": "block.conv1",
    "conv2d_2": "block.conv2",
    "conv2d_3": "head_conv",
    "linear": "fc",
}
rows = []
for node, layer in layers.items():
    by_channel = fp32_weights[node].flatten(1).abs().amax(1)
    errors = [f"{weight_error[name][node]:.2%}" for name in variants]
    rows.append(
        [f"`{layer}`", f"{by_channel.max() / by_channel.min():.1f}×", *errors]
    )
table(
    rows,
    ["weight", T(zh="最寬／最窄", en="widest / narrowest"), *variants],
    caption=T(
        zh="weight 的相對誤差 ‖ŵ − w‖ / ‖w‖。第二欄是最寬與最窄 channel 的範圍之比。",
        en="Relative error of the weights, ‖ŵ − w‖ / ‖w‖. The second column is the ratio of the widest to the narrowest channel.",
    ),
)

# %% [markdown] lang="zh"
# 範圍差最多的 stem，per-channel 省下的誤差也最多；`fc` 的四個輸出 channel 差不多寬，幾乎沒有差別。
#
# ## per-channel：再看輸出
#
# weight 的誤差要傳到輸出才算數。同樣四個模型，比準確率、一致率，以及 logit 平均移動多少。

# %% [markdown] lang="en"
# Per-channel saves most in the stem, whose ranges differ most. The four output channels of `fc` are about equally wide,
# and there it makes next to no difference.
#
# ## Per-channel: then the output
#
# An error in a weight counts only if it reaches the output. For the same four models, we compare accuracy, agreement,
# and how far the logits move on average.


# %%
def compare(gm, logits):
    """(accuracy, agreement with `logits`, mean |difference|) on the test set."""
    with torch.no_grad():
        outputs = torch.cat([gm(part) for part in images.split(100)])
    right = (outputs.argmax(1) == labels).float().mean().item()
    agree = (outputs.argmax(1) == logits.argmax(1)).float().mean().item()
    return right, agree, (outputs - logits).abs().mean().item()


with torch.no_grad():
    fp32_logits = model(images)
fp32_accuracy = compare(model, fp32_logits)[0]
results = {name: compare(gm, fp32_logits) for name, gm in quantized.items()}

# %% tags=["plot"]
HEADER = [
    T(zh="模型", en="model"),
    T(zh="準確率", en="accuracy"),
    T(zh="一致率", en="agreement"),
    T(zh="logit 平均移動", en="mean move of logits"),
]


def result_rows(results):
    return [
        [name, f"{right:.2%}", f"{agree:.2%}", f"{move:.3f}"]
        for name, (right, agree, move) in results.items()
    ]


table(
    [["fp32", f"{fp32_accuracy:.2%}", "–", "–"], *result_rows(results)], HEADER
)

# %%
lost = {name: fp32_accuracy - right for name, (right, *_) in results.items()}
move = {name: move for name, (*_, move) in results.items()}

assert abs(lost["int8 per-tensor"]) < 0.01, "int8 per-tensor loses accuracy"
assert abs(lost["int8 per-channel"]) < 0.01, "int8 per-channel loses accuracy"
assert move["int8 per-tensor"] > 1.5 * move["int8 per-channel"]

assert lost["4-bit per-tensor"] > 0.05, "4 bits per tensor did no harm"
assert lost["4-bit per-channel"] < lost["4-bit per-tensor"] / 3

# %% [markdown] lang="zh"
# 這是預測 2 的答案。只看準確率，int8 的兩列分不出高下；可是 logit 的移動早就不同。為什麼準確率看不出來？因為答案只取決於誰最大。
# 把 fp32 模型第一名領先第二名的差距，和 logit 的移動放在一起看：

# %% [markdown] lang="en"
# That answers prediction 2. By accuracy alone, the two int8 rows can hardly be told apart, but their logits have moved by
# different amounts all along. Why doesn't accuracy show it? The answer depends only on which logit is largest. Let us
# set the fp32 model's lead of the first over the second against the move of the logits:

# %%
first, second = fp32_logits.topk(2, dim=1).values.unbind(1)
lead = (first - second).median().item()
assert lead > 8 * move["int8 per-tensor"], "int8 comes close to the lead"
assert lead < 2 * move["4-bit per-tensor"], "4 bits stay far from the lead"

# %% tags=["setup"]
say(
    T(
        zh=f"半數圖片的領先超過 {lead:.2f}。int8 讓 logit 平均移動 {move['int8 per-tensor']:.3f}（per-tensor）或 {move['int8 per-channel']:.3f}（per-channel），"
        f"都遠小於領先，所以很少翻盤；4 位元 per-tensor 移動 {move['4-bit per-tensor']:.3f}，就常常翻盤了。",
        en=f"On half of the images the lead exceeds {lead:.2f}. int8 moves the logits by {move['int8 per-tensor']:.3f} (per-tensor) or {move['int8 per-channel']:.3f} (per-channel) "
        f"on average. Both are far less than the lead, so the winner rarely changes; 4 bits per tensor move them by {move['4-bit per-tensor']:.3f}, and it often does.",
    )
)

# %% [markdown] lang="zh"
# ## int8 也會需要 per-channel：放大一個 channel
#
# 把 `block.conv1` 一個輸出 channel 放大 32 倍，再把 `block.conv2` 對應的輸入縮小 32 倍。relu 不在乎正的倍數，所以 fp32 的
# 輸出一個位元都沒變；32 是 2 的次方，連捨入都一樣。對 fp32 來說，這是同一個模型。

# %% [markdown] lang="en"
# ## int8 can need per-channel, too: enlarge one channel
#
# Multiply one output channel of `block.conv1` by 32, and divide the matching input of `block.conv2` by 32. ReLU does not
# mind a positive factor, so the fp32 output doesn't change by a single bit (32 is a power of two, so even rounding is
# the same). In fp32 this is one and the same model.


# %%
def rescale(model, factor, channel=0):
    """A copy with one channel between the block's convolutions enlarged."""
    block = (rescaled := copy.deepcopy(model)).block
    with torch.no_grad():
        block.bn1.weight[channel] *= factor
        block.bn1.bias[channel] *= factor
        block.conv2.weight[:, channel] /= factor
    return rescaled


rescaled = rescale(model, 32)
with torch.no_grad():
    assert torch.equal(rescaled(images), fp32_logits), "fp32 changed"

results_32 = {}
for name in ("int8 per-tensor", "int8 per-channel"):
    gm = convert_pt2e(calibrate(prepare(rescaled, **variants[name])))
    results_32[name] = compare(gm, fp32_logits)

lost_32 = {name: fp32_accuracy - r for name, (r, *_) in results_32.items()}
assert lost_32["int8 per-tensor"] > 0.03, "per-tensor did no harm"
assert lost_32["int8 per-channel"] < 0.01, "per-channel did not help"

# %% tags=["plot"]
table(result_rows(results_32), HEADER)

# %% [markdown] lang="zh"
# 一個寬的 channel 佔走整個 scale，其他 channel 都變粗；per-channel 讓它只影響自己。訓練不會管各個 channel 的範圍是否整齊，折疊
# BN 更可能把它們拉開，所以 per-channel 應該是 weight 的起手式。真實模型上的例子見
# [M10](../m10_real_model/0_overview.py)。

# %% [markdown] lang="en"
# One wide channel takes over the scale, and all others become coarse; per-channel confines the damage to itself.
# Training does not keep the ranges of channels tidy, and BN folding may pull them apart further, so per-channel is
# where to start with weights. [M10](../m10_real_model/0_overview.py) has a real model.

# %% [markdown] lang="zh"
# ## QAT：設定與 prepare 要成對
#
# QAT 有自己的設定（`is_qat=True`），也有自己的 prepare（`prepare_qat_pt2e`）。兩者各自獨立，配錯也沒有錯誤訊息。PTQ 的一對前
# 面都看過了，試試其他三種組合，看圖上放了什麼：

# %% [markdown] lang="en"
# ## QAT: configuration and prepare come as a pair
#
# QAT has a configuration of its own (`is_qat=True`) and a prepare of its own (`prepare_qat_pt2e`). Each works without
# the other, and a wrong pair raises no error. PTQ's own pair we have seen; let us try the other three and see what ends
# up in the graph:


# %%
def inserted(prepared):
    """The classes of the modules that prepare inserted."""
    modules = prepared.named_children()
    named = [m for name, m in modules if name.startswith("activation_post")]
    return sorted({type(module).__name__ for module in named})


def pair(prepare_with, is_qat):
    config = get_symmetric_quantization_config(
        is_per_channel=True, is_qat=is_qat
    )
    small = get_model("conv_relu").train()  # QAT exports in train mode
    exported = torch.export.export(small, example_inputs(2)).module()
    quantizer = XNNPACKQuantizer() if is_qat else PTQQuantizer()
    return prepare_with(exported, quantizer.set_global(config))


pairs = {
    "QAT + QAT": pair(prepare_qat_pt2e, is_qat=True),
    "PTQ + QAT": pair(prepare_qat_pt2e, is_qat=False),
    "QAT + PTQ": pair(prepare_pt2e, is_qat=True),
}
found = {name: inserted(gm) for name, gm in pairs.items()}

# %% tags=["plot"]
functions = {
    "QAT + QAT": ("`is_qat=True`", "`prepare_qat_pt2e`"),
    "PTQ + QAT": ("`is_qat=False`", "`prepare_qat_pt2e`"),
    "QAT + PTQ": ("`is_qat=True`", "`prepare_pt2e`"),
}
table(
    [
        [*functions[name], ", ".join(f"`{kind}`" for kind in kinds)]
        for name, kinds in found.items()
    ],
    [
        T(zh="設定", en="configuration"),
        "prepare",
        T(zh="圖上放的", en="inserted"),
    ],
)

# %% [markdown] lang="zh"
# 第二列最傷：圖上只有普通的 observer，**沒有 fake quant**。訓練照跑、loss 照降，其實從頭到尾都是 fp32。第三列勉強能用：fake
# quant 在校準時也看範圍，相當於用移動平均做 PTQ，只是多半不是你要的。`common.pt2e.check_fake_quant`（本課程的，不是
# torchao 的）擋的就是第二列：

# %% [markdown] lang="en"
# The second row is the costly one: plain observers and **no fake quant**. Training runs, the loss goes down, and all of
# it is fp32. The third row works after a fashion: during calibration fake quant watches ranges as well, which amounts
# to PTQ with a moving average, though hardly what you meant. The second row is what `common.pt2e.check_fake_quant` (of
# this course, not of torchao) refuses:

# %%
from common.pt2e import check_fake_quant

assert found["PTQ + QAT"] == ["HistogramObserver", "PerChannelMinMaxObserver"]
for right in ("QAT + QAT", "QAT + PTQ"):
    assert found[right] == ["FusedMovingAvgObsFakeQuantize"], found[right]
    check_fake_quant(pairs[right])
try:
    check_fake_quant(pairs["PTQ + QAT"])
except ValueError as error:
    print(textwrap.fill(f"ValueError: {error}", 78))

# %% [markdown] lang="zh"
# fake quant 是什麼，見 [M02-2](../m02_observers/2_fake_quant.py)；完整的 QAT 在 [M06](../m06_qat/0_overview.py)。
#
# ## dynamic：scale 在執行時才算
#
# dynamic 量化不替 activation 記範圍，而是在圖裡放一個 `choose_qparams`：每次執行都看當下的輸入，算出 scale 與 zero point。先看它在
# TinyConvNet 上管了哪些 op：

# %% [markdown] lang="en"
# [M02-2](../m02_observers/2_fake_quant.py) explains fake quant, and [M06](../m06_qat/0_overview.py) does all of QAT.
#
# ## Dynamic: scales at run time
#
# Dynamic quantization records no range for an activation. Instead, the graph gets a `choose_qparams` that looks at the
# input of every run and computes scale and zero point. First, which ops of TinyConvNet does it cover?

# %%
from common.pt2e import op_coverage

with_dynamic = {"is_per_channel": True, "is_dynamic": True}
prepared_dynamic = prepare(model, **with_dynamic)
covered = [r.node for r in op_coverage(prepared_dynamic) if r.is_quantized]
assert covered == ["conv2d_2", "linear"], f"other ops than before: {covered}"

with torch.no_grad():
    prepared_dynamic(images[:1])  # one image; the next section says why
quantized_dynamic = convert_pt2e(prepared_dynamic)

# %% tags=["plot"]
(linear,) = quantized_dynamic.graph.find_nodes(
    op="call_function", target=aten.linear.default
)
dq = linear.args[0]
q = dq.args[0]
choose = q.args[1].args[0]
graph(
    quantized_dynamic,
    only=["flatten", choose.name, q.name, dq.name, linear.name],
    names=True,
    alt=T(
        zh="flatten 的輸出分兩路：一路到 choose_qparams，算出 scale 與 zero point；一路到 quantize，再經 dequantize 進 linear。"
        "linear 之後沒有 quantize。",
        en="The output of flatten goes two ways: to choose_qparams, which computes scale and zero point, and to quantize and "
        "dequantize on its way into linear. No quantize follows linear.",
    ),
    caption=T(
        zh="dynamic 的 linear：scale 與 zero point 是圖上算出來的值，不是寫死的數字。",
        en="A dynamic linear: scale and zero point are values computed in the graph, not numbers written into it.",
    ),
)

# %% [markdown] lang="zh"
# 五個有 weight 的層，只量化了兩個：`fc` 和 `block.conv2`。這個版本的 quantizer，dynamic 只認 linear 和後面不接
# relu 的 conv；其他的 conv 被跳過，還是不出聲（executorch 1.5.1）。dynamic 適合 linear 佔大宗、輸入範圍變化大的模型，例如語言
# 模型；對 conv 網路，用靜態的。差異在 [M08-1](../m08_executorch/1_two_quantizers.py)。

# %% [markdown] lang="en"
# Of five layers with weights, only two are quantized: `fc` and `block.conv2`. In this version, dynamic covers linear
# layers and those convolutions that no ReLU follows; the others are passed over, silently again (executorch 1.5.1).
# Dynamic quantization suits models that consist mostly of linear layers and whose inputs vary in range, such as language models; for convolutional networks use static. See [M08-1](../m08_executorch/1_two_quantizers.py).

# %% [markdown] lang="zh"
# ### 還是要先執行一次
#
# activation 不用校準，但 **weight 的 observer 也在圖裡**，要執行過才看得到 weight。不執行就 convert，只有一句警告，weight 的 scale
# 全部是預設的 1。執行一次就夠，而且餵什麼都一樣：

# %% [markdown] lang="en"
# ### One forward pass is still needed
#
# Activations need no calibration, but **weights have observers in the graph, too**, and those see their weight only when
# the graph runs. Convert without running it, and there is one warning, and all scales of weights are the default, 1.
# Running once is enough, and it doesn't matter on what:

# %%
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    never_ran = convert_pt2e(prepare(model, **with_dynamic))
for message in dict.fromkeys(str(w.message) for w in caught):
    print("warning:", message)

prepared_on_zeros = prepare(model, **with_dynamic)
with torch.no_grad():
    prepared_on_zeros(torch.zeros(1, 3, 16, 16))
    ran_on_zeros = convert_pt2e(prepared_on_zeros)
    assert torch.equal(ran_on_zeros(images), quantized_dynamic(images))

# %%
accuracies = {
    "never ran": compare(never_ran, fp32_logits)[0],
    "ran on zeros": compare(ran_on_zeros, fp32_logits)[0],
}
assert accuracies["never ran"] < 0.6, "fine without a forward pass"
assert abs(accuracies["ran on zeros"] - fp32_accuracy) < 0.01
print({name: f"{accuracy:.2%}" for name, accuracy in accuracies.items()})

# %% [markdown] lang="zh"
# 這是預測 3 的答案：不需要資料，但需要執行一次。
#
# ## 小結
#
# - 設定就是輸入、輸出、weight、bias 的規格；預設是 per-tensor。
# - per-channel 只改 weight。channel 的範圍差愈多、位元愈少，它愈重要；int8 的小模型光看準確率會看不出來，要看 logit。
# - `is_qat=True` 要配 `prepare_qat_pt2e`；配錯沒有錯誤訊息，最糟的情形是 fp32 訓練。
# - dynamic 在執行時算 scale，只管一部分 op；convert 之前仍要執行一次，讓 weight 的 observer 看到 weight。

# %% [markdown] lang="en"
# That answers prediction 3: no data, but one run.
#
# ## Recap
#
# - A configuration is the specs of inputs, outputs, weights and biases; the default is per-tensor.
# - Per-channel changes weights only. The more the channels' ranges differ, and the fewer the bits, the more it matters;
#   with int8 on a small model accuracy may not show it, so look at the logits.
# - `is_qat=True` goes with `prepare_qat_pt2e`. A wrong pair raises no error; at worst you train in fp32.
# - Dynamic quantization computes scales at run time and covers only some ops; run once before convert all the same, so
#   that the observers of weights see them.

# %% [markdown] lang="zh"
# ## 試試看：per-channel 救不了的
#
# 把放大的倍數從 32 改成 4,096，fp32 的輸出還是一樣。per-channel int8 還撐得住嗎？先猜，再找出原因：提示，看看 `relu_1` 的
# scale，和 `block.conv2` 的第 0 個輸入 channel。

# %% [markdown] lang="en"
# ## Try it: what per-channel cannot save
#
# Make the factor 4,096 instead of 32; the fp32 output is still the same. Does int8 per-channel hold? Guess first, then
# find the reason. A hint: look at the scale of `relu_1`, and at input channel 0 of `block.conv2`.

# %% tags=["solution"]
extreme = rescale(model, 4096)
with torch.no_grad():
    assert torch.equal(extreme(images), fp32_logits), "fp32 changed"
gm = convert_pt2e(calibrate(prepare(extreme, is_per_channel=True)))
accuracy = compare(gm, fp32_logits)[0]

scale = {
    node.args[0].name: node.args[1]
    for node in gm.graph.find_nodes(op="call_function", target=QUANTIZE)
}
with torch.no_grad():
    x = model.relu(model.stem_bn(model.stem_conv(images)))
    relu_1 = model.block.relu(model.block.bn1(model.block.conv1(x)))
others = relu_1[:, 1:].max().item()
conv2 = weights_used(gm, images[:2])["conv2d_2"]
assert others < scale["relu_1"] / 2, "the other channels survive"
assert not conv2[:, 0].any(), "the enlarged channel survives"
assert accuracy < 0.5, "per-channel holds"
print(f"accuracy {accuracy:.2%}")
print(f"half a step of relu_1: {scale['relu_1'] / 2:.2f}")
print(f"largest value in its other channels: {others:.2f}")

# %% [markdown] lang="zh" tags=["solution"]
# 撐不住。per-channel 只分開 weight 的**輸出** channel。activation 仍是 per-tensor：`relu_1` 的一格被放大的 channel 撐得太
# 大，其他 channel 全部變成 0。而放大的那個 channel，在 `block.conv2` 裡對應的是**輸入** channel，縮小後的 weight 和別的輸入共用
# scale，也全部變成 0。兩邊都過不去，輸出就和圖片無關了。

# %% [markdown] lang="en" tags=["solution"]
# It doesn't hold. Per-channel separates only the **output** channels of a weight. Activations are still per-tensor: the
# enlarged channel makes a step of `relu_1` so wide that all other channels become 0. And in `block.conv2` the enlarged
# channel is an **input** channel: its reduced weights share a scale with those of other inputs and become 0 as well. With
# both ways blocked, the output no longer depends on the image.

# %% [markdown] lang="zh"
# ## 接下來
#
# M01 到此結束。規格裡的那些 observer 各自怎麼挑範圍，是 [M02](../m02_observers/0_overview.py) 的主題；自己寫規格與標註，
# 在 [M03](../m03_quantizer/0_overview.py)。

# %% [markdown] lang="en"
# ## Next
#
# This concludes M01. How each of the observers named in a spec picks its range is the subject of
# [M02](../m02_observers/0_overview.py); writing specs and annotations of your own comes in
# [M03](../m03_quantizer/0_overview.py).
