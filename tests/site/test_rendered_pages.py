"""Rendered pages on disk: an unchanged page is not rendered again, and nobody can tell from the site.

How many pages were rendered is told by mkdocs-jupyter, which logs every conversion.
"""

import copy
import itertools
import pathlib
import re
import shutil
from collections.abc import Iterator

from common.site import pages

import miniature
import pytest
from markdown.extensions.abbr import AbbrExtension
from markdown.extensions.footnotes import FootnoteExtension
from miniature import CHAPTERS, Project, code, make_project, page
from mkdocs.config.base import load_config
from mkdocs.structure.files import Files

pytestmark = pytest.mark.site

OVERVIEW = """\
# %% [markdown] lang="zh"
# ## 公式
#
# 見 [甲](1_alpha.py#the-part)、[還沒寫的](3_planned.py)、$x^2$。註[^1]。
#
# [^1]: 註腳。

# %% [markdown] lang="en"
# ## A formula
#
# See [alpha](1_alpha.py#the-part), [not written yet](3_planned.py), $x^2$. Note[^1].
#
# [^1]: A footnote.

# %%
from minihelp.runs import ran

ran("overview")
print("a < b")
"""
ALPHA = """\
# %% [markdown] lang="zh"
# ## 一節
#
# 舊句子。

# %% [markdown] lang="en"
# ## The part
#
# An old sentence.

# %%
from minihelp.runs import ran

ran("alpha")
print(41)
"""
RICH = {**CHAPTERS, "m01_first/0_overview": page("Overview", OVERVIEW), "m01_first/1_alpha": page("Alpha", ALPHA)}
ALL = sorted([*RICH, *RICH])  # both languages of each


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A course that was built once; tests take copies."""
    made = make_project(tmp_path_factory.mktemp("cold") / "course", RICH)
    assert converted(made.build()) == ALL
    return made


@pytest.fixture
def built(cold: Project, tmp_path: pathlib.Path) -> Iterator[Project]:
    """A built course for one test."""
    shutil.copytree(cold.root, tmp_path / "course")
    made = Project(tmp_path / "course")
    yield made
    made.assert_nothing_runs()


def converted(output: str) -> list[str]:
    """The chapters that mkdocs-jupyter converted, once for each conversion, sorted."""
    return sorted(re.findall(r"Converting notebook .*/chapters/(\S+)\.py", output))


def kept(project: Project) -> list[pathlib.Path]:
    return sorted((project.root / ".cache/pages").rglob("*.json"))


def contents(site: pathlib.Path) -> dict[str, bytes]:
    """The site's files, but for the site maps, which hold the day."""
    return {name: data for name, data in miniature.contents(site).items() if "sitemap" not in name}


def without_pages(project: Project) -> dict[str, bytes]:
    """The site as a build gives it that has no rendered page."""
    shutil.rmtree(project.root / ".cache/pages")
    assert converted(project.build()) == ALL
    return contents(project.site)


def test_an_unchanged_build_renders_nothing_and_gives_the_same_bytes(built):
    before = contents(built.site)
    assert converted(built.build()) == []
    assert contents(built.site) == before
    assert len(kept(built)) == len(ALL)
    assert built.ran() == []


def test_an_unchanged_build_does_without_what_executes_and_converts(built, monkeypatch):
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    slow = {"nbconvert", "nbclient", "mistune", "bs4", "pygments.lexers.python", "common.site.kernels"}
    assert imported(built.build()) & slow == set()
    shutil.rmtree(built.root / ".cache/pages")
    assert imported(built.build()) >= slow


def imported(output: str) -> set[str]:
    """The modules that a Python process says it imported."""
    return set(re.findall(r"^import time: .*\| +(\S+)$", output, re.MULTILINE))


def test_a_prose_edit_renders_that_language_of_that_page(built):
    built.edit("chapters/m01_first/1_alpha.py", "舊句子", "新句子")
    assert converted(built.build()) == ["m01_first/1_alpha"]
    assert "新句子" in built.page("m01/1-alpha/") and "舊句子" not in built.page("m01/1-alpha/")
    assert built.ran() == []
    assert contents(built.site) == without_pages(built)


def test_a_code_edit_renders_both_languages_of_that_page(built):
    built.edit("chapters/m01_first/1_alpha.py", "print(41)", "print(43)")
    assert converted(built.build()) == ["m01_first/1_alpha"] * 2
    for address in ("m01/1-alpha/", "en/m01/1-alpha/"):
        assert '<pre tabindex="0">43</pre>' in built.page(address)


def test_outputs_count_although_the_key_of_their_execution_is_the_same(built):
    built.edit("chapters/m01_first/1_alpha.py", "print(41)", "import os; print(len(os.environ['AGAIN']))")
    shown = {}
    for value in ("1", "22"):
        shutil.rmtree(built.root / ".cache/executed")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AGAIN", value)
            assert converted(built.build()) == ["m01_first/1_alpha"] * 2
        shown[value] = built.page("en/m01/1-alpha/")
    assert '<pre tabindex="0">1</pre>' in shown["1"] and '<pre tabindex="0">2</pre>' in shown["22"]


