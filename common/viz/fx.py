"""What a drawing of an FX graph shows: boxes and edges, read from the graph itself."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

HIDDEN_TARGETS = ("_guards_fn", "_assert_tensor_metadata", "_assert_scalar")

# Class names, so that neither torchao nor executorch is imported to draw a graph that uses neither.
_OBSERVER_BASES = {"ObserverBase", "FakeQuantizeBase", "AffineQuantizedObserverBase"}
_QUANTIZE = ("quantize_per_tensor", "quantize_per_channel", "quantize_per_token", "quantize_affine")


@dataclass
class Box:
    """One box of the drawing.

    `kind` is op, observer, qdq, io, const or delegate; `nodes` are the FX nodes it stands for, its own first.
    """

    name: str
    kind: str
    title: str
    lines: list[str] = field(default_factory=list)
    hint: str = ""
    nodes: list[str] = field(default_factory=list)
    inner: GraphView | None = None


@dataclass(frozen=True)
class Edge:
    """A tensor on its way; `dtype` is empty for float32, as on the drawing."""

    source: str
    target: str
    dtype: str = ""
    shape: str = ""


@dataclass
class GraphView:
    """Boxes by name in the graph's order, the edges between them, and the names of the nodes that aren't drawn."""

    boxes: dict[str, Box]
    edges: list[Edge]
    hidden: list[str]

    def count(self, kind: str) -> int:
        """How many boxes of that kind there are."""
        return sum(box.kind == kind for box in self.boxes.values())

    def text(self) -> str:
        """The graph as text, a line per box."""
        sources: dict[str, list[str]] = {name: [] for name in self.boxes}
        for edge in self.edges:
            sources[edge.target].append(edge.source)
        lines = []
        for box in self.boxes.values():
            call = box.title + (f"({', '.join(sources[box.name])})" if sources[box.name] else "")
            lines.append("  ".join([f"{box.name} = {call}", *box.lines]))
            if box.inner:
                lines += ["    " + line for line in box.inner.text().splitlines()]
        if self.hidden:
            lines.append(f"not drawn: {', '.join(self.hidden)}")
        return "\n".join(lines)


def read_graph(
    graph: GraphModule | torch.export.ExportedProgram,
    *,
    names: bool = False,
    everything: bool = False,
    notes: Mapping[str, str] | None = None,
    only: Collection[str] | None = None,
) -> GraphView:
    """Read a GraphModule, or an ExportedProgram with its lifted parameters folded like get_attr nodes."""
    return _Reader(graph, names, everything, notes or {}, only).read()


class _Reader:
    def __init__(
        self, graph: Any, names: bool, everything: bool, notes: Mapping[str, str], only: Collection[str] | None
    ) -> None:
        self.module: GraphModule = graph.graph_module if hasattr(graph, "graph_module") else graph
        self.nodes: list[Node] = list(self.module.graph.nodes)
        self.names, self.everything, self.notes = names, everything, notes
        self.only = set(only) if only is not None else None
        known = {node.name for node in self.nodes}
        if unknown := (set(notes) | (self.only or set())) - known:
            raise ValueError(f"the graph has no node named {', '.join(sorted(unknown))}")
        self.lifted = _lifted_tensors(graph)
        self.letters = self._letters_of_shared_modules()

    def read(self) -> GraphView:
        view = GraphView({}, [], [])
        drawn = [node for node in self.nodes if self._is_drawn(node)]
        for node in drawn:
            view.boxes[node.name] = self._box(node)
        for node in drawn:
            seen: set[tuple[str, int | None]] = set()
            for argument in node.all_input_nodes:
                source, index = _through_getitem(argument, self.everything)
                if source.name not in view.boxes or (source.name, index) in seen:
                    continue
                seen.add((source.name, index))
                dtype, shape = _type_of(argument)
                view.edges.append(Edge(source.name, node.name, dtype, shape))
        view.edges = list(dict.fromkeys(view.edges))
        covered = {name for box in view.boxes.values() for name in box.nodes}
        view.hidden = [node.name for node in self.nodes if node.name not in covered]
        return view

    def _is_drawn(self, node: Node) -> bool:
        if self.only is not None and node.name not in self.only:
            return False
        return self.everything or not (self._is_constant(node) or _is_getitem(node) or _is_noise(node))

    def _is_constant(self, node: Node) -> bool:
        return node.op == "get_attr" or node.name in self.lifted

    def _box(self, node: Node) -> Box:
        box = Box(node.name, "op", _op_name(node), nodes=[node.name], hint=_hint(node))
        if node.op in ("placeholder", "output"):
            box.kind = "const" if node.name in self.lifted else "io"
            box.title = node.name if node.op == "placeholder" else "output"
        elif node.op == "get_attr":
            box.kind, box.title = "const", _last(str(node.target))
            value = self._constant(node)
            box.lines = [_tensor_text("", value).strip("‹›") if hasattr(value, "shape") else type(value).__name__]
        elif node.op == "call_module":
            self._describe_module(box, node)
        elif _quantize_kind(node):
            box.kind = "qdq"
            box.lines = self._qparams(node)
        elif _base_name(node) == "executorch_call_delegate":
            self._describe_delegate(box, node)
        if not self.everything:
            self._fold(box, node)
        if self.names and node.name not in (box.title, *box.lines):
            box.lines.insert(0, node.name)
        if node.name in self.notes:
            box.lines.append(self.notes[node.name])
        return box

    def _describe_module(self, box: Box, node: Node) -> None:
        module = _get(self.module, str(node.target))
        class_name = type(module).__name__
        if is_observer(module):
            box.kind = "observer"
            box.title, line = observer_title(module)
            letter = self.letters.get(id(module))
            box.lines = [f"shared {letter}" if letter else line]
            box.hint = f"{node.name}: {class_name}"
        else:
            box.title = class_name if isinstance(module, torch.nn.Module) else str(node.target)
            box.lines = [] if str(node.target) == box.title else [str(node.target)]
            if isinstance(module, torch.nn.Module) and not self.everything:
                box.lines += _tensor_lines(list(module.named_parameters(recurse=False)))

    def _describe_delegate(self, box: Box, node: Node) -> None:
        lowered = _get(self.module, str(node.args[0].target))
        box.kind, box.title = "delegate", "executorch_call_delegate"
        box.lines = [str(node.args[0].target), lowered.backend_id]
        box.inner = _Reader(lowered.original_module, self.names, self.everything, {}, None).read()
        box.hint = f"{node.name}: executorch_call_delegate"
        if not self.everything:
            box.nodes.append(node.args[0].name)

    def _fold(self, box: Box, node: Node) -> None:
        """Write the constants that only serve this node into its box, and take over its getitem nodes."""
        constants = [argument for argument in node.all_input_nodes if self._is_constant(argument)]
        box.nodes += [constant.name for constant in constants if constant.name not in box.nodes]
        if box.kind != "delegate":
            shown = [constant for constant in constants if not _is_qparam(node, constant)]
            box.lines += _tensor_lines([(self._role(node, constant), self._constant(constant)) for constant in shown])
        box.nodes += [user.name for user in node.users if _is_getitem(user)]

    def _role(self, node: Node, constant: Node) -> str:
        """What the op calls this argument, if that says something: weight, bias; else the tensor's own name."""
        name = _argument_name(node, constant)
        if name in ("", "input", "self", "other", "tensors"):
            users = list(node.users)
            if (_quantize_kind(node) or node.op == "call_module") and len(users) == 1:
                return self._role(users[0], node) if users[0].op != "output" else "weight"
            return _last(self.lifted.get(constant.name) or str(constant.target))
        return name

    def _constant(self, node: Node) -> Any:
        target = self.lifted.get(node.name, node.target if node.op == "get_attr" else None)
        value = _get(self.module, str(target)) if target else None
        return value if value is not None else node.meta.get("val")

    def _qparams(self, node: Node) -> list[str]:
        arguments = _arguments_by_name(node)
        scale = arguments.get("scale", arguments.get("scales"))
        zero_point = arguments.get("zero_point", arguments.get("zero_points"))
        if isinstance(scale, Node) and self._is_constant(scale):
            tensor = self._constant(scale)
            if tensor is None or tensor.numel() != 1 or "per_channel" in _base_name(node):
                return [f"{tensor.numel()} ch" if tensor is not None else "per channel"]
            scale = _item(tensor)
            if isinstance(zero_point, Node) and self._is_constant(zero_point):
                zero_point = _item(self._constant(zero_point))
        if isinstance(scale, Node) or scale is None:
            return ["dynamic"]
        return [f"s={scale_text(scale)}"] + ([f"z={zero_point}"] if isinstance(zero_point, int) else [])

    def _letters_of_shared_modules(self) -> dict[int, str]:
        """A letter for each observer object that the graph calls more than once."""
        calls: dict[int, int] = {}
        for node in self.nodes:
            if node.op == "call_module" and is_observer(module := _get(self.module, str(node.target))):
                calls[id(module)] = calls.get(id(module), 0) + 1
        shared = [identity for identity, count in calls.items() if count > 1]
        return {identity: chr(ord("A") + number % 26) for number, identity in enumerate(shared)}


