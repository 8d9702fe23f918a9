# SPDX-License-Identifier: BSD-3-Clause
"""Running the service: the port, the signals, and an end that loses nothing.

Convention: SIGTERM and SIGINT drain: for `Settings.drain_seconds` requests are still answered and every answer closes its
connection, then the port closes, running requests end, the log is written and the monitor saved. SIGHUP reads the model again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from poscod._optional import require
from poscod.exceptions import InvalidInputError
from poscod.serve._app import create_app
from poscod.serve._lines import say
from poscod.serve._settings import Settings, is_loopback

__all__ = ["run"]

_BACKLOG = 1024


def run(
    model_path: str | os.PathLike[str],
    settings: Settings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    access_log: bool = True,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve a model until SIGTERM or SIGINT.

    Parameters
    ----------
    model_path : str or path-like
        File written by `POSCOD.save`.
    settings : Settings, default=None
        Limits and choices; None takes the defaults.
    host : str, default="127.0.0.1"
        Address to bind to.
    port : int, default=8000
        0 takes a free one.
    access_log : bool, default=True
        Whether every request gets a line of JSON on standard error.
    ready : callable, default=None
        ``ready(url)`` is called when the port is open.
    """
    settings = Settings() if settings is None else settings
    listener = bind(host, port)
    try:
        app = create_app(model_path, settings, access_log=access_log)
    except BaseException:
        listener.close()
        raise
    if not is_loopback(host) and not settings.tokens:
        say("open", sentence=f"The service listens on {host} without a token: whoever reaches the port can ask it.")
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}"
    make_server(app, settings, lambda: _announce(address, app.state.service, ready)).run(sockets=[listener])
    say("stopped")


def make_server(app: Any, settings: Settings, announce: Callable[[], None]) -> Any:
    """Return uvicorn's server with draining, a time limit for headers, and no log of its own."""
    uvicorn = require("uvicorn", extra="serve", feature="poscod serve")
    config = uvicorn.Config(
        app,
        http=_protocol(settings.body_seconds),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="critical",  # what it would say is said by the service, in JSON
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_seconds)),
    )
    server = _server_class(uvicorn)(config)
    server.service, server.drain_seconds, server.announce = app.state.service, settings.drain_seconds, announce
    return server


def _announce(address: str, service: Any, ready: Callable[[str], None] | None) -> None:
    say("started", address=address, model=service.holder.current.sha256, pid=os.getpid())
    if ready is not None:
        ready(address)


def bind(host: str, port: int) -> socket.socket:
    """Open a port, or say why not."""
    listener = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # With the protocol named, asyncio switches Nagle's algorithm off, which would hold every answer back for 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        if listener is not None:
            listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(
            f"{host}:{port} cannot be listened on ({reason}): choose another host or port."
        ) from None
    listener.setblocking(False)
    return listener


def _server_class(uvicorn: Any) -> Any:
    """Return a server that drains before it stops."""

    class Server(uvicorn.Server):  # type: ignore[misc]
        service: Any
        drain_seconds: float
        announce: Callable[[], None]

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            loop = asyncio.get_running_loop()
            if threading.current_thread() is not threading.main_thread():
                yield  # signals belong to the main thread
                return
            for name in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(name, self.drain, name.name)
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, self.reload))
            yield

        def reload(self) -> None:
            self.service.holder.reload()
            if self.service.holder.error is not None:
                say("model-refused", sentence=self.service.holder.error)

        def drain(self, name: str) -> None:
            if self.service.draining:  # asked twice: no more patience
                self.should_exit = True
                return
            say("draining", signal=name)
            self.service.draining = True

            def stop() -> None:
                self.should_exit = True

            asyncio.get_running_loop().call_later(self.drain_seconds, stop)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            self.announce()

    return Server


def _protocol(seconds: float) -> Any:
    """Return uvicorn's HTTP protocol with limits that it lacks: for headers that do not end and answers that are not read."""
    base: Any = require("uvicorn.protocols.http.auto", extra="serve", feature="poscod serve").AutoHTTPProtocol

    class Protocol(base):  # type: ignore[misc]
        header_timer: asyncio.TimerHandle | None = None
        write_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.watch_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self.header_timer, self.write_timer):
                if timer is not None:
                    timer.cancel()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            # The answer fills all buffers: its reader has so many seconds. Closing would wait for the reader, too.
            super().pause_writing()
            self.write_timer = asyncio.get_running_loop().call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self.write_timer is not None:
                self.write_timer.cancel()
                self.write_timer = None

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            asyncio.get_running_loop().call_later(seconds, self.transport.abort)

        def watch_headers(self) -> None:
            # A cycle is a request whose headers are complete; its body has a limit of its own.
            waiting = self.cycle is None or self.cycle.response_complete
            if not waiting and self.header_timer is not None:
                self.header_timer.cancel()
                self.header_timer = None
            elif waiting and self.header_timer is None:
                self.header_timer = asyncio.get_running_loop().call_later(seconds, self.drop)

        def drop(self) -> None:
            self.header_timer = None
            if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
                self.transport.abort()

    return Protocol
