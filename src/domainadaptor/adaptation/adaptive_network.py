"""AdaptiveNetwork: the source model with replaced norm layers, and weights of its own where all of them learn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from domainadaptor.adaptation.copying import independent_copy, twin
from domainadaptor.adaptation.logits import in_loss_precision
from domainadaptor.adaptation.predictor import FeatureTap, find_head
from domainadaptor.adaptation.prefix_cache import PrefixCache
from domainadaptor.adaptation.snapshot import Snapshot
from domainadaptor.adaptation.state import Stateful
from domainadaptor.errors import UnsupportedNetwork, listed
from domainadaptor.norms.base import AdaptiveNorm
from domainadaptor.norms.batch import AdaptiveBatchNorm
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.norms.recognize import SourceNorm, find_norms
from domainadaptor.norms.tuned import TunedNorm, find_other_norms

NormFactory = Callable[[SourceNorm], AdaptiveNorm]
Learns = Literal["nothing", "norms", "all"]


class LayerReport(NamedTuple):
    """What happens to one norm layer."""

    name: str
    kind: str
    adapts: bool
    why: str


@dataclass(frozen=True)
class NetworkSettings:
    """Which norm layers of a network are replaced, and what learns."""

    norm: NormFactory | None  # makes the replacement of one batch norm layer; None keeps them
    learns: Learns = "norms"  # "nothing", the scales and shifts of "norms", or "all" weights
    others: bool = False  # whether layer, group and instance norms learn too; then a network may have only those
    skip: tuple[str, ...] = ()  # names of layers, or of modules that hold them, whose scale and shift do not learn
    adapt_from: float = 0.0  # the fraction of the norm layers, from the first one, that do not learn
    head: str | None = None  # the linear layer whose input are the features; "" finds it, None needs no features
    special: Callable[[nn.Module], Mapping[str, AdaptiveNorm]] | None = None  # replacements, by name, of other norms
    repeated: bool = False  # whether a batch gets several passes, so that what these have in common is cached


class AdaptiveNetwork(Stateful):
    """A copy of the source model that adapts. It shares the source model's parameters, except those that learn.

    Args:
        source: The source model.
        read_logits: Extracts the logits from what the network returns, given the number of images.
        settings: What is replaced and what learns.

    Example:
        >>> class Spread(da.Objective):
        ...     \"\"\"Let scales stay near those of the source model.\"\"\"
        ...     def __call__(self, network: da.AdaptiveNetwork, images, logits):
        ...         near = [(p - network.start(name)).square().sum() for name, p in network.learnable().items()]
        ...         return da.entropy(logits).mean() + sum(near)
        >>> da.StepAdaptor(network, norm=da.batch_only, objective=Spread())(images).shape
        torch.Size([8, 5])
    """

    def __init__(
        self, source: nn.Module, read_logits: Callable[[object, int], Tensor], settings: NetworkSettings
    ) -> None:
        self._source_model = source
        self._read_logits = read_logits
        self._settings = settings
        made, self._left = _make_norms(source, settings)
        self.norms = {name: made[name] for name, _ in source.named_modules() if name in made}  # in the network's order
        early = int(settings.adapt_from * len(self.norms) + 1e-9)  # 0.1 of ten layers is one
        self._skip = (*settings.skip, *list(self.norms)[:early])
        self._kinds = {name: type(source.get_submodule(name)).__name__ for name in [*self.norms, *self._left]}
        self._check_something_learns()
        learns, head = settings.learns, settings.head
        replaced = {source.get_submodule(name): norm for name, norm in self.norms.items()}
        self.network = twin(source, replaced, private=learns == "all").eval()
        self._source = dict(source.named_parameters())
        self.weights: dict[str, nn.Parameter] = {}
        if learns == "all":
            self.weights = {name: p for name, p in self.network.named_parameters() if name in self._source}
        for name, layer in self.norms.items():
            for p in layer.learnable():
                p.requires_grad_(learns != "nothing" and not self._skips(name))
        for p in self.weights.values():
            p.requires_grad_(True)
        self._tensors = [t for norm in self.norms.values() for t in norm.tensors.values()]
        self._tensors += list(self.weights.values())
        self.tap = None if head is None else FeatureTap(self.network, find_head(self.network, head or None))
        self._prefix = PrefixCache(self.network) if settings.repeated else None
        for layer in self.norms.values():
            if isinstance(layer, MixedNorm):
                layer.cached = settings.repeated
        self._buffers = Snapshot(self.network, source)
        self._first = True  # the next pass is the first of its batch
        self.inputs: tuple[Any, ...] = ()  # of the network, besides the images of the batch

    def __call__(self, images: Tensor) -> Tensor:
        """Run one pass and return the logits, (N, K).

        Raises:
            UnsupportedNetwork: The network used none of its norm layers, or returned no logits.
        """
        # A layer that is found to be used more than once must not be folded, so its first pass is repeated.
        while True:
            for norm in self.norms.values():
                norm.uses = []
            # A first layer that works in place would write to the user's images.
            copy = images.clone() if self._prefix is None else self._prefix.input(images)
            output = self.network(copy, *self.inputs)
            if not self._first or not self._found_reuse():
                break
        if self._first:
            self._mark_used()
            self._first = False
        logits = self._read_logits(output, len(images))
        if self.tap is not None:
            self.tap.verify(logits)
        return logits

    def independent(self) -> "AdaptiveNetwork":
        """Return the same network made of an independent copy of the source model."""
        return AdaptiveNetwork(independent_copy(self._source_model).eval(), self._read_logits, self._settings)

    def features(self) -> Tensor:
        """Return what the head was given in the last pass, (N, D), in at least float32."""
        assert self.tap is not None
        return in_loss_precision(self.tap.features())

    def learnable(self) -> dict[str, nn.Parameter]:
        """Return what steps change, by name: "layer.scale", "layer.shift", and the names of weights.

        Layers that the first pass did not use, or used more than once, do not learn.
        """
        norms = {
            f"{name}.{part}": p
            for name, norm in self.norms.items()
            if norm.used
            for part, p in zip(norm.learns, norm.learnable(), strict=not norm.reused)
            if p.requires_grad
        }
        return {**norms, **self.weights}

    def start(self, name: str) -> Tensor:
        """Return the source model's value of what `learnable` gives under this name."""
        if name in self.weights:
            return self._source[name].detach()
        layer, _, part = name.rpartition(".")
        return self.norms[layer].source_tensors[part]

    def alphas(self) -> dict[str, Tensor | float]:
        """Return the weight of the source statistics in the last pass, by layer."""
        alphas: dict[str, Tensor | float] = {}
        for name, uses in self._uses().items():
            keys = [name] if len(uses) == 1 else [f"{name}[{i}]" for i in range(len(uses))]
            alphas |= {key: use.alpha for key, use in zip(keys, uses, strict=True)}
        return alphas

    def single_note(self) -> str | None:
        """Say which layers were given one value per channel in the last pass."""
        single = [name for name, uses in self._uses().items() if any(use.single for use in uses)]
        if not single:
            return None
        return f"one value per channel, so the source statistics were used (alpha is 1), in: {listed(single)}"

    def reused(self) -> list[str]:
        """Return the layers that are used more than once per pass."""
        return [name for name, norm in self.norms.items() if norm.reused]

    def layers(self) -> list[LayerReport]:
        """Report what happens to each norm layer."""
        reports = [
            LayerReport(name, self._kinds[name], adapts=norm.used, why=self._adapts(name, norm))
            for name, norm in self.norms.items()
        ]
        return reports + [LayerReport(name, self._kinds[name], False, why) for name, why in self._left.items()]

    def plain_values(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Return layer -> tensor name -> value with which a plain network repeats the last pass.

        Raises:
            UnsupportedNetwork: A layer is used more than once, and a plain layer has one set of statistics.
        """
        several = [name for name, uses in self._uses().items() if len({id(use.moments.mean) for use in uses}) > 1]
        if several:
            raise UnsupportedNetwork(
                f"A plain layer holds one set of statistics, but {listed(several)} was used more than once. "
                "Use adaptor(images) instead of a plain network."
            )
        return self._own_weights() | {name: n.plain_values() for name, n in self.norms.items() if n.used}

    def learned(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Return layer -> tensor name -> value of what is kept between batches."""
        return self._own_weights() | {name: norm.learned() for name, norm in self.norms.items() if norm.used}

    @torch.no_grad()
    def reset(self) -> None:
        """Go back to the source model: norms, weights, buffers."""
        source = [t for norm in self.norms.values() for t in norm.source_tensors.values()]
        source += [self._source[name] for name in self.weights]
        self._write(source)
        for norm in self.norms.values():
            norm.forget()
        self._clean()

    def end_batch(self) -> None:
        """Keep running statistics, drop what the passes measured, restore buffers that they wrote to."""
        for norm in self.norms.values():
            norm.end_batch()
        self._clean()

    def state_dict(self) -> Any:
        """Return a copy of all that was learned."""
        kept = [[getattr(norm, name) for name in norm.kept] for norm in self.norms.values()]
        return [t.detach().clone() for t in self._tensors], kept

    @torch.no_grad()
    def load_state_dict(self, state: Any) -> None:
        """Restore what `state_dict` returned, also from another device."""
        tensors, kept = state
        self._write(tensors)
        for norm, values in zip(self.norms.values(), kept, strict=True):
            norm.restore(values)
        self._clean()

    def _write(self, values: list[Tensor]) -> None:
        if values:
            torch._foreach_copy_(self._tensors, values)

    def _clean(self) -> None:
        for p in self.weights.values():
            p.grad = None
        if self.tap is not None:
            self.tap.release()
        if self._prefix is not None:
            self._prefix.release()
        self._buffers.restore()
        self._first = True

    def _check_something_learns(self) -> None:
        settings = self._settings
        if settings.learns != "norms":
            return
        learning = [name for name, norm in self.norms.items() if norm.learns]
        if not learning:
            raise UnsupportedNetwork(
                "No norm layer has a scale or a shift to learn. Use loss=None to adapt statistics only."
            )
        if all(self._skips(name) for name in learning):
            raise UnsupportedNetwork(
                f"Nothing is left to learn: skip={settings.skip} and adapt_from={settings.adapt_from!r} leave out "
                "every norm layer. Name fewer layers."
            )

    def _skips(self, name: str) -> bool:
        return any(name == skipped or name.startswith(f"{skipped}.") for skipped in self._skip)

    def _found_reuse(self) -> bool:
        """Check whether the last pass used other layers more than once than known; then reset for another pass."""
        reused = {name for name, norm in self.norms.items() if len(norm.uses) > 1}
        if reused == set(self.reused()):
            return False
        for name, norm in self.norms.items():
            norm.reset()
            norm.reused = name in reused
        return True

    def _mark_used(self) -> None:
        for norm in self.norms.values():
            norm.used = bool(norm.uses)
        if self.norms and not any(norm.used for norm in self.norms.values()):
            raise UnsupportedNetwork("The network's forward used none of its norm layers, so nothing can be adapted.")

    def _uses(self) -> dict[str, list[Any]]:
        return {name: norm.uses for name, norm in self.norms.items() if isinstance(norm, AdaptiveBatchNorm)}

    def _adapts(self, name: str, norm: AdaptiveNorm) -> str:
        if not norm.used:
            return "not used by the forward in eval mode"
        if norm.reused:
            return "used more than once: statistics, but neither folded nor stepped"
        learning = self._settings.learns != "nothing" and not self._skips(name)
        parts = " and ".join(norm.learns) if learning else ""
        if isinstance(norm, TunedNorm):
            return parts or "nothing: it uses the statistics of each image"
        if learning and not norm.learns:
            return "statistics (it has no scale or shift)"
        return f"statistics, {parts}" if parts else "statistics"

    def _own_weights(self) -> dict[str, Mapping[str, Tensor]]:
        layers: dict[str, dict[str, Tensor]] = {}
        for full, p in self.weights.items():
            layer, _, name = full.rpartition(".")
            layers.setdefault(layer, {})[name] = p.detach()
        return dict(layers)


def _make_norms(source: nn.Module, settings: NetworkSettings) -> tuple[dict[str, AdaptiveNorm], dict[str, str]]:
    """Make all replacements by name, and say why other batch norms are left as they are."""
    tuned = find_other_norms(source) if settings.others else {}
    made: dict[str, AdaptiveNorm] = {name: TunedNorm(layer) for name, layer in tuned.items()}
    left: dict[str, str] = {}
    if settings.norm is not None:
        found, left = find_norms(source, required=not tuned)
        made |= {name: settings.norm(layer) for name, layer in found.items()}
    if settings.special is not None:
        made |= settings.special(source)
    return made, left
