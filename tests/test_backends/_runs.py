"""A small training run on made-up images, for the tests and for the processes they start."""

from __future__ import annotations

import json
import sys

import torch
from torch import nn

from poscod.backends.torch import fit_ratio


def network():
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 4),
    )


def images(n_id=150, n_unlabeled=110, pi=0.4):
    generator = torch.Generator().manual_seed(6)
    draw = torch.randn(n_id + n_unlabeled, 3, 8, 8, generator=generator)
    stripes = torch.ones(8, 8) * (torch.arange(8) % 2 * 2 - 1)
    k = round(pi * n_unlabeled)
    draw[n_id : n_id + k] += 0.8 * stripes
    return draw[:n_id], draw[n_id:]


def mirrored(x):
    """Mirror every second image, at random."""
    return torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)


def run(**options):
    torch.set_num_threads(1)
    defaults = {
        "train": "all",
        "augment": mirrored,
        "epochs": 6,
        "batch_size": 40,
        "backbone_learning_rate": 0.001,
        "seed": 3,
    }
    return fit_ratio(network(), *images(), **{**defaults, **options})


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
