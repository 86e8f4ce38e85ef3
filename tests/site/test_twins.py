"""Edits of one language alone are found, whatever else moved."""

import subprocess

from common.site.twins import Pair, edits, pairs

import pytest
from miniature import Project, parsed
from test_commands import ask

BODY = """\
# %% [markdown] lang="zh"
# 甲句。

# %% [markdown] lang="en"
# Sentence A.

# %%
say(T(zh="乙句", en=f"sentence {b}"))
"""


def edited(old: str, new: str, text: str = BODY) -> list[str]:
    """Which language is told when `old` becomes `new`."""
    assert old in text
    found = edits("page", pairs(parsed(text)), pairs(parsed(text.replace(old, new))))
    return [edit.edited for edit in found]


def test_the_pairs_of_a_page_are_its_text_cells_and_what_its_code_says():
    found = pairs(parsed(BODY))
    assert [(pair.zh, pair.en) for pair in found][1:] == [("甲句。", "Sentence A."), ("'乙句'", "f'sentence {b}'")]
    assert all(pair.line_zh < pair.line_en or pair.zh == "'乙句'" for pair in found)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("甲句", "改過的甲句", ["zh"]),
        ("Sentence A", "Sentence B", ["en"]),
        ("乙句", "丙句", ["zh"]),
        ("sentence {b}", "phrase {b}", ["en"]),
        ('甲句。\n\n# %% [markdown] lang="en"\n# Sentence A.', '丁。\n\n# %% [markdown] lang="en"\n# D.', []),
        ("# %%\n", '# %% [markdown] lang="zh"\n# 新。\n\n# %% [markdown] lang="en"\n# New.\n\n# %%\n', []),
        ("# %%\n", "# %%\nx = 1\n", []),
    ],
)
def test_an_edit_of_one_side_is_told_and_no_other(old, new, told):
    assert edited(old, new) == told


def test_swapped_cells_are_no_edits():
    a, b = Pair("甲", "a", 1, 2), Pair("乙", "b", 3, 4)
    assert list(edits("page", [a, b], [b, a])) == []


@pytest.fixture
def committed(project) -> Project:
    def git(*words):
        names = ["-c", "user.name=Author", "-c", "user.email=author@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *names, *words], cwd=project.root, check=True, capture_output=True)

    project.git = git
    git("init", "-q")
    git("add", "chapters", "docs", "mkdocs.yml")
    git("commit", "-qm", "Begin")
    return project


@pytest.mark.site
def test_the_command_lists_lines_and_fails_until_the_twin_or_the_mark_is_there(committed):
    assert ask(committed, "twins") == ""
    page = "chapters/m01_first/1_alpha.py"
    committed.edit(page, "甲句。", "改過的甲句。")
    said = ask(committed, "twins", status=1)
    text = (committed.root / page).read_text(encoding="utf-8").splitlines()
    line = next(number for number, words in enumerate(text, 1) if "改過的甲句。" in words)
    assert f"{page}:{line}: Chinese edited, its English twin (line " in said
    committed.git("commit", "-qam", f"Mend a typo\n\nOne language: {page}")
    assert ask(committed, "twins", "--since", "HEAD~1") == ""


@pytest.mark.site
def test_an_ordinary_page_has_its_twin_in_another_file(committed):
    committed.edit("docs/en/index.md", "# Home", "# At home")
    assert "docs/en/index.md:1: English edited" in ask(committed, "twins", status=1)
    committed.edit("docs/zh/index.md", "# 首頁", "# 在首頁")
    assert ask(committed, "twins") == ""


@pytest.mark.site
def test_a_commit_that_is_not_there_is_told(committed):
    assert "git diff: " in ask(committed, "twins", "--since", "nowhere", status=1)
