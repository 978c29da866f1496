"""Canaries for a corpus of running text or for labelled utterances."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.data.canaries.texts import Canary
    from vestige.data.canaries.utterances import SecretCanary
    from vestige.data.corpus import Corpus
    from vestige.data.vocabulary import Vocabulary

COPIES, CONTROLS, USER_CONTROLS, LENGTH = 10, 1, 100, 5
"""Defaults of `copies`, `controls`, `controls` with `per_user`, and `length`."""


def check_canaries(given: Mapping[str, Any]) -> None:
    """Raise ValueError if options of `plant` for running text contradict each other."""
    from vestige.data.canaries.phrases import PATTERNS, RANDOM

    phrase, patterns, coins = given["phrase"], given["pattern"], given["coin_flip"]
    per_user = given["per_user"]
    names, regular = (*PATTERNS, RANDOM), [one for one in patterns if one != RANDOM]
    for number, one in enumerate(patterns, 1):
        if one not in names:
            raise ValueError(
                f"`pattern` number {number} is not one of {', '.join(map(repr, names))}. Plant "
                "your own text with `phrase`"
            )
    together = {
        "`phrase` and `pattern`": phrase and patterns,
        "`phrase` and `per_user`": phrase and per_user,
        "`phrase` and `coin_flip`": phrase and coins,
        "`coin_flip` and `pattern`": coins and patterns,
        "`pattern` random and another": regular and len(regular) < len(patterns),
        "`per_user` and `pattern` other than random": per_user and regular,
    }
    for both in (both for both, clash in together.items() if clash):
        raise ValueError(f"{both} must not be given together: plant them in turn")
    if per_user and given["copies"] is not None and not coins:
        raise ValueError("`copies` does not apply with `per_user`: give `repetitions`")
    if coins and given["controls"] is not None and not per_user:
        raise ValueError("`controls` does not apply with `coin_flip`: tails are the controls")
    needs = {"repetitions": ("`per_user`", per_user), "canary_kind": ("`coin_flip`", coins)}
    for name, (other, present) in needs.items():
        if given[name] not in (None, ()) and not present:
            raise ValueError(f"`{name}` needs {other}")


def repetitions_of(given: str | Sequence[int]) -> tuple[int, ...]:
    """Numbers of copies, written "1,2,5" or given as (1, 2, 5)."""
    entries = given.split(",") if isinstance(given, str) else [str(one) for one in given]
    entries = [entry.strip() for entry in entries]
    if not entries or not all(entry.isdecimal() and int(entry) > 0 for entry in entries):
        raise ValueError(
            f"`repetitions` must be whole numbers from 1 on, separated by commas, got {given!r}"
        )
    return tuple(map(int, entries))


def text_canaries(
    given: Mapping[str, Any], corpus: "Corpus", known: "Vocabulary | None", seed: int
) -> "tuple[Canary, ...]":
    """The canaries of running text with their controls.

    Args:
        given: arguments of `plant`, with `phrase` and `pattern` as tuples.
        known: the vocabulary whose words or tokens they have; None for words of the corpus.

    Raises:
        DataError: the corpus has too few words, no users, or a canary already.
    """
    from vestige.data.canaries import coins, phrases
    from vestige.data.vocabulary import WordVocabulary

    words = known if isinstance(known, WordVocabulary) else None
    numbers = {"copies": given["copies"] or COPIES, "controls": given["controls"] or CONTROLS}
    drawn = {"length": given["length"] or LENGTH, "seed": seed}
    if given["phrase"]:
        return phrases.given_canaries(given["phrase"], corpus, known, **numbers, seed=seed)
    if not (given["per_user"] or given["coin_flip"]):
        patterns = given["pattern"] or phrases.PATTERNS
        return phrases.frequency_canaries(corpus, words, patterns=patterns, **numbers, **drawn)
    made: tuple[Canary, ...] = ()
    if given["per_user"]:
        several = given["repetitions"]
        made = coins.user_canaries(
            corpus,
            words,
            repetitions=coins.MANY_USERS if several is None else repetitions_of(several),
            controls=given["controls"] or USER_CONTROLS,
            **drawn,
        )
    if given["coin_flip"]:
        wanted: dict[str, Any] = {"kind": given["canary_kind"] or "words", **drawn}
        made += coins.coin_flip_canaries(
            corpus, known, number=given["coin_flip"], copies=given["copies"] or 1, **wanted
        )
    return made


def utterance_canaries(given: Mapping[str, Any], seed: int) -> "list[SecretCanary]":
    """Labelled utterances with secrets, pattern by pattern, with their controls.

    Args:
        given: arguments of `plant`, with `pattern` and `intent` as tuples.
        seed: decides the secrets.
    """
    from vestige.data.canaries.patterns import candidate_sets, require_used, with_intents
    from vestige.data.canaries.utterances import secret_canaries

    pairs = with_intents(given["pattern"], given["intent"])
    sets = candidate_sets(given["candidates"])
    require_used(sets, [text for text, _ in pairs], by="a `pattern`")
    numbers = {
        "copies": given["copies"] or COPIES,
        "controls": given["controls"] or CONTROLS,
        "number": given["number"] or 1,
    }
    slot = "canary" if given["slot"] is None else given["slot"]
    return [
        canary
        for text, intent in pairs
        for canary in secret_canaries(
            text, intent=intent, slot=slot, candidates=sets, **numbers, seed=seed
        )
    ]
