"""The benchmark from the shell: embedded runs, tables in every format, OpenOOD's trees and score files."""

from __future__ import annotations

import io
import json
import pickle
import zlib

import numpy as np
import pytest

from poscod.benchmark import DEFINITIONS, read_results
from poscod.cli import main

DIGITS = """
name = "digits"
source = "digits"
id_set = "digits"
scores = ["msp", "knn"]
ratios = ["paper"]
seeds = [0]
pis = [0.3]
alphas = [0.25]
n_id = 150
n_mixture = 150
n_test = 150
tuned = false
"""


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    (folder / "spec.toml").write_text(DIGITS)
    assert main(["bench", "run", str(folder / "spec.toml"), "-o", str(folder / "out"), "--jobs", "1", "--quiet"]) == 0
    return folder / "out"


def test_run_says_what_it_did_and_a_second_run_computes_nothing(out, capsys):
    spec = str(out.parent / "spec.toml")
    assert main(["bench", "run", spec, "-o", str(out), "--jobs", "1", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["computed"], said["reused"]) == (0, 6)
    assert said["rows"] == len(read_results(out))
    assert main(["bench", "run", spec, "-o", str(out), "--jobs", "1"]) == 0
    assert "0 cells computed and 6 reused" in capsys.readouterr().out


def test_tables_of_what_there_is(out, capsys):
    assert main(["bench", "tables", str(out), "--alpha", "0.25"]) == 0
    text = capsys.readouterr().out
    assert "### Single scores, %, alpha = 0.25" in text
    assert "Tuned" not in text  # nothing was tuned, so there is no such table
    assert main(["bench", "tables", str(out), "--alpha", "0.25", "--table", "single", "--format", "latex"]) == 0
    assert capsys.readouterr().out.startswith("\\begin{table}")


def test_ablation_goes_to_a_file(out, tmp_path, capsys):
    target = tmp_path / "a.csv"
    words = ["bench", "ablate", str(out), "--over", "pi", "--alpha", "0.25", "--format", "csv", "-o", str(target)]
    assert main(words) == 0
    assert target.read_text().splitlines()[1].startswith("pi,digits_6_9,")
    assert "1 tables in" in capsys.readouterr().out
    assert main(["bench", "tables", str(out), "--alpha", "0.25", "--format", "csv", "-o", f"{tmp_path}/many/"]) == 0
    assert {"single.csv", "plugin.csv", "estimators.csv"} <= {path.name for path in (tmp_path / "many").iterdir()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "run", "nothing.toml", "-o", "x"], "SPEC must be a TOML file or one of digits, gaussian"),
        (["bench", "tables", "nowhere"], "is not there"),
    ],
)
def test_bad_input_is_one_sentence(words, message, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_comparison_with_nothing_to_compare(out, capsys):
    assert main(["bench", "compare", str(out)]) == 2
    assert "nothing to compare" in capsys.readouterr().err


def test_score_files_of_openood(tmp_path, rng, capsys):
    """Dumps of two methods, aligned; all rows are measured, nothing is learned."""
    n, near, far = 60, 40, 50
    pred, label = rng.integers(0, 10, n), rng.integers(0, 10, n)
    other = {"near": {"cifar100": near}, "far": {"svhn": far}}
    guesses = {name: rng.integers(0, 10, k) for sets in other.values() for name, k in sets.items()}

    def dump(name):
        conf = {"id": rng.uniform(0.4, 1.0, n), **{s: rng.uniform(0.1, 0.8, len(g)) for s, g in guesses.items()}}
        content = {
            "id": {"test": [pred, conf["id"], label]},
            "ood": {
                g: {s: [guesses[s], conf[s], -np.ones(len(guesses[s]))] for s in sets} for g, sets in other.items()
            },
        }
        (tmp_path / f"{name}.pkl").write_bytes(pickle.dumps(content))

    dump("msp")
    dump("ebo")
    (tmp_path / "spec.toml").write_text(
        'name = "dumps"\nsource = "dumps"\nid_set = "cifar10"\ndumps = { msp = "msp.pkl", ebo = "ebo.pkl" }\n'
        'ratios = []\nseeds = [0]\ntuned = false\nalphas = [0.25, 0.5]\nstrategies = ["linear", "sirc"]\n'
    )
    out = tmp_path / "out"
    assert main(["bench", "run", str(tmp_path / "spec.toml"), "-o", str(out), "--jobs", "1"]) == 0
    rows = read_results(out)
    assert {(r["ood_set"], r["group"], r["n_id"], r["n_ood"]) for r in rows} == {
        ("cifar100", "near", n, near),
        ("svhn", "far", n, far),
    }
    assert {r["method"] for r in rows} == {"msp", "ebo"}
    capsys.readouterr()
    assert main(["bench", "compare", str(out), "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert any("network unnamed instead of resnet18_32x32" in row["cells"][2] for row in table["rows"])


def write_openood_tree(root, sizes, rng):
    """Write lists and images where OpenOOD has them, with lines as it writes them."""
    image = pytest.importorskip("PIL.Image", reason="needs Pillow, which the torch extra brings")
    definition = DEFINITIONS["cifar10"]
    lists = {"cifar10": (definition.imglist, definition.images, sizes["cifar10"])}
    for name, ood in definition.sets.items():
        lists[name] = (ood.imglist, ood.images, sizes.get(name, 24))
        if name == "cifar100":
            lists["cifar100_train"] = (ood.train_imglist, ood.images, 30)
    for name, (imglist, images, n) in lists.items():
        lines = []
        for i in range(n):
            label = i % 10 if name == "cifar10" else -1 if name == "tin" else 37
            path = f"{name}/test/{label}/{i:04d}.png"
            place = root / images / path
            place.parent.mkdir(parents=True, exist_ok=True)
            side = 40 if name == "textures" else 32  # not all sets are of the network's size
            shade = zlib.crc32(name.encode()) % 120
            pixels = rng.integers(0, 100, (side, side + 4 * (name == "places365"), 3)) + shade
            image.fromarray(pixels.astype(np.uint8)).save(place)
            lines.append(f"{path} {label}")
        place = root / imglist
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("\n".join(lines) + "\n")


def test_a_tree_as_openood_ships_it(tmp_path, rng, capsys):
    """Lists and images of all sets of the CIFAR-10 benchmark, two folds, to tables and comparison; extraction happens once."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    from poscod.backends.torch import build_network

    data = tmp_path / "data"
    write_openood_tree(data, {"cifar10": 120}, rng)
    for seed, fold in enumerate(("s0", "s1")):
        torch.manual_seed(seed)
        torch.save(build_network("resnet20_32x32", 10).state_dict(), tmp_path / f"{fold}.pt")
    sets = DEFINITIONS["cifar10"].sets
    near = ", ".join(f'{name} = ""' for name, s in sets.items() if s.group == "near")
    far = ", ".join(f'{name} = ""' for name, s in sets.items() if s.group == "far")
    (tmp_path / "spec.toml").write_text(
        f'name = "tree"\nsource = "openood"\nid_set = "cifar10"\nnetwork = "resnet20_32x32"\nroot = "data"\n'
        f'checkpoint = "../{{fold}}.pt"\nfolds = ["s0", "s1"]\nnear = {{ {near} }}\nfar = {{ {far} }}\ntrain = {{ cifar100 = "" }}\n'
        'scores = ["msp", "ebo"]\nratios = ["standard"]\nseeds = [0]\npis = [0.3]\nalphas = [0.5]\ntuned = false\n'
        "n_id = 30\nn_mixture = 30\n"
    )
    out = tmp_path / "out"
    words = ["bench", "run", str(tmp_path / "spec.toml"), "-o", str(out), "--jobs", "1"]
    assert main(words) == 0
    assert "s1-ood_places365.npz: 24 images" in capsys.readouterr().err
    rows = read_results(out)
    assert {(r["ood_set"], r["group"]) for r in rows} == {(name, s.group) for name, s in sets.items()}
    assert {r["fold"] for r in rows} == {"s0", "s1"}
    measured = {(r["ood_set"], r["n_ood"], r["split"]) for r in rows if r["ood_set"] in ("cifar100", "tin")}
    assert measured == {
        ("cifar100", 24, "ID 0.6 to learn from, OOD dedicated"),  # its own training list: all rows are measured
        ("tin", 12, "ID 0.6 to learn from, OOD 0.5 to learn from"),
    }
    with np.load(out / "activations" / "s0-ood_svhn.npz") as file:
        assert file["features"].shape == (24, 64)
        assert "labels" not in file.files  # house numbers are no classes of CIFAR-10

    before = (out / "results.csv").read_bytes()
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.err.count("extracted before") == 16  # two folds of eight lists
    assert (out / "results.csv").read_bytes() == before
    changed = data / "images_classic" / "svhn/test/37/0003.png"
    pixels = io.BytesIO((data / "images_classic" / "svhn/test/37/0004.png").read_bytes())
    changed.write_bytes(pixels.getvalue())
    assert main(words) == 0
    assert capsys.readouterr().err.count("extracted before") == 14  # the list with another image, for both networks
    assert (out / "results.csv").read_bytes() != before
    assert main(["bench", "compare", str(out)]) == 0
    assert (
        "network resnet20\\_32x32 instead of resnet18\\_32x32; 2 of the 3 folds; 48 of 9000 ID rows"
        in capsys.readouterr().out
    )


def test_openood_mistakes_are_one_sentence(tmp_path, capsys):
    pytest.importorskip("torch", reason="needs the torch extra")
    base = 'name = "x"\nsource = "openood"\nid_set = "cifar10"\nnetwork = "resnet20_32x32"\ncheckpoint = "no.pt"\n'

    def said(text):
        (tmp_path / "spec.toml").write_text(base + text)
        assert main(["bench", "run", str(tmp_path / "spec.toml"), "-o", str(tmp_path / "out")]) == 2
        return capsys.readouterr().err

    assert "the list of images of 'id_test', is not there" in said('near = { tin = "" }')
    assert "which cifar10 does not have: it has cifar100, tin" in said('far = { lsun = "" }')
    assert "OpenOOD ships none" in said('near = { tin = "" }\ntrain = { tin = "" }')
