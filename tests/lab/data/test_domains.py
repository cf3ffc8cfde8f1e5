from dataclasses import replace

import pytest

from domainadaptor.errors import BadOption
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example
from tests.lab.data.trees import Plain

EXAMPLES = (Example("1", 0, "train"), Example("2", 1, "val"), Example("3", 1, "test"), Example("4", 0, "train"))


def dataset():
    domains = {name: Domain(name, EXAMPLES, Plain()) for name in ("photo", "sketch", "art")}
    return DomainDataset("set", ("cat", "dog", "cow"), domains, "by hand")


@pytest.mark.parametrize(("tested", "found"), [("all", "1234"), ("val", "2")])
def test_parts(tested, found):
    domain = Domain("photo", EXAMPLES, Plain(), tested=tested)
    assert [e.name for e in domain.select("train")] == ["1", "4"]
    assert [e.name for e in domain.select("val")] == ["2"]
    assert [e.name for e in domain.select("test")] == list(found)


def test_domains_by_name():
    opened = dataset()
    assert opened.domain("sketch").name == "sketch"
    assert opened.others("sketch") == ["photo", "art"]
    with pytest.raises(BadOption, match="set has no domain 'skech'; did you mean 'sketch'"):
        opened.domain("skech")
    with pytest.raises(BadOption, match="no domain"):
        opened.others("paint")


def test_counts_show_classes_without_images():
    assert dataset().counts()["photo"] == {"cat": 2, "dog": 2, "cow": 0}


def test_the_fingerprint_differs_where_the_task_does():
    opened = dataset()
    photo = opened.domains["photo"]
    others = [
        replace(opened, classes=("cat", "dog", "ox")),
        replace(opened, domains={"photo": photo}),
        *(
            replace(opened, domains={**opened.domains, "photo": changed})
            for changed in (
                replace(photo, tested="val"),
                replace(photo, examples=EXAMPLES[1:]),
                replace(photo, examples=(EXAMPLES[0]._replace(label=2), *EXAMPLES[1:])),
                replace(photo, examples=(EXAMPLES[0]._replace(split="val"), *EXAMPLES[1:])),
            )
        ),
    ]
    assert len({opened.fingerprint(), *(other.fingerprint() for other in others)}) == 7
    moved = replace(opened, name="other", domains={**opened.domains, "photo": replace(photo, read=Plain(side=9))})
    assert moved.fingerprint() == opened.fingerprint()


def test_labels_by_the_classes_of_a_network():
    opened = dataset()
    assert opened.with_classes(("cat", "dog", "cow")) is opened
    mapped = opened.with_classes(("Cow", "cow", "sheep", "Dog", "cat"))
    assert mapped.classes == ("Cow", "cow", "sheep", "Dog", "cat")
    assert [e.label for e in mapped.domains["photo"].examples] == [4, 3, 3, 4]
    assert mapped.counts()["photo"]["sheep"] == 0
    with pytest.raises(BadOption, match="set: the network does not predict cow; it predicts cat, dog"):
        opened.with_classes(("cat", "dog"))
