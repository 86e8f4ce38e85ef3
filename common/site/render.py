"""From an executed chapter to its page: code and outputs as HTML, text left to the site's own Markdown.

`PagePreprocessor` runs inside nbconvert after the execution and hands the template blocks of parts. Finished HTML
travels through Markdown as marks and is put back afterwards (`Fragments`), so that Markdown sees nothing of it. Text
travels through nbconvert the same way: it takes all it gets for HTML, and `>` is a quotation or part of code here.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from common.site.executor import BILINGUAL

import nbformat
from lxml import etree
from nbconvert.preprocessors import Preprocessor
from pygments import highlight
from pygments.filter import Filter
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import PythonLexer
from pygments.token import Name, Operator, Punctuation, Text, Whitespace, _TokenType
from traitlets import Bool

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MARK = re.compile(r"<div data-pt2e-part=\"(\d+)\"></div>")
_TEXT_MARK = re.compile(r"<div data-pt2e-text=\"(\d+)\"></div>")
WORDS = {
    "zh": {"setup": "準備", "plot": "程式", "solution": "解答"},
    "en": {"setup": "Setup", "plot": "Code", "solution": "Solution"},
}


class Fragments:
    """Text kept aside while nbconvert runs, finished HTML while Markdown does too."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._texts: list[str] = []

    def keep_text(self, text: str) -> str:
        """Keep a Markdown text; returns the mark that stands for it."""
        self._texts.append(text)
        return f'<div data-pt2e-text="{len(self._texts) - 1}"></div>'

    def restore_texts(self, text: str) -> str:
        """Put every Markdown text back where its mark stands, between blank lines: each is a block of its own."""
        return _TEXT_MARK.sub(lambda mark: f"\n\n{self._texts[int(mark[1])]}\n\n", text)

    def keep(self, fragment: str) -> str:
        """Keep a fragment; returns the mark that stands for it, a block of its own."""
        self._kept.append(fragment)
        return f'<div data-pt2e-part="{len(self._kept) - 1}"></div>'

    def restore(self, text: str) -> str:
        """Put every fragment back where its mark stands."""
        return _MARK.sub(lambda mark: self._kept[int(mark[1])], text)


# The page being converted: nbconvert gives preprocessors no way to hand anything back but text.
fragments = Fragments()


@dataclass
class Part:
    """One piece of a page: `mark` stands for Markdown ("text", "output-text") or for finished HTML ("html")."""

    kind: str
    mark: str


@dataclass
class Block:
    """Neighbouring parts; a `solution` block folds as a whole."""

    solution: bool
    parts: list[Part] = field(default_factory=list)


class PagePreprocessor(Preprocessor):
    """Gives the template `resources.pt2e`: the page's blocks and the language's words."""

    enabled = Bool(True).tag(config=True)

    def preprocess(self, nb: nbformat.NotebookNode, resources: dict) -> tuple[nbformat.NotebookNode, dict]:
        """Render code cells and outputs of a chapter. Others pass, and mkdocs-jupyter's conversion for its contents."""
        told = nb.metadata.get("pt2e")
        if told is not None and resources.get("output_extension") == ".html":
            language = told["language"]
            resources["pt2e"] = {"blocks": page_blocks(nb.cells, language, fragments), "words": WORDS[language]}
        return nb, resources


def page_blocks(cells: list[nbformat.NotebookNode], language: str, kept: Fragments) -> list[Block]:
    """The page's blocks in order; consecutive solution cells, text and outputs included, are one block."""
    blocks = []
    by_fold = itertools.groupby(cells, key=lambda cell: "solution" in cell.metadata.get("tags", []))
    for solution, group in by_fold:
        block = Block(solution)
        for cell in group:
            if cell.cell_type == "markdown":
                block.parts.append(Part("text", kept.keep_text(cell.source)))
            else:
                block.parts += code_parts(cell, language, kept)
        blocks.append(block)
    return blocks


