# SPDX-License-Identifier: BSD-3-Clause
"""The corrected-sigmoid likelihood as a loss for any network with one output.

Convention: ``u(x)`` is the network's output, ``p(z = I | x) = 1 / (1 + a + exp(u))`` with ``a = pi_U / (1 - pi_U) * (1 - pi)``, as in
`poscod.ratio`; everything is computed from u and log a, so that no exponential overflows. The prior is kept as logit(pi).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from scipy.special import logit

from poscod._validation import check_choice, check_number
from poscod.exceptions import InvalidInputError

Tensor = torch.Tensor


def _stratified(loss: Tensor, unlabeled: Tensor, pi_u: float) -> Tensor:
    sides = loss[~unlabeled], loss[unlabeled]
    if not all(side.numel() for side in sides):
        raise InvalidInputError("reduction='stratified' needs ID and unlabeled rows in every batch, got one kind only.")
    return (1.0 - pi_u) * sides[0].mean() + pi_u * sides[1].mean()


REDUCTIONS: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "mean": lambda loss, unlabeled, pi_u: loss.mean(),
    "stratified": _stratified,
    "none": lambda loss, unlabeled, pi_u: loss,
}


class CorrectedSigmoidLoss(torch.nn.Module):
    """Negative log-likelihood of "ID or unlabeled" under the corrected sigmoid.

    Parameters
    ----------
    pi_u : float in (0, 1)
        Share of unlabeled rows among the training rows.
    ood_prior : float in (0, 1], default=None
        Known share of OOD rows among the unlabeled ones; None learns it together with the network. 1.0 is the standard
        sigmoid: plain logistic regression.
    start : float in (0, 1), default=0.1
        Where a learned prior starts; the likelihood has several optima, and small starts find the better one.
    reduction : {"mean", "stratified", "none"}, default="mean"
        "mean" is for batches that hold ID and unlabeled rows in the shares of the data, at least on average. "stratified" weighs the
        two sides of every batch by 1 - pi_u and pi_u, whatever their numbers. "none" returns one loss per row.

    Notes
    -----
    With ``log a = log(pi_U / (1 - pi_U)) + log(1 - pi)`` the loss of an ID row is ``log(1 + a + e^u)`` and that of an unlabeled row
    ``log(1 + a + e^u) - log(a + e^u)``. A learned prior is ``pi = sigmoid(q)`` with q a parameter of this module: give the optimiser
    ``[*network.parameters(), *loss.parameters()]``.

    Examples
    --------
    >>> loss = CorrectedSigmoidLoss(pi_u=0.5)
    >>> u = torch.tensor([-2.0, 3.0], requires_grad=True)
    >>> value = loss(u, torch.tensor([False, True]))
    >>> value.backward()
    >>> round(value.item(), 4)
    0.3786
    >>> loss.log_ratio(u).detach()
    tensor([0.3026, 5.3026])
    """

    def __init__(
        self, pi_u: float, ood_prior: float | None = None, *, start: float = 0.1, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.pi_u = check_number(pi_u, "pi_u", 0.0, 1.0, closed="neither")
        check_number(start, "start", 0.0, 1.0, closed="neither")
        check_choice(reduction, "reduction", REDUCTIONS)
        self.reduction = reduction
        self.log_odds_u = float(logit(self.pi_u))
        # Double precision: the prior is one number, and near one its complement must not round to zero.
        if ood_prior is None:
            self.prior_logit = torch.nn.Parameter(torch.tensor(float(logit(start)), dtype=torch.float64))
        else:
            known = float(logit(check_number(ood_prior, "ood_prior", 0.0, 1.0, closed="right")))
            self.register_buffer("prior_logit", torch.tensor(known, dtype=torch.float64))

    @property
    def ood_prior(self) -> float:
        """The share of OOD rows among the unlabeled ones, as it stands."""
        return float(torch.sigmoid(self.prior_logit.detach()))

    @property
    def shift(self) -> float:
        """Difference u - log g, the same for every row."""
        return self.log_odds_u + float(torch.nn.functional.logsigmoid(self.prior_logit.detach()))

    def forward(self, u: Tensor, unlabeled: Tensor) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        u : Tensor of shape (n,) or (n, 1)
            Output of the network.
        unlabeled : Tensor of shape (n,)
            True (or 1) for rows of the mixture, False (or 0) for labeled ID rows.

        Returns
        -------
        loss : Tensor
            A number, or shape (n,) with reduction "none".
        """
        u, unlabeled = _check_batch(u, unlabeled)
        log_a = (self.log_odds_u + torch.nn.functional.logsigmoid(-self.prior_logit)).to(u.dtype)
        top = torch.nn.functional.softplus(log_a)  # log(1 + a)
        loss = torch.logaddexp(top, u) - torch.where(unlabeled, torch.logaddexp(log_a, u), torch.zeros_like(u))
        return REDUCTIONS[self.reduction](loss, unlabeled, self.pi_u)

    def log_ratio(self, u: Tensor) -> Tensor:
        """Return log g = u - log(pi_U / (1 - pi_U)) - log pi.

        Parameters
        ----------
        u : Tensor of shape (n,) or (n, 1)
            Output of the network.

        Returns
        -------
        log_ratio : Tensor of shape (n,)
            Higher = more like OOD.
        """
        log_pi = torch.nn.functional.logsigmoid(self.prior_logit).to(u.dtype)
        return u.reshape(len(u)) - self.log_odds_u - log_pi

    def extra_repr(self) -> str:
        """Show the constants in the printed network."""
        learned = "learned" if self.prior_logit.requires_grad else "fixed"
        return f"pi_u={self.pi_u:g}, ood_prior={self.ood_prior:.3g} ({learned}), reduction={self.reduction!r}"


def _check_batch(u: Any, unlabeled: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(u, Tensor) or not u.is_floating_point() or u.shape not in ((len(u),), (len(u), 1)):
        shape = tuple(u.shape) if isinstance(u, Tensor) else type(u).__name__
        raise InvalidInputError(
            f"u must be a floating tensor of shape (n,) or (n, 1), one output per row, got {shape}."
        )
    unlabeled = torch.as_tensor(unlabeled, device=u.device).reshape(-1)
    if len(unlabeled) != len(u):
        raise InvalidInputError(f"unlabeled must have one mark per row of u ({len(u)}), got {len(unlabeled)}.")
    # Half precision holds too few digits for a difference of logarithms.
    u = u.reshape(len(u))
    return (u.float() if u.dtype in (torch.float16, torch.bfloat16) else u), unlabeled.bool()
