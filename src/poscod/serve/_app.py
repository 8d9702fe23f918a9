# SPDX-License-Identifier: BSD-3-Clause
"""The routes.

Convention: a handler reads, checks and hands over to `Service`; it computes nothing. Its docstring is what the description of the
interface says. Answers are bytes that the service has written; `poscod.serve._answers` says what is in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Annotated, Any, NoReturn

import anyio
from fastapi import FastAPI, Query, Request, Response  # noqa: TID253 (this file is imported where a service is made)
from fastapi.exceptions import RequestValidationError  # noqa: TID253
from fastapi.responses import PlainTextResponse  # noqa: TID253
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from poscod.serve._answers import Applied, Costs, Decided, Live, Model, Monitored, Ready, Reloaded
from poscod.serve._arrow import ARROW_TYPE
from poscod.serve._bodies import media_type, read_body
from poscod.serve._engine import Job
from poscod.serve._gate import Gate
from poscod.serve._openapi import BINARY, describe, refusals
from poscod.serve._plain import dumps
from poscod.serve._refusal import Refusal
from poscod.serve._rows import JSON_TYPE, READERS, parse_json, rows_from_document
from poscod.serve._service import Question, Service

__all__ = ["build"]

# Larger bodies are parsed in a compute thread, so that the event loop keeps answering.
_INLINE_BYTES = 32768
_PAGE = {
    "/": ("dashboard.html", "text/html"),
    "/dashboard.js": ("dashboard.js", "text/javascript"),
    "/dashboard.css": ("dashboard.css", "text/css"),
}
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def build(service: Service, *, access_log: bool) -> FastAPI:
    """Return a service as an ASGI application; its threads end with the application's lifespan."""
    settings, handlers = service.settings, _Handlers(service)
    open_paths = frozenset({"/healthz", "/readyz", *_PAGE, *(["/metrics"] if settings.open_metrics else [])})

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watcher = asyncio.create_task(_follow_file(service)) if settings.reload_seconds else None
        try:
            yield
        finally:
            if watcher is not None:
                watcher.cancel()
            await asyncio.get_running_loop().run_in_executor(None, service.close)

    app = FastAPI(
        docs_url=None,  # the usual pages fetch scripts from elsewhere
        redoc_url=None,
        openapi_url=None,  # /openapi.json is a route like all others, behind the token
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers={HTTPException: _refuse, RequestValidationError: _refuse},
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    app.openapi = lambda: describe(app.routes, service.holder.current.model.schema_, settings, open_paths)  # type: ignore[method-assign]
    bodies = refusals(400, 408, 413, 415, 422, 503)
    arrow: dict[int | str, dict[str, Any]] = {200: {"content": {ARROW_TYPE: BINARY}}}
    for path, method, handler, answer, more in (
        ("/v1/decide", "POST", handlers.decide, Decided, arrow | bodies),
        ("/v1/model", "GET", handlers.model, Model, {}),
        ("/v1/at", "GET", handlers.at, Applied, refusals(422, 503)),
        ("/v1/at", "POST", handlers.at_rows, Applied, bodies),
        ("/v1/monitor", "GET", handlers.monitor, Monitored, {}),
        ("/v1/reload", "POST", handlers.reload, Reloaded, refusals(409)),
        ("/healthz", "GET", handlers.healthz, Live, {}),
        ("/readyz", "GET", handlers.readyz, Ready, refusals(503)),
        ("/openapi.json", "GET", handlers.openapi, dict[str, Any], {}),
    ):
        app.add_api_route(path, handler, methods=[method], response_model=answer, responses=more)
    app.add_api_route("/metrics", handlers.metrics, response_class=PlainTextResponse)
    for path in _PAGE:
        app.add_api_route(path, handlers.page, include_in_schema=False)
    known = frozenset(route.path for route in app.routes)  # type: ignore[attr-defined]
    app.add_middleware(Gate, service=service, routes=known, open_paths=open_paths, access_log=access_log)
    return app


async def _refuse(_: Request, error: Exception) -> NoReturn:
    """Tell what the framework refuses as everything else is refused."""
    if isinstance(error, HTTPException):
        sentences = {404: "Nothing is here", 405: "This method is not known here"}
        sentence = f"{sentences.get(error.status_code, error.detail)}: /openapi.json lists what is."
        raise Refusal(error.status_code, sentence, error.headers)
    assert isinstance(error, RequestValidationError)
    raise _misfit(error.errors())


def _misfit(errors: Any) -> Refusal:
    """Return what pydantic found first as a refusal."""
    return Refusal(422, f"{str(errors[0]['loc'][-1])[:100]}: {errors[0]['msg']}.")


async def _follow_file(service: Service) -> None:
    """Look at the model file now and then; load it once it has stopped changing."""
    holder, loop = service.holder, asyncio.get_running_loop()
    last: Any = None
    while True:
        await asyncio.sleep(service.settings.reload_seconds)
        found = holder.changed()
        if found is not None and found == last:
            await loop.run_in_executor(None, holder.reload)
            found = None
        last = found


class _Handlers:
    """One method per route."""

    def __init__(self, service: Service) -> None:
        self._service = service
        folder = resources.files("poscod.serve") / "page"
        self._page = {path: ((folder / name).read_bytes(), kind) for path, (name, kind) in _PAGE.items()}

    async def decide(self, request: Request) -> Response:
        """Decide on a batch: an answer for every row, in order, as JSON, or as an Arrow stream where Accept names it."""
        settings, loaded = self._service.settings, self._service.holder.current
        kind, notes = media_type(request.headers.get("content-type", "")), request.scope["poscod"]
        if kind not in READERS:
            raise Refusal(415, f"Content-Type must be one of {', '.join(READERS)}, got '{kind[:100]}'.")
        arrow = ARROW_TYPE in request.headers.get("accept", "")
        body = await read_body(request, settings.max_body_bytes, settings.body_seconds)
        question = Question(loaded, notes["request_id"], arrow, None, body, kind)
        if len(body) <= _INLINE_BYTES:
            question.rows = READERS[kind](body, loaded.model.schema_, settings.max_rows)
            notes["rows"] = len(question.rows)
        answer = await self._compute(self._service.job(question))
        return Response(answer, media_type=ARROW_TYPE if arrow else JSON_TYPE)

    async def at(self, costs: Annotated[Costs, Query()]) -> Response:
        """Say what other costs would do: the rule and its rates on the calibration rows. Nothing changes in the service."""
        return await self._at(costs, self._service.holder.current, None)

    async def at_rows(self, request: Request) -> Response:
        """Say what other costs would do; with rows also their decisions, which are neither logged nor counted."""
        settings, loaded = self._service.settings, self._service.holder.current
        if media_type(request.headers.get("content-type", "")) != JSON_TYPE:
            raise Refusal(415, f"Content-Type must be {JSON_TYPE} here.")
        body = await read_body(request, settings.max_body_bytes, settings.body_seconds)

        def parse(_: Any = None) -> list[tuple[Costs, Any]]:
            document = parse_json(body)
            values = {name: document.pop(name) for name in Costs.model_fields if name in document}
            try:
                costs = Costs.model_validate(values, strict=True)
            except ValidationError as error:
                raise _misfit(error.errors()) from None
            schema = loaded.model.schema_
            return [(costs, rows_from_document(document, schema, settings.max_rows) if document else None)]

        costs, rows = parse()[0] if len(body) <= _INLINE_BYTES else await self._compute(Job(parse, None))
        return await self._at(costs, loaded, rows)

    async def _at(self, costs: Costs, loaded: Any, rows: Any) -> Response:
        answer = await self._compute(self._service.rule_job(loaded, costs.alpha, costs.tpr_min, rows))
        return Response(answer, media_type=JSON_TYPE)

    async def _compute(self, job: Job) -> Any:
        seconds = self._service.settings.request_seconds
        try:
            with anyio.fail_after(seconds):
                return await self._service.engine.compute(job)
        except TimeoutError:
            if job.future.done() and not job.future.cancelled():
                return job.future.result()  # the answer came while this process was not allowed to run
            sentence = f"No answer within {seconds:g} seconds: try again later."
            raise Refusal(503, sentence, {"Retry-After": "1"}, limit="seconds") from None

    async def model(self) -> Response:
        """Describe the model in service."""
        return _json(self._service.holder.current.card)

    async def monitor(self) -> Response:
        """Show the monitor's windows and findings."""
        return _json(self._service.watch.document())

    async def reload(self) -> Response:
        """Read the model file again; the same happens by itself when the file changes, and on SIGHUP."""
        holder = self._service.holder
        changed = await asyncio.get_running_loop().run_in_executor(None, holder.reload)
        if holder.error is not None:
            raise Refusal(409, f"The old model goes on, because the new one is refused: {holder.error}")
        return _json({"changed": changed, "sha256": holder.current.sha256})

    async def healthz(self) -> Response:
        """Say that the process answers."""
        return _json({"alive": True})

    async def readyz(self) -> Response:
        """Say whether to send requests here."""
        if self._service.draining:
            raise Refusal(503, "The service is shutting down.", {"Retry-After": "1"})
        holder, log = self._service.holder, self._service.log
        errors = {"reload_error": holder.error, "log_error": None if log is None else log.error}
        return _json({"ready": True, "model": holder.current.sha256, **errors})

    async def metrics(self) -> Response:
        """Return the metrics of Prometheus."""
        body, kind = self._service.metrics.text()
        return Response(body, headers={"content-type": kind})

    async def openapi(self, request: Request) -> Response:
        """Return this description."""
        return _json(request.app.openapi())

    async def page(self, request: Request) -> Response:
        """Return a file of the dashboard."""
        body, kind = self._page[request.scope["path"]]
        return Response(body, media_type=kind, headers={"content-security-policy": _POLICY})


def _json(document: Any) -> Response:
    return Response(dumps(document), media_type=JSON_TYPE)
