from collections import OrderedDict
from typing import NamedTuple

import pytest
import torch

from domainadaptor.adaptation.logits import read_logits
from domainadaptor.errors import UnsupportedNetwork

Z = torch.randn(4, 5)


class Named(NamedTuple):
    features: torch.Tensor
    logits: torch.Tensor


class Holder:
    logits = Z


@pytest.mark.parametrize(
    "output",
    [Z, (Z, "aux"), [Z], {"logits": Z, "features": None}, OrderedDict(out=Z), Named(torch.zeros(4, 2), Z), Holder()],
    ids=["tensor", "tuple", "list", "dict", "dict of one", "named tuple", "object"],
)
def test_what_is_understood(output):
    assert read_logits(output, None, 4) is Z


def test_the_users_function_comes_first():
    assert read_logits((Z, Z * 2), lambda output: output[1], 4).equal(Z * 2)


@pytest.mark.parametrize(
    ("output", "hint"),
    [
        ({"a": Z, "b": Z}, "without 'logits': a, b"),
        ("text", "a str"),
        (None, "a NoneType"),
        ((), "a tuple"),
        (torch.zeros(4), r"sigmoid head .*\], 1\)"),
        (torch.zeros(4, 5, 1, 1), r"\(4, 5, 1, 1\)"),
        (torch.zeros(3, 5), r"\(3, 5\)"),
        (torch.zeros(4, 1), "sigmoid"),
        (torch.zeros(4, 5).long(), "int64"),
    ],
)
def test_what_is_not(output, hint):
    with pytest.raises(UnsupportedNetwork, match=hint):
        read_logits(output, None, 4)
