# SPDX-License-Identifier: BSD-3-Clause
"""Queues of review as files: a table with a column of verdicts for people, or tasks of Label Studio; written by one command, read back by others.

Convention: a queue is written and read as a whole, because its chances stand for all rows of the log. Rows of it are counted from 1 in sentences; its
column ``index`` counts rows of the log from 0, as `poscod.review.Queue` does. A verdict is a class as people know it, ``ood``, or nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._files import check_source, replacing
from poscod._json import plain
from poscod._validation import listed
from poscod.cli._arrow import GAPS
from poscod.cli._columns import Block, Table, arrow
from poscod.cli._console import json_text
from poscod.cli._inputs import rows_of
from poscod.cli._tables import FORMATS, TableWriter, open_table
from poscod.exceptions import InvalidInputError
from poscod.model import Schema
from poscod.report import decision_words
from poscod.review import Queue
from poscod.verdict import NOT_REVIEWED, OOD, STRANGER, verdict_codes

VERDICT = "verdict"
TASKS = ".json"
"""Extension of tasks of Label Studio."""
_FIELDS = [field.name for field in fields(Queue)]
_MADE = (VERDICT, "why", "decision", *(name for name in _FIELDS if name != "why"))
# Where Label Studio puts the verdict (`from_name`), and what it is about (`to_name`): the labeling setup on the page about review has these names.
_FROM, _TO = VERDICT, "input"


class Reviewed(NamedTuple):
    """A queue that came back: itself, and for each row a class as the model knows it, OOD or None."""

    queue: Queue
    verdicts: list[Any]


def add_reviewed_options(group: Any) -> None:
    """Add the options that take verdicts."""
    group.add_argument(
        "--reviewed",
        metavar="FILE",
        help="queue of `poscod review` on --unlabeled with its column verdict filled in, or Label Studio's export of it (.json)",
    )
    group.add_argument(
        "--missing",
        default="worst",
        metavar="HOW",
        help="what rows of the queue without a verdict are. worst: anything; random: like the others, as where somebody has stopped early",
    )


def check_names(table: Table, row_id: str | None) -> None:
    """Refuse a log that already has columns of a queue."""
    if row_id is not None:
        table.need([row_id])
    if twice := [name for name in table.columns if name in _MADE]:
        raise InvalidInputError(
            f"{table.path} already has the column{'s' * (len(twice) > 1)} {listed(twice)}, which a queue adds: rename them in the log."
        )


def write_queue(
    path: str, chosen: Queue, table: Table, schema: Schema, row_id: str | None, model_name: str
) -> list[str]:
    """Write a queue with the rows it is about; return the columns that the file cannot hold."""
    first = [row_id] if row_id in table.columns else []
    names = [*first, *(name for name in table.columns if name not in first)]
    as_json, flat = Path(path).suffix.lower() == TASKS, path == "-" or Path(path).suffix.lower() == ".csv"
    lost = [name for name in names if flat and table.columns[name].kind == "matrix"]
    kept = [name for name in names if name not in lost]
    block = table.take(kept, chosen.index).table
    answer = schema.labels(chosen.answer)
    answer = answer.astype(str) if answer.dtype == object else answer
    words = [decision_words(str(label), reason) for label, reason in zip(answer.tolist(), chosen.reason, strict=True)]
    made = {**{name: getattr(chosen, name) for name in _FIELDS}, "answer": answer}
    if as_json:
        with replacing(Path(path)) as file:
            file.write(json_text(_tasks(block, made, words, model_name), indent=1).encode())
        return lost
    for_people = {VERDICT: np.full(len(chosen), ""), "why": made.pop("why"), "decision": np.array(words)}
    with TableWriter(path) as writer:
        writer.write(
            {
                **for_people,
                **{name: block[name] for name in kept},
                **{name: _column(values) for name, values in made.items()},
            }
        )
    return lost


class Written(NamedTuple):
    """Names of rows with a verdict that were written, names that several rows have, and columns that the file cannot hold."""

    found: list[str]
    twice: list[str]
    lost: list[str]


def write_reviewed(path: str, said: Mapping[str, str], table: Table, row_id: str) -> Written:
    """Write the rows of a table that have a verdict; where several rows have its name, nobody knows which of them it is about."""
    names = [_name(value) for value in table.read([row_id]).table[row_id].to_pylist()]
    times = Counter(names)
    places = [i for i, name in enumerate(names) if name in said and times[name] == 1]
    twice = [name for name in said if times[name] > 1]
    if not said:
        raise InvalidInputError("the database holds no verdicts yet: send some to /v1/verdicts of the service first.")
    if twice and not places:
        raise InvalidInputError(
            f"column '{row_id}' of {table.path} has the name '{twice[0]}' in {times[twice[0]]:,} rows, and a verdict is about one of them: give a table that names each row once."
        )
    if not places:
        raise InvalidInputError(
            f"column '{row_id}' of {table.path} holds none of the names of the {len(said):,} verdicts: rows must have the ids that the service was asked with."
        )
    flat = path == "-" or Path(path).suffix.lower() == ".csv"
    lost = [name for name, column in table.columns.items() if flat and column.kind == "matrix"]
    kept = [row_id, *(name for name in table.columns if name not in (row_id, *lost))]
    block = table.take(kept, np.array(places)).table
    found = [str(names[i]) for i in places]
    with TableWriter(path) as writer:
        writer.write({VERDICT: np.array([said[name] for name in found]), **{name: block[name] for name in kept}})
    return Written(found, twice, lost)


def _name(value: Any) -> str | None:
    """Return the name of a row as the service knows it."""
    whole = isinstance(value, float) and value.is_integer()
    return None if value is None else str(int(value)) if whole else str(value)


def _column(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(str) if values.dtype == object else values


def _tasks(block: Any, made: Mapping[str, NDArray[Any]], words: list[str], model_name: str) -> Any:
    """Return tasks with the model's answers as predictions."""
    columns = {name: values.tolist() for name, values in made.items()}
    tasks = []
    for i, row in enumerate(block.to_pylist()):
        of_queue = {name: values[i] for name, values in columns.items()}
        choice = {
            "from_name": _FROM,
            "to_name": _TO,
            "type": "choices",
            "value": {"choices": [str(of_queue["answer"])]},
        }
        prediction = {"model_version": model_name, "result": [choice]}
        data: dict[str, Any] = {"row": row, "decision": words[i], **of_queue}
        tasks.append({"data": data, "predictions": [prediction]})
    return plain(tasks)


