# %% [markdown] lang="zh" time_limit=300
# # M08-1 | 兩份 XNNPACKQuantizer
#
# 叫 `XNNPACKQuantizer` 的類別有兩個：executorch 附一份，torchao 也有一份。簡單的模型上，它們給出一模一樣的 Q/DQ 圖，所
# 以用錯了也不會發現，直到哪個 op 沒被量化為止。這一頁用實驗找出兩者的差別，再看三個不出聲的陷阱：dynamic 設定不管
# conv + relu；dynamic 的 scale 在 `.pte` 裡不是 Q/DQ 圖上的那一個；`set_module_name` 讓 conv 留在 fp32。
#
# **讀完你會知道**
#
# - 要做 `.pte` 該 import 哪一份，另一份差在哪裡
# - static 與 dynamic 各量化哪些 op
# - 為什麼 dynamic 量化不能用 Q/DQ 圖的結果代表部署
# - 指名一個 conv 之後，`.pte` 裡執行的是什麼 kernel，怎麼補救

# %% [markdown] lang="en"
# # M08-1 | Two XNNPACKQuantizers
#
# Two classes are called `XNNPACKQuantizer`: one ships with executorch, the other with torchao. On simple models they
# produce the very same Q/DQ graph, so taking the wrong one goes unnoticed until some op isn't quantized. This page
# finds the differences by experiment. Then it looks at three silent traps: conv + relu with a dynamic configuration,
# dynamic scales that aren't those of the Q/DQ graph once you run the `.pte`, and a `set_module_name` that leaves a conv
# in fp32.
#
# **What you will know**
#
# - Which one to import for a `.pte`, and where the other differs
# - Which ops static and dynamic quantization cover
# - Why, for dynamic quantization, results of the Q/DQ graph don't stand for deployment
# - Which kernel the `.pte` runs for a conv you named, and how to mend that

# %% [markdown] lang="zh"
# ## 先預測
#
# 1. 兩份 quantizer 用同樣的設定量化 TinyConvNet，得到的 Q/DQ 圖一樣嗎？
# 2. conv + relu 用 dynamic 設定量化、做成 `.pte`，conv 用 int8 還是 fp32 的 kernel？
# 3. 一個 dynamic 的 linear，一次拿到四列輸入，範圍從 100 到 0.1。對最小的那一列，Q/DQ 圖和 `.pte` 哪個比較準？

# %% [markdown] lang="en"
# ## Predict first
#
# 1. Both quantizers quantize TinyConvNet with the same configuration. Are the two Q/DQ graphs equal?
# 2. conv + relu is quantized with a dynamic configuration and made into a `.pte`. Is the conv's kernel int8 or fp32?
# 3. A dynamic linear gets four rows at once, with ranges from 100 down to 0.1. For the smallest row, which is more
#    accurate, the Q/DQ graph or the `.pte`?

# %% tags=["setup"]
import warnings
from collections import Counter

from common.data import calibration_batches
from common.env import quiet
from common.etdump import xnnpack_kernels
from common.executorch_utils import PteRunner, lower_to_xnnpack
from common.models import example_inputs, get_model, trained_tinyconvnet
from common.pt2e import difference_in_lsb, op_coverage, output_qparams
from common.quantizers import PTQQuantizer
from common.viz import T, graph, table

import torch
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import Quantizer

quiet()
torch.manual_seed(0)

aten = torch.ops.aten
X = example_inputs(1)  # one image, in a tuple
images = [image for (image,) in calibration_batches(8, batch_size=1)]


def prepare(model, quantizer, x=X):
    return prepare_pt2e(torch.export.export(model, x).module(), quantizer)


def calibrate_and_convert(prepared, data):
    with torch.no_grad():
        for one in data:
            prepared(one)
    return convert_pt2e(prepared)


# %% [markdown] lang="zh"
# ## 同名，沒有血緣
#
# 兩份都還 import 得到；更早的教學用的第三個位置，在 `torch.ao` 底下，已經不存在了。

