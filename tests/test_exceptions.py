"""Errors and warnings carry facts, and every speaker tells them with its own names."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest

from poscod import exceptions
from poscod._validation import check_choice, check_number, check_vector
from poscod.exceptions import (
    InfeasibleProblemError,
    InvalidInputError,
    MissingExtraError,
    PoscodError,
    PoscodWarning,
    warn_caller,
)

SHELL = {"tpr_min": "--tpr-min", "X_unlabeled": "the unlabeled table", "calibration": "--calibration"}


def test_a_message_without_facts_is_literal():
    error = InvalidInputError("a {brace} and a %s stay")
    assert str(error) == error.told(SHELL) == "a {brace} and a %s stay"
    assert error.facts == {}


def test_facts_fill_the_sentence_and_other_names_are_arguments():
    error = InfeasibleProblemError("{X_unlabeled} has {got:,} rows: raise {calibration}.", got=12345)
    assert str(error) == "X_unlabeled has 12,345 rows: raise calibration."
    assert error.told(SHELL) == "the unlabeled table has 12,345 rows: raise --calibration."
    assert error.facts == {"got": 12345}


def test_the_argument_at_fault_is_told_by_its_name():
    for check in (
        lambda: check_number(2, "tpr_min", 0.0, 1.0),
        lambda: check_choice("x", "tpr_min", {"a": 1}),
        lambda: check_vector([[1.0]], "tpr_min"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            check()
        assert str(caught.value).startswith("tpr_min must be ")
        assert caught.value.told(SHELL).startswith("--tpr-min must be ")
        assert caught.value.facts["parameter"] == "tpr_min"
        assert "got" in caught.value.facts


def test_what_a_user_wrote_is_never_a_template():
    error = InvalidInputError(
        "{parameter} must be one of {allowed}, got {got!r}.", parameter="loss", allowed="a", got="{0.__class__}"
    )
    assert str(error) == "loss must be one of a, got '{0.__class__}'."
    assert error.told({"loss": "{evil}"}) == "{evil} must be one of a, got '{0.__class__}'."


@pytest.mark.parametrize("make", [InvalidInputError, InfeasibleProblemError, PoscodWarning])
def test_they_travel_between_processes(make):
    error = make("{X_unlabeled} has {got} rows.", got=3)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is make
        assert other.facts == {"got": 3}
        assert other.told(SHELL) == "the unlabeled table has 3 rows."


def test_a_missing_extra_travels_too():
    error = pickle.loads(pickle.dumps(MissingExtraError("a", "b", "c")))
    assert (error.package, error.extra, error.feature) == ("a", "b", "c")


def test_warnings_point_at_the_caller():
    class Own(PoscodWarning):
        pass

    with pytest.warns(Own, match="X_unlabeled has 3 rows") as caught:
        warn_caller(Own("{X_unlabeled} has {got} rows.", got=3))
    assert caught[0].filename == __file__
    assert caught[0].message.told(SHELL) == "the unlabeled table has 3 rows."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Own):
            warn_caller(Own("x"))


def test_every_error_is_one_of_ours():
    found = [value for value in vars(exceptions).values() if isinstance(value, type) and issubclass(value, Exception)]
    own = [value for value in found if value.__module__ == "poscod.exceptions"]
    assert len(own) >= 5
    assert all(issubclass(value, (PoscodError, PoscodWarning)) for value in own)
