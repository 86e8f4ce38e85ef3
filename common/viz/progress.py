"""A progress line for long loops."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def progress(iterable: Iterable[Item], label: str) -> Iterator[Item]:
    """Yield from `iterable` while a line shows how far it is. It disappears at the end; a built page never has it."""
    if os.environ.get("PT2E_BUILD"):
        yield from iterable
        return
    total = len(iterable) if hasattr(iterable, "__len__") else None
    line = _Line()
    try:
        for number, item in enumerate(iterable, start=1):
            line.show(f"{label}: {number}/{total}" if total is not None else f"{label}: {number}")
            yield item
    finally:
        line.clear()


class _Line:
    """One line that is overwritten: in Jupyter a display that is updated, in a terminal a carriage return."""

    def __init__(self) -> None:
        from common.viz.text import in_notebook

        self._notebook, self._handle, self._next = in_notebook(), None, 0.0

    def show(self, text: str) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + 0.2
        if self._notebook:
            from IPython.display import display

            if self._handle is None:
                self._handle = display({"text/plain": text}, raw=True, display_id=True)
            else:
                self._handle.update({"text/plain": text}, raw=True)
        elif sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": ""}, raw=True)
        elif not self._notebook and sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
