import copy
import dataclasses
import itertools

from common import qat
from common.pt2e import check_fake_quant

import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer
from torch import nn
from torchao.quantization.pt2e import FakeQuantize, FusedMovingAvgObsFakeQuantize, MovingAverageMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

SHORT = qat.Recipe(steps=4, freeze_bn=2, freeze_observers=3)


class SmallNet(nn.Module):
    """conv - BatchNorm - ReLU and a linear layer: `(N, 3, 16, 16)` -> `(N, 4)`."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(torch.relu(self.bn(self.conv(x))).mean((2, 3)))


def exported_net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = SmallNet()
    any_batch = ({0: torch.export.Dim("batch")},)
    return torch.export.export(net, (torch.ones(2, 3, 16, 16),), dynamic_shapes=any_batch).module()


@pytest.fixture(scope="module")
def prepared_once():
    with qat.conv2d_patterns_only():
        return prepare_qat_pt2e(exported_net(), XNNPACKQuantizer().set_global(qat.qat_config()))


@pytest.fixture
def prepared(prepared_once):
    return copy.deepcopy(prepared_once)


# --- Configurations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "top"), [(8, 127), (4, 7), (2, 1)])
@pytest.mark.parametrize("fused", [True, False])
def test_weights_get_the_integers_of_their_bits_and_activations_int8(bits, top, fused):
    config = qat.qat_config(bits, fused=fused)
    assert (config.weight.quant_min, config.weight.quant_max) == (-top, top)
    for spec in (config.input_activation, config.output_activation):
        assert (spec.quant_min, spec.quant_max) == (-128, 127)
        assert spec.qscheme == torch.per_tensor_affine
    assert config.weight.qscheme == torch.per_tensor_symmetric
    assert config.is_qat


@pytest.mark.parametrize(("fused", "kind"), [(True, FusedMovingAvgObsFakeQuantize), (False, FakeQuantize)])
def test_fused_chooses_the_class_of_fake_quantization(fused, kind):
    config = qat.qat_config(fused=fused)
    for spec in (config.input_activation, config.output_activation, config.weight):
        made = spec.observer_or_fake_quant_ctr(dtype=torch.int8, quant_min=spec.quant_min, quant_max=spec.quant_max)
        assert type(made) is kind
        assert type(made.activation_post_process) is MovingAverageMinMaxObserver


def test_the_range_of_a_weight_is_that_of_its_present_values_when_not_fused():
    weight_spec = qat.qat_config().weight
    made = weight_spec.observer_or_fake_quant_ctr(
        dtype=torch.int8, quant_min=-7, quant_max=7, qscheme=torch.per_tensor_symmetric
    )
    for weight in (torch.tensor([-3.5, 1.0]), torch.tensor([0.7, -0.2])):  # the second range is narrower
        made(weight)
        torch.testing.assert_close(made.scale, weight.abs().max().reshape(1) / 7)


def test_per_channel_without_fusing_is_refused():
    with pytest.raises(ValueError, match="per channel"):
        qat.qat_config(per_channel=True)
    assert qat.qat_config(per_channel=True, fused=True).weight.qscheme == torch.per_channel_symmetric


# --- Training ---------------------------------------------------------------------------------------------------------


def test_fake_quants_names_the_tensors(prepared):
    found = qat.fake_quants(prepared)
    assert {"x", "conv.weight", "relu", "fc.weight", "linear"} <= set(found)
    assert found["conv.weight"].quant_max == 7 and found["x"].quant_max == 127
    check_fake_quant(prepared)


def test_training_is_the_same_every_time_and_watch_sees_each_step(prepared):
    again = copy.deepcopy(prepared)
    steps = []
    losses = qat.train(prepared, SHORT, steps.append, batch_size=8)
    assert steps == [0, 1, 2, 3, 4]
    assert qat.train(again, SHORT, batch_size=8) == losses
    assert len(set(losses)) == 4


def test_batchnorm_and_scales_stay_from_their_step_on_and_weights_go_on(prepared):
    seen = []

    def watch(step):
        state = {name: value.clone() for name, value in prepared.state_dict().items()}
        scales = torch.cat([module.scale for module in qat.fake_quants(prepared).values()])
        seen.append((state["bn.running_mean"], scales, state["conv.weight"]))

    qat.train(prepared, SHORT, watch, batch_size=8)
    changed = [[not torch.equal(a, b) for a, b in zip(*pair, strict=True)] for pair in itertools.pairwise(seen)]
    # running mean, scales, weights; for each of the four steps
    assert changed == [[True, True, True], [True, True, True], [False, True, True], [False, False, True]]


def test_a_step_never_reached_freezes_nothing(prepared):
    recipe = dataclasses.replace(SHORT, freeze_bn=None, freeze_observers=None)
    qat.train(prepared, recipe, batch_size=8)
    assert all(module.observer_enabled.item() for module in qat.fake_quants(prepared).values())
    qat.freeze(prepared)
    assert not any(module.observer_enabled.item() for module in qat.fake_quants(prepared).values())


def test_watching_a_graph_in_training_leaves_it_alone(prepared):
    qat.train(prepared, SHORT, batch_size=8)
    before = {name: value.clone() for name, value in prepared.state_dict().items()}
    watcher = qat._Watcher(copy.deepcopy(prepared))
    share = watcher(prepared)
    assert 0 <= share <= 1 and share * 500 == pytest.approx(round(share * 500))
    assert all(torch.equal(value, before[name]) for name, value in prepared.state_dict().items())
    with torch.no_grad():
        prepared.get_parameter("fc.weight").zero_()
        prepared.get_parameter("fc.bias").copy_(torch.tensor([-9.0, -9.0, 9.0, -9.0]))
    labels = watcher.labels
    assert watcher(prepared) == pytest.approx((labels == 2).double().mean().item()), "the twin has old weights"


# --- The whole way, on TinyConvNet ------------------------------------------------------------------------------------


@pytest.mark.site
def test_looking_for_conv2d_alone_makes_the_same_graphs():
    """Against the library's own prepare and convert, which take some ten seconds."""

    def graphs():
        prepared = prepare_qat_pt2e(exported_net(), XNNPACKQuantizer().set_global(qat.qat_config()))
        before = prepared.code
        qat.train(prepared, SHORT, batch_size=8)
        return before, convert_pt2e(qat.freeze(prepared))

    plain_code, plain = graphs()
    with qat.conv2d_patterns_only():
        quick_code, quick = graphs()
    assert quick_code == plain_code
    assert quick.code == plain.code
    assert all(torch.equal(value, plain.state_dict()[name]) for name, value in quick.state_dict().items())


@pytest.mark.site
def test_what_was_trained_comes_back_and_converts_bit_for_bit(tmp_path, monkeypatch):
    """The configuration that isn't fused deploys what it trained with, so even logits are equal."""
    monkeypatch.setenv("PT2E_CACHE", str(tmp_path))
    run = qat.trained(SHORT)
    assert run.logits.shape == (2000, 4)
    assert len(run.losses) == 4 and list(run.accuracy) == [0]
    assert all(len(scales) == 5 for scales in run.scales.values())
    assert torch.equal(qat.test_logits(qat.restored(SHORT)), run.logits)
    assert torch.equal(qat.test_logits(qat.converted(SHORT)), run.logits)
