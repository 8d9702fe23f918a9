# SPDX-License-Identifier: BSD-3-Clause
"""What a monitor compares traffic with: counts of ID rows, counts of rows that hold OOD, and what was promised.

Convention: made once from a fitted model and then a file of its own; model and monitor share nothing else. The ID rows are
rows that nothing was fitted on. The second sample is a mixture with OOD share ``prior``: 1 for clean OOD rows, estimated for
unlabelled traffic, so one formula serves both.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from poscod._evaluation import estimate_share
from poscod._validation import Floats, check_count, check_number
from poscod.decision import Decisions, rejection_reason
from poscod.exceptions import InvalidInputError
from poscod.metrics import Interval, binomial_interval
from poscod.monitor._partitions import PARTITIONS, Cells, Counts, count, quantile_edges
from poscod.problem import ScodProblem
from poscod.risk import bayes_decision_from_logits
from poscod.strategies import rejection_score

SCHEMA = 1
"""Number of the format of references; a reader refuses other numbers."""
SOURCES: dict[str, str] = {
    "ood": "clean OOD rows",
    "unlabelled": "fresh unlabelled rows",
    "fit": "the unlabelled rows that fitted the ratio: they look slightly more OOD to it than fresh rows do",
    "none": "nothing: FPR is unknown, every OOD share is a lower bound",
}
"""Where the knowledge of OOD inputs comes from."""


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
    source : {"ood", "unlabelled", "fit", "none"}
        Key of `SOURCES`.
    tpr_min : float
        Promised TPR; NaN where the rule promises none.
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
    tpr_min: float
    loss: Any
    loss_counts: dict[float, int]
    created: str = field(default="")

    @classmethod
    def from_model(
        cls,
        model: Any,
        *,
        ood: Any = None,
        unlabelled: Any = None,
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
        unlabelled : rows, default=None
            Fresh traffic, instead. With neither, the unlabelled rows of the fit are used, and `SOURCES` says what is wrong
            with them.
        pi : float in (0, 1], default=None
            OOD share of ``unlabelled`` where it is known; None estimates it.
        bins : int, default=12
            Bins of each histogram.
        created : date, datetime or str, default=None
            When the calibration rows were drawn; None is today.

        Returns
        -------
        reference : Reference
        """
        if ood is not None and unlabelled is not None:
            raise InvalidInputError("ood and unlabelled must not both be given: clean OOD rows say more, pass ood.")
        known, codes = _calibration(model)
        source = "ood" if ood is not None else "unlabelled" if unlabelled is not None else "fit"
        if source == "fit":
            mixed = _decisions(model, model.calibration_.traffic_logits, model.calibration_.traffic_log_ratio)
        else:
            mixed = model.decide(ood if ood is not None else unlabelled)
        problem, answer = model.problem_, np.searchsorted(model.classes_, known.label)
        return cls.from_decisions(
            known,
            problem.losses(codes, answer, len(model.classes_)),
            mixed,
            prior=_share(model, source if len(mixed) else "none", known.log_ratio, mixed.log_ratio, pi),
            source=source if len(mixed) else "none",
            classes=model.classes_.tolist(),
            threshold=float(model.threshold_),
            tpr_min=float(getattr(problem, "tpr_min", math.nan)),
            loss=problem.loss,
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
        prior: Interval,
        source: str,
        classes: list[Any],
        threshold: float,
        tpr_min: float = math.nan,
        loss: Any = "zero_one",
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
        prior : Interval
            Share of OOD among the latter.
        source : {"ood", "unlabelled", "fit", "none"}
            What they are.
        classes : list
            Labels that can be answered.
        threshold : float
            Decisions accept where the score is at most this.
        tpr_min : float, default=nan
            Promised TPR, if any.
        loss : {"zero_one", "absolute"} or array-like of shape (K, K), default="zero_one"
        bins : int, default=12
            Bins of each histogram.
        created : date, datetime or str, default=None
            None is today.

        Returns
        -------
        reference : Reference
        """
        bins = check_count(bins, "bins", 2)
        inside, beyond = known[known.accept], mixed[mixed.accept]
        cells = Cells(
            quantile_edges(known.score, mixed.score, bins, at=threshold),
            quantile_edges(known.log_ratio, mixed.log_ratio, bins),
            quantile_edges(inside.risk, beyond.risk, bins) if len(inside) else np.zeros(0),
            classes,
            threshold,
        )
        values, times = np.unique(np.asarray(losses, dtype=np.float64)[known.accept], return_counts=True)
        return cls(
            cells,
            count(known, cells),
            count(mixed, cells),
            prior,
            source,
            tpr_min,
            loss if isinstance(loss, str) else tuple(tuple(float(v) for v in row) for row in loss),
            dict(zip(values.tolist(), times.tolist(), strict=True)),
            _date(created),
        )

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
        partition : str

        Returns
        -------
        rejected : ndarray of bool
        """
        return PARTITIONS[partition].rejected(self.cells)

    def tpr(self, level: float = 0.95) -> Interval:
        """Return the TPR with its exact interval.

        Parameters
        ----------
        level : float in (0, 1), default=0.95

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

        Returns
        -------
        fpr : Interval
            NaN and [0, 1] where nothing is known.
        """
        if self.source == "none" or self.prior.estimate == 0.0:
            return Interval(math.nan, 0.0, 1.0, level)
        accepted = binomial_interval(self.n_mixed - int(self.mixed_counts["label"][-1]), self.n_mixed, level=level)
        tpr, (_, low, high, _) = self.tpr(level), self.prior_at(level)
        gap, eta = tpr.estimate - accepted.estimate, 1.0 / self.prior.estimate
        value = tpr.estimate - gap * eta
        # Three independent errors: of A, of T and of the prior; their distances add in squares.
        ends = []
        for a, t, p in ((accepted.low, tpr.high, low), (accepted.high, tpr.low, high)):
            shift = abs(gap) * (1.0 / p if p else math.inf) - abs(gap) * eta
            ends.append(math.hypot(eta * (accepted.estimate - a), (eta - 1.0) * (t - tpr.estimate), shift))
        low, high = max(0.0, value - ends[0]), min(1.0, value + ends[1])
        return Interval(min(1.0, max(0.0, value)), min(low, 1.0), max(high, 0.0), level)

    def to_dict(self) -> dict[str, Any]:
        """Return the reference as JSON types.

        Returns
        -------
        data : dict
        """
        return {
            "schema": SCHEMA,
            "classes": self.cells.classes,
            "threshold": _number(self.cells.threshold),
            "edges": {name: getattr(self.cells, name).tolist() for name in ("score", "ratio", "risk")},
            "id": {name: counts.tolist() for name, counts in self.id_counts.items()},
            "mixed": {name: counts.tolist() for name, counts in self.mixed_counts.items()},
            "prior": list(self.prior),
            "source": self.source,
            "tpr_min": _number(self.tpr_min),
            "loss": self.loss if isinstance(self.loss, str) else [list(row) for row in self.loss],
            "losses": [[value, times] for value, times in sorted(self.loss_counts.items())],
            "created": self.created,
        }

    @classmethod
    def from_dict(cls, data: Any) -> Reference:
        """Read what `to_dict` returned.

        Parameters
        ----------
        data : dict

        Returns
        -------
        reference : Reference
        """
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else type(data).__name__
            raise InvalidInputError(
                f"The reference must have schema {SCHEMA}, got {found!r}: make it again with this version."
            )
        try:
            edges = {name: np.asarray(data["edges"][name], dtype=np.float64) for name in ("score", "ratio", "risk")}
            cells = Cells(classes=list(data["classes"]), threshold=float(data["threshold"]), **edges)
            loss = data["loss"] if isinstance(data["loss"], str) else tuple(tuple(row) for row in data["loss"])
            known, mixed = (
                {name: read_counts(data[side][name], len(p.rejected(cells))) for name, p in PARTITIONS.items()}
                for side in ("id", "mixed")
            )
            reference = cls(
                cells,
                known,
                mixed,
                Interval(*(float(v) for v in data["prior"])),
                str(data["source"]),
                float(data["tpr_min"]),
                loss,
                {float(value): int(times) for value, times in data["losses"]},
                str(data["created"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"The reference is damaged ({type(error).__name__}: {error}): make it again."
            ) from None
        return reference


def read_counts(values: Any, length: int) -> Counts:
    """Read a vector of counts."""
    if not isinstance(values, list) or len(values) != length or not all(type(v) is int and v >= 0 for v in values):
        raise ValueError(f"expected {length} whole numbers >= 0")
    return np.array(values, dtype=np.int64)


def _calibration(model: Any) -> tuple[Decisions, Any]:
    kept = getattr(model, "calibration_", None)
    if kept is None:
        raise InvalidInputError("model must be a fitted POSCOD.")
    if kept.weight is not None:
        raise InvalidInputError(
            "model was fitted with sample_weight, and a reference counts rows: fit without weights."
        )
    return _decisions(model, kept.logits, kept.log_ratio), kept.codes


def _decisions(model: Any, logits: Floats, log_ratio: Floats) -> Decisions:
    code, risk = bayes_decision_from_logits(logits, model.problem_.loss, temperature=model.temperature_)
    score = rejection_score(risk, log_ratio, model.beta_)
    accept = score <= model.threshold_
    reason = rejection_reason(risk, score, accept)
    return Decisions(model.classes_[code], accept, reason, risk, log_ratio, score)


def _share(model: Any, source: str, known: Floats, mixed: Floats, pi: float | None) -> Interval:
    """Return the OOD share of the second sample."""
    if source == "ood":
        return Interval(1.0, 1.0, 1.0, 0.95)
    if source == "none":
        return Interval(0.0, 0.0, 0.0, 0.95)
    if pi is not None:
        value = check_number(pi, "pi", 0.0, 1.0, closed="right")
        return Interval(value, value, value, 0.95)
    if source == "unlabelled":
        return estimate_share(known, mixed, 0.95)
    low, high = model.ratio_.ood_prior_interval(0.95)
    return Interval(float(model.ood_prior_), float(low), float(high), 0.95)


def _date(created: Any) -> str:
    if created is None:
        created = datetime.datetime.now(datetime.timezone.utc).date()
    try:
        text = created if isinstance(created, str) else created.isoformat()
        datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (AttributeError, ValueError):
        raise InvalidInputError(f"created must be a date such as 2026-01-31, got {created!r}.") from None
    return text


def _number(value: float) -> float | str:
    """Return a number that JSON can hold: it knows no infinity."""
    return value if math.isfinite(value) else str(value)
