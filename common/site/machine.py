"""The build-machine page's generated part: where the results on the site come from, and how long each chapter ran."""

from __future__ import annotations

from collections.abc import Iterable

from common.site.chapter import Chapter
from common.site.languages import Language
from common.site.store import Entry


def machine_markdown(results: Iterable[tuple[Chapter, Entry]], language: Language) -> str:
    """Two Markdown tables: the machines with their versions (a row each), and the chapters with their times."""
    results = list(results)
    t = language.pick
    machines: dict[tuple[str, ...], int] = {}
    rows = []
    for chapter, entry in results:
        machine = _machine(entry)
        number = machines.setdefault(machine, len(machines) + 1)
        title = chapter.title(language.code).replace("|", "\\|")
        rows.append(f"| [{title}]({chapter.name}) | {entry.seconds:.1f} | {entry.provenance['date']} | {number} |")
    head = t(
        "| 機器 | CPU | 指令集 | 系統 | Python | 套件版本 |",
        "| machine | CPU | instruction sets | system | Python | package versions |",
    )
    lines = [head, "| ---: | --- | --- | --- | --- | --- |"]
    lines += [f"| {number} | {' | '.join(machine)} |" for machine, number in machines.items()]
    lines += ["", t("| 頁 | 執行秒數 | 執行日期 | 機器 |", "| page | seconds | executed on | machine |")]
    lines += ["| --- | ---: | --- | ---: |", *rows, ""]
    total = sum(entry.seconds for _, entry in results)
    lines.append(
        t(
            f"{len(results)} 頁的程式一共執行了 {total:.0f} 秒。",
            f"The code of {len(results)} pages ran for {total:.0f} seconds.",
        )
    )
    return "\n".join(lines)


def _machine(entry: Entry) -> tuple[str, ...]:
    told = entry.provenance
    versions = ", ".join(f"{name} {version}" for name, version in told.get("versions", {}).items())
    isa = ", ".join(told.get("isa", [])) or "–"
    return (told.get("cpu", "–"), isa, told["system"], told["python"], versions or "–")
