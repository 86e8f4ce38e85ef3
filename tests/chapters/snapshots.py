"""A page's process, paused before every cell: what runs a spoiled cell starts there instead of at the page's top.

One process executes the page. Before each cell it forks: the original stays there, paused, and its copy goes on. To run
the page with cell 12 spoiled, the process that waits before cell 12 forks once more. The first process comes out of
multiprocessing's fork server, which has imported the libraries and has no threads. A process that has got threads, as
ExecuTorch's pool, can't be copied (its copy has no pool): it goes on alone, and later cells are run from further above.
"""

import contextlib
import io
import multiprocessing
import os
import pickle
import shutil
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from types import CodeType
from typing import Any, NamedTuple

import tqdm

Surroundings = Callable[[], contextlib.AbstractContextManager[None]]

LONGEST = 300  # seconds that one request may take
_libraries = multiprocessing.get_context("forkserver")
_libraries.set_forkserver_preload(
    ["common.viz", "executorch.backends.xnnpack.quantizer.xnnpack_quantizer", "torchao.quantization.pt2e.quantize_pt2e"]
)


class Cell(NamedTuple):
    """Source of a code cell, and the line of the file that it begins on."""

    source: str
    line: int

    def compiled(self, file: str) -> CodeType:
        """Blank lines above the code make its line numbers those of the file."""
        return compile("\n" * (self.line - 1) + self.source, file, "exec")


class Failed(NamedTuple):
    """How a run ended that didn't reach the end: the message, and whether one of the page's own asserts said it."""

    message: str
    is_claim: bool
    trace: str


class PageFailed(Exception):
    """The page as it stands doesn't run to its end."""


class Snapshots:
    """The paused processes of one page. `close` ends them."""

    def __init__(self, file: str, cells: list[Cell], surroundings: Surroundings) -> None:
        self.cells = cells
        pairs = [_libraries.Pipe() for _ in range(len(cells) + 1)]
        self._here = [here for here, _ in pairs]
        there = [there for _, there in pairs]
        self._process = _libraries.Process(target=_first, args=(file, cells, there, surroundings))
        self._process.start()
        for end in there:
            end.close()
        # The cells that a process waits before; the last of them is the front, those above it can be copied.
        self._paused = [0]
        self._failed: Failed | None = None
        self.printed = ""

    def failure_with(self, changed: int, source: str) -> Failed | None:
        """Run the page with this source in place of cell `changed`; None if it reaches its end. Raises PageFailed."""
        self._go_on_to(changed)
        for start in reversed(self._paused):
            if start <= changed and (answer := self._ask(start, "run", changed, source)) != "threads":
                return answer
        raise RuntimeError("the page has threads from its first cell on")

    def run_to_the_end(self) -> None:
        """Raises PageFailed."""
        self._go_on_to(len(self.cells))

    def __getitem__(self, name: str) -> Any:
        return self.value(name)

    def value(self, expression: str, **given: object) -> Any:
        """What an expression is after the last cell, as a copy; `given` are names that it may use.

        Raises TypeError where it can't be had or copied, as a function of the page: call that in the expression.
        """
        self.run_to_the_end()
        is_value, answer = self._ask(len(self.cells), "value", expression, given)
        if not is_value:
            raise TypeError(answer)
        return answer

    def close(self) -> None:
        """Every process ends when its pipe does."""
        for end in self._here:
            end.close()
        self._process.join()

    def _go_on_to(self, cell: int) -> None:
        while self._paused[-1] < cell and not self._failed:
            front = self._paused[-1]
            stays, printed, self._failed = self._ask(front, "go on")
            self.printed += printed
            self._paused[-1:] = [front, front + 1] if stays else [front + 1]
        if self._failed:
            raise PageFailed(self._failed.trace)

    def _ask(self, cell: int, *request: object) -> Any:
        end = self._here[cell]
        _send(end, request)
        # A process that stays answers itself; the one that goes on answers through the pipe it will wait at.
        ends = self._here[cell : cell + 2] if request[0] == "go on" else [end]
        ready = wait(ends, LONGEST)
        if not ready:
            raise TimeoutError(f"cell {cell} took more than {LONGEST} s")
        return _receive(ready[0])


# --- In the page's processes ------------------------------------------------------------------------------------------


def _first(file: str, cells: list[Cell], ends: list[Connection], surroundings: Surroundings) -> None:
    tqdm.tqdm.monitor_interval = (
        0  # fx.Interpreter makes progress bars, of which the first starts a thread (torch 2.13.0)
    )
    with surroundings():
        os.mkdir("first")
        os.chdir("first")
        _Paused(file, cells, ends).wait_before(0)


class _Paused:
    def __init__(self, file: str, cells: list[Cell], ends: list[Connection]) -> None:
        self.file, self.cells, self.ends = file, cells, ends
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.first = os.getpid()

    def wait_before(self, cell: int) -> None:
        """Answer requests until the pipe ends."""
        while True:
            try:
                request, *given = _receive(self.ends[cell])
            except EOFError:
                if os.getpid() != self.first:
                    os._exit(0)  # cleaning up is left to the first process
                return
            if request == "go on":
                stays = not _has_threads()
                if stays and os.fork():
                    continue  # the copy answers
                if stays:
                    _own_folder()
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    failed = self._run(cell, cell + 1)
                cell += 1
                _send(self.ends[cell], (stays, printed.getvalue(), failed))
            elif request == "run":
                _send(self.ends[cell], self._run_copy(cell, *given))
            else:
                self._send_value(self.ends[cell], *given)

    def _run(self, start: int, end: int) -> Failed | None:
        for cell in self.cells[start:end]:
            try:
                exec(cell.compiled(self.file), self.namespace)
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                is_claim = isinstance(error, AssertionError) and last.filename == self.file
                return Failed(str(error), is_claim, traceback.format_exc())
        return None

    def _run_copy(self, start: int, changed: int, source: str) -> Failed | str | None:
        """What a copy of this process answers; "threads" if it can't be copied."""
        if _has_threads():
            return "threads"
        answers, answer = _libraries.Pipe(duplex=False)
        if os.fork():
            answer.close()
            try:
                return _receive(answers)
            except EOFError:
                return Failed("the process died", False, "")
            finally:
                os.wait()
        _own_folder()
        self.cells[changed] = self.cells[changed]._replace(source=source)
        with contextlib.redirect_stdout(io.StringIO()):
            _send(answer, self._run(start, len(self.cells)))
        os._exit(0)

    def _send_value(self, end: Connection, expression: str, given: dict[str, object]) -> None:
        try:
            found = eval(expression, self.namespace | given)
            _send(end, (True, found))
        except Exception:
            _send(end, (False, traceback.format_exc()))


def _has_threads() -> bool:
    """Whether this process has a second thread, of any kind; where that can't be told, it has."""
    try:
        return len(os.listdir("/proc/self/task")) > 1
    except OSError:
        return True


def _own_folder() -> None:
    """A copied process gets a copy of the files, too."""
    os.chdir(shutil.copytree(".", f"../{os.getpid()}"))


def _send(end: Connection, what: object) -> None:
    """Plain pickle: multiprocessing's own would share a tensor's memory, through a thread."""
    end.send_bytes(pickle.dumps(what))


def _receive(end: Connection) -> Any:
    return pickle.loads(end.recv_bytes())
