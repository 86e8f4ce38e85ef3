"""`mkdocs build` on a miniature course: what a reader gets, what is executed, and what every planted fault leads to.

Tests that need a build of their own are marked `site`; the others look at one that they share.
"""

import gzip
import json
import pathlib
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from urllib.parse import unquote, urljoin

import pytest
from lxml import html
from miniature import EXECUTED, PAGES, RAN, Project, code, contents, eventually, page

BASE = "https://example.org/repo/"
BOTH = ("", "en/")


def tree(project: Project, address: str) -> html.HtmlElement:
    return html.fromstring(project.page(address).encode())


def article(project: Project, address: str) -> html.HtmlElement:
    (found,) = tree(project, address).xpath("//article")
    return found


def prose(found: html.HtmlElement) -> str:
    """The text of a page without its code and what that printed."""
    copied = html.fromstring(html.tostring(found))
    for pre in copied.xpath("//pre"):
        pre.drop_tree()
    return copied.text_content()


# --- what a reader gets


def test_a_code_cell_runs_once_for_both_languages(built):
    assert built.first_run == EXECUTED
    times = [re.findall(r"at (\d{15,})", built.page(f"{folder}m01/")) for folder in BOTH]
    assert len(times[0]) == 1 and times[0] == times[1]
    assert "5 code cells executed" not in built.said and "7 code cells executed" in built.said


@pytest.mark.parametrize("address", PAGES)
def test_every_page_is_there_in_both_languages(built, address):
    for folder, language in zip(BOTH, ("zh-Hant", "en"), strict=True):
        assert built.page(folder + address).lstrip().lower().startswith("<!doctype html>")
        assert tree(built, folder + address).get("lang") == language


@pytest.mark.parametrize("address", PAGES)
def test_canonical_and_alternate_addresses_are_right_under_a_prefix(built, address):
    for folder in BOTH:
        head = tree(built, folder + address)
        assert head.xpath('//link[@rel="canonical"]/@href') == [BASE + folder + address]
        alternates = {
            link.get("hreflang"): link.get("href") for link in head.xpath('//link[normalize-space(@rel)="alternate"]')
        }
        assert alternates == {"zh-Hant": BASE + address, "en": f"{BASE}en/{address}", "x-default": BASE + address}


@pytest.mark.parametrize("address", PAGES)
def test_the_language_switch_leads_to_the_same_page(built, address):
    for folder, other in (BOTH, BOTH[::-1]):
        (switch,) = tree(built, folder + address).xpath("//a[@data-twin]")
        assert urljoin(BASE + folder + address, switch.get("href")) == BASE + other + address


def test_links_are_relative_and_lead_somewhere(built):
    for file in built.site.rglob("*.html"):
        root = html.fromstring(file.read_bytes())
        here = BASE + file.relative_to(built.site).as_posix().removesuffix("index.html")
        for address in root.xpath("//a/@href | //img/@src | //script/@src | //link[@rel='stylesheet']/@href"):
            assert file.name == "404.html" or not address.startswith("/"), f"{file}: {address}"
            target, _, fragment = urljoin(here, address).partition("#")
            if not target.startswith(BASE):
                hosts = "https://github.com/", "https://colab.research.google.com/github/"
                assert address.startswith(hosts), f"{file}: {address}"
                continue
            path = built.site / unquote(target.removeprefix(BASE))
            path = path / "index.html" if path.is_dir() else path
            assert path.is_file(), f"{file}: {address}"
            if fragment and not fragment.startswith("__"):
                ids = html.fromstring(path.read_bytes()).xpath("//@id")
                assert unquote(fragment) in ids, f"{file}: {address}"


@pytest.mark.parametrize("address", PAGES)
def test_both_languages_have_the_same_anchors_and_none_twice(built, address):
    ids = []
    for folder in BOTH:
        found = tree(built, folder + address)
        every = found.xpath("//@id")
        assert len(every) == len(set(every)) and "" not in every
        ids.append(found.xpath("//article//*[self::h1 or self::h2 or self::h3]/@id"))
    assert ids[0] == ids[1]
    assert all(name.isascii() for name in ids[0])


