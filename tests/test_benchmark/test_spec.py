"""Specifications: flat, complete, and refused with one sentence where they are wrong."""

from __future__ import annotations

import dataclasses

import pytest

from poscod.benchmark import DEFINITIONS, BenchmarkSpec, read_spec
from poscod.benchmark._spec import EMBEDDED
from poscod.exceptions import InvalidInputError

GOOD = """
name = "mine"
id_set = "cifar10"
root = "data"
id_test = "id.npz"
near = { cifar100 = "c100-{fold}.npz" }
folds = ["s0", "s1"]
alphas = [0.25, 1]
"""


def write(tmp_path, text):
    path = tmp_path / "spec.toml"
    path.write_text(text)
    return path


def test_fields_paths_and_defaults(tmp_path):
    spec = read_spec(write(tmp_path, GOOD))
    assert spec.path(spec.near["cifar100"], "s1") == tmp_path / "data" / "c100-s1.npz"
    assert spec.alphas == (0.25, 1)
    assert spec.pis == (0.02, 0.05, 0.1, 0.2, 0.5)
    assert len(spec.score_names) == 26


def test_an_older_name_of_a_ratio_means_the_same(tmp_path):
    spec, today = (
        read_spec(write(tmp_path, f'{GOOD}ratios = ["{name}", "paper"]')) for name in ("corrected", "strong")
    )
    assert spec.ratios == ("strong", "paper")
    assert spec.hash == today.hash


def test_hash_knows_content_and_not_the_place(tmp_path):
    spec = read_spec(write(tmp_path, GOOD))
    assert dataclasses.replace(spec, root="elsewhere").hash == spec.hash
    assert dataclasses.replace(spec, n_test=7).hash != spec.hash


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("seed = 3", "unknown key 'seed': keys are .*alphas.*Did you mean 'seeds'"),
        ("seeds = 3", "seeds must be a list of whole numbers, got 3"),
        ("seeds = [0.5]", "seeds must be a list of whole numbers"),
        ("seeds = [1, 1]", "seeds must not name anything twice"),
        ("seeds = []", "seeds must not be empty"),
        ("seeds = [true]", "seeds must be a list of whole numbers"),
        ("tuned = 1", "tuned must be true or false"),
        ('scores = ["mps"]', "scores must be one of .*'msp'"),
        ('ratios = ["exact"]', "only the source 'gaussian' knows"),
        ('source = "hdf5"', "source must be one of"),
        ("pis = [0.0]", "pis must be"),
        ("ood_train_share = 1.0", "ood_train_share must be"),
        ('far = { cifar100 = "x.npz" }', "near and far must not share a set, both have 'cifar100'"),
        ('train = { svhn = "x.npz" }', "train must name sets of near or far, got 'svhn'"),
        ('dumps = { mps = "x" }', "dumps must be one of"),
        ("x = [", "must be TOML, and is not"),
    ],
)
def test_what_is_refused(tmp_path, change, message):
    key = change.partition(" ")[0]
    kept = [line for line in GOOD.splitlines() if not line.startswith(f"{key} ")]
    with pytest.raises(InvalidInputError, match=message):
        read_spec(write(tmp_path, "\n".join([*kept, change])))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": "activations"}, "near and far must name at least one OOD set"),
        ({"source": "activations", "near": {"a": "b"}}, "id_test must name"),
        ({"source": "dumps"}, "dumps must name the file of 'msp'"),
        ({"source": "dumps", "dumps": {"msp": "x"}}, "ratios must be \\[\\]"),
        ({"source": "dumps", "dumps": {"msp": "x"}, "ratios": (), "scores": ("ebo",)}, "dumps names no file"),
        ({"source": "openood", "near": {"tin": ""}, "id_set": "mnist"}, "id_set must be one of"),
        ({"source": "openood", "near": {"tin": ""}, "id_set": "cifar10"}, "checkpoint must name"),
    ],
)
def test_what_each_source_needs(fields, message):
    with pytest.raises(InvalidInputError, match=message):
        BenchmarkSpec(name="x", **fields)


def test_a_name_is_needed_and_a_missing_file_lists_the_embedded_ones(tmp_path):
    with pytest.raises(InvalidInputError, match="must have the key 'name'"):
        read_spec(write(tmp_path, "seeds = [0]"))
    with pytest.raises(InvalidInputError, match="digits, gaussian"):
        read_spec(tmp_path / "no.toml")


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_specifications_are_named_after_themselves(name):
    assert read_spec(name).name == name


def test_definitions_are_those_of_appendix_b():
    """Sizes, groups and splitting rules as the paper states them."""
    rows = {
        name: {s: (d.group, d.rows) for s, d in definition.sets.items()} for name, definition in DEFINITIONS.items()
    }
    small = {"mnist": ("far", 70000), "svhn": ("far", 26032), "textures": ("far", 5640)}
    assert rows["cifar10"] == {
        "cifar100": ("near", 9000),
        "tin": ("near", 7793),
        "places365": ("far", 35195),
        **small,
    }
    assert rows["cifar100"] == {
        "cifar10": ("near", 9000),
        "tin": ("near", 6526),
        "places365": ("far", 33773),
        **small,
    }
    assert rows["imagenet"] == {
        "ssb_hard": ("near", 49000),
        "ninco": ("near", 5879),
        "inaturalist": ("far", 10000),
        "textures": ("far", 5640),
        "openimage_o": ("far", 15869),
    }
    dedicated = {s for d in DEFINITIONS.values() for s, x in d.sets.items() if x.split == "dedicated"}
    assert dedicated == {"cifar10", "cifar100", "tin", "svhn"}
    assert {d.rows for d in DEFINITIONS.values()} == {9000, 45000}
    assert DEFINITIONS["cifar100"].n_classes == 100
