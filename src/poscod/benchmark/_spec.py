# SPDX-License-Identifier: BSD-3-Clause
"""What to run: one flat TOML file, one dataclass.

Convention: every key is a field of `BenchmarkSpec`, unknown keys are refused, nothing is inherited. Paths are relative to ``root``,
and ``root`` is relative to the folder of the TOML file. ``{fold}`` in a path is replaced by the name of the fold.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.resources
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poscod._optional import require
from poscod._validation import check_choice, check_count, check_number, nearest
from poscod.benchmark._definitions import DEFINITIONS
from poscod.benchmark._ratios import RATIOS, RENAMED
from poscod.exceptions import InvalidInputError
from poscod.scores import SCORES
from poscod.strategies import STRATEGIES

EMBEDDED = ("digits", "gaussian")
"""Specifications shipped with the package: a name that `read_spec` takes instead of a file."""
SOURCES = ("activations", "openood", "dumps", *EMBEDDED)


@dataclasses.dataclass(frozen=True)
class BenchmarkSpec:
    """One run of the benchmark.

    Parameters
    ----------
    name : str
        Name of the benchmark, on every row of the results.
    source : {"activations", "openood", "dumps", "gaussian", "digits"}, default="activations"
        Where rows come from: files with features, logits and labels of a trained network (.npz, .safetensors); OpenOOD's lists of
        images and images, of which `poscod bench run` extracts activations first; OpenOOD's score files, one per score (no ratio);
        draws from a known world; scikit-learn's digits.
    id_set : str, default=""
        Name of the ID set; that of a benchmark of the paper makes results comparable with its tables.
    network : str, default=""
        Name of the classifier; "openood" loads it by this name.
    root : str, default="."
        Folder that other paths are relative to.
    folds : tuple of str, default=('',)
        Trained copies of the network; put ``{fold}`` where their files differ.
    bank : str, default=""
        File of rows the classifier **was** trained on, on which scores are fitted as published; "" fits them on the labeled ID rows.
    id_test : str, default=""
        File of labeled ID rows the classifier was **not** trained on.
    id_train : str, default=""
        File of further such ID rows that only the ratio learns from; "" cuts `id_test` at random.
    head : str, default=""
        File of the last layer (weight and bias, or W and b), where activations do not hold it.
    near, far : dict of str to str
        OOD sets: name and file; for "openood" a list of images, or "" for that of the paper's benchmark.
    train : dict of str to str
        Dedicated training files of some OOD sets; the others are cut at random. For "openood" as `near`.
    dumps : dict of str to str
        For "dumps": score (a key of `poscod.scores.SCORES`) and OpenOOD file.
    checkpoint : str, default=""
        For "openood": weights of the network.
    normalisation : str, default=""
        For "openood": how pixels are normalised, a key of `poscod.backends.images.NORMALISATIONS`; "" is that of the ID set.
    scores : tuple of str, default=('all',)
        Single scores, also joined with 1 - MSP; "all" are all of `poscod.scores.SCORES`.
    ratios : tuple of str, default=('strong', 'paper', 'standard', 'clean', 'clean_lr')
        Estimators of the likelihood ratio: from a mixture "strong" (the default recipe), "paper" (the paper's), "standard" (the standard
        sigmoid), "nnpu", "woods"; from clean OOD rows "clean" (the strong recipe) and "clean_lr" (logistic regression); "exact" (gaussian only).
    strategies : tuple of str, default=('linear', 'sirc', 'product')
        How two scores become one.
    tuned : bool, default=True
        Whether to tune strategies on the measured rows, too (a bound, not a result).
    grid : {"paper", "reference"}, default="paper"
        Grid of that tuning.
    seeds : tuple of int, default=(0, 1, 2, 3, 4)
        Random splits.
    pis : tuple of float, default=(0.02, 0.05, 0.1, 0.2, 0.5)
        Shares of OOD in the mixture that the ratio is learned from.
    alphas : tuple of float, default=(0.1, 0.25, 0.5, 0.75, 0.9)
        Relative costs.
    n_id, n_mixture : int, default=3000
        Labeled ID rows and mixture rows to learn from, at most.
    n_test : int, default=2000
        Rows of each kind to measure on, at most.
    id_train_share : float, default=0.6
        Share of the ID rows to learn from, where there is no `id_train`.
    ood_train_share : float, default=0.5
        Share of the OOD rows to learn from, where there is no dedicated training file.
    """

    name: str
    source: str = "activations"
    id_set: str = ""
    network: str = ""
    root: str = "."
    folds: tuple[str, ...] = ("",)
    bank: str = ""
    id_test: str = ""
    id_train: str = ""
    head: str = ""
    near: Mapping[str, str] = dataclasses.field(default_factory=dict)
    far: Mapping[str, str] = dataclasses.field(default_factory=dict)
    train: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dumps: Mapping[str, str] = dataclasses.field(default_factory=dict)
    checkpoint: str = ""
    normalisation: str = ""
    scores: tuple[str, ...] = ("all",)
    ratios: tuple[str, ...] = ("strong", "paper", "standard", "clean", "clean_lr")
    strategies: tuple[str, ...] = ("linear", "sirc", "product")
    tuned: bool = True
    grid: str = "paper"
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    pis: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.5)
    alphas: tuple[float, ...] = (0.1, 0.25, 0.5, 0.75, 0.9)
    n_id: int = 3000
    n_mixture: int = 3000
    n_test: int = 2000
    id_train_share: float = 0.6
    ood_train_share: float = 0.5

    def __post_init__(self) -> None:
        _check(self)

    @property
    def score_names(self) -> tuple[str, ...]:
        """Scores to measure, "all" written out."""
        if "all" not in self.scores:
            return self.scores
        return tuple(self.dumps) if self.source == "dumps" else tuple(SCORES)

    @property
    def hash(self) -> str:
        """Digest of everything but the place of the files, which are known by their content."""
        fields = dataclasses.asdict(self)
        del fields["root"]
        return digest(fields)

    def path(self, file: str, fold: str) -> Path:
        """Return the path of a file of one fold."""
        return Path(self.root, file.replace("{fold}", fold))


def digest(value: Any) -> str:
    """Return 16 hex digits that stand for a value made of dicts, lists, text and numbers."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def read_spec(source: str | os.PathLike[str]) -> BenchmarkSpec:
    """Read a specification.

    Parameters
    ----------
    source : str or path-like
        A TOML file, or the name of an embedded one: "digits" or "gaussian".

    Returns
    -------
    spec : BenchmarkSpec
        What the file says, and defaults.

    Examples
    --------
    >>> spec = read_spec("gaussian")
    >>> spec.source, spec.id_set
    ('gaussian', 'gaussian')
    """
    toml = require("tomllib" if sys.version_info >= (3, 11) else "tomli", extra="bench", feature="Reading TOML")
    shipped = importlib.resources.files("poscod.benchmark").joinpath(f"specs/{source}.toml")
    path = shipped if str(source) in EMBEDDED else Path(source)
    if not path.is_file():
        raise InvalidInputError(
            f"SPEC must be a TOML file or one of {', '.join(EMBEDDED)}, got '{source}', which is neither."
        )
    try:
        content = toml.loads(path.read_text(encoding="utf-8"))
    except toml.TOMLDecodeError as error:
        raise InvalidInputError(f"{source} must be TOML, and is not ({error}).") from None
    names = sorted(field.name for field in dataclasses.fields(BenchmarkSpec))
    for key in content:
        if key not in names:
            hint = f" Did you mean '{near}'?" if (near := nearest(key, names)) else ""
            raise InvalidInputError(f"{source} has the unknown key '{key}': keys are {', '.join(names)}.{hint}")
    if "name" not in content:
        raise InvalidInputError(f"{source} must have the key 'name'.")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    values["root"] = str(Path(source).parent / str(values.get("root", ".")))
    if isinstance(values.get("ratios"), tuple):
        values["ratios"] = tuple(RENAMED.get(name, name) for name in values["ratios"])
    return BenchmarkSpec(**values)


