"""Kernels forked from a warm parent: as good as fresh ones, and gone when whoever needs them is gone."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

from common.site.warm import WarmParent

import pytest
from jupyter_client.blocking import BlockingKernelClient
from miniature import REPOSITORY, eventually

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere kernels start cold"),
    pytest.mark.site,
]


@pytest.fixture
def parent(tmp_path: pathlib.Path) -> Iterator[WarmParent]:
    """A parent that has imported a module of ours, which counts its imports."""
    (tmp_path / "preloaded.py").write_text("import random\n\nVALUE = random.random()\n")
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    environment |= {"PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}", "IPYTHONDIR": str(tmp_path / "ipython")}
    made = WarmParent(["preloaded", "numpy", "no_such_module"], environment, tmp_path / "log")
    with made:
        yield made


class Kernel:
    """A kernel that was asked for in the way of the build: by a stand-in process."""

    def __init__(self, parent: WarmParent, folder: pathlib.Path, name: str) -> None:
        self.file = folder / f"{name}.json"
        command = [part.format(connection_file=self.file) for part in parent.kernel_command()]
        before = children(parent)
        self.stand_in = subprocess.Popen(command, cwd=folder, env=os.environ | {"MARK": name}, start_new_session=True)
        eventually(lambda: children(parent) - before, 60, "the parent forked no kernel")
        (self.pid,) = children(parent) - before
        eventually(lambda: self.file.exists() and self.file.read_text().endswith("}"), 60, "the kernel never started")

    def runs(self) -> bool:
        """Whether the kernel process is there, and no zombie."""
        return alive(self.pid)

    @contextlib.contextmanager
    def client(self) -> Iterator[BlockingKernelClient]:
        client = BlockingKernelClient(connection_file=str(self.file))
        client.load_connection_file()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=60)
            yield client
        finally:
            client.stop_channels()
            client.context.term()  # when what was sent has left

    def says(self, expression: str) -> str:
        """What the kernel has as the value of an expression."""
        with self.client() as client:
            answer = client.execute("", user_expressions={"it": expression}, reply=True, timeout=60)
            return answer["content"]["user_expressions"]["it"]["data"]["text/plain"]

    def runs_code(self, source: str) -> None:
        """Send code, and don't wait for it."""
        with self.client() as client:
            client.execute(source)

    def end(self) -> None:
        self.stand_in.kill()
        self.stand_in.wait()


def children(parent: WarmParent) -> set[int]:
    """The processes that the parent has forked and that live."""
    return {pid for pid in processes() if stat(pid)[1:2] == [str(parent._process.pid)] and alive(pid)}


def processes() -> list[int]:
    return [int(path.name) for path in pathlib.Path("/proc").glob("[0-9]*")]


def stat(pid: int) -> list[str]:
    """State and parent of a process; nothing where there is none."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return []


def alive(pid: int) -> bool:
    return stat(pid)[:1] not in ([], ["Z"])


@pytest.fixture
def kernel(parent: WarmParent, tmp_path: pathlib.Path) -> Iterator[Kernel]:
    made = Kernel(parent, tmp_path, "one")
    yield made
    made.end()


def test_kernels_share_what_is_imported_but_neither_luck_nor_folder_nor_environment(parent, kernel, tmp_path):
    other = Kernel(parent, tmp_path, "two")
    try:
        both = (kernel, other)
        assert kernel.says("'preloaded' in __import__('sys').modules") == "True"
        assert kernel.says("__import__('preloaded').VALUE") == other.says("__import__('preloaded').VALUE")
        for expression in ("__import__('random').random()", "__import__('numpy').random.rand()"):
            assert kernel.says(expression) != other.says(expression)
        assert [each.says("__import__('os').environ['MARK']") for each in both] == ["'one'", "'two'"]
        assert kernel.says("__import__('os').getcwd()") == repr(str(tmp_path))
    finally:
        other.end()


def test_killing_the_stand_in_kills_the_kernel_and_what_it_started(parent, kernel):
    started = int(kernel.says("__import__('subprocess').Popen(['sleep', '83']).pid"))
    assert alive(started)
    kernel.end()
    eventually(lambda: not kernel.runs() and not alive(started), 10, "the kernel or its child is still there")
    assert parent.alive()


def test_a_kernel_that_dies_takes_along_what_it_started(parent, kernel):
    started = int(kernel.says("__import__('subprocess').Popen(['sleep', '83']).pid"))
    os.kill(kernel.pid, signal.SIGKILL)
    assert kernel.stand_in.wait(timeout=10) == -signal.SIGKILL
    eventually(lambda: not alive(started), 10, "its child is still there")


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os; os._exit(7)", 7),
        ("exit()", 0),
    ],
)
def test_the_stand_in_ends_as_its_kernel_ended(kernel, source, status):
    kernel.runs_code(source)
    assert kernel.stand_in.wait(timeout=20) == status


def test_an_interrupt_reaches_the_kernel_and_leaves_it_alive(kernel, tmp_path):
    kernel.runs_code(
        "import time\ntry:\n    open('begun', 'x').close()\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    interrupted = True"
    )
    eventually((tmp_path / "begun").exists, 20)
    kernel.stand_in.send_signal(signal.SIGINT)
    assert kernel.says("interrupted") == "True"


def test_closing_the_parent_ends_every_kernel(parent, kernel):
    parent.__exit__()
    eventually(lambda: not kernel.runs(), 10, "the kernel is still there")
    kernel.stand_in.wait(timeout=10)


def test_killing_the_parent_ends_every_kernel(parent, kernel):
    parent._process.kill()
    eventually(lambda: not kernel.runs(), 20, "the kernel is still there")
    kernel.stand_in.wait(timeout=20)


@pytest.mark.parametrize("message", [b"", b"no request\n", b'{"arguments": []}\n', b'{"cwd": "/nowhere"'])
def test_a_stand_in_that_talks_nonsense_or_goes_away_harms_nobody(parent, kernel, message):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(parent.socket)
        connection.sendall(message)
    assert kernel.says("1 + 1") == "2"
    assert parent.alive()
    eventually(lambda: children(parent) == {kernel.pid}, 20, "what it asked for is still there")


def test_a_stand_in_without_a_parent_ends_with_an_error(parent, tmp_path):
    parent.__exit__()
    command = [part.format(connection_file=tmp_path / "x.json") for part in parent.kernel_command()]
    assert subprocess.run(command, capture_output=True, timeout=20).returncode == 1
