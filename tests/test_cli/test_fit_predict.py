"""Fit and predict as a user does, on every format, and what a model remembers of its columns."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.ensemble import GradientBoostingClassifier

import poscod
from poscod import POSCOD, Activations, ScodProblem
from poscod.cli._tables import open_table
from test_cli._world import SIZES, columns_of, write_table

CHOSEN = ["--target", "animal", "--row-id", "row", "--features", "größe", "--features", "width"]
# Where it does not matter how g is learned.
FAST = ["--ratio", "paper"]
ADDED = ["label", "accept", "reason", "risk", "log_ratio", "score", "prediction"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_two_tables_to_decisions(shell, tables, tmp_path, suffix):
    model, decisions = tmp_path / "model.poscod", tmp_path / f"decisions{suffix}"
    fit = shell(
        "fit", f"{tables}/labeled{suffix}", f"{tables}/unlabeled{suffix}", *CHOSEN, "--tpr-min", "0.9", "-o", model
    )
    assert fit.code == 0, fit.err
    lines = fit.out.splitlines()
    assert lines[2] == f"Rule: {POSCOD.load(model).rule_}"
    unused = ["'features'"] * (suffix != ".csv") + ["'logit_cat'", "'logit_dog'", "'code'"]
    assert lines[0] == (
        "Read 480 labeled rows of 2 classes and 240 unlabeled rows; 2 input columns ('größe', 'width'), a classifier was "
        "trained. "
        f"Not used: {', '.join(unused)}."
    )
    assert lines[1].startswith("Estimated share of OOD inputs among the unlabeled rows: ")
    assert lines[-1] == f"Saved: {model}"
    predict = shell("predict", model, f"{tables}/ood{suffix}", "-o", decisions)
    assert predict.code == 0, predict.err
    new, old = open_table(decisions), open_table(f"{tables}/ood{suffix}")
    assert list(new.columns) == [*old.columns, *ADDED]
    rows = new.read()
    for name, values in old.read().items():
        assert np.array_equal(rows[name], values)
    loaded = POSCOD.load(model)
    direct = loaded.decide(np.column_stack([rows["größe"], rows["width"]]))
    assert rows["label"].tolist() == direct.label.tolist()
    assert np.array_equal(rows["accept"], direct.accept)
    assert rows["reason"].tolist() == direct.reason.tolist()
    assert np.array_equal(rows["score"], direct.score)
    assert set(rows["prediction"][~rows["accept"]]) == {"rejected"}
    assert rows["accept"].mean() < 0.2
    assert f"{SIZES['ood']} rows: {int(rows['accept'].sum())} accepted" in predict.out


def test_npy_has_numbered_columns(shell, tables, tmp_path):
    labeled, traffic = columns_of("labeled"), columns_of("unlabeled")
    np.save(tmp_path / "known.npy", np.column_stack([labeled["größe"], labeled["width"], labeled["code"]]))
    np.save(tmp_path / "log.npy", np.column_stack([traffic["größe"], traffic["width"]]))
    assert (
        shell("fit", tmp_path / "known.npy", tmp_path / "log.npy", "--target", "2", *FAST, "-o", tmp_path / "m").code
        == 0
    )
    assert shell("predict", tmp_path / "m", tmp_path / "log.npy", "-o", tmp_path / "out.npy").code == 0
    table = np.load(tmp_path / "out.npy", allow_pickle=False)
    assert table.dtype.names == ("0", "1", *ADDED)
    assert set(np.unique(table["prediction"])) == {-1, 0, 1}


def test_blocks_do_not_change_decisions(shell, model_file, tables, tmp_path, monkeypatch):
    from poscod.cli import _predict

    assert shell("predict", model_file, f"{tables}/log.parquet", "-o", tmp_path / "whole.parquet").code == 0
    monkeypatch.setattr(_predict, "BLOCK", 7)
    assert shell("predict", model_file, f"{tables}/log.parquet", "-o", tmp_path / "blocks.parquet").code == 0
    whole, blocks = (pq.read_table(tmp_path / f"{name}.parquet").to_pydict() for name in ("whole", "blocks"))
    # The last bit of a matrix product may depend on the number of rows.
    assert np.allclose(whole.pop("score"), blocks.pop("score"), rtol=1e-9)
    assert np.allclose(whole.pop("risk"), blocks.pop("risk"), rtol=1e-9)
    assert np.allclose(whole.pop("log_ratio"), blocks.pop("log_ratio"), rtol=1e-9)
    assert whole == blocks


def test_columns_are_found_by_name_in_any_order(shell, model_file, tmp_path):
    columns = columns_of("ood")
    shuffled = {"extra": np.arange(SIZES["ood"]), "width": columns["width"], "größe": columns["größe"]}
    write_table(tmp_path / "a.csv", {name: columns[name] for name in ("größe", "width")})
    write_table(tmp_path / "b.parquet", shuffled)
    for name in ("a.csv", "b.parquet"):
        assert shell("predict", model_file, tmp_path / name, "-o", tmp_path / f"out-{name}").code == 0
    one, two = (open_table(tmp_path / f"out-{name}").read(["score"])["score"] for name in ("a.csv", "b.parquet"))
    assert np.array_equal(one, two)


def test_only_decisions_keeps_the_id(shell, model_file, tables, tmp_path):
    run = shell("predict", model_file, f"{tables}/test.csv", "--only-decisions", "-o", tmp_path / "out.csv", "--quiet")
    assert (run.code, run.out) == (0, "")
    assert list(open_table(tmp_path / "out.csv").columns) == ["row", *ADDED]


def test_what_lies_outside_is_named(shell, model_file, tmp_path):
    (tmp_path / "new.csv").write_text("row,größe,width\n1,1e300,0.5\n2,0.5,0.4\n")
    words = ["predict", model_file, tmp_path / "new.csv", "-o", tmp_path / "out.csv"]
    assert shell(*words, "--explain").code == 0
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()))
    assert rows[0]["accept"].lower() == "false"
    assert rows[0]["reason"] == "unfamiliar"
    assert re.fullmatch(r"größe = 1e\+300: .* in similar rows, largest seen [\d.]+", rows[0]["detail"])
    assert rows[1]["detail"] == ""
    assert shell(*words).code == 0
    assert "detail" not in (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()[0]


def test_decisions_on_standard_output(model_file, tables, tmp_path):
    words = ["predict", str(model_file), f"{tables}/ood.csv", "--only-decisions", "-o", "-"]
    run = subprocess.run([sys.executable, "-m", "poscod", *words], capture_output=True, text=True, check=True)
    (tmp_path / "out.csv").write_text(run.stdout)
    assert open_table(tmp_path / "out.csv").n_rows == SIZES["ood"]
    assert "accepted" in run.stderr


def test_json_is_one_document(shell, tables, tmp_path):
    model = tmp_path / "m.poscod"
    fit = shell("fit", f"{tables}/labeled.csv", f"{tables}/unlabeled.csv", *CHOSEN, *FAST, "-o", model, "--json")
    document = json.loads(fit.out)
    assert document["classes"] == ["cat", "dog"]
    assert document["features"] == ["größe", "width"]
    assert document["labeled"]["rows"] == 480
    assert 0.1 < document["ood_prior"]["estimate"] < 0.5
    assert document["rule"] == POSCOD.load(model).rule_.to_dict()
    predict = shell("predict", model, f"{tables}/ood.csv", "-o", tmp_path / "out.csv", "--json")
    document = json.loads(predict.out)
    assert sum(document["reasons"].values()) == document["rows"] == SIZES["ood"]
    assert document["rule"] == POSCOD.load(model).rule_.to_dict()


def test_options_reach_the_estimator(shell, tables, tmp_path):
    (tmp_path / "loss.csv").write_text("truth,dog,cat\ndog,0,4\ncat,1,0\n")
    words = [
        "--alpha",
        "0.3",
        "--tpr-min",
        "0.8",
        "--threshold",
        "guaranteed",
        "--delta",
        "0.1",
        "--loss",
        tmp_path / "loss.csv",
    ]
    words += [
        "--calibration",
        "0.6",
        "--seed",
        "5",
        "--reject-label",
        "none",
        "--ratio",
        "paper",
        "--classifier",
        "lda",
    ]
    run = shell(
        "fit", f"{tables}/labeled.csv", f"{tables}/unlabeled.csv", *CHOSEN, *words, "-o", tmp_path / "m", "--quiet"
    )
    assert (run.code, run.out) == (0, ""), run.err
    model = POSCOD.load(tmp_path / "m")
    assert (model.threshold, model.delta) == ("guaranteed", 0.1)
    assert (model.calibration, model.random_state, model.reject_label) == (0.6, 5, "none")
    # The loss has rows and columns in the order of the classes: cat, dog.
    assert model.rule_.problem == ScodProblem(0.3, 0.8, ((0.0, 1.0), (4.0, 0.0)))
    assert model.ratio.recipe == "paper"
    assert type(model.classifier_).__name__ == "LinearDiscriminantAnalysis"


def test_the_share_of_kinds_that_the_log_does_not_hold(shell, tables, tmp_path):
    words = ["fit", f"{tables}/labeled.csv", f"{tables}/unlabeled.csv", *CHOSEN, "--quiet", "-o", tmp_path / "m"]
    run = shell(*words, "--unseen-share", "0.4")
    assert run.code == 0, run.err
    assert POSCOD.load(tmp_path / "m").ratio_.model_.broad == 0.4
    (tmp_path / "m").unlink()
    for more, said in (
        (["1"], "--unseen-share must be a number in [0, 1), got 1.0"),
        (["0.4", *FAST], "must be None with --ratio='paper', got 0.4"),
    ):
        run = shell(*words, "--unseen-share", *more)
        assert run.code == 2
        assert said in run.err
        assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("threshold", ["empirical", "guaranteed"])
def test_every_class_reaches_the_tpr(shell, tables, tmp_path, threshold):
    """The model is that of Python, `at` keeps what was asked, and the sentence says it."""
    words = ["--tpr-over", "classes", "--threshold", threshold, "--tpr-min", "0.8", *FAST, "-o", tmp_path / "m.poscod"]
    run = shell("fit", f"{tables}/labeled.csv", f"{tables}/unlabeled.csv", *CHOSEN, *words)
    assert run.code == 0, run.err
    model = POSCOD.load(tmp_path / "m.poscod")
    assert (model.tpr_over, model.rule_.promise.over) == ("classes", "classes")
    said = {"empirical": "About 80 % or more", "guaranteed": "At least 80 %"}[threshold]
    assert f"{said} of the ID inputs of every class are accepted" in run.out
    words = ["--alpha", "0.2", "-o", tmp_path / "other.poscod", "--json"]
    moved = json.loads(shell("at", tmp_path / "m.poscod", *words).out)
    assert (moved["old_rule"]["promise"]["over"], moved["rule"]["promise"]["over"]) == ("classes", "classes")
    assert moved["rule"] == model.at(alpha=0.2).rule_.to_dict()


def test_a_class_with_too_few_rows_is_called_by_its_name(shell, tables, tmp_path):
    """A model of outside logits knows indices of classes; the shell knows names."""
    words = ["--tpr-over", "classes", "--threshold", "guaranteed", "--target", "animal", "--logits", "logit_*", *FAST]
    files = [f"{tables}/labeled.parquet", f"{tables}/unlabeled.parquet"]
    run = shell("fit", *files, *words, "--tpr-min", "0.98", "-o", tmp_path / "m.poscod")
    assert run.code == 2
    assert (
        "--tpr-min = 0.98 for every class with probability 0.95 needs at least 183 held-out rows of each class, got 1"
        in run.err
    )
    assert (
        "of class 'cat' (2 classes have too few): hold out more rows, lower --tpr-min, raise --delta or use --tpr-over='all'."
        in run.err
    )
    assert shell("fit", *files, *words, "--tpr-min", "0.9", "-o", tmp_path / "m.poscod").code == 0
    run = shell("at", tmp_path / "m.poscod", "--tpr-min", "0.98", "-o", tmp_path / "other.poscod")
    assert run.code == 2
    assert "of class 'cat' (2 classes have too few)" in run.err


def test_all_columns_of_numbers_are_features_by_default(shell, tables, tmp_path):
    words = [
        "--target",
        "animal",
        "--exclude",
        "logit_*",
        "--exclude",
        "code",
        *FAST,
        "-o",
        tmp_path / "m.poscod",
        "--json",
    ]
    run = shell("fit", f"{tables}/labeled.npz", f"{tables}/unlabeled.npz", *words)
    assert run.code == 0, run.err
    assert json.loads(run.out)["features"] == ["größe", "width", "features"]
    assert json.loads(run.out)["ignored"] == ["row", "logit_cat", "logit_dog", "code"]
    assert POSCOD.load(tmp_path / "m.poscod").n_features_in_ == 4


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_an_embedding_is_a_column_of_lists(shell, tables, tmp_path, suffix):
    words = ["--target", "animal", "--embedding", "features", *FAST, "-o", tmp_path / "m.poscod"]
    assert shell("fit", f"{tables}/labeled{suffix}", f"{tables}/unlabeled{suffix}", *words).code == 0
    assert POSCOD.load(tmp_path / "m.poscod").n_features_in_ == 2
    assert shell("predict", tmp_path / "m.poscod", f"{tables}/ood{suffix}", "-o", tmp_path / f"out{suffix}").code == 0


@pytest.mark.parametrize(
    ("option", "target"), [("--logits", "animal"), ("--logits", "code"), ("--probabilities", "animal")]
)
def test_a_classifier_that_lives_elsewhere(shell, tables, tmp_path, option, target):
    """No classifier is trained: the answers are those of the given logits, under the names in their columns."""
    files = {}
    for name in ("labeled", "unlabeled", "ood"):
        columns = columns_of(name)
        logits = np.column_stack([columns["logit_cat"], columns["logit_dog"]])
        p = np.exp(logits - np.logaddexp.reduce(logits, axis=1)[:, None])
        columns |= {"p_cat": p[:, 0], "p_dog": p[:, 1]}
        files[name] = write_table(tmp_path / f"{name}.parquet", columns)
    glob = "logit_*" if option == "--logits" else "p_*"
    classes = ["--classes", "0,1"] if target == "code" else []
    words = ["--target", target, option, glob, *classes, "--embedding", "features", *FAST, "-o", tmp_path / "m.poscod"]
    run = shell("fit", files["labeled"], files["unlabeled"], *words)
    assert run.code == 0, run.err
    outside = "logits" if option == "--logits" else "probabilities"
    assert f"; 2 features ('features') and 2 {outside}; no classifier is trained." in run.out
    assert shell("predict", tmp_path / "m.poscod", files["ood"], "-o", tmp_path / "out.parquet").code == 0
    rows = open_table(tmp_path / "out.parquet").read()
    names = ["0", "1"] if target == "code" else ["cat", "dog"]
    assert rows["label"].tolist() == [
        names[int(dog > cat)] for cat, dog in zip(rows["logit_cat"], rows["logit_dog"], strict=True)
    ]
    assert set(rows["prediction"]) <= {*names, "rejected"}


def test_files_of_activations_are_tables(shell, tmp_path):
    for name in ("labeled", "unlabeled"):
        columns = columns_of(name)
        logits = np.column_stack([columns["logit_cat"], columns["logit_dog"]])
        head = {"weight": np.array([[-3.0, 0.0], [3.0, 0.0]]), "bias": np.array([4.5, -4.5])}
        Activations(columns["features"], logits, columns.get("code"), **head).save(tmp_path / f"{name}.npz")
    words = ["--target", "labels", "--embedding", "features", "--logits", "logits", *FAST, "-o", tmp_path / "m.poscod"]
    run = shell("fit", tmp_path / "labeled.npz", tmp_path / "unlabeled.npz", *words)
    assert run.code == 0, run.err
    assert "Not used" not in run.out
    assert shell("predict", tmp_path / "m.poscod", tmp_path / "unlabeled.npz", "-o", tmp_path / "d.npz").code == 0


def test_logits_as_one_column_of_lists(shell, tmp_path):
    for name in ("labeled", "unlabeled"):
        columns = columns_of(name)
        logits = {"z": np.column_stack([columns["logit_cat"], columns["logit_dog"]])}
        write_table(tmp_path / f"{name}.npz", {**columns, **logits})
    words = [
        "fit",
        tmp_path / "labeled.npz",
        tmp_path / "unlabeled.npz",
        "--logits",
        "z",
        *FAST,
        "-o",
        tmp_path / "m.poscod",
    ]
    assert shell(*words, "--target", "code").code == 0
    assert POSCOD.load(tmp_path / "m.poscod").classes_.tolist() == [0, 1]
    refused = shell(*words, "--target", "animal")
    assert refused.code == 2
    assert "pass --classes A,B,..." in refused.err
    assert shell(*words, "--target", "animal", "--classes", "cat,dog").code == 0


@pytest.mark.parametrize("classifier", ["forest", "boosting", "naive_bayes"])
def test_no_classifier_of_the_shell_needs_trust(shell, tables, tmp_path, classifier):
    model = tmp_path / "m.poscod"
    words = ["--classifier", classifier, "--ratio", "paper", "-o", model]
    fit = shell("fit", f"{tables}/labeled.csv", f"{tables}/unlabeled.csv", *CHOSEN, *words)
    assert fit.code == 0
    assert "--trust" not in fit.out
    assert shell("predict", model, f"{tables}/ood.csv", "-o", tmp_path / "out.csv").code == 0


def test_types_that_are_not_trusted_are_named_with_their_option(shell, tmp_path):
    labeled, traffic = (columns_of(name) for name in ("labeled", "unlabeled"))
    X, U = (np.column_stack([c["größe"], c["width"]]) for c in (labeled, traffic))
    classifier = GradientBoostingClassifier(n_estimators=2, random_state=0)
    POSCOD(classifier, calibration=0.5, random_state=0).fit(X, labeled["animal"], X_unlabeled=U).save(
        tmp_path / "m.poscod"
    )
    write_table(tmp_path / "new.csv", {name: columns_of("ood")[name] for name in ("größe", "width")})
    predict = ["predict", tmp_path / "m.poscod", tmp_path / "new.csv", "-o", tmp_path / "out.csv"]
    run = shell(*predict)
    assert run.code == 2
    assert shell(*predict, *run.err[run.err.index("--trust") :].split()).code == 0


def test_models_saved_from_python(shell, tmp_path):
    """Without a record of columns: names of a data frame, all numbers in order, or features and logits."""
    labeled, traffic, ood = (columns_of(name) for name in ("labeled", "unlabeled", "ood"))
    X, U = (np.column_stack([c["größe"], c["width"]]) for c in (labeled, traffic))
    POSCOD(random_state=0).fit(X, labeled["animal"], X_unlabeled=U).save(tmp_path / "plain.poscod")
    write_table(tmp_path / "new.csv", {name: ood[name] for name in ("row", "größe", "width")})
    assert shell("predict", tmp_path / "plain.poscod", tmp_path / "new.csv", "-o", tmp_path / "a.csv").code == 0
    answers = {str(value) for value in open_table(tmp_path / "a.csv").read()["prediction"]}
    assert "rejected" in answers
    assert answers <= {"cat", "dog", "rejected"}
    write_table(tmp_path / "wide.csv", {name: ood[name] for name in ("größe", "width", "logit_cat")})
    refused = shell("predict", tmp_path / "plain.poscod", tmp_path / "wide.csv", "-o", tmp_path / "b.csv")
    assert refused.code == 2
    assert "3 features" in refused.err

    def network(columns):
        return Activations(columns["features"], np.column_stack([columns["logit_cat"], columns["logit_dog"]]))

    POSCOD(random_state=0).fit(network(labeled), labeled["code"], X_unlabeled=network(traffic)).save(
        tmp_path / "net.poscod"
    )
    network(ood).save(tmp_path / "new.npz")
    assert shell("predict", tmp_path / "net.poscod", tmp_path / "new.npz", "-o", tmp_path / "c.npz").code == 0
    assert list(open_table(tmp_path / "c.npz").columns) == ["features", "logits", *ADDED]


def test_columns_of_the_traffic_alone_are_named(shell, tables, tmp_path):
    traffic = columns_of("unlabeled")
    write_table(tmp_path / "log.csv", {**traffic, "at": traffic["width"]})
    run = shell("fit", f"{tables}/labeled.csv", tmp_path / "log.csv", *CHOSEN, *FAST, "-o", tmp_path / "m.poscod")
    assert run.out.splitlines()[0].endswith(f"'code'. Only in {tmp_path}/log.csv, not used: 'at'.")


def test_logits_alone_and_with_an_embedding_that_is_left_out(shell, tables, tmp_path):
    words = ["--target", "animal", "--logits", "logit_*", *FAST, "-o", tmp_path / "m.poscod"]
    run = shell("fit", f"{tables}/labeled.npz", f"{tables}/unlabeled.npz", *words)
    assert run.code == 0, run.err
    assert "; 2 logits; no classifier is trained." in run.out
    assert (
        "Note: column 'features' (lists of 2 numbers) is not used: --embedding features makes the ratio stronger.\n"
        in run.out
    )
    more = [*words, "--embedding", "features", "--json"]
    run = shell("fit", f"{tables}/labeled.npz", f"{tables}/unlabeled.npz", *more)
    assert not any("--embedding" in note for note in json.loads(run.out)["warnings"])


def test_logits_among_the_features_are_doubted(shell, tmp_path):
    for name in ("labeled", "unlabeled"):
        columns = columns_of(name)
        logits = np.column_stack([columns["logit_cat"], columns["logit_dog"]])
        kept = {k: columns[k] for k in ("width", "animal") if k in columns}
        write_table(tmp_path / f"{name}.npz", {**kept, "Logits": logits})
    words = ["--target", "animal", *FAST, "-o", tmp_path / "m.poscod"]
    run = shell("fit", tmp_path / "labeled.npz", tmp_path / "unlabeled.npz", *words)
    assert run.code == 0, run.err
    assert "; 3 features ('width', 'Logits'), a classifier was trained." in run.out
    assert "Note: column 'Logits' is used as features. A classifier's own outputs? Then --logits Logits.\n" in run.out


def test_old_names_of_options_are_taken_and_not_shown(shell, tables, tmp_path):
    new, old = tmp_path / "new.poscod", tmp_path / "old.poscod"
    files = [f"{tables}/labeled.csv", f"{tables}/unlabeled.csv"]
    chosen = ["--target", "animal", "--features", "größe", "--features", "width"]
    assert shell("fit", *files, *chosen, "--row-id", "row", "--ratio", "paper", "-o", new).code == 0
    assert shell("fit", *files, *chosen, "--id", "row", "--ratio", "linear", "-o", old).code == 0
    assert POSCOD.load(new).schema_ == POSCOD.load(old).schema_
    assert POSCOD.load(new).rule_ == POSCOD.load(old).rule_
    fresh = ["--id", f"{tables}/test.csv", "--json"]
    answers = [shell("evaluate", new, *fresh, word, f"{tables}/log.csv") for word in ("--unlabeled", "--unlabelled")]
    assert answers[0].out == answers[1].out != ""
    monitor = ["monitor", new, f"{tables}/log.csv", "--window", "100", "--json"]
    answers = [shell(*monitor, word, f"{tables}/unlabeled.csv") for word in ("--unlabeled", "--unlabelled")]
    assert answers[0].out == answers[1].out != ""
    for command in ("fit", "evaluate", "report", "monitor"):
        assert "labelled" not in shell(command, "--help").out
    assert "--id" not in shell("fit", "--help").out


def test_a_csv_file_is_parsed_once(shell, tables, tmp_path, monkeypatch):
    from poscod.cli import _arrow

    parsed = []
    opened = _arrow._open_csv
    monkeypatch.setattr(
        _arrow,
        "_open_csv",
        lambda path, names, by: (parsed.append(path.name) if names else None, opened(path, names, by))[1],
    )
    words = [f"{tables}/labeled.csv", f"{tables}/unlabeled.csv", *CHOSEN, *FAST, "-o", tmp_path / "m.poscod"]
    assert shell("fit", *words).code == 0
    assert parsed == ["labeled.csv", "unlabeled.csv"]


def test_folders_of_files(shell, tables, tmp_path):
    """A folder of Parquet files decides as the file does."""
    whole = pq.read_table(f"{tables}/log.parquet")
    (tmp_path / "log").mkdir()
    pq.write_table(whole.slice(0, 70), tmp_path / "log" / "a.parquet")
    pq.write_table(whole.slice(70), tmp_path / "log" / "b.parquet")
    model = tmp_path / "m.poscod"
    assert shell("fit", f"{tables}/labeled.parquet", tmp_path / "log", *CHOSEN, *FAST, "-o", model).code == 0
    for source, out in ((f"{tables}/log.parquet", "one"), (tmp_path / "log", "two")):
        assert shell("predict", model, source, "-o", tmp_path / f"{out}.parquet").code == 0
    assert pq.read_table(tmp_path / "one.parquet").equals(pq.read_table(tmp_path / "two.parquet"))


def test_a_model_of_texts_is_refused(shell, tables, tmp_path):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    from poscod.ratio import CorrectedSigmoid

    words = [f"{word} {i}" for i in range(60) for word in ("good", "bad")]
    model = POSCOD(make_pipeline(TfidfVectorizer(), LogisticRegression()), CorrectedSigmoid("paper", ood_prior=0.3))
    model.fit(words, np.tile([1, 0], 60), X_unlabeled=[f"new {i}" for i in range(60)]).save(tmp_path / "m.poscod")
    run = shell("predict", tmp_path / "m.poscod", f"{tables}/log.csv", "-o", tmp_path / "d.csv")
    assert run.code == 2
    assert "fitted on rows that are not numbers, such as texts: use it in Python" in run.err


def test_version_and_help(shell):
    assert shell("--version").out == f"poscod {poscod.__version__}\n"
    for command in ("demo", "fit", "predict", "evaluate"):
        run = shell(command, "--help")
        assert run.code == 0
        assert "examples:\n  poscod " + command in run.out
        assert "Convention" not in run.out
        assert "SPDX" not in run.out
    assert "poscod demo" in shell("--help").out


def test_a_reader_that_has_gone_is_no_error(model_file, tables):
    command = (
        f"{sys.executable} -m poscod predict {model_file} {tables}/ood.csv -o - | head -1; echo ${{PIPESTATUS[0]}}"
    )
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert run.stdout.splitlines()[-1] == "0"
    assert "error" not in run.stderr


def test_groups_are_a_column_of_one_table_or_both_and_no_feature(shell, tables, tmp_path):
    known, log = columns_of("labeled"), columns_of("unlabeled")
    user = np.arange(480) // 3
    keep = ("größe", "width")
    labeled = write_table(tmp_path / "known.csv", {**{n: known[n] for n in (*keep, "animal")}, "user": user})
    plain = write_table(tmp_path / "log.csv", {n: log[n] for n in keep})
    users = write_table(tmp_path / "users.csv", {**{n: log[n] for n in keep}, "user": 1000 + np.arange(240) // 2})
    for other in (plain, users):
        words = ["fit", labeled, other, "--target", "animal", "-o", tmp_path / "m.poscod", "--json"]
        done = shell(*words, "--group", "user", "--threshold", "guaranteed", "--tpr-min", "0.8")
        assert done.code == 0, done.err
        document = json.loads(done.out)
        assert document["features"] == list(keep)
        assert document["ignored"] == document["ignored_unlabeled"] == []
        held = document["rule"]["promise"]["groups"]
        assert 38 <= held <= 42
        assert document["rule"]["rows"] == 3 * held
        assert f"over {held} held-out groups ({3 * held} rows)" in document["rule"]["sentence"]
        assert shell("predict", tmp_path / "m.poscod", plain, "-o", tmp_path / "d.csv").code == 0
    done = shell(*words, "--group", "nobody")
    assert (done.code, "nobody" in done.err) == (2, True)
    done = shell(*words, "--group", "animal")
    assert (done.code, "holds groups and cannot be the target or an input" in done.err) == (2, True)
    done = shell(*words, "--group", "user", "--engine", "dask")
    assert done.code == 2
    assert "--group needs rows in memory" in done.err or "dask" in done.err
