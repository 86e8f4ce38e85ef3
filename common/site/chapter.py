"""Chapters: percent-format Python files with paired Chinese and English Markdown cells.

`read_chapter` is the only reader. It refuses what would otherwise go wrong silently, naming file, line and remedy.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import jupytext
import nbformat
from nbformat.v4 import new_notebook

TAGS = ("setup", "plot", "solution")
# Settings of a whole chapter: their type, and how a refusal names it.
CHAPTER_KEYS = {"measures": (bool, "true or false"), "time_limit": (int, "a positive whole number of seconds")}
DEFAULT_TIME_LIMIT = 300  # seconds; a page takes 60 at most, so this is for a busy machine: it ends what hangs
JUPYTEXT_KEYS = ("lines_to_next_cell", "lines_to_end_of_cell_marker")  # notes of the reader to its writer
# Without this jupytext's reader turns the comment `# ls -la` into a shell command.
PERCENT = {"extension": ".py", "format_name": "percent", "comment_magics": False}

_MARKER = re.compile(r"\s*#\s*(?:%%%*(?:\s|$)|(?:<codecell>|In\[[0-9 ]*\]:?)\s*$)")  # what jupytext starts a cell at
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")  # some break lines, for some programs
_IPYTHON = re.compile(r"[%!?]|.*\?$|[^=]*=\s*[%!]")
_OPTIONS = 'write them as lang="zh" or tags=["setup"]'
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ANCHOR = re.compile(r"[ \t]*\{[^}]*#([-\w]+)[^}]*\}$")
_RULE = re.compile(r"(?:=+|-+) *$")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")


class ChapterError(Exception):
    """A fault in a chapter's source. Its text is `path:line: what is wrong; what to do`."""

    def __init__(self, path: Path | str, line: int, message: str) -> None:
        super().__init__(f"{path}:{line}: {message}")
        self.path, self.line, self.message = str(path), line, message


@dataclass(frozen=True)
class Cell:
    """One cell. `line` is the 1-based line of its first source line, `marker` the one of its `# %%`.

    `lang` is None in code and shared cells.
    """

    kind: str
    source: str
    line: int
    marker: int
    lang: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chapter:
    """A chapter as read: `name` is its path below the chapters' folder, `path` the file."""

    path: Path
    name: str
    cells: tuple[Cell, ...]
    measures: bool = False
    time_limit: int = DEFAULT_TIME_LIMIT
    code_cells: tuple[Cell, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "code_cells", tuple(c for c in self.cells if c.kind == "code"))

    def in_language(self, lang: str) -> tuple[Cell, ...]:
        """The cells that a page of this language shows."""
        return tuple(c for c in self.cells if c.lang in (None, lang))

    def title(self, lang: str) -> str:
        """The page's title in this language, as Markdown."""
        return headings(self.in_language(lang)[0].source)[0][1]

    def heading_ids(self) -> list[str]:
        """The anchors of the page's headings, in order: slugs of the English headings, the same in both languages."""
        text = "\n\n".join(c.source for c in self.in_language("en") if c.kind == "markdown")
        return heading_ids(text)


def headings(markdown: str) -> list[tuple[int, str, int]]:
    """The ATX headings of a Markdown text, as (level, text, 0-based line); fenced code is passed over."""
    found = [(_HEADING.match(line), number) for number, line in _unfenced(markdown)]
    return [(len(heading[1]), heading[2], number) for heading, number in found if heading]


def _unfenced(markdown: str) -> Iterator[tuple[int, str]]:
    """The lines outside of fenced code, each with its 0-based number."""
    return ((number, line) for number, (line, is_code) in enumerate(told_apart(markdown)) if not is_code)


