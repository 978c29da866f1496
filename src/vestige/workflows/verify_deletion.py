"""Whether a model still knows texts that were deleted from it: `vestige verify-deletion`."""

from collections.abc import Mapping
from dataclasses import replace
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vestige import _validate
from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
from vestige.workflows.endpoint_settings import EndpointSettings
from vestige.workflows.options import (
    CorpusLike,
    DataFormat,
    Device,
    Directory,
    Flag,
    Group,
    Limit,
    Metavar,
    ModelLike,
    Seed,
    TextColumn,
)

if TYPE_CHECKING:
    from vestige.attacks.texts.deletion import Deletion
    from vestige.attacks.texts.token_statistics import TokenStatistics
    from vestige.data.corpus import Corpus

OUTPUT = Group("Output")
EXCERPT = 200
"""Characters of a deleted text that a run keeps."""


def verify_deletion(
    before: ModelLike,
    after: ModelLike,
    deleted: Annotated[CorpusLike, Flag("--deleted"), Metavar("DATA")],
    *,
    reference: Annotated[CorpusLike, Metavar("DATA")],
    retrained: Annotated[ModelLike | None, Metavar("MODEL")] = None,
    out: Annotated[Directory | None, OUTPUT] = None,
    rate: float = 0.05,
    statistics: Annotated[Directory | None, OUTPUT] = None,
    format: DataFormat = "auto",
    text: TextColumn = "text",
    limit: Limit = None,
    seed: Seed = 0,
    device: Device = "auto",
    endpoint: EndpointSettings = EndpointSettings(),
    monitor: Monitor = SILENT,
) -> "Deletion":
    """Say whether a model still knows texts that were deleted from its training.

    `after` is compared on the deleted texts and on texts of the same kind that it never saw: a
    model that was trained anew without them knows both alike. The p-value is how often it would
    seem to know the deleted ones better by chance. What is left is told as a share of what
    `before` knew. Texts that `after` knows *less* than others are told apart as well: that is
    suppression, not deletion.

    With `retrained`, a model that was trained as `before` was but without these texts, how hard
    each text is falls away, and far smaller remains are seen.

    Of a model that is served, only tokens count of which it tells the log-probability.

    What the two models reveal together, which neither does alone, `vestige diff BEFORE AFTER
    --removed` looks for.

    What the models say of each text is kept in `statistics`, which `vestige audit-texts` reads too:
    the same command goes on where it was interrupted. Both directories hold texts in the clear.

    Args:
        before: The model that was trained on the deleted texts; or an endpoint, openai:URL#MODEL,
            which must echo the log-probabilities of a prompt.
        after: The model that they were deleted from, likewise.
        deleted: What was deleted, a text a row.
        reference: Texts of the same kind that no model here was trained on.
        retrained: A model that was trained without the deleted texts and the reference.
        out: A directory to make, for `vestige report`. Python may leave it out.
        rate: Level of the verdict: how often it errs where the texts were never seen.
        statistics: Where token statistics are kept. Default: beside `out`, named after it.

    Returns:
        The verdict, its p-value, and what is left of what was known.

    Raises:
        ValueError: a setting is out of range.
        VestigeError: something cannot be read, there are too few texts, texts stand in both files,
            or two models do not share a vocabulary.

    Examples:
        vestige verify-deletion before after --deleted gone.jsonl --reference never.jsonl --out deletion

        vestige verify-deletion before after --deleted gone.jsonl --reference never.jsonl --retrained anew --out deletion

        vestige diff before after --removed --out pair
    """  # noqa: E501
    import numpy as np

    from vestige import results
    from vestige.attacks.texts.deletion import Knowledge, verify
    from vestige.attacks.texts.shift import word_shift
    from vestige.models.endpoint_address import is_endpoint
    from vestige.workflows.provenance import of_corpus
    from vestige.workflows.text_lists import read_lists
    from vestige.workflows.text_models import TextModels

    call = Call.of(verify_deletion, locals())
    _validate.open_fraction(**{"`rate`": rate})
    if out is not None:
        results.require_new(Path(out))
    given = {"deleted": deleted, "reference": reference}
    lists = read_lists(given, format=format, text=text, limit=limit)
    roles = {"before": before, "after": after}
    if retrained is not None:
        roles["retrained"] = retrained
    folder = statistics or (None if out is None else f"{fspath(out)}.statistics")
    kept = None if folder is None else Path(folder)
    if any(map(is_endpoint, roles.values())):
        said, recorded = _said_by_servers(roles, lists, endpoint, kept, device, monitor)
    else:
        endpoint.refuse_for_folder()
        models = TextModels.several(roles, device=device, monitor=monitor)
        recorded = models.recorded
        said = {
            name: models.statistics(rows, kept, of=f"the {name} texts", monitor=monitor)
            for name, rows in models.encoded_lists(lists).items()
        }
    known = {role: Knowledge.of(said["deleted"][role], said["reference"][role]) for role in roles}
    found = verify(
        known["before"], known["after"], retrained=known.get("retrained"), rate=rate, seed=seed
    )
    found = replace(
        found,
        shift=word_shift(list(lists["deleted"]), list(lists["reference"]), seed=seed),
        excerpts=tuple(one[:EXCERPT] for one in lists["deleted"]),
        tokens=tuple(np.diff(said["deleted"]["after"].offsets).tolist()),
    )
    found = call.record(
        found,
        configuration={"rate": rate, "seconds": call.seconds},
        seed=seed,
        models=recorded,
        data={name: of_corpus(given[name], corpus) for name, corpus in lists.items()},
    )
    if out is not None:
        results.save(found, Path(out), run=found.record)
    return found


def _said_by_servers(
    roles: Mapping[str, ModelLike],
    lists: "Mapping[str, Corpus]",
    settings: EndpointSettings,
    folder: Path | None,
    device: str,
    monitor: Monitor,
) -> "tuple[Mapping[str, Mapping[str, TokenStatistics]], dict[str, Any]]":
    """What BEFORE and AFTER say where one of them or both are served, and what a run records."""
    from vestige.models.endpoint_address import is_endpoint
    from vestige.workflows.endpoint_texts import ServedTexts

    if "retrained" in roles:
        raise ValueError("`retrained` must be left out with an endpoint: give folders of all three")
    served, other = ("after", "before") if is_endpoint(roles["after"]) else ("before", "after")
    models = ServedTexts.open(roles[served], roles[other], settings, device=device)
    asked = models.asked(lists, folder, monitor)
    names = {"target": served, "base": other}
    of_target: Any = models.recorded["target"]
    recorded = {served: {**of_target, **models.spent}, other: models.recorded["base"]}
    said = {
        name: {names[role]: one for role, one in own.items()} for name, own in asked.said.items()
    }
    return said, recorded
