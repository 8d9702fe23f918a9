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
from poscod.estimator import POSCOD
from poscod.exceptions import PoscodError
from poscod.serve._arrow import write_stream
from poscod.serve._decision_log import DecisionLog, Entry
from poscod.serve._engine import Engine, Job
from poscod.serve._lines import say
from poscod.serve._metrics import Metrics, Sample
from poscod.serve._model import Inputs, LoadedModel, ModelHolder, describe_rule
from poscod.serve._plain import column, dumps, floats
from poscod.serve._refusal import Refusal
from poscod.serve._rows import Rows, first_gap, join, parse_rows
from poscod.serve._settings import Settings
from poscod.serve._sinks import open_sink
from poscod.serve._watch import Watch

__all__ = ["Question", "Service"]

_CACHED_RULES = 16


@dataclass(eq=False)
class Question:
    """A batch to decide on.

    Parameters
    ----------
    loaded : LoadedModel
        The model the request arrived under.
    request_id : str
    arrow : bool
        Whether the answer is an Arrow stream instead of JSON.
    rows : Rows or None
        The rows, or None where the body is still to be read:
    body : bytes
    content_type : str
    """

    loaded: LoadedModel
    request_id: str
    arrow: bool
    rows: Rows | None = None
    body: bytes = b""
    content_type: str = ""


class Service:
    """Everything behind the routes.

    Parameters
    ----------
    path : Path
        The model file.
    settings : Settings
    """

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
        seconds = self.settings.shutdown_seconds
        self.engine.close(seconds)
        if self.log is not None:
            self.log.close(seconds)
        self.watch.close(seconds)

    def job(self, question: Question) -> Job:
        """Return the job that answers a question."""
        rows = question.rows
        if rows is None:
            return Job(self._decide, question)
        key = None if rows.layout is None else (question.loaded.sha256, rows.layout)
        return Job(self._decide, question, len(rows), key)

    def rule_job(
        self, loaded: LoadedModel, alpha: float | None, tpr_min: float | None, question: Question | None
    ) -> Job:
        """Return the job that answers what another cost would do."""

        def run(_: Sequence[Job]) -> Sequence[bytes]:
            model, rule = self._rule(loaded, alpha, tpr_min)
            document = {**rule, "model": loaded.sha256}
            if question is not None and question.rows is not None:
                decided = _decide(model, loaded, [question.rows])
                document["decisions"] = _columns(model, _named(decided, loaded.inputs))
            return [dumps(document)]

        return Job(run, None)

    def _rule(self, loaded: LoadedModel, alpha: float | None, tpr_min: float | None) -> tuple[POSCOD, dict[str, Any]]:
        key = (loaded.sha256, alpha, tpr_min)
        found = self._rules.get(key)
        if found is None:
            try:
                model = loaded.model.at(alpha=alpha, tpr_min=tpr_min)
            except PoscodError as error:
                raise Refusal(422, str(error)) from None
            found = model, describe_rule(model)
            while len(self._rules) >= _CACHED_RULES:
                self._rules.pop(next(iter(self._rules)), None)
            self._rules[key] = found
        return found

    def _decide(self, jobs: Sequence[Job]) -> Sequence[bytes]:
        """Answer questions of one layout in one call of the model."""
        questions: list[Question] = [job.payload for job in jobs]
        loaded = questions[0].loaded
        batches = [
            question.rows or parse_rows(question.body, question.content_type, loaded.inputs, self.settings.max_rows)
            for question in questions
        ]
        decisions = _decide(loaded.model, loaded, batches)
        now = time.time()
        self.metrics.count(decisions, loaded.model.classes_)
        self.metrics.joint.observe(len(decisions))
        self.watch.put(now, decisions, loaded)
        answers, entries, start = [], [], 0
        for question, rows in zip(questions, batches, strict=True):
            part = _named(decisions[start : start + len(rows)], loaded.inputs)
            start += len(rows)
            self.metrics.batch.observe(len(rows))
            entries.append(Entry(now, question.request_id, rows.ids, part, loaded.sha256))
            answers.append(_encode(question, rows, part))
        if self.log is not None:
            self.log.put(entries)
        return answers

    def _new_model(self, loaded: LoadedModel) -> None:
        self._rules = {}
        self.watch.reset(loaded)
        say("model", sha256=loaded.sha256, file=loaded.card["file"])

    def _samples(self) -> Iterable[Sample]:
        yield "poscod_model_info", "gauge", "The model in service", [({"sha256": self.holder.current.sha256}, 1.0)]
        yield "poscod_model_reloads", "counter", "New models taken into service", [({}, float(self.holder.reloads))]
        yield (
            "poscod_model_reload_failures",
            "counter",
            "Model files that were refused",
            [({}, float(self.holder.failures))],
        )
        yield (
            "poscod_model_reload_failing",
            "gauge",
            "Whether the file on disk is refused",
            [({}, float(self.holder.error is not None))],
        )
        log = self.log
        for name, kind, text, value in (
            ("written", "counter", "Decisions written to the log", 0 if log is None else log.written),
            ("dropped", "counter", "Decisions that the log lost", 0 if log is None else log.dropped),
            ("failures", "counter", "Attempts to write the log that failed", 0 if log is None else log.failures),
            ("waiting", "gauge", "Decisions that wait to be logged", 0 if log is None else log.waiting),
        ):
            yield f"poscod_log_{name}", kind, text, [({}, float(value))]


def _decide(model: POSCOD, loaded: LoadedModel, batches: Sequence[Rows]) -> Decisions:
    try:
        return model.decide(join(loaded.inputs, batches))
    except (PoscodError, ValueError, TypeError, KeyError) as error:
        sentence = str(error).strip().partition("\n")[0].partition(". ")[0][:300]  # some errors are essays
        place = first_gap(batches[0], loaded.inputs) if len(batches) == 1 and "contains" in sentence else ""
        told = f" ({place})" if place else ""
        raise Refusal(422, f"The model refuses these rows: {sentence.rstrip('.')}{told}.") from None


def _named(decisions: Decisions, inputs: Inputs) -> Decisions:
    """Give the classes of a network their names, where they are known."""
    if inputs.classes is None:
        return decisions
    names = np.empty(len(inputs.classes), dtype=object)
    names[:] = inputs.classes
    return dataclasses.replace(decisions, label=names[decisions.label])


def _columns(model: POSCOD, decisions: Decisions) -> dict[str, list[Any]]:
    return {
        "prediction": column(decisions.predictions(model.reject_label)),
        "label": column(decisions.label),
        "accept": decisions.accept.tolist(),
        "reason": decisions.reason.tolist(),
        "risk": floats(decisions.risk),
        "log_ratio": floats(decisions.log_ratio),
        "score": floats(decisions.score),
    }


def _encode(question: Question, rows: Rows, decisions: Decisions) -> bytes:
    model, sha256 = question.loaded.model, question.loaded.sha256
    if not question.arrow:
        document: dict[str, Any] = {"model": sha256, "n": len(decisions), "decisions": _columns(model, decisions)}
        if rows.ids is not None:
            document["ids"] = rows.ids
        return dumps(document)
    columns: dict[str, Any] = {} if rows.ids is None else {"id": rows.ids}
    columns["prediction"] = decisions.predictions(model.reject_label)
    for name in ("label", "accept", "reason", "risk", "log_ratio", "score"):
        columns[name] = np.asarray(getattr(decisions, name))
    return write_stream(columns, {"model": sha256})
