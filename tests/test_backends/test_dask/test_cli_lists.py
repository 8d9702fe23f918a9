"""Columns of lists with --engine dask: embeddings, logits and probabilities, as in this process."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import softmax

from poscod import POSCOD
from poscod.backends.dask import Passes
from poscod.cli import _fit, main
from poscod.ratio import CorrectedSigmoid

pytestmark = [
    pytest.mark.usefixtures("time_limit"),
    pytest.mark.filterwarnings(
        "ignore:The inplace keyword in DataFrame:DeprecationWarning"
    ),  # dask 2026.8 on pandas 3.1
]
MODES = {
    "fixed": ["--logits", "logits", "--embedding", "fixed"],
    "probabilities": ["--probabilities", "p_*", "--embedding", "embedding", "--features", "age"],
    "lists": ["--probabilities", "posterior", "--embedding", "embedding"],
}


def columns_of(X, y):
    logits = 2.0 * X[:, :3]
    posterior = softmax(logits, axis=1)
    wide = X.astype(np.float32)
    return {
        "key": pa.array([f"row-{i}" for i in range(len(X))]),
        "label": pa.array(y),
        "age": pa.array(X[:, 3]),
        "embedding": pa.array(list(wide)),
        "fixed": pa.FixedSizeListArray.from_arrays(pa.array(wide.ravel()), 4),
        "logits": pa.array(logits.tolist()),
        "posterior": pa.array(posterior.tolist()),
        **{f"p_{k}": pa.array(posterior[:, k]) for k in range(3)},
        "ragged": pa.array([[1.0] * (1 + i % 2) for i in range(len(X))]),
        "late": pa.array([[1.0] * (2 if i < 220 else 3) for i in range(len(X))]),
        "gap": pa.array([None if i == 150 else [1.0, 2.0] for i in range(len(X))]),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory, world):
    place = tmp_path_factory.mktemp("lists")
    for name, n, pi, seed in (("labeled", 300, 0.0, 1), ("traffic", 320, 0.3, 2), ("test", 200, 0.0, 3), ("ood", 180, 1.0, 4)):  # fmt: skip
        table = pa.table(columns_of(*world(n, pi=pi, seed=seed)))
        pq.write_table(table, place / f"{name}.parquet")
        (place / name).mkdir()
        for index, start in enumerate(range(0, n, 110)):
            pq.write_table(table.slice(start, 110), place / name / f"part-{index}.parquet")
    return place


@pytest.fixture
def engine(monkeypatch):
    for command in ("fit", "predict", "evaluate"):
        monkeypatch.setattr(f"poscod.cli._{command}.open_cluster", lambda *_: nullcontext(Passes()))
    return ["--engine", "dask"]


@pytest.mark.parametrize("mode", MODES)
def test_lists_are_read_as_in_this_process(folder, engine, capsys, mode, tmp_path, monkeypatch):
    quick = CorrectedSigmoid("paper", ood_prior=0.3, max_iter=4)
    monkeypatch.setitem(_fit.RATIOS, "paper", quick)
    words = [*MODES[mode], "--target", "label", "--row-id", "key", "--ratio", "paper", "--quiet", "--tpr-min", "0.9"]
    words += ["--calibration", "0.5"]
    models = []
    for name, suffix, extra in (("one", ".parquet", []), ("many", "", engine)):
        target = tmp_path / f"{name}.poscod"
        files = [f"{folder}/labeled{suffix}", f"{folder}/traffic{suffix}"]
        assert main(["fit", *files, *words, *extra, "-o", str(target)]) == 0, capsys.readouterr().err
        models.append(POSCOD.load(target))
    one, many = models
    assert many.threshold_ == pytest.approx(one.threshold_, rel=1e-8)
    np.testing.assert_allclose(many.ratio_.model_.theta, one.ratio_.model_.theta, rtol=1e-8, atol=1e-8)
    assert many.schema_ == one.schema_
    assert many.schema_.n_features == (5 if mode == "probabilities" else 4)
    capsys.readouterr()
    documents = []
    for suffix, extra in ((".parquet", []), ("", engine)):
        files = ["--id", f"{folder}/test{suffix}", "--ood", f"{folder}/ood{suffix}"]
        assert main(["evaluate", str(tmp_path / "one.poscod"), *files, "--json", *extra]) == 0
        documents.append(json.loads(capsys.readouterr().out)["rules"][-1])
    assert documents[0].pop("threshold") == documents[1].pop("threshold")
    for name in ("tpr", "fpr", "selective_risk", "risk"):
        assert documents[1][name] == pytest.approx(documents[0][name], rel=1e-9)
    assert documents[1]["ausrt"] == pytest.approx(documents[0]["ausrt"], rel=1e-9)
    for suffix, extra, name in ((".parquet", [], "one.parquet"), ("", engine, "many")):
        output = ["-o", str(tmp_path / name), "--prefix", "our_"]
        assert main(["predict", str(tmp_path / "one.poscod"), f"{folder}/traffic{suffix}", *output, *extra]) == 0
    here = pq.read_table(tmp_path / "one.parquet").to_pandas()
    there = pq.read_table(tmp_path / "many").to_pandas()
    assert there["key"].tolist() == here["key"].tolist()
    assert there["our_accept"].tolist() == here["our_accept"].tolist()
    np.testing.assert_array_equal(np.stack(there["embedding"]), np.stack(here["embedding"]))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--embedding", "ragged"], r"must hold lists of one length, got 1 numbers in row \d+ and 2 in row \d+"),
        (["--embedding", "late"], "has 3 features per row in 'late', and the model was fitted on 2|of one length, got 2 .* and 3 in row 221"),
        (["--embedding", "gap"], "must hold a list of numbers in every row, got none at row 151"),
        (["--embedding", "age"], "--embedding must name a column of lists of numbers, and 'age' of .*/labeled holds number"),
        (["--features", "key"], "column 'key' of .*/labeled must hold numbers, got text"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_numbers_is_refused_in_a_sentence(folder, engine, capsys, words, sentence, tmp_path):
    fit = ["fit", f"{folder}/labeled", f"{folder}/traffic", "--target", "label", "--logits", "logits", *words]
    assert main([*fit, "--ratio", "paper", *engine, "-o", str(tmp_path / "x.poscod")]) == 2
    assert re.search(sentence, capsys.readouterr().err)


def test_other_tables_are_refused_in_a_sentence(folder, engine, capsys, tmp_path):
    (tmp_path / "x.csv").write_text("a,label\n1,0\n")
    words = ["--target", "label", *engine, "-o", str(tmp_path / "x.poscod")]
    assert main(["fit", str(tmp_path / "x.csv"), f"{folder}/traffic", *words]) == 2
    assert "--engine dask reads Parquet files and folders of them, got" in capsys.readouterr().err
    empty = pq.read_table(folder / "labeled.parquet").slice(0, 0)
    pq.write_table(empty, tmp_path / "none.parquet")
    assert main(["fit", f"{folder}/labeled", str(tmp_path / "none.parquet"), "--logits", "logits", *words]) == 2
    assert "none.parquet must have at least one row, got none" in capsys.readouterr().err
