"""DomainAdaptor: AdaMixBN, folding, and one step on a generalized entropy. Zhang et al., ICCV 2023."""

from domainadaptor import variant
from domainadaptor.methods.adamixbn import adamixbn

__all__ = ["domainadaptor_aug", "domainadaptor_skd", "domainadaptor_t"]

domainadaptor_t = variant(
    adamixbn,
    "AdaMixBN and one step on GEM-T: softened entropy.",
    defaults={"loss": "gem-t"},
    kind="loss",
    forwards="2",
    backwards="1",
)

domainadaptor_skd = variant(
    adamixbn,
    "AdaMixBN and one step on GEM-SKD: self-distillation.",
    defaults={"loss": "gem-skd"},
    kind="loss",
    forwards="2",
    backwards="1",
)

domainadaptor_aug = variant(
    adamixbn,
    "AdaMixBN and one step on GEM-Aug: agreement with views.",
    defaults={"loss": "gem-aug"},
    kind="loss",
    forwards="2 + views",
    backwards="1",
)
