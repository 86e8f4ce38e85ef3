"""M01-2: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing, spoiling

PAGE = "m01_first_ptq/2_prepare_convert.py"
pytestmark = pytest.mark.site

PREPARES = "quantizer = XNNPACKQuantizer()"  # begins the line of the cell that prepares TinyConvNet
CONVERTS = "after_prepare = copy.deepcopy(prepared)"  # begins the cell that converts it


def preparing(before: str = "", old: str = "", new: str = ""):
    """TinyConvNet prepared after `before`, with `old` replaced, and quickly: PTQ only."""

    def spoil(source):
        if PREPARES not in source:
            return source
        return source.replace(PREPARES, f"{before}; quantizer = PTQQuantizer()".lstrip("; ")).replace(old or "\0", new)

    return spoil


def converting(*op: str, **wrong: float):
    """TinyConvNet converted by a convert_pt2e that spoils numbers."""
    again = "from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e; "
    spoil = spoiling(CONVERTS, "spoil_convert", *op, **wrong)
    return lambda source: spoil(source.replace(CONVERTS, again + CONVERTS))


def forgetting(op: str) -> str:
    tables = "executorch.backends.xnnpack.quantizer.xnnpack_quantizer_utils"
    return f"import {tables} as tables; tables.OP_TO_ANNOTATOR[{op!r}] = lambda *_: None"


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert (len(page["activations"]), page["distinct"]) == (9, 7)


def test_per_tensor_weights_are_noticed():
    per_tensor = preparing(old="is_per_channel=True", new="is_per_channel=False")
    assert "weights of 4 convolutions" in failed_claim(PAGE, per_tensor)


def test_a_quantizer_without_configuration_is_noticed():
    failed_claim(PAGE, preparing(old="().set_global(config)", new="()"))


def test_a_skipped_calibration_is_noticed():
    failed_claim(PAGE, replacing("testing.assert_close(prepared(batch), model(batch))", "zeros(1)"))


@pytest.mark.parametrize("spoiled", [{"scale": 1.1}, {"zero_point": 1}], ids=["scale x 1.1", "zero point + 1"])
def test_a_dequantize_that_does_not_undo_its_quantize_is_noticed(spoiled):
    assert "does not undo" in failed_claim(PAGE, converting("dequantize_per_tensor", **spoiled))


def test_a_wrong_zero_point_is_noticed():
    assert "starts at -128" in failed_claim(PAGE, converting(zero_point=1))


def test_ops_that_do_not_share_are_noticed():
    module = "executorch.backends.xnnpack.quantizer.xnnpack_quantizer"
    alone = preparing(f"import {module} as quantizers; quantizers.propagate_annotation = lambda gm: None")
    assert "no observer is shared" in failed_claim(PAGE, alone)


@pytest.mark.parametrize(("op", "message"), [("add_relu", "add is followed"), ("linear", "linear")])
def test_an_op_the_quantizer_forgets_is_noticed(op, message):
    assert message in failed_claim(PAGE, preparing(forgetting(op)))


def test_a_cat_the_quantizer_forgets_is_noticed():
    trained = "torch.manual_seed(0)\nprepared_cat"
    assert "not shared" in failed_claim(PAGE, replacing(trained, f"{forgetting('cat')}\n{trained}"))
