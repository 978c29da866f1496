"""Membership audit of texts: which were in the training data, and how many at least and at most."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vestige import _validate
from vestige._markers import Choices
from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
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

if TYPE_CHECKING:
    from vestige.attacks.texts.cut_scores import Floats, Whole
    from vestige.attacks.texts.text_audit import Scored, TextAudit
    from vestige.attacks.texts.token_statistics import TokenStatistics
    from vestige.data.corpus import Corpus
    from vestige.workflows.kept_statistics import Nodes
    from vestige.workflows.text_models import TextModels

OUTPUT, CLAIMS = Group("Output"), Group("Claims")


def _scores() -> tuple[str, ...]:
    from vestige.attacks.texts.scores import SCORES

    return SCORES.names()


def audit_texts(
    model: ModelLike,
    texts: Annotated[CorpusLike, Flag("--texts"), Metavar("DATA")],
    *,
    reference: Annotated[CorpusLike, Metavar("DATA")],
    out: Annotated[Directory | None, OUTPUT] = None,
    base: Annotated[ModelLike | None, Metavar("MODEL")] = None,
    used: Annotated[CorpusLike | None, Metavar("DATA")] = None,
    score: Annotated[str | None, Choices(_scores), CLAIMS] = None,
    rate: Annotated[float, CLAIMS] = 0.05,
    statistics: Annotated[Directory | None, OUTPUT] = None,
    format: DataFormat = "auto",
    text: TextColumn = "text",
    author: Annotated[str | None, DATA, Help("The column or field with the author.")] = None,
    limit: Limit = None,
    seed: Seed = 0,
    device: DeviceOrSeveral = "auto",
    cluster: Annotated[str | None, Metavar("ADDRESS")] = None,
    monitor: Monitor = SILENT,
) -> "TextAudit":
    """Say which texts a model was trained on, and how many at least and at most.

    Every text is scored by how well the model knows it, and compared with texts that were never in
    the training data, over as many tokens: the p-value is how often one of these scores as high.
    `reference` must be of the same kind and time as `texts`, or the difference is taken for memory;
    a classifier that knows no model checks that, and where it can tell the two apart, nothing is
    decided. 19 texts of reference are needed for a p-value of 0.05, some hundred are better.

    With `base`, the model before it was trained on such text, scores tell far more, and the base,
    which has seen none of the texts, is a second check that the comparison is fair.

    That a list was *not* used, or no more than a part of it, is a claim that takes texts that
    certainly were: with `used` there is an upper bound on the share used, without it there is none.

    What the model says of each text is kept in `statistics`: the same command goes on where it was
    interrupted, and another audit asks nothing again. Both directories hold texts in the clear.

    With `author`, whole authors are compared, since texts of one are alike, and the bounds count
    authors, of whom one text each is drawn.

    Args:
        model: A model or training directory, a Hugging Face model, or an adapter, whose base need
            not be given.
        texts: What may have been trained on, a text a row.
        reference: Texts that are known not to be in the training data, of the same kind.
        out: A directory to make, for `vestige report`. Python may leave it out.
        base: The model before it was trained on such texts.
        used: Texts that are known to have been in the training data, as the audited would have
            been: as often, and of the same kind.
        score: How a text is scored. Default: `log-ratio` to the base, without a base `loss`.
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
    from vestige.attacks.texts.shift import word_shift
    from vestige.attacks.texts.text_audit import audit_scores, base_check
    from vestige.parallel import connected
    from vestige.workflows.kept_statistics import Nodes
    from vestige.workflows.provenance import of_corpus
    from vestige.workflows.text_models import TextModels

    call = Call.of(audit_texts, locals())
    _validate.open_fraction(**{"`rate`": rate})
    nodes = None if cluster is None else Nodes(cluster, device)
    if out is not None:
        results.require_new(fspath(out))
    given = {"texts": texts, "reference": reference, **({} if used is None else {"used": used})}
    asked_of = _read(given, monitor, author, format=format, text=text, limit=limit)
    lists = asked_of.read
    models = TextModels.read(model, base, device="cpu" if nodes else device, monitor=monitor)
    name = score or ("log-ratio" if "base" in models.models else "loss")
    _require_base(name, models)
    folder = statistics or (None if out is None else f"{fspath(out)}.statistics")
    with connected(cluster) if cluster else nullcontext():
        asked = _Asked.of(models, lists, None if folder is None else Path(folder), monitor, nodes)
    scored = asked.scores(name)
    found = audit_scores(
        scored["texts"],
        scored["reference"],
        scored["used"].cut if "used" in scored else None,
        rate=rate,
        seed=seed,
    )
    shift = word_shift(
        list(lists["texts"]),
        list(lists["reference"]),
        authors=asked.authors["texts"],
        reference_authors=asked.authors["reference"],
        seed=seed,
    )
    checked = None
    if "base" in models.models:
        alone = asked.of_base().scores("loss")
        checked = base_check(alone["texts"], alone["reference"], rate=rate, seed=seed)
    found = replace(
        found,
        shift=shift,
        base=checked,
        numbers=asked_of.numbers,
        tokens=tuple(asked.lengths("texts")),
        excerpts=tuple(one[:EXCERPT] for one in lists["texts"]),
        statistics={"score": name, **asked.summary()},
    )
    found = call.record(
        found,
        configuration={"score": name, "rate": rate, "seconds": call.seconds},
        seed=seed,
        models=models.recorded,
        data={role: of_corpus(given[role], corpus) for role, corpus in lists.items()},
    )
    if out is not None:
        results.save(found, fspath(out), run=found.record)
    return found


