# SPDX-License-Identifier: BSD-3-Clause
"""What everybody says of the class mix: one document with one sentence, for shell, report, service and ONNX metadata.

Convention: shares are of ID inputs; classes that moved are those whose share certainly differs, the largest difference first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from poscod.mix import ClassMix

NAMED = 5
"""Classes that a sentence names."""


def mix_document(model: Any, names: Sequence[Any] | None = None) -> dict[str, Any]:
    """Return the class mix that a model serves as plain values: `ClassMix.to_dict`, whether it was estimated, and the sentence; ready for JSON."""
    mix, names = model._mix(), _names(model, names)
    return _document(mix, names, _served(mix, names))


def fresh_document(model: Any, mix: ClassMix | None, names: Sequence[Any] | None = None) -> dict[str, Any] | None:
    """Return the class mix of fresh traffic in the same way; None where it was not found to differ from the one that the model serves."""
    own, names = model._mix(), _names(model, names)
    if mix is None or np.array_equal(mix.traffic, own.traffic):
        return None
    apart = (own.traffic < mix.low) | (own.traffic > mix.high)
    moves = _moves(names, own.traffic, mix.traffic, apart)
    return _document(
        mix,
        names,
        f"This traffic has another class mix than the one that the model serves: {moves}. Fit again to serve it.",
    )


def _names(model: Any, names: Sequence[Any] | None) -> list[Any]:
    found: list[Any] = (
        model.schema_.labels(model.calibration_.classes).tolist() if names is None else [str(name) for name in names]
    )
    return found


def _document(mix: ClassMix, names: list[Any], sentence: str) -> dict[str, Any]:
    return {"sentence": sentence, "estimated": mix.covariance is not None, **mix.to_dict(names)}


def _served(mix: ClassMix, names: list[Any]) -> str:
    if mix.changed:
        moves = _moves(names, mix.labeled, mix.traffic, np.isin(np.arange(len(names)), mix.moved))
        how = (
            "Adapted to the traffic's class mix"
            if mix.covariance is not None
            else "Serves the class mix that was given"
        )
        return f"{how}: {moves}."
    if mix.covariance is None:
        return "Serves the class mix of the labeled rows; that of the traffic was not estimated."
    return f"The traffic was not found to have another class mix than the labeled rows (p = {mix.p_value:.2g})."


def _moves(names: list[Any], before: Any, after: Any, apart: Any) -> str:
    """Return the classes that moved, or the one that moved most, as ``cat 10 % -> 34 %``."""
    order = np.argsort(-np.abs(after - before), kind="stable")
    moved = order[apart[order]] if apart.any() else order[:1]
    words = [f"{names[k]} {100 * before[k]:.3g} % -> {100 * after[k]:.3g} %" for k in moved[:NAMED].tolist()]
    return ", ".join(words) + (f" and {len(moved) - NAMED} more" if len(moved) > NAMED else "")
