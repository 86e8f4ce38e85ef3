"""What a function's result depends on, as a hash: the key of `common.artifacts`.

A function of `common` counts with its module and all that this imports; one written in a chapter counts with its own
bytecode and what it reads from outside: functions alike, and values by content.
"""

import ast
import contextlib
import dataclasses
import dis
import enum
import functools
import hashlib
import importlib.metadata
import importlib.util
import platform
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common.env import cpu_class

FORMAT = 1  # raise it when entries or keys change their meaning

# Modules that can't change what a build function computes: these two (FORMAT stands for them) and the quieting.
_WITHOUT_EFFECT = {"common", "common.artifacts", "common.artifact_key"}


def artifact_key(name: str, build: Callable[[], Any], *, measurement: bool = False) -> str:
    """Sixteen hex digits that change with everything the result of `build` depends on."""
    facts = _Facts()
    facts.add(name, build, "build")
    parts = [f"format {FORMAT}", f"python {platform.python_version()}", *facts.lines()]
    if measurement:
        parts.append(f"cpu {cpu_class()}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class _Facts:
    """Collects, as lines of text, what a function depends on."""

    def __init__(self) -> None:
        self._values: list[str] = []
        self._modules: set[str] = set()
        self._seen: dict[int, Any] = {}  # by id; keeps the objects alive so that ids stay theirs

    def lines(self) -> list[str]:
        sources, libraries = module_facts(self._modules)
        return [*self._values, *sources, *library_facts(libraries)]

    def add(self, label: str, value: Any, path: str) -> None:
        """Describe one value. `path` tells a reader of an error message where it was found."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            self._values.append(f"{label} = {value!r}")
        elif type(value) is tuple:  # equal tuples may be one object or two: identity says nothing
            self._values.append(f"{label}: tuple of {len(value)}")
            for i, item in enumerate(value):
                self.add(f"[{i}]", item, f"{path}[{i}]")
        elif id(value) in self._seen:
            self._values.append(f"{label} = number {list(self._seen).index(id(value))}")
        else:
            self._seen[id(value)] = value
            self._values.append(f"{label}: {type(value).__name__}")
            self._add_new(value, path)

    def _add_new(self, value: Any, path: str) -> None:
        if isinstance(value, types.ModuleType):
            self._modules.add(value.__name__)
        elif isinstance(value, functools.partial):
            self.add("func", value.func, path)
            self.add("args", value.args, path)
            self.add("keywords", value.keywords, path)
        elif isinstance(value, types.MethodType):
            self.add("function", value.__func__, path)
            self.add("self", value.__self__, path)
        elif isinstance(value, type | _FUNCTIONS):
            self._add_code(value, path)
        elif isinstance(value, list | tuple):
            for i, item in enumerate(value):
                self.add(f"[{i}]", item, f"{path}[{i}]")
        elif isinstance(value, dict):
            for k, item in value.items():
                self.add(f"[{k!r}]", item, f"{path}[{k!r}]")
        elif isinstance(value, set | frozenset):
            self._values += sorted(map(repr, value))
        elif dataclasses.is_dataclass(value):
            self.add("class", type(value), path)
            for field in dataclasses.fields(value):
                self.add(field.name, getattr(value, field.name), f"{path}.{field.name}")
        else:
            self._add_object(value, path)

    def _add_code(self, value: Any, path: str) -> None:
        """Functions and classes: those of modules by their module, those of a chapter or a test by their own code."""
        module = getattr(value, "__module__", None) or "builtins"
        if _is_importable(module):
            self._modules.add(module)
            self._values.append(f"{module}.{value.__qualname__}")
        elif isinstance(value, type):
            for base in value.__bases__:
                self.add("base", base, path)
            for name, member in vars(value).items():
                if isinstance(member, classmethod | staticmethod):
                    member = member.__func__
                elif isinstance(member, property):
                    member = member.fget
                is_code = isinstance(member, types.FunctionType)
                if is_code or (not name.startswith("__") and isinstance(member, str | int | float | tuple)):
                    self.add(name, member, f"{path}.{name}")
        else:
            self._values += _bytecode(value.__code__)
            if hasattr(value, "__wrapped__"):  # decorated, such as by torch.no_grad()
                self.add("wrapped", value.__wrapped__, path)
                return
            self.add("defaults", value.__defaults__, path)
            self.add("keyword defaults", value.__kwdefaults__, path)
            for name, outside in _read_from_outside(value).items():
                self.add(name, outside, f"{path} -> {name}")

    def _add_object(self, value: Any, path: str) -> None:
        """Tensors, models and programs, by content."""
        import numpy as np
        import torch

        plain = (torch.dtype, torch.device, torch.memory_format, torch._ops.OpOverload, np.generic, Path, range)
        if isinstance(value, (*plain, enum.Enum)):
            self._values.append(repr(value))
        elif isinstance(value, torch.Tensor):
            self._values.append(f"{value.dtype} {tuple(value.shape)} {value.stride()} {_tensor_digest(value)}")
        elif isinstance(value, np.ndarray) and value.dtype != object:
            self._values.append(f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}")
        elif isinstance(value, torch.export.ExportedProgram):
            self._values += [value.graph_module.code, str(value.graph_signature)]
            self.add("state", dict(value.state_dict), path)
            self.add("constants", dict(value.constants), path)
        elif isinstance(value, torch.nn.Module):
            self._values.append(repr(value))
            self.add("training", value.training, path)
            for name, module in value.named_modules():
                is_graph = isinstance(module, torch.fx.GraphModule)
                self.add(name, module.code if is_graph else type(module), f"{path}.{name}")
            self.add("state", dict(value.state_dict()), path)
        elif hasattr(value, "artifact_key"):  # such as PteRunner: the object says what it is made of
            self.add("artifact_key", value.artifact_key, path)
        else:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise TypeError(f"{path} is a {kind}, whose content can't be compared; make it inside the build function")


_FUNCTIONS = types.FunctionType | types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType


def _is_importable(module: str) -> bool:
    """Whether a module's code is known by file or version: `common` and what is installed, not chapters and tests."""
    if module.partition(".")[0] == "common":
        return True
    if module == "__main__":  # in a kernel, its file is ipykernel's launcher
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or any(Path(file).is_relative_to(folder) for folder in sysconfig.get_paths().values())


def _bytecode(code: types.CodeType) -> list[str]:
    """The code without line numbers, comments and layout."""
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            constants += _bytecode(constant)
        else:
            constants.append(repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant))
    return [code.co_code.hex(), *constants, *code.co_names, *code.co_varnames, *code.co_freevars]


