"""The site's Markdown with the course's own settings: anchors, formulas, links to come, Chinese lines."""

from common.site.chapter import heading_ids
from common.site.markdown import CourseMarkdown, MarkdownError, PageState, mathml_of
from common.site.render import Fragments

import pytest
from lxml import etree, html
from markdown import Markdown
from miniature import REPOSITORY
from mkdocs.config.base import load_config

PAGE = "m01_first/0_overview.py"


@pytest.fixture(scope="module")
def configured() -> tuple[list, dict]:
    """Extensions and their settings as mkdocs.yml has them."""
    config = load_config(str(REPOSITORY / "mkdocs.yml"))
    return config.markdown_extensions, config.mdx_configs


@pytest.fixture
def render(configured):
    """Renders a text as a page of the course; `tree` is what comes back."""

    def rendered(text: str, **state: object) -> html.HtmlElement:
        course = CourseMarkdown()
        course.page = PageState(PAGE, **state)
        extensions, settings = configured
        markdown = Markdown(extensions=[*extensions, course], extension_configs=settings)
        tree = html.fromstring(f"<article>{markdown.convert(text)}</article>")
        tree.contents = markdown.toc_tokens
        return tree

    return rendered


def contents(tokens: list[dict]) -> list[str]:
    """The anchors of a table of contents, in order."""
    return [name for token in tokens for name in (token["id"], *contents(token["children"]))]


# --- anchors

ENGLISH = "# Title\n\n## Use of `MinMaxObserver`\n\n### Same\n\n### Same\n\n## Last { #own }\n"
CHINESE = "# 標題\n\n## `MinMaxObserver` 的用法\n\n### 一樣\n\n### 一樣\n\n## 最後 { #other }\n"


@pytest.mark.parametrize("text", [ENGLISH, CHINESE])
def test_both_languages_get_the_anchors_of_the_english_headings(render, text):
    tree = render(text, ids=heading_ids(ENGLISH))
    expected = ["title", "use-of-minmaxobserver", "same", "same-2", "own"]
    assert tree.xpath("//*[self::h1 or self::h2 or self::h3]/@id") == expected
    assert contents(tree.contents) == expected
    assert [link.removeprefix("#") for link in tree.xpath('//a[@class="headerlink"]/@href')] == expected


def test_a_page_with_more_headings_than_its_english_source_is_refused(render):
    with pytest.raises(MarkdownError, match="3 headings, its English source 2"):
        render("# 甲\n\n## 乙\n\n## 丙\n", ids=heading_ids("# A\n\n## B\n"))


@pytest.mark.parametrize("text", ["# A\n\n!!! note\n    ## Inside\n", "# A\n\n<h2>Raw</h2>\n", "# A\n\nUnder\n=====\n"])
def test_headings_that_the_source_does_not_show_do_not_shift_the_others(render, text):
    try:
        tree = render(text + "\n## Last\n", ids=heading_ids(text + "\n## Last\n"))
    except MarkdownError:
        return  # refused: also well
    assert tree.xpath("//h2[last()]/@id") == ["last"]


# --- formulas


def formulas(tree: html.HtmlElement) -> list[html.HtmlElement]:
    return tree.xpath("//math")


@pytest.mark.parametrize(
    "text",
    [
        r"In a line: $q = \mathrm{round}(x / s) + z$.",
        "$$\nq_{\\min} = -128\n$$",
        "| a | b |\n| --- | --- |\n| $x'_{\\min}$ | 1 |",
        "- first $a_1$\n- second",
        "!!! note\n    With $a_1$.",
        "**bold $a_1$**",
        "[a link $a_1$](https://example.org)",
        "A footnote.[^1]\n\n[^1]: With $a_1$.",
    ],
)
def test_a_formula_becomes_mathml_wherever_it_stands(render, text):
    tree = render(text)
    assert len(formulas(tree)) == 1
    shown = html.tostring(tree, encoding="unicode")
    assert "\\" not in shown and "$" not in tree.text_content() and "arithmatex" in shown


@pytest.mark.parametrize("formula", ["a < b", "a & b", "a > b"])
def test_signs_of_html_in_formulas_are_signs(render, formula):
    if "&" in formula:
        formula = r"\begin{matrix} a & b \end{matrix}"
    (math,) = formulas(render(f"${formula}$"))
    assert next(text for text in math.itertext() if text.strip()) == "a"
    etree.fromstring(mathml_of(formula, display=False))


def test_a_formula_inside_html_keeps_its_ampersands(render):
    cases = r"\begin{cases} 1 & a < b \\ 0 & c \end{cases}"
    (inside,) = formulas(render(f'<div markdown="1">\n\n$${cases}$$\n\n</div>'))
    (outside,) = formulas(render(f"$${cases}$$"))
    assert inside.text_content() == outside.text_content()


def test_displayed_formulas_are_displayed_and_others_not(render):
    inline, block = formulas(render("$a$\n\n$$ b $$"))
    assert (inline.get("display"), block.get("display")) == (None, "block")


