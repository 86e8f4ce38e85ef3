"""The BatchNorm folding of prepare_pt2e on its own, and a check of what it computes."""

import copy

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e
from torchao.quantization.pt2e.quantizer import Quantizer

# Folding only rounds differently: relative errors of 1e-7 on TinyConvNet, some 1e-5 on deep networks.
ROUNDING = 1e-4


class FoldOnly(Quantizer):
    """Annotates nothing, so that prepare_pt2e inserts no observer; it folds BatchNorm all the same."""

    def annotate(self, model: GraphModule) -> GraphModule:
        return model

    def validate(self, model: GraphModule) -> None:
        pass


def folded(exported: GraphModule, inputs: tuple[torch.Tensor, ...]) -> GraphModule:
    """A copy of `exported` in which BatchNorm is folded as prepare_pt2e folds it, and nothing is quantized.

    Its nodes pair with those of a Q/DQ graph made from the same `exported`. ValueError if the two graphs disagree on
    `inputs` by more than rounding, which nothing else reports (torchao 0.18.0): a convolution whose output is also used
    around BatchNorm, or that is called twice, and a model exported in train mode. `exported` stays as it is.
    """
    graph = copy.deepcopy(exported)
    with torch.no_grad():
        expected = tree_leaves(graph(*inputs))
        reference = prepare_pt2e(graph, FoldOnly())
        found = tree_leaves(reference(*inputs))
    for i, (before, after) in enumerate(zip(expected, found, strict=True)):
        size = before.double().norm().item()
        error = (after.double() - before.double()).norm().item() / (size or 1)
        if not error <= ROUNDING:
            raise ValueError(
                f"folding BatchNorm changed output {i} by {error:.2g} of its size, and rounding explains {ROUNDING:.0e}"
            )
    return reference
