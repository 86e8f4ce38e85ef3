"""The course's way to measure latency: interleaved rounds, ratios per round, medians with a bootstrap interval.

Measuring and judging are apart: `measure` returns plain lists of numbers that fit into JSON, the other functions are
pure. It imports nothing else of `common`, so that stored measurements outlive changes elsewhere.
"""

import gc
import random
import statistics
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

Verdict = Literal["faster", "slower", "tie", "unclear"]
TIE = 1.05  # an interval inside [1 / TIE, TIE] is a tie: repeated runs differ by as much as that


def sequential_min(
    fn: Callable[[Any], object],
    x: Any,
    *,
    warmup: int = 20,
    number: int = 100,
    repeat: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Microseconds a call of `fn(x)`, the simple way: the fastest of `repeat` rounds of `number` calls in a row."""
    with torch.no_grad():
        for _ in range(warmup):
            fn(x)
        rounds = timeit.repeat(lambda: fn(x), timer=clock, number=number, repeat=repeat)
        return min(rounds) / number * 1e6


def measure(
    fns: Mapping[str, Callable[[Any], object]],
    x: Any,
    *,
    warmup: int = 20,
    block_ms: float = 3.0,
    rounds: int = 40,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Microseconds a call of each `fn(x)`, one number a round: `{name: [us, ...]}`, `rounds` numbers each.

    Every round runs one block of each function, in an order shuffled anew; a block is as many calls as fill `block_ms`.
    What disturbs the machine for longer than a round disturbs all functions, so the ratios of one round stay right.
    Give all of them the same number of threads first (`common.env.set_threads`).
    """
    order, rng = list(fns), random.Random(seed)
    times: dict[str, list[float]] = {name: [] for name in fns}

    def block_s(name: str, calls: int) -> float:
        start = clock()
        for _ in range(calls):
            fns[name](x)
        return clock() - start

    collecting = gc.isenabled()
    gc.disable()  # as timeit does: a collection would be charged to whoever runs at that moment
    try:
        with torch.no_grad():
            calls = {}
            for name in order:
                block_s(name, warmup)
                call_s = min(block_s(name, 1) for _ in range(5))
                calls[name] = max(1, round(block_ms / 1e3 / call_s))
            for _ in range(rounds):
                rng.shuffle(order)
                for name in order:
                    times[name].append(block_s(name, calls[name]) / calls[name] * 1e6)
    finally:
        if collecting:
            gc.enable()
    return times


def median_us(times_us: Sequence[float]) -> float:
    """The middle one of the rounds: half were faster, half slower."""
    return statistics.median(times_us)


def spread_us(times_us: Sequence[float]) -> tuple[float, float]:
    """The 10th and 90th percentile of the rounds: eight rounds of ten lie between them."""
    low, high = np.percentile(times_us, [10, 90])
    return float(low), float(high)


def ratios(before_us: Sequence[float], after_us: Sequence[float]) -> list[float]:
    """before / after, round by round: above 1 where going from before to after made it faster."""
    if len(before_us) != len(after_us):
        raise ValueError(f"ratios need the same rounds: {len(before_us)} before, {len(after_us)} after")
    return [before / after for before, after in zip(before_us, after_us, strict=True)]


@dataclass(frozen=True)
class Comparison:
    """How many times as fast `after` is as `before`: the median ratio and the interval it moves in."""

    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """What may be said. "tie": too close to matter; "unclear": wider than that, with 1 inside."""
        if self.low >= 1 / TIE and self.high <= TIE:
            return "tie"
        if self.low > 1:
            return "faster"
        if self.high < 1:
            return "slower"
        return "unclear"

    @property
    def inverse(self) -> "Comparison":
        """The same finding, told from the other side: times as slow."""
        return Comparison(1 / self.ratio, 1 / self.high, 1 / self.low)


def compare(
    before: Sequence[float], after: Sequence[float], *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Comparison:
    """Median of the ratios before / after of each round, with its bootstrap interval.

    The rounds are drawn again with replacement, `resamples` times; `level` of the medians lie in the interval. It
    covers the noise within this run, not a second run on another day. Same numbers, same seed: same interval.
    """
    per_round = np.asarray(ratios(before, after))
    drawn = np.random.default_rng(seed).integers(len(per_round), size=(resamples, len(per_round)))
    tail = (1 - level) / 2 * 100
    low, high = np.percentile(np.median(per_round[drawn], axis=1), [tail, 100 - tail])
    return Comparison(float(np.median(per_round)), float(low), float(high))
