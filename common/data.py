"""The course's data: small images of four classes, made by code.

Classes 0 to 3 are {bright, dark} blob x {horizontal, vertical} stripes. The blob and the background are strong and
smooth, the stripes faint and fine, so a network needs weights of very different size in its filters. That makes their
ranges, and with them quantization, worth looking at.
"""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F

CLASSES = ("bright, horizontal", "bright, vertical", "dark, horizontal", "dark, vertical")
N_TRAIN, N_TEST = 4000, 2000
SIZE = 16


def make_data(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images `(n, 3, 16, 16)`, float32 in [-2, 2], and labels `(n,)`, int64.

    The same arguments give the same images; the global random state stays as it is. The first images of a larger set
    are not those of a smaller one: draw once, then slice.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(n, 1, 1, generator=generator)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    labels = torch.randint(0, len(CLASSES), (n,), generator=generator)
    is_dark = (labels // 2).view(-1, 1, 1)
    is_vertical = (labels % 2).view(-1, 1, 1)
    row, column = torch.meshgrid(torch.arange(float(SIZE)), torch.arange(float(SIZE)), indexing="ij")

    # One bright or dark blob somewhere in the middle, on a smooth background of random brightness.
    center_row, center_column = uniform(4, 12), uniform(4, 12)
    squared_distance = (row - center_row) ** 2 + (column - center_column) ** 2
    background = F.interpolate(normal(n, 1, 4, 4), size=SIZE, mode="bicubic", align_corners=False)[:, 0]
    blob = torch.exp(-squared_distance / (2 * 2.5**2))
    gray = (1 - 2 * is_dark) * 1.2 * uniform(0.5, 1.5) * blob + 0.45 * background + 0.3 * normal(n, 1, 1)

    # Stripes, red against green, of amplitude 0.01 to 0.2 (evenly spread over the logarithm).
    amplitude = 0.01 * 20 ** uniform(0, 1)
    phase, period = uniform(0, 2 * math.pi), uniform(2.5, 3.5)
    across = torch.where(is_vertical == 1, column, row)
    stripes = amplitude * torch.sin(2 * math.pi * across / period + phase)

    red_against_green = torch.tensor([1.0, -1.0, 0.0]).view(1, 3, 1, 1)
    images = gray.unsqueeze(1) + stripes.unsqueeze(1) * red_against_green
    return (images + 0.05 * normal(n, 3, SIZE, SIZE)).clamp(-2, 2), labels


def train_data() -> tuple[torch.Tensor, torch.Tensor]:
    """The 4000 training images and labels. Made anew on each call (a tenth of a second), so changing them is safe."""
    return make_data(N_TRAIN, seed=1)


def test_data() -> tuple[torch.Tensor, torch.Tensor]:
    """The 2000 test images and labels, made anew on each call."""
    return make_data(N_TEST, seed=2)


test_data.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it where it is imported


def calibration_batches(n: int, batch_size: int = 32) -> Iterator[tuple[torch.Tensor]]:
    """Batches `(images,)` of the first `n` training images, exactly `n` in all; the last one may be smaller.

    Each batch has its own memory: a program exported with a slice as its example is saved with the whole data set.
    """
    if not 0 < n <= N_TRAIN:
        raise ValueError(f"calibration needs between 1 and {N_TRAIN} images, got n={n}")
    if batch_size < 1:
        raise ValueError(f"a batch holds at least one image, got batch_size={batch_size}")
    return _batches(train_data()[0][:n], batch_size)


def _batches(images: torch.Tensor, batch_size: int) -> Iterator[tuple[torch.Tensor]]:
    for batch in images.split(batch_size):
        yield (batch.clone(),)
