# SPDX-License-Identifier: BSD-3-Clause
"""The one-output head of a ratio, and where it starts.

Convention: features are standardised by numbers fixed at the start, then a dropout mask that comes from outside, then a linear layer with a
bias that is trained; ``u`` is the log-odds of `poscod.ratio`.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poscod.backends.torch._loss import CorrectedSigmoidLoss
from poscod.exceptions import PoscodWarning
from poscod.ratio import PRIORS, CorrectedSigmoid
from poscod.ratio._design import Scaler, fit_scaler
from poscod.ratio._prior import acceptance

Tensor = torch.Tensor
# Penalties of the closed-form start: with more features than rows, no penalty is no fit.
PENALTIES = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
# Where a learned prior may start: at the ends its slope is too flat to leave them.
INSIDE = (0.001, 0.95)


class Head(torch.nn.Module):
    """Standardisation and a linear layer with one output.

    Parameters
    ----------
    scaler : Scaler
        Of the features at the start.
    bias : float
        Where the bias starts; the weight starts at zero.
    """

    mean: Tensor
    gain: Tensor

    def __init__(self, scaler: Scaler, bias: float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(scaler.mean, dtype=torch.float32))
        # A constant feature has an infinite scale, and so no say.
        self.register_buffer("gain", torch.tensor(1.0 / scaler.scale, dtype=torch.float32))
        self.weight = torch.nn.Parameter(torch.zeros(len(scaler.mean)))
        self.bias = torch.nn.Parameter(torch.tensor(float(bias)))

    def forward(self, features: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return u."""
        z = (features.float() - self.mean) * self.gain
        return (z if keep is None else z * keep) @ self.weight + self.bias

    def start_at(self, ratio: CorrectedSigmoid, log_odds_u: float) -> None:
        """Take the coefficients of a fitted linear ratio."""
        model: Any = ratio.model_
        with torch.no_grad():
            self.mean.copy_(torch.tensor(model.scaler.mean))
            self.gain.copy_(torch.tensor(1.0 / model.scaler.scale))
            self.weight.copy_(torch.tensor(model.theta))
            self.bias.fill_(model.intercept + log_odds_u + float(np.log(ratio.ood_prior_)))

    def folded(self) -> tuple[NDArray[np.float64], float]:
        """Return weight and bias for features as they come."""
        mean, gain, weight = (value.detach().cpu().double().numpy() for value in (self.mean, self.gain, self.weight))
        folded = weight * gain
        return folded, float(self.bias.detach()) - float(mean @ folded)


def new_head(features: tuple[NDArray[Any], NDArray[Any]], loss: CorrectedSigmoidLoss) -> Head:
    """Return a head that says g = 1 everywhere."""
    return Head(fit_scaler(features), loss.log_odds_u + float(np.log(loss.ood_prior)))


def warm_start(
    features: tuple[NDArray[Any], NDArray[Any]],
    held: tuple[NDArray[Any], NDArray[Any]],
    head: Head,
    loss: CorrectedSigmoidLoss,
    ood_prior: float | None,
) -> None:
    """Put head and prior at the closed-form linear solution.

    Notes
    -----
    Of several penalties the smallest is taken whose held-out loss is within one standard error of the best: few held-out rows must not ask
    for one by chance. A penalty drives a joint prior upwards, up to one (errata 6), where training could not leave it again: with a
    penalty the prior is estimated apart, on held-out scores, and the fit repeated with it.
    """
    fits, losses = [], []
    for l2 in PENALTIES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PoscodWarning)  # held-out rows judge what the warnings are about
            fit = CorrectedSigmoid(recipe="paper", l2=l2, ood_prior=ood_prior).fit(*features)
            if l2 > 0.0 and ood_prior is None:
                apart = PRIORS["mean"](acceptance(*(fit.log_ratio(side) for side in held)))
                fit = CorrectedSigmoid(recipe="paper", l2=l2, ood_prior=float(np.clip(apart, *INSIDE))).fit(*features)
        fits.append(fit)
        losses.append(held_out_losses(fit, held, loss.pi_u))
    best = losses[int(np.argmin([rows.sum() for rows in losses]))]
    gaps = [rows - best for rows in losses]
    error = [np.sqrt(len(gap)) * float(np.std(gap)) for gap in gaps]
    chosen = fits[next(i for i, gap in enumerate(gaps) if gap.sum() <= error[i])]
    head.start_at(chosen, loss.log_odds_u)
    if ood_prior is None:
        inside = float(np.clip(chosen.ood_prior_, *INSIDE))
        with torch.no_grad():
            loss.prior_logit.fill_(float(np.log(inside) - np.log1p(-inside)))


def held_out_losses(ratio: Any, rows: tuple[Any, Any], pi_u: float) -> NDArray[np.float64]:
    """Return each row's part of the negative log-likelihood of a fitted ratio."""
    loss = CorrectedSigmoidLoss(pi_u, float(ratio.ood_prior_), reduction="none")
    shift = loss.log_odds_u + float(np.log(loss.ood_prior))
    parts = []
    for side, share in enumerate((1.0 - pi_u, pi_u)):
        u = torch.tensor(ratio.log_ratio(rows[side]) + shift)
        parts.append(loss(u, torch.full((len(u),), side == 1)).detach().numpy() * (share / len(u)))
    return np.concatenate(parts)
