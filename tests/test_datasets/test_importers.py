import pickle
from pathlib import Path

import numpy as np
import pytest

from poscod import Activations
from poscod.datasets import (
    ScoreTable,
    check_aligned,
    read_activations,
    read_fd_shifts,
    read_openood,
    read_openood_v1,
    read_parquet_activations,
)
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


def test_groups_and_splits(tmp_path):
    path = dump(tmp_path / "a.pkl", content())
    table = read_openood(path, direction="confidence")
    assert repr(table) == "ScoreTable({'id': 6, 'cifar10c': 2, 'tin': 4, 'svhn': 5})"
    np.testing.assert_array_equal(table.select("csid").label, content()["csid"]["cifar10c"][2])
    np.testing.assert_array_equal(table.select("svhn").score, -content()["ood"]["far"]["svhn"][1])
    np.testing.assert_array_equal(table.select("far").raw_label, content()["ood"]["far"]["svhn"][2])
    assert not table.select("csid").is_ood.any()
    assert table.path is None
    val = read_openood(path, direction="confidence", split="val")
    assert repr(val) == "ScoreTable({'val': 3, 'val ood': 2})"
    assert val.is_ood.tolist() == [False] * 3 + [True] * 2


def test_direction_is_required_and_flips_once(tmp_path):
    path = dump(tmp_path / "a.pkl", content())
    with pytest.raises(TypeError, match="direction"):
        read_openood(path)
    with pytest.raises(InvalidInputError, match="direction must be one of 'confidence', 'uncertainty', got 'conf'"):
        read_openood(path, direction="conf")
    confidence, uncertainty = (read_openood(path, direction=d) for d in ("confidence", "uncertainty"))
    np.testing.assert_array_equal(confidence.score, -uncertainty.score)
    np.testing.assert_array_equal(uncertainty.score[:6], content()["id"]["test"][1])


def test_the_forks_paths(tmp_path):
    fork = content()
    fork["id"]["test_paths"] = [f"id/{i}.png" for i in range(6)]
    fork["csid"] = {}
    fork["ood"] = {
        "near": {"tin": rows(4, 1), "tin_paths": np.array(list("abcd"))},
        "far": {"svhn": rows(5, 2), "svhn_paths": tuple("efghi")},
    }
    table = read_openood(dump(tmp_path / "a.pkl", fork), direction="confidence")
    assert table.path.tolist() == [*(f"id/{i}.png" for i in range(6)), *"abcdefghi"]
    assert repr(table) == "ScoreTable({'id': 6, 'tin': 4, 'svhn': 5})"
    fork["ood"]["near"]["tin_paths"] = ["a"]
    with pytest.raises(
        InvalidInputError, match=r"the paths of 'tin' must have as many rows as its scores \(4\), got 1"
    ):
        read_openood(dump(tmp_path / "a.pkl", fork), direction="confidence")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("ood"), "must hold a dict with 'id' and 'ood'"),
        (lambda c: c["id"].pop("test"), "has no ID split 'test': it has 'val'"),
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
    table = read_openood_v1(tmp_path, direction="confidence")
    assert repr(table) == "ScoreTable({'cifar10': 4, 'aircraft': 4})"
    np.testing.assert_array_equal(table.score, -np.r_[conf, conf])
    np.testing.assert_array_equal(table.is_ood, [False] * 4 + [True] * 4)
    one = read_openood_v1(tmp_path / "aircraft.npz", direction="uncertainty")
    np.testing.assert_array_equal(one.score, conf)
    assert one.is_ood.all()


def test_version_1_refusals(tmp_path):
    with pytest.raises(InvalidInputError, match=r"must hold \.npz files, got none"):
        read_openood_v1(tmp_path, direction="confidence")
    np.savez(tmp_path / "a.npz", pred=[1], label=[0])
    with pytest.raises(InvalidInputError, match="must hold the array 'conf', got pred, label"):
        read_openood_v1(tmp_path, direction="confidence")
    np.savez(tmp_path / "a.npz", pred=[1, 1], conf=[0, 1], label=[0, -1])
    with pytest.raises(InvalidInputError, match="mixes rows with label -1 and others"):
        read_openood_v1(tmp_path, direction="confidence")
    np.savez(tmp_path / "a.npz", pred=np.array([{}], dtype=object), conf=[1], label=[0])
    with pytest.raises(InvalidInputError, match="could not be read as plain arrays"):
        read_openood_v1(tmp_path, direction="confidence")


# --- alignment ---------------------------------------------------------------------------------------------------


