"""What every adaptor promises: the network untouched, nothing kept, nothing half-done, any context, any batch."""

import contextlib
import copy
import pickle
import threading

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.errors import AdaptationError, UnsupportedNetwork
from tests.conftest import ANSWER_THEMSELVES, GoldenNet, batch, make, needs, one_network, stir, suited

METHODS = list(da.methods())
LEARNING = [name for name in METHODS if da.options_of(name).get("loss")]
ONLINE = [name for name in METHODS if da.options_of(name).get("reset_every", 1) != 1]
PREDICTING = [name for name in METHODS if da.about(name).kind == "prediction"]  # in place of the network's head
EPISODIC = [name for name in METHODS if name not in ONLINE]


def fingerprint(network: nn.Module) -> dict:
    """Everything about a network that a user could notice."""
    modules = dict(network.named_modules())
    return {
        "tensors": {name: (t.data_ptr(), t._version, t.detach().clone()) for name, t in tensors(network)},
        "objects": {name: id(t) for name, t in tensors(network)},
        "flags": {name: p.requires_grad for name, p in network.named_parameters()},
        "grads": {name: None if p.grad is None else p.grad.clone() for name, p in network.named_parameters()},
        "modes": {name: m.training for name, m in modules.items()},
        "hooks": {name: [len(h) for k, h in vars(m).items() if k.endswith("_hooks")] for name, m in modules.items()},
        "types": {name: type(m) for name, m in modules.items()},
        "attributes": {name: sorted(vars(m)) for name, m in modules.items()},
    }


def tensors(network):
    return [*network.named_parameters(), *network.named_buffers()]


def assert_same(one: dict, other: dict) -> None:
    for key in one:
        if key in ("tensors", "grads"):
            continue
        assert one[key] == other[key], key
    for name, (pointer, version, value) in one["tensors"].items():
        assert (pointer, version) == other["tensors"][name][:2], name
        assert torch.equal(value, other["tensors"][name][2]), name
    for name, grad in one["grads"].items():
        assert (grad is None) == (other["grads"][name] is None)
        assert grad is None or torch.equal(grad, other["grads"][name])


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
        adaptor.adapted(one_network(method, images))
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

    from domainadaptor.adaptation import adaptive, losses, objective, step
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
        (adaptive.AdaptiveNetwork, "alphas"),
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
    with pytest.raises(UnsupportedNetwork, match="in place of the network's head"):
        adaptor.adapted(images)
    assert torch.equal(adaptor(images), second)
    adaptor.reset()
    assert torch.equal(adaptor(images), first)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in PREDICTING])
def test_the_adapted_plain_network_repeats_the_adapted_logits(method, images):
    net, images = suited(odd_net(), method), one_network(method, images)
    adaptor = make(net, method, **({"lr": 0.1, "steps": 2} if method in LEARNING else {}))
    if method in ANSWER_THEMSELVES:
        with pytest.raises(UnsupportedNetwork, match=r"adaptor\(images\) instead"):
            adaptor.adapted(images)
        return
    plain = adaptor.adapted(images)
    assert type(plain) is GoldenNet
    assert not plain.training
    after = {"predict": "after"} if "predict" in da.options_of(method) else {}
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
        torch.testing.assert_close(adaptor.adapted(x)(x).detach(), adaptor(x), atol=1e-5, rtol=1e-5)


def test_the_unfolded_adapted_network_repeats_too(net, images):
    for options in ({"fold": False}, {"fold": False, "loss": "gem-t", "lr": 0.1}, {"alpha": 0.3, "fold": False}):
        adaptor = da.adapt(net, "adamixbn", **options)
        torch.testing.assert_close(adaptor.adapted(images)(images).detach(), adaptor(images), atol=1e-5, rtol=1e-5)


def test_frozen_tensors_share_storage_and_wrapping_is_light():
    import torchvision

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


