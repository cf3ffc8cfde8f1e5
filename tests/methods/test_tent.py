"""Tent against its loop written out: batch norm in train mode, entropy by its formula, the optimizer by hand."""

import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import BadOption
from tests.conftest import GoldenNet, batch, stir

BATCHES = [batch(6, 3, 12, 12, seed=seed, dtype=torch.float64) for seed in range(4)]


def network():
    torch.manual_seed(0)
    return stir(GoldenNet()).double()


def literal(batches, lr, momentum, predict, m, online=True):
    """SGD with momentum on scales and shifts, one step a batch."""
    net = network()
    start = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    norms = [net.bn1, net.bn2, net.bn3]
    running = [(n.running_mean.clone(), n.running_var.clone()) for n in norms]
    speed = {}
    answers = []

    def forward(x):
        used = []

        def norm(at, h):
            mean, var = h.mean((0, 2, 3)), h.var((0, 2, 3), correction=0)
            mean, var = m * mean + (1 - m) * running[at][0], m * var + (1 - m) * running[at][1]
            used.append((mean.detach(), var.detach()))
            h = (h - mean.view(1, -1, 1, 1)) / (var.view(1, -1, 1, 1) + 1e-5).sqrt()
            return h * norms[at].weight.view(1, -1, 1, 1) + norms[at].bias.view(1, -1, 1, 1)

        h = norm(0, net.c1(x)).clamp(min=0)
        h = norm(1, net.c2(h)).clamp(min=0)
        h = (norm(2, net.c3(h)) + h).clamp(min=0)
        return net.fc(h.mean((2, 3))), used

    for x in batches:
        logits, used = forward(x)
        p = logits.exp() / logits.exp().sum(1, keepdim=True)
        (-(p * p.log()).sum(1).mean()).backward()
        with torch.no_grad():
            for n in norms:
                for q in (n.weight, n.bias):
                    speed[q] = momentum * speed.get(q, 0) + q.grad
                    q -= lr * speed[q]
            net.zero_grad()
            if predict == "after":
                logits, used = forward(x)
        answers.append(logits.detach())
        running = used if m < 1 else running
        if not online:
            net.load_state_dict(start)
    return answers


@pytest.mark.parametrize("predict", ["before", "after"])
@pytest.mark.parametrize(("momentum", "m"), [(0.0, 1.0), (0.9, 1.0), (0.9, 0.3), (0.9, 0.0)])
def test_tent_is_its_literal_loop(predict, momentum, m):
    adaptor = da.adapt(network(), "tent", optimizer="sgd", lr=0.05, momentum=momentum, predict=predict, m=m)
    for got, expected in zip([adaptor(x) for x in BATCHES], literal(BATCHES, 0.05, momentum, predict, m), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("predict", ["before", "after"])
def test_without_online_momentum_alone_is_remembered(predict):
    net = network()
    options = {"optimizer": "sgd", "lr": 0.05, "predict": predict}
    adaptor = da.adapt(net, "tent", online=False, **options)
    answers = [adaptor(x) for x in BATCHES]
    for got, expected in zip(answers, literal(BATCHES, 0.05, 0.9, predict, 1.0, online=False), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-9, rtol=1e-9)
    assert torch.equal(adaptor.state_dict()["bn2.weight"], net.bn2.weight)
    if predict == "after":  # the first batch has no history, the others have
        forgetful = da.adapt(net, "tent", reset_every=1, **options)
        alike = [torch.allclose(got, forgetful(x), atol=1e-9) for got, x in zip(answers, BATCHES, strict=True)]
        assert alike == [True, False, False, False]
    adaptor.reset()
    torch.testing.assert_close(adaptor(BATCHES[0]), answers[0], atol=1e-9, rtol=1e-9)


def test_one_step_of_adam_is_a_step_of_its_rate():
    """Adam's first step has the size lr wherever there is a gradient."""
    net = network()
    adaptor = da.adapt(net, "tent", lr=0.01)
    adaptor(BATCHES[0])
    change = adaptor.state_dict()["bn2.weight"] - net.bn2.weight
    torch.testing.assert_close(change.abs(), torch.full_like(change, 0.01), atol=1e-4, rtol=0)


def test_once_per_batch_is_the_papers_protocol():
    once = da.adapt(network(), "tent", optimizer="sgd", lr=0.05, momentum=0.0, reset_every=1, predict="after")
    mixed = da.adapt(network(), "adamixbn", alpha=0.0, fold=False, loss="entropy", lr=0.05, variance="biased")
    for x in BATCHES:
        torch.testing.assert_close(once(x), mixed(x), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "convnext_atto", "resnet26t"])
def test_other_norms_learn_too(name):
    timm = pytest.importorskip("timm")
    net = timm.create_model(name, num_classes=5, **({"img_size": 64} if name.startswith("vit") else {})).eval()
    with torch.no_grad():
        net.get_classifier().weight.normal_(0, 0.3)
    x = batch(3, 3, 64, 64)
    adaptor = da.adapt(net, "tent", lr=1e-2)
    expected = net(x).detach()
    first, second = adaptor(x), adaptor(x)
    if name != "resnet26t":
        torch.testing.assert_close(first, expected, atol=1e-4, rtol=1e-4)  # before the step there is nothing to change
    assert not torch.allclose(first, second)
    assert torch.equal(net(x), expected)
    kinds = {layer.kind for layer in adaptor.layers() if layer.adapts}
    assert kinds
    if name != "resnet26t":
        with pytest.raises(da.UnsupportedNetwork, match="no batch normalization"):
            da.adapt(net, "adamixbn")


def test_mistakes_are_explained():
    for options, hint in [
        ({"optimizer": "adamw"}, "did you mean 'adam'"),
        ({"predict": "later"}, "available: after, before"),
        ({"reset_every": 0}, "at least 1"),
        ({"m": 2}, "from 0 to 1"),
        ({"loss": None}, "loss=None"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), "tent", **options)
