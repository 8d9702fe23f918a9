"""The model in service: its card, other costs, and a new file at any moment."""

from __future__ import annotations

import dataclasses
import json
import shutil
import threading

import numpy as np
import pytest

from poscod import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.model import choices_document, estimates_document, mix_document, save
from poscod.problem import CostProblem, CoverageProblem, GeneralisedProblem, ScodProblem
from poscod.serve import create_app
from poscod.serve._model import load_model

ROWS = [[0.0, 0.0], [3.0, 0.5], [1.5, 4.5], [1.4, 0.0]]


def test_card_says_what_the_model_is(server, model_file):
    card = server.client.get("/v1/model").json()
    model = POSCOD.load(model_file)
    assert card["rule"] == model.rule_.to_dict()
    assert card["rule"]["problem"] == {"kind": "ScodProblem", "alpha": 0.3, "tpr_min": 0.9, "loss": "zero_one"}
    assert card["rule"]["threshold"] == model.threshold_
    assert card["rule"]["sentence"] == str(model.rule_)
    assert card["classes"] == [0, 1]
    assert card["ood_prior"] == model.ood_prior_
    assert card["class_mix"] == mix_document(model)
    assert [row["class"] for row in card["class_mix"]["classes"]] == [0, 1]
    assert card["inputs"] == {"kind": "table", **model.schema_.to_dict()}
    assert not {"promise", "threshold", "beta", "slope", "problem", "ood_share_at_fit"} & set(card)


def test_every_rule_is_told_as_it_is(model_file, tmp_path):
    model = POSCOD.load(model_file)
    for name, other in {
        "own": model,
        "budget": model.budget(0.5),
        "risk": model.control_risk(0.2),
        "coverage": model.with_rule(CoverageProblem(reject_max=0.4)),
        "general": model.with_rule(GeneralisedProblem(alpha=0.3, tpr_min=0.8)),
        "g-alone": model.at(alpha=1.0),
    }.items():
        other.save(tmp_path / f"{name}.poscod")
        card = load_model(tmp_path / f"{name}.poscod").card
        assert card["rule"] == other.rule_.to_dict(), name
        assert (card["rule"]["promise"] is None) == (other.rule_.promise is None)
        assert card["estimates"] == choices_document(other)
        assert json.loads(json.dumps(card, allow_nan=False)) == card


def test_other_costs(server, model_file):
    other = POSCOD.load(model_file).at(alpha=0.9, tpr_min=0.7)
    rule = server.client.get("/v1/at", params={"alpha": 0.9, "tpr_min": 0.7}).json()
    assert rule["rule"] == other.rule_.to_dict()
    assert rule["estimates"] == estimates_document(other)
    assert "decisions" not in rule
    before = server.metric("poscod_decisions_total")
    answer = server.client.post("/v1/at", json={"alpha": 0.9, "tpr_min": 0.7, "rows": ROWS}).json()
    assert answer["decisions"]["accept"] == other.decide(ROWS).accept.tolist()
    assert server.metric("poscod_decisions_total") == before, "a question about other costs is no decision"
    many = server.client.post(
        "/v1/at",
        json={"alpha": 0.9, "tpr_min": 0.7, "rows": [[1.23456789, 2.3456789]] * 1000, "ids": list(range(1000))},
    )
    assert len(many.json()["decisions"]["score"]) == 1000  # a body that is parsed off the event loop
    assert server.client.get("/v1/at").json()["rule"]["threshold"] == POSCOD.load(model_file).threshold_
    for bad in ({"alpha": "x"}, {"alpha": "nan"}, {"alpha": 1.5}, {"tpr_min": 0}, {"beta": 1}):
        assert server.client.get("/v1/at", params=bad).status_code == 422, bad
    for bad in ({"alpha": "0.5"}, {"alpha": True}, {"rows": [[1]]}, {"alpha": 0.5, "more": 1}):
        assert server.client.post("/v1/at", json=bad).status_code == 422, bad


def test_costs_that_a_problem_does_not_have(serve, model_file, tmp_path):
    POSCOD.load(model_file).with_rule(CostProblem(reject_id=0.2, accept_ood=1.5)).save(tmp_path / "cost.poscod")
    running = serve(tmp_path / "cost.poscod")
    answer = running.client.get("/v1/at", params={"tpr_min": 0.5})
    assert answer.status_code == 422
    assert "tpr_min" in answer.json()["error"]
    assert running.client.get("/v1/at").json()["rule"]["problem"]["kind"] == "CostProblem"


