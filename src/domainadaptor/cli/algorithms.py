"""`domainadaptor algorithms`: how a network can be trained."""

from domainadaptor.catalog import describe, describe_table
from domainadaptor.cli.listing import show_functions
from domainadaptor.cli.terminal import Json

EXAMPLES = "domainadaptor algorithms"


def algorithms(as_json: Json = False) -> None:
    """List the training algorithms and ways to select weights."""
    known = describe("domainadaptor.lab.training.algorithms")
    selections = describe_table("domainadaptor.lab.training.selection", "SELECTIONS")
    example = "train … --algorithm mldg --option beta=0.5 --select swad --select-option ratio=0.2"
    show_functions({"algorithms": known, "selections": selections}, example, as_json=as_json)
