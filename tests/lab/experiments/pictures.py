"""A folder of domains and a network for it, as small as they can be."""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.networks.checkpoint import Checkpoint, CheckpointCard, make_network, save_checkpoint
from tests.conftest import stir

CLASSES = ("cat", "dog", "owl")
DOMAINS = ("day", "dusk", "night")


def make_pictures(root: Path, each: int = 8) -> Path:
    """root/<domain>/<class>/*.png: a class has its own stripes, a domain its own brightness."""
    rng = np.random.default_rng(0)
    for tint, domain in enumerate(DOMAINS):
        for at, kind in enumerate(CLASSES):
            folder = root / domain / kind
            folder.mkdir(parents=True)
            for number in range(each):
                pixels = rng.integers(0, 90, (12, 12, 3))
                pixels[:: at + 1] += 60 + 30 * tint
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return root


def make_checkpoint(
    path: Path, sources: tuple[str, ...] = ("day", "dusk"), dataset: str = "pictures", recipe: dict | None = None
) -> Path:
    """A network with random weights and norms as after training."""
    torch.manual_seed(0)
    network = stir(make_network("resnet20", 3, head_bias=True, norm="batch"))
    card = CheckpointCard(
        "cifar:resnet20",
        CLASSES,
        squashed(12),
        dataset=dataset,
        sources=sources,
        recipe=json.loads(json.dumps(recipe or {})),
    )
    save_checkpoint(path, Checkpoint(card, network.state_dict()))
    return path
