"""M04-1: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing
from torchao.quantization.pt2e import utils

PAGE = "m04_batchnorm/1_ptq_folding.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert page["totals"] == {"export": 45, "fold": 25, "prepare": 39}
    assert len(page["silent"]) == 4


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("(bn.weight / torch.sqrt(bn.running_var + bn.eps))", "bn.weight", "not the factor of BN"),
        (
            "after = after_export.state_dict(), prepared",
            "after = after_export.state_dict(), exported",
            "still holds BN",
        ),
        ("dims = (1, 2, 3) if per_channel else (0, 1, 2, 3)", "dims = (0, 1, 2, 3)", "other integers"),
        (
            "lambda m, x: m.bn(m.conv(x)) + m.other(m.copy(-x))",
            "lambda m, x: m.bn(m.conv(x)) + m.bn(m.copy(-x))",
            "mended, but not the same model",
        ),
        (
            "lambda m, x: m.bn(y := m.conv(x)) + y",
            "lambda m, x: m.bn(m.conv(x)) + m.copy(x)",
            "second user: folded right",
        ),
        ("running_var[5] *= 64**2", "running_var[5] *= 64", "the folded weight is another one"),
    ],
)
def test_a_wrong_step_is_noticed(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))


def test_a_library_that_multiplies_the_models_own_weight_is_noticed(monkeypatch):
    right = utils.fuse_conv_bn_weights

    def in_place(w, *args, **kwargs):
        weight, bias = right(w, *args, **kwargs)
        w.data.copy_(weight.data)
        return weight, bias

    monkeypatch.setattr(utils, "fuse_conv_bn_weights", in_place)
    assert "changed" in failed_claim(PAGE)
