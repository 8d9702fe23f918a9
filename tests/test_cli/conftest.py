"""The small tables in every format, a model fitted on them once, and a way to run commands."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest

from poscod.cli import main
from test_cli._world import SIZES, columns_of, write_table


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """Folder with every table in every format."""
    folder = tmp_path_factory.mktemp("tables")
    for table in SIZES:
        for suffix in (".csv", ".parquet", ".npz"):
            write_table(folder / f"{table}{suffix}", columns_of(table))
    return folder


@pytest.fixture(scope="session")
def model_file(tables, tmp_path_factory):
    """A model fitted by the command, on two columns."""
    path = tmp_path_factory.mktemp("model") / "model.poscod"
    words = ["--target", "animal", "--row-id", "row", "--features", "größe", "--features", "width", "--tpr-min", "0.9"]
    words += ["--calibration", "0.5"]  # `poscod at --max-error` needs rows that nothing was fitted on
    assert main(["fit", f"{tables}/labeled.csv", f"{tables}/unlabeled.csv", *words, "-o", str(path), "--quiet"]) == 0
    return path


@pytest.fixture
def shell(capsys):
    """Run a command in this process: returns code, out, err."""

    def run(*words):
        with warnings.catch_warnings():
            try:
                code = main([str(word) for word in words])
            except SystemExit as leave:
                code = leave.code
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run
