"""The unit "user" of `vestige membership`: was this user's text in the training data?

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD. Differs from
the paper: p-values against non-members over equally many words, see `attacks.membership`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from vestige.attacks.membership.query_policy import QueryPolicy, usual_selection
from vestige.audits.membership.query_options import OF_SERVICE, QueryOptions
from vestige.audits.membership.shadow_options import ShadowOptions
from vestige.audits.membership.target import (
    Remote,
    Target,
    local_target,
    remote_of,
    remote_target,
    shown,
)
from vestige.audits.membership.user_inputs import UserInputs
from vestige.audits.membership.user_texts import UserTexts, read_user_texts
from vestige.models.endpoint_address import EndpointAddress
from vestige.models.remote_options import RemoteOptions
from vestige.results import Result

if TYPE_CHECKING:
    from vestige.session import Session

SHADOWS = 10
"""Shadow models, unless `shadows` says how many."""


def users_membership(
    run: "Session",
    model: Any,
    *,
    texts: Any,
    reference: Any,
    base: Any = None,
    person: str | None = None,
    random_users: int | None = None,
    alpha: float = 0.05,
    shadows: ShadowOptions = ShadowOptions(),
    queries: QueryOptions = QueryOptions(),
    remote: RemoteOptions = RemoteOptions(),
    statistics: Any = None,
    cluster: str | None = None,
    columns: Mapping[str, Any],
) -> Result:
    """Test whose texts were in the training data, with a p-value for each user and for all.

    Args:
        run: the session.
        model: MODEL, local or remote.
        texts: of the users to test.
        reference: of non-members.
        base: the model before it was fine-tuned; None audits ranks beside shadow models.
        person: whose all of `texts` are.
        random_users: split `reference` at random into this many users.
        alpha: false-discovery rate of flags, and level of the test.
        shadows: options of shadow models.
        queries: which words are queried.
        remote: budgets of a remote model.
        statistics: folder of token statistics and of a server's answers; None: beside `out`.
        cluster: address of a Ray cluster to train shadow models on.
        columns: format, text, user, source and limit of the data.
    """
    service = remote_of(model)
    _check_remote(service, base, queries, remote)
    count = 0
    if base is None:
        count = _shadow_count(shadows, cluster)
    else:
        _refuse_with_base(shadows, queries, cluster)
    how = queries.select or usual_selection(
        queries=queries.queries, calls=queries.calls, shadows=count
    )
    policy = _policy(queries, how, seed=run.seed)
    if how == "informative" and not count:
        raise ValueError("`select` informative needs shadow models, which determine the words")
    if service is None and base is None:
        _warn(run, model)
    target = None if service is not None or base is not None else local_target(run, model)
    read = read_user_texts(
        run, texts, reference, person=person, random_users=random_users, columns=columns
    )
    with _beside(run, "statistics", statistics) as folder:
        if base is not None:
            return _with_base(run, model, base, read, policy, alpha, folder)
        if target is None:
            target, read = _remote(run, model, service, read, queries)
        else:
            read = read.with_sources(target.task != "next-word")
        return _with_ranks(
            run, target, read, policy, alpha, shadows, remote, folder, count=count, cluster=cluster
        )


def _policy(queries: QueryOptions, how: Any, *, seed: int) -> QueryPolicy:
    """Which words are queried; k is 0 until the number of words is known."""
    return QueryPolicy(
        how=how, queries=queries.queries, calls=queries.calls, k=queries.top_k or 0, seed=seed
    )


def _with_base(
    run: "Session",
    model: Any,
    base: Any,
    texts: UserTexts,
    policy: QueryPolicy,
    alpha: float,
    folder: Path | None,
) -> Result:
    """The audit with a base."""
    from vestige.audits.membership.based_users import BasedUsers
    from vestige.workflows.text_models import TextModels

    models = TextModels.read(model, base, device=run.device, monitor=run.monitor)
    run.models |= models.recorded
    target = Target(
        name=shown(model),
        task="next-word",
        vocabulary=models.target.vocabulary,
        vocab_size=models.target.vocab_size,
        model=models.target,
        record=dict(models.recorded["target"]),  # type: ignore[call-overload]
    )
    policy = _of_target(policy, target)
    inputs = UserInputs.of(target, texts.with_sources(False), seed=run.seed, has_base=True)
    inputs.check(policy, alpha)
    _identify(run, inputs, policy, alpha)
    audit = BasedUsers(
        run=run, inputs=inputs, models=models, policy=policy, alpha=alpha, statistics=folder
    )
    return Result.of(audit.audit())


def _with_ranks(
    run: "Session",
    target: Target,
    texts: UserTexts,
    policy: QueryPolicy,
    alpha: float,
    shadows: ShadowOptions,
    remote: RemoteOptions,
    folder: Path,
    *,
    count: int,
    cluster: str | None,
) -> Result:
    """The audit by ranks, beside shadow models if there are any."""
    from vestige.audits.membership.ranked_users import RankedUsers
    from vestige.audits.membership.service import Service
    from vestige.audits.membership.user_shadows import described, plan_shadows

    policy = _of_target(policy, target)
    inputs = UserInputs.of(target, texts, seed=run.seed)
    inputs.check(policy, alpha)
    plan = plan_shadows(run, shadows, target, count=count)
    service = None
    if target.remote is not None:
        service = Service(run=run, inputs=inputs, policy=policy, options=remote, folder=folder)
        if policy.how == "informative":
            service.afford_most(inputs.queries)
        else:
            service.afford(inputs.queries.take(inputs.chosen(policy)))
    record = None if plan is None else described(plan)
    run.configuration |= {"task": target.task, "shadow_models": record}
    _identify(run, inputs, policy, alpha, task=target.task, shadows=record)
    with _beside(run, "shadows", shadows.shadow_dir) as place:
        audit = RankedUsers(
            run=run,
            inputs=inputs,
            policy=policy,
            alpha=alpha,
            service=service,
            plan=plan,
            options=shadows,
            folder=place,
            cluster=cluster,
        )
        return Result.of(audit.audit())


def _remote(
    run: "Session", model: Any, service: Remote | None, texts: UserTexts, queries: QueryOptions
) -> tuple[Target, UserTexts]:
    """A remote target, whose words are those of some non-members; and the texts with sources."""
    assert service is not None
    texts = texts.with_sources(queries.task not in (None, "next-word"))
    counted, _, _ = texts.groups(seed=run.seed)
    return remote_target(run, model, service, texts.reference_of(counted), queries), texts


def _of_target(policy: QueryPolicy, target: Target) -> QueryPolicy:
    """The policy with the length of the target's lists."""
    if target.remote is None and policy.k > target.vocab_size:
        raise ValueError(f"`top_k` must lie in [1, {target.vocab_size}], got {policy.k}")
    return replace(policy, k=policy.k or target.vocab_size)


