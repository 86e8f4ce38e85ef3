"""The repository itself: pins and lock, the README's commands, nothing generated among the files."""

import ast
import fnmatch
import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE, ENGLISH = README.split("\n## English\n")
TOP_LEVEL = {
    *("mkdocs.yml", "pyproject.toml", "README.md", "LICENSE", ".gitignore", ".pre-commit-config.yaml"),
    *("docs", "chapters", "common", "tests", ".github", ".ci"),
}
GENERATED = (
    "*.ipynb",
    "*.pyc",
    "*.egg-info/*",
    "*.pte",
    "*.onnx",
    "*.pt",
    "*.pth",
    "*.npz",
    "*.png",
    "site/*",
    ".cache/*",
)


def files() -> list[str]:
    """The repository's files: tracked, or about to be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted({name for name in listed.split("\0") if name and (ROOT / name).is_file()})


def locked() -> dict[str, str]:
    """Package -> version, as .ci/requirements.txt has them."""
    lines = (ROOT / ".ci/requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def declared() -> list[Requirement]:
    """All that pyproject.toml asks for, the extras included."""
    groups = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    return [Requirement(text) for group in groups for text in group if not text.startswith("pt2e-course[")]


def imported(folders: tuple[str, ...], but: tuple[str, ...] = ()) -> set[str]:
    """The distributions whose modules the Python files below these folders import; our own modules are left out."""
    distributions = importlib.metadata.packages_distributions()
    names: set[str] = set()
    for name in [n for n in files() if n.endswith(".py") and n.startswith(folders) and not n.startswith(but)]:
        for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(node.module.partition(".")[0])
    owners = {canonicalize_name(owner) for name in names for owner in distributions.get(name, [])}
    return owners - {"pt2e-course"}


def commands(language: str) -> list[str]:
    """The commands in a README's code block, without their comments."""
    block = re.search(r"```bash\n(.*?)```", language, re.DOTALL)
    return [line.partition("#")[0].strip() for line in block[1].splitlines()]


# --- Pins -------------------------------------------------------------------------------------------------------------


def test_every_dependency_is_pinned_and_the_lock_has_the_same_version() -> None:
    versions = {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in declared()}
    assert versions == {name: locked().get(name) for name in versions}


@pytest.mark.parametrize(
    ("folders", "but", "extras"),
    [
        (("chapters/", "common/"), ("common/site/",), ()),
        (("common/site/",), (), ("site",)),
        (("tests/",), (), ("site", "test")),
    ],
    ids=["chapters and helpers", "the build", "tests"],
)
def test_what_is_imported_is_declared(folders: tuple[str, ...], but: tuple[str, ...], extras: tuple[str, ...]) -> None:
    texts = list(PROJECT["project"]["dependencies"])
    for extra in extras:
        texts += PROJECT["project"]["optional-dependencies"][extra]
    found = imported(folders, but)
    assert found
    assert found <= {canonicalize_name(Requirement(text).name) for text in texts}


def test_every_locked_package_runs_on_the_python_of_debian_12() -> None:
    needs = {name: importlib.metadata.metadata(name).get("Requires-Python") or "" for name in locked()}
    newer = [f"{name} {python}" for name, python in needs.items() if not SpecifierSet(python).contains("3.11.2")]
    assert newer == [], "pin an older version in pyproject.toml"


def test_the_lock_covers_what_the_locked_packages_need() -> None:
    pins = locked()
    for name in pins:
        needed = [Requirement(text) for text in importlib.metadata.requires(name) or []]
        names = {canonicalize_name(r.name) for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})}
        # With PyTorch's CUDA build pip also installs the CUDA libraries that this build pins itself.
        names = {n for n in names if not n.startswith(("nvidia-", "cuda-")) and n != "triton"}
        assert names <= set(pins), f"{name} needs {sorted(names - set(pins))}: run .ci/lock.py"


def test_the_installed_versions_are_the_locked_ones() -> None:
    installed = {name: importlib.metadata.version(name).partition("+")[0] for name in locked()}
    assert installed == locked()


def test_the_lock_fits_every_index() -> None:
    text = (ROOT / ".ci/requirements.txt").read_text(encoding="utf-8")
    assert re.search(r"==\S*\+|://|--hash|--index|--find-links|^\s*-", text, re.MULTILINE) is None


