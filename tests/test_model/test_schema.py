"""What a row is: kinds, columns in any order, lists, probabilities, classes by name, and one sentence for what does not fit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from poscod import Activations
from poscod.exceptions import InvalidInputError
from poscod.model import Schema

COLUMNS = {
    "a": np.array([1.0, 2.0]),
    "b": np.array([3, 4]),
    "e": np.array([[5.0, 6.0], [7.0, 8.0]]),
    "cat": np.array([0.25, 1.0]),
    "dog": np.array([0.75, 0.0]),
    "text": np.array(["x", None], dtype=object),
}


@pytest.mark.parametrize(
    ("rows", "kind", "names", "width"),
    [
        (np.zeros((3, 4)), "table", (), 4),
        (sparse.csr_matrix(np.eye(3)), "table", (), 3),
        (pd.DataFrame({"x": [1.0], "y": ["t"]}), "frame", ("x", "y"), 2),
        (np.array(["a text", "another"], dtype=object), "any", (), 0),
        (Activations(np.zeros((3, 5)), np.zeros((3, 2))), "network", (), 5),
        (Activations(None, np.zeros((3, 2))), "network", (), 0),
    ],
)
def test_schemas_of_rows_in_python(rows, kind, names, width):
    schema = Schema.of(rows)
    assert (schema.kind, schema.features, schema.n_features) == (kind, names, width)
    assert schema.n_logits == (2 if kind == "network" else 0)
    assert Schema.from_dict(schema.to_dict()) == schema


def test_columns_are_read_by_name_in_the_model_s_order():
    schema = Schema(features=("b", "e", "a"), n_features=4)
    np.testing.assert_array_equal(schema.rows(COLUMNS), [[3, 5, 6, 1], [4, 7, 8, 2]])
    assert schema.column_names is None  # a list has no name for each number
    assert Schema(features=("b", "a"), n_features=2).column_names == ("b", "a")
    assert schema.ignored(COLUMNS) == ["cat", "dog", "text"]


def test_frames_keep_gaps_and_texts():
    frame = Schema(features=("text", "a"), n_features=2, frame=True).rows(COLUMNS)
    assert frame["text"].isna().tolist() == [False, True]
    assert frame["text"][0] == "x"
    assert frame.columns.tolist() == ["text", "a"]
    empty = Schema(features=("text",), n_features=1, frame=True).rows({"text": np.array([None, None], dtype=object)})
    assert empty["text"].isna().all()
    assert empty["text"].dtype == np.float64


def test_outside_classifiers_come_as_logits_or_probabilities():
    logits = Schema(features=("a",), logits=("cat", "dog"), n_features=1, n_logits=2, table=True).rows(COLUMNS)
    assert isinstance(logits, Activations)
    assert logits.table
    np.testing.assert_array_equal(logits.logits, [[0.25, 0.75], [1.0, 0.0]])
    shares = Schema(logits=("cat", "dog"), probabilities=True, n_logits=2).rows(COLUMNS)
    np.testing.assert_allclose(shares.logits, np.log([[0.25, 0.75], [1.0, 1e-12]]))
    assert shares.features is None


def test_classes_have_names():
    schema = Schema(logits=("cat", "dog"), n_logits=2, classes=("cat", "dog"))
    assert schema.codes(np.array(["dog", "cat"])).tolist() == [1, 0]
    assert schema.labels(np.array([1, 0, 1])).tolist() == ["dog", "cat", "dog"]
    plain = np.array([4, 5])
    assert Schema().codes(plain) is plain
    assert Schema().labels(plain) is plain
    with pytest.raises(InvalidInputError, match="must hold one of the classes 'cat', 'dog', got 'cow' at row 1"):
        schema.codes(np.array(["dog", "cow"]), "column 'y' of f.csv")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (Schema(features=("a", "width"), n_features=2), r"f\.csv lacks the column 'width' that the model reads"),
        (
            Schema(features=("A", "B"), n_features=2),
            r"lacks the columns 'A', 'B' that the model reads \(is it 'a' there\?\)",
        ),
        (Schema(features=("e",), n_features=3), "has 2 features per row in 'e', and the model was fitted on 3"),
        (Schema(features=("text",), n_features=1), r"column 'text' of f\.csv must hold numbers"),
        (Schema(logits=("a",), n_logits=1), "one column of logits or probabilities"),
        (
            Schema(logits=("a", "b"), n_logits=2, probabilities=True),
            r"sum to 1 in every row, got a sum of 4 .* at row 10 of f\.csv",
        ),
    ],
)
def test_what_does_not_fit_gets_one_sentence(schema, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        schema.rows(COLUMNS, "f.csv", 10)
    assert caught.value.facts["source"] == "f.csv"


def test_missing_columns_are_facts():
    with pytest.raises(InvalidInputError) as caught:
        Schema(features=("a", "width"), n_features=2).check(["a", "height"], "the body")
    assert caught.value.facts["missing"] == ["width"]
    assert caught.value.facts["extra"] == ["height"]


def test_schemas_that_cannot_be_are_refused():
    with pytest.raises(InvalidInputError, match="knows no names of its columns"):
        Schema(n_features=2).rows({"a": np.zeros(3), "b": np.zeros(3)})
    with pytest.raises(InvalidInputError, match="must have one length"):
        Schema(features=("a", "b"), n_features=2).rows({"a": np.zeros(2), "b": np.zeros(4)})
    with pytest.raises(InvalidInputError, match="leave out rejected rows"):
        Schema(n_logits=2, classes=("cat", "dog")).labels(np.array([0, 1, -1]))
    for classes in (("cat", "cat"), ("cat", "dog", "cow")):
        with pytest.raises(InvalidInputError, match="classes must be different names, one a logit"):
            Schema(n_logits=2, classes=classes)
