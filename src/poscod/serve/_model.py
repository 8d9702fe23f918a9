# SPDX-License-Identifier: BSD-3-Clause
"""The model in service: read from its file, described, and replaced in one step.

Convention: a `LoadedModel` never changes; `ModelHolder.current` is one reference that is read once per request. A file that cannot
be served leaves the old model in place, and the reason is kept until a good file comes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from poscod._comparison import promised_tpr
from poscod._inputs import NetworkHead
from poscod.activations import Activations
from poscod.estimator import POSCOD
from poscod.exceptions import InvalidInputError, PoscodError
from poscod.risk import bayes_decision_from_logits
from poscod.serve._plain import plain
from poscod.strategies import rejection_score

__all__ = ["Inputs", "LoadedModel", "ModelHolder", "calibration_rates", "load_model"]


@dataclass(frozen=True)
class Inputs:
    """What a model expects of a row.

    Parameters
    ----------
    kind : {"table", "network", "any"}
        Columns of a table; features and logits of a network; or whatever the classifier's pipeline reads, e.g. texts.
    width : int or None
        Number of features.
    names : tuple of str or None
        Names of the features, where the model knows them.
    logits : int or None
        Number of logits of a network.
    logit_names : tuple of str or None
        Names of the logits, where `poscod fit` read them from columns.
    classes : tuple or None
        Names of the classes of a network, where `poscod fit` was told them.
    probabilities : bool
        Whether what stands for the logits are probabilities.
    flat : bool
        Whether the features of a network are columns of a table.
    frame : bool
        Whether the model was fitted on a data frame and takes one.
    """

    kind: str
    width: int | None = None
    names: tuple[str, ...] | None = None
    logits: int | None = None
    logit_names: tuple[str, ...] | None = None
    classes: tuple[Any, ...] | None = None
    probabilities: bool = False
    flat: bool = False
    frame: bool = False


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model that is ready to decide.

    Parameters
    ----------
    model : POSCOD
    inputs : Inputs
    sha256 : str
        Hash of the file.
    card : dict
        What `/v1/model` says, as plain JSON.
    """

    model: POSCOD
    inputs: Inputs
    sha256: str
    card: dict[str, Any]


def load_model(path: Path, trusted: tuple[str, ...] = ()) -> LoadedModel:
    """Read a model file, try it on one row and describe it."""
    for _ in range(3):
        before = signature(path)
        model = POSCOD.load(path, trusted=trusted)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        if signature(path) == before:  # otherwise hash and model may come from two files
            break
    else:
        raise InvalidInputError(f"{path} changes while it is read: write it elsewhere and rename it.")
    if not hasattr(model, "threshold_"):
        raise InvalidInputError(f"{path} holds a model that was never fitted: fit it before it is served.")
    inputs = inputs_of(model)
    _try_one_row(model, inputs, path)
    return LoadedModel(model, inputs, sha256, _card(model, inputs, path, sha256))


