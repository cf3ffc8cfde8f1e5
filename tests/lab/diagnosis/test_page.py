"""The page holds what was found, asks for nothing from elsewhere, and lets no name of a file or class be HTML."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from PIL import Image

import domainadaptor as da
from domainadaptor.lab.data.images import FolderImages
from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.diagnosis.page import FolderDiagnosis
from domainadaptor.lab.networks.loading import LoadedNetwork
from tests.conftest import GoldenNet

CLASSES = ("<script>alert(1)</script>", "cat & dog", *"cdefg")
COMMANDS = {"auto": "run auto", "calibrate": "run calibrate", "source": "run source"}


class Reader(HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.links, self.text = [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "action", "data")]

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images & more")
    rng = np.random.default_rng(0)
    for at in range(70):
        pixels = rng.normal(rng.uniform(60, 200, 3), 40, (20, 24, 3)).clip(0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"<b>{at}.png")
    torch.manual_seed(0)
    preprocessing = squashed(12)
    images = FolderImages(folder, preprocessing.transform(), batch_size=32)
    network = da.calibrate(GoldenNet().eval(), [1 + 0.5 * batch for batch in images], share=1.0)
    network.fc.weight.data *= 20
    loaded = LoadedNetwork(network, "golden", CLASSES, preprocessing, "of the test", notes=("a <note>",))
    found = da.diagnose(network, images, batch_size=32)
    assert len(found.changed) > 8
    return FolderDiagnosis(found, loaded, folder, images.names(), COMMANDS)


def test_the_page_holds_what_was_found(report):
    read = Reader(report.as_html())
    found = report.diagnosis
    text = " ".join(read.text.split())
    for part in (found.headline, found.sentences[0], found.advice, COMMANDS[found.method], *found.warnings, "a <note>"):
        assert " ".join(part.split()) in text
    assert f"{100 * found.expected.before.value:.0f} % → {100 * found.expected.after.value:.0f} %" in text
    assert f"{len(found.changed)} of 70 images get another answer" in text
    assert read.tags.count("rect") == len(found.layers) == 3
    assert read.tags.count("img") == 8
    for answer in found.changed[:8]:
        assert CLASSES[answer.after] in read.text


def test_it_asks_for_nothing_from_elsewhere(report):
    page = report.as_html()
    read = Reader(page)
    assert read.links
    assert all(link.startswith("data:image/") for link in read.links)
    assert not {"script", "link", "iframe", "b0"} & set(read.tags)
    assert not re.search(r"@import|url\(|https?:", page)
    assert "default-src 'none'" in page


@pytest.mark.parametrize("outcome", ["better", "same", "worse"])
def test_every_outcome_has_a_page(report, outcome):
    found = replace(report.diagnosis, expected=report.diagnosis.expected._replace(outcome=outcome), warnings=())
    page = replace(report, diagnosis=found).as_html()
    assert found.headline in page
    assert COMMANDS["auto" if outcome == "better" else "source"] in Reader(page).text
    one = replace(report, diagnosis=replace(found, changed=(), batch_sizes=()))
    assert "Images whose answer changes" not in one.as_html()


def test_json_names_files_and_classes(report):
    read = json.loads(json.dumps(report.as_json()))
    answer = report.diagnosis.changed[0]
    first = read["changed"][0]
    assert first["file"] == report.names[answer.position]
    assert (first["before"], first["after"]) == (CLASSES[answer.before], CLASSES[answer.after])
    assert read["command"] == COMMANDS[report.diagnosis.method]
    assert read["network"] == "golden"
