# SPDX-License-Identifier: BSD-3-Clause
"""Known worlds and their exact optimum: the theorems of the method as code that can be checked.

`FiniteWorld` and `GaussianWorld` know p_I, p_O and the posterior, so that the optimal selector and its risk are
exact (Theorems 1 and 2). `no_free_lunch` builds the worlds of Theorem 3, `corrected_sigmoid_parameters` the
sigmoid of Theorem 4. docs/theory.md has the proofs and names the test of each.
"""

from poscod.theory._finite import FiniteWorld
from poscod.theory._gaussian import GaussianWorld
from poscod.theory._no_free_lunch import no_free_lunch
from poscod.theory._sigmoid import corrected_sigmoid, corrected_sigmoid_parameters, prior_from_a, source_posterior

__all__ = ["FiniteWorld", "GaussianWorld", "no_free_lunch"]
