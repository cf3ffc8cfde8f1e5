"""Classifiers that are exported: a name of torchvision or timm each."""

from dataclasses import replace

import torch
from torch import nn

from domainadaptor.lab.networks.loading import LoadedNetwork
from domainadaptor.lab.networks.zoo import find_network
from tests.conftest import stir

CLASSES = 13
SIZES = {
    "cifar:resnet8": 32,
    "maxvit_t": 224,
    "timm:swiftformer_xs": 224,
    "inception_v3": 96,
    "timm:inception_v3": 96,
    "timm:xception41": 96,
}

FEW = """
resnet18 mobilenet_v2 densenet121 shufflenet_v2_x0_5 regnet_y_400mf timm:tf_efficientnet_lite0
timm:mobilenetv3_small_050 timm:resnetv2_18 timm:repvgg_a0 timm:lcnet_035
"""
MORE = """
resnet50 resnext50_32x4d wide_resnet50_2 densenet169 efficientnet_b0 efficientnet_v2_s googlenet inception_v3
mnasnet0_5 mobilenet_v3_small mobilenet_v3_large regnet_x_400mf shufflenet_v2_x1_0
timm:resnet14t timm:resnet18d timm:eca_resnext26ts timm:gcresnet33ts timm:seresnet33ts timm:cs3darknet_focus_s
timm:cspresnet50 timm:densenetblur121d timm:dla46_c timm:dla34 timm:dpn48b timm:efficientnet_b1_pruned
timm:tf_mixnet_s timm:mnasnet_small timm:spnasnet_100 timm:fbnetc_100 timm:semnasnet_075 timm:mobilenetv2_035
timm:tinynet_e timm:mobilenetv4_conv_small timm:fasternet_t0 timm:fastvit_t8 timm:ghostnet_050 timm:ghostnetv2_100
timm:hardcorenas_a timm:hgnetv2_b0 timm:hgnet_tiny timm:hrnet_w18_small timm:inception_next_atto timm:inception_v3
timm:xception41 timm:legacy_seresnet18 timm:mobilevit_xxs timm:mobilevitv2_050 timm:regnetx_002 timm:regnetz_b16
timm:repghostnet_050 timm:repvit_m0_9 timm:mobileone_s0 timm:resnest14d timm:res2net50_14w_8s timm:rexnet_100
timm:selecsls42 timm:skresnet18 timm:starnet_s1 timm:swiftformer_xs timm:tiny_vit_5m_224
timm:ese_vovnet19b_slim_dw timm:lowformer_e1 timm:shvit_s1 timm:iformer_m timm:cpubone_nano
"""


def random_network(name: str) -> LoadedNetwork:
    """Return a network with random weights, whose norm layers look trained."""
    spec = find_network(name)
    size = SIZES.get(name, 64)
    torch.manual_seed(0)
    network: nn.Module = stir(spec.build(CLASSES)).eval()
    classes = tuple(map(str, range(CLASSES)))
    preprocessing = replace(spec.preprocessing, size=size, resize=size)
    return LoadedNetwork(network, spec.name, classes, preprocessing, "", random=True)
