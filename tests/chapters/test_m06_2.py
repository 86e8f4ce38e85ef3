"""M06-2: the page holds, its conclusions follow from the numbers, and a claim that is spoiled fails."""

import pytest
from runner import executed, failed_claim, replacing

PAGE = "m06_qat/2_schedule.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert page["moved"]["both frozen"] == ({"parameters"}, set())
    # Half the way at 1 - 0.99^t >= 1/2.
    assert 0.99 ** page["by_formula"] <= 0.5 < 0.99 ** (page["by_formula"] - 1)
    assert page.value("[len(group) for group in runs.values()]") == [3, 3, 3, 3]
    assert page.value("{name: len(group) for name, group in changes.items()}") == {
        "constant learning rate": 3,
        "BN never frozen": 3,
        "observers never frozen": 3,
    }


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('move_exported_model_to_eval(prepared)\nmoved["BN', 'pass\nmoved["BN', "something else moved"),
        ('prepared.apply(disable_observer)\nmoved["both', 'pass\nmoved["both', "something else moved"),
        ("(averaging_constant=c)", "(averaging_constant=c / 2)", "not (1)"),
        ("math.log(1 - 0.01)", "math.log(1 - 0.02)", "35 steps"),
        ("frozen, moving = ", "moving, frozen = ", "moved after disable_observer"),
        ("too_early.apply(disable_observer)", "pass", "an observer has seen something"),
    ],
)
def test_a_claim_that_is_spoiled_is_noticed(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))


WORSE, BETTER, UNCLEAR = (-0.05, -0.06, -0.04), (0.05, 0.04, 0.06), (0.0, -0.01, 0.01)


@pytest.mark.parametrize(
    ("models", "spread", "verdict", "said"),
    [
        ([WORSE] * 3, 0.01, "worse", "worse on all three models, by −5.0, −5.0, −5.0 points"),
        ([BETTER] * 3, 0.01, "better", "better on all three models, by +5.0, +5.0, +5.0 points"),
        ([UNCLEAR] * 3, 0.01, "unclear", "All three intervals contain 0"),
        ([WORSE, WORSE, UNCLEAR], 0.01, "unclear", "disagree (2 of the 3 intervals exclude 0)"),
        ([WORSE, BETTER, BETTER], 0.01, "unclear", "disagree (3 of the 3 intervals exclude 0)"),
        ([BETTER] * 3, 0.06, "unclear", "The mean is within the spread"),
    ],
    ids=["worse", "better", "all contain 0", "one unclear", "opposite signs", "smaller than the noise"],
)
def test_a_schedule_is_called_better_or_worse_only_past_both_hurdles(models, spread, verdict, said):
    page = executed(PAGE)
    group = ", ".join(f"PairedInterval({c}, {low}, {high}, 0, 0, 2000)" for c, low, high in models)
    assert page.value(f"verdict([{group}], {spread})") == verdict
    (text,) = page.value(f"[t.en for t in conclusions({{'BN never frozen': [{group}]}}, {spread})]")
    assert said in text
    for other, phrase in {"worse": "worse on all", "better": "better on all", "unclear": "don't call either"}.items():
        assert (phrase in text) == (other == verdict)


def test_the_calmest_and_the_wildest_curve_are_named():
    text = executed(PAGE).value("on_swings({'baseline': 0.07, 'BN never frozen': 0.02}).en")
    assert text.startswith("“baseline” swings most, by 7.0")
    assert "“BN never frozen” swings least, by 2.0" in text
