"""M06-1: the page holds, fails when one thing it teaches is spoiled, and says what made-up results deserve."""

from common.metrics import paired_interval_of_counts

import pytest
from runner import alone, executed, failed_claim, replacing

PAGE = "m06_qat/1_qat_loop.py"
PURE = {"points", "conclusions", "SENTENCES", "EFFORT"}

# Of 2000 images: (lost, gained) by QAT, and what the paired interval allows to say.
BETTER, WORSE, UNCLEAR = (paired_interval_of_counts(*counts, 2000) for counts in ((20, 800), (60, 20), (21, 19)))


@pytest.fixture(scope="module")
def page():
    """The page's functions that choose sentences, with the texts they choose from; nothing else of it runs."""
    imports = "from common.metrics import in_points, interval_in_points\nfrom common.viz import T"
    return alone(PAGE, PURE, imports)


def test_points_have_a_sign_and_the_interval(page):
    told = page["points"](BETTER)
    assert told.en.startswith("+39.0 points [+3")
    assert told.zh.startswith("+39.0 個百分點 [+3")
    assert page["points"](WORSE).en.startswith("−2.0 points [−")


SAYS = {
    ("PTQ", "better"): ("QAT 比較好", "QAT is better"),
    ("PTQ", "worse"): ("QAT 反而比較差", "QAT is worse"),
    ("PTQ", "unclear"): ("分不出高下", "nothing to be seen"),
    ("control", "better"): ("光是多訓練 200 步追不上", "200 more steps alone don't catch up"),
    ("control", "worse"): ("fake quant 沒有功勞", "fake quant gets no credit"),
    ("control", "unclear"): ("不能說功勞是 fake quant 的", "We can't credit fake quant"),
    ("fp32, 200 more steps", "better"): ("4 位元模型還更好", "even better"),
    ("fp32, 200 more steps", "worse"): ("4 位元剩下的代價", "what 4 bits still cost"),
    ("fp32, 200 more steps", "unclear"): ("看不出差別", "show no difference"),
}


@pytest.mark.parametrize("name", ["PTQ", "control", "fp32, 200 more steps"])
@pytest.mark.parametrize("found", [BETTER, WORSE, UNCLEAR], ids=lambda found: found.verdict)
def test_each_comparison_gets_the_sentence_of_its_verdict_and_no_other(page, name, found):
    (said,) = page["conclusions"]({name: found})
    for (other_name, verdict), (zh, en) in SAYS.items():
        if other_name == name:
            assert (zh in said.zh) == (en in said.en) == (verdict == found.verdict)
    assert page["points"](found).zh in said.zh and page["points"](found).en in said.en


def test_training_is_called_needless_unless_it_is_clearly_better(page):
    needless = {verdict: "no training is needed" in text.en for verdict, text in page["EFFORT"].items()}
    assert needless == {"better": False, "unclear": True, "worse": True}
    assert all(("不必訓練" in text.zh) == needless[verdict] for verdict, text in page["EFFORT"].items())


# --- The page itself --------------------------------------------------------------------------------------------------


@pytest.mark.site
def test_every_claim_of_the_page_holds_and_the_helper_is_its_loop():
    """common.qat.train, which later pages use, takes the very same steps."""
    from common import qat

    page = executed(PAGE)
    printed = " ".join(page.printed.split())
    assert "Guard failed" in printed
    assert "ValueError: no fake quantization to train with" in printed
    assert page["losses"] == qat.trained(qat.Recipe()).losses


ANOTHER_SCALE = """    quantized = convert_pt2e(prepared)
for node in quantized.graph.nodes:
    if "dequantize_per_tensor" in node.name and node.args[0].op == "get_attr":
        node.args = (node.args[0], 1.1 * node.args[1], *node.args[2:])
quantized.recompile()
"""


@pytest.mark.site
@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('FOUR_BITS = {"weight_qmin": -7, "weight_qmax": 7}', "FOUR_BITS = {}", "PTQ didn't visibly fail"),
        ("student = copy.deepcopy(model).train()", "student = model.train()", "training would change the fp32 model"),
        ("get_symmetric_quantization_config(**FOUR_BITS)\n    example", "qat_config()\n    example", "is_qat was set"),
        ("watched.apply(disable_observer)", "watched.apply(torch.ao.quantization.disable_observer)", "still moves"),
        ("move_exported_model_to_eval(restored)\n", "", "restored another model"),
        ("    quantized = convert_pt2e(prepared)\n", ANOTHER_SCALE, "convert moved it"),
        ("control_losses = train(export(control))", "control_losses = []", "not the same number of steps"),
    ],
    ids=["8 bits", "no deepcopy", "is_qat", "old switch", "BN's mode", "another scale", "no control"],
)
def test_what_the_page_teaches_is_noticed_when_it_is_left_out(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))
