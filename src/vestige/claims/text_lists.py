"""Lists of texts that are compared: which texts count, their independent units, and the checks.

Two rules for near-duplicates. `independent_texts` leaves them out: each text that is left counts by
itself. `listed_texts` keeps all audited texts, since each is reported with its own row, and a group
of near-duplicates is one unit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.claims.checks import alive, different
from vestige.claims.checks import read as read_check
from vestige.claims.claim import Check
from vestige.claims.comparable import LEVEL, TESTS, comparable
from vestige.claims.duplicates import independent, joined, near_duplicates
from vestige.claims.word_shift import word_shift
from vestige.data.corpus import Corpus
from vestige.errors import DataError, ModelError

if TYPE_CHECKING:
    from vestige.models.token_statistics import TokenStatistics

REFERENCE = "reference"

Whole = NDArray[np.int64]


def require_lists(lists: Mapping[str, Corpus]) -> None:
    """Refuse lists that cannot be compared.

    Raises:
        DataError: a list has no text, or a text is in two lists.
    """
    for name, corpus in lists.items():
        if not len(corpus):
            raise DataError(f"`{name}` has no text", remedy="Pass a file with one text per row.")
    for name, other in combinations(lists, 2):
        if both := len(set(lists[name]) & set(lists[other])):
            are = "text is" if both == 1 else "texts are"
            raise DataError(
                f"{both:,} {are} in both `{name}` and `{other}`",
                remedy=f"Remove {'it' if both == 1 else 'them'} from one.",
            )


def independent_texts(lists: Mapping[str, Corpus]) -> tuple[dict[str, Whole], Check]:
    """Leave out near-duplicates, within a list and of a text on an earlier one.

    The choice depends on the texts alone, so it does not bias their scores. If both the audited
    list and the reference have authors, these are the units of the check.

    Args:
        lists: by name, the audited first; one is called "reference".

    Returns:
        By list, the positions of the texts that count: of near-duplicates only the first. The check
        "independent".
    """
    groups = near_duplicates([text for corpus in lists.values() for text in corpus])
    _, first, places = np.unique(groups, return_index=True, return_inverse=True)
    original, owners = first[places], _owners(lists)
    starts = np.cumsum([0, *map(len, lists.values())]).tolist()
    kept, units = {}, {}
    for (name, corpus), start in zip(lists.items(), starts, strict=False):
        here = np.arange(start, start + len(corpus))
        here = here[original[here] >= start]  # no near-duplicates of earlier lists
        kept[name] = here[original[here] == here] - start
        units[name] = owners[original[here]]
    removed = len(lists[REFERENCE]) - len(units[REFERENCE])
    return kept, independent(units[next(iter(lists))], units[REFERENCE], removed=removed)


def _owners(lists: Mapping[str, Corpus]) -> NDArray[np.str_]:
    """The unit of each text of all lists: its author if both sides have authors, or itself."""
    named = all(lists[name].users is not None for name in (next(iter(lists)), REFERENCE))
    found: list[str] = []
    for name, corpus in lists.items():
        by = corpus.users if named else None
        found += by or [f"{name} {place}" for place in range(len(corpus))]
    return np.array(found)


@dataclass(frozen=True)
class ListedTexts:
    """Audited texts and their reference.

    Attributes:
        compared: by name, the reference without near-duplicates of audited texts.
        units: by name, (n,) the independent unit of each of these texts.
        removed: reference texts that were left out.
        check: "independent".
    """

    compared: dict[str, Corpus]
    units: dict[str, Whole]
    removed: int
    check: Check


def listed_texts(lists: Mapping[str, Corpus], *, author: str | None) -> ListedTexts:
    """Check two lists and group their texts into independent units: near-duplicates, or authors.

    Args:
        lists: the audited texts by the name of their parameter, then "reference" if there is one.
        author: column with the author, whose texts are one unit.

    Raises:
        DataError: a list is empty, both share a text or an author, a list has no authors, or no
            reference text is left.
    """
    require_lists(lists)
    for role, corpus in lists.items():
        if author is not None and corpus.users is None:
            raise DataError(
                f"`{role}` has no authors",
                remedy="Pass texts with a column of authors, or omit `author`.",
            )
    name, own = next(iter(lists.items()))
    rest = lists.get(REFERENCE, own.take([]))
    by_author = own.users is not None and rest.users is not None
    if by_author and (both := set(own.users or ()) & set(rest.users or ())):
        raise DataError(
            f"{len(both)} authors have texts in both lists",
            remedy="Remove their texts from one list, or leave out `author`.",
        )
    groups = near_duplicates([*own, *rest])
    copies = np.isin(groups[len(own) :], groups[: len(own)])
    if REFERENCE in lists and copies.all():
        raise DataError(
            f"every text of `{REFERENCE}` is a near-duplicate of a text of `{name}`",
            remedy="Pass a reference of other texts.",
        )
    rest = rest.take(np.flatnonzero(~copies))
    units = np.concatenate([groups[: len(own)], groups[len(own) :][~copies]])
    if by_author:
        units = joined([*(own.users or ()), *(rest.users or ())], units)
    of_own, of_rest = units[: len(own)], units[len(own) :]
    removed = int(copies.sum())
    return ListedTexts(
        compared={one: own if one == name else rest for one in lists},
        units={one: of_own if one == name else of_rest for one in lists},
        removed=removed,
        check=independent(of_own, of_rest, removed=removed),
    )


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
    outputs: "Mapping[str, Sequence[TokenStatistics]]",
    *,
    read: tuple[int, int],
    pair: tuple[str, str] | None = None,
) -> tuple[Check, ...]:
    """The checks "alive" of each model, "read", and "different" of a pair.

    Args:
        outputs: by model, as a sentence names it, of two lists: the audited texts and the
            reference.
        read: tokens of the audited texts that were scored, and all that they have.
        pair: two models that must differ.
    """

    def by_text(one: "TokenStatistics", values: NDArray[np.generic]) -> list[NDArray[np.generic]]:
        return [values[start:end] for start, end in pairwise(one.offsets.tolist())]

    checks = [
        alive(by_text(rest, rest.log_probs), by_text(rest, rest.tokens), who=who)
        for who, (_, rest) in outputs.items()
    ]
    checks.append(read_check(*read))
    if pair is not None:
        before, after = (np.concatenate([one.log_probs for one in outputs[who]]) for who in pair)
        checks.append(different(before, after))
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
    return comparable(
        texts, reference, words_differ=differ, base=base, units=units, who=who, seed=seed
    )
