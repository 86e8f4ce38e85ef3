import functools
import json
import logging
import os
import random
import subprocess
import sys
import types
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from common import artifact_key as keys
from common import artifacts
from common.artifact_key import artifact_key
from common.artifacts import cached

import numpy as np
import pytest
import torch
from torch import nn


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache for each test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("PT2E_CACHE", str(folder))
    return folder


def only_entry(cache):
    (path,) = cache.glob("*.artifact")
    return path


def from_source(source, name="f", **outside):
    """A function as a chapter would define it: in `__main__`, from source text."""
    namespace = {"__name__": "__main__", **outside}
    exec(source, namespace)
    return namespace[name]


def key_of(source, **outside):
    return artifact_key("x", from_source(source, **outside))


# --- Storing ---

TENSORS = OrderedDict(weight=torch.arange(6.0).view(2, 3), scale=nn.Parameter(torch.ones(2)))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"\x00pte\nbytes\xff", "bytes"),
        (b"", "bytes"),
        ({"latency_us": [1.5, 0.1 + 0.2], "rounds": 40, "unit": "微秒", "none": None}, "json"),
        ([], "json"),
        ((1, 2.0, "three"), "tensors"),
        ({1: "number as key"}, "tensors"),
        ([float("inf")], "tensors"),
        (TENSORS, "tensors"),
        ([torch.ones(1, dtype=torch.int8), (torch.zeros(0), True)], "tensors"),
    ],
    ids=lambda value: str(value)[:20] if isinstance(value, str) else type(value).__name__,
)
def test_a_value_comes_back_as_it_was_the_first_time_and_later(value, kind, cache):
    runs = []

    def build():
        runs.append("run")
        return value

    recorded = functools.partial(call, build=Opaque(build))
    for _ in range(2):
        found = cached("value", recorded)
        assert type(found) is type(value)
        assert repr(found) == repr(value)
    assert runs == ["run"]
    assert [header["kind"] for _, header in artifacts.entries()] == [kind]


class Opaque:
    """Something to call whose content counts as nothing, so that tests can watch what runs."""

    artifact_key = "opaque"

    def __init__(self, function):
        self.function = function


def call(build):
    return build.function()


def test_an_exported_program_comes_back(cache):
    model = nn.Linear(2, 3).eval()
    x = torch.randn(1, 2)

    def build():
        return torch.export.export(model, (x,))

    for _ in range(2):
        torch.testing.assert_close(cached("linear", build).module()(x), model(x))


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, np.float64(1.5), {"a": np.ones(2)}, nn.ReLU()], ids=lambda value: type(value).__name__
)
def test_a_value_that_would_not_come_back_as_it_was_is_refused(value, cache):
    with pytest.raises(TypeError, match=r"the artifact 'odd' is a .* that can't be kept exactly"):
        cached("odd", functools.partial(call, build=Opaque(lambda: value)))
    assert not list(cache.glob("*.artifact"))


def test_changing_a_returned_value_changes_no_later_one():
    cached("list", lambda: [1, 2]).append(3)

    def build():
        return [1, 2]

    cached("same", build).append(3)
    assert cached("same", build) == [1, 2]


@pytest.mark.parametrize("name", ["", "a/b", "../up", "a b"])
def test_a_name_that_is_no_file_name_is_refused(name):
    with pytest.raises(ValueError, match="an artifact's name"):
        cached(name, lambda: 1)


def test_a_failing_build_leaves_nothing_and_the_next_one_runs(cache):
    outcomes = iter([ZeroDivisionError("first"), 7])

    def build():
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    recorded = functools.partial(call, build=Opaque(build))
    with pytest.raises(ZeroDivisionError):
        cached("value", recorded)
    assert not list(cache.glob("*.artifact"))
    assert cached("value", recorded) == 7


def test_the_entry_says_when_where_and_how_long(cache):
    cached("value", lambda: 1)
    ((_, header),) = artifacts.entries()
    assert header["name"] == "value" and header["seconds"] >= 0
    assert header["made"].endswith("Z") and header["cpu_class"] == keys.cpu_class()


# --- Damage ---


