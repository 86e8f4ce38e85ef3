"""What mkdocs-jupyter reads chapters with: our reader in jupytext's place.

mkdocs-jupyter 0.26.3 (nbconvert2.py) calls `jupytext.read(path)` and `jupytext.writes(notebook, fmt="ipynb")`, with
no way to choose a reader, and jupytext's own turns comments such as `# ls -la` into shell commands.
"""

from __future__ import annotations

from pathlib import Path

from common.site.chapter import Chapter, notebook
from common.site.languages import Language

import jupytext
import nbformat


class ChapterReader:
    """The two functions of jupytext that mkdocs-jupyter uses, for the chapters of one language."""

    def __init__(self, chapters: dict[str, Chapter], folder: Path, language: Language) -> None:
        self._chapters, self._folder, self._language = chapters, folder, language

    def read(self, path: str) -> nbformat.NotebookNode:
        """The notebook of a chapter in this language; any other file as jupytext reads it."""
        file = Path(path)
        name = file.relative_to(self._folder).as_posix() if file.is_relative_to(self._folder) else ""
        chapter = self._chapters.get(name)
        return notebook(chapter, self._language.code) if chapter else jupytext.read(path)

    def writes(self, book: nbformat.NotebookNode, fmt: str) -> str:
        """The notebook's text, metadata kept."""
        return nbformat.writes(book) if fmt == "ipynb" else jupytext.writes(book, fmt)
