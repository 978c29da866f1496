"""Options of `vestige membership --unit user` that do not go together, refused before any work."""

from vestige.attacks.membership.query_policy import QueryPolicy, usual_selection
from vestige.audits.membership.query_options import OF_SERVICE, QueryOptions
from vestige.audits.membership.shadow_options import ShadowOptions
from vestige.audits.membership.target import Remote
from vestige.models.endpoint_address import EndpointAddress
from vestige.models.remote_options import RemoteOptions

SHADOWS = 10
"""Shadow models, unless `shadows` says how many."""


def check_model_options(
    remote: Remote | None, queries: QueryOptions, options: RemoteOptions, *, has_base: bool
) -> None:
    """Check the options of local models, functions and servers.

    Raises:
        ValueError: one does not go with the kind of model.
    """
    if remote is None:
        options.reject_for_local()
        for name in queries.changed():
            if name in OF_SERVICE:
                raise ValueError(
                    f"`{name}` needs a remote model: openai:URL#MODEL or module:function"
                )
        return
    if isinstance(remote, EndpointAddress):
        if queries.task not in (None, "next-word"):
            raise ValueError("`task` must be next-word for a server; use a function instead")
    else:
        options.reject_for_function()
    if has_base:
        raise ValueError("`base` needs a local model")
    if queries.top_k is None:
        raise ValueError("`top_k` must be given for a remote model: how many words does it list?")


def shadow_count(shadows: ShadowOptions, cluster: str | None) -> int:
    """How many shadow models an audit without a base has.

    Raises:
        ValueError: a number that cannot be used, or options that do not go together.
    """
    count = SHADOWS if shadows.shadows is None else shadows.shadows
    if count == 1:
        raise ValueError(
            "`shadows` must be 0, 2 or more, got 1: half of the reference users would have no "
            "model that was not trained on them"
        )
    if cluster is not None and shadows.processes > 1:
        raise ValueError(
            f"`processes` does not go with `cluster`, where each core trains a model; got "
            f"{shadows.processes}"
        )
    return count


def check_base_options(shadows: ShadowOptions, queries: QueryOptions, cluster: str | None) -> None:
    """Check the options of an audit with a base.

    Raises:
        ValueError: one is of shadow models or of single words.
    """
    for name in (*shadows.changed(), *(() if cluster is None else ("cluster",))):
        if name != "shadows" or shadows.shadows:
            raise ValueError(f"`{name}` does not go with `base`, which replaces shadow models")
    if queries.calls is not None:
        raise ValueError("`calls` does not go with `base`, which reads whole texts: `queries`")
    if queries.select == "informative":
        raise ValueError("`select` informative needs shadow models, not `base`")


def policy_of(queries: QueryOptions, *, shadows: int, seed: int) -> QueryPolicy:
    """Which words are queried; k is 0 until the number of words is known.

    Raises:
        ValueError: options contradict each other.
    """
    how = queries.select or usual_selection(
        queries=queries.queries, calls=queries.calls, shadows=shadows
    )
    policy = QueryPolicy(
        how=how, queries=queries.queries, calls=queries.calls, k=queries.top_k or 0, seed=seed
    )
    if how == "informative" and not shadows:
        raise ValueError("`select` informative needs shadow models, which select the words")
    return policy
