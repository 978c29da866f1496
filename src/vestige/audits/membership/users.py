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
from vestige.audits.membership.ranked_users import query_facts, ranked_users
from vestige.audits.membership.service import Service
from vestige.audits.membership.shadows import described, plan_shadows, shadow_folder, train_planned
from vestige.audits.membership.text_scores import CalibratedGain, means
from vestige.audits.membership.user_audit import judge_users
from vestige.audits.membership.user_inputs import (
    Remote,
    Target,
    UserInputs,
    local_target,
    remote_of,
    remote_target,
)
from vestige.audits.membership.user_texts import read_user_texts
from vestige.claims.checks import model_checks, require_finite
from vestige.models.remote.options import EndpointAddress, RemoteOptions
from vestige.models.shown_statistics import shown_only
from vestige.models.snapshots import Snapshots, base_of_adapter
from vestige.models.token_statistics import CachedOutputs, cached_outputs, first_tokens
from vestige.results import Result

if TYPE_CHECKING:
    from vestige.session import Session

SHADOWS = 10
"""Shadow models, unless `shadows` says how many."""
LIKELIEST = 20
"""Most probable tokens that a model gives at each position, at least, if it shows some only."""


def users_membership(run: "Session") -> Result:
    """Test whose texts were in the training data, with a p-value for each user and for all.

    See `membership`. The base of an adapter is not used if options of shadow models are given.
    """
    given = run.arguments
    model, base, alpha = given["model"], given["base"], given["alpha"]
    shadows, queries, remote = given["shadows"], given["queries"], given["remote"]
    service = remote_of(model)
    if base is None and service is None and not shadows.changed() and queries.calls is None:
        base = base_of_adapter(model)
    _check_model(service, queries, remote, has_base=base is not None)
    count = _shadow_count(shadows, queries, given["cluster"], has_base=base is not None)
    policy = QueryPolicy.of(queries, shadows=count, seed=run.seed)
    models = target = None
    if base is not None:
        models = Snapshots.with_base(model, base, device=run.device, monitor=run.monitor)
        run.models |= models.recorded
        target = Target.local(model, models.target, models.recorded["target"])
    elif service is None:
        target = local_target(run, model)
    task = queries.task or "next-word" if target is None else target.task
    read = read_user_texts(
        run, given["texts"], given["reference"], person=given["person"],
        random_users=given["random_users"], sources=task != "next-word", columns=given,
    )  # fmt: skip
    if target is None:
        assert service is not None
        counted = read.reference_of(read.groups(seed=run.seed).counted)
        target = remote_target(run, model, service, counted, queries)
    elif policy.k > target.vocab_size:
        raise ValueError(f"`top_k` must lie in [1, {target.vocab_size}], got {policy.k}")
    policy = replace(policy, k=policy.k or target.vocab_size)
    inputs = UserInputs.of(target, read, policy, has_base=models is not None)
    inputs.check(alpha)
    cached = models is not None or isinstance(service, EndpointAddress)
    folder = run.beside_out("statistics", given["statistics"]) if cached else None
    with cached_outputs(folder, run.monitor) as outputs:
        if models is not None:
            _identify(run, inputs, alpha, None)
            return based_users(run, inputs, alpha, models=models, outputs=outputs)
        client = None
        if service is not None:
            client = Service(run=run, inputs=inputs, options=remote, outputs=outputs)
            client.check_budget()
        plan = plan_shadows(run, shadows, target, count=count)
        record = None if plan is None else described(plan)
        run.configuration |= {"task": target.task, "shadow_models": record}
        _identify(run, inputs, alpha, record)
        with shadow_folder(run) as models_folder:
            train = partial(train_planned, run, plan, inputs, models_folder)
            return ranked_users(run, inputs, alpha, service=client, train=train)


def based_users(
    run: "Session", inputs: UserInputs, alpha: float, *, models: Snapshots, outputs: CachedOutputs
) -> Result:
    """Read the texts with the target and the base, calibrate the gains, and compare the users."""
    policy, longest = inputs.policy, models.longest
    queries = inputs.queries.take(inputs.chosen())
    if longest is not None:
        queries = queries.take(queries.positions < longest)
    texts, text = np.unique(queries.texts, return_inverse=True)
    rows = [inputs.targets.document(one)[:-1].tolist()[:longest] for one in texts]
    everything = policy.k >= inputs.target.vocab_size
    likeliest = 0 if everything else max(LIKELIEST, policy.k)
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
    owners = inputs.owners[texts]
    sides = [np.flatnonzero(np.isin(owners, side)) for side in (inputs.audited, known)]
    by_side = {
        who: [first_tokens(one, side) for side in sides]
        for who, one in (("the model", target), ("the base", base))
    }
    alive_and_different = model_checks(by_side, pair=("the base", "the model"))
    of_texts = inputs.checks_of_texts(texts, means(base, base.log_probs), longest=longest)
    checks = (*alive_and_different, *of_texts, judged.powerful)
    size = max(inputs.target.vocab_size, policy.k)
    facts = {"k": policy.k, "vocab_size": size} | query_facts(policy.how, len(queries))
    return judged.result(checks, facts, based=True)


def _check_model(
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
    count = SHADOWS if shadows.shadows is None else shadows.shadows
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
    selected = {
        "how": policy.how, "queries": policy.queries, "calls": policy.calls, "top_k": policy.k
    }  # fmt: skip
    run.configuration |= selected
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
        **selected,
        "task": inputs.target.task,
        "shadows": shadows,
    })  # fmt: skip
