"""Compiled templates on disk.

Jinja's own file cache would do, but it runs what it finds: a damaged file can end the build, and bytecode of another
Jinja version passes for its own.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from pathlib import Path

from common.site.store import write_atomically

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

VERSIONS = ("Jinja2", "mkdocs", "mkdocs-material")


class TemplateCache(BytecodeCache):
    """Bytecode of templates, a file each; what doesn't check out is compiled anew. Jinja compares the source itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "-".join(importlib.metadata.version(name) for name in VERSIONS)

    def load_bytecode(self, bucket: Bucket) -> None:
        """Jinja's hook."""
        try:
            content = self._path(bucket).read_bytes()
        except OSError:
            return
        if content[:32] == hashlib.sha256(content[32:]).digest():
            bucket.bytecode_from_string(content[32:])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Jinja's hook."""
        content = bucket.bytecode_to_string()
        write_atomically(self._path(bucket), hashlib.sha256(content).digest() + content)

    def _path(self, bucket: Bucket) -> Path:
        return self.folder / f"{bucket.key}.bin"
