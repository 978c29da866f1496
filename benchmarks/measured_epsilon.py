"""How much of a claimed epsilon the audit of one training proves, by kind of canary.

A small LSTM of public sentences learns 1,000 other sentences of WikiText-2 by DP-SGD; among them
are coin-flip canaries, once each or not at all. By default every step takes all sequences, so that
the mechanism is Gaussian. At delta 1e-5 the columns are the bound that needs only fair coins
(Steinke et al. 2023), the one for the mechanism that the claim states (Mahloujifar et al. 2024),
the one that also supposes independent scores, the verdict, and the mu of the scores (of two normal
distributions with their AUC) next to that of the claim.

- `kinds`: kinds of canaries crossed with claims.
- `broken`: half of the claimed noise is added; `right`: all of it. Repeated-token canaries, a claim
  of 4, 5,000 coins.
- `sampled`: batches of a tenth of the text for 100 steps, of a correct training and a broken one.
- `simulated`: audits of Gaussian mechanisms and randomized responses, without a training.

    VESTIGE_DATA=corpora python benchmarks/measured_epsilon.py kinds [--times 3]
    python benchmarks/measured_epsilon.py simulated --times 1000
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist

import numpy as np
import torch
from corpora import lines
from harness import Row, Run, main
from networks import whole_batch
from scipy.optimize import brentq

from vestige.audits.exposure.epsilon import CanaryAudit, audit_canaries
from vestige.data.canaries.coins import CanaryKind, coin_flip_canaries
from vestige.data.canaries.texts import Canary, plant
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.epsilon import one_run_epsilon
from vestige.metrics.f_dp_epsilon import GAUSSIAN, Curves, f_dp_epsilon
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig
from vestige.privacy.accounting import noise_for
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.training.batches import Batch
from vestige.training.new_models import new_model
from vestige.training.steps import plain_step

SENTENCES, WORDS, HIDDEN = 1000, 1000, 32
SHAPE = LSTMConfig(layers=1, embedding_size=HIDDEN, hidden_size=HIDDEN)
PUBLIC_EPOCHS, DELTA = 5, 1e-5
LONGEST = 64
"""More tokens than any text has."""
CLAIMS = (1.0, 2.0, 4.0, 8.0, math.inf)
KINDS: tuple[tuple[CanaryKind, int], ...] = (
    ("words", 5),
    ("repeated-token", 1),
    ("repeated-token", 5),
)
"""Kinds of canaries, and their length in tokens."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training and its canaries.

    Attributes:
        kind: of the canaries.
        length: tokens of a canary.
        claim: epsilon.
        canaries: as many coins are flipped.
        sample_rate: the probability that a sequence is in a batch.
        move: standard deviation of the total noise of all steps in one weight.
        honesty: the share of the claimed noise that is added.
        seed: of coins, canaries and batches; the noise is fresh, as in any private training.
    """

    kind: CanaryKind = "repeated-token"
    length: int = 5
    claim: float = 4.0
    canaries: int = 1000
    steps: int = 4
    sample_rate: float = 1.0
    move: float = 0.003
    honesty: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class World:
    """What all trainings share: the private text, and a model of public text.

    Attributes:
        private: sentences among which the canaries are planted.
        start: weights after the public text. It has no canaries and no reserved words, whose
            weights start at the mean of all words, as those of new tokens do in practice.
        vocabulary: the most common words of the public text that the private text also has, then
            reserved words; so all tokens that the private text does not use are of one kind.
    """

    private: Corpus
    start: dict[str, torch.Tensor]
    vocabulary: WordVocabulary

    @classmethod
    def of(cls, public: Corpus, private: Corpus, reserved: int) -> "World":
        """Train on the public text, without privacy."""
        used = {word for text in private for word in text.split()}
        common = WordVocabulary.build(public, size=WORDS).words
        words = [word for word in common if word in {"<unk>", "<eos>", *used}]
        vocabulary = WordVocabulary((*words, *(f"reserved{i}" for i in range(reserved))))
        model, batch = new_model(vocabulary, SHAPE, seed=0), batch_of(public, vocabulary)
        optimizer, step = torch.optim.Adam(model.parameters(), lr=1e-2), plain_step()
        for epoch in range(PUBLIC_EPOCHS):
            order = np.random.default_rng(epoch).permutation(len(batch.inputs))
            for rows in torch.split(torch.from_numpy(order), 50):
                step(model, batch.select(rows), None)
                optimizer.step()
        weights = model.state_dict()
        for name in ("embedding.weight", "head.weight", "head.bias"):
            weights[name][len(words) :] = weights[name][: len(words)].mean(0)
        return cls(private, weights, vocabulary)

    def model(self) -> LanguageModel:
        """The model of the public text."""
        model = new_model(self.vocabulary, SHAPE, seed=0)
        model.load_state_dict(self.start)
        return model

    def canaries(self, training: Training) -> tuple[Canary, ...]:
        """The canaries of a training."""
        return coin_flip_canaries(
            self.private, self.vocabulary, kind=training.kind, number=training.canaries,
            length=training.length, seed=training.seed,
        )  # fmt: skip


def wikitext_world(run: Run, reserved: int) -> World:
    """The world of the first words of paragraphs of WikiText-2."""
    public, private = (
        Corpus.from_texts(
            [" ".join(line.split()[:12]) for line in lines(run, f"wikitext2/wiki.{part}.tokens")
             if len(line.split()) >= 30][: run.size(SENTENCES, 200)]
        )
        for part in ("test", "valid")
    )  # fmt: skip
    return World.of(public, private, reserved)


def batch_of(corpus: Corpus, vocabulary: WordVocabulary) -> Batch:
    """All texts in one batch."""
    return whole_batch(encode(corpus, vocabulary), LONGEST, vocabulary.eos_id)


def audit(training: Training, world: World) -> CanaryAudit:
    """The audit of a training."""
    planted, manifest = plant(
        world.private, world.canaries(training), seed=training.seed, vocabulary=world.vocabulary
    )
    model, claimed = world.model(), training.claim if math.isfinite(training.claim) else None
    mechanism = {"sample_rate": training.sample_rate, "steps": training.steps}
    noise = 0.0
    if claimed:
        noise = noise_for(epsilon=claimed, delta=DELTA, accountant="pld", **mechanism)
    train(model, batch_of(planted, world.vocabulary), training, noise)
    return audit_canaries(
        model, manifest.canaries, delta=DELTA, reference=world.model(), claimed=claimed,
        mechanism=Curves(training.sample_rate, training.steps) if claimed else None,
    )  # fmt: skip


def train(model: LanguageModel, batch: Batch, training: Training, noise: float) -> None:
    """DP-SGD with Poisson sampling."""
    rows, rng = len(batch.inputs), np.random.default_rng([training.seed, 7])
    expected = round(rows * training.sample_rate)
    step = DPSGDStep(
        noise_multiplier=noise * training.honesty, max_grad_norm=1.0, expected_units=expected,
        sequence_length=1, physical_batch_size=500,
    )  # fmt: skip
    rate = training.move * expected / (math.sqrt(training.steps) * (noise or 1.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(training.steps):
        sampled = np.flatnonzero(rng.random(rows) < training.sample_rate)
        step(model, batch.select(torch.from_numpy(sampled)), None)
        optimizer.step()


def gaussian_mu(epsilon: float) -> float:
    """The mu of a Gaussian mechanism with some epsilon."""
    return float(brentq(lambda mu: GAUSSIAN.epsilon(mu, DELTA) - epsilon, 1e-3, 20))


def audit_row(training: Training, world: World) -> Row:
    """The figures of one training's audit."""
    result = audit(training, world)
    area = min(max(result.separation.value, 1e-9), 1 - 1e-9)
    return {
        "one_run": result.one_run.epsilon,
        "f_dp": result.f_dp.epsilon,
        "threshold": result.threshold.epsilon,
        "ceiling": result.ceiling,
        "mu of scores": math.sqrt(2) * NormalDist().inv_cdf(area),
        "verdict": result.verdict,
    }


