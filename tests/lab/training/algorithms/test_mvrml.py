import copy

import torch

from domainadaptor.lab.training.algorithm import OptimizerSettings
from domainadaptor.lab.training.algorithms.mvrml import mvrml
from tests.lab.training.algorithms import literal


def test_the_update_is_the_literal_one():
    """Trajectories on copies of the network, with an Adam that is carried over, then a step toward their mean."""
    net = literal.network()
    rounds = [literal.domain_batches(seed=at) for at in range(6)]
    settings = OptimizerSettings(literal.CLASSES, lr=0.01, head_lr=3, weight_decay=0.01)
    algorithm = mvrml(net, settings, trajectories=3, length=2, outer_lr=0.4)
    start = literal.table(net)
    algorithm.update([b for batches in rounds for b in batches], torch.Generator().manual_seed(3))

    draw = torch.Generator().manual_seed(3)
    p = {name: t.detach().clone().requires_grad_() for name, t in start.items()}
    head = [p["fc.weight"], p["fc.bias"]]
    body = [t for name, t in p.items() if not name.startswith("fc.")]
    adam = torch.optim.Adam([{"params": body}, {"params": head, "lr": 0.03}], lr=0.01, weight_decay=0.01)
    ends = []
    for trajectory in range(3):
        with torch.no_grad():
            for name in p:
                p[name].copy_(start[name])
        for step in range(2):
            batches = rounds[2 * trajectory + step]
            order = torch.randperm(3, generator=draw).tolist()
            for part in (order[:2], order[2:]):
                images = torch.cat([batches[at].images for at in part])
                labels = torch.cat([batches[at].labels for at in part])
                adam.zero_grad()
                literal.cross_entropy(literal.forward(p, images), labels).backward()
                adam.step()
        ends.append({name: t.detach().clone() for name, t in p.items()})
    for name, parameter in net.named_parameters():
        mean = sum(end[name] for end in ends) / 3
        expected = start[name].detach() - 0.4 * (start[name].detach() - mean)
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-9, rtol=1e-7)


def test_statistics_are_estimated_anew_over_half_the_batches():
    net = literal.network()
    algorithm = mvrml(net, OptimizerSettings(literal.CLASSES))
    rounds = [literal.domain_batches(seed=at) for at in range(8)]
    algorithm.before_validation(iter(rounds), len(rounds))
    means = [net.c1(torch.cat([b.images for b in batches])).mean((0, 2, 3)) for batches in rounds[:4]]
    torch.testing.assert_close(net.bn1.running_mean, sum(means) / 4)


def test_it_goes_on_with_the_inner_optimizer():
    batches = [b for at in range(9) for b in literal.domain_batches(seed=at)]
    one = mvrml(literal.network(), OptimizerSettings(literal.CLASSES, lr=0.1))
    one.update(batches, torch.Generator().manual_seed(0))
    state = copy.deepcopy(one.resume_state())
    other = mvrml(literal.network(1), OptimizerSettings(literal.CLASSES, lr=0.1))
    other.resume(state)
    for algorithm in (one, other):
        algorithm.update(batches, torch.Generator().manual_seed(1))
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_in_half_precision_every_step_sees_the_weights_of_the_last():
    """Autocast keeps copies of weights, by which all steps of a trajectory would start from the same ones."""
    batches = [b for at in range(9) for b in literal.domain_batches(seed=at)]
    moved = []
    for half in (False, True):
        net = literal.network().float()
        start = torch.cat([p.detach().flatten() for p in net.parameters()])
        single = [b._replace(images=b.images.float()) for b in batches]
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            mvrml(net, OptimizerSettings(literal.CLASSES, lr=0.01)).update(single, torch.Generator().manual_seed(0))
        moved.append(torch.cat([p.detach().flatten() for p in net.parameters()]) - start)
    assert torch.cosine_similarity(*moved, dim=0) > 0.95
