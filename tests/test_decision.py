from __future__ import annotations

import json

import numpy as np
import pytest

from poscod import Decisions
from poscod.decision import REASONS, rejection_reason


@pytest.fixture
def decisions():
    accept = np.array([True, False, False, False])
    risk, score = np.array([0.1, 0.9, 0.1, 0.5]), np.array([0.2, 1.0, 5.0, 1.0])
    return Decisions(np.array([3, 1, 2, 0]), accept, rejection_reason(risk, score, accept), risk, np.log(score), score)


def test_reasons_follow_the_larger_share(decisions):
    assert decisions.reason.tolist() == ["accepted", "ambiguous", "unfamiliar", "both"]
    assert set(REASONS) == set(decisions.reason.tolist())


def test_infinite_scores_are_unfamiliar():
    reason = rejection_reason(np.array([0.3, 0.0]), np.array([np.inf, 1.0]), np.array([False, False]))
    assert reason.tolist() == ["unfamiliar", "unfamiliar"]


def test_predictions_keep_types(decisions):
    assert decisions.predictions().tolist() == [3, -1, -1, -1]
    assert decisions.predictions().dtype.kind == "i"
    texts = Decisions(
        np.array(["a", "b", "c", "d"]),
        *(getattr(decisions, c) for c in ("accept", "reason", "risk", "log_ratio", "score")),
    )
    assert texts.predictions().tolist() == ["a", "rejected", "rejected", "rejected"]
    assert texts.predictions("cannot say").tolist() == ["a", "cannot say", "cannot say", "cannot say"]
    assert decisions.predictions("reject").tolist() == [3, "reject", "reject", "reject"]
    assert np.isnan(decisions.predictions(np.nan)[1])


def test_columns_travel(decisions):
    assert json.loads(json.dumps(decisions.to_dict()))["accept"] == [True, False, False, False]
    frame = decisions.to_pandas()
    assert list(frame.columns) == ["label", "accept", "reason", "risk", "log_ratio", "score"]
    assert len(decisions[np.array([True, False, False, True])]) == 2
    assert decisions[1:3].label.tolist() == [1, 2]
