"""Whole ResNets in float32, channels last or not, against the formulas in float64 with autograd alone."""

import copy

import pytest
import torch
from torch import nn

import domainadaptor as da
from tests.conftest import batch, stir
from tests.reference.literal import loss_of


class LiteralNorm(nn.Module):
    """AdaMixBN by the authors' rule, folded by its first pass; later passes take batch statistics."""

    def __init__(self, bn: nn.BatchNorm2d) -> None:
        super().__init__()
        self.mu, self.var, self.eps, self.folded = bn.running_mean, bn.running_var, bn.eps, False
        self.gamma, self.beta = nn.Parameter(bn.weight.detach()), nn.Parameter(bn.bias.detach())

    def forward(self, x):
        mu, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
        if not self.folded:
            with torch.no_grad():
                alpha = self.alpha(x, mu, var)
                gamma = ((var + self.eps) / (alpha * self.var + (1 - alpha) * var + self.eps)).sqrt() * self.gamma
                self.beta += alpha * (mu - self.mu) / (var + self.eps).sqrt() * gamma
                self.gamma.copy_(gamma)
            self.folded = True
        shape = (1, -1, 1, 1)
        normal = (x - mu.view(shape)) / (var.view(shape) + self.eps).sqrt()
        return normal * self.gamma.view(shape) + self.beta.view(shape)

    def alpha(self, x, mu, var):
        def apart(one, other):
            return ((one[0] - other[0]) ** 2).mean(-1) + ((one[1].sqrt() - other[1].sqrt()) ** 2).mean(-1)

        images, target, source = (x.mean((2, 3)), x.var((2, 3))), (mu, var), (self.mu, self.var)
        st, it, is_ = apart(source, target), apart(images, target), apart(images, source)
        return (1 - st / (st + it + is_)).mean()


def literal(network: nn.Module, x, loss: str | None, lr: float, later: tuple[str, ...] = ("",)):
    """Logits after a step on the layers whose names begin with one of `later`."""
    network = copy.deepcopy(network).double()
    norms = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.BatchNorm2d)]
    network.requires_grad_(False)
    for name, layer in norms:
        parent, _, last = name.rpartition(".")
        setattr(network.get_submodule(parent), last, LiteralNorm(layer))
    logits = network(x.double())
    if loss is None:
        return logits.detach()
    learns = [p for name, p in network.named_parameters() if p.requires_grad and name.startswith(later)]
    assert len(learns) == 2 * sum(name.startswith(later) for name, _ in norms)
    gradients = torch.autograd.grad(loss_of(loss, logits, "code", 2.0), learns)
    with torch.no_grad():
        for p, gradient in zip(learns, gradients, strict=True):
            p -= lr * gradient
        return network(x.double())


@pytest.mark.slow
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("method", ["adamixbn", "domainadaptor-t", "domainadaptor-skd"])
@pytest.mark.parametrize(("make", "lr"), [("resnet18", 0.1), ("resnet50", 0.004)])
def test_logits_of_a_resnet_are_those_of_the_formulas(make, lr, method, layout):
    torch.manual_seed(0)
    network = stir(getattr(pytest.importorskip("torchvision.models"), make)(num_classes=20)).to(memory_format=layout)
    x = batch(4, 3, 64, 64).contiguous(memory_format=layout)
    loss = {"domainadaptor-t": "gem-t", "domainadaptor-skd": "gem-skd"}.get(method)
    expected = literal(network, x, loss, lr)
    adaptor = da.adapt(network, method, **({"lr": lr} if loss else {}))
    for _ in range(2):  # the first batch is not like the others
        result = adaptor.adapt(x)
        assert result.note is None
        assert (result.logits - expected).abs().max() < 1e-4 * expected.abs().max()
    if loss:  # the step is not so small that it could be left out
        assert (result.before - expected).abs().max() > 1e-3 * expected.abs().max()


STAGES = ["conv1", "layer1", "layer2", "layer3", "layer4"]


@pytest.mark.parametrize(
    ("adapt_from", "first", "steps"),
    [(0.05, 1, 1), (0.25, 2, 1), (0.5, 3, 1), (0.5, 3, 2), (0.75, 4, 1)],  # of twenty layers
)
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_only_later_stages_of_a_resnet_learn_and_run_again(monkeypatch, adapt_from, first, steps, layout):
    torch.manual_seed(0)
    network = stir(pytest.importorskip("torchvision.models").resnet18(num_classes=5).double()).to(memory_format=layout)
    x = batch(3, 3, 64, 64, dtype=torch.float64).contiguous(memory_format=layout)
    adaptor = da.adapt(network, "domainadaptor-t", lr=0.1, adapt_from=adapt_from, steps=steps)
    adaptor(x)
    stages = {p.data_ptr(): name.partition(".")[0] for name, p in network.named_parameters() if p.ndim == 4}
    ran: list[str] = []
    inner = nn.Conv2d._conv_forward

    def counted(self, x, weight, bias):
        ran.append(stages[weight.data_ptr()])
        return inner(self, x, weight, bias)

    monkeypatch.setattr(nn.Conv2d, "_conv_forward", counted)
    result = adaptor.adapt(x)
    monkeypatch.undo()
    held = [list(stages.values()).count(stage) for stage in STAGES]
    passes = [1 if at < first else 1 + steps for at in range(5)]
    expected = [many * times for many, times in zip(held, passes, strict=True)]
    expected[first] -= steps  # the convolution before the first norm that learns
    assert [ran.count(stage) for stage in STAGES] == expected
    assert len(result.alpha) == 20
    torch.testing.assert_close(adaptor.adapted_network(x)(x), result.logits, atol=1e-9, rtol=1e-9)
    if steps == 1:
        literally = literal(network, x, "gem-t", 0.1, tuple(STAGES[first:]))
        torch.testing.assert_close(result.logits, literally, atol=1e-9, rtol=1e-9)
        assert (result.logits - literal(network, x, "gem-t", 0.1)).abs().max() > 1e-6
