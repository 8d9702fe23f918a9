# SPDX-License-Identifier: BSD-3-Clause
"""A network seen as a maker of features, frozen or trained.

Convention: features are the input of the layer that makes the logits. A frozen body is in evaluation mode, BatchNorm and Dropout included; of
a trained one, BatchNorm keeps the statistics it came with unless it is told otherwise.
"""

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from poscod.backends.torch._batches import Batch, call, to_device
from poscod.backends.torch._last_layer import LastLayer

Tensor = torch.Tensor


class Body:
    """Features of a network, or rows that are features already.

    Parameters
    ----------
    model : Module or None
        None: rows are features.
    layer : str, Module or None
        The layer that makes the logits; None finds it.
    device : torch.device
    trained : bool, default=False
        Whether gradients reach the network.
    fixed_norm : bool, default=True
        Whether BatchNorm keeps its statistics.
    """

    def __init__(
        self,
        model: torch.nn.Module | None,
        layer: str | torch.nn.Module | None,
        device: torch.device,
        *,
        trained: bool = False,
        fixed_norm: bool = True,
    ) -> None:
        self.model, self.device, self.trained, self.fixed_norm = model, device, trained, fixed_norm
        self.watch = None if model is None else LastLayer(model, layer)

    @property
    def layer(self) -> str | None:
        """Name of the layer that makes the logits."""
        return None if self.watch is None else self.watch.name

    def close(self) -> None:
        """Stop watching the network."""
        if self.watch is not None:
            self.watch.close()

    def mode(self, training: bool) -> None:
        """Choose training or evaluation mode."""
        if self.model is None:
            return
        self.model.train(training and self.trained)
        if self.fixed_norm:
            for module in self.model.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()

    def parameters(self) -> list[torch.nn.Parameter]:
        """Return the parameters that are trained: all but those of the layer that makes the logits."""
        if self.model is None or not self.trained:
            return []
        last = set() if self.layer is None else set(self.model.get_submodule(self.layer).parameters())
        return [value for value in self.model.parameters() if value.requires_grad and value not in last]

    def __call__(self, batch: Batch) -> Tensor:
        """Return the features of a batch."""
        batch = to_device(batch, self.device)
        if self.model is None or self.watch is None:
            rows: Tensor = batch.args[0]
            return rows
        with torch.set_grad_enabled(self.trained and torch.is_grad_enabled()):
            features, _ = self.watch.read(call(self.model, batch))
        return features
