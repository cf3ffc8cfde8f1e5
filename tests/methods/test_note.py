"""NOTE against its loop written out: instance-aware norms by their formulas, the memory as lists, Adam by hand."""

import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import BadBatch, BadOption, UnsupportedNetwork
from domainadaptor.methods.note import ReservoirBank
from domainadaptor.norms.instance_aware import InstanceAwareBatchNorm2d, make_instance_aware
from tests.conftest import batch, stir
from tests.methods.literal import Adam, gradients, leaves, logits, probabilities, weights_of
from tests.methods.literal import network as plain_network

BATCHES = [(1 + seed) * batch(4, 3, 12, 12, seed=seed, dtype=torch.float64) for seed in range(6)]


def network():
    net = plain_network()
    make_instance_aware(net)
    return net


class LiteralMemory:
    """Lists by class."""

    def __init__(self, capacity, classes, seed):
        self.capacity, self.lists, self.offered = capacity, [[] for _ in range(classes)], [0] * classes
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self):
        return torch.rand(1, generator=self.generator, dtype=torch.float64).item()

    def add(self, image, label):
        self.offered[label] += 1
        if sum(map(len, self.lists)) == self.capacity:
            most = max(map(len, self.lists))
            largest = [k for k in range(len(self.lists)) if len(self.lists[k]) == most]
            if label not in largest:
                held = self.lists[largest[int(self.uniform() * len(largest))]]
            else:
                held = self.lists[label]
                if self.uniform() > len(held) / self.offered[label]:
                    return
            del held[int(self.uniform() * len(held))]
        self.lists[label].append(image)

    def content(self):
        return [image for held in self.lists for image in held]


def literal(batches, *, capacity, update_every, share, lr, seed=0, predict="before"):
    net = network()
    source = weights_of(net)
    frozen = {name: w for name, w in source.items() if "bn" not in name}
    learned = {name: w for name, w in source.items() if "bn" in name}
    running = {n: (net.get_submodule(n).running_mean, net.get_submodule(n).running_var) for n in ("bn1", "bn2", "bn3")}
    memory, adam, answers, seen = LiteralMemory(capacity, 7, seed), Adam(lr), [], 0

    def beyond(distance, band):
        return torch.where(distance > band, distance - band, torch.where(distance < -band, distance + band, 0.0))

    def norm(name, h, mean, var):
        pixels = h.shape[2] * h.shape[3]
        rows = []
        for image in h:
            own_mean, own_var = image.mean((1, 2)), image.var((1, 2), correction=1)
            m = mean + beyond(own_mean - mean, 4 * ((var + 1e-5) / pixels).sqrt())
            v = (var + beyond(own_var - var, 4 * (var + 1e-5) * (2 / (pixels - 1)) ** 0.5)).clamp(min=0)
            rows.append((image - m.view(-1, 1, 1)) / (v.view(-1, 1, 1) + 1e-5).sqrt())
        return torch.stack(rows)

    def still(name, h):
        return norm(name, h, *running[name])

    def following(name, h):
        mean, var = h.mean((0, 2, 3)), h.var((0, 2, 3), correction=1)
        old = running[name]
        running[name] = (1 - share) * old[0] + share * mean.detach(), (1 - share) * old[1] + share * var.detach()
        return norm(name, h, mean, var)

    for x in batches:
        given = []
        for i in range(len(x)):
            scores = logits(frozen | learned, x[i : i + 1], still)
            given.append(scores)
            memory.add(x[i], int(scores.argmax()))
            seen += 1
            if seen % update_every == 0:
                learned = leaves(learned)
                p = probabilities(logits(frozen | learned, torch.stack(memory.content()), following))
                loss = -(p * p.log()).sum(1).mean()
                learned = adam.step(learned, gradients(loss, learned))
        answers.append(torch.cat(given) if predict == "before" else logits(frozen | learned, x, still))
    return answers, memory, learned


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": 6, "update_every": 5, "share": 0.01, "lr": 0.02},
        {"capacity": 3, "update_every": 2, "share": 0.2, "lr": 0.05, "seed": 4},
        {"capacity": 16, "update_every": 1, "share": 0.1, "lr": 0.01},
        {"capacity": 6, "update_every": 4, "share": 0.5, "lr": 0.02, "predict": "after"},
    ],
)
def test_note_is_its_literal_loop(options):
    expected, memory, learned = literal(BATCHES, **options)
    adaptor = da.adapt(network(), "note", **options)
    for x, answer in zip(BATCHES, expected, strict=True):
        torch.testing.assert_close(adaptor(x), answer, atol=1e-9, rtol=1e-9)
    bank = adaptor._bank
    held = [image for _, image in sorted(zip(bank.labels, bank.images, strict=True), key=lambda pair: pair[0])]
    assert len(held) == len(memory.content())
    assert all(torch.equal(one, other) for one, other in zip(held, memory.content(), strict=True))
    for name, w in learned.items():
        torch.testing.assert_close(adaptor.state_dict()[name], w, atol=1e-9, rtol=1e-9)


