# SPDX-License-Identifier: BSD-3-Clause
"""Several processes that train as one.

Convention: a batch is cut among the processes; each adds its rows' share of one loss, and gradients are summed, so that the numbers are those
of one process up to rounding. Without torchrun there is one process and nothing here does anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

Tensor = torch.Tensor


@dataclass(frozen=True)
class Processes:
    """One process among all.

    Parameters
    ----------
    rank : int, default=0
        Number of this process.
    size : int, default=1
        Number of processes.
    """

    rank: int = 0
    size: int = 1

    def mine(self, n: int, first: int = 0) -> Tensor:
        """Return the positions of this process's rows among n."""
        return torch.arange(self.rank, n, self.size) + first

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Sum the gradients of all processes, in place."""
        if self.size == 1:
            return
        kinds: dict[torch.dtype, list[Tensor]] = {}
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            kinds.setdefault(parameter.dtype, []).append(parameter.grad)
        for gradients in kinds.values():  # one message for all of a kind
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            dist.all_reduce(flat)
            sizes = [gradient.numel() for gradient in gradients]
            for gradient, part in zip(gradients, torch.split_with_sizes(flat, sizes), strict=True):
                gradient.copy_(part.reshape(gradient.shape))

    def total(self, values: Tensor) -> Tensor:
        """Return the sum over all processes."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def gather(self, values: Tensor, positions: Tensor, n: int) -> Tensor:
        """Put the rows of all processes back in their places."""
        out = values.new_zeros(n)
        out[positions.to(out.device)] = values
        return self.total(out)

    def agree(self, values: Iterable[Tensor]) -> None:
        """Give all processes the values of the first, in place."""
        if self.size > 1:
            for value in values:
                dist.broadcast(value, 0)

    def wait(self) -> None:
        """Wait for the others."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def processes(device: torch.device) -> Iterator[Processes]:
    """Join the processes that torchrun started, or those already joined."""
    if not dist.is_available():
        yield Processes()
        return
    started = not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1
    if started:
        # Gradients are summed where they are, losses and features on the CPU.
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Processes()
    finally:
        if started:
            dist.destroy_process_group()
