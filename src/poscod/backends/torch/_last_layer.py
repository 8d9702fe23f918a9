# SPDX-License-Identifier: BSD-3-Clause
"""Which layer made the logits, and what it was given.

Convention: the last layer is the module with a weight matrix whose output *is* the network's logits, number by number; it is found on
the first batch by watching all such modules. Where none is, it is the product with a matrix that the code of the network makes itself (``F.linear``,
``x @ W + b``), called by the name of its matrix. Nothing is inferred from names.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from poscod._validation import listed
from poscod.exceptions import InvalidInputError

Tensor = torch.Tensor


class Call(NamedTuple):
    """One call of a watched module, or one product with a matrix and what was added to it."""

    name: str
    given: Tensor
    made: Tensor
    weight: Tensor | None = None
    bias: Tensor | None = None


_NOT_FOUND = "The model's output is not the output of any layer with a weight matrix (a softmax or a scale after it?): "
_CHOOSE = "pass {layer}, the name of the one that makes the logits. Candidates: {allowed}."
_WRAP = (
    "and no product with a matrix was seen in it. End the network in a torch.nn.Linear, or in torch.nn.functional.linear(features, weight, bias), "
    "and return what that makes."
)
_PRODUCTS = (torch.matmul, torch.mm, torch.Tensor.matmul, torch.Tensor.mm, torch.Tensor.__matmul__)
_SUMS = (torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__)


class Products(TorchFunctionMode):
    """Notes every product with a matrix that is not the weight of a watched module.

    Parameters
    ----------
    model : Module
    known : list of Module
        Modules that are watched.
    """

    def __init__(self, model: torch.nn.Module, known: list[torch.nn.Module]) -> None:
        super().__init__()
        self._names = {value.data_ptr(): name for name, value in (*model.named_parameters(), *model.named_buffers())}
        self._known = {id(module.weight) for module in known}
        self._calls: list[Call] = []

    def taken(self) -> list[Call]:
        """Return the products of the call just made, and forget them."""
        calls, self._calls = self._calls, []
        return calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            if func is torch.nn.functional.linear:
                self._linear(made, *args, **(kwargs or {}))
            elif func is torch.addmm and len(args) == 3 and not kwargs:
                self._note(made, args[1], args[2].T, args[0])
            elif func in _PRODUCTS and len(args) == 2 and args[1].ndim == 2:
                self._note(made, args[0], args[1].T, None)
            elif func in _SUMS and len(args) == 2 and not kwargs and self._calls:
                last = self._calls[-1]
                other = next((b for a, b in (args, args[::-1]) if a is last.made), None)
                if last.bias is None and isinstance(other, Tensor) and other.ndim == 1:
                    self._calls[-1] = last._replace(made=made, bias=other)
        return made

    def _linear(self, made: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:  # noqa: A002 (as torch calls it)
        if id(weight) not in self._known and weight.ndim == 2:
            self._note(made, input, weight, bias)

    def _note(self, made: Tensor, given: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        name = self._names.get(weight.data_ptr(), f"product {len(self._calls) + 1}")
        self._calls.append(Call(name, given, made, weight, bias))


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
        self.model, self.modules = model, dict(model.named_modules())
        self.linear = [name for name, module in self.modules.items() if _is_linear(module)]
        matrices = [name for name, value in model.named_parameters() if value.ndim == 2]
        if layer is not None and layer not in (*self.modules, *matrices) and not str(layer).startswith("product "):
            raise InvalidInputError(
                "{layer} must name a module of the model, or a matrix of it, got '{got}'. Layers with a weight matrix: {allowed}.",
                got=layer,
                allowed=listed((self.linear or matrices)[-8:]) or "none",
            )
        self.name = layer
        self._calls: list[Call] = []
        self._seen: list[str] = []
        self._own: Call | None = None
        self._products: Products | None = None
        if layer is None or layer not in self.modules:
            self._watch_products()
        self._watch(self.linear if layer is None else [layer] if layer in self.modules else [])

    def read(self, output: Any) -> tuple[Tensor, Tensor]:
        """Return features and logits of the call just made."""
        calls, self._calls = self._calls, []
        own = [] if self._products is None else self._products.taken()
        self._seen = list(dict.fromkeys(call.name for call in own))
        logits = logits_of(output)
        if self.name is not None:
            own = [call for call in own if call.name == self.name]
        found = _matches(calls, logits) or _matches(own, logits)
        if self.name is None:
            self._settle(list(found))
        self._own = next((call for call in own if call.name == self.name), None)
        features, values = next(iter(found.values())) if found else self._not_returned([*calls, *own], logits)
        if values.shape[1] < 2:
            raise InvalidInputError(
                f"The layer '{self.name}' must give one logit per class, got a single column: turn a single logit z into the two "
                "logits (0, z)."
            )
        return features, values

    def head(self) -> tuple[Tensor | None, Tensor | None]:
        """Return weight and bias of the layer, where it has a weight."""
        if self._own is not None:
            return self._own.weight, self._own.bias
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

    def _watch_products(self) -> None:
        known = [self.modules[name] for name in self.linear]
        self._products = self.enter_context(Products(self.model, known))

    def _settle(self, found: list[tuple[str, str]]) -> None:
        """Choose the layer whose output is the logits, and watch no other."""
        names = {name for name, _ in found}
        if len(names) > 1:
            raise InvalidInputError(
                "The model returns the output of more than one linear layer ({found}): pass {layer}, one of these names.",
                found=", ".join(f"'{name}' made {where}" for name, where in found),
            )
        if not names:
            raise InvalidInputError(_NOT_FOUND + (_CHOOSE if self._listed() else _WRAP), allowed=self._listed())
        self.name, self._products = names.pop(), None
        self.close()
        if self.name in self.modules:
            self._watch([self.name])
        else:
            self._watch_products()

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
            allowed=self._listed() or "none",
        )

    def _listed(self) -> str:
        return listed([*self.linear, *self._seen][-8:])


def _matches(calls: list[Call], logits: list[tuple[str, Tensor]]) -> dict[tuple[str, str], tuple[Tensor, Tensor]]:
    """Return features and logits of the calls that made what the network returns, by name of the layer and place in the output."""
    return {
        (call.name, where): (features, values)
        for call in calls
        for where, values in logits
        if (features := _match(call, values)) is not None
    }


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
