import copy

import pytest
import torch
from torch import nn

from domainadaptor.errors import BadBatch
from domainadaptor.lab.networks.statistics import (
    StatisticsTracker,
    frozen_statistics,
    norm_layers,
    reestimate_statistics,
)
from domainadaptor.norms.instance_aware import make_instance_aware
from tests.conftest import GoldenNet, batch, stir


@pytest.fixture(params=["batch", "iabn"])
def network(request) -> nn.Module:
    torch.manual_seed(0)
    network = stir(GoldenNet()).double()
    if request.param == "iabn":
        make_instance_aware(network)
    return network


def batches(count: int, size: int = 6) -> list[torch.Tensor]:
    return [batch(size + at, 3, 8, 8, seed=at, dtype=torch.float64) for at in range(count)]


def inputs_of(network: nn.Module, images: torch.Tensor) -> dict[str, torch.Tensor]:
    """What each norm layer is given."""
    seen = {}
    hooks = [
        layer.register_forward_pre_hook(lambda _, given, name=name: seen.__setitem__(name, given[0].detach()))
        for name, layer in norm_layers(network).items()
    ]
    with torch.no_grad():
        network(images)
    for hook in hooks:
        hook.remove()
    return seen


def literal_statistics(x: torch.Tensor) -> torch.Tensor:
    """Mean and unbiased variance, channel by channel."""
    rows = [x[:, channel].flatten() for channel in range(x.shape[1])]
    means = [sum(row.tolist()) / len(row) for row in rows]
    sums = [sum((v - mean) ** 2 for v in row.tolist()) for row, mean in zip(rows, means, strict=True)]
    return x.new_tensor([means, [total / (len(row) - 1) for row, total in zip(rows, sums, strict=True)]])


def test_reestimated_statistics_are_the_mean_over_batches(network):
    probe = copy.deepcopy(network).train()
    seen = [{name: literal_statistics(x) for name, x in inputs_of(probe, images).items()} for images in batches(3)]
    network.train()
    network.bn3.eval()  # a layer in another mode than the network's
    reestimate_statistics(network, iter(batches(3)), network)
    for name, layer in norm_layers(network).items():
        expected = sum(entry[name] for entry in seen) / 3
        torch.testing.assert_close(torch.stack([layer.running_mean, layer.running_var]), expected, atol=1e-9, rtol=1e-9)
        assert layer.momentum == 0.1
    assert network.training
    assert [network.bn1.training, network.bn3.training] == [True, False]


def test_no_batches_are_refused_and_the_statistics_stay(network):
    held = network.bn1.running_mean.clone()
    with pytest.raises(BadBatch, match="got none"):
        reestimate_statistics(network, [], network)
    assert torch.equal(network.bn1.running_mean, held)


def test_momenta_come_back_after_an_error():
    network = GoldenNet()
    with pytest.raises(RuntimeError):
        reestimate_statistics(network, [torch.zeros(2, 5, 8, 8)], network)
    assert network.bn1.momentum == 0.1


def test_untracked_passes_leave_the_buffers_alone_but_normalize_by_the_batch(network):
    tracked = copy.deepcopy(network).train()
    images = batches(1)[0]
    held = {name: buffer.clone() for name, buffer in network.named_buffers()}
    network.train()
    with frozen_statistics(network):
        with frozen_statistics(network):
            logits = network(images)
        assert torch.equal(network(images), logits)
    assert torch.equal(logits, tracked(images))
    assert all(torch.equal(buffer, held[name]) for name, buffer in network.named_buffers())
    assert not torch.equal(tracked.bn1.running_mean, held["bn1.running_mean"])
    assert all(layer.track_running_stats for layer in norm_layers(network).values())
    network(images)
    assert not torch.equal(network.bn1.running_mean, held["bn1.running_mean"])


def steps(network: nn.Module, variance: StatisticsTracker, images: list[torch.Tensor]) -> list[dict]:
    """Training steps; the statistics that each layer's batches had, hooked directly."""
    seen = []
    for given in images:
        seen.append({name: literal_statistics(x) for name, x in inputs_of(network, given).items()})
        variance.add()
        with torch.no_grad():  # weights move between steps
            network.c2.weight.mul_(0.9)
    return seen


def expected_variance(seen: list[dict], name: str) -> torch.Tensor:
    """Over steps, averaged over channels: of the means, and of the deviations."""
    means, variances = torch.stack([entry[name] for entry in seen]).unbind(1)
    return torch.stack([means, variances.sqrt()]).var(1, unbiased=True).mean(1)


def test_the_variance_of_batch_statistics_is_read_off_the_running_ones(network):
    network.train()
    variance = StatisticsTracker(network)
    seen = steps(network, variance, batches(5))
    found = variance.by_layer()
    assert list(found) == ["bn1", "bn2", "bn3"]
    for name, entry in found.items():
        expected = expected_variance(seen, name)
        assert [entry["mean"], entry["std"]] == pytest.approx(expected.tolist(), rel=1e-8)


def test_a_resumed_run_ends_where_an_unbroken_one_does(network):
    network.train()
    unbroken, resumed = network, copy.deepcopy(network)
    whole, first = StatisticsTracker(unbroken), StatisticsTracker(resumed)
    steps(unbroken, whole, batches(5))
    steps(resumed, first, batches(5)[:2])
    state = first.resume_state()
    kept = copy.deepcopy(state)
    later = StatisticsTracker(GoldenNet().double())  # of another process: what it held counts for nothing
    later._layers = StatisticsTracker(resumed)._layers
    later.resume(state)
    steps(resumed, later, batches(5)[2:])
    assert later.by_layer() == whole.by_layer()
    for part in ("held", "mean", "squares"):
        assert all(torch.equal(tensor, kept[part][name]) for name, tensor in state[part].items())


def test_layers_that_do_not_move_by_a_share_are_left_out_and_one_step_has_no_variance():
    network = GoldenNet().train()
    network.bn2.momentum = None
    variance = StatisticsTracker(network)
    steps(network, variance, [batch(4, 3, 8, 8)])
    assert variance.by_layer() == {name: {"mean": 0.0, "std": 0.0} for name in ("bn1", "bn3")}
