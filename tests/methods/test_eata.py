"""ETA and EATA against their loops written out, image by image, with plain autograd."""

import math

import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import BadOption
from tests.conftest import GoldenNet, batch, stir
from tests.methods.literal import probabilities
from tests.methods.sure_network import descend, forward, learned, network, surprise, varied

BATCHES = [varied(10, seed) for seed in range(5)]
SOURCE = varied(80, 90)


def fisher_of(net, batches):
    total = [torch.zeros_like(p) for p in learned(net)]
    for x in batches:
        z = forward(net, x)
        loss = 0
        for row in z:
            p = probabilities(row)
            loss = loss - p[int(row.argmax())].log() / len(z)
        for at, g in enumerate(torch.autograd.grad(loss, learned(net))):
            total[at] += g**2
    return [t / len(batches) for t in total]


def literal(batches, margin, eps, lr, momentum, predict, weight=0.0, source=()):
    net = network()
    start = [p.detach().clone() for p in learned(net)]
    fisher = fisher_of(net, source) if weight else [0] * 6
    speed = [torch.zeros_like(p) for p in learned(net)]
    average, answers, kept_counts = None, [], []
    for x in batches:
        z = forward(net, x)
        terms, seen = [], []
        for row in z:
            p, h = probabilities(row), surprise(row)
            if h >= margin * math.log(7):
                continue
            if average is not None and abs((p @ average / (p.norm() * average.norm())).item()) >= eps:
                continue
            terms.append(h * math.exp(margin * math.log(7) - h.item()))
            seen.append(p.detach())
        kept_counts.append(len(terms))
        if terms:
            mean = sum(seen) / len(seen)
            average = mean if average is None else 0.9 * average + 0.1 * mean
            loss = sum(terms) / len(terms)
            for p, s, f in zip(learned(net), start, fisher, strict=True):
                loss = loss + weight * (f * (p - s) ** 2).sum()
            gradients = torch.autograd.grad(loss, learned(net))
            descend(learned(net), gradients, speed, lr, momentum)
            if predict == "after":
                z = forward(net, x)
        answers.append(z.detach())
    return answers, kept_counts


@pytest.mark.parametrize("predict", ["before", "after"])
@pytest.mark.parametrize(("margin", "eps"), [(0.4, 0.7), (0.7, 0.9), (0.25, 1.0)])
def test_eta_is_its_literal_loop(predict, margin, eps):
    adaptor = da.adapt(network(), "eta", lr=0.05, margin=margin, eps=eps, predict=predict)
    expected, kept = literal(BATCHES, margin, eps, 0.05, 0.9, predict)
    assert 0 < sum(kept) < 50  # the filters are at work
    for x, z, count in zip(BATCHES, expected, kept, strict=True):
        result = adaptor.adapt(x)
        torch.testing.assert_close(result.logits, z, atol=1e-9, rtol=1e-9)
        assert (result.loss is None) == (count == 0)


@pytest.mark.parametrize("weight", [1.0, 2000.0])
def test_eata_is_its_literal_loop(weight):
    options = {"margin": 0.7, "eps": 0.9, "lr": 1e-4 if weight > 1 else 0.05}
    adaptor = da.adapt(network(), "eata", source_images=SOURCE, fisher_weight=weight, **options)
    expected, _ = literal(BATCHES, 0.7, 0.9, options["lr"], 0.9, "before", weight, [SOURCE[:64], SOURCE[64:]])
    plain, _ = literal(BATCHES, 0.7, 0.9, options["lr"], 0.9, "before")
    for x, z in zip(BATCHES, expected, strict=True):
        torch.testing.assert_close(adaptor(x), z, atol=1e-9, rtol=1e-9)
    assert not torch.allclose(plain[-1], expected[-1], atol=1e-7)


