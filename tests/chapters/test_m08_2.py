"""M08-2: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing

PAGE = "m08_executorch/2_to_pte.py"
pytestmark = pytest.mark.site


@pytest.fixture
def page():
    return executed(PAGE)


def test_every_claim_of_the_page_holds(page):
    assert page["before"].max() == 1  # the bias has something to explain
    assert page["largest"] >= 8


@pytest.mark.parametrize(
    ("before", "after", "says", "says_not"),
    [(65, 0, "only cause", "%"), (100, 25, "explains 75%", "only cause")],
    ids=["all of it", "a part of it"],
)
def test_the_bias_is_credited_with_what_it_explains(page, before, after, says, says_not):
    said = page.value("what_bias_explains(before, after)", before=before, after=after).en
    assert says in said
    assert says_not not in said


def test_processes_that_got_away_with_freed_memory_are_called_lucky(page):
    assert "luck" in page.value("what_dropping_did(failed)", failed=0).en
    assert "7 of 10 processes failed" in page.value("what_dropping_did(failed)", failed=7).en
    assert "7 個失敗" in page.value("what_dropping_did(failed)", failed=7).zh


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lower_to_xnnpack(model, X)\nwide", "lower_to_xnnpack(quantized, X)\nwide", "ratios"),
        ("output_qparams(quantized).scale\n\n", "output_qparams(quantized).scale / 2\n\n", "more than one LSB"),
        ("step = x_dq.args[1] *", "step = 50 * x_dq.args[1] *", "bias explains little"),
        ("channels_last.permute(0, 2, 3, 1).reshape(x.shape)", "x", "it isn't read as NCHW"),
    ],
    ids=["int8 for fp32", "another scale than the graph's", "biases on a coarser grid", "memory in another order"],
)
def test_what_the_page_does_itself_is_noticed_when_spoiled(old, new, message):
    assert message in failed_claim(PAGE, replacing(old, new))
