# SPDX-License-Identifier: BSD-3-Clause
"""What the page needs to move the sliders itself: r, log g and loss of every row, and ranks that Python has chosen.

Convention: a slider moves over a list of positions made here, so that page and Python read the same numbers; for each tpr_min the
rank of the threshold among the calibration scores is given, not computed in the page. Arrays are little-endian float64 in base64.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

from poscod._comparison import Sample
from poscod._validation import Floats, check_count
from poscod.exceptions import InfeasibleProblemError
from poscod.metrics._counts import required, rounding_of
from poscod.selector import guaranteed_threshold
from poscod.selector._unlabeled import normal_quantile

SCALES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Factors of the loss that the page offers."""


def explorer_data(model: Any, sample: Sample, *, max_points: int | None) -> dict[str, Any]:
    """Return everything that the what-if explorer reads."""
    if max_points is not None:
        max_points = check_count(max_points, "max_points")
    arrays = sample.calibration
    targets = _with(tpr_positions(), model.tpr_min)
    groups = {"calibration": {"risk": arrays.risk, "log_ratio": arrays.log_ratio}}
    if arrays.weight is not None:
        groups["calibration"]["weight"] = arrays.weight
    for name, rows in sample.groups.items():
        groups[name] = {"risk": rows.risk, "log_ratio": rows.log_ratio}
    groups["id"]["loss"] = sample.loss
    return {
        "alpha": _slider(_with(np.arange(101) / 100.0, model.alpha), model.alpha),
        "tpr_min": _slider(targets, model.tpr_min),
        "scale": _slider(np.array(SCALES), 1.0),
        "rank": None if arrays.weight is not None else ranks(model, len(arrays.risk), targets),
        "floor": None if arrays.weight is None else floors(arrays.weight, targets),
        "prior": None if sample.prior is None else sample.prior,
        "z": normal_quantile(sample.level),
        "groups": {
            name: _embed(columns, None if name == "calibration" else max_points) for name, columns in groups.items()
        },
    }


def tpr_positions() -> Floats:
    """Return the required TPRs that the page offers: finer where it matters."""
    thousandths = [*range(10, 900, 10), *range(900, 990, 5), *range(990, 1001)]
    return np.array(thousandths) / 1000.0


def ranks(model: Any, m: int, targets: Floats) -> list[int | None]:
    """Return which order statistic of m calibration scores is the threshold at each required TPR."""
    if model.threshold != "guaranteed":
        return [max(1, math.ceil(required(m, target))) for target in targets.tolist()]
    found: list[int | None] = []
    places = np.arange(float(m))
    for target in targets.tolist():
        try:
            found.append(guaranteed_threshold(places, target, delta=model.delta).rank)
        except InfeasibleProblemError:
            found.append(None)
    return found


def floors(weight: Floats, targets: Floats) -> list[float]:
    """Return the weight that the accepted calibration rows must reach at each required TPR; at 1, all of it."""
    total = float(np.cumsum(weight)[-1])
    return [float(required(total, target, rounding_of(weight))) for target in targets.tolist()]


def _with(values: Floats, own: float) -> Floats:
    """Add the model's own value, so that the page can start from it."""
    return np.unique(np.append(values, own))


def _slider(positions: Floats, start: float) -> dict[str, Any]:
    return {"positions": positions, "start": int(np.flatnonzero(positions == start)[0])}


def _embed(columns: dict[str, Floats], limit: int | None) -> dict[str, Any]:
    rows = len(next(iter(columns.values())))
    step = 1 if limit is None or rows <= limit else -(-rows // limit)
    kept = {name: np.ascontiguousarray(values[::step], dtype="<f8") for name, values in columns.items()}
    return {
        "rows": rows,
        "embedded": len(next(iter(kept.values()))),
        **{name: base64.b64encode(values.tobytes()).decode("ascii") for name, values in kept.items()},
    }
