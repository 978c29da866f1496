"""Selections of queries, and noise; neither needs another training.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.3: Figures 3 and 4.

Differs from the paper: noise is further text of the member outside the training, not a part of the
training that is held out, so that the target stays the same; members with too few texts are left
out.
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
from vestige.audits.membership.queries import QueryPolicy, highest_per_user
from vestige.data.corpus import Corpus

Selection = Select | Literal["rare-sum"]
"""`rare-sum` is the paper's selection of texts, by the smallest sum of frequencies."""


def query_mask(
    observed: Observations, count: int, *, k: int, selection: Selection, words: bool = False
) -> NDArray[np.bool_]:
    """(w,) the words in `count` queries of each user, selected alike for all users.

    Queries are texts, or single words if `words`; the target shows k words.
    """
    ranked, queries = observed.words, observed.words.queries
    if selection == "rare-sum":
        _, first, text = np.unique(queries.texts, return_index=True, return_inverse=True)
        sums = np.bincount(text, -ranked.counts.words[queries.tokens].astype(np.float64))
        return highest_per_user(queries.users[first], sums, count)[text]
    number = {"calls": count} if words else {"queries": count}
    return QueryPolicy(select=selection, k=k, **number).selected(
        queries, ranked.counts, ranked.shadows
    )


def with_noise(trial: AuditTrial, shares: Sequence[float]) -> Iterator[tuple[float, Observations]]:
    """The queried words for each share of a member's texts that the target was not trained on.

    All texts of the members are queried once; a share then decides which of them count.
    """
    each = trial.audit.text.each
    counts = [round(share * each) for share in shares]
    observed = trial.observe(more=further_texts(trial, most=max(counts)))
    texts = numbered_texts(observed, trained=len(trial.texts.audited))
    further = texts[texts.further].groupby("user").size()
    for count in counts:
        members = tuple(user for user in observed.members if further.get(user, 0) >= count)
        mask = with_further(texts, count)[observed.words.queries.texts].to_numpy()
        yield count / each, replace(observed.take(mask), members=members)


def further_texts(trial: AuditTrial, *, most: int) -> Corpus:
    """Texts of members outside the target's training, at most `most` of each."""
    text = trial.audit.text
    corpus = read_users_texts(text.dataset, trial.work.data)
    documents = of_length(corpus, shortest=text.shortest, longest=text.longest)
    texts = pd.DataFrame({"user": documents.users, "text": list(documents)})
    trained = texts.text.isin(set(trial.texts.audited))
    further = texts[texts.user.isin(trial.texts.members) & ~trained]
    return documents.take(further.groupby("user").head(most).index.to_numpy())


def numbered_texts(observed: Observations, *, trained: int) -> pd.DataFrame:
    """A row per text: its user, `member`, `further` (outside the training), and its number from 0
    among the user's texts of that kind.

    The audited texts, `trained` in number, come first and the further texts last.
    """
    queries = observed.words.queries
    words = pd.DataFrame({"text": queries.texts, "user": queries.users})
    texts = words.groupby("text").first()
    texts["member"] = texts.user.isin(observed.members)
    texts["further"] = texts.member & (texts.index >= trained)
    texts["number"] = texts.groupby(["user", "further"]).cumcount()
    return texts


def with_further(texts: pd.DataFrame, count: int) -> pd.Series:
    """Whether each text counts if further texts replace a member's first `count` ones."""
    counted = ~texts.member | (texts.number >= count)
    return counted.where(~texts.further, texts.number < count)
