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
from vestige.audits.membership.text_audit import ScoredTexts, audit_scores, rank_scores
from vestige.audits.membership.text_scores import (
    NEED_BASE,
    SCORE_NAMES,
    SCORES,
    SERVED_SCORES,
    CalibratedGain,
    ShadowStatistics,
    WeightedGains,
    loss,
    zlib_score,
)
from vestige.claims import Check
from vestige.claims.checks import require_finite, statistics_checks
from vestige.claims.comparable import comparable_texts
from vestige.claims.text_lists import independent_texts, require_lists
from vestige.data.corpus import Corpus
from vestige.errors import DataError
from vestige.metrics.estimates import Floats
from vestige.metrics.listed import CutScores, Integers, ladder
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
"""Characters of an audited text that are saved."""
HOLD_OUT_DIVISOR = 3
"""`calibrated` holds out one of this many reference units."""

_MODEL_NAMES = {"target": "the model", "base": "the base"}
"""Names of the models in sentences, by role."""


def texts_membership(run: Session) -> Result:
    """The audit of texts; see `membership`."""
    arguments = run.arguments
    model, base, alpha = arguments["model"], arguments["base"], arguments["alpha"]
    is_function = callable(model) and not hasattr(model, "vocabulary")
    if is_function or (isinstance(model, str) and ":" in model and is_callable_name(model)):
        raise ValueError("`model` is a function, which needs `unit` user")
    nodes = None if arguments["cluster"] is None else Nodes(arguments["cluster"], run.device)
    lists, numbers, independent = _read_lists(run)
    shadow_texts = lists.pop("shadow_texts", None)
    models = _open_models(run, model, base, nodes)
    score = choose_score(arguments["score"], models, has_shadow_texts=shadow_texts is not None)
    run.record_choice(score=score)
    lists["reference"], held_out = hold_out(score, lists["reference"], seed=run.seed)
    with ExitStack() as stack:
        folder = run.output_folder("statistics", arguments["statistics"])
        outputs = stack.enter_context(cached_outputs(folder, run.monitor, nodes))
        local = models.local if isinstance(models, ServedTexts) else models
        audited = AuditedTexts(lists, models.readings(lists, outputs), local, outputs)
        require_finite(
            {
                _MODEL_NAMES[role]: [statistics.log_probs for statistics in by_list]
                for role, by_list in audited.readings.by_model().items()
            }
        )
        shadows = None
        if shadow_texts is not None:
            shadows = shadow_texts, shadow_models(
                None if is_endpoint(model) else model, base, shadow_texts, arguments["shadows"],
                folder=stack.enter_context(shadow_folder(run)),
                seed=run.seed, device=run.device, monitor=run.monitor,
            )  # fmt: skip
        scores = score_texts(score, audited, held_out=held_out, shadows=shadows)
    run.models |= models.recorded
    lengths = {role: scores[role].scores.lengths for role in ("texts", "reference")}
    return audit_scores(
        scores["texts"],
        scores["reference"],
        scores.get("used"),
        checks=(*_checks(audited, scores, alpha=alpha, seed=run.seed), independent),
        has_base="base" in models.models,
        rate=alpha,
        seed=run.seed,
        text_columns={
            "number": numbers,
            "length": lengths["texts"].tolist(),
            "text": [text[:EXCERPT] for text in lists["texts"]],
        },
        facts={
            "score": score,
            **{f"{role}_tokens": median(tokens.tolist()) for role, tokens in lengths.items()},
            **(models.spent if isinstance(models, ServedTexts) else {}),
        },
    )


def _read_lists(run: Session) -> tuple[dict[str, Corpus], list[int], Check]:
    """Read the lists and leave out near-duplicates within a list and across lists.

    Returns:
        The lists by role, the number of each audited text in its file (from 1), and the check
        "independent".
    """
    columns = {name: run.arguments[name] for name in ("format", "text", "limit")}
    lists: dict[str, Corpus] = {}
    for role in ("texts", "used", "reference", "shadow_texts"):
        if (data := run.arguments[role]) is not None:
            # Shadow models are trained on single texts.
            author = None if role == "shadow_texts" else run.arguments["author"]
            lists[role] = run.corpus(role, data, user=author, **columns)
    require_lists(lists)
    have_authors = all(lists[role].users is not None for role in ("texts", "reference"))
    if have_authors and "used" in lists and lists["used"].users is None:
        raise DataError(
            "`used` has no authors, but `texts` and `reference` have",
            remedy="Name the author of each of its texts, or of no list.",
        )
    positions, independent = independent_texts(lists)
    for role, corpus in lists.items():
        if duplicates := len(corpus) - len(positions[role]):
            run.log(f"`{role}`: {duplicates:,} near-duplicates left out.")
        if not len(positions[role]):
            raise DataError(
                f"all texts of `{role}` are near-duplicates of texts in another list",
                remedy="Pass other texts.",
            )
    unique = {role: corpus.take(positions[role]) for role, corpus in lists.items()}
    return unique, (positions["texts"] + 1).tolist(), independent


