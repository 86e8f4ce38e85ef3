"""The two languages of the site, and where each keeps its pages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Language:
    """One language: its code in sources, its HTML and theme codes, and its folder below the site's root."""

    code: str
    html: str
    theme: str
    name: str
    folder: str

    def pick(self, zh: str, en: str) -> str:
        """The text of this language."""
        return zh if self.code == "zh" else en


# Material's "zh-Hant" strings hold a simplified character ("1 个符合條件的結果"); its "zh-TW" strings don't.
ZH = Language("zh", html="zh-Hant", theme="zh-TW", name="中文", folder="")
EN = Language("en", html="en", theme="en", name="English", folder="en/")
LANGUAGES = (ZH, EN)


def by_code(code: str) -> Language:
    """The language with this code. Raises KeyError for any other."""
    return {language.code: language for language in LANGUAGES}[code]
