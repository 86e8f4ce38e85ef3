"""The benchmark says what it measures: its course is what it claims, its arithmetic is right, and the bounds hold."""

import dataclasses
import itertools
import re

from common.site import benchmark, keys
from common.site.benchmark import Bound, Comparison, Execution, Growth, Run, Work
from common.site.chapter import Chapter, read_chapter
from common.site.outline import address, read_chapters, read_outline

import pytest

TORCH = Work(("torch",), (12, 12, 12))


@pytest.fixture
def course(tmp_path):
    """Twelve chapters, written out: two sections."""
    benchmark.write_course(tmp_path, 12, TORCH)
    return tmp_path


def chapters(course) -> tuple[Chapter, ...]:
    folder = course / "course/chapters"
    return read_chapters(folder, read_outline(folder))


def test_the_generated_chapters_are_chapters_in_both_languages(course):
    made = chapters(course)
    assert len(made) == 12
    for chapter in made:
        assert len(chapter.code_cells) == TORCH.cells
        assert len(chapter.in_language("zh")) == len(chapter.in_language("en")) == 2 * TORCH.cells
        assert len(chapter.heading_ids()) == TORCH.cells


def test_stock_executes_the_same_code_and_shows_the_same_text(course):
    for chapter in chapters(course):
        for lang in ("zh", "en"):
            stock = read_chapter(course / f"stock-{lang}/docs" / chapter.name)
            assert [cell.source for cell in stock.code_cells] == [cell.source for cell in chapter.code_cells]
            assert [cell.source for cell in stock.cells] == [cell.source for cell in chapter.in_language(lang)]


def test_chapters_differ_so_that_none_is_answered_from_another_ones_cache(course):
    assert len({tuple(cell.source for cell in chapter.code_cells) for chapter in chapters(course)}) == 12


def test_the_prose_edit_leaves_the_key_and_the_code_edit_changes_it(course):
    path = course / "course/chapters" / benchmark.chapter_name(4)

    def key() -> str:
        return keys.chapter_parts(read_chapter(path), course / "course", ("common",)).key

    before = key()
    benchmark.edit(path, *benchmark.PROSE_EDIT)
    assert key() == before
    benchmark.edit(path, *benchmark.code_edit(4))
    assert key() != before


def test_an_edit_of_what_is_not_there_once_is_refused(tmp_path):
    path = tmp_path / "text"
    path.write_text("aa b")
    for old in ("a", "c"):
        with pytest.raises(ValueError, match="not once"):
            benchmark.edit(path, old, "x")
    assert path.read_text() == "aa b"


def test_work_is_varied_around_its_mean():
    steps = [benchmark.varied(300, number, 9) for number in range(9)]
    assert sum(steps) == pytest.approx(9 * 300, rel=0.01)
    assert max(steps) == pytest.approx(2 * min(steps), rel=0.01)
    assert benchmark.varied(300, 0, 1) >= 1


def test_cells_tell_how_often_and_how_long_they_ran(tmp_path, monkeypatch):
    monkeypatch.setenv(benchmark.LOG, str(tmp_path / "log"))
    sources = [source for kind, source in benchmark.chapter_cells(7, Work((), (3, 5))) if kind == "code"]
    for _ in range(2):
        names: dict = {}
        for source in sources:
            exec(source, names)
    found = benchmark.read_log((tmp_path / "log").read_text())
    assert [(run.chapter, run.cell) for run in found] == [(7, 0), (7, 1), (7, 2)] * 2
    assert all(0 <= run.ended - run.began < 60 for run in found)
    assert all(a.ended <= b.began for a, b in itertools.pairwise(found))


def test_the_floor_is_the_longest_chapter_or_an_even_spread():
    def ran(*seconds: float) -> list[Execution]:
        return [Execution(number, 0, 100.0, 100.0 + s) for number, s in enumerate(seconds)]

    assert benchmark.floor(ran(2, 2, 2, 2), cores=2) == pytest.approx(4)
    assert benchmark.floor(ran(7, 1, 1, 1), cores=2) == pytest.approx(7)
    assert benchmark.floor(ran(7, 1, 1, 1), cores=1) == pytest.approx(10)
    assert benchmark.floor([*ran(3), Execution(0, 1, 200, 204)], cores=2) == pytest.approx(7)  # two cells, one chapter
    assert benchmark.floor([], cores=2) == 0


