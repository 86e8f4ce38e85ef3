"""What a built site must not have: dead links, anchors and images, empty or double ids, requests to other hosts."""

from __future__ import annotations

import collections
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lxml import html

_REFERENCES = {
    "a": ("href",),
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
_LOADED = {"stylesheet", "preload", "modulepreload", "preconnect", "dns-prefetch", "icon", "manifest"}
_FOREIGN_CSS = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\"\s);]+)")


@dataclass(frozen=True)
class Fault:
    """What is wrong on a page, and the address that is, if it is one."""

    page: str
    what: str
    url: str = ""

    def __str__(self) -> str:
        return f"{self.page}: {self.what}"


@dataclass(frozen=True)
class _Reference:
    tag: str
    url: str
    rel: tuple[str, ...]


@dataclass(frozen=True)
class _Checked:
    ids: collections.Counter
    references: tuple[_Reference, ...]
    foreign: tuple[str, ...]


def site_faults(site: Path, site_url: str = "") -> list[Fault]:
    """Every fault of the site in a folder. `site_url` tells absolute addresses of its own."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    prefix = urlsplit(site_url).path or "/"
    faults = []
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        if page.ids[""]:
            faults.append(Fault(name, "an empty id"))
        repeated = [(found, count) for found, count in page.ids.items() if found and count > 1]
        faults += [Fault(name, f"id {found!r} stands {count} times") for found, count in repeated]
        for reference in page.references:
            if what := _fault(reference, path, site, site_url, prefix, pages):
                faults.append(Fault(name, what, reference.url))
        faults += [Fault(name, f"loads {url} from another host", url) for url in page.foreign]
    for css in sorted(site.rglob("*.css")):
        foreign = _FOREIGN_CSS.findall(css.read_text(encoding="utf-8", errors="replace"))
        faults += [Fault(css.relative_to(site).as_posix(), f"loads {url} from another host") for url in foreign]
    return faults


def _read(path: Path) -> _Checked:
    text = path.read_bytes()
    if not text.strip():
        return _Checked(collections.Counter([""]), (), ())
    tree = html.document_fromstring(text, parser=html.HTMLParser(encoding="utf-8"))
    ids = collections.Counter(str(value) for value in tree.xpath("//@id"))
    references = []
    for element in tree.iter(*_REFERENCES):
        for attribute in _REFERENCES[element.tag]:
            value = element.get(attribute)
            if value is not None:
                urls = [part.split()[0] for part in value.split(",")] if attribute == "srcset" else [value.strip()]
                rel = tuple((element.get("rel") or "").split())
                references += [_Reference(element.tag, url, rel) for url in urls]
    styles = [*tree.xpath("//@style"), *(element.text or "" for element in tree.iter("style"))]
    return _Checked(ids, tuple(references), tuple(url for style in styles for url in _FOREIGN_CSS.findall(style)))


def _fault(
    reference: _Reference, path: Path, site: Path, site_url: str, prefix: str, pages: dict[Path, _Checked]
) -> str | None:
    tag, url = reference.tag, reference.url
    if not url:
        return f"an empty address in <{tag}>"
    if site_url and url.startswith(site_url):
        url = prefix + url[len(site_url) :]
    parts = urlsplit(url)
    if parts.scheme or parts.netloc:
        loaded = tag != "a" and (tag != "link" or _LOADED & set(reference.rel))
        return f"loads {url} from another host" if loaded and parts.scheme != "data" else None
    dead = {"a": "dead link", "img": "missing image"}.get(tag, "missing file")
    target = path
    if parts.path:
        relative = unquote(parts.path)
        if relative.startswith("/"):
            if not relative.startswith(prefix):
                return f"{dead} {url}: outside {prefix}"
            relative = relative[len(prefix) :]
            target = Path(posixpath.normpath(posixpath.join(site.as_posix(), relative)))
        elif path.name == "404.html":
            return f"relative address {url} on a page that is shown anywhere"
        else:
            target = Path(posixpath.normpath(posixpath.join(path.parent.as_posix(), relative)))
        if not target.is_relative_to(site):
            return f"{dead} {url}: outside the site"
        if target.is_dir():
            target = target / "index.html"
        if not target.is_file():
            return f"{dead} {url}"
    fragment = unquote(parts.fragment)
    known = pages.get(target)
    made_by_the_theme = fragment.startswith(("__", ":~:"))
    if fragment and known and fragment not in known.ids and not made_by_the_theme:
        return f"dead anchor {url}"
    return None
