# SPDX-License-Identifier: BSD-3-Clause
"""What to run: one flat TOML file, one dataclass.

Convention: every key is a field of `BenchmarkSpec`, unknown keys are refused, nothing is inherited. Paths are relative to ``root``,
and ``root`` is relative to the folder of the TOML file. ``{fold}`` in a path is replaced by the name of the fold.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import importlib.resources
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poscod._optional import require
from poscod._validation import check_choice, check_count, check_number
from poscod.benchmark._definitions import DEFINITIONS
from poscod.benchmark._ratios import RATIOS
from poscod.exceptions import InvalidInputError
from poscod.scores import SCORES
from poscod.strategies import STRATEGIES

__all__ = ["EMBEDDED", "BenchmarkSpec", "read_spec"]

SOURCES: dict[str, str] = {
    "activations": "files with features, logits and labels of a trained network (.npz, .safetensors)",
    "openood": "OpenOOD's lists of images and images; activations are extracted first",
    "dumps": "OpenOOD's score files, one per score: single and double scores, no ratio",
    "gaussian": "draws from a known world, with the exact optimum",
    "digits": "scikit-learn's digits: some classes are OOD",
}
EMBEDDED: dict[str, str] = {
    "digits": "logistic regression on handwritten digits 0-5; 6-9 and shuffled pixels are OOD",
    "gaussian": "a known world in the plane: every estimate beside the exact optimum",
}
"""Specifications shipped with the package: a name that `read_spec` takes instead of a file."""


@dataclasses.dataclass(frozen=True)
class BenchmarkSpec:
    """One run of the benchmark.

    Parameters
    ----------
    name : str
        Name of the benchmark, on every row of the results.
    source : {"activations", "openood", "dumps", "gaussian", "digits"}, default="activations"
        Where rows come from.
    id_set : str, default=""
        Name of the ID set; that of a benchmark of the paper makes results comparable with its tables.
    network : str, default=""
        Name of the classifier; "openood" loads it by this name.
    root : str, default="."
        Folder that other paths are relative to.
    folds : tuple of str, default=('',)
        Trained copies of the network; put ``{fold}`` where their files differ.
    bank : str, default=""
        File of rows the classifier **was** trained on, on which scores are fitted as published; "" fits them on the labelled ID rows.
    id_test : str, default=""
        File of labelled ID rows the classifier was **not** trained on.
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
    ratios : tuple of str, default=('corrected', 'paper', 'standard', 'clean', 'clean_lr')
        Estimators of the likelihood ratio, keys of `poscod.benchmark.RATIOS`.
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
        Labelled ID rows and mixture rows to learn from, at most.
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
    ratios: tuple[str, ...] = ("corrected", "paper", "standard", "clean", "clean_lr")
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
        """Return the path of a file of one fold.

        Parameters
        ----------
        file : str
            As in the specification.
        fold : str

        Returns
        -------
        path : Path
        """
        return Path(self.root, file.replace("{fold}", fold))


