"""A diagnosis against the calls that it stands for, and what it notices."""

import copy
import json

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import domainadaptor as da
from domainadaptor.adaptation.calibrate import Calibration
from domainadaptor.adaptation.diagnose import _Sample
from domainadaptor.adaptation.estimate import Expectation
from domainadaptor.errors import BadBatch, UnsupportedNetwork
from tests.conftest import GoldenNet, batch


def images(count, seed=0):
    return batch(count, 3, 12, 12, seed=seed)


def sample_of(*batches, size=256):
    sample = _Sample(size)
    for given in batches:
        sample.add(given)
    return sample.shuffled()


@pytest.fixture(scope="module")
def net():
    """A network whose running statistics are those of `images`."""
    torch.manual_seed(0)
    net = GoldenNet()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # running statistics become the mean over batches
    with torch.no_grad():
        for seed in range(20):
            net.train()(images(64, 100 + seed))
        net.fc.weight.mul_(20)
    return net.eval()


def test_it_reports_what_the_calls_that_it_stands_for_return(net):
    shifted = 3 * images(100) + 2
    found = da.diagnose(net, shifted, batch_size=40)
    calibration, adaptor = Calibration(net), da.adapt(net)
    source, adapted = [], []
    for part in shifted.split(40):
        calibration.add(part)
        source.append(net(part).detach())
        adapted.append(adaptor(part))
    assert found.images == 100
    assert list(found.layers) == calibration.layers()
    assert found.shift == pytest.approx(sum(layer.shift for layer in calibration.layers()) / 3)
    before, after = (torch.cat(logits).softmax(1).max(1) for logits in (source, adapted))
    changed = (before.indices != after.indices).nonzero().flatten()
    assert [row.position for row in found.changed] == changed.tolist()
    assert [row.before for row in found.changed] == before.indices[changed].tolist()
    assert [row.after for row in found.changed] == after.indices[changed].tolist()
    torch.testing.assert_close(torch.tensor([row.after_confidence for row in found.changed]), after.values[changed])
    assert found.share_changed == len(changed) / 100
    assert len(changed) > 10

    steady = calibration.network()(shifted).argmax(1)
    single = da.adapt(net, effort="one")
    positions, kept = sample_of(shifted)
    assert sorted(positions) == list(range(100))
    assert torch.equal(kept, shifted[positions])
    for size, agreement in found.batch_sizes:
        answers = torch.cat([single(part) for part in kept.split(size)]).argmax(1)
        assert agreement == pytest.approx(float((answers == steady[positions]).float().mean()))
    assert [size.images for size in found.batch_sizes] == [1, 4, 16, 64]


def test_without_a_shift_there_is_nothing_to_adapt(net):
    found = da.diagnose(net, images(256, 7))
    assert found.size == "none"
    assert found.method == "source"
    assert found.expected.outcome == "same"
    assert found.headline.startswith("Nothing to adapt")
    assert found.warnings == ()


def test_a_shift_is_found_where_it_is(net):
    found = da.diagnose(net, 3 * images(256) + 2)
    assert found.size == "large"
    assert found.layers[0].shift > 1
    assert "early layers" in found.sentences[0]


def test_a_calibrated_network_that_meets_another_domain_is_noticed(net):
    calibrated = da.calibrate(net, 3 * images(256) + 2, share=1.0)
    known, other = (da.diagnose(calibrated, given) for given in (3 * images(256, 5) + 2, images(256)))
    assert known.size == "none"
    assert other.size == "large"


def test_any_loader_gives_the_same_diagnosis(net):
    given = 3 * images(70) + 2
    whole = da.diagnose(net, given, batch_size=32)
    loaders = [
        DataLoader(TensorDataset(given, torch.zeros(70)), batch_size=16),
        ({"pixel_values": part} for part in given.split(48)),
        given.split(1),
    ]
    for loader in loaders:
        found = da.diagnose(net, loader, batch_size=32)
        assert found.changed == whole.changed
        assert found.expected == whole.expected
    assert "batches of 1." in found.warnings[0]
    mixed = da.diagnose(net, [given[:10], given[10:30, :, :8, :8], given[30:]], batch_size=32)
    assert mixed.images == 70


