import math

import pytest
import torch

from domainadaptor.errors import BadOption
from domainadaptor.lab.training.algorithm import OptimizerSettings
from domainadaptor.lab.training.algorithms.fsdcl import consistency_loss, contrastive_loss, fsdcl, stylized
from tests.lab.training.algorithms import literal


def test_the_contrastive_loss_is_the_literal_one():
    torch.manual_seed(0)
    z = torch.randn(10, 5, dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1, 2, 0, 1, 2, 3, 1])
    domains = torch.tensor([0, 1, 0, 1, 0, 0, 2, 2, 2, 2])
    unit = [[float(v) for v in row / row.norm()] for row in z]
    terms = []
    for i in range(10):
        above = below = 0.0
        for j in range(10):
            if i == j:
                continue
            e = math.exp(sum(a * b for a, b in zip(unit[i], unit[j], strict=True)) / 0.15)
            if labels[i] == labels[j]:
                above += e
                below += e
            elif domains[i] == domains[j]:
                below += e
        if above:
            terms.append(-math.log(above / below))
    assert len(terms) == 9  # the only image of class 3 has nobody to be near to
    assert float(contrastive_loss(z, labels, domains, 0.15)) == pytest.approx(sum(terms) / len(terms), rel=1e-9)


def test_the_consistency_loss_is_the_literal_one():
    torch.manual_seed(0)
    a, b = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    total = 0.0
    for i in range(4):
        p = [math.exp(v) for v in a[i].tolist()]
        p = [v / sum(p) for v in p]
        sharp = [v**2 for v in p]  # temperature one half
        sharp = [v / sum(sharp) for v in sharp]
        q = [math.exp(v) for v in b[i].tolist()]
        q = [v / sum(q) for v in q]
        total += sum(s * (math.log(s) - math.log(v)) for s, v in zip(sharp, q, strict=True))
    assert float(consistency_loss(a, b, 0.5)) == pytest.approx(total / 12, rel=1e-9)


def test_a_very_sure_answer_has_a_gradient():
    sure = torch.tensor([[0.0, 120.0, 30.0]], requires_grad=True)  # sharpened, its first probability is 0 in float32
    styled = torch.tensor([[0.2, 0.1, -0.3]], requires_grad=True)
    loss = consistency_loss(sure, styled, 0.5)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(-float(styled.detach().log_softmax(1)[0, 1]) / 3)
    assert sure.grad.abs().max() < 1e-6
    assert torch.allclose(styled.grad, (styled.detach().softmax(1) - torch.tensor([[0.0, 1.0, 0.0]])) / 3)


def test_stylizing_is_the_literal_one():
    torch.manual_seed(0)
    maps = torch.randn(3, 4, 6, 6, dtype=torch.float64) + torch.arange(4.0).view(4, 1, 1)
    got = stylized(maps, 10.0, torch.Generator().manual_seed(5))
    noise = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(5)).double()
    low = torch.zeros_like(maps)
    for y in range(6):
        for x in range(6):
            corner = maps[:, :, y // 2 * 2 : y // 2 * 2 + 2, x // 2 * 2 : x // 2 * 2 + 2]
            low[:, :, y, x] = corner.mean((2, 3))
    means = [low[:, c].mean() for c in range(4)]
    deviations = [low[:, c].std() + 1e-6 for c in range(4)]
    m, s = torch.stack(means), torch.stack(deviations)
    for n in range(3):
        for c in range(4):
            mean = m.mean() + 10 * m.std() * noise[0, n, c]
            deviation = s.mean() + 10 * s.std() * noise[1, n, c]
            expected = (low[n, c] - means[c]) / deviations[c] * deviation + mean + maps[n, c] - low[n, c]
            torch.testing.assert_close(got[n, c], expected)


def test_no_gradient_flows_through_the_draw():
    """As with torch.normal, which its authors draw with."""
    torch.manual_seed(0)
    maps = torch.randn(3, 4, 6, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, 4, 6, 6, dtype=torch.float64)
    (stylized(maps, 10.0, torch.Generator().manual_seed(5)) * weights).sum().backward()
    noise = torch.randn(2, 3, 4, 1, 1, generator=torch.Generator().manual_seed(5)).double()
    twin = maps.detach().clone().requires_grad_()
    low = torch.nn.functional.avg_pool2d(twin, 2).repeat_interleave(2, 2).repeat_interleave(2, 3)
    m, s = low.mean((0, 2, 3)), low.std((0, 2, 3)) + 1e-6
    mean, deviation = ((v.mean() + 10 * v.std() * n) for v, n in zip((m.detach(), s.detach()), noise, strict=True))
    styled = (low - m.view(4, 1, 1)) / s.view(4, 1, 1) * deviation + mean + twin - low
    (styled * weights).sum().backward()
    torch.testing.assert_close(maps.grad, twin.grad)


def test_without_spread_styles_are_the_common_one_and_odd_sizes_work():
    maps = torch.randn(2, 3, 5, 7)
    got = stylized(maps, 0.0, torch.Generator())
    assert got.shape == maps.shape
    assert torch.isfinite(got).all()


def test_an_update_counts_all_three_losses_and_tracks_plain_images_only():
    net, twin, batches = literal.network(), literal.network(), literal.domain_batches()
    algorithm = fsdcl(net, OptimizerSettings(literal.CLASSES), stage="bn2")
    numbers = algorithm.update(batches, torch.Generator().manual_seed(0))
    plain = literal.cross_entropy(
        literal.forward(literal.table(twin), torch.cat([b.images for b in batches])),
        torch.cat([b.labels for b in batches]),
    )
    expected = float(plain.detach()) + 12 * numbers["consistency_loss"] + 0.3 * numbers["contrast_loss"]
    assert numbers["loss"] == pytest.approx(expected, rel=1e-9)
    twin(torch.cat([b.images for b in batches]))
    torch.testing.assert_close(net.bn3.running_mean, twin.bn3.running_mean)
    assert not net.bn2._forward_hooks


def test_an_unknown_stage_is_explained():
    with pytest.raises(BadOption, match="did you mean"):
        fsdcl(literal.network(), OptimizerSettings(literal.CLASSES), stage="layer9")


@pytest.mark.parametrize("stage", ["", "fc"])
def test_a_stage_without_a_map_is_explained(stage):
    algorithm = fsdcl(literal.network(), OptimizerSettings(literal.CLASSES), stage=stage)
    with pytest.raises(BadOption, match="gives a map"):
        algorithm.update(literal.domain_batches(), torch.Generator().manual_seed(0))
