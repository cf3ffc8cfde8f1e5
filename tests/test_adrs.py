"""docs/adr: every decision has its own number, at most a page, and links that lead somewhere."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("*.md"))
MOST_WORDS = 400


def test_numbers_are_unique_and_without_gaps():
    assert [int(path.name[:4]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_short_and_says_what_was_decided(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {int(path.name[:4])}. ")
    assert "**Context.**" in text
    assert "**Decision.**" in text
    assert len(text.split()) <= MOST_WORDS


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_links_and_named_files_exist(path):
    text = path.read_text(encoding="utf-8")
    clone, package = FOLDER.parents[1], FOLDER.parents[1] / "src" / "domainadaptor"
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (FOLDER / link).exists() or "results/" in link, link  # the sdist has no results
    for name in re.findall(r"`([\w/.-]+/[\w.-]*\.(?:py|toml))`", text):
        assert any((folder / name).is_file() for folder in (clone, package, package.parent)), name
