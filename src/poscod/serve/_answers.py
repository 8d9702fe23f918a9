# SPDX-License-Identifier: BSD-3-Clause
"""What the service answers, as models: the description of the interface is made from them, and the query of ``/v1/at`` checked by one.

Convention: answers are written by the service itself, as JSON without infinities (`poscod._json.plain`); tests compare them with these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from poscod.decision import REASONS

__all__ = ["Applied", "Costs", "Decided", "Live", "Model", "Monitored", "Problem", "Ready", "Reloaded"]

Share = Field(ge=0, le=1)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class Problem(_Strict):
    """Why a request was refused, in a sentence."""

    error: str
    status: int
    title: str
    request_id: str


class Decisions(_Strict):
    """One column per field, one entry per row."""

    prediction: list[Any] = Field(description="the label, or the reject label where the answer does not stand")
    label: list[Any] = Field(description="the classifier's answer, also where it does not stand")
    accept: list[bool]
    reason: list[Literal[tuple(REASONS)]]  # type: ignore[valid-type]
    risk: list[float] = Field(description="conditional risk r")
    log_ratio: list[float] = Field(description="log g, g = p_OOD / p_ID")
    score: list[float] = Field(description="rejection score s; accepted iff s <= threshold")


class Decided(_Strict):
    """The answer to a batch."""

    model: str = Field(description="SHA-256 of the model file that decided")
    n: int
    decisions: Decisions
    ids: list[str] = Field(default=[], description="the caller's names of the rows, where there are any")


class Costs(_Strict):
    """Other costs; what is not given stays as it is."""

    alpha: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    tpr_min: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)


class Rule(_Strict):
    """The rule, as `poscod.rule.Rule.to_dict` says it."""

    problem: dict[str, Any]
    slope: float
    threshold: float
    promise: dict[str, Any] | None
    rows: int
    sentence: str


class Rates(_Strict):
    """The rule on the rows its threshold was set on, and on the traffic of the fit."""

    rows: int
    tpr: float = Share
    selective_risk: float | None
    fpr: float | None = Share
    traffic_rows: int
    traffic_accepted: float | None = Share


class Applied(_Strict):
    """What other costs would do."""

    model: str
    rule: Rule
    calibration: Rates
    decisions: Decisions | None = None


class Model(_Strict):
    """The model in service."""

    file: str
    sha256: str
    written_at: str
    loaded_at: str
    poscod: str
    classes: list[Any]
    reject_label: Any
    inputs: dict[str, Any] = Field(description="what a row is")
    ood_prior: float = Share
    rule: Rule
    calibration: Rates


class Monitored(BaseModel):
    """Windows and findings of the monitor."""

    windows: list[dict[str, Any]]
    findings: list[dict[str, Any]]


class Reloaded(_Strict):
    """Whether there is a new model, and which one is in service."""

    changed: bool
    sha256: str


class Live(_Strict):
    """The process answers."""

    alive: bool


class Ready(_Strict):
    """Whether to send requests here."""

    ready: bool
    model: str
    reload_error: str | None
    log_error: str | None