def truncate(data):
    return data[: len(data) // 2]


def flip_a_bit_of_the_payload(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def flip_a_bit_of_the_header(data):
    return data.replace(b'"kind": "bytes"', b'"kind": "bytez"')


def another_format(data):
    first, _, rest = data.partition(b"\n")
    return json.dumps({**json.loads(first), "format": 0}).encode() + b"\n" + rest


@pytest.mark.parametrize(
    "damage",
    [truncate, flip_a_bit_of_the_payload, flip_a_bit_of_the_header, another_format, lambda _: b"", lambda _: b"[1]\nx"],
    ids=["truncated", "payload", "header", "format", "empty", "no header"],
)
def test_a_damaged_entry_is_made_again_with_a_note(damage, cache, caplog):
    runs = []

    def build():
        runs.append("run")
        return b"payload" * 100

    recorded = functools.partial(call, build=Opaque(build))
    good = cached("value", recorded)
    path = only_entry(cache)
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.INFO, "common.artifacts"):
        assert cached("value", recorded) == good
    assert runs == ["run", "run"]
    assert "damaged artifact, made again: value-" in caplog.text
    assert cached("value", recorded) == good and len(runs) == 2


def test_nothing_is_said_on_stderr_when_an_entry_is_made_or_mended(cache, capfd):
    def build():
        return 1

    cached("value", build)
    only_entry(cache).write_bytes(b"?")
    cached("value", build)
    assert capfd.readouterr() == ("", "")


def test_what_a_killed_process_left_behind_disturbs_nobody(cache):
    def build():
        return b"whole"

    cached("value", build)
    path = only_entry(cache)
    path.unlink()
    path.with_suffix(".partial").write_bytes(b"ha")
    path.with_suffix(".lock").write_bytes(b"")
    assert cached("value", build) == b"whole"


def test_processes_that_want_the_same_thing_make_it_once(cache, tmp_path):
    code = f"""
import time
from common.artifacts import cached

def build():
    with open({str(tmp_path / "runs")!r}, "a") as file:
        file.write("run\\n")
    time.sleep(0.5)
    return b"made" * 100_000

print(len(cached("slow", build)))
"""
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate()[0].strip() for process in processes]
    assert outputs == ["400000"] * 3
    assert (tmp_path / "runs").read_text() == "run\n"


# --- Random states ---


def draw():
    return [torch.rand(1).item(), random.random(), float(np.random.rand())]


def test_a_build_neither_sees_nor_changes_the_random_states_of_its_caller(cache):
    drawn = []
    for seed in (1, 2):
        torch.manual_seed(seed), random.seed(seed), np.random.seed(seed)
        before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
        drawn.append(cached(f"draw{seed}", draw))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]
    assert drawn[0] == drawn[1]


# --- Where ---


def test_without_pt2e_cache_entries_lie_in_the_checkout(monkeypatch, tmp_path):
    monkeypatch.delenv("PT2E_CACHE")
    package = tmp_path / "checkout" / "common" / "artifacts.py"
    package.parent.mkdir(parents=True)
    (tmp_path / "checkout" / "mkdocs.yml").touch()
    monkeypatch.setattr(artifacts, "__file__", str(package))
    assert artifacts.root() == tmp_path / "checkout" / ".cache" / "artifacts"


def test_an_installed_package_uses_the_checkout_around_the_working_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("PT2E_CACHE")
    monkeypatch.setattr(artifacts, "__file__", str(tmp_path / "site-packages" / "common" / "artifacts.py"))
    inside = tmp_path / "checkout" / "chapters"
    inside.mkdir(parents=True)
    (tmp_path / "checkout" / "mkdocs.yml").touch()
    monkeypatch.chdir(inside)
    assert artifacts.root() == tmp_path / "checkout" / ".cache" / "artifacts"


