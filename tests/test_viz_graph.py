"""Drawings of FX graphs, checked against the graphs themselves."""

import copy
import functools
import operator
import random
import re
import time
from itertools import combinations, pairwise
from xml.etree import ElementTree

from common.models import example_inputs, get_model
from common.viz import T, graph, stepper
from common.viz import draw as draw_module
from common.viz.draw import DETAIL, MAX_WIDTH, draw, text_width
from common.viz.fx import is_observer, observer_title, read_graph, scale_text
from common.viz.layout import lay_out
from common.viz.text import BILINGUAL_MIME

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from executorch.exir import to_edge_transform_and_lower
from lxml import html
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

ALT = T(zh="圖 <一>", en="Graph & more")
SVG = "{http://www.w3.org/2000/svg}"


class Cat(nn.Module):
    """Two convolutions side by side, a second input and two outputs."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 4, 1)
        self.b = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x, y):
        return torch.cat([self.a(x), self.b(x), y], 1), x.mean()


class Unsupported(nn.Module):
    """cumsum isn't XNNPACK's: the lowered graph has two delegates around it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 1)
        self.second = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return self.second(torch.cumsum(self.first(x), 1))


def make_stages(model, inputs):
    """The same model at every stage. convert edits the graph it is given, so it gets a copy."""
    program = torch.export.export(model, inputs)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
    with torch.no_grad():
        prepared(*inputs)
    return {
        "exported": program.module(),
        "prepared": prepared,
        "quantized": convert_pt2e(copy.deepcopy(prepared)),
        "program": program,
        "traced": torch.fx.symbolic_trace(model),
    }


def lower(quantized, inputs):
    program = torch.export.export(quantized, inputs)
    return to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).exported_program()


MODELS = {
    "conv_relu": lambda: (get_model("conv_relu"), example_inputs()),
    "tiny": lambda: (get_model("tiny"), example_inputs()),
    "cat": lambda: (Cat().eval(), (*example_inputs(), torch.randn(1, 2, 16, 16))),
    "unsupported": lambda: (Unsupported().eval(), example_inputs()),
}
KINDS = ("exported", "prepared", "quantized", "program", "traced")
LOWERED = ("conv_relu", "unsupported")  # lowering takes seconds
GRAPHS = [f"{model} {kind}" for model in MODELS for kind in KINDS] + [
    f"{model} {kind}" for model in LOWERED for kind in ("edge", "inner")
]


@functools.cache
def stages_of(model):
    stages = make_stages(*MODELS[model]())
    if model in LOWERED:
        stages["edge"] = lower(stages["quantized"], MODELS[model]()[1])
        stages["inner"] = stages["edge"].graph_module.lowered_module_0.original_module
    return stages


@pytest.fixture
def conv_relu():
    return stages_of("conv_relu")


@pytest.fixture
def tiny():
    return stages_of("tiny")


@pytest.fixture
def cat():
    return stages_of("cat")


@pytest.fixture(params=["conv_relu", "tiny", "cat"])
def stages(request):
    return stages_of(request.param)


@pytest.fixture(params=GRAPHS)
def fx_graph(request):
    """A GraphModule or an ExportedProgram."""
    model, kind = request.param.split()
    return stages_of(model)[kind]


@pytest.fixture
def published(monkeypatch):
    """The MIME bundles that were shown."""
    bundles = []
    monkeypatch.setattr(draw_module, "publish", bundles.append)
    return bundles


def module_of(stage):
    return getattr(stage, "graph_module", stage)


def page(bundle, language="en"):
    return bundle[BILINGUAL_MIME][language]["text/html"]


def box(stage, name, **options):
    return read_graph(stage, **options).boxes[name]


# --- what is drawn -------------------------------------------------------------------------------------------------


def test_every_node_is_drawn_folded_or_counted_as_hidden(fx_graph):
    view = read_graph(fx_graph)
    nodes = {node.name for node in module_of(fx_graph).graph.nodes}
    covered = [name for box in view.boxes.values() for name in box.nodes]
    assert set(covered) | set(view.hidden) == nodes
    assert not set(covered) & set(view.hidden)


