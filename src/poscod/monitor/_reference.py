# SPDX-License-Identifier: BSD-3-Clause
"""What a monitor compares traffic with: counts of ID rows by class, counts of rows that hold OOD, the class mix that is served, and what was promised.

Convention: made once from a fitted model and then a file of its own; model and monitor share nothing else. The ID rows are
rows that nothing was fitted on, counted class by class, so that they can stand for any class mix. The second sample is a mixture with OOD share ``prior``: 1 for clean OOD rows, estimated for
unlabeled traffic, so one formula serves both.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from poscod._json import plain
from poscod._validation import Floats, check_count, check_number
from poscod.decision import Decisions
from poscod.exceptions import InvalidInputError
from poscod.metrics import Interval
from poscod.mix import ClassMix
from poscod.model import (
    Tally,
    drift_document,
    estimate_share,
    mix_for,
    not_still_at_fit,
    share_at_fit,
    unlabeled_evaluation_of,
)
from poscod.monitor._laws import Laws, laws_of
from poscod.monitor._partitions import (
    MOST_CELLS,
    Cells,
    Counts,
    Layout,
    count,
    count_by_class,
    label_codes,
    layouts,
    quantile_edges,
    read_counts,
    read_sparse,
    sparse,
)
from poscod.problem import ScodProblem
from poscod.rule import Rule
from poscod.selector import selective_risk_bound

SCHEMA = 3
"""Number of the format of references; a reader refuses other numbers."""


@dataclass(frozen=True, eq=False)
class Reference:
    """Counts that describe a rule at the time it was made.

    Parameters
    ----------
    cells : Cells
        Borders of the cells that everything is counted in.
    id_counts : dict of str to ndarray of shape (K, B)
        ID rows in every partition, by true class and cell.
    mixed_counts : dict of str to ndarray of shape (B,)
        Rows of the second sample in every partition.
    mix : ClassMix
        Class mix of the ID rows as they were drawn, and the one that the rule serves, which is that of the ID part of the second sample.
    prior : Interval
        OOD share of the second sample.
    source : {"ood", "unlabeled", "fit", "none"}
        What the second sample is: clean OOD rows, fresh traffic, the traffic of the fit, or nothing.
    rule : dict
        The rule that decides, as `poscod.rule.Rule.to_dict` says it: what was asked, the threshold, what is promised.
    loss : str or tuple of tuple of float
        Loss of the problem.
    loss_counts : ndarray of shape (K, V)
        How many accepted ID rows of each class had each value of the loss.
    created : str
        ISO date of the calibration.
    drift : dict or None, default=None
        What was known at fit of inputs that moved, or may have, as every document says it.
    doubt : str, default=""
        Why ID inputs of the second sample are not like the ID rows, or may not be: only a bound of FPR is known then.

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
    mix: ClassMix
    prior: Interval
    source: str
    rule: dict[str, Any]
    loss: Any
    loss_counts: Counts
    created: str
    drift: dict[str, Any] | None = None
    doubt: str = ""

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
        rows = rows.independent()  # a reference counts rows: one of each group
        fresh, known = ood if ood is not None else unlabeled, rule.decide(rows.known(rule.problem.loss))
        mixed = rule.decide(rows.traffic(rule.problem.loss)) if fresh is None else model.decide(fresh)
        source = "fit" if fresh is None else "unlabeled" if ood is None else "ood"
        made = cls.from_decisions(
            known,
            rows.classes[rows.codes],
            mixed,
            rule=rule,
            prior=_share(model, source, known.log_ratio, mixed.log_ratio, pi),
            source=source if len(mixed) else "none",
            classes=rows.classes.tolist(),
            mix=rows.mix,
            bins=bins,
            created=created,
        )
        return replace(made, drift=drift_document(model), doubt=not_still_at_fit(rows) if source == "fit" else "")

    @classmethod
    def from_decisions(
        cls,
        known: Decisions,
        y: Any,
        mixed: Decisions,
        *,
        rule: Rule,
        prior: Interval,
        source: str,
        classes: list[Any],
        mix: ClassMix | None = None,
        bins: int = 12,
        created: Any = None,
    ) -> Reference:
        """Make a reference of decisions, whoever made them.

        Parameters
        ----------
        known : Decisions
            On ID rows that nothing was fitted on.
        y : array-like of shape (len(known),)
            Their true labels.
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
        mix : ClassMix, default=None
            Class mix that the rule serves; None is that of the ID rows.
        bins : int, default=12
            Bins of each histogram, at most: with hundreds of classes there are fewer.
        created : date, datetime or str, default=None
            None is today.

        Returns
        -------
        reference : Reference
        """
        bins, document = check_count(bins, "bins", 2), rule.to_dict()
        bins = min(bins, max(2, MOST_CELLS // (len(classes) + 1)))
        threshold, inside, beyond = document["threshold"], known[known.accept], mixed[mixed.accept]
        score = quantile_edges(known.score, mixed.score, bins, at=threshold)
        ratio = quantile_edges(known.log_ratio, mixed.log_ratio, bins)
        risk = quantile_edges(inside.risk, beyond.risk, bins) if len(inside) else np.zeros(0)
        cells = Cells(score, ratio, risk, classes, threshold)
        truth, answer = (label_codes(np.asarray(labels), classes) for labels in (y, known.label))
        if len(truth) != len(known) or max(truth.max(initial=0), answer.max(initial=0)) == len(classes):
            message = "{parameter} must hold a class of the model for every ID row, and so must their answers."
            raise InvalidInputError(message, parameter="y")
        matrix = ScodProblem(loss=rule.problem.loss).loss_matrix(len(classes))
        values = np.unique(matrix)
        spent = np.searchsorted(values, matrix[truth, answer][known.accept])
        place = truth[known.accept] * len(values) + spent
        losses = np.bincount(place, minlength=len(classes) * len(values)).reshape(len(classes), -1)
        own = ClassMix.unchanged(np.bincount(truth, minlength=len(classes)))
        served = own if mix is None or not mix.changed else replace(mix, labeled=own.labeled)
        return cls(
            cells,
            count_by_class(known, truth, cells),
            count(mixed, cells),
            served,
            prior,
            source,
            document,
            rule.problem.loss,
            losses.astype(np.int64),
            _date(created),
        )

    @property
    def tpr_promised(self) -> float | None:
        """Promised TPR; None where the rule promises none."""
        promise = self.rule["promise"]
        return promise["bound"] if promise and promise["quantity"] == "tpr" else None

    @property
    def every_class(self) -> bool:
        """Whether a TPR is guaranteed for every class: then no class mix breaks the promise."""
        promise = self.rule["promise"]
        return bool(promise and promise.get("over") == "classes" and promise["confidence"] is not None)

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

    @property
    def n_bins(self) -> int:
        """Number of bins of log g."""
        return len(self.cells.ratio) + 1

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """What the cells hold, by partition."""
        return layouts(self.cells)

    @cached_property
    def tally(self) -> Tally:
        """ID rows of each class, accepted ones, and their losses."""
        label = self.id_counts["label"]
        return Tally(np.column_stack([label.sum(axis=1), label[:, :-1].sum(axis=1), self.loss_counts]))

    def laws(self, partition: str) -> Laws:
        """Return what windows look like in the cells of a partition, in any class mix and with any OOD share.

        Parameters
        ----------
        partition : {"score", "ratio", "risk", "label"}
            What the cells are cells of.

        Returns
        -------
        laws : Laws
        """
        if partition not in self._laws:
            counts = self.id_counts[partition], self.mixed_counts[partition]
            self._laws[partition] = laws_of(*counts, self.mix.traffic, self.prior.estimate, self.layouts[partition])
        return self._laws[partition]

    @cached_property
    def _laws(self) -> dict[str, Laws]:
        return {}

    def tpr(self, level: float = 0.95) -> Interval:
        """Return the TPR in the class mix that is served, with its interval: exact where that is the mix of the ID rows.

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
        return self.tally.rate(level, self._other_mix)

    def selective_risk_bound(self, delta: float) -> float:
        """Return an upper bound of the selective risk in the class mix that is served.

        Parameters
        ----------
        delta : float in (0, 1)
            Probability that it is too low.

        Returns
        -------
        bound : float
        """
        values = np.unique(self.loss_matrix)
        if self._other_mix is not None:
            return self.tally.mean_loss(1.0 - 2.0 * delta, values, self._other_mix).high
        losses, top = np.repeat(values, self.tally.losses), None if self.loss == "zero_one" else float(values.max())
        return float(selective_risk_bound(losses, delta=delta, loss_max=top))

    @property
    def _other_mix(self) -> ClassMix | None:
        return self.mix if self.mix.changed else None

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
        mixed = Tally(np.array([[self.n_mixed, int(self.mixed_counts["label"][:-1].sum())]]))
        if self.prior.low == 1.0:
            return mixed.rate(level)
        values, mix = np.unique(self.loss_matrix), self._other_mix
        how: dict[str, Any] = {"loss_values": values, "mix": mix, "why": self.doubt}
        found = unlabeled_evaluation_of(self.tally, mixed, self.prior_at(level), 0.5, level, **how)
        return Interval(*found.fpr[:4])

    def to_dict(self) -> dict[str, Any]:
        """Return the reference as JSON types.

        Returns
        -------
        data : dict
        """
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for side in ("id_counts", "mixed_counts"):
            values[side] = {name: sparse(counts) for name, counts in values[side].items()}
        values["mix"] = {field.name: getattr(self.mix, field.name) for field in fields(self.mix)}
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
        advice = "make it again with this version, and begin a new state with it: earlier ones do not know the classes of their rows"
        with reading("reference", data, SCHEMA, advice):
            edges = {name: np.asarray(data["cells"][name], dtype=np.float64) for name in ("score", "ratio", "risk")}
            threshold, loss = float(data["rule"]["threshold"]), data["loss"]
            cells = Cells(classes=list(data["cells"]["classes"]), threshold=threshold, **edges)
            k, sizes = len(cells.classes), {name: len(layout.answer) for name, layout in layouts(cells).items()}
            known = {name: read_sparse(data["id_counts"][name], (k, size)) for name, size in sizes.items()}
            mixed = {name: read_sparse(data["mixed_counts"][name], (size,)) for name, size in sizes.items()}
            mix = _read_mix(data["mix"], k)
            prior = Interval(**{key: float(value) for key, value in data["prior"].items()})
            loss = loss if isinstance(loss, str) else tuple(tuple(row) for row in loss)
            values = len(np.unique(ScodProblem(loss=loss).loss_matrix(k)))
            if len(data["loss_counts"]) != k:
                raise ValueError(f"expected losses of {k} classes")
            spent = np.array([read_counts(row, values) for row in data["loss_counts"]])
            rule = data["rule"]
            reference = cls(
                cells,
                known,
                mixed,
                mix,
                prior,
                data["source"],
                rule,
                loss,
                spent,
                data["created"],
                _read_drift(data.get("drift")),
                str(data.get("doubt", "")),
            )
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


def _read_mix(data: Any, k: int) -> ClassMix:
    """Read the class mix that is served."""
    vectors = {name: np.asarray(data[name], dtype=np.float64) for name in ("labeled", "traffic", "low", "high")}
    covariance = None if data["covariance"] is None else np.asarray(data["covariance"], dtype=np.float64)
    if any(v.shape != (k,) for v in vectors.values()) or (covariance is not None and covariance.shape != (k, k)):
        raise ValueError(f"expected a mix of {k} classes")
    return ClassMix(
        **vectors,
        level=float(data["level"]),
        p_value=float(data["p_value"]),
        changed=bool(data["changed"]),
        covariance=covariance,
    )


def _share(model: Any, source: str, known: Floats, mixed: Floats, pi: float | None) -> Interval:
    """Return the OOD share of the second sample."""
    if source == "ood" or len(mixed) == 0 or pi is not None:
        certain = 0.0 if len(mixed) == 0 else 1.0 if source == "ood" else None
        value = check_number(pi, "pi", 0.0, 1.0, closed="right") if certain is None else certain
        return Interval(value, value, value, 0.95)
    if source == "unlabeled":
        rows = model.calibration_
        return estimate_share(known, mixed, 0.95, rows.codes, mix_for(model, "traffic"))
    return share_at_fit(model)


def _read_drift(drift: Any) -> dict[str, Any] | None:
    if drift is not None and not (isinstance(drift, dict) and isinstance(drift.get("sentence"), str)):
        raise ValueError("expected drift with a sentence")
    return drift


def _date(created: Any) -> str:
    created = datetime.datetime.now(datetime.timezone.utc).date() if created is None else created
    try:
        text = created if isinstance(created, str) else created.isoformat()
        datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (AttributeError, ValueError):
        message = "{parameter} must be a date such as 2026-01-31, got {got!r}."
        raise InvalidInputError(message, parameter="created", got=created) from None
    return text
