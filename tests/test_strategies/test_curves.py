from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning

from oracles import strategies as oracles
from poscod.exceptions import InvalidInputError
from poscod.metrics import ausrt
from poscod.strategies import STRATEGIES, plugin_curve, sirc, sirc_parameters, tuned_areas, tuned_curve

TARGETS = np.linspace(0, 1, 101)
GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@st.composite
def rows(draw, ties=True):
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    m, n = draw(st.integers(2, 14)), draw(st.integers(1, 12))
    s1_id, s2_id, s1_ood, s2_ood = rng.random(m), rng.gamma(1, 1, m), rng.random(n), rng.gamma(3, 1, n)
    if ties and draw(st.booleans()):
        s1_id, s2_id, s1_ood, s2_ood = (np.ceil(4 * x) / 4 for x in (s1_id, s2_id, s1_ood, s2_ood))
        s2_id[0] += 1
    return s1_id, s2_id, rng.choice([0.0, 1.0, 0.4], m), s1_ood, s2_ood


def test_family():
    assert set(STRATEGIES) == {"linear", "product", "sirc"}
    s2 = np.arange(10.0)
    assert len(STRATEGIES["linear"].grids["paper"](s2)) == 1603
    assert len(STRATEGIES["linear"].grids["reference"](s2)) == 1601
    assert len(STRATEGIES["sirc"].grids["paper"](s2)) == 41 * 41
    assert len(STRATEGIES["sirc"].grids["reference"](s2)) == 40 * 40


@given(arrays=rows(), alpha=st.sampled_from([0.0, 0.2, 0.5, 0.9]))
def test_plugin_linear_equals_slow_definition(arrays, alpha):
    curve = plugin_curve("linear", *arrays, alpha=alpha)
    expected = oracles.linear_plugin(*arrays, alpha, TARGETS)
    np.testing.assert_allclose(curve.risk, expected, atol=1e-12)
    assert curve.area == pytest.approx(float(np.mean(expected[1:] + expected[:-1]) / 2), abs=1e-12)
    assert curve.kind == "plug-in"
    assert (curve.achieved_tpr >= TARGETS - 1e-12).all()


@given(arrays=rows())
def test_plugin_linear_at_alpha_one_is_the_ratio_alone(arrays):
    _, s2_id, loss, _, s2_ood = arrays
    expected = oracles.tuned([(s2_id, s2_ood)], loss, 1.0, TARGETS)  # FPR only grows, so the minimum is the first point
    np.testing.assert_allclose(plugin_curve("linear", *arrays, alpha=1.0).risk, expected, atol=1e-12)


@settings(max_examples=15)
@given(arrays=rows(), alpha=st.sampled_from([0.2, 0.9]), grid=st.sampled_from(["paper", "reference"]))
def test_tuned_equals_slow_definition(arrays, alpha, grid):
    s1_id, s2_id, loss, s1_ood, s2_ood = arrays
    targets = np.array([0.0, 0.1, 0.45, 0.5, 0.999, 1.0])
    whole = (np.pi / 2) if grid == "reference" else 2 * np.pi
    angles = np.append(np.linspace(0, whole, 1600), [np.pi / 2, np.pi, 1.5 * np.pi] if grid == "paper" else [np.pi / 2])
    # A slow oracle on every 40th setting bounds the fast one from above; on all settings of a thin grid it is equal.
    thin = angles[::40]
    slow = oracles.tuned(
        [(np.cos(v) * s1_id + np.sin(v) * s2_id, np.cos(v) * s1_ood + np.sin(v) * s2_ood) for v in thin],
        loss,
        alpha,
        targets,
    )
    fast = tuned_curve("linear", *arrays, alpha=alpha, tpr=targets, grid=grid)
    assert (fast.risk <= slow + 1e-12).all()
    full = oracles.tuned(
        [
            (
                setting["weight_1"] * s1_id + setting["weight_2"] * s2_id,
                setting["weight_1"] * s1_ood + setting["weight_2"] * s2_ood,
            )
            for setting in {tuple(s.items()): s for s in fast.setting}.values()
        ],
        loss,
        alpha,
        targets,
    )
    np.testing.assert_allclose(fast.risk, full, atol=1e-12)
    assert fast.kind == "tuned in-sample (bound)"


