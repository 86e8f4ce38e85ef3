"""The built site in a real browser, both languages: what readers see, click and type."""

import pathlib
import re
import tomllib
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect

pytestmark = pytest.mark.site

HERE = pathlib.Path(__file__).parent
ROOTS = {"zh": "", "en": "en/"}
CHAPTER = "m01/"
PAGES = ["", CHAPTER, "m08/", "m08/4-latency/", "glossary/", "about/", "build-machine/"]
PHONE = {"width": 390, "height": 844}
TAIL = "decodeURIComponent(location.hash)"


@pytest.fixture(params=ROOTS)
def language(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A fresh profile on a desktop-sized window in the light scheme, allowed to use the clipboard."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 800},
        color_scheme="light",
        permissions=["clipboard-read", "clipboard-write"],
    )
    context.set_default_timeout(10_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that must end without errors: no exception, no console error, no failed or foreign request."""
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(f"exception: {error}"))
    page.on("console", lambda message: faults.append(f"console: {message.text}") if message.type == "error" else None)
    page.on("requestfailed", lambda request: aborted(request) or faults.append(f"failed: {request.url}"))
    page.on(
        "response", lambda answer: faults.append(f"{answer.status}: {answer.url}") if answer.status >= 400 else None
    )
    page.on("request", lambda request: faults.append(f"foreign: {request.url}") if foreign(request.url) else None)
    yield page
    assert faults == []


@pytest.fixture
def visit(page: Page, site_url: str, language: str) -> Callable[[str], Page]:
    """Open a page of the language by its path."""

    def visit(path: str) -> Page:
        page.goto(site_url + ROOTS[language] + path)
        return page

    return visit


def aborted(request: Request) -> bool:
    """Whether the page was left before the answer came."""
    return request.failure == "net::ERR_ABORTED"


def foreign(url: str) -> bool:
    """Whether reading the page asks anyone but the site."""
    parts = urlsplit(url)
    return parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1"


def search(page: Page, words: str) -> list[str]:
    """Type into the search; the addresses found, best first."""
    if not page.locator("#course-search").is_visible():
        page.keyboard.press("/")
    box = page.locator("#course-search-input")
    expect(box).to_be_focused()
    box.fill("")
    box.press_sequentially(words)
    # The index is loaded by the first use; from then on, results follow each key at once.
    page.wait_for_function(
        "document.querySelector('#course-search [role=status]').textContent.match(/\\d|沒有|No section/)"
    )
    return page.locator("#course-search [role=option]").evaluate_all("hits => hits.map(hit => hit.href)")


@pytest.mark.parametrize("path", PAGES)
def test_a_page_opens_in_its_language_without_errors_or_foreign_requests(visit: Callable, language: str, path: str):
    page = visit(path)
    page.wait_for_load_state("networkidle")

    assert page.locator("html").get_attribute("lang") == {"zh": "zh-Hant", "en": "en"}[language]
    expect(page.locator("article h1")).to_be_visible()


@pytest.mark.parametrize("path", PAGES)
def test_head_names_both_languages_of_the_page(visit: Callable, path: str):
    page = visit(path)

    links = page.locator('head link[rel~="alternate"]').evaluate_all("all => all.map(a => [a.hreflang, a.href])")
    alternates = {hreflang: urlsplit(href).path for hreflang, href in links}
    canonical = urlsplit(page.locator("head link[rel=canonical]").get_attribute("href") or "").path

    assert alternates["zh-Hant"] == alternates["x-default"] == "/" + path
    assert alternates["en"] == "/en/" + path
    assert canonical in alternates.values()


@pytest.mark.parametrize("path", [CHAPTER, "m08/4-latency/"])
def test_formulas_are_drawn(visit: Callable, path: str):
    page = visit(path)
    page.locator("details").evaluate_all("all => all.forEach(details => details.open = true)")

    boxes = page.locator("article math").evaluate_all(
        "all => all.map(m => [m.textContent, m.getBoundingClientRect().width, m.getBoundingClientRect().height])"
    )
    text = page.locator("article").evaluate(
        "a => [...a.querySelectorAll('p, li, td')].filter(e => !e.querySelector('code')).map(e => e.innerText).join()"
    )

    assert boxes or path != CHAPTER
    assert [formula for formula, width, height in boxes if width < 4 or height < 8] == []
    assert not re.search(r"\$[^$\n]+\$|\\frac|\\hat|\\mathrm", text)


def test_the_language_switch_stays_on_the_page_and_in_the_section(visit: Callable, language: str):
    page = visit(CHAPTER)
    heading = page.locator("article h2[id]").nth(2)
    name = heading.get_attribute("id")
    heading.evaluate("h => h.scrollIntoView()")

    page.locator("a[data-twin]").click()
    page.wait_for_url("**/m01/**")

    other = "en" if language == "zh" else "zh"
    assert urlsplit(page.url).path == "/" + ROOTS[other] + CHAPTER
    assert page.evaluate(TAIL) == f"#{name}"
    expect(page.locator(f"article h2#{name}")).to_be_in_viewport()


def test_the_language_switch_keeps_the_anchor_of_the_address(visit: Callable):
    page = visit("glossary/#zero-point")
    page.wait_for_timeout(200)

    page.locator("a[data-twin]").click()
    page.wait_for_url("**/glossary/*")

    assert page.evaluate(TAIL) == "#zero-point"


def test_without_scripts_the_switch_is_a_plain_link_to_the_twin(browser: Browser, site_url: str, language: str):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site_url + ROOTS[language] + CHAPTER)
    page.locator("a[data-twin]").click()

    assert page.url == site_url + ROOTS["en" if language == "zh" else "zh"] + CHAPTER
    context.close()


def channels(color: str) -> tuple[int, ...]:
    """Red, green and blue of a computed color."""
    return tuple(map(int, re.findall(r"\d+", color)[:3]))


def background(page: Page) -> tuple[int, ...]:
    return channels(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_the_scheme_follows_the_system_until_the_reader_chooses(visit: Callable, context: BrowserContext):
    page = visit(CHAPTER)
    assert min(background(page)) > 200

    page.emulate_media(color_scheme="dark")
    page.reload()
    assert max(background(page)) < 60

    page.locator("[data-scheme-toggle]").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "default")
    page.reload()
    assert min(background(page)) > 200, "a choice outlives the page"

    page.locator("a[data-twin]").click()
    page.wait_for_load_state()
    assert min(background(page)) > 200, "and holds in the other language"


def test_in_the_dark_scheme_no_figure_or_table_stays_white(visit: Callable, page: Page):
    page.emulate_media(color_scheme="dark")
    visit(CHAPTER)

    bright = page.locator(
        "article :is(svg, svg rect:not(clipPath rect), figure, table, td, th, pre, code, summary)"
    ).evaluate_all(
        """all => all.filter(e => {
            const style = getComputedStyle(e);
            const drawn = e.closest('svg') && e.tagName !== 'svg' ? style.fill : style.backgroundColor;
            const [r, g, b, a] = (drawn.match(/[\\d.]+/g) || []).map(Number);
            return Math.min(r, g, b) > 200 && (a ?? 1) > 0.5;
        }).map(e => e.outerHTML.slice(0, 100))"""
    )

    assert bright == []


def test_the_copy_button_copies_the_cell(visit: Callable):
    page = visit(CHAPTER)
    cell = page.locator("article .cell > .highlight").first
    cell.scroll_into_view_if_needed()
    cell.hover()
    cell.locator("button").first.click()
    page.wait_for_function("navigator.clipboard.readText().then(text => text.length > 0)")

    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == (cell.locator("pre code").text_content() or "").strip()


def test_the_table_of_contents_jumps_to_each_heading(visit: Callable):
    page = visit(CHAPTER)
    entries = page.locator(".md-sidebar--secondary .md-nav__link[href*='#']")
    assert entries.count() >= 4

    for number in range(entries.count()):
        entries.nth(number).click()
        name = page.evaluate(TAIL).removeprefix("#")
        heading = page.locator(f'article [id="{name}"]')
        expect(heading).to_be_in_viewport()
        top = heading.evaluate("h => h.getBoundingClientRect().top")
        assert top >= page.locator("header").bounding_box()["height"] - 1, f"{name} is hidden by the header"


@pytest.mark.parametrize("path", PAGES)
def test_on_a_phone_no_page_scrolls_sideways(visit: Callable, page: Page, path: str):
    page.set_viewport_size(PHONE)
    visit(path)
    page.locator("details").evaluate_all("all => all.forEach(details => details.open = true)")

    widths = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    sticking_out = page.locator("article *").evaluate_all(
        """all => all.filter(e => e.getBoundingClientRect().right > innerWidth + 1
            && !e.closest('pre, .table-scroll, .md-typeset__scrollwrap, .md-typeset__table, .pt2e-scroll, .pt2e-figure,'
                + ' table, math, .arithmatex, svg'))
            .map(e => e.outerHTML.slice(0, 80))"""
    )

    assert widths[0] <= widths[1]
    assert sticking_out == []


def test_columns_of_numbers_are_right_aligned(visit: Callable):
    sides = (
        visit("m08/4-latency/")
        .locator("article .num")
        .evaluate_all("all => all.map(e => getComputedStyle(e).textAlign)")
    )

    assert sides and set(sides) <= {"end", "right"}


def test_on_a_phone_the_keyboard_opens_and_leaves_the_navigation(visit: Callable, page: Page):
    page.set_viewport_size(PHONE)
    visit(CHAPTER)
    button = page.locator("[data-drawer]")
    entry = page.locator(".md-sidebar--primary a.md-nav__link:visible").first

    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(entry).to_be_in_viewport()

    page.keyboard.press("Escape")
    expect(button).to_have_attribute("aria-expanded", "false")
    expect(button).to_be_focused()


def test_what_scrolls_inside_itself_can_be_reached_by_keyboard(visit: Callable, page: Page):
    page.set_viewport_size(PHONE)
    visit(CHAPTER)
    page.wait_for_timeout(300)

    stuck = page.locator("article *").evaluate_all(
        """all => all.filter(e => {
            const flow = getComputedStyle(e).overflowX;
            return (flow === 'auto' || flow === 'scroll') && e.scrollWidth > e.clientWidth + 1
                && e.tabIndex < 0 && !e.querySelector('[tabindex="0"], a, button') && e.offsetParent;
        }).map(e => e.outerHTML.slice(0, 80))"""
    )

    assert stuck == []


def test_reduced_motion_moves_nothing(browser: Browser, site_url: str):
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(site_url + CHAPTER)

    moving = page.locator("body *").evaluate_all(
        """all => all.filter(e => { const s = getComputedStyle(e);
            const glides = parseFloat(s.transitionDuration) > 0 && s.transitionProperty !== 'none';
            return glides || s.animationName !== 'none'; })
            .map(e => e.outerHTML.slice(0, 60))"""
    )

    assert moving == []
    context.close()


def test_on_paper_only_the_article_is_left_and_nothing_is_folded(visit: Callable, page: Page):
    visit(CHAPTER)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")

    for gone in ("header.md-header", ".md-sidebar", ".md-footer"):
        expect(page.locator(gone).first).to_be_hidden()
    assert page.locator("article details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("article details:not([open])").count() > 0


def test_paper_is_white_and_figures_light_in_the_dark_scheme_too(visit: Callable, page: Page):
    page.emulate_media(color_scheme="dark")
    visit(CHAPTER)
    fill = "getComputedStyle(document.querySelector('.pt2e-graph rect')).fill"
    assert max(channels(page.evaluate(fill))) < 110

    page.emulate_media(media="print", color_scheme="dark")
    assert min(channels(page.evaluate(fill))) > 200
    assert background(page) == (255, 255, 255)
    dark = page.locator("article :is(p, td, pre code, pre span)").evaluate_all(
        "all => all.map(e => getComputedStyle(e).color).filter(c => Math.min(...c.match(/\\d+/g).slice(0, 3)) > 140)"
    )
    assert dark == [], "words too pale for paper"


def test_a_chapter_page_says_how_it_was_made(visit: Callable):
    page = visit(CHAPTER)
    about = page.locator(".course-about")

    for fact in ("torch", "2.13.0", "torchao", "0.18.0", "Python", "CPU"):
        expect(about).to_contain_text(fact)
    assert about.locator("a[data-edit]").get_attribute("href").endswith("chapters/m01_first_ptq/0_overview.py")


# What is typed, and the pages that answer it: one of them must be among the first three.
QUERIES = {
    "zh": {
        "暖身": ["m08/4-latency/"],
        "後端": ["m01/", "m07/", "m08/"],
        "校準": ["m01/", "m02/3-calibration-data/"],
        "observer": ["m01/", "m01/2-prepare-convert/", "m02/", "m02/1-observers/"],
        "observer 校準": ["m01/", "m02/", "m02/3-calibration-data/"],
        "executorch_call_delegate": ["m08/", "m08/2-to-pte/"],
        "零點": ["m01/", "m02/1-observers/"],
        "觀察器": ["m01/", "m01/2-prepare-convert/", "m02/", "m02/1-observers/"],
        "to_edge_transform_and_lower": ["m08/", "m08/2-to-pte/"],
        "半格": ["m01/"],
        "partitioner": ["m08/", "m08/3-unsupported-ops/"],
        "中位數": ["m08/4-latency/", "m07/"],
        "為什麼 weight 要用對稱量化": ["m01/", "m02/1-observers/"],
    },
    "en": {
        "warm-up": ["m08/4-latency/"],
        "warm up": ["m08/4-latency/"],
        "backend": ["m01/", "m07/", "m08/"],
        "calibration": ["m01/", "m02/3-calibration-data/"],
        "observers": ["m01/", "m01/2-prepare-convert/", "m02/", "m02/1-observers/"],
        "executorch_call_delegate": ["m08/", "m08/2-to-pte/"],
        "零點": ["m01/", "m02/1-observers/"],
        "zero point": ["m01/", "m02/1-observers/"],
        "half a step": ["m01/"],
        "torch.export.export": ["m01/", "m00/", "m00/2-export/"],
        "partitioner": ["m08/", "m08/3-unsupported-ops/"],
        "obsever": ["m01/", "m01/2-prepare-convert/", "m02/", "m02/1-observers/"],
    },
}


def test_typing_finds_the_page_among_the_first_three(visit: Callable, site_url: str, language: str):
    page, root = visit(""), site_url + ROOTS[language]

    missed, strangers = {}, []
    for words, answers in QUERIES[language].items():
        found = [address.partition("#")[0] for address in search(page, words)]
        pages = list(dict.fromkeys(found))
        if not {root + path for path in answers} & set(pages[:3]):
            missed[words] = pages
        strangers += [address for address in found if address.startswith(site_url + "en/") != (language == "en")]

    assert missed == {}
    assert strangers == [], "no result is of the other language"


def test_what_readers_would_type_finds_its_page_among_the_first_three(
    visit: Callable, site_url: str, built_site: pathlib.Path, language: str
):
    """The queries were written from the course's outline by someone who had not seen the index."""
    page, root = visit(""), site_url + ROOTS[language]
    asked, missed = 0, {}
    for table in tomllib.loads((HERE / "search_queries.toml").read_text(encoding="utf-8"))[language]:
        answers = {path for path in table["pages"] if (built_site / path / "index.html").is_file()}
        if table["pages"][0] not in answers:
            continue  # the page that answers it best isn't written yet
        asked += 1
        found = [address.partition("#")[0].removeprefix(root) for address in search(page, table["query"])]
        pages = list(dict.fromkeys(found))
        if not answers & set(pages[:3]):
            missed[table["query"]] = pages[:4]
    assert asked >= {"zh": 60, "en": 40}[language]
    recall = 1 - len(missed) / asked
    assert recall >= 0.95, f"{recall:.1%} of {asked}; not found: {missed}"


def test_a_hit_opens_its_section_with_the_keyboard_alone(visit: Callable, site_url: str, language: str):
    page = visit("about/")
    search(page, "zero point")
    options = page.locator("#course-search [role=option]")
    expect(options.first).to_have_attribute("aria-selected", "true")
    assert options.first.locator("mark").count() > 0

    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    expect(page.locator("#course-search-input")).to_have_attribute(
        "aria-activedescendant", options.nth(1).get_attribute("id") or "-"
    )
    address = options.nth(1).evaluate("hit => hit.href")

    page.keyboard.press("Enter")
    page.wait_for_url(address)
    fragment = urlsplit(address).fragment
    if fragment:
        expect(page.locator(f'[id="{fragment}"]')).to_be_in_viewport()


def test_the_search_opens_by_three_ways_and_escape_gives_the_focus_back(visit: Callable):
    page = visit(CHAPTER)
    dialog = page.locator("#course-search")

    for way in ("/", "s", "Control+k"):
        page.keyboard.press(way)
        expect(dialog).to_be_visible()
        expect(page.locator("#course-search-input")).to_be_focused()
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
    page.locator("[data-search-open]").click()
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("[data-search-open]")).to_be_focused()


