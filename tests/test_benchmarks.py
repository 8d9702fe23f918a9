"""What the benchmarks conclude from numbers; the numbers themselves take minutes and are no test."""

from __future__ import annotations

import importlib
import inspect
import re

import numpy as np
import pytest

from benchmarks import class_mix, null_gate, ratio_quality, small_data
from benchmarks.__main__ import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_has_a_quick_way(name):
    module = importlib.import_module(f"benchmarks.{name}")
    assert "quick" in inspect.signature(module.main).parameters


def cell(name, pi, **areas):
    names = {"poscod": "POSCOD", "oracle": "POSCOD oracle", "msp": "MSP"}
    place = {"label": "now", "set": name, "n": "3000", "pi": str(pi), "seed": "0"}
    return [{**place, "method": names[method], "plugin": str(area)} for method, area in areas.items()]


def test_quality_is_summed_up_by_group_of_sets():
    rows = [
        *cell("svhn_test", 0.1, poscod=2.0, oracle=1.0, msp=6.0),
        *cell("clinc150", 0.1, poscod=1.5, oracle=1.5, msp=1.2),
        *cell("cifar100_test", 0.1, poscod=2.2, oracle=2.0, msp=3.0),
    ]
    text = ratio_quality.summary(rows)
    assert "development 2.000 (1 sets), report 1.049 (2 sets), all 1.301 (3 sets); goal 1.12" in text
    assert "worst cell: svhn_test at pi = 0.1, 2.000; goal 1.35" in text
    assert "Cells worse than MSP: now: clinc150 at pi = 0.1, 1.50 against 1.20" in text
    assert "Cells worse than MSP: none" in ratio_quality.summary(rows[:3])


def test_groups_of_sets_share_none():
    assert not set(ratio_quality.DEVELOPMENT) & set(ratio_quality.REPORT)


def test_small_data_says_who_wins(capsys):
    rows = []
    for label, accuracy, areas in (("now", 91.0, (3.0, 3.1, 2.9)), ("first", 90.0, (4.0, 4.2, 3.9))):
        for seed, area in enumerate(areas):
            place = {"label": label, "set": "clinc", "n": "300", "seed": str(seed)}
            rest = dict.fromkeys(small_data.VALUES, "1")
            rows.append({**place, **rest, "accuracy": str(accuracy - 0.5 * (seed == 1)), "ausrt": str(area)})
    small_data.show(rows)
    shown = re.sub(" +", " ", capsys.readouterr().out)
    assert "| ausrt | first -> now | 3 | 4.03 | 3.00 | +1.03 +- 0.03 | win |" in shown
    assert "| accuracy | first -> now | 3 | 89.83 | 90.83 | +1.00 +- 0.00 | win |" in shown
    for row in rows:
        row["label"] = {"now": "first", "first": "now"}[row["label"]]
    small_data.show(rows)
    assert "| LOSS" in capsys.readouterr().out


def test_a_gate_is_held_to_the_limits_of_its_level(capsys):
    def fits(opened):
        place = {"label": "now", "set": "table", "classifier": "forest"}
        rest = dict.fromkeys(null_gate.VALUES, "1")
        return [{**place, **rest, "fit": str(i), "gate_open": str(int(i < opened))} for i in range(100)]

    for opened, verdict in ((0, "below"), (1, "within"), (10, "within"), (11, "above")):
        null_gate.show(fits(opened))
        line = re.sub(" +", " ", capsys.readouterr().out)
        assert f"| {opened} of 100 | 1-10 | {verdict} |" in line


def test_a_library_is_named_by_its_source(tmp_path, monkeypatch):
    (tmp_path / "__init__.py").write_text("a = 1")
    monkeypatch.setattr(ratio_quality.poscod, "__file__", str(tmp_path / "__init__.py"))
    first = ratio_quality.own_label()
    (tmp_path / "__init__.py").write_text("a = 2")
    assert first != ratio_quality.own_label()


def mix_cell(shift, pi, **values):
    """Four methods on one cell; values are of the default."""
    place = {"label": "now", "set": "svhn_test", "shift": shift, "pi": str(pi), "seed": "0"}
    plain = {
        "ausrt": 2.0,
        "tpr": 0.95,
        "error": 5.0,
        "pi_true": pi,
        "pi_hat": pi,
        "tv": 0.01,
        "changed": 0,
        "seconds": 1.0,
    }
    rows = []
    for method in class_mix.METHODS:
        own = {**plain, **({"ausrt": 6.0} if method == "MSP" else values if method == "auto" else {})}
        rows.append({**place, "method": method, **{key: str(value) for key, value in own.items()}})
    return rows


def test_class_mix_says_what_is_missed(capsys):
    class_mix.show(mix_cell("dir", 0.1))
    assert "worse than MSP: 0 of 1" in capsys.readouterr().out
    missed = [
        *mix_cell("dir", 0.1, ausrt=7.0, pi_hat=0.2, tpr=0.9, seconds=3.0),
        *mix_cell("none", 0.1, ausrt=2.05),
    ]
    class_mix.show(missed)
    out = capsys.readouterr().out
    for check in ("|mean pi_hat - pi| > .03", "TPR off by > .01", "AuSRT > 1.05 x known mix", "worse than MSP"):
        assert f"{check}: 1 of 2 (svhn_test dir pi 0.1)" in out
    assert "loss > 2 % without shift: 1 of 2 (svhn_test none pi 0.1)" in out
    assert "largest 3.00" in out


@pytest.mark.parametrize("shift", class_mix.SHIFTS)
def test_shifts_are_class_mixes(shift):
    for k in (3, 10, 150):
        share = class_mix.SHIFTS[shift](k, np.random.default_rng(k))
        assert share.shape == (k,)
        assert share.min() >= 0.0
        assert share.sum() == pytest.approx(1.0)
    assert (class_mix.SHIFTS["drop"](10, np.random.default_rng(0)) == 0.0).sum() == 3