EXCERPT = 200
"""Characters of an audited text that a run keeps."""


def _require_base(score: str, models: "TextModels") -> None:
    """Refuse a score of what a base says where there is none."""
    from inspect import Parameter, signature

    from vestige.attacks.texts.scores import SCORES

    asks = signature(SCORES[score]).parameters.values()
    if missing := {p.name for p in asks if p.default is Parameter.empty} - set(models.models):
        raise ValueError(
            f"`score` {score} must come with `{min(missing)}`: it compares the model with that"
        )


@dataclass(frozen=True)
class _Asked:
    """What the models said of all texts.

    Attributes:
        said: by role of the texts, then of the model.
        authors: of the texts of each role, where they were told.
    """

    said: "Mapping[str, Mapping[str, TokenStatistics]]"
    authors: Mapping[str, Sequence[str] | None]

    @classmethod
    def of(
        cls,
        models: "TextModels",
        lists: "Mapping[str, Corpus]",
        folder: Path | None,
        monitor: Monitor,
        nodes: "Nodes | None",
    ) -> "_Asked":
        said = {
            role: models.statistics(rows, folder, of=f"the {role}", monitor=monitor, nodes=nodes)
            for role, rows in models.encoded_lists(lists).items()
        }
        return cls(said, _authors(lists))

    def of_base(self) -> "_Asked":
        """The same with the base in the target's place."""
        return _Asked({r: {"target": said["base"]} for r, said in self.said.items()}, self.authors)

    def lengths(self, role: str) -> list[int]:
        """Tokens of each text."""
        import numpy as np

        found: list[int] = np.diff(self.said[role]["target"].offsets).tolist()
        return found

    def scores(self, name: str) -> "dict[str, Scored]":
        """Every text over its first tokens, by role."""
        from vestige.attacks.texts.cut_scores import CutScores, ladder
        from vestige.attacks.texts.scores import SCORES
        from vestige.attacks.texts.statistics_of_parts import first_tokens
        from vestige.attacks.texts.text_audit import Scored

        rungs = ladder(max(max(self.lengths(role)) for role in self.said))
        found = {}
        for role, said in self.said.items():

            def score(places: "Whole", tokens: int, said: Any = said) -> "Floats":
                first = {model: first_tokens(one, places, tokens) for model, one in said.items()}
                return SCORES[name](**first)

            cut = CutScores.of(score, self.lengths(role), rungs)
            found[role] = Scored(cut, self.authors[role])
        return found

    def summary(self) -> dict[str, object]:
        """How long the texts are, in tokens."""
        from statistics import median

        return {f"{role}_tokens": median(self.lengths(role)) for role in ("texts", "reference")}


def _authors(lists: "Mapping[str, Corpus]") -> dict[str, Sequence[str] | None]:
    """The author of each text, where they are told of both sides."""
    told = all(lists[role].users is not None for role in ("texts", "reference"))
    return {role: corpus.users if told else None for role, corpus in lists.items()}


@dataclass(frozen=True)
class _Lists:
    """The lists of texts, by role.

    Attributes:
        read: no text twice.
        numbers: of the audited texts in what was given, from 1.
    """

    read: "dict[str, Corpus]"
    numbers: tuple[int, ...]


def _read(
    given: Mapping[str, CorpusLike], monitor: Monitor, user: str | None, **columns: Any
) -> _Lists:
    """The lists, each text once, and none of them in two."""
    from vestige.workflows.inputs import open_corpus
    from vestige.workflows.text_lists import read_lists

    # Only those whose authors are compared must say who they are.
    whole = {
        role: open_corpus(data, user=None if role == "used" else user, **columns)
        for role, data in given.items()
    }
    lists, places = {}, {}
    for role, corpus in read_lists(whole).items():
        first: dict[str, int] = {}
        for place, text in enumerate(corpus):
            first.setdefault(text, place)
        places[role] = list(first.values())
        lists[role] = corpus.take(places[role])
        if again := len(corpus) - len(first):
            monitor.log(
                f"{again:,} texts of `{role}` stand there more than once: each is counted once, "
                "as copies of one text are no evidence of their own."
            )
    return _Lists(lists, tuple(place + 1 for place in places["texts"]))
