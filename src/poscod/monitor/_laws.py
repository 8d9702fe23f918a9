# SPDX-License-Identifier: BSD-3-Clause
"""What windows look like in any class mix and with any OOD share, and functions of decisions that do not see the mix.

Convention: a window with OOD share pi and class mix q has the law ``(1 - pi) sum_k q_k P_k + pi P_O`` over cells. P_k are cell shares of ID rows of the true class k;
the second sample has the law ``u = (1 - pi_0) sum_k q0_k P_k + pi_0 P_O`` with a known mix q0, so P_O follows from it. Means under these laws are linear in the means of the samples,
and so is a bound of them: nothing depends on the mix that a window really has.

Notes
-----
Answers tell classes apart: with ``C[k, a] = P(answer a | class k)``, a function h of the answer that solves ``sum_a C[k, a] h_a = v_k`` has the mean v_k in class k, so
``f - h(answer)`` with v the class means of f has mean 0 in every class, hence in every mix (inverting the confusion matrix, Lipton et al. [1]_).

References
----------
.. [1] Z. Lipton, Y.-X. Wang, A. Smola, "Detecting and Correcting for Label Shift with Black Box Predictors", ICML 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.monitor._partitions import Counts, Layout

ROUNDS = 10
"""Rounds in which a payoff is made fair: what is taken off changes its spread, and so the margin."""
TIMES = 10.0
"""Alarms are promised for mixes in which no class has more than so many times the share that is served."""
FEW = 30.0
"""Rows that a class is taken to have where it has fewer: alarms are not promised for traffic that consists of such a class."""
DISTINCT = 4.0
"""Standard errors by which rejected shares of the second sample and of ID rows must differ for the former to be of use."""


@dataclass(frozen=True, eq=False)
class Laws:
    """Laws of the cells of a partition.

    Parameters
    ----------
    rows : ndarray of shape (K, B)
        ID rows by true class and cell; classes without rows are left out.
    mixed : ndarray of shape (B,)
        Rows of the second sample; none where there is no such sample.
    mix : ndarray of shape (K,)
        Class mix q0 of its ID part.
    prior : float
        Its OOD share pi_0.
    layout : Layout
        What the cells hold.
    classes : ndarray of shape (A,), bool
        Which of the answers are classes with ID rows.
    """

    rows: Counts
    mixed: Counts
    mix: Floats
    prior: float
    layout: Layout
    classes: NDArray[np.bool_]

    @property
    def n_answers(self) -> int:
        """Answers that are known."""
        return len(self.classes)

    @cached_property
    def n(self) -> Floats:
        """ID rows of each class."""
        return np.asarray(self.rows.sum(axis=1), dtype=np.float64)

    @cached_property
    def n_mixed(self) -> float:
        """Rows of the second sample."""
        return float(self.mixed.sum())

    @cached_property
    def p(self) -> Floats:
        """Shares of cells in each class."""
        return np.asarray(self.rows / self.n[:, None])

    @cached_property
    def u(self) -> Floats:
        """Shares of cells in the second sample."""
        return np.asarray(self.mixed / max(1.0, self.n_mixed))

    @cached_property
    def confusion(self) -> Floats:
        """Shares of answers in each class."""
        return self.by_answer(self.p)

    @cached_property
    def rejected(self) -> Floats:
        """1 for cells of rejected rows."""
        return self.layout.rejected.astype(np.float64)

    @cached_property
    def control(self) -> Floats:
        """What tells OOD by rejection alone, with mean 0 in every class: rejected, less what the answer lets expect."""
        return self.neutral(self.rejected)

    @cached_property
    def known(self) -> bool:
        """Whether the second sample says something of OOD inputs: surely more of it is rejected than of ID rows with its answers."""
        if not self.n_mixed or self.prior <= 0.0:
            return False
        gap = self.prior * self.ood_mean(self.control)
        noise = float(self.mix**2 / self.n @ self.variance(self.control)) + 0.25 / self.n_mixed
        return gap > DISTINCT * float(np.sqrt(noise))

    def ood_mean(self, f: Floats) -> float:
        """Return the mean of a function on OOD inputs, as the second sample has it."""
        return float(self.u @ f - (1.0 - self.prior) * (self.mix @ self.p @ f)) / self.prior

    def by_answer(self, shares: Floats) -> Floats:
        """Sum over cells with the same answer; unknown answers are left out."""
        out = np.zeros((*shares.shape[:-1], self.n_answers + 1))
        np.add.at(out.T, self.layout.answer, shares.T)
        return out[..., : self.n_answers]

    @cached_property
    def smooth(self) -> Floats:
        """Shares of cells in each class, none of them zero: half a row in every bin of all rows together, and one row of all for each class."""
        half = 0.5 / (self.n_answers + 1)
        pooled = (self.rows.sum(axis=0) + half) / (self.n.sum() + half * self.rows.shape[1])
        part = (self.n / self.n.sum())[:, None] * half
        return np.asarray((self.rows + part + pooled) / (self.n + 1.0 + part[:, 0] * self.rows.shape[1])[:, None])

    def variance(self, f: Floats) -> Floats:
        """Return the variance of a function in each class, what was not seen included: it is not impossible."""
        return np.asarray(self.smooth @ f**2 - (self.smooth @ f) ** 2)

    def on_answers(self, v: Floats) -> Floats:
        """Return a function of the answer, cell by cell, whose mean in class k is v_k.

        Notes
        -----
        Least squares with the rows of the classes as weights, and the mean of v at one row for answers that hardly ever occur.
        """
        mean = float(self.n @ v / self.n.sum())
        h = mean + self._to_answers @ (v - mean)
        return np.append(h, 0.0)[self.layout.answer]

    @cached_property
    def _to_answers(self) -> Floats:
        c, weighted = self.confusion, self.n[:, None] * self.confusion
        return np.asarray(np.linalg.solve(c.T @ weighted + np.eye(self.n_answers), weighted.T), dtype=np.float64)

    def neutral(self, f: Floats) -> Floats:
        """Return f less a function of the answer, with mean 0 in every class."""
        return f - self.on_answers(self.p @ f)

    def bounds(self, f: Floats, own: float, common: Floats, second: float, z: float) -> Floats:
        """Return upper bounds of ``own E_k f + common @ E f + second E_u f``, one for every class k.

        Notes
        -----
        Normal quantiles with a term for skewness such that nothing seen in n rows is bounded by 2 z^2 / (3 n), about what the exact bound is. They are for mixes of classes of which
        none has more than TIMES the share that is served: where that is less than all, errors of several classes average out, and each counts as so many more rows.
        """
        top, means = float(f.max()), self.p @ f
        spread = np.maximum(self.p @ f**2 - means**2, 0.0)
        mean_u = float(self.u @ f)
        spread_u = max(0.0, float(self.u @ f**2) - mean_u**2)
        rows = np.maximum(self.n, FEW) / np.clip(TIMES * self.mix, 1e-9, 1.0)
        # One column a sample: the class itself, all classes together, the second sample.
        weight = np.array([abs(own), float(np.abs(common).sum()), abs(second)])
        each = np.stack(
            [
                own**2 * spread / rows,
                np.full(len(rows), float(common**2 @ (spread / self.n))),
                np.full(len(rows), second**2 * spread_u / max(1.0, self.n_mixed)),
            ]
        )
        reach = np.stack([top - means, np.full(len(rows), top - means.min()), np.full(len(rows), top - mean_u)])
        size = np.stack([rows, np.full(len(rows), self.n.sum()), np.full(len(rows), max(1.0, self.n_mixed))])
        step = weight[:, None] * np.maximum(reach, 0.0) / size
        # Of several samples that one counts whose share of the variance is large.
        share = each + step**2
        tilt = z**2 / 3.0 * (share * step).sum(axis=0) / np.maximum(share.sum(axis=0), 1e-300)
        margin = tilt + np.sqrt(z**2 * each.sum(axis=0) + tilt**2)
        return np.asarray(own * means + float(common @ means) + second * mean_u + margin)


def laws_of(rows: Counts, mixed: Counts, mix: Floats, prior: float, layout: Layout) -> Laws:
    """Return the laws of a partition from counts; classes without ID rows are left out."""
    there = rows.sum(axis=1) > 0
    share = mix[there] / mix[there].sum()
    return Laws(rows[there], mixed, share, prior, layout, there)
