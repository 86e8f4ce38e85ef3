"""Chapters spread over several machines, which then merge their caches."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from common.site.chapter import Chapter


def shard(
    chapters: Sequence[Chapter], number: int, count: int, seconds: Callable[[Chapter], float]
) -> tuple[Chapter, ...]:
    """The chapters of shard `number` (from 1) of `count`, in reading order.

    Longest first, each goes to the shard with the least work; `seconds` is infinite where no time is recorded, and such
    a chapter counts as an average one. Every machine comes to the same division if it sees the same recorded times.
    """
    if not 1 <= number <= count:
        raise ValueError(f"no shard {number}/{count}; shards are 1/{count} to {count}/{count}")
    expected = {chapter.name: seconds(chapter) for chapter in chapters}
    known = [value for value in expected.values() if math.isfinite(value)]
    usual = statistics.mean(known) if known else 1.0
    loads, shards = [0.0] * count, [set() for _ in range(count)]
    works = {name: value if math.isfinite(value) else usual for name, value in expected.items()}
    for name in sorted(works, key=works.__getitem__, reverse=True):
        lightest = loads.index(min(loads))
        loads[lightest] += works[name]
        shards[lightest].add(name)
    return tuple(chapter for chapter in chapters if chapter.name in shards[number - 1])
