# SPDX-License-Identifier: BSD-3-Clause
"""Residual networks for images of 32 x 32 pixels, with the parameter names of published checkpoints.

Convention: input (n, 3, 32, 32), normalised as the checkpoint wants it; output logits (n, K). Two families: three stages with parameter-free
shortcuts (ResNet-20 ... 110, 64 features, last layer ``linear``) and four stages with projections (ResNet-18, 512 features, last layer
``fc``: OpenOOD's ResNet18_32x32).

References
----------
.. [1] K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from poscod._validation import check_choice, check_count
from poscod.backends.torch._weights import load_weights
from poscod.exceptions import InvalidInputError

Tensor = torch.Tensor


def _three_by_three(planes_in: int, planes: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(planes_in, planes, 3, stride=stride, padding=1, bias=False)


class _Pad(nn.Module):
    """Shortcut without parameters: every second pixel, and zeros for the new channels."""

    def __init__(self, planes_in: int, planes: int) -> None:
        super().__init__()
        self.extra = planes - planes_in

    def forward(self, x: Tensor) -> Tensor:
        side = self.extra // 2
        return nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, side, self.extra - side))


class _Block(nn.Module):
    """Two convolutions around which the input is added."""

    def __init__(self, planes_in: int, planes: int, stride: int, projection: bool) -> None:
        super().__init__()
        self.conv1 = _three_by_three(planes_in, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = _three_by_three(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut: nn.Module = nn.Sequential()
        if stride != 1 or planes_in != planes:
            self.shortcut = (
                nn.Sequential(nn.Conv2d(planes_in, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes))
                if projection
                else _Pad(planes_in, planes)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + self.shortcut(x))


def small_resnet(blocks: tuple[int, ...], width: int, n_classes: int, projection: bool, head: str) -> nn.Sequential:
    """Build a network for small images: blocks of each stage, channels of the first (each doubles them), name of the last layer."""
    network = nn.Sequential(OrderedDict(conv1=_three_by_three(3, width), bn1=nn.BatchNorm2d(width), relu=nn.ReLU()))
    planes_in = width
    for stage, count in enumerate(blocks):
        planes = width * 2**stage
        first = _Block(planes_in, planes, 1 if stage == 0 else 2, projection)
        more = [_Block(planes, planes, 1, projection) for _ in range(count - 1)]
        network.add_module(f"layer{stage + 1}", nn.Sequential(first, *more))
        planes_in = planes
    network.add_module("pool", nn.AdaptiveAvgPool2d(1))
    network.add_module("flatten", nn.Flatten())
    network.add_module(head, nn.Linear(planes_in, n_classes))
    return network


def _torchvision_resnet50(n_classes: int) -> nn.Module:
    try:
        from torchvision.models import resnet50  # type: ignore[import-not-found]
    except ImportError:
        raise InvalidInputError(
            "The network 'resnet50' is torchvision's, which is not installed: install the torchvision that fits your torch."
        ) from None
    network: nn.Module = resnet50(num_classes=n_classes)
    return network


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    **{
        f"resnet{6 * blocks + 2}_32x32": partial(small_resnet, (blocks,) * 3, 16, projection=False, head="linear")
        for blocks in (3, 5, 7, 9, 18)
    },
    "resnet18_32x32": partial(small_resnet, (2, 2, 2, 2), 64, projection=True, head="fc"),
    "resnet50": _torchvision_resnet50,
}
"""Networks by name: how to build one with K classes."""


def build_network(name: str, n_classes: int = 10, weights: Any = None) -> nn.Module:
    """Build a network and, if given, read its weights.

    Parameters
    ----------
    name : str
        "resnet20_32x32", "resnet32_32x32", "resnet44_32x32", "resnet56_32x32", "resnet110_32x32", "resnet18_32x32" (OpenOOD's) or
        "resnet50" (torchvision's, where it is installed).
    n_classes : int, default=10
        Number of classes.
    weights : str or path-like, default=None
        Checkpoint with a value for every parameter: .safetensors, or a state dict of ``torch.save``, read as tensors only.

    Returns
    -------
    network : Module
        In evaluation mode.

    Examples
    --------
    >>> network = build_network("resnet20_32x32", 5)
    >>> tuple(network(torch.zeros(2, 3, 32, 32)).shape)
    (2, 5)
    """
    network = check_choice(name, "name", NETWORKS)(check_count(n_classes, "n_classes", 2))
    return (network if weights is None else load_weights(network, weights)).eval()
