"""`domainadaptor protocols`: the orders in which a method can receive test images."""

from domainadaptor.catalog import describe_table
from domainadaptor.cli.listing import listed, print_functions
from domainadaptor.cli.terminal import Json, out, print_json


def protocols(as_json: Json = False) -> None:
    """List the evaluation protocols and their options."""
    known = describe_table("domainadaptor.lab.evaluation.protocols", "PROTOCOLS")
    if as_json:
        print_json(listed(known))
        return
    print_functions("Protocols (--protocol, --protocol-option)", known)
    out.print("Example: domainadaptor evaluate … --protocol few-data --protocol-option subset=128", highlight=False)
