"""Do people who were never in score as those they are compared with, whatever their text is?

An LSTM learns comments of 100 Reddit users; 280 others are known never to have been in. Again and
again 80 of these are drawn to be audited and 200 to be known, without shadow models, where the
target shows 50 of its 5,000 words. Two ways to count words: those that stood before, of all known
users with each one's own text left out, 60 fitted and 140 compared; and those of the package, of a
group of their own (`membership/groups.py`). Printed are mean scores with the standard error
over users, the median p-value of those who are audited, and how many have one of at most 0.05.

    VESTIGE_DATA=corpora python benchmarks/exchangeability.py [--draws 10] [--directory kept]

The target is trained in a minute or two on one core.
"""

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from reproduction.provenance.audit_plans import named
from reproduction.provenance.audit_trials import AuditTrial
from reproduction.provenance.audited_texts import AuditedText
from vestige.audits.membership.ranked_words import (
    RankedWords,
    WordCounts,
    ranks_of,
    surprise_words,
    unexpected,
)
from vestige.audits.membership.user_texts import NonMembers
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.token_queries import token_queries
from vestige.metrics.listed import CutScores, compare
from vestige.models.checkpoints import load_model
from vestige.training.shadows import train_shadow

K, LEVEL, FITTED_BEFORE = 50, 0.05, 60
TEXT = AuditedText(
    dataset="reddit", members=100, others=80, reference=100, compared=100, each=30
)  # fmt: skip


def without_own(data, asked, users, size):
    """Log counts over the texts of users, each one's own left out, of words and of pairs."""
    whole = WordCounts.of_users(data, users, size)
    features = whole.features(asked)
    for user in users:
        mine = WordCounts.of_users(data, [user], size)
        words = asked.users == user
        part = asked.take(words)
        counts = np.expm1(features[words, :3]) - np.expm1(mine.features(part)[:, :3])
        features[words, :3] = np.log1p(np.maximum(counts, 0))
    return features


def before(words, data, audited, known, seed):
    """Scores of the audited and of the compared by the counts that stood before."""
    lots = np.random.default_rng(seed).permutation(known)
    fitted, compared = lots[:FITTED_BEFORE], lots[FITTED_BEFORE:]
    features = without_own(data, words.queries, known, words.vocab_size)
    scores = words.queries.mean_by_user(-unexpected(words.log_ranks, features, words, fitted))
    return scores[audited], scores[compared]


def after(words, data, audited, known, seed):
    """The same by the package's."""
    groups = NonMembers.drawn(known.tolist(), seed=seed)
    words = replace(words, counts=WordCounts.of_users(data, groups.counted, words.vocab_size))
    scores = words.queries.mean_by_user(surprise_words(words, groups.fitted, seed=seed))
    return scores[audited], scores[list(groups.compared)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        where = given.directory or Path(scratch)
        trial = AuditTrial(
            named("reddit", TEXT, 10).setting, where, Path(os.environ["VESTIGE_DATA"])
        )
        model = load_model(train_shadow(trial.target).directory / "model")
        texts = trial.texts
        parts = (texts.audited, texts.reference, texts.compared)
        whole = Corpus.concatenate([Corpus(p.table.select(["text", "user"])) for p in parts])
        out = whole.take(np.flatnonzero(~np.isin(np.array(whole.users), texts.members)))
        data = encode(out, texts.vocabulary)
        asked = token_queries(data, texts.vocabulary)
        ranks, _ = ranks_of(model, data, asked)
    size = len(texts.vocabulary)
    counts = WordCounts.of_users(data, [], size)  # each rule counts others
    words = RankedWords(queries=asked, ranks=ranks, k=K, vocab_size=size, counts=counts)
    print(f"{len(asked):,} words of {len(data.names)} users; {given.draws} draws of the groups")
    for title, scored in (("each one's own left out", before), ("of a group of their own", after)):
        found, differences = [], []
        for seed in range(given.draws):
            lots = np.random.default_rng([seed, 7]).permutation(len(data.names))
            mine, theirs = scored(words, data, lots[:80], np.sort(lots[80:]), seed)
            found.append(compare(*map(CutScores.whole, (mine, theirs)), most=0).p_values)
            differences.append(mine.mean() - theirs.mean())
            if not seed:
                ends = [
                    f"{group.mean():+.4f} ± {group.std(ddof=1) / len(group) ** 0.5:.4f}"
                    for group in (mine, theirs)
                ]
                print(f"{title}: audited {ends[0]}, compared {ends[1]} (first draw)")
        p_values = np.concatenate(found)
        print(
            f"    difference {np.mean(differences):+.4f} on average over draws "
            f"({min(differences):+.4f} to {max(differences):+.4f}), median p "
            f"{np.median(p_values):.2f}, P(p <= {LEVEL:g}) {(p_values <= LEVEL).mean():.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
