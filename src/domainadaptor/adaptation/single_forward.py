"""`single_forward`: a method whose statistics come from the batch alone, as a plain module that can be exported."""

from typing import Any

import torch
from torch import nn

from domainadaptor import registry
from domainadaptor.adaptation.copying import independent_copy, twin, unwrap
from domainadaptor.catalog import METHODS
from domainadaptor.errors import BadOption
from domainadaptor.norms.explicit import ExplicitNorm
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.options import coerce_options

SINGLE_FORWARD = ("auto", "source", "adabn", "adamixbn")  # methods that have this form


def single_forward(network: nn.Module, method: str = "auto", **options: Any) -> nn.Module:
    """Return a plain, independent module that answers a batch as the adaptor would, in one forward pass.

    The statistics are written out in its norm layers. It has no state, no locks and no checks, so torch.export,
    torch.onnx.export and torch.compile take it, with any number of images per batch.

    Args:
        network: Any trained network with batch normalization; it is never changed.
        method: "auto" (with effort="one"), "source", "adabn" or "adamixbn" (without a loss).
        **options: The method's options.

    Raises:
        BadOption: The method needs more than one forward pass, or there is no such option.
        UnsupportedNetwork: The method cannot adapt this network.

    Example:
        >>> plain = da.single_forward(network, "adamixbn")
        >>> torch.allclose(plain(images), da.adapt(network, "adamixbn")(images), atol=1e-5)
        True
    """
    if method not in SINGLE_FORWARD:
        raise BadOption(
            f"{method!r} has no single-forward form; expected one of {', '.join(SINGLE_FORWARD)}. Methods that take "
            "gradient steps or keep state cannot be exported: calibrate(network, images) puts the statistics of your "
            'images into a plain network; pass that with the method "source"'
        )
    if method == "auto":
        options = {"effort": "one", **options}
        if options["effort"] != "one":
            raise BadOption(f'effort={options["effort"]!r} takes several forward passes; expected "one"')
    if options.get("loss") is not None:
        raise BadOption(f"loss={options['loss']!r} takes gradient steps, which cannot be exported; leave it out")
    copied = independent_copy(unwrap(network)).eval()
    function = registry.find(METHODS, "method", method)
    norms = function(copied, **coerce_options(function, options, method))._main.norms
    with torch.inference_mode(False):
        explicit: dict[nn.Module, nn.Module] = {
            copied.get_submodule(name): ExplicitNorm(norm)
            for name, norm in norms.items()
            if isinstance(norm, MixedNorm) and norm.alpha != 1
        }
        return twin(copied, explicit).eval()
