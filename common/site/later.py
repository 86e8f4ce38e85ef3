"""Modules that are imported when something of theirs is first used.

mkdocs-jupyter imports nbconvert when MkDocs loads it, which takes half a second, also of builds that convert nothing.
"""

from __future__ import annotations

import importlib.util
import sys


def import_later(name: str) -> None:
    """Put the module in its place unexecuted, for whoever imports it from now on; one that is there already stays."""
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
