"""M03-1: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import failed_claim, replacing, run_chapter

PAGE = "m03_quantizer/1_annotations.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    names = run_chapter(PAGE)
    assert names["count"] == {(): 1, ("relu",): 1, ("conv2d_1",): 1, ("add",): 1, ("conv2d_1", "add"): 3}
    assert len(names["quantizer"].foretold) == 14


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("PTQQuantizer().set_global(config).annotate(quick)", "pass", "PTQQuantizer writes something else"),
        (
            "node.meta[KEY]._annotated = False\n        return model\n\n\ndef observed",
            "node.meta.pop(KEY)\n        return model\n\n\ndef observed",
            "prepare reads the mark",
        ),
        ("QuantizationAnnotation(_annotated=True)", "QuantizationAnnotation()", "the conv of the group was annotated"),
        ("node.meta[KEY].allow_implicit_sharing = False", "node.meta[KEY].allow_implicit_sharing", "still shared"),
        ('"quant_min": {"quant_min": -127},', '"quant_min": {"quant_min": -128},', "quant_min makes no difference"),
        ("QuantizationAnnotation({x: activation})", "QuantizationAnnotation({conv: activation})", "wrong_key"),
        ('{**per_channel, "ch_axis": None}', "per_channel", "no ch_axis went through"),
        ("converted(old_namespace.MinMaxObserver)", "converted(MinMaxObserver)", "convert knows the old class"),
    ],
)
def test_a_claim_that_is_spoiled_is_noticed(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))
