# SPDX-License-Identifier: BSD-3-Clause
"""From a request body to the rows a model decides on.

Convention: `Rows.parts` are arrays of n rows: one matrix "rows", or one array per named column, or "features" and "logits" of a
network. Rows of one layout can be joined. Everything a caller can get wrong ends in a `Refusal`: 400 the body cannot be
read, 413 too many rows, 415 a type that is not known, 422 it can be read and does not fit the model.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from poscod._codec import read_npy
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.serve._arrow import ARROW_TYPE, read_stream
from poscod.serve._model import Inputs
from poscod.serve._refusal import Refusal

__all__ = ["JSON_TYPE", "NPY_TYPE", "Rows", "first_gap", "join", "parse_json", "parse_rows", "rows_from_document"]

JSON_TYPE, NPY_TYPE = "application/json", "application/x-npy"
_FORMS = ("rows", "columns", "records", "activations")
_LONGEST_ID = 200
# What a probability of zero becomes before the logarithm; the estimator takes the same.
_LEAST_PROBABILITY = 1e-12


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one request.

    Parameters
    ----------
    parts : dict of str to ndarray
        Arrays of n rows each.
    ids : list of str or None
        The caller's names of the rows.
    """

    parts: dict[str, NDArray[Any]]
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


def join(inputs: Inputs, rows: Sequence[Rows]) -> Any:
    """Return what `POSCOD.decide` takes, for rows of one layout."""
    parts = rows[0].parts
    if len(rows) > 1:
        parts = {name: np.concatenate([item.parts[name] for item in rows]) for name in parts}
    if inputs.kind == "network":
        logits = parts["logits"]
        if inputs.probabilities:
            logits = np.log(np.maximum(logits.astype(np.float64), _LEAST_PROBABILITY))
        return Activations(parts.get("features"), logits, table=inputs.flat)
    if inputs.frame and importlib.util.find_spec("pandas") is not None:
        pandas = importlib.import_module("pandas")
        names = list(inputs.names or ())
        return pandas.DataFrame(parts if set(parts) == set(names) else parts["rows"], columns=names)
    return parts["rows"] if "rows" in parts else np.column_stack(list(parts.values()))


def first_gap(rows: Rows, inputs: Inputs) -> str:
    """Return where the first value is missing or not finite, for people; empty where there is none."""
    for name, part in rows.parts.items():
        gaps = np.isfinite(part) if part.dtype.kind == "f" else np.array([cell is not None for cell in part.ravel()])
        for row, *column in np.argwhere(~gaps.reshape(part.shape))[:1].tolist():
            known = (inputs.logit_names if name == "logits" else inputs.names) if column else (name,)
            number = column[0] if column else 0
            where = f"'{known[number]}'" if known and number < len(known) else f"{number + 1} of {name}"
            return f"row {row + 1}, column {where}"
    return ""


def parse_rows(body: bytes, content_type: str, inputs: Inputs, max_rows: int) -> Rows:
    """Read a body of any known type."""
    reader = READERS.get(content_type)
    if reader is None:
        raise Refusal(415, f"Content-Type must be one of {', '.join(READERS)}, got '{content_type[:100]}'.")
    return _checked(reader(body, inputs, max_rows), inputs, max_rows)


def parse_json(body: bytes) -> dict[str, Any]:
    """Read a JSON object; NaN, Infinity and bottomless nesting are refused."""
    try:
        document = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise Refusal(400, "The JSON is nested too deeply.") from None
    except (ValueError, UnicodeError) as error:
        raise Refusal(400, f"The body is not JSON ({str(error)[:200]}).") from None
    if not isinstance(document, dict):
        raise Refusal(422, f"The JSON must be an object with {_listed()}, got {_name(document)}.")
    return document


def rows_from_document(document: dict[str, Any], inputs: Inputs, max_rows: int) -> Rows:
    """Take the rows out of a JSON object."""
    form = [name for name in _FORMS if name in document]
    if len(form) != 1:
        raise Refusal(422, f"The JSON must hold exactly one of {_listed()}, got {', '.join(form) or 'none of them'}.")
    if unknown := sorted(set(document) - {*_FORMS, "ids"}):
        raise Refusal(422, f"The JSON must hold {_listed()} and possibly ids, got '{unknown[0][:100]}' beside it.")
    network = inputs.kind == "network"
    if form[0] == ("rows" if network else "activations"):
        kind = "activations" if network else "rows, columns or records"
        raise Refusal(422, f"This model takes {kind}, got {form[0]}.")
    parts = FORMS[form[0]](document[form[0]], inputs, max_rows)
    return _checked(Rows(parts, _ids(document.get("ids"))), inputs, max_rows)


