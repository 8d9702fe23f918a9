"""A few hundred mutated files and bodies of every kind; `make fuzz` tries many more."""

from __future__ import annotations

import os
import random
import signal

import pytest

from fuzzers import MEGABYTES, Fuzzer, fuzz, megabytes


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory):
    return Fuzzer(tmp_path_factory.mktemp("fuzz"))


def test_every_mutated_file_is_read_or_refused(fuzzer):
    start = megabytes()
    counts = fuzzer.run(random.Random(23), 40)
    assert fuzzer.faults() == []
    assert all(count.total() == 40 for count in counts.values())
    assert all(count["refused"] for count in counts.values()), counts
    assert megabytes() - start < MEGABYTES


def test_the_fuzzer_goes_on_after_a_fault_and_tells_all(monkeypatch, tmp_path, capsys):
    """One kind has a fault of its own, one dies: both are counted, kept and told, and the others are tried."""
    init = Fuzzer.__init__

    def with_faults(self, folder, classifiers=None):
        init(self, folder)
        seed = self.kinds["pickle"][0]
        self.kinds = {
            "pickle": self.kinds["pickle"],
            "wrong": (seed, lambda rng, data: data + b"1", lambda path: {}["no"]),
            "deadly": (seed, lambda rng, data: data + b"2", lambda path: os.kill(os.getpid(), signal.SIGKILL)),
        }

    monkeypatch.setattr(Fuzzer, "__init__", with_faults)
    assert fuzz(tmp_path, 0.01, 1) == 2
    told = capsys.readouterr().out
    assert "wrong: KeyError: 'no'" in told
    assert "deadly: the process ended with -9" in told
    assert len(list(tmp_path.glob("faults/*.txt"))) == 2
