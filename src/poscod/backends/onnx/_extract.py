# SPDX-License-Identifier: BSD-3-Clause
"""From an ONNX network and its inputs to `Activations`, with onnxruntime.

Convention: as `poscod.backends.torch.extract`, for files that any framework wrote.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod.activations import Activations
from poscod.backends._running import as_batches, reason, split_labels, watched
from poscod.backends._spool import Spool
from poscod.backends.onnx._backbone import expose, find_ends, open_model
from poscod.exceptions import InvalidInputError


def extract(
    model: Any,
    data: Any,
    *,
    features: str | None = None,
    logits: str | None = None,
    dtype: str = "float32",
    to: str | os.PathLike[str] | None = None,
    batch_size: int = 256,
    providers: list[str] | None = None,
    progress: bool | None = None,
) -> Activations:
    """Run an ONNX network and keep features, logits, labels and the last layer.

    Parameters
    ----------
    model : str, path-like or ModelProto
        The network, or the file that holds it.
    data : ndarray, pair (inputs, labels) of ndarray, or iterable of batches
        A batch is an array, a pair (array, labels), or a mapping of the network's input names (and ``labels``).
    features, logits : str, default=None
        Names of these values in the network; None finds them at its last linear layer.
    dtype : {"float32", "float64"}, default="float32"
        What numbers are kept as.
    to : str or path-like, default=None
        A file (.npz or .safetensors) to write batch by batch; what is returned is a memory map of it.
    batch_size : int, default=256
        For arrays.
    providers : list of str, default=None
        Of onnxruntime; None is the CPU.
    progress : bool, default=None
        Whether to show a bar; None shows one on a terminal.

    Returns
    -------
    activations : Activations
        ``weight`` and ``bias`` are there if ``logits = features @ weight.T + bias`` holds, which is checked on the first rows.
    """
    runtime = require("onnxruntime", extra="onnx", feature="Running an ONNX network")
    network = open_model(model)
    ends = find_ends(network, features, logits)
    try:
        session = runtime.InferenceSession(
            expose(network, ends).SerializeToString(), providers=providers or ["CPUExecutionProvider"]
        )
    except Exception as error:
        raise InvalidInputError(f"The network could not be loaded by onnxruntime ({reason(error)}).") from None
    as_dtype = require("onnx.helper", extra="onnx", feature="Reading an ONNX model").tensor_dtype_to_np_dtype
    given = {value.name: as_dtype(value.type.tensor_type.elem_type) for value in network.graph.input}
    dtypes = {value.name: given[value.name] for value in session.get_inputs()}
    with Spool(to, dtype=dtype) as spool:
        for batch in watched(as_batches(data, batch_size, "data"), "extract", progress, extra="onnx"):
            feed, labels = _feed(batch, dtypes)
            try:
                x, z = session.run([ends.features, ends.logits], feed)
            except Exception as error:
                raise InvalidInputError(f"The network could not be run on this input ({reason(error)}).") from None
            x, z = (
                value.reshape(len(value), -1) if value.ndim > 2 and value[0].size == value.shape[1] else value
                for value in (x, z)
            )
            spool.add(x, z, labels)
        return spool.finish(ends.weight, ends.bias)


def _feed(batch: Any, dtypes: dict[str, np.dtype[Any]]) -> tuple[dict[str, NDArray[Any]], Any]:
    """Tell inputs from labels and give inputs the types the network takes."""
    given, labels = split_labels(batch, dtypes)
    feed = given if isinstance(given, Mapping) else {next(iter(dtypes)): given}
    if missing := [name for name in dtypes if name not in feed]:
        raise InvalidInputError(
            f"The network also takes '{missing[0]}': give batches as mappings of its inputs {sorted(dtypes)}."
        )
    return {name: np.ascontiguousarray(feed[name], dtype=dtype) for name, dtype in dtypes.items()}, labels
