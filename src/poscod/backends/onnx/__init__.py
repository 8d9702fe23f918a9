# SPDX-License-Identifier: BSD-3-Clause
"""ONNX without torch: activations of an ONNX network, and the whole decision rule as an ONNX graph.

`extract` runs a network with onnxruntime and returns `poscod.Activations`; `export_rule` writes a fitted `poscod.POSCOD` as one graph, alone or
behind the network.
"""

from poscod.backends.onnx._extract import extract
from poscod.backends.onnx._rule import export_rule

__all__ = ["export_rule", "extract"]
