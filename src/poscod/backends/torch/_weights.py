# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints into networks, without running what a file names.

Convention: a checkpoint is a state dict, possibly under a key such as ``state_dict`` and possibly with the prefix ``module.`` of `DataParallel`.
PyTorch's files are read with ``weights_only=True``: tensors and plain containers, nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from poscod._optional import require
from poscod.backends._reason import reason
from poscod.exceptions import InvalidInputError
from poscod.model import listed

INSIDE = ("state_dict", "model_state_dict", "model", "net", "network", "weights")
PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.", "backbone.")
LISTED = 3


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
    try:
        unmatched = model.load_state_dict(_without_prefix(read_state(path), model.state_dict()), strict=False)
    except RuntimeError as error:  # of shapes
        reason = str(error).strip().splitlines()[-1].strip()
        raise InvalidInputError(
            f"{path} does not fit this network: {reason} Is the number of classes another?"
        ) from None
    # Counters of BatchNorm came later than many checkpoints, and nothing depends on them in evaluation.
    missing = [name for name in unmatched.missing_keys if not name.endswith("num_batches_tracked")]
    if missing or unmatched.unexpected_keys:
        raise InvalidInputError(
            f"{path} does not fit this network: lacks {listed(missing, LISTED) or 'nothing'}, holds unknown "
            f"{listed(unmatched.unexpected_keys, LISTED) or 'nothing'}. Build the network the checkpoint was made with."
        )
    return model


def read_state(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Read the tensors of a checkpoint by name."""
    source = Path(path)
    if source.suffix == ".safetensors":
        package = require("safetensors.torch", extra="files", feature="Reading .safetensors")
        return dict(package.load_file(str(source)))
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
