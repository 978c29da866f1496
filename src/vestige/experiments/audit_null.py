"""Are p-values of users who are out uniform, and are as many of them called as was said?

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD, has no
p-values; this is the null of ours, on one target and many users whose text it never saw.

One calibration set for all makes their p-values depend on each other, and a test for uniformity
would reject a true null: each user is compared with users drawn anew, and two halves of the users
by a two-sample test (Mann and Whitney), which is exact whatever the scores are.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.user_evidence import evidence_of_words
from vestige.data.corpus import Corpus
from vestige.data.users import disjoint_groups, documents_of, users_with
from vestige.experiments.audit_trials import Trial
from vestige.experiments.audited_texts import read_users_texts
from vestige.metrics.conformal import conformal_p_values
from vestige.metrics.rates import rate


@dataclass(frozen=True, kw_only=True)
class NullUsers:
    """Users who have no part in a trial.

    Attributes:
        users: how many.
        each: texts of a user.
        calibration: users that each is compared with, drawn anew among the others.
    """

    users: int
    each: int
    calibration: int = 199


def null_rows(
    trial: Trial, null: NullUsers, *, k: tuple[int, ...], **said_too: object
) -> Iterator[Mapping[str, object]]:
    """A row for each output size: how many p-values are small, and whether they are uniform."""
    from scipy.stats import mannwhitneyu

    strangers = _strangers(trial, null)
    said = trial.ask(more=strangers)
    names = set(strangers.users or ())
    tested = np.array([at for at, name in enumerate(said.asked.names) if name in names])
    for shown in k:
        answers = said.shown(shown)
        evidence = evidence_of_words(
            answers, said.counts, said.known.fitted, references=said.references
        )
        scores = said.asked.mean_by_user(evidence)[tested]
        p_values = _drawn_anew(scores, null.calibration, seed=0)
        lots = np.random.default_rng(1).permutation(len(scores))
        half = len(scores) // 2
        small = {level: rate((p_values <= level).tolist()) for level in (0.01, 0.05, 0.2)}
        row: dict[str, object] = {**said_too, "k": answers.k, "users": len(scores)}
        for level, share in small.items():
            if share is not None:
                row |= {
                    f"below_{level}": share.rate,
                    f"below_{level}_low": share.interval.low,
                    f"below_{level}_high": share.interval.high,
                }
        halves = mannwhitneyu(scores[lots[:half]], scores[lots[half:]])
        yield {**row, "two_sample_p": float(halves.pvalue), "mean_p": float(p_values.mean())}


def _strangers(trial: Trial, null: NullUsers) -> Corpus:
    """Texts of users that are in no group of the trial."""
    text = trial.setting.text
    limits = {"shortest": text.shortest, "longest": text.longest}
    whole = read_users_texts(text.dataset, trial.data)
    texts = trial.texts
    taken = {*texts.members, *texts.others, *(texts.reference.users or ())}
    taken |= set(texts.compared.users or ())
    free = [name for name in users_with(whole, fewest=null.each, **limits) if name not in taken]
    (drawn,) = disjoint_groups(free, (null.users,), seed=text.seed)
    return documents_of(whole, drawn, each=null.each, seed=text.seed, **limits)


def _drawn_anew(scores: NDArray[np.float64], count: int, *, seed: int) -> NDArray[np.float64]:
    """(n,) p-values, each against `count` of the other scores, drawn for it alone."""
    generator = np.random.default_rng(seed)
    found = np.empty(len(scores))
    for place, score in enumerate(scores):
        others = np.delete(scores, place)
        drawn = generator.choice(others, min(count, len(others)), replace=False)
        found[place] = conformal_p_values([score], drawn)[0]
    return found
