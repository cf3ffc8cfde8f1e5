"""Prose about results: docs/findings.md copies no accuracies."""

import re
from pathlib import Path

import pytest

from domainadaptor.lab.experiments.spec import experiment_files

CLONE = Path(__file__).parents[1]
FINDINGS = CLONE / "docs" / "findings.md"
VERDICTS = {"holds", "partly", "does not hold"}

pytestmark = pytest.mark.skipif(not (CLONE / "docs" / "results").is_dir(), reason="the sdist has no results")


def table() -> list[list[str]]:
    lines = [line for line in FINDINGS.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_claim_has_a_verdict_and_a_page():
    rows = table()
    assert len(rows) > 10
    for claim, verdict, networks, pages in rows:
        assert verdict in VERDICTS, claim
        assert networks, claim
        assert re.fullmatch(r"(\[[^]]+\]\(results/[\w-]+\.md\)(, )?)+", pages), claim


def test_links_lead_to_files():
    links = re.findall(r"\]\(([^)]+)\)", FINDINGS.read_text(encoding="utf-8"))
    assert links
    for link in links:
        assert (FINDINGS.parent / link).is_file(), link


def test_the_networks_of_a_row_have_a_table_on_its_pages():
    names = {"ResNet-20": "ResNet-20", "ResNet-18": "ResNet-18", "Lite0": "EfficientNet-Lite0", "CIFAR": "CIFAR"}
    for claim, _, networks, pages in table():
        linked = [FINDINGS.parent / page for page in re.findall(r"\(([^)]+)\)", pages)]
        text = "".join(page.read_text(encoding="utf-8") for page in linked)
        for name, heading in names.items():
            if name in networks:
                assert heading in text, f"{claim} {name}"


def test_it_has_no_numbers_that_could_go_stale():
    """Results change when a network is trained again; learning rates are those of the experiment files."""
    experiments = "\n".join(path.read_text(encoding="utf-8") for path in experiment_files())
    rates = set(re.findall(r"\blr = (\d*\.\d+)", experiments))
    numbers = set(re.findall(r"\d+\.\d+", FINDINGS.read_text(encoding="utf-8")))
    assert numbers <= rates, numbers - rates
