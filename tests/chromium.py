"""The browser of the tests: Playwright's own Chromium where it was downloaded, else the system's.

As a program it opens an empty page and prints which browser that was; `--own` accepts Playwright's own alone.
"""

import os
import shutil
import sys

from playwright.sync_api import Browser, Playwright, sync_playwright

# Root may not use the sandbox; the others keep the browser from asking its maker's servers for anything.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


def executable(playwright: Playwright, own: bool = False) -> str:
    """The browser's path. FileNotFoundError says how to get one."""
    path = playwright.chromium.executable_path
    if os.path.exists(path):
        return path
    system = None if own else shutil.which("chromium") or shutil.which("chromium-browser")
    if system is None:
        raise FileNotFoundError("no Chromium for the browser tests: run .ci/setup test")
    return system


def launch(playwright: Playwright, own: bool = False) -> Browser:
    """A headless browser. Close it."""
    return playwright.chromium.launch(executable_path=executable(playwright, own), args=ARGUMENTS)


def main() -> None:
    """Open an empty page and say in which browser."""
    with sync_playwright() as playwright:
        try:
            with launch(playwright, own="--own" in sys.argv) as browser:
                browser.new_page().goto("about:blank")
                print(f"Chromium {browser.version} at {executable(playwright)}")
        except FileNotFoundError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
