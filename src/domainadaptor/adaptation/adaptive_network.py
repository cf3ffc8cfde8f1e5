"""AdaptiveNetwork: the source's network with stand-ins for its norms, and perhaps weights of its own."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from domainadaptor.adaptation.copying import twin
from domainadaptor.adaptation.features import FeatureTap, find_head
from domainadaptor.adaptation.layer_selection import layers_before
from domainadaptor.adaptation.prefix_cache import Stem
from domainadaptor.adaptation.snapshot import Snapshot
from domainadaptor.adaptation.state import Part
from domainadaptor.errors import UnsupportedNetwork
from domainadaptor.norms.base import AdaptiveNorm
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.norms.recognize import SourceNorm, find_norms
from domainadaptor.norms.tuned import TunedNorm, find_other_norms

NormPolicy = Callable[[SourceNorm], AdaptiveNorm]
Learns = Literal["nothing", "norms", "all"]


class LayerReport(NamedTuple):
    """What becomes of one norm layer."""

    name: str
    kind: str
    adapts: bool
    why: str


class AdaptiveNetwork(Part):
    """The network that adapts: the source's own parameters, but for norms, and weights where all of them learn.

    Args:
        source: The network as it was given.
        norm: Makes the stand-in for one batch norm layer; None keeps them.
        learns: "nothing", the scales and shifts of "norms", or "all" weights.
        others: Whether layer, group and instance norms learn too; then a network may have those alone.
        skip: Names of layers, or of modules that hold them, whose scale and shift do not learn.
        adapt_from: The share of norm layers, or the name, before which scales and shifts do not learn either.
        head: Name of the linear layer whose input are the features; "" finds it, None needs no features.
        special: Makes stand-ins for norm layers of kinds that `norm` is not for, by name.
        again: Whether batches get several passes, so that what these have in common is kept for the next.
    """

    def __init__(
        self,
        source: nn.Module,
        *,
        norm: NormPolicy | None,
        learns: Learns = "norms",
        others: bool = False,
        skip: tuple[str, ...] = (),
        adapt_from: str | float = 0.0,
        head: str | None = None,
        special: Callable[[nn.Module], Mapping[str, AdaptiveNorm]] | None = None,
        again: bool = False,
    ) -> None:
        made = {} if special is None else special(source)
        tuned = find_other_norms(source) if others else {}
        found, self.left = ({}, {}) if norm is None else find_norms(source, required=not tuned)
        self.norms: dict[str, AdaptiveNorm] = {}
        if norm is not None:
            self.norms |= {name: norm(layer) for name, layer in found.items()}
        self.norms |= {name: TunedNorm(layer) for name, layer in tuned.items()}
        self.norms |= made
        self._learns = learns
        order = [name for name, _ in source.named_modules() if name in self.norms]
        self._skip = (*skip, *layers_before(adapt_from, order))
        layers = {name: layer.layer for name, layer in found.items()} | tuned
        layers |= {name: source.get_submodule(name) for name in made}
        replaced = {layers[name]: stand_in for name, stand_in in self.norms.items()}
        self._source = dict(source.named_parameters())
        private = learns == "all"
        self.network = twin(source, replaced, private=private).eval()
        self.weights: dict[str, nn.Parameter] = {}
        if private:
            self.weights = {name: p for name, p in self.network.named_parameters() if name in self._source}
        self._kinds = {name: type(source.get_submodule(name)).__name__ for name in [*self.norms, *self.left]}
        if learns == "norms" and not any(stand_in.learns for stand_in in self.norms.values()):
            raise UnsupportedNetwork(
                "no norm layer has a scale or a shift to learn; use loss=None to mix statistics only"
            )
        for name, stand_in in self.norms.items():
            for p in stand_in.learnable():
                p.requires_grad_(learns != "nothing" and not self._skips(name))
        if learns == "norms" and all(self._skips(name) for name, n in self.norms.items() if n.learns):
            raise UnsupportedNetwork(
                f"nothing is left to learn: skip={skip} and adapt_from={adapt_from!r} leave out every norm layer; "
                "name fewer"
            )
        # Stand-ins are made at the source; folding and steps move them away from it.
        self._start = {
            f"{name}.{part}": p.detach().clone()
            for name, norm in self.norms.items()
            for part, p in zip(norm.learns, norm.learnable(), strict=True)
        }
        for p in self.weights.values():
            p.requires_grad_(True)
        self.tap = None if head is None else FeatureTap(self.network, find_head(self.network, head or None))
        self.stem = Stem(self.network) if again else None
        for mixed in self.mixed().values():
            mixed.again = again
        self._buffers = Snapshot(self.network, source)

    def learnable(self) -> list[nn.Parameter]:
        """What steps change: of layers that the last first pass used, once each."""
        return list(self.named_learnable().values())

    def named_learnable(self) -> dict[str, nn.Parameter]:
        """The same by name: "layer.scale", "layer.shift", and a weight's own name."""
        norms = {
            f"{name}.{part}": p
            for name, norm in self.norms.items()
            if norm.used
            for part, p in zip(norm.learns, norm.learnable(), strict=not norm.reused)
            if p.requires_grad
        }
        return {**norms, **self.weights}

    def start(self, name: str) -> Tensor:
        """Where the source has what `named_learnable` gives under this name."""
        return self._source[name].detach() if name in self.weights else self._start[name]

    def _skips(self, name: str) -> bool:
        return any(name == skipped or name.startswith(f"{skipped}.") for skipped in self._skip)

    def begin_pass(self) -> None:
        """A new pass begins."""
        for norm in self.norms.values():
            norm.begin_pass()

    def find_reused(self) -> bool:
        """Looks which layers the last pass used more than once; true if that is news, and the pass must be repeated."""
        reused = {name for name, norm in self.norms.items() if norm.passes > 1}
        news = reused != {name for name, norm in self.norms.items() if norm.reused}
        if news:
            for name, norm in self.norms.items():
                norm.reset()
                norm.reused = name in reused
        return news

    def mark_used(self) -> None:
        """Remembers which layers the last pass used.

        Raises:
            UnsupportedNetwork: It used none.
        """
        for norm in self.norms.values():
            norm.used = norm.passes > 0
        if self.norms and not any(norm.used for norm in self.norms.values()):
            raise UnsupportedNetwork(
                "the network's forward did not use any of its norm layers, so nothing can be adapted"
            )

    def mixed(self) -> dict[str, MixedNorm]:
        """The stand-ins for batch norms, by name."""
        return {name: norm for name, norm in self.norms.items() if isinstance(norm, MixedNorm)}

    def alphas(self) -> dict[str, float]:
        """Layer -> weight of its source statistics in the last pass; "layer[i]" for the uses of a reused layer."""
        alphas: dict[str, float] = {}
        for name, norm in self.mixed().items():
            keys = [name] if len(norm.uses) == 1 else [f"{name}[{i}]" for i in range(len(norm.uses))]
            alphas |= {key: float(use.alpha) for key, use in zip(keys, norm.uses, strict=True)}
        return alphas

    def reused(self) -> list[str]:
        """The layers that are used more than once."""
        return [name for name, norm in self.norms.items() if norm.reused]

    def single_note(self) -> str | None:
        """Says which layers were given one value per channel in the last pass, if any were."""
        single = [name for name, norm in self.mixed().items() if any(use.single for use in norm.uses)]
        if not single:
            return None
        return f"one value per channel, so alpha is 1 and the source statistics were kept, in: {listed(single)}"

    def layers(self) -> list[LayerReport]:
        """What becomes of each norm layer."""
        reports = [
            LayerReport(name, self._kinds[name], adapts=norm.used, why=self._part(name, norm))
            for name, norm in self.norms.items()
        ]
        return reports + [
            LayerReport(name, self._kinds[name], adapts=False, why=why) for name, why in self.left.items()
        ]

    def _part(self, name: str, norm: AdaptiveNorm) -> str:
        if not norm.used:
            return "not used by the forward in eval mode"
        if norm.reused:
            return "used more than once: mixed, neither folded nor stepped"
        learning = self._learns != "nothing" and not self._skips(name)
        parts = " and ".join(norm.learns) if learning else ""
        if isinstance(norm, TunedNorm):
            return parts or "nothing: it takes each image's own statistics"
        if learning and not norm.learns:
            return "statistics (it has no scale or shift)"
        return f"statistics, {parts}" if parts else "statistics"

    def plain_values(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Layer -> tensor name -> value, which make the plain network repeat the last pass.

        Raises:
            UnsupportedNetwork: A layer is used more than once, so that no plain layer can hold its statistics.
        """
        if reused := self.reused():
            raise UnsupportedNetwork(
                f"a plain layer holds one set of statistics, and {listed(reused)} was used more than once; "
                "use adaptor(images) instead of adaptor.adapted(images)"
            )
        return self._own_weights() | {name: n.plain_values() for name, n in self.norms.items() if n.used}

    def learned(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Layer -> tensor name -> value, of what was learned and is remembered."""
        return self._own_weights() | {name: norm.learned() for name, norm in self.norms.items() if norm.used}

    def _own_weights(self) -> dict[str, Mapping[str, Tensor]]:
        layers: dict[str, dict[str, Tensor]] = {}
        for full, p in self.weights.items():
            layer, _, name = full.rpartition(".")
            layers.setdefault(layer, {})[name] = p.detach()
        return dict(layers)

    @torch.no_grad()
    def reset(self) -> None:
        """Back to the source: norms, weights, buffers."""
        for norm in self.norms.values():
            norm.reset()
        for name, p in self.weights.items():
            p.copy_(self._source[name])
            p.grad = None
        self._buffers.restore()

    def settle(self) -> None:
        """Running statistics are kept, what passes measured is let go, buffers are put back."""
        for norm in self.norms.values():
            norm.settle()
        if self.tap is not None:
            self.tap.release()
        if self.stem is not None:
            self.stem.release()
        self._buffers.restore()

    def memory(self) -> Any:
        """Copies of all that was learned."""
        norms = {name: norm.memory() for name, norm in self.norms.items()}
        return norms, {name: p.detach().clone() for name, p in self.weights.items()}

    @torch.no_grad()
    def recall(self, memory: Any) -> None:
        """Goes back to those."""
        norms, weights = memory
        for name, norm in self.norms.items():
            norm.recall(norms[name])
        for name, p in self.weights.items():
            p.copy_(weights[name])
            p.grad = None


def listed(names: list[str]) -> str:
    """Up to five names."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