def test_anchors_are_slugs_of_english_headings_and_the_contents_link_to_them(built):
    for folder in BOTH:
        found = tree(built, f"{folder}m01/1-alpha/")
        assert found.xpath("//article//h2/@id")[:2] == ["same", "same-2"] and found.xpath("//article//h3/@id") == [
            "same-3"
        ]
        for shown in found.xpath('//nav[contains(@class, "md-nav--secondary")]'):  # beside the page, and in the drawer
            assert [a.get("href") for a in shown.xpath('.//li//a[starts-with(@href, "#")]')] == [
                "#same",
                "#same-2",
                "#same-3",
            ]
    assert article(built, "m01/").xpath("//h2/@id")[:2] == ["why-it-matters", "exercise"]


def test_each_language_shows_its_own_text_and_outputs_and_the_shared_ones(built):
    zh, en = (article(built, f"{folder}m01/") for folder in BOTH)
    assert [caption.text for caption in zh.xpath("//figcaption")] == ["圖0", "圖1"]
    assert [caption.text for caption in en.xpath("//figcaption")] == ["figure0", "figure1"]
    assert zh.xpath("//figure/svg/@aria-label") == ["圖"] * 2 and en.xpath("//figure/svg/@aria-label") == ["figure"] * 2
    assert "得到" in prose(zh) and "got" not in prose(zh)
    assert "got" in prose(en) and not re.search("[\u4e00-\u9fff]", prose(en))
    for found in (zh, en):
        assert "fallback" not in prose(found)
        assert (
            len(found.xpath('//div[contains(@class, "output-text")]//math')) == 1
        )  # an output's Markdown is the site's


def test_both_languages_show_the_same_code_and_prints(built):
    for address in ("m01/", "m01/1-alpha/", "m02/"):
        shown = [[pre.text_content() for pre in article(built, folder + address).xpath("//pre")] for folder in BOTH]
        assert shown[0] == shown[1] and shown[0]
    assert "# ls -la is a comment\n" in article(built, "m01/").xpath("string(//pre)")
    assert "1 < 2 & 3" in article(built, "m01/").text_content()


def test_figures_keep_their_inner_references(built):
    for folder in BOTH:
        figures = article(built, f"{folder}m01/").xpath("//figure/svg")
        assert [use.get("href") for svg in figures for use in svg.xpath(".//use")] == [
            f"#{path.get('id')}" for svg in figures for path in svg.xpath(".//path")
        ]


def test_setup_plot_and_solutions_are_folded(built):
    for folder, words in zip(BOTH, (("準備", "程式", "解答"), ("Setup", "Code", "Solution")), strict=True):
        folds = article(built, f"{folder}m01/").xpath("//details")
        assert [fold.get("class") for fold in folds] == ["setup", "plot", "solution"]
        assert tuple(fold.findtext("summary") for fold in folds) == words
        solution = folds[2].text_content()
        assert "forty two" in solution and ("答案如下" in solution or "This is it" in solution)
        assert "figure" not in folds[1].xpath("string(.//figure)") and not folds[1].xpath(".//figure")


def test_chapters_have_the_sites_markdown(built):
    for folder in BOTH:
        found = article(built, f"{folder}m01/")
        assert len(found.xpath('//div[@class="admonition note"]')) == 1
        assert len(found.xpath("//math")) == 3 and found.xpath('string(//*[@class="equation-number"])') == "(1)"
        text = prose(found)
        assert not re.search(r"\$|\\mathrm|!!!|\*\*|\]\(", text), text
    assert "一行寫不下就換行。" in article(built, "m01/").text_content()


def test_a_link_to_a_promised_page_is_plain_text(built):
    for folder, words in zip(BOTH, ("還沒寫的", "to come"), strict=True):
        assert article(built, f"{folder}m01/").xpath('string(//span[@class="unwritten"])') == words
        assert "3_planned" not in built.page(f"{folder}m01/")


