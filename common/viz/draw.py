"""FX graphs as drawings: one graph, stages side by side, or stages to step through."""

from __future__ import annotations

import hashlib
import html
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.viz.fx import Box, GraphView, read_graph
from common.viz.layout import Layout, Point, Rect, lay_out
from common.viz.text import T, bilingual, check_alt, figure_html, in_language, inline, plain, plain_figure, publish

# A monospaced font, because then the width of a text is known: 0.602 em a character is the widest of these.
FONT = "var(--pt2e-mono,ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono','DejaVu Sans Mono',monospace)"
EM_PER_CHARACTER = 0.605
TITLE, DETAIL = 12.5, 11  # font sizes in pixels
TITLE_STEP, DETAIL_STEP = 16, 13.5  # line heights
PAD_X, PAD_Y = 6, 5
MAX_WIDTH = 672  # with its margins as wide as a page's text column

# Tints that leave the page's own text color readable on them, in a light and in a dark scheme; docs/theme may replace
# them per scheme.
_COLORS = {
    "op": ("rgba(110,130,160,.13)", "#7589a3"),
    "observer": ("rgba(40,160,80,.17)", "#2a9150"),
    "qdq": ("rgba(222,130,20,.16)", "#c27314"),
    "io": ("rgba(128,128,128,.04)", "#828a94"),
    "const": ("rgba(128,128,128,.04)", "#828a94"),
    "delegate": ("rgba(140,90,220,.15)", "#9067d6"),
}
_INK = "fill:var(--pt2e-ink,currentColor)"
_MUTED = "fill:var(--pt2e-muted,currentColor)"
_EDGE = "var(--pt2e-edge,#828a94)"
_INTEGER_EDGE = "var(--pt2e-qdq-stroke,#c27314)"

_SVG_START = '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" viewBox="{box}" style="{style}">'

Stage = tuple[T | str, Any]


@dataclass(frozen=True)
class TextLine:
    """A line of text: its middle, baseline, font size and weight."""

    text: str
    x: float
    y: float
    size: float
    bold: bool = False

    @property
    def width(self) -> float:
        """At most this wide, whichever font of the stack is there."""
        return text_width(self.text, self.size)


@dataclass
class Drawing:
    """A graph with its layout: what `svg` writes."""

    view: GraphView
    layout: Layout
    texts: dict[str, list[TextLine]]
    labels: list[TextLine]
    new: frozenset[str]
    inner: dict[str, Drawing]

    def svg(self, label: str) -> str:
        """The drawing as <svg> without ids, so that any number of them can stand on a page."""
        return _svg(self, label)


def text_width(text: str, size: float) -> float:
    """An upper bound of a text's width in pixels."""
    return sum(1.0 if ord(character) > 0x2E7F else EM_PER_CHARACTER for character in text) * size


def graph(
    graph: Any,
    alt: T,
    caption: T | None = None,
    *,
    types: bool = False,
    names: bool = False,
    everything: bool = False,
    notes: Mapping[str, str] | None = None,
    only: Collection[str] | None = None,
) -> None:
    """Draw a GraphModule or an ExportedProgram; or stages, a list of (title, graph), side by side where they fit.

    `types` writes dtype and shape on the edges (no dtype = float32), `names` the nodes' names into the boxes,
    `notes` a line of your own into the box of the node named, and `only` draws the nodes named and no others.
    Weights stand in ‹› in the box of the node they feed; guards, asserts and getitem aren't drawn. `everything` draws
    each node as a box. A delegate's inner graph opens under the drawing.
    """
    stages = graph if isinstance(graph, list) else [(None, graph)]
    drawings = [
        (title, draw(read_graph(module, names=names, everything=everything, notes=notes, only=only), types=types))
        for title, module in stages
    ]
    check_alt(alt)

    def render(language: str) -> dict[str, str]:
        if len(drawings) == 1 and drawings[0][0] is None:
            body = _stage(None, drawings[0][1], plain(alt.in_language(language)), language)
            return _figure(body, alt, caption, language, drawings, named=False)
        parts = [_stage(title, drawing, _label(title, drawing, language), language) for title, drawing in drawings]
        body = '<div style="display:flex;flex-wrap:wrap;gap:.8em 2em;align-items:flex-start">' + "".join(parts)
        return _figure(body + "</div>", alt, caption, language, drawings)

    publish(bilingual(render))


