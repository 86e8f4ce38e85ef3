"""M03-1: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing

PAGE = "m03_quantizer/1_annotations.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert page["count"] == {(): 1, ("relu",): 1, ("conv2d_1",): 1, ("add",): 1, ("conv2d_1", "add"): 3}
    assert page.value("len(quantizer.foretold)") == 14


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("PTQQuantizer().set_global(config).annotate(quick)", "pass", "PTQQuantizer writes something else"),
        (
            "node.meta[KEY]._annotated = False\n        return model\n\n\ndef observed",
            "node.meta.pop(KEY)\n        return model\n\n\ndef observed",
            "prepare reads the mark",
        ),
        ("QuantizationAnnotation(_annotated=True)", "QuantizationAnnotation()", "not spared"),
        ("node.meta[KEY].allow_implicit_sharing = False", "node.meta[KEY].allow_implicit_sharing", "still shared"),
        ('prepared_without("conv2d_1")', 'prepared_without("relu_1")', "not spared"),
        ('prepared_without("relu_2")', 'prepared_without("add")', "add was spared, too"),
        ("{conv: histogram}", "{conv: replace(histogram, quant_min=-127)}", "ReLU's Histogram was used"),
        ("QuantizationAnnotation({x: activation})", "QuantizationAnnotation({conv: activation})", "wrong_key"),
        ('{**per_channel, "ch_axis": None}', "per_channel", "no ch_axis went through"),
        ("converted(old_namespace.MinMaxObserver)", "converted(MinMaxObserver)", "convert knows the old class"),
    ],
)
def test_a_claim_that_is_spoiled_is_noticed(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))
