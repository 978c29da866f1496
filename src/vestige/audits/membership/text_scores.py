"""Scores of texts: of one pass (`attacks.texts.scores`), of a second pass, or learned.

lower-case  also reads the text in lower case
recall      also reads the text after a prefix of reference texts
zlib        divides by the compressed size of the text
calibrated  learns the gain of unseen tokens from a third of the reference
learned     learns from shadow models how to weigh gains over the base and over models that did
            not read the text

Texts that a score learns from, or that are in the prefix, are not compared with.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.texts.calibrated_gain import CalibratedGain
from vestige.attacks.texts.cut_scores import Floats
from vestige.attacks.texts.other_texts import lower_case, recall, zlib_score
from vestige.attacks.texts.scores import SCORES
from vestige.attacks.texts.shown_tokens import BASE_LIKELIEST
from vestige.attacks.texts.statistics_of_parts import first_tokens
from vestige.attacks.texts.text_audit import Scored
from vestige.attacks.texts.text_models import identity
from vestige.attacks.texts.token_statistics import TokenStatistics
from vestige.attacks.texts.weighted_gains import Shadow, WeightedGains
from vestige.audits.membership.audited_texts import AuditedTexts
from vestige.audits.membership.text_shadows import ShadowModel
from vestige.data.corpus import Corpus
from vestige.models.protocols import LanguageModel
from vestige.models.provenance import of_model

OTHERS = ("calibrated", "learned", "lower-case", "recall", "zlib")
"""Scores that are not a function of one pass."""

SERVED = ("error-zone", "learned", "log-ratio", "loss")
"""Scores of what a server shows: log-probabilities, and whether a token is the first choice."""

HELD_OUT = 3
"""One in so many reference units is held out for `calibrated`."""

PREFIX_UNITS = 7
"""Most texts of a prefix: the paper's largest number for short texts."""

PREFIX_SHARE = 4
"""A prefix has at most a fourth of the tokens that a model reads, and of the reference."""

LIKELIEST = 20
LONGEST = 1024
"""Tokens that a model reads if it has no bound."""


def default_score(models: Iterable[str], *, shadows: bool) -> str:
    """The score if none is given: the strongest on fine-tunes of one epoch."""
    if shadows:
        return "learned"
    return "error-zone" if "base" in models else "loss"


def check_score_inputs(score: str, models: Iterable[str], *, shadows: bool) -> None:
    """Refuse an unknown score, or one without the models or texts that it needs.

    Raises:
        ValueError: it is unknown; there is no base or no shadow texts; or shadow texts are unused.
    """
    if score not in (*SCORES.names(), *OTHERS):
        names = ", ".join(sorted((*SCORES.names(), *OTHERS)))
        raise ValueError(f"`score` must be one of {names}")
    needed = {"base"} if score in ("calibrated", "learned") else set[str]()
    if score not in OTHERS:
        passes = signature(SCORES[score]).parameters.values()
        needed = {one.name for one in passes if one.default is Parameter.empty}
    if missing := needed - set(models):
        raise ValueError(f"`score` {score} needs `{min(missing)}`, to compare the model with")
    if score == "learned" and not shadows:
        raise ValueError("`score` learned needs `shadow_texts`; calibrated needs none")
    if score != "learned" and shadows:
        raise ValueError(f"`shadow_texts` does not go with `score` {score}: learned uses them")


