# SPDX-License-Identifier: BSD-3-Clause
"""POSCOD: one object that answers or abstains.

Convention: after `fit` it consists of four values: ``scorer_`` (rows to r and log g), ``calibration_`` (what thresholds are set on), ``rule_`` (what is
asked and promised) and ``schema_`` (what a row is). Deciding is ``rule_.decide(scorer_.scored(X))``; nothing else knows costs.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from poscod._validation import Floats, refusal
from poscod.activations import Activations
from poscod.decision import Decisions, Scored
from poscod.exceptions import InvalidInputError
from poscod.labels import as_labels
from poscod.mix import ClassMix
from poscod.model import _file
from poscod.model._choosing import label_free_risk
from poscod.model._estimates import Estimates, estimates_of
from poscod.model._evaluate import (
    Evaluation,
    UnlabeledEvaluation,
    measure_own,
    read_sample,
)
from poscod.model._explain import explained
from poscod.model._fit import check_traffic, fit_on
from poscod.model._memory import Memory
from poscod.model._parameters import asked, held_out
from poscod.model._prepare import check_rows, prepared
from poscod.model._rows import as_indexable
from poscod.model._schema import Schema
from poscod.model._shown import ShownModel
from poscod.problem import Budget, Problem, RiskBound, ScodProblem
from poscod.rule import Rule
from poscod.selector import solve


class POSCOD(ShownModel, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier with an optimal reject option, learned from labeled ID rows and unlabeled traffic.

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
    problem : Problem, default=None
        Any problem of `poscod.problem`, instead of alpha, tpr_min and loss, which are the short way to say ``ScodProblem``.
    threshold : {"empirical", "guaranteed"}, default="empirical"
        "empirical" is the order statistic; "guaranteed" reaches TPR >= tpr_min with probability 1 - delta.
    tpr_over : {"all", "classes"}, default="all"
        What tpr_min is asked of. "classes": the ID inputs of *every* class, so that no class mix has a smaller TPR; with threshold="guaranteed"
        all classes reach it at once with probability 1 - delta. A class with too few rows for that is named in a refusal.
    class_mix : "auto", "labeled" or array-like of shape (K,), default="auto"
        Class mix of the ID inputs that the model serves. "auto" estimates that of the ID part of the traffic, together with the OOD share: where it is
        found to differ from that of the labeled rows (a test at level 0.05), answers, r, g and the threshold are those for the traffic's mix. "labeled"
        serves the mix of the labeled rows. An array is a known mix, in the order of ``classes_``.
    on_drift : {"warn", "id_only", "raise"}, default="warn"
        What is done where known inputs of the traffic seem to have moved, or cannot be told from OOD inputs (`InputsDriftedWarning`): unlabeled rows alone
        never tell with certainty. "id_only" learns nothing from that traffic; "raise" refuses it.
    prepare : {"auto", "always", "never"}, default="auto"
        Whether a data frame with gaps, texts or categories becomes numbers before classifier and ratio see it: gaps the middle of the labeled rows and a column
        that says so, categories one column per frequent level; levels never seen are evidence of OOD. "auto": unless the classifier is frozen, has a pipeline, or
        was told of categories. Frames of numbers without gaps are taken as they are.
    delta : float in (0, 1), default=0.05
        Error probability of the guarantee.
    calibration : "auto", float in (0, 1) or int >= 2, default="auto"
        Which labeled rows do what. "auto" cross-fits in five folds: every labeled row trains the classifier, fits g and sets the threshold, scored by
        a classifier and a ratio that have not seen it. With threshold="guaranteed" (or a `RiskBound`) a share of the rows only sets the
        threshold, a quarter of them, or half with `Activations` or a frozen classifier, and the rest is cross-fitted. A number: that many folds. A
        share: that part is kept from the classifier; one half of it calibrates r and fits g, the other sets the threshold. "auto" is the share
        0.5 on Dask, and where a pipeline makes features of texts or categories that depend on the rows it was fitted on.
    reject_label : object, default=-1
        What `predict` returns where it abstains, none of the classes; -1 is the word "rejected" where the classes are texts.
    random_state : int, RandomState or None, default=None
        Splits the labeled rows. Folds depend on it and on what rows hold, not on their order.

    Attributes
    ----------
    rule_ : Rule
        What was asked, slope, threshold, and what is promised; ``print(model.rule_)`` says it in a sentence.
    scorer_ : Scorer
        The fitted parts: classifier, temperature, ratio.
    calibration_ : Calibration
        Rows that thresholds are set on.
    schema_ : Schema
        What a row is.
    classes_ : ndarray of shape (K,)
        Labels.
    classifier_, ratio_ : estimator
        Fitted parts of ``scorer_``; the ratio is None without unlabeled rows.
    ood_prior_ : float
        Estimated share of OOD rows in the traffic.
    class_prior_, traffic_class_prior_ : ndarray of shape (K,)
        Shares of the classes among the labeled rows, and among the ID inputs that the model serves.
    threshold_, beta_ : float
        Threshold lambda and slope of ``rule_``.

    Notes
    -----
    All labeled rows given with `Activations` or a frozen classifier must be rows the classifier was **not** trained on. A
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
        problem: Problem | None = None,
        threshold: str = "empirical",
        tpr_over: str = "all",
        class_mix: Any = "auto",
        on_drift: str = "warn",
        prepare: str = "auto",
        delta: float = 0.05,
        calibration: float | str = "auto",
        reject_label: Any = -1,
        random_state: Any = None,
    ) -> None:
        self.classifier = classifier
        self.ratio = ratio
        self.alpha = alpha
        self.tpr_min = tpr_min
        self.loss = loss
        self.problem = problem
        self.threshold = threshold
        self.tpr_over = tpr_over
        self.class_mix = class_mix
        self.on_drift = on_drift
        self.prepare = prepare
        self.delta = delta
        self.calibration = calibration
        self.reject_label = reject_label
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        X_unlabeled: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        groups_unlabeled: Any = None,
        X_reviewed: Any = None,
        y_reviewed: Any = None,
    ) -> POSCOD:
        """Learn classifier, ratio and threshold.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or Activations of n rows
            Labeled rows; rows whose label is -1 ("-1" among texts) are the unlabeled traffic.
        y : array-like of shape (n,), default=None
            Labels: numbers, texts or booleans, in an array, a list, or a column of pandas or polars. None takes the labels of `Activations`.
        X_unlabeled : like X, default=None
            The traffic, where it is not marked in y.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows of X.
        groups : array-like of shape (n,), default=None
            Group of each row of X, such as user, session, patient or original: whatever has rows that are alike beyond what they have in common with all
            others. A group is never on two sides of a split, errors are counted by groups, and a threshold is for a random row of a fresh group. None or
            NaN: a group of its own. Without groups, near-copies among labeled rows are looked for.
        groups_unlabeled : array-like of shape (m,), default=None
            Group of each row of X_unlabeled; one that occurs in `groups`, too, is the same one.
        X_reviewed : like X, default=None
            Rows of the traffic that people have looked at, chosen by what they hold and by chance (`poscod.review.queue`), not by what they turned out to be.
            They may be among X_unlabeled, too.
        y_reviewed : array-like of shape (k,), default=None
            Their verdicts: a class, `poscod.OOD`, or None where nobody has said anything. They correct g and the OOD share, calibrate r, and settle drift.

        Returns
        -------
        self : POSCOD
        """
        asked(self)
        held_out(self)
        if isinstance(X, Activations):
            y = X.need("labels", caller="POSCOD.fit without y") if y is None else y
        else:
            X = as_indexable(X)
            if y is None:
                raise InvalidInputError(
                    "POSCOD requires y to be passed, but the target y is None: mark unlabeled rows with -1."
                )
        traffic = check_traffic(X, X_unlabeled)
        traffic, reviewed = (
            None if traffic is None else as_indexable(traffic),
            check_traffic(X, X_reviewed, "X_reviewed"),
        )
        rows = prepared(self.prepare, self.classifier, X, y, traffic, reviewed)
        engine = Memory(rows.X, rows.traffic, () if rows.preparation is None else rows.preparation.unseen)
        looked = rows.reviewed, y_reviewed
        return fit_on(
            self,
            engine,
            y,
            sample_weight,
            (groups, groups_unlabeled),
            looked,
            X if rows.preparation else rows.X,
            rows.preparation,
        )

    def decide(self, X: Any, *, explain: bool = False) -> Decisions:
        """Answer or abstain, and say why.

        Parameters
        ----------
        X : like the rows given to `fit`
            Inputs, of the kind given to `fit`.
        explain : bool, default=False
            Whether to say what makes an input unfamiliar: at most three columns, each with its value and what similar labeled rows hold; for a network's
            features and for texts the nearest labeled row (counted from 1) and the evidence that is unlike that of labeled rows.

        Returns
        -------
        decisions : Decisions
            Columns label, accept, reason, risk, log_ratio, score, and detail where it was asked for.
        """
        X = self._check_rows(X)
        decisions = self.rule_.decide(self.scorer_.scored(X, self.rule_.problem.loss))
        return explained(self.scorer_, self.schema_, X, decisions) if explain else decisions

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each input, or `reject_label`.

        Parameters
        ----------
        X : like the rows given to `fit`
            Inputs, of the kind given to `fit`.

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
            Inputs, of the kind given to `fit`.

        Returns
        -------
        label : ndarray of shape (n,)
        """
        return self._scored(X).label

    def predict_proba(self, X: Any) -> Floats:
        """Return the calibrated posterior p(y | x) of ID inputs, for the class mix that the model serves.

        Parameters
        ----------
        X : like the rows given to `fit`
            Inputs, of the kind given to `fit`.

        Returns
        -------
        posterior : ndarray of shape (n, K)
        """
        X = self._check_rows(X)
        return self.scorer_.posterior(X)

    def conditional_risk(self, X: Any) -> Floats:
        """Return r(x), the expected loss of the answer.

        Parameters
        ----------
        X : like the rows given to `fit`
            Inputs, of the kind given to `fit`.

        Returns
        -------
        risk : ndarray of shape (n,)
        """
        return self._scored(X).risk

    def log_ratio(self, X: Any) -> Floats:
        """Return log g(x); -inf everywhere without unlabeled rows at fit.

        Parameters
        ----------
        X : like the rows given to `fit`
            Inputs, of the kind given to `fit`.

        Returns
        -------
        log_ratio : ndarray of shape (n,)
        """
        return self._scored(X).log_ratio

    def rejection_score(self, X: Any) -> Floats:
        """Return s(x) = r(x) + beta g(x).

        Parameters
        ----------
        X : like the rows given to `fit`
            Inputs, of the kind given to `fit`.

        Returns
        -------
        score : ndarray of shape (n,)
        """
        scored = self._scored(X)
        return self.rule_.score(scored)

    def acceptance_margin(self, X: Any) -> Floats:
        """Return threshold_ - s(x), the margin of accepting; accepted where it is >= 0.

        Parameters
        ----------
        X : like the rows given to `fit`
            Inputs, of the kind given to `fit`.

        Returns
        -------
        margin : ndarray of shape (n,)
        """
        score = self.rejection_score(X)
        return self.rule_.threshold - score

    def with_rule(self, problem: Problem, *, rules: int | None = None) -> POSCOD:
        """Return the same r and g under another problem: a new line, nothing is fitted again.

        Parameters
        ----------
        problem : Problem
            Any problem of `poscod.problem`: another ScodProblem, a Budget, a RiskBound, costs, ...
        rules : int, default=None
            Number of rules that are compared before one is chosen. A guarantee then holds for all of them at once, at delta / rules
            each; a rule that was picked among several by a look at the traffic has no other guarantee. None keeps the number of the current
            rule, 1 after a fit.

        Returns
        -------
        model : POSCOD
            Shares the fitted parts with this one; clones of it ask for the same problem.
        """
        check_is_fitted(self, "rule_")
        model: POSCOD = copy.copy(self)
        model._ask(problem)
        current = self.rule_.promise
        compared = rules if rules is not None else 1 if current is None else current.rules
        model.rule_ = self._solve(problem, rules=compared, chosen_later=True)
        return model

    def at(
        self, *, alpha: float | None = None, tpr_min: float | None = None, loss: Any = None, rules: int | None = None
    ) -> POSCOD:
        """Return the same r and g at other costs: the current problem with some of its parameters changed.

        Parameters
        ----------
        alpha, tpr_min : float, default=None
            None keeps the value.
        loss : {"zero_one", "absolute"} or array-like of shape (K, K), default=None
            None keeps the loss.
        rules : int, default=None
            See `with_rule`.

        Returns
        -------
        model : POSCOD
            Shares the fitted parts with this one.
        """
        check_is_fitted(self, "rule_")
        given = {"alpha": alpha, "tpr_min": tpr_min, "loss": loss}
        changes = {name: value for name, value in given.items() if value is not None}
        return self.with_rule(self.rule_.problem.replace(**changes), rules=rules)

    def budget(self, share: float) -> POSCOD:
        """Return the model that rejects a given share of the traffic seen at fit.

        Parameters
        ----------
        share : float in [0, 1)
            What can be reviewed, e.g. 0.02 for 200 of 10,000.

        Returns
        -------
        model : POSCOD
            The same ranking of inputs, another threshold.
        """
        return self.with_rule(Budget(share, self._ranking()))

    def control_risk(
        self, risk_max: float, *, delta: float = 0.05, method: str = "fixed_sequence", rules: int | None = None
    ) -> POSCOD:
        """Return the model with the loosest threshold whose selective risk is at most risk_max with probability 1 - delta.

        Parameters
        ----------
        risk_max : float
            Largest allowed mean loss on accepted ID inputs.
        delta : float in (0, 1), default=0.05
            Error probability, over the draw of the calibration rows.
        method : {"fixed_sequence", "sgr"}, default="fixed_sequence"
            See `poscod.selector.risk_controlled_threshold`.
        rules : int, default=None
            See `with_rule`.

        Returns
        -------
        model : POSCOD
            The same ranking of inputs, another threshold. TPR is what it comes out as.
        """
        return self.with_rule(RiskBound(risk_max, delta, method, self._ranking()), rules=rules)

    def with_schema(self, schema: Schema) -> POSCOD:
        """Return the same model with names for its columns and classes.

        Parameters
        ----------
        schema : Schema
            Rows of the same kind and width as those given to `fit`.

        Returns
        -------
        model : POSCOD
        """
        check_is_fitted(self, "rule_")
        own = self.schema_
        if (schema.kind, schema.n_features, schema.n_logits) != (own.kind, own.n_features, own.n_logits):
            raise refusal(
                "schema",
                "must describe rows like those given to fit ({allowed}), got {got}.",
                allowed=own.words,
                got=schema.words,
            )
        model: POSCOD = copy.copy(self)
        model.schema_ = schema
        return model

    def estimates(self, *, level: float = 0.95) -> Estimates:
        """Return what the rule is expected to do, from the rows that the model keeps of its fit and without OOD labels.

        Parameters
        ----------
        level : float in (0, 1), default=0.95
            Coverage of each interval.

        Returns
        -------
        estimates : Estimates
            Accuracy of the classifier, TPR, FPR, error of the answers, wrong answers caught, workload and price, with intervals.

        Notes
        -----
        Fresh rows say more (`evaluate`, `evaluate_unlabeled`): these ones have set the threshold.
        """
        check_is_fitted(self, "rule_")
        return estimates_of(self, level)

    def evaluate(
        self, X_id: Any, y_id: Any, X_ood: Any, *, level: float = 0.95, class_mix: str = "traffic"
    ) -> Evaluation:
        """Measure the rule on fresh labeled ID rows and clean OOD rows.

        Parameters
        ----------
        X_id : like the rows given to `fit`
            Inputs, of the kind given to `fit`.
        y_id : array-like of shape (n,)
            Labels of X_id.
        X_ood : like X_id
            Clean OOD rows.
        level : float in (0, 1), default=0.95
            Coverage of each interval.
        class_mix : {"traffic", "labeled"}, default="traffic"
            Class mix of the ID inputs that rates are for. "traffic" is the one that the model serves, whatever that of X_id is, where the traffic of the fit
            was found to have another one than the labeled rows; where it was not, and with "labeled", rows of X_id are taken as they come.

        Returns
        -------
        evaluation : Evaluation
            TPR, FPR, selective risk and SCOD risk with intervals.
        """
        sample = read_sample(self, X_id, y_id, X_ood, None, level=level, class_mix=class_mix)
        return cast(Evaluation, measure_own(sample).with_ood)

    def evaluate_unlabeled(
        self,
        X_id: Any,
        y_id: Any,
        X_unlabeled: Any,
        *,
        pi: float | None = None,
        level: float = 0.95,
        class_mix: str = "traffic",
    ) -> UnlabeledEvaluation:
        """Measure the rule without any OOD label, on fresh labeled ID rows and fresh traffic.

        Parameters
        ----------
        X_id : like the rows given to `fit`
            Inputs, of the kind given to `fit`.
        y_id : array-like of shape (n,)
            Labels of X_id.
        X_unlabeled : like X_id
            Traffic; not the rows the ratio was fitted on.
        pi : float in (0, 1], default=None
            Share of OOD inputs in this traffic where it is known; None estimates it here.
        level : float in (0, 1), default=0.95
            Coverage of each interval.
        class_mix : {"traffic", "labeled"}, default="traffic"
            Class mix of the ID inputs that rates are for: that of this traffic, estimated here where a test says that it is not the one the model serves,
            or that of X_id as it comes.

        Returns
        -------
        evaluation : UnlabeledEvaluation
            TPR and selective risk from the labeled rows; FPR through ``accepted = (1 - pi) TPR + pi FPR``, with the
            uncertainty of pi; SCOD risk from both. Where pi is too small to say anything, FPR says so.

        Notes
        -----
        FPR, SCOD risk and the lower end of the OOD share rest on known inputs of the traffic that are like X_id. Where they seem to have moved, or may have, or X_id looks like rows that a
        given classifier was trained on, these are withdrawn: FPR is at most the share accepted (``fpr.upper_any_prior``), the share may be 0, and ``fpr.reason`` says why.
        """
        sample = read_sample(self, X_id, y_id, None, X_unlabeled, pi=pi, level=level, class_mix=class_mix)
        return cast(UnlabeledEvaluation, measure_own(sample).without)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return minus a bound of the SCOD risk, label-free: y marks unlabeled rows with -1.

        Parameters
        ----------
        X : like the rows given to `fit`
            Inputs, of the kind given to `fit`.
        y : array-like of shape (n,)
            Labels; -1 ("-1" among texts) marks unlabeled traffic.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            ``-(1 - alpha) R_S - alpha A``, where A is the share of traffic accepted: it bounds FPR whatever the OOD prior is.
            Higher is better, so that GridSearchCV can choose by it among models of one problem; alpha, loss and problem are the
            yardstick itself and cannot be chosen by it. A rule that accepts no ID row has the worst score, minus the largest loss.
        """
        return -label_free_risk(self, as_indexable(X), as_labels(y), sample_weight)

    def save(self, path: str | os.PathLike[str]) -> list[str]:
        """Write the model to a file without pickle; either the whole file appears or nothing changes.

        Parameters
        ----------
        path : str or path-like
            By convention ``*.poscod``.

        Returns
        -------
        types : list of str
            Types of other libraries that a reader has to trust by name, mostly none; see `load`.
        """
        return _file.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str] | BinaryIO, *, trusted: Sequence[str | type] = ()) -> POSCOD:
        """Read a model that `save` has written.

        Parameters
        ----------
        path : str or path-like
            File to read.
        trusted : sequence of str or type, default=()
            Types of other libraries to trust beyond the default list.

        Returns
        -------
        model : POSCOD
        """
        model = _file.load(path, trusted=trusted)
        if not isinstance(model, cls):
            raise InvalidInputError(
                f"{path} holds a {type(model).__name__}, not a POSCOD: read it with poscod.model.load."
            )
        return model

    @property
    def classifier_(self) -> Any:
        """The fitted classifier."""
        return self.scorer_.classifier

    @property
    def ratio_(self) -> Any:
        """The fitted ratio; None without unlabeled rows."""
        return self.scorer_.ratio

    @property
    def ood_prior_(self) -> float:
        """Estimated share of OOD rows in the traffic."""
        return self.calibration_.ood_prior

    @property
    def class_prior_(self) -> Floats:
        """Shares of the classes among the labeled rows."""
        return self._mix().labeled

    @property
    def traffic_class_prior_(self) -> Floats:
        """Shares of the classes among the ID inputs that the model serves."""
        return self._mix().traffic

    @property
    def threshold_(self) -> float:
        """Threshold lambda of the rule."""
        return self.rule_.threshold

    @property
    def beta_(self) -> float:
        """Slope of the rule."""
        return self.rule_.slope

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.classifier is None or get_tags(self.classifier).input_tags.sparse
        return tags

    def _mix(self) -> ClassMix:
        """Return the class mix; that of the calibration rows in models of earlier versions."""
        rows = self.calibration_
        return (
            ClassMix.unchanged(np.bincount(rows.codes, rows.weight, len(rows.classes)))
            if rows.mix is None
            else rows.mix
        )

    def _scored(self, X: Any) -> Scored:
        X = self._check_rows(X)
        return self.scorer_.scored(X, self.rule_.problem.loss)

    def _check_rows(self, X: Any) -> Any:
        check_is_fitted(self, "rule_")
        return check_rows(self, X)

    def _ask(self, problem: Problem) -> None:
        """Set the parameters so that a refit asks for a problem."""
        short = problem if type(problem) is ScodProblem else ScodProblem()
        self.alpha, self.tpr_min, self.loss = short.alpha, short.tpr_min, short.loss
        self.problem = None if short is problem else problem

    def _ranking(self) -> Problem:
        """Return the problem by which inputs are ranked now."""
        check_is_fitted(self, "rule_")
        return getattr(self.rule_.problem, "ranking", self.rule_.problem)

    def _solve(self, problem: Problem, *, rules: int = 1, chosen_later: bool = False) -> Rule:
        """Solve a problem on the calibration rows, with a guarantee where the parameters ask for one."""
        delta = self.delta if self.threshold == "guaranteed" else None
        how: dict[str, Any] = {"rules": rules, "chosen_later": chosen_later, "tpr_over": self.tpr_over}
        return solve(problem, self.calibration_, delta=delta, **how)
