# SPDX-License-Identifier: BSD-3-Clause
"""Real digits as an open world: some are known, the traffic holds all ten.

Convention: the images are those embedded in scikit-learn (1,797 of 8 x 8 pixels); ID are the digits 0 to 5. Which digits the
traffic holds is returned for measuring, and no method may look at it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats

_LAST_KNOWN = 5
# Known digits: labeled, in the traffic, fresh with labels, in the fresh log. Unknown: in the traffic, in the fresh log, fresh.
_KNOWN_SPLIT, _UNKNOWN_SPLIT = (600, 780, 980), (100, 200)


class OpenDigits(NamedTuple):
    """Digits split as a project would have them.

    Attributes
    ----------
    labeled, y_labeled : ndarray of shape (600, 64) and (600,)
        Known digits with labels.
    traffic : ndarray of shape (280, 64)
        Inputs as they arrive: nobody says which digit is which.
    traffic_is_ood : ndarray of shape (280,), bool
        The truth about the traffic, for measuring only.
    test, y_test : ndarray of shape (200, 64) and (200,)
        Fresh known digits.
    ood : ndarray of shape (514, 64)
        Fresh unknown digits.
    log : ndarray of shape (203, 64)
        Fresh traffic, for measuring without labels.
    """

    labeled: Floats
    y_labeled: NDArray[np.int64]
    traffic: Floats
    traffic_is_ood: NDArray[np.bool_]
    test: Floats
    y_test: NDArray[np.int64]
    ood: Floats
    log: Floats


def load_open_digits(*, random_state: int = 0) -> OpenDigits:
    """Return the digits of scikit-learn, of which 0 to 5 are known.

    Parameters
    ----------
    random_state : int, default=0
        Seed of the split.

    Returns
    -------
    digits : OpenDigits

    Examples
    --------
    >>> digits = load_open_digits()
    >>> len(digits.labeled), len(digits.traffic), int(digits.traffic_is_ood.sum())
    (600, 280, 100)
    >>> len(digits.test), len(digits.ood), len(digits.log)
    (200, 514, 203)
    """
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(random_state).permutation(len(X))
    X, y = X[order], y[order]
    known = y <= _LAST_KNOWN
    labeled, seen, test, more = np.split(X[known], _KNOWN_SPLIT)
    y_labeled, _, y_test, _ = np.split(y[known], _KNOWN_SPLIT)
    unseen, others, ood = np.split(X[~known], _UNKNOWN_SPLIT)
    return OpenDigits(
        labeled,
        y_labeled,
        np.concatenate([seen, unseen]),
        np.repeat([False, True], [len(seen), len(unseen)]),
        test,
        y_test,
        ood,
        np.concatenate([more, others]),
    )
