"""M08-4: every sentence that a measurement can choose is chosen when it should be, and its opposite is not."""

import ast
import inspect
import itertools
import re
import textwrap
from pathlib import Path

from common import latency
from common.data import calibration_batches
from common.env import set_threads
from common.pt2e import QParams, difference_in_lsb
from common.site.chapter import read_chapter

import numpy as np
import pytest
import runner
import torch

CHAPTERS = Path(__file__).parents[2] / "chapters"
PAGE = "m08_executorch/4_latency.py"
EAGER, QDQ, FP32, INT8 = "eager fp32", "Q/DQ graph", "fp32 .pte", "int8 .pte"


def definitions(path, imported=()):
    """The chapter's functions and constants, with what they import from common.latency and common.viz; runs no more."""
    namespace = {"__name__": "chapter", **dict(imported)}
    for cell in read_chapter(path, CHAPTERS).code_cells:
        wanted = [node for node in ast.parse(cell.source).body if is_definition(node)]
        exec(compile(ast.Module(wanted, []), str(path), "exec"), namespace)
    return namespace


def is_definition(node):
    if isinstance(node, ast.ImportFrom):
        return node.module in ("common.latency", "common.verdicts", "common.viz")
    if isinstance(node, ast.Assign):
        names = [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        return all(name.isupper() for name in names) and not any(isinstance(n, ast.Call) for n in ast.walk(node.value))
    return isinstance(node, ast.FunctionDef)


@pytest.fixture(scope="module")
def page():
    return definitions(CHAPTERS / PAGE)


# Ratios before / after of 40 rounds, one kind for each verdict.
WOBBLE = np.tile([0.99, 1.0, 1.0, 1.01], 10)
KINDS = {
    "faster": 3.0 * WOBBLE,
    "slower": 0.25 * WOBBLE,
    "tie": WOBBLE,
    "unclear": np.tile([0.6, 1.6, 1.0, 1.2, 0.8], 8),
}


def made_up(runtime=("faster", "faster"), quantization=("faster", "faster"), control=("slower", "slower"), **changed):
    """Results in which each step's verdict, at width 16 and 64, is the given one; `longer`: eager's time, 64 to 16."""
    longer, gains, simple_off = changed.pop("longer", 5.0), changed.pop("gains", (1.0, 1.0)), changed.pop("off", 1.0)
    rounds = {}
    for i, width in enumerate((16, 64)):
        eager = 100 * (longer if width == 64 else 1) * np.ones(40)
        fp32 = eager / KINDS[runtime[i]]
        rounds[f"{EAGER}, width {width}"] = eager
        rounds[f"{QDQ}, width {width}"] = eager / KINDS[control[i]]
        rounds[f"{FP32}, width {width}"] = fp32
        rounds[f"{INT8}, width {width}"] = fp32 / (KINDS[quantization[i]] * gains[i])
    simple = {name: float(np.median(us)) for name, us in rounds.items()}
    simple[f"{INT8}, width 64"] /= simple_off
    results = {
        "widths": [16, 64],
        "parameters": {f"{EAGER}, width 16": 9940, f"{EAGER}, width 64": 150340},
        "steps_off": {f"{pte}, width {w}": [float(pte == INT8), 0.02] for pte in (FP32, INT8) for w in (16, 64)},
        "environment": "a machine that does not exist",
        "threads": {"torch": 1, "ExecuTorch": 1},
        "rounds_us": {name: us.tolist() for name, us in rounds.items()},
        "simple_us": simple,
    }
    return results | changed


def said(page, language, **how):
    return [text.in_language(language) for text in page["conclusions"](made_up(**how))]


STARTS = {
    "zh": {"runtime": "**換 runtime**：", "quantization": "**量化**：", "control": "**對照**："},
    "en": {"runtime": "**Runtime**: ", "quantization": "**Quantization**: ", "control": "**Control**: "},
}
SIGNS = {
    "zh": {"faster": " 快：", "slower": " 慢：", "tie": "打平", "unclear": "分不出高下"},
    "en": {"faster": "is faster than", "slower": "is slower than", "tie": "are level", "unclear": "nothing can"},
}


@pytest.mark.parametrize("step", ["runtime", "quantization", "control"])
@pytest.mark.parametrize("verdicts", list(itertools.product(KINDS, repeat=2)), ids="-".join)
def test_a_step_is_called_what_it_was_measured_to_be(page, step, verdicts):
    texts = page["conclusions"](made_up(**{step: verdicts}))
    for language in ("zh", "en"):
        sentences = [text.in_language(language) for text in texts]
        sentences = [sentence for sentence in sentences if sentence.startswith(STARTS[language][step])]
        assert len(sentences) == len(set(verdicts))
        for verdict, sign in SIGNS[language].items():
            widths = [width for width, v in zip((16, 64), verdicts, strict=True) if v == verdict]
            with_sign = [sentence for sentence in sentences if sign in sentence]
            assert len(with_sign) == (1 if widths else 0)
            for sentence in with_sign:
                assert [w for w in (16, 64) if f"width {w}" in sentence] == widths


@pytest.mark.parametrize("verdict", ["tie", "unclear"])
def test_nothing_is_called_faster_when_the_interval_contains_one(page, verdict):
    both = {step: (verdict, verdict) for step in ("runtime", "quantization", "control")}
    for sentence in said(page, "zh", **both):
        sentence = sentence.replace("七輪取最快", "")  # the simple method's name
        assert "快" not in sentence and "慢" not in sentence
    for sentence in said(page, "en", **both):
        assert "faster" not in sentence and "slower" not in sentence


@pytest.mark.parametrize("language", ["zh", "en"])
def test_slower_is_told_as_times_as_long(page, language):
    sentence = next(s for s in said(page, language) if s.startswith(STARTS[language]["control"]))
    assert {"zh": "時間是 4.00 倍", "en": "4.00× as long"}[language] in sentence and "0.25" not in sentence


def test_what_is_said_beyond_the_measurement_is_marked_as_inference(page):
    for how in ({"quantization": ("slower", "slower")}, {"gains": (1.0, 2.0)}, {"longer": 1.2}, {"longer": 14.0}):
        for zh, en in zip(said(page, "zh", **how), said(page, "en", **how), strict=True):
            assert ("這是推測，沒有量到" in zh) == ("our inference, not measured" in en)
    zh = " ".join(said(page, "zh", quantization=("slower", "slower")))
    assert zh.count("這是推測，沒有量到") == 2  # eager's growth, and why int8 is slower


ODD = {"zh": "這不尋常", "en": "That is odd"}
CPU = {"zh": "指令集", "en": "instruction sets"}
PRICE = {"zh": "是代價", "en": "costs time"}


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("verdict", list(KINDS))
def test_remarks_belong_to_their_verdict(page, language, verdict):
    both = (verdict, verdict)
    text = " ".join(said(page, language, control=both))
    assert (ODD[language] in text) == (verdict == "faster")
    text = " ".join(said(page, language, quantization=both))
    assert (CPU[language] in text) == (verdict == "slower")
    text = " ".join(said(page, language, runtime=both))
    assert (PRICE[language] in text) == (verdict == "slower")


GROWTH = {
    "zh": {"barely": "慢得很少", "less": "增加得比參數少", "in step": "差不多同步"},
    "en": {"barely": "only ", "less": "less than proportionally", "in step": "nearly in step"},
}


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize(
    ("longer", "told"),
    [(1.0, "barely"), (1.9, "barely"), (2.1, "less"), (7.0, "less"), (8.0, "in step"), (16.0, "in step")],
)
def test_eager_growing_with_the_parameters(page, language, longer, told):
    start = {"zh": "**模型變寬時，eager**", "en": "**Eager, wider**"}[language]
    (sentence,) = [s for s in said(page, language, longer=longer) if s.startswith(start)]
    assert "15.1" in sentence and f"{longer:.1f}" in sentence
    assert {name for name, sign in GROWTH[language].items() if sign in sentence} == {told}


GAIN = {
    "zh": {"faster": "倍數變大", "slower": "倍數變小", "tie": "倍數不隨寬度改變", "unclear": "看不出倍數有沒有變"},
    "en": {"faster": "gain grows", "slower": "gain shrinks", "tie": "does not change", "unclear": "can't be told"},
}


def gain_sentences(page, language, **how):
    start = {"zh": "**模型變寬時，量化**", "en": "**Quantization, wider**"}[language]
    return [s for s in said(page, language, **how) if s.startswith(start)]


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize(
    ("gains", "told"),
    [((1.0, 1.7), "faster"), ((1.7, 1.0), "slower"), ((1.0, 1.0), "tie"), ((1.0, KINDS["unclear"]), "unclear")],
    ids=["grows", "shrinks", "stays", "unclear"],
)
def test_the_gain_of_quantization_growing_with_the_width(page, language, gains, told):
    (sentence,) = gain_sentences(page, language, gains=gains)
    assert {verdict for verdict, sign in GAIN[language].items() if sign in sentence} == {told}


@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_gain_at_one_width_only_is_compared_with_the_other(page, language):
    (sentence,) = gain_sentences(page, language, quantization=("tie", "faster"))
    assert GAIN[language]["faster"] in sentence


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("verdicts", [("slower", "slower"), ("tie", "unclear"), ("slower", "tie")])
def test_without_any_gain_its_growth_is_not_spoken_of(page, language, verdicts):
    assert gain_sentences(page, language, quantization=verdicts) == []


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_two_methods_agreeing_and_disagreeing(page, language):
    inside = {"zh": "全都落在區間裡", "en": "All 6 ratios"}[language]
    outside = {"zh": "有 1 個落在區間外", "en": "1 lie outside"}[language]
    agree, disagree = said(page, language)[-1], said(page, language, off=1.6)[-1]
    assert inside in agree and outside not in agree
    assert outside in disagree and inside not in disagree
    told = {"zh": ("「快，4.80 倍」", "「快，3.00 倍 ["), "en": ("“4.80× as fast”", "“3.00× as fast [")}[language]
    assert all(text in disagree for text in told)
    moments = {"zh": "不同的時刻", "en": "different moments"}[language]
    assert moments in disagree and moments not in agree


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_two_methods_on_opposite_sides(page, language):
    disagree = said(page, language, off=1 / 6)[-1]
    told = {"zh": ("「慢，時間是 2.00 倍」", "「快，3.00 倍 ["), "en": ("“takes 2.00× as long”", "“3.00× as fast [")}
    assert all(text in disagree for text in told[language])


SLOWER = {"wavering": 3.0 * KINDS["unclear"], "tie": 1.0, "a bit": 1.5, "much": 3.0, "faster": 0.5}
CONTROL = {
    "zh": {
        "neither": "兩段都不能說",
        "export only": "只有匯出",
        "q/dq only": "只有 q/dq",
        "q/dq more": "主要是 q/dq",
        "export more": "主要是匯出",
        "equally": "程度差不多",
        "can't be told": "分不出",
    },
    "en": {
        "neither": "neither",
        "export only": "only the export",
        "q/dq only": "only q/dq",
        "q/dq more": "q/dq more",
        "export more": "the export more",
        "equally": "about equally",
        "can't be told": "can't be told",
    },
}


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize(
    ("export", "qdq", "told"),
    [
        ("tie", "tie", "neither"),
        ("faster", "tie", "neither"),
        ("much", "tie", "export only"),
        ("much", "faster", "export only"),
        ("tie", "a bit", "q/dq only"),
        ("faster", "much", "q/dq only"),
        ("a bit", "much", "q/dq more"),
        ("much", "a bit", "export more"),
        ("much", "much", "equally"),
        ("much", "wavering", "can't be told"),
    ],
)
def test_the_exercise_answers_its_own_question(page, language, export, qdq, told):
    rounds = {}
    for width in (16, 64):
        rounds[f"{EAGER}, width {width}"] = list(100 * WOBBLE)
        rounds[f"exported fp32, width {width}"] = [100 * SLOWER[export]] * 40
        rounds[f"{QDQ}, width {width}"] = list(100 * SLOWER[export] * SLOWER[qdq] * np.ones(40))
    texts = [text.in_language(language) for text in page["about_control"](rounds)]
    for width, sentence in zip((16, 64), texts, strict=False):
        assert f"**width={width}**" in sentence
        assert {name for name, sign in CONTROL[language].items() if sign in sentence} == {told}
    unexplained = {"zh": "我們沒有查", "en": "we did not look into"}[language]
    assert len(texts) == 2 + (export in ("a bit", "much"))
    assert any(unexplained in text for text in texts) == (export in ("a bit", "much"))


def test_the_exercise_says_the_same_numbers_in_both_languages(page):
    rounds = {
        f"{name}, width {w}": [100.0 + 40 * i] * 40
        for w in (16, 64)
        for i, name in enumerate((EAGER, "exported fp32", QDQ))
    }
    for text in page["about_control"](rounds):
        assert numbers(text.zh) == numbers(text.en), text


@pytest.mark.parametrize("language", ["zh", "en"])
def test_unequal_threads_forbid_every_comparison(page, language):
    (sentence,) = said(page, language, threads={"torch": 4, "ExecuTorch": 1})
    assert "torch 4" in sentence and "ExecuTorch 1" in sentence
    assert {"zh": "不能比", "en": "No comparison"}[language] in sentence and "×" not in sentence


def test_both_languages_say_the_same_numbers(page):
    mixed = {"control": ("faster", "tie"), "quantization": ("unclear", "slower")}
    for how in ({}, {"longer": 1.2}, {"off": 1.6}, mixed):
        for text in page["conclusions"](made_up(**how)):
            assert numbers(text.zh) == numbers(text.en), text


def numbers(text):
    return sorted(re.findall(r"[0-9]+(?:\.[0-9]+)?%?", text))


def test_the_text_states_the_margin_of_a_tie():
    texts = {cell.lang: cell.source for cell in read_chapter(CHAPTERS / PAGE, CHAPTERS).cells if "5%" in cell.source}
    for start in ("整個區間都在 1 的 ", "within "):
        assert any(f"{start}{latency.TIE - 1:.0%}" in text for text in texts.values())


def test_the_same_results_give_the_same_sentences(page):
    assert page["conclusions"](made_up()) == page["conclusions"](made_up())


def test_the_code_that_the_text_quotes_is_the_code_that_runs():
    markdown = [cell.source for cell in read_chapter(CHAPTERS / PAGE, CHAPTERS).cells if cell.kind == "markdown"]
    quoted = [block for source in markdown for block in re.findall(r'```python title="[^"]+"\n(.*?)```', source, re.S)]
    assert len(quoted) == 4  # the simple method and the loop, in each language
    source = without_indent(inspect.getsource(latency))
    for block in quoted:
        assert without_indent(block) in source


def without_indent(code):
    return "\n".join(line.strip() for line in textwrap.dedent(code).strip().splitlines())


def on_made_up(monkeypatch, results):
    """From now on the chapter gets these results instead of measuring."""
    methods = [EAGER, "exported fp32", QDQ]
    control = {f"{name}, width {w}": [100.0 + i] * 40 for w in (16, 64) for i, name in enumerate(methods)}
    made = {"m08_4_latency": results, "m08_4_control": control}
    monkeypatch.setattr("common.artifacts.cached", lambda name, build, measurement=False: made[name])


@pytest.mark.site
def test_the_page_shows_parameters_environment_and_sentences(monkeypatch, capsys):
    monkeypatch.setenv("PT2E_LANG", "en")
    on_made_up(monkeypatch, made_up(quantization=("unclear", "slower")))
    runner.run_chapter(PAGE)
    shown = capsys.readouterr().out
    for text in ("9,940 parameters", "150,340 parameters", "a machine that does not exist", "1.50 times", "3.00 times"):
        assert text in shown
    assert "the int8 `.pte` is slower than the fp32 `.pte`: width 64" in shown
    assert "the int8 `.pte` is faster" not in shown


@pytest.mark.site
@pytest.mark.parametrize(("pte", "steps"), [(INT8, 2.0), (FP32, 1.0)])
def test_a_pte_that_computes_something_else_stops_the_page(monkeypatch, pte, steps):
    results = made_up()
    results["steps_off"][f"{pte}, width 64"] = [steps, 0.3]
    on_made_up(monkeypatch, results)
    with pytest.raises(AssertionError, match="doesn't compute"):
        runner.run_chapter(PAGE)


SABOTAGES = {
    "torch gets two threads": ("set_threads(1)  #", "set_threads(2)  #"),
    "the machine never slows down": ("(2 if self.now", "(1 if self.now"),
    "each method is timed by itself": ("rounds = measure(functions", "rounds = one_by_one(functions"),
}


@pytest.mark.site
@pytest.mark.parametrize("change", SABOTAGES.values(), ids=SABOTAGES)
def test_what_the_page_teaches_is_needed(monkeypatch, change):
    def one_by_one(fns, x, clock):
        return {name: latency.measure({name: fn}, x, clock=clock)[name] for name, fn in fns.items()}

    on_made_up(monkeypatch, made_up())
    monkeypatch.setattr("builtins.one_by_one", one_by_one, raising=False)
    try:
        with pytest.raises(AssertionError):
            runner.run_chapter(PAGE, runner.replacing(*change))
    finally:
        set_threads(1)


def test_steps_off_counts_steps_of_the_output():
    def model(x):
        return x.sum(dim=(1, 2, 3)).view(1, 1)

    def three_steps_off_where_bright(x):
        return model(x) + 1.5 * (model(x) > 0)

    namespace = {"torch": torch, "difference_in_lsb": difference_in_lsb, "calibration_batches": calibration_batches}
    namespace["output_qparams"] = lambda gm: QParams(scale=0.5, zero_point=0)
    steps_off = definitions(CHAPTERS / PAGE, namespace)["steps_off"]
    images = torch.cat([image for (image,) in calibration_batches(64)])
    bright = (images.sum(dim=(1, 2, 3)) > 0).double().mean().item()
    found = steps_off({EAGER: model, FP32: model, QDQ: model, INT8: three_steps_off_where_bright})
    assert found[FP32] == [0, 0] and 0 < bright < 1
    assert found[INT8] == pytest.approx([3, bright], rel=1e-4)
