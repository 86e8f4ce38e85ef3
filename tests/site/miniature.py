"""A miniature course: the real configuration, theme and plugin, short chapters, and a helper package of its own.

How often something ran is told by what cells did: each appends a line to a file outside the project.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from common.site.chapter import Chapter, parse_chapter

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
EXECUTIONS = "MINIATURE_EXECUTIONS"  # names the file that cells append to

TITLE = """\
# %% [markdown] lang="zh"
# # 甲 {title}
#
# 中文。

# %% [markdown] lang="en"
# # {title}
#
# English.

"""

# Every chapter says with `ran(name)` that it was executed; `alpha` uses `base`, `beta` stands alone.
HELPERS = {
    "__init__": "",
    "runs": """\
        import os
        import time


        def ran(name, seconds=0.0):
            began = time.time()
            time.sleep(seconds)
            with open(os.environ["MINIATURE_EXECUTIONS"], "a") as file:
                file.write(f"{name} {os.getpid()} {began} {time.time()}\\n")


        def make_shared():
            ran("shared" + os.environ["OMP_NUM_THREADS"])
        """,
    "base": "VALUE = 1\n",
    "alpha": "def value():\n    from minihelp import base\n\n    return base.VALUE\n",
    "beta": "VALUE = 10\n",
}

OUTLINE = """\
[[chapter]]
folder = "m01_first"
zh = "M01 第一章"
en = "M01 First"
pages = ["0_overview", "1_alpha", "2_beta", "3_planned"]

[[chapter]]
folder = "m02_second"
zh = "M02 第二章"
en = "M02 Second"
pages = ["0_overview"]
"""


def dedented(text: str) -> str:
    """`textwrap.dedent` without its surprise: a first line that isn't indented leaves the text alone."""
    import textwrap

    return textwrap.dedent(text)


def page(title: str, body: str = "") -> str:
    """A chapter's text: a bilingual title, then `body`, which may be indented as the test is."""
    return TITLE.format(title=title) + dedented(body)


def code(*lines: str, options: str = "") -> str:
    """A code cell of these lines."""
    return "\n".join([f"# %% {options}".rstrip(), *lines]) + "\n\n"


def parsed(body: str, head: str | None = None) -> Chapter:
    """The chapter of a title and `body`, as the reader gives it."""
    text = (TITLE.format(title="Title") if head is None else head) + dedented(body)
    return parse_chapter(text, pathlib.Path("chapters/m01_first/0_overview.py"), "m01_first/0_overview.py", "m01/0.py")


@dataclass(frozen=True)
class Run:
    """One execution as a cell recorded it, in seconds since the epoch."""

    name: str
    pid: int
    began: float
    ended: float


