# SPDX-License-Identifier: BSD-3-Clause
"""What thresholds are set on: logits and log-ratios of ID rows that no part was fitted on, and of some traffic.

Convention: arrays only. Logits are calibrated, so that their softmax is the posterior; any loss turns them into r.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.decision import Scored
from poscod.mix import ClassMix
from poscod.problem import Problem
from poscod.risk import bayes_decision_from_logits
from poscod.selector._drift import Drift

MAY_BE = "may be"
"""What `Calibration.trained_on` says where it cannot be told."""


class Standing(NamedTuple):
    """Rows that stand for known inputs of the traffic, and their weights; None where all are equal."""

    scored: Scored
    weight: Floats | None


@dataclass(frozen=True, eq=False)
class Calibration:
    """Rows from which every threshold of a model follows, whatever the problem.

    Parameters
    ----------
    classes : ndarray of shape (K,)
        Labels in the order of the logits.
    logits : ndarray of shape (m, K)
        Calibrated logits of labeled ID rows.
    log_ratio : ndarray of shape (m,)
        log g of them.
    codes : ndarray of shape (m,)
        True class indices of them.
    weight : ndarray of shape (m,) or None
        Sample weights of them.
    traffic_logits : ndarray of shape (n, K)
        Calibrated logits of unlabeled rows. After cross-fitting these and their log g come from parts that have not seen the row; otherwise the
        ratio was fitted on these rows.
    traffic_log_ratio : ndarray of shape (n,)
        log g of them.
    ood_prior : float
        Estimated share of OOD inputs in the traffic.
    held_out : bool, default=True
        Whether nothing at all was fitted on the ID rows. False where they were cross-fitted: each was scored by parts that have not seen it, but the
        parts that decide have seen all of them, and nothing can be guaranteed then.
    mix : ClassMix or None, default=None
        Class mix of the labeled rows and of the traffic; logits are those of the traffic's mix, the one that is served. None stands for that of the
        labeled rows, in models of earlier versions.
    drift : Drift or None, default=None
        What is known of inputs that have moved, or may have; None where nothing shows that any did.
    groups : ndarray of shape (m,) or None, default=None
        Group of each ID row; None where every row is one of its own.
    trained_on : bool or "may be", default=False
        Whether the labeled rows look like rows that a given classifier was trained on, or may be such, which cannot be told: nothing is promised then.
    traffic_keys : ndarray of shape (n,) or None, default=None
        Number of each unlabeled row by its content, by which it is known again; None in models of earlier versions.
    labeled_keys : ndarray or None, default=None
        The same of labeled rows of the fit, or of some of them.
    traffic_held : bool, default=False
        Whether log g of each unlabeled row comes from a ratio that has not seen it, as after cross-fitting.
    verdicts : int, default=0
        Number of verdicts of people that log g rests on, too.
    settled : bool, default=False
        Whether these verdicts say where known inputs of the traffic have moved to; `weight` lets the ID rows stand for them as well as they can.
    traffic_known : ndarray of shape (n,) or None, default=None
        Where they have moved, chance of each unlabeled row to be known: thresholds are set on these rows then, since few ID rows are where they are now.
    """

    classes: NDArray[Any]
    logits: Floats
    log_ratio: Floats
    codes: NDArray[np.int64]
    weight: Floats | None
    traffic_logits: Floats
    traffic_log_ratio: Floats
    ood_prior: float
    held_out: bool = True
    mix: ClassMix | None = None
    drift: Drift | None = None
    groups: NDArray[np.uint64] | None = None
    trained_on: bool | str = False
    traffic_keys: NDArray[np.uint64] | None = None
    labeled_keys: NDArray[np.uint64] | None = None
    traffic_held: bool = False
    verdicts: int = 0
    settled: bool = False
    traffic_known: Floats | None = None

    @property
    def own_weight(self) -> Floats | None:
        """Sample weights, with which every group counts once: divided by the number of its rows; None where all are equal."""
        if self.groups is None:
            return self.weight
        _, place, size = np.unique(self.groups, return_inverse=True, return_counts=True)
        return np.asarray((1.0 if self.weight is None else self.weight) / size[place])

    @property
    def row_weight(self) -> Floats | None:
        """Weights with which the ID rows stand for the ID part of the traffic: own weights times w of their class; None where all are equal."""
        weight = self.own_weight
        if self.mix is None or not self.mix.changed:
            return weight
        by_class = self.mix.weight[self.codes]
        return by_class if weight is None else by_class * weight

    @property
    def n_groups(self) -> int | None:
        """Number of groups; None where every row is one of its own."""
        return None if self.groups is None else len(np.unique(self.groups))

    def independent(self) -> Calibration:
        """Return one row of each group, drawn by its place alone: independent rows, each a random row of a random group.

        Returns
        -------
        calibration : Calibration
            Itself where every row is a group of its own.
        """
        if self.groups is None:
            return self
        # The first row of each group in an order that has nothing to do with the rows.
        shuffled = np.random.default_rng(0).permutation(len(self))
        rows = np.sort(shuffled[np.unique(self.groups[shuffled], return_index=True)[1]])
        weight = None if self.weight is None else self.weight[rows]
        part: dict[str, Any] = {
            "logits": self.logits[rows],
            "log_ratio": self.log_ratio[rows],
            "codes": self.codes[rows],
        }
        return replace(self, **part, weight=weight, groups=None)

    def __len__(self) -> int:
        return len(self.log_ratio)

    def known(self, loss: Any) -> Scored:
        """Return the ID rows as a rule sees them.

        Parameters
        ----------
        loss : str or array-like of shape (K, K)
            Loss that the answers minimise.

        Returns
        -------
        scored : Scored
            Inputs after scoring.
        """
        return self._scored(self.logits, self.log_ratio, loss)

    def traffic(self, loss: Any) -> Scored:
        """Return the unlabeled rows as a rule sees them.

        Parameters
        ----------
        loss : str or array-like of shape (K, K)
            Loss that the answers minimise.

        Returns
        -------
        scored : Scored
            Inputs after scoring.
        """
        return self._scored(self.traffic_logits, self.traffic_log_ratio, loss)

    def standing(self, loss: Any) -> Standing:
        """Return the rows that stand for known inputs of the traffic: the ID rows, or, where verdicts say that known inputs have moved, the traffic.

        Parameters
        ----------
        loss : str or array-like of shape (K, K)
            Loss that the answers minimise.

        Returns
        -------
        standing : Standing
            Rows after scoring, and their weights.
        """
        if self.traffic_known is None:
            return Standing(self.known(loss), self.row_weight)
        return Standing(self.traffic(loss), self.traffic_known)

    def losses(self, problem: Problem) -> Floats:
        """Return the loss of the answer on each ID row.

        Parameters
        ----------
        problem : Problem
            Its loss counts.

        Returns
        -------
        loss : ndarray of shape (m,)
        """
        answer = bayes_decision_from_logits(self.logits, problem.loss).label
        return problem.losses(self.codes, answer, len(self.classes))

    def _scored(self, logits: Floats, log_ratio: Floats, loss: Any) -> Scored:
        code, risk = bayes_decision_from_logits(logits, loss)
        return Scored(self.classes[code], risk, log_ratio)
