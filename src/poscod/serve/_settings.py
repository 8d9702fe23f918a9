# SPDX-License-Identifier: BSD-3-Clause
"""What the owner of a service decides: limits, tokens, where decisions are logged."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from poscod._validation import check_count, check_number
from poscod.exceptions import InvalidInputError

DEFAULT_LOG = "sqlite:///decisions.db"
TOKEN_VARIABLE = "POSCOD_TOKEN"
_SHORTEST_TOKEN = 16


def _count(default: int, least: int = 1) -> Any:
    """Return a field that holds a whole number."""
    return field(default=default, metadata={"check": partial(check_count, minimum=least)})


def _number(default: float, closed: str = "both", high: float = 1e9) -> Any:
    """Return a field that holds a number from 0 to `high`, with the ends that `closed` names."""
    return field(default=default, metadata={"check": partial(check_number, low=0.0, high=high, closed=closed)})


@dataclass(frozen=True)
class Settings:
    """Limits and choices of a service; ``poscod serve`` has an option for each, with the words below as its help.

    Parameters
    ----------
    max_body_bytes : int, default=16777216
        Largest request body; larger ones get 413, with or without a Content-Length.
    max_json_bytes : int, default=4194304
        Largest body of JSON, whose parsing holds up all other requests; larger ones get 413. Arrow and NPY bodies have the limit above.
    max_rows : int, default=10000
        Largest batch; larger ones get 413.
    max_connections : int, default=1000
        How many connections are open at a time, and never more than the system lets the process open; further ones are closed at once.
    max_in_flight : int, default=256
        How many requests to /v1 are worked on at a time; further ones get 503 with Retry-After.
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
    load_seconds : float, default=60.0
        How long a reload waits for the model file; one that takes longer is reported, and the old model goes on.
    trusted : tuple of str, default=()
        Type of another library to trust in the model file; there may be several.
    tokens : tuple of str, default=()
        Bearer tokens; without any, everybody who reaches the port may ask.
    open_metrics : bool, default=True
        Whether /metrics needs no token.
    log : str, default=None
        Where decisions are logged: a folder for Parquet files, or a database URL such as sqlite:///decisions.db; by default nowhere.
    log_queue_rows : int, default=100000
        Decisions that may wait to be logged; further ones are dropped and counted.
    state_file : path, default=None
        Where the monitor's state survives a restart; otherwise it is kept in memory.
    window : str, default="1h"
        Width of the monitor's windows, such as "15min", "1h" or "1d".
    ood_limit : float in [0, 1), default=0.1
        Share of OOD above which the monitor raises a finding.
    drain_seconds : float, default=0.5
        After SIGTERM: how long new requests are still answered, and their connections closed, before the port closes.
    shutdown_seconds : float, default=30.0
        After that: how long running requests, and then the decision log, may take to finish.

    Examples
    --------
    >>> Settings(max_rows=0)
    Traceback (most recent call last):
        ...
    poscod.exceptions.InvalidInputError: max_rows must be a whole number >= 1, got 0.
    """

    max_body_bytes: int = _count(16777216)
    max_json_bytes: int = _count(4194304)
    max_rows: int = _count(10000)
    max_connections: int = _count(1000)
    max_in_flight: int = _count(256)
    request_seconds: float = _number(10.0, closed="right")
    body_seconds: float = _number(10.0, closed="right")
    threads: int = _count(2)
    joint_rows: int = _count(512, least=0)
    reload_seconds: float = _number(2.0)
    load_seconds: float = _number(60.0, closed="right")
    trusted: tuple[str, ...] = ()
    tokens: tuple[str, ...] = field(default=(), repr=False)
    open_metrics: bool = True
    log: str | None = None
    log_queue_rows: int = _count(100000)
    state_file: Path | None = None
    window: str = "1h"
    ood_limit: float = _number(0.1, closed="left", high=1.0)
    drain_seconds: float = _number(0.5)
    shutdown_seconds: float = _number(30.0)

    def __post_init__(self) -> None:
        for item in fields(self):
            if "check" in item.metadata:
                item.metadata["check"](getattr(self, item.name), item.name)
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
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def without_port(host: str) -> str:
    """Return the name or address in a Host header.

    Examples
    --------
    >>> without_port("localhost:8000"), without_port("[::1]:8000"), without_port("example.org")
    ('localhost', '::1', 'example.org')
    """
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
