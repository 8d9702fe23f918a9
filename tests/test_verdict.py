"""What a person said of an input."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from poscod import OOD
from poscod.exceptions import InvalidInputError
from poscod.verdict import verdict_codes

TEXTS, NUMBERS = np.array(["cat", "dog"]), np.array([3, 7, 10])


@pytest.mark.parametrize(
    ("values", "classes", "codes"),
    [
        (["cat", OOD, "", None, "dog "], TEXTS, [0, -1, -2, -2, 1]),
        (np.where([True, False], OOD, np.array([3, 7])), NUMBERS, [-1, 1]),
        (np.where([True, False], "ood", np.array([3, 7])), NUMBERS, [-1, 1]),
        (np.array([3.0, np.nan, 10.0]), NUMBERS, [0, -2, 2]),
        ([np.int64(7), "OOD", float("nan"), "3"], NUMBERS, [1, -1, -2, 0]),
        (["ood", "OOD", OOD], np.array(["cat", "ood"]), [1, 1, -1]),
        (np.full(2, OOD), NUMBERS, [-1, -1]),
    ],
)
def test_verdicts_as_people_write_them(values, classes, codes):
    assert verdict_codes(values, classes, "verdicts", len(codes)).tolist() == codes


@pytest.mark.parametrize("bad", ["bird", -1, 3.5, [1], True])
def test_what_is_no_verdict_is_refused_in_a_sentence(bad):
    with pytest.raises(InvalidInputError, match=r"verdicts must hold a class .*poscod.OOD.* at row 1"):
        verdict_codes(["cat", bad], TEXTS, "verdicts", 2)


def test_the_number_of_verdicts_is_that_of_the_rows():
    with pytest.raises(InvalidInputError, match="as many rows as the rows"):
        verdict_codes(["cat"], TEXTS, "verdicts", 2)


def test_there_is_one_ood():
    assert copy.deepcopy(OOD) is OOD is pickle.loads(pickle.dumps(OOD))
    assert (str(OOD), repr(OOD)) == ("ood", "poscod.OOD")
