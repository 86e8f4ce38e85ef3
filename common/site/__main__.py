"""The author's commands, run beside mkdocs.yml: `python -m common.site check | status | run CHAPTER… | key`."""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
from pathlib import Path

from common.site.chapter import Chapter, ChapterError
from common.site.plugin import Course, CoursePlugin
from common.site.progress import progress

from mkdocs.config.base import load_config


def main() -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m common.site", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="read every chapter and check its format; executes nothing")
    commands.add_parser("status", help="which chapters are stale, and which code, helper or version made them so")
    run = commands.add_parser("run", help="execute chapters where they are stale")
    run.add_argument("chapter", nargs="+", type=Path, help="such as chapters/m01_first_ptq/0_overview.py")
    commands.add_parser("key", help="one hash of everything that the executed results depend on")
    given = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    try:
        return obey(given)
    except ChapterError as error:
        print(error, file=sys.stderr)
        return 1


def obey(given: argparse.Namespace) -> int:
    """Do what was asked. Raises ChapterError for a fault in a source."""
    course = open_course()
    if given.command == "run":
        return execute(course, given.chapter)
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


def execute(course: Course, paths: list[Path]) -> int:
    """Execute these chapters where they are stale and print what failed."""
    names = {(course.chapters_folder / name).resolve(): name for name in course.by_name}
    unknown = [path for path in paths if path.resolve() not in names]
    if unknown:
        print(
            f"{unknown[0]}: no such chapter; chapters are listed in {course.chapters_folder.name}/outline.toml",
            file=sys.stderr,
        )
        return 2
    chapters = tuple(course.by_name[names[path.resolve()]] for path in paths)
    with progress(course.executor, chapters) as report:
        failures = course.executor.run(chapters, report)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


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
