"""`poscod monitor`: rows and decisions give the same answer, states are continued once, findings set the exit code."""

from __future__ import annotations

import json

import numpy as np
import pytest

from poscod import POSCOD
from poscod.cli._tables import TableWriter
from poscod.metrics import binomial_interval
from poscod.monitor import Monitor, Reference
from test_cli._world import NAMES, WORLD

DAYS = 12


def log_columns(pi_late=0.5, *, labels=False, seed=0):
    """A dozen days of traffic in no order; OOD comes on the seventh."""
    parts, labeled = [], []
    for day in range(DAYS):
        pi = 0.02 if day < 6 else pi_late
        X, ood = WORLD.sample_mixture(150, pi, random_state=seed + day)
        parts.append(X)
        truth = np.where(ood, "ufo", NAMES[WORLD.posterior(X).argmax(axis=1)])
        labeled.append(np.where(np.arange(150) % 3 == 0, truth, ""))
    at = np.repeat(np.datetime64("2026-03-01T06:00:00", "s") + np.arange(DAYS) * np.timedelta64(1, "D"), 150)
    order = np.random.default_rng(0).permutation(len(at))
    X = np.concatenate(parts)[order]
    columns = {"at": np.datetime_as_string(at[order]), "größe": X[:, 0], "width": X[:, 1]}
    return {**columns, "truth": np.concatenate(labeled)[order]} if labels else columns


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.csv"
    with TableWriter(path) as file:
        file.write(log_columns(labels=True))
    return path


@pytest.fixture(scope="module")
def reference_file(model_file, tables, tmp_path_factory):
    """A reference made from clean OOD rows."""
    from poscod.cli import main

    folder = tmp_path_factory.mktemp("reference")
    log = folder / "short.csv"
    with TableWriter(log) as file:
        file.write({name: values[:50] for name, values in log_columns().items()})
    words = ["--ood", f"{tables}/ood.csv", "--save-reference", f"{folder}/r.json", "--calibrated", "2026-02-01"]
    assert main(["monitor", str(model_file), str(log), "--time", "at", *words, "--quiet"]) == 0
    return folder / "r.json"


def test_it_says_what_the_library_says(shell, model_file, log, reference_file):
    done = shell(
        "monitor", model_file, log, "--time", "at", "--reference", reference_file, "--ood-limit", "0.08", "--json"
    )
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    model = POSCOD.load(model_file)
    columns = log_columns()
    monitor = Monitor(Reference.from_dict(json.loads(reference_file.read_text())), ood_limit=0.08)
    monitor.update(model.decide(np.column_stack([columns["größe"], columns["width"]])), at=columns["at"])
    assert answer["windows"] == json.loads(json.dumps(monitor.summary()["windows"]))
    assert [f["code"] for f in answer["findings"]] == [f.code for f in monitor.findings()]
    assert answer["findings"][0]["code"] == "PSC001"
    assert answer["findings"][0]["evidence"]["since"][:10] == "2026-03-07"


def test_decisions_and_rows_are_the_same_log(shell, model_file, log, reference_file, tmp_path):
    answers = []
    for name, prefix in (("a.csv", ""), ("a.parquet", "p_")):
        words = [] if not prefix else ["--prefix", prefix]
        assert shell("predict", model_file, log, "-o", tmp_path / name, "--quiet", *words).code == 0
        done = shell(
            "monitor", model_file, tmp_path / name, "--time", "at", "--reference", reference_file, "--json", *words
        )
        assert done.code == 0, done.err
        answers.append(json.loads(done.out))
    done = shell("monitor", model_file, log, "--time", "at", "--reference", reference_file, "--json")
    assert answers[0] == answers[1] == json.loads(done.out)