def test_of_many_images_a_random_sample_is_kept():
    given = torch.arange(300.0).view(300, 1)
    counts = torch.zeros(300)
    for start in range(100):
        positions, kept = sample_of(*given.roll(start).split(64), size=30)
        assert torch.equal(kept, given.roll(start)[positions])
        assert len(set(positions)) == 30
        counts[kept[:, 0].long()] += 1
    assert 0 < counts.min() <= counts.max() < 30  # each is kept 10 times on average, with a deviation of 3
    assert sample_of(torch.ones(4, 1), torch.ones(4, 2), torch.zeros(2, 1), size=16)[1].shape == (6, 1)


def test_images_in_runs_of_a_class_are_noticed(net):
    given = images(192, 3)
    with torch.no_grad():
        order = net(given).argmax(1).argsort()
    found = da.diagnose(net, given[order], batch_size=16)
    assert "sorted by class" in found.warnings[0]
    assert f"about {found.shuffled.after.value:.0%}" in found.warnings[0]
    assert found.headline == "Do not adapt to the images in this order."
    assert found.method != "auto"
    whole = da.diagnose(net, given, batch_size=16)
    assert whole.shuffled is None
    assert whole.warnings == ()


def test_what_is_lost_by_the_order_counts_as_wrong(net):
    """Answers in runs of a class, against a network measured on all images."""
    given = images(128, 3)
    with torch.no_grad():
        given = given[net(given).argmax(1).argsort()]
    found = da.diagnose(net, given, batch_size=16)
    positions, kept = sample_of(given)
    steady = da.calibrate(net, given.split(16))(kept).argmax(1)
    adaptor = da.adapt(net)
    in_order, shuffled = (torch.cat([adaptor(part) for part in x.split(16)]).argmax(1) for x in (given, kept))
    lost = float((shuffled == steady).float().mean() - (in_order[positions] == steady).float().mean())
    assert found.shuffled.after.value - found.expected.after.value == pytest.approx(max(lost, 0))


def test_one_class_for_everything_is_noticed(net):
    warning, *_ = da.diagnose(net, images(1).expand(64, -1, -1, -1), batch_size=16).warnings
    assert "Nearly all answers are one class" in warning


def test_few_images_tell_nothing(net):
    found = da.diagnose(net, images(5))
    assert found.headline == "Too few images to tell."
    assert found.method == "source"
    assert "5 images are few" in found.warnings[0]


def test_the_cost_is_measured(net):
    cost = da.diagnose(net, images(64)).cost
    assert cost.forwards == 3
    assert cost.seconds > cost.seconds_plain > 0


def test_nothing_of_the_user_is_changed(net):
    held = copy.deepcopy(net.state_dict())
    given = images(20)
    da.diagnose(net, given)
    assert torch.equal(given, images(20))
    assert all(torch.equal(value, held[name]) for name, value in net.state_dict().items())


def test_json_has_everything(net):
    found = da.diagnose(net, 3 * images(32) + 2)
    read = json.loads(json.dumps(found.as_json()))
    assert read["headline"] == found.headline
    assert [layer["name"] for layer in read["layers"]] == ["bn1", "bn2", "bn3"]
    assert read["accuracy_after"]["value"] == found.expected.after.value
    assert len(read["changed"]) == len(found.changed)
    assert isinstance(found.expected, Expectation)


def test_networks_with_other_outputs(net):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return [{"scores": self.net(x)}]

    named = Named()
    with pytest.raises(UnsupportedNetwork, match="Pass output="):
        da.diagnose(named, images(20))
    found = da.diagnose(named, images(20), output=lambda given: given[0]["scores"])
    assert found.changed == da.diagnose(net, images(20)).changed


def test_what_cannot_be_diagnosed(net):
    with pytest.raises(BadBatch, match="got none"):
        da.diagnose(net, [])
    with pytest.raises(UnsupportedNetwork):
        da.diagnose(nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 12, 4)), images(20))
    with pytest.raises(BadBatch, match="NaN"):
        da.diagnose(net, images(20) / 0 * 0)
