import pytest
import torch

from domainadaptor.norms.gradient import normalized
from domainadaptor.norms.moments import Moments
from tests.conftest import batch

EPS = 1e-3


def literal(x, scale, shift, unbiased: bool):
    space = [0, *range(2, x.ndim)]
    shape = (1, -1, *[1] * (x.ndim - 2))
    mean, var = x.mean(space, keepdim=True), x.var(space, keepdim=True, correction=int(unbiased))
    return (x - mean) / (var + EPS).sqrt() * scale.view(shape) + shift.view(shape)


def ours(x, scale, shift, unbiased: bool):
    space, count = [0, *range(2, x.ndim)], x.numel() // x.shape[1]
    moments = Moments(x.detach().mean(space), x.detach().var(space, correction=int(unbiased)))
    return normalized(x, scale, shift, moments, EPS, count / (count - 1) if unbiased else 1.0)


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (4, 3, 2, 3), (4, 3, 2, 2, 2)])
def test_value_and_gradients_are_those_of_the_formula(shape, unbiased):
    leaves = [t.double().requires_grad_() for t in (batch(*shape), *batch(2, 3, seed=1))]
    weights = batch(*shape, seed=2).double()
    results = [layer(*leaves, unbiased) for layer in (literal, ours)]
    torch.testing.assert_close(*results, atol=1e-12, rtol=1e-12)
    gradients = [torch.autograd.grad((weights * result).sum(), leaves) for result in results]
    for expected, got in zip(*gradients, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=1e-12)


def test_gradients_have_gradients_too():
    leaves = [t.double().requires_grad_() for t in (batch(4, 3, 2, 2), *batch(2, 3, seed=1))]
    assert torch.autograd.gradgradcheck(lambda *given: ours(*given, True), leaves)


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_one_gradient_alone(wanted):
    leaves = [t.double() for t in (batch(4, 3, 2, 2), *batch(2, 3, seed=1))]
    leaves[wanted].requires_grad_()
    got, expected = (layer(*leaves, True).square().sum() for layer in (ours, literal))
    ours_, theirs = (torch.autograd.grad(loss, leaves[wanted])[0] for loss in (got, expected))
    torch.testing.assert_close(ours_, theirs, atol=1e-10, rtol=1e-10)