def told_apart(markdown: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it belongs to fenced code; the fences do."""
    fence = None
    for line in markdown.splitlines():
        mark = _FENCE.match(line)
        yield line, bool(fence or mark)
        if fence is None:
            fence = mark and mark[1]
        elif mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence) and not line.strip().strip(fence[0]):
            fence = None


def slug(text: str) -> str:
    """An ASCII anchor for an English heading: its words in lower case, joined by hyphens. Empty where it has none."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return "-".join(re.findall(r"[a-z0-9]+", text.lower().replace("'", "").replace("’", "")))


def heading_ids(english: str) -> list[str]:
    """One unique anchor per heading of an English text: its slug, or the one it names itself as `{#anchor}`."""
    ids: list[str] = []
    for _, text, _ in headings(english):
        own = _ANCHOR.search(text)
        base = own[1] if own else slug(text) or "section"
        name, count = base, 1
        while name in ids:
            count += 1
            name = f"{base}-{count}"
        ids.append(name)
    return ids


def read_chapter(path: Path, root: Path | None = None) -> Chapter:
    """Read and check one chapter. Raises ChapterError at the first fault."""
    name = path.relative_to(root).as_posix() if root else path.name
    shown = f"{root.name}/{name}" if root else str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ChapterError(shown, line, "not UTF-8 text; save the file as UTF-8") from error
    return parse_chapter(text, path, name, shown)


@functools.lru_cache(maxsize=512)  # `serve` reads every chapter again after every edit
def parse_chapter(text: str, path: Path, name: str, shown: str | None = None) -> Chapter:
    """Parse a chapter's text; `shown` is how errors name the file."""
    shown = shown or str(path)
    lines = text.splitlines()
    markers = list(_markers(text, shown))
    try:
        notebook = jupytext.reads(text, fmt=PERCENT)
    except Exception as error:
        number = next((number for number in markers if not _readable(lines[number - 1])), 1)
        message = f"unreadable cell options `{lines[number - 1].strip()}`; {_OPTIONS}"
        raise ChapterError(shown, number, message) from error
    if len(notebook.cells) != len(markers):
        number = _idle_marker(lines, markers, len(notebook.cells))
        raise ChapterError(shown, number, "a `# %%` in a string or fenced text starts no cell; write it differently")
    settings: dict[str, object] = {}
    cells = []
    for index, (raw, marker) in enumerate(zip(notebook.cells, markers, strict=True)):
        end = markers[index + 1] - 1 if index + 1 < len(markers) else len(lines)
        cells.append(_cell(raw, marker, lines[marker:end], shown, settings if index == 0 else None))
    _check_pairs(cells, shown)
    _check_titles(cells, shown)
    return Chapter(path, name, tuple(cells), **settings)  # type: ignore[arg-type]


def _markers(text: str, shown: str) -> Iterator[int]:
    """Line numbers of the cell markers; anything before the first one, or an odd marker, is refused."""
    seen = False
    for number, line in enumerate(text.split("\n"), 1):
        if odd := _CONTROL.search(line.removesuffix("\r")):
            raise ChapterError(shown, number, f"an invisible character (U+{ord(odd[0]):04X}); remove it")
        if _MARKER.match(line):
            if not re.match(r"# %%(?:\s|%|$)", line):
                raise ChapterError(shown, number, "a cell starts with `# %%`: one space after the #, nothing before it")
            if line.startswith("# %%%"):
                raise ChapterError(shown, number, "a cell starts with `# %%`; sub-cells are not supported")
            seen = True
            yield number
        elif not seen and line.strip():
            raise ChapterError(shown, number, "text before the first cell; remove the header, chapters have none")
    if not seen:
        raise ChapterError(shown, 1, 'no cell; start with `# %% [markdown] lang="zh"`')


def _readable(marker: str) -> bool:
    """Whether jupytext can read a cell that begins with this line."""
    try:
        jupytext.reads(f"{marker}\n# text\n", fmt=PERCENT)
    except Exception:
        return False
    return True


def _idle_marker(lines: list[str], markers: list[int], cells: int) -> int:
    """The first marker that starts no cell: without it there are as many."""
    for number in markers[1:]:
        without = [*lines[: number - 1], "# text", *lines[number:]]
        if len(jupytext.reads("\n".join(without), fmt=PERCENT).cells) == cells:
            return number
    return markers[0]


def _cell(
    raw: nbformat.NotebookNode, marker: int, written: list[str], shown: str, settings: dict[str, object] | None
) -> Cell:
    """One cell from jupytext's, its metadata checked; a first cell's chapter-wide settings go into `settings`.

    `written` are the lines between its marker and the next.
    """
    metadata = {key: value for key, value in raw.metadata.items() if key not in JUPYTEXT_KEYS}
    kind = raw.cell_type
    if kind not in ("markdown", "code"):
        raise ChapterError(shown, marker, f"a {kind} cell; use a Markdown or a code cell")
    if "title" in metadata:
        raise ChapterError(shown, marker, f"unknown title {metadata['title']!r}; write `# %%` or `# %% [markdown]`")
    if "incorrectly_encoded_metadata" in metadata:
        told = metadata["incorrectly_encoded_metadata"]
        raise ChapterError(shown, marker, f"unreadable cell options `{told}`; {_OPTIONS}")
    if "region_name" in metadata:
        raise ChapterError(shown, marker, "a text cell starts with `# %% [markdown]`; write it in full")
    if "cell_marker" in metadata:
        raise ChapterError(shown, marker, "text in a string; put `# ` before each of its lines instead")
    lang = metadata.pop("lang", None)
    if lang is not None and kind == "code":
        raise ChapterError(shown, marker, "a code cell has no language; both pages show the same code: remove lang")
    if lang not in (None, "zh", "en"):
        raise ChapterError(shown, marker, f'unknown language {lang!r}; write lang="zh" or lang="en"')
    tags = metadata.pop("tags", [])
    for tag in tags:
        if tag not in TAGS:
            raise ChapterError(shown, marker, f"unknown tag {tag!r}; the tags are {', '.join(TAGS)}")
    for key, value in metadata.items():
        if key not in CHAPTER_KEYS:
            raise ChapterError(shown, marker, f"unknown metadata {key!r}; cells take lang and tags")
        if settings is None:
            raise ChapterError(shown, marker, f"{key} holds for the whole chapter; move it to the first cell")
        wanted, words = CHAPTER_KEYS[key]
        if type(value) is not wanted or (wanted is int and value <= 0):
            raise ChapterError(shown, marker, f"{key} must be {words}, not {value!r}")
        settings[key] = value
    if kind == "markdown":
        for number, line in enumerate(written, marker + 1):
            if line.strip() and not line.startswith("#"):
                message = f"`{line.strip()}` in a text cell; put `# ` before text, and `# %%` above code"
                raise ChapterError(shown, number, message)
        written = [line.removeprefix("#") for line in written]
    blank = next((count for count, line in enumerate(written) if line.strip()), None)
    if blank is None:
        raise ChapterError(shown, marker, "an empty cell; fill it or remove it")
    source = re.sub(r"\A(?:[ \t]*\n)+", "", raw.source)
    cell = Cell(kind, source, marker + 1 + blank, marker, lang, tuple(tags))
    (_check_code if kind == "code" else _check_text)(cell, shown)
    return cell


def _check_code(cell: Cell, shown: str) -> None:
    """Code must be plain Python."""
    try:
        ast.parse(cell.source)
    except SyntaxError as error:
        line = cell.line + (error.lineno or 1) - 1
        source = (error.text or "").strip()
        if _IPYTHON.match(source):
            message = f"IPython magic or shell command `{source}`; chapters are plain Python"
            raise ChapterError(shown, line, message) from error
        raise ChapterError(shown, line, f"{error.msg}: `{source}`") from error
    except (RecursionError, MemoryError) as error:
        raise ChapterError(shown, cell.line, "an expression nested too deeply for Python; split it") from error


def _check_text(cell: Cell, shown: str) -> None:
    """Headings that every reader of Markdown sees alike, and no code that looks executed and isn't."""
    for number, line in enumerate(cell.source.splitlines()):
        if (fence := _FENCE.match(line)) and re.match(r" *(?:python|py|pycon)\b(?!.*\btitle=)", line[fence.end() :]):
            message = 'code in a text never runs; make it a code cell, or say why not: ```python title="An excerpt"'
            raise ChapterError(shown, cell.line + number, message)
    # What Markdown takes for a heading must be one that `headings` sees: `#` at the line's start, a space, words.
    above = ""
    for number, line in _unfenced(cell.source):
        if re.match(r" {0,3}#", line) and not re.match(r"#{1,6} +[^ #]", line):
            message = f"`{line}` is no heading to every reader; write `## Words`, with a space, at the line's start"
            raise ChapterError(shown, cell.line + number, message)
        if above.strip() and _RULE.match(line):
            message = "an underlined heading; write ## before it instead (a rule needs a blank line above it)"
            raise ChapterError(shown, cell.line + number, message)
        above = line


def _check_pairs(cells: list[Cell], shown: str) -> None:
    """Every Chinese Markdown cell is followed by its English twin of the same shape."""
    index = 0
    while index < len(cells):
        cell = cells[index]
        if cell.lang == "en":
            raise ChapterError(shown, cell.marker, "an English cell without a Chinese one before it")
        if cell.lang == "zh":
            twin = cells[index + 1] if index + 1 < len(cells) else None
            if twin is None or twin.lang != "en":
                raise ChapterError(
                    shown, cell.marker, 'a Chinese cell without its English twin; put `lang="en"` right after it'
                )
            _check_twins(cell, twin, shown)
            index += 1
        index += 1


def _check_twins(zh: Cell, en: Cell, shown: str) -> None:
    if zh.tags != en.tags:
        raise ChapterError(shown, en.marker, f"tags {list(en.tags)} differ from the Chinese cell's {list(zh.tags)}")
    levels = [[(level, line) for level, _, line in headings(cell.source)] for cell in (zh, en)]
    for (a, line_a), (b, line_b) in zip(*levels, strict=False):
        if a != b:
            raise ChapterError(
                shown,
                en.line + line_b,
                f"heading level {b} differs from the Chinese level {a} (line {zh.line + line_a})",
            )
    if len(levels[0]) != len(levels[1]):
        raise ChapterError(
            shown,
            en.marker,
            f"{len(levels[1])} headings here, {len(levels[0])} in the Chinese cell (line {zh.marker})",
        )


def _check_titles(cells: list[Cell], shown: str) -> None:
    """One title, in the first cell; English headings that make an anchor."""
    for lang in ("zh", "en"):
        page = [cell for cell in cells if cell.lang in (None, lang)]
        titles = [
            (cell, line)
            for cell in page
            if cell.kind == "markdown"
            for level, _, line in headings(cell.source)
            if level == 1
        ]
        if not titles or titles[0][0] is not page[0]:
            raise ChapterError(shown, cells[0].marker, "the first cell has no title; start it with `# # M01-1 | …`")
        if len(titles) > 1:
            cell, line = titles[1]
            raise ChapterError(shown, cell.line + line, "a second title; use ## for sections")
    for cell in cells:
        if cell.kind == "markdown" and cell.lang in (None, "en"):
            for _, text, line in headings(cell.source):
                if not slug(text):
                    raise ChapterError(
                        shown, cell.line + line, f"heading {text!r} has no Latin word to make an anchor of"
                    )


def notebook(chapter: Chapter, lang: str) -> nbformat.NotebookNode:
    """The chapter as a notebook of one language, without outputs; the same source gives the same bytes."""
    cells = []
    ordinal = 0
    for index, cell in enumerate(chapter.in_language(lang)):
        # Not by nbformat's new_code_cell, which validates: for every cell of every page, whatever changed.
        name = hashlib.sha256(f"{index}\0{cell.source}".encode()).hexdigest()[:12]
        made = nbformat.from_dict({"cell_type": cell.kind, "id": name, "metadata": {}, "source": cell.source})
        if cell.tags:
            made.metadata["tags"] = list(cell.tags)
        made.metadata["pt2e"] = nbformat.from_dict({"line": cell.line})
        if cell.kind == "code":
            made.execution_count, made.outputs = None, []
            made.metadata["pt2e"]["ordinal"] = ordinal
            ordinal += 1
        cells.append(made)
    book = new_notebook(cells=cells)
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book.metadata["pt2e"] = {"chapter": chapter.name, "language": lang}
    return book
