"""Tables that nobody writes by accident, interruptions at any moment, and what reaches spreadsheets and terminals."""

from __future__ import annotations

import csv
import datetime
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import poscod_command
from poscod import POSCOD
from poscod.cli._columns import MOST_COLUMNS
from poscod.cli._main import COMMANDS
from poscod.cli._tables import open_table
from poscod.exceptions import InvalidInputError
from poscod.model import ModelFileError
from test_backends._onnx_networks import pooled
from test_cli._world import columns_of
from test_cli.test_bench import DIGITS


def table(name: str = "ood") -> dict[str, np.ndarray]:
    return {k: v for k, v in columns_of(name).items() if v.ndim == 1}


def write_arrow(path, columns) -> bytearray:
    with pa.ipc.new_file(path, pa.table(columns).schema) as writer:
        writer.write_table(pa.table(columns))
    return bytearray(path.read_bytes())


def test_an_arrow_file_whose_offsets_lie_is_a_sentence_and_no_crash(model_file, tmp_path):
    """In a process of its own: before, the process died of it."""
    columns = table()
    data = write_arrow(tmp_path / "lie.arrow", columns)
    offsets = np.cumsum([0, *map(len, columns["row"])]).astype("<i4").tobytes()
    struct.pack_into("<i", data, bytes(data).index(offsets) + 4 * 50, 2**31 - 100)
    (tmp_path / "lie.arrow").write_bytes(data)
    words = ["predict", str(model_file), "lie.arrow", "-o", "out.csv"]
    run = subprocess.run([sys.executable, "-m", "poscod", *words], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr.startswith("poscod: error: lie.arrow could not be read as Arrow")
    assert not (tmp_path / "out.csv").exists()


def test_forged_labels_and_names_are_sentences(model_file, tmp_path):
    """A reject label that is an array, and a column whose name is not UTF-8."""
    model = POSCOD.load(model_file)
    model.reject_label = [["a"]]
    model.save(tmp_path / "forged.poscod")
    with pytest.raises(ModelFileError, match="reject label"):
        POSCOD.load(tmp_path / "forged.poscod")
    data = write_arrow(tmp_path / "name.arrow", {"width": np.zeros(2)})
    (tmp_path / "name.arrow").write_bytes(bytes(data).replace(b"width", b"wi\xcath"))
    with pytest.raises(InvalidInputError, match="could not be read as Arrow"):
        open_table(tmp_path / "name.arrow")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".npz", ".npy"])
def test_a_pipe_is_refused_and_not_waited_for(shell, model_file, tmp_path, suffix):
    pipe = tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)
    done = shell("predict", model_file, pipe, "-o", tmp_path / "out.csv")
    assert done.code == 2
    assert "it is a device or pipe; give the name of a file" in done.err
    done = shell("predict", pipe, pipe, "-o", tmp_path / "out.csv")
    assert done.code == 2
    assert os.listdir(tmp_path) == [pipe.name]


def test_long_rows_and_open_quotation_marks_are_explained(shell, model_file, tables, tmp_path):
    lines = (tables / "ood.csv").read_text().splitlines()
    lines[5] = f'"{"x" * 4_000_000}"{lines[5][lines[5].index(",") :]}'
    (tmp_path / "long.csv").write_text("\n".join(lines))
    done = shell("predict", model_file, tmp_path / "long.csv", "-o", tmp_path / "out.csv")
    assert done.code == 2
    assert "holds a row of more than 1,048,576 bytes, or a quotation mark that is never closed" in done.err


def test_too_many_columns_are_refused_at_once(shell, model_file, tmp_path):
    names = [f"c{i}" for i in range(MOST_COLUMNS + 1)]
    (tmp_path / "wide.csv").write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    np.save(tmp_path / "wide.npy", np.zeros((2, MOST_COLUMNS + 1)))
    start = time.process_time()  # a busy machine is not slow code
    for name in ("wide.csv", "wide.npy"):
        done = shell("predict", model_file, tmp_path / name, "-o", tmp_path / "out.csv")
        assert done.code == 2
        assert "must have at most 100,000 columns, got 100,001" in done.err
    assert time.process_time() - start < 20.0


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz", ".arrow"])
def test_times_with_zones_and_durations_are_kept_or_refused_in_a_sentence(shell, model_file, tmp_path, suffix):
    columns = {k: v for k, v in table().items() if k in ("row", "größe", "width")}
    n = len(columns["row"])
    columns["when"] = pa.array([datetime.datetime(2024, 5, 1, 12)] * n, pa.timestamp("us", "Europe/Prague"))
    columns["took"] = pa.array([datetime.timedelta(seconds=90)] * n, pa.duration("s"))
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    done = shell("predict", model_file, tmp_path / "a.parquet", "-o", tmp_path / f"out{suffix}")
    assert (done.code, done.err) == (0, "")
    for words in (["--target", "took"], ["--target", "when"], ["--target", "row", "--features", "took"]):
        done = shell("fit", tmp_path / "a.parquet", tmp_path / f"out{suffix}", *words, "-o", tmp_path / "m.poscod")
        assert done.code == 2
        assert "fault of poscod" not in done.err
    done = shell("monitor", model_file, tmp_path / "a.parquet", "--time", "took")
    assert done.code == 2
    assert "fault of poscod" not in done.err


