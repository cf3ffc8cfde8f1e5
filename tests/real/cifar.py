"""A trained CIFAR-10 network and real images for it, from the data folder."""

from pathlib import Path

import torch
from torch import Tensor, nn

from domainadaptor.lab.data.images import list_files, read_image
from domainadaptor.lab.networks.loading import load_network


def load(root: Path, images: int) -> tuple[nn.Module, Tensor, Tensor]:
    """The network, a fixed random choice of test images, and their labels."""
    opened = load_network("resnet20", "pretrained", root=root)
    folder = root / "cifar10-jpeg" / "test"
    files = list_files(folder)
    chosen = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))[:images].tolist()
    transform = opened.preprocessing.transform()
    pixels = torch.stack([transform(read_image(files[at], folder)) for at in chosen])
    labels = torch.tensor([opened.classes.index(files[at].parent.name) for at in chosen])
    return opened.network, pixels, labels
