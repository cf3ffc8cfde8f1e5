"""Statistics of source and test images together, against all activations laid side by side."""

import copy

import pytest
import torch
from torch.nn.functional import conv2d
from torch.utils.data import DataLoader, TensorDataset

import domainadaptor as da
from domainadaptor.errors import BadBatch, BadOption, UnsupportedNetwork
from tests.conftest import GoldenNet, batch, stir
from tests.methods.literal import BATCHES, by_running, logits, network, table

EXACT = {"atol": 1e-9, "rtol": 1e-9}
METHOD = "adabn-source-and-test"
SOURCE = [batch(n, 3, 12, 12, seed=n, dtype=torch.float64) for n in (5, 4)]
TARGET = [2 * batch(n, 3, 10, 10, seed=n, dtype=torch.float64) + 1 for n in (7, 1)]  # of another size, too


def literal(batches, correction):
    """The table with statistics over the activations of all batches, each normalized by itself on its way."""
    p = table(network())
    seen = {"bn1": [], "bn2": [], "bn3": []}

    def norm(h, name):
        seen[name].append(h.transpose(0, 1).flatten(1))  # (channels, values)
        mean, var = h.mean((0, 2, 3)), h.var((0, 2, 3), correction=0)
        h = (h - mean.view(1, -1, 1, 1)) / (var.view(1, -1, 1, 1) + 1e-5) ** 0.5
        return h * p[f"{name}.weight"].view(1, -1, 1, 1) + p[f"{name}.bias"].view(1, -1, 1, 1)

    for x in batches:
        h = norm(conv2d(x, p["c1.weight"], padding=1), "bn1").clamp(min=0)
        h = norm(conv2d(h, p["c2.weight"], stride=2, padding=1), "bn2").clamp(min=0)
        norm(conv2d(h, p["c3.weight"], padding=1), "bn3")
    for name, values in seen.items():
        side_by_side = torch.cat(values, 1)
        p[f"{name}.running_mean"] = side_by_side.mean(1)
        p[f"{name}.running_var"] = side_by_side.var(1, correction=correction)
    return p


@pytest.mark.parametrize(("variance", "correction"), [("unbiased", 1), ("biased", 0)])
def test_it_is_plain_inference_with_the_statistics_of_all(variance, correction):
    net = network()
    adaptor = da.adapt(net, METHOD, source_images=SOURCE, target_images=TARGET, variance=variance)
    p = literal([*SOURCE, *TARGET], correction)
    plain = adaptor.adapted_network(BATCHES[0]).state_dict()
    assert all(torch.allclose(plain[name], p[name], atol=1e-9) for name in p if "num_batches" not in name)
    for x in (*BATCHES, BATCHES[0][:1]):
        torch.testing.assert_close(adaptor(x), logits(p, x, by_running(p)), **EXACT)
    assert all(
        torch.equal(a, b) for a, b in zip(net.state_dict().values(), network().state_dict().values(), strict=True)
    )


def test_one_batch_of_each_kind_in_one_layer_is_one_large_batch():
    """With one norm layer there is no way that matters: joined, the images give the same statistics."""
    net = stir(torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.Flatten(), torch.nn.Linear(48, 5))).double()
    a, b = (batch(n, 3, 4, 4, seed=n, dtype=torch.float64) for n in (3, 8))
    adaptor = da.adapt(net, METHOD, source_images=a, target_images=b, batch_size=2)
    whole = torch.cat([a, b])
    expected = copy.deepcopy(net)
    expected[0].running_mean.copy_(whole.mean((0, 2, 3)))
    expected[0].running_var.copy_(whole.var((0, 2, 3)))
    torch.testing.assert_close(adaptor(b), expected(b).detach(), **EXACT)


def test_images_come_in_many_ways_and_in_any_precision():
    flat = torch.cat(SOURCE)
    expected = literal([*flat.split(4), *TARGET], 1)
    loader = DataLoader(TensorDataset(flat.float(), torch.zeros(9)), batch_size=4)
    for source in (flat, list(flat.split(4)), loader, [{"pixel_values": x} for x in flat.split(4)]):
        adaptor = da.adapt(network(), METHOD, source_images=source, target_images=TARGET, batch_size=4)
        torch.testing.assert_close(
            adaptor(BATCHES[0]), logits(expected, BATCHES[0], by_running(expected)), atol=1e-5, rtol=1e-5
        )


def test_other_weights_are_measured_anew():
    options = {"source_images": SOURCE, "target_images": TARGET}
    adaptor = da.adapt(network(), METHOD, **options)
    other = network(seed=5)
    adaptor.load_state_dict(other.state_dict())
    assert torch.equal(adaptor(BATCHES[0]), da.adapt(other, METHOD, **options)(BATCHES[0]))
    single = adaptor.float()
    assert torch.equal(single(BATCHES[0].float()), da.adapt(other.float(), METHOD, **options)(BATCHES[0].float()))


def test_a_layer_used_twice_has_the_statistics_of_both_uses():
    class Twice(GoldenNet):
        def forward(self, x):
            return self.fc(self.bn2(self.c2(self.bn1(self.bn1(self.c1(x))))).mean((2, 3)))

    net = stir(Twice()).double()
    adaptor = da.adapt(net, METHOD, source_images=SOURCE[0], target_images=TARGET[0])
    torch.testing.assert_close(adaptor.adapted_network(BATCHES[0])(BATCHES[0]).detach(), adaptor(BATCHES[0]), **EXACT)
    unused = next(layer for layer in adaptor.layers() if layer.name == "bn3")
    assert not unused.adapts


def test_outputs_of_other_kinds():
    class Odd(GoldenNet):
        def forward(self, x):
            return {"scores": [super().forward(x)], "more": 1}

    net = stir(Odd()).double()
    adaptor = da.adapt(
        net, METHOD, source_images=SOURCE, target_images=TARGET, output=lambda answer: answer["scores"][0]
    )
    assert adaptor(BATCHES[0]).shape == (6, 7)


def test_both_are_needed_and_must_be_images():
    for options, hint in [
        ({}, "pass source_images="),
        ({"source_images": SOURCE}, "pass target_images="),
        ({"source_images": SOURCE, "target_images": iter(TARGET)}, "iterated repeatedly"),
        ({"source_images": SOURCE, "target_images": 3}, "target_images is a int"),
        ({"source_images": [], "target_images": TARGET}, "source_images: expected images, got none"),
        ({"source_images": SOURCE, "target_images": TARGET, "variance": "none"}, "available: unbiased, biased"),
        ({"source_images": SOURCE, "target_images": TARGET, "batch_size": 0}, "at least 1"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), METHOD, **options)
    for wrong, hint in [
        (["a"], "to be images"),
        ([SOURCE[0] * float("nan")], "NaN"),
        ([SOURCE[0] * 1e300], "finite"),
    ]:
        with pytest.raises(BadBatch, match=hint):
            da.adapt(network(), METHOD, source_images=wrong, target_images=TARGET)
    with pytest.raises(UnsupportedNetwork, match="no batch normalization"):
        da.adapt(torch.nn.Linear(3, 2), METHOD, source_images=SOURCE, target_images=TARGET)