def test_no_result_says_so(visit: Callable, language: str):
    page = visit("")

    assert search(page, "qxzvjkw") == []
    expect(page.locator("#course-search [role=status]")).to_contain_text("沒有" if language == "zh" else "No section")


def test_the_index_is_loaded_by_the_first_search_and_not_before(visit: Callable, page: Page):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    visit(CHAPTER)
    page.wait_for_load_state("networkidle")
    assert [path for path in asked if "search" in path or "minisearch" in path] == []

    search(page, "scale")
    assert [path for path in asked if path.endswith("search/index.json")]


def test_a_first_visit_loads_less_than_350_kilobytes(browser: Browser, site_url: str, language: str):
    context = browser.new_context()
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    loaded: list[float] = []
    session.on("Network.loadingFinished", lambda event: loaded.append(event["encodedDataLength"]))
    page.goto(site_url + ROOTS[language] + CHAPTER, wait_until="networkidle")

    assert len(loaded) >= 4
    assert sum(loaded) < 350_000
    context.close()


# --- The quantization explorer ----------------------------------------------------------------------------------------


def test_the_explorers_numbers_are_those_of_torchao(page: Page, site_url: str):
    import torch
    from torchao.quantization.pt2e import MinMaxObserver

    generator = torch.Generator().manual_seed(0)
    cases = []
    for number in range(300):
        low, high, x = (torch.rand(3, generator=generator) * 8 - 4).tolist()
        bits, symmetric = 2 + number % 7, number % 2 == 1
        cases.append([min(low, high), max(low, high), bits, symmetric, x])
    cases += [[0, 0, 8, False, 1.0], [1, 2, 8, False, 1.5], [-2, -1, 8, True, 0.3], [-1, 1.5, 4, False, 0.75]]
    page.goto(f"{site_url}m01/")
    page.wait_for_function("window.courseExplorer !== undefined")
    script = """cases => cases.map(([a, b, bits, symmetric, x]) => {
        const params = courseExplorer.qparams(a, b, bits, symmetric);
        return {...params, ...courseExplorer.quantize(x, params)};
    })"""
    for case, found in zip(cases, page.evaluate(script, cases), strict=True):
        low, high, bits, symmetric, x = case
        top = 2 ** (bits - 1) - 1
        bottom = -top if symmetric else -top - 1
        scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
        observer = MinMaxObserver(dtype=torch.int8, quant_min=bottom, quant_max=top, qscheme=scheme)
        observer(torch.tensor([low, high]))
        scale, zero_point = (value.item() for value in observer.calculate_qparams())
        ops = torch.ops.quantized_decomposed
        q = ops.quantize_per_tensor(torch.tensor([x]), scale, zero_point, bottom, top, torch.int8)
        restored = ops.dequantize_per_tensor(q, scale, zero_point, bottom, top, torch.int8)
        expected = {"scale": scale, "zeroPoint": zero_point, "qmin": bottom, "qmax": top, "q": q.item()}
        assert {name: found[name] for name in expected} == expected, case
        assert found["restored"] == pytest.approx(restored.item(), rel=1e-6), case