# %% [markdown] lang="en"
# ## One name, two unrelated classes
#
# Both can be imported. The third place, used by older tutorials and found under `torch.ao`, is gone.

# %%
from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
from torchao.testing.pt2e import _xnnpack_quantizer

LIBRARIES = {"executorch": xnnpack_quantizer, "torchao": _xnnpack_quantizer}
ours, theirs = (lib.XNNPACKQuantizer for lib in LIBRARIES.values())
assert ours.__bases__ == theirs.__bases__ == (Quantizer,), "related"

try:
    import torch.ao.quantization.quantizer.xnnpack_quantizer
except ModuleNotFoundError as error:
    print(f"ModuleNotFoundError: {error}")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    theirs()
print(f"{caught[0].category.__name__}: {caught[0].message}")

# %% [markdown] lang="zh"
# 兩個類別唯一的共同點是同樣繼承 `Quantizer`。torchao 那一份放在 `torchao.testing` 底下，供它自己的測試使用，一建立就警
# 告已被棄用。各自的 `get_symmetric_quantization_config` 也回傳不同類別的物件，所以比起來不相等，雖然要的是同樣的整數：

# %% [markdown] lang="en"
# All they have in common is the base class `Quantizer`. torchao's copy lives in `torchao.testing`, for torchao's own
# tests, and warns about its deprecation as soon as you create one. Each has its `get_symmetric_quantization_config`,
# which return objects of different classes. They compare unequal, though they ask for the same integers:


# %%
def config_of(library, **switches):
    get = LIBRARIES[library].get_symmetric_quantization_config
    return get(is_per_channel=True, **switches)


def asks_for(spec):
    kind = spec.observer_or_fake_quant_ctr.p.func
    return kind, spec.dtype, spec.quant_min, spec.quant_max, spec.qscheme


a, b = config_of("executorch"), config_of("torchao")
assert type(a) is not type(b) and a != b, "one class after all"
assert asks_for(a.input_activation) == asks_for(b.input_activation)
assert asks_for(a.weight) == asks_for(b.weight), "other integers for weights"

# %% [markdown] lang="zh"
# ## TinyConvNet 看不出差別
#
# 同一個訓練好的模型、同樣的校準資料，兩份各量化一次：

# %% [markdown] lang="en"
# ## TinyConvNet doesn't tell them apart
#
# The same trained model and the same calibration data, quantized by each of them:


# %%
def make(library):
    """The library's own class, configured as usual."""
    with warnings.catch_warnings():  # we have read the warning above
        warnings.filterwarnings("ignore", message=".* is deprecated!")
        quantizer = LIBRARIES[library].XNNPACKQuantizer()
    return quantizer.set_global(config_of(library))


tiny = trained_tinyconvnet()
graphs = {
    library: calibrate_and_convert(prepare(tiny, make(library)), images)
    for library in LIBRARIES
}
first, second = graphs.values()
assert first.code == second.code, "two different graphs"
assert all(torch.equal(first(x), second(x)) for x in images)

# %% [markdown] lang="zh"
# 預測 1：完全一樣，連程式碼裡的 scale 與 zero point 都相同，輸出逐位元相同。所以「試過了，沒問題」不足以證明選對了。
#
# ## 差別在哪裡
#
# 下面每一列都拿同樣的模型、同樣的寫法問兩份 quantizer：你標註了哪些 op？為了省時間，executorch 那邊換成這門課的
# `PTQQuantizer`，它是 executorch 那份的子類別，標註相同，只省下 QAT 才用得到的搜尋。

# %% [markdown] lang="en"
# Prediction 1: exactly equal, down to the scales and zero points in the generated code, and the outputs agree bit for
# bit. So "I tried it and it worked" doesn't show that you have the right one.
#
# ## Where they differ
#
# Each row below puts one question to both quantizers, with the same model and the same calls: which ops do you
# annotate? To save time, executorch is represented by this course's `PTQQuantizer`. It is a subclass of executorch's
# class that writes the same annotations and skips a search only QAT needs.


# %% tags=["setup"]
class Cat(nn.Module):
    def forward(self, x):
        return torch.cat([x, x.tanh()], dim=1)


