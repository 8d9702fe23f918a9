# SPDX-License-Identifier: BSD-3-Clause
"""A network as likelihood ratio: features of a network and a linear log-ratio on top.

Convention: ``log g = weight^T features(x) + intercept``; the numbers live in ``head_``, a `poscod.ratio.FixedLinear` that needs no torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.backends.torch._batches import unwrap
from poscod.backends.torch._checkpoint import read_arrays, write_arrays
from poscod.backends.torch._extract import extract
from poscod.backends.torch._weights import fill
from poscod.exceptions import InvalidInputError
from poscod.ratio import LOG_LIMIT, FixedLinear

FORMAT = "poscod-network-ratio"


@dataclass(eq=False, repr=False)
class NetworkRatio:
    """The ratio g = p_O / p_I of inputs of a network, made by `fit_ratio`.

    Parameters
    ----------
    network : Module or None
        Makes the features; None where features are given.
    layer : str or None
        The layer whose input is the features; None finds it.
    head_ : FixedLinear
        log g of the features, an estimator of `poscod.ratio` that needs no torch: use it in ``POSCOD(ratio=...)`` with what
        `activations` returns.
    train : {"head", "all"}
        What was trained.
    history_ : list of dict
        Epoch, training loss, validation loss, prior and learning rate; epoch 0 is the start.
    best_epoch_ : int
        The epoch that is used, the one with the smallest validation loss.
    """

    network: torch.nn.Module | None
    layer: str | None
    head_: FixedLinear
    train: str
    history_: list[dict[str, float]]
    best_epoch_: int

    @property
    def ood_prior_(self) -> float:
        """Share of OOD rows among the unlabeled ones, learned or given."""
        return float(self.head_.ood_prior)

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
            Features of this network, and logits.
        """
        if self.network is None:
            raise InvalidInputError("This ratio was fitted on features and has no network: pass Activations.")
        found = extract(self.network, X, layer=self.layer, **options)
        if logits is None:
            if self.train == "all":
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
        u = features.astype(np.float64) @ weight + self.head_.intercept
        return np.clip(u, -LOG_LIMIT, LOG_LIMIT)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ratio to a file of plain arrays (.npz); the network's weights only if they were trained.

        Parameters
        ----------
        path : str or path-like
            File to write.
        """
        groups = {"head": {"weight": torch.as_tensor(self.head_.weight)}}
        if self.train == "all" and self.network is not None:
            groups["network"] = dict(self.network.state_dict())
        head = {"intercept": self.head_.intercept, "ood_prior": self.head_.ood_prior}
        run = {"layer": self.layer, "train": self.train, "history": self.history_, "best_epoch": self.best_epoch_}
        write_arrays(path, groups, {"format": FORMAT, **head, **run})

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: torch.nn.Module | None = None) -> NetworkRatio:
        """Read a ratio that `save` has written.

        Parameters
        ----------
        path : str or path-like
            File to read.
        model : Module, default=None
            A network built like the one that was trained; its weights are set if they were trained. None is enough for features.

        Returns
        -------
        ratio : NetworkRatio
            As it was saved.
        """
        groups, record = read_arrays(path)
        if record.get("format") != FORMAT:
            raise InvalidInputError(f"{path} is not a file of a trained ratio: its format is {record.get('format')!r}.")
        if model is None and "network" in groups:
            raise InvalidInputError(f"{path} holds a trained network: pass model, built like the one that was trained.")
        if model is not None:
            model = fill(unwrap(model).eval(), groups.get("network", model.state_dict()), path)
        head = FixedLinear(groups["head"]["weight"].numpy(), record["intercept"], ood_prior=record["ood_prior"])
        return cls(model, record["layer"], head, record["train"], record["history"], record["best_epoch"])
