"""SAR against its loop written out: climb, second gradient, descent, average, recovery; and which layers learn."""

import math

import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import BadOption, UnsupportedNetwork
from domainadaptor.methods.sar import last_stage
from tests.conftest import batch
from tests.methods.sure_network import descend, forward, learned, network, surprise, varied

BATCHES = [varied(10, seed) for seed in range(6)]


def literal(batches, margin=0.4, rho=0.05, below=0.05634, lr=0.05, predict="before"):
    net = network()
    start = [p.detach().clone() for p in learned(net)]
    speed = [torch.zeros_like(p) for p in learned(net)]
    limit = margin * math.log(7)
    average, answers, recovered = None, [], []
    for x in batches:
        z = forward(net, x)
        answer, back = z, False
        first = [at for at, row in enumerate(z) if surprise(row).item() < limit]
        if first:
            loss = sum(surprise(z[at]) for at in first) / len(first)
            gradients = torch.autograd.grad(loss, learned(net))
            length = math.sqrt(sum((g**2).sum().item() for g in gradients))
            here = [p.detach().clone() for p in learned(net)]
            with torch.no_grad():
                for p, g in zip(learned(net), gradients, strict=True):
                    p += rho * g / length
            up = forward(net, x)
            second = [at for at in first if surprise(up[at]).item() < limit]
            loss = sum(surprise(up[at]) for at in second) / len(second) if second else None
            gradients = torch.autograd.grad(loss, learned(net)) if second else None
            with torch.no_grad():
                for p, value in zip(learned(net), here, strict=True):
                    p.copy_(value)
            if second:
                descend(learned(net), gradients, speed, lr, 0.9)
                average = loss.item() if average is None else 0.9 * average + 0.1 * loss.item()
                if average < below:
                    back, average = True, None
                    speed = [torch.zeros_like(p) for p in learned(net)]
                    with torch.no_grad():
                        for p, value in zip(learned(net), start, strict=True):
                            p.copy_(value)
                if predict == "after":
                    answer = forward(net, x)
        answers.append(answer.detach())
        recovered.append(back)
    return answers, recovered


@pytest.mark.parametrize("predict", ["before", "after"])
@pytest.mark.parametrize(
    "options",
    [{}, {"rho": 2.0}, {"margin": 0.8, "lr": 0.2}, {"recover_below": 0.35}, {"recover_below": 10.0}, {"margin": 0.15}],
    ids=str,
)
def test_sar_is_its_literal_loop(options, predict):
    adaptor = da.adapt(network(), "sar", **{"lr": 0.05, "predict": predict, **options})
    own = {("below" if name == "recover_below" else name): value for name, value in options.items()}
    expected, recovered = literal(BATCHES, predict=predict, **own)
    for x, z, back in zip(BATCHES, expected, recovered, strict=True):
        result = adaptor.adapt(x)
        torch.testing.assert_close(result.logits, z, atol=1e-9, rtol=1e-9)
        assert ("source model was restored" in (result.note or "")) == back
    if options.get("recover_below") == 0.35:
        assert 0 < sum(recovered) < 6  # once low is not low for good
    if options.get("recover_below") == 10.0:
        assert all(recovered)
        assert all(torch.equal(v, network().state_dict()[name]) for name, v in adaptor.state_dict().items())


def test_nothing_sure_uphill_takes_no_step():
    """One image is sure, and no longer so after the climb."""
    net = network()
    assert da.adapt(net, "sar", margin=0.008, rho=0.0, lr=0.1).adapt(BATCHES[0]).loss is not None
    adaptor = da.adapt(net, "sar", margin=0.008, rho=1.0, lr=0.1)
    result = adaptor.adapt(BATCHES[0])
    assert result.loss is None
    assert not result.fell_back
    assert all(torch.equal(v, net.state_dict()[name]) for name, v in adaptor.state_dict().items())


def test_several_steps_are_several_batches_of_the_same_images():
    twice = da.adapt(network(), "sar", lr=0.05, steps=2, predict="after")
    expected, _ = literal([BATCHES[0], BATCHES[0]], predict="after")
    torch.testing.assert_close(twice(BATCHES[0]), expected[-1], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: pytest.importorskip("torchvision").models.resnet18(weights=None), ("layer4",)),
        (
            lambda: pytest.importorskip("timm").create_model("vit_tiny_patch16_224", img_size=32, embed_dim=6),
            ("blocks.9", "blocks.10", "blocks.11", "norm"),
        ),
        (
            lambda: pytest.importorskip("timm").create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(4, 4, 4, 4)),
            ("stages.3",),
        ),
        (lambda: torch.nn.Sequential(pytest.importorskip("torchvision").models.resnet18(weights=None)), ("0.layer4",)),
        (network, ()),
    ],
)
def test_the_last_stage_is_found(make, expected):
    assert last_stage(make()) == expected


def test_the_last_stage_does_not_learn():
    torch.manual_seed(0)
    net = pytest.importorskip("torchvision").models.resnet18(weights=None, num_classes=5).eval()
    with torch.no_grad():
        net.fc.weight.mul_(20)
    for options, changed, kept in [
        ({}, "layer3.0.bn1.weight", "layer4.0.bn1.weight"),
        ({"skip": ""}, "layer4.0.bn1.weight", None),
        ({"skip": "layer3, bn1"}, "layer4.0.bn1.weight", "layer3.0.bn1.weight"),
        ({"skip": ["layer3"]}, "bn1.weight", "layer3.1.bn2.bias"),
    ]:
        adaptor = da.adapt(net, "sar", margin=1.0, lr=0.1, recover_below=0, **options)
        adaptor(batch(4, 3, 32, 32))
        state = adaptor.state_dict()
        assert not torch.equal(state[changed], net.state_dict()[changed])
        assert kept is None or torch.equal(state[kept], net.state_dict()[kept])
    why = {layer.name: layer.why for layer in da.adapt(net, "sar").layers()}
    assert why["layer4.0.bn1"] == "statistics"
    assert why["layer3.0.bn1"] == "statistics, scale and shift"


def test_a_name_that_begins_another_skips_its_own_layer_alone():
    norms = [torch.nn.BatchNorm2d(3), *(torch.nn.ReLU() for _ in range(9)), torch.nn.BatchNorm2d(3)]
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3), *norms, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    why = {layer.name: layer.why for layer in da.adapt(net.eval(), "sar", skip="1").layers()}
    assert why == {"1": "statistics", "11": "statistics, scale and shift"}


def test_mistakes_are_explained():
    for options, hint in [
        ({"skip": "layer9"}, "not a layer of the network; it has c1"),
        ({"skip": 4}, "expected names of layers"),
        ({"rho": -1}, "at least 0"),
        ({"margin": 3}, "from 0 to 1"),
        ({"recover_below": "low"}, "finite number"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), "sar", **options)
    with pytest.raises(UnsupportedNetwork, match="Nothing is left to learn"):
        da.adapt(network(), "sar", skip="bn1,bn2,bn3")
