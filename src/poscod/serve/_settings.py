# SPDX-License-Identifier: BSD-3-Clause
"""What the owner of a service decides: limits, tokens, where decisions are logged."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from poscod._validation import check_count, check_number
from poscod.exceptions import InvalidInputError

__all__ = ["DEFAULT_LOG", "Settings", "is_loopback", "read_tokens"]

DEFAULT_LOG = "sqlite:///decisions.db"
TOKEN_VARIABLE = "POSCOD_TOKEN"
_SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Settings:
    """Limits and choices of a service.

    Parameters
    ----------
    max_body_bytes : int, default=16777216
        Largest request body; larger ones get 413, with or without a Content-Length.
    max_rows : int, default=10000
        Largest batch; larger ones get 413.
    max_in_flight : int, default=256
        Requests to /v1 worked on at a time; further ones get 503 with Retry-After.
    request_seconds : float, default=10.0
        Longest time from a complete body to its answer; then 503 with Retry-After.
    body_seconds : float, default=10.0
        Longest time a body may take to arrive; then 408. Headers and the reading of the answer have the same time.
    threads : int, default=2
        Compute threads.
    joint_rows : int, default=512
        Small requests that wait at the same moment are decided together, up to this many rows; 0 decides each alone.
    reload_seconds : float, default=2.0
        How often the model file is looked at; 0 never looks.
    trusted : tuple of str, default=()
        Types of other libraries to trust in the model file, see `poscod.persist.load`.
    tokens : tuple of str, default=()
        Bearer tokens; without any, everybody who reaches the port may ask.
    open_metrics : bool, default=True
        Whether /metrics needs no token.
    log : str, default=None
        Where decisions are logged: a folder (Parquet files) or a database URL of SQLAlchemy; None logs nothing.
    log_queue_rows : int, default=100000
        Decisions that may wait to be logged; further ones are dropped and counted.
    state_file : path, default=None
        Where the monitor's state survives a restart; None keeps it in memory.
    window : str, default="1h"
        Width of the monitor's windows, such as "15min", "1h" or "1d".
    ood_limit : float in [0, 1), default=0.1
        OOD share above which the monitor raises a finding.
    drain_seconds : float, default=0.5
        After SIGTERM: how long new requests are still answered, each with ``Connection: close``, before the port closes.
    shutdown_seconds : float, default=30.0
        After that: how long running requests, and then the decision log, may take to finish.

    Examples
    --------
    >>> Settings(max_rows=0)
    Traceback (most recent call last):
        ...
    poscod.exceptions.InvalidInputError: max_rows must be a whole number >= 1, got 0.
    """

    max_body_bytes: int = 16777216
    max_rows: int = 10000
    max_in_flight: int = 256
    request_seconds: float = 10.0
    body_seconds: float = 10.0
    threads: int = 2
    joint_rows: int = 512
    reload_seconds: float = 2.0
    trusted: tuple[str, ...] = ()
    tokens: tuple[str, ...] = field(default=(), repr=False)
    open_metrics: bool = True
    log: str | None = None
    log_queue_rows: int = 100000
    state_file: Path | None = None
    window: str = "1h"
    ood_limit: float = 0.1
    drain_seconds: float = 0.5
    shutdown_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_rows", "max_in_flight", "threads", "log_queue_rows"):
            check_count(getattr(self, name), name)
        check_count(self.joint_rows, "joint_rows", 0)
        for name in ("request_seconds", "body_seconds"):
            check_number(getattr(self, name), name, 0.0, 1e9, closed="right")
        for name in ("reload_seconds", "drain_seconds", "shutdown_seconds"):
            check_number(getattr(self, name), name, 0.0, 1e9)
        check_number(self.ood_limit, "ood_limit", 0.0, 1.0, closed="left")
        for token in self.tokens:
            if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
                # The token itself must not appear in any message.
                raise InvalidInputError(
                    f"A token must have at least {_SHORTEST_TOKEN} printable ASCII characters without spaces: "
                    "`python -c 'import secrets; print(secrets.token_urlsafe())'` makes one."
                )


def read_tokens(path: Path | None, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the tokens in a file, or else in the environment variable POSCOD_TOKEN."""
    text = environment.get(TOKEN_VARIABLE, "") if path is None else path.read_text(encoding="utf-8")
    tokens = tuple(line for raw in text.splitlines() if (line := raw.strip()) and not line.startswith("#"))
    if path is not None and not tokens:
        raise InvalidInputError(f"{path} must hold at least one token, one per line, got none.")
    return tokens


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a host.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
