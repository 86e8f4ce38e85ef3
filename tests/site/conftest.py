"""What the tests of the build share; what a miniature course is stands in miniature.py."""

import pathlib
import shutil
from collections.abc import Iterator

import pytest
from miniature import Project, contents, make_course


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The miniature course after its first build. Tests look at it and change nothing.

    `sources` are its files before, `said` is what the build printed, `first_run` names what it executed.
    """
    project = make_course(tmp_path_factory.mktemp("built") / "course")
    project.sources = contents(project.root)
    project.said = project.build()
    project.first_run = project.names_ran()
    return project


@pytest.fixture
def project(built: Project, tmp_path: pathlib.Path) -> Iterator[Project]:
    """A copy of the built course, with site and caches, for a test to change. No process of it outlives the test."""
    made = Project(tmp_path / "course")
    shutil.copytree(built.root, made.root)
    yield made
    made.assert_nothing_runs()
