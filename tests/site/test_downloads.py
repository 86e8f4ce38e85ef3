"""What readers take along: notebooks that Jupyter shows right and runs, and plain texts."""

import json
import re

from common.site.downloads import Place, colab_url, executed_notebook, file_name, plain_text, portable
from common.site.executor import BILINGUAL
from common.site.languages import EN, LANGUAGES, ZH
from common.site.store import Entry

import nbformat
import pytest
from miniature import EXECUTED, parsed

PLACE = Place(
    "https://example.org/repo/",
    "https://github.com/owner/repo",
    "abc123",
    frozenset({"m01_first/1_alpha.py", "m02_second/0_overview.py", "index.md", "about.md"}),
)
NAME = "m01_first/0_overview.py"


def in_english(text: str) -> str:
    return portable(text, NAME, EN, PLACE)


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[one](1_alpha.py#same)", "[one](https://example.org/repo/en/m01/1-alpha/#same)"),
        ("[two](../m02_second/0_overview.py)", "[two](https://example.org/repo/en/m02/)"),
        ("[home](../index.md)", "[home](https://example.org/repo/en/)"),
        ("[us](../about.md#who)", "[us](https://example.org/repo/en/about/#who)"),
        ("[not yet](2_beta.py)", "not yet"),
        ("[`code` and [x]](1_alpha.py)", "[`code` and [x]](https://example.org/repo/en/m01/1-alpha/)"),
        ("[here](#top), [out](https://pytorch.org)", "[here](#top), [out](https://pytorch.org)"),
        ("`[no](1_alpha.py)` and a[0](x)", "`[no](1_alpha.py)` and a0"),
        ("```\n[no](1_alpha.py)\n```", "```\n[no](1_alpha.py)\n```"),
    ],
)
def test_links_lead_back_to_the_site_and_those_to_pages_to_come_are_words(link, expected):
    assert in_english(link) == expected


def test_links_of_a_chinese_notebook_lead_to_chinese_pages():
    assert portable("[一](1_alpha.py)", NAME, ZH, PLACE) == "[一](https://example.org/repo/m01/1-alpha/)"


def test_an_admonition_becomes_a_quotation_with_its_title():
    text = 'Before.\n\n!!! note "Mind"\n    One.\n\n    Two.\n\nAfter.'
    assert in_english(text) == "Before.\n\n> **Mind**\n>\n> One.\n>\n> Two.\n>\n\nAfter."


@pytest.mark.parametrize(("language", "title"), [(ZH, "註"), (EN, "Note")])
def test_an_admonition_without_title_gets_one_of_its_language(language, title):
    assert portable("!!! note\n    A.", NAME, language, PLACE).startswith(f"> **{title}**\n")


def test_a_fold_becomes_details_that_close():
    text = '??? question "Why?"\n    Because.\n\nAfter.'
    assert in_english(text) == "<details><summary>Why?</summary>\n\nBecause.\n\n\n</details>\n\nAfter."
    assert in_english('??? tip "Last"\n    End.').endswith("End.\n\n</details>")


def test_anchors_and_abbreviations_go_and_wrapped_chinese_lines_join():
    assert in_english("## Title {#own}\n\nText `{#x}`\n\n*[LSB]: least\n") == "## Title\n\nText `{#x}`"
    assert portable("一行\n寫不下。\n\n```\n甲\n乙\n```", NAME, ZH, PLACE) == "一行寫不下。\n\n```\n甲\n乙\n```"


CHAPTER = parsed(
    """\
    # %% tags=["setup"]
    import math

    # %%
    print(1)

    # %% tags=["solution"]
    say()
    """
)
OUTPUTS = [
    [],
    [{"output_type": "stream", "name": "stdout", "text": "1\n"}],
    [
        {
            "output_type": "display_data",
            "data": {
                BILINGUAL: {"zh": {"text/plain": "中"}, "en": {"text/plain": "en", "text/html": "<b>en</b>"}},
                "text/plain": "?",
            },
        }
    ],
]
ENTRY = Entry(CHAPTER.name, "key", {}, OUTPUTS, 1.0)


