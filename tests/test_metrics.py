import itertools
import math

from common.metrics import (
    accuracy,
    agreement,
    in_points,
    interval_in_points,
    is_right,
    paired_interval,
    paired_interval_of_counts,
    sign_test,
    sqnr_db,
)

import numpy as np
import pytest
import torch

LOGITS = torch.tensor([[3.0, 1.0], [0.0, 2.0], [5.0, 4.0], [1.0, 9.0]])  # classes 0, 1, 0, 1
LABELS = torch.tensor([0, 1, 1, 1])


def test_accuracy_counts_the_images_whose_largest_logit_is_the_label():
    assert is_right(lambda x: x, LOGITS, LABELS).tolist() == [True, True, False, True]
    assert accuracy(lambda x: x, LOGITS, LABELS) == 0.75


def test_the_model_runs_without_gradients():
    weight = torch.ones(2, requires_grad=True)
    seen = []

    def model(images):
        seen.append((images * weight).requires_grad)
        return images

    accuracy(model, LOGITS, LABELS)
    assert seen == [False]


def test_many_images_come_in_batches_and_stay_in_order():
    sizes = []

    def model(images):
        sizes.append(len(images))
        return images

    labels = torch.arange(600) % 7
    logits = torch.nn.functional.one_hot(labels, 7).float()
    assert is_right(model, logits, labels).all()
    assert sizes == [250, 250, 100]


def test_logits_for_another_number_of_images_are_refused():
    with pytest.raises(ValueError, match=r"\(4, 2\) for 3 labels"):
        accuracy(lambda x: x, LOGITS, LABELS[:3])


def test_agreement_sees_the_largest_value_only():
    assert agreement(LOGITS, 10 * LOGITS - 3) == 1
    assert agreement(LOGITS, LOGITS.flip(1)) == 0
    assert agreement(LOGITS, torch.cat([LOGITS[:3], LOGITS[3:].flip(1)])) == 0.75


def test_agreement_of_different_shapes_is_refused():
    with pytest.raises(ValueError, match=r"\(4, 2\) and \(1, 2\)"):
        agreement(LOGITS, LOGITS[:1])


def test_sqnr_is_that_of_pytorch():
    from torch.ao.ns.fx.utils import compute_sqnr

    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(5, 7, generator=generator)
    other = reference + 0.03 * torch.randn(5, 7, generator=generator)
    assert sqnr_db(reference, other) == pytest.approx(compute_sqnr(reference, other).item(), abs=1e-4)


@pytest.mark.parametrize(("noise", "db"), [(1.0, 0.0), (0.1, 20.0), (0.01, 40.0), (10.0, -20.0)])
def test_a_tenth_of_the_noise_is_twenty_db_more(noise, db):
    reference = torch.tensor([3.0, -4.0], dtype=torch.float64)
    assert sqnr_db(reference, reference * (1 + noise)) == pytest.approx(db, abs=1e-9)


def test_sqnr_of_equal_tensors_is_infinite_and_of_a_zero_reference_refused():
    assert sqnr_db(LOGITS, LOGITS.clone()) == math.inf
    with pytest.raises(ValueError, match="all zeros"):
        sqnr_db(torch.zeros(3), torch.ones(3))
    with pytest.raises(ValueError, match="shapes"):
        sqnr_db(LOGITS, LOGITS[0])


def test_the_paired_interval_counts_what_was_lost_and_gained():
    before = torch.tensor([True] * 6 + [False] * 4)
    after = torch.tensor([True] * 3 + [False] * 3 + [True] + [False] * 3)
    found = paired_interval(before, after)
    assert (found.lost, found.gained, found.n) == (3, 1, 10)
    assert found.change == pytest.approx(-0.2)
    assert found.low < -0.2 < found.high
    assert found.p_value == sign_test(3, 1)


def test_numbers_in_place_of_right_and_wrong_are_refused():
    with pytest.raises(ValueError, match="expected bool"):
        paired_interval(torch.tensor([1, 0]), torch.tensor([1, 1]))


@pytest.mark.parametrize(("lost", "gained", "n"), [(-1, 0, 10), (6, 5, 10), (0, 0, 0)])
def test_impossible_counts_are_refused(lost, gained, n):
    with pytest.raises(ValueError, match="can't come from"):
        paired_interval_of_counts(lost, gained, n)


@pytest.mark.parametrize(
    ("lost", "gained", "verdict"),
    [
        (60, 20, "worse"),
        (20, 60, "better"),
        (45, 35, "unclear"),
        (0, 0, "unclear"),
        (3, 0, "unclear"),
        (0, 3, "unclear"),
    ],
)
def test_nothing_is_better_or_worse_while_the_interval_contains_zero(lost, gained, verdict):
    assert paired_interval_of_counts(lost, gained, 2000).verdict == verdict


def test_the_interval_agrees_with_bootstrapping_the_images():
    """Draw the 2000 images again and again: the change varies as the formula says, to a twentieth of the width."""
    lost, gained, n = 50, 20, 2000
    generator = np.random.default_rng(0)
    draws = generator.multinomial(n, [lost / n, gained / n, 1 - (lost + gained) / n], size=40_000)
    low, high = np.quantile((draws[:, 1] - draws[:, 0]) / n, [0.025, 0.975])
    found = paired_interval_of_counts(lost, gained, n)
    assert [found.low, found.high] == pytest.approx([low, high], abs=(high - low) / 20)


@pytest.mark.parametrize(("lost", "gained"), [(0.02, 0.02), (0.03, 0.015), (0.002, 0.001)])
def test_nineteen_intervals_of_twenty_hold_the_true_change(lost, gained):
    n, repeats = 2000, 4000
    generator = np.random.default_rng(1)
    draws = generator.multinomial(n, [lost, gained, 1 - lost - gained], size=repeats)
    intervals = [paired_interval_of_counts(int(a), int(b), n) for a, b, _ in draws]
    hits = sum(found.low <= gained - lost <= found.high for found in intervals)
    assert 0.935 < hits / repeats < 0.985


def test_the_sign_test_is_the_share_of_equally_likely_ways_that_are_as_one_sided():
    """All 2**7 ways in which seven changed images can be lost or gained, counted."""
    ways = [sum(way) for way in itertools.product((0, 1), repeat=7)]
    for lost in range(8):
        as_one_sided = sum(abs(2 * k - 7) >= abs(2 * lost - 7) for k in ways)
        assert sign_test(lost, 7 - lost) == pytest.approx(as_one_sided / 2**7)


def test_the_sign_test_has_no_opinion_without_changes_and_copes_with_thousands():
    assert sign_test(0, 0) == 1
    assert sign_test(2000, 2000) == 1
    assert 0 <= sign_test(4000, 1000) < 1e-300


def test_points_have_a_sign_and_their_intervals_do_not_break():
    assert (in_points(-0.0141), in_points(0.0029, digits=2)) == ("−1.4", "+0.29")
    assert interval_in_points(-0.023, 0.005) == "[−2.3,\N{NO-BREAK SPACE}+0.5]"