def test_words_and_reports(shell, model_file, log, tables, tmp_path):
    for suffix in ("html", "md", "json"):
        done = shell(
            "monitor",
            model_file,
            log,
            "--time",
            "at",
            "--unlabeled",
            f"{tables}/unlabeled.csv",
            "-o",
            tmp_path / f"r.{suffix}",
        )
        assert done.code == 0, done.err
        assert (tmp_path / f"r.{suffix}").stat().st_size > 500
    assert "1,800 decisions in 12 windows of 1d." in done.out
    assert "PSC001 error: Since 2026-03-0" in done.out
    assert "docs/monitoring.md#psc001" in done.out
    assert "Class mix of the ID inputs, served and in the last window:" in done.out
    bad = shell("monitor", model_file, log, "--time", "at", "-o", tmp_path / "r.pdf")
    assert bad.code == 2
    assert ".html" in bad.err


def test_a_state_is_continued_and_a_log_is_added_once(shell, model_file, log, reference_file, tmp_path):
    state, half, rest = (tmp_path / name for name in ("s.json", "half.csv", "rest.csv"))
    columns = log_columns(labels=True)
    for path, part in ((half, slice(0, 700)), (rest, slice(700, None))):
        with TableWriter(path) as file:
            file.write({name: values[part] for name, values in columns.items()})
    words = ["--time", "at", "--state", state, "--json"]
    first = shell("monitor", model_file, half, *words, "--reference", reference_file, "--ood-limit", "0.08")
    second = shell("monitor", model_file, rest, *words)
    whole = shell(
        "monitor", model_file, log, "--time", "at", "--reference", reference_file, "--ood-limit", "0.08", "--json"
    )
    assert (first.code, second.code) == (0, 0), second.err
    assert json.loads(second.out)["windows"] == json.loads(whole.out)["windows"]
    assert json.loads(second.out)["parameters"]["ood_limit"] == 0.08
    before = state.read_bytes()
    again = shell("monitor", model_file, rest, *words)
    assert again.code == 2
    assert "added once" in again.err
    other = shell("monitor", model_file, log, *words, "--window", "1h")
    assert other.code == 2
    assert "--window 1d" in other.err
    assert state.read_bytes() == before


def test_exit_codes_are_for_cron(shell, model_file, log, reference_file):
    words = ["monitor", model_file, log, "--time", "at", "--reference", reference_file, "--quiet"]
    assert shell(*words).code == 0
    assert shell(*words, "--fail-on", "error").code == 3
    assert shell(*words, "--fail-on", "error", "--ood-limit", "0.9").code == 0
    assert shell(*words, "--fail-on", "warning", "--ood-limit", "0.9").code == 3  # few calibration rows


def test_verdicts_are_labels_that_are_read_strictly(shell, model_file, log, reference_file, tmp_path):
    """What people said of a random part of the rows: the OOD share of each window, exactly."""
    columns = log_columns(labels=True)
    columns["said"] = np.where(columns.pop("truth") == "ufo", "OOD", log_columns(labels=True)["truth"])
    path = tmp_path / "said.csv"
    with TableWriter(path) as file:
        file.write(columns)
    words = ["--time", "at", "--reference", reference_file]
    found, labels = (
        json.loads(shell("monitor", model_file, table, *words, option, column, "--json").out)
        for table, option, column in ((path, "--verdict", "said"), (log, "--label", "truth"))
    )
    assert found["windows"] == labels["windows"]
    for day, window in enumerate(found["windows"]):
        assert window["labeled"] == 50
        ood = WORLD.sample_mixture(150, 0.02 if day < 6 else 0.5, random_state=day)[1][::3]
        assert window["pi_labeled"] == binomial_interval(int(ood.sum()), 50)._asdict()
    done = shell("monitor", model_file, path, *words, "--verdict", "said", "-o", tmp_path / "page.md")
    assert "by labels" in done.out
    assert "by labels" in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_labels_that_have_arrived_are_judged(shell, model_file, log, reference_file, tmp_path):
    state = tmp_path / "s.json"
    done = shell(
        "monitor", model_file, log, "--time", "at", "--reference", reference_file, "--label", "truth", "--state", state
    )
    assert done.code == 0, done.err
    windows = json.loads(state.read_text())["state"]["windows"].values()
    labeled = np.sum([w["labeled"] for w in windows], axis=0)
    truth = log_columns(labels=True)["truth"]
    assert labeled.sum() == np.sum(truth != "")
    assert labeled[2:].sum() == np.sum(truth == "ufo")


