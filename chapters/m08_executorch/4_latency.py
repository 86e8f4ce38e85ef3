# %% [markdown] lang="zh" measures=true time_limit=300
# # M08-4 | 真的變快了嗎：eager、Q/DQ 圖、fp32 `.pte`、int8 `.pte`
#
# [M08-2](2_to_pte.py) 把 Q/DQ 圖變成了 `.pte`，檔案小了。這一頁問最後一個問題：**真的變快了嗎？是什麼讓它變快的？**
# [M07](../m07_backends/0_overview.py) 量的做法都還留在 PyTorch 裡，這裡連 runtime 也換掉。同一個模型，比四種執行方式：
#
# | 執行方式 | 怎麼來的 | 跑的是 |
# | --- | --- | --- |
# | eager fp32 | 原模型 | PyTorch eager：一個 op 一個 op，經過 Python 與 dispatcher |
# | Q/DQ 圖 | `convert_pt2e` 的結果 | 還是 PyTorch eager：fp32 運算，再加上 q/dq |
# | fp32 `.pte` | 原模型不量化，直接 lower | ExecuTorch + XNNPACK 的 fp32 kernel |
# | int8 `.pte` | Q/DQ 圖再 lower（[M08-2](2_to_pte.py)） | ExecuTorch + XNNPACK 的 int8 kernel |
#
# **讀完你會知道**
#
# - 「換 runtime」和「量化」各帶來幾倍，怎麼把兩者分開
# - 怎麼量 latency（延遲），讓結果在忙碌的機器上也可信
# - 看一個倍數的區間，什麼時候能說「變快了」

# %% [markdown] lang="en"
# # M08-4 | Is it really faster? Eager, Q/DQ graph, fp32 `.pte`, int8 `.pte`
#
# [M08-2](2_to_pte.py) turned a Q/DQ graph into a `.pte`, and the file got smaller. One question is left: **is it
# really faster, and what made it so?** What [M07](../m07_backends/0_overview.py) timed stayed inside PyTorch; here the
# runtime changes, too. We run the same model in four ways:
#
# | way to run | where it comes from | what runs |
# | --- | --- | --- |
# | eager fp32 | the original model | PyTorch eager: op by op, through Python and the dispatcher |
# | Q/DQ graph | what `convert_pt2e` returns | PyTorch eager again: fp32 arithmetic, plus q/dq |
# | fp32 `.pte` | the original model, lowered as it is | ExecuTorch with XNNPACK's fp32 kernels |
# | int8 `.pte` | the Q/DQ graph, lowered ([M08-2](2_to_pte.py)) | ExecuTorch with XNNPACK's int8 kernels |
#
# **What you will know**
#
# - How much of a speedup is the new runtime, how much is quantization, and how to tell them apart
# - How to measure latency so that it holds up on a busy machine
# - When a ratio and its interval allow you to say "it got faster"

# %% [markdown] lang="zh"
# ## 先預測
#
# 往下讀之前，先寫下你的答案：
#
# 1. Q/DQ 圖會比 eager 快，還是慢？
# 2. int8 `.pte` 的加速，該和其他三種裡的哪一種比？
# 3. 模型變寬，量化帶來的倍數會變大還是變小？

# %% [markdown] lang="en"
# ## Predict first
#
# Write down your answers before you read on:
#
# 1. Is the Q/DQ graph faster than eager, or slower?
# 2. Which of the other three should the int8 `.pte` be compared with?
# 3. As the model gets wider, does quantization gain more or less?

# %% tags=["setup"]
import os

from common.artifacts import cached
from common.data import calibration_batches
from common.env import capture_stderr, cpu_class, env_summary, set_threads
from common.executorch_utils import PteRunner, lower_to_xnnpack, xnnpack_ptq
from common.latency import (
    compare,
    measure,
    median_us,
    ratios,
    sequential_min,
    spread_us,
)
from common.models import TinyConvNet, example_inputs
from common.pt2e import difference_in_lsb, output_qparams
from common.verdicts import in_words, tell
from common.viz import T, say, show, table

import matplotlib.pyplot as plt
import torch
from executorch.extension.pybindings import portable_lib

# %% [markdown] lang="zh"
# ## 四種執行方式
#
# `width` 是 TinyConvNet 中間層 conv 的 channel 數（`head_conv` 是 2×width）。兩種寬度的輸入都是一張 16×16 的圖，
# 差別只在每層的計算量。做多少運算由 shape 和 kernel 決定，和 weight 的值無關，所以用沒訓練過的模型、32 筆校準資料就夠了。

# %% [markdown] lang="en"
# ## Four ways to run one model
#
# `width` is the number of channels in the middle of TinyConvNet (`head_conv` has twice as many). At both widths the
# input is one 16×16 image; only the work per layer differs. How much there is to compute depends on shapes and kernels,
# not on the values of the weights, so an untrained model and 32 calibration samples will do.

# %%
WIDTHS = [16, 64]
METHODS = ["eager fp32", "Q/DQ graph", "fp32 .pte", "int8 .pte"]
EAGER, QDQ, FP32_PTE, INT8_PTE = METHODS


def four_ways(width):
    """`{method: function}` for one TinyConvNet at batch 1."""
    torch.manual_seed(0)
    model = TinyConvNet(width=width).eval()
    x = example_inputs(1)
    quantized = xnnpack_ptq(model, x, n_calib=32)
    return {
        EAGER: model,
        QDQ: quantized,
        FP32_PTE: PteRunner(lower_to_xnnpack(model, x)[1]),
        INT8_PTE: PteRunner(lower_to_xnnpack(quantized, x)[1]),
    }


