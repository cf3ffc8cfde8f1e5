"""Bad batches, odd networks, and what a result says about them."""

import copy

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.errors import UnsupportedNetwork
from tests.conftest import PER_IMAGE, GoldenNet, batch, make, stir, suited

METHODS = list(da.list_methods())
MIXING = [name for name in METHODS if make(suited(stir(GoldenNet()), name), name).adapt(batch(4, 3, 12, 12)).alpha]


@pytest.mark.parametrize("method", METHODS)
def test_no_images_give_an_empty_answer(method, net):
    result = make(net, method).adapt(torch.zeros(0, 3, 12, 12))
    assert result.logits.shape == result.before.shape == (0, 7)
    assert result.loss is None
    assert "empty" in result.note
    assert make(net, method)(torch.zeros(0, 3, 12, 12)).shape == (0, 7)
    assert make(net, method).adapted_network(torch.zeros(0, 3, 12, 12)).state_dict().keys() == net.state_dict().keys()


HOSTILE = {
    "one image": batch(1, 3, 12, 12),
    "identical": batch(1, 3, 12, 12).expand(8, -1, -1, -1),
    "constant": torch.ones(8, 3, 12, 12),
    "zeros": torch.zeros(4, 3, 12, 12),
    "huge": 1e15 * batch(4, 3, 12, 12),
    "enormous": 1e37 * batch(4, 3, 12, 12),
    "tiny": 1e-38 * batch(4, 3, 12, 12),
    "one pixel": batch(6, 3, 1, 1),
    "one pixel, one image": batch(1, 3, 1, 1),
    "two pixels": batch(2, 3, 1, 2),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("method", METHODS)
def test_hostile_batches_stay_finite(method, case, net):
    adaptor = make(net, method, **({"lr": 0.05} if method.startswith("domain") else {}))
    result = adaptor.adapt(HOSTILE[case])
    source = net(HOSTILE[case])
    assert torch.isfinite(result.logits).all() or not torch.isfinite(source).all()
    if result.fell_back:
        assert torch.equal(result.logits, source.detach())
        assert "source model's" in result.note


@pytest.mark.parametrize("method", MIXING)
def test_one_value_per_channel_is_noted(method, net):
    result = make(net, method).adapt(batch(1, 3, 1, 1))
    assert result.note.startswith("one value per channel")
    assert set(result.alpha.values()) == {1.0}
    if method not in PER_IMAGE:
        assert "one value" not in (make(net, method).adapt(batch(2, 3, 1, 1)).note or "")


def test_dead_channels_stay_finite(net, images):
    with torch.no_grad():
        net.c2.weight[3].zero_()
        net.bn1.weight[2] = 0
        net.bn3.running_var[1] = 0
    for method in METHODS:
        ready = suited(copy.deepcopy(net), method)
        result = make(ready, method, **({"lr": 0.05} if method.startswith("domain") else {})).adapt(images)
        assert torch.isfinite(result.logits).all()
        assert not result.fell_back


def test_equal_logits_stay_finite(net, images):
    nn.init.zeros_(net.fc.weight)
    nn.init.zeros_(net.fc.bias)
    for method in METHODS:
        result = make(suited(copy.deepcopy(net), method), method).adapt(images)
        assert torch.isfinite(result.logits).all()
        assert not result.fell_back
        if da.method_info(method).kind != "prediction":
            torch.testing.assert_close(result.logits, torch.zeros(8, 7), atol=1e-6, rtol=0)  # entropies are flat there


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_loss_or_gradient_that_is_not_finite_takes_no_step(where, net, images, monkeypatch):
    from domainadaptor.adaptation import step

    if where == "loss":
        monkeypatch.setattr("domainadaptor.adaptation.losses.entropy", lambda z: z.sum(1) * float("nan"))
    else:
        real = step.compute_gradients
        monkeypatch.setattr(step, "compute_gradients", lambda *a: [g * float("inf") for g in real(*a)])
    result = da.adapt(net, "domainadaptor-t").adapt(images)
    assert torch.equal(result.logits, net(images))
    assert result.loss is None
    assert where in result.note
    assert "not finite" in result.note


def test_steps_that_are_far_too_long_fall_back(net, images):
    with torch.no_grad():
        net.fc.weight.mul_(1e4)
    adaptor = da.adapt(net, "domainadaptor-t", lr=3e38)
    result = adaptor.adapt(images)
    assert result.fell_back
    assert torch.equal(result.logits, net(images))
    assert "lr" in result.note
    assert torch.equal(adaptor.adapted_network(images)(images), net(images))


def test_no_step_changes_nothing(net, images):
    expected = da.adapt(net, "adamixbn")(images)
    for options in ({"lr": 0.0}, {"steps": 0}):
        torch.testing.assert_close(da.adapt(net, "domainadaptor-t", **options)(images), expected, atol=1e-5, rtol=1e-5)


class Twice(GoldenNet):
    """One norm layer, used twice, at two resolutions."""

    def forward(self, x):
        h = torch.relu(self.bn1(self.c1(x)))
        h = torch.relu(self.bn1(nn.functional.avg_pool2d(h, 2) + 1))
        h = torch.relu(self.bn2(self.c2(h)))
        return self.fc(h.mean((2, 3)))


def test_a_layer_used_twice_is_mixed_but_neither_folded_nor_stepped(images):
    net = stir(Twice())
    adaptor = da.adapt(net, "domainadaptor-t", lr=0.1)
    result = adaptor.adapt(images)
    assert list(result.alpha) == ["bn1[0]", "bn1[1]", "bn2"]
    assert result.alpha["bn1[0]"] != result.alpha["bn1[1]"]
    assert "used more than once" in next(layer.why for layer in adaptor.layers() if layer.name == "bn1")
    assert not torch.equal(result.logits, result.before)
    unfolded = da.adapt(net, "adamixbn", fold=False).adapt(images)
    torch.testing.assert_close(result.before, unfolded.logits, atol=1e-5, rtol=1e-5)
    with pytest.raises(UnsupportedNetwork, match="bn1 was used more than once"):
        adaptor.adapted_network(images)
    for options in ({"alpha": 1.0, "fold": False}, {"alpha": 1.0}):
        torch.testing.assert_close(da.adapt(net, "adamixbn", **options)(images), net(images).detach())


def test_a_layer_used_twice_against_a_slow_form(images):
    """The gradient of the stepped layer flows through both uses of the other one, whose own scale stays."""
    net = stir(Twice()).double()
    x = images.double()
    got = da.adapt(net, "adamixbn", loss="entropy", alpha=0.5, lr=0.1).adapt(x)

    def mixed(h, bn, scale, shift):
        mean, var = h.mean((0, 2, 3)), h.var((0, 2, 3))
        mean, var = 0.5 * bn.running_mean + 0.5 * mean, 0.5 * bn.running_var + 0.5 * var
        view = (1, -1, 1, 1)
        return (h - mean.view(view)) / (var + bn.eps).sqrt().view(view) * scale.view(view) + shift.view(view)

    def run(leaves):
        h = torch.relu(mixed(net.c1(x), net.bn1, net.bn1.weight, net.bn1.bias))
        h = torch.relu(mixed(nn.functional.avg_pool2d(h, 2) + 1, net.bn1, net.bn1.weight, net.bn1.bias))
        h = net.c2(h)
        mean, var = h.mean((0, 2, 3)), h.var((0, 2, 3))
        if not leaves:
            with torch.no_grad():
                scale = (var + 1e-5).sqrt() / (0.5 * net.bn2.running_var + 0.5 * var + 1e-5).sqrt() * net.bn2.weight
                shift = 0.5 * (mean - net.bn2.running_mean) / (var + 1e-5).sqrt() * scale + net.bn2.bias
            leaves += [scale.requires_grad_(), shift.requires_grad_()]
        view = (1, -1, 1, 1)
        h = (h - mean.view(view)) / (var + 1e-5).sqrt().view(view) * leaves[0].view(view) + leaves[1].view(view)
        return net.fc(torch.relu(h).mean((2, 3)))

    leaves: list = []
    z = run(leaves)
    loss = -(z.softmax(1) * z.log_softmax(1)).sum(1).mean()
    gradients = torch.autograd.grad(loss, leaves)
    after = run([leaf - 0.1 * g for leaf, g in zip(leaves, gradients, strict=True)])
    torch.testing.assert_close(got.before, z.detach())
    torch.testing.assert_close(got.logits, after.detach())


def test_only_layers_used_twice_means_no_step(images):
    class Only(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bn, self.fc = nn.BatchNorm2d(3), nn.Linear(3, 4)

        def forward(self, x):
            return self.fc(torch.relu(self.bn(self.bn(x))).mean((2, 3)))

    result = da.adapt(stir(Only()), "domainadaptor-t").adapt(images)
    assert result.loss is None
    assert result.note.startswith("no step")
    assert torch.equal(result.logits, result.before)


def test_a_norm_that_is_not_used_is_listed_and_does_not_matter(images):
    class Aux(Twice):
        def forward(self, x):
            h = torch.relu(self.bn1(self.c1(x)))
            return self.fc(torch.relu(self.c2(self.bn1(h))).mean((2, 3)))

    adaptor = da.adapt(stir(Aux()), "domainadaptor-t")
    assert adaptor.adapt(images).note.startswith("no step")
    reports = {layer.name: layer for layer in adaptor.layers()}
    assert not reports["bn2"].adapts
    assert "not used" in reports["bn2"].why


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_blocks(reentrant, net, images):
    from torch.utils.checkpoint import checkpoint

    class Saving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net

        def second(self, h):
            return torch.relu(self.inner.bn2(self.inner.c2(h)))

        def forward(self, x):
            h = torch.relu(self.inner.bn1(self.inner.c1(x)))
            h = checkpoint(self.second, h, use_reentrant=reentrant)
            return self.inner.fc(torch.relu(self.inner.bn3(self.inner.c3(h)) + h).mean((2, 3)))

    expected = da.adapt(net, "domainadaptor-t", lr=0.1)(images)
    torch.testing.assert_close(da.adapt(Saving(), "domainadaptor-t", lr=0.1)(images), expected, atol=1e-5, rtol=1e-5)


def test_an_eps_of_zero(net, images):
    net.bn2.eps = 0.0
    result = da.adapt(net, "domainadaptor-t", lr=0.1).adapt(images)
    net.bn2.eps = 1e-12
    near = da.adapt(net, "domainadaptor-t", lr=0.1).adapt(images)
    torch.testing.assert_close(result.logits, near.logits, atol=1e-4, rtol=1e-4)
    assert not torch.equal(result.logits, result.before)


def test_forwards_and_hooks_may_look_at_norm_layers(images):
    class Looking(GoldenNet):
        def forward(self, x):
            assert self.bn1.num_features == 8
            return super().forward(x.to(self.bn1.weight.dtype) + 0 * self.bn1.running_mean.sum())

    net = stir(Looking())
    seen = []
    net.bn2.register_forward_hook(lambda module, args, output: seen.append(float(module.running_var.sum())))
    da.adapt(net, "domainadaptor-t")(images)
    assert seen == [float(net.bn2.running_var.sum())] * 2


class Sometimes(GoldenNet):
    """Uses a layer twice for large batches only."""

    def forward(self, x):
        h = torch.relu(self.bn1(self.c1(x)))
        h = self.bn1(h) if len(x) > 4 else h
        h = torch.relu(self.bn2(self.c2(h)))
        return self.fc(h.mean((2, 3)))


def test_answers_do_not_depend_on_what_came_before_even_if_the_layers_used_do(images):
    net = stir(Sometimes())
    small, large = (da.adapt(net, "domainadaptor-t", lr=0.1)(x) for x in (images[:3], images))
    adaptor = da.adapt(net, "domainadaptor-t", lr=0.1)
    for x, expected in [(images, large), (images[:3], small), (images, large), (images[:3], small)]:
        assert torch.equal(adaptor(x), expected)


def test_networks_that_hide_their_gradient_are_explained(net, images):
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net

        @torch.no_grad()
        def forward(self, x):
            return self.inner(x)

    with pytest.raises(UnsupportedNetwork, match="no_grad"):
        da.adapt(Hidden(), "domainadaptor-t")(images)
    da.adapt(Hidden(), "adamixbn")(images)


def test_norms_that_are_never_used_are_explained(images):
    class Unused(GoldenNet):
        def forward(self, x):
            return self.fc(torch.relu(self.c2(self.c1(x))).mean((2, 3)))

    with pytest.raises(UnsupportedNetwork, match="used none of its norm layers"):
        da.adapt(stir(Unused()), "adamixbn")(images)


def test_nothing_to_learn_is_refused_when_built():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False))
    with pytest.raises(UnsupportedNetwork, match="loss=None"):
        da.adapt(net, "domainadaptor-t")
    da.adapt(net, "adamixbn")


