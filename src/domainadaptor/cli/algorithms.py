"""`domainadaptor algorithms`: how a network can be trained."""

from domainadaptor.catalog import describe, describe_table
from domainadaptor.cli.listing import listed, print_functions
from domainadaptor.cli.terminal import Json, out, print_json


def algorithms(as_json: Json = False) -> None:
    """List the training algorithms and ways to select weights."""
    known = describe("domainadaptor.lab.training.algorithms")
    selections = describe_table("domainadaptor.lab.training.selection", "SELECTIONS")
    if as_json:
        print_json({"algorithms": listed(known), "selections": listed(selections)})
        return
    print_functions("Training algorithms (--algorithm, --option)", known)
    print_functions("Selection of weights (--select, --select-option)", selections)
    out.print("Example: domainadaptor train … --algorithm mldg --option beta=0.5 --select swad", highlight=False)
