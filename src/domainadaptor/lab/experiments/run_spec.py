"""A cell: everything that decides one measured number, and the short name that follows from it."""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from domainadaptor.lab.experiments.networks import Located

_LABELS = ("name", "command", "note")  # of a checkpoint: what it is called does not change what it answers


@dataclass(frozen=True)
class Cell:
    """One network, one method, one order of images."""

    dataset: str
    domains: tuple[str, ...]
    network: Located
    method: str = "source"
    options: Mapping[str, Any] = field(default_factory=dict)
    data_options: Mapping[str, Any] = field(default_factory=dict)
    protocol: str = "leave-one-out"
    protocol_options: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 64
    images: int | None = None  # of each domain at most
    order: int = 0  # seed of the order of images, and of which they are
    seed: int = 0  # of the method, and of the network that was trained
    sources: tuple[str, ...] = ()  # whose images a method may look at as source images; the network's own otherwise
    measure: str = ""  # another measurement than a method's accuracy

    def run(self, data: str, checkpoint: Mapping[str, Any], seen: Sequence[str] = ()) -> dict[str, Any]:
        """For a record: the settings, with the fingerprint of the data and what is known of the network.

        Args:
            data: The fingerprint.
            checkpoint: What is known of the network.
            seen: Domains that it was trained on, of which validation images alone are taken.
        """
        settings: dict[str, Any] = {
            "dataset": self.dataset,
            "data_options": dict(self.data_options),
            "data": data,
            "domains": list(self.domains),
            "checkpoint": dict(checkpoint),
        }
        settings |= {"validation": list(seen)} if seen else {}
        # Only where it was said: all other cells keep their names.
        settings |= {"raw": raw} if (raw := self.network.raw.settings()) else {}
        if self.measure:
            return settings | {
                "measure": self.measure,
                "options": dict(self.options),
                "batch_size": self.batch_size,
                "images": self.images,
                "order": self.order,
                "seed": self.seed,
            }
        return settings | {
            "method": self.method,
            "options": dict(self.options),
            "protocol": self.protocol,
            "protocol_options": dict(self.protocol_options),
            "batch_size": self.batch_size,
            "images": self.images,
            "order": self.order,
            "seed": self.seed,
            "sources": list(self.sources),
        }

    def command(self) -> str:
        """What repeats this cell alone."""
        if self.network.missing:
            return self.network.command
        words = ["domainadaptor", "evaluate", self.network.argument, self.dataset]
        words += ["--weights", self.network.weights] if self.network.weights else []
        words += self.network.raw.words()
        words += [word for name, value in self.data_options.items() for word in ("--data-option", _pair(name, value))]
        words += [word for domain in self.domains for word in ("--target", domain)]
        words += ["--method", self.method] if not self.measure else ["--measure", self.measure]
        words += [word for name, value in self.options.items() for word in ("--option", _pair(name, value))]
        if self.protocol != "leave-one-out":
            words += ["--protocol", self.protocol]
        words += [
            word for name, value in self.protocol_options.items() for word in ("--protocol-option", _pair(name, value))
        ]
        words += [word for source in self.sources for word in ("--source", source)]
        for flag, value, usual in (
            ("--batch-size", self.batch_size, 64),
            ("--images", self.images, None),
            ("--order", self.order, 0),
            ("--seed", self.seed, 0),
        ):
            words += [flag, str(value)] if value != usual else []
        return shlex.join(words)


def id_of(run: Mapping[str, Any]) -> str:
    """A short name that differs where anything that decides the numbers does."""
    known = {name: value for name, value in run["checkpoint"].items() if name not in _LABELS}
    text = json.dumps({**run, "checkpoint": known}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _pair(name: str, value: object) -> str:
    return f"{name}={json.dumps(value) if isinstance(value, list) else value}"
