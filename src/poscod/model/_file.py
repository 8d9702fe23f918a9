# SPDX-License-Identifier: BSD-3-Clause
"""Models in files, without pickle.

Convention: a ``.poscod`` file is an uncompressed zip archive of ``manifest.json`` (what the file is, and size and SHA-256 of
every other member), ``state.json`` (the object), ``arrays/*.npy`` and ``foreign/*.skops`` (estimators of other libraries, through
skops). Nothing is compressed, so no file can grow when it is read. Reading never runs code that a file names; checksums
find damage, not forgery: whom a file comes from is for its reader to know.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import sklearn

from poscod._files import growth, open_source, replacing
from poscod.exceptions import InvalidInputError, PoscodError
from poscod.model import _first_edition
from poscod.model._codec import Decoder, Encoder, registry
from poscod.model._errors import ModelFileError
from poscod.model._foreign import dump, skops, types_of
from poscod.model._kept import class_name
from poscod.model._trial import check_state

PROTOCOL = 2
"""The number of the file format; the only place that defines it.

It changes only if a file written now would be *misread* by the code of the last release. To change it:

1. Add one here and say in docs/persistence.md what is new.
2. Let `load` branch on ``manifest["protocol"]`` and keep the code that reads the older number (`poscod.model._first_edition` reads 1).
3. Keep small files written by the last release in tests/ and test that they still load and decide the same.

