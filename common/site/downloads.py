"""What a reader can take along: the executed notebook of a page in one language, and its plain text.

Notebooks lie beside their pages and open in Jupyter, Colab and editors: the site's Markdown becomes what those can
show, links lead back to the site, and a first cell installs the course's package where it is missing.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from common.site.chapter import Chapter, notebook, told_apart
from common.site.executor import BILINGUAL
from common.site.languages import Language
from common.site.markdown import WRAPPED
from common.site.outline import address
from common.site.store import Entry

import nbformat
from nbformat.v4 import new_code_cell

CPU_WHEELS = "https://download.pytorch.org/whl/cpu"  # PyPI's torch for Linux is several GB
FOLDED = {"setup", "plot", "solution"}

_BLOCK = re.compile(r'(!!!|\?\?\?\+?) +([\w-]+)(?: +"([^"]*)")?\s*$')
_LINK = re.compile(r"(`[^`]*`)|\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_ATTRIBUTES = re.compile(r"(?m)^(#{1,6} .*?)[ \t]*\{[^}]*\}[ \t]*$")
_ABBREVIATION = re.compile(r"(?m)^\*\[[^\]]+\]:.*\n?")
_KINDS = {"zh": {"note": "註", "tip": "提示", "warning": "注意", "question": "想一想"}}


@dataclass(frozen=True)
class Place:
    """Where the site and its sources are: addresses end in a slash; `existing` are the source paths of its pages."""

    site: str
    repository: str
    commit: str | None
    existing: frozenset[str]


def file_name(chapter: str) -> str:
    """The name of a page's files, without ending: `m01-1-minimal-ptq`."""
    folder, file = chapter.removesuffix(".py").split("/")
    return f"{folder.partition('_')[0]}-{file.replace('_', '-')}"


def colab_url(chapter: str, language: Language, repository: str) -> str | None:
    """Where Colab opens the page's notebook: on the branch `notebooks`; None where that isn't on GitHub."""
    name = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)/?", repository)
    path = f"{language.folder}{address(chapter)}{file_name(chapter)}.ipynb"
    return f"https://colab.research.google.com/github/{name[1]}/blob/notebooks/{path}" if name else None


# --- Notebooks --------------------------------------------------------------------------------------------------------


def executed_notebook(chapter: Chapter, entry: Entry, language: Language, place: Place) -> nbformat.NotebookNode:
    """The page as a notebook with its outputs; the same sources and results give the same bytes."""
    book = notebook(chapter, language.code)
    results = iter(entry.outputs)
    count = 1
    for cell in book.cells:
        del cell.metadata["pt2e"]
        if cell.cell_type == "markdown":
            cell.source = portable(cell.source, chapter.name, language, place)
        else:
            count += 1
            cell.execution_count = count
            cell.outputs = list(_outputs(next(results), language))
        if FOLDED & set(cell.metadata.get("tags", [])) and cell.cell_type == "code":
            cell.metadata["jupyter"] = {"source_hidden": True}
    book.cells.insert(1, _install_cell(language, place))
    book.metadata["language_info"] = {"name": "python"}
    book.metadata["pt2e"] |= {"commit": place.commit or ""}
    return book


def _install_cell(language: Language, place: Place) -> nbformat.NotebookNode:
    words = language.pick(
        "在 Colab 或別的機器上：裝這一頁用的版本。已經裝好的話什麼也不做。",
        "In Colab or on another machine: install the versions that made this page. Does nothing where they are.",
    )
    source = f'''\
# {words}
import importlib.metadata
import os
import subprocess
import sys

os.environ.setdefault("PT2E_LANG", "{language.code}")
try:
    importlib.metadata.version("pt2e-course")
except importlib.metadata.PackageNotFoundError:
    course = "pt2e-course @ git+{place.repository.rstrip("/")}@{place.commit or "main"}"
    wheels = "{CPU_WHEELS}"
    install = [sys.executable, "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, "--extra-index-url", wheels, course], check=True)'''
    cell = new_code_cell(source, execution_count=1, id="install")
    cell.metadata["jupyter"] = {"source_hidden": True}
    return cell


