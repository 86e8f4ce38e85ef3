"""M05-0: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing

PAGE = "m05_accuracy/0_overview.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    names = executed(PAGE)
    assert names["n_kept"] == 2000 - abs(len(names["only_model"]) - len(names["only_twin"]))
    assert names["highest"] == names["by_image"][names["at"]]
    assert names["changed"]["int8 per-channel"].sum() == round(2000 * (1 - names["agreement"].item()))


def test_a_power_taken_for_an_amplitude_is_noticed():
    wrong = replacing("sqnr_db = 10 * torch.log10(", "sqnr_db = 20 * torch.log10(")
    assert "not formula (3)" in failed_claim(PAGE, wrong)


def test_a_skipped_calibration_is_noticed():
    skipped = replacing("            prepared(batch)\n", "            pass\n")
    assert "order the models differently" in failed_claim(PAGE, skipped)


def test_the_bound_on_the_lead_is_as_tight_as_the_page_says():
    """With half of it, some answers change that should be safe."""
    tighter = replacing("safe = lead > 2 * error[name]", "safe = lead > 1 * error[name]")
    assert "(5) does not hold" in failed_claim(PAGE, tighter)


def test_a_scale_for_each_channel_is_noticed_where_one_for_all_is_meant():
    per_channel = replacing("step = stem.abs().max() / 127", "step = stem.abs().amax((1, 2, 3), keepdim=True) / 127")
    assert "weakest channel" in failed_claim(PAGE, per_channel)


def test_another_error_of_the_output_scale_is_noticed():
    failed_claim(PAGE, replacing("wrong = 1.1 * int8", "wrong = 1.2 * int8"))
