"""The weekly look ahead: what a report says, and that there is one issue at most, open only while something fails."""

import importlib.util
import json
import pathlib
import stat
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("canary", ROOT / ".ci/canary.py")
canary = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(canary)

LOG = """\
INFO    -  [3/30] m01_first_ptq/1_minimal_ptq.py failed in 3.0 s
ERROR   -  2 of 30 chapters failed:

chapters/m01_first_ptq/1_minimal_ptq.py:120: ImportError: cannot import name 'convert_pt2e'
     119 | from torchao import x
  File "/venv/lib/python3.11/site-packages/IPython/core.py", line 1
  File "/venv/lib/python3.11/site-packages/torchao/quantization/pt2e.py", line 7, in <module>

chapters/m02_observers/1_observers.py:88: AssertionError: the scale is off
      88 | assert False
"""


def report(failed=True, releases="newest", **changed):
    told = {
        "releases": releases,
        "moved": {"torchao": ["0.18.0", "0.19.0"]},
        "failed": failed,
        "faults": canary.faults(LOG) if failed else [],
        "end": "the end" if failed else "",
    }
    return told | changed


def test_the_pins_are_those_of_the_project_and_all_are_exact():
    pins = canary.pins((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {"torch", "torchao", "executorch", "mkdocs", "mkdocs-jupyter"} <= pins.keys()
    assert all(version[0].isdigit() for version in pins.values()) and "pytest" not in pins


def test_faults_name_chapter_line_reason_and_the_package_that_raised():
    assert canary.faults(LOG) == [
        {
            "fault": "chapters/m01_first_ptq/1_minimal_ptq.py:120: ImportError: cannot import name 'convert_pt2e'",
            "package": "torchao",
        },
        {"fault": "chapters/m02_observers/1_observers.py:88: AssertionError: the scale is off", "package": ""},
    ]


def test_the_issue_names_versions_chapter_and_package_of_builds_that_failed_alone():
    text = canary.body([report(), report(failed=False, releases="pre")])
    assert "torchao 0.18.0 -> 0.19.0" in text and "the pre releases" not in text
    assert f"| `{canary.faults(LOG)[0]['fault']}` | torchao |" in text
    assert canary.body([report(failed=False)]) == ""


def test_a_reason_cannot_break_out_of_its_table_cell():
    fault = {"fault": "chapters/a.py:1: a | b `c`", "package": ""}
    (row,) = [line for line in canary.body([report(faults=[fault])]).splitlines() if "a.py" in line]
    assert row == "| `chapters/a.py:1: a \\| b 'c'` | ? |"


@pytest.fixture
def github(tmp_path, monkeypatch):
    """A `gh` that notes what it is asked and has the issues of the file `open`."""
    (tmp_path / "open").write_text("[]")
    program = tmp_path / "gh"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib, sys\n"
        "here = pathlib.Path(__file__).parent\n"
        "with open(here / 'asked', 'a') as file:\n"
        "    file.write(json.dumps(sys.argv[1:]) + '\\n')\n"
        "if sys.argv[1:3] == ['issue', 'list']:\n"
        "    print((here / 'open').read_text())\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def asked(folder):
    lines = (folder / "asked").read_text().splitlines()
    return [json.loads(line)[:3] for line in lines if json.loads(line)[:2] != ["issue", "list"]]


@pytest.mark.parametrize(
    ("failed", "is_open", "expected"),
    [
        (True, False, [["label", "create", "canary"], ["issue", "create", "--title"]]),
        (True, True, [["issue", "edit", "7"]]),
        (False, True, [["issue", "close", "7"]]),
        (False, False, []),
    ],
)
def test_there_is_one_issue_and_only_while_something_fails(github, tmp_path, failed, is_open, expected):
    (github / "open").write_text('[{"number": 7}]' if is_open else "[]")
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report(failed=failed)))
    subprocess.run([sys.executable, ROOT / ".ci/canary.py", "tell", path], check=True)
    assert asked(github) == expected
