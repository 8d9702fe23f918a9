# SPDX-License-Identifier: BSD-3-Clause
"""Drift or strangers: whether what the ratio calls OOD is a part of the traffic where ID is rare, or the whole traffic, moved.

Convention: unlabeled rows alone cannot prove either. Strangers are strange: rows that the ratio takes for OOD lie where few labeled rows do. Moved inputs lie where labeled rows
lie, and a smooth tilt of all columns inside the range of labeled rows explains the traffic about as well as strangers do. Scores are out of sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import clone

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.decision import rejection_score
from poscod.exceptions import InvalidInputError, PoscodWarning, warn_caller
from poscod.metrics import auroc
from poscod.model._scorer import names_of
from poscod.ratio import Ratio, log_rho, quick_ratio
from poscod.selector import NAMED, Calibration, Drift, tpr_threshold

ON_DRIFT = {
    "warn": "Or fit with {parameter}='id_only', which learns nothing from this traffic.",
    "id_only": "Nothing was learned from this traffic ({parameter}='id_only').",
    "raise": "",
}
"""What is done about drift, and what is said beside it."""
# AUROC of log g between labeled rows and what it takes for OOD, from which on strangers are strange whatever else is there.
STRANGE = 0.85
# Share of the ratio's gain in likelihood that a tilt must reach to be another explanation.
EXPLAINED = 0.82
# With fewer rows of a side, or fewer columns, strangers near the labeled rows and moved inputs look alike, and nothing is said.
LEAST_ROWS, LEAST_COLUMNS = 500, 5
# Certified OOD share above which the traffic is called another one, not a mixture: most of it is not like the labeled rows.
MOST = 0.55
# And above which it is so whatever a tilt explains: hardly anything of it is like the labeled rows.
NEARLY_ALL = 0.8
# No row counts for more than this in the likelihood: one cell far away would else decide.
LARGEST_LOSS = 4.0
# Rows of a side, and columns, that a tilt is fitted on; its penalties; and the range that it sees.
ROWS, COLUMNS, PENALTIES, RANGE = 4000, 400, (1e-3, 1e-2, 1e-1), (0.005, 0.995)
# Labeled rows stand for moved ones with weights of a tilt no larger than this.
LARGEST_WEIGHT = 20.0
# Level at which no gate opens: its test has no smaller p-values than a few thousandths.
NEVER = 1e-9


class InputsDriftedWarning(PoscodWarning):
    """Known inputs of the traffic seem to have moved: what rests on their stillness does not hold."""


class InputsDriftedError(InvalidInputError):
    """The same, where the model was told not to be fitted then."""


def find_drift(
    views: tuple[Activations, Activations],
    log_ratios: tuple[Floats, Floats],
    weights: tuple[Floats | None, Floats | None],
    folds: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    ratio: Ratio,
    names: Sequence[str],
) -> Drift | None:
    """Return what moved, or None where nothing shows that known inputs did.

    Parameters
    ----------
    views : tuple of Activations
        What the ratio saw of labeled and unlabeled rows: their features are compared.
    log_ratios : tuple of ndarray
        log g of both, by parts that have not seen the row.
    weights : tuple of ndarray or None
        Weights with which labeled rows have the class mix of the traffic, and those of the traffic.
    folds : tuple of ndarray or None
        Folds of both, if there are any.
    ratio : Ratio
        What was fitted.
    names : sequence of str
        Names of the columns.

    Returns
    -------
    drift : Drift or None
    """
    pi, certified = float(ratio.ood_prior_), float(ratio.ood_prior_lower_bound(0.95))
    if not pi > 0.0:
        return None
    own, other = (
        np.ones(len(v)) if w is None else w * (len(w) / w.sum()) for v, w in zip(log_ratios, weights, strict=True)
    )
    whole = certified > MOST
    if not whole and strangeness(log_ratios, own, _p_ood(log_ratios[1], pi) * other) >= STRANGE:
        return None
    known, traffic = (np.asarray(view.features, dtype=np.float64) for view in views)
    tilt = _Tilt(known, traffic, own, other, folds)
    learned = log_rho(log_ratios[0], pi), log_rho(log_ratios[1], pi)
    if certified < NEARLY_ALL and tilt.gain < EXPLAINED * tilt.gain_of(learned):
        return None
    left = _strangers_left(tilt, views, own, other, folds)
    return Drift(*_columns(known, traffic, own, other, names), 0.0, 0.0, whole, left)


def drift_of(
    X: Any,
    classifier: Any,
    transforms: bool,
    views: tuple[Activations, Activations | None],
    log_ratios: tuple[Floats, Floats],
    weights: tuple[Floats | None, Floats | None],
    folds: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    ratio: Any,
) -> Drift | None:
    """Return what moved between rows as a fit sees them; only the strong recipe is asked, with enough rows and columns of numbers."""
    known, traffic = views
    if not isinstance(ratio, Ratio) or traffic is None or known.features is None or traffic.features is None:
        return None
    width = known.features.shape[1]
    if (
        getattr(ratio, "recipe", None) != "strong"
        or width < LEAST_COLUMNS
        or min(len(known), len(traffic)) < LEAST_ROWS
    ):
        return None
    made = names_of(classifier) if transforms else [str(name) for name in getattr(X, "columns", ())]
    word = "feature" if isinstance(X, Activations) else "column"
    names = made if made is not None and len(made) == width else [f"{word} {j}" for j in range(width)]
    found = find_drift((known, traffic), log_ratios, weights, folds, ratio, names)
    ratio.moved_ = found is not None
    return found


def settled(calibration: Calibration, rule: Any) -> tuple[Calibration, Drift]:
    """Return a calibration, and its drift, which says what the rejections of the traffic rest on: how many a rule that looks at the risk alone would accept."""
    assert calibration.drift is not None
    known, traffic = calibration.known(rule.problem.loss), calibration.traffic(rule.problem.loss)
    rejected = rejection_score(traffic.risk, traffic.log_ratio, rule.slope) > rule.threshold
    if not rejected.any():
        return calibration, calibration.drift
    alone = tpr_threshold(known.risk, rule.problem.tpr_min or 0.95, weight=calibration.row_weight).threshold
    drift = replace(
        calibration.drift,
        rejections=float((traffic.risk[rejected] <= alone).mean()),
        strange=float(_p_ood(traffic.log_ratio[rejected], calibration.ood_prior).mean()),
    )
    return replace(calibration, drift=drift), drift


def strangeness(log_ratios: tuple[Floats, Floats], weight: Floats, ood: Floats) -> float:
    """Return the AUROC of log g between labeled rows and the OOD part of the traffic, in which rows count by p(O | x)."""
    return float(auroc(*log_ratios, weight_id=weight, weight_ood=np.maximum(ood, 1e-12)))


class _Tilt:
    """log p_U / p_I as a sum over columns and their squares, inside the range of labeled rows, out of sample."""

    def __init__(self, known: NDArray[Any], traffic: NDArray[Any], own: Floats, other: Floats, folds: Any) -> None:
        self.at = tuple(np.arange(0, len(side), max(1, -(-len(side) // ROWS))) for side in (known, traffic))
        columns = np.arange(0, known.shape[1], max(1, -(-known.shape[1] // COLUMNS)))
        parts = [side[np.ix_(at, columns)] for side, at in zip((known, traffic), self.at, strict=True)]
        weight = [w[at] / w[at].sum() for w, at in zip((own, other), self.at, strict=True)]
        low, high = np.quantile(parts[0], RANGE, axis=0)
        x = np.clip(np.concatenate(parts), low, high)
        x -= x.mean(axis=0)
        x /= np.maximum(x.std(axis=0), 1e-12)
        x = np.concatenate([x, x**2], axis=1)
        x -= x.mean(axis=0)
        x /= np.maximum(x.std(axis=0), 1e-12)
        self.weight, self.n = np.concatenate(weight), len(parts[0])
        self.side = np.repeat([-0.5, 0.5], [len(part) for part in parts])
        fold = (
            np.arange(len(x)) % 5
            if folds is None
            else np.concatenate([f[at] for f, at in zip(folds, self.at, strict=True)])
        )
        best, self.log_odds = -np.inf, np.zeros(len(x))
        for values in self._scores(x, fold):
            logit = self._calibrated(values)
            gain = self._gain(logit)
            if gain > best:
                best, self.log_odds = gain, logit
        self.gain = best

    def _scores(self, x: Floats, fold: NDArray[Any]) -> Any:
        """Yield least-squares scores of each row by the other folds, one for each penalty."""
        scaled = x * self.weight[:, None]
        gram, moment = x.T @ scaled, scaled.T @ self.side
        out = np.empty((len(PENALTIES), len(x)))
        for k in np.unique(fold):
            inside = fold == k
            values, vectors = np.linalg.eigh(gram - x[inside].T @ scaled[inside])
            along = vectors.T @ (moment - scaled[inside].T @ self.side[inside])
            turned = x[inside] @ vectors
            for j, penalty in enumerate(PENALTIES):
                out[j, inside] = turned @ (along / (np.maximum(values, 0.0) + 2.0 * penalty))
        return out

    def _calibrated(self, score: Floats) -> Floats:
        """Return log p_U / p_I as a line in a score, of the largest likelihood."""
        design = np.stack([np.ones(len(score)), score / max(float(score.std()), 1e-12)], axis=1)
        line = np.zeros(2)
        for _ in range(25):
            p = expit(design @ line)
            slope = design.T @ (self.weight * ((self.side > 0.0) - p))
            curve = (design * (self.weight * p * (1.0 - p))[:, None]).T @ design + 1e-9 * np.eye(2)
            line = line + np.clip(np.linalg.solve(curve, slope), -2.0, 2.0)
        return np.asarray(design @ line)

    def _gain(self, log_odds: Floats) -> float:
        """Return the mean gain in log-likelihood over "nothing differs"; no row counts for too much."""
        own = np.log(2.0) - np.logaddexp(0.0, np.where(self.side > 0.0, -log_odds, log_odds))
        return float(self.weight @ np.maximum(own, -LARGEST_LOSS))

    def gain_of(self, log_rho: tuple[Floats, Floats]) -> float:
        """Return the same for log p_U / p_I of all rows of both sides."""
        return self._gain(np.concatenate([values[at] for values, at in zip(log_rho, self.at, strict=True)]))


def _strangers_left(
    tilt: _Tilt, views: tuple[Activations, Activations], own: Floats, other: Floats, folds: Any
) -> bool:
    """Tell whether labeled rows that are weighted like the moved ones still leave strangers."""
    at = tilt.at
    weight = own[at[0]] * np.minimum(np.exp(tilt.log_odds[: tilt.n]), LARGEST_WEIGHT)
    part = None if folds is None else (folds[0][at[0]], folds[1][at[1]])
    found = quick_ratio(views[0][at[0]], views[1][at[1]], weight / weight.mean(), other[at[1]], part)
    if found is None or not found.pi > 0.0:
        return False
    left = _p_ood(found.traffic, found.pi)
    return strangeness((found.known, found.traffic), weight, left * other[at[1]]) >= STRANGE


def _p_ood(log_ratio: Floats, pi: float) -> Floats:
    """Return p(O | x) in traffic with a share pi of OOD rows."""
    return np.asarray(expit(log_ratio + logit(pi)))


def _columns(
    known: NDArray[Any], traffic: NDArray[Any], own: Floats, other: Floats, names: Sequence[str]
) -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]:
    """Return the columns whose distributions lie farthest apart, with shifts and spreads."""
    moved = []
    for j in range(known.shape[1]):
        a, b = known[:, j], traffic[:, j]
        both = np.concatenate([a, b])
        order = np.argsort(both, kind="stable")
        step = np.concatenate([own / own.sum(), -other / other.sum()])[order]
        last = np.append(np.diff(both[order]) > 0.0, True)
        moved.append(float(np.abs(np.cumsum(step)[last]).max()))
    first = [j for j in np.argsort(-np.array(moved), kind="stable")[:NAMED].tolist() if moved[j] >= 0.5 * max(moved)]
    shift, spread = [], []
    for j in first:
        a, b = known[:, j], traffic[:, j]
        scale = max(float(np.std(a)), 1e-12)
        shift.append(
            float(np.mean(np.clip(b, *np.quantile(b, RANGE))) - np.mean(np.clip(a, *np.quantile(a, RANGE)))) / scale
        )
        width = [float(np.subtract(*np.quantile(values, (0.84, 0.16)))) for values in (a, b)]
        spread.append(width[1] / width[0] if min(width) > 0.0 else 1.0)
    return tuple(names[j] for j in first), tuple(shift), tuple(spread)


def tell(drift: Drift, on_drift: str) -> None:
    """Warn, or refuse; what verdicts have settled is only told."""
    if drift.verdicts:
        warn_caller(InputsDriftedWarning("{sentence}", sentence=drift.sentence()))
        return
    if on_drift == "raise":
        raise InputsDriftedError("{sentence}", sentence=drift.sentence(), drift=drift)
    warn_caller(
        InputsDriftedWarning("{sentence} " + ON_DRIFT[on_drift], sentence=drift.sentence(), parameter="on_drift")
    )


def drift_document(model: Any) -> dict[str, Any] | None:
    """Return what is known of inputs that moved as plain values: `Drift.to_dict`, the same for shell, report, service and ONNX metadata; None where nothing is."""
    drift = model.calibration_.drift
    return None if drift is None else named(drift, model.schema_.features).to_dict()


def named(drift: Drift, names: Sequence[str]) -> Drift:
    """Return drift of numbered columns with the names that a table has for them."""
    known = {f"column {j}": str(name) for j, name in enumerate(names)}
    return replace(drift, columns=tuple(known.get(column, column) for column in drift.columns))


def closed(ratio: Any) -> Any:
    """Return a ratio that learns nothing from the traffic: the ID-only rule where it has one, or none."""
    if "gate_level" not in ratio.get_params() or getattr(ratio, "recipe", None) != "strong":
        return None
    return clone(ratio).set_params(gate_level=NEVER, ood_prior=None)
