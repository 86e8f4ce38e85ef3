"""The course's models and their inputs."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator

from common import artifacts
from common.data import CLASSES, SIZE, train_data

import torch
from torch import nn


class ConvRelu(nn.Module):
    """A 3x3 convolution 3 -> 8 with bias, padding 1, then ReLU: `(N, 3, 16, 16)` -> `(N, 8, 16, 16)`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.conv(x))


class Block(nn.Module):
    """Two convolutions with BatchNorm and a skip connection: `(N, width, H, W)` in and out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = _conv3x3(width, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv3x3(width, width)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + x)


class TinyConvNet(nn.Module):
    """The running model of the course, `(N, 3, 16, 16)` -> logits `(N, 4)`: 9,940 parameters, 150,340 at width 64.

    The convolutions have no bias (BatchNorm follows), the linear layer has one. The mean keeps its dimensions:
    XNNPACK's partitioner doesn't take the other spelling (executorch 1.5.1), which would cut the graph in two.
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem_conv = _conv3x3(3, width)
        self.stem_bn = nn.BatchNorm2d(width)
        self.block = Block(width)
        self.head_conv = _conv3x3(width, 2 * width)
        self.head_bn = nn.BatchNorm2d(2 * width)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(2 * width, len(CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.stem_bn(self.stem_conv(x)))
        x = self.block(x)
        x = self.relu(self.head_bn(self.head_conv(x)))
        return self.fc(x.mean((2, 3), keepdim=True).flatten(1))


def _conv3x3(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)


_MODELS: dict[str, Callable[[], nn.Module]] = {
    "conv_relu": ConvRelu,
    "tiny": TinyConvNet,
    "tiny64": functools.partial(TinyConvNet, width=64),
}


def get_model(name: str, seed: int = 0) -> nn.Module:
    """An untrained model in eval mode: `conv_relu`, `tiny` (TinyConvNet) or `tiny64` (width 64).

    The same weights every time; the global random state stays as it is. BatchNorm gets made-up statistics, so that
    folding it changes the weights as in a trained network.
    """
    if name not in _MODELS:
        raise ValueError(f"no model {name!r}; there are {', '.join(sorted(_MODELS))}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _MODELS[name]()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean, std=0.2)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, std=0.2)
    return model.eval()


def example_inputs(n: int = 1) -> tuple[torch.Tensor]:
    """`(x,)` with `x` of shape `(n, 3, 16, 16)`, standard normal.

    The same images every time; the global random state stays as it is.
    """
    return (torch.randn(n, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0)),)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch computes with one thread: training then gives the same weights each time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def trained_tinyconvnet(seed: int = 0) -> TinyConvNet:
    """TinyConvNet of width 16, trained on the course's data to 93-95 %, in eval mode.

    Takes some five seconds the first time, then comes from the artifacts. Each call returns a model of its own, and the
    global random state stays as it is.
    """
    with torch.random.fork_rng(devices=[]):
        model = TinyConvNet()
    model.load_state_dict(artifacts.cached(f"tinyconvnet-seed{seed}", functools.partial(_train, seed)))
    return model.eval()


def _train(seed: int, epochs: int = 8, batch_size: int = 64) -> dict[str, torch.Tensor]:
    """The state dict of a TinyConvNet trained from `seed`.

    One thread: two would give other weights on each machine, and are slower on shared cores.
    """
    with one_thread():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = TinyConvNet()
        _fit(model, epochs, batch_size, torch.Generator().manual_seed(seed))
    return {name: value.detach().contiguous() for name, value in model.state_dict().items()}


def _fit(model: TinyConvNet, epochs: int, batch_size: int, generator: torch.Generator) -> None:
    """Train in place. `generator` shuffles the images."""
    images, labels = train_data()
    images = images.contiguous(memory_format=torch.channels_last)
    model.to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-4)
    steps = epochs * math.ceil(len(images) / batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    for _ in range(epochs):
        for chosen in torch.randperm(len(images), generator=generator).split(batch_size):
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
