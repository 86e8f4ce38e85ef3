"""M05-1: the page holds, fails when one thing it teaches is spoiled, and says what made-up results deserve."""

from common.metrics import paired_interval_of_counts

import pytest
from runner import alone, executed, failed_claim, replacing

PAGE = "m05_accuracy/1_evaluate.py"
PURE = {"points", "interval", "in_bold", "with_or_without_zero", "two_ways", "conclusion", "images_needed"}
WORDS = {"SENTENCE"}


@pytest.fixture(scope="module")
def page():
    """The page's functions that choose sentences, with the texts they choose from; nothing else of it runs."""
    imports = "import math\nfrom common.metrics import in_points, interval_in_points\nfrom common.viz import T"
    return alone(PAGE, PURE | WORDS, imports)


# Of 2000 images: (lost, gained) and what the paired interval allows to say.
WORSE, BETTER, UNCLEAR = (paired_interval_of_counts(*counts, 2000) for counts in ((60, 20), (10, 50), (21, 19)))


def test_points_have_a_sign_and_intervals_do_not_break(page):
    assert page["points"](-0.014) == "−1.40"
    assert page["points"](0.0029) == "+0.29"
    assert page["interval"](-0.01, 0.002) == "[−1.00,\N{NO-BREAK SPACE}+0.20]"


def test_only_an_interval_that_excludes_zero_is_bold(page):
    assert page["in_bold"](WORSE).startswith("**[")
    assert page["in_bold"](BETTER).startswith("**[")
    assert "*" not in page["in_bold"](UNCLEAR)


@pytest.mark.parametrize(
    ("founds", "zh", "en"),
    [
        ([WORSE] * 3, "3 個變差、0 個變好、0 個看不出來", "3 worse, 0 better, 0 unclear"),
        ([UNCLEAR] * 3, "0 個變差、0 個變好、3 個看不出來", "0 worse, 0 better, 3 unclear"),
        ([WORSE, BETTER, UNCLEAR], "1 個變差、1 個變好、1 個看不出來", "1 worse, 1 better, 1 unclear"),
    ],
)
def test_the_conclusion_counts_the_verdicts(page, founds, zh, en):
    text = page["T"]
    said = page["conclusion"](text(zh="B", en="B"), text(zh="A", en="A"), founds)
    assert "**B → A**" in said.zh
    assert "**B → A**" in said.en
    assert zh in said.zh
    assert en in said.en
    lowest = page["points"](min(one.low for one in founds))
    assert f"最低到 {lowest}。" in said.zh
    assert f"down to {lowest}." in said.en
    assert "{" not in said.zh + said.en


@pytest.mark.parametrize(
    ("paired", "unpaired", "zh", "en"),
    [
        (WORSE, (-0.04, 0.001), ("，不包含 0；", "，包含 0。"), ("excludes 0; the", "contains 0.")),
        (WORSE, (-0.04, -0.001), ("，不包含 0；", "，不包含 0。"), ("excludes 0; the", "excludes 0.")),
        (UNCLEAR, (-0.02, 0.018), ("，包含 0；", "，包含 0。"), ("contains 0; the", "contains 0.")),
    ],
)
def test_the_two_intervals_are_told_by_what_they_contain(page, paired, unpaired, zh, en):
    said = page["two_ways"](paired, unpaired)
    assert all(part in said.zh for part in zh)
    assert all(part in said.en for part in en)


def test_half_the_drop_takes_four_times_the_images(page):
    many, few = (page["images_needed"](0.05, delta) for delta in (0.0025, 0.005))
    assert many / few == pytest.approx(4, rel=0.01)


# --- The page itself --------------------------------------------------------------------------------------------------


@pytest.mark.site
def test_every_claim_of_the_page_holds():
    names = executed(PAGE)
    assert names["b"] - names["c"] == round(-2000 * names["change"])
    assert names["unpaired_needed"] > names["most"] > names["fewest"] > 0


@pytest.mark.site
@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("list(calibration_batches(256))", "[(test_data()[0][:256],)]", "a test image was used"),
        ("after = is_right(quantized, images, labels)", "after = before[torch.randperm(n)]", "pairing gained nothing"),
        ("b + c - (c - b) ** 2 / n", "2 * (b + c) - (c - b) ** 2 / n", "not formula (2)"),
        ("min(1.0, 2 * ways", "min(1.0, ways", "not two-sided"),
        ("(1.96 + 0.84) ** 2", "1.96**2", "promised 80%"),
        ('("4-bit per-channel", "4-bit per-tensor"),', '("fp32", "int8 per-channel"),', "not worse"),
        ("chosen = torch.randint(n, (n,), generator=draw)", "chosen = torch.arange(n)", "disagrees"),
    ],
)
def test_one_spoiled_thing_is_noticed(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))
