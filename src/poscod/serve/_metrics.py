# SPDX-License-Identifier: BSD-3-Clause
"""What Prometheus reads: counts and times of requests, decisions, the log and the monitor.

Convention: names begin with ``poscod_``; everything lives in a registry of its own, so that several services in one process do
not mix. Counts that other parts already keep are read when Prometheus asks, not copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from poscod._optional import require
from poscod.decision import REASONS, Decisions

# More classes than this share one series "other": a series costs memory here and at the reader.
_MOST_CLASSES = 100
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROWS = (1, 4, 16, 64, 256, 1024, 4096, 16384)

Sample = tuple[str, str, str, list[tuple[dict[str, str], float]]]
"""Name, kind ("counter" or "gauge"), text and values by labels."""


class Metrics:
    """The registry of one service; each source returns samples at the moment they are asked for."""

    def __init__(self, sources: Iterable[Callable[[], Iterable[Sample]]] = ()) -> None:
        self._client = client = require("prometheus_client", extra="serve", feature="poscod serve")
        self._core = require("prometheus_client.core", extra="serve", feature="poscod serve")
        self._sources = list(sources)
        self._registry = client.CollectorRegistry()

        def make(kind: Any, name: str, text: str, labels: Sequence[str] = (), **options: Any) -> Any:
            return kind(f"poscod_{name}", text, labels, registry=self._registry, **options)

        self.requests = make(client.Counter, "requests", "Requests by route and status", ("route", "status"))
        self.seconds = make(
            client.Histogram, "request_seconds", "Time from the first byte to the answer", ("route",), buckets=_SECONDS
        )
        self.batch = make(client.Histogram, "batch_rows", "Rows per request", buckets=_ROWS)
        self.joint = make(client.Histogram, "joint_rows", "Rows decided in one call", buckets=_ROWS)
        self.in_flight = make(client.Gauge, "in_flight", "Requests being worked on")
        self.rejected = make(client.Counter, "rejected_requests", "Requests turned away by a limit", ("limit",))
        self._decisions = make(client.Counter, "decisions", "Decisions by reason", ("reason",))
        text = "Decisions by the classifier's answer and whether it stands"
        self._answers = make(client.Counter, "answers", text, ("label", "accept"))
        self._classes: set[Any] = set()
        for limit in ("body", "rows", "in_flight", "seconds", "slow_body", "token", "host", "origin"):
            self.rejected.labels(limit)
        for reason in REASONS:
            self._decisions.labels(reason)
        self._registry.register(self)

    def count(self, decisions: Decisions) -> None:
        """Count decisions that were made in one call."""
        self.joint.observe(len(decisions))
        for reason, n in Counter(decisions.reason.tolist()).items():
            self._decisions.labels(reason).inc(n)
        answers = Counter(zip(decisions.label.tolist(), decisions.accept.tolist(), strict=True))
        for (label, accept), n in answers.items():
            if len(self._classes) < _MOST_CLASSES:
                self._classes.add(label)
            shown = str(label) if label in self._classes else "other"
            self._answers.labels(shown, "true" if accept else "false").inc(n)

    def collect(self) -> Iterator[Any]:
        """Yield what other parts of the service count (called by prometheus_client)."""
        kinds = {"counter": self._core.CounterMetricFamily, "gauge": self._core.GaugeMetricFamily}
        for source in self._sources:
            for name, kind, text, values in source():
                family = kinds[kind](name, text, labels=list(values[0][0]) if values else [])
                for labels, value in values:
                    family.add_metric(list(labels.values()), value)
                yield family

    def text(self) -> tuple[bytes, str]:
        """Return the exposition and its content type."""
        return self._client.generate_latest(self._registry), self._client.CONTENT_TYPE_LATEST