# %% [markdown] lang="zh"
# ## 怎麼量
#
# ### 執行緒要一樣多
#
# torch 和 ExecuTorch 各有自己的 thread pool。環境變數 `OMP_NUM_THREADS` 管得到 torch，管不到 ExecuTorch；
# 兩邊的執行緒數不同，比到的就是核心數，不是 kernel。這一頁兩邊都設成一條，下面印出設定之前和之後：

# %% [markdown] lang="en"
# ## How to measure
#
# ### The same number of threads
#
# torch and ExecuTorch have a thread pool each. The environment variable `OMP_NUM_THREADS` reaches torch's but not
# ExecuTorch's; with different numbers, we would compare cores, not kernels. On this page both get one thread. Before and
# after:


# %%
def threads():
    return {
        "torch": torch.get_num_threads(),
        "ExecuTorch": portable_lib._threadpool_get_thread_count(),
    }


with capture_stderr():  # ExecuTorch's C++ looks at the processor and reports it
    print("OMP_NUM_THREADS:", os.environ.get("OMP_NUM_THREADS"), "|", threads())
set_threads(1)  # torch.set_num_threads, portable_lib._unsafe_reset_threadpool
print("set_threads(1):", threads())
assert threads() == {"torch": 1, "ExecuTorch": 1}

# %% [markdown] lang="zh"
# ### 簡單的方法：七輪取最快
#
# 先暖身 20 次，讓快取和記憶體配置就緒；再做 7 輪、每輪 100 次，取最快一輪的平均。
# 別的行程只會讓一輪變慢，不會讓它變快，所以最快的一輪受的干擾最少。`common/latency.py` 的 `sequential_min` 就這樣量：
#
# ```python title="節錄，不能單獨執行"
# rounds = timeit.repeat(lambda: fn(x), timer=clock, number=number, repeat=repeat)
# return min(rounds) / number * 1e6
# ```
#
# 拿這個方法量**一個**函式，很好用。拿來比**兩個**，就多了一個假設：輪到第二個的時候，機器還和剛才一樣快。
# 下面這台假想的機器，在第一個函式剛量完時降到一半的速度。兩個函式真正的倍數是 3。
# （`T(zh=…, en=…)` 是同一句話的兩種語言，`say` 顯示你正在讀的那一種；兩個都是課程自己的工具。）

# %% [markdown] lang="en"
# ### The simple method: the best of seven rounds
#
# Warm up with 20 calls, until caches and memory are in place; then run 7 rounds of 100 calls and take the mean of the
# fastest round. Other processes can only make a round slower, so the fastest one was disturbed least. That is
# `sequential_min` in `common/latency.py`:
#
# ```python title="An excerpt, it does not run by itself"
# rounds = timeit.repeat(lambda: fn(x), timer=clock, number=number, repeat=repeat)
# return min(rounds) / number * 1e6
# ```
#
# For **one** function this works well. To compare **two**, it needs one more assumption: when the second one's turn
# comes, the machine is still as fast as it was. Here is a made-up machine that drops to half its speed just after the
# first function is done. One function really is 3 times as fast as the other. (`T(zh=…, en=…)` holds a sentence in both
# languages and `say` shows it in the one you are reading; both are the course's own helpers.)


# %%
class SlowingMachine:
    """Time passes only while something runs; twice as much after `slow_from`."""

    def __init__(self, slow_from):
        self.now, self.slow_from = 0.0, slow_from

    def takes(self, us):
        def run(x):
            self.now += us * 1e-6 * (2 if self.now >= self.slow_from else 1)

        return run


# 20 + 700 calls of 300 µs take 0.216 s
machine = SlowingMachine(slow_from=0.2161)
before = sequential_min(machine.takes(300), None, clock=lambda: machine.now)
after = sequential_min(machine.takes(100), None, clock=lambda: machine.now)
ratio = before / after
say(
    T(
        zh=f"先後各量一次：{ratio:.2f} 倍",
        en=f"One after the other: {ratio:.2f} times as fast",
    )
)
assert abs(ratio - 1.5) < 0.01

# %% [markdown] lang="zh"
# 兩次量測都很乾淨，七輪之間沒有差異；倍數卻只剩一半，而且從數字上看不出來。
# 筆電降頻、雲端主機的鄰居開始工作，都會造成這種情形。
#
# ### 這一頁的方法：輪流量
#
# 1. 每種方式先暖身 20 次，再挑一個呼叫次數，讓連續呼叫的一段大約 3 ms；一次呼叫就更久的，一段只有一次。
# 2. 做 40 輪：每一輪裡，每種方式各跑一段，順序每輪重新打亂。
# 3. 倍數**在同一輪裡**算：同一輪的各段緊接著跑，機器慢的時候一起慢，相除就消掉了。
# 4. 報 40 個倍數的中位數和 95% 區間（bootstrap：從 40 輪裡一再重複抽出 40 輪，看中位數會移動多少）。
#
# 核心只有四行，在 `common/latency.py` 的 `measure` 裡。`measure` 和 `sequential_min` 都在
# `torch.no_grad()` 裡計時，eager 不必為反向傳播記錄什麼：
#
# ```python title="節錄，不能單獨執行"
# for _ in range(rounds):
#     rng.shuffle(order)
#     for name in order:
#         times[name].append(block_s(name, calls[name]) / calls[name] * 1e6)
# ```
#
# 同樣是量到一半降速的機器，這次輪流量：

