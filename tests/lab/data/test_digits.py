import torch

from domainadaptor.lab.data.digits import SIDE, STYLES, load_digits, render


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
