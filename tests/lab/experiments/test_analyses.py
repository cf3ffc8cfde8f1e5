"""Measurements against slow loops and closed forms."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from domainadaptor.errors import BadFile
from domainadaptor.lab.experiments.analyses import statistics_variance
from domainadaptor.lab.experiments.store import Store
from domainadaptor.lab.experiments.sweep import run_all
from tests.lab.experiments.small import SILENT, TEXT, grid_of


@pytest.mark.parametrize("measure", ["statistics-distances", "classifier-norms", "loss-curves"])
def test_measurements(base, measure):
    rows = f'rows = ["what"]\nmeasure = "{measure}"\nshow = "{measure}"\n'
    grid = grid_of(base, TEXT.replace("[[table]]", '[rows."what"]\nmethod = "source"\n[[table]]') + rows)
    store = Store(base / "results")
    assert run_all(grid, store, SILENT) == {}
    place = next(place for place in grid.places if place.column == "night")
    values = store.read(place.id)["values"]
    opened = grid.workshop.open(place.cell.network)
    test, segments = grid.workshop.stream(place.cell, opened)
    if measure == "statistics-distances":
        assert values == pytest.approx(literal_distances(opened.network, test, segments), rel=1e-4)
    elif measure == "classifier-norms":
        weight = opened.network.state_dict()["linear.weight"].double()
        assert [c["norm"] for c in values["classes"]] == pytest.approx([float(row.norm()) for row in weight])
        dataset = grid.workshop.dataset("folders")
        counts = [
            sum(e.label == at for d in ("day", "dusk") for e in dataset.domain(d).select("train")) for at in (0, 1, 2)
        ]
        assert [c["images"] for c in values["classes"]] == counts
    else:
        em = next(curve for curve in values["curves"] if curve["label"] == "EM")
        logits = torch.cat([opened.network(pixels) for _, _, pixels in test.batches(segments)]).detach().double()
        p = logits.softmax(1).numpy()
        losses = -(p * np.log(p)).sum(1)
        assert min(em["loss"]) >= losses.min() - 1e-9
        assert max(em["loss"]) <= losses.max() + 1e-9


def trained(folder, layers):
    (folder / "record.json").write_text(json.dumps({"statistics_variance": layers}))
    return SimpleNamespace(checkpoint=folder / "checkpoint.safetensors")


def test_the_variance_of_statistics_is_the_mean_over_means_deviations_and_layers(tmp_path):
    layers = {"a": {"mean": 1.0, "std": 2.0}, "b": {"mean": 0.5, "std": 0.25}}
    values = statistics_variance(trained(tmp_path, layers))
    assert values == {"variance": pytest.approx(0.9375), "layers": {"a": 1.5, "b": 0.375}}


def test_records_of_variances_instead_of_deviations_are_refused(tmp_path):
    with pytest.raises(BadFile, match="deviations.*train anew"):
        statistics_variance(trained(tmp_path, {"a": {"mean": 1.0, "var": 4.0}}))


def literal_distances(network, test, segments):
    """Loops over layers, images and channels."""
    layers = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    sums = {"image-to-batch minimum": [], "image-to-batch maximum": [], "source-to-batch": []}
    for _, _, pixels in test.batches(segments):
        inputs = {}

        def keep(layer, given, _, inputs=inputs):
            inputs[layer] = given[0].detach().double().numpy()

        hooks = [layer.register_forward_hook(keep) for layer in layers]
        network(pixels)
        for hook in hooks:
            hook.remove()
        for layer in layers:
            x = inputs[layer]
            channels = range(x.shape[1])
            batch = [(x[:, c].mean(), x[:, c].std(ddof=1)) for c in channels]
            source = list(zip(layer.running_mean.tolist(), layer.running_var.sqrt().tolist(), strict=True))
            images = [[(x[n, c].mean(), x[n, c].std(ddof=1)) for c in channels] for n in range(len(x))]
            apart = [distance(image, batch) for image in images]
            sums["image-to-batch minimum"].append(min(apart))
            sums["image-to-batch maximum"].append(max(apart))
            sums["source-to-batch"].append(distance(source, batch))
    return {name: sum(values) / len(values) for name, values in sums.items()}


def distance(a, b):
    return sum(sum((x[k] - y[k]) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5 for k in (0, 1))
