"""Reading chapters: what is read, and that what would go wrong silently is refused with file, line and remedy."""

import keyword
import pathlib
import re

from common.site.chapter import (
    DEFAULT_TIME_LIMIT,
    Chapter,
    ChapterError,
    heading_ids,
    headings,
    notebook,
    parse_chapter,
    read_chapter,
    slug,
)

import jupytext
import nbformat
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from miniature import REPOSITORY

NAME = "m01_first/0_overview.py"
HEAD = """\
# %% [markdown] lang="zh"
# # M01 甲
#
# 中文。

# %% [markdown] lang="en"
# # M01 First
#
# English.

"""
FIRST = HEAD.count("\n") + 1  # the line on which what follows HEAD begins
ZH, EN = '# %% [markdown] lang="zh"', '# %% [markdown] lang="en"'


def parse(text: str) -> Chapter:
    return parse_chapter(text, pathlib.Path("chapters", NAME), NAME, f"chapters/{NAME}")


def refusal(text: str) -> ChapterError:
    """The refusal of a text; its message begins with file and line."""
    with pytest.raises(ChapterError) as caught:
        parse(text)
    error = caught.value
    assert str(error) == f"chapters/{NAME}:{error.line}: {error.message}"
    return error


def lines(*these: str) -> str:
    return "\n".join(these) + "\n"


# --- what is read

COMMENTS = [
    "# ls -la 是註解",
    "# cat file.txt",
    "# !pip install torch",
    "# %matplotlib inline",
    "# %%time is a word here",
    "# cd /tmp",
    "# mkdir -p folder",
    "# ?help",
]


@pytest.mark.parametrize("comment", COMMENTS[:4] + COMMENTS[5:])
def test_comments_that_look_like_shell_commands_stay_comments(comment):
    chapter = parse(HEAD + lines("# %%", comment, "x = 1"))
    assert [cell.source for cell in chapter.code_cells] == [f"{comment}\nx = 1"]
    assert comment in notebook(chapter, "zh").cells[-1].source


def test_shell_commands_in_names_stay_python():
    source = lines("ls = [1]", "cat = 1", "cd = ls", "time = cat")
    assert parse(HEAD + "# %%\n" + source).code_cells[0].source == source.rstrip()


WHOLE = HEAD + lines(
    "# %%",
    "import math",
    "",
    "",
    "def f(x):",
    "    # ### no heading",
    "    return math.sqrt(x)",
    "",
    "",
    ZH,
    "# ## 小節",
    "#",
    "# - 甲",
    "#   - 乙",
    "#",
    '# ```python title="c"',
    "# # no heading",
    "# ```",
    "",
    EN,
    "# ## A section",
    "#",
    "# - a",
    "#   - b",
    "#",
    '# ```python title="c"',
    "# # no heading",
    "# ```",
    "",
    '# %% tags=["plot"]',
    'text = """',
    "# in a string",
    '"""',
    "",
    "# %% [markdown]",
    "# Both.",
)


@pytest.mark.parametrize(
    "text",
    [pytest.param(WHOLE, id="every kind of cell")]
    + [
        pytest.param(path.read_text(encoding="utf-8"), id=path.stem)
        for path in sorted((REPOSITORY / "chapters").rglob("*.py"))
    ],
)
def test_cells_hold_what_jupytext_reads(text):
    expected = jupytext.reads(text, fmt={"extension": ".py", "format_name": "percent", "comment_magics": False})
    found = parse(text).cells
    assert [(cell.kind, cell.source) for cell in found] == [
        (cell.cell_type, cell.source.strip("\n") if cell.cell_type == "markdown" else cell.source.lstrip("\n"))
        for cell in expected.cells
    ]
    assert [list(cell.tags) for cell in found] == [cell.metadata.get("tags", []) for cell in expected.cells]
    assert [cell.lang for cell in found] == [cell.metadata.get("lang") for cell in expected.cells]


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        HEAD + lines("# %%", "", "", "# # ls -la", "x = 1"),
        HEAD + lines("# %%", "#", "######", "x = 1"),
        HEAD + lines("# %%", "x = 1", "", "", "", "# %%", "", "y = 2"),
        HEAD + lines(ZH, "#", "#", "# ## 乙", EN, "#", "# ## B"),
        lines(ZH, "", "# # 甲", "", "", EN, "# # A", "", "# %% [markdown]", "# both"),
        (HEAD + lines("# %%", "x = 1")).replace("\n", "\r\n"),
    ],
)
def test_a_cells_line_is_where_its_source_begins(text):
    source = text.splitlines()
    for cell in parse(text).cells:
        for offset, line in enumerate(cell.source.splitlines()):
            written = source[cell.line - 1 + offset]
            assert line == (written if cell.kind == "code" else re.sub("^# ?", "", written))


