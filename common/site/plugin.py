"""The MkDocs plugin `pt2e`: chapters become pages of both languages, each executed once.

MkDocs' own build makes the Chinese site; when it is done, a second build makes the English one from the same
configuration. Both go into a staging folder that replaces the site when every check has passed. The events below
stand in MkDocs' order and call named steps.
"""

from __future__ import annotations

import html
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from common import env
from common.site import executor
from common.site.chapter import Chapter, ChapterError, heading_ids
from common.site.checks import Fault, site_faults
from common.site.compiled import TemplateCache
from common.site.downloads import Place, colab_url, executed_notebook, file_name, llms_txt, plain_text
from common.site.executor import ChapterFailed, Executor, Failure
from common.site.glossary import TermTable, glossary_markdown, load_terms
from common.site.languages import EN, LANGUAGES, ZH, Language
from common.site.later import import_later
from common.site.machine import machine_markdown
from common.site.markdown import CourseMarkdown, MarkdownError, PageState
from common.site.outline import Section, address, read_chapters, read_outline
from common.site.outputs import manifest
from common.site.pages import PageCache, surroundings
from common.site.progress import progress
from common.site.search import RenderedPage, search_index
from common.site.staging import Staging
from common.site.store import Entry, write_atomically

from jinja2 import Environment
from lxml import html as lxml_html
from mkdocs.commands.build import build
from mkdocs.config import config_options
from mkdocs.config.base import Config, load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import BasePlugin, event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs.utils import CountHandler, get_relative_url
from nbformat.v4 import nbjson

HERE = Path(__file__).parent
LAST_PAGES = ("glossary.md", "build-machine.md", "about.md")  # they close the navigation, in this order
import_later("mkdocs_jupyter.convert")  # works where mkdocs.yml lists this plugin first
log = logging.getLogger("mkdocs.plugins.pt2e")


if TYPE_CHECKING:
    from common.site.render import Fragments


class English(Config):
    """What the second build says in English."""

    site_name = config_options.Type(str)
    site_description = config_options.Type(str, default="")
    docs_dir = config_options.Type(str)


class Options(Config):
    """The plugin's options in mkdocs.yml; paths are relative to it."""

    chapters = config_options.Type(str, default="chapters")
    packages = config_options.ListOfItems(config_options.Type(str), default=["common"])
    cache = config_options.Type(str, default=".cache")
    terms = config_options.Type(str, default="docs/terms.toml")
    shared = config_options.Type(str, default="")  # module:function that makes what chapters share
    only = config_options.Type(str, default="")  # a preview of these pages or folders, separated by commas
    english = config_options.SubConfig(English)