def test_pages_tell_where_their_results_come_from(built):
    for folder, words in zip(BOTH, ("沒有 git 資訊", "no git information"), strict=True):
        told = article(built, f"{folder}m02/").xpath("string(.//footer)")
        assert words in told and re.search(r"\d{4}-\d\d-\d\d", told)
        links = article(built, f"{folder}m02/").xpath(".//footer//a/@href")
        assert [link.partition("/main/")[2] for link in links] == ["chapters/m02_second/0_overview.py"] * 2


def test_no_page_shows_this_machine(built):
    for file in built.site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        found = re.findall(r"/tmp/|/home/|site-packages|ipykernel_|Traceback|" + re.escape(str(built.root)), text)
        assert not found, file


def test_search_knows_the_sections_of_its_own_language(built):
    for folder in BOTH:
        index = json.loads((built.site / folder / "search/index.json").read_text(encoding="utf-8"))
        urls = [document["url"] for document in index["documents"]]
        assert {"m01/#why-it-matters", "m01/1-alpha/#same-2", "about/#why"} <= set(urls)
        assert not [url for url in urls if url.startswith("en/")]


def test_site_maps_list_the_pages_of_their_language(built):
    for folder in BOTH:
        listed = re.findall("<loc>(.*)</loc>", (built.site / folder / "sitemap.xml").read_text())
        assert sorted(listed) == sorted(BASE + folder + address for address in PAGES)


def test_only_the_site_has_a_page_for_missing_addresses(built):
    assert [path.relative_to(built.site).as_posix() for path in built.site.rglob("404.html")] == ["404.html"]


def test_a_build_writes_nothing_into_the_sources(built):
    after = contents(built.root)
    new = {name for name in after if name not in built.sources}
    assert {name: after[name] for name in built.sources} == built.sources
    assert not [
        name for name in new if not name.startswith((".cache/", "site/", ".site.lock", "minihelp/__pycache__/"))
    ]
    assert built.leftovers() == []


# --- what is executed


def test_nothing_changed_executes_nothing_and_gives_the_same_bytes(project):
    before = undated(project.site)
    assert "0 code cells executed" in project.build()
    assert project.names_ran() == []
    assert undated(project.site) == before


def undated(site: pathlib.Path) -> dict[str, bytes]:
    """The site's files without the day of the build."""
    found = contents(site)
    for name in list(found):
        if name.endswith(".xml.gz"):
            found[name] = gzip.decompress(found[name])
        if "sitemap" in name:
            found[name] = re.sub(rb"<lastmod>.*?</lastmod>", b"", found[name])
    return found


@pytest.mark.site
def test_the_same_sources_and_cache_give_the_same_bytes_elsewhere(project):
    before = undated(project.site)
    shutil.rmtree(project.site)
    shutil.rmtree(project.root / ".cache/pages")
    project.build()
    assert project.names_ran() == []
    assert undated(project.site) == before


@pytest.mark.site
def test_prose_translation_tags_pages_and_theme_execute_nothing(project):
    project.edit("chapters/m01_first/1_alpha.py", "甲句。", "改過的甲句。")
    project.edit("chapters/m01_first/1_alpha.py", "Alpha sentence.", "Another alpha sentence.")
    project.edit("chapters/m01_first/2_beta.py", "# %%\nfrom", '# %% tags=["setup"]\nfrom')
    project.edit("docs/zh/about.md", "看[", "再看[")
    project.edit("mkdocs.yml", "    - navigation.top\n", "")
    project.edit("mkdocs.yml", "site_name: PT2E 量化課程", "site_name: 小課程")
    project.write("minihelp/unused.py", "X = 1\n")
    project.edit("minihelp/base.py", "VALUE = 1", "# a comment\nVALUE = 1")
    project.build()
    assert project.names_ran() == []
    assert "改過的甲句。" in project.page("m01/1-alpha/") and "小課程" in project.page("m02/")
    assert "Another alpha sentence." in project.page("en/m01/1-alpha/")
    assert 'class="setup"' in project.page("en/m01/2-beta/")
    assert "再看" in project.page("about/")