def _identify(
    run: "Session", inputs: UserInputs, policy: QueryPolicy, alpha: float, **more: Any
) -> None:
    """Record what determines the result, or compare it with unfinished work of this folder."""
    remote = inputs.target.remote is not None
    models = {
        role: {k: v for k, v in dict(record).items() if k != "path" or remote}  # type: ignore[call-overload]
        for role, record in run.models.items()
    }
    how = {"select": policy.how, "queries": policy.queries, "calls": policy.calls, "top_k": policy.k}
    chosen = {**how, "alpha": alpha, "seed": policy.seed}
    run.configuration |= how
    run.store.identify(
        {
            "models": models,
            "texts": inputs.texts.texts.fingerprint(),
            "reference": inputs.texts.reference.fingerprint(),
            **chosen,
            **more,
        }
    )


@contextmanager
def _beside(run: "Session", name: str, given: Any) -> Iterator[Path]:
    """A folder that was given, or one beside `out`, or a temporary one."""
    if given is not None:
        yield Path(given)
    elif run.out is not None:
        yield run.out.with_name(f"{run.out.name}.{name}")
    else:
        with TemporaryDirectory() as folder:
            yield Path(folder)


def _warn(run: "Session", model: Any) -> None:
    from vestige.training_runs import useless_model

    if warning := useless_model(model):
        run.log(warning)


def _check_remote(
    service: Remote | None, base: Any, queries: QueryOptions, remote: RemoteOptions
) -> None:
    """Raise ValueError for options that do not go with the kind of model."""
    if service is None:
        remote.reject_for_local()
        for name in queries.changed():
            if name in OF_SERVICE:
                raise ValueError(
                    f"`{name}` needs a remote model: openai:URL#MODEL or module:function"
                )
        return
    if not isinstance(service, EndpointAddress):
        remote.reject_for_function()
    elif queries.task not in (None, "next-word"):
        raise ValueError("`task` must be next-word for a server; use a function instead")
    if base is not None:
        raise ValueError("`base` needs a local model")
    if queries.top_k is None:
        raise ValueError("`top_k` must be given for a remote model: how many words does it list?")


def _shadow_count(shadows: ShadowOptions, cluster: str | None) -> int:
    count = SHADOWS if shadows.shadows is None else shadows.shadows
    if count == 1:
        raise ValueError(
            "`shadows` must be 0, 2 or more, got 1: half of the reference users would have no "
            "model that has not seen them"
        )
    if cluster is not None and shadows.processes > 1:
        raise ValueError(
            f"`processes` does not go with `cluster`, where every core trains one model; got "
            f"{shadows.processes}"
        )
    return count


def _refuse_with_base(shadows: ShadowOptions, queries: QueryOptions, cluster: str | None) -> None:
    """Raise ValueError for options that an audit with a base does not use."""
    names = [*shadows.changed(), *([] if cluster is None else ["cluster"])]
    for name in names:
        if name != "shadows" or shadows.shadows:
            raise ValueError(f"`{name}` does not go with `base`, which replaces shadow models")
    if queries.calls is not None:
        raise ValueError("`calls` does not go with `base`, which needs whole texts: `queries`")
    if queries.select == "informative":
        raise ValueError("`select` informative needs shadow models, not `base`")
