import pickle
from pathlib import Path

import numpy as np
import pytest

from poscod import Activations
from poscod.datasets import ScoreTable, check_aligned, read_activations, read_fd_shifts, read_openood
from poscod.exceptions import InvalidInputError

HERE = Path(__file__).parent


def dump(path, content):
    path.write_bytes(pickle.dumps(content))
    return path


def rows(n, seed=0, classes=5):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, classes, n), rng.normal(size=n), rng.integers(0, classes, n)]


def content():
    return {
        "id": {"train": None, "val": rows(3, 9), "test": rows(6)},
        "csid": {"cifar10c": rows(2, 4)},
        "ood": {"val": rows(2, 5), "near": {"tin": rows(4, 1), "unscored": None}, "far": {"svhn": rows(5, 2, 50)}},
        "id_preds": None,
    }


# --- OpenOOD 1.5 -------------------------------------------------------------------------------------------------


def test_genuine_dump_with_tensors():
    table = read_openood(HERE / "openood_v15_torch.pkl", direction="confidence")
    assert repr(table) == "ScoreTable({'id': 4, 'cifar100': 3, 'svhn': 2})"
    np.testing.assert_array_equal(table.pred, [2, 0, 2, 0, 2, 0, 2, 2, 0])
    np.testing.assert_array_equal(table.label, [1, 0, 2, 2, -1, -1, -1, -1, -1])
    np.testing.assert_array_equal(table.raw_label, [1, 0, 2, 2, 8, 5, 7, 0, 8])
    np.testing.assert_array_equal(table.is_ood, [False] * 4 + [True] * 5)
    assert table.group.tolist() == ["id"] * 4 + ["near"] * 3 + ["far"] * 2
    np.testing.assert_allclose(table.score[:2], [-0.30742282, -0.6340787], rtol=1e-6)
    assert table.score.dtype == np.float64


def test_groups(tmp_path):
    path = dump(tmp_path / "a.pkl", content())
    table = read_openood(path, direction="confidence")
    assert repr(table) == "ScoreTable({'id': 6, 'cifar10c': 2, 'tin': 4, 'svhn': 5})"
    csid, svhn = table[table.group == "csid"], table[table.dataset == "svhn"]
    np.testing.assert_array_equal(csid.label, content()["csid"]["cifar10c"][2])
    assert not csid.is_ood.any()
    np.testing.assert_array_equal(svhn.score, -content()["ood"]["far"]["svhn"][1])
    np.testing.assert_array_equal(svhn.raw_label, content()["ood"]["far"]["svhn"][2])
    assert (svhn.group == "far").all()


def test_direction_is_required_and_flips_once(tmp_path):
    path = dump(tmp_path / "a.pkl", content())
    with pytest.raises(TypeError, match="direction"):
        read_openood(path)
    with pytest.raises(InvalidInputError, match="direction must be one of 'confidence', 'uncertainty', got 'conf'"):
        read_openood(path, direction="conf")
    confidence, uncertainty = (read_openood(path, direction=d) for d in ("confidence", "uncertainty"))
    np.testing.assert_array_equal(confidence.score, -uncertainty.score)
    np.testing.assert_array_equal(uncertainty.score[:6], content()["id"]["test"][1])


def test_paths_of_the_fork_are_not_sets(tmp_path):
    fork = content()
    fork["id"]["test_paths"] = [f"id/{i}.png" for i in range(6)]
    fork["csid"] = {}
    fork["ood"] = {
        "near": {"tin": rows(4, 1), "tin_paths": np.array(list("abcd"))},
        "far": {"svhn": rows(5, 2), "svhn_paths": tuple("efghi")},
    }
    table = read_openood(dump(tmp_path / "a.pkl", fork), direction="confidence")
    assert repr(table) == "ScoreTable({'id': 6, 'tin': 4, 'svhn': 5})"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("ood"), "must hold a dict with 'id' and 'ood'"),
        (lambda c: c["id"].pop("test"), r"'id' must be a list \[pred, conf, gt\]"),
        (lambda c: c["id"].update(test=[1, 2]), r"'id' must be a list \[pred, conf, gt\]"),
        (lambda c: c["id"]["test"].__setitem__(1, np.array([np.nan] * 6)), "the score of 'id' must not contain NaN"),
        (lambda c: c["id"]["test"].__setitem__(0, np.arange(5)), "the prediction of 'id' must have as many rows"),
        (lambda c: c["id"]["test"].__setitem__(2, np.full(6, 0.5)), "the label of 'id' must hold whole numbers"),
        (lambda c: c.update(ood=[]), "'ood' must be a dict of groups"),
    ],
)
def test_other_layouts_are_refused(tmp_path, change, message):
    other = content()
    change(other)
    with pytest.raises(InvalidInputError, match=message):
        read_openood(dump(tmp_path / "a.pkl", other), direction="confidence")


