# SPDX-License-Identifier: BSD-3-Clause
"""The training loop of a ratio: one loss, whatever the number of processes, and a state that can be taken up anywhere.

Convention: epoch 0 is the start; the result is the epoch with the smallest validation loss. All randomness comes from (seed, epoch, step), so
a run that was killed continues as if nothing had happened.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poscod.backends.torch._augment import Augmentation
from poscod.backends.torch._batches import Batch, join
from poscod.backends.torch._body import Body
from poscod.backends.torch._checkpoint import pack_optimiser, read_arrays, unpack_optimiser, write_arrays
from poscod.backends.torch._head import Head
from poscod.backends.torch._loss import CorrectedSigmoidLoss
from poscod.backends.torch._processes import Processes
from poscod.backends.torch._rows import Indices, Sides, epoch_batches, step_generator
from poscod.exceptions import InvalidInputError

Tensor = torch.Tensor
State = dict[str, dict[str, Tensor]]


@dataclass(frozen=True)
class Settings:
    """Hyper-parameters of a run; see `fit_ratio`."""

    train: str
    epochs: int
    batch_size: int
    learning_rate: float
    backbone_learning_rate: float
    decay_every: int
    dropout: float
    weight_decay: float
    patience: int | None
    seed: int


class Training:
    """Head, prior and, if it is trained, body on their way.

    Parameters
    ----------
    body : Body
    head : Head
    loss : CorrectedSigmoidLoss
        With one loss per row.
    train, held : Sides
    settings : Settings
    team : Processes
    augment : Augmentation or None
    """

    def __init__(
        self,
        body: Body,
        head: Head,
        loss: CorrectedSigmoidLoss,
        train: Sides,
        held: Sides,
        settings: Settings,
        team: Processes,
        augment: Augmentation | None,
    ) -> None:
        self.body, self.head, self.loss = body, head.to(body.device), loss.to(body.device)
        self.train, self.held, self.settings, self.team, self.augment = train, held, settings, team, augment
        self.own = [*head.parameters(), *loss.parameters()]
        self.trained = [*self.own, *body.parameters()]
        self.rates = [settings.learning_rate]
        groups: list[dict[str, Any]] = [{"params": self.own, "lr": settings.learning_rate}]
        if body.parameters():
            self.rates.append(settings.backbone_learning_rate)
            groups.append({"params": body.parameters(), "lr": settings.backbone_learning_rate})
        self.optimiser = torch.optim.Adam(groups, amsgrad=True, weight_decay=settings.weight_decay)
        self.history: list[dict[str, float]] = []
        self.best: State = {}
        self.best_epoch, self.best_loss = 0, math.inf

    def run(self, checkpoint: str | os.PathLike[str] | None, progress: Any) -> None:
        """Train to the end, from the start or from a checkpoint, and take the best epoch."""
        if checkpoint is not None and Path(checkpoint).exists():
            self._resume(checkpoint)
        else:
            self.team.agree([value.data for value in self.trained])
            self._note(0, math.nan)
        while len(self.history) <= self.settings.epochs and not self._patience_is_over():
            epoch = len(self.history)
            loss = self._epoch(epoch)
            if not math.isfinite(loss):
                raise InvalidInputError(f"The training loss became {loss} in epoch {epoch}: lower learning_rate.")
            self._note(epoch, loss)
            progress(self.history[-1])
            if checkpoint is not None:
                if self.team.rank == 0:
                    self._save(checkpoint)
                self.team.wait()
        self._restore(self.best)
        self.body.mode(training=False)

    def outputs(self, sides: Sides) -> tuple[Tensor, Tensor]:
        """Return u of both sides, without dropout and augmentation."""
        self.body.mode(training=False)
        found, step = [], self.settings.batch_size
        with torch.no_grad():
            for source, rows in zip(sides.sources, sides.rows, strict=True):
                mine = self.team.mine(len(rows))
                parts = [
                    self.head(self.body(source.fetch(rows[part.numpy()]))).double().cpu()
                    for part in torch.tensor_split(mine, list(range(step, len(mine), step)))
                    if len(part)
                ]
                values = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
                found.append(self.team.gather(values, mine, len(rows)))
        return found[0], found[1]

    def state(self) -> State:
        """Return copies of everything that is trained."""
        parts: dict[str, torch.nn.Module] = {"head": self.head, "loss": self.loss}
        if self.body.trained and self.body.model is not None:
            parts["body"] = self.body.model
        return {
            group: {name: value.detach().clone() for name, value in module.state_dict().items()}
            for group, module in parts.items()
        }

    def _patience_is_over(self) -> bool:
        patience = self.settings.patience
        return patience is not None and len(self.history) - 1 - self.best_epoch >= patience

    def _epoch(self, epoch: int) -> float:
        """Pass once over the rows and return the mean loss."""
        factor = 0.1 ** ((epoch - 1) // self.settings.decay_every)
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.body.mode(training=True)
        total = torch.zeros((), dtype=torch.float64)
        batches = epoch_batches(self.train, self.settings.batch_size, self.settings.seed, epoch)
        for step, rows in enumerate(batches):
            generator = step_generator(self.settings.seed, epoch, step)
            with torch.random.fork_rng(devices=[]):
                # What dropout inside the network draws; the head's own comes with the rows.
                torch.manual_seed(generator.initial_seed() % 2**31 + self.team.rank)
                self.optimiser.zero_grad()
                value = self._loss(rows, generator)
                if value.requires_grad:
                    torch.autograd.backward(value)
            self.team.add_gradients(self.trained)
            self.optimiser.step()
            total += value.detach().double().cpu()
        return float(self.team.total(total)) / len(batches)

    def _loss(self, rows: tuple[Indices, Indices], generator: torch.Generator) -> Tensor:
        """Return this process's part of the loss of one batch."""
        sizes = len(rows[0]), len(rows[1])
        n = sum(sizes)
        # Numbers are drawn for the whole batch, whoever works on which part of it.
        numbers = None if self.augment is None else self.augment.draw(n, generator)
        keep = None
        if self.settings.dropout > 0.0:
            share = 1.0 - self.settings.dropout
            keep = (torch.rand(n, len(self.head.weight), generator=generator) < share) / share
        places = self.team.mine(sizes[0]), self.team.mine(sizes[1], sizes[0])
        place = torch.cat(places)
        if not len(place):
            return torch.zeros((), device=self.body.device)
        batch = join(
            [
                source.fetch(mine[where.numpy() - first])
                for source, mine, where, first in zip(self.train.sources, rows, places, (0, sizes[0]), strict=True)
                if len(where)
            ]
        )
        if self.augment is not None and numbers is not None:
            batch = Batch((self.augment.apply(batch.args[0], numbers[place]), *batch.args[1:]), batch.kwargs, None)
        mask = None if keep is None else keep[place].to(self.body.device)
        u = self.head(self.body(batch), mask)
        marks = (place >= sizes[0]).to(u.device)
        pi_u = self.loss.pi_u
        weight = torch.where(marks, pi_u / sizes[1], (1.0 - pi_u) / sizes[0])
        return (weight * self.loss(u, marks)).sum()

    def _note(self, epoch: int, loss: float) -> None:
        """Measure the validation loss and keep the best state."""
        u = self.outputs(self.held)
        marks = torch.cat([torch.zeros(len(u[0])), torch.ones(len(u[1]))])
        with torch.no_grad():
            rows = self.loss(torch.cat(u).to(self.body.device), marks.to(self.body.device)).cpu()
        pi_u = self.loss.pi_u
        value = float((1.0 - pi_u) * rows[: len(u[0])].mean() + pi_u * rows[len(u[0]) :].mean())
        self.history.append(
            {
                "epoch": epoch,
                "loss": loss,
                "validation_loss": value,
                "ood_prior": self.loss.ood_prior,
                "learning_rate": self.optimiser.param_groups[0]["lr"],
            }
        )
        if value < self.best_loss:
            self.best, self.best_epoch, self.best_loss = self.state(), epoch, value

    def _fingerprint(self) -> dict[str, Any]:
        """Return what must be the same in a run that is continued; only the number of epochs may change."""
        settings = {key: value for key, value in asdict(self.settings).items() if key not in ("epochs", "patience")}
        augment = None if self.augment is None else asdict(self.augment)
        sizes = [list(self.train.sizes), list(self.held.sizes)]
        known = {"settings": settings, "augment": augment, "sizes": sizes, "features": len(self.head.weight)}
        return {**known, "prior": None if self.loss.prior_logit.requires_grad else self.loss.ood_prior}

    def _save(self, path: str | os.PathLike[str]) -> None:
        groups = {f"now-{name}": values for name, values in self.state().items()}
        groups |= {f"best-{name}": values for name, values in self.best.items()}
        groups["optimiser"] = pack_optimiser(self.optimiser)
        history = [{key: None if math.isnan(value) else value for key, value in row.items()} for row in self.history]
        record = {"fingerprint": self._fingerprint(), "history": history, "best_epoch": self.best_epoch}
        write_arrays(path, groups, {**record, "best_loss": self.best_loss})

    def _resume(self, path: str | os.PathLike[str]) -> None:
        groups, record = read_arrays(path)
        if record.get("fingerprint") != _plain(self._fingerprint()):
            raise InvalidInputError(
                f"checkpoint {path} was written by a run with other settings or other data: delete it, or pass another path."
            )
        self.history = [
            {key: math.nan if value is None else value for key, value in row.items()} for row in record["history"]
        ]
        self.best_epoch, self.best_loss = record["best_epoch"], record["best_loss"]
        states = {when: _pick(groups, when) for when in ("now-", "best-")}
        self.best = states["best-"]
        self._restore(states["now-"])
        unpack_optimiser(self.optimiser, groups["optimiser"])

    def _restore(self, state: State) -> None:
        self.head.load_state_dict(state["head"])
        self.loss.load_state_dict(state["loss"])
        if "body" in state and self.body.model is not None:
            self.body.model.load_state_dict(state["body"])


