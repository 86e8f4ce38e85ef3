"""What the site's Markdown adds to MkDocs': shared anchors, formulas, links to pages that are still to come."""

from __future__ import annotations

import html
import posixpath
import re
import xml.etree.ElementTree as etree
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString
from math_core import LatexError, LatexToMathML

_WIDE = r"[\u2e80-\u9fff\uf900-\ufaff\u3000-\u303f\uff00-\uffef「」、。，；：？！]"
WRAPPED = re.compile(rf"(?<={_WIDE})[ \t]*\n[ \t]*(?={_WIDE})")
_TAG = re.compile(r"\\tag\{([^{}]*)\}\s*$")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")


@dataclass
class PageState:
    """The page being rendered: its source path and its anchors in order (None: leave them alone); pages there are."""

    src_uri: str = ""
    ids: list[str] | None = None
    existing: set[str] = field(default_factory=set)
    promised: set[str] = field(default_factory=set)


class MarkdownError(Exception):
    """A text that can't be rendered as meant; `excerpt` is a part of the source to find it by."""

    def __init__(self, message: str, excerpt: str = "") -> None:
        super().__init__(message)
        self.excerpt = excerpt


class CourseMarkdown(Extension):
    """Registers the steps below; `page` is set anew before each page."""

    def __init__(self) -> None:
        super().__init__()
        self.page = PageState()

    def extendMarkdown(self, md: Markdown) -> None:
        """Python-Markdown's hook."""
        md.treeprocessors.register(_WrappedLines(md, self), "pt2e_wrapped_lines", 16)
        md.treeprocessors.register(_Formulas(md, self), "pt2e_formulas", 15)  # after inline patterns (20)
        md.treeprocessors.register(_UnwrittenLinks(md, self), "pt2e_unwritten", 14)  # before MkDocs resolves links (0)
        # After attributes in braces (8), before the table of contents (5).
        md.treeprocessors.register(_HeadingIds(md, self), "pt2e_heading_ids", 7)


class _Step(Treeprocessor):
    def __init__(self, md: Markdown, extension: CourseMarkdown) -> None:
        super().__init__(md)
        self.extension = extension

    @property
    def page(self) -> PageState:
        return self.extension.page


class _HeadingIds(_Step):
    """Gives the headings the anchors of the English page."""

    def run(self, root: etree.Element) -> None:
        if self.page.ids is None:
            return
        found = [element for element in root.iter() if element.tag in _HEADINGS]
        if len(found) != len(self.page.ids):
            raise MarkdownError(
                f"the page has {len(found)} headings, its English source {len(self.page.ids)}; "
                "write headings with # and give both languages the same"
            )
        for element, name in zip(found, self.page.ids, strict=True):
            element.set("id", name)


class _UnwrittenLinks(_Step):
    """A link to a page that is promised but not written yet shows as plain title text."""

    def run(self, root: etree.Element) -> None:
        for element in root.iter("a"):
            url = urlsplit(element.get("href", ""))
            if url.scheme or url.netloc or not url.path:
                continue
            target = posixpath.normpath(posixpath.join(posixpath.dirname(self.page.src_uri), url.path))
            if target in self.page.promised and target not in self.page.existing:
                element.tag = "span"
                element.attrib.clear()
                element.set("class", "unwritten")


class _WrappedLines(_Step):
    """Chinese has no space where a source line wraps."""

    def run(self, root: etree.Element) -> None:
        slots = list(_slots(root))
        texts = [getattr(element, name) or "" for element, name, _ in slots]
        breaks = {index for found in WRAPPED.finditer("".join(texts)) for index in range(*found.span())}
        start = 0
        for (element, name, fixed), text in zip(slots, texts, strict=True):
            if not fixed and not breaks.isdisjoint(range(start, start + len(text))):
                kept = (character for index, character in enumerate(text, start) if index not in breaks)
                setattr(element, name, "".join(kept))
            start += len(text)


def _slots(element: etree.Element, fixed: bool = False) -> Iterator[tuple[etree.Element, str, bool]]:
    """The places of text below an element, in reading order; `fixed` ones, such as code, stay as they are."""
    fixed = fixed or element.tag in ("pre", "code")
    yield element, "text", fixed or isinstance(element.text, AtomicString)
    for child in element:
        yield from _slots(child, fixed)
        yield child, "tail", fixed or isinstance(child.tail, AtomicString)


class _Formulas(_Step):
    """Renders what arithmatex marked as MathML; a trailing \\tag{…} becomes the equation's number."""

    def run(self, root: etree.Element) -> None:
        for element in root.iter():
            if "arithmatex" in element.get("class", "").split():
                formula = html.unescape(element.text or "").strip()  # blocks inside HTML come with `&amp;`
                display = element.tag == "div"
                element.text = self.md.htmlStash.store(self._rendered(formula[2:-2].strip(), display))

    def _rendered(self, formula: str, display: bool) -> str:
        number = ""
        if display and (tag := _TAG.search(formula)):
            formula, number = formula[: tag.start()], html.escape(tag[1])
        try:
            mathml = mathml_of(formula, display)
        except LatexError as error:
            reason = _ANSI.sub("", str(error)).strip().splitlines()[0].removeprefix("Error: ")
            raise MarkdownError(f"formula `{formula.strip()}`: {reason}", formula.strip().split("\n")[0]) from error
        return mathml + (f'<span class="equation-number">({number})</span>' if number else "")


_converter = LatexToMathML()


def mathml_of(formula: str, display: bool) -> str:
    """LaTeX as MathML Core. Raises LatexError."""
    return _converter.convert_with_local_state(formula, displaystyle=display)
