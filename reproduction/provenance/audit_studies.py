"""Studies of an audit: queries, noise and obfuscation; nothing is trained for any of them.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.3: Figures 3 and 4 and Table 5.

Differs from the paper: noise are further texts of the member that were not learnt, in place of a
part of the training that is held out, so that the target stays the same; members with too few
texts take no part. Back-translation is Apertium's, to Spanish and back; synonyms are WordNet's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from reproduction.papers import Row
from reproduction.provenance.audit_rows import METHODS, audit_row
from reproduction.provenance.audit_trials import AuditTrial, Observations
from reproduction.provenance.audited_texts import read_users_texts
from reproduction.user_documents import of_length
from vestige.audits.membership.membership import Select
from vestige.audits.membership.queries import QueryPolicy, best_of_each
from vestige.data.corpus import Corpus

Selection = Select | Literal["rare-sum"]
"""`rare-sum` is the paper's choice of texts, by the smallest sum of frequencies."""


def by_queries(
    observed: Observations,
    queries: Sequence[int],
    *,
    k: int,
    how: tuple[Selection, ...],
    single: bool = False,
    **labels: object,
) -> Iterator[Row]:
    """Figure 3: rows for every number of queries, chosen in each way.

    Args:
        observed: about all words.
        queries: numbers of texts, or of words.
        k: words that the target shows.
        how: the ways to choose.
        single: queries are single words, in place of texts.
        labels: further columns of the rows.
    """
    for chosen_by in how:
        for count in queries:
            part = observed.take(choose(observed, count, k=k, how=chosen_by, single=single))
            for method in METHODS:
                row = audit_row(part, method, k=k, **labels)
                yield {**row, "selection": chosen_by, "queries": count, "words": single}


def choose(
    observed: Observations, count: int, *, k: int, how: Selection, single: bool = False
) -> NDArray[np.bool_]:
    """(w,) the words of each user's queries: as many, and chosen alike, for all of them."""
    words, queries = observed.words, observed.words.queries
    if how == "rare-sum":
        _, first, text = np.unique(queries.texts, return_index=True, return_inverse=True)
        sums = np.bincount(text, -words.counts.words[queries.tokens].astype(np.float64))
        return best_of_each(queries.users[first], sums, count)[text]
    asked_for = {"calls": count} if single else {"queries": count}
    policy = QueryPolicy(how=how, k=k, **asked_for)
    return policy.mask(queries, words.counts, words.shadows)


def by_noise(
    trial: AuditTrial, shares: tuple[float, ...], *, k: int, **labels: object
) -> Iterator[Row]:
    """Figure 4: rows for every share of a member's texts that the target never saw.

    All texts of the members are asked about once; a share then decides which of them count.
    """
    each = trial.audit.text.each
    more = _further(trial, most=max(round(share * each) for share in shares))
    observed = trial.observe(more=more)
    turns = _turns(observed, each=each, learnt=len(trial.texts.audited))
    for share in shares:
        count = round(share * each)
        able = [at for at in observed.members if turns.further[at] >= count]
        part = replace(observed.take(turns.kept(count)), members=tuple(able))
        for method in METHODS:
            row = audit_row(part, method, k=k, **labels)
            yield {**row, "noise": count / each, "members": len(able)}


def by_obfuscation(
    trial: AuditTrial,
    ways: Mapping[str, Callable[[Corpus], Corpus]],
    *,
    k: int,
    **labels: object,
) -> Iterator[Row]:
    """Table 5: rows for every way in which the audited texts were changed."""
    for name, change in ways.items():
        observed = trial.observe(change)
        for method in METHODS:
            yield {**audit_row(observed, method, k=k, **labels), "obfuscation": name}


def _further(trial: AuditTrial, *, most: int) -> Corpus:
    """Texts of members that the target did not learn, at most so many of each."""
    text = trial.audit.text
    whole = read_users_texts(text.dataset, trial.data)
    right = of_length(whole, shortest=text.shortest, longest=text.longest)
    members, learnt = set(trial.texts.members), set(trial.texts.audited)
    left = dict.fromkeys(members, most)
    chosen = []
    for place, (user, observed) in enumerate(zip(right.users or (), right, strict=True)):
        if left.get(user) and observed not in learnt:
            left[user] -= 1
            chosen.append(place)
    return right.take(chosen)


@dataclass(frozen=True)
class _Turns:
    """Which text of its user each word stands in.

    Attributes:
        turn: (w,) from 0, in the order of the corpus; for further texts of members from `each` on.
        each: texts of a user that belong to the trial.
        member: (w,) whether the word is a member's.
        further: (u,) further texts of each user.
    """

    turn: NDArray[np.int64]
    each: int
    member: NDArray[np.bool_]
    further: NDArray[np.int64]

    def kept(self, count: int) -> NDArray[np.bool_]:
        """(w,) the words that count where `count` of each member's texts are further ones."""
        last = np.where(self.member, self.each + count, self.each)
        first = np.where(self.member, count, 0)
        kept: NDArray[np.bool_] = (self.turn >= first) & (self.turn < last)
        return kept


def _turns(observed: Observations, *, each: int, learnt: int) -> _Turns:
    """Number the texts of every user: those of the trial, then a member's further ones.

    Args:
        observed: of which the audited texts come first and the further texts last.
        each: texts of a user that belong to the trial.
        learnt: audited texts; a member's texts behind these are further ones.
    """
    asked = observed.words.queries
    member = np.isin(asked.users, observed.members)
    texts, first, inverse = np.unique(asked.texts, return_index=True, return_inverse=True)
    owner = asked.users[first]
    beyond = member[first] & (texts >= learnt)
    turn = np.empty(len(texts), dtype=np.int64)
    further = np.zeros(len(asked.names), dtype=np.int64)
    for user in np.unique(owner):
        own = owner == user
        turn[own & ~beyond] = np.arange(int((own & ~beyond).sum()))
        further[user] = int((own & beyond).sum())
        turn[own & beyond] = each + np.arange(further[user])
    return _Turns(turn[inverse], each, member, further)
