# SPDX-License-Identifier: BSD-3-Clause
"""Write a model's whole decision rule as one ONNX graph, which any runtime can serve without poscod, Python or PyTorch.

The graph takes `features` and `logits` of a network (or `input`, for a model with a scikit-learn classifier) and returns label (class index),
accept, reason, risk, log_ratio, score and posterior. With --backbone it stands behind the network itself and takes its inputs.

Convention: numbers are combined in double precision unless --precision float32 is given; class names, reasons and the threshold are in the
metadata.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from poscod.cli._console import Console, add_output_options
from poscod.cli._models import add_model_options, load_model
from poscod.cli._tables import check_output
from poscod.exceptions import InvalidInputError

EXAMPLES = (
    "poscod export model.poscod -o rule.onnx",
    "poscod export model.poscod --backbone network.onnx -o whole.onnx",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_options(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="ONNX file to write")
    parser.add_argument("--backbone", metavar="FILE", help="ONNX network whose activations the model was fitted on")
    parser.add_argument(
        "--features", metavar="NAME", help="value of the network that is the features, if it is not found"
    )
    parser.add_argument(
        "--logits", metavar="NAME", help="value of the network that is the logits, if it has several outputs"
    )
    parser.add_argument(
        "--dtype", choices=("float32", "float64"), help="type of the inputs (default: float32 for networks)"
    )
    parser.add_argument(
        "--precision",
        choices=("float64", "float32"),
        default="float64",
        help="type of everything else (default: float64)",
    )
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """Export a model."""
    from poscod.backends.onnx import export_rule

    console = Console.of(args)
    check_output(args.output, [args.model, *([args.backbone] if args.backbone else [])])
    if Path(args.output).suffix.lower() != ".onnx":
        raise InvalidInputError(f"--output must end in .onnx, got '{args.output}'.")
    model = load_model(args)
    options = {name: getattr(args, name) for name in ("backbone", "features", "logits", "dtype", "precision")}
    proto = export_rule(model, args.output, **options)
    taken, given = ([value.name for value in values] for values in (proto.graph.input, proto.graph.output))
    size = Path(args.output).stat().st_size
    console.answer(
        {"command": "export", "output": str(args.output), "inputs": taken, "outputs": given, "bytes": size},
        f"Takes {', '.join(taken)}; returns {', '.join(given)}.",
        f"Written: {args.output} ({size / 1e6:.1f} MB)",
    )
