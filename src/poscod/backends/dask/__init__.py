# SPDX-License-Identifier: BSD-3-Clause
"""Fitting and deciding on more rows than fit in memory, on Dask: the numbers of the library, whatever the chunks.

``fit``, ``decide``, ``write_decisions``, ``evaluate`` and ``evaluate_unlabeled`` are `POSCOD` on Dask arrays and frames, a `DaskLog` is a log for `poscod.review`; ``fit_ratio`` is
one of its parts. They run on Dask's current client, or without one on threads of this process. Every result is a plain object of the library.
"""

from poscod.backends.dask._chunks import Chunks, DaskActivations, counted
from poscod.backends.dask._decide import decide, write_decisions, write_parquet
from poscod.backends.dask._evaluate import evaluate, evaluate_unlabeled, read_chunks
from poscod.backends.dask._fit import fit
from poscod.backends.dask._log import DaskLog
from poscod.backends.dask._passes import Passes
from poscod.backends.dask._ratio import fit_ratio

__all__ = [
    "DaskActivations",
    "DaskLog",
    "decide",
    "evaluate",
    "evaluate_unlabeled",
    "fit",
    "fit_ratio",
    "write_decisions",
]
