"""What surrounds a call does not matter: gradients, autocast, precision, layout, default device."""

import copy

import pytest
import torch

import domainadaptor as da
from tests.conftest import batch, make

METHODS = list(da.list_methods())


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


@pytest.mark.parametrize("method", METHODS)
def test_the_default_device_of_the_caller_does_not_matter(method, net, images):
    expected = make(net, method)(images)
    with torch.device("meta"):
        assert torch.equal(make(net, method)(images), expected)
