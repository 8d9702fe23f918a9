"""The shape of the package: light import, layers that only look down, small files, one public name once."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import poscod

SOURCE = Path(poscod.__file__).parent
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))

# A file imports only from lower layers and from its own folder; folders of one layer do not import each other.
LAYERS = {
    "exceptions": 0,
    "_validation": 0,
    "_optional": 0,
    "_threads": 0,
    "_files": 0,
    "_json": 0,
    "_show": 0,
    "problem": 1,
    "activations": 1,
    "decision": 1,
    "rule": 1,
    "verdict": 1,
    "labels": 1,
    "metrics": 2,
    "scores": 2,
    "risk": 3,
    "ratio": 3,
    "mix": 3,
    "strategies": 4,
    "selector": 5,
    "model": 6,
    "theory": 7,
    "datasets": 7,
    "plot": 7,
    "monitor": 7,
    "review": 7,
    "benchmark": 8,
    "report": 8,
    "backends": 8,
    "serve": 8,
    "cli": 9,
    "__main__": 10,
    "__init__": 10,
}
# Files of one layer that are one thing in several parts, in the order of their imports.
WITHIN_LAYER = {
    ("_optional", "exceptions"),
    ("_validation", "exceptions"),
    ("_files", "exceptions"),
    ("_files", "_validation"),
    ("activations", "labels"),
    ("decision", "labels"),
    ("rule", "decision"),
    ("rule", "problem"),
}
# The four values that make up a fitted model; folders above it read these and call its methods, and nothing else.
VALUES = {"scorer_", "rule_", "calibration_", "schema_"}
MODEL_NAMES = {"model", "fitted", "poscod_model", "loaded_model"}


def unit(parts: tuple[str, ...]) -> str:
    """Folder or file directly below the package."""
    return parts[0].removesuffix(".py") if parts else "__init__"


def imports_of(path: Path) -> set[str]:
    """Units of the package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse((SOURCE / path).read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from poscod import x` may name a folder
            names = [node.module] if node.module != "poscod" else [f"poscod.{a.name}" for a in node.names]
        found |= {unit(tuple(name.split(".")[1:])) for name in names if name.split(".")[0] == "poscod"}
    return found


def test_modules_were_found():
    assert len(MODULES) >= 20


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_only_look_down(path):
    here = unit(path.parts)
    assert here in LAYERS, f"{here} has no layer: add it to LAYERS and to docs/architecture.md"
    for other in imports_of(path) - {here}:
        lower = LAYERS[other] < LAYERS[here] or (here, other) in WITHIN_LAYER
        assert lower, f"{path} (layer {LAYERS[here]}) imports {other} (layer {LAYERS[other]})"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_files_state_a_convention_and_stay_small(path):
    text = (SOURCE / path).read_text()
    tree = ast.parse(text)
    docstring = ast.get_docstring(tree)
    assert docstring, f"{path} opens without a docstring"
    assert text.startswith("# SPDX-License-Identifier: BSD-3-Clause\n"), f"{path} opens without its licence"
    assert "SPDX" not in docstring, f"{path}: the licence is a comment, the docstring is for readers"
    strings = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    prose = {line for node in strings for line in range(node.lineno, node.end_lineno + 1)}
    code = [
        i
        for i, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#") and i not in prose
    ]
    assert len(code) <= 300, f"{path} has {len(code)} lines of code: split it"


def folder(path: Path) -> str:
    """The folder that a file belongs to, with dots; backends are one folder."""
    parts = path.parts[:-1]
    return ".".join(parts[:1] if parts[:1] == ("backends",) else parts)


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_no_private_file_of_another_folder(path):
    """What a folder shares it imports in its __init__; names and files with an underscore stay inside."""
    found = []
    for node in ast.walk(ast.parse((SOURCE / path).read_text())):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("poscod."):
            continue
        parts = node.module.split(".")[1:]
        other = parts[0] if parts[0] == "backends" else ".".join(p for p in parts if not p.startswith("_"))
        if other == folder(path) or (
            len(parts) == 1 and parts[0].startswith("_")
        ):  # ground: files of the package itself
            continue
        private = [part for part in parts if part.startswith("_")] + [
            a.name for a in node.names if a.name.startswith("_")
        ]
        found += [f"{node.module}: {name}" for name in private]
    assert not found, f"{path} imports {found}"


def attributes_of_models(path: Path) -> list[tuple[str, int]]:
    """Attributes that a file reads of anything that is called a model."""
    found = []
    for node in ast.walk(ast.parse((SOURCE / path).read_text())):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if name in MODEL_NAMES:
                found.append((node.attr, node.lineno))
    return found


@pytest.mark.parametrize("path", [p for p in MODULES if p.parts[0] != "model"], ids=str)
def test_nobody_touches_private_parts_of_a_model(path):
    private = [
        (name, line) for name, line in attributes_of_models(path) if name.startswith("_") and name != "__class__"
    ]
    assert not private, f"{path} uses {private}"


# Called a model, and not a POSCOD: the linear ratio inside a ratio, an ONNX protobuf, a monitor's record.
OTHER_MODELS = {"model_", "n_features_in_", "feature_names_in_"}


@pytest.mark.parametrize("path", [p for p in MODULES if LAYERS[unit(p.parts)] in (7, 8, 9)], ids=str)
def test_folders_above_the_model_read_four_values(path):
    """What was asked and what is promised is known by `rule_`; a second place that derives it is a lie to come."""
    read = [
        (name, line) for name, line in attributes_of_models(path) if name.endswith("_") and not name.startswith("_")
    ]
    other = [(name, line) for name, line in read if name not in VALUES | OTHER_MODELS]
    assert not other, f"{path} reads {other}; use {sorted(VALUES)}"


def test_names_for_users_are_few():
    """Names in `__all__` are a promise to users; the rest of a folder's __init__ is for the package."""
    names = {name for name, _ in public_names()}
    assert len(names) <= 170, len(names)


def test_no_drawer_for_everything():
    assert not {"utils", "helpers", "core", "base", "common"} & {part for path in MODULES for part in path.parts}


def test_import_is_light():
    """A fresh interpreter that imports poscod loads numpy, scipy, scikit-learn and what those load, nothing else."""
    code = (
        "import sys; before = set(sys.modules); import poscod, poscod.metrics, poscod.ratio, poscod.selector, poscod.strategies;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    baseline = "import sys; before = set(sys.modules); import sklearn.base, sklearn.utils, sklearn.pipeline, sklearn.linear_model, scipy.stats, scipy.special, scipy.optimize, joblib; print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    loaded, allowed = (
        set(subprocess.run([sys.executable, "-c", c], check=True, capture_output=True, text=True).stdout.split())
        for c in (code, baseline)
    )
    extra = {name for name in loaded - allowed - {"poscod"} if name not in sys.stdlib_module_names}
    assert "numpy" in loaded
    assert not extra, f"import poscod also loads {sorted(extra)}"


def public_names():
    """Every name in `__all__` of a public module, with the module."""
    yield from ((f"poscod.{name}", poscod) for name in poscod.__all__)
    for info in pkgutil.walk_packages([str(SOURCE)], "poscod."):
        if "._" not in info.name and info.name != "poscod.__main__":
            module = importlib.import_module(info.name)
            yield from ((f"{info.name}.{name}", module) for name in getattr(module, "__all__", []))


def public_objects():
    for name, module in public_names():
        yield name, getattr(module, name.rpartition(".")[2])


PUBLIC = [(name, value) for name, value in public_objects() if inspect.isfunction(value) or inspect.isclass(value)]


def test_public_objects_were_found():
    assert len(PUBLIC) >= 40


@pytest.mark.parametrize(("name", "value"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_docstrings_match_signatures(name, value):
    """Every parameter is documented, nothing else is, and documented defaults are the real ones."""
    doc = inspect.getdoc(value)
    assert doc, f"{name} has no docstring"
    if inspect.isclass(value) and (issubclass(value, (tuple, BaseException)) or "Parameters\n--" not in doc):
        return  # named tuples list their fields under Attributes
    section = re.search(r"Parameters\n-+\n(.*?)(?=\n\n\w[^\n]*\n-{3,}|\Z)", doc, re.S)
    documented, defaults = set(), {}
    for line in (section.group(1) if section else "").splitlines():
        if match := re.match(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : (.*))?$", line):
            for parameter in match.group(1).replace("*", "").split(", "):
                documented.add(parameter)
                if default := re.search(r"default=(.+)$", match.group(2) or ""):
                    defaults[parameter] = default.group(1)
    parameters = {k: p for k, p in inspect.signature(value).parameters.items() if not k.startswith("_")}
    assert documented == set(parameters), f"{name}: documented {sorted(documented)}, takes {sorted(parameters)}"
    for parameter, text in defaults.items():
        real = parameters[parameter].default
        assert text.strip('"') == (real if isinstance(real, str) else repr(real)), f"{name}: default of {parameter}"


def test_version_is_in_the_changelog_and_citation():
    root = Path(__file__).resolve().parents[1]
    assert f"## {poscod.__version__}" in (root / "CHANGELOG.md").read_text()
    assert f"version: {poscod.__version__}" in (root / "CITATION.cff").read_text()
