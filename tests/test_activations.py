import builtins
import json
import os
import struct
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pytest

from poscod import Activations
from poscod.exceptions import InvalidInputError, MissingExtraError

PARTS = ("features", "logits", "labels", "weight", "bias")
SUFFIXES = [".npz", ".safetensors"]


def example(n=7, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    features, weight = rng.normal(size=(n, 5)).astype(dtype), rng.normal(size=(3, 5)).astype(dtype)
    return Activations(features, features @ weight.T, rng.integers(-1, 3, n), weight, np.zeros(3, dtype))


def assert_same(a, b):
    for part in PARTS:
        left, right = getattr(a, part), getattr(b, part)
        assert (left is None) == (right is None)
        if left is not None:
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)


def mapped(array):
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


# --- the value ---------------------------------------------------------------------------------------------------


def test_shapes_and_parts():
    act = example()
    assert (len(act), act.n_classes, act.n_features) == (7, 3, 5)
    assert repr(act).startswith("Activations(features=(7, 5) float32, logits=(7, 3) float32, labels=(7,) int64")
    assert act.need("features") is act.features
    assert [len(block) for block in act.chunks(3)] == [3, 3, 1]
    assert_same(act[np.arange(7) > 4], act[5:])
    assert_same(act[[6, 0]], act[np.array([6, 0])])


def test_bias_defaults_to_zero():
    act = Activations(features=np.ones((2, 3)), weight=np.ones((4, 3)))
    np.testing.assert_array_equal(act.bias, np.zeros(4))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "needs features, logits or both, got neither"),
        ({"features": np.ones(3)}, r"features must be two-dimensional \(rows, columns\), got shape \(3,\)"),
        ({"features": [[np.nan]]}, "features must be finite, got nan at row 0, column 0"),
        ({"features": [["a"]]}, "features must be an array of real numbers"),
        ({"features": np.ones((2, 1)), "logits": np.ones((3, 1))}, "logits must have 2 rows, got 3"),
        ({"logits": np.ones((2, 2)), "labels": [0]}, r"labels must have as many rows as features and logits \(2\)"),
        (
            {"logits": np.ones((2, 2)), "labels": [0, 2]},
            r"labels must be class indices 0, ..., 1, or -1 .* got 2 at row 1",
        ),
        ({"logits": np.ones((2, 2)), "labels": [0, 0.5]}, "labels must be class indices .* got 0.5 at row 1"),
        ({"logits": np.ones((2, 2)), "labels": [0, -2]}, "labels must be class indices .* got -2 at row 1"),
        ({"logits": np.ones((2, 2)), "bias": [0, 0]}, "bias was given without weight"),
        ({"features": np.ones((2, 2)), "weight": np.ones((3, 4))}, "weight must have 2 columns, got 4"),
        ({"logits": np.ones((2, 2)), "weight": np.ones((3, 4))}, "weight must have 2 rows, got 3"),
        ({"logits": np.ones((2, 2)), "weight": np.ones((2, 4)), "bias": [1]}, "bias must have as many rows as weight"),
    ],
)
def test_bad_parts_are_refused(parts, message):
    with pytest.raises(InvalidInputError, match=message):
        Activations(**parts)


def test_bad_use_is_refused():
    act = Activations(logits=np.ones((2, 2)))
    with pytest.raises(InvalidInputError, match="This operation needs features, which these activations do not have"):
        act.n_features  # noqa: B018
    with pytest.raises(InvalidInputError, match="rows must be a slice, a list of indices or a boolean mask"):
        act[np.ones((2, 2), dtype=bool)]
    with pytest.raises(InvalidInputError, match="rows must be a whole number >= 1, got 0"):
        list(act.chunks(0))


