"""Canaries for a corpus of running text or for labelled utterances."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.data.candidate_words import Candidates
    from vestige.data.corpus import Corpus
    from vestige.data.manifest import Canary, Sampling
    from vestige.data.secret_canaries import SecretCanary
    from vestige.data.vocabulary import Vocabulary
    from vestige.session import Session

COPIES, CONTROLS, USER_CONTROLS, LENGTH = 10, 1, 100, 5
"""Defaults of `copies`, `controls`, `controls` with `per_user`, and `length`."""

RANDOM, SAMPLED = "random", "sampled"

_DIGITS = 3
"""Of log-probabilities in a manifest; processors differ in the later ones."""


def check_canaries(given: Mapping[str, Any]) -> None:
    """Raise ValueError if options of `plant` for running text contradict each other.

    Args:
        given: arguments of `plant` by name, with `phrase` and `pattern` as tuples.
    """
    from vestige.data.canaries import PATTERNS

    phrase, patterns, coins = given["phrase"], given["pattern"], given["coin_flip"]
    per_user, sampled = given["per_user"], given["canary_kind"] == SAMPLED
    names, regular = (*PATTERNS, RANDOM), [one for one in patterns if one != RANDOM]
    unknown = [number for number, one in enumerate(patterns, 1) if one not in names]
    if unknown:
        raise ValueError(
            f"`pattern` number {unknown[0]} is not one of {', '.join(map(repr, names))}. Plant "
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


def text_canaries(
    run: "Session", given: Mapping[str, Any], corpus: "Corpus", known: "Vocabulary | None"
) -> "tuple[tuple[Canary, ...], Sampling | None]":
    """The canaries of running text with their controls, and where sampled ones come from.

    Args:
        run: the call.
        given: arguments of `plant`, as for `check_canaries`.
        corpus: in which the canaries will be planted.
        known: the vocabulary whose words or tokens they have; None for words of the corpus.

    Raises:
        DataError: the corpus has too few words, no users, or a canary already.
    """
    from vestige.data import canaries, user_canaries
    from vestige.data.vocabulary import WordVocabulary

    words = known if isinstance(known, WordVocabulary) else None
    copies, controls = given["copies"] or COPIES, given["controls"] or CONTROLS
    shared = {"length": given["length"] or LENGTH, "seed": run.seed}
    planted = shared | {"copies": copies}
    if given["phrase"]:
        own = {"copies": copies, "controls": controls, "seed": run.seed}
        return canaries.given_canaries(given["phrase"], corpus, known, **own), None
    if not (given["per_user"] or given["coin_flip"]):
        patterns = given["pattern"] or canaries.PATTERNS
        if RANDOM in patterns:
            several = {"number": len(patterns), "controls": len(patterns) * controls}
            return canaries.random_canaries(corpus, words, **several, **planted), None
        return canaries.frequency_canaries(
            corpus, words, patterns=patterns, controls=controls, **planted
        ), None
    made: tuple[Canary, ...] = ()
    if given["per_user"]:
        repeated = given["repetitions"]
        made = user_canaries.user_canaries(
            corpus,
            words,
            repetitions=user_canaries.MANY_USERS if repeated is None else repetitions_of(repeated),
            controls=given["controls"] or USER_CONTROLS,
            **shared,
        )
    if given["canary_kind"] == SAMPLED:
        flipped, sampling = _sampled(run, given, corpus, known)
        return made + flipped, sampling
    if given["coin_flip"]:
        made += user_canaries.coin_flip_canaries(
            corpus,
            known,
            number=given["coin_flip"],
            kind=given["canary_kind"] or "words",
            copies=given["copies"] or 1,
            **shared,
        )
    return made, None


def _sampled(
    run: "Session", given: Mapping[str, Any], corpus: "Corpus", known: "Vocabulary | None"
) -> "tuple[tuple[Canary, ...], Sampling]":
    """Lines that a language model writes, each planted by a fair coin, and the record of it."""
    from vestige.data.manifest import Sampling
    from vestige.data.user_canaries import sampled_canaries
    from vestige.models.behind import canary_scores
    from vestige.models.folders import sha256_of
    from vestige.preparation.sampled_canaries import LENGTH as MOST
    from vestige.preparation.sampled_canaries import sample_phrases

    source = given["sampled_from"]
    model = run.model("sampled_from", source)
    how: dict[str, Any] = {
        "temperature": 1.0 if given["temperature"] is None else float(given["temperature"]),
        "length": given["length"] or MOST,
        "prompts": list(given["prompt"]),
    }
    with run.progress("sampling canaries") as step:
        phrases = sample_phrases(
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
