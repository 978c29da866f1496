"""Put the folder of benchmarks at the end of the path, as they import each other by name."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
