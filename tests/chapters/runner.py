"""Runs a chapter's code cells, whole or with one thing spoiled, without Jupyter or the site."""

import ast
import atexit
import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import common.pt2e
from common.models import one_thread
from common.site.chapter import read_chapter

import pytest
import torch
from snapshots import Cell, Snapshots
from torchao.quantization.pt2e import quantize_pt2e
from torchao.quantization.pt2e.observer import UniformQuantizationObserverBase

CHAPTERS = Path(__file__).parents[2] / "chapters"

Sabotage = Callable[[str], str]


class SabotageMissed(Exception):
    """The sabotage changed nothing, or more than one cell, so the run would prove nothing."""


def executed(path: str) -> Snapshots:
    """The chapter `chapters/<path>`, executed to its end in a process of its own.

    `executed(path)["name"]` is a copy of a variable, `.value("expression")` of an expression's value; what the page
    printed is `.printed`, and is printed again. Raises PageFailed.
    """
    page = _snapshots(path)
    page.run_to_the_end()
    print(page.printed)
    return page


def run_chapter(path: str, sabotage: Sabotage | None = None) -> dict[str, object]:
    """Run the code cells of `chapters/<path>` one after another in this process and return their namespace.

    `sabotage` gets each cell's source and returns what to run instead; exactly one cell has to come back changed.
    Errors name the chapter's file and line. As on the site, the working directory is empty and torch computes with one
    thread; both are put back, and so are the random state and the warning filters.
    """
    cells = _cells(path)
    if sabotage:
        changed, source = _spoiled(path, sabotage)
        cells[changed] = cells[changed]._replace(source=source)
    namespace: dict[str, object] = {"__name__": "__main__"}
    with _as_on_the_site():
        for cell in cells:
            exec(cell.compiled(str(CHAPTERS / path)), namespace)
    return namespace


def failed_claim(path: str, sabotage: Sabotage | None = None) -> str:
    """The message of the page's own assert that fails; RuntimeError if the page passes or fails somewhere else.

    With a `sabotage` the page starts just above the changed cell, in another process. Without one it runs in this
    process: a library that a test spoiled is spoiled here alone.
    """
    if sabotage:
        failed = _snapshots(path).failure_with(*_spoiled(path, sabotage))
        if failed and failed.is_claim:
            return failed.message
        raise RuntimeError(failed.trace if failed else f"{path} passed all of its asserts although it was sabotaged")
    try:
        run_chapter(path)
    except AssertionError as error:
        trace = error.__traceback__
        while trace.tb_next:
            trace = trace.tb_next
        if trace.tb_frame.f_code.co_filename == str(CHAPTERS / path):
            return str(error)
        raise RuntimeError(f"an assert failed outside of {path}") from error
    raise RuntimeError(f"{path} passed all of its asserts although it was sabotaged")


def _cells(path: str) -> list[Cell]:
    return [Cell(cell.source, cell.line) for cell in read_chapter(CHAPTERS / path, CHAPTERS).code_cells]


def _spoiled(path: str, sabotage: Sabotage) -> tuple[int, str]:
    """Number and new source of the one cell that the sabotage changes."""
    sources = [(cell.source, sabotage(cell.source)) for cell in _cells(path)]
    changed = [(number, spoiled) for number, (source, spoiled) in enumerate(sources) if source != spoiled]
    if len(changed) != 1:
        raise SabotageMissed(f"{len(changed)} cells of {path} were changed")
    return changed[0]


def alone(path: str, names: set[str], given: str) -> dict[str, Any]:
    """A page's functions and constants of these names, after the imports `given`; nothing else of the page runs."""
    namespace: dict[str, Any] = {}
    exec(given, namespace)
    for cell in _cells(path):
        wanted = [node for node in ast.parse(cell.source).body if _names(node) & names]
        exec(compile(ast.Module(wanted, []), path, "exec"), namespace)
    if missing := names - namespace.keys():
        raise KeyError(f"{path} has no {', '.join(sorted(missing))}")
    return namespace


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    return {target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)}


_of_a_page: dict[str, Snapshots] = {}  # one page at a time: the tests of a page stand in one file


def _snapshots(path: str) -> Snapshots:
    if path not in _of_a_page:
        _forget()
        _of_a_page[path] = Snapshots(str(CHAPTERS / path), _cells(path), _as_on_the_site)
    return _of_a_page[path]


@atexit.register
def _forget() -> None:
    while _of_a_page:
        _of_a_page.popitem()[1].close()


# --- Ways to spoil a page ---------------------------------------------------------------------------------------------


def replacing(old: str, new: str) -> Sabotage:
    """Replace `old` by `new` in the one cell that has it."""
    return lambda source: source.replace(old, new)


def spoiling(text: str, spoil: str, *arguments: object, **named: object) -> Sabotage:
    """Call one of the functions below, by its name, at the top of the one cell that has `text`."""
    given = ", ".join(["MonkeyPatch()", *map(repr, arguments), *(f"{name}={value!r}" for name, value in named.items())])
    call = f"from pytest import MonkeyPatch; import runner; runner.{spoil}({given})"
    return lambda source: f"{call}; {source}" if text in source else source


def spoil_observers(monkeypatch: pytest.MonkeyPatch, *, scale: float = 1.0, zero_point: int = 0) -> None:
    """Every observer of torchao answers with its scale times `scale` and its zero point plus `zero_point`."""
    right = UniformQuantizationObserverBase._calculate_qparams

    def wrong(self, min_val, max_val):
        s, z = right(self, min_val, max_val)
        return s * scale, z + zero_point

    monkeypatch.setattr(UniformQuantizationObserverBase, "_calculate_qparams", wrong)


def spoil_convert(
    monkeypatch: pytest.MonkeyPatch, op: str = "quantize_per_tensor", *, scale: float = 1.0, zero_point: int = 0
) -> None:
    """`convert_pt2e` spoils the numbers on nodes whose op's name ends in `op`: per-tensor q and dq alike by default."""
    right = quantize_pt2e.convert_pt2e

    def wrong(model, *args, **kwargs):
        quantized = right(model, *args, **kwargs)
        for node in quantized.graph.nodes:
            if node.op == "call_function" and str(node.target).split(".")[-2].endswith(op):
                node.args = (node.args[0], node.args[1] * scale, node.args[2] + zero_point, *node.args[3:])
        quantized.recompile()
        return quantized

    for module in (quantize_pt2e, common.pt2e):
        monkeypatch.setattr(module, "convert_pt2e", wrong)


# --- Surroundings -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _as_on_the_site() -> Iterator[None]:
    before = os.getcwd()
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        torch.random.fork_rng(devices=[]),
        one_thread(),
    ):
        # What reaches stderr is the build's check; here a library's warning must not pass for a failed claim.
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
