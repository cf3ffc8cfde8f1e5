"""ARM at test time against its inner step written out, and against the one it was trained with."""

import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import BadOption
from domainadaptor.methods.arm import LearnedLoss
from tests.conftest import EXTRAS, make
from tests.methods.literal import BATCHES, NORMS, descend, logits, network, table

EXACT = {"atol": 1e-9, "rtol": 1e-9}
ALL = [name for name, _ in network().named_parameters()]


def learned(z):
    """The length of the vector that a small network makes of each image's logits."""
    t = {name: value.double() for name, value in EXTRAS["arm"]()["learned_loss"].items()}
    for at in (0, 2, 4):
        z = (z @ t[f"layers.{at}.weight"].T + t[f"layers.{at}.bias"]).clamp(min=0)
    z = z @ t["layers.6.weight"].T + t["layers.6.bias"]
    return (z**2).sum() ** 0.5


def literal(batches, names, lr=0.1, once=True, steps=1, predict="after"):
    source = table(network())
    p, answers = dict(source), []
    for x in batches:
        p = dict(source) if once else p
        before = logits(p, x)
        for _ in range(steps):
            descend(p, names, lambda t, x=x: learned(logits(t, x)), lr, 0.0, {})
        answers.append(before if predict == "before" else logits(p, x))
    return answers


@pytest.mark.parametrize(("learns", "names"), [("norms", NORMS), ("all", ALL)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reset_every": None},
        {"reset_every": None, "steps": 2, "lr": 0.03},
        {"reset_every": None, "predict": "before"},
    ],
)
def test_arm_is_its_literal_step(learns, names, options):
    adaptor = make(network(), "arm", learns=learns, **options)
    loop = {key: options[key] for key in ("lr", "steps", "predict") if key in options}
    for x, z in zip(BATCHES, literal(BATCHES, names, once="reset_every" not in options, **loop), strict=True):
        torch.testing.assert_close(adaptor(x), z, **EXACT)


@pytest.mark.parametrize("learns", ["norms", "all"])
def test_it_is_the_step_of_training(learns):
    LearnedLossARM = pytest.importorskip(
        "domainadaptor.lab.training.algorithms.arm", exc_type=ImportError
    ).LearnedLossARM
    OptimizerSettings = pytest.importorskip(
        "domainadaptor.lab.training.algorithm", exc_type=ImportError
    ).OptimizerSettings
    net = network().train()
    algorithm = LearnedLossARM(net, OptimizerSettings(7), inner_lr=0.1, learns=learns).double()
    trained = algorithm.heads["learned_loss"].state_dict()
    got = da.adapt(net, "arm", learned_loss=trained, learns=learns)(BATCHES[0])
    torch.testing.assert_close(got, algorithm.adapted_logits(BATCHES[0]).detach(), **EXACT)


def test_the_learned_loss_may_be_a_module_which_stays_as_it_is():
    head = LearnedLoss(7)
    head.load_state_dict(EXTRAS["arm"]()["learned_loss"])
    assert torch.equal(da.adapt(network(), "arm", learned_loss=head)(BATCHES[0]), make(network(), "arm")(BATCHES[0]))
    assert all(p.grad is None and p.requires_grad for p in head.parameters())


def test_it_is_needed_and_must_fit():
    with pytest.raises(BadOption, match="--algorithm arm"):
        da.adapt(network(), "arm")
    with pytest.raises(BadOption, match="does not fit"):
        da.adapt(network(), "arm", learned_loss={"layers.0.weight": torch.zeros(32, 7)})
    with pytest.raises(BadOption, match="expected a trained head"):
        da.adapt(network(), "arm", learned_loss=3)
    other = da.adapt(network(), "arm", learned_loss=LearnedLoss(5))
    with pytest.raises(BadOption, match="for 5 classes, but the network predicts 7"):
        other(BATCHES[0])
    for options, hint in [({"learns": "none"}, "available: norms, all"), ({"lr": -1}, "at least 0")]:
        with pytest.raises(BadOption, match=hint):
            make(network(), "arm", **options)


def test_one_image_and_equal_ones():
    adaptor = make(network(), "arm")
    for x in (BATCHES[0][:1], BATCHES[0][:1].expand(5, -1, -1, -1)):
        result = adaptor.adapt(x)
        assert torch.isfinite(result.logits).all()
        assert not result.fell_back
