# SPDX-License-Identifier: BSD-3-Clause
"""What a caller is told when a request is refused: a status and one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

__all__ = ["PROBLEM_TYPE", "Refusal", "problem_body"]

PROBLEM_TYPE = "application/problem+json"


class Refusal(Exception):
    """A request that gets a status of 400 or more.

    Parameters
    ----------
    status : int
    sentence : str
        What was wrong and what to do.
    headers : mapping of str to str
        Further headers of the answer.
    limit : str, default=None
        Name of the limit that was exceeded, as the metrics count it.
    """

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None, *, limit: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})
        self.limit = limit


def problem_body(status: int, sentence: str, request_id: str) -> bytes:
    """Return the JSON of a refusal.

    Examples
    --------
    >>> problem_body(404, "Nothing is here.", "a1")
    b'{"error": "Nothing is here.", "status": 404, "title": "Not Found", "request_id": "a1"}'
    """
    sentence = " ".join(sentence.split())
    title = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Error"
    return json.dumps({"error": sentence, "status": status, "title": title, "request_id": request_id}).encode()
