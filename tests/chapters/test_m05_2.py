"""M05-2: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing

PAGE = "m05_accuracy/2_numeric_debugger.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert "Expected ep to be ExportedProgram, got <class 'type'>" in page.printed
    assert "'TinyConvNet' object has no attribute 'graph'" in page.printed
    assert "pairs across two exports: 0" in page.printed
    assert page.value("len(int8_db)") == 12


def test_a_reference_that_is_not_folded_is_noticed():
    exported = replacing("reference = folded(program.module(), (x,))", "reference = program.module()")
    assert "BatchNorm is still in the reference" in failed_claim(PAGE, exported)


def test_other_images_for_one_of_the_graphs_are_noticed():
    other = replacing(
        "            with_loggers(x)\n", "            with_loggers(x if gm is reference else x.flip(0))\n"
    )
    assert "looks broken" in failed_claim(PAGE, other)


def test_per_tensor_for_per_channel_is_noticed():
    swapped = replacing("quantize(is_per_channel=True, **FOUR_BITS)", "quantize(**FOUR_BITS)")
    assert "per-channel gains" in failed_claim(PAGE, swapped)


def test_eight_bits_for_four_are_noticed():
    eight = replacing('{"weight_qmin": -7, "weight_qmax": 7}', '{"weight_qmin": -127, "weight_qmax": 127}')
    assert "8 bits gain" in failed_claim(PAGE, eight)


def test_an_input_that_is_not_the_quantized_one_is_noticed():
    wrong = replacing("changed = [(x_q, w_q), (x_q, w), (x_, w_q)]", "changed = [(x_q, w_q), (x_, w), (x_, w_q)]")
    assert "don't add up" in failed_claim(PAGE, wrong)


def test_a_second_export_that_is_the_first_is_noticed():
    same = replacing(
        "other_program = torch.export.export(model, example, dynamic_shapes=shapes)", "other_program = program"
    )
    assert "pairs across two exports" in failed_claim(PAGE, same)


def test_a_dequantize_that_does_not_undo_its_quantize_is_noticed():
    spoiled = """gm = ptq(program.module(), quantizer, calibration_batches(256))
    for node in gm.graph.nodes:
        if "dequantize_per_tensor" in str(node.target):
            node.args = (node.args[0], node.args[1] * 1.1, *node.args[2:])
    gm.recompile()
    return gm"""
    wrong = replacing("return ptq(program.module(), quantizer, calibration_batches(256))", spoiled)
    assert "of accuracy" in failed_claim(PAGE, wrong)
