"""Running: exact answers, resuming bit for bit, reuse, failures that cost one cell."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from poscod.benchmark import BenchmarkError, read_results, read_spec, run
from poscod.benchmark._cells import versions
from poscod.exceptions import InvalidInputError

SMALL = {"n_id": 150, "n_mixture": 150, "n_test": 200, "seeds": (0, 1)}


def gaussian(**changes):
    return dataclasses.replace(read_spec("gaussian"), **{"alphas": (0.3,), "pis": (0.4,), **changes})


@pytest.fixture(scope="module")
def exact_results(tmp_path_factory):
    """The Gaussian benchmark with many measured rows."""
    folder = tmp_path_factory.mktemp("gaussian")
    spec = gaussian(seeds=(0, 1, 2), scores=("msp", "mahalanobis"), ratios=("exact", "paper", "standard", "strong"))
    run(spec, folder)
    return read_results(folder)


def mean(rows, **wanted):
    values = [r["value"] for r in rows if all(r[key] == value for key, value in wanted.items())]
    assert values, wanted
    return float(np.mean(values))


@pytest.mark.parametrize("ood_set", ["near", "far"])
def test_exact_ratio_reaches_the_exact_optimum(exact_results, ood_set):
    """With the true r and g the plug-in rule is optimal: 3 draws of 1,000 rows lie around the optimum.

    The sd of one draw's area is below 0.006 (measured), so the mean of 3 is within 0.013 (3.7 sd) with probability above 0.999.
    """
    optimum = mean(exact_results, method="optimum", ood_set=ood_set)
    reached = mean(exact_results, method="exact", strategy="linear", ood_set=ood_set)
    assert abs(reached - optimum) < 0.013
    assert optimum > 0.01


def test_no_estimate_beats_the_exact_ratio_on_average_and_the_standard_sigmoid_pays(exact_results):
    linear = {
        method: mean(exact_results, method=method, strategy="linear")
        for method in ("exact", "paper", "strong", "standard")
    }
    assert linear["exact"] < min(linear["paper"], linear["strong"]) + 0.002
    assert max(linear["paper"], linear["strong"]) < linear["standard"]
    assert linear["standard"] < mean(exact_results, method="msp", metric="ausrt")
    assert abs(mean(exact_results, method="strong", metric="ood_prior") - 0.4) < 0.05


def test_single_scores_obey_the_identity(exact_results):
    """Raw AuSRT = (1 - alpha) AuRC + alpha (1 - AuROC), up to the one row before the first reachable point."""
    for seed in range(3):
        row = {"method": "mahalanobis", "seed": seed, "ood_set": "near", "strategy": "single"}
        aurc, auroc, ausrt = (mean(exact_results, metric=m, **row) for m in ("aurc", "auroc", "ausrt"))
        assert ausrt == pytest.approx(0.7 * aurc + 0.3 * (1 - auroc), abs=2e-3)


def test_every_row_says_what_it_is(exact_results):
    for row in exact_results:
        assert row["benchmark"] == "gaussian"
        assert len(row["data_hash"]) == len(row["spec_hash"]) == 16
        assert row["versions"] == versions()
        assert (row["pi"] is None) == (row["method"] not in ("paper", "standard", "strong"))
        assert (row["alpha"] is None) == (row["metric"] != "ausrt")
        if row["kind"] != "optimum":
            assert (row["n_id"], row["n_ood"]) == (1000, 1000)


def small_digits(**changes):
    return dataclasses.replace(
        read_spec("digits"), **{**SMALL, "ratios": ("paper", "clean_lr"), "scores": ("msp", "ebo", "knn"), **changes}
    )


def table_of(folder):
    return (folder / "results.csv").read_bytes()


def test_parallel_serial_and_resumed_runs_give_the_same_bytes(tmp_path):
    spec = small_digits()
    run(spec, tmp_path / "one")
    run(spec, tmp_path / "two", n_jobs=2)
    assert table_of(tmp_path / "one") == table_of(tmp_path / "two")
    cells = sorted((tmp_path / "two" / "cells").iterdir())
    for path in cells[::3]:
        path.unlink()
    cells[1].write_text("{")  # not ours
    finished = run(spec, tmp_path / "two")
    assert finished.computed == len({*cells[::3], cells[1]})
    assert table_of(tmp_path / "one") == table_of(tmp_path / "two")


def test_a_changed_specification_computes_only_what_is_new(tmp_path):
    first = run(small_digits(), tmp_path)
    more = run(small_digits(scores=("msp", "ebo", "knn", "vim")), tmp_path)
    assert (more.computed, more.reused) == (4, first.computed)  # one score, two sets, two seeds
    before = {p.name: json.loads(p.read_text()) for p in (tmp_path / "cells").iterdir()}
    wider = run(small_digits(alphas=(0.25, 0.5, 0.9)), tmp_path)
    assert wider.computed == first.computed  # every cell gets one more cost ...
    for path in (tmp_path / "cells").iterdir():
        values = {tuple(v[:4]): v[4] for v in json.loads(path.read_text())["values"]}
        assert all(values[tuple(v[:4])] == v[4] for v in before[path.name]["values"])  # ... and keeps what it had
    assert run(small_digits(), tmp_path).computed == 0
    assert run(small_digits(n_test=100), tmp_path).computed == first.computed


def test_one_bad_cell_does_not_take_the_others_with_it(tmp_path, monkeypatch):
    from poscod.scores import SCORES

    def broken(self, activations):
        raise ValueError("no neighbours today")

    monkeypatch.setattr(SCORES["knn"].kind, "_fit", broken)
    with pytest.raises(
        BenchmarkError, match=r"4 of .* cells could not be computed; the first is .*knn: ValueError: no neighbours"
    ):
        run(small_digits(), tmp_path)
    monkeypatch.undo()
    assert run(small_digits(), tmp_path).computed == 4


def test_image_sources_need_their_extraction_first(tmp_path):
    spec = dataclasses.replace(
        small_digits(), source="openood", id_set="cifar10", near={"tin": ""}, checkpoint="x", ratios=("paper",)
    )
    with pytest.raises(InvalidInputError, match="needs its activations extracted first"):
        run(spec, tmp_path)


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_bytes(tmp_path):
    """A real process group is killed without warning, several times, and restarted."""
    spec = small_digits(ratios=("strong", "paper"))
    expected = tmp_path / "expected"
    run(spec, expected)
    text = [f'name = "digits"\nsource = "digits"\nid_set = "digits"\nnetwork = "{spec.network}"']
    for key in ("scores", "ratios", "strategies", "seeds", "pis", "alphas"):
        text.append(f"{key} = {json.dumps(list(getattr(spec, key)))}")
    text += [f"{key} = {getattr(spec, key)}" for key in ("n_id", "n_mixture", "n_test")] + ["tuned = false"]
    (tmp_path / "spec.toml").write_text("\n".join(text))
    out = tmp_path / "killed"
    command = [
        sys.executable,
        "-m",
        "poscod",
        "bench",
        "run",
        str(tmp_path / "spec.toml"),
        "-o",
        str(out),
        "--jobs",
        "2",
        "--quiet",
    ]
    rng, kills, total = random.Random(5), 0, len(list((expected / "cells").iterdir()))

    def done():
        return len(list(out.glob("cells/*.json")))

    while done() < total:
        process = subprocess.Popen(command, start_new_session=True)
        goal = min(done() + rng.randint(1, max(1, total // 4)), total)
        while process.poll() is None and done() < goal:
            time.sleep(0.01)
        time.sleep(rng.random() * 0.1)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 3
    assert not (out / "results.csv").exists() or kills < total
    subprocess.run(command, check=True)
    assert table_of(out) == table_of(expected)


def workers():
    """The processes of the pool that this one started; not the tracker that cleans up after them."""
    own = Path(f"/proc/{os.getpid()}/task")
    started = [int(pid) for task in own.iterdir() for pid in (task / "children").read_text().split()]
    return [pid for pid in started if b"popen_loky" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's /proc to find the workers")
def test_a_worker_that_dies_is_one_sentence_and_costs_nothing_finished(tmp_path):
    """The workers of a real run are killed; the run says so, and the next one goes on."""
    spec = small_digits()
    done = []

    def kill(n_done, _total, _what):
        done.append(n_done)
        for pid in workers():
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(BenchmarkError, match=r"ended abruptly .* Finished cells are kept: run again"):
        run(spec, tmp_path, n_jobs=2, progress=kill)
    assert done[0] == 1
    assert run(spec, tmp_path).reused >= 1
