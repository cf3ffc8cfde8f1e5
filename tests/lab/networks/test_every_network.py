"""Wrapping is neutral and a step does something, for every kind of network that people use.

Weights are random, but made to look trained: norm scale, shift and statistics away from 1 and 0, and a head that gives
logits of deviation one. Random weights make some networks chaotic: there a change of the input by 1e-7 changes the
logits by up to half, and the rounding of float32 does the same, folded or not; those are tested in float64.
"""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import domainadaptor as da
from domainadaptor.adaptation.logits import read_logits
from tests.conftest import stir

CLASSES = 13
TORCHVISION_SIZE = {"inception_v3": 96, "googlenet": 64, "maxvit_t": 224}

# Related networks share a line. The fast set takes the first of each line; the others are slow.
TORCHVISION = """
densenet121 densenet161 densenet169 densenet201
efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5 efficientnet_b6 \
efficientnet_b7 efficientnet_v2_m efficientnet_v2_s maxvit_t
googlenet
inception_v3
mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3
mobilenet_v2
mobilenet_v3_small mobilenet_v3_large
regnet_x_400mf regnet_x_800mf regnet_x_1_6gf regnet_x_3_2gf regnet_x_8gf regnet_x_16gf
regnet_y_400mf regnet_y_800mf regnet_y_1_6gf regnet_y_3_2gf regnet_y_8gf regnet_y_16gf
resnet18 resnet34
resnet50 resnet101 resnet152 resnext50_32x4d resnext101_32x8d resnext101_64x4d wide_resnet50_2
shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0
"""

TIMM = """
resnet14t resnet26t resnet18d
eca_resnext26ts eca_resnet33ts gcresnet33ts seresnet33ts ecaresnet26t ecaresnext26t_32x4d
cs3darknet_focus_s cs3darknet_s cs3darknet_m cs3darknet_focus_m cspresnet50 cspdarknet53
cpubone_nano cpubone_b0_bfrobust
densenetblur121d densenet121
dla46_c dla46x_c dla34 dla60x_c
dpn48b dpn68 dpn68b
tf_efficientnet_lite0 efficientnet_lite0 efficientnet_b0 tf_efficientnet_b0 efficientnet_b1_pruned
tf_mixnet_s mixnet_s
mnasnet_small spnasnet_100 fbnetc_100 semnasnet_075
mobilenetv2_035 mobilenetv2_100
tinynet_e tinynet_a
mobilenetv3_small_050 mobilenetv3_small_100 mobilenetv3_large_100 mobilenetv4_conv_small
lcnet_035 lcnet_100 lcnetv2_small lcnetv2_base
fasternet_t0 fasternet_t1
fastvit_t8 fastvit_s12
ghostnet_050 ghostnet_100 ghostnetv2_100
hardcorenas_a hardcorenas_b hardcorenas_c hardcorenas_d
hgnetv2_b0 hgnetv2_b1 hgnet_tiny
hrnet_w18_small
iformer_m
inception_next_atto inception_v3 xception41
legacy_seresnet18 legacy_seresnext26_32x4d
lowformer_e1 lowformer_b0
mobilevit_xxs mobilevit_xs mobilevitv2_050 mobilevitv2_075
regnetx_002 regnetx_004 regnety_002 regnety_004 regnetz_b16
repghostnet_050 repghostnet_080
repvgg_a0
repvit_m0_9
mobileone_s0
resnest14d resnest26d res2net50_14w_8s
resnetv2_18 resnetv2_18d
rexnet_100 rexnet_150
selecsls42 selecsls60
shvit_s1 shvit_s2
skresnet18 skresnet34
starnet_s1 starnet_s2
swiftformer_xs
tiny_vit_5m_224
ese_vovnet19b_slim_dw ese_vovnet19b_slim ese_vovnet19b_dw
"""
TIMM_SIZE = {"swiftformer_xs": 224, "inception_v3": 96, "xception41": 96}

TIMM_CHAOTIC = """
fbnetv3_b fbnetv3_d efficientnetv2_rw_t tf_efficientnet_b4 tf_efficientnetv2_s regnety_032 ecaresnet101d
"""

TIMM_LARGE = """
botnet26t_256 halonet26t eca_halonext26ts bat_resnext26ts coatnet_nano_rw_224 coatnet_rmlp_nano_rw_224
efficientformer_l1 efficientformerv2_s0 efficientvit_b0 efficientvit_m3 levit_128 levit_256 lambda_resnet26t
resnet50 resnet101 seresnext50_32x4d resnext101_32x8d
convmixer_768_32
hrnet_w18 res2net101_26w_4s dla102 vgg11_bn vgg16_bn gernet_l cspresnext50 inception_resnet_v2
inception_v4 nasnetalarge pnasnet5large maxvit_nano_rw_256 rexnet_300 xception65
"""


def families(lines: str) -> list[Any]:
    """All names, those after the first of a line marked slow."""
    return [
        name if at == 0 else pytest.param(name, marks=pytest.mark.slow)
        for line in lines.strip().splitlines()
        for at, name in enumerate(line.split())
    ]


