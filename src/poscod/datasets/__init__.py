# SPDX-License-Identifier: BSD-3-Clause
"""Data in: files of other programs as values of this library.

`read_openood` and `read_fd_shifts` import what peers wrote, `read_activations` plain arrays and tables. Scores become uncertainties
(higher = reject sooner) once, on import, and the caller says which direction the file has. Pickles are read by `read_pickle`, which executes
nothing. `load_open_digits` is real data that needs no file.
"""

from poscod.datasets._digits import OpenDigits, load_open_digits
from poscod.datasets._fd_shifts import read_fd_shifts
from poscod.datasets._openood import read_openood
from poscod.datasets._pickles import read_pickle
from poscod.datasets._plain import read_activations
from poscod.datasets._score_table import ScoreTable, check_aligned

__all__ = ["ScoreTable", "load_open_digits", "read_activations", "read_fd_shifts", "read_openood", "read_pickle"]