def hold_out(score: str, reference: Corpus, *, seed: int) -> tuple[Corpus, Corpus | None]:
    """The reference to compare with, and the part that the score needs, if any.

    Args:
        score: by name.
        reference: all texts of an author go to one side.
        seed: of the random split.
    """
    if score not in ("calibrated", "recall"):
        return reference, None
    owners = np.arange(len(reference)) if reference.users is None else np.array(reference.users)
    units = np.random.default_rng([seed, 2]).permutation(np.unique(owners))
    count = len(units) // HELD_OUT
    if score == "recall":
        count = min(PREFIX_UNITS, max(1, len(units) // PREFIX_SHARE))
    held = np.isin(owners, units[:count])
    return reference.take(np.flatnonzero(~held)), reference.take(np.flatnonzero(held))


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
        held_out: reference texts that the score needs.
        shadows: the shadow texts, and the shadow models, one at a time.
    """
    if score == "learned" and shadows is not None:
        return _learned(audited, *shadows)
    if score == "calibrated" and held_out is not None:
        return audited.scored_by_tokens(_calibrated(audited, held_out))
    if score == "recall" and held_out is not None:
        after = audited.with_pass("after", _after_prefix(audited, held_out))
        return after.scored(lambda target, after, base=None: recall(_as_long(target, after), after))
    if score == "lower-case":
        lower = audited.with_pass("lower", _in_lower_case(audited))
        return lower.scored(lambda target, lower, base=None: lower_case(target, lower))
    if score == "zlib":
        return audited.scored(lambda target, base=None: zlib_score(target, _texts(audited, target)))
    return audited.scored(SCORES[score])


def _target_of(audited: AuditedTexts, texts: Sequence[Sequence[int]], of: str) -> TokenStatistics:
    alone = replace(audited.models, models={"target": audited.models.target})
    return alone.statistics(texts, audited.outputs, of=of)["target"]


def _in_lower_case(audited: AuditedTexts) -> dict[str, TokenStatistics]:
    """The target's statistics of every text in lower case."""
    return {
        role: _target_of(
            audited,
            audited.models.encoded([text.lower() for text in corpus]),
            f"`{role}` in lower case",
        )
        for role, corpus in audited.lists.items()
    }


def _after_prefix(audited: AuditedTexts, held_out: Corpus) -> dict[str, TokenStatistics]:
    """The target's statistics of every text after a prefix of held-out texts."""
    models = audited.models
    prefix = [token for ids in models.encoded(list(held_out)) for token in ids]
    prefix = prefix[: (models.longest or LONGEST) // PREFIX_SHARE]
    found = {}
    for role, rows in models.encoded_lists(audited.lists).items():
        after = [(prefix + list(ids))[: models.longest] for ids in rows]
        read = _target_of(audited, after, f"`{role}` after a prefix")
        found[role] = first_tokens(read, np.arange(len(rows)), skipped=len(prefix))
    return found


def _as_long(target: TokenStatistics, after: TokenStatistics) -> TokenStatistics:
    """Only the tokens that the model also reads after the prefix."""
    places = np.arange(len(target.offsets) - 1)
    return first_tokens(target, places, np.diff(after.offsets))


def _texts(audited: AuditedTexts, target: TokenStatistics) -> list[str]:
    ids, bounds = target.tokens.tolist(), target.offsets.tolist()
    decode = audited.models.target.vocabulary.decode
    return [decode(ids[a:b]) for a, b in pairwise(bounds)]


def _calibrated(audited: AuditedTexts, held_out: Corpus) -> dict[str, Floats]:
    """Standardized gains of tokens, calibrated on held-out texts."""
    own = audited.models.readings({"reference": held_out}, audited.outputs)
    gain = CalibratedGain.fit(**own.statistics["reference"])
    return {role: gain.token_scores(**read) for role, read in audited.readings.statistics.items()}


def _learned(
    audited: AuditedTexts, texts: Corpus, shadows: Iterable[ShadowModel]
) -> dict[str, Scored]:
    """Weighted gains over the base and over the shadow models, which read all texts."""
    readings, models = audited.readings, audited.models
    rows = models.encoded_lists({"shadow_texts": texts, **audited.lists})
    likeliest = LIKELIEST if readings.shown is None else BASE_LIKELIEST
    base = _read(audited, "base", models.models["base"], rows["shadow_texts"], likeliest=likeliest)
    lessons: list[Shadow] = []
    unread: dict[str, list[NDArray[np.float32]]] = {role: [] for role in audited.lists}
    for number, one in enumerate(shadows, start=1):
        read = {
            role: _read(audited, f"shadow {number}", one.model, ids, folder=one.directory)
            for role, ids in rows.items()
        }
        members = np.isin(np.arange(len(texts)), one.members)
        lessons.append(Shadow(read["shadow_texts"], base, members))
        for role, log_probs in unread.items():
            known = slice(None) if readings.known is None else readings.known[role]
            log_probs.append(read[role].log_probs[known])
    gains = WeightedGains.fit(lessons, shown=readings.shown)
    means = {
        role: replace(own["base"], log_probs=np.mean(unread[role], axis=0, dtype=np.float32))
        for role, own in readings.statistics.items()
    }
    return audited.with_pass("unread", means).scored(
        lambda target, base, unread: gains.scores(target, base, unread.log_probs)
    )


def _read(
    audited: AuditedTexts,
    name: str,
    model: LanguageModel,
    texts: Sequence[Sequence[int]],
    *,
    folder: Path | None = None,
    likeliest: int = LIKELIEST,
) -> TokenStatistics:
    """Statistics of texts under the base or a shadow model, cached like the others."""
    recorded = audited.models.recorded[name] if folder is None else of_model(folder, model)
    return audited.outputs.statistics(
        model,
        identity(recorded, model),
        texts,
        task=f"reading shadow texts with {name}",
        likeliest=likeliest,
    )
