# SPDX-License-Identifier: BSD-3-Clause
"""Arrow IPC streams: a batch of rows in, a table of decisions out.

Convention: a stream is refused before it is decoded if it is compressed (its size would then be unbounded), holds more rows than
allowed, more columns than the model has, or a column of a type that is neither number, boolean, text nor list of numbers.
Dictionaries are refused, too: a few bytes of indices would stand for any amount of text.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod.serve._say import Refusal, too_many

ARROW_TYPE = "application/vnd.apache.arrow.stream"
# Numbers of fields in Arrow's Message.fbs: what a message holds, and how a record batch is compressed.
_HEADER, _COMPRESSION = 2, 3


def _pyarrow(name: str = "pyarrow") -> Any:
    return require(name, extra="serve", feature="Arrow bodies")


def _field(data: memoryview, table: int, number: int) -> int:
    """Return the position of a field of a flatbuffers table, or 0 where it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    slot = 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + slot)[0] if slot < size else 0
    return table + offset if offset else 0


def _follow(data: memoryview, position: int) -> int:
    return position + int(struct.unpack_from("<I", data, position)[0])


def _is_compressed(metadata: memoryview) -> bool:
    """Tell whether a record batch is compressed, from the metadata of its message."""
    header = _follow(metadata, _field(metadata, _follow(metadata, 0), _HEADER))
    return bool(_field(metadata, header, _COMPRESSION))


def read_stream(body: bytes, max_rows: int, max_columns: int | None = None) -> dict[str, NDArray[Any]]:
    """Return the columns of an Arrow IPC stream."""
    pa, ipc = _pyarrow(), _pyarrow("pyarrow.ipc")
    try:
        for message in ipc.MessageReader.open_stream(pa.py_buffer(body)):
            if message.type == "dictionary":
                raise Refusal(422, "The Arrow stream must not hold dictionaries: send plain values.")
            if message.type == "record batch" and _is_compressed(memoryview(message.metadata)):
                raise Refusal(415, "Compressed Arrow buffers are not read: write the stream without compression.")
        batches, rows = [], 0
        with ipc.open_stream(pa.py_buffer(body)) as reader:
            schema, names = reader.schema, reader.schema.names
            if len(set(names)) < len(names):
                raise Refusal(422, "The Arrow stream must not hold two columns of one name.")
            if max_columns is not None and len(names) > max_columns:
                raise Refusal(422, f"The Arrow stream may hold at most {max_columns} columns, got {len(names)}.")
            kinds = schema.types
            for kind in dict.fromkeys(kinds):  # a table has many columns and few types
                _check_type(pa, names[kinds.index(kind)], kind)
            for batch in reader:
                rows += batch.num_rows
                if rows > max_rows:
                    raise too_many(max_rows)
                batch.validate(full=True)
                batches.append(batch)
        if len(batches) != 1:
            whole = pa.Table.from_batches(batches, schema).combine_chunks()
            batches = whole.to_batches() or [pa.RecordBatch.from_pylist([], schema)]
        return {name: _numpy(pa, column) for name, column in zip(names, batches[0].columns, strict=True)}
    except (pa.ArrowException, OSError, struct.error, IndexError, ValueError, OverflowError) as error:
        sentence = str(error).split("\n")[0][:200]
        raise Refusal(400, f"The body is not a whole Arrow IPC stream ({sentence}).") from None


def _check_type(pa: Any, name: str, kind: Any) -> None:
    types, inner = pa.types, kind
    tests = [types.is_floating, types.is_integer]
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        inner = kind.value_type
    else:
        tests += [types.is_boolean, types.is_string, types.is_large_string]
    if not any(test(inner) for test in tests):
        raise Refusal(
            422, f"Column '{name}' must hold plain numbers, texts or lists of numbers, got Arrow type {kind}."
        )


def _numpy(pa: Any, column: Any) -> NDArray[Any]:
    kind, types = column.type, pa.types
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        if column.null_count:
            raise Refusal(422, "Lists of numbers must not be null.")
        values = column.flatten().to_numpy(zero_copy_only=False)
        rows = len(column)
        # Equal lengths are checked list by list: a total that happens to divide proves nothing.
        if rows and types.is_list(kind) and len(np.unique(np.diff(column.offsets.to_numpy()))) > 1:
            raise Refusal(422, "All lists of numbers of a column must have one length.")
        return np.asarray(values, dtype=np.float64).reshape(rows, len(values) // rows if rows else 0)
    if types.is_floating(kind) or types.is_integer(kind):
        array = column.to_numpy(zero_copy_only=False)
        return array if array.dtype == np.float32 else array.astype(np.float64)
    return np.asarray(column.to_pylist(), dtype=object)


def write_stream(columns: dict[str, Any], metadata: dict[str, str]) -> bytes:
    """Return columns as an Arrow IPC stream."""
    pa, ipc = _pyarrow(), _pyarrow("pyarrow.ipc")
    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            arrays[name] = pa.array([str(value) for value in values])  # labels of several types
    table = pa.table(arrays).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