def _read_from_outside(function: types.FunctionType) -> dict[str, Any]:
    """Values of the globals and enclosing variables that a function reads, nested functions included."""
    names = {
        instruction.argval
        for code in _nested(function.__code__)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    values = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not yet assigned
            values[name] = cell.cell_contents
    return dict(sorted(values.items()))


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _tensor_digest(tensor: Any) -> str:
    import torch

    data = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return hashlib.sha256(data.numpy().tobytes()).hexdigest()


def module_facts(modules: set[str]) -> tuple[list[str], set[str]]:
    """A line with the digest of each module of `common` among `modules` and of those they import, transitively;

    and the other top-level names.

    Nothing is imported for it, and comments and docstrings don't count.
    """
    digests: dict[str, str] = {}
    libraries: set[str] = set()
    waiting = sorted(modules)
    while waiting:
        module = waiting.pop()
        if module.partition(".")[0] != "common":
            libraries.add(module.partition(".")[0])
            continue
        file = _source_file(module)
        if module in digests or module in _WITHOUT_EFFECT or file is None:
            continue
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        digests[module], imported = _source_facts(file.read_text(encoding="utf-8"), package)
        waiting += imported
    return [f"{module} {digest}" for module, digest in sorted(digests.items())], libraries


def _source_file(module: str) -> Path | None:
    """The file of a module of `common`; None for the name of a function in one (`common.data.make_data`)."""
    place = Path(__file__).resolve().parents[1].joinpath(*module.split("."))
    return next((file for file in (place.with_name(f"{place.name}.py"), place / "__init__.py") if file.is_file()), None)


@functools.lru_cache(maxsize=256)
def _source_facts(source: str, package: str) -> tuple[str, tuple[str, ...]]:
    """Digest of a module's code, and the names it imports anywhere."""
    tree = ast.parse(source)
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            imported |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), tuple(sorted(imported))


def library_facts(libraries: set[str]) -> list[str]:
    """A line with the version of each installed distribution that provides one of these top-level names."""
    lines = set()
    for library in libraries - sys.stdlib_module_names:
        for distribution in _distributions(library):
            lines.add(f"{distribution} {importlib.metadata.version(distribution)}")
    return sorted(lines)


@functools.cache
def _distributions(library: str) -> list[str]:
    """The distributions that provide a top-level name, which mostly is their own; asking for all of them is slow."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version(library)
        return [library]
    return importlib.metadata.packages_distributions().get(library, [])
