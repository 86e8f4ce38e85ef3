"""What the tests of the build share; what a miniature course is stands in miniature.py."""

import pathlib
from collections.abc import Iterator

import pytest
from miniature import Project, make_project


@pytest.fixture
def project(tmp_path: pathlib.Path) -> Iterator[Project]:
    """A small course that builds, for one test. No process of it may outlive the test."""
    made = make_project(tmp_path / "course")
    yield made
    made.assert_nothing_runs()
