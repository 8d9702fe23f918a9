"""Memory does not grow with the file: blocks are read, decided and written one after the other."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poscod.cli import _arrow
from poscod.cli._tables import TableWriter, open_table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.predict_memory import LIMIT_MB, PREDICT, fit_model, peak_of, write_table


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz", ".arrow"])
def test_blocks_are_copied_one_after_the_other(tmp_path, suffix, monkeypatch):
    """Arrow and Python together never hold the table, which lies in one row group."""
    monkeypatch.setattr(
        _arrow, "_CSV_BLOCK", 1 << 18
    )  # pyarrow reads some blocks ahead: 4 MB each are too large for this file
    n = 400_000
    columns = {f"f{i}": np.random.default_rng(i).normal(size=n) for i in range(4)}
    size = 4 * n * 8
    if suffix == ".parquet":
        pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=n, use_dictionary=False)
    else:
        with TableWriter(tmp_path / f"a{suffix}") as file:
            for start in range(0, n, 50_000):
                file.write({name: values[start : start + 50_000] for name, values in columns.items()})
    del columns
    table = open_table(tmp_path / f"a{suffix}")
    before = pa.total_allocated_bytes()
    arrow, rows = 0, 0
    tracemalloc.start()
    with TableWriter(tmp_path / f"b{suffix}") as file:
        for block in table.chunks(10_000):
            arrow = max(arrow, pa.total_allocated_bytes() - before)
            rows += block.n_rows
            file.write(block)
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == n
    assert arrow + python < 0.95 * size  # of which CSV takes most: how many blocks it reads ahead is a matter of time
    assert open_table(tmp_path / f"b{suffix}").read(["f3"])["f3"][-1] == np.random.default_rng(3).normal(size=n)[-1]


@pytest.mark.slow
def test_a_million_rows_within_a_gigabyte(tmp_path):
    """With the ratio of the paper; the default one takes some minutes, and `python -m benchmarks predict_memory` measures it."""
    model = fit_model(tmp_path, "paper")
    write_table(tmp_path / "new.parquet", 1_000_000)
    peak, _ = peak_of(PREDICT, [str(model), str(tmp_path / "new.parquet"), "-o", str(tmp_path / "out.parquet")])
    assert peak < LIMIT_MB
