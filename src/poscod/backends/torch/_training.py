# SPDX-License-Identifier: BSD-3-Clause
"""The training loop of a ratio: one process, and a state that can be taken up anywhere.

Convention: epoch 0 is the start; the result is the epoch with the smallest validation loss. All randomness comes from (seed, epoch, step), so
a run that was killed continues as if nothing had happened.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from poscod._validation import check_choice, check_count, check_number
from poscod.backends._running import watched
from poscod.backends.torch._batches import call, to_device
from poscod.backends.torch._checkpoint import pack_optimiser, read_arrays, unpack_optimiser, write_arrays
from poscod.backends.torch._head import Head
from poscod.backends.torch._last_layer import LastLayer
from poscod.backends.torch._loss import CorrectedSigmoidLoss
from poscod.backends.torch._sides import Indices, Rows, Sides, epoch_batches, fetch, step_seed
from poscod.exceptions import InvalidInputError

Tensor = torch.Tensor
TRAIN: dict[str, str] = {
    "head": "the linear layer with one output; the network is frozen",
    "all": "every weight of a copy of the network, and the head",
}


@dataclass(frozen=True)
class Settings:
    """Hyper-parameters of a run; see `fit_ratio`."""

    train: str
    epochs: int
    batch_size: int
    learning_rate: float
    backbone_learning_rate: float | None
    decay_every: int
    dropout: float
    patience: int | None
    seed: int

    def __post_init__(self) -> None:
        check_choice(self.train, "train", TRAIN)
        for name, least in (("epochs", 0), ("batch_size", 2), ("decay_every", 1), ("seed", 0)):
            check_count(getattr(self, name), name, least)
        check_number(self.learning_rate, "learning_rate", 0.0, math.inf, closed="neither")
        if self.backbone_learning_rate is not None:
            check_number(self.backbone_learning_rate, "backbone_learning_rate", 0.0, math.inf, closed="neither")
        check_number(self.dropout, "dropout", 0.0, 1.0, closed="left")
        if self.patience is not None:
            check_count(self.patience, "patience")


class Training(ExitStack):
    """Head, prior and, if it is trained, network on their way.

    Parameters
    ----------
    network : Module or None
        Makes the features; None takes those that the rows keep. A frozen one is in evaluation mode, Dropout included; of one that is
        trained, BatchNorm keeps the statistics it came with.
    layer : str or None
        The layer of the network that makes the logits, whose input is the features; None finds it.
    head : Head
    loss : CorrectedSigmoidLoss
        Stratified.
    train, held : Sides
    settings : Settings
    augment : callable or None
        From a batch of inputs to a batch of inputs.
    """

    def __init__(
        self,
        network: torch.nn.Module | None,
        layer: str | None,
        head: Head,
        loss: CorrectedSigmoidLoss,
        train: Sides,
        held: Sides,
        settings: Settings,
        augment: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__()
        self.network, self.head, self.loss, self.augment = network, head, loss, augment
        self.watch = None if network is None else self.enter_context(LastLayer(network, layer))
        self.train, self.held, self.settings = train, held, settings
        self.device = head.bias.device
        self.parts = torch.nn.ModuleDict({"head": head, "loss": loss})
        self.rates = [settings.learning_rate]
        groups = [[*head.parameters(), *loss.parameters()]]
        self.trained = network is not None and settings.train == "all"
        if network is not None and self.trained:
            self.parts["body"] = network
            self.rates.append(settings.backbone_learning_rate or settings.learning_rate)
            groups.append(list(network.parameters()))
        self.optimiser = torch.optim.Adam([{"params": group} for group in groups], settings.learning_rate, amsgrad=True)
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Tensor] = {}
        self.best_epoch, self.best_loss = 0, math.inf

    def run(self, checkpoint: str | os.PathLike[str] | None, progress: bool | None) -> None:
        """Train to the end, from the start or from a checkpoint, and take the best epoch."""
        if checkpoint is not None and Path(checkpoint).exists():
            self._resume(checkpoint)
        else:
            self._note(0, math.nan)
        left = range(len(self.history), self.settings.epochs + 1)
        shown = watched(left, "fit_ratio", progress, extra="torch", unit="epoch")
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            for epoch in shown:
                if epoch - 1 - self.best_epoch >= (self.settings.patience or math.inf):
                    break
                loss = self._epoch(epoch)
                if not math.isfinite(loss):
                    raise InvalidInputError(f"The training loss became {loss} in epoch {epoch}: lower learning_rate.")
                self._note(epoch, loss)
                if shown is not left:
                    shown.set_postfix(validation=self.history[-1]["validation_loss"], prior=self.loss.ood_prior)
                if checkpoint is not None:
                    self._save(checkpoint)
        self.parts.load_state_dict(self.best)
        self._mode(training=False)

    def _mode(self, training: bool) -> None:
        self.head.train(training)
        if self.network is not None:
            self.network.train(training and self.trained)
            for module in self.network.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()

    def _epoch(self, epoch: int) -> float:
        """Pass once over the rows and return the mean loss."""
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * 0.1 ** ((epoch - 1) // self.settings.decay_every)
        self._mode(training=True)
        total = 0.0
        batches = epoch_batches(self.train, self.settings.batch_size, self.settings.seed, epoch)
        for step, rows in enumerate(batches):
            torch.manual_seed(step_seed(self.settings.seed, epoch, step))
            marks = torch.arange(len(rows[0]) + len(rows[1]), device=self.device) >= len(rows[0])
            features = self._features(list(zip(self.train.sources, rows, strict=True)), self.augment)
            value = self.loss(self.head(features), marks)
            self.optimiser.zero_grad()
            value.backward()
            self.optimiser.step()
            total += float(value.detach())
        return total / len(batches)

    def _features(self, picked: list[tuple[Rows, Indices]], augment: Callable[[Any], Any] | None = None) -> Tensor:
        """Return the features of some rows, one source after the other."""
        if self.network is None or self.watch is None:
            return torch.cat([source.features[torch.as_tensor(rows)] for source, rows in picked]).to(self.device)
        batch = fetch(picked)
        if augment is not None:
            if len(batch.args) != 1:
                raise InvalidInputError("augment needs inputs that are one tensor, got arguments by name.")
            batch = batch._replace(args=(augment(batch.args[0]),))
        with torch.set_grad_enabled(self.trained and torch.is_grad_enabled()):
            return self.watch.read(call(self.network, to_device(batch, self.device)))[0]

    def _note(self, epoch: int, loss: float) -> None:
        """Measure the validation loss and keep the best state."""
        self._mode(training=False)
        with torch.no_grad():
            u = [
                self.head(self._features([(source, block)])).double()
                for source, rows in zip(self.held.sources, self.held.rows, strict=True)
                for block in np.split(rows, range(self.settings.batch_size, len(rows), self.settings.batch_size))
            ]
            marks = torch.arange(sum(self.held.sizes), device=self.device) >= self.held.sizes[0]
            value = float(self.loss(torch.cat(u), marks))
        rate = self.optimiser.param_groups[0]["lr"]
        row = {"epoch": epoch, "loss": loss, "validation_loss": value, "ood_prior": self.loss.ood_prior}
        self.history.append({**row, "learning_rate": rate})
        if value < self.best_loss:
            self.best, self.best_epoch, self.best_loss = self._state(), epoch, value

    def _state(self) -> dict[str, Tensor]:
        """Return copies of everything that is trained."""
        return {name: value.detach().clone() for name, value in self.parts.state_dict().items()}

    def _fingerprint(self) -> Any:
        """Return what must be the same in a run that is continued, as JSON knows it; only the number of epochs may change."""
        settings = {key: value for key, value in asdict(self.settings).items() if key not in ("epochs", "patience")}
        known = {"settings": settings, "sizes": [self.train.sizes, self.held.sizes], "features": len(self.head.weight)}
        prior = None if self.loss.prior_logit.requires_grad else self.loss.ood_prior
        return json.loads(json.dumps({**known, "augment": self.augment is not None, "prior": prior}))

    def _save(self, path: str | os.PathLike[str]) -> None:
        groups = {"now": self._state(), "best": self.best, "optimiser": pack_optimiser(self.optimiser)}
        record = {"fingerprint": self._fingerprint(), "history": self.history, "best_epoch": self.best_epoch}
        write_arrays(path, groups, {**record, "best_loss": self.best_loss})

    def _resume(self, path: str | os.PathLike[str]) -> None:
        groups, record = read_arrays(path)
        if record.get("fingerprint") != self._fingerprint():
            raise InvalidInputError(
                f"checkpoint {path} was written by a run with other settings or other data: delete it, or pass another path."
            )
        self.history, self.best = record["history"], groups["best"]
        self.best_epoch, self.best_loss = record["best_epoch"], record["best_loss"]
        self.parts.load_state_dict(groups["now"])
        unpack_optimiser(self.optimiser, groups["optimiser"])
