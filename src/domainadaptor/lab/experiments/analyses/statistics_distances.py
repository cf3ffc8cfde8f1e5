"""Distances between the statistics of single images, of batches and of the source model."""

import numpy as np
import torch
from torch import Tensor, nn

from domainadaptor.lab.experiments.analyses import MeasurementInputs
from domainadaptor.lab.networks.statistics import norm_layers
from domainadaptor.lab.records.measurements import StatisticsDistances

__all__ = ["statistics_distances"]


@torch.no_grad()
def statistics_distances(inputs: MeasurementInputs) -> StatisticsDistances:
    """Return ||mean - mean|| + ||std - std|| at the input of every batch norm of the source model.

    Norms are over channels, standard deviations are unbiased, and the extremes are over the images of a batch. All
    distances are averaged over layers and batches.
    """
    nearest, farthest, to_source = [], [], []

    def compare(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        values = given[0].flatten(2).double()
        if values.shape[2] < 2:  # one value per channel has no deviation
            return
        whole = values.transpose(0, 1).flatten(1)
        batch = whole.mean(1), whole.std(1)
        assert isinstance(layer.running_mean, Tensor)
        assert isinstance(layer.running_var, Tensor)
        source = layer.running_mean.double(), layer.running_var.double().sqrt()
        apart = (values.mean(2) - batch[0]).norm(dim=1) + (values.std(2) - batch[1]).norm(dim=1)
        nearest.append(float(apart.min()))
        farthest.append(float(apart.max()))
        to_source.append(float((source[0] - batch[0]).norm() + (source[1] - batch[1]).norm()))

    hooks = [layer.register_forward_pre_hook(compare) for layer in norm_layers(inputs.opened.network).values()]
    try:
        for images in inputs.batches():
            inputs.opened.network(images.to(inputs.test.device))
    finally:
        for hook in hooks:
            hook.remove()
    found = {"image-to-batch minimum": nearest, "image-to-batch maximum": farthest, "source-to-batch": to_source}
    return StatisticsDistances.model_validate({name: float(np.mean(values)) for name, values in found.items()})
