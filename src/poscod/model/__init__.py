# SPDX-License-Identifier: BSD-3-Clause
"""The object: `POSCOD`, what it is made of (scorer, schema), how it is measured, and its file.

`_plan` says which labeled row does what, `_fit` fits the `_parts` by shares and `_folds` by cross-fitting, `_scorer` turns rows into r and log g, `_schema` knows what a row is, `_evaluate` and
`_rivals` measure rules on fresh rows, `_file` and `_codec` write and read models. Names below that are not in ``__all__`` are for the package itself.
"""

from poscod.model._again import rows_before, traffic_places
from poscod.model._choices import Choice, choices_of
from poscod.model._codec import read_npy
from poscod.model._drift import ON_DRIFT, InputsDriftedError, InputsDriftedWarning, drift_document, named
from poscod.model._errors import ModelFileError
from poscod.model._estimates import Estimates, estimates_of, share_at_fit
from poscod.model._estimates_words import choices_document, estimates_document
from poscod.model._evaluate import (
    Evaluation,
    Measured,
    Sample,
    UnlabeledEvaluation,
    check_ratio,
    diagnosed,
    estimate_share,
    judge,
    known_codes,
    measure_own,
    measure_promise,
    measured_of,
    mix_for,
    not_still_at_fit,
    read_sample,
    sample_of,
    unlabeled_evaluation_of,
)
from poscod.model._explain import explained
from poscod.model._file import UntrustedTypesError, load, save
from poscod.model._fit import NoUnlabeledDataWarning, check_traffic, fit_on
from poscod.model._groups import NearCopiesWarning
from poscod.model._mix import MIX_ROWS, ClassMixWarning, Seen, fresh_mix
from poscod.model._mix_words import fresh_document, mix_document
from poscod.model._parts import (
    TRAFFIC_ROWS,
    Compared,
    Kept,
    Labeled,
    Unlabeled,
    fit_classifier,
    given_classifier,
    ratio_weights,
    temperature_of,
)
from poscod.model._plan import Keys
from poscod.model._poscod import POSCOD
from poscod.model._prepare import LeftOutWarning, Preparation, left_out, left_out_warning
from poscod.model._range import STEEP, Extent, Guard, Range, extents, join, measured, ranges_of
from poscod.model._rivals import RULES, Competitor, measure, own_rule, required_tpr, rule_at, rules_of
from poscod.model._rows import LEAST_PROBABILITY, ProbabilitiesWarning, chunks, keys_of, n_rows, row_keys, take
from poscod.model._schema import Schema, judged
from poscod.model._scorer import NetworkHead, Scorer, features_of, log_ratio_of, names_of, view
from poscod.model._tally import Tally, tally

__all__ = [
    "POSCOD",
    "ClassMixWarning",
    "Estimates",
    "Evaluation",
    "InputsDriftedWarning",
    "LeftOutWarning",
    "ModelFileError",
    "NearCopiesWarning",
    "NoUnlabeledDataWarning",
    "Schema",
    "UnlabeledEvaluation",
    "UntrustedTypesError",
    "load",
    "save",
]
