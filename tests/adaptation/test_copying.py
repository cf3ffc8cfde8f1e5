import threading

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.adaptation.copying import independent_copy, linked_copy, unwrap
from domainadaptor.errors import UnsupportedNetwork
from tests.conftest import GoldenNet, batch, stir


def test_a_linked_copy_shares_storage_but_no_objects(net):
    copy = linked_copy(net)
    for mine, theirs in zip(copy.parameters(), net.parameters(), strict=True):
        assert mine is not theirs
        assert mine.data_ptr() == theirs.data_ptr()
    for mine, theirs in zip(copy.buffers(), net.buffers(), strict=True):
        assert mine.data_ptr() != theirs.data_ptr()


def test_an_independent_copy_shares_nothing(net):
    pointers = {t.data_ptr() for t in net.state_dict().values()}
    assert not pointers & {t.data_ptr() for t in independent_copy(net).state_dict().values()}


def test_tied_parameters_stay_tied():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    net[2].weight = net[0].weight
    copy = linked_copy(net)
    assert copy[2].weight is copy[0].weight


def test_tensors_kept_as_attributes_do_not_prevent_copying(net):
    net.features = net.c1(batch(1, 3, 4, 4))
    assert net.features.grad_fn is not None
    assert linked_copy(net).features.grad_fn is None


def test_what_cannot_be_copied_is_explained(net):
    net.lock = threading.Lock()
    with pytest.raises(UnsupportedNetwork, match="cannot be copied.*lock"):
        da.adapt(net, "adamixbn")


@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile, lambda n: torch.compile(nn.DataParallel(n))])
def test_wrappers_are_removed(net, images, wrap):
    wrapped = wrap(net)
    assert unwrap(wrapped) is net
    adaptor = da.adapt(wrapped, "domainadaptor-t")
    assert torch.equal(adaptor(images), da.adapt(net, "domainadaptor-t")(images))
    net.load_state_dict(adaptor.state_dict())


def test_wrappers_inside_keep_their_names(net, images):
    outer = nn.Sequential(nn.DataParallel(torch.compile(net)), nn.Identity())
    adaptor = da.adapt(outer, "domainadaptor-t")
    assert list(adaptor.state_dict()) == list(outer.state_dict())
    assert torch.equal(adaptor(images), da.adapt(net, "domainadaptor-t")(images))


def test_layers_are_replaced_wherever_they_are_referred_to(images):
    class ByList(GoldenNet):
        def __init__(self) -> None:
            super().__init__()
            self.steps = [(self.c1, self.bn1), (self.c2, self.bn2)]

        def forward(self, x):
            for conv, norm in self.steps:
                x = torch.relu(norm(conv(x)))
            return self.fc(x.mean((2, 3)))

    net = stir(ByList())
    alpha = da.adapt(net, "adamixbn").adapt(images).alpha
    assert list(alpha) == ["bn1", "bn2"]


def test_a_network_that_reads_what_its_own_hook_stored(images):
    class Hooked(GoldenNet):
        def __init__(self) -> None:
            super().__init__()
            self.kept = {}
            self.bn2.register_forward_hook(self.keep)

        def keep(self, module, args, output):
            self.kept["bn2"] = output

        def forward(self, x):
            self.bn2(self.c2(torch.relu(self.bn1(self.c1(x)))))
            return self.fc(torch.relu(self.kept["bn2"]).mean((2, 3)))

    net = stir(Hooked())
    with torch.no_grad():
        expected = net(images)
        net(images + 1)
    held = net.kept["bn2"]
    assert torch.equal(da.adapt(net, "adamixbn", alpha=1.0, fold=False)(images), expected)
    result = da.adapt(net, "domainadaptor-t", lr=0.1).adapt(images)
    assert not torch.equal(result.logits, result.before)
    assert net.kept["bn2"] is held


@pytest.mark.parametrize("where", ["attribute", "forward"])
def test_functions_that_close_over_the_network(where, images):
    class Closing(GoldenNet):
        def __init__(self) -> None:
            super().__init__()
            self.second = lambda x: torch.relu(self.bn2(self.c2(x)))

        def forward(self, x):
            return self.fc(self.second(torch.relu(self.bn1(self.c1(x)))).mean((2, 3)))

    net = stir(Closing())
    if where == "forward":
        old = net.forward
        net.forward = lambda x: old(x)
    expected = net(images).detach()
    net.train()
    held = net.bn2.running_mean.clone()
    adaptor = da.adapt(net, "adamixbn")
    assert list(adaptor.adapt(images).alpha) == ["bn1", "bn2"]
    assert torch.equal(net.bn2.running_mean, held)
    assert torch.equal(da.adapt(net, "adamixbn", alpha=1.0, fold=False)(images), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("build", "hint"),
    [
        (lambda: torch.jit.script(nn.Sequential(nn.BatchNorm2d(3))), "TorchScript"),
        (lambda: nn.Sequential(torch.jit.script(nn.ReLU()), nn.BatchNorm2d(3)), "TorchScript"),
        (lambda: nn.Sequential(nn.BatchNorm2d(3, device="meta")), "meta"),
        (lambda: nn.Sequential(nn.LazyBatchNorm2d()), "lazy"),
        (lambda: "resnet18", "str"),
    ],
)
def test_what_is_no_network_is_refused(build, hint):
    with pytest.raises(UnsupportedNetwork, match=hint):
        da.adapt(build(), "adamixbn")


def test_weights_made_in_inference_mode_work(images):
    with torch.inference_mode():
        net = stir(GoldenNet())
    result = da.adapt(net, "domainadaptor-t", lr=0.1).adapt(images)
    assert not torch.equal(result.logits, result.before)
