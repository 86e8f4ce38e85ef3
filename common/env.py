"""The machine a page ran on, and what the libraries print while they work.

Importing this module is cheap: torch is imported only by the functions that ask it something, so the build can use the
rest.
"""

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator

from common import LoggedNoise, WarnedNoise, quiet_logger, quiet_warning

# --- Quieting ---------------------------------------------------------------------------------------------------------

WARNED_AT_WORK = (
    WarnedNoise(
        FutureWarning,
        r"`isinstance\(treespec, LeafSpec\)` is deprecated",
        "torch 2.13.0 (under copyreg, while executorch 1.5.1 lowers or deep-copies a graph)",
        "torch's own pickling of tree specifications; delete when torch stops using LeafSpec",
    ),
)
LOGGED_AT_WORK: tuple[LoggedNoise, ...] = ()


def quiet() -> None:
    """Drop the known messages that exporting, quantizing and lowering print.

    What is printed at import is dropped by importing `common`.
    """
    for warned in WARNED_AT_WORK:
        quiet_warning(warned)
    for logged in LOGGED_AT_WORK:
        quiet_logger(logged)


class CapturedText:
    """What a `capture_stderr` block caught, empty until it ends; `str()` gives it too."""

    def __init__(self) -> None:
        self.text = ""

    def __str__(self) -> str:
        return self.text

    @property
    def lines(self) -> list[str]:
        """The lines without their line ends, blank ones left out."""
        return [line for line in self.text.splitlines() if line.strip()]


@contextlib.contextmanager
def capture_stderr() -> Iterator[CapturedText]:
    """Catch everything written to stderr, by Python and by C++ (file descriptor 2).

    The text is there when the block has ended, also if an exception ended it. `contextlib.redirect_stderr` would miss
    what C++ writes. The whole process is affected, other threads included.
    """
    captured = CapturedText()
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        # A second Python writer on the same open file: in a Jupyter kernel sys.stderr doesn't write to descriptor 2.
        python_side = os.fdopen(os.dup(file.fileno()), "w", encoding="utf-8", errors="replace", buffering=1)
        try:
            with contextlib.redirect_stderr(python_side):
                yield captured
        finally:
            python_side.close()
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            captured.text = file.read().decode("utf-8", errors="replace")


# --- The processor ----------------------------------------------------------------------------------------------------

# Instruction sets that decide how fast int8 can be: our name, then the spellings of Linux and macOS.
_ISA_NAMES = {
    "AVX2": ("avx2",),
    "AVX-512F": ("avx512f",),
    "AVX512-VNNI": ("avx512_vnni", "avx512vnni"),
    "AVX-VNNI": ("avx_vnni", "avxvnni"),
    "AMX-INT8": ("amx_int8",),
    "NEON dotprod": ("asimddp", "feat_dotprod"),
    "i8mm": ("i8mm", "feat_i8mm"),
}
_ARCHITECTURES = {"amd64": "x86-64", "x86_64": "x86-64", "aarch64": "arm64", "arm64": "arm64"}

# Linux on arm64 gives numbers instead of a name; these are the parts that CI machines and boards have.
_ARM_PARTS = {
    ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0b"): "Arm Cortex-A76",
    ("0x41", "0xd0c"): "Arm Neoverse-N1",
    ("0x41", "0xd40"): "Arm Neoverse-V1",
    ("0x41", "0xd49"): "Arm Neoverse-N2",
    ("0x41", "0xd4f"): "Arm Neoverse-V2",
    ("0xc0", "0xac3"): "Ampere-1",
}


def parse_cpuinfo(text: str) -> tuple[str, frozenset[str]]:
    """Model name of a Linux /proc/cpuinfo, and the flags that all its processors have (big and little cores differ)."""
    blocks = []
    for block in text.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines() if ":" in line)
        fields = {key.strip().lower(): value.strip() for key, _, value in pairs}
        if fields:
            blocks.append(fields)
    if not blocks:
        return "", frozenset()
    first = blocks[0]
    flags = [frozenset((b.get("flags") or b.get("features") or "").lower().split()) for b in blocks if "processor" in b]
    model = first.get("model name", "")
    if not model and "cpu part" in first:
        implementer, part = first.get("cpu implementer", "?").lower(), first["cpu part"].lower()
        model = _ARM_PARTS.get((implementer, part), f"Arm implementer {implementer} part {part}")
    return model, frozenset.intersection(*flags) if flags else frozenset()


def parse_sysctl(text: str) -> tuple[str, frozenset[str]]:
    """Model name and flags in the output of macOS's `sysctl machdep.cpu hw.optional` (Apple and Intel processors)."""
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    lists = [values.get(f"machdep.cpu.{name}", "") for name in ("features", "leaf7_features")]
    switches = [key.rpartition(".")[2] for key in values if key.startswith("hw.optional.") and values[key] == "1"]
    return values.get("machdep.cpu.brand_string", ""), frozenset(" ".join((*lists, *switches)).lower().split())


