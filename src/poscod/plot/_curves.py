# SPDX-License-Identifier: BSD-3-Clause
"""Risk against the required TPR, rule by rule, with intervals.

Convention: at every required TPR each rule gets its threshold from the calibration rows, as `POSCOD.at(tpr_min=...)` does, and
is measured on fresh rows. Intervals are pointwise. FPR and SCOD risk come from clean OOD rows where there are some, and from
unlabeled rows otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poscod._validation import check_choice
from poscod.exceptions import InfeasibleProblemError
from poscod.model import RULES, Measured, Sample, measure, rule_at
from poscod.plot._display import RULE_STYLES, Column, Display

VALUES = {"risk": "SCOD risk", "selective_risk": "selective risk", "fpr": "FPR"}
_TARGETS = np.append(np.round(np.arange(0.1, 0.96, 0.05), 2), [0.975, 0.99])


@dataclass(eq=False, repr=False)
class RiskCurveDisplay(Display):
    """SCOD risk, selective risk and FPR of several rules at required TPRs.

    Parameters
    ----------
    rule : array-like of shape (n,), str
        Rule of each point: "poscod", "risk" (r alone), "ratio" (g alone) or "sirc".
    tpr_min, tpr : array-like of shape (n,)
        Required TPR, and TPR on the measured rows.
    risk, risk_low, risk_high : array-like of shape (n,)
        SCOD risk with its interval; NaN where nothing is known of OOD rows.
    selective_risk, selective_risk_low, selective_risk_high : array-like of shape (n,)
        Mean loss of accepted ID rows with its interval.
    fpr, fpr_low, fpr_high : array-like of shape (n,)
        Share of OOD rows accepted with its interval; NaN where nothing is known of them.

    Examples
    --------
    >>> one = [0.1, 0.2]
    >>> display = RiskCurveDisplay(["poscod"] * 2, [0.5, 0.9], [0.5, 0.9], *[one] * 9)
    >>> sorted(display.columns())[:3]
    ['fpr', 'fpr_high', 'fpr_low']
    """

    title: ClassVar[str] = "What each rule costs at a required TPR"
    rule: Column
    tpr_min: Column
    tpr: Column
    risk: Column
    risk_low: Column
    risk_high: Column
    selective_risk: Column
    selective_risk_low: Column
    selective_risk_high: Column
    fpr: Column
    fpr_low: Column
    fpr_high: Column

    @classmethod
    def from_sample(cls, sample: Sample, *, tpr_min: Any = None) -> RiskCurveDisplay:
        """Measure the model's rule and its rivals at required TPRs.

        Parameters
        ----------
        sample : Sample
            Fresh rows that a model has decided.
        tpr_min : array-like, default=None
            Required TPRs; None is 0.1, 0.15, ..., 0.95, 0.975, 0.99. Those that the calibration rows are too few to promise are left out.

        Returns
        -------
        display : RiskCurveDisplay
        """
        targets = _TARGETS if tpr_min is None else np.asarray(tpr_min, dtype=np.float64)
        rows = []
        for name in RULES if sample.has_ratio else ("poscod", "risk"):
            for target in targets.tolist():
                try:
                    rule = rule_at(name, sample, target)
                except InfeasibleProblemError:
                    continue
                if rule is not None:
                    rows.append((name, target, *_row(measure(rule, sample))))
        return cls(*(np.array(column) for column in zip(*rows, strict=True)))

    def _draw(self, ax: Any, value: str = "risk", **options: Any) -> None:
        label, c = check_choice(value, "value", VALUES), self.columns()
        for name in dict.fromkeys(self.rule.tolist()):
            mine, style = self.rule == name, RULE_STYLES[name]
            ax.plot(self.tpr_min[mine], c[value][mine], style.mark, color=style.colour, label=style.label)
            if name == "poscod":  # one band: four would hide each other
                low, high = c[f"{value}_low"][mine], c[f"{value}_high"][mine]
                ax.fill_between(self.tpr_min[mine], low, high, color=style.colour, alpha=0.12, linewidth=0)
        ax.set(xlabel="required TPR", ylabel=label, **options)
        ax.set_ylim(bottom=0.0)


def _row(measured: Measured) -> tuple[float, ...]:
    """Return tpr, then estimate, low and high of risk, selective risk and FPR."""
    found = measured.with_ood or measured.without
    values = [getattr(found, "risk", None), measured.selective_risk, getattr(found, "fpr", None)]
    ends = [getattr(value, end, np.nan) for value in values for end in ("estimate", "low", "high")]
    return (measured.tpr.estimate, *ends)
