# SPDX-License-Identifier: BSD-3-Clause
"""Images from folders, lists and arrays, ready for a network; neither torch nor onnx is needed.

Convention: an image leaves as float32 (3, height, width): scaled to [0, 1], minus the mean, divided by the standard deviation of each channel.
A label is a class index; -1 is an OOD or unlabeled image.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod._validation import check_count
from poscod.backends._running import Blocks
from poscod.exceptions import InvalidInputError

__all__ = ["NORMALISATIONS", "Images", "open_images"]

NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
"""Mean and standard deviation of each channel, by the data a network was trained on."""
SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}


@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """Images and, where known, their labels; a data set that `torch.utils.data.DataLoader` takes as it is.

    Parameters
    ----------
    items : sequence of path or ndarray of shape (n, height, width, 3), uint8
        Files, or the pixels themselves.
    labels : ndarray of shape (n,) or None, default=None
        Class indices; -1 is an OOD or unlabeled image.
    resize : int or None, default=None
        Length of the shorter side after resizing (bilinear).
    crop : int or None, default=None
        Side of the square cut out of the middle.
    mean, std : tuple of float
        Mean and standard deviation of each channel; the default changes nothing.

    Examples
    --------
    >>> images = Images(np.full((2, 8, 8, 3), 255, dtype=np.uint8), resize=4)
    >>> images[0].shape, float(images[0].max()), len(images)
    ((3, 4, 4), 1.0, 2)
    """

    items: Any
    labels: Any = None
    resize: int | None = None
    crop: int | None = None
    mean: tuple[float, ...] = NORMALISATIONS["none"][0]
    std: tuple[float, ...] = NORMALISATIONS["none"][1]

    def __post_init__(self) -> None:
        if isinstance(self.items, np.ndarray) and (
            self.items.ndim != 4 or self.items.shape[3] != 3 or self.items.dtype != np.uint8
        ):
            raise InvalidInputError(
                f"items must be uint8 pixels of shape (n, height, width, 3), got {self.items.dtype} {self.items.shape}."
            )
        if self.labels is not None and len(self.labels) != len(self.items):
            raise InvalidInputError(f"labels must be as many as images ({len(self.items)}), got {len(self.labels)}.")
        for name in ("resize", "crop"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"Images(n={len(self)}, labels={self.labels is not None}, resize={self.resize}, crop={self.crop})"

    def __getitem__(self, index: int) -> Any:
        """Return one image, with its label where there are labels."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        image = self._image(index)
        return image if self.labels is None else (image, int(self.labels[index]))

    def take(self, rows: Any) -> Images:
        """Return some of the images.

        Parameters
        ----------
        rows : slice or array-like of int
            Which ones.

        Returns
        -------
        images : Images
            Read and resized as these.
        """
        index = np.arange(len(self))[rows]
        items = self.items[index] if isinstance(self.items, np.ndarray) else [self.items[i] for i in index]
        return replace(self, items=items, labels=None if self.labels is None else np.asarray(self.labels)[index])

    def batches(self, batch_size: int = 256, *, workers: int = 1) -> Blocks:
        """Return an iterable of batches.

        Parameters
        ----------
        batch_size : int, default=256
            Images of a batch.
        workers : int, default=1
            Threads that read and resize.

        Returns
        -------
        batches : iterable
            Of (pixels, labels) with pixels of shape (n, 3, height, width), or of pixels alone without labels.
        """
        check_count(workers, "workers")

        def read(rows: slice) -> Any:
            with ThreadPoolExecutor(workers) as pool:
                found = list(pool.map(self._image, range(rows.start, rows.stop)))
            if len(shapes := {image.shape for image in found}) > 1:
                raise InvalidInputError(
                    "Images of one batch must have one size, got {got}: set {resize} and {crop}.", got=sorted(shapes)
                )
            pixels = np.stack(found)
            return pixels if self.labels is None else (pixels, np.asarray(self.labels[rows], dtype=np.int64))

        return Blocks(len(self), batch_size, read)

    def _image(self, index: int) -> NDArray[np.float32]:
        pixels = self.items[index]
        if not isinstance(pixels, np.ndarray) or self.resize is not None or self.crop is not None:
            pixels = self._read(pixels)
        mean, std = (np.array(values, dtype=np.float32) for values in (self.mean, self.std))
        scaled: NDArray[Any] = (pixels.astype(np.float32) / np.float32(255.0) - mean) / std
        return np.ascontiguousarray(scaled.transpose(2, 0, 1))

    def _read(self, item: Any) -> NDArray[Any]:
        """Return the pixels of a file, or of an array, after resizing and cropping."""
        pillow = require("PIL.Image", extra="torch", feature="Reading and resizing images")
        try:
            with pillow.fromarray(item) if isinstance(item, np.ndarray) else pillow.open(item) as opened:
                image = opened.convert("RGB")
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise InvalidInputError(f"{item} could not be read as an image ({error}).") from None
        if self.resize is not None:
            size = tuple(max(1, int(side * self.resize / min(image.size))) for side in image.size)
            image = image if size == image.size else image.resize(size, pillow.Resampling.BILINEAR)
        if self.crop is not None:
            if min(image.size) < self.crop:
                raise InvalidInputError(
                    "{parameter} must be at most the shorter side, got {got} for an image of {size[0]} x {size[1]}: set {resize}, too.",
                    parameter="crop",
                    got=self.crop,
                    size=image.size,
                )
            left, top = (round((side - self.crop) / 2) for side in image.size)
            image = image.crop((left, top, left + self.crop, top + self.crop))
        return np.asarray(image)


