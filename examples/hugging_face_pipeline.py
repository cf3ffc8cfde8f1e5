"""Adapt the network inside a pipeline of Hugging Face. Pre- and postprocessing stay those of the pipeline.

python examples/hugging_face_pipeline.py
"""

from typing import Any

from PIL import Image
from transformers import ConvNextImageProcessor, ImageClassificationPipeline, ResNetConfig, ResNetForImageClassification

import domainadaptor as da


class AdaptedPipeline(ImageClassificationPipeline):
    """An image classification pipeline that adapts to each batch."""

    def __init__(self, *args: Any, method: str = "auto", **more: Any) -> None:
        super().__init__(*args, **more)
        self.adaptor = da.adapt(self.model, method)

    def _forward(self, model_inputs: dict[str, Any]) -> dict[str, Any]:
        return {"logits": self.adaptor(model_inputs["pixel_values"])}


def main() -> None:
    """Classify random pictures, in place of yours, in batches of 16."""
    labels = {0: "cat", 1: "dog", 2: "horse"}
    config = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", id2label=labels)
    network = ResNetForImageClassification(config).eval()  # or .from_pretrained("folder")
    processor = ConvNextImageProcessor(size={"shortest_edge": 64}, crop_pct=1.0)
    pipe = AdaptedPipeline(model=network, image_processor=processor, batch_size=16)
    pictures = [Image.effect_noise((64, 64), 40 + 2 * at).convert("RGB") for at in range(32)]
    for answer in pipe(pictures, top_k=1)[:4]:
        print(answer)


if __name__ == "__main__":
    main()