def new(library):
    if library == "executorch":
        return PTQQuantizer()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* is deprecated!")
        return theirs()


# %%
OP = aten.conv2d.default
CASES = {  # how it is configured: (model, q = quantizer, s/d = static/dynamic)
    "ConvTranspose2d, static": (
        nn.ConvTranspose2d(3, 8, 3),
        lambda q, s, d: q.set_global(s),
    ),
    "torch.cat, static": (Cat(), lambda q, s, d: q.set_global(s)),
    "Conv2d, dynamic": (nn.Conv2d(3, 8, 3), lambda q, s, d: q.set_global(d)),
    "set_operator_type(aten.conv2d.default, static)": (
        tiny,
        lambda q, s, d: q.set_operator_type(OP, s),
    ),
    "set_global(static).set_filter_function(no_conv)": (
        tiny,
        lambda q, s, d: q.set_global(s).set_filter_function(
            lambda node: node.target != OP
        ),
    ),
    'set_global(dynamic).set_module_name("block", static)': (
        tiny,
        lambda q, s, d: q.set_global(d).set_module_name("block", s),
    ),
    'set_module_name("block.conv2", static)': (
        tiny,
        lambda q, s, d: q.set_module_name("block.conv2", s),
    ),
    'set_module_name("fc", static)': (
        tiny,
        lambda q, s, d: q.set_module_name("fc", s),
    ),
}

# %%
KINDS = {"conv2d", "conv_transpose2d", "linear", "add", "cat"}


def annotated(model, quantizer, x=X):
    """How many ops of each kind `quantizer` annotates."""
    rows = op_coverage(prepare(model.eval(), quantizer, x))
    return dict(Counter(r.op for r in rows if r.is_quantized and r.op in KINDS))


def ask(library, model, configure):
    static, dynamic = (
        config_of(library, is_dynamic=flag) for flag in (False, True)
    )
    try:
        return annotated(model, configure(new(library), static, dynamic))
    except AttributeError as error:
        return type(error).__name__


answers = {
    case: [ask(library, *question) for library in LIBRARIES]
    for case, question in CASES.items()
}

# %% tags=["plot"]
NOTHING = T(zh="**什麼都沒有**", en="**nothing**")


def in_words(answer):
    if isinstance(answer, str):
        return f"`{answer}`"
    return ", ".join(f"{n} {op}" for op, n in answer.items()) or NOTHING


table(
    [[f"`{case}`", *map(in_words, pair)] for case, pair in answers.items()],
    [T(zh="怎麼設定", en="configured as"), "executorch", "torchao"],
    caption=T(
        zh="兩份 quantizer 標註的 op（只列 conv、linear、add、cat）。除了 AttributeError，沒有任何警告。",
        en="Ops the two quantizers annotate (convs, linear, add and cat only). Apart from the AttributeError, there was no warning.",
    ),
)

# %%
differ = [case for case, (mine, other) in answers.items() if mine != other]
assert differ == list(CASES)[:6], f"they differ in {differ}"
assert answers["Conv2d, dynamic"] == [{"conv2d": 1}, {}]
assert answers[list(CASES)[3]] == [{"conv2d": 4}, {}], "set_operator_type"
assert answers[list(CASES)[5]] == [{"add": 1, "linear": 1}, {"linear": 1}]
assert answers['set_module_name("block.conv2", static)'] == [{}, {}]
assert answers['set_module_name("fc", static)'] == [{"linear": 1}] * 2

# %% [markdown] lang="zh"
# 前六列不同。torchao 那一份不認得 `cat`，也不認得單獨的 `ConvTranspose2d`，dynamic 只認 linear；`set_operator_type` 收下
# 設定卻從不使用，全域設定是 dynamic 時，指名的 static 設定也不管用（torchao 0.18.0，`_xnnpack_quantizer.py`）。結論很簡
# 單：**做 `.pte` 就用 executorch 的那一份**，它和 XNNPACK 後端在同一個套件裡。
#
# 最後兩列相同，而且值得注意：兩份的 `set_module_name` 都碰不到 conv，只碰得到 linear。原因、十種寫法的比較與安全的做法
# 在 [M03-3](../m03_quantizer/3_shared_and_derived.py)；這一頁最後看它在 `.pte` 裡的後果。

