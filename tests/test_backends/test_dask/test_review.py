"""Review on rows in chunks: queue, numbers, list, groups and a fit with verdicts are those of the same rows in memory."""

from __future__ import annotations

import csv
import dataclasses
import json
from contextlib import nullcontext

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from poscod import OOD, POSCOD, Activations
from poscod.backends import dask as backend
from poscod.backends.dask import DaskActivations, DaskLog, Passes
from poscod.cli import main
from poscod.exceptions import InvalidInputError
from poscod.ratio import CorrectedSigmoid
from poscod.review import assess, queue, stranger_groups, strangers

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame:DeprecationWarning")
NAMES = ["a", "b", "c", "d"]


def verdict_of(row):
    """What a person would say of a row."""
    return OOD if row[3] > 3.5 else int(np.argmax(row[:3]))


@pytest.fixture(scope="module")
def data(world):
    """Labeled rows, traffic, a classifier from elsewhere, and a later log."""
    T, t = world(400, seed=3)
    return (
        *world(600, seed=1),
        world(500, pi=0.3, seed=2)[0],
        LogisticRegression().fit(T, t),
        world(420, 0.3, seed=4)[0],
    )


def fitted(data, kind):
    """A model in memory, the later log in memory, and the same log in chunks."""
    X, y, U, classifier, log = data
    how = {"ratio": CorrectedSigmoid("paper", l2=1e-3), "tpr_min": 0.9, "calibration": 0.5, "random_state": 7}
    if kind == "activations":
        rows = [Activations(part, classifier.decision_function(part)) for part in (X, U, log)]
        model = POSCOD(**how).fit(rows[0], y, X_unlabeled=rows[1])
        parts = [da.from_array(values, chunks=(110, -1)) for values in (rows[2].logits, rows[2].features)]
        return model, rows[2], DaskActivations(*parts)
    if kind == "frame":
        frames = [pd.DataFrame(part, columns=NAMES) for part in (X, U, log)]
        model = POSCOD(FrozenEstimator(LogisticRegression().fit(frames[0], y)), **how)
        model.fit(frames[0], y, X_unlabeled=frames[1])
        return model, frames[2], dd.from_pandas(frames[2].assign(more=1.0), npartitions=4)
    model = POSCOD(FrozenEstimator(classifier), **how).fit(X, y, X_unlabeled=U)
    return model, log, da.from_array(log, chunks=(100, 4))


def same(found, expected):
    """Compare what two functions give, field by field."""
    for field in dataclasses.fields(expected):
        mine, theirs = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(theirs, np.ndarray) and theirs.dtype.kind in "fiu":
            np.testing.assert_allclose(mine, theirs, rtol=1e-9)
        elif isinstance(theirs, np.ndarray):
            np.testing.assert_array_equal(mine, theirs)
        elif field.name == "apart":
            assert [name for name, _ in mine] == [name for name, _ in theirs]
        else:
            assert mine == pytest.approx(theirs, nan_ok=True) if isinstance(theirs, tuple) else mine == theirs


@pytest.mark.parametrize("kind", ["array", "frame", "activations"])
def test_everything_is_as_in_memory(data, kind):
    model, rows, lazy = fitted(data, kind)
    log = DaskLog(lazy)
    chosen = queue(model, log, 80, random_state=3)
    same(chosen, queue(model, rows, 80, random_state=3))
    assert any("similar rejected inputs" in why for why in chosen.why)  # rows were looked at, not only scores
    said = [verdict_of(data[4][i]) for i in chosen.index]
    same(assess(model, log, chosen, said), assess(model, rows, chosen, said))
    found = strangers(model, log, 0.2)
    same(found, strangers(model, rows, 0.2))
    assert len(found) > 20
    assert found.exact
    times = np.arange("2026-01-01", "2026-02-12", dtype="datetime64[h]")[: len(rows) * 2 : 2]
    groups, expected = (stranger_groups(model, where, times=times) for where in (log, rows))
    assert len(groups) == len(expected) > 0
    for mine, theirs in zip(groups, expected, strict=True):
        same(mine, theirs)
        assert mine.period == "week"


