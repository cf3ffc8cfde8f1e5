"""What every adaptor promises: the network untouched, nothing kept, nothing half-done."""

import contextlib
import copy
import pickle
import threading

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.errors import AdaptationError, UnsupportedNetwork
from tests.adaptation.fingerprints import assert_same, fingerprint, tensors
from tests.conftest import ANSWER_THEMSELVES, GoldenNet, batch, make, one_network, stir, suited

METHODS = list(da.list_methods())
LEARNING = [name for name in METHODS if da.method_info(name).defaults.get("loss")]
ONLINE = [name for name in METHODS if da.method_info(name).defaults.get("reset_every", 1) != 1]
PREDICTING = [name for name in METHODS if da.method_info(name).kind == "prediction"]  # instead of the network's head
EPISODIC = [name for name in METHODS if name not in ONLINE]


def odd_net() -> nn.Module:
    """Some parameters frozen, some with gradients, a layer in train mode, hooks of the user."""
    net = stir(GoldenNet())
    net(batch(2, 3, 12, 12)).sum().backward()
    net.bn2.weight.requires_grad_(False)
    net.c1.weight.grad = None
    net.bn1.train()
    net.fc.register_forward_hook(lambda *_: None)
    net.bn3.register_forward_pre_hook(lambda *_: None)
    return net


@pytest.mark.parametrize("method", METHODS)
def test_the_network_is_untouched(method, images):
    net = suited(odd_net(), method)
    before = fingerprint(net)
    rng = torch.get_rng_state()
    adaptor = make(net, method)
    adaptor(images)
    adaptor.adapt(images[:1])
    with contextlib.suppress(UnsupportedNetwork):
        adaptor.adapted_network(one_network(method, images))
    adaptor.reset()
    adaptor.double()
    adaptor.load_state_dict({name: t + 1 for name, t in adaptor.state_dict().items()})
    adaptor(images.double())
    assert_same(before, fingerprint(net))
    assert torch.equal(rng, torch.get_rng_state())


class Stumble(Exception):
    pass


@pytest.mark.parametrize("method", METHODS)
def test_an_exception_at_any_point_leaves_everything_as_it_was(method, images, monkeypatch):
    """Counts the calls that a batch makes into layers, losses, autograd and optimizer; then fails at each of them."""
    net, images = suited(odd_net(), method), one_network(method, images)
    adaptor = make(net, method, **({"lr": 0.1} if method in LEARNING else {}))
    adaptor(images)
    before = fingerprint(net)
    calls, fail_at = 0, 0

    def stumbling(function):
        def wrapper(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == fail_at:
                raise Stumble
            result = function(*args, **kwargs)
            calls += 1
            if calls == fail_at:
                raise Stumble
            return result

        return wrapper

    from domainadaptor.adaptation import adaptive_network, losses, objective, step
    from domainadaptor.norms import mixed

    for owner, name in [
        (mixed.MixedNorm, "forward"),
        (mixed.MixedNorm, "_fold"),
        (nn.Conv2d, "forward"),
        (nn.Linear, "forward"),
        (losses, "temperature"),
        (objective, "random_views"),
        (torch.Tensor, "backward"),
        (torch.optim.SGD, "step"),
        (torch.optim.Adam, "step"),
        (adaptive_network.AdaptiveNetwork, "alphas"),
        (step, "finite"),
    ]:
        monkeypatch.setattr(owner, name, stumbling(getattr(owner, name)))
    adaptor(images)
    points = calls
    assert points >= (4 if method == "source" else 10)
    state, expected = copy.deepcopy(adaptor.state_dict()), copy.deepcopy(adaptor)(images)
    for fail_at in range(1, points + 1):
        calls = 0
        with pytest.raises(Stumble):
            adaptor(images)
        assert_same(before, fingerprint(net))
        now = adaptor.state_dict()
        assert all(torch.equal(state[name], now[name]) for name in state)
    fail_at = 0
    assert torch.equal(adaptor(images), expected)


@pytest.mark.parametrize("method", EPISODIC)
def test_nothing_is_kept_between_batches(method, images):
    net = stir(GoldenNet())
    adaptor = make(net, method)
    fresh = make(net, method)(images)
    adaptor(batch(5, 3, 12, 12, seed=7))
    assert torch.equal(adaptor(images), fresh)
    adaptor.reset()
    assert torch.equal(adaptor(images), fresh)
    state, source = adaptor.state_dict(), net.state_dict()
    assert list(state) == list(source)
    assert all(torch.equal(state[name], source[name]) for name in source)
    GoldenNet().load_state_dict(state)


@pytest.mark.parametrize("method", PREDICTING)
def test_no_plain_network_answers_in_place_of_its_head(method, net, images):
    adaptor = make(net, method)
    first, second = adaptor(images), adaptor(images)
    adaptor.reset()
    adaptor(images)
    with pytest.raises(UnsupportedNetwork, match="instead of the network's head"):
        adaptor.adapted_network(images)
    assert torch.equal(adaptor(images), second)
    adaptor.reset()
    assert torch.equal(adaptor(images), first)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in PREDICTING])
