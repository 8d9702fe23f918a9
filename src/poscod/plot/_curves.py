# SPDX-License-Identifier: BSD-3-Clause
"""Risk against the required TPR, rule by rule, with intervals.

Convention: at every required TPR each rule gets its threshold from the calibration rows, as `POSCOD.at(tpr_min=...)` does, and
is measured on fresh rows. Intervals are pointwise. FPR and SCOD risk come from clean OOD rows where there are some, and from
unlabelled rows otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poscod._comparison import RULES, Measured, Sample, measure, read_sample, rule_at
from poscod._validation import check_choice
from poscod.exceptions import InfeasibleProblemError
from poscod.metrics import Interval
from poscod.plot._display import RULE_STYLES, Column, Display, equal_lengths

VALUES = {"risk": "SCOD risk", "selective_risk": "selective risk", "fpr": "FPR"}
_UNKNOWN = Interval(float("nan"), float("nan"), float("nan"), float("nan"))


class RiskCurveDisplay(Display):
    """SCOD risk, selective risk and FPR of several rules at required TPRs.

    Parameters
    ----------
    rule : array-like of shape (n,), str
        Name of the rule of each point, a key of `poscod._comparison.RULES`.
    tpr_min, tpr : array-like of shape (n,)
        Required TPR, and TPR on the measured rows.
    risk, risk_low, risk_high : array-like of shape (n,)
        SCOD risk with its interval; NaN where nothing is known of OOD rows.
    selective_risk, selective_risk_low, selective_risk_high : array-like of shape (n,)
    fpr, fpr_low, fpr_high : array-like of shape (n,)

    Examples
    --------
    >>> one = [0.1, 0.2]
    >>> display = RiskCurveDisplay(["poscod"] * 2, [0.5, 0.9], [0.5, 0.9], *[one] * 9)
    >>> sorted(display.columns())[:3]
    ['fpr', 'fpr_high', 'fpr_low']
    """

    def __init__(
        self,
        rule: Any,
        tpr_min: Any,
        tpr: Any,
        risk: Any,
        risk_low: Any,
        risk_high: Any,
        selective_risk: Any,
        selective_risk_low: Any,
        selective_risk_high: Any,
        fpr: Any,
        fpr_low: Any,
        fpr_high: Any,
    ) -> None:
        self._columns = equal_lengths(
            "RiskCurveDisplay",
            rule=rule,
            tpr_min=tpr_min,
            tpr=tpr,
            risk=risk,
            risk_low=risk_low,
            risk_high=risk_high,
            selective_risk=selective_risk,
            selective_risk_low=selective_risk_low,
            selective_risk_high=selective_risk_high,
            fpr=fpr,
            fpr_low=fpr_low,
            fpr_high=fpr_high,
        )

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        y: Any,
        X_ood: Any = None,
        X_unlabeled: Any = None,
        *,
        tpr_min: Any = None,
        level: float = 0.95,
    ) -> RiskCurveDisplay:
        """Measure a fitted model and its competitors on fresh rows.

        Parameters
        ----------
        model : POSCOD
        X, y : rows and labels
        X_ood, X_unlabeled : rows, default=None
        tpr_min : array-like, default=None
            Required TPRs; None is 0.1, 0.15, ..., 0.95, 0.975, 0.99.
        level : float in (0, 1), default=0.95
            Coverage of each interval.

        Returns
        -------
        display : RiskCurveDisplay
        """
        return cls.from_sample(model, read_sample(model, X, y, X_ood, X_unlabeled, level=level), tpr_min=tpr_min)

    @classmethod
    def from_sample(cls, model: Any, sample: Sample, *, tpr_min: Any = None) -> RiskCurveDisplay:
        """Measure on rows that are decided already.

        Parameters
        ----------
        model : POSCOD
        sample : Sample
        tpr_min : array-like, default=None

        Returns
        -------
        display : RiskCurveDisplay
            Without targets that the calibration rows are too few to promise (``threshold="guaranteed"``).
        """
        targets = default_targets() if tpr_min is None else np.asarray(tpr_min, dtype=np.float64)
        names = [name for name in RULES if model.ratio_ is not None or name in ("poscod", "risk")]
        rows = []
        for name in names:
            for target in targets.tolist():
                try:
                    rule = rule_at(name, sample.calibration, sample.alpha, target)
                except InfeasibleProblemError:
                    continue
                if rule is not None:
                    rows.append((name, target, *_row(measure(rule, sample))))
        return cls(*(np.array(column) for column in zip(*rows, strict=True)))

    def columns(self) -> dict[str, Column]:
        """Return the curves in long form.

        Returns
        -------
        columns : dict of str to ndarray
        """
        return dict(self._columns)

    def _draw(self, ax: Any, value: str = "risk", **options: Any) -> None:
        label = check_choice(value, "value", VALUES)
        c = self._columns
        for name in dict.fromkeys(c["rule"].tolist()):
            mine, style = c["rule"] == name, RULE_STYLES[name]
            ax.plot(c["tpr_min"][mine], c[value][mine], style.mark, color=style.colour, label=style.label)
            low, high = c[f"{value}_low"][mine], c[f"{value}_high"][mine]
            if name == "poscod":  # one band: four would hide each other
                ax.fill_between(c["tpr_min"][mine], low, high, color=style.colour, alpha=0.12, linewidth=0)
        ax.set(xlabel="required TPR", ylabel=label, **options)
        ax.set_ylim(bottom=0.0)
        ax.legend(fontsize="small")


def default_targets() -> Any:
    """Return required TPRs that show a curve well, closer to each other near one."""
    return np.append(np.round(np.arange(0.1, 0.96, 0.05), 2), [0.975, 0.99])


def _row(measured: Measured) -> tuple[float, ...]:
    """Return tpr, then estimate, low and high of risk, selective risk and FPR."""
    risk = fpr = _UNKNOWN
    if measured.with_ood is not None:
        risk, fpr = measured.with_ood.risk, measured.with_ood.fpr
    elif measured.without is not None:
        free = measured.without
        risk, fpr = free.risk, Interval(free.fpr.estimate, free.fpr.low, free.fpr.high, free.fpr.level)
    return (measured.tpr.estimate, *risk[:3], *measured.selective_risk[:3], *fpr[:3])