@pytest.mark.site
@pytest.mark.parametrize(
    ("file", "old", "new", "expected", "address", "shown"),
    [
        ("minihelp/base.py", "VALUE = 1", "VALUE = 5", ["alpha"], "m01/1-alpha/", "alpha gives 5"),
        ("minihelp/beta.py", "VALUE = 10", "VALUE = 50", ["beta", "second"], "m02/", "second gives 50"),
        (
            "chapters/m01_first/1_alpha.py",
            '"alpha gives"',
            '"alpha now gives"',
            ["alpha"],
            "m01/1-alpha/",
            "now gives 1",
        ),
    ],
    ids=["a helper of a helper", "a helper of two", "a code cell"],
)
def test_an_edit_executes_exactly_the_chapters_that_depend_on_it(project, file, old, new, expected, address, shown):
    project.edit(file, old, new)
    project.build()
    assert project.names_ran() == expected
    for folder in BOTH:
        assert shown in article(project, folder + address).text_content()


@pytest.mark.site
def test_an_upgraded_library_executes_the_chapters_that_use_it(project):
    """The library is one of the project's own making, on the path of the build and of its kernels."""
    library = project.root.with_name("library")
    install(library, "1.0")
    project.edit(
        "chapters/m01_first/1_alpha.py", "from minihelp import alpha", "import minilib\nfrom minihelp import alpha"
    )
    project.path = str(library)
    project.build()
    assert project.names_ran() == ["alpha"]
    project.build()
    assert project.names_ran() == []
    install(library, "1.1")
    project.build()
    assert project.names_ran() == ["alpha"]


def install(folder: pathlib.Path, version: str) -> None:
    """Put a distribution with one module into a folder, in place of its other versions."""
    shutil.rmtree(folder, ignore_errors=True)
    info = folder / f"minilib-{version}.dist-info"
    info.mkdir(parents=True)
    (folder / "minilib.py").write_text("")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: minilib\nVersion: {version}\n")
    (info / "RECORD").write_text("minilib.py,,\n")


@pytest.mark.site
def test_going_back_to_earlier_code_executes_nothing(project):
    path = project.root / "chapters/m01_first/1_alpha.py"
    before = path.read_text(encoding="utf-8")
    project.edit("chapters/m01_first/1_alpha.py", '"alpha gives"', '"alpha now gives"')
    project.build()
    path.write_text(before, encoding="utf-8")
    project.ran()
    project.build()
    assert project.names_ran() == []
    assert "alpha gives 1" in article(project, "m01/1-alpha/").text_content()


@pytest.mark.site
def test_a_new_chapter_turns_plain_text_into_a_link_on_other_pages(project):
    project.write(
        "chapters/m01_first/3_planned.py",
        page("Planned", '# %% [markdown] lang="zh"\n# ## 節\n\n# %% [markdown] lang="en"\n# ## Part\n\n')
        + code(RAN, 'ran("planned")'),
    )
    project.build()
    assert project.names_ran() == ["planned"]
    for folder in BOTH:
        assert "3-planned/#part" in article(project, f"{folder}m01/").xpath("//a/@href")


# --- faults

Edit = Callable[[Project], object]


def edits(file: str, old: str, new: str) -> Edit:
    return lambda project: project.edit(file, old, new)


def adds(name: str, *lines: str, setting: str = "") -> Edit:
    """A code cell more at a page's end."""

    def edit(project: Project) -> None:
        path = project.chapters / name
        text = path.read_text(encoding="utf-8").rstrip("\n")
        text = text.replace('lang="zh"', f'lang="zh" {setting}', 1) if setting else text
        path.write_text(f"{text}\n\n{code(*lines)}", encoding="utf-8")

    return edit


OVER, ALPHA_PY, BETA_PY = (
    "chapters/m01_first/0_overview.py",
    "chapters/m01_first/1_alpha.py",
    "chapters/m01_first/2_beta.py",
)
SHOW = "display({'application/vnd.pt2e.bilingual+json': {k: {'text/html': HTML} for k in ('zh', 'en')}}, raw=True)"


