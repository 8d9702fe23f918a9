# SPDX-License-Identifier: BSD-3-Clause
"""Fitting and deciding beyond one memory, on Dask: the numbers of the library, whatever the chunks.

``fit``, ``decide``, ``write_decisions``, ``evaluate`` and ``evaluate_unlabeled`` are `POSCOD` on Dask arrays and frames; ``fit_ratio``,
``estimate_prior``, ``tpr_threshold``, ``guaranteed_threshold``, ``metric``, ``auroc`` and ``fpr_at_tpr`` are its parts. Every result is a
plain object of the library.
"""

from poscod.backends.dask._chunks import DaskActivations
from poscod.backends.dask._cluster import Cluster, ClusterError
from poscod.backends.dask._decide import decide, write_decisions
from poscod.backends.dask._evaluate import evaluate, evaluate_unlabeled
from poscod.backends.dask._fit import fit
from poscod.backends.dask._metrics import BoundedArea, auroc, fpr_at_tpr
from poscod.backends.dask._pieces import metric
from poscod.backends.dask._ratio import fit_ratio
from poscod.backends.dask._selector import estimate_prior, guaranteed_threshold, tpr_threshold

__all__ = [
    "BoundedArea",
    "Cluster",
    "ClusterError",
    "DaskActivations",
    "auroc",
    "decide",
    "estimate_prior",
    "evaluate",
    "evaluate_unlabeled",
    "fit",
    "fit_ratio",
    "fpr_at_tpr",
    "guaranteed_threshold",
    "metric",
    "tpr_threshold",
    "write_decisions",
]
