"""Choices of queries, and noise, of which nothing is trained.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.3: Figures 3 and 4.

Differs from the paper: noise are further texts of the member that were not learnt, in place of a
part of the training that is held out, so that the target stays the same; members with too few
texts take no part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from reproduction.provenance.audited_texts import read_users_texts
from reproduction.provenance.audits import AuditTrial, Observations
from reproduction.texts import of_length
from vestige.audits.membership.membership import Select
from vestige.audits.membership.queries import QueryPolicy, best_of_each
from vestige.data.corpus import Corpus

Selection = Select | Literal["rare-sum"]
"""`rare-sum` is the paper's choice of texts, by the smallest sum of frequencies."""


def chosen_words(
    observed: Observations, count: int, *, k: int, how: Selection, single: bool = False
) -> NDArray[np.bool_]:
    """(w,) the words of each user's queries: as many, and chosen alike, for all of them.

    Queries are texts or `single` words; the target shows k words.
    """
    words, queries = observed.words, observed.words.queries
    if how == "rare-sum":
        _, first, text = np.unique(queries.texts, return_index=True, return_inverse=True)
        sums = np.bincount(text, -words.counts.words[queries.tokens].astype(np.float64))
        return best_of_each(queries.users[first], sums, count)[text]
    number = {"calls": count} if single else {"queries": count}
    return QueryPolicy(how=how, k=k, **number).mask(queries, words.counts, words.shadows)


def with_noise(trial: AuditTrial, shares: Sequence[float]) -> Iterator[tuple[float, Observations]]:
    """For every share of a member's texts that the target never saw, the words that are queried.

    All texts of the members are queried once; a share then decides which of them count.
    """
    each = trial.audit.text.each
    counts = [round(share * each) for share in shares]
    observed = trial.observe(more=further_texts(trial, most=max(counts)))
    texts = numbered_texts(observed, learnt=len(trial.texts.audited))
    further = texts[texts.further].groupby("user").size()
    for count in counts:
        able = tuple(at for at in observed.members if further.get(at, 0) >= count)
        chosen = observed.take(with_further(texts, count)[observed.words.queries.texts].to_numpy())
        yield count / each, replace(chosen, members=able)


def further_texts(trial: AuditTrial, *, most: int) -> Corpus:
    """Texts of members that the target did not learn, at most so many of each."""
    text = trial.audit.text
    whole = read_users_texts(text.dataset, trial.work.data)
    right = of_length(whole, shortest=text.shortest, longest=text.longest)
    texts = pd.DataFrame({"user": right.users, "text": list(right)})
    learnt = texts.text.isin(set(trial.texts.audited))
    own = texts[texts.user.isin(trial.texts.members) & ~learnt]
    return right.take(own.groupby("user").head(most).index.to_numpy())


def numbered_texts(observed: Observations, *, learnt: int) -> pd.DataFrame:
    """Every text, by number: its user, whether that is a member, whether it is one of the member's
    further texts, and its number from 0 among the user's of that kind.

    The audited texts, `learnt` in number, come first and the further texts last.
    """
    queries = observed.words.queries
    words = pd.DataFrame({"text": queries.texts, "user": queries.users})
    texts = words.groupby("text").first()
    texts["member"] = texts.user.isin(observed.members)
    texts["further"] = texts.member & (texts.index >= learnt)
    texts["number"] = texts.groupby(["user", "further"]).cumcount()
    return texts


def with_further(texts: pd.DataFrame, count: int) -> pd.Series:
    """By text, whether it counts where further texts replace a member's first `count` ones."""
    own = ~texts.member | (texts.number >= count)
    return own.where(~texts.further, texts.number < count)