def test_the_adapted_plain_network_repeats_the_adapted_logits(method, images):
    net, images = suited(odd_net(), method), one_network(method, images)
    adaptor = make(net, method, **({"lr": 0.1, "steps": 2} if method in LEARNING else {}))
    if method in ANSWER_THEMSELVES:
        with pytest.raises(UnsupportedNetwork, match=r"adaptor\(images\) instead"):
            adaptor.adapted_network(images)
        return
    plain = adaptor.adapted_network(images)
    assert type(plain) is GoldenNet
    assert not plain.training
    # The plain network predicts after the step, and the images alone without other views.
    after = {"predict": "after", "effort": "one"}
    after = {name: value for name, value in after.items() if name in da.method_info(method).defaults}
    again = make(net, method, **after, **({"lr": 0.1, "steps": 2} if method in LEARNING else {}))
    torch.testing.assert_close(plain(images).detach(), again(images), atol=1e-5, rtol=1e-5)
    assert {n: p.requires_grad for n, p in plain.named_parameters()} == {
        n: p.requires_grad for n, p in net.named_parameters()
    }
    expected = net.state_dict()
    for tensor in plain.state_dict().values():
        tensor.zero_()
    assert all(torch.equal(expected[n], t) for n, t in net.state_dict().items())


@pytest.mark.parametrize("method", ["adamixbn", "domainadaptor-t"])
def test_tied_norms_and_bfloat16_are_repeated_too(method, net, images):
    half = copy.deepcopy(net).bfloat16()
    net.bn3.weight, net.bn3.running_mean = net.bn2.weight, net.bn2.running_mean
    for network, x in ((net, images), (half, images.bfloat16())):
        adaptor = make(network, method)
        torch.testing.assert_close(adaptor.adapted_network(x)(x).detach(), adaptor(x), atol=1e-5, rtol=1e-5)


def test_the_unfolded_adapted_network_repeats_too(net, images):
    for options in ({"fold": False}, {"fold": False, "loss": "gem-t", "lr": 0.1}, {"alpha": 0.3, "fold": False}):
        adaptor = da.adapt(net, "adamixbn", **options)
        torch.testing.assert_close(
            adaptor.adapted_network(images)(images).detach(), adaptor(images), atol=1e-5, rtol=1e-5
        )


