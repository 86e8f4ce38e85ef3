"""M03-3: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing, run_chapter
from torchao.quantization.pt2e.quantizer.composable_quantizer import ComposableQuantizer

PAGE = "m03_quantizer/3_shared_and_derived.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert page.value("len(fates)") == 10
    assert len(page["b_int32"].unique()) > 4  # a bias of zeros would agree with any scale


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("**dict.fromkeys(others, same)}", "**dict.fromkeys(others, ACTIVATION)}", "more than one scale"),
        ("return s_x * s_w, torch", "return 1.1 * s_x * s_w, torch", "not the product of scales"),
        ("accumulator = (w_int8.int() * (window - z_x))", "accumulator = (w_int8.int() * (window - z_x - 1))", "(1)"),
        ("    zero_point=-128,", "    zero_point=-127,", "not as fixed"),
        ("scale=1 / 256,", "scale=1.1 / 256,", "not as fixed"),
        ('return lambda node: node.op == "get_attr" or belongs', "return lambda node: belongs", "should have B"),
        ("        node = node.args[0]\n", "        pass\n", "should have B"),
        ("    node.meta[KEY].output_qspec = None", "    pass", "the edit didn't last"),
        ('Q().set_module_name("0", A)', "Q().set_global(A)", "linear -> relu was fused"),
    ],
    ids=[
        "cat does not share",
        "scale of the bias x 1.1",
        "zero point of the input + 1",
        "fixed zero point + 1",
        "fixed scale x 1.1",
        "weights are filtered",
        "relu does not follow its conv",
        "nothing is edited in place",
        "linear is not named",
    ],
)
def test_what_the_page_writes_itself_is_noticed_when_spoiled(old, new, message):
    assert message in failed_claim(PAGE, replacing(old, new))


def test_a_composable_quantizer_that_validates_is_noticed(monkeypatch):
    def validate(self, model):
        for quantizer in self.quantizers:
            quantizer.validate(model)

    monkeypatch.setattr(ComposableQuantizer, "validate", validate)
    with pytest.raises(ValueError, match="I refuse"):
        run_chapter(PAGE)