def test_the_node_lock_pins_contents_and_names_no_registry() -> None:
    text = (ROOT / "tests/browser/package-lock.json").read_text(encoding="utf-8")
    assert text.count('"integrity": "sha512-') == text.count('    "node_modules/')
    assert '"resolved"' not in text


# --- README, license --------------------------------------------------------------------------------------------------


def test_ci_runs_the_second_command_of_the_readme() -> None:
    lines = [line.strip() for line in (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()]
    steps = commands(CHINESE)[1].split(" && ")
    assert steps == [line for line in lines if line in steps], "each step once, in the README's order"


def test_both_languages_of_the_readme_give_the_same_two_commands() -> None:
    assert commands(CHINESE) == commands(ENGLISH)
    assert [command.split(" && ")[0] for command in commands(CHINESE)] == [".ci/setup", ".ci/setup test"]


def test_the_readme_lists_the_chapters_of_the_outline() -> None:
    outline = tomllib.loads((ROOT / "chapters/outline.toml").read_text(encoding="utf-8"))
    for language, text in (("zh", CHINESE), ("en", ENGLISH)):
        listed = [f"{number} {title}" for number, title in re.findall(r"^\| (M\d\d) \| (.+?) \|", text, re.MULTILINE)]
        assert listed == [chapter[language] for chapter in outline["chapter"]]


def test_each_language_of_the_readme_fits_a_screen() -> None:
    assert max(len(CHINESE.splitlines()), len(ENGLISH.splitlines())) <= 45


def test_the_links_of_the_readme_lead_to_files() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_license_is_bsd_3_clause_of_the_course_authors() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.startswith("BSD 3-Clause License\n\nCopyright (c) 2026, The PT2E course authors\n")
    assert PROJECT["project"]["license"] == "BSD-3-Clause"
    assert PROJECT["project"]["authors"] == [{"name": "The PT2E course authors"}]


# --- Files ------------------------------------------------------------------------------------------------------------


def test_nothing_unexpected_stands_at_the_top() -> None:
    assert {name.partition("/")[0] for name in files()} <= TOP_LEVEL


def test_nothing_generated_is_among_the_files() -> None:
    assert [name for name in files() if any(fnmatch.fnmatch(name, pattern) for pattern in GENERATED)] == []
    assert [name for name in files() if name.endswith(".html") and not name.startswith("docs/theme/")] == []


def test_no_file_names_a_place_on_this_machine() -> None:
    places = [str(ROOT).encode(), sys.prefix.encode()]
    assert [name for name in files() if any(place in (ROOT / name).read_bytes() for place in places)] == []


@pytest.mark.parametrize("script", [".ci/setup", ".ci/run"])
def test_the_scripts_are_bash_that_parses_and_may_be_executed(script: str) -> None:
    assert (ROOT / script).stat().st_mode & 0o111
    assert (ROOT / script).read_text(encoding="utf-8").startswith("#!/usr/bin/env bash\n")
    subprocess.run(["bash", "-n", script], cwd=ROOT, check=True)


def test_a_wheel_holds_every_file_of_common(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "source"
    for name in [name for name in files() if name.startswith("common/")] + ["pyproject.toml", "README.md", "LICENSE"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(source)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == {name for name in files() if name.startswith("common/")}


# --- The fast tier ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_fast_tier_passes_in_another_order_and_in_time() -> None:
    """The bound is two minutes; a busy machine may take twice that."""
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not site and not slow", "-p", "randomly"]
    result = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--randomly-seed=20260101"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    took = time.monotonic() - started
    assert result.returncode == 0, result.stdout[-5000:]
    print(f"fast tier: {took:.0f} s of 120")
    assert took < 240


def test_the_hooks_before_a_commit_are_valid_and_run_commands_that_exist(root: pathlib.Path) -> None:
    program = pathlib.Path(sys.executable).with_name("pre-commit")
    subprocess.run([program, "validate-config", root / ".pre-commit-config.yaml"], check=True)
    (repo,) = yaml.safe_load((root / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    for hook in repo["hooks"]:
        name = pathlib.Path(hook["entry"].split()[0])
        assert name.parent == pathlib.Path(".venv/bin") and pathlib.Path(sys.executable).with_name(name.name).is_file()
