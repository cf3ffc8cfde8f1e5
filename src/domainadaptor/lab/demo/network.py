"""A small residual network for small images, and its training."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH = 64
_EPOCHS = 3
_PEAK_LR = 4e-3


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.shortcut(x))


class SmallResNet(nn.Module):
    """Three residual blocks, seven norm layers."""

    def __init__(self, classes: int, width: int = 16) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.block1 = Block(width, width, 1)
        self.block2 = Block(width, 2 * width, 2)
        self.block3 = Block(2 * width, 4 * width, 2)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to logits (N, classes)."""
        h = F.relu(self.bn(self.conv(x)))
        h = self.block3(self.block2(self.block1(h)))
        return self.head(h.mean((2, 3)))  # type: ignore[no-any-return]


def make_small_resnet(classes: int, seed: int) -> SmallResNet:
    """Return an untrained network, the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SmallResNet(classes)


def train(
    network: nn.Module, images: Tensor, labels: Tensor, seed: int, tick: Callable[[], None], *, lr: float = _PEAK_LR
) -> nn.Module:
    """Train a network on the images and return it; `tick` is called after each step."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps(len(images)))
    # The faster memory layout for convolutions on most machines.
    network = network.to(memory_format=torch.channels_last).train()
    images = images.contiguous(memory_format=torch.channels_last)
    for _ in range(_EPOCHS):
        order = torch.randperm(len(images), generator=generator).split(BATCH)
        for chosen in order:
            loss = F.cross_entropy(network(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            tick()
    return network.eval()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: sums depend on their number, and on a busy machine they wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def steps(images: int) -> int:
    """How many steps training takes."""
    return _EPOCHS * -(-images // BATCH)
