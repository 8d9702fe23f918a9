# SPDX-License-Identifier: BSD-3-Clause
"""The routes.

Convention: a handler reads, checks and hands over to `Service`; it computes nothing. `poscod.serve._openapi` describes every
route by hand, with the sizes of the model in service, and a test compares the two.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from poscod._optional import require
from poscod._validation import check_number
from poscod.exceptions import InvalidInputError
from poscod.serve._arrow import ARROW_TYPE
from poscod.serve._bodies import Deadline, media_type, read_body
from poscod.serve._engine import Job
from poscod.serve._gate import Gate
from poscod.serve._lines import say
from poscod.serve._openapi import describe
from poscod.serve._plain import dumps
from poscod.serve._refusal import Refusal
from poscod.serve._rows import JSON_TYPE, READERS, parse_json, parse_rows, rows_from_document
from poscod.serve._service import Question, Service
from poscod.serve._settings import Settings

__all__ = ["create_app"]

# Larger bodies are parsed in a compute thread, so that the event loop keeps answering.
_INLINE_BYTES = 32768
_PAGE = {
    "/": ("dashboard.html", "text/html"),
    "/dashboard.js": ("dashboard.js", "text/javascript"),
    "/dashboard.css": ("dashboard.css", "text/css"),
}
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def create_app(model_path: str | os.PathLike[str], settings: Settings | None = None, *, access_log: bool = True) -> Any:
    """Return the service for a model file as an ASGI application.

    Parameters
    ----------
    model_path : str or path-like
        File written by `POSCOD.save`.
    settings : Settings, default=None
        Limits and choices; None takes the defaults.
    access_log : bool, default=True
        Whether every request gets a line of JSON on standard error.

    Returns
    -------
    app : fastapi.FastAPI
        ``app.state.service`` holds its parts. Threads start here and end with the application's lifespan.
    """
    fastapi = require("fastapi", extra="serve", feature="poscod serve")
    routing = require("starlette.routing", extra="serve", feature="poscod serve")
    exceptions = require("starlette.exceptions", extra="serve", feature="poscod serve")
    settings = Settings() if settings is None else settings
    service = Service(Path(model_path), settings)
    handlers = _Handlers(service, fastapi.Response)
    routes = handlers.routes()

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        watcher = asyncio.create_task(_follow_file(service)) if settings.reload_seconds else None
        try:
            yield
        finally:
            if watcher is not None:
                watcher.cancel()
            await asyncio.get_running_loop().run_in_executor(None, service.close)

    app = fastapi.FastAPI(
        title="poscod",
        docs_url=None,  # the usual pages fetch scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        routes=[routing.Route(path, handler, methods=[method]) for (path, method), handler in routes.items()],
    )
    app.state.service = service
    app.openapi = lambda: describe(service.holder.current, settings)
    app.add_middleware(
        Gate,
        settings=settings,
        metrics=service.metrics,
        routes=frozenset(path for path, _ in routes),
        draining=lambda: service.draining,
        access_log=access_log,
    )

    async def http_error(_: Any, error: Any) -> Any:
        sentences = {
            404: "Nothing is here: /openapi.json lists what is.",
            405: "This method is not known here: /openapi.json lists those that are.",
        }
        raise Refusal(error.status_code, sentences.get(error.status_code, str(error.detail)), error.headers)

    app.add_exception_handler(exceptions.HTTPException, http_error)
    return app


async def _follow_file(service: Service) -> None:
    """Look at the model file now and then; load it once it has stopped changing."""
    holder, loop = service.holder, asyncio.get_running_loop()
    last: Any = None
    while True:
        await asyncio.sleep(service.settings.reload_seconds)
        found = holder.changed()
        if found is not None and found == last:
            await loop.run_in_executor(None, holder.reload)
            if holder.error is not None:
                say("model-refused", sentence=holder.error)
            found = None
        last = found


class _Handlers:
    """One method per route.

    Parameters
    ----------
    service : Service
    response : type
        Response class of the framework.
    """

    def __init__(self, service: Service, response: Any) -> None:
        self._service, self._response = service, response
        folder = resources.files("poscod.serve") / "page"
        self._page = {path: ((folder / name).read_bytes(), kind) for path, (name, kind) in _PAGE.items()}

    def routes(self) -> dict[tuple[str, str], Any]:
        """Return the handler of every path and method."""
        return {
            ("/v1/decide", "POST"): self.decide,
            ("/v1/model", "GET"): self.model,
            ("/v1/at", "GET"): self.at,
            ("/v1/at", "POST"): self.at_rows,
            ("/v1/monitor", "GET"): self.monitor,
            ("/v1/reload", "POST"): self.reload,
            ("/healthz", "GET"): self.healthz,
            ("/readyz", "GET"): self.readyz,
            ("/metrics", "GET"): self.metrics,
            ("/openapi.json", "GET"): self.openapi,
            **{(path, "GET"): self.page for path in _PAGE},
        }

    async def decide(self, request: Any) -> Any:
        """Decide on a batch."""
        scope, settings = request.scope, self._service.settings
        headers, notes, loaded = dict(scope["headers"]), scope["poscod"], self._service.holder.current
        kind = media_type(headers, b"content-type")
        if kind not in READERS:
            raise Refusal(415, f"Content-Type must be one of {', '.join(READERS)}, got '{kind[:100]}'.")
        arrow = ARROW_TYPE.encode() in headers.get(b"accept", b"")
        body = await read_body(headers, request.receive, settings.max_body_bytes, settings.body_seconds, notes)
        question = Question(loaded, notes["request_id"], arrow, None, body, kind)
        if len(body) <= _INLINE_BYTES:
            question.rows = parse_rows(body, kind, loaded.inputs, settings.max_rows)
            notes["rows"] = len(question.rows)
        answer = await self._compute(self._service.job(question), notes)
        return self._response(answer, media_type=ARROW_TYPE if arrow else JSON_TYPE)

    async def at(self, request: Any) -> Any:
        """Say what other costs would do."""
        query = parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if unknown := sorted(set(query) - {"alpha", "tpr_min"}):
            raise Refusal(422, f"The query takes alpha and tpr_min, got '{unknown[0][:100]}'.")
        values = {}
        for name, given in query.items():
            try:
                values[name] = float(given[-1])
            except ValueError:
                raise Refusal(422, f"{name} must be a number, got '{given[-1][:100]}'.") from None
        return await self._at(request, values, None)

    async def at_rows(self, request: Any) -> Any:
        """Say what other costs would do, and decide on rows under them."""
        settings, headers, notes = self._service.settings, dict(request.scope["headers"]), request.scope["poscod"]
        if media_type(headers, b"content-type") != JSON_TYPE:
            raise Refusal(415, f"Content-Type must be {JSON_TYPE} here.")
        body = await read_body(headers, request.receive, settings.max_body_bytes, settings.body_seconds, notes)
        loaded = self._service.holder.current

        def parse(_: Any = None) -> list[tuple[dict[str, Any], Question | None]]:
            document = parse_json(body)
            values: dict[str, Any] = {name: document.pop(name) for name in ("alpha", "tpr_min") if name in document}
            rows = rows_from_document(document, loaded.inputs, settings.max_rows) if document else None
            return [(values, None if rows is None else Question(loaded, notes["request_id"], False, rows))]

        parsed = parse()[0] if len(body) <= _INLINE_BYTES else await self._compute(Job(parse, None), notes)
        return await self._at(request, *parsed)

    async def _at(self, request: Any, values: dict[str, Any], question: Question | None) -> Any:
        try:
            for name, closed in (("alpha", "both"), ("tpr_min", "right")):
                if values.get(name) is not None:
                    values[name] = check_number(values[name], name, 0.0, 1.0, closed=closed)
        except InvalidInputError as error:
            raise Refusal(422, str(error)) from None
        loaded = self._service.holder.current if question is None else question.loaded
        job = self._service.rule_job(loaded, values.get("alpha"), values.get("tpr_min"), question)
        return self._response(await self._compute(job, request.scope["poscod"]), media_type=JSON_TYPE)

    async def _compute(self, job: Job, notes: dict[str, Any]) -> Any:
        seconds = self._service.settings.request_seconds
        try:
            with Deadline(seconds):
                return await self._service.engine.compute(job)
        except TimeoutError:
            if job.future.done() and not job.future.cancelled():
                return job.future.result()  # the answer came while this process was not allowed to run
            notes["limit"] = "seconds"
            raise Refusal(
                503, f"No answer within {seconds:g} seconds: try again later.", {"Retry-After": "1"}
            ) from None

    async def model(self, request: Any) -> Any:
        """Describe the model in service."""
        return self._json(self._service.holder.current.card)

    async def monitor(self, request: Any) -> Any:
        """Show the monitor's windows and findings."""
        return self._json(self._service.watch.document())

    async def reload(self, request: Any) -> Any:
        """Read the model file again."""
        holder = self._service.holder
        changed = await asyncio.get_running_loop().run_in_executor(None, holder.reload)
        if holder.error is not None:
            raise Refusal(409, f"The old model goes on, because the new one is refused: {holder.error}")
        return self._json({"changed": changed, "sha256": holder.current.sha256})

    async def healthz(self, request: Any) -> Any:
        """Say that the process answers."""
        return self._json({"alive": True})

    async def readyz(self, request: Any) -> Any:
        """Say whether to send requests here."""
        if self._service.draining:
            raise Refusal(503, "The service is shutting down.", {"Retry-After": "1"})
        holder, log = self._service.holder, self._service.log
        return self._json(
            {
                "ready": True,
                "model": holder.current.sha256,
                "reload_error": holder.error,
                "log_error": None if log is None else log.error,
            }
        )

    async def metrics(self, request: Any) -> Any:
        """Return the metrics of Prometheus."""
        body, kind = self._service.metrics.text()
        return self._response(body, headers={"content-type": kind})

    async def openapi(self, request: Any) -> Any:
        """Return the description of this interface."""
        return self._json(request.app.openapi())

    async def page(self, request: Any) -> Any:
        """Return a file of the dashboard."""
        body, kind = self._page[request.scope["path"]]
        return self._response(body, media_type=kind, headers={"content-security-policy": _POLICY})

    def _json(self, document: Any) -> Any:
        return self._response(dumps(document), media_type=JSON_TYPE)
