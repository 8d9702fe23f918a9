# SPDX-License-Identifier: BSD-3-Clause
"""Where decisions are logged: Parquet files in a folder, or a table of any database that SQLAlchemy knows.

Convention: a sink has ``write(columns)``, ``tick()`` and ``close()``, is used by one thread, and raises whatever goes wrong: its
caller retries. ``held`` counts rows that it has taken and not stored yet. Writing the same rows twice stores them once. `COLUMNS` lists what is logged; features are not among it.
"""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from poscod._files import replacing
from poscod._json import LARGEST
from poscod._optional import require
from poscod.exceptions import InvalidInputError

__all__ = ["COLUMNS", "TABLE", "Columns", "ParquetSink", "Sink", "SqlSink", "open_sink"]

Columns = dict[str, list[Any]]
COLUMNS: dict[str, str] = {
    "run": "random name of the process that decided",
    "number": "running number of the decision in that process",
    "time": "when it was decided, UTC",
    "request_id": "name of the request, as in the answer's X-Request-Id",
    "row": "position in the batch",
    "id": "the caller's name of the row, or null",
    "label": "the classifier's answer, as text",
    "accept": "whether the answer stands",
    "reason": "accepted, ambiguous, unfamiliar or both",
    "risk": "conditional risk r",
    "log_ratio": "log g",
    "score": "rejection score s",
    "model": "SHA-256 of the model file",
}
TABLE = "poscod_decisions"
ROTATE_ROWS, ROTATE_SECONDS = 100_000, 60.0


class Sink(Protocol):
    """What a decision log writes to."""

    @property
    def held(self) -> int:
        """Rows taken and not stored yet."""

    def write(self, columns: Columns) -> None:
        """Take rows."""

    def tick(self) -> None:
        """Do what time asks for."""

    def close(self) -> None:
        """Store what is left and let go."""


class ParquetSink:
    """Parquet files in a folder; each appears as a whole.

    Parameters
    ----------
    folder : Path
        Created where it does not exist.
    rotate_rows : int, default=100000
        A file is written when so many rows have come together,
    rotate_seconds : float, default=60.0
        or when the oldest row has waited so long.
    """

    def __init__(self, folder: Path, rotate_rows: int = ROTATE_ROWS, rotate_seconds: float = ROTATE_SECONDS) -> None:
        self._pa = require("pyarrow", extra="serve", feature="Logging to Parquet")
        self._parquet = require("pyarrow.parquet", extra="serve", feature="Logging to Parquet")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._rotate_rows, self._rotate_seconds = folder, rotate_rows, rotate_seconds
        self._tables: list[Any] = []
        self._since = 0.0

    @property
    def held(self) -> int:
        """Rows that wait for their file."""
        return sum(table.num_rows for table in self._tables)

    def write(self, columns: Columns) -> None:
        """Keep rows, and write a file if they are many."""
        pa = self._pa
        types = {"time": pa.timestamp("us", "UTC"), "id": pa.string()}
        if not self._tables:
            self._since = time.monotonic()
        self._tables.append(pa.table({name: pa.array(values, types.get(name)) for name, values in columns.items()}))
        if self.held >= self._rotate_rows:
            self._flush_or_forget_last()

    def _flush_or_forget_last(self) -> None:
        try:
            self._flush()
        except Exception:
            self._tables.pop()  # the caller brings these rows again
            raise

    def tick(self) -> None:
        """Write a file if the oldest row has waited long enough."""
        if self._tables and time.monotonic() - self._since >= self._rotate_seconds:
            self._flush()

    def close(self) -> None:
        """Write the last file."""
        if self._tables:
            self._flush()

    def _flush(self) -> None:
        table = self._pa.concat_tables(self._tables)
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
        name = f"decisions-{stamp}-{table['run'][0].as_py()}-{table['number'][0].as_py()}.parquet"
        with replacing(self._folder / name) as file:
            self._parquet.write_table(table, file)
        self._tables = []


