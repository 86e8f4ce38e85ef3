import gc
import json
import random

from common.latency import Comparison, compare, measure, median_us, ratios, sequential_min, spread_us

import numpy as np
import pytest
import torch


class Machine:
    """A made-up machine with its own clock: calls take the time they are told to, times `slow(now)`."""

    def __init__(self, slow=lambda now: 1.0):
        self.now, self.slow, self.log = 0.0, slow, []

    def clock(self):
        return self.now

    def method(self, name, us):
        def run(_):
            self.log.append(name)
            self.now += us * 1e-6 * self.slow(self.now)

        return run


def test_measure_reports_what_a_call_takes():
    machine = Machine()
    times = measure({"a": machine.method("a", 250.0), "b": machine.method("b", 40.0)}, None, clock=machine.clock)
    assert {name: len(values) for name, values in times.items()} == {"a": 40, "b": 40}
    assert times["a"] == pytest.approx([250.0] * 40) and times["b"] == pytest.approx([40.0] * 40)


def test_a_block_lasts_about_three_milliseconds_whatever_the_method():
    machine = Machine()
    us = {"fast": 10.0, "slow": 700.0, "slower than a block": 9000.0}
    measure({name: machine.method(name, t) for name, t in us.items()}, None, rounds=10, clock=machine.clock)
    calls = {name: (machine.log.count(name) - 20 - 5) / 10 for name in us}  # 20 to warm up, 5 to size the block
    assert calls == {"fast": 300, "slow": 4, "slower than a block": 1}


def test_every_round_runs_every_method_once_in_a_shuffled_order():
    machine = Machine()
    names = "abcd"
    fns = {name: machine.method(name, 5000.0) for name in names}  # one call fills a block
    measure(fns, None, rounds=30, clock=machine.clock)
    rounds = [tuple(machine.log[i : i + 4]) for i in range(4 * 25, len(machine.log), 4)]
    assert len(rounds) == 30 and all(sorted(r) == list(names) for r in rounds)
    assert len(set(rounds)) > 10 and {r[0] for r in rounds} == set(names)


def test_the_order_is_its_own_seeded_affair():
    def run(seed):
        machine = Machine()
        measure({n: machine.method(n, 5000.0) for n in "abc"}, None, rounds=20, seed=seed, clock=machine.clock)
        return machine.log

    random.seed(7)
    before = random.getstate()
    first = run(0)
    assert random.getstate() == before
    random.seed(8)
    assert run(0) == first and run(1) != first


def test_every_method_warms_up_before_anything_is_timed():
    machine = Machine()
    cold = {name: 20 for name in "ab"}

    def method(name, us):
        run = machine.method(name, us)

        def fn(x):
            cold[name] -= 1
            run(x)
            if cold[name] >= 0:
                machine.now += 1.0  # the first twenty calls are a thousand times slower

        return fn

    times = measure({n: method(n, 50.0) for n in "ab"}, None, rounds=3, clock=machine.clock)
    assert times["a"] == pytest.approx([50.0] * 3) and times["b"] == pytest.approx([50.0] * 3)


def half_speed_after(seconds):
    return lambda now: 2.0 if now >= seconds else 1.0


def test_interleaving_keeps_the_ratio_where_the_machine_slows_down_and_the_simple_method_does_not():
    simple = Machine(half_speed_after(0.2))
    before = sequential_min(simple.method("before", 300.0), None, clock=simple.clock)
    after = sequential_min(simple.method("after", 100.0), None, clock=simple.clock)
    assert before / after < 3 / 1.9  # true: 3

    machine = Machine(half_speed_after(0.1))
    fns = {"before": machine.method("before", 300.0), "after": machine.method("after", 100.0)}
    times = measure(fns, None, clock=machine.clock)
    assert max(times["after"]) > 1.9 * min(times["after"])  # the slow phase was in the measurement
    found = compare(times["before"], times["after"])
    assert found.ratio == pytest.approx(3, rel=1e-6) and found.low == pytest.approx(3, rel=1e-6)


def test_the_simple_method_needs_one_quiet_round_only():
    machine = Machine(lambda now: 1.0 if 0.0099 <= now < 0.0205 else 5.0)  # a quiet moment, one round of 100 calls long
    assert sequential_min(machine.method("a", 100.0), None, warmup=20, clock=machine.clock) == pytest.approx(100.0)


