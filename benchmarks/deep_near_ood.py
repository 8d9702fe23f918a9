"""Training all weights of a network as ratio, against its last layer, on real near-OOD images.

CIFAR-10 test images are ID, CIFAR-100 test images (20 of the 100 classes) are OOD, the network is a public ResNet-56 trained on CIFAR-10.
Needs kornia and the folder ../shared with images and weights. Run ``python benchmarks/deep_near_ood.py --epochs 12``. AuSRT in percent at alpha = 0.5 by
the plug-in rule, r = 1 - MSP of the classifier; lower is better.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch  # noqa: TID253 (this benchmark is about torch)
from kornia import augmentation as ka  # noqa: TID253

from poscod import Activations
from poscod.backends.images import NORMALISATIONS, Images, open_images
from poscod.backends.torch import build_network, extract, fit_ratio
from poscod.exceptions import PoscodWarning
from poscod.metrics import auroc
from poscod.ratio import CorrectedSigmoid
from poscod.scores import one_minus_msp
from poscod.strategies import plugin_curve

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "cifar10_images"
TEST_ROWS = 1000


def pixels(images: Images, rows: Any) -> torch.Tensor:
    batches = images.take(rows).batches(500)
    return torch.from_numpy(np.concatenate([batch[0] if isinstance(batch, tuple) else batch for batch in batches]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12, help="epochs of the run over all weights")
    parser.add_argument("--rows", type=int, default=600, help="labeled rows, and ID and OOD rows of the mixture, each")
    parser.add_argument(
        "--rates", type=float, nargs="*", default=[3e-4], help="learning rates of the network's own weights"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", PoscodWarning)
    mean, std = NORMALISATIONS["imagenet"]
    names = ("cifar10_test_first2000", "cifar10_test_last2000", "cifar100_test_first2000")
    first, last, other = (open_images(DATA / f"{name}.npz", mean=mean, std=std) for name in names)
    rng, n = np.random.default_rng(args.seed), args.rows
    place, place_test, place_ood = (rng.permutation(2000) for _ in range(3))
    known = pixels(first, place[:n])
    mixture = torch.cat([pixels(first, place[n : 2 * n]), pixels(other, place_ood[:n])])
    test = pixels(last, place_test[:TEST_ROWS]), pixels(other, place_ood[n : n + TEST_ROWS])
    network = build_network("resnet56_32x32", 10, DATA / "resnet56-4bfd9763.th")
    seen = [extract(network, rows) for rows in (known, mixture)]
    tested = [extract(network, rows) for rows in test]
    risk = [one_minus_msp(rows.logits) for rows in tested]
    wrong = (tested[0].logits.argmax(axis=1) != last.labels[place_test[:TEST_ROWS]]).astype(float)

    def show(name: str, log_ratio: list[Any], prior: float, seconds: float) -> None:
        g = [np.exp(np.minimum(values, 500.0)) for values in log_ratio]
        area = plugin_curve("linear", risk[0], g[0], wrong, risk[1], g[1], alpha=0.5).area
        quality = f"AUROC {auroc(log_ratio[0], log_ratio[1]):.4f}  AuSRT {100 * area:.2f}"
        print(f"{name:32s} {quality}  prior {prior:.3f}  {seconds:5.0f} s", flush=True)

    print(
        f"{n} labeled rows, mixture of {n} ID and {n} OOD rows, {TEST_ROWS} + {TEST_ROWS} test rows, seed {args.seed}"
    )
    print(f"{'1 - MSP':32s} AUROC {auroc(risk[0], risk[1]):.4f}")
    features = [[Activations(rows.features) for rows in pair] for pair in (seen, tested)]
    for name, ratio, rows, new in (
        ("closed form (paper)", CorrectedSigmoid(recipe="paper"), *features),
        ("default (strong)", CorrectedSigmoid(), seen, tested),
    ):
        begin = time.perf_counter()
        ratio.fit(*rows)
        show(name, [ratio.log_ratio(part) for part in new], ratio.ood_prior_, time.perf_counter() - begin)
    # The paper's: rotation up to 20 degrees, resized crop, mirror.
    crop = ka.RandomResizedCrop((32, 32), scale=(0.5, 1.0))
    augment = torch.nn.Sequential(ka.RandomRotation(20.0), crop, ka.RandomHorizontalFlip())
    whole: dict[str, Any] = {"train": "all", "augment": augment, "epochs": args.epochs, "batch_size": 128}
    whole["decay_every"] = max(1, args.epochs // 2)
    runs: list[tuple[str, dict[str, Any]]] = [("head", {"train": "head"})]
    runs += [(f"all, rate {rate:g}", {**whole, "backbone_learning_rate": rate}) for rate in args.rates]
    for name, options in runs:
        begin = time.perf_counter()
        fitted = fit_ratio(network, known, mixture, seed=args.seed, **options)
        seconds = time.perf_counter() - begin
        show(
            f"{name} (epoch {fitted.best_epoch_})",
            [fitted.log_ratio(rows) for rows in test],
            fitted.ood_prior_,
            seconds,
        )


if __name__ == "__main__":
    main()
