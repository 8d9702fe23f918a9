# SPDX-License-Identifier: BSD-3-Clause
"""The description of the interface, with the sizes of the model in service.

Convention: written by hand, because the hot route reads its body itself. Every path, every status and every type of body that the
service has is here; tests compare the paths with the routes and send what the description allows, and what it does not.
"""

from __future__ import annotations

import sys
from typing import Any

from poscod.decision import REASONS
from poscod.serve._arrow import ARROW_TYPE
from poscod.serve._model import Inputs, LoadedModel
from poscod.serve._refusal import PROBLEM_TYPE
from poscod.serve._rows import JSON_TYPE, NPY_TYPE
from poscod.serve._settings import Settings

__all__ = ["describe"]

Schema = dict[str, Any]

_NUMBER: Schema = {"type": "number"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_SHARE: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_LABEL: Schema = {"description": "a class of the model, of whatever type its labels have"}
_BINARY: Schema = {"type": "string", "format": "binary"}

REFUSALS: dict[int, str] = {
    400: "The body cannot be read.",
    401: "A bearer token is needed.",
    405: "The method is not known here.",
    408: "The body took too long to arrive.",
    409: "The model file is refused; the old model goes on.",
    413: "The body or the batch is too large.",
    415: "The type or the encoding of the body is not known.",
    422: "The body can be read and does not fit the model.",
    503: "Too much work, or the service is shutting down: try again after Retry-After seconds.",
}


def describe(loaded: LoadedModel, settings: Settings) -> dict[str, Any]:
    """Return the OpenAPI document of a service."""
    rows = _rows_schema(loaded.inputs, settings.max_rows)
    example = _example(loaded.inputs)
    bodies: Schema = {JSON_TYPE: {"schema": rows, "example": example}}
    bodies[ARROW_TYPE] = {"schema": {**_BINARY, "description": _arrow_text(loaded.inputs)}}
    bodies[NPY_TYPE] = {"schema": {**_BINARY, "description": _npy_text(loaded.inputs)}}
    at_body = {"allOf": [{"$ref": "#/components/schemas/Costs"}], "type": "object"}
    paths: dict[str, Any] = {
        "/v1/decide": {
            "post": _operation(
                "decide",
                "Decide on a batch of rows",
                "An answer for every row, in order. The type of the answer follows Accept: JSON, or an Arrow stream where it is named.",
                {JSON_TYPE: {"schema": _ref("Decided")}, ARROW_TYPE: {"schema": _BINARY}},
                (400, 408, 413, 415, 422, 503),
                body=bodies,
            )
        },
        "/v1/model": {"get": _operation("model", "Describe the model in service", "", _json(_ref("Model")), ())},
        "/v1/at": {
            "get": _operation(
                "at",
                "What would other costs do?",
                "Threshold, slope and rates on the calibration rows, with the same r and g. Nothing changes in the service.",
                _json(_ref("Rule")),
                (422, 503),
                parameters=[_cost_parameter("alpha", "minimum"), _cost_parameter("tpr_min", "exclusiveMinimum")],
            ),
            "post": _operation(
                "at_rows",
                "What would other costs do, and what would they decide?",
                "As the GET; with rows (in the forms of /v1/decide) also their decisions, which are neither logged nor counted.",
                _json(_ref("Rule")),
                (400, 408, 413, 415, 422, 503),
                body={JSON_TYPE: {"schema": at_body, "example": {"alpha": 0.3, "tpr_min": 0.9, **example}}},
            ),
        },
        "/v1/monitor": {
            "get": _operation("monitor", "Windows and findings of the monitor", "", _json(_ref("Monitor")), ())
        },
        "/v1/reload": {
            "post": _operation(
                "reload",
                "Read the model file again",
                "The same happens by itself when the file changes, and on SIGHUP.",
                _json(_ref("Reloaded")),
                (409,),
            )
        },
        "/healthz": {
            "get": _operation("healthz", "Does the process answer?", "", _json({"type": "object"}), (), secured=False)
        },
        "/readyz": {
            "get": _operation("readyz", "Is it ready for requests?", "", _json(_ref("Ready")), (503,), secured=False)
        },
        "/metrics": {
            "get": _operation(
                "metrics",
                "Metrics for Prometheus",
                "",
                {"text/plain": {"schema": {"type": "string"}}},
                (),
                secured=not settings.open_metrics,
            )
        },
        "/openapi.json": {"get": _operation("openapi", "This document", "", _json({"type": "object"}), ())},
    }
    for path, kind in (("/", "text/html"), ("/dashboard.js", "text/javascript"), ("/dashboard.css", "text/css")):
        name = path.strip("/").replace(".", "_") or "dashboard"
        answer = {kind: {"schema": {"type": "string"}}}
        paths[path] = {"get": _operation(name, "The dashboard", "", answer, (), secured=False)}
    if not settings.tokens:
        for item in paths.values():
            for operation in item.values():
                operation.pop("security", None)
                operation["responses"].pop("401", None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "poscod",
            "version": sys.modules["poscod"].__version__,
            "description": "A classifier that says when not to answer. Infinite numbers are written as the largest double.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(settings),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(
    name: str,
    summary: str,
    text: str,
    answer: Schema,
    refusals: tuple[int, ...],
    *,
    body: Schema | None = None,
    parameters: list[Schema] | None = None,
    secured: bool = True,
) -> Schema:
    responses: Schema = {"200": {"description": summary, "content": answer}}
    problem = {PROBLEM_TYPE: {"schema": _ref("Problem")}}
    for status in (*refusals, 405, *([401] if secured else [])):
        responses[str(status)] = {"description": REFUSALS[status], "content": problem}
    operation: Schema = {"operationId": name, "summary": summary, "responses": responses}
    if text:
        operation["description"] = text
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    if parameters:
        operation["parameters"] = parameters
    if secured:
        operation["security"] = [{"token": []}]
    return operation


def _json(schema: Schema) -> Schema:
    return {JSON_TYPE: {"schema": schema}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _cost_parameter(name: str, low: str) -> Schema:
    schema = {"type": "number", low: 0, "maximum": 1}
    return {"name": name, "in": "query", "required": False, "schema": schema, "example": 0.5}


def _matrix(width: int | None, max_rows: int, *, null: bool = False) -> Schema:
    cell: Schema = {"type": ["number", "null"]} if null else _NUMBER
    row: Schema = {"type": "array", "items": cell}
    if width is not None:
        row |= {"minItems": width, "maxItems": width}
    return {"type": "array", "items": row, "minItems": 1, "maxItems": max_rows}


def _rows_schema(inputs: Inputs, max_rows: int) -> Schema:
    """Return the forms of JSON that the model takes: exactly one of them, and possibly names of the rows."""
    ids = {"type": "array", "items": {"type": ["string", "integer"], "maxLength": 200}, "maxItems": max_rows}
    cell: Schema = {"type": ["number", "string", "null"]}
    forms: dict[str, Schema] = {}
    if inputs.kind == "network":
        parts = {"features": _matrix(inputs.width, max_rows), "logits": _matrix(inputs.logits, max_rows)}
        needed = ["logits"] if inputs.width in (None, inputs.logits) else ["features", "logits"]
        forms["activations"] = {
            "type": "object",
            "properties": parts,
            "required": needed,
            "additionalProperties": False,
        }
    elif inputs.kind == "any":
        text = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": max_rows}
        forms["rows"] = {"anyOf": [text, _matrix(None, max_rows)]}
    else:
        forms["rows"] = _matrix(inputs.width, max_rows, null=True)
        if inputs.frame:
            forms["rows"]["items"]["items"] = cell
    known = inputs.logit_names if inputs.kind == "network" else inputs.names
    if known is not None:
        names = [*(inputs.names or ()), *known] if inputs.kind == "network" else list(known)
        if not inputs.frame:
            cell = {"type": ["number", "null"]}
        column = {"type": "array", "items": cell, "minItems": 1, "maxItems": max_rows}
        forms["columns"] = {
            "type": "object",
            "properties": dict.fromkeys(names, column),
            "required": names,
            "additionalProperties": False,
        }
        record = {
            "type": "object",
            "properties": dict.fromkeys(names, cell),
            "required": names,
            "additionalProperties": False,
        }
        forms["records"] = {"type": "array", "items": record, "minItems": 1, "maxItems": max_rows}
    choices = [
        {"type": "object", "properties": {name: form, "ids": ids}, "required": [name], "additionalProperties": False}
        for name, form in forms.items()
    ]
    return choices[0] if len(choices) == 1 else {"oneOf": choices}


def _example(inputs: Inputs) -> Schema:
    if inputs.kind == "network":
        parts = {"features": [[0.0] * (inputs.width or 0)], "logits": [[0.0] * (inputs.logits or 0)]}
        return {"activations": parts if inputs.width else {"logits": parts["logits"]}}
    return {"rows": ["a text"] if inputs.kind == "any" else [[0.0] * (inputs.width or 0)]}


def _arrow_text(inputs: Inputs) -> str:
    if inputs.kind == "network":
        columns = "columns features and logits, each a list of numbers"
    elif inputs.names is not None:
        columns = "a column for every feature, by name"
    else:
        columns = "a column of numbers for every feature, in order"
    return f"Arrow IPC stream, not compressed: {columns}; a column id, where it is no feature, names the rows."


def _npy_text(inputs: Inputs) -> str:
    matrix = "features and logits side by side" if inputs.kind == "network" else "one column per feature"
    return f"NPY file of a matrix of numbers: {matrix}."


def _schemas(settings: Settings) -> dict[str, Schema]:
    numbers = {"type": "array", "items": _NUMBER}
    labels = {"type": "array", "items": _LABEL}
    decisions = {
        "prediction": {**labels, "description": "the label, or the reject label where the answer does not stand"},
        "label": {**labels, "description": "the classifier's answer, also where it does not stand"},
        "accept": {"type": "array", "items": {"type": "boolean"}},
        "reason": {"type": "array", "items": {"type": "string", "enum": list(REASONS)}},
        "risk": {**numbers, "description": "conditional risk r"},
        "log_ratio": {**numbers, "description": "log g, g = p_OOD / p_ID"},
        "score": {**numbers, "description": "rejection score s; accepted iff s <= threshold"},
    }
    rule = {
        "problem": {"type": "object", "required": ["kind"]},
        "beta": _NUMBER,
        "threshold": _NUMBER,
        "tau": _NUMBER,
        "threshold_rule": {"type": "string", "enum": ["empirical", "guaranteed"]},
        "delta": {"type": ["number", "null"]},
        "promise": {"type": "string"},
        "calibration": _object(
            {
                "rows": _COUNT,
                "tpr": _SHARE,
                "selective_risk": {"type": ["number", "null"]},
                "fpr": _SHARE,
                "traffic_rows": _COUNT,
                "traffic_accepted": _SHARE,
            }
        ),
    }
    text, maybe = {"type": "string"}, {"type": ["string", "null"]}
    card = {
        "file": text,
        "sha256": text,
        "written_at": {"type": "string", "format": "date-time"},
        "loaded_at": {"type": "string", "format": "date-time"},
        "poscod": text,
        "classes": labels,
        "reject_label": _LABEL,
        "inputs": {"type": "object"},
        "ood_share_at_fit": _SHARE,
    }
    costs = {
        name: {"type": ["number", "null"], low: 0, "maximum": 1}
        for name, low in (("alpha", "minimum"), ("tpr_min", "exclusiveMinimum"))
    }
    return {
        "Problem": _object({"error": text, "status": {"type": "integer"}, "title": text, "request_id": text}),
        "Decisions": _object(decisions),
        "Decided": _object(
            {"model": text, "n": _COUNT, "decisions": _ref("Decisions")}, ids={"type": "array", "items": text}
        ),
        "Costs": {"type": "object", "properties": costs},
        "Rule": _object({**rule, "model": text}, decisions=_ref("Decisions")),
        "Model": _object({**card, **rule}),
        "Monitor": {"type": "object", "required": ["windows", "findings"]},
        "Reloaded": _object({"changed": {"type": "boolean"}, "sha256": text}),
        "Ready": _object({"ready": {"type": "boolean"}, "model": text, "reload_error": maybe, "log_error": maybe}),
    }


def _object(properties: Schema, **optional: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {**properties, **optional},
        "required": list(properties),
        "additionalProperties": False,
    }
