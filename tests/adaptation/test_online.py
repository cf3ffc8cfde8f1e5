"""What every adaptor promises that remembers batches: it goes on exactly, goes back exactly, and mixes nothing up."""

import copy
import itertools
import pickle
import threading

import pytest
import torch

import domainadaptor as da
from tests.conftest import GoldenNet, batch, stir
from tests.conftest import make as build

METHODS = [name for name in da.list_methods() if "reset_every" in da.method_info(name).defaults]
BATCHES = [batch(6, 3, 12, 12, seed=seed) for seed in range(5)]


def make(method, net, **options):
    fast = {"lr": 0.05} if "lr" in da.method_info(method).defaults else {}
    return build(net, method, **{"reset_every": None, **fast, **options})


def answers(adaptor, batches=BATCHES):
    return [adaptor(images) for images in batches]


def same(one, other):
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_it_remembers_and_goes_back_exactly(method, net):
    adaptor = make(method, net)
    first = answers(adaptor)
    assert not torch.equal(answers(adaptor, BATCHES[:1])[0], first[0])
    adaptor.reset()
    assert same(answers(adaptor), first)
    adaptor.reset()
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in adaptor.state_dict().items())


@pytest.mark.parametrize("method", METHODS)
def test_it_forgets_after_so_many_batches(method, net):
    every = answers(make(method, net, reset_every=2))
    for start in (0, 2, 4):
        assert same(answers(make(method, net), BATCHES[start : start + 2]), every[start : start + 2])
    assert same(answers(make(method, net, reset_every=1)), [make(method, net)(images) for images in BATCHES])


@pytest.mark.parametrize("method", METHODS)
def test_copies_go_on_from_where_it_was(method, net):
    adaptor = make(method, net)
    answers(adaptor, BATCHES[:2])
    copies = [copy.deepcopy(adaptor), pickle.loads(pickle.dumps(adaptor)), copy.deepcopy(adaptor).to("cpu")]
    expected = answers(adaptor, BATCHES[2:])
    for other in copies:
        assert same(answers(other, BATCHES[2:]), expected)


@pytest.mark.parametrize("method", METHODS)
def test_a_move_keeps_what_was_learned(method, net):
    adaptor = make(method, net)
    answers(adaptor, BATCHES[:3])
    moved = copy.deepcopy(adaptor).double()
    for one, other in zip(answers(adaptor, BATCHES[3:]), [moved(x.double()) for x in BATCHES[3:]], strict=True):
        torch.testing.assert_close(one, other.float(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_looking_and_empty_batches_change_nothing(method, net):
    expected = answers(make(method, net))
    adaptor = make(method, net)
    seen = []
    for images in BATCHES:
        seen.append(adaptor(images))
        assert torch.equal(adaptor.source_logits(images), net(images))
        adaptor(images[:0])
        adaptor.layers()
        adaptor.state_dict()
    assert same(seen, expected)


@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_peek_is_the_next_answer_and_changes_nothing(method, guard, net):
    quiet = {"lr": 1e-3} if guard and "lr" in da.method_info(method).defaults else {}
    expected = answers(make(method, net, guard=guard, **quiet))
    adaptor = make(method, net, guard=guard, **quiet)
    for images, answer in zip(BATCHES, expected, strict=True):
        for other in BATCHES:
            adaptor.peek(other)
        assert torch.equal(adaptor.peek(images).logits, answer)
        assert torch.equal(adaptor(images), answer)
    assert adaptor.peek(BATCHES[0][:0]).logits.shape == (0, 7)
    assert not torch.equal(adaptor.peek(BATCHES[0]).logits, expected[0])


@pytest.mark.parametrize("method", METHODS)
def test_what_misleads_is_not_remembered(method, net):
    adaptor, other = make(method, net), make(method, net)
    answers(adaptor, BATCHES[:2])
    answers(other, BATCHES[:2])
    result = adaptor.adapt(1e37 * BATCHES[0])
    if result.fell_back:
        assert same(answers(adaptor, BATCHES[2:]), answers(other, BATCHES[2:]))


@pytest.mark.parametrize("method", METHODS)
def test_the_state_loads_into_the_plain_network(method, net):
    adaptor = make(method, net)
    answers(adaptor)
    state = adaptor.state_dict()
    assert list(state) == list(net.state_dict())
    stir(GoldenNet()).load_state_dict(state)


@pytest.mark.parametrize("method", METHODS)
def test_threads_get_the_answers_of_some_order(method, net):
    batches = BATCHES[:3]
    orders = {
        order: dict(zip(order, answers(make(method, net), [batches[at] for at in order]), strict=True))
        for order in itertools.permutations(range(3))
    }
    adaptor, got, used = make(method, net), {}, torch.get_num_threads()

    def work(at: int) -> None:
        torch.set_num_threads(used)  # a new thread begins with the machine's number, and sums differ with it
        got[at] = adaptor(batches[at])

    threads = [threading.Thread(target=work, args=(at,)) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert any(all(torch.equal(got[at], expected[at]) for at in range(3)) for expected in orders.values())
