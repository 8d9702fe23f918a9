# SPDX-License-Identifier: BSD-3-Clause
"""Answers that come from elsewhere, such as a language model's, as the posterior that everybody else reads.

Convention: of an answer there is a label and maybe one number, in any scale, that is **high where the answer is likely wrong**. How likely is learned from rows whose true label is known, and
by nothing but the order of the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import rankdata
from sklearn.isotonic import IsotonicRegression

from poscod._validation import Floats, check_vector, refusal
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError, PoscodWarning, warn_caller

RIGHT, WRONG, OTHER = "right", "wrong", "another answer"
"""Names of the classes where answers are free and only their truth is known, and of all labels that no judged row had."""
LEAST_ROWS = 20
# Weight, in rows, of "every other class alike" where an answer is wrong.
_SMOOTH = 1.0
# How much the log-odds of the error differ between answers with one score, as a standard deviation.
_SPREAD = 1.0
# So many scores keep their error; between them it is interpolated.
_KNOTS = 256


class AnswersWarning(PoscodWarning):
    """The score of the answers says little about which of them are wrong."""


@dataclass(frozen=True, eq=False)
class GivenAnswers:
    """What was learned of answers that come from elsewhere: how often one is wrong, by its score, and for what it is then taken.

    Parameters
    ----------
    classes : tuple of str
        Labels; the last one stands for all that no judged row had. Or "right" and "wrong".
    scores : tuple of float
        Scores at which the error is known; empty where answers have no score.
    errors : tuple of float
        Share of wrong answers there; between them it is interpolated. One number without scores.
    shifts : tuple of float, default=()
        What is added to the log-odds of the error, by answer.
    confused : tuple of int, default=()
        Answer, true class and number of judged rows, one after the other, for each pair that was seen.

    Notes
    -----
    The error e of an answer is isotonic in its score; to its log-odds a shift by answer is added, the most likely one under a standard normal law. The answer's class has the probability 1 - e and another class k the probability e q(k), where q is the share of true class k among
    judged rows with that answer that were wrong, and one row spread evenly. e is at most 1 - 1/K, and no other class gets more than the answer: r = e, and the label is the answer.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.choice(["bill", "card", "loan"], 600)
    >>> doubt = rng.uniform(size=600)
    >>> answer = np.where(rng.uniform(size=600) < 0.5 * doubt, "bill", truth)
    >>> given = GivenAnswers.learn(answer, truth, score=10 * doubt)
    >>> given.error(["bill", "bill"], [1.0, 9.0]).round(2).tolist()
    [0.12, 0.59]
    >>> given.activations(["loan", "quiz"], [1.0, 9.0], features=rng.normal(size=(2, 4)))
    Activations(features=(2, 4) float64, logits=(2, 4) float64, classes=(4,) <U14)
    """

    classes: tuple[str, ...]
    scores: tuple[float, ...]
    errors: tuple[float, ...]
    shifts: tuple[float, ...] = ()
    confused: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        k, pairs = len(self.classes), np.array(self.confused).reshape(-1, 3)
        checks = (
            (k >= 2 and len(set(self.classes)) == k, "classes must be at least two different names"),
            (len(self.errors) == max(1, len(self.scores)), "errors must be one a score, or one"),
            (bool(np.all(np.diff(self.scores) > 0)), "scores must rise"),
            (len(self.shifts) <= k and bool(np.isfinite(self.shifts).all()), "shifts must be finite, one a class"),
            (all(0.0 < error < 1.0 for error in self.errors), "errors must lie between 0 and 1"),
            (
                bool(np.all((pairs >= 0) & (pairs[:, :1] < k) & (pairs[:, 1:2] < k))),
                "confused must name classes by their position",
            ),
        )
        for right, sentence in checks:
            if not right:
                raise InvalidInputError(f"{sentence}.")

    @classmethod
    def learn(cls, answer: Any, y: Any, score: Any = None) -> GivenAnswers:
        """Learn from judged rows. Give it rows of their own: not those that `POSCOD.fit` gets.

        Parameters
        ----------
        answer : array-like of shape (n,) or None
            The answers. None for free answers: y then says which are right.
        y : array-like of shape (n,)
            The true labels, or with free answers truth values.
        score : array-like of shape (n,), default=None
            High where an answer is likely wrong, in any scale: a judge's doubt, or minus a log-probability.

        Returns
        -------
        given : GivenAnswers
        """
        truth = np.asarray(y)
        if len(truth) < LEAST_ROWS:
            raise InvalidInputError(
                "{y} must hold at least {allowed} judged rows to learn how often answers are wrong, got {got}.",
                allowed=LEAST_ROWS,
                got=len(truth),
            )
        if answer is None:
            classes, codes = (RIGHT, WRONG), np.zeros(len(truth), dtype=np.intp)
            wrong = ~truth.astype(bool)
        else:
            said, truth = _texts(answer), _texts(truth)
            if len(said) != len(truth):
                raise refusal(
                    "answer", "must be as many as y ({allowed}), got {got}.", allowed=len(truth), got=len(said)
                )
            labels = np.union1d(said, truth)
            classes = (*labels[labels != OTHER].tolist(), OTHER)
            codes, wrong = _codes(said, classes), said != truth
        if score is None:
            scores, errors = np.zeros(0), np.array([_smoothed(wrong.sum(), len(wrong))])
        else:
            scores, errors = _calibrated(check_vector(score, "score", n=len(wrong), like="y", allow_inf=False), wrong)
        expected = np.interp(score, scores, errors) if len(scores) else np.full(len(wrong), errors[0])
        shift = _shifts(codes, logit(expected), wrong, len(classes))
        pairs: tuple[int, ...] = ()
        if answer is not None and wrong.any():
            seen = np.column_stack([codes, _codes(truth, classes)])[wrong]
            found, counts = np.unique(seen, axis=0, return_counts=True)
            pairs = tuple(np.column_stack([found, counts]).ravel().tolist())
        shifts = () if answer is None else tuple(shift.tolist())
        return cls(classes, tuple(scores.tolist()), tuple(errors.tolist()), shifts, pairs)

    def with_labels(self, labels: Sequence[str]) -> GivenAnswers:
        """Return the same with more labels.

        Parameters
        ----------
        labels : sequence of str
            Labels that begin with those that are known, in the same order.

        Returns
        -------
        given : GivenAnswers
        """
        classes, last = (*labels, OTHER), len(self.classes) - 1
        if classes[:last] != self.classes[:last]:
            raise refusal("labels", "must begin with {allowed}, got {got}.", allowed=self.classes[:last], got=labels)
        pairs = np.array(self.confused, dtype=np.intp).reshape(-1, 3)
        pairs[:, :2][pairs[:, :2] == last] = len(classes) - 1
        shifts = (*self.shifts[:last], *[0.0] * (len(classes) - 1 - last), *self.shifts[last:])
        return replace(self, classes=classes, shifts=shifts, confused=tuple(pairs.ravel().tolist()))

    def error(self, answer: Any, score: Any = None, n: int = 0) -> Floats:
        """Return how likely answers are wrong.

        Parameters
        ----------
        answer : array-like of shape (n,) or None
            The answers; None where they are free.
        score : array-like of shape (n,), default=None
            Their scores; None where there are none.
        n : int, default=0
            Number of rows, where neither says it.

        Returns
        -------
        error : ndarray of shape (n,)
        """
        return self._error(*self._read(answer, score, n))

    def _read(self, answer: Any, score: Any, n: int) -> tuple[NDArray[np.intp], Floats | None]:
        """Check answers and scores; return class indices of the answers."""
        if (answer is None) != (self.classes == (RIGHT, WRONG)):
            raise refusal("answer", "must be given where labels were judged, and be None where truth values were.")
        n = len(answer) if answer is not None else len(score) if score is not None else n
        if self.scores and score is None:
            raise refusal("score", "must be given: the answers were judged with scores.")
        values = check_vector(score, "score", n=n, like="answer", allow_inf=False) if self.scores else None
        return np.zeros(n, dtype=np.intp) if answer is None else _codes(_texts(answer), self.classes), values

    def _error(self, codes: NDArray[np.intp], score: Floats | None) -> Floats:
        found = np.full(len(codes), self.errors[0]) if score is None else np.interp(score, self.scores, self.errors)
        return np.asarray(expit(logit(found) + np.array(self.shifts)[codes])) if self.shifts else found

    def activations(self, answer: Any, score: Any = None, features: Any = None, *, table: bool = False) -> Activations:
        """Return answers as rows for `POSCOD`.

        Parameters
        ----------
        answer : array-like of shape (n,) or None
            The answers; None where they are free (classes "right" and "wrong").
        score : array-like of shape (n,), default=None
            Their scores.
        features : array-like of shape (n, d), default=None
            What the ratio sees of the inputs, such as a sentence embedding.
        table : bool, default=False
            Whether features have units of their own, as in `poscod.Activations`.

        Returns
        -------
        rows : Activations
        """
        n = 0 if features is None else len(features)
        return Activations(features, self.logits(answer, score, n), table=table, classes=list(self.classes))

    def logits(self, answer: Any, score: Any = None, n: int = 0) -> Floats:
        """Return the logarithm of the posterior.

        Parameters
        ----------
        answer : array-like of shape (n,) or None
            The answers; None where they are free.
        score : array-like of shape (n,), default=None
            Their scores.
        n : int, default=0
            Number of rows, where neither says it.

        Returns
        -------
        logits : ndarray of shape (n, K)
        """
        codes, values = self._read(answer, score, n)
        k, n = len(self.classes), len(codes)
        error = np.minimum(self._error(codes, values), (1.0 - 1.0 / k) * (1.0 - 1e-9))
        even = error / (k - 1)
        other = error[:, None] * self._taken_for()[codes]
        most, own = other.max(axis=1), 1.0 - error
        # As much of what was seen as leaves the answer the most probable label; the rest evenly.
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(most > own, (own * (1.0 - 1e-9) - even) / (most - even), 1.0)[:, None]
        posterior = share * other + (1.0 - share) * even[:, None]
        posterior[np.arange(n), codes] = own
        return np.asarray(np.log(posterior))

    def _taken_for(self) -> Floats:
        """Shares of the true classes, by answer, where it is wrong."""
        k = len(self.classes)
        counts = np.full((k, k), _SMOOTH / (k - 1))
        pairs = np.array(self.confused, dtype=np.intp).reshape(-1, 3)
        counts[pairs[:, 0], pairs[:, 1]] += pairs[:, 2]
        np.fill_diagonal(counts, 0.0)
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _texts(values: Any) -> NDArray[Any]:
    return np.array([str(value) for value in np.asarray(values).tolist()], dtype=str)


def _codes(labels: NDArray[Any], classes: tuple[str, ...]) -> NDArray[np.intp]:
    """Return positions among the classes; what is none of them is the last one."""
    position = {name: code for code, name in enumerate(classes)}
    return np.array([position.get(label, len(classes) - 1) for label in labels.tolist()], dtype=np.intp)


def _smoothed(wrong: Any, n: Any) -> Any:
    return (wrong + 0.5) / (n + 1.0)


def _calibrated(score: Floats, wrong: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return scores and the error there: isotonic regression, smooth between the middles of its steps along the ranks, each with one row of the mean error."""
    score = score.astype(np.float64)
    _check_direction(score, wrong)
    step = IsotonicRegression(increasing=True).fit_transform(score, wrong.astype(np.float64))
    at, rank = np.unique(step, return_inverse=True)[1], rankdata(score)
    n = np.bincount(at)
    error = (np.bincount(at, wrong) + _smoothed(wrong.sum(), len(wrong))) / (n + 1.0)
    scores, first = np.unique(score, return_index=True)
    chosen = np.unique(np.linspace(0, len(scores) - 1, min(len(scores), _KNOTS)).round().astype(np.intp))
    middle = np.bincount(at, rank) / n
    return scores[chosen], np.interp(rank[first[chosen]], middle, np.maximum.accumulate(error))


