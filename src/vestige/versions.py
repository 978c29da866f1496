"""The versions that a result depends on."""

import platform
from importlib import metadata

_RECORDED = (
    *("vestige", "torch", "numpy", "scipy", "transformers", "tokenizers", "peft", "pyarrow"),
    *("opacus", "dp-accounting", "scikit-learn", "cryptography"),
)


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that can change a number."""
    found = {"python": platform.python_version()}
    for package in _RECORDED:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
