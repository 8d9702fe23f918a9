"""Slow, obvious definitions of the metrics: loops over thresholds and pairs, no sorting tricks.

All take lists or arrays; a threshold is any observed score; accept means score <= threshold.
"""

from __future__ import annotations

import numpy as np


def _weights(score, weight):
    return np.ones(len(score)) if weight is None else np.asarray(weight, dtype=float)


def points(score_id, loss_id, score_ood, weight_id=None, weight_ood=None):
    """(threshold, tpr, fpr, selective risk) for every distinct score, by definition."""
    score_id, score_ood, loss_id = map(np.asarray, (score_id, score_ood, loss_id))
    w_id, w_ood = _weights(score_id, weight_id), _weights(score_ood, weight_ood)
    rows = []
    for threshold in sorted(set(score_id.tolist()) | set(score_ood.tolist())):
        accepted, wrong = score_id <= threshold, score_ood <= threshold
        tpr = w_id[accepted].sum() / w_id.sum()
        fpr = w_ood[wrong].sum() / w_ood.sum() if len(w_ood) else float("nan")
        risk = (w_id * loss_id)[accepted].sum() / w_id[accepted].sum() if w_id[accepted].sum() > 0 else float("nan")
        rows.append((threshold, tpr, fpr, risk))
    return np.array(rows)


def auroc(score_id, score_ood, weight_id=None, weight_ood=None):
    w_id, w_ood = _weights(score_id, weight_id), _weights(score_ood, weight_ood)
    won = 0.0
    for a, wa in zip(score_id, w_id, strict=True):
        for b, wb in zip(score_ood, w_ood, strict=True):
            won += wa * wb * (1.0 if a < b else 0.5 if a == b else 0.0)
    return won / (w_id.sum() * w_ood.sum())


def aurc(score_id, loss_id, weight_id=None, area="step"):
    """Integrate the selective risk over (0, 1] by walking through the distinct scores."""
    table = points(score_id, loss_id, score_id, weight_id, weight_id)
    total, before, last = 0.0, 0.0, None
    for _, tpr, _, risk in table:
        if tpr == before:
            continue
        if area == "step":
            total += (tpr - before) * risk
        elif last is not None:
            total += (tpr - before) * (risk + last) / 2
        else:
            total += (tpr - first_strip(score_id, weight_id)) * risk
        before, last = tpr, risk
    return total


def first_strip(score_id, weight_id=None):
    """Share of one of the ID rows that have the smallest score of any that counts."""
    w = _weights(score_id, weight_id)
    counted = np.asarray(score_id)[w > 0]
    own = w[w > 0][counted == counted.min()]
    return own.mean() / w.sum()


def augrc(score_id, loss_id, weight_id=None):
    table = points(score_id, loss_id, score_id, weight_id, weight_id)
    total, tpr_before, joint_before = 0.0, 0.0, 0.0
    for _, tpr, _, risk in table:
        joint = tpr * risk if tpr > 0 else 0.0
        total += (tpr - tpr_before) * (joint + joint_before) / 2
        tpr_before, joint_before = tpr, joint
    return total


def scod_risk(score_id, loss_id, score_ood, alpha, tpr_min, envelope=True, weight_id=None, weight_ood=None):
    table = points(score_id, loss_id, score_ood, weight_id, weight_ood)
    allowed = [row for row in table if row[1] >= tpr_min * (1 - 1e-12)]
    risks = [(1 - alpha) * risk + alpha * fpr for _, _, fpr, risk in allowed]
    return min(risks) if envelope else risks[0]


def ausrt(score_id, loss_id, score_ood, alpha, envelope=True, weight_id=None, weight_ood=None):
    table = points(score_id, loss_id, score_ood, weight_id, weight_ood)
    table = [row for row in table if row[1] > 0]
    risks = [(1 - alpha) * risk + alpha * fpr for _, _, fpr, risk in table]
    total, before = 0.0, 0.0
    for i, (_, tpr, _, _) in enumerate(table):
        if envelope:
            total += (tpr - before) * min(risks[i:])
        elif i > 0:
            total += (tpr - before) * (risks[i] + risks[i - 1]) / 2
        else:
            tied = np.asarray(score_ood) == table[0][0]
            half = alpha * _weights(score_ood, weight_ood)[tied].sum() / _weights(score_ood, weight_ood).sum() / 2
            total += (tpr - first_strip(score_id, weight_id)) * (risks[0] - half)
        before = tpr
    return total


def aupr(score_id, score_ood, positive="id", weight_id=None, weight_ood=None):
    found, other = (score_id, score_ood), (weight_id, weight_ood)
    if positive == "ood":
        found, other = (-np.asarray(score_ood), -np.asarray(score_id)), (weight_ood, weight_id)
    (pos, neg), w_pos, w_neg = map(np.asarray, found), _weights(found[0], other[0]), _weights(found[1], other[1])
    total, before = 0.0, 0.0
    for threshold in sorted(set(pos.tolist()) | set(neg.tolist())):
        tp, fp = w_pos[pos <= threshold].sum(), w_neg[neg <= threshold].sum()
        if tp > 0:
            total += (tp / w_pos.sum() - before) * tp / (tp + fp)
            before = tp / w_pos.sum()
    return total


def oscr(score_id, loss_id, score_ood, weight_id=None, weight_ood=None):
    """Sum over pairs of a right ID row and an OOD row, as a share of all pairs."""
    w_id, w_ood = _weights(score_id, weight_id), _weights(score_ood, weight_ood)
    won = 0.0
    for a, loss, wa in zip(score_id, loss_id, w_id, strict=True):
        for b, wb in zip(score_ood, w_ood, strict=True):
            won += wa * wb * (loss == 0) * (1.0 if a < b else 0.5 if a == b else 0.0)
    return won / (w_id.sum() * w_ood.sum())


def fpr_at_tpr(score_id, score_ood, tpr_min, weight_id=None, weight_ood=None):
    table = points(score_id, np.zeros(len(score_id)), score_ood, weight_id, weight_ood)
    return next(fpr for _, tpr, fpr, _ in table if tpr >= tpr_min * (1 - 1e-12))


def fpr_at_tpr_ood_positive(score_id, score_ood, tpr_min, weight_id=None, weight_ood=None):
    """Share of ID rejected by the loosest rule "reject score >= c" that rejects enough OOD."""
    score_id, score_ood = np.asarray(score_id), np.asarray(score_ood)
    w_id, w_ood = _weights(score_id, weight_id), _weights(score_ood, weight_ood)
    best = 1.0
    for cut in sorted(set(score_id.tolist()) | set(score_ood.tolist())):
        if w_ood[score_ood >= cut].sum() / w_ood.sum() >= tpr_min * (1 - 1e-12):
            best = min(best, w_id[score_id >= cut].sum() / w_id.sum())
    return best
