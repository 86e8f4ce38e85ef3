import gc
import os
import re
import subprocess
import sys

import common
from common import data, models
from common.env import CPU_DETECTION
from common.executorch_utils import PteRunner, lower_to_xnnpack, readable_errors, xnnpack_ptq
from common.pt2e import count_qdq, difference_in_lsb, output_qparams

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn

X = models.example_inputs(1)


@pytest.fixture(scope="module")
def conv_relu():
    """Q/DQ graph and `.pte` of the smallest model."""
    qdq = xnnpack_ptq(models.get_model("conv_relu"), X)
    return qdq, lower_to_xnnpack(qdq, X)[1]


@pytest.fixture(scope="module")
def tiny():
    """Q/DQ graph and `.pte` of the trained TinyConvNet."""
    model = models.trained_tinyconvnet()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    qdq = xnnpack_ptq(model, X)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items()), "the model stays"
    return qdq, lower_to_xnnpack(qdq, X)[1]


@pytest.fixture(scope="module")
def tiny_fp32():
    """The lowered program and `.pte` of the same model in float."""
    return lower_to_xnnpack(models.trained_tinyconvnet(), X)


def delegates(edge):
    return sum("executorch_call_delegate" in str(node.target) for node in edge.exported_program().graph.nodes)


def test_the_int8_pte_of_conv_relu_has_3872_bytes(conv_relu):
    assert len(conv_relu[1]) == 3872


def test_tinyconvnet_is_one_delegate_and_its_int8_pte_has_less_than_half_the_bytes(tiny, tiny_fp32):
    edge, fp32 = tiny_fp32
    assert delegates(edge) == 1
    assert len(fp32) / len(tiny[1]) > 2


@pytest.mark.parametrize("name", ["conv_relu", "tiny"])
def test_the_pte_computes_what_the_qdq_graph_computes(name, request):
    """At most one step of the output apart, over real images."""
    qdq, pte = request.getfixturevalue(name)
    runner, scale = PteRunner(pte), output_qparams(qdq).scale
    with torch.no_grad():
        for image in data.test_data()[0][:32].split(1):
            assert difference_in_lsb(runner(image), qdq(image), scale).max() < 1.01


def test_the_fp32_pte_computes_what_the_model_computes(tiny_fp32):
    with torch.no_grad():
        torch.testing.assert_close(PteRunner(tiny_fp32[1])(X), models.trained_tinyconvnet()(*X), rtol=1e-4, atol=1e-5)


def test_weights_are_quantized_per_channel(conv_relu):
    assert count_qdq(conv_relu[0])["dequantize_per_channel"] == 1


def test_a_tensor_will_do_for_the_tuple(conv_relu):
    qdq, pte = conv_relu
    assert lower_to_xnnpack(qdq, *X)[1] == pte
    runner = PteRunner(pte)
    assert torch.equal(runner(X), runner(*X))


@pytest.mark.parametrize("x", [models.example_inputs(2), *models.example_inputs(2)], ids=["tuple", "tensor"])
def test_another_input_shape_is_refused_with_both_shapes(x):
    with pytest.raises(ValueError, match=r"\(1, 3, 16, 16\); got \[\(2, 3, 16, 16\)\]"):
        xnnpack_ptq(models.get_model("conv_relu"), x)


def test_a_model_in_train_mode_is_refused():
    with pytest.raises(ValueError, match=r"call eval\(\)"):
        xnnpack_ptq(models.get_model("tiny").train(), X)


def test_quantization_left_outside_the_delegate_finds_its_kernels(conv_relu):
    """Needs executorch.kernels.quantized: without it, `Missing out variants`."""
    edge = to_edge_transform_and_lower(torch.export.export(conv_relu[0], X))
    portable = PteRunner(bytes(edge.to_executorch().buffer))
    assert delegates(edge) == 0
    assert difference_in_lsb(portable(X), PteRunner(conv_relu[1])(X), output_qparams(conv_relu[0]).scale).max() < 1.01


