"""One run: everything that decides its numbers, before data and network are opened."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from domainadaptor.lab.experiments.networks import LocatedNetwork
from domainadaptor.lab.records.runs import METHOD_FIELDS, CheckpointInfo, RunSettings


@dataclass(frozen=True)
class RunSpec:
    """One network, one method or measurement, one order of images."""

    dataset: str
    domains: tuple[str, ...]
    network: LocatedNetwork
    method: str = "source"
    options: dict[str, Any] = field(default_factory=dict)
    data_options: dict[str, Any] = field(default_factory=dict)
    protocol: str = "leave-one-out"
    protocol_options: dict[str, Any] = field(default_factory=dict)
    batch_size: int = 64
    images: int | None = None  # per domain at most
    order: int = 0  # seed of the order of images, and of which they are
    seed: int = 0  # of the method, and of the network that was trained
    sources: tuple[str, ...] = ()  # domains that stand for the source; the network's own otherwise
    measure: str = ""  # a measurement instead of the method's accuracy

    def settings(self, data: str, checkpoint: CheckpointInfo, validation: Sequence[str] = ()) -> RunSettings:
        """Return the settings as a record has them, with the fingerprint of the data and the opened network."""
        left = {"network", *(METHOD_FIELDS if self.measure else ())}
        own = {name: value for name, value in vars(self).items() if name not in left}
        raw = self.network.raw.settings()
        return RunSettings(**own, data=data, checkpoint=checkpoint, validation=tuple(validation), raw=raw)

    def command(self) -> str:
        """Return the command that repeats this run."""
        words = ["domainadaptor", "evaluate", self.network.argument, self.dataset]
        words += ["--weights", self.network.weights] if self.network.weights else []
        words += self.network.raw.flags()
        words += _pairs("--data-option", self.data_options)
        words += [word for domain in self.domains for word in ("--target", domain)]
        words += ["--measure", self.measure] if self.measure else ["--method", self.method]
        words += _pairs("--option", self.options)
        words += [] if self.protocol == "leave-one-out" else ["--protocol", self.protocol]
        words += _pairs("--protocol-option", self.protocol_options)
        words += [word for source in self.sources for word in ("--source", source)]
        for name, default in {"batch_size": 64, "images": None, "order": 0, "seed": 0}.items():
            value = getattr(self, name)
            words += [] if value == default else [f"--{name.replace('_', '-')}", str(value)]
        return shlex.join(words)


def _pairs(flag: str, options: Mapping[str, Any]) -> list[str]:
    pairs = [f"{name}={json.dumps(value) if isinstance(value, list) else value}" for name, value in options.items()]
    return [word for pair in pairs for word in (flag, pair)]