_TYPES: dict[str, tuple[Any, str]] = {
    "str": (str, "text"),
    "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "tuple[str, ...]": (str, "a list of texts"),
    "tuple[int, ...]": (int, "a list of whole numbers"),
    "tuple[float, ...]": ((int, float), "a list of numbers"),
    "Mapping[str, str]": (str, "a table of texts"),
}


def _check(spec: BenchmarkSpec) -> None:
    """Check types, then values."""
    for field in dataclasses.fields(spec):
        _check_type(field.name, str(field.type), getattr(spec, field.name))
    families = {"scores": (*SCORES, "all"), "dumps": SCORES, "ratios": RATIOS, "strategies": STRATEGIES}
    for key, allowed in {"source": SOURCES, "grid": ("paper", "reference"), **families}.items():
        value = getattr(spec, key)
        for name in (value,) if isinstance(value, str) else value:
            check_choice(name, key, dict.fromkeys(allowed))
    for pi in spec.pis:
        check_number(pi, "pis", 0.0, 1.0, closed="right")
    for alpha in spec.alphas:
        check_number(alpha, "alphas", 0.0, 1.0)
    for seed in spec.seeds:
        check_count(seed, "seeds", 0)
    for key in ("n_id", "n_mixture", "n_test"):
        check_count(getattr(spec, key), key)
    for key in ("id_train_share", "ood_train_share"):
        check_number(getattr(spec, key), key, 0.0, 1.0, closed="neither")
    _check_sets(spec)


