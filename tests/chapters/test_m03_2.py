"""M03-2: the page holds, and when a rule or a spec is spoiled, one of the page's own asserts fails."""

import pytest
from executorch.backends.xnnpack.quantizer import xnnpack_quantizer_utils
from runner import failed_claim, replacing, run_chapter

PAGE = "m03_quantizer/2_write_a_quantizer.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    names = run_chapter(PAGE)
    assert names["ours_out"].shape == (320, 4)
    assert names["ours_out"].unique().numel() > 100  # two constant outputs would be equal, too


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("qscheme=torch.per_channel_symmetric", "qscheme=torch.per_tensor_symmetric", "another spec for weights"),
        ("annotate(producer, inputs_of(producer), None)", "annotate(producer, inputs_of(producer), ACTIVATION)", "obs"),
        (" and readers(producer) == [node]:", ":", "ReadTwice"),
        (' if user.target != "_guards_fn"]', "]", ""),
        ("same = SharedQuantizationSpec(source)", "same = ACTIVATION", "ReadTwice"),
        ("fused(CONV | LINEAR | ADD, RELU)", "fused(CONV | LINEAR, RELU)", ""),
        ("RuleQuantizer(fused(CONV, CLAMP)).annotate(model)", "pass", "not fused"),
    ],
    ids=[
        "per-tensor weights",
        "an output spec inside the unit",
        "users are not counted",
        "guards are counted",
        "relu does not share",
        "add is not fused",
        "ReLU6 is not fused",
    ],
)
def test_a_spoiled_rule_is_noticed(old, new, message):
    assert message in failed_claim(PAGE, replacing(old, new))


def test_another_xnnpack_quantizer_is_noticed(monkeypatch):
    def forgets(*_):
        return None

    for name, annotator in xnnpack_quantizer_utils.OP_TO_ANNOTATOR.items():
        # Without add_relu, the thing spoiled; and without the search for QAT's patterns, nearly all of prepare's time.
        if name == "add_relu" or "_bn" in name:
            assert annotator
            monkeypatch.setitem(xnnpack_quantizer_utils.OP_TO_ANNOTATOR, name, forgets)
    failed_claim(PAGE)