def _pick(groups: State, prefix: str) -> State:
    return {name.removeprefix(prefix): values for name, values in groups.items() if name.startswith(prefix)}


def _plain(value: Any) -> Any:
    """Return what a value is after a way through JSON: tuples are lists there."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def features_of(body: Body, sides: Sides, batch_size: int, team: Processes) -> tuple[np.ndarray[Any, Any], ...]:
    """Return the features of both sides, each process doing its part."""
    body.mode(training=False)
    return tuple(np.concatenate(list(_feature_blocks(body, sides, side, batch_size, team))) for side in (0, 1))


def _feature_blocks(body: Body, sides: Sides, side: int, batch_size: int, team: Processes) -> Iterator[Any]:
    source, rows = sides.sources[side], sides.rows[side]
    with torch.no_grad():
        for start in range(0, len(rows), batch_size * team.size):
            block = rows[start : start + batch_size * team.size]
            mine = team.mine(len(block))
            # With fewer rows than processes some have none of their own: they run the first, and add nothing.
            found = body(source.fetch(block[mine.numpy()] if len(mine) else block[:1])).float().cpu()
            out = found.new_zeros(len(block), found.shape[1])
            out[mine] = found[: len(mine)]
            values = team.total(out).numpy()
            if not np.isfinite(values).all():
                row = int(np.argwhere(~np.isfinite(values))[0][0])
                raise InvalidInputError(
                    f"{source.name} must give finite features, got NaN or infinity at row {int(block[row])}: look at this input."
                )
            yield values