@pytest.mark.parametrize("grid", ["paper", "reference"])
@pytest.mark.parametrize("alpha", [0.2, 0.7])
def test_whole_grid_equals_slow_definition(grid, alpha):
    """All 1600-odd settings of both strategies by the slow oracle, once."""
    rng = np.random.default_rng(5)
    s1_id, s2_id, s1_ood, s2_ood = rng.random(9), rng.gamma(1, 1, 9), rng.random(7), rng.gamma(3, 1, 7)
    loss = (rng.random(9) < 0.4).astype(float)
    targets = np.array([0.0, 0.2, 0.55, 0.9, 1.0])
    arrays = (s1_id, s2_id, loss, s1_ood, s2_ood)
    whole = (np.pi / 2) if grid == "reference" else 2 * np.pi
    angles = np.append(np.linspace(0, whole, 1600), [np.pi / 2, np.pi, 1.5 * np.pi] if grid == "paper" else [np.pi / 2])
    linear = [(np.cos(v) * s1_id + np.sin(v) * s2_id, np.cos(v) * s1_ood + np.sin(v) * s2_ood) for v in angles]
    expected = oracles.tuned(linear, loss, alpha, targets)
    np.testing.assert_allclose(
        tuned_curve("linear", *arrays, alpha=alpha, tpr=targets, grid=grid).risk, expected, atol=1e-12
    )
    mean, sd = np.mean(-s2_id), np.std(s2_id)
    a, b = np.linspace(mean - 6 * sd, mean, 40), np.linspace(0.1 / sd, 10 / sd, 40)
    if grid == "paper":
        a, b = np.append(a, mean - 3 * sd), np.append(b, 1 / sd)
    combined = [(oracles.sirc(s1_id, s2_id, x, y), oracles.sirc(s1_ood, s2_ood, x, y)) for x in a for y in b]
    expected = oracles.tuned(combined, loss, alpha, targets)
    np.testing.assert_allclose(
        tuned_curve("sirc", *arrays, alpha=alpha, tpr=targets, grid=grid).risk, expected, atol=1e-12
    )


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_threads_do_not_change_the_result(strategy, rng):
    arrays = (rng.random(80), rng.gamma(1, 1, 80), rng.random(80) < 0.3, rng.random(60), rng.gamma(2, 1, 60))
    one, two = (tuned_curve(strategy, *arrays, alpha=0.3, n_jobs=jobs) for jobs in (1, 2))
    np.testing.assert_array_equal(one.risk, two.risk)
    np.testing.assert_array_equal(one.threshold, two.threshold)
    assert one.setting == two.setting


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_tuned_is_never_worse_than_plugin(strategy, rng):
    arrays = (rng.random(300), rng.gamma(1, 1, 300), rng.random(300) < 0.3, rng.random(200), rng.gamma(2, 1, 200))
    plugin, tuned = (f(strategy, *arrays, alpha=0.3) for f in (plugin_curve, tuned_curve))
    # The plug-in slope lies between two angles of the grid, hence the small allowance.
    assert (tuned.risk <= plugin.risk + 2e-3).all()


def test_chosen_rule_can_be_replayed(rng):
    """Setting and threshold of the curve reproduce its risk on the rows."""
    arrays = (rng.random(80), rng.gamma(1, 1, 80), (rng.random(80) < 0.3) * 1.0, rng.random(60), rng.gamma(2, 1, 60))
    s1_id, s2_id, loss, s1_ood, s2_ood = arrays
    curve = tuned_curve("linear", *arrays, alpha=0.3)
    for t, risk, threshold, setting, tpr in list(
        zip(curve.tpr, curve.risk, curve.threshold, curve.setting, curve.achieved_tpr, strict=True)
    )[1:]:
        accepted = setting["weight_1"] * s1_id + setting["weight_2"] * s2_id <= threshold
        wrong = setting["weight_1"] * s1_ood + setting["weight_2"] * s2_ood <= threshold
        assert accepted.mean() == pytest.approx(tpr)
        assert tpr >= t - 1e-12
        assert 0.7 * loss[accepted].mean() + 0.3 * wrong.mean() == pytest.approx(risk, abs=1e-12)


def test_tuning_on_another_split_chooses_nothing_on_the_measured_rows(rng):
    draw = lambda m, n: (  # noqa: E731
        rng.random(m),
        rng.gamma(1, 1, m),
        (rng.random(m) < 0.3) * 1.0,
        rng.random(n),
        rng.gamma(3, 1, n),
    )
    tune, test = draw(400, 300), draw(500, 350)
    curve = tuned_curve("linear", *test, alpha=0.3, tune=tune)
    bound = tuned_curve("linear", *test, alpha=0.3)
    chosen = tuned_curve("linear", *tune, alpha=0.3)
    assert curve.kind == "tuned on a separate split"
    assert curve.setting == chosen.setting
    np.testing.assert_array_equal(curve.threshold, chosen.threshold)
    assert curve.area > bound.area
    for i in (20, 60, 95):
        weights, threshold = curve.setting[i], curve.threshold[i]
        accepted = weights["weight_1"] * test[0] + weights["weight_2"] * test[1] <= threshold
        wrong = weights["weight_1"] * test[3] + weights["weight_2"] * test[4] <= threshold
        assert curve.risk[i] == pytest.approx(0.7 * test[2][accepted].mean() + 0.3 * wrong.mean(), abs=1e-12)
        assert curve.achieved_tpr[i] == pytest.approx(accepted.mean())