def test_known_inputs_in_chunks_and_rows_of_the_fit(data):
    """Fresh known inputs may lie in chunks; the log of the fit is known again by its content, and has no list here."""
    model, rows, lazy = fitted(data, "array")
    X, _, U, _, _ = data
    fresh = np.random.default_rng(0).normal(size=(200, 4)) * 0.1 + X[:200]
    found = strangers(model, DaskLog(lazy), 0.2, X_id=DaskLog(da.from_array(fresh, chunks=(90, 4))))
    same(found, strangers(model, rows, 0.2, X_id=fresh))
    own = DaskLog(da.from_array(U, chunks=(100, 4)))
    with pytest.raises(
        InvalidInputError, match="must not hold rows that the ratio was fitted on, got 500 or more of 500"
    ):
        strangers(model, own, 0.2)
    with pytest.raises(InvalidInputError, match="give a log that the model was not fitted on"):
        strangers(model, own, 0.2, X_id=fresh)


def test_many_strangers_are_described_by_a_part_of_them(data, monkeypatch):
    """Of more rows than are looked at, groups are found by a random part, and every likely stranger is in one."""
    model, rows, lazy = fitted(data, "array")
    every = stranger_groups(model, rows)
    monkeypatch.setattr("poscod.review._stranger_groups._SEEN", 60)
    some, lazily = stranger_groups(model, rows), stranger_groups(model, DaskLog(lazy))
    assert sum(map(len, some)) == sum(map(len, every))
    for mine, theirs in zip(lazily, some, strict=True):
        same(mine, theirs)


@pytest.mark.parametrize("kind", ["array", "activations"])
def test_a_fit_with_verdicts_is_that_of_rows_in_memory(data, kind):
    X, y, U, classifier, _ = data
    picked = np.sort(np.random.default_rng(5).choice(len(U), 90, replace=False))
    said = [verdict_of(U[i]) for i in picked]
    said[3] = None
    how = {"ratio": CorrectedSigmoid("paper", l2=1e-3), "tpr_min": 0.9, "calibration": 0.5, "random_state": 7}
    rows, lazy = (X, U, U[picked]), [da.from_array(part, chunks=(130, 4)) for part in (X, U)]
    model = POSCOD(FrozenEstimator(classifier), **how)
    if kind == "activations":
        model = POSCOD(**how)
        rows = [Activations(part, classifier.decision_function(part)) for part in rows]
        lazy = [
            DaskActivations(*(da.from_array(values, chunks=(130, -1)) for values in (part.logits, part.features)))
            for part in rows[:2]
        ]
    found = backend.fit(model, lazy[0], y, lazy[1], X_reviewed=rows[2], y_reviewed=said)
    plain = backend.fit(model, lazy[0], y, lazy[1])
    model.fit(rows[0], y, X_unlabeled=rows[1], X_reviewed=rows[2], y_reviewed=said)
    assert found.rule_.verdicts == model.rule_.verdicts == 89
    assert found.threshold_ == pytest.approx(model.threshold_, rel=1e-6)
    assert found.ood_prior_ == pytest.approx(model.ood_prior_, rel=1e-6)
    assert found.scorer_.temperature == pytest.approx(model.scorer_.temperature, rel=1e-6)
    for name in ("log_ratio", "traffic_log_ratio", "logits"):
        mine, theirs = getattr(found.calibration_, name), getattr(model.calibration_, name)
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(found.calibration_.labeled_keys, model.calibration_.labeled_keys)
    assert abs(found.ood_prior_ - plain.ood_prior_) > 1e-6  # verdicts did something


def test_what_a_fit_with_verdicts_refuses(data):
    X, y, U, classifier, _ = data
    model = POSCOD(FrozenEstimator(classifier), CorrectedSigmoid("paper", l2=1e-3), random_state=7)
    lazy = [da.from_array(part, chunks=(130, 4)) for part in (X, U)]
    with pytest.raises(InvalidInputError, match="X_reviewed must be rows in memory, got Array"):
        backend.fit(model, lazy[0], y, lazy[1], X_reviewed=lazy[1][:3], y_reviewed=[0, 1, 2])
    with pytest.raises(InvalidInputError, match="X_reviewed holds at row 1 an input that is labeled"):
        backend.fit(model, lazy[0], y, lazy[1], X_reviewed=np.r_[U[:1], X[:1]], y_reviewed=[0, (y[0] + 1) % 3])
    with pytest.raises(InvalidInputError, match="y_reviewed"):
        backend.fit(model, lazy[0], y, lazy[1], X_reviewed=U[:2])


