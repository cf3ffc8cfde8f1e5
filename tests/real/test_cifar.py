"""What the method claims, on a trained network and real images: CIFAR-10, re-encoded and with noise."""

import pytest
import torch

import domainadaptor as da
from tests.real import cifar

STRONG = 5e-2  # the rate of the paper's DomainBed tables


@pytest.fixture(scope="module")
def noisy(data_root):
    network, images, labels = cifar.load(data_root, 512)
    deviation = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    return network, images + 0.08 * noise / deviation, labels


def accuracy(noisy, method, **options):
    network, images, labels = noisy
    logits = da.predict(da.adapt(network, method, **options), images.split(64))
    return 100 * float((logits.argmax(1) == labels).float().mean())


def test_the_network_is_read_right(data_root):
    network, images, labels = cifar.load(data_root, 512)
    with torch.no_grad():
        correct = float((network(images).argmax(1) == labels).float().mean())
    assert 0.76 < correct < 0.86  # about 80 % on JPEG files, says their description


def test_batch_statistics_help_against_noise_and_the_mixture_helps_more(noisy):
    source, adabn, mixed = (accuracy(noisy, method) for method in ("source", "adabn", "adamixbn"))
    assert adabn > source + 10
    assert mixed > adabn


@pytest.mark.parametrize("method", ["domainadaptor-t", "domainadaptor-skd"])
def test_steps_help_with_folding_and_destroy_without(noisy, method):
    mixed = accuracy(noisy, "adamixbn")
    assert accuracy(noisy, method, lr=STRONG) > mixed
    assert accuracy(noisy, method, lr=STRONG, fold=False) < mixed - 3
