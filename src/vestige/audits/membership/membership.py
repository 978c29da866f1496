"""`vestige membership`: temporary, until the one of branch `texts` is merged."""

from typing import TYPE_CHECKING, Any, Literal, Unpack

from vestige.arguments import (
    CorpusLike,
    Count,
    Format,
    Limit,
    ModelLike,
    PathTo,
    Probability,
    Resumable,
    SourceColumn,
    TextColumn,
    UserColumn,
)
from vestige.audits.membership.query_options import QueryOptions
from vestige.audits.membership.shadow_options import ShadowOptions
from vestige.models.remote_options import RemoteOptions
from vestige.results import Result
from vestige.session import Session, verb

if TYPE_CHECKING:
    from typing import TypeAlias

    Target: TypeAlias = Any
else:
    Target = str


@verb
def membership(
    run: Session,
    model: Target,
    *,
    texts: CorpusLike,
    reference: CorpusLike,
    unit: Literal["text", "user"] = "text",
    base: ModelLike | None = None,
    person: str | None = None,
    random_users: Count | None = None,
    alpha: Probability = 0.05,
    shadows: ShadowOptions = ShadowOptions(),
    queries: QueryOptions = QueryOptions(),
    remote: RemoteOptions = RemoteOptions(),
    statistics: PathTo | None = None,
    cluster: str | None = None,
    format: Format = "auto",
    text: TextColumn = "text",
    user: UserColumn = None,
    source: SourceColumn = None,
    limit: Limit = None,
    **common: Unpack[Resumable],
) -> Result:
    """Test whether texts or users were in the training data.

    Args:
        model: Model.
        texts: To test.
        reference: Known non-members.
        unit: text or user.
        base: Model before fine-tuning.
        person: Author of texts.
        random_users: Split reference.
        alpha: Error rate.
        statistics: Folder.
        cluster: Ray cluster, HOST:PORT.
    """
    from vestige.audits.membership.users import users_membership

    return users_membership(
        run, model, texts=texts, reference=reference, base=base, person=person,
        random_users=random_users, alpha=alpha, shadows=shadows, queries=queries, remote=remote,
        statistics=statistics, cluster=cluster,
        columns={"format": format, "text": text, "user": user, "source": source, "limit": limit},
    )  # fmt: skip
