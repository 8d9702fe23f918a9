# SPDX-License-Identifier: BSD-3-Clause
"""Decisions on rows in chunks: a lazy table, or Parquet files, in the order of the rows.

Convention: a chunk in, a chunk of decisions out, decided by `POSCOD.decide` on a worker; nothing else happens to the rows, so that none
can be lost or doubled. Columns are those of `poscod.Decisions`.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from poscod._optional import require
from poscod.activations import Activations
from poscod.backends.dask._chunks import Chunks, as_chunks, is_frame
from poscod.backends.dask._passes import EXTRA, FEATURE, Passes, Progress, dask
from poscod.decision import Decisions
from poscod.exceptions import InvalidInputError
from poscod.model import POSCOD, Schema, Scorer
from poscod.rule import Rule


def decide(model: POSCOD, X: Any, *, keep: Sequence[str] = ()) -> Any:
    """Answer or abstain on rows in chunks, lazily.

    Parameters
    ----------
    model : POSCOD
        Fitted, in memory or on Dask.
    X : dask DataFrame, dask Array of shape (n, d) or DaskActivations
        Of a frame the columns that the model was fitted on are used, or all but `keep` where it knows no names. The rows of an array of
        unknown lengths are counted at once.
    keep : sequence of str, default=()
        Columns of a frame, such as ids, that are carried over in front of the decisions.

    Returns
    -------
    decisions : dask DataFrame
        One row per row of X, in the same order and with the same index (row numbers for arrays), with columns label, accept, reason,
        risk, log_ratio, score. Nothing is decided yet.
    """
    check_is_fitted(model, "rule_")
    scorer, rule, schema = model.scorer_, model.rule_, model.schema_
    like = _none_decided(scorer)
    if is_frame(X):
        columns, keep = _columns(schema, X, "X", keep), list(keep)
        shared = dask().delayed((scorer, rule, schema), traverse=False)
        meta = _joined(X._meta[keep], like)
        some = X[list(dict.fromkeys([*keep, *columns]))]
        return some.map_partitions(_decide_frame, shared, columns, keep, like, meta=meta, enforce_metadata=False)
    if keep:
        raise InvalidInputError(
            "{parameter} names columns of a Dask DataFrame, and {X} is not one: pass it as a frame.", parameter="keep"
        )
    frames = require("dask.dataframe", extra=EXTRA, feature=FEATURE)
    chunks = rows_for(model, X, "X", Passes())
    starts = chunks.starts.tolist()
    parts = chunks.map(_decide_rows, scorer, rule, like, each=(starts,)).parts
    return frames.from_delayed(parts, meta=like, divisions=[*starts, len(chunks) - 1], verify_meta=False)


def write_decisions(
    model: POSCOD,
    X: Any,
    path: str | os.PathLike[str],
    *,
    keep: Sequence[str] = (),
    progress: Progress | None = None,
) -> int:
    """Decide on rows in chunks and write a folder of Parquet files, one per chunk.

    Parameters
    ----------
    model : POSCOD
        Fitted.
    X : dask DataFrame, dask Array of shape (n, d) or DaskActivations
        As for `decide`.
    path : str or path-like
        Folder that does not exist yet, or a location of any fsspec store, e.g. "s3://bucket/decisions".
    keep : sequence of str, default=()
        Columns of a frame, such as ids, that are carried over.
    progress : callable, default=None
        Gets (what, done, total) of the running pass.

    Returns
    -------
    rows : int
        Rows written.

    Notes
    -----
    A file is named by the number of its chunk, so that the work of a worker that died is written once more under the same name. A local
    folder appears when it is complete; in another store it is complete when this function returns.
    """
    return write_parquet(decide(model, X, keep=keep), path, Passes(progress)).total()


def write_parquet(
    table: Any, path: str | os.PathLike[str], passes: Passes, *, count: str = "reason", index: bool = True
) -> Counter[str]:
    """Write a lazy table as a folder of Parquet files, as `write_decisions` says, and count the values of a column."""
    store, target = require("fsspec.core", extra=EXTRA, feature=FEATURE).url_to_fs(os.fspath(path))
    local = "file" in np.atleast_1d(store.protocol)
    if store.exists(target):
        raise InvalidInputError(f"{path} exists already: choose another name or remove it first.")
    if local and not Path(target).absolute().parent.is_dir():
        raise InvalidInputError(
            f"cannot write {path}: the folder {Path(target).parent} does not exist; create it first."
        )
    folder = str(Path(target).with_name(f".{Path(target).name}.{secrets.token_hex(6)}.tmp")) if local else target
    write = dask().delayed(_write, pure=False)
    store.makedirs(folder, exist_ok=True)
    try:
        parts = [
            write(part, store, f"{folder}/part-{number:06d}.parquet", count, index)
            for number, part in enumerate(table.to_delayed())
        ]
        counts: Counter[str] = passes.reduce(parts, _sum_counts, "decisions")
        if local:
            Path(folder).rename(target)
    except BaseException:
        store.rm(folder, recursive=True)
        raise
    return counts


def rows_for(model: POSCOD, X: Any, name: str, passes: Passes, keep: Sequence[str] = ()) -> Chunks:
    """Return the rows that a model reads, in chunks: of a frame, the columns that it was fitted on."""
    check_is_fitted(model, "rule_")
    schema: Schema = model.schema_
    if not is_frame(X):
        found = as_chunks(X, name, passes)
        if isinstance(found.like, Activations) != model.scorer_.network:
            raise InvalidInputError(
                "{parameter} must be of the kind given to fit: DaskActivations or not.", parameter=name
            )
        return found
    columns = _columns(schema, X, name, keep)
    return as_chunks(X, name, passes, columns=columns).map(_rows, schema)


def _columns(schema: Schema, X: Any, name: str, keep: Sequence[str]) -> list[str]:
    there = list(X.columns)
    if lost := [column for column in keep if column not in there]:
        raise InvalidInputError(
            "{keep} must name columns of {X}, got {got}: it has {allowed}.", got=lost, allowed=there
        )
    schema.check(there, name)
    return list(schema.names) or [column for column in there if column not in keep]


def _rows(frame: Any, schema: Schema) -> Any:
    """Return a chunk of a frame as a model takes it."""
    if schema.frame:
        return frame[list(schema.features)]
    return schema.rows({name: frame[name].to_numpy() for name in schema.names}) if schema.names else frame.to_numpy()


def _decisions(rows: Any, scorer: Scorer, rule: Rule) -> Decisions:
    return rule.decide(scorer.scored(rows, rule.problem.loss))


def _decide_rows(rows: Any, start: int, scorer: Scorer, rule: Rule, like: Any) -> Any:
    frame = _typed(_decisions(rows, scorer, rule), like)
    return frame.set_axis(frame.index + start)


def _decide_frame(
    frame: Any, shared: tuple[Scorer, Rule, Schema], columns: list[str], keep: list[str], like: Any
) -> Any:
    scorer, rule, schema = shared
    decided = _typed(_decisions(_rows(frame[columns], schema), scorer, rule), like) if len(frame) else like
    return _joined(frame[keep], decided.set_axis(frame.index))


def _typed(decisions: Decisions, like: Any) -> Any:
    return decisions.to_pandas().astype(like.dtypes.to_dict())


def _joined(kept: Any, decisions: Any) -> Any:
    if clash := [name for name in kept.columns if name in decisions.columns]:
        raise InvalidInputError(f"keep names {clash}, which decisions have themselves: rename these columns.")
    if not len(kept.columns):
        return decisions
    pandas = require("pandas", extra=EXTRA, feature=FEATURE)
    return pandas.concat([kept, decisions], axis=1)


def _none_decided(scorer: Scorer) -> Any:
    """Return the table of no decisions, with the types that a pandas frame gives to the columns."""
    text = np.array(["accepted"])
    one = Decisions(scorer.classes[:1], np.array([True]), text, np.zeros(1), np.zeros(1), np.zeros(1))
    return one.to_pandas().iloc[:0]


def _sum_counts(parts: list[Counter[str]]) -> Counter[str]:
    return sum(parts, Counter())


def _write(frame: Any, store: Any, name: str, count: str, index: bool) -> Counter[str]:
    """Write one chunk; without its index a file has nothing that only pandas knows."""
    pyarrow = require("pyarrow", extra=EXTRA, feature=FEATURE)
    table = pyarrow.Table.from_pandas(frame, preserve_index=None if index else False)
    with store.open(name, "wb") as file:
        require("pyarrow.parquet", extra=EXTRA, feature=FEATURE).write_table(
            table if index else table.replace_schema_metadata(), file
        )
    return Counter(frame[count].tolist())
