# SPDX-License-Identifier: BSD-3-Clause
"""Why an input is unfamiliar: the columns that make it so, or the labeled rows that are nearest to it.

Convention: what a column does to log g is measured by an exchange: its cell gives way to a typical one of similar labeled rows, alone, and after all others have given way. The mean of
both changes is its part. All exchanges are scored at once, by the scorer that decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod import scores
from poscod._validation import Floats
from poscod.activations import Activations
from poscod.decision import Decisions, Explained
from poscod.model._familiar import FARTHEST, Cells, Familiar, cells_of, differences, exchanged, kept_rows
from poscod.model._parts import Labeled
from poscod.model._prepare import by_name
from poscod.model._rows import n_rows, take
from poscod.model._schema import Schema
from poscod.model._scorer import Scorer
from poscod.ratio import logit_evidence

Indices = NDArray[np.intp]

# Similar rows that tell what is typical, columns that are tried in a row, and columns that are named.
SIMILAR, TRIED, NAMED = 20, 16, 3
# Part of the largest part that a column must have to be named, too.
ALSO = 0.2
# Part of log g that is left at most after all exchanges.
LEFT = 0.5
# Rows, and cells, that are exchanged at a time.
BLOCK_ROWS, BLOCK_CELLS = 16384, 2**23
# Share of labeled rows with less of an evidence, from which it speaks.
SPEAKS = 0.95
EVIDENCE = ("energy", "entropy of the answer")


def familiar_rows(engine: Any, scorer: Scorer, rows: Labeled) -> Familiar:
    """Choose labeled rows that stay with a model; the engine has rows as they were given."""
    kept = kept_rows(engine.like, rows.codes)
    some = _by_name(scorer, engine.some(rows.at[kept]))
    cells = cells_of(some, prepared=scorer.preparation is not None)
    points = scorer.view(some).features if cells is None else None
    every = (_by_name(scorer, block) for block in engine.blocks(rows.at))
    return Familiar.of(some, rows.at[kept], rows.codes[kept], cells, points).among(every)


def _by_name(scorer: Scorer, X: Any) -> Any:
    return by_name(X, scorer.columns) if hasattr(X, "columns") and scorer.columns else X


def explained(scorer: Scorer, schema: Schema, X: Any, decisions: Decisions) -> Explained:
    """Return decisions with a detail for every input that was rejected as unfamiliar."""
    words = np.full(len(decisions), "", dtype=object)
    rows = np.flatnonzero(~decisions.accept & (decisions.reason != "ambiguous"))
    familiar = scorer.familiar
    if len(rows) and familiar is not None:
        some = _by_name(scorer, take(X, rows))
        if familiar.cells is None:
            words[rows] = _by_points(scorer, schema, familiar, some)
        else:
            words[rows] = _by_columns(scorer, schema, familiar, some, decisions.log_ratio[rows])
    return Explained(**vars(decisions), detail=words.astype(str))


@dataclass(frozen=True, eq=False)
class _Exchange:
    """Rows, what is typical of rows like them, and which labeled rows those are."""

    cells: Cells
    typical: Cells
    near: Indices


def _by_columns(scorer: Scorer, schema: Schema, familiar: Familiar, X: Any, log_ratio: Floats) -> list[str]:
    assert familiar.cells is not None
    cells = cells_of(X, familiar.cells)
    if cells is None or cells.width != familiar.cells.width:  # numbers that were prepared elsewhere
        return [""] * n_rows(X)
    near = familiar.near(cells, min(SIMILAR, len(familiar.index)))
    change = _Exchange(cells, _typical(familiar, near), near)
    parts, left = column_parts(scorer, familiar, X, change, log_ratio)
    # Where most of log g is left after all exchanges, something else makes the row strange: a list, or what a network says.
    parts[(log_ratio > 0.0) & (left > LEFT * log_ratio)] = 0.0
    if (
        0 < len(schema.features) < cells.width and not schema.frame
    ):  # a column of lists, whose numbers mean nothing by themselves
        return [_nearest(schema, scorer, familiar, int(j)) for j in near[:, 0]]
    names = _names(schema, X, cells.width)
    return [_words(schema, scorer, familiar, change, i, parts[i], names) for i in range(len(cells))]


def column_parts(
    scorer: Scorer, familiar: Familiar, X: Any, change: _Exchange, log_ratio: Floats
) -> tuple[Floats, Floats]:
    """Return what each column, numbers first, adds to log g of each row, 0 for those that are not tried; and log g after all exchanges."""
    cells, typical = change.cells, change.typical
    n, width = len(cells), cells.width
    apart = np.hstack(
        [
            _apart(cells.numbers, typical.numbers, familiar.scale),
            np.where(cells.texts != typical.texts, FARTHEST, 0.0),
        ]
    )
    tried = np.argsort(-apart, axis=1, kind="stable")[:, :TRIED]
    row, place = np.nonzero(np.take_along_axis(apart, tried, axis=1) > 0.0)
    column = tried[row, place]
    # What is typical beside a cell is told by rows that are similar in all other columns.
    beside = _typical(familiar, familiar.near(cells, change.near.shape[1], tried)[row, place])
    # Three kinds of rows: one cell exchanged; all but one; all.
    one = np.zeros((len(row), width), dtype=bool)
    one[np.arange(len(row)), column] = True
    rows = np.concatenate([row, row, np.arange(n)])
    masks = np.concatenate([one, ~one, np.ones((n, width), dtype=bool)])
    others = Cells.join([beside, typical[row], typical])
    found, step = np.empty(len(rows)), max(1, min(BLOCK_ROWS, BLOCK_CELLS // max(width, 1)))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        found[part] = scorer.seen(exchanged(X, rows[part], masks[part], others[part]))[1]
    alone, last, left = np.split(found, [len(row), 2 * len(row)])
    parts = np.zeros((n, width))
    parts[row, column] = 0.5 * ((log_ratio[row] - alone) + (last - left[row]))
    return parts, left


def _apart(one: Floats, two: Floats, scale: Floats) -> Floats:
    """Return how far apart numbers are, without an end: the farthest columns are tried first."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        far = np.nan_to_num(np.abs(one - two) / scale, nan=0.0, posinf=np.finfo(np.float64).max)
    return np.maximum(far, differences(one, two, scale))


