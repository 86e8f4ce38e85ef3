"""M06-3: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing, spoiling

PAGE = "m06_qat/3_deployed_scales.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds_and_the_check_is_shown():
    page = executed(PAGE)
    # By hand: (n + 1/2) / (n + 1) and (n + 1/2) / n with n = 7.
    ratios, wider = page["ratios"], page["wider"]
    assert {name: round(ratios[name], 4) for name in wider} == {
        name: {"negative": 0.9375, "positive": 1.0714}[side] for name, side in wider.items()
    }
    assert len(wider) == 5
    assert "ValueError: logits up to " in page.printed
    assert "int symmetric_qmin = -((qmax - qmin) / 2 + 1);" in page.printed


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("= fake_quant.calculate_qparams()[0].item()", "= fake_quant.scale.item()", "not from calculate_qparams"),
        ("max(-low / (n + 1), high / n)", "max(-low / n, high / n)", "not (1)"),
        ("plain.scale.copy_(scale)", "plain.scale.copy_(fused.scale)", "not the scales"),
        ("if lsb > 1.5:", "if lsb > 255:", "the check let the fused 4-bit model through"),
        ("fused.scale.item() * fused.quant_max", "fused.scale.item() * 8", "not mended"),
        ("expected = {0.5: 15 / 16,", "expected = {0.5: 14 / 15,", "another ratio at 0.5"),
    ],
)
def test_a_claim_that_is_spoiled_is_noticed(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))


def test_a_converted_graph_with_another_scale_is_noticed():
    spoiled = spoiling("convert_pt2e(copy.deepcopy(prepared))", "spoil_convert", "dequantize_per_tensor", scale=1.1)
    assert "not from calculate_qparams" in failed_claim(PAGE, spoiled)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("r" * 100, "r" * 60 + "w" * 40, "only 60.00%"),
        ("r" * 60 + "w" * 40, "r" * 100, "better this time"),
        ("r" * 60 + "w" * 40, "w" + "r" * 60 + "w" * 39, "neither better nor worse"),
    ],
    ids=["worse", "better", "unclear"],
)
def test_what_convert_did_is_said_from_the_images(before, after, said):
    tensors = (f"torch.tensor({[image == 'r' for image in images]})" for images in (before, after))
    text = executed(PAGE).value(f"on_convert({', '.join(tensors)}).en")
    sentences = {"only 60.00%", "better this time", "neither better nor worse"}
    assert {sentence for sentence in sentences if sentence in text} == {said}
