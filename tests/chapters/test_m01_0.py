"""M01-0: the page holds, and each thing it teaches makes one of its own asserts fail when it is spoiled."""

import common.data

import pytest
from runner import failed_claim, replacing, run_chapter, spoil_convert, spoil_observers

PAGE = "m01_first_ptq/0_overview.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    names = run_chapter(PAGE)
    assert names["inside"].item() == pytest.approx(0.01, abs=1e-6)
    assert names["outside"].item() == pytest.approx(1.5, abs=1e-3)


def test_observers_with_scales_ten_percent_too_large_are_noticed(monkeypatch):
    spoil_observers(monkeypatch, scale=1.1)
    assert "formula (3)" in failed_claim(PAGE)


def test_observers_with_zero_points_one_too_high_are_noticed(monkeypatch):
    spoil_observers(monkeypatch, zero_point=1)
    assert "formula (3)" in failed_claim(PAGE)


@pytest.mark.parametrize("op", ["quantize_per_tensor", "dequantize_per_tensor"])
@pytest.mark.parametrize("spoiled", [{"scale": 1.1}, {"zero_point": 1}], ids=["scale x 1.1", "zero point + 1"])
def test_numbers_in_the_graph_that_are_not_the_observers_are_noticed(monkeypatch, op, spoiled):
    spoil_convert(monkeypatch, op, **spoiled)
    failed_claim(PAGE)


def test_a_skipped_calibration_is_noticed():
    skipped = replacing('assert torch.equal(prepared(image), output), "a value changed"', "pass")
    assert "no calibration?" in failed_claim(PAGE, skipped)


def test_calibration_without_images_is_noticed(monkeypatch):
    monkeypatch.setattr(common.data, "calibration_batches", lambda n, batch_size: iter(()))
    assert "no calibration?" in failed_claim(PAGE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("s, z = 0.02, -3", "s, z = 0.02 * 1.1, -3"),
        ("s, z = 0.02, -3", "s, z = 0.02, -3 + 1"),
        ("hand_s = (b - a) / 255", "hand_s = (b - a) / 255 * 1.1"),
        ("hand_z = -128 - round(a / hand_s)", "hand_z = -128 - round(a / hand_s) + 1"),
        ("amax((1, 2, 3)) / 127", "amax((1, 2, 3)) / 127 * 1.1"),
        ("weight_int8.int() * (window - z_x)", "weight_int8.int() * (window - z_x - 1)"),
        ("weight_scale * s_x * accumulators", "weight_scale * s_x * 1.1 * accumulators"),
        ("is_per_channel=True", "is_per_channel=False"),
        ("real = right_side + model.conv.bias", "real = right_side * 1.1 + model.conv.bias"),
    ],
)
def test_a_calculation_that_is_slightly_off_is_noticed(old, new):
    failed_claim(PAGE, replacing(old, new))