def _typical(familiar: Familiar, near: Indices) -> Cells:
    """Return a cell for each cell of some rows: the middle one of similar rows among numbers, the most frequent one among texts."""
    known = familiar.cells
    assert known is not None
    numbers = np.sort(known.numbers[near], axis=1)  # gaps come last
    middle = np.take_along_axis(numbers, np.full((len(near), 1, numbers.shape[2]), (near.shape[1] - 1) // 2), axis=1)
    texts = np.empty((len(near), known.texts.shape[1]), dtype=known.texts.dtype)
    for k in range(texts.shape[1]):
        levels, codes = np.unique(known.texts[:, k], return_inverse=True)
        votes = np.apply_along_axis(np.bincount, 1, codes[near], minlength=len(levels)) if len(near) else codes[near]
        texts[:, k] = levels[votes.argmax(axis=1)] if len(near) else texts[:, k]
    return Cells(middle[:, 0], texts, known.at, known.at_texts)


def _names(schema: Schema, X: Any, width: int) -> list[str]:
    """Return the names of the columns."""
    if hasattr(X, "columns"):
        return [str(name) for name in X.columns]
    kind = "feature" if isinstance(X, Activations) else "column"
    return list(schema.features) if len(schema.features) == width else [f"{kind} {j}" for j in range(width)]


def _words(
    schema: Schema, scorer: Scorer, familiar: Familiar, change: _Exchange, i: int, parts: Floats, names: Sequence[str]
) -> str:
    best = np.argsort(-parts, kind="stable")[:NAMED]
    chosen = [int(j) for j in best if parts[j] > 0.0 and parts[j] >= ALSO * parts[best[0]]]
    if not chosen:
        return f"no single column; {_nearest(schema, scorer, familiar, int(change.near[i, 0]))}"
    p = len(change.cells.at)
    return "; ".join(
        _number_words(familiar, change, i, j, names[change.cells.at[j]])
        if j < p
        else _text_words(familiar, change, i, j - p, names[change.cells.at_texts[j - p]])
        for j in chosen
    )


def _number_words(familiar: Familiar, change: _Exchange, i: int, j: int, name: str) -> str:
    assert familiar.cells is not None
    value, similar = change.cells.numbers[i, j], familiar.cells.numbers[change.near[i], j]
    filled = np.sort(similar[~np.isnan(similar)])
    if not len(filled):
        usual = "missing in similar rows"
    else:
        low, high = filled[len(filled) // 10], filled[-1 - len(filled) // 10]
        usual = f"{_shown(low)} in similar rows" if low == high else f"{_shown(low)} to {_shown(high)} in similar rows"
    if np.isnan(value):
        return f"{name} is missing: {usual}{'' if familiar.gaps[j] else ', never missing before'}"
    end = ""
    if value > familiar.high[j]:
        end = f", largest seen {_shown(familiar.high[j])}"
    elif value < familiar.low[j]:
        end = f", smallest seen {_shown(familiar.low[j])}"
    return f"{name} = {_shown(value)}: {usual}{end}"


def _text_words(familiar: Familiar, change: _Exchange, i: int, k: int, name: str) -> str:
    assert familiar.cells is not None
    value, usual = str(change.cells.texts[i, k]), str(change.typical.texts[i, k])
    count = int((familiar.cells.texts[change.near[i], k] == usual).sum())
    shown = f"'{usual}'" if usual else "missing"
    typical = f"{shown} in {count} of {change.near.shape[1]} similar rows"
    levels = familiar.levels[k]
    new = len(levels) > 0 and value not in levels
    if not value:
        return f"{name} is missing: {typical}{', never missing before' if new else ''}"
    never = ", never seen" if new else ""
    return f"{name} = '{value}': {typical}{never}"


def _by_points(scorer: Scorer, schema: Schema, familiar: Familiar, X: Any) -> list[str]:
    """Say which labeled row is nearest, and which evidence is unlike that of labeled rows."""
    spoken: list[list[str]] = [[] for _ in range(n_rows(X))]
    nearest: list[str] = [""] * len(spoken)
    view = scorer.view(X)
    if familiar.points is not None and view.features is not None:
        known = familiar.points
        alike = known @ known.T
        np.fill_diagonal(alike, -np.inf)
        own = alike.max(axis=1)
        like = scores.unit_rows(np.asarray(view.features, dtype=np.float32)) @ known.T
        best = like.argmax(axis=1)
        for i, j in enumerate(best.tolist()):
            nearest[i] = _nearest(schema, scorer, familiar, j)
            share = float((own > like[i, j]).mean())
            if share >= SPEAKS:
                spoken[i].append(f"farther from it than {_percent(share)} of labeled rows from theirs")
    if familiar.logits is not None:
        columns = (0, 3)  # energy, entropy
        own = logit_evidence(familiar.logits)[:, columns]
        for name, usual, values in zip(EVIDENCE, own.T, logit_evidence(view.logits)[:, columns].T, strict=True):
            for i, share in enumerate((usual[None, :] < values[:, None]).mean(axis=1).tolist()):
                if share >= SPEAKS:
                    spoken[i].append(f"{name} above that of {_percent(share)} of labeled rows")
    return ["; ".join(filter(None, [near, *words])) for near, words in zip(nearest, spoken, strict=True)]


def _nearest(schema: Schema, scorer: Scorer, familiar: Familiar, j: int) -> str:
    """Name a labeled row; people count from 1."""
    label = schema.labels(scorer.classes[familiar.codes[[j]]]).tolist()[0]
    return f"nearest labeled row: {int(familiar.index[j]) + 1:,} ({label})"


def _shown(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e3 else f"{value:,.7g}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
