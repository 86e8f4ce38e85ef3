"""M02-0: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing, spoiling

PAGE = "m02_observers/0_overview.py"
pytestmark = pytest.mark.site

PREPARES = "ours = ThreeSigmaObserver.with_args"  # in the cell that prepares with our observer


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    # Known from the literature for a normal distribution: about 2.6 standard deviations at 4 bits, 4 at 8.
    assert page["best"][4] == pytest.approx(2.6, abs=0.2)
    assert page["best"][8] == pytest.approx(4.0, abs=0.4)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("s = limit / top", "s = 1.1 * limit / top"),
        ("ops.dequantize_per_tensor(q, s, 0,", "ops.dequantize_per_tensor(q, s, 1,"),
    ],
    ids=["scale x 1.1", "zero point + 1"],
)
def test_a_wrong_round_trip_is_noticed(right, wrong):
    assert "formula (1)" in failed_claim(PAGE, replacing(right, wrong))


def test_observers_that_answer_with_another_scale_are_noticed():
    assert "not 6 sigma" in failed_claim(PAGE, spoiling(PREPARES, "spoil_observers", scale=1.1))


def test_a_graph_with_another_scale_than_the_observers_is_noticed():
    assert "not 6 sigma" in failed_claim(PAGE, spoiling(PREPARES, "spoil_convert", scale=1.1))


def test_a_configuration_without_our_observer_is_noticed():
    stock = replacing("observer_or_fake_quant_ctr=ours)", "ch_axis=None)")
    assert "not 6 sigma" in failed_claim(PAGE, stock)


def test_per_tensor_weights_instead_of_per_channel_are_noticed():
    failed_claim(PAGE, replacing('    {"is_per_channel": True},\n', '    {"is_per_channel": False},\n'))
