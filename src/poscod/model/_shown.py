# SPDX-License-Identifier: BSD-3-Clause
"""A model in a notebook: scikit-learn's diagram and, once it is fitted, what the rule is, what is promised, and what to expect.

Convention: the sentences are those that everybody says.
"""

from __future__ import annotations

from typing import Any

from poscod import _show
from poscod.model._estimates_words import estimates_document


class ShownModel:
    """What a notebook shows of a `POSCOD`."""

    def _repr_html_inner(self) -> str:
        diagram: str = super()._repr_html_inner()  # type: ignore[misc]
        return diagram + fitted_html(self)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        made: dict[str, str] = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        return {**made, "text/html": self._repr_html_inner()} if "text/html" in made else made


def fitted_html(model: Any) -> str:
    """Return what a fit has found, as HTML; nothing before a fit."""
    if not hasattr(model, "rule_"):
        return ""
    said, drift = estimates_document(model), model.calibration_.drift
    parts = [
        _show.paragraph(str(model.rule_), "Fitted."),
        _show.paragraph(f"{said['title']}:"),
        _show.table(["", ""], [[each["name"], each["text"]] for each in said["lines"]]),
        *(_show.paragraph(doubt, "Doubt.") for doubt in said["doubts"]),
        "" if drift is None else _show.paragraph(drift.sentence(), "Drift."),
    ]
    return "".join(parts)
