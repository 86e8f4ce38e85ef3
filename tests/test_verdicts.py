import re

from common.latency import Comparison
from common.verdicts import in_words, numbers, tell
from common.viz import T

import pytest

FOUND = {
    "faster": Comparison(2.0, 1.97, 2.05),
    "slower": Comparison(0.25, 0.2, 0.5),
    "tie": Comparison(1.01, 1.0, 1.02),
    "unclear": Comparison(1.1, 0.8, 1.4),
}
STEP, INT8, FP32 = T(zh="量化", en="Quantization"), T(zh="int8 `.pte`", en="the int8 `.pte`"), T(zh="fp32", en="fp32")
SIGNS = {
    "zh": {"faster": " 快：", "slower": " 慢：", "tie": "打平", "unclear": "分不出高下"},
    "en": {
        "faster": "is faster than",
        "slower": "is slower than",
        "tie": "are level",
        "unclear": "nothing can be claimed",
    },
}


def said(founds, language, **remarks):
    return [plain(text.in_language(language)) for text in tell(STEP, INT8, FP32, founds, remarks)]


def plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("verdict", FOUND)
def test_a_verdict_is_told_and_no_other(language, verdict):
    assert FOUND[verdict].verdict == verdict
    (sentence,) = said({"width 16": FOUND[verdict]}, language)
    assert {name for name, sign in SIGNS[language].items() if sign in sentence} == {verdict}


@pytest.mark.parametrize("verdict", ["tie", "unclear"])
def test_what_is_not_decided_is_neither_fast_nor_slow(verdict):
    for text in (*tell(STEP, INT8, FP32, {"width 16": FOUND[verdict]}), in_words(FOUND[verdict])):
        assert not set("快慢") & set(text.zh) and not re.search("fast|slow", text.en)


CELLS = {
    "faster": ("快，2.00 倍 [1.97, 2.05]", "2.00× as fast [1.97, 2.05]"),
    "slower": ("慢，時間是 4.00 倍 [2.00, 5.00]", "takes 4.00× as long [2.00, 5.00]"),
    "tie": ("打平，時間是 0.99 倍 [0.98, 1.00]", "a tie, 0.99× as long [0.98, 1.00]"),
    "unclear": ("說不準，時間是 0.91 倍 [0.71, 1.25]", "unclear, 0.91× as long [0.71, 1.25]"),
}


@pytest.mark.parametrize("verdict", FOUND)
def test_a_cell_says_whether_its_number_is_speed_or_time(verdict):
    cell = in_words(FOUND[verdict])
    assert (plain(cell.zh), plain(cell.en)) == CELLS[verdict]


def test_slower_is_told_as_times_as_long():
    found = {"width 16": FOUND["slower"]}
    assert "（時間是 4.00 倍 [2.00, 5.00]）" in said(found, "zh")[0]
    assert "(4.00× as long [2.00, 5.00])" in said(found, "en")[0]


def test_places_with_the_same_verdict_share_a_sentence():
    founds = {"width 16": FOUND["faster"], "width 32": FOUND["tie"], "width 64": FOUND["faster"]}
    assert said(founds, "en") == [
        "**Quantization**: the int8 `.pte` is faster than fp32: "
        "width 16 (2.00× as fast [1.97, 2.05]) and width 64 (2.00× as fast [1.97, 2.05]).",
        "**Quantization**: the int8 `.pte` and fp32 are level within 5%: width 32 (0.99× as long [0.98, 1.00]).",
    ]
    assert said(founds, "zh") == [
        "**量化**：int8 `.pte` 比 fp32 快：width 16（2.00 倍 [1.97, 2.05]）、width 64（2.00 倍 [1.97, 2.05]）。",
        "**量化**：int8 `.pte` 和 fp32 打平，相差不到 5%：width 32（時間是 0.99 倍 [0.98, 1.00]）。",
    ]


def test_no_space_stands_between_two_han_characters():
    (text,) = tell(STEP, T(zh="Q/DQ 圖", en="the Q/DQ graph"), FP32, {"width 16": FOUND["slower"]})
    assert "Q/DQ 圖比 fp32 慢" in text.zh


def test_a_remark_follows_its_own_verdict_only():
    remark = T(zh="原因在後面。", en="Why, comes later.")
    founds = {"width 16": FOUND["faster"], "width 64": FOUND["slower"]}
    faster, slower = tell(STEP, INT8, FP32, founds, {"slower": remark})
    assert slower.zh.endswith("）。原因在後面。") and slower.en.endswith("). Why, comes later.")
    assert remark.zh not in faster.zh and remark.en not in faster.en


def test_an_interval_is_never_broken_over_two_lines():
    for found in FOUND.values():
        for text in (numbers(found).zh, numbers(found).en):
            assert re.search(r"\[\d\.\d\d,\N{NO-BREAK SPACE}\d\.\d\d\]$", text)
