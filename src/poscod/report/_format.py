# SPDX-License-Identifier: BSD-3-Clause
"""Numbers as people read them, the same in Python and in the page.

Convention: rounding is half up on the exact binary value, which is what ``Number.toFixed`` does in a browser; what is undefined
is a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

MISSING, MINUS = "\u2013", "\u2212"
_LONGEST, _TOO_LONG = 120, 1e15


def fixed(value: float | None, digits: int = 3) -> str:
    """Return a number with a fixed number of decimals.

    Examples
    --------
    >>> fixed(0.03125, 4), fixed(None) == MISSING
    ('0.0313', True)
    >>> fixed(2.5e120)
    '2.5e+120'
    """
    if value is None or abs(value) >= _TOO_LONG:
        return general(value)
    text = str(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
    return text.replace("-", MINUS) if float(text) != 0.0 else text.replace("-", "")


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share as a percentage.

    Examples
    --------
    >>> percent(0.0625)
    '6.3 %'
    """
    return MISSING if value is None else f"{fixed(value * 100.0, digits)} %"


def count(value: int) -> str:
    """Return a whole number with separators.

    Examples
    --------
    >>> count(100000)
    '100,000'
    """
    return f"{value:,}"


def general(value: float | None) -> str:
    """Return a number of any size with four significant digits; what is infinite or undefined is a dash.

    Examples
    --------
    >>> general(0.000012345), general(12.0)
    ('1.234e-05', '12')
    """
    if value is None:
        return MISSING
    text = f"{abs(value):.4g}"
    return MINUS + text if value < 0 else text


def interval(value: Mapping[str, Any] | None, of: str = "percent", *digits: int) -> str:
    """Return the ends of an interval.

    Examples
    --------
    >>> interval({"low": 0.1, "high": 0.25})
    '10.0 % to 25.0 %'
    """
    if value is None:
        return MISSING
    show = percent if of == "percent" else fixed
    low, high = value["low"], value["high"]
    return f"{show(low, *digits)} to {show(high, *digits) if high is not None else '∞'}"


def shortened(value: Any) -> str:
    """Return a value of the user's as text, cut where it is very long.

    Examples
    --------
    >>> len(shortened("x" * 1000))
    121
    """
    text = MISSING if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def sentence_case(text: str) -> str:
    """Return a text with its first letter in upper case and the rest as it is.

    Examples
    --------
    >>> sentence_case("known (ID)")
    'Known (ID)'
    """
    return text[:1].upper() + text[1:]


def markdown_text(value: Any, *, whole: bool = False) -> str:
    r"""Return a value as literal text inside Markdown: nothing in it starts a table cell, a link or HTML.

    Examples
    --------
    >>> markdown_text("<b>|a|</b>")
    '&lt;b&gt;\\|a\\|&lt;/b&gt;'
    """
    text = " ".join((str(value) if whole else shortened(value)).split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{c}" if c in "\\`*_[]|#!~$" else c for c in text)


_SHOWN = (sentence_case, fixed, percent, count, general, interval, shortened)
FILTERS: dict[str, Callable[..., str]] = {"cell": markdown_text, **{show.__name__: show for show in _SHOWN}}
"""Filters of the templates."""
