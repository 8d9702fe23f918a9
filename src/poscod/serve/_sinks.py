# SPDX-License-Identifier: BSD-3-Clause
"""Where decisions are logged: Parquet files in a folder, or a table of any database that SQLAlchemy knows.

Convention: a sink is used by one thread and raises whatever goes wrong: its caller retries. It writes all rows or none, and the same rows
twice only once. ``batch_rows`` are best written together, ``seconds`` is how long fewer may wait. Features are never logged.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from poscod._files import replacing
from poscod._json import LARGEST
from poscod._optional import require
from poscod.exceptions import InvalidInputError

Rows = list[dict[str, Any]]
COLUMNS: dict[str, tuple[str, str]] = {
    "run": ("String", "random name of the process that decided"),
    "number": ("BigInteger", "running number of the decision in that process"),
    "time": ("DateTime", "when it was decided, UTC"),
    "request_id": ("String", "name of the request, as in the answer's X-Request-Id"),
    "row": ("Integer", "position in the batch"),
    "id": ("String", "the caller's name of the row, or null"),
    "label": ("Text", "the classifier's answer, as text"),
    "accept": ("Boolean", "whether the answer stands"),
    "reason": ("String", "accepted, ambiguous, unfamiliar or both"),
    "risk": ("Double", "conditional risk r"),
    "log_ratio": ("Double", "log g"),
    "score": ("Double", "rejection score s"),
    "model": ("String", "SHA-256 of the model file"),
}
"""What is logged: type in SQLAlchemy, and a comment for the database."""
_OPTIONS: dict[str, dict[str, Any]] = {"String": {"length": 200}, "DateTime": {"timezone": True}}
TABLE = "poscod_decisions"
LATEST = ("id", "time", "number")
"""What the latest decision under a name is found by."""


def table_of(sql: Any, metadata: Any, name: str, columns: dict[str, tuple[str, str]], key: tuple[str, ...]) -> Any:
    """Return a table of a database; that of decisions has an index by which the latest one under a name is found."""
    made = [
        sql.Column(
            column,
            getattr(sql, kind)(**_OPTIONS.get(kind, {})),
            nullable=column == "id" and column not in key,
            comment=text,
        )
        for column, (kind, text) in columns.items()
    ]
    made += [sql.Index(f"ix_{name}_latest", *LATEST)] * (name == TABLE)
    return sql.Table(name, metadata, *made, sql.PrimaryKeyConstraint(*key))


def connect(sql: Any, url: str) -> Any:
    """Return the engine of a database that SQLAlchemy knows by its URL."""
    try:
        address = sql.engine.make_url(url)
        waits = {"connect_timeout": 5} if address.get_backend_name() in ("postgresql", "mysql", "mariadb") else {}
        return sql.create_engine(address, connect_args=waits, pool_pre_ping=True)
    except Exception as error:
        raise _refused(url, error) from None


def _refused(url: str, error: Exception) -> InvalidInputError:
    shown = "@" not in url or isinstance(error, ModuleNotFoundError)  # other texts may hold a password
    text = str(error).split("\n")[0] if shown else type(error).__name__
    return InvalidInputError(
        f"log must be a folder or a database URL such as sqlite:///decisions.db, got one that SQLAlchemy refuses ({text})."
    )


class ParquetSink:
    """Parquet files in a folder, which is created where it does not exist; each file appears as a whole."""

    def __init__(self, folder: Path, batch_rows: int = 100_000, seconds: float = 60.0) -> None:
        self._pa = require("pyarrow", extra="serve", feature="Logging to Parquet")
        self._parquet = require("pyarrow.parquet", extra="serve", feature="Logging to Parquet")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.batch_rows, self.seconds = folder, batch_rows, seconds

    def write(self, rows: Rows) -> None:
        """Write a file."""
        types = {"time": self._pa.timestamp("us", "UTC"), "id": self._pa.string()}
        columns = {name: self._pa.array([row[name] for row in rows], types.get(name)) for name in COLUMNS}
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
        name = f"decisions-{stamp}-{rows[0]['run']}-{rows[0]['number']}.parquet"
        with replacing(self._folder / name) as file:
            self._parquet.write_table(self._pa.table(columns), file)

    def close(self) -> None:
        """Nothing is open."""


class SqlSink:
    """A table of a database that SQLAlchemy knows by its URL; created where it is missing."""

    batch_rows, seconds = 5_000, 0.5

    def __init__(self, url: str) -> None:
        self._sql = require("sqlalchemy", extra="serve", feature="Logging to a database")
        self._table = table_of(self._sql, self._sql.MetaData(), TABLE, COLUMNS, ("run", "number"))
        self._ready = False
        self._engine = connect(self._sql, url)
        try:
            if (
                self._engine.dialect.name == "sqlite"
            ):  # a file that cannot be opened now is a mistake; a server may come back
                self._prepare()
        except Exception as error:
            raise _refused(url, error) from None

    def _prepare(self) -> None:
        """Create the table if it is missing."""
        self._table.metadata.create_all(self._engine)
        self._ready = True

    def write(self, rows: Rows) -> None:
        """Insert rows in one transaction; after a failure everything is asked for anew, also whether there is a table."""
        try:
            self._write(rows)
        except Exception:
            self._ready = False
            self._engine.dispose()  # a connection may be one to a file that was deleted
            raise

    def _write(self, rows: Rows) -> None:
        if not self._ready:
            self._prepare()
        rows = [
            row | {name: min(max(row[name], -LARGEST), LARGEST) for name in ("risk", "log_ratio", "score")}
            for row in rows
        ]
        try:
            with self._engine.begin() as connection:
                connection.execute(self._table.insert(), rows)
        except self._sql.exc.IntegrityError:
            # A transaction whose end was not heard of may have been stored; its first key tells.
            first = self._sql.and_(*(self._table.c[name] == rows[0][name] for name in ("run", "number")))
            with self._engine.connect() as connection:
                if connection.execute(self._sql.select(self._table.c.row).where(first)).first() is None:
                    raise

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()


Sink = ParquetSink | SqlSink


def open_sink(target: str) -> Sink:
    """Return the sink for a folder or a database URL."""
    if "://" in target:
        return SqlSink(target)
    folder = Path(target)
    if folder.suffix == ".poscod" or (folder.exists() and not folder.is_dir()):
        raise InvalidInputError(
            f"log must be a folder or a database URL such as sqlite:///decisions.db, got '{target}'."
        )
    sink = ParquetSink(folder)
    if not os.access(folder, os.W_OK):
        raise InvalidInputError(f"log must be a folder that can be written to, got '{target}'.")
    return sink
