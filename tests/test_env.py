import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import warnings

import common
from common import env

import pytest
import torch
from torchao.quantization.pt2e import MinMaxObserver

EPYC = """processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 9B45 128-Core Processor
flags\t\t: fpu sse4_2 avx avx2 avx512f avx512_vnni avx_vnni

processor\t: 1
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 9B45 128-Core Processor
flags\t\t: fpu sse4_2 avx avx2 avx512f avx512_vnni avx_vnni
"""
GRAVITON = """processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd aes asimdhp asimddp sve i8mm bf16
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd40
CPU revision\t: 1

"""
BIG_LITTLE = """processor\t: 0
Features\t: fp asimd
CPU implementer\t: 0x41
CPU part\t: 0xd03

processor\t: 1
Features\t: fp asimd asimddp
CPU implementer\t: 0x41
CPU part\t: 0xd0b

Hardware\t: Some Board
"""
APPLE = """machdep.cpu.brand_string: Apple M2
machdep.cpu.core_count: 8
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_I8MM: 1
hw.optional.arm.FEAT_SME: 0
hw.optional.floatingpoint: 1
"""
INTEL_MAC = """machdep.cpu.brand_string: Intel(R) Core(TM) i7-8569U CPU @ 2.80GHz
machdep.cpu.features: FPU SSE4.2 AVX1.0
machdep.cpu.leaf7_features: BMI1 AVX2 BMI2
hw.optional.avx2_0: 1
hw.optional.avx512f: 0
"""


# --- Quieting ---


def test_importing_common_is_cheap():
    code = "import common, common.env, sys; print([m for m in ('torch', 'numpy', 'executorch') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("noise", common.LOGGED_AT_IMPORT, ids=lambda noise: noise.logger)
def test_other_messages_of_a_quieted_logger_pass(noise, caplog):
    logging.getLogger(noise.logger).warning("the sky is falling")
    assert "the sky is falling" in caplog.text


def test_quieting_twice_adds_nothing():
    before = [list(logging.getLogger(noise.logger).filters) for noise in common.LOGGED_AT_IMPORT]
    for noise in common.LOGGED_AT_IMPORT:
        common.quiet_logger(noise)
    assert [list(logging.getLogger(noise.logger).filters) for noise in common.LOGGED_AT_IMPORT] == before


def test_every_entry_says_where_it_comes_from_and_why():
    for noise in (*common.LOGGED_AT_IMPORT, *common.WARNED_AT_IMPORT, *env.WARNED_AT_WORK, *env.LOGGED_AT_WORK):
        assert re.search(r"\d+\.\d+\.\d+", noise.package), "the version it was seen in"
        assert noise.reason


