"""DomainAdaptor: AdaMixBN, folding, and one step on a generalized entropy. Zhang et al., ICCV 2023."""

from functools import partial

from domainadaptor.recipes.adamixbn import adamixbn

__all__ = ["domainadaptor_aug", "domainadaptor_skd", "domainadaptor_t"]

domainadaptor_t = partial(adamixbn, loss="gem-t")
domainadaptor_t.__doc__ = """AdaMixBN, folded, and one step on GEM-T: entropy at a high temperature."""

domainadaptor_skd = partial(adamixbn, loss="gem-skd")
domainadaptor_skd.__doc__ = (
    """AdaMixBN, folded, and one step on GEM-SKD: the hot prediction learns from the plain one."""
)

domainadaptor_aug = partial(adamixbn, loss="gem-aug")
domainadaptor_aug.__doc__ = (
    """AdaMixBN, folded, and one step on GEM-Aug: the hot prediction learns from random views."""
)
