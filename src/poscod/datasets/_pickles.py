# SPDX-License-Identifier: BSD-3-Clause
"""A reader of pickles that builds arrays and containers of them, and nothing else.

Convention: what a file names is looked up in one table of harmless stand-ins; a name that is not in it is refused
before anything of it is imported or called. Torch tensors become numpy arrays, torch itself is not needed. Only plain values are keys, because
hashing shared tuples never ends; what is made is bounded by the size of the file; and no sentence shows a value of it.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import pickletools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from poscod._files import open_source
from poscod.datasets._torch_storage import STORAGE_DTYPES, Storage, rebuild_tensor
from poscod.exceptions import InvalidInputError, PoscodError

Names = Mapping[tuple[str, str], Any]
_OPEN = object()
_InPython: Any = vars(pickle)["_Unpickler"]
_PLAIN = (str, bytes, int, float, complex, type(None), np.generic)
# How many times the size of its file a value may have, in bytes and in parts counted as often as they are named, and what is free.
_REPEATED, _FREE = 4, 4096
# A file of torch.save before version 1.6 starts with the pickle of this number.
LEGACY_START = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)


def read_pickle(path: str | os.PathLike[str]) -> Any:
    """Read a pickle of numpy arrays, torch tensors and plain containers without executing anything in it.

    Parameters
    ----------
    path : str or path-like
        A file written by ``pickle.dump``, or by ``torch.save`` in its old form (``_use_new_zipfile_serialization=False``), which is
        also what a pickled tensor consists of.

    Returns
    -------
    value : object
        Arrays (tensors included), numbers, text, and dict, list, tuple and set of them.

    Notes
    -----
    Any other class or function in the file is refused with its name, before it is imported. Arrays of objects are
    refused too. So are keys that are not plain values, and files whose content is much larger than they are.

    Examples
    --------
    >>> import pickle, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.pkl").write_bytes(pickle.dumps({"conf": np.array([0.5, 2.0])}))
    ...     read_pickle(folder + "/a.pkl")
    {'conf': array([0.5, 2. ])}
    """
    source = Path(path)
    with open_source(source) as file:
        data = file.read()
    try:
        return _Maker(len(data)).read(data, nested=False)
    except PoscodError as error:
        raise InvalidInputError(f"{source}: {error}") from None
    except Exception as error:  # a damaged or hostile file makes the machine fail in many ways
        raise InvalidInputError(f"{source} is not a readable pickle of arrays ({type(error).__name__}).") from None


class _Stub:
    """A name that a pickle may call or pass on, but not change."""

    def __init__(self, function: Callable[..., Any], dtype: str | None = None) -> None:
        self.function, self.dtype = function, dtype

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __setstate__(self, state: Any) -> None:
        raise InvalidInputError("the pickle must not change classes and functions, but it tries to.")


class _DType:
    """What a pickled numpy dtype becomes: a checked letter code and a byte order."""

    def __init__(self, code: Any, *flags: Any) -> None:
        if not isinstance(code, str) or code[:1] not in tuple("biufUS") or not code[1:].isdigit():
            shown = ascii(code[:20]) if isinstance(code, str) else "something else"
            raise InvalidInputError(
                f"the pickle must hold arrays of numbers or text, got dtype {shown} (object arrays are not read)."
            )
        self.code, self.order = code, "="

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", ">", "=", "|"):
            raise InvalidInputError("the pickle holds a damaged dtype.")
        self.order = state[1]

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.code)


class _Array:
    """What a pickled numpy array is until its state arrives."""

    value: NDArray[Any] | None = None

    def __init__(self, make: Callable[..., NDArray[Any]]) -> None:
        self._make = make

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise InvalidInputError("the pickle holds a damaged array.")
        _, shape, dtype, fortran, raw = state
        self.value = self._make(raw, dtype, shape, "F" if fortran else "C")


def _never(*args: Any) -> Any:
    """Stand for a class that is only passed on as an argument."""
    raise InvalidInputError("the pickle calls a class that it may only name.")


class _Maker:
    """Makes what a pickle may hold, within what a file of `size` bytes warrants: a name may be called again and again for the same bytes."""

    def __init__(self, size: int) -> None:
        self._room = _REPEATED * size + _FREE
        # Everything a pickle may name; besides, a tensor's bytes at the top: they hold no further tensor's bytes.
        self._names: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): _Stub(_dict),
            ("_codecs", "encode"): _Stub(self._latin1),
            ("numpy", "dtype"): _Stub(_DType),
            ("numpy", "ndarray"): _Stub(_never),
            ("torch._utils", "_rebuild_tensor"): _Stub(rebuild_tensor),
            ("torch._utils", "_rebuild_tensor_v2"): _Stub(rebuild_tensor),
        }
        for builtin in ("builtins", "__builtin__"):  # the second in protocols below 3
            self._names[builtin, "set"] = _Stub(lambda items=(): set(_keys(items)))
            self._names[builtin, "frozenset"] = _Stub(lambda items=(): frozenset(_keys(items)))
            self._names[builtin, "bytearray"] = _Stub(self._bytearray)
            self._names[builtin, "bytes"] = _Stub(lambda: b"")
        for core in ("numpy.core", "numpy._core"):
            self._names[f"{core}.multiarray", "_reconstruct"] = _Stub(lambda *args: _Array(self._array))
            self._names[f"{core}.multiarray", "scalar"] = _Stub(self._scalar)
            self._names[f"{core}.numeric", "_frombuffer"] = _Stub(self._array)
        for name, dtype in STORAGE_DTYPES.items():
            self._names["torch", name] = _Stub(_never, dtype)

    def read(self, data: bytes, *, nested: bool) -> Any:
        """Read a plain pickle, or a file of torch.save in its old form."""
        if data[:4] == b"PK\x03\x04":
            raise InvalidInputError(
                "the file is a zip archive, as torch.save writes it: load it with torch.load(path, weights_only=True), which is safe, too."
            )
        names: Names = self._names
        if not nested:
            names = {**self._names, ("torch.storage", "_load_from_bytes"): _Stub(self._tensor)}
        stream = io.BytesIO(data)
        if data.startswith(LEGACY_START):
            stream.seek(len(LEGACY_START))
            return self._read_legacy(stream, names)
        return _load(stream, names)

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise InvalidInputError("the pickle holds much more than its size warrants.")

    def _array(self, raw: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
        """Build an array from bytes whose number is right; always a copy of its own."""
        if not isinstance(dtype, _DType) or not isinstance(raw, (bytes, bytearray, memoryview)):
            raise InvalidInputError("the pickle must hold arrays of numbers or text as bytes, got something else.")
        if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape) or order not in ("C", "F"):
            raise InvalidInputError("the pickle holds an array with a damaged shape.")
        kind, count = dtype.numpy(), math.prod(shape)
        if count * kind.itemsize != len(raw):
            raise InvalidInputError(f"the pickle holds an array whose shape does not fit its {len(raw)} bytes.")
        self._take(max(len(raw), count))  # items without a size are counted, too
        if kind.itemsize == 0:
            return np.zeros(shape, kind)
        return np.frombuffer(raw, kind).reshape(shape, order=order).copy()

    def _scalar(self, dtype: Any, raw: Any = None) -> Any:
        """Build a numpy scalar."""
        return self._array(raw, dtype, (), "C")[()]

    def _latin1(self, text: Any, encoding: Any = None) -> bytes:
        """Undo how protocols below 3 write bytes."""
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise InvalidInputError("the pickle holds damaged bytes.")
        self._take(len(text))
        return text.encode("latin1")

    def _bytearray(self, value: Any = b"", *encoding: Any) -> bytearray:
        """Build a bytearray from bytes; from a number it would be as large as the file likes."""
        if isinstance(value, bytes) and not encoding:
            self._take(len(value))
            return bytearray(value)
        return bytearray(self._latin1(value, *encoding))

    def _tensor(self, data: Any) -> Any:
        """Read the bytes of one tensor, themselves a file of torch.save."""
        if not isinstance(data, bytes):
            raise InvalidInputError("the pickle holds a damaged tensor.")
        self._take(len(data))
        return self.read(data, nested=True)

    def _read_legacy(self, stream: io.BytesIO, names: Names) -> Any:
        """Read the old form of torch.save: four pickles, then the storages one after the other."""
        _load(stream, self._names)  # protocol
        system = _load(stream, self._names)
        if not isinstance(system, Mapping) or system.get("little_endian") is not True:
            raise InvalidInputError("the file was written on a big-endian machine, which is not read.")
        storages: dict[str, Storage] = {}
        room = len(stream.getbuffer())

        def storage(pid: Any) -> Storage:
            nonlocal room
            dtype, key, size = _storage_key(pid)
            if key not in storages:
                room -= size * np.dtype(dtype).itemsize
                if room < 0:
                    raise InvalidInputError("the file refers to tensors larger than itself.")
                storages[key] = Storage(dtype, size)  # filled below: tensors are views of it
            found = storages[key].array
            if found.dtype != np.dtype(dtype) or len(found) != size:
                raise InvalidInputError("the pickle refers to the same tensor data in two different forms.")
            return storages[key]

        value = _load(stream, names, storage)
        keys = _load(stream, self._names)
        if not isinstance(keys, list) or {key if type(key) is str else None for key in keys} != set(storages):
            raise InvalidInputError("the file's list of tensors does not match its content.")
        for key in keys:
            storages[key].fill(stream)
        return value


def _keys(items: Any) -> Iterable[Any]:
    """Yield what may be a key; a tuple of tuples that are one tuple is hashed as often as it is named."""
    for item in items:
        if not isinstance(item, _PLAIN):
            raise InvalidInputError("the pickle must have numbers and texts as keys and in sets, got something else.")
        yield item


def _dict(pairs: Any = ()) -> dict[Any, Any]:
    """Build a dict from pairs."""
    made = {}
    for pair in pairs.items() if isinstance(pairs, dict) else pairs:
        key, value = pair
        made[next(iter(_keys([key])))] = value
    return made


class _Reader(_InPython):  # type: ignore[misc]
    """The unpickler, in Python so that keys can be looked at before they are hashed: names come from a table, storages from `storage`."""

    dispatch: ClassVar[dict[int, Any]] = dict(_InPython.dispatch)

    def __init__(self, file: BinaryIO, names: Names, storage: Callable[[Any], Storage] | None) -> None:
        super().__init__(file)
        self.names, self.storage = names, storage

    def find_class(self, module: str, name: str) -> Any:
        """Look a name up in the table, never in a module."""
        if (module, name) not in self.names:
            shown = ascii(f"{module}.{name}"[:200])
            raise InvalidInputError(
                f"the pickle names {shown}, which is neither an array nor a plain container: it was not "
                "loaded, and nothing in it was executed."
            )
        return self.names[module, name]

    def persistent_load(self, pid: Any) -> Any:
        """Return the storage that torch keeps outside of the pickle."""
        if self.storage is None:
            raise InvalidInputError("the pickle refers to data outside of itself.")
        return self.storage(pid)

    def _into(self, kind: type, items: list[Any], every: int) -> None:
        """Check that what is filled is plain, and so are its keys."""
        if type(self.stack[-1]) is not kind:
            raise InvalidInputError("the pickle fills something that is no plain container.")
        for _ in _keys(items[::every]):
            pass

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._into(dict, [key], 1)
        self.stack[-1][key] = value

    def load_setitems(self) -> None:
        items = self.pop_mark()
        self._into(dict, items, 2)
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def load_dict(self) -> None:
        items = self.pop_mark()
        self.append(_dict(zip(items[::2], items[1::2], strict=True)))

    def load_additems(self) -> None:
        items = self.pop_mark()
        self._into(set, items, 1)
        self.stack[-1].update(items)

    def load_frozenset(self) -> None:
        items = self.pop_mark()  # it changes what append means
        self.append(frozenset(_keys(items)))

    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.DICT[0]] = load_dict
    dispatch[pickle.ADDITEMS[0]] = load_additems
    dispatch[pickle.FROZENSET[0]] = load_frozenset


def _load(stream: io.BytesIO, names: Names, storage: Callable[[Any], Storage] | None = None) -> Any:
    """Load one pickle from the stream."""
    start, size = stream.tell(), len(stream.getbuffer())
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name.startswith("EXT"):
            raise InvalidInputError("the pickle uses the extension registry, which is not read.")
        if opcode.name in ("PUT", "LONG_BINPUT") and not 0 <= int(argument or 0) <= size:
            raise InvalidInputError("the pickle asks for more memory than its size warrants.")
    end = stream.tell()
    stream.seek(start)
    value = _Reader(stream, names, storage).load()
    stream.seek(end)  # the reader in Python may have taken a whole frame
    counted: dict[int, int] = {}
    value = _plain(value, {}, counted)
    if counted.get(id(value), 0) > _REPEATED * size + _FREE:
        raise InvalidInputError("the pickle names the same containers again and again.")
    return value


def _storage_key(pid: Any) -> tuple[str, str, int]:
    """Check how torch refers to a storage: ('storage', type, key, device, number of items[, view])."""
    match pid:
        case ("storage", _Stub(dtype=str(dtype)), str(key), _, int(size), *view) if size >= 0 and view in ([], [None]):
            return dtype, key, size
    raise InvalidInputError("the pickle refers to a tensor's data in a form that is not read.")


def _plain(value: Any, done: dict[int, Any], counted: dict[int, int]) -> Any:
    """Replace stand-ins by their arrays, inside containers too; a container used twice stays one object, whose parts are counted twice."""
    if isinstance(value, _Array):
        if value.value is None:
            raise InvalidInputError("the pickle holds an array without content.")
        return value.value
    if isinstance(value, (_Stub, _DType)):
        raise InvalidInputError("the pickle must hold arrays and plain containers, got a class or function.")
    if not isinstance(value, (dict, list, tuple, set, frozenset)):
        return value
    if id(value) not in done:
        done[id(value)] = _OPEN
        inside = value.values() if isinstance(value, dict) else value
        made = [_plain(item, done, counted) for item in inside]
        done[id(value)] = dict(zip(value, made, strict=True)) if isinstance(value, dict) else type(value)(made)
        counted[id(done[id(value)])] = 1 + sum(counted.get(id(item), 1) for item in made)
    if done[id(value)] is _OPEN:
        raise InvalidInputError("the pickle holds a container inside itself, which is not read.")
    return done[id(value)]
