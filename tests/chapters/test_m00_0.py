"""M00-0: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import copy

import pytest
import torch
from runner import executed, failed_claim, replacing

PAGE = "m00_fx/0_overview.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert page.value("exported.conv.weight is model.conv.weight")


def test_an_export_that_copies_the_parameters_is_noticed(monkeypatch):
    export = torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda model, *args: export(copy.deepcopy(model), *args))
    failed_claim(PAGE)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (
            "relu.target = torch.ops.aten.sigmoid.default\nedited.recompile()",
            "relu.target = torch.ops.aten.sigmoid.default",
        ),
        ("edited = copy.deepcopy(exported)", "edited = exported"),
        ("recorded(five)", "switch(five)"),
        ("model.conv.weight.zero_()", "pass"),
        ("6.0)\nrelu6_graph.recompile()", "6.0)"),
        ("node.args = (node.args[0], 0.0, 6.0)", "node.args = (node.args[0], 0.0, 5.0)"),
        ("images = (20 * torch.rand", "images = (0 * torch.rand"),
    ],
    ids=[
        "no recompile",
        "no copy",
        "no record",
        "weights kept",
        "no recompile in the solution",
        "ReLU5",
        "small images",
    ],
)
def test_an_edit_that_goes_wrong_is_noticed(right, wrong):
    failed_claim(PAGE, replacing(right, wrong))
