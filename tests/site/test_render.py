"""From outputs to HTML: nothing is lost, nothing is taken for markup, each language keeps its own."""

import re

from common.site.chapter import notebook
from common.site.executor import BILINGUAL
from common.site.render import Fragments, code_html, code_parts, output_content, page_blocks, unique_ids

import nbformat
import pytest
from lxml import etree, html
from miniature import code, parsed

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
    'aria-labelledby="name note" fill="#abc"><title id="name">T</title><desc id="note">D</desc>'
    '<defs><path id="abc" d="M0 0"/><clipPath id="clip"><rect/></clipPath></defs>'
    '<use href="#abc"/><use xlink:href="#abc"/><g clip-path="url(#clip)" style="fill:url(#clip);stroke:#abc"/>'
    '<a href="#outside"><text>#abc</text></a></svg>'
)


def stream(text: str) -> nbformat.NotebookNode:
    return nbformat.from_dict({"output_type": "stream", "name": "stdout", "text": text})


def display(**data: object) -> nbformat.NotebookNode:
    named = {name.replace("_", "/", 1): value for name, value in data.items()}
    return nbformat.from_dict({"output_type": "display_data", "data": named, "metadata": {}})


def bilingual(zh: dict, en: dict, **fallback: object) -> nbformat.NotebookNode:
    output = display(**fallback)
    output.data[BILINGUAL] = nbformat.from_dict({"zh": zh, "en": en})
    return output


def cells(body: str, *outputs: list) -> list[nbformat.NotebookNode]:
    """The cells of a chapter's English notebook below its title; its code cells show these outputs."""
    book = notebook(parsed(body), "en")
    made = [cell for cell in book.cells if cell.cell_type == "code"]
    for cell, shown in zip(made, [*outputs, *[[]] * len(made)], strict=False):
        cell.outputs = shown
    return book.cells[1:]


def parts_html(body: str, *outputs: nbformat.NotebookNode, language: str = "en") -> str:
    """What a page shows of one code cell, its marks put back."""
    kept = Fragments()
    (cell,) = cells(body, list(outputs))
    return restored(code_parts(cell, language, kept), kept)


def restored(parts, kept):
    """The parts' text and HTML."""
    return kept.restore(kept.restore_texts("".join(part.mark for part in parts)))


# --- code


@pytest.mark.parametrize(
    "source",
    [
        'x = "<b>&amp;</b>"  # a < b',
        "def f(x):\n\n    return x\n\n\nf(1)",
        's = """\n# %% [markdown]\n$x$ *y*\n"""',
        "x = {'a': [1, 2]}\nx['a'] @= lambda: None",
    ],
)
def test_code_reads_as_it_was_written(source):
    shown = html.fromstring(code_html(source))
    assert shown.text_content().rstrip("\n") == source
    assert not shown.xpath("//b")


@pytest.mark.parametrize(("tag", "zh", "en"), [("setup", "準備", "Setup"), ("plot", "程式", "Code")])
def test_setup_and_plot_code_is_folded_and_its_outputs_are_not(tag, zh, en):
    for language, summary in (("zh", zh), ("en", en)):
        shown = html.fromstring(
            parts_html(code("x = 1", options=f'tags=["{tag}"]'), stream("out\n"), language=language)
        )
        (fold,) = shown.xpath(f'//details[@class="{tag}"]')
        assert fold.findtext("summary") == summary
        assert "x = 1" in fold.text_content() and "out" not in fold.text_content()
        assert shown.xpath('string(//div[@class="output"])').strip() == "out"


def test_plain_code_is_not_folded():
    assert "<details" not in parts_html(code("x = 1"))


# --- outputs


@pytest.mark.parametrize(
    "text", ["a < b & c\n", "<script>alert(1)</script>\n", "tensor([[1, 2],\n        [3, 4]])\n", "&lt;\n"]
)
def test_printed_text_is_shown_as_it_is(text):
    shown = html.fromstring(parts_html(code("x"), stream(text)))
    assert shown.xpath("string(//div[@class='output']/pre)") == text.rstrip("\n")


def test_terminal_colours_are_dropped():
    assert ">red and bold<" in parts_html(code("x"), stream("\x1b[31mred\x1b[0m and \x1b[1;32mbold\x1b[0m\n"))


def test_blank_output_shows_nothing():
    assert "output" not in parts_html(code("x"), stream(" \n\n"))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"text_plain": "p", "text_markdown": "m", "text_html": "h"}, "text/html"),
        ({"text_plain": "p", "text_markdown": "m"}, "text/markdown"),
        ({"text_plain": "p", "application_json": {}}, "text/plain"),
    ],
)
def test_the_richest_kind_of_an_output_is_shown(data, kind):
    assert output_content(display(**data), "en") == (kind, data[kind.replace("/", "_")])


def test_text_in_several_lines_is_one_text():
    assert output_content(display(text_html=["<p>\n", "x</p>"]), "en") == ("text/html", "<p>\nx</p>")


