"""The stand-in for GitHub Pages answers as Pages does, so that what the browser measures here holds there."""

import gzip
import pathlib
import urllib.error
import urllib.request
from collections.abc import Iterator

import pages
import pytest


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A site of three pages and a picture, served."""
    site = tmp_path_factory.mktemp("site")
    (site / "m01").mkdir()
    (site / "index.html").write_text("<p>首頁</p>", encoding="utf-8")
    (site / "m01/index.html").write_text("<p>M01</p>", encoding="utf-8")
    (site / "404.html").write_text("<p>nothing here</p>", encoding="utf-8")
    (site / "picture.png").write_bytes(b"\x89PNG")
    with pages.serve(site) as served:
        yield served


def fetch(url: str, **headers: str) -> "urllib.request.addinfourl":
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10)


def test_a_folder_is_its_index_in_utf_8(address: str) -> None:
    with fetch(address) as answer:
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert answer.read().decode() == "<p>首頁</p>"


def test_a_folder_without_its_slash_is_redirected(address: str) -> None:
    with fetch(address + "m01") as answer:
        assert answer.url == address + "m01/"


def test_text_is_compressed_for_those_who_ask_and_pictures_are_not(address: str) -> None:
    asked = {"Accept-Encoding": "gzip"}
    with fetch(address, **asked) as page, fetch(address + "picture.png", **asked) as picture:
        assert page.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(page.read()).decode() == "<p>首頁</p>"
        assert picture.headers["Content-Encoding"] is None


def test_a_missing_page_is_the_404_page_with_its_status(address: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as error:
        fetch(address + "nowhere/")
    with error.value as answer:
        assert answer.code == 404
        assert answer.read() == b"<p>nothing here</p>"


def test_nothing_outside_the_folder_is_served(address: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    secret = pathlib.Path(tmp_path_factory.getbasetemp()) / "secret.txt"
    secret.write_text("secret", encoding="utf-8")
    with pytest.raises(urllib.error.HTTPError) as error:
        fetch(address + "../secret.txt")
    with error.value as answer:
        assert answer.code == 404
