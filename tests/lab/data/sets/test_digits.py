import torch

from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.data.sets.digits import SIDE, STYLES, load_digits, render


def test_the_demos_digits_and_no_test_digit_was_trained_on():
    found = open_dataset("digits")
    assert list(found.domains) == list(STYLES)
    for domain in found.domains.values():
        assert len(domain.select("train")) == 1197
        assert domain.select("val") == domain.select("test")
        assert not {e.name for e in domain.select("train")} & {e.name for e in domain.select("test")}


def test_images_are_the_drawn_ones():
    found = open_dataset("digits")
    training, testing = load_digits()
    for name, ink, labels in (("0003", training.ink, training.labels), ("1199", testing.ink, testing.labels)):
        at = int(name) if int(name) < 1197 else int(name) - 1197
        drawn = (render(ink, "neon")[at] * 255).round().permute(1, 2, 0).byte().numpy()
        domain = found.domains["neon"]
        assert (drawn == domain.read(name)).all()
        assert next(e.label for e in domain.examples if e.name == name) == int(labels[at])


def test_no_digit_is_both_trained_and_tested_on():
    training, testing = load_digits()
    assert len(training.labels) == 1197
    assert len(testing.labels) == 600
    seen = {ink.numpy().tobytes() for ink in training.ink}
    assert not any(ink.numpy().tobytes() in seen for ink in testing.ink)
    assert set(testing.labels.tolist()) == set(range(10))


def test_styles_are_the_same_every_time_and_clearly_different():
    _, testing = load_digits()
    means = {}
    for style in STYLES:
        images = render(testing.ink, style)
        assert images.shape == (600, 3, SIDE, SIDE)
        assert float(images.min()) >= 0
        assert float(images.max()) <= 1
        assert torch.equal(images, render(testing.ink, style))
        means[style] = torch.stack([images.mean((0, 2, 3)), images.std((0, 2, 3))]).flatten()
    names = list(STYLES)
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            assert float((means[one] - means[other]).abs().max()) > 0.05, (one, other)
