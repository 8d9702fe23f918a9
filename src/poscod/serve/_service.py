# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a running service and what passes between them.

Convention: requests become jobs of the `Engine`; decisions that were made are counted, shown to the monitor and logged, in this
order, before they are answered. Questions about other costs (`/v1/at`) are none of these: they are not decisions.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import check_number
from poscod.decision import Decisions
from poscod.exceptions import PoscodError
from poscod.metrics import Interval
from poscod.model import POSCOD, estimates_document
from poscod.serve._decision_log import DecisionLog, Entry
from poscod.serve._engine import Engine, Job
from poscod.serve._metrics import Metrics, Sample
from poscod.serve._model import LoadedModel, ModelHolder
from poscod.serve._parse import Batch, first_gap, join, rows_from_document
from poscod.serve._say import NAMES, Refusal, cells, dumps, dumps_with, plain, say
from poscod.serve._settings import Settings
from poscod.serve._sinks import open_sink
from poscod.serve._stream import write_stream
from poscod.serve._verdicts import Said, UnknownIds, VerdictBook, parse_verdicts
from poscod.serve._watch import Watch

COSTS = {"alpha": "both", "tpr_min": "right"}
"""Costs that `/v1/at` takes, and which ends of [0, 1] belong to them."""
_CACHED_RULES = 16
# What each part gets for its end where the parts before it have used up the time.
_LEAST_SECONDS = 0.5
# How long verdicts wait for a decision that was made a moment ago and is not in the log yet.
_LOG_SECONDS = 1.0


@dataclass(frozen=True, eq=False)
class Question:
    """A batch to decide on: the model it arrived under, its rows, its name, whether the answer is an Arrow stream, and whether it has details."""

    loaded: LoadedModel
    rows: Batch
    request_id: str
    arrow: bool
    explain: bool = False


