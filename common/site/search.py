"""What the search of one language knows: a document per section of each page, and the words that mean the same.

The browser makes the index itself from these documents (docs/theme/assets/course/search.js).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from common.site.glossary import TermTable, synonyms

from lxml import html as lxml_html
from lxml.etree import _Element

CODE_LIMIT = 6000  # characters of code and printed output kept of one section; a printed graph can be endless

_HEADINGS = ("h1", "h2", "h3")
_SKIPPED_TAGS = {"svg", "script", "style", "template", "button", "nav", "form", "img", "annotation", "annotation-xml"}
_SKIPPED_CLASSES = {"headerlink", "footnote-backref", "linenos", "jp-InputPrompt", "jp-OutputPrompt", "prompt"}
_FOLDED_CODE = {"setup", "plot", "solution"}
_BLOCKS = {
    *("p", "div", "li", "ul", "ol", "dl", "dt", "dd", "table", "caption", "tr", "td", "th", "pre", "blockquote"),
    *("figure", "figcaption", "details", "summary", "section", "h1", "h2", "h3", "h4", "h5", "h6", "br", "hr"),
}
_BREAK = "\x00"  # a block's border; a source line that merely wraps has no such mark
_WIDE = r"[\u2e80-\u9fff\uf900-\ufaff\u3000-\u303f\uff00-\uffef]"
_WRAPPED_WIDE = re.compile(rf"(?<={_WIDE})[ \t]*\n[ \t]*(?={_WIDE})")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{120,}={0,2}")


@dataclass(frozen=True)
class RenderedPage:
    """A page as the build rendered it. `url` is relative to its language's root (`m01/1-minimal-ptq/`, home is ``).

    `chapter` is the title of the chapter it belongs to, empty for ordinary pages.
    """

    url: str
    title: str
    html: str
    chapter: str = ""


@dataclass
class _Section:
    heading: str
    anchor: str
    text: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)


def documents(pages: Iterable[RenderedPage]) -> list[dict[str, str | int]]:
    """One document per section: `id, page, chapter, title, heading, url, text, code`.

    `code` holds code cells and what they printed; `text` the rest, formulas included. Prompts, buttons, drawings and
    encoded images are in neither. A page's HTML may be the whole page (its `<article>` counts) or the article alone.
    """
    found: list[dict[str, str | int]] = []
    for page in pages:
        for section in _sections(page.html):
            text, code = _squeeze("".join(section.text)), _squeeze("".join(section.code))[:CODE_LIMIT].rstrip()
            if not (text or code or section.heading):
                continue
            url = page.url + (f"#{section.anchor}" if section.anchor else "")
            found.append(
                {
                    "id": len(found),
                    "page": page.url,
                    "chapter": page.chapter,
                    "title": page.title,
                    "heading": section.heading,
                    "url": url,
                    "text": text,
                    "code": code,
                }
            )
    return found


def search_index(pages: Iterable[RenderedPage], table: TermTable, language: str) -> str:
    """The JSON that the search of one language loads; the same pages and terms give the same bytes."""
    index = {"language": language, "documents": documents(pages), "synonyms": synonyms(table)}
    return json.dumps(index, ensure_ascii=False, separators=(",", ":")) + "\n"


def _sections(html: str) -> list[_Section]:
    """The page's sections in order; the first one, without heading and anchor, is what stands below the title."""
    root = lxml_html.document_fromstring(html) if html.strip() else None
    if root is None:
        return []
    article = root.find(".//article")
    sections = [_Section("", "")]
    _walk(article if article is not None else root, sections)
    return sections


def _walk(element: _Element, sections: list[_Section]) -> None:
    if not _is_read(element):
        return
    tag, section = element.tag, sections[-1]
    if "footnote" in (element.get("class") or "").split():
        section = sections[0]  # footnotes stand at the end of the page but don't belong to its last section
        section.text += [_BREAK, _text(element)]
        return
    if tag in _HEADINGS:
        if tag != "h1":  # the page's title stands in every document already
            sections.append(_Section(_squeeze(_text(element)), element.get("id") or ""))
        return
    if tag == "pre":
        section.code += [_text(element), _BREAK]
        return
    if tag == "math":
        section.text.append("".join(_text(element).split()))
        return
    if tag in _BLOCKS:
        section.text.append(_BREAK)
    section.text.append(element.text or "")
    for child in element:
        _walk(child, sections)
        sections[-1].text.append(child.tail or "")
    if tag in _BLOCKS:
        sections[-1].text.append(_BREAK)


def _is_read(element: _Element) -> bool:
    """Whether readers see the element as words: no comment, drawing, button or permalink, no label of folded code."""
    if not isinstance(element.tag, str) or element.tag in _SKIPPED_TAGS:
        return False
    classes = set((element.get("class") or "").split())
    if classes & _SKIPPED_CLASSES:
        return False
    parent = element.getparent()
    folded = parent is not None and _FOLDED_CODE & set((parent.get("class") or "").split())
    return not (element.tag == "summary" and folded)


def _text(element: _Element) -> str:
    if not _is_read(element):
        return ""
    return (element.text or "") + "".join(_text(child) + (child.tail or "") for child in element)


def _squeeze(text: str) -> str:
    """One line: wrapped Chinese lines join without a space, everything else that is white becomes one space."""
    text = _WRAPPED_WIDE.sub("", _BASE64.sub(" ", text))
    return " ".join(text.replace(_BREAK, " ").split())