# %% [markdown] lang="en"
# The first six rows differ. torchao's copy recognizes neither `cat` nor a `ConvTranspose2d` by itself, and as dynamic
# only linear. It accepts `set_operator_type` but never uses it, and under a dynamic global configuration a named static
# one has no effect (torchao 0.18.0, `_xnnpack_quantizer.py`). The conclusion is simple: **for a `.pte`, take the one in
# executorch**, which comes in the same package as the XNNPACK backend.
#
# The last two rows agree, and deserve attention: in both copies `set_module_name` reaches linear but no conv. The
# cause, a comparison of ten ways to call it, and a safe way are in [M03-3](../m03_quantizer/3_shared_and_derived.py).
# What it does to the `.pte` comes at the end of this page.

# %% [markdown] lang="zh"
# ## static 與 dynamic 各管哪些 op
#
# [M01-3](../m01_first_ptq/3_quantization_config.py) 比過兩種設定的規格：static 的 scale 校準時就定好，dynamic 的留到執
# 行時才算，而且只算輸入的，輸出是 fp32。從這裡起只用 executorch 的那一份。它的每個 pattern 都註明支不支援 dynamic；實際
# 問一次：

# %% [markdown] lang="en"
# ## What static and dynamic cover
#
# [M01-3](../m01_first_ptq/3_quantization_config.py) compares the specs of the two: static scales are fixed by
# calibration, dynamic ones are computed at run time, for inputs only, and the output is fp32. From here on, we use
# executorch's quantizer alone. Each of its patterns says whether it supports dynamic; let us ask:


# %%
class Add(nn.Module):
    def forward(self, x):
        return x + x.tanh()


conv, linear = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(16, 8)
PATTERNS = {
    "conv": conv,
    "conv → relu": nn.Sequential(conv, nn.ReLU()),
    "linear": linear,
    "linear → relu": nn.Sequential(linear, nn.ReLU()),
    "add": Add(),
}
STATIC, DYNAMIC = (
    config_of("executorch", is_dynamic=flag) for flag in (False, True)
)
covered = {
    name: [
        bool(annotated(model, PTQQuantizer().set_global(config)))
        for config in (STATIC, DYNAMIC)
    ]
    for name, model in PATTERNS.items()
}

# %% tags=["plot"]
HOW = {True: "int8", False: "**fp32**"}
table(
    [
        [name, *(HOW[is_int8] for is_int8 in row)]
        for name, row in covered.items()
    ],
    [T(zh="模型", en="model"), "static", "dynamic"],
    caption=T(
        zh="executorch 的 XNNPACKQuantizer 標註了 conv、linear 或 add 嗎？",
        en="Does executorch's XNNPACKQuantizer annotate the conv, linear or add?",
    ),
)

# %%
assert all(static for static, _ in covered.values()), "static leaves one out"
only_static = [name for name, (_, dynamic) in covered.items() if not dynamic]
assert only_static == ["conv → relu", "add"], f"fp32: {only_static}"
can_be_dynamic = {p.name for p in ours.SUPPORTED_PATTERNS if p.is_dynamic}
assert can_be_dynamic == {"conv", "conv_transpose", "linear"}, can_be_dynamic

# %% [markdown] lang="zh"
# conv 可以 dynamic，後面接了 relu 卻不行：標註 conv 的程式看到後面是 relu 就讓給 conv + relu 的 pattern，而那個 pattern
# 只支援 static（executorch 1.5.1，`xnnpack_quantizer_utils.py`）。convert 不抱怨，lowering 也不抱怨，得到一個完整的
# `.pte`。裡面執行的是什麼？`xnnpack_kernels`（這門課的，包裝了[概覽](0_overview.py)用過的 ETDump）列出 kernel：