def test_each_op_has_exactly_one_rectangle(fx_graph):
    ops = [
        node.name
        for node in module_of(fx_graph).graph.nodes
        if node.op in ("call_function", "call_module", "call_method", "output")
        and node.target is not operator.getitem
        and node.name != "_guards_fn"
    ]
    svg = ElementTree.fromstring(draw(read_graph(fx_graph)).svg("a"))
    drawn = [rect.get("data-node") for rect in svg.iter(f"{SVG}rect")]
    assert sorted(set(ops) & set(drawn)) == sorted(ops)
    assert len(drawn) == len(set(drawn))


def test_edges_are_those_of_the_graph(fx_graph):
    view = read_graph(fx_graph)
    expected = set()
    for node in module_of(fx_graph).graph.nodes:
        for source in node.all_input_nodes:
            source = source.args[0] if source.target is operator.getitem else source
            if node.name in view.boxes and source.name in view.boxes:
                expected.add((source.name, node.name))
    assert {(edge.source, edge.target) for edge in view.edges} == expected
    assert set(draw(view).layout.routes) == expected


def test_as_many_observers_are_drawn_as_the_graph_has_places_for_them(stages):
    prepared = stages["prepared"]
    places = [name for name, module in prepared.named_modules(remove_duplicate=False) if is_observer(module)]
    assert read_graph(prepared).count("observer") == len(places) > 0


def test_a_shared_observer_carries_the_same_letter_everywhere(stages):
    prepared = stages["prepared"]
    view = read_graph(prepared)
    objects = {}
    for node in prepared.graph.nodes:
        if node.op == "call_module" and is_observer(prepared.get_submodule(node.target)):
            objects.setdefault(id(prepared.get_submodule(node.target)), []).append(node.name)
    letters = []
    for names in objects.values():
        lines = {view.boxes[name].lines[0] for name in names}
        assert len(lines) == 1
        shared = re.fullmatch("shared ([A-Z])", lines.pop())
        assert (shared is not None) == (len(names) > 1)
        letters += [shared[1]] if shared else []
    assert len(letters) == len(set(letters))


def test_the_cat_shares_one_observer_among_its_inputs_and_output(cat):
    lines = [box.lines[0] for box in read_graph(cat["prepared"]).boxes.values() if box.kind == "observer"]
    assert lines.count("shared A") == 4


def test_scale_and_zero_point_are_those_of_the_node(stages):
    count = 0
    for node in stages["quantized"].graph.nodes:
        if "quantize_per_tensor" in node.name and node.op == "call_function":
            drawn = box(stages["quantized"], node.name)
            assert drawn.kind == "qdq"
            assert drawn.title == ("dq" if node.name.startswith("de") else "q")
            assert drawn.lines == [f"s={scale_text(node.args[1])}", f"z={node.args[2]}"]
            assert float(drawn.lines[0][2:]) == pytest.approx(node.args[1], rel=5e-4)
            assert str(node.args[1]) in drawn.hint
            count += 1
    assert count >= 4


def test_a_dequantized_weight_tells_its_channels_and_its_integer_shape(conv_relu):
    drawn = box(conv_relu["quantized"], "dequantize_per_channel_default")
    assert drawn.lines == ["8 ch", "‹weight int8 8×3×3×3›"]


@pytest.mark.parametrize("kind", ["exported", "program", "traced"])
def test_weights_stand_in_the_box_of_their_op(conv_relu, kind):
    (drawn,) = [b for b in read_graph(conv_relu[kind]).boxes.values() if b.title.lower() == "conv2d"]
    assert drawn.lines[-2:] == ["‹weight 8×3×3×3›", "‹bias 8›"]


def test_the_weight_of_a_prepared_graph_stands_under_its_observer(conv_relu):
    view = read_graph(conv_relu["prepared"])
    assert view.boxes["conv2d"].lines == ["‹bias 8›"]
    (weights,) = [b for b in view.boxes.values() if b.title == "PerChannelMinMax"]
    assert weights.lines == ["observer", "‹weight 8×3×3×3›"]


