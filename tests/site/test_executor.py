"""Executing chapters: what a page may rely on, and every way in which a chapter can fail."""

import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import subprocess
import textwrap
import threading
from collections.abc import Iterator

from common.site import executor as executor_module
from common.site.chapter import Chapter
from common.site.executor import BILINGUAL, Executor, Failure, machine_paths, output_fault
from common.site.outline import read_chapters, read_outline

import pytest
from miniature import EXECUTIONS, Project, code, eventually, make_project, page

RAN = "from minihelp.runs import ran\n"


def course(root: pathlib.Path, bodies: dict[str, str], settings: dict[str, str] | None = None) -> Project:
    """A course with a chapter page per body; `settings` are chapter-wide ones by name."""
    chapters = {}
    for name, body in bodies.items():
        setting = (settings or {}).get(name, "")
        chapters[f"m01_first/1_{name}"] = page(name, textwrap.dedent(body)).replace(
            'lang="zh"', f'lang="zh" {setting}', 1
        )
    project = make_project(root, chapters)
    names = ", ".join(f'"1_{name}"' for name in bodies)
    project.write(
        "chapters/outline.toml", f'[[chapter]]\nfolder = "m01_first"\nzh = "甲"\nen = "A"\npages = [{names}]\n'
    )
    return project


def bare(path: str) -> str:
    """A chapter's name in these tests: `m01_first/1_warns.py` is `warns`."""
    return pathlib.PurePath(path).stem.removeprefix("1_")


def read(project: Project) -> dict[str, Chapter]:
    """The project's chapters by their bare names."""
    found = read_chapters(project.chapters, read_outline(project.chapters))
    return {bare(chapter.name): chapter for chapter in found}


def executor(project: Project, **options: object) -> Executor:
    return Executor(project.root, project.chapters, ("minihelp",), **options)


@pytest.fixture(scope="module", autouse=True)
def executions_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels started here find the file that cells append to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(EXECUTIONS, str(tmp_path_factory.getbasetemp() / "executions"))
        for name in ("PT2E_COMMIT", "PT2E_CACHE"):
            patch.delenv(name, raising=False)
        yield


def executions(project: Project) -> Project:
    """The project, whose cells append to this process's file."""
    project.executions = pathlib.Path(os.environ[EXECUTIONS])
    project.executions.unlink(missing_ok=True)
    return project


# --- chapters that fail