# %% [markdown] lang="en"
# A conv can be dynamic, but not with a relu behind it: the code that annotates a conv leaves it to the pattern conv +
# relu when it sees the relu, and that pattern is static only (executorch 1.5.1, `xnnpack_quantizer_utils.py`). Convert
# doesn't complain, nor does lowering, and you get a complete `.pte`. What does it run? `xnnpack_kernels` (this course's
# wrapper around the ETDump of the [overview](0_overview.py)) lists the kernels:

# %%
conv_relu = get_model("conv_relu")
asked_for = prepare(conv_relu, PTQQuantizer().set_global(DYNAMIC))
not_quantized = calibrate_and_convert(asked_for, images[:1])
_, pte = lower_to_xnnpack(not_quantized, X)
kernels = xnnpack_kernels(pte, X)
print("\n".join(kernels))

with torch.no_grad():
    off = (PteRunner(pte)(X) - conv_relu(*X)).abs().max()
assert off < 1e-5, "not the fp32 result"
assert "Convolution (NHWC, F32) IGEMM" in kernels, "quantized after all"
assert not any("Q" in name for name in kernels), "something is quantized"

# %% [markdown] lang="zh"
# 預測 2：fp32。你要求了量化，得到的是一個名副其實的 fp32 模型。用 dynamic 之前先印一次 `op_coverage`
# （[M01-2](../m01_first_ptq/2_prepare_convert.py)）；conv 網路就用 static。
#
# ## dynamic：Q/DQ 圖不代表部署
#
# 真的量化到的 linear 也有一個意外。Q/DQ 圖上的 `choose_qparams` 對整個輸入算**一個** scale；給它四列範圍懸殊的輸入，再
# 和 `.pte` 比：

# %% [markdown] lang="en"
# Prediction 2: fp32. You asked for quantization and got a perfectly good fp32 model. Before you use dynamic, print
# `op_coverage` once ([M01-2](../m01_first_ptq/2_prepare_convert.py)); for a convolutional network, use static.
#
# ## Dynamic: the Q/DQ graph doesn't stand for deployment
#
# The linear that does get quantized has a surprise, too. In the Q/DQ graph, `choose_qparams` computes **one** scale for
# the whole input. We give it four rows of very different ranges and compare with the `.pte`:

# %%
generator = torch.Generator().manual_seed(0)
sizes = [100, 10, 1, 0.1]
rows = torch.randn(4, 64, generator=generator)
rows = rows / rows.abs().amax(1, keepdim=True) * torch.tensor(sizes)[:, None]
linear = nn.Linear(64, 8, bias=False)  # its output shrinks with its input


def quantize_linear(x):
    prepared = prepare(linear, PTQQuantizer().set_global(DYNAMIC), (x,))
    return calibrate_and_convert(prepared, [x])


four_rows, one_row = quantize_linear(rows), quantize_linear(rows[:1])
_, pte = lower_to_xnnpack(four_rows, rows)

# %% tags=["plot"]
graph(
    four_rows,
    alt=T(
        zh="Q/DQ 圖：輸入分兩路，一路到 choose_qparams 算出 scale 與 zero point，一路到 quantize，再經 dequantize 進 linear；"
        "int8 的 weight 經 dequantize 進 linear；linear 的輸出直接到輸出。",
        en="The Q/DQ graph: the input goes to choose_qparams, which computes scale and zero point, and to quantize and dequantize on its way "
        "into linear; the int8 weight passes dequantize into linear, whose output leaves as it is.",
    ),
    caption=T(
        zh="四列輸入的 Q/DQ 圖：一個 choose_qparams，也就是四列共用一個 scale。",
        en="The Q/DQ graph for four rows: one choose_qparams, so one scale for all four.",
    ),
)

# %%
with torch.no_grad():
    fp32 = linear(rows)
    outputs = {
        "Q/DQ graph": four_rows(rows),
        "`.pte`": PteRunner(pte)(rows),
        "Q/DQ graph, row by row": torch.cat(
            [one_row(r) for r in rows.split(1)]
        ),
    }


def error(y):
    """Largest error in each row, relative to the row's largest output."""
    return ((y - fp32).abs().amax(1) / fp32.abs().amax(1)).tolist()


