"""Scores of an audit of texts: from one pass, from a second one, or learnt before.

lower-case  asks the target about the text in lower case, too
recall      asks about the text behind a prefix of never-seen texts
zlib        knows the characters of a text
calibrated  learns on a third of the reference what the gain of an unseen token is
learnt      learns from shadow fine-tunes on other texts how gains over the base and over
            fine-tunes that did not read a text are to be weighed

Texts that something is learnt from, or that stand in the prefix, are neither audited nor compared
with: of those, nothing is fitted, and one rule goes for all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.workflows.asked_texts import AskedTexts

if TYPE_CHECKING:
    from vestige.attacks.texts.cut_scores import Floats
    from vestige.attacks.texts.text_audit import Scored
    from vestige.attacks.texts.token_statistics import TokenStatistics
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel
    from vestige.workflows.endpoint_texts import ServedTexts
    from vestige.workflows.text_models import TextModels
    from vestige.workflows.text_shadows import FineTune

OTHERS = ("calibrated", "learnt", "lower-case", "recall", "zlib")
"""Scores that are no function of one pass."""

APART = 3
"""One of so many texts of the reference is what gains are calibrated on."""

PREFIX = 7
"""Texts of a prefix, the paper's largest number for short texts, at most."""

ROOM = 4
"""A prefix has a fourth of the tokens that a model reads, and of the reference, at most."""

LIKELIEST = 20
"""Tokens that are kept of each place."""

LONGEST = 1024
"""Tokens that a model is taken to read where it knows no bound."""


def require_what_it_compares(
    score: str, models: "TextModels | ServedTexts", others: "Corpus | None"
) -> None:
    """Refuse a score of what is not there.

    Raises:
        ValueError: there is no base, or no texts for shadows; or texts that nobody asks for.
    """
    from inspect import Parameter, signature

    from vestige.attacks.texts.scores import SCORES

    needed = {"base"} if score in ("calibrated", "learnt") else set[str]()
    if score not in OTHERS:
        asks = signature(SCORES[score]).parameters.values()
        needed = {one.name for one in asks if one.default is Parameter.empty}
    if missing := needed - set(models.models):
        raise ValueError(
            f"`score` {score} must come with `{min(missing)}`: it compares the model with that"
        )
    if score == "learnt" and others is None:
        raise ValueError(
            "`score` learnt must come with `shadow_texts`, of which shadow fine-tunes learn "
            "halves; calibrated takes none"
        )
    if score != "learnt" and others is not None:
        raise ValueError(f"`shadow_texts` must be left out with `score` {score}: learnt takes them")