No change is needed for a new class, a new attribute, or a new parameter or field with a default: unknown attributes are kept,
missing ones get their default. A renamed class or attribute, or a new tag in `poscod.model._codec.DECODERS`, needs one. Whatever
happens, ``manifest.json`` stays uncompressed with the keys ``format`` and ``protocol``, so that every reader can refuse politely.
"""

FORMAT = "poscod-model"
MANIFEST, STATE = "manifest.json", "state.json"
_MEMBER = re.compile(r"state\.json|arrays/\d+\.npy|foreign/\d+\.skops")
# Harmless types that skops leaves to its caller, in nearly every pipeline for data frames: numpy.dtype is taken from an empty array (what is
# in that array is checked by itself), and a column selector is a pattern and names of types, set as attributes. Histogram boosting of categories holds
# scikit-learn's check of an array with some arguments; a partial call calls nothing that is not trusted by itself.
_HARMLESS = frozenset(
    {
        "functools.partial",
        "numpy.dtype",
        "sklearn.compose._column_transformer.make_column_selector",
        "sklearn.utils.validation.check_array",
    }
)


class UntrustedTypesError(ModelFileError):
    """A file holds types of other libraries that are not trusted by default.

    Parameters
    ----------
    path : str or path-like
        The file.
    types : list of str
        Full names of the types.
    """

    def __init__(self, path: str | os.PathLike[str], types: list[str]) -> None:
        self.types = types
        super().__init__(
            f"{path} holds types that are not trusted by default ({', '.join(types)}): if you trust where the file comes "
            f"from, pass trusted={types}."
        )


def save(model: Any, path: str | os.PathLike[str]) -> list[str]:
    """Write a model to a file; either the whole file appears or nothing changes.

    Parameters
    ----------
    model : POSCOD, or any estimator of poscod
        Fitted or not.
    path : str or path-like
        By convention ``*.poscod``. An existing file is replaced only when the new one is complete.

    Returns
    -------
    types : list of str
        Full names of types of other libraries that a reader has to trust by name; see `load`.

    Notes
    -----
    Estimators of other libraries need the extra ``persist`` (skops). The same model gives the same bytes where it holds none of
    them; skops writes addresses into its files.

    Examples
    --------
    >>> import tempfile
    >>> from poscod.problem import ScodProblem
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     types = save(ScodProblem(alpha=0.2, loss=[[0, 1], [5, 0]]), folder + "/problem.poscod")
    ...     load(folder + "/problem.poscod")
    ScodProblem(alpha=0.2, tpr_min=0.95, loss=((0.0, 1.0), (5.0, 0.0)))
    """
    root = class_name(type(model))
    if root not in registry():
        raise InvalidInputError(f"model must be an estimator of poscod, got a {root}.")
    members: dict[str, dict[str, Any]] = {}
    with replacing(Path(path)) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:

        def write(name: str, data: Any) -> None:
            # A fixed date: the same model gives the same bytes.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
            members[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

        strange: set[str] = set()
        try:
            state = Encoder(write, lambda value, where: dump(value, where, strange)).encode(model)
        except RecursionError:
            raise InvalidInputError(
                "model refers to itself, or is nested too deeply, to be written to a file."
            ) from None
        write(STATE, _json(state))
        version = sys.modules["poscod"].__version__
        manifest = {
            "format": FORMAT,
            "protocol": PROTOCOL,
            "created_by": f"poscod {version}",
            "versions": {"poscod": version, "numpy": np.__version__, "scikit-learn": sklearn.__version__},
            "root": root,
            "members": dict(members),
        }
        write(MANIFEST, _json(manifest))
    return sorted(strange - _HARMLESS)


def load(path: str | os.PathLike[str] | BinaryIO, *, trusted: Sequence[str | type] = ()) -> Any:
    """Read a model from a file.

    Parameters
    ----------
    path : str, path-like or binary file
        File written by `save`, or one that is open for reading.
    trusted : sequence of str or type, default=()
        Types of other libraries to accept beside those that skops trusts (most of scikit-learn, numpy and scipy) and numpy.dtype; full names
        such as "sklearn.tree._tree.Tree". They matter only in files that hold estimators of other libraries.

    Returns
    -------
    model : object
        Of the class that was saved.

    Raises
    ------
    ModelFileError
        The file is not a model, is damaged, or was written by a newer version.
    UntrustedTypesError
        The file holds types that are neither trusted by default nor listed; its ``types`` names them.
    MissingExtraError
        The file holds estimators of other libraries and skops is not installed.
    """
    if isinstance(trusted, (str, type, bool)) or not all(isinstance(item, (str, type)) for item in trusted):
        raise InvalidInputError(f"trusted must be a list of types or of their full names, got {trusted!r}.")
    names = [item if isinstance(item, str) else f"{item.__module__}.{item.__name__}" for item in trusted]
    names += sorted(_HARMLESS - set(names))
    opened = open_source(Path(path)) if isinstance(path, (str, os.PathLike)) else contextlib.nullcontext(path)
    source = str(path) if isinstance(path, (str, os.PathLike)) else getattr(path, "name", "The file")
    with opened as file, _sentences(source):
        archive = _open(file)
        size = file.seek(0, os.SEEK_END)
        manifest = _manifest(archive, size)
        members = _members(archive, manifest, size)

        def read(name: str) -> bytes:
            if name not in members:
                raise ModelFileError(f"lacks the member '{name}', which its state refers to.")
            data = archive.read(name)
            if hashlib.sha256(data).hexdigest() != members[name]["sha256"]:
                raise ModelFileError(f"is damaged: the checksum of '{name}' does not match.")
            return data

        foreign = [read(name) for name in members if name.startswith("foreign/")]
        unknown = sorted({found for data in foreign for found in types_of(data)} - set(names))
        if unknown:
            raise UntrustedTypesError(source, unknown)
        state = json.loads(read(STATE))
        if not isinstance(state, dict) or state.get("class") != manifest["root"]:
            raise ModelFileError(f"says that it holds a '{manifest['root']}', and holds something else.")
        first = manifest["protocol"] == 1
        older = _first_edition.classes(registry()) if first else {}
        model = Decoder(read, lambda data: skops("Loading").loads(data, trusted=names), older).decode(state)
        model = _first_edition.upgrade(model) if first else model
        check_state(model)
        return model


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, allow_nan=False, indent=1).encode()


@contextmanager
def _sentences(source: str) -> Iterator[None]:
    """Turn whatever a damaged or hostile file makes the parsers raise into one sentence that names the file."""
    try:
        yield
    except UntrustedTypesError:
        raise
    except ModelFileError as error:
        raise ModelFileError(f"{source} {error}") from None
    except (OSError, PoscodError):
        raise
    except Exception as error:
        raise ModelFileError(
            f"{source} could not be read as a poscod model ({type(error).__name__}: {str(error)[:300]})."
        ) from error


def _open(file: BinaryIO) -> zipfile.ZipFile:
    start = file.read(4)
    try:
        return zipfile.ZipFile(file)
    except zipfile.BadZipFile:
        if start == b"PK\x03\x04":
            raise ModelFileError("is truncated or damaged: copy it again.") from None
        raise ModelFileError("is not a poscod model: it is not even a zip archive.") from None


def _manifest(archive: zipfile.ZipFile, size: int) -> dict[str, Any]:
    """Read the manifest and refuse what is not ours or too new, before anything else is looked at."""
    infos = [info for info in archive.infolist() if info.filename == MANIFEST]
    if not infos:
        raise ModelFileError(f"is not a poscod model: it is a zip archive without {MANIFEST}.")
    _check_growth(archive, size)
    manifest = json.loads(archive.read(infos[0]))
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f"is not a poscod model: its manifest does not say format '{FORMAT}'.")
    protocol = manifest.get("protocol")
    if type(protocol) is not int or protocol < 1:
        raise ModelFileError(f"has the protocol {protocol!r}, which is not the number of a format: it is damaged.")
    if protocol > PROTOCOL:
        raise ModelFileError(
            f"was written by a newer poscod (protocol {protocol}, this one reads up to {PROTOCOL}): upgrade poscod."
        )
    return manifest


def _check_growth(archive: zipfile.ZipFile, size: int) -> None:
    if complaint := growth(archive, size):
        raise ModelFileError(f"{complaint}: it is not read.")


def _members(archive: zipfile.ZipFile, manifest: dict[str, Any], size: int) -> dict[str, dict[str, Any]]:
    """Check that the archive holds exactly what the manifest lists, under names of ours, in the sizes it says."""
    members: dict[str, dict[str, Any]] = manifest["members"]
    infos = archive.infolist()
    for info in infos:
        if info.filename != MANIFEST and not (_MEMBER.fullmatch(info.filename) and info.filename in members):
            raise ModelFileError(f"holds '{info.filename}', which no poscod model holds: it is not read.")
    present = [info.filename for info in infos]
    if len(set(present)) < len(present):
        raise ModelFileError("holds two members of one name: it is not read.")
    if missing := sorted({STATE, *members} - set(present)):
        raise ModelFileError(f"lacks the member '{missing[0]}': it is damaged.")
    for info in infos:
        if info.filename != MANIFEST and info.file_size != members[info.filename]["size"]:
            raise ModelFileError(f"is damaged: '{info.filename}' has not the size the manifest says.")
    return members
