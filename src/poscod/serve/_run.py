# SPDX-License-Identifier: BSD-3-Clause
"""What users call: make a service, or run one.

Convention: what needs the extra ``serve`` is imported here, at the moment of use.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from poscod._optional import require
from poscod.exceptions import InvalidInputError
from poscod.serve._settings import Settings, is_loopback

_BACKLOG = 1024


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
    app : starlette.applications.Starlette
        ``app.state.service`` holds its parts. Threads start here and end with the application's lifespan.
    """
    for package in ("starlette", "prometheus_client", "pyarrow", "uvicorn"):
        require(package, extra="serve", feature="poscod serve")
    from poscod.serve._app import build
    from poscod.serve._service import Service

    return build(Service(Path(model_path), settings or Settings()), access_log=access_log)


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
    with bind(host, port) as listener:
        app = create_app(model_path, settings, access_log=access_log)
        from poscod.serve._say import say
        from poscod.serve._server import Server

        service = app.state.service
        if not is_loopback(host) and not service.settings.tokens:
            say("open", sentence=f"The service listens on {host} without a token: whoever reaches the port can ask it.")
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"

        def announce() -> None:
            say("started", address=address, model=service.holder.current.sha256, pid=os.getpid())
            if ready is not None:
                ready(address)

        Server(app, announce).run(sockets=[listener])
        say("stopped")


def bind(host: str, port: int) -> socket.socket:
    """Open a port, or say why not."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        both = family == socket.AF_INET6
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(
            f"{host}:{port} cannot be listened on ({reason}): choose another host or port."
        ) from None
    # Connections inherit it: Nagle's algorithm would hold every answer back for 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener
