"""M00-3: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing, spoil_observers

PAGE = "m00_fx/3_rewrite.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert page.value("qparams(range)", range=_Range(-1.0, 1.55)) == (pytest.approx(0.01), -28)
    assert page.value("qparams(range)", range=_Range(1.0, 2.55)) == (pytest.approx(0.01), -128)


@pytest.mark.parametrize("spoiled", [{"scale": 1.1}, {"zero_point": 1}], ids=["scale x 1.1", "zero point + 1"])
def test_an_observer_that_does_not_follow_the_formula_is_noticed(monkeypatch, spoiled):
    spoil_observers(monkeypatch, **spoiled)
    assert ("another scale" if "scale" in spoiled else "another zero point") in failed_claim(PAGE)


@pytest.mark.parametrize(
    ("right", "wrong", "claim"),
    [
        (
            "    for batch in batches:\n        assert torch.equal(recorded(*batch), exported(*batch))",
            "    for batch in []:\n        assert torch.equal(recorded(*batch), exported(*batch))",
            "recorded nothing",
        ),
        ("self.low = min(self.low, low.item())", "self.low = min(self.low, 1.1 * low.item())", "another minimum"),
        ("self.high = max(self.high, high.item())", "self.high = high.item()", "another maximum"),
        ("high.item())\n        return x", "high.item())\n        return x + 1e-3", "it changed"),
        (
            "gm.graph.lint()\ngm.recompile()\nassert torch.equal(gm(x), -torch",
            "gm.graph.lint()\nassert torch.equal(gm(x), -torch",
            "not on the path",
        ),
        (
            "relu.replace_all_uses_with(neg)  # no delete_user_cb",
            "relu.replace_all_uses_with(neg, delete_user_cb=lambda user: user is not neg)",
            "kept its input",
        ),
        ("node.replace_all_uses_with(dq)", "node.replace_all_uses_with(node.args[0])", "nothing was quantized"),
    ],
    ids=[
        "no calibration",
        "range too wide",
        "only the last batch",
        "a recorder that changes values",
        "no recompile",
        "no rewiring to itself",
        "no q and dq",
    ],
)
def test_a_page_with_one_thing_spoiled_fails_its_own_assert(right, wrong, claim):
    assert claim in failed_claim(PAGE, replacing(right, wrong))


class _Range:
    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high
