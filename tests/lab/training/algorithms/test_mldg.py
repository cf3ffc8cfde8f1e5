import pytest
import torch

from domainadaptor.errors import BadOption
from domainadaptor.lab.training.algorithm import OptimizerSettings, concatenate
from domainadaptor.lab.training.algorithms.mldg import mldg
from tests.lab.training.algorithms import literal


@pytest.mark.parametrize("second_order", [False, True])
@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_the_outer_gradient_is_the_literal_one(second_order, beta):
    net, batches = literal.network(), literal.domain_batches()
    algorithm = mldg(net, OptimizerSettings(literal.CLASSES, lr=0.3), beta=beta, second_order=second_order)
    p = literal.table(net)
    images, labels = concatenate(batches[:2])
    loss, _ = algorithm.outer_loss(images, labels, batches[2])
    loss.backward()

    train = literal.cross_entropy(literal.forward(p, images), labels)
    after = literal.descended(p, train, list(p), 0.3, second_order)
    expected = train + beta * literal.cross_entropy(literal.forward(after, batches[2].images), batches[2].labels)
    expected.backward()
    torch.testing.assert_close(loss, expected)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.grad, p[name].grad, atol=1e-10, rtol=1e-8)


def test_second_order_makes_a_difference():
    gradients = []
    for second_order in (False, True):
        net, batches = literal.network(), literal.domain_batches()
        algorithm = mldg(net, OptimizerSettings(literal.CLASSES, lr=0.3), second_order=second_order)
        algorithm.outer_loss(*concatenate(batches[:2]), batches[2])[0].backward()
        gradients.append(net.fc.weight.grad.clone())
    assert (gradients[0] - gradients[1]).norm() > 1e-3 * gradients[0].norm()


def test_the_inner_step_leaves_no_trace_in_the_running_statistics():
    net, other, batches = literal.network(), literal.network(), literal.domain_batches()
    algorithm = mldg(net, OptimizerSettings(literal.CLASSES), second_order=True)
    algorithm.outer_loss(*concatenate(batches[:2]), batches[2])
    other(concatenate(batches[:2])[0])
    for name, buffer in net.named_buffers():
        torch.testing.assert_close(buffer, dict(other.named_buffers())[name])


def test_every_domain_is_left_out_now_and_then():
    algorithm = mldg(literal.network(), OptimizerSettings(literal.CLASSES, lr=0.0))
    seen = set()
    held = algorithm.outer_loss
    algorithm.outer_loss = lambda images, labels, out: seen.add(out.domain) or held(images, labels, out)
    for seed in range(20):
        algorithm.update(literal.domain_batches(), torch.Generator().manual_seed(seed))
    assert len(seen) == 3


def test_one_domain_is_refused():
    with pytest.raises(BadOption, match="two or more"):
        mldg(literal.network(), OptimizerSettings(literal.CLASSES)).update(literal.domain_batches(1), torch.Generator())
