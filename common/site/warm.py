"""Kernels forked from one parent that has imported the slow libraries already.

Importing torch, torchao and executorch takes seconds, and every chapter needs them. The build starts one parent
process (`python -m common.site.warm DESCRIPTOR MODULES…`), and each kernel is a small stand-in
(`warm.py SOCKET -f FILE`) that asks the parent to fork, waits for the child and ends as it ended. Killing the stand-in
kills the kernel; when the build dies, the parent and its children go too. Linux only: elsewhere, and where the parent
can't be started or has died, kernels start cold.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path


class WarmParent:
    """The parent process, from the build's side. Use as a context manager."""

    def __init__(self, modules: list[str], environment: dict[str, str], log: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pt2e-")
        self.socket = str(Path(self._folder.name, "warm"))
        with log.open("w") as output, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.socket)
            listener.listen(64)  # stand-ins may connect while the imports run; once the parent is dead they are refused
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listener.fileno()), *modules],
                pass_fds=[listener.fileno()],
                env=environment,
                stdin=subprocess.PIPE,  # its end tells the parent that the build is gone
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def __enter__(self) -> WarmParent:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:  # still importing
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def alive(self) -> bool:
        """Whether it can still fork kernels: a library may end the process that imports it."""
        return self._process.poll() is None

    def kernel_command(self) -> list[str]:
        """What to run instead of `python -m ipykernel_launcher`."""
        return [sys.executable, "-S", str(Path(__file__)), self.socket, "-f", "{connection_file}"]


def ask(socket_path: str, arguments: list[str]) -> int:
    """The stand-in: have the parent fork a kernel, wait for it, return its exit status (negative: the signal)."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(socket_path)
    request = {"arguments": arguments, "cwd": os.getcwd(), "environment": dict(os.environ)}
    socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], [1, 2])
    signal.signal(signal.SIGINT, lambda *_: connection.sendall(b"interrupt\n"))
    status = b""
    while received := connection.recv(64):
        status += received
    return int(status or b"1")


def serve(descriptor: int, modules: list[str]) -> None:
    """The parent: import the modules, then fork a kernel for every stand-in that asks."""
    listener = socket.socket(fileno=descriptor)
    for module in modules:
        with contextlib.suppress(Exception):  # the chapter that imports it gets the error, with its line
            importlib.import_module(module)
    import ipykernel.kernelapp  # noqa: F401

    gc.collect()
    gc.freeze()
    waker, wakened = socket.socketpair()
    waker.setblocking(False)
    wakened.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    kernels: dict[int, socket.socket] = {}
    selector = selectors.DefaultSelector()
    for source in (listener, wakened, sys.stdin):
        selector.register(source, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                _end(kernels)
            elif key.fileobj is listener:
                connection, _ = listener.accept()
                try:
                    pid = _fork(connection, [listener, waker, wakened, *kernels.values()])
                except (OSError, ValueError):  # the stand-in is gone already
                    connection.close()
                    continue
                kernels[pid] = connection
                selector.register(connection, selectors.EVENT_READ)
            elif key.fileobj is wakened:
                with contextlib.suppress(BlockingIOError):
                    wakened.recv(4096)
                _reap(kernels, selector)
            else:
                connection = key.fileobj  # type: ignore[assignment]
                pid = next((pid for pid, open_ in kernels.items() if open_ is connection), None)
                received = connection.recv(64)
                if pid is not None and received:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGINT)
                elif pid is not None:
                    _kill(pid)
                if not received:
                    selector.unregister(connection)


def _fork(connection: socket.socket, inherited: list[socket.socket]) -> int:
    """Fork one kernel as the stand-in on `connection` asks; returns its pid."""
    message, descriptors = _request(connection)
    pid = os.fork()
    if pid:
        for descriptor in descriptors:
            os.close(descriptor)
        return pid
    try:
        _become_kernel(message, descriptors, [*inherited, connection])
    finally:
        os._exit(1)  # whatever happens, the child must not go on as a second parent


def _become_kernel(message: dict, descriptors: list[int], inherited: list[socket.socket]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for other in inherited:
        other.close()
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, target in zip(descriptors, (1, 2), strict=True):
        os.dup2(descriptor, target)
    os.chdir(message["cwd"])
    os.environ.clear()
    os.environ.update(message["environment"])
    # ipykernel ends when its parent does; it read JPY_PARENT_PID when the parent imported it
    sys.argv = ["ipykernel_launcher", *message["arguments"], f"--IPKernelApp.parent_handle={os.getppid()}"]
    _fresh_randomness()
    from ipykernel.kernelapp import launch_new_instance

    status = 1
    try:
        launch_new_instance()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _request(connection: socket.socket) -> tuple[dict, list[int]]:
    text, descriptors = b"", array.array("i")
    while not text.endswith(b"\n"):
        part, got, _, _ = socket.recv_fds(connection, 65536, 2)
        if not part:
            break
        text += part
        descriptors.extend(got)
    return json.loads(text), list(descriptors)


def _fresh_randomness() -> None:
    """Undo what children would share: the state of generators that the parent's imports seeded from the system."""
    import random

    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()


def _reap(kernels: dict[int, socket.socket], selector: selectors.BaseSelector) -> None:
    """Tell the stand-ins of ended kernels how they ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        connection = kernels.pop(pid, None)
        if connection is None:
            continue
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what it started and left behind
        with contextlib.suppress(OSError):
            connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        with contextlib.suppress(KeyError):
            selector.unregister(connection)
        connection.close()


def _kill(pid: int) -> None:
    """Kill a kernel and what it started: they are one process group, once the kernel has come to life."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
            return


def _end(kernels: dict[int, socket.socket]) -> None:
    for pid in kernels:
        _kill(pid)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[2:3] == ["-f"]:
        code = ask(sys.argv[1], sys.argv[2:])
        if code < 0:  # end by the same signal, so that whoever watches sees a crash as a crash
            signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
            os.kill(os.getpid(), -code)
        sys.exit(code)
    serve(int(sys.argv[1]), sys.argv[2:])
