import pytest
import torch

from domainadaptor.adaptation import losses
from tests.conftest import batch

LOSSES = {
    "entropy": lambda z: losses.entropy(z),
    "slr": lambda z: losses.slr(z),
    **{
        f"{name} {rule}": lambda z, loss=loss, rule=rule: losses.with_temperature(loss, rule, 2.0, z)
        for name, loss in (("gem-t", losses.gem_t), ("gem-skd", losses.gem_skd))
        for rule in ("code", "per_image", "batch_mean", 1.5)
    },
}
HOSTILE = {
    "equal": torch.full((4, 5), 3.0),
    "zeros": torch.zeros(4, 5),
    "huge": torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]]),
    "one class wins": torch.tensor([[200.0, 0.0, 0.0], [0.0, 200.0, 0.0]]),
    "tiny": torch.full((2, 3), 1e-30),
    "two classes": torch.tensor([[60.0, -60.0]]),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("case", HOSTILE)
def test_extreme_and_equal_logits_stay_finite(name, case):
    z = HOSTILE[case].clone().requires_grad_()
    loss = LOSSES[name](z)
    assert loss.shape == (len(z),)
    (gradient,) = torch.autograd.grad(loss.mean(), z)
    assert torch.isfinite(loss).all()
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("name", LOSSES)
def test_a_constant_added_to_the_logits_changes_nothing(name):
    z = batch(6, 5, dtype=torch.float64)
    torch.testing.assert_close(LOSSES[name](z + 7.0), LOSSES[name](z), atol=1e-9, rtol=1e-9)


def test_gem_t_at_temperature_one_is_entropy():
    z = batch(6, 5, dtype=torch.float64).requires_grad_()
    hot, plain = losses.with_temperature(losses.gem_t, 1.0, 2.0, z), losses.entropy(z)
    torch.testing.assert_close(hot, plain)
    torch.testing.assert_close(*(torch.autograd.grad(loss.mean(), z)[0] for loss in (hot, plain)))


@pytest.mark.parametrize("tau_q", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("name", ["gem-t", "gem-skd"])
def test_closed_form_gradient_of_the_paper(name, tau_q):
    """dL/dz_k = -tau_q^2 [(p_k - q_k) / tau_q + p_k / tau_p (log q_k - sum p log q)], the last term only through p."""
    z = batch(6, 5, dtype=torch.float64).requires_grad_()
    tau_p = tau_q if name == "gem-t" else 1.0
    p, q = (z.detach() / tau_p).softmax(1), (z.detach() / tau_q).softmax(1)
    expected = (p - q) / tau_q
    if name == "gem-t":
        expected = expected + p / tau_p * (q.log() - (p * q.log()).sum(1, keepdim=True))
    loss = losses.with_temperature({"gem-t": losses.gem_t, "gem-skd": losses.gem_skd}[name], tau_q, 2.0, z)
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    torch.testing.assert_close(gradient, -(tau_q**2) * expected)


def test_a_confident_image_has_a_vanishing_entropy_gradient_and_a_large_gem_gradient():
    z = torch.tensor([[30.0, 0.0, 0.0, 0.0]], requires_grad=True)
    entropy = torch.autograd.grad(losses.entropy(z).sum(), z)[0].norm()
    for loss in (losses.gem_t, losses.gem_skd):
        gem = torch.autograd.grad(losses.with_temperature(loss, "code", 2.0, z).sum(), z)[0].norm()
        assert gem > 1
        assert gem > 1e6 * entropy


def test_temperature_rules():
    z = batch(6, 5, dtype=torch.float64)
    own = 2.0 * z.std(1)
    code, per_image, mean, fixed = (
        losses.temperature(z, rule, 2.0) for rule in ("code", "per_image", "batch_mean", 3.0)
    )
    torch.testing.assert_close(code.tau.squeeze(1), own)
    torch.testing.assert_close(code.factor, (own**2).mean().expand(6))
    torch.testing.assert_close(per_image.factor, own**2)
    torch.testing.assert_close(mean.tau.squeeze(1), own.mean().expand(6))
    torch.testing.assert_close(mean.factor, (own.mean() ** 2).expand(6))
    assert (fixed.tau == 3).all()
    assert (fixed.factor == 9).all()
