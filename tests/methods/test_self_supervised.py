"""Rotation and jigsaw against images turned and cut by hand, heads by their formulas, and descent by hand."""

import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import BadOption, UnsupportedNetwork
from domainadaptor.tasks.jigsaw import Jigsaw, tile_orders
from domainadaptor.tasks.rotation import Rotation
from tests.conftest import EXTRAS, GoldenNet, batch, make, stir
from tests.methods.literal import BATCHES, NORMS, by_batch, by_running, descend, features, logits, network, table

EXACT = {"atol": 1e-9, "rtol": 1e-9}


def turned(image, quarters):
    for _ in range(quarters):  # counterclockwise: what was the last column becomes the first row
        image = torch.stack([image[:, :, -1 - at] for at in range(image.shape[2])], dim=1)
    return image


def laid(image, order):
    result = torch.zeros_like(image)
    side = image.shape[1] // 3
    for place, tile in enumerate(order):
        (row, column), (down, right) = divmod(place, 3), divmod(int(tile), 3)
        result[:, row * side : (row + 1) * side, column * side : (column + 1) * side] = image[
            :, down * side : (down + 1) * side, right * side : (right + 1) * side
        ]
    return result


def puzzle(name, x, draw):
    """Changed images and answers, with the numbers that the task draws."""
    if name == "rotation":
        answers = torch.randint(4, (len(x),), generator=draw)
        return torch.stack([turned(image, int(a)) for image, a in zip(x, answers, strict=True)]), answers
    answers = torch.randint(32, (len(x),), generator=draw)
    orders = tile_orders()
    return torch.stack([laid(image, orders[int(a)]) for image, a in zip(x, answers, strict=True)]), answers


def answer(name, f):
    t = {key: value.double() for key, value in EXTRAS[name]()["task"].items()}
    if name == "rotation":
        return f @ t["head.weight"].T
    for at in (0, 2):
        f = (f @ t[f"head.{at}.weight"].T + t[f"head.{at}.bias"]).clamp(min=0)
    return f @ t["head.4.weight"].T + t["head.4.bias"]


def literal(name, batches, lr, momentum=0.0, batch_only=True, once=True, predict="after", steps=1, seed=0):
    source = table(network())
    p, speed, draw = dict(source), {}, torch.Generator().manual_seed(seed)
    norm = by_batch if batch_only else by_running(source)
    answers, values = [], []
    for x in batches:
        if once:
            p, speed, draw = dict(source), {}, torch.Generator().manual_seed(seed)
        before = logits(p, x, norm)
        for _ in range(steps):
            changed, targets = puzzle(name, x, draw)

            def loss(t, changed=changed, targets=targets):
                z = answer(name, features(t, changed, norm))
                rows = [z[i].exp().sum().log() - z[i, int(a)] for i, a in enumerate(targets)]
                return sum(rows) / len(rows)

            value = descend(p, NORMS, loss, lr, momentum, speed)
        answers.append(before if predict == "before" else logits(p, x, norm))
        values.append(value)
    return answers, values


@pytest.mark.parametrize(("name", "lr"), [("rotation", 0.05), ("jigsaw", 0.01)])
def test_the_default_is_one_step_a_batch(name, lr):
    adaptor = make(network(), name)
    for x, z, value in zip(BATCHES, *literal(name, BATCHES, lr), strict=True):
        result = adaptor.adapt(x)
        torch.testing.assert_close(result.logits, z, **EXACT)
        torch.testing.assert_close(result.before, logits(table(network()), x), **EXACT)
        assert result.loss == pytest.approx(value, rel=1e-9)
        assert result.note is None


@pytest.mark.parametrize("name", ["rotation", "jigsaw"])
@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.9, "reset_every": None},
        {"momentum": 0.9, "reset_every": None, "predict": "before", "seed": 3},
        {"reset_every": None, "steps": 2, "statistics": "source"},
    ],
)
def test_online_it_is_its_literal_loop(name, options):
    adaptor = make(network(), name, lr=0.1, **options)
    loop = {key: options[key] for key in ("momentum", "predict", "steps", "seed") if key in options}
    loop["batch_only"] = options.get("statistics") != "source"
    for x, z in zip(BATCHES, literal(name, BATCHES, 0.1, **loop, once=False)[0], strict=True):
        torch.testing.assert_close(adaptor(x), z, **EXACT)


