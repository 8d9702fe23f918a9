# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints into networks, without running what a file names.

Convention: a checkpoint is a state dict, possibly under a key such as ``state_dict`` and possibly with the prefix ``module.`` of `DataParallel`.
PyTorch's files are read with ``weights_only=True``: tensors and plain containers, nothing else.
"""

from __future__ import annotations

import os
import textwrap
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from poscod._files import growth, open_source
from poscod._optional import require
from poscod.backends._running import reason
from poscod.exceptions import InvalidInputError

INSIDE = ("state_dict", "model_state_dict", "model", "net", "network", "weights")
PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.", "backbone.")


def load_weights(model: torch.nn.Module, path: str | os.PathLike[str]) -> torch.nn.Module:
    """Read a checkpoint into a network; every parameter must find its value.

    Parameters
    ----------
    model : Module
        Of the kind the checkpoint was made with.
    path : str or path-like
        .safetensors, or a file of ``torch.save``.

    Returns
    -------
    model : Module
        The same network.
    """
    return fill(model, _without_prefix(read_state(path), model.state_dict()), path)


def fill(model: torch.nn.Module, state: Mapping[str, torch.Tensor], path: str | os.PathLike[str]) -> torch.nn.Module:
    """Give a network its weights, all of them."""
    try:
        # Without a record of versions, torch forgives what came later than many checkpoints: the counters of BatchNorm.
        model.load_state_dict(dict(state))
    except RuntimeError as error:
        unmatched = textwrap.shorten(str(error).partition("\n")[2], 300, placeholder=" ...")
        raise InvalidInputError(
            f"{path} does not fit this network ({unmatched}): build the one it was made with, with the same number of classes."
        ) from None
    return model


def read_state(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Read the tensors of a checkpoint by name."""
    source = Path(path)
    if source.suffix == ".safetensors":
        package = require("safetensors.torch", extra="files", feature="Reading .safetensors")
        return dict(package.load_file(str(source)))
    with open_source(source) as file:
        if zipfile.is_zipfile(file):  # torch inflates what it finds, however large
            with zipfile.ZipFile(file) as archive:
                if complaint := growth(archive, source.stat().st_size):
                    raise InvalidInputError(f"{source} {complaint}, which torch.save never does: it is not read.")
    try:
        found: Any = torch.load(source, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"{source} could not be read as plain tensors ({reason(error)}): save a state dict (model.state_dict()), not a whole network."
        ) from None
    while isinstance(found, Mapping) and (inside := [key for key in INSIDE if isinstance(found.get(key), Mapping)]):
        found = found[inside[0]]
    if not isinstance(found, Mapping) or not found or not all(isinstance(v, torch.Tensor) for v in found.values()):
        raise InvalidInputError(f"{source} must hold a state dict (names and tensors), got {type(found).__name__}.")
    return {str(name): value for name, value in found.items()}


def _without_prefix(state: dict[str, torch.Tensor], wanted: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Drop a prefix that all names share and the network does not have."""
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in state) and not all(name.startswith(prefix) for name in wanted):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state
