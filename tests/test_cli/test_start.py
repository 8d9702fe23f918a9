"""The shell starts without what it does not need, and says the same."""

import subprocess
import sys

import pytest

import poscod
from poscod.cli._main import COMMANDS, build_parser


def loaded_by(code):
    lines = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return set(lines.split())


LISTED = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"


def test_help_needs_neither_scikit_learn_nor_scipy():
    asked = "import poscod.cli\ntry: poscod.cli.main(['--help'])\nexcept SystemExit: pass\n" + LISTED
    assert not {"sklearn", "scipy", "pandas", "pyarrow"} & loaded_by(asked)
    assert not {"numpy", "sklearn"} & loaded_by("import poscod; poscod.__version__; " + LISTED)
    assert "sklearn" in loaded_by("import poscod; poscod.POSCOD; " + LISTED)  # the check can fail


@pytest.mark.parametrize("only", ["", "fit", "no-such-command"])
def test_a_parser_of_one_command_says_of_the_others_what_the_whole_one_says(only):
    assert build_parser(only).format_help() == build_parser().format_help()


def test_an_option_of_another_command_is_still_found(shell):
    done = shell("predict", "m.poscod", "new.csv", "-o", "out.csv", "--budget", "0.1")
    assert done.code == 2
    assert "--budget is part of the model: `poscod at` changes it" in done.err
    assert "choose from" in (words := shell("no-such-command").err)
    assert all(name in words for name in COMMANDS)


def test_public_names_and_modules_come_when_they_are_asked_for():
    code = "import poscod; from poscod import POSCOD, OOD; print(poscod.metrics.auroc is not None, POSCOD.__module__)"
    assert loaded_by(code) == {"True", "poscod.model._poscod"}
    assert set(poscod.__all__) <= set(dir(poscod))
    with pytest.raises(AttributeError, match="module 'poscod' has no attribute 'POSCODE'"):
        poscod.POSCODE  # noqa: B018