# name: (code cells, the line within them that is named, what the reason says)
FAULTS = {
    "raises": (code("x = 1", "", "x.nothing"), 4, "AttributeError: 'int' object has no attribute 'nothing'"),
    "raises_below": (
        code(RAN + "ran('before')")
        + code("def f():", "    raise ValueError('boom')", "", "f()")
        + code("ran('after')"),
        *(7, "ValueError: boom"),
    ),
    "raises_above": (code("def f():", "    raise ValueError('boom')") + code("x = 1", "f()"), 7, "ValueError: boom"),
    "raises_in_a_helper": (code("from minihelp import broken", "", "broken.fall()"), 4, "ZeroDivisionError"),
    "imports_nothing": (code("import math", "import no_such_module"), 3, "ModuleNotFoundError"),
    "returns": (code("x = 1", "return x"), 3, "SyntaxError: 'return' outside function"),
    "exits": (code("import sys", "sys.exit(3)"), 2, "SystemExit: 3"),
    "asks": (code("input('name? ')"), 2, "StdinNotImplementedError"),
    "uses_automagic": (code("pwd"), 2, "NameError: name 'pwd' is not defined"),
    "crashes": (
        code("import os, signal") + code("x = 1", "os.kill(os.getpid(), signal.SIGSEGV)"),
        *(5, "the kernel died (signal SIGSEGV)"),
    ),
    "leaves": (code("import os", "os._exit(3)"), 2, "the kernel died (exit status 3)"),
    "never_ends": (code("x = 1") + code("while True:", "    pass"), 5, "the time limit of 2 s is over"),
    "sleeps_piece_by_piece": (
        code("import time") + code("time.sleep(0.7)") * 9,
        *(None, "the time limit of 2 s is over"),
    ),
    "waits_for_a_process": (
        code("import subprocess") + code("subprocess.run(['sleep', '86399'])"),
        *(5, "the time limit of 2 s is over"),
    ),
    "prints_to_stderr": (code("x = 1") + code("import sys", "print('careful', file=sys.stderr)"), 5, "stderr"),
    "writes_to_descriptor_2": (code("import os", "os.write(2, b'from C++\\n');"), 2, "stderr"),
    "warns": (code("import warnings", "warnings.warn('soon gone')"), 2, "stderr"),
    "logs": (code("import logging", "logging.getLogger('lib').warning('hm')"), 2, "stderr"),
    "starts_one_who_complains": (code("import subprocess", "subprocess.run('echo no >&2', shell=True);"), 2, "stderr"),
    "shows_its_folder": (code("import os", "os.getcwd()"), 2, "a path of this machine"),
    "shows_a_helpers_file": (code("import minihelp.beta", "print(minihelp.beta)"), 2, "a path of this machine"),
    "shows_a_librarys_file": (code("import nbformat", "print(nbformat.__file__)"), 2, "a path of this machine"),
    "shows_a_picture": (
        code("from IPython.display import Image", "Image(data=b'\\x89PNG\\r\\n\\x1a\\n' + bytes(8), format='png')"),
        *(2, "alternative text"),
    ),
    "shows_a_drawing": (
        code("from IPython.display import SVG", "SVG(data='<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"),
        *(2, "alternative text"),
    ),
}
SOUND = {
    "sound": code(RAN + "ran('sound')", "print(1)"),
    "sound_too": code(RAN + "ran('sound_too')", "print(2)"),
}
LIMITED = ("never_ends", "sleeps_piece_by_piece", "waits_for_a_process")


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Executor, dict[str, Failure]]:
    """A course whose chapters fail, each in its own way, but for two; and the failures of one run."""
    bodies = {name: body for name, (body, *_) in FAULTS.items()} | SOUND
    root = tmp_path_factory.mktemp("failing") / "course"
    project = executions(course(root, bodies, dict.fromkeys(LIMITED, "time_limit=2")))
    project.write("minihelp/broken.py", "def fall():\n    return 1 / 0\n")
    runner = executor(project, workers=3)
    failures = runner.run(read(project).values())
    project.first_run = project.names_ran()
    assert [failure.chapter for failure in failures] == [f"chapters/m01_first/1_{name}.py" for name in FAULTS]
    return project, runner, {bare(failure.chapter): failure for failure in failures}


@pytest.mark.parametrize("name", FAULTS)
def test_a_chapter_that_fails_is_named_with_line_and_reason(failed, name):
    project, _, failures = failed
    failure = failures[name]
    _, line, reason = FAULTS[name]
    assert reason in failure.reason
    first = read(project)[name].code_cells[0].line - 1  # the line of the first code cell's marker
    if line is not None:
        assert failure.line == first + line - 1, str(failure)
    assert str(failure).startswith(f"chapters/m01_first/1_{name}.py:{failure.line}: {failure.reason}")


@pytest.mark.parametrize("name", ["raises", "raises_below", "raises_in_a_helper", "crashes", "never_ends", "warns"])
def test_a_failure_shows_the_cells_source_with_its_line_numbers(failed, name):
    project, _, failures = failed
    written = (project.chapters / f"m01_first/1_{name}.py").read_text().splitlines()
    shown = re.findall(r"^([> ]) +(\d+) \| (.*)$", failures[name].detail, re.MULTILINE)
    assert shown
    for _, number, line in shown:
        assert written[int(number) - 1] == line
    if name.startswith("raises"):
        assert [int(number) for mark, number, _ in shown if mark == ">"] == [failures[name].line]


def test_a_raising_chapter_shows_the_traceback_without_colours(failed):
    _, _, failures = failed
    assert (
        "Traceback" in failures["raises_in_a_helper"].detail and "return 1 / 0" in failures["raises_in_a_helper"].detail
    )
    assert not [name for name, failure in failures.items() if "\x1b" in str(failure)]


@pytest.mark.parametrize(
    ("name", "text"),
    [("prints_to_stderr", "careful"), ("writes_to_descriptor_2", "from C++"), ("warns", "soon gone"), ("logs", "hm")],
)
def test_unexpected_text_on_stderr_is_quoted(failed, name, text):
    assert text in failed[2][name].detail


def test_the_other_chapters_run_and_cells_below_the_failing_one_do_not(failed):
    project, runner, _ = failed
    assert project.first_run == ["before", "sound", "sound_too"]
    chapters = read(project)
    assert runner.cached(chapters["sound"]).outputs[0][0]["text"] == "1\n"


