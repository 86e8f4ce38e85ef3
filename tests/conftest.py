"""What many tests share: the repository, the built site, a browser."""

import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

import pages
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Before a test module imports torch or matplotlib: one thread, as in the build, and no window.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MPLBACKEND"] = "Agg"

# torch's trace log holds one record a graph node; pytest would print them all under a failing test.
logging.getLogger("torch.__trace").propagate = False

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def built_site(root: pathlib.Path) -> pathlib.Path:
    """The site's folder, built from this repository. The build's caches make this cheap where it was built before."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    build = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if build.returncode:
        pytest.fail(f"mkdocs build --strict ended with {build.returncode}:\n{build.stdout}", pytrace=False)
    return root / "site"


@pytest.fixture(scope="session")
def site_url(built_site: pathlib.Path) -> Iterator[str]:
    """The address, ending in a slash, at which the built site is served as GitHub Pages would."""
    with pages.serve(built_site) as address:
        yield address


@pytest.fixture(scope="session")
def node_tool(root: pathlib.Path) -> Callable[[str], list[str]]:
    """`node_tool("html-validate")` gives the start of the command that runs it."""

    def command(name: str) -> list[str]:
        tool = root / "tests/browser/node_modules/.bin" / name
        if not tool.exists():
            absent(f"{name} is not installed: run .ci/setup test")
        return [str(pathlib.Path(sys.executable).parent / "node"), str(tool)]

    return command


def absent(what: str) -> NoReturn:
    """Something that `.ci/setup test` provides is missing: an error in CI, elsewhere the test is skipped."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(what)


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """A headless Chromium (Playwright's `Browser`, synchronous API).

    Closed after each module: while it is open, Playwright's event loop runs in this thread; other modules run theirs.
    """
    import chromium
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        try:
            path = chromium.executable(playwright)
        except FileNotFoundError as error:
            absent(str(error))
        with playwright.chromium.launch(executable_path=path, args=chromium.ARGUMENTS) as browser:
            yield browser
