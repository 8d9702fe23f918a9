# SPDX-License-Identifier: BSD-3-Clause
"""What a caller is told when a request is refused: a status and one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

PROBLEM_TYPE = "application/problem+json"


class Refusal(Exception):
    """A request that gets a status of 400 or more: a sentence, further headers, and the limit to count where one was exceeded."""

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None, *, limit: str | None = None
    ) -> None:
        super().__init__(sentence)
        words = " ".join(sentence.split())
        self.status, self.sentence, self.headers, self.limit = (
            status,
            words[:1].upper() + words[1:],
            headers or {},
            limit,
        )

    def body(self, request_id: str) -> bytes:
        """Return the JSON of the refusal.

        Examples
        --------
        >>> Refusal(404, "Nothing is here.").body("a1")
        b'{"error": "Nothing is here.", "status": 404, "title": "Not Found", "request_id": "a1"}'
        """
        title = HTTPStatus(self.status).phrase
        document = {"error": self.sentence, "status": self.status, "title": title, "request_id": request_id}
        return json.dumps(document).encode()


def too_many(max_rows: int) -> Refusal:
    """Return the refusal of a batch beyond the limit."""
    return Refusal(413, f"A batch may have at most {max_rows} rows, got more: send several batches.", limit="rows")
