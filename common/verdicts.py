"""What a comparison of latencies allows to say, in both languages.

Apart from `common.latency`, so that stored measurements outlive a change of words.
"""

from collections.abc import Mapping

from common.latency import TIE, Comparison, Verdict
from common.viz import T

_WORDS: dict[Verdict, T] = {
    "faster": T(zh=" 快 ", en=" faster "),
    "slower": T(zh=" 慢 ", en=" slower "),
    "tie": T(zh="，打平 ", en=", a tie "),
    "unclear": T(zh="，說不準 ", en=", unclear "),
}
_SENTENCES: dict[Verdict, T] = {
    "faster": T(
        zh="**{step}**：{after}比 {before} 快：{where}。",
        en="**{step}**: {after} is faster than {before}: {where}.",
    ),
    "slower": T(
        zh="**{step}**：{after}比 {before} 慢：{where}。",
        en="**{step}**: {after} is slower than {before}: {where}.",
    ),
    "tie": T(
        zh="**{step}**：{after}和 {before} 打平，相差不到 {margin}：{where}。",
        en="**{step}**: {after} and {before} are level within {margin}: {where}.",
    ),
    "unclear": T(
        zh="**{step}**：{after}和 {before} 分不出高下，區間跨過 1：{where}。",
        en="**{step}**: between {after} and {before} nothing can be claimed, the interval contains 1: {where}.",
    ),
}


def numbers(found: Comparison, between: str = " ") -> str:
    """Ratio and interval, such as `2.00× [1.97, 2.05]`; what got slower is told as times as slow."""
    told = found.inverse if found.verdict == "slower" else found
    return f"{told.ratio:.2f}×{between}[{told.low:.2f},\N{NO-BREAK SPACE}{told.high:.2f}]"


def in_words(found: Comparison) -> T:
    """A table's cell, such as `2.00× faster [1.97, 2.05]`."""
    word = _WORDS[found.verdict]
    return T(zh=numbers(found, word.zh), en=numbers(found, word.en))


def tell(
    step: T, after: T, before: T, founds: Mapping[str, Comparison], remarks: Mapping[Verdict, T] | None = None
) -> list[T]:
    """One sentence for each verdict among `founds`, with the places (its keys, such as "width 16") that it holds for.

    `step` is the sentence's bold start, `after` and `before` name what was compared. A verdict's remark follows its
    sentence.
    """
    said = []
    for verdict, sentence in _SENTENCES.items():
        held = {place: found for place, found in founds.items() if found.verdict == verdict}
        if held:
            told = sentence.format(
                step=step,
                after=T(zh=_spaced(after.zh), en=after.en),
                before=before,
                where=_where(held),
                margin=f"{TIE - 1:.0%}",
            )
            remark = (remarks or {}).get(verdict)
            said.append(T(zh=told.zh + remark.zh, en=f"{told.en} {remark.en}") if remark else told)
    return said


def _where(founds: Mapping[str, Comparison]) -> T:
    return T(
        zh="、".join(f"{place}（{numbers(found)}）" for place, found in founds.items()),
        en=" and ".join(f"{place} ({numbers(found)})" for place, found in founds.items()),
    )


def _spaced(chinese: str) -> str:
    """With the space that a Latin word needs before a Han character."""
    return chinese + " " if chinese[-1].isascii() else chinese
