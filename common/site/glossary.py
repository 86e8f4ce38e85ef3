"""The term table `docs/terms.toml`: the glossary pages, and the words that mean the same to someone who searches."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from common.site.chapter import slug

_HAN = re.compile(r"[\u4e00-\u9fff]")
_CHAPTER = re.compile(r"m(\d\d)_\w+/(\d)_\w+\.py")


@dataclass(frozen=True)
class Term:
    """A concept of the glossary. `page` is a path below the chapters' folder, `also` what readers may type instead."""

    zh: str
    en: str
    zh_definition: str
    en_definition: str
    page: str
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _CHAPTER.fullmatch(self.page):
            raise ValueError(f"its page is {self.page!r}, not a path like m01_first_ptq/0_overview.py")

    @property
    def anchor(self) -> str:
        """The entry's anchor on the glossary pages of both languages."""
        return slug(self.en)

    @property
    def label(self) -> str:
        """The chapter page's short name, such as `M01-2`; an overview is just `M01`."""
        chapter, number = _CHAPTER.fullmatch(self.page).groups()  # type: ignore[union-attr]
        return f"M{chapter}" + (f"-{number}" if number != "0" else "")


@dataclass(frozen=True)
class Word:
    """A word without an entry: what texts write, what is searched as it, what Chinese text avoids."""

    zh: str
    en: str
    also: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True)
class TermTable:
    """`docs/terms.toml` as read."""

    terms: tuple[Term, ...]
    words: tuple[Word, ...]


def load_terms(path: Path) -> TermTable:
    """Read the term table; a missing or unknown field, or an anchor used twice, is an error that names the term."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    made: dict[type, list] = {Term: [], Word: []}
    for kind, entries in ((Term, table.get("term", [])), (Word, table.get("word", []))):
        for entry in entries:
            fields = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
            try:
                made[kind].append(kind(**fields))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path.name}: {entry.get('en')}: {error}") from error
    anchors = [term.anchor for term in made[Term]]
    if twice := sorted({name for name in anchors if anchors.count(name) > 1}):
        raise ValueError(f"{path.name}: two terms have the anchor {', '.join(twice)}")
    return TermTable(tuple(made[Term]), tuple(made[Word]))


def glossary_markdown(table: TermTable, language: str) -> str:
    """The glossary as Markdown: a heading per term, sorted by the English one so that both languages keep one order."""
    return "\n".join(_entry(term, language) for term in sorted(table.terms, key=lambda term: term.anchor))


def synonyms(table: TermTable) -> list[dict[str, list[str]]]:
    """Per concept, what may be `typed` and what to `find` then: the words that the pages of the two languages write."""
    groups = []
    for entry in (*table.terms, *table.words):
        find = list(dict.fromkeys([_plain(entry.zh), _plain(entry.en)]))
        typed = list(dict.fromkeys([*find, *entry.also]))
        if len(typed) > 1:
            groups.append({"typed": typed, "find": find})
    return groups


def _entry(term: Term, language: str) -> str:
    zh = language == "zh"
    heading = f"{term.zh}（{term.en}）" if zh and term.zh != term.en else term.en
    definition = term.zh_definition if zh else term.en_definition
    facts = [f"教這個詞的頁面：[{term.label}]({term.page})" if zh else f"Taught in [{term.label}]({term.page})"]
    if not zh and term.zh != term.en:
        facts.append(f"Chinese: {term.zh}")
    also = [word for word in term.also if zh or not _HAN.search(word)]
    if also:
        facts.append(("也有人寫：" if zh else "Also written: ") + ("、" if zh else ", ").join(also))
    note = "；".join(facts) if zh else ". ".join(facts) + "."
    return f"## {heading}\n\n{definition}\n\n{note}\n{{ .glossary-note }}\n"


def _plain(text: str) -> str:
    return text.replace("`", "")