def set_apart(
    score: str, models: "TextModels", reference: "Corpus", *, seed: int
) -> "tuple[Corpus, Corpus | None]":
    """The reference that is compared with, and what the score takes of it before, if anything.

    Args:
        score: by name.
        models: for the tokens of a prefix.
        reference: whole authors go to one side, where they are told.
        seed: of the draw.
    """
    import numpy as np

    if score not in ("calibrated", "recall"):
        return reference, None
    owners = np.arange(len(reference)) if reference.users is None else np.array(reference.users)
    units = np.random.default_rng([seed, 2]).permutation(np.unique(owners))
    taken = len(units) // APART
    if score == "recall":
        taken = min(PREFIX, max(1, len(units) // ROOM))
    apart = np.isin(owners, units[:taken])
    return reference.take(np.flatnonzero(~apart)), reference.take(np.flatnonzero(apart))


def scored(
    score: str,
    asked: AskedTexts,
    *,
    apart: "Corpus | None" = None,
    shadows: "tuple[Corpus, Iterable[FineTune]] | None" = None,
    seed: int = 0,
) -> "dict[str, Scored]":
    """Every text over its first tokens, by role.

    Args:
        score: by name.
        asked: what was said of the texts.
        apart: texts of the reference that are not compared with, where the score takes some.
        shadows: the texts of which they learn halves, and the fine-tunes, one at a time.
        seed: of draws and boosting.
    """
    from vestige.attacks.texts.other_texts import lower_case, recall, zlib_score
    from vestige.attacks.texts.scores import SCORES

    if score == "learnt" and shadows is not None:
        return _learnt(asked, *shadows)
    if score == "calibrated" and apart is not None:
        return asked.scored_by_tokens(_calibrated(asked, apart, seed=seed))
    if score == "recall" and apart is not None:
        behind = asked.joined_by("behind", _behind_prefix(asked, apart))
        return behind.scored(
            lambda target, behind, base=None: recall(_as_long(target, behind), behind)
        )
    if score == "lower-case":
        lower = asked.joined_by("lower", _in_lower_case(asked))
        return lower.scored(lambda target, lower, base=None: lower_case(target, lower))
    if score == "zlib":
        return asked.scored(lambda target, base=None: zlib_score(target, _texts(asked, target)))
    return asked.scored(SCORES[score])


def _target_of(asked: AskedTexts, texts: Sequence[Sequence[int]], of: str) -> "TokenStatistics":
    alone = replace(asked.models, models={"target": asked.models.target})
    return alone.statistics(texts, asked.folder, of=of, monitor=asked.monitor)["target"]


def _in_lower_case(asked: AskedTexts) -> "dict[str, TokenStatistics]":
    """What the target says of every text in lower case."""
    return {
        role: _target_of(
            asked,
            asked.models.encoded([text.lower() for text in corpus]),
            f"the {role} in lower case",
        )
        for role, corpus in asked.lists.items()
    }


def _behind_prefix(asked: AskedTexts, apart: "Corpus") -> "dict[str, TokenStatistics]":
    """What the target says of every text behind never-seen ones."""
    import numpy as np

    from vestige.attacks.texts.statistics_of_parts import first_tokens

    models = asked.models
    prefix = [token for ids in models.encoded(list(apart)) for token in ids]
    prefix = prefix[: (models.longest or LONGEST) // ROOM]
    found = {}
    for role, rows in models.encoded_lists(asked.lists).items():
        behind = [(prefix + list(ids))[: models.longest] for ids in rows]
        said = _target_of(asked, behind, f"the {role} behind a prefix")
        found[role] = first_tokens(said, np.arange(len(rows)), skipped=len(prefix))
    return found


def _as_long(target: "TokenStatistics", behind: "TokenStatistics") -> "TokenStatistics":
    """The tokens that the model reads behind the prefix, too."""
    import numpy as np

    from vestige.attacks.texts.statistics_of_parts import first_tokens

    places = np.arange(len(target.offsets) - 1)
    return first_tokens(target, places, np.diff(behind.offsets))


def _texts(asked: AskedTexts, target: "TokenStatistics") -> list[str]:
    ids, bounds = target.tokens.tolist(), target.offsets.tolist()
    decode = asked.models.target.vocabulary.decode
    return [decode(ids[a:b]) for a, b in pairwise(bounds)]


def _calibrated(asked: AskedTexts, apart: "Corpus", *, seed: int) -> "dict[str, Floats]":
    """Standardized gains of tokens, calibrated on texts that are set apart."""
    from vestige.attacks.texts.calibrated_gain import CalibratedGain

    own = AskedTexts.of(asked.models, {"reference": apart}, asked.folder, asked.monitor)
    learnt = CalibratedGain.fit(**own.said["reference"])
    return {role: learnt.token_scores(**said) for role, said in asked.said.items()}


def _learnt(
    asked: AskedTexts, texts: "Corpus", shadows: "Iterable[FineTune]"
) -> "dict[str, Scored]":
    """Weighted gains over the base and over the shadows, which are asked about all texts."""
    import numpy as np
    from numpy.typing import NDArray

    from vestige.attacks.texts.shown_tokens import BASE_LIKELIEST
    from vestige.attacks.texts.weighted_gains import Shadow, WeightedGains

    lists = {"shadow_texts": texts, **asked.lists}
    rows = asked.models.encoded_lists(lists)
    base = _said_by(
        asked,
        "base",
        asked.models.models["base"],
        rows["shadow_texts"],
        likeliest=LIKELIEST if asked.shown is None else BASE_LIKELIEST,
    )
    told: list[Shadow] = []
    unread: dict[str, list[NDArray[np.float32]]] = {role: [] for role in asked.lists}
    for number, one in enumerate(shadows, start=1):
        name = f"shadow {number}"
        said = {
            role: _said_by(asked, name, one.model, ids, directory=one.directory)
            for role, ids in rows.items()
        }
        told.append(Shadow(said["shadow_texts"], base, np.isin(np.arange(len(texts)), one.seen)))
        for role, log_probs in unread.items():
            own = slice(None) if asked.told is None else asked.told[role]
            log_probs.append(said[role].log_probs[own])
    learnt = WeightedGains.fit(told, shown=asked.shown)
    means = {
        role: replace(own["base"], log_probs=np.mean(unread[role], axis=0, dtype=np.float32))
        for role, own in asked.said.items()
    }
    return asked.joined_by("unread", means).scored(
        lambda target, base, unread: learnt.scores(target, base, unread.log_probs)
    )


def _said_by(
    asked: AskedTexts,
    name: str,
    model: "LanguageModel",
    texts: Sequence[Sequence[int]],
    *,
    directory: Path | None = None,
    likeliest: int = LIKELIEST,
) -> "TokenStatistics":
    """What another model says of texts, kept beside what the audited ones said."""
    from vestige.models.provenance import of_model

    recorded = asked.models.recorded[name] if directory is None else of_model(directory, model)
    own = replace(asked.models, models={name: model}, recorded={name: recorded})
    return own.statistics(
        texts, asked.folder, of="texts of shadows", monitor=asked.monitor, likeliest=likeliest
    )[name]