def test_rows_instead_of_times(shell, model_file, log):
    done = shell("monitor", model_file, log, "--window", "500", "--json")
    assert [w["n"] for w in json.loads(done.out)["windows"]] == [500, 500, 500, 300]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "--time must name"),
        (("--time", "when"), "no column 'when'"),
        (("--time", "truth"), "the column of --time must hold dates"),
        (("--time", "at", "--window", "1y"), "15min"),
        (("--window", "1d"), "needs times"),
        (("--time", "at", "--ood-limit", "2"), "--ood-limit must be"),
        (("--time", "at", "--reference", "missing.json"), "missing.json"),
        (("--time", "at", "--calibrated", "soon"), "2026-01-31"),
        (("--window", "100", "--label", "truth"), "--label needs --time"),
        (("--window", "100", "--verdict", "truth"), "--verdict needs --time"),
        (("--time", "at", "--verdict", "truth", "--label", "truth"), "give one of the two"),
        (
            ("--time", "at", "--verdict", "truth"),
            "must hold a class ('cat', 'dog'), ood, or nothing, got 'ufo' at row ",
        ),
    ],
)
def test_bad_input_is_one_sentence(shell, model_file, log, words, sentence):
    done = shell("monitor", model_file, log, *words)
    assert done.code == 2
    assert sentence in done.err
    assert done.err.count("\n") == 1


def test_files_that_are_no_state_or_reference(shell, model_file, log, reference_file, tmp_path):
    for text in ("[]", "{", '{"schema": 3}', '{"state": {}, "reference": {}}'):
        wrong = tmp_path / "w.json"
        wrong.write_text(text)
        for option in ("--state", "--reference"):
            done = shell("monitor", model_file, log, "--time", "at", option, wrong)
            assert done.code == 2, (text, option)
            assert done.err.count("\n") == 1
        assert wrong.read_text() == text


def test_names_of_an_outside_classifiers_classes_are_known(shell, tables, tmp_path):
    """The model knows codes, the decisions name classes: both must be counted in the same cells."""
    model, log, decided = (tmp_path / name for name in ("m.poscod", "log.csv", "d.csv"))
    words = [
        "--target",
        "animal",
        "--logits",
        "logit_*",
        "--features",
        "width",
        "--tpr-min",
        "0.9",
        "-o",
        model,
        "--quiet",
    ]
    assert shell("fit", f"{tables}/labeled.csv", f"{tables}/unlabeled.csv", *words).code == 0
    columns = log_columns(labels=True)
    columns["logit_cat"] = 3.0 * (1.5 - columns["größe"])
    with TableWriter(log) as file:
        file.write({**columns, "logit_dog": -columns["logit_cat"]})
    assert shell("predict", model, log, "-o", decided, "--quiet").code == 0
    answers = [
        json.loads(shell("monitor", model, path, "--time", "at", "--label", "truth", "--json").out)
        for path in (log, decided)
    ]
    assert answers[0] == answers[1]
    assert "PSC010" not in {f["code"] for f in answers[0]["findings"]}


def test_a_report_that_fails_leaves_the_log_uncounted(shell, model_file, log, reference_file, tmp_path, monkeypatch):
    state, report = tmp_path / "s.json", tmp_path / "r.html"
    words = ["monitor", model_file, log, "--time", "at", "--state", state, "-o", report, "--quiet"]

    def fail(*args, **kwargs):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("poscod.cli._monitor.write", fail)
        assert shell(*words, "--reference", reference_file).code != 0
    assert not state.exists()
    assert shell(*words, "--reference", reference_file).code == 0
    assert report.exists()


@pytest.mark.parametrize("options", [("--state", "-o"), ("--state", "--save-reference"), ("-o", "--save-reference")])
def test_outputs_must_be_different_files(shell, model_file, log, tmp_path, options):
    (tmp_path / "x").mkdir()
    target, same = tmp_path / "s.json", tmp_path / "x" / ".." / "s.json"
    done = shell("monitor", model_file, log, "--time", "at", options[0], target, options[1], same)
    assert done.code == 2
    assert "must be different files" in done.err
    assert not target.exists()


