"""Membership audit of texts: which were in the training data, and how many at least and at most."""

from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from os import fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from vestige import _validate
from vestige._markers import Choices
from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
from vestige.workflows.endpoint_settings import EndpointSettings
from vestige.workflows.options import (
    DATA,
    CorpusLike,
    DataFormat,
    DeviceOrSeveral,
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
from vestige.workflows.text_scores import OTHERS
from vestige.workflows.text_shadows import ShadowFineTunes

if TYPE_CHECKING:
    from vestige.attacks.texts.text_audit import TextAudit
    from vestige.claims import Check
    from vestige.data.corpus import Corpus
    from vestige.workflows.asked_texts import AskedTexts
    from vestige.workflows.endpoint_texts import ServedTexts
    from vestige.workflows.text_models import TextModels

OUTPUT, CLAIMS, SHADOWS = Group("Output"), Group("Claims"), Group("Shadow fine-tunes")


def _scores() -> tuple[str, ...]:
    from vestige.attacks.texts.scores import SCORES

    return tuple(sorted((*SCORES.names(), *OTHERS)))


def audit_texts(
    model: ModelLike,
    texts: Annotated[CorpusLike, Flag("--texts"), Metavar("DATA")],
    *,
    reference: Annotated[CorpusLike, Metavar("DATA")],
    out: Annotated[Directory | None, OUTPUT] = None,
    base: Annotated[ModelLike | None, Metavar("MODEL")] = None,
    used: Annotated[CorpusLike | None, Metavar("DATA")] = None,
    score: Annotated[str | None, Choices(_scores), CLAIMS] = None,
    shadow_texts: Annotated[CorpusLike | None, Metavar("DATA"), SHADOWS] = None,
    fine_tunes: ShadowFineTunes = ShadowFineTunes(),
    rate: Annotated[float, CLAIMS] = 0.05,
    statistics: Annotated[Directory | None, OUTPUT] = None,
    format: DataFormat = "auto",
    text: TextColumn = "text",
    author: Annotated[str | None, DATA, Help("The column or field with the author.")] = None,
    limit: Limit = None,
    seed: Seed = 0,
    device: DeviceOrSeveral = "auto",
    cluster: Annotated[str | None, Metavar("ADDRESS")] = None,
    endpoint: EndpointSettings = EndpointSettings(),
    monitor: Monitor = SILENT,
) -> "TextAudit":
    """Say which texts a model was trained on, and how many at least and at most.

    Every text is scored by how well the model knows it, and compared with texts that were never in
    the training data, over as many tokens: the p-value is how often one of these scores as high.
    `reference` must be of the same kind and time as `texts`, or the difference is taken for memory.
    Words, case, script and length are compared, and where they differ, nothing is decided. 19 texts
    of reference are needed for a p-value of 0.05, some hundred are better.

    With `base`, the model before it was trained on such text, scores tell far more, and the base,
    which has seen none of the texts, is a second check that the comparison is fair.

    That a list was *not* used, or no more than a part of it, is a claim that takes texts that
    certainly were: with `used` there is an upper bound on the share used, without it there is none.

    What the model says of each text is kept in `statistics`: the same command goes on where it was
    interrupted, and another audit asks nothing again. Both directories hold texts in the clear.

    The strongest score is `learnt`, from fine-tunes of the base on halves of `shadow_texts`, which
    are trained as the model was as far as that is known. Without such texts `calibrated` learns on
    a third of the reference what the gain of an unseen token is, and compares with the rest.

    Of near-duplicates only the first counts, and none that is on two lists counts as reference.
    With `author`, whole authors are compared, since texts of one are alike, and the bounds count
    authors, of whom one text each is drawn, on every list.

    The verdict is "leak", "no leak shown" or "undecided". It needs eight texts or authors on each
    side, models that predict text, and texts that differ from the reference in nothing else. "No
    leak shown" excludes a list whose texts outrank those of the reference in 65 of 100 pairs.

    Args:
        model: A model or training directory, a Hugging Face model, or an adapter, whose base need
            not be given; or an endpoint, openai:URL#MODEL.
        texts: What may have been trained on, a text a row.
        reference: Texts that are known not to be in the training data, of the same kind.
        out: A directory to make, for `vestige report`. Python may leave it out.
        base: The model before it was trained on such texts.
        used: Texts that are known to have been in the training data, as the audited would have
            been: as often, and of the same kind.
        score: How a text is scored. Default: `log-ratio` to the base, without a base `loss`; with
            `shadow_texts` `learnt`.
        shadow_texts: Texts of the same kind that are neither audited nor in the reference, nor were
            in the training data: shadow fine-tunes learn halves of them.
        rate: Limit of errors: the share of wrong ones among texts that are named, and the chance
            that another claim is wrong.
        statistics: Where token statistics are kept. Default: beside `out`, named after it.
        cluster: Ask the models on the Ray cluster whose head is there, HOST:PORT or `auto`, a core
            for each call and, with `device` cuda, a GPU.

    Returns:
        The audited texts with their p-values, and what can be claimed of all of them.

    Raises:
        ValueError: a setting is out of range, or does not go with another.
        VestigeError: something cannot be read, or the reference is too small, or holds texts that
            are audited.

    Examples:
        vestige audit-texts fine-tuned --base base --texts mine.jsonl --reference never.jsonl --out audit

        vestige audit-texts my-lora-adapter --texts mine.jsonl --reference never.jsonl --used known.jsonl --out audit

        vestige report audit --out page.html
    """  # noqa: E501
    from vestige import results
    from vestige.attacks.texts.list_checks import require_finite
    from vestige.attacks.texts.statistics_cache import Nodes
    from vestige.attacks.texts.text_audit import audit_scores
    from vestige.models.endpoint_address import is_endpoint
    from vestige.models.provenance import of_corpus
    from vestige.parallel import connected
    from vestige.workflows.asked_texts import AskedTexts
    from vestige.workflows.endpoint_texts import ServedTexts
    from vestige.workflows.text_models import TextModels
    from vestige.workflows.text_scores import require_what_it_compares, scored, set_apart
    from vestige.workflows.text_shadows import shadow_fine_tunes

    call = Call.of(audit_texts, locals())
    _validate.open_fraction(**{"`rate`": rate})
    nodes = None if cluster is None else Nodes(cluster, device)
    if out is not None:
        results.require_new(fspath(out))
    wanted = {"texts": texts, "used": used, "reference": reference, "shadow_texts": shadow_texts}
    given = {role: data for role, data in wanted.items() if data is not None}
    asked_of = _read(given, monitor, author, format=format, text=text, limit=limit)
    lists = dict(asked_of.read)
    others = lists.pop("shadow_texts", None)
    models: TextModels | ServedTexts
    if is_endpoint(model):
        if nodes is not None:
            raise ValueError(
                "`cluster` must be left out with an endpoint, which is asked over HTTP"
            )
        models = ServedTexts.open(model, base, endpoint, device=device)
    else:
        endpoint.refuse_for_folder()
        models = TextModels.read(model, base, device="cpu" if nodes else device, monitor=monitor)
    name = score or _usual_score(models, others)
    require_what_it_compares(name, models, others)
    kept = _beside(out, "statistics", statistics)
    if isinstance(models, ServedTexts):
        models.require(name)
        compared, apart = lists["reference"], None
        asked = models.asked(lists, kept, monitor)
    else:
        compared, apart = set_apart(name, models, lists["reference"], seed=seed)
        with connected(cluster) if cluster else nullcontext():
            asked = AskedTexts.of(models, {**lists, "reference": compared}, kept, monitor, nodes)
    require_finite({_WHO[who]: parts for who, parts in asked.by_model().items()})
    with ExitStack() as stack:
        shadows = None
        if others is not None:
            folder = _beside(out, "shadows", fine_tunes.shadow_dir)
            shadows = others, shadow_fine_tunes(
                None if isinstance(models, ServedTexts) else model, base, others, fine_tunes,
                folder=folder or Path(stack.enter_context(TemporaryDirectory())),
                seed=seed, device=device, monitor=monitor,
            )  # fmt: skip
        of_texts = scored(name, asked, apart=apart, shadows=shadows, seed=seed)
    found = audit_scores(
        of_texts["texts"], of_texts["reference"], of_texts.get("used"), rate=rate, seed=seed
    )
    found = replace(
        found,
        based="base" in models.models,
        checks=(*_checks(asked, rate=rate, seed=seed), asked_of.independent),
        numbers=asked_of.numbers,
        tokens=tuple(asked.lengths("texts")),
        excerpts=tuple(one[:EXCERPT] for one in lists["texts"]),
        statistics={
            "score": name,
            **asked.summary(),
            **(models.spent if isinstance(models, ServedTexts) else {}),
        },
    )
    found = call.record(
        found,
        configuration={"score": name, "rate": rate, "seconds": call.seconds},
        seed=seed,
        models=models.recorded,
        data={role: of_corpus(given[role], one) for role, one in asked_of.read.items()},
    )
    if out is not None:
        results.save(found, fspath(out), run=found.record)
    return found


EXCERPT = 200
"""Characters of an audited text that a run keeps."""


def _usual_score(models: "TextModels | ServedTexts", others: "Corpus | None") -> str:
    if others is not None:
        return "learnt"
    return "log-ratio" if "base" in models.models else "loss"


def _beside(out: Directory | None, what: str, told: Directory | None) -> Path | None:
    """A directory that was told, or beside the output one and named after it."""
    if told is not None:
        return Path(told)
    return None if out is None else Path(f"{fspath(out)}.{what}")


_WHO = {"target": "the model", "base": "the base"}
"""Models in a sentence, by role."""


def _checks(asked: "AskedTexts", *, rate: float, seed: int) -> "tuple[Check, ...]":
    """The checks of models, of what they read, and of what else tells texts from the reference."""
    from vestige.attacks.texts.list_checks import comparable_texts, model_checks
    from vestige.attacks.texts.scores import SCORES
    from vestige.attacks.texts.text_audit import ranked

    said = {_WHO[who]: parts for who, parts in asked.by_model("texts", "reference").items()}
    base = None
    if based := "base" in asked.said["texts"]:
        alone = asked.of_base().scored(SCORES["loss"])
        base = ranked(alone["texts"], alone["reference"], rate=rate)
    return (
        *model_checks(
            said, read=asked.read, pair=("the base", "the model") if based else None
        ),
        comparable_texts(
            list(asked.lists["texts"]), list(asked.lists["reference"]),
            units=(asked.units("texts"), asked.units("reference")), base=base, seed=seed,
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class _Lists:
    """The lists of texts, by role.

    Attributes:
        read: of near-duplicates the first.
        numbers: of the audited texts in what was given, from 1.
        independent: the check.
    """

    read: "dict[str, Corpus]"
    numbers: tuple[int, ...]
    independent: "Check"


def _read(
    given: Mapping[str, CorpusLike], monitor: Monitor, user: str | None, **columns: Any
) -> _Lists:
    """The lists without near-duplicates, in one or in two of them."""
    from vestige.attacks.texts.list_checks import independent_texts
    from vestige.errors import DataError
    from vestige.workflows.inputs import open_corpus
    from vestige.workflows.text_lists import read_lists

    # Shadows learn from single texts.
    whole = {
        role: open_corpus(data, user=None if role == "shadow_texts" else user, **columns)
        for role, data in given.items()
    }
    corpora = read_lists(whole)
    by_author = all(corpora[role].users is not None for role in ("texts", "reference"))
    if by_author and "used" in corpora and corpora["used"].users is None:
        raise DataError(
            "`used` names no authors, and `texts` and `reference` do",
            remedy="Name the author of each of its texts, or of no list.",
        )
    counted = independent_texts(
        {role: list(corpus) for role, corpus in corpora.items()},
        {role: corpus.users for role, corpus in corpora.items()},
    )
    for role, corpus in corpora.items():
        if again := len(corpus) - len(counted.kept[role]):
            monitor.log(
                f"{again:,} texts of `{role}` are near-duplicates of others and left out: copies "
                "are no evidence of their own."
            )
    lists = {role: corpus.take(counted.kept[role]) for role, corpus in corpora.items()}
    if empty := [role for role, corpus in lists.items() if not len(corpus)]:
        raise DataError(
            f"all texts of `{empty[0]}` are near-duplicates of texts on another list",
            remedy="Give other texts.",
        )
    return _Lists(lists, tuple((counted.kept["texts"] + 1).tolist()), counted.check)