class Signal(nn.Module):
    """One-dimensional, with vectors at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(3, 12, 5, bias=False), nn.BatchNorm1d(12), nn.ReLU(), nn.Conv1d(12, 16, 5), nn.BatchNorm1d(16)
        )
        self.head = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean(2))


class Volume(nn.Module):
    """Three-dimensional, one norm without shift."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv3d(3, 8, 3, bias=False), nn.BatchNorm3d(8, eps=1e-3)
        self.conv2, self.bn2 = nn.Conv3d(8, 16, 3), nn.BatchNorm3d(16, momentum=None)
        self.bn2.bias = None
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(self.bn1(self.conv1(x)))
        h = torch.relu(self.bn2(self.conv2(h))).mean((2, 3, 4))
        return self.head(h), h


def hugging_face(name: str) -> nn.Module:
    import transformers as hf

    few = {"num_labels": CLASSES}
    sizes = {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 2, 1]}
    return {
        "resnet": lambda: hf.ResNetForImageClassification(hf.ResNetConfig(embedding_size=16, **sizes, **few)),
        "regnet": lambda: hf.RegNetForImageClassification(
            hf.RegNetConfig(embedding_size=16, groups_width=8, **sizes, **few)
        ),
        "mobilenet_v2": lambda: hf.MobileNetV2ForImageClassification(
            hf.MobileNetV2Config(depth_multiplier=0.35, **few)
        ),
        "efficientnet": lambda: hf.EfficientNetForImageClassification(
            hf.EfficientNetConfig(width_coefficient=0.5, depth_coefficient=0.5, hidden_dim=640, **few)
        ),
    }[name]()


def look_trained(network: nn.Module, images: Tensor) -> Tensor:
    """Its logits, once it looks trained."""
    stir(network)
    with torch.no_grad():
        deviation = float(read_logits(network(images), None, len(images)).std())
        for module in network.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)) and module.weight.shape[0] == CLASSES:
                module.weight.div_(deviation)
                if module.bias is not None:
                    module.bias.div_(deviation)
        return read_logits(network(images), None, len(images))


def check(build: Callable[[], nn.Module], *shape: int, dtype: torch.dtype = torch.float32) -> None:
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        network = build().eval().to(dtype)
    images = torch.randn(4, *shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    expected = look_trained(network, images)
    assert 0.5 < float(expected.std()) < 2
    held = {name: tensor.clone() for name, tensor in network.state_dict().items()}

    unfolded = da.adapt(network, "adamixbn", alpha=1.0, fold=False)
    assert torch.equal(unfolded(images), expected)
    assert len(unfolded.layers()) == sum(isinstance(m, _BatchNorm) for m in network.modules())
    assert all(layer.adapts or "not used" in layer.why for layer in unfolded.layers())  # auxiliary heads are not
    assert any(layer.adapts for layer in unfolded.layers())
    mixed = da.adapt(network, "adamixbn")(images)
    assert float((mixed - expected).norm() / expected.norm()) > 1e-2
    # With the source's statistics: under a mixture the logits of random weights vanish, and the gradient with them.
    stepped = da.adapt(network, "domainadaptor-t", alpha=1.0, lr=0.1).adapt(images)
    assert float((stepped.before - expected).norm() / expected.norm()) <= 1e-5  # the norms are folded
    assert not stepped.fell_back
    assert not torch.equal(stepped.logits, stepped.before)
    assert all(torch.equal(held[name], tensor) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("name", families(TORCHVISION))
def test_torchvision(name):
    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    size = TORCHVISION_SIZE.get(name, 64)
    check(lambda: torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **extra), 3, size, size)


def test_torchvision_is_whole():
    """Every other classifier is larger than 100 million parameters or has no batch norm."""
    for name in torchvision.models.list_models(module=torchvision.models):
        published = torchvision.models.get_model_weights(name).DEFAULT.meta["num_params"]
        if name not in TORCHVISION.split() and published <= 100e6:
            with torch.device("meta"):
                network = torchvision.models.get_model(name, weights=None)
            assert not any(isinstance(m, _BatchNorm) for m in network.modules()), name


@pytest.mark.parametrize("name", families(TIMM))
def test_timm(name):
    size = TIMM_SIZE.get(name, 64)
    check(lambda: timm.create_model(name, pretrained=False, num_classes=CLASSES), 3, size, size)


@pytest.mark.parametrize("name", families(TIMM_CHAOTIC))
def test_timm_chaotic(name):
    check(lambda: timm.create_model(name, pretrained=False, num_classes=CLASSES), 3, 64, 64, dtype=torch.float64)


def test_at_least_a_hundred_of_timm():
    assert len(set(TIMM.split())) >= 100


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMM_LARGE.split())
def test_timm_large(name):
    config = timm.get_pretrained_cfg(name)
    size = config.input_size[-1]
    check(lambda: timm.create_model(name, pretrained=False, num_classes=CLASSES), 3, size, size)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "efficientnet_b0", "mobilenet_v2"])
def test_torchvision_at_full_size(name):
    check(lambda: torchvision.models.get_model(name, weights=None, num_classes=CLASSES), 3, 224, 224)


@pytest.mark.parametrize("name", ["resnet", "regnet", "mobilenet_v2", "efficientnet"])
def test_hugging_face(name):
    check(lambda: hugging_face(name), 3, 64, 64)


@pytest.mark.parametrize(("build", "shape"), [(Signal, (3, 40)), (Volume, (3, 9, 10, 8))])
def test_other_dimensions(build, shape):
    check(build, *shape)
