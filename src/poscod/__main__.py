# SPDX-License-Identifier: BSD-3-Clause
"""Run the command line with ``python -m poscod``."""

import sys

from poscod.cli import main

if __name__ == "__main__":
    sys.exit(main())
