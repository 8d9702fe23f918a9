# SPDX-License-Identifier: BSD-3-Clause
"""A list of OOD inputs with a promise: at most a given share of it, on average, are known inputs.

Convention: evidence is log g, and what known inputs reach is read from ID rows that log g treats as it treats known inputs of the log. Where there are no such
rows there is no list. Nothing is assumed of g: a bad one gives a short list, not a false one.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from poscod import _show
from poscod._json import plain
from poscod._optional import require
from poscod._validation import Floats, check_count, check_number, refusal
from poscod.activations import Activations
from poscod.exceptions import PoscodWarning, warn_caller
from poscod.model import TRAFFIC_ROWS, InputsDriftedWarning, log_ratio_of, rows_before, traffic_places
from poscod.review._log import log_of

# Draws by which a bound for all prefixes is found, and places among the calibration rows at which it is.
_DRAWS, _PLACES = 4000, 64
_GIVE = "give rows that are known inputs and not rows of the fit as {X_id}"
_COLUMNS = ("index", "log_ratio", "p_value")


@dataclass(frozen=True, eq=False, repr=False)
class Strangers:
    """Inputs that are OOD, the strongest evidence first.

    Parameters
    ----------
    index : ndarray of shape (k,), int
        Row of the input in the log, from 0.
    log_ratio : ndarray of shape (k,)
        log g, by which the rows are sorted.
    p_value : ndarray of shape (k,)
        Conformal p-value of "this is a known input".
    level : float
        Largest false discovery rate.
    n_rows : int
        Inputs of the log.
    n_known : int
        Known inputs they were compared with.
    exact : bool
        Whether the promise holds in finite samples whatever g is. Otherwise g has seen some of the rows, the class mix is estimated, or inputs had moved.
    """

    index: NDArray[np.int64]
    log_ratio: Floats
    p_value: Floats
    level: float
    n_rows: int
    n_known: int
    exact: bool

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Strangers({self._words()})"

    def _repr_html_(self) -> str:
        return _show.first_rows({name: getattr(self, name) for name in _COLUMNS}, self._words())

    def _words(self) -> str:
        return f"{len(self):,} of {self.n_rows:,} inputs, at most {100 * self.level:g} % of them known"

    @property
    def least(self) -> int:
        """Smallest list that so few known inputs could support at this level."""
        return math.ceil(self.n_rows / ((self.n_known + 1) * self.level) - 1e-9)

    def false_discoveries(self, k: int | None = None, *, delta: float = 0.05) -> int:
        """Return a bound on the number of known inputs among the first k of the list.

        Parameters
        ----------
        k : int, default=None
            Rows that are kept, from the top; None keeps all.
        delta : float in (0, 1), default=0.05
            Error probability.

        Returns
        -------
        bound : int
            With probability 1 - delta it holds for every k at once, so that k may be chosen by looking at the rows.
        """
        k = len(self) if k is None else check_count(k, "k", 0)
        if k > len(self):
            raise refusal(
                "k", "must be at most the length of the list ({allowed}), got {got}.", allowed=len(self), got=k
            )
        return int(self.bounds(delta)[k - 1]) if k else 0

    def bounds(self, delta: float = 0.05) -> NDArray[np.int64]:
        """Return that bound for every k from 1 to the length of the list.

        Parameters
        ----------
        delta : float in (0, 1), default=0.05
            Error probability, for all of them together.

        Returns
        -------
        bounds : ndarray of shape (k,), int

        Notes
        -----
        Let N(b) be the number of known inputs of the log with more evidence than all but b of the l calibration rows. Its law depends on l and on the number of
        known inputs alone, at most m: a Pólya urn (Gazin, Blanchard and Roquain 2024). The bound is the quantile of each N(b) at a level that is chosen by drawing from
        that urn, so that all of them hold together. Copies in the log, of which one is as strange as the other, are not independent, and the bound may fail.
        """
        check_number(delta, "delta", 0.0, 1.0, closed="neither")
        above = np.rint(self.p_value * (self.n_known + 1)).astype(np.int64) - 1
        place, bound = envelope(self.n_rows, self.n_known, delta)
        before = np.arange(len(self))
        # A prefix holds no more known inputs than a shorter one and all rows that follow it.
        least = np.minimum.accumulate(bound[np.searchsorted(place, above)] - before) + before
        return np.asarray(np.minimum(least, before + 1), dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON.

        Returns
        -------
        document : dict
        """
        names = (*_COLUMNS, "level", "n_rows", "n_known", "exact")
        document: dict[str, Any] = plain({name: getattr(self, name) for name in names})
        return document

    def frame(self) -> Any:
        """Return the rows as a table.

        Returns
        -------
        frame : pandas.DataFrame
        """
        pandas = require("pandas", extra="files", feature="Strangers.frame")
        return pandas.DataFrame({name: getattr(self, name) for name in _COLUMNS})


