"""The unit "user" of `vestige membership`: was this user's text in the training data?

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD. Differs from
the paper: p-values against non-members over equally many words, see `user_audit`.

Without a base, ranks are compared with those of shadow models (`ranked_users`). With a base, a
user's score is the mean calibrated gain of their tokens over it. If the target shows only its most
probable tokens, the gain of the others is estimated. The expectation is learned from all audited
and compared users alike: an audited non-member could change places with any compared one, so that
p-values are exact (Vovk, Gammerman and Shafer 2005, "Algorithmic Learning in a Random World",
section 2.2). A function of 27 numbers cannot memorize the gains of a few members.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vestige.audits.membership.membership import QueryOptions, ShadowOptions
from vestige.audits.membership.queries import QueryPolicy
from vestige.audits.membership.ranked_users import audit_with_shadows, query_facts
from vestige.audits.membership.service import Service
from vestige.audits.membership.shadows import (
    plan_record,
    plan_shadows,
    shadow_folder,
    train_planned,
)
from vestige.audits.membership.text_scores import CalibratedGain, means
from vestige.audits.membership.user_audit import judge_users
from vestige.audits.membership.user_inputs import (
    Remote,
    Target,
    UserInputs,
    load_local_target,
    parse_remote,
    remote_target,
)
from vestige.audits.membership.user_texts import read_user_texts
from vestige.claims.checks import require_finite, statistics_checks
from vestige.models.remote.options import EndpointAddress, RemoteOptions
from vestige.models.shown_statistics import shown_only
from vestige.models.snapshots import Snapshots, base_of_adapter
from vestige.models.token_statistics import CachedOutputs, cached_outputs, first_tokens
from vestige.results import Result

if TYPE_CHECKING:
    from vestige.session import Session

DEFAULT_SHADOWS = 10
"""Shadow models, if `shadows` is not given."""
MIN_LIKELIEST = 20
"""Least number of most probable tokens that are read at each position, unless all are shown."""


def users_membership(run: "Session") -> Result:
    """The audit of users; see `membership`.

    The base of an adapter is not used if options of shadow models are given.
    """
    arguments = run.arguments
    model, base, alpha = arguments["model"], arguments["base"], arguments["alpha"]
    shadows, queries = arguments["shadows"], arguments["queries"]
    remote = parse_remote(model)
    if base is None and remote is None and not shadows.changed() and queries.calls is None:
        base = base_of_adapter(model)
    _check_model_options(remote, queries, arguments["remote"], has_base=base is not None)
    shadow_count = _shadow_count(shadows, queries, arguments["cluster"], has_base=base is not None)
    policy = QueryPolicy.from_options(queries, shadows=shadow_count, seed=run.seed)
    snapshots = target = None
    if base is not None:
        snapshots = Snapshots.with_base(model, base, device=run.device, monitor=run.monitor)
        run.models |= snapshots.recorded
        target = Target.local(model, snapshots.target, snapshots.recorded["target"])
    elif remote is None:
        target = load_local_target(run, model)
    task = queries.task or "next-word" if target is None else target.task
    texts = read_user_texts(run, need_sources=task != "next-word")
    if target is None:
        assert remote is not None
        counted = texts.reference_of(texts.groups(seed=run.seed).counted)
        target = remote_target(run, model, remote, counted, queries)
    elif policy.k > target.vocab_size:
        raise ValueError(f"`top_k` must lie in [1, {target.vocab_size}], got {policy.k}")
    policy = replace(policy, k=policy.k or target.vocab_size)
    inputs = UserInputs.of(target, texts, policy, has_base=snapshots is not None)
    inputs.require_enough(alpha)
    caches = snapshots is not None or isinstance(remote, EndpointAddress)
    folder = run.output_folder("statistics", arguments["statistics"]) if caches else None
    with cached_outputs(folder, run.monitor) as outputs:
        if snapshots is not None:
            _identify(run, inputs, alpha, None)
            return audit_with_base(run, inputs, alpha, snapshots=snapshots, outputs=outputs)
        service = None
        if remote is not None:
            service = Service(run=run, inputs=inputs, options=arguments["remote"], outputs=outputs)
            service.check_budget()
        plan = plan_shadows(run, shadows, target, count=shadow_count)
        record = None if plan is None else plan_record(plan)
        run.configuration |= {"task": target.task, "shadow_models": record}
        _identify(run, inputs, alpha, record)
        with shadow_folder(run) as models_folder:
            train = partial(train_planned, run, plan, inputs, models_folder)
            return audit_with_shadows(run, inputs, alpha, service=service, train=train)


def audit_with_base(
    run: "Session",
    inputs: UserInputs,
    alpha: float,
    *,
    snapshots: Snapshots,
    outputs: CachedOutputs,
) -> Result:
    """Read the texts with the target and the base, calibrate the gains, and compare the users."""
    policy, longest = inputs.policy, snapshots.longest
    queries = inputs.queries.take(inputs.selected())
    if longest is not None:
        queries = queries.take(queries.positions < longest)
    texts, query_text = np.unique(queries.texts, return_inverse=True)
    rows = [inputs.targets.document(text)[:-1].tolist()[:longest] for text in texts]
    shows_all = policy.k >= inputs.target.vocab_size
    likeliest = 0 if shows_all else max(MIN_LIKELIEST, policy.k)
    statistics = snapshots.statistics(rows, outputs, of="the texts", likeliest=likeliest)
    target, base = statistics["target"], statistics["base"]
    require_finite({"the model": [target.log_probs], "the base": [base.log_probs]})
    if shows_all:
        scores = CalibratedGain.fit(target, base).token_scores(target, base)
    else:
        shown = shown_only(target, base, likeliest=policy.k)
        scores = CalibratedGain.fit(shown, base).excesses(shown, base)
    run.log(f"Comparing {len(queries):,} tokens.")
    words = queries.counts()
    compared = [user for user in inputs.non_members.compared if words[user]]
    judged = judge_users(
        queries, scores[base.offsets[query_text] + queries.positions], inputs.audited, compared,
        rate=alpha, seed=policy.seed,
    )  # fmt: skip
    users = inputs.text_users[texts]
    sides = [np.flatnonzero(np.isin(users, side)) for side in (inputs.audited, compared)]
    by_side = {
        name: [first_tokens(whole, side) for side in sides]
        for name, whole in (("the model", target), ("the base", base))
    }
    checks = (
        *statistics_checks(by_side, pair=("the base", "the model")),
        *inputs.text_checks(texts, means(base, base.log_probs), longest=longest),
        judged.powerful,
    )
    size = max(inputs.target.vocab_size, policy.k)
    facts = {"k": policy.k, "vocab_size": size} | query_facts(policy.select, len(queries))
    return judged.result(checks, facts, has_base=True)


def _check_model_options(
    remote: Remote | None, queries: QueryOptions, options: RemoteOptions, *, has_base: bool
) -> None:
    """Raise ValueError for an option that does not go with the kind of model."""
    if remote is None:
        options.reject_for_local()
        for name in queries.changed("task", "vocabulary_size", "tokenizer"):
            raise ValueError(f"`{name}` needs a remote model: openai:URL#MODEL or module:function")
        return
    if not isinstance(remote, EndpointAddress):
        options.reject_for_function()
    elif queries.task not in (None, "next-word"):
        raise ValueError("`task` must be next-word for a server; use a function instead")
    if has_base:
        raise ValueError("`base` needs a local model")
    if queries.top_k is None:
        raise ValueError("`top_k` must be given for a remote model: how many words does it list?")


def _shadow_count(
    shadows: ShadowOptions, queries: QueryOptions, cluster: str | None, *, has_base: bool
) -> int:
    """How many shadow models are trained; ValueError for options that do not go together."""
    if has_base:
        for name in (*shadows.changed(), *(() if cluster is None else ("cluster",))):
            if name != "shadows" or shadows.shadows:
                raise ValueError(f"`{name}` does not go with `base`, which replaces shadow models")
        if queries.calls is not None:
            raise ValueError("`calls` does not go with `base`, which reads whole texts: `queries`")
        return 0
    count = DEFAULT_SHADOWS if shadows.shadows is None else shadows.shadows
    if count == 1:
        raise ValueError(
            "`shadows` must be 0, 2 or more, got 1: half of the reference users would have no "
            "model that was not trained on them"
        )
    if cluster is not None and shadows.processes > 1:
        raise ValueError(
            "`processes` does not go with `cluster`, where each core trains a model; got "
            f"{shadows.processes}"
        )
    return count


def _identify(run: "Session", inputs: UserInputs, alpha: float, shadows: object) -> None:
    """Record what determines the result, or compare it with unfinished work of this folder."""
    policy = inputs.policy
    selection = {
        "how": policy.select,
        "queries": policy.queries,
        "calls": policy.calls,
        "top_k": policy.k,
    }
    run.configuration |= selection
    models: dict[str, Any] = dict(run.models)
    if inputs.target.remote is None:  # a folder may move
        models = {
            role: {key: value for key, value in record.items() if key != "path"}
            for role, record in models.items()
        }
    run.store.identify({
        "models": models,
        "texts": inputs.texts.texts.fingerprint(),
        "reference": inputs.texts.reference.fingerprint(),
        "alpha": alpha,
        "seed": policy.seed,
        **selection,
        "task": inputs.target.task,
        "shadows": shadows,
    })  # fmt: skip
