"""Whatever is wrong with the input: exit code 2, one sentence, and nothing written."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poscod import POSCOD
from poscod.cli import main
from poscod.cli._main import os_sentence
from test_cli._world import SIZES, columns_of, write_table

FEATURES = ("--features", "größe", "--features", "width")


def table(name, **changes):
    """Columns of a small table without lists; None drops a column."""
    columns = {k: v for k, v in columns_of(name).items() if v.ndim == 1 and not k.startswith("logit")}
    columns.pop("code", None)
    return {k: v for k, v in {**columns, **changes}.items() if v is not None}


def spoiled(name, column, row, value):
    values = columns_of(name)[column].astype(float)
    values[row] = value
    return table(name, **{column: values})


def text_of(path):
    return path.read_text().splitlines()


def _halfway_text(folder):
    lines = text_of(folder / "labeled.csv")
    lines[300] = lines[300].replace(lines[300].split(",")[1], "many")
    (folder / "labeled.csv").write_text("\n".join(lines))


def _duplicate(folder):
    lines = text_of(folder / "labeled.csv")
    lines[0] = lines[0].replace('"width"', '"größe"')
    (folder / "labeled.csv").write_text("\n".join(lines))


def _list_table(folder, lists, name="labeled.parquet", n=40):
    pq.write_table(pa.table({"e": lists, "animal": ["cat", "dog"] * (n // 2)}), folder / name)
    return name


def _cut(path, n):
    path.write_bytes(path.read_bytes()[:-n])


def _write(name, **changes):
    return lambda folder: write_table(folder / f"{name}.csv", table(name, **changes))


def _ragged(folder):
    _list_table(folder, [[1.0, 2.0]] * 39 + [[1.0]])


FIT = ["fit", "labeled.csv", "unlabeled.csv", "--target", "animal", "-o", "new.poscod"]
PREDICT = ["predict", "model.poscod", "ood.csv", "-o", "out.csv"]
AT = ["at", "model.poscod", "-o", "other.poscod"]
EVALUATE = ["evaluate", "model.poscod", "--id", "test.csv"]

# name: (what is done to the folder, the words, what the sentence must say)
BAD = {
    # what is asked
    "no command": (None, [], "COMMAND"),
    "unknown command": (None, ["fitt"], "invalid choice: 'fitt'"),
    "unknown option": (None, [*FIT, "--alhpa", "1"], "--alhpa"),
    "misspelt option": (None, [*FIT, "--alhpa", "1"], r"--alhpa 1 \(did you mean --alpha\?\); see `poscod fit --help`"),
    "option of the model": (
        None,
        [*PREDICT, "--alpha", "0.2"],
        "--alpha is part of the model: `poscod at` changes it.; see `poscod predict --help`",
    ),
    "option of another command": (None, [*PREDICT, "--seed=3"], "--seed is an option of `poscod fit`"),
    "two values after one option": (
        None,
        [*FIT, "--features", "größe", "width"],
        "width .repeat an option for several values: --features A --features B.; see `poscod fit --help`",
    ),
    "at: nothing asked": (None, AT, "nothing is asked for: give --alpha"),
    "at: alpha out of range": (None, [*AT, "--alpha", "2"], r"--alpha must be a number in \[0, 1\], got 2"),
    "at: budget out of range": (None, [*AT, "--budget", "1"], r"--budget must be a number in \[0, 1\), got 1"),
    "at: budget and bound": (None, [*AT, "--budget", "0.1", "--max-error", "0.1"], "not allowed with"),
    "at: bound out of range": (None, [*AT, "--max-error", "2"], "--max-error must be a number in"),
    "at: delta alone": (None, [*AT, "--alpha", "0.2", "--delta", "0.1"], "--delta belongs to --max-error"),
    "at: bound out of reach": (
        None,
        [*AT, "--max-error", "0.0001"],
        "raise --max-error or --delta, use more ID rows",
    ),
    "at: delta out of range": (None, [*AT, "--max-error", "0.1", "--delta", "0"], "--delta must be a number"),
    "at: unknown loss": (None, [*AT, "--loss", "absolut"], "did you mean 'absolute'"),
    "at: output is the model": (None, [*AT[:-1], "model.poscod", "--alpha", "0.1"], "is also an input"),
    "no output": (None, FIT[:-2], "-o/--output"),
    "alpha no number": (None, [*FIT, "--alpha", "much"], "--alpha"),
    "seed below zero": (None, [*FIT, "--seed", "-1"], "--seed: must be a whole number from 0"),
    "seed too large": (None, [*FIT, "--seed", "4294967296"], "--seed: must be a whole number from 0"),
    "alpha out of range": (None, [*FIT, "--alpha", "1.5"], r"--alpha must be a number in \[0, 1\], got 1.5"),
    "tpr_min out of range": (None, [*FIT, "--tpr-min", "0"], r"--tpr-min must be a number in \(0, 1\], got 0.0"),
    "delta out of range": (None, [*FIT, "--delta", "1"], "--delta must be a number"),
    "calibration out of range": (None, [*FIT, "--calibration", "1.0"], "--calibration must be a number"),
    "unknown threshold": (None, [*FIT, "--threshold", "garanteed"], "did you mean 'guaranteed'"),
    "unknown tpr_over": (None, [*FIT, "--tpr-over", "class"], "--tpr-over must be one of .* did you mean 'classes'"),
    "unknown classifier": (None, [*FIT, "--classifier", "net"], "--classifier must be one of 'boosting'"),
    "unknown ratio": (None, [*FIT, "--ratio", "papre"], "did you mean 'paper'"),
    "unknown loss": (None, [*FIT, "--loss", "absolut"], "did you mean 'absolute'"),
    "guarantee by folds": (
        None,
        [*FIT, "--threshold", "guaranteed", "--calibration", "5"],
        "--calibration must be 'auto' or a share",
    ),
    "too few rows for a guarantee": (
        None,
        [*FIT, "--threshold", "guaranteed", "--tpr-min", "0.99"],
        "--tpr-min = 0.99 with probability 0.95 needs at least 299 held-out ID rows, got 12.: .* lower --tpr-min or raise --delta. .*--calibration 0.8",
    ),
    "reject label is a class": (None, [*FIT, "--reject-label", "cat"], "must be none of the classes, got 'cat'"),
    "reject label of another type": (
        _write("labeled", animal=columns_of("labeled")["code"]),
        [*FIT, "--reject-label", "none"],
        "--reject-label must be a whole number, as the classes are, got 'none'",
    ),
    "classes without logits": (None, [*FIT, "--classes", "a,b"], "--classes orders the classes of --logits"),
    "logits and probabilities": (None, [*FIT, "--logits", "a", "--probabilities", "b"], "not allowed with"),
    "logits and a classifier": (
        lambda f: [write_table(f / f"{n}.csv", columns_of(n)) for n in ("labeled", "unlabeled")],
        [*FIT, "--logits", "logit_*", "--classifier", "lda"],
        "choose one",
    ),
    # files
    "missing file": (None, ["fit", "no.csv", *FIT[2:]], "cannot use no.csv: no such file or directory"),
    "folder as a table": (
        lambda f: (f / "d.csv").mkdir(),
        ["fit", "d.csv", *FIT[2:]],
        "d.csv is a folder, and must hold files of one format .* got none",
    ),
    "unknown extension": (
        lambda f: (f / "a.ods").write_text("x"),
        ["fit", "a.ods", *FIT[2:]],
        "must end in .csv, .parquet",
    ),
    "empty file": (lambda f: (f / "labeled.csv").write_text(""), FIT, "could not be read as CSV"),
    "only a header": (lambda f: (f / "unlabeled.csv").write_text("größe,width\n"), FIT, "unlabeled.csv has no rows"),
    "truncated Parquet": (
        lambda f: [write_table(f / "a.parquet", table("labeled")), _cut(f / "a.parquet", 30)],
        ["fit", "a.parquet", *FIT[2:]],
        "a.parquet could not be read as Parquet",
    ),
    "pickle in NPZ": (
        lambda f: np.savez(f / "a.npz", x=np.array([{}], dtype=object)),
        ["fit", "a.npz", *FIT[2:]],
        "a.npz could not be read as NPZ",
    ),
    "pickle in NPY": (
        lambda f: np.save(f / "a.npy", np.array([{}], dtype=object)),
        ["predict", "model.poscod", "a.npy", "-o", "out.csv"],
        "a.npy could not be read as NPY",
    ),
    "labeled twice": (
        None,
        ["fit", "labeled.csv", "labeled.csv", *FIT[3:]],
        "is given as labeled and as unlabeled",
    ),
    "copied labeled rows": (
        lambda f: shutil.copy(f / "labeled.csv", f / "copy.csv"),
        ["fit", "labeled.csv", "copy.csv", *FIT[3:]],
        "the unlabeled table holds exactly the rows of the labeled table",
    ),
    # columns
    "missing target": (None, [*FIT[:4], "species", *FIT[5:]], "has no column 'species'"),
    "misspelt target": (
        None,
        [*FIT[:4], "Anmal", *FIT[5:]],
        "has no column 'Anmal': did you mean 'animal'. It has 'row', 'größe', 'width', 'animal'.",
    ),
    "misspelt id": (None, [*FIT, "--row-id", "rov"], "did you mean 'row'"),
    "misspelt exclude": (None, [*FIT, "--exclude", "widht"], "no column that matches 'widht': did you mean 'width'"),
    "misspelt time": (
        None,
        ["monitor", "model.poscod", "log.csv", "--time", "rows"],
        "has no column 'rows': did you mean 'row'",
    ),
    "swapped tables": (
        None,
        ["fit", "unlabeled.csv", "labeled.csv", *FIT[3:]],
        "unlabeled.csv has no column 'animal', and labeled.csv has it: the labeled table comes first",
    ),
    "table before the model": (
        None,
        ["predict", "ood.csv", "model.poscod", "-o", "out.csv"],
        "ood.csv is a table, not a model: the model file comes first",
    ),
    "thousands or decimals": (
        lambda f: (f / "labeled.csv").write_text("größe;width;animal\n1,500;2,5;cat\n"),
        FIT,
        "labeled.csv is not clear: column 'größe' holds numbers such as '1,500', thousands or decimals",
    ),
    "missing id": (None, [*FIT, "--row-id", "name"], "has no column 'name'"),
    "glob without a match": (None, [*FIT, "--features", "f_*"], "no column that matches 'f_\\*'"),
    "duplicate columns": (_duplicate, FIT, "several columns of the name 'größe'"),
    "target as a feature": (None, [*FIT, "--features", "animal"], "is the target and cannot be an input"),
    "text as a feature": (
        None,
        [*FIT, "--features", "row"],
        "labeled.csv has no columns to use as features. Columns that are not used: 'row' .a name for each row",
    ),
    "text halfway": (_halfway_text, FIT, "numbers, and then 'many' at row 300"),
    "text halfway, chosen": (_halfway_text, [*FIT, *FEATURES], "'many' at row 300"),
    "no numbers at all": (
        _write("labeled", größe=None, width=None),
        FIT,
        "has no columns to use as features. Columns that are not used: 'row'",
    ),
    "column missing in the traffic": (
        _write("unlabeled", width=None),
        FIT,
        "unlabeled.csv lacks the column 'width'",
    ),
    "embedding that is no list": (None, [*FIT, "--embedding", "width"], "must name a column of lists of numbers"),
    "ragged lists": (
        _ragged,
        ["fit", "labeled.parquet", *FIT[2:], "--embedding", "e"],
        "got 2 numbers in row 1 and 1 in row 40",
    ),
    "lists of another length": (
        lambda f: [_list_table(f, [[1.0, 2.0]] * 40), _list_table(f, [[1.0, 2.0, 3.0]] * 40, "log.parquet")],
        ["fit", "labeled.parquet", "log.parquet", *FIT[3:], "--embedding", "e"],
        "log.parquet has 3 features per row in 'e', and the model was fitted on 2",
    ),
    # values
    "NaN": (
        lambda f: write_table(f / "test.csv", spoiled("test", "größe", 17, np.nan)),
        ["predict", "model.poscod", "test.csv", "-o", "out.csv"],
        "column 'größe' of test.csv must hold finite numbers, got a gap at row 18: fill .* in all tables, or leave .* --exclude 'größe'",
    ),
    "several gaps": (
        _write(
            "log", width=np.where(np.arange(SIZES["log"]) % 9 == 4, np.nan, 1.0), größe=np.full(SIZES["log"], np.inf)
        ),
        ["predict", "model.poscod", "log.csv", "-o", "out.csv"],
        "log.csv cannot be read: column 'größe' must hold finite numbers, got inf at row 1; column 'width' must hold finite numbers, got 3 gaps, the first at row 5: fill or drop",
    ),
    "too few rows for the ratio": (
        lambda f: write_table(f / "labeled.csv", {k: v[:18] for k, v in table("labeled").items()}),
        FIT,
        "the labeled rows that the ratio sees and the unlabeled table must have at least 20 rows each .*, got 18 and 240: add rows, or use --ratio='paper'",
    ),
    "infinity": (
        lambda f: write_table(f / "unlabeled.csv", spoiled("unlabeled", "width", 3, np.inf)),
        FIT,
        "inf at row 4",
    ),
    "one class": (
        _write("labeled", animal=np.repeat("cat", SIZES["labeled"])),
        FIT,
        "column of --target must hold at least two classes, got one",
    ),
    "numbers as classes": (
        _write("labeled", animal=columns_of("labeled")["größe"]),
        [*FIT, *FEATURES],
        "must hold classes",
    ),
    "gap among the classes": (
        _write("labeled", animal=np.where(np.arange(SIZES["labeled"]) == 5, "", columns_of("labeled")["animal"])),
        FIT,
        "a gap at row 6",
    ),
    "marked and given": (
        _write("labeled", animal=np.where(np.arange(SIZES["labeled"]) < 9, -1, columns_of("labeled")["code"])),
        [*FIT, "--reject-label", "-2"],
        "column of --target marks 9 rows as unlabeled .-1. and the unlabeled table is given, too",
    ),
    "too few rows": (
        lambda f: write_table(f / "labeled.csv", {k: v[:6] for k, v in table("labeled").items()}),
        FIT,
        "rows",
    ),
    "no probabilities": (
        _write("labeled", p_cat=np.full(SIZES["labeled"], 0.5), p_dog=np.full(SIZES["labeled"], 0.7)),
        [*FIT, "--probabilities", "p_*"],
        "sum to 1 in every row, got a sum of 1.2",
    ),
    "one column of logits": (None, [*FIT, "--logits", "width"], "a classifier has at least two"),
    "class without a logit": (
        lambda f: [
            write_table(f / "labeled.csv", {**columns_of("labeled"), "animal": np.repeat("cow", SIZES["labeled"])}),
            write_table(f / "unlabeled.csv", columns_of("unlabeled")),
        ],
        [*FIT, "--logits", "logit_*"],
        "must hold one of the classes 'cat', 'dog', got 'cow' at row 1",
    ),
    "loss of another size": (
        lambda f: (f / "loss.csv").write_text("cat,dog,cow\n0,1,1\n1,0,1\n1,1,0\n"),
        [*FIT, "--loss", "loss.csv"],
        "must have one column of numbers per class",
    ),
    "loss with too few rows": (
        lambda f: (f / "loss.csv").write_text("cat,dog\n0,1\n"),
        [*FIT, "--loss", "loss.csv"],
        "must have one row per class",
    ),
    "loss that rewards errors": (
        lambda f: (f / "loss.csv").write_text("cat,dog\n0,-1\n1,0\n"),
        [*FIT, "--loss", "loss.csv"],
        "loss must be non-negative",
    ),
    # outputs
    "folder that is not there": (None, [*FIT[:-1], "no/new.poscod"], "the folder no does not exist"),
    "file as a folder": (None, [*FIT[:-1], "ood.csv/new.poscod"], "the folder ood.csv does not exist"),
    "output is a folder": (lambda f: (f / "d").mkdir(), [*FIT[:-1], "d"], "it is a folder"),
    "output is an input": (None, [*FIT[:-1], "labeled.csv"], "is also an input"),
    "output is the model": (None, ["predict", "model.poscod", "ood.csv", "-o", "model.poscod"], "is also an input"),
    "output of another kind": (None, [*PREDICT[:-1], "out.txt"], "must end in .csv, .parquet"),
    "lists into CSV": (
        lambda f: write_table(f / "ood.parquet", columns_of("ood")),
        ["predict", "model.poscod", "ood.parquet", "-o", "out.csv"],
        "column 'features' holds lists, which CSV and Excel cannot",
    ),
    # models
    "missing model": (None, ["predict", "no.poscod", *PREDICT[2:]], "cannot use no.poscod: no such file"),
    "no model": (lambda f: (f / "model.poscod").write_text("hello"), PREDICT, "is not a poscod model"),
    "truncated model": (lambda f: _cut(f / "model.poscod", 50_000), PREDICT, "truncated or damaged"),
    "column missing in new rows": (
        _write("ood", width=None, Width=columns_of("ood")["width"]),
        PREDICT,
        r"lacks the column 'width' that the model reads \(is it 'Width' there\?\); it has 'Width', which the model does not use",
    ),
    "text in new rows": (
        _write("ood", width=np.repeat("wide", SIZES["ood"])),
        PREDICT,
        "column 'width' of ood.csv must hold numbers, got 'wide' at row 1",
    ),
    "NaN in the last block": (
        lambda f: write_table(f / "ood.csv", spoiled("ood", "width", 99, np.nan)),
        PREDICT,
        "a gap at row 100",
    ),
    "a model that was never fitted": (
        lambda folder: POSCOD().save(folder / "model.poscod"),
        PREDICT,
        "model.poscod holds a model that was never fitted: make one with `poscod fit`",
    ),
    "columns that would stand twice": (
        _write("ood", label=np.zeros(SIZES["ood"])),
        PREDICT,
        "already has the column 'label'",
    ),
}


@pytest.fixture
def folder(tables, model_file, tmp_path, monkeypatch):
    """A folder of good files, to be spoiled."""
    for name in SIZES:
        write_table(tmp_path / f"{name}.csv", table(name))
    shutil.copy(model_file, tmp_path / "model.poscod")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def listing(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_there_are_many_kinds_of_bad_input():
    assert len(BAD) >= 60


@pytest.mark.parametrize("case", BAD)
def test_exit_code_two_one_sentence_nothing_written(case, shell, folder, monkeypatch):
    from poscod.cli import _predict

    monkeypatch.setattr(_predict, "BLOCK", 30)
    spoil, words, sentence = BAD[case]
    if spoil is not None:
        spoil(folder)
    before = listing(folder)
    run = shell(*words)
    assert run.code == 2, run.err
    assert run.err.startswith("poscod: error: ")
    assert run.err.count("\n") == 1
    assert run.err.endswith("\n")
    assert re.search(sentence, run.err), run.err
    assert run.out == ""
    assert listing(folder) == before


def test_the_good_files_are_good(shell, folder):
    """Otherwise the cases above would fail for reasons of their own."""
    assert shell(*FIT).code == 0
    assert shell(*PREDICT).code == 0


def test_missing_extra(shell, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    run = shell(*PREDICT)
    assert run.code == 2
    assert "`pip install '.[cli]'`" in run.err


REPORT = ["report", "model.poscod", "--id", "test.csv", "-o", "out.html", "--quiet"]


@pytest.mark.parametrize(
    "words", [FIT, PREDICT, [*PREDICT[:-1], "out.npz"], REPORT], ids=["fit", "csv", "npz", "report"]
)
def test_a_full_disk(folder, words):
    """A limit on the size of files stands for the disk: writing fails in the middle."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))

    before = listing(folder)
    run = subprocess.run([sys.executable, "-m", "poscod", *words], preexec_fn=limit, capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr == "poscod: error: the output could not be written: file too large.\n"
    assert listing(folder) == before


def test_a_full_device_behind_standard_output(folder):
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "poscod", "predict", "model.poscod", "ood.csv", "-o", "-"]
        run = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 2
    assert run.stderr == "poscod: error: the output could not be written: no space left on device.\n"


