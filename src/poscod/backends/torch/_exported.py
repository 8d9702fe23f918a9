# SPDX-License-Identifier: BSD-3-Clause
"""Exported programs: graphs without layers get their last layer back.

Convention: the last linear operation of the graph becomes a linear layer, so that everything else sees an ordinary network.
"""

from __future__ import annotations

import copy
import operator
import os
import warnings

import torch

from poscod.backends._running import reason
from poscod.exceptions import InvalidInputError


def load_exported(path: str | os.PathLike[str]) -> torch.nn.Module:
    """Read an exported program (.pt2), a file of ``torch.export.save``, for `extract`."""
    with open(path, "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about its own format
        try:
            return torch.export.load(file).module()
        except Exception as error:
            raise InvalidInputError(f"{path} could not be read as an exported program ({reason(error)}).") from None


def with_head(model: torch.nn.Module) -> torch.nn.Module:
    """Return the network itself, or, for a graph whose operations are no modules, one with a last layer."""
    if not isinstance(model, torch.fx.GraphModule) or any(isinstance(m, torch.nn.Linear) for m in model.modules()):
        return model
    with warnings.catch_warnings():
        # torch copies a specification of its own in a way it calls deprecated
        warnings.simplefilter("ignore", FutureWarning)
        body = copy.deepcopy(model)
    linear = getattr(torch.ops.aten, "linear").default  # noqa: B009 (the stubs do not know it)
    made = [*body.graph.nodes][-1].all_input_nodes  # of the output
    node = made[0]
    given = node.all_input_nodes[1:]
    if len(made) > 1 or node.target is not linear or any(part.op != "get_attr" for part in given):
        raise InvalidInputError(
            f"An exported program must return logits that a linear layer makes, got {', '.join(str(n.target) for n in made)} at its "
            "end: export the network without what follows its last layer."
        )
    weight, *bias = (torch.nn.Parameter(operator.attrgetter(str(part.target))(body).detach()) for part in given)
    head = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bool(bias))
    head.weight = weight
    if bias:
        head.bias = bias[0]
    body.add_submodule("poscod_head", head)
    with body.graph.inserting_before(node):
        node.replace_all_uses_with(body.graph.call_module("poscod_head", node.args[:1]))
    body.graph.eliminate_dead_code()
    body.recompile()
    # The mode of an exported program was fixed when it was exported; torch refuses to change it.
    for name in ("train", "eval"):
        vars(body).pop(name, None)
    return body