def test_quiet_drops_the_leaf_spec_warning_and_keeps_others():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env.quiet()
        warnings.warn("`isinstance(treespec, LeafSpec)` is deprecated, use something else", FutureWarning, stacklevel=1)
        warnings.warn("something else is deprecated", FutureWarning, stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["something else is deprecated"]


def test_a_forgotten_calibration_still_warns_after_quiet():
    env.quiet()
    with pytest.warns(UserWarning, match="must run observer before calling calculate_qparams"):
        MinMaxObserver().calculate_qparams()


# --- Capturing ---


def test_capture_stderr_catches_python_and_descriptor_2():
    with env.capture_stderr() as captured:
        print("from Python", file=sys.stderr)
        os.write(2, b"from C++\n")
        subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('from a child\\n')"], check=True)
    assert captured.lines == ["from Python", "from C++", "from a child"]
    assert str(captured) == captured.text


def test_capture_stderr_gives_the_text_of_a_failed_block_and_restores_stderr(capfd):
    with pytest.raises(KeyError), env.capture_stderr() as captured:
        os.write(2, b"the reason\n")
        raise KeyError("x")
    os.write(2, b"afterwards\n")
    print("and from Python", file=sys.stderr)
    assert captured.lines == ["the reason"]
    assert capfd.readouterr().err == "afterwards\nand from Python\n"


def test_capture_stderr_can_be_nested():
    with env.capture_stderr() as outer:
        with env.capture_stderr() as inner:
            os.write(2, b"in\n")
        os.write(2, b"out\n")
    assert (inner.lines, outer.lines) == (["in"], ["out"])


def test_capture_stderr_leaves_no_descriptor_open():
    def open_descriptors():
        found = set()
        for number in range(256):
            with contextlib.suppress(OSError):
                os.fstat(number)
                found.add(number)
        return found

    before = open_descriptors()
    with env.capture_stderr():
        pass
    assert open_descriptors() == before


def test_unexpected_lines_are_those_that_no_pattern_matches():
    lines = ["[a.cpp:7] known", "[a.cpp:9] new"]
    assert env.unexpected_lines(lines, [r"a\.cpp:\d+\] known"]) == ["[a.cpp:9] new"]


# --- The processor ---


@pytest.mark.parametrize(
    ("parsed", "model", "names"),
    [
        (
            env.parse_cpuinfo(EPYC),
            "AMD EPYC 9B45 128-Core Processor",
            ("AVX2", "AVX-512F", "AVX512-VNNI", "AVX-VNNI"),
        ),
        (env.parse_cpuinfo(GRAVITON), "Arm Neoverse-V1", ("NEON dotprod", "i8mm")),
        (env.parse_cpuinfo(BIG_LITTLE), "Arm implementer 0x41 part 0xd03", ()),
        (env.parse_cpuinfo(""), "", ()),
        (env.parse_sysctl(APPLE), "Apple M2", ("NEON dotprod", "i8mm")),
        (env.parse_sysctl(INTEL_MAC), "Intel(R) Core(TM) i7-8569U CPU @ 2.80GHz", ("AVX2",)),
    ],
    ids=["x86", "arm", "cores that differ", "nothing", "Apple", "Intel Mac"],
)
def test_processor_descriptions_are_read(parsed, model, names):
    assert parsed[0] == model
    assert env.isa_names(parsed[1]) == names


def test_amx_is_found_among_the_flags():
    assert env.isa_names(frozenset({"amx_int8", "amx_tile", "avx2"})) == ("AVX2", "AMX-INT8")


def test_avx_vnni_is_not_taken_for_avx512_vnni():
    assert env.isa_names(frozenset({"avx_vnni"})) == ("AVX-VNNI",)


def test_the_cpu_class_agrees_with_what_torch_detected():
    needed = {"AVX512": {"AVX2", "AVX-512F"}, "AVX2": {"AVX2"}}.get(torch.backends.cpu.get_cpu_capability(), set())
    assert needed <= set(env.isa_flags())
    assert all(name in env.cpu_class() for name in needed)


@pytest.mark.parametrize(
    ("machine", "expected"), [("AMD64", "x86-64"), ("x86_64", "x86-64"), ("aarch64", "arm64"), ("riscv64", "riscv64")]
)
def test_the_cpu_class_begins_with_the_architecture(machine, expected, monkeypatch):
    monkeypatch.setattr(env.platform, "machine", lambda: machine)
    monkeypatch.setattr(env, "_cpu", lambda: ("", frozenset({"avx2"})))
    assert env.cpu_class() == f"{expected} (AVX2)"


# --- Versions and threads ---


def test_the_summary_is_one_line_with_the_libraries_and_no_path():
    summary = env.env_summary()
    assert f"torch {torch.__version__}" in summary
    assert f"threads={torch.get_num_threads()}" in summary
    assert "\n" not in summary and os.sep not in summary


def test_provenance_goes_through_json():
    facts = env.provenance()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["torch_threads"] == torch.get_num_threads()


def test_packages_that_are_not_installed_have_no_version():
    assert env.installed_versions(("torch", "no-such-package-of-ours")) == {"torch": torch.__version__}


def test_set_threads_reaches_torch_and_executorch(capfd):
    from executorch.extension.pybindings import portable_lib

    before = torch.get_num_threads()
    try:
        for n in (2, 1):
            env.set_threads(n)
            assert (torch.get_num_threads(), portable_lib._threadpool_get_thread_count()) == (n, n)
    finally:
        env.set_threads(before)
    assert capfd.readouterr().err == ""


def test_zero_threads_are_refused():
    with pytest.raises(ValueError, match="at least one thread, got 0"):
        env.set_threads(0)
