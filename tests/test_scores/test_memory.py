"""The memory benchmark runs, and its small size stays small."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scores_memory.py"


def test_benchmark_prints_a_table():
    command = [sys.executable, str(SCRIPT), "--quick", "--scores", "knn,msp"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.splitlines()
    assert lines[0].startswith("2000 rows, bank 4000, 256 features")
    assert [line.split()[0] for line in lines[2:4]] == ["knn", "msp"]
    assert float(lines[2].split()[-1]) < 200  # the 2000 x 4000 distances of kNN come in tiles
    assert lines[-1].endswith(": ok")