def test_a_state_keeps_its_reference(shell, model_file, log, reference_file, tables, tmp_path):
    state = tmp_path / "s.json"
    words = ["monitor", model_file, log, "--time", "at", "--state", state, "--quiet"]
    assert shell(*words, "--reference", reference_file).code == 0
    before = state.read_bytes()
    for option, value in (
        ("--reference", reference_file),
        ("--ood", f"{tables}/ood.csv"),
        ("--unlabeled", f"{tables}/unlabeled.csv"),
        ("--calibrated", "2026-01-01"),
    ):
        done = shell(*words, option, value)
        assert done.code == 2
        assert f"reference of its own, got {option}" in done.err
    assert state.read_bytes() == before


@pytest.mark.parametrize("wrong", ["soon", "9999-12-31T00:00:00"])
def test_bad_times_are_named_by_their_row_in_the_file(shell, model_file, tmp_path, monkeypatch, wrong):
    monkeypatch.setattr("poscod.cli._monitor.BLOCK", 100)
    columns = log_columns()
    columns["at"] = columns["at"].astype(object)
    columns["at"][249] = wrong
    with TableWriter(tmp_path / "log.csv") as file:
        file.write(columns)
    done = shell("monitor", model_file, tmp_path / "log.csv", "--time", "at", "--state", tmp_path / "s.json")
    assert done.code == 2
    assert "at row 250" in done.err
    assert not (tmp_path / "s.json").exists()


def test_one_row_of_a_session_counts(shell, model_file, reference_file, tmp_path):
    columns = log_columns()
    at = columns["at"]
    path = tmp_path / "sessions.csv"
    with TableWriter(path) as file:
        file.write(
            {
                **{name: np.repeat(values, 3) for name, values in columns.items()},
                "session": np.repeat(np.arange(len(at)), 3),
            }
        )
    words = ["monitor", model_file, path, "--time", "at", "--reference", reference_file, "--json"]
    document = json.loads(shell(*words, "--group", "session").out)
    assert document["totals"]["decisions"] == len(at)
    assert {window["n"] for window in document["windows"]} == {150}
    assert json.loads(shell(*words).out)["totals"]["decisions"] == 3 * len(at)
    assert "'nobody'" in shell(*words, "--group", "nobody").err


def test_what_the_ood_inputs_of_a_log_are(shell, model_file, reference_file, tmp_path):
    """Groups of the rows of this log, as `poscod strangers` finds them, on the page, in Markdown and in the shell; decisions alone have none."""
    log = tmp_path / "log.csv"
    with TableWriter(log) as file:
        file.write(log_columns(labels=True, seed=100))
    words = ["--time", "at", "--reference", reference_file, "--groups"]
    run = shell("monitor", model_file, log, *words, "-o", tmp_path / "page.html", "--json")
    assert run.code == 0, run.err
    section = json.loads(run.out)["strangers"]
    listed = shell("strangers", model_file, log, "--groups", tmp_path / "g.csv", "--time", "at", "--json")
    assert listed.code == 0, listed.err
    groups = json.loads(listed.out)["groups"]
    assert [group["rate"] for group in section["groups"]] == [group["rate"] for group in groups]
    group = section["groups"][0]
    assert group["period"] == "week"
    assert [example["row"] for example in group["examples"]] == groups[0]["index"][:3]
    assert set(group["examples"][0]["cells"]) == {"at", "größe", "width", "truth"}
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "inputs like these, " in page
    assert "--groups</code> says what the OOD inputs" not in page
    run = shell("monitor", model_file, log, *words, "-o", tmp_path / "page.md")
    often = f"{group['rate']['estimate']:,.0f} a week: a new class?"
    assert often in run.out
    assert often in (tmp_path / "page.md").read_text(encoding="utf-8")
    shell("predict", model_file, log, "--only-decisions", "-o", tmp_path / "decided.csv")
    run = shell(
        "monitor", model_file, tmp_path / "decided.csv", "--window", "100", "--reference", reference_file, "--groups"
    )
    assert run.code == 2
    assert "größe" in run.err