def _outputs(outputs: list[dict[str, Any]], language: Language) -> Iterator[nbformat.NotebookNode]:
    """Outputs as Jupyter keeps them, those in two languages in this one."""
    for output in outputs:
        if output["output_type"] == "stream":
            yield nbformat.from_dict(output)
        else:
            data = output["data"]
            data = data[BILINGUAL][language.code] if BILINGUAL in data else data
            yield nbformat.from_dict({"output_type": "display_data", "data": data, "metadata": {}})


# --- Markdown ---------------------------------------------------------------------------------------------------------


def portable(text: str, chapter: str, language: Language, place: Place) -> str:
    """The site's Markdown in what Jupyter and Colab can show.

    Admonitions become quotations, folds become <details>, links addresses on the site; anchors and abbreviations go.
    """
    lines: list[str] = []
    for is_code, group in itertools.groupby(told_apart(text), key=lambda told: told[1]):
        part = "\n".join(line for line, _ in group)
        if not is_code:
            part = _ABBREVIATION.sub("", _ATTRIBUTES.sub(r"\1", part))
            part = _LINK.sub(lambda link: _linked(link, chapter, language, place), part)
            part = WRAPPED.sub("", part) if language.code == "zh" else part
        lines += part.split("\n")
    return "\n".join(_unfolded(lines, language)).strip("\n")


def _linked(link: re.Match, chapter: str, language: Language, place: Place) -> str:
    code, words, target = link.groups()
    if code or re.match(r"[a-z]+:|#", target):
        return link[0]
    path, _, anchor = target.partition("#")
    source = posixpath.normpath(posixpath.join(posixpath.dirname(chapter), path))
    if source not in place.existing:
        return words
    page = address(source) if source.endswith(".py") else source.removesuffix("index.md").replace(".md", "/")
    return f"[{words}]({place.site}{language.folder}{page}{'#' + anchor if anchor else ''})"


def _unfolded(lines: Iterable[str], language: Language) -> Iterator[str]:
    """Admonitions and folds, which hold what is indented below them, in plain Markdown."""
    end = ""
    prefix: Callable[[str], str] | None = None
    for line in lines:
        if prefix and line.strip() and not line.startswith("    "):
            yield end
            prefix = None
        begin = _BLOCK.match(line)
        if begin and not prefix:
            mark, kind, title = begin.groups()
            title = title or _KINDS.get(language.code, {}).get(kind) or kind.capitalize()
            if mark == "!!!":
                yield f"> **{title}**"
                yield ">"
                prefix, end = (lambda text: f"> {text}".rstrip()), ""
            else:
                yield f"<details><summary>{title}</summary>"
                yield ""
                prefix, end = str, "\n</details>\n"
        else:
            yield prefix(line.removeprefix("    ")) if prefix else line
    if prefix and end:
        yield end


# --- Plain text -------------------------------------------------------------------------------------------------------


def plain_text(book: nbformat.NotebookNode) -> str:
    """The notebook as one Markdown text: outputs are fenced as text, drawings are what their alternative text says."""
    parts = []
    for cell in book.cells:
        if cell.id == "install":
            continue
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        shown = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
        if text := "\n".join(line.strip("\n") for line in shown if line.strip()):
            parts.append(f"```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def llms_txt(name: str, description: str, pages: list[tuple[str, str, str]]) -> str:
    """The list of the plain texts, as llmstxt.org lays it out. `pages` are (language, title, address)."""
    lines = [f"# {name}", "", f"> {description}"]
    for language in dict.fromkeys(language for language, _, _ in pages):
        lines += ["", f"## {language}", ""]
        lines += [f"- [{title}]({url})" for found, title, url in pages if found == language]
    return "\n".join(lines) + "\n"