def test_aligned_tables_pass_and_others_are_refused(tmp_path):
    table = read_openood(dump(tmp_path / "a.pkl", content()), direction="confidence")
    check_aligned({"msp": table, "knn": table[:]})
    order = np.arange(len(table))
    order[[0, 1]] = [1, 0]
    with pytest.raises(InvalidInputError, match=r"'knn' and 'msp' differ in (raw_label|pred) at row 0 \('id'\)"):
        check_aligned({"msp": table, "knn": table[order]})
    with pytest.raises(InvalidInputError, match="'knn' has 3 and 'msp' has 17"):
        check_aligned({"msp": table, "knn": table[:3]})
    with pytest.raises(InvalidInputError, match="at least one table, got none"):
        check_aligned({})


def with_column(table, **columns):
    names = ("pred", "score", "label", "raw_label", "dataset", "group", "path")
    return ScoreTable(**({name: getattr(table, name) for name in names} | columns))


def test_a_method_may_predict_anew_if_we_say_so(tmp_path):
    table = read_openood(dump(tmp_path / "a.pkl", content()), direction="confidence")
    other = with_column(table, pred=table.pred + 1)
    with pytest.raises(InvalidInputError, match="differ in pred at row 0"):
        check_aligned({"msp": table, "react": other})
    check_aligned({"msp": table, "react": other}, same_pred=False)
    paths = np.array([str(i) for i in range(len(table))])
    with pytest.raises(InvalidInputError, match="differ in path at row 0"):
        check_aligned(
            {"msp": with_column(table, path=paths), "react": with_column(other, path=paths[::-1])}, same_pred=False
        )
    check_aligned({"msp": with_column(table, path=paths), "knn": table})  # a file without paths has nothing to compare


def test_unknown_set_lists_the_known_ones(tmp_path):
    table = read_openood(dump(tmp_path / "a.pkl", content()), direction="confidence")
    with pytest.raises(InvalidInputError, match=r"name must be one of .*'svhn'.*did you mean 'svhn'"):
        table.select("svhm")


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
    with pytest.raises(InvalidInputError, match=r"labels must be below the number of logits \(3\), got 77"):
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


@pytest.mark.parametrize("mmap", [True, False])
def test_npy_files(tmp_path, mmap):
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
    act = read_activations(**{name: tmp_path / f"{name}.npy" for name in parts}, mmap=mmap)
    for name, value in parts.items():
        np.testing.assert_array_equal(getattr(act, name), value)
        assert getattr(act, name).dtype == value.dtype
    assert isinstance(act, Activations)
    assert act.features.flags.writeable != mmap


def test_npy_refusals(tmp_path):
    with pytest.raises(InvalidInputError, match=r"features must name a \.npy file, got 'x\.csv'"):
        read_activations(features="x.csv")
    np.save(tmp_path / "a.npy", np.array([[{}]], dtype=object))
    with pytest.raises(InvalidInputError, match="could not be read as a plain array"):
        read_activations(features=tmp_path / "a.npy")
    (tmp_path / "a.npy").write_bytes(b"")
    with pytest.raises(InvalidInputError, match="could not be read as a plain array"):
        read_activations(features=tmp_path / "a.npy")
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


def test_parquet_columns(parquet):
    path, features = parquet
    for column in ("fixed", "lists"):
        act = read_parquet_activations(path, features=column, logits=["b", "a"], label="y")
        np.testing.assert_array_equal(act.features, features)
        np.testing.assert_array_equal(act.logits, [[1, 0.5], [2, 1.5], [3, 2.5], [4, 3.5]])
        np.testing.assert_array_equal(act.labels, [0, 1, -1, 1])
    assert read_parquet_activations(path, features="fixed").features.dtype == np.float32


def test_parquet_refusals(parquet):
    path, _ = parquet
    with pytest.raises(InvalidInputError, match="has no column 'f': it has a, b, fixed"):
        read_parquet_activations(path, features="f")
    with pytest.raises(InvalidInputError, match="features='a' must be a column of lists without gaps, got double"):
        read_parquet_activations(path, features="a")
    for column in ("ragged", "gaps"):
        with pytest.raises(InvalidInputError, match=f"features='{column}' must hold lists of equal length"):
            read_parquet_activations(path, features=column)
    with pytest.raises(InvalidInputError, match="logits must be finite, got nan at row 1, column 1"):
        read_parquet_activations(path, logits=["a", "hole"])
    with pytest.raises(InvalidInputError, match="features must name at least one column"):
        read_parquet_activations(path, features=[])
