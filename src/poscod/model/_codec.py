# SPDX-License-Identifier: BSD-3-Clause
"""Objects as JSON and plain arrays, and back, with a closed list of classes.

Convention: None, bool, int, str, finite floats and lists are themselves; everything else is a JSON object with one tag
(`DECODERS` lists them). A class is written by its name and read through `registry`, which is built from the package: no name
in a file is ever imported, called or evaluated, and an object is made by setting attributes, not by its constructor; then its own
`__post_init__` checks them. Arrays keep their dtype and their order of rows and columns.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import io
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils._metadata_requests import SIMPLE_METHODS

from poscod import activations, mix, problem, ratio, risk, rule, scores, selector, strategies
from poscod.exceptions import InvalidInputError, PoscodError
from poscod.model._errors import ModelFileError
from poscod.model._kept import KEPT, class_name, is_kept

# Modules and folders whose classes make up a fitted model, beside this folder.
FAMILIES = (activations, problem, rule, scores, risk, ratio, mix, strategies, selector)
# Parts of a model that are neither dataclass, named tuple nor estimator, but plain holders of attributes.
PLAIN = {"poscod.ratio._representation.Representation"}
# Scalars whose value JSON holds exactly; others become arrays without dimensions.
SCALARS: dict[str, type[np.generic]] = {
    np.dtype(t).name: t
    for t in (
        *(np.bool_, np.str_, np.float16, np.float32, np.float64),
        *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    )
}


@functools.cache
def registry() -> dict[str, type]:
    """Return the classes a model may consist of, by full name.

    Examples
    --------
    >>> registry()["poscod.problem.ScodProblem"].__name__, "poscod._optional.require" in registry()
    ('ScodProblem', False)
    """
    families = [*(family.__name__ for family in FAMILIES), __name__.rpartition(".")[0]]
    modules = [name for name in sys.modules if any(f"{name}.".startswith(f"{family}.") for family in families)]
    found = {}
    for module in modules:
        for value in vars(sys.modules[module]).values():
            if isinstance(value, type) and value.__module__ == module and _holds_state(value):
                found[class_name(value)] = value
    return found


def _holds_state(cls: type) -> bool:
    if inspect.isabstract(cls):
        return False
    if issubclass(cls, tuple):
        return hasattr(cls, "_fields")
    return dataclasses.is_dataclass(cls) or issubclass(cls, BaseEstimator) or class_name(cls) in PLAIN


class Encoder:
    """Turns an object into JSON; arrays and foreign objects go to members of their own.

    Parameters
    ----------
    write : callable
        ``write(name, data)`` stores a member.
    dump : callable
        ``dump(value, where)`` turns an object of another library into bytes.
    """

    def __init__(self, write: Callable[[str, Any], None], dump: Callable[[Any, str], bytes]) -> None:
        self._write, self._dump = write, dump
        # Keeps the objects alive, so that an id stands for one object.
        self._members: dict[int, tuple[Any, str]] = {}

    def encode(self, value: Any, where: str = "model") -> Any:
        """Return the JSON of a value."""
        kind = type(value)
        if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
            return value
        if kind is float:
            return {"float": repr(value)}
        if kind in (list, tuple):
            items = [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return items if kind is list else {"tuple": items}
        if kind is dict:
            pairs = value.items()
            return {"dict": [[self.encode(k, f"key of {where}"), self.encode(v, f"{where}[{k!r}]")] for k, v in pairs]}
        if kind in (np.ndarray, np.memmap):
            return self._array(value, where)
        if isinstance(value, np.generic):
            if kind in SCALARS.values():
                return {"numpy": np.dtype(kind).name, "value": self.encode(value.item(), where)}
            return {**self._array(np.asarray(value), where), "scalar": True}
        if kind.__module__.partition(".")[0] == "poscod":
            return self._own(value, where)
        if is_kept(value):
            name = class_name(kind)
            return {"kept": name, "state": self.encode(KEPT[name].take(value), where)}
        return {"foreign": self._foreign(value, where), "class": class_name(kind)}

    def _own(self, value: Any, where: str) -> Any:
        name = class_name(type(value))
        if name not in registry():
            raise InvalidInputError(f"{where} is a {name}, which is not a part of a saved model: make it a dataclass.")
        state = dict(value._asdict() if hasattr(value, "_asdict") else vars(value))
        # scikit-learn's metadata requests point back at their owner: only what was asked for is written.
        requests = state.pop("_metadata_request", None)
        node = {"class": name, "state": {key: self.encode(state[key], f"{where}.{key}") for key in sorted(state)}}
        return node if requests is None else {**node, "routing": self.encode(requests._serialize(), where)}

    def _array(self, value: NDArray[Any], where: str) -> dict[str, Any]:
        array = np.asarray(value)
        if array.dtype == object:  # labels and column names
            items = [self.encode(item, where) for item in array.ravel().tolist()]
            return {"objects": items, "shape": list(array.shape)}
        if array.dtype.hasobject or array.dtype.kind == "T":
            raise InvalidInputError(f"{where} is an array of dtype {array.dtype}, which has no plain file format.")
        if id(value) not in self._members:
            buffer = io.BytesIO()
            # "K": rows stay rows and columns stay columns, because the last bit of a matrix product depends on it.
            np.lib.format.write_array(buffer, array.copy(order="K"), allow_pickle=False)
            self._add(value, "arrays", "npy", buffer.getbuffer())
        return {"array": self._members[id(value)][1]}

    def _foreign(self, value: Any, where: str) -> str:
        if id(value) not in self._members:
            self._add(value, "foreign", "skops", self._dump(value, where))
        return self._members[id(value)][1]

    def _add(self, value: Any, folder: str, suffix: str, data: Any) -> None:
        name = f"{folder}/{sum(known.startswith(folder) for _, known in self._members.values())}.{suffix}"
        self._write(name, data)
        self._members[id(value)] = (value, name)


class Decoder:
    """Turns JSON into objects of classes in the registry.

    Parameters
    ----------
    read : callable
        ``read(name)`` returns the bytes of a member.
    undump : callable
        ``undump(data)`` makes an object of another library, from bytes that were checked.
    older : mapping of str to type
        Classes of older files by the names they had.
    """

    def __init__(self, read: Callable[[str], bytes], undump: Callable[[bytes], Any], older: Mapping[str, type]) -> None:
        self._read, self._undump, self._older = read, undump, older
        self._members: dict[str, Any] = {}
        self._copied: set[int] = set()

    def decode(self, node: Any) -> Any:
        """Return the value of a JSON node."""
        if isinstance(node, list):
            return [self.decode(item) for item in node]
        if not isinstance(node, dict):
            return node
        for tag, decoder in DECODERS.items():
            if tag in node:
                return decoder(self, node)
        raise ModelFileError(
            f"has a part of unknown kind {sorted(node)}: it was written by another version or damaged."
        )

    def _dict(self, node: dict[str, Any]) -> Any:
        return {self.decode(key): self.decode(value) for key, value in node["dict"]}

    def _own(self, node: dict[str, Any]) -> Any:
        name = str(node["class"])
        cls = self._older.get(name) or registry().get(name)
        if cls is None:
            raise ModelFileError(
                f"names the class '{node['class']}', which is not a part of a poscod model: it is not read."
            )
        state = {str(key): self.decode(value) for key, value in node["state"].items()}
        if issubclass(cls, tuple):
            fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
            state = {**cls._field_defaults, **state}  # type: ignore[attr-defined]
            return tuple.__new__(cls, [state[field] for field in fields])
        if dataclasses.is_dataclass(cls):
            needed = [part.name for part in dataclasses.fields(cls) if part.default is dataclasses.MISSING]
            if lacking := [part for part in needed if part not in state]:
                raise ModelFileError(f"has a '{name}' without {', '.join(lacking)}: it is damaged.")
        if issubclass(cls, BaseEstimator):
            # A parameter that is younger than the file has its default.
            parameters = inspect.signature(cls.__init__).parameters.items()
            state = {**{k: p.default for k, p in parameters if p.default is not p.empty}, **state}
        instance = object.__new__(cls)
        vars(instance).update(state)
        if hasattr(cls, "__post_init__"):  # what a constructor refuses, a file must not bring in
            try:
                instance.__post_init__()  # type: ignore[attr-defined]
            except PoscodError as error:
                raise ModelFileError(f"holds a {cls.__name__} that cannot be ({error}): it is damaged.") from None
        if "routing" in node:
            requests = instance._get_metadata_request()  # type: ignore[attr-defined]
            for method, asked in self.decode(node["routing"]).items():
                if method not in SIMPLE_METHODS:
                    raise ModelFileError(
                        f"has a metadata request for '{method}', which is not such a method: it is damaged."
                    )
                for parameter, alias in asked.items():
                    getattr(requests, method).add_request(param=parameter, alias=alias)
            vars(instance)["_metadata_request"] = requests
        return instance

    def _array(self, node: dict[str, Any]) -> Any:
        array = self._member(node["array"], "arrays/", read_npy)
        return array[()] if node.get("scalar") else array

    def _objects(self, node: dict[str, Any]) -> Any:
        array = np.empty(len(node["objects"]), dtype=object)
        for i, item in enumerate(node["objects"]):
            array[i] = self.decode(item)
        return array.reshape(node["shape"])

    def _foreign(self, node: dict[str, Any]) -> Any:
        return self._member(node["foreign"], "foreign/", self._undump)

    def _kept(self, node: dict[str, Any]) -> Any:
        kind = KEPT.get(str(node["kept"]))
        if kind is None:
            raise ModelFileError(
                f"names the class '{node['kept']}', which is not kept in poscod models: it is not read."
            )
        state = self.decode(node["state"])
        for array in (state[name] for name in kind.copied if name in state):
            if id(array) in self._copied:  # one array in many copies would grow
                raise ModelFileError("holds an estimator that reads the same arrays again and again: it is not read.")
            self._copied.add(id(array))
        return kind.make(state)

    def _member(self, name: str, folder: str, make: Callable[[bytes], Any]) -> Any:
        # What was checked as one kind must not be read as the other.
        if not str(name).startswith(folder):
            raise ModelFileError(f"names '{name}' where a member of {folder} belongs: it is damaged.")
        if name not in self._members:
            self._members[name] = make(self._read(name))
        return self._members[name]


# Tag of a JSON object -> how it is read; the first tag that is there decides.
DECODERS: dict[str, Callable[[Decoder, dict[str, Any]], Any]] = {
    "float": lambda decoder, node: float(node["float"]),
    "tuple": lambda decoder, node: tuple(decoder.decode(node["tuple"])),
    "dict": Decoder._dict,
    "numpy": lambda decoder, node: SCALARS[node["numpy"]](decoder.decode(node["value"])),
    "array": Decoder._array,
    "objects": Decoder._objects,
    "foreign": Decoder._foreign,
    "kept": Decoder._kept,
    "class": Decoder._own,
}


def read_npy(data: bytes) -> NDArray[Any]:
    """Return the array of a .npy file after its header was checked against the size."""
    file = io.BytesIO(data)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, dtype = readers[np.lib.format.read_magic(file)](file)
    if dtype.hasobject:
        raise ModelFileError("has an array of Python objects, which only a pickle could hold: it is not read.")
    if min(shape, default=0) < 0 or file.tell() + math.prod(shape) * dtype.itemsize != len(data):
        raise ModelFileError(f"has an array whose shape {shape} does not fill its place: it is damaged.")
    if math.prod(shape) > len(data):  # of items without a size, any number fills no place
        raise ModelFileError(f"has an array of {math.prod(shape)} items in {len(data)} bytes: it is damaged.")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)
