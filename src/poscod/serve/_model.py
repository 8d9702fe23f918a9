# SPDX-License-Identifier: BSD-3-Clause
"""The model in service: read from its file, described, and replaced in one step.

Convention: a `LoadedModel` never changes; `ModelHolder.current` is one reference that is read once per request. A file that cannot
be served leaves the old model in place, and the reason is kept until a good file comes.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from poscod._files import open_source
from poscod.exceptions import InvalidInputError, PoscodError
from poscod.labels import reject_label_for
from poscod.model import POSCOD, choices_document, drift_document, mix_document
from poscod.serve._say import plain, say


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model that is ready to decide, the hash of its file, and what `/v1/model` says of it."""

    model: POSCOD
    sha256: str
    card: dict[str, Any]


def load_model(path: Path, trusted: tuple[str, ...] = ()) -> LoadedModel:
    """Read a model file and describe it; `POSCOD.load` tries it on a row, so that a file that cannot decide never replaces one that can."""
    with open_source(path) as source:
        # Once: hash and model come from the same file. As long as it was when it was opened: one that grows has no end.
        data = source.read(os.fstat(source.fileno()).st_size)
    file, sha256 = io.BytesIO(data), hashlib.sha256(data).hexdigest()
    file.name = str(path)
    model = POSCOD.load(file, trusted=trusted)
    if not hasattr(model, "rule_"):
        raise InvalidInputError(f"{path} holds a model that was never fitted: fit it before it is served.")
    schema = model.schema_
    card = {
        "file": path.name,
        "sha256": sha256,
        "written_at": datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).isoformat(timespec="seconds"),
        "loaded_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "poscod": sys.modules["poscod"].__version__,
        "classes": schema.classes or model.calibration_.classes,
        "reject_label": reject_label_for(model.reject_label, schema.labels(model.scorer_.classes)),
        "inputs": {"kind": schema.kind, **schema.to_dict()},
        "ood_prior": model.calibration_.ood_prior,
        "class_mix": mix_document(model),
        "drift": drift_document(model),
        "rule": model.rule_.to_dict(),
        "estimates": choices_document(model),
    }
    return LoadedModel(model, sha256, plain(card))


def signature(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file is replaced: time, size and inode."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


class ModelHolder:
    """The model in service and the file it comes from; ``on_change(loaded)`` is called after a new model is in place.

    A file may take for ever to be read: whatever touches it runs in a thread of its own, one at a time, that no shutdown waits for.
    """

    def __init__(
        self, path: Path, trusted: tuple[str, ...], seconds: float, on_change: Callable[[LoadedModel], None]
    ) -> None:
        self.path, self._trusted, self._seconds, self._on_change = path, trusted, seconds, on_change
        self._seen = self._found = signature(path)
        self.current = load_model(path, trusted)
        self.error: str | None = None
        self.reloads, self.failures = 0, 0
        self._reading, self._guard = threading.Lock(), threading.Lock()
        self._waiting: Future[bool] | None = None
        self._looking: threading.Thread | None = None

    def look(self) -> None:
        """Read the file again if it is another one, and the same as at the last look: once it has stopped changing."""
        try:
            found = signature(self.path)
        except OSError:
            return  # being replaced, or gone: the model in memory goes on
        stable, self._found = found == self._found, found
        if found != self._seen and stable:
            self.reload()

    def look_soon(self) -> None:
        """Look in a thread, unless the last look has not ended."""
        if self._looking is None or not self._looking.is_alive():
            self._looking = threading.Thread(target=self.look, name="poscod-look", daemon=True)
            self._looking.start()

    def reload_soon(self) -> Future[bool]:
        """Reload in a thread; whoever asks while one waits for its turn shares it."""
        with self._guard:
            if self._waiting is None:
                self._waiting = Future()
                work = partial(self._work, self._waiting)
                threading.Thread(target=work, name="poscod-reload", daemon=True).start()
            return self._waiting

    async def wait_for_reload(self) -> bool:
        """Reload and return whether there is another model now; a file that is not read in time is an error until it is."""
        result = asyncio.wrap_future(self.reload_soon())
        try:
            return await asyncio.wait_for(asyncio.shield(result), self._seconds)
        except asyncio.TimeoutError:
            self._refuse(f"{self.path} was not read within {self._seconds:g} seconds.")
            return False

    def _work(self, result: Future[bool]) -> None:
        try:
            result.set_result(self.reload())
        except Exception as error:
            result.set_exception(error)

    def reload(self) -> bool:
        """Read the file again and serve it if it is good; one thread at a time."""
        with self._reading:
            with self._guard:
                self._waiting = None  # who asks from now on may have written another file
            return self._reload()

    def _reload(self) -> bool:
        try:
            self._seen = signature(self.path)
            loaded = load_model(self.path, self._trusted)
        except Exception as error:  # a strange file may raise anything; whoever watches the file must live on
            reason = getattr(error, "strerror", None) or type(error).__name__
            self._refuse(str(error) if isinstance(error, PoscodError) else f"{self.path} cannot be served ({reason}).")
            return False
        self.error = None
        if loaded.sha256 == self.current.sha256:
            return False
        self.current = loaded  # one reference: a request sees the old model or the new one, never a mixture
        self.reloads += 1
        self._on_change(loaded)
        return True

    def _refuse(self, sentence: str) -> None:
        # Callers read it, and need not know where the file lies.
        self.error = " ".join(sentence.replace(str(self.path), self.path.name).split())
        self.failures += 1
        say("model-refused", sentence=self.error)
