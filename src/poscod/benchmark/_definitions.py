# SPDX-License-Identifier: BSD-3-Clause
"""The paper's benchmarks as data: which sets, how many rows, which lists of images, how each set is split.

Convention: names of sets are the paper's (``textures``, where OpenOOD 1.5 also says ``texture``); paths are relative to OpenOOD's
``data`` folder. "dedicated" sets have a training part of their own from which the ratio learns; the others are cut at random, one
half to learn from and one half to measure on (appendix B of the paper).
"""

from __future__ import annotations

from typing import NamedTuple

_SMALL, _LARGE = "images_classic", "images_largescale"


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


def _small(name: str, other: str, tin: int, places: int) -> Definition:
    """CIFAR-10 and CIFAR-100 are each other's near OOD and share the rest, up to images that overlap in meaning."""
    test = f"benchmark_imglist/{name}/test_"
    train = f"benchmark_imglist/{other}/train_{other}.txt"
    sets = {
        other: OodSet("near", 9000, "dedicated", f"{test}{other}.txt", _SMALL, train),
        "tin": OodSet("near", tin, "dedicated", f"{test}tin.txt", _SMALL),
        "mnist": OodSet("far", 70000, "half", f"{test}mnist.txt", _SMALL),
        "svhn": OodSet("far", 26032, "dedicated", f"{test}svhn.txt", _SMALL),
        "textures": OodSet("far", 5640, "half", f"{test}texture.txt", _SMALL),
        "places365": OodSet("far", places, "half", f"{test}places365.txt", _SMALL),
    }
    return Definition(
        n_classes=int(name.removeprefix("cifar")),
        rows=9000,
        network="resnet18_32x32",
        folds=("s0", "s1", "s2"),
        imglist=f"{test}{name}.txt",
        images=_SMALL,
        resize=32,
        crop=32,
        sets=sets,
    )


def _imagenet() -> Definition:
    test = "benchmark_imglist/imagenet/test_"
    sets = {
        "ssb_hard": OodSet("near", 49000, "half", f"{test}ssb_hard.txt", _LARGE),
        "ninco": OodSet("near", 5879, "half", f"{test}ninco.txt", _LARGE),
        "inaturalist": OodSet("far", 10000, "half", f"{test}inaturalist.txt", _LARGE),
        "textures": OodSet("far", 5640, "half", f"{test}textures.txt", _SMALL),
        "openimage_o": OodSet("far", 15869, "half", f"{test}openimage_o.txt", _LARGE),
    }
    return Definition(
        n_classes=1000,
        rows=45000,
        network="resnet50",
        folds=("s0",),
        imglist=f"{test}imagenet.txt",
        images=_LARGE,
        resize=256,
        crop=224,
        sets=sets,
    )


DEFINITIONS: dict[str, Definition] = {
    "cifar10": _small("cifar10", "cifar100", 7793, 35195),
    "cifar100": _small("cifar100", "cifar10", 6526, 33773),
    "imagenet": _imagenet(),
}
"""Benchmarks of the paper by the name of their ID set."""
