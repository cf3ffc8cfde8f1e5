"""The commit in records is the checkout's own."""

import subprocess

import pytest

from domainadaptor.lab import environment as module
from domainadaptor.lab.environment import revision


@pytest.fixture(autouse=True)
def fresh():
    revision.cache_clear()
    yield
    revision.cache_clear()


def git(folder, *words):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True)


def test_a_checkout_is_named_by_its_commit_and_says_when_it_was_changed(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "a")
    head = (tmp_path / ".git" / "refs" / "heads").rglob("*")
    commit = next(path for path in head if path.is_file()).read_text().strip()
    monkeypatch.setattr(module, "_ROOT", tmp_path)
    assert revision() == commit[:12]
    (tmp_path / "a").write_text("2")
    revision.cache_clear()
    assert revision() == f"{commit[:12]}-dirty"


def test_an_installed_package_has_none_even_inside_another_repository(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q")
    (tmp_path / "site").mkdir()
    monkeypatch.setattr(module, "_ROOT", tmp_path / "site")
    assert revision() is None


def test_without_git_there_is_none(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(module, "_ROOT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revision() is None
