"""Parts go back to what they were, however often."""

import torch
from torch import nn
from torch.optim import Adam

from domainadaptor.adaptation.state import LazyOptimizer, SeededGenerator


def test_an_optimizer_goes_back_twice():
    """A step after going back must not write to what it went back to."""
    weight = nn.Parameter(torch.ones(3))
    kept = LazyOptimizer(lambda learnable: Adam(learnable, lr=0.1))

    def step() -> None:
        weight.grad = torch.tensor([1.0, 2.0, 3.0])
        kept.over([weight]).step()

    step()
    held = kept.state_dict()
    for _ in range(3):
        kept.load_state_dict(held)
        assert kept.state_dict() is not None
        step()
        kept.load_state_dict(held)
        step()
        state = kept.over([weight]).state[weight]
        assert float(state["step"]) == 2
        torch.testing.assert_close(state["exp_avg"], torch.tensor([0.19, 0.38, 0.57]))


def test_draws_go_back():
    draws = SeededGenerator(3)
    first = torch.rand(2, generator=draws.generator)
    held = draws.state_dict()
    second = torch.rand(2, generator=draws.generator)
    draws.load_state_dict(held)
    assert torch.equal(torch.rand(2, generator=draws.generator), second)
    draws.reset()
    assert torch.equal(torch.rand(2, generator=draws.generator), first)