def test_a_notebook_is_valid_and_has_the_outputs_of_its_language_and_folded_code():
    for language in LANGUAGES:
        book = executed_notebook(CHAPTER, ENTRY, language, PLACE)
        nbformat.validate(book)
        code = [cell for cell in book.cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in code] == [1, 2, 3, 4]
        assert [bool(cell.metadata.get("jupyter")) for cell in code] == [True, True, False, True]
        assert code[3].outputs[0].data == OUTPUTS[2][0]["data"][BILINGUAL][language.code]
        assert "pt2e" not in book.cells[2].metadata and book.metadata.pt2e.commit == "abc123"


def test_the_first_code_cell_installs_the_course_as_it_was_at_the_commit_and_python_can_read_it():
    book = executed_notebook(CHAPTER, ENTRY, ZH, PLACE)
    assert book.cells[0].cell_type == "markdown" and book.cells[1].id == "install"
    source = book.cells[1].source
    compile(source, "install", "exec")
    assert '"pt2e-course @ git+https://github.com/owner/repo@abc123"' in source
    assert 'setdefault("PT2E_LANG", "zh")' in source


def test_nothing_is_installed_where_the_course_is(monkeypatch):
    import subprocess

    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("pip was called"))
    monkeypatch.setenv("PT2E_LANG", "en")
    exec(executed_notebook(CHAPTER, ENTRY, ZH, PLACE).cells[1].source, {})
    import os

    assert os.environ["PT2E_LANG"] == "en"


def test_colab_opens_the_notebooks_branch_of_a_repository_on_github_only():
    url = "https://colab.research.google.com/github/owner/repo/blob/notebooks/en/m01/1-alpha/m01-1-alpha.ipynb"
    assert colab_url("m01_first/1_alpha.py", EN, "https://github.com/owner/repo/") == url
    assert colab_url("m01_first/1_alpha.py", ZH, "https://github.com/owner/repo") == url.replace("/en/", "/")
    assert colab_url("m01_first/1_alpha.py", EN, "https://example.org/repo") is None


def test_the_plain_text_has_text_code_and_outputs_and_no_install_cell():
    text = plain_text(executed_notebook(CHAPTER, ENTRY, EN, PLACE))
    assert text.endswith("```python\nprint(1)\n```\n\n```text\n1\n```\n\n```python\nsay()\n```\n\n```text\nen\n```\n")
    assert "pip" not in text and text.startswith("# ")


@pytest.mark.site
@pytest.mark.parametrize("folder", ["", "en/"])
def test_every_page_offers_its_notebook_source_and_plain_text(built, folder):
    from common.site.outline import address

    for name in sorted(path.relative_to(built.chapters).as_posix() for path in built.chapters.rglob("*.py")):
        page = f"{folder}{address(name)}"
        html = built.page(page)
        files = {ending: built.site / page / f"{file_name(name)}{ending}" for ending in (".ipynb", ".py", ".md")}
        assert all(f'href="{path.name}"' in html for ending, path in files.items() if ending != ".md")
        book = nbformat.reads(files[".ipynb"].read_text(encoding="utf-8"), as_version=4)
        nbformat.validate(book)
        assert files[".py"].read_bytes() == (built.chapters / name).read_bytes()
        assert re.search(r"colab\.research\.google\.com/github/[\w-]+/[\w-]+/blob/notebooks/" + page, html)
        outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
        assert not any(BILINGUAL in output.get("data", {}) for output in outputs)


@pytest.mark.site
def test_llms_txt_lists_every_plain_text_of_both_languages(built):
    listed = re.findall(r"\]\(https://example\.org/repo/(\S+)\)", (built.site / "llms.txt").read_text(encoding="utf-8"))
    assert len(listed) == 2 * len(EXECUTED) and all((built.site / path).is_file() for path in listed)


@pytest.mark.site
def test_notebooks_tell_nothing_of_the_machine(built):
    for path in built.site.rglob("*.ipynb"):
        text = path.read_text(encoding="utf-8")
        assert str(built.root) not in text and json.loads(text)["nbformat"] == 4