def test_tuned_threshold_may_accept_no_measured_row():
    tune = ([0.0, 0.1], [0.0, 0.1], [0.0, 1.0], [0.5], [0.5])
    test = ([9.0, 9.0], [9.0, 9.0], [0.0, 1.0], [0.05, 9.0], [0.05, 9.0])
    with pytest.warns(UndefinedMetricWarning, match="accepts no measured ID row"):
        curve = tuned_curve("linear", *test, alpha=0.4, tune=tune, tpr=[0.5, 1.0])
    assert curve.achieved_tpr.tolist() == [0.0, 0.0]
    assert np.isnan(curve.risk).all()  # a rule that fails must not look better
    assert np.isnan(curve.area)
    assert curve.shortfall == 1.0


@settings(max_examples=6)
@given(
    arrays=rows(), strategy=st.sampled_from(["linear", "sirc", "product"]), grid=st.sampled_from(["paper", "reference"])
)
def test_areas_of_several_costs_are_those_of_one_at_a_time(arrays, strategy, grid):
    alphas = [0.0, 0.3, 0.5, 0.9, 1.0]
    areas = tuned_areas(strategy, *arrays, alphas=alphas, grid=grid)
    expected = [tuned_curve(strategy, *arrays, alpha=alpha, grid=grid).area for alpha in alphas]
    np.testing.assert_allclose(areas, expected, atol=1e-12)


def test_curves_do_not_share_memory_with_their_targets():
    targets = np.array([0.2, 0.9])
    curve = plugin_curve("linear", [0.1, 0.2], [0.1, 0.5], [0, 1], [0.3], [2.0], tpr=targets)
    targets[0] = 0.5
    assert curve.tpr[0] == 0.2


def test_sirc_refuses_a_confidence_and_orders_infinite_ratios():
    arrays = ([0.1, 0.2, 0.0], [1.0, 2.0, 3.0], [0, 1, 0], [0.5, 0.0], [np.inf, np.inf])
    curve = plugin_curve("sirc", *arrays, alpha=0.4, tpr=[0.3, 1.0])
    # The zero-risk rows come first, an OOD row among them; the other OOD row is last.
    assert curve.risk.tolist() == pytest.approx([0.4 * 0.5, 0.6 / 3 + 0.4 * 0.5])
    for curve_of in (plugin_curve, tuned_curve):
        with pytest.raises(InvalidInputError, match="s1 must be non-negative for SIRC"):
            curve_of("sirc", [-0.9, -0.2], *(np.asarray(a)[:2] for a in arrays[1:3]), [-0.5], [4.0])


def test_sirc_takes_its_scale_from_a_reference_sample(rng):
    arrays = (rng.random(80), rng.gamma(1, 1, 80), rng.random(80) < 0.3, rng.random(60), rng.gamma(2, 1, 60))
    reference = rng.gamma(1, 1, 500)
    curve = plugin_curve("sirc", *arrays, s2_reference=reference)
    a, b = sirc_parameters(reference)
    assert curve.setting[50] == {"a": a, "b": b}
    measured = plugin_curve("sirc", *arrays)
    assert measured.setting[50] != curve.setting[50]
    assert (curve.kind, measured.kind) == ("plug-in", "plug-in (a, b from the measured rows)")


def test_infinite_ratios_are_rejected_last():
    arrays = ([0.1, 0.2, 0.3], [0.0, 1.0, np.inf], [0, 0, 1], [0.5], [np.inf])
    for alpha in (0.3, 1.0):
        curve = plugin_curve("linear", *arrays, alpha=alpha, tpr=[0.6, 1.0])
        assert curve.risk[0] == 0.0
        assert curve.risk[1] > 0.0
    assert np.isfinite(tuned_curve("linear", *arrays, alpha=0.3, grid="reference").risk).all()


@pytest.fixture(params=["tiny", "sim", "gauss_s0"])
def golden(request):
    # The large case is not part of the repository.
    folder = request.getfixturevalue("shared") / "golden" if request.param == "gauss_s0" else GOLDEN
    with np.load(folder / f"{request.param}.npz") as file:
        return {key: file[key] for key in file.files}


# The reference takes the nearest TPR, which is the smallest TPR >= t on this case only.
SMALLEST = pytest.mark.parametrize("golden", ["sim"], indirect=True)


def golden_rows(golden, first=lambda confidence: 1 - confidence):
    is_id = golden["in__y_true"] >= 0
    loss = (golden["in__y_true"] != golden["in__y_pred"])[is_id].astype(float)
    s1, s2 = first(golden["in__score_1"]), -golden["in__score_2"]
    return s1[is_id], s2[is_id], loss, s1[~is_id], s2[~is_id]


