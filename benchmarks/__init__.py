"""Speed and memory, printed as ratios to a named baseline in the same run."""