@pytest.mark.parametrize("name", ["rotation", "jigsaw"])
def test_mixed_statistics_begin_as_adamixbn_and_learn(name):
    result = make(network(), name, statistics="mixed").adapt(BATCHES[0])
    torch.testing.assert_close(result.before, da.adapt(network(), "adamixbn")(BATCHES[0]), **EXACT)
    assert not torch.allclose(result.logits, result.before)
    still = make(network(), name, statistics="mixed", lr=0.0).adapt(BATCHES[0])
    torch.testing.assert_close(still.logits, still.before, **EXACT)


@pytest.mark.parametrize(("name", "kind"), [("rotation", Rotation), ("jigsaw", Jigsaw)])
def test_a_head_may_be_a_module_which_stays_as_it_is(name, kind):
    head = kind(16)
    head.load_state_dict(EXTRAS[name]()["task"])
    expected = make(network(), name)(BATCHES[0])
    assert torch.equal(da.adapt(network(), name, task=head)(BATCHES[0]), expected)
    assert all(p.grad is None and p.requires_grad and p.dtype == torch.float32 for p in head.parameters())
    assert all(torch.equal(p, EXTRAS[name]()["task"][key]) for key, p in head.named_parameters())

    class Own(kind):
        pass

    own = Own(16)
    own.load_state_dict(head.state_dict())
    assert torch.equal(da.adapt(network(), name, task=own)(BATCHES[0]), expected)


@pytest.mark.parametrize(
    ("name", "shape", "hint"),
    [("rotation", (4, 3, 12, 9), "square images"), ("jigsaw", (4, 3, 2, 2), "at least 3x3")],
)
def test_images_that_cannot_be_changed_so_are_predicted_without_a_step(name, shape, hint):
    x = batch(*shape, dtype=torch.float64)
    result = make(network(), name).adapt(x)
    assert hint in result.note
    assert result.note.startswith("no step")
    assert result.loss is None
    torch.testing.assert_close(result.logits, da.adapt(network(), "adabn")(x), **EXACT)


@pytest.mark.parametrize("name", ["rotation", "jigsaw"])
def test_a_head_is_needed_and_must_fit(name):
    with pytest.raises(BadOption, match=rf"--task {name}"):
        da.adapt(network(), name)
    with pytest.raises(BadOption, match="does not fit the network"):
        da.adapt(network(), name, task={"head.weight": torch.zeros(4, 15)})
    with pytest.raises(BadOption, match="does not fit the network"):
        da.adapt(network(), name, task=(Rotation if name == "rotation" else Jigsaw)(15))
    with pytest.raises(BadOption, match="expected a trained head"):
        da.adapt(network(), name, task="yes")
    with pytest.raises(BadOption, match="has examples"):
        da.adapt(network(), name, task=torch.nn.Linear(16, 4))
    with pytest.raises(UnsupportedNetwork, match="no linear layer"):
        make(torch.nn.Conv2d(3, 2, 1), name)
    for options, hint in [
        ({"statistics": "both"}, "available: batch, mixed, source"),
        ({"lr": -1}, "at least 0"),
        ({"steps": 0}, "at least 1"),
        ({"seed": -1}, "at least 0"),
    ]:
        with pytest.raises(BadOption, match=hint):
            make(network(), name, **options)


def test_a_hidden_layer_can_be_named_as_the_head():
    class Two(GoldenNet):
        def __init__(self):
            super().__init__()
            self.extra = torch.nn.Linear(7, 3)

    net = stir(Two()).double()
    with pytest.raises(BadOption, match="does not fit"):
        make(net, "rotation")
    assert make(net, "rotation", head="fc")(BATCHES[0]).shape == (6, 7)
    with pytest.raises(UnsupportedNetwork, match="not a linear layer of the network"):
        make(net, "rotation", head="c1")


@pytest.mark.parametrize("name", ["rotation", "jigsaw"])
def test_norms_of_single_images_learn_too_unless_statistics_are_mixed(name):
    net = network()
    net.bn1, net.bn2, net.bn3 = (torch.nn.GroupNorm(4, width).double() for width in (8, 16, 16))
    result = make(net, name).adapt(BATCHES[0])
    torch.testing.assert_close(result.before, net(BATCHES[0]).detach(), **EXACT)
    assert not torch.allclose(result.logits, result.before)
    with pytest.raises(UnsupportedNetwork, match="no batch normalization"):
        make(net, name, statistics="mixed")