# The reference adds this to 1 - MSP inside SIRC.
def with_epsilon(confidence):
    return 1 - confidence + np.finfo(np.float32).eps


@pytest.mark.parametrize(("strategy", "key", "first"), [("linear", "lin", None), ("sirc", "sirc", with_epsilon)])
def test_tuned_equals_the_reference(golden, strategy, key, first):
    arrays = golden_rows(golden, first) if first else golden_rows(golden)
    curve = tuned_curve(strategy, *arrays, grid="reference", n_jobs=2)
    np.testing.assert_allclose(curve.risk, golden[f"{key}_tuned__risk"], atol=1e-9)
    assert curve.area == pytest.approx(float(golden[f"{key}_tuned__area"]), abs=1e-9)


@SMALLEST
def test_plugin_linear_equals_the_reference(golden):
    arrays = golden_rows(golden)
    curve = plugin_curve("linear", *arrays)
    np.testing.assert_allclose(curve.risk, golden["lin_plugin__risk"], atol=1e-9)
    assert curve.area == pytest.approx(float(golden["lin_plugin__area"]), abs=1e-9)
    for weight in ("0.1", "0.25", "0.75", "0.9"):
        curve = plugin_curve("linear", *arrays, alpha=1 - float(weight))
        np.testing.assert_allclose(curve.risk, golden[f"beta{weight}__theorem__lin_plugin__risk"], atol=1e-9)
        assert curve.area == pytest.approx(float(golden[f"beta{weight}__theorem__lin_plugin__area"]), abs=1e-9)
    for weight in ("0.25", "0.75"):
        curve = tuned_curve("linear", *arrays, alpha=1 - float(weight), grid="reference")
        assert curve.area == pytest.approx(float(golden[f"beta{weight}__arg__lin_tuned__area"]), abs=1e-9)


@SMALLEST
def test_product_equals_the_reference(golden):
    """The reference multiplies a confidence with -g: as an uncertainty that is (1 - r) g."""
    curve = plugin_curve("product", *golden_rows(golden, first=lambda confidence: confidence))
    np.testing.assert_allclose(curve.risk, golden["mult__risk"], atol=1e-9)


def test_plugin_sirc_equals_the_reference(golden):
    """Its area is raw: no grid of targets, no envelope."""
    s1_id, s2_id, loss, s1_ood, s2_ood = golden_rows(golden, with_epsilon)
    a, b = sirc_parameters(s2_id)
    assert a == pytest.approx(float(golden["sirc_plugin__a"]), abs=1e-12)
    assert b == pytest.approx(float(golden["sirc_plugin__b"]), abs=1e-12)
    score_id, score_ood = sirc(s1_id, s2_id, a, b), sirc(s1_ood, s2_ood, a, b)
    is_id = golden["in__y_true"] >= 0
    np.testing.assert_allclose(score_id, -golden["sirc_plugin__score"][is_id], rtol=1e-12)
    area = ausrt(score_id, loss, score_ood, envelope=False)
    assert area == pytest.approx(float(golden["sirc_plugin__area"]), abs=1e-9)
    # The curve at the 101 targets is read off the reference's raw curve at the smallest TPR >= t.
    raw_tpr, raw_risk = golden["sirc_plugin__tpr"][1:], golden["sirc_plugin__risk"][1:]
    curve = plugin_curve("sirc", s1_id, s2_id, loss, s1_ood, s2_ood)
    expected = [raw_risk[np.argmax(raw_tpr >= t - 1e-12)] for t in curve.tpr[1:]]
    np.testing.assert_allclose(curve.risk[1:], expected, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: plugin_curve("Linear", *a), "did you mean 'linear'"),
        (lambda a: plugin_curve("linear", *a, alpha=2), "alpha must be a number"),
        (lambda a: plugin_curve("linear", *a, tpr=[0.5, 0.2]), "increasing"),
        (lambda a: plugin_curve("linear", *a, tpr=[0.5, 1.2]), "increasing"),
        (lambda a: plugin_curve("linear", *a, tpr=[-0.5, 0.2]), "tpr must be at least 0"),
        (lambda a: plugin_curve("linear", *a[:3], [], []), "at least one ID and one OOD row"),
        (lambda a: plugin_curve("linear", a[0], [1.0], *a[2:]), "s2_id must have as many rows as s1_id"),
        (lambda a: plugin_curve("linear", [np.inf, 0.1], *a[1:]), "s1_id must be finite"),
        (lambda a: tuned_curve("linear", *a, grid="papers"), "did you mean 'paper'"),
        (lambda a: tuned_curve("linear", *a, tune=a[:4]), "five arrays"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call(([0.1, 0.2], [0.1, 0.5], [0, 1], [0.3], [2.0]))
