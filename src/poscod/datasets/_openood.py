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

from poscod.datasets._pickles import read_pickle
from poscod.datasets._plain import read_arrays
from poscod.datasets._score_table import ScoreTable, join, make_part
from poscod.exceptions import InvalidInputError


def read_openood(path: str | os.PathLike[str], *, direction: str) -> ScoreTable:
    """Read a score dump of OpenOOD 1.5 or of the SCOD authors' fork of it, or score files of OpenOOD 1.

    Parameters
    ----------
    path : str or path-like
        Version 1.5: a pickle with ``{"id": {"test": [pred, conf, gt]}, "ood": {"near": {name: [pred, conf, gt]}, "far": ...}}``, torch
        tensors or numpy arrays inside; it goes through `read_pickle`. Version 1: an npz file with ``pred``, ``conf`` and ``label``, where
        -1 is OOD, or a folder of such files, one per set.
    direction : {"confidence", "uncertainty"}
        What the stored score is. OpenOOD writes confidences.

    Returns
    -------
    table : ScoreTable
        ID rows first, then sets under covariate shift, then OOD sets. Labels of OOD rows become -1, whatever the
        file says; `raw_label` keeps them.
    """
    source = Path(path)
    if source.is_dir() or source.suffix == ".npz":
        return _version_1(source, direction)
    content = read_pickle(path)
    if not isinstance(content, Mapping) or not isinstance(content.get("id"), Mapping) or "ood" not in content:
        raise InvalidInputError(f"{source} must hold a dict with 'id' and 'ood', as OpenOOD 1.5 writes it.")
    parts = []
    for group, name, value in [("id", "id", content["id"].get("test")), *_sets(content)]:
        if not isinstance(value, (list, tuple)) or len(value) < 3:
            raise InvalidInputError(f"'{name}' must be a list [pred, conf, gt].")
        parts.append(make_part(*value[:3], direction=direction, dataset=name, group=group))
    return join(parts)


def _sets(content: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Iterate over the sets besides ID: group, name, content."""
    if not isinstance(content["ood"], Mapping):
        raise InvalidInputError("'ood' must be a dict of groups such as 'near' and 'far'.")
    for group, sets in [("csid", content.get("csid")), *content["ood"].items()]:
        if isinstance(sets, Mapping):  # 'val' is a single set and belongs to tuning
            for name, value in sets.items():
                is_scored = value is not None and not (isinstance(value, Mapping) and not value)
                is_paths = str(name).endswith("_paths") and str(name)[: -len("_paths")] in sets  # of the fork
                if is_scored and not is_paths:
                    yield str(group), str(name), value


def _version_1(source: Path, direction: str) -> ScoreTable:
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
