# SPDX-License-Identifier: BSD-3-Clause
"""Bridges to other runtimes: `poscod.backends.torch` and `poscod.backends.onnx`; `poscod.backends.mlflow` logs models.

Convention: nothing inside the library imports a backend, and a backend is imported by name, because it loads its package. Both turn
a network into `poscod.Activations`; from there on everything is numpy.
"""
