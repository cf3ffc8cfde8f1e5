"""Robust batch norm of RoTTA: running statistics that follow the target slowly. Yuan et al., CVPR 2023."""

from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.norms.recognize import SourceNorm


class RobustNorm(MixedNorm):
    """Normalizes with its running statistics; while it follows, those move a share toward each batch first."""

    def __init__(self, source: SourceNorm, *, share: float) -> None:
        super().__init__(source, alpha=1.0, fold=False, variance="biased", running=True)
        self._kept = 1.0 - share

    def follow(self, on: bool) -> None:
        """Whether passes from now on measure their batch; what they measured is kept when the pass is settled."""
        self.rule = self._kept if on else 1.0
