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
from vestige.audits.membership.user_audit import compare_users, judge_users, score_sides
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

MAX_TOP_WORDS = 100
"""Most words of a list in the check "alive"; at most a tenth of the vocabulary is used."""
MAX_NULL_SHARE = 0.5
"""A single user is not comparable if this share of shadow models gives a p-value at or below the
level. Among users like the reference, this happens in at most twice the level of all audits."""


def audit_with_shadows(
    run: "Session",
    inputs: UserInputs,
    alpha: float,
    *,
    service: Service | None,
    train: Callable[[], list[Shadow]],
) -> Result:
    """Query the target, which may be remote, and the shadow models, and compare the users."""
    policy, shadow_ranks = inputs.policy, None
    if policy.select == "informative":  # shadow models select the words
        if service is not None:
            service.probe()
        shadows = train()
        shadow_ranks = _shadow_ranks(run, inputs, shadows, inputs.queries)
    selected = np.flatnonzero(inputs.selected(shadow_ranks))
    ranks = _target_ranks(run, inputs, service, inputs.queries.take(selected))
    answered = ranks > 0
    queries = inputs.queries.take(selected[answered])
    non_members = with_queried_words(queries, inputs.audited, inputs.non_members)
    if shadow_ranks is not None:
        shadow_ranks = shadow_ranks.take(selected[answered])
    else:  # after the target: a service that fails does so before training
        shadows = train()
        shadow_ranks = _shadow_ranks(run, inputs, shadows, queries)
    run.log(f"Comparing {len(queries):,} words.")
    words = RankedWords(
        queries=queries,
        ranks=ranks[answered],
        k=policy.k,
        vocab_size=max(inputs.target.vocab_size, policy.k),
        counts=inputs.counts,
        shadows=shadow_ranks,
    )
    ratios = [shadow.outside.perplexity / shadow.inside.perplexity for shadow in shadows]
    facts = query_facts(policy.select, len(answered), int(answered.sum())) | {
        "shadow_perplexity_ratio": fmean(ratios) if ratios else None,
        "useless_shadows": sum(shadow.useless for shadow in shadows),
        **(service.statistics if service else {}),
    }
    return audit_ranked_words(
        words,
        audited=inputs.audited,
        non_members=non_members,
        checks=inputs.text_checks(np.unique(queries.texts), answered=float(answered.mean())),
        facts=facts,
        rate=alpha,
        seed=policy.seed,
    )


