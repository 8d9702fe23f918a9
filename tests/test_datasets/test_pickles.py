"""Genuine files are read, hostile ones are refused and execute nothing."""

import builtins
import collections
import copyreg
import functools
import io
import os
import pickle
import struct
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from poscod.datasets import read_pickle
from poscod.exceptions import InvalidInputError

HERE = Path(__file__).parent
FLOATS = np.arange(4, dtype="<f4")
RECONSTRUCT = np.zeros(1).__reduce__()[0]  # its module has moved between versions of numpy
SIZED_FLOATS = struct.pack("<q", 4) + FLOATS.tobytes()


def legacy_file(value, keys, tail, **system):
    """Write the old form of torch.save around a pickle."""
    head = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True, **system})
    return b"".join(pickle.dumps(v, 2) for v in head) + value + pickle.dumps(keys, 2) + tail


def read_bytes(tmp_path, data):
    (tmp_path / "file.pkl").write_bytes(data)
    return read_pickle(tmp_path / "file.pkl")


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for one, two in zip(a, b, strict=True):
            same(one, two)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b


# --- genuine -----------------------------------------------------------------------------------------------------


GENUINE = {
    "float": np.arange(6.0).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "big": np.arange(3, dtype=">i4"),
    "empty": np.zeros((0, 4)),
    "zero_d": np.array(2.5),
    "bool": np.array([True, False]),
    "text": np.array(["a", "bcd"]),
    "bytes": np.array([b"x", b"yz"]),
    "no text": np.array([], dtype="U1"),
    "scalars": [np.float32(1.5), np.int64(-3), np.bool_(True), 1, 2.5, None, True, "é", b"raw"],
    "nested": ({"a": [np.arange(2)]}, (), [], {}),
    "sets": {1, 2},
    "frozen": frozenset({3}),
    "bytearray": bytearray(b"xyz"),
    "long": 2**100,
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("core", ["numpy._core", "numpy.core"])
def test_arrays_and_containers(tmp_path, protocol, core):
    data = pickle.dumps(GENUINE, protocol)
    if protocol < 4:
        data = data.replace(b"numpy._core", core.encode())
    elif core == "numpy.core":
        pytest.skip("framed strings carry their length; numpy.core at protocol 4 is tested by hand below")
    same(read_bytes(tmp_path, data), GENUINE)


def test_old_module_path_at_protocol_4(tmp_path):
    data = pickle.dumps(np.arange(3.0), 4).replace(b"\x8c\x16numpy._core.multiarray", b"\x8c\x15numpy.core.multiarray")
    frame = data.index(b"\x95") + 1
    size = struct.unpack("<Q", data[frame : frame + 8])[0]
    data = data[:frame] + struct.pack("<Q", size - 1) + data[frame + 8 :]
    same(read_bytes(tmp_path, data), np.arange(3.0))


def test_ordered_dict_becomes_dict(tmp_path):
    same(read_bytes(tmp_path, pickle.dumps(collections.OrderedDict(a=1))), {"a": 1})


def test_shared_containers_and_arrays(tmp_path):
    array, inner = np.arange(3), [1]
    value = read_bytes(tmp_path, pickle.dumps([array, array, inner, inner]))
    assert value[2] is value[3]
    same(value, [array, array, inner, inner])


def test_arrays_own_their_memory(tmp_path):
    value = read_bytes(tmp_path, pickle.dumps(np.arange(3.0)))
    value[0] = 5.0
    assert value.flags.owndata


def test_genuine_torch_file():
    """Written by torch 2.13 with torch.save, in its old form."""
    expected = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "b": np.array([True, False]),
        "c": np.array([1, 2], dtype=np.int16),
        "d": np.arange(3.0),
        "e": np.array(2.5),
        "f": np.zeros((0, 3), np.float32),
        "g": np.array([1.5], np.float16),
    }
    same(read_pickle(HERE / "tensors_legacy.pt"), expected)


def test_the_new_form_of_torch_save_is_refused_with_the_way_to_read_it():
    with pytest.raises(
        InvalidInputError,
        match=r"zip archive, as torch.save writes it: load it with torch.load\(path, weights_only=True\)",
    ):
        read_pickle(HERE / "tensors_zip.pt")


