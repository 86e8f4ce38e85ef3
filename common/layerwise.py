"""How far a Q/DQ graph is from its fp32 reference at each node. M05-2 builds this from torchao's parts."""

from common.metrics import sqnr_db

import torch
from torch.fx import GraphModule
from torchao.quantization.pt2e import (
    compare_results,
    extract_results_from_loggers,
    prepare_for_propagation_comparison,
)


def sqnr_by_node(reference: GraphModule, quantized: GraphModule, inputs: tuple[torch.Tensor, ...]) -> dict[str, float]:
    """SQNR in dB by the reference's node names, in its order; both graphs run once on the same `inputs`.

    Pass a reference with BatchNorm folded (`common.folding.folded`). ValueError as in `outputs_by_node`.
    """
    return {name: sqnr_db(*pair) for name, pair in outputs_by_node(reference, quantized, inputs).items()}


def outputs_by_node(
    reference: GraphModule, quantized: GraphModule, inputs: tuple[torch.Tensor, ...]
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """What each node returns in the reference and in the Q/DQ graph, by the reference's node names.

    In the Q/DQ graph that is the value behind a node's q and dq, where it has them. ValueError if no node pairs, which
    torchao 0.18.0 answers with an empty result: the graphs have to come from one ExportedProgram.
    """
    results = []
    for graph in (reference, quantized):
        logged = prepare_for_propagation_comparison(graph)
        with torch.no_grad():
            logged(*inputs)
        results.append(extract_results_from_loggers(logged))
    pairs = compare_results(*results)
    if not pairs:
        raise ValueError(
            "no node of one graph pairs with one of the other: do they come from the same ExportedProgram?"
        )
    return {key.name: (found.results[0].ref, found.results[0].actual) for key, found in pairs.items()}
