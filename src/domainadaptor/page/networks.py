"""The networks of the page: the built-in one, and others by file or name."""

from collections.abc import Callable
from pathlib import Path

import torch

from domainadaptor.lab.data.image_cache import cache_folder
from domainadaptor.lab.data.preprocessing import Preprocessing, squashed
from domainadaptor.lab.data.sets.digits import CLASSES, SIDE, STYLES, load_digits, render
from domainadaptor.lab.demo.network import one_thread, steps, train
from domainadaptor.lab.files import make_folder
from domainadaptor.lab.networks.checkpoint import (
    Checkpoint,
    CheckpointCard,
    is_checkpoint,
    make_network,
    save_checkpoint,
)
from domainadaptor.lab.networks.loading import LoadedNetwork, load_network
from domainadaptor.lab.networks.weights import includes_weights

DEMO = "demo"  # the name of the built-in network
HELD_OUT = "pen"  # the style that it was not trained on
CARD = CheckpointCard(
    "cifar:resnet8",
    CLASSES,
    squashed(SIDE, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    dataset="digits",
    sources=tuple(style for style in STYLES if style != HELD_OUT),
)
_LR = 1e-2
_NEARBY = 50  # files that are looked at

Progress = Callable[[str, int, int], None]  # what is being done, how much of it, out of how much


class NetworkFinder:
    """Finds networks, and keeps the last one."""

    def __init__(self, given: str | None = None, root: Path | None = None) -> None:
        self.given, self._root = given, root
        self._last: tuple[str, LoadedNetwork] | None = None

    def find(self, name: str, progress: Progress = lambda *_: None) -> LoadedNetwork:
        """Return a network; the built-in one is trained when it is asked for the first time."""
        if self._last is None or self._last[0] != name:
            file = str(demo_checkpoint(progress)) if name == DEMO else name
            progress("Loading the network", 0, 0)
            weights = None if includes_weights(file) else "pretrained"
            self._last = name, load_network(file, weights, root=self._root)
        return self._last[1]

    def describe(self, name: str, progress: Progress) -> tuple[Preprocessing, tuple[str, ...]]:
        """Return the preprocessing and the classes of a network; the built-in one is not trained for that."""
        found = CARD if name == DEMO else self.find(name, progress)
        return found.preprocessing, found.classes

    @staticmethod
    def nearby() -> list[str]:
        """Return the checkpoints in the current folder and in those directly below it."""
        found = sorted(path for pattern in ("*", "*/*") for path in Path().glob(f"{pattern}.safetensors"))
        return [str(path) for path in found[:_NEARBY] if is_checkpoint(path)]


def demo_path() -> Path:
    """Return where the checkpoint of the built-in network is, or will be."""
    return cache_folder() / "page" / "digits-1.safetensors"


def demo_checkpoint(progress: Progress) -> Path:
    """Return the checkpoint of the built-in network, which is trained if there is none."""
    path = demo_path()
    if path.is_file():
        return path
    training, _ = load_digits()
    images = torch.cat([(render(training.ink, style) - 0.5) / 0.5 for style in CARD.sources])
    done, total = 0, steps(len(images))

    def tick() -> None:
        nonlocal done
        done += 1
        progress("Training the demo network, once", done, total)

    network = make_network(CARD.network, len(CLASSES), head_bias=True, norm="batch")
    with one_thread():
        train(network, images, training.labels.repeat(len(CARD.sources)), 0, tick, lr=_LR)
    make_folder(path.parent)
    save_checkpoint(path, Checkpoint(CARD, network.state_dict()))
    return path
