# SPDX-License-Identifier: BSD-3-Clause
"""Upper bounds of a mean loss: exact for 0/1 losses, Hoeffding-Bentkus for bounded ones.

Convention: ``loss_max=None`` declares losses that are 0 or 1 in truth, not only in this sample; a number declares losses
in [0, loss_max]. The caller says which, because choosing the test after a look at the losses would void its error rate.
A p-value here is one for the hypothesis "the mean loss is larger than r".

References
----------
.. [1] V. Bentkus, "On Hoeffding's Inequalities", Annals of Probability 32(2), 2004.
.. [2] S. Bates, A. Angelopoulos, L. Lei, J. Malik, M. Jordan, "Distribution-Free, Risk-Controlling Prediction Sets",
   Journal of the ACM 68(6), 2021.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from poscod._validation import Floats, check_number, check_vector
from poscod.exceptions import InvalidInputError
from poscod.metrics import binomial_interval


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