def test_each_language_gets_its_own_cells_and_the_shared_ones():
    chapter = parse(WHOLE)
    shown = {
        lang: [cell.source.splitlines()[0] for cell in chapter.in_language(lang) if cell.kind == "markdown"]
        for lang in ("zh", "en")
    }
    assert shown == {"zh": ["# M01 甲", "## 小節", "Both."], "en": ["# M01 First", "## A section", "Both."]}
    assert [cell.source for cell in chapter.in_language("zh") if cell.kind == "code"] == [
        cell.source for cell in chapter.in_language("en") if cell.kind == "code"
    ]


def test_settings_of_the_first_cell_hold_for_the_chapter():
    plain = parse(HEAD)
    assert (plain.measures, plain.time_limit) == (False, DEFAULT_TIME_LIMIT)
    chapter = parse(HEAD.replace(ZH, ZH + " measures=true time_limit=7"))
    assert (chapter.measures, chapter.time_limit) == (True, 7)


def test_a_file_is_named_by_its_path_below_the_chapters(tmp_path):
    path = tmp_path / "chapters" / NAME
    path.parent.mkdir(parents=True)
    path.write_text(HEAD + lines("# %%", "x = ("), encoding="utf-8")
    with pytest.raises(ChapterError) as caught:
        read_chapter(path, tmp_path / "chapters")
    assert str(caught.value).startswith(f"chapters/{NAME}:{FIRST + 1}: ")
    assert str(tmp_path) not in str(caught.value)


def test_a_file_that_is_not_utf_8_is_refused_by_name(tmp_path):
    path = tmp_path / "chapters" / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(HEAD.encode("big5"))
    with pytest.raises(ChapterError, match=rf"^chapters/{NAME}:2: .*UTF-8"):
        read_chapter(path, tmp_path / "chapters")


def test_a_byte_order_mark_is_not_text(tmp_path):
    path = tmp_path / "0_x.py"
    path.write_bytes(b"\xef\xbb\xbf" + HEAD.encode())
    assert read_chapter(path).cells == parse(HEAD).cells


# --- what is refused

