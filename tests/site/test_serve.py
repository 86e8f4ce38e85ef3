"""`mkdocs serve` on a miniature course: what is edited is shown, and nothing that an author does ends the server."""

import contextlib
import pathlib
import re
import signal
import socket
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from miniature import Project, eventually

pytestmark = pytest.mark.site

BOTH = ("", "en/")
ALPHA, BETA = "chapters/m01_first/1_alpha.py", "chapters/m01_first/2_beta.py"


class Server:
    """`mkdocs serve` on a free port of the loopback address."""

    def __init__(self, project: Project) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.project, self.lines = project, []
        self.process = project.start("serve", "--dev-addr", f"127.0.0.1:{self.port}")
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True)
        self._reader.start()

    def get(self, address: str) -> str:
        """A page, or nothing where there is no answer yet."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/repo/{address}", timeout=5) as answer:
                return answer.read().decode()
        except (OSError, urllib.error.URLError):
            return ""

    def shows(self, address: str, text: str, seconds: float = 60) -> None:
        """Wait until a page has a text."""
        eventually(lambda: text in self.get(address), seconds, lambda: f"{text!r} never came:\n{''.join(self.lines)}")

    def stop(self) -> str:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=30)
        self._reader.join(timeout=30)
        self.process.stdout.close()
        return "".join(self.lines)


@contextlib.contextmanager
def serving(project: Project) -> Iterator[Server]:
    """A server that runs as long as the block."""
    server = Server(project)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture
def server(project: Project) -> Iterator[Server]:
    with serving(project) as made:
        yield made


def test_serve_shows_edits_executes_what_changed_and_outlives_faults(project, server):
    temporary = pathlib.Path(tempfile.gettempdir())
    others = {path.name for path in temporary.glob(".mkdocs_*")}
    server.shows("", "M01")
    assert project.names_ran() == []

    project.edit(ALPHA, "甲句。", "改過的甲句。")
    server.shows("m01/1-alpha/", "改過的甲句。")
    server.shows("en/m01/1-alpha/", "Alpha sentence.")
    project.edit("docs/en/about.md", "See [", "Now see [")
    server.shows("en/about/", "Now see")
    assert 'lang="zh-Hant"' in server.get("about/") and 'lang="en"' in server.get("en/about/")
    assert project.names_ran() == []

    project.edit(ALPHA, '"alpha gives"', '"alpha now gives"')
    server.shows("en/m01/1-alpha/", "alpha now gives 1")
    assert project.names_ran() == ["alpha"]

    project.edit(ALPHA, '"alpha now gives"', "1 / 0")
    for folder in BOTH:
        server.shows(f"{folder}m01/1-alpha/", "ZeroDivisionError")
    assert f"{ALPHA}:34" in server.get("m01/1-alpha/")
    assert "beta gives 10" in server.get("m01/2-beta/")

    project.edit(BETA, "# 中文。", "# 中文 [x](7_alpha.py)。")  # told, but shown
    server.shows("m01/2-beta/", "7_alpha.py")

    project.edit(ALPHA, "1 / 0", '"alpha again gives"')
    server.shows("m01/1-alpha/", "alpha again gives 1")
    assert project.names_ran() == ["alpha", "alpha"]

    said = server.stop()
    assert server.process.returncode == 0, said
    assert f"{ALPHA}:34: ZeroDivisionError" in said
    assert re.search(re.escape(BETA) + r":\d+: .*7_alpha.py", said)
    project.assert_nothing_runs(5)
    assert {path.name for path in temporary.glob(".mkdocs_*")} - others == set()


def test_serve_starts_with_a_chapter_that_fails_and_runs_it_once(project):
    project.edit(BETA, 'print("beta gives", beta.VALUE)', "1 / 0")
    with serving(project) as server:
        server.shows("m01/2-beta/", "ZeroDivisionError")
        server.shows("m01/", "練習")
        project.edit(ALPHA, "甲句。", "改過的甲句。")
        server.shows("m01/1-alpha/", "改過的甲句。")
        server.shows("en/m01/2-beta/", "ZeroDivisionError")
        assert project.names_ran() == ["beta"]
        project.edit(BETA, "1 / 0", 'print("beta is well")')
        server.shows("m01/2-beta/", "beta is well")
    assert project.names_ran() == ["beta"]


def test_a_chapter_that_cannot_be_read_is_told_and_may_be_mended(project, server):
    server.shows("", "M01")
    project.edit(ALPHA, "# ### Same", "# #### Same")
    eventually(lambda: any(f"{ALPHA}:27: heading level 4" in line for line in server.lines), 60)
    project.edit(ALPHA, "# #### Same", "# ### Same")
    project.edit(ALPHA, "甲句。", "改過的甲句。")
    server.shows("m01/1-alpha/", "改過的甲句。")
    assert project.names_ran() == []
