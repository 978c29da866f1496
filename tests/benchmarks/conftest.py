"""Benchmarks are scripts in one folder, and import each other by their names."""

import sys
from pathlib import Path

# behind everything else
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
