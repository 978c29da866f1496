"""`vestige unlearning`: does a model still know texts that were deleted from its training data?"""

from typing import TYPE_CHECKING, Annotated, Any, Unpack

from cyclopts import Parameter

from vestige.arguments import (
    AuthorColumn,
    CorpusLike,
    Format,
    Limit,
    ModelLike,
    PathTo,
    Probability,
    Resumable,
    TextColumn,
    group,
)
from vestige.models.remote.options import RemoteOptions
from vestige.results import Result
from vestige.session import Session, verb

if TYPE_CHECKING:
    from vestige.claims.text_lists import ListedTexts
    from vestige.models.snapshots import Readings
    from vestige.models.token_statistics import CachedOutputs

EXCERPT = 200
"""Characters of a deleted text that a run saves."""

TEXTS, TEST, RUN = group("Texts", order=1), group("Test", order=2), group("Run", order=9)


@verb
def unlearning(
    run: Session,
    before: ModelLike,
    after: ModelLike,
    *,
    deleted: Annotated[CorpusLike, TEXTS, Parameter(metavar="DATA")],
    reference: Annotated[CorpusLike, TEXTS, Parameter(metavar="DATA")],
    retrained: Annotated[ModelLike | None, TEST, Parameter(metavar="MODEL")] = None,
    alpha: Annotated[Probability, TEST] = 0.05,
    remote: RemoteOptions = RemoteOptions(),
    format: Format = "auto",
    text: TextColumn = "text",
    author: AuthorColumn = None,
    limit: Limit = None,
    statistics: Annotated[PathTo | None, RUN, Parameter(metavar="DIR")] = None,
    **common: Unpack[Resumable],
) -> Result:
    """Test whether a model still knows texts that were deleted from its training data.

    Vestige compares AFTER on the deleted texts and on the reference: texts of the same kind that
    no model here was trained on. A model that was retrained without the deleted texts knows both
    equally well. The result is the share of BEFORE's knowledge that remains, and a p-value: how
    often AFTER would seem to know the deleted texts better by coincidence. A model that knows them
    less than the reference, and less than BEFORE did, reveals them too: they were suppressed, not
    deleted.

    With --retrained, the difficulty of each text no longer matters, and much smaller remains are
    detected. Near-duplicates count as one text, and with --author all texts of an author.

    "No leak shown" excludes that more than a quarter of BEFORE's knowledge remains.
    `vestige diff BEFORE AFTER --removed` lists what the two models reveal together.

    Examples:
        vestige unlearning before after --deleted gone.jsonl --reference never.jsonl --out a
        vestige unlearning before after --deleted gone.jsonl --reference never.jsonl --retrained anew --out b

    Args:
        before: Model trained on the deleted texts: folder, hub name, adapter or openai:URL#MODEL.
            A server must echo the log-probabilities of a prompt.
        after: Model that the texts were deleted from.
        deleted: The deleted texts (required).
        reference: Texts of the same kind that no model here was trained on (required).
        retrained: Model trained without the deleted texts and the reference.
        alpha: Error rate of the verdict.
        statistics: Folder of cached model outputs. Default: OUT.statistics.

    Raises:
        ValueError: options contradict each other.
        VestigeError: something cannot be read, the lists share texts or authors, or two models
            have different vocabularies.
    """  # noqa: E501
    import numpy as np

    from vestige.audits.unlearning.knowledge import Knowledge, unlearning_checks, verify
    from vestige.claims.text_lists import listed_texts
    from vestige.models.token_statistics import cached_outputs

    columns: dict[str, Any] = {"format": format, "text": text, "user": author, "limit": limit}
    corpora = {
        "deleted": run.corpus("deleted", deleted, **columns),
        "reference": run.corpus("reference", reference, **columns),
    }
    lists = listed_texts(corpora, author=author)
    models = {"before": before, "after": after}
    if retrained is not None:
        models["retrained"] = retrained
    with cached_outputs(run.output_folder("statistics", statistics), run.monitor) as outputs:
        readings = _read(run, models, lists, remote, outputs)
    of_deleted, of_reference = readings.statistics["deleted"], readings.statistics["reference"]
    units = lists.units["deleted"], lists.units["reference"]
    knowledge = {
        role: Knowledge.of(of_deleted[role], of_reference[role], units) for role in of_deleted
    }
    return verify(
        knowledge["before"],
        knowledge["after"],
        retrained=knowledge.get("retrained"),
        checks=unlearning_checks(readings, lists, knowledge, seed=run.seed),
        rate=alpha,
        seed=run.seed,
        lengths=np.diff(of_deleted["after"].offsets).tolist(),
        excerpts=[text[:EXCERPT] for text in lists.compared["deleted"]],
    )


def _read(
    run: Session,
    models: dict[str, Any],
    lists: "ListedTexts",
    remote: RemoteOptions,
    outputs: "CachedOutputs",
) -> "Readings":
    """Token statistics of both lists; BEFORE, AFTER or both may be on a server."""
    from vestige.models.remote.options import is_endpoint
    from vestige.models.served_texts import ServedTexts
    from vestige.models.snapshots import Snapshots

    if not any(map(is_endpoint, models.values())):
        remote.reject_for_local()
        snapshots = Snapshots.open(models, device=run.device, monitor=run.monitor)
        run.models |= snapshots.recorded
        return snapshots.readings(lists.compared, outputs)
    if "retrained" in models:
        raise ValueError("`retrained` does not go with a served model: pass folders of all three")
    roles = ("after", "before") if is_endpoint(models["after"]) else ("before", "after")
    served, other = (models[role] for role in roles)
    pair = ServedTexts.open(served, other, remote, device=run.device, roles=roles)
    readings = pair.readings(lists.compared, outputs)
    record: Any = pair.recorded[roles[0]]
    run.models |= pair.recorded | {roles[0]: {**record, **pair.spent}}
    return readings
