"""How good a quantized model is, and how close to the original. M05 says what each metric hides."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch

Verdict = Literal["better", "worse", "unclear"]


def is_right(model: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Whether the largest logit is that of the label: bool, `(N,)`.

    `model` can be anything that returns logits `(n, classes)`. It gets the images in batches of 250, which is twice as
    fast as all 2000 at once, without gradients.
    """
    with torch.no_grad():
        logits = torch.cat([model(batch) for batch in images.split(250)])
    if logits.dim() != 2 or len(logits) != len(labels):
        raise ValueError(f"logits of shape {tuple(logits.shape)} for {len(labels)} labels")
    return logits.argmax(1) == labels


def accuracy(model: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of images that `is_right`."""
    return is_right(model, images, labels).double().mean().item()


def agreement(a: torch.Tensor, b: torch.Tensor) -> float:
    """The share of images on which two sets of logits `(N, classes)` have their largest value at the same place."""
    _same_shape(a, b)
    return (a.argmax(1) == b.argmax(1)).double().mean().item()


def sqnr_db(reference: torch.Tensor, other: torch.Tensor) -> float:
    """Signal-to-quantization-noise ratio in dB over all elements: 10 log10(sum reference² / sum (reference - other)²).

    Infinite where nothing differs. Raises ValueError for a reference of zeros, which has no signal to compare with.
    """
    _same_shape(reference, other)
    signal = reference.double().square().sum().item()
    noise = (reference.double() - other.double()).square().sum().item()
    if signal == 0:
        raise ValueError("the reference is all zeros, so there is no signal-to-noise ratio")
    return 10 * math.log10(signal / noise) if noise else math.inf


def _same_shape(a: torch.Tensor, b: torch.Tensor) -> None:
    if a.shape != b.shape:
        raise ValueError(f"can't compare shapes {tuple(a.shape)} and {tuple(b.shape)}")


# --- Is a difference in accuracy more than luck? ----------------------------------------------------------------------


class PairedInterval(NamedTuple):
    """The change in accuracy between two models on the same `n` images, with its 95 % interval (all as shares).

    `lost` images went from right to wrong, `gained` ones from wrong to right; the others tell nothing about the change.
    """

    change: float
    low: float
    high: float
    lost: int
    gained: int
    n: int

    @property
    def verdict(self) -> Verdict:
        """`unclear` if the interval contains 0: then neither model may be called better."""
        if self.low <= 0 <= self.high:
            return "unclear"
        return "better" if self.low > 0 else "worse"

    @property
    def p_value(self) -> float:
        """See `sign_test`."""
        return sign_test(self.lost, self.gained)


def paired_interval(before: torch.Tensor, after: torch.Tensor) -> PairedInterval:
    """Compare two models on the same images, given what `is_right` says of each: bool, `(N,)`.

    Wald's interval after half an image was added to each cell of the 2x2 table (Agresti and Min, 2005), so that a few
    changed images are not taken for certainty.
    """
    _same_shape(before, after)
    if before.dtype != torch.bool or after.dtype != torch.bool:
        raise ValueError(f"expected bool, right or wrong for each image, got {before.dtype} and {after.dtype}")
    return paired_interval_of_counts(int((before & ~after).sum()), int((~before & after).sum()), len(before))


def paired_interval_of_counts(lost: int, gained: int, n: int) -> PairedInterval:
    """The same from the numbers of images."""
    if lost < 0 or gained < 0 or n < 1 or lost + gained > n:
        raise ValueError(f"{lost} lost and {gained} gained can't come from {n} images")
    b, c, total = lost + 0.5, gained + 0.5, n + 2
    middle = (c - b) / total
    half_width = 1.96 * math.sqrt(b + c - (c - b) ** 2 / total) / total
    return PairedInterval((gained - lost) / n, middle - half_width, middle + half_width, lost, gained, n)


def in_points(share: float, digits: int = 1) -> str:
    """A change of accuracy as signed percentage points, such as `−1.4`."""
    return f"{100 * share:+.{digits}f}".replace("-", "−")


def interval_in_points(low: float, high: float, digits: int = 1) -> str:
    """Such as `[−2.3, −0.5]`, in percentage points; no line breaks in it."""
    return f"[{in_points(low, digits)},\N{NO-BREAK SPACE}{in_points(high, digits)}]"


def sign_test(lost: int, gained: int) -> float:
    """The exact two-sided p-value of McNemar's test.

    If a changed image were as likely lost as gained, the share of cases at least as one-sided as this one.
    """
    changed = lost + gained
    tail = sum(math.comb(changed, k) for k in range(min(lost, gained) + 1))
    return min(1.0, 2 * tail / 2**changed)
