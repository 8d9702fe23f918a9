# SPDX-License-Identifier: BSD-3-Clause
"""What is done about inputs that have moved, or may have: the fit asks `poscod.ratio`, everybody tells it by one document.

Convention: what rests on stillness is withdrawn in either case; only the words differ. Scores are out of sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.decision import rejection_score
from poscod.exceptions import InvalidInputError, PoscodWarning, warn_caller
from poscod.model._scorer import names_of
from poscod.ratio import PART, Ratio, find_moved, one_of_each, p_ood, row_hash
from poscod.selector import Calibration, Drift, tpr_threshold

ON_DRIFT = {
    "warn": "Or fit with {parameter}='id_only', which learns nothing from this traffic.",
    "id_only": "Nothing was learned from this traffic ({parameter}='id_only').",
    "raise": "",
}
"""What is done about drift, and what is said beside it."""
# Level at which no gate opens: its test has no smaller p-values than a few thousandths.
NEVER = 1e-9


class InputsDriftedWarning(PoscodWarning):
    """Known inputs of the traffic have moved, or cannot be told from strangers (``facts["said"]``): what rests on their stillness does not hold."""


class InputsDriftedError(InvalidInputError):
    """The same, where the model was told not to be fitted then."""


def drift_of(
    X: Any,
    classifier: Any,
    transforms: bool,
    views: tuple[Activations, Activations | None],
    log_ratios: tuple[Floats, Floats],
    weights: tuple[Floats | None, Floats | None],
    folds: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    groups: tuple[Any, Any],
    ratio: Any,
) -> Drift | None:
    """Return what moved between rows as a fit sees them; of a group one row is looked at, and only the strong recipe is asked."""
    known, traffic = views
    if traffic is None or not looks_at(ratio):
        return None
    pi = float(ratio.ood_prior_)
    at = [_one_of_each(view, group) for view, group in zip((known, traffic), groups, strict=True)]
    sides = known[at[0]], traffic[at[1]]
    found = find_moved(
        sides,
        (log_ratios[0][at[0]], log_ratios[1][at[1]]),
        tuple(None if w is None else w[i] for w, i in zip(weights, at, strict=True)),  # type: ignore[arg-type]
        None if folds is None else (folds[0][at[0]], folds[1][at[1]]),
        pi,
        float(ratio.ood_prior_lower_bound(0.95)),
    )
    ratio.moved_ = found is not None
    if found is None:
        return None
    names = column_names(X, classifier, transforms, known)
    return Drift(
        found.said,
        tuple(names[j] for j in found.columns),
        found.shift,
        found.spread,
        0.0,
        0.0,
        found.whole,
        found.strangers,
    )


def looks_at(ratio: Any) -> bool:
    """Tell whether drift is looked for beside a fitted ratio: the strong recipe, where it found OOD rows; who says that most of the traffic is OOD has looked."""
    if not isinstance(ratio, Ratio) or getattr(ratio, "recipe", None) != "strong":
        return False
    given = getattr(ratio, "ood_prior", None)
    return float(ratio.ood_prior_) > 0.0 and not (given is not None and given > PART)


def _one_of_each(rows: Activations, group: Any) -> NDArray[np.intp]:
    if group is None:
        return np.arange(len(rows))
    return one_of_each(group, row_hash(np.asarray(rows.logits), 0))


def column_names(X: Any, classifier: Any, transforms: bool, seen: Activations) -> Sequence[str]:
    """Return names of what is compared: columns as they are or as a pipeline makes them, features of a network, or its logits."""
    if seen.features is None:
        return [f"logit {j}" for j in range(seen.n_classes or 0)]
    width = seen.features.shape[1]
    made = names_of(classifier) if transforms else [str(name) for name in getattr(X, "columns", ())]
    word = "feature" if isinstance(X, Activations) else "column"
    return made if made is not None and len(made) == width else [f"{word} {j}" for j in range(width)]


def settled(calibration: Calibration, rule: Any) -> tuple[Calibration, Drift]:
    """Return a calibration, and its drift, which says what the rejections of the traffic rest on: how many a rule that looks at the risk alone would accept."""
    assert calibration.drift is not None
    (known, weight), traffic = calibration.standing(rule.problem.loss), calibration.traffic(rule.problem.loss)
    rejected = rejection_score(traffic.risk, traffic.log_ratio, rule.slope) > rule.threshold
    if not rejected.any():
        return calibration, calibration.drift
    alone = tpr_threshold(known.risk, rule.problem.tpr_min or 0.95, weight=weight).threshold
    drift = replace(
        calibration.drift,
        rejections=float((traffic.risk[rejected] <= alone).mean()),
        strange=float(p_ood(traffic.log_ratio[rejected], calibration.ood_prior).mean()),
    )
    return replace(calibration, drift=drift), drift


def tell(drift: Drift, on_drift: str) -> None:
    """Warn, or refuse; what verdicts have settled is only told."""
    if drift.verdicts:
        warn_caller(InputsDriftedWarning("{sentence}", sentence=drift.sentence()))
        return
    if on_drift == "raise":
        raise InputsDriftedError("{sentence}", sentence=drift.sentence(), drift=drift)
    warn_caller(
        InputsDriftedWarning(
            "{sentence} " + ON_DRIFT[on_drift], sentence=drift.sentence(), parameter="on_drift", said=drift.said
        )
    )


def drift_document(model: Any) -> dict[str, Any] | None:
    """Return what is known of inputs that moved as plain values: `Drift.to_dict`, the same for shell, report, service and ONNX metadata; None where nothing is."""
    drift = model.calibration_.drift
    return None if drift is None else named(drift, model.schema_.numbers).to_dict()


def named(drift: Drift, names: Sequence[str]) -> Drift:
    """Return drift of numbered columns with the names that a table has for them."""
    return replace(drift, columns=tuple(named_columns(drift.columns, names)))


def named_columns(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return numbered columns by the names that a table has for them."""
    known = {f"column {j}": str(name) for j, name in enumerate(names)}
    return [known.get(column, column) for column in columns]


def closed(ratio: Any) -> Any:
    """Return a ratio that learns nothing from the traffic: the ID-only rule where it has one, or none."""
    if "gate_level" not in ratio.get_params() or getattr(ratio, "recipe", None) != "strong":
        return None
    return clone(ratio).set_params(gate_level=NEVER, ood_prior=None)
