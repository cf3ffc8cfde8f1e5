"""auto: the default. Statistics of the batch as far as it has shifted, and the mean over a few views; docs/auto.md."""

from functools import partial
from typing import Annotated, Literal, final

import torch
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor import Option, method
from domainadaptor.augmentation.crops import zoomed

__all__ = ["Auto"]

Effort = Annotated[
    Literal["one", "some", "most"],
    Option('Forward passes per batch, each for another view: 1 with "one", 3 with "some", 6 with "most".'),
]

# Views of the images besides themselves, and of their mirror images, by the share of each side that zooming leaves out.
_MARGINS = {"some": ((0.06,), (0.0,)), "most": ((0.06, -0.06), (0.0, 0.06, -0.06))}
# Mirroring may change this many times as many answers as zooming does, and this share more.
_MIRRORED, _SLACK = 1.25, 0.05


@method(kind="statistics", forwards='3 (1 with effort="one", 6 with "most")')
@final
class Auto(da.Adaptor):
    """Use the batch as far as it has shifted. The default.

    In each layer, the share of batch statistics grows with their distance from the source statistics, beyond what
    chance explains; without a shift it is near zero. The prediction is the mean over views: the images, zoomed, and
    mirrored unless the network tells left from right. `adapted_network` has the statistics, and predicts without views.

    Args:
        network: Any trained network with batch normalization.
    """

    def __init__(self, network: nn.Module, *, effort: Effort = "some") -> None:
        super().__init__(network, reset_every=1)
        self._effort = effort
        self.accepts = "anything"
        self._rebuild()

    def _build(self) -> da.AdaptiveNetwork:
        return self._adaptive(norm=partial(da.MixedNorm, alpha="shift", variance="unbiased"), learns="nothing")

    @torch.no_grad()
    def _learn(self, images: Tensor) -> da.Adaptation:
        logits = before = self._main(images)
        alpha, note = self._main.alphas(), self._main.single_note()
        if self._effort != "one" and images.ndim == 4 and isinstance(before, Tensor) and before.ndim == 2:
            logits = self._mean_of_views(images, before)
        return da.Adaptation(logits, before, alpha_tensors=alpha, note=note)

    def _mean_of_views(self, images: Tensor, logits: Tensor) -> Tensor:
        """Return the logits of the mean probabilities over the views, at the level of the given logits."""
        plain, mirrored = _MARGINS[self._effort]
        mirror = images.flip(-1)
        views = [logits, *(self._main(zoomed(images, margin)) for margin in plain)]
        views += [self._main(zoomed(mirror, margin)) for margin in mirrored]
        wide = torch.stack([da.rows(da.in_loss_precision(view), self.multilabel) for view in views])
        logs = wide.log_softmax(2)
        answers = logs.argmax(2)
        by_zoom, by_mirror = ((answers[at] != answers[0]).float().mean() for at in (1, len(plain) + 1))
        logs[len(plain) + 1 :] += (by_mirror <= _MIRRORED * by_zoom + _SLACK).float().log()  # 0, or minus infinity
        mean = logs.logsumexp(0).log_softmax(1) + wide[0].logsumexp(1, keepdim=True)
        return (mean[:, 1] - mean[:, 0] if self.multilabel else mean).reshape(logits.shape).to(logits.dtype)