def signature(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file is replaced: time, size and inode."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def inputs_of(model: POSCOD) -> Inputs:
    """Say what a fitted model expects of a row."""
    # `poscod fit` leaves a record of the columns it has read; models saved from Python have none.
    record: dict[str, Any] = getattr(model, "columns_", {})
    features, logit_names = (_one_each(record, name, f"n_{name}") for name in ("features", "logits"))
    if isinstance(model.classifier_, NetworkHead):
        columns = {} if model.ratio_ is None else model.ratio_.columns_
        width = record.get("n_features") or None if record else columns.get("features")
        return Inputs(
            "network",
            width,
            features if logit_names else None,
            len(model.classes_),
            logit_names if features or width is None else None,
            tuple(record["classes"]) if record.get("classes") else None,
            bool(record.get("probabilities")),
            bool(record.get("table")),
        )
    names = getattr(model, "feature_names_in_", None)
    width = getattr(model, "n_features_in_", None)
    if width is None:
        return Inputs("any")
    known = features if names is None else tuple(str(name) for name in names)
    return Inputs("table", int(width), known, frame=names is not None)


def _one_each(record: dict[str, Any], name: str, count: str) -> tuple[str, ...] | None:
    """Return the names of columns that hold one number each; a column of lists has no name per number."""
    names = record.get(name) or ()
    return tuple(str(item) for item in names) if names and record.get(count, len(names)) in (0, len(names)) else None


def calibration_rates(model: POSCOD) -> dict[str, Any]:
    """Measure a rule on the rows its threshold was set on, and on the traffic of the fit."""
    kept, loss = model.calibration_, model.problem_.loss
    label, risk = bayes_decision_from_logits(kept.logits, loss, temperature=model.temperature_)
    accept = rejection_score(risk, kept.log_ratio, model.beta_) <= model.threshold_
    weight = np.ones(len(accept)) if kept.weight is None else kept.weight
    losses = model.problem_.losses(kept.codes, label, len(model.classes_))
    accepted = float((weight * accept).sum())
    traffic = bayes_decision_from_logits(kept.traffic_logits, loss, temperature=model.temperature_).risk
    passed = rejection_score(traffic, kept.traffic_log_ratio, model.beta_) <= model.threshold_
    with np.errstate(over="ignore"):
        mass = np.minimum(np.exp(kept.log_ratio), sys.float_info.max / max(len(accept), 1)) * weight * accept
    fpr = None if model.ratio_ is None else min(1.0, float(mass.sum() / weight.sum()))
    return {
        "rows": len(accept),
        "tpr": accepted / float(weight.sum()),
        "selective_risk": float((weight * accept * losses).sum()) / accepted if accepted else None,
        "fpr": fpr,
        "traffic_rows": len(passed),
        "traffic_accepted": float(passed.mean()) if len(passed) else None,
    }


def describe_rule(model: POSCOD) -> dict[str, Any]:
    """Return problem, slope, threshold and promise of a fitted rule as plain JSON."""
    problem: Any = model.problem_
    guaranteed = model.threshold == "guaranteed"
    tpr_min, rates = promised_tpr(model, model._arrays(problem)), calibration_rates(model)
    if tpr_min is None:
        promise = (
            "No TPR is promised: the threshold was set for a cost, a budget or a bound. "
            f"On the calibration rows TPR is {rates['tpr']:.3g}."
        )
    elif guaranteed:
        promise = f"At least {tpr_min:.6g} of ID inputs are accepted, with probability {1 - model.delta:.6g} over the calibration rows."
    else:
        promise = (
            f"About {tpr_min:.6g} of ID inputs are accepted: the share on the calibration rows, without a guarantee."
        )
    return plain(
        {
            "problem": {"kind": type(problem).__name__, **dataclasses.asdict(problem)},
            "beta": model.beta_,
            "threshold": model.threshold_,
            "tau": model.tau_,
            "threshold_rule": model.threshold,
            "delta": model.delta if guaranteed else None,
            "promise": promise,
            "calibration": rates,
        }
    )


def _card(model: POSCOD, inputs: Inputs, path: Path, sha256: str) -> dict[str, Any]:
    return {
        "file": path.name,
        "sha256": sha256,
        "written_at": datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).isoformat(timespec="seconds"),
        "loaded_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "poscod": sys.modules["poscod"].__version__,
        "classes": plain(model.classes_ if inputs.classes is None else inputs.classes),
        "reject_label": plain(model.reject_label),
        "inputs": plain(dataclasses.asdict(inputs)),
        "ood_share_at_fit": plain(model.ood_prior_),
        **describe_rule(model),
    }


def _try_one_row(model: POSCOD, inputs: Inputs, path: Path) -> None:
    """Decide on one row of zeros, so that a file that cannot decide never replaces one that can."""
    if inputs.kind == "any" or inputs.frame:
        return  # rows may be texts or categories, of which zero is none
    try:
        if inputs.kind == "network":
            features = None if inputs.width is None else np.zeros((1, inputs.width))
            model.decide(Activations(features, np.zeros((1, inputs.logits or 0)), table=inputs.flat))
        else:
            model.decide(np.zeros((1, inputs.width or 0)))
    except Exception as error:
        raise InvalidInputError(f"{path} loads, but cannot decide on a row of zeros ({error}).") from error


class ModelHolder:
    """The model in service and the file it comes from.

    Parameters
    ----------
    path : Path
    trusted : tuple of str
        See `poscod.persist.load`.
    on_change : callable
        ``on_change(loaded)`` is called after a new model is in place.
    """

    def __init__(self, path: Path, trusted: tuple[str, ...], on_change: Callable[[LoadedModel], None]) -> None:
        self.path, self._trusted, self._on_change = path, trusted, on_change
        self._seen = signature(path)
        self.current = load_model(path, trusted)
        self.error: str | None = None
        self.reloads, self.failures = 0, 0
        self._lock = threading.Lock()

    def changed(self) -> tuple[int, int, int] | None:
        """Return the signature of a file that is not the one that was read last, or None."""
        try:
            found = signature(self.path)
        except OSError:
            return None  # being replaced, or gone: the model in memory goes on
        return found if found != self._seen else None

    def reload(self) -> bool:
        """Read the file again and serve it if it is good; one thread at a time."""
        with self._lock:
            try:
                self._seen = signature(self.path)
                loaded = load_model(self.path, self._trusted)
            except Exception as error:  # a strange file may raise anything; whoever watches the file must live on
                known = isinstance(error, (PoscodError, OSError))
                sentence = str(error) if known else f"{self.path} cannot be served ({type(error).__name__})."
                self.error = " ".join(sentence.split())
                self.failures += 1
                return False
            self.error = None
            if loaded.sha256 == self.current.sha256:
                return False
            self.current = loaded  # one reference: a request sees the old model or the new one, never a mixture
            self.reloads += 1
            self._on_change(loaded)
            return True
