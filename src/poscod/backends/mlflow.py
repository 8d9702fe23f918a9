# SPDX-License-Identifier: BSD-3-Clause
"""MLflow: a fitted model logged and loaded as ``pyfunc``, without pickle.

Convention: MLflow keeps the model file of `POSCOD.save` as it is and finds this module by name to read it; predictions are a data frame with the
columns of `Decisions` and ``prediction``. Inputs are a data frame or a matrix; a network's features and logits stand side by side.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from poscod._optional import require
from poscod.exceptions import InvalidInputError
from poscod.model import POSCOD

__all__ = ["log_model", "save_model"]

_FILE = "model.poscod"


def save_model(model: POSCOD, path: Any, *, input_example: Any = None, **settings: Any) -> None:
    """Write a fitted model as a folder of MLflow.

    Parameters
    ----------
    model : POSCOD
        Fitted, of types that a reader need not trust by name.
    path : str or path-like
        The folder; it must not exist.
    input_example : data frame or array-like, default=None
        Some rows: the signature is made from them and from the decisions on them.
    **settings : object
        Further arguments of ``mlflow.pyfunc.save_model``.
    """
    pyfunc = _pyfunc()
    with tempfile.TemporaryDirectory() as folder:
        pyfunc.save_model(str(path), **_arguments(model, Path(folder, _FILE), input_example, settings))


def log_model(model: POSCOD, name: str = "model", *, input_example: Any = None, **settings: Any) -> Any:
    """Log a fitted model to the active run of MLflow.

    Parameters
    ----------
    model : POSCOD
        Fitted, of types that a reader need not trust by name.
    name : str, default="model"
        Name of the model.
    input_example : data frame or array-like, default=None
        Some rows: the signature is made from them and from the decisions on them.
    **settings : object
        Further arguments of ``mlflow.pyfunc.log_model``, such as ``registered_model_name``.

    Returns
    -------
    info : mlflow.models.model.ModelInfo
        Where it is: ``mlflow.pyfunc.load_model(info.model_uri)``.
    """
    pyfunc = _pyfunc()
    with tempfile.TemporaryDirectory() as folder:
        return pyfunc.log_model(name=name, **_arguments(model, Path(folder, _FILE), input_example, settings))


class Deciding:
    """What ``mlflow.pyfunc.load_model`` gives: rows in, decisions out.

    Parameters
    ----------
    model : POSCOD
        The model.
    """

    def __init__(self, model: POSCOD) -> None:
        self.model = model

    def predict(self, rows: Any, params: dict[str, Any] | None = None) -> Any:
        """Return the decisions on rows as a data frame.

        Parameters
        ----------
        rows : data frame or array-like of shape (n, d)
            Inputs.
        params : dict, default=None
            Not used.

        Returns
        -------
        decisions : data frame
        """
        decisions = self.model.decide(self._input(rows))
        frame = decisions.to_pandas()
        frame["prediction"] = decisions.predictions(self.model.reject_label)
        return frame

    def _input(self, rows: Any) -> Any:
        schema = self.model.schema_
        if schema.names and hasattr(rows, "columns"):
            return schema.rows({str(name): rows[name].to_numpy() for name in rows.columns}, "the data frame")
        matrix = np.asarray(rows)
        if schema.kind != "network":
            return rows if schema.kind == "any" else matrix
        wide = schema.n_features + schema.n_logits
        if matrix.ndim != 2 or matrix.shape[1] != wide:
            raise InvalidInputError(
                f"rows must have {wide} columns, features and then logits, got shape {matrix.shape}."
            )
        features = matrix[:, : schema.n_features] if schema.n_features else None
        return schema.activations(features, matrix[:, schema.n_features :])


def _load_pyfunc(path: str) -> Deciding:
    """Read the model file; MLflow calls this by name."""
    place = Path(path)
    return Deciding(POSCOD.load(place / _FILE if place.is_dir() else place))


def _pyfunc() -> Any:
    return require("mlflow.pyfunc", extra="mlflow", feature="Logging a model to MLflow")


def _arguments(model: POSCOD, path: Path, example: Any, settings: dict[str, Any]) -> dict[str, Any]:
    if not hasattr(model, "rule_"):
        raise InvalidInputError("model must be fitted, got one that is not: call fit first.")
    types: Sequence[str] = model.save(path)
    if types:
        raise InvalidInputError(
            f"model must consist of types that a reader need not trust by name, got {', '.join(types)}: MLflow could not read it."
        )
    given = {"loader_module": __name__, "data_path": str(path), **settings}
    given.setdefault("pip_requirements", ["poscod", "pandas", "skops"])
    if example is not None:
        models = require("mlflow.models", extra="mlflow", feature="Logging a model to MLflow")
        given = {"signature": models.infer_signature(example, Deciding(model).predict(example)), **given}
        given["input_example"] = example
    return given