def stepper(stages: Sequence[Stage], alt: T, caption: T | None = None, *, types: bool = False) -> None:
    """Draw one graph at several stages, a list of (title, graph), to step through with the arrow keys.

    Boxes that the stage before didn't have carry a +. Without CSS all stages stand below each other.
    """
    check_alt(alt)
    if len(stages) < 2:
        raise ValueError(f"a stepper needs two stages or more, got {len(stages)}")
    drawings: list[tuple[T | str, Drawing]] = []
    changes: list[T | None] = []
    for title, module in stages:
        before = drawings[-1][1].view if drawings else None
        drawing = draw(read_graph(module), types=types, before=before)
        drawings.append((title, drawing))
        changes.append(_change(before, drawing.view) if before else None)
    key = hashlib.sha256("".join(drawing.svg("") for _, drawing in drawings).encode()).hexdigest()[:8]

    def render(language: str) -> dict[str, str]:
        return _figure(_stepper(drawings, changes, f"s{key}", language), alt, caption, language, drawings)

    publish(bilingual(render))


def draw(view: GraphView, *, types: bool = False, before: GraphView | None = None) -> Drawing:
    """Lay a graph out. Boxes that `before` didn't have are marked as new."""
    lines = {name: _fold_lines(box) for name, box in view.boxes.items()}
    sizes = {name: _box_size(box, lines[name]) for name, box in view.boxes.items()}
    labels = {(edge.source, edge.target): _edge_lines(edge) for edge in view.edges} if types else {}
    label_sizes = {
        pair: (max(text_width(line, DETAIL) for line in text), DETAIL_STEP * len(text))
        for pair, text in labels.items()
        if text
    }
    inputs = [name for name, box in view.boxes.items() if box.kind == "io" and box.title != "output"]
    pairs = [(edge.source, edge.target) for edge in view.edges]
    layout = lay_out(sizes, pairs, inputs=inputs, labels=label_sizes, max_width=MAX_WIDTH)
    texts = {name: _box_texts(box, lines[name], layout.boxes[name]) for name, box in view.boxes.items()}
    edge_texts = []
    for pair, text in labels.items():
        x, y = layout.routes[pair].label
        for number, line in enumerate(reversed(text)):
            edge_texts.append(TextLine(line, x + text_width(line, DETAIL) / 2, y - number * DETAIL_STEP, DETAIL))
    new = frozenset(name for name, box in view.boxes.items() if _is_new(box, before)) if before else frozenset()
    inner = {name: draw(box.inner, types=types) for name, box in view.boxes.items() if box.inner}
    return Drawing(view, layout, texts, edge_texts, new, inner)


# --- boxes and texts ---------------------------------------------------------------------------------------------


def _fold_lines(box: Box) -> list[str]:
    """The lines of a box; a ‹name dtype shape› that alone would make the box wider breaks before the shape."""
    others = [text_width(box.title, TITLE)] + [text_width(line, DETAIL) for line in box.lines if line[0] != "‹"]
    folded = []
    for line in box.lines:
        fits = line[0] != "‹" or " " not in line or text_width(line, DETAIL) <= max(*others, 60)
        folded += [line] if fits else line.rsplit(" ", 1)
    return folded


def _box_size(box: Box, lines: list[str]) -> tuple[float, float]:
    widths = [text_width(box.title, TITLE)] + [text_width(line, DETAIL) for line in lines]
    pad = PAD_X + (4 if box.kind == "io" else 0)
    return round(max(widths) + 2 * pad, 1), 2 * PAD_Y + TITLE_STEP + DETAIL_STEP * len(lines)


def _box_texts(box: Box, lines: list[str], rect: Rect) -> list[TextLine]:
    y = rect.y + PAD_Y + TITLE_STEP - 4
    texts = [TextLine(box.title, rect.center, y, TITLE, bold=True)]
    for number, line in enumerate(lines, start=1):
        texts.append(TextLine(line, rect.center, y + number * DETAIL_STEP, DETAIL))
    return texts