def test_debug_shows_the_traceback_before_or_after_the_command(shell, folder):
    for words in (["--debug", *PREDICT[:-1], "no/out.csv"], [*PREDICT[:-1], "no/out.csv", "--debug"]):
        run = shell(*words)
        assert run.code == 2
        assert "Traceback" in run.err
        assert run.err.splitlines()[-1].startswith("poscod: error: ")


def test_a_fault_of_ours_has_a_code_of_its_own(shell, folder, monkeypatch):
    from poscod.cli import _predict

    def fail(args):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(_predict, "run", fail)
    run = shell(*PREDICT)
    assert run.code == 1
    assert run.err == "poscod: error: ZeroDivisionError: division by zero (a fault of poscod; --debug shows where)\n"


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (MemoryError(), 2)])
def test_interrupts_and_memory(shell, folder, monkeypatch, error, code):
    from poscod.cli import _predict

    def fail(args):
        raise error

    monkeypatch.setattr(_predict, "run", fail)
    run = shell(*PREDICT)
    assert run.code == code
    assert run.err.count("\n") == 1


def test_words_of_the_system():
    assert os_sentence(PermissionError(13, "Permission denied", "/x/.model.poscod.0123456789ab.tmp")) == (
        "cannot use /x/model.poscod: permission denied."
    )
    assert os_sentence(OSError("strange")) == "strange"


def test_an_unwritable_folder(shell, folder, monkeypatch):
    """Tests may run as root, who may write anywhere: the system's answer is replaced."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    run = shell(*PREDICT)
    assert run.code == 2
    assert "may not be written to" in run.err


def test_main_takes_the_words_of_the_process(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["poscod", "--version"])
    with pytest.raises(SystemExit) as leave:
        main()
    assert leave.value.code == 0
    assert capsys.readouterr().out.startswith("poscod ")
