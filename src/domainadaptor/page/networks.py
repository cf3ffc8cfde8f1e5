"""The networks of the page: the built-in one, that of the command line, and others by file or name."""

from collections.abc import Callable
from dataclasses import replace
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
    load_checkpoint,
    make_network,
    save_checkpoint,
)
from domainadaptor.lab.networks.loading import LoadedNetwork, load_network
from domainadaptor.lab.networks.weights import is_weights_file
from domainadaptor.lab.networks.zoo import find_network

DEMO = "demo"  # the built-in network
GIVEN = "given"  # the network of the command line
HELD_OUT = "pen"  # the style that the built-in network was not trained on
_LR = 1e-2
_NEARBY = 50  # files that are looked at
CARD = CheckpointCard(
    "cifar:resnet8",
    CLASSES,
    squashed(SIDE, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    dataset="digits",
    sources=tuple(style for style in STYLES if style != HELD_OUT),
)

Progress = Callable[[str, int, int], None]  # what is being done, how much of it, out of how much


class Networks:
    """Finds networks by what the browser calls them, and keeps the last one."""

    def __init__(self, given: LoadedNetwork | None, file: str = "", root: Path | None = None) -> None:
        self._given, self._file, self._root = given, file, root
        self._last: tuple[str, LoadedNetwork] | None = None

    @property
    def given(self) -> str | None:
        """What the network of the command line is called."""
        return None if self._given is None else Path(self._file).name

    @staticmethod
    def nearby() -> list[str]:
        """Return the checkpoints in the current folder and in those directly below it."""
        found = sorted(path for pattern in ("*", "*/*") for path in Path().glob(f"{pattern}.safetensors"))
        return [str(path) for path in found[:_NEARBY] if is_checkpoint(path)]

    def find(self, name: str, progress: Progress) -> LoadedNetwork:
        """Return a network; the built-in one is trained when it is asked for the first time."""
        if name == GIVEN and self._given is not None:
            return self._given
        if self._last is None or self._last[0] != name:
            file = str(demo_checkpoint(progress)) if name == DEMO else name
            progress("Loading the network", 0, 0)
            loaded = load_network(file, None if is_weights_file(file) else "pretrained", root=self._root)
            self._last = name, loaded
        return self._last[1]

    def describe(self, name: str, progress: Progress) -> tuple[Preprocessing, tuple[str, ...]]:
        """Return the preprocessing and the classes of a network; the built-in one is not trained for that."""
        if name == DEMO:
            return CARD.preprocessing, CARD.classes
        loaded = self.find(name, progress)
        return loaded.preprocessing, loaded.classes

    def card(self, name: str, loaded: LoadedNetwork) -> CheckpointCard:
        """Return the card of a checkpoint with this network's tensors."""
        file = str(demo_path()) if name == DEMO else self._file if name == GIVEN else name
        if is_weights_file(file):
            return replace(load_checkpoint(file).card, heads=(), preprocessing=loaded.preprocessing)
        tensors = loaded.network.state_dict()
        bias = any(head in tensors and head.endswith("bias") for head in find_network(loaded.name).head_tensors())
        return CheckpointCard(loaded.name, loaded.classes, loaded.preprocessing, head_bias=bias)


def demo_path() -> Path:
    """Return where the checkpoint of the built-in network is, or will be."""
    return cache_folder() / "page" / "digits-1.safetensors"


def demo_checkpoint(progress: Progress) -> Path:
    """Return the checkpoint of the built-in network, which is trained if there is none."""
    path = demo_path()
    if not path.is_file():
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
