"""RDumb: ETA that starts over now and then. Press et al., NeurIPS 2023."""

from functools import partial

from domainadaptor.method_card import about
from domainadaptor.methods.eata import eta

__all__ = ["rdumb"]

_rdumb = about("Press et al., RDumb", 2023, "loss", forwards="1 (2 if it predicts after)", backwards="1")

rdumb = _rdumb(partial(eta, reset_every=1000))
rdumb.__doc__ = """ETA that forgets everything after each thousand batches (`reset_every`).

Its program keeps images with an entropy below ln(1000) / 2 - 1, which is margin=0.355; ETA's paper has 0.4, as here.
"""
