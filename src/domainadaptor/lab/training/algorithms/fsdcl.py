"""FSDCL: feature stylization, consistency, and contrast within domains. Jeon et al., ACM MM 2021."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from domainadaptor.errors import BadOption
from domainadaptor.lab.data.loaders import DomainBatch
from domainadaptor.lab.networks.heads import logits_and_features
from domainadaptor.lab.networks.statistics import frozen_statistics
from domainadaptor.lab.training.algorithm import Algorithm, OptimizerSettings, accuracy, concatenate
from domainadaptor.option_types import NonNegative, Positive
from domainadaptor.options import suggestion

__all__ = ["fsdcl"]


class FSDCL(Algorithm):
    """Cross-entropy, consistency with a stylized pass, and contrast between classes of the same domain."""

    stage: str
    consistency: float
    contrast: float
    spread: float
    sharpness: float
    temperature: float

    def update(self, batches: Sequence[DomainBatch], draw: torch.Generator) -> dict[str, float]:
        """Take one step on the joint batch."""
        images, labels = concatenate(batches)
        domains = torch.cat([torch.full((len(b.labels),), at) for at, b in enumerate(batches)]).to(labels.device)
        logits, plain = logits_and_features(self.network, self.head, images)
        styled_logits, styled = self._styled(images, draw)
        cross_entropy = F.cross_entropy(logits, labels)
        agreement = consistency_loss(logits, styled_logits, self.sharpness)
        contrasted = contrastive_loss(torch.cat([plain, styled]), labels.repeat(2), domains.repeat(2), self.temperature)
        loss = cross_entropy + self.consistency * agreement + self.contrast * contrasted
        self.step(loss)
        return {
            "loss": float(loss.detach()),
            "accuracy": accuracy(logits.detach(), labels),
            "consistency_loss": float(agreement.detach()),
            "contrast_loss": float(contrasted.detach()),
        }

    def _styled(self, images: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return logits and features of a pass with a stylized map; running statistics are unchanged."""

        def restyle(_: nn.Module, __: object, out: object) -> Tensor:
            if not isinstance(out, Tensor) or out.ndim != 4:
                raise BadOption(
                    f"stage={self.stage!r}: expected a part of the network that gives a map (N, C, H, W), as 'layer2'"
                )
            return stylized(out, self.spread, draw)

        handle = self.network.get_submodule(self.stage).register_forward_hook(restyle)
        try:
            with frozen_statistics(self.network):
                return logits_and_features(self.network, self.head, images)
        finally:
            handle.remove()


def stylized(maps: Tensor, spread: float, draw: torch.Generator) -> Tensor:
    """Return maps, (N, C, H, W), whose low frequencies have means and deviations drawn around those of the batch."""
    n, channels, height, width = maps.shape
    pooled = F.avg_pool2d(maps, 2, ceil_mode=True)
    low = F.interpolate(pooled, scale_factor=2, mode="nearest")[..., :height, :width]
    mean = low.mean((0, 2, 3))
    deviation = low.std((0, 2, 3)) + 1e-6
    noise = torch.randn(2, n, channels, generator=draw).to(maps)
    with torch.no_grad():  # the network must not learn to make the draw narrow
        new_mean = mean.mean() + spread * mean.std() * noise[0]
        new_deviation = deviation.mean() + spread * deviation.std() * noise[1]
    plain = (low - mean[:, None, None]) / deviation[:, None, None]
    return plain * new_deviation[..., None, None] + new_mean[..., None, None] + (maps - low)


def consistency_loss(logits: Tensor, styled: Tensor, sharpness: float) -> Tensor:
    """Return the divergence of the stylized from the sharpened plain prediction, averaged over all entries."""
    target = (logits / sharpness).softmax(1)  # p to the power 1 / sharpness, normalized
    target = target.clamp(min=torch.finfo(target.dtype).tiny)  # at 0 the gradient of t log t is NaN
    return F.kl_div(styled.log_softmax(1), target, reduction="none").mean()


def contrastive_loss(features: Tensor, labels: Tensor, domains: Tensor, temperature: float) -> Tensor:
    """Return the loss that attracts images of a class and repels other classes of the same domain."""
    z = F.normalize(features, dim=1)
    similarity = z @ z.T / temperature
    same_class = labels[:, None] == labels[None]
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positive = same_class & ~itself
    negative = ~same_class & (domains[:, None] == domains[None])
    nothing = torch.finfo(similarity.dtype).min
    above = similarity.masked_fill(~positive, nothing).logsumexp(1)
    below = similarity.masked_fill(~(positive | negative), nothing).logsumexp(1)
    return (below - above)[positive.any(1)].mean()


def fsdcl(
    network: nn.Module,
    settings: OptimizerSettings,
    *,
    stage: str = "layer2",
    consistency: NonNegative = 12.0,
    contrast: NonNegative = 0.3,
    spread: NonNegative = 1.0,
    sharpness: Positive = 0.5,
    temperature: Positive = 0.15,
) -> Algorithm:
    """Feature stylization with consistent predictions, and domain-aware contrast.

    Its authors keep the norm layers frozen; here they learn, as with every other algorithm.

    Args:
        stage: Layer whose feature map is stylized.
        consistency: Weight of the agreement with the stylized pass.
        contrast: Weight of the contrastive loss.
        spread: Width of the style distribution, in standard deviations over channels. The authors use 10, but their
            program takes the deviations over images, which are 2 to 10 times smaller; 10 of these collapses training.
        sharpness: Temperature of the plain prediction that the stylized one must agree with.
        temperature: Temperature of the contrastive loss.
    """
    if stage not in dict(network.named_modules()):
        stages = [name for name, _ in network.named_children()]
        raise BadOption(f"stage={stage!r}: the network has no such part; {suggestion(stage, stages)}")
    weights = {"consistency": consistency, "contrast": contrast}
    styles = {"stage": stage, "spread": spread, "sharpness": sharpness, "temperature": temperature}
    return FSDCL(network, settings, **weights, **styles)
