# SPDX-License-Identifier: BSD-3-Clause
"""Which decisions of a stream count where several belong to one session, user or original: one of each in a window.

Convention: groups are numbers that `poscod.ratio.group_keys` makes of names. What has counted is kept in memory, for as many windows as the monitor keeps, and not in
states: where a stream goes on in another process, a group that it cuts in two counts twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod.ratio import group_keys


class Groups:
    """Remembers which groups have counted in which window."""

    def __init__(self) -> None:
        self._seen: dict[int, set[int]] = {}
        self._rng = np.random.default_rng(0)

    def one_of_each(self, window: NDArray[Any], groups: Any, keep: int) -> NDArray[np.intp]:
        """Return the places of decisions that count: one of each group and window, drawn at random, if none has counted before."""
        keys = group_keys(groups, "groups", "decisions", len(window))
        if keys is None:
            return np.arange(len(window))
        chosen = []
        for row in self._rng.permutation(len(window)).tolist():
            seen = self._seen.setdefault(int(window[row]), set())
            if int(keys[row]) not in seen:
                seen.add(int(keys[row]))
                chosen.append(row)
        for old in sorted(self._seen)[:-keep]:
            del self._seen[old]
        return np.sort(np.array(chosen, dtype=np.intp))