class Course:
    """One build of the course, shared by its two languages."""

    def __init__(self, root: Path, options: Options) -> None:
        self.root = root
        self.chapters_folder = root / options.chapters
        self.sections: tuple[Section, ...] = read_outline(self.chapters_folder)
        self.shared = options.shared
        self.only = tuple(name.strip() for name in options.only.split(",") if name.strip())
        self.chapters = read_chapters(self.chapters_folder, self.sections, self.only)
        self.by_name = {chapter.name: chapter for chapter in self.chapters}
        self.promised = {page for section in self.sections for page in section.pages}
        self.executor = Executor(
            root,
            self.chapters_folder,
            tuple(options.packages),
            cache=root / options.cache,
            cpu_class=env.cpu_class,
            machine=lambda: {"cpu": env.cpu_model(), "isa": list(env.isa_flags())},
        )
        self.failures: dict[str, Failure] = {}
        self.entries: dict[str, Entry] = {}  # by chapter: the results that are up to date once `execute` is done
        terms = root / options.terms
        self.terms = load_terms(terms) if terms.is_file() else TermTable((), ())
        self.commit = executor.commit(root)

    def execute(self, keep_going: bool) -> None:
        """Execute what is stale. Failures end the build, or with `keep_going` show on their pages."""
        self._look_up(self.chapters)
        stale = tuple(chapter for chapter in self.chapters if chapter.name not in self.entries)
        with progress(self.executor, stale) as report:
            failures = self.executor.run(stale, report)
        self._look_up(stale)
        self.failures = {failure.chapter: failure for failure in failures}
        if failures:
            told = f"{len(failures)} of {len(self.chapters)} chapters failed:\n\n" + "\n\n".join(map(str, failures))
            if not keep_going:
                raise PluginError(told)
            log.error(told)

    def _look_up(self, chapters: tuple[Chapter, ...]) -> None:
        """Keep the results that are up to date: a chapter's key takes a walk through all that it imports."""
        self.entries |= {chapter.name: entry for chapter in chapters if (entry := self.executor.cached(chapter))}

    def make_shared(self) -> int:
        """Make the artifacts that chapters share, as a kernel would; returns the exit status."""
        if not self.shared:
            raise ValueError("mkdocs.yml names nothing that chapters share (option `shared` of the plugin pt2e)")
        call = "import pkgutil, sys; pkgutil.resolve_name(sys.argv[1])()"
        return subprocess.run([sys.executable, "-c", call, self.shared], env=self.executor.environment()).returncode

    def results(self) -> list[tuple[Chapter, Entry]]:
        """The chapters that have an up-to-date result, each with it, in reading order."""
        return [(chapter, self.entries[chapter.name]) for chapter in self.chapters if chapter.name in self.entries]

    def entry(self, name: str) -> Entry:
        """The executed result of a chapter, for the page that shows it. Raises ChapterFailed."""
        return self.entries.get(name) or self.executor.entry(self.by_name[name])


@dataclass(frozen=True)
class Source:
    """The text a page is made of: how messages name its file, and its numbered lines."""

    path: str
    lines: tuple[tuple[int, str], ...]

    def place(self, *excerpts: str) -> str:
        """`path:line` of the first of these that stands in the text, else the path alone."""
        for excerpt in excerpts:
            for number, line in self.lines:
                if excerpt.strip("#") and excerpt in line:
                    return f"{self.path}:{number}"
        return self.path


class ChapterFile(File):
    """A chapter among MkDocs' files: its source path is the one links use, its address the course's own."""

    chapter: Chapter

    def is_documentation_page(self) -> bool:
        return True


