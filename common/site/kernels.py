"""Kernels, driven by Jupyter's own machinery, and what nbconvert runs in place of its executor.

The work is done by nbconvert's `ExecutePreprocessor`. `CachedExecutePreprocessor` is what mkdocs-jupyter finds in its
place (through an nbconvert configuration file), so that a page shows the cached result. Importing this module takes
half a second.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from common.site.store import Entry

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop, run_sync
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert.preprocessors import ExecutePreprocessor

__all__ = [
    "CachedExecutePreprocessor",
    "CellExecutionError",
    "CellTimeoutError",
    "DeadKernelError",
    "Manager",
    "Runner",
    "ensure_event_loop",
    "failed_cell",
]

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Manager(AsyncKernelManager):
    """A kernel manager that runs the given command, whatever kernels are registered on the machine."""

    command: ClassVar[list[str]] = []

    @property
    def kernel_spec(self) -> KernelSpec:
        return KernelSpec(argv=self.command, display_name="Python 3", language="python")


class Runner(ExecutePreprocessor):
    """nbconvert's executor with our kernel, one time limit for the whole chapter, and its place remembered."""

    def __init__(
        self, manager: AsyncKernelManager, environment: dict[str, str], printed: Path, time_limit: int
    ) -> None:
        super().__init__(
            allow_errors=False,
            timeout_func=self._remaining,
            startup_timeout=120,
            iopub_timeout=60,  # a busy machine; outputs that come later would be lost
            raise_on_iopub_timeout=True,
        )
        self.extra_arguments = [
            "--HistoryManager.hist_file=:memory:",
            "--InteractiveShell.xmode=Plain",
            "--InteractiveShell.automagic=False",  # `pwd` is a name like any other
        ]
        self._kernel_manager, self._environment, self._printed = manager, environment, printed
        self._time_limit, self._began = time_limit, 0.0
        self.cell, self.executed, self._process, self._killed = 0, 0, None, False

    def preprocess(self, nb: nbformat.NotebookNode, resources: dict, km: None = None) -> tuple:
        """Execute the notebook in place."""
        return super().preprocess(nb, resources, km=None)  # None: the kernel is ours to end

    def create_kernel_manager(self) -> AsyncKernelManager:
        self.km = self._kernel_manager
        self.km.client_class = "jupyter_client.asynchronous.AsyncKernelClient"
        return self.km

    def preprocess_cell(self, cell: nbformat.NotebookNode, resources: dict, index: int) -> tuple:
        if cell.cell_type == "code":
            self.cell = cell.metadata["pt2e"]["ordinal"]
            self._began = self._began or time.monotonic()
            self.executed += 1
        return super().preprocess_cell(cell, resources, index)

    async def async_start_new_kernel(self, **kwargs: Any) -> None:
        with self._printed.open("w") as output:
            await super().async_start_new_kernel(env=self._environment, stdout=output, stderr=output, **kwargs)
        self._process = getattr(self.km.provisioner, "process", None)
        if self._killed:
            self.kill()

    start_new_kernel = run_sync(async_start_new_kernel)

    def _remaining(self, _cell: nbformat.NotebookNode) -> float:
        return max(0.01, self._time_limit - self.seconds())  # 0 would mean without limit

    def seconds(self) -> float:
        """How long the cells have been running; what comes before them, the kernel's start, isn't the chapter's."""
        return time.monotonic() - self._began if self._began else 0.0

    def kill(self) -> None:
        """End the kernel, now or as soon as it has started."""
        self._killed = True
        if self._process:
            self._process.kill()

    def death(self) -> str:
        """How the kernel process ended, in words."""
        status = self._process.poll() if self._process else None
        if status is None:
            return "it stopped answering"
        if status < 0:
            return f"signal {signal.Signals(-status).name}"
        return f"exit status {status}"


class CachedExecutePreprocessor(ExecutePreprocessor):
    """What nbconvert runs when mkdocs-jupyter converts a chapter: the cached result, or an execution now."""

    def preprocess(self, nb: nbformat.NotebookNode, resources: dict, km: None = None) -> tuple:
        """Fill in the outputs. Raises ChapterFailed where the chapter can't be executed."""
        told = nb.metadata.get("pt2e")
        if told is None or entry_of is None:
            return super().preprocess(nb, resources, km)
        entry = entry_of(told["chapter"])
        code = [cell for cell in nb.cells if cell.cell_type == "code"]
        for count, (cell, outputs) in enumerate(zip(code, entry.outputs, strict=True), 1):
            cell.execution_count = count
            cell.outputs = [nbformat.from_dict(output) for output in outputs]
        return nb, resources


# What answers CachedExecutePreprocessor: nbconvert makes preprocessors itself, from nothing but its configuration.
entry_of: Callable[[str], Entry] | None = None


def failed_cell(book: nbformat.NotebookNode) -> tuple[int, str]:
    """Ordinal and plain traceback of the code cell that raised."""
    for cell in book.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                return cell.metadata["pt2e"]["ordinal"], _ANSI.sub("", "\n".join(output.traceback))
    return 0, ""
