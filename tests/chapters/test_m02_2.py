"""M02-2: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing, spoiling

PAGE = "m02_observers/2_fake_quant.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds_and_the_messages_are_shown(capsys):
    page = executed(PAGE)
    # By hand: (n + 1/2) / (n + 1) and (n + 1/2) / n with n = 7.
    assert page["ratios"]["negative", 7] == pytest.approx(15 / 16, abs=1e-4)
    assert page["ratios"]["positive", 7] == pytest.approx(15 / 14, abs=1e-4)
    printed = " ".join(capsys.readouterr().out.split())
    for message in (
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
        "AssertionError: quant_min out of bound",
        "Fused observer+fake_quant module only works with MovingAverageMinMaxObserver",
    ):
        assert message in printed


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("return s * (q - z)", "return 1.1 * s * (q - z)", "not the formula"),
        ("return s * (q - z)", "return s * (q - z - 1)", "not the formula"),
        ("q = (x * (1 / s)).round() + z\n", "q = (x * (1 / s)).round() + z + 1\n", "not (1)"),
        ("fused = max(-low / (n + 1), high / n)", "fused = max(-low / n, high / n)", "not (2)"),
    ],
    ids=["scale x 1.1", "zero point + 1", "mask", "(2)"],
)
def test_a_formula_that_is_slightly_off_is_noticed(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))


def test_a_configuration_without_is_qat_is_noticed():
    assert "instead of x, weight and relu" in failed_claim(PAGE, without_qat)


def without_qat(source):
    """Plain observers are in the graph, and the weight still gets a gradient: only the count of fake quants tells."""
    return source.replace("config(is_qat=True, **four_bits)", "config(**four_bits)")


def test_observers_with_another_scale_than_the_kernel_are_noticed():
    wrong = spoiling("activation = torch.linspace(-1, 3, 1001)", "spoil_observers", scale=1.1)
    assert "they differ" in failed_claim(PAGE, wrong)


def test_a_converted_graph_with_another_scale_is_noticed():
    wrong = spoiling("four_bits = {", "spoil_convert", "dequantize_per_tensor", scale=1.1)
    assert "not from calculate_qparams" in failed_claim(PAGE, wrong)
