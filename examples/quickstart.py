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

from poscod import Activations, ScodProblem
from poscod.metrics import binomial_interval
from poscod.ratio import CorrectedSigmoid
from poscod.risk import bayes_decision_from_logits
from poscod.selector import accept, tpr_threshold
from poscod.strategies import rejection_score, sirc, sirc_parameters

PROBLEM = ScodProblem(alpha=0.5, tpr_min=0.9)


def main(folder: Path = Path("demo-output")) -> None:
    # 1. Data: known digits are ID, the others OOD. Every part of ID data has one use.
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    known, unknown = y <= 5, y > 5
    (train, y_train), (held, _), (tune, _), (traffic_id, _), (test, y_test) = [
        (X[known][part], y[known][part]) for part in np.split(np.arange(known.sum()), [100, 400, 600, 780])
    ]
    traffic_ood, ood = np.split(X[unknown], [100])
    traffic = np.concatenate([traffic_id, traffic_ood])  # a log of inputs: nobody says which digit is which

    # 2. The classifier, and the two ingredients of the optimal rule: r(x) and g(x).
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(train, y_train)
    seen = {
        name: Activations(features=rows, logits=classifier.decision_function(rows))
        for name, rows in {"held": held, "traffic": traffic, "tune": tune, "test": test, "ood": ood}.items()
    }
    ratio = CorrectedSigmoid(random_state=0).fit(seen["held"], seen["traffic"])
    risk = {name: bayes_decision_from_logits(rows.logits).risk for name, rows in seen.items()}
    log_ratio = {name: ratio.log_ratio(rows) for name, rows in seen.items()}

    # 3. One number and one threshold: accept s = r + beta g <= lambda.
    a, b = sirc_parameters(np.exp(log_ratio["tune"]))
    rules = {
        "MSP alone": lambda name: risk[name],
        "SIRC(MSP, g)": lambda name: sirc(risk[name] + 1e-12, np.exp(log_ratio[name]), a, b),
        "poscod": lambda name: rejection_score(risk[name], log_ratio[name], PROBLEM.beta),
    }
    loss = (classifier.predict(test) != y_test).astype(float)
    rows, lines = [], {}
    for label, score in rules.items():
        rule = tpr_threshold(score("tune"), PROBLEM.tpr_min)
        accepted, passed = accept(score("test"), rule.threshold), accept(score("ood"), rule.threshold)
        selective = float(loss[accepted].mean())
        rows.append((label, accepted.mean(), passed.mean(), selective, PROBLEM.risk(selective, float(passed.mean()))))
        lines[label] = rule.threshold

    # 4. The story.
    interval = binomial_interval(int(accept(rules["poscod"]("test"), lines["poscod"]).sum()), len(test))
    low, high = ratio.ood_prior_interval(0.9)
    story = [
        f"A digit classifier knows 0-5 (accuracy {1 - loss.mean():.1%} on fresh ones) and is sent all ten digits.",
        f"Its log of {len(traffic)} unlabelled inputs is all we have of the others.",
        f"Estimated share of OOD inputs in the log: {ratio.ood_prior_:.0%} (90 % interval {low:.0%} to {high:.0%});"
        f" the truth, unknown to the method, is {len(traffic_ood) / len(traffic):.0%}.",
        f"Asked: accept {PROBLEM.tpr_min:.0%} of known digits; cost of accepting an unknown one alpha = {PROBLEM.alpha}.",
        f"Kept on fresh data: {rows[-1][1]:.1%} accepted (95 % interval {interval.low:.1%} to {interval.high:.1%}).",
    ]
    header = ("rule", "known accepted", "unknown accepted", "error of accepted", "SCOD risk")
    print("\n".join(story), "", sep="\n")
    print("{:<14}{:>16}{:>18}{:>19}{:>11}".format(*header))
    for label, *values in rows:
        print(f"{label:<14}{values[0]:>16.1%}{values[1]:>18.1%}{values[2]:>19.1%}{values[3]:>11.3f}")
    folder.mkdir(exist_ok=True)
    picture = _plane(risk, log_ratio, loss, lines["poscod"])
    (folder / "plane.svg").write_text(picture)
    (folder / "report.html").write_text(_page(story, header, rows, picture))
    print(f"\nReport: {folder / 'report.html'}")


def _plane(risk: dict[str, np.ndarray], log_ratio: dict[str, np.ndarray], loss: np.ndarray, threshold: float) -> str:
    """Draw the (r, log10 g) plane with the optimal line as SVG."""
    width, height, left, top = 640, 400, 60, 20
    x = lambda r: left + np.clip((np.log10(np.maximum(r, 1e-6)) + 6) / 6, 0, 1) * (width - left - 20)  # noqa: E731
    y = lambda g: top + np.clip((4 - g / np.log(10)) / 8, 0, 1) * (height - top - 50)  # noqa: E731
    parts = []
    groups = [
        ("ood", np.ones(len(risk["ood"]), bool), "#d1495b", "unknown digit"),
        ("test", loss == 0, "#2e86ab", "known, answered right"),
        ("test", loss == 1, "#222222", "known, answered wrong"),
    ]
    for i, (name, mask, colour, text) in enumerate(groups):
        dots = zip(x(risk[name][mask]), y(log_ratio[name][mask]), strict=True)
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}" fill-opacity="0.55"/>' for a, b in dots]
        parts.append(f'<circle cx="{left + 12}" cy="{top + 12 + 18 * i}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{left + 24}" y="{top + 17 + 18 * i}">{text}</text>')
    r = np.logspace(-6, np.log10(min(threshold, 1.0)) - 1e-9, 200)
    edge = np.log(np.maximum(threshold - r, 1e-300) / PROBLEM.beta)
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
