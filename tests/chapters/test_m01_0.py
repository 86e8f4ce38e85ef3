"""M01-0: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing, spoil_convert, spoil_observers

PAGE = "m01_first_ptq/0_overview.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert page["inside"].item() == pytest.approx(0.01, abs=1e-6)
    assert page["outside"].item() == pytest.approx(1.5, abs=1e-3)


@pytest.mark.parametrize("spoiled", [{"scale": 1.1}, {"zero_point": 1}], ids=["scale x 1.1", "zero point + 1"])
def test_observers_that_do_not_follow_the_formula_are_noticed(monkeypatch, spoiled):
    spoil_observers(monkeypatch, **spoiled)
    assert "formula (3)" in failed_claim(PAGE)


@pytest.mark.parametrize("spoiled", [{"scale": 1.1}, {"zero_point": 1}], ids=["scale x 1.1", "zero point + 1"])
def test_numbers_in_the_graph_that_are_not_the_observers_are_noticed(monkeypatch, spoiled):
    spoil_convert(monkeypatch, **spoiled)
    assert ", not " in failed_claim(PAGE)


def test_a_dequantize_that_does_not_undo_its_quantize_is_noticed(monkeypatch):
    spoil_convert(monkeypatch, "dequantize_per_tensor", scale=1.1)
    assert "does not undo" in failed_claim(PAGE)


def test_a_skipped_calibration_is_noticed():
    skipped = replacing('assert torch.equal(prepared(image), output), "a value changed"', "pass")
    assert "no calibration?" in failed_claim(PAGE, skipped)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("is_per_channel=True", "is_per_channel=False"),
        ("s, z = 0.02, -3", "s, z = 0.02 * 1.1, -3"),
        ("s, z = 0.02, -3", "s, z = 0.02, -3 + 1"),
        ("hand_s = (b - a) / 255", "hand_s = (b - a) / 255 * 1.1"),
        ("(window - z_x)", "(window - z_x - 1)"),
    ],
)
def test_a_calculation_that_is_slightly_off_is_noticed(right, wrong):
    failed_claim(PAGE, replacing(right, wrong))
