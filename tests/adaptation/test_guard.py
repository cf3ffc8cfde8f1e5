"""The guard: hostile streams cost little of what the network knew, ordinary ones do not wake it, copies are exact."""

import copy
import pickle

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.adaptation.guard import CollapseGuard, Drift, drift_of
from domainadaptor.errors import BadOption
from tests import conftest
from tests.conftest import GoldenNet, batch, stir
from tests.hostile import HOSTILE, REMEMBERING, SIZE, accuracy, course, stream, trained_on_digits

BATCHES = 200


@pytest.fixture(autouse=True)
def _same_networks():
    """Whatever ran before."""
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def digits():
    return trained_on_digits()


@pytest.mark.parametrize(
    ("kind", "m"),
    [(kind, 1.0) for kind in HOSTILE] + [("one class", 0.0), ("noise", 0.0)],  # batch statistics, and the source's
)
def test_hostile_streams_cost_at_most_two_points(kind, m, digits):
    net, probe, pool = digits
    source = accuracy(da.adapt(net, "source"), probe)
    adaptor = da.adapt(net, "tent", lr=0.02 if m else 0.002, m=m, guard=True)
    trips = 0
    for at, x in enumerate(stream(kind, net, pool, BATCHES)):
        result = adaptor.adapt(x)
        if result.fell_back:
            trips += 1
            assert torch.equal(result.logits, net(x))
            assert result.note.startswith("the guard went back to the source")
            assert all(torch.equal(v, net.state_dict()[name]) for name, v in adaptor.state_dict().items())
        if at % 20 == 19:
            assert accuracy(adaptor, probe) >= source - 2
    assert trips > 0


@pytest.mark.parametrize(
    ("method", "kind"), [("eta", "sorted"), ("slr", "constant"), ("t3a", "noise"), ("tent", "tiny")]
)
def test_every_kind_of_method_under_the_streams_of_the_long_test(method, kind, digits):
    found = course(method, kind, digits, 60, rate=10.0)
    assert found["lowest"] >= found["source"] - 2
    assert found["trips"] > 0


def test_without_the_guard_it_collapses(digits):
    net, probe, pool = digits
    for kind, options in [("noise", {"lr": 0.02}), ("sorted", {"lr": 0.02}), ("noise", {"lr": 0.002, "m": 0.0})]:
        adaptor = da.adapt(net, "tent", **options)
        for x in stream(kind, net, pool, BATCHES):
            adaptor(x)
        assert accuracy(adaptor, probe) < 60


def test_ordinary_streams_do_not_wake_it(digits):
    net, _, pool = digits
    adaptor = da.adapt(net, "tent", guard=True)
    assert not any(adaptor.adapt(x).collapsed for x in stream("shuffled", net, pool, BATCHES))


def test_a_domain_far_away_wakes_it_seldom_and_costs_little(digits):
    """The source tells little of it, as it does of hostile batches: predictions alone cannot tell these apart."""
    net, _, (images, labels) = digits
    adaptors = [da.adapt(net, "tent", guard=guard) for guard in (True, False)]
    right, trips, draw = [0, 0, 0], 0, torch.Generator().manual_seed(1)
    for _ in range(BATCHES):
        at = torch.randint(len(images), (SIZE,), generator=draw)
        x = 0.7 * images[at] + 0.2 * torch.randn(SIZE, 1, 8, 8, generator=draw) + 0.2
        results = [adaptor.adapt(x) for adaptor in adaptors]
        trips += results[0].collapsed
        for which, logits in enumerate([*(result.logits for result in results), net(x)]):
            right[which] += int((logits.argmax(1) == labels[at]).sum())
    guarded, free, source = (100 * count / (BATCHES * SIZE) for count in right)
    assert 0 < trips <= 3, trips
    assert guarded > free - 2, (guarded, free)
    assert guarded > source + 10, (guarded, source)