def test_frozen_norms_are_adapted_whatever_their_flags_say(net, images):
    free = da.adapt(net, "domainadaptor-t", lr=0.1)(images)
    net.requires_grad_(False)
    assert torch.equal(da.adapt(net, "domainadaptor-t", lr=0.1)(images), free)


def test_hooks_of_the_user_go_on_firing(net, images):
    calls = []
    net.bn2.register_forward_hook(lambda module, args, output: calls.append(tuple(output.shape)))
    da.adapt(net, "domainadaptor-t")(images)
    assert calls == [(8, 16, 6, 6)] * 2


def test_backward_hooks_of_the_user_go_on_firing(net, images):
    calls = []
    net.bn2.register_full_backward_hook(lambda module, inward, outward: calls.append(tuple(outward[0].shape)))
    da.adapt(net, "domainadaptor-t")(images)
    assert calls == [(8, 16, 6, 6)]


def test_tied_norm_parameters_learn_apart(net, images):
    net.bn3.weight, net.bn3.bias = net.bn2.weight, net.bn2.bias
    adaptor = da.adapt(net, "domainadaptor-t", lr=0.1)
    result = adaptor.adapt(images)
    assert not torch.equal(result.logits, result.before)


def test_a_result_tells_the_loss_and_alpha_of_every_layer(net, images):
    result = da.adapt(net, "domainadaptor-t").adapt(images)
    assert list(result.alpha) == ["bn1", "bn2", "bn3"]
    assert all(isinstance(a, float) and 1 / 3 <= a <= 1 for a in result.alpha.values())
    assert isinstance(result.loss, float)
    assert result.note is None
    assert da.adapt(net, "adamixbn").adapt(images).loss is None
    assert da.adapt(net, "source").adapt(images).alpha == {}
