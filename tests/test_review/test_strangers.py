"""A list of strangers: its false discovery rate, what it does with ties and with rows that the ratio has seen, and the bound for every prefix."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from poscod import OOD, POSCOD
from poscod.exceptions import InvalidInputError
from poscod.mix import ClassMix
from poscod.model import InputsDriftedWarning, NoUnlabeledDataWarning, traffic_places
from poscod.review import Strangers, discoveries, envelope, stranger_groups, strangers, thinned
from poscod.selector import Drift


def slow_list(score, known, level):
    """The list by its definition: every threshold is tried."""
    best = []
    for t in score:
        rows = [i for i, value in enumerate(score) if value >= t]
        if len(score) * (1 + sum(c >= t for c in known)) <= level * (len(known) + 1) * len(rows) * (1 + 1e-12):
            best = max(best, rows, key=len)
    return sorted(best)


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=12),
    st.lists(st.integers(0, 6), min_size=1, max_size=30),
    st.sampled_from([0.05, 0.2, 0.35, 0.8]),
)
def test_the_list_is_the_longest_that_the_definition_allows(score, known, level):
    score, known = np.array(score, dtype=float), np.array(known, dtype=float)
    index, p_value = discoveries(score, known, level)
    assert sorted(index.tolist()) == slow_list(score, known, level)
    assert (np.diff(score[index]) <= 0).all()
    assert p_value == pytest.approx([(1 + (known >= score[i]).sum()) / (len(known) + 1) for i in index])


def simulate(runs, n, m, pi, step, level, delta, seed=0):
    """False discovery rate and how often the bound is broken anywhere, on known scores with strangers three standard deviations away."""
    rng = np.random.default_rng(seed)
    place, bound = envelope(m, n, delta)
    false, broken = [], 0
    for _ in range(runs):
        is_ood = rng.uniform(size=m) < pi
        known, log = rng.normal(size=n), rng.normal(3.0 * is_ood)
        if step:
            known, log = np.round(known / step), np.round(log / step)
        index, _ = discoveries(log, known, level)
        false.append((~is_ood[index]).sum() / max(1, len(index)))
        index, p_value = discoveries(log, known, 0.999)
        above = np.rint(p_value * (n + 1)).astype(int) - 1
        broken += bool((np.cumsum(~is_ood[index]) > bound[np.searchsorted(place, above)]).any())
    return float(np.mean(false)), broken / runs


@pytest.mark.parametrize(
    ("n", "m", "pi", "step", "level"),
    [(199, 100, 0.15, 0.0, 0.1), (99, 100, 0.3, 0.5, 0.2), (39, 20, 0.0, 0.0, 0.2), (400, 150, 0.1, 0.0, 0.05)],
)
def test_the_rate_and_the_bound_hold_on_known_scores(n, m, pi, step, level):
    """FDR is at most (1 - pi) level, and for l + 1 a multiple of m / level exactly that; 800 logs, four standard errors."""
    false, broken = simulate(800, n, m, pi, step, level, delta=0.1)
    assert false <= (1 - pi) * level + 4 * np.sqrt(level / 800)
    if (n + 1) * level % m == 0 and not step:
        assert false >= (1 - pi) * level - 4 * np.sqrt(level / 800)
    assert broken <= 0.1 + 4 * np.sqrt(0.1 * 0.9 / 800)
    if pi == 0.0:
        assert broken >= 0.03  # and it is not far from being broken as often as it says


def test_the_urn_has_its_known_law():
    """Each N(b) alone exceeds its bound less often than all together, by the exact law: at most b of the first n + b rows are calibration rows."""
    m, n, delta = 300, 120, 0.1
    place, bound = envelope(m, n, delta)
    tail = np.array(
        [hypergeom.cdf(b, m + n, n, v + 1 + b) if v < m else 0.0 for b, v in zip(place, bound, strict=True)]
    )
    assert (tail < delta).all()
    assert tail[:-1].max() > delta / 30
    assert (place[0], place[-1], bound[-1]) == (0, n, m)


def test_another_class_mix_needs_the_weights():
    """Class 1 scores higher and is three times as frequent in the log: with weights the rate holds, without it does not."""
    rng = np.random.default_rng(0)
    p, q = np.array([0.8, 0.2]), np.array([0.4, 0.6])
    rates = {True: [], False: []}
    for _ in range(300):
        y, classes = rng.choice(2, 1200, p=p), rng.choice(2, 400, p=q)
        is_ood = rng.uniform(size=400) < 0.15
        known, log = rng.normal(1.5 * y), np.where(is_ood, rng.normal(5.0, size=400), rng.normal(1.5 * classes))
        for weighted in rates:
            index, _ = discoveries(log, thinned(known, (q / p)[y]) if weighted else known, 0.2)
            rates[weighted].append((~is_ood[index]).sum() / max(1, len(index)))
    assert np.mean(rates[True]) < 0.2
    assert np.mean(rates[False]) > 0.26


@pytest.mark.parametrize(
    "way", ["cross-fitted, own log", "cross-fitted, new log", "held out, new log", "rows given, own", "rows given, new"]
)
def test_every_way_to_a_list(case, crossed, shared_out, way):
    model = shared_out if way.startswith("held") else crossed
    own = "own" in way
    log, is_ood = (case.own, case.own_ood) if own else (case.new, case.new_ood)
    found = strangers(model, log, 0.15, X_id=case.fresh if "given" in way else None)
    assert found.exact == (not way.startswith("cross"))
    assert found.n_rows == 300
    assert is_ood[found.index].mean() > 0.7
    assert is_ood[found.index].sum() > 0.7 * is_ood.sum()
    assert (np.diff(found.log_ratio) <= 0).all()
    bounds = found.bounds(0.1)
    assert ((~is_ood[found.index]).cumsum() <= bounds).all()
    assert (np.diff(bounds) >= 0).all()
    assert (np.diff(bounds) <= 1).all()
    assert found.false_discoveries(10, delta=0.1) == bounds[9]
    assert found.false_discoveries(0) == 0


def test_the_traffic_of_the_fit_is_known_again(case, crossed, held, shared_out, tmp_path):
    """Rows of the fit get the log g of a ratio that has not seen them, in any order and from a file; where there is none, they are refused."""
    crossed.save(tmp_path / "model.poscod")
    again = POSCOD.load(tmp_path / "model.poscod")
    order = np.random.default_rng(0).permutation(300)
    one, two = strangers(crossed, case.own, 0.2), strangers(again, case.own[order], 0.2)
    assert sorted(order[two.index]) == sorted(one.index)
    unseen = crossed.calibration_.traffic_log_ratio
    assert np.isin(one.log_ratio, unseen).all()
    assert not np.isin(crossed.log_ratio(case.own), unseen).all()
    for model in (held, shared_out):
        with pytest.raises(InvalidInputError, match=r"300 or more of 300.*leave them out, or give rows .* as X_id"):
            strangers(model, case.own)
    half = np.concatenate([case.own[:30], case.new])
    with pytest.raises(InvalidInputError, match="30 or more of 330"):
        strangers(shared_out, half)


def test_labeled_rows_of_the_fit_are_no_fresh_known_inputs(case, crossed, shared_out):
    """Also a few of them among fresh ones, and whether or not the ratio was learned on them."""
    for model in (crossed, shared_out):
        for known, rows in ((case.X[:50], 50), (np.concatenate([case.fresh, case.X[-5:]]), 5)):
            with pytest.raises(
                InvalidInputError, match=f"X_id must hold no rows of the fit, got {rows} of {len(known)} "
            ):
                strangers(model, case.new, X_id=known)
    strangers(crossed, case.new, X_id=np.concatenate([case.fresh, case.fresh]))


def test_a_log_far_longer_than_what_is_kept_of_it_is_known_again():
    """Of a log of many rows a model keeps few: that most of these come again tells, however small a part they are; a few of them do not."""
    log = np.arange(1_000_000, dtype=np.uint64)
    kept = SimpleNamespace(traffic_keys=log[::10_000])
    assert np.flatnonzero(traffic_places(kept, log, None) >= 0).tolist() == list(range(0, 1_000_000, 10_000))
    kept.traffic_keys = np.concatenate([log[::100_000], np.arange(90, dtype=np.uint64) + 10**7])
    assert (traffic_places(kept, log, None) < 0).all()


def test_no_traffic_known_by_its_log_g_where_rows_did_not_stay(case, shared_out):
    """Models of earlier versions keep no numbers of their traffic: it is known again by log g."""
    model = shared_out.at()
    model.calibration_ = replace(shared_out.calibration_, traffic_keys=None)
    with pytest.raises(InvalidInputError, match="300 or more of 300"):
        strangers(model, case.own)
    assert len(strangers(model, case.new)) > 30


def test_models_of_earlier_versions_need_known_inputs(case, crossed):
    """Without keys a cross-fitted model cannot tell its own traffic: there is no list without X_id, and with it a ratio is learned anew."""
    model = crossed.at()
    model.calibration_ = replace(crossed.calibration_, traffic_keys=None, traffic_held=False)
    with pytest.raises(InvalidInputError, match=r"earlier version.*X_id"):
        strangers(model, case.new)
    found = strangers(model, case.new, 0.15, X_id=case.fresh)
    assert found.exact
    assert found.n_known == 150
    assert case.new_ood[found.index].mean() > 0.7


def test_a_model_with_verdicts_gives_the_lists_of_one_without(case, crossed):
    """With X_id a ratio is learned anew, without verdicts; the correction that they gave is no part of it."""
    said = [OOD if is_ood else int(row[0] > 1.5) for row, is_ood in zip(case.own[:40], case.own_ood, strict=False)]
    reviewed = {"X_reviewed": case.own[:40], "y_reviewed": said}
    model = POSCOD(alpha=0.3, tpr_min=0.9, random_state=0).fit(case.X, case.y, X_unlabeled=case.own, **reviewed)
    assert model.rule_.verdicts == 40
    one, two = (strangers(own, case.own, 0.15, X_id=case.fresh) for own in (model, crossed))
    assert two.exact
    assert one.index.tolist() == two.index.tolist()
    assert len(stranger_groups(model, case.own, X_id=case.fresh)) >= 1


def test_a_list_for_an_estimated_mix_is_not_exact(case, shared_out):
    """Known inputs are thinned to the mix that is served."""
    p, q = np.array([0.7, 0.3]), np.array([0.3, 0.7])
    model = shared_out.at()
    calibration = shared_out.calibration_
    model.calibration_ = replace(calibration, mix=ClassMix(p, q, q - 0.05, q + 0.05, 0.95, 1e-6, True))
    found = strangers(model, case.new)
    assert not found.exact
    expected = (calibration.codes == 1).sum() + (calibration.codes == 0).sum() * (0.3 / 0.7) / (0.7 / 0.3)
    assert abs(found.n_known - expected) < 25


def test_refusals_and_warnings(case, crossed):
    with pytest.raises(InvalidInputError, match=r"level must be a number in \(0, 1\), got 1.0"):
        strangers(crossed, case.new, 1.0)
    with pytest.raises(InvalidInputError, match="X must hold at least one row"):
        strangers(crossed, case.new[:0])
    with pytest.raises(InvalidInputError, match="X_id must hold at least two rows, got 1"):
        strangers(crossed, case.new, X_id=case.fresh[:1])
    with pytest.warns(NoUnlabeledDataWarning):
        blind = POSCOD(random_state=0).fit(case.X, case.y)
    with pytest.raises(InvalidInputError, match="must be fitted with unlabeled traffic"):
        strangers(blind, case.new)
    model = crossed.at()
    model.calibration_ = replace(crossed.calibration_, trained_on=True)
    with pytest.raises(InvalidInputError, match=r"trained on.*X_id"):
        strangers(model, case.new)
    model.calibration_ = replace(
        crossed.calibration_, drift=Drift("drift", ("a",), (1.0,), (1.0,), 0.5, 0.5, False, True)
    )
    with pytest.warns(InputsDriftedWarning, match="X_id"):
        strangers(model, case.new)
    strangers(model, case.new, X_id=case.fresh)  # rows of today settle it
    with pytest.raises(InvalidInputError, match="k must be at most"):
        strangers(crossed, case.new).false_discoveries(10_000)


def test_a_list_is_a_table(case, crossed):
    found = strangers(crossed, case.new)
    assert json.loads(json.dumps(found.to_dict()))["index"] == found.index.tolist()
    assert list(found.frame().columns) == ["index", "log_ratio", "p_value"]
    assert repr(found) == f"Strangers({len(found)} of 300 inputs, at most 10 % of them known)"
    # 300 rows against 400 known ones: the shortest list has ceil(300 / 40.1) rows.
    assert found.least == 8
    empty = Strangers(found.index[:0], found.log_ratio[:0], found.p_value[:0], 0.1, 300, 400, True)
    assert (len(empty), empty.false_discoveries()) == (0, 0)