errors = {name: error(y) for name, y in outputs.items()}
by_row = outputs["Q/DQ graph, row by row"]
apart = (outputs["`.pte`"] - by_row).abs().amax(1) / fp32.abs().amax(1)
chosen = [n.name for n in four_rows.graph.nodes if "choose_qparams" in n.name]
assert len(chosen) == 1, f"not one scale in the Q/DQ graph: {chosen}"
assert apart.max() < 1e-5, "the .pte does not have one scale per row"

# %% tags=["plot"]
table(
    [
        [
            T(zh=f"最大 {s}", en=f"up to {s}"),
            *(f"{errors[n][i]:.2%}" for n in errors),
        ]
        for i, s in enumerate(sizes)
    ],
    [
        T(zh="這一列的輸入", en="inputs of the row"),
        T(zh="Q/DQ 圖", en="Q/DQ graph"),
        "`.pte`",
        T(zh="Q/DQ 圖，一次一列", en="Q/DQ graph, one row at a time"),
    ],
    caption=T(
        zh="對 fp32 的最大誤差，除以這一列最大的輸出。",
        en="Largest error against fp32, divided by the largest output of the row.",
    ),
)

# %%
smallest = {name: of_rows[-1] for name, of_rows in errors.items()}
assert smallest["Q/DQ graph"] > 0.5, "one scale was good enough"
assert max(errors["`.pte`"]) < 0.05, "the .pte has a bad row"

# %% [markdown] lang="zh"
# 預測 3：`.pte`，而且差得遠。共用一個 scale 時，最大的那一列決定一格多寬，最小的那一列全部落進同一格。XNNPACK 卻**一列
# 一個 scale**：它的輸出和「一次一列」的 Q/DQ 圖相符，和四列一起的不符。這裡的輸出是 fp32，沒有 LSB 可數，所以用相對誤
# 差。
#
# 因此 dynamic 的模型在 Q/DQ 圖上量的準確率，只有一次一列時才代表部署；一批一起量，可能低估 `.pte`，也會讓同一張圖片的答
# 案隨同批的其他圖片而變。要評估 dynamic，直接用 `.pte` 評估。

# %% [markdown] lang="en"
# Prediction 3: the `.pte`, by far. With one common scale the largest row decides how wide a step is, and the smallest
# falls into a single step. XNNPACK, however, has **one scale per row**: its output matches the Q/DQ graph run one row
# at a time, not the one that gets all four. (The output is fp32 and has no LSB to count in, hence relative errors.)
#
# So the accuracy of a dynamic model measured on its Q/DQ graph stands for deployment only if it gets one row at a time.
# In batches it may underrate the `.pte`, and the answer for one image depends on the others in its batch. Evaluate a
# dynamic model on the `.pte` itself.

# %% [markdown] lang="zh"
# ## `set_module_name` 在 `.pte` 裡的後果
#
# 回到 static。假設你想讓 `block.conv2` 用 per-tensor 的 weight，其餘照舊，寫了最自然的那一行。看 `.pte` 執行了哪些
# conv：

# %% [markdown] lang="en"
# ## What `set_module_name` does to the `.pte`
#
# Back to static. Suppose you want per-tensor weights in `block.conv2` and everything else as before, and write the most
# natural line. Which convs does the `.pte` run?

# %%
PER_TENSOR = xnnpack_quantizer.get_symmetric_quantization_config()


def with_exception(quantizer):
    quantizer.set_global(STATIC).set_module_name("block.conv2", PER_TENSOR)
    return calibrate_and_convert(prepare(tiny, quantizer), images)


def convs_in(quantized):
    """(convs of the `.pte` by kernel, its distance from the graph in LSB)."""
    _, pte = lower_to_xnnpack(quantized, X)
    run, lsb = PteRunner(pte), output_qparams(quantized).scale
    far = [difference_in_lsb(run(x), quantized(x), lsb).max() for x in images]
    convs = [k for k in xnnpack_kernels(pte, X) if k.startswith("Convolution")]
    return Counter(convs), max(far).item()