# (what follows HEAD, line counted from there, words that the message has: what is wrong, what to do)
REFUSED = {
    "a Chinese cell alone": (lines(ZH, "# 乙"), 1, "without its English twin", 'lang="en"'),
    "a Chinese cell at the end": (lines("# %%", "x = 1", "", ZH, "# 乙"), 4, "without its English twin", 'lang="en"'),
    "an English cell alone": (lines(EN, "# B"), 1, "English cell", "Chinese"),
    "English before Chinese": (lines(EN, "# B", "", ZH, "# 乙"), 1, "English cell", "Chinese"),
    "English below blank lines": (lines("", EN, "", "", "# B"), 2, "English cell", "Chinese"),
    "code between the twins": (lines(ZH, "# 乙", "", "# %%", "x = 1", "", EN, "# B"), 1, "English twin", "right after"),
    "two Chinese cells": (lines(ZH, "# 乙", "", ZH, "# 丙", "", EN, "# B"), 1, "English twin", "right after"),
    "two English cells": (lines(ZH, "# 乙", EN, "# B", "", EN, "# C"), 6, "English cell", "Chinese"),
    "another heading level": (lines(ZH, "# ## 乙", "", EN, "# ### B"), 5, "level 3", "level 2", f"line {FIRST + 1}"),
    "swapped levels": (
        lines(ZH, "# ## 乙", "#", "# ### 丙", "", EN, "# ### B", "#", "# ## C"),
        *(7, "level 3", "level 2", f"line {FIRST + 1}"),
    ),
    "a heading too many": (lines(ZH, "# ## 乙", "", EN, "# ## B", "#", "# ## C"), 4, "2 headings", "1 in the Chinese"),
    "a heading too few": (lines(ZH, "#", "# ## 乙", "", EN, "#", "# B"), 5, "0 headings", f"line {FIRST})"),
    "tags on one twin": (lines(ZH + ' tags=["solution"]', "# 乙", "", EN, "# B"), 4, "tags", "solution"),
    "an unknown language": (lines('# %% [markdown] lang="fr"', "# B"), 1, "'fr'", 'lang="zh"', 'lang="en"'),
    "a language code of MkDocs": (lines('# %% [markdown] lang="zh-TW"', "# B"), 1, "'zh-TW'", 'lang="zh"'),
    "a language without quotes": (lines("# %% [markdown] lang=zh", "# 乙"), 1, "lang=zh", 'lang="zh"'),
    "code in a language": (lines('# %% lang="zh"', "x = 1"), 1, "code cell", "remove lang"),
    "an unknown tag": (lines('# %% tags=["plots"]', "x = 1"), 1, "'plots'", "setup, plot, solution"),
    "raises-exception": (lines('# %% tags=["raises-exception"]', "x = 1"), 1, "'raises-exception'", "setup"),
    "a tag that is no list": (lines("# %%", "x = 1", '# %% tags="setup"', "y = 1"), 3, "tags", '["setup"]'),
    "a tag that is no text": (lines("# %%", "x = 1", "# %% tags=[1]", "y = 1"), 3, "tags"),
    "unknown metadata": (lines('# %% language="zh"', "x = 1"), 1, "'language'", "lang and tags"),
    "metadata of jupytext's": (lines("# %% [markdown] slideshow={}", "# B"), 1, "'slideshow'", "lang and tags"),
    "broken metadata": (lines('# %% tags=["setup"', "x = 1"), 1, "tags"),
    "a setting on a later cell": (lines("# %% measures=true", "x = 1"), 1, "measures", "first cell"),
    "a time limit on a later cell": (lines("# %% time_limit=9", "x = 1"), 1, "time_limit", "first cell"),
    "a named cell": (lines("# %% Setup", "x = 1"), 1, "'Setup'", "`# %%`"),
    "a named text cell": (lines("# %% Words [markdown]", "# B"), 1, "'Words'", "`# %% [markdown]`"),
    "an unknown kind": (lines("# %% [html]", "# B"), 1, "[html]", "`# %% [markdown]`"),
    "a raw cell": (lines("# %% [raw]", "# B"), 1, "raw", "Markdown"),
    "md for markdown": (lines("# %% [md]", "# B"), 1, "[markdown]"),
    "text in a string": (lines("# %% [markdown]", '"""', "B", '"""'), 1, "string", "# "),
    "an empty code cell": (lines("# %%", "", "# %%", "x = 1"), 1, "empty", "remove"),
    "an empty text cell": (lines("# %% [markdown]", "#", "", "# %%", "x = 1"), 1, "empty", "remove"),
    "an empty cell at the end": (lines("# %%", "x = 1", "# %%"), 3, "empty", "remove"),
    "a line magic": (lines("# %%", "x = 1", "%matplotlib inline"), 3, "magic", "%matplotlib inline", "plain Python"),
    "a cell magic": (lines("# %%", "%%bash", "ls"), 2, "magic", "%%bash", "plain Python"),
    "a shell command": (lines("# %%", "!pip install torch"), 2, "shell", "!pip install torch", "plain Python"),
    "a captured command": (lines("# %%", "import os", "x = !ls"), 3, "shell", "x = !ls", "plain Python"),
    "a question": (lines("# %%", "import os", "os?"), 3, "magic", "os?", "plain Python"),
    "a question in front": (lines("# %%", "?print"), 2, "magic", "?print", "plain Python"),
    "code that is no Python": (lines("# %%", "x = 1", "def f(:", "    pass"), 3, "def f(:"),
    "a string that isn't closed": (lines("# %%", "x = 1", 'y = "'), 3, "unterminated", 'y = "'),
    "a bracket that isn't closed": (lines("# %%", "# (", "x = (1,", "", "# %%", "y = 2"), 3, "never closed"),
    "Python below a comment": (lines("# %%", "#", "####", "x = ="), 4, "invalid syntax", "x = ="),
    "code in a text cell": (lines("# %% [markdown]", "# B", "", "x = 1"), 4, "x = 1", "# %%"),
    "a marker without a space": (lines("#%%", "x = 1"), 1, "one space"),
    "a marker of Spyder": (lines("# In[3]:", "x = 1"), 1, "`# %%`"),
    "an indented marker": (lines("# %%", "if True:", "    # %%", "    x = 1"), 3, "`# %%`"),
    "a sub-cell": (lines("# %%%", "x = 1"), 1, "sub-cells"),
    "a marker in a string": (lines("# %%", 'x = """', "# %%", '"""', "", "# %%", "y = 1"), 3, "string"),
    "a second title": (lines(ZH, "# # 乙", "", EN, "# # B"), 2, "second title", "##"),
    "a second title in both": (lines("# %% [markdown]", "# # B"), 2, "second title", "##"),
    "an anchor without letters": (lines(ZH, "# ## 乙", "", EN, "# ## 乙"), 5, "'乙'", "Latin word", "anchor"),
    "an underlined heading": (lines(ZH, "# 乙", "# ---", "", EN, "# B", "# ---"), 3, "underlined", "##"),
    "a heading without a space": (lines(ZH, "# ##乙", "", EN, "# ##B"), 2, "space", "##"),
    "an indented heading": (lines(ZH, "#  ## 乙", "", EN, "#  ## B"), 2, "heading", "##"),
    "code that only looks executed": (lines(ZH, "# 乙", "#", "# ```python", "# x", "# ```"), 4, "never runs", "title="),
    "code in a list": (lines("# %% [markdown]", "# - B", "#", "#   ~~~ py", "#   x", "#   ~~~"), 4, "never runs"),
    "a form feed": (lines("# %%", "x = 1  # a\x0cb", "y = 1"), 2, "character", "remove"),
    "a line separator": (lines("# %%", "# a\u2028b", "y = 1"), 2, "character", "remove"),
}


