"""Pages resumed between their cells: what ran, from where, and that nothing of one run reaches another."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from snapshots import Cell, Failed, PageFailed, Snapshots

FILE = "/chapters/m01_first/1_page.py"


@contextlib.contextmanager
def in_an_empty_folder() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        yield
        os.chdir("/")


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def started(log):
    """`started("x = 1", "assert x")` gives the page of these cells; each appends its number to the log."""
    pages = []

    def start(*sources: str) -> Snapshots:
        note = f"open({str(log)!r}, 'a').write('%d '); "
        cells = [Cell(note % number + source, 10 * number + 1) for number, source in enumerate(sources)]
        pages.append(Snapshots(FILE, cells, in_an_empty_folder))
        return pages[-1]

    yield start
    for page in pages:
        page.close()


def ran(log: Path) -> str:
    """The cells that ran since the last call."""
    told = log.read_text() if log.exists() else ""
    log.unlink(missing_ok=True)
    return told.strip()


def test_a_page_runs_once_and_gives_copies_of_its_values(started, log):
    page = started("x = [1]", "print('said'); x.append(2)")
    page.run_to_the_end()
    assert page["x"] == page.value("x + y", y=[]) == [1, 2] and page.printed == "said\n"
    page["x"].append(3)
    assert page["x"] == [1, 2] and ran(log) == "0 1"


def test_a_spoiled_cell_is_run_from_the_cell_above_it_whatever_came_before(started, log):
    page = started("x = 1", "y = x + 1", "z = y + 1", "assert z == 3, f'{z} is not 3'")
    failed = page.failure_with(2, "z = y + 10")
    assert failed.is_claim and failed.message == "12 is not 3" and f'{FILE}", line 31' in failed.trace
    assert ran(log) == "0 1 3"  # the spoiled cell notes nothing
    assert page.failure_with(1, "y = x").message == "2 is not 3" and ran(log) == "2 3"
    assert page.failure_with(2, "z = 3") is None and ran(log) == "3"
    assert page["z"] == 3 and ran(log) == "2 3"


def test_errors_are_no_claims_and_name_the_files_line(started):
    page = started("import json", "x = 1", "assert x == 1")
    failed = page.failure_with(1, "json.loads('{')")
    assert not failed.is_claim and f'{FILE}", line 11' in failed.trace and "JSONDecodeError" in failed.trace


def test_an_assert_outside_of_the_page_is_no_claim(started):
    page = started("from unittest.mock import Mock; m = Mock()", "m()", "m.assert_called_once()")
    assert page.failure_with(1, "pass").is_claim is False


def test_a_page_that_fails_as_it_stands_says_where(started):
    page = started("x = 1", "assert x == 2, 'one is not two'", "y = 1")
    for ask in (page.run_to_the_end, lambda: page["x"], lambda: page.failure_with(2, "y = 2")):
        with pytest.raises(PageFailed, match=r'(?s)1_page.py", line 11.*one is not two'):
            ask()


def test_every_run_has_the_files_that_the_cells_above_it_wrote(started):
    write = "from pathlib import Path; file = Path('file'); file.write_text('a')"
    page = started(
        write, "file.write_text(file.read_text() + 'b')", "assert file.read_text() == 'ab', file.read_text()"
    )
    page.run_to_the_end()
    assert page.failure_with(1, "pass").message == "a"
    assert page.failure_with(1, "file.write_text(file.read_text() + 'c')").message == "ac"
    assert page.value("file.read_text()") == "ab"


def test_a_page_with_threads_is_run_from_where_it_had_none(started, log):
    thread = "import threading; event = threading.Event(); threading.Thread(target=event.wait, daemon=True).start()"
    page = started("x = 1", thread, "y = x", "assert y == 1, f'{y} is not 1'; event.set()")
    assert page.failure_with(2, "y = 7").message == "7 is not 1"
    assert ran(log) == "0 1 1 3"
    assert page["y"] == 1 and ran(log) == "2 3"


def test_a_process_that_dies_is_told(started):
    page = started("import os", "x = 1")
    assert page.failure_with(1, "os._exit(1)") == Failed("the process died", False, "")


def test_what_cannot_be_copied_is_refused_with_the_reason(started):
    page = started("double = lambda x: 2 * x")
    with pytest.raises(TypeError, match="lambda"):
        page["double"]
    assert page.value("double(x)", x=21) == 42


def test_no_process_is_left_when_a_page_is_closed(started):
    page = started("import os", "pid = os.getpid()")
    pids = page["pid"], page.value("os.getppid()")
    assert all(map(runs, pids))
    page.close()
    end = time.monotonic() + 10
    while any(map(runs, pids)):
        assert time.monotonic() < end, "a process is still there"
        time.sleep(0.05)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