# %% [markdown] lang="en"
# Both measurements looked clean, with no difference between the seven rounds. Yet the ratio came out at half its true
# value, and nothing in the numbers gives that away. A laptop that lowers its clock is such a machine, and so is a cloud
# machine whose neighbor wakes up.
#
# ### This page's method: take turns
#
# 1. Each way warms up with 20 calls; then we pick how many calls in a row take about 3 ms: a block. Where a single call
#    takes longer, a block is one call.
# 2. There are 40 rounds. In each, every way runs one block, in an order that is shuffled anew.
# 3. Ratios are taken **within a round**: its blocks run right after one another, so a slow machine slows them all, and
#    that cancels out.
# 4. We report the median of the 40 ratios and its 95% interval (bootstrap: draw 40 of the rounds again and again, with
#    repetition, and see how far the median moves).
#
# The heart of it is four lines of `measure` in `common/latency.py`. Both `measure` and `sequential_min` time inside
# `torch.no_grad()`, so eager records nothing for a backward pass:
#
# ```python title="An excerpt, it does not run by itself"
# for _ in range(rounds):
#     rng.shuffle(order)
#     for name in order:
#         times[name].append(block_s(name, calls[name]) / calls[name] * 1e6)
# ```
#
# Again the machine slows down halfway, but this time the functions take turns:

# %%
machine = SlowingMachine(slow_from=0.12)
functions = {"before": machine.takes(300), "after": machine.takes(100)}
rounds = measure(functions, None, clock=lambda: machine.now)
found = compare(rounds["before"], rounds["after"])
ends = f"{min(rounds['after']):.0f}–{max(rounds['after']):.0f} µs"
say(
    T(
        zh=f"輪流量：{found.ratio:.2f} 倍；較快的函式，一次呼叫 {ends}",
        en=f"Taking turns: {found.ratio:.2f} times as fast; a call of the fast one takes {ends}",
    )
)
assert abs(found.ratio - 3) < 0.01

# %% [markdown] lang="zh"
# 呼叫的時間變成兩倍，倍數沒有動。
#
# !!! note "輪流量也有代價"
#     輪到自己之前，資料可能已經被別人擠出快取，所以時間會比「從頭到尾只跑它一個」長一些（這是推測，沒有量到）。
#     另外，區間只涵蓋**這一次**量測裡的雜訊；明天再量、換一台機器量，都不保證還在裡面。

# %% [markdown] lang="en"
# The time of a call doubled; the ratio stayed.
#
# !!! note "Taking turns has its price"
#     By the time its turn comes, a function's data may have been pushed out of the caches, so it may take a little longer
#     than one that has the machine to itself (our inference, not measured). And the interval covers the noise within
#     **this** measurement only: it promises nothing about tomorrow or about another machine.

# %% [markdown] lang="zh"
# ## A. batch 1 的 latency
#
# 算錯的程式也可以很快，所以計時之前先對答案：每個 `.pte` 和它的來源比，fp32 `.pte` 對 eager，int8 `.pte` 對 Q/DQ 圖。
# 單位是 LSB，也就是輸出量化的一格：

# %% [markdown] lang="en"
# ## A. Latency at batch 1
#
# A wrong program can be fast, too, so before we time anything we compare answers: each `.pte` with what it was made
# from, the fp32 `.pte` with eager and the int8 `.pte` with the Q/DQ graph. The unit is the LSB, one step of the output's
# quantization:


# %%
def steps_off(ways):
    """For each .pte: largest difference in LSB, share of outputs a step off."""
    lsb = output_qparams(ways[QDQ]).scale
    images = [image for (image,) in calibration_batches(64, batch_size=1)]
    found = {}
    for pte, reference in {FP32_PTE: EAGER, INT8_PTE: QDQ}.items():
        with torch.no_grad():
            pairs = [(ways[pte](x), ways[reference](x)) for x in images]
        off = torch.cat(
            [difference_in_lsb(got, expected, lsb) for got, expected in pairs]
        )
        found[pte] = [off.max().item(), (off > 0.5).double().mean().item()]
    return found


# %% [markdown] lang="zh"
# 兩種寬度、四種方式，一共八個，對完答案就全部放進同樣的 40 輪；簡單的方法也量一次，放在旁邊比。
# `cached` 是課程的工具：函式第一次執行時把結果存檔，之後讀檔；程式或套件版本變了才重做，加上 `measurement=True`，
# 換了 CPU 種類也會重做。

# %% [markdown] lang="en"
# Two widths and four ways make eight. Once their answers are compared, all of them take turns in the same 40 rounds; the
# simple method times them once, too. `cached`, a helper of the course, stores what the function returns on its first
# run and reads it back later. The function runs again when its code or a library's version changes and, with
# `measurement=True`, also on another class of CPU.


# %%
def at(method, width):
    return f"{method}, width {width}"


def measure_all():
    set_threads(1)
    (x,) = example_inputs(1)
    fns, off, parameters = {}, {}, {}
    for width in WIDTHS:
        ways = four_ways(width)
        fns |= {at(method, width): fn for method, fn in ways.items()}
        off |= {at(pte, width): steps for pte, steps in steps_off(ways).items()}
        weights = ways[EAGER].parameters()
        parameters[at(EAGER, width)] = sum(weight.numel() for weight in weights)
    return {
        "widths": WIDTHS,
        "parameters": parameters,
        "steps_off": off,
        "environment": f"{env_summary()}\n{cpu_class()}",
        "threads": threads(),
        "rounds_us": measure(fns, x),
        "simple_us": {name: sequential_min(fn, x) for name, fn in fns.items()},
    }


