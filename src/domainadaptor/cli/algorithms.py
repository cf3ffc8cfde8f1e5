"""`domainadaptor algorithms`: how a network can be trained."""

from domainadaptor.cli.listing import listed, print_functions
from domainadaptor.cli.terminal import Json, out, print_json


def algorithms(as_json: Json = False) -> None:
    """List the training algorithms, the ways to select weights, and their options."""
    from domainadaptor.lab.training.recipe import algorithms as known
    from domainadaptor.lab.training.selection import SELECTIONS

    if as_json:
        print_json({"algorithms": listed(known()), "selections": listed(SELECTIONS)})
        return
    print_functions("Training algorithms (--algorithm, --option)", known())
    print_functions("Selection of weights (--select, --select-option)", SELECTIONS)
    out.print("Example: domainadaptor train … --algorithm mldg --option beta=0.5 --select swad", highlight=False)
