"""M08-1: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing

PAGE = "m08_executorch/1_two_quantizers.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    answers = page["answers"]
    assert sum(mine != other for mine, other in answers.values()) == 6
    assert page["errors"]["`.pte`"][0] > 0  # the dynamic `.pte` is quantized, not fp32


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("make(library)), images)", 'make(library)), images[: 8 if library == "torchao" else 1])', "different graphs"),
        (
            "return quantizer.set_global(config_of(library))",
            'config = LIBRARIES[library].get_symmetric_quantization_config(is_per_channel=library == "torchao")\n'
            "    return quantizer.set_global(config)",
            "different graphs",
        ),
        ("q.set_operator_type(OP, s)", "q.set_operator_type(aten.conv2d, s)", "they differ in"),
        (
            'nn.Sequential(conv, nn.ReLU()),\n    "linear"',
            'nn.Sequential(conv, nn.Tanh()),\n    "linear"',
            "fp32: ['add']",
        ),
        (
            "PTQQuantizer().set_global(DYNAMIC))\nnot_q",
            "PTQQuantizer().set_global(STATIC))\nnot_q",
            "not the fp32 result",
        ),
        ("sizes = [100, 10, 1, 0.1]", "sizes = [1, 1, 1, 1]", "one scale was good enough"),
    ],
    ids=[
        "one of them is calibrated on less",
        "per-tensor for one of them",
        "an op type without its overload",
        "no relu behind the conv",
        "static instead of dynamic",
        "rows of one range",
    ],
)
def test_what_the_page_does_itself_is_noticed_when_spoiled(old, new, message):
    assert message in failed_claim(PAGE, replacing(old, new))
