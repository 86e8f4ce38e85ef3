"""The term table and the glossary made of it."""

import pathlib
import re
import textwrap

from common.site.chapter import heading_ids
from common.site.glossary import Term, TermTable, Word, glossary_markdown, load_terms, synonyms
from common.site.outline import read_outline

import pytest

OBSERVER = Term(
    zh="observer",
    en="observer",
    zh_definition="記下數值範圍的小模組。",
    en_definition="A small module that records ranges.",
    page="m02_observers/1_observers.py",
    also=("觀察器",),
)
CALIBRATION = Term(
    zh="校準",
    en="calibration",
    zh_definition="餵代表性資料。",
    en_definition="Running representative data.",
    page="m02_observers/0_overview.py",
    also=("標定", "calibrate"),
)


@pytest.fixture(scope="module")
def table(root: pathlib.Path) -> TermTable:
    return load_terms(root / "docs/terms.toml")


def write(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "terms.toml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def test_entries_are_sorted_by_their_english_word_in_both_languages():
    table = TermTable((OBSERVER, CALIBRATION), ())

    headings = {lang: re.findall(r"^## (.*)$", glossary_markdown(table, lang), re.M) for lang in ("zh", "en")}

    assert headings == {"zh": ["校準（calibration）", "observer"], "en": ["calibration", "observer"]}


def test_an_entry_shows_its_own_language_and_links_to_the_page_that_teaches_it():
    zh, en = (glossary_markdown(TermTable((CALIBRATION,), ()), language) for language in ("zh", "en"))

    assert "餵代表性資料。" in zh and "Running" not in zh
    assert "Running representative data." in en and "餵" not in en
    assert "[M02](m02_observers/0_overview.py)" in zh and "[M02](m02_observers/0_overview.py)" in en
    assert "標定、calibrate" in zh
    assert "Also written: calibrate.\n" in en, "an English page lists no Chinese spellings"
    assert "Chinese: 校準" in en


def test_a_typed_synonym_finds_the_words_that_pages_write():
    table = TermTable((CALIBRATION, OBSERVER), (Word(zh="模組", en="module"), Word(zh="dtype", en="dtype")))

    assert synonyms(table) == [
        {"typed": ["校準", "calibration", "標定", "calibrate"], "find": ["校準", "calibration"]},
        {"typed": ["observer", "觀察器"], "find": ["observer"]},
        {"typed": ["模組", "module"], "find": ["模組", "module"]},
    ]


def test_a_term_without_a_definition_is_refused_by_name(tmp_path: pathlib.Path):
    path = write(
        tmp_path,
        """
        [[term]]
        zh = "校準"
        en = "calibration"
        zh_definition = "餵資料。"
        page = "m02_observers/0_overview.py"
        """,
    )

    with pytest.raises(ValueError, match=r"terms\.toml: calibration: .*en_definition"):
        load_terms(path)


def test_a_term_whose_page_is_not_a_chapter_path_is_refused(tmp_path: pathlib.Path):
    path = write(
        tmp_path,
        """
        [[term]]
        zh = "校準"
        en = "calibration"
        zh_definition = "餵資料。"
        en_definition = "Data."
        page = "glossary.md"
        """,
    )

    with pytest.raises(ValueError, match=r"calibration: its page is 'glossary\.md'"):
        load_terms(path)


def test_two_terms_with_one_anchor_are_refused(tmp_path: pathlib.Path):
    fields = 'zh = "甲"\nzh_definition = "一。"\nen_definition = "One."\npage = "m00_fx/0_overview.py"\n'
    path = write(tmp_path, "".join(f'[[term]]\nen = "{word}"\n{fields}' for word in ("zero point", "Zero-point")))

    with pytest.raises(ValueError, match="anchor zero-point"):
        load_terms(path)


def test_each_term_has_one_full_sentence_in_each_language(table: TermTable):
    faults = []
    for term in table.terms:
        zh, en = term.zh_definition, term.en_definition
        if not zh.endswith("。") or zh.count("。") != 1:
            faults.append(f"{term.en}: {zh}")
        if not en.endswith(".") or re.search(r"[.!?] [A-Z]", en):
            faults.append(f"{term.en}: {en}")

    assert not faults and len(table.terms) >= 45


def test_the_page_of_each_term_is_one_the_course_promises(table: TermTable, root: pathlib.Path):
    promised = {page for section in read_outline(root / "chapters") for page in section.pages}

    assert {term.page for term in table.terms} <= promised


def test_no_two_entries_choose_different_words_for_one_concept(table: TermTable):
    """A word that one entry writes is no synonym of another: the search could not tell which is meant."""
    entries = [*table.terms, *table.words]
    written = {word: entry.en for entry in entries for word in (entry.zh, entry.en)}
    synonyms_of = [(word, entry.en) for entry in entries for word in entry.also]
    clashes = {(word, own, written[word]) for word, own in synonyms_of if written.get(word, own) != own}

    assert not clashes


def test_definitions_avoid_the_words_that_the_table_forbids(table: TermTable):
    avoided = [word for entry in table.words for word in entry.avoid]
    used = [(term.en, word) for term in table.terms for word in avoided if word in term.zh_definition]

    assert avoided and not used


def test_anchors_on_the_glossary_pages_are_the_terms_own(table: TermTable):
    assert heading_ids(glossary_markdown(table, "en")) == sorted(term.anchor for term in table.terms)
