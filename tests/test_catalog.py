"""The catalog describes methods without importing torch, and functions of users as they are."""

import importlib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import pytest
import torch

import domainadaptor as da
from domainadaptor import catalog, registry
from domainadaptor.errors import BadOption
from tests.conftest import GoldenNet

METHODS = registry.table(catalog.METHODS)
CLONE = Path(__file__).parents[1]


def test_listing_and_describing_methods_leaves_torch_unimported():
    code = (
        "import sys, domainadaptor as da\n"
        "names = da.list_methods()\n"
        "assert da.__version__ and len(names) > 20 and 'adapt' in dir(da)\n"
        "assert all(da.method_info(name).summary for name in names)\n"
        "assert not {'torch', 'numpy'} & set(sys.modules), 'imported'\n"
        "da.adapt\n"
        "assert 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("module", "table"),
    [
        ("domainadaptor.lab.training.algorithms", ""),
        ("domainadaptor.lab.data.sets", ""),
        ("domainadaptor.lab.training.selection", "SELECTIONS"),
        ("domainadaptor.lab.evaluation.protocols", "PROTOCOLS"),
    ],
)
def test_other_functions_with_options_are_described_from_their_files(module, table):
    read = catalog.describe_table(module, table) if table else catalog.describe(module)
    loaded = getattr(importlib.import_module(module), table) if table else registry.table(module)
    assert read == {name: replace(catalog._inspect(function), name=name) for name, function in loaded.items()}
    for info in read.values():
        assert info.summary.endswith("."), info
        assert all(option.doc.endswith(".") and option.type for option in info.options.values()), info


@pytest.mark.parametrize("name", METHODS)
def test_a_file_says_what_the_imported_function_says(name):
    entry = registry.entries(catalog.METHODS)[name]
    read = catalog._inspect(catalog._outline(entry.tree)[entry.attribute])
    assert read == catalog._inspect(METHODS[name])
    assert read.kind is not None
    assert read.forwards
    assert (read.paper == "") == (read.year is None) == (name in ("source", "auto"))


def test_every_public_name_can_be_imported():
    assert all(getattr(da, name) is not None for name in da.__all__)
    assert set(da.__all__) <= set(dir(da))
    with pytest.raises(AttributeError, match="no attribute 'options_of'"):
        da.options_of  # noqa: B018


def plain_method(network, *, share=0.5):
    """Half source, half batch."""
    return da.StepAdaptor(network)


@da.method(paper="Ours", year=2026, kind="statistics", forwards="1")
def described_method(network, *, share: float = 0.5):
    """Half source, half batch.

    Args:
        network: Any network.
        share: Weight of the source.
    """
    return da.StepAdaptor(network)


def test_a_function_without_a_description_is_a_method(net, images):
    info = da.method_info(plain_method)
    assert (info.name, info.summary, info.kind, info.needs) == ("plain-method", "Half source, half batch.", None, ())
    assert info.defaults == {"share": 0.5}
    assert da.adapt(net, plain_method, share="any")(images).shape == (8, 7)


def test_a_described_function_is_validated_wherever_it_is_called(net):
    info = da.method_info(described_method)
    assert (info.paper, info.options["share"]) == ("Ours", ("share", "float", 0.5, "Weight of the source."))
    for call in (described_method, lambda net, **options: da.adapt(net, described_method, **options)):
        with pytest.raises(BadOption, match="share='x': expected a finite number"):
            call(net, share="x")


def test_a_variant_has_other_defaults_and_the_rest_of_its_base(net):
    made = da.variant(described_method, "Mostly source.\n\nMore.", defaults={"share": 1}, year=2027)
    info = da.method_info(made)
    assert (info.summary, info.paper, info.year) == ("Mostly source.", "Ours", 2027)
    assert info.options["share"] == ("share", "float", 1.0, "Weight of the source.")
    assert isinstance(made(net, share=0), da.Adaptor)
    with pytest.raises(BadOption, match="has no option 'shares'"):
        da.variant(described_method, "Wrong.", defaults={"shares": 1})


def shared_options(*, lr: Annotated[float, da.Option("Learning rate.", ge=0)] = 0.1, steps: int = 1) -> None:
    """Options of several methods."""


@da.method(options=shared_options)
def sharing_method(network, *, lr: float = 0.5, share: float = 0.5, **shared):
    """Share some options."""
    adaptor = da.StepAdaptor(network)
    adaptor.given = {"lr": lr, "share": share, **shared}
    return adaptor


@da.method(paper="Ours", year=2026, kind="none", forwards="1", options=shared_options)
class OwnAdaptor(da.Adaptor):
    """The source model, with options.

    Args:
        network: Any network.
        share: Weight of the source.
    """

    def __init__(self, network, *, share: float = 0.5, **shared):
        super().__init__(network)
        self.given = {"share": share, **shared}
        self._rebuild()

    def _build(self):
        return self._adaptive(norm=None, learns="nothing")

    def _learn(self, images):
        logits = self._main(images).detach()
        return da.Adaptation(logits, logits)


