# SPDX-License-Identifier: BSD-3-Clause
"""What the page needs to move the sliders itself: r, log g and loss of every row, and ranks that Python has chosen; in another class mix, also the class.

Convention: a slider moves over a list of positions made here, so that page and Python read the same numbers; for each tpr_min the
rank of the threshold among the calibration scores is given, not computed in the page. Arrays are little-endian float64 in base64.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from poscod._validation import Floats, check_count
from poscod.exceptions import InfeasibleProblemError
from poscod.metrics import required, rounding_of
from poscod.mix import ClassMix
from poscod.model import Sample, required_tpr
from poscod.plot import thin
from poscod.problem import ScodProblem
from poscod.selector import guaranteed_rank, normal_quantile, tpr_rank

SCALES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Factors of the loss that the page offers."""
TARGETS = np.array([*range(10, 900, 10), *range(900, 990, 5), *range(990, 1001)]) / 1000.0
"""Required TPRs that it offers: finer where it matters."""


def explorer_data(sample: Sample, *, max_points: int | None) -> dict[str, Any]:
    """Return everything that the what-if explorer reads."""
    if max_points is not None:
        max_points = check_count(max_points, "max_points")
    problem, rows, promise = sample.rule.problem, sample.calibration, sample.rule.promise
    known, weight = rows.standing(problem.loss)
    if sample.delta is not None:  # a guarantee counts rows
        known, weight = rows.known(problem.loss), rows.weight
    start = ScodProblem(problem.alpha, required_tpr(sample), problem.loss)
    slider = _slider(TARGETS, start.tpr_min)
    targets = slider["positions"]
    # Budgets, bounds and other problems have no place on the sliders, nor has a rule of more rows (a cluster's), of a shared guarantee or of a TPR of every
    # class.
    alone = promise is not None and promise.rules == 1 and promise.over == "all"
    own = problem == start and sample.rule.rows == len(known.risk) and alone
    parts: dict[str, Any] = {"calibration": known, **sample.groups}
    more = {"calibration": {} if weight is None else {"weight": weight}, "id": {"loss": sample.loss}}
    if sample.mix is not None and sample.codes is not None:
        more["id"]["class"] = np.asarray(sample.codes, dtype=np.float64)
    groups = {
        name: {"risk": part.risk, "log_ratio": part.log_ratio, **more.get(name, {})} for name, part in parts.items()
    }
    return {
        "own": own,
        "alpha": _slider(np.arange(101) / 100.0, start.alpha),
        "tpr_min": slider,
        "scale": _slider(np.array(SCALES), 1.0),
        "rank": None if weight is not None else [rank_of(len(known.risk), t, sample.delta) for t in targets.tolist()],
        "floor": None if weight is None else floors(weight, targets),
        "mix": None if sample.mix is None else _mix(sample.mix),
        "prior": sample.prior,
        "z": normal_quantile(sample.level),
        "groups": {
            name: _embed(columns, None if name == "calibration" else max_points) for name, columns in groups.items()
        },
    }


def rank_of(m: int, tpr_min: float, delta: float | None) -> int | None:
    """Return which order statistic of m calibration scores is the threshold at a required TPR; None where it cannot be promised."""
    try:
        return tpr_rank(m, tpr_min) if delta is None else guaranteed_rank(m, tpr_min, delta=delta)
    except InfeasibleProblemError:
        return None


def floors(weight: Floats, targets: Floats) -> list[float]:
    """Return the weight that the accepted calibration rows must reach at each required TPR; at 1, all of it."""
    total = float(np.cumsum(weight)[-1])
    return [float(required(total, target, rounding_of(weight))) for target in targets.tolist()]


def _mix(mix: ClassMix) -> dict[str, Any]:
    """Return the shares of the classes that rates are for, and the covariance of these shares."""
    return {
        "share": mix.traffic,
        "covariance": None if mix.covariance is None else _text(mix.covariance.ravel()),
    }


def _slider(values: Floats, start: float) -> dict[str, Any]:
    """Return positions of a slider, the model's own value among them, so that the page can start from it."""
    positions = np.unique(np.append(values, start))
    return {"positions": positions, "start": int(np.flatnonzero(positions == start)[0])}


def _embed(columns: dict[str, Floats], limit: int | None) -> dict[str, Any]:
    rows = len(next(iter(columns.values())))
    kept = {name: values[thin(rows, limit)] for name, values in columns.items()}
    return {
        "rows": rows,
        "embedded": len(next(iter(kept.values()))),
        **{name: _text(values) for name, values in kept.items()},
    }


def _text(values: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode("ascii")
