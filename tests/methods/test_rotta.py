"""RoTTA against its loop written out: memory as lists of lists with counted ages, statistics and Adam by hand."""

import math

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.augmentation.cotta import changed, draw
from domainadaptor.errors import BadBatch, BadOption, UnsupportedNetwork
from domainadaptor.methods.rotta import BalancedBank
from tests.conftest import batch
from tests.methods.literal import Adam, gradients, leaves, logits, network, probabilities, weights_of, with_moments

BATCHES = [batch(4, 3, 12, 12, seed=seed, dtype=torch.float64) for seed in range(6)]
MEAN, STD = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], dtype=torch.float64).view(2, 3, 1, 1)


class LiteralMemory:
    """Lists by class; every item counts its own age."""

    def __init__(self, capacity, classes, old=1.0, unsure=1.0):
        self.capacity, self.classes, self.old, self.unsure = capacity, classes, old, unsure
        self.lists = [[] for _ in range(classes)]

    def score(self, age, entropy):
        return self.old / (1 + math.exp(-age / self.capacity)) + self.unsure * entropy / math.log(self.classes)

    def add(self, image, label, entropy):
        if self.make_room(label, self.score(0, entropy)):
            self.lists[label].append([image, entropy, 0])
        for held in self.lists:
            for item in held:
                item[2] += 1

    def make_room(self, label, score):
        if len(self.lists[label]) < self.capacity / self.classes:
            if sum(map(len, self.lists)) < self.capacity:
                return True
            most = max(map(len, self.lists))
            classes = [k for k in range(self.classes) if len(self.lists[k]) == most]
        else:
            classes = [label]
        place, highest = None, -math.inf
        for k in classes:
            for at, (_, entropy, age) in enumerate(self.lists[k]):
                if self.score(age, entropy) >= highest:
                    place, highest = (k, at), self.score(age, entropy)
        if highest > score:
            self.lists[place[0]].pop(place[1])
            return True
        return False

    def content(self):
        return [(image, age / self.capacity) for held in self.lists for image, _, age in held]


def literal(batches, *, capacity, update_every, share, nu, lr, timeliness=1.0, uncertainty=1.0, seed=0):
    net = network()
    source = weights_of(net)
    frozen = {name: w for name, w in source.items() if "bn" not in name}
    student, teacher = ({name: w for name, w in source.items() if "bn" in name} for _ in range(2))
    running = {
        who: {n: (net.get_submodule(n).running_mean, net.get_submodule(n).running_var) for n in ("bn1", "bn2", "bn3")}
        for who in ("student", "teacher")
    }
    memory = LiteralMemory(capacity, 7, timeliness, uncertainty)
    adam, generator, answers, seen = Adam(lr), torch.Generator().manual_seed(seed), [], 0

    def still(name, h):
        return with_moments(h, *running["teacher"][name])

    def following(who):
        def norm(name, h):
            mean, var = running[who][name]
            mean = (1 - share) * mean + share * h.mean((0, 2, 3))
            var = (1 - share) * var + share * h.var((0, 2, 3), correction=0)
            running[who][name] = mean.detach(), var.detach()
            return with_moments(h, mean, var)

        return norm

    for x in batches:
        scores = logits(frozen | teacher, x, still)
        answers.append(scores)
        p = probabilities(scores)
        for i in range(len(x)):
            memory.add(x[i], int(p[i].argmax()), -float((p[i] * p[i].log()).sum()))
            seen += 1
            if seen % update_every:
                continue
            images = torch.stack([image for image, _ in memory.content()])
            target = probabilities(logits(frozen | teacher, images, following("teacher")))
            view = changed(images * STD + MEAN, draw(generator))
            view = view + 0.005 * torch.randn(images.shape, generator=generator).double()
            student = leaves(student)
            q = probabilities(logits(frozen | student, (view.clamp(0, 1) - MEAN) / STD, following("student")))
            loss = 0
            for k, (_, age) in enumerate(memory.content()):
                weight = math.exp(-age) / (1 + math.exp(-age))
                loss = loss - weight * (target[k] * q[k].log()).sum() / len(images)
            student = adam.step(student, gradients(loss, student))
            teacher = {name: (1 - nu) * w + nu * student[name] for name, w in teacher.items()}
    return answers, memory, teacher


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": 8, "update_every": 5, "share": 0.05, "nu": 0.1, "lr": 0.02},
        {"capacity": 4, "update_every": 3, "share": 0.3, "nu": 0.5, "lr": 0.05, "seed": 3},  # less room than classes
        {"capacity": 14, "update_every": 8, "share": 0.1, "nu": 1.0, "lr": 0.02, "timeliness": 0.2, "uncertainty": 3.0},
        {"capacity": 9, "update_every": 1, "share": 1.0, "nu": 0.2, "lr": 0.01},
    ],
)
def test_rotta_is_its_literal_loop(options):
    expected, memory, teacher = literal(BATCHES, **options)
    adaptor = da.adapt(network(), "rotta", **options)
    for x, answer in zip(BATCHES, expected, strict=True):
        torch.testing.assert_close(adaptor(x), answer, atol=1e-9, rtol=1e-9)
    held = sorted(adaptor._bank.items, key=lambda item: (item.label, item.born))
    assert len(held) == len(memory.content())
    for item, (image, age) in zip(held, memory.content(), strict=True):
        assert torch.equal(item.image, image)
        assert adaptor._bank.age(item) == pytest.approx(age)
    for name, w in teacher.items():
        torch.testing.assert_close(adaptor.state_dict()[name], w, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("capacity", "classes"), [(6, 3), (5, 3), (2, 4), (12, 2)])
