"""An audit of a model trained with user-level differential privacy.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 6 and Figure 8: DP-FedAvg, users sampled at a rate of 0.04, updates
clipped to a norm of 10, 300 rounds, epsilon 4.129 at delta 1e-4.

Differs from the paper: fewer users, so that the same noise weighs more; the rate of the local
steps is stated; an undefended training on the same text is compared.
"""

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reproduction.papers import Row
from reproduction.provenance.audits import AuditTrial, Observations
from reproduction.stages import stage
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary
from vestige.defences.methods.private import DPFedAvg
from vestige.metrics.estimates import Estimate, columns
from vestige.models.folders import fingerprint
from vestige.privacy.accounting import Mechanism
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import Evaluation, score_documents
from vestige.training.new_models import new_model
from vestige.training.presets import Shape
from vestige.training.recipe import snapshot
from vestige.training.shadows import Shadow


@dataclass(frozen=True, kw_only=True)
class PrivateTraining:
    """The private training of the target.

    Attributes:
        defence: DP-FedAvg with its noise.
        training: in an epoch, each user is sampled once on average.
        delta: of the guarantee.
    """

    defence: DPFedAvg
    training: TrainingConfig
    delta: float = 1e-4

    def epsilon(self, users: int) -> float:
        """Of the whole training, by privacy loss distributions."""
        config = self.defence.suited(self.training)  # Poisson batches, or an error
        mechanism = Mechanism(
            noise_multiplier=self.defence.noise,
            sample_rate=config.batch_size / users,
            steps=config.epochs * -(-users // config.batch_size),
        )
        return mechanism.epsilon(self.delta)


def private_target(trial: AuditTrial, private: PrivateTraining) -> Shadow:
    """The target of a private training on the same members."""
    members, others = trial.target_job.parts()
    vocabulary, shape = trial.texts.vocabulary, trial.target_job.model
    result = trial.work(train_private(members, others, vocabulary, shape, private))
    return Shadow(
        directory=result.folder,
        members=trial.texts.members,
        others=trial.texts.others,
        inside=Evaluation(**result.value["inside"]),
        outside=Evaluation(**result.value["outside"]),
        sha256=result.value["sha256"],
    )


@stage(outputs=("model",))
def train_private(
    members: Corpus,
    others: Corpus,
    vocabulary: WordVocabulary,
    shape: Shape,
    private: PrivateTraining,
    *,
    folder: Path,
) -> Row:
    """Train with DP-FedAvg; score the text of members and of others."""
    config = private.defence.suited(private.training)
    model = snapshot(
        folder,
        members,
        start=partial(new_model, vocabulary, shape, seed=config.seed),
        vocabulary=vocabulary,
        config=config,
        defence=private.defence,
    )
    inside, outside = (
        score_documents(model, encode(part, vocabulary), sequence_length=config.sequence_length)
        for part in (members, others)
    )
    return {
        "sha256": fingerprint(folder),
        "inside": asdict(inside.evaluation()),
        "outside": asdict(outside.evaluation()),
    }


def rank_rows(
    observed: Observations, frequency_ranks: NDArray[np.int64], bins: int
) -> Iterator[Row]:
    """Figure 8: mean predicted ranks of words by their frequency rank in the training text."""
    ranks = frequency_ranks[observed.words.queries.tokens]
    edges = np.linspace(0, observed.words.vocab_size, bins + 1)
    for low, high in itertools.pairwise(edges):
        in_bin = (ranks > low) & (ranks <= high)
        yield {
            "frequency_rank": round((low + high) / 2),
            **_mean_rank(observed, in_bin, observed.members, "seen"),
            **_mean_rank(observed, in_bin, observed.others, "unseen"),
        }


def frequency_ranks(trial: AuditTrial) -> NDArray[np.int64]:
    """(v,) each word's rank by frequency in the target's training text, from 1."""
    members, _ = trial.target_job.parts()
    vocabulary = trial.texts.vocabulary
    counts = np.bincount(encode(members, vocabulary).tokens, minlength=len(vocabulary))
    ranks = np.empty(len(counts), dtype=np.int64)
    ranks[np.argsort(-counts, kind="stable")] = np.arange(1, len(counts) + 1)
    return ranks


def _mean_rank(
    observed: Observations, mask: NDArray[np.bool_], users: tuple[int, ...], name: str
) -> Row:
    """Mean predicted rank of these users' words, with its interval over words (as Figure 6)."""
    mask = mask & np.isin(observed.words.queries.users, users)
    ranks = observed.words.ranks[mask].astype(np.float64)
    estimate = None
    if len(ranks) > 1:
        mean, half = float(ranks.mean()), 1.96 * float(ranks.std(ddof=1)) / len(ranks) ** 0.5
        estimate = Estimate("mean rank", mean, mean - half, mean + half)
    return {**columns(name, estimate), f"{name}_words": len(ranks)}