def _json(body: bytes, inputs: Inputs, max_rows: int) -> Rows:
    return rows_from_document(parse_json(body), inputs, max_rows)


def _npy(body: bytes, inputs: Inputs, max_rows: int) -> Rows:
    """One matrix; for a network its features and logits side by side."""
    try:
        array = read_npy(body)
    except InvalidInputError as error:
        raise Refusal(400, f"The NPY body {error}") from None
    except Exception as error:  # whatever a damaged header makes the parser raise
        raise Refusal(400, f"The body is not a whole NPY file ({type(error).__name__}).") from None
    if array.dtype.kind not in "fiu" or array.ndim != 2:
        raise Refusal(422, f"The NPY array must be a matrix of numbers, got shape {array.shape} of {array.dtype}.")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    if inputs.kind != "network":
        return Rows({"rows": array})
    logits = inputs.logits or 0
    split = array.shape[1] - logits
    if split < 0:
        raise Refusal(422, f"The NPY array must have {_columns(inputs)}, got {array.shape[1]} columns.")
    return Rows({"features": array[:, :split], "logits": array[:, split:]} if split else {"logits": array})


def _arrow(body: bytes, inputs: Inputs, max_rows: int) -> Rows:
    # One column per number of a row, or features and logits as lists; and the ids.
    most = None if inputs.kind == "any" else 1 + max(2, (inputs.width or 0) + (inputs.logits or 0))
    columns = read_stream(body, max_rows, most)
    ids = None
    if "id" in columns and "id" not in (inputs.names or ()):
        ids = _ids(columns.pop("id").tolist())
    if not columns:
        raise Refusal(422, "The Arrow stream must hold at least one column.")
    if inputs.kind == "network" and not {"logits", "features"} & set(columns) and inputs.logit_names is not None:
        return Rows(_table(columns, inputs), ids)
    if inputs.kind == "network":
        if not {"logits"} <= set(columns) <= {"features", "logits"}:
            raise Refusal(422, "The Arrow stream must hold the columns logits and features, each a list of numbers.")
        return Rows(columns, ids)
    if inputs.names is not None:
        return Rows(_table(columns, inputs), ids)
    if len(columns) == 1 and inputs.kind == "any":
        return Rows({"rows": next(iter(columns.values()))}, ids)
    if any(column.ndim != 1 or column.dtype.kind != "f" for column in columns.values()):
        raise Refusal(422, "The columns of the Arrow stream must be numbers: this model knows no names of features.")
    return Rows({"rows": np.column_stack(list(columns.values()))}, ids)


READERS: dict[str, Callable[[bytes, Inputs, int], Rows]] = {JSON_TYPE: _json, ARROW_TYPE: _arrow, NPY_TYPE: _npy}


def _from_rows(value: Any, inputs: Inputs, max_rows: int) -> dict[str, NDArray[Any]]:
    _check_list(value, "rows", max_rows)
    if inputs.kind == "any" and all(isinstance(item, str) for item in value):
        return {"rows": np.asarray(value, dtype=object)}
    if inputs.names is not None and any(
        isinstance(cell, str) for row in value if isinstance(row, list) for cell in row
    ):
        if any(not isinstance(row, list) or len(row) != len(inputs.names) for row in value):
            raise Refusal(422, f"Each of rows must be a list of {len(inputs.names)} values.")
        return _table(dict(zip(inputs.names, zip(*value, strict=True), strict=True)), inputs)
    return {"rows": _matrix(value, "rows")}


def _from_columns(value: Any, inputs: Inputs, max_rows: int) -> dict[str, NDArray[Any]]:
    _names(inputs, "columns")
    if not isinstance(value, dict):
        raise Refusal(422, f"columns must be an object of lists, got {_name(value)}.")
    for name, column in value.items():
        _check_list(column, f"columns.{name[:100]}", max_rows)
    return _table(value, inputs)


