"""Fitted models and fresh rows that the report is tested with."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from poscod import POSCOD
from poscod.model import ClassMixWarning
from poscod.ratio import CorrectedSigmoid
from poscod.report import summarise
from poscod.theory import GaussianWorld

CENTRES = [[0.0, 0.0], [2.2, 0.0], [0.0, 2.2]], [[3.0, 3.0]]
WORLD, MIXED = GaussianWorld(*CENTRES), GaussianWorld(*CENTRES, weight_id=[0.7, 0.2, 0.1])
COSTS = np.array([[0.0, 1.0, 4.0], [2.0, 0.0, 1.0], [1.0, 3.0, 0.0]])


@dataclass
class Case:
    """A fitted model with fresh rows."""

    model: POSCOD
    X: Any
    y: Any
    X_ood: Any = None
    X_unlabeled: Any = None

    def summary(self, **options: Any) -> dict[str, Any]:
        return summarise(self.model, X=self.X, y=self.y, X_ood=self.X_ood, X_unlabeled=self.X_unlabeled, **options)


class SteepRatio(BaseEstimator):
    """A ratio whose logarithm reaches +-1000: plain exponentials overflow on every sixth ID row, and thresholds lie there."""

    def fit(self, rows, traffic):
        self.ood_prior_ = 0.3
        return self

    def log_ratio(self, rows):
        return np.clip(400.0 * (np.asarray(rows.features)[:, 1] - 1.0), -1000.0, 1000.0)

    def ood_prior_interval(self, level=0.95):
        return 0.2, 0.4

    def ood_prior_lower_bound(self, level=0.95):
        return 0.2


def rows_of(n_id: int, n_ood: int, n_traffic: int, decimals: int | None = None) -> tuple[Any, ...]:
    X, y = WORLD.sample_id(n_id, random_state=2)
    ood, traffic = WORLD.sample_ood(n_ood, random_state=3), WORLD.sample_mixture(n_traffic, pi=0.25, random_state=4)[0]
    return (*(a if decimals is None else np.round(a, decimals) for a in (X, ood, traffic)), y)


@cache
def fitted(case: str) -> Case:
    """Return one of the cases by name, made once."""
    X, y = WORLD.sample_id(700, random_state=0)
    traffic, _ = WORLD.sample_mixture(400, pi=0.3, random_state=1)
    options: dict[str, Any] = {"ratio": CorrectedSigmoid("paper"), "alpha": 0.3, "tpr_min": 0.85, "random_state": 0}
    fit: dict[str, Any] = {}
    decimals = None
    if case == "guaranteed":
        options |= {"threshold": "guaranteed", "delta": 0.1, "tpr_min": 0.8}
    elif case == "matrix":
        options |= {"loss": COSTS, "alpha": 1 / 3, "tpr_min": 0.9}
    elif case == "ties":
        # Features on a coarse grid and a tree: whole groups of rows share r and g.
        decimals = 0
        X, traffic = np.round(X, 0), np.round(traffic, 0)
        options |= {"classifier": DecisionTreeClassifier(max_depth=3, random_state=0), "alpha": 0.2}
    elif case == "weights":
        fit["sample_weight"] = np.random.default_rng(5).choice([0.0, 0.5, 1.0, 2.5], len(X))
        options |= {"classifier": LogisticRegression()}
    elif case == "steep":
        options |= {"ratio": SteepRatio(), "alpha": 0.6}
    elif case in ("mix", "fresh mix"):
        # The first class has most of the known inputs in the traffic.
        traffic = MIXED.sample_mixture(600, pi=0.3, random_state=1)[0]
        options |= {"classifier": LogisticRegression()}
    with warnings.catch_warnings():
        if case in ("mix", "fresh mix"):
            warnings.simplefilter("ignore", ClassMixWarning)
        model = POSCOD(**options).fit(X, y, X_unlabeled=traffic, **fit)
    X_test, ood, log, y_test = rows_of(500, 220, 360, decimals)
    if case == "rare":  # hardly any OOD: the label-free FPR says nothing at most settings
        log, _ = WORLD.sample_mixture(360, pi=0.01, random_state=4)
    if case == "mix":
        log = MIXED.sample_mixture(360, pi=0.25, random_state=4)[0]
    if case == "fresh mix":  # the fresh traffic has a third one
        log = GaussianWorld(*CENTRES, weight_id=[0.1, 0.1, 0.8]).sample_mixture(500, pi=0.25, random_state=4)[0]
    return Case(model, X_test, y_test, ood, log)


CASES = ("empirical", "guaranteed", "matrix", "ties", "weights", "steep", "rare", "mix", "fresh mix")
