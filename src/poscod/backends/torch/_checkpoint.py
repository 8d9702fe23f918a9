# SPDX-License-Identifier: BSD-3-Clause
"""Files of a training run and of its result: plain arrays, always whole.

Convention: an .npz archive of tensors under ``group/name`` and of everything else as JSON under ``record``. It is replaced in one step, so a
killed run leaves the last complete epoch; nothing in it is ever executed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poscod._files import replacing
from poscod.exceptions import InvalidInputError

Tensors = Mapping[str, torch.Tensor]
RECORD = "record"


def write_arrays(path: str | os.PathLike[str], groups: Mapping[str, Tensors], record: Mapping[str, Any]) -> None:
    """Write groups of tensors and a record."""
    arrays = {
        f"{group}/{name}": value.detach().cpu().numpy()
        for group, values in groups.items()
        for name, value in values.items()
    }
    text = np.frombuffer(json.dumps(dict(record)).encode(), dtype=np.uint8)
    with replacing(Path(path)) as file:
        np.savez(file, allow_pickle=False, **arrays, **{RECORD: text})


def read_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    """Read what `write_arrays` has written."""
    groups: dict[str, dict[str, torch.Tensor]] = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            record = json.loads(archive[RECORD].tobytes())
            for key in archive.files:
                group, _, name = key.partition("/")
                if name:
                    groups.setdefault(group, {})[name] = torch.as_tensor(archive[key])
    except OSError:
        raise
    except Exception as error:
        raise InvalidInputError(f"{path} could not be read as a file of a trained ratio ({error}).") from None
    return groups, record


def pack_optimiser(optimiser: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the numbers of an optimiser by name."""
    states = optimiser.state_dict()["state"]
    return {f"{index}/{name}": value for index, state in states.items() for name, value in state.items()}


def unpack_optimiser(optimiser: torch.optim.Optimizer, tensors: Tensors) -> None:
    """Give an optimiser its numbers back."""
    states: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition("/")
        states.setdefault(int(index), {})[name] = value
    optimiser.load_state_dict({"state": states, "param_groups": optimiser.state_dict()["param_groups"]})
