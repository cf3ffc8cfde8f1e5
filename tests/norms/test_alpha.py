import pytest
import torch

from domainadaptor.norms.alpha import image_alphas, layer_alpha
from domainadaptor.norms.moments import Moments, batch_moments, image_moments
from tests.conftest import batch


def moments(shift: float, n: int = 5):
    x = batch(n, 4, 3, 3, dtype=torch.float64) + shift
    images = image_moments(x)
    return images, batch_moments(images), Moments(torch.zeros(4).double(), torch.ones(4).double())


@pytest.mark.parametrize("shift", [0.0, 0.1, 1.0, 100.0])
def test_ranges(shift):
    """By the triangle inequality the paper's is in [0, 1]; the code's in [1/3, 1]."""
    paper, code = (image_alphas(rule, *moments(shift), True) for rule in ("paper", "code"))
    assert paper.min() >= -1e-12
    assert paper.max() <= 1
    assert code.min() >= 1 / 3 - 1e-12
    assert code.max() <= 1


@pytest.mark.parametrize("rule", ["paper", "code"])
def test_reversed_is_one_minus(rule):
    forward = layer_alpha(rule, *moments(1.0), True)
    assert layer_alpha(f"{rule}-reversed", *moments(1.0), True) == 1 - forward
