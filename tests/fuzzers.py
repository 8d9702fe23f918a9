"""Mutated files and bodies: each is read or refused with a sentence, quickly and without much memory; never a fault, never a hang.

The tests run a few hundred (`tests/test_fuzz_files.py`); ``make fuzz`` runs this file for longer and prints what happened.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from hostile import stream
from poscod import POSCOD, Activations
from poscod.cli import main
from poscod.datasets import read_openood, read_pickle
from poscod.exceptions import PoscodError
from poscod.ratio import CorrectedSigmoid
from poscod.serve._parse import READERS
from poscod.serve._say import Refusal
from poscod.theory import GaussianWorld

SECONDS, MEGABYTES = 20, 1500
WORDS = [
    b"\x00",
    b"\xff" * 4,
    b"\xff\xff\xff\x7f",
    b"\x00\x00\x00\x80",
    b"\xff" * 8,
    b"-1",
    b"NaN",
    b"1e999",
    b'"',
    b",",
    b"[",
    b"\n",
]
VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    2**40,
    1e308,
    "",
    "x",
    [],
    {},
    {"float": "nan"},
    {"float": "inf"},
    [[[]]],
    {"tuple": []},
]


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Flip, cut, repeat or overwrite some bytes."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at, n = rng.randrange(len(out) or 1), rng.choice([1, 4, 64])
        kind = rng.randrange(5)
        if kind == 0 and out:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at : at + n] = b""
        elif kind == 2:
            out[at:at] = out[at : at + n] * rng.choice([1, 50])
        elif kind == 3:
            word = rng.choice(WORDS)
            out[at : at + len(word)] = word
        else:
            del out[rng.randrange(len(out) or 1) :]
    return bytes(out)


def twist(rng: random.Random, node: Any) -> Any:
    """Change one value of a JSON document, anywhere in it."""
    inside = [(node, key) for key in node] if isinstance(node, dict) else [(node, i) for i in range(len(node))]
    if not inside:
        return node
    owner, key = rng.choice(inside)
    if isinstance(owner[key], (dict, list)) and owner[key] and rng.random() < 0.85:
        twist(rng, owner[key])
    elif rng.random() < 0.2 and isinstance(owner, dict):
        del owner[key]
    else:
        owner[key] = rng.choice(VALUES)
    return node


def forge(rng: random.Random, data: bytes) -> bytes:
    """A model file with one value or one member changed, and right checksums, as an attacker would write it."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    head = json.loads(content.pop("manifest.json"))
    name = rng.choice(["state.json", "state.json", *content])
    if name == "state.json":
        content[name] = json.dumps(twist(rng, json.loads(content[name]))).encode()
    else:
        content[name] = mutate(rng, content[name])
    head["members"] = {k: {"size": len(v), "sha256": hashlib.sha256(v).hexdigest()} for k, v in content.items()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for member, value in {**content, "manifest.json": json.dumps(head).encode()}.items():
            archive.writestr(member, value)
    return buffer.getvalue()


class Fuzzer:
    """Seeds in a folder, and a way to try each kind."""

    def __init__(self, folder: Path, classifiers: dict[str, Any] | None = None) -> None:
        self.folder = folder
        world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
        X, y = world.sample_id(400, random_state=0)
        model = POSCOD(LogisticRegression(), CorrectedSigmoid("paper", l2=1e-3), calibration=0.5, random_state=0)
        model.fit(X, y, X_unlabeled=world.sample_mixture(200, pi=0.3, random_state=1)[0])
        self.model = folder / "model.poscod"
        model.save(self.model)
        self.schema = model.schema_
        kept = {}
        for name, classifier in (classifiers or {}).items():  # the ratio of so few rows is none; it is not the point
            POSCOD(classifier, CorrectedSigmoid("paper", l2=1e-3), calibration=0.5, random_state=0).fit(
                X[:100], y[:100], X_unlabeled=X[100:200]
            ).save(folder / f"{name}.poscod")
            kept[name] = (folder / f"{name}.poscod").read_bytes()
        columns = {"0": X[:20, 0], "1": X[:20, 1]}
        named = pa.table({**columns, "name": [f"row {i}" for i in range(20)]})
        files = {
            ".csv": io.BytesIO(),
            ".parquet": io.BytesIO(),
            ".arrow": io.BytesIO(),
            ".npy": io.BytesIO(),
            ".npz": io.BytesIO(),
        }
        pa_csv.write_csv(named, files[".csv"])
        pq.write_table(named, files[".parquet"])
        with pa.ipc.new_file(files[".arrow"], named.schema) as writer:
            writer.write_table(named)
        np.save(files[".npy"], X[:20])
        np.savez(files[".npz"], **columns)
        tables = {suffix: file.getvalue() for suffix, file in files.items()}
        Activations(X[:9], X[:9] @ np.eye(2), y[:9]).save(folder / "a.safetensors")
        dump = {"id": {"test": [y, X[:, 0], y]}, "ood": {"near": {"a": [y, X[:, 1], y]}, "far": {}}}
        bodies = {
            "application/json": json.dumps({"rows": X[:5].tolist(), "ids": list("abcde")}).encode(),
            "application/x-npy": tables[".npy"],
            "application/vnd.apache.arrow.stream": stream(columns),
        }
        self.kinds: dict[str, tuple[bytes, Callable[[random.Random, bytes], bytes], Callable[[Path], None]]] = {
            "model, bytes": (self.model.read_bytes(), mutate, self._predict_with),
            "model, forged": (self.model.read_bytes(), forge, self._predict_with),
            **{f"model of {name}, forged": (data, forge, self._predict_with) for name, data in kept.items()},
            "pickle": (pickle.dumps(dump, 4), mutate, read_pickle),
            "pickle, protocol 2": (pickle.dumps(dump, 2), mutate, read_pickle),
            "score dump": (pickle.dumps(dump, 4), mutate, lambda path: read_openood(path, direction="confidence")),
            "safetensors": ((folder / "a.safetensors").read_bytes(), mutate, self._activations),
            **{f"table {suffix}": (data, mutate, self._predict_on(suffix)) for suffix, data in tables.items()},
            **{f"body {kind}": (data, mutate, self._body(kind)) for kind, data in bodies.items()},
        }

    def run(self, rng: random.Random, rounds: int) -> dict[str, Counter[str]]:
        """Try each kind so many times; return how often each was read, refused or at fault. What is at fault is kept and told, and the next is tried."""
        counts: dict[str, Counter[str]] = {kind: Counter() for kind in self.kinds}
        for _ in range(rounds):
            for kind, (seed, change, read) in self.kinds.items():
                path, data = self.folder / "tried", change(rng, seed)
                path.write_bytes(data)
                self._note(counts, kind, data)
                try:
                    with limit(SECONDS), warnings.catch_warnings(), np.errstate(all="ignore"):
                        warnings.simplefilter("ignore")
                        read(path)
                    counts[kind]["read"] += 1
                except (PoscodError, Refusal, FileNotFoundError):
                    counts[kind]["refused"] += 1
                except Exception as error:
                    counts[kind]["at fault"] += 1
                    self._keep(kind, f"{type(error).__name__}: {str(error)[-500:]}")
        self._note(counts, "", b"")
        return counts

    def run_apart(self, seed: int, rounds: int) -> tuple[dict[str, Counter[str]], float]:
        """Do `run` in a process of its own, whose death is a fault like others; return counts and the most memory that it had."""
        child = os.fork()
        if not child:
            self.run(random.Random(seed), rounds)
            os._exit(0)
        _, status, usage = os.wait4(child, 0)
        noted = json.loads((self.folder / "noted.json").read_text())
        counts = {kind: Counter(count) for kind, count in noted["counts"].items()}
        if noted["kind"]:
            counts[noted["kind"]]["at fault"] += 1
            self._keep(noted["kind"], f"the process ended with {os.waitstatus_to_exitcode(status)}")
        return counts, usage.ru_maxrss / 1024

    def _note(self, counts: dict[str, Counter[str]], kind: str, data: bytes) -> None:
        """Write down what is tried next: what dies of a signal cannot say it."""
        (self.folder / "last").write_bytes(data)
        (self.folder / "noted.json").write_text(json.dumps({"kind": kind, "counts": counts}))

    def _keep(self, kind: str, sentence: str) -> None:
        """Keep the last file, and what it did."""
        faults, data = self.folder / "faults", (self.folder / "last").read_bytes()
        faults.mkdir(exist_ok=True)
        name = hashlib.sha256(data).hexdigest()[:12]
        (faults / name).write_bytes(data)
        (faults / f"{name}.txt").write_text(f"{kind}: {sentence}\n")

    def faults(self) -> list[str]:
        """Return one line for each file at fault."""
        return [f"{path.stem} {path.read_text().strip()}" for path in sorted(self.folder.glob("faults/*.txt"))]

    def _predict_with(self, path: Path) -> None:
        rows = self.folder / "rows.npy"
        if not rows.exists():
            np.save(rows, np.zeros((3, 2)))
        self._shell("predict", path, rows, "-o", self.folder / "out.csv")

    def _predict_on(self, suffix: str) -> Callable[[Path], None]:
        def read(path: Path) -> None:
            table = path.with_suffix(suffix)
            path.replace(table)
            self._shell("predict", self.model, table, "-o", self.folder / "out.parquet")

        return read

    def _shell(self, *words: Any) -> None:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(word) for word in words])
        assert code in (0, 2), err.getvalue()
        if code:
            lines = err.getvalue().splitlines()
            assert lines[-1].startswith("poscod: error: "), lines
            raise PoscodError(lines[-1])

    def _activations(self, path: Path) -> None:
        named = path.with_suffix(".safetensors")
        path.replace(named)
        Activations.load(named)

    def _body(self, kind: str) -> Callable[[Path], None]:
        def read(path: Path) -> None:
            READERS[kind](path.read_bytes(), self.schema, 1000)

        return read


