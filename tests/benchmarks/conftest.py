"""The benchmarks that are packages are imported as they import themselves."""

import sys
from pathlib import Path

# behind everything else: the folder's other files have common names
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
