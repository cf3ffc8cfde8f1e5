"""RDumb: ETA with a periodic reset. Press et al., NeurIPS 2023."""

from domainadaptor import variant
from domainadaptor.methods.eata import eta

__all__ = ["rdumb"]

rdumb = variant(
    eta,
    """ETA with a reset every 1000 batches.

    The authors' program keeps images with an entropy below ln(1000) / 2 - 1, which is margin=0.355; ETA's paper has
    0.4, as here.
    """,
    defaults={"reset_every": 1000},
    paper="Press et al., RDumb",
    year=2023,
)
