# SPDX-License-Identifier: BSD-3-Clause
"""What another library says is wrong, short enough for a sentence of ours."""

from __future__ import annotations


def reason(error: Exception) -> str:
    r"""Return the first line of an error without its full stop, or its kind where it says nothing.

    Examples
    --------
    >>> reason(ValueError("no such layer.\nStack: ...")), reason(KeyError())
    ('no such layer', 'KeyError')
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
