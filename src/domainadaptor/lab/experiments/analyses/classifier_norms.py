"""The norms of the classes' weights in the head."""

import numpy as np
from torch import Tensor

from domainadaptor.lab.experiments.analyses import MeasurementInputs, without_images
from domainadaptor.lab.networks.heads import find_head
from domainadaptor.lab.records.measurements import ClassifierNorms, ClassNorm

__all__ = ["classifier_norms"]


@without_images
def classifier_norms(inputs: MeasurementInputs) -> ClassifierNorms:
    """Return the norm of each class's weights, and how many training images the class had."""
    network, dataset = inputs.opened.network, inputs.dataset
    weight = network.get_submodule(find_head(network, len(dataset.classes))).weight
    assert isinstance(weight, Tensor)
    norms = weight.detach().flatten(1).double().norm(dim=1).tolist()
    counts = [0] * len(dataset.classes)
    for source in inputs.opened.sources:
        for example in dataset.domain(source).select("train"):
            counts[example.label] += 1
    varied = len(set(counts)) > 1 and len(set(norms)) > 1
    return ClassifierNorms(
        classes=tuple(
            ClassNorm(name=name, images=count, norm=norm)
            for name, count, norm in zip(dataset.classes, counts, norms, strict=True)
        ),
        correlation=float(np.corrcoef(counts, norms)[0, 1]) if varied else None,
    )
