# SPDX-License-Identifier: BSD-3-Clause
"""Rows of both kinds for training: random access, a split, and batches that hold both kinds in the shares of the data.

Convention: side 0 are labeled ID rows, side 1 unlabeled rows. Order depends on the seed and the epoch alone, never on what happened before,
so that a run can be taken up anywhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from poscod._validation import check_number
from poscod.activations import Activations
from poscod.backends._running import Blocks, reason
from poscod.backends.torch._batches import Batch, split_batch
from poscod.backends.torch._extract import extract
from poscod.exceptions import InvalidInputError

Indices = NDArray[np.int64]


class Rows:
    """Rows that can be picked by their number, and their features at the start of a run.

    Parameters
    ----------
    data : Activations, Tensor, ndarray or a data set with ``len`` and ``[i]``
    name : str
        Name of the argument, for messages.
    """

    features: torch.Tensor

    def __init__(self, data: Any, name: str) -> None:
        if isinstance(data, Activations):
            data = np.asarray(data.need("features", caller=f"fit_ratio with {name}"), dtype=np.float32)
        if isinstance(data, np.ndarray):
            data = torch.as_tensor(data)
        if not isinstance(data, torch.Tensor) and not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
            raise InvalidInputError(
                f"{name} must be a data set with len() and [i], a tensor, an array or Activations, got {type(data).__name__}: pass the "
                "data set, not its loader."
            )
        self.data, self.name = data, name

    def __len__(self) -> int:
        return len(self.data)

    def look(self, network: torch.nn.Module | None, layer: str | None, batch_size: int, progress: bool | None) -> None:
        """Keep the features that a network makes of the rows; None: they are features."""
        if network is None:
            self.features = self.data
            return
        batches = Blocks(len(self), batch_size, lambda part: fetch([(self, np.arange(part.start, part.stop))]))
        try:
            self.features = torch.from_numpy(extract(network, batches, layer, progress=progress).features)
        except InvalidInputError as error:
            raise InvalidInputError(f"{self.name}: {error}") from None


def fetch(picked: list[tuple[Rows, Indices]]) -> Batch:
    """Return rows of one or both kinds as a batch without labels."""
    whole = all(isinstance(source.data, torch.Tensor) for source, _ in picked)
    if whole:
        parts = [source.data[torch.as_tensor(rows)] for source, rows in picked]
    else:
        parts = [split_batch(source.data[int(i)])[:2] for source, rows in picked for i in rows]
    try:
        args, kwargs = ((torch.cat(parts),), {}) if whole else default_collate(parts)
    except RuntimeError as error:
        raise InvalidInputError(f"Rows of a batch must have one shape ({reason(error)}).") from None
    return Batch(tuple(args), dict(kwargs), None)


class Sides(NamedTuple):
    """ID rows and unlabeled rows, with the numbers of those in use."""

    sources: tuple[Rows, Rows]
    rows: tuple[Indices, ...]

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of rows of each side."""
        return len(self.rows[0]), len(self.rows[1])

    @property
    def pi_u(self) -> float:
        """Share of unlabeled rows."""
        return self.sizes[1] / sum(self.sizes)

    def features(self) -> list[NDArray[Any]]:
        """Return the features of each side at the start."""
        return [source.features.numpy()[rows] for source, rows in zip(self.sources, self.rows, strict=True)]


def split_sides(id_data: Any, unlabeled_data: Any, validation: Any, seed: int) -> tuple[Sides, Sides]:
    """Return training and validation rows."""
    sources = Rows(id_data, "id_data"), Rows(unlabeled_data, "unlabeled_data")
    if isinstance(validation, (tuple, list)):
        if len(validation) != 2:
            raise InvalidInputError(
                f"validation must be a share or a pair (ID rows, unlabeled rows), got {len(validation)} parts."
            )
        own = Rows(validation[0], "validation[0]"), Rows(validation[1], "validation[1]")
        train, held = (Sides(side, tuple(np.arange(len(source)) for source in side)) for side in (sources, own))
    else:
        share = check_number(validation, "validation", 0.0, 1.0, closed="neither")
        rng = np.random.default_rng([seed, 0])
        orders = [rng.permutation(len(source)) for source in sources]
        cuts = [max(1, round(share * len(source))) if len(source) > 1 else 0 for source in sources]
        train = Sides(sources, tuple(np.sort(order[cut:]) for order, cut in zip(orders, cuts, strict=True)))
        held = Sides(sources, tuple(np.sort(order[:cut]) for order, cut in zip(orders, cuts, strict=True)))
    for part, what in ((train, "training"), (held, "validation")):
        for source, rows in zip(part.sources, part.rows, strict=True):
            if not len(rows):
                raise InvalidInputError(f"{source.name} leaves no row for {what}, of {len(source)}: add rows.")
    return train, held


def epoch_batches(sides: Sides, batch_size: int, seed: int, epoch: int) -> list[tuple[Indices, Indices]]:
    """Return the batches of an epoch: every row once, both sides in every batch in the shares of the data."""
    rng = np.random.default_rng([seed, 1, epoch])
    steps = max(1, min(round(sum(sides.sizes) / batch_size), *sides.sizes))
    parts = [np.array_split(rng.permutation(rows), steps) for rows in sides.rows]
    # Of two sides that do not divide evenly, one gives its larger parts first and the other last.
    return list(zip(parts[0], parts[1][::-1], strict=True))


def step_seed(seed: int, epoch: int, step: int) -> int:
    """Return where the randomness of one step starts."""
    return int(np.random.SeedSequence([seed, 2, epoch, step]).generate_state(1, np.uint32)[0])
