"""How much data does the rule need? Excess SCOD risk and miss of the TPR against the exact optimum, one axis at a time.

Run ``python -m benchmarks data_needed``. A world of Gaussians knows its best rule: two classes, OOD moved away from ID, and as many columns
of noise as asked. Every row is the mean over fits that share nothing but the world; the rule and the optimum are compared on the same
fresh rows and at the same TPR, so that the luck of those rows cancels.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD, ScodProblem
from poscod.exceptions import PoscodWarning
from poscod.theory import GaussianWorld

PROBLEM = ScodProblem(alpha=0.4, tpr_min=0.9)
WORLD = GaussianWorld(
    [[-1.2, 0.0], [1.2, 0.0]], [[-1.2, 2.5], [1.2, 2.5]], weight_id=[0.35, 0.65], weight_ood=[0.35, 0.65]
)
# (labeled rows, unlabeled rows, OOD share); one axis moves at a time.
CENTRE = (2000, 2000, 0.1)
LABELED = (100, 200, 500, 1000, 5000)
UNLABELED = (100, 200, 500, 1000, 5000)
SHARES = (0.01, 0.02, 0.05, 0.2, 0.4)
COLUMNS = (2, 20)
# None is the default of POSCOD, a share holds rows out, a number above one makes folds.
CALIBRATIONS = (None, 0.3, 0.5, 0.8, 5)
FRESH = 10_000


class Fit(NamedTuple):
    """What one fit reached."""

    excess: float
    excess_risk_alone: float
    tpr: float
    ood_prior: float


def with_noise(X: Any, columns: int, rng: np.random.Generator) -> Any:
    """Append columns that say nothing."""
    return np.hstack([X, rng.normal(size=(len(X), columns - X.shape[1]))])


def risk_of(decide: Any, known: Any, ood: Any) -> tuple[float, float]:
    """Return SCOD risk and TPR, with the world's own posterior in place of drawn labels."""
    (accept, label), (accept_ood, _) = decide(known), decide(ood)
    wrong = 1.0 - WORLD.posterior(known[:, :2])[np.arange(len(known)), label]
    return PROBLEM.risk(float(wrong[accept].mean()), float(accept_ood.mean())), float(accept.mean())


def excess(model: POSCOD, known: Any, ood: Any) -> tuple[float, float]:
    """Return how much the fitted rule's risk exceeds the best rule's of the same TPR on the same rows, and that TPR."""

    def fitted(X: Any) -> tuple[Any, Any]:
        decisions = model.decide(X)
        return decisions.accept, decisions.label

    risk, tpr = risk_of(fitted, known, ood)
    problem = ScodProblem(PROBLEM.alpha, tpr)
    cut = np.quantile(WORLD.rejection_score(known[:, :2], problem), tpr, method="inverted_cdf")

    def optimal(X: Any) -> tuple[Any, Any]:
        return WORLD.rejection_score(X[:, :2], problem) <= cut, WORLD.posterior(X[:, :2]).argmax(axis=1)

    return risk - risk_of(optimal, known, ood)[0], tpr


def one_fit(
    n_labeled: int, n_unlabeled: int, pi: float, columns: int, seed: int, fresh: int, calibration: float | None = None
) -> Fit:
    rng = np.random.default_rng(seed)
    X, y = WORLD.sample_id(n_labeled, random_state=seed)
    traffic, _ = WORLD.sample_mixture(n_unlabeled, pi, random_state=10_000 + seed)
    known, _ = WORLD.sample_id(fresh, random_state=20_000 + seed)
    ood = WORLD.sample_ood(fresh, random_state=30_000 + seed)
    X, traffic, known, ood = (with_noise(rows, columns, rng) for rows in (X, traffic, known, ood))
    asked: dict[str, Any] = {"alpha": PROBLEM.alpha, "tpr_min": PROBLEM.tpr_min}
    if calibration is not None:
        asked["calibration"] = calibration
    model = POSCOD(LogisticRegression(), **asked, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoscodWarning)  # a closed gate is counted in the table
        model.fit(X, y, X_unlabeled=traffic)
    gap, tpr = excess(model, known, ood)
    return Fit(gap, excess(model.at(alpha=0.0), known, ood)[0], tpr, model.ood_prior_)


def main(quick: bool = False) -> None:
    seeds, fresh = (2, 2000) if quick else (12, FRESH)
    n_labeled, n_unlabeled, pi = CENTRE
    cells = [(n, n_unlabeled, pi) for n in LABELED]
    cells += [(n_labeled, n, pi) for n in UNLABELED]
    cells += [(n_labeled, n_unlabeled, share) for share in SHARES]
    print(f"## How much data: alpha = {PROBLEM.alpha}, tpr_min = {PROBLEM.tpr_min}, {seeds} fits per row")
    print(f"The smallest possible SCOD risk is {WORLD.solve(PROBLEM).risk:.4f}.\n")
    widths = COLUMNS[:1] if quick else COLUMNS
    _header("labeled", "unlabeled", "pi")
    for columns in widths:
        for cell in [CENTRE, *(cells[::5] if quick else cells)]:
            _row(columns, cell, [one_fit(*cell, columns, seed, fresh) for seed in range(seeds)])
    print("\n### How the labeled rows are used, at the centre\n")
    _header("calibration")
    for columns in widths:
        for calibration in CALIBRATIONS:
            fits = [one_fit(*CENTRE, columns, seed, fresh, calibration) for seed in range(seeds)]
            name = "default" if calibration is None else calibration if calibration < 1 else f"{calibration} folds"
            _row(columns, (name,), fits)


def _header(*axes: str) -> None:
    names = ["columns", *axes, "excess risk", "+-", "r alone", "mean TPR", "sd of TPR", "pi_hat", "gate closed"]
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")


def _row(columns: int, cell: tuple[Any, ...], fits: list[Fit]) -> None:
    gap, alone, tpr, prior = (np.array(values) for values in zip(*fits, strict=True))
    numbers = [gap.mean(), gap.std(ddof=1) / len(gap) ** 0.5, alone.mean()]
    shares = [tpr.mean(), tpr.std(ddof=1), prior.mean()]
    texts = [columns, *cell, *(f"{v:.4f}" for v in numbers), *(f"{v:.3f}" for v in shares)]
    print(f"| {' | '.join(map(str, texts))} | {(prior == 0).sum()} of {len(prior)} |", flush=True)


if __name__ == "__main__":
    main()
