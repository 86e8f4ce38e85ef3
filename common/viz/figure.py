"""Matplotlib figures as inline SVG that reads on a light and on a dark page."""

from __future__ import annotations

import hashlib
import io
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from common.viz.text import LANGUAGES, T, bilingual, check_alt, figure_html, plain, plain_figure, publish

import matplotlib
from cycler import cycler

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Every color keeps a contrast of 3:1 or more on white and on #1e2129; line style and marker repeat the distinction.
# docs/theme may set --pt2e-c1 ... per scheme.
PALETTE = ("#1c7ce1", "#cb6f25", "#29816e", "#b865b4", "#816f42", "#ff3e89")

STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.figsize": (6.0, 3.2),
    "font.size": 10.5,
    "grid.alpha": 0.18,
    "grid.color": "black",
    "grid.linewidth": 0.8,
    "image.cmap": "cividis",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and copied
    "svg.hashsalt": "pt2e",  # ids from content, not from a random seed
}
matplotlib.rcParams.update(STYLE)

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_CSS_PIXELS_PER_POINT = 1.25


def show(figure: Figure, alt: T, caption: T | None = None) -> None:
    """Show a matplotlib figure and close it. Black is the page's text color, the palette follows the page's scheme.

    `alt` says what a reader who can't see the figure should know: its message, not its parts.
    """
    check_alt(alt)
    salt = "".join(text.in_language(language) for text in (alt, caption) if text for language in LANGUAGES)
    root, width = _svg_root(figure, salt)

    def render(language: str) -> dict[str, str]:
        root.set("aria-label", plain(alt.in_language(language)))
        return {
            "text/html": figure_html("pt2e-figure", _serialize(root), caption, language),
            "text/plain": plain_figure(alt, caption, language),
        }

    root.set("style", f"width:100%;max-width:{width:.0f}px;height:auto;stroke-linejoin:round")
    publish(bilingual(render))


def _svg_root(figure: Figure, salt: str) -> tuple[ElementTree.Element, float]:
    """The figure's <svg> element, made fit for a page, and its width in CSS pixels."""
    import matplotlib.pyplot as plt

    buffer = io.StringIO()
    with matplotlib.rc_context({key: STYLE[key] for key in ("svg.fonttype", "svg.hashsalt")}):
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    plt.close(figure)
    source = buffer.getvalue()
    root = ElementTree.fromstring(source)
    width = float(root.get("width", "0pt").removesuffix("pt")) * _CSS_PIXELS_PER_POINT
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("fill", "currentColor")  # matplotlib leaves black out
    prefix = "f" + hashlib.sha256((salt + source).encode()).hexdigest()[:8]
    _drop_page_wide_parts(root)
    _make_ids_unique(root, prefix)
    for element in root.iter():
        _follow_scheme(element)
    return root, width


def _drop_page_wide_parts(root: ElementTree.Element) -> None:
    """<metadata> says nothing here, and matplotlib's <style> would apply to every element of the page."""
    for parent in root.iter():
        for child in list(parent):
            if child.tag in (_SVG + "style", "style") or child.tag.endswith("metadata"):
                parent.remove(child)
    for parent in root.iter():
        for child in list(parent):
            if child.tag == _SVG + "defs" and len(child) == 0:
                parent.remove(child)


def _make_ids_unique(root: ElementTree.Element, prefix: str) -> None:
    """Keep only the ids that something refers to, renamed with a prefix made from the figure's content."""
    used = set()
    for element in root.iter():
        for value in element.attrib.values():
            used.update(re.findall(r"url\(#([^)]+)\)", value))
        if element.get(_HREF, "").startswith("#"):
            used.add(element.get(_HREF)[1:])
    names = {name: f"{prefix}{number}" for number, name in enumerate(sorted(used))}
    for element in root.iter():
        if (identifier := element.attrib.pop("id", None)) in names:
            element.set("id", names[identifier])
        for key, value in list(element.attrib.items()):
            if "url(#" in value:
                element.set(key, re.sub(r"url\(#([^)]+)\)", lambda match: f"url(#{names[match[1]]})", value))
        target = element.attrib.pop(_HREF, None)
        if target is not None:
            element.set("href", "#" + names[target[1:]] if target.startswith("#") else target)


_PALETTE_VARIABLES = {color: f"var(--pt2e-c{number},{color})" for number, color in enumerate(PALETTE, start=1)}


def _follow_scheme(element: ElementTree.Element) -> None:
    """Black becomes the page's ink, white its paper, palette colors CSS properties; coordinates lose digits."""
    style = element.get("style")
    if style:
        style = style.replace("#000000", "currentColor")
        if element.tag != _SVG + "text":  # white text stands on a dark patch
            style = style.replace("#ffffff", "var(--md-default-bg-color,#fff)")
        for color, variable in _PALETTE_VARIABLES.items():
            style = style.replace(color, variable)
        style = re.sub(r"\s*([:;])\s*", r"\1", style)
        if element.tag == _SVG + "text":
            # Measured with DejaVu Sans, the widest of its kind, so any sans serif fits in its place.
            style = re.sub(r";?font-family:[^;]*", "", style)
            if element.get("transform", "").startswith("rotate(-0 "):
                del element.attrib["transform"]
        element.set("style", style)
    if (fill := element.get("fill")) in _PALETTE_VARIABLES:  # the ground of a hatch
        element.set("fill", _PALETTE_VARIABLES[fill])
    for name in ("d", "x", "y", "width", "height"):
        if value := element.get(name):
            value = re.sub(r"-?\d+\.\d+", lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)
            element.set(name, " ".join(value.split()))


def _serialize(root: ElementTree.Element) -> str:
    ElementTree.register_namespace("", _SVG[1:-1])
    text = ElementTree.tostring(root, encoding="unicode")
    return re.sub(r">\s+<", "><", text)
