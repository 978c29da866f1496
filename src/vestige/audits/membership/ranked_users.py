"""Audits of users by ranks, compared with the ranks of shadow models."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.audits.membership.ranked_words import (
    Floats,
    RankedWords,
    Ranks,
    ShadowRanks,
    ranks_of,
    score_words,
)
from vestige.audits.membership.service import Service
from vestige.audits.membership.user_audit import compare_users, judge_users, sides_of
from vestige.audits.membership.user_inputs import UserInputs
from vestige.audits.membership.user_texts import NonMembers
from vestige.claims import Check
from vestige.claims.checks import require_finite
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError
from vestige.metrics.tests import most_by_chance
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.results import Result
from vestige.training.shadows import Shadow

if TYPE_CHECKING:
    from vestige.session import Session

LONGEST_LIST = 100
"""Words of the lists that are compared, at most; and no more than a tenth of all words."""
HALF = 0.5
"""Share of shadow models that put one user's p-value at or below the level, from which on the user
differs. However alike the text is, half of them do in twice the level of all audits at most."""


def ranked_users(
    run: "Session",
    inputs: UserInputs,
    alpha: float,
    *,
    service: Service | None,
    train: Callable[[], list[Shadow]],
) -> Result:
    """Query the target, which may be remote, and the shadow models, and compare the users."""
    policy, every, of_shadows = inputs.policy, inputs.queries, None
    if policy.how == "informative":  # shadow models select the words
        if service is not None:
            service.probe()
        shadows = train()
        of_shadows = _shadow_ranks(run, inputs, shadows, every)
        chosen = np.flatnonzero(inputs.chosen(of_shadows))
    else:
        chosen = np.flatnonzero(inputs.chosen())
    ranks = _target_ranks(run, inputs, service, every.take(chosen))
    answered = ranks > 0
    queries = every.take(chosen[answered])
    known = with_words(queries, inputs.audited, inputs.known)
    if of_shadows is not None:
        of_shadows = of_shadows.of_words(chosen[answered])
    else:  # after the target, whose failure comes before training
        shadows = train()
        of_shadows = _shadow_ranks(run, inputs, shadows, queries)
    run.log(f"Comparing {len(queries):,} words.")
    words = RankedWords(
        queries=queries,
        ranks=ranks[answered],
        k=policy.k,
        vocab_size=max(inputs.target.vocab_size, policy.k),
        counts=inputs.counts,
        shadows=of_shadows,
    )
    ratios = [one.outside.perplexity / one.inside.perplexity for one in shadows]
    facts = query_facts(policy.how, len(answered), int(answered.sum())) | {
        "shadow_perplexity_ratio": fmean(ratios) if ratios else None,
        "useless_shadows": sum(one.useless for one in shadows),
        **(service.statistics if service else {}),
    }
    return membership_audit(
        words,
        audited=inputs.audited,
        known=known,
        checks=inputs.checks_of_texts(np.unique(queries.texts), answered=float(answered.mean())),
        facts=facts,
        rate=alpha,
        seed=policy.seed,
    )


def query_facts(how: str, queried: int, answered: int | None = None) -> dict[str, object]:
    """Statistics of the queries about all users, who are treated alike."""
    answered = queried if answered is None else answered
    return {
        "select": how,
        "words_asked": queried,
        "words_unanswered": queried - answered,
        "shadow_perplexity_ratio": None,
        "useless_shadows": 0,
        "queries": answered,
    }


def _target_ranks(
    run: "Session", inputs: UserInputs, service: Service | None, queries: TokenQueries
) -> NDArray[np.int32]:
    """(w,) ranks under the target; 0 for words without an answer."""
    if service is None:
        target = inputs.target
        sha256 = str(target.record["sha256"])
        ranks, log_probs = _ranks(run, inputs, target.model, sha256, queries, "reading the texts")
        require_finite({"the model": [log_probs]})
        return ranks
    ranks = service.ranks(queries)
    if unanswered := int((ranks == 0).sum()):
        run.log(f"{unanswered} of {len(queries)} words have no answer.")
    return ranks


def _shadow_ranks(
    run: "Session", inputs: UserInputs, shadows: list[Shadow], queries: TokenQueries
) -> ShadowRanks | None:
    """Ranks under the shadow models, and whose texts each was trained on; None without any."""
    if not shadows:
        return None
    found = [
        _ranks(
            run, inputs, one.directory, one.sha256, queries,
            f"reading the texts with shadow model {number} of {len(shadows)}",
        )
        for number, one in enumerate(shadows, 1)
    ]  # fmt: skip
    return ShadowRanks.of(found, [one.members for one in shadows], queries.names)


def _ranks(
    run: "Session", inputs: UserInputs, model: Any, sha256: str, queries: TokenQueries, task: str
) -> Ranks:
    """Ranks under a local model, which is loaded and read only if they are not in the store."""
    part, key = run.store.part("ranks/"), inputs.key(sha256, queries)
    if key not in part:
        load = load_seq2seq if inputs.target.source_vocabulary else load_model
        if isinstance(model, Path):
            model = load(model, device=run.device)
        with run.progress(task) as step:
            ranks, log_probs = ranks_of(model, inputs.encoded, queries, progress=step)
        part[key] = {"ranks": ranks, "log_probs": log_probs}
    cached = part[key]
    return cached["ranks"], cached["log_probs"]


def membership_audit(
    words: RankedWords,
    *,
    audited: Sequence[int],
    known: NonMembers[int],
    checks: Sequence[Check],
    facts: Mapping[str, object] | None = None,
    rate: float = 0.05,
    seed: int = 0,
) -> Result:
    """Audit a target that shows ranks, and shadow models in its place.

    Args:
        words: of all users; their counts are of text of nobody audited, fitted or compared, and
            their shadow models were trained on nobody audited or compared, and on about half of
            the fitted.
        audited: users, as indices of `words.queries.names`.
        known: groups of non-members, likewise. Those without a queried word are left out.
        checks: of the texts: all that the claim requires besides those of ranks.
        facts: further entries of the summary.
        rate: false discovery rate, and level of the list's test.
        seed: of everything random.

    Raises:
        ValueError: a shadow model was trained on somebody who is audited or compared.
        DataError: there are too few non-members, or too few words of them.
    """
    known = with_words(words.queries, audited, known)
    if words.shadows is not None:
        seen = np.any(words.shadows.seen, axis=0)
        for name, group in (("audited", audited), ("compared", known.compared)):
            if learned := [user for user in group if seen[user]]:
                raise ValueError(
                    f"{name} must be non-members for every reference model, got user {learned[0]}"
                )
    scores = score_words(words, known.fitted, seed=seed)
    judged = judge_users(words.queries, scores, audited, known.compared, rate=rate, seed=seed)
    nulls = null_p_values(words, audited, known, seed=seed)
    fewest = min((n for n in judged.column("compared_with") if n), default=0)
    every = (
        _alive(words, (*known.fitted, *known.compared)),
        *_alike_for_shadows(nulls, rate=rate, compared=fewest),
        judged.powerful,
        *checks,
    )
    counts = {
        "fitted_on": len(known.fitted),
        "counted_on": len(known.counted),
        "references": 0 if words.shadows is None else len(words.shadows),
        "k": words.k,
        "vocab_size": words.vocab_size,
    }
    return judged.result(every, counts | dict(facts or {}), null=nulls.ravel().tolist())


def null_p_values(
    words: RankedWords, audited: Sequence[int], known: NonMembers[int], *, seed: int = 0
) -> Floats:
    """The same audit of each shadow model, which was not trained on the audited users.

    Returns:
        (s, n) p-values of the n users who have scores, uniform unless the users differ from those
        they are compared with in more than membership. A model that leaves too few references,
        fitted users or words has none; of fewer than 3 models, each does.
    """
    found: list[Floats] = []
    shadows = words.shadows
    for model in range(0 if shadows is None else len(shadows)):
        assert shadows is not None
        if shadows.without_pair_of(model).each < 1:
            continue
        fitted = [user for user in known.fitted if not shadows.seen[model, user]]
        with suppress(DataError):  # half of the words may be too few
            word_scores = score_words(words.played_by(model), fitted, seed=seed)
            sides = sides_of(words.queries, word_scores, audited, known.compared, seed=seed)
            found.append(compare_users(*sides, rate=0.05).p_values)
    return np.array(found) if found else np.empty((0, 0))


def with_words(
    queries: TokenQueries, audited: Sequence[int], known: NonMembers[int]
) -> NonMembers[int]:
    """The non-members of whom a word was queried.

    Raises:
        ValueError: nobody is audited, or a non-member is.
        DataError: no word of theirs was queried.
    """
    if not len(audited):
        raise ValueError(f"audited must be at least one user, got {list(audited)}")
    everybody = {*known.fitted, *known.compared, *known.counted}
    if both := sorted(everybody & set(audited)):
        raise ValueError(f"audited must be no non-members, got user {both[0]} as both")
    words = queries.counts()
    fitted, compared = (
        tuple(user for user in group if words[user]) for group in (known.fitted, known.compared)
    )
    if not (fitted and compared):
        raise DataError(
            f"{len(fitted)} non-members with words to fit on and {len(compared)} to compare with; "
            "each needs one or more",
            remedy="Pass more users with --reference.",
        )
    return replace(known, fitted=fitted, compared=compared)


def _alive(words: RankedWords, users: ArrayLike) -> Check:
    """Whether the words that a model lists predict the text of non-members (`users`) better than
    the words do that are the most frequent ones elsewhere."""
    queries, known = words.queries, np.asarray(users)
    k = max(1, min(words.k, LONGEST_LIST, words.vocab_size // 10))
    frequent = np.argsort(-words.counts.words, kind="stable")[:k]
    listed = queries.mean_by_user(words.shown <= k)[known]
    # A model that lists words at random lists k of all.
    by_frequency = np.maximum(
        queries.mean_by_user(np.isin(queries.tokens, frequent))[known], k / words.vocab_size
    )
    there = np.isfinite(listed)
    if there.sum() < 4:
        return Check("alive", "could not run", "Too few users to test the model; 4 are needed.")
    gains = (listed - by_frequency)[there]
    top = "word" if k == 1 else f"{k} words"
    sentence = (
        f"The model's top {top} are right for {listed[there].mean():.0%} of the reference, the "
        f"most frequent {top} for {by_frequency[there].mean():.0%}"
    )
    if gains.mean() > 2 * gains.std(ddof=1) / np.sqrt(gains.size):
        return Check("alive", "passed", f"{sentence}.")
    return Check("alive", "failed", f"{sentence}: too weak to audit.")


def _alike_for_shadows(
    p_values: NDArray[np.float64], *, rate: float, compared: int
) -> tuple[Check, ...]:
    """The check "comparable" by (s, n) p-values of n users against s shadow models, which saw
    nobody; none without p-values. Each user was compared with so many others at least."""
    if not p_values.size:
        return ()
    share = float((p_values <= rate).mean())
    models, users = p_values.shape
    if users == 1:
        unlike = models > 1 and share >= HALF
    else:
        unlike = share > max(rate, most_by_chance(rate, calibration=compared, tested=users))
    sentence = (
        f"{share:.0%} of the p-values of {models} shadow models, which saw none of the texts, are "
        f"at most {rate:g}"
    )
    if not unlike:
        return (Check("comparable", "passed", f"{sentence}."),)
    sentence += ": audited texts and reference differ without training on them."
    return (Check("comparable", "failed", sentence),)
