# SPDX-License-Identifier: BSD-3-Clause
"""The routes.

Convention: a handler reads, checks and hands over to `Service`; it computes nothing. Its docstring is what the description of the
interface says. Whatever is refused, also by the framework, becomes a `Refusal`, which the `Gate` answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from importlib import resources
from typing import Any, NoReturn
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from poscod.serve._bodies import read_body
from poscod.serve._gate import Gate
from poscod.serve._openapi import Endpoint, describe
from poscod.serve._parse import JSON_TYPE, READERS, parse_json
from poscod.serve._say import Refusal, dumps
from poscod.serve._service import COSTS, Question, Service
from poscod.serve._stream import ARROW_TYPE

# Larger bodies are parsed in a compute thread, so that the event loop keeps answering.
_INLINE_BYTES = 32768
_PAGE = {
    "/": ("dashboard.html", "text/html"),
    "/dashboard.js": ("dashboard.js", "text/javascript"),
    "/dashboard.css": ("dashboard.css", "text/css"),
}
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# How a request with a body may be refused.
_BODY = (400, 408, 413, 415, 422, 503)
_NOWHERE = {404: "Nothing is here", 405: "This method is not known here"}


def build(service: Service, *, access_log: bool) -> Starlette:
    """Return a service as an ASGI application; its threads end with the application's lifespan."""
    endpoints = _Handlers(service).endpoints()
    known = frozenset(endpoint.path for endpoint in endpoints)
    open_paths = frozenset(endpoint.path for endpoint in endpoints if endpoint.open)

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        watcher = asyncio.create_task(_follow_file(service))
        try:
            yield
        finally:
            watcher.cancel()
            await asyncio.get_running_loop().run_in_executor(None, service.close)

    app = Starlette(
        routes=[Route(item.path, item.handler, methods=[item.method]) for item in endpoints],
        middleware=[Middleware(Gate, service=service, routes=known, open_paths=open_paths, access_log=access_log)],
        exception_handlers={HTTPException: _refuse},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.service = service
    return app


async def _refuse(_: Request, error: Exception) -> NoReturn:
    assert isinstance(error, HTTPException)
    sentence = f"{_NOWHERE.get(error.status_code, error.detail)}: /openapi.json lists what is."
    raise Refusal(error.status_code, sentence, error.headers)


async def _follow_file(service: Service) -> None:
    """Look at the model file now and then."""
    while seconds := service.settings.reload_seconds:
        await asyncio.sleep(seconds)
        service.holder.look_soon()


def _asks_why(query: bytes) -> bool:
    """Tell whether a query asks for details."""
    given = (
        parse_qs(query.decode("latin-1"), keep_blank_values=True).get("explain", ["false"])[-1] if query else "false"
    )
    if given not in ("true", "false"):
        raise Refusal(422, f"explain must be true or false, got '{given[:100]}'.")
    return given == "true"


class _Handlers:
    """One method per route."""

    def __init__(self, service: Service) -> None:
        self._service, self._settings = service, service.settings
        folder = resources.files("poscod.serve") / "page"
        self._page = {path: ((folder / name).read_bytes(), kind) for path, (name, kind) in _PAGE.items()}

    def endpoints(self) -> list[Endpoint]:
        """Return all routes."""
        return [
            Endpoint("POST", "/v1/decide", self.decide, "Decided", _BODY),
            Endpoint("GET", "/v1/model", self.model, "Model"),
            Endpoint("GET", "/v1/at", self.at, "Applied", (422, 503)),
            Endpoint("POST", "/v1/at", self.at_rows, "Applied", _BODY),
            Endpoint("POST", "/v1/verdicts", self.verdicts, "Stored", (*_BODY, 409)),
            Endpoint("GET", "/v1/monitor", self.monitor, "Monitor"),
            Endpoint("POST", "/v1/reload", self.reload, "Reloaded", (409,)),
            Endpoint("GET", "/healthz", self.healthz, "Alive", open=True),
            Endpoint("GET", "/readyz", self.readyz, "Ready", (503,), open=True),
            Endpoint("GET", "/metrics", self.metrics, "text/plain", open=self._settings.open_metrics),
            Endpoint("GET", "/openapi.json", self.openapi, "Description"),
            *(Endpoint("GET", path, self.page, kind, open=True) for path, (_, kind) in _PAGE.items()),
        ]

    async def decide(self, request: Request) -> Response:
        """Decide on a batch: an answer for every row, in order, as JSON, or as an Arrow stream where Accept names it; ?explain=true adds details."""
        loaded, notes = self._service.holder.current, request.scope["poscod"]
        body, kind, headers = await self._body(request, *READERS)
        arrow = ARROW_TYPE.encode() in headers.get(b"accept", b"")
        explain = _asks_why(request.scope["query_string"])

        def ask() -> Question:
            rows = READERS[kind](body, loaded.model.schema_, self._settings.max_rows)
            notes["rows"] = len(rows)
            return Question(loaded, rows, notes["request_id"], arrow, explain)

        answer = await self._service.decide(ask() if len(body) <= _INLINE_BYTES else ask, self._until())
        return Response(answer, media_type=ARROW_TYPE if arrow else JSON_TYPE)

    async def at(self, request: Request) -> Response:
        """Say what other costs would do: the rule and its rates on the calibration rows. Nothing changes in the service."""
        query = parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        values: dict[str, Any] = {}
        for name, given in query.items():
            if name not in COSTS:
                raise Refusal(422, f"The query takes {' and '.join(COSTS)}, got '{name[:100]}'.")
            with contextlib.suppress(ValueError):
                values[name] = given[-1][:100]
                values[name] = float(given[-1])
        return await self._at(lambda: values)

    async def at_rows(self, request: Request) -> Response:
        """Say what other costs would do; with rows also their decisions, which are neither logged nor counted."""
        body, _, _ = await self._body(request, JSON_TYPE)
        schema = self._service.holder.current.model.schema_
        return await self._at(partial(parse_json, body, schema, self._settings.max_rows))

    async def _at(self, read: Callable[[], dict[str, Any]]) -> Response:
        loaded = self._service.holder.current
        answer = await self._service.compute(lambda: self._service.at(loaded, read()), self._until())
        return Response(answer, media_type=JSON_TYPE)

    async def verdicts(self, request: Request) -> Response:
        """Store what people say of decisions, by the ids these were asked under: a class, or ood. A verdict that comes again replaces the old one, null takes it back; nothing is refitted."""
        body, _, _ = await self._body(request, JSON_TYPE)
        loaded = self._service.holder.current
        read = partial(parse_json, body, loaded.model.schema_, self._settings.max_rows)
        return Response(await self._service.verdicts(loaded, read, self._until()), media_type=JSON_TYPE)

    def _until(self) -> float:
        """Return when a request whose body has come must be answered, as the event loop counts time."""
        return asyncio.get_running_loop().time() + self._settings.request_seconds

    async def _body(self, request: Request, *kinds: str) -> tuple[bytes, str, dict[bytes, bytes]]:
        """Return the body of a request, its media type and all headers."""
        headers = dict(request.scope["headers"])
        kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        if kind not in kinds:
            raise Refusal(415, f"Content-Type must be {' or '.join(kinds)}, got '{kind[:100]}'.")
        most, seconds = self._settings.max_body_bytes, self._settings.body_seconds
        if kind == JSON_TYPE:
            most = min(most, self._settings.max_json_bytes)
        return await read_body(headers, request.receive, most, seconds), kind, headers

    async def model(self, _: Request) -> Response:
        """Describe the model in service."""
        return _json(self._service.holder.current.card)

    async def monitor(self, _: Request) -> Response:
        """Show the monitor's windows and findings."""
        book = self._service.book
        return _json({**self._service.watch.document(), "verdicts": None if book is None else book.counts})

    async def reload(self, _: Request) -> Response:
        """Read the model file again; the same happens by itself when the file changes, and on SIGHUP."""
        holder = self._service.holder
        changed = await holder.wait_for_reload()
        if holder.error is not None:
            raise Refusal(409, f"The old model goes on, because the new one is refused: {holder.error}")
        return _json({"changed": changed, "sha256": holder.current.sha256})

    async def healthz(self, _: Request) -> Response:
        """Say that the process answers."""
        return _json({"alive": True})

    async def readyz(self, _: Request) -> Response:
        """Say whether to send requests here, and what is refused or failing meanwhile."""
        if self._service.draining:
            raise Refusal(503, "The service is shutting down.", {"Retry-After": "1"})
        holder, log = self._service.holder, self._service.log
        errors = {"reload_error": holder.error, "log_error": log and log.error}
        return _json({"ready": True, "model": holder.current.sha256, **errors})

    async def metrics(self, _: Request) -> Response:
        """Return the metrics of Prometheus."""
        body, kind = self._service.metrics.text()
        return Response(body, headers={"content-type": kind})

    async def openapi(self, _: Request) -> Response:
        """Return this description."""
        return _json(describe(self.endpoints(), self._service.holder.current.model.schema_, self._settings))

    async def page(self, request: Request) -> Response:
        """Return a file of the dashboard."""
        body, kind = self._page[request.scope["path"]]
        return Response(body, media_type=kind, headers={"content-security-policy": _POLICY})


def _json(document: Any) -> Response:
    return Response(dumps(document), media_type=JSON_TYPE)
