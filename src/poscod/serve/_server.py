# SPDX-License-Identifier: BSD-3-Clause
"""The web server: uvicorn with an end that loses nothing, and with limits that it lacks.

Convention: SIGTERM and SIGINT drain: for `Settings.drain_seconds` requests are still answered and every answer closes its
connection, then the port closes, running requests end, the log is written and the monitor saved. SIGHUP reads the model again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn  # noqa: TID253 (this file is imported where a service is run)
from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: TID253 (by name: httptools knows no limit of headers)

from poscod.serve._say import Seldom, say, where
from poscod.serve._service import Service

# Descriptors that are left for files, databases and the answers to those who are in.
_SPARE = 32
_BACKLOG = 1024


class Server(uvicorn.Server):
    """Serves an application of `create_app`; `announce` is called when the port is open."""

    def __init__(self, app: Any, announce: Callable[[], None]) -> None:
        self._service: Service = app.state.service
        self._announce = announce
        self._seldom = Seldom()
        settings = self._service.settings
        most, backlog = _connections(settings.max_connections)
        super().__init__(
            uvicorn.Config(
                app,
                http=_protocol(settings.body_seconds, most, self._seldom),
                backlog=backlog,
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
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drain on SIGTERM and SIGINT, read the model again on SIGHUP."""
        if threading.current_thread() is threading.main_thread():  # signals belong to it
            loop = asyncio.get_running_loop()
            for name in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(name, self._drain, name.name)
            loop.add_signal_handler(signal.SIGHUP, self._service.holder.reload_soon)
        yield

    def _drain(self, name: str) -> None:
        if self._service.draining:  # asked twice: no more patience
            self.should_exit = True
            return
        say("draining", signal=name)
        self._service.draining = True
        asyncio.get_running_loop().call_later(self._service.settings.drain_seconds, setattr, self, "should_exit", True)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the port and say so."""
        asyncio.get_running_loop().set_exception_handler(self._unexpected)
        await super().startup(sockets=sockets)
        for listener in sockets or ():  # asyncio takes in few at once; the others need not be turned away for that
            listener.listen(_BACKLOG)
        self._announce()

    def _unexpected(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Say in a line what asyncio would write a traceback about, such as that no descriptor is left."""
        error = context.get("exception")
        self._seldom.say("loop-fault", sentence=context["message"], error=None if error is None else where(error))


def _connections(wanted: int) -> tuple[int, int]:
    """Return how many connections there may be, below what the system lets this process open, and how many are taken in at once."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return wanted, _BACKLOG
    used = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else _SPARE
    backlog = min(_BACKLOG, max(1, limit // 8))  # they are all open before the first can be closed
    return max(1, min(wanted, limit - used - _SPARE - backlog)), backlog


def _protocol(seconds: float, most: int, seldom: Seldom) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol with limits for connections, for headers that do not end and for answers that are not read."""

    class Protocol(H11Protocol):
        timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > most:
                seldom.say("connections", sentence=f"{most} connections are open: further ones are closed at once.")
                transport.abort()
            self.watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch()

        def pause_writing(self) -> None:
            super().pause_writing()
            self.watch()

        def resume_writing(self) -> None:
            super().resume_writing()
            self.watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.stop()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            asyncio.get_running_loop().call_later(seconds, self.transport.abort)

        def idle(self) -> bool:
            """Tell whether the caller has to act: headers are not complete, or the answer fills all buffers. A body has a limit of its own."""
            return self.cycle is None or self.cycle.response_complete or self.flow.write_paused

        def watch(self) -> None:
            if not self.idle():
                self.stop()
            elif self.timer is None:
                self.timer = asyncio.get_running_loop().call_later(seconds, self.drop)

        def stop(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def drop(self) -> None:
            self.timer = None
            if self.idle() and not self.transport.is_closing():
                self.transport.abort()  # closing would wait for the reader

    return Protocol