def scale_text(scale: float) -> str:
    """A scale as the drawing writes it, four significant digits."""
    return f"{scale:.4g}"


def is_observer(module: object) -> bool:
    """Whether a module is an observer or a fake quant, the library's or a home-made one named so."""
    names = {base.__name__ for base in type(module).__mro__}
    return bool(names & _OBSERVER_BASES) or type(module).__name__.endswith(("Observer", "FakeQuantize", "Recorder"))


def observer_title(module: object) -> tuple[str, str]:
    """The short class name and the word under it: ("Histogram", "observer"), ("FusedMovingAvg", "fake quant")."""
    name = type(module).__name__
    if name.endswith("FakeQuantize"):
        short = name.removesuffix("FakeQuantize").removesuffix("Obs")
        observer = getattr(module, "activation_post_process", None)
        return short or (observer_title(observer)[0] if observer is not None else name), "fake quant"
    return name.removesuffix("Observer") or name, "observer"


def _lifted_tensors(graph: Any) -> dict[str, str]:
    """Placeholders that are parameters, buffers or constants, with the name of what they hold."""
    signature = getattr(graph, "graph_signature", None)
    if signature is not None:
        return {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
    # A GraphModule taken out of its ExportedProgram has lost the signature; torch.export's name prefixes remain.
    module = graph
    return {
        node.name: ""
        for node in module.graph.nodes
        if node.op == "placeholder"
        and node.name.startswith(("p_", "b_", "c_"))
        and node.meta.get("val") is not None
        and _has_lifted_inputs(module)
    }


def _has_lifted_inputs(module: Any) -> bool:
    return not isinstance(getattr(module.graph, "_codegen", None), torch.fx.graph._PyTreeCodeGen)


def _get(module: Any, target: str) -> Any:
    """The attribute at a dotted path, or None."""
    for name in target.split("."):
        module = getattr(module, name, None)
        if module is None:
            return None
    return module


def _last(target: str) -> str:
    return target.rsplit(".", 1)[-1]


def _item(tensor: Any) -> Any:
    return tensor.detach().flatten()[0].item()


def _is_getitem(node: Node) -> bool:
    return node.op == "call_function" and node.target is operator.getitem and isinstance(node.args[0], Node)


def _is_noise(node: Node) -> bool:
    return node.op in ("call_module", "call_function") and _base_name(node) in HIDDEN_TARGETS and not node.users


def _through_getitem(node: Node, everything: bool) -> tuple[Node, int | None]:
    index = None
    while not everything and _is_getitem(node):
        node, index = node.args[0], node.args[1]
    return node, index


def _target(node: Node) -> Any:
    """The ATen op, also where executorch's Edge dialect wraps it."""
    return node.target._op if type(node.target).__name__ == "EdgeOpOverload" else node.target


def _schema(node: Node) -> Any:
    return getattr(_target(node), "_schema", None)


def _base_name(node: Node) -> str:
    """conv2d for torch.ops.aten.conv2d.default, add for operator.add."""
    schema = _schema(node)
    if schema is not None:
        namespace, name = schema.name.split("::")
        return name if namespace in ("aten", "quantized_decomposed", "torchao", "pt2e") else f"{namespace}.{name}"
    if isinstance(node.target, str):
        return node.target
    name = getattr(node.target, "__name__", None) or getattr(node.target, "_name", None)
    return name if isinstance(name, str) else str(node.target)


def _quantize_kind(node: Node) -> str:
    """ "q", "dq" or nothing."""
    if node.op != "call_function":
        return ""
    name = _base_name(node)
    if name.startswith(_QUANTIZE):
        return "q"
    return "dq" if name.startswith("de") and name[2:].startswith(_QUANTIZE) else ""


def _op_name(node: Node) -> str:
    if kind := _quantize_kind(node):
        dtype = _arguments_by_name(node).get("dtype", _arguments_by_name(node).get("output_dtype"))
        usual = kind == "dq" or dtype in (None, torch.int8)
        return kind if usual else f"{kind} {_dtype_text(dtype)}"
    return "." + str(node.target) if node.op == "call_method" else _base_name(node)


def _arguments_by_name(node: Node) -> dict[str, Any]:
    schema = _schema(node)
    if schema is None:
        return dict(node.kwargs)
    names = [argument.name for argument in schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _argument_name(node: Node, argument: Node) -> str:
    return next((name for name, value in _arguments_by_name(node).items() if value is argument), "")


def _is_qparam(node: Node, constant: Node) -> bool:
    return bool(_quantize_kind(node)) and _argument_name(node, constant).startswith(("scale", "zero_point"))


def _dtype_text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shape_text(shape: Collection[Any]) -> str:
    return "×".join(str(size) for size in shape) or "scalar"


def _tensor_text(name: str, value: Any) -> str:
    if value is None or not hasattr(value, "shape"):
        return f"‹{name}›"
    dtype = "" if value.dtype == torch.float32 else _dtype_text(value.dtype)
    return "‹" + " ".join(part for part in (name, dtype, _shape_text(value.shape)) if part) + "›"


def _tensor_lines(tensors: list[tuple[str, Any]]) -> list[str]:
    """‹name dtype shape› lines; four or more tensors (a batch norm) in one line."""
    if len(tensors) > 3:
        shapes = {_shape_text(value.shape) if hasattr(value, "shape") else "" for _, value in tensors}
        return [f"‹{len(tensors)} tensors" + (f" {shapes.pop()}›" if len(shapes) == 1 else "›")]
    return [_tensor_text(name, value) for name, value in tensors]


def _type_of(node: Node) -> tuple[str, str]:
    """dtype (empty for float32) and shape of what a node gives; both empty when the graph doesn't say."""
    value = node.meta.get("val", node.meta.get("tensor_meta"))
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return "" if value.dtype == torch.float32 else _dtype_text(value.dtype), _shape_text(value.shape)
    # prepare and convert write no meta on the nodes they insert; none of those changes the shape.
    if (kind := _quantize_kind(node)) or (node.op == "call_module" and len(node.all_input_nodes) == 1):
        dtype, shape = _type_of(node.all_input_nodes[0])
        if kind == "q":
            arguments = _arguments_by_name(node)
            dtype = _dtype_text(arguments.get("dtype", arguments.get("output_dtype")))
        return ("" if kind == "dq" else dtype), shape
    if node.op == "get_attr":
        value = _get(node.graph.owning_module, str(node.target))
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return "" if value.dtype == torch.float32 else _dtype_text(value.dtype), _shape_text(value.shape)
    return "", ""


def _hint(node: Node) -> str:
    """The text of the box's tooltip: the node's name and its full target, with the exact scale of a q or dq."""
    if node.op in ("placeholder", "output"):
        return f"{node.name}: {node.op}"
    text = f"{node.name}: {_target(node)}"
    if _quantize_kind(node):
        arguments = _arguments_by_name(node)
        exact = [
            f"{key}={arguments[key]}"
            for key in ("scale", "zero_point", "quant_min", "quant_max")
            if isinstance(arguments.get(key), int | float)
        ]
        text += f"({', '.join(exact)})" if exact else ""
    return text
