# SPDX-License-Identifier: BSD-3-Clause
"""Checks of a fitted ratio without a single OOD label, as a dictionary and as a table for people.

Convention: the rows given are **held out** (not used to fit the ratio). ``rho = p_U / p_I = 1 - pi + pi g``; for the true
ratio E_U[1 / rho] = 1 and E_ID[g] = 1, and in every bin of rho the share of unlabeled rows is what rho says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from poscod._validation import Floats, check_count, check_number, check_weight
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError, warn_caller
from poscod.metrics import binomial_interval, share_interval
from poscod.ratio._moved import find_moved, moved_words
from poscod.ratio._prior import PRIORS, acceptance, scott
from poscod.ratio._ratio import Ratio
from poscod.ratio._rows import as_rows, columns_of
from poscod.ratio._training_rows import training_trace

FINDINGS = {
    "no_better_than_constant": "g does not tell the traffic from known inputs better than a constant would: either there is hardly anything "
    "unknown in it, or the features do not show it.",
    "inverse_rho_not_one": "The ratio g does not fit this traffic on average (a mean that should be 1 is not): its scale is off, or this "
    "traffic holds another share of unknown inputs than that seen at fit.",
    "unreliable_bins": "More than three in ten bins of g disagree with what was observed: the shape of g is off, or this "
    "traffic is another mixture than that seen at fit.",
    "prior_below_bound": "The estimated share of unknown inputs is below what is certain: known inputs of this traffic differ from the labeled rows, too "
    "(drift, another mix of classes), or the features do not tell all unknown inputs apart.",
    "few_ood_rows": "By the share seen at fit, fewer than 30 unknown inputs are expected in this traffic: estimates about them are rough.",
    "inputs_drifted": "Known inputs of this traffic seem to have moved, as drift does: what g calls OOD may be known inputs, and no OOD share is certain. "
    "Look at rejected rows, and label rows of today.",
    "drift_undecided": "This traffic differs in a way that unlabeled rows cannot tell: known inputs may have moved, or it holds OOD inputs near them. "
    "Look at rejected rows to settle it.",
    "class_mix_differs": "The ID part of this traffic has another class mix than the one that the rule serves: fit again with recent traffic.",
    "near_copies": "Labeled rows are near-copies of each other, and count for more than they are: give one of each, or their groups at fit.",
    "seen_by_classifier": "The labeled rows look like rows the classifier was trained on: use held-out rows, or the promise is void.",
    "maybe_seen_by_classifier": "The labeled rows may be rows the classifier was trained on, or the task is easy and the traffic holds OOD inputs near the known ones, which cannot be told: "
    "use rows that were certainly held out.",
    "strangers": "This traffic holds unknown inputs that stand out from the labeled rows; nothing else explains them.",
}
"""What each finding of `diagnose` means, in a sentence for people."""


class Bin(TypedDict):
    """One bin of rows with similar rho."""

    n_id: int
    n_unlabeled: int
    predicted: float
    observed: float
    low: float
    high: float


class Column(TypedDict):
    """A column that differs most between both sides, where inputs have moved, or may have."""

    column: str
    shift: float
    spread: float


class Diagnosis(TypedDict):
    """What `diagnose` returns; `findings` holds the names of checks that failed, and of what makes the traffic differ."""

    n_id: int
    n_unlabeled: int
    ood_prior: float
    ood_prior_interval: tuple[float, float]
    ood_prior_lower_bound: float
    log_loss: float
    log_loss_constant: float
    mean_inverse_rho: tuple[float, float]
    mean_ratio_id: tuple[float, float]
    reliability: list[Bin]
    expected_ood: float
    effective_ood: float
    flips: float
    moved: list[Column]
    findings: list[str]


def diagnose(
    ratio: Ratio,
    X_id: Any,
    X_unlabeled: Any,
    *,
    sample_weight_id: Any = None,
    n_bins: int = 10,
    level: float = 0.95,
) -> Diagnosis:
    """Check a fitted ratio on held-out ID and unlabeled rows.

    Parameters
    ----------
    ratio : Ratio
        Fitted estimator with an OOD prior in [0, 1].
    X_id, X_unlabeled : array-like or Activations
        Rows not used to fit the ratio; ID rows with labels allow one more check.
    sample_weight_id : array-like of shape (n,), default=None
        Weights of the ID rows, such as those with which they have the class mix that the ratio was fitted for.
    n_bins : int, default=10
        Bins of the reliability table.
    level : float in (0, 1), default=0.95
        Level of the intervals and of the findings.

    Returns
    -------
    diagnosis : dict
        ``log_loss`` of z (labeled or not) beside that of a constant; ``mean_inverse_rho`` and ``mean_ratio_id`` as (value, standard
        error), both 1 for the true ratio; ``reliability`` bins of p(z = U | x) with intervals; ``expected_ood`` and ``effective_ood``
        rows in the mixture; ``flips``, the share of unlabeled rows that change between "more likely OOD" and "more likely
        ID" when the prior moves within its interval; ``moved``, columns that differ most where inputs have moved or may have, with shifts in standard deviations
        of the ID rows and factors by which they spread wider; ``findings``, names of checks that failed and of what makes the traffic differ, "strangers" among them.

    Warns
    -----
    SeenByClassifierWarning
        Labeled ID rows show a trace of training: errors that cancel as they do where training ends, or hard rows of which the classifier is sure and
        hardly ever so in the traffic.

    Examples
    --------
    >>> import numpy as np
    >>> from poscod.ratio import CorrectedSigmoid
    >>> rng = np.random.default_rng(0)
    >>> def mixture(): return np.vstack([rng.normal(0, 1, (700, 2)), rng.normal(4, 1, (300, 2))])
    >>> est = CorrectedSigmoid().fit(rng.normal(0, 1, (1000, 2)), mixture())
    >>> diagnose(est, rng.normal(0, 1, (1000, 2)), mixture())["findings"]
    ['strangers']
    """
    return diagnose_rows(ratio, X_id, X_unlabeled, sample_weight_id, n_bins=n_bins, level=level)


def diagnose_rows(
    ratio: Ratio,
    X_id: Any,
    X_unlabeled: Any,
    sample_weight_id: Any = None,
    weight_now: Any = None,
    names: Sequence[str] | None = None,
    *,
    n_bins: int = 10,
    level: float = 0.95,
) -> Diagnosis:
    """Diagnose a ratio; where the class mix of these rows is known to be another than that of the fit, ID rows have it with other weights, by which drift is looked for."""
    check_count(n_bins, "n_bins", 2)
    check_number(level, "level", 0.0, 1.0, closed="neither")
    rows_id = as_rows(X_id, "X_id", minimum=2)
    rows_u = as_rows(X_unlabeled, "X_unlabeled", minimum=2, like=columns_of(rows_id))
    log_id, log_u = ratio.log_ratio(X_id), ratio.log_ratio(X_unlabeled)
    pi = ratio.ood_prior_
    if not 0.0 <= pi <= 1.0:
        raise InvalidInputError(f"ratio must estimate an OOD prior, got {type(ratio).__name__} with ood_prior_ = {pi}.")
    rho_id, rho_u = log_rho(log_id, pi), log_rho(log_u, pi)
    weight = check_weight(sample_weight_id, "sample_weight_id", len(rho_id), like="X_id")
    # Weights say what the ID rows stand for, not how many they are.
    own = np.ones(len(rho_id)) if weight is None else weight * (len(weight) / weight.sum())
    odds = float(np.log(len(rho_u) / len(rho_id)))
    p = expit(np.r_[rho_id, rho_u] + odds)
    z = np.repeat([False, True], [len(rho_id), len(rho_u)])
    mass = np.r_[own, np.ones(len(rho_u))]
    share = float(z.mean())
    posterior = expit(log_u + logit(pi)) if 0.0 < pi < 1.0 else np.full(len(log_u), pi)
    inverse = _mean(np.exp(-rho_u))
    with np.errstate(over="ignore", invalid="ignore"):
        mean_g = _mean(np.exp(np.minimum(log_id, 300.0)), own)
    interval = ratio.ood_prior_interval(level)
    bins = _reliability(p, z, None if weight is None else mass, n_bins, level)
    found: Diagnosis = {
        "n_id": len(rho_id),
        "n_unlabeled": len(rho_u),
        "ood_prior": pi,
        "ood_prior_interval": interval,
        "ood_prior_lower_bound": ratio.ood_prior_lower_bound(level),
        "log_loss": -float(np.average(np.log(np.where(z, p, 1.0 - p).clip(1e-300)), weights=mass)),
        "log_loss_constant": -float(share * np.log(share) + (1.0 - share) * np.log(1.0 - share)),
        "mean_inverse_rho": inverse,
        "mean_ratio_id": mean_g,
        "reliability": bins,
        "expected_ood": float(posterior.sum()),
        "effective_ood": float(posterior.sum() ** 2 / max(float(np.sum(posterior**2)), 1e-300)),
        "flips": _flips(log_u, pi, interval),
        "moved": [],
        "findings": [],
    }
    z_limit = float(norm.ppf(0.5 + 0.5 * level))
    findings = found["findings"]
    if found["log_loss"] >= found["log_loss_constant"] - 1e-12:  # a closed gate is a constant up to rounding
        findings.append("no_better_than_constant")
    # A model error below one percent of the mean is no finding, however many rows resolve it.
    if abs(inverse[0] - 1.0) > z_limit * inverse[1] + 0.01:
        findings.append("inverse_rho_not_one")
    outside = sum(not b["low"] <= b["predicted"] <= b["high"] for b in bins)
    if outside > 0.3 * len(bins):
        findings.append("unreliable_bins")
    curve = acceptance(log_id, log_u, weight)
    certain = scott(curve, delta=1.0 - level)
    bound = max(found["ood_prior_lower_bound"], certain)
    estimate: Any = getattr(ratio, "ood_prior_estimate_", pi)
    if estimate < bound:
        findings.append("prior_below_bound")
    if found["expected_ood"] < 30.0:
        findings.append("few_ood_rows")
    sides = Activations(rows_id.features, rows_id.logits), Activations(rows_u.features, rows_u.logits)
    labels, trace = rows_id.labels, None
    if rows_id.network and labels is not None and (labels >= 0).all():
        trace = training_trace(sides[0], labels, sides[1])
        if trace is not None:
            findings.append("seen_by_classifier" if trace.told else "maybe_seen_by_classifier")
            warn_caller(trace.warning("X_id"))
    now = weight if weight_now is None else weight_now
    # Of these rows, not of those of the fit; where neither showed any OOD rows it would be noise.
    share = float(PRIORS["mean"](curve)) if certain > 0.0 or pi > 0.0 else 0.0
    # Rows that the classifier has seen look moved, too.
    told = trace is not None and trace.told
    moved = None if told else find_moved(sides, (log_id, log_u), (now, None), None, share, certain)
    if moved is not None:
        findings.append({"drift": "inputs_drifted", "undecided": "drift_undecided"}[moved.said])
        found["moved"] = [
            {"column": f"column {j}" if names is None else names[j], "shift": shift, "spread": spread}
            for j, shift, spread in zip(moved.columns, moved.shift, moved.spread, strict=True)
        ]
    if (moved.strangers is True) if moved is not None else (certain > 0.0 and trace is None):
        findings.append("strangers")
    return found


def finding_words(found: Diagnosis) -> list[str]:
    """Return what a diagnosis found in sentences, with the columns that moved."""
    where = ", ".join(f"{c['column']} ({moved_words(c['shift'], c['spread'])})" for c in found["moved"])
    drift = f" Most of all {where}."
    return [
        FINDINGS[name] + drift * (name in ("inputs_drifted", "drift_undecided") and bool(where))
        for name in found["findings"]
    ]


def format_diagnosis(found: Diagnosis) -> str:
    """Return a diagnosis as a text table.

    Parameters
    ----------
    found : dict
        Result of `diagnose`.

    Returns
    -------
    text : str
    """
    low, high = found["ood_prior_interval"]
    bound, rho, mean_g = found["ood_prior_lower_bound"], found["mean_inverse_rho"], found["mean_ratio_id"]
    rows = [
        ("rows", f"{found['n_id']} ID, {found['n_unlabeled']} unlabeled"),
        ("OOD prior", f"{found['ood_prior']:.3f} in [{low:.3f}, {high:.3f}], certified >= {bound:.3f}"),
        ("log-loss of z", f"{found['log_loss']:.4f} (constant {found['log_loss_constant']:.4f})"),
        ("E_U[1 / rho]", f"{rho[0]:.3f} +- {rho[1]:.3f} (should be 1)"),
        ("E_ID[g]", f"{mean_g[0]:.3f} +- {mean_g[1]:.3f} (should be 1)"),
        ("OOD rows", f"{found['expected_ood']:.0f} expected, {found['effective_ood']:.0f} effective"),
        ("decisions that depend on the prior", f"{100 * found['flips']:.1f} %"),
        ("findings", ", ".join(found["findings"]) or "none"),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    lines += ["", "p(z = U)  predicted  observed  interval"]
    lines += [
        f"{i:8d}  {b['predicted']:9.3f}  {b['observed']:8.3f}  [{b['low']:.3f}, {b['high']:.3f}]"
        for i, b in enumerate(found["reliability"], start=1)
    ]
    return "\n".join(lines)


def log_rho(log_g: Floats, pi: float) -> Floats:
    """Return log(1 - pi + pi g)."""
    if pi == 0.0:
        return np.zeros(len(log_g))
    if pi == 1.0:
        return log_g
    return np.asarray(np.logaddexp(np.log1p(-pi), np.log(pi) + log_g))


def _mean(values: Floats, weight: Floats | None = None) -> tuple[float, float]:
    """Return a mean and its standard error."""
    if weight is None or (weight == 1.0).all():
        return float(values.mean()), float(values.std() / np.sqrt(len(values)))
    mean = float(np.average(values, weights=weight))
    return mean, float(np.sqrt(np.sum((weight * (values - mean)) ** 2)) / weight.sum())


def _reliability(p: Floats, z: Any, mass: Floats | None, n_bins: int, level: float) -> list[Bin]:
    """Return bins of about equal size in p(z = U | x) with exact intervals of the observed share; equal rows share a bin."""
    order = np.argsort(p, kind="stable")
    ends = np.cumsum([len(part) for part in np.array_split(order, n_bins)])
    cuts = np.unique(np.searchsorted(p[order], p[order[np.maximum(ends, 1) - 1]], side="right"))
    bins: list[Bin] = []
    for part in np.split(order, cuts[:-1]):
        k = int(z[part].sum())
        limits, predicted = binomial_interval(k, len(part), level=level), float(p[part].mean())
        if mass is not None:
            own = mass[part]
            total = float(own.sum())
            # Rows of unequal weight say as much as fewer equal ones.
            limits = share_interval(float(own[z[part]].sum()) / total, total**2 / float(own @ own), level=level)
            predicted = float(np.average(p[part], weights=own))
        bins.append(
            {
                "n_id": len(part) - k,
                "n_unlabeled": k,
                "predicted": predicted,
                "observed": limits.estimate,
                "low": limits.low,
                "high": limits.high,
            }
        )
    return bins


def _flips(log_g: Floats, pi: float, interval: tuple[float, float]) -> float:
    """Return the share of rows whose more likely side depends on where in its interval the prior lies."""
    if not 0.0 < pi < 1.0:
        return 0.0
    # The likelihood fixes pi g, not g: with another prior, log g moves by the opposite amount before the odds are taken.
    sides = []
    for other in interval:
        other = float(np.clip(other, 1e-6, 1.0 - 1e-6))
        sides.append(log_g + np.log(pi) - np.log1p(-other) > 0.0)
    return float(np.mean(sides[0] != sides[1]))
