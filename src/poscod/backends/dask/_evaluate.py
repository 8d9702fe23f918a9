# SPDX-License-Identifier: BSD-3-Clause
"""What a rule achieves on fresh rows in chunks: the numbers and intervals of `POSCOD.evaluate`, from counts that add up.

Convention: rows are decided and judged by the model itself, on the workers; a chunk returns counts of accepted rows and of their losses
(`Tally`) and its part of a uniform sample of the decisions, from which comes what needs scores in order (the OOD prior, areas). Rows must be
fresh: rows that nothing was fitted on.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.backends.dask._chunks import Chunks, Indices, as_vector, draw
from poscod.backends.dask._decide import rows_for
from poscod.backends.dask._passes import Passes, Progress
from poscod.decision import Scored
from poscod.exceptions import InvalidInputError
from poscod.labels import as_labels, codes_of
from poscod.mix import ClassMix
from poscod.model import (
    MIX_ROWS,
    POSCOD,
    Competitor,
    Evaluation,
    Measured,
    Sample,
    Scorer,
    Tally,
    UnlabeledEvaluation,
    check_ratio,
    diagnosed,
    fresh_mix,
    known_codes,
    measured_of,
    mix_for,
    own_rule,
    rules_of,
    sample_of,
    tally,
)
from poscod.problem import Problem

SAMPLE_ROWS = 1_000_000
"""Rows of each group whose decisions come to this process."""


def evaluate(
    model: POSCOD,
    X_id: Any,
    y_id: Any,
    X_ood: Any,
    *,
    level: float = 0.95,
    class_mix: str = "traffic",
    progress: Progress | None = None,
) -> Evaluation:
    """Measure a rule on fresh labeled ID rows and clean OOD rows, as `POSCOD.evaluate` does.

    Parameters
    ----------
    model : POSCOD
        Fitted, in memory or on Dask.
    X_id : dask DataFrame, dask Array of shape (n, d) or DaskActivations
        Of a frame the columns that the model was fitted on are used, or all where it knows no names.
    y_id : dask Array of shape (n,), dask Series or array-like
        Labels of X_id, in the order of the rows. They are brought to this process.
    X_ood : like X_id
        Rows known to be out-of-distribution.
    level : float in (0, 1), default=0.95
        Coverage of each interval.
    class_mix : {"traffic", "labeled"}, default="traffic"
        See `POSCOD.evaluate`.
    progress : callable, default=None
        Gets (what, done, total) of the running pass.

    Returns
    -------
    evaluation : Evaluation
        TPR, FPR, selective risk and SCOD risk with intervals: of the same decisions the same numbers, to the last bit.

    Notes
    -----
    One pass over each table; a chunk returns two numbers and one count per value of the loss.
    """
    found = _own(model, {"id": X_id, "ood": X_ood}, y_id, progress, level=level, class_mix=class_mix).with_ood
    assert found is not None
    return found


def evaluate_unlabeled(
    model: POSCOD,
    X_id: Any,
    y_id: Any,
    X_unlabeled: Any,
    *,
    pi: float | None = None,
    level: float = 0.95,
    class_mix: str = "traffic",
    progress: Progress | None = None,
) -> UnlabeledEvaluation:
    """Measure a rule without any OOD label, as `POSCOD.evaluate_unlabeled` does.

    Parameters
    ----------
    model : POSCOD
        Fitted, in memory or on Dask.
    X_id : dask DataFrame, dask Array of shape (n, d) or DaskActivations
        Of a frame the columns that the model was fitted on are used, or all where it knows no names.
    y_id : dask Array of shape (n,), dask Series or array-like
        Labels of X_id, in the order of the rows. They are brought to this process.
    X_unlabeled : like X_id
        Traffic; not the rows the ratio was fitted on.
    pi : float in (0, 1], default=None
        Share of OOD inputs in this traffic where it is known; None estimates it here.
    level : float in (0, 1), default=0.95
        Coverage of each interval.
    class_mix : {"traffic", "labeled"}, default="traffic"
        See `POSCOD.evaluate_unlabeled`.
    progress : callable, default=None
        Gets (what, done, total) of the running pass.

    Returns
    -------
    evaluation : UnlabeledEvaluation
        As from `poscod.POSCOD.evaluate_unlabeled`.

    Notes
    -----
    One pass over each table. Accepted rows are counted over all rows; pi is estimated on the log-ratios of a uniform sample of at most
    10^6 rows of each table, and its interval is that of the sample. The class mix of this traffic is estimated on at most 20,000 rows of each.
    """
    options: dict[str, Any] = {"pi": pi, "level": level, "class_mix": class_mix}
    found = _own(model, {"id": X_id, "unlabeled": X_unlabeled}, y_id, progress, **options).without
    assert found is not None
    return found


@dataclass(frozen=True, eq=False)
class ChunkedSample(Sample):
    """A uniform sample of fresh rows in chunks, and what was counted on all of them.

    Parameters
    ----------
    rows : dict of str to int
        Rows of each group.
    measured : dict of str to Measured
        What each rule achieves on all rows, by the name of the rule.
    counts : dict of str to Tally
        What each rule did on all ID rows, by the name of the rule.
    """

    rows: dict[str, int] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)
    counts: dict[str, Tally] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """Rows of each group: all of them."""
        return self.rows

    @property
    def tally_id(self) -> Tally:
        """What the model's own rule did on all ID rows."""
        return self.counts["poscod"]


