# SPDX-License-Identifier: BSD-3-Clause
"""ODIN with its input perturbation, which needs the network and its gradient.

Convention: higher = reject sooner, as every score here; the input moves a small step towards higher confidence before it is scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from poscod._validation import Floats, check_number
from poscod.activations import Activations
from poscod.backends._running import watched
from poscod.backends.torch._batches import as_loader, evaluating, split_batch, to_device, unwrap
from poscod.backends.torch._last_layer import logits_of
from poscod.exceptions import InvalidInputError
from poscod.scores import SCORES


def odin(
    model: Any,
    loader: Any,
    *,
    temperature: float = 1000.0,
    epsilon: float = 0.0014,
    std: Sequence[float] | None = None,
    device: str | torch.device | None = None,
    batch_size: int = 256,
    progress: bool | None = None,
) -> Floats:
    """Score inputs by ODIN: temperature and perturbed input.

    Parameters
    ----------
    model : Module
        A classifier that returns logits, as a tensor or under the name ``logits``.
    loader : iterable of batches, Dataset, Tensor or ndarray
        Its inputs must be floating tensors.
    temperature : float > 0, default=1000.0
        Temperature T.
    epsilon : float >= 0, default=0.0014
        Length of the step in each coordinate; 0 leaves the inputs as they are.
    std : sequence of float, default=None
        Standard deviation by which each channel was divided: the step is then of equal length in pixels, as in the authors' code.
    device : str or torch.device, default=None
        Where to run; None is where the network is.
    batch_size : int, default=256
        For data that is not in batches yet.
    progress : bool, default=None
        Whether to show a bar; None shows one on a terminal.

    Returns
    -------
    score : ndarray of shape (n,)
        Higher = reject sooner.

    Notes
    -----
    ``x' = x + epsilon * sign(gradient of log max_y softmax(z(x) / T)_y)`` and ``s(x) = 1 - max_y softmax(z(x') / T)_y`` with z the logits.
    The second part is `poscod.scores.ODIN`.

    References
    ----------
    .. [1] S. Liang, Y. Li, R. Srikant, "Enhancing the Reliability of Out-of-distribution Image Detection in Neural Networks", ICLR 2018.

    Examples
    --------
    >>> network = torch.nn.Linear(2, 2)
    >>> inputs = torch.tensor([[0.5, 1.0], [3.0, -1.0]])
    >>> bool((odin(network, inputs, epsilon=0.01) < odin(network, inputs, epsilon=0.0)).all())
    True
    """
    model = unwrap(model)
    temperature = check_number(temperature, "temperature", 0.0, float("inf"), closed="neither")
    epsilon = check_number(epsilon, "epsilon", 0.0, float("inf"), closed="left")
    score = SCORES["odin"](temperature=temperature)
    parts = []
    with evaluating(model, device) as there:
        for batch in watched(as_loader(loader, batch_size), "odin", progress, extra="torch"):
            args, _, _ = to_device(split_batch(batch), there)
            if len(args) != 1 or not isinstance(args[0], torch.Tensor) or not args[0].is_floating_point():
                raise InvalidInputError("odin needs inputs that are floating tensors: it takes a step in them.")
            x = args[0]
            if epsilon > 0.0:
                x = x + epsilon * _direction(model, x, temperature, std)
            with torch.no_grad():
                logits = _logits(model, x)
            parts.append(score(Activations(logits=logits.detach().cpu().double().numpy())))
    if not parts:
        raise InvalidInputError("loader must give at least one row, got none.")
    return np.concatenate(parts)


def _direction(
    model: torch.nn.Module, x: torch.Tensor, temperature: float, std: Sequence[float] | None
) -> torch.Tensor:
    with torch.enable_grad():
        x = x.detach().clone().requires_grad_(True)
        confidence = torch.log_softmax(_logits(model, x).double() / temperature, dim=1).amax(dim=1).sum()
        (gradient,) = torch.autograd.grad(confidence, x)
    step = gradient.sign()
    if std is not None:
        if x.ndim < 2 or len(std) != x.shape[1]:
            raise InvalidInputError(
                f"std must have one number per channel of the input {tuple(x.shape)}, got {len(std)}."
            )
        step = step / step.new_tensor(list(std)).reshape(1, -1, *[1] * (x.ndim - 2))
    return step


def _logits(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    found = logits_of(model(x))
    if len(found) > 1:
        names = ", ".join(name for name, _ in found)
        raise InvalidInputError(f"The model must return logits alone, or under the name 'logits', got {names}.")
    return found[0][1]