def test_without_a_checkout_entries_lie_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("PT2E_CACHE")
    monkeypatch.setattr(artifacts, "__file__", str(tmp_path / "site-packages" / "common" / "artifacts.py"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert artifacts.root() == tmp_path / "home" / ".cache" / "pt2e-course"


def test_a_relative_pt2e_cache_is_refused(monkeypatch):
    monkeypatch.setenv("PT2E_CACHE", "cache")
    with pytest.raises(ValueError, match="absolute path, got 'cache'"):
        artifacts.root()


# --- The key ---

BODY = "def f():\n    return 1 + g\n"


def test_layout_comments_and_the_place_of_a_function_do_not_count():
    assert key_of("\n\n# about f\ndef f():\n    # one\n\n    return (1\n            + g)\n", g=1) == key_of(BODY, g=1)


@pytest.mark.parametrize(
    ("source", "outside"),
    [
        ("def f():\n    return 2 + g\n", {"g": 1}),
        ("def f():\n    return 1 - g\n", {"g": 1}),
        (BODY, {"g": 2}),
        (BODY, {"g": 1.0}),
        ("def f(a=3):\n    return 1 + g\n", {"g": 1}),
        ("def f(*, a=3):\n    return 1 + g\n", {"g": 1}),
    ],
    ids=["constant", "operation", "global", "type", "default", "keyword default"],
)
def test_code_and_what_it_reads_count(source, outside):
    assert key_of(source, **outside) != key_of(BODY, g=1)


def test_a_global_that_a_function_does_not_read_does_not_count():
    assert key_of(BODY, g=1, other=object()) == key_of(BODY, g=1)
    assert key_of("def f(x):\n    return x.g\n", g=1) == key_of("def f(x):\n    return x.g\n", g=2)


def test_functions_that_a_function_calls_count():
    def calling(helper):
        return key_of("def f():\n    return h()\n", h=from_source(f"def h():\n    return {helper}\n", "h"))

    assert calling(1) == calling(1) != calling(2)


def test_nested_functions_and_what_they_read_count():
    source = "def f():\n    return [(lambda: x + g)() for x in range(3)]\n"
    assert key_of(source, g=1) == key_of(source, g=1) != key_of(source, g=2)


def test_enclosing_variables_count():
    def make(n):
        return lambda: n

    assert artifact_key("x", make(1)) == artifact_key("x", make(1)) != artifact_key("x", make(2))


def test_arguments_of_a_partial_count():
    assert artifact_key("x", functools.partial(draw, 1)) != artifact_key("x", functools.partial(draw, 2))


def test_functions_that_call_each_other_have_a_key():
    namespace = {"__name__": "__main__"}
    exec("def f(n):\n    return n and g(n - 1)\ndef g(n):\n    return n and f(n - 1)\n", namespace)
    assert len(artifact_key("x", namespace["f"])) == 16


def test_a_function_under_no_grad_counts_with_its_code():
    def decorated(value):
        return key_of(f"@torch.no_grad()\ndef f():\n    return {value}\n", torch=torch)

    assert decorated(1) == decorated(1) != decorated(2)


def test_a_class_written_in_a_chapter_counts_with_its_methods():
    def model_with(value):
        source = f"class Net(nn.Module):\n    def forward(self, x):\n        return x + {value}\n"
        return key_of("def f():\n    return net\n", net=from_source(source, "Net", nn=nn)())

    assert model_with(1) == model_with(1) != model_with(2)


def test_a_dataclass_counts_with_its_fields():
    def plan(rounds):
        return key_of("def f():\n    return p\n", p=Plan(rounds))

    assert plan(1) == plan(1) != plan(2)


@dataclass(frozen=True)
class Plan:
    rounds: int


READER = "def f():\n    return data\n"


@pytest.mark.parametrize(
    "make",
    [
        lambda change: torch.tensor([1.0, 2.0 + change]),
        lambda change: torch.tensor([1.0, 2.0]) if not change else torch.tensor([1.0, 2.0]).double(),
        lambda change: torch.zeros(2, 3) if not change else torch.zeros(3, 2),
        lambda change: np.array([1, 2 + change]),
        lambda change: {"a": [1, (2, 3 + change)]},
        lambda change: {"a", f"b{change}"},
        lambda change: range(3 + change),
        lambda change: torch.int8 if change else torch.uint8,
        lambda change: linear(1.0 + change),
        lambda change: torch.export.export(linear(1.0 + change), (torch.ones(1, 2),)),
        lambda change: torch.export.export(linear(1.0 + change), (torch.ones(1, 2),)).module(),
        lambda change: torch.fx.symbolic_trace(nn.ReLU() if change else nn.ReLU6()),
    ],
    ids=[
        "tensor",
        "dtype",
        "shape",
        "array",
        "nested",
        "set",
        "range",
        "torch-dtype",
        "model",
        "program",
        "exported",
        "graph",
    ],
)
def test_values_count_by_content(make):
    same, again, other = (key_of(READER, data=make(change)) for change in (0, 0, 1))
    assert same == again
    assert same != other


def linear(value):
    module = nn.Linear(2, 1)
    nn.init.constant_(module.weight, value)
    nn.init.zeros_(module.bias)
    return module.eval()


def test_train_and_eval_mode_are_two_things():
    assert key_of(READER, data=linear(1.0)) != key_of(READER, data=linear(1.0).train())


def test_a_value_whose_content_cannot_be_compared_is_refused_by_name():
    with pytest.raises(TypeError, match=r"build -> data\['a'\] is a .*Generator, .*make it inside"):
        key_of(READER, data={"a": torch.Generator()})


def test_the_key_does_not_depend_on_the_process():
    """Hash seeds differ between processes, and with them the order of sets."""
    code = """
from common.artifact_key import artifact_key
words = {"one", "two", "three", "four"}
def f(x):
    return x in {"a", "b", "c", "d"} and words and (lambda y=(1, 2): y)()
print(artifact_key("x", f))
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    ]
    assert runs[0] and runs == [runs[0]] * 3


def test_only_measurements_depend_on_the_cpu_class(monkeypatch):
    def keys_of_both():
        return artifact_key("x", draw), artifact_key("x", draw, measurement=True)

    before = keys_of_both()
    monkeypatch.setattr(keys, "cpu_class", lambda: "another machine")
    after = keys_of_both()
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_versions_of_the_libraries_in_use_count(monkeypatch):
    def f():
        return torch.zeros(1)

    before = artifact_key("x", f)
    installed = keys.importlib.metadata.version
    monkeypatch.setattr(keys.importlib.metadata, "version", lambda name: "9.9" if name == "torch" else installed(name))
    assert artifact_key("x", f) != before


def test_a_library_whose_package_has_another_name_is_found():
    assert keys.library_facts({"yaml"})[0].lower().startswith("pyyaml ")


def test_modules_of_common_count_with_all_that_they_import():
    lines, libraries = keys.module_facts({"common.models"})
    assert [line.split()[0] for line in lines] == ["common.data", "common.models"]
    assert "torch" in libraries
    assert not {"executorch", "matplotlib"} & libraries

    lines, libraries = keys.module_facts({"common.executorch_utils"})
    assert {"common.pt2e", "common.env", "common.data"} <= {line.split()[0] for line in lines}
    assert {"executorch", "torchao"} <= libraries


def test_hashing_a_module_imports_nothing():
    code = "import sys; from common.artifact_key import module_facts; module_facts({'common.executorch_utils'}); "
    code += "print([m for m in ('torch', 'executorch', 'common.executorch_utils') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_modules_code_counts_and_its_comments_and_docstrings_do_not():
    def digest(source):
        return keys._source_facts(source, "common")[0]

    plain = digest("def f():\n    return 1\n")
    assert digest('"""About."""\n\ndef f():\n    """One."""\n    return 1  # one\n') == plain
    assert digest("def f():\n    return 2\n") != plain


def test_imports_are_found_wherever_they_stand():
    source = "import torch.nn\ndef f():\n    from common.data import make_data\n    from . import env\n"
    assert set(keys._source_facts(source, "common")[1]) == {
        "torch.nn",
        "common.data",
        "common.data.make_data",
        "common",
        "common.env",
    }


def test_what_the_kernel_runs_is_a_chapters_own_although_its_main_module_is_an_installed_file(monkeypatch):
    launcher = types.ModuleType("__main__")
    launcher.__file__ = str(Path(pytest.__file__))
    monkeypatch.setitem(sys.modules, "__main__", launcher)
    assert key_of("def f():\n    return 1\n") != key_of("def f():\n    return 2\n")