def code_parts(cell: nbformat.NotebookNode, language: str, kept: Fragments) -> list[Part]:
    """A code cell and its outputs."""
    tags = cell.metadata.get("tags", [])
    code = code_html(cell.source)
    for tag in ("setup", "plot"):
        if tag in tags:
            summary = html.escape(WORDS[language][tag])
            code = f'<details class="{tag}"><summary>{summary}</summary>\n{code}</details>\n'
    parts = [Part("html", kept.keep(f'<div class="cell">{code}</div>\n'))]
    for number, output in enumerate(cell.outputs):
        prefix = f"c{cell.metadata['pt2e']['ordinal']}o{number}-"
        kind, text = output_content(output, language)
        if kind == "text/markdown":
            parts.append(Part("output-text", kept.keep_text(text)))
        elif kind == "text/html":
            body = unique_ids(text, prefix)
            scroll = " table-scroll" if "<table" in text else ""
            focus = ' tabindex="0"' if scroll else ""  # what scrolls must be reachable by keyboard
            parts.append(Part("html", kept.keep(f'<div class="output{scroll}"{focus}>{body}</div>\n')))
        elif text.strip():
            shown = html.escape(_ANSI.sub("", text).rstrip("\n"), quote=False)
            parts.append(Part("html", kept.keep(f'<div class="output"><pre tabindex="0">{shown}</pre></div>\n')))
    return parts


class PlainTokens(Filter):
    """Names, punctuation and blanks get no mark: the theme gives them no color, and they would be most of a page."""

    def filter(self, lexer: Lexer, stream: Iterable[tuple[_TokenType, str]]) -> Iterator[tuple[_TokenType, str]]:
        for kind, value in stream:
            yield (Text if kind in (Name, Punctuation, Whitespace, Operator) else kind), value


def code_html(source: str) -> str:
    """Highlighted Python, in the markup that the theme's copy button looks for."""
    lexer = PythonLexer()
    lexer.add_filter(PlainTokens())
    inner = highlight(source, lexer, HtmlFormatter(nowrap=True)).rstrip("\n")
    return f'<div class="highlight"><pre tabindex="0"><code>{inner}\n</code></pre></div>\n'


def output_content(output: dict[str, Any], language: str) -> tuple[str, str]:
    """What a page of this language shows of an output, as (MIME type, text)."""
    if output["output_type"] == "stream":
        return "text/plain", output["text"]
    data = output["data"]
    if BILINGUAL in data:
        data = data[BILINGUAL][language]
    for kind in ("text/html", "text/markdown", "text/plain"):
        if kind in data:
            text = data[kind]
            return kind, text if isinstance(text, str) else "".join(text)
    return "text/plain", ""


def unique_ids(fragment: str, prefix: str) -> str:
    """The fragment with the ids inside its SVG figures, and the references to them, made unique on the page."""
    pieces = re.split(r"(<svg\b.*?</svg>)", fragment, flags=re.DOTALL)
    return "".join(_prefixed(piece, prefix) if piece.startswith("<svg") else piece for piece in pieces)


def _prefixed(svg: str, prefix: str) -> str:
    if not re.search(r"\sid\s*=", svg):
        return svg
    tree = etree.fromstring(svg)
    ids = {element.get("id") for element in tree.iter() if element.get("id")}

    for element in tree.iter():
        for name, value in element.attrib.items():
            if name == "id":
                element.set(name, prefix + value)
            elif name in ("aria-labelledby", "aria-describedby"):
                element.set(name, " ".join(prefix + word if word in ids else word for word in value.split()))
            elif name.endswith("href"):  # xlink:href too; elsewhere `#abc` is a color
                element.set(name, f"#{prefix}{value[1:]}" if value.startswith("#") and value[1:] in ids else value)
            elif "url(#" in value:
                url = re.sub(r"url\(#([^)]+)\)", lambda m: f"url(#{prefix}{m[1]})" if m[1] in ids else m[0], value)
                element.set(name, url)
    return etree.tostring(tree, encoding="unicode")
