# SPDX-License-Identifier: BSD-3-Clause
"""From a request body to plain arrays, and from those, through the model's `Schema`, to what it decides on.

Convention: each body is checked once, here. Everything a caller can get wrong ends in a `Refusal`: 400 the body cannot be read, 413
too many rows, 415 a type that is not known, 422 it can be read and does not fit the model. Rows are counted from 1 for people.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from poscod._validation import listed
from poscod.exceptions import InvalidInputError
from poscod.model import Schema, read_npy
from poscod.serve._say import Refusal, too_many
from poscod.serve._stream import ARROW_TYPE, read_stream

JSON_TYPE, NPY_TYPE = "application/json", "application/x-npy"
LONGEST_ID = 200
_FREE_BRACKETS = 1000
_SOURCE = "the body"
# What a cell may be: exactly these types, so that neither true nor "1" passes for a number.
_NUMBERS = {int, float, type(None)}
_CELLS = _NUMBERS | {str, bool}

Parts = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one request: columns by name, or "rows", or "features" and "logits"; and the caller's names of the rows."""

    parts: Parts
    named: bool = False
    ids: list[str] | None = None

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))

    @functools.cached_property
    def layout(self) -> tuple[Any, ...] | None:
        """Rows of equal layouts can be joined; None must stay alone, so that it cannot spoil the answers of others."""
        for part in self.parts.values():
            if part.dtype.kind != "f" or not np.isfinite(part).all():
                return None
        return tuple((name, part.dtype.str, *part.shape[1:]) for name, part in self.parts.items())


def join(schema: Schema, batches: Sequence[Batch]) -> Any:
    """Return what `POSCOD.decide` takes, for rows of one layout."""
    parts = batches[0].parts
    if len(batches) > 1:
        parts = {name: np.concatenate([batch.parts[name] for batch in batches]) for name in parts}
    if batches[0].named:
        return schema.rows(parts, _SOURCE)
    if schema.kind == "network":
        return schema.activations(parts.get("features"), parts["logits"], _SOURCE)
    return parts["rows"]


def first_gap(batch: Batch, schema: Schema) -> str:
    """Return where the first value is missing or not finite, for people; empty where there is none."""
    for name, part in batch.parts.items():
        gaps = ~np.isfinite(part) if part.dtype.kind == "f" else np.asarray(part.astype(object) == np.array(None))
        for row, *column in np.argwhere(gaps)[:1].tolist():
            names = schema.logits if name == "logits" else schema.features
            if column:
                known = len(names) == part.shape[1]
                name = names[column[0]] if known else f"{name}[{column[0] + 1}]"
            return f"row {row + 1}, column '{name}'"
    return ""


def parse_json(body: bytes, schema: Schema, max_rows: int) -> dict[str, Any]:
    """Read a JSON object; NaN, Infinity and bottomless nesting are refused, and many more lists than rows before they are parsed."""
    # Parsing holds up everybody, and lists cost most. Rows of numbers need one each; where texts come in, brackets may be theirs.
    if schema.kind in ("table", "network") and body.count(b"[") + body.count(b"{") > 2 * max_rows + _FREE_BRACKETS:
        raise too_many(max_rows)
    try:
        document = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise Refusal(400, "The JSON is nested too deeply.") from None
    except ValueError as error:
        raise Refusal(400, f"The body is not JSON ({str(error)[:200]}).") from None
    if type(document) is not dict:
        raise Refusal(422, "The JSON must be an object.")
    return document


def forms_of(schema: Schema) -> list[str]:
    """Return the forms of JSON that a model takes; columns and records where every column has a name."""
    if schema.given is not None:  # answers are texts
        return ["columns", "records"]
    named = bool(schema.features) == bool(schema.n_features) and bool(schema.logits) == bool(schema.n_logits)
    first = "activations" if schema.kind == "network" else "rows"
    return [first, "columns", "records"] if named and schema.names else [first]


def sizes_of(schema: Schema) -> dict[str, int]:
    """Return how many features and logits a row of a network has."""
    return {name: n for name, n in (("features", schema.n_features), ("logits", schema.n_logits)) if n}