class Project:
    """A course in a folder of its own, and what is done with it."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.executions = root.with_name(root.name + ".executions")
        self.chapters, self.site = root / "chapters", root / "site"
        self.path = ""  # a folder that the build finds modules in
        self.chosen: dict[str, str] = {}  # more of its environment

    def write(self, name: str, text: str) -> pathlib.Path:
        """Write a file of the project."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that stands in a file once."""
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {name}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def ran(self) -> list[Run]:
        """The executions since the last call, in the order in which they ended."""
        if not self.executions.exists():
            return []
        lines = self.executions.read_text().splitlines()
        self.executions.unlink()
        return [Run(name, int(pid), float(a), float(b)) for name, pid, a, b in (line.split() for line in lines)]

    def names_ran(self) -> list[str]:
        """The names of what ran since the last call, sorted."""
        return sorted(run.name for run in self.ran())

    @property
    def environment(self) -> dict[str, str]:
        """What processes of this project see."""
        path = [self.path, str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PT2E_", "JUPYTER_"))}
        return kept | {
            EXECUTIONS: str(self.executions),
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "NO_MKDOCS_2_WARNING": "1",
            **self.chosen,
        }

    def start(self, *arguments: str, **options: object) -> subprocess.Popen:
        """Start mkdocs; its output goes to one pipe. It hears Ctrl-C, also where a shell in the background does not."""
        return subprocess.Popen(
            [sys.executable, "-m", "mkdocs", *arguments],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **options,
        )

    def build(self, *arguments: str, status: int = 0) -> str:
        """`mkdocs build`; returns what it printed. The exit status must be the one given."""
        process = self.start("build", *arguments)
        try:
            output, _ = process.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert process.returncode == status, f"mkdocs build ended with {process.returncode}:\n{output}"
        return output

    def page(self, address: str) -> str:
        """The HTML of a page of the built site, such as `en/m01/1-alpha/`."""
        return (self.site / address / "index.html").read_text(encoding="utf-8")

    def leftovers(self) -> list[str]:
        """What lies beside the site and isn't its lock file."""
        return sorted(path.name for path in self.root.glob(".site.*") if path.name != ".site.lock")

    def processes(self) -> list[str]:
        """Command lines of running processes with this project's environment: also kernels and their children."""
        found = []
        mark = f"{EXECUTIONS}={self.executions}".encode()
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                    if state != "Z":
                        found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
        return found

    def assert_nothing_runs(self, seconds: float = 15) -> None:
        """No process of this project is left, at the latest after some seconds."""
        eventually(lambda: not self.processes(), seconds, lambda: f"still running: {self.processes()}")


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """Every file below a folder, by its path."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def eventually(true: Callable[[], object], seconds: float, what: Callable[[], str] | str = "it never came") -> None:
    """Wait until a condition holds, at most so long."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            pytest.fail(what if isinstance(what, str) else what(), pytrace=False)
        time.sleep(0.1)


def configuration(site_url: str = "https://example.org/repo/") -> str:
    """The repository's own mkdocs.yml, for a course that lies elsewhere."""
    text = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    for old, new in (
        ("custom_dir: docs/theme", f"custom_dir: {REPOSITORY}/docs/theme"),
        ('site_url: !ENV [PT2E_SITE_URL, "http://127.0.0.1:8000/"]', f"site_url: {site_url}"),
        ("  - pt2e:\n", "  - pt2e:\n      packages: [minihelp]\n"),
        ("shared: common.shared:make", "shared: minihelp.runs:make_shared"),
        ("watch: [chapters, common, docs]", "watch: [chapters, minihelp, docs]"),
    ):
        assert text.count(old) == 1, f"mkdocs.yml: {old!r} stands {text.count(old)} times"
        text = text.replace(old, new)
    return text


def make_project(root: pathlib.Path, chapters: dict[str, str]) -> Project:
    """A course of these chapters, given by their paths without `.py`; none has been built or executed."""
    project = Project(root)
    project.write("mkdocs.yml", configuration())
    for name, text in HELPERS.items():
        project.write(f"minihelp/{name}.py", dedented(text))
    project.write("chapters/outline.toml", OUTLINE)
    project.write("docs/zh/index.md", "# 首頁\n\n看[第一章](m01_first/0_overview.py)。\n")
    project.write("docs/en/index.md", "# Home\n\nSee [chapter one](m01_first/0_overview.py).\n")
    for name, text in chapters.items():
        project.write(f"chapters/{name}.py", text)
    return project


RAN = "from minihelp.runs import ran"
# It has what pages can have: links of every kind, folds, outputs in two languages, figures, formulas, a promised page.
OVERVIEW = (
    page(
        "Overview",
        """\
        # %% [markdown] lang="zh"
        # ## 為什麼
        #
        # 見[第一頁](1_alpha.py#same)、[第二章](../m02_second/0_overview.py)、[還沒寫的](3_planned.py#part)、
        # [首頁](../index.md)。
        # 一行寫不下
        # 就換行。
        #
        # $$ q = \\mathrm{round}(x / s) \\tag{1} $$
        #
        # !!! note "註"
        #     提醒。

        # %% [markdown] lang="en"
        # ## Why `it` matters
        #
        # See [page one](1_alpha.py#same), [chapter two](../m02_second/0_overview.py), [to come](3_planned.py#part),
        # and [home](../index.md).
        #
        # $$ q = \\mathrm{round}(x / s) \\tag{1} $$
        #
        # !!! note "Note"
        #     A reminder.

        # %% tags=["setup"]
        # ls -la is a comment
        import time

        from minihelp.runs import ran

        ran("overview")
        print(f"at {time.time_ns()}", "1 < 2 & 3")
        """,
    )
    + code(
        "from IPython.display import display",
        "",
        'svg = \'<svg role="img" aria-label="{}"><path id="p"/><use href="#p"/></svg>\'',
        "for count in range(2):",
        "    bundle = {",
        "        language: {'text/html': f'<figure>{svg.format(word)}<figcaption>{word}{count}</figcaption></figure>'}",
        "        for language, word in (('zh', '圖'), ('en', 'figure'))",
        "    }",
        '    display({"application/vnd.pt2e.bilingual+json": bundle, "text/plain": "fallback"}, raw=True)',
        "says = {'zh': {'text/markdown': '**得到** $y$'}, 'en': {'text/markdown': '**got** $y$'}}",
        'display({"application/vnd.pt2e.bilingual+json": says, "text/plain": "fallback"}, raw=True)',
        options='tags=["plot"]',
    )
    + """\
# %% [markdown] lang="zh"
# ## 練習
#
# 做做看。

# %% [markdown] lang="en"
# ## Exercise
#
# Try it.

# %% [markdown] lang="zh" tags=["solution"]
# 答案如下。

# %% [markdown] lang="en" tags=["solution"]
# This is it.

# %% tags=["solution"]
print("forty", "two")

# %% [markdown]
# $a_1$
"""
)
ALPHA = page(
    "Alpha",
    """\
    # %% [markdown] lang="zh"
    # ## 一樣
    #
    # 甲句。
    #
    # ## 一樣
    #
    # ### 一樣

    # %% [markdown] lang="en"
    # ## Same
    #
    # Alpha sentence.
    #
    # ## Same
    #
    # ### Same

    # %%
    from minihelp import alpha
    from minihelp.runs import ran

    ran("alpha")
    print("alpha gives", alpha.value())
    """,
)
BETA = page("Beta", code(RAN, "from minihelp import beta", "", 'ran("beta")', 'print("beta gives", beta.VALUE)'))
SECOND = page(
    "Second",
    code(RAN, "from minihelp import beta", "", 'ran("second")', 'print("second gives", beta.VALUE)')
    + code('print("no helper here")'),
).replace('lang="zh"', 'lang="zh" measures=true', 1)
CHAPTERS = {
    "m01_first/0_overview": OVERVIEW,
    "m01_first/1_alpha": ALPHA,
    "m01_first/2_beta": BETA,
    "m02_second/0_overview": SECOND,
}
PAGES = ("", "about/", "m01/", "m01/1-alpha/", "m01/2-beta/", "m02/")
EXECUTED = ["alpha", "beta", "overview", "second"]


def make_course(root: pathlib.Path) -> Project:
    """The miniature course with two ordinary pages and a picture."""
    project = make_project(root, CHAPTERS)
    project.write(
        "docs/zh/about.md", "# 關於\n\n## 緣起\n\n看[練習](m01_first/0_overview.py#exercise)。\n\n![圖](dot.svg)\n"
    )
    project.write(
        "docs/en/about.md", "# About\n\n## Why\n\nSee [this](m01_first/0_overview.py#exercise).\n\n![Dot](dot.svg)\n"
    )
    for language in ("zh", "en"):
        project.write(f"docs/{language}/dot.svg", '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>')
    return project
