"""Everything about a network that a user could notice, to compare before and after."""

import torch
from torch import nn


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
