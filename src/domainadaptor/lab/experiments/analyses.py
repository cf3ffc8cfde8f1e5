"""What the paper measures besides accuracy: distances and variance of statistics, classifier norms, losses."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from domainadaptor.adaptation import losses
from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.evaluation.evaluate import SegmentLoader
from domainadaptor.lab.evaluation.protocols import Segment
from domainadaptor.lab.networks.heads import find_head
from domainadaptor.lab.networks.loading import LoadedNetwork
from domainadaptor.lab.networks.statistics import norm_layers

_BINS = 20  # of confidence


@dataclass(frozen=True)
class Setting:
    """What can be measured on: a network and test images, in the order of a protocol."""

    opened: LoadedNetwork
    dataset: DomainDataset
    test: SegmentLoader
    segments: Sequence[Segment]
    checkpoint: Path | None

    def batches(self) -> list[Tensor]:
        """The images."""
        return [pixels for _, items, pixels in self.test.batches(self.segments) if items]


@torch.no_grad()
def statistics_distances(setting: Setting) -> dict[str, Any]:
    """How far images, batch and source statistics are apart: ||mean - mean|| + ||deviation - deviation||, per layer.

    The distances are taken at the input of every batch norm of the untouched network, over all channels, with unbiased
    deviations; the extremes are over the images of a batch. All are averaged over layers, then over batches.
    """
    found: dict[str, list[float]] = {"image-to-batch minimum": [], "image-to-batch maximum": [], "source-to-batch": []}

    def look(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        values = inputs[0].flatten(2).double()
        if values.shape[2] < 2:  # one value a channel has no deviation
            return
        images = values.mean(2), values.std(2)
        whole = values.transpose(0, 1).flatten(1)
        batch = whole.mean(1), whole.std(1)
        assert isinstance(layer.running_mean, Tensor)
        assert isinstance(layer.running_var, Tensor)
        source = layer.running_mean.double(), layer.running_var.double().sqrt()
        apart = (images[0] - batch[0]).norm(dim=1) + (images[1] - batch[1]).norm(dim=1)
        found["image-to-batch minimum"].append(float(apart.min()))
        found["image-to-batch maximum"].append(float(apart.max()))
        found["source-to-batch"].append(float((source[0] - batch[0]).norm() + (source[1] - batch[1]).norm()))

    hooks = [layer.register_forward_pre_hook(look) for layer in norm_layers(setting.opened.network).values()]
    try:
        for images in setting.batches():
            setting.opened.network(images.to(setting.test.device))
    finally:
        for hook in hooks:
            hook.remove()
    return {name: float(np.mean(values)) for name, values in found.items()}


def statistics_variance(setting: Setting) -> dict[str, Any]:
    """How much each layer's batch means and deviations varied over training steps, from the record of the run.

    Raises:
        BadFile: There is no such record, or one of before deviations were logged.
    """
    known = {} if setting.checkpoint is None else training_record(setting.checkpoint.parent / "record.json")
    if "statistics_variance" not in known:
        raise BadFile("the variance of statistics is in the record of a training run, which lies beside a checkpoint")
    layers: Mapping[str, Mapping[str, float]] = known["statistics_variance"]
    if not all("std" in layer for layer in layers.values()):
        raise BadFile(
            "this network's training logged variances instead of deviations, as earlier versions did; train anew"
        )
    values = [(layer["mean"] + layer["std"]) / 2 for layer in layers.values()]
    return {"variance": float(np.mean(values)), "layers": dict(zip(layers, values, strict=True))}


def training_record(path: Path) -> Mapping[str, Any]:
    """The record beside a checkpoint; empty where there is none, or another file of that name."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def classifier_norms(setting: Setting) -> dict[str, Any]:
    """The length of each class's weights in the head, and how many training images the class had."""
    network, dataset = setting.opened.network, setting.dataset
    weight = network.get_submodule(find_head(network, len(dataset.classes))).weight
    assert isinstance(weight, Tensor)
    norms = weight.detach().flatten(1).double().norm(dim=1).tolist()
    counts = [0] * len(dataset.classes)
    for source in setting.opened.sources:
        for example in dataset.domain(source).select("train"):
            counts[example.label] += 1
    classes = [
        {"name": name, "images": count, "norm": norm}
        for name, count, norm in zip(dataset.classes, counts, norms, strict=True)
    ]
    varied = len(set(counts)) > 1 and len(set(norms)) > 1
    return {"classes": classes, "correlation": float(np.corrcoef(counts, norms)[0, 1]) if varied else None}


def loss_curves(setting: Setting, *, scale: float = 2.0) -> dict[str, Any]:
    """Losses, and the lengths of their gradients, of real logits by confidence; and what temperature does to them."""
    with torch.no_grad():
        logits = torch.cat(
            [setting.opened.network(x.to(setting.test.device)).double().cpu() for x in setting.batches()]
        )
    confidence = logits.softmax(1).amax(1)
    heat = losses.temperature(logits, "batch_mean", scale)
    per_image: dict[str, Callable[[Tensor], Tensor]] = {
        "EM": losses.entropy,
        "SLR": losses.slr,
        "GEM-T": lambda z: losses.gem_t(z, heat),
        "GEM-SKD": lambda z: losses.gem_skd(z, heat),
    }
    low = 1 / logits.shape[1]
    bins = ((confidence - low) / (1 - low) * _BINS).long().clamp(0, _BINS - 1)
    there = bins.unique()
    curves = []
    for label, loss in per_image.items():
        given = logits.clone().requires_grad_()
        values = loss(given)
        (gradient,) = torch.autograd.grad(values.sum(), given)
        curves.append(
            {
                "label": label,
                "confidence": [float(confidence[bins == at].mean()) for at in there],
                "loss": [float(values.detach()[bins == at].mean()) for at in there],
                "gradient": [float(gradient[bins == at].norm(dim=1).mean()) for at in there],
            }
        )
    ranked = logits[confidence > 0.9].sort(1, descending=True).values
    tau = float(heat.tau[0])
    return {
        "curves": curves,
        "temperature": {
            "tau": tau,
            "images": len(ranked),
            "plain": ranked.softmax(1).mean(0).tolist() if len(ranked) else [],
            "scaled": (ranked / tau).softmax(1).mean(0).tolist() if len(ranked) else [],
        },
    }


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    "statistics-distances": statistics_distances,
    "statistics-variance": statistics_variance,
    "classifier-norms": classifier_norms,
    "loss-curves": loss_curves,
}
WITHOUT_IMAGES = ("statistics-variance", "classifier-norms")  # read off the network and its training alone