# In the shell


@pytest.fixture(scope="module")
def folder(tmp_path_factory, world):
    """Tables as folders of Parquet files, and as one file each."""
    place = tmp_path_factory.mktemp("tables")
    for name, n, pi, seed in (("labeled", 400, 0.0, 1), ("traffic", 420, 0.3, 2), ("log", 330, 0.3, 5)):
        X, y = world(n, pi=pi, seed=seed)
        frame = pd.DataFrame(X, columns=NAMES).assign(key=[f"{name}-{i}" for i in range(n)])
        frame["at"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(n), unit="h")
        if name == "labeled":
            frame["animal"] = np.array(["cat", "dog", "owl"])[y]
        (place / name).mkdir()
        for index, start in enumerate(range(0, n, 120)):
            frame[start : start + 120].to_parquet(place / name / f"part-{index}.parquet", index=False)
        frame.to_parquet(place / f"{name}.parquet", index=False)
    words = ["--features", "?", "--target", "animal", "--row-id", "key", "--ratio", "paper", "--calibration", "0.5"]
    tables = [f"{place}/labeled.parquet", f"{place}/traffic.parquet"]
    assert main(["fit", *tables, *words, "--quiet", "-o", f"{place}/model.poscod"]) == 0
    return place


@pytest.fixture
def both(folder, capsys, monkeypatch):
    """Run a command on tables in memory, and on the same ones in chunks in this process; give both documents."""
    monkeypatch.setattr("poscod.cli._dask.open_cluster", lambda *_: nullcontext(Passes()))
    monkeypatch.setattr("poscod.cli._evaluate.open_cluster", lambda *_: nullcontext(Passes()))
    monkeypatch.setattr("poscod.cli._fit.open_cluster", lambda *_: nullcontext(Passes()))
    monkeypatch.chdir(folder)

    def run(*words, lazily=()):
        found = []
        for ending, more in ((".parquet", []), ("", ["--engine", "dask", *lazily])):
            said = [word.replace("TABLE", ending).replace("OUT", "dask" if more else "memory") for word in words]
            code = main([*said, *more, "--json"])
            out = capsys.readouterr()
            assert code == 0, out.err
            found.append(json.loads(out.out))
        return found

    return run


def test_the_loop_in_the_shell(folder, both):
    memory, lazy = both("review", "model.poscod", "logTABLE", "-n", "60", "-o", "OUT.csv")
    assert memory["strata"] == lazy["strata"]
    texts = [(folder / f"{name}.csv").read_text() for name in ("memory", "dask")]
    assert texts[0] == texts[1]
    rows = list(csv.DictReader(texts[0].splitlines()))
    for row in rows:
        said = verdict_of([float(row[name]) for name in NAMES])
        row["verdict"] = "ood" if said == OOD else ["cat", "dog", "owl"][said]
    with (folder / "done.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    memory, lazy = both("evaluate", "model.poscod", "--reviewed", "done.csv", "--unlabeled", "logTABLE")
    assert memory == lazy
    assert memory["review"]["reviewed"] == 60
    words = ["--features", "?", "--target", "animal", "--row-id", "key", "--ratio", "paper", "--calibration", "0.5"]
    tables = ["labeledTABLE", "logTABLE", "--reviewed", "done.csv"]
    memory, lazy = both("fit", *tables, *words, "-o", "OUT.poscod", lazily=["--sample-rows", "1000"])
    assert lazy["reviewed"]["verdicts"] == 60
    assert lazy["ood_prior"]["estimate"] == pytest.approx(memory["ood_prior"]["estimate"], abs=0.02)


def test_list_and_groups_in_the_shell(folder, both):
    words = ["--level", "0.3", "-o", "OUT-list.csv", "--groups", "OUT-groups.csv", "--time", "at"]
    memory, lazy = both("strangers", "model.poscod", "logTABLE", *words)
    assert len(memory["index"]) > 10
    for name in ("index", "known_at_most", "groups", "exact"):
        assert memory[name] == lazy[name]
    assert lazy["groups"][0]["period"] == "week"
    for kind in ("list", "groups"):
        one, two = (pd.read_csv(folder / f"{name}-{kind}.csv") for name in ("memory", "dask"))
        pd.testing.assert_frame_equal(one, two)