@contextlib.contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Raise where something takes too long."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"nothing after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def megabytes() -> float:
    """Most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def boosters() -> dict[str, Any]:
    """Classifiers whose readers are native code, or follow indices."""
    import catboost
    import lightgbm
    import xgboost

    return {
        "forest": RandomForestClassifier(3, random_state=0),
        "boosting": HistGradientBoostingClassifier(max_iter=3, random_state=0),
        "xgboost": xgboost.XGBClassifier(n_estimators=3, n_jobs=1),
        "lightgbm": lightgbm.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1),
        "catboost": catboost.CatBoostClassifier(iterations=3, thread_count=1, verbose=0, allow_writing_files=False),
    }


def fuzz(folder: Path, seconds: float, seed: int) -> int:
    """Try until the time is over, and print what happened; return how many were at fault."""
    fuzzer = Fuzzer(folder, boosters())
    total: dict[str, Counter[str]] = {kind: Counter() for kind in fuzzer.kinds}
    start, most, end = megabytes(), 0.0, time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end:
        counts, memory = fuzzer.run_apart(seed + rounds, 20)
        rounds, most = rounds + 1, max(most, memory)
        for kind, count in counts.items():
            total[kind] += count
    for kind, count in total.items():
        sys.stdout.write(
            f"{kind:45} {count.total():7,} tried {count['read']:7,} read {count['refused']:7,} refused {count['at fault']:5,} at fault\n"
        )
    tried, wrong = (sum(part) for part in zip(*((c.total(), c["at fault"]) for c in total.values()), strict=True))
    sys.stdout.write("".join(f"{line}\n" for line in fuzzer.faults()))
    sys.stdout.write(
        f"{tried:,} tried, {wrong:,} at fault, seed {seed}, at most {most:.0f} MB in a process that read\n"
    )
    return wrong + (most - start > MEGABYTES)


if __name__ == "__main__":
    began = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    place = Path(tempfile.mkdtemp(prefix="poscod-fuzz-"))
    if fuzz(place, float(sys.argv[1]), began):
        sys.exit(f"The files are in {place}/faults.")
    shutil.rmtree(place)
