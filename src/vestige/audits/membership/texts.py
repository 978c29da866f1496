"""Membership of texts: which were in the training data, and how many at least and at most."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from vestige.arguments import ModelLike
from vestige.audits.membership.shadows import ShadowModel, shadow_folder, shadow_models
from vestige.audits.membership.text_audit import Scored, audit_scores, ranked
from vestige.audits.membership.text_scores import (
    NAMES,
    OF_BASE,
    SCORES,
    SERVED,
    CalibratedGain,
    Shadow,
    WeightedGains,
    loss,
    zlib_score,
)
from vestige.claims import Check
from vestige.claims.checks import model_checks, require_finite
from vestige.claims.comparable import comparable_texts
from vestige.claims.text_lists import independent_texts, require_lists
from vestige.data.corpus import Corpus
from vestige.errors import DataError
from vestige.metrics.estimates import Floats
from vestige.metrics.listed import CutScores, Whole, ladder
from vestige.models.folders import model_record
from vestige.models.protocols import LanguageModel
from vestige.models.remote.options import is_callable_name, is_endpoint
from vestige.models.served_texts import ServedTexts
from vestige.models.shown_statistics import BASE_LIKELIEST
from vestige.models.snapshots import Readings, Snapshots
from vestige.models.token_statistics import (
    CachedOutputs,
    Nodes,
    TokenStatistics,
    cached_outputs,
    first_tokens,
)
from vestige.results import Result
from vestige.session import Session

EXCERPT = 200
"""Characters of an audited text that a run keeps."""
HELD_OUT = 3
"""One in so many reference units is held out for `calibrated`."""

_SENTENCE = {"target": "the model", "base": "the base"}
"""Models in a sentence, by role."""


def texts_membership(run: Session) -> Result:
    """The audit of texts; see `membership`."""
    given = run.arguments
    model, base, alpha = given["model"], given["base"], given["alpha"]
    function = callable(model) and not hasattr(model, "vocabulary")
    if function or (isinstance(model, str) and ":" in model and is_callable_name(model)):
        raise ValueError("`model` is a function, which needs `unit` user")
    nodes = None if given["cluster"] is None else Nodes(given["cluster"], run.device)
    texts, numbers, independent = _read_lists(run)
    shadow_texts = texts.pop("shadow_texts", None)
    models = _models(run, model, base, nodes)
    name = score_name(given["score"], models, shadows=shadow_texts is not None)
    run.chosen(score=name)
    texts["reference"], held_out = hold_out(name, texts["reference"], seed=run.seed)
    with ExitStack() as stack:
        folder = run.beside_out("statistics", given["statistics"])
        outputs = stack.enter_context(cached_outputs(folder, run.monitor, nodes))
        local = models.local if isinstance(models, ServedTexts) else models
        audited = AuditedTexts(texts, models.readings(texts, outputs), local, outputs)
        read = audited.readings.by_model().items()
        require_finite({_SENTENCE[who]: [one.log_probs for one in own] for who, own in read})
        trained = None
        if shadow_texts is not None:
            trained = shadow_texts, shadow_models(
                None if is_endpoint(model) else model, base, shadow_texts, given["shadows"],
                folder=stack.enter_context(shadow_folder(run)),
                seed=run.seed, device=run.device, monitor=run.monitor,
            )  # fmt: skip
        scores = score_texts(name, audited, held_out=held_out, shadows=trained)
    run.models |= models.recorded
    lengths = {role: scores[role].cut.lengths for role in ("texts", "reference")}
    return audit_scores(
        scores["texts"],
        scores["reference"],
        scores.get("used"),
        checks=(*_checks(audited, scores, alpha=alpha, seed=run.seed), independent),
        based="base" in models.models,
        rate=alpha,
        seed=run.seed,
        more_columns={
            "number": numbers,
            "length": lengths["texts"].tolist(),
            "text": [one[:EXCERPT] for one in texts["texts"]],
        },
        facts={
            "score": name,
            **{f"{role}_tokens": median(own.tolist()) for role, own in lengths.items()},
            **(models.spent if isinstance(models, ServedTexts) else {}),
        },
    )


def _read_lists(run: Session) -> tuple[dict[str, Corpus], list[int], Check]:
    """The lists without near-duplicates, in one or in two of them; the numbers of the audited
    texts in their file, from 1; and the check "independent"."""
    columns = {name: run.arguments[name] for name in ("format", "text", "limit")}
    lists: dict[str, Corpus] = {}
    for role in ("texts", "used", "reference", "shadow_texts"):
        if (data := run.arguments[role]) is not None:
            # Shadow models are trained on single texts.
            author = None if role == "shadow_texts" else run.arguments["author"]
            lists[role] = run.corpus(role, data, user=author, **columns)
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
    run: Session, model: ModelLike, base: ModelLike | None, nodes: Nodes | None
) -> Snapshots | ServedTexts:
    """The target and its base; no server is called yet."""
    remote = run.arguments["remote"]
    if is_endpoint(model):
        if nodes is not None:
            raise ValueError("`cluster` does not go with a served model")
        return ServedTexts.open(model, base, remote, device=run.device)
    remote.reject_for_local()
    device = "cpu" if nodes else run.device
    return Snapshots.with_base(model, base, device=device, monitor=run.monitor)


def score_name(given: str | None, models: Snapshots | ServedTexts, *, shadows: bool) -> str:
    """The given score, or the strongest on fine-tunes of one epoch.

    Raises:
        ValueError: it is unknown; there is no base or no shadow texts; or shadow texts are unused.
        DataError: a server does not show what it needs.
    """
    usual = "learned" if shadows else "error-zone" if "base" in models.models else "loss"
    score = given or usual
    if score not in NAMES:
        raise ValueError(f"`score` must be one of {', '.join(NAMES)}")
    if score in OF_BASE and "base" not in models.models:
        raise ValueError(f"`score` {score} needs `base`, to compare the model with")
    if score == "learned" and not shadows:
        raise ValueError("`score` learned needs `shadow_texts`; calibrated needs none")
    if score != "learned" and shadows:
        raise ValueError(f"`shadow_texts` does not go with `score` {score}: learned uses them")
    if isinstance(models, ServedTexts):
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
    return score


def hold_out(score: str, reference: Corpus, *, seed: int) -> tuple[Corpus, Corpus | None]:
    """The reference to compare with, and the random part that `calibrated` learns from.

    All texts of an author go to one side.
    """
    if score != "calibrated":
        return reference, None
    owners = np.arange(len(reference)) if reference.users is None else np.array(reference.users)
    units = np.random.default_rng([seed, 2]).permutation(np.unique(owners))
    held = np.isin(owners, units[: len(units) // HELD_OUT])
    return reference.take(np.flatnonzero(~held)), reference.take(np.flatnonzero(held))


@dataclass(frozen=True)
class AuditedTexts:
    """Lists of texts and the models' outputs for them.

    Attributes:
        lists: by role: "texts", "reference" and perhaps "used".
        readings: of these lists.
        models: the local ones, which can read further texts; None if there are none.
        outputs: that are cached.
    """

    lists: Mapping[str, Corpus]
    readings: Readings
    models: Snapshots | None
    outputs: CachedOutputs

    def scored(
        self, score: Callable[..., Floats], **more: Mapping[str, TokenStatistics]
    ) -> dict[str, Scored]:
        """Every text over its first tokens, by role: a function of statistics by model, such as
        `target` and `base`, and of `more` by role under further models."""

        def over(role: str, places: Whole, tokens: int) -> Floats:
            read = dict(self.readings.statistics[role])
            read |= {name: own[role] for name, own in more.items()}
            return score(**{name: first_tokens(one, places, tokens) for name, one in read.items()})

        return self._cut(over)

    def scored_by_tokens(self, values: Mapping[str, Floats]) -> dict[str, Scored]:
        """The mean of (t,) scores of tokens over every text's first tokens, by role."""
        sums = {role: np.concatenate([[0.0], np.cumsum(own)]) for role, own in values.items()}

        def over(role: str, places: Whole, tokens: int) -> Floats:
            first = self.readings.statistics[role]["target"].offsets[places]
            return np.asarray((sums[role][first + tokens] - sums[role][first]) / tokens)

        return self._cut(over)

    def _cut(self, score: Callable[[str, Whole, int], Floats]) -> dict[str, Scored]:
        read = self.readings.statistics.items()
        lengths = {role: np.diff(own["target"].offsets) for role, own in read}
        rungs = ladder(int(max(own.max() for own in lengths.values())))
        authors = all(self.lists[role].users is not None for role in ("texts", "reference"))
        return {
            role: Scored(
                CutScores.of(partial(score, role), own, rungs),
                self.lists[role].users if authors else None,
            )
            for role, own in lengths.items()
        }


