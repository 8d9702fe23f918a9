# SPDX-License-Identifier: BSD-3-Clause
"""Which layer made the logits, and what it was given.

Convention: the last layer is the module with a weight matrix whose output *is* the network's logits, number by number; it is found on
the first batch by watching all such modules. Nothing is inferred from names.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch

from poscod._validation import listed
from poscod.exceptions import InvalidInputError

Tensor = torch.Tensor


class Call(NamedTuple):
    """One call of a watched module."""

    name: str
    given: Tensor
    made: Tensor


class LastLayer(ExitStack):
    """Watches a network until it is closed and returns, after each call, the logits and the features they were made from.

    Parameters
    ----------
    model : Module
    layer : str or None
        Name of the layer, as in ``model.named_modules()``; None finds it.
    """

    def __init__(self, model: torch.nn.Module, layer: str | None) -> None:
        super().__init__()
        self.modules = dict(model.named_modules())
        self.linear = [name for name, module in self.modules.items() if _is_linear(module)]
        if layer is not None and layer not in self.modules:
            raise InvalidInputError(
                "{layer} must name a module of the model, got '{got}'. Layers with a weight matrix: {allowed}.",
                got=layer,
                allowed=self._listed(),
            )
        self.name = layer
        self._calls: list[Call] = []
        self._watch(self.linear if layer is None else [layer])

    def read(self, output: Any) -> tuple[Tensor, Tensor]:
        """Return features and logits of the call just made."""
        calls, self._calls = self._calls, []
        logits = logits_of(output)
        found = {
            (call.name, where): (features, values)
            for call in calls
            for where, values in logits
            if (features := _match(call, values)) is not None
        }
        if self.name is None:
            self._settle(list(found))
        features, values = next(iter(found.values())) if found else self._not_returned(calls, logits)
        if values.shape[1] < 2:
            raise InvalidInputError(
                f"The layer '{self.name}' must give one logit per class, got a single column: turn a single logit z into the two "
                "logits (0, z)."
            )
        return features, values

    def head(self) -> tuple[Tensor, Tensor | None] | tuple[None, None]:
        """Return weight and bias of the layer, where it has a weight."""
        module: Any = self.modules[self.name or ""]
        weight = getattr(module, "weight", None)
        if not isinstance(weight, Tensor):
            return None, None
        return weight.reshape(len(weight), -1), getattr(module, "bias", None)

    def _watch(self, names: list[str]) -> None:
        def note(name: str) -> Any:
            def hook(module: Any, args: Any, kwargs: Any, made: Any) -> None:
                given = args[0] if args else next(iter(kwargs.values()), None)
                if isinstance(given, Tensor) and isinstance(made, Tensor) and given.is_floating_point():
                    self._calls.append(Call(name, given, made))

            return hook

        for name in names:
            self.enter_context(self.modules[name].register_forward_hook(note(name), with_kwargs=True))

    def _settle(self, found: list[tuple[str, str]]) -> None:
        """Choose the layer whose output is the logits, and watch no other."""
        names = {name for name, _ in found}
        if len(names) > 1:
            raise InvalidInputError(
                "The model returns the output of more than one linear layer ({found}): pass {layer}, one of these names.",
                found=", ".join(f"'{name}' made {where}" for name, where in found),
            )
        if not names:
            raise InvalidInputError(
                "The model's output is not the output of any layer with a weight matrix (a softmax or a scale after it, or a layer "
                "without a module): pass {layer}, the name of the one that makes the logits. Candidates: {allowed}.",
                allowed=self._listed(),
            )
        self.name = names.pop()
        self.close()
        self._watch([self.name])

    def _not_returned(self, calls: list[Call], logits: list[tuple[str, Tensor]]) -> tuple[Tensor, Tensor]:
        """Read a layer whose output the model changes before it returns it."""
        pairs = [(_flat(call.given), _flat(call.made)) for call in calls]
        if len(pairs) == 1 and pairs[0][0].ndim == 2 and any(pairs[0][1].shape == values.shape for _, values in logits):
            return pairs[0]
        raise InvalidInputError(
            "The layer '{got}' makes {made}, not the model's logits ({shapes}): pass the {layer} that makes them. Candidates: {allowed}.",
            got=self.name,
            made=" and ".join(f"{tuple(made.shape)} from {tuple(given.shape)}" for given, made in pairs) or "nothing",
            shapes=", ".join(f"{where} {tuple(values.shape)}" for where, values in logits),
            allowed=self._listed(),
        )

    def _listed(self) -> str:
        return listed(self.linear[-8:]) or "none"


def logits_of(output: Any, where: str = "the output") -> list[tuple[str, Tensor]]:
    """Return the tensors of a network's output that can be logits: those called so, or all of shape (n, K)."""
    found = [
        (name, _flat(value))
        for name, value in _tensors(output, where)
        if value.is_floating_point() and _flat(value).ndim == 2
    ]
    if not found:
        got = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
        raise InvalidInputError(f"The model must return logits of shape (n, K), got {got}.")
    return found


def _tensors(value: Any, where: str) -> list[tuple[str, Tensor]]:
    """Return the tensors of a nested value and where they are, or those that it calls logits."""
    if isinstance(value, Tensor):
        return [(where, value)]
    logits = value.get("logits") if isinstance(value, Mapping) else getattr(value, "logits", None)
    if logits is not None:
        return _tensors(logits, "logits")
    if isinstance(value, (tuple, list)):
        value = dict(enumerate(value))
    items = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
    return [found for key, item in items.items() for found in _tensors(item, f"{where}[{key!r}]")]


def _is_linear(module: torch.nn.Module) -> bool:
    """Tell whether a module has a weight matrix, as a linear layer or a convolution with a window of one pixel has."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or isinstance(module, torch.nn.Embedding):
        return False
    return weight.ndim == 2 or (weight.ndim == 4 and tuple(weight.shape[2:]) == (1, 1))


def _flat(value: Tensor) -> Tensor:
    """Drop the pixels of a map of one pixel."""
    return value.flatten(1) if value.ndim > 2 and value.shape[2:].numel() == 1 else value


def _match(call: Call, logits: Tensor) -> Tensor | None:
    """Return the features from which a call made the logits; None where it did not."""
    made, given = _flat(call.made), _flat(call.given)
    if made.shape == logits.shape and given.ndim == 2:
        return given if bool(_same(made, logits).all()) else None
    if made.ndim == 3 and given.ndim == 3 and (made.shape[0], made.shape[2]) == tuple(logits.shape):
        # A sequence classifier that scores every token and answers with one of them.
        same = _same(made, logits[:, None]).all(dim=2)
        if bool(same.any(dim=1).all()):
            return given[torch.arange(len(given), device=given.device), same.to(torch.uint8).argmax(dim=1)]
    return None


def _same(made: Tensor, logits: Tensor) -> Tensor:
    """Compare number by number; NaN is itself, so that it is the rows' fault and not the layer's."""
    return (made == logits) | (made.isnan() & logits.isnan())