results = cached("m08_4_latency", measure_all, measurement=True)
print(results["environment"])
print("threads:", results["threads"])

# %% [markdown] lang="zh"
# 原始的數字存了起來，改這一頁的文字不會重新量一次；上面印的是**量測當時**的環境。先看輸出對不對：

# %% [markdown] lang="en"
# The raw numbers are stored, so that editing this page's text does not measure again; what is printed above is the
# environment **of the measurement**. Are the outputs right?

# %%
rows = []
for width in WIDTHS:
    for pte, reference in {FP32_PTE: EAGER, INT8_PTE: QDQ}.items():
        largest, share = results["steps_off"][at(pte, width)]
        allowed = 0.01 if pte == FP32_PTE else 1.5
        assert largest < allowed, (
            f"{pte} doesn't compute what {reference} computes"
        )
        rows.append(
            [f"{pte}, width={width}", round(largest, 4), f"{share:.1%}"]
        )
table(
    rows,
    [
        "",
        T(zh="最大差距（LSB）", en="largest difference (LSB)"),
        T(zh="差一格的輸出", en="outputs a step off"),
    ],
)

# %% [markdown] lang="zh"
# fp32 `.pte` 和 eager 只差在浮點數的捨入；int8 `.pte` 和 Q/DQ 圖最多差一格，原因在 [M08-2](2_to_pte.py)。
# 四種方式做的是同一件事，可以比時間了：

# %% [markdown] lang="en"
# The fp32 `.pte` and eager differ by floating-point rounding only; the int8 `.pte` is at most one step from its Q/DQ
# graph, for reasons that [M08-2](2_to_pte.py) gives. All four do the same job, so now we compare times:

# %% tags=["plot"]
NAMES = {
    EAGER: EAGER,
    QDQ: T(zh="Q/DQ 圖", en=QDQ),
    FP32_PTE: "fp32 `.pte`",
    INT8_PTE: "int8 `.pte`",
}
header = [T(zh="µs，越小越快", en="µs, lower is faster")]
for width in WIDTHS:
    n = results["parameters"][at(EAGER, width)]
    header.append(
        T(
            zh=f"width={width}（{n:,} 個參數）",
            en=f"width={width} ({n:,} parameters)",
        )
    )
    header.append(T(zh="七輪取最快", en="best of seven"))
rows = []
for method, name in NAMES.items():
    row = [name]
    for width in WIDTHS:
        us = results["rounds_us"][at(method, width)]
        low, high = spread_us(us)
        row.append(
            f"{median_us(us):.1f} [{low:.1f},\N{NO-BREAK SPACE}{high:.1f}]"
        )
        row.append(f"{results['simple_us'][at(method, width)]:.1f}")
    rows.append(row)
table(
    rows,
    header,
    caption=T(
        zh="一次呼叫的 latency：40 輪的中位數 [第 10、第 90 百分位數]，右邊一欄是簡單方法的結果。",
        en="Latency of one call: median of 40 rounds [10th, 90th percentile], and in the column to its right the simple "
        "method's result.",
    ),
)

# %% tags=["plot"]
figure, axes = plt.subplots(figsize=(6.4, 3.0))
for number, (width, marker) in enumerate(zip(WIDTHS, "os", strict=True)):
    rounds_us = [results["rounds_us"][at(method, width)] for method in METHODS]
    medians, spreads = (
        [median_us(us) for us in rounds_us],
        [spread_us(us) for us in rounds_us],
    )
    y = [row + 0.3 * (number - 0.5) for row in range(len(METHODS))]
    axes.hlines(
        y,
        *zip(*spreads, strict=True),
        color=f"C{number}",
        linewidth=4,
        alpha=0.4,
    )
    axes.plot(medians, y, marker, color=f"C{number}", label=f"width={width}")
    for us, (_, high), row in zip(medians, spreads, y, strict=True):
        axes.annotate(
            f"{us:.0f}",
            (high, row),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
axes.set_xscale("log")
axes.set_xlim(right=axes.get_xlim()[1] * 1.4)
axes.xaxis.set_major_locator(plt.LogLocator(subs=(1, 2, 5)))
axes.xaxis.set_major_formatter(lambda us, _: f"{us:g}")
axes.set_yticks(range(len(METHODS)), METHODS)
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
axes.set_xlabel("latency at batch 1 (µs, log scale, lower is faster)")
axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)

ranks = []
for width in WIDTHS:
    us = {
        method: median_us(results["rounds_us"][at(method, width)])
        for method in METHODS
    }
    ranks.append(
        f"width {width}: "
        + ", ".join(
            f"{method} {us[method]:.0f}" for method in sorted(us, key=us.get)
        )
    )
ranked = "; ".join(ranks)
show(
    figure,
    alt=T(
        zh=f"四種執行方式在兩種寬度下的 latency，單位 µs，由快到慢。{ranked}",
        en=f"Latency of the four ways to run at two widths, in µs, fastest first. {ranked}",
    ),
    caption=T(
        zh="點是中位數，橫條是第 10 到第 90 百分位數。橫軸取對數，所以同樣的距離就是同樣的倍數。",
        en="Dots: medians; bars: 10th to 90th percentile. The axis is logarithmic, so equal distances are equal ratios.",
    ),
)

