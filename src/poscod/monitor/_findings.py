# SPDX-License-Identifier: BSD-3-Clause
"""What a monitor can find: one mapping of codes, read by the monitor, the documentation and the tests.

Convention: codes are never reused. A finding says what is the case in one sentence, with the numbers it rests on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

SEVERITIES: dict[str, int] = {"info": 0, "warning": 1, "error": 2}
"""Severities and their order."""


class Definition(NamedTuple):
    """One kind of finding.

    Attributes
    ----------
    title : str
        What it is called.
    severity : {"info", "warning", "error"}
        How bad it is.
    meaning : str
        What it means, in the first sentence of its explanation.
    action : str
        What to do.
    """

    title: str
    severity: str
    meaning: str
    action: str


FINDINGS: dict[str, Definition] = {
    "PSC001": Definition(
        "OOD share above the limit",
        "error",
        "More is rejected, or has higher ratios, than the limit of OOD inputs explains.",
        "Look at the rejected inputs of these windows and find where they come from.",
    ),
    "PSC002": Definition(
        "Acceptance changed in a way that OOD inputs do not explain",
        "error",
        "More is accepted than ID inputs alone would be; or the share rejected and the likelihood ratios disagree, where OOD inputs would have changed both.",
        "The promise on TPR may be broken: label a sample of recent inputs and calibrate again.",
    ),
    "PSC003": Definition(
        "Scores of accepted inputs have drifted",
        "warning",
        "Accepted rows are nearly all ID, and their scores or conditional risks are not distributed as in the calibration rows.",
        "ID inputs are no longer like the calibration rows: label a sample of recent inputs and check TPR and selective risk.",
    ),
    "PSC004": Definition(
        "The class mix has moved",
        "info",
        "The answers of the latest windows show another class mix than the one that is served; OOD shares and alarms allow for it.",
        "Nothing, if the mix comes back; if it stays, fit again with recent traffic, so that the rule serves it.",
    ),
    "PSC005": Definition(
        "TPR below what was promised or measured",
        "error",
        "On labeled ID rows TPR is below what was promised, if anything was, and below what calibration could have missed.",
        "Calibrate the threshold again on recent labeled rows.",
    ),
    "PSC006": Definition(
        "Selective risk above what calibration showed",
        "error",
        "The mean loss of accepted labeled ID rows is above the upper confidence bound from the calibration rows.",
        "Fit or calibrate again on recent labeled rows.",
    ),
    "PSC007": Definition(
        "Too few calibration rows",
        "warning",
        "The 95 % interval of TPR is wider than 0.04: no OOD share can be known much better than that.",
        "Hold out more labeled rows: nothing can be known better than TPR is.",
    ),
    "PSC008": Definition(
        "Calibration is old",
        "warning",
        "More days than the largest age lie between the reference's date and the last window.",
        "Calibrate again on recent labeled rows.",
    ),
    "PSC009": Definition(
        "FPR is unknown or too close to TPR",
        "warning",
        "Nothing is known of OOD inputs, so every OOD share is a lower bound; or TPR and FPR do not surely differ by 0.05, so acceptance says little.",
        "Make the reference with clean OOD rows or fresh unlabeled rows that hold some OOD.",
    ),
    "PSC010": Definition(
        "Decisions that are not numbers or name unknown classes",
        "warning",
        "Scores, risks or log-ratios are NaN, or accepted answers are classes that the reference does not know.",
        "Check the inputs of these rows, and that the reference belongs to the model that decides.",
    ),
    "PSC011": Definition(
        "The reference uses the unlabeled rows that fitted the ratio",
        "info",
        "OOD shares are then known less well: their intervals are wider than with fresh rows.",
        "Make the reference with fresh unlabeled rows or clean OOD rows.",
    ),
    "PSC012": Definition(
        "The promise is broken for this class mix",
        "error",
        "Classes of which the rule accepts fewer than promised have become so frequent that the TPR over all ID inputs is below the promise, if every class is accepted as in the calibration rows.",
        "Fit again with recent traffic, or with tpr_over='classes', whose promise no class mix breaks.",
    ),
    "PSC013": Definition(
        "Inputs had moved, or may have, when the model was fitted",
        "warning",
        "Known inputs of the traffic at fit seemed to differ from the labeled rows, or could not be told from OOD inputs: what the rule calls OOD may be known inputs that moved, and nothing is promised for them.",
        "Look at rejected inputs; if they are known ones, fit again with labeled rows of today.",
    ),
    "PSC014": Definition(
        "More OOD inputs than before",
        "error",
        "More is rejected, or has higher ratios, than in the stream's own earlier windows, and the class mix does not explain it.",
        "Look at the rejected inputs of these windows and find where they come from; if the new level is normal, begin a new state.",
    ),
    "PSC015": Definition(
        "Fewer inputs are accepted than before",
        "warning",
        "The share of inputs that is accepted is lower than in the stream's own earlier windows by more than two points.",
        "See whether classes that are rejected more often have become frequent; if not, label a sample of recent inputs.",
    ),
    "PSC016": Definition(
        "Answers are wrong more often than before",
        "error",
        "The mean loss of accepted labeled ID rows is higher than in the stream's own earlier windows.",
        "Look at recent wrong answers; fit or calibrate again on recent labeled rows.",
    ),
}
"""Codes and definitions."""

AGAINST_REFERENCE = ("PSC001", "PSC002", "PSC003", "PSC005", "PSC006", "PSC012")
"""Codes of alarms that compare windows with what the reference knows."""
AGAINST_PAST = ("PSC014", "PSC015", "PSC016")
"""Codes of alarms that compare windows with earlier ones of the same stream."""
SEQUENTIAL = AGAINST_REFERENCE + AGAINST_PAST
"""Codes of alarms, which share the false-alarm rate with PSC004; the others are facts."""


@dataclass(frozen=True)
class Finding:
    """One finding.

    Parameters
    ----------
    code : str
        Key of `FINDINGS`.
    sentence : str
        What is the case.
    evidence : dict
        Numbers it rests on, as JSON types.
    active : bool, default=True
        False for an alarm that later windows have outweighed.
    mild : bool, default=False
        True for an alarm that is a warning: a rise to a share that is surely below the limit.
    """

    code: str
    sentence: str
    evidence: dict[str, Any]
    active: bool = True
    mild: bool = False

    @property
    def severity(self) -> str:
        """How bad it is; what is past is for information."""
        if not self.active:
            return "info"
        return "warning" if self.mild else FINDINGS[self.code].severity

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON types.

        Returns
        -------
        data : dict
        """
        link = f"docs/monitoring.md#{self.code.lower()}"
        return {**asdict(self), **FINDINGS[self.code]._asdict(), "severity": self.severity, "link": link}