def test_a_graph_module_taken_out_of_its_program_folds_its_parameters_too(conv_relu):
    assert list(read_graph(conv_relu["program"].graph_module).boxes) == ["x", "conv2d", "relu", "output"]


def test_guards_are_hidden_but_named(conv_relu):
    view = read_graph(conv_relu["exported"])
    assert view.hidden == ["_guards_fn"]
    assert "not drawn: _guards_fn" in view.text()


def test_everything_draws_every_node(fx_graph):
    view = read_graph(fx_graph, everything=True)
    assert list(view.boxes) == [node.name for node in module_of(fx_graph).graph.nodes]
    assert view.hidden == []
    assert_tidy(draw(view).layout)


def test_a_delegate_opens_to_the_graph_that_was_lowered(conv_relu):
    drawn = box(conv_relu["edge"], "executorch_call_delegate")
    assert (drawn.kind, drawn.lines) == ("delegate", ["lowered_module_0", "XnnpackBackend"])
    inner = [node.name for node in conv_relu["inner"].graph.nodes if node.op == "call_function"]
    assert [name for name, b in drawn.inner.boxes.items() if b.kind in ("op", "qdq")] == inner


def test_each_delegate_has_its_own_details(published):
    graph(stages_of("unsupported")["edge"], alt=ALT)
    root = html.fragment_fromstring(page(published[0]))
    summaries = [summary.text_content() for summary in root.iter("summary")]
    assert [re.search(r"lowered_module_\d", text)[0] for text in summaries] == ["lowered_module_0", "lowered_module_1"]
    assert all(details.get("open") is None and details.find(".//svg") is not None for details in root.iter("details"))


def test_edges_tell_dtype_and_shape_with_nothing_for_float32(conv_relu):
    edges = {(e.source, e.target): (e.dtype, e.shape) for e in read_graph(conv_relu["quantized"]).edges}
    assert edges["x", "quantize_per_tensor_default"] == ("", "1×3×16×16")
    assert edges["quantize_per_tensor_default", "dequantize_per_tensor_default"] == ("int8", "1×3×16×16")
    assert edges["dequantize_per_channel_default", "conv2d"] == ("", "8×3×3×3")
    assert edges["relu", "quantize_per_tensor_default_1"] == ("", "1×8×16×16")


@pytest.mark.parametrize("kind", ["exported", "prepared", "quantized", "program", "edge", "inner"])
def test_types_agree_with_what_flows_through_the_graph(conv_relu, kind):
    """Run the graph and look: meta is missing on the nodes that prepare and convert insert."""
    seen = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, node):
            value = super().run_node(node)
            if isinstance(value, torch.Tensor):
                seen[node.name] = value
            return value

    view = read_graph(conv_relu[kind])
    if kind in ("program", "edge", "inner"):
        known = {node.name: node.meta["val"] for node in module_of(conv_relu[kind]).graph.nodes if "val" in node.meta}
        seen = {name: value for name, value in known.items() if isinstance(value, torch.Tensor)}
    else:
        Recorder(conv_relu[kind]).run(*example_inputs())
    checked = 0
    for edge in view.edges:
        if edge.source in seen:
            value = seen[edge.source]
            assert edge.shape == "×".join(map(str, value.shape))
            assert edge.dtype == ("" if value.dtype == torch.float32 else str(value.dtype).removeprefix("torch."))
            checked += 1
    assert checked >= len(view.edges) - 1


def test_a_note_stands_in_its_box_and_only_draws_a_part(tiny):
    view = read_graph(tiny["exported"], notes={"conv2d_1": "31.5 dB"}, only=["relu", "conv2d_1", "batch_norm_1"])
    assert list(view.boxes) == ["relu", "conv2d_1", "batch_norm_1"]
    assert view.boxes["conv2d_1"].lines[-1] == "31.5 dB"
    assert [(e.source, e.target) for e in view.edges] == [("relu", "conv2d_1"), ("conv2d_1", "batch_norm_1")]