# --- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_trip(tmp_path, suffix, mmap, dtype):
    act = example(dtype=dtype)
    act.save(tmp_path / f"a{suffix}")
    back = Activations.load(tmp_path / f"a{suffix}", mmap=mmap)
    assert_same(back, act)
    assert mapped(back.features) == mmap
    assert mapped(back.logits) == mmap
    assert [p.name for p in tmp_path.iterdir()] == [f"a{suffix}"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "act",
    [
        Activations(logits=np.ones((2, 3))),
        Activations(features=np.ones((0, 3)), logits=np.ones((0, 2))),
        Activations(features=np.asfortranarray(np.arange(6.0).reshape(2, 3))),
        Activations(features=np.arange(12.0).reshape(2, 6)[:, ::2]),
        Activations(features=[[1, 2]], labels=[-1]),
    ],
)
def test_round_trip_of_odd_shapes(tmp_path, suffix, act):
    act.save(str(tmp_path / f"a{suffix}"))
    assert_same(Activations.load(str(tmp_path / f"a{suffix}")), act)


def test_npz_is_plain_numpy_and_aligned(tmp_path):
    act = example(1001)
    act.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert set(archive) == set(PARTS)
        np.testing.assert_array_equal(archive["features"], act.features)
    back = Activations.load(tmp_path / "a.npz")
    for part in PARTS:
        if mapped(getattr(back, part)):
            assert getattr(back, part).ctypes.data % 64 == 0
    assert zipfile.ZipFile(tmp_path / "a.npz").testzip() is None


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_of_numpy_are_read_and_other_arrays_ignored(tmp_path, save):
    act = example()
    save(tmp_path / "a.npz", features=act.features, logits=act.logits, index=np.arange(7))
    back = Activations.load(tmp_path / "a.npz")
    np.testing.assert_array_equal(back.features, act.features)
    assert back.labels is None
    assert mapped(back.features) == (save is np.savez)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_all_versions_of_the_npy_header(tmp_path, version):
    act = example()
    with (
        zipfile.ZipFile(tmp_path / "a.npz", "w") as archive,
        archive.open("features.npy", "w") as member,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # numpy warns that others may not read version 2
        np.lib.format.write_array(member, act.features, version=version)
    back = Activations.load(tmp_path / "a.npz")
    np.testing.assert_array_equal(back.features, act.features)
    assert mapped(back.features) == (version < (3, 0))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_map_is_read_only_and_survives_replacement(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    example(seed=1).save(path)
    back = Activations.load(path)
    with pytest.raises(ValueError, match="read-only"):
        back.features[0] = 0
    example(seed=2).save(path)  # also over the very file that is mapped
    np.testing.assert_array_equal(back.features, example(seed=1).features)
    back.save(path)
    assert_same(Activations.load(path), example(seed=1))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("step", ["fsync", "replace", "write"])
def test_failing_save_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch, suffix, step):
    path = tmp_path / f"a{suffix}"
    example(seed=1).save(path)
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise KeyboardInterrupt if step == "fsync" else OSError("disk full")

    if step == "write":
        target = "numpy.lib.format.write_array" if suffix == ".npz" else "safetensors.numpy.save"
        monkeypatch.setattr(target, fail)
    else:
        monkeypatch.setattr({"fsync": "os.fsync", "replace": "pathlib.Path.replace"}[step], fail)
    with pytest.raises((OSError, KeyboardInterrupt)):
        example(seed=2).save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["a.pkl", "a", "a.npz.gz", "a.pt"])
