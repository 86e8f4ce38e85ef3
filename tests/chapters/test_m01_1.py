"""M01-1: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing, spoiling

PAGE = "m01_first_ptq/1_minimal_ptq.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds(capsys):
    page = executed(PAGE)
    assert page["agreement"] == pytest.approx(1 - page["disagree"].sum().item() / 2000)
    printed = capsys.readouterr().out
    for message in (
        "'TinyConvNet' object has no attribute 'meta'",
        "must run observer before calling calculate_qparams",
        "KeyError: 'val'",
        "Calling train() or eval() is not supported",
    ):
        assert message in printed


@pytest.mark.parametrize("spoiled", [{"scale": 1.1}, {"zero_point": 1}], ids=["scale x 1.1", "zero point + 1"])
def test_a_dequantize_that_does_not_undo_its_quantize_is_noticed(spoiled):
    failed_claim(PAGE, spoiling("exported = export()", "spoil_convert", "dequantize_per_tensor", **spoiled))


def test_a_skipped_calibration_is_noticed():
    failed_claim(PAGE, replacing("        prepared(batch)\n", "        pass\n"))


def test_a_quantizer_without_configuration_is_noticed():
    skipped = replacing("quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True))", "pass")
    assert "not every weight" in failed_claim(PAGE, skipped)


def test_an_old_import_that_works_again_is_noticed():
    works = replacing("from torch._export import capture_pre_autograd_graph", "from torch.export import export")
    assert failed_claim(PAGE, works) == "there again: from torch.export import export"
