"""The theme's files: colors with enough contrast, nothing from other hosts, no simplified characters."""

import pathlib
import re

import pytest
import tinycss2

LIGHT, DARK = "[data-md-color-scheme]", '[data-md-color-scheme="slate"]'
GROUND = "--md-default-bg-color"
# Text, and the grounds it stands on.
TEXTS = {
    "--md-default-fg-color": (GROUND, "--md-code-bg-color", "--course-output-bg", "--course-hover", "--course-mark"),
    "--md-default-fg-color--light": (GROUND,),
    "--md-default-fg-color--lighter": (GROUND,),
    "--md-typeset-a-color": (GROUND, "--course-hover", "--md-code-bg-color"),
    "--md-accent-fg-color": (GROUND, "--md-code-bg-color"),
    "--course-muted": (GROUND, "--md-code-bg-color", "--course-output-bg", "--course-hover"),
    "--md-primary-bg-color": ("--md-primary-fg-color",),
    "--md-code-fg-color": ("--md-code-bg-color",),
    "--pt2e-muted": (GROUND, "--course-output-bg"),
}
KINDS = ("op", "observer", "qdq", "io", "const", "delegate")
SIMPLIFIED = set(
    "这们过时说对发个为从动态图评层数据运转换权测试误简单传输执线组边连续"
    "类计详细实际应该没关样种与无码标观习设张缩读写么区间"
)


def colors(css: str, scheme: str) -> dict[str, str]:
    """The custom properties of a scheme's block, on a screen."""
    rules = tinycss2.parse_stylesheet(css, skip_comments=True, skip_whitespace=True)
    for rule in list(rules):
        if rule.type == "at-rule" and rule.content and tinycss2.serialize(rule.prelude).strip() == "screen":
            rules += tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
    found: dict[str, str] = {}
    for rule in rules:
        if rule.type == "qualified-rule" and scheme in tinycss2.serialize(rule.prelude).replace("\n", " ").split():
            for declaration in tinycss2.parse_blocks_contents(rule.content, skip_comments=True, skip_whitespace=True):
                if declaration.type == "declaration" and declaration.name.startswith("--"):
                    found[declaration.name] = tinycss2.serialize(declaration.value).strip()
    return found


def luminance(color: str) -> float:
    """Relative luminance (WCAG 2.2) of an opaque `#rrggbb`."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.fixture(scope="module")
def theme(root: pathlib.Path) -> pathlib.Path:
    return root / "docs/theme"


@pytest.fixture(scope="module")
def css(theme: pathlib.Path) -> str:
    return (theme / "assets/course/course.css").read_text(encoding="utf-8")


@pytest.fixture(params=[LIGHT, DARK], ids=["light", "dark"])
def palette(request: pytest.FixtureRequest, css: str) -> dict[str, str]:
    return colors(css, request.param)


def test_the_contrast_of_black_on_white_is_twenty_one():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_text_has_a_contrast_of_four_and_a_half_on_each_ground_it_stands_on(palette: dict[str, str]):
    pairs = [(text, ground) for text, grounds in TEXTS.items() for ground in grounds]
    pairs += [(name, "--md-code-bg-color") for name in palette if name.startswith("--md-code-hl-")]
    weak = {pair: round(contrast(palette[pair[0]], palette[pair[1]]), 2) for pair in pairs}

    assert not {pair: ratio for pair, ratio in weak.items() if ratio < 4.5}


def test_words_in_drawn_boxes_are_readable_and_their_borders_visible(palette: dict[str, str]):
    words = {kind: contrast(palette["--pt2e-ink"], palette[f"--pt2e-{kind}-fill"]) for kind in KINDS}
    borders = {kind: contrast(palette[f"--pt2e-{kind}-stroke"], palette[GROUND]) for kind in KINDS}

    assert min(words.values()) >= 7, words
    assert min(borders.values()) >= 3, borders


def test_both_schemes_define_the_same_colors(css: str):
    light, dark = (set(colors(css, scheme)) for scheme in (LIGHT, DARK))
    own = {name for name in light ^ dark if name.startswith(("--course-", "--pt2e-", "--md-code-"))}

    assert {name for name in own if not re.fullmatch(r"--pt2e-(c\d|mono)", name)} == set()


def test_nothing_is_loaded_from_another_host(theme: pathlib.Path):
    asked = []
    for path in theme.rglob("*"):
        if path.suffix in (".css", ".js", ".html", ".svg"):
            text = path.read_text(encoding="utf-8")
            asked += re.findall(r"""(?:src=["']|url\(["']?|@import |fetch\(["'])(?:https?:)?//[^"')\s]+""", text)

    assert asked == []


def test_each_vendored_file_is_listed_with_its_version_and_its_license_lies_beside_it(theme: pathlib.Path):
    vendor = theme / "assets/vendor"
    listed = (vendor / "README.md").read_text(encoding="utf-8")

    folders = [path for path in vendor.iterdir() if path.is_dir()]
    assert folders
    for folder in folders:
        files = [path for path in folder.iterdir() if path.suffix != ".txt"]
        assert list(folder.glob("*.txt")), f"{folder.name} has no license"
        assert all(f"`{folder.name}/{file.name}`" in listed for file in files)


def test_pages_and_templates_hold_no_simplified_character(root: pathlib.Path):
    found = {}
    for path in (root / "docs").rglob("*"):
        if path.suffix in (".md", ".html", ".js", ".css", ".toml"):
            wrong = SIMPLIFIED & set(path.read_text(encoding="utf-8"))
            if wrong:
                found[path.name] = "".join(sorted(wrong))

    assert found == {}


def test_the_pages_of_both_languages_are_twins(root: pathlib.Path):
    shapes = {}
    for language in ("zh", "en"):
        for path in (root / "docs" / language).glob("*.md"):
            text = path.read_text(encoding="utf-8")
            headings = [len(marks) for marks in re.findall(r"^(#+) ", text, re.M)]
            links = re.findall(r"\]\(([^)]+)\)", text)
            shapes[language, path.name] = (headings, links, text.count("\n|"), text.count("\n- "))

    names = {name for _, name in shapes}
    assert names == {"index.md", "glossary.md", "about.md", "build-machine.md"}
    assert {name for name in names if shapes.get(("zh", name)) != shapes.get(("en", name))} == set()