def test_unknown_extension_is_refused(tmp_path, name):
    for call in (example().save, Activations.load):
        with pytest.raises(InvalidInputError, match=r"path must end in \.npz or \.safetensors, got"):
            call(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("mmap", [True, False])
def test_damaged_files_are_refused_with_a_sentence(tmp_path, suffix, mmap):
    path = tmp_path / f"a{suffix}"
    example().save(path)
    whole = path.read_bytes()
    for broken in (b"", b"no archive", whole[: len(whole) // 2], whole[:40]):
        path.write_bytes(broken)
        with pytest.raises(InvalidInputError, match="could not be read as plain arrays"):
            Activations.load(path, mmap=mmap)


@pytest.mark.parametrize("mmap", [True, False])
def test_pickled_members_are_refused(tmp_path, mmap):
    np.savez(tmp_path / "a.npz", features=np.array([[{}]], dtype=object))
    with pytest.raises(InvalidInputError, match="could not be read as plain arrays"):
        Activations.load(tmp_path / "a.npz", mmap=mmap)


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("claim", [b"(9, 5)", b"(6, 5)", b"(1e9,)", b"(9E, 5", b"(-7,5)"])
def test_a_member_with_a_wrong_size_is_refused(tmp_path, mmap, claim):
    example().save(tmp_path / "a.npz")
    whole = (tmp_path / "a.npz").read_bytes()
    assert whole.count(b"(7, 5)") == 1
    (tmp_path / "a.npz").write_bytes(whole.replace(b"(7, 5)", claim))
    with pytest.raises(InvalidInputError, match="could not be read as plain arrays"):
        Activations.load(tmp_path / "a.npz", mmap=mmap)


def test_nan_in_a_file_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", features=np.array([[1.0, np.nan]]))
    with pytest.raises(InvalidInputError, match="features must be finite, got nan at row 0, column 1"):
        Activations.load(tmp_path / "a.npz")


def test_a_file_without_known_parts_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", feature=np.ones((2, 2)))
    with pytest.raises(InvalidInputError, match="must hold features, logits or both, got neither"):
        Activations.load(tmp_path / "a.npz")


def test_missing_file_and_folder(tmp_path):
    for suffix in SUFFIXES:
        with pytest.raises(FileNotFoundError):
            Activations.load(tmp_path / f"none{suffix}")
        with pytest.raises(FileNotFoundError):
            example().save(tmp_path / "none" / f"a{suffix}")


def test_safetensors_is_optional(tmp_path, monkeypatch):
    original = builtins.__import__
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    assert builtins.__import__ is original
    with pytest.raises(MissingExtraError, match=r"Writing \.safetensors needs the package 'safetensors'"):
        example().save(tmp_path / "a.safetensors")
    with pytest.raises(MissingExtraError, match=r"Reading \.safetensors needs the package 'safetensors'"):
        Activations.load(tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_saving_and_loading_npz_needs_nothing_optional(tmp_path):
    code = (
        "import sys, poscod\n"
        f"poscod.Activations(logits=[[1.0, 2.0]]).save({str(tmp_path / 'a.npz')!r})\n"
        f"poscod.Activations.load({str(tmp_path / 'a.npz')!r})\n"
        "assert not {'safetensors', 'torch'} & set(sys.modules)\n"  # scikit-learn itself loads pandas
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    for suffix in (".npz", ".safetensors"):
        os.mkfifo(tmp_path / f"a{suffix}")
        with pytest.raises(InvalidInputError, match="it is a device or pipe"):
            Activations.load(tmp_path / f"a{suffix}")


def safetensors_file(header, data=b"\0" * 64, size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


@pytest.mark.parametrize(
    "data",
    [
        safetensors_file({}, size=2**63),
        safetensors_file({}, size=2**30),
        safetensors_file({"logits": {"dtype": "F64", "shape": [2**62, 2**62], "data_offsets": [0, 64]}}),
        safetensors_file({"logits": {"dtype": "F64", "shape": [-1, 8], "data_offsets": [0, 64]}}),
        safetensors_file({"logits": {"dtype": "F64", "shape": [8, 1], "data_offsets": [64, 0]}}),
        safetensors_file({"logits": {"dtype": "F64", "shape": [8, 1], "data_offsets": [0, 640]}}),
        safetensors_file(
            {
                name: {"dtype": "F64", "shape": [8, 1], "data_offsets": [0, 64]}  # one place for two tensors
                for name in ("features", "logits")
            }
        ),
        safetensors_file({"logits": {"dtype": "X9", "shape": [8, 1], "data_offsets": [0, 64]}}),
        safetensors_file({"logits": [1, 2]}),
        safetensors_file(b"[" * 100_000),
        safetensors_file(b'{"__metadata__": {"a": 1}}'),
        safetensors_file(b"\xff\xfe{}"),
        b"",
    ],
    ids=range(13),
)
def test_hostile_safetensors_are_refused_in_a_sentence(tmp_path, data):
    (tmp_path / "a.safetensors").write_bytes(data)
    with pytest.raises(InvalidInputError) as caught:
        Activations.load(tmp_path / "a.safetensors")
    assert str(tmp_path) in str(caught.value)
    assert len(str(caught.value)) < 1000
