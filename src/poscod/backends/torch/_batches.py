# SPDX-License-Identifier: BSD-3-Clause
"""What a loader yields, and how a network is called with it.

Convention: a batch is an input, a pair ``(input, labels, ...)``, or a mapping whose keys are the network's arguments (``labels`` or ``label``
are the labels); an input that is a mapping is passed by keyword. Nothing else is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, Dataset, IterableDataset

from poscod._validation import check_count
from poscod.backends._running import as_batches, reason, split_labels
from poscod.exceptions import InvalidInputError

# Names under which data sets of images (OpenOOD, some of Hugging Face) pass the one positional input.
INPUTS = ("data", "image")
AMP: dict[str, torch.dtype] = {"float16": torch.float16, "bfloat16": torch.bfloat16}
"""Mixed precision by name."""


class Batch(NamedTuple):
    """Arguments of the network and the labels beside them.

    Attributes
    ----------
    args : tuple
    kwargs : dict
    labels : object or None
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    labels: Any


def as_loader(data: Any, batch_size: int) -> Iterable[Any]:
    """Return something that yields batches."""
    by_number = hasattr(data, "__len__") and hasattr(data, "__getitem__") and not hasattr(data, "__iter__")
    if by_number or (isinstance(data, Dataset) and not isinstance(data, IterableDataset)):
        return DataLoader(data, batch_size=check_count(batch_size, "batch_size"))
    return as_batches(data, batch_size, "loader", (torch.Tensor, np.ndarray))


def split_batch(batch: Any) -> Batch:
    """Tell the input of a batch from its labels."""
    if isinstance(batch, Batch):
        return batch
    inputs, labels = split_labels(batch)
    if isinstance(batch, Mapping):
        inputs = next((inputs[key] for key in INPUTS if key in inputs), inputs)
    return Batch((), dict(inputs), labels) if isinstance(inputs, Mapping) else Batch((inputs,), {}, labels)


def to_device(value: Any, device: torch.device) -> Any:
    """Move the tensors of a nested value."""

    def move(leaf: Any) -> Any:
        return torch.as_tensor(leaf, device=device) if isinstance(leaf, (torch.Tensor, np.ndarray)) else leaf

    return tree_map(move, value)


def call(model: torch.nn.Module, batch: Batch) -> Any:
    """Run a network on a batch; what torch says of shapes becomes a sentence that names the batch's."""
    try:
        return model(*batch.args, **batch.kwargs)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        given = [value for value in (*batch.args, *batch.kwargs.values()) if isinstance(value, torch.Tensor)]
        shapes = " and ".join(f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}" for value in given)
        raise InvalidInputError(
            f"The model could not be run on a batch of shape {shapes} ({reason(error)})."
        ) from error


def unwrap(model: Any) -> torch.nn.Module:
    """Return the network inside `DataParallel`, and refuse what is none."""
    if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        model = model.module
    if not isinstance(model, torch.nn.Module):
        raise InvalidInputError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    return model


@contextmanager
def evaluating(model: torch.nn.Module, device: torch.device | str | None) -> Iterator[torch.device]:
    """Put a network in evaluation mode on a device, and everything back where it was afterwards."""
    before = next((value.device for value in model.parameters()), torch.device("cpu"))
    modes = {module: module.training for module in model.modules()}
    there = before if device is None else torch.device(device)
    try:
        model.to(there)
        model.eval()
        yield there
    finally:
        # Each module has a mode of its own: a frozen BatchNorm in a training network must stay frozen.
        for module, mode in modes.items():
            module.training = mode
        model.to(before)
