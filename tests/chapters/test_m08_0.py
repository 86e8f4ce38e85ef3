"""M08-0: the page holds, and each thing it teaches makes one of its own asserts fail when it is spoiled."""

import common.data

import pytest
from runner import failed_claim, replacing, run_chapter, spoil_convert, spoil_observers

PAGE = "m08_executorch/0_overview.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    names = run_chapter(PAGE)
    assert len(names["pte"]) == 3872


@pytest.mark.parametrize("spoil", [spoil_observers, spoil_convert])
@pytest.mark.parametrize("spoiled", [{"scale": 1.1}, {"zero_point": 1}], ids=["scale x 1.1", "zero point + 1"])
def test_scales_and_zero_points_that_do_not_fit_the_data_are_noticed(monkeypatch, spoil, spoiled):
    spoil(monkeypatch, **spoiled)
    assert "the range" in failed_claim(PAGE)


@pytest.mark.parametrize("spoiled", [{"scale": 1.1}, {"zero_point": 1}], ids=["scale x 1.1", "zero point + 1"])
def test_a_dequantize_that_does_not_undo_its_quantize_is_noticed(monkeypatch, spoiled):
    spoil_convert(monkeypatch, "dequantize_per_tensor", **spoiled)
    assert "does not undo" in failed_claim(PAGE)


def test_a_skipped_calibration_is_noticed():
    assert "no calibration?" in failed_claim(PAGE, replacing("        prepared(image)\n", "        pass\n"))


def test_calibration_without_images_is_noticed(monkeypatch):
    monkeypatch.setattr(common.data, "calibration_batches", lambda n, batch_size: iter(()))
    assert "no calibration?" in failed_claim(PAGE)


RESCALED = """
rescaled = copy.deepcopy(quantized)
for node in calls(rescaled, ops.{op}.default):
    node.args = (node.args[0], node.args[1] * {scale}, node.args[2] + {zero_point}, *node.args[3:])
rescaled.recompile()
"""


@pytest.mark.parametrize("numbers", [{"scale": 1.1, "zero_point": 0}, {"scale": 1.0, "zero_point": 1}])
@pytest.mark.parametrize("op", ["quantize_per_tensor", "dequantize_per_tensor"])
def test_a_pte_made_from_other_numbers_than_the_graph_is_noticed(op, numbers):
    def lower_another_graph(source):
        if "torch.export.export(quantized, x)" not in source:
            return source
        return RESCALED.format(op=op, **numbers) + source.replace("export(quantized, x)", "export(rescaled, x)")

    failed_claim(PAGE, lower_another_graph)


def test_per_tensor_weights_instead_of_per_channel_ones_are_noticed():
    failed_claim(PAGE, replacing("is_per_channel=True", "is_per_channel=False"))