def strangers(model: Any, X: Any, level: float = 0.1, *, X_id: Any = None, random_state: Any = 0) -> Strangers:
    """List inputs of a log that are OOD, so that on average at most a share `level` of the list are known inputs.

    Parameters
    ----------
    model : POSCOD
        Fitted with unlabeled traffic.
    X : like the rows given to `POSCOD.fit`, or DaskLog
        The log: a new one, or the traffic of the fit.
    level : float in (0, 1), default=0.1
        Largest false discovery rate: the mean, over logs, of the share of known inputs in the list; 0 for an empty list.
    X_id : like X, default=None
        Rows that are known inputs, as they come in the log and not among the rows of the fit. None uses those that the model keeps of its fit.
    random_state : int, RandomState or None, default=0
        Decides which rows of X_id are learned from, where X is the traffic of the fit.

    Returns
    -------
    strangers : Strangers
        Sorted by evidence; empty where there is no list at this level.

    Notes
    -----
    With c_1, ..., c_l the log g of known inputs and t_1 >= ... >= t_m those of the log, the list is the first k rows, with the largest k for which
    ``m (1 + #{c_i >= t_k}) / ((l + 1) k) <= level``: Benjamini and Hochberg's procedure on conformal p-values (Bates et al. 2023; Marandon et al. 2024). Ties
    count against the list. FDR <= level holds exactly if known inputs of the log and rows c are exchangeable for g:

    * a model with held-out rows, a new log: they are.
    * a cross-fitted model: every c_i comes from a ratio that has not seen the row. So do the t_j of the fit's own traffic, of which the model keeps them; new
      rows are scored by the ratio of all rows. FDR was close to the level or below it in simulations, and ``exact`` is False.
    * a model with held-out rows, and the fit's own traffic: they are not, and X_id is needed.
    * X_id and a new log: they are. X_id and the fit's own traffic: half of X_id is left to learn a new ratio against the log and the other half together (AdaDetect), so
      that it treats both alike; the other half are the c_i.

    Where the model serves another class mix than its labeled rows have, c_i are thinned: a row stays with probability w_y over the largest weight, so that those
    that stay have the mix of the traffic. This is exact for the true weights, and they are estimated. Rows of a group count once.

    Examples
    --------
    >>> from poscod import POSCOD
    >>> from poscod.theory import GaussianWorld
    >>> world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 6.0]])
    >>> X, y = world.sample_id(600, random_state=0)
    >>> log, is_ood = world.sample_mixture(500, pi=0.1, random_state=1)
    >>> model = POSCOD(tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=log)
    >>> found = strangers(model, log, level=0.1)
    >>> bool(len(found) > 40), bool(is_ood[found.index].mean() > 0.8), found.false_discoveries(20) < 20
    (True, True, True)
    """
    level = check_number(level, "level", 0.0, 1.0, closed="neither")
    score, known, exact = evidence(model, log_of(model, X), X_id, random_state)
    index, p_value = discoveries(score, known, level)
    return Strangers(index, score[index], p_value, level, len(score), len(known), exact)


def evidence(model: Any, log: Any, X_id: Any, random_state: Any) -> tuple[Floats, Floats, bool]:
    """Return log g of a log and of known inputs, both from ratios that treat them alike, and whether they do so in every respect; see `strangers`."""
    if model.scorer_.ratio is None:
        raise refusal("model", "must be fitted with unlabeled traffic: without it nothing is known of OOD inputs.")
    if len(log) == 0:
        raise refusal("X", "must hold at least one row, got none.")
    calibration, score = model.calibration_, log.decisions.log_ratio
    # Files of earlier versions hold neither rows of the traffic nor, after cross-fitting, a log g by which they could be known again.
    blind = calibration.traffic_keys is None and not calibration.held_out
    if X_id is None:
        if blind:
            raise refusal(
                "model",
                "was fitted by an earlier version and does not know the rows of its fit again: fit it again, or "
                + _GIVE
                + ".",
            )
        return _kept(calibration, score, traffic_places(calibration, log.keys(), score))
    known = log_of(model, X_id)
    if len(known) < 2:
        raise refusal("X_id", "must hold at least two rows, got {got}.", got=len(known))
    if before := rows_before(calibration.labeled_keys, known.keys()):
        raise refusal(
            "X_id",
            "must hold no rows of the fit, got {got:,} of {rows:,} that are, or more: log g has seen them, and fresh known inputs look otherwise. Give others.",
            got=before,
            rows=len(known),
        )
    if not blind and (traffic_places(calibration, log.keys(), score) < 0).all():
        return score, known.decisions.log_ratio, True
    return *_learned(model.scorer_, log, known, check_random_state(random_state)), True


def discoveries(score: Floats, known: Floats, level: float) -> tuple[NDArray[np.int64], Floats]:
    """Return the rows whose score is too high for known ones at a false discovery rate, the highest first, and their p-values.

    Examples
    --------
    >>> discoveries(np.array([0.0, 7.0, 5.0, 5.0]), np.arange(5.0), 0.25)[0].tolist()
    [1, 2, 3]
    """
    order = np.argsort(-score, kind="stable")
    down, known = score[order], np.sort(known)
    p_value = (1 + len(known) - np.searchsorted(known, down, side="left")) / (len(known) + 1)
    # Rows with equal scores are listed together or not at all.
    size = np.searchsorted(-down, -down, side="right")
    fits = np.flatnonzero(len(score) * p_value <= level * size * (1 + 1e-12))
    k = int(size[fits[-1]]) if len(fits) else 0
    return order[:k].astype(np.int64), p_value[:k]