def test_genuine_pickle_of_tensors():
    """Written by pickle.dump with torch 2.13, as OpenOOD does: every tensor carries its own old-form file."""
    value = read_pickle(HERE / "openood_v15_torch.pkl")
    same(value["id"]["test"][0], np.array([2, 0, 2, 0]))
    np.testing.assert_allclose(value["id"]["test"][1], [0.3074, 0.6341, 0.4901, 0.8964], atol=1e-4)
    assert value["id"]["test"][1].dtype == np.float32
    same(value["ood"]["far"]["svhn"][2], np.array([0, 8]))
    assert value["id"]["train"] is None


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_tensors_at_every_protocol(tmp_path, protocol):
    """The bytes of a tensor are themselves a file of torch.save in its old form."""
    raw = legacy_file(b"\x80\x02(Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nI4\nNtQ.", ["0"], SIZED_FLOATS)
    load = types.ModuleType("torch.storage")

    def _load_from_bytes(data):
        raise AssertionError("the real function must not be called")

    _load_from_bytes.__module__, _load_from_bytes.__qualname__ = "torch.storage", "_load_from_bytes"
    load._load_from_bytes = _load_from_bytes
    utils = types.ModuleType("torch._utils")

    def _rebuild_tensor_v2(*args):
        raise AssertionError("the real function must not be called")

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    tensor = Call(_rebuild_tensor_v2, Call(_load_from_bytes, raw), 0, (2, 2), (2, 1), False, collections.OrderedDict())
    fakes = {"torch": types.ModuleType("torch"), "torch.storage": load, "torch._utils": utils}
    before = {name: sys.modules.get(name) for name in fakes}
    sys.modules.update(fakes)
    try:
        data = pickle.dumps({"id": [tensor]}, protocol)
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module
    same(read_bytes(tmp_path, data), {"id": [FLOATS.reshape(2, 2)]})


