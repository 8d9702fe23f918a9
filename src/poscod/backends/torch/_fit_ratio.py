# SPDX-License-Identifier: BSD-3-Clause
"""The paper's experiment in one call: a network becomes the likelihood ratio.

Convention: rows given as ID must be rows the network was **not** trained on; pi_U is the share of unlabelled rows, counted; the bias of the head
is trained, and a frozen network is in evaluation mode (errata of the released code).

References
----------
.. [1] V. Franc, J. Paplham, D. Prusa, "SCOD: From Heuristics to Theory", ECCV 2024, appendix.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poscod._validation import check_choice, check_count, check_number
from poscod.activations import Activations
from poscod.backends._progress import epochs_shown
from poscod.backends.torch._augment import as_augmentation
from poscod.backends.torch._batches import evaluating, unwrap
from poscod.backends.torch._body import Body
from poscod.backends.torch._exported import with_head
from poscod.backends.torch._head import new_head, warm_start
from poscod.backends.torch._loss import CorrectedSigmoidLoss
from poscod.backends.torch._network_ratio import NetworkRatio
from poscod.backends.torch._processes import Processes, processes
from poscod.backends.torch._rows import RowSource, Sides, split_sides
from poscod.backends.torch._training import Settings, Training, features_of
from poscod.exceptions import InvalidInputError
from poscod.ratio import FixedLinear

TRAIN: dict[str, str] = {
    "head": "the linear layer with one output; the network is frozen",
    "all": "every weight of a copy of the network, and the head",
}
BATCH_NORM: dict[str, bool] = {"fixed": True, "batch": False}


def fit_ratio(
    model: Any,
    id_data: Any,
    unlabeled_data: Any,
    *,
    train: str = "head",
    layer: str | torch.nn.Module | None = None,
    validation: Any = 0.2,
    augment: Any = None,
    ood_prior: float | None = None,
    start: bool = True,
    dropout: float = 0.2,
    epochs: int = 200,
    batch_size: int = 256,
    learning_rate: float = 0.003,
    backbone_learning_rate: float | None = None,
    decay_every: int = 50,
    weight_decay: float = 0.0,
    patience: int | None = None,
    batch_norm: str = "fixed",
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
    layer : str or Module, default=None
        The layer that makes the logits; None finds it.
    validation : float in (0, 1) or pair (ID rows, unlabelled rows), default=0.2
        Rows that choose the epoch: a share of both sides, or rows of their own.
    augment : {"cifar", "imagenet"} or Augmentation, default=None
        The paper's augmentations of images; None leaves inputs alone, and lets a frozen network run only once.
    ood_prior : float in (0, 1], default=None
        Known share of OOD rows in the mixture; None learns it.
    start : bool, default=True
        Whether to start from the closed-form linear solution, ``CorrectedSigmoid(recipe="paper")`` on the network's features; False starts
        from g = 1.
    dropout : float in [0, 1), default=0.2
        Share of features that are dropped in each training step.
    epochs : int, default=200
    batch_size : int, default=256
        Rows per step, of both kinds and of all processes together.
    learning_rate : float, default=0.003
        Of Adam (AMSGrad).
    backbone_learning_rate : float, default=None
        Of the network's own weights; None is the same.
    decay_every : int, default=50
        Epochs after which the rates are divided by ten.
    weight_decay : float, default=0.0
    patience : int, default=None
        Epochs without a better validation loss after which training stops; None never stops early.
    batch_norm : {"fixed", "batch"}, default="fixed"
        Whether BatchNorm of a trained network keeps its statistics, or takes those of each batch (one process only).
    checkpoint : str or path-like, default=None
        File (.npz) that is replaced after every epoch; if it is there, training continues from it.
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
    Started by torchrun, every process calls this function with the same arguments; each batch is cut among them, and the loss curve is that
    of one process up to rounding (dropout *inside* a network that is trained draws other numbers). All get the same result.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    >>> known, other = torch.randn(400, 3), torch.randn(100, 3) + 3.0
    >>> ratio = fit_ratio(network, known, torch.cat([torch.randn(300, 3), other]), epochs=5)
    >>> bool(ratio.log_ratio(other).mean() > ratio.log_ratio(known).mean())
    True
    """
    settings = _settings(
        train,
        epochs,
        batch_size,
        learning_rate,
        backbone_learning_rate,
        decay_every,
        dropout,
        weight_decay,
        patience,
        seed,
    )
    fixed = check_choice(batch_norm, "batch_norm", BATCH_NORM)
    augmentation = as_augmentation(augment)
    given = isinstance(id_data, Activations), isinstance(unlabeled_data, Activations)
    if given[0] != given[1]:
        raise InvalidInputError("id_data and unlabeled_data must be of one kind: both Activations, or neither.")
    if model is None and not given[0]:
        raise InvalidInputError("model must be a network, unless id_data and unlabeled_data are Activations, got None.")
    if given[0] and (train == "all" or augmentation is not None):
        raise InvalidInputError(
            "Activations are features already: train='all' and augment need a network and its inputs."
        )
    if checkpoint is not None and Path(checkpoint).suffix != ".npz":
        raise InvalidInputError(f"checkpoint must end in .npz, got '{checkpoint}'.")
    network = None if model is None else with_head(unwrap(model))
    if network is not None and train == "all":
        network = copy.deepcopy(network).requires_grad_(True)
    kept = network if network is not None else torch.nn.Identity()
    train_sides, held_sides = split_sides(id_data, unlabeled_data, validation, settings.seed)
    with evaluating(kept, device) as there, processes(there) as team:
        if team.size > 1 and not fixed:
            raise InvalidInputError(
                "batch_norm='batch' takes statistics of a whole batch and so one process: use 'fixed'."
            )
        body = Body(None if given[0] else network, layer, there, trained=train == "all", fixed_norm=fixed)
        try:
            seen = body
            if body.model is not None and train == "head" and augmentation is None:
                # A frozen network makes the same features in every epoch: once is enough.
                train_sides, held_sides = _as_features(body, (train_sides, held_sides), settings.batch_size, team)
                seen = Body(None, None, there)
            training = _prepare(seen, train_sides, held_sides, settings, team, augmentation, ood_prior, start)
            with epochs_shown(settings.epochs, progress if team.rank == 0 else False) as show:
                training.run(checkpoint, show)
            return _finish(training, network, body.layer, settings)
        finally:
            body.close()