class Service:
    """Everything behind the routes."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.settings = settings
        self.draining = False
        self._rule = lru_cache(_CACHED_RULES)(_rule)
        self.holder = ModelHolder(path, settings.trusted, settings.load_seconds, self._new_model)
        self.watch = Watch(self.holder.current, settings)
        self.log = None if settings.log is None else DecisionLog(open_sink(settings.log), settings.log_queue_rows)
        self.book = None if settings.log is None or "://" not in settings.log else VerdictBook(settings.log)
        sources = [self._samples, self.watch.samples]
        if self.book is not None:
            self.book.begin()
            sources.append(self.book.samples)
        self.metrics = Metrics(sources)
        self.engine = Engine(settings.threads, settings.joint_rows, settings.max_in_flight)

    def close(self) -> None:
        """Finish what was accepted, write the log, save the monitor."""
        end = time.monotonic() + self.settings.shutdown_seconds
        for part in (self.engine, self.log, self.watch):
            if part is not None:
                part.close(max(_LEAST_SECONDS, end - time.monotonic()))
        if self.book is not None:
            self.book.close()

    async def compute(self, function: Callable[[], Any], until: float) -> Any:
        """Call a function in a compute thread."""
        return await self.engine.compute(Job(lambda _: [function()], None), until)

    async def decide(self, question: Question | Callable[[], Question], until: float) -> bytes:
        """Answer a question, together with others that wait; one that is still to be read is read in a compute thread."""
        if isinstance(question, Question):
            job = self._job(question)
        else:
            read = question
            job = Job(lambda _: [self._job(read())], None)
        return await self.engine.compute(job, until)

    def _job(self, question: Question) -> Job:
        rows = question.rows
        key = None if rows.layout is None else (question.loaded.sha256, rows.named, rows.layout, question.explain)
        return Job(self._decide, question, len(rows), key)

    def at(self, loaded: LoadedModel, document: dict[str, Any]) -> bytes:
        """Say what the costs in a document would do, also to the rows in it."""
        costs = {name: document.pop(name) for name in COSTS if document.get(name) is not None}
        rows = {name: value for name, value in document.items() if name not in COSTS}
        for name, value in costs.items():
            check_number(value, name, 0.0, 1.0, closed=COSTS[name])
        model, answer = self._rule(loaded, **costs)
        if rows:
            batch = rows_from_document(rows, model.schema_, self.settings.max_rows)
            columns = _columns(model, _named(model, _decide(model, [batch])))
            return dumps_with({"model": loaded.sha256, **answer}, "decisions", cells(columns), slice(None))
        return dumps({"model": loaded.sha256, **answer})

    async def verdicts(self, loaded: LoadedModel, read: Callable[[], dict[str, Any]], until: float) -> bytes:
        """Store what people said of decisions, and take back what they withdraw."""
        if self.book is None or self.log is None:
            raise Refusal(
                409, "Verdicts are kept beside a decision log in a database: start the service with --log or --log URL."
            )
        names = loaded.model.schema_.labels(loaded.model.scorer_.classes)
        said = await self.compute(lambda: parse_verdicts(read(), names, self.settings.max_rows), until)
        end = time.monotonic() + _LOG_SECONDS
        while True:
            waiting = self.log.waiting
            found = await self.compute(lambda: self._store(said), until)
            if isinstance(found, int):
                break
            if not waiting or time.monotonic() > end:
                more = f" and {len(found) - 1} more" if len(found) > 1 else ""
                raise Refusal(422, f"The log holds no decision under the id '{found[0]}'{more}: nothing was stored.")
            await asyncio.sleep(_LEAST_SECONDS / 5.0)  # here, where it holds no thread
        stored = sum(given is not None for given in said.values())
        return dumps({"model": loaded.sha256, "stored": stored, "withdrawn": found, "counts": self.book.counts})

    def _store(self, said: Said) -> int | list[str]:
        """Store verdicts and return how many were taken back, or return names under which nothing was decided."""
        assert self.book is not None
        try:
            withdrawn = self.book.store(said)
        except UnknownIds as error:
            unknown: list[str] = error.args[0]
            return unknown
        except Exception as error:  # a database may raise anything
            say("verdicts-failing", error=type(error).__name__)
            sentence = "The database of the log does not answer: nothing was stored, try again later."
            raise Refusal(503, sentence, {"Retry-After": "5"}) from None
        say("verdicts", stored=sum(given is not None for given in said.values()), withdrawn=withdrawn)
        return withdrawn

    def _decide(self, jobs: Sequence[Job]) -> Sequence[bytes]:
        """Answer questions of one layout in one call of the model."""
        questions: list[Question] = [job.payload for job in jobs]
        loaded = questions[0].loaded
        decisions = _decide(loaded.model, [question.rows for question in questions], explain=questions[0].explain)
        now, start, answers = time.time(), 0, []
        self.watch.put(len(decisions), (now, decisions, loaded))
        decisions = _named(loaded.model, decisions)
        self.metrics.count(decisions)
        # Once for all questions: a call for each would cost more than what it writes.
        columns = _columns(loaded.model, decisions)
        texts = {} if all(question.arrow for question in questions) else cells(columns)
        for question in questions:
            rows = slice(start, start := start + len(question.rows))
            self.metrics.batch.observe(len(question.rows))
            answers.append(_answer(question, columns, texts, rows))
            if self.log is not None:
                self.log.add(Entry(now, question.request_id, question.rows.ids, decisions[rows], loaded.sha256))
        return answers

    def _new_model(self, loaded: LoadedModel) -> None:
        self._rule.cache_clear()
        self.watch.put(0, loaded)
        say("model", sha256=loaded.sha256, file=loaded.card["file"])

    def _samples(self) -> Iterable[Sample]:
        holder, log = self.holder, self.log
        yield "poscod_model_info", "gauge", "The model in service", [({"sha256": holder.current.sha256}, 1.0)]
        for name, kind, text, value in (
            ("model_reloads", "counter", "New models taken into service", holder.reloads),
            ("model_reload_failures", "counter", "Model files that were refused", holder.failures),
            ("model_reload_failing", "gauge", "Whether the file on disk is refused", holder.error is not None),
            ("log_written", "counter", "Decisions written to the log", log and log.written),
            ("log_dropped", "counter", "Decisions that the log lost", log and log.dropped),
            ("log_failures", "counter", "Attempts to write the log that failed", log and log.failures),
            ("log_waiting", "gauge", "Decisions that wait to be logged", log and log.waiting),
        ):
            yield f"poscod_{name}", kind, text, [({}, float(value or 0))]


def _rule(loaded: LoadedModel, **costs: float) -> tuple[POSCOD, dict[str, Any]]:
    """Return a model at other costs, and what there is to say of its rule."""
    model = loaded.model.at(alpha=costs.get("alpha"), tpr_min=costs.get("tpr_min"))
    share = loaded.card["estimates"]["ood_prior"]  # the same for every rule, and the slowest of the numbers
    expected = estimates_document(model, prior=None if share is None else Interval(**share))
    return model, plain({"rule": model.rule_.to_dict(), "estimates": expected})


def _decide(model: POSCOD, batches: Sequence[Batch], explain: bool = False) -> Decisions:
    schema = model.schema_
    try:
        rows = join(schema, batches)
        return model.decide(rows, explain=True) if explain else model.decide(rows)
    except (PoscodError, ValueError, TypeError, KeyError) as error:
        told = error.told(NAMES) if isinstance(error, PoscodError) else str(error)
        sentence = told.strip().partition("\n")[0].partition(". ")[0][:300].rstrip(".")  # some errors are essays
        place = first_gap(batches[0], schema) if len(batches) == 1 else ""
        gap = f" (a value is missing or not finite: {place})" if place else ""
        raise Refusal(422, f"The model refuses these rows: {sentence}{gap}.") from None


def _named(model: POSCOD, decisions: Decisions) -> Decisions:
    """Give the classes of a network their names, where they are known."""
    return dataclasses.replace(decisions, label=model.schema_.labels(decisions.label))


def _columns(model: POSCOD, decisions: Decisions) -> dict[str, NDArray[Any]]:
    """Return what is answered: the prediction and every field of the decisions."""
    fields = {field.name: np.asarray(getattr(decisions, field.name)) for field in dataclasses.fields(decisions)}
    return {"prediction": decisions.predictions(model.reject_label), **fields}


def _answer(
    question: Question, columns: Mapping[str, NDArray[Any]], texts: Mapping[str, list[str]], rows: slice
) -> bytes:
    """Return what a question is answered: its rows of the columns, or of their texts, which are JSON."""
    sha256, ids = question.loaded.sha256, question.rows.ids
    if question.arrow:
        part = {name: column[rows] for name, column in columns.items()}
        return write_stream(part if ids is None else {"id": ids, **part}, {"model": sha256})
    answer = {"model": sha256, "n": len(question.rows)}
    return dumps_with(answer if ids is None else {**answer, "ids": ids}, "decisions", texts, rows)
