"""DomainAdaptor: AdaMixBN, folding, and one step on a generalized entropy. Zhang et al., ICCV 2023."""

from functools import partial

from domainadaptor.method_card import about
from domainadaptor.methods.adamixbn import adamixbn

__all__ = ["domainadaptor_aug", "domainadaptor_skd", "domainadaptor_t"]

_ours = partial(about, "Zhang et al., DomainAdaptor", 2023, "loss", backwards="1")

domainadaptor_t = _ours(forwards="2")(partial(adamixbn, loss="gem-t"))
domainadaptor_t.__doc__ = """AdaMixBN, folded, and one step on GEM-T: entropy at a high temperature."""

domainadaptor_skd = _ours(forwards="2")(partial(adamixbn, loss="gem-skd"))
domainadaptor_skd.__doc__ = (
    """AdaMixBN, folded, and one step on GEM-SKD: the hot prediction learns from the plain one."""
)

domainadaptor_aug = _ours(forwards="2 + views")(partial(adamixbn, loss="gem-aug"))
domainadaptor_aug.__doc__ = (
    """AdaMixBN, folded, and one step on GEM-Aug: the hot prediction learns from random views."""
)
