"""Parts of a corpus of utterances, by the names that their files and folders go by."""

from collections.abc import Callable, Iterable
from pathlib import Path

from vestige.data.loaders.tables import SUFFIXES
from vestige.data.text_file import ending, fitting
from vestige.data.utterances import Utterances, UtteranceSplits
from vestige.errors import DataError

_NAMES = {
    "train": ("train",),
    "validation": ("validation", "valid", "dev"),
    "test": ("test",),
}


def read_parts(
    folder: Path, entries: list[Path], read: Callable[[Path], Utterances]
) -> UtteranceSplits:
    """Read the parts of a folder, each by itself."""
    named = named_parts(entries)
    if "train" not in named:
        raise DataError(
            f"{folder} has no part named train",
            remedy="Name the parts train, validation (or valid or dev) and test.",
        )
    parts = {name: read(entry) for name, entry in named.items()}
    return UtteranceSplits(
        train=parts["train"], validation=parts.get("validation"), test=parts.get("test")
    )


def named_parts(entries: Iterable[Path]) -> dict[str, Path]:
    """The file or folder of each part, by the names that parts go by."""
    found: dict[str, Path] = {}
    for entry in sorted(entries):
        stem = entry.name.removesuffix(".gz").removesuffix(ending(entry))
        for part, names in _NAMES.items():
            if stem not in names:
                continue
            if part in found:
                raise DataError(
                    f"{entry.parent} has both {found[part].name} and {entry.name} for the part "
                    f"{part}",
                    remedy="Keep one of them, or pass a file.",
                )
            found[part] = entry
    return found


def require_folder(path: Path) -> Path:
    """The path itself, when it is a folder."""
    if not path.is_dir():
        raise DataError(f"{path} is a file, not a folder", remedy="Pass its folder.")
    return path


def only_table(path: Path) -> Path:
    """The path of a table, or the one table in a folder."""
    found = fitting(path, SUFFIXES) if path.is_dir() else [path]
    if len(found) != 1:
        raise DataError(
            f"{path} has {len(found)} tables; one is needed", remedy="Pass the file itself."
        )
    return found[0]
