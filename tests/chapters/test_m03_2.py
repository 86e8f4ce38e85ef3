"""M03-2: the page holds, and when a rule or a spec is spoiled, one of the page's own asserts fails."""

import pytest
from executorch.backends.xnnpack.quantizer import xnnpack_quantizer_utils
from runner import executed, failed_claim, replacing

PAGE = "m03_quantizer/2_write_a_quantizer.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert page["ours_out"].shape == (320, 4)
    assert page["ours_out"].unique().numel() > 100  # two constant outputs would be equal, too


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("qscheme=torch.per_channel_symmetric", "qscheme=torch.per_tensor_symmetric", "another spec for weights"),
        ("annotate(producer, inputs_of(producer), None)", "annotate(producer, inputs_of(producer), ACTIVATION)", "obs"),
        (" and list(producer.users) == [node]:", ":", "ReadTwice"),
        (" and KEY not in producer.meta", "", "the order of rules makes no difference"),
        ("same = SharedQuantizationSpec(source)", "same = ACTIVATION", "ReadTwice"),
        ("fused(CONV | LINEAR | ADD, RELU)", "fused(CONV | LINEAR, RELU)", ""),
        ("RuleQuantizer(fused(CONV, CLAMP)).annotate(model)", "pass", "not fused"),
    ],
    ids=[
        "per-tensor weights",
        "an output spec inside the unit",
        "users are not counted",
        "an earlier annotation is overwritten",
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
