"""Which canaries do the options of `vestige plant` ask for?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vestige.data.canary import Canary
    from vestige.data.corpus import Corpus
    from vestige.data.vocabulary import Vocabulary, WordVocabulary

COPIES, CONTROLS, USER_CONTROLS = 10, 1, 100
"""What stands for `--copies`, for `--controls`, and for it with `--per-user`."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options as they were given; None where one was not.

    Raises:
        ValueError: two of them do not go together.
    """

    phrases: Sequence[str] = ()
    patterns: Sequence[str] = ()
    copies: int | None = None
    controls: int | None = None
    length: int = 5
    per_user: bool = False
    repetitions: tuple[int, ...] | None = None
    coin_flip: int | None = None
    seed: int

    def __post_init__(self) -> None:
        regular = [pattern for pattern in self.patterns if pattern != "random"]
        clashes = {
            "--phrase and --pattern": bool(self.phrases and self.patterns),
            "--phrase and --per-user": bool(self.phrases and self.per_user),
            "--phrase and --coin-flip": bool(self.phrases and self.coin_flip),
            "--coin-flip and --pattern": bool(self.coin_flip and self.patterns),
            "--pattern random and the others": bool(regular and len(regular) < len(self.patterns)),
            "--per-user and --pattern other than random": bool(self.per_user and regular),
        }
        for both in (both for both, clash in clashes.items() if clash):
            raise ValueError(f"{both} must not be given together: plant them in turn")
        if self.per_user and self.copies is not None and not self.coin_flip:
            raise ValueError("--copies must not be given with --per-user: name the --repetitions")
        if self.repetitions is not None and not self.per_user:
            raise ValueError("--repetitions must be given with --per-user, which needs users")
        if self.coin_flip and self.controls is not None and not self.per_user:
            raise ValueError(
                "--controls must not be given with --coin-flip: tails are the controls"
            )


def repetitions(text: str | None) -> tuple[int, ...] | None:
    """The whole numbers of `--repetitions`, such as "1,2,5"; None where it was not given.

    Raises:
        ValueError: it is no list of whole numbers from 1 on.

    Example:
        >>> repetitions("1,2, 20")
        (1, 2, 20)
    """
    if text is None:
        return None
    entries = [entry.strip() for entry in text.split(",")]
    if not all(entry.isdecimal() and int(entry) > 0 for entry in entries):
        raise ValueError(
            f"--repetitions must be whole numbers from 1 on with commas between, got {text!r}"
        )
    return tuple(map(int, entries))


def make(corpus: "Corpus", vocabulary: "Vocabulary | None", wanted: Wanted) -> tuple["Canary", ...]:
    """The canaries that the options ask for, with their controls.

    Raises:
        ValueError: a number is out of range.
        DataError: the corpus does not have what they need, such as words or users.
    """
    from vestige.data.canaries import given_canaries
    from vestige.data.vocabulary import WordVocabulary

    if wanted.phrases:
        return given_canaries(
            wanted.phrases,
            corpus,
            vocabulary,
            copies=wanted.copies or COPIES,
            controls=wanted.controls or CONTROLS,
            seed=wanted.seed,
        )
    words = vocabulary if isinstance(vocabulary, WordVocabulary) else None
    if wanted.per_user or wanted.coin_flip:
        return _of_people(corpus, words, wanted)
    return _of_patterns(corpus, words, wanted)


def _of_patterns(
    corpus: "Corpus", words: "WordVocabulary | None", wanted: Wanted
) -> tuple["Canary", ...]:
    from vestige.data.canaries import PATTERNS, frequency_canaries, random_canaries

    copies, controls = wanted.copies or COPIES, wanted.controls or CONTROLS
    if "random" in wanted.patterns:
        return random_canaries(
            corpus,
            words,
            number=len(wanted.patterns),
            copies=copies,
            controls=controls,
            length=wanted.length,
            seed=wanted.seed,
        )
    return frequency_canaries(
        corpus,
        words,
        patterns=wanted.patterns or PATTERNS,
        copies=copies,
        controls=controls,
        length=wanted.length,
        seed=wanted.seed,
    )


def _of_people(
    corpus: "Corpus", words: "WordVocabulary | None", wanted: Wanted
) -> tuple["Canary", ...]:
    from vestige.data.user_canaries import MANY_USERS, coin_flip_canaries, user_canaries

    made: tuple[Canary, ...] = ()
    if wanted.per_user:
        made = user_canaries(
            corpus,
            words,
            repetitions=wanted.repetitions or MANY_USERS,
            controls=wanted.controls or USER_CONTROLS,
            length=wanted.length,
            seed=wanted.seed,
        )
    if wanted.coin_flip:
        made += coin_flip_canaries(
            corpus,
            words,
            number=wanted.coin_flip,
            copies=wanted.copies or 1,
            length=wanted.length,
            seed=wanted.seed,
        )
    return made