def test_frozen_tensors_share_storage_and_wrapping_is_light():
    torchvision = pytest.importorskip("torchvision")

    net = torchvision.models.resnet50()
    adaptor = da.adapt(net, "domainadaptor-t")
    theirs = {p.data_ptr() for p in net.parameters()}
    own = {}
    for module in (adaptor.source, adaptor._main.network):
        for tensor in [*module.parameters(), *module.buffers()]:
            own[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
    for kept in adaptor._main._buffers._buffers:
        own[kept[3].data_ptr()] = kept[3].numel() * kept[3].element_size()
    added = sum(size for pointer, size in own.items() if pointer not in theirs)
    assert added < 0.05 * sum(t.numel() * t.element_size() for _, t in tensors(net))
    parameters = {id(p) for p in net.parameters()}
    assert not parameters & {id(p) for m in (adaptor, adaptor._main.network) for p in m.parameters()}


class Noisy(GoldenNet):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return super().forward(self.drop(x))


def test_dropout_stays_off(images):
    net = stir(Noisy())
    net.train()
    adaptor = da.adapt(net, "domainadaptor-t").train()
    assert torch.equal(adaptor(images), adaptor(images))
    assert net.drop.training


@pytest.mark.parametrize("method", METHODS)
def test_copies_before_and_after_use(method, net, images):
    adaptor = make(net, method)
    early = [copy.deepcopy(adaptor), pickle.loads(pickle.dumps(adaptor))]
    expected = adaptor(images)
    late = [copy.deepcopy(adaptor), pickle.loads(pickle.dumps(adaptor))]
    for other in early:
        assert torch.equal(other(images), expected)
    later = adaptor(images)
    for other in late:
        assert torch.equal(other(images), later)
    theirs = {p.data_ptr() for p in net.parameters()}
    assert not theirs & {p.data_ptr() for p in late[0].parameters()}


@pytest.mark.parametrize("method", ["adamixbn", "domainadaptor-t", "domainadaptor-aug"])
def test_eight_threads_get_the_serial_answers(method, net):
    adaptor = make(net, method, **({"lr": 0.1} if method != "adamixbn" else {}))
    batches = [batch(4, 3, 12, 12, seed=seed) for seed in range(8)]
    serial = [adaptor(x) for x in batches]
    answers: dict[int, list] = {}

    def work(at: int) -> None:
        answers[at] = [adaptor(batches[at]) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for at, expected in enumerate(serial):
        assert all(torch.equal(answer, expected) for answer in answers[at])


def test_calling_itself_is_refused_not_a_deadlock(net, images):
    adaptors = []
    net.fc.register_forward_hook(lambda *_: adaptors[0](images))
    adaptors.append(da.adapt(net, "adamixbn"))
    with pytest.raises(AdaptationError, match="inside its own call"):
        adaptors[0](images)


def test_an_adaptor_is_not_wrapped_again(net):
    with pytest.raises(UnsupportedNetwork, match="already an adaptor"):
        da.adapt(da.adapt(net, "adabn"), "adabn")


def test_it_is_in_eval_mode_for_good(net):
    adaptor = da.adapt(net, "adabn")
    assert not adaptor.training
    assert not adaptor.train().training


def test_an_adaptor_of_ones_own_falls_back_too(net, images):
    class Wild(da.Adaptor):
        def __init__(self, network):
            super().__init__(network)
            self._rebuild()

        def _build(self):
            return self._adaptive(norm=da.batch_only, learns="nothing")

        def _learn(self, images):
            logits = self._main(images)
            return da.Adaptation(logits * float("inf"), logits)

    result = Wild(net).adapt(images)
    assert result.fell_back
    assert torch.equal(result.logits, net(images))


def test_wrapped_any_number_of_times(net, images):
    expected = da.adapt(net, "domainadaptor-t")(images)
    adaptors = [da.adapt(net, "domainadaptor-t") for _ in range(4)]
    assert all(torch.equal(adaptor(images), expected) for adaptor in adaptors)
    inner = da.adapt(net, "source")
    assert torch.equal(inner.source(images), net(images))


def test_loading_a_state_changes_the_adaptor_only(net, images):
    other = stir(GoldenNet(), seed=5)
    adaptor = da.adapt(net, "domainadaptor-t")
    kept = {name: t.clone() for name, t in net.state_dict().items()}
    adaptor.load_state_dict(other.state_dict())
    assert torch.equal(adaptor(images), da.adapt(other, "domainadaptor-t")(images))
    assert all(torch.equal(kept[name], t) for name, t in net.state_dict().items())


def test_a_state_that_does_not_fit_changes_nothing(net, images):
    adaptor = da.adapt(net, "domainadaptor-t")
    expected = adaptor(images)
    wrong = {name: t + 1 for name, t in net.state_dict().items() if name != "fc.bias"}
    with pytest.raises(RuntimeError, match=r"fc\.bias"):
        adaptor.load_state_dict(wrong)
    assert torch.equal(adaptor(images), expected)


def test_a_move_or_a_state_that_is_refused_leaves_the_adaptor_as_it_was(net, images):
    adaptor = da.adapt(net, "domainadaptor-t")
    expected = adaptor(images)
    wrong = {name: t.clone() for name, t in net.state_dict().items()}
    wrong["fc.weight"].zero_()
    wrong["bn1.running_var"].fill_(-1)
    with pytest.raises(UnsupportedNetwork, match="bn1"):
        adaptor.load_state_dict(wrong)
    with torch.no_grad():
        net.bn1.running_var[0] = 1e6
    large = da.adapt(net, "domainadaptor-t")
    with pytest.raises(UnsupportedNetwork, match="bn1"):
        large.half()
    assert next(large.parameters()).dtype == torch.float32
    net.bn1.running_var[0] = wrong["bn2.running_var"][0]
    adaptor._changes = da.adapt(net)._changes
    assert torch.equal(adaptor(images), expected)
    assert torch.equal(adaptor.state_dict()["fc.weight"], net.fc.weight)


def test_inside_a_parent_module(net, images):
    before = fingerprint(net)
    parent = nn.Sequential(da.adapt(net, "domainadaptor-t"), nn.Softmax(1))
    state = {name: tensor + 0.01 for name, tensor in parent.state_dict().items()}
    assert set(state) == {f"0.{name}" for name in net.state_dict()}
    parent.load_state_dict(state)
    assert_same(before, fingerprint(net))
    net.load_state_dict({name.removeprefix("0."): tensor for name, tensor in state.items()})
    assert torch.equal(parent(images), da.adapt(net, "domainadaptor-t")(images).softmax(1))


def test_assigned_weights_are_not_shared_objects(net, images):
    given = {name: nn.Parameter(t + 0.01) if t.is_floating_point() else t for name, t in net.state_dict().items()}
    adaptor = da.adapt(net, "domainadaptor-t")
    adaptor.load_state_dict(given, assign=True)
    adaptor(images)
    assert not {id(t) for t in given.values()} & {id(p) for p in adaptor.parameters()}
    assert all(t.grad is None for t in given.values())


def test_source_logits_are_those_of_the_network(net, images):
    assert torch.equal(da.adapt(net, "domainadaptor-t").source_logits(images), net(images))
    assert torch.equal(da.adapt(net, "source")(images), net(images))


def test_outputs_of_other_kinds(net, images):
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net

        def forward(self, x):
            return {"scores": [self.inner(x)], "more": 1}

    expected = da.adapt(net, "domainadaptor-t")(images)
    with pytest.raises(UnsupportedNetwork, match="output="):
        da.adapt(Wrapped(), "domainadaptor-t")(images)
    got = da.adapt(Wrapped(), "domainadaptor-t", output=lambda o: o["scores"][0])(images)
    assert torch.equal(got, expected)


def test_an_adaptor_shows_its_method_and_options(net):
    assert repr(da.adapt(net, "tent", lr=1)) == "Adaptor(tent(lr=1.0): 3 of 3 norm layers adapt)"
    shown = repr(da.adapt(net, "eata", source_images=batch(4, 3, 12, 12), margin=0.5))
    assert shown == "Adaptor(eata(source_images=..., margin=0.5): 3 of 3 norm layers adapt)"
    assert repr(da.StepAdaptor(net)).startswith("Adaptor(StepAdaptor: ")


def test_a_move_that_is_refused_leaves_no_part_of_the_new_network(net, images, monkeypatch):
    """Teacher and student are built one after the other; an interrupt comes between."""
    adaptor, other = (make(net, "rotta") for _ in range(2))
    adaptor(images), other(images)
    built, real = [], da.Adaptor._adaptive

    def second(self, **settings):
        built.append(1)
        if len(built) == 2:
            raise KeyboardInterrupt
        return real(self, **settings)

    with monkeypatch.context() as patched:
        patched.setattr(da.Adaptor, "_adaptive", second)
        with pytest.raises(KeyboardInterrupt):
            adaptor.double()
    assert torch.equal(adaptor(images), other(images))