def test_the_batch_does_not_matter():
    """Images are predicted one by one, wherever batches end."""
    options = {"capacity": 6, "update_every": 5, "lr": 0.02}
    stream = torch.cat(BATCHES)
    whole, parts = da.adapt(network(), "note", **options)(stream), da.adapt(network(), "note", **options)
    torch.testing.assert_close(torch.cat([parts(x) for x in stream.split(7)]), whole, atol=1e-9, rtol=1e-9)


def test_the_memory_is_the_literal_one_and_stays_balanced():
    draws = torch.Generator().manual_seed(1)
    ours, theirs = ReservoirBank(9, seed=2), LiteralMemory(9, 3, seed=2)
    for at in range(400):
        label = 0 if at < 100 else int(torch.rand((), generator=draws) * 3)  # one class alone, then all
        ours.add(torch.tensor(float(at)), label)
        theirs.add(at, label)
        assert sorted(int(image) for image in ours.images) == sorted(theirs.content())
    assert [ours.labels.count(k) for k in range(3)] == [3, 3, 3]


def test_the_memory_keeps_any_image_of_a_class_as_likely_as_another():
    counts = torch.zeros(40)
    for seed in range(300):
        memory = ReservoirBank(8, seed=seed)
        for at in range(40):
            memory.add(torch.tensor(at), 0)
        counts[[int(image) for image in memory.images]] += 1
    early, late = counts[:20].sum(), counts[20:].sum()
    assert abs(float(early - late)) < 4 * 2400**0.5  # as many, within four deviations


def test_the_memory_goes_back():
    memory = ReservoirBank(3, seed=0)
    for at in range(7):
        memory.add(torch.tensor(at), at % 2)
    held = memory.state_dict()

    def go_on():
        for at in range(7, 20):
            memory.add(torch.tensor(at), at % 3)
        return [int(image) for image in memory.images], memory.labels, dict(memory.counts), memory.seen

    first = go_on()
    memory.load_state_dict(held)
    assert go_on() == first
    memory.reset()
    assert memory.images == ()
    assert memory.seen == 0


def test_before_any_step_it_is_the_network_and_only_norms_learn():
    net = network()
    adaptor = da.adapt(net, "note", update_every=4, lr=0.01)
    torch.testing.assert_close(adaptor(BATCHES[1]), net(BATCHES[1]).detach(), atol=1e-12, rtol=1e-12)
    changed = {name for name, value in adaptor.state_dict().items() if not torch.equal(value, net.state_dict()[name])}
    parts = ("weight", "bias", "running_mean", "running_var")
    assert changed == {f"{bn}.{part}" for bn in ("bn1", "bn2", "bn3") for part in parts}
    assert {layer.why for layer in adaptor.layers()} == {"statistics, scale and shift"}
    plain = adaptor.adapted_network(BATCHES[1])
    assert isinstance(plain.bn1, InstanceAwareBatchNorm2d)


def test_activations_of_timms_layers_stay():
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    net = stir(timm.create_model("mobilenetv3_small_050", num_classes=5)).double()
    make_instance_aware(net)
    x = batch(2, 3, 32, 32, dtype=torch.float64)
    adaptor = da.adapt(net, "note", update_every=2, lr=0.01)
    torch.testing.assert_close(adaptor(x), net(x).detach(), atol=1e-8, rtol=1e-8)
    assert not torch.allclose(adaptor(x), net(x))


def test_layers_without_scale_only_follow():
    net = torch.nn.Sequential(
        InstanceAwareBatchNorm2d(3, affine=False),
        InstanceAwareBatchNorm2d(3),
        torch.nn.Flatten(),
        torch.nn.Linear(48, 4),
    ).eval()
    x = batch(4, 3, 4, 4)
    adaptor = da.adapt(net, "note", update_every=4, share=0.5)
    adaptor(x)
    torch.testing.assert_close(adaptor.state_dict()["0.running_mean"], x.mean((0, 2, 3)) / 2)


def test_other_networks_are_refused_with_the_command():
    with pytest.raises(UnsupportedNetwork, match=r"instance-aware.*GoldenNet.*train \.\.\. --norm iabn"):
        da.adapt(plain_network(), "note")
    with pytest.raises(UnsupportedNetwork, match="use the method note"):
        da.adapt(network(), "tent")
    net = torch.nn.Sequential(InstanceAwareBatchNorm2d(3, track_running_stats=False), torch.nn.Flatten())
    with pytest.raises(UnsupportedNetwork, match="running statistics"):
        da.adapt(net, "note")


def test_a_remembered_size_is_the_size():
    adaptor = da.adapt(network(), "note")
    adaptor(BATCHES[0])
    with pytest.raises(BadBatch, match=r"Expected images of shape \(3, 12, 12\)"):
        adaptor(BATCHES[0][:, :, :8])


def test_mistakes_are_explained():
    for options, hint in [
        ({"capacity": 0}, "at least 1"),
        ({"update_every": 1.5}, "at least 1"),
        ({"share": 2}, "from 0 to 1"),
        ({"predict": "later"}, "available: after, before"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), "note", **options)
