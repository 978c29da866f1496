"""Users audited by the ranks of their words, beside shadow models that never saw them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.membership.membership_scores import Answers
from vestige.attacks.membership.query_answers import known_of, narrowed, ranks_of
from vestige.attacks.membership.query_policy import QueryPolicy
from vestige.attacks.membership.reference_models import References
from vestige.attacks.membership.user_audit import UserAudit
from vestige.attacks.membership.user_membership import membership_audit
from vestige.audits.membership.service import Service
from vestige.audits.membership.user_checks import require_finite, text_checks
from vestige.audits.membership.user_inputs import UserInputs
from vestige.data.token_queries import TokenQueries
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.training.shadows import Shadow

if TYPE_CHECKING:
    from vestige.session import Session

Ranks = tuple[NDArray[np.int32], NDArray[np.float32]]
"""(w,) ranks from 1, and (w,) natural logarithms of probabilities."""


def ranked_users(
    run: "Session",
    inputs: UserInputs,
    policy: QueryPolicy,
    alpha: float,
    *,
    service: Service | None,
    train: Callable[[], list[Shadow]],
) -> UserAudit:
    """Query the target and the shadow models, and compare the users.

    Args:
        run: the session.
        inputs: texts, words and users.
        policy: which words are queried.
        alpha: false-discovery rate, and level of the test.
        service: a remote target; None for a local one.
        train: trains the shadow models.
    """
    every = inputs.queries
    if policy.how == "informative":  # shadow models select the words
        if service is not None:
            service.probe()
        shadows = train()
        references = _references(run, inputs, shadows, every)
        mask = inputs.chosen(policy, references)
        answers, answered = _answers(run, inputs, policy, service, every.take(mask))
        if references is not None:
            references = references.of_words(mask.nonzero()[0][answered])
    else:  # the target first: a failure comes before training
        queries = every.take(inputs.chosen(policy))
        answers, answered = _answers(run, inputs, policy, service, queries)
        shadows = train()
        references = _references(run, inputs, shadows, answers.asked)
    run.log(f"Comparing {len(answers.asked):,} words.")
    found = membership_audit(
        answers,
        inputs.counts,
        audited=inputs.audited,
        known=inputs.known,
        references=references,
        rate=alpha,
        seed=policy.seed,
    )
    texts, share = np.unique(answers.asked.texts), float(answered.mean())
    checks = text_checks(inputs, texts, seed=policy.seed, answered=share)
    statistics = {
        "select": policy.how,
        **_statistics(shadows, answered),
        **(service.statistics if service else {}),
    }
    return replace(found, statistics=statistics, checks=(*found.checks, *checks))


def _answers(
    run: "Session",
    inputs: UserInputs,
    policy: QueryPolicy,
    service: Service | None,
    queries: TokenQueries,
) -> tuple[Answers, NDArray[np.bool_]]:
    """The target's ranks of the words that it answered; and (w,) which those are."""
    target, k = inputs.target, policy.k
    if service is None:
        sha256 = str(target.record["sha256"])
        ranks, log_probs = _ranks(run, inputs, target.model, sha256, queries, "reading the texts")
        require_finite({"the model": log_probs})
    else:
        ranks = service.ranks(queries)
    answered = ranks > 0
    if not answered.all():
        run.log(f"{int((~answered).sum())} of {len(queries)} words have no answer.")
    size = max(target.vocab_size, k)
    return narrowed(queries.take(answered), ranks[answered], k=k, vocab_size=size), answered


def _references(
    run: "Session", inputs: UserInputs, shadows: list[Shadow], queries: TokenQueries
) -> References | None:
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
    return References.of(found, [one.members for one in shadows], queries.names)


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
            found = ranks_of(model, inputs.encoded, queries, progress=step)
        part[key] = {"ranks": found.ranks, "log_probs": known_of(found)}
    kept = part[key]
    return kept["ranks"], kept["log_probs"]


def _statistics(shadows: list[Shadow], answered: NDArray[np.bool_]) -> dict[str, object]:
    """Statistics of the queries about all users, who are treated alike."""
    count = int(answered.sum())
    ratios = [one.outside.perplexity / one.inside.perplexity for one in shadows]
    return {
        "words_asked": len(answered),
        "words_unanswered": len(answered) - count,
        "shadow_perplexity_ratio": fmean(ratios) if ratios else None,
        "useless_shadows": sum(one.useless for one in shadows),
        "queries": count,
    }
