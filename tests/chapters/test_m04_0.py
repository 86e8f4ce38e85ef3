"""M04-0: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing
from torchao.quantization.pt2e import utils

PAGE = "m04_batchnorm/0_overview.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert page["by_torchao"][0].shape == (16, 3, 3, 3)
    assert set(page["wrong"]) == {0, 1}


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("torch.sqrt(bn.running_var + bn.eps)", "torch.sqrt(bn.running_var)", "not formula (2)"),
        ("bn.bias - a * bn.running_mean", "bn.bias + a * bn.running_mean", "not formula (2)"),
        ("a * b + d", "b + d", "with bias, torch.float64: more than rounding"),
        ('train(mode == "train")', "eval()", "don't matter in train mode"),
        ("module.reset_running_stats()", "module.eval()", "'cleared'"),
        ("sum(dim=(1, 2, 3))", "mean(dim=(1, 2, 3))", "wrong inside"),
    ],
)
def test_a_wrong_step_is_noticed(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))


def test_a_library_that_folds_something_else_is_noticed(monkeypatch):
    right = utils.fuse_conv_bn_weights

    def wrong(w, b, mean, var, eps, gamma, beta, **kwargs):
        return right(w, b, mean, var, 1e-3, gamma, beta, **kwargs)

    monkeypatch.setattr(utils, "fuse_conv_bn_weights", wrong)
    assert "not what formula (3) says" in failed_claim(PAGE)