def read_reviewed(path: str, model: Any, schema: Schema, log: Table) -> Reviewed:
    """Read a queue with verdicts, and refuse one that was not drawn from this log or has lost rows."""
    names = schema.labels(model.scorer_.classes)
    tasks = Path(path).suffix.lower() == TASKS
    columns, said, rows = _read_tasks(Path(path)) if tasks else _read_table(path, names)
    codes = class_codes(said, names, VERDICT, path)
    if (codes == NOT_REVIEWED).all():
        raise InvalidInputError(
            f"column '{VERDICT}' of {path} holds no verdict: let people fill in some rows of the queue first."
        )
    queue = _queue_of(columns, path)
    _check_same_log(queue, path, rows, schema, log)
    classes = model.scorer_.classes.tolist()
    answers = class_codes(queue.answer.tolist(), names, "answer", path)
    queue = replace(queue, answer=model.scorer_.classes[answers])
    verdicts = [None if code == NOT_REVIEWED else OOD if code == STRANGER else classes[code] for code in codes.tolist()]
    return Reviewed(queue, verdicts)


def reviewed_rows(path: str, column: str, schema: Schema, y: NDArray[Any]) -> tuple[Any, list[Any]]:
    """Return rows with a verdict each, of a table or of tasks, as `poscod.POSCOD.fit` takes them; classes are those of y, by number where they have names beside."""
    numbered = bool(schema.elsewhere and schema.classes)
    names = np.array(schema.classes) if numbered else np.unique(y)
    if Path(path).suffix.lower() == TASKS:
        column = VERDICT
        _, said, block = _read_tasks(Path(path))
        schema.check(block, path)
    else:
        table = open_table(path, whole=True)
        table.need([column])
        schema.check(table.columns, path)
        block = table.read([column, *(name for name in schema.names if name != column)])
        said = said_of(block, column, names)
    codes, classes = class_codes(said, names, column, path).tolist(), names.tolist()
    if set(codes) == {NOT_REVIEWED}:
        raise InvalidInputError(f"column '{column}' of {path} holds no verdict: let people fill in some rows first.")
    special = {STRANGER: OOD, NOT_REVIEWED: None}
    return rows_of(schema, block), [special[c] if c in special else c if numbered else classes[c] for c in codes]


def class_codes(values: list[Any], names: NDArray[Any], column: str, path: Any, start: int = 0) -> NDArray[np.int64]:
    """Return classes as numbers, and refuse others with the row as people count."""
    try:
        return verdict_codes(values, names, f"column '{column}' of {path}", len(values))
    except InvalidInputError as error:
        raise InvalidInputError(
            "{parameter} must hold a class ({allowed}), ood, or nothing, got {got!r} at row {row}.",
            **{**error.facts, "row": start + error.facts["row"]},
        ) from None


