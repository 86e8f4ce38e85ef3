"""M05-3: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing

PAGE = "m05_accuracy/3_sensitivity.py"
pytestmark = pytest.mark.site

COUNTS = "__import__('common.metrics', fromlist=['metrics']).paired_interval_of_counts"


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert page["step_bytes"] == [4908, 5124, 6276, 7428, 9732, 9796]
    assert page["per_channel_bytes"] == [5224, 5440]


def test_a_row_of_the_table_gives_points_and_the_verdict():
    page = executed(PAGE)
    row = page.value(f"comparison_rows({{('4-bit', 'mixed 1'): {COUNTS}(10, 110, 1000)}})[0]")
    assert row[2] == "4,908 → 5,124"
    assert row[3] == "+10.0"
    assert row[5].en == "the second is better"
    row = page.value(f"comparison_rows({{('mixed 3', 'fp32'): {COUNTS}(5, 2, 1000)}})[0]")
    assert row[3] == "−0.3"
    assert row[5].en == "no difference shown"


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('quantizer_for(["stem_conv"], **FOUR_BITS)', "quantizer_for(UNITS, **FOUR_BITS)", "not just the stem"),
        ("found[unit] = score([unit]), score(others)", "found[unit] = score(others), score([unit])", "stem"),
        ("128", "1", "no sharp drop"),
        ("sqnr_db(ref[:, c], actual[:, c])", "sqnr_db(ref, actual)", "other channels are fine"),
        ("quantizer_for(in_8_bits, **switches)", "quantizer_for(in_8_bits, **FOUR_BITS)", "not what was asked for"),
        ('"mixed 1": steps[1]', '"mixed 1": steps[0]', "no gain on new images"),
        ("quantizer_for([unit], is_per_channel=True)", "quantizer_for([unit])", "did not help"),
    ],
)
def test_an_experiment_that_is_not_what_it_says_is_noticed(right, wrong, said):
    assert said in failed_claim(PAGE, replacing(right, wrong))
