"""M05-1: the page holds, fails when one thing it teaches is spoiled, and says what made-up results deserve."""

import ast
from pathlib import Path

from common.metrics import paired_interval_of_counts
from common.site.chapter import read_chapter

import pytest
from runner import CHAPTERS, executed, failed_claim, replacing

PAGE = "m05_accuracy/1_evaluate.py"
PURE = {"points", "interval", "in_bold", "two_ways", "conclusion", "conclusions", "images_needed", "enough"}
WORDS = {"NAMES", "RANGE", "ALL", "SOME", "MIXED", "QUESTIONS", "Question"}


@pytest.fixture(scope="module")
def page():
    """The page's functions that choose sentences, with the texts they choose from; nothing else of it runs."""
    namespace = {}
    exec("import math\nfrom typing import NamedTuple\nfrom common.viz import T", namespace)
    for cell in read_chapter(Path(CHAPTERS) / PAGE, CHAPTERS).code_cells:
        wanted = [node for node in ast.parse(cell.source).body if names(node) & (PURE | WORDS)]
        exec(compile(ast.Module(wanted, []), PAGE, "exec"), namespace)
    assert namespace.keys() >= PURE | WORDS
    return namespace


def names(node):
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    return {target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)}


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
        ([WORSE] * 3, "A 比 B 差**：3 個網路都是", "A is worse than B**, in all 3"),
        ([BETTER] * 3, "A 比 B 好**：3 個網路都是", "A is better than B**, in all 3"),
        ([UNCLEAR] * 3, "看不出差別", "no difference to be seen"),
        ([WORSE, UNCLEAR, WORSE], "有 2 個變差，其他的看不出來", "worse in 2 of 3"),
        ([UNCLEAR, UNCLEAR, BETTER], "有 1 個變好，其他的看不出來", "better in 1 of 3"),
        ([WORSE, BETTER, UNCLEAR], "1 個變差、1 個變好", "1 got worse and 1 got better"),
    ],
)
def test_the_conclusion_follows_from_the_verdicts(page, founds, zh, en):
    text = page["T"]
    said = page["conclusion"](text(zh="B", en="B"), text(zh="A", en="A"), founds)
    assert zh in said.zh
    assert en in said.en
    assert "{" not in said.zh + said.en


def test_nothing_is_called_better_or_worse_while_all_intervals_contain_zero(page):
    text = page["T"]
    said = page["conclusion"](text(zh="B", en="B"), text(zh="A", en="A"), [UNCLEAR] * 3)
    for word in ("better", "worse", "比 B 好", "比 B 差", "變差", "變好"):
        assert word not in said.zh + said.en
    room = f"{-100 * UNCLEAR.low:.1f}"
    assert f"up to {room} points" in said.en
    assert f"最多 {room} 個百分點" in said.zh


def test_every_question_gets_its_sentence(page):
    results = {question: [WORSE, UNCLEAR] for question in page["QUESTIONS"]}
    assert len(page["conclusions"](results)) == 4


@pytest.mark.parametrize(
    ("paired", "unpaired", "zh", "en"),
    [
        (WORSE, (-0.04, 0.001), "會把它當成運氣", "takes it for luck"),
        (WORSE, (-0.04, -0.001), "不配對也看得出來", "shows without pairing"),
        (UNCLEAR, (-0.02, 0.018), "不能說準確率變了", "can't say that accuracy changed"),
        (UNCLEAR, (0.001, 0.018), "不能說準確率變了", "can't say that accuracy changed"),
    ],
)
def test_the_two_intervals_are_told_by_what_they_contain(page, paired, unpaired, zh, en):
    said = page["two_ways"](paired, unpaired)
    assert zh in said.zh
    assert en in said.en
    assert ("is real" in said.en) == ("luck" in said.en)


@pytest.mark.parametrize(
    ("needed", "zh", "en"),
    [
        ({"a": 1500, "b": 2000}, "都夠", "enough for A and B."),
        (
            {"a": 3000, "b": 8000},
            "不夠：A 要 1.5 倍，B 要 4.0 倍",
            "not enough: A takes 1.5 times as many and B takes 4.0",
        ),
        ({"a": 1500, "b": 8000}, "對 A 夠，B 要 4.0 倍", "enough for A, but B takes 4.0 times"),
    ],
)
def test_what_the_images_are_enough_for_is_said_of_each_model(page, needed, zh, en):
    text = page["T"]
    said = page["enough"](2000, needed, {"a": text(zh="A", en="A"), "b": text(zh="B", en="B")})
    assert zh in said.zh
    assert en in said.en


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
        ('Question("4-bit per-channel", "4-bit per-tensor"),', 'Question("fp32", "int8 per-channel"),', "not worse"),
        ("chosen = torch.randint(n, (n,), generator=draw)", "chosen = torch.arange(n)", "disagrees"),
    ],
)
def test_one_spoiled_thing_is_noticed(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))