def _from_records(value: Any, inputs: Inputs, max_rows: int) -> dict[str, NDArray[Any]]:
    names = _names(inputs, "records")
    _check_list(value, "records", max_rows)
    keys = set(names)
    for i, record in enumerate(value, start=1):
        if not isinstance(record, dict):
            raise Refusal(422, f"Each of records must be an object, got {_name(record)} in row {i}.")
        if record.keys() != keys:
            _check_keys(set(record), keys, f" in row {i} of records")
    return _table({name: [record[name] for record in value] for name in names}, inputs)


def _from_activations(value: Any, inputs: Inputs, max_rows: int) -> dict[str, NDArray[Any]]:
    if not isinstance(value, dict) or not {"logits"} <= value.keys() <= {"features", "logits"}:
        raise Refusal(422, "activations must be an object with logits and features, each a list of lists of numbers.")
    for name, part in value.items():
        _check_list(part, f"activations.{name}", max_rows)
    return {name: _matrix(value[name], f"activations.{name}") for name in ("features", "logits") if name in value}


FORMS: dict[str, Callable[[Any, Inputs, int], dict[str, NDArray[Any]]]] = {
    "rows": _from_rows,
    "columns": _from_columns,
    "records": _from_records,
    "activations": _from_activations,
}


def _checked(rows: Rows, inputs: Inputs, max_rows: int) -> Rows:
    """Compare rows with what the model expects."""
    n = len(rows)
    if any(len(part) != n for part in rows.parts.values()):
        raise Refusal(422, "All columns must have the same number of rows.")
    if n == 0:
        raise Refusal(422, "A batch must have at least one row, got none.")
    if n > max_rows:
        raise Refusal(413, f"A batch may have at most {max_rows} rows, got {n}: send several batches.", limit="rows")
    if rows.ids is not None and len(rows.ids) != n:
        raise Refusal(422, f"ids must have one name per row ({n}), got {len(rows.ids)}.")
    if inputs.frame and set(rows.parts) == set(inputs.names or ()) and "rows" not in rows.parts:
        return rows
    found = {name: part.shape[1] if part.ndim == 2 else None for name, part in rows.parts.items()}
    if inputs.kind == "network":
        width = inputs.width if inputs.width is not None else found.get("features")
        features = found.get("features", inputs.logits if width == inputs.logits else None)
        if found["logits"] != inputs.logits or (width is not None and features != width):
            raise Refusal(
                422,
                f"A row must have {_columns(inputs)}, got {_columns(Inputs('network', features, None, found['logits']))}.",
            )
        if inputs.probabilities and _not_probabilities(rows.parts["logits"]):
            raise Refusal(
                422, "This model takes probabilities for logits: they must not be negative and sum to 1 in every row."
            )
    elif inputs.kind == "table" and found["rows"] is not None and found["rows"] != inputs.width:
        raise Refusal(422, f"A row must have {_columns(inputs)}, got {found['rows']}.")
    return rows


def _not_probabilities(values: NDArray[Any]) -> bool:
    with np.errstate(invalid="ignore"):
        return not ((values >= 0).all() and (np.abs(values.sum(axis=1) - 1.0) <= 1e-2).all())


def _table(columns: Any, inputs: Inputs) -> dict[str, NDArray[Any]]:
    """Return named columns as the parts a model takes."""
    names = _names(inputs, "columns")
    parts = _by_name(columns, names)
    if inputs.frame:
        return parts
    if len({len(part) for part in parts.values()}) > 1:
        raise Refusal(422, "All columns must have the same number of rows.")
    for name, part in parts.items():
        if part.dtype.kind != "f":
            raise Refusal(422, f"The column '{name}' must hold numbers.")
    stacked = np.column_stack(list(parts.values()))
    if inputs.kind != "network":
        return {"rows": stacked}
    split = len(inputs.names or ())
    return {"features": stacked[:, :split], "logits": stacked[:, split:]} if split else {"logits": stacked}


