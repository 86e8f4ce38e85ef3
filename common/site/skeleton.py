"""The first lines of a new page and of its test: the shape that every page has."""

from __future__ import annotations

TEXT = """# %% [markdown] lang="{lang}"
{text}

"""

PARTS = (
    (
        "# {mark} | 標題\n\n這一頁回答：\n\n- 第一個問題？\n\n讀完以後，你會知道……",
        "# {mark} | Title\n\nThis page answers:\n\n- The first question?\n\nAfterward you know …",
    ),
    (
        "## 先猜猜看\n\n在看到數字之前，請讀者先預測。",
        "## Predict first\n\nAsk the reader for a prediction before the numbers.",
    ),
    ("## 一個想法\n\n想法、程式、看到什麼。", "## One idea\n\nThe idea, the code, what we saw."),
    ("## 重點回顧\n\n回答開頭的問題。", "## Recap\n\nAnswers to the questions at the top."),
    ("## 試試看\n\n一個練習。", "## Try it\n\nOne exercise."),
)
CODE = """# %%
import torch

zeros = torch.zeros(2)
assert not zeros.any(), f"zeros are {zeros.tolist()}"

"""
SOLUTION = """# %% tags=["solution"]
assert zeros.sum() == 0
"""

TEST = '''"""{mark}: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing

PAGE = "{name}"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    executed(PAGE)


def test_ones_in_place_of_zeros_are_noticed():
    assert "zeros are [1.0, 1.0]" in failed_claim(PAGE, replacing("torch.zeros(2)", "torch.ones(2)"))
'''


def page_mark(name: str) -> str:
    """How a page is called: `M01-2`."""
    folder, file = name.split("/")
    return f"{folder.partition('_')[0].upper()}-{file.partition('_')[0]}"


def test_name(name: str) -> str:
    """The file name of a page's test."""
    return f"test_{page_mark(name).lower().replace('-', '_')}.py"


def chapter_begun(name: str) -> str:
    """The source of a page that can be executed and built as it is."""
    cells = []
    for zh, en in PARTS:
        for lang, text in (("zh", zh), ("en", en)):
            lines = text.format(mark=page_mark(name)).split("\n")
            cells.append(TEXT.format(lang=lang, text="\n".join(f"# {line}".rstrip() for line in lines)))
    cells.insert(6, CODE)
    return "".join(cells) + SOLUTION


def test_begun(name: str) -> str:
    """The source of a test that runs the page and sees one of its asserts fail."""
    return TEST.format(mark=page_mark(name), name=name)
