"""The check of the built site: every planted fault is found, with its page, and nothing else is."""

import pathlib

from common.site.checks import site_faults

import pytest

SITE_URL = "https://example.org/repo/"
PAGE = """<!doctype html>
<html lang="en"><head><link rel="canonical" href="{own}"><link rel="stylesheet" href="{up}style.css">
<link rel="alternate" hreflang="en" href="https://example.org/repo/en/">
<link rel="edit" href="https://elsewhere.example/edit"></head>
<body><h1 id="title">Title</h1><p id="para">Text</p>{body}</body></html>
"""


@pytest.fixture
def site(tmp_path: pathlib.Path) -> pathlib.Path:
    """A sound site of three pages."""
    folder = tmp_path / "out" / "site"
    write(folder, "index.html", "")
    write(folder, "en/index.html", "")
    write(folder, "m01/1-alpha/index.html", "")
    (folder / "404.html").write_text('<a href="/repo/">Home</a>')
    (folder / "style.css").write_text("a { background: url(images/a.png) } /* https://example.org */")
    (folder / "images").mkdir()
    (folder / "images/a b.png").write_bytes(b"")
    (folder.parent / "outside.html").write_text("<p>not of the site</p>")
    return folder


def write(folder: pathlib.Path, name: str, body: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    up = "../" * name.count("/")
    own = SITE_URL + name.removesuffix("index.html")
    path.write_text(PAGE.format(own=own, up=up, body=body), encoding="utf-8")


def faults(site: pathlib.Path, body: str, site_url: str = SITE_URL) -> list[str]:
    write(site, "m01/1-alpha/index.html", body)
    return [str(fault) for fault in site_faults(site, site_url)]


SOUND = [
    '<a href="../../">home</a>',
    '<a href="../../#title">home</a>',
    '<a href="#para">here</a>',
    '<a href=".">here</a>',
    '<a href="../../index.html#title">home</a>',
    '<a href="/repo/en/#title">absolute</a>',
    '<a href="https://example.org/repo/en/#title">full</a>',
    '<a href="https://elsewhere.example/#x">out</a> <a href="//elsewhere.example/">out</a>',
    '<a href="mailto:a@example.org">mail</a>',
    '<img src="../../images/a%20b.png" alt="" srcset="../../images/a%20b.png 2x">',
    '<img src="data:image/png;base64,AAAA" alt="">',
    '<a href="#__tabbed_1">made by the theme</a>',
    '<a href="?q=1#title">with a query</a>',
    '<svg><defs><path id="p"/></defs><use href="#p"/></svg>',
    '<a id="量化" href="#%E9%87%8F%E5%8C%96">encoded</a>',
    '<code>&lt;img src="nowhere.png"&gt;</code>',
]


@pytest.mark.parametrize("body", SOUND)
def test_a_sound_page_has_no_fault(site, body):
    assert faults(site, body) == []


PLANTED = {
    "a dead link": ('<a href="../2-beta/">x</a>', "dead link ../2-beta/"),
    "a source path": ('<a href="../2_beta.py">x</a>', "dead link ../2_beta.py"),
    "a dead absolute link": ('<a href="/repo/nowhere/">x</a>', "dead link /repo/nowhere/"),
    "a link beside the prefix": ('<a href="/en/">x</a>', "dead link /en/: outside /repo/"),
    "a dead full link": ('<a href="https://example.org/repo/nowhere/">x</a>', "dead link"),
    "a link out of the site": ('<a href="../../../outside.html">x</a>', "dead link ../../../outside.html: outside"),
    "an absolute link out of the site": ('<a href="/repo/../outside.html">x</a>', "outside"),
    "a dead anchor": ('<a href="#nothing">x</a>', "dead anchor #nothing"),
    "a dead anchor elsewhere": ('<a href="../../en/#nothing">x</a>', "dead anchor ../../en/#nothing"),
    "a dead encoded anchor": ('<a href="#%E9%87%8F">x</a>', "dead anchor"),
    "a dead svg reference": ('<svg><use href="#nothing"/></svg>', "dead anchor #nothing"),
    "a missing image": ('<img src="../../images/b.png" alt="">', "missing image ../../images/b.png"),
    "a missing larger image": ('<img src="../../images/a%20b.png" srcset="c.png 2x" alt="">', "missing image c.png"),
    "a missing script": ('<script src="../../x.js"></script>', "missing file ../../x.js"),
    "an empty link": ('<a href="">x</a>', "an empty address in <a>"),
    "an empty script": ('<script src=""></script>', "an empty address in <script>"),
    "an empty id": ('<p id="">x</p>', "an empty id"),
    "an id twice": ('<p id="para">x</p>', "id 'para' stands 2 times"),
    "a foreign image": ('<img src="https://cdn.example/a.png" alt="">', "loads https://cdn.example/a.png"),
    "a foreign script": ('<script src="//cdn.example/a.js"></script>', "loads //cdn.example/a.js"),
    "a foreign style": ('<link rel="stylesheet" href="https://cdn.example/a.css">', "loads https://cdn.example/a.css"),
    "a foreign font": ('<link rel="preconnect" href="https://fonts.example">', "loads https://fonts.example"),
    "a foreign frame": ('<iframe src="https://cdn.example/"></iframe>', "loads https://cdn.example/"),
    "a foreign object": ('<object data="https://cdn.example/a.svg"></object>', "loads https://cdn.example/a.svg"),
    "a foreign picture in a style": (
        '<p style="background:url(//cdn.example/a.png)">x</p>',
        "loads //cdn.example/a.png",
    ),
    "a foreign import": ('<style>@import "https://cdn.example/a.css";</style>', "loads https://cdn.example/a.css"),
}


@pytest.mark.parametrize(("body", "words"), PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_found_with_its_page(site, body, words):
    (found,) = faults(site, body)
    assert found.startswith("m01/1-alpha/index.html: ") and words in found


def test_every_fault_of_a_page_is_told_at_once(site):
    assert len(faults(site, '<a href="x">1</a><a href="y">2</a><img src="z.png" alt="">')) == 3


def test_a_fault_tells_the_address_that_is_wrong(site):
    write(site, "index.html", '<a href="nowhere/#part">x</a>')
    (found,) = site_faults(site, SITE_URL)
    assert (found.page, found.url) == ("index.html", "nowhere/#part")


def test_an_empty_page_is_a_fault(site):
    (site / "m01/1-alpha/index.html").write_text("\n")
    assert [fault.page for fault in site_faults(site, SITE_URL)] == ["m01/1-alpha/index.html"]


@pytest.mark.parametrize(
    "rule", ["@import url(https://cdn.example/a.css);", "a { background: url('//cdn.example/a.png') }"]
)
def test_a_style_sheet_that_loads_from_elsewhere_is_a_fault(site, rule):
    (site / "style.css").write_text(rule)
    (found,) = site_faults(site, SITE_URL)
    assert found.page == "style.css" and "from another host" in found.what


def test_a_relative_address_on_the_page_for_any_address_is_a_fault(site):
    (site / "404.html").write_text('<a href="en/">English</a>')
    (found,) = site_faults(site, SITE_URL)
    assert found.page == "404.html"


def test_a_site_at_the_root_of_its_host_needs_no_prefix(site):
    for page in site.rglob("*.html"):
        page.write_text(page.read_text().replace("/repo/", "/"))
    write(site, "m01/1-alpha/index.html", '<a href="/en/#title">x</a>')
    path = site / "m01/1-alpha/index.html"
    path.write_text(path.read_text().replace("example.org/repo/", "example.org/"))
    assert site_faults(site, "https://example.org/") == []