# %% [markdown] lang="zh"
# **這些 µs 不只是模型的時間**：量測時，機器上別的工作若也占用 CPU，它們造成的等待全算在裡面。可信的是倍數，
# 不是 µs；倍數也不是拿兩個中位數相除，是在同一輪裡算的。
#
# 每種寬度的兩欄本來就不會相等：一欄取**中間**的一輪，一欄取**最快**的一輪。更要緊的是，簡單的方法在另一個時刻量，
# 當時的機器可能比較閒，也可能比較忙；它的缺點就在這裡：連它自己的各列，也是一個量完才量下一個。
#
# ## B. 收益分兩段：換 runtime、再量化
#
# 從原模型到部署檔，一共換了兩樣東西。fp32 `.pte` 站在中間，把它們分開：
#
# | | 從 | 到 | 換了什麼 |
# | --- | --- | --- | --- |
# | 換 runtime | eager fp32 | fp32 `.pte` | 執行的程式；數值格式不變 |
# | 量化 | fp32 `.pte` | int8 `.pte` | 數值格式；runtime 不變 |
# | 對照 | eager fp32 | Q/DQ 圖 | 加上 q/dq；runtime 不變，也沒有 int8 kernel |

# %% [markdown] lang="en"
# **These µs are not the model's time alone**: where other work used the machine's CPU as well, the waiting it
# caused is included. What holds up is the ratios, not the µs; and those aren't one median divided by another, they are taken
# within a round.
#
# A width's two columns aren't meant to be equal: one is the **middle** round, the other the **fastest**. More important,
# the simple method ran at another moment, when the machine may have been less busy or busier. That is its flaw: even
# its own rows were timed one after the other.
#
# ## B. Two gains: a new runtime, then quantization
#
# Between the original model and the file we deploy, two things change. The fp32 `.pte` stands in the middle and tells
# them apart:
#
# | | from | to | what changes |
# | --- | --- | --- | --- |
# | runtime | eager fp32 | fp32 `.pte` | the program that runs; the number format stays |
# | quantization | fp32 `.pte` | int8 `.pte` | the number format; the runtime stays |
# | control | eager fp32 | Q/DQ graph | q/dq are added; same runtime, and no int8 kernel |

# %%
STEPS = {
    "runtime": (EAGER, FP32_PTE),
    "quantization": (FP32_PTE, INT8_PTE),
    "control": (EAGER, QDQ),
}


def change(results, step, width):
    """How many times as fast: the ratio within each round, median and interval."""
    before, after = STEPS[step]
    rounds = results["rounds_us"]
    return compare(rounds[at(before, width)], rounds[at(after, width)])


def simple_ratio(results, step, width):
    """The same from the simple method: one number, no interval."""
    before, after = STEPS[step]
    return (
        results["simple_us"][at(before, width)]
        / results["simple_us"][at(after, width)]
    )


# %% tags=["plot"]
def without_interval(ratio):
    if ratio < 1:
        return T(
            zh=f"慢，時間是 {1 / ratio:.2f} 倍",
            en=f"takes {1 / ratio:.2f}× as long",
        )
    return T(zh=f"快，{ratio:.2f} 倍", en=f"{ratio:.2f}× as fast")


rows = []
for width in WIDTHS:
    rows.append(
        [f"width={width}"]
        + [in_words(change(results, step, width)) for step in STEPS]
    )
    simple = [
        without_interval(simple_ratio(results, step, width)) for step in STEPS
    ]
    rows.append(
        [
            T(
                zh=f"width={width}，七輪取最快",
                en=f"width={width}, best of seven",
            ),
            *simple,
        ]
    )
table(
    rows,
    [
        "",
        T(zh="換 runtime", en="runtime"),
        T(zh="量化", en="quantization"),
        T(zh="對照：加上 q/dq", en="control: q/dq added"),
    ],
    caption=T(
        zh="倍數的中位數 [95% 區間]。「快，n 倍」指速度，「時間是 n 倍」指一次呼叫的時間。"
        "簡單方法的兩列是時間相除，沒有區間。",
        en="Median of the ratios [95% interval]: “as fast” is about speed, “as long” about the time of a call. The simple "
        "method's two rows are times divided, without an interval.",
    ),
)

# %% [markdown] lang="zh"
# 這些數字只屬於那個環境，下面的句子也是：它們由程式照區間挑出來，每種結果都事先寫好了一句，`tell` 把判斷相同的
# 寬度併成一句。規則照順序看：
#
# 1. 整個區間都在 1 的 5% 之內：打平。
# 2. 不然，整個區間在 1 的同一邊：快，或者慢。
# 3. 再不然，區間跨過 1：說不準，不下結論。

# %% [markdown] lang="en"
# These numbers belong to that environment, and so do the sentences below: code picks them by the intervals, and one is
# written for every outcome; `tell` puts widths with the same verdict into one sentence. The rules, in this order:
#
# 1. The whole interval is within 5% of 1: a tie.
# 2. Else, the whole interval lies on one side of 1: faster, or slower.
# 3. Else, the interval contains 1: unclear, no claim.


# %% tags=["plot"]
def conclusions(results):
    """What these results allow us to say; the same results, the same sentences."""
    if len(set(results["threads"].values())) > 1:
        counts = ", ".join(
            f"{runtime} {count}"
            for runtime, count in results["threads"].items()
        )
        return [
            T(
                zh=f"**這次不能比**：兩邊的執行緒數不同（{counts}），倍數裡混著核心數。",
                en=f"**No comparison**: the thread counts differ ({counts}), so cores would be compared as well.",
            )
        ]
    return [
        *about_steps(results),
        *about_width(results),
        *about_methods(results),
    ]


