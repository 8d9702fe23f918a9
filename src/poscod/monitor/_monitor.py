# SPDX-License-Identifier: BSD-3-Clause
"""Monitor: counts decisions, says how much of the traffic is OOD and what is wrong.

Convention: the only state is counts (`poscod.monitor._ledger`); shares and findings are functions of them and of the reference.
So states of workers can be added in any order, survive restarts as JSON, and may be read as often as anyone likes.
"""

from __future__ import annotations

import secrets
import time
from typing import Any, NamedTuple

import numpy as np

from poscod._json import plain
from poscod._validation import check_count, check_number
from poscod.decision import REASONS, Decisions
from poscod.exceptions import InvalidInputError
from poscod.metrics import Interval, binomial_interval
from poscod.monitor._assess import against_past, facts, mix_moved, no_alarm, sequential
from poscod.monitor._error import errors
from poscod.monitor._estimate import estimate
from poscod.monitor._findings import SEVERITIES, Finding
from poscod.monitor._groups import Groups
from poscod.monitor._ledger import Ledger
from poscod.monitor._partitions import missing
from poscod.monitor._reference import Reference, reading
from poscod.monitor._sequential import Watch, share_of_alarms, watches
from poscod.monitor._times import check_width, window_index, window_start

SCHEMA = 3
"""Number of the format of states; a reader refuses other numbers."""
_NO_REFERENCE = "{parameter} must be a Reference, got a {got}: see Reference.from_model."
_PARAMETERS = ("window", "ood_limit", "level", "false_alarm", "max_age", "keep")


class WindowMix(NamedTuple):
    """The class mix of a window's ID part, in the order of the reference's classes.

    Attributes
    ----------
    estimate, low, high : list of float
        Shares with the ends of their intervals; NaN and [0, 1] where nothing is known.
    """

    estimate: list[float]
    low: list[float]
    high: list[float]


class Window(NamedTuple):
    """One window of traffic.

    Attributes
    ----------
    start, end : str or float
        ISO text in UTC, or numbers where the monitor's window is a number.
    n : int
        Valid decisions.
    accepted : int
        How many of them were accepted.
    pi : Interval
        OOD share from the likelihood ratio, or from acceptance alone where the likelihood ratio says nothing of OOD.
    pi_count : Interval
        OOD share from acceptance alone.
    mix : WindowMix
        Class mix of the ID part.
    reasons : dict of str to int
        Decisions by reason.
    invalid : int
        Decisions whose numbers are NaN; counted nowhere else.
    labeled : int
        Decisions whose true labels, or verdicts, have arrived.
    pi_labeled : Interval
        OOD share among these, exact; NaN and [0, 1] where there are none.
    error : Interval
        Share of wrong answers among accepted decisions, without labels; answers to OOD inputs are wrong.
    error_all : Interval
        The same if everything had been answered.
    error_labeled : Interval
        Share of wrong answers among accepted decisions with labels, exact; NaN and [0, 1] where there are none.
    """

    start: str | float
    end: str | float
    n: int
    accepted: int
    pi: Interval
    pi_count: Interval
    mix: WindowMix
    reasons: dict[str, int]
    invalid: int
    labeled: int
    pi_labeled: Interval
    error: Interval
    error_all: Interval
    error_labeled: Interval


