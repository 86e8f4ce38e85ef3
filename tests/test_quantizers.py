"""common.quantizers: PTQQuantizer writes what XNNPACKQuantizer writes."""

from common.models import example_inputs, get_model
from common.quantizers import PTQQuantizer

import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e


def places(quantizer):
    """Each inserted observer: its class, its object's number, and the node it watches."""
    exported = torch.export.export(get_model("tiny"), example_inputs(2)).module()
    config = get_symmetric_quantization_config(is_per_channel=True)
    prepared = prepare_pt2e(exported, quantizer.set_global(config))
    numbers = {}
    found = []
    for node in prepared.graph.nodes:
        if node.op == "call_module" and node.target.startswith("activation_post_process"):
            observer = getattr(prepared, node.target)
            number = numbers.setdefault(id(observer), len(numbers))
            found.append((type(observer).__name__, number, node.args[0].name))
    return found


def test_without_the_batch_norm_patterns_ptq_observes_the_same_places():
    quick = places(PTQQuantizer())
    assert len(quick) == 14
    assert quick == places(XNNPACKQuantizer())


def test_a_qat_configuration_is_refused():
    with pytest.raises(ValueError, match="QAT"):
        PTQQuantizer().set_global(get_symmetric_quantization_config(is_qat=True))