@pytest.mark.parametrize("option", [{"notes": {"conv_1": "x"}}, {"only": ["conv_1"]}])
def test_a_node_that_the_graph_does_not_have_is_refused(conv_relu, option):
    with pytest.raises(ValueError, match="no node named conv_1"):
        read_graph(conv_relu["exported"], **option)


def test_fake_quants_are_told_from_observers():
    class FusedMovingAvgObsFakeQuantize(nn.Module):
        pass

    class RangeRecorder(nn.Module):
        pass

    assert observer_title(FusedMovingAvgObsFakeQuantize()) == ("FusedMovingAvg", "fake quant")
    assert observer_title(RangeRecorder()) == ("RangeRecorder", "observer")
    assert is_observer(RangeRecorder())
    assert not is_observer(nn.ReLU())


# --- where it is drawn ---------------------------------------------------------------------------------------------


def overlap(a, b):
    return a.x < b.right and b.x < a.right and a.y < b.bottom and b.y < a.bottom


def crosses(start, end, rect):
    (x0, x1), (y0, y1) = sorted((start[0], end[0])), sorted((start[1], end[1]))
    return x0 < rect.right - 1 and x1 > rect.x + 1 and y0 < rect.bottom - 1 and y1 > rect.y + 1


def assert_tidy(layout):
    """Boxes apart, everything inside the drawing, edges level or upright and through no box."""
    for a, b in combinations(layout.boxes.values(), 2):
        assert not overlap(a, b)
    for rect in layout.boxes.values():
        assert rect.x >= 0 and rect.y >= 0 and rect.right <= layout.width + 0.01 and rect.bottom <= layout.height + 0.01
    for (source, target), route in layout.routes.items():
        for start, end in pairwise(route.points):
            assert start[0] == end[0] or start[1] == end[1]
            for name, rect in layout.boxes.items():
                assert not crosses(start, end, rect), f"{source} -> {target} runs through {name}"
        assert touches(layout.boxes[source], route.points[0])
        assert touches(layout.boxes[target], route.points[-1])
        for x, y in route.points:
            assert -0.01 <= x <= layout.width + 0.01 and -0.01 <= y <= layout.height + 0.01


def touches(rect, point):
    x, y = point
    on_side = x in (rect.x, rect.right) and rect.y <= y <= rect.bottom
    return on_side or (y in (rect.y, rect.bottom) and rect.x <= x <= rect.right)


@pytest.mark.parametrize("types", [False, True])
def test_real_graphs_are_tidy_and_fit_the_page(fx_graph, types):
    drawing = draw(read_graph(fx_graph), types=types)
    assert_tidy(drawing.layout)
    assert drawing.layout.width <= MAX_WIDTH * 1.05


@pytest.mark.parametrize("types", [False, True])
def test_text_fits_its_box_and_labels_touch_nothing(fx_graph, types):
    drawing = draw(read_graph(fx_graph, names=True), types=types)
    for name, lines in drawing.texts.items():
        rect = drawing.layout.boxes[name]
        for line in lines:
            assert rect.x < line.x - line.width / 2 and line.x + line.width / 2 < rect.right
            assert rect.y < line.y - 0.8 * line.size and line.y + 0.2 * line.size < rect.bottom
        for above, below in pairwise(lines):
            assert below.y - above.y >= below.size
    areas = [(t.x - t.width / 2, t.y - 0.8 * t.size, t.x + t.width / 2, t.y + 0.2 * t.size) for t in drawing.labels]
    assert bool(areas) == (types and any(edge.shape for edge in drawing.view.edges))
    for area in areas:
        for rect in drawing.layout.boxes.values():
            assert not (area[0] < rect.right and rect.x < area[2] and area[1] < rect.bottom and rect.y < area[3])
    for a, b in combinations(areas, 2):
        assert not (a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3])