def test_the_rule():
    def told(logits):
        """A guard, and whether it allows a drift after a batch of 512 such images."""
        return lambda far, share=1.0: CollapseGuard().look(logits, Drift(far, share), lambda: logits) is None

    sure = 50 * nn.functional.one_hot(torch.arange(512) % 8, 8).float()
    varied, alike, empty = told(sure), told(sure[:1].expand(512, 8)), told(torch.zeros(512, 8))
    assert varied(0.29)
    assert not varied(0.31)
    for poor in (alike, empty):
        assert poor(0.019)
        assert not poor(0.021)
        assert poor(0.0059, 0.0)
        assert not poor(0.0061, 0.0)
        assert poor(0.0129, 0.5)
        assert not poor(0.0131, 0.5)
    # Sure of one in two, and no idea of the other: half of what could be told.
    half = told(torch.cat([sure[:256], torch.zeros(256, 8)]))
    for share, limit in [(1.0, 0.02 / 0.5**2), (0.0, 0.006 / 0.5), (0.5, 0.013 / 0.5**1.5)]:
        assert half(limit - 1e-3, share)
        assert not half(limit + 1e-3, share)
    assert not varied(float("nan"))
    # Sure and varied answers count for as much as the source's own do, once the weights are far enough to ask it.
    deceived = CollapseGuard()
    assert deceived.look(sure, Drift(0.009, 1.0), pytest.fail) is None
    assert deceived.look(sure, Drift(0.019, 1.0), lambda: sure[:1].expand(512, 8)) is None
    why = deceived.look(sure, Drift(0.021, 1.0), lambda: sure[:1].expand(512, 8))
    assert "the limit is 0.020 with information 1.00 in the predictions and 0.00 in the source model's" in why
    # Answers that tell half of what the source's do are worth nothing, however much that is.
    worse, mixed = CollapseGuard(), torch.cat([sure[:256], torch.zeros(256, 8)])
    assert worse.look(mixed, Drift(0.019, 1.0), lambda: sure) is None
    assert "0.020 with information 0.50 in the predictions and 1.00" in worse.look(
        mixed, Drift(0.021, 1.0), lambda: sure
    )
    # Near the source, but its answers are all alike where the source's are not.
    why = CollapseGuard().look(sure[:1].expand(512, 8), Drift(0.0, 1.0), lambda: sure)
    assert "the information in the predictions is 0.00, in the source model's 1.00" in why


def test_statistics_that_follow_the_stream_have_each_batch_compared():
    sure = 50 * nn.functional.one_hot(torch.arange(64) % 8, 8).float()

    def part(share):
        """Answers that tell that share of what they could: sure of so many, with no idea of the others."""
        return torch.cat([sure[: int(64 * share)], torch.zeros(64 - int(64 * share), 8)])

    for share, comes_back in [(0.5, True), (0.6875, True), (0.8125, False), (1.0, False)]:
        why = CollapseGuard().look(part(share), Drift(0.0, 0.0, follows=True), lambda: sure)
        assert (why is not None) == comes_back, share
        assert CollapseGuard().look(part(share), Drift(0.0, 0.0), pytest.fail) is None
    # The source tells little of a domain that is far away: no reason to listen to it.
    assert CollapseGuard().look(part(0.125), Drift(0.0, 0.0, follows=True), lambda: part(0.125)) is None
    # A few images say too little.
    few = torch.cat([sure[:2], torch.zeros(2, 8)])
    assert CollapseGuard().look(few, Drift(0.0, 0.0, follows=True), pytest.fail) is None
    guard = CollapseGuard()
    guard.look(sure, Drift(0.0, 0.0, follows=True), lambda: part(0.5))
    assert guard._source is None  # so that weights are judged as those of other methods


@pytest.mark.parametrize(
    ("method", "options"), [("delta", {}), ("rotta", {}), ("tent", {"m": 0.1}), ("tent", {})], ids=str
)
def test_which_methods_follow_the_stream(method, options):
    net = stir(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    )
    adaptor = da.adapt(net, method, guard=True, **options)
    adaptor(batch(16, 3, 8, 8))
    assert drift_of(adaptor._main).follows == (method != "tent" or bool(options))


def test_its_window_counts_images():
    guard, sure = CollapseGuard(), 50 * nn.functional.one_hot(torch.arange(8), 8).float()
    for _ in range(40):
        for image in sure:  # one at a time, every class in turn
            assert guard.look(image[None], Drift(0.015, 1.0), lambda image=image: image[None]) is None
    assert guard.look(sure[:1], Drift(0.29, 1.0), lambda: sure[:1]) is None
    for mean, entropy, seen in guard.state_dict()[0]:  # of its own answers, and of the source's
        assert seen == 256
        assert entropy < 1e-6
        torch.testing.assert_close(mean, torch.full((8,), 1 / 8), atol=0.01, rtol=0)


