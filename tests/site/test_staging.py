"""The folder a site is built in: the last good site stays until a better one is complete."""

import os
import pathlib
import subprocess
import sys
import threading

from common.site.staging import Staging

import pytest
from miniature import contents


@pytest.fixture
def site(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text("old")
    return folder


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def built(site: pathlib.Path, text: str = "new") -> Staging:
    staging = Staging(site)
    (staging.folder / "index.html").write_text(text)
    return staging


def beside(site: pathlib.Path) -> list[str]:
    return sorted(path.name for path in site.parent.iterdir() if path != site and not path.name.endswith(".lock"))


def test_the_old_site_stays_until_the_new_one_is_swapped_in(site):
    staging = built(site)
    assert contents(site) == {"index.html": b"old"}
    staging.swap_in()
    assert contents(site) == {"index.html": b"new"}
    assert beside(site) == []


def test_files_of_the_old_site_do_not_survive(site):
    (site / "gone.html").write_text("old")
    built(site).swap_in()
    assert contents(site) == {"index.html": b"new"}


def test_the_first_site_needs_no_old_one_and_no_folder(tmp_path):
    site = tmp_path / "deep" / "er" / "site"
    built(site).swap_in()
    assert contents(site) == {"index.html": b"new"}


def test_a_dropped_build_leaves_nothing(site):
    built(site).drop()
    assert (contents(site), beside(site)) == ({"index.html": b"old"}, [])


def test_a_forgotten_site_leaves_no_lock(site):
    staging = built(site)
    staging.swap_in()
    staging.forget()
    assert [path.name for path in site.parent.iterdir()] == ["site"]


def test_others_can_read_the_site(site):
    built(site).swap_in()
    assert site.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("fault", ["the parent is a file", "the parent's parent is a file", "the site is a file"])
def test_a_site_that_cannot_be_written_is_refused_at_the_start(tmp_path, fault):
    file = tmp_path / "file"
    file.write_text("mine")
    paths = {"the parent is a file": "file/site", "the parent's parent is a file": "file/deep/site"}
    site = tmp_path / paths.get(fault, "file")
    with pytest.raises(OSError) as caught:
        Staging(site)
    assert str(file) in str(caught.value)
    assert file.read_text() == "mine" and [path.name for path in tmp_path.iterdir()] == ["file"]


def test_leftovers_of_killed_builds_are_removed_and_those_of_running_ones_kept(site, dead):
    for name in (f".site.building-{dead}-abc", f".site.old-{dead}-abc", f".site.building-{os.getpid()}-abc"):
        (site.parent / name).mkdir()
        (site.parent / name / "index.html").write_text("half")
    staging = Staging(site)
    assert beside(site) == sorted([f".site.building-{os.getpid()}-abc", staging.folder.name])
    assert contents(site) == {"index.html": b"old"}


def test_a_site_that_a_killed_build_had_moved_aside_comes_back(site, dead):
    site.rename(site.parent / f".site.old-{dead}-abc")
    staging = Staging(site)
    assert contents(site) == {"index.html": b"old"}
    staging.drop()
    assert beside(site) == []


def test_folders_that_merely_look_alike_are_left_alone(site, dead):
    names = [".site.building-mine", ".site.old-", f".site2.building-{dead}-abc", f"site.building-{dead}-abc"]
    for name in names:
        (site.parent / name).mkdir()
    Staging(site).drop()
    assert beside(site) == sorted(names)


def test_a_site_whose_name_is_a_pattern_has_leftovers_of_its_own_only(tmp_path, dead):
    other = tmp_path / f".site.building-{dead}-abc"
    other.mkdir()
    built(tmp_path / "s[i]te").swap_in()
    assert other.is_dir()


def test_builds_that_swap_at_once_leave_one_whole_site(site):
    errors = []

    def build(text: str) -> None:
        try:
            for _ in range(15):
                staging = Staging(site)
                for page in range(5):
                    (staging.folder / f"{page}.html").write_text(text)
                staging.swap_in()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=build, args=(text,)) for text in ("one", "two", "three")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    found = contents(site)
    assert sorted(found) == [f"{page}.html" for page in range(5)]
    assert len(set(found.values())) == 1
    assert beside(site) == []
