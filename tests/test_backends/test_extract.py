"""Extraction from networks of all shapes, straight to disk, with clear errors."""

from __future__ import annotations

import dataclasses
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from poscod import Activations
from poscod.backends.torch import build_network, extract, load_weights, odin
from poscod.exceptions import InvalidInputError
from poscod.scores import SCORES


def mlp(d=6, hidden=8, classes=3, last=()):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, classes), *last)


@dataclasses.dataclass
class Output:
    loss: torch.Tensor | None
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]


class Classifier(nn.Module):
    """An encoder and a classifier, as in transformers: called by keyword, returns a structure."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(20, 8)
        self.encode = nn.Linear(8, 8)
        self.classifier = nn.Linear(8, 4)
        self.drop = nn.Dropout(0.5)
        self.kind = kind

    def forward(self, input_ids, attention_mask=None):
        hidden = torch.tanh(self.encode(self.embed(input_ids)))
        if self.kind == "last token":
            scores = self.classifier(hidden)
            return {"logits": scores[torch.arange(len(scores)), attention_mask.sum(dim=1) - 1], "hidden": hidden}
        pooled = self.drop(hidden[:, 0])
        logits = self.classifier(pooled)
        return {
            "dataclass": lambda: Output(None, logits, (hidden,)),
            "dict": lambda: {"hidden": hidden, "logits": logits},
            "tuple": lambda: (torch.zeros(()), logits, hidden),
            "object": lambda: type("Out", (), {"logits": logits})(),
        }[self.kind]()


@pytest.mark.parametrize("kind", ["dataclass", "dict", "tuple", "object", "last token"])
def test_structures_of_sequence_classifiers(kind):
    model = Classifier(kind)
    ids = torch.randint(0, 20, (7, 5), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(5) < torch.tensor([5, 3, 1, 4, 2, 5, 3])[:, None]).long()
    batches = [{"input_ids": ids[:4], "attention_mask": mask[:4], "labels": torch.tensor([0, 1, 2, 3])},
               {"input_ids": ids[4:], "attention_mask": mask[4:], "labels": torch.tensor([-1, 0, 1])}]  # fmt: skip
    found = extract(model, batches)
    hidden = torch.tanh(model.encode(model.embed(ids)))
    place = mask.sum(dim=1) - 1 if kind == "last token" else torch.zeros(7, dtype=torch.long)
    expected = hidden[torch.arange(7), place].detach().numpy()
    np.testing.assert_allclose(found.features, expected, atol=1e-6)
    np.testing.assert_allclose(found.logits, found.features @ found.weight.T + found.bias, atol=1e-5)
    assert found.labels.tolist() == [0, 1, 2, 3, -1, 0, 1]


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patch = nn.Conv2d(3, 16, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(16)
        self.heads = nn.ModuleDict({"head": nn.Linear(16, 5)})

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = self.encoder(torch.cat([self.token.expand(len(x), -1, -1), x], dim=1))
        return self.heads["head"](self.norm(x)[:, 0])


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (VisionTransformer(), "heads.head"),
        (build_network("resnet20_32x32", 5), "linear"),
        (nn.DataParallel(build_network("resnet18_32x32", 5)), "fc"),
        (nn.Sequential(nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 5, 1)), "2"),
    ],
    ids=["vit", "resnet20", "resnet18 in DataParallel", "convolution of one pixel"],
)
def test_layer_is_found_without_its_name(model, name):
    x = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    found = extract(model, x, batch_size=2)
    model.eval()
    with torch.no_grad():
        np.testing.assert_allclose(found.logits, model(x).flatten(1).numpy(), atol=1e-5)
    np.testing.assert_allclose(found.logits, found.features @ found.weight.T + found.bias, atol=1e-4)
    named = extract(model, x, layer=name)
    np.testing.assert_allclose(named.features, found.features, atol=1e-5)


def test_last_layer_may_be_given_where_more_follows_it():
    model = mlp(last=(nn.Softmax(dim=1),))
    x = torch.randn(5, 6)
    with pytest.raises(InvalidInputError, match=r"not the output of any layer.*Candidates: '0', '2'"):
        extract(model, x)
    found = extract(model, x, layer="2")
    np.testing.assert_allclose(found.logits, model[:3](x).detach().numpy(), atol=1e-6)


class OwnHead(nn.Module):
    """A head that is no module."""

    def __init__(self, how):
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.matrix, self.added = nn.Parameter(torch.randn(3, 8)), nn.Parameter(torch.randn(3))
        self.how = how

    def forward(self, x):
        h, W, b = self.body(x), self.matrix, self.added
        normal = nn.functional.normalize
        return {
            "linear": lambda: nn.functional.linear(h, W, b),
            "product and sum": lambda: b + h @ W.T,
            "product": lambda: h.matmul(W.T),
            "addmm": lambda: torch.addmm(b, h, W.T),
            "cosine": lambda: nn.functional.linear(normal(h), normal(W)),
            "softmax": lambda: nn.functional.linear(h, W, b).softmax(dim=1),
            "scaled cosine": lambda: 7.0 * nn.functional.linear(normal(h), normal(W)),
        }[self.how]()


@pytest.mark.parametrize("how", ["linear", "product and sum", "product", "addmm", "cosine"])
def test_head_without_a_module_is_found(how):
    model, x = OwnHead(how), torch.randn(7, 6, generator=torch.Generator().manual_seed(2))
    found = extract(model, x, batch_size=3)
    np.testing.assert_allclose(found.logits, model(x).detach().numpy(), atol=1e-6)
    body = model.body(x).detach()
    np.testing.assert_allclose(found.features, nn.functional.normalize(body) if how == "cosine" else body, atol=1e-6)
    np.testing.assert_allclose(found.logits, found.features @ found.weight.T + found.bias, atol=1e-5)


def test_head_without_a_module_may_be_named():
    x = torch.randn(7, 6)
    with pytest.raises(InvalidInputError, match=r"not the output of any layer.*Candidates: 'body.0', 'matrix'"):
        extract(OwnHead("softmax"), x)
    model = OwnHead("linear")
    np.testing.assert_allclose(
        extract(OwnHead("softmax"), x, layer="matrix", batch_size=4).logits, model(x).detach().numpy(), atol=1e-6
    )
    with pytest.raises(InvalidInputError, match=r"Candidates: 'body.0', 'product 1'"):
        extract(OwnHead("scaled cosine"), x)
    found = extract(OwnHead("scaled cosine"), x, layer="product 1")
    np.testing.assert_allclose(7.0 * found.logits, OwnHead("scaled cosine")(x).detach().numpy(), atol=1e-5)


def test_network_without_a_matrix_is_told_what_to_do():
    with pytest.raises(
        InvalidInputError, match=r"no product with a matrix was seen.*End the network in a torch.nn.Linear"
    ):
        extract(nn.Tanh(), torch.randn(7, 6))


def test_ambiguous_output_names_the_candidates():
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 2)

        def forward(self, x):
            return self.first(x), self.second(x)

    with pytest.raises(InvalidInputError, match=r"more than one linear layer.*'first'.*'second'"):
        extract(TwoHeads(), torch.randn(3, 4))
    assert extract(TwoHeads(), torch.randn(3, 4), layer="second").logits.shape == (3, 2)


@pytest.mark.parametrize(
    ("layer", "match"),
    [
        ("0", r"'0' makes \(5, 8\) from \(5, 6\).*not the model's logits.*Candidates: '0', '2'"),
        ("fc", r"must name a module.*'fc'.*'0', '2'"),
        (nn.Linear(2, 2), "must name a module of the model, or a matrix of it, got 'Linear"),
    ],
)
def test_wrong_layer(layer, match):
    with pytest.raises(InvalidInputError, match=match):
        extract(mlp(), torch.randn(5, 6), layer=layer)


def test_layer_that_is_never_called():
    model = mlp()
    model.add_module("spare", nn.Linear(3, 3))
    model.forward = lambda x: nn.Sequential(*list(model.children())[:3])(x)
    with pytest.raises(InvalidInputError, match="'spare' makes nothing"):
        extract(model, torch.randn(5, 6), layer="spare")


@pytest.mark.parametrize(
    ("model", "data", "match"),
    [
        (nn.Linear(4, 1), torch.randn(3, 4), "one logit per class"),
        (nn.Conv2d(3, 4, 3), torch.randn(2, 3, 8, 8), r"logits of shape \(n, K\), got shape \(2, 4, 6, 6\)"),
        (mlp(), [], "at least one row, got none"),
        (mlp(), torch.randn(0, 6), "at least one row, got none"),
        (mlp(), (torch.randn(3, 6), torch.tensor([0, 1, 3])), r"class indices 0, ..., 2, or -1.*got 3 at row 2"),
        (mlp(), (torch.randn(3, 6), torch.tensor([0, -2, 1])), "got -2 at row 1"),
        (mlp(), (torch.randn(3, 6), torch.eye(3)), r"labels must be one-dimensional, got shape \(3, 3\)"),
        (mlp(), (torch.randn(3, 6), torch.zeros(2)), "as many labels as inputs"),
        (mlp(), [(torch.randn(2, 6), torch.tensor([0, 1])), torch.randn(2, 6)], "labels with every batch or with none"),
        (mlp(), 3, "loader must be an array, a pair of arrays .* or batches, got int"),
        ("resnet", torch.randn(3, 6), "model must be a torch.nn.Module, got str"),
    ],
)
def test_clear_errors(model, data, match):
    with pytest.raises(InvalidInputError, match=match):
        extract(model, data)


def test_wrong_input_shape_names_the_batch():
    with pytest.raises(
        InvalidInputError, match=r"batch of shape \(3, 5\) float32 \(mat1 and mat2 shapes cannot be multiplied"
    ):
        extract(mlp(), torch.randn(3, 5))


def test_nan_names_the_row():
    x = torch.randn(10, 6)
    x[7, 2] = torch.nan
    with pytest.raises(InvalidInputError, match=r"features must be finite, got nan at row 7.*look at this input"):
        extract(mlp(), x, batch_size=4)


def test_half_precision_overflow_says_so():
    model = mlp()
    with torch.no_grad():
        model[2].weight *= 1e6
    x = torch.randn(6, 6)
    with pytest.raises(InvalidInputError, match=r"logits must be finite.*float16 ends at 65504.*bfloat16"):
        extract(model, x, amp="float16")
    assert np.isfinite(extract(model, x, amp="bfloat16").logits).all()
    with pytest.raises(InvalidInputError, match="amp must be"):
        extract(model, x, amp="float8")


def test_mixed_precision_is_close():
    model, x = mlp(), torch.randn(50, 6)
    exact, rough = extract(model, x), extract(model, x, amp="bfloat16")
    assert rough.logits.dtype == np.float32
    assert 0 < np.abs(exact.logits - rough.logits).max() < 0.05
    assert rough.weight is not None


def test_double_precision():
    model, x = mlp().double(), torch.randn(5, 6, dtype=torch.float64)
    found = extract(model, x, dtype="float64")
    np.testing.assert_allclose(found.logits, model(x).detach().numpy(), rtol=1e-14)
    model[2].weight.data *= 1e60
    with pytest.raises(InvalidInputError, match=r"leave the range of float32: pass dtype float64"):
        extract(model, x)


def test_modes_device_and_hooks_are_restored():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    model.train()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    extract(model, torch.randn(5, 6), device="cpu")
    assert [module.training for module in model.modules()] == [True, True, False, True, True]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(InvalidInputError):
        extract(model, torch.full((5, 6), torch.nan))
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_straight_to_disk(tmp_path, suffix):
    model, x, y = mlp(), torch.randn(23, 6), torch.arange(23) % 3
    data = torch.utils.data.TensorDataset(x, y)
    inside = extract(model, data, batch_size=5)
    np.testing.assert_allclose(inside.logits, extract(model, (x, y)).logits, atol=1e-6)
    path = tmp_path / f"rows{suffix}"
    found = extract(model, data, batch_size=5, to=path)
    assert isinstance(found.features.base, np.memmap)
    for name in ("features", "logits", "labels", "weight", "bias"):
        np.testing.assert_array_equal(getattr(found, name), getattr(inside, name))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    with pytest.raises(InvalidInputError, match=r"to must end in \.npz or \.safetensors"):
        extract(model, x, to=tmp_path / "rows.csv")


def test_nothing_is_left_behind_by_an_error(tmp_path):
    x = torch.randn(10, 6)
    x[9] = torch.nan
    with pytest.raises(InvalidInputError):
        extract(mlp(), x, batch_size=2, to=tmp_path / "rows.npz")
    assert list(tmp_path.iterdir()) == []


def test_progress(capsys):
    extract(mlp(), torch.randn(10, 6), batch_size=5, progress=True)
    assert "extract" in capsys.readouterr().err
    extract(mlp(), torch.randn(10, 6), batch_size=5)
    assert capsys.readouterr().err == ""


def test_exported_program(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()
    with torch.no_grad():
        program = torch.export.export(
            model, (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},)
        )
    x = torch.randn(5, 3, 8, 8)
    found, expected = extract(program.module(), x), extract(model, x)
    np.testing.assert_allclose(found.features, expected.features, atol=1e-6)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-6)
    ends = torch.export.export(nn.Sequential(model, nn.Softmax(dim=1)).eval(), (x,))
    with pytest.raises(InvalidInputError, match=r"softmax.*export the network without"):
        extract(ends.module(), x)


def test_odin_without_a_step_is_the_core_score_and_a_step_raises_confidence():
    model, x = mlp(), torch.randn(9, 6, generator=torch.Generator().manual_seed(3))
    still = odin(model, x, epsilon=0.0, temperature=10.0, batch_size=4)
    core = SCORES["odin"](temperature=10.0)(extract(model, x, dtype="float64"))
    np.testing.assert_allclose(still, core, atol=1e-6)
    moved = odin(model, x, epsilon=0.01, temperature=10.0)
    assert (moved < still).all()
    # One row by hand, in the definition's words.
    row = x[:1].clone().requires_grad_(True)
    torch.log_softmax(model(row) / 10.0, dim=1).max().backward()
    by_hand = 1 - torch.softmax(model(row + 0.01 * row.grad.sign()) / 10.0, dim=1).max()
    assert moved[0] == pytest.approx(by_hand.item(), abs=1e-6)


def test_odin_errors_and_channels():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    x = torch.randn(4, 3, 2, 2)
    wide, narrow = odin(model, x, epsilon=0.01, std=[0.1, 0.1, 0.1]), odin(model, x, epsilon=0.1)
    np.testing.assert_allclose(wide, narrow, rtol=1e-6)
    with pytest.raises(InvalidInputError, match="one number per channel"):
        odin(model, x, std=[0.1])
    with pytest.raises(InvalidInputError, match="floating tensors"):
        odin(model, torch.zeros(3, 12, dtype=torch.long))
    with pytest.raises(InvalidInputError, match="at least one row"):
        odin(model, [])


def test_checkpoints(tmp_path):
    model = build_network("resnet20_32x32", 4)
    state = {f"module.{name}": value for name, value in model.state_dict().items() if "num_batches" not in name}
    torch.save({"best": 0.9, "state_dict": state}, tmp_path / "a.th")
    again = load_weights(build_network("resnet20_32x32", 4), tmp_path / "a.th")
    x = torch.randn(2, 3, 32, 32)
    np.testing.assert_array_equal(extract(again, x).logits, extract(model, x).logits)
    save_file(dict(state), tmp_path / "a.safetensors")
    fresh = load_weights(build_network("resnet20_32x32", 4), tmp_path / "a.safetensors")
    assert torch.equal(fresh.linear.weight, model.linear.weight)
    with pytest.raises(InvalidInputError, match=r"linear\.(weight|bias).*\[4.*\[5.*number of classes"):
        build_network("resnet20_32x32", 5, tmp_path / "a.th")
    with pytest.raises(InvalidInputError, match=r"does not fit this network \(Missing key.* \.\.\.\)"):
        build_network("resnet32_32x32", 4, tmp_path / "a.th")
    with pytest.raises(InvalidInputError, match="name must be one of"):
        build_network("resnet21_32x32")


def test_checkpoint_that_names_code_is_refused(tmp_path):
    torch.save(mlp(), tmp_path / "whole.pt")
    with pytest.raises(InvalidInputError, match="save a state dict"):
        load_weights(mlp(), tmp_path / "whole.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InvalidInputError, match="must hold a state dict"):
        load_weights(mlp(), tmp_path / "list.pt")
    with pytest.raises(FileNotFoundError):
        load_weights(mlp(), tmp_path / "none.pt")


def test_activations_are_what_the_core_takes():
    found = extract(mlp(), (torch.randn(20, 6), torch.arange(20) % 3))
    assert isinstance(found, Activations)
    assert found.n_classes == 3


def test_a_checkpoint_that_would_grow_is_refused(tmp_path):
    """Torch inflates members of its archive, however large they become."""
    torch.save({"w": torch.zeros(1_000_000)}, tmp_path / "honest.pt")
    with (
        zipfile.ZipFile(tmp_path / "honest.pt") as source,
        zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for info in source.infolist():
            target.writestr(info.filename, source.read(info))
    assert (tmp_path / "bomb.pt").stat().st_size < 20_000
    assert torch.load(tmp_path / "bomb.pt", weights_only=True)["w"].shape == (1_000_000,)
    with pytest.raises(InvalidInputError, match=r"compressed, which torch\.save never does"):
        load_weights(mlp(), tmp_path / "bomb.pt")
    with pytest.raises(InvalidInputError, match="does not fit this network"):
        load_weights(mlp(), tmp_path / "honest.pt")
