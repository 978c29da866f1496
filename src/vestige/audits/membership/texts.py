"""Membership of texts: which were in the training data, and how many at least and at most."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vestige.arguments import CorpusLike, ModelLike, PathTo
from vestige.attacks.texts.cached_outputs import CachedOutputs, cached_outputs
from vestige.attacks.texts.list_checks import (
    comparable_texts,
    independent_texts,
    model_checks,
    require_finite,
)
from vestige.attacks.texts.lists import require_lists
from vestige.attacks.texts.readings import Readings
from vestige.attacks.texts.scores import SCORES
from vestige.attacks.texts.served_texts import ServedTexts
from vestige.attacks.texts.statistics_cache import Nodes
from vestige.attacks.texts.text_audit import audit_scores, ranked
from vestige.attacks.texts.text_models import TextModels
from vestige.audits.membership.audited_texts import AuditedTexts
from vestige.audits.membership.shadow_options import ShadowOptions
from vestige.audits.membership.text_scores import (
    SERVED,
    check_score_inputs,
    default_score,
    hold_out,
    score_texts,
)
from vestige.audits.membership.text_shadows import shadow_models
from vestige.claims import Check
from vestige.data.corpus import Corpus
from vestige.errors import DataError
from vestige.models.endpoint_address import is_endpoint
from vestige.models.remote_options import RemoteOptions
from vestige.parallel import connected
from vestige.results import Result
from vestige.session import Session

EXCERPT = 200
"""Characters of an audited text that a run keeps."""

_NAMES = {"target": "the model", "base": "the base"}
"""Models in a sentence, by role."""


@dataclass(frozen=True)
class _Lists:
    """The lists of texts, by role, without near-duplicates.

    Attributes:
        texts: by role.
        numbers: of the audited texts in their file, from 1.
        independent: the check.
    """

    texts: dict[str, Corpus]
    numbers: tuple[int, ...]
    independent: Check


def texts_membership(
    run: Session,
    model: ModelLike,
    lists: Mapping[str, CorpusLike | None],
    *,
    base: ModelLike | None,
    score: str | None,
    alpha: float,
    shadows: ShadowOptions,
    remote: RemoteOptions,
    statistics: PathTo | None,
    cluster: str | None,
    author: str | None,
    columns: Mapping[str, Any],
) -> Result:
    """The audit of texts; see `membership`.

    Args:
        lists: "texts", "reference", "used" and "shadow_texts", by role.
        columns: of the data, as `Session.corpus` takes them.
    """
    nodes = None if cluster is None else Nodes(cluster, run.device)
    found = _read_lists(run, lists, author, columns)
    texts = dict(found.texts)
    shadow_texts = texts.pop("shadow_texts", None)
    models = _models(run, model, base, remote, nodes)
    name = score or default_score(models.models, shadows=shadow_texts is not None)
    check_score_inputs(name, models.models, shadows=shadow_texts is not None)
    run.chosen(score=name)
    with cached_outputs(_beside(run, "statistics", statistics), run.monitor, nodes) as outputs:
        held_out = None
        if isinstance(models, ServedTexts):
            _require_served(name, models)
        else:
            texts["reference"], held_out = hold_out(name, texts["reference"], seed=run.seed)
        audited = _audited(models, texts, outputs)
        require_finite({_NAMES[who]: own for who, own in audited.readings.by_model().items()})
        with _shadows(run, model, base, shadow_texts, shadows) as trained:
            scores = score_texts(name, audited, held_out=held_out, shadows=trained)
    run.models |= models.recorded
    result = audit_scores(
        scores["texts"], scores["reference"], scores.get("used"), rate=alpha, seed=run.seed
    )
    spent = models.spent if isinstance(models, ServedTexts) else {}
    return Result.of(
        replace(
            result,
            based="base" in models.models,
            checks=(*_checks(audited, alpha=alpha, seed=run.seed), found.independent),
            numbers=found.numbers,
            tokens=tuple(audited.lengths("texts")),
            excerpts=tuple(one[:EXCERPT] for one in texts["texts"]),
            statistics={"score": name, **audited.median_lengths(), **spent},
        )
    )


def _read_lists(
    run: Session,
    given: Mapping[str, CorpusLike | None],
    author: str | None,
    columns: Mapping[str, Any],
) -> _Lists:
    """The lists without near-duplicates, in one or in two of them."""
    lists = {
        # Shadow models are trained on single texts.
        role: run.corpus(role, data, user=None if role == "shadow_texts" else author, **columns)
        for role, data in given.items()
        if data is not None
    }
    require_lists(lists)
    by_author = all(lists[role].users is not None for role in ("texts", "reference"))
    if by_author and "used" in lists and lists["used"].users is None:
        raise DataError(
            "`used` has no authors, but `texts` and `reference` have",
            remedy="Name the author of each of its texts, or of no list.",
        )
    counted = independent_texts(
        {role: list(corpus) for role, corpus in lists.items()},
        {role: corpus.users for role, corpus in lists.items()},
    )
    kept = {role: corpus.take(counted.kept[role]) for role, corpus in lists.items()}
    for role, corpus in lists.items():
        if copies := len(corpus) - len(kept[role]):
            run.log(f"`{role}`: {copies:,} near-duplicates left out.")
        if not len(kept[role]):
            raise DataError(
                f"all texts of `{role}` are near-duplicates of texts in another list",
                remedy="Pass other texts.",
            )
    return _Lists(kept, tuple((counted.kept["texts"] + 1).tolist()), counted.check)


def _models(
    run: Session,
    model: ModelLike,
    base: ModelLike | None,
    remote: RemoteOptions,
    nodes: Nodes | None,
) -> TextModels | ServedTexts:
    """The target and its base; no server is called yet."""
    if is_endpoint(model):
        if nodes is not None:
            raise ValueError("`cluster` does not go with a served model")
        return ServedTexts.open(model, base, remote, device=run.device)
    remote.reject_for_local()
    device = "cpu" if nodes else run.device
    return TextModels.with_base(model, base, device=device, monitor=run.monitor)


def _require_served(score: str, models: ServedTexts) -> None:
    """Refuse a score that needs more than a server shows."""
    if score == "learned" and models.local is None:
        raise DataError(
            "`score` learned trains shadow models, and a served base cannot be trained",
            remedy="Pass the folder of the base.",
        )
    if score not in SERVED:
        raise DataError(
            f"`score` {score} needs more than {models.addresses['target']} shows: "
            "log-probabilities of tokens and the most probable ones",
            remedy=f"Choose {', '.join(SERVED)}, or pass the model's folder.",
        )


def _audited(
    models: TextModels | ServedTexts, texts: Mapping[str, Corpus], outputs: CachedOutputs
) -> AuditedTexts:
    """The texts with their statistics."""
    if isinstance(models, ServedTexts):
        return AuditedTexts(texts, models.readings(texts, outputs), models.local_base, outputs)
    nodes = outputs.nodes
    with nullcontext() if nodes is None else connected(nodes.address):
        readings: Readings = models.readings(texts, outputs)
    return AuditedTexts(texts, readings, models, outputs)


@contextmanager
def _shadows(
    run: Session,
    model: ModelLike,
    base: ModelLike | None,
    texts: Corpus | None,
    options: ShadowOptions,
) -> Iterator[Any]:
    """The shadow texts and the shadow models, in a folder that is given, beside `out` or gone."""
    if texts is None:
        yield None
        return
    given = _beside(run, "shadows", options.shadow_dir)
    with nullcontext(given) if given else TemporaryDirectory() as folder:
        yield texts, shadow_models(
            None if is_endpoint(model) else model, base, texts, options,
            folder=Path(folder), seed=run.seed, device=run.device, monitor=run.monitor,
        )  # fmt: skip


def _beside(run: Session, name: str, given: PathTo | None) -> Path | None:
    """A given folder, or the one beside `out` that is named after it."""
    if given is not None:
        return Path(given)
    return None if run.out is None else run.out.with_name(f"{run.out.name}.{name}")


def _checks(audited: AuditedTexts, *, alpha: float, seed: int) -> tuple[Check, ...]:
    """The checks of models, of what they read, and of other differences between the lists."""
    pair = audited.readings.by_model("texts", "reference")
    base = None
    if based := "base" in pair:
        scores = audited.base_as_target().scored(SCORES["loss"])
        base = ranked(scores["texts"], scores["reference"], rate=alpha)
    return (
        *model_checks(
            {_NAMES[who]: own for who, own in pair.items()},
            read=audited.readings.read,
            pair=("the base", "the model") if based else None,
        ),
        comparable_texts(
            list(audited.lists["texts"]),
            list(audited.lists["reference"]),
            units=(audited.units("texts"), audited.units("reference")),
            base=base,
            seed=seed,
        ),
    )
