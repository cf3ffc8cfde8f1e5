"""Draw the pictures of docs/concepts from handwritten digits, which come with scikit-learn: `make pictures`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor.adaptation import losses
from domainadaptor.lab.data.sets.digits import CLASSES, STYLES, load_digits, render
from domainadaptor.lab.demo.network import make_small_resnet, one_thread, train

NEW = "neon"  # the style that is left out
FAMILIAR = "pen"
COLORS = {"source": "#64748b", "adabn": "#0f766e", "adamixbn": "#c2410c", "auto": "#7c3aed", "tent": "#b91c1c"}


def trained_without(style: str) -> nn.Module:
    """Return a network that was trained on the other three styles."""
    training, _ = load_digits()
    images = torch.cat([render(training.ink, other) for other in STYLES if other != style])
    labels = training.labels.repeat(len(STYLES) - 1)
    return train(make_small_resnet(len(CLASSES), seed=0), (images - 0.5) / 0.25, labels, 0, lambda: None)


def test_digits(style: str) -> tuple[Tensor, Tensor]:
    """Return 600 digits that no network was trained with."""
    _, testing = load_digits()
    return (render(testing.ink, style) - 0.5) / 0.25, testing.labels


def accuracy(network: nn.Module, images: Tensor, labels: Tensor, size: int = 64) -> float:
    """Return the accuracy in percent, in batches of a size."""
    with torch.no_grad():
        logits = da.predict(network, images.split(size))
    return 100 * (logits.argmax(1) == labels).float().mean().item()


@contextmanager
def picture(folder: Path, name: str, columns: int = 1, height: float = 3.4) -> Iterator[list[Axes]]:
    """Give axes side by side and save them."""
    figure, axes = plt.subplots(1, columns, figsize=(7.2, height), layout="constrained", squeeze=False)
    for each in axes[0]:
        each.spines[["top", "right"]].set_visible(False)
    yield list(axes[0])
    figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)


def styles(folder: Path, networks: dict[str, nn.Module]) -> None:
    """Show eight digits in each style, and how well a network reads them that never saw the style."""
    with picture(folder, "styles", height=2.3) as (axes,):
        rows = [torch.cat(list(test_digits(style)[0][:12] * 0.25 + 0.5), dim=2) for style in STYLES]
        axes.imshow(torch.cat(rows, dim=1).permute(1, 2, 0).numpy())
        axes.set_xticks([])
        texts = []
        for style, network in networks.items():
            known = [accuracy(network, *test_digits(other)) for other in STYLES if other != style]
            new = accuracy(network, *test_digits(style))
            texts.append(f"{style}: {new:.0f} % if new\n({sum(known) / len(known):.0f} % on the others)")
        axes.set_yticks([10 + 20 * at for at in range(len(texts))], texts, fontsize=9)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)


def statistics(folder: Path, network: nn.Module) -> None:
    """Compare the means that a norm layer measures on a batch with the source statistics."""
    layer = network.get_submodule("block3.bn1")
    known = torch.cat([test_digits(style)[0][:64] for style in STYLES if style != NEW])
    with picture(folder, "statistics", columns=2) as columns:
        batches = {"the styles of the training": known, f"a new style, {NEW}": test_digits(NEW)[0][:192]}
        for axes, (name, images) in zip(columns, batches.items(), strict=True):
            axes.plot(
                layer.running_mean,
                input_mean(network, layer, images),
                "o",
                color=COLORS["source" if images is known else "adamixbn"],
            )
            axes.axline((0, 0), slope=1, color="#cbd5e1", zorder=0)
            axes.set_title(name, fontsize=10)
            axes.set_xlabel("mean of the source")
        columns[0].set_ylabel("mean of a batch")
        columns[1].sharey(columns[0])


def input_mean(network: nn.Module, layer: nn.Module, images: Tensor) -> Tensor:
    """Return the mean of each channel of what a layer is given."""
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].mean((0, 2, 3))))
    with torch.no_grad():
        network(images)
    hook.remove()
    return seen[0]


def batch_sizes(folder: Path, network: nn.Module) -> None:
    """Draw the accuracy on the new style by batch size."""
    images, labels = test_digits(NEW)
    sizes = [1, 2, 4, 8, 16, 32, 64, 200]
    with picture(folder, "batch-sizes") as (axes,):
        for name in ("source", "adabn", "adamixbn", "auto"):
            found = [accuracy(da.adapt(network, name), images, labels, size) for size in sizes]
            axes.plot(range(len(sizes)), found, "o-", color=COLORS[name], label=name, markersize=4)
        axes.set_xticks(range(len(sizes)), map(str, sizes))
        axes.set_xlabel("images per batch")
        axes.set_ylabel(f"accuracy on {NEW}, %")
        axes.legend(frameon=False)


def alpha(folder: Path, network: nn.Module) -> None:
    """Draw the weight of the source statistics by layer."""
    with picture(folder, "alpha") as (axes,):
        for style, color in ((FAMILIAR, COLORS["source"]), (NEW, COLORS["adamixbn"])):
            found = da.adapt(network, "adamixbn").adapt(test_digits(style)[0][:64]).alpha
            axes.plot(range(len(found)), list(found.values()), "o-", color=color, label=style)
        axes.set_xticks(range(len(found)), list(found), fontsize=7)
        axes.set_ylim(0, 1)
        axes.set_ylabel("weight of the source")
        axes.set_xlabel("norm layer, from the first to the last")
        axes.legend(frameon=False)


def gradients(folder: Path) -> None:
    """Draw the gradients of entropy and GEM-T by the confidence of a prediction over ten classes."""
    confidence = torch.linspace(0.11, 0.999, 400)
    logit = (confidence * 9 / (1 - confidence)).log()
    logits = torch.cat([logit[:, None], torch.zeros(len(logit), 9)], 1).requires_grad_()
    heat = losses.temperature(logits, "per_image", 2.0)
    forms = {"entropy": losses.entropy(logits), "generalized entropy (GEM-T)": losses.gem_t(logits, heat)}
    with picture(folder, "gradients", height=2.8) as (axes,):
        for (name, values), color in zip(forms.items(), ("tent", "adamixbn"), strict=True):
            (gradient,) = torch.autograd.grad(values.sum(), logits, retain_graph=True)
            axes.plot(confidence, gradient.norm(dim=1), color=COLORS[color], label=name)
        axes.set_ylabel("length of the gradient")
        axes.set_xlabel("confidence of the prediction")
        axes.legend(frameon=False)


def collapse(folder: Path, network: nn.Module) -> None:
    """Draw accuracy along a stream of shuffled digits, three times around, with steps that are too long."""
    images, labels = test_digits(NEW)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    parts = order.split(20) * 3
    options = {"lr": 0.1, "optimizer": "sgd", "momentum": 0.9}
    adaptors = {
        "source": da.adapt(network, "source"),
        "tent": da.adapt(network, "tent", **options),
        "tent, guard=True": da.adapt(network, "tent", guard=True, **options),
    }
    with picture(folder, "collapse") as (axes,):
        for (name, adaptor), line in zip(adaptors.items(), ("--", "-", "-"), strict=True):
            color = COLORS["auto" if "guard" in name else name]
            right = [(adaptor(images[part]).argmax(1) == labels[part]).float().mean().item() for part in parts]
            smooth = 100 * torch.tensor(right).unfold(0, 9, 1).mean(1)
            axes.plot(range(4, 4 + len(smooth)), smooth, line, color=color, label=name)
        axes.set_xlabel("batch of 20")
        axes.set_ylabel(f"accuracy on {NEW}, %")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)


def main(folder: Path) -> None:
    """Draw all pictures."""
    with one_thread():
        networks = {style: trained_without(style) for style in STYLES}
        network = networks[NEW]
        styles(folder, networks)
        statistics(folder, network)
        batch_sizes(folder, network)
        alpha(folder, network)
        gradients(folder)
        collapse(folder, network)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
