"""What helps or hinders an audit: queries, noise, obfuscation. Nothing is trained for any of it.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.3: Figures 3 and 4 and Table 5.

Differs from the paper: noise are further texts of the member that were not learnt, in place of a
part of the training that is held out, so that the target stays the same; members with too few
texts take no part. Back-translation is Apertium's, to Spanish and back; synonyms are WordNet's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.query_selection import Selection, select_calls, select_texts, worth_of
from vestige.data.corpus import Corpus
from vestige.data.users import of_length
from vestige.experiments.audit_rows import METHODS, audit_row
from vestige.experiments.audit_trials import Asked, Trial
from vestige.experiments.audited_texts import read_users_texts

Row = Mapping[str, object]


def by_queries(
    said: Asked,
    queries: Sequence[int],
    *,
    k: int,
    how: tuple[Selection, ...],
    single: bool = False,
    **said_too: object,
) -> Iterator[Row]:
    """Figure 3: rows for every number of queries, chosen in each way.

    Args:
        said: about all words.
        queries: numbers of texts, or of words.
        k: words that the target shows.
        how: the ways to choose.
        single: queries are single words, in place of texts.
        said_too: what the rows say besides.
    """
    for chosen_by in how:
        for count in queries:
            part = said.take(choose(said, count, k=k, how=chosen_by, single=single))
            for method in METHODS:
                row = audit_row(part, method, k=k, **said_too)
                yield {**row, "selection": chosen_by, "queries": count, "words": single}


def choose(
    said: Asked, count: int, *, k: int, how: Selection, single: bool = False
) -> NDArray[np.bool_]:
    """(w,) the words of each user's queries: as many, and chosen alike, for all of them."""
    ranks = said.references.typical_ranks(said.asked, seed=0) if how == "informative" else None
    worth = worth_of(said.asked, how, frequency=said.counts.words, reference_ranks=ranks, k=k)
    select = select_calls if single else select_texts
    return select(said.asked, how, count, worth=worth)


def by_noise(
    trial: Trial, shares: tuple[float, ...], *, k: int, **said_too: object
) -> Iterator[Row]:
    """Figure 4: rows for every share of a member's texts that the target never saw."""
    each = trial.setting.text.each
    more = _further(trial)
    for share in shares:
        count = round(share * each)
        able = [name for name, texts in more.items() if len(texts) >= count]
        said = trial.ask(partial(_mixed, more={name: more[name] for name in able}, count=count))
        place = {name: at for at, name in enumerate(said.asked.names)}
        said = replace(said, members=tuple(place[name] for name in able))
        for method in METHODS:
            row = audit_row(said, method, k=k, **said_too)
            yield {**row, "noise": count / each, "members": len(able)}


def by_obfuscation(
    trial: Trial,
    ways: Mapping[str, Callable[[Corpus], Corpus]],
    *,
    k: int,
    **said_too: object,
) -> Iterator[Row]:
    """Table 5: rows for every way in which the audited texts were changed."""
    for name, change in ways.items():
        said = trial.ask(change)
        for method in METHODS:
            yield {**audit_row(said, method, k=k, **said_too), "obfuscation": name}


def _further(trial: Trial) -> dict[str, Corpus]:
    """Texts of each member that the target did not learn."""
    text = trial.setting.text
    whole = read_users_texts(text.dataset, trial.data)
    right = of_length(whole, shortest=text.shortest, longest=text.longest)
    users, learnt = np.array(right.users), set(trial.texts.audited)
    found = {}
    for name in trial.texts.members:
        own = right.take(np.flatnonzero(users == name))
        found[name] = own.take([place for place, said in enumerate(own) if said not in learnt])
    return found


def _mixed(corpus: Corpus, *, more: Mapping[str, Corpus], count: int) -> Corpus:
    """The corpus with the first `count` texts of each of these users replaced by further ones."""
    texts, users, sources = list(corpus), corpus.users or [], corpus.sources
    left = {
        name: [*zip(own, own.sources or [""] * len(own), strict=True)][:count]
        for name, own in more.items()
    }
    for place, user in enumerate(users):
        if left.get(user):
            texts[place], source = left[user].pop()
            if sources is not None:
                sources[place] = source
    return Corpus.from_texts(texts, users=users, sources=sources)
