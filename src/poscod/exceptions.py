# SPDX-License-Identifier: BSD-3-Clause
"""Errors and warnings of the library, each with a class a program can catch and with facts it can read.

Convention: a message says which argument, what is allowed, what was received and what to do next. Given with facts it is a
template: ``{name}`` stands for a fact of that name, or else for the name of an argument, so that the shell and the service tell the same
sentence with their own names (`Told.told`). Nobody has to parse a sentence.
"""

from __future__ import annotations

import string
import sys
import warnings
from collections.abc import Mapping
from typing import Any

__all__ = [
    "InfeasibleProblemError",
    "InvalidInputError",
    "MissingExtraError",
    "PoscodError",
    "PoscodWarning",
]


class _Names(dict[str, Any]):
    """Facts by name; any other name is that of an argument and stands for itself."""

    def __missing__(self, name: str) -> str:
        return name


class Told:
    """A sentence with facts, which every speaker tells with the names it uses for arguments."""

    def __init__(self, message: str = "", **facts: Any) -> None:
        self.message, self.facts = message, facts
        super().__init__(self.told({}))  # type: ignore[call-arg]  # an exception follows in the order of bases

    def told(self, names: Mapping[str, str]) -> str:
        """Return the sentence with the names that a speaker uses for arguments.

        Parameters
        ----------
        names : mapping of str to str
            Name of an argument to what the speaker calls it; other names stay as they are. Whoever has names of its own speaks of tables, whose rows
            people count from 1; the fact ``row`` is a position in an array, from 0.

        Returns
        -------
        sentence : str

        Examples
        --------
        >>> error = InvalidInputError("{parameter} must be positive, got {got}: see {delta}.", parameter="alpha", got=-1)
        >>> error.told({"alpha": "--alpha", "delta": "--delta"}), error.facts["got"]
        ('--alpha must be positive, got -1: see --delta.', -1)
        """
        if not self.facts:
            return self.message
        words = _Names({**names, **self.facts})
        if names and "row" in self.facts:
            words["row"] = self.facts["row"] + 1
        if "parameter" in self.facts:
            words["parameter"] = names.get(self.facts["parameter"], self.facts["parameter"])
        return string.Formatter().vformat(self.message, (), words)


class PoscodError(Told, Exception):
    """Base class of every error the library raises on purpose.

    Parameters
    ----------
    message : str, default=""
        The sentence, or its template where facts are given.
    **facts : object
        What the sentence speaks of, for programs: ``error.facts["got"]``.
    """


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

    def __reduce__(self) -> Any:
        return type(self), (self.package, self.extra, self.feature)


class PoscodWarning(Told, UserWarning):
    """Base class of the library's own warnings.

    Parameters
    ----------
    message : str, default=""
        The sentence, or its template where facts are given.
    **facts : object
        What the sentence speaks of, for programs.
    """


def warn_caller(warning: Warning) -> None:
    """Warn at the line outside the package that led here, however deep the check lies."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "poscod":
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)