def isa_names(flags: frozenset[str]) -> tuple[str, ...]:
    """The instruction sets of `flags` that matter for int8, by their common names, always in the same order."""
    return tuple(name for name, spellings in _ISA_NAMES.items() if not flags.isdisjoint(spellings))


def _cpu() -> tuple[str, frozenset[str]]:
    if sys.platform == "darwin":
        command = ["sysctl", "machdep.cpu", "hw.optional"]
        return parse_sysctl(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        return parse_cpuinfo(file.read())
    return platform.processor(), frozenset()


def architecture() -> str:
    """`x86-64`, `arm64`, or what the system calls it."""
    machine = platform.machine().lower()
    return _ARCHITECTURES.get(machine, machine)


def cpu_model() -> str:
    """The processor's name, `unknown` when the system doesn't tell."""
    return _cpu()[0] or "unknown"


def isa_flags() -> tuple[str, ...]:
    """The instruction sets of this processor that matter for int8, by their common names."""
    return isa_names(_cpu()[1])


def cpu_class() -> str:
    """Architecture and instruction sets, such as `x86-64 (AVX2, AVX-512F, AVX512-VNNI)`:

    machines of one class run the same kernels.
    """
    names = isa_flags()
    return f"{architecture()} ({', '.join(names)})" if names else architecture()


# --- Versions and threads ---------------------------------------------------------------------------------------------

_REPORTED_PACKAGES = ("torch", "torchao", "executorch", "onnx", "onnxruntime")


def installed_versions(packages: tuple[str, ...] = _REPORTED_PACKAGES) -> dict[str, str]:
    """Versions of those of `packages` that are installed."""
    versions = {}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


# What ExecuTorch's C++ writes on stderr when its thread pool is first needed: a program is loaded, or the number of
# threads set or asked for (executorch 1.5.1). Regular expressions.
CPU_DETECTION = (
    r"\[cpuinfo_utils\.cpp:\d+\] Reading file ",
    r"\[cpuinfo_utils\.cpp:\d+\] Failed to open midr file ",
    r"\[cpuinfo_utils\.cpp:\d+\] CPU info and manual query on # of cpus dont match\.",
)


def set_threads(n: int) -> None:
    """Let torch and, where it is installed, ExecuTorch compute with `n` threads. Imports ExecuTorch's runtime.

    OMP_NUM_THREADS and the process's CPU affinity don't reach ExecuTorch's pool (1.5.1), so a fair comparison has to
    set both. ONNX Runtime takes
    its number per session (`SessionOptions.intra_op_num_threads`).
    """
    if n < 1:
        raise ValueError(f"a computation needs at least one thread, got {n}")
    import torch

    torch.set_num_threads(n)
    if importlib.util.find_spec("executorch") is None:
        return
    from executorch.extension.pybindings import portable_lib

    with capture_stderr() as captured:
        portable_lib._unsafe_reset_threadpool(n)
    expected = (*CPU_DETECTION, r"\[threadpool\.cpp:\d+\] Resetting threadpool to \d+ threads")
    for line in unexpected_lines(captured.lines, expected):
        print(line, file=sys.stderr)


def unexpected_lines(lines: Iterable[str], expected: Iterable[str]) -> list[str]:
    """Those of `lines` that match none of the regular expressions."""
    patterns = [re.compile(pattern) for pattern in expected]
    return [line for line in lines if not any(pattern.search(line) for pattern in patterns)]


def provenance() -> dict[str, object]:
    """What a page says about the machine it ran on, ready for JSON."""
    import torch

    return {
        "python": platform.python_version(),
        "versions": installed_versions(),
        "os": _os_name(),
        "architecture": architecture(),
        "cpu_model": cpu_model(),
        "isa": list(isa_flags()),
        "cpu_class": cpu_class(),
        "cpu_count": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
    }


def env_summary() -> str:
    """One line about this process, the same in every language.

    For example `Linux x86-64 | torch 2.13.0+cpu | threads=1 | mkldnn=True | capability=AVX512`.
    """
    import torch

    versions = installed_versions(("torch", "torchao", "executorch"))
    parts = [f"{_os_name()} {architecture()}", *(f"{name} {version}" for name, version in versions.items())]
    parts += [f"threads={torch.get_num_threads()}", f"mkldnn={torch.backends.mkldnn.is_available()}"]
    parts.append(f"capability={torch.backends.cpu.get_cpu_capability()}")
    return " | ".join(parts)


def _os_name() -> str:
    return {"Darwin": "macOS"}.get(platform.system(), platform.system())
