# SPDX-License-Identifier: BSD-3-Clause
"""Exported programs: graphs without layers get their last layer back.

Convention: the graph is cut before its last linear operation; what is before is the body, and the operation becomes a linear layer, so
that everything else sees an ordinary network.
"""

from __future__ import annotations

import copy
import operator
import os
import warnings
from typing import Any

import torch

from poscod.backends._reason import reason
from poscod.exceptions import InvalidInputError


class Headed(torch.nn.Module):
    """A graph up to the features, followed by a linear layer.

    Parameters
    ----------
    body : Module
        Makes features of shape (n, d).
    head : Linear
    """

    def __init__(self, body: torch.nn.Module, head: torch.nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return the logits."""
        leaves = torch.utils._pytree.tree_leaves(self.body(*args, **kwargs))
        logits: torch.Tensor = self.head(leaves[0])
        return logits

    def train(self, mode: bool = True) -> Headed:
        """Do nothing: the mode of an exported program was fixed when it was exported."""
        return self


def load_exported(path: str | os.PathLike[str]) -> torch.nn.Module:
    """Read an exported program (.pt2), a file of ``torch.export.save``, for `extract`."""
    if not os.path.isfile(path):
        raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch about its own format
            program: torch.nn.Module = torch.export.load(path).module()
    except Exception as error:
        raise InvalidInputError(f"{path} could not be read as an exported program ({reason(error)}).") from None
    return program


def with_head(model: torch.nn.Module) -> torch.nn.Module:
    """Return the network itself, or, for a graph whose operations are no modules, one with a last layer."""
    if not isinstance(model, torch.fx.GraphModule) or any(isinstance(m, torch.nn.Linear) for m in model.modules()):
        return model
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", FutureWarning
        )  # torch copies a specification of its own in a way it calls deprecated
        body = copy.deepcopy(model)
    result = next(node for node in body.graph.nodes if node.op == "output")
    node = _only_tensor(result.args[0])
    linear = getattr(torch.ops.aten, "linear").default  # noqa: B009 (the stubs do not know it)
    if node is None or node.op != "call_function" or node.target is not linear:
        found = "nothing" if node is None else str(node.target)
        raise InvalidInputError(
            f"An exported program must return logits that a linear layer makes, got {found} at its end: export the network without "
            "what follows its last layer."
        )
    weight, bias = (None if arg is None else _constant(body, arg) for arg in (*node.args[1:], None)[:2])
    if weight is None:
        raise InvalidInputError("The last layer of an exported program must have a weight that is a parameter.")
    head = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    with torch.no_grad():
        head.weight.copy_(weight)
        if bias is not None:
            head.bias.copy_(bias)
    # The features take the place of the logits in whatever structure the program returns.
    result.args = torch.fx.node.map_arg(result.args, lambda _: node.args[0])
    body.graph.eliminate_dead_code()
    body.recompile()
    return Headed(body, head)


def _only_tensor(value: Any) -> Any:
    """Return the one node of an output."""
    if isinstance(value, (tuple, list)):
        return _only_tensor(value[0]) if len(value) == 1 else None
    return value if isinstance(value, torch.fx.Node) else None


def _constant(body: torch.fx.GraphModule, node: Any) -> torch.Tensor | None:
    if not isinstance(node, torch.fx.Node) or node.op != "get_attr":
        return None
    value = operator.attrgetter(str(node.target))(body)
    return value if isinstance(value, torch.Tensor) else None
