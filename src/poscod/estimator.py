# SPDX-License-Identifier: BSD-3-Clause
"""POSCOD: one object that answers or abstains.

Convention: ``s = r + beta g``, accept iff ``s <= threshold_``; ``decision_function = threshold_ - s``. Labelled rows have one use each:
some train the classifier, others (which the classifier has not seen) calibrate r and fit g, and the rest (which neither has
seen) set the threshold.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from poscod import persist
from poscod._evaluation import Evaluation, UnlabeledEvaluation, evaluate, evaluate_unlabeled, label_free_risk
from poscod._fitting import NoUnlabeledDataWarning, fit_parts, label_rows, log_ratio_of, refuse_copy
from poscod._inputs import NetworkHead, as_indexable, chunks, logits_of, n_rows, split_unlabeled, take, view
from poscod._validation import Floats, check_choice, check_count, check_number, check_weight
from poscod.activations import Activations
from poscod.decision import Decisions, rejection_reason
from poscod.exceptions import InvalidInputError
from poscod.problem import BoundedProblem, PrecisionProblem, Problem, ScodProblem
from poscod.ratio import CorrectedSigmoid
from poscod.risk import bayes_decision_from_logits
from poscod.selector import (
    CalibrationArrays,
    fit_rule,
    guaranteed_threshold,
    risk_controlled_threshold,
    tpr_threshold,
)
from poscod.strategies import rejection_score

__all__ = ["POSCOD", "NoUnlabeledDataWarning"]


class POSCOD(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier with an optimal reject option, learned from labelled ID rows and unlabelled traffic.

    Parameters
    ----------
    classifier : estimator, default=None
        Any classifier with predict_proba, or `sklearn.frozen.FrozenEstimator` of a fitted one. None is a network's own logits
        with `Activations`, and a scaled logistic regression otherwise.
    ratio : estimator of `poscod.ratio`, default=None
        Learns g; None is `CorrectedSigmoid()`.
    alpha : float in [0, 1], default=0.5
        Relative cost of accepting an OOD input.
    tpr_min : float in (0, 1], default=0.95
        Required share of ID inputs to be accepted.
    loss : {"zero_one", "absolute"} or array-like of shape (K, K), default="zero_one"
        Loss ``l[y, y']`` in the order of ``classes_``.
    threshold : {"empirical", "guaranteed"}, default="empirical"
        "empirical" is the order statistic; "guaranteed" reaches TPR >= tpr_min with probability 1 - delta.
    delta : float in (0, 1), default=0.05
        Error probability of the guarantee.
    calibration : float in (0, 1) or int >= 2, default=0.5
        A share: that part of the labelled rows is kept from the classifier; one half of it calibrates r and fits g, the other
        sets the threshold. A number of folds: cross-fitting, where every labelled row is scored by a classifier and a ratio
        that have not seen it, and both are fitted once more on all rows; it uses rows better and guarantees nothing. With
        `Activations` or a frozen classifier no row trains the classifier, and all are split in halves (or folds).
    reject_label : object, default=-1
        What `predict` returns where it abstains.
    random_state : int, RandomState or None, default=None
        Splits the labelled rows.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
    classifier_ : estimator
        The fitted classifier.
    ratio_ : estimator or None
        The fitted ratio; None without unlabelled rows.
    temperature_ : float
        Temperature that calibrates the posterior.
    uses_features_ : bool
        Whether the ratio was learned from features, too, or from the logits alone (features that are no finite numbers).
    ood_prior_ : float
        Estimated share of OOD rows in the traffic.
    threshold_, tau_, beta_ : float
        lambda, the tie probability of the randomised rule, and the slope.

    Notes
    -----
    All labelled rows given with `Activations` or a frozen classifier must be rows the classifier was **not** trained on. A
    network answers its own training rows far too confidently, and a threshold chosen there misses its TPR on fresh data.

    Examples
    --------
    >>> from poscod.theory import GaussianWorld
    >>> world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
    >>> X, y = world.sample_id(1200, random_state=0)
    >>> traffic, _ = world.sample_mixture(600, pi=0.3, random_state=1)
    >>> model = POSCOD(tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=traffic)
    >>> model.predict([[0.0, 0.0], [3.0, 0.5], [1.5, 4.5]]).tolist()
    [0, 1, -1]
    >>> model.decide([[1.5, 4.5]]).reason.tolist()
    ['unfamiliar']
    """

    def __init__(
        self,
        classifier: Any = None,
        ratio: Any = None,
        *,
        alpha: float = 0.5,
        tpr_min: float = 0.95,
        loss: Any = "zero_one",
        threshold: str = "empirical",
        delta: float = 0.05,
        calibration: float = 0.5,
        reject_label: Any = -1,
        random_state: Any = None,
    ) -> None:
        self.classifier = classifier
        self.ratio = ratio
        self.alpha = alpha
        self.tpr_min = tpr_min
        self.loss = loss
        self.threshold = threshold
        self.delta = delta
        self.calibration = calibration
        self.reject_label = reject_label
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, X_unlabeled: Any = None, sample_weight: Any = None) -> POSCOD:
        """Learn classifier, ratio and threshold.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or Activations of n rows
            Labelled rows; rows whose label is -1 are the unlabelled traffic.
        y : array-like of shape (n,), default=None
            Labels; None takes the labels of `Activations`.
        X_unlabeled : like X, default=None
            The traffic, where it is not marked in y.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows of X.

        Returns
        -------
        self : POSCOD
        """
        problem = ScodProblem(self.alpha, self.tpr_min, self.loss)
        self._calibration()
        if isinstance(X, Activations):
            y = X.need("labels", caller="POSCOD.fit without y") if y is None else y
        else:
            X = as_indexable(X)
            validate_data(self, X, skip_check_array=True)
            if y is None:
                raise InvalidInputError(
                    "POSCOD requires y to be passed, but the target y is None: mark unlabelled rows with -1."
                )
        refuse_copy(X, X_unlabeled)
        rows, traffic, self.classes_ = label_rows(X, y, X_unlabeled, sample_weight)
        problem.loss_matrix(len(self.classes_))
        if traffic is None:
            warnings.warn(
                "No unlabelled rows were given, so the ratio g cannot be learned and the rule uses the conditional risk alone: "
                "pass X_unlabeled or mark rows of y with -1.",
                NoUnlabeledDataWarning,
                stacklevel=2,
            )
        parts = fit_parts(
            self._template(X),
            CorrectedSigmoid() if self.ratio is None else self.ratio,
            rows,
            traffic,
            self._calibration(),
            self.classes_,
            check_random_state(self.random_state),
        )
        self.classifier_, self.ratio_, self.temperature_, self.calibration_, self.uses_features_ = parts
        self.ood_prior_ = 0.0 if self.ratio_ is None else float(self.ratio_.ood_prior_)
        return self._set_problem(problem)

    def decide(self, X: Any) -> Decisions:
        """Answer or abstain, and say why.

        Parameters
        ----------
        X : like the rows given to `fit`

        Returns
        -------
        decisions : Decisions
            Columns label, accept, reason, risk, log_ratio, score.
        """
        X = self._check_rows(X)
        parts = [self._decide(block) for block in chunks(X)] or [self._decide(X)]
        return Decisions(*(np.concatenate([p[i] for p in parts]) for i in range(6)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each input, or `reject_label`.

        Parameters
        ----------
        X : like the rows given to `fit`

        Returns
        -------
        label : ndarray of shape (n,)
        """
        return self.decide(X).predictions(self.reject_label)

    def predict_id(self, X: Any) -> NDArray[Any]:
        """Return the classifier's answer, accepted or not.

        Parameters
        ----------
        X : like the rows given to `fit`

        Returns
        -------
        label : ndarray of shape (n,)
        """
        return self.decide(X).label

    def predict_proba(self, X: Any) -> Floats:
        """Return the calibrated posterior p(y | x) under ID.

        Parameters
        ----------
        X : like the rows given to `fit`

        Returns
        -------
        posterior : ndarray of shape (n, K)
        """
        X = self._check_rows(X)
        return np.asarray(softmax(logits_of(self.classifier_, X) / self.temperature_, axis=1))

    def conditional_risk(self, X: Any) -> Floats:
        """Return r(x), the expected loss of the answer.

        Parameters
        ----------
        X : like the rows given to `fit`

        Returns
        -------
        risk : ndarray of shape (n,)
        """
        return self.decide(X).risk

    def log_ratio(self, X: Any) -> Floats:
        """Return log g(x); -inf everywhere without unlabelled rows at fit.

        Parameters
        ----------
        X : like the rows given to `fit`

        Returns
        -------
        log_ratio : ndarray of shape (n,)
        """
        return self.decide(X).log_ratio

    def rejection_score(self, X: Any) -> Floats:
        """Return s(x) = r(x) + beta g(x).

        Parameters
        ----------
        X : like the rows given to `fit`

        Returns
        -------
        score : ndarray of shape (n,)
        """
        return self.decide(X).score

    def decision_function(self, X: Any) -> Floats:
        """Return threshold_ - s(x); accepted where it is >= 0.

        Parameters
        ----------
        X : like the rows given to `fit`

        Returns
        -------
        margin : ndarray of shape (n,)
        """
        score = self.decide(X).score
        return self.threshold_ - score

    def at(
        self,
        *,
        alpha: float | None = None,
        tpr_min: float | None = None,
        loss: Any = None,
        problem: Problem | None = None,
    ) -> POSCOD:
        """Return the same r and g at other costs: a new threshold, nothing is fitted again.

        Parameters
        ----------
        alpha, tpr_min : float, default=None
            None keeps the value.
        loss : {"zero_one", "absolute"} or array-like of shape (K, K), default=None
            None keeps the loss.
        problem : Problem, default=None
            Another problem of the family in `poscod.problem`; excludes the other arguments.

        Returns
        -------
        model : POSCOD
            Shares the fitted parts with this one.
        """
        check_is_fitted(self, "threshold_")
        model = copy.copy(self)
        if problem is not None:
            if any(value is not None for value in (alpha, tpr_min, loss)):
                raise InvalidInputError("problem excludes alpha, tpr_min and loss: put them into the problem.")
            return model._set_problem(problem)
        model.alpha = self.alpha if alpha is None else alpha
        model.tpr_min = self.tpr_min if tpr_min is None else tpr_min
        model.loss = self.loss if loss is None else loss
        return model._set_problem(ScodProblem(model.alpha, model.tpr_min, model.loss))

    def budget(self, share: float) -> POSCOD:
        """Return the model whose threshold rejects a given share of the traffic seen at fit.

        Parameters
        ----------
        share : float in [0, 1)
            What can be reviewed, e.g. 0.02 for 200 of 10,000.

        Returns
        -------
        model : POSCOD
            Same score, other threshold.
        """
        check_is_fitted(self, "threshold_")
        share = check_number(share, "share", 0.0, 1.0, closed="left")
        arrays = self._arrays(self.problem_)
        if len(arrays.traffic_risk) == 0:
            raise InvalidInputError("A budget is a share of the traffic: fit with unlabelled rows.")
        model = copy.copy(self)
        score = rejection_score(arrays.traffic_risk, arrays.traffic_log_ratio, self.beta_)
        rule = tpr_threshold(score, 1.0 - share)
        model.threshold_, model.tau_ = rule.threshold, rule.tau
        return model

    def control_risk(self, risk_max: float, *, delta: float = 0.05, method: str = "fixed_sequence") -> POSCOD:
        """Return the model with the loosest threshold whose selective risk is at most risk_max with probability 1 - delta.

        Parameters
        ----------
        risk_max : float
            Largest allowed mean loss on accepted ID inputs.
        delta : float in (0, 1), default=0.05
            Error probability, over the draw of the calibration rows.
        method : {"fixed_sequence", "sgr"}, default="fixed_sequence"
            See `poscod.selector.risk_controlled_threshold`.

        Returns
        -------
        model : POSCOD
            Same score, other threshold. TPR is what it comes out as.
        """
        check_is_fitted(self, "threshold_")
        kept = self.calibration_
        if isinstance(self.calibration, (int, np.integer)) or kept.weight is not None:
            raise InvalidInputError(
                "control_risk needs unweighted rows that nothing was fitted on: fit with a share as calibration."
            )
        label, risk = bayes_decision_from_logits(kept.logits, self.problem_.loss, temperature=self.temperature_)
        matrix = self.problem_.loss_matrix(len(self.classes_))
        rule = risk_controlled_threshold(
            rejection_score(risk, kept.log_ratio, self.beta_),
            matrix[kept.codes, label],
            risk_max,
            delta=delta,
            method=method,
            loss_max=None if set(self._loss_values()) <= {0.0, 1.0} else float(matrix.max()),
        )
        model = copy.copy(self)
        model.threshold_, model.tau_ = rule.threshold, rule.tau
        return model

    def evaluate(self, X_id: Any, y_id: Any, X_ood: Any, *, level: float = 0.95) -> Evaluation:
        """Measure the rule on fresh labelled ID rows and clean OOD rows.

        Parameters
        ----------
        X_id : like the rows given to `fit`
        y_id : array-like of shape (n,)
            Labels of X_id.
        X_ood : like X_id
        level : float in (0, 1), default=0.95
            Coverage of each interval.

        Returns
        -------
        evaluation : Evaluation
            TPR, FPR, selective risk and SCOD risk with intervals.
        """
        level = check_number(level, "level", 0.0, 1.0, closed="neither")
        known, loss = self._judge(X_id, y_id)
        return evaluate(
            known.accept, loss, self.decide(X_ood).accept, self._alpha(), level, loss_values=self._loss_values()
        )

    def evaluate_unlabeled(
        self,
        X_id: Any,
        y_id: Any,
        X_unlabeled: Any,
        *,
        pi: float | None = None,
        level: float = 0.95,
    ) -> UnlabeledEvaluation:
        """Measure the rule without any OOD label, on fresh labelled ID rows and fresh traffic.

        Parameters
        ----------
        X_id : like the rows given to `fit`
        y_id : array-like of shape (n,)
            Labels of X_id.
        X_unlabeled : like X_id
            Traffic; not the rows the ratio was fitted on.
        pi : float in (0, 1], default=None
            Share of OOD inputs in this traffic where it is known; None estimates it here.
        level : float in (0, 1), default=0.95
            Coverage of each interval.

        Returns
        -------
        evaluation : UnlabeledEvaluation
            TPR and selective risk from the labelled rows; FPR through ``accepted = (1 - pi) TPR + pi FPR``, with the
            uncertainty of pi; SCOD risk from both. Where pi is too small to say anything, FPR says so.
        """
        level = check_number(level, "level", 0.0, 1.0, closed="neither")
        pi = None if pi is None else check_number(pi, "pi", 0.0, 1.0, closed="right")
        known, loss = self._judge(X_id, y_id)
        traffic = self.decide(X_unlabeled)
        return evaluate_unlabeled(
            known.accept,
            loss,
            known.log_ratio,
            traffic.accept,
            traffic.log_ratio,
            self._alpha(),
            level,
            pi,
            loss_values=self._loss_values(),
        )

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return minus a bound of the SCOD risk, label-free: y marks unlabelled rows with -1.

        Parameters
        ----------
        X : like the rows given to `fit`
        y : array-like of shape (n,)
            Labels; -1 marks unlabelled traffic.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            ``-(1 - alpha) R_S - alpha A``, where A is the share of traffic accepted: it bounds FPR whatever the OOD prior is,
            and is the same yardstick for all models. Higher is better, so that GridSearchCV can choose by it. A rule that accepts
            no ID row has the worst score, minus the largest loss.
        """
        labelled, traffic = split_unlabeled(X, y, None)
        weight = check_weight(sample_weight, "sample_weight", n_rows(X), like="X")
        known, loss = self._judge(take(X, labelled), np.asarray(y)[labelled])
        weights = (None, None) if weight is None else (weight[labelled], np.delete(weight, labelled))
        accepted = None if traffic is None else self.decide(traffic).accept
        worst = float(self.problem_.loss_matrix(len(self.classes_)).max())
        return -label_free_risk(known.accept, loss, accepted, weights, self._alpha(), worst)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file without pickle; either the whole file appears or nothing changes.

        Parameters
        ----------
        path : str or path-like
            By convention ``*.poscod``.
        """
        persist.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, trusted: Sequence[str | type] = ()) -> POSCOD:
        """Read a model that `save` has written.

        Parameters
        ----------
        path : str or path-like
        trusted : sequence of str or type, default=()
            Types of other libraries to trust beyond the default list.

        Returns
        -------
        model : POSCOD
        """
        model = persist.load(path, trusted=trusted)
        if not isinstance(model, cls):
            raise InvalidInputError(
                f"{path} holds a {type(model).__name__}, not a POSCOD: read it with poscod.persist.load."
            )
        return model

    def _judge(self, X: Any, y: Any) -> tuple[Decisions, Floats]:
        """Decide on labelled rows and return the losses of the answers."""
        decisions = self.decide(X)
        y = np.asarray(y)
        if len(y) != len(decisions):
            raise InvalidInputError(f"y must have as many rows as X ({len(decisions)}), got {len(y)}.")
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            raise InvalidInputError(
                f"y must hold labels seen at fit, got {y[unknown].tolist()[0]!r}: OOD rows are passed apart."
            )
        truth, answer = (np.searchsorted(self.classes_, labels) for labels in (y, decisions.label))
        return decisions, self.problem_.losses(truth, answer, len(self.classes_))

    def _loss_values(self) -> Floats:
        return np.unique(self.problem_.loss_matrix(len(self.classes_)))

    def _alpha(self) -> float:
        """Relative cost of the current problem; problems without one are judged at the estimator's own."""
        return float(getattr(self.problem_, "alpha", self.alpha))

    def _calibration(self) -> float | int:
        """Check how rows are held out: a share (float) or a number of folds (int)."""
        check_choice(self.threshold, "threshold", {"empirical": 0, "guaranteed": 1})
        check_number(self.delta, "delta", 0.0, 1.0, closed="neither")
        if not isinstance(self.calibration, (int, np.integer)) or isinstance(self.calibration, bool):
            return check_number(self.calibration, "calibration", 0.0, 1.0, closed="neither")
        if self.threshold == "guaranteed":
            raise InvalidInputError(
                "threshold='guaranteed' needs rows that nothing was fitted on: calibration must be a share, got "
                f"{self.calibration} folds."
            )
        return check_count(self.calibration, "calibration", 2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.classifier is None or get_tags(self.classifier).input_tags.sparse
        return tags

    def _check_rows(self, X: Any) -> Any:
        check_is_fitted(self, "threshold_")
        if isinstance(X, Activations) != isinstance(self.classifier_, NetworkHead):
            raise InvalidInputError("X must be of the kind given to fit: Activations or not.")
        if isinstance(X, Activations):
            return X
        X = as_indexable(X)
        if hasattr(self, "n_features_in_") and np.ndim(X) == 1:
            raise InvalidInputError(
                f"X must be two-dimensional, got shape {np.shape(X)}. Reshape your data with X.reshape(1, -1) if it is one row."
            )
        validate_data(self, X, reset=False, skip_check_array=True)
        return X

    def _decide(self, X: Any) -> tuple[NDArray[Any], ...]:
        """Decide on one block of rows, crossing every arrow once."""
        rows = view(self.classifier_, X, with_features=self.uses_features_)
        code, risk = bayes_decision_from_logits(rows.logits, self.problem_.loss, temperature=self.temperature_)
        log_ratio = log_ratio_of(self.ratio_, rows)
        score = rejection_score(risk, log_ratio, self.beta_)
        accept = score <= self.threshold_
        part = np.zeros(len(risk)) if self.beta_ == float("inf") else risk
        return self.classes_[code], accept, rejection_reason(part, score, accept), risk, log_ratio, score

    def _template(self, X: Any) -> Any:
        if isinstance(X, Activations):
            if self.classifier is not None:
                raise InvalidInputError(
                    "classifier must be None with Activations: the network's logits are the classifier."
                )
            return NetworkHead()
        return (
            make_pipeline(StandardScaler(with_mean=False), LogisticRegression(max_iter=1000))
            if self.classifier is None
            else self.classifier
        )

    def _set_problem(self, problem: Problem) -> POSCOD:
        """Solve a problem on the calibration rows."""
        self.problem_ = problem
        rule = fit_rule(problem, self._arrays(problem))
        self.beta_, self.threshold_, self.tau_ = rule.mu, rule.threshold, rule.tau
        return self

    def _arrays(self, problem: Problem) -> CalibrationArrays:
        kept = self.calibration_
        risk, traffic_risk = (
            bayes_decision_from_logits(logits, problem.loss, temperature=self.temperature_).risk
            for logits in (kept.logits, kept.traffic_logits)
        )
        guaranteed = self.threshold == "guaranteed"
        if guaranteed and isinstance(problem, (BoundedProblem, PrecisionProblem)):
            raise InvalidInputError(
                "threshold='guaranteed' does not cover this problem: its slope is chosen on the rows that set the threshold."
            )
        if guaranteed and kept.weight is not None:
            raise InvalidInputError("threshold='guaranteed' takes no sample_weight: a guarantee counts rows.")

        def threshold_of(score: Floats, tpr_min: float, weight: Any = None) -> Any:
            if guaranteed:
                return guaranteed_threshold(score, tpr_min, delta=self.delta)
            return tpr_threshold(score, tpr_min, weight=weight)

        return CalibrationArrays(
            risk, kept.log_ratio, kept.weight, traffic_risk, kept.traffic_log_ratio, self.ood_prior_, threshold_of
        )
