# SPDX-License-Identifier: BSD-3-Clause
"""SCOD risk against the required TPR for a strategy that joins two scores: plug-in and tuned.

Convention: arrays are s1 and s2 of ID rows, the ID losses, then s1 and s2 of OOD rows, all uncertainties. A curve has the
value 0 at t = 0 and trapezoid area; at t > 0 the threshold has the smallest reachable TPR >= t (plug-in) or any TPR >= t
(tuned). A tuned curve without ``tune=`` has chosen its parameters on the rows it is measured on: it is a bound, not a
result, and says so in ``Curve.kind``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils.parallel import Parallel, delayed

from poscod._validation import Floats, check_choice, check_number, check_vector
from poscod.exceptions import InvalidInputError, warn_caller
from poscod.metrics import Counts, rank, required
from poscod.strategies._family import STRATEGIES, Pair, Setting, Strategy

_BATCH = 16  # settings per task: long enough to hide the hand-over, short enough to keep all cores busy to the end


@dataclass(frozen=True, eq=False)
class Curve:
    """SCOD risk of a strategy at required TPRs.

    Attributes
    ----------
    tpr : ndarray of shape (t,)
        Required TPRs.
    risk : ndarray of shape (t,)
        (1 - alpha) R_S + alpha FPR; 0 at tpr = 0.
    kind : str
        "plug-in", "plug-in (a, b from the measured rows)", "tuned in-sample (bound)" or "tuned on a separate split".
    threshold : ndarray of shape (t,)
        Threshold of the combined score; NaN at tpr = 0.
    setting : tuple of dict
        Parameters of the strategy at each required TPR.
    achieved_tpr : ndarray of shape (t,)
        TPR on the measured rows; it may fall below the required one only when threshold and setting come from a
        separate split. Look at `shortfall` before you compare areas.
    """

    tpr: Floats
    risk: Floats
    kind: str
    threshold: Floats
    setting: tuple[Setting, ...]
    achieved_tpr: Floats

    @property
    def shortfall(self) -> float:
        """Largest amount by which the achieved TPR falls below the required one; its risk is not comparable then."""
        return float(np.max(self.tpr - self.achieved_tpr, initial=0.0))

    @property
    def area(self) -> float:
        """Area under the curve by the trapezoid rule; NaN where some rule accepts no measured ID row."""
        return float(np.diff(self.tpr) @ (self.risk[1:] + self.risk[:-1])) / 2.0


Indices = NDArray[np.intp]


class _Sample(NamedTuple):
    """Checked rows, prepared for one strategy."""

    family: Strategy
    id_: Pair
    loss: Floats
    ood: Pair

    def counts(self, setting: Setting) -> Counts:
        """Score, sort and count at one setting."""
        score_id, score_ood = (self.family.combine(pair, **setting) for pair in (self.id_, self.ood))
        return rank(score_id, score_ood, order_ood=False).counts(self.loss)


def plugin_curve(
    strategy: str,
    s1_id: Any,
    s2_id: Any,
    loss_id: Any,
    s1_ood: Any,
    s2_ood: Any,
    *,
    alpha: float = 0.5,
    tpr: Any = None,
    s2_reference: Any = None,
) -> Curve:
    """Measure a strategy with the parameters its theory prescribes.

    Parameters
    ----------
    strategy : {"linear", "product", "sirc"}
        "linear" uses the slope of Theorem 2, which depends on the required TPR, so the rows are scored anew at each.
    s1_id, s2_id : array-like of shape (m,)
        Two uncertainties of the ID rows, e.g. conditional risk r and likelihood ratio g.
    loss_id : array-like of shape (m,)
        Loss of the classifier on the ID rows.
    s1_ood, s2_ood : array-like of shape (n,)
        The same uncertainties of the OOD rows.
    alpha : float in [0, 1], default=0.5
        Relative cost of accepting an OOD input.
    tpr : array-like, default=None
        Increasing required TPRs in [0, 1]; None is 0, 0.01, ..., 1.
    s2_reference : array-like, default=None
        Second score of ID rows that are not measured, from which SIRC takes its location and scale; None takes s2_id.

    Returns
    -------
    curve : Curve

    Examples
    --------
    >>> curve = plugin_curve("linear", [0.1, 0.2], [0.1, 0.5], [0, 1], [0.3], [2.0], alpha=0.25)
    >>> round(curve.area, 6)
    0.185625
    """
    sample = _sample(strategy, s1_id, s2_id, loss_id, s1_ood, s2_ood)
    alpha = check_number(alpha, "alpha", 0.0, 1.0)
    targets = _check_targets(tpr)
    reference = sample.id_.s2 if s2_reference is None else check_vector(s2_reference, "s2_reference")
    settings = tuple(sample.family.plugin(reference, alpha, float(t)) for t in targets)
    result = _Points(targets, alpha)
    # A strategy whose setting does not depend on t is sorted once.
    for setting in {tuple(setting.items()): setting for setting in settings}.values():
        of = np.flatnonzero([other == setting for other in settings])
        counts = sample.counts(setting)
        result.take(of, counts, _first_reaching(counts, required(1.0, targets[of])))
    on_measured = sample.family.needs_reference and s2_reference is None
    return result.curve("plug-in (a, b from the measured rows)" if on_measured else "plug-in", settings)


def tuned_curve(
    strategy: str,
    s1_id: Any,
    s2_id: Any,
    loss_id: Any,
    s1_ood: Any,
    s2_ood: Any,
    *,
    alpha: float = 0.5,
    tpr: Any = None,
    grid: str = "paper",
    tune: Any = None,
    n_jobs: int | None = None,
) -> Curve:
    """Measure a strategy with the best parameters of a grid at each required TPR.

    Parameters
    ----------
    strategy : {"linear", "product", "sirc"}
        How the two scores become one.
    s1_id, s2_id : array-like of shape (m,)
        Two uncertainties of the ID rows, e.g. conditional risk r and likelihood ratio g.
    loss_id : array-like of shape (m,)
        Loss of the classifier on the ID rows.
    s1_ood, s2_ood : array-like of shape (n,)
        The same uncertainties of the OOD rows.
    alpha : float in [0, 1], default=0.5
        Relative cost of accepting an OOD input.
    tpr : array-like, default=None
        Increasing required TPRs in [0, 1]; None is 0, 0.01, ..., 1.
    grid : {"paper", "reference"}, default="paper"
        "paper": 1603 angles on [0, 2 pi], 41 x 41 pairs (a, b). "reference": 1601 angles on [0, pi/2], 40 x 40 pairs, and
        TPR compared with the targets as floating-point numbers, which reproduces the authors' results to the last digit.
    tune : sequence of five arrays, default=None
        s1_id, s2_id, loss_id, s1_ood, s2_ood of other rows on which setting **and** threshold are chosen; then nothing
        is chosen on the measured rows. None tunes on the measured rows themselves, which bounds what tuning can reach.
    n_jobs : int or None, default=None
        Threads over settings; None is one, -1 all cores.

    Returns
    -------
    curve : Curve

    Notes
    -----
    Exact: for every setting the rows are sorted and the minimum over **all** thresholds with TPR >= t is taken. Memory
    is a few arrays of m + n numbers per thread, whatever the size of the grid.

    Examples
    --------
    >>> arrays = ([0.1, 0.2], [0.1, 0.5], [0, 1], [0.3], [2.0])
    >>> curve = tuned_curve("linear", *arrays, alpha=0.25)
    >>> round(curve.area, 6), curve.kind
    (0.185625, 'tuned in-sample (bound)')
    """
    measured = _sample(strategy, s1_id, s2_id, loss_id, s1_ood, s2_ood)
    alpha = check_number(alpha, "alpha", 0.0, 1.0)
    targets = _check_targets(tpr)
    if tune is not None and len(tune) != 5:
        raise InvalidInputError(
            f"tune must hold the five arrays s1_id, s2_id, loss_id, s1_ood, s2_ood of the tuning rows, got {len(tune)}."
        )
    tuned = measured if tune is None else _sample(strategy, *tune)
    settings = check_choice(grid, "grid", tuned.family.grids)(tuned.id_.s2)
    floors = _floors(targets, grid)
    winner = _sweep(tuned, settings, (alpha,), floors, n_jobs)[1][0]
    result = _Points(targets, alpha)
    for index in np.unique(winner):
        of = np.flatnonzero(winner == index)
        counts = tuned.counts(settings[index])
        risk = counts.scod_risk(alpha)
        starts = _first_reaching(counts, floors[of])
        best = np.array([start + int(np.argmin(risk[start:])) for start in starts], dtype=np.intp)
        thresholds = counts.threshold[best]
        if tune is not None:
            counts = measured.counts(settings[index])
            best = np.searchsorted(counts.threshold, thresholds, side="right") - 1
        result.take(of, counts, best, thresholds)
    kind = "tuned in-sample (bound)" if tune is None else "tuned on a separate split"
    return result.curve(kind, tuple(settings[i] for i in winner))


def tuned_areas(
    strategy: str,
    s1_id: Any,
    s2_id: Any,
    loss_id: Any,
    s1_ood: Any,
    s2_ood: Any,
    *,
    alphas: Any,
    grid: str = "paper",
    s2_reference: Any = None,
) -> Floats:
    """Return the areas of the curves that `tuned_curve` tunes in-sample, for several relative costs at the price of one.

    The order of the rows at one setting does not depend on alpha, so every setting is sorted once for all costs. The grid of SIRC lies
    around the heuristic setting of s2_reference, as in `plugin_curve`.

    Examples
    --------
    >>> arrays = ([0.1, 0.2], [0.1, 0.5], [0, 1], [0.3], [2.0])
    >>> tuned_areas("linear", *arrays, alphas=[0.25, 0.5]).round(6)
    array([0.185625, 0.12375 ])
    """
    sample = _sample(strategy, s1_id, s2_id, loss_id, s1_ood, s2_ood)
    costs = tuple(check_number(a, "alphas", 0.0, 1.0) for a in alphas)
    reference = sample.id_.s2 if s2_reference is None else check_vector(s2_reference, "s2_reference")
    settings = check_choice(grid, "grid", sample.family.grids)(reference)
    targets = _check_targets(None)
    risk, _ = _sweep(sample, settings, costs, _floors(targets, grid), None)
    risk[:, targets == 0.0] = 0.0
    return np.asarray((risk[:, 1:] + risk[:, :-1]) @ np.diff(targets) / 2.0)


class _Points:
    """Collects risk, threshold and TPR at the targets."""

    def __init__(self, targets: Floats, alpha: float) -> None:
        self.targets, self.alpha = targets, alpha
        self.risk, self.tpr = np.zeros(len(targets)), np.zeros(len(targets))
        self.threshold = np.full(len(targets), np.nan)

    def take(self, of: Indices, counts: Counts, index: Indices, thresholds: Floats | None = None) -> None:
        """Read the counts at the given positions for some targets; position -1 accepts nothing."""
        tpr, risk = counts.tpr[index], counts.scod_risk(self.alpha)[index]
        some = (index >= 0) & (tpr > 0)
        nonzero = self.targets[of] > 0
        if (nonzero & ~some).any():
            message = (
                f"At {int((nonzero & ~some).sum())} required TPRs the rule tuned elsewhere accepts no measured ID row: the risk "
                "there is undefined and set to NaN."
            )
            warn_caller(UndefinedMetricWarning(message))
        self.risk[of] = np.where(nonzero, np.where(some, risk, np.nan), 0.0)
        self.tpr[of] = np.where(nonzero & some, tpr, 0.0)
        self.threshold[of] = np.where(nonzero, counts.threshold[index] if thresholds is None else thresholds, np.nan)

    def curve(self, kind: str, settings: tuple[Setting, ...]) -> Curve:
        return Curve(self.targets, self.risk, kind, self.threshold, settings, self.tpr)


def _sweep(
    sample: _Sample, settings: list[Setting], alphas: tuple[float, ...], floors: Floats, n_jobs: int | None
) -> tuple[Floats, Indices]:
    """Return for each cost and target the smallest risk and the setting that has it, the first one at a tie."""

    def minima(setting: Setting) -> Floats:
        """Minimum over thresholds with TPR >= floor: one minimum per stretch between floors, then a short accumulation."""
        counts = sample.counts(setting)
        starts = _first_reaching(counts, floors)
        stretches = np.array([np.minimum.reduceat(counts.scod_risk(alpha), starts) for alpha in alphas])
        return np.minimum.accumulate(stretches[:, ::-1], axis=1)[:, ::-1]

    tasks = Parallel(n_jobs=n_jobs, prefer="threads", batch_size=_BATCH)
    risk = np.array(tasks(delayed(minima)(setting) for setting in settings))
    return risk.min(axis=0), risk.argmin(axis=0)


def _first_reaching(counts: Counts, floors: Floats) -> Indices:
    """Position of the smallest threshold with TPR >= floor, and TPR > 0."""
    return np.searchsorted(counts.tpr, np.maximum(floors, np.nextafter(0.0, 1.0)))


def _floors(targets: Floats, grid: str) -> Floats:
    # The reference compares with np.linspace(0, 1, 101), of which some values exceed their decimals by one rounding.
    return targets if grid == "reference" else np.asarray(required(1.0, targets))


def _sample(strategy: str, s1_id: Any, s2_id: Any, loss_id: Any, s1_ood: Any, s2_ood: Any) -> _Sample:
    """Check a strategy and its rows."""
    family = check_choice(strategy, "strategy", STRATEGIES)
    s1_id = check_vector(s1_id, "s1_id", allow_inf=False)
    s1_ood = check_vector(s1_ood, "s1_ood", allow_inf=False)
    m, n = len(s1_id), len(s1_ood)
    if m == 0 or n == 0:
        raise InvalidInputError(f"A curve needs at least one ID and one OOD row, got {m} and {n}.")
    return _Sample(
        family,
        family.prepare(Pair(s1_id, check_vector(s2_id, "s2_id", n=m, like="s1_id"))),
        check_vector(loss_id, "loss_id", n=m, like="s1_id", allow_inf=False, minimum=0.0),
        family.prepare(Pair(s1_ood, check_vector(s2_ood, "s2_ood", n=n, like="s1_ood"))),
    )


def _check_targets(tpr: Any) -> Floats:
    if tpr is None:
        return np.linspace(0.0, 1.0, 101)  # the reference's targets
    targets = check_vector(tpr, "tpr", minimum=0.0).copy()
    if len(targets) == 0 or targets[-1] > 1.0 or (np.diff(targets) <= 0).any():
        raise InvalidInputError("tpr must hold increasing required TPRs in [0, 1].")
    return targets
