"""common.etdump: the kernels that a run executes."""

from common.etdump import xnnpack_kernels
from common.executorch_utils import lower_to_xnnpack
from common.models import example_inputs, get_model

X = example_inputs(1)


def test_a_float_convolution_runs_as_one_float_kernel(capfd):
    pte = lower_to_xnnpack(get_model("conv_relu"), X)[1]
    kernels = xnnpack_kernels(pte, X)
    assert [name for name in kernels if name.startswith("Convolution")] == ["Convolution (NHWC, F32) IGEMM"]
    assert kernels == xnnpack_kernels(pte, X[0]), "a tensor does as well as a tuple"
    assert not capfd.readouterr().err
