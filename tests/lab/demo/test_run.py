import torch

from domainadaptor.lab.data.sets.digits import STYLES, Digits, load_digits
from domainadaptor.lab.demo import network as training
from domainadaptor.lab.demo import run
from domainadaptor.lab.demo.picture import draw
from domainadaptor.lab.demo.run import INGREDIENTS, amount_of_work, run_demo


def quick(monkeypatch, tick=lambda what: None):
    """One epoch on a few digits."""
    few, testing = load_digits()
    monkeypatch.setattr(training, "_EPOCHS", 1)
    monkeypatch.setattr(run, "load_digits", lambda: (Digits(few.ink[:128], few.labels[:128]), testing))
    return run_demo(torch.device("cpu"), 200, 0, tick)


def test_every_method_on_every_style_repeatably(monkeypatch, tmp_path):
    ticks = []
    report = quick(monkeypatch, ticks.append)
    assert len(ticks) == amount_of_work()
    assert list(report.in_domain) == list(STYLES)
    assert len(report.correct) == 4 * len(INGREDIENTS)
    assert report.images == 600
    again = quick(monkeypatch)
    assert report.correct == again.correct

    source = [report.correct["source", style] for style in STYLES]
    assert report.accuracy("source") == 100 * sum(source) / 2400
    assert report.accuracy("source", "pen") == 100 * source[1] / 600
    draw(report, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes()[:4] == b"\x89PNG"


def test_every_ingredient_builds_on_an_earlier_one():
    earlier = [""]
    for part in INGREDIENTS:
        assert part.builds_on in earlier
        earlier.append(part.method)


def test_training_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    images, labels = torch.rand(70, 3, 8, 8), torch.randint(0, 10, (70,), generator=torch.Generator().manual_seed(0))
    torch.set_rng_state(state)
    made = (training.make_small_resnet(10, seed=3) for _ in range(2))
    one, other = (training.train(network, images, labels, 3, lambda: None) for network in made)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
