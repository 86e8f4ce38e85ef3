"""Bilingual text, tables and charts."""

import os
import subprocess
import sys
from xml.etree import ElementTree

from common.viz import PALETTE, T, progress, say, show, table
from common.viz import figure as figure_module
from common.viz import text as text_module
from common.viz.text import BILINGUAL_MIME, inline, plain

import matplotlib.pyplot as plt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import html

SVG = "{http://www.w3.org/2000/svg}"
ALT = T(zh="兩條線 <交叉>", en="Two lines & a crossing")


@pytest.fixture
def published(monkeypatch):
    """The MIME bundles that were shown."""
    bundles = []
    for module in (text_module, figure_module):
        monkeypatch.setattr(module, "publish", bundles.append)
    return bundles


def page(bundle, language, mime="text/html"):
    return bundle[BILINGUAL_MIME][language][mime]


def chart(**settings):
    figure, axes = plt.subplots()
    axes.plot([0, 1, 2], [0, 1, 0.5], **settings)
    axes.set(title="int8 < fp32 & more", xlabel="step")
    return figure


# --- T and say -----------------------------------------------------------------------------------------------------


def test_format_fills_both_languages_and_takes_a_text_as_value():
    word = T(zh="較快", en="faster")
    text = T(zh="int8 {word} {ratio:.1f} 倍", en="int8 is {ratio:.1f} times {word}").format(word=word, ratio=2.04)
    assert (text.zh, text.en) == ("int8 較快 2.0 倍", "int8 is 2.0 times faster")


@pytest.mark.parametrize("texts", [{"zh": "只有一種", "en": ""}, {"zh": "  ", "en": "only one"}])
def test_a_text_without_one_of_its_languages_is_refused(texts):
    with pytest.raises(ValueError, match="each language"):
        T(**texts)


def test_say_gives_each_language_its_own_markdown(published):
    say(T(zh="**甲** $s$", en="**A** $s$"), T(zh="乙", en="B"))
    (bundle,) = published
    assert page(bundle, "zh", "text/markdown") == "**甲** $s$\n\n乙"
    assert page(bundle, "en", "text/markdown") == "**A** $s$\n\nB"


def test_a_list_of_sentences_is_one_bullet_list(published):
    say([T(zh="甲", en="A"), T(zh="乙", en="B")])
    assert page(published[0], "en", "text/markdown") == "- A\n- B"


def test_no_sentences_show_nothing(published):
    say([])
    say()
    assert published == []


