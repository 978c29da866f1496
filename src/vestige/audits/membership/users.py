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

from vestige.attacks.membership.query_policy import QueryPolicy
from vestige.attacks.texts.text_models import base_of_adapter
from vestige.audits.membership.query_options import QueryOptions
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
from vestige.audits.membership.user_options import (
    check_base_options,
    check_model_options,
    policy_of,
    shadow_count,
)
from vestige.audits.membership.user_texts import UserTexts, read_user_texts
from vestige.models.remote_options import RemoteOptions
from vestige.results import Result

if TYPE_CHECKING:
    from vestige.session import Session


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
        base: the model before it was fine-tuned. Default: that of an adapter, unless options of
            shadow models are given. Without one, Vestige compares ranks with shadow models.
        person: whose all of `texts` are.
        random_users: split `reference` at random into this many users.
        alpha: false-discovery rate of flags, and level of the test.
        shadows: options of shadow models.
        queries: which words are queried.
        remote: budgets of a remote model.
        statistics: folder of token statistics and of a server's answers. Default: beside `out`.
        cluster: address of a Ray cluster to train shadow models on.
        columns: format, text, user, source and limit of the data.

    Raises:
        ValueError: options do not go together.
        VestigeError: something cannot be read, users or words are too few, or a service fails.
    """
    service = remote_of(model)
    if base is None and service is None and not shadows.changed() and queries.calls is None:
        base = base_of_adapter(model)
    check_model_options(service, queries, remote, has_base=base is not None)
    if base is None:
        count = shadow_count(shadows, cluster)
    else:
        check_base_options(shadows, queries, cluster)
        count = 0
    policy = policy_of(queries, shadows=count, seed=run.seed)
    target = local_target(run, model) if service is None and base is None else None
    read = read_user_texts(
        run, texts, reference, person=person, random_users=random_users, columns=columns
    )
    folder = Path(statistics) if statistics is not None else _beside(run, "statistics")
    if base is not None:
        return _with_base(run, model, base, read, policy, alpha, folder)
    if target is None:
        assert service is not None
        target, read = _remote(run, model, service, read, queries)
    else:
        read = read.with_sources(target.task != "next-word")
    return _with_ranks(
        run, target, read, policy, alpha, shadows, remote, folder, count=count, cluster=cluster
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
    from vestige.attacks.texts.cached_outputs import cached_outputs
    from vestige.attacks.texts.text_models import TextModels
    from vestige.audits.membership.based_users import BasedUsers

    models = TextModels.with_base(model, base, device=run.device, monitor=run.monitor)
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
    with cached_outputs(folder, run.monitor) as outputs:
        audit = BasedUsers(
            run=run, inputs=inputs, models=models, policy=policy, alpha=alpha, outputs=outputs
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
    folder: Path | None,
    *,
    count: int,
    cluster: str | None,
) -> Result:
    """The audit by ranks, beside shadow models if there are any."""
    from vestige.attacks.texts.cached_outputs import cached_outputs
    from vestige.audits.membership.ranked_users import RankedUsers
    from vestige.audits.membership.service import Service
    from vestige.audits.membership.user_shadows import described, plan_shadows

    policy = _of_target(policy, target)
    inputs = UserInputs.of(target, texts, seed=run.seed)
    inputs.check(policy, alpha)
    plan = plan_shadows(run, shadows, target, count=count)
    record = None if plan is None else described(plan)
    with cached_outputs(folder if target.is_server else None, run.monitor) as outputs:
        service = None
        if target.remote is not None:
            service = Service(
                run=run, inputs=inputs, policy=policy, options=remote, outputs=outputs
            )
            service.check_budget()
        run.configuration |= {"task": target.task, "shadow_models": record}
        _identify(run, inputs, policy, alpha, task=target.task, shadows=record)
        with _shadow_folder(run, shadows) as place:
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
    run: "Session", model: Any, service: Remote, texts: UserTexts, queries: QueryOptions
) -> tuple[Target, UserTexts]:
    """A remote target with the words of some non-members, and the texts with its columns."""
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
    is_remote = inputs.target.remote is not None
    models = {
        role: {k: v for k, v in dict(record).items() if k != "path" or is_remote}  # type: ignore[call-overload]
        for role, record in run.models.items()
    }
    selection = {
        "how": policy.how,
        "queries": policy.queries,
        "calls": policy.calls,
        "top_k": policy.k,
    }
    run.configuration |= selection
    identity = {
        "models": models,
        "texts": inputs.texts.texts.fingerprint(),
        "reference": inputs.texts.reference.fingerprint(),
        "alpha": alpha,
        "seed": policy.seed,
    }
    run.store.identify({**identity, **selection, **more})


def _beside(run: "Session", name: str) -> Path | None:
    """A folder beside `out`, named after it."""
    return None if run.out is None else run.out.with_name(f"{run.out.name}.{name}")


@contextmanager
def _shadow_folder(run: "Session", shadows: ShadowOptions) -> Iterator[Path]:
    """The folder of shadow models: one that was given, one beside `out`, or a temporary one."""
    if shadows.shadow_dir is not None:
        yield Path(shadows.shadow_dir)
    elif folder := _beside(run, "shadows"):
        yield folder
    else:
        with TemporaryDirectory() as temporary:
            yield Path(temporary)
