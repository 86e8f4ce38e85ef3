"""M01-3: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing, spoiling

PAGE = "m01_first_ptq/3_quantization_config.py"
pytestmark = pytest.mark.site

QUANTIZES = 'FOUR_BITS = {"weight_qmin"'  # begins the cell that quantizes the four variants


def test_every_claim_of_the_page_holds(capsys):
    page = executed(PAGE)
    assert page["vanish"] == {8: 0, 4: 6}
    printed = capsys.readouterr().out
    assert "must run observer before calling calculate_qparams" in printed
    assert "no fake quantization to train with" in printed


def test_per_tensor_for_per_channel_is_noticed():
    swapped = replacing('"int8 per-channel": {"is_per_channel": True}', '"int8 per-channel": {}')
    assert "no gain in the stem" in failed_claim(PAGE, swapped)


def test_eight_bits_for_four_are_noticed():
    eight = replacing('{"weight_qmin": -7, "weight_qmax": 7}', '{"weight_qmin": -127, "weight_qmax": 127}')
    assert "4 bits per tensor did no harm" in failed_claim(PAGE, eight)


def test_a_skipped_calibration_is_noticed():
    failed_claim(
        PAGE, replacing("            prepared(batch)\n    return prepared", "            pass\n    return prepared")
    )


@pytest.mark.parametrize("spoiled", [{"scale": 1.1}, {"zero_point": 1}], ids=["scale x 1.1", "zero point + 1"])
def test_a_dequantize_that_does_not_undo_its_quantize_is_noticed(spoiled):
    again = "from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e; "
    spoil = spoiling(QUANTIZES, "spoil_convert", "dequantize_per_tensor", **spoiled)
    failed_claim(PAGE, lambda source: spoil(source.replace(QUANTIZES, again + QUANTIZES)))


def test_scales_too_large_are_noticed():
    failed_claim(PAGE, spoiling(QUANTIZES, "spoil_observers", scale=3))


def test_an_enlarged_channel_that_is_not_enlarged_is_noticed():
    assert "per-tensor did no harm" in failed_claim(PAGE, replacing("rescale(model, 32)", "rescale(model, 1)"))


def test_a_qat_configuration_in_every_pair_is_noticed():
    failed_claim(PAGE, one_pair_for_all)


def one_pair_for_all(source):
    right = "pair(prepare_qat_pt2e, is_qat=True)"
    for wrong in ("pair(prepare_qat_pt2e, is_qat=False)", "pair(prepare_pt2e, is_qat=True)"):
        source = source.replace(wrong, "right")
    return source.replace(right, f"(right := {right})")
