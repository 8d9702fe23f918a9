"""Displays: every one of them stores arrays, draws them without computing, and returns them as a table."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from poscod import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.model import RULES, read_sample, rule_at, rules_of
from poscod.plot import (
    RULE_NAMES,
    Display,
    PlaneDisplay,
    RejectionDisplay,
    ReliabilityDisplay,
    RiskCurveDisplay,
    ScoreDistributionDisplay,
)
from poscod.ratio import CorrectedSigmoid
from poscod.theory import GaussianWorld

WORLD = GaussianWorld([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]], [[3.0, 4.0]])
LEVEL = 0.9
DISPLAYS = {
    "curves": RiskCurveDisplay,
    "distributions": ScoreDistributionDisplay,
    "plane": PlaneDisplay,
    "rejections": RejectionDisplay,
    "reliability": ReliabilityDisplay,
}


@pytest.fixture(scope="module")
def case():
    X, y = WORLD.sample_id(900, random_state=0)
    traffic, _ = WORLD.sample_mixture(500, pi=0.3, random_state=7)
    model = POSCOD(ratio=CorrectedSigmoid("paper"), alpha=0.3, tpr_min=0.85, random_state=0).fit(X, y, traffic)
    X_test, y_test = WORLD.sample_id(400, random_state=2)
    return (
        model,
        X_test,
        y_test,
        WORLD.sample_ood(250, random_state=3),
        WORLD.sample_mixture(300, pi=0.2, random_state=4)[0],
    )


@pytest.fixture(scope="module")
def made(case):
    model, X, y, ood, traffic = case
    return {
        "curves": RiskCurveDisplay.from_estimator(model, X, y, ood, tpr_min=[0.5, 0.9], level=LEVEL),
        "distributions": ScoreDistributionDisplay.from_estimator(model, X, y, ood, traffic, n_bins=7),
        "plane": PlaneDisplay.from_estimator(model, X, y, ood, traffic, max_points=100),
        "rejections": RejectionDisplay.from_estimator(model, X, y, ood),
        "reliability": ReliabilityDisplay.from_estimator(model, X, y, n_bins=5),
    }


def test_all_displays_are_tested(made):
    assert set(DISPLAYS.values()) == set(Display.__subclasses__())
    assert set(RULE_NAMES) == set(RULES)
    assert all(type(made[name]) is kind for name, kind in DISPLAYS.items())


@pytest.mark.parametrize("name", DISPLAYS)
class TestEveryDisplay:
    def test_plot_draws_on_axes_of_its_own_or_given_ones(self, made, name):
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib.figure import Figure

        display = made[name]
        assert display.plot() is display
        assert display.ax_.figure is display.figure_
        assert display.ax_.get_xlabel()
        assert display.ax_.get_legend() is not None
        display.figure_.canvas.draw()
        ax = Figure().subplots()
        assert display.plot(ax=ax).ax_ is ax
        assert ax.has_data()

    def test_frame_holds_the_arrays(self, made, name):
        frame, columns = made[name].frame(), made[name].columns()
        assert list(frame.columns) == list(columns)
        assert len(frame) > 0
        for key, values in columns.items():
            np.testing.assert_array_equal(frame[key].to_numpy(), values)

    def test_drawing_computes_nothing(self, made, name):
        """A display made of its own columns, which knows no model, draws the same."""
        kind, display = DISPLAYS[name], made[name]
        more = {"boundaries": display.boundaries} if name == "plane" else {}
        again = kind(**display.columns(), **more)
        first, second = (
            [line.get_xydata() for line in d.plot().ax_.get_lines()]
            + [np.asarray(c.get_offsets()) for c in d.ax_.collections]
            + [np.array([[p.get_x(), p.get_width()] for p in d.ax_.patches if hasattr(p, "get_width")])]
            for d in (display, again)
        )
        assert len(first) == len(second)
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)

    def test_unequal_lengths_are_refused(self, made, name):
        columns = made[name].columns()
        first = next(iter(columns))
        more = {"boundaries": {}} if name == "plane" else {}
        with pytest.raises(InvalidInputError, match="equally long"):
            DISPLAYS[name](**{**columns, first: columns[first][:-1]}, **more)


def test_display_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Display()


def test_curves_are_what_at_and_evaluate_give(case, made):
    model, X, y, ood, _ = case
    frame = made["curves"].frame().set_index(["rule", "tpr_min"])
    assert set(frame.index.get_level_values(0)) == set(RULES)
    for target in (0.5, 0.9):
        for rule, alpha in (("poscod", 0.3), ("risk", 0.0), ("ratio", 1.0)):
            other = model.at(alpha=alpha, tpr_min=target)
            want = other.evaluate(X, y, ood, level=LEVEL)
            row = frame.loc[(rule, target)]
            assert row["tpr"] == want.tpr.estimate
            for key in ("fpr", "selective_risk"):
                assert (row[key], row[f"{key}_low"], row[f"{key}_high"]) == getattr(want, key)[:3]
            # Every rule is judged at the model's own alpha.
            assert row["risk"] == pytest.approx(0.7 * row["selective_risk"] + 0.3 * row["fpr"], abs=1e-15)


def test_curves_from_unlabeled_rows_are_label_free(case):
    model, X, y, _, traffic = case
    frame = RiskCurveDisplay.from_estimator(model, X, y, X_unlabeled=traffic, tpr_min=[0.7]).frame()
    row = frame[frame["rule"] == "poscod"].iloc[0]
    want = model.at(tpr_min=0.7).evaluate_unlabeled(X, y, traffic)
    assert (row["fpr"], row["fpr_low"], row["fpr_high"]) == (want.fpr.estimate, want.fpr.low, want.fpr.high)
    assert row["risk"] == want.risk.estimate


def test_guaranteed_targets_that_cannot_be_promised_are_left_out(case):
    _, X, y, ood, traffic = case
    model = POSCOD(ratio=CorrectedSigmoid("paper"), tpr_min=0.8, threshold="guaranteed", random_state=0).fit(
        X, y, traffic
    )
    frame = RiskCurveDisplay.from_estimator(model, X, y, ood, tpr_min=[0.8, 0.999]).frame()
    assert set(frame["tpr_min"]) == {0.8}


def test_boundaries_are_where_the_score_meets_the_threshold(case):
    model, X, y, ood, traffic = case
    sample = read_sample(model, X, y, ood, traffic)
    lines = PlaneDisplay.from_sample(sample).boundaries
    assert set(lines) == set(RULES)
    for rule in rules_of(sample):
        risk, log_ratio = lines[rule.name]
        assert len(risk) >= 2
        inner = np.ones(len(risk), dtype=bool)
        if rule.name != "ratio":
            inner[[0, -1]] = False  # the ends are cut at the frame
            inner &= risk > 1e-9  # SIRC's boundary is rounded away far up
        rows = SimpleNamespace(risk=risk[inner], log_ratio=log_ratio[inner])
        np.testing.assert_allclose(rule.score(rows), rule.threshold, rtol=1e-9)


def test_plane_thins_evenly_and_keeps_decisions(case):
    model, X, y, ood, traffic = case
    columns = PlaneDisplay.from_estimator(model, X, y, ood, traffic, max_points=100).columns()
    # 400 rows: every fourth, exactly 100; 250: every third; 300: every third.
    assert [int(np.sum(columns["group"] == name)) for name in ("id", "ood", "unlabeled")] == [100, 84, 100]
    np.testing.assert_array_equal(columns["accept"][:100], model.decide(X).accept[::4])


def test_histograms_count_every_row(case, made):
    frame = made["distributions"].frame()
    totals = frame.groupby(["score", "group"])["share"].sum()
    assert len(totals) == 6
    np.testing.assert_allclose(totals, 1.0)


def test_rejections_add_up(case, made):
    model, X, y, ood, _ = case
    frame = made["rejections"].frame()
    for group, rows in (("id", X), ("ood", ood)):
        decisions = model.decide(rows)
        truth = y if group == "id" else decisions.label
        for label in model.classes_:
            mine = frame[(frame["group"] == group) & (frame["name"] == label)].set_index("reason")
            assert mine["count"].sum() == np.sum(truth == label)
            assert mine["count"]["accepted"] == np.sum(decisions.accept[truth == label])
            assert mine["count"]["unfamiliar"] == np.sum(decisions.reason[truth == label] == "unfamiliar")
            rows_of_class = int(np.sum(truth == label))
            assert mine["share"].sum(min_count=4) == pytest.approx(1.0 if rows_of_class else np.nan, nan_ok=True)


def test_without_a_ratio_only_the_risk_competes(case):
    _, X, y, ood, _ = case
    with pytest.warns(UserWarning, match="No unlabeled rows"):
        model = POSCOD(tpr_min=0.9, random_state=0).fit(X, y)
    sample = read_sample(model, X, y, ood, None)
    assert [rule.name for rule in rules_of(sample)] == ["poscod", "risk"]
    assert rule_at("sirc", sample, 0.9) is None
    assert set(RiskCurveDisplay.from_sample(sample, tpr_min=[0.5]).columns()["rule"]) == {"poscod", "risk"}
    PlaneDisplay.from_sample(sample).plot()


def test_options_are_checked(made):
    for name, option in (("curves", "value"), ("distributions", "score"), ("rejections", "group")):
        with pytest.raises(InvalidInputError, match=f"{option} must be one of"):
            made[name].plot(**{option: "nothing"})