def shows(html_text: str) -> Edit:
    return adds("m01_first/2_beta.py", "from IPython.display import display", SHOW.replace("HTML", repr(html_text)))


# name: (what is done to the course, the place that the message names, words of the message)
FAULTS: dict[str, tuple[Edit, str, str]] = {
    "a raising cell": (adds("m01_first/2_beta.py", "x = 1", "x / 0"), f"{BETA_PY}:20", "ZeroDivisionError"),
    "a dead kernel": (
        adds("m01_first/2_beta.py", "import os, signal", "os.kill(os.getpid(), signal.SIGSEGV)"),
        *(f"{BETA_PY}:19", "the kernel died (signal SIGSEGV)"),
    ),
    "an endless cell": (
        adds("m01_first/2_beta.py", "while True:", "    pass", setting="time_limit=3"),
        *(f"{BETA_PY}:19", "the time limit of 3 s is over"),
    ),
    "text on stderr": (adds("m01_first/2_beta.py", "import warnings", "warnings.warn('x')"), f"{BETA_PY}:19", "stderr"),
    "a machine path": (
        adds("m01_first/2_beta.py", "import os", "print(os.getcwd())"),
        f"{BETA_PY}:19",
        "a path of this",
    ),
    "a figure without words": (
        adds("m01_first/2_beta.py", "from IPython.display import SVG", "SVG(data='<svg/>')"),
        *(f"{BETA_PY}:19", "alternative text"),
    ),
    "a helper that is no Python": (edits("minihelp/base.py", "VALUE = 1", "VALUE = ("), "minihelp/base.py:1", "'('"),
    "an unpaired cell": (
        edits(ALPHA_PY, '# %% [markdown] lang="en"\n# ## Same', "# %%\n# x"),
        f"{ALPHA_PY}:11",
        "twin",
    ),
    "an unknown language": (
        edits(ALPHA_PY, '# %% [markdown] lang="zh"\n# ## 一樣', '# %% [markdown] lang="tw"\n# ## 一樣'),
        *(f"{ALPHA_PY}:11", "'tw'"),
    ),
    "an unknown tag": (edits(BETA_PY, "# %%\nfrom", '# %% tags=["fold"]\nfrom'), f"{BETA_PY}:11", "'fold'"),
    "other headings in English": (edits(ALPHA_PY, "# ### Same", "# #### Same"), f"{ALPHA_PY}:27", "level 4"),
    "a heading fewer in English": (edits(ALPHA_PY, "# ### Same\n", "# Same\n"), f"{ALPHA_PY}:20", "2 headings"),
    "a dead link": (edits(OVER, "[第一頁](1_alpha.py#same)", "[第一頁](7_alpha.py#same)"), f"{OVER}:14", "7_alpha.py"),
    "a dead link in English": (edits(OVER, "[home](../index.md)", "[home](../nowhere.md)"), f"{OVER}:28", "nowhere.md"),
    "a dead anchor": (edits(OVER, "[第一頁](1_alpha.py#same)", "[第一頁](1_alpha.py#gone)"), f"{OVER}:14", "#gone"),
    "a dead anchor in English": (
        edits(OVER, "[page one](1_alpha.py#same)", "[one](1_alpha.py#gone)"),
        f"{OVER}:27",
        "#gone",
    ),
    "a dead anchor of its own page": (edits(OVER, "# Try it.", "# Try [it](#gone)."), f"{OVER}:64", "#gone"),
    "a missing image": (edits(OVER, "# Try it.", "# Try ![it](gone.png)."), f"{OVER}:64", "gone.png"),
    "a dead link in a page": (
        edits("docs/zh/about.md", "](m01_first", "](m07_first"),
        "docs/zh/about.md:5",
        "m07_first",
    ),
    "a dead anchor in a page": (edits("docs/en/about.md", "#exercise", "#gone"), "docs/en/about.md:5", "#gone"),
    "a missing image in a page": (
        edits("docs/en/about.md", "(dot.svg)", "(gone.svg)"),
        "docs/en/about.md:7",
        "gone.svg",
    ),
    "a page without English": (
        lambda project: (project.root / "docs/en/about.md").unlink(),
        *("docs/zh/about.md", "no English twin; write docs/en/about.md"),
    ),
    "a page without Chinese": (
        lambda project: (project.root / "docs/zh/about.md").unlink(),
        *("docs/en/about.md", "no Chinese twin; write docs/zh/about.md"),
    ),
    "a page with other headings": (edits("docs/en/about.md", "## Why", "Why"), "docs/zh/about.md", "2 headings"),
    "a formula that doesn't parse": (
        edits(OVER, "# 做做看。", "# 做 $\\frac{1}{$ 看。"),
        *(f"{OVER}:59", "formula `\\frac{1}{`"),
    ),
    "a formula in English": (edits(OVER, "# Try it.", "# Try $\\nosuch$."), f"{OVER}:64", "formula `\\nosuch`"),
    "a formula in a page": (
        edits("docs/zh/about.md", "看[", "$\\nosuch$[ "),
        "docs/zh/about.md:5",
        "formula `\\nosuch`",
    ),
    "a missing outline": (
        lambda project: (project.chapters / "outline.toml").unlink(),
        *("chapters/outline.toml:1", "can't be read"),
    ),
    "a malformed outline": (
        edits("chapters/outline.toml", 'en = "M02 Second"\n', ""),
        *("chapters/outline.toml:7", "malformed"),
    ),
    "a chapter that isn't listed": (
        edits("chapters/outline.toml", '"2_beta", ', ""),
        *(f"{BETA_PY}:1", "not in chapters/outline.toml"),
    ),
    "two outputs with one id": (shows('<p id="one">1</p><p id="one">2</p>'), BETA_PY, "id 'one' stands 2 times"),
    "an output that loads from elsewhere": (
        shows('<script src="https://cdn.example/x.js"></script>'),
        *(f"{BETA_PY}:20", "loads https://cdn.example/x.js from another host"),
    ),
}


