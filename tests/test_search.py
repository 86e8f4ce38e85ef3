"""Sections of rendered pages as the search sees them."""

import json

from common.site.glossary import TermTable, Word
from common.site.search import CODE_LIMIT, RenderedPage, documents, search_index

import pytest

PAGE = """
<h1 id="m01">M01 概覽 | 三個問題<a class="headerlink" href="#m01" title="這一節的連結">#</a></h1>
<p>把 <strong>校準</strong>資料送進模型，
觀察數值範圍。<sup id="fnref:1"><a class="footnote-ref" href="#fn:1">1</a></sup></p>
<h2 id="definitions">定義：<code>scale</code><a class="headerlink" href="#definitions">#</a></h2>
<p>誤差 <span class="arithmatex"><math><mo>|</mo><mi>x</mi><mo>−</mo><mi>y</mi><mo>|</mo>
<mo>≤</mo><mi>s</mi><mo>/</mo><mn>2</mn>
<annotation encoding="application/x-tex">\\left|x-y\\right|</annotation></math></span>。</p>
<div class="cell"><details class="setup"><summary>準備</summary>
<div class="highlight"><button class="md-clipboard">Copied</button><pre><code>
<span class="n">prepared</span> <span class="o">=</span> <span class="n">prepare_pt2e</span>(exported, quantizer)
</code></pre></div></details></div>
<div class="output"><pre>RuntimeError: set_inputs() failed with error 0x10</pre></div>
<div class="output table-scroll"><div class="pt2e-table"><table><thead><tr><td></td><th>scale</th></tr></thead>
<tbody><tr><th>weight</th><td>0.0130</td></tr></tbody></table></div></div>
<figure class="pt2e-graph"><svg aria-label="alt"><style>.a{}</style><text>drawn text</text></svg>
<figcaption>綠色是 observer</figcaption></figure>
<h3 id="worked-example">例子</h3>
<p><img alt="" src="data:image/png;base64,AAAA"></p>
<div class="footnote"><hr><ol>
<li id="fn:1"><p>讀 observer.py <a class="footnote-backref" href="#fnref:1">↩</a></p></li></ol></div>
"""


@pytest.fixture(scope="module")
def sections() -> dict[str, dict]:
    found = documents([RenderedPage("m01/", "M01 概覽 | 三個問題", PAGE)])
    return {document["url"]: document for document in found}


def test_each_section_is_a_document_with_its_own_address(sections: dict):
    assert list(sections) == ["m01/", "m01/#definitions", "m01/#worked-example"]
    assert [s["heading"] for s in sections.values()] == ["", "定義：scale", "例子"]
    assert {s["title"] for s in sections.values()} == {"M01 概覽 | 三個問題"}
    assert {s["page"] for s in sections.values()} == {"m01/"}


def test_a_word_stays_whole_across_markup_and_wrapped_lines(sections: dict):
    assert "校準資料送進模型，觀察數值範圍。" in sections["m01/"]["text"]


def test_wrapped_english_lines_keep_their_space():
    (document,) = documents([RenderedPage("", "t", "<p>observers watch\nwithout touching</p><p>Next</p>")])

    assert document["text"] == "observers watch without touching Next"


def test_formulas_are_words_and_their_source_is_not(sections: dict):
    text = sections["m01/#definitions"]["text"]

    assert "|x−y|≤s/2" in text
    assert "left" not in text


def test_code_and_printed_output_are_kept_apart_from_prose(sections: dict):
    section = sections["m01/#definitions"]

    assert "prepared = prepare_pt2e(exported, quantizer)" in section["code"]
    assert "RuntimeError: set_inputs() failed with error 0x10" in section["code"], "M11 is found by pasted messages"
    assert "prepare_pt2e" not in section["text"]


def test_tables_and_captions_are_read(sections: dict):
    assert "scale weight 0.0130 綠色是 observer" in sections["m01/#definitions"]["text"]


@pytest.mark.parametrize("noise", ["Copied", "準備", "drawn text", "base64", "#", "↩", "alt", "<", "<style"])
def test_nothing_that_is_no_word_of_the_page_is_indexed(sections: dict, noise: str):
    read = " ".join(f"{s['heading']} {s['text']} {s['code']}" for s in sections.values())

    assert noise not in read


def test_footnotes_belong_to_the_page_and_not_to_its_last_section(sections: dict):
    assert "讀 observer.py" in sections["m01/"]["text"]
    assert sections["m01/#worked-example"]["text"] == ""


def test_encoded_images_in_outputs_are_dropped_and_endless_outputs_cut():
    html = f"<h2 id='a'>A</h2><pre>{'QUJD' * 60}</pre><pre>{'node ' * CODE_LIMIT}</pre>"

    (document,) = documents([RenderedPage("x/", "X", html)])

    assert "QUJD" not in document["code"]
    assert CODE_LIMIT - 10 < len(document["code"]) <= CODE_LIMIT


def test_only_the_article_of_a_whole_page_counts():
    whole = "<html><body><nav>menu</nav><article><p>body text</p></article><footer>end</footer></body></html>"

    (document,) = documents([RenderedPage("", "t", whole)])

    assert document["text"] == "body text"


def test_sections_know_the_chapter_that_their_page_belongs_to():
    pages = [
        RenderedPage("m02/", "M02 Overview | Ranges", "<p>a</p>", "M02 Observers"),
        RenderedPage("x/", "X", "<p>b</p>"),
    ]
    assert [document["chapter"] for document in documents(pages)] == ["M02 Observers", ""]


def test_an_empty_page_has_no_document():
    assert documents([RenderedPage("", "t", ""), RenderedPage("x/", "t", "<h1>t</h1>")]) == []


def test_the_index_numbers_its_documents_and_holds_the_synonyms():
    pages = [RenderedPage("a/", "A", "<p>one</p>"), RenderedPage("b/", "B", "<p>two</p><h2 id='c'>C</h2>")]
    table = TermTable((), (Word(zh="模組", en="module", also=("單元",)),))

    index = json.loads(search_index(pages, table, "zh"))

    assert [document["id"] for document in index["documents"]] == [0, 1, 2]
    assert index["synonyms"] == [{"typed": ["模組", "module", "單元"], "find": ["模組", "module"]}]
    assert index["language"] == "zh"
    assert search_index(pages, table, "zh") == search_index(pages, table, "zh")
