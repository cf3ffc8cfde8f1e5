"""Trial builds of methods for a tiny network: what is wrong with options, before anything runs."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

import domainadaptor
from domainadaptor.errors import AdaptationError, BadOption
from domainadaptor.norms.instance_aware import make_instance_aware
from domainadaptor.options import suggestion
from domainadaptor.tasks import make_task
from domainadaptor.tasks.learned_loss import LearnedLoss

_IMAGES, _HEADS = ("source_images", "target_images"), ("task", "learned_loss")
_NEEDED = (*_IMAGES, *_HEADS)  # options that an experiment cannot write down


def wrong_options(method: str, options: Mapping[str, Any]) -> list[str]:
    """All that a method says against its options: the one that a complaint is about is left out, for the next."""
    found: list[str] = []
    left = dict(options)
    while text := complaint(method, left):
        found.append(text)
        others = [{name: value for name, value in left.items() if name != out} for out in left]
        fewer = next((other for other in others if complaint(method, other) != text), None)
        if fewer is None:
            break
        left = fewer
    return found


def complaint(method: str, options: Mapping[str, Any]) -> str:
    """What a method says against its options when it is built for a tiny network; "" if nothing."""
    try:
        _build(method, options)
    except AdaptationError as error:
        return str(error)
    except Exception as error:  # a method may be anybody's
        return f"{method} cannot be built: {type(error).__name__}: {error}"
    return ""


def _build(method: str, options: Mapping[str, Any]) -> None:
    known = domainadaptor.method_info(method).defaults
    unknown = [name for name in options if name not in {*known, "guard"}]
    if unknown:
        raise BadOption(f"{method} has no option {unknown[0]!r}; {suggestion(unknown[0], known)}")
    given = [name for name in options if name in _NEEDED]
    if given:
        raise BadOption(f"{given[0]} cannot be written down here: it is taken from the network and the data")
    needed: dict[str, Any] = {name: [torch.zeros(2, 3, 8, 8)] for name in _IMAGES if name in known}
    norm = nn.BatchNorm2d(4)
    with torch.random.fork_rng(devices=[]):
        network = nn.Sequential(
            nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 7)
        )
        if "learned_loss" in known:
            needed["learned_loss"] = LearnedLoss(7).state_dict()
        if "task" in known:
            try:
                needed["task"] = make_task(method.rpartition(":")[2].replace("_", "-"), 4).state_dict()
            except BadOption:  # somebody's own task: its head comes with a trained network alone
                return
        if method == "note":
            make_instance_aware(network)
        domainadaptor.adapt(network.eval(), method, **needed, **options)
