"""Canaries for a corpus of running text or for labelled utterances."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.data.canary import Canary
    from vestige.data.candidate_words import Candidates
    from vestige.data.corpus import Corpus
    from vestige.data.secret_canaries import SecretCanary
    from vestige.data.user_canaries import CanaryKind
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import NextToken
    from vestige.monitor import Monitor

COPIES, CONTROLS, USER_CONTROLS, LENGTH = 10, 1, 100, 5
"""Defaults of `copies`, `controls`, `controls` with `per_user`, and `length`."""

RANDOM = "random"

_DIGITS = 3
"""Of log-probabilities in a manifest; processors differ in the later ones."""


def check_canaries(given: Mapping[str, Any]) -> None:
    """Raise ValueError if options of `plant` for running text contradict each other.

    Args:
        given: arguments of `plant` by name, with `phrase` and `pattern` as tuples.
    """
    patterns = given["pattern"]
    _check_patterns(patterns)
    phrase, per_user, coins = given["phrase"], given["per_user"], given["coin_flip"]
    regular = [pattern for pattern in patterns if pattern != RANDOM]
    clashes = {
        "`phrase` and `pattern`": phrase and patterns,
        "`phrase` and `per_user`": phrase and per_user,
        "`phrase` and `coin_flip`": phrase and coins,
        "`coin_flip` and `pattern`": coins and patterns,
        "`pattern` random and another": regular and len(regular) < len(patterns),
        "`per_user` and `pattern` other than random": per_user and regular,
    }
    for both in (both for both, clash in clashes.items() if clash):
        raise ValueError(f"{both} must not be given together: plant them in turn")
    if per_user and given["copies"] is not None and not coins:
        raise ValueError("`copies` does not apply with `per_user`: give `repetitions`")
    if given["repetitions"] is not None and not per_user:
        raise ValueError("`repetitions` needs `per_user`")
    if given["canary_kind"] is not None and not coins:
        raise ValueError("`canary_kind` needs `coin_flip`")
    if coins and given["controls"] is not None and not per_user:
        raise ValueError("`controls` does not apply with `coin_flip`: tails are the controls")
    _check_sampling(given)


def _check_sampling(given: Mapping[str, Any]) -> None:
    if given["canary_kind"] != "sampled":
        for name in ("sampled_from", "temperature", "prompt"):
            if given[name]:
                raise ValueError(f"`{name}` needs `canary_kind` sampled")
    elif given["sampled_from"] is None:
        raise ValueError(
            "`sampled_from` must be given with `canary_kind` sampled: the language model that "
            "writes the canaries, for example the one from which the training starts"
        )


def _check_patterns(patterns: Sequence[str]) -> None:
    from vestige.data.canaries import PATTERNS

    for number, pattern in enumerate(patterns, 1):
        if pattern not in (*PATTERNS, RANDOM):
            names = ", ".join(map(repr, (*PATTERNS, RANDOM)))
            raise ValueError(
                f"`pattern` number {number} is not one of {names}. Plant your own text with "
                "`phrase`"
            )


def repetitions_of(given: str | Sequence[int]) -> tuple[int, ...]:
    """Numbers of copies, written "1,2,5" or given as (1, 2, 5).

    Raises:
        ValueError: it is no list of whole numbers from 1 on.

    Example:
        >>> repetitions_of("1,2, 20")
        (1, 2, 20)
    """
    entries = given.split(",") if isinstance(given, str) else [str(one) for one in given]
    entries = [entry.strip() for entry in entries]
    if not entries or not all(entry.isdecimal() and int(entry) > 0 for entry in entries):
        raise ValueError(
            f"`repetitions` must be whole numbers from 1 on, separated by commas, got {given!r}"
        )
    return tuple(map(int, entries))


def pattern_canaries(
    corpus: "Corpus",
    vocabulary: "Vocabulary | None",
    *,
    patterns: Sequence[str],
    copies: int | None = None,
    controls: int | None = None,
    length: int | None = None,
    seed: int,
) -> "tuple[Canary, ...]":
    """One canary of each frequency pattern, or random ones, with their controls."""
    from vestige.data.canaries import PATTERNS, frequency_canaries, random_canaries

    words = _words(vocabulary)
    of_each = controls or CONTROLS
    shared = {"copies": copies or COPIES, "length": length or LENGTH, "seed": seed}
    if RANDOM in patterns:
        number = len(patterns)
        return random_canaries(corpus, words, number=number, controls=number * of_each, **shared)
    return frequency_canaries(
        corpus, words, patterns=patterns or PATTERNS, controls=of_each, **shared
    )


def canaries_per_user(
    corpus: "Corpus",
    vocabulary: "Vocabulary | None",
    *,
    repetitions: str | Sequence[int] | None = None,
    controls: int | None = None,
    length: int | None = None,
    seed: int,
) -> "tuple[Canary, ...]":
    """Random canaries of their own for every user, one for each number of repetitions."""
    from vestige.data.user_canaries import MANY_USERS, user_canaries

    return user_canaries(
        corpus,
        _words(vocabulary),
        repetitions=MANY_USERS if repetitions is None else repetitions_of(repetitions),
        controls=controls or USER_CONTROLS,
        length=length or LENGTH,
        seed=seed,
    )


def canaries_by_coin(
    corpus: "Corpus",
    vocabulary: "Vocabulary | None",
    *,
    number: int,
    kind: "CanaryKind | None",
    copies: int | None = None,
    length: int | None = None,
    seed: int,
) -> "tuple[Canary, ...]":
    """Canaries of words or tokens, each planted or not by a fair coin."""
    from vestige.data.user_canaries import coin_flip_canaries

    return coin_flip_canaries(
        corpus,
        vocabulary,
        number=number,
        kind=kind or "words",
        copies=copies or 1,
        length=length or LENGTH,
        seed=seed,
    )


def written_canaries(
    model: "NextToken",
    corpus: "Corpus",
    *,
    number: int,
    copies: int | None = None,
    seed: int,
    monitor: "Monitor",
    **sampling: Any,
) -> "tuple[Canary, ...]":
    """Lines that a language model writes, each planted or not by a fair coin.

    Args:
        model: a language model that has not read the corpus.
        corpus: in which they will be planted.
        number: planted and not planted together.
        copies: of each that is planted.
        seed: of texts and coins.
        monitor: for progress.
        **sampling: temperature, prompts, length and vocabulary of `sample_phrases`.
    """
    from vestige.attacks.exposure.canary_audit import canary_scores
    from vestige.data.user_canaries import sampled_canaries
    from vestige.preparation.sampled_canaries import sample_phrases

    with monitor.progress("sampling canaries") as step:
        phrases = sample_phrases(
            model, corpus, number=number, seed=[seed, 3], progress=step, **sampling
        )
    made = sampled_canaries(corpus, phrases, copies=copies or 1, seed=seed)
    scores = canary_scores(model, made).round(_DIGITS).tolist()
    return tuple(replace(one, log_prob=score) for one, score in zip(made, scores, strict=True))


def utterance_canaries(
    patterns: Sequence[str],
    *,
    intents: Sequence[str] = (),
    slot: str | None = None,
    candidates: "Candidates" = (),
    copies: int | None = None,
    controls: int | None = None,
    number: int | None = None,
    seed: int,
) -> "list[SecretCanary]":
    """Labelled utterances with secrets, pattern by pattern, with their controls.

    Raises:
        ValueError: patterns, intents and candidates do not go together.
        DataError: a file of candidates cannot be read.
    """
    from vestige.data.candidate_words import candidate_sets, require_used, with_intents
    from vestige.data.secret_canaries import secret_canaries

    pairs = with_intents(patterns, intents)
    sets = candidate_sets(candidates)
    require_used(sets, [text for text, _ in pairs], by="a `pattern`")
    return [
        canary
        for text, intent in pairs
        for canary in secret_canaries(
            text,
            intent=intent,
            slot="canary" if slot is None else slot,
            candidates=sets,
            copies=copies or COPIES,
            number=number or 1,
            controls=controls or CONTROLS,
            seed=seed,
        )
    ]


def _words(vocabulary: "Vocabulary | None") -> Any:
    """A vocabulary of words; None for one of subwords."""
    from vestige.data.vocabulary import WordVocabulary

    return vocabulary if isinstance(vocabulary, WordVocabulary) else None