def test_the_memory_is_the_literal_one_over_a_long_stream(capacity, classes):
    draws = torch.Generator().manual_seed(capacity)
    ours, theirs = BalancedBank(capacity, timeliness=1.0, uncertainty=1.0), LiteralMemory(capacity, classes)
    for at in range(300):
        label = min(int(torch.rand((), generator=draws) ** 2 * classes), classes - 1)
        share = round(float(torch.rand((), generator=draws)), 1)  # with ties
        ours.add(torch.tensor(float(at)), label, share, classes)
        theirs.add(at, label, share * math.log(classes))
        held = sorted(ours.items, key=lambda item: (item.label, item.born))
        assert [int(item.image) for item in held] == [image for image, _ in theirs.content()]
        assert len(held) <= max(capacity, 1)


def test_what_leaves_the_memory_step_by_step():
    memory = BalancedBank(4, timeliness=1.0, uncertainty=1.0)

    def offer(name, label, uncertainty):
        memory.add(torch.tensor(float(name)), label, uncertainty, 2)
        return sorted(int(item.image) for item in memory.items)

    assert offer(1, 0, 0.1) == [1]
    assert offer(2, 0, 0.9) == [1, 2]  # class 0 is full now
    assert offer(3, 0, 0.5) == [1, 3]  # 2 is older and less sure
    assert offer(4, 0, 0.95) == [1, 3]  # less sure than both, and new: left out
    assert offer(5, 1, 0.99) == [1, 3, 5]  # there is room for class 1
    assert offer(6, 1, 0.99) == [1, 3, 5, 6]
    assert offer(7, 1, 0.99) == [1, 3, 6, 7]  # equally unsure, but newer than 5
    held = memory.state_dict()
    offer(8, 0, 0.0)
    memory.load_state_dict(held)
    assert sorted(int(item.image) for item in memory.items) == [1, 3, 6, 7]
    memory.reset()
    assert (memory.items, memory.seen) == ((), 0)


def test_a_full_memory_gives_room_to_a_class_that_has_less_than_its_part():
    memory = BalancedBank(5, timeliness=1.0, uncertainty=1.0)  # 5 / 2: up to three of one class
    for name, label in [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1)]:
        memory.add(torch.tensor(float(name)), label, 0.1 * name, 2)
    memory.add(torch.tensor(6.0), 1, 0.2, 2)
    assert sorted(int(item.image) for item in memory.items) == [1, 2, 4, 5, 6]


def test_statistics_move_at_updates_only():
    net = network()
    adaptor = da.adapt(net, "rotta", update_every=8, share=0.5)
    torch.testing.assert_close(adaptor(BATCHES[0]), net(BATCHES[0]).detach())
    assert torch.equal(adaptor.state_dict()["bn1.running_mean"], net.bn1.running_mean)
    adaptor(BATCHES[1])
    seen = torch.cat(BATCHES[:2])[sorted(item.born for item in adaptor._bank.items)]
    mean = net.c1(seen).mean((0, 2, 3)).detach()
    torch.testing.assert_close(adaptor.state_dict()["bn1.running_mean"], (net.bn1.running_mean + mean) / 2)


def test_a_remembered_size_is_the_size():
    adaptor = da.adapt(network(), "rotta")
    adaptor(BATCHES[0])
    with pytest.raises(BadBatch, match=r"Expected images of shape \(3, 12, 12\)"):
        adaptor(BATCHES[0][:, :, :8])
    adaptor.reset()
    adaptor(BATCHES[0][:, :, :8])


def test_batch_norm_is_needed():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(UnsupportedNetwork, match="no batch normalization"):
        da.adapt(net, "rotta")


def test_mistakes_are_explained():
    for options, hint in [
        ({"capacity": 0}, "at least 1"),
        ({"update_every": 0}, "at least 1"),
        ({"share": 2}, "from 0 to 1"),
        ({"nu": -1}, "from 0 to 1"),
        ({"predict": "later"}, "available: after, before"),
        ({"std": 0}, "above 0"),
    ]:
        with pytest.raises(BadOption, match=hint):
            da.adapt(network(), "rotta", **options)
