from domainadaptor.lab.data.digits import STYLES, load_digits, render
from domainadaptor.lab.data.registry import open_dataset


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
        domain.read.check(name)