# --- OpenOOD 1 ---------------------------------------------------------------------------------------------------


def test_version_1_folder(tmp_path):
    pred, conf, label = rows(4)
    np.savez(tmp_path / "cifar10.npz", pred=pred, conf=conf, label=label)
    np.savez(tmp_path / "aircraft.npz", pred=pred, conf=conf, label=np.full(4, -1))
    table = read_openood(tmp_path, direction="confidence")
    assert repr(table) == "ScoreTable({'cifar10': 4, 'aircraft': 4})"
    np.testing.assert_array_equal(table.score, -np.r_[conf, conf])
    np.testing.assert_array_equal(table.is_ood, [False] * 4 + [True] * 4)
    one = read_openood(tmp_path / "aircraft.npz", direction="uncertainty")
    np.testing.assert_array_equal(one.score, conf)
    assert one.is_ood.all()


def test_version_1_refusals(tmp_path):
    with pytest.raises(InvalidInputError, match=r"must hold \.npz files, got none"):
        read_openood(tmp_path, direction="confidence")
    np.savez(tmp_path / "a.npz", pred=[1], label=[0])
    with pytest.raises(InvalidInputError, match="must hold the array 'conf', got pred, label"):
        read_openood(tmp_path, direction="confidence")
    np.savez(tmp_path / "a.npz", pred=[1, 1], conf=[0, 1], label=[0, -1])
    with pytest.raises(InvalidInputError, match="mixes rows with label -1 and others"):
        read_openood(tmp_path, direction="confidence")
    np.savez(tmp_path / "a.npz", pred=np.array([{}], dtype=object), conf=[1], label=[0])
    with pytest.raises(InvalidInputError, match="could not be read as plain arrays"):
        read_openood(tmp_path, direction="confidence")


# --- alignment ---------------------------------------------------------------------------------------------------


def test_aligned_tables_pass_and_others_are_refused(tmp_path):
    table = read_openood(dump(tmp_path / "a.pkl", content()), direction="confidence")
    check_aligned({"msp": table, "knn": table[:]})
    order = np.arange(len(table))
    order[[0, 1]] = [1, 0]
    with pytest.raises(InvalidInputError, match=r"'knn' and 'msp' differ in raw_label at row 0 \('id'\)"):
        check_aligned({"msp": table, "knn": table[order]})
    with pytest.raises(InvalidInputError, match="'knn' has 3 and 'msp' has 17"):
        check_aligned({"msp": table, "knn": table[:3]})


def test_a_method_may_predict_anew(tmp_path):
    table = read_openood(dump(tmp_path / "a.pkl", content()), direction="confidence")
    anew = ScoreTable(table.pred + 1, table.score, table.label, table.raw_label, table.dataset, table.group)
    check_aligned({"msp": table, "react": anew})


# --- fd-shifts ---------------------------------------------------------------------------------------------------


def fd_folder(tmp_path, n=8, d=4, k=3, dtype=np.float64):
    rng = np.random.default_rng(0)
    features, weight, bias = rng.normal(size=(n, d)), rng.normal(size=(k, d)), rng.normal(size=k)
    index = np.arange(n) % 2 * 2
    labels = np.where(index == 2, 77, rng.integers(0, k, n))
    logits = features @ weight.T + bias
    np.savez_compressed(tmp_path / "raw_logits.npz", np.c_[logits, labels, index].astype(dtype))
    np.savez_compressed(tmp_path / "encoded_output.npz", np.c_[features, index].astype(dtype))
    np.savez(tmp_path / "last_layer.npz", w=weight, b=bias)
    return features, logits, labels, index, weight, bias


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_fd_shifts_folder(tmp_path, dtype):
    features, logits, labels, index, weight, bias = fd_folder(tmp_path, dtype=dtype)
    sets = read_fd_shifts(tmp_path, ood=(2,))
    assert list(sets) == [0, 2]
    tolerance = {"rtol": 2e-3, "atol": 2e-3} if dtype == np.float16 else {"rtol": 0}
    np.testing.assert_allclose(sets[0].features, features[index == 0], **tolerance)
    np.testing.assert_allclose(sets[2].logits, logits[index == 2], **tolerance)
    np.testing.assert_array_equal(sets[0].labels, labels[index == 0])
    np.testing.assert_array_equal(sets[2].labels, -1)
    np.testing.assert_array_equal(sets[2].weight, weight)
    np.testing.assert_array_equal(sets[0].bias, bias)


def test_fd_shifts_without_features(tmp_path):
    fd_folder(tmp_path)
    (tmp_path / "encoded_output.npz").unlink()
    (tmp_path / "last_layer.npz").unlink()
    sets = read_fd_shifts(tmp_path, ood=[2])
    assert sets[0].features is None
    assert sets[0].weight is None