class Monitor:
    """Count decisions by window, estimate the OOD share of each, and find what is wrong.

    Parameters
    ----------
    reference : Reference
        Of the model that decides.
    window : str or float, default="1d"
        Width of windows: a text such as "15min", "1h", "1d", or a number in the unit of ``at`` (rows, for example).
    ood_limit : float in [0, 1), default=0.1
        OOD share above which PSC001 is raised.
    level : float in (0, 1), default=0.95
        Coverage of each interval.
    false_alarm : float in (0, 1), default=0.05
        Probability of any false alarm, over all sequential findings and the monitor's whole life.
    max_age : float, default=365
        Days after which the calibration is called old.
    keep : int, default=400
        Number of windows to keep, the latest; memory does not grow beyond that.
    worker : str, default=None
        Name of who counts; None draws one. States of one worker cannot be added twice.

    Notes
    -----
    Public interface: `update`, `update_labels`, `windows`, `findings`, `summary`, `merge`, `state`, `from_state`. An object is not
    safe to update from several threads at once; give each its own and merge, or hold a lock.

    Examples
    --------
    >>> from poscod import POSCOD
    >>> from poscod.monitor import Reference
    >>> from poscod.theory import GaussianWorld
    >>> world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
    >>> X, y = world.sample_id(4000, random_state=0)
    >>> model = POSCOD(tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=world.sample_mixture(900, 0.3, random_state=1)[0])
    >>> reference = Reference.from_model(model, ood=world.sample_ood(500, random_state=2), created="2026-01-01")
    >>> monitor = Monitor(reference, ood_limit=0.05)
    >>> for day, pi in (("2026-01-01", 0.0), ("2026-01-02", 0.4)):
    ...     _ = monitor.update(model.decide(world.sample_mixture(1000, pi, random_state=3)[0]), at=day)
    >>> [(window.start[:10], window.pi.low <= pi <= window.pi.high) for window, pi in zip(monitor.windows(), (0.0, 0.4))]
    [('2026-01-01', True), ('2026-01-02', True)]
    >>> [finding.code for finding in monitor.findings()]
    ['PSC001', 'PSC014']
    """

    def __init__(
        self,
        reference: Reference,
        *,
        window: str | float = "1d",
        ood_limit: float = 0.1,
        level: float = 0.95,
        false_alarm: float = 0.05,
        max_age: float = 365,
        keep: int = 400,
        worker: str | None = None,
    ) -> None:
        if not isinstance(reference, Reference):
            raise InvalidInputError(_NO_REFERENCE, parameter="reference", got=type(reference).__name__)
        self.reference, self.window, self.width = reference, window, check_width(window)
        self.ood_limit = check_number(ood_limit, "ood_limit", 0.0, 1.0, closed="left")
        self.level = check_number(level, "level", 0.0, 1.0, closed="neither")
        self.false_alarm = check_number(false_alarm, "false_alarm", 0.0, 1.0, closed="neither")
        self.max_age = check_number(max_age, "max_age", 0.0, float("inf"), closed="right")
        self.keep = check_count(keep, "keep")
        self.workers = {secrets.token_hex(8) if worker is None else str(worker)}
        self._ledger = Ledger(reference, self.keep)
        self._groups = Groups(), Groups()
        self._watches: dict[tuple[float, float], dict[str, Watch]] = {}

    def update(self, decisions: Decisions, at: Any = None, groups: Any = None) -> Monitor:
        """Count decisions.

        Parameters
        ----------
        decisions : Decisions
            Of the model that the reference was made of.
        at : moment, or array-like of shape (n,), default=None
            When they were made: numbers (seconds since 1970 where window is a text), datetime64, datetime or ISO text; in any
            order. None is now, or the number of decisions so far where window is a number.
        groups : array-like of shape (n,), default=None
            What decisions belong to that are alike, such as a session. One of each counts in a window, drawn among those of this call, and none where
            one has counted before: shares are those of a random decision of a random group, and intervals hold for them. None or NaN: a group of its own.

        Returns
        -------
        self : Monitor
        """
        if at is None and not self.width.clock:
            at = self._ledger.total + np.arange(len(decisions))
        index = window_index(time.time() if at is None else at, len(decisions), self.width)
        counted = self._groups[0].one_of_each(index, groups, self.keep)
        self._ledger.add(index[counted], decisions[counted])
        return self

    def update_labels(self, decisions: Decisions, y: Any, at: Any, groups: Any = None) -> Monitor:
        """Count decisions whose true labels have arrived.

        Parameters
        ----------
        decisions : Decisions
            As they were made; a random sample of the traffic, not of the accepted rows only.
        y : array-like of shape (n,)
            True labels; whatever is not a class of the model, such as -1, marks an OOD row. None and NaN are refused.
        at : moment, or array-like of shape (n,)
            When the decisions were made.
        groups : array-like of shape (n,), default=None
            As in `update`.

        Returns
        -------
        self : Monitor
        """
        y = np.asarray(y) if hasattr(y, "dtype") else np.asarray(y, dtype=object)
        if y.shape != (len(decisions),):
            message = "{parameter} must hold one label per decision ({allowed}), got shape {got}."
            raise InvalidInputError(message, parameter="y", allowed=len(decisions), got=y.shape)
        if (gaps := missing(y)).any():
            message = (
                "{parameter} must hold no gaps, got {got} at row {row}: leave out rows whose labels have not arrived."
            )
            raise InvalidInputError(message, parameter="y", got=y[gaps][0], row=int(gaps.argmax()))
        index = window_index(at, len(decisions), self.width)
        counted = self._groups[1].one_of_each(index, groups, self.keep)
        self._ledger.add_labels(index[counted], decisions[counted], y[counted])
        return self

    def windows(self) -> list[Window]:
        """Return the windows that hold decisions, in the order of time.

        Returns
        -------
        windows : list of Window
        """
        out, ledger = [], self._ledger
        found = estimate(self.reference, ledger.table("ratio"), ledger.table("label"), self.level)
        wrong = errors(self.reference, ledger.table("risk"), found.pi, self.level)
        shares = zip(*(part.intervals(self.level) for part in (found.pi, found.pi_count, *wrong)), strict=True)
        mixes = np.stack([np.round(values, 5) for values in found.mix], axis=1).tolist()
        for index, (pi, count, *wrong_share), mix in zip(ledger.order(), shares, mixes, strict=True):
            counts = ledger.windows[index]
            start, end = (window_start(i, self.width) for i in (index, index + 1))
            n, invalid = int(counts["label"].sum()), int(counts["invalid"][0])
            reasons = dict(zip(REASONS, counts["reason"].tolist(), strict=True))
            seen, strange = int(counts["labeled"].sum()), int(counts["labeled"][2:].sum())
            judged = int(counts["labeled"][[0, 2]].sum())
            mistakes = int(counts["loss"][ledger.loss_values > 0.0].sum() + counts["labeled"][2])
            said, realised = (self._exact(*pair) for pair in ((strange, seen), (mistakes, judged)))
            if n + invalid:
                accepted, shares_of = n - int(counts["label"][-1]), WindowMix(*mix)
                about = shares_of, reasons, invalid, seen, said, *wrong_share, realised
                out.append(Window(start, end, n, accepted, pi, count, *about))
        return out

    def findings(self) -> list[Finding]:
        """Return what is wrong, the worst first.

        Returns
        -------
        findings : list of Finding
        """
        origin = int(window_index(self.reference.created, 1, self.width)[0]) if self.width.clock else 0
        asked = self.ood_limit, self.false_alarm
        if asked not in self._watches:
            self._watches = {asked: watches(self.reference, *asked)}
        share = share_of_alarms(self.reference, self.false_alarm)
        found = [
            *sequential(self._ledger, self._watches[asked], self.width, origin, self.ood_limit),
            *against_past(self._ledger, share, self.width, origin, self.level, self.ood_limit),
            *mix_moved(self._ledger, share, self.width, origin, self.level),
            *facts(self._ledger, self.width, self.max_age),
        ]
        return sorted(found, key=lambda finding: (-SEVERITIES[finding.severity], finding.code))

    def summary(self) -> dict[str, Any]:
        """Return reference, windows and findings as JSON types.

        Returns
        -------
        summary : dict
            Keys "reference", "parameters", "totals" (with the mean OOD share over the windows kept, and what the absence of alarms means), "windows" and "findings".
        """
        reference, ledger = self.reference, self._ledger
        ratio, label = (ledger.table(name).sum(axis=0, keepdims=True) for name in ("ratio", "label"))
        whole = estimate(reference, ratio, label, self.level)
        wrong = errors(reference, ledger.table("risk").sum(axis=0, keepdims=True), whole.pi, self.level)
        windows, findings = self.windows(), self.findings()
        most = next((window.pi.high for window in reversed(windows) if window.n), None)
        document: dict[str, Any] = plain(
            {
                "reference": {
                    "rule": reference.rule,
                    "tpr": reference.tpr(self.level),
                    "fpr": reference.fpr(self.level),
                    "prior": reference.prior_at(self.level),
                    "mix": reference.mix.to_dict(reference.cells.classes),
                    "source": reference.source,
                    "created": reference.created,
                    "n_id": reference.n_id,
                    "n_ood_or_mixed": reference.n_mixed,
                    "fingerprint": reference.fingerprint,
                },
                "parameters": self._parameters(),
                "totals": {
                    "decisions": ledger.total,
                    "dropped": ledger.dropped(),
                    "kept": int(label.sum()),
                    "accepted": int(label[:, :-1].sum()),
                    "pi": whole.pi.intervals(self.level)[0] if label.sum() else None,
                    "error": wrong.answered.intervals(self.level)[0] if label.sum() else None,
                    "no_alarm": None
                    if any(finding.severity == "error" for finding in findings)
                    else no_alarm(most, self.ood_limit),
                },
                "windows": windows,
                "findings": [finding.to_dict() for finding in findings],
            }
        )
        return document

    def merge(self, *others: Monitor) -> Monitor:
        """Return a monitor with the counts of this one and of others; the order does not matter.

        Parameters
        ----------
        *others : Monitor
            Of the same reference and parameters, and of other workers: whoever has been counted is not counted again.

        Returns
        -------
        monitor : Monitor
        """
        out = Monitor(self.reference, **self._parameters())
        out.workers = set(self.workers)
        for other in others:
            if other.reference.fingerprint != self.reference.fingerprint:
                raise InvalidInputError("Monitors of different references cannot be merged: each model has its own.")
            for name, value in other._parameters().items():
                if value != getattr(self, name):
                    message = "Monitors must have the same {parameter} to be merged, got {allowed!r} and {got!r}."
                    raise InvalidInputError(message, parameter=name, allowed=getattr(self, name), got=value)
            if twice := sorted(out.workers & other.workers):
                raise InvalidInputError(
                    f"The worker {twice[0]!r} would be counted twice: merge the latest state of each worker once, from the start."
                )
            out.workers |= other.workers
        out._ledger = self._ledger.added(*(other._ledger for other in others))
        return out

    def state(self) -> dict[str, Any]:
        """Return everything but the reference, as JSON types.

        Returns
        -------
        state : dict
        """
        return {
            "schema": SCHEMA,
            "reference": self.reference.fingerprint,
            "workers": sorted(self.workers),
            **self._parameters(),
            **self._ledger.to_dict(),
        }

    @classmethod
    def from_state(cls, state: Any, reference: Reference) -> Monitor:
        """Return the monitor that `state` described.

        Parameters
        ----------
        state : dict
            Of this version.
        reference : Reference
            The one the state was counted with; another is refused.

        Returns
        -------
        monitor : Monitor
        """
        with reading("state", state, SCHEMA, "begin a new one"):
            if state["reference"] != reference.fingerprint:
                raise InvalidInputError(
                    "The state was counted with another reference: read it with that one, or start a new state for a new model."
                )
            out = cls(reference, **{name: state[name] for name in _PARAMETERS})
            out.workers = {str(worker) for worker in state["workers"]}
            out._ledger.read(state)
        return out

    def _exact(self, k: int, n: int) -> Interval:
        return binomial_interval(k, n, level=self.level) if n else Interval(np.nan, 0.0, 1.0, self.level)

    def _parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _PARAMETERS}
