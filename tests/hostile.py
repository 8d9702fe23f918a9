"""Files and bodies that nobody writes by accident, for several tests and for `make fuzz`."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

ARROW_TYPE = "application/vnd.apache.arrow.stream"


def stream(columns: dict[str, Any]) -> bytes:
    """An honest Arrow stream."""
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _field(data: bytes, table: int, number: int) -> int:
    vtable = table - struct.unpack_from("<i", data, table)[0]
    slot = 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + slot)[0] if slot < struct.unpack_from("<H", data, vtable)[0] else 0
    return table + offset if offset else 0


def _follow(data: bytes, position: int) -> int:
    return position + struct.unpack_from("<I", data, position)[0]


def shared_buffers(columns: dict[str, Any]) -> bytes:
    """An Arrow stream in which all buffers of one length lie at one place: the body is as long as the first column's."""
    whole = stream(columns)
    schema = 8 + struct.unpack_from("<i", whole, 4)[0]
    head = schema + 8  # of the record batch's metadata
    size = struct.unpack_from("<i", whole, schema + 4)[0]
    metadata = bytearray(whole[head : head + size])
    message = _follow(metadata, 0)
    batch = _follow(metadata, _field(metadata, message, 2))
    start = _follow(metadata, _field(metadata, batch, 2))
    places: dict[int, int] = {}
    end = 0
    for i in range(struct.unpack_from("<I", metadata, start)[0]):
        at = start + 4 + 16 * i
        offset, length = struct.unpack_from("<qq", metadata, at)
        offset = places.setdefault(length, offset)
        struct.pack_into("<qq", metadata, at, offset, length)
        end = max(end, offset + length)
    end += -end % 8
    struct.pack_into("<q", metadata, _field(metadata, message, 3), end)
    body = whole[head + size : head + size + end]
    return whole[:head] + bytes(metadata) + body + whole[head + size + end :][-8:]
