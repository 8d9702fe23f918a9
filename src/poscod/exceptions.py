# SPDX-License-Identifier: BSD-3-Clause
"""Errors and warnings of the library, each with a class a program can catch.

Convention: a message says which argument, what is allowed, what was received and what to do next.
"""

import sys
import warnings

from sklearn.exceptions import UndefinedMetricWarning

__all__ = [
    "InfeasibleProblemError",
    "InvalidInputError",
    "MissingExtraError",
    "PoscodError",
    "PoscodWarning",
    "UndefinedMetricWarning",
]


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line outside the package that led here, however deep the check lies."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "poscod":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class PoscodError(Exception):
    """Base class of every error the library raises on purpose."""


class InvalidInputError(PoscodError, ValueError):
    """An argument is outside what is allowed."""


class InfeasibleProblemError(PoscodError, ValueError):
    """The arguments are fine one by one, but no selector satisfies them together."""


class MissingExtraError(PoscodError, ImportError):
    """A feature needs a package that is installed with an extra.

    Parameters
    ----------
    package : str
        Name of the package that could not be imported.
    extra : str
        Extra of poscod that installs it.
    feature : str
        What the caller wanted to do, as the subject of the sentence.
    """

    def __init__(self, package: str, extra: str, feature: str) -> None:
        self.package, self.extra, self.feature = package, extra, feature
        super().__init__(
            f"{feature} needs the package '{package}', which is not installed: install poscod with its extra '{extra}' "
            f"(in a clone of the project: `pip install '.[{extra}]'`)."
        )


class PoscodWarning(UserWarning):
    """Base class of the library's own warnings."""