def test_say_refuses_text_in_one_language():
    with pytest.raises(TypeError, match="str"):
        say("only English")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PT2E_LANG": "zh", "LANG": "en_US.UTF-8"}, "甲"),
        ({"PT2E_LANG": "en", "LANG": "zh_TW.UTF-8"}, "A"),
        ({"LANG": "zh_TW.UTF-8"}, "甲"),
        ({"LANG": "de_DE.UTF-8"}, "A"),
        ({"LANG": "C"}, "A"),
    ],
)
def test_the_fallback_is_in_the_readers_language(published, monkeypatch, environment, expected):
    monkeypatch.setattr("locale.getlocale", lambda: (None, None))
    monkeypatch.delenv("PT2E_LANG", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    say(T(zh="甲", en="A"))
    assert published[0]["text/plain"] == expected


def test_outside_a_notebook_the_plain_text_is_printed(capsys, monkeypatch):
    monkeypatch.setenv("PT2E_LANG", "zh")
    say(T(zh="甲", en="A"))
    assert capsys.readouterr().out == "甲\n"


def test_a_text_as_a_cells_last_value_shows_like_say(published):
    text = T(zh="甲", en="A")
    say(text)
    assert text._repr_mimebundle_() == published[0]


# --- inline marks --------------------------------------------------------------------------------------------------


def test_code_and_bold_are_honored_and_the_rest_is_escaped():
    assert inline("`a<b` & **c `d`** <script>") == (
        "<code>a&lt;b</code> &amp; <strong>c <code>d</code></strong> &lt;script&gt;"
    )
    assert plain("`a<b` & **c `d`**") == "a<b & c d"


# Characters that XML allows.
@given(st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc", "Cn"])))
def test_any_text_comes_out_as_it_went_in(text):
    assert "".join(ElementTree.fromstring(f"<p>{inline(text)}</p>").itertext()) == plain(text)


# --- tables --------------------------------------------------------------------------------------------------------


def test_a_table_has_its_cells_in_both_languages(published):
    table([[T(zh="權重", en="weight"), 3872]], ["", T(zh="位元組", en="bytes")], caption=T(zh="大小", en="Size"))
    for language, texts in {
        "zh": ["大小", "位元組", "權重", "3872"],
        "en": ["Size", "bytes", "weight", "3872"],
    }.items():
        shown = [text for text in html.fragment_fromstring(page(published[0], language)).itertext() if text.strip()]
        assert shown == texts


def test_number_columns_are_marked_and_text_columns_are_not(published):
    rows = [["conv", "2.23×", "3,872", "int8", "—"], ["relu", "−0.5×", "12 KB", 1, "1.5 ± 0.2 ms"]]
    table(rows, ["op", "ratio", "size", "dtype", "time"])
    for row in html.fragment_fromstring(page(published[0], "en")).iter("tr"):
        assert [cell.get("class") for cell in row] == [None, "num", "num", None, "num"]


def test_header_cells_say_what_they_head_and_an_empty_corner_is_no_header(published):
    table([["conv", 1], ["relu", 2]], ["", "n"])
    root = html.fragment_fromstring(page(published[0], "en"))
    assert [(cell.tag, cell.get("scope")) for cell in root.find(".//thead/tr")] == [("td", None), ("th", "col")]
    assert [row[0].get("scope") for row in root.find(".//tbody")] == ["row", "row"]
    assert all(cell.text_content().strip() for cell in root.iter("th"))


def test_a_column_of_numbers_first_names_no_row(published):
    table([[1, "conv"], [2, "relu"]], ["batch", "op"])
    assert [row[0].tag for row in html.fragment_fromstring(page(published[0], "en")).find(".//tbody")] == ["td", "td"]


def test_cells_are_escaped(published):
    table([["<img src=x>", "`x<y`"]], ["a&b", "c"])
    root = html.fragment_fromstring(page(published[0], "en"))
    assert not list(root.iter("img"))
    assert root.find(".//tbody/tr/th").text == "<img src=x>"
    assert root.find(".//tbody//code").text == "x<y"


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="row 1 has 1 cells, the header has 2"):
        table([[1, 2], [3]], ["a", "b"])


def test_plain_tables_line_up_with_han_characters_counted_twice(published):
    table([[T(zh="權重", en="w"), 7], ["relu", 12]], ["op", "n"])
    head, rule, *rows = page(published[0], "zh", "text/plain").splitlines()
    assert rule == "----  --"
    assert rows == ["權重   7", "relu  12"]
    assert head == "op     n"


# --- charts --------------------------------------------------------------------------------------------------------


def svg_of(bundle, language="en"):
    source = page(bundle, language)
    return ElementTree.fromstring(source[source.index("<svg") : source.index("</svg>") + len("</svg>")])


def test_a_chart_is_a_named_image_with_its_caption(published):
    show(chart(), alt=ALT, caption=T(zh="圖說 `x`", en="Caption `x`"))
    for language in ("zh", "en"):
        svg = svg_of(published[0], language)
        assert (svg.get("role"), svg.get("aria-label")) == ("img", ALT.in_language(language))
        caption = html.fragment_fromstring(page(published[0], language)).find("figcaption")
        assert caption.find("code").text == "x"


def test_chart_text_stays_text(published):
    show(chart(), alt=ALT)
    assert "int8 < fp32 & more" in {"".join(text.itertext()) for text in svg_of(published[0]).iter(f"{SVG}text")}


def test_showing_a_figure_closes_it(published):
    figure = chart()
    show(figure, alt=ALT)
    assert not plt.fignum_exists(figure.number)


def test_a_chart_has_no_color_of_its_own_for_ink(published):
    show(chart(color="black"), alt=ALT)
    svg = svg_of(published[0])
    assert svg.get("fill") == "currentColor"
    styles = " ".join(element.get("style", "") for element in svg.iter())
    assert "#000" not in styles
    assert "stroke:currentColor" in styles


def test_palette_colors_follow_the_scheme(published):
    show(chart(), alt=ALT)
    styles = [element.get("style", "") for element in svg_of(published[0]).iter()]
    assert any(f"stroke:var(--pt2e-c1,{PALETTE[0]})" in style for style in styles)


def test_no_palette_color_is_left_that_the_scheme_cannot_set(published):
    figure, axes = plt.subplots()
    axes.bar(["a", "b", "c"], [1, 2, 3], color=["C0", "C1", "C2"], hatch=["", "//", ".."])
    axes.fill_between([0, 1], [0, 1], alpha=0.3, color="C3")
    show(figure, alt=ALT)
    source = page(published[0], "en")
    for number, color in enumerate(PALETTE[:4], start=1):
        assert source.count(color) == source.count(f"var(--pt2e-c{number},{color})") > 0


def test_the_same_chart_gives_the_same_bytes(published):
    for _ in range(2):
        show(chart(marker="o"), alt=ALT)
    assert published[0] == published[1]


def test_the_bytes_depend_on_neither_hash_seed_nor_time():
    program = (
        "from common.viz import T, show\nimport matplotlib.pyplot as plt\nfrom common.viz import figure\n"
        "figure.publish = lambda bundle: print(bundle['text/html'])\n"
        "fig, ax = plt.subplots()\nax.plot([1, 2], marker='s')\nshow(fig, alt=T(zh='線', en='line'))"
    )
    outputs = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "SOURCE_DATE_EPOCH": seed * 9, "PT2E_LANG": "en"}
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1