def query_facts(select: str, queried: int, answered: int | None = None) -> dict[str, object]:
    """Entries of the summary about the queries of all users; by default all were answered."""
    answered = queried if answered is None else answered
    return {
        "select": select,
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
    """Ranks under the shadow models, with their members; None without shadow models."""
    if not shadows:
        return None
    ranks = [
        _ranks(
            run, inputs, shadow.directory, shadow.sha256, queries,
            f"reading the texts with shadow model {number} of {len(shadows)}",
        )
        for number, shadow in enumerate(shadows, 1)
    ]  # fmt: skip
    return ShadowRanks.of(ranks, [shadow.members for shadow in shadows], queries.names)


def _ranks(
    run: "Session", inputs: UserInputs, model: Any, sha256: str, queries: TokenQueries, task: str
) -> Ranks:
    """Ranks under a local model or the model in a folder, from the store if they are there."""
    stored, key = run.store.part("ranks/"), inputs.key(sha256, queries)
    if key not in stored:
        load = load_seq2seq if inputs.target.source_vocabulary else load_model
        if isinstance(model, Path):
            model = load(model, device=run.device)
        with run.progress(task) as step:
            ranks, log_probs = ranks_of(model, inputs.encoded, queries, progress=step)
        stored[key] = {"ranks": ranks, "log_probs": log_probs}
    entry = stored[key]
    return entry["ranks"], entry["log_probs"]


def audit_ranked_words(
    words: RankedWords,
    *,
    audited: Sequence[int],
    non_members: NonMembers[int],
    checks: Sequence[Check],
    facts: Mapping[str, object] | None = None,
    rate: float = 0.05,
    seed: int = 0,
) -> Result:
    """Audit a target that shows ranks, and shadow models in its place.

    Args:
        words: of all users. Their counts are of other users' texts; each shadow model was trained
            on about half of the fitted users and on no audited or compared user.
        audited: audited users, as indices of `words.queries.names`.
        non_members: groups of non-members, likewise. Those without a queried word are left out.
        checks: of the texts: all that the claim requires besides those of ranks.
        facts: further entries of the summary.
        rate: false discovery rate, and level of the list's test.
        seed: of everything random.

    Raises:
        ValueError: a shadow model was trained on an audited or compared user.
        DataError: there are too few non-members, or too few words of them.
    """
    groups = with_queried_words(words.queries, audited, non_members)
    if words.shadows is not None:
        is_member = np.any(words.shadows.members, axis=0)
        for name, group in (("audited", audited), ("compared", groups.compared)):
            if members := [user for user in group if is_member[user]]:
                raise ValueError(
                    f"{name} must be non-members for every reference model, got user {members[0]}"
                )
    scores = score_words(words, groups.fitted, seed=seed)
    judged = judge_users(words.queries, scores, audited, groups.compared, rate=rate, seed=seed)
    null = null_p_values(words, audited, groups, seed=seed)
    least_compared = min((n for n in judged.column("compared_with") if n), default=0)
    all_checks = (
        _alive(words, (*groups.fitted, *groups.compared)),
        *_comparable_for_shadows(null, rate=rate, compared=least_compared),
        judged.powerful,
        *checks,
    )
    counts = {
        "fitted_on": len(groups.fitted),
        "counted_on": len(groups.counted),
        "references": 0 if words.shadows is None else len(words.shadows),
        "k": words.k,
        "vocab_size": words.vocab_size,
    }
    return judged.result(
        all_checks, counts | dict(facts or {}), null_p_values=null.ravel().tolist()
    )


def null_p_values(
    words: RankedWords, audited: Sequence[int], non_members: NonMembers[int], *, seed: int = 0
) -> Floats:
    """The same audit of each shadow model, which was not trained on the audited users.

    Returns:
        (s, n) p-values of the n users who have scores, uniform unless audited and compared users
        differ in more than membership. A model has none if it leaves too few references, fitted
        users or words, which is so for all of fewer than 3 models.
    """
    p_values: list[Floats] = []
    shadows = words.shadows
    for model in range(0 if shadows is None else len(shadows)):
        assert shadows is not None
        if shadows.without_pair_of(model).references < 1:
            continue
        fitted = [user for user in non_members.fitted if not shadows.members[model, user]]
        with suppress(DataError):  # half of the words may be too few
            scores = score_words(words.with_shadow_as_target(model), fitted, seed=seed)
            sides = score_sides(words.queries, scores, audited, non_members.compared, seed=seed)
            p_values.append(compare_users(*sides, rate=0.05).p_values)
    return np.array(p_values) if p_values else np.empty((0, 0))


def with_queried_words(
    queries: TokenQueries, audited: Sequence[int], non_members: NonMembers[int]
) -> NonMembers[int]:
    """The groups of non-members, without fitted and compared users that have no queried word.

    Raises:
        ValueError: no user is audited, or a non-member is.
        DataError: a group has no queried word.
    """
    if not len(audited):
        raise ValueError(f"audited must be at least one user, got {list(audited)}")
    users = {*non_members.fitted, *non_members.compared, *non_members.counted}
    if both := sorted(users & set(audited)):
        raise ValueError(f"audited must be no non-members, got user {both[0]} as both")
    words = queries.counts()
    fitted, compared = (
        tuple(user for user in group if words[user])
        for group in (non_members.fitted, non_members.compared)
    )
    if not (fitted and compared):
        raise DataError(
            f"{len(fitted)} non-members with words to fit on and {len(compared)} to compare with; "
            "each needs one or more",
            remedy="Pass more users with --reference.",
        )
    return replace(non_members, fitted=fitted, compared=compared)


def _alive(words: RankedWords, users: ArrayLike) -> Check:
    """The check "alive": the words that a model lists predict the text of non-members (`users`)
    better than the most frequent words of other text do."""
    queries, selected = words.queries, np.asarray(users)
    k = max(1, min(words.k, MAX_TOP_WORDS, words.vocab_size // 10))
    frequent = np.argsort(-words.counts.words, kind="stable")[:k]
    listed = queries.mean_by_user(words.shown <= k)[selected]
    # A model that lists words at random lists k of all.
    by_frequency = np.maximum(
        queries.mean_by_user(np.isin(queries.tokens, frequent))[selected], k / words.vocab_size
    )
    has_words = np.isfinite(listed)
    if has_words.sum() < 4:
        return Check("alive", "could not run", "Too few users to test the model; 4 are needed.")
    gains = (listed - by_frequency)[has_words]
    top = "word" if k == 1 else f"{k} words"
    sentence = (
        f"The model's top {top} are right for {listed[has_words].mean():.0%} of the reference, the "
        f"most frequent {top} for {by_frequency[has_words].mean():.0%}"
    )
    if gains.mean() > 2 * gains.std(ddof=1) / np.sqrt(gains.size):
        return Check("alive", "passed", f"{sentence}.")
    return Check("alive", "failed", f"{sentence}: too weak to audit.")


def _comparable_for_shadows(
    p_values: NDArray[np.float64], *, rate: float, compared: int
) -> tuple[Check, ...]:
    """The check "comparable"; none without p-values.

    Args:
        p_values: (s, n) of n users under s shadow models, which were trained on none of them.
        rate: the level.
        compared: least number of users that each was compared with.
    """
    if not p_values.size:
        return ()
    share = float((p_values <= rate).mean())
    models, users = p_values.shape
    if users == 1:
        differ = models > 1 and share >= MAX_NULL_SHARE
    else:
        differ = share > max(rate, most_by_chance(rate, calibration=compared, tested=users))
    sentence = (
        f"{share:.0%} of the p-values of {models} shadow models, which saw none of the texts, are "
        f"at most {rate:g}"
    )
    if not differ:
        return (Check("comparable", "passed", f"{sentence}."),)
    sentence += ": audited texts and reference differ without training on them."
    return (Check("comparable", "failed", sentence),)
