"""Parallel files: line n of each belongs to line n of the others."""

import html
from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.data.corpus import Corpus
from vestige.data.formats.reading import (
    CORPUS_FORMATS,
    CorpusFormat,
    ReadOptions,
    by_name,
    lines,
    require_documents,
)
from vestige.errors import DataError


def parallel_lines(files: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    """Line n of every file, stripped; blank last lines are ignored."""
    names = ", ".join(file.name for file in files)
    remedy = f"Put {names} into one folder; line n of each must belong together."
    for file in files:
        if not file.exists():
            raise DataError(f"{file} does not exist", remedy=remedy)
    columns = [[line.strip() for line in lines(file)] for file in files]
    counts = [next((n for n in range(len(c), 0, -1) if c[n - 1]), 0) for c in columns]
    if any(len(column) < max(counts) for column in columns):
        listed = ", ".join(f"{file.name} {n}" for file, n in zip(files, counts, strict=True))
        raise DataError(
            f"{files[0].parent}: the files have different numbers of lines ({listed}); "
            f"line {min(counts) + 1} is missing in one",
            remedy=remedy,
        )
    return zip(*(column[: max(counts)] for column in columns), strict=True)


def read_sated(path: str | Path, *, source: str = "en", target: str = "fr") -> Corpus:
    """Sentences of the target language with their sources; users are talks.

    Michel and Neubig (2018), "Extreme Adaptation for Personalized Neural Machine Translation",
    released SATED, the Speaker Annotated TED Talks, as parallel `.en` and `.fr` lines, with the
    talk of each line in `.usr`; also for German and Spanish. The tokeniser's entities (`&apos;`)
    become characters again. Pairs with a blank half are left out.

    Args:
        path: the folder of the files, the parent of a folder named `en-fr`, or one of the
            files, for its part alone.
        source, target: the endings of the files to translate from and to; two languages.

    Returns:
        labels are the names of the parts: "train", "dev", "test". A talk may have lines in each.
    """
    if source == target:
        raise ValueError(f"source and target must be two languages, got {source!r} for both")
    rows = [
        (translation, talk, part.name, sentence)
        for part in _parts(Path(path), source, target)
        for talk, sentence, translation in _translations(part, source, target)
    ]
    texts, users, labels, sources = ([row[column] for row in rows] for column in range(4))
    corpus = Corpus.from_texts(texts, users=users, labels=labels, sources=sources)
    return require_documents(corpus, path)


def _read_languages(source: str, options: ReadOptions) -> Corpus:
    """SATED; the columns of the options are the languages."""
    target = "fr" if options.text_column == "text" else options.text_column
    return read_sated(source, source=options.source_column or "en", target=target)


_is_sated = by_name("?*.usr", inside=["*.usr", "[!-][!-]-[!-][!-]/*.usr"], companion=".usr")
CORPUS_FORMATS.add("sated", CorpusFormat(read=_read_languages, detect=_is_sated))


def _parts(path: Path, source: str, target: str) -> list[Path]:
    """The files' paths without their endings, "train" first."""
    if path.is_file():
        return [path.with_suffix("")]
    directions = [path / f"{source}-{target}", path / f"{target}-{source}"]
    folder = next((direction for direction in directions if direction.is_dir()), path)
    parts = [file.with_suffix("") for file in folder.glob("*.usr")]
    if not parts:
        raise DataError(
            f"{folder} has no file of talks (*.usr)",
            remedy=f"Put NAME.{source}, NAME.{target} and NAME.usr into one folder.",
        )
    return sorted(parts, key=lambda part: (part.name != "train", part.name))


def _translations(part: Path, source: str, target: str) -> Iterator[tuple[str, str, str]]:
    """(talk, sentence, its translation) of each complete pair."""
    files = [part.with_name(f"{part.name}.{end}") for end in ("usr", source, target)]
    for number, (talk, *pair) in enumerate(parallel_lines(files), start=1):
        sentence, translation = (html.unescape(half).strip() for half in pair)
        if not (sentence and translation):
            continue
        if not talk:
            raise DataError(
                f"{files[0]}, line {number}: the talk has no name",
                remedy="Line n must name the talk of sentence n; download the files again.",
            )
        yield talk, sentence, translation
