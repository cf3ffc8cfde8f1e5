"""Inputs of methods besides the network: each method gets those it has an option for."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

import domainadaptor
from domainadaptor.errors import BadOption
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.networks.checkpoint import heads_for

Images = Tensor | Iterable[Any]


def options_from(
    method: str,
    *,
    heads: Mapping[str, Mapping[str, Tensor]] | None = None,
    preprocessing: Preprocessing | None = None,
    source_images: Images | None = None,
    target_images: Images | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Return the options of a method that follow from what is available; the user's options override them.

    Source and target images are tensors, or batches that can be iterated repeatedly.
    """
    there: dict[str, Any] = {"source_images": source_images, "target_images": target_images, "seed": seed}
    if preprocessing is not None:
        there |= {"mean": preprocessing.mean, "std": preprocessing.std}
    known = domainadaptor.method_info(method).defaults
    fitting = {option: value for option, value in there.items() if option in known and value is not None}
    return {**heads_for(method, heads or {}), **fitting}


def check_wants_source_images(method: str, flag: str) -> None:
    """Refuse source images for a method that does not use them."""
    if "source_images" not in domainadaptor.method_info(method).defaults:
        wanting = [
            name for name in domainadaptor.list_methods() if "source_images" in domainadaptor.method_info(name).defaults
        ]
        raise BadOption(f"{method} does not use source images: leave out {flag}, which is for {', '.join(wanting)}")
