"""M04-3: the page holds, and when one thing it teaches is spoiled, one of its own asserts fails."""

import pytest
from runner import executed, failed_claim, replacing

PAGE = "m04_batchnorm/3_train_eval.py"
pytestmark = pytest.mark.site


def test_every_claim_of_the_page_holds_and_the_messages_are_shown():
    printed = " ".join(executed(PAGE).printed.split())
    assert "NotImplementedError: Calling eval() is not supported yet." in printed
    assert "Please call `torchao.quantization.pt2e.move_exported_model_to_train(model)` (or eval) instead." in printed


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("in_train(images)  # one update", "in_eval(images)", "not (1)"),
        ("    assert torch.equal(first, second)", "    assert True", "dropout went unnoticed"),
        ("assert torch.equal(buffers[name], value)", "assert True", "BN went unnoticed"),
        ("    gm = copy.deepcopy(gm)\n", "", "touched"),
        ("move_exported_model_to_eval(duplicate)", "duplicate.eval()", "the copy was not moved"),
        ("node.update_arg(position, number)", "pass", "not put back"),
        ("keeping_numbers(move_exported_model_to_eval, kept)", "move_exported_model_to_eval(kept)", "not put back"),
        ("node.update_arg(2, False)", "node.update_arg(2, True)", "still on"),
        ("move_exported_model_to_eval(quantized)\n", "quantized.training = False\n", "dropout is on"),
    ],
    ids=[
        "no update",
        "one output",
        "statistics ignored",
        "check without a copy",
        "eval of a copy",
        "numbers lost",
        "moved without keeping numbers",
        "Dropout2d on",
        "convert without moving",
    ],
)
def test_what_the_page_teaches_is_noticed_when_spoiled(right, wrong, message):
    assert message in failed_claim(PAGE, replacing(right, wrong))
