"""A classifier that knows the digits 0-5 meets traffic with all ten, and learns when not to answer.

Real data embedded in scikit-learn; run by `make demo`. Leaves demo-output/report.html and demo-output/plane.svg.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from poscod import POSCOD, Decisions
from poscod.risk import bayes_decision_from_logits
from poscod.selector import accept, tpr_threshold
from poscod.strategies import sirc, sirc_parameters

ALPHA, TPR_MIN = 0.5, 0.9


def main(folder: Path = Path("demo-output")) -> None:
    # 1. Data: known digits are ID, the others OOD.
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    known = y <= 5
    (labelled, y_labelled), (traffic_id, _), (test, y_test) = [
        (X[known][part], y[known][part]) for part in np.split(np.arange(known.sum()), [600, 780])
    ]
    traffic_ood, ood = np.split(X[~known], [100])
    traffic = np.concatenate([traffic_id, traffic_ood])  # a log of inputs: nobody says which digit is which

    # 2. Fit: a fifth of the labelled rows trains the classifier, so that it makes mistakes worth rejecting.
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model = POSCOD(classifier, alpha=ALPHA, tpr_min=TPR_MIN, calibration=0.8, random_state=0)
    model.fit(labelled, y_labelled, X_unlabeled=traffic)

    # 3. Compare with the conditional risk alone and with SIRC on the same r and g, all at the same required TPR.
    seen = {"test": model.decide(test), "ood": model.decide(ood)}
    a, b = sirc_parameters(np.exp(model.calibration_.log_ratio))
    rules = {
        "MSP alone": model.at(alpha=0.0).evaluate(test, y_test, ood),
        "poscod": model.evaluate(test, y_test, ood),
    }
    wrong = seen["test"].label != y_test
    rows = [
        (
            name,
            r.tpr.estimate,
            r.fpr.estimate,
            r.selective_risk.estimate,
            (1 - ALPHA) * r.selective_risk.estimate + ALPHA * r.fpr.estimate,
        )
        for name, r in rules.items()
    ]
    rows.insert(1, _sirc_row(model, seen, wrong, a, b))

    # 4. The story.
    free = model.evaluate_unlabeled(test[:150], y_test[:150], np.concatenate([test[150:], ood[:100]]))
    low, high = model.ratio_.ood_prior_interval(0.9)
    promise = rules["poscod"].tpr
    story = [
        f"A digit classifier knows 0-5 (accuracy {1 - wrong.mean():.1%} on fresh ones) and is sent all ten digits.",
        f"Its log of {len(traffic)} unlabelled inputs is all we have of the others.",
        f"Estimated share of unknown digits in the log: {model.ood_prior_:.0%} (90 % interval {low:.0%} to {high:.0%});"
        f" the truth, unknown to the method, is {len(traffic_ood) / len(traffic):.0%}.",
        f"Asked: accept {TPR_MIN:.0%} of known digits; relative cost of accepting an unknown one alpha = {ALPHA}.",
        f"Kept on fresh data: {promise.estimate:.1%} accepted (95 % interval {promise.low:.1%} to {promise.high:.1%}).",
        f"Unknown digits accepted: {rules['poscod'].fpr.estimate:.1%}; estimated without a single label of them: "
        f"{free.fpr.estimate:.1%} (95 % interval {free.fpr.low:.1%} to {free.fpr.high:.1%}).",
    ]
    header = ("rule", "known accepted", "unknown accepted", "error of accepted", "SCOD risk")
    print("\n".join(story), "", sep="\n")
    print("{:<14}{:>16}{:>18}{:>19}{:>11}".format(*header))
    for label, *values in rows:
        print(f"{label:<14}{values[0]:>16.1%}{values[1]:>18.1%}{values[2]:>19.1%}{values[3]:>11.3f}")
    folder.mkdir(exist_ok=True)
    picture = _plane(seen, wrong, model.threshold_, model.beta_)
    (folder / "plane.svg").write_text(picture)
    (folder / "report.html").write_text(_page(story, header, rows, picture))
    print(f"\nReport: {folder / 'report.html'}")


def _sirc_row(model: POSCOD, seen: dict[str, Decisions], wrong: np.ndarray, a: float, b: float) -> tuple[object, ...]:
    """SIRC on the same r and g, its threshold on the same calibration rows."""
    kept = model.calibration_
    risk = bayes_decision_from_logits(kept.logits, temperature=model.temperature_).risk
    rule = tpr_threshold(sirc(risk, np.exp(kept.log_ratio), a, b), TPR_MIN)
    accepted, passed = (
        accept(sirc(seen[name].risk, np.exp(seen[name].log_ratio), a, b), rule.threshold) for name in ("test", "ood")
    )
    selective = float(wrong[accepted].mean())
    return "SIRC(MSP, g)", accepted.mean(), passed.mean(), selective, (1 - ALPHA) * selective + ALPHA * passed.mean()


def _plane(seen: dict[str, Decisions], wrong: np.ndarray, threshold: float, beta: float) -> str:
    """Draw the (r, log10 g) plane with the optimal line as SVG."""
    width, height, left, top = 640, 400, 60, 20
    x = lambda r: left + np.clip((np.log10(np.maximum(r, 1e-6)) + 6) / 6, 0, 1) * (width - left - 20)  # noqa: E731
    y = lambda g: top + np.clip((4 - g / np.log(10)) / 8, 0, 1) * (height - top - 50)  # noqa: E731
    parts = []
    groups = [
        ("ood", np.ones(len(seen["ood"]), bool), "#d1495b", "unknown digit"),
        ("test", ~wrong, "#2e86ab", "known, answered right"),
        ("test", wrong, "#222222", "known, answered wrong"),
    ]
    for i, (name, mask, colour, text) in enumerate(groups):
        dots = zip(x(seen[name].risk[mask]), y(seen[name].log_ratio[mask]), strict=True)
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}" fill-opacity="0.55"/>' for a, b in dots]
        parts.append(f'<circle cx="{left + 12}" cy="{top + 12 + 18 * i}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{left + 24}" y="{top + 17 + 18 * i}">{text}</text>')
    r = np.logspace(-6, np.log10(min(threshold, 1.0)) - 1e-9, 200)
    edge = np.log(np.maximum(threshold - r, 1e-300) / beta)
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x(r), y(edge), strict=True))
    axes = "".join(
        f'<text x="{x(10.0**k):.0f}" y="{height - 28}" text-anchor="middle">{10.0**k:g}</text>' for k in (-6, -4, -2, 0)
    ) + "".join(
        f'<text x="{left - 8}" y="{y(k * np.log(10)) + 4:.0f}" text-anchor="end">1e{k}</text>'
        for k in (-4, -2, 0, 2, 4)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13" '
        'role="img" aria-label="Conditional risk r against likelihood ratio g: the accepted inputs lie below the line '
        'r + beta g = lambda"><rect width="100%" height="100%" fill="white"/>'
        f'{"".join(parts)}{axes}<polyline points="{path}" fill="none" stroke="#111" stroke-width="2" '
        f'stroke-dasharray="6 4"/><text x="{width / 2}" y="{height - 8}" text-anchor="middle">conditional risk r(x)'
        f'</text><text transform="translate(14 {height / 2}) rotate(-90)" text-anchor="middle">likelihood ratio g(x)'
        f'</text><text x="{width - 24}" y="{top + 14}" text-anchor="end">accept below the line r + beta g = lambda'
        "</text></svg>"
    )


def _page(story: list[str], header: tuple[str, ...], rows: list[tuple[str, ...]], picture: str) -> str:
    cells = "".join(
        f"<tr><td>{escape(label)}</td>"
        + "".join(f"<td>{v:.1%}</td>" for v in values[:3])
        + f"<td>{values[3]:.3f}</td></tr>"
        for label, *values in rows
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        "<title>poscod demo</title><style>body{font:16px/1.5 sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}"
        "td,th{padding:.3rem .7rem;text-align:right}td:first-child,th:first-child{text-align:left}svg{width:100%}</style>"
        "<h1>A classifier that knows when not to answer</h1>"
        + "".join(f"<p>{escape(line)}</p>" for line in story)
        + "<table><tr>"
        + "".join(f"<th>{escape(name)}</th>" for name in header)
        + f"</tr>{cells}</table><h2>What the rule sees</h2>{picture}</html>"
    )


if __name__ == "__main__":
    main()
