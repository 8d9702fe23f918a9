# SPDX-License-Identifier: BSD-3-Clause
"""Warnings of the ratio estimators, each with a class a program can filter."""

from __future__ import annotations

from poscod.exceptions import PoscodWarning


class NoOODEvidenceWarning(PoscodWarning):
    """The mixture cannot be told from ID data: the ID-only rule is used instead of a fitted ratio."""


class UndeterminedPriorWarning(PoscodWarning):
    """The joint likelihood does not determine the prior: its estimate and the scale of the ratio mean nothing."""


class SeenByClassifierWarning(PoscodWarning):
    """The ID rows look like rows the classifier was trained on: thresholds and ratios fitted there do not hold."""


class ClassPriorShiftWarning(PoscodWarning):
    """The mix of classes differs between ID rows and traffic: part of the estimated OOD share may be that shift."""
