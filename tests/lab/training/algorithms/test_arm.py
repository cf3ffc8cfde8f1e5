import copy

import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import BadOption
from domainadaptor.lab.networks.context import ContextNetwork
from domainadaptor.lab.training.algorithm import OptimizerSettings
from domainadaptor.lab.training.algorithms.arm import arm
from domainadaptor.lab.training.selection import SWAD
from tests.lab.training.algorithms import literal

NORMS = [f"bn{at}.{part}" for at in (1, 2, 3) for part in ("weight", "bias")]


def literal_loss(p, images):
    h = literal_learned(p, literal.forward(p, images))
    return (h**2).sum() ** 0.5


def literal_learned(p, z):
    for layer in (0, 2, 4):
        z = (z @ p[f"layers.{layer}.weight"].T + p[f"layers.{layer}.bias"]).clamp(min=0)
    return z @ p["layers.6.weight"].T + p["layers.6.bias"]


@pytest.mark.parametrize("learns", ["norms", "all"])
def test_the_outer_gradient_is_the_literal_one(learns):
    net, batches = literal.network(), literal.domain_batches()
    algorithm = arm(net, OptimizerSettings(literal.CLASSES), learns=learns).double()
    learned = algorithm.heads["learned_loss"]
    p = literal.table(net)
    q = {name: t.detach().clone().requires_grad_() for name, t in learned.named_parameters()}
    losses = [torch.nn.functional.cross_entropy(algorithm.adapted_logits(b.images), b.labels) for b in batches]
    torch.stack(losses).mean().backward()

    expected = []
    for b in batches:
        after = literal.descended(
            p, literal_loss({**p, **q}, b.images), NORMS if learns == "norms" else list(p), 0.1, True
        )
        expected.append(literal.cross_entropy(literal.forward(after, b.images), b.labels))
    torch.stack(expected).mean().backward()
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.grad, p[name].grad, atol=1e-10, rtol=1e-7)
    for name, parameter in learned.named_parameters():
        torch.testing.assert_close(parameter.grad, q[name].grad, atol=1e-10, rtol=1e-7)
        assert parameter.grad.norm() > 0


def test_an_update_moves_the_network_and_the_learned_loss():
    net, batches = literal.network(), literal.domain_batches()
    algorithm = arm(net, OptimizerSettings(literal.CLASSES, lr=0.1)).double()
    before = {name: p.detach().clone() for name, p in algorithm.named_parameters()}
    numbers = algorithm.update(batches, torch.Generator())
    assert 0 <= numbers["accuracy"] <= 100
    moved = [name for name, p in algorithm.named_parameters() if not torch.equal(p, before[name])]
    assert any(name.startswith("heads") for name in moved)
    assert any("c1" in name for name in moved)


def test_the_bn_variant_normalizes_each_domain_by_itself():
    net, batches = literal.network(), literal.domain_batches()
    p = literal.table(net)
    loss = arm(net, OptimizerSettings(literal.CLASSES), variant="bn").update(batches, torch.Generator())["loss"]
    alone = [literal.cross_entropy(literal.forward(p, b.images), b.labels) for b in batches]
    assert loss == pytest.approx(float(sum(alone).detach() / 3), rel=1e-9)


def test_all_domains_pass_together_each_with_a_context_of_its_own():
    """Norm layers see all domains, so that their running statistics suit the network without adaptation."""
    net, batches = literal.network(), literal.domain_batches()
    algorithm = arm(net, OptimizerSettings(literal.CLASSES), variant="cml", context=2).double().train()
    p, context = literal.table(net), copy.deepcopy(algorithm.network.context)
    seen = context(torch.cat([b.images for b in batches]))
    means = [seen[6 * at : 6 * at + 6].mean(0) for at in range(3)]
    rows = [torch.cat([image, means[at]]) for at, b in enumerate(batches) for image in b.images]
    expected = literal.cross_entropy(literal.forward(p, torch.stack(rows)), torch.cat([b.labels for b in batches]))
    first = torch.nn.functional.conv2d(torch.stack(rows), p["c1.weight"], padding=1).mean((0, 2, 3)).detach()
    running = 0.9 * net.bn1.running_mean + 0.1 * first
    assert algorithm.update(batches, torch.Generator())["loss"] == pytest.approx(float(expected.detach()), rel=1e-9)
    torch.testing.assert_close(net.bn1.running_mean, running, atol=1e-9, rtol=1e-9)


