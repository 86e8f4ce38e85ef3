"""M06-0: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing, spoiling

PAGE = "m06_qat/0_overview.py"
pytestmark = pytest.mark.site

FLOAT = "losses = train(copy.deepcopy(prepared).apply(disable_fake_quant))\n"


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    # By hand: 2 steps too low in all, so the two weights that lie 0.45 above their step go up.
    assert page["flips"] == [0, 1, 0, 0, 0, 0, 0, 1]
    # Per unit of the common input, rounding to the nearest is wrong by 2 steps of 0.1.
    mean_square = page.value("(inputs.mean(1) ** 2).mean().item()")
    assert page["output_error"]["nearest"] == pytest.approx(0.2 * mean_square**0.5, rel=0.05)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("losses = train(prepared)\n", FLOAT, "the loss doesn't see the rounding"),
        ("student = copy.deepcopy(model)", "student = model", "model was trained too"),
        ("quant_max=7,", "quant_max=14,", "the step isn't 0.1"),
        ("prepared.apply(disable_observer)", "pass", "training moved the step"),
        ("= convert_pt2e(copy.deepcopy(untrained))", "= convert_pt2e(copy.deepcopy(prepared))", "not the nearest"),
        ("lr=0.01)\n    schedule", "lr=0.0)\n    schedule", "training didn't help"),
        ('folded = before[conv + "weight"] * (', 'folded = before[conv + "weight"] / (', "saw the folded weight"),
        ("in_float.apply(disable_fake_quant)\n", "", "the loss sees a rounding"),
    ],
    ids=["in float", "no deepcopy", "integers", "moving range", "no PTQ", "no training", "folding", "solution"],
)
def test_what_the_page_teaches_is_noticed_when_it_is_left_out(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))


def test_a_deployed_scale_that_is_off_is_noticed():
    sabotage = spoiling("fake_quant = FakeQuantize", "spoil_convert", "dequantize_per_tensor", scale=1.1)
    assert "the step isn't 0.1" in failed_claim(PAGE, sabotage)
