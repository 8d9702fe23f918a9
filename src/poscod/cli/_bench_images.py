# SPDX-License-Identifier: BSD-3-Clause
"""Activations of OpenOOD's images, extracted once before a benchmark runs.

Convention: the output of a list of images is one file, kept with the digest of everything it depends on: names, sizes and times of the
images and of the weights, labels, preprocessing. It is made anew only when that digest changes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from poscod._files import replacing
from poscod._validation import check_choice
from poscod.benchmark import DEFINITIONS, BenchmarkSpec
from poscod.exceptions import InvalidInputError

__all__ = ["extract_images"]


def extract_images(
    spec: BenchmarkSpec, out: Path, say: Callable[[str], None], *, batch_size: int = 256
) -> BenchmarkSpec:
    """Run the network over all lists of images of a specification."""
    from poscod.backends.images import NORMALISATIONS, open_images
    from poscod.backends.torch import build_network, extract

    definition = DEFINITIONS[spec.id_set]
    mean, std = check_choice(spec.normalisation or spec.id_set, "normalisation", NORMALISATIONS)
    size = {"resize": definition.resize, "crop": definition.crop}
    out.mkdir(parents=True, exist_ok=True)
    lists = list(_lists(spec))
    for fold in spec.folds:
        network = None
        for part, imglist, folder in lists:
            place = spec.path(imglist, fold)
            if not place.is_file():
                raise InvalidInputError(
                    f"{place}, the list of images of '{part}', is not there: root must be OpenOOD's data folder."
                )
            images = open_images(place, root=spec.path(folder, fold), mean=mean, std=std, **size)
            if part.startswith("ood"):
                images = dataclasses.replace(images, labels=None)  # of other classes
            checkpoint = spec.path(spec.checkpoint, fold)
            target = out / _name(part).replace("{fold}", fold)
            note = target.with_suffix(".txt")
            made_from = _digest([spec.network, repr(images), mean, std], [checkpoint, *images.items], images.labels)
            if target.is_file() and note.is_file() and note.read_text() == made_from:
                say(f"{target.name}: {len(images)} images, extracted before")
                continue
            if network is None:
                network = build_network(spec.network, definition.n_classes, checkpoint)
            say(f"{target.name}: {len(images)} images")
            extract(network, images.batches(batch_size), to=target)
            with replacing(note) as file:
                file.write(made_from.encode())
    parts = {part for part, _, _ in lists}
    files: dict[str, Any] = {part: _name(part) if part in parts else "" for part in ("id_test", "bank", "id_train")}
    for group in ("near", "far"):
        files[group] = {name: _name(f"ood_{name}") for name in getattr(spec, group)}
    files["train"] = {name: _name(f"ood_train_{name}") for name in spec.train}
    return dataclasses.replace(spec, source="activations", root=str(out), head="", **files)


def _lists(spec: BenchmarkSpec) -> Iterator[tuple[str, str, str]]:
    """Yield the lists of images: which part of the specification each is, where it lies, and where its images lie."""
    definition = DEFINITIONS[spec.id_set]
    yield "id_test", spec.id_test or definition.imglist, definition.images
    for part in ("bank", "id_train"):
        if getattr(spec, part):
            yield part, getattr(spec, part), definition.images
    for name, imglist in {**spec.near, **spec.far}.items():
        known = definition.sets.get(name)
        if not imglist and known is None:
            raise InvalidInputError(
                f"near and far must name the list of images of '{name}', which {spec.id_set} does not have: it has "
                f"{', '.join(definition.sets)}."
            )
        images = definition.images if known is None else known.images
        yield f"ood_{name}", imglist or (known.imglist if known else ""), images
        if name in spec.train:
            train = spec.train[name] or (known.train_imglist if known else "")
            if not train:
                raise InvalidInputError(f"train must name the list of training images of '{name}': OpenOOD ships none.")
            yield f"ood_train_{name}", train, images


def _name(part: str) -> str:
    return f"{{fold}}-{part}.npz"


def _digest(recipe: list[Any], files: Sequence[Path], labels: Any) -> str:
    """Return what stands for a recipe and for files as they are; a file is another if its name, size or time is."""
    sha = hashlib.sha256(json.dumps([recipe, None if labels is None else labels.tolist()]).encode())
    for path in files:
        status = path.stat()
        sha.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return sha.hexdigest()