def test_a_new_file_is_served_without_a_word(serve, model_file, other_file, tmp_path, eventually):
    path = tmp_path / "m.poscod"
    shutil.copy(model_file, path)
    running = serve(path, reload_seconds=0.1)
    first = running.client.get("/v1/model").json()
    shutil.copy(other_file, tmp_path / "new")
    (tmp_path / "new").replace(path)
    eventually(lambda: running.client.get("/v1/model").json()["sha256"] != first["sha256"])
    assert running.client.get("/v1/model").json()["rule"]["problem"]["alpha"] == 0.8
    assert running.decide(ROWS).json()["model"] != first["sha256"]
    assert running.metric("poscod_model_reloads_total") == 1


def test_a_bad_file_leaves_the_old_model_and_says_so(serve, model_file, tmp_path, eventually):
    path = tmp_path / "m.poscod"
    shutil.copy(model_file, path)
    running = serve(path, reload_seconds=0.1)
    sha256 = running.client.get("/v1/model").json()["sha256"]
    path.write_bytes(model_file.read_bytes()[:300])
    eventually(lambda: running.client.get("/readyz").json()["reload_error"])
    ready = running.client.get("/readyz").json()
    assert ready["ready"]
    assert "damaged" in ready["reload_error"]
    assert ready["model"] == sha256
    assert running.metric("poscod_model_reload_failing") == 1
    assert running.decide(ROWS).status_code == 200
    answer = running.client.post("/v1/reload")
    assert answer.status_code == 409
    assert "damaged" in answer.json()["error"]
    shutil.copy(model_file, path)
    answer = running.client.post("/v1/reload")
    assert answer.json() == {"changed": False, "sha256": sha256}
    assert running.client.get("/readyz").json()["reload_error"] is None


def test_a_file_that_raises_anything_does_not_end_the_watch(serve, model_file, other_file, tmp_path, eventually):
    path = tmp_path / "m.poscod"
    shutil.copy(model_file, path)
    running = serve(path, reload_seconds=0.1)
    strange = POSCOD.load(model_file)
    strange.calibration_ = "none"
    strange.save(path)
    eventually(lambda: running.client.get("/readyz").json()["reload_error"])
    assert "without a Calibration" in running.client.get("/readyz").json()["reload_error"]
    assert running.client.post("/v1/reload").status_code == 409
    assert running.decide(ROWS).status_code == 200
    shutil.copy(other_file, path)
    eventually(lambda: running.metric("poscod_model_reloads_total") == 1)
    assert running.client.get("/readyz").json()["reload_error"] is None


def test_models_swap_under_load_without_an_error(serve, model_file, other_file, tmp_path):
    path = tmp_path / "m.poscod"
    shutil.copy(model_file, path)
    running = serve(path)
    models = {}
    for file in (model_file, other_file):
        model = POSCOD.load(file)
        shutil.copy(file, path)
        models[running.client.post("/v1/reload").json()["sha256"]] = model.decide(ROWS).score.tolist()
    assert len(models) == 2
    stop, seen, problems = threading.Event(), set(), []

    def ask() -> None:
        import httpx

        with httpx.Client(base_url=running.url, timeout=60) as client:
            while not stop.is_set():
                answer = client.post("/v1/decide", json={"rows": ROWS})
                if answer.status_code != 200:
                    problems.append(answer.text)
                    continue
                body = answer.json()
                seen.add(body["model"])
                if not np.allclose(body["decisions"]["score"], models[body["model"]], rtol=1e-9):
                    problems.append("scores of another model than the answer names")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(12):
        shutil.copy((model_file, other_file)[i % 2], tmp_path / "new")
        (tmp_path / "new").replace(path)
        assert running.client.post("/v1/reload").json()["changed"]
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not problems
    assert seen == set(models)


def test_what_is_no_model_is_refused(tmp_path, model_file):
    (tmp_path / "text").write_text("not a model")
    with pytest.raises(InvalidInputError, match="not a poscod model"):
        create_app(tmp_path / "text")
    POSCOD().save(tmp_path / "unfitted.poscod")
    with pytest.raises(InvalidInputError, match="never fitted"):
        create_app(tmp_path / "unfitted.poscod")
    save(ScodProblem(), tmp_path / "problem.poscod")
    with pytest.raises(InvalidInputError, match="not a POSCOD"):
        create_app(tmp_path / "problem.poscod")
    broken = POSCOD.load(model_file)
    broken.scorer_ = dataclasses.replace(broken.scorer_, temperature="warm")
    broken.save(tmp_path / "broken.poscod")
    with pytest.raises((InvalidInputError, TypeError)):
        create_app(tmp_path / "broken.poscod")
