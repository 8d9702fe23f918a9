# SPDX-License-Identifier: BSD-3-Clause
"""Serve a model over HTTP: decisions, metrics, a dashboard.

One process answers on one port until SIGTERM. It listens on this machine only, unless --host says otherwise. Bearer tokens
come from --token-file or from the environment variable POSCOD_TOKEN, never from the command line.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from poscod.exceptions import InvalidInputError
from poscod.persist import UntrustedTypesError
from poscod.serve import Settings
from poscod.serve import run as serve
from poscod.serve._settings import DEFAULT_LOG, is_loopback, read_tokens

LOG_VARIABLE = "POSCOD_LOG"
_DEFAULTS = Settings()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``poscod serve``."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="file written by `poscod fit` or POSCOD.save")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)"
    )
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0 takes a free one (default: 8000)")
    parser.add_argument(
        "--workers", type=int, default=1, help="must be 1: run several processes behind a proxy instead"
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file with one bearer token per line")
    parser.add_argument("--protect-metrics", action="store_true", help="ask for the token at /metrics, too")
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="TYPE",
        help="type of another library to trust in the model file; may be repeated",
    )
    parser.add_argument("--quiet", action="store_true", help="no line per request on standard error")
    log = parser.add_argument_group("decision log and monitor")
    log.add_argument(
        "--log",
        nargs="?",
        const=DEFAULT_LOG,
        default=None,
        metavar="WHERE",
        help=f"folder for Parquet files, or a database URL; without a value {DEFAULT_LOG}; the environment variable "
        f"{LOG_VARIABLE} says the same without showing a password (default: no log)",
    )  # fmt: skip
    log.add_argument(
        "--log-queue-rows",
        type=int,
        default=_DEFAULTS.log_queue_rows,
        metavar="N",
        help="decisions that may wait to be logged; further ones are dropped and counted (default: %(default)s)",
    )
    log.add_argument("--state", type=Path, metavar="FILE", help="file in which the monitor's state survives a restart")
    log.add_argument(
        "--window",
        default=_DEFAULTS.window,
        metavar="WIDTH",
        help="width of the monitor's windows, such as 15min, 1h or 1d (default: %(default)s)",
    )
    log.add_argument(
        "--ood-limit",
        type=float,
        default=_DEFAULTS.ood_limit,
        metavar="SHARE",
        help="OOD share above which the monitor raises a finding (default: %(default)s)",
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--max-body-bytes",
        type=int,
        default=_DEFAULTS.max_body_bytes,
        metavar="N",
        help="largest body (default: %(default)s)",
    )
    limits.add_argument(
        "--max-rows", type=int, default=_DEFAULTS.max_rows, metavar="N", help="largest batch (default: %(default)s)"
    )
    limits.add_argument(
        "--max-in-flight",
        type=int,
        default=_DEFAULTS.max_in_flight,
        metavar="N",
        help="requests at a time (default: %(default)s)",
    )
    limits.add_argument(
        "--request-seconds",
        type=float,
        default=_DEFAULTS.request_seconds,
        metavar="S",
        help="longest time for an answer (default: %(default)s)",
    )
    limits.add_argument(
        "--body-seconds",
        type=float,
        default=_DEFAULTS.body_seconds,
        metavar="S",
        help="longest time for a body to arrive (default: %(default)s)",
    )
    limits.add_argument(
        "--threads", type=int, default=_DEFAULTS.threads, metavar="N", help="compute threads (default: %(default)s)"
    )
    limits.add_argument(
        "--joint-rows",
        type=int,
        default=_DEFAULTS.joint_rows,
        metavar="N",
        help="decide small requests that wait together in one call, up to so many rows; 0 never (default: %(default)s)",
    )
    limits.add_argument(
        "--reload-seconds",
        type=float,
        default=_DEFAULTS.reload_seconds,
        metavar="S",
        help="how often to look for a new model file; 0 never (default: %(default)s)",
    )
    limits.add_argument(
        "--drain-seconds",
        type=float,
        default=_DEFAULTS.drain_seconds,
        metavar="S",
        help="how long to go on answering after SIGTERM (default: %(default)s)",
    )
    limits.add_argument(
        "--shutdown-seconds",
        type=float,
        default=_DEFAULTS.shutdown_seconds,
        metavar="S",
        help="longest time for the rest of the end (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    """Serve until a signal comes."""
    if args.workers != 1:
        raise InvalidInputError(
            f"--workers must be 1, got {args.workers}: start several processes with ports and --state files of their own behind a "
            "proxy; the states of their monitors can be merged."
        )
    if not 0 <= args.port <= 65535:
        raise InvalidInputError(f"--port must be a whole number from 0 to 65535, got {args.port}.")
    settings = Settings(
        max_body_bytes=args.max_body_bytes,
        max_rows=args.max_rows,
        max_in_flight=args.max_in_flight,
        request_seconds=args.request_seconds,
        body_seconds=args.body_seconds,
        threads=args.threads,
        joint_rows=args.joint_rows,
        reload_seconds=args.reload_seconds,
        trusted=tuple(args.trust),
        tokens=read_tokens(args.token_file),
        open_metrics=not args.protect_metrics,
        log=args.log or os.environ.get(LOG_VARIABLE) or None,
        log_queue_rows=args.log_queue_rows,
        state_file=args.state,
        window=args.window,
        ood_limit=args.ood_limit,
        drain_seconds=args.drain_seconds,
        shutdown_seconds=args.shutdown_seconds,
    )
    if not is_loopback(args.host) and not settings.tokens:
        sys.stderr.write(
            f"poscod: warning: {args.host} is reachable from other machines and no token is set: whoever reaches the port can ask.\n"
        )

    def ready(address: str) -> None:
        sys.stdout.write(f"serving {args.model} on {address}\n")
        sys.stdout.flush()

    try:
        serve(args.model, settings, host=args.host, port=args.port, access_log=not args.quiet, ready=ready)
    except UntrustedTypesError as error:
        options = " ".join(f"--trust {name}" for name in error.types)
        raise InvalidInputError(
            f"{args.model} holds types that are not trusted by default: if you trust where the file comes from, add {options}"
        ) from None