class SqlSink:
    """A table of a database; created where it is missing.

    Parameters
    ----------
    url : str
        Database URL of SQLAlchemy.
    """

    held = 0

    def __init__(self, url: str) -> None:
        self._sql = require("sqlalchemy", extra="serve", feature="Logging to a database")
        try:
            address = self._sql.engine.make_url(url)
            waits = {"connect_timeout": 5} if address.get_backend_name() in ("postgresql", "mysql", "mariadb") else {}
            self._engine = self._sql.create_engine(address, connect_args=waits, pool_pre_ping=True)
        except ModuleNotFoundError as error:
            raise InvalidInputError(
                f"Logging to {url.partition(':')[0]} needs the driver '{error.name}', which is not installed: install it, or name "
                "another one as in postgresql+psycopg://."
            ) from None
        except Exception as error:
            text = str(error).split("\n")[0] if "@" not in url else type(error).__name__  # may hold a password
            raise InvalidInputError(
                f"log must be a folder or a database URL such as sqlite:///decisions.db, got one that SQLAlchemy refuses ({text})."
            ) from None
        self.shown = address.render_as_string(hide_password=True)
        self.local = address.get_backend_name() == "sqlite"
        self._table = self._describe()
        self._ready = False

    def _describe(self) -> Any:
        sql = self._sql
        kinds = {
            "number": sql.BigInteger,
            "time": sql.DateTime(timezone=True),
            "row": sql.Integer,
            "label": sql.Text,
            "accept": sql.Boolean,
            **dict.fromkeys(("risk", "log_ratio", "score"), sql.Double),
            **dict.fromkeys(("run", "reason", "request_id", "model"), sql.String(64)),
            "id": sql.String(200),
        }
        keys = ("run", "number")
        columns = [
            sql.Column(
                name, kinds[name], primary_key=name in keys, nullable=name == "id", comment=text, autoincrement=False
            )
            for name, text in COLUMNS.items()
        ]
        return sql.Table(TABLE, sql.MetaData(), *columns)

    def prepare(self) -> None:
        """Create the table if it is missing."""
        self._table.metadata.create_all(self._engine)
        self._ready = True

    def write(self, columns: Columns) -> None:
        """Insert rows in one transaction."""
        if not self._ready:
            self.prepare()
        finite = {
            name: [min(max(v, -LARGEST), LARGEST) for v in values] if name in ("risk", "log_ratio", "score") else values
            for name, values in columns.items()
        }
        rows = [dict(zip(finite, values, strict=True)) for values in zip(*finite.values(), strict=True)]
        try:
            with self._engine.begin() as connection:
                connection.execute(self._table.insert(), rows)
        except self._sql.exc.IntegrityError:
            # A transaction whose end was not heard of may have been stored; its first key tells.
            first = self._sql.and_(*(self._table.c[name] == rows[0][name] for name in ("run", "number")))
            with self._engine.connect() as connection:
                if connection.execute(self._sql.select(self._table.c.row).where(first)).first() is None:
                    raise

    def tick(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()


def open_sink(target: str) -> Sink:
    """Return the sink for a folder or a database URL."""
    if "://" in target:
        sink = SqlSink(target)
        if sink.local:  # a file that cannot be opened now is a mistake; a server that is down may come back
            try:
                sink.prepare()
            except Exception as error:
                raise InvalidInputError(
                    f"The log {sink.shown} cannot be opened ({str(error).splitlines()[0]})."
                ) from None
        return sink
    folder = Path(target)
    if folder.suffix == ".poscod" or (folder.exists() and not folder.is_dir()):
        raise InvalidInputError(
            f"log must be a folder or a database URL such as sqlite:///decisions.db, got '{target}'."
        )
    sink_ = ParquetSink(folder)
    if not os.access(folder, os.W_OK):
        raise InvalidInputError(f"log must be a folder that can be written to, got '{target}'.")
    return sink_


def text_labels(labels: Any) -> list[str]:
    """Return labels of any kind as texts."""
    return [str(label) for label in np.asarray(labels).tolist()]
