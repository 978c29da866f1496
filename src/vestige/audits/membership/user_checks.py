"""Checks of the texts of an audit of users: read, independent, comparable."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from vestige import claims
from vestige.attacks.texts.list_checks import comparable_texts
from vestige.audits.membership.user_inputs import UserInputs
from vestige.claims import Check
from vestige.claims.comparable import LEVEL
from vestige.errors import ModelError
from vestige.metrics.unit_permutation import means_by_group


def require_finite(scores: Mapping[str, ArrayLike]) -> None:
    """Refuse a broken model before anything is computed.

    Args:
        scores: log-probabilities by model, as a sentence names it.

    Raises:
        ModelError: one is not finite.
    """
    for who, values in scores.items():
        if broken := int((~np.isfinite(np.asarray(values))).sum()):
            raise ModelError(
                f"{broken:,} scores of {who} are not finite: its weights are broken",
                remedy="Save it again, and check that its weights do not overflow.",
            )


def text_checks(
    inputs: UserInputs,
    texts: NDArray[np.integer],
    base: NDArray[np.float64] | None = None,
    *,
    seed: int,
    longest: int | None = None,
    answered: float = 1.0,
) -> tuple[Check, ...]:
    """Checks of the audited texts and of those that they are compared with.

    Args:
        inputs: of the audit.
        texts: indices of the t texts that were queried.
        base: (t,) scores under a model that saw none of them.
        seed: of folds and permutations.
        longest: tokens of a text that are read.
        answered: share of the queries that were answered.
    """
    comparable = _comparable(inputs, texts, base, seed=seed)
    return _read(inputs, longest, answered), inputs.texts.independent, comparable


def _read(inputs: UserInputs, longest: int | None, answered: float) -> Check:
    """Of the side that was read less; words that were not selected do not count as unread."""
    there = inputs.queries.positions < (longest or np.inf)
    users = len(inputs.queries.names)
    known = np.bincount(inputs.queries.users[there], minlength=users)
    lengths = np.diff(inputs.targets.offsets) - 1  # without the end of each text
    every = np.bincount(inputs.owners, lengths, minlength=users)
    sides = [list(inputs.audited), list(inputs.known.compared)]
    side = min(sides, key=lambda one: known[one].sum() / max(1, every[one].sum()))
    return claims.read(round(answered * known[side].sum()), round(every[side].sum()))


def _comparable(
    inputs: UserInputs, texts: NDArray[np.integer], base: NDArray[np.float64] | None, *, seed: int
) -> Check:
    owners, read = inputs.owners[texts], list(inputs.texts.together())
    sides = [np.isin(owners, users) for users in (inputs.audited, inputs.known.compared)]
    own, rest = ([read[index] for index in texts[side]] for side in sides)
    units = (owners[sides[0]], owners[sides[1]])
    scores = None if base is None else (base[sides[0]], base[sides[1]])
    check = comparable_texts(own, rest, units=units, base=scores, seed=seed)
    if check.state == "failed" or scores is None or len(inputs.audited) > 1:
        return check
    # One user has too few permutations for the level of a list.
    means = [scores[0].mean(keepdims=True), means_by_group(scores[1], units[1])]
    ranks = rankdata(np.concatenate(means))
    tail = min(ranks[0], ranks.size + 1 - ranks[0]) / ranks.size
    if 2 * tail > LEVEL:
        return check
    sentence = (
        "The base predicts the audited user's texts better or worse than those of nearly all "
        "reference users, without any training on them."
    )
    return Check("comparable", "failed", sentence)