def test_an_edit_of_the_configuration_renders_every_page(built):
    built.edit("mkdocs.yml", 'permalink: "#"', 'permalink: "¶"')
    assert converted(built.build()) == ALL
    assert "¶" in built.page("m01/1-alpha/") and "¶" in built.page("en/m02/")


def test_a_page_that_appears_turns_plain_text_into_a_link(built):
    assert 'href="3-planned/"' not in built.page("m01/")
    built.write("chapters/m01_first/3_planned.py", page("Planned", code("print(1)")))
    assert converted(built.build()) == sorted([*ALL, *["m01_first/3_planned"] * 2])
    assert 'href="3-planned/"' in built.page("m01/") and 'href="3-planned/"' in built.page("en/m01/")


def test_an_anchor_that_is_gone_is_missed_by_pages_that_are_not_rendered_again(built):
    built.edit("chapters/m01_first/1_alpha.py", "# ## The part", "# ## Another part")
    output = built.build(status=1)
    assert converted(output) == ["m01_first/1_alpha"] * 2  # its anchors are those of the English headings
    assert len(re.findall(r"'m01_first/0_overview\.py' contains a link '1_alpha\.py#the-part', but", output)) == 2


def test_a_page_with_a_dead_link_is_complained_about_in_every_build(built):
    built.edit("chapters/m01_first/1_alpha.py", "# An old sentence.", "# An [old](nowhere.py) sentence.")
    for _ in range(2):
        output = built.build(status=1)
        assert re.search(r"'m01_first/1_alpha\.py' contains a link 'nowhere\.py', but the target", output)
        assert "m01_first/1_alpha" in converted(output)


def test_a_build_that_hides_complaints_keeps_no_page(built):
    shutil.rmtree(built.root / ".cache/pages")
    built.build("-q")
    assert kept(built) == []


def test_damaged_pages_are_rendered_again(built):
    before = contents(built.site)
    paths = kept(built)
    damages = [
        lambda data, other: b"",
        lambda data, other: data[: len(data) // 2],
        lambda data, other: data[:-30] + bytes([data[-30] ^ 1]) + data[-29:],
        lambda data, other: other,  # another page's
        lambda data, other: data.replace(b'"format": ', b'"format": 1', 1),
        lambda data, other: b"\xff\xfe",
    ]
    texts = [path.read_bytes() for path in paths]
    for number, (path, damage) in enumerate(zip(paths, itertools.cycle(damages), strict=False)):
        path.write_bytes(damage(texts[number], texts[number - 1]))
    assert converted(built.build()) == ALL
    assert contents(built.site) == before
    assert converted(built.build()) == []


def test_few_pages_are_kept_for_each_chapter(built):
    sentences = ["舊句子", *(f"句子之{number}" for number in range(pages.KEPT + 1))]
    for before, after in itertools.pairwise(sentences):
        built.edit("chapters/m01_first/1_alpha.py", before, after)
        built.build()
    count = {name: len(list((built.root / ".cache/pages" / name / "m01.1-alpha").iterdir())) for name in ("zh", "en")}
    assert count == {"zh": pages.KEPT, "en": 1}
    built.edit("chapters/m01_first/1_alpha.py", sentences[-1], sentences[-2])  # there and back again: nothing to do
    assert converted(built.build()) == []


def test_settings_count_wherever_they_come_from(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text("site_name: A\n")
    settings = [
        {},
        {"markdown_extensions": ["admonition"]},
        {"markdown_extensions": [{"toc": {"permalink": "¶"}}]},
        {"use_directory_urls": False},
        {"validation": {"links": {"not_found": "ignore"}}},
        {"plugins": [{"mkdocs-jupyter": {"no_input": True}}]},
        {"plugins": [{"mkdocs-jupyter": {"no_input": False}}]},
    ]

    extensions = [FootnoteExtension(), FootnoteExtension(SEPARATOR="-"), AbbrExtension()]  # as a plugin adds them

    def digests() -> list[str]:
        file, given = str(tmp_path / "mkdocs.yml"), copy.deepcopy([*settings, *({} for _ in extensions)])
        configurations = [load_config(file, **more) for more in given]
        for configuration, extension in zip(configurations[-3:], extensions, strict=True):
            configuration.markdown_extensions.append(extension)
        return [pages.surroundings(configuration, Files([]), []) for configuration in configurations]

    assert len(set(digests())) == len(settings) + len(extensions)
    assert digests() == digests()


def test_every_file_of_the_package_counts_for_the_pages(tmp_path):
    package = tmp_path / "package"
    shutil.copytree(pages.HERE, package, ignore=shutil.ignore_patterns("__pycache__"))
    digests = {pages.package_digest(package)}
    assert digests == {pages.package_digest()}
    changes = 0
    for name in ("render.py", "templates/mkdocs_html/notebook.html.j2", "nbconvert/jupyter_nbconvert_config.py"):
        path = package / name
        path.write_text(path.read_text() + "\n")
        changes += 1
        digests.add(pages.package_digest(package))
    (package / "render.py").rename(package / "renderer.py")
    digests.add(pages.package_digest(package))
    (package / "new.toml").write_text("")
    digests.add(pages.package_digest(package))
    assert len(digests) == changes + 3
    (package / "__pycache__").mkdir()
    (package / "__pycache__/render.cpython-311.pyc").write_bytes(b"1")
    assert pages.package_digest(package) in digests
