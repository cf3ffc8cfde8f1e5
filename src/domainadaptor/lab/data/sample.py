"""Images of a folder in batches, without labels."""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.images import check_image, list_files, read_image


class FolderImages:
    """Batches of the images below a folder, in a seeded order; read anew whenever they are gone through.

    Args:
        folder: Where the images are, at any depth; what is no image is passed over.
        transform: From an RGB image to the network's input.
        seed: Of the order, and of the choice where there are more than `most`.
        most: How many images are taken; None takes all.
        batch_size: Images in a batch; the last one may have fewer.

    Raises:
        BadFile: The folder is missing, or no file in it looks like an image.
    """

    def __init__(
        self,
        folder: Path,
        transform: Callable[[Image.Image], Tensor],
        *,
        seed: int = 0,
        most: int | None = None,
        batch_size: int = 64,
    ) -> None:
        self._folder = folder
        self._transform = transform
        self._batch_size = batch_size
        files = list_files(folder)
        order = torch.randperm(len(files), generator=torch.Generator().manual_seed(seed)).tolist()
        self._files: list[Path] = []
        for at in order:
            if len(self._files) == most:
                break
            if self._looks_fine(files[at]):
                self._files.append(files[at])
        if not self._files:
            raise BadFile(f"none of the {len(files)} files below {str(folder)!r} is a readable image")

    def __len__(self) -> int:
        """How many images were chosen; a damaged one among them is passed over when it is read."""
        return len(self._files)

    def __iter__(self) -> Iterator[Tensor]:
        """Batches, (N, 3, H, W)."""
        held: list[Tensor] = []
        for path in self._files:
            try:
                held.append(self._transform(read_image(path, self._folder)))
            except BadFile:
                continue
            if len(held) == self._batch_size:
                yield torch.stack(held)
                held = []
        if held:
            yield torch.stack(held)

    def _looks_fine(self, path: Path) -> bool:
        try:
            check_image(path, self._folder)
        except BadFile:
            return False
        return True
