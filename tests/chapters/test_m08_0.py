"""M08-0: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing, spoil_convert, spoil_observers

PAGE = "m08_executorch/0_overview.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    assert len(executed(PAGE)["pte"]) == 3872


@pytest.mark.parametrize("spoil", [spoil_observers, spoil_convert])
@pytest.mark.parametrize("spoiled", [{"scale": 1.1}, {"zero_point": 1}], ids=["scale x 1.1", "zero point + 1"])
def test_scales_and_zero_points_that_do_not_fit_the_data_are_noticed(monkeypatch, spoil, spoiled):
    spoil(monkeypatch, **spoiled)
    assert "the range" in failed_claim(PAGE)


def test_a_dequantize_that_does_not_undo_its_quantize_is_noticed(monkeypatch):
    spoil_convert(monkeypatch, "dequantize_per_tensor", scale=1.1)
    assert "does not undo" in failed_claim(PAGE)


def test_a_skipped_calibration_is_noticed():
    assert "no calibration?" in failed_claim(PAGE, replacing("        prepared(image)\n", "        pass\n"))


def test_a_pte_with_other_scales_than_the_graph_is_noticed():
    def lower_a_rescaled_copy(source):
        if "export(quantized, x)" not in source:
            return source
        rescale = """
other = copy.deepcopy(quantized)
for node in other.graph.nodes:
    if "quantize_per_tensor" in node.name:
        node.args = (node.args[0], node.args[1] * 1.1, *node.args[2:])
other.recompile()
"""
        return rescale + source.replace("export(quantized, x)", "export(other, x)")

    assert "the scale that convert wrote" in failed_claim(PAGE, lower_a_rescaled_copy)
