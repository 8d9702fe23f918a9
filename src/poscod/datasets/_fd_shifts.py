# SPDX-License-Identifier: BSD-3-Clause
"""Output folders of fd-shifts as activations.

Convention: rows keep the order of the files; the dataset index tells which test set a row belongs to.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from poscod.activations import Activations
from poscod.datasets._plain import read_arrays
from poscod.exceptions import InvalidInputError


def read_fd_shifts(path: str | os.PathLike[str], *, ood: tuple[int, ...] | list[int] = ()) -> dict[int, Activations]:
    """Read an output folder of fd-shifts.

    Parameters
    ----------
    path : str or path-like
        Folder with ``raw_logits.npz`` (``arr_0`` of shape (N, K + 2): logits, label, dataset index) and, if there,
        ``encoded_output.npz`` (``arr_0`` of shape (N, d + 1): features, dataset index) and ``last_layer.npz``
        (``w`` of shape (K, d), ``b`` of shape (K,)).
    ood : sequence of int, default=()
        Dataset indices whose rows are OOD: their labels become -1. Labels of other sets must be classes.

    Returns
    -------
    activations : dict of int to Activations
        One entry per dataset index, in increasing order; index 0 is the validation set when fd-shifts was run with
        ``val_tuning``.

    Notes
    -----
    The order of rows must be the same in both files; their dataset indices are compared, and a mismatch is refused. Half precision, in
    which fd-shifts saves by default, becomes double precision.
    """
    folder = Path(path)
    raw = read_arrays(folder / "raw_logits.npz", "arr_0")[0]
    if raw.ndim != 2 or raw.shape[1] < 3:
        raise InvalidInputError(f"{folder / 'raw_logits.npz'} must hold logits, label and dataset index per row.")
    logits, index = raw[:, :-2], raw[:, -1].astype(np.float64)
    # OOD labels name classes of another set: they say nothing about this classifier.
    labels = np.where(np.isin(index, ood), -1.0, raw[:, -2].astype(np.float64))
    features = None
    if (folder / "encoded_output.npz").is_file():
        encoded = read_arrays(folder / "encoded_output.npz", "arr_0")[0]
        if encoded.ndim != 2 or len(encoded) != len(raw) or not np.array_equal(encoded[:, -1], raw[:, -1]):
            raise InvalidInputError(
                f"{folder}: encoded_output.npz and raw_logits.npz must hold the same rows in the same order, but their "
                "dataset indices differ."
            )
        features = encoded[:, :-1]
    weight = bias = None
    if (folder / "last_layer.npz").is_file():
        weight, bias = read_arrays(folder / "last_layer.npz", "w", "b")
    every = Activations(features, logits, labels, weight, bias)
    result = {int(number): every[index == number] for number in np.unique(index).tolist()}
    if unknown := sorted(set(ood) - set(result)):
        raise InvalidInputError(f"ood must hold dataset indices of {folder} ({sorted(result)}), got {unknown[0]}.")
    return result
