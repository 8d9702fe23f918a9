"""Questions to an assistant that ship with the examples; see data/clinc/README.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

DATA = Path(__file__).resolve().parent / "data" / "clinc"


def questions(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the sentence embeddings of one table and the intent of each question."""
    table = pq.read_table(DATA / f"{name}.parquet")
    embedding = np.stack(table["embedding"].to_pylist()).astype(np.float32)
    return embedding, np.array(table["truth" if "truth" in table.column_names else "intent"].to_pylist())
