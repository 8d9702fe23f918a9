# SPDX-License-Identifier: BSD-3-Clause
"""The fitted rule as a value: what is asked, where the line lies, what is promised, and from how many rows.

Convention: accept iff ``r + slope g <= threshold``. ``str(rule)`` is the one sentence that shell, report, service, monitor, ONNX
metadata and docs print; `Rule.to_dict` is the one document they write. Nobody derives a promise a second time.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from poscod import _show
from poscod._json import LARGEST, plain
from poscod._validation import Floats
from poscod.decision import Decisions, Scored, rejection_reason, rejection_score
from poscod.problem import Problem

__all__ = ["Promise", "Rule"]

_MIXES = {"labeled": "in the class mix of the labeled rows", "traffic": "in the class mix of the traffic"}
# What known inputs of the traffic are no longer, or perhaps; and what follows.
_MOVED = {
    "drift": ("no longer are", "seem to have moved: it is not promised for them"),
    "undecided": (
        "may no longer be",
        "may have moved, which cannot be told from OOD inputs: it may not hold for them",
    ),
}


@dataclass(frozen=True)
class Promise:
    """What a threshold promises about fresh ID inputs like the rows it was set on.

    Parameters
    ----------
    quantity : {"tpr", "selective_risk"}
        A lower bound of the share of ID inputs accepted, or an upper bound of the mean loss of those accepted.
    bound : float
        The bound.
    confidence : float or None
        Probability, over the draw of the calibration rows, with which the bound holds; None where it is met on average only.
    rules : int, default=1
        Number of compared rules for which it holds at once.
    chosen_later : bool, default=False
        Whether the rule was chosen after the fit, when the traffic could have been looked at.
    over : {"all", "classes"}, default="all"
        Whether the bound holds for all ID inputs together, or for those of every class and so for every class mix.
    mix : {"labeled", "traffic"} or None, default=None
        Whose class mix it speaks of, where that of the traffic was found to differ from that of the labeled rows; None where it was not, and
        where every class mix is meant.
    moved : {"drift", "undecided"} or None, default=None
        Whether known inputs of the traffic seem to have moved, so that it does not speak of them, or cannot be told from OOD inputs, so that it may not;
        None where nothing shows that they did.
    groups : int or None, default=None
        Number of groups of the calibration rows, where they were given or found: the bound is for a random row of a fresh group then, and its confidence
        counts groups.
    settled : bool, default=False
        Whether known inputs of the traffic have moved and verdicts of people say where to, so that it speaks of them.

    Examples
    --------
    >>> print(Promise("tpr", 0.95, None))
    TPR is about 0.95
    >>> print(Promise("selective_risk", 0.01, 0.9))
    selective risk is at most 0.01 with probability 0.9
    >>> print(Promise("tpr", 0.95, 0.9, over="classes"))
    TPR of every class is at least 0.95 with probability 0.9
    >>> print(Promise("tpr", 0.95, mix="traffic"))
    TPR in the class mix of the traffic is about 0.95
    """

    quantity: str
    bound: float
    confidence: float | None = None
    rules: int = 1
    chosen_later: bool = False
    over: str = "all"
    mix: str | None = None
    moved: str | None = None
    groups: int | None = None
    settled: bool = False

    def __str__(self) -> str:
        name = {"tpr": "TPR", "selective_risk": "selective risk"}[self.quantity]
        name += " of every class" if self.over == "classes" else "" if self.mix is None else f" {_MIXES[self.mix]}"
        if self.confidence is None:
            return f"{name} is about {self.bound:g}" + (" or more" if self.over == "classes" else "")
        return f"{name} is at {'least' if self.quantity == 'tpr' else 'most'} {self.bound:g} with probability {self.confidence:g}"

    @property
    def condition(self) -> str:
        """What the promise is conditional on, in a sentence."""
        like = "It speaks of ID inputs like the calibration rows"
        if self.over == "classes":
            like += " of their class, in any class mix"
        elif self.mix is not None:
            like += f" {_MIXES[self.mix]}" + (", which is not that of the traffic" if self.mix == "labeled" else "")
        like += "" if self.groups is None else ", a random one of a fresh group"
        if self.settled and self.over == "all":
            like = "It speaks of the known inputs of the traffic, which have moved"
        elif self.settled:
            like += ", weighted like the known inputs of the traffic, which have moved"
        like += "" if self.moved is None else f", which known inputs of the traffic {_MOVED[self.moved][0]}"
        if self.confidence is None:
            return f"{like}, on average."
        if self.rules > 1:
            return f"{like}, and holds for {self.rules} compared rules at once."
        if self.chosen_later:
            return (
                f"{like}, and of one rule that was chosen without a look at the traffic: whoever compares k rules there asks for "
                "all of them at once, with rules=k."
            )
        return f"{like}, and of one rule that was fixed before those rows were looked at."

    def to_dict(self) -> dict[str, Any]:
        """Return the promise as plain values.

        Returns
        -------
        document : dict
            The parameters, and the condition as a sentence; ready for JSON.
        """
        return {**asdict(self), "condition": self.condition}


@dataclass(frozen=True)
class Rule:
    """A line in the plane of r and g: accept iff r + slope g <= threshold.

    Parameters
    ----------
    problem : Problem
        What was asked.
    slope : float
        Weight of g; infinite means g alone.
    threshold : float
        lambda.
    promise : Promise or None, default=None
        What the threshold promises; None where it was set for a cost, a budget or a share of the traffic.
    rows : int, default=0
        Calibration rows that the threshold was set on.
    void : str, default=""
        Why nothing is promised, where something was asked for.
    verdicts : int, default=0
        Verdicts of people that g was learned from, beside labeled and unlabeled rows.

    Examples
    --------
    >>> from poscod.problem import ScodProblem
    >>> rule = Rule(ScodProblem(0.5, 0.95), 0.95, 0.1234, Promise("tpr", 0.95), 500)
    >>> print(rule)
    Accept where r + 0.95 g <= 0.1234 (alpha = 0.5, tpr_min = 0.95). About 95 % of ID inputs are accepted: met on average over 500 calibration rows, not guaranteed.
    >>> scored = Scored(np.array([3, 7]), np.array([0.1, 0.1]), np.log([0.01, 1.0]))
    >>> rule.decide(scored).reason.tolist()
    ['accepted', 'unfamiliar']
    """

    problem: Problem
    slope: float
    threshold: float
    promise: Promise | None = None
    rows: int = 0
    void: str = ""
    verdicts: int = 0

    def score(self, scored: Any) -> Floats:
        """Return the rejection score of each input.

        Parameters
        ----------
        scored : Scored
            Or anything with ``risk`` and ``log_ratio``.

        Returns
        -------
        score : ndarray of shape (n,)
        """
        return rejection_score(scored.risk, scored.log_ratio, self.slope)

    def decide(self, scored: Scored) -> Decisions:
        """Answer or abstain, and say why.

        Parameters
        ----------
        scored : Scored
            Inputs after scoring.

        Returns
        -------
        decisions : Decisions
        """
        score = self.score(scored)
        accept = score <= self.threshold
        part = np.zeros(len(score)) if self.slope == math.inf else scored.risk
        reason = rejection_reason(part, score, accept)
        return Decisions(scored.label, accept, reason, scored.risk, scored.log_ratio, score)

    @property
    def tpr_promised(self) -> float | None:
        """Promised share of ID inputs accepted; None where none is promised."""
        return self.promise.bound if self.promise is not None and self.promise.quantity == "tpr" else None

    def _repr_html_(self) -> str:
        return _show.paragraph(str(self))

    def __str__(self) -> str:
        moved = None if self.promise is None else self.promise.moved
        later = "" if moved is None else f" Known inputs of the traffic {_MOVED[moved][1]}."
        if self.promise is not None and self.promise.settled:
            later = " Known inputs of the traffic have moved, and it is for them: the verdicts say where they are."
        looked = f" {self.verdicts:,} verdicts of people were used." * (self.verdicts > 0)
        return f"Accept where {self._line()} <= {self.threshold:.4g} ({self.problem.words}). {self._promised()}{later}{looked}"

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as plain values: what every document says of it.

        Returns
        -------
        document : dict
            problem, slope, threshold, promise (or None), rows and the sentence; ready for JSON, with the largest double for
            infinity, so that comparisons come out the same.
        """
        return plain(
            {
                "problem": self.problem.to_dict(),
                "slope": self.slope,
                "threshold": self.threshold,
                "promise": None if self.promise is None else self.promise.to_dict(),
                "rows": self.rows,
                "verdicts": self.verdicts,
                "sentence": str(self),
            },
            infinity=LARGEST,
        )

    def _line(self) -> str:
        if self.slope == math.inf:
            return "g"
        if self.slope == 0.0:
            return "r"
        return f"r {'-' if self.slope < 0 else '+'} {abs(self.slope):.4g} g"

    def _promised(self) -> str:
        promise = self.promise
        if promise is None:
            why = f": {self.void}" if self.void else ""
            nothing = f"othing is promised about the share of ID inputs accepted{why}."
            share = getattr(self.problem, "share", None)
            return (
                f"N{nothing}"
                if share is None
                else f"At most {100 * share:.6g} % of the traffic seen at fit is rejected; n{nothing}"
            )
        percent = f"{100 * promise.bound:.6g} %"
        mix = "" if promise.mix is None else f" {_MIXES[promise.mix]}"
        inputs = "the ID inputs of every class" if promise.over == "classes" else f"ID inputs{mix}"
        inputs += "" if promise.groups is None else ", each group counting once,"
        of = "" if promise.groups is None else f" of {promise.groups:,} groups"
        if promise.confidence is None:
            about = f"About {percent}" + (" or more" if promise.over == "classes" else "")
            return f"{about} of {inputs} are accepted: met on average over {self.rows:,} calibration rows{of}, not guaranteed."
        if promise.quantity == "tpr":
            what = f"At least {percent} of {inputs} are accepted"
        elif self.problem.loss == "zero_one":
            what = f"At most {percent} of the accepted {inputs} are answered wrongly"
        else:
            what = f"The mean loss of accepted {inputs} is at most {promise.bound:.6g}"
        many = f", for {promise.rules} compared rules at once" if promise.rules > 1 else ""
        alone = ", if this rule was chosen without a look at the traffic" * (promise.chosen_later and not many)
        any_mix = ", so whatever the class mix" * (promise.over == "classes")
        other = "; the traffic has another class mix" * (promise.mix == "labeled")
        confidence = f"{100 * promise.confidence:.6g} %"
        over = (
            f"{self.rows:,} held-out rows"
            if promise.groups is None
            else f"{promise.groups:,} held-out groups ({self.rows:,} rows)"
        )
        return f"{what}, with probability {confidence} over {over}{any_mix}{many}{alone}{other}."