def read_chunks(
    model: POSCOD,
    rows: Mapping[str, Chunks],
    y: Any,
    passes: Passes,
    *,
    pi: float | None = None,
    level: float = 0.95,
    rules: Sequence[Competitor] | None = None,
    most: int = SAMPLE_ROWS,
    class_mix: str = "traffic",
) -> ChunkedSample:
    """Decide once on every group of rows, on the workers, and measure a model's own rule and its rivals."""
    sample = sample_of(model, {}, np.zeros(0), pi=pi, level=level)
    rules = rules_of(sample) if rules is None else rules
    scorer, rule = model.scorer_, model.rule_
    y = as_labels(as_vector(y))
    codes = known_codes(scorer.classes, y).astype(np.min_scalar_type(len(scorer.classes)))
    if len(codes) != len(rows["id"]):
        raise InvalidInputError(
            "{y} must have as many rows as {X} ({allowed}), got {got}.", allowed=len(rows["id"]), got=len(codes)
        )
    rng, seen = np.random.default_rng(0), {}
    for name, chunks in rows.items():
        chosen = [part.astype(np.uint32) for part in chunks.cut(draw(len(chunks), most, rng))]
        labels = chunks.spread(codes) if name == "id" else [None] * len(chosen)
        parts = chunks.map(_seen, scorer, rule.problem, rules, sample.loss_values, each=(chosen, labels)).parts
        seen[name] = passes.collect(parts, "counts")
    groups = {name: rule.decide(Scored.join([part.scored for part in parts])) for name, parts in seen.items()}
    loss = np.concatenate([part.loss for part in seen["id"]])
    labels_of = np.concatenate([part.codes for part in seen["id"]])
    mix = mix_for(model, class_mix)
    if "unlabeled" in rows and class_mix == "traffic" and scorer.ratio is not None:
        mix = _fresh_mix(model, rows, codes, passes, pi)
    found = None
    if "unlabeled" in rows:
        found = _check_ratio(model, rows["id"], y, rows["unlabeled"], passes, mix=mix, level=level)
    sample = sample_of(model, groups, loss, labels_of, mix, found, pi=pi, level=level)
    measured, counts = {}, {}
    for i, rule in enumerate(rules):
        tallies = {
            name: functools.reduce(operator.add, [part.tallies[i] for part in parts]) for name, parts in seen.items()
        }
        measured[rule.name], counts[rule.name] = measured_of(tallies, sample), tallies["id"]
    sizes = {name: len(chunks) for name, chunks in rows.items()}
    return ChunkedSample(**vars(sample), rows=sizes, measured=measured, counts=counts)


def _check_ratio(
    model: POSCOD,
    X_id: Chunks,
    y: Any,
    X_unlabeled: Chunks,
    passes: Passes,
    *,
    mix: ClassMix | None = None,
    level: float = 0.95,
) -> Any:
    """Check a model's g on the same few fresh rows as in memory."""
    picked = [diagnosed(len(chunks)) for chunks in (X_id, X_unlabeled)]
    known, traffic = (
        chunks.pick(chosen).bring(passes, "rows to check")
        for chunks, chosen in zip((X_id, X_unlabeled), picked, strict=True)
    )
    return check_ratio(model, known, y[picked[0]], traffic, mix=mix, level=level)


def _fresh_mix(
    model: POSCOD, rows: Mapping[str, Chunks], codes: NDArray[Any], passes: Passes, pi: float | None
) -> ClassMix | None:
    """Return the class mix of fresh traffic from as many rows as in memory, which are brought here."""
    sides = rows["id"], rows["unlabeled"]
    picked = [np.arange(0, len(side), -(-len(side) // MIX_ROWS)) for side in sides]
    brought = [side.pick(at).bring(passes, "class mix") for side, at in zip(sides, picked, strict=True)]
    scored = [model.scorer_.scored(part, model.rule_.problem.loss).log_ratio for part in brought]
    chosen = codes[picked[0]].astype(np.int64)
    return fresh_mix(model, (brought[0], brought[1]), chosen, (scored[0], scored[1]), pi)


class _Seen(NamedTuple):
    """One chunk: what every rule did, the rows of the sample, and losses and classes of them where labels are known."""

    tallies: list[Tally]
    scored: Scored
    loss: Floats
    codes: NDArray[Any]


def _seen(
    rows: Any,
    chosen: Indices,
    codes: NDArray[Any] | None,
    scorer: Scorer,
    problem: Problem,
    rules: Sequence[Competitor],
    loss_values: Floats,
) -> _Seen:
    scored, loss = scorer.scored(rows, problem.loss), None
    if codes is not None:
        loss = problem.losses(codes, codes_of(scorer.classes, scored.label), len(scorer.classes))
    k = len(scorer.classes)
    counts = [tally(rule.score(scored) <= rule.threshold, loss, loss_values, codes, k) for rule in rules]
    none = np.zeros(0)
    labels = none if codes is None else np.asarray(codes)[chosen]
    return _Seen(counts, scored.take(chosen), none if loss is None else loss[chosen], labels)


def _own(
    model: POSCOD,
    rows: Mapping[str, Any],
    y: Any,
    progress: Progress | None,
    *,
    level: float,
    class_mix: str,
    pi: float | None = None,
) -> Measured:
    """Measure the rule of a model; scores come here only where a share has to be estimated from them."""
    passes = Passes(progress)
    chunks = {name: rows_for(model, X, f"X_{name}", passes) for name, X in rows.items()}
    most = SAMPLE_ROWS if pi is None and "unlabeled" in rows else 0
    own = own_rule(model.rule_)
    options: dict[str, Any] = {"pi": pi, "level": level, "rules": [own], "most": most, "class_mix": class_mix}
    return read_chunks(model, chunks, y, passes, **options).measured[own.name]