def test_fd_shifts_refusals(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_fd_shifts(tmp_path)
    features, *_ = fd_folder(tmp_path)
    with pytest.raises(InvalidInputError, match=r"labels must be class indices 0, ..., 2, or -1 .* got 77"):
        read_fd_shifts(tmp_path)
    with pytest.raises(InvalidInputError, match=r"ood must hold dataset indices of .*\(\[0, 2\]\), got 1"):
        read_fd_shifts(tmp_path, ood=(1, 2))
    np.savez(tmp_path / "encoded_output.npz", np.c_[features, np.zeros(8)])
    with pytest.raises(InvalidInputError, match="dataset indices differ"):
        read_fd_shifts(tmp_path, ood=(2,))
    np.savez(tmp_path / "last_layer.npz", weight=1)
    (tmp_path / "encoded_output.npz").unlink()
    with pytest.raises(InvalidInputError, match="must hold the array 'w', got weight"):
        read_fd_shifts(tmp_path, ood=(2,))
    np.savez(tmp_path / "raw_logits.npz", np.ones((3, 2)))
    with pytest.raises(InvalidInputError, match="must hold logits, label and dataset index"):
        read_fd_shifts(tmp_path)


# --- plain arrays and tables -------------------------------------------------------------------------------------


def test_npy_files(tmp_path):
    rng = np.random.default_rng(1)
    parts = {
        "features": rng.normal(size=(5, 4)).astype(np.float32),
        "logits": rng.normal(size=(5, 3)),
        "labels": np.array([0, 1, 2, -1, 0]),
        "weight": rng.normal(size=(3, 4)),
        "bias": np.zeros(3),
    }
    for name, value in parts.items():
        np.save(tmp_path / f"{name}.npy", value)
    act = read_activations(**{name: tmp_path / f"{name}.npy" for name in parts})
    for name, value in parts.items():
        np.testing.assert_array_equal(getattr(act, name), value)
        assert getattr(act, name).dtype == value.dtype
    assert isinstance(act, Activations)
    assert not act.features.flags.writeable  # mapped, not read


def test_npy_refusals(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[{}]], dtype=object))
    (tmp_path / "b.npy").write_bytes(b"")
    np.savez(tmp_path / "c.npz", features=np.ones((2, 2)))
    for name in ("a.npy", "b.npy", "c.npz"):
        with pytest.raises(InvalidInputError, match=r"could not be read as a plain array, a \.npy file"):
            read_activations(features=tmp_path / name)
    with pytest.raises(InvalidInputError, match="got neither"):
        read_activations()


@pytest.fixture
def parquet(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    features = np.arange(12, dtype=np.float32).reshape(4, 3)
    table = pa.table(
        {
            "fixed": pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), 3),
            "lists": [row.tolist() for row in features],
            "ragged": [[1.0], [1.0, 2.0], [1.0], [1.0]],
            "gaps": [[1.0, None], [1.0, 2.0], [1.0, 1.0], [1.0, 1.0]],
            "a": [0.5, 1.5, 2.5, 3.5],
            "b": [1, 2, 3, 4],
            "hole": [1.0, None, 2.0, 3.0],
            "y": [0, 1, -1, 1],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3)
    return tmp_path / "t.parquet", features


def test_parquet_columns(parquet, tmp_path):
    path, features = parquet
    np.save(tmp_path / "w.npy", np.eye(2, 3))
    for column in ("fixed", "lists"):
        act = read_activations(path, features=column, logits=["b", "a"], labels="y", weight=tmp_path / "w.npy")
        np.testing.assert_array_equal(act.features, features)
        np.testing.assert_array_equal(act.logits, [[1, 0.5], [2, 1.5], [3, 2.5], [4, 3.5]])
        np.testing.assert_array_equal(act.labels, [0, 1, -1, 1])
        np.testing.assert_array_equal(act.weight, np.eye(2, 3))
    assert read_activations(path, features="fixed").features.dtype == np.float32


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"features": "f"}, r"t\.parquet must have the columns f: one of lists"),
        ({"features": "ragged"}, "columns ragged: one of lists of equal length, or several of numbers"),
        ({"features": "a"}, "features must be two-dimensional"),
        ({"features": "gaps"}, "features must be finite, got nan at row 0, column 1"),
        ({"logits": ["a", "hole"]}, "logits must be finite, got nan at row 1, column 1"),
        ({"logits": []}, "got neither"),
        ({"logits": "lists", "labels": "hole"}, "labels"),
    ],
)
def test_parquet_refusals(parquet, parts, message):
    with pytest.raises(InvalidInputError, match=message):
        read_activations(parquet[0], **parts)
