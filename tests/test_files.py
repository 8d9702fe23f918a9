"""A file is written whole or not at all, and what is no file is left alone.

SPDX-License-Identifier: BSD-3-Clause
"""

import os
import stat

import pytest

from poscod._files import replacing
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
