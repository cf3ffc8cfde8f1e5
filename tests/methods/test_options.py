"""Names, options and combinations: a wrong one is answered with the nearest right one, or with the reason."""

import inspect
import itertools

import numpy as np
import pytest
import torch

import domainadaptor as da
from domainadaptor import registry
from domainadaptor.errors import BadOption
from domainadaptor.options import coerce_options, defaults_of, parse_options
from tests.conftest import GoldenNet, batch

FUNCTIONS = registry.table("domainadaptor.methods")
OBJECTS = {"source_images", "target_images", "task", "learned_loss"}  # no text can stand for them


def test_the_methods():
    assert set(da.list_methods()) >= {
        "source",
        "adabn",
        "adamixbn",
        "domainadaptor-t",
        "domainadaptor-skd",
        "domainadaptor-aug",
    }
    assert all(text.endswith(".") and len(text) > 20 for text in da.list_methods().values())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_option_has_a_type_and_a_default(name):
    for parameter in list(inspect.signature(FUNCTIONS[name]).parameters.values())[1:]:
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert parameter.default is not parameter.empty
        assert parameter.annotation is not parameter.empty


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_option_is_documented_in_one_sentence_or_more(name):
    for option in da.method_info(name).options.values():
        assert option.doc.endswith("."), option
        assert option.doc[0].isupper() or option.doc[0] == '"', option
        assert option.type or option.name in OBJECTS, option


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_default_is_a_value_of_its_type(name):
    assert coerce_options(FUNCTIONS[name], defaults_of(FUNCTIONS[name])) == defaults_of(FUNCTIONS[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_value_of_a_wrong_type_is_refused_for_every_option(name):
    for option in set(defaults_of(FUNCTIONS[name])) - OBJECTS:
        with pytest.raises(BadOption, match=f"^{option}=<object"):
            coerce_options(FUNCTIONS[name], {option: object()})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_text_is_read_by_the_declared_type(name):
    defaults = {k: v for k, v in defaults_of(FUNCTIONS[name]).items() if k not in OBJECTS and not isinstance(v, tuple)}
    assert parse_options(FUNCTIONS[name], {option: str(value) for option, value in defaults.items()}) == defaults
    lists = {k: list(v) for k, v in defaults_of(FUNCTIONS[name]).items() if isinstance(v, tuple)}
    assert parse_options(FUNCTIONS[name], {option: str(value) for option, value in lists.items()}) == lists


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "lr" in defaults_of(FUNCTIONS[name])])
def test_whole_numbers_are_the_same_learning_rate(name):
    given = coerce_options(FUNCTIONS[name], {"lr": 1})
    assert given == {"lr": 1.0}
    assert isinstance(given["lr"], float)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_function_itself_refuses_wrong_options(net, name):
    with pytest.raises(BadOption, match="has no option 'nothing'"):
        FUNCTIONS[name](net, nothing=1)