def assert_refused(project: Project, before: dict[str, bytes], output: str, place: str, words: str) -> None:
    """One clear message, and the last good site as it was."""
    found = {line for line in output.splitlines() if place in line and words in line and "WARNING" not in line}
    (told,) = {line.partition(" (")[0] for line in found}  # a fault of both pages is told of each
    assert re.match(r"(ERROR +-  )?" + re.escape(place) + r"\b", told), told
    assert str(project.root) not in told
    assert "mkdocs/commands/build.py" not in output, output  # no traceback of the build itself
    assert contents(project.site) == before
    assert project.leftovers() == []


@pytest.mark.site
@pytest.mark.parametrize(("edit", "place", "words"), FAULTS.values(), ids=FAULTS)
def test_a_fault_ends_the_build_with_its_place_and_the_last_good_site_stays(project, edit, place, words):
    before = contents(project.site)
    edit(project)
    output = project.build(status=1)
    assert_refused(project, before, output, place, words)


@pytest.mark.site
def test_every_chapter_that_fails_is_reported_and_the_others_run(project):
    before = contents(project.site)
    adds("m01_first/1_alpha.py", "1 / 0")(project)
    adds("m01_first/2_beta.py", "import no_such_module")(project)
    project.edit("chapters/m02_second/0_overview.py", '"second gives"', '"second now gives"')
    output = project.build(status=1)
    assert "2 of 4 chapters failed" in output
    assert f"{ALPHA_PY}:37: ZeroDivisionError" in output and f"{BETA_PY}:19: ModuleNotFoundError" in output
    assert contents(project.site) == before
    assert project.names_ran() == ["alpha", "beta", "second"]
    project.edit("chapters/m01_first/1_alpha.py", "1 / 0", "print(3)")
    project.edit("chapters/m01_first/2_beta.py", "import no_such_module", "print(4)")
    project.build()
    assert project.names_ran() == ["alpha", "beta"]