def _read_list(source: Path, root: str | os.PathLike[str] | None) -> tuple[list[Path], Any]:
    """Read paths and labels, None where no line has one."""
    folder = source.parent if root is None else Path(root)
    lines = [line.strip() for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise InvalidInputError(f"{source} must name at least one image, got an empty list.")
    pairs = [re.fullmatch(r"(.*\S) +(-1|\d+)", line) for line in lines]
    if not any(pairs):
        return [folder / line for line in lines], None
    if not all(pairs):
        raise InvalidInputError(
            f"{source}: all lines must end in a label, a class index or -1, or none, got '{lines[pairs.index(None)]}'."
        )
    return [folder / pair[1] for pair in pairs if pair], np.array([int(pair[2]) for pair in pairs if pair])


def open_images(
    path: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    resize: int | None = None,
    crop: int | None = None,
    mean: Sequence[float] = NORMALISATIONS["none"][0],
    std: Sequence[float] = NORMALISATIONS["none"][1],
) -> Images:
    r"""Open a folder of images, a list of them (.txt) or an archive of pixels (.npz).

    Parameters
    ----------
    path : str or path-like
        A folder: the names of its subfolders, sorted, are the classes; a folder without subfolders has no labels. A .txt file: one
        line per image, its path and, after a space, its label (OpenOOD's lists of images). A .npz file: ``images`` (n, height, width,
        3) uint8 and, if it has them, ``labels``.
    root : str or path-like, default=None
        Where the paths of a list start.
    resize : int, default=None
        Length of the shorter side.
    crop : int, default=None
        Side of the square cut out of the middle.
    mean, std : sequence of float
        Of each channel; the default changes nothing. `NORMALISATIONS` has the usual ones.

    Returns
    -------
    images : Images
        Nothing is read before an image is asked for.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "test.txt").write_text("cifar10/cat/1.png 3\ncifar100/bee/2.png -1\n")
    ...     images = open_images(folder + "/test.txt", root="images", resize=32)
    >>> [str(path) for path in images.items], images.labels
    (['images/cifar10/cat/1.png', 'images/cifar100/bee/2.png'], array([ 3, -1]))
    """
    source = Path(path)
    items: Any
    if source.is_dir():
        items, labels = _read_folder(source)
    elif source.suffix == ".npz":
        items, labels = _read_archive(source)
    elif source.suffix == ".txt":
        items, labels = _read_list(source, root)
    else:
        raise InvalidInputError(f"path must be a folder of images, a .txt list or a .npz archive, got '{source}'.")
    return Images(items, labels, resize, crop, tuple(mean), tuple(std))


def _read_folder(folder: Path) -> tuple[list[Path], Any]:
    classes = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    found = [
        (file, label)
        for label, place in enumerate(classes or [folder])
        for file in sorted(place.rglob("*"))
        if file.suffix.lower() in SUFFIXES
    ]
    if not found:
        raise InvalidInputError(f"{folder} must hold images ({', '.join(sorted(SUFFIXES))}), got none.")
    return [file for file, _ in found], np.array([label for _, label in found]) if classes else None


def _read_archive(path: Path) -> tuple[Any, Any]:
    with np.load(path, allow_pickle=False) as archive:
        if "images" not in archive:
            raise InvalidInputError(f"{path} must hold an array 'images', got {', '.join(archive.files) or 'nothing'}.")
        return archive["images"], archive.get("labels")