def test_torch_is_not_needed_and_not_imported():
    code = (
        "import sys\n"
        "from poscod.datasets import read_pickle\n"
        f"read_pickle({str(HERE / 'openood_v15_torch.pkl')!r})\n"
        f"read_pickle({str(HERE / 'tensors_legacy.pt')!r})\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- hostile -----------------------------------------------------------------------------------------------------


class Call:
    """Pickles as a call of any function."""

    def __init__(self, function, *args, state=None):
        self.parts = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.parts


def hostile(marker):
    touch = f"open({str(marker)!r}, 'w').close()"
    return {
        "os.system": Call(os.system, f"touch {marker}"),
        "builtins.eval": Call(builtins.eval, touch),
        "builtins.exec": Call(builtins.exec, touch),
        "builtins.getattr": Call(getattr, {}, "clear"),
        "builtins.open": Call(open, str(marker), "w"),
        "builtins.__import__": Call(__import__, "antigravity"),
        "functools.partial": Call(functools.partial, os.system, f"touch {marker}"),
        "numpy.load": Call(np.load, str(marker)),
        "numpy.save": Call(np.save, str(marker), 1),
        "numpy.fromfile": Call(np.fromfile, str(marker)),
        "copyreg._reconstructor": Call(copyreg._reconstructor, dict, object, None),
        "subprocess.Popen": Call(subprocess.Popen, ["touch", str(marker)]),
        "pathlib.Path.touch": Call(Path.touch, Path(marker)),
        "io.open_code": Call(io.open_code, str(marker)),
        "collections.defaultdict": collections.defaultdict(os.getcwd),
        "pickle.loads": Call(pickle.loads, pickle.dumps(1)),
        "builtins.object": Call(object),
    }


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("name", sorted(hostile("x")))
@pytest.mark.parametrize("place", ["top", "in a list", "in an object array", "as a dict key", "as array state"])
def test_other_names_are_refused_by_name_and_nothing_runs(tmp_path, protocol, name, place):
    marker = tmp_path / "marker"
    evil = hostile(marker)[name]
    value = {
        "top": evil,
        "in a list": [np.arange(3), evil],
        "in an object array": np.array([evil, 1], dtype=object),
        "as a dict key": [(evil, 1)],
        "as array state": Call(RECONSTRUCT, np.ndarray, (0,), b"b", state=(1, (1,), evil)),
    }[place]
    try:
        data = pickle.dumps(value, protocol)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        pytest.skip(f"not picklable at this protocol: {error}")
    with pytest.raises(InvalidInputError) as caught:
        read_bytes(tmp_path, data)
    assert not marker.exists()
    message = str(caught.value)
    assert "names '" in message or "object arrays are not read" in message
    if place == "top" and name not in ("pathlib.Path.touch", "io.open_code"):
        assert name.split(".")[-1] in message
    assert "\n" not in message


def test_the_hostile_pickles_do_run_elsewhere(tmp_path):
    """Without this, the test above could pass with harmless pickles."""
    marker = tmp_path / "marker"
    for name in ("os.system", "builtins.eval", "builtins.exec"):
        pickle.loads(pickle.dumps(hostile(marker)[name]))
        assert marker.exists(), name
        marker.unlink()


def torch_file(value):
    """The old form of torch.save with one storage, '0', of four floats."""
    return legacy_file(value, ["0"], SIZED_FLOATS)


def tensor_pickle(shape, stride, *, offset=0, size=4, storage=b"FloatStorage", key="0"):
    """The bytes of data.pkl for one tensor, written by hand."""

    def ints(values):
        return b"(" + b"".join(b"I%d\n" % v for v in values) + b"t"

    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("
        b"(Vstorage\nctorch\n"
        + storage
        + b"\nV"
        + key.encode()
        + b"\nVcpu\nI%d\ntQ" % size
        + b"I%d\n" % offset
        + ints(shape)
        + ints(stride)
        + b"I00\nccollections\nOrderedDict\n)RtR."
    )


def test_tensor_written_by_hand(tmp_path):
    same(read_bytes(tmp_path, torch_file(tensor_pickle((2, 2), (2, 1)))), FLOATS.reshape(2, 2))


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (tensor_pickle((3, 2), (2, 1)), "over 4 items"),
        (tensor_pickle((2, 2), (3, 1)), "over 4 items"),
        (tensor_pickle((2,), (1,), offset=3), "over 4 items"),
        (tensor_pickle((10**9,), (0,)), "expanded tensors are not read"),
        (tensor_pickle((2,), (-1,)), "damaged tensor"),
        (tensor_pickle((-2,), (1,)), "damaged tensor"),
        (tensor_pickle((2,), (1,), offset=-1), "damaged tensor"),
        (tensor_pickle((2, 2), (1,)), "damaged tensor"),
        (tensor_pickle((2,), (1,), size=5), "of another size than announced"),
        (tensor_pickle((2,), (1,), size=-1), "a form that is not read"),
        (tensor_pickle((2,), (1,), storage=b"BFloat16Storage"), r"names 'torch\.BFloat16Storage'"),
        (tensor_pickle((2,), (1,), storage=b"load"), r"names 'torch\.load'"),
        (tensor_pickle((2,), (1,), key="../0"), "does not match its content"),
    ],
)
def test_tensors_that_lie_about_their_data_are_refused(tmp_path, pickled, message):
    with pytest.raises(InvalidInputError, match=message):
        read_bytes(tmp_path, torch_file(pickled))


