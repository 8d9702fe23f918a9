"""Run the benchmarks: ``python -m benchmarks [--quick] [name ...]``."""

from __future__ import annotations

import argparse
import importlib

NAMES = [
    "metrics_speed",
    "strategies_speed",
    "scores_memory",
    "ratio_speed",
    "ratio_quality",
    "small_data",
    "null_gate",
    "trained_on",
    "inlying",
    "class_mix",
    "kinds",
    "verdicts",
    "start",
    "decide_speed",
    "serve_load",
    "predict_memory",
    "data_needed",
    "monitor_alarms",
    "review_width",
]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of {', '.join(NAMES)}; default: all")
    arguments = parser.parse_args()
    for unknown in set(arguments.names) - set(NAMES):
        parser.error(f"unknown benchmark '{unknown}': choose from {', '.join(NAMES)}")
    for name in arguments.names or NAMES:
        importlib.import_module(f"benchmarks.{name}").main(quick=arguments.quick)


if __name__ == "__main__":
    main()
