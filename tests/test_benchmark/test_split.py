"""No row learns and is measured: by number and by content."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poscod import Activations
from poscod.benchmark import BenchmarkSpec, read_spec
from poscod.benchmark._measure import Measured, Wanted, values_of
from poscod.benchmark._sources import FEWEST_REFERENCE, Pool, Scores, content_hash, open_source
from poscod.benchmark._split import Split, mixture_sizes, split_rows
from poscod.metrics import ausrt
from poscod.scores import SCORES
from poscod.strategies import plugin_curve, sirc, sirc_parameters

SIZES = BenchmarkSpec("sizes", "digits", n_id=10, n_test=15, id_train_share=0.6, ood_train_share=0.5)


def hashes(*values):
    return np.array(values, dtype=np.uint64)


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=60),
    st.lists(st.integers(0, 30), min_size=1, max_size=60),
    st.one_of(st.none(), st.lists(st.integers(0, 30), max_size=40)),
    st.one_of(st.none(), st.lists(st.integers(0, 30), max_size=40)),
    st.integers(0, 3),
)
def test_learning_and_measured_rows_never_meet(id_, ood, id_train, ood_train, seed):
    """Few distinct contents: copies everywhere, also of ID rows among OOD rows."""
    parts = [None if p is None else hashes(*p) for p in (id_, ood, id_train, ood_train)]
    split = split_rows(SIZES, parts, "svhn", seed)
    from_id, from_ood = (parts[0] if parts[2] is None else parts[2]), (parts[1] if parts[3] is None else parts[3])
    learning = np.concatenate([split.id_labeled, split.id_mixture])
    content = set(from_id[learning].tolist()) | set(from_ood[split.ood_train].tolist())
    measured = set(parts[0][split.id_test].tolist()) | set(parts[1][split.ood_test].tolist())
    assert not content & measured
    assert not set(split.id_spare.tolist()) & set(split.id_test.tolist())
    assert not content & set(parts[0][split.id_spare].tolist())
    for rows in (learning, split.ood_train, split.id_test, split.ood_test, split.id_spare):
        assert len(set(rows.tolist())) == len(rows)
    if parts[2] is None:
        assert not set(learning.tolist()) & set(split.id_test.tolist())
    if parts[3] is None:
        assert not set(split.ood_train.tolist()) & set(split.ood_test.tolist())


def test_dedicated_training_rows_leave_all_evaluation_rows_to_measuring():
    n = np.arange(40, dtype=np.uint64)
    sizes = dataclasses.replace(SIZES, n_test=100)
    dedicated = split_rows(sizes, (n, n + 100, n + 200, n + 300), "a", 0)
    assert (len(dedicated.id_test), len(dedicated.ood_test), len(dedicated.ood_train)) == (40, 40, 40)
    halves = split_rows(sizes, (n, n + 100, None, None), "a", 0)
    assert (len(halves.id_test), len(halves.ood_test), len(halves.ood_train)) == (16, 20, 20)


def test_a_copy_of_a_measured_row_does_not_learn():
    """A dedicated training file that repeats evaluation images loses exactly those."""
    n = np.arange(40, dtype=np.uint64)
    split = split_rows(SIZES, (n, n + 100, None, np.append(n + 300, hashes(103, 139))), "a", 0)
    assert sorted(split.ood_train.tolist()) == list(range(40))


def test_seeds_and_sets_give_other_splits_and_the_same_split_again():
    n = np.arange(200, dtype=np.uint64)
    rows = (n, n + 500, None, None)
    one, again = (split_rows(SIZES, rows, "a", 3) for _ in range(2))
    other = split_rows(SIZES, rows, "a", 4)
    sibling = split_rows(SIZES, rows, "b", 3)
    assert all((a == b).all() for a, b in zip(one, again, strict=True))
    assert (one.id_test != other.id_test).any()
    assert (one.ood_test != sibling.ood_test).any()
    assert (one.id_test == sibling.id_test).all()  # OOD sets of one seed are measured beside the same ID rows


@given(st.floats(0.01, 1.0), st.integers(10, 3000), st.integers(1, 3000), st.integers(1, 3000))
def test_mixture_keeps_its_share_and_its_bounds(pi, n, most_id, most_ood):
    m, k = mixture_sizes(pi, n, most_id, most_ood)
    assert 0 <= m <= most_id
    assert 0 <= k <= most_ood
    assert m + k <= n
    assert abs(k - pi * (m + k)) <= 1.0


@pytest.mark.parametrize("name", ["digits", "gaussian"])
def test_real_pools_by_content(name):
    spec = read_spec(name)
    source = open_source(spec)
    for ood_set in source.sets():
        pool = source.pool("", ood_set, 1)
        split = split_rows(spec, pool.hashes(), ood_set, 1)
        learning = np.concatenate([split.id_labeled, split.id_mixture])
        seen = np.concatenate([content_hash(pool.id_test[learning]), content_hash(pool.ood_test[split.ood_train])])
        measured = np.concatenate(
            [content_hash(pool.id_test[split.id_test]), content_hash(pool.ood_test[split.ood_test])]
        )
        assert len(split.id_test) > 100
        assert not np.isin(seen, measured).any()
        reference = content_hash(pool.reference(split))
        assert len(reference) >= FEWEST_REFERENCE
        assert not np.isin(reference, measured).any()


def test_rows_of_reference_are_spare_else_of_the_mixture_else_measured():
    rng = np.random.default_rng(0)
    pool = Pool(*(Activations(rng.normal(size=(600, 2)), rng.normal(size=(600, 2))) for _ in range(3)))
    some, none = np.arange(FEWEST_REFERENCE), np.arange(0)

    def first(mixture, spare):
        split = Split(none, mixture, none, some + 200, some, spare)
        found = pool.reference(split)
        assert np.array_equal(pool.scores("msp", split).reference, SCORES["msp"]()(found))
        return found.features[0]

    assert np.array_equal(first(some + 300, some + 400), pool.id_test.features[400])
    assert np.array_equal(first(some + 300, some[1:]), pool.id_train.features[300])
    assert np.array_equal(first(some[1:], none), pool.id_test.features[200])


def test_sirc_is_placed_by_rows_that_are_not_measured():
    rng = np.random.default_rng(1)
    r, g = (Scores(rng.uniform(size=80), rng.uniform(size=70), np.zeros(0)) for _ in range(2))
    g = g._replace(reference=rng.normal(-0.2, 0.1, size=200))
    measured = Measured(g, g, r, (rng.uniform(size=80) < 0.4).astype(float))
    arrays = (r.id_, g.id_, measured.loss, r.ood, g.ood)
    wanted = [Wanted("sirc", setting, "ausrt", 0.3) for setting in ("plugin", "tuned")]
    plugin, tuned = values_of(measured, wanted, "paper").values()
    a, b = sirc_parameters(g.reference)
    by_hand = ausrt(sirc(r.id_, g.id_, a, b), measured.loss, sirc(r.ood, g.ood, a, b), alpha=0.3, envelope=False)
    assert plugin == plugin_curve("sirc", *arrays, alpha=0.3, s2_reference=g.reference).area
    assert plugin == pytest.approx(by_hand, abs=0.01)  # the curve is read at 101 required TPRs
    assert abs(plugin - plugin_curve("sirc", *arrays, alpha=0.3).area) > 0.001  # another placement is another rule
    assert tuned < plugin
