"""Adapt inside Lightning's predict loop.

python examples/lightning_predict.py
"""

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet18

import domainadaptor as da


class Classifier(lightning.LightningModule):
    """Your module. Its network is wrapped when prediction begins, on the device where it is by then."""

    def __init__(self, method: str = "auto") -> None:
        super().__init__()
        self.network = resnet18(num_classes=4)
        self.method = method

    def on_predict_start(self) -> None:
        """Wrap the network. A plain attribute, so that checkpoints stay as they are."""
        self.__dict__["adaptor"] = da.adapt(self.network.eval(), self.method)

    def predict_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Adapt to a batch and predict it. Lightning runs this in inference mode, which adaptors can do with."""
        return self.adaptor(batch[0]).argmax(1)


def main() -> None:
    """Predict random images, in place of yours."""
    loader = DataLoader(TensorDataset(torch.randn(48, 3, 64, 64)), batch_size=16)
    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    answers = trainer.predict(Classifier(), loader)
    print(torch.cat(answers).bincount(minlength=4).tolist())
    answers = trainer.predict(Classifier("tent"), loader)  # a method with gradient steps
    print(torch.cat(answers).bincount(minlength=4).tolist())


if __name__ == "__main__":
    main()
