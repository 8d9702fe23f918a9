# SPDX-License-Identifier: BSD-3-Clause
"""What every request passes: a name, the token or the names of this machine, the number of requests at a time, one log line, and no traceback.

Convention: plain ASGI. A refusal anywhere below ends here as one sentence of JSON; an error nobody expected is status 500 with a
sentence that says nothing, and its type and place in the log.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from poscod.exceptions import InfeasibleProblemError, InvalidInputError
from poscod.serve._say import NAMES, PROBLEM_TYPE, Refusal, say, where
from poscod.serve._service import Service
from poscod.serve._settings import is_loopback, without_port

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_BEARER = b"bearer "
_GONE = 499  # the caller went away before there was an answer


class Gate:
    """The outermost layer of a service.

    Paths in `routes` have a name of their own in logs and metrics, all others share one; those in `open_paths` need no token.
    """

    def __init__(
        self, app: ASGIApp, *, service: Service, routes: frozenset[str], open_paths: frozenset[str], access_log: bool
    ) -> None:
        self._app, self._service, self._metrics = app, service, service.metrics
        self._routes, self._open, self._access_log = routes, open_paths, access_log
        self._tokens = [token.encode() for token in service.settings.tokens]
        self._busy = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), _GONE
        path, headers = scope["path"], dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given.decode() if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        notes: dict[str, Any] = {"request_id": request_id}
        scope["poscod"] = notes
        route, limit = path if path in self._routes else "other", None
        limited = path.startswith("/v1/")
        extra = [*_ALWAYS, (b"x-request-id", request_id.encode())]
        if self._service.draining:
            extra.append((b"connection", b"close"))

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        async def refuse(refusal: Refusal) -> None:
            if status == _GONE:  # otherwise an answer has begun
                response = Response(refusal.body(request_id), refusal.status, refusal.headers, PROBLEM_TYPE)
                await response(scope, receive, answer)

        self._count(limited)
        try:
            self._check_token(path, headers)
            self._check_names(scope, headers)
            if limited and self._busy > self._service.settings.max_in_flight:
                sentence = "Too many requests at a time: try again later."
                raise Refusal(503, sentence, {"Retry-After": "1"}, limit="in_flight")
            await self._app(scope, receive, answer)
        except Refusal as refusal:
            limit = refusal.limit
            await refuse(refusal)
        except (InvalidInputError, InfeasibleProblemError) as error:  # the library says what is wrong with a request
            await refuse(Refusal(422, error.told(NAMES)))
        except Exception as error:
            say("fault", request_id=request_id, route=route, error=where(error))
            await refuse(Refusal(500, "The service failed on this request; its log says where."))
        finally:
            self._count(-limited)
            seconds = time.perf_counter() - start
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(seconds)
            if limit is not None:
                self._metrics.rejected.labels(limit).inc()
            if self._access_log:
                say("request", route=route, status=status, ms=round(1e3 * seconds, 2), **notes)

    def _count(self, change: int) -> None:
        self._busy += change
        self._metrics.in_flight.set(self._busy)

    def _check_names(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Let no foreign web page use the browser of somebody who may ask: without a token, being on this machine is all that a caller needs."""
        if self._tokens:
            return
        host = headers.get(b"host", b"").decode("latin-1")
        here = is_loopback((scope.get("server") or ("", 0))[0])
        if here and host and not is_loopback(without_port(host)):
            sentence = (
                f"Without a token only this machine is served, under the name localhost, got Host '{host[:100]}'."
            )
            raise Refusal(421, f"{sentence} Set a token, or let the proxy send `Host: localhost`.", limit="host")
        origin = headers.get(b"origin")
        if origin is not None and scope["method"] == "POST" and origin.decode("latin-1").partition("://")[2] != host:
            sentence = "Without a token pages of other sites may not send anything: set a token, or leave out Origin."
            raise Refusal(403, sentence, limit="origin")

    def _check_token(self, path: str, headers: dict[bytes, bytes]) -> None:
        if not self._tokens or path in self._open:
            return
        given = headers.get(b"authorization", b"")
        token = given[len(_BEARER) :].strip() if given[: len(_BEARER)].lower() == _BEARER else b""
        # Every token is compared, each in constant time: how long it takes tells nothing.
        if not sum(hmac.compare_digest(token, known) for known in self._tokens):
            sentence = "A bearer token is needed: send it as `Authorization: Bearer ...`."
            raise Refusal(401, sentence, {"WWW-Authenticate": "Bearer"}, limit="token")