@pytest.mark.parametrize("method", REMEMBERING)
def test_every_method_that_remembers_can_be_guarded(method):
    net = conftest.suited(stir(GoldenNet()), method)
    batches = [batch(6, 3, 12, 12, seed=seed) for seed in range(3)]
    quick = {"lr": 10.0} if "lr" in da.method_info(method).defaults else {}
    slow = {"lr": 1e-6} if "lr" in da.method_info(method).defaults else {}
    calm, free = conftest.make(net, method, guard=True, **slow), conftest.make(net, method, **slow)
    assert all(torch.equal(calm(x), free(x)) for x in batches)
    adaptor = conftest.make(net, method, guard=True, **quick)
    for x in batches:
        result = adaptor.adapt(x)
        assert torch.equal(result.logits, net(x)) or not result.fell_back


def test_copies_moves_and_failures_keep_what_it_saw(monkeypatch):
    net = stir(GoldenNet())
    batches = [batch(6, 3, 12, 12, seed=seed) for seed in range(12)]

    def tripping(adaptor):
        return [adaptor.adapt(x).fell_back for x in batches[4:]]

    adaptor = da.adapt(net, "tent", lr=0.0015, guard=True)
    for x in batches[:4]:
        adaptor(x)

    def same(one, other):
        return all(a is b for a, b in zip(one, other, strict=True))

    seen = adaptor.collapse.state_dict()[0]
    assert seen[0] is not None
    copies = [copy.deepcopy(adaptor), pickle.loads(pickle.dumps(adaptor)), copy.deepcopy(adaptor).to("cpu")]
    with monkeypatch.context() as patched:
        patched.setattr(da.AdaptiveNetwork, "end_batch", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            adaptor(batches[7])
    assert same(adaptor.collapse.state_dict()[0], seen)
    adaptor(batches[0][:0])
    assert same(adaptor.collapse.state_dict()[0], seen)
    expected = tripping(adaptor)
    assert any(expected)
    assert not all(expected)
    assert all(tripping(other) == expected for other in copies)
    adaptor.reset()
    assert adaptor.collapse.state_dict()[0] == [None, None]


def test_a_trip_starts_the_count_of_batches_anew():
    net = stir(GoldenNet())
    x = batch(6, 3, 12, 12)
    adaptor = da.adapt(net, "tent", lr=10.0, guard=True, reset_every=2)
    assert all(adaptor.adapt(x).fell_back for _ in range(4))
    assert torch.equal(adaptor.adapted_network(x)(x), net(x))


def test_a_peek_past_the_guard_shows_what_was_learned():
    net = stir(GoldenNet())
    x = batch(6, 3, 12, 12)
    options = {"lr": 0.5, "predict": "after"}
    guarded, free = da.adapt(net, "tent", guard=True, **options), da.adapt(net, "tent", **options)
    assert guarded.peek(x).fell_back
    assert torch.equal(guarded.peek(x).logits, net(x))
    assert torch.equal(guarded.peek(x, guarded=False).logits, free.peek(x).logits)
    assert not torch.equal(free.peek(x).logits, net(x))
    assert guarded.collapse.state_dict()[0] == [None, None]


def test_a_peek_that_fails_changes_nothing(monkeypatch):
    net = stir(GoldenNet())
    first, second = (batch(6, 3, 12, 12, seed=seed) for seed in range(2))
    adaptor, other = (da.adapt(net, "tent", lr=0.01, guard=True) for _ in range(2))
    for each in (adaptor, other):
        each(first)
    with monkeypatch.context() as patched:
        patched.setattr(CollapseGuard, "look", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            adaptor.peek(second)
    assert torch.equal(adaptor(second), other(second))
    assert torch.equal(adaptor(first), other(first))


def test_mistakes_are_explained():
    net = stir(GoldenNet())
    with pytest.raises(BadOption, match="resets after each batch"):
        da.adapt(net, "tent", guard=True, reset_every=1)
    with pytest.raises(BadOption, match="resets after each batch"):
        da.adapt(net, "domainadaptor-t", guard=True)
    with pytest.raises(BadOption, match="True or False"):
        da.adapt(net, "tent", guard="yes")
