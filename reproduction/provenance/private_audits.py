"""An audit of a model that was trained with user-level differential privacy.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 6 and Figure 8: DP-FedAvg, users drawn at a rate of 0.04, updates cut to
a norm of 10, 300 rounds, epsilon 4.129 at delta 1e-4.

Differs from the paper: fewer users, so that the same noise weighs more; the rate of the local
steps is stated; what a plain training of the same text gives stands beside.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from reproduction.papers import Row
from reproduction.provenance.audit_rows import METHODS, audit_row
from reproduction.provenance.audit_trials import AuditTrial, Observations
from vestige.data.encoded import encode
from vestige.defences.methods.private import DPFedAvg
from vestige.models.folders import fingerprint
from vestige.privacy.accounting import Mechanism
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import score_documents
from vestige.training.new_models import new_model
from vestige.training.presets import Shape
from vestige.training.recipe import snapshot
from vestige.training.shadows import Shadow


@dataclass(frozen=True, kw_only=True)
class PrivateTraining:
    """How the target learns in private.

    Attributes:
        defence: DP-FedAvg with its noise.
        training: an epoch has as many rounds as it takes to draw each user once on average.
        delta: of the guarantee.
    """

    defence: DPFedAvg
    training: TrainingConfig
    delta: float = 1e-4


def private_rows(
    trial: AuditTrial, private: PrivateTraining, *, k: tuple[int, ...], **labels: object
) -> Iterator[Row]:
    """Both audits of the private target and of one trained plainly on the same members."""
    spent = epsilon_of(trial, private)
    for target, epsilon in ((None, None), (private_target(trial, private), spent)):
        observed = trial.observe(target=target)
        inside, outside = observed.target.inside, observed.target.outside
        for shown in k:
            for method in METHODS:
                yield {
                    **labels,
                    "epsilon": epsilon,
                    "delta": None if epsilon is None else private.delta,
                    "accuracy_in": inside.accuracy,
                    "accuracy_out": outside.accuracy,
                    "perplexity_in": inside.perplexity,
                    "perplexity_out": outside.perplexity,
                    **audit_row(observed, method, k=shown),
                }


def private_ranks(
    trial: AuditTrial, private: PrivateTraining, *, bins: int, **labels: object
) -> Iterator[Row]:
    """Figure 8: mean predicted ranks of words by their rank in the training text's frequencies."""
    for name, target in (("plain", None), ("private", private_target(trial, private))):
        observed = trial.observe(target=target)
        place = _frequency_ranks(trial)[observed.words.queries.tokens]
        edges = np.linspace(0, observed.words.vocab_size, bins + 1)
        for low, high in itertools.pairwise(edges):
            within = (place > low) & (place <= high)
            yield {
                **labels,
                "model": name,
                "frequency_rank": round((low + high) / 2),
                **_mean_rank(observed, within, observed.members, "seen"),
                **_mean_rank(observed, within, observed.others, "unseen"),
            }


def private_target(trial: AuditTrial, private: PrivateTraining) -> Shadow:
    """The private target; an interrupted training goes on, a finished one is found."""
    job, texts = trial.target, trial.texts
    learnt, others = job.parts()
    config = private.defence.suited(private.training)
    name = f"private-{job.digest}-{_digest(asdict(private))}"
    directory = trial.directory / name
    shape: Shape = job.model  # type: ignore[assignment]
    model = snapshot(
        directory,
        learnt,
        start=partial(new_model, texts.vocabulary, shape, seed=config.seed),
        vocabulary=texts.vocabulary,
        config=config,
        defence=private.defence,
    )
    score = partial(score_documents, model, sequence_length=config.sequence_length)
    return Shadow(
        directory=directory,
        members=job.members,
        others=job.others,
        inside=score(encode(learnt, texts.vocabulary)).evaluation(),
        outside=score(encode(others, texts.vocabulary)).evaluation(),
        sha256=fingerprint(directory),
    )


def epsilon_of(trial: AuditTrial, private: PrivateTraining) -> float:
    """Spent over the whole training, by privacy loss distributions."""
    config = private.defence.suited(private.training)  # Poisson batches, or an error
    users = len(trial.target.members)
    steps = config.epochs * -(-users // config.batch_size)
    spent = Mechanism(
        noise_multiplier=private.defence.noise,
        sample_rate=config.batch_size / users,
        steps=steps,
    )
    return spent.epsilon(private.delta)


def _frequency_ranks(trial: AuditTrial) -> NDArray[np.int64]:
    """(v,) each word's rank by frequency in the target's text, from 1."""
    learnt, _ = trial.target.parts()
    tokens = encode(learnt, trial.texts.vocabulary).tokens
    counts = np.bincount(tokens, minlength=len(trial.texts.vocabulary))
    ranks = np.empty(len(counts), dtype=np.int64)
    ranks[np.argsort(-counts, kind="stable")] = np.arange(1, len(counts) + 1)
    return ranks


def _mean_rank(
    observed: Observations, within: NDArray[np.bool_], users: tuple[int, ...], name: str
) -> dict[str, float | int | None]:
    """Mean predicted rank of these users' words, with its interval over words (as Figure 6)."""
    ranks = observed.words.ranks[within & np.isin(observed.words.queries.users, users)].astype(
        np.float64
    )
    if len(ranks) < 2:
        return {name: None, f"{name}_low": None, f"{name}_high": None, f"{name}_words": len(ranks)}
    mean, half = float(ranks.mean()), 1.96 * float(ranks.std(ddof=1)) / len(ranks) ** 0.5
    return {
        name: mean,
        f"{name}_low": mean - half,
        f"{name}_high": mean + half,
        f"{name}_words": len(ranks),
    }


def _digest(settings: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
