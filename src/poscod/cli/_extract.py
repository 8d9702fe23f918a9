# SPDX-License-Identifier: BSD-3-Clause
"""Run a network over images or texts and keep its features, logits, labels and last layer.

For images the input is a folder of images (its subfolders are the classes, in alphabetical order), a list of them (.txt; one line per image: path and
label, as OpenOOD writes them), or an archive (.npz) with `images` (n, height, width, 3) of bytes or `inputs` as the network takes them, and `labels`.
The network is an ONNX file (--onnx, nothing of PyTorch is needed), an exported program (.pt2), package.module:callable, which is imported
and called without arguments, or the name of a built-in network (resnet56_32x32, resnet18_32x32, ...), the last two with --weights.

For texts the input is a table with a column of texts (--text) or a file with one text a line (.txt), and the network a local folder (--model): a sequence classifier of transformers, or
a model of sentence-transformers. Nothing is downloaded. A table (.parquet) keeps its columns and gets embedding and logit_CLASS.

Convention: the layer that makes the logits is found by itself; its input are the features. Rows must be rows the network was not trained on
if they are to set thresholds. The file is written batch by batch and appears as a whole. It is a table for the other commands:
poscod fit known.npz traffic.npz --target labels --embedding features --logits logits.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._files import check_source
from poscod._validation import check_count
from poscod.activations import Activations, file_format
from poscod.backends.images import NORMALISATIONS, Images, open_images
from poscod.backends.texts import is_text_model
from poscod.cli._console import Console, add_output_options, percent
from poscod.cli._tables import check_output
from poscod.cli._texts import run_texts
from poscod.exceptions import InvalidInputError

EXAMPLES = (
    "poscod extract images/ --onnx network.onnx --resize 256 --crop 224 --normalise imagenet -o known.npz",
    "poscod extract test_cifar10.txt --root data/ --model resnet18_32x32 --weights best.ckpt --normalise cifar10 -o known.npz",
    "poscod extract pixels.npz --model mypackage.networks:build --weights net.safetensors --layer classifier -o rows.npz",
    "poscod extract questions.csv --text question --target intent --model my-classifier/ -o known.parquet",
)


BATCH = 256
SAMPLE = 256
"""Rows on which other normalisations are tried."""
_UNTRAINED = (
    "{name} has random weights, and what it says of images would mean nothing: name its checkpoint with --weights FILE (.pt, .th, .ckpt or .safetensors), "
    "or say --untrained."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "input", help="folder of images, list of images (.txt) or archive (.npz); or a table or list (.txt) of texts"
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="activations to write: .npz or .safetensors; of texts also a table (.parquet, .arrow)",
    )
    network = parser.add_argument_group("network").add_mutually_exclusive_group(required=True)
    network.add_argument(
        "--model",
        metavar="NETWORK",
        help="package.module:callable, a .onnx or .pt2 file, a built-in name, or the folder of a language model",
    )
    network.add_argument("--onnx", metavar="FILE", help="an ONNX network; the same as --model FILE.onnx")
    about = parser.add_argument_group("about the network")
    about.add_argument("--weights", metavar="FILE", help="checkpoint: a state dict (.pt, .th, .ckpt) or .safetensors")
    about.add_argument(
        "--untrained", action="store_true", help="run a network without --weights, whose weights are random"
    )
    about.add_argument(
        "--classes", type=int, default=10, metavar="K", help="classes of a built-in network (default: 10)"
    )
    about.add_argument(
        "--layer", metavar="NAME", help="layer (PyTorch) or value before the layer (ONNX) to take, if it is not found"
    )
    images = parser.add_argument_group("images")
    images.add_argument("--root", metavar="FOLDER", help="where the paths of a list start (default: the list's folder)")
    images.add_argument("--resize", type=int, metavar="PIXELS", help="length of the shorter side")
    images.add_argument("--crop", type=int, metavar="PIXELS", help="side of the square cut out of the middle")
    images.add_argument(
        "--normalise",
        choices=sorted(NORMALISATIONS),
        default="none",
        help="mean and deviation of the channels (default: none)",
    )
    images.add_argument("--mean", type=float, nargs=3, metavar="M", help="mean of each channel, instead of --normalise")
    images.add_argument(
        "--std", type=float, nargs=3, metavar="S", help="deviation of each channel, instead of --normalise"
    )
    images.add_argument(
        "--labels",
        choices=("keep", "drop", "ood"),
        default="keep",
        help="keep labels, drop them (classes of another data set), or mark all rows as OOD (default: keep)",
    )
    texts = parser.add_argument_group("texts")
    texts.add_argument("--text", metavar="COLUMN", help="column of texts")
    texts.add_argument("--target", metavar="COLUMN", help="column of labels, to count how often a classifier is right")
    texts.add_argument(
        "--max-tokens", type=int, metavar="N", help="tokens to read of a text (default: what the model can)"
    )
    how = parser.add_argument_group("how to run")
    how.add_argument("--batch-size", type=int, metavar="N", help="rows at a time (default: 256 images, 32 texts)")
    how.add_argument("--jobs", type=int, default=2, metavar="N", help="threads that read images (default: 2)")
    how.add_argument("--workers", type=int, dest="jobs", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    how.add_argument("--device", metavar="NAME", help="device of PyTorch, such as cuda (default: cpu)")
    how.add_argument("--amp", choices=("float16", "bfloat16"), help="mixed precision (PyTorch)")
    how.add_argument(
        "--dtype", choices=("float32", "float64"), default="float32", help="what is written (default: float32)"
    )
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """Extract activations."""
    console = Console.of(args)
    check_output(args.output, [args.input, *([args.weights] if args.weights else [])])
    if args.text is not None or (args.onnx is None and is_text_model(args.model)):
        run_texts(args, console, doubts)
        return
    for option in ("target", "max_tokens"):
        if getattr(args, option) is not None:
            raise InvalidInputError(
                f"--{option.replace('_', '-')} is for texts: leave it out, or name their column with --text."
            )
    args.batch_size = BATCH if args.batch_size is None else args.batch_size
    file_format(Path(args.output), "--output")
    network, data = _network(args), _open(args)
    found = _extract(args, network, data, args.output)
    document: dict[str, Any] = {
        "command": "extract",
        "rows": len(found),
        "features": found.n_features,
        "classes": found.n_classes,
        "labeled": 0,
        "accuracy": None,
        "output": str(args.output),
        "warnings": [],
    }
    lines = [f"{len(found):,} rows: {found.n_features} features, {found.n_classes} logits."]
    known = np.zeros(0, dtype=bool) if found.labels is None else found.labels >= 0
    if known.any():
        right = found.logits[known].argmax(axis=1) == found.labels[known]
        accuracy = float(right.mean())
        document |= {"labeled": len(right), "accuracy": accuracy}
        lines.append(f"The network is right on {percent(accuracy)} of the {len(right):,} labeled rows.")
        document["warnings"] = [
            *doubts(right, found.labels[known]),
            *_other_normalisation(args, network, data, np.flatnonzero(known)),
        ]
    lines += [f"Note: {text}" for text in document["warnings"]]
    console.answer(document, *lines, f"Written: {args.output}")


def doubts(right: NDArray[np.bool_], labels: NDArray[Any]) -> list[str]:
    """Return what there is to doubt about the answers of a network on labeled rows."""
    guess = float(np.unique(labels, return_counts=True)[1].max() / len(labels))
    if right.mean() > guess + 2.0 * np.sqrt(guess * (1.0 - guess) / len(right)) or guess == 1.0:
        return []
    return [
        f"that is not more than always answering the most frequent class ({percent(guess)}): are the weights those of this network, are its inputs "
        "prepared as in training, and are the labels in the order of its outputs?"
    ]


def _other_normalisation(args: argparse.Namespace, network: Any, data: Any, labeled: NDArray[Any]) -> list[str]:
    """Return a note where a usual normalisation other than the one asked for makes a network right more often on some of the rows."""
    if not isinstance(data, Images):
        return []
    rows = data.take(labeled[:: -(-len(labeled) // SAMPLE)])

    def right(mean: Any, std: Any) -> NDArray[Any]:
        found = _extract(args, network, replace(rows, mean=tuple(mean), std=tuple(std)), None)
        return np.asarray(found.logits.argmax(axis=1) == found.labels)

    own = right(data.mean, data.std)
    tried = {name: right(*numbers) for name, numbers in NORMALISATIONS.items() if numbers != (data.mean, data.std)}
    better = sorted((name for name in tried if _clearly(tried[name], own)), key=lambda name: -tried[name].mean())
    if not better:
        return []
    shares = ", ".join(f"{percent(float(tried[name].mean()))} with --normalise {name}" for name in better)
    return [
        f"of {len(own):,} of these rows the network is right on {percent(float(own.mean()))}, and on {shares}: say how it was trained with --normalise, "
        "or --mean and --std."
    ]


def _clearly(other: NDArray[Any], own: NDArray[Any]) -> bool:
    """Tell whether answers are better than others: twice so many errors repaired as made, and three standard errors of the difference."""
    won, lost = int((other & ~own).sum()), int((~other & own).sum())
    return won >= 2 * lost and won - lost > 3.0 * np.sqrt(won + lost)


def _open(args: argparse.Namespace) -> Any:
    """Open the input as arrays or as images."""
    source = Path(args.input)
    if not source.exists():
        raise FileNotFoundError(2, "No such file or directory", str(source))
    if source.suffix == ".npz":
        check_source(source)
        with np.load(source, allow_pickle=False) as archive:
            if "inputs" in archive:
                labels = _labels(args, archive.get("labels"), len(archive["inputs"]))
                return archive["inputs"] if labels is None else (archive["inputs"], labels)
    mean, std = NORMALISATIONS[args.normalise]
    images = open_images(
        source, root=args.root, resize=args.resize, crop=args.crop, mean=args.mean or mean, std=args.std or std
    )
    return replace(images, labels=_labels(args, images.labels, len(images)))


def _labels(args: argparse.Namespace, labels: Any, n: int) -> Any:
    return {"keep": labels, "drop": None, "ood": np.full(n, -1)}[args.labels]


def _extract(args: argparse.Namespace, network: Any, data: Any, to: str | None) -> Activations:
    """Run a network over the input, to a file or, for a sample, in memory."""
    if isinstance(data, Images):
        data = data.batches(args.batch_size, workers=check_count(args.jobs, "--jobs"))
    progress = False if args.quiet or to is None else None
    options = {"dtype": args.dtype, "to": to, "batch_size": args.batch_size, "progress": progress}
    if not isinstance(network, str):
        from poscod.backends.torch import extract

        return extract(network, data, args.layer, device=args.device, amp=args.amp, **options)
    from poscod.backends.onnx import extract as extract_onnx

    return extract_onnx(network, data, features=args.layer, **options)


def _network(args: argparse.Namespace) -> Any:
    """Build the network that was named; an ONNX network is the name of its file."""
    name = args.onnx if args.onnx is not None else args.model
    if args.onnx is not None or Path(name).suffix == ".onnx":
        for option in ("weights", "device", "amp"):
            if getattr(args, option) is not None:
                raise InvalidInputError(f"--{option} is for PyTorch networks: an ONNX network has its weights inside.")
        return str(name)
    from poscod.backends.torch import NETWORKS, build_network, load_exported, load_weights

    if name in NETWORKS:
        if args.weights is None and not args.untrained:
            raise InvalidInputError(_UNTRAINED.format(name=name))
        return build_network(name, args.classes, args.weights)
    if Path(name).suffix == ".pt2":
        if args.weights is not None:
            raise InvalidInputError("--weights is not for exported programs: they have their weights inside.")
        return load_exported(name)
    module, colon, attribute = name.partition(":")
    if not colon:
        raise InvalidInputError(
            f"--model must be package.module:callable, a .onnx or .pt2 file, the folder of a language model, or one of {', '.join(NETWORKS)}, got '{name}'."
        )
    sys.path.insert(0, os.getcwd())  # where people keep the module they name
    try:
        build = getattr(importlib.import_module(module), attribute)
        model, again = build(), build() if args.weights is None and not args.untrained else None
    except Exception as error:
        raise InvalidInputError(f"--model {name} could not be built ({type(error).__name__}: {error}).") from error
    finally:
        sys.path.remove(os.getcwd())
    if again is not None and _differ(model, again):
        raise InvalidInputError(_UNTRAINED.format(name=name))
    return model if args.weights is None else load_weights(model, args.weights)


def _differ(model: Any, again: Any) -> bool:
    """Tell whether two networks of one maker have other weights: then they are random."""
    pairs = zip(*(getattr(made, "state_dict", dict)().values() for made in (model, again)), strict=False)
    return any(one.shape != two.shape or not bool((one == two).all()) for one, two in pairs)
