"""Runs a chapter's code cells in this process, whole or with one thing spoiled, without Jupyter or the site."""

import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType

from common.site.chapter import read_chapter

import pytest
import torch
from torchao.quantization.pt2e import quantize_pt2e
from torchao.quantization.pt2e.observer import UniformQuantizationObserverBase

CHAPTERS = Path(__file__).parents[2] / "chapters"

Sabotage = Callable[[str], str]


class SabotageMissed(Exception):
    """The sabotage changed nothing, or more than one cell, so the run would prove nothing."""


def run_chapter(path: str, sabotage: Sabotage | None = None) -> dict[str, object]:
    """Run the code cells of `chapters/<path>` one after another and return their namespace.

    `sabotage` gets each cell's source and returns what to run instead; exactly one cell has to come back changed.
    Errors name the chapter's file and line. As on the site, the working directory is empty and torch computes with one
    thread; both are put back, and so are the random state and the warning filters.
    """
    file = CHAPTERS / path
    cells = [cell for cell in read_chapter(file, CHAPTERS).cells if cell.kind == "code"]
    sources = [sabotage(cell.source) if sabotage else cell.source for cell in cells]
    changed = sum(source != cell.source for source, cell in zip(sources, cells, strict=True))
    if sabotage and changed != 1:
        raise SabotageMissed(f"{changed} cells of {path} were changed")
    namespace: dict[str, object] = {"__name__": "__main__"}
    with _as_on_the_site():
        for source, cell in zip(sources, cells, strict=True):
            exec(_compiled(source, file, cell.line), namespace)
    return namespace


def failed_claim(path: str, sabotage: Sabotage | None = None) -> str:
    """The message of the page's own assert that fails; RuntimeError if the page passes or fails somewhere else."""
    try:
        run_chapter(path, sabotage)
    except AssertionError as error:
        trace = error.__traceback__
        while trace.tb_next:
            trace = trace.tb_next
        if trace.tb_frame.f_code.co_filename == str(CHAPTERS / path):
            return str(error)
        raise RuntimeError(f"an assert failed outside of {path}") from error
    raise RuntimeError(f"{path} passed all of its asserts although it was sabotaged")


# --- Ways to spoil a page ---------------------------------------------------------------------------------------------


def replacing(old: str, new: str) -> Sabotage:
    """Replace `old` by `new` in the one cell that has it."""
    return lambda source: source.replace(old, new)


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

    monkeypatch.setattr(quantize_pt2e, "convert_pt2e", wrong)


# --- Surroundings -----------------------------------------------------------------------------------------------------


def _compiled(source: str, file: Path, line: int) -> CodeType:
    """Blank lines above the code make its line numbers those of the file."""
    return compile("\n" * (line - 1) + source, str(file), "exec")


@contextlib.contextmanager
def _as_on_the_site() -> Iterator[None]:
    threads = torch.get_num_threads()
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        # What reaches stderr is the build's check; here a library's warning must not pass for a failed claim.
        warnings.simplefilter("ignore")
        os.chdir(folder)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            os.chdir(before)
