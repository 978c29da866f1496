"""Whether a model still knows texts that were deleted from it: `vestige verify-deletion`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vestige import _validate
from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
from vestige.workflows.endpoint_settings import EndpointSettings
from vestige.workflows.options import (
    DATA,
    CorpusLike,
    DataFormat,
    Device,
    Directory,
    Flag,
    Group,
    Help,
    Limit,
    Metavar,
    ModelLike,
    Seed,
    TextColumn,
)

if TYPE_CHECKING:
    from vestige.attacks.texts.deletion import Deletion, Knowledge
    from vestige.attacks.texts.token_statistics import TokenStatistics
    from vestige.claims import Check
    from vestige.data.corpus import Corpus
    from vestige.workflows.listed_texts import ListedTexts

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
    author: Annotated[str | None, DATA, Help("The column or field with the author.")] = None,
    limit: Limit = None,
    seed: Seed = 0,
    device: Device = "auto",
    endpoint: EndpointSettings = EndpointSettings(),
    monitor: Monitor = SILENT,
) -> "Deletion":
    """Test whether a model still knows texts that were deleted from its training data.

    `after` is compared on the deleted texts and on a reference, texts of the same kind that it
    never read: a model that was trained again without the deleted texts knows both equally well.
    The p-value is how often it would seem to know the deleted ones better by coincidence. What is
    left is reported as a share of what `before` knew. A model that knows the deleted texts *less*
    than the reference, and less than `before` did, reveals them as well: that is suppression, not
    deletion.

    With `retrained`, a model that was trained as `before` was but without these texts, how hard
    each text is no longer matters, and far smaller remains are detected.

    Near-duplicates count as one text. With `author`, all texts of an author count as one.

    Of a served model, only tokens whose log-probability it returns are compared.

    `vestige diff BEFORE AFTER --removed` searches for what the two models reveal together, which
    neither does alone.

    The models' outputs are cached in `statistics`, which `vestige audit-texts` reads too: the same
    command resumes where it was interrupted. Both directories hold unredacted texts.

    Args:
        before: The model that was trained on the deleted texts; or an endpoint, openai:URL#MODEL,
            which must echo the log-probabilities of a prompt.
        after: The model that they were deleted from, likewise.
        deleted: The deleted texts, a text a row.
        reference: Texts of the same kind that no model here was trained on.
        retrained: A model that was trained without the deleted texts and the reference.
        out: A directory to make, for `vestige report`. Python may leave it out.
        rate: Level of the verdict: how often it is wrong about texts that were never read.
        statistics: Where token statistics are cached. Default: next to `out`, named after it.

    Returns:
        The verdict, its p-value, and what is left of what was known.

    Raises:
        ValueError: a setting is out of range.
        VestigeError: something cannot be read, the two lists share texts or authors, or two models
            do not share a vocabulary.

    Examples:
        vestige verify-deletion before after --deleted gone.jsonl --reference never.jsonl --out deletion

        vestige verify-deletion before after --deleted gone.jsonl --reference never.jsonl --retrained anew --out deletion

        vestige diff before after --removed --out pair
    """  # noqa: E501
    import numpy as np

    from vestige import results
    from vestige.attacks.texts.deletion import verify
    from vestige.models.endpoint_address import is_endpoint
    from vestige.models.provenance import of_corpus
    from vestige.workflows.listed_texts import listed_texts

    call = Call.of(verify_deletion, locals())
    _validate.open_fraction(**{"`rate`": rate})
    if out is not None:
        results.require_new(Path(out))
    given = {"deleted": deleted, "reference": reference}
    lists = listed_texts(given, author=author, format=format, text=text, limit=limit)
    roles = {"before": before, "after": after}
    if retrained is not None:
        roles["retrained"] = retrained
    folder = statistics or (None if out is None else f"{fspath(out)}.statistics")
    kept = None if folder is None else Path(folder)
    outputs: _Outputs
    if any(map(is_endpoint, roles.values())):
        outputs = _of_servers(roles, lists.compared, endpoint, kept, device, monitor)
    else:
        endpoint.refuse_for_folder()
        outputs = _of_folders(roles, lists.compared, kept, device, monitor)
    known, checks = _compared(outputs, lists, seed=seed)
    found = verify(
        known["before"], known["after"], retrained=known.get("retrained"), checks=checks,
        rate=rate, seed=seed,
    )  # fmt: skip
    found = replace(
        found,
        excerpts=tuple(one[:EXCERPT] for one in lists.compared["deleted"]),
        tokens=tuple(np.diff(outputs.statistics["deleted"]["after"].offsets).tolist()),
    )
    found = call.record(
        found,
        configuration={"rate": rate, "seconds": call.seconds},
        seed=seed,
        models=outputs.recorded,
        data={name: of_corpus(given[name], corpus) for name, corpus in lists.read.items()},
    )
    if out is not None:
        results.save(found, Path(out), run=found.record)
    return found


@dataclass(frozen=True)
class _Outputs:
    """What the models output.

    Attributes:
        statistics: by list, then by role of the model.
        read: tokens of the deleted texts that were scored, and all that they have.
        recorded: what a run records of the models.
    """

    statistics: "Mapping[str, Mapping[str, TokenStatistics]]"
    read: tuple[int, int]
    recorded: dict[str, Any]


def _compared(
    outputs: _Outputs, lists: "ListedTexts", *, seed: int
) -> "tuple[dict[str, Knowledge], tuple[Check, ...]]":
    """What each model knows, and all checks but "powerful"."""
    import numpy as np

    from vestige.attacks.texts.deletion import Knowledge, compared_tokens, differences
    from vestige.attacks.texts.list_checks import comparable_texts, model_checks

    own, rest = (outputs.statistics[name] for name in ("deleted", "reference"))
    units = lists.units.audited, lists.units.reference
    known = {role: Knowledge.of(own[role], rest[role], units) for role in own}
    names = {"before": "BEFORE", "after": "AFTER", "retrained": "the retrained model"}
    scored, every = outputs.read
    alive_and_read = model_checks(
        {names[role]: (own[role], rest[role]) for role in own},
        read=(min(scored, compared_tokens(own["after"], rest["after"], units)), every),
    )
    other = known.get("retrained")
    comparable = comparable_texts(
        list(lists.compared["deleted"]),
        list(lists.compared["reference"]),
        units=units,
        base=(other.deleted, other.reference) if other and other.finite else None,
        who="the retrained model",
        seed=seed,
    )
    log_probs = {role: np.concatenate([own[role].log_probs, rest[role].log_probs]) for role in own}
    return known, (*alive_and_read, *differences(log_probs), lists.units.check, comparable)


def _of_folders(
    roles: Mapping[str, ModelLike],
    lists: "Mapping[str, Corpus]",
    folder: Path | None,
    device: str,
    monitor: Monitor,
) -> _Outputs:
    """What models that are read output."""
    from vestige.workflows.text_models import TextModels

    models = TextModels.several(roles, device=device, monitor=monitor)
    statistics = {
        name: models.statistics(rows, folder, of=f"the {name} texts", monitor=monitor)
        for name, rows in models.encoded_lists(lists).items()
    }
    return _Outputs(statistics, models.read_of(list(lists["deleted"])), models.recorded)


def _of_servers(
    roles: Mapping[str, ModelLike],
    lists: "Mapping[str, Corpus]",
    settings: EndpointSettings,
    folder: Path | None,
    device: str,
    monitor: Monitor,
) -> _Outputs:
    """What BEFORE and AFTER output where one of them or both are served."""
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
    statistics = {
        name: {names[role]: one for role, one in own.items()} for name, own in asked.said.items()
    }
    return _Outputs(statistics, asked.read, recorded)
