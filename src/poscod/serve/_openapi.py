# SPDX-License-Identifier: BSD-3-Clause
"""The description of the interface: FastAPI makes it from routes and answers, and here it gets the bodies of the model in service.

Convention: a body's description has the model's sizes and names. Tests send what it allows, and what it does not.
"""

from __future__ import annotations

import sys
from typing import Any

from fastapi.openapi.utils import get_openapi  # noqa: TID253 (imported by _app alone)

from poscod.model import Schema
from poscod.serve._answers import Costs, Problem
from poscod.serve._arrow import ARROW_TYPE
from poscod.serve._refusal import PROBLEM_TYPE
from poscod.serve._rows import JSON_TYPE, LONGEST_ID, NPY_TYPE, forms_of
from poscod.serve._settings import Settings

__all__ = ["BINARY", "describe", "refusals"]

Json = dict[str, Any]
BINARY: Json = {"schema": {"type": "string", "format": "binary"}}
_NUMBER: Json = {"type": ["number", "null"]}
_REFUSALS: dict[int, str] = {
    400: "The body cannot be read.",
    401: "A bearer token is needed.",
    405: "The method is not known here.",
    408: "The body took too long to arrive.",
    409: "The model file is refused; the old model goes on.",
    413: "The body or the batch is too large.",
    415: "The type or the encoding of the body is not known.",
    422: "The request can be read and does not fit the model.",
    503: "Too much work, or the service is shutting down: try again after Retry-After seconds.",
}


def refusals(*statuses: int) -> dict[int | str, Json]:
    """Describe answers that refuse a request."""
    content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _REFUSALS[status], "content": content} for status in statuses}


def describe(routes: Any, schema: Schema, settings: Settings, open_paths: frozenset[str]) -> Json:
    """Return the OpenAPI document of a service."""
    document = get_openapi(
        title="poscod",
        version=sys.modules["poscod"].__version__,
        description="A classifier that says when not to answer. Infinite numbers are written as the largest double.",
        routes=routes,
    )
    document["components"]["schemas"]["Problem"] = Problem.model_json_schema()
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    forms, example = _forms(schema, settings.max_rows), _example(schema)
    ids = {"type": "array", "items": {"type": ["string", "integer"], "maxLength": LONGEST_ID}}
    one_of = [_object({form: forms[form]}, ids=ids) for form in forms]
    costs = Costs.model_json_schema()["properties"]
    bodies = {
        "/v1/decide": {
            JSON_TYPE: {"schema": {"oneOf": one_of}, "example": example},
            ARROW_TYPE: {**BINARY, "description": "not compressed, without dictionaries; a column id names the rows"},
            NPY_TYPE: {**BINARY, "description": "a matrix of numbers; of a network features and logits side by side"},
        },
        "/v1/at": {JSON_TYPE: {"schema": _object({}, **costs, **forms, ids=ids), "example": {"alpha": 0.3, **example}}},
    }
    for path, operations in document["paths"].items():
        if path in bodies:
            operations["post"]["requestBody"] = {"required": True, "content": bodies[path]}
        for operation in operations.values():
            more = (405, 401) if settings.tokens and path not in open_paths else (405,)
            operation["responses"] |= {str(status): text for status, text in refusals(*more).items()}
            if 401 in more:
                operation["security"] = [{"token": []}]
    return document


def _object(properties: Json, **optional: Json) -> Json:
    needed, parts = list(properties), {**properties, **optional}
    return {"type": "object", "properties": parts, "required": needed, "additionalProperties": False}


def _forms(schema: Schema, max_rows: int) -> dict[str, Json]:
    """Describe the forms of JSON that the model takes."""

    def rows_of(items: Json) -> Json:
        return {"type": "array", "items": items, "minItems": 1, "maxItems": max_rows}

    def list_of(cell: Json, width: int) -> Json:
        return {"type": "array", "items": cell, **({"minItems": width, "maxItems": width} if width else {})}

    cell: Json = {"type": ["number", "string", "boolean", "null"]} if schema.frame else _NUMBER
    value = cell if schema.column_names else {"anyOf": [cell, list_of(cell, 0)]}
    widths = {"features": schema.n_features, "logits": schema.n_logits}
    row = (
        {"anyOf": [{"type": "string"}, list_of(cell, 0)]} if schema.kind == "any" else list_of(cell, schema.n_features)
    )
    known = {
        "rows": rows_of(row),
        "activations": _object({name: rows_of(list_of(_NUMBER, width)) for name, width in widths.items() if width}),
        "columns": _object(dict.fromkeys(schema.names, rows_of(value))),
        "records": rows_of(_object(dict.fromkeys(schema.names, value))),
    }
    return {form: known[form] for form in forms_of(schema)}


def _example(schema: Schema) -> Json:
    if schema.kind == "network":
        features = {"features": [[0.0] * schema.n_features]} if schema.n_features else {}
        return {"activations": {**features, "logits": [[1.0 / schema.n_logits] * schema.n_logits]}}
    return {"rows": ["a text"] if schema.kind == "any" else [[0.0] * schema.n_features]}