def thinned(values: Floats, weight: Floats) -> Floats:
    """Return values that stay with a probability in proportion to their weight, by chance that has nothing to do with them and is the same at every call."""
    return values[np.random.default_rng(0).uniform(size=len(values)) * weight.max() < weight]


def _kept(calibration: Any, score: Floats, seen: NDArray[np.int64]) -> tuple[Floats, Floats, bool]:
    """Return evidence of the log and of the known inputs that the model keeps, and whether the promise is exact."""
    old = seen >= 0
    if calibration.trained_on:
        raise refusal(
            "model",
            "keeps rows that its classifier was trained on, or may have been, and fresh known inputs look otherwise: "
            + _GIVE
            + ".",
        )
    # Held-out rows were scored by the ratio of all rows, rows of the traffic by those that have not seen them: cross-fitted rows alone are their like.
    alike = calibration.traffic_held and not calibration.held_out
    if old.any() and not (alike and (old.all() or len(calibration.traffic_log_ratio) < TRAFFIC_ROWS)):
        raise refusal(
            "X",
            "must not hold rows that the ratio was fitted on, got {got:,} or more of {rows:,}, and the model keeps no ID rows that are scored as they would have to be: leave them out, or "
            + _GIVE
            + ".",
            got=int(old.sum()),
            rows=len(old),
        )
    if calibration.drift is not None:
        warn_caller(
            InputsDriftedWarning(
                "Known inputs had moved when the model was fitted, or could not be told from strangers, and those that moved look like OOD: the list may hold more of them than its "
                "level says. To rule that out, " + _GIVE + ".",
                parameter="X_id",
                said=calibration.drift.said,
            )
        )
    rows = calibration.independent()
    known = rows.log_ratio if rows.row_weight is None else thinned(rows.log_ratio, rows.row_weight)
    out = np.where(old, calibration.traffic_log_ratio[np.maximum(seen, 0)], score) if old.any() else score
    moved = calibration.drift is not None or (calibration.mix is not None and calibration.mix.changed)
    return out, known, calibration.held_out and not (moved or old.any())


def _learned(scorer: Any, whole: Any, known: Any, rng: Any) -> tuple[Floats, Floats]:
    """Return evidence of the log and of half of X_id from a ratio that was learned from the other half and treats both alike."""
    log, rows = whole.view(), known.view()
    mixed = rng.permutation(len(rows))
    train, rest = rows[np.sort(mixed[: len(rows) // 2])], rows[np.sort(mixed[len(rows) // 2 :])]
    both = Activations(
        None if log.features is None else np.concatenate([log.features, rest.features]),
        np.concatenate([log.logits, rest.logits]),
        table=log.table,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoscodWarning)  # about an OOD share that nobody asks for here
        # Verdicts are about rows of another fit: what they corrected is learned anew, without them.
        score = log_ratio_of(clone(getattr(scorer.ratio, "base", scorer.ratio)).fit(train, both), both)
    return score[: len(log)], score[len(log) :]


def envelope(m: int, n: int, delta: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return places b and bounds of N(b) that hold together: m known inputs, of which N(b) lie above all but b of n others."""
    place = np.unique(np.append(np.geomspace(1, n + 1, _PLACES).astype(np.int64) - 1, [0, n]))
    rng = np.random.default_rng(0)

    def drawn() -> NDArray[np.int64]:
        # Levels of the (b+1)-th highest of n uniform numbers: sums of exponential gaps over the sum of n + 1 of them. The last place has no row below it.
        steps = np.diff(np.append(0, np.minimum(place + 1, n)))
        total = np.cumsum(rng.gamma(np.maximum(steps, 1e-300), size=(_DRAWS, len(steps))), axis=1)
        rest = rng.gamma(n + 1 - np.minimum(place[-1] + 1, n), size=(_DRAWS, 1))
        level = total / (total[:, -1:] + rest)
        level[:, place == n] = 1.0
        count, out = np.zeros(_DRAWS, dtype=np.int64), np.empty(level.shape, dtype=np.int64)
        before = np.zeros(_DRAWS)
        for j in range(level.shape[1]):
            share = np.clip((level[:, j] - before) / np.maximum(1.0 - before, 1e-300), 0.0, 1.0)
            count = count + rng.binomial(m - count, share)
            out[:, j], before = count, level[:, j]
        return out

    # One set of draws gives the shape of the bound, the other says how high it has to be.
    shape, check = np.sort(drawn(), axis=0), drawn()
    rank = np.stack([np.searchsorted(shape[:, j], check[:, j], side="left") for j in range(len(place))], axis=1)
    need = np.sort(rank.max(axis=1))[min(math.ceil((1.0 - delta) * (_DRAWS + 1)) - 1, _DRAWS - 1)]
    bound = shape[min(need, _DRAWS - 1)] if need < _DRAWS else np.full(len(place), m)
    return place, np.maximum.accumulate(bound)
