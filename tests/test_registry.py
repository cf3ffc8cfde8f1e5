import pytest

import domainadaptor
from domainadaptor import registry
from domainadaptor.errors import BadOption


def test_a_new_file_in_the_folder_is_a_new_method(tmp_path, monkeypatch):
    """One file, nothing else: the table reads the folder."""
    file = tmp_path / "halfway.py"
    file.write_text(
        '"""A method of our own."""\n'
        "from functools import partial\n"
        "from domainadaptor import StepAdaptor\n"
        "from domainadaptor.norms.mixed import MixedNorm\n"
        '__all__ = ["half_way"]\n'
        "def half_way(network, *, share: float = 0.5):\n"
        '    """Half source, half batch."""\n'
        '    return StepAdaptor(network, norm=partial(MixedNorm, alpha=share, fold=False, variance="biased"))\n'
    )
    import domainadaptor.methods as folder

    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    assert domainadaptor.list_methods()["half-way"] == "Half source, half batch."
    assert domainadaptor.method_info("half-way").defaults == {"share": 0.5}


def test_files_beside_the_methods(tmp_path, monkeypatch):
    """A file with an underscore is no method; one that exports nothing is explained."""
    import domainadaptor.methods as folder

    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    (tmp_path / "_shared.py").write_text("x = 1\n")
    domainadaptor.list_methods()
    (tmp_path / "forgotten.py").write_text("x = 1\n")
    with pytest.raises(BadOption, match="forgotten has no __all__"):
        domainadaptor.list_methods()


def test_names_have_hyphens_for_underscores():
    names = registry.table("domainadaptor.methods")
    assert "domainadaptor-t" in names
    assert not any("_" in name for name in names)
