"""Executing chapters: each once for both languages, from the cache where nothing it depends on has changed.

`Executor.run` executes stale chapters side by side; afterwards mkdocs-jupyter asks for the same results (kernels.py).
What drives kernels is imported where something is executed: an unchanged rebuild does without.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import logging
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.site import keys
from common.site.chapter import Cell, Chapter, notebook
from common.site.store import Entry, Store
from common.site.warm import WarmParent

if TYPE_CHECKING:
    from common.site.kernels import Runner

    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient.exceptions import CellExecutionError

BILINGUAL = "application/vnd.pt2e.bilingual+json"
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
SHOWN_VERSIONS = ("torch", "torchao", "executorch", "onnxruntime", "onnx", "matplotlib", "numpy")

_FRAME = re.compile(r"Cell In\s?\[(\d+)\], line (\d+)")
log = logging.getLogger("mkdocs.plugins.pt2e")


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a chapter has no result: where, what, and the cell's source with the line marked."""

    chapter: str
    line: int
    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.chapter}:{self.line}: {self.reason}" + (f"\n{self.detail}" if self.detail else "")


class ChapterFailed(Exception):
    """Executing a chapter failed; `failure` says where and why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Executor:
    """Executes chapters of one project and keeps their results in its cache."""

    def __init__(
        self,
        root: Path,
        chapters: Path,
        packages: tuple[str, ...] = ("common",),
        *,
        cache: Path | None = None,
        workers: int | None = None,
        warm: bool = sys.platform == "linux",
        cpu_class: Callable[[], str] | None = None,
        machine: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self.root, self.chapters, self.packages = root, chapters, packages
        self.cache = cache or root / ".cache"
        self.store = Store(self.cache / "executed")
        self.workers = workers or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0]) or 1
        self.warm = warm
        self.executed_cells = 0
        self._cpu_class, self._machine = cpu_class or (lambda: platform.machine()), machine or (lambda: {})
        self.failed: dict[tuple, Failure] = {}  # what failed is not tried again while it stays as it is
        self._bare_parent: WarmParent | None = None
        self._warm_parent: WarmParent | None = None
        self._early = 0
        self._running: set[Runner] = set()
        self._counting = threading.Lock()

    def parts(self, chapter: Chapter) -> keys.Parts:
        """The ingredients of this chapter's key."""
        return keys.chapter_parts(chapter, self.root, self.packages, self._cpu_class() if chapter.measures else "")

    def cached(self, chapter: Chapter) -> Entry | None:
        """The chapter's result where it is up to date."""
        return self.store.load(chapter.name, self.parts(chapter).key)

    def entry(self, chapter: Chapter) -> Entry:
        """The chapter's result, executed now where the cache has none. Raises ChapterFailed."""
        parts = self.parts(chapter)
        if found := self.store.load(chapter.name, parts.key):
            return found
        with self.store.lock(chapter.name):
            if found := self.store.load(chapter.name, parts.key):  # another build was quicker
                return found
            entry = self._execute(chapter, parts)
            self.store.save(entry)
            return entry

    def run(
        self, chapters: Iterable[Chapter], report: Callable[[str, Chapter, float], None] | None = None
    ) -> list[Failure]:
        """Execute the stale ones among the chapters; returns the failures, in the chapters' order.

        Longest first by recorded time, side by side on the cores; chapters that measure run alone, after the others.
        """
        report = report or (lambda *_: None)
        chapters = list(chapters)
        order = {self.shown(chapter): index for index, chapter in enumerate(chapters)}
        stale = [chapter for chapter in chapters if self.cached(chapter) is None]
        failures = [self.failed[attempt] for chapter in stale if (attempt := self._attempt(chapter)) in self.failed]
        stale = [chapter for chapter in stale if self._attempt(chapter) not in self.failed]
        if not stale:
            return failures
        stale.sort(key=self.expected_seconds, reverse=True)
        with self._kernels(stale):
            for group, workers in (
                ([c for c in stale if not c.measures], self.workers),
                ([c for c in stale if c.measures], 1),
            ):
                with ThreadPoolExecutor(workers) as pool:
                    jobs = [pool.submit(self._timed, chapter, report) for chapter in group]
                    try:
                        failures += filter(None, (job.result() for job in as_completed(jobs)))
                    except BaseException:  # such as Ctrl-C: nobody waits for the rest
                        pool.shutdown(wait=False, cancel_futures=True)
                        for runner in tuple(self._running):
                            runner.kill()
                        raise
        return sorted(failures, key=lambda failure: order[failure.chapter])

    def shown(self, chapter: Chapter) -> str:
        """How messages name the chapter's file."""
        return f"{self.chapters.name}/{chapter.name}"

    def _timed(self, chapter: Chapter, report: Callable[[str, Chapter, float], None]) -> Failure | None:
        report("start", chapter, 0.0)
        began = time.monotonic()
        try:
            self.entry(chapter)
        except ChapterFailed as failed:
            report("failed", chapter, time.monotonic() - began)
            self.failed[self._attempt(chapter)] = failed.failure
            return failed.failure
        report("done", chapter, time.monotonic() - began)
        return None

    def _attempt(self, chapter: Chapter) -> tuple:
        """What a failure depends on, its line included."""
        return chapter.name, self.parts(chapter).key, chapter.time_limit, tuple(c.line for c in chapter.code_cells)

    def expected_seconds(self, chapter: Chapter) -> float:
        """How long the chapter took when it was executed last; infinite where that isn't known."""
        known = self.store.newest(chapter.name)
        return known.seconds if known else float("inf")

    @contextlib.contextmanager
    def _kernels(self, chapters: list[Chapter]):
        """While open, kernels are forked from a parent that has imported what these chapters import.

        It imports on one core. On the others the first chapters start meanwhile, from a parent that has imported
        nothing; where that is all of them there is no other.
        """
        if not self.warm:
            yield
            return
        self._early = self.workers - 1
        all_early = len(chapters) <= max(1, self._early)
        with tempfile.TemporaryDirectory(prefix="pt2e-") as folder, contextlib.ExitStack() as parents:
            printed = [Path(folder, "bare.txt"), Path(folder, "imports.txt")]
            try:
                if self._early or all_early:
                    self._bare_parent = parents.enter_context(WarmParent([], self.environment(), printed[0]))
                if not all_early:
                    modules = self._heavy_modules(chapters)
                    self._warm_parent = parents.enter_context(WarmParent(modules, self.environment(), printed[1]))
            except OSError as error:
                log.info("kernels start cold: %s", error)
            try:
                yield
            finally:
                self._bare_parent = self._warm_parent = None
                parents.close()
            if told := "".join(path.read_text(errors="replace") for path in printed if path.exists()).strip():
                log.warning("importing the chapters' libraries printed:\n%s", told)

    def _heavy_modules(self, chapters: list[Chapter]) -> list[str]:
        """The library modules these chapters and their helpers import, with the helper packages' own __init__ first."""
        names: set[str] = set()
        for chapter in chapters:
            for cell in chapter.code_cells:
                names |= keys.imported_names(cell.source)
        for module in keys.helper_modules(names, self.root, self.packages):
            names |= keys.imported_names(module.read_text(encoding="utf-8"))
        own = {*self.packages, *sys.stdlib_module_names}
        heavy = sorted({name for name in names if name and name.split(".")[0] not in own})
        return [*self.packages, *heavy]

    def environment(self) -> dict[str, str]:
        """The environment of every kernel: one thread, the project importable, artifacts in the project's cache."""
        path = os.pathsep.join(filter(None, [str(self.root), os.environ.get("PYTHONPATH")]))
        # Where ipykernel sees PYTEST_CURRENT_TEST, it doesn't watch what C++ writes to stderr.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        return {
            "PT2E_CACHE": str(self.cache / "artifacts"),
            **inherited,
            **dict.fromkeys(ONE_THREAD, "1"),
            "PYTHONPATH": path,
            "PYTHONHASHSEED": "0",  # sets of strings print in the same order everywhere
            "PT2E_BUILD": "1",
            "PYTHONFAULTHANDLER": "1",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }

    def _execute(self, chapter: Chapter, parts: keys.Parts) -> Entry:
        from common.site.kernels import CellExecutionError, CellTimeoutError, DeadKernelError, Runner, ensure_event_loop

        book = notebook(chapter, "en")
        with tempfile.TemporaryDirectory(prefix="pt2e-") as folder:
            printed = Path(folder, "kernel.txt")
            work = Path(folder, "work")
            work.mkdir()
            runner = Runner(
                manager=self._manager(folder),
                # What the user's own IPython runs or shows at start is not part of a chapter.
                environment=self.environment() | {"IPYTHONDIR": str(Path(folder, "ipython"))},
                printed=printed,
                time_limit=chapter.time_limit,
            )
            self._running.add(runner)
            try:
                runner.preprocess(book, {"metadata": {"path": str(work)}})
            except CellExecutionError as error:
                raise ChapterFailed(self._cell_failure(chapter, book, error)) from None
            except CellTimeoutError:
                reason = f"the time limit of {chapter.time_limit} s is over; make the cell quicker or set time_limit"
                raise ChapterFailed(self._failure(chapter, runner.cell, reason)) from None
            except DeadKernelError:
                reason = f"the kernel died ({runner.death()})"
                raise ChapterFailed(self._failure(chapter, runner.cell, reason, tail(printed))) from None
            except RuntimeError as error:
                if runner.executed:
                    raise
                reason = f"the kernel didn't start ({error})"
                raise ChapterFailed(self._failure(chapter, runner.cell, reason, tail(printed))) from None
            finally:
                ensure_event_loop().close()  # Jupyter's synchronous calls make one per thread, and leave it
                self._running.discard(runner)
                with self._counting:
                    self.executed_cells += runner.executed
        outputs = [[dict(o) for o in cell.outputs] for cell in book.cells if cell.cell_type == "code"]
        outputs = [_merged(cell_outputs) for cell_outputs in outputs]
        for cell, cell_outputs in zip(chapter.code_cells, outputs, strict=True):
            if fault := output_fault(cell_outputs, self.root):
                raise ChapterFailed(self._failure(chapter, cell, *fault))
        return Entry(chapter.name, parts.key, parts.parts, outputs, round(runner.seconds(), 1), self._provenance(parts))

    def _manager(self, folder: str) -> AsyncKernelManager:
        from common.site.kernels import Manager

        with self._counting:
            self._early -= 1
            parent = self._warm_parent if self._early < 0 and self._warm_parent else self._bare_parent
        command = (
            parent.kernel_command()
            if parent and parent.alive()
            else [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        )
        manager = Manager(transport="ipc", ip=str(Path(folder, "k")), connection_file=str(Path(folder, "k.json")))
        manager.command = command
        return manager

    def _failure(self, chapter: Chapter, cell: Cell | int, reason: str, detail: str = "", offset: int = 0) -> Failure:
        """A failure at a code cell (or its ordinal), at its line `offset`."""
        cell = chapter.code_cells[cell] if isinstance(cell, int) else cell
        excerpt = "\n".join(
            f"{'>' if number == offset else ' '} {cell.line + number:4} | {line}"
            for number, line in enumerate(cell.source.splitlines())
        )
        return Failure(self.shown(chapter), cell.line + offset, reason, excerpt + (f"\n{detail}" if detail else ""))

    def _cell_failure(self, chapter: Chapter, book: nbformat.NotebookNode, error: CellExecutionError) -> Failure:
        from common.site.kernels import failed_cell

        ordinal, traceback = failed_cell(book)
        frames = [(int(count), int(line)) for count, line in _FRAME.findall(traceback)]
        own = [line for count, line in frames if count == ordinal + 1]
        reason = f"{error.ename}: {error.evalue}".strip().rstrip(":")
        return self._failure(chapter, ordinal, reason, traceback, offset=own[-1] - 1 if own else 0)

    def _provenance(self, parts: keys.Parts) -> dict[str, Any]:
        versions = {name: parts.parts[f"version {name}"] for name in SHOWN_VERSIONS if f"version {name}" in parts.parts}
        return {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "commit": commit(self.root),
            "versions": versions,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "threads": 1,
            **self._machine(),
        }


def output_fault(outputs: list[dict[str, Any]], root: Path) -> tuple[str, str] | None:
    """What must not reach a page, as (reason, detail): stderr, machine paths, figures without alternative text."""
    for output in outputs:
        if output.get("name") == "stderr":
            return "text on stderr that nothing expects", output["text"]
        data = output.get("data", {})
        texts = [output.get("text", ""), *_texts(data)]
        for text in texts:
            for path in machine_paths(root):
                if path in text:
                    line = next(line for line in text.splitlines() if path in line)
                    return f"a path of this machine in an output ({path})", line.strip()[:400]
        if BILINGUAL not in data and any(mime.startswith("image/") for mime in data):
            return "a figure without alternative text; use show(figure, alt=T(…), caption=T(…))", ""
    return None


def machine_paths(root: Path) -> list[str]:
    """Path fragments that give a machine away."""
    return [
        str(root),
        "-packages/",
        "/lib/python3.",
        "/tmp/",
        "/home/",
        "/root/",
        "/Users/",
        "ipykernel_",
        tempfile.gettempdir() + "/",
    ]


def _texts(data: Any) -> list[str]:
    if isinstance(data, str):
        return [data]
    if isinstance(data, dict):
        return [text for value in data.values() for text in _texts(value)]
    if isinstance(data, list):
        return [text for value in data for text in _texts(value)]
    return []


def _merged(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring pieces of one stream as one output: how they arrive in pieces depends on the weather."""
    merged: list[dict[str, Any]] = []
    for output in outputs:
        last = merged[-1] if merged else {}
        if output["output_type"] == "stream" and last.get("name") == output["name"]:
            last["text"] += output["text"]
        else:
            merged.append({**output, "metadata": {}} if "metadata" in output else dict(output))
    for output in merged:
        output.pop("execution_count", None)
        if output["output_type"] == "execute_result":
            output["output_type"] = "display_data"
    return merged


def tail(path: Path, lines: int = 25) -> str:
    """The last lines of a file, empty where there is none."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def commit(root: Path) -> str | None:
    """The commit checked out at `root`, PT2E_COMMIT where it is set, None without git."""
    if told := os.environ.get("PT2E_COMMIT"):
        return told
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() if found.returncode == 0 else None


def installed(name: str) -> str | None:
    """The installed version of a distribution."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