@pytest.mark.parametrize("seed", range(150))
def test_any_graph_is_laid_out_tidily(seed):
    chance = random.Random(seed)
    count = chance.randint(1, 40)
    sizes = {f"n{i}": (chance.randint(30, 150), chance.randint(20, 70)) for i in range(count)}
    edges = []
    for i in range(1, count):
        if chance.random() < 0.85:  # the others take nothing, like weights
            for _ in range(1 if chance.random() < 0.7 else 3):
                edges.append((f"n{max(0, i - 1 - int(chance.expovariate(0.6)))}", f"n{i}"))
    labels = {edge: (chance.randint(20, 70), 14) for edge in edges} if seed % 2 else {}
    layout = lay_out(sizes, edges, inputs=["n0"], labels=labels)
    assert set(layout.boxes) == set(sizes)
    assert set(layout.routes) == set(edges)
    assert_tidy(layout)


def test_the_main_line_is_straight_and_weights_stand_under_their_op(conv_relu):
    boxes = draw(read_graph(conv_relu["quantized"])).layout.boxes
    main = [rect for name, rect in boxes.items() if "per_channel" not in name]
    assert len({round(rect.middle, 3) for rect in main}) == 1
    weights, op = boxes["dequantize_per_channel_default"], boxes["conv2d"]
    assert weights.y > op.bottom and weights.center == pytest.approx(op.center)


def test_a_skip_connection_runs_above_the_main_line(tiny):
    layout = draw(read_graph(tiny["prepared"])).layout
    adding = layout.boxes["add"]
    (skip,) = [r for (_, target), r in layout.routes.items() if target == "add" and r.points[-1][1] == adding.y]
    assert min(y for _, y in skip.points) < adding.y


def test_a_large_graph_is_laid_out_in_under_a_second():
    sizes = {f"n{i}": (80, 44) for i in range(400)}
    edges = list(pairwise(sizes)) + [(f"n{i}", f"n{i + 8}") for i in range(0, 390, 10)]
    start = time.perf_counter()
    lay_out(sizes, edges, inputs=["n0"])
    assert time.perf_counter() - start < 2  # twice the bound: absolute times depend on the machine


# --- what comes out ------------------------------------------------------------------------------------------------


def test_a_drawing_is_a_named_image_in_both_languages(conv_relu, published):
    graph(conv_relu["quantized"], alt=ALT, caption=T(zh="圖說", en="Caption"))
    for language in ("zh", "en"):
        root = html.fragment_fromstring(page(published[0], language))
        (svg,) = root.iter("svg")
        assert (svg.get("role"), svg.get("aria-label")) == ("img", ALT.in_language(language))
        assert root.find("figcaption").text == {"zh": "圖說", "en": "Caption"}[language]
    plain = published[0][BILINGUAL_MIME]["zh"]["text/plain"]
    assert plain.startswith("[圖說 | 圖 <一>]")
    assert "conv2d = conv2d(dequantize_per_tensor_default, dequantize_per_channel_default)  ‹bias 8›" in plain


def test_drawings_have_no_ids_so_a_page_may_hold_many(stages, published):
    graph(stages["quantized"], alt=ALT, types=True)
    stepper([(kind, stages[kind]) for kind in ("exported", "prepared", "quantized")], alt=ALT)
    for bundle in published:
        assert " id=" not in page(bundle)
        assert "url(#" not in page(bundle)


def test_names_are_escaped(published):
    module = torch.fx.symbolic_trace(get_model("conv_relu"))
    graph(module, alt=ALT, notes={"conv": "a<b & 'c'"})
    root = html.fragment_fromstring(page(published[0]))
    assert "a<b & 'c'" in [text.text for text in root.iter("text")]


def test_drawing_twice_gives_the_same_bytes(stages, published):
    for _ in range(2):
        graph(stages["prepared"], alt=ALT, types=True)
    assert published[0] == published[1]


def test_three_stages_of_the_smallest_model_stay_small(conv_relu, published):
    graph([(kind, conv_relu[kind]) for kind in ("exported", "prepared", "quantized")], alt=ALT)
    assert len(page(published[0]).encode()) < 15_000


