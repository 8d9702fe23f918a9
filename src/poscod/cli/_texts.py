# SPDX-License-Identifier: BSD-3-Clause
"""`poscod extract` of texts: a language model over a column of texts.

Convention: a table keeps all its columns and gets ``embedding`` and, from a classifier, ``logit_CLASS`` for every class, so that ``poscod fit`` finds the names of the classes by itself.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._files import check_source
from poscod._validation import listed
from poscod.activations import FORMATS, Activations
from poscod.backends.texts import TextModel, open_text_model
from poscod.cli._columns import Block, arrow
from poscod.cli._console import Console, percent
from poscod.cli._tables import TableWriter, format_of, open_table
from poscod.exceptions import InvalidInputError

BATCH = 32
_IMAGES = ("onnx", "weights", "untrained", "root", "resize", "crop", "mean", "std")


def run_texts(args: argparse.Namespace, console: Console, doubts: Any) -> None:
    """Extract activations of texts; `doubts` says what is odd about answers on labeled rows."""
    _refuse_options(args)
    output = Path(args.output)
    as_table = output.suffix.lower() not in FORMATS
    if as_table:
        format_of(output)
    if output.suffix.lower() == ".csv":
        raise InvalidInputError(
            "--output must hold lists of numbers, which CSV cannot: write .parquet, .arrow or .npz."
        )
    block, column = _read(args)
    model = open_text_model(args.model, max_tokens=args.max_tokens)
    labels = None if args.target is None else _codes(block, args.target, model.classes)
    if as_table and (twice := [name for name in _names(model) if name in block]):
        raise InvalidInputError(f"{args.input} already has the column {twice[0]!r}: rename it.")
    found = model.activations(
        block[column].tolist(),
        labels=labels,
        batch_size=BATCH if args.batch_size is None else args.batch_size,
        to=None if as_table else output,
        progress=False if args.quiet else None,
        **{name: getattr(args, name) for name in ("device", "amp", "layer", "dtype")},
    )
    if as_table:
        made = found.features if not model.classes else np.hstack([found.features, found.logits])
        wide = found.n_features
        parts = (made[:, :wide], *made[:, wide:].T)
        with TableWriter(output) as file:
            file.write({**{name: block.table[name] for name in block}, **dict(zip(_names(model), parts, strict=True))})
    _tell(args, console, model, found, labels, doubts)


def _refuse_options(args: argparse.Namespace) -> None:
    """Refuse options that are for images."""
    usual = {"normalise": "none", "labels": "keep"}
    given = [name for name in (*_IMAGES, *usual) if getattr(args, name) not in (None, False, usual.get(name))]
    if given:
        raise InvalidInputError(f"--{given[0]} is not for texts: leave it out.")


def _read(args: argparse.Namespace) -> tuple[Block, str]:
    """Return a table and the name of its column of texts; a text file has one text a line."""
    source = Path(args.input)
    if source.suffix.lower() == ".txt":
        check_source(source)
        if args.text or args.target:
            raise InvalidInputError(f"{source} has one text a line and no columns: leave out --text and --target.")
        lines = [line.strip() for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not lines:
            raise InvalidInputError(f"{source} has no texts: it needs at least one line.")
        return Block(arrow().table({"text": lines}), source), "text"
    table = open_table(source, whole=True)
    if args.text is None:
        texts = [column.name for column in table.columns.values() if column.kind == "text"]
        raise InvalidInputError(
            f"--text is missing: name the column of {source} with the texts, one of {listed(texts or table.columns)}."
        )
    table.need([args.text, *([args.target] if args.target else [])])
    if table.columns[args.text].kind != "text":
        raise InvalidInputError(
            f"--text must name a column of texts, and '{args.text}' of {source} holds {table.columns[args.text].kind}s."
        )
    return table.read(), args.text


def _names(model: TextModel) -> list[str]:
    """Return the names of the columns that a model adds to a table."""
    return ["embedding", *(f"logit_{name}" for name in model.classes)]


def _codes(block: Block, target: str, classes: tuple[str, ...]) -> NDArray[np.int64]:
    """Return class indices of labels by name, or by number where classes have none of their own; -1 for labels that are no class."""
    position = {name: code for code, name in enumerate(classes)}
    if all(name == f"LABEL_{code}" for code, name in enumerate(classes)):
        position |= {str(code): code for code in range(len(classes))}
    return np.array([position.get(str(value), -1) for value in block[target].tolist()], dtype=np.int64)


def _tell(
    args: argparse.Namespace, console: Console, model: TextModel, found: Activations, labels: Any, doubts: Any
) -> None:
    """Say what was made, how often a classifier is right, what was cut, and what comes next."""
    n, notes = len(found), []
    document: dict[str, Any] = {
        "command": "extract",
        "rows": n,
        "features": found.n_features,
        "classes": len(model.classes),
        "labeled": 0,
        "accuracy": None,
        "max_tokens": model.max_tokens,
        "cut": model.cut,
        "output": str(args.output),
    }
    lines = [
        f"{n:,} texts: {found.n_features} features" + (f", {len(model.classes)} logits." if model.classes else ".")
    ]
    known = np.zeros(0, dtype=bool) if labels is None or not model.classes else labels >= 0
    if known.any():
        right = found.logits[known].argmax(axis=1) == labels[known]
        document |= {"labeled": int(known.sum()), "accuracy": float(right.mean())}
        lines.append(f"The model is right on {percent(float(right.mean()))} of {int(known.sum()):,} labeled texts.")
        notes += doubts(right, labels[known])
    if len(known) and not known.all():
        notes.append(
            f"labels of column '{args.target}' that are no class of the model ({listed(model.classes, 6)}): {n - int(known.sum()):,}."
        )
    if model.cut:
        notes.append(
            f"cut at the end: {model.cut:,} of {n:,} texts, longer than the {model.max_tokens} tokens that are read."
        )
    table = Path(args.output).suffix.lower() not in FORMATS
    logits = "" if not model.classes else " --logits 'logit_*'" if table else " --logits logits"
    columns = f"--embedding {'embedding' if table else 'features'}{logits}"
    console.answer(
        document | {"warnings": notes},
        *lines,
        *(f"Note: {text}" for text in notes),
        f"Written: {args.output}",
        f"Its columns for poscod fit: {columns}",
    )
