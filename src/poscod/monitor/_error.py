# SPDX-License-Identifier: BSD-3-Clause
"""How wrong the answers of a window are, without labels: from its conditional risks, its OOD share, and what risks have meant on calibration rows.

Convention: an answer to an OOD input is wrong. Risks are counted in bins, and a bin stands for the share of wrong answers that calibration rows had there, so a classifier that is too sure of
itself is corrected. OOD inputs have risks, too, which would make them look partly right: their part of the bins, known from the second sample, is replaced.

Notes
-----
With s_b the shares of a window's rows in bins b (the last one holds what was rejected), e_b the error of ID calibration rows there in the class mix that is served, pi the OOD share and P_O the law of OOD inputs: error of
what was answered ``(sum_b s_b e_b + pi sum_b P_O(b) (1 - e_b)) / sum_b s_b`` over accepted bins; error if everything had been answered, the same over all bins. The interval is for the share of wrong answers in the window, as labels
would show it: binomial noise of the answers, noise of e_b and of P_O by the delta method, and the interval of pi.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from poscod._validation import Floats
from poscod.monitor._partitions import Counts
from poscod.monitor._reference import Reference
from poscod.monitor._share import Shares


class Errors(NamedTuple):
    """Shares of wrong answers in several windows.

    Attributes
    ----------
    answered : Shares
        Among accepted rows.
    everything : Shares
        Among all rows, if all had been answered.
    """

    answered: Shares
    everything: Shares


class _Bins(NamedTuple):
    """What a reference knows of bins of the risk: error of ID rows, its variance, and the law of OOD inputs with the rows behind it."""

    error: Floats
    variance: Floats
    ood: Floats
    mixed: Floats
    rows: float


def errors(reference: Reference, risk: Counts, pi: Shares, level: float) -> Errors:
    """Estimate the share of wrong answers of windows.

    Parameters
    ----------
    reference : Reference
        What risks meant on calibration rows, and what OOD inputs look like.
    risk : ndarray of shape (W, B)
        Rows of each window in the cells of "risk".
    pi : Shares
        OOD shares of the windows, with intervals of the level.
    level : float in (0, 1)
        Coverage of each interval.

    Returns
    -------
    errors : Errors
        NaN and [0, 1] for windows without such rows. Where nothing is known of OOD inputs, the estimate leaves them out and the upper end is 1.
    """
    bins = _bins(reference)
    counts = risk.reshape(len(risk), len(bins.error), len(reference.cells.classes) + 1).sum(axis=2).astype(np.float64)
    accepted = np.arange(len(bins.error)) < len(bins.error) - 1
    return Errors(*(_shares(counts, bins, chosen, reference, pi, level) for chosen in (accepted, accepted | True)))


def _shares(
    counts: Floats, bins: _Bins, chosen: NDArray[np.bool_], reference: Reference, pi: Shares, level: float
) -> Shares:
    """Return the share of wrong answers among rows of some bins."""
    n, rows = counts.sum(axis=1), counts[:, chosen].sum(axis=1)
    known = reference.laws("ratio").known
    z, wrong = float(ndtri(0.5 + level / 2.0)), np.where(chosen, 1.0 - bins.error, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(chosen, counts, 0.0) / rows[:, None]
        size = rows / n
        plain = share @ bins.error
        right = float(bins.ood @ wrong) if known else 0.0  # OOD inputs that are answered and look right
        estimate = np.clip(plain + np.nan_to_num(pi.estimate) * right / size, 0.0, 1.0)
        noise = estimate * (1.0 - estimate) / rows + share**2 @ bins.variance
        if known:
            spread = float(bins.mixed @ wrong**2 - (bins.mixed @ wrong) ** 2) / max(1.0, bins.rows)
            noise = noise + (pi.estimate / reference.prior.estimate / size) ** 2 * spread
        ends = [right * (end - pi.estimate) / size for end in (pi.low, pi.high)]
        low, high = (
            estimate + sign * np.hypot(z * np.sqrt(noise), end) for sign, end in zip((-1, 1), ends, strict=True)
        )
    empty = (rows == 0) | np.isnan(estimate)
    low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0) if known else np.ones(len(n))
    return Shares(np.where(empty, np.nan, estimate), np.where(empty, 0.0, low), np.where(empty, 1.0, high))


def _bins(reference: Reference) -> _Bins:
    """Return what calibration rows and the second sample say of bins of the risk."""
    k = len(reference.cells.classes)
    rows = reference.id_counts["risk"].reshape(k, -1, k + 1).astype(np.float64)
    mixed = reference.mixed_counts["risk"].reshape(-1, k + 1).sum(axis=1).astype(np.float64)
    right = np.einsum("kbk->kb", rows[:, :, :k])
    per_class = rows.sum(axis=(1, 2))
    weight = np.divide(reference.mix.traffic, per_class, out=np.zeros(k), where=per_class > 0)[:, None]
    seen = rows.sum(axis=2)
    total, wrong = (weight * seen).sum(axis=0), (weight * (seen - right)).sum(axis=0)
    whole = float(wrong.sum() / max(total.sum(), 1e-300))
    error = np.divide(wrong, total, out=np.full(len(total), whole), where=total > 0)
    # As many rows as the weights leave, and half a wrong answer more: what was not seen is not impossible.
    size = np.divide(total**2, (weight**2 * seen).sum(axis=0), out=np.ones(len(total)), where=total > 0)
    careful = (error * size + 0.5) / (size + 1.0)
    u = mixed / max(1.0, mixed.sum())
    prior = reference.prior.estimate
    ood = (u - (1.0 - prior) * total / total.sum()) / prior if mixed.sum() and prior > 0.0 else np.zeros(len(u))
    return _Bins(error, careful * (1.0 - careful) / size, ood, u, float(mixed.sum()))
