"""Membership of texts: which were in the training data, and how many at least and at most."""

from collections.abc import Mapping
from contextlib import ExitStack
from statistics import median
from typing import Any

from vestige.arguments import CorpusLike, ModelLike, PathTo
from vestige.audits.membership.options import ShadowOptions
from vestige.audits.membership.scored_texts import AuditedTexts, hold_out, score_name, score_texts
from vestige.audits.membership.shadows import shadow_folder, shadow_models
from vestige.audits.membership.text_audit import audit_scores, ranked
from vestige.audits.membership.text_scores import loss
from vestige.claims import Check
from vestige.claims.text_lists import (
    comparable_texts,
    independent_texts,
    model_checks,
    require_finite,
    require_lists,
)
from vestige.data.corpus import Corpus
from vestige.errors import DataError
from vestige.models.cached_outputs import Nodes, cached_outputs
from vestige.models.remote.options import RemoteOptions, is_callable_name, is_endpoint
from vestige.models.served_texts import ServedTexts
from vestige.models.text_models import TextModels
from vestige.results import Result
from vestige.session import Session

EXCERPT = 200
"""Characters of an audited text that a run keeps."""

_NAMES = {"target": "the model", "base": "the base"}
"""Models in a sentence, by role."""


def texts_membership(
    run: Session,
    model: Any,
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
    _reject_function(model)
    nodes = None if cluster is None else Nodes(cluster, run.device)
    texts, numbers, independent = _read_lists(run, lists, author, columns)
    shadow_texts = texts.pop("shadow_texts", None)
    models = _models(run, model, base, remote, nodes)
    name = run.chosen(score=score_name(score, models, shadows=shadow_texts is not None))
    texts["reference"], held_out = hold_out(name, texts["reference"], seed=run.seed)
    with ExitStack() as stack:
        folder = run.beside_out("statistics", statistics)
        outputs = stack.enter_context(cached_outputs(folder, run.monitor, nodes))
        local = models.local if isinstance(models, ServedTexts) else models
        audited = AuditedTexts(texts, models.readings(texts, outputs), local, outputs)
        read = audited.readings.by_model().items()
        require_finite({_NAMES[who]: [one.log_probs for one in own] for who, own in read})
        trained = None
        if shadow_texts is not None:
            trained = shadow_texts, shadow_models(
                None if is_endpoint(model) else model, base, shadow_texts, shadows,
                folder=stack.enter_context(shadow_folder(run, shadows)),
                seed=run.seed, device=run.device, monitor=run.monitor,
            )  # fmt: skip
        scores = score_texts(name, audited, held_out=held_out, shadows=trained)
    run.models |= models.recorded
    lengths = {role: audited.lengths(role) for role in ("texts", "reference")}
    medians = {f"{role}_tokens": median(own) for role, own in lengths.items()}
    return audit_scores(
        scores["texts"],
        scores["reference"],
        scores.get("used"),
        checks=(*_checks(audited, alpha=alpha, seed=run.seed), independent),
        based="base" in models.models,
        rate=alpha,
        seed=run.seed,
        more_columns={
            "number": numbers,
            "length": lengths["texts"],
            "text": [one[:EXCERPT] for one in texts["texts"]],
        },
        facts={
            "score": name,
            **medians,
            **(models.spent if isinstance(models, ServedTexts) else {}),
        },
    )


def _reject_function(model: Any) -> None:
    """Raise ValueError for a function, which ranks words and shows no log-probabilities."""
    is_name = isinstance(model, str) and is_callable_name(model)
    if is_name or (callable(model) and not hasattr(model, "vocabulary")):
        raise ValueError("`model` is a function, which needs `unit` user")


def _read_lists(
    run: Session,
    given: Mapping[str, CorpusLike | None],
    author: str | None,
    columns: Mapping[str, Any],
) -> tuple[dict[str, Corpus], list[int], Check]:
    """The lists without near-duplicates, in one or in two of them; the numbers of the audited
    texts in their file, from 1; and the check "independent"."""
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
    kept, independent = independent_texts(lists)
    for role, corpus in lists.items():
        if copies := len(corpus) - len(kept[role]):
            run.log(f"`{role}`: {copies:,} near-duplicates left out.")
        if not len(kept[role]):
            raise DataError(
                f"all texts of `{role}` are near-duplicates of texts in another list",
                remedy="Pass other texts.",
            )
    left = {role: corpus.take(kept[role]) for role, corpus in lists.items()}
    return left, (kept["texts"] + 1).tolist(), independent


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


def _checks(audited: AuditedTexts, *, alpha: float, seed: int) -> tuple[Check, ...]:
    """The checks of models, of what they read, and of other differences between the lists."""
    pair = audited.readings.by_model("texts", "reference")
    base = None
    if based := "base" in pair:
        scores = audited.scored(lambda target, base: loss(base))
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