@pytest.mark.parametrize("kind", ["text/html", "text/markdown", "text/plain"])
def test_each_language_keeps_its_own_output(kind):
    output = bilingual({kind: "字"}, {kind: "word"}, text_html="fallback", text_plain="fallback")
    assert output_content(output, "zh") == (kind, "字")
    assert output_content(output, "en") == (kind, "word")


def test_html_passes_and_tables_may_scroll_within_the_page():
    shown = html.fromstring(parts_html(code("x"), display(text_html="<table><tr><td>1</td></tr></table>")))
    (box,) = shown.xpath('//div[contains(@class, "output")]')
    assert "table-scroll" in box.get("class").split() and box.get("tabindex") == "0"
    assert "table-scroll" not in parts_html(code("x"), display(text_html="<p>1</p>"))


def test_markdown_outputs_are_left_to_the_sites_markdown():
    kept = Fragments()
    (cell,) = cells(code("x"), [display(text_markdown="**bold** $x$")])
    (part,) = code_parts(cell, "en", kept)[1:]
    assert part.kind == "output-text" and restored([part], kept).strip() == "**bold** $x$"


# --- folded solutions

SOLUTION = ' tags=["solution"]'


def text_cell(words: str, options: str = "") -> str:
    return f"# %% [markdown]{options}\n# {words}\n\n"


def test_neighbouring_solution_cells_with_their_outputs_are_one_fold():
    body = (
        text_cell("Question.")
        + text_cell("Answer.", SOLUTION)
        + code("x = 1", options=SOLUTION.strip())
        + code("y = 2", options=SOLUTION.strip())
        + text_cell("Next.")
        + code("z = 3", options=SOLUTION.strip())
    )
    kept = Fragments()
    blocks = page_blocks(cells(body, [stream("1\n")], [stream("2\n")]), "en", kept)
    assert [block.solution for block in blocks] == [False, True, False, True]
    shown = restored(blocks[1].parts, kept)
    texts = [element.strip() for element in html.fromstring(f"<div>{shown}</div>").itertext() if element.strip()]
    assert texts[0] == "Answer." and texts.index("1") < texts.index("2")
    assert [part.kind for part in blocks[1].parts] == ["text", "html", "html", "html", "html"]


# --- ids in figures


def references(svg: etree._Element) -> set[str]:
    """Every id that an SVG refers to."""
    found = set()
    for element in svg.iter():
        for name, value in element.attrib.items():
            if name.startswith("aria-"):
                found |= set(value.split())
            elif name.endswith("href"):
                found.add(value.removeprefix("#"))
            found |= set(re.findall(r"url\(#([^)]+)\)", value))
    return found


def test_figures_shown_twice_share_no_id_and_keep_their_references():
    one, two = (etree.fromstring(unique_ids(SVG, prefix)) for prefix in ("c0o0-", "c1o0-"))
    ids = [{element.get("id") for element in svg.iter() if element.get("id")} for svg in (one, two)]
    assert len(ids[0]) == len(ids[1]) == 4
    assert not ids[0] & ids[1]
    assert references(one) - {"outside"} == ids[0] - set() and "outside" in references(one)


def test_colours_and_words_that_look_like_references_stay():
    svg = etree.fromstring(unique_ids(SVG, "p-"))
    assert svg.get("fill") == "#abc" and svg.xpath("string(//*[local-name()='text'])") == "#abc"
    assert "stroke:#abc" in svg.xpath("string(//*[@clip-path]/@style)")


def test_only_ids_inside_figures_change():
    around = '<figure id="fig"><p id="p">{}</p></figure><a href="#abc">x</a>'
    found = unique_ids(around.format(SVG), "p-")
    assert found.startswith('<figure id="fig"><p id="p"><svg') and found.endswith('</p></figure><a href="#abc">x</a>')


def test_a_figure_without_ids_stays_as_it_is():
    svg = '<svg viewBox="0 0 1 1"><g></g><path d="M0 0"></path></svg>'
    assert unique_ids(f"<p>{svg}</p>", "p-") == f"<p>{svg}</p>"


def test_ids_on_a_page_tell_cell_and_output_apart():
    shown = parts_html(code("x"), display(text_html=SVG), display(text_html=SVG))
    ids = html.fromstring(shown).xpath("//@id")
    assert len(ids) == len(set(ids)) == 8


# --- finished HTML, set aside


def test_fragments_come_back_where_their_marks_stand():
    kept = Fragments()
    first, second = kept.keep("<p>1</p>"), kept.keep(r"\1 $x$ <b>")
    assert kept.restore(f"a{second}b{first}c") == r"a\1 $x$ <b>b<p>1</p>c"


def test_a_mark_inside_a_fragment_is_not_replaced_again():
    kept = Fragments()
    inner = kept.keep("<p>1</p>")
    assert kept.restore(kept.keep(f"<pre>{inner}</pre>")) == f"<pre>{inner}</pre>"
