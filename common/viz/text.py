"""Bilingual text, sentences and tables, published so that each page of the site keeps its own language."""

from __future__ import annotations

import html
import locale
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real

BILINGUAL_MIME = "application/vnd.pt2e.bilingual+json"
LANGUAGES = ("zh", "en")


@dataclass(frozen=True, kw_only=True)
class T:
    """One text in both languages. As a cell's last value it shows like `say`."""

    zh: str
    en: str

    def __post_init__(self) -> None:
        for language in LANGUAGES:
            if not isinstance(getattr(self, language), str) or not getattr(self, language).strip():
                raise ValueError(f"T needs a text in each language, {language} is {getattr(self, language)!r}")

    def in_language(self, language: str) -> str:
        """The text in "zh" or "en"."""
        return getattr(self, language)

    def format(self, **values: object) -> T:
        """Both texts with `{name}` filled in; a value may be a T itself."""
        return T(
            **{
                language: self.in_language(language).format(
                    **{
                        name: value.in_language(language) if isinstance(value, T) else value
                        for name, value in values.items()
                    }
                )
                for language in LANGUAGES
            }
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        return bilingual(lambda language: _markdown(self.in_language(language)))


def reader_language() -> str:
    """The language of the fallback output: PT2E_LANG, then the locale, else English."""
    for name in (os.environ.get("PT2E_LANG"), *locale.getlocale()[:1], os.environ.get("LANG")):
        if name:
            return "zh" if name.lower().startswith(("zh", "chinese")) else "en"
    return "en"


def in_language(text: T | str | None, language: str) -> str:
    """A T's text in that language; a plain string is the same in both; None is empty."""
    if text is None:
        return ""
    return text.in_language(language) if isinstance(text, T) else str(text)


def bilingual(render: Callable[[str], dict[str, str]]) -> dict[str, object]:
    """A MIME bundle from `render(language) -> {mime: data}`: both languages, and the reader's own beside them."""
    bundles = {language: render(language) for language in LANGUAGES}
    return {BILINGUAL_MIME: bundles, **bundles[reader_language()]}


def in_notebook() -> bool:
    """Whether a Jupyter kernel (or an IPython shell) runs this code."""
    shell = sys.modules.get("IPython.core.interactiveshell")
    return shell is not None and shell.InteractiveShell.initialized()


def publish(bundle: dict[str, object]) -> None:
    """Show a MIME bundle in the notebook; outside of one, print its plain text."""
    if in_notebook():
        from IPython.display import display

        display(bundle, raw=True)
    else:
        print(bundle["text/plain"])


def say(*texts: T | Sequence[T]) -> None:
    """Show sentences in the page's language: each T a paragraph, a list of T a bullet list. Markdown and $math$ work.

    An empty list shows nothing, so that `say(conclusions(results))` needs no condition.
    """
    for text in texts:
        for sentence in [text] if isinstance(text, T) else text:
            if not isinstance(sentence, T):
                raise TypeError(f"say shows T(zh=..., en=...), not {type(sentence).__name__}")
    blocks = [text if isinstance(text, T) else list(text) for text in texts if isinstance(text, T) or len(text)]
    if blocks:
        publish(bilingual(lambda language: _markdown("\n\n".join(_block(block, language) for block in blocks))))


def _block(block: T | list[T], language: str) -> str:
    if isinstance(block, T):
        return block.in_language(language)
    return "\n".join("- " + sentence.in_language(language).replace("\n", "\n    ") for sentence in block)


def _markdown(text: str) -> dict[str, str]:
    return {"text/markdown": text, "text/plain": text}


_INLINE = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*")


def inline(text: str) -> str:
    """HTML of a short text: `code` and **bold** are honoured, everything else is escaped."""
    parts, end = [], 0
    for match in _INLINE.finditer(text):
        parts.append(html.escape(text[end : match.start()], quote=False))
        code, bold = match.groups()
        parts.append(f"<code>{html.escape(code, quote=False)}</code>" if code else f"<strong>{inline(bold)}</strong>")
        end = match.end()
    return "".join(parts) + html.escape(text[end:], quote=False)


def plain(text: str) -> str:
    """The same text without its marks."""
    return _INLINE.sub(lambda match: match[1] or plain(match[2]), text)


# A number as people write it in a cell: sign, digits with separators, perhaps a unit or a spread.
_NUMBER = re.compile(
    r"[~≈<>≤≥]?\s*[-+−±]?\d[\d,.]*(e[-+]?\d+)?(\s*(±|–|\.\.)\s*\d[\d,.]*)?\s*(%|×|[A-Za-zµ]{1,4}|LSB)?"
)


def _cell_text(cell: object, language: str) -> str:
    if isinstance(cell, T) or cell is None:
        return in_language(cell, language)
    if isinstance(cell, Real) and not isinstance(cell, bool | int):
        return f"{float(cell):.6g}"
    return str(cell)


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(plain(text).strip()) is not None


def _numeric_columns(texts: list[list[str]]) -> list[bool]:
    """Whether a column holds numbers only (and at least one); blanks and dashes don't count."""
    columns = []
    for column in zip(*texts, strict=True):
        filled = [text for text in column if text.strip() not in ("", "-", "–", "—")]
        columns.append(bool(filled) and all(_is_number(text) for text in filled))
    return columns


def table(rows: Iterable[Sequence[object]], header: Sequence[T | str], caption: T | None = None) -> None:
    """Show a table. Cells are numbers, strings or T, with `code` and **bold**; columns of numbers are right aligned.

    Strings go in as they are, so format numbers yourself: f"{n:,}", f"{ratio:.2f}×". The first column, when it isn't
    numbers, names its row.
    """
    rows = [list(row) for row in rows]
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise ValueError(f"row {number} has {len(row)} cells, the header has {len(header)}")
    publish(bilingual(lambda language: _table(rows, header, caption, language)))


def _table(rows: list[list[object]], header: Sequence[T | str], caption: T | None, language: str) -> dict[str, str]:
    names = [in_language(name, language) for name in header]
    texts = [[_cell_text(cell, language) for cell in row] for row in rows]
    numeric = _numeric_columns(texts) if texts else [False] * len(names)

    def cell(tag: str, text: str, column: int, scope: str = "") -> str:
        css = ' class="num"' if numeric[column] else ""
        return f"<{tag}{scope}{css}>{inline(text)}</{tag}>"

    lines = ['<div class="pt2e-table"><table>']
    if caption is not None:
        lines.append(f"<caption>{inline(in_language(caption, language))}</caption>")
    # An empty header cell is a td: a th without text is an accessibility error.
    lines.append(
        "<thead><tr>"
        + "".join(cell("th", name, i, ' scope="col"') if name.strip() else "<td></td>" for i, name in enumerate(names))
        + "</tr></thead>"
    )
    lines.append("<tbody>")
    for row in texts:
        first_names_row = bool(row) and not numeric[0] and len(row) > 1 and bool(row[0].strip())
        cells = [cell("th", row[0], 0, ' scope="row"') if first_names_row else cell("td", row[0], 0)] if row else []
        cells += [cell("td", text, i) for i, text in enumerate(row) if i > 0]
        lines.append("<tr>" + "".join(cells) + "</tr>")
    lines.append("</tbody></table></div>")
    return {"text/html": "\n".join(lines), "text/plain": _plain_table(names, texts, numeric, caption, language)}


def text_width(text: str) -> int:
    """Columns in a terminal: a Han character takes two."""
    return sum(2 if ord(character) > 0x2E7F else 1 for character in text)


def _plain_table(
    names: list[str], texts: list[list[str]], numeric: list[bool], caption: T | None, language: str
) -> str:
    lines = [[plain(text).replace("\n", " ") for text in line] for line in [names, *texts]]
    widths = [max(text_width(line[i]) for line in lines) for i in range(len(names))]

    def pad(text: str, column: int) -> str:
        space = " " * (widths[column] - text_width(text))
        return space + text if numeric[column] else text + space

    out = ["  ".join(pad(text, i) for i, text in enumerate(line)).rstrip() for line in lines]
    out.insert(1, "  ".join("-" * width for width in widths))
    if caption is not None:
        out.insert(0, plain(in_language(caption, language)))
    return "\n".join(out)


def check_alt(alt: object) -> None:
    """Refuse an alternative text that isn't in both languages."""
    if not isinstance(alt, T):
        raise TypeError(f"alt must be T(zh=..., en=...), not {type(alt).__name__}")


def figure_html(css_class: str, body: str, caption: T | None, language: str, attributes: str = "") -> str:
    """A <figure> around HTML, with its caption."""
    below = f"<figcaption>{inline(caption.in_language(language))}</figcaption>" if caption is not None else ""
    return f'<figure class="{css_class}"{attributes}>{body}{below}</figure>'


def plain_figure(alt: T, caption: T | None, language: str) -> str:
    """What stands for a figure in a terminal."""
    return "[" + " | ".join(plain(text.in_language(language)) for text in (caption, alt) if text is not None) + "]"
