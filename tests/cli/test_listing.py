import json

import pytest

ALGORITHMS = {"erm", "mldg", "arm", "fsdcl", "mvrml"}
PROTOCOLS = {"leave-one-out", "few-data", "continual", "mixed-batches", "mixed-images", "label-shift"}


@pytest.mark.parametrize(
    ("command", "names", "option", "meaning"),
    [("protocols", PROTOCOLS, "subset", "Dirichlet"), ("algorithms", ALGORITHMS | {"swad"}, "beta", "Differentiate")],
)
def test_a_table_has_each_name_and_the_options(program, command, names, option, meaning):
    done = program(command)
    assert done.returncode == 0
    for word in (*names, option, meaning):
        assert word in done.stdout


def test_programs_get_every_default_and_meaning(program):
    found = json.loads(program("algorithms", "--json").stdout)
    listings = [json.loads(program("protocols", "--json").stdout), found["algorithms"], found["selections"]]
    assert [set(listing) for listing in listings] == [PROTOCOLS, ALGORITHMS, {"best", "last", "swad"}]
    for listing in listings:
        for entry in listing.values():
            assert entry["summary"].endswith(".")
            assert all(option["doc"].endswith(".") for option in entry["options"].values())
    assert found["algorithms"]["mldg"]["options"]["beta"]["default"] == 1.0
    assert found["selections"]["swad"]["options"]["ratio"]["default"] == 0.3