def _shifts(codes: NDArray[np.intp], log_odds: Floats, wrong: NDArray[np.bool_], k: int) -> Floats:
    """Return what is added to the log-odds of the error, by answer: the most likely number under a normal law about 0, by Newton's method."""
    shift = np.zeros(k)
    counted = np.bincount(codes, wrong, k)
    for _ in range(20):
        error = expit(log_odds + shift[codes])
        slope = counted - np.bincount(codes, error, k) - shift / _SPREAD**2
        shift = shift + slope / (np.bincount(codes, error * (1.0 - error), k) + 1.0 / _SPREAD**2)
    return np.clip(shift, -5.0, 5.0)


def _check_direction(score: Floats, wrong: NDArray[np.bool_]) -> None:
    """Refuse a score that is high where answers are right, and warn of one that says nothing."""
    n_wrong, n_right = int(wrong.sum()), int((~wrong).sum())
    if not n_wrong or not n_right:
        return
    auroc = (rankdata(score)[wrong].sum() - n_wrong * (n_wrong + 1) / 2) / (n_wrong * n_right)
    error = np.sqrt((n_wrong + n_right + 1) / (12.0 * n_wrong * n_right))  # where the score says nothing
    if auroc < 0.5 - 3.0 * error:
        raise refusal(
            "score",
            "must be high where answers are wrong, and is lower there (AUROC {got:.2f} over {n} judged rows): it is a confidence, change its sign (in the shell: --confidence-column).",
            got=float(auroc),
            n=len(score),
        )
    if auroc < 0.5 + 2.0 * error:
        warn_caller(
            AnswersWarning(
                "{score} hardly tells wrong answers from right ones (AUROC {got:.2f} over {n} judged rows): r is nearly the same for all.",
                got=float(auroc),
                n=len(score),
            )
        )
