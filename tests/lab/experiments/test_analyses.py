"""Measurements against slow loops and closed forms."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.experiments.analyses import find_measurement, measurements, needs_images
from domainadaptor.lab.experiments.analyses.statistics_variance import statistics_variance
from domainadaptor.lab.experiments.sweep import run_sweep
from domainadaptor.lab.records.measurements import VALUES, ClassifierNorms, LossCurves
from tests.lab.experiments.small import SILENT, TEXT, sweep_of
from tests.lab.records.samples import training


def test_the_folder_is_the_registry():
    assert set(measurements()) == set(VALUES)
    with pytest.raises(BadOption, match="loss-curves"):
        find_measurement("loss-curvs")
    with pytest.raises(BadOption, match="only registered names"):
        find_measurement("os:getcwd")
    assert [needs_images(name) for name in ("", "loss-curves", "classifier-norms")] == [True, True, False]


@pytest.mark.parametrize("measure", ["statistics-distances", "classifier-norms", "loss-curves"])
def test_measurements(base, store, measure):
    rows = f'rows = ["what"]\nshow = "{measure}"\n'
    sweep = sweep_of(base, TEXT.replace("[[table]]", f'[rows."what"]\nmeasure = "{measure}"\n[[table]]') + rows)
    assert run_sweep(sweep, store, SILENT) == {}
    cell = next(cell for cell in sweep.cells if cell.column == "night")
    record = store.run(cell.id)
    opened = sweep.runner.open(cell.spec.network)
    test, segments = sweep.runner.stream(cell.spec, opened)
    if measure == "statistics-distances":
        assert record.values == pytest.approx(literal_distances(opened.network, test, segments), rel=1e-4)
    elif measure == "classifier-norms":
        classes = record.read(ClassifierNorms).classes
        weight = opened.network.state_dict()["linear.weight"].double()
        assert [entry.norm for entry in classes] == pytest.approx([float(row.norm()) for row in weight])
        dataset = sweep.runner.dataset("folders")
        counts = [
            sum(e.label == at for d in ("day", "dusk") for e in dataset.domain(d).select("train")) for at in (0, 1, 2)
        ]
        assert [entry.images for entry in classes] == counts
    else:
        em = next(curve for curve in record.read(LossCurves).curves if curve.label == "EM")
        logits = torch.cat([opened.network(pixels) for _, _, pixels in test.batches(segments)]).detach().double()
        p = logits.softmax(1).numpy()
        losses = -(p * np.log(p)).sum(1)
        assert min(em.loss) >= losses.min() - 1e-9
        assert max(em.loss) <= losses.max() + 1e-9


def trained(folder, layers):
    content = training().model_dump(mode="json") | {"statistics_variance": layers}
    (folder / "record.json").write_text(json.dumps(content))
    return SimpleNamespace(checkpoint=folder / "checkpoint.safetensors")


def test_the_variance_of_statistics_is_the_mean_over_means_deviations_and_layers(tmp_path):
    layers = {"a": {"mean": 1.0, "std": 2.0}, "b": {"mean": 0.5, "std": 0.25}}
    values = statistics_variance(trained(tmp_path, layers))
    assert values.variance == pytest.approx(0.9375)
    assert values.layers == {"a": 1.5, "b": 0.375}


def test_training_records_that_do_not_have_it_are_refused(tmp_path):
    with pytest.raises(BadFile, match=r"standard deviations.*train the network again"):
        statistics_variance(trained(tmp_path, {"a": {"mean": 1.0, "var": 4.0}}))
    (tmp_path / "record.json").unlink()
    with pytest.raises(BadFile, match="training record"):
        statistics_variance(SimpleNamespace(checkpoint=tmp_path / "checkpoint.safetensors"))
    with pytest.raises(BadFile, match="training record"):
        statistics_variance(SimpleNamespace(checkpoint=None))


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
