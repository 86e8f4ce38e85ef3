"""M00-1: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
import torch
from runner import executed, failed_claim, replacing
from torch import fx

PAGE = "m00_fx/1_graph_and_node.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds_and_its_interpreter_agrees_with_that_of_fx():
    page = executed(PAGE)
    given = {"image": torch.rand(1, 3, 16, 16), "Interpreter": fx.Interpreter}
    oracle = page.value("Interpreter(tiny).run(image).detach()", **given)
    assert torch.equal(page.value("interpret(tiny, image).detach()", **given), oracle)


def test_a_lint_that_lets_the_wrong_order_pass_is_noticed(monkeypatch):
    monkeypatch.setattr(fx.Graph, "lint", lambda graph: None)
    assert "no error was raised" in failed_claim(PAGE)


def test_users_that_do_not_follow_args_are_noticed():
    kept = replacing("add.args = (skip, skip)", "add.args = (main, skip)")
    assert "old edge" in failed_claim(PAGE, kept)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("torch.rand(1, 4, 8, 6),)).module()", "torch.rand(1, 4, 8, 6),)).module(check_guards=False)"),
        ("assert relu.target == aten.relu.default", "assert relu.target == aten.relu"),
        ("(aten.add.Tensor, (a, b))", "(aten.add.Tensor, (b, b))"),
        ("c.append(b)", "c.prepend(b)"),
        ("first, second = x.chunk(2)", "first = second = x"),
        ("values[node] = node.target(*args, **node.kwargs)", "values[node] = node.target(*args, **node.kwargs) * 1.1"),
    ],
    ids=[
        "no guards",
        "op without overload",
        "another graph",
        "nothing moved",
        "no getitem",
        "interpreter off by a tenth",
    ],
)
def test_a_statement_that_is_slightly_off_is_noticed(right, wrong):
    failed_claim(PAGE, replacing(right, wrong))
