"""Executed results on disk: one file per chapter and key, written whole or not at all.

A file is one header line (format, checksum of the rest) and one line of JSON. What doesn't check out counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

FORMAT = 1
KEPT = 4  # entries kept per chapter: switching between branches executes nothing


@dataclass(frozen=True)
class Entry:
    """What one execution of a chapter gave. `outputs` has a list of nbformat outputs for each code cell."""

    chapter: str
    key: str
    parts: dict[str, str]
    outputs: list[list[dict[str, Any]]]
    seconds: float
    provenance: dict[str, Any] = field(default_factory=dict)


class Store:
    """The entries below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, chapter: str, key: str) -> Path:
        """Where the entry of this chapter and key is or would be."""
        return self._chapter_folder(chapter) / f"{key}.json"

    def load(self, chapter: str, key: str) -> Entry | None:
        """The entry, or None where there is none or it is damaged."""
        entry = _read(self.path(chapter, key))
        return entry if entry and entry.chapter == chapter and entry.key == key else None

    def newest(self, chapter: str) -> Entry | None:
        """The entry written last for this chapter under any key: its duration is the best guess for the next run."""
        folder = self._chapter_folder(chapter)
        for path in sorted(folder.glob("*.json"), key=_written, reverse=True):
            if entry := _read(path):
                return entry
        return None

    def save(self, entry: Entry) -> None:
        """Write the entry atomically and drop the chapter's oldest ones."""
        write_checked(self.path(entry.chapter, entry.key), asdict(entry))
        keep_newest(self._chapter_folder(entry.chapter), KEPT)

    @contextmanager
    def lock(self, chapter: str) -> Iterator[None]:
        """Held while a chapter is executed, so that two builds at once execute it once."""
        folder = self._chapter_folder(chapter)
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            yield

    def _chapter_folder(self, chapter: str) -> Path:
        return self.folder / chapter.removesuffix(".py").replace("/", ".")


def _read(path: Path) -> Entry | None:
    try:
        return Entry(**(read_checked(path) or {}))
    except TypeError:
        return None


def read_checked(path: Path) -> dict[str, Any] | None:
    """What `write_checked` wrote, or None where there is nothing or it is damaged or of another format."""
    try:
        header, body = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
        told = json.loads(header)
        if told["format"] != FORMAT or told["sha256"] != hashlib.sha256(body.encode()).hexdigest():
            return None
        return json.loads(body)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_checked(path: Path, value: dict[str, Any]) -> None:
    """Write a value so that damage shows when it is read."""
    body = json.dumps(value, ensure_ascii=False, sort_keys=True)
    header = json.dumps({"format": FORMAT, "sha256": hashlib.sha256(body.encode()).hexdigest()})
    write_atomically(path, f"{header}\n{body}\n")


def keep_newest(folder: Path, count: int) -> None:
    """Remove all entries of a folder but the ones written last."""
    for old in sorted(folder.glob("*.json"), key=_written)[:-count]:
        old.unlink(missing_ok=True)


def _written(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # another build removed it meanwhile
        return 0


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file that readers see either whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")  # mkstemp's are the owner's alone
    try:
        with temporary.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