def _queue_of(columns: Mapping[str, Any], path: str) -> Queue:
    if missing := [name for name in _FIELDS if name not in columns]:
        raise InvalidInputError(
            f"{path} has no column '{missing[0]}', which a queue of `poscod review` has: keep all of its columns."
        )
    accept = np.asarray(columns["accept"])
    if accept.dtype.kind != "b":
        raise InvalidInputError(f"column 'accept' of {path} must hold true or false, as `poscod review` wrote it.")
    try:
        return Queue.of(columns)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path} is not a whole queue of `poscod review`: {error}") from None


def said_of(block: Block, column: str, names: NDArray[Any]) -> list[Any]:
    """Return what a column of verdicts holds; None for gaps that are no class."""
    known = {str(name) for name in names.tolist()}
    words: dict[Any, Any] = {
        True: "true",
        False: "false",
        **{gap: None for gap in GAPS if gap in block.gaps and gap not in known},
    }
    values = block.table[column].to_pylist()
    return [words.get(value, value) if isinstance(value, (bool, str)) else value for value in values]


def _read_table(path: str, names: NDArray[Any]) -> tuple[dict[str, Any], list[Any], Block]:
    """Return the columns of the queue, what is said, and all columns."""
    table = open_table(path, whole=True)
    table.need([VERDICT])
    block = table.read()
    return {name: block[name] for name in _FIELDS if name in table.columns}, said_of(block, VERDICT, names), block


def _read_tasks(path: Path) -> tuple[dict[str, Any], list[Any], Block]:
    """Return the same from what Label Studio exports: JSON, or its short form."""
    check_source(path)
    try:
        tasks = json.loads(path.read_bytes())
        data = [task.get("data", task) for task in tasks]
        columns = {
            name: np.array([item[name] for item in data]) for name in _FIELDS if all(name in item for item in data)
        }
        said = [_choice(task) for task in tasks]
        rows = arrow().Table.from_pylist([item.get("row") or {} for item in data])
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError, arrow().ArrowException) as error:
        raise InvalidInputError(
            f"{path} could not be read as tasks of Label Studio ({type(error).__name__}): export them as JSON or JSON-MIN."
        ) from None
    return columns, said, Block(rows, path)


def _choice(task: Mapping[str, Any]) -> str | None:
    """Return the latest verdict of a task."""
    if "data" not in task:  # the short form has it beside the data
        said = task.get(_FROM)
        return said["choices"][0] if isinstance(said, dict) else said
    for annotation in reversed(task.get("annotations") or []):
        for result in annotation.get("result", []):
            if not annotation.get("was_cancelled") and result.get("from_name") == _FROM:
                return str(result["value"]["choices"][0])
    return None


def _check_same_log(queue: Queue, path: str, rows: Any, schema: Schema, log: Table) -> None:
    """Refuse a queue whose chances or whose rows are not those of the log."""
    total = log.read([next(iter(log.columns))]).n_rows
    if queue.n_rows != total or int(queue.index.max(initial=0)) >= total:
        raise InvalidInputError(
            f"the rows of {path} stand for {queue.n_rows:,} rows of a log, and {log.path} has {total:,}: give the log that the queue was drawn from, "
            "and keep every row of the queue, with or without a verdict."
        )
    shared = [
        name
        for name in ([schema.id] if schema.id in rows and schema.id in log.columns else schema.names)
        if name in rows
    ]
    shared = [name for name in shared if name in log.columns and log.columns[name].kind != "matrix"]
    there_all = log.take(shared, queue.index) if shared else {}
    for name in shared:
        own, there = rows[name], there_all[name]
        if own.dtype.kind in "fiub" and there.dtype.kind in "fiub":
            # Programs for spreadsheets keep fifteen digits at best.
            same = np.isclose(own.astype(np.float64), there.astype(np.float64), rtol=1e-6, equal_nan=True)
        else:
            same = np.array([_text(a) == _text(b) for a, b in zip(own.tolist(), there.tolist(), strict=True)])
        if not same.all():
            row = int(np.flatnonzero(~same)[0])
            raise InvalidInputError(
                f"row {row + 1} of {path} is not row {queue.index[row] + 1} of {log.path} (column '{name}' differs): give the log that the queue was drawn from."
            )


def _text(value: Any) -> str:
    """Return a cell as it is, without the mark that keeps programs for spreadsheets from computing it."""
    return "" if value is None else str(value).removeprefix("'")


def queue_formats() -> str:
    """Return the extensions of a queue."""
    return ", ".join([*(name for name in FORMATS if name not in (".npy", ".npz")), TASKS])