named, far = convs_in(with_exception(PTQQuantizer()))
print(dict(named))
print(f"at most {far:.0f} LSB from the Q/DQ graph")
assert sorted(named.values()) == [1, 3], "all four convs look alike"
assert named["Convolution (NHWC, F32) IGEMM"] == 1, "no conv left in fp32"
assert far < 1.5, "the .pte is far from its Q/DQ graph"

# %% [markdown] lang="zh"
# 三個 int8，一個 fp32：`block.conv2` 不是換了設定，而是退出了量化，前後還各多一次轉換。`.pte` 和 Q/DQ 圖仍然相差無幾，
# 因為兩邊一樣沒量化，所以比對 LSB 也抓不到這種錯，要看覆蓋表或 kernel。
#
# [M03-3](../m03_quantizer/3_shared_and_derived.py) 找到了原因：weight 的 `get_attr` node 沒有模組的記錄，過濾條件在它身
# 上就不成立。那裡用自己的過濾函式繞過；也可以補上記錄，讓 `set_module_name` 照字面運作：

# %% [markdown] lang="en"
# Three in int8, one in fp32: `block.conv2` hasn't changed its configuration, it has left quantization, and two more
# conversions surround it. The `.pte` still agrees with the Q/DQ graph, since neither quantizes that conv. Comparing
# LSBs can't catch this mistake; the coverage table or the list of kernels can.
#
# [M03-3](../m03_quantizer/3_shared_and_derived.py) found the cause: the weight's `get_attr` node has no record of its
# module, so the filter rejects it. There we went around it with a filter function of our own; you can also supply the
# missing record and let `set_module_name` mean what it says:


# %%
class NamesReachWeights(PTQQuantizer):
    def transform_for_annotation(self, model):
        model = super().transform_for_annotation(model)
        for node in model.graph.find_nodes(op="get_attr"):
            user = next(iter(node.users), node)
            if stack := user.meta.get("nn_module_stack"):
                node.meta.setdefault("nn_module_stack", stack)
        return model


mended = with_exception(NamesReachWeights())
named, far = convs_in(mended)
print(dict(named))
print(f"at most {far:.0f} LSB from the Q/DQ graph")
assert not any("F32" in kernel for kernel in named), "still a conv in fp32"
assert named["Convolution (NHWC, QS8) IGEMM"] == 1, "conv2 is not per tensor"
assert sum(named.values()) == 4 and far < 1.5, "the .pte is far off"

# %%
reached = {
    name: annotated(tiny, NamesReachWeights().set_module_name(name, STATIC))
    for name in ("block.conv2", "block", "stem_conv", "stem_cnv")
}
for name, ops in reached.items():
    print(f"{name:12} {ops or 'nothing'}")
assert reached["block.conv2"] == {"conv2d": 1}, "conv2 isn't reached"
assert reached["block"] == {"conv2d": 2, "add": 1}, "not all of the block"
assert not reached["stem_conv"], "relu's record doesn't matter any more"
assert not reached["stem_cnv"], "a typo was understood"

# %% [markdown] lang="zh"
# 名稱裡的 QS8 就是 per-tensor 的設定：整個 weight 一個 scale（QC8 是每個輸出 channel 一個）。`block.conv2` 和整個
# `block` 現在指名得到了。`stem_conv` 還是不行：它後面的 relu 屬於另一個模組，而 conv + relu 整組都要符合。打錯的名字一
# 樣沒有訊息。所以無論用哪一種，設定之後都要檢查。
#
# ## 小結
#
# - 兩份 `XNNPACKQuantizer` 沒有血緣；TinyConvNet 上結果相同，六種情形不同。做 `.pte` 用 executorch 的。
# - dynamic 只認 conv、轉置卷積與 linear；conv 後面接 relu 就默默留在 fp32。
# - dynamic 的 `.pte` 一列一個 scale，Q/DQ 圖整個輸入一個：不能用 Q/DQ 圖代表部署。
# - `set_module_name` 讓 conv 在 `.pte` 裡真的用 fp32 kernel；比對 Q/DQ 圖抓不到，看 kernel 才知道。

