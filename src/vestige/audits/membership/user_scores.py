"""Scores of users: by ranks compared with shadow models, or by gains over the base.

With a base, a user's score is the mean calibrated gain of their tokens over it. If the target shows
only its most probable tokens, the gain of the others is estimated. The expectation is learned from
all audited and compared users alike: an audited non-member could change places with any compared
one, so that p-values are exact (Vovk, Gammerman and Shafer 2005, "Algorithmic Learning in a Random
World", section 2.2). A function of 27 numbers cannot memorize the gains of a few members.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from vestige import claims
from vestige.attacks.membership.membership_scores import Answers
from vestige.attacks.membership.query_answers import narrowed, ranks_of
from vestige.attacks.membership.reference_models import References
from vestige.attacks.membership.user_audit import UserAudit
from vestige.attacks.membership.user_membership import judge_users, membership_audit
from vestige.audits.membership.learned_scores import CalibratedGain
from vestige.audits.membership.service import Service
from vestige.audits.membership.user_inputs import UserInputs
from vestige.claims import Check
from vestige.claims.comparable import LEVEL
from vestige.claims.text_lists import comparable_texts, require_finite
from vestige.data.token_queries import TokenQueries
from vestige.metrics.permutation import means_by_group
from vestige.models.cached_outputs import CachedOutputs
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.models.shown_statistics import shown_only
from vestige.models.text_models import TextModels
from vestige.models.token_statistics import TokenStatistics, first_tokens
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
) -> UserAudit:
    """Query the target and the shadow models, and compare the users.

    Args:
        run: the session.
        inputs: texts, words and users.
        alpha: false-discovery rate, and level of the test.
        service: a remote target; None for a local one.
        train: trains the shadow models.
    """
    every, policy = inputs.queries, inputs.policy
    if policy.how == "informative":  # shadow models select the words
        if service is not None:
            service.probe()
        shadows = train()
        references = _references(run, inputs, shadows, every)
        mask = inputs.chosen(references)
        answers, answered = _answers(run, inputs, service, every.take(mask))
        if references is not None:
            references = references.of_words(mask.nonzero()[0][answered])
    else:  # the target first: a failure comes before training
        queries = every.take(inputs.chosen())
        answers, answered = _answers(run, inputs, service, queries)
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
    ratios = [one.outside.perplexity / one.inside.perplexity for one in shadows]
    statistics = _statistics(policy.how, len(answered), int(answered.sum())) | {
        "shadow_perplexity_ratio": fmean(ratios) if ratios else None,
        "useless_shadows": sum(one.useless for one in shadows),
    }
    checks = _text_checks(inputs, np.unique(answers.asked.texts), answered=float(answered.mean()))
    return replace(
        found,
        statistics=statistics | (service.statistics if service else {}),
        checks=(*found.checks, *checks),
    )


def based_users(
    run: "Session",
    inputs: UserInputs,
    alpha: float,
    *,
    models: TextModels,
    outputs: CachedOutputs,
) -> UserAudit:
    """Read the texts with the target and the base, calibrate the gains, and compare the users.

    Args:
        run: the session.
        inputs: texts, words and users.
        alpha: false-discovery rate, and level of the test.
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
    place = base.offsets[text] + queries.positions
    size = max(inputs.target.vocab_size, policy.k)
    answers = narrowed(queries, shown.ranks[place] + 1, k=policy.k, vocab_size=size)
    run.log(f"Comparing {len(queries):,} tokens.")
    counts = queries.counts()
    known = [user for user in inputs.known.compared if counts[user]]
    found = judge_users(answers, scores[place], inputs.audited, known, rate=alpha, seed=policy.seed)
    means = np.add.reduceat(base.log_probs.astype(np.float64), base.offsets[:-1])
    means /= np.diff(base.offsets)
    checks = (
        *_alive(inputs, texts, {"the model": target, "the base": base}),
        claims.different(base.log_probs, target.log_probs),
        *_text_checks(inputs, texts, means, longest=longest),
    )
    statistics = _statistics(policy.how, len(queries), len(queries))
    return replace(found, statistics=statistics, checks=(*checks, *found.checks), based=True)


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


def _answers(
    run: "Session",
    inputs: UserInputs,
    service: Service | None,
    queries: TokenQueries,
) -> tuple[Answers, NDArray[np.bool_]]:
    """The target's ranks of the words that it answered; and (w,) which those are."""
    target, k = inputs.target, inputs.policy.k
    if service is None:
        sha256 = str(target.record["sha256"])
        ranks, log_probs = _ranks(run, inputs, target.model, sha256, queries, "reading the texts")
        require_finite({"the model": [log_probs]})
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
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """(w,) ranks from 1 and log-probabilities under a local model, which is loaded and read only if
    they are not in the store."""
    part, key = run.store.part("ranks/"), inputs.key(sha256, queries)
    if key not in part:
        load = load_seq2seq if inputs.target.source_vocabulary else load_model
        if isinstance(model, Path):
            model = load(model, device=run.device)
        with run.progress(task) as step:
            found = ranks_of(model, inputs.encoded, queries, progress=step)
        part[key] = {"ranks": found.ranks, "log_probs": found.log_probs}
    kept = part[key]
    return kept["ranks"], kept["log_probs"]


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


def _text_checks(
    inputs: UserInputs,
    texts: NDArray[np.integer],
    base: NDArray[np.float64] | None = None,
    *,
    longest: int | None = None,
    answered: float = 1.0,
) -> tuple[Check, ...]:
    """Checks of the queried texts: read, independent, comparable.

    Args:
        inputs: of the audit.
        texts: indices of the t texts that were queried.
        base: (t,) scores under a model that saw none of them.
        longest: tokens of a text that are read.
        answered: share of the queries that were answered.
    """
    # Of the side that was read less; words that were not selected do not count as unread.
    there = inputs.queries.positions < (longest or np.inf)
    users = len(inputs.queries.names)
    known = np.bincount(inputs.queries.users[there], minlength=users)
    lengths = np.diff(inputs.targets.offsets) - 1  # without the end of each text
    every = np.bincount(inputs.owners, lengths, minlength=users)
    sides = [list(inputs.audited), list(inputs.known.compared)]
    side = min(sides, key=lambda one: known[one].sum() / max(1, every[one].sum()))
    read = claims.read(round(answered * known[side].sum()), round(every[side].sum()))
    return read, inputs.texts.independent, _comparable(inputs, texts, base)


def _comparable(
    inputs: UserInputs, texts: NDArray[np.integer], base: NDArray[np.float64] | None
) -> Check:
    owners, read = inputs.owners[texts], list(inputs.texts.together())
    sides = [np.isin(owners, users) for users in (inputs.audited, inputs.known.compared)]
    own, rest = ([read[index] for index in texts[side]] for side in sides)
    units = (owners[sides[0]], owners[sides[1]])
    scores = None if base is None else (base[sides[0]], base[sides[1]])
    check = comparable_texts(own, rest, units=units, base=scores, seed=inputs.policy.seed)
    if check.state == "failed" or scores is None or len(inputs.audited) > 1:
        return check
    # One user has too few permutations for the level of a list.
    means = [scores[0].mean(keepdims=True), means_by_group(scores[1], units[1])]
    ranks = rankdata(np.concatenate(means))
    tail = min(ranks[0], ranks.size + 1 - ranks[0]) / ranks.size
    if 2 * tail > LEVEL:
        return check
    sentence = (
        "The base predicts the audited user's texts better or worse than those of nearly all "
        "reference users, without any training on them."
    )
    return Check("comparable", "failed", sentence)