def _check_type(name: str, annotation: str, value: Any) -> None:
    """Check a value against its annotation."""
    kind, words = _TYPES[annotation]
    container = {"tuple": tuple, "Mapping": Mapping}.get(annotation.partition("[")[0])
    good = container is None or isinstance(value, container)
    items = [value] if container is None else value.values() if isinstance(value, Mapping) else value
    if not good or not all(isinstance(v, kind) and (kind is bool or not isinstance(v, bool)) for v in items):
        raise InvalidInputError(f"{name} must be {words}, got {value!r}.")
    if container is tuple:
        if not value and name not in ("ratios", "pis"):
            raise InvalidInputError(f"{name} must not be empty.")
        if len(set(value)) < len(value):
            raise InvalidInputError(f"{name} must not name anything twice, got {list(value)!r}.")


def _check_sets(spec: BenchmarkSpec) -> None:
    """Check what the source needs."""
    if both := set(spec.near) & set(spec.far):
        raise InvalidInputError(f"near and far must not share a set, both have '{min(both)}'.")
    if extra := set(spec.train) - {*spec.near, *spec.far}:
        raise InvalidInputError(f"train must name sets of near or far, got '{min(extra)}'.")
    if "exact" in spec.ratios and spec.source != "gaussian":
        raise InvalidInputError("ratios has 'exact', which only the source 'gaussian' knows.")
    if spec.source in ("activations", "openood") and not (spec.near or spec.far):
        raise InvalidInputError("near and far must name at least one OOD set together, got none.")
    if spec.source == "activations" and not spec.id_test:
        raise InvalidInputError("id_test must name the file of ID rows for the source 'activations'.")
    if spec.source == "openood":
        check_choice(spec.id_set, "id_set", DEFINITIONS)
        if not spec.checkpoint:
            raise InvalidInputError("checkpoint must name the weights of the network for the source 'openood'.")
    if spec.source == "dumps":
        if "msp" not in spec.dumps:
            raise InvalidInputError("dumps must name the file of 'msp' and those of other scores for this source.")
        if spec.ratios:
            raise InvalidInputError("ratios must be [] for the source 'dumps': files of scores hold no features.")
        if missing := set(spec.score_names) - set(spec.dumps):
            raise InvalidInputError(f"scores has '{min(missing)}', for which dumps names no file.")
