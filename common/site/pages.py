"""Rendered chapter pages on disk: an unchanged page is neither converted nor run through Markdown again.

A page is kept as MkDocs has it after rendering: its HTML, table of contents, title, anchors, and the links to anchors
that MkDocs checks later. Its key covers all that rendering reads. A page that made MkDocs complain is not kept, so that
the next build complains again; what doesn't check out on disk is rendered anew.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import logging
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.site.chapter import Chapter
from common.site.languages import Language
from common.site.store import Entry, keep_newest, read_checked, write_checked

from markdown.extensions import Extension
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink, get_toc

HERE = Path(__file__).parent
KEPT = 2  # pages kept per chapter and language
RENDERERS = (
    "Jinja2",
    "Markdown",
    "Pygments",
    "lxml",
    "math-core",
    "mkdocs",
    "mkdocs-jupyter",
    "nbconvert",
    "pymdown-extensions",
)
_COMPLAINTS = "mkdocs.structure.pages"  # where MkDocs reports links that lead nowhere
_log = logging.getLogger("mkdocs")


class PageCache:
    """The rendered pages of one build. `surroundings` is what all of them depend on."""

    def __init__(self, folder: Path, surroundings: str) -> None:
        self.folder, self.surroundings = folder, surroundings

    def key(self, chapter: Chapter, language: Language, entry: Entry, **more: Any) -> str:
        """The hash of all that this chapter's page depends on; `more` names what a caller adds."""
        told = {
            "surroundings": self.surroundings,
            "chapter": chapter.name,
            "language": language.code,
            "cells": [(cell.kind, cell.source, cell.tags) for cell in chapter.in_language(language.code)],
            "anchors": chapter.heading_ids(),
            "outputs": entry.outputs,
            **more,
        }
        return _digest(json.dumps(told, ensure_ascii=False, sort_keys=True))

    def render(self, page: Page, files: Files, key: str, fresh: Callable[[], None]) -> None:
        """Fill in the page: from its entry, or by `fresh`, which renders it."""
        path = self._path(page, key)
        kept = read_checked(path)
        if kept and kept.get("page") == page.file.src_uri and kept.get("key") == key and _restored(page, files, kept):
            return
        with _complaints() as complaints:
            fresh()
        heard = logging.getLogger(_COMPLAINTS).isEnabledFor(logging.WARNING)  # not so with MkDocs' -q
        noted = page.links_to_anchors is not None  # not so with its -v
        if heard and noted and not complaints:
            write_checked(path, {"page": page.file.src_uri, "key": key, **_kept(page)})
            keep_newest(path.parent, KEPT)

    def _path(self, page: Page, key: str) -> Path:
        name = page.file.url.strip("/").replace("/", ".") or "index"
        return self.folder / name / f"{key}.json"


def surroundings(config: MkDocsConfig, files: Files, promised: Iterable[str]) -> str:
    """The hash of what every page of a build depends on: the configuration, this package, the pages there are."""
    jupyter = config.plugins.get("mkdocs-jupyter")
    read = ("markdown_extensions", "mdx_configs", "use_directory_urls", "validation")
    told = {
        "configuration": _digest(Path(config.config_file_path).read_text(encoding="utf-8")),
        "options": {name: _plain(config[name]) for name in read},
        "mkdocs-jupyter": _plain(jupyter.config) if jupyter else None,
        "package": package_digest(),
        "versions": _versions(),
        "files": sorted((file.src_uri, file.url, file.inclusion.name) for file in files),
        "promised": sorted(promised),
    }
    return _digest(json.dumps(told, ensure_ascii=False, sort_keys=True))


def package_digest(folder: Path = HERE) -> str:
    """The hash of this package's files: code, templates, configuration."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@functools.lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    return {"Python": platform.python_version(), **{name: importlib.metadata.version(name) for name in RENDERERS}}


def _plain(value: Any) -> Any:
    """A configuration value as JSON: functions and classes by their names, Markdown extensions with their settings."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(value[key]) for key in value}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Extension):
        return [_plain(type(value)), _plain(value.getConfigs())]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _kept(page: Page) -> dict[str, Any]:
    """What is kept of a rendered page."""
    return {
        "content": page.content,
        "toc": [_token(link) for link in page.toc],
        "title": page.title,
        "anchors": sorted(page.present_anchor_ids or ()),
        "links": {file.src_uri: links for file, links in (page.links_to_anchors or {}).items()},
    }


def _token(link: AnchorLink) -> dict[str, Any]:
    return {
        "level": link.level,
        "id": link.id,
        "name": link.title,
        "children": [_token(child) for child in link.children],
    }


def _restored(page: Page, files: Files, kept: dict[str, Any]) -> bool:
    """Make the page what it was; False, and the page untouched, where that can't be done."""
    try:
        links = {files.src_uris[name]: links for name, links in kept["links"].items()}
        content, toc, title, anchors = kept["content"], get_toc(kept["toc"]), kept["title"], set(kept["anchors"])
    except (TypeError, KeyError, AttributeError):
        return False
    page.content, page.toc, page.title, page._title_from_render = content, toc, title, title
    page.present_anchor_ids, page.links_to_anchors = anchors, links
    return True


@contextmanager
def _complaints() -> Iterator[list[logging.LogRecord]]:
    """Collects what is logged at level WARNING or above, or about links at any level, while it is open."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.addFilter(lambda record: record.levelno >= logging.WARNING or record.name == _COMPLAINTS)
    handler.emit = found.append  # type: ignore[method-assign]
    _log.addHandler(handler)
    try:
        yield found
    finally:
        _log.removeHandler(handler)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
