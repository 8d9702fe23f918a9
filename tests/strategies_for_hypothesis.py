"""Hypothesis strategies: samples with ties, infinities, constants and one row."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

# Few distinct values make ties likely; the infinities are legal scores.
scores = st.sampled_from([-np.inf, -2.5, -1.0, 0.0, 0.1, 0.25, 0.5, 1.0, 3.0, np.inf]) | st.floats(-5, 5)
losses = st.sampled_from([0.0, 0.0, 1.0, 0.3, 7.0])
weights = st.sampled_from([0, 1, 1, 2, 3])


@st.composite
def samples(draw, max_rows=12, weighted=False):
    """score_id, loss_id, score_ood and, if wanted, integer weights with at least one positive each."""
    m, n = draw(st.integers(1, max_rows)), draw(st.integers(1, max_rows))
    vector = lambda elements, size: np.array(draw(st.lists(elements, min_size=size, max_size=size)), dtype=float)  # noqa: E731
    sample = vector(scores, m), vector(losses, m), vector(scores, n)
    if not weighted:
        return sample
    w_id, w_ood = vector(weights, m), vector(weights, n)
    w_id[draw(st.integers(0, m - 1))] += 1
    w_ood[draw(st.integers(0, n - 1))] += 1
    return (*sample, w_id, w_ood)
