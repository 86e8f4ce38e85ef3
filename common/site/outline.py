"""The course's outline: chapters in reading order, and the pages each promises."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.site.chapter import Chapter, ChapterError, read_chapter

_FOLDER = re.compile(r"m\d\d_[a-z0-9_]+")
_PAGE = re.compile(r"\d+_[a-z0-9_]+")


@dataclass(frozen=True)
class Section:
    """A chapter of the course: its folder, its title in both languages, and its pages' paths."""

    folder: str
    zh: str
    en: str
    pages: tuple[str, ...]


def read_outline(chapters: Path) -> tuple[Section, ...]:
    """Read `outline.toml` in the chapters' folder. Raises ChapterError where it is malformed."""
    path = chapters / "outline.toml"
    shown = f"{chapters.name}/{path.name}"
    try:
        text = path.read_text(encoding="utf-8")
        told = tomllib.loads(text).get("chapter", [])
    except OSError as error:
        raise ChapterError(shown, 1, f"can't be read ({error.strerror}); it lists the chapters") from error
    except ValueError as error:  # no TOML, or no UTF-8
        line = re.search(r"at line (\d+)", str(error))
        raise ChapterError(shown, int(line[1]) if line else 1, f"malformed: {error}") from error
    # The line of a table is found by its heading: TOML's reader doesn't tell.
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.strip().startswith("[[chapter]]")]
    if not isinstance(told, list) or not told or len(told) != len(lines):
        raise ChapterError(shown, 1, "malformed: list every chapter under a line `[[chapter]]`")
    sections: list[Section] = []
    for table, line in zip(told, lines, strict=True):
        try:
            sections.append(_section(table, sections))
        except ValueError as error:
            raise ChapterError(shown, line, f"malformed: {error}") from error
    return tuple(sections)


def _section(table: dict[str, Any], above: list[Section]) -> Section:
    """One chapter of the outline. Raises ValueError, which says what to write instead."""
    if table.keys() != {"folder", "zh", "en", "pages"}:
        raise ValueError(f"a chapter has folder, zh, en and pages, this one {', '.join(table)}")
    pages = table["pages"]
    for name in ("folder", "zh", "en"):
        if not isinstance(table[name], str) or not table[name].strip():
            raise ValueError(f"{name} is a text, not {table[name]!r}")
    if not _FOLDER.fullmatch(table["folder"]):
        raise ValueError(f"folder is a name like m01_first_ptq, not {table['folder']!r}")
    if not isinstance(pages, list) or not pages:
        raise ValueError(f"pages is a list of names like 0_overview, not {pages!r}")
    for name in pages:
        if not isinstance(name, str) or not _PAGE.fullmatch(name):
            raise ValueError(f"a page is a name like 0_overview, without .py, not {name!r}")
    section = Section(
        table["folder"], table["zh"], table["en"], tuple(f"{table['folder']}/{name}.py" for name in pages)
    )
    addresses = [address(page) for other in (*above, section) for page in other.pages]
    if twice := {found for found in addresses if addresses.count(found) > 1}:
        raise ValueError(f"two pages have the address {min(twice)}; give each chapter and each page its own number")
    return section


def read_chapters(chapters: Path, sections: tuple[Section, ...], only: tuple[str, ...] = ()) -> tuple[Chapter, ...]:
    """Every chapter that has a file, in the outline's order. Raises ChapterError, also for files not listed.

    With `only`, names of folders or of pages, no other file is read. Raises ValueError for a name without a file.
    """
    promised = [page for section in sections for page in section.pages]
    written = [page for page in promised if (chapters / page).is_file()]
    if only:
        names = {page: {page, page.split("/")[0]} for page in written}
        if unknown := set(only).difference(*names.values()):
            raise ValueError(f"no chapter {min(unknown)!r}; name folders or pages, such as {', '.join(written[:1])}")
        return tuple(read_chapter(chapters / page, chapters) for page in written if names[page] & set(only))
    for file in sorted(chapters.rglob("*.py")):
        if file.relative_to(chapters).as_posix() not in promised:
            name = f"{chapters.name}/{file.relative_to(chapters).as_posix()}"
            raise ChapterError(name, 1, f"not in {chapters.name}/outline.toml; list it there")
    return tuple(read_chapter(chapters / page, chapters) for page in written)


def address(page: str) -> str:
    """A chapter page's address: `m08_executorch/4_latency.py` -> `m08/4-latency/`, an overview's -> `m08/`."""
    folder, file = page.split("/")
    stem = file.removesuffix(".py").replace("_", "-")
    return folder.split("_")[0] + ("/" if stem.startswith("0-") else f"/{stem}/")
