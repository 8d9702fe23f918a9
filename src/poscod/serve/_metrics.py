# SPDX-License-Identifier: BSD-3-Clause
"""What Prometheus reads: counts and times of requests, decisions, the log and the monitor.

Convention: names begin with ``poscod_``; everything lives in a registry of its own, so that several services in one process do
not mix. Counts that other parts already keep are read when Prometheus asks, not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from poscod._optional import require
from poscod.decision import REASONS, Decisions

__all__ = ["Metrics", "Sample"]

# More classes than this share one series "other": a series costs memory here and at the reader.
_MOST_CLASSES = 100
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROWS = (1, 4, 16, 64, 256, 1024, 4096, 16384)

Sample = tuple[str, str, str, list[tuple[dict[str, str], float]]]
"""Name, kind ("counter" or "gauge"), text and values by labels."""


class Metrics:
    """The registry of one service.

    Parameters
    ----------
    sources : iterable of callable
        Each returns samples at the moment they are asked for.
    """

    def __init__(self, sources: Iterable[Callable[[], Iterable[Sample]]] = ()) -> None:
        client = require("prometheus_client", extra="serve", feature="poscod serve")
        core = require("prometheus_client.core", extra="serve", feature="poscod serve")
        self._client, self._core, self._sources = client, core, list(sources)
        self._registry = client.CollectorRegistry()
        self.requests = client.Counter(
            "poscod_requests", "Requests by route and status", ("route", "status"), registry=self._registry
        )
        self.seconds = client.Histogram(
            "poscod_request_seconds",
            "Time from the first byte to the answer",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.batch = client.Histogram("poscod_batch_rows", "Rows per request", buckets=_ROWS, registry=self._registry)
        self.joint = client.Histogram(
            "poscod_joint_rows", "Rows decided in one call", buckets=_ROWS, registry=self._registry
        )
        self.in_flight = client.Gauge("poscod_in_flight", "Requests being worked on", registry=self._registry)
        self.rejected = client.Counter(
            "poscod_rejected_requests", "Requests turned away by a limit", ("limit",), registry=self._registry
        )
        decisions = client.Counter("poscod_decisions", "Decisions by reason", ("reason",), registry=self._registry)
        self._reasons = {reason: decisions.labels(reason) for reason in REASONS}
        self._answers = client.Counter(
            "poscod_answers",
            "Decisions by the classifier's answer and whether it stands",
            ("label", "accept"),
            registry=self._registry,
        )
        for limit in ("body", "rows", "in_flight", "seconds", "slow_body", "token"):
            self.rejected.labels(limit)
        self._registry.register(self)

    def count(self, decisions: Decisions, classes: Any) -> None:
        """Count decisions."""
        reasons, counts = np.unique(decisions.reason, return_counts=True)
        for reason, count in zip(reasons.tolist(), counts.tolist(), strict=True):
            self._reasons[reason].inc(count)
        codes = np.searchsorted(classes, decisions.label) * 2 + decisions.accept
        for code, count in zip(*(part.tolist() for part in np.unique(codes, return_counts=True)), strict=True):
            label = str(classes[code // 2]) if code // 2 < _MOST_CLASSES else "other"
            self._answers.labels(label, "true" if code % 2 else "false").inc(count)

    def collect(self) -> Iterator[Any]:
        """Yield what other parts of the service count (called by prometheus_client)."""
        kinds = {"counter": self._core.CounterMetricFamily, "gauge": self._core.GaugeMetricFamily}
        for source in self._sources:
            for name, kind, text, values in source():
                family = kinds[kind](name, text, labels=list(values[0][0]) if values else [])
                for labels, value in values:
                    family.add_metric(list(labels.values()), value)
                yield family

    def describe(self) -> list[Any]:
        """Name nothing in advance (called by prometheus_client)."""
        return []

    def text(self) -> tuple[bytes, str]:
        """Return the exposition and its content type."""
        return self._client.generate_latest(self._registry), self._client.CONTENT_TYPE_LATEST
