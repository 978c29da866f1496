"""Canaries for a corpus, by the settings of `vestige plant`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from vestige.monitor import SILENT

if TYPE_CHECKING:
    from vestige.data.canary import Canary
    from vestige.data.corpus import Corpus
    from vestige.data.user_canaries import CanaryKind
    from vestige.data.vocabulary import Vocabulary
    from vestige.monitor import Monitor
    from vestige.workflows.sampled_canaries import CanarySampler

COPIES, CONTROLS, USER_CONTROLS, LENGTH = 10, 1, 100, 5
"""Defaults of `copies`, of `controls`, of it with `per_user`, and of `length`."""

RANDOM = "random"

_DIGITS = 3
"""Of log-probabilities in a manifest: nothing that processors round differently."""


@dataclass(frozen=True, kw_only=True)
class CanaryPlan:
    """Canaries of running text; None stands for a default.

    Raises:
        ValueError: two settings do not go together.
    """

    phrase: Sequence[str] = ()
    pattern: Sequence[str] = ()
    copies: int | None = None
    controls: int | None = None
    per_user: bool = False
    repetitions: Sequence[int] | None = None
    coin_flip: int | None = None
    canary_kind: "CanaryKind | Literal['sampled'] | None" = None
    length: int | None = None
    seed: int

    def __post_init__(self) -> None:
        _check_patterns(self.pattern)
        check_counts(copies=self.copies, controls=self.controls, length=self.length)
        check_counts(2, coin_flip=self.coin_flip)
        regular = [pattern for pattern in self.pattern if pattern != RANDOM]
        clashes = {
            "`phrase` and `pattern`": bool(self.phrase and self.pattern),
            "`phrase` and `per_user`": bool(self.phrase and self.per_user),
            "`phrase` and `coin_flip`": bool(self.phrase and self.coin_flip),
            "`coin_flip` and `pattern`": bool(self.coin_flip and self.pattern),
            "`pattern` random and the others": bool(regular and len(regular) < len(self.pattern)),
            "`per_user` and `pattern` other than random": bool(self.per_user and regular),
        }
        for both in (both for both, clash in clashes.items() if clash):
            raise ValueError(f"{both} must not be given together: plant them in turn")
        if self.per_user and self.copies is not None and not self.coin_flip:
            raise ValueError("`copies` must not be given with `per_user`: name the `repetitions`")
        if self.repetitions is not None and not self.per_user:
            raise ValueError("`repetitions` must be given with `per_user`, which needs users")
        if self.canary_kind is not None and not self.coin_flip:
            raise ValueError(
                "`canary_kind` must be given with `coin_flip`, whose canaries it names"
            )
        if self.coin_flip and self.controls is not None and not self.per_user:
            raise ValueError(
                "`controls` must not be given with `coin_flip`: tails are the controls"
            )

    def make(
        self,
        corpus: "Corpus",
        vocabulary: "Vocabulary | None",
        sampler: "CanarySampler | None" = None,
        monitor: "Monitor" = SILENT,
    ) -> tuple["Canary", ...]:
        """The canaries, with their controls.

        Args:
            corpus: in which they will be planted.
            vocabulary: whose words they have; None: the corpus's.
            sampler: of the kind "sampled".
            monitor: told how many are sampled.
        """
        from vestige.data.canaries import (
            PATTERNS,
            frequency_canaries,
            given_canaries,
            random_canaries,
        )
        from vestige.data.vocabulary import WordVocabulary

        if self.phrase:
            return given_canaries(
                self.phrase,
                corpus,
                vocabulary,
                copies=self.copies or COPIES,
                controls=self.controls or CONTROLS,
                seed=self.seed,
            )
        words = vocabulary if isinstance(vocabulary, WordVocabulary) else None
        if self.per_user or self.coin_flip:
            return self._of_users(corpus, vocabulary, sampler, monitor)
        shared = {"copies": self.copies or COPIES, "controls": self.controls or CONTROLS}
        shared |= {"length": self.words, "seed": self.seed}
        if RANDOM in self.pattern:
            number = len(self.pattern)
            shared["controls"] *= number  # of each
            return random_canaries(corpus, words, number=number, **shared)
        return frequency_canaries(corpus, words, patterns=self.pattern or PATTERNS, **shared)

    @property
    def words(self) -> int:
        """Words in a made canary."""
        return LENGTH if self.length is None else self.length

    def _of_users(
        self,
        corpus: "Corpus",
        vocabulary: "Vocabulary | None",
        sampler: "CanarySampler | None",
        monitor: "Monitor",
    ) -> tuple["Canary", ...]:
        """Canaries of their own for every user, canaries planted by coin flips, or both."""
        from vestige.data.user_canaries import MANY_USERS, user_canaries
        from vestige.data.vocabulary import WordVocabulary

        words = vocabulary if isinstance(vocabulary, WordVocabulary) else None
        made: tuple[Canary, ...] = ()
        if self.per_user:
            made = user_canaries(
                corpus,
                words,
                repetitions=self.repetitions or MANY_USERS,
                controls=self.controls or USER_CONTROLS,
                length=self.words,
                seed=self.seed,
            )
        if self.coin_flip and sampler is not None:
            made += self._sampled(corpus, vocabulary, sampler, self.coin_flip, monitor)
        elif self.coin_flip:
            made += self._by_coin(corpus, vocabulary, self.coin_flip)
        return made

    def _by_coin(
        self, corpus: "Corpus", vocabulary: "Vocabulary | None", number: int
    ) -> tuple["Canary", ...]:
        from vestige.data.user_canaries import coin_flip_canaries

        assert self.canary_kind != "sampled"  # which has a sampler
        return coin_flip_canaries(
            corpus,
            vocabulary,
            number=number,
            kind=self.canary_kind or "words",
            copies=self.copies or 1,
            length=self.words,
            seed=self.seed,
        )

    def _sampled(
        self,
        corpus: "Corpus",
        vocabulary: "Vocabulary | None",
        sampler: "CanarySampler",
        number: int,
        monitor: "Monitor",
    ) -> tuple["Canary", ...]:
        from vestige.attacks.exposure.canary_audit import canary_scores
        from vestige.data.user_canaries import sampled_canaries

        seed = [self.seed, 3]
        drawn = sampler.phrases(
            corpus, number=number, seed=seed, vocabulary=vocabulary, monitor=monitor
        )
        made = sampled_canaries(corpus, drawn, copies=self.copies or 1, seed=self.seed)
        scores = canary_scores(sampler.model, made).round(_DIGITS).tolist()
        return tuple(replace(one, log_prob=score) for one, score in zip(made, scores, strict=True))


def repetitions_of(given: str | Sequence[int] | None) -> tuple[int, ...] | None:
    """Whole numbers, such as "1,2,5" or (1, 2, 5); None where nothing was given.

    Raises:
        ValueError: it is no list of whole numbers from 1 on.

    Example:
        >>> repetitions_of("1,2, 20")
        (1, 2, 20)
    """
    if given is None:
        return None
    entries = given.split(",") if isinstance(given, str) else [str(one) for one in given]
    entries = [entry.strip() for entry in entries]
    if not entries or not all(entry.isdecimal() and int(entry) > 0 for entry in entries):
        raise ValueError(
            f"`repetitions` must be whole numbers from 1 on with commas between, got {given!r}"
        )
    return tuple(map(int, entries))


def check_counts(least: int = 1, **counts: int | None) -> None:
    """Raise ValueError where a number that was given is below the least; None was not given."""
    for name, count in counts.items():
        if count is not None and count < least:
            raise ValueError(f"`{name}` must be at least {least}, got {count}")


def _check_patterns(patterns: Sequence[str]) -> None:
    from vestige.data.canaries import PATTERNS

    for number, pattern in enumerate(patterns, 1):
        if pattern not in (*PATTERNS, RANDOM):
            names = ", ".join(map(repr, (*PATTERNS, RANDOM)))
            raise ValueError(
                f"`pattern` number {number} is not one of {names}; a phrase of your own is a "
                "`phrase`"
            )
