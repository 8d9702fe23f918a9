# SPDX-License-Identifier: BSD-3-Clause
"""From a network and its inputs to `Activations`.

Convention: features are the input of the last layer, logits its output; numbers leave as float32 unless asked otherwise, in the order in
which the loader gives the rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from poscod._validation import check_choice
from poscod.activations import Activations
from poscod.backends._running import watched
from poscod.backends._spool import Spool
from poscod.backends.torch._batches import AMP, as_loader, call, evaluating, split_batch, to_device, unwrap
from poscod.backends.torch._exported import with_head
from poscod.backends.torch._last_layer import LastLayer

HALF = "half precision overflowed (float16 ends at 65504, and a sum of squares gets there soon): use {amp} bfloat16, or none."
# How far half-precision logits may be from those the last layer makes.
ROUGH = {torch.float16: 2e-2, torch.bfloat16: 1e-1}


def extract(
    model: Any,
    loader: Any,
    layer: str | None = None,
    *,
    device: str | torch.device | None = None,
    amp: str | None = None,
    dtype: str = "float32",
    to: str | os.PathLike[str] | None = None,
    batch_size: int = 256,
    progress: bool | None = None,
    classes: Sequence[str] | None = None,
) -> Activations:
    """Run a network and keep features, logits, labels and the last layer.

    Parameters
    ----------
    model : Module
        A classifier that returns logits: as a tensor, or somewhere in a mapping, dataclass or tuple (Hugging Face's are found under
        their name). It is run in evaluation mode and left in the mode it was in.
    loader : iterable of batches, Dataset, Tensor, ndarray, or a pair (inputs, labels) of the latter two
        A batch is an input, a pair (input, labels) or a mapping of the network's arguments.
    layer : str, default=None
        Name of the layer whose output is the logits and whose input is the features; None finds it: it is the layer with a weight matrix
        whose output equals what the network returns.
    device : str or torch.device, default=None
        Where to run; None is where the network is.
    amp : {"float16", "bfloat16"}, default=None
        Mixed precision.
    dtype : {"float32", "float64"}, default="float32"
        What numbers are kept as.
    to : str or path-like, default=None
        A file (.npz or .safetensors) to write; rows go to disk batch by batch, and what is returned is a memory map of it.
    batch_size : int, default=256
        For data that is not in batches yet.
    progress : bool, default=None
        Whether to show a bar; None shows one on a terminal.
    classes : sequence of str, default=None
        Names of the classes, in the order of the logits.

    Returns
    -------
    activations : Activations
        ``weight`` and ``bias`` are there if ``logits = features @ weight.T + bias`` holds, which is checked on the first rows.

    Examples
    --------
    >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> extract(network, (torch.randn(5, 4), torch.tensor([0, 1, 2, 0, -1])))
    Activations(features=(5, 8) float32, logits=(5, 3) float32, labels=(5,) int64, weight=(3, 8) float32, bias=(3,) float32)
    """
    model = with_head(unwrap(model))
    half = None if amp is None else check_choice(amp, "amp", AMP)
    batches = as_loader(loader, batch_size)
    with LastLayer(model, layer) as watch, Spool(to, dtype=dtype, classes=classes) as spool:
        with evaluating(model, device) as there, torch.inference_mode():
            for batch in watched(batches, "extract", progress, extra="torch"):
                rows = to_device(split_batch(batch), there)
                with torch.autocast(there.type, dtype=half, enabled=half is not None):
                    output = call(model, rows)
                features, logits = watch.read(output)
                spool.tolerance = ROUGH.get(logits.dtype, spool.tolerance)
                if torch.float16 in (features.dtype, logits.dtype):
                    spool.hint = HALF
                spool.add(_numpy(features), _numpy(logits), _numpy(rows.labels))
        return spool.finish(*(_numpy(part) for part in watch.head()))


def _numpy(value: Any) -> Any:
    """Return an array on the CPU; bfloat16, which numpy does not have, and float16 become float32."""
    if not isinstance(value, torch.Tensor):
        return value
    return (value.float() if value.dtype in ROUGH else value).detach().cpu().numpy()
