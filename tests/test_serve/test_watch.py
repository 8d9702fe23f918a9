"""The monitor in a service: live, in the metrics, across restarts and changes of the model."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.monitor import Monitor, Reference
from poscod.ratio import CorrectedSigmoid
from poscod.serve import Settings
from poscod.serve._model import load_model
from poscod.serve._watch import Watch
from poscod.theory import GaussianWorld

WORLD = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])


def total(running) -> int:
    return sum(window["n"] for window in running.client.get("/v1/monitor").json()["windows"])


def state_of(state, model) -> Path:
    """Where the state of a model file lies."""
    return state.with_name(f"{state.stem}-{load_model(model).sha256[:12]}{state.suffix}")


def test_windows_metrics_and_findings(serve, model_file, eventually):
    running = serve(model_file)
    traffic = WORLD.sample_mixture(900, pi=0.8, random_state=5)[0]
    assert running.decide(traffic.tolist()).status_code == 200
    eventually(lambda: total(running) == 900)
    window = running.client.get("/v1/monitor").json()["windows"][-1]
    accepted = int(POSCOD.load(model_file).decide(traffic).accept.sum())
    assert sum(w["accepted"] for w in running.client.get("/v1/monitor").json()["windows"]) == accepted
    assert window["pi"]["low"] <= 0.8 <= window["pi"]["high"] or window["n"] < 900  # two windows at the full hour
    text = running.client.get("/metrics").text
    assert 'poscod_ood_share{bound="low"}' in text
    assert 'poscod_ood_share{bound="high"}' in text
    assert 'poscod_finding{code="PSC001",severity="error"} 1.0' in text  # 80 % is above the limit of 10 %
    assert running.metric("poscod_window_decisions") <= 900
    assert running.metric("poscod_decisions_total") == 900


def test_state_survives_a_restart_and_a_change_of_model(serve, model_file, other_file, tmp_path, eventually):
    path, state = tmp_path / "m.poscod", tmp_path / "state.json"
    shutil.copy(model_file, path)
    rows = WORLD.sample_id(50, random_state=1)[0].tolist()
    first = serve(path, state_file=state)
    first.decide(rows)
    first.stop()
    second = serve(path, state_file=state)
    assert total(second) == 50
    second.decide(rows)
    eventually(lambda: total(second) == 100)
    shutil.copy(other_file, path)
    assert second.client.post("/v1/reload").json()["changed"]
    eventually(lambda: total(second) == 0)  # another model has counts of its own
    second.decide(rows[:10])
    shutil.copy(model_file, path)
    assert second.client.post("/v1/reload").json()["changed"]
    eventually(lambda: total(second) == 100)  # and the first one's are still there
    second.stop()
    mine = state_of(state, path)
    assert json.loads(mine.read_text())["sha256"] == second.service.holder.current.sha256
    mine.write_text("{")
    last = serve(path, state_file=state)
    assert total(last) == 0  # damaged: begun anew, with a line in the log
    last.stop()
    assert mine.with_name(f"{mine.stem}-unused-1.json").read_text() == "{"


def test_a_model_that_cannot_be_monitored_is_served(serve, tmp_path):
    X, y = WORLD.sample_id(400, random_state=0)
    traffic = WORLD.sample_mixture(200, pi=0.3, random_state=1)[0]
    model = POSCOD(LogisticRegression(), CorrectedSigmoid("paper", l2=1e-3), random_state=0)
    model.fit(X, y, X_unlabeled=traffic, sample_weight=np.linspace(1, 2, 400)).save(tmp_path / "w.poscod")
    running = serve(tmp_path / "w.poscod")
    assert running.decide([[0.0, 0.0]]).status_code == 200
    document = running.client.get("/v1/monitor").json()
    assert document["windows"] == []
    assert "weight" in document["off"]
    assert running.client.get("/metrics").status_code == 200


def test_what_the_monitor_cannot_hold_is_counted(serve, model_file, eventually):
    running = serve(model_file, log_queue_rows=5)
    assert running.decide([[0.0, 0.0]] * 6).status_code == 200
    assert running.metric("poscod_monitor_dropped_total") == 6
    assert running.decide([[0.0, 0.0]] * 5).status_code == 200
    eventually(lambda: total(running) == 5)
    assert running.client.get("/v1/monitor").json()["dropped"] == 6


def test_a_fault_in_the_monitor_does_not_end_its_thread(serve, model_file, eventually, capfd):
    running = serve(model_file)
    monitor = running.service.watch._monitor
    real = monitor.update
    monitor.update = lambda *_, **__: (_ for _ in ()).throw(ArithmeticError("secret"))
    assert running.decide([[0.0, 0.0]]).status_code == 200
    eventually(lambda: not running.service.watch.waiting)
    monitor.update = real
    assert running.decide([[0.0, 0.0]]).status_code == 200
    eventually(lambda: total(running) >= 1)
    errors = capfd.readouterr().err
    assert "monitor-fault" in errors
    assert "secret" not in errors


def test_states_of_two_processes_can_be_merged(serve, model_file, tmp_path):
    monitors = []
    for name, rows in (("a", 30), ("b", 12)):
        running = serve(model_file, state_file=tmp_path / f"{name}.json")
        running.decide([[0.0, 0.0]] * rows)
        running.stop()
        data = json.loads(state_of(tmp_path / f"{name}.json", model_file).read_text())
        monitors.append(Monitor.from_state(data["monitor"], Reference.from_dict(data["reference"])))
    assert sum(window.n for window in monitors[0].merge(monitors[1]).windows()) == 42


@pytest.mark.parametrize("name", ["window", "ood_limit"])
def test_a_state_counted_otherwise_is_not_mixed_in(serve, model_file, tmp_path, name):
    state = tmp_path / "state.json"
    first = serve(model_file, state_file=state)
    first.decide([[0.0, 0.0]])
    first.stop()
    mine = state_of(state, model_file)
    for i in (1, 2):
        kept = mine.read_text()
        options = {name: {"window": ("15min", "2h"), "ood_limit": (0.3, 0.4)}[name][i - 1]}
        other = serve(model_file, state_file=state, **options)
        assert total(other) == 0
        other.stop()
        assert mine.with_name(f"{mine.stem}-unused-{i}.json").read_text() == kept  # nor lost


def test_a_restart_with_another_model_keeps_the_state_of_the_first(serve, model_file, other_file, tmp_path):
    state = tmp_path / "state.json"
    for file, sent, found in ((model_file, 4, 0), (other_file, 3, 0), (model_file, 2, 4), (other_file, 1, 3)):
        running = serve(file, state_file=state)
        assert total(running) == found
        assert running.decide([[0.0, 0.0]] * sent).status_code == 200
        running.stop()
    assert set(tmp_path.iterdir()) == {state_of(state, model_file), state_of(state, other_file)}


def test_a_state_under_the_name_of_another_model_is_not_taken_up(serve, model_file, other_file, tmp_path):
    state = tmp_path / "state.json"
    running = serve(model_file, state_file=state)
    running.decide([[0.0, 0.0]])
    running.stop()
    wrong = state_of(state, other_file)
    shutil.copy(state_of(state, model_file), wrong)
    other = serve(other_file, state_file=state)
    assert total(other) == 0
    other.stop()
    assert wrong.with_name(f"{wrong.stem}-unused-1.json").read_bytes() == state_of(state, model_file).read_bytes()
    assert json.loads(wrong.read_text())["sha256"] == load_model(other_file).sha256


def test_calibration_has_the_date_of_the_model_file(serve, model_file, tmp_path):
    path, state = tmp_path / "m.poscod", tmp_path / "state.json"
    shutil.copy(model_file, path)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    serve(path, state_file=state).stop()
    assert json.loads(state_of(state, path).read_text())["reference"]["created"] == "2023-11-14"


def test_what_a_new_model_decides_before_the_monitor_knows_it_is_counted(model_file, other_file):
    old, new = load_model(model_file), load_model(other_file)
    X = WORLD.sample_id(50, random_state=1)[0]
    watch = Watch(old, Settings())
    with watch._wake:  # all of it waits when the thread looks
        watch.put(20, (1.7e9, old.model.decide(X[:20]), old))
        watch.put(50, (1.7e9, new.model.decide(X), new))
        watch.put(0, new)
    watch.close(30)
    assert sum(window["n"] for window in watch.document()["windows"]) == 50
    assert watch.dropped == 0