@pytest.mark.site
@pytest.mark.parametrize("option", ["-q", "-v", "--no-strict"])
@pytest.mark.parametrize(
    ("edit", "place", "words"), [FAULTS["a dead link"], FAULTS["a dead anchor"]], ids=["link", "anchor"]
)
def test_quiet_verbose_and_lenient_builds_refuse_dead_links_as_well(project, option, edit, place, words):
    before = contents(project.site)
    edit(project)
    output = project.build(option, status=1)
    assert place in output and words in output
    assert contents(project.site) == before


@pytest.mark.site
def test_a_page_that_was_refused_once_is_refused_again(project):
    FAULTS["a dead link"][0](project)
    assert project.build(status=1).count("7_alpha.py") == project.build(status=1).count("7_alpha.py") > 0


@pytest.mark.site
def test_a_site_folder_that_cannot_be_written_is_refused_before_anything_runs(project):
    before = contents(project.site)
    shutil.rmtree(project.root / ".cache")
    project.write("file", "mine")
    output = project.build("-d", "file/site", status=1)
    (told,) = {line for line in output.splitlines() if "can't write the site" in line}
    assert "file is not a folder" in told
    assert (project.root / "file").read_text() == "mine"
    assert project.names_ran() == [] and contents(project.site) == before


@pytest.mark.site
def test_what_looks_like_html_in_a_text_reaches_the_page_as_it_was_written(project):
    for old, word in (("甲句。", "與"), ("Alpha sentence.", "and")):
        text = f"`<class 'a'>` {word} `x > y` {word} 1 < 2.\n#\n# > Quoted."
        project.edit("chapters/m01_first/1_alpha.py", old, text)
    project.build()
    for folder in BOTH:
        found = article(project, f"{folder}m01/1-alpha/")
        assert {"<class 'a'>", "x > y"} <= {code.text_content() for code in found.iter("code")}
        assert "1 < 2" in found.text_content()
        assert [quote.text_content().strip() for quote in found.iter("blockquote")] == ["Quoted."]


@pytest.mark.site
def test_a_table_at_the_end_of_a_text_ends_before_the_next_text(project):
    table, next_cell = "# | a | b |\n# | - | - |\n# | 1 | 2 |\n\n", "# ## After\n#\n# Text.\n\n"
    zh, en = '# %% [markdown] lang="zh"\n', '# %% [markdown] lang="en"\n'
    with (project.chapters / "m01_first/1_alpha.py").open("a", encoding="utf-8") as file:
        file.write(f"\n{zh}{table}{en}{table}{zh}{next_cell}{en}{next_cell}")
    project.build()
    for folder in BOTH:
        found = article(project, f"{folder}m01/1-alpha/")
        assert len(found.xpath(".//h2[@id='after']")) == 1 and len(found.xpath(".//table[.//td='1']")) == 1


@pytest.mark.site
def test_a_preview_has_the_chosen_chapters_and_never_takes_the_place_of_the_site(project):
    before = contents(project.site)
    project.chosen = {"PT2E_ONLY": "m01_first/0_overview.py"}
    assert "PT2E_ONLY makes a preview: give its folder with -d" in project.build(status=1)
    project.build("-d", "preview")
    assert contents(project.site) == before and project.names_ran() == []
    pages = {path for path in contents(project.root / "preview") if path.endswith("index.html") and "m0" in path}
    assert pages == {"m01/index.html", "en/m01/index.html"}


@pytest.mark.site
def test_a_cache_that_cannot_be_written_is_told(project):
    before = contents(project.site)
    shutil.rmtree(project.root / ".cache")
    project.write(".cache", "a file")
    output = project.build(status=1)
    assert ".cache" in output and "mkdocs/commands/build.py" not in output
    assert contents(project.site) == before


