from __future__ import annotations

import sys

import numpy as np
import pytest

from poscod import _validation as v
from poscod._optional import require
from poscod.exceptions import InvalidInputError, MissingExtraError, PoscodError


def test_float32_matrices_are_not_copied():
    matrix = np.ones((3, 2), dtype=np.float32)
    assert v.check_matrix(matrix, "X") is matrix


def test_half_precision_integers_and_booleans_become_double():
    for dtype in (np.float16, np.int32, bool):
        assert v.as_array(np.ones(3, dtype=dtype), "x").dtype == np.float64


def test_objects_that_hold_numbers_pass_and_text_does_not():
    assert v.check_vector(np.array([1, 2.5], dtype=object), "x").tolist() == [1.0, 2.5]
    for bad in (
        ["a"],
        np.array(["1"]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        [None],
        object(),
        [[1], [2, 3]],
        np.array(["1"], dtype=object),
    ):
        with pytest.raises(InvalidInputError, match=r"x must (be|not)"):
            v.check_vector(bad, "x")


def test_message_names_the_place_in_a_long_matrix():
    matrix = np.zeros((70_000, 2), dtype=np.float32)
    matrix[66_000, 1] = np.nan
    with pytest.raises(InvalidInputError, match="X must be finite, got nan at row 66000, column 1"):
        v.check_matrix(matrix, "X")
    matrix[66_000, 1] = np.inf
    assert v.check_matrix(matrix, "X", allow_inf=True) is matrix
    matrix[66_000, 1] = np.nan
    with pytest.raises(InvalidInputError, match="X must be free of NaN"):
        v.check_matrix(matrix, "X", allow_inf=True)


def test_sizes():
    with pytest.raises(InvalidInputError, match="X must have 3 columns, got 2"):
        v.check_matrix(np.ones((4, 2)), "X", columns=3)
    with pytest.raises(InvalidInputError, match="X must have 3 rows, got 4"):
        v.check_matrix(np.ones((4, 2)), "X", rows=3)


def test_numbers_are_not_booleans_or_text():
    assert v.check_number(np.float32(0.5), "x", 0, 1) == 0.5
    for bad in (True, np.bool_(True), "0.5", None, [0.5]):
        with pytest.raises(InvalidInputError, match="x must be a number"):
            v.check_number(bad, "x", 0, 1)
    with pytest.raises(InvalidInputError, match=r"in \(0, 1\), got 1.*Try less\."):
        v.check_number(1, "x", 0, 1, closed="neither", hint="Try less.")


def test_counts():
    assert v.check_count(np.int64(3), "n") == 3
    for bad in (0, 2.0, True, "3"):
        with pytest.raises(InvalidInputError, match="n must be a whole number >= 1"):
            v.check_count(bad, "n")


def test_choices_without_a_near_match():
    with pytest.raises(InvalidInputError, match=r"must be one of 'a', 'b', got 3\."):
        v.check_choice(3, "x", {"a": 1, "b": 2})


def test_every_error_is_a_poscod_error():
    assert issubclass(InvalidInputError, PoscodError)
    assert issubclass(InvalidInputError, ValueError)
    assert issubclass(MissingExtraError, ImportError)


def test_require_returns_the_module_or_says_what_to_install():
    assert require("json", extra="files", feature="x").__name__ == "json"
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[files\]'") as caught:
        require("no_such_package.part", extra="files", feature="Reading Parquet")
    assert caught.value.package == "no_such_package"


def test_a_broken_package_shows_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import a_package_that_is_missing_inside\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_missing_inside") as caught:
        require("broken_package", extra="files", feature="x")
    assert not isinstance(caught.value, MissingExtraError)
    sys.modules.pop("broken_package", None)
