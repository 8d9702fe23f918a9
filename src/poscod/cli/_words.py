# SPDX-License-Identifier: BSD-3-Clause
"""Sentences of the library in the words of the shell: options instead of arguments, tables instead of arrays.

Convention: one list of patterns; a sentence that matches none is left as it is.
"""

from __future__ import annotations

import re

WORDS: tuple[tuple[str, str], ...] = (
    (
        r"X_id and X_unlabeled must have at least (\d+) rows each to be cross-fitted in \d+ folds, got (\d+) and (\d+): .*",
        r"the ratio needs at least \1 labelled rows of its own and \1 unlabelled rows, got \2 and \3 (other labelled rows train the classifier "
        r"or set the threshold): add rows, keep more from the classifier with --calibration 0.8, or use --ratio linear.",
    ),
    (
        r"held-out ID rows, got (\d+): hold out more rows, lower tpr_min or raise delta\.",
        r"held-out labelled rows, got \1: add labelled rows, keep more from the classifier with --calibration 0.8, lower --tpr-min or "
        r"raise --delta.",
    ),
    (
        r"X_unlabeled cannot be told from X_id \((p = [\d.]+)\), .*: (\d+) rows per side show at best an OOD share of ([\d.]+); a share of "
        r"([\d.]+) needs at least (\d+) rows on both sides\.",
        r"the traffic cannot be told from the labelled rows (\1): no strangers, or too few rows. \2 rows on each side show a share of \3 at "
        r"best; a share of \4 needs \5.",
    ),
    (
        r"The joint likelihood does not determine the OOD prior .*",
        "these rows do not determine the share of OOD inputs with --ratio linear: use --ratio strong.",
    ),
    (
        r"raise risk_max or delta, use more ID rows or a better score",
        "raise --max-error or --delta, or fit with more labelled rows",
    ),
    (r"^risk_max must", "--max-error must"),
    (r"^X_unlabeled holds exactly the rows of X:", "the unlabelled table holds exactly the rows of the labelled one:"),
    (r"^y must hold at least two classes", "the column of --target must hold at least two classes"),
    (
        r"^y must hold labels seen at fit, got (.*): OOD rows are passed apart\.",
        r"the rows of --id must hold labels seen at fit, got \1: OOD rows are given with --ood.",
    ),
    (
        r"^y marks (\d+) rows as unlabelled \(-1\) and X_unlabeled is given, too: use one of the two\.",
        r"the column of --target marks \1 rows as unlabelled (-1), and the unlabelled rows are a table of their own: leave those rows out.",
    ),
    (r"add rows or lower calibration", "add rows or lower --calibration"),
    (r"add rows or use folds", "add rows or use folds, e.g. --calibration 5"),
)
"""Pattern of a sentence, or of a part of it, and what the shell says instead."""


def in_shell_words(sentence: str) -> str:
    """Return a sentence of the library as the shell says it.

    Examples
    --------
    >>> in_shell_words("Some class has too few rows to train the classifier: add rows or lower calibration.")
    'Some class has too few rows to train the classifier: add rows or lower --calibration.'
    """
    for pattern, words in WORDS:
        sentence = re.sub(pattern, words, sentence)
    return sentence