# Parts -------------------------------------------------------------------------------------------


def audits(
    run: Run, case: str, training: Training, world: World, times: int, first: int = 0
) -> Row:
    """The summary of several trainings with their own seeds."""

    def make(seed: int) -> Row:
        return audit_row(replace(training, seed=first + seed), world)

    return summary(run.draw(case, make, run.times(times)))


def kinds(run: Run) -> list[Row]:
    """Every kind of canary at every claim; means over trainings."""
    world, rows = wikitext_world(run, run.size(1000, 200)), []
    for kind, length in run.size(KINDS, KINDS[-1:]):
        for claim in run.size(CLAIMS, (4.0,)):
            training = Training(kind=kind, length=length, claim=claim, canaries=run.size(1000, 100))
            title = f"{kind}, {length} tokens"
            row = audits(run, f"{title}, claim {claim:g}", training, world, 3)
            rows.append({"canaries": title, "claim": claim, **row})
            if math.isfinite(claim):
                rows[-1]["mu of claim"] = gaussian_mu(claim)
    return rows


def repeated(honesty: float, times: int, run: Run) -> Row:
    """Trainings with the strongest canaries."""
    canaries = run.size(5000, 200)
    training = Training(canaries=canaries, honesty=honesty)
    case, world = f"honesty {honesty:g}, {canaries} canaries", wikitext_world(run, canaries)
    row = audits(run, case, training, world, times, first=1000)
    return {"noise": honesty, "canaries": canaries, **row}


