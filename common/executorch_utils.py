"""From a model to a `.pte` and its result, with ExecuTorch and XNNPACK. M08 teaches the calls made here."""

import contextlib
import sys
from collections.abc import Iterator

from common.data import SIZE, calibration_batches
from common.env import CPU_DETECTION, capture_stderr, quiet, unexpected_lines
from common.pt2e import ptq

import executorch.kernels.quantized  # noqa: F401  # for to_executorch() where q/dq stay outside a delegate
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from executorch.exir import EdgeProgramManager, to_edge_transform_and_lower
from executorch.runtime import Runtime
from torch import nn
from torch.fx import GraphModule

quiet()

# executorch.kernels.quantized swallows the error when its library can't be loaded (executorch 1.5.1; happened on macOS
# with 1.4.0). Then to_executorch() fails much later, with "Missing out variants".
if not hasattr(torch.ops.quantized_decomposed.quantize_per_tensor, "out"):
    raise ImportError("executorch's quantized kernels (libquantized_ops_aot_lib) could not be loaded")

Inputs = torch.Tensor | tuple[torch.Tensor, ...]


def as_tuple(x: Inputs) -> tuple[torch.Tensor, ...]:
    """A single input as the tuple that a program takes."""
    return x if isinstance(x, tuple) else (x,)


def xnnpack_ptq(model: nn.Module, x: Inputs, n_calib: int = 32) -> GraphModule:
    """The Q/DQ graph of `model`: executorch's quantizer, per channel, calibrated on `n_calib` training images.

    `x` is one image `(1, 3, 16, 16)`, alone or in a tuple: the graph is exported for its shape and calibrated image by
    image. `model` has to be in eval mode and stays as it is.
    """
    example, wanted = as_tuple(x), (1, 3, SIZE, SIZE)
    shapes = [tuple(t.shape) for t in example]
    if shapes != [wanted]:
        raise ValueError(f"xnnpack_ptq calibrates on one image at a time, so x has shape {wanted}; got {shapes}")
    if model.training:
        raise ValueError("the model is in train mode; call eval() before exporting it for PTQ")
    exported = torch.export.export(model, example).module()
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    return ptq(exported, quantizer, calibration_batches(n_calib, batch_size=1))


def lower_to_xnnpack(gm: nn.Module, x: Inputs) -> tuple[EdgeProgramManager, bytes]:
    """`(edge, pte)`: the program in which XNNPACK took what it can, and the `.pte` file's bytes.

    `gm` is a Q/DQ graph or a float model in eval mode; `x` is its example input, alone or in a tuple.
    """
    exported = torch.export.export(gm, as_tuple(x))
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    return edge, bytes(edge.to_executorch().buffer)


@contextlib.contextmanager
def readable_errors(expected: tuple[str, ...] = ()) -> Iterator[None]:
    """Append what C++ writes on stderr to the RuntimeError it explains.

    Without an error, lines that aren't `expected` go on to stderr.
    """
    try:
        with capture_stderr() as captured:
            yield
    except RuntimeError as error:
        raise RuntimeError("\n".join([str(error), *unexpected_lines(captured.lines, expected)])) from error
    for line in unexpected_lines(captured.lines, expected):
        print(line, file=sys.stderr)


class PteRunner:
    """Runs the `forward` of a `.pte`: `PteRunner(pte)(x)` gives the first output.

    The runtime doesn't copy the file's bytes, and a method whose bytes are gone reads freed memory (executorch 1.5.1):
    the runner keeps both the bytes and the program. An input that doesn't fit raises RuntimeError with the reason that
    ExecuTorch only writes to stderr.
    """

    def __init__(self, pte: bytes) -> None:
        self.pte = bytes(pte)
        with readable_errors(expected=CPU_DETECTION):
            self.program = Runtime.get().load_program(self.pte)
            self.method = self.program.load_method("forward")
        self._last: torch.Tensor | None = None
        self._accepted: set[tuple] = set()

    @property
    def artifact_key(self) -> bytes:
        """What the runner is made of, for `common.artifacts`."""
        return self.pte

    def __call__(self, *inputs: Inputs) -> torch.Tensor:
        """The first output. Takes tensors, or the tuple that `example_inputs` returns."""
        if len(inputs) == 1 and isinstance(inputs[0], tuple):
            inputs = inputs[0]
        if len(inputs) == 1 and inputs[0] is self._last:  # no cost where latency is measured
            return self.method.execute(inputs)[0]
        layout = tuple((t.shape, t.stride(), t.dtype) for t in inputs)
        if layout in self._accepted:
            output = self.method.execute(inputs)[0]
        else:  # only C++ says what is wrong with an input, and only on stderr
            with readable_errors():
                output = self.method.execute(inputs)[0]
            self._accepted.add(layout)
        self._last = inputs[0] if len(inputs) == 1 else None
        return output
