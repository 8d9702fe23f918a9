# SPDX-License-Identifier: BSD-3-Clause
"""What the shell calls the arguments of the library: options and tables. Errors and warnings are told with these names."""

_SAME = (
    "aim alpha amp audit backbone batch_size calibration class_mix classifier crop delta dtype false_alarm layer level loss max_points max_tokens missing on_drift "
    "ood_limit pi precision probabilities ratio reject_label resize sample_rows threshold tpr_min tpr_over unseen_share window"
)
NAMES: dict[str, str] = {
    **{name: f"--{name.replace('_', '-')}" for name in _SAME.split()},
    "X": "the labeled table",
    "X_id": "the labeled rows that the ratio sees",
    "X_ood": "--ood",
    "X_reviewed": "--reviewed",
    "X_unlabeled": "the unlabeled table",
    "answer": "--answer",
    "at": "the column of --time",
    "created": "--calibrated",
    "groups": "--group",
    "groups_unlabeled": "--group",
    "l2": "l2 in Python",
    "max_columns": "--columns",
    "n": "-n",
    "n_examples": "--examples",
    "ood_prior": "ood_prior in Python",
    "ood_prior_": "the OOD share",
    "random_state": "--seed",
    "recipe": "--ratio",
    "risk_max": "--max-error",
    "score": "the column of --risk-column or --confidence-column",
    "share": "--budget",
    "texts": "the column of --text",
    "with_rule": "POSCOD.with_rule in Python",
    "y": "the column of --target",
    "y_reviewed": "the column of --verdict",
}
"""Name of an argument to what the shell calls it."""
