"""Things worth making once: trained weights, exported programs, `.pte` files, raw measurements.

`cached(name, build)` returns what `build()` returned the first time, until something that it depends on changes.
Chapters and builds that run side by side share the entries, so every page shows the same weights.

An entry is one file: a line of JSON (what it is, when and where it was made, the checksum) and the payload. Payloads
are read without running code from the file:

| value                                     | kind      | payload                                           |
| ----------------------------------------- | --------- | ------------------------------------------------- |
| bytes, such as a `.pte`                   | `bytes`   | as they are                                       |
| numbers, strings, lists, dicts of strings | `json`    | JSON; the value has to survive the round trip     |
| tensors, in dicts, lists and tuples       | `tensors` | torch.save, read with weights_only=True           |
| a torch.export.ExportedProgram            | `program` | torch.export.save                                 |
"""

import contextlib
import hashlib
import io
import json
import logging
import os
import random
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from common.artifact_key import FORMAT, artifact_key
from common.env import cpu_class, cpu_model

from filelock import FileLock

Value = TypeVar("Value")

log = logging.getLogger(__name__)  # at INFO: what was made, and what was damaged


def cached(name: str, build: Callable[[], Value], *, measurement: bool = False) -> Value:
    """What `build()` returned when it first ran, read back from its entry; every call returns a value of its own.

    The entry is made again when something changes that it depends on: the function's code and the values it reads from
    outside, the `common` modules it uses, the versions of their libraries, Python; for a `measurement` also the CPU
    class. Raises TypeError if the function reads something whose content can't be compared: make that inside it.
    `build` starts from fixed random states and leaves the caller's alone. It must not print, since it runs only once.
    """
    if not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(f"an artifact's name is made of letters, digits, '_', '-' and '.', got {name!r}")
    path = root() / f"{name}-{artifact_key(name, build, measurement=measurement)}.artifact"
    found = _read(path)
    if found is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            found = _read(path)  # another process may have made it meanwhile
            if found is None:
                _make(path, name, build)
                found = _read(path)
    if found is None:
        raise RuntimeError(f"the artifact {name!r} can't be read back right after it was written")
    return found.load()


def root() -> Path:
    """Where entries lie: PT2E_CACHE, else `.cache/artifacts` of the checkout, else `~/.cache/pt2e-course`.

    The checkout is the nearest folder with a mkdocs.yml above this package, else above the working directory.
    """
    chosen = os.environ.get("PT2E_CACHE")
    if chosen:
        if not os.path.isabs(chosen):  # chapters run in folders of their own
            raise ValueError(f"PT2E_CACHE has to be an absolute path, got {chosen!r}")
        return Path(chosen)
    for start in (Path(__file__).resolve(), Path.cwd() / "here"):
        for folder in start.parents:
            if (folder / "mkdocs.yml").is_file():
                return folder / ".cache" / "artifacts"
    return Path.home() / ".cache" / "pt2e-course"


# --- Entries ----------------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """A whole, undamaged entry. `header` has `name`, `kind`, `made` (UTC), `seconds`, `cpu_model`, `cpu_class`."""

    header: dict[str, Any]
    payload: bytes

    def load(self) -> Any:
        return _LOADERS[self.header["kind"]](self.payload)


def entries() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Path and header of every undamaged entry, sorted by path."""
    for path in sorted(root().glob("*.artifact")):
        entry = _read(path)
        if entry:
            yield path, entry.header


def _read(path: Path) -> Entry | None:
    """The entry, or None where there is none or it is damaged."""
    try:
        first, newline, payload = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    try:
        header = json.loads(first)
        if newline and header["format"] == FORMAT and header["sha256"] == _sha256(header, payload):
            return Entry(header, payload)
    except (ValueError, KeyError, TypeError):
        pass
    log.info("damaged artifact, made again: %s", path.name)
    return None


def _sha256(header: dict[str, Any], payload: bytes) -> str:
    """The checksum of the payload and of the rest of the header."""
    rest = {key: value for key, value in header.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode() + b"\n" + payload).hexdigest()


def _make(path: Path, name: str, build: Callable[[], Any]) -> None:
    start = time.perf_counter()
    with _own_random_states():
        value = build()
    seconds = round(time.perf_counter() - start, 3)
    kind, payload = _dump(name, value)
    header = {
        "format": FORMAT,
        "name": name,
        "kind": kind,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": seconds,
        "cpu_model": cpu_model(),
        "cpu_class": cpu_class(),
    }
    header["sha256"] = _sha256(header, payload)
    _write(path, json.dumps(header).encode() + b"\n" + payload)
    log.info("made artifact %s in %.1f s", path.name, seconds)


def _write(path: Path, data: bytes) -> None:
    """Appear whole or not at all.

    The lock is held, so the temporary file's name is ours; a killed process leaves it to the next one.
    """
    temporary = path.with_suffix(".partial")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


@contextlib.contextmanager
def _own_random_states() -> Iterator[None]:
    """Fixed random states inside the block, the caller's again after it.

    Otherwise a page would show other numbers when the entry exists than when it has to be made.
    """
    import numpy as np
    import torch

    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            random.seed(0)
            np.random.seed(0)
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


# --- Payloads ---------------------------------------------------------------------------------------------------------


def _dump(name: str, value: Any) -> tuple[str, bytes]:
    import torch

    if isinstance(value, bytes):
        return "bytes", value
    if isinstance(value, torch.export.ExportedProgram):
        buffer = io.BytesIO()
        torch.export.save(value, buffer)
        return "program", buffer.getvalue()
    with contextlib.suppress(TypeError, ValueError):  # not JSON
        text = json.dumps(value, allow_nan=False)
        if _same(json.loads(text), value):
            return "json", text.encode()
    if _is_tensors(value):
        buffer = io.BytesIO()
        torch.save(value, buffer)
        return "tensors", buffer.getvalue()
    kind = type(value).__name__
    raise TypeError(f"the artifact {name!r} is a {kind} that can't be kept exactly; common.artifacts says what can")


def _same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down (JSON turns tuples into lists and the key 1 into "1")."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b


def _is_tensors(value: Any) -> bool:
    """Whether torch.load(weights_only=True) gives it back as it was: subclasses, such as numpy's floats, it doesn't."""
    import torch

    if type(value) in (dict, OrderedDict):
        return all(type(k) in (str, int) for k in value) and all(map(_is_tensors, value.values()))
    if type(value) in (list, tuple):
        return all(map(_is_tensors, value))
    return type(value) in (torch.Tensor, torch.nn.Parameter, int, float, str, bool, type(None))


def _load_tensors(payload: bytes) -> Any:
    import torch

    return torch.load(io.BytesIO(payload), weights_only=True)


def _load_program(payload: bytes) -> Any:
    import torch
    import torchao.quantization.pt2e  # noqa: F401  # registers the q/dq operators that a program may call

    return torch.export.load(io.BytesIO(payload))


_LOADERS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "json": json.loads,
    "tensors": _load_tensors,
    "program": _load_program,
}
