# SPDX-License-Identifier: BSD-3-Clause
"""Augmentation of images whose randomness belongs to the row, not to the process.

Convention: parameters are drawn for a whole batch from a generator, then applied to any part of it: several processes that share a batch see
what one process would see. Rotation, resized crop and mirror are one affine map, so pixels are interpolated once.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch

from poscod._optional import require
from poscod._validation import check_choice
from poscod.backends.images import NORMALISATIONS
from poscod.exceptions import InvalidInputError

Tensor = torch.Tensor
JITTER = ("brightness", "contrast", "saturation", "hue")


@dataclass(frozen=True)
class Augmentation:
    """Random rotation, resized crop, mirror and, optionally, colours.

    Parameters
    ----------
    rotation : float, default=20.0
        Largest angle in degrees.
    area : tuple of float, default=(0.5, 1.0)
        Smallest and largest share of the image's area that is cut out and resized to the whole.
    aspect : tuple of float, default=(0.75, 1.3333333333333333)
        Smallest and largest ratio of width to height of what is cut out.
    mirror : bool, default=True
        Whether every second image is mirrored.
    brightness, contrast, saturation, hue : float, default=0.0
        Largest relative change (largest shift as a share of the colour circle, for hue); 0 leaves colours alone.
    mean, std : tuple of float
        By which the images were normalised; needed to change colours.

    Notes
    -----
    The paper names rotations up to 20 degrees, resized crops, mirroring and, for ImageNet, the four changes of colour; their strengths
    other than the angle are not printed and are choices made here.
    """

    rotation: float = 20.0
    area: tuple[float, float] = (0.5, 1.0)
    aspect: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0)
    mirror: bool = True
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    mean: tuple[float, ...] = NORMALISATIONS["imagenet"][0]
    std: tuple[float, ...] = NORMALISATIONS["imagenet"][1]

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw uniform numbers for n images.

        Parameters
        ----------
        n : int
        generator : torch.Generator

        Returns
        -------
        numbers : Tensor of shape (n, 10)
        """
        return torch.rand(n, 10, generator=generator)

    def apply(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Change images by the numbers drawn for them.

        Parameters
        ----------
        images : Tensor of shape (n, channels, height, width)
        numbers : Tensor of shape (n, 10)

        Returns
        -------
        images : Tensor of the same shape
        """
        if images.ndim != 4 or not images.is_floating_point():
            raise InvalidInputError(
                f"augment needs images of shape (n, channels, height, width), got {tuple(images.shape)}: pass augment=None."
            )
        numbers = numbers.to(images.device, images.dtype)
        grid = torch.nn.functional.affine_grid(self._maps(numbers, images), list(images.shape), align_corners=False)
        images = torch.nn.functional.grid_sample(
            images, grid, mode="bilinear", padding_mode="reflection", align_corners=False
        )
        return self._colour(images, numbers) if any(getattr(self, name) for name in JITTER) else images

    def _maps(self, numbers: Tensor, images: Tensor) -> Tensor:
        """Return, for each image, the affine map from its new coordinates to its old ones."""
        height, width = images.shape[2:]
        angle = torch.deg2rad((2.0 * numbers[:, 0] - 1.0) * self.rotation)
        area = self.area[0] + numbers[:, 1] * (self.area[1] - self.area[0])
        low, high = (math.log(value) for value in self.aspect)
        aspect = torch.exp(low + numbers[:, 2] * (high - low))
        across = torch.sqrt(area * aspect).clamp(max=1.0)
        down = torch.sqrt(area / aspect).clamp(max=1.0)
        left, top = (1.0 - across) * (2.0 * numbers[:, 3] - 1.0), (1.0 - down) * (2.0 * numbers[:, 4] - 1.0)
        flip = torch.where(numbers[:, 5] < 0.5, -1.0, 1.0) if self.mirror else torch.ones_like(angle)
        cos, sin = torch.cos(angle), torch.sin(angle)
        # Coordinates run from -1 to 1 along either side: an angle is an angle only in pixels.
        first = torch.stack([cos * across * flip, -sin * down * (height / width), left], dim=1)
        second = torch.stack([sin * across * flip * (width / height), cos * down, top], dim=1)
        return torch.stack([first, second], dim=1)

    def _colour(self, images: Tensor, numbers: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # kornia is imported in ways that torch has left behind
            enhance: Any = require("kornia.enhance", extra="torch", feature="Changing colours")
        shape = (1, images.shape[1], 1, 1)
        mean, std = (images.new_tensor(values).reshape(shape) for values in (self.mean, self.std))
        images = (images * std + mean).clamp(0.0, 1.0)
        change = 2.0 * numbers[:, 6:10] - 1.0
        images = enhance.adjust_brightness_accumulative(images, 1.0 + self.brightness * change[:, 0])
        images = enhance.adjust_contrast_with_mean_subtraction(images, 1.0 + self.contrast * change[:, 1])
        images = enhance.adjust_saturation_with_gray_subtraction(images, 1.0 + self.saturation * change[:, 2])
        images = enhance.adjust_hue(images, self.hue * change[:, 3] * 2.0 * math.pi)
        return (images - mean) / std


AUGMENTATIONS: dict[str, Augmentation] = {
    "cifar": Augmentation(),
    "imagenet": Augmentation(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
}
"""The paper's augmentations by name."""


def as_augmentation(value: Any) -> Augmentation | None:
    """Return the augmentation of a name."""
    if value is None or isinstance(value, Augmentation):
        return value
    return check_choice(value, "augment", AUGMENTATIONS)
