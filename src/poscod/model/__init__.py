# SPDX-License-Identifier: BSD-3-Clause
"""The object: `POSCOD`, what it is made of (scorer, schema), how it is measured, and its file.

`_plan` says which labelled row does what, `_fit` fits the parts, `_scorer` turns rows into r and log g, `_schema` knows what a row is, `_evaluate` and
`_rivals` measure rules on fresh rows, `_file` and `_codec` write and read models. Names below that are not in ``__all__`` are for the package itself.
"""

from poscod.model._codec import ModelFileError
from poscod.model._codec import read_npy as read_npy
from poscod.model._evaluate import Evaluation, UnlabeledEvaluation
from poscod.model._evaluate import Measured as Measured
from poscod.model._evaluate import Sample as Sample
from poscod.model._evaluate import Tally as Tally
from poscod.model._evaluate import check_ratio as check_ratio
from poscod.model._evaluate import codes_of as codes_of
from poscod.model._evaluate import diagnosed as diagnosed
from poscod.model._evaluate import estimate_share as estimate_share
from poscod.model._evaluate import evaluation_of as evaluation_of
from poscod.model._evaluate import judge as judge
from poscod.model._evaluate import loss_values_of as loss_values_of
from poscod.model._evaluate import measure_masks as measure_masks
from poscod.model._evaluate import measure_own as measure_own
from poscod.model._evaluate import measured_of as measured_of
from poscod.model._evaluate import read_sample as read_sample
from poscod.model._evaluate import sample_of as sample_of
from poscod.model._evaluate import share_of as share_of
from poscod.model._evaluate import tally as tally
from poscod.model._evaluate import unlabeled_evaluation_of as unlabeled_evaluation_of
from poscod.model._file import UntrustedTypesError, load, save
from poscod.model._fit import Engine as Engine
from poscod.model._fit import Kept as Kept
from poscod.model._fit import Labeled as Labeled
from poscod.model._fit import NoUnlabeledDataWarning
from poscod.model._fit import fit_classifier as fit_classifier
from poscod.model._fit import fit_on as fit_on
from poscod.model._fit import given_classifier as given_classifier
from poscod.model._fit import ratio_weights as ratio_weights
from poscod.model._fit import temperature_of as temperature_of
from poscod.model._poscod import POSCOD
from poscod.model._rivals import RULES as RULES
from poscod.model._rivals import Competitor as Competitor
from poscod.model._rivals import measure as measure
from poscod.model._rivals import own_rule as own_rule
from poscod.model._rivals import required_tpr as required_tpr
from poscod.model._rivals import rule_at as rule_at
from poscod.model._rivals import rules_of as rules_of
from poscod.model._rows import LEAST_PROBABILITY as LEAST_PROBABILITY
from poscod.model._rows import n_rows as n_rows
from poscod.model._rows import take as take
from poscod.model._schema import Schema
from poscod.model._schema import listed as listed
from poscod.model._scorer import NetworkHead as NetworkHead
from poscod.model._scorer import Scorer
from poscod.model._scorer import features_of as features_of
from poscod.model._scorer import log_ratio_of as log_ratio_of
from poscod.model._scorer import unchecked as unchecked
from poscod.model._scorer import view as view

__all__ = [
    "POSCOD",
    "Evaluation",
    "ModelFileError",
    "NoUnlabeledDataWarning",
    "Schema",
    "Scorer",
    "UnlabeledEvaluation",
    "UntrustedTypesError",
    "load",
    "save",
]
