"""Executed results on disk: whole or absent, never wrong."""

import dataclasses
import hashlib
import json
import pathlib
import subprocess
import sys
import threading
import time

from common.site import store
from common.site.store import KEPT, Entry, Store, write_atomically

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CHAPTER = "m01_first/0_overview.py"


def entry(key: str = "k" * 32, text: str = "說 `x`\n", chapter: str = CHAPTER) -> Entry:
    outputs = [[{"output_type": "stream", "name": "stdout", "text": text}], []]
    return Entry(chapter, key, {"code": "abc"}, outputs, 1.5, {"commit": None, "versions": {"torch": "2.13.0"}})


@pytest.fixture
def kept(tmp_path: pathlib.Path) -> Store:
    return Store(tmp_path / "executed")


def test_what_was_saved_is_loaded(kept):
    kept.save(entry())
    assert kept.load(CHAPTER, "k" * 32) == entry()


def test_any_outputs_come_back(kept):
    outputs = [[{"output_type": "display_data", "data": {"text/html": '<p>\u2028\x00"\\</p>'}, "metadata": {}}]]
    saved = dataclasses.replace(entry(), outputs=outputs)
    kept.save(saved)
    assert kept.load(CHAPTER, saved.key) == saved


def test_nothing_is_loaded_for_another_key_or_chapter(kept):
    kept.save(entry())
    assert kept.load(CHAPTER, "j" * 32) is None
    assert kept.load("m01_first/1_other.py", "k" * 32) is None


def test_an_entry_in_the_wrong_place_is_absent(kept):
    kept.save(entry())
    path = kept.path(CHAPTER, "k" * 32)
    for chapter, key in ((CHAPTER, "j" * 32), ("m01_first/1_other.py", "k" * 32)):
        other = kept.path(chapter, key)
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(path.read_bytes())
        assert kept.load(chapter, key) is None


def test_two_chapters_of_one_name_in_two_folders_do_not_meet(kept):
    for folder in ("m01_first", "m02_second"):
        kept.save(entry(text=folder, chapter=f"{folder}/0_overview.py"))
    assert kept.load("m01_first/0_overview.py", "k" * 32).outputs[0][0]["text"] == "m01_first"


def test_another_format_is_absent(kept, monkeypatch):
    monkeypatch.setattr(store, "FORMAT", store.FORMAT + 1)
    kept.save(entry())
    monkeypatch.undo()
    assert kept.load(CHAPTER, "k" * 32) is None
    assert kept.newest(CHAPTER) is None


@pytest.mark.parametrize("body", ["[]", "{}", '"text"', '{"chapter": 1}', "not JSON", ""])
def test_a_body_that_is_no_entry_is_absent_although_its_checksum_is_right(kept, body):
    header = json.dumps({"format": store.FORMAT, "sha256": hashlib.sha256(body.encode()).hexdigest()})
    write_atomically(kept.path(CHAPTER, "k" * 32), f"{header}\n{body}\n")
    assert kept.load(CHAPTER, "k" * 32) is None


def test_a_folder_in_an_entrys_place_is_absent(kept):
    kept.path(CHAPTER, "k" * 32).mkdir(parents=True)
    assert kept.load(CHAPTER, "k" * 32) is None
    assert kept.newest(CHAPTER) is None


# The folder that examples share is their own; machines may be busy.
BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
DAMAGES = st.one_of(
    st.tuples(st.just("truncated"), st.integers(0, 10_000), st.just(0)),
    st.tuples(st.just("flipped"), st.integers(0, 10_000), st.integers(0, 7)),
    st.tuples(st.just("cut out"), st.integers(0, 10_000), st.integers(1, 50)),
    st.tuples(st.just("replaced"), st.binary(max_size=60), st.just(0)),
    st.tuples(st.just("appended"), st.binary(min_size=1, max_size=20), st.just(0)),
)


@given(DAMAGES)
@BUSY
def test_a_damaged_entry_is_absent_and_never_another_one(kept, damage):
    kind, where, how = damage
    saved = entry()
    kept.save(saved)
    path = kept.path(CHAPTER, saved.key)
    data = path.read_bytes()
    if isinstance(where, int):
        where %= len(data)
    damaged = {
        "truncated": lambda: data[:where],
        "flipped": lambda: data[:where] + bytes([data[where] ^ 1 << how]) + data[where + 1 :],
        "cut out": lambda: data[:where] + data[where + how :],
        "replaced": lambda: where,
        "appended": lambda: data + where,
    }[kind]()
    path.write_bytes(damaged)
    found = kept.load(CHAPTER, saved.key)
    assert found is None or found == saved
    if json.dumps(saved.outputs, ensure_ascii=False, sort_keys=True).encode() not in damaged:
        assert found is None


@given(st.binary(max_size=300))
@BUSY
def test_any_file_in_an_entrys_place_is_absent(kept, data):
    path = kept.path(CHAPTER, "k" * 32)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    assert kept.load(CHAPTER, "k" * 32) is None
    assert kept.newest(CHAPTER) is None


def test_a_damaged_entry_is_healed_by_saving_again(kept):
    kept.save(entry())
    path = kept.path(CHAPTER, "k" * 32)
    path.write_bytes(path.read_bytes()[:40])
    kept.save(entry())
    assert kept.load(CHAPTER, "k" * 32) == entry()


def test_the_newest_entry_tells_how_long_the_next_run_may_take(kept):
    assert kept.newest(CHAPTER) is None
    for number, seconds in enumerate((9.0, 1.0, 5.0)):
        kept.save(dataclasses.replace(entry(key=f"{number:032}"), seconds=seconds))
        time.sleep(0.02)  # file times are coarse
    assert kept.newest(CHAPTER).seconds == 5.0
    kept.path(CHAPTER, f"{2:032}").write_text("damaged")
    assert kept.newest(CHAPTER).seconds == 1.0


def test_only_the_last_entries_of_a_chapter_are_kept(kept):
    for number in range(KEPT + 3):
        kept.save(entry(key=f"{number:032}"))
        time.sleep(0.02)
    found = [number for number in range(KEPT + 3) if kept.load(CHAPTER, f"{number:032}")]
    assert found == list(range(3, KEPT + 3))


def test_readers_see_a_whole_file_while_it_is_written_again_and_again(kept):
    texts = ["a" * 200_000, "b" * 300_000]
    kept.save(entry(text=texts[0]))
    done = threading.Event()

    def write() -> None:
        for number in range(60):
            kept.save(entry(text=texts[number % 2]))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while not done.is_set():
        found = kept.load(CHAPTER, "k" * 32)
        assert found is not None and found.outputs[0][0]["text"] in texts
        seen += 1
    writer.join()
    assert seen
    assert [path.name for path in kept.path(CHAPTER, "").parent.iterdir()] == ["k" * 32 + ".json"]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \udc80")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_the_lock_of_a_chapter_is_held_against_other_processes(kept):
    program = (
        "import sys, pathlib; from common.site.store import Store\n"
        f"with Store(pathlib.Path({str(kept.folder)!r})).lock({CHAPTER!r}):\n"
        "    print('held', flush=True); sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        got = threading.Event()

        def wait() -> None:
            with kept.lock(CHAPTER):
                got.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        with kept.lock("m01_first/1_other.py"):  # another chapter's is free
            assert not got.wait(0.5)
        other.kill()  # a killed build holds nothing
        assert got.wait(10)
        waiter.join()
