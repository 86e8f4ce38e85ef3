"""M03-0: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing

PAGE = "m03_quantizer/0_overview.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds():
    page = executed(PAGE)
    assert page.value("list(observed(prepared_tiny))") == []
    assert page.value("other['x'][3:5]") == (0, 255)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (
            "                input_qspec_map={x: activation, w: weight},\n",
            "                input_qspec_map={x: activation, w: None},\n",
            "{'x': 'MinMaxObserver', 'conv2d': 'MinMaxObserver'}",
        ),
        ("    prepared(*example)  # calibrates, on a single image", "    pass", "another scale"),
        ("    def transform_for_annotation", "    def transform_before_annotation", "('annotate', 0), ('validate', 0)"),
        ("        del node.meta", "        node.meta", "each reader got a dq"),
        ("    return self.left(x) + self.right(x)", "    return self.left(x)", "the readers share a dq"),
        ("node.target != aten.conv2d.default:", "node.target == aten.conv2d.default:", "validate let sin through"),
        ("signed[name][2] + 128", "signed[name][2] + 127", "zero point not moved by 128"),
    ],
)
def test_a_claim_that_is_spoiled_is_noticed(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))


def test_a_quantizer_that_keeps_the_output_in_fp32_is_noticed():
    without_output = replacing(
        "input_qspec_map={x: activation, w: weight},\n                output_qspec=activation,",
        "input_qspec_map={x: activation, w: weight},",
    )
    assert "'conv2d'" not in failed_claim(PAGE, without_output)
