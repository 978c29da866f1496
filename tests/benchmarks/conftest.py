"""Benchmarks are scripts in one folder, and import each other by their names."""

import sys
from pathlib import Path

# last on the path
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