def digest(value: Any) -> str:
    """Return 16 hex digits that stand for a value made of dicts, lists, text and numbers."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def read_spec(source: str | os.PathLike[str]) -> BenchmarkSpec:
    """Read a specification.

    Parameters
    ----------
    source : str or path-like
        A TOML file, or the name of an embedded one (see `EMBEDDED`).

    Returns
    -------
    spec : BenchmarkSpec

    Examples
    --------
    >>> spec = read_spec("gaussian")
    >>> spec.source, spec.id_set
    ('gaussian', 'gaussian')
    """
    tomllib = (
        require("tomllib", extra="bench", feature="Reading TOML")
        if sys.version_info >= (3, 11)
        else require("tomli", extra="bench", feature="Reading TOML")
    )
    if str(source) in EMBEDDED:
        text = importlib.resources.files("poscod.benchmark").joinpath(f"specs/{source}.toml").read_text()
        folder = Path()
    else:
        path = Path(source)
        if not path.is_file():
            raise InvalidInputError(
                f"SPEC must be a TOML file or one of {', '.join(EMBEDDED)}, got '{source}', which is neither."
            )
        text, folder = path.read_text(encoding="utf-8"), path.parent
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"{source} must be TOML, and is not ({error}).") from None
    return _from_mapping(content, str(source), folder)


def _from_mapping(content: Mapping[str, Any], source: str, folder: Path) -> BenchmarkSpec:
    """Turn the keys of a file into fields."""
    fields = {field.name: field for field in dataclasses.fields(BenchmarkSpec)}
    for key in content:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise InvalidInputError(
                f"{source} has the unknown key '{key}': keys are {', '.join(sorted(fields))}.{hint}"
            )
    if "name" not in content:
        raise InvalidInputError(f"{source} must have the key 'name'.")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    values["root"] = str(folder / str(values.get("root", ".")))
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
        value = getattr(spec, field.name)
        kind, words = _TYPES[str(field.type)]
        is_tuple, is_map = str(field.type).startswith("tuple"), str(field.type).startswith("Mapping")
        if is_tuple or is_map:
            good = isinstance(value, Mapping if is_map else tuple)
            items = list(value.values() if is_map else value) if good else []
        else:
            good, items = True, [value]
        if not good or not all(isinstance(v, kind) and (kind is bool or not isinstance(v, bool)) for v in items):
            raise InvalidInputError(f"{field.name} must be {words}, got {value!r}.")
        if is_tuple and field.name not in ("ratios", "pis") and not value:
            raise InvalidInputError(f"{field.name} must not be empty.")
        if is_tuple and len(set(value)) < len(value):
            raise InvalidInputError(f"{field.name} must not name anything twice, got {list(value)!r}.")
    check_choice(spec.source, "source", SOURCES)
    check_choice(spec.grid, "grid", {"paper": 0, "reference": 0})
    for name in spec.scores:
        check_choice(name, "scores", {**SCORES, "all": None})
    for name in spec.dumps:
        check_choice(name, "dumps", SCORES)
    for name in spec.ratios:
        if check_choice(name, "ratios", RATIOS).sees == "world" and spec.source != "gaussian":
            raise InvalidInputError(f"ratios has '{name}', which only the source 'gaussian' knows.")
    for name in spec.strategies:
        check_choice(name, "strategies", STRATEGIES)
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


def _check_sets(spec: BenchmarkSpec) -> None:
    """Check what the source needs."""
    both = set(spec.near) & set(spec.far)
    if both:
        raise InvalidInputError(f"near and far must not share a set, both have '{min(both)}'.")
    extra = set(spec.train) - {*spec.near, *spec.far}
    if extra:
        raise InvalidInputError(f"train must name sets of near or far, got '{min(extra)}'.")
    embedded = spec.source in EMBEDDED
    if not embedded and not (spec.near or spec.far) and spec.source != "dumps":
        raise InvalidInputError("near and far must name at least one OOD set together, got none.")
    if spec.source == "activations" and not spec.id_test:
        raise InvalidInputError("id_test must name the file of ID rows for the source 'activations'.")
    if spec.source == "openood":
        check_choice(spec.id_set, "id_set", DEFINITIONS)
        if not spec.checkpoint:
            raise InvalidInputError("checkpoint must name the weights of the network for the source 'openood'.")
    if spec.source == "dumps":
        if not spec.dumps or "msp" not in spec.dumps:
            raise InvalidInputError(
                "dumps must name the file of 'msp' and of every other score for the source 'dumps'."
            )
        if spec.ratios:
            raise InvalidInputError(
                "ratios must be [] for the source 'dumps': score files hold no features to learn from."
            )
        missing = set(spec.score_names) - set(spec.dumps)
        if missing:
            raise InvalidInputError(f"scores has '{min(missing)}', for which dumps names no file.")
