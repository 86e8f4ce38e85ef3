"""The author's commands, run beside mkdocs.yml: `python -m common.site COMMAND`.

check, status and key execute nothing; run executes chapters, and artifacts what they share; new begins one; twins finds
edits of one language alone; diff compares what two builds showed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sys
from pathlib import Path

from common.site.chapter import Chapter, ChapterError
from common.site.outputs import ManifestError, changes
from common.site.plugin import Course, CoursePlugin
from common.site.progress import progress
from common.site.shards import shard
from common.site.skeleton import chapter_begun, test_begun, test_name
from common.site.twins import MARK, one_sided

from mkdocs.config.base import load_config


def main() -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m common.site", description="The author's commands.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="read every chapter and check its format; executes nothing")
    commands.add_parser("status", help="which chapters are stale, and which code, helper or version made them so")
    run = commands.add_parser("run", help="execute chapters where they are stale")
    run.add_argument("chapter", nargs="*", type=Path, help="such as chapters/m01_first_ptq/0_overview.py; default: all")
    run.add_argument("--shard", type=shard_numbers, metavar="I/N", help="of these, part I of N with as much work each")
    commands.add_parser("artifacts", help="make what chapters share, before shards run on several machines")
    new = commands.add_parser("new", help="begin a page that the outline lists, and its test")
    new.add_argument("chapter", type=Path, help="such as chapters/m01_first_ptq/4_another.py")
    twins = commands.add_parser("twins", help="texts edited in one language and not in the other")
    twins.add_argument("--since", default="HEAD", help="the commit to compare the files with (default: the last one)")
    diff = commands.add_parser("diff", help="what pages show differently: compares outputs.json of two built sites")
    diff.add_argument("old", type=Path)
    diff.add_argument("new", type=Path)
    commands.add_parser("key", help="one hash of everything that the executed results depend on")
    given = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    try:
        return obey(given)
    except (ChapterError, ManifestError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1


def obey(given: argparse.Namespace) -> int:
    """Do what was asked. Raises ChapterError for a fault in a source, ValueError for one in what was asked."""
    if given.command == "diff":
        return tell_changes(given.old, given.new)
    course = open_course()
    if given.command == "run":
        return execute(course, given.chapter, given.shard)
    if given.command == "artifacts":
        return course.make_shared()
    if given.command == "new":
        return begin(course, given.chapter)
    if given.command == "twins":
        return tell_one_sided(course, given.since)
    if given.command == "key":
        print(hashlib.sha256("".join(course.executor.parts(c).key for c in course.chapters).encode()).hexdigest()[:32])
    else:
        for chapter in course.chapters:
            words = why_stale(course, chapter) if given.command == "status" else f"{len(chapter.code_cells)} code cells"
            print(f"{course.executor.shown(chapter)}: {words}")
    return 0


def open_course() -> Course:
    """The course of the working directory's mkdocs.yml."""
    config = load_config()
    plugin = config.plugins["pt2e"]
    assert isinstance(plugin, CoursePlugin)
    return Course(Path(config.config_file_path).parent, plugin.config)


def shard_numbers(text: str) -> tuple[int, int]:
    """`2/3` as numbers."""
    number, _, count = text.partition("/")
    return int(number), int(count)


def execute(course: Course, paths: list[Path], part: tuple[int, int] | None) -> int:
    """Execute these chapters, or all, where they are stale, and print what failed."""
    names = {(course.chapters_folder / name).resolve(): name for name in course.by_name}
    unknown = [path for path in paths if path.resolve() not in names]
    if unknown:
        print(
            f"{unknown[0]}: no such chapter; chapters are listed in {course.chapters_folder.name}/outline.toml",
            file=sys.stderr,
        )
        return 2
    chapters = tuple(course.by_name[names[path.resolve()]] for path in paths) or course.chapters
    if part:
        chapters = shard(chapters, *part, course.executor.expected_seconds)
    with progress(course.executor, chapters) as report:
        failures = course.executor.run(chapters, report)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def begin(course: Course, path: Path) -> int:
    """Write the first lines of a page and of its test. Raises ValueError where it can't begin."""
    chapters = course.chapters_folder
    if not path.resolve().is_relative_to(chapters):
        raise ValueError(f"{path}: chapters lie in {chapters.name}/")
    name = path.resolve().relative_to(chapters).as_posix()
    if name not in course.promised:
        raise ValueError(f"{path}: not in {chapters.name}/outline.toml; list it there first")
    test = course.root / "tests" / "chapters" / test_name(name)
    for file, text in ((chapters / name, chapter_begun(name)), (test, test_begun(name))):
        if file.exists():
            raise ValueError(f"{file.relative_to(course.root)}: is there already")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print(file.relative_to(course.root))
    return 0


def tell_one_sided(course: Course, since: str) -> int:
    """Print the edits of one language; 1 if there are any."""
    docs = "docs/zh", "docs/en"
    found = one_sided(course.root, course.chapters_folder.name, docs, since)
    for edit in found:
        print(edit)
    if found:
        print(
            f"Mend the twins, or where a correction needs none say so in the commit message: `{MARK} {found[0].path}`"
        )
    return 1 if found else 0


def tell_changes(*paths: Path) -> int:
    """Print what changed; 1 if anything but measured times did."""
    try:
        old, new = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    except (OSError, ValueError) as error:
        raise ManifestError(f"no manifest: {error}") from error
    found = changes(old, new)
    for change in found:
        print(change)
    timings = sum(change.is_timing for change in found)
    print(f"{len(found) - timings} outputs changed, and {timings} measured times")
    return 1 if len(found) > timings else 0


def why_stale(course: Course, chapter: Chapter) -> str:
    """`up to date`, or what changed since the chapter was executed last."""
    parts = course.executor.parts(chapter)
    if course.executor.store.load(chapter.name, parts.key):
        return "up to date"
    before = course.executor.store.newest(chapter.name)
    if before is None:
        return "stale: never executed"
    names = sorted(before.parts.keys() | parts.parts.keys())
    changed = [name for name in names if before.parts.get(name) != parts.parts.get(name)]
    return "stale: " + ", ".join(
        f"{name} {before.parts.get(name, 'none')} -> {parts.parts.get(name, 'none')}"
        if name.startswith("version")
        else name
        for name in changed
    )


if __name__ == "__main__":
    sys.exit(main())