@pytest.mark.site
@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: data.replace(b"gives", b"takes"), lambda data: b""]
)
def test_a_damaged_cache_entry_is_made_again(project, damage):
    (entry,) = project.root.glob(".cache/executed/m01_first.1_alpha/*.json")
    entry.write_bytes(damage(entry.read_bytes()))
    project.build()
    assert project.names_ran() == ["alpha"]
    assert "alpha gives 1" in article(project, "m01/1-alpha/").text_content()
    project.build()
    assert project.names_ran() == []


@pytest.mark.site
def test_damaged_rendered_pages_are_rendered_again(project):
    before = undated(project.site)
    pages = list(project.root.glob(".cache/pages/**/*.json"))
    assert pages
    for number, path in enumerate(pages):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] if number % 2 else data.replace(b"gives", b"takes"))
    project.build()
    assert project.names_ran() == [] and undated(project.site) == before


@pytest.mark.site
def test_two_builds_at_once_both_succeed_and_execute_a_chapter_once(project):
    project.edit("chapters/m01_first/1_alpha.py", 'ran("alpha")', 'ran("alpha", 2)')
    builds = [project.start("build") for _ in range(2)]
    outputs = [build.communicate(timeout=150)[0] for build in builds]
    assert [build.returncode for build in builds] == [0, 0], outputs
    assert project.names_ran() == ["alpha"]
    assert project.leftovers() == []
    found = contents(project.site)
    project.build()
    assert undated(project.site).keys() == found.keys() and project.names_ran() == []


def slowed(project: Project) -> pathlib.Path:
    """Make a chapter say that it runs, then wait for a minute; returns the file that says so."""
    sign = project.root.with_name("running")
    project.edit(
        "chapters/m01_first/1_alpha.py",
        'ran("alpha")',
        'import pathlib, subprocess, time\nsubprocess.Popen(["sleep", "61"])\n'
        f"pathlib.Path({str(sign)!r}).touch()\ntime.sleep(60)",
    )
    return sign


@pytest.mark.site
def test_a_killed_build_leaves_the_site_and_no_kernel_and_the_next_one_works(project):
    before = contents(project.site)
    sign = slowed(project)
    build = project.start("build")
    eventually(sign.exists, 60, "the chapter never ran")
    build.kill()
    build.communicate(timeout=30)
    project.assert_nothing_runs()
    assert contents(project.site) == before
    assert project.leftovers() != []
    project.edit("chapters/m01_first/1_alpha.py", "time.sleep(60)", 'ran("alpha")')
    project.edit("chapters/m01_first/1_alpha.py", 'subprocess.Popen(["sleep", "61"])\n', "")
    project.build()
    assert project.names_ran() == ["alpha"]
    assert project.leftovers() == []


@pytest.mark.site
def test_an_interrupted_build_ends_at_once_and_leaves_nothing(project):
    before = contents(project.site)
    sign = slowed(project)
    build = project.start("build")
    eventually(sign.exists, 60, "the chapter never ran")
    build.send_signal(signal.SIGINT)
    output, _ = build.communicate(timeout=30)
    assert build.returncode != 0, output
    project.assert_nothing_runs()
    assert contents(project.site) == before
    assert project.leftovers() == []


@pytest.mark.site
def test_addresses_are_right_without_a_prefix_and_with_a_commit(project):
    project.edit("mkdocs.yml", f"site_url: {BASE}", "site_url: https://example.org/")
    git = ["git", "-C", str(project.root), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "one"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    project.edit("chapters/m01_first/1_alpha.py", '"alpha gives"', '"alpha now gives"')
    project.build()
    for folder in BOTH:
        found = tree(project, f"{folder}m01/1-alpha/")
        assert found.xpath('//link[@rel="canonical"]/@href') == [f"https://example.org/{folder}m01/1-alpha/"]
        assert set(found.xpath('//link[normalize-space(@rel)="alternate"]/@href')) == {
            f"https://example.org/{other}m01/1-alpha/" for other in BOTH
        }
        assert head[:10] in found.xpath("string(//article//footer)")  # of its execution
        assert head[:10] in project.page(f"{folder}m02/")  # of the site
        assert head[:10] not in article(project, f"{folder}m02/").text_content()
