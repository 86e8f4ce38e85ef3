"""What a `.pte` really executes, as ExecuTorch's own trace of a run tells. M08 teaches the calls made here."""

import tempfile
import warnings
from pathlib import Path

from common.env import CPU_DETECTION
from common.executorch_utils import Inputs, as_tuple, readable_errors

from executorch.devtools import Inspector
from executorch.runtime import Runtime


def xnnpack_kernels(pte: bytes, x: Inputs) -> list[str]:
    """The operations of all XNNPACK delegates in `pte`, in the order in which one run with `x` executes them.

    Names such as `Convolution (NHWC, QC8) IGEMM` for int8 and `Convolution (NHWC, F32) IGEMM` for float.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        trace, tensors = Path(folder, "run.etdp"), Path(folder, "debug.bin")
        with readable_errors(CPU_DETECTION):
            program = Runtime.get().load_program(pte, enable_etdump=True, debug_buffer_size=1_000_000)
            program.load_method("forward").execute(as_tuple(x))
            program.write_etdump_result_to_file(str(trace), str(tensors))
        warnings.filterwarnings("ignore", message="Output Buffer not found")  # we want names, not contents of tensors
        events = Inspector(etdump_path=str(trace)).event_blocks[-1].events
    return [event.name.rpartition(" #")[0] for event in events if event.is_delegated_op]
