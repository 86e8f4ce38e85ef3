"""M04-2: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing

PAGE = "m04_batchnorm/2_qat_conv_bn.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds_and_the_check_names_the_three_traps():
    page = executed(PAGE)
    printed = page.printed
    for message in ("bn is in eval mode", "bn: eps, momentum would be 1e-5, 0.1", "bn has a gamma of 0"):
        assert message in printed
    # Another factor of a channel multiplies its range, so its integers stay; only float32 rounding can move one.
    assert page["per_channel"] < 0.01 < page["per_tensor"]


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("unquantized.apply(disable_fake_quant)", "pass", "(2) does not hold"),
        ("running_var + 1e-5)", "running_var + 1e-3)", "(3) is"),
        ("/ a.view(1, -1, 1, 1)", "/ 1.1", "not of z"),
        ("running.append(integers(bn.running_var))", "running.append(integers(before_bn.var((0, 2, 3))))", "as calm"),
        ("move_exported_model_to_eval(prepared)\n", "pass\n", "(4) is off"),
        ("formula_4(deployed_scale), q", 'formula_4(by_input["mul"].scale), q', "(4) is off"),
        ("quantized.delete_all_unused_submodules()", "pass", "still there"),
        ("bn.running_var += bn.eps - 1e-5", "pass", "the output changed"),
        ("one_step_with_gamma(1e-3)", "one_step_with_gamma(-0.0)", "no remedy"),
    ],
    ids=[
        "fake quant left on",
        "another eps",
        "not divided back",
        "batch statistics",
        "still in training mode",
        "the scale of training",
        "leftovers",
        "eps not moved",
        "gamma 0",
    ],
)
def test_what_the_page_teaches_is_noticed_when_spoiled(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))