def _open_models(
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


def choose_score(
    requested: str | None, models: Snapshots | ServedTexts, *, has_shadow_texts: bool
) -> str:
    """The requested score, or the strongest on fine-tunes of one epoch.

    Raises:
        ValueError: it is unknown; it needs a base or shadow texts; or it needs no shadow texts.
        DataError: a server does not show what it needs.
    """
    has_base = "base" in models.models
    default = "learned" if has_shadow_texts else "error-zone" if has_base else "loss"
    score = requested or default
    if score not in SCORE_NAMES:
        raise ValueError(f"`score` must be one of {', '.join(SCORE_NAMES)}")
    if score in NEED_BASE and not has_base:
        raise ValueError(f"`score` {score} needs `base`, to compare the model with")
    if score == "learned" and not has_shadow_texts:
        raise ValueError("`score` learned needs `shadow_texts`; calibrated needs none")
    if score != "learned" and has_shadow_texts:
        raise ValueError(f"`shadow_texts` does not go with `score` {score}: learned uses them")
    if isinstance(models, ServedTexts):
        if score == "learned" and models.local is None:
            raise DataError(
                "`score` learned trains shadow models, and a served base cannot be trained",
                remedy="Pass the folder of the base.",
            )
        if score not in SERVED_SCORES:
            raise DataError(
                f"`score` {score} needs more than {models.addresses['target']} shows: "
                "log-probabilities of tokens and the most probable ones",
                remedy=f"Choose {', '.join(SERVED_SCORES)}, or pass the model's folder.",
            )
    return score


def hold_out(score: str, reference: Corpus, *, seed: int) -> tuple[Corpus, Corpus | None]:
    """The reference to compare with, and the random part that `calibrated` learns from.

    All texts of an author go to one side.
    """
    if score != "calibrated":
        return reference, None
    units = np.arange(len(reference)) if reference.users is None else np.array(reference.users)
    shuffled = np.random.default_rng([seed, 2]).permutation(np.unique(units))
    mask = np.isin(units, shuffled[: len(shuffled) // HOLD_OUT_DIVISOR])
    return reference.take(np.flatnonzero(~mask)), reference.take(np.flatnonzero(mask))


@dataclass(frozen=True)
class AuditedTexts:
    """Lists of texts and the models' outputs for them.

    Attributes:
        lists: by role: "texts", "reference" and perhaps "used".
        readings: of these lists.
        models: the local ones, which can read further texts; None if there are none.
        outputs: the cached outputs.
    """

    lists: Mapping[str, Corpus]
    readings: Readings
    models: Snapshots | None
    outputs: CachedOutputs

    def scored(
        self, score: Callable[..., Floats], **more_models: Mapping[str, TokenStatistics]
    ) -> dict[str, ScoredTexts]:
        """Scores of all texts over their first tokens, by role of the list.

        Args:
            score: a function of the statistics of each model, passed by keyword: `target`, `base`
                and `more_models`.
            more_models: statistics of further models, by role of the list.
        """

        def over_first(role: str, texts: Integers, tokens: int) -> Floats:
            statistics = dict(self.readings.statistics[role])
            statistics |= {name: by_role[role] for name, by_role in more_models.items()}
            return score(
                **{name: first_tokens(whole, texts, tokens) for name, whole in statistics.items()}
            )

        return self._scored_over(over_first)

    def scored_by_tokens(self, token_scores: Mapping[str, Floats]) -> dict[str, ScoredTexts]:
        """The mean of (t,) token scores over the first tokens of each text, by role."""
        sums = {
            role: np.concatenate([[0.0], np.cumsum(scores)])
            for role, scores in token_scores.items()
        }

        def over_first(role: str, texts: Integers, tokens: int) -> Floats:
            first = self.readings.statistics[role]["target"].offsets[texts]
            return np.asarray((sums[role][first + tokens] - sums[role][first]) / tokens)

        return self._scored_over(over_first)

    def _scored_over(
        self, over_first: Callable[[str, Integers, int], Floats]
    ) -> dict[str, ScoredTexts]:
        """Scores by role; `over_first` gives those of some texts over a number of tokens."""
        lengths = {
            role: np.diff(statistics["target"].offsets)
            for role, statistics in self.readings.statistics.items()
        }
        rungs = ladder(int(max(tokens.max() for tokens in lengths.values())))
        have_authors = all(self.lists[role].users is not None for role in ("texts", "reference"))
        return {
            role: ScoredTexts(
                CutScores.of(partial(over_first, role), tokens, rungs),
                self.lists[role].users if have_authors else None,
            )
            for role, tokens in lengths.items()
        }


def score_texts(
    score: str,
    audited: AuditedTexts,
    *,
    held_out: Corpus | None = None,
    shadows: tuple[Corpus, Iterable[ShadowModel]] | None = None,
) -> dict[str, ScoredTexts]:
    """Scores of all texts over their first tokens, by role of the list.

    Args:
        score: one of `SCORE_NAMES`.
        audited: the texts and the models' outputs.
        held_out: reference texts that `calibrated` learns from.
        shadows: texts and shadow models that `learned` learns from; one model is in memory at a
            time.
    """
    if score in SCORES:
        return audited.scored(SCORES[score])
    models = audited.models
    assert models is not None
    if score == "learned":
        assert shadows is not None
        return _learned(audited, models, *shadows)
    if score == "calibrated":
        assert held_out is not None
        unseen = models.readings({"reference": held_out}, audited.outputs)
        gain = CalibratedGain.fit(**unseen.statistics["reference"])
        return audited.scored_by_tokens(
            {
                role: gain.token_scores(**statistics)
                for role, statistics in audited.readings.statistics.items()
            }
        )
    decode = models.target.vocabulary.decode

    def per_compressed_byte(target: TokenStatistics, base: TokenStatistics | None = None) -> Floats:
        ids, bounds = target.tokens.tolist(), pairwise(target.offsets.tolist())
        return zlib_score(target, [decode(ids[start:end]) for start, end in bounds])

    return audited.scored(per_compressed_byte)


def _learned(
    audited: AuditedTexts, models: Snapshots, texts: Corpus, shadows: Iterable[ShadowModel]
) -> dict[str, ScoredTexts]:
    """Weighted gains over the base and over the shadow models."""
    readings = audited.readings
    token_rows = models.encoded_lists({"shadow_texts": texts, **audited.lists})

    def read(
        model: LanguageModel, name: str, record: object, role: str, likeliest: int
    ) -> TokenStatistics:
        task = f"reading shadow texts with {name}"
        return audited.outputs.statistics(
            model, record, token_rows[role], task=task, likeliest=likeliest
        )

    shown = readings.shown or 0
    base = read(
        models.models["base"], "base", models.recorded["base"], "shadow_texts",
        BASE_LIKELIEST if shown else 0,
    )  # fmt: skip
    training: list[ShadowStatistics] = []
    log_probs: dict[str, list[NDArray[np.float32]]] = {role: [] for role in audited.lists}
    for number, shadow in enumerate(shadows, start=1):
        read_with_shadow = partial(
            read, shadow.model, f"shadow {number}", model_record(shadow.directory, shadow.model)
        )
        members = np.isin(np.arange(len(texts)), shadow.members)
        training.append(ShadowStatistics(read_with_shadow("shadow_texts", shown), base, members))
        for role, by_shadow in log_probs.items():
            answered = slice(None) if readings.known is None else readings.known[role]
            by_shadow.append(read_with_shadow(role, 0).log_probs[answered])
    gains = WeightedGains.fit(training, shown=readings.shown)
    shadow_means = {
        role: replace(
            statistics["base"], log_probs=np.mean(log_probs[role], axis=0, dtype=np.float32)
        )
        for role, statistics in readings.statistics.items()
    }
    return audited.scored(
        lambda target, base, shadows: gains.scores(target, base, shadows.log_probs),
        shadows=shadow_means,
    )


def _checks(
    audited: AuditedTexts, scores: Mapping[str, ScoredTexts], *, alpha: float, seed: int
) -> Sequence[Check]:
    """The checks of the models, of the tokens read, and of other differences between the lists."""
    by_model = audited.readings.by_model("texts", "reference")
    base_scores = None
    if "base" in by_model:
        of_base = audited.scored(lambda target, base: loss(base))
        base_scores = rank_scores(of_base["texts"], of_base["reference"], rate=alpha)
    return (
        *statistics_checks(
            {_MODEL_NAMES[role]: statistics for role, statistics in by_model.items()},
            read_tokens=audited.readings.read,
            pair=None if base_scores is None else ("the base", "the model"),
        ),
        comparable_texts(
            list(audited.lists["texts"]),
            list(audited.lists["reference"]),
            units=(scores["texts"].units(), scores["reference"].units()),
            base=base_scores,
            seed=seed,
        ),
    )