def test_gradients_are_off_while_measuring_and_the_garbage_collector_comes_back():
    seen = set()

    def fn(x):
        seen.add((torch.is_grad_enabled(), gc.isenabled()))

    measure({"fn": fn}, None, rounds=2, block_ms=0.01)
    assert seen == {(False, False)}
    seen.clear()
    sequential_min(fn, None)
    assert (False, False) in seen and {grad for grad, _ in seen} == {False}

    def broken(x):
        raise RuntimeError("no kernel")

    with pytest.raises(RuntimeError, match="no kernel"):
        measure({"broken": broken}, None)
    assert gc.isenabled() and torch.is_grad_enabled()


def test_what_was_measured_survives_json():
    times = measure({"sum": torch.sum}, torch.ones(8), rounds=3, block_ms=0.05)
    assert json.loads(json.dumps(times)) == times and len(times["sum"]) == 3


def test_median_and_spread_of_a_hundred_and_one_rounds():
    rounds = [float(t) for t in range(101)]
    assert median_us(rounds) == 50 and spread_us(rounds) == (10, 90)


def test_ratios_of_different_numbers_of_rounds_are_refused():
    with pytest.raises(ValueError, match="40 before, 39 after"):
        ratios([1.0] * 40, [1.0] * 39)


def test_what_disturbs_a_whole_round_leaves_the_comparison_alone():
    after = [100 * disturbance for disturbance in np.random.default_rng(3).uniform(1, 6, 40)]
    found = compare([2.5 * t for t in after], after)
    assert (found.ratio, found.low, found.high) == pytest.approx((2.5, 2.5, 2.5))


def noisy(rng, center, rounds=40):
    return list(center * np.exp(rng.normal(0, 0.1, rounds)))


def test_the_interval_is_that_of_the_order_statistics():
    # For 40 rounds the exact 95 % interval of a median runs from the 14th to the 27th smallest (binomial distribution).
    rng = np.random.default_rng(0)
    for _ in range(20):
        before, after = noisy(rng, 300), noisy(rng, 200)
        ordered = sorted(ratios(before, after))
        found = compare(before, after)
        assert ordered[12] <= found.low <= ordered[14] and ordered[25] <= found.high <= ordered[27]
        assert found.ratio == (ordered[19] + ordered[20]) / 2


def test_nineteen_intervals_of_twenty_hold_the_truth():
    rng = np.random.default_rng(1)
    runs = [compare(noisy(rng, 300), noisy(rng, 200), resamples=1000) for _ in range(400)]
    held = sum(run.low <= 1.5 <= run.high for run in runs) / len(runs)
    assert 0.91 <= held <= 0.99


def test_the_same_rounds_give_the_same_interval():
    rng = np.random.default_rng(2)
    before, after = noisy(rng, 300), noisy(rng, 200)
    assert compare(before, after) == compare(before, after)


def test_an_interval_widens_with_its_level():
    rng = np.random.default_rng(4)
    before, after = noisy(rng, 300), noisy(rng, 200)
    half, most = compare(before, after, level=0.5), compare(before, after, level=0.99)
    assert most.low < half.low < half.ratio < half.high < most.high


@pytest.mark.parametrize(
    ("low", "ratio", "high", "verdict"),
    [
        (1.90, 2.00, 2.10, "faster"),
        (1.001, 1.04, 1.2, "faster"),
        (0.30, 0.34, 0.38, "slower"),
        (0.98, 1.00, 1.03, "tie"),
        (1.01, 1.02, 1.03, "tie"),  # surely above 1, and too little to speak of
        (0.80, 1.10, 1.40, "unclear"),
        (0.97, 1.30, 1.60, "unclear"),
    ],
)
def test_verdicts(low, ratio, high, verdict):
    found = Comparison(ratio, low, high)
    assert found.verdict == verdict
    opposite = {"faster": "slower", "slower": "faster"}
    assert found.inverse.verdict == opposite.get(verdict, verdict)


def test_comparing_the_other_way_round_gives_the_inverse():
    rng = np.random.default_rng(5)
    before, after = noisy(rng, 300, 39), noisy(rng, 200, 39)  # an odd number: the median is one of the rounds
    there, back = compare(before, after, resamples=2000), compare(after, before, resamples=2000)
    assert back.ratio == pytest.approx(there.inverse.ratio)
    assert (back.low, back.high) == pytest.approx((there.inverse.low, there.inverse.high), rel=0.02)
