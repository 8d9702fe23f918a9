"""Agreement with outputs of the authors' code and of other libraries on the same rows; tests/golden/README.md says which versions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from poscod.metrics import (
    augrc,
    aupr,
    aurc,
    auroc,
    ausrt,
    fpr_at_tpr,
    fpr_at_tpr_ood_positive,
    oscr,
    scod_curve,
    selective_risk_curve,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def load(path):
    with np.load(path) as file:
        return {key: file[key] for key in file.files}


@pytest.fixture(params=["tiny", "sim", "gauss_s0"])
def case(request):
    # The large case is not part of the repository.
    folder = request.getfixturevalue("shared") / "golden" if request.param == "gauss_s0" else GOLDEN
    golden = load(folder / f"{request.param}.npz")
    is_id = golden["in__y_true"] >= 0
    golden["is_id"] = is_id
    golden["loss"] = (golden["in__y_true"] != golden["in__y_pred"])[is_id].astype(float)
    return golden


@pytest.fixture(params=["1", "2"])
def sample(request, case):
    score = -case[f"in__score_{request.param}"]
    is_id = case["is_id"]
    prefix = f"m{request.param}__"
    return score[is_id], case["loss"], score[~is_id], {k[4:]: v for k, v in case.items() if k.startswith(prefix)}


def test_areas(sample):
    s_id, loss, s_ood, golden = sample
    assert auroc(s_id, s_ood) == pytest.approx(golden["AUROC"], abs=1e-12)
    assert aurc(s_id, loss, area="trapezoid") == pytest.approx(golden["AURC"], abs=1e-12)
    assert ausrt(s_id, loss, s_ood, envelope=False) == pytest.approx(golden["AUJR"], abs=1e-12)


def test_curves(sample):
    s_id, loss, s_ood, golden = sample
    if len(np.unique(np.concatenate([s_id, s_ood]))) < len(s_id) + len(s_ood):
        pytest.skip("the reference breaks ties by row order; this score has ties")
    curve = scod_curve(s_id, loss, s_ood)
    np.testing.assert_allclose(curve.threshold, -golden["sorted_score"], rtol=0, atol=0)
    np.testing.assert_allclose(curve.tpr, golden["curve_coverage"][1:], atol=1e-12)
    np.testing.assert_allclose(curve.fpr, golden["curve_fpr"][1:], atol=1e-12)
    # The reference calls the selective risk 0 where nothing is accepted; it is undefined there.
    some = curve.tpr > 0
    np.testing.assert_allclose(curve.selective_risk[some], golden["curve_sel_risk"][1:][some], atol=1e-12)
    np.testing.assert_allclose(curve.risk(0.5)[some], golden["curve_joint_risk"][1:][some], atol=1e-12)
    assert np.isnan(curve.selective_risk[~some]).all()


def test_other_libraries(sample):
    s_id, loss, s_ood, golden = sample
    assert auroc(s_id, s_ood) == pytest.approx(golden["sklearn_AUROC"], abs=1e-12)
    assert augrc(s_id, loss) == pytest.approx(golden["fdshifts_AUGRC"], abs=1e-12)
    assert aurc(s_id, loss, area="trapezoid") == pytest.approx(golden["fdshifts_AURC"], abs=1e-12)
    assert aurc(s_id, loss) == pytest.approx(golden["pytorchood_1_minus_aurra"], abs=1e-12)
    # torch-uncertainty divides by the width that its curve has, in single precision.
    width = 1 - 1 / len(s_id)
    assert aurc(s_id, loss, area="trapezoid") == pytest.approx(golden["torchunc_AURC"] * width, rel=1e-5)
    assert augrc(s_id, loss) == pytest.approx(golden["torchunc_AUGRC"] * width, rel=1e-5)
    assert aupr(s_id, s_ood, area="trapezoid") == pytest.approx(golden["openood_AUPR_IN"], abs=1e-12)
    assert aupr(s_id, s_ood, area="trapezoid", positive="ood") == pytest.approx(golden["openood_AUPR_OUT"], abs=1e-12)
    assert fpr_at_tpr(s_id, s_ood) == pytest.approx(golden["openood_FPR95_IDpositive"], abs=1e-12)
    assert fpr_at_tpr_ood_positive(s_id, s_ood) == pytest.approx(golden["openood_FPR95_OODpositive"], abs=1e-12)


@pytest.mark.parametrize("weight", [0.1, 0.25, 0.75, 0.9])
@pytest.mark.parametrize("score", ["1", "2"])
def test_area_at_asymmetric_costs(weight, score):
    """The reference's weight multiplies the selective risk, so the paper's alpha is one minus it."""
    golden = load(GOLDEN / "sim.npz")
    is_id = golden["in__y_true"] >= 0
    loss = (golden["in__y_true"] != golden["in__y_pred"])[is_id]
    s = -golden[f"in__score_{score}"]
    expected = golden[f"beta{weight}__const__m{score}__AUJR"]
    assert ausrt(s[is_id], loss, s[~is_id], alpha=1 - weight, envelope=False) == pytest.approx(expected, abs=1e-12)


def test_selective_risk_curve_is_the_scod_curve_without_ood(case):
    score = -case["in__score_1"][case["is_id"]]
    curve = selective_risk_curve(score, case["loss"])
    assert curve.tpr[-1] == 1.0
    assert curve.selective_risk[-1] == case["loss"].mean()


def grouped(name):
    """Return the cases of a file, each as a dict, by name."""
    cases = {}
    for key, value in load(GOLDEN / name).items():
        case, _, part = key.partition("__")
        cases.setdefault(case, {})[part] = value
    return cases


PYTORCH_OOD, TORCH_UNCERTAINTY = grouped("pytorch_ood.npz"), grouped("torch_uncertainty.npz")


@pytest.mark.parametrize("name", PYTORCH_OOD)
def test_grid_of_pytorch_ood(name):
    """pytorch-ood 0.4.0 (metrics/functional.py) on sizes, ties, shares of OOD and magnitudes; OOD is its positive class."""
    golden = PYTORCH_OOD[name]
    is_ood, wrong = golden["is_ood"], golden["wrong"]
    s_id, s_ood, loss = golden["score"][~is_ood], golden["score"][is_ood], wrong[~is_ood]
    assert auroc(s_id, s_ood) == pytest.approx(float(golden["auroc"]), abs=1e-12)
    assert aupr(s_id, s_ood, area="trapezoid") == pytest.approx(float(golden["aupr_in"]), abs=1e-12)
    assert aupr(s_id, s_ood, area="trapezoid", positive="ood") == pytest.approx(float(golden["aupr_out"]), abs=1e-12)
    found = [fpr_at_tpr_ood_positive(s_id, s_ood, tpr_min=float(t)) for t in golden["tpr"]]
    np.testing.assert_allclose(found, golden["fpr_at_tpr"], atol=1e-12)
    # The curve is the same, point by point: lines between distinct thresholds, from (0, 0).
    assert oscr(s_id, loss, s_ood) == pytest.approx(float(golden["oscr"]), abs=1e-12)
    if "aurra" in golden:  # not where ID scores are tied: it breaks ties by row order
        assert aurc(s_id, loss) == pytest.approx(1 - float(golden["aurra"]), abs=1e-12)


def test_the_grid_of_pytorch_ood_holds_the_hard_cases():
    sizes = {name: len(golden["score"]) for name, golden in PYTORCH_OOD.items()}
    assert min(sizes.values()) == 2
    assert sum(len(np.unique(golden["score"])) < len(golden["score"]) for golden in PYTORCH_OOD.values()) >= 10
    assert sum("aurra" in golden for golden in PYTORCH_OOD.values()) >= 5
    assert len(np.unique(PYTORCH_OOD["levels1"]["score"])) == 1


@pytest.mark.parametrize(
    ("s_id", "s_ood", "tpr", "expected"),
    [
        # pytorch-ood, tests/metrics/test_functional.py (a591810): OOD 10.5, 11.5, ..., ID 0, 1, ..., 29.
        (np.arange(30.0), np.arange(20.0) + 10.5, 0.95, 18 / 30),
        (np.arange(30.0), np.arange(20.0) + 10.5, 1.0, 19 / 30),
    ],
)
def test_fpr_with_ood_as_the_positive_class_by_hand(s_id, s_ood, tpr, expected):
    assert fpr_at_tpr_ood_positive(s_id, s_ood, tpr_min=tpr) == expected


@pytest.mark.parametrize(
    ("s_id", "s_ood", "expected"),
    [
        # torch-uncertainty, tests/metrics/classification/test_fpr95.py (114b225), confidences flipped: ID is its positive class.
        ([-1.0] * 99, [-0.99], 0.0),
        ([-0.9] * 100, [-0.95] * 50 + [-0.85] * 50, 0.5),
        ([-0.99] * 99, [-1.0], 1.0),
    ],
)
def test_fpr_with_id_as_the_positive_class_by_hand(s_id, s_ood, expected):
    assert fpr_at_tpr(s_id, s_ood) == expected


@pytest.mark.parametrize("name", TORCH_UNCERTAINTY)
def test_risk_and_coverage_of_torch_uncertainty(name):
    """torch-uncertainty 0.13.0 (classification/risk_coverage.py): its areas start at the first row and are divided by their width."""
    golden = TORCH_UNCERTAINTY[name]
    score, loss = -golden["confidence"], golden["wrong"].astype(float)
    n, first = len(score), loss[np.argmin(score)]
    assert aurc(score, loss, area="trapezoid") == pytest.approx(golden["aurc"] * (1 - 1 / n), rel=1e-6)
    # Ours begins at (0, 0): a triangle more, where the most confident answer is wrong.
    assert augrc(score, loss) == pytest.approx(golden["augrc"] * (1 - 1 / n) + first / (2 * n**2), rel=1e-6)
    curve = selective_risk_curve(score, loss)
    reached = [curve.selective_risk[np.argmax(curve.tpr >= c - 1e-12)] for c in golden["coverage"]]
    np.testing.assert_allclose(reached, golden["risk_at_coverage"], rtol=1e-6)
    for risk, coverage in zip(golden["risk"], golden["coverage_at_risk"], strict=True):
        allowed = curve.tpr[curve.selective_risk <= risk]
        assert (allowed.max() if len(allowed) else np.nan) == pytest.approx(coverage, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize(
    ("score", "loss", "expected"),
    [
        # torch-uncertainty, tests/metrics/classification/test_risk_coverage.py (d482189): confidences 0.9, 0.8, 0.7, 0.6, 0.8.
        ([0.1, 0.2, 0.3, 0.4, 0.2], [0, 0, 1, 1, 0], 0.1125),
        ([0.1, 0.2, 0.3, 0.4, 0.2], [1, 1, 1, 1, 1], 1.0),
        ([0.1, 0.2, 0.3, 0.4, 0.2], [0, 0, 0, 0, 0], 0.0),
    ],
)
def test_area_of_torch_uncertainty_by_hand(score, loss, expected):
    assert aurc(score, loss, area="trapezoid") / 0.8 == pytest.approx(expected)


KNOWN_MISPRINTS = {("imagenet_single", "ASH")}


def single_score_cells(tables):
    for table in ("imagenet_single", "cifar10_single", "cifar100_single"):
        for row in tables[table]:
            yield table, row


def test_paper_tables_satisfy_the_area_identity():
    """AuSRT = (1 - alpha) AuRC + alpha (1 - AuROC) in every single-score cell but the five misprinted ones."""
    tables = json.loads((GOLDEN / "paper_tables.json").read_text())
    cells, off = 0, []
    for table, row in single_score_cells(tables):
        name, aurc_percent = row["score"], row["AuRC"]["mean"]
        for dataset, values in row["values"].items():
            cells += 1
            implied = 0.5 * aurc_percent + 0.5 * (100 - values["AuROC"]["mean"])
            if abs(implied - values["AuSRT"]["mean"]) > 0.0101:
                off.append((table, name, dataset))
    assert cells == 153
    assert len(off) == 5
    assert {(table, name) for table, name, _ in off} == KNOWN_MISPRINTS