def test_methods_share_options_and_replace_those_that_differ(net):
    assert da.method_info(sharing_method).defaults == {"lr": 0.5, "share": 0.5, "steps": 1}
    assert sharing_method(net).given == {"lr": 0.5, "share": 0.5, "steps": 1}
    assert da.adapt(net, sharing_method, steps=2).given == {"lr": 0.5, "share": 0.5, "steps": 2}
    made = da.variant(sharing_method, "More steps.", defaults={"steps": 3})
    assert da.method_info(made).defaults["steps"] == made(net).given["steps"] == 3
    with pytest.raises(BadOption, match="steps=1.5: expected a whole number"):
        sharing_method(net, steps=1.5)


def test_a_class_is_a_method(net, images):
    info = da.method_info(OwnAdaptor)
    assert (info.paper, info.summary) == ("Ours", "The source model, with options.")
    assert info.options["share"].doc == "Weight of the source."
    assert info.options["lr"] == ("lr", "float of at least 0", 0.1, "Learning rate.")
    adaptor = da.adapt(net, OwnAdaptor, lr=1)
    assert isinstance(adaptor, OwnAdaptor)
    assert adaptor.given == {"share": 0.5, "lr": 1.0, "steps": 1}
    torch.testing.assert_close(adaptor(images), net(images))
    for call in (OwnAdaptor, lambda net, **options: da.adapt(net, OwnAdaptor, **options)):
        with pytest.raises(BadOption, match="lr=-1: expected a finite number"):
            call(net, lr=-1)


def test_options_are_converted_and_checked_together_without_a_network():
    assert catalog.method_options("tent", {"guard": True, "lr": 1}) == {"guard": True, "lr": 1.0}
    assert catalog.method_options("tent", {"lr": "1", "guard": "true"}, text=True) == {"lr": 1.0, "guard": True}
    assert catalog.method_options("domainadaptor-t", {"steps": 2}) == {"steps": 2}
    for method, options, message in [
        ("adamixbn", {"steps": 2}, "no step without a loss"),
        ("domainadaptor-t", {"views": 5}, "only gem-aug"),
        ("tent", {"guard": 1}, "guard=1: expected True or False"),
        ("tnet", {}, "did you mean 'tent'"),
    ]:
        with pytest.raises(BadOption, match=message):
            catalog.method_options(method, options)


def test_names_from_files_import_nothing():
    path = f"{__name__}:plain_method"
    with pytest.raises(BadOption, match="only registered names"):
        da.method_info(path)
    assert da.method_info(path, allow_import=True).summary == "Half source, half batch."
    assert da.method_info(path).name == path  # the user typed it in this process
    with pytest.raises(BadOption, match="only registered names"):
        registry.find(catalog.METHODS, "method", "os:system")


@pytest.mark.parametrize("path", [":", "tent:", "nowhere.py:method", f"{__name__}:absent", "json:__doc__"])
def test_a_path_without_a_function_is_refused_with_the_reason(path):
    with pytest.raises(BadOption, match="expected"):
        da.method_info(path, allow_import=True)


def test_a_function_in_a_file_is_a_method(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text('def half(network, *, share: float = 0.5):\n    """Half source."""\n')
    assert da.method_info(f"{file}:half", allow_import=True).defaults == {"share": 0.5}
    file.write_text("1 / 0")
    with pytest.raises(BadOption, match="ZeroDivisionError"):
        da.method_info(f"{file}:other", allow_import=True)


def test_a_file_that_cannot_be_read_without_an_import_is_imported(tmp_path, monkeypatch):
    import domainadaptor.methods as folder

    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    (tmp_path / "odd_one.py").write_text(
        "import colorsys\n"
        '__all__ = ["odd_one"]\n'
        "DEFAULT = round(6 * colorsys.ONE_THIRD)\n"
        "def odd_one(network, *, count: int = DEFAULT):\n"
        '    """An odd one."""\n'
    )
    assert da.list_methods()["odd-one"] == "An odd one."
    assert da.method_info("odd-one").defaults == {"count": 2}


@pytest.mark.parametrize("name", ["README.md", "docs/start.md", "docs/service.md", "docs/page.md"])
def test_documents_name_the_default_method(name):
    default = catalog.DEFAULT_METHOD
    assert da.adapt(GoldenNet()).description.startswith(f"{default}(")
    named = re.findall(r"`([\w-]+)`, the default", (CLONE / name).read_text(encoding="utf-8"))
    assert set(named) == {default}


def test_one_method_calls_itself_the_default():
    calling = [name for name in da.list_methods() if "The default." in da.method_info(name).summary]
    assert calling == [catalog.DEFAULT_METHOD]