def test_two_columns_of_one_name_are_one_sentence_on_a_cluster_too(shell, model_file, tmp_path):
    pytest.importorskip("dask.dataframe")
    columns = table()
    arrays = [pa.array(columns[name]) for name in ("row", "größe", "width", "width")]
    pq.write_table(pa.Table.from_arrays(arrays, ["row", "größe", "width", "width"]), tmp_path / "twice.parquet")
    for more in ([], ["--engine", "dask"]):
        done = shell("predict", model_file, tmp_path / "twice.parquet", "-o", tmp_path / "out.parquet", *more)
        assert done.code == 2
        assert "has several columns of the name 'width'" in done.err


# -- what others read --------------------------------------------------------------------------------------------------------


def test_cells_and_names_that_spreadsheets_would_compute_are_texts(shell, model_file, tmp_path):
    columns = {k: v[:7] for k, v in table().items() if k in ("größe", "width")}
    cells = ["=1+1", "+A1", "-2+3", "@SUM(A1)", "-0012", "+4.5e3", "plain"]
    pq.write_table(pa.table({"row": cells, **columns, "=evil": cells, "te\x1b[31mst": cells}), tmp_path / "a.parquet")
    done = shell("predict", model_file, tmp_path / "a.parquet", "-o", tmp_path / "out.csv")
    assert done.code == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        names, *rows = csv.reader(file)
    assert names[:5] == ["row", "größe", "width", "'=evil", "te\\x1b[31mst"]
    assert [row[0] for row in rows] == ["'=1+1", "'+A1", "'-2+3", "'@SUM(A1)", "-0012", "+4.5e3", "plain"]
    assert float(rows[0][1]) == columns["größe"][0]  # numbers stay numbers, with their sign
    done = shell("predict", model_file, tmp_path / "a.parquet", "-o", tmp_path / "out.parquet")
    assert done.code == 0
    assert pq.read_table(tmp_path / "out.parquet")["row"].to_pylist() == cells  # only spreadsheets compute


def test_control_characters_never_reach_a_terminal(shell, model_file, tmp_path):
    hostile = "a\x1b]0;pwned\x07\x9b31m\u202eb"
    pq.write_table(pa.table({hostile: [1.0], "x": [2.0]}), tmp_path / "a.parquet")
    done = shell("predict", model_file, tmp_path / "a.parquet", "-o", tmp_path / "out.csv")
    assert done.code == 2
    assert "a\\x1b]0;pwned\\x07\\x9b31m\\u202eb" in done.err
    assert not set(hostile) & set("\x1b\x07\x9b\u202e") & set(done.err)
    done = shell("predict", "no\x1b[2Jmodel", tmp_path / "a.parquet", "-o", tmp_path / "out.csv", "--json")
    assert "\x1b" not in done.err + done.out
    done = shell("pre\x1bdict")
    assert "\x1b" not in done.err


def test_json_is_the_same_document_without_control_characters(tables, shell, model_file, tmp_path):
    target = tmp_path / "out\x9b.csv"
    done = shell("predict", model_file, tables / "ood.csv", "-o", target, "--json")
    assert done.code == 0
    assert "\x9b" not in done.out
    assert json.loads(done.out)["output"] == str(target)


# -- interruptions -----------------------------------------------------------------------------------------------------------


def test_an_interruption_while_the_package_is_imported_is_a_line(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "poscod.cli", None)

    class Interrupt:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "poscod.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "poscod.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupt, *sys.meta_path])
    assert poscod_command.main() == 130
    assert capsys.readouterr().err == "poscod: error: interrupted; no unfinished file was left.\n"


def test_the_command_is_the_one_that_can_be_interrupted():
    from importlib.metadata import entry_points

    [command] = entry_points(group="console_scripts", name="poscod")
    assert command.value == "poscod_command:main"