def test_stages_have_titles_in_the_pages_language(conv_relu, published):
    graph([(T(zh="匯出", en="Export"), conv_relu["exported"]), ("convert", conv_relu["quantized"])], alt=ALT)
    for language, first in {"zh": "匯出", "en": "Export"}.items():
        root = html.fragment_fromstring(page(published[0], language))
        assert [title.text_content() for title in root.iter("p")] == [first, "convert"]
        # a figure may have no other role
        assert (root.get("role"), root.get("aria-label")) == (None, ALT.in_language(language))
        labels = [svg.get("aria-label") for svg in root.iter("svg")]
        assert labels[0].startswith(first) and labels[1].startswith("convert: ")
        assert "3" in labels[1]  # dq


def test_wide_drawings_scroll_in_a_box_that_the_keyboard_reaches(conv_relu, published):
    graph(conv_relu["quantized"], alt=ALT)
    graph(conv_relu["exported"], alt=ALT)
    boxes = [html.fragment_fromstring(page(bundle)).find(".//div[@class='pt2e-scroll']") for bundle in published]
    assert [box.get("tabindex") for box in boxes] == ["0", None]
    assert all("overflow-x:auto" in box.get("style") for box in boxes)
    assert boxes[0].get("aria-label")


def test_a_stepper_marks_what_is_new_and_says_what_went(conv_relu, published):
    kinds = ("exported", "prepared", "quantized", "edge")
    stepper([(kind, conv_relu[kind]) for kind in kinds], alt=ALT)
    root = html.fragment_fromstring(page(published[0]))
    panels = root.find(".//div[@class='pt2e-panels']")
    for (before, after), panel in zip(pairwise(kinds), panels[1:], strict=True):
        old, new = set(read_graph(conv_relu[before]).boxes), set(read_graph(conv_relu[after]).boxes)
        rects = panel.find(".//svg").iter("rect")
        assert {rect.get("data-node") for rect in rects if rect.get("stroke-width")} == new - old
    assert len(list(panels[0].iter("circle"))) == 0
    texts = [panel.find("p").text_content() if panel.find("p") is not None else "" for panel in panels]
    assert texts[2] == "added: dq ×3, q ×2; removed: PerChannelMinMax, Histogram ×2"


def test_a_stepper_tells_edges_that_changed_between_the_same_boxes(published):
    class Two(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x) * torch.neg(x)

    traced, rewired = torch.fx.symbolic_trace(Two()), torch.fx.symbolic_trace(Two())
    relu, neg = (next(node for node in rewired.graph.nodes if node.name == name) for name in ("relu", "neg"))
    neg.args = (relu,)
    rewired.recompile()
    stepper([("before", traced), ("after", rewired), ("same", rewired)], alt=ALT)
    panels = html.fragment_fromstring(page(published[0])).find(".//div[@class='pt2e-panels']")
    assert [panel.find("p").text_content() for panel in panels[1:]] == [
        "rewired; new edges: relu → neg",
        "The graph is unchanged.",
    ]


def test_a_stepper_is_a_group_of_radio_buttons_with_one_panel_each(conv_relu, published):
    for kinds in (("exported", "prepared"), ("prepared", "quantized", "edge")):
        stepper([(kind, conv_relu[kind]) for kind in kinds], alt=ALT)
        root = html.fragment_fromstring(page(published[-1]))
        radios = list(root.iter("input"))
        assert [radio.getparent().text_content() for radio in radios] == list(kinds)
        assert [radio.get("checked") is not None for radio in radios] == [True] + [False] * (len(kinds) - 1)
        assert len(root.find(".//div[@class='pt2e-panels']")) == len(kinds)
    names = [set(re.findall('name="(s[^"]+)"', page(bundle))) for bundle in published]
    assert all(len(name) == 1 for name in names) and names[0] != names[1]


def test_a_stepper_with_one_stage_is_refused(conv_relu):
    with pytest.raises(ValueError, match="two stages or more, got 1"):
        stepper([("export", conv_relu["exported"])], alt=ALT)


@pytest.mark.parametrize("shown", [graph, stepper])
def test_a_drawing_without_alternative_text_is_refused(conv_relu, shown):
    with pytest.raises(TypeError, match="alt must be T"):
        shown([("a", conv_relu["exported"]), ("b", conv_relu["prepared"])], alt="English only")


# --- colors --------------------------------------------------------------------------------------------------------


