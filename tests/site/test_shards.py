"""Chapters spread over machines: an even division, and a site that can't be told from one machine's."""

import re
import shutil

from common.site.shards import shard

import pytest
from hypothesis import given
from hypothesis import strategies as st
from miniature import EXECUTED, Project, contents, parsed
from test_commands import ask

CHAPTER = parsed("")


def chapters(count: int) -> list:
    import dataclasses

    return [dataclasses.replace(CHAPTER, name=f"m01_first/{number}_page.py") for number in range(count)]


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=30), st.integers(1, 6))
def test_every_chapter_is_in_one_shard_and_none_has_much_more_than_its_share(seconds, count):
    course = chapters(len(seconds))
    times = dict(zip((chapter.name for chapter in course), seconds, strict=True))
    shards = [shard(course, number, count, lambda chapter: times[chapter.name]) for number in range(1, count + 1)]
    assert sorted(chapter.name for part in shards for chapter in part) == sorted(times)
    loads = [sum(times[chapter.name] for chapter in part) for part in shards]
    # Graham's bound for longest first: 4/3 of the best division, which is no less than the mean or the longest.
    assert max(loads) <= (4 / 3) * max(sum(seconds) / count, max(seconds), second_best(seconds, count)) + 1e-6


def second_best(seconds: list[float], count: int) -> float:
    """Where there are more chapters than shards, two of the longest share one."""
    longest = sorted(seconds, reverse=True)
    return longest[count - 1] + longest[count] if len(seconds) > count else 0.0


def test_chapters_without_a_recorded_time_count_as_average_ones():
    course = chapters(4)
    times = {course[0].name: 9.0, course[1].name: 3.0}
    seconds = [shard(course, number, 2, lambda c: times.get(c.name, float("inf"))) for number in (1, 2)]
    assert [[chapter.name[10] for chapter in part] for part in seconds] == [["0", "1"], ["2", "3"]]


@pytest.mark.parametrize(("number", "count"), [(0, 2), (3, 2), (1, 0)])
def test_a_shard_that_does_not_exist_is_refused(number, count):
    with pytest.raises(ValueError, match=f"no shard {number}/{count}"):
        shard(chapters(2), number, count, lambda chapter: 1.0)


# How long a chapter took, and the time of day that one chapter of the course prints.
TIMES = re.compile(rb"\d+(?:\.\d+)?(?= (?:seconds?|\xe7\xa7\x92))|\d+(?:\.\d+)? (?:s|\xe7\xa7\x92)\b|(?<=at )\d{19}")


@pytest.mark.site
def test_shards_with_caches_of_their_own_give_the_site_of_one_machine(built, tmp_path):
    """Each shard runs in a copy without results; the third copy gets both caches and only renders."""
    machines = [Project(tmp_path / name / "course") for name in ("one", "two", "merged")]
    for machine in machines:
        shutil.copytree(built.root, machine.root, ignore=shutil.ignore_patterns(".cache", "site"))
    ran = []
    for number, machine in enumerate(machines[:2], 1):
        ask(machine, "run", "--shard", f"{number}/2")
        ran.append(machine.names_ran())
        shutil.copytree(machine.root / ".cache", machines[2].root / ".cache", dirs_exist_ok=True)
    assert sorted(ran[0] + ran[1]) == sorted(built.first_run) and all(ran)
    machines[2].build()
    assert machines[2].names_ran() == []
    one, merged = (pages(project) for project in (built, machines[2]))
    assert one.keys() == merged.keys()
    assert [name for name in one if one[name] != merged[name]] == []
    assert len([name for name in one if name.endswith("index.html")]) >= 2 * len(EXECUTED)


def pages(project: Project) -> dict[str, bytes]:
    """The site's files without the seconds that chapters took."""
    return {name: TIMES.sub(b"#", data) for name, data in contents(project.site).items() if not name.endswith(".gz")}