def about_steps(results):
    """For each step, what its verdicts allow to say."""
    eager, qdq = T(zh="eager", en="eager"), T(zh="Q/DQ 圖", en="the Q/DQ graph")
    fp32, int8 = (
        T(zh="fp32 `.pte`", en="the fp32 `.pte`"),
        T(zh="int8 `.pte`", en="the int8 `.pte`"),
    )
    names = {
        "runtime": (T(zh="換 runtime", en="Runtime"), fp32, eager),
        "quantization": (T(zh="量化", en="Quantization"), int8, fp32),
        "control": (T(zh="對照", en="Control"), qdq, eager),
    }
    remarks = {
        "runtime": {
            "faster": T(
                zh="這時什麼都還沒量化。", en="Nothing is quantized yet."
            ),
            "slower": T(
                zh="在這裡，換 runtime 是代價，不是收益。",
                en="Here the new runtime costs time.",
            ),
        },
        "quantization": {
            "slower": T(
                zh="int8 kernel 的快慢，要看 CPU 有哪些指令集（這是推測，沒有量到）。",
                en="How fast int8 kernels are depends on the CPU's instruction sets (our inference, not measured).",
            )
        },
        "control": {
            "slower": T(
                zh="它仍是 fp32 運算，還多了 q/dq。",
                en="It still computes in fp32, with q/dq on top.",
            ),
            "faster": T(
                zh="這不尋常：它仍是 fp32 運算，還多了 q/dq。先找出原因，再相信數字。",
                en="That is odd, as it computes in fp32 with q/dq on top: find the reason before you trust the number.",
            ),
        },
    }
    said = []
    for step, (name, after, before) in names.items():
        founds = {
            f"width {width}": change(results, step, width)
            for width in results["widths"]
        }
        said += tell(name, after, before, founds, remarks[step])
    return said


def about_width(results):
    """What widening the model does to eager, and to the gain of quantization."""
    small, large = results["widths"]
    rounds, parameters = results["rounds_us"], results["parameters"]
    more = parameters[at(EAGER, large)] / parameters[at(EAGER, small)]
    longer = compare(rounds[at(EAGER, large)], rounds[at(EAGER, small)]).ratio
    if longer <= 2:
        eager = T(
            zh="只變成 {longer} 倍，慢得很少：時間大多花在一個個 op 的呼叫上，不在計算",
            en="only {longer} times as long: most of the time goes into calling ops one by one, not into arithmetic",
        )
    elif longer < more / 2:
        eager = T(
            zh="變成 {longer} 倍，增加得比參數少：有一部分時間不隨模型變大，例如一個個 op 的呼叫",
            en="{longer} times as long, growing less than proportionally: a part of the time does not grow with the "
            "model, such as calling ops one by one",
        )
    else:
        eager = T(
            zh="也變成 {longer} 倍，差不多同步：時間大多花在計算上",
            en="{longer} times as long, nearly in step: most of the time goes into arithmetic",
        )
    said = [
        T(
            zh="**模型變寬時，eager**：參數變成 {more} 倍，時間{eager}（這是推測，沒有量到）。",
            en="**Eager, wider**: {more} times the parameters take {eager} (our inference, not measured).",
        ).format(more=f"{more:.1f}", eager=eager.format(longer=f"{longer:.1f}"))
    ]

    if all(
        change(results, "quantization", width).verdict != "faster"
        for width in (small, large)
    ):
        return said  # no gain that could grow
    gains = {
        w: ratios(rounds[at(FP32_PTE, w)], rounds[at(INT8_PTE, w)])
        for w in (small, large)
    }
    growth = compare(gains[large], gains[small])
    interval = f"[{growth.low:.2f},\N{NO-BREAK SPACE}{growth.high:.2f}]"
    sentence = {
        "faster": T(
            zh="**模型變寬時，量化**：倍數變大，變成原來的 {ratio} 倍 {interval}。"
            "模型小的時候，呼叫和出入口的 fp32 ↔ int8 轉換占的比例高（這是推測，沒有量到，而且只有兩種寬度）。",
            en="**Quantization, wider**: its gain grows, to {ratio} times what it was {interval}. In a small model, calls and "
            "the fp32 ↔ int8 conversions at both ends weigh more (our inference, not measured, and from two widths only).",
        ),
        "slower": T(
            zh="**模型變寬時，量化**：倍數變小，變成原來的 {ratio} 倍 {interval}。",
            en="**Quantization, wider**: its gain shrinks, to {ratio} times what it was {interval}.",
        ),
        "tie": T(
            zh="**模型變寬時，量化**：倍數不隨寬度改變，是原來的 {ratio} 倍 {interval}。",
            en="**Quantization, wider**: its gain does not change with the width, it is {ratio} times what it was "
            "{interval}.",
        ),
        "unclear": T(
            zh="**模型變寬時，量化**：看不出倍數有沒有變，是原來的 {ratio} 倍 {interval}，區間跨過 1。",
            en="**Quantization, wider**: whether its gain changes can't be told: it is {ratio} times what it was "
            "{interval}, and the interval contains 1.",
        ),
    }[growth.verdict]
    return [
        *said,
        sentence.format(ratio=f"{growth.ratio:.2f}", interval=interval),
    ]


