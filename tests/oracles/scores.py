"""Slow loop implementations of every score, written from the papers: one row, one class, one feature at a time.

Each oracle takes ID activations and test activations with plain lists inside and returns one uncertainty per row.

SPDX-License-Identifier: BSD-3-Clause
"""

import math

import numpy as np


def softmax(z):
    top = max(z)
    e = [math.exp(v - top) for v in z]
    return [v / math.fsum(e) for v in e]


def logsumexp(z):
    top = max(z)
    return top + math.log(math.fsum(math.exp(v - top) for v in z))


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def norm(a):
    return math.sqrt(dot(a, a))


def head(act, features):
    return [dot(w, features) + b for w, b in zip(rows(act.weight), rows(act.bias), strict=True)]


def rows(array):
    return np.asarray(array, dtype=np.float64).tolist()


def of_logits(function):
    return lambda train, test: [function(z) for z in rows(test.logits)]


def of_features(function):
    return lambda train, test: [function(x) for x in rows(test.features)]


def msp(z):
    return 1.0 - max(softmax(z))


def odin(z):
    return 1.0 - max(softmax([v / 1000.0 for v in z]))


def entropy(z):
    return -math.fsum(p * math.log(p) for p in softmax(z) if p > 0)


def doctor(z):
    q = math.fsum(p * p for p in softmax(z))
    return (1 - q) / q


def gen(z):
    largest = sorted(softmax(z))[-100:]
    return math.fsum((p * (1 - p)) ** 0.1 for p in largest)


def margin(z):
    first, second = sorted(z)[-1], sorted(z)[-2]
    return second - first


def gradnorm(train, test):
    out = []
    for x, z in zip(rows(test.features), rows(test.logits), strict=True):
        p, total = softmax(z), 0.0
        for c in range(len(z)):
            for i in range(len(x)):
                total += abs((p[c] - 1 / len(z)) * x[i])  # entry (c, i) of the gradient
        out.append(-total)
    return out


def react(train, test):
    flat = sorted(v for x in rows(train.features) for v in x)
    place = 0.9 * (len(flat) - 1)
    low = int(place)
    level = flat[low] + (place - low) * (flat[min(low + 1, len(flat) - 1)] - flat[low])
    return [-logsumexp(head(train, [min(v, level) for v in x])) for x in rows(test.features)]


def _largest(x, percentile):
    kept = len(x) - round(len(x) * percentile / 100)
    order = sorted(range(len(x)), key=lambda i: (-x[i], i))
    return set(order[:kept]), kept


def ash_p(train, test):
    out = []
    for x in rows(test.features):
        keep, _ = _largest(x, 65)
        out.append(-logsumexp(head(test, [v if i in keep else 0.0 for i, v in enumerate(x)])))
    return out


def ash_b(train, test):
    out = []
    for x in rows(test.features):
        keep, kept = _largest(x, 65)
        fill = math.fsum(x) / kept
        out.append(-logsumexp(head(test, [fill if i in keep else 0.0 for i in range(len(x))])))
    return out


def ash_s(train, test):
    out = []
    for x in rows(test.features):
        keep, _ = _largest(x, 90)
        factor = math.exp(math.fsum(x) / math.fsum(x[i] for i in keep))
        out.append(-logsumexp(head(test, [v * factor if i in keep else 0.0 for i, v in enumerate(x)])))
    return out


def scale(train, test):
    out = []
    for x in rows(test.features):
        keep, _ = _largest(x, 85)
        factor = math.exp(math.fsum(x) / math.fsum(x[i] for i in keep))
        out.append(-logsumexp(head(test, [v * factor for v in x])))
    return out


def _residual(train):
    """Project with the orthogonal projector on the left-over space, by numpy's SVD instead of an eigenproblem."""
    weight, bias = np.asarray(train.weight, np.float64), np.asarray(train.bias, np.float64)
    origin = -np.linalg.pinv(weight) @ bias
    centred = np.asarray(train.features, np.float64) - origin
    _, _, directions = np.linalg.svd(centred, full_matrices=True)
    principal = directions[: centred.shape[1] // 2]

    def length(x):
        x = np.asarray(x) - origin
        inside = sum((direction * dot(direction, x) for direction in principal), np.zeros(len(x)))
        return norm((x - inside).tolist())

    return length


def residual(train, test):
    length = _residual(train)
    return [length(x) for x in rows(test.features)]


def vim(train, test):
    length = _residual(train)
    top = math.fsum(max(z) for z in rows(train.logits)) / len(train)
    a = top / (math.fsum(length(x) for x in rows(train.features)) / len(train))
    return [a * length(x) - logsumexp(z) for x, z in zip(rows(test.features), rows(test.logits), strict=True)]


def _unit(x):
    size = norm(x)
    return [v / size for v in x] if size > 0 else x


def knn(train, test):
    bank = [_unit(x) for x in rows(train.features)]
    out = []
    for x in rows(test.features):
        u = _unit(x)
        distances = sorted(math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(u, v, strict=True))) for v in bank)
        out.append(distances[49])
    return out


