# SPDX-License-Identifier: BSD-3-Clause
"""What a monitor compares traffic with: counts of ID rows, counts of rows that hold OOD, and what was promised.

Convention: made once from a fitted model and then a file of its own; model and monitor share nothing else. The ID rows are
rows that nothing was fitted on. The second sample is a mixture with OOD share ``prior``: 1 for clean OOD rows, estimated for
unlabeled traffic, so one formula serves both.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from poscod._json import plain
from poscod._validation import Floats, check_count, check_number
from poscod.decision import Decisions
from poscod.exceptions import InvalidInputError
from poscod.metrics import Interval, binomial_interval
from poscod.model import estimate_share
from poscod.monitor._partitions import Cells, Counts, count, quantile_edges, rejected
from poscod.problem import ScodProblem
from poscod.rule import Rule
from poscod.selector import unlabeled_fpr

SCHEMA = 2
"""Number of the format of references; a reader refuses other numbers."""


@dataclass(frozen=True, eq=False)
class Reference:
    """Counts that describe a rule at the time it was made.

    Parameters
    ----------
    cells : Cells
        Borders of the cells that everything is counted in.
    id_counts : dict of str to ndarray
        ID rows in every partition.
    mixed_counts : dict of str to ndarray
        Rows of the second sample in every partition.
    prior : Interval
        OOD share of the second sample.
    source : {"ood", "unlabeled", "fit", "none"}
        What the second sample is: clean OOD rows, fresh traffic, the traffic of the fit, or nothing.
    rule : dict
        The rule that decides, as `poscod.rule.Rule.to_dict` says it: what was asked, the threshold, what is promised.
    loss : str or tuple of tuple of float
        Loss of the problem.
    loss_counts : dict of float to int
        Losses of the answers on accepted ID rows, and how often each occurred.
    created : str
        ISO date of the calibration.

    Notes
    -----
    `Reference.from_model` makes one, `to_dict` and `from_dict` carry it as JSON, ``fingerprint`` names it in states.

    Examples
    --------
    >>> from poscod import POSCOD
    >>> from poscod.theory import GaussianWorld
    >>> world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
    >>> X, y = world.sample_id(1200, random_state=0)
    >>> model = POSCOD(tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=world.sample_mixture(600, 0.3, random_state=1)[0])
    >>> reference = Reference.from_model(model, ood=world.sample_ood(500, random_state=2), created="2026-01-31")
    >>> round(reference.tpr().estimate, 3), reference.source, reference.fpr().estimate < 0.2
    (0.9, 'ood', True)
    """

    cells: Cells
    id_counts: dict[str, Counts]
    mixed_counts: dict[str, Counts]
    prior: Interval
    source: str
    rule: dict[str, Any]
    loss: Any
    loss_counts: dict[float, int]
    created: str

    @classmethod
    def from_model(
        cls,
        model: Any,
        *,
        ood: Any = None,
        unlabeled: Any = None,
        pi: float | None = None,
        bins: int = 12,
        created: Any = None,
    ) -> Reference:
        """Make a reference of a fitted POSCOD.

        Parameters
        ----------
        model : POSCOD
            Fitted on unweighted rows.
        ood : rows, default=None
            Clean OOD rows that nothing was fitted on: the best knowledge of FPR.
        unlabeled : rows, default=None
            Fresh traffic, instead. With neither, the unlabeled rows of the fit are used, which look slightly more OOD to the ratio than
            fresh rows do.
        pi : float in (0, 1], default=None
            OOD share of ``unlabeled`` where it is known; None estimates it.
        bins : int, default=12
            Bins of each histogram.
        created : date, datetime or str, default=None
            When the calibration rows were drawn; None is today.

        Returns
        -------
        reference : Reference
        """
        if ood is not None and unlabeled is not None:
            raise InvalidInputError(
                "{ood} and {unlabeled} must not both be given: clean OOD rows say more.", parameter="ood"
            )
        rule, rows = getattr(model, "rule_", None), getattr(model, "calibration_", None)
        if rule is None or rows is None:
            raise InvalidInputError("model must be a fitted POSCOD.")
        if rows.weight is not None:
            raise InvalidInputError(
                "model was fitted with sample_weight, and a reference counts rows: fit without weights."
            )
        fresh, known = ood if ood is not None else unlabeled, rule.decide(rows.known(rule.problem.loss))
        mixed = rule.decide(rows.traffic(rule.problem.loss)) if fresh is None else model.decide(fresh)
        source = "fit" if fresh is None else "unlabeled" if ood is None else "ood"
        return cls.from_decisions(
            known,
            rows.losses(rule.problem),
            mixed,
            rule=rule,
            prior=_share(model, source, known.log_ratio, mixed.log_ratio, pi),
            source=source if len(mixed) else "none",
            classes=rows.classes.tolist(),
            bins=bins,
            created=created,
        )

    @classmethod
    def from_decisions(
        cls,
        known: Decisions,
        losses: Any,
        mixed: Decisions,
        *,
        rule: Rule,
        prior: Interval,
        source: str,
        classes: list[Any],
        bins: int = 12,
        created: Any = None,
    ) -> Reference:
        """Make a reference of decisions, whoever made them.

        Parameters
        ----------
        known : Decisions
            On ID rows that nothing was fitted on.
        losses : array-like of shape (len(known),)
            Losses of the answers.
        mixed : Decisions
            On rows that hold OOD; may be empty.
        rule : Rule
            By which they were made.
        prior : Interval
            Share of OOD among the latter.
        source : {"ood", "unlabeled", "fit", "none"}
            What they are.
        classes : list
            Labels that can be answered.
        bins : int, default=12
            Bins of each histogram.
        created : date, datetime or str, default=None
            None is today.

        Returns
        -------
        reference : Reference
        """
        bins, document = check_count(bins, "bins", 2), rule.to_dict()
        threshold, inside, beyond = document["threshold"], known[known.accept], mixed[mixed.accept]
        score = quantile_edges(known.score, mixed.score, bins, at=threshold)
        ratio = quantile_edges(known.log_ratio, mixed.log_ratio, bins)
        risk = quantile_edges(inside.risk, beyond.risk, bins) if len(inside) else np.zeros(0)
        cells = Cells(score, ratio, risk, classes, threshold)
        values, times = np.unique(np.asarray(losses, dtype=np.float64)[known.accept], return_counts=True)
        spent = dict(zip(values.tolist(), times.tolist(), strict=True))
        of_known, of_mixed = count(known, cells), count(mixed, cells)
        return cls(cells, of_known, of_mixed, prior, source, document, rule.problem.loss, spent, _date(created))

    @property
    def tpr_promised(self) -> float | None:
        """Promised TPR; None where the rule promises none."""
        promise = self.rule["promise"]
        return promise["bound"] if promise and promise["quantity"] == "tpr" else None

    @property
    def n_id(self) -> int:
        """Number of ID rows."""
        return int(self.id_counts["label"].sum())

    @property
    def n_mixed(self) -> int:
        """Number of rows of the second sample."""
        return int(self.mixed_counts["label"].sum())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the reference's JSON."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    @cached_property
    def loss_matrix(self) -> Floats:
        """Losses ``l[y, y']`` in the order of the classes."""
        return ScodProblem(loss=self.loss).loss_matrix(len(self.cells.classes))

    def rejected(self, partition: str) -> Any:
        """Return which cells of a partition hold rejected rows.

        Parameters
        ----------
        partition : {"score", "ratio", "risk", "label"}
            What the cells are cells of.

        Returns
        -------
        rejected : ndarray of bool
        """
        return rejected(self.cells)[partition]

    def tpr(self, level: float = 0.95) -> Interval:
        """Return the TPR with its exact interval.

        Parameters
        ----------
        level : float in (0, 1), default=0.95
            Coverage of the interval.

        Returns
        -------
        tpr : Interval

        Notes
        -----
        The threshold is an order statistic of the same m rows: with k of them accepted and no ties, the true TPR is
        distributed as Beta(k, m + 1 - k), whose quantiles lie inside the Clopper-Pearson interval. So that holds here, too.
        """
        return binomial_interval(self.n_id - int(self.id_counts["label"][-1]), self.n_id, level=level)

    def prior_at(self, level: float) -> Interval:
        """Return the OOD share of the second sample with an interval of a level.

        Parameters
        ----------
        level : float in (0, 1)
            Coverage of the interval.

        Returns
        -------
        prior : Interval

        Notes
        -----
        The distances of ``prior`` are stretched by the ratio of normal quantiles; they are never shortened, because they hold
        more than sampling error.
        """
        value, low, high, known = self.prior
        stretch = max(1.0, float(ndtri(0.5 + 0.5 * level) / ndtri(0.5 + 0.5 * known)))
        low, high = max(0.0, value - stretch * (value - low)), min(1.0, value + stretch * (high - value))
        return Interval(value, low, high, level)

    def fpr(self, level: float = 0.95) -> Interval:
        """Return the FPR, through ``accepted = (1 - pi) TPR + pi FPR`` where the second sample is a mixture.

        Parameters
        ----------
        level : float in (0, 1), default=0.95
            Coverage of the interval.

        Returns
        -------
        fpr : Interval
            NaN and [0, 1] where nothing is known.
        """
        if self.source == "none" or self.prior.estimate == 0.0:
            return Interval(math.nan, 0.0, 1.0, level)
        known, mixed = (int(c["label"][:-1].sum()) for c in (self.id_counts, self.mixed_counts))
        if self.prior.low == 1.0:
            return binomial_interval(mixed, self.n_mixed, level=level)
        share = self.prior_at(level)
        counts = known, self.n_id, mixed, self.n_mixed
        found = unlabeled_fpr(*counts, share.estimate, pi_interval=(share.low, share.high), level=level)
        return Interval(found.estimate, found.low, found.high, level)

    def to_dict(self) -> dict[str, Any]:
        """Return the reference as JSON types.

        Returns
        -------
        data : dict
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        document: dict[str, Any] = plain({"schema": SCHEMA, **values})
        return document

    @classmethod
    def from_dict(cls, data: Any) -> Reference:
        """Read what `to_dict` returned.

        Parameters
        ----------
        data : dict
            Of this version.

        Returns
        -------
        reference : Reference
        """
        advice = "make it again with this version, and begin a new state with it: earlier ones do not know their rule"
        with reading("reference", data, SCHEMA, advice):
            edges = {name: np.asarray(data["cells"][name], dtype=np.float64) for name in ("score", "ratio", "risk")}
            threshold, loss = float(data["rule"]["threshold"]), data["loss"]
            cells = Cells(classes=list(data["cells"]["classes"]), threshold=threshold, **edges)
            known, mixed = (
                {name: read_counts(data[side][name], len(place)) for name, place in rejected(cells).items()}
                for side in ("id_counts", "mixed_counts")
            )
            prior = Interval(**{key: float(value) for key, value in data["prior"].items()})
            spent = {float(value): int(times) for value, times in data["loss_counts"].items()}
            loss = loss if isinstance(loss, str) else tuple(tuple(row) for row in loss)
            reference = cls(cells, known, mixed, prior, data["source"], data["rule"], loss, spent, data["created"])
            _ = reference.tpr_promised
        return reference


@contextmanager
def reading(what: str, data: Any, schema: int, advice: str) -> Iterator[None]:
    """Refuse documents of another format, and those that turn out to be damaged while they are read."""
    found = data.get("schema") if isinstance(data, dict) else type(data).__name__
    if found != schema:
        raise InvalidInputError(f"The {what} must have schema {schema}, got {found!r}: {advice}.")
    try:
        yield
    except InvalidInputError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"The {what} is damaged ({type(error).__name__}: {error}): {advice}.") from None


def read_counts(values: Any, length: int) -> Counts:
    """Read a vector of counts."""
    if not isinstance(values, list) or len(values) != length or not all(type(v) is int and v >= 0 for v in values):
        raise ValueError(f"expected {length} whole numbers >= 0")
    return np.array(values, dtype=np.int64)


def _share(model: Any, source: str, known: Floats, mixed: Floats, pi: float | None) -> Interval:
    """Return the OOD share of the second sample."""
    if source == "ood" or len(mixed) == 0 or pi is not None:
        certain = 0.0 if len(mixed) == 0 else 1.0 if source == "ood" else None
        value = check_number(pi, "pi", 0.0, 1.0, closed="right") if certain is None else certain
        return Interval(value, value, value, 0.95)
    if source == "unlabeled":
        return estimate_share(known, mixed, 0.95)
    low, high = model.scorer_.ratio.ood_prior_interval(0.95)
    return Interval(float(model.calibration_.ood_prior), float(low), float(high), 0.95)


def _date(created: Any) -> str:
    created = datetime.datetime.now(datetime.timezone.utc).date() if created is None else created
    try:
        text = created if isinstance(created, str) else created.isoformat()
        datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (AttributeError, ValueError):
        message = "{parameter} must be a date such as 2026-01-31, got {got!r}."
        raise InvalidInputError(message, parameter="created", got=created) from None
    return text