def about_methods(results):
    """How quiet the machine was, how many of the simple method's ratios lie outside the intervals, the farthest one."""
    pairs = [
        (simple_ratio(results, s, w), change(results, s, w))
        for w in results["widths"]
        for s in STEPS
    ]
    outside = sum(
        not found.low <= simple <= found.high for simple, found in pairs
    )
    simple, found = max(
        pairs, key=lambda p: max(p[0] / p[1].ratio, p[1].ratio / p[0])
    )
    spread = max(
        high / low
        for low, high in map(spread_us, results["rounds_us"].values())
    )
    start = T(
        zh="**兩種量法**：八個裡面時間最不穩的一個，第 90 百分位數是第 10 的 {spread} 倍。",
        en="**The two methods**: for the noisiest of the eight, the 90th percentile is {spread} times the 10th. ",
    ).format(spread=f"{spread:.1f}")
    if outside == 0:
        sentence = T(
            zh="{start}七輪取最快的 {n} 個倍數，全都落在區間裡。",
            en="{start}All {n} ratios from the best of seven lie inside the intervals.",
        )
    else:
        sentence = T(
            zh="{start}七輪取最快的 {n} 個倍數，有 {outside} 個落在區間外；差最多的一個說「{simple}」，輪流量是「{found}」。"
            "它用到的兩個時間來自不同的時刻。",
            en="{start}Of {n} ratios from the best of seven, {outside} lie outside the intervals; the one farthest off says "
            "“{simple}” where taking turns says “{found}”. Its two times come from different moments.",
        )
    values = {
        "n": len(pairs),
        "outside": outside,
        "simple": without_interval(simple),
        "found": in_words(found),
    }
    return [sentence.format(start=start, **values)]


# %%
say(conclusions(results))

# %% [markdown] lang="zh"
# 對一下你的預測：第 1 題看「對照」，第 3 題看「模型變寬時，量化」。第 2 題不必量就有答案，**int8 的基準是同一個
# runtime 的 fp32**，不是 PyTorch eager（[M07 概覽](../m07_backends/0_overview.py)〈速度的基準〉）。拿 int8 `.pte` 直接
# 和 eager 比，兩段的倍數會乘在一起，全算到量化頭上。
#
# 「換 runtime」也不只換了一件事，我們量到的是它們的總和：
#
# - kernel 換了：PyTorch 的換成 XNNPACK 的；
# - 呼叫少了：整張圖一次交給 XNNPACK，不再一個個 op 經過 Python 與 dispatcher；
# - BatchNorm 不見了：eager 把 conv 和 BatchNorm 分開算，lowering 把它折進 conv（讀 executorch 1.5.1 的
#   `backends/xnnpack/_passes/fuse_batch_norm.py`）。

# %% [markdown] lang="en"
# Check your predictions: for 1, read "Control"; for 3, "Quantization, wider". The answer to 2 needs no measurement:
# **int8 is compared with fp32 in the same runtime**, not with PyTorch eager ("The baseline of speed" in the
# [M07 overview](../m07_backends/0_overview.py)). Set the int8 `.pte` against eager, and the two factors multiply, with
# quantization taking the credit for both.
#
# The new runtime isn't one change either; what we measured is the sum of:
#
# - other kernels: XNNPACK's instead of PyTorch's;
# - fewer calls: XNNPACK gets the whole graph at once, instead of op by op through Python and the dispatcher;
# - no BatchNorm: lowering folds it into the convolutions (read in executorch 1.5.1,
#   `backends/xnnpack/_passes/fuse_batch_norm.py`), while eager computes convolution and BatchNorm separately.

# %% [markdown] lang="zh"
# ## 小結
#
# - **Q/DQ 圖不是為了快**：它在 PyTorch 裡做 fp32 運算，還多了 q/dq。要有後端換上 int8 kernel，才談得上加速。
# - **int8 `.pte` 和 fp32 `.pte` 比**：runtime 相同，只差數值格式。
# - **倍數在同一輪裡算，而且帶著區間**：執行緒一樣多、輪流量、打亂順序；區間跨過 1，就不說快。
# - 這裡的模型很小。真正的收益，要用自己的模型、在目標裝置上量。

# %% [markdown] lang="en"
# ## Recap
#
# - **A Q/DQ graph isn't made for speed**: it computes in fp32 inside PyTorch, with q/dq on top. Any speedup needs a
#   backend that puts int8 kernels in its place.
# - **Compare the int8 `.pte` with the fp32 `.pte`**: same runtime, only the number format differs.
# - **Take ratios within a round, and keep their interval**: the same number of threads, taking turns, in shuffled order;
#   when the interval contains 1, don't say faster.
# - The models here are small. The gain that matters is that of your own model, measured on the target device.

# %% [markdown] lang="zh"
# ## 動手試試：對照組也換了兩件事
#
# 這一頁一直說一次只換一件事，對照組自己卻沒做到。從 eager 到 Q/DQ 圖，除了加上 q/dq，
# 模型也從 `nn.Module` 變成了 `torch.export` 的圖。
#
# 加一種執行方式，把這兩件事分開，用 `measure` 和 `compare` 量出各是幾倍。先預測：慢的主要是哪一段？

# %% [markdown] lang="en"
# ## Try it: the control changes two things, too
#
# This page keeps saying to change one thing at a time, and its own control does not. Between eager and the Q/DQ graph,
# q/dq are added, but the `nn.Module` has also become a graph from `torch.export`.
#
# Add a way to run that separates the two, and find each one's factor with `measure` and `compare`. Predict first: which
# one causes most of the slowdown?

# %% [markdown] lang="zh" tags=["solution"]
# 站在中間的，是匯出了、還沒量化的圖：

# %% [markdown] lang="en" tags=["solution"]
# What stands in the middle is the graph exported but not quantized:

