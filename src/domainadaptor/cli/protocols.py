"""`domainadaptor protocols`: the orders in which a method can receive test images."""

from domainadaptor.catalog import describe_table
from domainadaptor.cli.listing import show_functions
from domainadaptor.cli.terminal import Json

EXAMPLES = "domainadaptor protocols"


def protocols(as_json: Json = False) -> None:
    """List the evaluation protocols and their options."""
    known = describe_table("domainadaptor.lab.evaluation.protocols", "PROTOCOLS")
    example = "evaluate … --protocol few-data --protocol-option subset=128"
    show_functions({"protocols": known}, example, as_json=as_json)
