"""The manifest of what pages show, and what counts as a change."""

import json

from common.site.executor import BILINGUAL
from common.site.outputs import Change, ManifestError, changes, manifest, same, shown
from common.site.store import Entry

import pytest
from miniature import parsed
from test_commands import ask

CHAPTER = parsed(
    """\
    # %%
    a = 1

    # %%
    b = 2
    """
)


def stream(text):
    return {"output_type": "stream", "name": "stdout", "text": text}


def both(zh, en):
    return {"output_type": "display_data", "data": {BILINGUAL: {"zh": zh, "en": en}, "text/plain": "?"}}


def told(*cells, chapter=CHAPTER, measures=False):
    """The manifest of one chapter whose code cells gave these outputs."""
    entry = Entry(chapter.name, "key", {}, [list(outputs) for outputs in cells], 1.0, {"versions": {"torch": "2"}})
    found = manifest([(chapter, entry)])
    found["chapters"][f"chapters/{chapter.name}"]["measures"] = measures
    return json.loads(json.dumps(found))


def test_lines_tables_sentences_and_the_words_of_drawings_are_in_it():
    svg = "<figure><svg><text>x</text><g><text> y  z</text></g></svg><figcaption>no</figcaption></figure>"
    outputs = [
        stream("one  \n\ntwo\n"),
        both({"text/plain": "中"}, {"text/plain": "said"}),
        {"output_type": "display_data", "data": {"text/plain": "7"}},
        both({}, {"text/plain": "alt", "text/html": svg}),
    ]
    assert list(shown(outputs)) == ["one", "two", "said", "7", "alt", "drawn: x | y z"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("accuracy 93.25%", "accuracy 93.26%"),  # one unit of the last place
        ("SQNR 34.412 dB", "SQNR 34.440 dB"),  # 0.1 %
        ("s = 1.234e-05", "s = 1.235e-05"),
        ("−0.50 and 3", "−0.51 and 3"),
        ("a   b", "a b"),
        ("1,234.5 bytes", "1,235.2 bytes"),
    ],
)
def test_lines_within_the_tolerances_are_the_same(old, new):
    assert same(old, new) and same(new, old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("accuracy 93.25%", "accuracy 93.45%"),
        ("3,872 bytes", "3,873 bytes"),  # whole numbers count something
        ("s = 1.234e-05", "s = 1.234e-04"),
        ("0.50", "-0.50"),
        ("9 q", "9 dq"),
        ("conv2d, relu", "relu, conv2d"),
        ("1 of 2", "1 of 2 of 3"),
        ("nan", "0.0"),
    ],
)
def test_lines_beyond_the_tolerances_differ(old, new):
    assert not same(old, new) and not same(new, old)


def test_times_are_compared_by_ratio_and_words_still_count():
    assert same("12.0 µs, 3.0 times", "17.9 µs, 2.1 times", timing=True)
    assert not same("12.0 µs", "18.1 µs", timing=True) and not same("12.0 µs", "12.0 ms", timing=True)


def test_a_change_names_the_chapter_the_line_and_both_texts():
    (change,) = changes(told([stream("x 1\ny 2\n")], []), told([stream("x 1\ny 3\n")], []))
    assert change == Change("chapters/m01_first/0_overview.py", CHAPTER.code_cells[0].line, "y 2", "y 3", False)
    assert str(change).splitlines()[1:] == ["- y 2", "+ y 3"]


def test_lines_that_come_and_go_are_told_beside_those_that_stay():
    found = changes(told([stream("a\nb\nc\n")], []), told([stream("a\nc\nd\n")], []))
    assert [(change.old, change.new) for change in found] == [("b", ""), ("", "d")]


def test_an_inserted_cell_shifts_nothing():
    longer = parsed("# %%\na = 1\n\n# %%\nnew = 0\n\n# %%\nb = 2\n")
    old = told([stream("one")], [stream("two")])
    new = told([stream("one")], [stream("new")], [stream("two")], chapter=longer)
    (change,) = changes(old, new)
    assert (change.line, change.old, change.new) == (longer.code_cells[1].line, "", "new")


def test_chapters_that_come_and_go_are_told():
    empty = {"format": 1, "chapters": {}}
    assert [(c.old, c.new) for c in changes(empty, told([], []))] == [("", "a new chapter")]
    assert [(c.old, c.new) for c in changes(told([], []), empty)] == [("a chapter", "")]


def test_only_another_number_of_a_measuring_chapter_is_a_time():
    old, new = (told([stream(text)], [], measures=True) for text in ("10 µs\nfast\n", "40 µs\nslow\n"))
    assert [change.is_timing for change in changes(old, new)] == [True, False]


@pytest.mark.parametrize("wrong", [{}, {"format": 0, "chapters": {}}, [], None])
def test_what_is_no_manifest_is_refused(wrong):
    with pytest.raises(ManifestError, match="no manifest of format 1"):
        changes(told([], []), wrong)


@pytest.mark.site
def test_every_build_writes_one_and_the_command_compares_two(project):
    before = project.root / "before.json"
    before.write_bytes((project.site / "outputs.json").read_bytes())
    assert "0 outputs changed" in ask(project, "diff", "before.json", "site/outputs.json")
    project.edit("minihelp/base.py", "VALUE = 1", "VALUE = 2")
    project.build()
    said = ask(project, "diff", "before.json", "site/outputs.json", status=1)
    assert "chapters/m01_first/1_alpha.py:30:\n- alpha gives 1\n+ alpha gives 2\n" in said, said
    assert "no manifest" in ask(project, "diff", "mkdocs.yml", "site/outputs.json", status=1)
