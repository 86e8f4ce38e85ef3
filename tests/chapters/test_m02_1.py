"""M02-1: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing, spoiling

PAGE = "m02_observers/1_observers.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds_and_the_messages_are_shown(capsys):
    page = executed(PAGE)
    printed = capsys.readouterr().out
    for message in (
        "AssertionError: min nan should be less than max nan",
        "RuntimeError: torch.histc: range of [-nan, -nan] is not finite",
        "torch.inf detected in input tensor, ignoring input",
        "scale inf",
        "must run observer before calling calculate_qparams",
        "HistogramObserver's qscheme only support torch.per_tensor_symmetric and torch.per_tensor_affine.",
    ):
        assert message in " ".join(printed.split())
    # The search drops a single value among more than 100,000, although that pays from n_star on.
    assert page["n_here"] < 100_000 < page["n_star"]


@pytest.mark.parametrize("spoiled", [{"scale": 1.1}, {"zero_point": 4}], ids=["scale x 1.1", "zero point + 4"])
def test_observers_that_answer_with_another_range_are_noticed(spoiled):
    # One step is the page's own margin for the rounded zero point.
    assert "not " in failed_claim(PAGE, spoiling("clean = stream()", "spoil_observers", **spoiled))


def test_per_tensor_scales_for_the_channels_are_noticed():
    claim = replacing("(one_scale, _), (scales, _) = one", "scales = one_scale = one.calculate_qparams()[0]; _ = one")
    assert "max|w| / 127" in failed_claim(PAGE, claim)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("average += 0.01 * (batch", "average += 0.011 * 10 * (batch"),
        ("expected = average + 0.99**19 * extra", "expected = average + 0.99**19 * extra * 1.1"),
        ("MinMaxObserver(eps=2**-12, **INT8)", "MinMaxObserver(**INT8)"),
        ("in (100_000, 101_000):", "in (101_000, 100_000):"),
    ],
)
def test_a_hand_calculation_that_is_off_is_noticed(right, wrong):
    failed_claim(PAGE, replacing(right, wrong))


def test_a_search_that_compares_its_first_step_is_noticed():
    """Were the outlier weighed against the rounding error, a hundred thousand values more or less would not matter."""
    weighed = replacing(
        "bounds = chosen_range(HistogramObserver(**INT8), [data])",
        "bounds = chosen_range(MinMaxObserver(**INT8), [data])",
    )
    assert "another rule" in failed_claim(PAGE, weighed)
