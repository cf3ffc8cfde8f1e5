import copy
import json

import pytest
import torch
from PIL import Image

import domainadaptor as da
from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.data.sets.digits import CLASSES
from domainadaptor.lab.stress.chart import draw
from domainadaptor.lab.stress.streams import LabeledImages, StreamImages, sample, stream
from domainadaptor.lab.stress.stress_run import StressTest
from tests.conftest import GoldenNet, batch, stir
from tests.lab.data.trees import plain_domain

SETTING = {"batches": 10, "every": 4, "batch_size": 6, "seed": 3}
KINDS = ("noise", "tiny", "shuffled")


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return stir(GoldenNet())


@pytest.fixture(scope="module")
def pool():
    images = batch(40, 3, 12, 12)
    labels = torch.arange(40) % 7
    return StreamImages(
        {"a": LabeledImages(images, labels), "b": LabeledImages(images + 1, labels)}, "a", lambda values: 2 * values - 1
    )


@pytest.fixture(scope="module")
def probe(net):
    images = batch(21, 3, 12, 12, seed=9)
    return LabeledImages(images, torch.where(torch.arange(21) < 14, net(images).argmax(1), -1))


@pytest.fixture(scope="module")
def report(net, pool, probe):
    seen, finished = [], []
    test = StressTest(net, "tent", {"lr": 0.02}, pool, probe, KINDS, guards=(True, False), **SETTING)
    found = test.run(seen.append, finished.append)
    assert len(seen) == 60
    assert tuple(finished) == found.courses
    return found


@pytest.mark.parametrize("guard", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_course_is_the_stream_with_copies_that_are_probed(kind, guard, net, pool, probe, report):
    adaptor = da.adapt(net, "tent", lr=0.02, guard=guard)
    trips, accuracy = [], []
    for at, images in enumerate(stream(kind, pool, batches=10, batch_size=6, seed=3), start=1):
        if adaptor.adapt(images).fell_back:
            trips.append(at)
        if at in (4, 8, 10):
            answers = []
            for part in probe.images.tensor_split(4):  # 21 images, six at most
                asked = copy.deepcopy(adaptor)
                asked.collapse = None
                answers.append(asked(part).argmax(1))
            accuracy.append(100 * float((torch.cat(answers) == probe.labels).float().mean()))
    course = report.of(kind, guard)
    assert course.at == (4, 8, 10)
    assert course.accuracy == pytest.approx(accuracy)
    assert course.trips == tuple(trips)
    assert (course.lowest, course.last) == (min(course.accuracy), course.accuracy[-1])


def test_the_report_compares_with_the_source(report):
    assert report.source == pytest.approx(100 * 14 / 21)
    assert report.of("noise", True).trips
    assert not report.of("noise", False).trips
    assert report.of("sorted", True) is None
    for guard in (True, False):
        hostile = [report.of(kind, guard).lowest for kind in ("noise", "tiny")]
        assert report.loss(guard) == report.source - min(hostile)
    record = json.loads(json.dumps(report.as_json()))
    assert record["options"] == {"lr": 0.02}
    assert record["batches"] == 10
    assert len(record["courses"]) == 6
    assert record["courses"][0]["lowest"] == report.courses[0].lowest


def test_the_picture_is_drawn(report, tmp_path):
    draw(report, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > 1000


def test_a_sample_of_digits(monkeypatch):
    monkeypatch.setattr("domainadaptor.lab.stress.streams._MAIN", 150)
    monkeypatch.setattr("domainadaptor.lab.stress.streams._OTHER", 20)
    seen = Preprocessing(20, 20, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    pool, probe, notes = sample(open_dataset("digits"), "pen", CLASSES, seen, probe=50, seed=0)
    assert list(pool.domains) == ["pen", "chalk", "photo", "neon"]
    assert len(probe.images) == 50
    assert [len(found.labels) for found in pool.domains.values()] == [150, 20, 20, 20]
    assert notes == []
    # No image of the probe is in the streams, and each keeps its label.
    streamed = {image.numpy().tobytes() for image in pool.of_main().images}
    assert not any(image.numpy().tobytes() in streamed for image in probe.images)
    data = open_dataset("digits").domain("pen")
    label_of = {
        seen.transform()(data.read(e.name)).numpy().tobytes(): e.label for e in data.examples if e.split == "val"
    }
    assert [label_of[image.numpy().tobytes()] for image in probe.images] == probe.labels.tolist()
    again = sample(open_dataset("digits"), "pen", CLASSES, seen, probe=50, seed=0)[1]
    assert torch.equal(again.images, probe.images)
    fewer = sample(open_dataset("digits"), "pen", CLASSES, seen, probe=5000, seed=0)
    assert len(fewer[1].labels) == 600
    assert "the probe has 600 images" in fewer[2][0]


def test_a_sample_of_one_domain():
    data = DomainDataset("mine", ("x", "y", "z"), {"only": plain_domain("only", 30, broken=(3,), val=range(10))}, "")
    seen = Preprocessing(8, 8, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    pool, probe, notes = sample(data, "only", ("z", "x", "y"), seen, probe=6, seed=0)
    assert list(pool.domains) == ["only"]
    assert notes == ["mine has a single domain, so the streams alternating and domains are shuffled ones"]
    # The network's numbers of x, y, z are 1, 2, 0; an image's red is its number, and its number its class.
    reds = (255 * probe.images[:, 0, 0, 0]).round().int()
    assert probe.labels.tolist() == [[1, 2, 0][int(red) % 3] for red in reds]
    assert set(reds.tolist()) <= set(range(10)) - {3}
    assert reds.tolist() != sorted(reds.tolist())
    others = {int(red) for red in (255 * pool.of_main().images[:, 0, 0, 0]).round()}
    assert others == set(range(30)) - set(reds.tolist()) - {3}


def test_samples_that_cannot_be_drawn_are_explained():
    seen = Preprocessing(8, 8)
    data = DomainDataset("mine", ("x", "y", "z"), {"only": plain_domain("only", 9)}, "")
    with pytest.raises(BadOption, match="network has 2 classes .*mine has 3"):
        sample(data, "only", ("x", "y"), seen, probe=3, seed=0)
    with pytest.raises(BadOption, match="has no domain 'photo'"):
        sample(data, "photo", ("x", "y", "z"), seen, probe=3, seed=0)
    with pytest.raises(BadFile, match="got 0 of 9 outside the training split"):
        sample(data, "only", ("0", "1", "2"), seen, probe=3, seed=0)
