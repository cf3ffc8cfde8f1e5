"""Small networks and seeded batches that many tests use."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor.norms.instance_aware import make_instance_aware

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
    return (1.5 * torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu") + 0.4).to(dtype)


def seeded(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    """Tensors like those of a trained head."""
    generator = torch.Generator().manual_seed(seed)
    return [0.3 * torch.randn(shape, generator=generator, device="cpu") for shape in shapes]


def _jigsaw_head() -> dict[str, Any]:
    names = [f"head.{at}.{part}" for at in (0, 2, 4) for part in ("weight", "bias")]
    return {"task": dict(zip(names, seeded((16, 16), (16,), (16, 16), (16,), (32, 16), (32,)), strict=True))}


def _learned_loss() -> dict[str, Any]:
    names = [f"layers.{at}.{part}" for at in (0, 2, 4, 6) for part in ("weight", "bias")]
    shapes = [(32, 7), (32,), (32, 32), (32,), (32, 32), (32,), (1, 32), (1,)]
    return {"learned_loss": dict(zip(names, seeded(*shapes), strict=True))}


# What a method is given in the tests of every method: what it needs, and sizes that suit batches of eight.
EXTRAS: dict[str, Callable[[], dict[str, Any]]] = {
    "adabn-source-and-test": lambda: {
        "source_images": batch(6, 3, 12, 12, seed=11),
        "target_images": batch(6, 3, 12, 12, seed=12),
    },
    "arm": _learned_loss,
    "cotta": lambda: {"views": 2},
    # Thresholds under which a network learns that was never trained.
    "deyo": lambda: {"margin": 1.0, "drop": -1.0},
    # The same adaptor as domainadaptor-t and -aug; here for all that comes with adapting later layers alone.
    "domainadaptor-skd": lambda: {"adapt_from": 0.5},
    "eata": lambda: {"margin": 1.0, "eps": 1.0, "source_images": batch(8, 3, 12, 12, seed=50)},
    "eta": lambda: {"margin": 1.0, "eps": 1.0},
    "jigsaw": _jigsaw_head,
    "memo": lambda: {"views": 2},
    "note": lambda: {"capacity": 6, "update_every": 4},
    "rdumb": lambda: {"margin": 1.0, "eps": 1.0},
    "sar": lambda: {"margin": 1.0},
    "rotta": lambda: {"capacity": 6, "update_every": 4, "nu": 0.1},
    "rotation": lambda: {"task": {"head.weight": seeded((4, 16))[0]}},
}


def make(net: nn.Module, name: str, **options: Any) -> da.Adaptor:
    """A method by name, with what it needs."""
    return da.adapt(net, name, **{**EXTRAS.get(name, dict)(), **options})


def needs(name: str, what: str) -> bool:
    """Whether a method says that it needs this."""
    said = da.method_info(name)
    return said is not None and what in said.needs


PER_IMAGE = ("memo",)  # each image has an adapted network of its own
ANSWER_THEMSELVES = ("roid",)  # the answer is more than a network's, so that no plain network can repeat it


def suited(network: nn.Module, method: str) -> nn.Module:
    """The network itself, with the norms that the method needs."""
    if method == "note":
        make_instance_aware(network)
    return network


def one_network(method: str, images: Tensor) -> Tensor:
    """As many of the images as one adapted network can stand for."""
    return images[:1] if method in PER_IMAGE else images


@pytest.fixture(scope="session")
def golden() -> dict[str, Tensor]:
    np = pytest.importorskip("numpy")
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
def net(request) -> nn.Module:
    """A small float32 network that looks trained, and suits the method that a test is about."""
    torch.manual_seed(0)
    about = getattr(request.node, "callspec", None)
    return suited(stir(GoldenNet()), about.params.get("method", "") if about else "")


@pytest.fixture
def images() -> Tensor:
    return batch(8, 3, 12, 12)


def pytest_addoption(parser):
    parser.addoption("--root", help=f"folder with real data, instead of the variable {DATA_VARIABLE}")


def pytest_collection_modifyitems(config, items):
    if "long" not in config.option.markexpr:  # hours of tests run only if they are asked for
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in set(long)]


@pytest.fixture(scope="session")
def data_root(request) -> Path:
    """Real images and weights of this machine; the tests that need them are skipped where there are none."""
    root = request.config.getoption("--root") or os.environ.get(DATA_VARIABLE)
    if not root or not Path(root).is_dir():
        pytest.skip(f"needs real data: pass --root or set {DATA_VARIABLE} to a folder with cifar10-jpeg and imagenet")
    return Path(root)
