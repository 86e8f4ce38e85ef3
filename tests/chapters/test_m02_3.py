"""M02-3: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing, spoiling

PAGE = "m02_observers/3_calibration_data.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert page["enough"] in page["sizes"]
    assert set(page["scores"]) == set(page["words"])
    assert all(0 <= share < 1 + 1e-6 for pair in page["at_input"].values() for share in pair)


def test_a_skipped_calibration_is_noticed():
    skipped = replacing("            observed(batch)\n", "            pass\n")
    assert "256 images are not enough" in failed_claim(PAGE, skipped)


def test_observers_that_answer_with_a_larger_scale_are_noticed():
    assert "looks wrong" in failed_claim(PAGE, spoiling('"right": right,', "spoil_observers", scale=1.1))


def test_right_data_in_place_of_the_wrongly_scaled_is_noticed():
    same = replacing('"divided by 10": right / 10', '"divided by 10": right')
    assert "no harm done" in failed_claim(PAGE, same)


def test_a_factor_that_is_not_in_the_graph_is_noticed():
    """The exercise: the factor of the calibration data shows in the scale at the input."""
    assert "found" in failed_claim(PAGE, replacing("calibrated(right * 30)", "calibrated(right * 20)"))
