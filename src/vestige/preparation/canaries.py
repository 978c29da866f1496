"""Canaries for a corpus of running text or for labelled utterances."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.data.canaries.texts import Canary, Sampling
    from vestige.data.canaries.utterances import SecretCanary
    from vestige.data.corpus import Corpus
    from vestige.data.vocabulary import Vocabulary
    from vestige.session import Session

COPIES, CONTROLS, USER_CONTROLS, LENGTH = 10, 1, 100, 5
"""Defaults of `copies`, `controls`, `controls` with `per_user`, and `length`."""

SAMPLED = "sampled"

_DIGITS = 3
"""Of log-probabilities in a manifest; processors differ in the later ones."""


def check_canaries(given: Mapping[str, Any]) -> None:
    """Raise ValueError if options of `plant` for running text contradict each other."""
    from vestige.data.canaries.phrases import PATTERNS, RANDOM

    phrase, patterns, coins = given["phrase"], given["pattern"], given["coin_flip"]
    per_user, sampled = given["per_user"], given["canary_kind"] == SAMPLED
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
    for name in ("sampled_from", "temperature", "prompt"):
        needs[name] = ("`canary_kind` sampled", sampled)
    for name, (other, present) in needs.items():
        if given[name] not in (None, ()) and not present:
            raise ValueError(f"`{name}` needs {other}")
    if sampled and given["sampled_from"] is None:
        raise ValueError(
            "`sampled_from` must be given with `canary_kind` sampled: the language model that "
            "writes the canaries, for example the one from which the training starts"
        )


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
    run: "Session", given: Mapping[str, Any], corpus: "Corpus", known: "Vocabulary | None"
) -> "tuple[tuple[Canary, ...], Sampling | None]":
    """The canaries of running text with their controls, and where sampled ones come from.

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
    drawn = {"length": given["length"] or LENGTH, "seed": run.seed}
    if given["phrase"]:
        own = phrases.given_canaries(given["phrase"], corpus, known, **numbers, seed=run.seed)
        return own, None
    if not (given["per_user"] or given["coin_flip"]):
        patterns = given["pattern"] or phrases.PATTERNS
        return phrases.frequency_canaries(
            corpus, words, patterns=patterns, **numbers, **drawn
        ), None
    made: tuple[Canary, ...] = ()
    flipped: tuple[Canary, ...] = ()
    sampling = None
    if given["per_user"]:
        several = given["repetitions"]
        made = coins.user_canaries(
            corpus,
            words,
            repetitions=coins.MANY_USERS if several is None else repetitions_of(several),
            controls=given["controls"] or USER_CONTROLS,
            **drawn,
        )
    if given["canary_kind"] == SAMPLED:
        flipped, sampling = _sampled(run, given, corpus, known)
    elif given["coin_flip"]:
        wanted: dict[str, Any] = {"kind": given["canary_kind"] or "words", **drawn}
        flipped = coins.coin_flip_canaries(
            corpus, known, number=given["coin_flip"], copies=given["copies"] or 1, **wanted
        )
    return made + flipped, sampling


def _sampled(
    run: "Session", given: Mapping[str, Any], corpus: "Corpus", known: "Vocabulary | None"
) -> "tuple[tuple[Canary, ...], Sampling]":
    """Lines that a language model writes, each planted by a fair coin, and the record of it."""
    from vestige.data.canaries.coins import sampled_canaries
    from vestige.data.canaries.texts import Sampling
    from vestige.models.behind import canary_scores
    from vestige.models.folders import sha256_of
    from vestige.preparation import sampled_canaries as sampled

    source = given["sampled_from"]
    model = run.model("sampled_from", source)
    how: dict[str, Any] = {
        "temperature": 1.0 if given["temperature"] is None else float(given["temperature"]),
        "length": given["length"] or sampled.LENGTH,
        "prompts": list(given["prompt"]),
    }
    with run.progress("sampling canaries") as step:
        phrases = sampled.sample_phrases(
            model,
            corpus,
            number=given["coin_flip"],
            seed=[run.seed, 3],
            vocabulary=known,
            progress=step,
            **how,
        )
    made = sampled_canaries(corpus, phrases, copies=given["copies"] or 1, seed=run.seed)
    scores = canary_scores(model, made).round(_DIGITS).tolist()
    scored = (replace(one, log_prob=score) for one, score in zip(made, scores, strict=True))
    name = fspath(source) if isinstance(source, str | PathLike) else ""
    return tuple(scored), Sampling(model=name, weights=sha256_of(source), **how)


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
