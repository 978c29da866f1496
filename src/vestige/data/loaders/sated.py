"""Translated talks: parallel `.en` and `.fr` lines, and in `.usr` the talk of each line.

Michel and Neubig (2018), "Extreme Adaptation for Personalized Neural Machine Translation",
released SATED, the Speaker Annotated TED Talks, in this form, also for German and Spanish.
A talk is a user.
"""

import html
from collections.abc import Iterator
from pathlib import Path

from vestige.data.corpus import Corpus
from vestige.data.loaders import tables
from vestige.data.loaders.registry import CORPUS_FORMATS, CorpusFormat, ReadOptions
from vestige.data.text_file import ending, not_empty, parallel_lines
from vestige.errors import DataError

TALKS = ".usr"
_ROWS = tables.SUFFIXES


def read_sated(path: str | Path, *, source: str = "en", target: str = "fr") -> Corpus:
    """Sentences of the target language with those that they translate; users are talks.

    The tokeniser's entities (`&apos;`) become characters again. Pairs of which one half is blank
    are left out.

    Args:
        path: the folder of the files, the folder above it where that is called `en-fr`, or one
            of the files, for its part alone.
        source: the ending of the files to translate from.
        target: the ending of the files to translate to.

    Returns:
        labels are the names of the parts: "train", "dev", "test". A talk may have lines in each.

    Raises:
        ValueError: source and target are one language.
        DataError: a file is missing, has other lines than the others, or lacks a talk.
    """
    if source == target:
        raise ValueError(f"source and target must be two languages, got {source!r} for both")
    columns: dict[str, list[str]] = {"text": [], "user": [], "label": [], "source": []}
    for part in _parts(Path(path), source, target):
        for talk, said, translated in _translations(part, source, target):
            row = {"text": translated, "user": talk, "label": part.name, "source": said}
            for name, value in row.items():
                columns[name].append(value)
    corpus = Corpus.from_texts(
        columns["text"], users=columns["user"], labels=columns["label"], sources=columns["source"]
    )
    return not_empty(corpus, path)


def _talks_folder(path: Path) -> Path | None:
    """The folder of talks that a path is, or holds as `en-fr`; None where there is none."""
    if not path.is_dir():
        return None
    folders = [path, *(entry for entry in sorted(path.iterdir()) if _is_direction(entry))]
    return next((folder for folder in folders if any(folder.glob(f"*{TALKS}"))), None)


def _is_direction(entry: Path) -> bool:
    languages = entry.name.split("-")
    return entry.is_dir() and len(languages) == 2 and all(len(one) == 2 for one in languages)


def _parts(path: Path, source: str, target: str) -> list[Path]:
    """The files' paths without their endings, "train" first."""
    if path.is_file():
        return [path.with_suffix("")]
    directions = [path / f"{source}-{target}", path / f"{target}-{source}"]
    folder = next((found for found in directions if found.is_dir()), path)
    parts = [file.with_suffix("") for file in folder.glob(f"*{TALKS}")]
    if not parts:
        raise DataError(
            f"{folder} has no file of talks (*{TALKS})",
            remedy=f"Put NAME.{source}, NAME.{target} and NAME{TALKS} into one folder.",
        )
    return sorted(parts, key=lambda part: (part.name != "train", part.name))


def _translations(part: Path, source: str, target: str) -> Iterator[tuple[str, str, str]]:
    """(talk, sentence, its translation), pairs that are not whole left out."""
    files = [part.with_name(part.name + end) for end in (TALKS, f".{source}", f".{target}")]
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise DataError(
            f"{missing[0]} does not exist; it belongs to the part {part.name}",
            remedy=(
                f"Put {', '.join(file.name for file in files)} into one folder, or pass other "
                "languages."
            ),
        )
    for number, (talk, *pair) in enumerate(parallel_lines(files), start=1):
        said, translated = (html.unescape(sentence).strip() for sentence in pair)
        if not (said and translated):
            continue
        if not talk:
            raise DataError(
                f"{files[0]}, line {number}: the talk has no name",
                remedy="Line n must name the talk of sentence n; download the files again.",
            )
        yield talk, said, translated


def _read(path: str, options: ReadOptions) -> Corpus:
    target = options.text_column if options.names_text else "fr"
    return read_sated(path, source=options.source_column or "en", target=target)


def _recognised(path: Path) -> bool:
    if path.is_dir():
        return _talks_folder(path) is not None
    suffix = ending(path)
    return path.exists() and (
        suffix == TALKS
        or bool(suffix and suffix not in _ROWS and path.with_suffix(TALKS).is_file())
    )


CORPUS_FORMATS.add(
    "sated", CorpusFormat(read=_read, recognised=lambda source, _: _recognised(Path(source)))
)
