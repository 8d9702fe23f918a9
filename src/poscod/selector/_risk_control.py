# SPDX-License-Identifier: BSD-3-Clause
"""Selective risk with a stated probability: an upper bound of a given rule's, and the loosest threshold that keeps a bound.

Convention: ``loss_max=None`` declares losses that are 0 or 1 in truth, not only in this sample; a number declares losses
in [0, loss_max]. The caller says which, because choosing the test after a look at the losses would void its error rate.
A p-value is one for the hypothesis "the mean loss is larger than r". Candidates are ordered from strict to loose; a candidate is
a region ``s < v``, reported as the threshold lambda just below v, so that ``s <= lambda`` is the same region. `RISK_CONTROL` holds
the orders in which candidates are tested.

References
----------
.. [1] V. Bentkus, "On Hoeffding's Inequalities", Annals of Probability 32(2), 2004.
.. [2] S. Bates, A. Angelopoulos, L. Lei, J. Malik, M. Jordan, "Distribution-Free, Risk-Controlling Prediction Sets",
   Journal of the ACM 68(6), 2021.
.. [3] A. Angelopoulos, S. Bates, E. Candes, M. Jordan, L. Lei, "Learn then Test: Calibrating Predictive Algorithms to
   Achieve Risk Control", Annals of Applied Statistics 19(2), 2025.
.. [4] Y. Geifman, R. El-Yaniv, "Selective Classification for Deep Neural Networks", NeurIPS 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from poscod._validation import Floats, check_choice, check_count, check_number, check_vector
from poscod.exceptions import InfeasibleProblemError, InvalidInputError
from poscod.metrics import binomial_interval, count


class RiskControlledThreshold(NamedTuple):
    """A threshold whose true selective risk is at most risk_max with probability at least 1 - delta.

    Attributes
    ----------
    threshold : float
        lambda: accept ``s <= lambda``; +inf accepts everything.
    tau : float
        Always 1: the rule is deterministic.
    tpr : float
        Share of the calibration sample accepted.
    selective_risk : float
        Mean loss of the accepted calibration rows; optimistic, because lambda was chosen on them.
    risk_bound : float
        Upper confidence bound of the selective risk at the level the method tests at; at most risk_max.
    n_accepted : int
        Number of accepted calibration rows.
    """

    threshold: float
    tau: float
    tpr: float
    selective_risk: float
    risk_bound: float
    n_accepted: int


class Candidates(NamedTuple):
    """Regions from strict to loose, as thresholds, with the rows and the summed losses (divided by loss_max) in them."""

    threshold: Floats
    n: NDArray[Any]
    total: Floats


class Search(NamedTuple):
    """What a method did: indices of the tested candidates, those that passed, and the level of each test."""

    tested: NDArray[np.intp]
    passed: NDArray[np.intp]
    level: float


def risk_controlled_threshold(
    score_id: Any,
    loss_id: Any,
    risk_max: float,
    *,
    delta: float = 0.05,
    method: str = "fixed_sequence",
    loss_max: float | None = None,
    grid: Any = None,
    start: Any = None,
) -> RiskControlledThreshold:
    """Choose the loosest lambda whose selective risk is at most risk_max with probability at least 1 - delta.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Rejection scores of ID rows that nothing was fitted or tuned on; ties and infinities are allowed.
    loss_id : array-like of shape (m,)
        Loss on each of them.
    risk_max : float
        Largest allowed selective risk, larger than 0 and smaller than loss_max.
    delta : float in (0, 1), default=0.05
        Probability, over the draw of these m rows, that the promise is broken.
    method : {"fixed_sequence", "sgr"}, default="fixed_sequence"
        Key of `RISK_CONTROL`: test every threshold from strict to loose and stop at the first that fails, which costs
        nothing per test [1]_, or bisect with level delta / log2(m) per test [2]_ and keep the loosest that passed.
    loss_max : float, default=None
        Largest loss that can occur. None declares 0/1 losses (exact test); a number takes the Hoeffding-Bentkus test.
    grid : array-like of shape (k,), default=None
        Thresholds to test instead of those of the sample, e.g. quantiles of another sample. They must not depend on
        these rows. The fixed sequence starts at the smallest of them.
    start : int or array-like of int, default=None
        Without a grid: how many rows the first region of a fixed sequence holds (with ties: at most). Several starts are
        several sequences, which share delta equally. Must not depend on these rows. The default is m/2, and m/4 or the fewest rows that
        pass without any loss, where these are fewer than m/2. "sgr" has no start.

    Returns
    -------
    threshold : RiskControlledThreshold
        Named tuple (threshold, tau, tpr, selective_risk, risk_bound, n_accepted).

    Raises
    ------
    InfeasibleProblemError
        If no tested threshold passes; the message has about the smallest bound that one does.

    Notes
    -----
    Let R_S(v) be the true mean loss of inputs with ``s < v``. With a ``grid`` the hypotheses "R_S > risk_max" are fixed, a
    test is valid at each, and a wrong threshold is returned only if the **first** false promise in the sequence passes:
    probability at most delta, whatever the shape of R_S.

    Without a grid the regions are ``s < v`` for the distinct scores v of the sample, from the (start + 1)-th smallest
    score on, and at last everything. The regions are then random, but the same holds for the fixed sequence, for any
    distribution of scores and any shape of R_S. Proof. Let L(v) be the expectation of ``(loss - risk_max) 1[s < v]``
    and B the set where L > 0, i.e. where a promise would be false; B consists of intervals. If the first tested v is in
    B, the rows below it are independent draws of inputs in that region. Else the first tested v in B comes after gaps
    between intervals of B, and intervals after the first gap hold no row. L is at most 0 after an interval and at least
    0 before the next, so the mean loss in each gap is at least risk_max, and so is that of everything up to the end of
    the first gap. Given the number of rows in each gap the losses are independent, and their sum is at least as
    large, stochastically, as with mean loss risk_max, for which the test passes with probability at most delta. The full
    argument is in docs/guarantees.md. One condition: a smallest score that more than ``start`` rows share must be the
    smallest score there is (saturated scores are).

    "sgr" is the published baseline. Which thresholds it visits depends on the outcomes, so the union bound over
    log2(m) tests is a proof only where R_S does not decrease as lambda grows: there a wrongly failed test leads to
    thresholds that are all right. It never costs less than the fixed sequence per test.

    References
    ----------
    .. [1] A. Angelopoulos et al., "Learn then Test: Calibrating Predictive Algorithms to Achieve Risk Control", Annals
       of Applied Statistics 19(2), 2025.
    .. [2] Y. Geifman, R. El-Yaniv, "Selective Classification for Deep Neural Networks", NeurIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(4000)
    >>> loss = rng.random(4000) < 0.2 * score  # selective risk 0.1 lambda, so that 0.5 would be right
    >>> chosen = risk_controlled_threshold(score, loss, 0.05)
    >>> round(chosen.threshold, 2), chosen.risk_bound <= 0.05
    (0.35, True)
    """
    score = check_vector(score_id, "score_id")
    scale = check_loss_max(loss_max)
    loss = check_losses(loss_id, "loss_id", loss_max, len(score))
    risk_max = check_number(risk_max, "risk_max", 0.0, scale, closed="neither")
    delta = check_number(delta, "delta", 0.0, 1.0, closed="neither")
    search = check_choice(method, "method", RISK_CONTROL)
    risk, exact = risk_max / scale, loss_max is None
    if len(score) == 0:
        raise InvalidInputError("score_id must hold at least one ID score to choose a threshold from, got none.")
    candidates = _of_sample(score, loss / scale) if grid is None else _of_grid(score, loss / scale, grid)
    some = candidates.n > 0

    def tested(risk: float) -> Search:
        """Test the candidates for a bound."""
        first: list[int] = []
        if grid is None:
            first = _starts(len(score), risk, delta) if start is None else _check_starts(start, len(score))
        p_value = np.ones(len(candidates.n))
        p_value[some] = risk_p_values(candidates.n[some], candidates.total[some], risk, exact=exact)
        return search(p_value, candidates.n, first, delta)

    found = tested(risk)
    if len(found.passed) == 0:
        least = _least_risk(risk, lambda other: len(tested(other).passed) > 0)
        raise InfeasibleProblemError(
            "no threshold has a selective risk of at most {asked:g} with probability {probability:g} on these {rows} ID rows; {bound}: "
            "raise {risk_max} or {delta}, use more ID rows or a better score.",
            parameter="risk_max",
            asked=risk_max,
            probability=1.0 - delta,
            rows=len(score),
            bound="nor is any larger one"
            if least is None
            else f"the smallest that is possible is about {_rounded_up(scale * least):g}",
        )
    best = found.passed.max()
    n, total = int(candidates.n[best]), float(candidates.total[best])
    bound = upper_bounds(np.array([n]), np.array([total]), found.level, exact=exact)[0]
    return RiskControlledThreshold(
        float(candidates.threshold[best]),
        1.0,
        n / len(score),
        scale * total / n,
        # Where the inverse of the test rounds up at equality, the test decides.
        min(risk_max, scale * float(bound)),
        n,
    )


def _least_risk(asked: float, passes: Callable[[float], bool]) -> float | None:
    """Return about the smallest bound above the one asked for that some threshold passes; None where none does."""
    steps = np.geomspace(asked, 1.0, 65)[1:-1].tolist()
    works = next((risk for risk in steps if passes(risk)), None)
    if works is None:
        return None
    low = max([asked, *(risk for risk in steps if risk < works)])
    for _ in range(6):  # between the last that fails and the first that passes
        middle = math.sqrt(low * works)
        low, works = (low, middle) if passes(middle) else (middle, works)
    return works


def _rounded_up(risk: float) -> float:
    """Return a bound with three digits, not a smaller one."""
    unit = 10.0 ** (math.floor(math.log10(risk)) - 2)
    return float(f"{math.ceil(risk / unit - 1e-9) * unit:.3g}")


def _of_sample(score: Floats, loss: Floats) -> Candidates:
    """Return the regions below each distinct score but the first, and at last everything."""
    counts = count(score, loss)
    return Candidates(np.append(np.nextafter(counts.threshold[1:], -np.inf), np.inf), counts.n_id, counts.loss)


def _of_grid(score: Floats, loss: Floats, grid: Any) -> Candidates:
    """Return the regions ``s <= lambda`` for given thresholds."""
    threshold = np.unique(check_vector(grid, "grid"))
    if len(threshold) == 0:
        raise InvalidInputError("grid must hold at least one threshold, got none.")
    order = np.argsort(score)
    n = np.searchsorted(score[order], threshold, side="right")
    return Candidates(threshold, n, np.append(0.0, np.cumsum(loss[order]))[n])


def _starts(m: int, risk: float, delta: float) -> list[int]:
    """Return where sequences start: a function of the sample size and of what is asked, never of the rows."""

    def least(level: float) -> int:  # with fewer rows not even a region without any loss passes
        return math.ceil(math.log(level) / math.log1p(-risk))

    few = least(delta / 2.0)
    if few < m // 2:
        return [max(m // 4, few), m // 2]
    return [min(m, max(m // 2, least(delta)))]


def _check_starts(start: Any, m: int) -> list[int]:
    """Check numbers of rows between 1 and m."""
    starts = [check_count(value, "start") for value in (start if np.ndim(start) else [start])]
    if not starts or max(starts) > m:
        raise InvalidInputError(f"start must hold numbers of rows from 1 to {m}, got {start!r}.")
    return sorted(set(starts))


def _by_rank(n: NDArray[Any], rank: Any) -> NDArray[np.intp]:
    """Return the loosest region of at most `rank` rows; the strictest there is where ties leave none so small."""
    return np.maximum(np.searchsorted(n, rank, side="right") - 1, 0)


def _fixed_sequence(p_value: Floats, n: NDArray[Any], starts: list[int], delta: float) -> Search:
    """Walk from each start (or from the first threshold of a grid) to looser regions while they pass."""
    level = delta / max(1, len(starts))
    fails = np.append(np.flatnonzero(p_value > level), len(n))
    tested, passed = [], []
    for first in _by_rank(n, starts) if starts else [0]:
        stop = fails[np.searchsorted(fails, first)]
        tested.append(np.arange(first, min(stop + 1, len(n))))
        passed.append(np.arange(first, stop))
    return Search(np.concatenate(tested), np.concatenate(passed), level)


def _sgr(p_value: Floats, n: NDArray[Any], starts: list[int], delta: float) -> Search:
    """Bisect the ranks 1, ..., m (or the grid): looser after a pass, stricter after a failure."""
    by_rank = _by_rank(n, np.arange(1, n[-1] + 1)) if starts else np.arange(len(n))
    looks = max(1, math.ceil(math.log2(len(by_rank))))
    low, high = 0, len(by_rank) - 1
    tested, passed = [], []
    for _ in range(looks):
        middle = math.ceil((low + high) / 2)
        candidate = by_rank[middle]
        tested.append(candidate)
        if p_value[candidate] <= delta / looks:
            passed.append(candidate)
            low = middle
        else:
            high = middle
    return Search(np.array(tested, dtype=np.intp), np.array(passed, dtype=np.intp), delta / looks)


RISK_CONTROL: dict[str, Callable[[Floats, NDArray[Any], list[int], float], Search]] = {
    "fixed_sequence": _fixed_sequence,
    "sgr": _sgr,
}


def selective_risk_bound(loss_accepted: Any, *, delta: float = 0.05, loss_max: float | None = None) -> float:
    """Return an upper bound of the selective risk of a given rule that holds with probability at least 1 - delta.

    Parameters
    ----------
    loss_accepted : array-like of shape (n,)
        Loss on the ID rows that the rule accepts.
    delta : float in (0, 1), default=0.05
        Probability that the bound is too low.
    loss_max : float, default=None
        Largest loss that can occur. None declares 0/1 losses and gives the exact (Clopper-Pearson) bound; a number gives
        the Hoeffding-Bentkus bound, which costs a little more.

    Returns
    -------
    bound : float
        Between 0 and loss_max (1 for None); loss_max without rows.

    Notes
    -----
    For a rule fixed before these rows were drawn, accepted rows are independent draws of accepted inputs, whatever their
    number n. Write S for the sum of losses divided by loss_max. The bound is the largest r with p(r) > delta, times
    loss_max, where

    - 0/1 losses: ``p(r) = P(Bin(n, r) <= S)``;
    - bounded losses: ``p(r) = min(e P(Bin(n, r) <= ceil(S)), exp(-n KL(S/n, r)))`` for r > S/n, with
      ``KL(a, r) = a ln(a/r) + (1 - a) ln((1 - a)/(1 - r))`` and e = 2.718... [1]_ [2]_.

    If lambda is an order statistic of the **same** rows with a rank fixed in advance (`guaranteed_threshold`), pass the
    losses of the rows strictly below lambda: given lambda, those are independent draws of inputs with ``s < lambda``,
    and for scores without ties the bound holds for ``s <= lambda``. If lambda was chosen with a look at the losses, the
    bound does not hold: use `risk_controlled_threshold`.

    References
    ----------
    .. [1] V. Bentkus, "On Hoeffding's Inequalities", Annals of Probability 32(2), 2004.
    .. [2] S. Bates et al., "Distribution-Free, Risk-Controlling Prediction Sets", Journal of the ACM 68(6), 2021.

    Examples
    --------
    >>> import numpy as np
    >>> loss = np.repeat([0.0, 1.0], [95, 5])
    >>> round(selective_risk_bound(loss), 4)
    0.1023
    >>> round(selective_risk_bound(loss, loss_max=1.0), 4)
    0.1173
    """
    delta = check_number(delta, "delta", 0.0, 1.0, closed="neither")
    scale = check_loss_max(loss_max)
    loss = check_losses(loss_accepted, "loss_accepted", loss_max)
    return scale * _upper_bound(len(loss), float(loss.sum()) / scale, delta, exact=loss_max is None)


def risk_p_values(n: NDArray[Any], total: Floats, risk: float, *, exact: bool) -> Floats:
    """Return the p-values of "the mean loss is larger than risk" for samples of n rows with summed losses in [0, n]."""
    tail = special.bdtr(_whole(total), n, risk)
    if exact:
        return np.asarray(tail)
    mean = np.minimum(total / n, 1.0)
    distance = special.rel_entr(mean, risk) + special.rel_entr(1.0 - mean, 1.0 - risk)
    hoeffding = np.where(mean < risk, np.exp(-n * distance), 1.0)
    return np.minimum(np.minimum(math.e * tail, hoeffding), 1.0)


def _upper_bound(n: int, total: float, delta: float, *, exact: bool) -> float:
    """Invert `risk_p_values`: the largest mean loss in [0, 1] that is not rejected at delta."""
    if n == 0:
        return 1.0
    whole = min(n, int(_whole(np.array(total))))
    if exact:
        return binomial_interval(whole, n, level=1.0 - delta, side="upper").high
    bentkus = binomial_interval(whole, n, level=1.0 - delta / math.e, side="upper").high
    mean = min(1.0, total / n)
    if mean == 1.0:
        return 1.0
    room = -math.log(delta) / n

    def excess(risk: float) -> float:
        return float(special.rel_entr(mean, risk) + special.rel_entr(1.0 - mean, 1.0 - risk)) - room

    # The distance grows without bound towards risk = 1; where floats end before it does, the bound is 1.
    last = math.nextafter(1.0, 0.0)
    hoeffding = float(optimize.brentq(excess, mean, last)) if excess(last) > 0.0 else 1.0
    return min(bentkus, hoeffding)


def upper_bounds(n: NDArray[Any], total: Floats, delta: float, *, exact: bool) -> Floats:
    """Return the bound of `selective_risk_bound` for several samples, see `risk_p_values`."""
    return np.array([_upper_bound(int(k), float(t), delta, exact=exact) for k, t in zip(n, total, strict=True)])


def check_loss_max(loss_max: float | None) -> float:
    """Return the scale of the losses: 1 where they are declared to be 0 or 1."""
    return 1.0 if loss_max is None else check_number(loss_max, "loss_max", 0.0, math.inf, closed="neither")


def check_losses(values: Any, name: str, loss_max: float | None, n: int | None = None) -> Floats:
    """Check losses against what is declared about them."""
    loss = check_vector(values, name, n=n, like="score_id", allow_inf=False, minimum=0.0)
    if loss_max is None:
        other = loss[(loss != 0.0) & (loss != 1.0)]
        if len(other):
            raise InvalidInputError(
                f"{name} must hold 0 and 1 only, got {other[0]:g}: pass loss_max, the largest loss that can occur."
            )
    elif len(loss) and loss.max() > loss_max:
        raise InvalidInputError(f"{name} must be at most loss_max = {loss_max:g}, got {loss.max():g}.")
    return loss


def _whole(total: Floats) -> Floats:
    """Round a sum of losses up to a whole number, but not for the rounding error of the sum."""
    return np.ceil(np.round(total, 9))
