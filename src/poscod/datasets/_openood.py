# SPDX-License-Identifier: BSD-3-Clause
"""Score dumps of OpenOOD: version 1.5 (pickle), version 1 (npz) and the SCOD authors' fork of it.

Convention: the direction of the stored score is always said by the caller; OpenOOD's ``conf`` is a confidence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from poscod._validation import check_choice
from poscod.datasets._archives import read_arrays
from poscod.datasets._pickles import read_pickle
from poscod.datasets._tables import DIRECTIONS, ScoreTable, join, make_part
from poscod.exceptions import InvalidInputError


def read_openood(path: str | os.PathLike[str], *, direction: str, split: str = "test") -> ScoreTable:
    """Read a score dump of OpenOOD 1.5, or of the SCOD authors' fork of it.

    Parameters
    ----------
    path : str or path-like
        Pickle with ``{"id": {"test": [pred, conf, gt]}, "ood": {"near": {name: [pred, conf, gt]}, "far": ...}}``, torch
        tensors or numpy arrays inside. It goes through `read_pickle`.
    direction : {"confidence", "uncertainty"}
        What the stored score is. OpenOOD writes confidences.
    split : str, default="test"
        Which ID split to take, e.g. "test" or "val"; with "val", the OOD validation set is taken, too.

    Returns
    -------
    table : ScoreTable
        ID rows first, then sets under covariate shift, then OOD sets. Labels of OOD rows become -1, whatever the
        file says; `raw_label` keeps them. ``<name>_paths`` entries of the fork become `path`.
    """
    check_choice(direction, "direction", DIRECTIONS)
    content = read_pickle(path)
    source = Path(path)
    if not isinstance(content, Mapping) or not isinstance(content.get("id"), Mapping) or "ood" not in content:
        raise InvalidInputError(f"{source} must hold a dict with 'id' and 'ood', as OpenOOD 1.5 writes it.")
    if _is_empty(content["id"].get(split)):
        there = ", ".join(repr(key) for key, value in content["id"].items() if not _is_empty(value)) or "none"
        raise InvalidInputError(f"{source} has no ID split '{split}': it has {there}.")
    parts = [_part(content["id"], split, name="id" if split == "test" else split, group="id", direction=direction)]
    if split == "test":
        for group, sets in _groups(content):
            parts += [_part(sets, name, name=name, group=group, direction=direction) for name in _names(sets)]
    elif isinstance(content["ood"], Mapping) and not _is_empty(content["ood"].get(split)):
        parts.append(_part(content["ood"], split, name=f"{split} ood", group=split, direction=direction))
    return join(parts)


def read_openood_v1(path: str | os.PathLike[str], *, direction: str) -> ScoreTable:
    """Read the score files of OpenOOD 1: one npz per set, in a folder.

    Parameters
    ----------
    path : str or path-like
        One npz file with ``pred``, ``conf`` and ``label``, or a folder of such files. Rows with label -1 are OOD.
    direction : {"confidence", "uncertainty"}
        What the stored score is. OpenOOD writes confidences.

    Returns
    -------
    table : ScoreTable
        Sets are named after their files; ID sets come first.
    """
    check_choice(direction, "direction", DIRECTIONS)
    source = Path(path)
    files = sorted(source.glob("*.npz")) if source.is_dir() else [source]
    if not files:
        raise InvalidInputError(f"{source} must hold .npz files, got none.")
    parts = []
    for file in files:
        pred, score, label = read_arrays(file, "pred", "conf", "label")
        ood = np.asarray(label) == -1
        if ood.any() != ood.all():
            raise InvalidInputError(f"{file} mixes rows with label -1 and others: one file is one set.")
        group = "ood" if len(ood) and ood.all() else "id"
        parts.append(make_part(pred, score, label, direction=direction, dataset=file.stem, group=group))
    return join(sorted(parts, key=lambda part: bool(part.is_ood.any())))


def _groups(content: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Iterate over the groups of sets besides ID."""
    if isinstance(content.get("csid"), Mapping):
        yield "csid", content["csid"]
    ood = content["ood"]
    if not isinstance(ood, Mapping):
        raise InvalidInputError("'ood' must be a dict of groups such as 'near' and 'far'.")
    for group, sets in ood.items():
        if isinstance(sets, Mapping):  # 'val' is a single set and belongs to tuning
            yield str(group), sets


def _names(sets: Mapping[str, Any]) -> list[str]:
    """Return the names of the sets in a group: not the fork's paths, not sets that were never scored."""
    return [str(name) for name in sets if not _is_paths(str(name), sets) and not _is_empty(sets[name])]


def _is_paths(name: str, sets: Mapping[str, Any]) -> bool:
    return name.endswith("_paths") and name[: -len("_paths")] in sets


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and not value)


def _part(sets: Mapping[str, Any], key: str, *, name: str, group: str, direction: str) -> ScoreTable:
    """Read one set: a list of prediction, confidence and label."""
    value = sets[key]
    if not isinstance(value, (list, tuple)) or len(value) < 3:
        raise InvalidInputError(f"'{name}' must be a list [pred, conf, gt].")
    paths = sets.get(f"{key}_paths")
    return make_part(value[0], value[1], value[2], direction=direction, dataset=name, group=group, path=paths)
