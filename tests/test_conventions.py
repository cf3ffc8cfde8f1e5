"""Files that hosts, tools and people look for say the same as the project."""

import re
from pathlib import Path

import pytest

import domainadaptor

yaml = pytest.importorskip("yaml", reason="PyYAML comes with the extra docs")
CLONE = Path(__file__).parents[1]


def read(name: str) -> str:
    return (CLONE / name).read_text(encoding="utf-8")


def test_the_citation_has_the_version_and_the_paper_of_readme():
    card = yaml.safe_load(read("CITATION.cff"))
    assert card["version"] == domainadaptor.__version__
    paper = card["preferred-citation"]
    assert f"{{{paper['title']}}}" in read("README.md")
    assert all(f"{author['family-names']}, " in read("README.md") for author in paper["authors"])


def test_the_changelog_has_the_version_and_fits_a_screen():
    sections = re.split(r"^## ", read("CHANGELOG.md"), flags=re.M)[1:]
    (current,) = (section for section in sections if section.startswith(f"[{domainadaptor.__version__}]"))
    assert len(current.splitlines()) <= 45


def test_the_workflow_covers_the_pythons_that_are_supported_and_audits():
    jobs = yaml.safe_load(read(".github/workflows/check.yml"))["jobs"]
    oldest = re.search(r'requires-python = ">=([\d.]+)"', read("pyproject.toml"))[1]
    versions = jobs["tests"]["strategy"]["matrix"]["python"]
    assert versions[0] == oldest
    assert versions == [f"3.{minor}" for minor in range(10, 10 + len(versions))]
    assert "pip-audit" in str(jobs["audit"])
    targets = set(re.findall(r"^([\w-]+):", read("Makefile"), re.M))
    made = re.findall(r"make ([\w-]+)", read(".github/workflows/check.yml"))
    assert set(made) <= targets


def test_a_commit_is_linted_as_make_check_does():
    (hook,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    assert hook["entry"] == "make lint"
    assert re.search(r"^check: lint ", read("Makefile"), re.M)


@pytest.mark.parametrize(
    "path", sorted((CLONE / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.name
)
def test_issue_forms_have_what_a_host_requires(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    assert all(part["attributes"]["label"] for part in form["body"])


def test_project_addresses_are_in_one_place():
    for path in [*CLONE.glob("*.md"), *(CLONE / "docs").glob("*.md"), CLONE / "CITATION.cff"]:
        assert "example.org/domainadaptor" not in path.read_text(encoding="utf-8"), path


def test_the_badges_are_true():
    project = read("pyproject.toml")
    expected = {
        "python": re.search(r'requires-python = ">=([\d.]+)"', project)[1] + "+",
        "torch": re.search(r'"torch>=([\d.]+)"', project)[1] + "+",
        "license": re.search(r'license = "(\w+)"', project)[1],
        "version": domainadaptor.__version__,
    }
    for name, value in expected.items():
        assert f'aria-label="{name}: {value}"' in read(f"docs/images/badge-{name}.svg")
        assert f"docs/images/badge-{name}.svg" in read("README.md")
