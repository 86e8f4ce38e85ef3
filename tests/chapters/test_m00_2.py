"""M00-2: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
import torch
from runner import executed, failed_claim, replacing

PAGE = "m00_fx/2_export.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert "GuardOnDataDependentSymNode" in page["refused"]


@pytest.mark.parametrize(("folder", "guarded"), [("course", True), ("executorch", False), ("torchao", False)])
def test_a_file_below_executorch_or_torchao_gets_no_guards(folder, guarded):
    program = torch.export.export(torch.nn.ReLU(), (torch.rand(2),))
    call = compile("program.module()", f"/home/reader/{folder}/demo.py", "eval")
    assert hasattr(eval(call, {"program": program}), "_guards_fn") == guarded


@pytest.mark.parametrize(
    ("right", "wrong", "claim"),
    [
        ("getattr(dropout, mode)()", "dropout.eval()", "no value was dropped"),
        ("nn.ReLU(inplace=True)", "nn.ReLU()", "relu"),
        (
            "program = torch.export.export(model, example_inputs(1))",
            "program = torch.export.export(model, example_inputs(2))",
            "no error",
        ),
        ("check_guards=False", "check_guards=True", ""),
        ("max=64)", "max=65)", "no error"),
        ("automatic = export_one_image(Dim.AUTO)", "automatic = open_batch", "the log says nothing"),
        ("torch.where(x.sum() > 0, x, -x)", "torch.where(x.sum() > 0, x, x)", ""),
        ("(t, t)).module()", "(t, t.clone())).module()", "the trap is gone"),
        ("(t, t.clone())).module()", "(t, t)).module()", ""),
        ("norm = nn.BatchNorm1d(3)", "norm = nn.BatchNorm1d(3).eval()", "eval() changes nothing"),
    ],
    ids=[
        "exported in eval mode",
        "nothing in place",
        "two example images",
        "guards kept",
        "one image more",
        "AUTO that stays dynamic",
        "where that chooses nothing",
        "no tensor twice",
        "one tensor twice",
        "BN in eval mode",
    ],
)
def test_a_page_with_one_thing_spoiled_fails_its_own_assert(right, wrong, claim):
    assert claim in failed_claim(PAGE, replacing(right, wrong))