def rows_from_document(document: dict[str, Any], schema: Schema, max_rows: int) -> Batch:
    """Take the rows out of a JSON object."""
    taken = forms_of(schema)
    given = [form for form in taken if form in document]
    if len(given) != 1 or document.keys() - {*given, "ids"}:
        raise Refusal(
            422,
            f"The JSON must hold {' or '.join(taken)}, one of them, and possibly ids, got {listed(map(_short, document), 5) or 'nothing'}.",
        )
    form, value = given[0], document[given[0]]
    if form in ("rows", "records"):
        if type(value) is not list:
            raise Refusal(422, f"{form} must be a list with one entry per row.")
    elif type(value) is not dict or not {list}.issuperset(map(type, value.values())):
        raise Refusal(422, f"{form} must be an object of lists with one entry per row.")
    return _checked(FORMS[form](value, schema), _ids(document.get("ids")), max_rows)


def _json(body: bytes, schema: Schema, max_rows: int) -> Batch:
    return rows_from_document(parse_json(body, schema, max_rows), schema, max_rows)


def _npy(body: bytes, schema: Schema, max_rows: int) -> Batch:
    """One matrix; for a network its features and logits side by side."""
    if schema.given is not None:
        raise Refusal(422, "This model reads answers by name, which an NPY array does not have: send JSON or Arrow.")
    try:
        array = read_npy(body)
    except InvalidInputError as error:
        raise Refusal(400, f"The NPY body {error}") from None
    except Exception as error:  # whatever a damaged header makes the parser raise
        raise Refusal(400, f"The body is not a whole NPY file ({type(error).__name__}).") from None
    if array.dtype.kind not in "fiu" or array.ndim != 2:
        raise Refusal(422, f"The NPY array must be a matrix of numbers, got shape {array.shape} of {array.dtype}.")
    return _checked(_from_matrix(array, schema), None, max_rows)


def _arrow(body: bytes, schema: Schema, max_rows: int) -> Batch:
    # One column per number of a row, or features and logits as lists; and the ids.
    width = schema.n_features + schema.n_logits
    most, widest = (None, None) if schema.kind == "any" else (1 + max(2, width), width)
    columns = read_stream(body, max_rows, most, widest, texts=schema.kind in ("frame", "any") or bool(schema.answer))
    ids = _ids(columns.pop("id").tolist()) if "id" in columns and "id" not in schema.names else None
    if not columns:
        raise Refusal(422, "The Arrow stream must hold at least one column.")
    if "columns" in forms_of(schema) and (
        schema.given is not None or schema.kind != "network" or not columns.keys() & {"features", "logits"}
    ):
        batch = _columns(columns, schema)
    elif schema.kind == "network":
        batch = _activations(columns, schema)
    elif schema.kind == "any" and len(columns) == 1:
        batch = Batch({"rows": next(iter(columns.values()))})
    elif all(part.ndim == 1 and part.dtype.kind == "f" for part in columns.values()):
        batch = _from_matrix(np.column_stack(list(columns.values())), schema)
    else:
        raise Refusal(422, "The columns of the Arrow stream must be numbers: this model knows no names of features.")
    return _checked(batch, ids, max_rows)


READERS: dict[str, Callable[[bytes, Schema, int], Batch]] = {JSON_TYPE: _json, ARROW_TYPE: _arrow, NPY_TYPE: _npy}


def _rows(value: list[Any], schema: Schema) -> Batch:
    if schema.kind == "any" and all(type(row) is str for row in value):
        return Batch({"rows": np.array(value, dtype=object)})
    if schema.kind != "frame":
        return _from_matrix(_matrix(value, "rows", schema.n_features), schema)
    width = len(schema.features)
    if bad := next((i for i, row in enumerate(value, 1) if type(row) is not list or len(row) != width), 0):
        raise Refusal(422, f"Row {bad} of rows must be a list of {width} values.")
    return _columns({name: [row[i] for row in value] for i, name in enumerate(schema.features)}, schema)


def _records(value: list[Any], schema: Schema) -> Batch:
    names = set(schema.names)
    for i, record in enumerate(value, 1):
        if type(record) is not dict:
            raise Refusal(422, f"Row {i} of records must be an object.")
        if record.keys() != names:
            _check_names(record, schema, f"row {i} of records")
    return _columns({name: [record[name] for record in value] for name in schema.names}, schema)


def _columns(value: Mapping[str, Any], schema: Schema) -> Batch:
    """Return named columns, lists or arrays, in the order of the model."""
    _check_names(value, schema, _SOURCE)
    return Batch({name: _vector(value[name], name, schema) for name in schema.names}, named=True)


