"""Whole evaluations against a loop written out by hand."""

import pytest
import torch

import domainadaptor as da
from domainadaptor.lab.data.image_cache import DomainImages
from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.evaluation.protocols import ImageRef, Segment
from domainadaptor.lab.evaluation.stream import SegmentLoader, evaluate_stream
from domainadaptor.lab.networks.loading import load_network
from tests.lab.experiments.pictures import make_checkpoint, make_pictures

SegmentLoader.__test__ = False


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    base = tmp_path_factory.mktemp("evaluate")
    root = make_pictures(base / "pictures")
    opened = load_network(str(make_checkpoint(base / "c.safetensors")), None)
    dataset = open_dataset("folders", root)
    pictures = {name: DomainImages(domain, opened.preprocessing) for name, domain in dataset.domains.items()}
    return opened, dataset, SegmentLoader(pictures, opened.preprocessing, torch.device("cpu"))


def segments_of(dataset, fresh=(True, False)):
    made = []
    for domain, is_fresh in zip(("night", "day"), fresh, strict=True):
        items = [ImageRef(domain, at, example.label) for at, example in enumerate(dataset.domain(domain).examples)]
        made.append(Segment(domain, (tuple(items[:10]), tuple(items[10:])), is_fresh))
    return made


@pytest.mark.parametrize("fresh", [(True, False), (True, True)])
@pytest.mark.parametrize("method", ["adamixbn", "tent"])
def test_it_is_the_loop_that_one_would_write(setting, method, fresh):
    opened, dataset, test = setting
    segments = segments_of(dataset, fresh)
    found = evaluate_stream(da.adapt(opened.network, method), segments, test, 3)

    adaptor = da.adapt(opened.network, method)
    for segment in segments:
        if segment.fresh:
            adaptor.reset()
        right = source_right = better = 0
        for batch in segment.batches:
            pixels = torch.cat([test.pictures[item.domain].take([item.position])[0] for item in batch])
            images = test.preprocessing.normalized(pixels)
            labels = torch.tensor([item.label for item in batch])
            was = opened.network(images).argmax(1) == labels
            now = adaptor(images).argmax(1) == labels
            right += int(now.sum())
            source_right += int(was.sum())
            better += int((now & ~was).sum())
        score = found["scores"][segment.name]
        assert (score["right"], score["source_right"], score["better"]) == (right, source_right, better)
        line = next(line for line in found["segments"] if line["name"] == segment.name)
        assert (line["right"], line["source_right"], line["images"]) == (right, source_right, 24)
    assert found["seconds"]["batches"] == 4
    assert found["seconds"]["images"] == 48
    assert set(found["alpha"]) == set(adaptor.adapt(images).alpha)


def test_what_a_stream_teaches_is_forgotten_where_it_says_so(setting):
    opened, dataset, test = setting
    options = {"lr": 0.05, "predict": "after"}
    kept = evaluate_stream(da.adapt(opened.network, "tent", **options), segments_of(dataset, (True, False)), test, 3)
    fresh = evaluate_stream(da.adapt(opened.network, "tent", **options), segments_of(dataset, (True, True)), test, 3)
    assert kept["scores"]["night"] == fresh["scores"]["night"]
    assert kept["scores"]["day"] != fresh["scores"]["day"]


def test_the_source_model_is_asked_once_for_all_methods(setting, monkeypatch):
    opened, dataset, test = setting
    segments = segments_of(dataset)
    known: dict = {}
    first = evaluate_stream(da.adapt(opened.network, "adamixbn"), segments, test, 3, known=known)
    assert first["seconds"]["compared"]["batches"] == 4
    monkeypatch.setattr("domainadaptor.lab.evaluation.stream._TIMED", 3)
    again = evaluate_stream(da.adapt(opened.network, "adamixbn"), segments, test, 3, known=known)
    assert again["seconds"]["compared"]["batches"] == 3
    assert again["seconds"]["compared"]["adapting"] < again["seconds"]["adapting"]
    assert again["scores"] == first["scores"]
    assert again["segments"] == first["segments"]
    for logits in known.values():
        logits.zero_()  # all of them say the first class now
    third = evaluate_stream(da.adapt(opened.network, "adamixbn"), segments, test, 3, known=known)
    assert third["scores"]["day"]["source_right"] != first["scores"]["day"]["source_right"]


def test_alpha_is_the_mean_over_batches(setting):
    opened, dataset, test = setting
    segments = segments_of(dataset)
    found = evaluate_stream(da.adapt(opened.network, "adamixbn"), segments, test, 3)
    adaptor = da.adapt(opened.network, "adamixbn")
    seen = [adaptor.adapt(pixels).alpha for _, _, pixels in test.batches(segments)]
    for layer, value in found["alpha"].items():
        assert value == pytest.approx(sum(alpha[layer] for alpha in seen) / len(seen), abs=1e-5)


def test_batches_of_several_domains_are_counted_by_domain(setting):
    opened, _, test = setting
    mixed = Segment("both", ((ImageRef("day", 0, 0), ImageRef("night", 3, 0), ImageRef("day", 9, 1)),), True)
    found = evaluate_stream(da.adapt(opened.network, "source"), [mixed], test, 3)
    assert {domain: score["images"] for domain, score in found["scores"].items()} == {"day": 2, "night": 1}
