# SPDX-License-Identifier: BSD-3-Clause
"""The monitor of a running service: one thread that counts decisions and keeps a summary ready.

Convention: requests only append to a bounded queue; only the watching thread touches the `Monitor`, so counting needs no lock and
reading a summary costs nothing. Each model has a state file of its own, with the first digits of its hash in the name, which is taken up
when the model comes back; it holds the state, the reference it was counted with and the whole hash. One that cannot be used is renamed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from poscod._files import alone, replacing
from poscod.decision import Decisions
from poscod.exceptions import PoscodError
from poscod.monitor import FINDINGS, Monitor, Reference
from poscod.serve._metrics import Sample
from poscod.serve._model import LoadedModel
from poscod.serve._say import plain, say, where
from poscod.serve._settings import Settings
from poscod.serve._worker import Worker

# How long the thread waits for decisions, how often the summary is made anew and the state saved at most.
_PATIENCE, _SUMMARY_SECONDS, _SAVE_SECONDS = 0.25, 1.0, 60.0
# A summary of many windows takes a second: it may cost one part in so many of the time.
_SUMMARY_SHARE = 30.0

_Counted = tuple[float, Decisions, LoadedModel]


class Watch(Worker["_Counted | LoadedModel"]):
    """Counts what a service decides; a model in the queue says that from then on another one is watched."""

    def __init__(self, loaded: LoadedModel, settings: Settings) -> None:
        self._settings = settings
        self._held = contextlib.ExitStack()
        if settings.state_file is not None:
            self._held.enter_context(alone(settings.state_file))
        self._summary_at = self._saved_at = time.monotonic()
        self._pause, self._fresh = _SUMMARY_SECONDS, False
        self._begin(loaded)
        self._summarise()
        rows = settings.log_queue_rows
        super().__init__("poscod-monitor", max_rows=rows, batch_rows=rows, seconds=_PATIENCE)

    def close(self, seconds: float) -> None:
        """Count what waits, save the state and leave it to others."""
        super().close(seconds)
        self._held.close()

    def document(self) -> dict[str, Any]:
        """Return the latest summary as plain JSON."""
        return {**self._document, "dropped": self.dropped}

    def samples(self) -> Iterable[Sample]:
        """Yield what Prometheus reads."""
        yield "poscod_monitor_dropped", "counter", "Decisions that the monitor did not see", [({}, float(self.dropped))]
        document = self._document
        active = {finding["code"]: finding["severity"] for finding in document["findings"] if finding["active"]}
        values = [
            ({"code": code, "severity": active.get(code, kind.severity)}, float(code in active))
            for code, kind in FINDINGS.items()
        ]
        yield "poscod_finding", "gauge", "Whether a finding of the monitor is active", values
        if document["windows"]:
            last = document["windows"][-1]
            for name, key, text in (
                ("ood_share", "pi", "OOD share"),
                ("error_estimate", "error", "Share of wrong answers, estimated without labels,"),
            ):
                ends = [({"bound": end}, last[key][end]) for end in ("low", "estimate", "high")]
                known = [end for end in ends if end[1] is not None]
                yield f"poscod_{name}", "gauge", f"{text} of the latest window, with its interval", known
            yield "poscod_window_decisions", "gauge", "Decisions in the latest window", [({}, float(last["n"]))]
            if last["n"]:
                share = float(last["accepted"] / last["n"])
                yield "poscod_window_accepted_share", "gauge", "Share accepted in the latest window", [({}, share)]

    def handle(self, items: list[_Counted | LoadedModel]) -> bool:
        """Count decisions; now and then make a summary and save the state."""
        taken = [item for item in items if isinstance(item, tuple)]
        upcoming = [item for item in items if isinstance(item, LoadedModel)]
        try:
            rest = self._count(taken)
            self._fresh |= len(rest) < len(taken)
            if upcoming:
                self._save()
                self._begin(upcoming[-1])
                rest = self._count(rest)  # the new model has decided before the monitor knew of it
                self._fresh = True
            with self._wake:
                self.dropped += sum(len(decisions) for _, decisions, _ in rest)
            now = time.monotonic()
            if self._fresh and (self.closing or upcoming or now - self._summary_at >= self._pause):
                self._summarise()
                self._summary_at, self._fresh = time.monotonic(), False
                self._pause = max(_SUMMARY_SECONDS, _SUMMARY_SHARE * (self._summary_at - now))
            if self.closing or now - self._saved_at >= _SAVE_SECONDS:
                self._save()
                self._saved_at = now
        except Exception as error:  # a monitor that fails must not end the service, nor its own thread
            say("monitor-fault", error=where(error))
        return True

    def _count(self, taken: list[_Counted]) -> list[_Counted]:
        """Count decisions of the model that is watched; return the others."""
        ours = [(now, decisions) for now, decisions, loaded in taken if loaded.sha256 == self._sha256]
        rest = [item for item in taken if item[2].sha256 != self._sha256]
        if not ours or self._monitor is None:
            return rest
        sizes = [len(decisions) for _, decisions in ours]
        joint = Decisions(
            *(np.concatenate([getattr(decisions, field.name) for _, decisions in ours]) for field in fields(Decisions))
        )
        self._monitor.update(joint, at=np.repeat([now for now, _ in ours], sizes))
        return rest

    def _begin(self, loaded: LoadedModel) -> None:
        """Take up the state that was saved for a model, or begin with none."""
        self._sha256, self._monitor, self._why = loaded.sha256, None, None
        state = self._settings.state_file
        self._path = state and state.with_name(f"{state.stem}-{self._sha256[:12]}{state.suffix}")
        if self._path is not None and self._path.exists() and self._restore(self._path):
            return
        try:
            # The date of the file, not of today: calibration ages with it, and states of several processes can be merged.
            reference = Reference.from_model(loaded.model, created=loaded.card["written_at"][:10])
        except PoscodError as error:
            self._why = str(error)
            say("monitor-off", sentence=self._why)
            return
        self._monitor = Monitor(reference, window=self._settings.window, ood_limit=self._settings.ood_limit)

    def _restore(self, path: Path) -> bool:
        """Take up a saved state; one that cannot be taken up is renamed, so that nothing overwrites it."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            monitor = Monitor.from_state(data["monitor"], Reference.from_dict(data["reference"]))
            asked = (self._settings.window, self._settings.ood_limit, self._sha256)
            if (monitor.window, monitor.ood_limit, data["sha256"]) == asked:
                self._monitor = monitor
                return True
            why = "was counted with another window, limit or model"
        except (PoscodError, OSError, ValueError, KeyError, TypeError) as error:
            why = f"cannot be read ({type(error).__name__})"
        names = (path.with_name(f"{path.stem}-unused-{i}{path.suffix}") for i in itertools.count(1))
        aside = next(name for name in names if not name.exists())
        say("monitor-state", sentence=f"{path} {why}: it is not used and becomes {aside.name}.")
        with contextlib.suppress(OSError):
            path.rename(aside)
        return False

    def _save(self) -> None:
        if self._path is None or self._monitor is None:
            return
        reference, monitor = self._monitor.reference.to_dict(), self._monitor.state()
        try:
            with replacing(self._path) as file:
                file.write(json.dumps({"sha256": self._sha256, "reference": reference, "monitor": monitor}).encode())
        except OSError as error:
            say("monitor-state", sentence=f"{self._path} cannot be written ({error.strerror}).")

    def _summarise(self) -> None:
        summary = {"windows": [], "findings": []} if self._monitor is None else self._monitor.summary()
        stamp = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._document = plain({"model": self._sha256, "at": stamp, "off": self._why, **summary})