# %% tags=["solution"]
EXPORTED = "exported fp32"


def measure_control():
    set_threads(1)
    x = example_inputs(1)
    fns = {}
    for width in WIDTHS:
        torch.manual_seed(0)
        model = TinyConvNet(width=width).eval()
        fns[at(EAGER, width)] = model
        fns[at(EXPORTED, width)] = torch.export.export(model, x).module()
        fns[at(QDQ, width)] = xnnpack_ptq(model, x)
    return measure(fns, x[0])


rounds = cached("m08_4_control", measure_control, measurement=True)
rows = []
for width in WIDTHS:
    row = [f"width={width}"]
    for before, after in [(EAGER, EXPORTED), (EXPORTED, QDQ), (EAGER, QDQ)]:
        row.append(
            in_words(
                compare(rounds[at(before, width)], rounds[at(after, width)])
            )
        )
    rows.append(row)
table(
    rows,
    [
        "",
        T(zh="eager → 匯出的圖", en="eager → exported graph"),
        T(zh="匯出的圖 → Q/DQ 圖", en="exported graph → Q/DQ graph"),
        T(zh="合起來", en="together"),
    ],
)

# %% [markdown] lang="zh" tags=["solution"]
# 慢的主要是哪一段？也讓程式照區間回答。兩段都慢的話，在同一輪裡比哪一段變成的倍數大，規則和前面相同：

# %% [markdown] lang="en" tags=["solution"]
# Which one causes most of the slowdown? Again code answers by the intervals. If both are slower, it compares their
# factors within each round, by the same rules as before:


# %% tags=["solution"]
def about_control(rounds):
    """For each width, which of the two changes slows the model down more."""
    said, unexplained = [], False
    for width in WIDTHS:
        us = [rounds[at(name, width)] for name in (EAGER, EXPORTED, QDQ)]
        first, second = compare(us[0], us[1]), compare(us[1], us[2])
        slower = [found.verdict == "slower" for found in (first, second)]
        # the second change's factor over the first one's, round by round
        more = compare(ratios(us[2], us[1]), ratios(us[1], us[0])).verdict
        if not any(slower):
            answer = T(
                zh="兩段都不能說變慢了", en="neither can be called slower"
            )
        elif slower == [True, False]:
            answer = T(
                zh="只有匯出能說變慢了",
                en="only the export can be called slower",
            )
        elif slower == [False, True]:
            answer = T(
                zh="只有 q/dq 能說變慢了", en="only q/dq can be called slower"
            )
        elif more == "faster":
            answer = T(
                zh="兩段都慢，主要是 q/dq", en="both slow it down, q/dq more"
            )
        elif more == "slower":
            answer = T(
                zh="兩段都慢，主要是匯出",
                en="both slow it down, the export more",
            )
        elif more == "tie":
            answer = T(
                zh="兩段都慢，程度差不多", en="both slow it down, about equally"
            )
        else:
            answer = T(
                zh="兩段都慢，分不出哪一段慢得多",
                en="both slow it down, and which does more can't be told",
            )
        said.append(
            T(
                zh="**width={width}**：{answer}。匯出：{first}；q/dq：{second}。",
                en="**width={width}**: {answer}. Export: {first}; q/dq: {second}.",
            ).format(
                width=width,
                answer=answer,
                first=in_words(first),
                second=in_words(second),
            )
        )
        unexplained |= slower[0]
    if unexplained:
        said.append(
            T(
                zh="匯出的 fp32 圖為什麼比 eager 慢，我們沒有查。",
                en="Why the exported fp32 graph is slower than eager, we did not look into.",
            )
        )
    return said


say(about_control(rounds))

# %% [markdown] lang="zh" tags=["solution"]
# 只看「合起來」，會把匯出的那一段也算到 q/dq 頭上。
#
# 第二欄也還不純：prepare 把 BatchNorm 折進了 conv（[M04](../m04_batchnorm/0_overview.py)），Q/DQ 圖因此少算四個 op，
# 讓 q/dq 看起來比實際便宜一點。

# %% [markdown] lang="en" tags=["solution"]
# From "together" alone, we would charge the export to q/dq as well.
#
# The second column isn't pure either: prepare folds BatchNorm into the convolutions
# ([M04](../m04_batchnorm/0_overview.py)), so the Q/DQ graph has four ops fewer to compute, and q/dq look a little cheaper
# than they are.

# %% [markdown] lang="zh"
# ## 接下來
#
# - 這一章：[M08 概覽](0_overview.py)；兩份 XNNPACKQuantizer 見 [M08-1](1_two_quantizers.py)；從 Q/DQ 圖到 `.pte` 見
#   [M08-2](2_to_pte.py)；圖被切開會多花多少時間見 [M08-3](3_unsupported_ops.py)
# - 部署用的是 convert 之後的 scale，不是訓練時的：[M06-3](../m06_qat/3_deployed_scales.py)
# - 用同一套方法量路線 B：[M09-3](../m09_onnxruntime/3_latency.py)

# %% [markdown] lang="en"
# ## Where to go next
#
# - This chapter: [M08 overview](0_overview.py), [M08-1](1_two_quantizers.py) on the two XNNPACKQuantizers,
#   [M08-2](2_to_pte.py) from Q/DQ graph to `.pte`, [M08-3](3_unsupported_ops.py) on what a cut in the graph costs
# - Deployment uses the scales after convert, not those of training: [M06-3](../m06_qat/3_deployed_scales.py)
# - Route B, measured the same way: [M09-3](../m09_onnxruntime/3_latency.py)
