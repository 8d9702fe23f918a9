# SPDX-License-Identifier: BSD-3-Clause
"""The description of the interface, made from the table of routes, the docstrings of their handlers and the model in service.

Convention: `ANSWERS` says what the answers hold; bodies have the sizes and names of the model's schema. Tests send what the description
allows, and what it does not, and compare every answer with it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, NamedTuple

from poscod.decision import REASONS
from poscod.model import Schema
from poscod.serve._parse import JSON_TYPE, LONGEST_ID, NPY_TYPE, forms_of, sizes_of
from poscod.serve._say import PROBLEM_TYPE
from poscod.serve._settings import Settings
from poscod.serve._stream import ARROW_TYPE
from poscod.serve._verdicts import KINDS

Json = dict[str, Any]


class Endpoint(NamedTuple):
    """A route: its method and path, who answers, which of `ANSWERS` or which media type, how it may refuse, whether it needs no token."""

    method: str
    path: str
    handler: Callable[[Any], Any]
    answer: str
    refusals: tuple[int, ...] = ()
    open: bool = False


def _object(needed: Json, **optional: Json) -> Json:
    properties = {**needed, **optional}
    return {"type": "object", "properties": properties, "required": list(needed), "additionalProperties": False}


def _array(items: Json, least: int = 0, most: int | None = None) -> Json:
    limits = {"minItems": least, "maxItems": most}
    return {"type": "array", "items": items, **{name: limit for name, limit in limits.items() if limit}}


_ANY: Json = {}
_OBJECT: Json = {"type": "object"}
_TEXT: Json = {"type": "string"}
_BINARY: Json = {"type": "string", "format": "binary"}
_FLAG: Json = {"type": "boolean"}
_COUNT: Json = {"type": "integer", "minimum": 0}
_NUMBER: Json = {"type": "number"}
_GAPS: Json = {"type": ["number", "null"]}
_SHARE: Json = {**_GAPS, "minimum": 0, "maximum": 1}
_MAYBE: Json = {"type": ["string", "null"]}
_COSTS = {"alpha": _SHARE, "tpr_min": {**_GAPS, "exclusiveMinimum": 0, "maximum": 1}}
_RULE = {"problem": _OBJECT, "slope": _NUMBER, "threshold": _NUMBER, "promise": {"type": ["object", "null"]}}
_CARD = dict.fromkeys(("file", "sha256", "written_at", "loaded_at", "poscod"), _TEXT)
_PART = {"type": "number", "minimum": 0, "maximum": 1}
_INTERVAL = {**_object({"estimate": _GAPS, "low": _GAPS, "high": _GAPS, "level": _PART}), "type": ["object", "null"]}
_RATES = {
    **dict.fromkeys(("rows", "traffic_rows"), _COUNT),
    "level": _PART,
    **dict.fromkeys(("accuracy", "tpr", "error", "selective_risk", "ood_prior", "accepted", "fpr", "risk"), _INTERVAL),
    "fpr_note": _MAYBE,
    "majority": _object({"class": _ANY, "share": _PART}),
    "wrong": _object({"rows": _COUNT, "caught": _INTERVAL}),
    "per_10000": {**_OBJECT, "description": "inputs answered and rejected, by reason"},
    "price": {**_INTERVAL, "description": "wrong answers that one accepted OOD input counts as"},
    "reject_price": {**_GAPS, "description": "wrong answers that the rule pays rather than reject one more ID input"},
}
_MIX = _object(
    {
        "sentence": {**_TEXT, "description": "what the class mix changed"},
        "estimated": {**_FLAG, "description": "whether the traffic's mix was estimated at fit"},
        "changed": {**_FLAG, "description": "whether another mix than that of the labeled rows is served"},
        "p_value": _PART,
        "level": {**_PART, "description": "coverage of each interval"},
        "classes": _array(_object({"class": _ANY, **dict.fromkeys(("labeled", "traffic", "low", "high"), _PART)})),
    }
)
_KNOWN = {
    "classes": _array(_ANY),
    "reject_label": _ANY,
    "inputs": _OBJECT,
    "ood_prior": _SHARE,
    "class_mix": {**_MIX, "description": "class mix of the labeled rows and of the known inputs that the model serves"},
    "drift": {
        "type": ["object", "null"],
        "description": "inputs of the traffic at fit that seem to have moved (said: drift) or cannot be told from OOD inputs (said: undecided), with a sentence; null where neither",
    },
}
_APPLIED = {
    "rule": _object({**_RULE, "rows": _COUNT, "verdicts": _COUNT, "sentence": _TEXT}),
    "estimates": {
        **_object(
            {
                **_RATES,
                "title": _TEXT,
                "lines": _array(_object({"name": _TEXT, "text": _TEXT})),
                "doubts": _array(_TEXT),
            },
            choices=_array(_object({**_RATES, "change": _OBJECT, "option": _TEXT, "why": _TEXT, "cells": _OBJECT})),
        ),
        "description": "what the rule is expected to do by the rows of its fit, without OOD labels, and a few other rules",
    },
}
_DECISIONS = _object(
    {
        "prediction": {**_array(_ANY), "description": "the label, or the reject label where the answer does not stand"},
        "label": {**_array(_ANY), "description": "the classifier's answer, also where it does not stand"},
        "accept": _array(_FLAG),
        "reason": _array({"enum": list(REASONS)}),
        "risk": {**_array(_NUMBER), "description": "conditional risk r"},
        "log_ratio": {**_array(_NUMBER), "description": "log g, g = p_OOD / p_ID"},
        "score": {**_array(_NUMBER), "description": "rejection score s; accepted iff s <= threshold"},
    },
    detail={
        **_array(_TEXT),
        "description": "what makes a row unfamiliar: columns with their values and what similar labeled rows hold, or the nearest labeled row",
    },
)
_SAID = {
    **_object(dict.fromkeys(("accepted", "rejected"), _object(dict.fromkeys(KINDS, _COUNT)))),
    "description": "all verdicts that are stored, by whether the answer stood, and by what they say of it",
}
ANSWERS: dict[str, Json] = {
    "Problem": _object({"error": _TEXT, "status": _COUNT, "title": _TEXT, "request_id": _TEXT}),
    "Decided": _object({"model": _TEXT, "n": _COUNT, "decisions": _DECISIONS}, ids=_array(_TEXT)),
    "Applied": _object({"model": _TEXT, **_APPLIED}, decisions=_DECISIONS),
    "Model": _object({**_CARD, **_KNOWN, **_APPLIED}),
    "Stored": _object({"model": _TEXT, "stored": _COUNT, "withdrawn": _COUNT, "counts": _SAID}),
    "Monitor": {"type": "object", "required": ["windows", "findings"]},
    "Reloaded": _object({"changed": _FLAG, "sha256": _TEXT}),
    "Alive": _object({"alive": _FLAG}),
    "Ready": _object({"ready": _FLAG, "model": _TEXT, "reload_error": _MAYBE, "log_error": _MAYBE}),
    "Description": _OBJECT,
}


def describe(endpoints: Iterable[Endpoint], schema: Schema, settings: Settings) -> Json:
    """Return the OpenAPI document of a service."""
    bodies, paths = _bodies(schema, settings.max_rows), dict[str, Json]()
    for method, path, handler, answer, refusals, is_open in endpoints:
        if settings.tokens:
            refusals = refusals if is_open else (*refusals, 401)
        else:
            refusals = (*refusals, 421) if method == "GET" else (*refusals, 403, 421)
        content = {JSON_TYPE: {"schema": _ref(answer)}} if answer in ANSWERS else {answer: {"schema": _TEXT}}
        if answer == "Decided":
            content[ARROW_TYPE] = {"schema": _BINARY}
        problem = {PROBLEM_TYPE: {"schema": _ref("Problem")}}
        operation: Json = {
            "operationId": handler.__name__,
            "summary": inspect.getdoc(handler),
            "responses": {"200": {"description": answer, "content": content}}
            | {str(n): {"description": HTTPStatus(n).phrase, "content": problem} for n in (*refusals, 405)},
        }
        paths.setdefault(path, {})[method.lower()] = operation
        if 401 in refusals:
            operation["security"] = [{"token": []}]
        if 415 in refusals:
            operation["requestBody"] = {"required": True, "content": bodies[path]}
        if answer == "Decided":
            operation["parameters"] = [{"name": "explain", "in": "query", "schema": {"enum": ["true", "false"]}}]
        elif answer == "Applied" and 415 not in refusals:
            operation["parameters"] = [{"name": name, "in": "query", "schema": cost} for name, cost in _COSTS.items()]
    text = "A classifier that says when not to answer. Infinite numbers are written as the largest double."
    return {
        "openapi": "3.1.0",
        "info": {"title": "poscod", "version": sys.modules["poscod"].__version__, "description": text},
        "paths": paths,
        "components": {"schemas": ANSWERS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _bodies(schema: Schema, max_rows: int) -> dict[str, Json]:
    """Describe what is sent to a path, by media type, with an example of one row."""
    cell: Json = {"type": ["number", "string", "boolean", "null"]} if schema.frame else _GAPS
    value = cell if schema.column_names else {"anyOf": [cell, _array(cell)]}
    sizes = sizes_of(schema)
    row = _array(cell, schema.n_features, schema.n_features)
    known = {
        "rows": _array({"anyOf": [_TEXT, row]} if schema.kind == "any" else row, 1, max_rows),
        "columns": _object(dict.fromkeys(schema.names, _array(value, 1, max_rows))),
        "records": _array(_object(dict.fromkeys(schema.names, value)), 1, max_rows),
        "activations": _object({name: _array(_array(_GAPS, n, n), 1, max_rows) for name, n in sizes.items()}),
    }
    examples: Json = {
        "rows": ["a text"] if schema.kind == "any" else [[0.0] * schema.n_features],
        "activations": {name: [[1.0 / n] * n] for name, n in sizes.items()},
    }
    forms = {name: known[name] for name in forms_of(schema)}
    example = {name: examples[name] for name in forms if name in examples} | {"ids": ["a"]}
    one_id: Json = {"type": ["string", "integer"], "maxLength": LONGEST_ID}
    said: Json = {"type": ["string", "number", "null"], "description": "a class, or ood; null takes a verdict back"}
    ids = _array(one_id, 0, max_rows)
    arrow = "not compressed, without dictionaries; a column per name or number of a row, or features and logits as lists; id names the rows"
    matrix = "a matrix of numbers; features and logits side by side"
    one_of = [_object({name: form}, ids=ids) for name, form in forms.items()]
    return {
        "/v1/decide": {
            JSON_TYPE: {"schema": {"oneOf": one_of}, "example": example},
            ARROW_TYPE: {"schema": {**_BINARY, "description": arrow}},
            NPY_TYPE: {"schema": {**_BINARY, "description": matrix}},
        },
        "/v1/verdicts": {
            JSON_TYPE: {
                "schema": _object({"verdicts": _array(_object({"id": one_id, "verdict": said}), 1, max_rows)}),
                "example": {"verdicts": [{"id": "a", "verdict": "ood"}]},
            }
        },
        "/v1/at": {
            JSON_TYPE: {"schema": _object({}, **_COSTS, **forms, ids=ids), "example": {"alpha": 0.3, **example}}
        },
    }
