"""The weekly look ahead: build the course with newer releases, and keep one issue about what breaks.

`canary.py build newest|pre REPORT` upgrades what pyproject.toml pins, builds, and writes a report; it succeeds whatever
the build does. `canary.py tell REPORT…` opens, updates or closes the issue, with GitHub's `gh`.
"""

import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
TITLE = "The course does not build with newer releases"
LABEL = "canary"
FAULT = re.compile(r"^((?:chapters|docs|common)/\S+?:\d+: .*)$")
RAISED_IN = re.compile(r"site-packages/(\w+)")


def pins(pyproject: str) -> dict[str, str]:
    """Name -> version of every requirement that pyproject.toml pins, those of tests aside."""
    project = tomllib.loads(pyproject)["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["site"]]
    return dict(requirement.split("==") for requirement in requirements)


def faults(log: str) -> list[dict[str, str]]:
    """What failed, as a build tells it: `path:line: reason`, and the package that the last frame below it is in."""
    found: list[dict[str, str]] = []
    for line in log.splitlines():
        if told := FAULT.match(line.strip()):
            found.append({"fault": told[1], "package": ""})
        elif found and (names := RAISED_IN.findall(line)):
            found[-1]["package"] = names[-1]
    return found


def build(releases: str, report: pathlib.Path) -> None:
    """Upgrade, build, write the report."""
    pinned = pins((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    options = ["--pre"] if releases == "pre" else []
    upgrade = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", *options, *pinned]
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", "/tmp/canary"]
    log, status = "", 0
    for step in (upgrade, command):
        done = subprocess.run(step, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        log, status = done.stdout, done.returncode
        if status:
            break
    importlib.invalidate_caches()
    moved = {name: [old, new] for name, old in pinned.items() if (new := importlib.metadata.version(name)) != old}
    told = {
        "releases": releases,
        "moved": moved,
        "failed": status != 0,
        "faults": faults(log),
        "end": log[-4000:] if status else "",
    }
    report.write_text(json.dumps(told, indent=1), encoding="utf-8")


def body(reports: list[dict]) -> str:
    """The issue's text, empty where every build passed."""
    parts = []
    for report in reports:
        if not report["failed"]:
            continue
        moved = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in sorted(report["moved"].items()))
        parts.append(f"## With the {report['releases']} releases\n\nMoved: {moved or 'nothing'}\n")
        rows = [f"| `{cell(fault['fault'])}` | {fault['package'] or '?'} |" for fault in report["faults"]]
        if rows:
            parts.append("| what failed | raised in |\n| --- | --- |\n" + "\n".join(rows) + "\n")
        parts.append(f"<details><summary>The end of the log</summary>\n\n```\n{report['end']}\n```\n</details>\n")
    return "\n".join(parts)


def cell(text: str) -> str:
    """Text that a Markdown table's cell holds as code."""
    return text.replace("|", "\\|").replace("`", "'")[:300]


def tell(reports: list[dict]) -> None:
    """One open issue while something fails, none otherwise."""
    text = body(reports)
    found = json.loads(gh("issue", "list", "--label", LABEL, "--state", "open", "--json", "number"))
    number = str(found[0]["number"]) if found else ""
    if text and number:
        gh("issue", "edit", number, "--body", text)
    elif text:
        gh("label", "create", LABEL, "--force", "--description", "What newer releases break")
        gh("issue", "create", "--title", TITLE, "--label", LABEL, "--body", text)
    elif number:
        gh("issue", "close", number, "--comment", "It builds again.")


def gh(*arguments: str) -> str:
    """What GitHub's command prints."""
    return subprocess.run(["gh", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    command, *given = sys.argv[1:]
    if command == "build":
        build(given[0], pathlib.Path(given[1]))
    elif command == "tell":
        tell([json.loads(pathlib.Path(path).read_text(encoding="utf-8")) for path in given])
    else:
        sys.exit(__doc__)