@pytest.mark.parametrize(("body", "line", "words"), [(b, n, w) for b, n, *w in REFUSED.values()], ids=list(REFUSED))
def test_a_malformed_chapter_is_refused_with_line_and_remedy(body, line, words):
    error = refusal(HEAD + body)
    assert error.line == FIRST + line - 1, str(error)
    for word in words:
        assert word in error.message


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("measures=1", ["measures", "true"]),
        ('measures="yes"', ["measures", "true"]),
        ("time_limit=0", ["time_limit", "positive"]),
        ("time_limit=-5", ["time_limit", "positive"]),
        ("time_limit=1.5", ["time_limit", "whole", "1.5"]),
        ('time_limit="60"', ["time_limit", "whole", "'60'"]),
        ("time_limit=true", ["time_limit", "whole"]),
        ("timelimit=60", ["'timelimit'"]),
    ],
)
def test_a_bad_setting_of_the_chapter_is_refused(setting, words):
    error = refusal(HEAD.replace(ZH, f"{ZH} {setting}"))
    assert error.line == 1
    for word in words:
        assert word in error.message


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("", 1, "no cell"),
        ("\n\n", 1, "no cell"),
        ("x = 1\n" + HEAD, 1, "before the first cell"),
        ("\n# ---\n# jupyter: {}\n# ---\n" + HEAD, 2, "header"),
        ("#!/usr/bin/env python\n" + HEAD, 1, "before the first cell"),
        (lines("# %%", "x = 1"), 1, "no title"),
        (lines("# %% [markdown]", "# Text."), 1, "no title"),
        (lines(ZH, "# ## 乙", "", EN, "# ## B"), 1, "no title"),
        (lines("# %%", "x = 1", "", "# %% [markdown]", "# # B"), 1, "no title"),
        (lines(ZH, "# # 甲", "", EN, "# # A", "#", "# # B"), 4, "2 headings"),
    ],
)
def test_a_chapter_begins_with_its_title(text, line, word):
    error = refusal(text)
    assert (error.line, word in error.message) == (line, True), str(error)


# --- headings, anchors