def _by_name(columns: Any, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Put named columns into the order of the model; numbers become floats, the rest objects."""
    _check_keys(set(columns), set(names))
    return {name: _vector(columns[name], name) for name in names}


def _check_keys(found: set[str], names: set[str], where: str = "") -> None:
    """Compare the names that came with those of the model."""
    if found == names:
        return
    if missing := names - found:
        raise Refusal(422, f"{_quoted(missing, 'missing')}{where}; the model needs {len(names)} columns.")
    raise Refusal(422, f"{_quoted(found - names, 'no feature of the model')}{where}: leave out what is no feature.")


def _quoted(names: set[str], what: str) -> str:
    """Return a sentence about some columns."""
    shown = ", ".join(f"'{name[:100]}'" for name in sorted(names)[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"The column {shown} is {what}" if len(names) == 1 else f"The columns {shown}{more} are {what}"


def _vector(values: Any, name: str) -> NDArray[Any]:
    """Return one column: numbers with NaN for null, or objects where there is any text."""
    if isinstance(values, np.ndarray):
        array = values
    else:
        if any(isinstance(value, (list, dict)) for value in values):
            raise Refusal(422, f"The column '{name}' must hold numbers or texts.")
        array = np.asarray(values) if not any(isinstance(value, str) for value in values) else _objects(values)
    if array.ndim != 1:
        raise Refusal(422, f"The column '{name}' must hold one value per row.")
    if array.dtype.kind == "O" and not any(isinstance(value, (str, bool)) for value in array):
        return _numbers(array, name)
    return array.astype(np.float64) if array.dtype.kind in "iu" else array


def _objects(values: Any) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _matrix(values: Any, name: str) -> NDArray[Any]:
    """Return a matrix of floats, with NaN for null."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise Refusal(422, f"{name} must be a list of lists of one length.") from None
    if array.ndim != 2:
        raise Refusal(
            422, f"{name} must be a list of lists of numbers, got {array.ndim} dimension{'s'[: array.ndim != 1]}."
        )
    if array.dtype.kind == "O":
        return _numbers(array, name)
    if array.dtype.kind not in "fiu":
        raise Refusal(422, f"{name} must hold numbers only.")
    return array.astype(np.float64, copy=False)


def _numbers(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    try:
        flat = [float("nan") if value is None else float(_number(value)) for value in array.ravel()]
    except (TypeError, ValueError, OverflowError):
        raise Refusal(422, f"{name} must hold numbers only.") from None
    return np.asarray(flat, dtype=np.float64).reshape(array.shape)


def _number(value: Any) -> Any:
    if isinstance(value, (str, bytes)):  # float("1") would pass
        raise TypeError
    return value


def _ids(value: Any) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or any(
        isinstance(item, bool) or not isinstance(item, (str, int, float)) for item in value
    ):
        raise Refusal(422, "ids must be a list of texts or numbers.")
    ids = [str(int(item)) if isinstance(item, float) and item.is_integer() else str(item) for item in value]
    if any(len(item) > _LONGEST_ID or not item.isprintable() for item in ids):
        # Databases refuse some characters (NUL, half surrogates): nothing that is not printable gets that far.
        raise Refusal(422, f"Each of ids may have at most {_LONGEST_ID} characters, all printable.")
    return ids


def _names(inputs: Inputs, form: str) -> tuple[str, ...]:
    """Return the names of all numbers of a row."""
    known = inputs.logit_names if inputs.kind == "network" else inputs.names
    if known is None:
        instead = "activations" if inputs.kind == "network" else "rows"
        raise Refusal(422, f"This model knows no names of features: send {instead} instead of {form}.")
    return (*(inputs.names or ()), *known) if inputs.kind == "network" else known


def _check_list(value: Any, name: str, max_rows: int) -> None:
    if not isinstance(value, list):
        raise Refusal(422, f"{name} must be a list, got {_name(value)}.")
    if len(value) > max_rows:
        raise Refusal(
            413, f"A batch may have at most {max_rows} rows, got {len(value)}: send several batches.", limit="rows"
        )


def _columns(inputs: Inputs) -> str:
    if inputs.kind == "network":
        features = "" if inputs.width is None else f"{inputs.width} features and "
        return f"{features}{inputs.logits} logits"
    return f"{inputs.width} features"


def _name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _listed() -> str:
    return ", ".join(_FORMS[:-1]) + f" or {_FORMS[-1]}"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
