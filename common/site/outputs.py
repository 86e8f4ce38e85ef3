"""What the pages show, as one file of each build, and what changed between two of them.

The manifest has every code cell's outputs as text: printed lines, tables, sentences, the words and numbers in figures,
the nodes of drawn graphs. English stands for both languages: tests see to it that they say the same.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from common.site.chapter import Chapter
from common.site.executor import BILINGUAL
from common.site.keys import digest
from common.site.store import Entry

from lxml import html

FORMAT = 1
RELATIVE = 1e-3  # a number with decimals counts as the same within this, or within one unit of its last place
RATIO = 1.5  # what counts as another time

_NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")


class ManifestError(Exception):
    """A file that is no manifest, or one of another format."""


@dataclass(frozen=True)
class Change:
    """One line of output that isn't what it was. `old` or `new` is empty where a line came or went."""

    chapter: str
    line: int
    old: str
    new: str
    is_timing: bool

    def __str__(self) -> str:
        note = " (measured time)" if self.is_timing else ""
        lines = [f"- {self.old}"] * bool(self.old) + [f"+ {self.new}"] * bool(self.new)
        return "\n".join([f"{self.chapter}:{self.line}:{note}", *lines])


# --- Writing ----------------------------------------------------------------------------------------------------------


def manifest(results: Iterable[tuple[Chapter, Entry]], folder: str = "chapters") -> dict[str, Any]:
    """The manifest of these chapters' results, ready for JSON."""
    return {
        "format": FORMAT,
        "chapters": {
            f"{folder}/{chapter.name}": {
                "measures": chapter.measures,
                "versions": entry.provenance.get("versions", {}),
                "cells": [
                    {"line": cell.line, "code": digest(cell.source), "shows": list(shown(outputs))}
                    for cell, outputs in zip(chapter.code_cells, entry.outputs, strict=True)
                ],
            }
            for chapter, entry in results
        },
    }


def shown(outputs: list[dict[str, Any]]) -> Iterator[str]:
    """The lines that a reader of the English page sees, without trailing space or empty lines."""
    for output in outputs:
        data = output.get("data", {})
        data = data.get(BILINGUAL, {}).get("en", data)
        lines = (output.get("text") or data.get("text/plain", "")).splitlines()
        if "<svg" in (drawing := data.get("text/html", "")):
            tree = html.fragment_fromstring(drawing, create_parent=True)
            words = [" ".join(text.text_content().split()) for svg in tree.iter("svg") for text in svg.iter("text")]
            lines.append("drawn: " + " | ".join(filter(None, words)))
        yield from filter(None, (line.rstrip() for line in lines))


# --- Comparing --------------------------------------------------------------------------------------------------------


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """What a reader would see change, chapter by chapter, cell by cell. Raises ManifestError."""
    for told in (old, new):
        if not isinstance(told, dict) or told.get("format") != FORMAT:
            raise ManifestError(f"no manifest of format {FORMAT}; a build writes it to outputs.json in the site")
    found: list[Change] = []
    for name in sorted(old["chapters"].keys() | new["chapters"].keys()):
        before, after = old["chapters"].get(name), new["chapters"].get(name)
        if before is None or after is None:
            words = ("", "a new chapter") if before is None else ("a chapter", "")
            found.append(Change(name, 1, *words, is_timing=False))
        else:
            found += _of_chapter(name, before, after)
    return found


def _of_chapter(name: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[Change]:
    timing = old["measures"] and new["measures"]
    for before, after in _cells(old["cells"], new["cells"]):
        lines = (before or after)["line"] if after is None else after["line"]
        a, b = (cell["shows"] if cell else [] for cell in (before, after))
        for x, y in _lines(a, b):
            if not same(x, y, timing=timing):
                yield Change(name, lines, x, y, is_timing=timing and same(x, y, timing=True, ratio=float("inf")))


def _cells(old: list[dict], new: list[dict]) -> Iterator[tuple[dict | None, dict | None]]:
    """Cells of the same code side by side, and between them what was edited."""
    yield from _aligned(old, new, [cell["code"] for cell in old], [cell["code"] for cell in new])


def _lines(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    """Lines of the same words side by side, whatever their numbers."""
    words = [[" ".join(_NUMBER.sub("#", line).split()) for line in lines] for lines in (old, new)]
    for x, y in _aligned(old, new, *words):
        yield x or "", y or ""


def _aligned(old: list, new: list, old_marks: list[str], new_marks: list[str]) -> Iterator[tuple]:
    for _, i, j, k, m in difflib.SequenceMatcher(None, old_marks, new_marks, autojunk=False).get_opcodes():
        a, b = old[i:j], new[k:m]
        width = max(len(a), len(b))
        yield from zip([*a, *[None] * (width - len(a))], [*b, *[None] * (width - len(b))], strict=True)


def same(old: str, new: str, *, timing: bool = False, ratio: float = RATIO) -> bool:
    """Whether two lines say the same: the same words, and numbers within the tolerances above.

    Whole numbers have to be equal: they count something. `timing` lets every number differ by a ratio.
    """
    if old == new:
        return True
    words = [" ".join(_NUMBER.sub("#", line).split()) for line in (old, new)]
    if words[0] != words[1]:
        return False
    pairs = zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True)
    return all(_near(a, b) or (timing and _within(a, b, ratio)) for a, b in pairs)


def _near(old: str, new: str) -> bool:
    a, b = _value(old), _value(new)
    if re.fullmatch(r"[-+−\d,]+", old) and re.fullmatch(r"[-+−\d,]+", new):
        return a == b
    return abs(a - b) <= max(_last_place(old), _last_place(new), RELATIVE * abs(a)) * (1 + 1e-9)


def _within(old: str, new: str, ratio: float) -> bool:
    a, b = _value(old), _value(new)
    return a == b or (a * b > 0 and max(a / b, b / a) <= ratio)


def _value(number: str) -> float:
    return float(number.replace(",", "").replace("−", "-"))


def _last_place(number: str) -> float:
    digits, _, exponent = number.lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
