"""What chapters show: bilingual sentences and tables, charts, and FX graphs as drawings."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from common.viz.progress import progress
from common.viz.text import T, say, table

if TYPE_CHECKING:
    from common.viz.draw import graph, stepper
    from common.viz.figure import PALETTE, show

__all__ = ["PALETTE", "T", "graph", "progress", "say", "show", "stepper", "table"]

# Imported when first asked for: charts need matplotlib, drawings need torch, sentences need neither. The imports above,
# which never run, keep both files in the build's cache keys.
_LATER = {"PALETTE": "figure", "graph": "draw", "show": "figure", "stepper": "draw"}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
