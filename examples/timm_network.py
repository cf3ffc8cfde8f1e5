"""Adapt a network of timm, preprocessed as its own config says; and one without batch norm.

python examples/timm_network.py
"""

import timm
import torch
from PIL import Image

import domainadaptor as da


def main() -> None:
    """Predict random pictures, in place of yours."""
    network = timm.create_model("resnet26", pretrained=False, num_classes=5).eval()  # load your weights here
    config = timm.data.resolve_model_data_config(network)
    transform = timm.data.create_transform(**(config | {"input_size": (3, 64, 64)}), is_training=False)
    pictures = [Image.effect_noise((80, 80), 60 + at).convert("RGB") for at in range(16)]
    images = torch.stack([transform(picture) for picture in pictures])

    adaptor = da.adapt(network)
    print(adaptor)
    print(adaptor.adapt(images).logits.argmax(1).tolist())

    # A ViT has no batch norm, so that statistics cannot adapt; scales and shifts of its layer norms can.
    transformer = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=5, img_size=64).eval()
    adaptor = da.adapt(transformer, "sar")
    print(adaptor)
    print(adaptor.adapt(images).logits.argmax(1).tolist())


if __name__ == "__main__":
    main()
