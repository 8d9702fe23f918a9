"""Small tables of a world with two classes and an intruder."""

from __future__ import annotations

import numpy as np

from poscod.cli._tables import TableWriter
from poscod.theory import GaussianWorld

WORLD = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
NAMES = np.array(["cat", "dog"])
# Enough rows for every part of the fit, few enough for a test.
SIZES = {"labeled": 480, "unlabeled": 240, "test": 200, "ood": 100, "log": 200}


def columns_of(table: str) -> dict[str, np.ndarray]:
    """Columns of a table; the same numbers every time."""
    n, seed = SIZES[table], list(SIZES).index(table)
    labels = None
    if table in ("labeled", "test"):
        X, labels = WORLD.sample_id(n, random_state=seed)
    elif table == "ood":
        X = WORLD.sample_ood(n, random_state=seed)
    else:
        X, _ = WORLD.sample_mixture(n, pi=0.3, random_state=seed)
    columns = {
        "row": np.array([f"{table}-{i}" for i in range(n)]),
        "größe": X[:, 0],
        "width": X[:, 1],
        "features": X.astype(np.float32),
        "logit_cat": 3.0 * (1.5 - X[:, 0]),
        "logit_dog": 3.0 * (X[:, 0] - 1.5),
    }
    return columns if labels is None else {**columns, "animal": NAMES[labels], "code": labels}


def write_table(path, columns):
    """Write columns; CSV has no lists."""
    with TableWriter(path) as file:
        file.write({name: values for name, values in columns.items() if values.ndim == 1 or path.suffix != ".csv"})
    return path