@pytest.mark.parametrize(
    ("method", "options", "hint"),
    [
        ("domainadapter-t", {}, "did you mean 'domainadaptor-t'"),
        ("DomainAdaptor-T", {}, "did you mean 'domainadaptor-t'"),
        ("adamix", {}, "did you mean 'adamixbn'"),
        (7, {}, "unknown method 7"),
        ("nowhere.at:all", {}, "package.module:function"),
        ("math:pi", {}, "a float"),
        (lambda network: network, {}, "returned a GoldenNet; expected an Adaptor"),
        (GoldenNet(), {}, "the network comes first"),
        ("domainadaptor-t", {"learning_rate": 1}, "has no option 'learning_rate'"),
        ("domainadaptor-t", {"temprature": 1}, "did you mean 'temperature'"),
        ("source", {"lr": 1}, "has no option 'lr'"),
        ("adabn", {"alpha": 0.5}, "has no option 'alpha'"),
        ("adamixbn", {"alpha": "cod"}, "did you mean 'code'"),
        ("adamixbn", {"alpha": 2}, "from 0 to 1"),
        ("adamixbn", {"alpha": -0.1}, "from 0 to 1"),
        ("adamixbn", {"alpha": float("nan")}, "finite"),
        ("adamixbn", {"alpha": None}, "one of code, paper"),
        ("adamixbn", {"alpha": True}, "number"),
        ("adamixbn", {"fold": "yes"}, "True or False"),
        ("adamixbn", {"loss": "gem"}, "did you mean 'gem-"),
        ("adamixbn", {"variance": "unbiassed"}, "did you mean 'unbiased'"),
        ("adabn", {"variance": 1}, "available: unbiased, biased"),
        ("domainadaptor-t", {"temperature": "perimage"}, "did you mean 'per_image'"),
        ("domainadaptor-t", {"temperature": 0}, "above 0"),
        ("domainadaptor-t", {"temperature": -1.0}, "above 0"),
        ("domainadaptor-t", {"temperature": None}, "temperature=None: expected"),
        ("domainadaptor-t", {"scale": -1}, "above 0"),
        ("domainadaptor-t", {"lr": -1e-3}, "at least 0"),
        ("domainadaptor-t", {"lr": 1e60}, "finite number"),
        ("domainadaptor-t", {"seed": 2**64}, "whole number"),
        ("domainadaptor-t", {"alpha": "0.5"}, "the number 0.5"),
        ("aug", {}, "did you mean 'domainadaptor-aug'"),
        ("domainadaptor-t", {"lr": float("nan")}, "finite"),
        ("domainadaptor-t", {"lr": "fast"}, "finite number"),
        ("domainadaptor-t", {"steps": 1.5}, "whole number"),
        ("domainadaptor-t", {"steps": -1}, "at least 0"),
        ("domainadaptor-t", {"seed": "x"}, "whole number"),
        ("domainadaptor-aug", {"views": 0}, "at least 1"),
        ("adamixbn", {"lr": 0.1}, "no step without a loss"),
        ("domainadaptor-t", {"learning_rate": 0.1}, "did you mean 'lr'"),
        ("adamixbn", {"steps": 2}, "no step without a loss"),
        ("adamixbn", {"loss": "entropy", "temperature": 2.0}, "only the gem losses"),
        ("domainadaptor-t", {"views": 5}, "only gem-aug"),
        ("domainadaptor-t", {"temperature": 2.0, "scale": 3}, "temperature is a number"),
    ],
)
def test_mistakes_are_answered(net, method, options, hint):
    with pytest.raises(BadOption, match=hint):
        da.adapt(net, method, **options)


COMBINATIONS = list(
    itertools.product(
        ["code", "paper", "code-reversed", "paper-reversed", 0.7],
        [True, False],
        [None, "entropy", "slr", "gem-t", "gem-skd", "gem-aug"],
        ["unbiased", "biased"],
    )
)


@pytest.mark.parametrize(("alpha", "fold", "loss", "variance"), COMBINATIONS)
def test_every_combination_works(net, alpha, fold, loss, variance):
    x = batch(3, 3, 8, 8)
    rules = ["code", "per_image", "batch_mean", 1.5] if loss and loss.startswith("gem") else ["code"]
    for rule in rules:
        adaptor = da.adapt(net, "adamixbn", alpha=alpha, fold=fold, loss=loss, variance=variance, temperature=rule)
        result = adaptor.adapt(x)
        assert torch.isfinite(result.logits).all()
        assert not result.fell_back
        assert (result.loss is None) == (loss is None)


def test_no_step_may_be_said_anywhere(net):
    da.adapt(net, "adamixbn", lr=0, steps=0)


def test_numbers_of_numpy_and_the_word_none_are_understood(net):
    x = batch(3, 3, 8, 8)
    options = {"alpha": np.float32(0.5), "temperature": np.float64(2), "lr": np.float32(0.1), "steps": np.int64(2)}
    plain = {"alpha": 0.5, "temperature": 2.0, "lr": float(np.float32(0.1)), "steps": 2}
    assert torch.equal(da.adapt(net, "domainadaptor-t", **options)(x), da.adapt(net, "domainadaptor-t", **plain)(x))
    assert torch.equal(da.adapt(net, "domainadaptor-t", loss="none")(x), da.adapt(net, "adamixbn")(x))


def test_a_function_and_a_path_are_methods_too(net):
    x = batch(3, 3, 8, 8)
    expected = da.adapt(net, "adabn")(x)
    assert torch.equal(da.adapt(net, FUNCTIONS["adabn"])(x), expected)
    assert torch.equal(da.adapt(net, "domainadaptor.methods.adabn:adabn", variance="biased")(x), expected)


def test_views_of_the_same_batch_are_the_same_and_follow_the_seed(net):
    x = batch(4, 3, 12, 12)
    one, again, other = (da.adapt(net, "domainadaptor-aug", lr=1.0, seed=s)(x) for s in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    adaptor = da.adapt(net, "domainadaptor-aug", lr=1.0)
    assert torch.equal(adaptor(x), adaptor(x))