def found(**more: object) -> Comparison:
    """A comparison in which everything holds: two chapters of two cells, 10 s of cells on two cores."""
    cells = tuple(Execution(number, cell, 0.0, 2.5) for number in (0, 1) for cell in (0, 1))
    runs = {
        "stock": Run("stock", 60.0, executions=cells * 2, pages=6),
        "cold": Run("cold", 9.0, executions=cells, pages=6),
        "rendering": Run("rendering", 2.0),
        "unchanged": Run("unchanged", 1.0),
        "prose": Run("prose", 1.1),
        "code": Run("code", 4.0, executions=cells[:2]),
    }
    return dataclasses.replace(Comparison(2, 2, 2, **runs), **more)


def test_all_bounds_hold_where_all_is_well():
    assert [bound.what for bound in benchmark.bounds(found()) if not bound.holds] == []
    assert "FAILS" not in benchmark.report(found())


@pytest.mark.parametrize(
    ("broken", "word"),
    [
        ({"stock": Run("stock", 60.0)}, "stock executes"),
        ({"stock": Run("stock", 26.9, executions=found().stock.executions)}, "times faster"),
        ({"cold": dataclasses.replace(found().cold, executions=found().cold.executions * 2)}, "every cell once"),
        ({"cold": dataclasses.replace(found().cold, seconds=9.51)}, "cold build"),  # 1.5 x 5 s + 2 s
        ({"unchanged": Run("unchanged", 1.0, executions=found().cold.executions[:1])}, "nothing changed: cells"),
        ({"prose": Run("prose", 1.0, executions=found().cold.executions[:1])}, "prose edit: cells"),
        ({"code": Run("code", 4.0, executions=found().cold.executions[:1])}, "code edit: cells"),
        ({"code": Run("code", 4.0, executions=found().cold.executions[::2])}, "code edit: chapters"),
        ({"unchanged": Run("unchanged", 5.3, cpu=2.7)}, "nothing changed (2 s"),  # 2 x (2 s + 0.1 s x 6)
        ({"prose": Run("prose", 5.3, cpu=2.7)}, "prose edit (2 s"),
    ],
)
def test_each_broken_promise_fails(broken, word):
    failing = [bound.what for bound in benchmark.bounds(found(**broken)) if bound.fails]
    assert len(failing) == 1 and word in failing[0]
    assert re.search(rf"^FAILS +.*{re.escape(word)}", benchmark.report(found(**broken)), re.MULTILINE)


def test_seconds_on_a_busy_machine_are_over_but_no_failure():
    for seconds, computing in ((5.1, 3.0), (50.0, 2.5)):
        bound = Bound("rebuild", seconds, 2.6, "s", cpu=computing)
        assert not bound.holds and not bound.fails
        assert benchmark.bound_line(bound).startswith("over ")
    assert Bound("rebuild", 5.3, 2.6, "s", cpu=2.7).fails


def test_growth_is_told_per_further_page():
    grown = [
        Growth(10, Run("cold", 20.0, pages=22), [Run("", s, cpu=2.0) for s in (2.0, 2.5, 9.0)]),
        Growth(100, Run("cold", 90.0, pages=202), [Run("", s, cpu=4.0) for s in (6.1, 6.0, 6.2)]),
    ]
    assert benchmark.growth_report(grown).splitlines()[2].split() == ["100", "202", "90.0", "6.1", "4.0", "20", "22.2"]
    assert grown[0].bound.found == 2.5 and grown[0].bound.limit == pytest.approx(4.2)


def test_pages_that_show_other_results_in_the_other_language_are_no_success(tmp_path):
    page = "<pre>loss after 5 steps: {}</pre>"
    for name in ("stock-zh/site/m01_part/0_page", "course/site/m01", "course/site/en/m01"):
        benchmark.write(tmp_path / name / "index.html", page.format("1.250"))
    benchmark.check_pages(tmp_path, 1)
    benchmark.write(tmp_path / "course/site/en/m01/index.html", page.format("1.251"))
    with pytest.raises(RuntimeError, match="chapter 0"):
        benchmark.check_pages(tmp_path, 1)


def test_chapters_are_looked_for_where_the_site_puts_them():
    for number in (0, 3, 10, 99):
        assert benchmark.page_folder(number) == address(benchmark.chapter_name(number)).rstrip("/")


@pytest.mark.slow
def test_the_bounds_hold_on_this_machine(capsys):
    status = benchmark.main(["--check"])
    print(printed := capsys.readouterr().out)
    assert status == 0, printed


@pytest.mark.slow
def test_unchanged_rebuilds_stay_within_their_bound_as_chapters_grow(capsys):
    status = benchmark.main(["--check", "--scale", "10", "100"])
    print(printed := capsys.readouterr().out)
    assert status == 0, printed
