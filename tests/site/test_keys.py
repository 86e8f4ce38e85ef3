"""What a chapter's outputs depend on: each ingredient changes the key, nothing else does."""

import functools
import importlib.metadata
import pathlib
import platform
import subprocess
import sys
import textwrap
from collections.abc import Iterator

from common.site import keys
from common.site.chapter import ChapterError
from common.site.executor import Executor

import pytest
from miniature import TITLE, code, parsed

PACKAGES = ("helpers",)
USES_ALL = code("import helpers.direct as direct", "", "print(direct.value())")


HELPERS = {
    "__init__": "",
    "direct": """\
        from helpers import by_package


        def value():
            from helpers.deep.inner import inside_a_function

            return inside_a_function() + by_package.VALUE
        """,
    "by_package": "VALUE = 1\n",
    "deep/__init__": "from .sibling import *\n",
    "deep/inner": "from . import cousin\nfrom ..upper import UP\n\n\ndef inside_a_function():\n    return UP\n",
    "deep/sibling": "A = 1\n",
    "deep/cousin": "B = 1\n",
    "upper": "UP = 1\n",
    "unrelated": "C = 1\n",
}


def write(root: pathlib.Path, name: str, text: str) -> None:
    """Write a helper module."""
    path = root / f"helpers/{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")


@pytest.fixture
def helpers(tmp_path: pathlib.Path) -> pathlib.Path:
    """A project with helpers that import one another in every way there is."""
    for name, text in HELPERS.items():
        write(tmp_path, name, text)
    return tmp_path


def parts(root: pathlib.Path, body: str = USES_ALL, head: str | None = None, cpu: str = "") -> dict[str, str]:
    return keys.chapter_parts(parsed(body, head), root, PACKAGES, cpu).parts


def changed(root: pathlib.Path, before: dict[str, str], body: str = USES_ALL) -> set[str]:
    """Names of the ingredients that differ from what they were."""
    after = parts(root, body)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


# --- the chapter

TEXT = '# %% [markdown] lang="zh"\n# ## 節\n\n# %% [markdown] lang="en"\n# ## Section\n\n'


@pytest.mark.parametrize(
    ("body", "head"),
    [
        pytest.param(TEXT + USES_ALL, None, id="new text above"),
        pytest.param(USES_ALL + TEXT, None, id="new text below"),
        pytest.param(USES_ALL.replace("# %%", '# %% tags=["setup"]'), None, id="a tag"),
        pytest.param("\n\n" + USES_ALL.replace("# %%\n", "# %%\n\n"), None, id="blank lines around a cell"),
        pytest.param(USES_ALL, TITLE.format(title="Title").replace("中文。", "另一句。"), id="a Chinese sentence"),
        pytest.param(USES_ALL, TITLE.format(title="Title").replace("English.", "Other."), id="a translation"),
        pytest.param(
            USES_ALL, TITLE.format(title="T").replace('lang="zh"', 'lang="zh" time_limit=9'), id="the time limit"
        ),
    ],
)
def test_prose_translation_tags_and_layout_are_not_in_the_key(helpers, body, head):
    assert parts(helpers, body, head) == parts(helpers)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(USES_ALL.replace("value())", "value() )"), id="a space in code"),
        pytest.param(USES_ALL.replace("print", "# note\nprint"), id="a comment in code, which readers see"),
        pytest.param(USES_ALL + code("x = 1"), id="a cell more"),
        pytest.param(USES_ALL.replace("\n\nprint", "\n\n# %%\nprint"), id="a cell split in two"),
    ],
)
def test_an_edited_code_cell_changes_the_key(helpers, body):
    assert changed(helpers, parts(helpers), body) == {"code"}


def test_the_order_of_cells_is_in_the_key(helpers):
    one, two = code("x = 1"), code("x = 2")
    assert parts(helpers, one + two)["code"] != parts(helpers, two + one)["code"]


# --- its helpers

DEPENDED_ON = [
    pytest.param("__init__", "NEW = 1\n", id="the package itself"),
    pytest.param("direct", textwrap.dedent(HELPERS["direct"]) + "\nNEW = 1\n", id="imported by the chapter"),
    pytest.param("by_package", "VALUE = 2\n", id="from package import module"),
    pytest.param("deep/__init__", "from .sibling import A\n", id="the package of a module"),
    pytest.param("deep/inner", HELPERS["deep/inner"] + "NEW = 1\n", id="imported inside a function"),
    pytest.param("deep/sibling", "A = 2\n", id="relative, with a star"),
    pytest.param("deep/cousin", "B = 2\n", id="relative, of the same package"),
    pytest.param("upper", "UP = 2\n", id="relative, of the package above"),
]


@pytest.mark.parametrize(("name", "text"), DEPENDED_ON)
def test_an_edited_helper_changes_the_key(helpers, name, text):
    before = parts(helpers)
    write(helpers, name, text)
    assert changed(helpers, before) == {f"module helpers/{name}.py"}


