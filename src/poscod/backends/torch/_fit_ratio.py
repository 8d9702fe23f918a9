# SPDX-License-Identifier: BSD-3-Clause
"""The paper's experiment in one call: a network becomes the likelihood ratio.

Convention: rows given as ID must be rows the network was **not** trained on; pi_U is the share of unlabeled rows, counted; the bias of the head
is trained, and a frozen network is in evaluation mode (errata of the released code).

References
----------
.. [1] V. Franc, J. Paplham, D. Prusa, "SCOD: From Heuristics to Theory", ECCV 2024, appendix.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from poscod.activations import Activations
from poscod.backends.torch._batches import evaluating, unwrap
from poscod.backends.torch._exported import with_head
from poscod.backends.torch._head import INSIDE, Head, closed_form
from poscod.backends.torch._loss import CorrectedSigmoidLoss
from poscod.backends.torch._network_ratio import NetworkRatio
from poscod.backends.torch._sides import Sides, split_sides
from poscod.backends.torch._training import Settings, Training
from poscod.exceptions import InvalidInputError
from poscod.ratio import FixedLinear, LinearRatio, fit_scaler


def fit_ratio(
    model: Any,
    id_data: Any,
    unlabeled_data: Any,
    *,
    train: str = "head",
    layer: str | None = None,
    validation: Any = 0.2,
    augment: Callable[[Any], Any] | None = None,
    ood_prior: float | None = None,
    start: bool = True,
    dropout: float = 0.2,
    epochs: int = 200,
    batch_size: int = 256,
    learning_rate: float = 0.003,
    backbone_learning_rate: float | None = None,
    decay_every: int = 50,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    device: str | torch.device | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> NetworkRatio:
    """Train a network, or its last layer, as the likelihood ratio.

    Parameters
    ----------
    model : Module or None
        The classifier; its last layer is replaced by one with a single output. It is never changed: ``train="all"`` works on a copy.
        None with `Activations`: the features are given.
    id_data, unlabeled_data : data set, Tensor, ndarray or Activations
        ID rows the classifier was not trained on, and the mixture. A data set has ``len()`` and ``[i]``, an input or a pair whose first
        part is one. Activations are taken as features.
    train : {"head", "all"}, default="head"
        What is trained.
    layer : str, default=None
        Name of the layer that makes the logits; None finds it.
    validation : float in (0, 1) or pair (ID rows, unlabeled rows), default=0.2
        Rows that choose the epoch: a share of both sides, or rows of their own.
    augment : callable, default=None
        Changes a batch of inputs at random before the network sees it, as kornia's augmentations do; draws from torch's generator, which
        is seeded for every batch. None leaves inputs alone, and lets a frozen network run only once.
    ood_prior : float in (0, 1], default=None
        Known share of OOD rows in the mixture; None learns it.
    start : bool, default=True
        Whether to start from the closed-form linear solution, ``CorrectedSigmoid(recipe="paper")`` on the network's features; False starts
        from g = 1.
    dropout : float in [0, 1), default=0.2
        Share of features that are dropped in each training step.
    epochs : int, default=200
        Passes over the rows.
    batch_size : int, default=256
        Rows per step, of both kinds together.
    learning_rate : float, default=0.003
        Of Adam (AMSGrad).
    backbone_learning_rate : float, default=None
        Of the network's own weights; None is the same.
    decay_every : int, default=50
        Epochs after which the rates are divided by ten.
    patience : int, default=None
        Epochs without a better validation loss after which training stops; None never stops early.
    checkpoint : str or path-like, default=None
        File of plain arrays that is replaced after every epoch; if it is there, training continues from it.
    device : str or torch.device, default=None
        Where to train; None is where the network is.
    seed : int, default=0
        Decides the split, the order of rows, dropout and augmentation.
    progress : bool, default=None
        Whether to show a bar; None shows one on a terminal.

    Returns
    -------
    ratio : NetworkRatio
        ``log_ratio(inputs)``, ``ood_prior_``, ``history_``; ``head_`` for `POSCOD`.

    Notes
    -----
    One process, on the CPU or one GPU. For several, train with `CorrectedSigmoidLoss` in a loop of your own and give the last layer to
    `poscod.ratio.FixedLinear`.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    >>> known, other = torch.randn(400, 3), torch.randn(100, 3) + 3.0
    >>> ratio = fit_ratio(network, known, torch.cat([torch.randn(300, 3), other]), epochs=5)
    >>> bool(ratio.log_ratio(other).mean() > ratio.log_ratio(known).mean())
    True
    """
    settings = Settings(
        train, epochs, batch_size, learning_rate, backbone_learning_rate, decay_every, dropout, patience, seed
    )
    _check(model, id_data, unlabeled_data, train, augment)
    network = None if model is None else with_head(unwrap(model))
    if network is not None and train == "all":
        network = copy.deepcopy(network).requires_grad_(True)
    learn, held = split_sides(id_data, unlabeled_data, validation, settings.seed)
    with evaluating(network if network is not None else torch.nn.Identity(), device) as there:
        for source in dict.fromkeys((*learn.sources, *held.sources)):
            source.look(None if isinstance(id_data, Activations) else network, layer, settings.batch_size, progress)
        head, loss = _start(learn, held, ood_prior, start, settings.dropout)
        # A frozen network makes the same features of the same inputs in every epoch: once was enough.
        again = network if train == "all" or augment is not None else None
        with Training(again, layer, head.to(there), loss.to(there), learn, held, settings, augment) as training:
            training.run(checkpoint, progress)
    weight, bias = head.folded()
    ratio = FixedLinear(weight, bias - loss.shift, ood_prior=loss.ood_prior)
    return NetworkRatio(network, layer, ratio, train, training.history, training.best_epoch)


def _check(model: Any, id_data: Any, unlabeled_data: Any, train: str, augment: Any) -> None:
    """Refuse what does not go together."""
    given = isinstance(id_data, Activations), isinstance(unlabeled_data, Activations)
    if given[0] != given[1]:
        raise InvalidInputError("id_data and unlabeled_data must be of one kind: both Activations, or neither.")
    if model is None and not given[0]:
        raise InvalidInputError("model must be a network, unless id_data and unlabeled_data are Activations, got None.")
    if given[0] and (train == "all" or augment is not None):
        raise InvalidInputError(
            "Activations are features already: train='all' and augment need a network and its inputs."
        )
    if augment is not None and not callable(augment):
        raise InvalidInputError(f"augment must be a function from inputs to inputs, got {augment!r}.")


def _start(
    learn: Sides, held: Sides, ood_prior: float | None, start: bool, dropout: float
) -> tuple[Head, CorrectedSigmoidLoss]:
    """Build head and loss, at the closed-form solution where that is asked for, at g = 1 otherwise."""
    features = learn.features()
    if not start:
        scaler = fit_scaler(features)
        loss = CorrectedSigmoidLoss(learn.pi_u, ood_prior, reduction="stratified")
        return Head(LinearRatio(scaler, np.zeros(len(scaler.mean)), 0.0), loss.shift, dropout), loss
    fit = closed_form(features, held.features(), learn.pi_u, ood_prior)
    inside = float(np.clip(fit.ood_prior_, *INSIDE))
    loss = CorrectedSigmoidLoss(learn.pi_u, ood_prior, start=inside, reduction="stratified")
    linear: Any = fit.model_
    return Head(linear, loss.shift, dropout), loss
