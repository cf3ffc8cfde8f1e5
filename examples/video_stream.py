"""Adapt to a video frame by frame: each frame is predicted with the statistics of the last sixteen.

python examples/video_stream.py
"""

from collections import deque
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torchvision.models import resnet18

import domainadaptor as da


def predictions(network: torch.nn.Module, frames: Iterable[Tensor], window: int = 16) -> Iterator[tuple[int, int]]:
    """Yield the answer for each frame, (C, H, W): that of the source model, and the adapted one.

    One frame has no statistics worth using, so it is adapted together with those before it. Keep frames that are far
    apart, because neighboring ones are nearly the same image.
    """
    adaptor = da.adapt(network, min_batch=4)  # the first three frames are answered by the source model
    last: deque[Tensor] = deque(maxlen=window)
    for frame in frames:
        last.append(frame)
        result = adaptor.adapt(torch.stack(list(last)))
        yield int(adaptor.source_logits(frame[None]).argmax()), int(result.logits[-1].argmax())


def camera(count: int) -> Iterator[Tensor]:
    """Make frames that slowly grow dark, in place of your camera's."""
    torch.manual_seed(0)
    scene = torch.randn(3, 64, 64)
    for at in range(count):
        yield (scene + 0.3 * torch.randn(3, 64, 64)).roll(at, dims=2) * (1 - 0.8 * at / count)


def main() -> None:
    """Print how often adaptation changes the answer."""
    torch.manual_seed(0)
    network = resnet18(num_classes=10).eval()  # load your weights here
    answers = list(predictions(network, camera(40)))
    changed = sum(before != after for before, after in answers)
    print(f"{len(answers)} frames, {changed} answers changed")


if __name__ == "__main__":
    main()
