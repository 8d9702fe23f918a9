"""Tables go through every format and come back as they were; what cannot be read says so in one sentence."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poscod.cli import _arrow
from poscod.cli._tables import FORMATS, TableWriter, check_output, open_table
from poscod.exceptions import InvalidInputError, MissingExtraError

COLUMNS = {
    "id": np.array(["b,1", 'q"uote', "line\nbreak", "ü"]),
    "größe": np.array([0.1, -2.5e300, 1e-7, 3.0]),
    "n": np.array([3, -1, 2**60, 0]),
    "flag": np.array([True, False, False, True]),
}
LISTS = {"embedding": np.arange(12, dtype=np.float32).reshape(4, 3)}


def write(path, *blocks):
    """Write blocks given one by one, or by one iterator."""
    with TableWriter(path) as file:
        for block in blocks if isinstance(blocks[0], dict) else blocks[0]:
            file.write(block)
    return path


def part(columns, rows):
    return {name: values[rows] for name, values in columns.items()}


@pytest.mark.parametrize(
    "suffix", [name for name in FORMATS if name != ".xlsx"]
)  # which has no whole numbers of 64 bits
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_round_trip_in_blocks(tmp_path, suffix, rows):
    columns = COLUMNS if suffix == ".csv" else {**COLUMNS, **LISTS}
    path = write(tmp_path / f"t{suffix}", part(columns, slice(0, 1)), part(columns, slice(1, 4)))
    table = open_table(path)
    assert list(table.columns) == list(columns)
    assert table.n_rows in (4, None)
    kinds = {name: column.kind for name, column in table.columns.items()}
    assert kinds == {
        "id": "text",
        "größe": "number",
        "n": "number",
        "flag": "bool",
        **({"embedding": "matrix"} if "embedding" in columns else {}),
    }
    blocks = list(table.chunks(rows))
    assert [block.n_rows for block in blocks] == [min(rows, 4 - at) for at in range(0, 4, rows)]
    assert [block.start for block in blocks] == list(range(0, 4, rows))
    for name, values in columns.items():
        whole = table.read([name])[name]
        assert whole.dtype.kind == values.dtype.kind
        assert np.array_equal(whole, values)
        assert np.array_equal(np.concatenate([block[name] for block in blocks]), values)
    assert os.listdir(tmp_path) == [path.name]


@given(data=st.data())
def test_csv_keeps_numbers_to_the_last_bit_and_texts_to_the_letter(tmp_path_factory, data):
    n = data.draw(st.integers(1, 8))
    numbers = np.array(data.draw(st.lists(st.floats(allow_nan=False), min_size=n, max_size=n)))
    alphabet = st.characters(codec="utf-8", exclude_characters="\0")
    texts = np.array(
        data.draw(st.lists(st.text(alphabet, min_size=1, max_size=8), min_size=n, max_size=n)), dtype=object
    )
    texts = np.array(["t" + text for text in texts])
    path = write(tmp_path_factory.mktemp("csv") / "a.csv", {"x": numbers, "t": texts})
    table = open_table(path)
    assert np.array_equal(table.read()["x"].astype(float), numbers)
    assert table.read()["t"].tolist() == texts.tolist()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_are_passed_on_with_their_types(tmp_path, suffix):
    """Dates, small integers with gaps, categories: what a command does not touch leaves as it came."""
    table = pa.table(
        {
            "when": pa.array([0, 86_400_000], pa.timestamp("ms")),
            "small": pa.array([1, None], pa.int16()),
            "category": pa.array(["a", "b"]).dictionary_encode(),
            "gap": pa.array([None, "x"]),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    source = open_table(tmp_path / "in.parquet")
    with TableWriter(tmp_path / f"out{suffix}") as file:
        for block in source.chunks(1):
            file.write(block)
    if suffix == ".parquet":
        assert pq.read_table(tmp_path / "out.parquet").to_pydict() == table.to_pydict()
        assert pq.read_table(tmp_path / "out.parquet").schema.field("small").type == pa.int16()
    else:
        assert (tmp_path / "out.csv").read_text().splitlines()[1] == '1970-01-01 00:00:00.000,1,"a",'
    assert np.isnan(source.read(["small"])["small"][1])
    assert source.columns["when"].kind == "other"
    assert source.read(["category"])["category"].tolist() == ["a", "b"]


def test_the_type_of_a_csv_column_is_decided_by_all_its_cells(tmp_path):
    """The first text stands after more cells than pyarrow looks at."""
    lines = [f"{i},{i},0{i % 10},{i}" for i in range(1_200_000)]
    lines[1_100_000] = "1100000,oops,01,0.5"
    (tmp_path / "a.csv").write_text("good,bad,zip,late\n" + "\n".join(lines) + "\n")
    table = open_table(tmp_path / "a.csv")
    assert {name: column.kind for name, column in table.columns.items()} == {
        "good": "number",
        "bad": "text",
        "zip": "text",
        "late": "number",
    }
    assert "'oops' at row 1100001" in table.columns["bad"].remark
    assert table.columns["zip"].remark == ""
    last = list(table.chunks(1_000_000))[-1]
    assert last["late"][100_000] == 0.5
    assert last["bad"][100_000] == "oops"
    with pytest.raises(
        InvalidInputError, match=r"column 'bad' of .*a\.csv must hold numbers, got 'oops' at row 1100001"
    ):
        last.finite(["good", "bad"])


@pytest.mark.parametrize(
    ("cells", "kind", "dtype"),
    [
        (["1", "2"], "number", "i"),
        (["1", "", "2"], "number", "f"),
        (["1", "NA", "nan"], "number", "f"),
        (["1", "2.5"], "number", "f"),
        (["1e3", "inf"], "number", "f"),
        (["007", "8"], "text", "U"),
        (["12345678901234567890", "1"], "text", "U"),
        (["true", "False"], "bool", "b"),
        (["1", "true"], "text", "U"),
        (["2024-01-01", "2024-01-02"], "text", "U"),
        (["NA", "abc"], "text", "U"),
    ],
)
def test_kinds_of_csv_cells(tmp_path, cells, kind, dtype):
    (tmp_path / "a.csv").write_text("k,x\n" + "".join(f"k,{cell}\n" for cell in cells))
    table = open_table(tmp_path / "a.csv")
    assert table.columns["x"].kind == kind
    values = table.read(["x"])["x"]
    assert values.dtype.kind == dtype
    if dtype == "U":
        assert values.tolist() == cells


def test_csv_rows_longer_than_a_block(tmp_path, monkeypatch):
    """A row must fit into a block of the reader, which follows the width of the file."""
    monkeypatch.setattr(_arrow, "_CSV_BLOCK", 1 << 12)
    row = ",".join(["0.12345678901234567"] * 300)
    assert len(row) > 1 << 12
    (tmp_path / "wide.csv").write_text(",".join(f"c{i}" for i in range(300)) + f"\n{row}\n{row}\n")
    table = open_table(tmp_path / "wide.csv")
    assert table.n_rows == 2
    assert table.read(["c299"])["c299"].tolist() == [0.12345678901234567] * 2


def test_lists_are_matrices_of_their_own_type(tmp_path):
    rows = open_table(write(tmp_path / "a.parquet", {**COLUMNS, **LISTS})).read()
    found = rows.finite(["flag", "embedding"])
    assert list(found) == ["flag", "embedding"]
    assert found["embedding"].dtype == np.float32
    assert np.array_equal(found["embedding"], LISTS["embedding"])
    with pytest.raises(InvalidInputError, match=r"column 'id' of .* must hold numbers, got 'b,1' at row 1"):
        rows.finite(["id"])


@pytest.mark.parametrize(("value", "words"), [(np.nan, "a gap"), (np.inf, "inf")])
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_what_is_not_finite_is_named_by_row_and_column(tmp_path, value, words, suffix):
    x = np.arange(7.0)
    x[5] = value
    table = open_table(write(tmp_path / f"a{suffix}", {"y": np.arange(7.0), "x": x}))
    with pytest.raises(InvalidInputError, match=f"column 'x' of .* must hold finite numbers, got {words} at row 6"):
        [block.finite(["y", "x"]) for block in table.chunks(2)]


@pytest.mark.parametrize("whole", [True, False])
def test_a_csv_file_that_is_read_whole_is_parsed_once(tmp_path, monkeypatch, whole):
    path = write(tmp_path / "a.csv", COLUMNS)
    parsed = []
    opened = _arrow._open_csv
    monkeypatch.setattr(_arrow, "_open_csv", lambda path, names, by: parsed.append(names) or opened(path, names, by))
    table = open_table(path, whole=whole)
    for names in (["n"], ["id", "n"]):
        assert {name: values.tolist() for name, values in table.read(names).items()} == {
            name: COLUMNS[name].tolist() for name in names
        }
    assert [names for names in parsed if names] == [list(COLUMNS), *([] if whole else [["n"], ["id", "n"]])]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
def test_a_folder_of_files_is_one_table(tmp_path, suffix):
    """In the order of their names; a column may hold whole numbers in one file and others in the next."""
    folder = tmp_path / "parts"
    (folder / "b").mkdir(parents=True)
    write(folder / f"a{suffix}", {"x": np.array([1, 2]), "t": np.array(["u", "v"])})
    write(folder / "b" / f"a{suffix}", {"x": np.array([0.5]), "t": np.array(["w"])})
    (folder / "_SUCCESS").write_text("")
    table = open_table(folder)
    assert table.read()["x"].tolist() == [1.0, 2.0, 0.5]
    assert [block["t"].tolist() for block in table.chunks(2)] == [["u", "v"], ["w"]]
    assert [block.start for block in table.chunks(2)] == [0, 2]
    write(folder / "c.feather", {"x": np.zeros(1)})
    with pytest.raises(InvalidInputError, match=r"parts is a folder, and must hold files of one format \(\.csv, "):
        open_table(folder)


def test_npy_is_one_matrix(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(3, 2))
    table = open_table(tmp_path / "a.npy")
    assert list(table.columns) == ["0", "1"]
    assert {name: values.tolist() for name, values in table.read().items()} == {"0": [0, 2, 4], "1": [1, 3, 5]}
    path = write(tmp_path / "b.npy", {"only": np.arange(3.0)}, {"only": np.arange(2.0)})
    assert np.load(path, allow_pickle=False).tolist() == [0, 1, 2, 0, 1]


def test_npz_of_numpy_compressed_or_not(tmp_path):
    arrays = {"features": np.arange(6, dtype=np.float32).reshape(3, 2), "label": np.array([1, 0, 1])}
    np.savez(tmp_path / "a.npz", **arrays)
    np.savez_compressed(tmp_path / "b.npz", **arrays)
    for name in ("a.npz", "b.npz"):
        rows = open_table(tmp_path / name).read()
        assert {key: rows[key].tolist() for key in rows} == {key: value.tolist() for key, value in arrays.items()}
    with np.load(
        write(tmp_path / "c.npz", {"t": np.array(["a"])}, {"t": np.array(["abc"])}), allow_pickle=False
    ) as file:
        assert file["t"].tolist() == ["a", "abc"]


@pytest.mark.parametrize(
    ("extra", "left"),
    [
        ({"weight": np.zeros((4, 2)), "bias": np.zeros(4)}, []),  # the last layer of a network
        ({"weight": np.zeros(3)}, ["weight"]),  # weights of rows
        (
            {"weight": np.zeros((3, 2)), "bias": np.zeros(3)},
            ["weight", "bias"],
        ),  # columns that happen to have these names
    ],
)
def test_the_last_layer_of_a_network_is_no_column(tmp_path, extra, left):
    np.savez(tmp_path / "a.npz", features=np.zeros((3, 2)), logits=np.zeros((3, 4)), **extra)
    assert list(open_table(tmp_path / "a.npz").columns) == ["features", "logits", *left]


def _bad_files(folder):
    ok = pa.table({"a": [1.0, 2.0]})
    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("a,b\n")
    (folder / "twice.csv").write_text("a,a\n1,2\n")
    (folder / "ragged.csv").write_text("a,b\n1,2\n3\n")
    (folder / "latin.csv").write_bytes("a\ngr\xf6sse\n".encode("latin-1"))
    (folder / "empty.parquet").write_bytes(b"")
    (folder / "text.parquet").write_text("a,b\n1,2\n")
    pq.write_table(ok, folder / "cut.parquet")
    (folder / "cut.parquet").write_bytes((folder / "cut.parquet").read_bytes()[:-20])
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), folder / "twice.parquet")
    pq.write_table(ok.slice(0, 0), folder / "none.parquet")
    pyarrow.feather.write_feather(ok, folder / "cut.feather")
    (folder / "cut.feather").write_bytes((folder / "cut.feather").read_bytes()[:-20])
    (folder / "text.npz").write_text("no")
    (folder / "text.npy").write_text("no")
    np.savez(folder / "pickle.npz", a=np.array([{}, []], dtype=object))
    np.save(folder / "pickle.npy", np.array([{}, []], dtype=object))
    np.savez(folder / "lengths.npz", a=np.zeros(3), b=np.zeros(2))
    np.savez(folder / "cube.npz", a=np.zeros((3, 2, 2)))
    np.savez(folder / "nothing.npz")
    np.save(folder / "scalar.npy", 3.0)
    np.save(folder / "cut.npy", np.zeros(100))
    (folder / "cut.npy").write_bytes((folder / "cut.npy").read_bytes()[:-20])
    (folder / "a.xlsx").write_text("x")
    (folder / "a.ods").write_text("x")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty.csv", "could not be read as CSV"),
        ("header.csv", "has no rows"),
        ("twice.csv", "several columns of the name 'a'"),
        ("ragged.csv", "could not be read as CSV"),
        ("latin.csv", "could not be read as CSV"),
        ("empty.parquet", "could not be read as Parquet"),
        ("text.parquet", "could not be read as Parquet"),
        ("cut.parquet", "could not be read as Parquet"),
        ("twice.parquet", "several columns of the name 'a'"),
        ("none.parquet", "has no rows"),
        ("cut.feather", "could not be read as Arrow"),
        ("text.npz", "could not be read as NPZ"),
        ("text.npy", "could not be read as NPY"),
        ("pickle.npz", "could not be read as NPZ"),
        ("pickle.npy", "could not be read as NPY"),
        ("lengths.npz", "must have one length, got 3 rows in 'a' and 2 in 'b'"),
        ("cube.npz", "one or two dimensions"),
        ("nothing.npz", "has no columns"),
        ("scalar.npy", "one or two dimensions"),
        ("cut.npy", "could not be read as NPY"),
        ("a.ods", r"must end in \.csv, \.parquet"),
        ("a.xlsx", r"a\.xlsx could not be read as Excel"),
    ],
)
def test_unreadable_files_are_refused_in_one_sentence(tmp_path, name, words):
    _bad_files(tmp_path)
    with pytest.raises(InvalidInputError, match=words) as caught:
        open_table(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_missing_files_and_columns(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_table(tmp_path / "no.csv")
    table = open_table(write(tmp_path / "a.csv", COLUMNS))
    with pytest.raises(InvalidInputError, match=r"has no column 'x': it has 'id', 'größe', 'n', 'flag'\."):
        table.read(["x"])
    with pytest.raises(InvalidInputError, match="no column that matches 'f_\\*'"):
        table.match("f_*")
    assert table.match("*") == list(COLUMNS)
    assert table.match("[fn]*") == ["n", "flag"]


def test_ragged_lists_are_named_by_row(tmp_path):
    pq.write_table(pa.table({"e": [[1.0, 2.0], [3.0, 4.0], [5.0]]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match="got 2 numbers in row 1 and 1 in row 3"):
        open_table(tmp_path / "a.parquet").read()["e"]
    long = pa.array([[1.0, 2.0]] * 65_536 + [[3.0]])
    pq.write_table(pa.table({"e": long}), tmp_path / "long.parquet")
    with pytest.raises(InvalidInputError, match="got 2 numbers in row 1 and 1 in row 65537"):
        open_table(tmp_path / "long.parquet").read()["e"]
    pq.write_table(pa.table({"e": pa.array([[1.0], None], pa.list_(pa.float64()))}), tmp_path / "b.parquet")
    with pytest.raises(InvalidInputError, match="got none at row 2"):
        open_table(tmp_path / "b.parquet").read()["e"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_error_leaves_the_old_file_and_no_draft(tmp_path, suffix):
    path = write(tmp_path / f"a{suffix}", {"x": np.arange(3.0)})
    before = path.read_bytes()

    def blocks():
        yield {"x": np.arange(2.0)}
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write(path, blocks())
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_what_a_format_cannot_hold(tmp_path):
    with pytest.raises(InvalidInputError, match="column 'e' holds lists, which CSV and Excel cannot"):
        write(tmp_path / "a.csv", {"e": np.zeros((2, 2))})
    with pytest.raises(InvalidInputError, match="column 'e' has gaps or mixed types"):
        write(tmp_path / "a.npz", {"e": np.array(["a", None], dtype=object)})
    with pytest.raises(InvalidInputError, match="column 'e' mixes types"):
        write(tmp_path / "a.parquet", {"e": np.array(["a", 1], dtype=object)})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", [".parquet"])  # CSV and NPZ: through the commands, in test_bad_input.py
def test_a_full_disk_leaves_nothing(tmp_path, suffix):
    """A limit on the size of files stands for the disk: the system call fails in the same place."""
    path = tmp_path / f"a{suffix}"
    code = (
        "import sys, numpy as np; from poscod.cli._tables import TableWriter\n"
        f"with TableWriter({str(path)!r}) as file:\n"
        "    for _ in range(20): file.write({'x': np.random.default_rng(0).normal(size=20_000)})\n"
    )

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    run = subprocess.run([sys.executable, "-c", code], preexec_fn=limit, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("OSError: [Errno 27]")
    assert os.listdir(tmp_path) == []


def test_outputs_are_checked_before_any_work(tmp_path):
    path = write(tmp_path / "a.csv", COLUMNS)
    check_output(None, [path])
    check_output("-", [path])
    check_output(tmp_path / "b.csv", [path])
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link.csv").symlink_to(path)
    with pytest.raises(InvalidInputError, match="is also an input"):
        check_output(tmp_path / "folder" / "link.csv", [path])
    with pytest.raises(InvalidInputError, match="does not exist"):
        check_output(tmp_path / "no" / "b.csv", [path])
    with pytest.raises(InvalidInputError, match="it is a folder"):
        check_output(tmp_path / "folder", [path])


def test_dash_is_csv_on_standard_output(capsysbinary):
    write("-", {"x": np.array([1.5])}, {"x": np.array([2.5])})
    assert capsysbinary.readouterr().out == b'"x"\n1.5\n2.5\n'


def test_without_the_extra_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("x\n1\n")
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[cli\]'"):
        open_table(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a;b;c\n1,5;2;x\n3,25;;y\n", {"a": [1.5, 3.25], "b": [2.0, None], "c": ["x", "y"]}),
        ("a\tb\n1.5\t2\n", {"a": [1.5], "b": [2]}),
        ("a|b\n1.5|2\n", {"a": [1.5], "b": [2]}),
        ('"a;b",c\n1,2\n', {"a;b": [1], "c": [2]}),
        ('a,b\n"x, y",2\n', {"a": ["x, y"], "b": [2]}),
        ("a;b\n1.2.2026;1\n", {"a": ["1.2.2026"], "b": [1]}),
    ],
)
def test_separators_and_decimal_commas_are_found(tmp_path, text, expected):
    (tmp_path / "a.csv").write_text(text)
    for whole in (True, False):
        rows = open_table(tmp_path / "a.csv", whole=whole).read()
        found = {name: [None if value != value else value for value in rows[name].tolist()] for name in rows}
        assert found == expected


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("a;b\n1,234;2\n3,456;4\n", "numbers such as '1,234', thousands or decimals"),
        ('a,b\n"1,234",2\n', "numbers such as '1,234', which are not clear"),
        ("a;b\n1.234,56;1\n", "numbers such as '1.234,56', which are not clear"),
        ("a;b\n1,5;2\n2.5;3\n", "numbers such as '1,5', which are not clear"),
    ],
)
def test_numbers_that_are_not_clear_are_not_guessed(tmp_path, text, remark):
    (tmp_path / "a.csv").write_text(text)
    column = open_table(tmp_path / "a.csv").columns["a"]
    assert (column.kind, column.remark) == ("unclear", remark)


def test_sheets_of_excel(tmp_path):
    """Dates, truth values with gaps, mixed cells, formulas as texts, empty rows at the end; a file that is no sheet is one sentence."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (["a", "on", "mixed", "none"], [1, True, "x", None], [2.5, None, 3, None], [None] * 4):
        sheet.append(row)
    book.save(tmp_path / "a.xlsx")
    table = open_table(tmp_path / "a.xlsx")
    assert table.n_rows == 2
    assert [column.kind for column in table.columns.values()] == ["number", "bool", "text", "number"]
    assert table.read()["mixed"].tolist() == ["x", "3"]
    write(tmp_path / "b.xlsx", {"t": np.array(["=1+1", "x"]), "inf": np.array([np.inf, 1.0])})
    assert open_table(tmp_path / "b.xlsx").read()["t"].tolist() == ["'=1+1", "x"]
    sheet.delete_rows(1, 9)
    book.save(tmp_path / "c.xlsx")
    with pytest.raises(InvalidInputError, match="must have the name of each column in the first row"):
        open_table(tmp_path / "c.xlsx")