def test_the_explorer_answers_to_the_keyboard_and_says_what_is_clamped(visit: Callable[[str], Page], language: str):
    page = visit("m01/")
    box = page.locator(".quant-explorer")
    expect(box).to_contain_text("q = 3")
    expect(box.get_by_role("status")).to_contain_text({"zh": "最多半格", "en": "at most half a step"}[language])
    box.get_by_label({"zh": "要量化的值 x", "en": "Value x to quantize"}[language]).focus()
    page.keyboard.press("End")
    expect(box).to_contain_text("x = 4.00, q = 7, x̂ = 1.5000")
    expect(box.get_by_role("status")).to_contain_text("clamp")
    box.get_by_label({"zh": "對稱（z = 0）", "en": "Symmetric (z = 0)"}[language]).check()
    expect(box).to_contain_text("−7 … 7")
    box.get_by_label({"zh": "資料的最小值", "en": "Smallest value of the data"}[language]).focus()
    page.keyboard.press("End")  # takes the largest value along
    expect(box.get_by_role("slider").nth(1)).to_have_value("4")


def test_without_scripts_the_explorer_says_where_to_look(browser: Browser, site_url: str, language: str):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site_url}{ROOTS[language]}m01/")
    expect(page.locator(".quant-explorer")).to_contain_text({"zh": "上圖", "en": "the figure above"}[language])
    context.close()


# --- Accessibility ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", [*PAGES, "m00/3-rewrite/"])
def test_axe_finds_nothing_serious(
    browser: Browser, site_url: str, node_tool: Callable, root: pathlib.Path, language: str, path: str, scheme: str
):
    node_tool("lighthouse")  # brings axe along; where that isn't installed, this says so
    axe = root / "tests/browser/node_modules/axe-core/axe.min.js"
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.goto(f"{site_url}{ROOTS[language]}{path}")
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true })")
    page.evaluate(axe.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    context.close()
    told = [f"{v['id']} ({v['impact']}): {[n['html'][:120] for n in v['nodes'][:3]]}" for v in found]
    assert [line for line in told if "(serious)" in line or "(critical)" in line] == []