def test_a_failed_chapter_is_never_cached(failed):
    project, runner, _ = failed
    assert [name for name, chapter in read(project).items() if runner.cached(chapter)] == list(SOUND)
    assert sorted(path.parent.name for path in project.root.glob(".cache/executed/*/*.json")) == [
        f"m01_first.1_{name}" for name in SOUND
    ]


def test_nothing_is_left_of_kernels_that_failed(failed):
    left = lambda: [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if b"86399" in _bytes(p)]  # noqa: E731
    eventually(lambda: not left(), 10, "the process that a cell had started is still running")


def _bytes(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# --- chapters that run

SOUND_CELLS = {
    "where_it_runs": """\
        # %%
        import os
        import pathlib

        assert os.listdir() == [], os.listdir()
        pathlib.Path("left").write_text("behind")
        assert os.environ["OMP_NUM_THREADS"] == "1"
        assert os.environ["PT2E_CACHE"].endswith("/.cache/artifacts")
        import minihelp.beta

        # %%
        assert "from_the_users_startup" not in globals()
        os.getpid() == os.getppid()
        """,
    "what_it_shows": """\
        # %%
        print("one")
        print("two")
        "three"

        # %%
        x = 1

        # %%
        from IPython.display import display

        display({"application/vnd.pt2e.bilingual+json": {"zh": {"text/html": "<b>字</b>"}, "en": {"text/html": "w"}},
                 "text/plain": "w"}, raw=True)
        x

        # %%
        import sys
        for number in range(3):
            print(number, end=" ")
            sys.stdout.flush()
        """,
    "order_of_a_set": """\
        # %%
        print({f"name{number}" for number in range(40)})
        """,
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, tuple[Project, Executor]]:
    """The same sound chapters, executed by kernels forked from a warm parent (True) and by cold ones (False)."""
    done = {}
    for warm in (True, False):
        root = tmp_path_factory.mktemp("sound") / "course"
        project = course(root, SOUND_CELLS)
        startup = root.with_name("ipython") / "profile_default/startup"
        startup.mkdir(parents=True)
        (startup / "mine.py").write_text("from_the_users_startup = 1\nprint('hello')\n")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("IPYTHONDIR", str(root.with_name("ipython")))
            runner = executor(project, workers=1, warm=warm, machine=lambda: {"cpu": "a CPU"})
            assert [str(failure) for failure in runner.run(read(project).values())] == []
        done[warm] = project, runner
    return done


def outputs(ran: dict, warm: bool, name: str) -> list[list[dict]]:
    project, runner = ran[warm]
    return runner.cached(read(project)[name]).outputs


@pytest.mark.site
@pytest.mark.parametrize("warm", [True, False])
def test_a_chapter_runs_in_an_empty_folder_with_the_project_importable_and_nobodys_settings(ran, warm):
    assert outputs(ran, warm, "where_it_runs") == [
        [],
        [{"output_type": "display_data", "data": {"text/plain": "False"}, "metadata": {}}],
    ]


@pytest.mark.site
def test_a_chapter_leaves_no_files_behind(ran):
    for project, _ in ran.values():
        assert not list(project.root.rglob("left"))


@pytest.mark.site
@pytest.mark.parametrize("warm", [True, False])
def test_outputs_hold_what_cells_showed_in_order(ran, warm):
    first, second, third, fourth = outputs(ran, warm, "what_it_shows")
    assert first == [
        {"output_type": "stream", "name": "stdout", "text": "one\ntwo\n"},
        {"output_type": "display_data", "data": {"text/plain": "'three'"}, "metadata": {}},
    ]
    assert second == []
    assert [sorted(output["data"]) for output in third] == [[BILINGUAL, "text/plain"], ["text/plain"]]
    assert fourth == [{"output_type": "stream", "name": "stdout", "text": "0 1 2 "}]


@pytest.mark.site
@pytest.mark.parametrize("name", SOUND_CELLS)
def test_warm_and_cold_kernels_show_the_same(ran, name):
    assert outputs(ran, True, name) == outputs(ran, False, name)


@pytest.mark.site
def test_results_tell_where_they_come_from(ran):
    project, runner = ran[True]
    told = runner.cached(read(project)["where_it_runs"]).provenance
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", told["date"])
    assert (told["commit"], told["cpu"], told["threads"]) == (None, "a CPU", 1)
    assert told["python"] == platform.python_version()


@pytest.mark.site
def test_an_up_to_date_chapter_is_not_executed_again(ran):
    project, runner = ran[True]
    before = runner.executed_cells
    assert before == sum(len(chapter.code_cells) for chapter in read(project).values())
    events = []
    assert executor(project).run(read(project).values(), lambda *event: events.append(event)) == []
    assert events == [] and runner.executed_cells == before


def test_the_commit_is_the_one_checked_out_unless_the_environment_tells(tmp_path, monkeypatch):
    assert executor_module.commit(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    assert executor_module.commit(tmp_path) is None
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "one"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert executor_module.commit(tmp_path) == head
    monkeypatch.setenv("PT2E_COMMIT", "abc")
    assert executor_module.commit(tmp_path) == "abc"


def test_versions_of_libraries_are_those_installed():
    assert executor_module.installed("nbformat") == importlib.metadata.version("nbformat")
    assert executor_module.installed("no-such-distribution") is None


# --- side by side


@pytest.mark.site
def test_chapters_run_side_by_side_and_those_that_measure_alone_afterwards(tmp_path):
    # The first three end only when all of them have begun.
    together = code(
        *("import os, pathlib, time", RAN),
        *("path = pathlib.Path(os.environ['MINIATURE_EXECUTIONS'] + '.together')", "with path.open('a') as file:"),
        *("    print('here', file=file)", "end = time.monotonic() + 60"),
        *("while path.read_text().count('here') < 3:", "    assert time.monotonic() < end, 'the others never came'"),
        *("    time.sleep(0.02)", "ran('NAME', 0.3)"),
    )
    bodies = {
        "measures_a": code(RAN, "ran('measures_a', 0.4)"),
        **{name: together.replace("NAME", name) for name in ("one", "two", "three")},
        "measures_b": code(RAN, "ran('measures_b', 0.4)"),
    }
    settings = {"measures_a": "measures=true", "measures_b": "measures=true"}
    project = executions(course(tmp_path / "course", bodies, settings))
    pathlib.Path(f"{project.executions}.together").unlink(missing_ok=True)
    assert [str(failure) for failure in executor(project, workers=3).run(read(project).values())] == []
    runs = {run.name: run for run in project.ran()}
    assert sorted(runs) == sorted(bodies)
    measured = sorted((runs["measures_a"], runs["measures_b"]), key=lambda run: run.began)
    assert all(run.ended <= measured[0].began for run in runs.values() if run not in measured)
    assert measured[0].ended <= measured[1].began


@pytest.mark.site
def test_the_longest_chapter_starts_first_and_unknown_ones_before_it(tmp_path):
    bodies = {name: code(RAN, f"ran('{name}')") for name in ("short", "long", "new")}
    project = executions(course(tmp_path / "course", bodies))
    chapters = read(project)
    runner = executor(project, workers=1)
    assert runner.run([chapters["short"], chapters["long"]]) == []
    for name, seconds in (("short", 1.0), ("long", 50.0)):
        entry = runner.cached(chapters[name])
        runner.store.save(type(entry)(**{**vars(entry), "seconds": seconds}))
        project.edit(f"chapters/m01_first/1_{name}.py", f"ran('{name}')", f"ran('{name}')  # edited")
    project.ran()
    events = []
    assert executor(project, workers=1).run(read(project).values(), lambda *event: events.append(event)) == []
    assert [run.name for run in project.ran()] == ["new", "long", "short"]
    assert [(event, bare(chapter.name)) for event, chapter, _ in events] == [
        (event, name) for name in ("new", "long", "short") for event in ("start", "done")
    ]


@pytest.mark.site
def test_two_executors_at_once_execute_a_chapter_once(tmp_path):
    project = executions(course(tmp_path / "course", {"slow": code(RAN, "ran('slow', 1.0)")}))
    found = []

    def run() -> None:
        runner = executor(project)
        found.append((runner.run(read(project).values()), runner.cached(read(project)["slow"])))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [run.name for run in project.ran()] == ["slow"]
    assert found[0] == found[1] and found[0][0] == [] and found[0][1] is not None


@pytest.mark.site
def test_a_parent_that_dies_while_importing_means_cold_kernels_and_named_chapters(tmp_path):
    bodies = {"uses_it": code("import deadly"), "stands_alone": code("print(1)")}
    project = course(tmp_path / "course", bodies)
    project.write("deadly.py", "import os\n\nos._exit(7)\n")
    chapters = read(project)
    (failure,) = executor(project, workers=1).run(chapters.values())
    assert failure.chapter == "chapters/m01_first/1_uses_it.py"
    assert failure.line == chapters["uses_it"].code_cells[0].line
    assert "kernel" in failure.reason


@pytest.mark.site
def test_a_damaged_result_is_made_again(tmp_path):
    project = executions(course(tmp_path / "course", {"one": code(RAN, "ran('one')", "print(1)")}))
    chapter = read(project)["one"]
    runner = executor(project, warm=False)
    first = runner.entry(chapter)
    path = runner.store.path(chapter.name, first.key)
    path.write_bytes(path.read_bytes().replace(b"stdout", b"stderr"))
    assert runner.cached(chapter) is None
    assert runner.entry(chapter).outputs == first.outputs
    assert [run.name for run in project.ran()] == ["one", "one"]


@pytest.mark.site
def test_a_chapter_without_code_has_a_result_as_well(tmp_path):
    project = course(tmp_path / "course", {"words": ""})
    assert executor(project).run(read(project).values()) == []
    assert executor(project).cached(read(project)["words"]).outputs == []


# --- outputs by themselves

ROOT = pathlib.Path("/srv/clone")


def stream(text: str, name: str = "stdout") -> dict:
    return {"output_type": "stream", "name": name, "text": text}


def shown(**data: object) -> dict:
    return {"output_type": "display_data", "data": {k.replace("_", "/"): v for k, v in data.items()}, "metadata": {}}


@pytest.mark.parametrize(
    "output",
    [
        stream("scale 0.5, ratio 3/4, a/b, ~/model, tmp/x, /usr/bin/env, https://pytorch.org/docs\n"),
        shown(text_html="<td>1 / 2</td>"),
        {"output_type": "display_data", "data": {BILINGUAL: {"zh": {}, "en": {}}, "image/png": "x"}, "metadata": {}},
    ],
)
def test_ordinary_outputs_have_no_fault(output):
    assert output_fault([output], ROOT) is None


@pytest.mark.parametrize(
    "path", ["/srv/clone/common/env.py", "/tmp/x.pte", "/home/me/model.pt", "/Users/me/x", "/root/x"]
)
@pytest.mark.parametrize(
    "make",
    [
        lambda path: stream(f"saved\nto {path} now\n"),
        lambda path: shown(text_html=f"<pre>to {path} now</pre>"),
        lambda path: shown(text_plain=f"to {path} now"),
        lambda path: {
            "output_type": "display_data",
            "data": {BILINGUAL: {"zh": {"text/markdown": f"to {path} now"}, "en": {"text/markdown": "nowhere"}}},
            "metadata": {},
        },
    ],
    ids=["stream", "html", "plain", "bilingual"],
)
def test_a_machine_path_is_a_fault_wherever_it_stands(make, path):
    reason, detail = output_fault([stream("fine"), make(path)], ROOT)
    assert "path of this machine" in reason
    assert f"to {path} now" in detail


@pytest.mark.parametrize(
    "path",
    [
        "/opt/venv/site-packages/torch/__init__.py",
        "/usr/lib/python3/dist-packages/yaml/__init__.py",
        "/opt/hostedtoolcache/Python/3.11.9/x64/lib/python3.11/json/__init__.py",
        "/var/folders/ipykernel_12/34.py",
    ],
)
def test_every_kind_of_installation_gives_itself_away(path):
    assert [mark for mark in machine_paths(ROOT) if mark in path]


def test_stderr_is_a_fault_even_between_other_outputs():
    reason, detail = output_fault([stream("a"), stream("oops\n", "stderr"), stream("b")], ROOT)
    assert "stderr" in reason and "oops" in detail


@pytest.mark.site
def test_the_cache_folder_of_a_moved_project_goes_along(tmp_path):
    project = executions(course(tmp_path / "course", {"one": code(RAN, "ran('one')")}))
    assert executor(project, warm=False).run(read(project).values()) == []
    shutil.move(project.root, tmp_path / "moved")
    project.root, project.chapters = tmp_path / "moved", tmp_path / "moved/chapters"
    assert executor(project, warm=False).run(read(project).values()) == []
    assert [run.name for run in project.ran()] == ["one"]
