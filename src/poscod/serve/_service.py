# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a running service and what passes between them.

Convention: requests become jobs of the `Engine`; decisions that were made are counted, shown to the monitor and logged, in this
order, before they are answered. Questions about other costs (`/v1/at`) are none of these: they are not decisions.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from poscod.decision import Decisions
from poscod.exceptions import PoscodError
from poscod.model import POSCOD
from poscod.serve._arrow import write_stream
from poscod.serve._decision_log import DecisionLog, Entry
from poscod.serve._engine import Engine, Job
from poscod.serve._lines import say
from poscod.serve._metrics import Metrics, Sample
from poscod.serve._model import LoadedModel, ModelHolder, rates
from poscod.serve._plain import column, dumps, floats, plain
from poscod.serve._refusal import Refusal
from poscod.serve._rows import READERS, Batch, first_gap, join
from poscod.serve._settings import Settings
from poscod.serve._sinks import open_sink
from poscod.serve._watch import Watch

__all__ = ["Question", "Service"]

_CACHED_RULES = 16
# What the service calls the arguments of the library.
_NAMES = {"X": "the rows"}


@dataclass(eq=False)
class Question:
    """A batch to decide on: the model it arrived under, its name, the form of the answer, and its rows or the body they are in."""

    loaded: LoadedModel
    request_id: str
    arrow: bool
    rows: Batch | None = None
    body: bytes = b""
    content_type: str = ""


class Service:
    """Everything behind the routes."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.settings = settings
        self.draining = False
        self._rules: dict[tuple[str, float | None, float | None], tuple[POSCOD, dict[str, Any]]] = {}
        self.holder = ModelHolder(path, settings.trusted, self._new_model)
        self.watch = Watch(self.holder.current, settings)
        self.log = None if settings.log is None else DecisionLog(open_sink(settings.log), settings.log_queue_rows)
        self.metrics = Metrics([self._samples, self.watch.samples])
        self.engine = Engine(settings.threads, settings.joint_rows, settings.max_in_flight)

    def close(self) -> None:
        """Finish what was accepted, write the log, save the monitor."""
        for part in (self.engine, self.log, self.watch):
            if part is not None:
                part.close(self.settings.shutdown_seconds)

    def job(self, question: Question) -> Job:
        """Return the job that answers a question."""
        rows = question.rows
        if rows is None:
            return Job(self._decide, question)
        key = None if rows.layout is None else (question.loaded.sha256, rows.named, rows.layout)
        return Job(self._decide, question, len(rows), key)

    def rule_job(self, loaded: LoadedModel, alpha: float | None, tpr_min: float | None, rows: Batch | None) -> Job:
        """Return the job that answers what another cost would do."""

        def run(_: Sequence[Job]) -> Sequence[bytes]:
            model, document = self._rule(loaded, alpha, tpr_min)
            if rows is not None:
                document = {**document, "decisions": _columns(model, _named(model, _decide(model, [rows])))}
            return [dumps({"model": loaded.sha256, **document})]

        return Job(run, None)

    def _rule(self, loaded: LoadedModel, alpha: float | None, tpr_min: float | None) -> tuple[POSCOD, dict[str, Any]]:
        key = (loaded.sha256, alpha, tpr_min)
        found = self._rules.get(key)
        if found is None:
            try:
                model = loaded.model.at(alpha=alpha, tpr_min=tpr_min)
            except PoscodError as error:
                raise Refusal(422, error.told(_NAMES)) from None
            found = model, plain({"rule": model.rule_.to_dict(), "calibration": rates(model)})
            while len(self._rules) >= _CACHED_RULES:
                self._rules.pop(next(iter(self._rules)), None)
            self._rules[key] = found
        return found

    def _decide(self, jobs: Sequence[Job]) -> Sequence[bytes]:
        """Answer questions of one layout in one call of the model."""
        questions: list[Question] = [job.payload for job in jobs]
        loaded = questions[0].loaded
        batches = [
            question.rows or READERS[question.content_type](question.body, loaded.model.schema_, self.settings.max_rows)
            for question in questions
        ]
        decisions = _decide(loaded.model, batches)
        now, start, answers = time.time(), 0, []
        self.watch.put(len(decisions), (now, decisions, loaded))
        decisions = _named(loaded.model, decisions)
        self.metrics.count(decisions)
        for question, rows in zip(questions, batches, strict=True):
            part = decisions[start : start + len(rows)]
            start += len(rows)
            self.metrics.batch.observe(len(rows))
            answers.append(_encode(question, rows, part))
            if self.log is not None:
                self.log.add(Entry(now, question.request_id, rows.ids, part, loaded.sha256))
        return answers

    def _new_model(self, loaded: LoadedModel) -> None:
        self._rules = {}
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


def _decide(model: POSCOD, batches: Sequence[Batch]) -> Decisions:
    schema = model.schema_
    try:
        return model.decide(join(schema, batches))
    except (PoscodError, ValueError, TypeError, KeyError) as error:
        told = error.told(_NAMES) if isinstance(error, PoscodError) else str(error)
        sentence = told.strip().partition("\n")[0].partition(". ")[0][:300].rstrip(".")  # some errors are essays
        place = first_gap(batches[0], schema) if len(batches) == 1 else ""
        gap = f" (a value is missing or not finite: {place})" if place else ""
        raise Refusal(422, f"The model refuses these rows: {sentence}{gap}.") from None


def _named(model: POSCOD, decisions: Decisions) -> Decisions:
    """Give the classes of a network their names, where they are known."""
    return dataclasses.replace(decisions, label=model.schema_.labels(decisions.label))


def _columns(model: POSCOD, decisions: Decisions) -> dict[str, list[Any]]:
    return {
        "prediction": column(decisions.predictions(model.reject_label)),
        "label": column(decisions.label),
        "accept": decisions.accept.tolist(),
        "reason": decisions.reason.tolist(),
        **{name: floats(getattr(decisions, name)) for name in ("risk", "log_ratio", "score")},
    }


def _encode(question: Question, rows: Batch, decisions: Decisions) -> bytes:
    model, sha256 = question.loaded.model, question.loaded.sha256
    if not question.arrow:
        ids = {} if rows.ids is None else {"ids": rows.ids}
        return dumps({"model": sha256, "n": len(decisions), "decisions": _columns(model, decisions), **ids})
    columns: dict[str, Any] = {} if rows.ids is None else {"id": rows.ids}
    columns["prediction"] = decisions.predictions(model.reject_label)
    columns |= {field.name: np.asarray(getattr(decisions, field.name)) for field in dataclasses.fields(decisions)}
    return write_stream(columns, {"model": sha256})
