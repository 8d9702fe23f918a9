# SPDX-License-Identifier: BSD-3-Clause
"""Whether what was read from a file is a model that can decide.

Convention: a file can be well formed and hold nonsense, such as a threshold that is no number or parts that do not fit each other. It
is refused when it is read, with a sentence, and not when it is used. Rows that are not numbers cannot be made up, and are not tried.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from poscod._validation import check_number
from poscod.decision import Decisions
from poscod.exceptions import PoscodError
from poscod.model._errors import ModelFileError
from poscod.model._prepare import Preparation
from poscod.model._schema import Schema
from poscod.model._scorer import Scorer
from poscod.problem import Problem, ScodProblem
from poscod.risk import GivenAnswers
from poscod.rule import Rule
from poscod.selector import Calibration

_PARTS: dict[str, type] = {"rule_": Rule, "scorer_": Scorer, "calibration_": Calibration, "schema_": Schema}


def check_state(model: Any) -> None:
    """Refuse a fitted model with parts of other kinds, numbers that cannot be, or that cannot decide on a row."""
    if not hasattr(model, "decide") or not any(hasattr(model, name) for name in _PARTS):
        return
    for name, kind in _PARTS.items():
        if not isinstance(getattr(model, name, None), kind):
            raise ModelFileError(f"holds a model without a {kind.__name__} in {name}: it is damaged.")
    rule, calibration = model.rule_, model.calibration_
    try:
        if not isinstance(rule.problem, Problem):
            raise ModelFileError("holds a rule without a problem: it is damaged.")
        for name, value in (("threshold", rule.threshold), ("slope", rule.slope)):
            check_number(value, name, -np.inf, np.inf)
        if not np.isnan(calibration.ood_prior):  # some ratios do not know it
            check_number(calibration.ood_prior, "ood_prior", 0.0, 1.0)
        if np.ndim(model.reject_label) or not isinstance(model.schema_.given, GivenAnswers | None):
            raise ModelFileError("holds a reject label or an answer calibration of another kind: it is damaged.")
        ScodProblem(model.alpha, model.tpr_min, model.loss)  # for which a refit asks
        _check_calibration(calibration)
    except ModelFileError:
        raise
    except (PoscodError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(f"holds a model that cannot be ({str(error)[:300]}): it is damaged.") from None
    reason = try_row(model)
    if reason:
        raise ModelFileError(f"loads, but cannot decide on a row of numbers ({reason}).")


def _check_calibration(rows: Calibration) -> None:
    """Compare the parts of the calibration rows with each other."""
    labeled, traffic, k = len(rows.log_ratio), len(rows.traffic_log_ratio), len(rows.classes)
    shapes = {
        "logits": (labeled, k),
        "log_ratio": (labeled,),
        "codes": (labeled,),
        "traffic_logits": (traffic, k),
        "traffic_log_ratio": (traffic,),
    }
    if rows.traffic_known is not None:
        shapes["traffic_known"] = (traffic,)
    for name, shape in shapes.items():
        found = np.asarray(getattr(rows, name))
        if found.shape != shape or found.dtype.kind not in "fiu":
            raise ModelFileError(
                f"holds calibration rows whose {name} are not numbers of shape {shape}: it is damaged."
            )
        if np.isnan(found).any():
            raise ModelFileError(f"holds calibration rows with NaN in {name}: it is damaged.")
    if labeled and not (np.min(rows.codes) >= 0 and np.max(rows.codes) < k):
        raise ModelFileError("holds calibration rows of classes that it does not have: it is damaged.")


def try_row(model: Any) -> str:
    """Decide on a row of zeros and, where that fails, on one of ones; return why neither could be decided on, or an empty text."""
    schema, reason = model.schema_, ""
    if schema.kind in ("any", "frame") and not schema.made:
        return ""
    for value in (0.0, 1.0):  # some honest models take logarithms
        row: Any = np.full((1, len(schema.made) or schema.n_features), value) if schema.n_features else None
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if schema.kind == "network":
                    row = schema.activations(row, np.full((1, schema.n_logits), 1.0 / schema.n_logits))
                decided = _decided_as_prepared(model, row) if schema.made else model.decide(row)
                if not np.isnan([decided.risk[0], decided.log_ratio[0], decided.score[0]]).any():
                    return ""
                reason = "its risk or its ratio is NaN"
        except Exception as error:  # a forged part may raise anything
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return reason


def _decided_as_prepared(model: Any, row: Any) -> Decisions:
    """Decide on a row of numbers that a preparation could have made of one of a table, after a look at that."""
    schema, preparation = model.schema_, model.scorer_.preparation
    made = isinstance(preparation, Preparation) and (preparation.made, preparation.origin) == (
        schema.made,
        schema.origin,
    )
    if not made or tuple(part.name for part in preparation.parts) != schema.features:
        raise ModelFileError("its columns are not those that it prepares")
    return model.rule_.decide(model.scorer_.scored(row, model.rule_.problem.loss))
