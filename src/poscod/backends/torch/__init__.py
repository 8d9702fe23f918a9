# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch networks: their activations, a ratio fine-tuned from them, and small networks for checkpoints of the literature.

`extract` runs a network and returns `poscod.Activations`; `fit_ratio` trains a network, or its last layer, as the likelihood ratio, with
`CorrectedSigmoidLoss`, the paper's likelihood; `odin` is the one score that needs the network itself.
"""

from poscod._optional import require

require("torch", extra="torch", feature="poscod.backends.torch")

from poscod.backends.torch._exported import load_exported  # noqa: E402
from poscod.backends.torch._extract import extract  # noqa: E402
from poscod.backends.torch._fit_ratio import fit_ratio  # noqa: E402
from poscod.backends.torch._loss import CorrectedSigmoidLoss  # noqa: E402
from poscod.backends.torch._network_ratio import NetworkRatio  # noqa: E402
from poscod.backends.torch._odin import odin  # noqa: E402
from poscod.backends.torch._resnet import NETWORKS, build_network  # noqa: E402
from poscod.backends.torch._weights import load_weights  # noqa: E402

__all__ = [
    "CorrectedSigmoidLoss",
    "NetworkRatio",
    "build_network",
    "extract",
    "fit_ratio",
    "odin",
]