def test_two_charts_on_a_page_share_no_id_and_every_reference_resolves(published):
    show(chart(marker="o"), alt=ALT)
    show(chart(marker="s"), alt=ALT)
    seen = set()
    for bundle in published:
        svg = svg_of(bundle)
        ids = [element.get("id") for element in svg.iter() if element.get("id")]
        assert len(ids) == len(set(ids)) > 0
        assert not seen & set(ids)
        seen |= set(ids)
        targets = {element.get("href")[1:] for element in svg.iter(f"{SVG}use")}
        clips = {e.get("clip-path")[5:-1] for e in svg.iter() if e.get("clip-path")}
        assert targets | clips == set(ids)


def test_a_chart_brings_no_stylesheet_and_no_metadata_onto_the_page(published):
    show(chart(), alt=ALT)
    tags = {element.tag.rpartition("}")[2] for element in svg_of(published[0]).iter()}
    assert not tags & {"style", "metadata", "RDF"}


def test_a_figure_without_alternative_text_is_refused():
    figure = chart()
    with pytest.raises(TypeError, match="alt must be T"):
        show(figure, alt="English only")
    plt.close(figure)


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("background", ["#ffffff", "#1e2129"])
def test_palette_colors_stand_out_on_the_page(background):
    for color in PALETTE:
        bright, dark = sorted((luminance(color), luminance(background)), reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 3, color


# --- progress ------------------------------------------------------------------------------------------------------


def test_progress_gives_every_item_and_prints_nothing_into_a_pipe(capfd):
    assert list(progress(range(3), "calibrating")) == [0, 1, 2]
    assert list(progress(iter("ab"), "calibrating")) == ["a", "b"]
    assert capfd.readouterr() == ("", "")


class Terminal:
    """A stderr that says it is a terminal."""

    def __init__(self):
        self.written = ""

    def isatty(self):
        return True

    def write(self, text):
        self.written += text

    def flush(self):
        pass


def test_progress_shows_and_clears_its_line_in_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.delenv("PT2E_BUILD", raising=False)
    for _ in progress([1, 2], "rounds"):
        assert "rounds: 1/2" in terminal.written
    assert terminal.written.endswith("\r\033[K")


def test_progress_is_silent_in_a_build_even_in_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("PT2E_BUILD", "1")
    assert list(progress([1, 2], "rounds")) == [1, 2]
    assert terminal.written == ""
