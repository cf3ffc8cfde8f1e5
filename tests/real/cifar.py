"""A trained CIFAR-10 network and real images for it, from the data folder."""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn
from torchvision import transforms

from domainadaptor.data.images import list_files, read_image

CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()
_NORMALIZE = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Block(nn.Module):
    """Two convolutions; the shortcut has no parameters: it skips pixels and pads channels."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.pad = stride, (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        h = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(h + F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.pad, self.pad)))


class ResNet20(nn.Module):
    """He et al., 2016, for CIFAR."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        widths = [(16, 16), (16, 32), (32, 64)]
        for number, (inputs, outputs) in enumerate(widths, start=1):
            first = Block(inputs, outputs, 1 if number == 1 else 2)
            setattr(self, f"layer{number}", nn.Sequential(first, *(Block(outputs, outputs, 1) for _ in range(2))))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.linear(h.mean((2, 3)))


def load(root: Path, images: int) -> tuple[nn.Module, Tensor, Tensor]:
    """The network, a fixed random choice of test images, and their labels."""
    network = ResNet20()
    network.load_state_dict(load_file(root / "cifar10-jpeg" / "resnet20.safetensors"), strict=False)
    folder = root / "cifar10-jpeg" / "test"
    files = list_files(folder)
    chosen = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))[:images].tolist()
    to_tensor = transforms.Compose([transforms.ToTensor(), _NORMALIZE])
    pixels = torch.stack([to_tensor(read_image(files[at], folder)) for at in chosen])
    labels = torch.tensor([CLASSES.index(files[at].parent.name) for at in chosen])
    return network.eval(), pixels, labels