def test_hostile_names_inside_torch_files_are_refused(tmp_path):
    marker = tmp_path / "marker"
    evil = pickle.dumps(Call(os.system, f"touch {marker}"), 2)
    legacy = b"".join(pickle.dumps(v, 2) for v in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    nested = legacy + evil + pickle.dumps([], 2)
    inner = b"\x80\x03ctorch.storage\n_load_from_bytes\n(B" + struct.pack("<I", len(nested)) + nested + b"tR."
    for data in (torch_file(evil), nested, inner):
        with pytest.raises(InvalidInputError, match=r"names '(posix|nt)\.system'"):
            read_bytes(tmp_path, data)
    assert not marker.exists()
    # A tensor's bytes may not hold further tensors' bytes: no recursion to exhaust the stack with.
    twice = legacy + inner + pickle.dumps([], 2)
    outer = b"\x80\x03ctorch.storage\n_load_from_bytes\n(B" + struct.pack("<I", len(twice)) + twice + b"tR."
    with pytest.raises(InvalidInputError, match=r"names 'torch\.storage\._load_from_bytes'"):
        read_bytes(tmp_path, outer)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x02ccopyreg\n__newobj__\n)R.", r"names 'copyreg\.__newobj__'"),
        (b"\x80\x02ccopy_reg\n_reconstructor\n)R.", r"names 'copy_?reg\._reconstructor'"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.__new__\x93.", r"names 'numpy\.ndarray\.__new__'"),
        (b"\x80\x02c__builtin__\nbytes\n(I9\ntR.", "not a readable pickle"),
        (b"\x80\x02ctorch.storage\n_load_from_bytes\n(I1\ntR.", "damaged tensor"),
        (torch_file(b"\x80\x02(Vmodule\nNtQ."), "a form that is not read"),
        (b"PK\x03\x04 damaged", "zip archive"),
        (b"", "not a readable pickle"),
        (b"hello", "not a readable pickle"),
        (pickle.dumps(np.arange(9.0))[:-30], "not a readable pickle"),
        (b"\x80\x02\x82\x01.", "extension registry"),
        (b"\x80\x02Nr\xff\xff\xff\x7f.", "more memory than its size warrants"),
        (b"\x80\x02Np2147483647\n.", "more memory than its size warrants"),
        (b"\x80\x04]\x94h\x00a.", "inside itself"),
        (b"\x80\x02cnumpy\nndarray\n.", "got a class or function"),
        (b"\x80\x02cnumpy\nndarray\n)R.", "a class that it may only name"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "not a readable pickle"),
        (b"\x80\x02cnumpy\ndtype\n}(Vname\nNub.", "must not change classes and functions"),
        (b"\x80\x02cnumpy\ndtype\n(NV__defaults__\nNtb.", "must not change classes and functions"),
        (b"\x80\x02cnumpy\ndtype\n(VO8\nI00\nI01\ntR.", "object arrays are not read"),
        (b"\x80\x02cnumpy\ndtype\n(Vf8,O8\nI00\nI01\ntR.", "object arrays are not read"),
        (b"\x80\x02cnumpy\ndtype\n(Vf8\ntR.", "got a class or function"),
        (b"\x80\x02cnumpy\ndtype\n(Vf8\ntR(I3\nV%\ntb.", "damaged dtype"),
        (b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R.", "array without content"),
        (b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)RNb.", "damaged array"),
        (b"\x80\x02cnumpy.core.multiarray\nscalar\n(I1\nI2\ntR.", "as bytes, got something else"),
        (b"\x80\x02cbuiltins\nbytearray\n(L99999999999L\ntR.", "damaged bytes"),
        (b"\x80\x02Vx\nQ.", "data outside of itself"),
        (b"\x80\x05\x97.", "not a readable pickle"),
    ],
)
def test_damaged_and_contrived_pickles_are_refused(tmp_path, data, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_bytes(tmp_path, data)
    assert "file.pkl" in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "raw"), [((3,), b"12345678" * 2), ((-1,), b"12345678"), ((10**12,), b""), ("x", b""), ((1.0,), b"1" * 8)]
)
def test_arrays_that_lie_about_their_size_are_refused(tmp_path, shape, raw):
    state = (1, shape, np.dtype("f8"), False, raw)
    with pytest.raises(InvalidInputError, match=r"damaged shape|whose shape does not fit"):
        read_bytes(tmp_path, pickle.dumps(Call(RECONSTRUCT, np.ndarray, (0,), b"b", state=state)))


def test_storage_cannot_be_swapped(tmp_path):
    swap = b"\x80\x02(Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nI4\ntQ}Varray\nNsb."
    with pytest.raises(InvalidInputError, match="must not change the data of a tensor"):
        read_bytes(tmp_path, torch_file(swap))


def test_one_storage_in_two_forms_is_refused(tmp_path):
    first, second = tensor_pickle((4,), (1,)), tensor_pickle((4,), (1,), storage=b"IntStorage")
    both = b"\x80\x02]" + first[2:-1] + b"a" + second[2:-1] + b"a."
    with pytest.raises(InvalidInputError, match="two different forms"):
        read_bytes(tmp_path, torch_file(both))


def many_tensors(n, size):
    """A list of tensors, each small beside the file, all together not."""
    parts = [tensor_pickle((4,), (1,), size=size, key=str(i))[2:-1] + b"a" for i in range(n)]
    return b"\x80\x02]" + b"".join(parts) + b"."


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (legacy_file(tensor_pickle((4,), (1,)), ["0"], struct.pack("<q", 5) + FLOATS.tobytes()), "of another size"),
        (legacy_file(tensor_pickle((4,), (1,)), ["0"], struct.pack("<q", 4) + b"123"), "3 bytes for a tensor of 16"),
        (legacy_file(tensor_pickle((4,), (1,)), ["1"], b""), "does not match its content"),
        (legacy_file(tensor_pickle((4,), (1,), size=10**12), ["0"], b""), "larger than itself"),
        (legacy_file(many_tensors(200, 100), [str(i) for i in range(200)], b""), "larger than itself"),
        (legacy_file(b"\x80\x02N.", [], b"", little_endian=False), "big-endian"),
    ],
)
def test_damaged_old_torch_files_are_refused(tmp_path, data, message):
    with pytest.raises(InvalidInputError, match=message):
        read_bytes(tmp_path, data)