def _edge_lines(edge: Any) -> list[str]:
    return [text for text in (edge.dtype, edge.shape) if text]


def _is_new(box: Box, before: GraphView) -> bool:
    old = before.boxes.get(box.name)
    return old is None or (old.kind, old.title) != (box.kind, box.title)


# --- SVG ---------------------------------------------------------------------------------------------------------


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _svg(drawing: Drawing, label: str) -> str:
    layout, margin = drawing.layout, 8  # room for strokes and marks
    width, height = layout.width + 2 * margin, layout.height + 2 * margin
    least = min(width, max(320, 0.9 * width))  # on a phone it scrolls rather than become too small to read
    style = f"display:block;width:100%;min-width:{least:.0f}px;max-width:{width:.0f}px;height:auto"
    integer = {(edge.source, edge.target) for edge in drawing.view.edges if edge.dtype.startswith(("int", "uint"))}
    parts = [
        _SVG_START.format(
            label=html.escape(label), style=style, box=f"{-margin} {-margin} {_number(width)} {_number(height)}"
        ),
        _edges([route.points for pair, route in layout.routes.items() if pair not in integer], _EDGE, 1.5),
        _edges([route.points for pair, route in layout.routes.items() if pair in integer], _INTEGER_EDGE, 2.2),
        *(_boxes(drawing, kind) for kind in _COLORS),
    ]
    texts = [text for lines in drawing.texts.values() for text in lines]
    parts.append(f'<g style="font-family:{FONT};text-anchor:middle;pointer-events:none;{_INK}">')
    parts.append(_texts([text for text in texts if text.bold], TITLE, "font-weight:600"))
    parts.append(_texts([text for text in texts if not text.bold], DETAIL, ""))
    parts.append(_texts(drawing.labels, DETAIL, _MUTED))
    parts.append("</g></svg>")
    return "".join(parts)


def _texts(texts: list[TextLine], size: float, style: str) -> str:
    if not texts:
        return ""
    lines = "".join(
        f'<text x="{_number(text.x)}" y="{_number(text.y)}">{html.escape(text.text, quote=False)}</text>'
        for text in texts
    )
    return f'<g style="font-size:{size}px{";" + style if style else ""}">{lines}</g>'


def _boxes(drawing: Drawing, kind: str) -> str:
    boxes = [box for box in drawing.view.boxes.values() if box.kind == kind]
    if not boxes:
        return ""
    fill, stroke = _COLORS[kind]
    dash = ";stroke-dasharray:3 2" if kind == "const" else ""
    fill, stroke = f"var(--pt2e-{kind}-fill,{fill})", f"var(--pt2e-{kind}-stroke,{stroke})"
    shapes, marks = [], []
    for box in boxes:
        rect = drawing.layout.boxes[box.name]
        radius = {"io": 10, "observer": 8}.get(kind, 3)
        emphasis = ' stroke-width="2.6"' if box.name in drawing.new else ""
        shapes.append(
            f'<rect data-node="{html.escape(box.name)}" x="{_number(rect.x)}" y="{_number(rect.y)}" '
            f'width="{_number(rect.width)}" height="{_number(rect.height)}" rx="{_number(radius)}"{emphasis}>'
            f"<title>{html.escape(box.hint, quote=False)}</title></rect>"
        )
        if box.name in drawing.new:
            marks.append((rect.right - 1, rect.y + 1))
    thick = 2.4 if kind == "delegate" else 1.4
    group = f'<g style="fill:{fill};stroke:{stroke};stroke-width:{thick}{dash}">{"".join(shapes)}</g>'
    if marks:
        pluses = "".join(f"M{_number(x - 4)} {_number(y)}h8M{_number(x)} {_number(y - 4)}v8" for x, y in marks)
        circles = "".join(f'<circle cx="{_number(x)}" cy="{_number(y)}" r="6.5"/>' for x, y in marks)
        group += f'<g style="fill:{stroke}">{circles}</g>'
        group += f'<path d="{pluses}" style="stroke:var(--md-default-bg-color,#fff);stroke-width:1.8"/>'
    return group