def _settings(train: Any, epochs: Any, batch_size: Any, rate: Any, backbone: Any, decay: Any, dropout: Any, weight: Any, patience: Any, seed: Any) -> Settings:  # fmt: skip
    check_choice(train, "train", TRAIN)
    inf = float("inf")
    rate = check_number(rate, "learning_rate", 0.0, inf, closed="neither")
    return Settings(
        train,
        check_count(epochs, "epochs", 0),
        check_count(batch_size, "batch_size", 2),
        rate,
        rate if backbone is None else check_number(backbone, "backbone_learning_rate", 0.0, inf, closed="neither"),
        check_count(decay, "decay_every"),
        check_number(dropout, "dropout", 0.0, 1.0, closed="left"),
        check_number(weight, "weight_decay", 0.0, inf, closed="left"),
        None if patience is None else check_count(patience, "patience"),
        check_count(seed, "seed", 0),
    )


def _as_features(body: Body, parts: tuple[Sides, Sides], batch_size: int, team: Processes) -> tuple[Sides, Sides]:
    """Replace inputs by their features."""
    made = []
    for sides in parts:
        features = features_of(body, sides, batch_size, team)
        sources = tuple(
            RowSource(torch.as_tensor(values), source.name)
            for values, source in zip(features, sides.sources, strict=True)
        )
        made.append(Sides(sources, tuple(np.arange(len(source)) for source in sources)))  # type: ignore[arg-type]
    return made[0], made[1]


def _prepare(
    body: Body,
    train: Sides,
    held: Sides,
    settings: Settings,
    team: Processes,
    augment: Any,
    ood_prior: float | None,
    start: bool,
) -> Training:
    """Build head and loss, at the closed-form solution where that is asked for."""
    loss = CorrectedSigmoidLoss(train.pi_u, ood_prior, reduction="none")
    features: Any = features_of(body, train, settings.batch_size, team)
    head = new_head(features, loss)
    if start:
        beside: Any = features_of(body, held, settings.batch_size, team)
        warm_start(features, beside, head, loss, ood_prior)
    return Training(body, head, loss, train, held, settings, team, augment)


def _finish(training: Training, network: Any, layer: str | None, settings: Settings) -> NetworkRatio:
    weight, bias = training.head.folded()
    loss = training.loss
    shift = loss.log_odds_u + float(np.log(loss.ood_prior))
    held = tuple(np.asarray(values.numpy()) - shift for values in training.outputs(training.held))
    record = {
        "train": settings.train,
        "pi_u": loss.pi_u,
        "best_epoch": training.best_epoch,
        "history": training.history,
    }
    head = FixedLinear(weight, bias - shift, ood_prior=loss.ood_prior)
    return NetworkRatio(network, layer, head, record, (held[0], held[1]))
