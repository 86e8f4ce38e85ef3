"""Edits of one language alone: a Chinese text changed without its English twin, or the reverse.

Compared are a commit and the files as they are. What changed is told by the pairs themselves: a pair that is new, while
an old one, now gone, had one of its two texts, was edited on one side. Where cells moved doesn't matter.

A correction that needs no twin (a typo) is marked in a commit's message, by a line `One language: <path>`.
"""

from __future__ import annotations

import ast
import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common.site.chapter import Chapter, ChapterError, parse_chapter

MARK = "One language:"
NAMES = {"zh": "Chinese", "en": "English"}


@dataclass(frozen=True)
class Pair:
    """A text in both languages, and the line that each begins on."""

    zh: str
    en: str
    line_zh: int
    line_en: int


@dataclass(frozen=True)
class OneSided:
    """An edit of one language: which, and where it and its untouched twin stand."""

    path: str
    edited: str
    line: int
    twin: int

    def __str__(self) -> str:
        other = NAMES["en" if self.edited == "zh" else "zh"]
        return f"{self.path}:{self.line}: {NAMES[self.edited]} edited, its {other} twin (line {self.twin}) not"


def one_sided(root: Path, chapters: str, docs: tuple[str, str], since: str) -> list[OneSided]:
    """Edits of one language since a commit, without those that commit messages mark. Raises ValueError without git."""
    changed = _git(root, "diff", "--name-only", "--no-renames", since).splitlines()
    marked = {
        line.removeprefix(MARK).strip()
        for line in _git(root, "log", "--format=%B", f"{since}..HEAD").splitlines()
        if line.startswith(MARK)
    }
    found = []
    for path in changed:
        if path in marked or not (root / path).is_file():
            continue
        if path.startswith(f"{chapters}/") and path.endswith(".py"):
            old = pairs(_chapter(path, _before(root, since, path)))
            new = pairs(_chapter(path, (root / path).read_text(encoding="utf-8")))
            found += edits(path, old, new)
        elif path.endswith(".md"):
            found += _page(path, docs, set(changed))
    return found


def edits(path: str, old: list[Pair], new: list[Pair]) -> Iterator[OneSided]:
    """The pairs of which one side is new."""
    kept = {(pair.zh, pair.en) for pair in new}
    gone = [pair for pair in old if (pair.zh, pair.en) not in kept]
    had = {(pair.zh, pair.en) for pair in old}
    zh_before, en_before = {pair.zh: pair for pair in gone}, {pair.en: pair for pair in gone}
    for pair in new:
        if (pair.zh, pair.en) in had:
            continue
        if pair.en in en_before and pair.zh not in zh_before:
            line = pair.line_zh + _first_difference(en_before[pair.en].zh, pair.zh)
            yield OneSided(path, "zh", line, pair.line_en)
        elif pair.zh in zh_before and pair.en not in en_before:
            line = pair.line_en + _first_difference(zh_before[pair.zh].en, pair.en)
            yield OneSided(path, "en", line, pair.line_zh)


def _first_difference(old: str, new: str) -> int:
    """The 0-based line of the new text that isn't the old one's."""
    both = zip(old.splitlines(), new.splitlines(), strict=False)
    same = len(list(itertools.takewhile(lambda lines: lines[0] == lines[1], both)))
    return min(same, len(new.splitlines()) - 1)


def pairs(chapter: Chapter | None) -> list[Pair]:
    """The chapter's pairs of text cells, and those of `T(zh=..., en=...)` in its code."""
    found: list[Pair] = []
    cells = chapter.cells if chapter else ()
    for cell, twin in itertools.pairwise(cells):
        if cell.lang == "zh":
            found.append(Pair(cell.source, twin.source, cell.line, twin.line))
    for cell in cells:
        if cell.kind == "code":
            for node in ast.walk(ast.parse(cell.source)):
                texts = {word.arg: word.value for word in node.keywords} if isinstance(node, ast.Call) else {}
                if {"zh", "en"} <= texts.keys():
                    zh, en = texts["zh"], texts["en"]
                    lines = (cell.line + text.lineno - 1 for text in (zh, en))
                    found.append(Pair(ast.unparse(zh), ast.unparse(en), *lines))
    return found


def _page(path: str, docs: tuple[str, str], changed: set[str]) -> Iterator[OneSided]:
    """A page of the other kind is a file per language."""
    for folder, other, language in ((*docs, "zh"), (*docs[::-1], "en")):
        if path.startswith(f"{folder}/") and f"{other}/{path.removeprefix(f'{folder}/')}" not in changed:
            yield OneSided(path, language, 1, 1)


def _chapter(path: str, text: str) -> Chapter | None:
    """None where the text is no chapter, as before its first commit."""
    try:
        return parse_chapter(text, Path(path), path)
    except ChapterError:
        return None


def _before(root: Path, since: str, path: str) -> str:
    try:
        return _git(root, "show", f"{since}:{path}")
    except ValueError:
        return ""


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "-c", "core.quotepath=off", *arguments],
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise ValueError(f"git {arguments[0]}: {error.stderr.strip()}") from error
    except OSError as error:
        raise ValueError(f"git can't be run: {error}") from error
    return done.stdout
