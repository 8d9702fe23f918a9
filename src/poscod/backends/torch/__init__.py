"""PyTorch networks: their activations, a ratio fine-tuned from them, and small networks for checkpoints of the literature.

`extract` runs a network and returns `poscod.Activations`; `CorrectedSigmoidLoss` is the paper's likelihood for any network with one
output; `odin` is the one score that needs the network itself.

SPDX-License-Identifier: BSD-3-Clause
"""

from poscod._optional import require

require("torch", extra="torch", feature="poscod.backends.torch")

from poscod.backends.torch._extract import extract  # noqa: E402
from poscod.backends.torch._loss import CorrectedSigmoidLoss  # noqa: E402
from poscod.backends.torch._odin import odin  # noqa: E402
from poscod.backends.torch._resnet import NETWORKS, build_network  # noqa: E402
from poscod.backends.torch._weights import load_weights  # noqa: E402

__all__ = ["NETWORKS", "CorrectedSigmoidLoss", "build_network", "extract", "load_weights", "odin"]
