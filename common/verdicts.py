"""What a comparison of latencies allows to say, in both languages.

Apart from `common.latency`, so that stored measurements outlive a change of words.
"""

from collections.abc import Mapping

from common.latency import TIE, Comparison, Verdict
from common.viz import T

_WORDS: dict[Verdict, T] = {
    "faster": T(zh="快，{numbers}", en="{numbers}"),
    "slower": T(zh="慢，{numbers}", en="takes {numbers}"),
    "tie": T(zh="打平，{numbers}", en="a tie, {numbers}"),
    "unclear": T(zh="說不準，{numbers}", en="unclear, {numbers}"),
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


def numbers(found: Comparison) -> T:
    """Ratio and interval, such as `2.00× as fast [1.97, 2.05]`; all that isn't faster is told as times as long."""
    told = found if found.verdict == "faster" else found.inverse
    interval = f"[{told.low:.2f},\N{NO-BREAK SPACE}{told.high:.2f}]"
    if found.verdict == "faster":
        return T(zh=f"{told.ratio:.2f} 倍 {interval}", en=f"{told.ratio:.2f}× as fast {interval}")
    return T(zh=f"時間是 {told.ratio:.2f} 倍 {interval}", en=f"{told.ratio:.2f}× as long {interval}")


def in_words(found: Comparison) -> T:
    """A table's cell, such as `takes 4.00× as long [2.00, 5.00]`."""
    return _WORDS[found.verdict].format(numbers=numbers(found))


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
        zh="、".join(f"{place}（{numbers(found).zh}）" for place, found in founds.items()),
        en=" and ".join(f"{place} ({numbers(found).en})" for place, found in founds.items()),
    )


def _spaced(chinese: str) -> str:
    """With the space that a Latin word needs before a Han character."""
    return chinese + " " if chinese[-1].isascii() else chinese