def sampled(run: Run) -> list[Row]:
    """A hundred batches of a tenth of the text."""
    world, rows = wikitext_world(run, run.size(1000, 200)), []
    for honesty in (1.0, 0.5):
        training = Training(
            honesty=honesty, sample_rate=0.1, steps=run.size(100, 5), canaries=run.size(1000, 100)
        )
        row = audits(run, f"sampled, honesty {honesty:g}", training, world, 5)
        rows.append({"noise": honesty, **row})
    return rows


def summary(rows: Sequence[Row]) -> Row:
    """Means, least and most, and the verdicts."""
    result: Row = {"trainings": len(rows)}
    for name in ("one_run", "f_dp", "threshold", "ceiling", "mu of scores"):
        values = [row[name] for row in rows]
        result[name] = float(np.mean(values))
        if len(values) > 1 and name not in ("ceiling", "mu of scores"):
            result[f"{name}, least and most"] = [min(values), max(values)]
    verdicts = [str(row["verdict"]) for row in rows]
    return result | {"verdicts": {name: verdicts.count(name) for name in sorted(set(verdicts))}}


def simulated(run: Run) -> list[Row]:
    """How often bounds are above the truth, and above a claim of twice the noise."""
    rows, times = [], run.times(5000, 2)
    for canaries in run.size((1000, 5000), (100,)):
        for claim in CLAIMS[:-1]:
            for honesty in (1.0, 0.5):
                rows.append(gaussian(times, canaries, claim, honesty))
        rows += [randomized_response(times, canaries, true) for true in (0.5, 1.0, 2.0, 4.0)]
    return rows


def gaussian(times: int, canaries: int, claim: float, honesty: float) -> Row:
    """Audits of a mechanism with a share of the noise that the claim needs."""
    rng, mu, bounds = np.random.default_rng(0), gaussian_mu(claim) / honesty, []
    for _ in range(times):
        heads = rng.random(canaries) < 0.5
        scores = heads * mu + rng.normal(size=canaries)
        bounds.append(both_bounds(scores, heads, 0.975))
    case = {"mechanism": "gaussian", "canaries": canaries, "epsilon": claim, "noise": honesty}
    return case | exceeded(bounds, claim, claim)


def randomized_response(times: int, canaries: int, true: float) -> Row:
    """Audits of answers that are right with odds of e to the epsilon."""
    rng, bounds = np.random.default_rng(1), []
    for _ in range(times):
        heads = rng.random(canaries) < 0.5
        honest = rng.random(canaries) < 1 / (1 + math.exp(-true))
        scores = (heads == honest) + rng.random(canaries) / 2
        bounds.append(both_bounds(scores, heads, 0.95))
    # The family's true statement is the Gaussian curve that touches the mechanism's own.
    touching = GAUSSIAN.epsilon(2 * NormalDist().inv_cdf(1 / (1 + math.exp(-true))), DELTA)
    case = {"mechanism": "randomized response", "canaries": canaries, "epsilon": true}
    return case | {"touching": touching} | exceeded(bounds, true, touching)


def both_bounds(scores: np.ndarray, heads: np.ndarray, confidence: float) -> tuple[float, float]:
    """(the bound of fair coins alone, the bound for a Gaussian mechanism)."""
    settings = {"delta": DELTA, "confidence": confidence}
    one_run, f_dp = (
        bound(scores[heads], scores[~heads], **settings).epsilon
        for bound in (one_run_epsilon, f_dp_epsilon)
    )
    return one_run, f_dp


def exceeded(bounds: Sequence[tuple[float, float]], true: float, family_true: float) -> Row:
    """Means of both bounds, and how often each exceeds its true value."""
    one_run, f_dp = np.array(bounds).T
    return {
        "runs": len(bounds), "one_run": one_run.mean(), "f_dp": f_dp.mean(),
        "one_run above": (one_run > true).mean(), "f_dp above": (f_dp > family_true).mean(),
    }  # fmt: skip


PARTS = {
    "kinds": kinds,
    "broken": partial(repeated, 0.5, 20),
    "right": partial(repeated, 1.0, 30),
    "sampled": sampled,
    "simulated": simulated,
}

if __name__ == "__main__":
    main("measured_epsilon", __doc__, PARTS)
