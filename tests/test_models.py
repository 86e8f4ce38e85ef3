from common import data, models

import pytest
import torch
import torch.nn.functional as F
from torch import nn


@pytest.mark.parametrize(("width", "parameters"), [(16, 9_940), (64, 150_340)])
def test_tinyconvnet_has_the_parameters_the_pages_name(width, parameters):
    assert sum(p.numel() for p in models.TinyConvNet(width).parameters()) == parameters


def test_no_convolution_of_tinyconvnet_has_a_bias_and_the_linear_layer_has():
    net = models.TinyConvNet()
    assert all(m.bias is None for m in net.modules() if isinstance(m, nn.Conv2d))
    assert net.fc.bias is not None


def test_tinyconvnet_computes_what_content_says():
    """The same network written out with torch's functions."""
    net = models.get_model("tiny")
    w = net.state_dict()

    def conv_bn(x, conv, bn):
        x = F.conv2d(x, w[f"{conv}.weight"], padding=1)
        statistics = (w[f"{bn}.running_mean"], w[f"{bn}.running_var"])
        return F.batch_norm(x, *statistics, w[f"{bn}.weight"], w[f"{bn}.bias"])

    (x,) = models.example_inputs(3)
    with torch.no_grad():
        stem = F.relu(conv_bn(x, "stem_conv", "stem_bn"))
        inner = F.relu(conv_bn(stem, "block.conv1", "block.bn1"))
        block = F.relu(conv_bn(inner, "block.conv2", "block.bn2") + stem)
        head = F.relu(conv_bn(block, "head_conv", "head_bn"))
        logits = F.linear(head.mean((2, 3)), w["fc.weight"], w["fc.bias"])
        torch.testing.assert_close(net(x), logits)


@pytest.mark.parametrize(("name", "shape"), [("conv_relu", (2, 8, 16, 16)), ("tiny", (2, 4)), ("tiny64", (2, 4))])
def test_get_model_is_the_same_every_time(name, shape):
    first, again, other = models.get_model(name), models.get_model(name), models.get_model(name, seed=1)
    x = models.example_inputs(2)
    with torch.no_grad():
        assert first(*x).shape == shape
        assert torch.equal(first(*x), again(*x))
        assert not torch.equal(first(*x), other(*x))
    assert not any(module.training for module in first.modules())


def test_folding_batchnorm_of_an_untrained_model_would_change_its_weights():
    net = models.get_model("tiny")
    factor = net.stem_bn.weight / torch.sqrt(net.stem_bn.running_var + net.stem_bn.eps)
    assert (factor - 1).abs().max() > 0.1
    assert net.stem_bn.running_mean.abs().max() > 0.1


def test_batchnorm_keeps_the_default_eps_and_momentum():
    """torchao 0.18.0 resets other values in silence when it moves an exported model between train and eval."""
    for module in models.TinyConvNet().modules():
        if isinstance(module, nn.BatchNorm2d):
            assert (module.eps, module.momentum) == (1e-5, 0.1)


def test_an_unknown_model_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match="no model 'resnet'; there are conv_relu, tiny, tiny64"):
        models.get_model("resnet")


def test_example_inputs_are_a_tuple_of_one_tensor_and_more_of_them_begin_alike():
    (one,), (four,) = models.example_inputs(1), models.example_inputs(4)
    assert one.shape == (1, 3, 16, 16) and four.shape == (4, 3, 16, 16)
    assert torch.equal(one[0], four[0])


def test_models_and_inputs_leave_the_global_random_state():
    before = torch.get_rng_state()
    models.get_model("tiny")
    models.example_inputs(2)
    models.trained_tinyconvnet()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_trained_model_reaches_the_accuracy_the_pages_rest_on():
    images, labels = data.test_data()
    net = models.trained_tinyconvnet()
    assert not net.training
    with torch.no_grad():
        accuracy = (net(images).argmax(1) == labels).double().mean().item()
    assert 0.93 <= accuracy <= 0.955


def test_each_call_returns_a_trained_model_of_its_own():
    spoiled = models.trained_tinyconvnet()
    with torch.no_grad():
        spoiled.fc.weight.zero_()
    assert models.trained_tinyconvnet().fc.weight.abs().max() > 0


def test_training_again_gives_the_same_bits_whatever_the_threads_and_the_random_state():
    threads = torch.get_num_threads()
    first = models._train(0, epochs=1)
    try:
        torch.set_num_threads(2)
        torch.manual_seed(123)
        again = models._train(0, epochs=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert list(first) == list(again)
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_one_thread_computes_inside_and_as_many_as_before_after_it_also_after_an_error():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyError), models.one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
