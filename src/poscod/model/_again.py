# SPDX-License-Identifier: BSD-3-Clause
"""Rows of a fit that come again: they are known by their content, of which the model keeps a number per row.

Convention: a model keeps numbers of at most `TRAFFIC_ROWS` rows of the traffic and as many labeled ones, so that of a longer table only some rows are known again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.model._parts import DISTINCT, Keys

# Share of the rows that may be rows of the fit by chance; of a log so long that few of its rows are kept, part of the kept ones that are found.
BY_CHANCE, MANY = 0.001, 0.5


def traffic_places(calibration: Any, keys: Keys, log_ratio: Floats) -> NDArray[np.int64]:
    """Return where each row stands among the traffic that a model keeps of its fit; -1 for rows that do not, and everywhere where hardly any does."""
    kept = calibration.traffic_keys
    if kept is None:  # models of earlier versions: a ratio of all rows gives the same log g again
        kept, keys = np.round(calibration.traffic_log_ratio, 9), np.round(log_ratio, 9)
    return _places(kept, keys)


def rows_before(kept: Keys | None, keys: Keys) -> int:
    """Return how many rows are among those of a fit; 0 where nothing is kept of them, or where they are often equal, so that content proves nothing."""
    if kept is None or len(np.unique(kept)) < DISTINCT * len(kept):
        return 0
    return int((_places(kept, keys) >= 0).sum())


def _places(kept: NDArray[Any], keys: NDArray[Any]) -> NDArray[np.int64]:
    if not len(kept):
        return np.full(len(keys), -1, dtype=np.int64)
    order = np.argsort(kept, kind="stable")
    at = order[np.minimum(np.searchsorted(kept[order], keys), len(kept) - 1)]
    found = kept[at] == keys
    return np.where(found & (found.sum() > min(BY_CHANCE * len(keys), MANY * len(kept))), at, -1)
