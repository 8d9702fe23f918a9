"""The shell on a cluster: the same model and the same decisions as in this process."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from dask import delayed
from distributed import Client

from poscod import POSCOD, Activations
from poscod.backends.dask import Passes
from poscod.cli import main
from poscod.cli._console import Console
from poscod.cli._dask import open_cluster
from poscod.exceptions import InvalidInputError
from poscod.ratio import CorrectedSigmoid

pytestmark = [
    pytest.mark.usefixtures("time_limit"),
    pytest.mark.filterwarnings(
        "ignore:The inplace keyword in DataFrame:DeprecationWarning"
    ),  # dask 2026.8 on pandas 3.1
]
NAMES = np.array(["cat", "dog", "owl"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, world):
    place = tmp_path_factory.mktemp("tables")
    tables = (
        ("labeled", 300, 0.0, 1),
        ("traffic", 360, 0.3, 2),
        ("test", 310, 0.0, 3),
        ("ood", 200, 1.0, 4),
        ("fresh", 330, 0.3, 5),
    )
    for name, n, pi, seed in tables:
        X, y = world(n, pi=pi, seed=seed)
        frame = pd.DataFrame(X, columns=["f_0", "f_1", "f_2", "f_3"]).assign(key=[f"{name}-{i}" for i in range(n)])
        for k, label in enumerate(NAMES):
            frame[f"logit_{label}"] = 2.0 * X[:, k]
        if name in ("labeled", "test"):
            frame["animal"] = NAMES[y]
        (place / name).mkdir()
        for index, start in enumerate(range(0, n, 120)):
            frame[start : start + 120].to_parquet(place / name / f"part-{index}.parquet", index=False)
        frame.to_parquet(place / f"{name}.parquet", index=False)
    return place


@pytest.fixture
def engine(monkeypatch):
    """Run --engine dask in this process."""
    monkeypatch.setattr("poscod.cli._fit.open_cluster", lambda *_: nullcontext(Passes()))
    monkeypatch.setattr("poscod.cli._predict.open_cluster", lambda *_: nullcontext(Passes()))
    monkeypatch.setattr("poscod.cli._evaluate.open_cluster", lambda *_: nullcontext(Passes()))
    return ["--engine", "dask"]


@pytest.fixture(scope="module")
def fitted(folder):
    options = ["--logits", "logit_*", "--features", "f_*", "--target", "animal", "--row-id", "key", "--ratio", "paper"]
    words = ["--engine", "dask", "--tpr-min", "0.9", "--quiet"]
    target = folder / "model.poscod"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("poscod.cli._fit.open_cluster", lambda *_: nullcontext(Passes()))
        assert main(["fit", f"{folder}/labeled", f"{folder}/traffic", *options, *words, "-o", str(target)]) == 0
    return target


def test_fit_gives_the_model_of_rows_in_memory(folder, fitted):
    known, traffic = (pd.read_parquet(folder / f"{name}.parquet") for name in ("labeled", "traffic"))
    rows = [
        Activations(f.filter(like="f_").to_numpy(), f.filter(like="logit_").to_numpy(), table=True)
        for f in (known, traffic)
    ]
    model = POSCOD(ratio=CorrectedSigmoid("paper", l2="cv"), tpr_min=0.9, calibration=0.5, random_state=0)
    expected = model.fit(rows[0], np.searchsorted(NAMES, known["animal"].to_numpy()), X_unlabeled=rows[1])
    found = POSCOD.load(fitted)
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-8)
    assert found.ood_prior_ == pytest.approx(expected.ood_prior_, rel=1e-8)
    assert found.ratio_.l2_ == expected.ratio_.l2_ > 0
    assert found.schema_.classes == tuple(NAMES)


def test_a_ratio_is_the_same_estimator_on_both_engines(folder, engine, tmp_path, capsys):
    """The fast ratio of the shell was penalised in memory and not on Dask: thetas of .77 and 318, shares of .353 and .318."""
    words = [
        "--logits",
        "logit_*",
        "--features",
        "f_*",
        "--target",
        "animal",
        "--quiet",
        "--tpr-min",
        "0.8",
        "--calibration",
        "0.5",
    ]
    models = []
    for suffix, extra in ((".parquet", ["--ratio", "paper"]), ("", ["--ratio", "linear", *engine])):
        target = tmp_path / f"model{len(models)}.poscod"
        files = [f"{folder}/labeled{suffix}", f"{folder}/traffic{suffix}"]
        assert main(["fit", *files, *words, *extra, "-o", str(target)]) == 0, capsys.readouterr().err
        models.append(POSCOD.load(target))
    one, many = models
    assert repr(many.ratio) == repr(one.ratio) == repr(CorrectedSigmoid("paper", l2="cv"))
    np.testing.assert_allclose(many.ratio_.model_.theta, one.ratio_.model_.theta, rtol=1e-8, atol=1e-8)
    assert many.ood_prior_ == pytest.approx(one.ood_prior_, rel=1e-8)
    assert many.threshold_ == pytest.approx(one.threshold_, rel=1e-8)
    assert many.rule_.promise == one.rule_.promise
    assert many.schema_ == one.schema_


def test_predict_gives_the_decisions_of_rows_in_memory(folder, fitted, client, capsys):
    model, engine = fitted, ["--engine", "dask", "--scheduler", client.scheduler_info()["address"]]
    one, many = folder / "one.parquet", folder / "many.parquet"
    assert main(["predict", str(model), f"{folder}/traffic.parquet", "-o", str(one), "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert main(["predict", str(model), f"{folder}/traffic", "-o", str(many), "--json", *engine]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reasons"] == expected["reasons"]
    assert found["rows"] == 360
    files = sorted(many.iterdir())
    assert len(files) == 3
    table = pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)
    pd.testing.assert_frame_equal(table, pd.read_parquet(one), rtol=1e-9, check_dtype=False)
    assert table["key"].tolist() == [f"traffic-{i}" for i in range(360)]


def numbers(document, path=""):
    """All leaves of a document by their paths."""
    if isinstance(document, dict):
        return {k: v for key, value in document.items() for k, v in numbers(value, f"{path}/{key}").items()}
    if isinstance(document, list):
        return {k: v for i, value in enumerate(document) for k, v in numbers(value, f"{path}/{i}").items()}
    return {path: document}


@pytest.mark.parametrize("groups", [["ood", "unlabeled"], ["ood"], ["unlabeled"]])
def test_evaluate_gives_the_numbers_of_rows_in_memory(folder, fitted, engine, capsys, groups):
    places = {"id": "test", "ood": "ood", "unlabeled": "fresh"}

    def run(suffix, *words):
        files = [word for name in ("id", *groups) for word in (f"--{name}", f"{folder}/{places[name]}{suffix}")]
        assert main(["evaluate", str(fitted), *files, "--level", "0.9", "--json", *words]) == 0
        return numbers(json.loads(capsys.readouterr().out))

    expected, found = run(".parquet"), run("", *engine)
    assert list(found) == list(expected)
    texts = [key for key, value in expected.items() if not isinstance(value, float)]
    assert [found.pop(key) for key in texts] == [expected.pop(key) for key in texts]
    assert found == pytest.approx(expected, rel=1e-9)
    assert found["/rules/3/tpr/estimate"] > 0.8
    assert ("/rules/3/ausrt" in found) == ("ood" in groups)
    assert ("/ood_prior/estimate" in found) == ("unlabeled" in groups)


def test_evaluate_tells_people_the_same(folder, fitted, client, capsys):
    engine = ["--engine", "dask", "--scheduler", client.scheduler_info()["address"]]
    words = ["evaluate", str(fitted), "--id", f"{folder}/test.parquet", "--ood", f"{folder}/ood.parquet"]
    output = folder / "numbers.json"
    assert main(words) == 0
    expected = capsys.readouterr().out
    assert main([*words, *engine, "-o", str(output)]) == 0
    assert capsys.readouterr().out == f"{expected}Written: {output}\n"
    found = json.loads(output.read_text())
    assert [row["rule"] for row in found["rules"]] == ["risk", "ratio", "sirc", "poscod"]
    assert found["rows"] == {"id": 310, "ood": 200}


def ports_of(pid):
    """Return the only address on which a process listens, or all of them where it is not one."""
    import psutil

    found = {c.laddr.ip for c in psutil.Process(pid).net_connections("inet") if c.status == "LISTEN"}
    return found.pop() if len(found) == 1 else str(sorted(found))


def test_a_local_cluster_is_started_and_closed(capsys):
    quiet = Console(quiet=True)
    with open_cluster(Namespace(scheduler=None, jobs=1), quiet) as passes:
        client = Client.current()
        assert len(client.scheduler_info()["workers"]) == 1
        assert {ports_of(pid) for pid in [os.getpid(), *client.run(os.getpid).values()]} == {"127.0.0.1"}
        assert passes.collect([delayed(abs)(-2)], "x") == [2]
        address = client.scheduler_info()["address"]
        with open_cluster(Namespace(scheduler=address, jobs=None), quiet) as second:  # one that runs elsewhere
            assert second.collect([delayed(abs)(-3)], "x") == [3]
    assert client.status == "closed"
    missing = Namespace(scheduler=address, jobs=None)
    with (
        pytest.raises(InvalidInputError, match=f"No Dask scheduler answers at {address}"),
        open_cluster(missing, quiet),
    ):
        pass
    assert capsys.readouterr() == ("", "")


def test_people_see_the_running_pass(client, capsys):
    where = Namespace(scheduler=client.scheduler_info()["address"], jobs=None)
    with open_cluster(where, SimpleNamespace(live=True)) as passes:
        passes.reduce([delayed(abs)(-i) for i in range(20)], sum, "numbers")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "numbers: 100%" in shown.err
    assert "20/20" in shown.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--engine", "dask", "--jobs", "0"], "--jobs must be"),
        (["--engine", "dask", "--workers", "2", "--scheduler", "tcp://127.0.0.1:1"], "--jobs sizes a local cluster"),
        (["--engine", "spark"], "--engine must be one of"),
        (["--scheduler", "tcp://127.0.0.1:1"], "--scheduler belongs to --engine dask"),
        (["--engine", "dask", "-o", "-"], "give its name instead of -"),
    ],
)
def test_bad_options_end_in_one_sentence(folder, fitted, capsys, words, sentence):
    target = [] if "-o" in words else ["-o", str(folder / "x.parquet")]
    assert main(["predict", str(fitted), f"{folder}/traffic", *target, *words]) == 2
    assert sentence in capsys.readouterr().err


def test_what_cannot_be_done_is_said(folder, engine, capsys):
    fit = [
        "fit",
        f"{folder}/labeled",
        f"{folder}/traffic",
        "--target",
        "animal",
        "-o",
        str(folder / "x.poscod"),
        *engine,
    ]
    assert main([*fit, "--features", "f_*"]) == 2
    assert "needs its rows in memory" in capsys.readouterr().err
    assert main([*fit, "--features", "f_*", "--ratio", "paper"]) == 2
    assert "classifier must be fitted already" in capsys.readouterr().err
    assert main([*fit[:1], f"{folder}/nowhere", *fit[2:]]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main([*fit, "--features", "f_*", "--ratio", "paper", "--sample-rows", "5000", "--quiet"]) == 0
    assert POSCOD.load(folder / "x.poscod").classes_.tolist() == NAMES.tolist()