def test_the_context_is_the_mean_over_the_batch():
    net, batches = literal.network(), literal.domain_batches()
    algorithm = arm(net, OptimizerSettings(literal.CLASSES), variant="cml", context=2).double()
    assert isinstance(algorithm.network, ContextNetwork)
    assert net.c1.weight.shape[1] == 5
    assert torch.equal(net.c1.weight[:, 3:], net.c1.weight[:, :2])  # the new channels repeat red and green
    algorithm.update(batches, torch.Generator())
    algorithm.eval()
    images = batches[0].images
    summary = sum(algorithm.network.context(image[None]) for image in images) / len(images)
    one = net(torch.cat([images[:1], summary], dim=1))
    torch.testing.assert_close(algorithm.network(images)[:1], one)
    assert not torch.allclose(algorithm.network(images)[:1], algorithm.network(images[:1]))


@pytest.mark.parametrize(("variant", "method"), [("ll", "arm"), ("bn", "adabn")])
def test_weights_are_chosen_by_what_adaptation_will_answer(variant, method):
    net, images = literal.network(), literal.domain_batches(1)[0].images
    algorithm = arm(net, OptimizerSettings(literal.CLASSES), variant=variant).double().eval()
    held = copy.deepcopy(net.state_dict())
    heads = {name: head.state_dict() for name, head in algorithm.heads.items()}
    expected = da.adapt(net, method, **heads)(images)
    torch.testing.assert_close(algorithm.predict(images).detach(), expected, atol=1e-9, rtol=1e-7)
    assert not any(layer.training for layer in net.modules())
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, held[name])
    torch.testing.assert_close(algorithm.predict(images[:1]), net(images[:1]))


def test_what_was_not_pretrained_learns_faster():
    algorithm = arm(literal.network(), OptimizerSettings(literal.CLASSES), variant="cml", context=2)
    fast = {id(p) for p in algorithm.optimizer.param_groups[1]["params"]}
    named = {name for name, p in algorithm.network.named_parameters() if id(p) in fast}
    assert {name.partition(".")[0] for name in named} == {"context", "network"}
    assert {name for name in named if name.startswith("network.")} == {"network.fc.weight", "network.fc.bias"}


def test_statistics_are_estimated_with_a_context_for_each_domain():
    net = literal.network()
    rounds = [literal.domain_batches(seed=at) for at in range(2)]
    algorithm = arm(net, OptimizerSettings(literal.CLASSES), variant="cml", context=2).double().eval()
    SWAD().finish(algorithm.network, iter(rounds), algorithm.joint_logits)
    context, means = algorithm.network.context.train(), []
    for batches in rounds:
        seen = context(torch.cat([b.images for b in batches]))
        rows = [
            torch.cat([image, seen[6 * at : 6 * at + 6].mean(0)]) for at, b in enumerate(batches) for image in b.images
        ]
        means.append(torch.nn.functional.conv2d(torch.stack(rows), net.c1.weight, padding=1).mean((0, 2, 3)))
    torch.testing.assert_close(net.bn1.running_mean, (sum(means) / 2).detach(), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    ("variant", "option"), [("ll", {"context": 2}), ("bn", {"inner_lr": 0.2}), ("cml", {"learns": "all"})]
)
def test_options_of_another_variant_are_refused(variant, option):
    with pytest.raises(BadOption, match="has no effect"):
        arm(literal.network(), OptimizerSettings(literal.CLASSES), variant=variant, **option)
