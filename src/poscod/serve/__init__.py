# SPDX-License-Identifier: BSD-3-Clause
"""The rule as an HTTP service: decide, explain, count, log.

Convention: one process, one event loop, a few compute threads. A request holds the model it arrived under until it is
answered, so a new model file never disturbs it. What a caller sends is never written anywhere: logs and metrics hold decisions
and counts, not features. Refusals are one sentence in JSON; infinite numbers in JSON are the largest double.
"""

from poscod.serve._run import create_app, run
from poscod.serve._settings import DEFAULT_LOG, Settings, read_tokens
from poscod.serve._verdicts import read_verdicts

__all__ = ["Settings", "create_app", "run"]