def luminance(rgb):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (value / 255 for value in rgb)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    bright, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def over(color, alpha, ground):
    return [alpha * c + (1 - alpha) * g for c, g in zip(color, ground, strict=True)]


# Material's text and background in its two schemes.
@pytest.mark.parametrize(
    ("ink", "ink_alpha", "ground"), [((0, 0, 0), 0.87, (255, 255, 255)), ((226, 228, 233), 0.82, (30, 33, 41))]
)
@pytest.mark.parametrize("kind", list(draw_module._COLORS))
def test_text_in_boxes_and_their_borders_can_be_seen_in_both_schemes(kind, ink, ink_alpha, ground):
    fill, stroke = draw_module._COLORS[kind]
    red, green, blue, alpha = re.fullmatch(r"rgba\((\d+),(\d+),(\d+),(\.\d+)\)", fill).groups()
    inside = over((int(red), int(green), int(blue)), float(alpha), ground)
    assert contrast(over(ink, ink_alpha, inside), inside) >= 4.5
    border = [int(stroke[i : i + 2], 16) for i in (1, 3, 5)]
    assert contrast(border, ground) >= 3


def test_han_characters_are_reckoned_wider():
    assert text_width("量化", DETAIL) == 2 * DETAIL
    assert text_width("q", DETAIL) < DETAIL


# --- in a browser --------------------------------------------------------------------------------------------------


@pytest.mark.site
def test_text_fits_its_box_as_a_browser_measures_it(browser, conv_relu, tiny, published):
    graph(tiny["quantized"], alt=ALT)
    graph([(kind, conv_relu[kind]) for kind in ("exported", "prepared", "traced")], alt=ALT)
    tab = browser.new_page(viewport={"width": 760, "height": 900})
    tab.set_content("".join(page(bundle) for bundle in published))
    measured = tab.evaluate(
        """() => [...document.querySelectorAll("svg")].map(svg => ({
            boxes: [...svg.querySelectorAll("rect")].map(rect => rect.getBoundingClientRect().toJSON()),
            texts: [...svg.querySelectorAll("text")].map(
                text => ({words: text.textContent, ...text.getBoundingClientRect().toJSON()}))}))"""
    )
    tab.close()
    for svg in measured:
        assert svg["texts"]
        for text in svg["texts"]:
            assert any(
                rect["left"] < text["left"]
                and text["right"] < rect["right"]
                and rect["top"] < text["top"] + 2
                and text["bottom"] - 2 < rect["bottom"]
                for rect in svg["boxes"]
            ), text["words"]


@pytest.mark.site
def test_a_stepper_is_stepped_by_keyboard_without_javascript(browser, conv_relu, published):
    kinds = ("exported", "prepared", "quantized", "edge")
    stepper([(kind, conv_relu[kind]) for kind in kinds], alt=ALT)
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.set_content(page(published[0]))
    panels = tab.locator(".pt2e-panels > div")

    def shown():
        return [panels.nth(number).is_visible() for number in range(len(kinds))]

    assert shown() == [True, False, False, False]
    tab.keyboard.press("Tab")
    for number in range(1, len(kinds)):
        tab.keyboard.press("ArrowRight")
        assert shown() == [place == number for place in range(len(kinds))]
    tab.keyboard.press("Tab")  # the scrolling box
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")  # the delegate opens
    assert panels.nth(3).locator("details svg").is_visible()
    context.close()


@pytest.mark.site
def test_a_phone_scrolls_a_wide_drawing_and_not_the_page(browser, tiny, published):
    graph(tiny["quantized"], alt=ALT)
    tab = browser.new_page(viewport={"width": 390, "height": 800})
    tab.set_content('<meta name="viewport" content="width=device-width">' + page(published[0]))
    widths = tab.evaluate(
        """() => ({page: document.documentElement.scrollWidth, box: document.querySelector(".pt2e-scroll").scrollWidth,
            text: document.querySelector("text").getBoundingClientRect().height})"""
    )
    tab.close()
    assert widths["page"] <= 390 < widths["box"]
    assert widths["text"] >= 9
