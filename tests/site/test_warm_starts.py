"""Kernels forked from a warm parent: chapters show what cold kernels show, for less, and nothing is left running."""

import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from common.site.executor import Executor
from common.site.outline import read_chapters, read_outline

import pytest
from miniature import EXECUTIONS, Project, code, make_project, page

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere kernels start cold"),
    pytest.mark.site,
]

TRAINS = """\
# %%
import threading

import torch

torch.manual_seed(0)
layer = torch.nn.Linear(8, 3)
optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
x, y = torch.randn(32, 8), torch.arange(32) % 3
for _ in range(20):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(layer(x), y)
    loss.backward()
    optimizer.step()
print(loss.item(), layer.weight.sum().item())

# %%
print(torch.get_num_threads(), torch.get_num_interop_threads(), torch.__version__)
print(len(threading.enumerate()), threading.main_thread() is threading.current_thread())
"""
QUANTIZES = """\
# %%
from common.executorch_utils import PteRunner, lower_to_xnnpack, xnnpack_ptq
from common.models import example_inputs, get_model

import torch

torch.manual_seed(1)
x = example_inputs(1)
quantized = xnnpack_ptq(get_model("conv_relu").eval(), x)
print(quantized.code)

# %%
edge, pte = lower_to_xnnpack(quantized, x)
y = PteRunner(pte)(x)
print(len(pte), y.sum().item(), (y - quantized(*x)).abs().max().item())
"""
DRAWS = code(
    "import random",
    "",
    "import numpy",
    "import torch",
    "",
    "print(random.random(), numpy.random.rand(), torch.rand(1, dtype=torch.float64).item())",
)
CHAPTERS = {
    "m01_first/0_overview": page("Trains", TRAINS),
    "m01_first/1_alpha": page("Quantizes", QUANTIZES),
    "m01_first/2_beta": page("Draws", DRAWS),
    "m02_second/0_overview": page("Draws again", DRAWS),
}


@dataclass
class Ran:
    """Outputs by chapter, and the CPU seconds of all processes."""

    texts: dict[str, str]
    cpu: float


def run(project: Project, name: str, warm: bool, workers: int = 1) -> Ran:
    """Execute everything into a cache of this name."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    cache = project.root / name
    runner = Executor(project.root, project.chapters, ("minihelp",), cache=cache, workers=workers, warm=warm)
    chapters = read_chapters(project.chapters, read_outline(project.chapters))
    assert [str(failure) for failure in runner.run(chapters)] == []
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    texts = {
        chapter.name: "".join(output["text"] for cell in runner.cached(chapter).outputs for output in cell)
        for chapter in chapters
    }
    return Ran(texts, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Chapters that import what the course's chapters import."""
    made = make_project(tmp_path_factory.mktemp("warm") / "course", CHAPTERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(EXECUTIONS, str(made.executions))
        yield made
    made.assert_nothing_runs()


@pytest.fixture(scope="module")
def ran(project: Project) -> dict[str, Ran]:
    """Everything executed by cold and by warm kernels."""
    found = {}
    for name in ("cold", "warm"):
        found[name] = run(project, name, warm=name == "warm")
        project.assert_nothing_runs(seconds=3)
    return found


@pytest.mark.parametrize("chapter", ["m01_first/0_overview.py", "m01_first/1_alpha.py"])
def test_training_and_lowering_show_the_same_to_the_last_digit(ran, chapter):
    assert ran["warm"].texts[chapter] == ran["cold"].texts[chapter] != ""


def test_kernels_of_one_parent_do_not_draw_the_same_numbers(ran):
    chapters = ("m01_first/2_beta.py", "m02_second/0_overview.py")
    draws = [kind.texts[chapter].split() for kind in ran.values() for chapter in chapters]
    for numbers in zip(*draws, strict=True):
        assert len(set(numbers)) == 4


def test_importing_once_costs_less_than_importing_in_every_chapter(ran):
    print(f"CPU seconds: {ran['cold'].cpu:.1f} cold, {ran['warm'].cpu:.1f} warm")
    assert ran["warm"].cpu < 0.8 * ran["cold"].cpu


# A kernel has its parent's command line, which names what the parent imported.
KIND = code("import pathlib", "import numpy", "", 'print("numpy" in pathlib.Path("/proc/self/cmdline").read_text())')


@pytest.mark.parametrize(
    ("chapters", "workers", "warm"),
    [
        (1, 1, [False]),  # nobody else would use what the parent imported
        (1, 2, [False]),
        (2, 1, [True, True]),
        (3, 2, [False, True, True]),  # on the second core the first chapter need not wait for the parent
        (2, 3, [False, False]),
        (4, 3, [False, False, True, True]),
    ],
)
def test_chapters_start_cold_where_they_need_not_wait_for_the_parent(tmp_path, chapters, workers, warm):
    names = ("m01_first/0_overview", "m01_first/1_alpha", "m01_first/2_beta", "m02_second/0_overview")
    project = make_project(tmp_path / "course", {name: page("Kind", KIND) for name in names[:chapters]})
    texts = run(project, "cache", warm=True, workers=workers).texts
    assert sorted(texts.values()) == [f"{kind}\n" for kind in warm]
