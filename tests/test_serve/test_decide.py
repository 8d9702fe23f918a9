"""Answers equal the model's own decisions, in every form of body and answer."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pytest

from poscod import POSCOD, Activations
from poscod.model import NoUnlabeledDataWarning, Schema
from poscod.serve._engine import Job
from poscod.serve._parse import Batch, first_gap
from poscod.serve._say import cells, dumps_with
from poscod.serve._service import Question

ROWS = [[0.0, 0.1], [3.0, 0.5], [1.5, 4.5], [1.4, 0.0], [50.0, -900.0]]
ARROW, NPY = "application/vnd.apache.arrow.stream", "application/x-npy"


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def arrow(columns: dict) -> bytes:
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def assert_same(answer: dict, expected) -> None:
    for name in ("label", "accept", "reason"):
        assert answer[name] == getattr(expected, name).tolist()
    for name in ("risk", "log_ratio", "score"):
        np.testing.assert_allclose(answer[name], getattr(expected, name), rtol=1e-9)


def test_json_equals_the_model(server, model_file):
    answer = server.decide(ROWS, ids=["a", 7, "c", "d", "e"])
    assert answer.status_code == 200, answer.text
    expected = POSCOD.load(model_file).decide(ROWS)
    assert {True, False} == set(expected.accept.tolist())
    document = answer.json()
    assert_same(document["decisions"], expected)
    assert document["decisions"]["prediction"] == expected.predictions(-1).tolist()
    assert document["n"] == 5
    assert document["ids"] == ["a", "7", "c", "d", "e"]
    assert document["model"] == server.service.holder.current.sha256


def test_npy_and_arrow_bodies_and_arrow_answers(server, model_file):
    X = np.asarray(ROWS)
    expected = POSCOD.load(model_file).decide(X)
    answer = server.client.post("/v1/decide", content=npy(X), headers={"content-type": NPY})
    assert_same(answer.json()["decisions"], expected)
    body = arrow({"x": X[:, 0], "y": X[:, 1], "id": list("abcde")})
    answer = server.client.post("/v1/decide", content=body, headers={"content-type": ARROW, "accept": ARROW})
    assert answer.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table["id"].to_pylist() == list("abcde")
    assert_same(table.to_pydict(), expected)
    assert table.schema.metadata[b"model"].decode() == server.service.holder.current.sha256


def test_details_where_they_are_asked_for(server, model_file):
    X = np.asarray(ROWS)
    expected = POSCOD.load(model_file).decide(X, explain=True).detail.tolist()
    assert "column 1 = -900: " in expected[-1]
    assert ", smallest seen " in expected[-1]
    asked = server.client.post("/v1/decide?explain=true", json={"rows": ROWS})
    assert asked.json()["decisions"]["detail"] == expected
    headers = {"content-type": NPY, "accept": ARROW}
    answer = server.client.post("/v1/decide?explain=true", content=npy(X), headers=headers)
    assert pa.ipc.open_stream(answer.content).read_all()["detail"].to_pylist() == expected
    for query in ("", "?explain=false"):
        assert "detail" not in server.client.post("/v1/decide" + query, json={"rows": ROWS}).json()["decisions"]
    refused = server.client.post("/v1/decide?explain=why", json={"rows": ROWS})
    assert refused.status_code == 422
    assert "explain must be true or false, got 'why'" in refused.json()["error"]


def test_float32_and_integers_of_npy(server, model_file):
    model = POSCOD.load(model_file)
    for X in (np.asarray(ROWS, dtype=np.float32), np.array([[0, 1], [3, 4]]), np.asfortranarray(ROWS)):
        answer = server.client.post("/v1/decide", content=npy(X), headers={"content-type": NPY})
        assert answer.json()["decisions"]["accept"] == model.decide(X).accept.tolist()


def test_named_features_and_text_labels(serve, named_file):
    pandas = pytest.importorskip("pandas")
    running = serve(named_file)
    X = np.asarray(ROWS)
    model = POSCOD.load(named_file)
    expected = model.decide(pandas.DataFrame(X, columns=["width", "height"]))
    width, height = X.T.tolist()
    records = [{"height": h, "width": w} for w, h in ROWS]  # keys in any order
    bodies = [{"rows": ROWS}, {"columns": {"height": height, "width": width}}, {"records": records}]
    for body in bodies:
        answer = running.client.post("/v1/decide", json=body)
        assert answer.status_code == 200, answer.text
        assert_same(answer.json()["decisions"], expected)
        assert answer.json()["decisions"]["prediction"] == expected.predictions("none of them").tolist()
    answer = running.client.post(
        "/v1/decide", content=arrow({"height": height, "width": width}), headers={"content-type": ARROW}
    )
    assert_same(answer.json()["decisions"], expected)
    for bad in (
        {"columns": {"width": width}},
        {"columns": {"width": width, "height": height, "depth": width}},
        {"columns": {"width": width, "height": height[:-1]}},
        {"records": [{"width": 1}]},
        {"records": [[1, 2]]},
        {"rows": [[1.0, "tall"]]},
        {"columns": {"width": [[1]], "height": [2]}},
    ):
        assert running.client.post("/v1/decide", json=bad).status_code == 422, bad
    for bad, sentence in (
        ({"records": [{"width": 1, "height": 2}, {"width": 1}]}, "row 2 of records lacks the column 'height' that the model reads."),
        ({"records": [{"width": 1, "height": 2, "day": 3, "id": 4}]}, "row 1 of records holds 'day', 'id', which the model does not read: leave that out."),
        ({"records": [[1, 2]]}, "Row 1 of records must be an object."),
        ({"rows": [[1, 2], [1]]}, "Row 2 of rows must be a list of 2 values."),
        ({"columns": {"width": [1], "height": [2]} | {f"x{i}": [0] for i in range(7)}}, "the body holds 'x0', 'x1', 'x2', 'x3', 'x4' and 2 more, which the model does not read: leave that out."),
        ({"records": [{"width": 1, "height": 2}, {"width": 1, "height": None}]}, "The model refuses these rows: Input X contains NaN (a value is missing or not finite: row 2, column 'height')."),
        ({"activations": {"logits": [[1, 2]]}}, "The JSON must hold rows or columns or records, one of them, and possibly ids, got 'activations'."),
    ):  # fmt: skip
        assert running.client.post("/v1/decide", json=bad).json()["error"] == sentence
    assert running.client.get("/v1/model").json()["inputs"]["features"] == ["width", "height"]


def test_network_activations(serve, network_file):
    running = serve(network_file)
    X = np.asarray(ROWS)
    logits = X @ np.array([[-1.0, 0.2], [1.0, -0.2]]).T
    expected = POSCOD.load(network_file).decide(Activations(X, logits))
    body = {"activations": {"features": X.tolist(), "logits": logits.tolist()}}
    assert_same(running.client.post("/v1/decide", json=body).json()["decisions"], expected)
    side = npy(np.hstack([X, logits]))
    assert_same(
        running.client.post("/v1/decide", content=side, headers={"content-type": NPY}).json()["decisions"], expected
    )
    lists = arrow({"features": X.tolist(), "logits": logits.tolist()})
    assert_same(
        running.client.post("/v1/decide", content=lists, headers={"content-type": ARROW}).json()["decisions"], expected
    )
    for bad in ({"rows": ROWS}, {"activations": {"features": X.tolist()}}, {"activations": {"features": [[1.0]], "logits": [[1.0, 2.0]]}}):  # fmt: skip
        assert running.client.post("/v1/decide", json=bad).status_code == 422, bad


def test_infinite_numbers_are_the_largest_double(serve, folder):
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), np.tile([True, False], 150)
    with pytest.warns(NoUnlabeledDataWarning):
        model = POSCOD(LogisticRegression(), random_state=0).fit(X, y)  # no traffic: log g = -inf
    model.save(folder / "risk-only.poscod")
    running = serve(folder / "risk-only.poscod")
    answer = running.decide([[0.0, 0.0]])
    decisions = json.loads(answer.text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["decisions"]
    assert decisions["log_ratio"] == [-np.finfo(float).max]
    assert decisions["label"][0] in (True, False)
    assert isinstance(decisions["label"][0], bool)
    rule = running.client.get("/v1/at", params={"alpha": 1}).json()
    assert rule["rule"]["slope"] == np.finfo(float).max
    card = running.client.get("/v1/model").json()
    assert card["estimates"]["fpr"] is None
    assert card["ood_prior"] == 0


def test_concurrent_requests_are_decided_together_and_get_their_own_answers(server, model_file):
    import asyncio

    import httpx

    rng = np.random.default_rng(3)
    batches = [rng.normal(1.5, 2.0, (1 + i % 4, 2)) for i in range(60)]
    model = POSCOD.load(model_file)
    before = server.metric("poscod_joint_rows_count")

    async def ask() -> list:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            good = [client.post("/v1/decide", json={"rows": batch.tolist()}) for batch in batches]
            bad = [client.post("/v1/decide", json={"rows": [[None, 1.0]]}) for _ in range(5)]
            return await asyncio.gather(*good, *bad)

    answers = asyncio.run(ask())
    for batch, answer in zip(batches, answers, strict=False):
        assert_same(answer.json()["decisions"], model.decide(batch))
    assert [answer.status_code for answer in answers[60:]] == [422] * 5
    calls = server.metric("poscod_joint_rows_count") - before
    assert calls < 60, "nothing was joined"


def test_a_failing_joint_call_refuses_only_the_guilty(serve, model_file):
    running = serve(model_file, threads=1)
    engine, holder = running.service.engine, running.service.holder
    real = holder.current.model.decide
    calls: list[int] = []

    def fragile(X):
        calls.append(len(X))
        if (np.asarray(X)[:, 0] == 13).any():
            raise ValueError("thirteen")
        return real(X)

    holder.current.model.decide = fragile
    import asyncio

    from poscod.serve._service import Question

    async def ask() -> list:
        questions = [
            Question(holder.current, Batch({"rows": np.array([[float(first), 0.0]])}), "r", False)
            for first in (1, 13, 2)
        ]
        with engine._ready:  # all three wait before the thread looks
            until = asyncio.get_running_loop().time() + 60
            tasks = [asyncio.ensure_future(running.service.decide(question, until)) for question in questions]
            await asyncio.sleep(0)
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(ask())
    assert calls[0] == 3
    assert calls[1:] == [1, 1, 1]
    assert [isinstance(answer, bytes) for answer in answers] == [True, False, True]
    assert answers[1].status == 422
    assert "thirteen" in answers[1].sentence


def test_a_table_model_of_the_shell_knows_its_columns(serve, shell_file):
    running = serve(shell_file)
    expected = POSCOD.load(shell_file).decide(ROWS)
    width, height = np.transpose(ROWS).tolist()
    for body in (
        {"rows": ROWS},
        {"columns": {"height": height, "width": width}},
        {"records": [{"height": h, "width": w} for w, h in ROWS]},
    ):
        answer = running.client.post("/v1/decide", json=body)
        assert answer.status_code == 200, answer.text
        assert_same(answer.json()["decisions"], expected)
    for bad in (
        {"columns": {"width": ["a"], "height": [1]}},
        {"columns": {"width": [1, 2], "height": [1]}},
        {"rows": [["1", 2]]},
        {"rows": [["wide", "tall"]]},
    ):
        for path in ("/v1/decide", "/v1/at"):
            answer = running.client.post(path, json=bad)
            assert answer.status_code == 422, (path, bad, answer.text)
    example = running.client.get("/openapi.json").json()["paths"]["/v1/decide"]["post"]["requestBody"]["content"][
        "application/json"
    ]
    assert len(example["schema"]["oneOf"]) == 3


def test_an_outside_classifier_of_the_shell_with_probabilities_and_names(serve, folder):
    from poscod.ratio import CorrectedSigmoid

    rng = np.random.default_rng(0)

    def rows(n: int, ood: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        X = rng.normal(0.0, 1.0, (n, 2)) + 3.0 * (np.arange(n) < ood * n)[:, None]
        p = 1 / (1 + np.exp(-2 * X[:, 0]))
        return X, np.column_stack([1 - p, p])

    def activations(X, p) -> Activations:
        return Activations(X, np.log(np.maximum(p, 1e-12)), table=True)

    known, traffic = rows(400), rows(300, 0.4)
    y = (rng.random(400) < known[1][:, 1]).astype(int)
    model = POSCOD(ratio=CorrectedSigmoid("paper", l2=1e-3), reject_label="ask", random_state=0)
    model.fit(activations(*known), y, X_unlabeled=activations(*traffic))
    schema = Schema(("u", "v"), ("p_no", "p_yes"), probabilities=True, table=True, classes=("no", "yes"), n_features=2, n_logits=2)  # fmt: skip
    model = model.with_schema(schema)
    model.save(folder / "outside.poscod")
    running = serve(folder / "outside.poscod", log=f"sqlite:///{folder}/outside.db")
    X, p = rows(6)
    expected = model.decide(activations(X, p))
    names = np.array(["no", "yes"])[expected.label].tolist()
    columns = dict(zip(["u", "v", "p_no", "p_yes"], np.hstack([X, p]).T.tolist(), strict=True))
    for body in ({"columns": columns}, {"activations": {"features": X.tolist(), "logits": p.tolist()}}):
        answer = running.client.post("/v1/decide", json=body)
        assert answer.status_code == 200, answer.text
        decisions = answer.json()["decisions"]
        assert decisions["label"] == names
        assert decisions["prediction"] == [
            name if ok else "ask" for name, ok in zip(names, expected.accept, strict=True)
        ]
        np.testing.assert_allclose(decisions["score"], expected.score, rtol=1e-9)
    assert running.client.get("/v1/model").json()["classes"] == ["no", "yes"]
    bad = {"activations": {"features": X.tolist(), "logits": (3 * p).tolist()}}
    assert "sum to 1" in running.client.post("/v1/decide", json=bad).json()["error"]
    running.stop()
    import sqlite3

    connection = sqlite3.connect(folder / "outside.db")
    assert [row[0] for row in connection.execute("SELECT label FROM poscod_decisions ORDER BY number")] == names * 2
    connection.close()


def test_a_gap_is_told_with_row_and_column(server):
    answer = server.decide([[0.0, 1.0], [0.0, None]])
    sentence = "The model refuses these rows: Input X contains NaN (a value is missing or not finite: row 2, column 'rows[2]')."
    assert answer.json()["error"] == sentence
    rows = Batch({"features": np.zeros((3, 2)), "logits": np.array([[0.0, 1.0], [0.0, 1.0], [np.inf, 1.0]])})
    assert first_gap(rows, Schema(("a", "b"), ("cat", "dog"), n_features=2, n_logits=2)) == "row 3, column 'cat'"
    texts = Batch({"a": np.zeros(2), "b": np.array(["x", None], dtype=object)}, named=True)
    assert first_gap(texts, Schema(("a", "b"), n_features=2, frame=True)) == "row 2, column 'b'"
    assert first_gap(Batch({"rows": np.zeros((2, 2))}), Schema(n_features=2)) == ""


def test_a_frame_takes_texts_booleans_and_gaps(serve, folder):
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    from poscod.ratio import CorrectedSigmoid

    rng = np.random.default_rng(0)
    n = 400
    frame = pandas.DataFrame(
        {"size": rng.normal(size=n), "kind": rng.choice(["a", "b"], n), "new": rng.random(n) < 0.5}
    )
    y = (frame["size"] + (frame["kind"] == "a") > 0).astype(int)
    steps = make_column_transformer((SimpleImputer(), ["size"]), (OneHotEncoder(), ["kind", "new"]))
    model = POSCOD(
        make_pipeline(steps, LogisticRegression()), CorrectedSigmoid("paper", l2=1e-2, ood_prior=0.2), random_state=0
    )
    model.fit(frame, y, X_unlabeled=frame.assign(size=frame["size"] + rng.normal(size=n)))
    model.save(folder / "frame.poscod")
    running = serve(folder / "frame.poscod")
    table = pandas.DataFrame({"size": [0.5, np.nan, 9.0], "kind": ["a", "b", "a"], "new": [True, False, True]})
    expected = model.decide(table)
    rows = [[0.5, "a", True], [None, "b", False], [9.0, "a", True]]
    names = ["size", "kind", "new"]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    for body in (
        {"rows": rows},
        {"columns": columns},
        {"records": [dict(zip(names, row, strict=True)) for row in rows]},
    ):
        answer = running.client.post("/v1/decide", json=body)
        assert answer.status_code == 200, answer.text
        assert_same(answer.json()["decisions"], expected)
    answer = running.client.post("/v1/decide", content=arrow(columns), headers={"content-type": ARROW})
    assert_same(answer.json()["decisions"], expected)
    unknown = running.client.post("/v1/decide", json={"rows": [[0.5, "z", True]]})
    assert unknown.status_code == 422
    assert "unknown categories ['z']" in unknown.json()["error"]
    assert "missing" not in unknown.json()["error"]


def test_a_prepared_table_takes_gaps_and_levels_never_seen(serve, folder):
    pandas = pytest.importorskip("pandas")
    from poscod.ratio import CorrectedSigmoid

    rng = np.random.default_rng(0)
    n = 400
    frame = pandas.DataFrame({"size": rng.normal(size=n), "kind": rng.choice(["a", "b"], n), "on": rng.random(n) < 0.5})
    frame.loc[::9, "size"] = np.nan
    y = (frame["size"].fillna(0.0) + (frame["kind"] == "a") > 0.3).astype(int)
    model = POSCOD(ratio=CorrectedSigmoid("paper", l2=1e-2, ood_prior=0.2), random_state=0)
    model.fit(frame, y, X_unlabeled=frame.assign(size=frame["size"] + rng.normal(size=n))).save(folder / "made.poscod")
    running = serve(folder / "made.poscod")
    rows = [[0.5, "a", True], [None, "b", False], [0.1, "mauve", None]]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(frame)}
    expected = model.decide(pandas.DataFrame(columns))
    for body in (
        {"rows": rows},
        {"columns": columns},
        {"records": [dict(zip(frame, row, strict=True)) for row in rows]},
    ):
        answer = running.client.post("/v1/decide?explain=true", json=body)
        assert answer.status_code == 200, answer.text
        found = answer.json()["decisions"]
        np.testing.assert_allclose(found["score"], expected.score)
        assert found["accept"][2] is False
        assert "kind = 'mauve'" in found["detail"][2]
        assert "never seen" in found["detail"][2]
    answer = running.client.post("/v1/decide", content=arrow(columns), headers={"content-type": ARROW})
    assert_same(answer.json()["decisions"], expected)
    wrong = running.client.post("/v1/decide", json={"rows": [["wide", "a", True]]})
    assert wrong.status_code == 422
    assert "column 'size' must hold numbers, got 'wide' at row 1" in wrong.json()["error"]


def test_texts_and_columns_of_lists(serve, folder, model_file):
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    from poscod.ratio import CorrectedSigmoid

    rng = np.random.default_rng(0)
    words = [" ".join(rng.choice(["red", "green"] if i % 2 else ["cat", "dog"], 4)) for i in range(200)]
    traffic = [" ".join(rng.choice(["red", "cat", "moon"], 4)) for _ in range(100)]
    model = POSCOD(make_pipeline(CountVectorizer(), MultinomialNB()), CorrectedSigmoid("paper", l2=1e-2, ood_prior=0.3), random_state=0)  # fmt: skip
    model.fit(words, np.arange(200) % 2, X_unlabeled=traffic).save(folder / "text.poscod")
    running = serve(folder / "text.poscod")
    texts = ["red green", "moon moon"]
    assert_same(running.decide(texts).json()["decisions"], model.decide(texts))
    assert running.client.get("/v1/model").json()["inputs"]["kind"] == "any"
    listed = POSCOD.load(model_file).with_schema(Schema(("point",), n_features=2))
    listed.save(folder / "listed.poscod")
    other = serve(folder / "listed.poscod")
    for body in ({"columns": {"point": ROWS}}, {"records": [{"point": row} for row in ROWS]}, {"rows": ROWS}):
        answer = other.client.post("/v1/decide", json=body)
        assert answer.status_code == 200, answer.text
        assert_same(answer.json()["decisions"], listed.decide(ROWS))
    ragged = other.client.post("/v1/decide", json={"columns": {"point": [[1.0, 2.0], [1.0]]}})
    assert ragged.json()["error"] == "Row 2 of point must be a list of 2 numbers."


@pytest.mark.parametrize("rows", [3, 3000])
def test_a_body_is_checked_once(serve, model_file, monkeypatch, rows):
    from poscod.serve import _parse

    running = serve(model_file)
    real, checks = _parse._checked, []
    monkeypatch.setattr(_parse, "_checked", lambda *given: (checks.append(given), real(*given))[1])
    for path in ("/v1/decide", "/v1/at"):
        assert running.client.post(path, json={"rows": ROWS * (rows // 3)}).status_code == 200
    assert len(checks) == 2
    assert running.client.head("/healthz").status_code == 200


def test_long_columns_are_written_as_json_writes_them():
    """Many numbers are written by Arrow, a few by Python: nobody may see which."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=300) * 10.0 ** rng.integers(-320, 300, 300)
    numbers[:6] = 0.0, 1.0, -3.0, 1e16, 5e-324, -0.1
    labels = np.array(["a, b", "line\nbreak", 'quo"te', "\u2028é"] * 75, dtype=object)
    nested = np.empty(300, dtype=object)
    nested[:] = [("a", "b"), (), 1, True, None] * 60
    columns = {"number": numbers, "single": rng.normal(size=300).astype(np.float32), "label": labels, "nested": nested}
    columns |= {"text": labels.astype(str), "accept": numbers > 0, "whole": np.arange(300)}
    for rows in (slice(0, 3), slice(0, 300), slice(100, 299)):
        written = json.loads(dumps_with({"n": 1}, "d", cells(columns), rows))["d"]
        plainly = {name: json.loads(json.dumps(column[rows].tolist())) for name, column in columns.items()}
        assert repr(written) == repr(plainly)  # also tells 1 from 1.0 and from true
    with pytest.raises(ValueError, match="not JSON compliant"):
        cells({"number": np.append(numbers, np.nan)})


def test_one_call_answers_questions_in_json_and_in_arrow(serve, model_file):
    """Each question gets its own rows, ids and format, whatever it was decided with."""
    running = serve(model_file)
    service = running.service
    loaded, rows = service.holder.current, np.random.default_rng(0).normal(size=(70, 2))
    cuts = [(0, 1), (1, 40), (40, 70)]
    batches = [Batch({"rows": rows[a:b]}, ids=[f"r{i}" for i in range(a, b)]) for a, b in cuts]
    questions = [
        Question(loaded, batch, "x", arrow) for batch, arrow in zip(batches, (False, True, False), strict=True)
    ]
    answers = service._decide([Job(service._decide, question, len(question.rows)) for question in questions])
    table = pa.ipc.open_stream(answers[1]).read_all().to_pydict()
    first, last = json.loads(answers[0]), json.loads(answers[2])
    ids = [*first["ids"], *table.pop("id"), *last["ids"]]
    assert ids == [f"r{i}" for i in range(70)]
    expected = loaded.model.decide(rows)
    for name, values in table.items():
        joined = [*first["decisions"][name], *values, *last["decisions"][name]]
        wanted = expected.predictions(-1) if name == "prediction" else getattr(expected, name)
        assert joined == wanted.tolist(), name
