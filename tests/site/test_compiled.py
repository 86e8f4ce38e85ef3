"""Compiled templates on disk: compiled once, compiled anew when they changed or what is kept is damaged."""

import pathlib

from common.site import compiled
from common.site.compiled import TemplateCache

import pytest
from jinja2 import DictLoader, Environment

SOURCES = {"page": "{% include 'part' %} of {{ count }}", "part": "{% for n in range(2) %}{{ n }}{% endfor %}"}


class Counting(Environment):
    """An environment that counts what it compiles."""

    compiled = 0

    def compile(self, *arguments: object, **options: object) -> object:
        self.compiled += 1
        return super().compile(*arguments, **options)


def shown(folder: pathlib.Path, sources: dict[str, str] = SOURCES) -> tuple[str, int]:
    """What the page shows in a new environment, and how many templates it compiled."""
    environment = Counting(loader=DictLoader(sources), bytecode_cache=TemplateCache(folder))
    return environment.get_template("page").render(count=2), environment.compiled


def test_templates_are_compiled_once(tmp_path):
    assert shown(tmp_path) == ("01 of 2", 2)
    assert shown(tmp_path) == ("01 of 2", 0)


def test_an_edited_template_is_compiled_again(tmp_path):
    shown(tmp_path)
    assert shown(tmp_path, SOURCES | {"part": "x"}) == ("x of 2", 1)


def test_another_version_of_jinja_compiles_for_itself(tmp_path, monkeypatch):
    shown(tmp_path)
    monkeypatch.setattr(compiled.importlib.metadata, "version", lambda name: "99")
    assert shown(tmp_path) == ("01 of 2", 2)


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:-1], lambda data: data + b"x", lambda data: data[::-1]]
)
def test_what_is_damaged_is_compiled_again(tmp_path, damage):
    shown(tmp_path)
    for path in tmp_path.rglob("*.bin"):
        path.write_bytes(damage(path.read_bytes()))
    assert shown(tmp_path) == ("01 of 2", 2)
    assert shown(tmp_path) == ("01 of 2", 0)


def test_no_flipped_bit_is_run(tmp_path):
    shown(tmp_path)
    (path,) = [path for path in tmp_path.rglob("*.bin") if b"range" in path.read_bytes()]
    data = path.read_bytes()
    for place in range(0, len(data), 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        assert shown(tmp_path) == ("01 of 2", 1)
