"""Labels: every container and type, the mark of unlabeled rows, and what stands where a rule abstains."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from poscod.exceptions import InvalidInputError
from poscod.labels import as_labels, check_reject_label, codes_of, marked_rows, reject_label_for

NAMES = ["dog", "cat", "dog"]


@pytest.mark.parametrize(
    "given",
    [
        NAMES,
        np.array(NAMES),
        np.array(NAMES, dtype=object),
        [np.str_(name) for name in NAMES],
        pd.Series(NAMES),
        pd.Series(NAMES, dtype="string"),
        pd.Categorical(NAMES),
        pd.Series(NAMES, dtype="category"),
        pl.Series(NAMES),
        pl.Series(NAMES, dtype=pl.Categorical),
        np.array(NAMES, dtype=np.dtypes.StringDType()),
    ],
    ids=lambda given: f"{type(given).__module__}.{type(given).__name__} {getattr(given, 'dtype', '')}",
)
def test_texts_of_every_container(given):
    found = as_labels(given)
    assert found.dtype.kind == "U"
    assert found.tolist() == NAMES


def test_numbers_and_booleans_stay():
    assert as_labels(pd.Series([3, 5], dtype="Int64")).dtype.kind == "i"
    assert as_labels(np.array([True, False], dtype=object)).dtype == bool
    assert as_labels([0.5, 2.0]).tolist() == [0.5, 2.0]


def test_the_mark_among_texts():
    for joined in (np.r_[NAMES, np.full(2, -1)], np.array([*NAMES, -1, -1], dtype=object)):
        labels = as_labels(joined)
        assert labels.dtype.kind == "U"
        assert marked_rows(labels).tolist() == [False] * 3 + [True] * 2
    assert marked_rows(np.array([0, -1, -1.0])).tolist() == [False, True, True]


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA])
def test_gaps_are_named(gap):
    with pytest.raises(InvalidInputError, match=r"y must hold a label in every row, got none in 1 \(first at row 1\)"):
        as_labels(np.array(["a", gap, "b"], dtype=object))


def test_two_kinds_are_refused():
    with pytest.raises(InvalidInputError, match=r"texts or numbers, got 'a' and 3"):
        as_labels(np.array(["a", 3, "b"], dtype=object))


def test_codes_follow_the_order_of_the_classes():
    classes = np.array(["dog", "cat", "ant"])
    assert codes_of(classes, ["ant", "dog", "zebra", "aaa", "cat"]).tolist() == [2, 0, -1, -1, 1]
    assert codes_of(np.array([3, 7]), [7, 3, 4]).tolist() == [1, 0, -1]
    assert codes_of(classes, [1, 2]).tolist() == [-1, -1]
    assert codes_of(np.array([1, 2]), ["1", "2"]).tolist() == [-1, -1]


def test_reject_label_is_of_the_labels_type_and_no_class():
    assert reject_label_for(-1, np.array(["a"])) == "rejected"
    assert reject_label_for(-1, np.array([False, True])) == -1
    assert reject_label_for(None, np.array(["a"])) is None
    for label, classes in ((-1, ["a", "rejected"]), ("a", ["a", "b"]), (2, [1, 2])):
        with pytest.raises(InvalidInputError, match="must be none of the classes"):
            check_reject_label(label, np.array(classes))
    check_reject_label("1", np.array([1, 2]))