@pytest.mark.parametrize("context", ["no_grad", "inference_mode", "inference tensor", "enable_grad", "requires_grad"])
@pytest.mark.parametrize("method", METHODS)
def test_contexts_of_the_caller(method, context, net, images):
    expected = make(net, method)(images)
    x = images.clone()
    if context == "no_grad":
        with torch.no_grad():
            got = make(net, method)(x)
    elif context == "inference_mode":
        with torch.inference_mode():
            got = make(net, method)(x)
            assert torch.is_inference_mode_enabled()
    elif context == "inference tensor":
        with torch.inference_mode():
            x = x.clone()
        got = make(net, method)(x)
    elif context == "requires_grad":
        x.requires_grad_()
        got = make(net, method)(x)
        assert x.grad is None
    else:
        got = make(net, method)(x)
    assert torch.equal(got, expected)
    assert not got.requires_grad
    assert not got.is_inference()


@pytest.mark.parametrize("method", METHODS)
def test_autocast(method, net, images):
    exact = make(net, method)(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = make(net, method).adapt(images)
        assert torch.is_autocast_enabled("cpu")
    assert not got.fell_back
    torch.testing.assert_close(got.logits.float(), exact, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("method", METHODS)
def test_precisions(method, dtype, net, images):
    exact = make(net, method)(images)
    by_network = make(copy.deepcopy(net).to(dtype), method).adapt(images.to(dtype))
    by_adaptor = make(net, method).to(dtype).adapt(images.to(dtype))
    for result in (by_network, by_adaptor):
        assert result.logits.dtype == dtype
        assert not result.fell_back
        torch.testing.assert_close(result.logits.float(), exact, atol=0.15, rtol=0.15)
    assert torch.equal(by_network.logits, by_adaptor.logits)
    assert next(net.parameters()).dtype == torch.float32


def test_bfloat16_still_learns(net, images):
    result = da.adapt(net.bfloat16(), "domainadaptor-t", lr=0.1).adapt(images.bfloat16())
    assert not torch.equal(result.logits, result.before)


@pytest.mark.parametrize("method", METHODS)
def test_layouts_of_the_batch(method, net, images):
    expected = make(net, method)(images)
    last = images.contiguous(memory_format=torch.channels_last)
    strided = batch(8, 3, 24, 24)[..., ::2, ::2].copy_(images)
    for x in (last, strided):
        held = x.clone()
        torch.testing.assert_close(make(net, method)(x), expected, atol=1e-5, rtol=1e-5)
        assert torch.equal(x, held)
    wide = net.to(memory_format=torch.channels_last)
    torch.testing.assert_close(make(wide, method)(last), expected, atol=1e-5, rtol=1e-5)


def test_channels_last_is_kept_through_the_network(net, images):
    seen = []
    net.c3.register_forward_pre_hook(
        lambda module, args: seen.append(args[0].is_contiguous(memory_format=torch.channels_last))
    )
    net.to(memory_format=torch.channels_last)
    da.adapt(net, "domainadaptor-t")(images.contiguous(memory_format=torch.channels_last))
    assert seen == [True, True]


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
    with pytest.raises(UnsupportedNetwork, match="adaptor already"):
        da.adapt(da.adapt(net, "adabn"), "adabn")


@pytest.mark.parametrize("method", METHODS)
def test_the_default_device_of_the_caller_does_not_matter(method, net, images):
    expected = make(net, method)(images)
    with torch.device("meta"):
        assert torch.equal(make(net, method)(images), expected)


def test_it_is_in_eval_mode_for_good(net):
    adaptor = da.adapt(net, "adabn")
    assert not adaptor.training
    assert not adaptor.train().training


def test_an_adaptor_of_ones_own_falls_back_too(net, images):
    class Wild(da.StepAdaptor):
        def _learn(self, images):
            result = super()._learn(images)
            return result._replace(logits=result.logits * float("inf"))

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
    adaptor._watch = da.adapt(net)._watch
    assert torch.equal(adaptor(images), expected)
    assert torch.equal(adaptor.state_dict()["fc.weight"], net.fc.weight)


class Counting(GoldenNet):
    """A forward that writes to its buffers and its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("total", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        self.total = self.total + 1
        return super().forward(x.mul_(1.0 + 0.1 * float(self.calls)))


def test_a_forward_that_writes_to_buffers_and_input_does_no_harm(images):
    net = stir(Counting())
    held = images.clone()
    adaptor = da.adapt(net, "adamixbn")
    first = adaptor(images)
    assert torch.equal(adaptor(images), first)
    assert torch.equal(images, held)
    adaptor.unadapted(images)
    adaptor(images[:0])
    assert float(net.calls) == float(net.total) == 0
    assert float(adaptor.state_dict()["calls"]) == float(adaptor.state_dict()["total"]) == 0


class Normalizing(GoldenNet):
    """Forwards that write to their own parameters, as heads with unit rows and clamped temperatures do."""

    scaled = True  # else the logits are what the head answers, as methods that need its features ask
    counted = True  # by autograd, which then refuses a second pass before the backward, as some methods make one

    def __init__(self) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(9.0))

    def forward(self, x):
        with torch.no_grad():
            (self.logit_scale if self.counted else self.logit_scale.data).clamp_(max=3.0)
        self.fc.weight.data.div_(self.fc.weight.data.norm(dim=1, keepdim=True))
        self.bn2.weight.data.clamp_(max=0.9)
        return super().forward(x) * (self.logit_scale if self.scaled else 1)


@pytest.mark.parametrize("method", METHODS)
def test_a_forward_that_writes_to_its_parameters_does_no_harm(method, images):
    torch.manual_seed(0)
    net = suited(stir(Normalizing()), method)
    net.counted = method not in ("domainadaptor-aug", "deyo", "roid")
    net.scaled = not needs(method, "features and a linear head")
    before = fingerprint(net)
    adaptor = make(net, method)
    state = copy.deepcopy(adaptor.state_dict())
    first = adaptor(images)
    for _ in range(2):
        adaptor.reset()
        assert torch.equal(adaptor(images), first)
        adaptor.reset()
        assert_same(before, fingerprint(net))
        assert all(torch.equal(value, state[name]) for name, value in adaptor.state_dict().items())
    assert torch.equal(copy.deepcopy(adaptor)(images), first)
    assert torch.equal(adaptor.unadapted(images), copy.deepcopy(net)(images))
    assert adaptor.source.c1.weight.data_ptr() == net.c1.weight.data_ptr()
    assert adaptor.source.fc.weight.data_ptr() != net.fc.weight.data_ptr()


def test_a_failing_first_batch_leaves_written_parameters_alone(images, monkeypatch):
    net = stir(Normalizing())
    before = fingerprint(net)
    adaptor = da.adapt(net, "domainadaptor-t")
    with monkeypatch.context() as patched:
        patched.setattr(GoldenNet, "forward", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            adaptor(images)
    assert_same(before, fingerprint(net))
    adaptor(images)
    assert_same(before, fingerprint(net))


class Keeping(GoldenNet):
    """A forward that keeps its activations, in every place where a module can."""

    def forward(self, x):
        logits = super().forward(x)
        self.last, self.seen = logits, [logits]
        self.register_buffer("cache", logits.detach().mean(0))
        return logits


@pytest.mark.parametrize("method", METHODS)
def test_what_a_forward_keeps_is_forgotten(method, images):
    net = suited(stir(Keeping()), method)
    adaptor = make(net, method)
    names = list(adaptor.state_dict())
    expected = adaptor(images)
    assert list(adaptor.state_dict()) == names
    for fresh in (copy.deepcopy(adaptor), adaptor.to(torch.float32)):
        fresh.reset()
        assert torch.equal(fresh(images), expected)
    assert not hasattr(net, "last")


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


def test_unadapted_is_the_source(net, images):
    assert torch.equal(da.adapt(net, "domainadaptor-t").unadapted(images), net(images))
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