def test_a_tag_becomes_the_equations_number(render):
    tree = render("$$ x_{1} \\tag{2.1} $$\n\n$$ y $$")
    assert tree.xpath('//*[@class="equation-number"]/text()') == ["(2.1)"]
    assert len(formulas(tree)) == 2


@pytest.mark.parametrize("text", ["`$x$`", "```\n$x$\n```", "It costs $5, or $6.", "    $x$"])
def test_dollars_that_are_no_formula_stay(render, text):
    tree = render(text)
    assert not formulas(tree) and "$" in tree.text_content()


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("$\\frac{1}{$", "\\frac{1}{"),
        ("$$\n\\nosuch x\n+ 1\n$$", "\\nosuch x"),
        ("$$ x \\tag{1} y $$", "x \\tag{1} y"),
        ("| a |\n| --- |\n| $\\left( x$ |", "\\left( x"),
    ],
)
def test_a_formula_that_does_not_parse_is_quoted(render, text, formula):
    with pytest.raises(MarkdownError) as caught:
        render(text)
    assert caught.value.excerpt == formula
    assert f"formula `{formula}" in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert str(caught.value).count("\n") <= 1


# --- links to come

PROMISED = {"m01_first/0_overview.py", "m01_first/3_planned.py", "m09_last/0_overview.py"}


@pytest.mark.parametrize(
    "link",
    ["3_planned.py", "3_planned.py#part", "../m09_last/0_overview.py", "../m01_first/3_planned.py", "./3_planned.py"],
)
def test_a_link_to_a_promised_page_shows_as_plain_text(render, link):
    tree = render(f"See [M01-3 `later`]({link}).", promised=PROMISED, existing={PAGE})
    assert not tree.xpath("//a")
    (shown,) = tree.xpath('//span[@class="unwritten"]')
    assert shown.text_content() == "M01-3 later" and dict(shown.attrib) == {"class": "unwritten"}


@pytest.mark.parametrize(
    "link",
    [
        "0_overview.py",
        "#part",
        "8_other.py",
        "../../m09_last/0_overview.py",
        "https://example.org/3_planned.py",
        "3_planned",
    ],
)
def test_any_other_link_stays_a_link(render, link):
    tree = render(f"See [it]({link}).", promised=PROMISED, existing={PAGE})
    assert tree.xpath("//a/@href") == [link]


# --- Chinese lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("量化之後\n的模型", "量化之後的模型"),
        ("第一句。\n第二句", "第一句。第二句"),
        ("「引號」\n（括號）", "「引號」（括號）"),
        ("用 int8\n的模型", "用 int8\n的模型"),
        ("量化\nquantization", "量化\nquantization"),
        ("two\nlines", "two\nlines"),
        ("這是**粗體**\n接著", "這是粗體接著"),
        ("這是\n**粗體**接著", "這是粗體接著"),
        ("甲[連結\n文字](#x)乙", "甲連結文字乙"),
        ("甲\n`code`乙", "甲\ncode乙"),
        ("甲\n乙\n丙", "甲乙丙"),
    ],
)
def test_wrapped_chinese_lines_join_without_a_space(render, text, shown):
    assert render(text).xpath("string(//p)") == shown


def test_lines_of_code_and_items_of_lists_stay_apart(render):
    assert render("```\n甲\n乙\n```").xpath("string(//code)") == "甲\n乙\n"
    assert [item.text_content().strip() for item in render("- 甲\n- 乙\n").xpath("//li")] == ["甲", "乙"]
    assert [cell.text_content() for cell in render("| 甲 |\n| --- |\n| 乙 |").xpath("//th|//td")] == ["甲", "乙"]


def test_a_formula_next_to_a_break_keeps_its_distance(render):
    tree = render("其中 $s$\n是尺度")
    assert html.tostring(tree, encoding="unicode", method="text").count("\n") >= 1
    assert len(formulas(tree)) == 1


# --- finished HTML


def test_finished_html_passes_through_markdown_untouched(render):
    kept = Fragments()
    finished = '<pre>*no* _emphasis_ $x$ &lt;b&gt; # no\n\n    heading</pre><svg viewBox="0 0 1 1"><g/></svg>'
    text = (
        f"# Title\n\nText\n\n{kept.keep(finished)}\n\n"
        f'<details class="solution" markdown="1">\n<summary>Solution</summary>\n\n'
        f"With **words** and $x$.\n\n{kept.keep(finished)}\n\n- a list\n\n</details>\n"
    )
    tree = render(text, ids=["title"])
    shown = kept.restore(html.tostring(tree, encoding="unicode"))
    assert shown.count(finished) == 2
    (fold,) = tree.xpath('//details[@class="solution"]')
    assert fold.xpath("string(.//strong)") == "words" and len(fold.xpath(".//math")) == 1 and fold.xpath(".//li")
    assert len(fold.xpath(".//div[@data-pt2e-part]")) == 1
