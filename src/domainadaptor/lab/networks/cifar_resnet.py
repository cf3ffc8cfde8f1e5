"""ResNets for CIFAR, 8 to 110 layers, with parameter-free shortcuts. He et al., CVPR 2016."""

import torch.nn.functional as F
from torch import Tensor, nn

DEPTHS = (8, 20, 32, 44, 56, 110)
_WIDTHS = (16, 32, 64)


class CifarBlock(nn.Module):
    """Two convolutions; the shortcut subsamples pixels and pads channels with zeros."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride = stride
        self.pad = (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        """Return the map, (N, outputs, H / stride, W / stride)."""
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        if self.stride > 1 or self.pad:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(h + x)


class CifarResNet(nn.Module):
    """Three stages of 16, 32 and 64 channels, with the tensor names of public checkpoints."""

    def __init__(self, depth: int, classes: int = 10) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, _WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(_WIDTHS[0])
        self.layer1 = _stage(_WIDTHS[0], _WIDTHS[0], 1, blocks)
        self.layer2 = _stage(_WIDTHS[0], _WIDTHS[1], 2, blocks)
        self.layer3 = _stage(_WIDTHS[1], _WIDTHS[2], 2, blocks)
        self.linear = nn.Linear(_WIDTHS[2], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (N, classes)."""
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.layer3(self.layer2(self.layer1(h)))
        return self.linear(h.mean((2, 3)))  # type: ignore[no-any-return]


def _stage(inputs: int, outputs: int, stride: int, blocks: int) -> nn.Sequential:
    return nn.Sequential(
        CifarBlock(inputs, outputs, stride), *(CifarBlock(outputs, outputs, 1) for _ in range(blocks - 1))
    )
