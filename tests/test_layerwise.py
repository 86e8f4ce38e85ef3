"""common.layerwise: the error by node is what an Interpreter finds, and two exports don't pass for equal."""

from common.data import calibration_batches, train_data
from common.folding import folded
from common.layerwise import outputs_by_node, sqnr_by_node
from common.metrics import sqnr_db
from common.models import example_inputs, get_model
from common.pt2e import ptq
from common.quantizers import PTQQuantizer

import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import get_symmetric_quantization_config

X = (train_data()[0][:8],)


def export():
    size = torch.export.Dim("batch", min=1, max=64)
    return torch.export.export(get_model("conv_relu"), example_inputs(2), dynamic_shapes=({0: size},))


def quantize(program):
    quantizer = PTQQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    return ptq(program.module(), quantizer, calibration_batches(32))


def test_the_last_node_has_the_error_of_the_output_by_hand():
    program = export()
    reference, quantized = folded(program.module(), X), quantize(program)
    by_node = sqnr_by_node(reference, quantized, X)
    assert list(by_node) == ["conv2d", "relu"]
    with torch.no_grad():
        assert by_node["relu"] == pytest.approx(sqnr_db(reference(*X), quantized(*X)), abs=1e-6)
    assert by_node["conv2d"] > 25


def test_a_graph_against_itself_has_no_error():
    reference = folded(export().module(), X)
    assert set(sqnr_by_node(reference, reference, X).values()) == {float("inf")}


def test_graphs_of_two_exports_are_refused():
    with pytest.raises(ValueError, match="same ExportedProgram"):
        sqnr_by_node(folded(export().module(), X), quantize(export()), X)


def test_what_is_paired_is_the_value_behind_q_and_dq():
    program = export()
    reference, quantized = folded(program.module(), X), quantize(program)
    fp32, actual = outputs_by_node(reference, quantized, X)["relu"]
    with torch.no_grad():
        assert torch.equal(fp32, reference(*X))
        assert torch.equal(actual, quantized(*X))
