"""Small networks and seeded batches that many tests use."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import domainadaptor as da

os.environ["HF_HUB_OFFLINE"] = "1"

# Tests run side by side, one worker a core: more threads would only get in each other's way.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

DATA_VARIABLE = "DOMAINADAPTOR_DATA"


class GoldenNet(nn.Module):
    """The network of the golden numbers: three convolutions, three norms, a shortcut, a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.c1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.c2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.c3 = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(16)
        self.fc = nn.Linear(16, 7)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.bn1(self.c1(x)))
        h = torch.relu(self.bn2(self.c2(h)))
        h = torch.relu(self.bn3(self.c3(h)) + h)
        return self.fc(h.mean((2, 3)))


def stir(network: nn.Module, seed: int = 0) -> nn.Module:
    """Norm tensors away from 1 and 0, as after training, so that a wrong normalization shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            mean = getattr(module, "running_mean", None)
            if mean is None:
                continue
            mean.copy_(0.3 * torch.randn(mean.shape, generator=generator))
            module.running_var.copy_(0.5 + torch.rand(mean.shape, generator=generator))
            if module.weight is not None:
                module.weight.copy_(0.75 + 0.5 * torch.rand(mean.shape, generator=generator))
            if module.bias is not None:
                module.bias.copy_(0.2 * torch.randn(mean.shape, generator=generator))
    return network.eval()


def batch(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Images off the source distribution: shifted and scaled."""
    generator = torch.Generator().manual_seed(seed)
    return (1.5 * torch.randn(shape, generator=generator, dtype=torch.float64) + 0.4).to(dtype)


_SOURCE_IMAGES = batch(8, 3, 12, 12, seed=50)

# What a method needs, and thresholds under which it learns from a network that was never trained.
EXTRAS: dict[str, Callable[[], dict]] = {
    "eta": lambda: {"margin": 1.0, "eps": 1.0},
    "eata": lambda: {"margin": 1.0, "eps": 1.0, "source_images": _SOURCE_IMAGES},
    "rdumb": lambda: {"margin": 1.0, "eps": 1.0},
    "sar": lambda: {"margin": 1.0},
    "deyo": lambda: {"margin": 1.0, "drop": -1.0},
}

# Their answer is more than a network's, so that no plain network can repeat it.
ANSWER_THEMSELVES = {"roid"}


def make(network: nn.Module, method: str, **options) -> da.Adaptor:
    """A method's adaptor, given what it needs."""
    return da.adapt(network, method, **{**EXTRAS.get(method, dict)(), **options})


@pytest.fixture(scope="session")
def golden() -> dict[str, Tensor]:
    arrays = np.load(Path(__file__).parent / "golden" / "authors_code.npz")
    return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


@pytest.fixture
def golden_net(golden) -> GoldenNet:
    network = GoldenNet().double()
    prefix = "network/state/"
    state = {name.removeprefix(prefix): value for name, value in golden.items() if name.startswith(prefix)}
    network.load_state_dict(state, strict=False)
    return network.eval()


@pytest.fixture
def net() -> nn.Module:
    """A small float32 network that looks trained."""
    torch.manual_seed(0)
    return stir(GoldenNet())


@pytest.fixture
def images() -> Tensor:
    return batch(8, 3, 12, 12)


def pytest_addoption(parser):
    parser.addoption("--root", help=f"folder with real data, instead of the variable {DATA_VARIABLE}")


@pytest.fixture(scope="session")
def data_root(request) -> Path:
    """Real images and weights of this machine; the tests that need them are skipped where there are none."""
    root = request.config.getoption("--root") or os.environ.get(DATA_VARIABLE)
    if not root or not Path(root).is_dir():
        pytest.skip(f"needs real data: pass --root or set {DATA_VARIABLE} to a folder with cifar10-jpeg and imagenet")
    return Path(root)
