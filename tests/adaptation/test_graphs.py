"""Adaptors under torch's compilers and tracers."""

import subprocess
import sys

import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import UnsupportedNetwork


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
def test_exporting_and_tracing_say_what_to_do(net, images):
    adaptor = da.adapt(net, "domainadaptor-t")
    with pytest.raises(UnsupportedNetwork, match=r"Export or trace adaptor\.adapted_network\(images\)"):
        torch.export.export(adaptor, (images,))
    with pytest.raises(UnsupportedNetwork, match=r"or single_forward\(network, method\)"):
        torch.jit.trace(adaptor, (images,))
    plain = adaptor.adapted_network(images)
    torch.testing.assert_close(torch.export.export(plain, (images,)).module()(images), plain(images))


_COMPILED = """
import torch, domainadaptor as da
from tests.conftest import GoldenNet, batch, stir
net, images = stir(GoldenNet()), batch(8, 3, 12, 12)
expected = da.adapt(net, "domainadaptor-t")(images)
assert torch.equal(torch.compile(da.adapt(net, "domainadaptor-t"))(images), expected)
"""


def test_compiling_leaves_an_adaptor_as_it_is():
    done = subprocess.run([sys.executable, "-c", _COMPILED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