def _edges(routes: list[list[Point]], color: str, width: float) -> str:
    if not routes:
        return ""
    lines = "".join(_rounded(points) for points in routes)
    heads = "".join(_arrow_head(points) for points in routes)
    return (
        f'<path d="{lines}" style="fill:none;stroke:{color};stroke-width:{width}"/>'
        f'<path d="{heads}" style="fill:{color}"/>'
    )


def _rounded(points: list[Point]) -> str:
    """A line along the points, its corners rounded; it ends inside the arrow head."""
    points = [*points[:-1], _towards(points[-1], points[-2], 4)]
    path = f"M{_number(points[0][0])} {_number(points[0][1])}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(6, _distance(before, corner) / 2, _distance(corner, after) / 2)
        start, end = _towards(corner, before, radius), _towards(corner, after, radius)
        path += f"L{_number(start[0])} {_number(start[1])}Q{_number(corner[0])} {_number(corner[1])} "
        path += f"{_number(end[0])} {_number(end[1])}"
    return path + f"L{_number(points[-1][0])} {_number(points[-1][1])}"


def _arrow_head(points: list[Point]) -> str:
    (x, y), (back_x, back_y) = points[-1], _towards(points[-1], points[-2], 7)
    side_x, side_y = (y - back_y) / 7 * 3.5, (back_x - x) / 7 * 3.5
    corners = [(x, y), (back_x + side_x, back_y + side_y), (back_x - side_x, back_y - side_y)]
    return "M" + "L".join(f"{_number(a)} {_number(b)}" for a, b in corners) + "z"


def _distance(a: Point, b: Point) -> float:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])  # all stretches are level or upright


def _towards(start: Point, goal: Point, distance: float) -> Point:
    whole = _distance(start, goal) or 1
    return start[0] + (goal[0] - start[0]) * distance / whole, start[1] + (goal[1] - start[1]) * distance / whole


# --- HTML --------------------------------------------------------------------------------------------------------


def _stage(title: T | str | None, drawing: Drawing, label: str, language: str) -> str:
    """A drawing in a box that scrolls sideways where the page is too narrow, with its title and its delegates."""
    width = drawing.layout.width + 16
    focus = ""
    if width > 330:  # a phone has to scroll, so the keyboard must reach it
        name = T(zh="可左右捲動的圖", en="drawing, scrolls sideways").in_language(language)
        focus = f' tabindex="0" role="group" aria-label="{name}"'
    heading = f'<p class="pt2e-stage-title" style="margin:0 0 .3em">{_title(title, language)}</p>' if title else ""
    return (
        f'<div class="pt2e-stage" style="flex:0 1 {width:.0f}px;min-width:0;max-width:100%">{heading}'
        f'<div class="pt2e-scroll" style="overflow-x:auto"{focus}>{drawing.svg(label)}</div>'
        f"{_delegates(drawing, language)}</div>"
    )


def _title(title: T | str, language: str) -> str:
    return f"<strong>{inline(in_language(title, language))}</strong>"


def _label(title: T | str | None, drawing: Drawing, language: str) -> str:
    """The alternative text of one stage among several: its title and what it holds."""
    return f"{plain(in_language(title, language))}: {_census(drawing.view).in_language(language)}"


def _delegates(drawing: Drawing, language: str) -> str:
    parts = []
    for name, inner in drawing.inner.items():
        module, backend = drawing.view.boxes[name].lines[:2]
        text = T(zh=f"`{module}` 裡面（{backend}）：", en=f"Inside `{module}` ({backend}): ").in_language(language)
        text += _census(inner.view).in_language(language)
        parts.append(
            f'<details class="pt2e-delegate"><summary>{inline(text)}</summary>'
            f"{_stage(None, inner, plain(text), language)}</details>"
        )
    return "".join(parts)


def _census(view: GraphView) -> T:
    """What a graph holds, in words."""
    observers = view.count("observer")
    q = sum(box.kind == "qdq" and box.title.startswith("q") for box in view.boxes.values())
    counts = [
        (view.count("op"), "op"),
        (observers, "observer"),
        (q, "q"),
        (view.count("qdq") - q, "dq"),
        (view.count("delegate"), "delegate"),
    ]
    named = [(count, word) for count, word in counts if count]
    return T(
        zh="、".join(f"{count} 個 {word}" for count, word in named) or "沒有 op",
        en=", ".join(
            f"{count} {word}" + ("s" if count > 1 and word not in ("q", "dq") else "") for count, word in named
        )
        or "no ops",
    )


