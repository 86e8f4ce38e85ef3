"""One progress display for all chapters that are being executed."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from common.site.chapter import Chapter
from common.site.executor import Executor

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

log = logging.getLogger("mkdocs.plugins.pt2e")
Report = Callable[[str, Chapter, float], None]


@contextmanager
def progress(executor: Executor, chapters: tuple[Chapter, ...]) -> Iterator[Report]:
    """Yields what `Executor.run` reports to: a bar in a terminal, and a log line for each chapter that is executed."""
    total = sum(executor.cached(chapter) is None for chapter in chapters)
    if not total:
        yield lambda *_: None
        return
    lock, running, done = threading.Lock(), [], [0]
    terminal = sys.stderr.isatty()
    columns = (
        TextColumn("executing"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not terminal, transient=True) as bar:
        task = bar.add_task("", total=total)

        def report(event: str, chapter: Chapter, seconds: float) -> None:
            with lock:
                if event == "start":
                    running.append(chapter.name)
                else:
                    running.remove(chapter.name)
                    done[0] += 1
                    log.info("[%d/%d] %s %s in %.1f s", done[0], total, chapter.name, event, seconds)
                bar.update(task, completed=done[0], description=", ".join(running))

        yield report
