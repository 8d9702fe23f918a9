# SPDX-License-Identifier: BSD-3-Clause
"""What every request passes: a name, the token, the number of requests at a time, one log line, and no traceback.

Convention: plain ASGI. A refusal anywhere below ends here as one sentence of JSON; an error nobody expected is status 500 with a
sentence that says nothing, and its type and place in the log.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from poscod.serve._lines import say, where
from poscod.serve._metrics import Metrics
from poscod.serve._refusal import PROBLEM_TYPE, Refusal, problem_body
from poscod.serve._settings import Settings

__all__ = ["Gate"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_BEARER = b"bearer "


class Gate:
    """The outermost layer of the service.

    Parameters
    ----------
    app : ASGI application
    settings : Settings
    metrics : Metrics
    routes : frozenset of str
        Paths that have a name of their own in logs and metrics; all others share one.
    draining : callable
        Tells whether the service is about to stop: answers then close their connection.
    access_log : bool
        Whether every request gets a line.
    """

    def __init__(
        self,
        app: App,
        settings: Settings,
        metrics: Metrics,
        routes: frozenset[str],
        draining: Callable[[], bool],
        access_log: bool,
    ) -> None:
        self._app, self._settings, self._metrics, self._routes = app, settings, metrics, routes
        self._draining, self._access_log = draining, access_log
        self._tokens = [token.encode() for token in settings.tokens]
        self._open = {"/healthz", "/readyz", "/", "/dashboard.js", "/dashboard.css"} | (
            {"/metrics"} if settings.open_metrics else set()
        )
        self._busy = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
                return
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given.decode() if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        notes: dict[str, Any] = {"request_id": request_id}
        scope["poscod"] = notes
        path = scope["path"]
        limited = path.startswith("/v1/")
        answer = _Answer(send, request_id, self._draining())
        if limited:
            self._busy += 1
            self._metrics.in_flight.set(self._busy)
        try:
            self._check_token(path, headers)
            if limited and self._busy > self._settings.max_in_flight:
                notes["limit"] = "in_flight"
                raise Refusal(503, "Too many requests at a time: try again later.", {"Retry-After": "1"})
            await self._app(scope, receive, answer)
        except Refusal as refusal:
            if refusal.limit is not None:
                notes["limit"] = refusal.limit
            await answer.refuse(refusal)
        except Exception as error:
            say("fault", request_id=request_id, route=path if path in self._routes else "other", error=where(error))
            await answer.refuse(Refusal(500, "The service failed on this request; its log says where."))
        finally:
            if limited:
                self._busy -= 1
                self._metrics.in_flight.set(self._busy)
            self._note(path, answer.status, time.perf_counter() - start, notes)

    def _note(self, path: str, status: int, seconds: float, notes: dict[str, Any]) -> None:
        route = path if path in self._routes else "other"
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        limit = notes.pop("limit", None)
        if limit is not None:
            self._metrics.rejected.labels(limit).inc()
        if self._access_log:
            say("request", route=route, status=status, ms=round(1e3 * seconds, 2), **notes)

    def _check_token(self, path: str, headers: dict[bytes, bytes]) -> None:
        if not self._tokens or path in self._open:
            return
        given = headers.get(b"authorization", b"")
        token = given[len(_BEARER) :].strip() if given[: len(_BEARER)].lower() == _BEARER else b""
        # Every token is compared, each in constant time: how long it takes tells nothing.
        if not sum(hmac.compare_digest(token, known) for known in self._tokens):
            self._metrics.rejected.labels("token").inc()
            raise Refusal(
                401, "A bearer token is needed: send it as `Authorization: Bearer ...`.", {"WWW-Authenticate": "Bearer"}
            )


class _Answer:
    """Sends an answer and adds the headers that all answers have.

    Parameters
    ----------
    send : ASGI send
    request_id : str
    close : bool
        Whether the connection ends with this answer.
    """

    def __init__(self, send: Send, request_id: str, close: bool) -> None:
        self._send, self._request_id, self._close = send, request_id, close
        self.status = 499  # the caller went away before there was an answer
        self._begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name for name, _ in message["headers"]}
            extra = [item for item in _ALWAYS if item[0] not in present]
            extra.append((b"x-request-id", self._request_id.encode()))
            if self._close:
                extra.append((b"connection", b"close"))
            message["headers"] = [*message["headers"], *extra]
            self._begun = True
        await self._send(message)

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal, if no answer has begun."""
        if self._begun:
            return
        body = problem_body(refusal.status, refusal.sentence, self._request_id)
        headers = [(b"content-type", PROBLEM_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        headers += [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
        await self({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})
