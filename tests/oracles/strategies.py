"""Slow, obvious definitions of plug-in and tuned curves: loops over targets, settings and thresholds."""

from __future__ import annotations

import math

import numpy as np

from oracles.metrics import points


def scod_points(score_id, loss, score_ood, alpha):
    """(tpr, risk) at every distinct threshold that accepts an ID row."""
    table = points(score_id, loss, score_ood)
    return [(tpr, (1 - alpha) * risk + alpha * fpr) for _, tpr, fpr, risk in table if tpr > 0]


def sirc(s1, s2, a, b):
    """The published product of confidences C1 = 1 - s1 and C2 = -s2, negated: (1 - C1)(1 + exp(-b (C2 - a)))."""
    return np.array([x * (1.0 + math.exp(-b * (-y - a))) for x, y in zip(s1, s2, strict=True)])


def linear_plugin(s1_id, s2_id, loss, s1_ood, s2_ood, alpha, targets):
    risks = []
    for t in targets:
        if t == 0:
            risks.append(0.0)
            continue
        beta = alpha * t / (1 - alpha)
        table = scod_points(s1_id + beta * s2_id, loss, s1_ood + beta * s2_ood, alpha)
        risks.append(next(risk for tpr, risk in table if tpr >= t - 1e-12))
    return np.array(risks)


def tuned(scores_of_settings, loss, alpha, targets):
    """Minimum over settings and thresholds with TPR >= t; scores_of_settings yields (score_id, score_ood)."""
    tables = [scod_points(score_id, loss, score_ood, alpha) for score_id, score_ood in scores_of_settings]
    return np.array(
        [0.0 if t == 0 else min(risk for table in tables for tpr, risk in table if tpr >= t - 1e-12) for t in targets]
    )
