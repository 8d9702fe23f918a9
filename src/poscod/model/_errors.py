# SPDX-License-Identifier: BSD-3-Clause
"""The error of files that hold no model.

Convention: whatever reads a part of a model file raises this one, with what follows the name of the file.
"""

from __future__ import annotations

from poscod.exceptions import InvalidInputError


class ModelFileError(InvalidInputError):
    """A file is not a model of this library, is damaged, or holds something that is not trusted."""
