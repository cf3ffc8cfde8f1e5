"""Warnings where adaptation may do harm."""

import copy
import pickle
import warnings

import pytest
import torch

import domainadaptor as da
from domainadaptor.adaptation.comparison import Comparison
from domainadaptor.adaptation.result import Adaptation
from domainadaptor.errors import FewClasses, LessInformation, NotLogits, OneAnswer, SmallBatch
from tests.conftest import GoldenNet, batch, stir


def logits(answers, confidence=8.0):
    return confidence * torch.nn.functional.one_hot(torch.tensor(answers), 5).float()


VARIED = logits([0, 1, 2, 3, 4] * 12)


def kinds(found):
    return [type(warning) for warning in found]


@pytest.mark.parametrize(
    ("adapted", "expected"),
    [
        (VARIED, []),
        (VARIED.roll(1, 1), []),  # all change, and tell as much
        (logits([2] * 60), [OneAnswer, LessInformation]),
        (logits([2, 3] * 30), [FewClasses, LessInformation]),
        (VARIED.roll(1, 1) / 40, [LessInformation]),
        (VARIED / 40, []),  # nothing changes
    ],
    ids=["same", "others", "one answer", "two answers", "unsure", "unsure of the same"],
)
def test_what_looks_like_harm(adapted, expected):
    compared = Comparison()
    for source, ours in zip(VARIED.split(13), adapted.split(13), strict=True):
        compared.add(source, Adaptation(ours, ours))
    assert kinds(compared.warnings()) == expected


def test_one_answer_is_no_harm_where_the_source_model_gives_it_too():
    compared = Comparison()
    compared.add(logits([2] * 17 + [1, 0, 3]), Adaptation(logits([2] * 20), VARIED[:20]))
    assert compared.warnings() == ()


@pytest.mark.parametrize(
    ("method", "fewest"), [("adabn", 5), ("sar", 5), ("tent", 5), ("adamixbn", 2), ("lame", 1), ("source", 1)]
)
def test_batches_too_small_for_the_statistics(net, images, method, fewest):
    result = da.adapt(net, method).adapt(images[:fewest])
    assert SmallBatch not in kinds(result.warnings)
    if fewest > 1:
        result = da.adapt(net, method).adapt(images[: fewest - 1])
        assert kinds(result.warnings) == [SmallBatch]
        assert str(result.warnings[0]) in result.note
        assert not da.adapt(net, method, min_batch=fewest).adapt(images[: fewest - 1]).warnings


class Fixed(torch.nn.Module):
    """The first pixels of an image are the logits; its norm layer has a say under batch statistics only."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(5, affine=False)

    def forward(self, x):
        return self.norm(x)


def test_the_source_model_answers_some_batches_for_comparison():
    images = VARIED + torch.tensor([100.0, 0, 0, 0, 0])
    network = Fixed().eval()
    network.norm.running_mean[0] = 100.0
    adaptor = da.adapt(network, "adabn")
    passes = []
    adaptor.source.norm.register_forward_hook(lambda *_: passes.append(1))
    counts = []
    for _ in range(9):
        assert not adaptor.adapt(images).warnings
        counts.append(len(passes))
    assert counts == [1, 2, 2, 3, 3, 3, 3, 4, 4]
    adaptor.watch.compares = False
    for _ in range(7):
        adaptor(images)
    assert len(passes) == 4


def test_python_warns_once_per_adaptor_and_what_a_comparison_shows_holds():
    network = Fixed().eval()
    images = VARIED.clone()
    adaptor = da.adapt(network, "adabn")
    adaptor._main.norms["norm"].forward = lambda x: logits([3] * len(x))
    adaptor._main.norms["norm"].uses = [None]
    adaptor._main._mark_used = lambda: None
    with pytest.warns(OneAnswer, match=r"All 60 images get the same answer, and 80% of 60 answers differ"):
        assert kinds(adaptor.adapt(images).warnings) == [OneAnswer, LessInformation]
    assert pickle.loads(pickle.dumps(copy.deepcopy(adaptor.watch)))._held
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adaptor.adapt(images)
        assert kinds(adaptor.adapt(images).warnings) == [OneAnswer, LessInformation]
    adaptor.reset()
    assert not adaptor.watch._held


def test_peeking_warns_of_nothing(net, images):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert da.adapt(net, "adabn").peek(images[:1]).warnings == ()


class Probabilities(GoldenNet):
    def forward(self, x):
        return super().forward(x).softmax(1)


def test_probabilities_are_noticed_where_a_loss_uses_them(images):
    network = stir(Probabilities())
    for method in ("tent", "cotta"):
        with pytest.warns(NotLogits, match=r"output=lambda p: p\.clamp"):
            da.adapt(network, method)(images)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        da.adapt(network, "adabn")(images)
        da.adapt(network, "tent", output=lambda p: p.clamp(min=1e-12).log())(images)


def test_lame_says_what_it_is_for():
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(5, 5, bias=False))
    with torch.no_grad():
        network[1].weight.copy_(torch.eye(5))
    images = 10 + 0.1 * batch(60, 5)  # alike, and yet predicted in different classes
    with pytest.warns(OneAnswer, match=r'labels come in runs\. For shuffled images pass affinity="knn"'):
        da.adapt(network, "lame")(images)