def test_a_loader_of_pairs_a_list_and_a_tensor_are_the_same():
    def answer(images, dtype=torch.float64):
        adaptor = da.adapt(network().to(dtype), "eata", source_images=images, margin=1.0, eps=1.0, lr=0.01)
        return [adaptor(x.to(dtype)) for x in BATCHES][-1]

    expected = answer(SOURCE)
    assert torch.equal(answer([SOURCE[:64], SOURCE[64:]]), expected)
    assert torch.equal(answer((images, 0) for images in (SOURCE[:64], SOURCE[64:])), expected)
    torch.testing.assert_close(answer(SOURCE, torch.float32).double(), expected, atol=1e-3, rtol=1e-3)


def test_without_weight_it_is_eta():
    eata = da.adapt(network(), "eata", source_images=SOURCE, fisher_weight=0.0, lr=0.05, margin=0.7, eps=0.9)
    eta = da.adapt(network(), "eta", lr=0.05, margin=0.7, eps=0.9)
    for x in BATCHES:
        torch.testing.assert_close(eata(x), eta(x), atol=1e-12, rtol=1e-12)


def test_networks_with_an_output_of_their_own_measure_too():
    class Wrapped(GoldenNet):
        def forward(self, x):
            return {"a": super().forward(x), "b": x}

    net = stir(Wrapped())
    adaptor = da.adapt(net, "eata", source_images=SOURCE.float(), output=lambda out: out["a"], margin=1.0, eps=1.0)
    assert adaptor.adapt(batch(6, 3, 12, 12)).loss is not None
    assert adaptor._objective._source_images == []


def test_nothing_kept_changes_nothing():
    net = network()
    adaptor = da.adapt(net, "eta", margin=0.0, lr=1.0)
    first = adaptor(BATCHES[0])
    adaptor(BATCHES[1])
    assert torch.equal(adaptor(BATCHES[0]), first)
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in adaptor.state_dict().items())


def test_the_average_is_forgotten_with_everything_else():
    adaptor = da.adapt(network(), "eta", margin=1.0, eps=0.6, lr=0.0)
    losses = [adaptor.adapt(BATCHES[0]).loss for _ in range(2)]
    adaptor.reset()
    assert adaptor.adapt(BATCHES[0]).loss == losses[0] != losses[1]


def test_the_cosine_goes_by_the_number_of_classes():
    from domainadaptor.methods.eata import cosine_limit

    assert [cosine_limit(k) for k in (10, 1000)] == pytest.approx([0.4, 0.05])
    assert cosine_limit(2) <= 1
    assert 1 / math.sqrt(126) < cosine_limit(126) < 0.15


@pytest.mark.parametrize("method", ["eta", "eata"])
def test_layer_norms_learn_too(method):
    timm = pytest.importorskip("timm")

    torch.manual_seed(0)
    net = timm.create_model("vit_tiny_patch16_224", num_classes=5, img_size=32, depth=1).eval()
    with torch.no_grad():
        net.head.weight.normal_(0, 0.3)
    more = {"source_images": batch(4, 3, 32, 32, seed=4)} if method == "eata" else {}
    adaptor = da.adapt(net, method, lr=0.05, margin=1.0, eps=1.0, **more)
    x = batch(3, 3, 32, 32)
    assert not torch.equal(adaptor(x), adaptor(x))


def test_mistakes_are_explained():
    for method, options, hint in [
        ("eata", {}, "eata needs source_images=.*use 'eta'"),
        ("eata", {"source_images": 3}, "got a int"),
        ("eata", {"source_images": []}, "got a list"),
        ("eata", {"source_images": SOURCE, "fisher_weight": -1}, "at least 0"),
        ("eta", {"margin": 2}, "from 0 to 1"),
        ("eta", {"eps": -1}, "from 0 to 1"),
        ("eta", {"optimizer": "adamw"}, "did you mean 'adam'"),
        ("eta", {"steps": 0}, "at least 1"),
        ("eta", {"source_images": SOURCE}, "has no option"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), method, **options)