def _class_means(train, classes):
    means = {}
    for c in sorted(set(classes)):
        members = [x for x, y in zip(rows(train.features), classes, strict=True) if y == c]
        means[c] = [math.fsum(column) / len(members) for column in zip(*members, strict=True)]
    return means


def _covariance(points):
    d = len(points[0])
    return np.array([[math.fsum(p[i] * p[j] for p in points) / len(points) for j in range(d)] for i in range(d)])


def _tied(train):
    classes = train.labels.tolist()
    means = _class_means(train, classes)
    centred = [
        [a - b for a, b in zip(x, means[y], strict=True)] for x, y in zip(rows(train.features), classes, strict=True)
    ]
    return means, np.linalg.pinv(_covariance(centred), hermitian=True)


def _quadratic(x, centre, precision):
    gap = np.asarray(x) - np.asarray(centre)
    return float(gap @ precision @ gap)


def mahalanobis(train, test):
    means, precision = _tied(train)
    return [min(_quadratic(x, m, precision) for m in means.values()) for x in rows(test.features)]


def relative_mahalanobis(train, test):
    points = rows(train.features)
    centre = [math.fsum(column) / len(points) for column in zip(*points, strict=True)]
    background = np.linalg.pinv(
        _covariance([[a - b for a, b in zip(x, centre, strict=True)] for x in points]), hermitian=True
    )
    near = mahalanobis(train, test)
    return [s - _quadratic(x, centre, background) for s, x in zip(near, rows(test.features), strict=True)]


def kl_matching(train, test):
    groups = {}
    for z in rows(train.logits):
        p = softmax(z)
        groups.setdefault(p.index(max(p)), []).append(p)
    templates = [[math.fsum(column) / len(g) for column in zip(*g, strict=True)] for g in groups.values()]
    out = []
    for z in rows(test.logits):
        p = softmax(z)
        out.append(min(math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True)) for q in templates))
    return out


def she(train, test):
    right = [
        i
        for i, (z, y) in enumerate(zip(rows(train.logits), train.labels.tolist(), strict=True))
        if z.index(max(z)) == y
    ]
    means = _class_means(train[right], train.labels[right].tolist())
    return [
        -dot(x, means.get(z.index(max(z)), [0.0] * len(x)))
        for x, z in zip(rows(test.features), rows(test.logits), strict=True)
    ]


def nnguide(train, test):
    bank = [(_unit(x), logsumexp(z)) for x, z in zip(rows(train.features), rows(train.logits), strict=True)]
    out = []
    for x, z in zip(rows(test.features), rows(test.logits), strict=True):
        u = _unit(x)
        terms = sorted((e * dot(u, v) for v, e in bank), reverse=True)
        out.append(-logsumexp(z) * math.fsum(terms[:10]) / 10)
    return out


def fdbd(train, test):
    points, weight = rows(train.features), rows(train.weight)
    centre = [math.fsum(column) / len(points) for column in zip(*points, strict=True)]
    out = []
    for x, z in zip(rows(test.features), rows(test.logits), strict=True):
        c = z.index(max(z))
        spread = norm([a - b for a, b in zip(x, centre, strict=True)])
        total = 0.0
        for y in range(len(z)):
            if y != c:
                total += (z[c] - z[y]) / norm([a - b for a, b in zip(weight[c], weight[y], strict=True)])
        out.append(-total / (len(z) - 1) / spread)
    return out


def dice(train, test):
    points, weight = rows(train.features), rows(train.weight)
    centre = [math.fsum(column) / len(points) for column in zip(*points, strict=True)]
    share = [[w * m for w, m in zip(row, centre, strict=True)] for row in weight]
    level = float(np.percentile([v for row in share for v in row], 90))
    out = []
    for x in rows(test.features):
        z = []
        for row, contribution, b in zip(weight, share, rows(train.bias), strict=True):
            z.append(b + math.fsum(w * v for w, v, s in zip(row, x, contribution, strict=True) if s > level))
        out.append(-logsumexp(z))
    return out


ORACLES = {
    "msp": of_logits(msp),
    "mls": of_logits(lambda z: -max(z)),
    "ebo": of_logits(lambda z: -logsumexp(z)),
    "odin": of_logits(odin),
    "gradnorm": gradnorm,
    "l1_norm": of_features(lambda x: -math.fsum(abs(v) for v in x)),
    "react": react,
    "ash_p": ash_p,
    "ash_b": ash_b,
    "ash_s": ash_s,
    "residual": residual,
    "vim": vim,
    "knn": knn,
    "mahalanobis": mahalanobis,
    "relative_mahalanobis": relative_mahalanobis,
    "kl_matching": kl_matching,
    "entropy": of_logits(entropy),
    "doctor": of_logits(doctor),
    "gen": of_logits(gen),
    "she": she,
    "nnguide": nnguide,
    "scale": scale,
    "fdbd": fdbd,
    "dice": dice,
    "margin": of_logits(margin),
    "l2_norm": of_features(lambda x: -norm(x)),
}
