# SPDX-License-Identifier: BSD-3-Clause
"""Measure a fitted model on fresh rows and say it in one dictionary.

Convention: the dictionary holds plain values only (JSON can write it), its top-level keys are those of `SCHEMA`, and nothing in it is
formatted. Dates and names are those given, never invented.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sklearn

from poscod._json import plain
from poscod._validation import check_count
from poscod.exceptions import InvalidInputError
from poscod.model import (
    choices_document,
    drift_document,
    measure,
    measure_own,
    measure_promise,
    n_rows,
    read_sample,
    required_tpr,
    rules_of,
    take,
    tally,
)
from poscod.plot import RiskCurveDisplay, ScoreDistributionDisplay
from poscod.report import _sections as sections
from poscod.report._explorer import explorer_data
from poscod.report._review import review_section
from poscod.report._strangers import strangers_section

SCHEMA = 3
"""Number of the layout of summaries."""


def summarise(
    model: Any,
    *,
    X: Any,
    y: Any,
    X_ood: Any = None,
    X_unlabeled: Any = None,
    pi: float | None = None,
    level: float = 0.95,
    class_mix: str = "traffic",
    title: str | None = None,
    created: str | None = None,
    names: Mapping[str, str] | None = None,
    class_names: Sequence[str] | None = None,
    columns: Mapping[str, Any] | None = None,
    n_examples: int = 3,
    max_columns: int = 6,
    explorer: bool = True,
    max_points: int | None = None,
    review: Any = None,
    verdicts: Any = None,
    missing: str = "worst",
    groups: bool = True,
    times: Any = None,
) -> dict[str, Any]:
    """Measure a fitted model on fresh rows.

    Parameters
    ----------
    model : POSCOD
        Fitted.
    X : like the rows given to `POSCOD.fit`
        Fresh ID rows: rows that nothing was fitted on.
    y : array-like of shape (n,)
        Their labels.
    X_ood : like X, default=None
        Clean OOD rows, where there are some.
    X_unlabeled : like X, default=None
        Fresh traffic; not the rows the ratio was fitted on.
    pi : float in (0, 1], default=None
        Share of OOD inputs in this traffic where it is known; None estimates it.
    level : float in (0, 1), default=0.95
        Coverage of each interval.
    class_mix : {"traffic", "labeled"}, default="traffic"
        Class mix of the ID inputs that rates are for: that of X_unlabeled, or, without it, the one that the model serves; or that of X as it comes.
    title : str, default=None
        Of the page.
    created : str, default=None
        A date to print; none is invented.
    names : mapping of str to str, default=None
        What to call the "model" and the tables "id", "ood", "unlabeled", e.g. their file names.
    class_names : sequence of str, default=None
        Names of the classes in the order of ``classes_``; None takes the labels themselves.
    columns : mapping of str to table, default=None
        For the groups "id", "ood" and "unlabeled" a data frame, or a mapping from column to values, from which example rows are shown; None
        takes X itself where it is a data frame.
    n_examples : int, default=3
        Example rows of each group and reason.
    max_columns : int, default=6
        Columns of an example row.
    explorer : bool, default=True
        Whether r, log g and loss of every row are part of the summary, which the what-if explorer needs.
    max_points : int or None, default=None
        Largest number of rows of a group that the explorer gets; None gives it all, and then its numbers are those of
        `POSCOD.evaluate`.
    review : Queue, default=None
        Of `poscod.review.queue` on X_unlabeled: rows that people should look at, which the page then shows.
    verdicts : array-like of shape (n,), default=None
        What people said of the rows of `review`, as `poscod.review.assess` takes it; the page then shows what follows for the rule.
    missing : {"worst", "random"}, default="worst"
        What rows of `review` without a verdict are, see `poscod.review.assess`.
    groups : bool, default=True
        Whether groups of likely OOD rows of X_unlabeled are looked for, which takes a second or two.
    times : array-like of shape (n,), default=None
        When each row of X_unlabeled came, as `poscod.review.stranger_groups` takes it: groups then have a first and a last time, and a rate.

    Returns
    -------
    summary : dict
        Plain values, ready for JSON:

        * schema: number of this layout, 3.
        * title: title of the report.
        * created: date as it was given, or None.
        * names: what model and tables are called: model, id, ood, unlabeled.
        * versions: versions of poscod, numpy and scikit-learn.
        * rule: the rule that is measured: problem, slope, threshold, promise, rows, sentence.
        * model: what was fitted: classifier, ratio, temperature, uses_features, held_out, loss.
        * classes: names of the classes.
        * rows: numbers of rows: calibration, id, ood, unlabeled.
        * level: nominal coverage of every interval.
        * alpha: cost of accepting an OOD input by which rules are judged.
        * required_tpr: what rival rules are asked for: the required TPR, or what the rule reaches on calibration rows.
        * promise: quantity, bound, confidence; measured with interval, verdict (held, open, missed, none).
        * class_mix: for which mix rates are (of), the mix served (at_fit), and that of the fresh traffic where it is another one (here).
        * drift: what is known of inputs that had moved at fit, or may have, with its sentence, or None.
        * estimates: what the rule is expected to do by the rows of its fit alone, and a few other rules, as `poscod fit` tells it.
        * rates: what the rule achieves: tpr, selective_risk, fpr, risk; accepted, free_fpr, free_risk from unlabeled rows.
        * rules: the same for each rule at the same required TPR: poscod, risk (MSP), ratio, sirc.
        * plane: points (risk, log_ratio) by group with accept, boundaries of the rules.
        * curves: risk, selective_risk and fpr with intervals by rule and tpr_min, in long form.
        * distributions: histograms of risk and log_ratio by group, in long form.
        * rejections: by group: counts by class and reason.
        * examples: rejected rows and accepted mistakes with the user's columns.
        * review: rows for people to look at, with reasons and verdicts, and what these say (assessment); None where none are given.
        * strangers: groups of likely OOD rows of the traffic with size, what sets them apart and examples, and the length of a list with a promise; None without them.
        * ratio: OOD share at fit and here, diagnosis of g; None without a ratio.
        * reliability: is r honest: bins, error, p_value.
        * explorer: arrays and positions of the what-if explorer; None where left out.

    Examples
    --------
    >>> from poscod import POSCOD
    >>> from poscod.theory import GaussianWorld
    >>> world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
    >>> X, y = world.sample_id(600, random_state=0)
    >>> traffic, _ = world.sample_mixture(300, pi=0.3, random_state=1)
    >>> model = POSCOD(alpha=0.3, tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=traffic)
    >>> X_test, y_test = world.sample_id(400, random_state=2)
    >>> summary = summarise(model, X=X_test, y=y_test, X_ood=world.sample_ood(200, random_state=3))
    >>> summary["rows"]["ood"], summary["promise"]["bound"]
    (200, 0.9)
    >>> summary["rates"]["fpr"]["estimate"] < 0.1
    True
    """
    check_count(n_examples, "n_examples", 0)
    check_count(max_columns, "max_columns", 0)
    tables = {"id": X, "ood": X_ood, "unlabeled": X_unlabeled}
    for name, rows in zip(("X", "X_ood", "X_unlabeled"), tables.values(), strict=True):
        if rows is not None and n_rows(rows) == 0:
            message = "{parameter} must hold at least one row, got none: leave the rows out instead."
            raise InvalidInputError(message, parameter=name)
    if review is None and verdicts is not None:
        raise InvalidInputError("verdicts must come with review, the queue that they are about: give it, too.")
    if review is not None and X_unlabeled is None:
        raise InvalidInputError("review must come with X_unlabeled, the log that it was drawn from: give it, too.")
    sample = read_sample(model, X, y, X_ood, X_unlabeled, pi=pi, level=level, class_mix=class_mix)
    classes = model.scorer_.classes.tolist()
    labels = [str(c) for c in (classes if class_names is None else class_names)]
    if len(labels) != len(classes):
        message = "{parameter} must name {allowed} classes, got {got}."
        raise InvalidInputError(message, parameter="class_names", allowed=len(classes), got=len(labels))
    measured = measure_own(sample)
    every = tally(np.ones(len(sample.loss), dtype=bool), sample.loss, sample.loss_values, sample.codes, len(classes))
    shown = {name: _columns(name, (columns or {}).get(name), rows) for name, rows in tables.items() if rows is not None}

    def why(name: str, places: Any) -> list[str]:
        if not len(places):
            return []
        return model.decide(take(tables[name], places), explain=True).detail.tolist()

    summary = {
        "schema": SCHEMA,
        "title": "When to answer: a poscod report" if title is None else title,
        "created": created,
        "names": {name: (names or {}).get(name) for name in ("model", *tables)},
        "versions": {
            "poscod": sys.modules["poscod"].__version__,
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "rule": model.rule_.to_dict(),
        "model": sections.model_section(model),
        "classes": labels,
        "rows": {"calibration": len(model.calibration_), **{name: sample.sizes.get(name, 0) for name in tables}},
        "level": sample.level,
        "alpha": sample.alpha,
        "required_tpr": required_tpr(sample),
        "promise": sections.promise_section(model.rule_, measure_promise(sample)),
        "class_mix": sections.mix_section(model, sample, labels),
        "drift": drift_document(model),
        "estimates": choices_document(model, sample.level),
        "rates": {
            **sections.rates_section(measured),
            "loss_of_all": every.mean_loss(sample.level, sample.loss_values, sample.mix),
            "zero_one": sample.zero_one,
        },
        "rules": [{"name": rule.name, **sections.rates_section(measure(rule, sample))} for rule in rules_of(sample)],
        "plane": sections.plane_section(sample),
        "curves": RiskCurveDisplay.from_sample(sample).columns(),
        "distributions": ScoreDistributionDisplay.from_sample(sample).columns(),
        "rejections": sections.rejections_section(sample, labels),
        "examples": sections.examples_section(sample, labels, shown, why, n_examples, max_columns),
        "review": None
        if review is None
        else review_section(
            model,
            X_unlabeled,
            review,
            verdicts,
            labels,
            shown["unlabeled"],
            lambda places: why("unlabeled", places),
            max_columns,
            sample.level,
            missing,
        ),
        "strangers": strangers_section(
            model,
            X_unlabeled,
            labels,
            shown.get("unlabeled", {}),
            (n_examples, max_columns),
            sample.level,
            X_id=X,
            times=times,
        )
        if groups
        else None,
        "ratio": sections.ratio_section(model, sample),
        "reliability": sections.reliability_section(sample),
        "explorer": explorer_data(sample, max_points=max_points) if explorer else None,
    }
    found: dict[str, Any] = plain(summary)
    return found


def _columns(name: str, given: Any, rows: Any) -> Mapping[str, Any]:
    """Return the columns of example rows: those given, or those of the rows themselves where they have names."""
    table = given if given is not None else rows if hasattr(rows, "columns") else {}
    found = {str(key): np.asarray(table[key]) for key in getattr(table, "columns", table)}
    for key, values in found.items():
        if len(values) != n_rows(rows):
            raise InvalidInputError(
                f"columns[{name!r}][{key!r}] must have as many rows as that table ({n_rows(rows)}), got {len(values)}."
            )
    return found
