"""Against the method written a second time, slowly and literally: every option that the golden numbers do not have."""

import pytest
import torch

import domainadaptor as da
from domainadaptor.augmentation.crops import random_views
from tests.reference import literal

EXACT = {"atol": 1e-9, "rtol": 1e-9}
STRONG = 5e-2

CASES = [
    {"alpha": "paper"},
    {"alpha": "paper", "fold": False},
    {"alpha": "code-reversed"},
    {"alpha": "paper-reversed"},
    {"alpha": 0.3},
    {"alpha": 0.0, "variance": "biased"},
    {"variance": "biased"},
    {"loss": "entropy", "alpha": "paper", "lr": STRONG},
    {"loss": "entropy", "fold": False, "lr": STRONG},
    {"loss": "gem-t", "fold": False, "lr": STRONG},
    {"loss": "gem-t", "fold": False, "alpha": "paper", "lr": STRONG, "steps": 3},
    {"loss": "gem-t", "lr": STRONG, "steps": 3},
    {"loss": "gem-t", "temperature": "per_image", "lr": STRONG},
    {"loss": "gem-t", "temperature": "batch_mean", "lr": STRONG},
    {"loss": "gem-t", "temperature": 1.7, "lr": STRONG},
    {"loss": "gem-t", "scale": 3.5, "lr": STRONG},
    {"loss": "gem-t", "variance": "biased", "lr": STRONG},
    {"loss": "gem-skd", "temperature": "batch_mean", "lr": STRONG},
    {"loss": "gem-skd", "alpha": 0.8, "fold": False, "lr": STRONG},
    {"loss": "gem-skd", "alpha": 1.0, "fold": False, "lr": STRONG},
    {"loss": "gem-skd", "alpha": 1.0, "lr": STRONG},
    {"loss": "slr", "alpha": "paper", "variance": "biased", "lr": STRONG, "steps": 2},
]


@pytest.mark.parametrize("options", CASES, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()))
def test_logits_and_alpha(golden, golden_net, options):
    x = golden["network/x"][:6]
    result = da.adapt(golden_net, "adamixbn", **options).adapt(x)
    after, before, alpha = literal.adapt(golden_net, x, **options)
    torch.testing.assert_close(result.logits, after, **EXACT)
    torch.testing.assert_close(result.before, before, **EXACT)
    if options.get("fold", True) or "loss" not in options:
        assert result.alpha == pytest.approx(alpha, abs=1e-9)
    if "loss" in options:
        assert not torch.equal(result.logits, result.before)


@pytest.mark.parametrize("options", [{}, {"fold": False}, {"views": 2, "temperature": "batch_mean", "steps": 2}])
def test_views_method(golden, golden_net, options):
    x = golden["network/x"][:4]
    result = da.adapt(golden_net, "domainadaptor-aug", lr=STRONG, seed=3, **options).adapt(x)
    generator = torch.Generator().manual_seed(3)
    options = dict(options)
    count = options.pop("views", 3)
    views = [random_views(x, count, generator) for _ in range(options.get("steps", 1))]
    after, before, _ = literal.adapt(golden_net, x, loss="gem-aug", lr=STRONG, views=views, **options)
    torch.testing.assert_close(result.before, before, **EXACT)
    torch.testing.assert_close(result.logits, after, **EXACT)
    assert not torch.equal(result.logits, result.before)


LATER = {0.5: ("bn2", "bn3"), 0.9: ("bn3",)}


@pytest.mark.parametrize("options", [{}, {"steps": 2}, {"fold": False}])
@pytest.mark.parametrize("loss", ["entropy", "gem-t", "gem-skd", "gem-aug"])
@pytest.mark.parametrize("adapt_from", LATER)
def test_later_layers_alone_get_the_steps(golden, golden_net, adapt_from, loss, options):
    x = golden["network/x"][:4]
    adaptor = da.adapt(golden_net, "adamixbn", loss=loss, lr=STRONG, adapt_from=adapt_from, **options)
    generator = torch.Generator().manual_seed(0)
    views = [random_views(x, 3, generator) for _ in range(options.get("steps", 1))] if loss == "gem-aug" else None
    learn = LATER[adapt_from]
    after, before, alpha = literal.adapt(golden_net, x, loss=loss, lr=STRONG, views=views, learn=learn, **options)
    for _ in range(3):  # the first batch is not like the others
        result = adaptor.adapt(x)
        torch.testing.assert_close(result.logits, after, **EXACT)
        torch.testing.assert_close(result.before, before, **EXACT)
        assert list(result.alpha) == list(alpha)
        if options.get("fold", True):
            assert result.alpha == pytest.approx(alpha, abs=1e-9)
    assert not torch.equal(result.logits, result.before)


@pytest.mark.parametrize("size", [(1, 1), (2, 1)])
@pytest.mark.parametrize("rule", ["code", "paper"])
def test_alpha_on_tiny_maps(rule, size):
    """A 1x1 map has no deviation per image, so distances are of means alone."""
    from domainadaptor.norms.mixed import MixedNorm
    from domainadaptor.norms.recognize import find_norms
    from tests.conftest import batch, stir

    bn = stir(torch.nn.BatchNorm2d(4).double())
    norm = MixedNorm(find_norms(bn)[0][""], alpha=rule, fold=False, variance="unbiased")
    x = batch(6, 4, *size, dtype=torch.float64)
    with torch.no_grad():
        norm(x)
    expected = literal.alpha_of(x, (bn.running_mean, bn.running_var), rule, "unbiased")
    assert float(norm.uses[0].alpha) == pytest.approx(expected, abs=1e-12)
