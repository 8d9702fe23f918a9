"""A network as ratio: recipe, kill and resume, files, and what cannot be asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from poscod import POSCOD, Activations
from poscod.backends.images import Images
from poscod.backends.torch import NetworkRatio, extract, fit_ratio
from poscod.backends.torch._checkpoint import read_arrays, write_arrays
from poscod.backends.torch._head import held_out_losses
from poscod.backends.torch._sides import epoch_batches, split_sides, step_seed
from poscod.exceptions import InvalidInputError
from poscod.model import ClassMixWarning
from poscod.ratio import CorrectedSigmoid
from poscod.theory import GaussianWorld

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from _runs import images, mirrored, network, run  # noqa: E402

sys.path.remove(str(HERE))


def start(options):
    command = [sys.executable, "-W", "ignore", str(HERE / "_runs.py"), json.dumps(options)]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="module")
def whole():
    return run()


def curve(history, key="validation_loss"):
    return [row[key] for row in history]


def test_killed_and_continued_ends_where_it_would_have_ended(whole, tmp_path):
    path = tmp_path / "run.npz"
    process = start({"checkpoint": str(path), "epochs": 10**6})
    deadline = time.monotonic() + 600  # a busy machine takes long to import torch
    done = 0
    while done < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
        if path.exists():
            done = len(read_arrays(path)[1]["history"]) - 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    seen = len(read_arrays(path)[1]["history"]) - 1
    longer = max(seen + 2, 6)
    again = run(checkpoint=path, epochs=longer)
    straight = whole if longer == 6 else run(epochs=longer)
    assert curve(again.history_) == curve(straight.history_)  # to the last bit
    np.testing.assert_array_equal(again.head_.weight, straight.head_.weight)
    finished = run(checkpoint=path, epochs=longer)  # nothing left to do
    assert curve(finished.history_) == curve(straight.history_)
    with pytest.raises(InvalidInputError, match="other settings or other data"):
        run(checkpoint=path, learning_rate=0.1)


def test_same_seed_same_result_and_another_seed_another(whole):
    assert curve(run(epochs=2).history_) == curve(whole.history_[:3])
    assert curve(run(epochs=2, seed=4).history_) != curve(whole.history_[:3])


def test_the_users_network_and_random_numbers_are_left_alone():
    model = network().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    ratio = fit_ratio(model, *images(), train="all", start=False, epochs=4, batch_size=60, augment=mirrored)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert ratio.best_epoch_ > 0
    assert not torch.equal(ratio.network[0].weight, model[0].weight)  # the copy has learned
    assert torch.equal(ratio.network[1].running_mean, model[1].running_mean)  # with the statistics it came with
    assert not any(module._forward_hooks for module in [*model.modules(), *ratio.network.modules()])


@pytest.mark.parametrize("train", ["all", "head"])
def test_batch_statistics_stay_and_dropout_follows_the_training(train):
    seen = set()

    class Watched(nn.Module):
        """Notes in which mode its parts run."""

        def __init__(self):
            super().__init__()
            self.body, self.drop, self.last = network()[:5], nn.Dropout(0.5), nn.Linear(24, 4)

        def forward(self, x):
            features = self.drop(self.body(x))
            seen.add(
                (torch.is_inference_mode_enabled(), self.body[1].training, self.drop.training, features.requires_grad)
            )
            return self.last(features)

    fit_ratio(Watched(), *images(), train=train, augment=mirrored, epochs=1)
    looked, validated = (True, False, False, False), (False, False, False, False)
    assert seen == ({looked, validated, (False, False, True, True)} if train == "all" else {looked, validated})


@pytest.fixture(scope="module")
def world():
    """Features with an exact linear log-ratio."""
    world = GaussianWorld([[0.0, 0.0, 0.0]], [[1.5, 1.0, 0.0]])
    known = world.sample_id(2400, random_state=0)[0]
    mixture = world.sample_mixture(2000, pi=0.3, random_state=1)[0]
    return world, known.astype(np.float32), mixture.astype(np.float32)


@pytest.mark.parametrize("warm", [True, False])
def test_head_on_features_reaches_the_closed_form(world, warm):
    world, known, mixture = world
    held = world.sample_id(2000, random_state=2)[0], world.sample_mixture(1500, pi=0.3, random_state=3)[0]
    sides = Activations(known[:2000]), Activations(mixture[:1500])
    ratio = fit_ratio(
        None,
        *sides,
        validation=(Activations(known[2000:]), Activations(mixture[1500:])),
        start=warm,
        learning_rate=0.003 if warm else 0.02,
        epochs=40,
        decay_every=15,
    )
    core = CorrectedSigmoid(recipe="paper").fit(*sides)
    ours, theirs = (held_out_losses(est, held, 1500 / 3500).sum() for est in (ratio, core))
    assert ours < 1.01 * theirs
    assert ratio.ood_prior_ == pytest.approx(0.3, abs=0.1)
    low, high = ratio.head_.fit(*(Activations(side) for side in held)).ood_prior_interval(0.9)
    assert low <= 0.3 <= high
    exact = world.log_ratio(held[0])
    assert np.corrcoef(ratio.log_ratio(Activations(held[0])), exact)[0, 1] > 0.98


def test_bias_is_trained_and_prior_may_be_known(world):
    _, known, mixture = world
    ratio = fit_ratio(None, Activations(known), Activations(mixture), ood_prior=0.25, start=False, epochs=8)
    assert ratio.ood_prior_ == pytest.approx(0.25)
    null = np.log(0.25) * 0 - float(np.asarray(ratio.head_.weight) @ known.mean(axis=0))
    assert abs(ratio.head_.intercept - null) > 0.1


def test_a_frozen_network_gives_what_its_features_give():
    model = network()
    known, mixture = images()
    by_model = fit_ratio(model, known, mixture, epochs=4)
    by_features = fit_ratio(None, extract(model, known), extract(model, mixture), epochs=4)
    np.testing.assert_allclose(by_model.head_.weight, by_features.head_.weight, atol=1e-5)
    np.testing.assert_allclose(by_model.log_ratio(known), by_features.log_ratio(extract(model, known)), atol=1e-4)
    by_name = fit_ratio(model, known, mixture, layer="5", epochs=4)
    np.testing.assert_array_equal(by_name.head_.weight, by_model.head_.weight)
    with_inputs = fit_ratio(model, known, mixture, augment=lambda x: x, epochs=4)  # the network runs in every epoch
    np.testing.assert_allclose(with_inputs.head_.weight, by_model.head_.weight, atol=1e-4)


def test_data_sets_of_pairs_and_mappings():
    known, mixture = images(60, 60)
    expected = fit_ratio(network(), known, mixture, epochs=1)
    pairs = fit_ratio(network(), torch.utils.data.TensorDataset(known, torch.zeros(60)), mixture.numpy(), epochs=1)
    np.testing.assert_allclose(pairs.head_.weight, expected.head_.weight, atol=1e-6)

    pixels = np.random.default_rng(0).integers(0, 256, (80, 8, 8, 3), dtype=np.uint8)
    from_images = fit_ratio(network(), Images(pixels[:40], labels=np.zeros(40)), Images(pixels[40:]), epochs=1)
    np.testing.assert_allclose(
        from_images.log_ratio(Images(pixels).batches(30)), from_images.log_ratio(Images(pixels)), rtol=1e-4, atol=1e-4
    )

    class ByName(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, pixel_values):
            return {"logits": self.inner(pixel_values)}

    named = [[{"pixel_values": row} for row in rows] for rows in (known, mixture)]
    by_name = fit_ratio(ByName(), *named, epochs=1)
    np.testing.assert_allclose(by_name.head_.weight, expected.head_.weight, atol=1e-6)
    moved = fit_ratio(ByName(), *named, train="all", epochs=4, start=False, batch_size=30)
    assert moved.best_epoch_ > 0
    assert not torch.equal(moved.network.inner[0].weight, network()[0].weight)
    with pytest.raises(InvalidInputError, match="augment needs inputs that are one tensor"):
        fit_ratio(ByName(), *named, augment=mirrored, epochs=1)


def test_in_poscod_and_in_files(tmp_path):
    known, mixture = images(200, 160)
    classifier = network()
    for train in ("head", "all"):
        ratio = fit_ratio(classifier, known[:100], mixture[:80], train=train, epochs=2)
        rows, traffic = extract(classifier, known[100:]), extract(classifier, mixture[80:])
        own = ratio.activations(known[100:], logits=rows.logits), ratio.activations(mixture[80:], logits=traffic.logits)
        model = POSCOD(ratio=ratio.head_, random_state=0)
        with pytest.warns(ClassMixWarning, match="cannot be told from 100 labeled and 80 unlabeled rows"):
            model.fit(own[0], rows.logits.argmax(axis=1), X_unlabeled=own[1])
        inside = np.delete(np.arange(80), model.scorer_.guard.far(own[1]).at)
        assert len(inside) > 20
        found, expected = model.decide(own[1]).log_ratio, ratio.log_ratio(mixture[80:])
        np.testing.assert_allclose(found[inside], expected[inside], rtol=1e-4, atol=1e-3)
        assert (found >= expected - 1e-3).all()  # rows outside of what labeled rows held are never more familiar for it
        model.save(tmp_path / "model.poscod")
        np.testing.assert_array_equal(
            POSCOD.load(tmp_path / "model.poscod").decide(own[1]).score, model.decide(own[1]).score
        )
        ratio.save(tmp_path / "ratio.npz")
        again = NetworkRatio.load(tmp_path / "ratio.npz", network())
        np.testing.assert_array_equal(again.log_ratio(known), ratio.log_ratio(known))
        assert again.ood_prior_ == ratio.ood_prior_
        assert repr(again) == repr(ratio)
        assert curve(again.history_) == curve(ratio.history_)
    with pytest.raises(InvalidInputError, match="logits must be given"):
        ratio.activations(known)
    with pytest.raises(InvalidInputError, match="pass model"):
        NetworkRatio.load(tmp_path / "ratio.npz")
    with pytest.raises(InvalidInputError, match="does not fit this network"):
        NetworkRatio.load(tmp_path / "ratio.npz", nn.Linear(3, 2))
    write_arrays(tmp_path / "other.npz", {}, {"format": "else"})
    with pytest.raises(InvalidInputError, match="its format is 'else'"):
        NetworkRatio.load(tmp_path / "other.npz")
    (tmp_path / "broken.npz").write_bytes(b"PK nonsense")
    with pytest.raises(InvalidInputError, match="could not be read"):
        NetworkRatio.load(tmp_path / "broken.npz")


def test_early_stopping_and_learning_rates(world):
    _, known, mixture = world
    ratio = fit_ratio(None, Activations(known), Activations(mixture), epochs=60, patience=3)
    assert len(ratio.history_) - 1 == ratio.best_epoch_ + 3
    assert ratio.history_[ratio.best_epoch_]["validation_loss"] == min(curve(ratio.history_))
    stepped = fit_ratio(None, Activations(known), Activations(mixture), epochs=5, decay_every=2)
    assert curve(stepped.history_, "learning_rate")[1:] == pytest.approx([3e-3, 3e-3, 3e-4, 3e-4, 3e-5])


def test_batches_hold_every_row_once_and_both_sides():
    sides, held = split_sides(torch.zeros(103, 2), torch.zeros(29, 2), 0.2, seed=1)
    assert sides.sizes == (82, 23)
    assert held.sizes == (21, 6)
    assert not set(sides.rows[0]) & set(held.rows[0])
    for epoch in (1, 2):
        batches = epoch_batches(sides, 20, 1, epoch)
        assert len(batches) == 5
        assert {len(a) + len(b) for a, b in batches} == {21}
        for side in (0, 1):
            np.testing.assert_array_equal(np.sort(np.concatenate([b[side] for b in batches])), sides.rows[side])
    assert len({step_seed(*key) for key in [(1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 1, 1)]}) == 4


def test_augmentation_sees_training_rows_only_and_is_seeded_for_every_batch():
    known, mixture = images(60, 40)
    seen = []

    def note(x):
        seen.append((len(x), float(torch.rand(()))))
        return x

    for _ in range(2):
        fit_ratio(network(), known, mixture, augment=note, epochs=2, batch_size=40)
    assert [n for n, _ in seen] == [40] * 8  # 80 of the 100 rows, in two batches
    assert len({number for _, number in seen[:4]}) == 4
    assert seen[:4] == seen[4:]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"train": "last"}, "train must be one of 'all', 'head'"),
        ({"augment": "cifar"}, "augment must be a function"),
        ({"epochs": -1}, "epochs"),
        ({"batch_size": 1}, "batch_size"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"dropout": 1.0}, "dropout"),
        ({"patience": 0}, "patience"),
        ({"validation": 1.0}, "validation"),
        ({"validation": (1, 2, 3)}, "a pair"),
        ({"decay_every": 0}, "decay_every"),
        ({"backbone_learning_rate": 0.0}, "backbone_learning_rate"),
        ({"ood_prior": 0.0}, "ood_prior"),
        ({"layer": "nowhere"}, "layer must name a module"),
    ],
)
def test_bad_options(options, match):
    with pytest.raises(InvalidInputError, match=match):
        fit_ratio(network(), *images(20, 20), **options)


def test_bad_data():
    known, mixture = images(20, 20)
    features = Activations(np.zeros((5, 2)))
    with pytest.raises(InvalidInputError, match="of one kind"):
        fit_ratio(network(), known, features)
    with pytest.raises(InvalidInputError, match="model must be a network"):
        fit_ratio(None, known, mixture)
    with pytest.raises(InvalidInputError, match="features already"):
        fit_ratio(network(), features, features, train="all")
    with pytest.raises(InvalidInputError, match="pass the data set, not its loader"):
        fit_ratio(network(), iter([known]), mixture)
    with pytest.raises(InvalidInputError, match="id_data leaves no row for validation, of 1"):
        fit_ratio(network(), known[:1], mixture)
    bad = known.clone()
    bad[3] = torch.nan
    with pytest.raises(InvalidInputError, match="id_data: features must be finite, got nan at row 3"):
        fit_ratio(network(), bad, mixture)
    with pytest.raises(InvalidInputError, match="one shape"):
        fit_ratio(network(), known, mixture[:, :, :5], train="all", epochs=1)
    with pytest.raises(InvalidInputError, match=r"training loss became .* lower learning_rate"):
        run(learning_rate=1e30, backbone_learning_rate=1e30, epochs=3)
    with pytest.raises(InvalidInputError, match="has no network"):
        fit_ratio(None, Activations(np.eye(9)), Activations(np.eye(9) + 1), epochs=0).activations(known)
