"""What the pages on QAT share: configurations, the training loop of M06-1 with a schedule, and what it trained.

M06-1 writes the loop out with the library's own calls. Training and converting take many seconds, so `trained` and
`converted` keep their results as artifacts.
"""

import contextlib
import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

from common.artifacts import cached
from common.data import test_data, train_data
from common.models import example_inputs, one_thread, trained_tinyconvnet

import torch
import torch.nn.functional as F
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import (
    FakeQuantize,
    FakeQuantizeBase,
    MovingAverageMinMaxObserver,
    disable_observer,
    move_exported_model_to_eval,
    qat_utils,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationConfig, QuantizationSpec


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One QAT run from start to end: which trained model, which configuration, which schedule.

    `freeze_bn` and `freeze_observers` are the steps from which BatchNorm normalizes with its running statistics and the
    scales stay as they are; None is never. `fused` is torchao's own fake quantization, of which M06-3 tells more.
    """

    seed: int = 0
    bits: int = 4
    per_channel: bool = False
    fused: bool = False
    steps: int = 200
    freeze_bn: int | None = 100
    freeze_observers: int | None = 160
    cosine: bool = True
    learning_rate: float = 1e-3


# --- Configurations ---------------------------------------------------------------------------------------------------


def qat_config(bits: int = 4, *, per_channel: bool = False, fused: bool = False) -> QuantizationConfig:
    """Weights of `bits` bits, symmetric (4: integers -7 to 7); activations of 8 bits.

    Fused is the configuration that XNNPACKQuantizer brings along. The other has FakeQuantize in the same places, with
    the range of a weight taken from the weight as it is now.
    """
    top = 2 ** (bits - 1) - 1
    config = get_symmetric_quantization_config(per_channel, is_qat=True, weight_qmin=-top, weight_qmax=top)
    if fused:
        return config
    if per_channel:
        raise ValueError("FakeQuantize per channel is not offered here: choose fused=True or per_channel=False")
    activation = _not_fused(config.input_activation, averaging_constant=0.01)
    weight = _not_fused(config.weight, averaging_constant=1.0)
    return QuantizationConfig(activation, activation, weight, bias=None, is_qat=True)


def _not_fused(spec: QuantizationSpec, averaging_constant: float) -> QuantizationSpec:
    observer = MovingAverageMinMaxObserver.with_args(averaging_constant=averaging_constant)
    fake_quant = FakeQuantize.with_args(observer=observer, eps=2**-12)
    return dataclasses.replace(spec, observer_or_fake_quant_ctr=fake_quant)


# --- Prepare, train, convert ------------------------------------------------------------------------------------------


def prepare(recipe: Recipe) -> GraphModule:
    """The trained model `recipe.seed`, exported in train mode for any batch size, with fake quantization in it.

    It is a copy: training it leaves the trained model alone.
    """
    model = trained_tinyconvnet(recipe.seed).train()
    any_batch = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(model, example_inputs(2), dynamic_shapes=any_batch).module()
    config = qat_config(recipe.bits, per_channel=recipe.per_channel, fused=recipe.fused)
    with conv2d_patterns_only():
        return prepare_qat_pt2e(exported, XNNPACKQuantizer().set_global(config))


def train(
    prepared: GraphModule, recipe: Recipe, watch: Callable[[int], Any] = lambda step: None, batch_size: int = 64
) -> list[float]:
    """The loss of each step; changes `prepared`. The same images in the same order every time.

    `watch(step)` is called before each step and once more after the last.
    """
    images, labels = train_data()
    generator = torch.Generator().manual_seed(0)
    epochs = math.ceil(recipe.steps * batch_size / len(images))
    order = torch.cat([torch.randperm(len(images), generator=generator) for _ in range(epochs)])
    optimizer = torch.optim.Adam(prepared.parameters(), lr=recipe.learning_rate)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.steps) if recipe.cosine else None
    losses = []
    for step, chosen in enumerate(order.split(batch_size)[: recipe.steps]):
        if step == recipe.freeze_bn:
            move_exported_model_to_eval(prepared)
        if step == recipe.freeze_observers:
            prepared.apply(disable_observer)
        watch(step)
        loss = F.cross_entropy(prepared(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if cosine:
            cosine.step()
        losses.append(loss.item())
    watch(recipe.steps)
    return losses


def freeze(prepared: GraphModule) -> GraphModule:
    """`prepared` itself, ready to be evaluated or converted: BatchNorm on running statistics, scales fixed."""
    move_exported_model_to_eval(prepared)
    return prepared.apply(disable_observer)


def test_logits(model: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Logits `(2000, 4)` of the course's test images, without gradients."""
    with torch.no_grad():
        return model(test_data()[0])


test_logits.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it where it is imported


def fake_quants(prepared: GraphModule) -> dict[str, FakeQuantizeBase]:
    """The fake quantization of each tensor; a shared one comes once for each of its tensors.

    Weights go by their parameter (`stem_conv.weight`: its fake quantization sees it with BatchNorm's factor), outputs
    of BatchNorm by their module (`block.bn2`), other tensors by their node (`relu_1`).
    """
    found = {}
    for node in prepared.graph.nodes:
        module = prepared.get_submodule(node.target) if node.op == "call_module" else None
        if isinstance(module, FakeQuantizeBase):
            found[_tensor_name(node.args[0])] = module
    return found


def _tensor_name(node: Node) -> str:
    aten = torch.ops.aten
    if node.target == aten.mul.Tensor and node.args[0].op == "get_attr":
        return node.args[0].target
    if node.target == aten.batch_norm.default:
        return node.args[1].target.removesuffix(".weight")
    return node.target if node.op == "get_attr" else node.name


@contextlib.contextmanager
def conv2d_patterns_only() -> Iterator[None]:
    """Inside, prepare_qat_pt2e and convert_pt2e look for BatchNorm after conv2d only, and take a third of their time.

    The graphs are the same for a model without other convolutions. torchao 0.18.0 (qat_utils.py) also searches for
    conv1d and both transposed ones, and exports dozens of pattern graphs for each. Delete this when it searches only
    for what the model has.
    """

    def for_conv2d_alone(search: Callable[..., GraphModule]) -> Callable[..., GraphModule]:
        return lambda gm, conv, *args, **kwargs: search(gm, conv, *args, **kwargs) if conv is F.conv2d else gm

    names = "_fuse_conv_bn_qat_helper", "_fold_conv_bn_qat_helper"  # in prepare, in convert
    with mock.patch.multiple(qat_utils, **{name: for_conv2d_alone(getattr(qat_utils, name)) for name in names}):
        yield


# --- Kept as artifacts ------------------------------------------------------------------------------------------------


class Trained(NamedTuple):
    """What `trained` gives back. Lists have one number for each step, unless said otherwise."""

    state: dict[str, torch.Tensor]  # of the prepared graph after `freeze`
    logits: torch.Tensor  # (2000, 4), of the prepared graph after `freeze`, on the test images
    losses: list[float]
    scales: dict[
        str, list[float]
    ]  # by tensor as in fake_quants; before each step and after the last (1 before the first); the largest channel's
    accuracy: dict[int, float]  # by step: of the graph as `freeze` would leave it, on the first 500 test images


def trained(recipe: Recipe) -> Trained:
    """The recipe's training, done once: some 15 s, then from the artifacts."""
    return Trained(**cached("qat-trained", functools.partial(_train, recipe)))


def restored(recipe: Recipe) -> GraphModule:
    """The prepared graph as `trained` left it, frozen. Takes the time of prepare_qat_pt2e."""
    prepared = freeze(prepare(recipe))
    prepared.load_state_dict(trained(recipe).state)
    return prepared


def converted(recipe: Recipe) -> GraphModule:
    """The Q/DQ graph of the recipe's trained model, for any batch size; converted once, then from the artifacts."""
    return cached("qat-converted", functools.partial(_convert, recipe)).module()


def _train(recipe: Recipe) -> dict[str, Any]:
    prepared = prepare(recipe)
    accuracy_of = _Watcher(copy.deepcopy(prepared))
    scales: dict[str, list[float]] = {name: [] for name in fake_quants(prepared)}
    accuracy: dict[int, float] = {}

    def watch(step: int) -> None:
        for name, fake_quant in fake_quants(prepared).items():
            scales[name].append(fake_quant.scale.max().item())
        if step % 10 == 0:
            accuracy[step] = accuracy_of(prepared)

    with one_thread():  # two would give other weights
        losses = train(prepared, recipe, watch)
        logits = test_logits(freeze(prepared))
    state = {name: value.detach().clone() for name, value in prepared.state_dict().items()}
    return {"state": state, "logits": logits, "losses": losses, "scales": scales, "accuracy": accuracy}


class _Watcher:
    """Evaluates a graph in training without touching it, in a second, frozen graph that gets its state."""

    def __init__(self, twin: GraphModule) -> None:
        self.twin = freeze(twin)
        images, labels = test_data()
        self.images, self.labels = images[:500], labels[:500]

    def __call__(self, prepared: GraphModule) -> float:
        self.twin.load_state_dict(prepared.state_dict())
        self.twin.apply(disable_observer)  # the state has put the switch back on
        with torch.no_grad():
            return (self.twin(self.images).argmax(1) == self.labels).double().mean().item()


def _convert(recipe: Recipe) -> torch.export.ExportedProgram:
    with conv2d_patterns_only():
        quantized = convert_pt2e(restored(recipe))
    return torch.export.export(quantized, example_inputs(2), dynamic_shapes=({0: torch.export.Dim("batch")},))
