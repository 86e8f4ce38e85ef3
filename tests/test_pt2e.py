import copy

from common import data, models, pt2e

import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e


def per_channel(**options):
    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True, **options))


def exported(model, n=1):
    return torch.export.export(model, models.example_inputs(n)).module()


class ConvSigmoidConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 1)
        self.second = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return self.second(torch.sigmoid(self.first(x)))


@pytest.fixture(scope="module")
def tiny():
    """The prepared TinyConvNet after calibration, and its Q/DQ graph."""
    prepared = prepare_pt2e(exported(models.get_model("tiny")), per_channel())
    with torch.no_grad():
        for batch in data.calibration_batches(4, batch_size=1):
            prepared(*batch)
    coverage = pt2e.op_coverage(prepared)
    return coverage, convert_pt2e(prepared)


def test_a_quantized_tinyconvnet_counts_its_q_and_dq(tiny):
    """Five weights, folded to int8, have only a dq; the skip connection has two readers, so one dq more than q."""
    counts = pt2e.count_qdq(tiny[1])
    assert counts == {"quantize_per_tensor": 9, "dequantize_per_tensor": 10, "dequantize_per_channel": 5}
    assert counts["quantize_per_channel"] == 0


def test_a_float_graph_counts_nothing():
    assert not pt2e.count_qdq(exported(models.get_model("conv_relu")))


def test_every_operator_of_tinyconvnet_is_covered_but_none_of_the_bookkeeping_is_listed(tiny):
    coverage, _ = tiny
    ops = [row.op for row in coverage]
    assert (ops.count("conv2d"), ops.count("linear"), ops.count("batch_norm")) == (4, 1, 0)
    assert {row.op for row in coverage if not row.is_quantized} <= {"flatten"}


def test_a_float_operator_between_quantized_ones_is_reported():
    prepared = prepare_pt2e(exported(ConvSigmoidConv().eval()), per_channel())
    assert [(row.op, row.is_quantized) for row in pt2e.op_coverage(prepared)] == [
        ("conv2d", True),
        ("sigmoid", False),
        ("conv2d", True),
    ]


def test_outputs_are_whole_steps_of_the_output_scale(tiny):
    qdq = tiny[1]
    scale, zero_point = pt2e.output_qparams(qdq)
    with torch.no_grad():
        output = qdq(*models.example_inputs(1))
    steps = pt2e.difference_in_lsb(output, torch.zeros_like(output), scale)
    assert torch.equal(steps.round(), steps.round(decimals=4))
    levels = (output.double() / scale).round() + zero_point
    assert levels.min() >= -128 and levels.max() <= 127


def test_a_difference_of_three_quarters_is_three_steps_of_a_quarter():
    a, b = torch.tensor([1.0, 1.0]), torch.tensor([0.25, 1.0])
    assert pt2e.difference_in_lsb(a, b, 0.25).tolist() == [3.0, 0.0]


def test_a_graph_without_quantization_has_no_output_scale():
    with pytest.raises(ValueError, match="no quantize_per_tensor"):
        pt2e.output_qparams(exported(models.get_model("conv_relu")))


@pytest.fixture(scope="module")
def conv_relu():
    """A Q/DQ graph by the helper, and the images it was calibrated on."""
    batches = list(data.calibration_batches(4, batch_size=1))
    return pt2e.ptq(exported(models.get_model("conv_relu")), per_channel(), batches), batches


def test_ptq_gives_what_the_three_calls_give(conv_relu):
    by_helper, batches = conv_relu
    by_hand = prepare_pt2e(exported(models.get_model("conv_relu")), per_channel())
    with torch.no_grad():
        for batch in batches:
            by_hand(*batch)
        by_hand = convert_pt2e(by_hand)
        assert torch.equal(by_hand(*batches[0]), by_helper(*batches[0]))


def test_calibration_without_batches_is_refused_with_the_places():
    with pytest.raises(ValueError, match=r"3 observers never saw data .*after conv_weight, .*after x, .*after relu"):
        pt2e.ptq(exported(models.get_model("conv_relu")), per_channel(), [])


def test_a_quantizer_without_configuration_is_refused():
    with pytest.raises(ValueError, match="nothing was quantized"):
        pt2e.ptq(exported(models.get_model("conv_relu")), XNNPACKQuantizer(), data.calibration_batches(1))


@pytest.mark.parametrize("scale", [float("inf"), float("nan"), 0.0])
def test_a_scale_that_is_no_positive_number_is_refused(scale, conv_relu):
    """Put in by hand here; MinMaxObserver gives inf when calibration sees inf."""
    qdq = copy.deepcopy(conv_relu[0])
    pt2e.check_quantized(qdq)
    first = next(node for node in qdq.graph.nodes if node.name.startswith("quantize_per_tensor"))
    first.update_arg(1, scale)
    with pytest.raises(ValueError, match=f"the scale of quantize_per_tensor_default is {scale}"):
        pt2e.check_quantized(qdq)


def test_a_per_channel_scale_that_is_no_positive_number_is_refused(conv_relu):
    qdq = copy.deepcopy(conv_relu[0])
    weight = next(node for node in qdq.graph.nodes if node.name.startswith("dequantize_per_channel"))
    getattr(qdq, weight.args[1].target)[5] = float("inf")
    with pytest.raises(ValueError, match=r"the scale of dequantize_per_channel\S* is \[.*inf"):
        pt2e.check_quantized(qdq)


def test_a_dynamic_graph_whose_scales_come_with_the_input_is_accepted():
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 4)).eval()
    qdq = pt2e.ptq(exported(model), per_channel(is_dynamic=True), data.calibration_batches(1))
    assert pt2e.count_qdq(qdq)["quantize_per_tensor"] == 1


def test_qat_without_fake_quantization_is_refused_and_says_what_is_there_instead():
    model = models.get_model("conv_relu").train()
    with pytest.raises(ValueError, match=r"but 1 PerChannelMinMaxObserver, 2 HistogramObserver: .*is_qat=True"):
        pt2e.check_fake_quant(prepare_qat_pt2e(exported(model, 2), per_channel()))


def test_qat_with_fake_quantization_is_accepted_and_its_observers_are_watched_too():
    prepared = prepare_qat_pt2e(exported(models.get_model("conv_relu").train(), 2), per_channel(is_qat=True))
    pt2e.check_fake_quant(prepared)
    with pytest.raises(ValueError, match="3 observers never saw data"):
        pt2e.check_observers_ran(prepared)
    prepared(*models.example_inputs(2))
    pt2e.check_observers_ran(prepared)
