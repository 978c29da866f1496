"""Scores of users: by ranks compared with shadow models, or by gains over the base.

With a base, a user's score is the mean calibrated gain of their tokens over it. If the target shows
only its most probable tokens, the gain of the others is estimated. The expectation is learned from
all audited and compared users alike: an audited non-member could change places with any compared
one, so that p-values are exact (Vovk, Gammerman and Shafer 2005, "Algorithmic Learning in a Random
World", section 2.2). A function of 27 numbers cannot memorize the gains of a few members.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vestige import claims
from vestige.audits.membership.features import RankedWords, Ranks, ShadowRanks, ranks_of
from vestige.audits.membership.learned_scores import CalibratedGain
from vestige.audits.membership.service import Service
from vestige.audits.membership.user_audit import judge_users, membership_audit, with_words
from vestige.audits.membership.user_checks import checks_of_texts
from vestige.audits.membership.user_inputs import UserInputs
from vestige.claims import Check
from vestige.claims.text_lists import require_finite
from vestige.data.token_queries import TokenQueries
from vestige.models.cached_outputs import CachedOutputs
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.models.shown_statistics import shown_only
from vestige.models.text_models import TextModels
from vestige.models.token_statistics import TokenStatistics, first_tokens
from vestige.results import Result
from vestige.training.shadows import Shadow

if TYPE_CHECKING:
    from vestige.session import Session

LIKELIEST = 20
"""Most probable tokens that the model and the base give at each position, at least."""


def ranked_users(
    run: "Session",
    inputs: UserInputs,
    alpha: float,
    *,
    service: Service | None,
    train: Callable[[], list[Shadow]],
) -> Result:
    """Query the target and the shadow models, and compare the users.

    Args:
        run: the session.
        inputs: texts, words and users.
        alpha: false discovery rate, and level of the test.
        service: a remote target; None for a local one.
        train: trains the shadow models.
    """
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
    facts = _statistics(policy.how, len(answered), int(answered.sum())) | {
        "shadow_perplexity_ratio": fmean(ratios) if ratios else None,
        "useless_shadows": sum(one.useless for one in shadows),
        **(service.statistics if service else {}),
    }
    return membership_audit(
        words,
        audited=inputs.audited,
        known=known,
        checks=checks_of_texts(inputs, np.unique(queries.texts), answered=float(answered.mean())),
        facts=facts,
        rate=alpha,
        seed=policy.seed,
    )


def based_users(
    run: "Session",
    inputs: UserInputs,
    alpha: float,
    *,
    models: TextModels,
    outputs: CachedOutputs,
) -> Result:
    """Read the texts with the target and the base, calibrate the gains, and compare the users.

    Args:
        run: the session.
        inputs: texts, words and users.
        alpha: false discovery rate, and level of the test.
        models: target and base.
        outputs: token statistics, cached.
    """
    policy, longest = inputs.policy, models.longest
    queries = inputs.queries.take(inputs.chosen())
    if longest is not None:
        queries = queries.take(queries.positions < longest)
    texts, text = np.unique(queries.texts, return_inverse=True)
    rows = [inputs.targets.document(one)[:-1].tolist()[:longest] for one in texts]
    everything = policy.k >= inputs.target.vocab_size
    likeliest = LIKELIEST if everything else max(LIKELIEST, policy.k)
    read = models.statistics(rows, outputs, of="the texts", likeliest=likeliest)
    target, base = read["target"], read["base"]
    require_finite({"the model": [target.log_probs], "the base": [base.log_probs]})
    shown = target if everything else shown_only(target, base, likeliest=policy.k)
    learned = CalibratedGain.fit(shown, base)
    scores = (learned.token_scores if everything else learned.excesses)(shown, base)
    run.log(f"Comparing {len(queries):,} tokens.")
    words = queries.counts()
    known = [user for user in inputs.known.compared if words[user]]
    of_queries = scores[base.offsets[text] + queries.positions]
    judged = judge_users(queries, of_queries, inputs.audited, known, rate=alpha, seed=policy.seed)
    means = np.add.reduceat(base.log_probs.astype(np.float64), base.offsets[:-1])
    means /= np.diff(base.offsets)
    checks = (
        *_alive(inputs, texts, {"the model": target, "the base": base}),
        claims.different(base.log_probs, target.log_probs),
        *checks_of_texts(inputs, texts, means, longest=longest),
        judged.powerful,
    )
    size = max(inputs.target.vocab_size, policy.k)
    counts = _statistics(policy.how, len(queries), len(queries))
    return judged.result(checks, {"k": policy.k, "vocab_size": size, **counts}, based=True)


def _statistics(how: str, queried: int, answered: int) -> dict[str, object]:
    """Statistics of the queries about all users, who are treated alike."""
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


def _alive(
    inputs: UserInputs, texts: NDArray[np.integer], read: dict[str, TokenStatistics]
) -> list[Check]:
    """The check "alive" of each model, by the texts of the reference."""
    some = np.flatnonzero(np.isin(inputs.owners[texts], inputs.known.compared))
    checks = []
    for who, statistics in read.items():
        rest = first_tokens(statistics, some)
        scores, tokens = (
            np.split(each, rest.offsets[1:-1]) for each in (rest.log_probs, rest.tokens)
        )
        checks.append(claims.alive(scores, tokens, who=who))
    return checks
