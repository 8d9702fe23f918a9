"""How often rows that a classifier was trained on are found, and how often held-out ones are accused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator

from benchmarks.trained_on import CLASSIFIERS, MISS, SETS, TPR_MIN, measure, split
from poscod.model import view
from poscod.model._trained_on import trained_on

pytestmark = pytest.mark.filterwarnings("ignore")


def look(name, which, seeds):
    """Count suspicions over classifiers and kinds of traffic, without fitting ratios."""
    draw, known = SETS["clouds"](None)
    found = []
    for seed in seeds:
        parts = split(draw, known, seed)
        classifier = FrozenEstimator(CLASSIFIERS[name](seed).fit(*parts["trained on"]))
        X, y = parts[which]
        seen = [view(classifier, rows) for rows in (X, parts["traffic"])]
        found.append(trained_on(classifier, classifier, X, seen[0], y, seen[1]))
    return sum(found)


@pytest.mark.parametrize("name", ["logistic", "logistic, C = 0.01", "naive Bayes", "weak boosting"])
def test_held_out_rows_are_rarely_accused(name):
    """Ten draws of each: without OOD, with near and far OOD, with another class mix."""
    assert look(name, "held out", range(10)) <= 1


@pytest.mark.parametrize("name", ["logistic", "weak boosting"])
def test_training_rows_are_found(name):
    assert look(name, "trained on", range(5)) == 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["noisy", "rings", "wide"])
def test_missed_rates_are_said_and_held_out_rows_are_not_accused(name):
    """Whole fits: at least 95 % of those that miss their TPR by more than 0.05 are warned of, at most 5 % of the others."""
    draw, known = SETS[name](None)
    missed, false = [], []
    for kind in ("forest", "boosting", "network", "logistic, C = 0.01", "forest, outputs"):
        for seed in range(5):
            own, held = measure(draw, known, kind, seed)
            missed += [own["warned"]] if own["tpr"] < TPR_MIN - MISS else []
            false.append(held["warned"])
    assert len(missed) >= 10
    assert np.mean(missed) >= 0.95
    assert np.mean(false) <= 0.05