@pytest.mark.parametrize(
    ("text", "anchor"),
    [
        ("Insert observers", "insert-observers"),
        ("Why `MinMaxObserver`'s range matters", "why-minmaxobserver-s-range-matters"),
        ("int8 × int8 → int32", "int8-int8-int32"),
        ("[A link](../m02/0.py#x) in it", "a-link-in-it"),
        ("M08-4 | Latency", "m08-4-latency"),
        ("量化", ""),
    ],
)
def test_an_anchor_is_ascii_words(text, anchor):
    assert slug(text) == anchor


def test_headings_with_the_same_words_get_their_own_anchors():
    text = "# A\n\n## Shapes\n\n## Shapes\n\n## shapes!\n\n## Shapes 2\n"
    found = heading_ids(text)
    assert found[:4] == ["a", "shapes", "shapes-2", "shapes-3"]
    assert len(set(found)) == len(found)


def test_a_heading_may_name_its_anchor():
    assert heading_ids("# A\n\n## Zero point { #zero-point }\n\n## Zero point {#zero-point}\n") == [
        *("a", "zero-point", "zero-point-2")
    ]


def test_fenced_code_holds_no_headings():
    text = "# A\n\n```python\n# b\n~~~\n# c\n```\n\n~~~~\n# d\n~~~\n# e\n~~~~\n\n## F ##\n"
    assert headings(text) == [(1, "A", 0), (2, "F", 14)]


def test_both_languages_have_the_anchors_of_the_english_headings():
    assert parse(WHOLE).heading_ids() == ["m01-first", "a-section"]


# --- notebooks


def test_a_notebook_is_valid_and_the_same_each_time():
    chapter = parse(WHOLE)
    for lang in ("zh", "en"):
        book = notebook(chapter, lang)
        nbformat.validate(book)
        assert nbformat.writes(book) == nbformat.writes(notebook(parse(WHOLE), lang))
        ids = [cell.id for cell in book.cells]
        assert len(set(ids)) == len(ids)


def test_code_cells_of_a_notebook_know_their_line_and_number():
    chapter = parse(WHOLE)
    told = [cell.metadata["pt2e"] for cell in notebook(chapter, "zh").cells if cell.cell_type == "code"]
    assert told == [{"line": cell.line, "ordinal": n} for n, cell in enumerate(chapter.code_cells)]


# --- anything at all

SCRAPS = [
    *("# %%", "#%%", "# %%%", "# %% [markdown]", ZH, EN, '# %% tags=["setup"]', '# %% tags="setup"', "# %% tags=[1]"),
    *(
        "# %% [raw]",
        "# %% [markdown] lang=zh",
        "# %% name [md] x=1",
        "    # %%",
        "# In[1]:",
        "# <codecell>",
        "# +",
        "# -",
    ),
    *("# ---", "#", "", " ", "\t", "# # A", "# ## B", "# ### 乙", "#  ##  C", "# ```", "# ~~~", "# text", "# - item"),
    *(
        "x = 1",
        "def f():",
        "    return 1",
        '"""',
        "'''",
        "(",
        ")",
        "%time x",
        "!ls",
        "x?",
        "# ls -la",
        "\\",
        "return",
        "await x",
    ),
    *("# %% time_limit=true", f"{ZH} measures=true time_limit=5", "# %% {", '# %% {"a": 1}', "# %% active=''"),
    *("\x0c", "\x00", "\u2028", "\ufeff", "# %% \x85", "é = 1", "# 字", keyword.kwlist[3]),
]


@given(st.lists(st.one_of(st.sampled_from(SCRAPS), st.text(max_size=12)), max_size=12).map("\n".join), st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines may be busy
@example("x = 1\n", False)
@example("# %%\n" + "(" * 300 + ")" * 300, True)
@example("# %%\n" + "-" * 5000 + "1", True)
def test_any_text_is_read_or_refused(text, headed):
    text = HEAD + text if headed else text
    try:
        chapter = parse(text)
    except ChapterError as error:
        assert 1 <= error.line <= max(1, len(text.splitlines())) and error.message
        return
    written = text.splitlines()
    for cell in chapter.cells:
        source = cell.source.splitlines()
        assert source and source[0].strip()
        assert source[0] in written[cell.line - 1]
    for lang in ("zh", "en"):
        nbformat.validate(notebook(chapter, lang))