# --- The runner ---


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (torch.zeros(2, 3, 16, 16), r"0x10\n.*Expected shape \(1, 3, 16, 16\), but received \(2, 3, 16, 16\)"),
        (torch.zeros(1, 3, 16, 16, dtype=torch.float64), r"0x12\n.*expected Float but was Double"),
        (torch.zeros(3, 16, 16), r"0x10\n.*old=4, new=3"),
        (torch.zeros(1, 16, 16, 3).permute(0, 3, 2, 1), "contiguous or channels-last"),
    ],
    ids=["batch", "dtype", "rank", "layout"],
)
def test_a_wrong_input_says_why_in_the_exception_and_nothing_on_stderr(conv_relu, x, reason, capfd):
    runner = PteRunner(conv_relu[1])
    good = runner(X)
    with pytest.raises(RuntimeError, match=reason):
        runner(x)
    assert torch.equal(runner(X), good), "the method stays usable"
    assert capfd.readouterr().err == ""


def test_the_input_may_change_in_place_between_two_calls(conv_relu):
    runner, x = PteRunner(conv_relu[1]), X[0].clone()
    first = runner(x)
    x.mul_(-1)
    assert torch.equal(runner(x), PteRunner(conv_relu[1])(x))
    assert not torch.equal(runner(x), first)


def test_an_operator_without_kernel_is_named_when_loading():
    class Sort(nn.Module):
        def forward(self, x):
            return torch.sort(x, 1)[0]

    _, pte = lower_to_xnnpack(Sort(), X)
    with pytest.raises(RuntimeError, match=r"0x:14(.|\n)*kernel 'aten::sort.values' not found"):
        PteRunner(pte)


def test_a_truncated_file_is_refused_with_the_reason(conv_relu):
    with pytest.raises(RuntimeError, match=r"0x:23\n.*File size is too small"):
        PteRunner(conv_relu[1][:1000])


def test_the_runner_needs_nobody_else_to_keep_the_bytes(conv_relu):
    image = bytearray(conv_relu[1])
    runner = PteRunner(image)
    expected = runner(X)
    image[:] = bytes(len(image))
    del image
    gc.collect()
    junk = [bytes(len(conv_relu[1])) for _ in range(1000)]
    assert torch.equal(runner(X), expected)
    del junk


def test_import_and_first_load_are_silent_and_yet_the_libraries_do_talk(conv_relu, tmp_path):
    """The second half tells when an entry can go: each message that is dropped still exists."""
    path = tmp_path / "conv_relu.pte"
    path.write_bytes(conv_relu[1])
    with_common = f"from common.executorch_utils import PteRunner; PteRunner(open({str(path)!r}, 'rb').read())"
    without = f"""
import torchao.quantization.pt2e
import executorch.exir
from executorch.runtime import Runtime
Runtime.get().load_program({str(path)!r}).load_method('forward')
"""
    assert python(with_common) == ("", "")
    _, said = python(without, PYTHONWARNINGS="always")
    for noise in (*common.LOGGED_AT_IMPORT, *common.WARNED_AT_IMPORT):
        assert re.search(noise.message, said), f"{noise.package} no longer says: {noise.message}"
    if sys.platform == "linux":
        for pattern in CPU_DETECTION:
            assert re.search(pattern, said), f"ExecuTorch no longer says: {pattern}"


def python(code, **variables):
    """stdout and stderr of a fresh Python that runs `code`."""
    environment = {**os.environ, **variables}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return result.stdout, result.stderr


def test_a_line_that_nothing_expects_goes_on_to_stderr(capfd):
    with readable_errors(expected=(r"\[known\.cpp",)):
        os.write(2, b"[known.cpp:1] as always\n[new.cpp:2] watch out\n")
    assert capfd.readouterr().err == "[new.cpp:2] watch out\n"
