"""How many images `calibrate` needs, and what it loses on another domain: the tables of docs/auto.md, as Markdown.

python tools/calibration_curve.py            # with CIFAR-10 below $DOMAINADAPTOR_DATA; some minutes
"""

import warnings

import torch
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor.lab.data.domains import Domain
from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.networks.loading import load_network

DOMAINS = ("clean", "gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
COUNTS = (16, 32, 64, 128, 256, 512, 1024, 2048)
TESTED = 1000  # images of each domain; those to calibrate on come after them


def main() -> None:
    """Print both tables."""
    warnings.simplefilter("ignore", da.AdaptationWarning)
    loaded = load_network("resnet20", "pretrained")
    network, transform = loaded.network.eval(), loaded.preprocessing.transform()
    data = open_dataset("cifar10-c", severity=5)
    order = torch.randperm(len(data.domains["clean"].examples), generator=torch.Generator().manual_seed(0)).tolist()

    def images(domain: Domain, start: int, stop: int) -> tuple[Tensor, Tensor]:
        chosen = [domain.examples[at] for at in order[start:stop]]
        pixels = torch.stack([transform(domain.read(example.name)) for example in chosen])
        return pixels, torch.tensor([example.label for example in chosen])

    tests = {name: images(data.domains[name], 0, TESTED) for name in DOMAINS}
    extra = {name: images(data.domains[name], TESTED, TESTED + COUNTS[-1])[0] for name in DOMAINS}
    rows: dict[str, list[float]] = {"source model": [accuracy(network, *tests[name]) for name in DOMAINS]}
    for effort in ("one", "some"):
        adaptor = da.adapt(network, "auto", effort=effort)
        rows[f"auto, effort={effort}, batches of 64"] = [accuracy(adaptor, *tests[name]) for name in DOMAINS]
    for count in COUNTS:
        plain = {name: da.calibrate(network, extra[name][:count]) for name in DOMAINS}
        rows[f"calibrate, {count} images"] = [accuracy(plain[name], *tests[name]) for name in DOMAINS]
    table("", rows)
    calibrated = {name: da.calibrate(network, extra[name][:256]) for name in DOMAINS}
    table(
        "calibrated on", {on: [accuracy(plain, *tests[name]) for name in DOMAINS] for on, plain in calibrated.items()}
    )


@torch.no_grad()
def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the accuracy in percent, in batches of 64."""
    right = sum(
        int((network(some).argmax(1) == own).sum())
        for some, own in zip(images.split(64), labels.split(64), strict=True)
    )
    return 100 * right / len(labels)


def table(corner: str, rows: dict[str, list[float]]) -> None:
    """Print rows of accuracies and their means as Markdown."""
    print("|", " | ".join([corner, *(name.replace("_", " ") for name in DOMAINS), "mean"]), "|")
    print("|---" * (len(DOMAINS) + 2) + "|")
    for name, values in rows.items():
        numbers = [f"{value:.1f}" for value in (*values, sum(values) / len(values))]
        print("|", " | ".join([name.replace("_", " "), *numbers]), "|")
    print()


if __name__ == "__main__":
    main()
