"""A few hundred mutated files and bodies of every kind; `make fuzz` tries many more."""

from __future__ import annotations

import random

from fuzzers import MEGABYTES, Fuzzer, megabytes


def test_every_mutated_file_is_read_or_refused(tmp_path):
    start = megabytes()
    counts = Fuzzer(tmp_path).run(random.Random(23), 40)
    assert all(count.total() == 40 for count in counts.values())
    assert all(count["refused"] for count in counts.values()), counts
    assert megabytes() - start < MEGABYTES