def test_old_torch_file_written_by_hand(tmp_path):
    data = legacy_file(tensor_pickle((4,), (1,)), ["0"], struct.pack("<q", 4) + FLOATS.tobytes())
    same(read_bytes(tmp_path, data), FLOATS)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_pickle(tmp_path / "none.pkl")


# --- small files that stand for much -------------------------------------------------------------------------------


def contrived(depth: int = 60) -> bytes:
    """A tuple of two tuples that are one tuple, and so on: 2 ** depth values to hash, to show or to convert."""
    value = b")"
    for i in range(depth):
        value += b"q%c0h%ch%c\x86" % (i, i, i)  # memo, pop, get twice, pair
    return value


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02}" + contrived() + b"K\x01s.",
        b"\x80\x02}(" + contrived() + b"K\x01u.",
        b"\x80\x02(" + contrived() + b"K\x01d.",
        b"\x80\x04\x8f(" + contrived() + b"\x90.",
        b"\x80\x04(" + contrived() + b"\x91.",
        b"\x80\x02cbuiltins\nset\n(" + contrived() + b"lq\xff\x85R.",
        b"\x80\x02ccollections\nOrderedDict\n((" + contrived() + b"K\x01ll\x85R.",
    ],
    ids=["setitem", "setitems", "dict", "additems", "frozenset", "set", "ordered dict"],
)
def test_tuples_of_shared_tuples_are_never_hashed(tmp_path, data):
    assert len(data) < 700
    with pytest.raises(InvalidInputError, match="numbers and texts as keys"):
        read_bytes(tmp_path, data)


def test_no_sentence_shows_a_value_of_the_file(tmp_path):
    shown = b"\x80\x02cnumpy\ndtype\n" + contrived() + b"\x85R."
    with pytest.raises(InvalidInputError, match="got dtype something else"):
        read_bytes(tmp_path, shown)
    with pytest.raises(InvalidInputError, match=r"names 'evil\\x1b\[31m\.thing'"):
        read_bytes(tmp_path, b"\x80\x02cevil\x1b[31m\nthing\n.")
    legacy = legacy_file(pickle.dumps({}, 2), [], b"")
    keys = pickle.dumps([], 2)
    hostile = legacy[: legacy.rindex(keys)] + b"\x80\x02](" + contrived() + b"e."
    with pytest.raises(InvalidInputError, match="again and again"):
        read_bytes(tmp_path, hostile)


def test_containers_named_again_and_again_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="again and again"):
        read_bytes(tmp_path, b"\x80\x02" + contrived() + b".")


def test_bytes_used_again_and_again_are_refused(tmp_path):
    """One string of a megabyte and a call for each of a hundred arrays of it."""
    raw = np.zeros(1 << 17).tobytes()
    call = pickle.dumps(np.zeros(2), 5)
    assert b"_frombuffer" in call or b"_reconstruct" in call
    one = b"\x80\x04cnumpy._core.numeric\n_frombuffer\nq\x000B" + struct.pack("<I", len(raw)) + raw + b"q\x010"
    one += b"cnumpy\ndtype\nVf8\n\x85Rq\x020]("
    again = b"h\x00(h\x01h\x02(J\x00\x00\x02\x00tVC\ntR"
    assert len(read_bytes(tmp_path, one + again + b"e.")) == 1
    with pytest.raises(InvalidInputError, match="much more than its size warrants"):
        read_bytes(tmp_path, one + again * 100 + b"e.")


def test_arrays_of_items_without_a_size_are_bounded(tmp_path):
    state = (1, (10**12,), np.dtype("U0"), False, b"")
    with pytest.raises(InvalidInputError, match=r"much more than its size warrants|got dtype"):
        read_bytes(tmp_path, pickle.dumps(Call(RECONSTRUCT, np.ndarray, (0,), b"b", state=state)))
