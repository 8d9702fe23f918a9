# SPDX-License-Identifier: BSD-3-Clause
"""One number to choose models by, without OOD labels: what `POSCOD.score` returns.

Convention: the share of traffic accepted bounds FPR whatever the OOD share is, so that models can be compared on any log.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import check_weight
from poscod.labels import marked_rows
from poscod.model._evaluate import judge, mix_for
from poscod.model._mix import mix_weights
from poscod.model._rows import n_rows, take
from poscod.problem import ScodProblem


def label_free_risk(model: Any, X: Any, y: NDArray[Any], sample_weight: Any) -> float:
    """Return a bound of the SCOD risk as one number to choose models by; marked rows are traffic."""
    mark = marked_rows(y)
    weight = check_weight(sample_weight, "sample_weight", n_rows(X), like="X")
    decisions, loss, codes = judge(model, take(X, np.flatnonzero(~mark)), y[~mark])
    known, traffic = (None, None) if weight is None else (weight[~mark], weight[mark])
    mix, problem = mix_for(model, "traffic"), model.rule_.problem
    if mix is not None:
        known = mix_weights(mix, codes, known)
    tpr = float(np.average(decisions.accept, weights=known))
    if tpr == 0.0:
        return float(problem.loss_matrix(len(model.classes_)).max())
    passed = model.decide(take(X, np.flatnonzero(mark))).accept if mark.any() else np.zeros(0)
    fpr = float(np.average(passed, weights=traffic)) if len(passed) else 0.0
    return ScodProblem(problem.alpha).risk(float(np.average(loss * decisions.accept, weights=known)) / tpr, fpr)
