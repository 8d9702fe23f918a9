# SPDX-License-Identifier: BSD-3-Clause
"""A network seen as a maker of features, frozen or trained.

Convention: features are the input of the layer that makes the logits. A frozen network is in evaluation mode, BatchNorm and Dropout
included; of a trained one, BatchNorm keeps the statistics it came with.
"""

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from poscod.backends.torch._batches import Batch, call, to_device
from poscod.backends.torch._last_layer import LastLayer


class Body:
    """Features of a network.

    Parameters
    ----------
    network : Module
    layer : str or None
        The layer that makes the logits; None finds it.
    device : torch.device
        Where the network is.
    trained : bool
        Whether gradients reach the network.
    """

    def __init__(self, network: torch.nn.Module, layer: str | None, device: torch.device, *, trained: bool) -> None:
        self.network, self.device, self.trained = network, device, trained
        self.watch = LastLayer(network, layer)

    def mode(self, training: bool) -> None:
        """Choose training or evaluation mode."""
        self.network.train(training and self.trained)
        for module in self.network.modules():
            if isinstance(module, _BatchNorm):
                module.eval()

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Return the features of a batch."""
        with torch.set_grad_enabled(self.trained and torch.is_grad_enabled()):
            features, _ = self.watch.read(call(self.network, to_device(batch, self.device)))
        return features