def score_texts(
    score: str,
    audited: AuditedTexts,
    *,
    held_out: Corpus | None = None,
    shadows: tuple[Corpus, Iterable[ShadowModel]] | None = None,
) -> dict[str, Scored]:
    """Every text over its first tokens, by role; `calibrated` learns from texts held out, `learned`
    from shadow texts and the shadow models, one at a time."""
    models = audited.models
    if models is None or score in SCORES:
        return audited.scored(SCORES[score])
    if score == "learned" and shadows is not None:
        return _learned(audited, models, *shadows)
    if score == "calibrated" and held_out is not None:
        own = models.readings({"reference": held_out}, audited.outputs)
        gain = CalibratedGain.fit(**own.statistics["reference"])
        read = audited.readings.statistics.items()
        return audited.scored_by_tokens({role: gain.token_scores(**one) for role, one in read})
    decode = models.target.vocabulary.decode

    def packed(target: TokenStatistics, base: TokenStatistics | None = None) -> Floats:
        ids, bounds = target.tokens.tolist(), pairwise(target.offsets.tolist())
        return zlib_score(target, [decode(ids[start:end]) for start, end in bounds])

    return audited.scored(packed)


def _learned(
    audited: AuditedTexts, models: Snapshots, texts: Corpus, shadows: Iterable[ShadowModel]
) -> dict[str, Scored]:
    """Weighted gains over the base and over the shadow models, which read all texts."""
    readings = audited.readings
    rows = models.encoded_lists({"shadow_texts": texts, **audited.lists})

    def read(
        model: LanguageModel, name: str, recorded: object, role: str, likeliest: int
    ) -> TokenStatistics:
        task = f"reading shadow texts with {name}"
        return audited.outputs.statistics(
            model, recorded, rows[role], task=task, likeliest=likeliest
        )

    shown = readings.shown or 0
    base = read(
        models.models["base"], "base", models.recorded["base"], "shadow_texts",
        BASE_LIKELIEST if shown else 0,
    )  # fmt: skip
    learned_from: list[Shadow] = []
    log_probs: dict[str, list[NDArray[np.float32]]] = {role: [] for role in audited.lists}
    for number, one in enumerate(shadows, start=1):
        of_shadow = partial(
            read, one.model, f"shadow {number}", model_record(one.directory, one.model)
        )
        members = np.isin(np.arange(len(texts)), one.members)
        learned_from.append(Shadow(of_shadow("shadow_texts", shown), base, members))
        for role, own in log_probs.items():
            known = slice(None) if readings.known is None else readings.known[role]
            own.append(of_shadow(role, 0).log_probs[known])
    gains = WeightedGains.fit(learned_from, shown=readings.shown)
    unread = {
        role: replace(own["base"], log_probs=np.mean(log_probs[role], axis=0, dtype=np.float32))
        for role, own in readings.statistics.items()
    }
    return audited.scored(
        lambda target, base, unread: gains.scores(target, base, unread.log_probs), unread=unread
    )


def _checks(
    audited: AuditedTexts, scores: Mapping[str, Scored], *, alpha: float, seed: int
) -> Sequence[Check]:
    """The checks of models, of the tokens read, and of other differences between the lists."""
    pair = audited.readings.by_model("texts", "reference")
    base = None
    if "base" in pair:
        of_base = audited.scored(lambda target, base: loss(base))
        base = ranked(of_base["texts"], of_base["reference"], rate=alpha)
    return (
        *model_checks(
            {_SENTENCE[who]: own for who, own in pair.items()},
            read_tokens=audited.readings.read,
            pair=None if base is None else ("the base", "the model"),
        ),
        comparable_texts(
            list(audited.lists["texts"]),
            list(audited.lists["reference"]),
            units=(scores["texts"].owners(), scores["reference"].owners()),
            base=base,
            seed=seed,
        ),
    )
