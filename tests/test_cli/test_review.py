"""The loop from the shell: a queue for people, their verdicts back as numbers, and every way to get it wrong in one sentence."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest

from poscod import OOD, POSCOD
from poscod.review import Queue, assess, queue
from test_cli._world import SIZES, columns_of, write_table


def rows_of(name):
    columns = columns_of(name)
    return np.column_stack([columns["größe"], columns["width"]])


def verdict_of(size, width):
    """What a person would say, by looking at the row."""
    return "ood" if width > 2.2 else "dog" if size > 1.5 else "cat"


def read_csv(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def filled(source, target, change=lambda i, row: row):
    """Fill in a queue as a person does in a spreadsheet."""
    rows = read_csv(source)
    for i, row in enumerate(rows):
        row["verdict"] = verdict_of(float(row["größe"]), float(row["width"]))
        change(i, row)
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return target


@pytest.fixture(scope="module")
def drawn(model_file, tables, tmp_path_factory):
    """A queue of 60 rows of the log as CSV, and the same with verdicts."""
    from poscod.cli import main

    folder = tmp_path_factory.mktemp("queue")
    path = folder / "queue.csv"
    assert (
        main(["review", str(model_file), f"{tables}/log.csv", "-n", "60", "--seed", "3", "-o", str(path), "--quiet"])
        == 0
    )
    return path, filled(path, folder / "done.csv")


def python_says(model_file, level=0.95):
    model, log = POSCOD.load(model_file), rows_of("log")
    chosen = queue(model, log, 60, random_state=3)
    said = [verdict_of(*log[i]) for i in chosen.index]
    return chosen, assess(model, log, chosen, [OOD if word == "ood" else word for word in said], level=level)


def test_a_queue_for_people(drawn, model_file):
    rows = read_csv(drawn[0])
    chosen, _ = python_says(model_file)
    assert list(rows[0])[:4] == ["verdict", "why", "decision", "row"]
    assert list(rows[0])[-6:] == ["index", "probability", "stratum", "answer", "accept", "reason"]
    assert {row["verdict"] for row in rows} == {""}
    assert [int(row["index"]) for row in rows] == chosen.index.tolist()
    assert [row["row"] for row in rows] == [f"log-{i}" for i in chosen.index]
    for row in rows:
        start = "answered: " if row["accept"] == "true" else "rejected: "
        assert row["decision"].startswith(start)
        assert row["answer"] in row["decision"]


@pytest.mark.parametrize("form", ["csv", "parquet", "json", "json-min"])
def test_verdicts_become_the_numbers_of_python(shell, drawn, model_file, tables, tmp_path, form):
    if form == "csv":
        reviewed, log = drawn[1], f"{tables}/log.csv"
    else:
        suffix, log = form.partition("-")[0], f"{tables}/log.parquet"
        path = tmp_path / f"queue.{suffix}"
        assert shell("review", model_file, log, "-n", 60, "--seed", 3, "-o", path).code == 0
        reviewed = tmp_path / f"done.{suffix}"
        if form == "parquet":
            import pyarrow.parquet as parquet

            frame = parquet.read_table(path).to_pandas()
            assert len(frame["features"][0]) == 2
            frame["verdict"] = [verdict_of(*pair) for pair in zip(frame["größe"], frame["width"], strict=True)]
            frame.to_parquet(reviewed)
        else:
            tasks = json.loads(path.read_text(encoding="utf-8"))
            assert tasks[0]["predictions"][0]["result"][0]["value"]["choices"] == [tasks[0]["data"]["answer"]]
            reviewed.write_text(json.dumps([exported(task, form) for task in tasks]), encoding="utf-8")
    run = shell("evaluate", model_file, "--reviewed", reviewed, "--unlabeled", log, "--level", 0.9, "--json")
    assert run.code == 0, run.err
    found = json.loads(run.out)["review"]
    truth = python_says(model_file, level=0.9)[1].to_dict()
    assert {name: found[name] for name in truth} == truth


def exported(task, form):
    """A task as Label Studio exports it."""
    word = verdict_of(task["data"]["row"]["größe"], task["data"]["row"]["width"])
    if form == "json-min":
        return {**task["data"], "id": 7, "verdict": word}
    result = {"from_name": "verdict", "to_name": "input", "type": "choices", "value": {"choices": [word]}}
    old = {"was_cancelled": False, "result": [{**result, "value": {"choices": ["cat"]}}]}
    return {
        **task,
        "annotations": [old, {"was_cancelled": False, "result": [result]}, {"was_cancelled": True, "result": []}],
    }


def test_words_for_people(shell, drawn, model_file, tables):
    run = shell("evaluate", model_file, "--reviewed", drawn[1], "--unlabeled", f"{tables}/log.csv")
    lines = run.out.splitlines()
    assert lines[1].startswith("By 60 verdicts on 200 rows of this traffic; 95 % intervals")
    share = python_says(model_file)[1].ood_prior
    ends = f"({100 * share.low:.1f} % to {100 * share.high:.1f} %)"
    assert any(line.startswith("OOD among all inputs (pi)") and line.endswith(ends) for line in lines)
    both = shell(
        "evaluate",
        model_file,
        "--id",
        f"{tables}/test.csv",
        "--reviewed",
        drawn[1],
        "--unlabeled",
        f"{tables}/log.csv",
        "--json",
    )
    assert {"rules", "review"} <= set(json.loads(both.out))


def test_rows_without_a_verdict_widen(shell, drawn, model_file, tables, tmp_path):
    part = filled(drawn[0], tmp_path / "part.csv", lambda i, row: row.update(verdict="") if i < 20 else None)
    widths = {}
    for how in ("worst", "random"):
        words = ["--reviewed", part, "--unlabeled", f"{tables}/log.csv", "--missing", how, "--json"]
        found = json.loads(shell("evaluate", model_file, *words).out)["review"]
        assert (found["reviewed"], found["missing"]) == (40, 20)
        widths[how] = found["ood_prior"]["high"] - found["ood_prior"]["low"]
    assert widths["worst"] > widths["random"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda i, row: row.update(verdict="bird") if i == 4 else None, "must hold a class ('cat', 'dog'), ood, or nothing, got 'bird' at row 5."),
        (lambda i, row: row.update(verdict=""), "holds no verdict"),
        (lambda i, row: row.update(row="log-0") if i == 4 else None, "row 5 of "),
        (lambda i, row: row.update(probability="0.9") if i == 4 else None, "stand for"),
        (lambda i, row: row.update(index="3"), "is not a whole queue"),
        (lambda i, row: row.update(accept="maybe"), "must hold true or false"),
        (lambda i, row: row.pop("stratum"), "has no column 'stratum'"),
        (lambda i, row: row.pop("verdict"), "has no column 'verdict'"),
    ],
)  # fmt: skip
def test_what_is_not_a_reviewed_queue_of_this_log(shell, drawn, model_file, tables, tmp_path, change, words):
    bad = filled(drawn[0], tmp_path / "bad.csv", change)
    run = shell(
        "evaluate", model_file, "--reviewed", bad, "--unlabeled", f"{tables}/log.csv", "-o", tmp_path / "out.json"
    )
    assert run.code == 2
    assert words in run.err
    assert run.err.count("\n") == 1
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["review", "MODEL", "LOG", "-n", "0", "-o", "OUT.csv"], "-n must be a whole number >= 1, got 0."),
        (["review", "MODEL", "LOG", "--audit", "0", "-o", "OUT.csv"], "--audit must"),
        (["review", "MODEL", "LOG", "--row-id", "nobody", "-o", "OUT.csv"], "has no column 'nobody'"),
        (["review", "MODEL", "LOG", "-o", "OUT.npz"], "--output must end in .csv"),
        (["review", "MODEL", "DONE", "-o", "OUT.csv"], "already has the columns 'verdict'"),
        (["review", "MODEL", "LOG", "--from-log", "sqlite:///nowhere.db", "-o", "OUT.csv"], "is not a file"),
        (["evaluate", "MODEL", "--reviewed", "DONE"], "give that log as --unlabeled"),
        (["evaluate", "MODEL", "--reviewed", "DONE", "--unlabeled", "TRAFFIC"], "stand for 200 rows of a log"),
        (["evaluate", "MODEL", "--reviewed", "DONE", "--unlabeled", "LOG", "--missing", "x"], "--missing must be one of"),
        (["evaluate", "MODEL"], "--id is needed"),
        (["report", "MODEL", "--id", "TEST", "--review", "9", "-o", "OUT.md"], "are about rows of --unlabeled"),
        (["report", "MODEL", "--id", "TEST", "--unlabeled", "LOG", "--review", "9", "--reviewed", "DONE", "-o", "OUT.md"], "give one of the two"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(shell, drawn, model_file, tables, tmp_path, words, sentence):
    named = {"MODEL": model_file, "LOG": f"{tables}/log.csv", "TRAFFIC": f"{tables}/unlabeled.csv", "TEST": f"{tables}/test.csv", "DONE": drawn[1]}  # fmt: skip
    run = shell(*(named.get(word, str(tmp_path / word) if word.startswith("OUT") else word) for word in words))
    assert run.code == 2, run.out
    assert sentence in run.err
    assert list(tmp_path.iterdir()) == []


def test_cells_do_not_compute_in_spreadsheets_and_rows_are_found_again(shell, model_file, tmp_path):
    columns = columns_of("log")
    columns["row"] = np.array([f"=1+{i}" for i in range(SIZES["log"])])
    log = write_table(tmp_path / "log.parquet", columns)
    path = tmp_path / "queue.csv"
    run = shell("review", model_file, log, "-n", 40, "-o", path, "--json")
    assert "'features' holds lists" in json.loads(run.out)["warnings"][0]
    assert all(row["row"].startswith("'=1+") for row in read_csv(path))
    assert shell("evaluate", model_file, "--reviewed", filled(path, tmp_path / "d.csv"), "--unlabeled", log).code == 0


def test_a_table_is_a_queue_of_python(drawn, model_file):
    pandas = pytest.importorskip("pandas")
    chosen, _ = python_says(model_file)
    again = Queue.of(pandas.read_csv(drawn[0]))
    assert again.n_rows == SIZES["log"]
    assert again.index.tolist() == chosen.index.tolist()


def test_the_report_shows_what_to_look_at(shell, drawn, model_file, tables, tmp_path):
    words = ["report", model_file, "--id", f"{tables}/test.csv", "--unlabeled", f"{tables}/log.csv", "-o"]
    assert shell(*words, tmp_path / "r.md", "--review", 20).code == 0
    page = (tmp_path / "r.md").read_text(encoding="utf-8").partition("## Look at these")[2]
    assert "No verdicts yet" in page
    assert page.count("| random audit |") >= 5
    assert shell(*words, tmp_path / "r.json", "--reviewed", drawn[1]).code == 0
    found = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["review"]
    assert found["assessment"]["ood_prior"]["estimate"] == pytest.approx(python_says(model_file)[1].ood_prior.estimate)
    assert [row["verdict"] for row in found["queue"]] == [
        verdict_of(*rows_of("log")[row["row"]]) for row in found["queue"]
    ]


def test_the_loop_closes(shell, drawn, tables, tmp_path):
    """A model that was fitted with verdicts has a page on the same log, which says that these verdicts flatter it; contents are in the order of the page."""
    log, model, page = f"{tables}/log.csv", tmp_path / "again.poscod", tmp_path / "r.html"
    columns = ("--target", "animal", "--row-id", "row", "--features", "größe", "--features", "width")
    given = ("--reviewed", drawn[1], "--calibration", 0.5, "-o", model)
    assert shell("fit", f"{tables}/labeled.csv", log, *columns, *given).code == 0
    words = ["--id", f"{tables}/test.csv", "--unlabeled", log, "--reviewed", drawn[1]]
    flatters = "The model was fitted with 60 verdicts: where they are these, the numbers are too good"
    assert flatters in shell("evaluate", model, "--unlabeled", log, "--reviewed", drawn[1]).out
    run = shell("report", model, *words, "-o", page, "--no-explorer-data")
    assert run.code == 0, run.err
    text = page.read_text(encoding="utf-8")
    assert flatters in text
    assert "CorrectedSigmoid, corrected by verdicts" in text
    names = re.findall(r'<a href="#(\w+)">', text[text.index("<nav") : text.index("</nav>")])
    assert {"strangers", "review"} < set(names)
    assert sorted(names, key=lambda name: text.index(f'id="{name}"')) == names


def test_verdicts_of_the_service_become_a_table(shell, model_file, tables, tmp_path):
    from poscod.serve._decision_log import DecisionLog, Entry
    from poscod.serve._sinks import SqlSink
    from poscod.serve._verdicts import VerdictBook
    from test_serve.test_log import decisions

    url = f"sqlite:///{tmp_path}/d.db"
    writer = DecisionLog(SqlSink(url), 100)
    writer.add(Entry(1.7e9, "r", ["log-7", "log-3", "elsewhere"], decisions(3), "hash"))
    writer.close(10.0)
    book = VerdictBook(url)
    book.store({"log-3": ("ood", True), "log-7": ("cat", False), "elsewhere": ("dog", False)})
    book.close()
    run = shell("review", model_file, f"{tables}/log.csv", "--from-log", url, "-o", tmp_path / "reviewed.csv")
    assert "1 other verdicts are about rows that" in run.out
    rows = read_csv(tmp_path / "reviewed.csv")
    assert [(row["verdict"], row["row"]) for row in rows] == [("ood", "log-3"), ("cat", "log-7")]
    assert float(rows[0]["width"]) == pytest.approx(rows_of("log")[3, 1])
    # Of two rows with one name nobody knows which one was looked at.
    lines = (tables / "log.csv").read_text(encoding="utf-8").splitlines()
    twice = tmp_path / "twice.csv"
    twice.write_text("\n".join([*lines, lines[1 + 3]]) + "\n", encoding="utf-8")
    run = shell("review", model_file, twice, "--from-log", url, "-o", tmp_path / "once.csv")
    assert "1 verdicts were left out, because several rows have their name, such as 'log-3'" in run.out
    assert [row["row"] for row in read_csv(tmp_path / "once.csv")] == ["log-7"]
    VerdictBook(empty := f"sqlite:///{tmp_path}/e.db")._prepare()
    run = shell("review", model_file, twice, "--from-log", empty, "-o", tmp_path / "none.csv")
    assert run.code == 2
    assert "the database holds no verdicts yet" in run.err
