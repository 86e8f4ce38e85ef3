"""The course's outline: what it promises, and what is wrong in it."""

import pathlib
import tomllib

from common.site.chapter import ChapterError
from common.site.outline import address, read_chapters, read_outline

import pytest
from miniature import OUTLINE, REPOSITORY, page

ONE = '[[chapter]]\nfolder = "m01_first"\nzh = "甲"\nen = "A"\npages = ["0_overview"]\n'


@pytest.fixture
def chapters(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "chapters"
    for name in ("m01_first", "m02_second"):
        (folder / name).mkdir(parents=True)
    return folder


def outline(chapters: pathlib.Path, text: str | bytes) -> pathlib.Path:
    (chapters / "outline.toml").write_bytes(text.encode() if isinstance(text, str) else text)
    return chapters


def test_the_outline_lists_chapters_in_reading_order(chapters):
    first, second = read_outline(outline(chapters, OUTLINE))
    assert (first.folder, first.zh, first.en) == ("m01_first", "M01 第一章", "M01 First")
    assert first.pages == tuple(f"m01_first/{name}.py" for name in ("0_overview", "1_alpha", "2_beta", "3_planned"))
    assert second.pages == ("m02_second/0_overview.py",)


def test_the_courses_own_outline_is_read_as_it_stands():
    told = tomllib.loads((REPOSITORY / "chapters/outline.toml").read_text(encoding="utf-8"))["chapter"]
    assert [section.folder for section in read_outline(REPOSITORY / "chapters")] == [table["folder"] for table in told]


def test_chapters_come_in_the_outlines_order_and_promised_ones_may_be_missing(chapters):
    for name in ("m02_second/0_overview", "m01_first/2_beta", "m01_first/0_overview"):
        (chapters / f"{name}.py").write_text(page("Title"), encoding="utf-8")
    found = read_chapters(chapters, read_outline(outline(chapters, OUTLINE)))
    assert [chapter.name for chapter in found] == [
        *("m01_first/0_overview.py", "m01_first/2_beta.py", "m02_second/0_overview.py")
    ]


@pytest.mark.parametrize(
    ("only", "found"),
    [
        (("m01_first",), ["m01_first/0_overview.py", "m01_first/2_beta.py"]),
        (("m02_second/0_overview.py", "m01_first/2_beta.py"), ["m01_first/2_beta.py", "m02_second/0_overview.py"]),
    ],
)
def test_a_preview_reads_the_chosen_chapters_alone(chapters, only, found):
    for name in ("m02_second/0_overview", "m01_first/2_beta", "m01_first/0_overview"):
        (chapters / f"{name}.py").write_text(page("Title"), encoding="utf-8")
    sections = read_outline(outline(chapters, OUTLINE))
    assert [chapter.name for chapter in read_chapters(chapters, sections, only)] == found
    (chapters / "m01_first/1_alpha.py").write_text("no chapter", encoding="utf-8")  # someone else's, half written
    assert read_chapters(chapters, sections, ("m02_second",))


@pytest.mark.parametrize("name", ["m01", "m01_first/1_alpha.py", "m01_first/0_overview"])
def test_a_preview_of_a_chapter_without_a_file_is_refused(chapters, name):
    (chapters / "m01_first/0_overview.py").write_text(page("Title"), encoding="utf-8")
    with pytest.raises(ValueError, match=f"^no chapter '{name}'; .* such as m01_first/0_overview.py"):
        read_chapters(chapters, read_outline(outline(chapters, OUTLINE)), (name,))


@pytest.mark.parametrize(
    "name", ["m01_first/9_other.py", "m03_third/0_overview.py", "loose.py", "m01_first/deep/0_x.py"]
)
def test_a_file_that_is_not_in_the_outline_is_refused(chapters, name):
    path = chapters / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(page("Title"), encoding="utf-8")
    with pytest.raises(ChapterError, match=rf"^chapters/{name}:1: not in chapters/outline.toml"):
        read_chapters(chapters, read_outline(outline(chapters, OUTLINE)))


MALFORMED = {
    "not TOML": (ONE + "\n[[chapter]\n", 7, ""),
    "not UTF-8": ("# 中\n".encode("big5"), 1, ""),
    "empty": ("", 1, "[[chapter]]"),
    "no list": ('[chapter]\nfolder = "m01_first"\n', 1, "[[chapter]]"),
    "another table": (ONE.replace("chapter", "section"), 1, "[[chapter]]"),
    "a field missing": (ONE + '\n[[chapter]]\nfolder = "m02_second"\nzh = "乙"\npages = ["0_overview"]\n', 7, "en"),
    "a field too many": (ONE + 'title = "A"\n', 1, "title"),
    "a number for a text": (ONE.replace('"甲"', "1"), 1, "zh is a text, not 1"),
    "an empty title": (ONE.replace('"甲"', '" "'), 1, "zh"),
    "a text for the pages": (ONE.replace('["0_overview"]', '"0_overview"'), 1, "pages is a list"),
    "no pages": (ONE.replace('["0_overview"]', "[]"), 1, "pages is a list"),
    "a page with its ending": (ONE.replace('"0_overview"', '"0_overview.py"'), 1, "without .py"),
    "a page in a folder": (ONE.replace('"0_overview"', '"deep/0_overview"'), 1, "deep/0_overview"),
    "a page without a number": (ONE.replace('"0_overview"', '"overview"'), 1, "a page is a name like 0_overview"),
    "a number for a page": (ONE.replace('"0_overview"', "0"), 1, "a page is a name like 0_overview"),
    "a folder without a number": (ONE.replace("m01_first", "first"), 1, "m01_first_ptq"),
    "a folder elsewhere": (ONE.replace("m01_first", "../m01_first"), 1, "m01_first_ptq"),
    "a page twice": (ONE.replace('"0_overview"', '"0_overview", "1_a", "1_a"'), 1, "address m01/1-a/"),
    "two overviews": (ONE.replace('"0_overview"', '"0_overview", "0_again"'), 1, "address m01/"),
    "two chapters of a number": (ONE + ONE.replace("m01_first", "m01_second"), 6, "address m01/"),
}


@pytest.mark.parametrize(("text", "line", "words"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_outline_is_refused_with_line_and_remedy(chapters, text, line, words):
    with pytest.raises(ChapterError) as caught:
        read_outline(outline(chapters, text))
    assert str(caught.value).startswith(f"chapters/outline.toml:{line}: malformed")
    assert words in str(caught.value)


def test_a_missing_outline_is_named(chapters):
    with pytest.raises(ChapterError, match=r"^chapters/outline.toml:1: can't be read"):
        read_outline(chapters)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("m08_executorch/4_latency.py", "m08/4-latency/"),
        ("m08_executorch/0_overview.py", "m08/"),
        ("m01_first_ptq/2_prepare_convert.py", "m01/2-prepare-convert/"),
        ("m00_fx/10_last.py", "m00/10-last/"),
    ],
)
def test_addresses_are_short_and_hyphenated(name, found):
    assert address(name) == found
