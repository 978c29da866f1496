"""Checks of listed texts and their reference, for every verb that compares two lists of texts.

`independent_texts` says which texts count, before any model reads them; `model_checks` and
`comparable_texts` check what models said of those.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import claims
from vestige.attacks.texts.shift import word_shift
from vestige.claims import Check
from vestige.claims.comparable import LEVEL, TESTS
from vestige.errors import ModelError
from vestige.models.token_statistics import TokenStatistics

REFERENCE = "reference"


class IndependentTexts(NamedTuple):
    """The texts that count as evidence.

    Attributes:
        kept: by list, the positions of these texts: of near-duplicates only the first counts.
        units: by list, the unit of each of them: its author, or itself.
        check: "independent".
    """

    kept: dict[str, NDArray[np.int64]]
    units: dict[str, NDArray[np.str_]]
    check: Check


def independent_texts(
    lists: Mapping[str, Sequence[str]],
    authors: Mapping[str, Sequence[str] | None] | None = None,
    *,
    of: str = "texts",
) -> IndependentTexts:
    """Leave out near-duplicates, within a list and of a text on an earlier one.

    The choice depends on the texts alone, so it does not bias their scores.

    Args:
        lists: by name, the audited first; one is called "reference".
        authors: of the texts of each list. They are the units where both the audited list and the
            reference name them.
        of: what the audited list holds, in the plural.
    """
    names, sizes = list(lists), [len(own) for own in lists.values()]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    every = [text for own in lists.values() for text in own]
    groups = claims.near_duplicates(every)
    _, first, places = np.unique(groups, return_index=True, return_inverse=True)
    counted = first[places]
    owners = _owners(lists, authors or {})
    kept, units, original = {}, {}, {}
    for name, (start, end) in zip(names, pairwise(starts.tolist()), strict=True):
        here = np.arange(start, end)
        own = here[counted[here] == here]
        kept[name], units[name] = own - start, owners[own]
        original[name] = owners[counted[here[counted[here] >= start]]]
    removed = len(lists[REFERENCE]) - len(original[REFERENCE])
    check = claims.independent(original[names[0]], original[REFERENCE], removed=removed, of=of)
    return IndependentTexts(kept, units, check)


def _owners(
    lists: Mapping[str, Sequence[str]], authors: Mapping[str, Sequence[str] | None]
) -> NDArray[np.str_]:
    """The unit of each text of all lists: its author where both sides name them, or itself."""
    named = all(authors.get(name) is not None for name in (next(iter(lists)), REFERENCE))
    found: list[str] = []
    for name, own in lists.items():
        by = authors.get(name) if named else None
        found += by or [f"{name} {place}" for place in range(len(own))]
    return np.array(found)


def require_finite(scores: Mapping[str, Iterable[ArrayLike]]) -> None:
    """Refuse broken models before anything is computed from their scores.

    Args:
        scores: log-probabilities of some texts, by model as a sentence names it.

    Raises:
        ModelError: a score is not finite.
    """
    for who, parts in scores.items():
        if broken := sum(int((~np.isfinite(np.asarray(one))).sum()) for one in parts):
            raise ModelError(
                f"{broken:,} scores of {who} are not finite: its weights are broken",
                remedy="Save the model again and check its weights.",
            )


def model_checks(
    said: Mapping[str, Sequence[TokenStatistics]],
    *,
    read: tuple[int, int],
    pair: tuple[str, str] | None = None,
    finding: bool = False,
) -> tuple[Check, ...]:
    """The checks "alive" of each model, "read", and "different" of a pair.

    Args:
        said: by model, as a sentence names it, of two lists: the audited texts and the reference.
        read: tokens of the audited texts that were scored, and all that they have.
        pair: the two models that must differ.
        finding: equal models are a finding, as in `claims.different`.
    """
    checks = [
        claims.alive(_by_text(rest, rest.log_probs), _by_text(rest, rest.tokens), who=who)
        for who, (_, rest) in said.items()
    ]
    checks.append(claims.read(*read))
    if pair is not None:
        before, after = (np.concatenate([one.log_probs for one in said[who]]) for who in pair)
        checks.append(claims.different(before, after, finding=finding))
    return tuple(checks)


def comparable_texts(
    texts: Sequence[str],
    reference: Sequence[str],
    *,
    units: tuple[ArrayLike, ArrayLike],
    base: tuple[ArrayLike, ArrayLike] | None = None,
    who: str = "the base",
    seed: int,
) -> Check:
    """The check "comparable".

    Args:
        texts: n audited texts.
        reference: m texts that are known not to be in the training data.
        units: (n,) and (m,) independent unit of each.
        base: (n,) and (m,) scores of a model that saw neither.
        who: that model in a sentence.
        seed: of folds and permutations.
    """
    own, rest = ([str(one) for one in np.asarray(side)] for side in units)
    words = word_shift(texts, reference, authors=own, reference_authors=rest, seed=seed)
    differ = None if words is None else words.p_value <= LEVEL / TESTS
    return claims.comparable(
        texts, reference, words_differ=differ, base=base, units=units, who=who, seed=seed
    )


def _by_text(said: TokenStatistics, values: NDArray[np.generic]) -> list[NDArray[np.generic]]:
    return [values[start:end] for start, end in pairwise(said.offsets.tolist())]
