# SPDX-License-Identifier: BSD-3-Clause
"""A network as likelihood ratio: features of a network and a linear log-ratio on top.

Convention: ``log g = weight^T features(x) + intercept``; the numbers live in ``head_``, a `poscod.ratio.FixedLinear` that needs no torch.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poscod._validation import Floats, check_number
from poscod.activations import Activations
from poscod.backends.torch._batches import unwrap
from poscod.backends.torch._checkpoint import read_arrays, write_arrays
from poscod.backends.torch._extract import extract
from poscod.exceptions import InvalidInputError
from poscod.ratio import PRIORS, FixedLinear
from poscod.ratio._gate import prior_interval
from poscod.ratio._prior import Acceptance, acceptance
from poscod.ratio._ratio import LOG_LIMIT

FORMAT = "poscod-network-ratio"


class NetworkRatio:
    """The ratio g = p_O / p_I of inputs of a network, made by `fit_ratio`.

    Parameters
    ----------
    network : Module or None
        Makes the features; None where features are given.
    layer : str or None
        The layer whose input is the features.
    head : FixedLinear
        log g of the features.
    record : dict
        How it was trained: "train", "pi_u", "best_epoch", "history".
    held : pair of ndarray
        log g of the validation rows, ID and unlabelled.

    Attributes
    ----------
    head_ : FixedLinear
        The last step alone, an estimator of `poscod.ratio`: use it in ``POSCOD(ratio=...)`` with the `Activations` of `activations`.
    ood_prior_ : float
        Share of OOD rows among the unlabelled ones, learned or given.
    history_ : list of dict
        Epoch, training loss, validation loss, prior and learning rate; epoch 0 is the start.
    best_epoch_ : int
        The epoch that is used, the one with the smallest validation loss.
    """

    def __init__(
        self,
        network: torch.nn.Module | None,
        layer: str | None,
        head: FixedLinear,
        record: dict[str, Any],
        held: tuple[Floats, Floats],
    ) -> None:
        self.network, self.layer = network, layer
        self.head_ = head
        self.record = record
        self.held = held

    @property
    def ood_prior_(self) -> float:
        """Share of OOD rows among the unlabelled ones."""
        return float(self.head_.ood_prior)

    @property
    def history_(self) -> list[dict[str, float]]:
        """What happened in each epoch."""
        rows: list[dict[str, float]] = self.record["history"]
        return rows

    @property
    def best_epoch_(self) -> int:
        """The epoch that is used."""
        return int(self.record["best_epoch"])

    @property
    def validation_loss_(self) -> float:
        """Negative log-likelihood of the validation rows in that epoch."""
        return float(self.history_[self.best_epoch_]["validation_loss"])

    def __repr__(self) -> str:
        network = "features" if self.network is None else type(self.network).__name__
        return f"NetworkRatio({network}, ood_prior={self.ood_prior_:.3f}, best epoch {self.best_epoch_} of {len(self.history_) - 1})"

    def activations(self, X: Any, *, logits: Any = None, **options: Any) -> Activations:
        """Run the network and return its features, with logits for `POSCOD`.

        Parameters
        ----------
        X : loader, data set, Tensor or ndarray
            Inputs of the network.
        logits : array-like of shape (n, K), default=None
            Logits of the classifier on the same inputs. None takes this network's own, which are the classifier's if only the head was
            trained, and are refused otherwise: a network whose weights have moved no longer is the classifier.
        **options : object
            Of `extract`: device, amp, batch_size, progress.

        Returns
        -------
        activations : Activations
        """
        if self.network is None:
            raise InvalidInputError("This ratio was fitted on features and has no network: pass Activations.")
        found = extract(self.network, X, layer=self.layer, **options)
        if logits is None:
            if self.record["train"] == "all":
                raise InvalidInputError(
                    "logits must be given: the weights of this network have moved, so that its own logits are not the classifier's."
                )
            return found
        return Activations(found.features, logits, found.labels)

    def log_ratio(self, X: Any, **options: Any) -> Floats:
        """Return log g.

        Parameters
        ----------
        X : Activations, or inputs of the network
            Features of *this* network (see `activations`), or a loader, data set, Tensor or ndarray of inputs. A ratio fitted on
            features takes an array of them, too.
        **options : object
            Of `extract`, for inputs.

        Returns
        -------
        log_ratio : ndarray of shape (n,), float64
            Higher = more like OOD.
        """
        if isinstance(X, Activations):
            features: NDArray[Any] = X.need("features", caller="NetworkRatio")
        elif self.network is None:
            features = np.asarray(X)
        else:
            features = extract(self.network, X, layer=self.layer, **options).features
        weight = np.asarray(self.head_.weight)
        if features.ndim != 2 or features.shape[1] != len(weight):
            raise InvalidInputError(f"X must have {len(weight)} features, got shape {features.shape}.")
        # The dtype of the features, as in the core: the same row gives the same number on both ways.
        u = (features @ weight.astype(features.dtype)).astype(np.float64) + self.head_.intercept
        return np.clip(u, -LOG_LIMIT, LOG_LIMIT)

    def ratio(self, X: Any, **options: Any) -> Floats:
        """Return g, which may overflow to infinity where `log_ratio` does not.

        Parameters
        ----------
        X : Activations, or inputs of the network
        **options : object
            Of `extract`, for inputs.

        Returns
        -------
        ratio : ndarray of shape (n,), float64
        """
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self.log_ratio(X, **options)))

    def ood_prior_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return an interval for the share of OOD rows, from the validation rows.

        Parameters
        ----------
        level : float in (0, 1), default=0.95

        Returns
        -------
        low, high : float
        """
        level = check_number(level, "level", 0.0, 1.0, closed="neither")
        curve: Acceptance = acceptance(*self.held)
        return prior_interval(curve, PRIORS["mean"], self.ood_prior_, level)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ratio to a file of plain arrays (.npz); the network's weights only if they were trained.

        Parameters
        ----------
        path : str or path-like
        """
        groups = {
            "head": {"weight": torch.as_tensor(self.head_.weight)},
            "held": {str(side): torch.as_tensor(values) for side, values in enumerate(self.held)},
        }
        if self.record["train"] == "all" and self.network is not None:
            groups["network"] = dict(self.network.state_dict())
        plain = {"intercept": self.head_.intercept, "ood_prior": self.head_.ood_prior}
        history = [{key: value if value == value else None for key, value in row.items()} for row in self.history_]
        record = {**self.record, **plain, "history": history, "layer": self.layer, "format": FORMAT}
        write_arrays(path, groups, record)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: torch.nn.Module | None = None) -> NetworkRatio:
        """Read a ratio that `save` has written.

        Parameters
        ----------
        path : str or path-like
        model : Module, default=None
            A network built like the one that was trained; its weights are set if they were trained. None is enough for features.

        Returns
        -------
        ratio : NetworkRatio
        """
        groups, record = read_arrays(path)
        if record.get("format") != FORMAT:
            raise InvalidInputError(f"{path} is no file of a trained ratio: its format is {record.get('format')!r}.")
        if model is not None:
            model = unwrap(model)
            if "network" in groups:
                try:
                    model.load_state_dict(groups["network"])
                except RuntimeError as error:
                    raise InvalidInputError(
                        f"model does not fit the weights in {path} ({str(error).splitlines()[-1].strip()})."
                    ) from None
            model.eval()
        elif "network" in groups:
            raise InvalidInputError(f"{path} holds a trained network: pass model, built like the one that was trained.")
        head = FixedLinear(groups["head"]["weight"].numpy(), record.pop("intercept"), ood_prior=record.pop("ood_prior"))
        layer = record.pop("layer")
        record.pop("format")
        record["history"] = [
            {key: float("nan") if value is None else value for key, value in row.items()} for row in record["history"]
        ]
        return cls(model, layer, head, record, (groups["held"]["0"].numpy(), groups["held"]["1"].numpy()))
