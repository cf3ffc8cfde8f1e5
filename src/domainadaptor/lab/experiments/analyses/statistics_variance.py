"""How much batch statistics varied over the steps of training."""

import numpy as np

from domainadaptor.errors import BadFile
from domainadaptor.lab.experiments.analyses import MeasurementInputs, without_images
from domainadaptor.lab.records.measurements import StatisticsVariance
from domainadaptor.lab.records.training import RECORD_FILE, read_training

__all__ = ["statistics_variance"]


@without_images
def statistics_variance(inputs: MeasurementInputs) -> StatisticsVariance:
    """Return the variance of each layer's batch means and standard deviations over training steps."""
    if inputs.checkpoint is None:
        raise BadFile("The variance of statistics needs the training record of a checkpoint")
    try:
        layers = read_training(inputs.checkpoint.parent / RECORD_FILE).statistics_variance
    except ValueError as error:
        raise BadFile(f"The variance of statistics needs the checkpoint's training record: {error}") from error
    if not all("std" in layer for layer in layers.values()):
        raise BadFile("This training run logged variances instead of standard deviations; train the network again")
    values = {name: (layer["mean"] + layer["std"]) / 2 for name, layer in layers.items()}
    return StatisticsVariance(variance=float(np.mean(list(values.values()))), layers=values)
