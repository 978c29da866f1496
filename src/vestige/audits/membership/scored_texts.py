"""Texts of an audit with their statistics, and every score of them over their first tokens."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vestige.audits.membership.learned_scores import CalibratedGain, Shadow, WeightedGains
from vestige.audits.membership.shadows import ShadowModel
from vestige.audits.membership.text_audit import Scored
from vestige.audits.membership.text_scores import NAMES, OF_BASE, SCORES, SERVED, zlib_score
from vestige.data.corpus import Corpus
from vestige.errors import DataError
from vestige.metrics.estimates import Floats
from vestige.metrics.listed import CutScores, Whole, ladder
from vestige.models.cached_outputs import CachedOutputs
from vestige.models.folders import of_model
from vestige.models.protocols import LanguageModel
from vestige.models.served_texts import ServedTexts
from vestige.models.shown_statistics import BASE_LIKELIEST
from vestige.models.text_models import Readings, TextModels
from vestige.models.token_statistics import TokenStatistics, first_tokens

HELD_OUT = 3
"""One in so many reference units is held out for `calibrated`."""

LIKELIEST = 20
"""Most probable tokens that shadow models and the base give at each position."""


def score_name(given: str | None, models: TextModels | ServedTexts, *, shadows: bool) -> str:
    """The given score, or the strongest on fine-tunes of one epoch.

    Args:
        given: by name.
        models: target and perhaps base.
        shadows: whether there are texts for shadow models.

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
    """The reference to compare with, and the part that `calibrated` learns from.

    Args:
        score: by name.
        reference: all texts of an author go to one side.
        seed: of the random split.
    """
    if score != "calibrated":
        return reference, None
    owners = np.arange(len(reference)) if reference.users is None else np.array(reference.users)
    units = np.random.default_rng([seed, 2]).permutation(np.unique(owners))
    held = np.isin(owners, units[: len(units) // HELD_OUT])
    return reference.take(np.flatnonzero(~held)), reference.take(np.flatnonzero(held))


@dataclass(frozen=True)
class AuditedTexts:
    """Lists of texts and what the models output for them.

    Attributes:
        lists: by role: "texts", "reference" and perhaps "used".
        readings: of these lists.
        models: the local ones, which can read further texts; None if there are none.
        outputs: that are cached.
    """

    lists: Mapping[str, Corpus]
    readings: Readings
    models: TextModels | None
    outputs: CachedOutputs

    @property
    def authors(self) -> dict[str, Sequence[str] | None]:
        """The author of each text, if both sides have authors."""
        named = all(self.lists[role].users is not None for role in ("texts", "reference"))
        return {role: corpus.users if named else None for role, corpus in self.lists.items()}

    def units(self, role: str) -> Sequence[str]:
        """The author of each text, or its position."""
        return self.authors[role] or [str(place) for place in range(len(self.lists[role]))]

    def lengths(self, role: str) -> list[int]:
        """Tokens of each text."""
        found: list[int] = np.diff(self.readings.statistics[role]["target"].offsets).tolist()
        return found

    def scored(
        self, score: Callable[..., Floats], **more: Mapping[str, TokenStatistics]
    ) -> dict[str, Scored]:
        """Every text over its first tokens, by role.

        Args:
            score: of statistics by model, such as `target` and `base`; one score per text.
            more: statistics of all lists under further models, by name.
        """

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
        lengths = {role: self.lengths(role) for role in self.readings.statistics}
        rungs = ladder(max(map(max, lengths.values())))
        return {
            role: Scored(CutScores.of(partial(score, role), own, rungs), self.authors[role])
            for role, own in lengths.items()
        }


def score_texts(
    score: str,
    audited: AuditedTexts,
    *,
    held_out: Corpus | None = None,
    shadows: tuple[Corpus, Iterable[ShadowModel]] | None = None,
) -> dict[str, Scored]:
    """Every text over its first tokens, by role.

    Args:
        score: by name.
        audited: the texts.
        held_out: reference texts that `calibrated` learns from.
        shadows: the shadow texts, and the shadow models, one at a time.
    """
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
    audited: AuditedTexts, models: TextModels, texts: Corpus, shadows: Iterable[ShadowModel]
) -> dict[str, Scored]:
    """Weighted gains over the base and over the shadow models, which read all texts."""
    readings = audited.readings
    rows = models.encoded_lists({"shadow_texts": texts, **audited.lists})

    def read(
        model: LanguageModel, name: str, recorded: object, role: str, likeliest: int = LIKELIEST
    ) -> TokenStatistics:
        task = f"reading shadow texts with {name}"
        return audited.outputs.statistics(
            model, recorded, rows[role], task=task, likeliest=likeliest
        )

    shown = LIKELIEST if readings.shown is None else BASE_LIKELIEST
    base = read(models.models["base"], "base", models.recorded["base"], "shadow_texts", shown)
    learned_from: list[Shadow] = []
    log_probs: dict[str, list[NDArray[np.float32]]] = {role: [] for role in audited.lists}
    for number, one in enumerate(shadows, start=1):
        of_shadow = partial(read, one.model, f"shadow {number}", of_model(one.directory, one.model))
        members = np.isin(np.arange(len(texts)), one.members)
        learned_from.append(Shadow(of_shadow("shadow_texts"), base, members))
        for role, own in log_probs.items():
            known = slice(None) if readings.known is None else readings.known[role]
            own.append(of_shadow(role).log_probs[known])
    gains = WeightedGains.fit(learned_from, shown=readings.shown)
    unread = {
        role: replace(own["base"], log_probs=np.mean(log_probs[role], axis=0, dtype=np.float32))
        for role, own in readings.statistics.items()
    }
    return audited.scored(
        lambda target, base, unread: gains.scores(target, base, unread.log_probs), unread=unread
    )
