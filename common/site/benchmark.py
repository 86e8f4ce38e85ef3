"""How long the site takes to build, against stock mkdocs-jupyter: `python -m common.site.benchmark`.

A course is generated in a temporary folder: chapters with text in both languages, a formula, a table and a few cells of
real work. It is built

- by stock mkdocs-jupyter and Material, as anyone would get both languages: two builds, each executing its notebooks;
- by this project's plugin with the project's own mkdocs.yml: cold, unchanged, after a prose edit, after a code edit.

Every cell appends a line to a file when it is done. That file says how often cells ran and how long, whoever ran them.
All kernels have one torch thread. `--check` ends with status 1 where a bound does not hold; `--scale` shows how
unchanged rebuilds grow with the number of chapters.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import operator
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common.site.outline import address

import yaml

PROJECT = Path(__file__).resolve().parents[2]
LOG = "PT2E_BENCHMARK_LOG"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PER_SECTION = 10  # pages a section of a generated course has
SPEEDUP = 3.0  # times faster than stock, at least
OF_FLOOR = 1.5  # times the floor that a cold build may take, beside measuring chapters and rendering
LANGUAGES = ("zh", "en")


# --- The generated course ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """What chapters do: the modules they import, and how many steps each of their work cells runs."""

    imports: tuple[str, ...] = ("torch",)
    steps: tuple[int, ...] = ()

    @property
    def cells(self) -> int:
        """Code cells of a chapter: one that imports, then the work."""
        return 1 + len(self.steps)


# A step is a training step of a small network: real work whose amount doesn't depend on how busy the machine is.
TORCH_WORK = """\
began = time.monotonic()
torch.manual_seed(seed + {cell})
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.ReLU(),
    torch.nn.Flatten(), torch.nn.Linear(16 * 16 * 16, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x, y = torch.randn(64, 3, 16, 16), torch.arange(64) % 10
for _ in range({steps}):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print(f"loss after {steps} steps: {{loss.item():.3f}}")
"""
PLAIN_WORK = """\
began = time.monotonic()
total = seed + {cell}
for step in range({steps} * 1000):
    total = (total * 31 + step) % 1_000_003
print(f"loss after {steps} steps: {{total}}")
"""
FIRST_CELL = """\
import os
import time

began = time.monotonic()
{imports}
seed = {seed}


def done(cell):
    with open(os.environ["{log}"], "a") as log:
        log.write(f"{chapter} {{cell}} {{began}} {{time.monotonic()}}\\n")


done(0)
"""
TEXT = {
    "zh": (
        "# B{number} | 第 {number} 章\n\n這一章訓練一個小網路 `model`，看它的損失怎麼下降。\n\n"
        '!!! note "先想一想"\n    步數加倍，損失會減半嗎？\n\n'
        "$$ L = -\\frac{{1}}{{N}} \\sum_i \\log p_i(y_i) $$",
        "## 第 {cell} 次訓練\n\n| 項目 | 值 |\n| --- | --- |\n| 步數 | {steps} |\n| 批次 | 64 |\n\n"
        "每一步都算**交叉熵**的梯度，再更新權重；前後兩次的起點不同。",
    ),
    "en": (
        "# B{number} | Chapter {number}\n\nThis chapter trains a small network `model` and watches its loss fall.\n\n"
        '!!! note "Think first"\n    Does twice the steps mean half the loss?\n\n'
        "$$ L = -\\frac{{1}}{{N}} \\sum_i \\log p_i(y_i) $$",
        "## Training run {cell}\n\n| item | value |\n| --- | --- |\n| steps | {steps} |\n| batch | 64 |\n\n"
        "Every step computes the gradient of the **cross entropy** and updates the weights; every run starts anew.",
    ),
}


def chapter_name(number: int) -> str:
    """The path of the chapter with this number (from 0) below the chapters' folder."""
    return f"m{number // PER_SECTION + 1:02}_part/{number % PER_SECTION}_page.py"


def page_folder(number: int) -> str:
    """Where the site puts that chapter's page."""
    return address(chapter_name(number)).rstrip("/")


def chapter_cells(number: int, work: Work) -> list[tuple[str, str]]:
    """The chapter as (kind, source); kind is a language for text, `code` for code."""
    imports = "".join(f"import {module}\n" for module in ("common", *work.imports))
    template = TORCH_WORK if "torch" in work.imports else PLAIN_WORK
    cells = [(lang, TEXT[lang][0].format(number=number)) for lang in LANGUAGES]
    cells.append(("code", FIRST_CELL.format(imports=imports, log=LOG, chapter=number, seed=100 * number)))
    for cell, steps in enumerate(work.steps, 1):
        cells += [(lang, TEXT[lang][1].format(cell=cell, steps=steps)) for lang in LANGUAGES]
        cells.append(("code", template.format(cell=cell, steps=steps) + f"done({cell})"))
    return cells


def chapter_text(cells: list[tuple[str, str]], only: str | None = None) -> str:
    """The percent-format file: both languages, or `only` one as a stock notebook has it."""
    blocks = []
    for kind, source in cells:
        if kind == "code":
            blocks.append("# %%\n" + source.rstrip("\n"))
        elif only in (None, kind):
            marker = "# %% [markdown]" + ("" if only else f' lang="{kind}"')
            blocks.append(marker + "\n" + "\n".join(f"# {line}".rstrip() for line in source.splitlines()))
    return "\n\n".join(blocks) + "\n"


def outline_text(chapters: int) -> str:
    """The outline that lists the chapters."""
    sections = collections.defaultdict(list)
    for number in range(chapters):
        folder, file = chapter_name(number).split("/")
        sections[folder].append(file.removesuffix(".py"))
    return "\n".join(
        f'[[chapter]]\nfolder = "{folder}"\nzh = "{folder[:3].upper()}"\nen = "{folder[:3].upper()}"\npages = {pages}\n'
        for folder, pages in sections.items()
    )


def varied(steps: int, number: int, chapters: int) -> int:
    """Steps of one chapter's cells: chapters differ in length by a factor of two, and `steps` is their mean."""
    return max(1, round(steps * (1 + (number / max(1, chapters - 1) - 0.5) * 2 / 3)))


def write_course(folder: Path, chapters: int, work: Work) -> None:
    """Write the course as this project's plugin reads it, with the project's configuration, and the two stock sites."""
    for number in range(chapters):
        cells = chapter_cells(number, Work(work.imports, tuple(varied(n, number, chapters) for n in work.steps)))
        write(folder / "course/chapters" / chapter_name(number), chapter_text(cells))
        for lang in LANGUAGES:
            write(folder / f"stock-{lang}/docs" / chapter_name(number), chapter_text(cells, only=lang))
    write(folder / "course/chapters/outline.toml", outline_text(chapters))
    for lang, title in (("zh", "# 首頁\n"), ("en", "# Home\n")):
        write(folder / f"course/docs/{lang}/index.md", title)
        write(folder / f"stock-{lang}/docs/index.md", title)
        write(folder / f"stock-{lang}/mkdocs.yml", yaml.safe_dump(stock_configuration(lang)))
    write(folder / "course/mkdocs.yml", yaml.safe_dump(course_configuration(), allow_unicode=True))


def course_configuration() -> dict:
    """The project's own mkdocs.yml for a course elsewhere."""
    theme = {"custom_dir": str(PROJECT / "docs/theme")}
    return {
        "INHERIT": str(PROJECT / "mkdocs.yml"),
        "theme": theme,
        "docs_dir": "docs/zh",
        "site_dir": "site",
        "watch": ["chapters"],
    }


def stock_configuration(lang: str) -> dict:
    """What a site of one language says when nothing of ours is in it: the same theme and Markdown."""
    return {
        "site_name": "Benchmark",
        "site_url": "http://127.0.0.1:8000/",
        "theme": {
            "name": "material",
            "language": {"zh": "zh-TW", "en": "en"}[lang],
            "font": False,
            "features": [
                "navigation.indexes",
                "navigation.prune",
                "navigation.footer",
                "navigation.top",
                "content.code.copy",
            ],
        },
        "plugins": [
            "search",
            {"mkdocs-jupyter": {"include": ["*.py"], "execute": True, "allow_errors": False, "cache": False}},
        ],
        "markdown_extensions": ["abbr", "admonition", "attr_list", "def_list", "footnotes", "md_in_html", "tables"],
    }


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


PROSE_EDIT = ("步數加倍，損失會減半嗎？", "步數加倍，損失就會減半嗎？")


def code_edit(number: int) -> tuple[str, str]:
    """A change of a chapter's code: what stands there, and what comes in its place."""
    return f"seed = {100 * number}\n", f"seed = {100 * number + 50}\n"


def edit(path: Path, old: str, new: str) -> None:
    """Replace the one place where `old` stands."""
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise ValueError(f"{path.name}: {old!r} stands {text.count(old)} times, not once")
    path.write_text(text.replace(old, new), encoding="utf-8")


# --- Running builds ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Execution:
    """One execution of one cell, by the clock that all processes share."""

    chapter: int
    cell: int
    began: float
    ended: float


@dataclass(frozen=True)
class Run:
    """One build: wall-clock and CPU seconds of its whole process tree, the cells it executed, the load before it."""

    name: str
    seconds: float
    cpu: float = 0.0
    executions: tuple[Execution, ...] = ()
    load: float = 0.0
    pages: int = 0


def read_log(text: str) -> tuple[Execution, ...]:
    """What the cells wrote."""
    rows = (line.split() for line in text.splitlines())
    return tuple(Execution(int(chapter), int(cell), float(began), float(ended)) for chapter, cell, began, ended in rows)


def floor(executions: Iterable[Execution], cores: int) -> float:
    """What no scheduling can beat: the longest chapter, or all cells spread evenly over the cores."""
    chapters: collections.Counter[int] = collections.Counter()
    for run in executions:
        chapters[run.chapter] += run.ended - run.began  # type: ignore[assignment]
    return max(max(chapters.values(), default=0.0), sum(chapters.values()) / cores)


class Builder:
    """Runs `mkdocs build` in the generated folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "executions.txt"

    def build(self, name: str, *sites: str) -> Run:
        """Build one site after the other. Raises RuntimeError, with what was printed, where a build fails."""
        self._log.write_text("")
        load = os.getloadavg()[0]
        cpu, began = cpu_seconds(), time.monotonic()
        for site in sites:
            self._mkdocs(self.folder / site)
        seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu
        pages = [page for site in sites for page in (self.folder / site / "site").rglob("index.html")]
        return Run(name, seconds, cpu, read_log(self._log.read_text()), load, len(pages))

    def _mkdocs(self, folder: Path) -> None:
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("JUPYTER", "PT2E_"))},
            **dict.fromkeys(THREADS, "1"),
            "PYTHONPATH": str(PROJECT),
            "NO_MKDOCS_2_WARNING": "1",
            LOG: str(self._log),
        }
        command = [sys.executable, "-m", "mkdocs", "build"]
        with subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                printed, _ = process.communicate()
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode:
            raise RuntimeError(f"mkdocs build in {folder.name} ended with status {process.returncode}:\n{printed}")


def cpu_seconds() -> float:
    """CPU time of all ended child processes and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def steps_for(seconds: float, imports: Sequence[str]) -> int:
    """How many steps of a work cell take about this long on this machine, alone and with one thread."""
    template = TORCH_WORK if "torch" in imports else PLAIN_WORK
    probe = 60
    head = "import time\n" + ("import torch\n" if "torch" in imports else "")
    template = template.replace("time.monotonic()", "time.process_time()")  # the machine may be busy
    warm_up, timed = (template.format(cell=0, steps=steps) for steps in (5, probe))
    code = f"{head}seed = 0\nexec({warm_up!r})\nexec({timed!r})\n"
    code += "print(time.process_time() - began)"
    environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
    took = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return max(1, round(probe * seconds / float(took.stdout.split()[-1])))


# --- The comparison ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """The builds of one course, by what was done before each."""

    chapters: int
    cells: int
    cores: int
    stock: Run
    cold: Run
    rendering: Run
    unchanged: Run
    prose: Run
    code: Run


@dataclass(frozen=True)
class Bound:
    """A promise and what was found: `found` stands in `relation` to `limit`.

    For wall-clock seconds of one process `cpu` says how many of them it computed: what it takes on an idle machine.
    """

    what: str
    found: float
    limit: float
    unit: str = ""
    relation: str = "<="
    cpu: float | None = None

    @property
    def holds(self) -> bool:
        """Whether what was found keeps the promise."""
        return {"<=": operator.le, ">=": operator.ge, "==": operator.eq}[self.relation](self.found, self.limit)

    @property
    def fails(self) -> bool:
        """Whether `--check` fails. A busy machine is no fault: seconds fail at twice the limit if computing took it."""
        if self.cpu is None:
            return not self.holds
        return self.found > 2 * self.limit and self.cpu > self.limit


def rebuild_limit(pages: int) -> float:
    """Seconds that a rebuild with nothing to execute may take."""
    return 2.0 + 0.1 * pages


def bounds(found: Comparison) -> list[Bound]:
    """Every promise about speed and about what is executed."""
    once = found.chapters * found.cells
    limit = OF_FLOOR * floor(found.cold.executions, found.cores) + found.rendering.seconds
    rebuild = rebuild_limit(found.cold.pages)
    return [
        Bound("stock executes every cell for each language", len(found.stock.executions), 2 * once, relation="=="),
        Bound("ours executes every cell once", len(found.cold.executions), once, relation="=="),
        Bound("nothing changed: cells executed", len(found.unchanged.executions), 0, relation="=="),
        Bound("prose edit: cells executed", len(found.prose.executions), 0, relation="=="),
        Bound("code edit: cells executed", len(found.code.executions), found.cells, relation="=="),
        Bound("code edit: chapters executed", len({e.chapter for e in found.code.executions}), 1, relation="=="),
        Bound("times faster than stock, cold", found.stock.seconds / found.cold.seconds, SPEEDUP, relation=">="),
        Bound(f"cold build ({OF_FLOOR} x floor + rendering)", found.cold.seconds, limit, "s"),
        Bound("nothing changed (2 s + 0.1 s a page)", found.unchanged.seconds, rebuild, "s", cpu=found.unchanged.cpu),
        Bound("prose edit (2 s + 0.1 s a page)", found.prose.seconds, rebuild, "s", cpu=found.prose.cpu),
    ]


def compare(folder: Path, chapters: int, work: Work, rounds: int = 1) -> Comparison:
    """Write the course and build it in every way; of `rounds` cold builds, in turn, the medians count."""
    write_course(folder, chapters, work)
    builder = Builder(folder)
    course = folder / "course"
    stock, cold = [], []
    for _ in range(rounds):
        stock.append(builder.build("stock, both languages", "stock-zh", "stock-en"))
        for made in (course / ".cache", course / "site"):
            shutil.rmtree(made, ignore_errors=True)
        cold.append(builder.build("ours, cold", "course"))
    unchanged = builder.build("ours, nothing changed", "course")
    shutil.rmtree(course / ".cache/pages", ignore_errors=True)
    rendering = builder.build("ours, pages rendered anew", "course")
    chapter = course / "chapters" / chapter_name(chapters // 2)
    edit(chapter, *PROSE_EDIT)
    prose = builder.build("ours, one prose edit", "course")
    edit(chapter, *code_edit(chapters // 2))
    code = builder.build("ours, one code edit", "course")
    check_pages(folder, chapters)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Comparison(chapters, work.cells, cores, median(stock), median(cold), rendering, unchanged, prose, code)


def median(runs: list[Run]) -> Run:
    """The run whose time is the (lower) median."""
    middle = statistics.median_low([run.seconds for run in runs])
    return next(run for run in runs if run.seconds == middle)


def check_pages(folder: Path, chapters: int) -> None:
    """Every chapter's results must stand on its pages: a fast build of wrong pages is no success."""
    for number in range(chapters):
        shown = [losses(folder / "course/site" / prefix / page_folder(number) / "index.html") for prefix in ("", "en")]
        stock = losses(folder / "stock-zh/site" / chapter_name(number).removesuffix(".py") / "index.html")
        if not stock or not shown[0] or shown[0] != shown[1]:
            raise RuntimeError(f"chapter {number}: stock shows {stock}, ours {shown[0]} and, in English, {shown[1]}")


def losses(page: Path) -> list[str]:
    """The results that a page shows."""
    return re.findall(r"loss after \d+ steps: [\d.]+", page.read_text(encoding="utf-8"))


def report(found: Comparison) -> str:
    """The figures as text."""
    runs = (found.stock, found.cold, found.unchanged, found.rendering, found.prose, found.code)
    lines = [
        f"{found.chapters} chapters of {found.cells} code cells, {found.cores} cores, {found.cold.pages} pages",
        "",
        f"{'build':28} {'wall s':>8} {'CPU s':>8} {'cells':>6} {'stock/this':>11} {'load before':>12}",
    ]
    for run in runs:
        ratio = f"{found.stock.seconds / run.seconds:10.1f}x" if run is not found.stock else ""
        cells = len(run.executions)
        lines.append(f"{run.name:28} {run.seconds:8.1f} {run.cpu:8.1f} {cells:6} {ratio:>11} {run.load:12.2f}")
    at_least = floor(found.cold.executions, found.cores)
    work = sum(e.ended - e.began for e in found.cold.executions)
    over = (found.cold.seconds - found.rendering.seconds) / at_least if at_least else 0.0
    lines += [
        "",
        f"floor: {at_least:.1f} s (cells {work:.1f} s on {found.cores} cores, or the longest chapter); "
        f"cold without rendering: {over:.2f} x floor",
        "",
    ]
    return "\n".join(lines + [bound_line(bound) for bound in bounds(found)])


def bound_line(bound: Bound) -> str:
    """One promise, and whether it holds."""
    found, limit = (f"{value:.1f}" if isinstance(value, float) else str(value) for value in (bound.found, bound.limit))
    word = "FAILS" if bound.fails else "holds" if bound.holds else "over"
    computing = "" if bound.cpu is None else f", {bound.cpu:.1f} s of them computing"
    return f"{word:6} {bound.what}: {found} {bound.unit}".rstrip() + f" ({bound.relation} {limit}){computing}"


# --- Growth -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Growth:
    """A course of many cheap chapters: its cold build and its unchanged rebuilds."""

    chapters: int
    cold: Run
    unchanged: list[Run] = field(default_factory=list)

    @property
    def bound(self) -> Bound:
        """The promise about unchanged rebuilds, by their median."""
        seconds = statistics.median(run.seconds for run in self.unchanged)
        cpu = statistics.median(run.cpu for run in self.unchanged)
        return Bound(f"{self.chapters} chapters unchanged", seconds, rebuild_limit(self.cold.pages), "s", cpu=cpu)


def grow(folder: Path, chapters: int, rounds: int) -> Growth:
    """Build a course of chapters that cost next to nothing to execute, then build it again, unchanged."""
    write_course(folder, chapters, Work(imports=(), steps=(1, 1, 1)))
    builder = Builder(folder)
    cold = builder.build("cold", "course")
    unchanged = [builder.build("unchanged", "course") for _ in range(rounds)]
    if any(run.executions for run in unchanged):
        raise RuntimeError(f"{chapters} chapters: an unchanged rebuild executed cells")
    return Growth(chapters, cold, unchanged)


def growth_report(grown: list[Growth]) -> str:
    """A table of rebuild times, and from the second row on what a further page costs."""
    titles = ("chapters", "pages", "cold s", "unchanged s", "CPU s", "ms a further page", "bound s")
    lines = ["  ".join(titles)]
    for before, row in zip([None, *grown], grown, strict=False):
        found, cpu = row.bound.found, row.bound.cpu
        more = row.cold.pages - before.cold.pages if before else 0
        further = f"{1000 * (found - before.bound.found) / more:.0f}" if before and more else ""
        values = (row.chapters, row.cold.pages, row.cold.seconds, found, cpu, further, row.bound.limit)
        shown = (f"{value:.1f}" if isinstance(value, float) else str(value) for value in values)
        lines.append("  ".join(text.rjust(len(title)) for text, title in zip(shown, titles, strict=True)))
    return "\n".join(lines)


# --- Command line -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def work_folder(keep: Path | None) -> Iterator[Path]:
    """A temporary folder, or one that stays."""
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        yield Path(tempfile.mkdtemp(prefix="benchmark-", dir=keep))
        return
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        yield Path(folder)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m common.site.benchmark", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--chapters", type=int, default=8, help="chapters of the generated course (default %(default)s)")
    add("--seconds", type=float, default=4.5, help="work of a chapter, run alone (default %(default)s)")
    add("--imports", default="torch", help="what chapters import, such as torch,torchao,executorch.runtime")
    add("--rounds", type=int, default=1, help="cold builds of each kind, or rebuilds with --scale")
    add("--scale", type=int, nargs="+", metavar="N", help="instead: unchanged rebuilds of N cheap chapters")
    add("--check", action="store_true", help="status 1 where a bound doesn't hold")
    add("--keep", type=Path, metavar="FOLDER", help="leave the generated courses in this folder")
    given = parser.parse_args(arguments)
    with work_folder(given.keep) as folder:
        if given.scale:
            grown = [grow(folder / str(count), count, max(3, given.rounds)) for count in given.scale]
            print(growth_report(grown))
            checked = [row.bound for row in grown]
            print("\n".join(["", *map(bound_line, checked)]))
        else:
            imports = tuple(filter(None, given.imports.split(",")))
            work = Work(imports, (steps_for(given.seconds / 3, imports),) * 3)
            found = compare(folder, given.chapters, work, given.rounds)
            print(report(found))
            checked = bounds(found)
    return 1 if given.check and any(bound.fails for bound in checked) else 0


if __name__ == "__main__":
    sys.exit(main())
