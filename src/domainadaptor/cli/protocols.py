"""`domainadaptor protocols`: in which order a method can meet images."""

from domainadaptor.cli.listing import listed, print_functions
from domainadaptor.cli.terminal import Json, out, print_json


def protocols(as_json: Json = False) -> None:
    """List the protocols of `evaluate` and their options."""
    from domainadaptor.lab.evaluation.protocols import PROTOCOLS

    if as_json:
        print_json(listed(PROTOCOLS))
        return
    print_functions("protocol", PROTOCOLS)
    out.print("As in: domainadaptor evaluate … --protocol few-data --protocol-option subset=128", highlight=False)
