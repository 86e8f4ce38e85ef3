"""What a chapter's outputs depend on, as one hash.

The key covers the code cells, the helper modules they import (transitively, without comments), the installed versions
of every library reached from there (with what those libraries require), Python, and for measuring chapters the CPU
class. Prose, translations, tags and theme are not in it: changing them executes nothing.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import json
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path

from common.site.chapter import Chapter, ChapterError

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

EXECUTOR = 1  # raise when the way chapters are executed changes what they show


@dataclass(frozen=True)
class Parts:
    """A key's ingredients by name, so that `status` can say which one changed."""

    parts: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The hash of all ingredients, 32 hex digits."""
        return hashlib.sha256(json.dumps(self.parts, sort_keys=True).encode()).hexdigest()[:32]


def chapter_parts(chapter: Chapter, root: Path, packages: tuple[str, ...], cpu_class: str = "") -> Parts:
    """The ingredients of a chapter's key. `packages` are the helper packages below `root`, such as ("common",)."""
    parts = {
        "executor": str(EXECUTOR),
        "python": platform.python_version(),
        "code": digest("\n# %%\n".join(cell.source for cell in chapter.code_cells)),
    }
    imports = set()
    for cell in chapter.code_cells:
        imports |= imported_names(cell.source)
    libraries = set()
    for module in helper_modules(imports, root, packages):
        module_digest, names = _module(module, module.read_text(encoding="utf-8"), root)
        parts[f"module {module.relative_to(root).as_posix()}"] = module_digest
        libraries |= {name.split(".")[0] for name in names}
    libraries |= {name.split(".")[0] for name in imports}
    for name, version in library_versions(libraries - set(packages)).items():
        parts[f"version {name}"] = version
    if chapter.measures:
        parts["cpu class"] = cpu_class
    return Parts(parts)


@functools.lru_cache(maxsize=4096)
def imported_names(source: str, package: str = "") -> frozenset[str]:
    """Every dotted name that a source imports, also inside functions; `package` resolves relative imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            names.add(base)
            names |= {f"{base}.{alias.name}" for alias in node.names if alias.name != "*"}
    return frozenset(names)


def helper_modules(names: set[str], root: Path, packages: tuple[str, ...]) -> list[Path]:
    """The files of the helper modules among `names` and of all they import, sorted. Raises ChapterError."""
    found: set[Path] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name.split(".")[0] not in packages:
            continue
        for file in _module_files(name, root):
            if file not in found:
                found.add(file)
                waiting += _module(file, file.read_text(encoding="utf-8"), root)[1]
    return sorted(found)


def _module_files(name: str, root: Path) -> list[Path]:
    """The files that importing `name` runs: the module (or nothing where it names an object) and its packages."""
    words = name.split(".")
    files = [root.joinpath(*words[:depth], "__init__.py") for depth in range(1, len(words) + 1)]
    files.append(root.joinpath(*words[:-1], f"{words[-1]}.py"))
    return [file for file in files if file.is_file()]


@functools.lru_cache(maxsize=1024)
def _module(file: Path, source: str, root: Path) -> tuple[str, frozenset[str]]:
    """A helper file's digest (comments and layout don't count) and the names it imports."""
    package = ".".join(_package_of(file))
    try:
        return digest(ast.dump(ast.parse(source))), imported_names(source, package)
    except SyntaxError as error:
        where = file.relative_to(root).as_posix()
        raise ChapterError(where, error.lineno or 1, f"{error.msg}: `{(error.text or '').strip()}`") from error


def _package_of(file: Path) -> list[str]:
    words: list[str] = []
    folder = file.parent
    while (folder / "__init__.py").is_file():
        words.insert(0, folder.name)
        folder = folder.parent
    return words


def _distributions_of(module: str) -> list[str]:
    """The distributions that a top-level module comes from: the one of its own name, or what all of them declare."""
    return [module] if _distribution(canonicalize_name(module)) else _distributions_by_module().get(module, [])


@functools.lru_cache(maxsize=1)
def _distributions_by_module() -> dict[str, list[str]]:
    return {name: list(dists) for name, dists in importlib.metadata.packages_distributions().items()}


def library_versions(modules: set[str]) -> dict[str, str]:
    """Version by distribution name for these top-level modules and everything their distributions require."""
    waiting = [dist for module in modules - sys.stdlib_module_names for dist in _distributions_of(module)]
    versions: dict[str, str] = {}
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in versions:
            continue
        found = _distribution(name)
        if found:
            versions[name], requires = found
            waiting += requires
    return dict(sorted(versions.items()))


@functools.lru_cache(maxsize=1024)
def _distribution(name: str) -> tuple[str, tuple[str, ...]] | None:
    """A distribution's version and the names it requires here (extras left out); None where it isn't installed."""
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    requires = []
    for text in found.requires or []:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            requires.append(requirement.name)
    return found.version, tuple(requires)


def digest(text: str) -> str:
    """A short hash of a text: 16 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