def _change(before: GraphView, after: GraphView) -> T:
    """What a stage added and removed, in words."""

    def words(boxes: Iterable[Box]) -> list[str]:
        counts = Counter(box.title for box in boxes)
        return [f"`{title}`" + (f" ×{count}" if count > 1 else "") for title, count in counts.items()]

    added = words(box for box in after.boxes.values() if _is_new(box, before))
    removed = words(box for box in before.boxes.values() if _is_new(box, after))
    if not added and not removed:
        known = {(edge.source, edge.target) for edge in before.edges}
        edges = [(edge.source, edge.target) for edge in after.edges if (edge.source, edge.target) not in known]
        if edges:
            new = [f"`{after.boxes[source].title}` → `{after.boxes[target].title}`" for source, target in edges]
            return T(zh=f"接法變了，新的邊：{'、'.join(new)}", en=f"rewired; new edges: {', '.join(new)}")
        return T(zh="圖沒有變。", en="The graph is unchanged.")
    parts = [(T(zh="新增", en="added"), added), (T(zh="移除", en="removed"), removed)]
    return T(
        zh="；".join(f"{word.zh}：{'、'.join(boxes)}" for word, boxes in parts if boxes),
        en="; ".join(f"{word.en}: {', '.join(boxes)}" for word, boxes in parts if boxes),
    )


_STEPPER_CSS = """
@supports selector(:has(*)){
.pt2e-steps{display:flex!important;flex-wrap:wrap;gap:.4em;margin:0 0 .8em}
.pt2e-steps label{display:flex;align-items:center;gap:.4em;padding:.15em .8em .15em .5em;cursor:pointer;
border:1px solid var(--pt2e-io-stroke,#828a94);border-radius:2em}
.pt2e-steps label:has(:checked){background:var(--pt2e-op-fill,rgba(110,130,160,.13));font-weight:600}
@media screen{.pt2e-panels>*,.pt2e-panels .pt2e-stage-title{display:none}%s{display:block}}
}"""


def _stepper(drawings: list[tuple[T | str, Drawing]], changes: list[T | None], key: str, language: str) -> str:
    shown = ",".join(
        f".pt2e-steps:has(label:nth-child({n})>:checked)+.pt2e-panels>:nth-child({n})"
        for n in range(1, len(drawings) + 1)
    )
    css = (_STEPPER_CSS % shown).replace("\n", "")
    group = T(zh="階段", en="Stage").in_language(language)
    radios = "".join(
        f'<label><input type="radio" name="{key}"{" checked" if number == 0 else ""}>'
        f"<span>{inline(in_language(title, language))}</span></label>"
        for number, (title, _) in enumerate(drawings)
    )
    panels = ""
    for (title, drawing), change in zip(drawings, changes, strict=True):
        text = f'<p style="margin:.3em 0 0"><small>{inline(change.in_language(language))}</small></p>' if change else ""
        panels += f"<div>{_stage(title, drawing, _label(title, drawing, language), language)}{text}</div>"
    # <style> may stand in the body only inside an <svg>; in there it needs no stylesheet of the page, as in Jupyter.
    return (
        f'<svg aria-hidden="true" style="position:absolute;width:0;height:0"><style>{css}</style></svg>'
        f'<div class="pt2e-steps" role="radiogroup" aria-label="{group}" style="display:none">{radios}</div>'
        f'<div class="pt2e-panels">{panels}</div>'
    )


def _figure(
    body: str,
    alt: T,
    caption: T | None,
    language: str,
    drawings: Sequence[tuple[T | str | None, Drawing]],
    named: bool = True,
) -> dict[str, str]:
    name = f' aria-label="{html.escape(plain(alt.in_language(language)))}"' if named else ""
    parts = [plain_figure(alt, caption, language)]
    for title, drawing in drawings:
        parts += ["", *([plain(in_language(title, language))] if title else []), drawing.view.text()]
    return {
        "text/html": figure_html("pt2e-graph", body, caption, language, name),
        "text/plain": "\n".join(parts),
    }
