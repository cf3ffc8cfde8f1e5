import pytest
import torch

from domainadaptor.lab.training.algorithm import OptimizerSettings, concatenate
from domainadaptor.lab.training.algorithms.erm import erm
from tests.lab.training.algorithms import literal


def test_the_update_is_nesterov_sgd_with_a_faster_head():
    net, batches = literal.network(), literal.domain_batches()
    start, images, labels = literal.table(net), *concatenate(batches)
    algorithm = erm(net, OptimizerSettings(literal.CLASSES, lr=0.01, head_lr=10, momentum=0.9, weight_decay=0.1))
    algorithm.update(batches, torch.Generator())
    literal.cross_entropy(literal.forward(start, images), labels).backward()
    for name, parameter in net.named_parameters():
        p = start[name].detach()
        lr = 0.1 if name.startswith("fc") else 0.01
        gradient = start[name].grad + 0.1 * p
        torch.testing.assert_close(parameter.detach(), p - lr * (gradient + 0.9 * gradient))


@pytest.mark.parametrize("task", ["rotation", "jigsaw"])
def test_a_task_adds_its_weighted_loss_and_learns_a_head(task):
    net, twin, batches = literal.network(), literal.network(), literal.domain_batches()
    algorithm = erm(net, OptimizerSettings(literal.CLASSES), tasks=(task,)).double()
    plain = literal.cross_entropy(literal.forward(literal.table(net), concatenate(batches)[0]), concatenate(batches)[1])
    before = {name: p.detach().clone() for name, p in algorithm.heads.named_parameters()}
    numbers = algorithm.update(batches, torch.Generator().manual_seed(0))
    weight = {"rotation": 1.0, "jigsaw": 0.1}[task]
    assert numbers["loss"] == pytest.approx(float(plain.detach()) + weight * numbers[f"{task}_loss"], rel=1e-9)
    assert all(not torch.equal(p, before[name]) for name, p in algorithm.heads.named_parameters())
    twin(concatenate(batches)[0])
    torch.testing.assert_close(net.bn1.running_mean, twin.bn1.running_mean)
