"""`domainadaptor protocols`: the orders in which a method can receive test images."""

from domainadaptor.cli.listing import listed, print_functions
from domainadaptor.cli.terminal import Json, out, print_json


def protocols(as_json: Json = False) -> None:
    """List the evaluation protocols and their options."""
    from domainadaptor.lab.evaluation.protocols import PROTOCOLS

    if as_json:
        print_json(listed(PROTOCOLS))
        return
    print_functions("Protocols (--protocol, --protocol-option)", PROTOCOLS)
    out.print("Example: domainadaptor evaluate … --protocol few-data --protocol-option subset=128", highlight=False)
