"""Adapt a torchvision network to a folder of images, batch by batch.

python examples/torchvision_resnet.py
"""

import tempfile
from pathlib import Path

import torch
from PIL import Image
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18

import domainadaptor as da

TRANSFORM = transforms.Compose(
    [
        transforms.Resize(72),
        transforms.CenterCrop(64),
        transforms.ToTensor(),
        transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ]
)


def main(folder: Path) -> None:
    """Predict the images of a folder with a folder per class, without and with adaptation."""
    network = resnet18(num_classes=2).eval()  # load your weights here
    images = ImageFolder(str(folder), TRANSFORM)
    # Shuffled: a folder is sorted by class, and a batch of one class misleads adaptation.
    loader = torch.utils.data.DataLoader(images, batch_size=16, shuffle=True)
    adaptor = da.adapt(network)
    for pixels, _ in loader:
        result = adaptor.adapt(pixels)
        before = adaptor.source_logits(pixels).argmax(1)
        changed = int((result.logits.argmax(1) != before).sum())
        print(f"{len(pixels)} images, {changed} answers changed", result.note or "")
    for row in da.evaluate(network, images, ["source", "auto", "adamixbn"], batch_size=16, progress=False):
        print(f"{row['method']:9} {row['accuracy']:.1f} %")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:  # random pictures, in place of yours
        for name in ("cat", "dog"):
            (Path(made) / name).mkdir()
            for at in range(24):
                pixels = torch.randint(0, 255, (80, 96, 3), dtype=torch.uint8).numpy()
                Image.fromarray(pixels).save(Path(made) / name / f"{at}.png")
        main(Path(made))
