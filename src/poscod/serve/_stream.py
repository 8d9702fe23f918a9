# SPDX-License-Identifier: BSD-3-Clause
"""Arrow IPC streams: a batch of rows in, a table of decisions out.

Convention: a stream is refused before it is decoded if it is compressed (its size would then be unbounded), holds more rows than
allowed, more columns or longer lists than the model has, or a column of a type that is neither number, boolean, text nor list of numbers.
Dictionaries are refused, too: a few bytes of indices would stand for any amount of text. So are buffers that together are larger than the
body: several columns would be made of the same bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod.serve._say import Refusal, too_many

ARROW_TYPE = "application/vnd.apache.arrow.stream"
# Numbers of fields in Arrow's Message.fbs: what a message holds; of a record batch its rows, its buffers and how they are compressed.
_HEADER, _LENGTH, _BUFFERS, _COMPRESSION = 2, 0, 2, 3


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


def _check_batch(message: Any, rows: int) -> int:
    """Look at what the metadata of a record batch declares, before anything is made of it; return its number of rows."""
    metadata = memoryview(message.metadata)
    header = _follow(metadata, _field(metadata, _follow(metadata, 0), _HEADER))
    if _field(metadata, header, _COMPRESSION):
        raise Refusal(415, "Compressed Arrow buffers are not read: write the stream without compression.")
    place = _field(metadata, header, _LENGTH)
    length = int(struct.unpack_from("<q", metadata, place)[0]) if place else 0
    if not 0 <= length <= rows:
        raise too_many(rows)
    if place := _field(metadata, header, _BUFFERS):
        start = _follow(metadata, place)
        count = struct.unpack_from("<I", metadata, start)[0]
        # Pairs of offset and length.
        pairs = np.frombuffer(metadata, "<i8", 2 * count, start + 4)
        if sum(pairs[1::2].tolist()) > (0 if message.body is None else message.body.size):
            raise Refusal(422, "The Arrow stream declares buffers that share their bytes: write each column by itself.")
    return length


def read_stream(
    body: bytes, max_rows: int, max_columns: int | None = None, max_width: int | None = None, *, texts: bool = True
) -> dict[str, NDArray[Any]]:
    """Return the columns of an Arrow IPC stream; lists may hold `max_width` numbers, and without `texts` all but "id" are numbers."""
    pa, ipc = _pyarrow(), _pyarrow("pyarrow.ipc")
    declared = 0
    try:
        for message in ipc.MessageReader.open_stream(pa.py_buffer(body)):
            if message.type == "dictionary":
                raise Refusal(422, "The Arrow stream must not hold dictionaries: send plain values.")
            if message.type == "record batch":
                declared += _check_batch(message, max_rows)
                if declared > max_rows:
                    raise too_many(max_rows)
        batches = []
        with ipc.open_stream(pa.py_buffer(body)) as reader:
            schema, names = reader.schema, reader.schema.names
            if len(set(names)) < len(names):
                raise Refusal(422, "The Arrow stream must not hold two columns of one name.")
            if max_columns is not None and len(names) > max_columns:
                raise Refusal(422, f"The Arrow stream may hold at most {max_columns} columns, got {len(names)}.")
            for (kind, plain), name in {(f.type, texts or f.name == "id"): f.name for f in schema}.items():
                _check_type(pa, name, kind, texts=plain)  # a table has many columns and few types
            for batch in reader:
                batch.validate(full=True)
                batches.append(batch)
        if len(batches) != 1:
            whole = pa.Table.from_batches(batches, schema).combine_chunks()
            batches = whole.to_batches() or [pa.RecordBatch.from_pylist([], schema)]
        return {
            name: _numpy(pa, name, column, max_width) for name, column in zip(names, batches[0].columns, strict=True)
        }
    except (pa.ArrowException, OSError, struct.error, IndexError, ValueError, OverflowError) as error:
        sentence = str(error).split("\n")[0][:200]
        raise Refusal(400, f"The body is not a whole Arrow IPC stream ({sentence}).") from None


def _check_type(pa: Any, name: str, kind: Any, *, texts: bool) -> None:
    types, inner = pa.types, kind
    tests = [types.is_floating, types.is_integer]
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        inner = kind.value_type
    elif texts:
        tests += [types.is_boolean, types.is_string, types.is_large_string]
    if not any(test(inner) for test in tests):
        allowed = "plain numbers, texts or lists of numbers" if texts else "plain numbers or lists of numbers"
        raise Refusal(422, f"Column '{name[:100]}' must hold {allowed}, got Arrow type {str(kind)[:100]}.")


def _numpy(pa: Any, name: str, column: Any, max_width: int | None) -> NDArray[Any]:
    kind, types = column.type, pa.types
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        if column.null_count:
            raise Refusal(422, "Lists of numbers must not be null.")
        flat, rows = column.flatten(), len(column)
        # A number of one byte becomes one of eight: what the model cannot use is not made.
        if max_width is not None and len(flat) > rows * max_width:
            raise Refusal(422, f"Lists in '{name}' may hold at most {max_width} numbers, got more.")
        values = flat.to_numpy(zero_copy_only=False)
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