class CoursePlugin(BasePlugin[Options]):
    """See the module's docstring."""

    def __init__(self) -> None:
        self.language: Language = ZH
        self.course: Course | None = None
        self.serving = False
        self.staging: Staging | None = None
        self.markdown = CourseMarkdown()
        self.warnings = CountHandler()
        self.failed: dict[tuple, Failure] = {}  # under `serve`, from one build to the next
        self.sources: dict[str, Source] = {}  # by the page's path below the site's folder

    # ------------------------------------------------------------------ events, in MkDocs' order

    def on_startup(self, *, command: str, dirty: bool) -> None:
        """Remember whether a reader is waiting (`serve`)."""
        self.serving = command == "serve"

    @event_priority(-50)
    def on_config(self, config: MkDocsConfig) -> MkDocsConfig:
        """Read the course, translate the configuration, send the site to a staging folder."""
        if self.language is ZH:
            try:
                self.course = Course(Path(config.config_file_path).parent, self.config)
                check_twins(self.course.root, Path(config.docs_dir), self.course.root / self.config.english.docs_dir)
                if self.course.only and Path(config.site_dir) == self.course.root / "site":
                    raise ValueError("PT2E_ONLY makes a preview: give its folder with -d, so that the whole site stays")
                self.staging = Staging(Path(config.site_dir))
            except (ChapterError, ValueError, OSError) as error:
                raise PluginError(str(error)) from error
            config.site_dir = str(self.staging.folder)
            self.sources = {}
            if self.serving:
                lenient(config)
                self.course.executor.failed = self.failed
            self.warnings = CountHandler(level=logging.WARNING)
            logging.getLogger("mkdocs").addHandler(self.warnings)
        assert self.course
        translate(config, self.language, self.config.english)
        config.nav = navigation(self.course, Path(config.docs_dir), self.language)
        config.markdown_extensions.append(self.markdown)
        return config

    def on_pre_build(self, config: MkDocsConfig) -> None:
        """Execute stale chapters."""
        assert self.course
        if self.language is ZH:
            try:
                self.course.execute(keep_going=self.serving)
            except (ChapterError, OSError) as error:
                raise PluginError(str(error)) from error
            except KeyboardInterrupt:
                self.on_build_error(KeyboardInterrupt())
                raise

    @event_priority(-50)
    def on_files(self, files: Files, config: MkDocsConfig) -> Files:
        """Add the chapters' pages."""
        assert self.course
        for chapter in self.course.chapters:
            files.append(chapter_file(chapter, config))
        return files

    def on_nav(self, nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
        """Remember which pages exist."""
        assert self.course
        self.existing = {file.src_uri for file in files}
        for file in files.documentation_pages():
            self.sources[self.language.folder + file.dest_uri] = self._source_of(file)
        folder = self.course.executor.cache / "pages" / self.language.code
        self.pages = PageCache(folder, surroundings(config, files, self.course.promised))
        self.rendered: list[RenderedPage] = []
        return nav

    def on_env(self, env: Environment, config: MkDocsConfig, files: Files) -> Environment:
        """Keep compiled templates: Material's take half a second, for each language and each rebuild under `serve`."""
        assert self.course
        env.bytecode_cache = TemplateCache(self.course.executor.cache / "templates")
        return env

    @event_priority(-50)
    def on_pre_page(self, page: Page, config: MkDocsConfig, files: Files) -> Page:
        """Chapters render through mkdocs-jupyter, then through MkDocs' own Markdown."""
        if isinstance(page.file, ChapterFile):
            page.render = self._chapter_render(page, page.render)  # type: ignore[method-assign]
            page.edit_url = f"{(config.repo_url or '').rstrip('/')}/edit/main/{self._source(page.file.chapter)}"
        page.render = self._told(page, page.render)  # type: ignore[method-assign]
        return page

    def on_page_markdown(self, markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
        """Fill in generated parts of ordinary pages; give every page the anchors of its English twin."""
        assert self.course
        if isinstance(page.file, ChapterFile):
            ids = page.file.chapter.heading_ids()
        else:
            markdown = self._filled(markdown, self.language)
            ids = heading_ids(self._filled(self._english_twin(page, markdown), EN))
        self.markdown.page = PageState(page.file.src_uri, ids, self.existing, self.course.promised)
        return markdown

    def on_page_content(self, html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
        """Keep the page for the search index; describe it in its own first words."""
        page.meta.setdefault("description", first_words(html))
        self.rendered.append(RenderedPage(page.url, str(page.title), html, self._section_title(page)))
        return html

    def on_page_context(self, context: dict, page: Page, config: MkDocsConfig, nav: Navigation) -> dict:
        """Give the templates `course` (fields in the theme's main.html)."""
        context["course"] = self._context(page, config)
        return context

    @event_priority(-100)
    def on_post_build(self, config: MkDocsConfig) -> None:
        """Write the search index; after the Chinese build make the English one, check the whole, and swap it in."""
        assert self.course
        index = search_index(self.rendered, self.course.terms, self.language.code)
        write_atomically(Path(config.site_dir, "search/index.json"), index)
        self._write_downloads(config)
        if self.language is ZH:
            assert self.staging
            self._build_english(config)
            self._write_llms_txt(config)
            told = manifest(self.course.results(), self.course.chapters_folder.name)
            write_atomically(self.staging.folder / "outputs.json", json.dumps(told, ensure_ascii=False))
            if faults := site_faults(self.staging.folder, config.site_url or ""):
                told = f"{len(faults)} faults in the built site:\n" + "\n".join(map(self._at_source, faults))
                if not self.serving:
                    raise PluginError(told)
                log.error(told)
            if config.strict and (counts := self.warnings.get_counts()):
                told = ", ".join(f"{count} {name.lower()}s" for name, count in counts)
                raise PluginError(f"{told} above; the site is left as it was")
            self.staging.swap_in()
            self._finish()

    def on_build_error(self, error: BaseException) -> None:
        """Leave the last good site; drop the half-built one."""
        if self.staging:
            self.staging.drop()
        self._finish()

    def on_shutdown(self) -> None:
        """After `serve`: its site was a temporary one."""
        if self.serving and self.staging:
            self.staging.forget()

    # ------------------------------------------------------------------ steps

    def _finish(self) -> None:
        logging.getLogger("mkdocs").removeHandler(self.warnings)
        if self.course and self.language is ZH:
            log.info("%d code cells executed", self.course.executor.executed_cells)

    def _build_english(self, config: MkDocsConfig) -> None:
        english = load_config(
            config_file=config.config_file_path,
            docs_dir=str(Path(config.config_file_path).parent / self.config.english.docs_dir),
            site_dir=str(Path(config.site_dir, EN.folder)),
            site_url=site_root(config.site_url, ZH) + EN.folder,
            site_name=self.config.english.site_name,
            site_description=self.config.english.site_description,
            strict=False,  # its warnings are counted with the Chinese ones
        )
        assert english.plugins["pt2e"] is self  # MkDocs keeps one instance of a plugin that has on_startup
        self.language = EN
        try:
            build(english)
        finally:
            self.language = ZH

    def _source(self, chapter: Chapter) -> str:
        assert self.course
        return f"{self.course.chapters_folder.name}/{chapter.name}"

    def _source_of(self, file: File) -> Source:
        assert self.course
        if isinstance(file, ChapterFile):
            cells = file.chapter.in_language(self.language.code)
            lines = [line for cell in cells for line in enumerate(cell.source.splitlines(), cell.line)]
            return Source(self._source(file.chapter), tuple(lines))
        path = Path(file.abs_src_path or "")
        shown = path.relative_to(self.course.root) if path.is_relative_to(self.course.root) else path
        return Source(shown.as_posix(), tuple(enumerate(file.content_string.splitlines(), 1)))

    def _at_source(self, fault: Fault) -> str:
        """The fault with the line of the source it comes from, where that is known."""
        if fault.page not in self.sources:
            return str(fault)
        fragment = "#" + fault.url.partition("#")[2]
        place = self.sources[fault.page].place(fault.url, unquote(fault.url), fragment, unquote(fragment))
        return f"{place}: {fault.what} ({fault.page})"

    def _told(self, page: Page, render: Callable[[MkDocsConfig, Files], None]) -> Callable:
        """The page's render; what can't be rendered becomes one message with its place in the source."""

        def rendered(config: MkDocsConfig, files: Files) -> None:
            try:
                render(config, files)
            except ChapterFailed as error:
                raise PluginError(str(error)) from error
            except MarkdownError as error:
                source = self.sources[self.language.folder + page.file.dest_uri]
                raise PluginError(f"{source.place(error.excerpt)}: {error}") from error

        return rendered

    def _chapter_render(self, page: Page, convert: Callable[[MkDocsConfig, Files], None]) -> Callable:
        """The page's render: notebook to Markdown by mkdocs-jupyter and our template, Markdown to HTML by MkDocs."""
        chapter = page.file.chapter  # type: ignore[attr-defined]

        def rendered(config: MkDocsConfig, files: Files) -> None:
            assert self.course
            failure = self.course.failures.get(self._source(chapter))
            if failure:
                page.content, page.title = failed_page(failure), chapter.name
                return
            key = self.pages.key(chapter, self.language, self.course.entry(chapter.name))
            self.pages.render(page, files, key, lambda: fresh(config, files))

        def fresh(config: MkDocsConfig, files: Files) -> None:
            fragments = self._conversion()
            convert(config, files)
            page.markdown = fragments.restore_texts(page.content or "")
            Page.render(page, config, files)
            page.title = page._title_from_render  # type: ignore[assignment]
            page.content = fragments.restore(page.content or "")

        return rendered

    def _conversion(self) -> Fragments:
        """Have mkdocs-jupyter read and convert the next chapter with ours; returns what keeps its finished HTML."""
        from common.site import kernels, render
        from common.site.reader import ChapterReader

        import mkdocs_jupyter.config
        import mkdocs_jupyter.nbconvert2

        assert self.course
        os.environ["JUPYTER_CONFIG_PATH"] = str(HERE / "nbconvert")
        mkdocs_jupyter.config.settings.templates_dir = str(HERE / "templates")
        reader = ChapterReader(self.course.by_name, self.course.chapters_folder, self.language)
        mkdocs_jupyter.nbconvert2.jupytext = reader
        kernels.entry_of = self.course.entry
        render.fragments = render.Fragments()
        return render.fragments

    def _english_twin(self, page: Page, markdown: str) -> str:
        if self.language is EN:
            return markdown
        assert self.course
        twin = self.course.root / self.config.english.docs_dir / page.file.src_uri
        return twin.read_text(encoding="utf-8")

    def _filled(self, markdown: str, language: Language) -> str:
        assert self.course
        if "<!-- terms -->" in markdown:
            markdown = markdown.replace("<!-- terms -->", glossary_markdown(self.course.terms, language.code))
        if "<!-- machine -->" in markdown:
            markdown = markdown.replace("<!-- machine -->", machine_markdown(self.course.results(), language))
        return markdown

    def _section_title(self, page: Page) -> str:
        assert self.course
        sections = (section for section in self.course.sections if page.file.src_uri in section.pages)
        return next((self.language.pick(section.zh, section.en) for section in sections), "")

    def _place(self, config: MkDocsConfig) -> Place:
        """Where notebooks find the site and the sources, `existing` in the way links name pages."""
        assert self.course
        site = site_root(config.site_url, self.language)
        return Place(site, config.repo_url or "", self.course.commit, frozenset(self.existing))

    def _write_downloads(self, config: MkDocsConfig) -> None:
        """Each chapter's notebook, source and plain text, beside its page."""
        assert self.course
        place = self._place(config)
        for chapter, entry in self.course.results():
            book = executed_notebook(chapter, entry, self.language, place)
            path = Path(config.site_dir, address(chapter.name), file_name(chapter.name))
            for ending, text in (
                (".ipynb", nbjson.writes(book) + "\n"),
                (".md", plain_text(book)),
                (".py", chapter.path.read_text(encoding="utf-8-sig")),
            ):
                write_atomically(path.with_name(path.name + ending), text)

    def _write_llms_txt(self, config: MkDocsConfig) -> None:
        """The list of all plain texts, of both languages, where programs look for it."""
        assert self.course
        root = site_root(config.site_url, ZH)
        pages = []
        for language in (EN, ZH):
            for chapter, _ in self.course.results():
                url = f"{root}{language.folder}{address(chapter.name)}{file_name(chapter.name)}.md"
                pages.append((language.name, chapter.title(language.code), url))
        text = llms_txt(self.config.english.site_name, self.config.english.site_description, pages)
        write_atomically(Path(config.site_dir, "llms.txt"), text)

    def _downloads(self, chapter: Chapter, config: MkDocsConfig) -> SimpleNamespace:
        """Where the page's files are, seen from the page."""
        name = file_name(chapter.name)
        colab = colab_url(chapter.name, self.language, config.repo_url or "")
        return SimpleNamespace(notebook=f"{name}.ipynb", source=f"{name}.py", colab=colab)

    def _context(self, page: Page, config: MkDocsConfig) -> SimpleNamespace:
        assert self.course
        chapter = page.file.chapter if isinstance(page.file, ChapterFile) else None
        entry = self.course.entries.get(chapter.name) if chapter else None
        root = site_root(config.site_url, self.language)
        repository = (config.repo_url or "").rstrip("/")
        return SimpleNamespace(
            language=self.language.code,
            html=self.language.html,
            t=self.language.pick,
            chapter=chapter is not None,
            switch=[
                SimpleNamespace(
                    lang=other.code,
                    hreflang=other.html,
                    name=other.name,
                    url=get_relative_url(other.folder + page.url, self.language.folder + page.url),
                    absolute=root + other.folder + page.url,
                )
                for other in LANGUAGES
            ],
            provenance=SimpleNamespace(**entry.provenance, seconds=entry.seconds) if entry else None,
            source_url=f"{repository}/blob/main/{self._source(chapter)}" if chapter else None,
            edit_url=page.edit_url,
            downloads=self._downloads(chapter, config) if chapter and entry else None,
            site_commit=self.course.commit,
            search_index=get_relative_url("search/index.json", page.url),
        )


def check_twins(root: Path, chinese: Path, english: Path) -> None:
    """Every ordinary page has its twin. Raises ValueError naming the page and what to write."""
    for docs, others, name in ((chinese, english, "English"), (english, chinese, "Chinese")):
        for page in sorted(docs.rglob("*.md")):
            twin = others / page.relative_to(docs)
            if not twin.is_file():
                shown, missing = (path.relative_to(root).as_posix() for path in (page, twin))
                raise ValueError(f"{shown}: no {name} twin; write {missing}")


def lenient(config: MkDocsConfig) -> None:
    """Under `serve` faults are told and pages shown: after a warning, MkDocs' strict build would let requests hang."""
    config.strict = False
    logger = logging.getLogger("mkdocs")
    for handler in [handler for handler in logger.handlers if isinstance(handler, CountHandler)]:
        logger.removeHandler(handler)


def translate(config: MkDocsConfig, language: Language, english: English) -> None:
    """Set what differs between the two builds of one configuration."""
    config.theme["language"] = language.theme
    config.mdx_configs.setdefault("toc", {})["permalink_title"] = language.pick("這一節的連結", "Link to this section")
    config.extra["scope"] = site_path(config.site_url, language)
    if language is EN:
        config.theme.static_templates -= {"404.html"}  # a host shows the one at the site's root
        config.edit_uri = (config.edit_uri or "").replace("docs/zh", english.docs_dir)


def site_root(site_url: str | None, language: Language) -> str:
    """The address of the Chinese site's root, which both languages share, given that of one of them."""
    address = (site_url or "/").rstrip("/") + "/"
    return address.removesuffix(language.folder) if language.folder else address


def site_path(site_url: str | None, language: Language) -> str:
    """The path of that root: `/` or `/repository/`."""
    return urlsplit(site_root(site_url, language)).path


def navigation(course: Course, docs: Path, language: Language) -> list:
    """MkDocs' `nav`: home, the chapters that exist, the other pages."""
    pages = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    nav: list = [{language.pick("首頁", "Home"): page} for page in pages if page == "index.md"]
    for section in course.sections:
        existing = [page for page in section.pages if page in course.by_name]
        if existing:
            nav.append({language.pick(section.zh, section.en): existing})
    others = [page for page in pages if page != "index.md"]
    return nav + sorted(others, key=lambda page: LAST_PAGES.index(page) if page in LAST_PAGES else -1)


def chapter_file(chapter: Chapter, config: MkDocsConfig) -> ChapterFile:
    """The chapter as one of MkDocs' files."""
    file = ChapterFile.generated(config, chapter.name, abs_src_path=str(chapter.path))
    assert isinstance(file, ChapterFile)
    file.chapter = chapter
    file.dest_uri = address(chapter.name) + "index.html"
    file.url = address(chapter.name)
    if chapter.name.split("/")[-1].startswith("0_"):
        file.name = "index"  # its address is its folder's
    return file


def first_words(page: str, limit: int = 150) -> str:
    """The beginning of the page's first paragraph, cut at a word or mark where it is longer."""
    paragraph = lxml_html.fragment_fromstring(page, create_parent=True).find(".//p")
    text = " ".join(paragraph.text_content().split()) if paragraph is not None else ""
    if len(text) > limit:
        text = re.sub(r"[\w(（「]*$", "", text[: limit - 1]).rstrip(" ,，、") + "…"
    return html.escape(text)  # Material puts it into an attribute as it is


def failed_page(failure: Failure) -> str:
    """What `serve` shows in place of a chapter that failed."""
    return f'<h1>{html.escape(failure.chapter)}</h1>\n<pre class="failure">{html.escape(str(failure))}</pre>\n'
