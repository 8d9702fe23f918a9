# SPDX-License-Identifier: BSD-3-Clause
"""What people say of decisions: verdicts in a table beside the decision log, one for each name of a row.

Convention: a verdict is about the latest decision under its name. All verdicts of a request are stored or none; one that comes again takes the place of the
old one, and null withdraws it. Nothing learns from them here: a refit is a command.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from poscod._optional import require
from poscod._validation import listed
from poscod.exceptions import InvalidInputError
from poscod.serve._metrics import Sample
from poscod.serve._parse import LONGEST_ID
from poscod.serve._say import Refusal, say, too_many
from poscod.serve._sinks import COLUMNS, LATEST, TABLE, connect, table_of
from poscod.verdict import NOT_REVIEWED, STRANGER, verdict_codes

VERDICTS = "poscod_verdicts"
SAID: dict[str, tuple[str, str]] = {
    "id": COLUMNS["id"],
    "verdict": ("Text", "a class, or ood"),
    "said": ("DateTime", "when the verdict came, UTC"),
    "kind": ("String", "right, wrong or ood: what the verdict says of the classifier's answer"),
    **{name: COLUMNS[name] for name in ("time", "label", "accept", "reason", "model")},
}
"""What is kept of a verdict: type in SQLAlchemy, and a comment for the database."""
KINDS = ("right", "wrong", "ood")
# Databases limit how many values a question may hold.
_AT_A_TIME = 500
# Seconds for which a request waits while the tables are made.
_PATIENCE = 0.5
Counts = dict[str, dict[str, int]]
Said = Mapping[str, tuple[str, bool] | None]
"""Verdicts by name, each with whether it is OOD; None takes one back."""


class UnknownIds(Exception):
    """Names under which nothing was decided."""


class VerdictBook:
    """Verdicts in the database of the decision log."""

    def __init__(self, url: str) -> None:
        self._sql = require("sqlalchemy", extra="serve", feature="Storing verdicts")
        metadata = self._sql.MetaData()
        self._decisions = table_of(self._sql, metadata, TABLE, COLUMNS, ("run", "number"))
        self._verdicts = table_of(self._sql, metadata, VERDICTS, SAID, ("id",))
        self._engine = connect(self._sql, url)
        self.withdrawn = 0
        self.counts: Counts = {"accepted": dict.fromkeys(KINDS, 0), "rejected": dict.fromkeys(KINDS, 0)}

        self._lock, self._ready = threading.Lock(), False

    def begin(self) -> None:
        """Count what is there, without making anybody wait: a server of databases may be gone."""

        def count() -> None:
            with contextlib.suppress(Exception):  # a database may raise anything; the next verdict counts anew
                self._prepare()
                with self._engine.connect() as connection:
                    self._count(connection)

        threading.Thread(target=count, name="poscod-verdicts", daemon=True).start()

    def _prepare(self) -> None:
        """Make the tables where they are missing, and the index that tables of earlier versions lack; a large one takes a while, and nobody waits for it."""
        if not self._lock.acquire(timeout=_PATIENCE):
            raise TimeoutError
        try:
            if not self._ready:
                self._verdicts.metadata.create_all(self._engine)
                known = self._sql.inspect(self._engine).get_indexes(TABLE)
                if not any(found["column_names"] == list(LATEST) for found in known):
                    self._make_index()
                self._ready = True
        finally:
            self._lock.release()

    def _make_index(self) -> None:
        """Add the index to a table that is there, beside a log that goes on writing; without it everything works, only more slowly."""
        (index,) = table_of(self._sql, self._sql.MetaData(), TABLE, COLUMNS, ("run", "number")).indexes
        index.dialect_options["postgresql"]["concurrently"] = True
        try:
            with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                index.create(connection)
        except Exception as error:  # a database may raise anything
            say("log-index-failing", error=type(error).__name__)

    def store(self, said: Said) -> int:
        """Store verdicts, and take back others, in one transaction; return how many were taken back. After a failure everything is asked for anew."""
        try:
            self._prepare()
            return self._store(said)
        except UnknownIds:
            raise
        except Exception:
            self._ready = False
            self._engine.dispose()
            raise

    def _store(self, said: Said) -> int:
        now, withdrawn = datetime.now(timezone.utc), 0
        with self._engine.begin() as connection:
            decided = self._decided(connection, list(said))
            if unknown := [name for name in said if name not in decided]:
                raise UnknownIds(unknown)
            rows = []
            for name, given in said.items():
                if given is not None:
                    row, (verdict, ood) = decided[name], given
                    kind = "ood" if ood else "right" if row["label"] == verdict else "wrong"
                    rows.append({**row, "id": name, "verdict": verdict, "said": now, "kind": kind})
            for back in (True, False):
                for some in _parts([name for name in said if (said[name] is None) == back]):
                    gone = connection.execute(self._verdicts.delete().where(self._verdicts.c.id.in_(some)))
                    withdrawn += gone.rowcount if back else 0
            if rows:
                connection.execute(self._verdicts.insert(), rows)
            self._count(connection)
        self.withdrawn += withdrawn
        return withdrawn

    def read(self) -> dict[str, str]:
        """Return all verdicts by name."""
        chosen = self._sql.select(self._verdicts.c.id, self._verdicts.c.verdict).order_by(self._verdicts.c.id)
        with self._engine.connect() as connection:
            return {str(name): str(verdict) for name, verdict in connection.execute(chosen)}

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def _decided(self, connection: Any, names: list[str]) -> dict[str, dict[str, Any]]:
        """Return the latest decision under each name: of each, one row is read, however many there are."""
        sql, table, found = self._sql, self._decisions, {}
        columns = [table.c[name] for name in ("id", "time", "label", "accept", "reason", "model")]
        for some in _parts(names):
            asked = sql.union_all(*(sql.select(sql.literal(name).label("id")) for name in some)).subquery()

            def latest(column: str, asked: Any = asked) -> Any:
                own = sql.select(table.c[column]).where(table.c.id == asked.c.id).correlate(asked)
                order = (table.c[name].desc() for name in (*LATEST, "run"))
                return own.order_by(*order).limit(1).scalar_subquery()

            places = latest("run").label("run"), latest("number").label("number")
            keys = sql.select(*places).select_from(asked).subquery()
            chosen = sql.select(*columns).join(
                keys, sql.and_(table.c.run == keys.c.run, table.c.number == keys.c.number)
            )
            found.update({row["id"]: dict(row) for row in connection.execute(chosen).mappings()})
        return found

    def _count(self, connection: Any) -> None:
        table = self._verdicts
        chosen = self._sql.select(table.c.accept, table.c.kind, self._sql.func.count()).group_by(
            table.c.accept, table.c.kind
        )
        counts: Counts = {"accepted": dict.fromkeys(KINDS, 0), "rejected": dict.fromkeys(KINDS, 0)}
        for accept, kind, n in connection.execute(chosen):
            counts["accepted" if accept else "rejected"][kind] = int(n)
        self.counts = counts

    def samples(self) -> Iterable[Sample]:
        """Yield what Prometheus reads."""
        values = [
            ({"decision": decision, "verdict": kind}, float(n))
            for decision, kinds in self.counts.items()
            for kind, n in kinds.items()
        ]
        yield "poscod_verdicts", "gauge", "Verdicts that are stored, by decision and what they say of it", values
        yield "poscod_verdicts_withdrawn", "counter", "Verdicts that were taken back", [({}, float(self.withdrawn))]


def read_verdicts(url: str) -> dict[str, str]:
    """Return the verdicts in the database of a decision log, by the names of the rows."""
    book = VerdictBook(url)
    try:
        address = book._engine.url
        if address.get_backend_name() == "sqlite" and not Path(address.database or "").is_file():
            raise InvalidInputError(
                f"{address.database} is not a file: give the database that `poscod serve --log` writes to."
            )
        return book.read()
    except book._sql.exc.SQLAlchemyError as error:
        raise InvalidInputError(
            f"the database holds no verdicts that can be read ({type(error).__name__}): it must be the one that `poscod serve --log` writes to."
        ) from None
    finally:
        book.close()


def parse_verdicts(document: dict[str, Any], names: NDArray[Any], max_rows: int) -> dict[str, tuple[str, bool] | None]:
    """Take verdicts out of a JSON object, by names of rows; the last one of a name counts."""
    given = document.get("verdicts")
    if document.keys() != {"verdicts"} or type(given) is not list:
        raise Refusal(422, "The JSON must hold verdicts, a list of objects with id and verdict, and nothing else.")
    if not given:
        raise Refusal(422, "verdicts must hold at least one verdict, got none.")
    if len(given) > max_rows:
        raise too_many(max_rows)
    said: dict[str, int | None] = {}
    for place, item in enumerate(given, 1):
        if type(item) is not dict or item.keys() != {"id", "verdict"} or type(item["id"]) not in (str, int):
            raise Refusal(422, f"Verdict {place} must be an object with id, a text or whole number, and verdict.")
        name = str(item["id"]) if type(item["id"]) is str or abs(item["id"]) < 2**63 else ""
        if not 0 < len(name) <= LONGEST_ID or not name.isprintable():
            raise Refusal(422, f"id of verdict {place} must have 1 to {LONGEST_ID} characters, all printable.")
        said[name] = None if item["verdict"] is None else _code(item["verdict"], names, name)
    return {
        name: None if code is None else ("ood" if code == STRANGER else str(names[code]), code == STRANGER)
        for name, code in said.items()
    }


def _code(verdict: Any, names: NDArray[Any], name: str) -> int:
    code = NOT_REVIEWED
    if type(verdict) in (str, int, float):
        try:
            code = int(verdict_codes([verdict], names, "verdict", 1)[0])
        except InvalidInputError:
            code = NOT_REVIEWED
    if code == NOT_REVIEWED:
        shown = str(verdict)[:100]
        allowed = listed(str(label) for label in names.tolist())
        raise Refusal(
            422, f"verdict must be a class ({allowed}) or ood, or null to take one back, got '{shown}' for id '{name}'."
        )
    return code


def _parts(names: list[str]) -> Iterable[list[str]]:
    return (names[i : i + _AT_A_TIME] for i in range(0, len(names), _AT_A_TIME))
