"""What later chapters need of earlier ones around prepare_pt2e and convert_pt2e.

The library's own functions do the work; these add the checks it lacks. A page that teaches an API imports it from
torchao itself.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from common.env import quiet

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import FakeQuantizeBase, MinMaxObserver, ObserverBase, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import Quantizer

__all__ = [
    "MinMaxObserver",
    "OpCoverage",
    "PerChannelMinMaxObserver",
    "check_fake_quant",
    "check_observers_ran",
    "check_quantized",
    "count_qdq",
    "difference_in_lsb",
    "op_coverage",
    "output_qparams",
    "ptq",
    "quiet",
]


def ptq(exported: GraphModule, quantizer: Quantizer, batches: Iterable[tuple[torch.Tensor, ...]]) -> GraphModule:
    """The Q/DQ graph of `exported`: prepare, calibrate on `batches` of input tuples, convert.

    Changes `exported`, as prepare_pt2e does when it folds BatchNorm. Refuses with ValueError what the library lets
    pass: no calibration, a quantizer that annotated nothing, scales that are not finite.
    """
    prepared = prepare_pt2e(exported, quantizer)
    with torch.no_grad():
        for batch in batches:
            prepared(*batch)
    check_observers_ran(prepared)
    quantized = convert_pt2e(prepared)
    check_quantized(quantized)
    return quantized


# --- Before convert ---------------------------------------------------------------------------------------------------


def check_observers_ran(prepared: GraphModule) -> None:
    """Raise ValueError naming the places whose observer saw no data.

    Without it, convert_pt2e (torchao 0.18.0) only warns and uses scale 1.
    """
    unseen = []
    for node in prepared.graph.nodes:
        observer = _observer_of(prepared, node)
        if observer is None or not hasattr(observer, "min_val"):
            continue
        minimum = observer.min_val
        if minimum.numel() == 0 or bool((minimum == torch.inf).any()):
            unseen.append(f"{node.target} after {node.args[0]}")
    if unseen:
        raise ValueError(f"{len(unseen)} observers never saw data (was calibration forgotten?): {', '.join(unseen)}")


def check_fake_quant(prepared: GraphModule) -> None:
    """Raise ValueError if a model prepared for QAT holds no fake quantization.

    Without it, the model trains in float and nothing says so (torchao 0.18.0).
    """
    if any(isinstance(module, FakeQuantizeBase) for module in prepared.modules()):
        return
    kinds = Counter(type(module).__name__ for module in prepared.modules() if isinstance(module, ObserverBase))
    found = ", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "no observer at all"
    raise ValueError(f"no fake quantization to train with, but {found}: does the configuration say is_qat=True?")


def _observer_of(prepared: GraphModule, node: Node) -> torch.nn.Module | None:
    """The plain observer that `node` calls (that of a fake quantization included)."""
    if node.op != "call_module":
        return None
    module = prepared.get_submodule(node.target)
    if isinstance(module, FakeQuantizeBase):
        module = getattr(module, "activation_post_process", None)
    return module if isinstance(module, ObserverBase) else None


# --- After convert ----------------------------------------------------------------------------------------------------


def _op_name(node: Node) -> str:
    """`quantize_per_tensor`, `conv2d`, ...: the operator without namespace and overload."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.partition("::")[2]
    return getattr(node.target, "__name__", str(node.target))


def _is_quantize(node: object) -> bool:
    return isinstance(node, Node) and node.op == "call_function" and _op_name(node).startswith("quantize_per_")


def _is_dequantize(node: object) -> bool:
    return isinstance(node, Node) and node.op == "call_function" and _op_name(node).startswith("dequantize_per_")


def count_qdq(gm: GraphModule) -> Counter[str]:
    """How many quantize and dequantize nodes of each kind, such as `dequantize_per_channel`; other kinds count 0."""
    return Counter(_op_name(node) for node in gm.graph.nodes if _is_quantize(node) or _is_dequantize(node))


def check_quantized(gm: GraphModule) -> None:
    """Raise ValueError if nothing in `gm` is quantized, or a scale is zero, infinite or NaN."""
    if not count_qdq(gm):
        raise ValueError("nothing was quantized: was the quantizer given a configuration (set_global)?")
    for node in gm.graph.nodes:
        if not (_is_quantize(node) or _is_dequantize(node)) or len(node.args) < 2:
            continue
        scale = node.args[1]
        if isinstance(scale, Node):
            if scale.op != "get_attr":  # dynamic quantization computes it for each input
                continue
            scale = _attribute(gm, scale.target)
        scale = torch.as_tensor(scale)
        if not bool((torch.isfinite(scale) & (scale > 0)).all()):
            raise ValueError(f"the scale of {node.name} is {scale.tolist()}: did calibration see inf or NaN?")


def _attribute(gm: GraphModule, target: str) -> torch.Tensor:
    owner, _, name = target.rpartition(".")
    return getattr(gm.get_submodule(owner), name)


class OpCoverage(NamedTuple):
    """One operator of a prepared graph and whether the quantizer annotated it."""

    node: str
    op: str
    is_quantized: bool


def op_coverage(prepared: GraphModule) -> list[OpCoverage]:
    """For each operator of a **prepared** graph, in order, whether the quantizer annotated it.

    Observers, weights and guards are left out. Looking for q and dq around an operator in the Q/DQ graph would mislead:
    a float operator between two quantized ones has them too.
    """
    rows = []
    for node in prepared.graph.nodes:
        if node.op == "call_function":
            annotation = node.meta.get("quantization_annotation")
            rows.append(OpCoverage(node.name, _op_name(node), annotation is not None and annotation._annotated))
    return rows


class QParams(NamedTuple):
    """Scale and zero point of one tensor."""

    scale: float
    zero_point: int


def output_qparams(gm: GraphModule) -> QParams:
    """Scale and zero point of the last quantize_per_tensor of a Q/DQ graph, which is that of its output."""
    last = [node for node in gm.graph.nodes if _op_name(node) == "quantize_per_tensor"]
    if not last:
        raise ValueError("the graph has no quantize_per_tensor, so its output has no scale")
    scale, zero_point = last[-1].args[1:3]
    return QParams(float(scale), int(zero_point))


def difference_in_lsb(a: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor:
    """|a - b| in steps of `scale`, float64, the shape of the inputs.

    Between two results of one quantized output these are whole numbers.
    """
    return (a.double() - b.double()).abs() / scale
