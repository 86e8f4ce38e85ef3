"""M01-2: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from executorch.backends.xnnpack.quantizer import xnnpack_quantizer, xnnpack_quantizer_utils
from runner import executed, failed_claim, replacing, spoil_convert

PAGE = "m01_first_ptq/2_prepare_convert.py"
pytestmark = pytest.mark.site


@pytest.fixture
def quick_prepare(monkeypatch):
    """PTQ without the search for QAT's conv-BN patterns, nearly all of prepare's time: BN is folded by then."""
    for name, annotate in xnnpack_quantizer_utils.OP_TO_ANNOTATOR.items():
        if "_bn" in name:

            def only_for_qat(gm, config, accept=None, annotate=annotate):
                return annotate(gm, config, accept) if config.is_qat else None

            monkeypatch.setitem(xnnpack_quantizer_utils.OP_TO_ANNOTATOR, name, only_for_qat)


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert (len(page["activations"]), page["distinct"]) == (9, 7)


@pytest.mark.usefixtures("quick_prepare")
class TestSabotage:
    def test_per_tensor_weights_are_noticed(self):
        per_tensor = replacing("is_per_channel=True", "is_per_channel=False")
        assert "weights of 4 convolutions" in failed_claim(PAGE, per_tensor)

    def test_a_quantizer_without_configuration_is_noticed(self):
        failed_claim(PAGE, replacing("XNNPACKQuantizer().set_global(config)", "XNNPACKQuantizer()"))

    def test_a_skipped_calibration_is_noticed(self):
        failed_claim(PAGE, replacing("testing.assert_close(prepared(batch), model(batch))", "zeros(1)"))

    @pytest.mark.parametrize("spoiled", [{"scale": 1.1}, {"zero_point": 1}], ids=["scale x 1.1", "zero point + 1"])
    def test_a_dequantize_that_does_not_undo_its_quantize_is_noticed(self, monkeypatch, spoiled):
        spoil_convert(monkeypatch, "dequantize_per_tensor", **spoiled)
        assert "does not undo" in failed_claim(PAGE)

    def test_a_wrong_zero_point_is_noticed(self, monkeypatch):
        spoil_convert(monkeypatch, zero_point=1)
        failed_claim(PAGE)

    def test_ops_that_do_not_share_are_noticed(self, monkeypatch):
        monkeypatch.setattr(xnnpack_quantizer, "propagate_annotation", lambda gm: None)
        failed_claim(PAGE)

    @pytest.mark.parametrize(
        ("op", "message"), [("cat", "not shared"), ("add_relu", "add is followed"), ("linear", "linear")]
    )
    def test_an_op_the_quantizer_forgets_is_noticed(self, monkeypatch, op, message):
        monkeypatch.setitem(xnnpack_quantizer_utils.OP_TO_ANNOTATOR, op, lambda *_: None)
        assert message in failed_claim(PAGE)
