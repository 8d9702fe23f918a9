# SPDX-License-Identifier: BSD-3-Clause
"""The paper's benchmarks: which sets, how many rows, which lists of images, how each set is split.

Convention: the data are in ``definitions.json``. Names of sets are the paper's (``textures``, where OpenOOD 1.5 also says ``texture``); paths are relative to OpenOOD's
``data`` folder. "dedicated" sets have a training part of their own from which the ratio learns; the others are cut at random, one
half to learn from and one half to measure on (appendix B of the paper).
"""

from __future__ import annotations

import importlib.resources
import json
from typing import NamedTuple


class OodSet(NamedTuple):
    """One OOD set of a benchmark.

    Attributes
    ----------
    group : str
        "near" or "far".
    rows : int
        Rows of the evaluation list, before any random half is set aside.
    split : str
        "dedicated": the ratio learns from a training set of its own and all rows are measured; "half": at random.
    imglist, images : str
        List of images and the folder its paths are relative to.
    train_imglist : str
        List of the dedicated training set; "" where OpenOOD ships none (then name your own, or the set is cut in halves).
    """

    group: str
    rows: int
    split: str
    imglist: str
    images: str
    train_imglist: str = ""


class Definition(NamedTuple):
    """One ID set with its OOD sets.

    Attributes
    ----------
    n_classes, rows : int
        Classes, and ID rows measured.
    network : str
        The classifier of the paper.
    folds : tuple of str
        Trained copies of the network; results are means over them.
    imglist, images : str
        List of the ID test images, and the folder its paths are relative to.
    resize, crop : int
        Shorter side of an image, and side of the square cut out of its middle, before it enters the network.
    sets : dict of str to OodSet
        OOD sets by name.
    """

    n_classes: int
    rows: int
    network: str
    folds: tuple[str, ...]
    imglist: str
    images: str
    resize: int
    crop: int
    sets: dict[str, OodSet]


def _read() -> dict[str, Definition]:
    text = importlib.resources.files("poscod.benchmark").joinpath("definitions.json").read_text(encoding="utf-8")
    found = {}
    for name, fields in json.loads(text).items():
        sets = {ood_set: OodSet(**values) for ood_set, values in fields.pop("sets").items()}
        found[name] = Definition(**{**fields, "folds": tuple(fields["folds"]), "sets": sets})
    return found


DEFINITIONS: dict[str, Definition] = _read()
"""Benchmarks of the paper by the name of their ID set."""
