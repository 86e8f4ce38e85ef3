"""common.folding: the folded graph computes what the model computes, or is refused."""

import copy

from common.folding import folded
from common.models import example_inputs, get_model
from common.pt2e import ptq
from common.quantizers import PTQQuantizer

import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import get_symmetric_quantization_config
from torch import nn
from torchao.quantization.pt2e import (
    compare_results,
    extract_results_from_loggers,
    prepare_for_propagation_comparison,
)

BATCH_NORM = torch.ops.aten.batch_norm.default


def export(model):
    return torch.export.export(model, example_inputs(2)).module()


def batch_norms(gm):
    return len(gm.graph.find_nodes(op="call_function", target=BATCH_NORM))


def batch_norm(channels):
    """With statistics and parameters far from those that do nothing."""
    bn = nn.BatchNorm2d(channels)
    nn.init.uniform_(bn.running_mean, -1, 1)
    nn.init.uniform_(bn.running_var, 0.5, 2)
    nn.init.uniform_(bn.weight, 0.5, 2)
    return bn


class Wrong(nn.Module):
    """What prepare_pt2e folds wrongly; `kind` says which."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn, self.other = batch_norm(8), batch_norm(8)

    def forward(self, x):
        y = self.conv(x)
        if self.kind == "second reader":
            return self.bn(y) + y
        if self.kind == "two BatchNorms":
            return self.bn(y) + self.other(y)
        return self.bn(y) + self.other(self.conv(-x))


def test_the_folded_graph_computes_what_the_model_computes_without_batch_norm():
    model = get_model("tiny")
    reference = folded(export(model), example_inputs(2))
    assert batch_norms(reference) == 0
    assert not [node for node in reference.graph.nodes if node.op == "call_module" and "process" in node.target]
    with torch.no_grad():
        torch.testing.assert_close(reference(*example_inputs(2)), model(*example_inputs(2)))


def test_the_exported_graph_stays_as_it_is():
    model = get_model("tiny")
    exported = export(model)
    weights = copy.deepcopy(model.state_dict())
    folded(exported, example_inputs(2))
    assert batch_norms(exported) == 4
    for name, value in weights.items():
        assert torch.equal(exported.state_dict()[name], value), name
        assert torch.equal(model.state_dict()[name], value), name


@pytest.mark.parametrize("kind", ["second reader", "two BatchNorms", "called twice"])
def test_a_graph_that_folding_breaks_is_refused(kind):
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="changed output 0 by"):
        folded(export(Wrong(kind).eval()), example_inputs(2))


def test_a_graph_exported_in_train_mode_is_refused():
    model = get_model("tiny").train()
    exported = export(model)
    with pytest.raises(ValueError, match="changed output 0 by"):
        folded(exported, example_inputs(2))
    assert torch.equal(exported.get_buffer("stem_bn.running_mean"), model.stem_bn.running_mean)


def test_outputs_that_are_nan_are_refused():
    model = get_model("tiny")
    nn.init.constant_(model.stem_bn.running_var, -1)
    with pytest.raises(ValueError, match="by nan of its size"):
        folded(export(model), example_inputs(2))


def test_the_numeric_debugger_pairs_the_folded_graph_with_a_quantized_one_of_the_same_export():
    exported = export(get_model("tiny"))
    reference = folded(exported, example_inputs(2))
    quantizer = PTQQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    quantized = ptq(exported, quantizer, [example_inputs(2)])
    logged = [prepare_for_propagation_comparison(gm) for gm in (reference, quantized)]
    with torch.no_grad():
        for gm in logged:
            gm(*example_inputs(2))
    compared = compare_results(*(extract_results_from_loggers(gm) for gm in logged))
    sqnr_db = [summary.results[0].sqnr.item() for summary in compared.values()]
    assert len(sqnr_db) > 10
    assert min(sqnr_db) > 20, "with a reference that isn't folded, convolutions are near 0 dB"