# %% [markdown] lang="en"
# The QS8 in a name is the per-tensor configuration: one scale for the whole weight (QC8 has one per output channel).
# `block.conv2` and all of `block` can now be named. `stem_conv` still can't: the relu behind it belongs to another
# module, and the whole group conv + relu has to match. A misspelled name still goes without a message. So whichever way
# you choose, check after configuring.
#
# ## Recap
#
# - The two `XNNPACKQuantizer` classes are unrelated; they agree on TinyConvNet and differ in six cases. For a `.pte`,
#   use executorch's.
# - Dynamic knows conv, transposed conv and linear only; with a relu behind it, a conv silently stays in fp32.
# - A dynamic `.pte` has one scale per row, the Q/DQ graph one for the whole input: it doesn't stand for deployment.
# - After `set_module_name`, the `.pte` really runs an fp32 kernel for the conv. Comparing with the Q/DQ graph won't
#   show it; the kernels do.

# %% [markdown] lang="zh"
# ## 試試看：conv 的「一列」是什麼
#
# linear 一列一個 scale。單獨的 conv 也能 dynamic：它的 scale 是整批一個、一張圖片一個，還是一個像素一個？照上面的做法，
# 設計一個分得出來的輸入。

# %% [markdown] lang="en"
# ## Try it: what is a "row" of a conv?
#
# Linear has one scale per row. A conv by itself can be dynamic, too: does it have one scale per batch, per image, or
# per pixel? Along the lines above, make up an input that can tell.

# %% tags=["solution"]
batch = 1000 * torch.randn(2, 3, 16, 16, generator=generator)
batch[1] /= 1000  # with one scale per batch, this image would vanish
batch[0, :, :8] /= 1000  # with one per pixel, the upper half would survive


def quantize_conv(x):
    prepared = prepare(conv, PTQQuantizer().set_global(DYNAMIC), (x,))
    return calibrate_and_convert(prepared, [x])


both, single = quantize_conv(batch), quantize_conv(batch[:1])
_, pte = lower_to_xnnpack(both, batch)
with torch.no_grad():
    y = PteRunner(pte)(batch)
    by_image = torch.cat([single(image) for image in batch.split(1)])

# %% tags=["solution"]
spread = [
    y[0, :, 1:7].flatten(1).std(dim=1).max().item(),  # first, upper half
    y[1].flatten(1).std(dim=1).min().item(),  # second image
]
apart = (y - by_image).abs().amax((1, 2, 3)) / y.abs().amax((1, 2, 3))
print(f"apart from image by image: {apart.max():.1e} of the largest output")
print(f"spread in the upper half of the first image: {spread[0]:.1e}")
print(f"spread in the second image: {spread[1]:.1e}")
assert apart.max() < 1e-5, "not one scale per image"
assert spread[0] < 1e-3, "the upper half survived: a scale per pixel?"
assert spread[1] > 0.1, "the second image vanished: one scale per batch?"

# %% [markdown] lang="zh" tags=["solution"]
# 一張圖片一個。第二張圖片整張只有千分之一大，仍然保留下來，所以不是整批一個；第一張的上半部同樣只有千分之一，卻全部落進
# 同一格，所以也不是一個像素一個。

# %% [markdown] lang="en" tags=["solution"]
# One per image. The second image is a thousand times smaller and still survives, so it isn't one for the batch; the
# upper half of the first is just as small and falls into a single step, so it isn't one per pixel.

# %% [markdown] lang="zh"
# ## 接下來
#
# 選好 quantizer，Q/DQ 圖也檢查過了。[M08-2](2_to_pte.py) 把它做成 `.pte`，再看換 batch、換排列、丟掉 `program` 各會怎
# 樣。

# %% [markdown] lang="en"
# ## Next
#
# The quantizer is chosen and the Q/DQ graph checked. [M08-2](2_to_pte.py) makes it into a `.pte` and shows what happens
# with another batch, another memory layout, or without `program`.