def test_kill_9_while_a_file_is_written_leaves_no_draft(tmp_path):
    code = f"""
import os, sys
from pathlib import Path
from poscod._files import replacing
with replacing(Path({str(tmp_path / "a.txt")!r})) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"writing\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert os.listdir(tmp_path) == []


EVERY = {
    "fit": ["fit", "labeled.csv", "unlabeled.csv", "--target", "animal", "--features", "width", "-o", "new.poscod"],
    "predict to csv": ["predict", "model.poscod", "ood.csv", "-o", "new.csv"],
    "predict to npz": ["predict", "model.poscod", "ood.csv", "-o", "new.npz"],
    "predict over a file": ["predict", "model.poscod", "ood.csv", "-o", "old.parquet"],
    "at": ["at", "model.poscod", "--alpha", "0.2", "-o", "new.poscod"],
    "evaluate": ["evaluate", "model.poscod", "--id", "test.csv", "--ood", "ood.csv", "-o", "new.json"],
    "report": ["report", "model.poscod", "--id", "test.csv", "--ood", "ood.csv", "-o", "new.html"],
    "review": ["review", "model.poscod", "log.csv", "-n", "30", "-o", "new.csv"],
    "review for Label Studio": ["review", "model.poscod", "log.csv", "-n", "30", "-o", "tasks.json"],
    "strangers": ["strangers", "model.poscod", "log.csv", "--level", "0.3", "-o", "new.csv"],
    "monitor": ["monitor", "model.poscod", "log.csv", "--time", "when", "--state", "new.json"],
    "export": ["export", "model.poscod", "-o", "new.onnx"],
    "demo": ["demo", "-o", "there"],
    "extract": ["extract", "images", "--model", "pooled.onnx", "-o", "new.npz"],
    "bench": ["bench", "run", "spec.toml", "-o", "there", "--jobs", "1"],
}
DRIVER = """
import json, os, resource, signal, sys
from pathlib import Path
from poscod.cli import main
how = sys.argv[1]
for name, words in json.loads(sys.argv[2]).items():
    child = os.fork()
    if not child:
        if how == "kill":
            os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # all is written, and nothing has a name
        else:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        os._exit(main([*words, "--quiet"]))
    print(json.dumps([name, os.waitpid(child, 0)[1], sorted(str(path) for path in Path().rglob("*") if path.is_file())]), flush=True)
"""


def test_every_command_that_writes_a_file_is_tried():
    assert {words[0] for words in EVERY.values()} == set(COMMANDS) - {
        "serve"
    }  # whose log and state have tests of their own


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "full"])
def test_every_command_killed_or_out_of_space_leaves_the_folder_as_it_was(tables, model_file, tmp_path, how):
    for name in ("labeled.csv", "unlabeled.csv", "test.csv", "ood.csv"):
        shutil.copy(tables / name, tmp_path)
    shutil.copy(model_file, tmp_path / "model.poscod")
    lines = (tables / "log.csv").read_text().splitlines()
    timed = [f"{line},{'when' if i == 0 else f'2024-05-01T{i % 24:02d}:00:00'}" for i, line in enumerate(lines)]
    (tmp_path / "log.csv").write_text("\n".join(timed) + "\n")
    (tmp_path / "old.parquet").write_bytes(b"old")
    (tmp_path / "spec.toml").write_text(DIGITS)
    onnx.save(pooled(), str(tmp_path / "pooled.onnx"))
    for folder in ("there", "images/cat"):
        (tmp_path / folder).mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "images" / "cat" / "0.png")
    before = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    command = [sys.executable, "-W", "ignore", "-c", DRIVER, how, json.dumps(EVERY)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert [name for name, *_ in found] == list(EVERY)
    for name, status, listing in found:
        assert listing == before, name
        assert (os.WTERMSIG(status) if how == "kill" else os.WEXITSTATUS(status)) == (9 if how == "kill" else 2), name
    assert (tmp_path / "old.parquet").read_bytes() == b"old"
    if how == "full":
        *sentences, cells = (line for line in run.stderr.splitlines() if line.startswith("poscod: error"))
        assert sentences == ["poscod: error: the output could not be written: file too large."] * (len(EVERY) - 1)
        assert "6 of 6 cells could not be computed" in cells
        assert "File too large" in cells


def nested(depth: int) -> pa.Array:
    """A list in a list in a list, of two rows."""
    array = pa.array([1.0, 2.0])
    for _ in range(depth):
        array = pa.ListArray.from_arrays(pa.array([0, 1, 2]), array)
    return array


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize(
    "columns",
    [
        {"größe": nested(3), "width": nested(60)},
        {"größe": pa.array([{"a": 1}, {"a": 2}]), "width": pa.array([1.0, 2.0])},
        {"größe": pa.nulls(2), "width": pa.nulls(2)},
        {"größe": pa.array([b"\xff", b""]), "width": pa.array([1.0, 2.0])},
        {"größe": pa.array([[("k", 1.0)], []], pa.map_(pa.string(), pa.float64())), "width": pa.array([1.0, 2.0])},
        {"": pa.array([1.0, 2.0]), "\x00": pa.array([1.0, 2.0]), "größe" * 20_000: pa.array([1.0, 2.0])},
    ],
    ids=["deep", "struct", "null", "bytes", "map", "names"],
)
def test_strange_schemas_are_a_sentence(shell, model_file, tmp_path, suffix, columns):
    table = pa.table(columns).replace_schema_metadata({"pandas": '{"columns": 3', "ARROW:schema": "x" * 100})
    path = tmp_path / f"a{suffix}"
    if suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, path)
    done = shell("predict", model_file, path, "-o", tmp_path / "out.csv")
    assert done.code == 2, done.err
    assert done.err.count("\n") == 1
    assert "fault of poscod" not in done.err
    assert os.listdir(tmp_path) == [path.name]