def test_the_modules_in_the_key_are_those_that_running_the_chapter_loads(helpers):
    source = parsed(USES_ALL).code_cells[0].source
    told = "import sys\nprint(*(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'helpers'), sep='\\n')"
    run = subprocess.run(
        [sys.executable, "-c", f"{source}\n{told}"], cwd=helpers, capture_output=True, text=True, check=True
    )
    loaded = {pathlib.Path(line).relative_to(helpers).as_posix() for line in run.stdout.splitlines()[1:]}
    assert {name.removeprefix("module ") for name in parts(helpers) if name.startswith("module ")} == loaded


def test_a_helper_that_nothing_reaches_is_not_in_the_key(helpers):
    before = parts(helpers)
    write(helpers, "unrelated", "C = 2\n")
    write(helpers, "new", "D = 1\n")
    assert changed(helpers, before) == set()


@pytest.mark.parametrize(
    "text",
    ["# a comment\nVALUE = 1\n", "VALUE = 1  # a comment\n", "\n\nVALUE   =   1\n", "VALUE = (\n    1\n)\n"],
)
def test_comments_and_layout_of_a_helper_are_not_in_the_key(helpers, text):
    before = parts(helpers)
    write(helpers, "by_package", text)
    assert changed(helpers, before) == set()


def test_a_removed_helper_changes_the_key(helpers):
    before = parts(helpers)
    (helpers / "helpers/upper.py").unlink()
    assert changed(helpers, before) == {"module helpers/upper.py"}


def test_helpers_that_import_one_another_in_a_circle_are_read_once(helpers):
    write(helpers, "upper", "def late():\n    import helpers.direct\n")
    assert "module helpers/upper.py" in parts(helpers)


def test_a_helper_that_is_no_python_is_named_with_its_line(helpers):
    write(helpers, "upper", "UP = 1\nx = (\n")
    with pytest.raises(ChapterError) as caught:
        parts(helpers)
    assert str(caught.value).startswith("helpers/upper.py:2: ")


# --- its libraries


def install(folder: pathlib.Path, name: str, version: str, *requires: str) -> None:
    """Make a distribution with one module of the same name, as pip would."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text("")
    for old in folder.glob(f"{module}-*.dist-info"):
        for file in old.iterdir():
            file.unlink()
        old.rmdir()
    info = folder / f"{module}-{version}.dist-info"
    info.mkdir()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (info / "RECORD").write_text(f"{module}.py,,\n{info.name}/METADATA,,\n")
    forget()


def forget() -> None:
    """Distributions are looked up once a process."""
    keys._distributions_by_module.cache_clear()
    keys._distribution.cache_clear()


@pytest.fixture
def libraries(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """A folder that distributions can be installed in."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    # Which distribution a module belongs to is asked of this folder alone: all that is installed takes a second.
    found = functools.partial(importlib.metadata.Distribution.discover, path=[str(folder)])
    monkeypatch.setattr(importlib.metadata, "distributions", found)
    install(
        folder, "mini-direct", "1.0", "mini-needed>=0", 'mini-extra; extra == "more"', 'mini-old; python_version < "3"'
    )
    for name in ("mini-needed", "mini-extra", "mini-old", "mini-other", "mini-helped"):
        install(folder, name, "1.0")
    yield folder
    forget()


def library_parts(root: pathlib.Path) -> dict[str, str]:
    return parts(root, code("import mini_direct.sub", "from helpers import direct"))


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("mini-direct", True),
        ("mini-needed", True),
        ("mini-helped", True),
        ("mini-extra", False),
        ("mini-old", False),
        ("mini-other", False),
    ],
)
def test_versions_of_the_libraries_that_are_used_are_in_the_key(helpers, libraries, name, counts):
    write(helpers, "by_package", "def f():\n    from mini_helped import thing\n")
    before = library_parts(helpers)
    requires = ["mini-needed>=0"] if name == "mini-direct" else []
    install(libraries, name, "1.1", *requires)
    after = library_parts(helpers)
    assert {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)} == (
        {f"version {name}"} if counts else set()
    )
    assert (after.get(f"version {name}") == "1.1") == counts


def test_a_library_that_is_not_installed_and_the_standard_library_have_no_version(helpers):
    assert not [name for name in parts(helpers, code("import math, no_such_module")) if name.startswith("version")]


# --- the machine


def test_python_is_in_the_key(helpers, monkeypatch):
    before = parts(helpers)
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.0")
    assert changed(helpers, before) == {"python"}


def test_the_cpu_class_is_in_the_key_of_chapters_that_measure_only(helpers):
    measuring = TITLE.format(title="T").replace('lang="zh"', 'lang="zh" measures=true')
    for head, expected in ((None, [None, None]), (measuring, ["with VNNI", "without"])):
        chapter = parsed(USES_ALL, head)
        found = [
            Executor(helpers, helpers / "chapters", PACKAGES, cpu_class=lambda name=name: name).parts(chapter)
            for name in ("with VNNI", "without")
        ]
        assert [each.parts.get("cpu class") for each in found] == expected
        assert (found[0].key == found[1].key) is (head is None)


def test_the_key_is_the_same_in_another_folder(helpers, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "clone"
    (helpers / "helpers").rename(elsewhere.with_name("moved"))
    elsewhere.mkdir()
    elsewhere.with_name("moved").rename(elsewhere / "helpers")
    found = parts(elsewhere)
    (elsewhere / "helpers").rename(helpers / "helpers")
    assert parts(helpers) == found
