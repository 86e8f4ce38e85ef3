"""`python -m common.site`: what an author asks while writing."""

import subprocess
import sys

import pytest
from miniature import EXECUTED, Project

pytestmark = pytest.mark.site
ALPHA = "chapters/m01_first/1_alpha.py"


def ask(project: Project, *arguments: str, status: int = 0) -> str:
    """What the command prints, errors included."""
    command = [sys.executable, "-m", "common.site", *arguments]
    done = subprocess.run(
        command,
        cwd=project.root,
        env=project.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


def test_status_names_what_made_a_chapter_stale(project):
    assert {line.rpartition(": ")[2] for line in ask(project, "status").splitlines()} == {"up to date"}
    project.edit("minihelp/base.py", "VALUE = 1", "VALUE = 2")
    project.edit("chapters/m01_first/2_beta.py", '"beta gives"', '"beta now gives"')
    told = dict(line.split(": ", 1) for line in ask(project, "status").splitlines())
    assert told[ALPHA] == "stale: module minihelp/base.py"
    assert told["chapters/m01_first/2_beta.py"] == "stale: code"
    assert told["chapters/m02_second/0_overview.py"] == "up to date"


def test_run_executes_the_named_chapter_where_it_is_stale(project):
    ask(project, "run", ALPHA)
    assert project.names_ran() == []
    project.edit("minihelp/beta.py", "VALUE = 10", "VALUE = 11")
    ask(project, "run", ALPHA, "chapters/m01_first/2_beta.py")
    assert project.names_ran() == ["beta"]


def test_run_reports_a_failure_with_its_line(project):
    project.edit(ALPHA, '"alpha gives"', "1 / 0")
    assert f"{ALPHA}:34: ZeroDivisionError: division by zero" in ask(project, "run", ALPHA, status=1)


def test_run_refuses_what_is_no_chapter(project):
    assert "chapters/m01_first/9_other.py: no such chapter" in ask(
        project, "run", "chapters/m01_first/9_other.py", status=2
    )


def test_check_executes_nothing_and_names_the_first_fault(project):
    assert len(ask(project, "check").splitlines()) == len(EXECUTED)
    project.edit(ALPHA, "# ### Same", "# #### Same")
    assert ask(project, "check", status=1).startswith(f"{ALPHA}:27: heading level 4")
    assert project.names_ran() == []


def test_a_helper_that_is_no_python_is_one_line(project):
    project.edit("minihelp/base.py", "VALUE = 1", "VALUE = (")
    for command in ("status", "key"):
        (line,) = ask(project, command, status=1).splitlines()[-1:]
        assert line.startswith("minihelp/base.py:1: ")


def test_the_key_changes_with_what_outputs_depend_on_and_not_with_prose(project):
    before = ask(project, "key")
    project.edit(ALPHA, "甲句。", "改過的甲句。")
    assert ask(project, "key") == before
    project.edit("minihelp/base.py", "VALUE = 1", "VALUE = 2")
    assert ask(project, "key") != before


def test_a_new_page_can_be_built_as_it_begins_and_is_never_written_over(project):
    page = "chapters/m01_first/3_planned.py"
    assert ask(project, "new", page).splitlines() == [page, "tests/chapters/test_m01_3.py"]
    project.edit("chapters/m01_first/0_overview.py", "[還沒寫的](3_planned.py#part)", "[寫好的](3_planned.py)")
    project.edit("chapters/m01_first/0_overview.py", "[to come](3_planned.py#part)", "[written](3_planned.py)")
    project.build("--strict")
    assert "M01-3 | Title" in project.page("en/m01/3-planned/")
    before = (project.root / page).read_text()
    assert f"{page}: is there already" in ask(project, "new", page, status=1)
    assert (project.root / page).read_text() == before
    assert "list it there first" in ask(project, "new", "chapters/m01_first/8_unlisted.py", status=1)


def test_a_shard_executes_its_own_chapters(project):
    for file in (project.root / ".cache/executed").rglob("*.json"):
        file.unlink()
    ask(project, "run", "--shard", "1/2")
    first = project.names_ran()
    ask(project, "run", "--shard", "2/2")
    assert sorted(first + project.names_ran()) == sorted(EXECUTED) and 0 < len(first) < len(EXECUTED)
    assert "no shard 3/2" in ask(project, "run", "--shard", "3/2", status=1)


def test_what_chapters_share_is_made_as_in_a_kernel(project):
    ask(project, "artifacts")
    assert project.names_ran() == ["shared1"]  # one thread
    project.edit("mkdocs.yml", "shared: minihelp.runs:make_shared", "")
    assert "mkdocs.yml names nothing that chapters share" in ask(project, "artifacts", status=1)