def _activations(value: Mapping[str, Any], schema: Schema) -> Batch:
    """Return features and logits of a network, lists or arrays."""
    sizes = sizes_of(schema)
    if value.keys() != sizes.keys():
        raise Refusal(422, f"A row must have {schema.words}, under {' and '.join(sizes)}.")
    return Batch({name: _matrix(value[name], name, width) for name, width in sizes.items()})


FORMS: dict[str, Callable[[Any, Schema], Batch]] = {
    "rows": _rows,
    "columns": _columns,
    "records": _records,
    "activations": _activations,
}


def _from_matrix(array: NDArray[Any], schema: Schema) -> Batch:
    """Return rows of numbers as the model takes them."""
    if schema.kind != "any" and array.shape[1] != schema.n_features + schema.n_logits:
        raise Refusal(422, f"A row must have {schema.words}, got {array.shape[1]}.")
    if schema.kind == "frame":
        return Batch(dict(zip(schema.features, array.T, strict=True)), named=True)
    if schema.kind == "network":
        parts = {"features": array[:, : schema.n_features], "logits": array[:, schema.n_features :]}
        return Batch({name: parts[name] for name in sizes_of(schema)})
    return Batch({"rows": array})


def _check_names(given: Iterable[str], schema: Schema, source: str) -> None:
    """Compare the names that came with those of the model."""
    if extra := sorted(set(given) - set(schema.names)):
        names = listed(map(_short, extra), 5)
        raise Refusal(422, f"{source} holds {names}, which the model does not read: leave that out.")
    schema.check(given, source)


def _checked(batch: Batch, ids: list[str] | None, max_rows: int) -> Batch:
    """Compare the number of rows with the limit and with the names of the rows."""
    n = len(batch)
    if any(len(part) != n for part in batch.parts.values()):
        raise Refusal(422, "All columns must have the same number of rows.")
    if n == 0:
        raise Refusal(422, "A batch must have at least one row, got none.")
    if n > max_rows:
        raise too_many(max_rows)
    if ids is not None and len(ids) != n:
        raise Refusal(422, f"ids must have one name per row ({n}), got {len(ids)}.")
    return Batch(batch.parts, batch.named, ids)


def _vector(values: Any, name: str, schema: Schema) -> NDArray[Any]:
    """Return one column: numbers with NaN for null, lists of numbers, or texts where the model takes a data frame."""
    if isinstance(values, np.ndarray):
        return values
    kinds = set(map(type, values))
    if schema.answer and name == schema.answer:
        if not kinds <= {str, int, bool}:
            raise Refusal(422, f"The column '{name}' must hold an answer in every row, a text or a whole number.")
        return np.array([str(value) for value in values])
    if kinds <= _NUMBERS:
        return _floats(values, name)
    if kinds == {list}:
        return _matrix(values, name, 0)
    if schema.frame and kinds <= _CELLS:
        array = np.empty(len(values), dtype=bool if kinds == {bool} else object)
        array[:] = values
        return array
    raise Refusal(422, f"The column '{name}' must hold numbers{' or texts' * schema.frame}.")


def _matrix(values: Any, name: str, width: int) -> NDArray[Any]:
    """Return a matrix with NaN for null; 0 takes the width of the first row."""
    if isinstance(values, np.ndarray):
        if values.shape[1:] != (width,):
            raise Refusal(422, f"{name} must be lists of {width} numbers.")
        return values
    wide = width or (len(values[0]) if values and type(values[0]) is list else 0)
    for i, row in enumerate(values, 1):
        if type(row) is not list or len(row) != wide or not _NUMBERS.issuperset(map(type, row)):
            raise Refusal(422, f"Row {i} of {name} must be a list of {wide or 'several'} numbers.")
    return _floats(values, name).reshape(len(values), wide)


def _floats(values: list[Any], name: str) -> NDArray[np.float64]:
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:
        raise Refusal(422, f"{name} holds a whole number that is too large.") from None


def _ids(value: Any) -> list[str] | None:
    if value is None:
        return None
    if type(value) is not list or not {str, int, float}.issuperset(map(type, value)):
        raise Refusal(422, "ids must be a list of texts or numbers.")
    ids = [str(int(item)) if isinstance(item, float) and item.is_integer() else str(item) for item in value]
    if any(len(item) > LONGEST_ID or not item.isprintable() for item in ids):
        # Databases refuse some characters (NUL, half surrogates): nothing that is not printable gets that far.
        raise Refusal(422, f"Each of ids may have at most {LONGEST_ID} characters, all printable.")
    return ids


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _short(name: str) -> str:
    return name[:100]
