"""A file is written whole or not at all, and what is no file is left alone.

SPDX-License-Identifier: BSD-3-Clause
"""

import os
import stat
import subprocess
import sys

import pytest

from poscod._files import alone, replacing
from poscod.exceptions import InvalidInputError


def write(target, text=b"new"):
    with replacing(target) as file:
        file.write(text)


def test_an_error_leaves_the_old_file_and_no_draft(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def fail():
        with replacing(target) as file:
            file.write(b"half")
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        fail()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    write(link)
    assert link.is_symlink()
    assert real.read_text() == "new"
    dangling = tmp_path / "dangling.txt"
    dangling.symlink_to(tmp_path / "there" / "other.txt")
    write(dangling)
    assert (tmp_path / "there" / "other.txt").read_text() == "new"


def test_permissions_are_kept(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    target.chmod(0o640)
    write(target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_pipes_devices_and_folders_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to(os.devnull)
    (tmp_path / "folder").mkdir()
    for name, kind in (("pipe", "a device or pipe"), ("null", "a device or pipe"), ("folder", "a folder")):
        with pytest.raises(InvalidInputError, match=f"it is {kind}; give the name of a file"):
            write(tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    assert sorted(os.listdir(tmp_path)) == ["folder", "null", "pipe"]


def test_a_file_in_use_is_refused_and_a_killed_process_does_not_keep_it(tmp_path):
    pytest.importorskip("fcntl", reason="needs locks of the system, which are not here")
    target = tmp_path / "state.json"
    code = f"import time; from pathlib import Path; from poscod._files import alone\nwith alone(Path({str(target)!r})):\n    print('held', flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"held\n"
    with pytest.raises(InvalidInputError, match="in use by another process"), alone(target):
        pass
    other.kill()
    other.wait()
    other.stdout.close()
    with alone(target), pytest.raises(InvalidInputError, match="in use"), alone(target):
        pass
    assert list(tmp_path.iterdir()) == []
