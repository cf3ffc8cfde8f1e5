import pytest
import torch

import domainadaptor
from domainadaptor.errors import BadOption
from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.method_inputs import check_wants_source_images, options_from

SOURCE, TARGET = torch.zeros(2, 3, 4, 4), torch.ones(2, 3, 4, 4)
HEADS = {"rotation": {"head.weight": torch.zeros(4, 16)}, "learned_loss": {"layers.0.weight": torch.zeros(32, 7)}}


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("adabn", {}),
        ("eata", {"source_images": SOURCE}),
        ("adabn-source-and-test", {"source_images": SOURCE, "target_images": TARGET}),
        ("arm", {"learned_loss": HEADS["learned_loss"]}),
        ("tent", {"seed": 7}),
        ("domainadaptor.methods.eata:eata", {"source_images": SOURCE}),
    ],
)
def test_a_method_takes_what_it_has_an_option_for(method, expected):
    domainadaptor.method_info(method, allow_import=True)  # as the command line does with what the user typed
    found = options_from(method, heads=HEADS, source_images=SOURCE, target_images=TARGET, seed=7)
    assert found.keys() == expected.keys()
    assert all(found[option] is value for option, value in expected.items())


def test_what_is_not_there_is_not_given():
    assert options_from("eata") == {}
    assert options_from("tent") == {}
    assert options_from("tent", seed=0) == {"seed": 0}


def test_source_images_are_refused_where_they_are_of_no_use():
    check_wants_source_images("eata", "--source-images")
    with pytest.raises(BadOption, match="tent does not use source images: leave out --from, which is for .*eata"):
        check_wants_source_images("tent", "--from")


def test_methods_that_change_pixels_know_the_networks_own():
    own = squashed(32, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert options_from("memo", preprocessing=own) == {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
    assert options_from("tent", preprocessing=own) == {}
