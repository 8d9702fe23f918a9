# SPDX-License-Identifier: BSD-3-Clause
"""Where the rows come from: files of a network, score files of OpenOOD, a known world, embedded digits.

Convention: a source is opened from a specification, names its OOD sets with their groups, and returns the `Pool` of one fold and set.
Data are known by the digest of their content, never by their place. OOD labels are never read.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.benchmark._spec import BenchmarkSpec, digest
from poscod.benchmark._split import Hashes, Indices, PoolHashes, Split
from poscod.datasets import ScoreTable, check_aligned, read_openood
from poscod.exceptions import InvalidInputError
from poscod.ratio import row_hash
from poscod.scores import SCORES
from poscod.theory import GaussianWorld

FEWEST_REFERENCE = 100
"""Fewer rows do not tell the location and scale of a score."""


class Scores(NamedTuple):
    """A score of measured ID and OOD rows, and of the ID rows from which SIRC takes location and scale."""

    id_: Floats
    ood: Floats
    reference: Floats


class Pool(NamedTuple):
    """Rows of one fold and OOD set, before they are split: dedicated training rows, the rows of the classifier (bank) and the law of all rows where there are such."""

    id_test: Activations
    ood_test: Activations
    id_train: Activations | None = None
    ood_train: Activations | None = None
    bank: Activations | None = None
    world: GaussianWorld | None = None

    def hashes(self) -> PoolHashes:
        """Return the digest of every row of the four parts."""
        id_train, ood_train = (p if p is None else content_hash(p) for p in (self.id_train, self.ood_train))
        return content_hash(self.id_test), content_hash(self.ood_test), id_train, ood_train

    def labeled(self, split: Split) -> Activations:
        """Return the labeled rows to learn from."""
        return self.id_learning[split.id_labeled]

    def reference(self, split: Split) -> Activations:
        """Return ID rows that are not measured: those nothing was learned from, else those of the mixture; the measured ones at last."""
        for part, rows in ((self.id_test, split.id_spare), (self.id_learning, split.id_mixture)):
            if len(rows) >= FEWEST_REFERENCE:
                return part[rows]
        return self.id_test[split.id_test]

    @property
    def id_learning(self) -> Activations:
        """ID rows that may be learned from."""
        return self.id_test if self.id_train is None else self.id_train

    @property
    def ood_learning(self) -> Activations:
        """OOD rows that may be learned from."""
        return self.ood_test if self.ood_train is None else self.ood_train

    def scores(self, name: str, split: Split) -> Scores:
        """Score rows; what a score learns from is the bank or else the labeled rows."""
        score = SCORES[name]().fit(self.labeled(split) if self.bank is None else self.bank)
        return Scores(*map(score, self.scored(split)))

    def scored(self, split: Split) -> tuple[Activations, Activations, Activations]:
        """Return the rows that are scored: measured ID and OOD rows, and those of the reference."""
        return self.id_test[split.id_test], self.ood_test[split.ood_test], self.reference(split)

    def loss(self, rows: Indices) -> Floats:
        """Return the 0/1 loss of the classifier on ID rows."""
        part = self.id_test[rows]
        return np.asarray(part.need("logits").argmax(axis=1) != part.need("labels"), dtype=np.float64)


class DumpPool(NamedTuple):
    """Score files of one fold, seen from one OOD set: by score, all with the same rows."""

    tables: dict[str, ScoreTable]

    def hashes(self) -> PoolHashes:
        """Return a number for every row: score files cannot tell copies."""
        is_ood = self.tables["msp"].is_ood
        n = np.arange(len(is_ood), dtype=np.uint64)
        return n[~is_ood], n[is_ood], None, None

    def scores(self, name: str, split: Split) -> Scores:
        """Return the scores of rows; without spare rows, those that are measured are their own reference."""
        table = self.tables[name]
        score = 1.0 + table.score if name == "msp" else table.score  # 1 - MSP is a risk, -MSP only an order
        id_, ood = score[~table.is_ood], score[table.is_ood]
        spare = split.id_spare if len(split.id_spare) >= FEWEST_REFERENCE else split.id_test
        return Scores(id_[split.id_test], ood[split.ood_test], id_[spare])

    def loss(self, rows: Indices) -> Floats:
        """Return the 0/1 loss of the classifier on ID rows."""
        table = self.tables["msp"]
        return np.asarray((table.pred != table.label)[~table.is_ood][rows], dtype=np.float64)


class Source(ABC):
    """Opens pools for a specification."""

    def __init__(self, spec: BenchmarkSpec) -> None:
        self.spec = spec

    @abstractmethod
    def sets(self) -> dict[str, str]:
        """Return the OOD sets and their groups."""

    @abstractmethod
    def pool(self, fold: str, name: str, seed: int) -> Pool | DumpPool:
        """Return the rows of one fold and set; only drawn worlds depend on the seed."""

    def data_hash(self, fold: str, name: str) -> str:
        """Return the digest of all data that a pool consists of."""
        return digest({part: place and file_hash(place) for part, place in self._places(fold, name).items()})

    def _places(self, fold: str, name: str) -> dict[str, Path | None]:
        """Return the files of one fold and set, None where a part has none."""
        raise NotImplementedError


class _Files(Source):
    """Activations of a trained network."""

    def sets(self) -> dict[str, str]:
        return {**dict.fromkeys(self.spec.near, "near"), **dict.fromkeys(self.spec.far, "far")}

    def pool(self, fold: str, name: str, seed: int) -> Pool:
        places = self._places(fold, name)
        head = _read_head(places.pop("head"))
        parts: dict[str, Any] = {
            part: place and _read(place, head, labeled=not part.startswith("ood")) for part, place in places.items()
        }
        return Pool(**parts)

    def _places(self, fold: str, name: str) -> dict[str, Path | None]:
        spec = self.spec
        files = {part: getattr(spec, part) for part in ("id_test", "id_train", "bank", "head")}
        files |= {"ood_test": {**spec.near, **spec.far}[name], "ood_train": spec.train.get(name, "")}
        return {part: spec.path(file, fold) if file else None for part, file in files.items()}


class _Dumps(Source):
    """Score files of OpenOOD 1.5, one per score."""

    def sets(self) -> dict[str, str]:
        table = self._tables(self.spec.folds[0], "")["msp"]
        pairs = dict(zip(table.dataset.tolist(), table.group.tolist(), strict=True))
        return {name: group for name, group in pairs.items() if group not in ("id", "csid")}

    def pool(self, fold: str, name: str, seed: int) -> DumpPool:
        tables = self._tables(fold, name)
        rows = (tables["msp"].group == "id") | (tables["msp"].dataset == name)
        return DumpPool({score: table[rows] for score, table in tables.items()})

    def _places(self, fold: str, name: str) -> dict[str, Path | None]:
        return {score: self.spec.path(file, fold) for score, file in self.spec.dumps.items()}

    def _tables(self, fold: str, name: str) -> dict[str, ScoreTable]:
        places = self._places(fold, name)
        return _read_dumps(tuple((score, place, file_hash(place)) for score, place in places.items() if place))


class _Gaussian(Source):
    """Fresh draws from a known world for every seed; the classifier is the Bayes classifier."""

    ID = {"mean_id": [[0.0, 0.0], [2.2, 0.0], [1.0, 1.8]], "weight_id": [0.5, 0.3, 0.2], "covariance_id": 0.7}  # noqa: RUF012
    OOD = {"near": [[2.8, 2.2]], "far": [[5.0, 3.5]]}  # noqa: RUF012
    ROWS = {"id": 4000, "ood": 3000}  # noqa: RUF012

    def sets(self) -> dict[str, str]:
        return {name: name for name in self.OOD}

    def pool(self, fold: str, name: str, seed: int) -> Pool:
        world = GaussianWorld(mean_ood=self.OOD[name], **self.ID)
        rng = np.random.RandomState(seed)
        X, y = world.sample_id(self.ROWS["id"], rng)
        ood = world.sample_ood(self.ROWS["ood"], rng)
        return Pool(_posterior_rows(world, X, y), _posterior_rows(world, ood), world=world)

    def data_hash(self, fold: str, name: str) -> str:
        return digest([self.ID, self.OOD[name], self.ROWS])


class _Digits(Source):
    """Digits 0-5 with a logistic regression on pixels; 6-9 and shuffled pixels are OOD."""

    def sets(self) -> dict[str, str]:
        return {"digits_6_9": "near", "shuffled": "far"}

    def pool(self, fold: str, name: str, seed: int) -> Pool:
        return _digits()[name]

    def data_hash(self, fold: str, name: str) -> str:
        pool = _digits()[name]
        return digest([str(x) for part in pool.hashes()[:2] for x in part.tolist()])


OPENERS: dict[str, type[Source]] = {"activations": _Files, "dumps": _Dumps, "gaussian": _Gaussian, "digits": _Digits}


def open_source(spec: BenchmarkSpec) -> Source:
    """Open the source of a specification."""
    if spec.source not in OPENERS:
        raise InvalidInputError(
            f"The source '{spec.source}' needs its activations extracted first, which `poscod bench run` does: run() itself "
            "needs no framework and reads activations."
        )
    return OPENERS[spec.source](spec)


def content_hash(rows: Activations) -> Hashes:
    """Return a number per row that depends on its content only."""
    return row_hash(np.asarray(rows.features if rows.features is not None else rows.need("logits")), 0)


def file_hash(path: Path) -> str:
    """Return the digest of a file's content."""
    if not path.is_file():
        raise InvalidInputError(f"{path}, which the specification names, is not there.")
    status = path.stat()
    return _file_hash(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _file_hash(path: Path, size: int, modified: int) -> str:
    """Read a file once for all cells that need it, and again when it changes."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            sha.update(block)
    return sha.hexdigest()[:16]


def _read_head(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    with np.load(path, allow_pickle=False) as file:
        head = {"weight": file.get("weight", file.get("W")), "bias": file.get("bias", file.get("b"))}
        if head["weight"] is None:
            raise InvalidInputError(f"{path} must hold 'weight' and 'bias' (or 'W' and 'b'), got {', '.join(file)}.")
    return head


def _read(path: Path, head: dict[str, Any], *, labeled: bool) -> Activations:
    """Read activations; labels of OOD rows belong to other classes and are left in the file."""
    if labeled or path.suffix != ".npz":
        rows = Activations.load(path)
    else:
        with np.load(path, allow_pickle=False) as file:
            rows = Activations(file.get("features"), file.get("logits"), None, file.get("weight"), file.get("bias"))
    return dataclasses.replace(rows, **head)


@functools.lru_cache(maxsize=4)
def _read_dumps(places: tuple[tuple[str, Path, str], ...]) -> dict[str, ScoreTable]:
    """Read the score files of one fold; their digests are part of the key, so that a changed file is read anew."""
    tables = {name: read_openood(place, direction="confidence") for name, place, _ in places}
    check_aligned(tables)
    return tables


def _posterior_rows(world: GaussianWorld, X: Floats, y: Any = None) -> Activations:
    """Let the Bayes classifier play the network: log posteriors are its logits."""
    return Activations(X, np.log(np.maximum(world.posterior(X), 1e-300)), y)


@functools.lru_cache(maxsize=1)
def _digits() -> dict[str, Pool]:
    X, y = load_digits(return_X_y=True)
    X, rng = X / 16.0, np.random.RandomState(0)
    order = rng.permutation(len(X))
    X, y = X[order], y[order]
    known = np.flatnonzero(y <= 5)
    trained, fresh = known[:240], known[240:]
    classifier = LogisticRegression(max_iter=1000).fit(X[trained], y[trained])

    def rows(pixels: Floats, labels: Any = None) -> Activations:
        return Activations(
            pixels, classifier.decision_function(pixels), labels, classifier.coef_, classifier.intercept_
        )

    shuffled = X[known][:, rng.permutation(X.shape[1])]
    bank, id_test = rows(X[trained], y[trained]), rows(X[fresh], y[fresh])
    return {
        "digits_6_9": Pool(id_test, rows(X[y > 5]), bank=bank),
        "shuffled": Pool(id_test, rows(shuffled), bank=bank),
    }
