"""poscod extract and poscod export in the shell."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import nn

from poscod import POSCOD, Activations
from poscod.backends.onnx import extract as onnx_extract
from poscod.backends.torch import build_network, extract
from poscod.cli import main
from poscod.ratio import CorrectedSigmoid

sys.path.insert(0, __file__.rpartition("/")[0])
from _onnx_networks import network, pooled

sys.path.pop(0)


def shell(capsys, *words):
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def folder(tmp_path, rng):
    for i in range(6):
        place = tmp_path / "images" / "abc"[i % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (10, 8, 3), dtype=np.uint8)).save(place / f"{i}.png")
    onnx.save(pooled(), tmp_path / "pooled.onnx")
    return tmp_path


def test_onnx_network_over_a_folder(folder, capsys):
    words = (
        "extract",
        folder / "images",
        "--onnx",
        folder / "pooled.onnx",
        "--normalise",
        "cifar10",
        "-o",
        folder / "a.npz",
    )
    code, out, _ = shell(capsys, *words, "--json")
    assert code == 0
    answer = json.loads(out)
    assert (answer["rows"], answer["features"], answer["classes"], answer["labeled"]) == (6, 3, 3, 6)
    found = Activations.load(folder / "a.npz")
    assert found.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert answer["accuracy"] == pytest.approx((found.logits.argmax(axis=1) == found.labels).mean())
    assert found.weight.shape == (3, 3)
    code, out, _ = shell(
        capsys, *words, "--labels", "ood", "--resize", "5", "--crop", "4", "--jobs", "1", "--batch-size", "4"
    )
    assert code == 0
    assert "6 rows: 3 features, 3 logits." in out
    assert Activations.load(folder / "a.npz").labels.tolist() == [-1] * 6
    assert shell(capsys, *words, "--workers", "3")[0] == 0  # the old name of --jobs
    code, _, err = shell(capsys, *words, "--jobs", "0")
    assert code == 2
    assert "--jobs must be a whole number >= 1, got 0" in err
    code, _, err = shell(capsys, *words, "--batch-size", "0")
    assert code == 2
    assert "--batch-size must be a whole number >= 1, got 0" in err


NO_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is not here")
sys.meta_path.insert(0, Refuse())
from poscod.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_onnx_needs_no_torch(folder):
    words = ["extract", "images", "--model", "pooled.onnx", "-o", "rows.npz"]
    run = subprocess.run(
        [sys.executable, "-c", NO_TORCH, *words], cwd=folder, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    assert len(Activations.load(folder / "rows.npz")) == 6
    words[3] = "resnet20_32x32"
    run = subprocess.run(
        [sys.executable, "-c", NO_TORCH, *words], cwd=folder, capture_output=True, text=True, timeout=600
    )
    assert run.returncode in (1, 2)
    assert "torch" in run.stderr


def test_image_list_and_builtin_network_with_weights(tmp_path, rng, capsys):
    pixels = rng.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    lines = []
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
        lines.append(f"{i}.png {i % 3}")
    (tmp_path / "list.txt").write_text("\n".join(lines))
    torch.manual_seed(0)
    model = build_network("resnet20_32x32", 3)
    torch.save({"state_dict": {f"module.{k}": v for k, v in model.state_dict().items()}}, tmp_path / "net.ckpt")
    words = [
        "--model",
        "resnet20_32x32",
        "--weights",
        tmp_path / "net.ckpt",
        "--classes",
        "3",
        "-o",
        tmp_path / "a.safetensors",
    ]
    code, _, err = shell(
        capsys, "extract", tmp_path / "list.txt", *words, "--mean", *["0.5"] * 3, "--std", *["0.25"] * 3
    )
    assert code == 0, err
    x = torch.tensor((pixels / 255.0 - 0.5) / 0.25, dtype=torch.float32).permute(0, 3, 1, 2)
    np.testing.assert_allclose(Activations.load(tmp_path / "a.safetensors").logits, extract(model, x).logits, atol=1e-4)


def test_callable_and_exported_program_over_an_archive(tmp_path, rng, capsys, monkeypatch):
    (tmp_path / "shop_networks.py").write_text(
        textwrap.dedent("""
        from torch import nn
        import torch
        def build():
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
        def fresh():
            return nn.Linear(5, 3)
        def broken():
            raise RuntimeError("no such layer")
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(1)
                self.weight = nn.Parameter(torch.randn(3, 5))
            def forward(self, x):
                return nn.functional.linear(x, self.weight)
        def soft():
            return nn.Sequential(build(), nn.Softmax(dim=1))
    """)
    )
    monkeypatch.chdir(tmp_path)
    x = rng.normal(size=(9, 5)).astype(np.float32)
    np.savez("rows.npz", inputs=x, labels=np.arange(9) % 3)
    assert shell(capsys, "extract", "rows.npz", "--model", "shop_networks:fresh", "--untrained", "-o", "a.npz")[0] == 0
    assert shell(capsys, "extract", "rows.npz", "--model", "shop_networks:Own", "-o", "a.npz")[0] == 0
    found = Activations.load("a.npz")
    np.testing.assert_array_equal(found.features, x)
    np.testing.assert_allclose(found.logits, x @ found.weight.T, atol=1e-6)
    assert shell(capsys, "extract", "rows.npz", "--model", "shop_networks:build", "-o", "a.npz")[0] == 0
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)).eval()
    expected = extract(model, torch.tensor(x))
    np.testing.assert_allclose(Activations.load("a.npz").features, expected.features, atol=1e-6)
    program = torch.export.export(model, (torch.randn(2, 5),), dynamic_shapes=({0: torch.export.Dim("n", min=1)},))
    torch.export.save(program, "net.pt2")
    assert shell(capsys, "extract", "rows.npz", "--model", "net.pt2", "--batch-size", "4", "-o", "b.npz")[0] == 0
    np.testing.assert_allclose(Activations.load("b.npz").logits, expected.logits, atol=1e-6)
    for words, sentence in (
        (("--model", "shop_networks:broken"), "could not be built (RuntimeError: no such layer)"),
        (("--model", "shop_networks:gone"), "could not be built (AttributeError"),
        (("--model", "nonsense"), "--model must be package.module:callable"),
        (("--model", "shop_networks:soft"), "pass --layer, the name"),
        (("--model", "shop_networks:build", "--layer", "9"), "layer must name a module"),
        (("--model", "net.pt2", "--weights", "w.pt"), "--weights is not for exported programs"),
        (("--onnx", "net.onnx", "--device", "cuda"), "--device is for PyTorch"),
        (("--onnx", "net.onnx"), "cannot use net.onnx: no such file or directory"),
        (("--model", "gone.pt2"), "cannot use gone.pt2: no such file or directory"),
        (("--model", "resnet20_32x32", "--untrained"), "could not be run on a batch of shape (9, 5) float32"),
        (("--model", "resnet20_32x32"), "resnet20_32x32 has random weights"),
        (("--model", "shop_networks:fresh"), "shop_networks:fresh has random weights"),
    ):
        code, out, err = shell(capsys, "extract", "rows.npz", *words, "-o", "c.npz")
        assert (code, out) == (2, ""), err
        assert sentence in err
        assert err.count("\n") == 1
    assert shell(capsys, "extract", "rows.npz", "--model", "net.pt2", "-o", "c.csv")[0] == 2
    assert "no such file" in shell(capsys, "extract", "gone/", "--model", "net.pt2", "-o", "c.npz")[2]
    (tmp_path / "bad.pt2").write_bytes(b"nonsense")
    assert (
        "could not be read as an exported program"
        in shell(capsys, "extract", "rows.npz", "--model", "bad.pt2", "-o", "c.npz")[2]
    )
    assert not (tmp_path / "c.npz").exists()


def test_accuracy_is_doubted(tmp_path, rng, capsys, monkeypatch):
    """A network that wants centred pixels answers one class on raw ones; the shell says which normalisation it misses."""
    (tmp_path / "sign_network.py").write_text(
        textwrap.dedent("""
        from torch import nn
        import torch
        def build():
            head = nn.Linear(3, 2, bias=False)
            head.weight = nn.Parameter(torch.tensor([[-1.0] * 3, [1.0] * 3]))
            return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
    """)
    )
    monkeypatch.chdir(tmp_path)
    labels = np.arange(90) % 2
    pixels = rng.integers(0, 60, (90, 4, 4, 3)) + 130 * labels[:, None, None, None]
    np.savez("images.npz", images=pixels.astype(np.uint8), labels=labels)
    words = ("extract", "images.npz", "--model", "sign_network:build", "-o", "a.npz")
    code, out, err = shell(capsys, *words)
    assert code == 0, err
    assert "right on 50.0 % of the 90 labeled rows." in out
    assert "Note: that is not more than always answering the most frequent class (50.0 %)" in out
    assert (
        "Note: of 90 of these rows the network is right on 50.0 %, and on 100.0 % with --normalise imagenet, 100.0 % with"
        in out
    )
    np.testing.assert_allclose(Activations.load("a.npz").features.min(), 0.05, atol=0.1)  # written as asked
    assert json.loads(shell(capsys, *words, "--normalise", "cifar100", "--json")[1])["warnings"] == []
    assert "Note" not in shell(capsys, *words, "--labels", "drop")[1]


def test_export(tmp_path, rng, capsys):
    x = rng.normal(size=(500, 6)).astype(np.float32)
    onnx.save(network(), tmp_path / "net.onnx")
    np.savez(tmp_path / "known.npz", inputs=x)
    np.savez(tmp_path / "new.npz", inputs=x + (np.arange(500) < 200)[:, None].astype(np.float32))
    for name in ("known", "new"):
        words = (
            "extract",
            tmp_path / f"{name}.npz",
            "--onnx",
            tmp_path / "net.onnx",
            "-o",
            tmp_path / f"{name}_rows.npz",
            "--quiet",
        )
        assert shell(capsys, *words) == (0, "", "")
    known, new = (Activations.load(tmp_path / f"{name}_rows.npz") for name in ("known", "new"))
    model = POSCOD(ratio=CorrectedSigmoid("paper", ood_prior=0.4), random_state=0)
    model.fit(known, known.logits.argmax(axis=1), X_unlabeled=new)
    model.save(tmp_path / "model.poscod")
    code, out, _ = shell(capsys, "export", tmp_path / "model.poscod", "-o", tmp_path / "rule.onnx", "--json")
    assert code == 0
    assert json.loads(out)["inputs"] == ["features", "logits"]
    code, _, err = shell(capsys, "export", tmp_path / "model.poscod", "-o", tmp_path / "rule.txt")
    assert (code, (tmp_path / "rule.txt").exists()) == (2, False)
    assert "must end in .onnx" in err
    whole = ("export", tmp_path / "model.poscod", "--backbone", tmp_path / "net.onnx", "-o", tmp_path / "whole.onnx")
    code, out, _ = shell(capsys, *whole)
    assert code == 0
    assert "Takes x; returns label, accept" in out
    session = onnxruntime.InferenceSession(str(tmp_path / "whole.onnx"), providers=["CPUExecutionProvider"])
    fresh = rng.normal(size=(400, 6)).astype(np.float32) + 0.5  # rows of the fit lie on the threshold to the last bit
    expected = model.decide(onnx_extract(network(), fresh)).accept
    np.testing.assert_array_equal(session.run(["accept"], {"x": fresh})[0], expected)
    assert 0 < expected.sum() < 400
    code, _, err = shell(capsys, *whole, "--features", "nowhere")
    assert code == 2
    assert "features must be the name" in err
