# SPDX-License-Identifier: BSD-3-Clause
"""The one-output head of a ratio, and the closed-form solution it starts from.

Convention: features are standardised by numbers fixed at the start, then dropout, then a linear layer with a bias that is trained; ``u`` is
the log-odds of `poscod.ratio`.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poscod.backends.torch._loss import CorrectedSigmoidLoss
from poscod.exceptions import PoscodWarning
from poscod.ratio import CorrectedSigmoid, LinearRatio, estimate_prior

Tensor = torch.Tensor
Sides = list[NDArray[Any]]
# Penalties of the closed-form start: with more features than rows, no penalty is no fit.
PENALTIES = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
# Where a learned prior may start: at the ends its slope is too flat to leave them.
INSIDE = (0.001, 0.95)


class Head(torch.nn.Module):
    """Standardisation, dropout and a linear layer with one output.

    Parameters
    ----------
    linear : LinearRatio
        log g at the start.
    shift : float
        u - log g.
    dropout : float
        Share of features that are dropped in training.
    """

    mean: Tensor
    gain: Tensor

    def __init__(self, linear: LinearRatio, shift: float, dropout: float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(linear.scaler.mean, dtype=torch.float32))
        # A constant feature has an infinite scale, and so no say.
        self.register_buffer("gain", torch.tensor(1.0 / linear.scaler.scale, dtype=torch.float32))
        self.drop = torch.nn.Dropout(dropout)
        self.weight = torch.nn.Parameter(torch.tensor(linear.theta, dtype=torch.float32))
        self.bias = torch.nn.Parameter(torch.tensor(linear.intercept + shift, dtype=torch.float32))

    def forward(self, features: Tensor) -> Tensor:
        """Return u."""
        z: Tensor = self.drop((features.float() - self.mean) * self.gain)
        return z @ self.weight + self.bias

    def folded(self) -> tuple[NDArray[np.float64], float]:
        """Return weight and bias for features as they come."""
        mean, gain, weight = (value.detach().cpu().double().numpy() for value in (self.mean, self.gain, self.weight))
        return weight * gain, float(self.bias.detach()) - float(mean @ (weight * gain))


def closed_form(features: Sides, held: Sides, pi_u: float, ood_prior: float | None) -> CorrectedSigmoid:
    """Return the paper's linear solution on features.

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
                apart = estimate_prior(fit.log_ratio(held[0]), fit.log_ratio(held[1]))
                fit = CorrectedSigmoid(recipe="paper", l2=l2, ood_prior=float(np.clip(apart, *INSIDE))).fit(*features)
        fits.append(fit)
        losses.append(held_out_losses(fit, held, pi_u))
    best = losses[int(np.argmin([rows.sum() for rows in losses]))]
    gaps = [rows - best for rows in losses]
    return next(fit for fit, gap in zip(fits, gaps, strict=True) if gap.sum() <= np.sqrt(len(gap)) * float(np.std(gap)))


def held_out_losses(ratio: Any, rows: Any, pi_u: float) -> NDArray[np.float64]:
    """Return each row's part of the negative log-likelihood of a fitted ratio."""
    loss = CorrectedSigmoidLoss(pi_u, float(ratio.ood_prior_), reduction="none")
    parts = []
    for side, share in enumerate((1.0 - pi_u, pi_u)):
        u = torch.tensor(ratio.log_ratio(rows[side])) + loss.shift
        parts.append(loss(u, torch.full((len(u),), side == 1)).detach().numpy() * (share / len(u)))
    return np.concatenate(parts)
