"""Data-parallel training with torchrun: shares of each batch, averaged gradients and statistics."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from domainadaptor.lab.data.loaders import DomainBatch


def world_size() -> int:
    """Return the number of processes; 1 without torchrun."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def is_main_process() -> bool:
    """Return whether this process writes the files."""
    return world_size() == 1 or dist.get_rank() == 0


def barrier() -> None:
    """Wait for all processes."""
    if world_size() > 1:
        dist.barrier()


def broadcast_parameters(module: nn.Module) -> None:
    """Copy parameters and buffers of the main process to all processes."""
    if world_size() > 1:
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)


def local_share(batch: DomainBatch) -> DomainBatch:
    """Return this process's share of a batch; all of it if there are fewer images than processes."""
    if world_size() == 1 or len(batch.labels) < world_size():
        return batch
    rank, step = dist.get_rank(), world_size()
    return batch._replace(images=batch.images[rank::step], labels=batch.labels[rank::step])


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Average the gradients over all processes."""
    if world_size() > 1:
        _average(p.grad for p in parameters if p.grad is not None)


def average_statistics(module: nn.Module) -> None:
    """Average the running statistics over all processes, which saw different shares."""
    if world_size() > 1:
        _average(buffer for buffer in module.buffers() if buffer.is_floating_point())


@contextmanager
def torchrun_group(device: torch.device) -> Iterator[torch.device]:
    """Join the process group if torchrun started this process; yield the device of this process."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or "LOCAL_RANK" not in os.environ:
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
        dist.barrier()
    finally:
        dist.destroy_process_group()


@torch.no_grad()
def _average(tensors: Iterable[Tensor]) -> None:
    held = list(tensors)
    if held:
        flat = torch.cat([tensor.reshape(-1) for tensor in held])
        dist.all_reduce(flat)
        flat /= world_size()
        for tensor, part in zip(held, flat.split([t.numel() for t in held]), strict=True):
            tensor.copy_(part.view_as(tensor))
