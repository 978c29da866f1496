"""`vestige unlearning`: does a model still know texts that were deleted from its training data?"""

from collections.abc import Mapping
from dataclasses import replace
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
from vestige.models.remote_options import RemoteOptions
from vestige.results import Result
from vestige.session import Session, verb

if TYPE_CHECKING:
    from vestige.attacks.texts.cached_outputs import CachedOutputs
    from vestige.attacks.texts.deletion import Knowledge
    from vestige.attacks.texts.lists import ListedTexts
    from vestige.attacks.texts.readings import Readings
    from vestige.claims import Check
    from vestige.data.corpus import Corpus

EXCERPT = 200
"""Characters of a deleted text that a run keeps."""

TEXTS, TEST, RUN = group("Texts", place=1), group("Test", place=2), group("Run", place=9)


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

    from vestige.attacks.texts.cached_outputs import cached_outputs
    from vestige.attacks.texts.deletion import Knowledge, verify
    from vestige.attacks.texts.lists import listed_texts
    from vestige.attacks.texts.text_models import TextModels
    from vestige.models.endpoint_address import is_endpoint

    columns: dict[str, Any] = {"format": format, "text": text, "user": author, "limit": limit}
    given = {"deleted": deleted, "reference": reference}
    lists = listed_texts(
        {role: run.corpus(role, data, **columns) for role, data in given.items()}, author=author
    )
    models = {"before": before, "after": after}
    if retrained is not None:
        models["retrained"] = retrained
    folder = run.beside_out("statistics", statistics)
    with cached_outputs(folder, run.monitor) as outputs:
        if any(map(is_endpoint, models.values())):
            read = _read_served(run, models, lists.compared, remote, outputs)
        else:
            remote.reject_for_local()
            opened = TextModels.several(models, device=run.device, monitor=run.monitor)
            run.models |= opened.recorded
            read = opened.readings(lists.compared, outputs)
    own, rest = (read.statistics[name] for name in ("deleted", "reference"))
    units = lists.units.audited, lists.units.reference
    known = {role: Knowledge.of(own[role], rest[role], units) for role in own}
    found = verify(
        known["before"],
        known["after"],
        retrained=known.get("retrained"),
        checks=_checks(read, lists, known, seed=run.seed),
        rate=alpha,
        seed=run.seed,
    )
    excerpts = tuple(one[:EXCERPT] for one in lists.compared["deleted"])
    tokens = tuple(np.diff(own["after"].offsets).tolist())
    return Result.of(replace(found, excerpts=excerpts, tokens=tokens))


def _checks(
    read: "Readings", lists: "ListedTexts", known: "Mapping[str, Knowledge]", *, seed: int
) -> "tuple[Check, ...]":
    """All checks but "powerful"."""
    import numpy as np

    from vestige.attacks.texts.deletion import NAMES, compared_tokens, differences
    from vestige.attacks.texts.list_checks import comparable_texts, model_checks

    own, rest = (read.statistics[name] for name in ("deleted", "reference"))
    units = lists.units.audited, lists.units.reference
    scored, total = read.read
    alive_and_read = model_checks(
        {NAMES[role]: (own[role], rest[role]) for role in own},
        read=(min(scored, compared_tokens(own["after"], rest["after"], units)), total),
    )
    other = known.get("retrained")
    comparable = comparable_texts(
        list(lists.compared["deleted"]),
        list(lists.compared["reference"]),
        units=units,
        base=(other.deleted, other.reference) if other and other.finite else None,
        who=NAMES["retrained"],
        seed=seed,
    )
    log_probs = {role: np.concatenate([own[role].log_probs, rest[role].log_probs]) for role in own}
    return *alive_and_read, *differences(log_probs), lists.units.check, comparable


def _read_served(
    run: Session,
    given: Mapping[str, ModelLike],
    lists: "Mapping[str, Corpus]",
    remote: RemoteOptions,
    outputs: "CachedOutputs",
) -> "Readings":
    """Statistics if BEFORE, AFTER or both are served."""
    from vestige.attacks.texts.served_texts import ServedTexts
    from vestige.models.endpoint_address import is_endpoint

    if "retrained" in given:
        raise ValueError("`retrained` does not go with a served model: pass folders of all three")
    served, other = ("after", "before") if is_endpoint(given["after"]) else ("before", "after")
    models = ServedTexts.open(given[served], given[other], remote, device=run.device)
    read = models.readings(lists, outputs)
    target: Any = models.recorded["target"]
    run.models |= {served: {**target, **models.spent}, other: models.recorded["base"]}
    roles = {"target": served, "base": other}
    return replace(
        read,
        statistics={
            name: {roles[role]: one for role, one in own.items()}
            for name, own in read.statistics.items()
        },
    )
